"""The results file gives back an equal run, and refuses everything else in one sentence."""

import os
from dataclasses import replace

import numpy as np
import pytest

import meanfield_pde as mf

LAW = mf.VonMisesFisher((1.0, 2.0, 2.0), 3.0)


@pytest.fixture(scope="module")
def limit():
    attention = mf.Attention(2.0, query=np.diag([1.0, 2.0, 0.5]), value=np.diag([1.0, -0.5, 0.1]))
    mesh = mf.icosahedral(2)
    return mf.solve(mf.MeanFieldPDE(mesh, attention, order=1), mf.project(mesh, LAW), 0.3, save_every=0.1, stepper="ssprk2")


@pytest.fixture(scope="module")
def tokens():
    rng = np.random.default_rng(0)
    start = mf.Measure(mf.sample(LAW, 20, seed=1), rng.dirichlet(np.ones(20)))
    return mf.solve(mf.ParticleSystem(mf.Attention(2.0, normalised=False)), start, 0.3, save_at=[0.05, 0.3])


@pytest.mark.parametrize("name", ["limit", "tokens"])
def test_a_loaded_run_is_equal(name, request, tmp_path):
    solution = request.getfixturevalue(name)
    mf.save(tmp_path / "run.npz", solution)
    loaded = mf.load(tmp_path / "run.npz")
    assert loaded == solution
    assert loaded.record["versions"] == solution.record["versions"]
    assert loaded.summary() == solution.summary()
    assert os.listdir(tmp_path) == ["run.npz"]


def test_equality_sees_a_single_bit(limit, tmp_path):
    mf.save(tmp_path / "run.npz", limit)
    loaded = mf.load(tmp_path / "run.npz")
    masses = loaded.masses.copy()
    masses[1, 7] = np.nextafter(masses[1, 7], 1.0)
    changed = replace(loaded, masses=masses)
    assert changed != limit


def test_a_loaded_run_is_a_full_solution(limit, tmp_path):
    mf.save(tmp_path / "run.npz", limit)
    loaded = mf.load(tmp_path / "run.npz")
    assert mf.energy(loaded.attention, loaded.measure(-1)) == mf.energy(limit.attention, limit.measure(-1))
    again = mf.solve(loaded.system, loaded.averages[0] * (loaded.masses[0].sum() / 1.0), 0.3, save_every=0.1, stepper="ssprk2")
    assert np.abs(again.masses - limit.masses).max() <= 1e-15


def test_unstorable_and_unreadable(limit, tmp_path):
    class Wind:
        def velocity(self, points, measure, t=0.0):
            return np.zeros_like(points)

    mesh = limit.mesh
    solution = mf.solve(mf.MeanFieldPDE(mesh, Wind()), mf.project(mesh, LAW), 0.1)
    with pytest.raises(ValueError, match="velocity model Wind, wanted Attention"):
        mf.save(tmp_path / "wind.npz", solution)
    assert not list(tmp_path.iterdir())

    with pytest.raises(FileNotFoundError, match="no results file"):
        mf.load(tmp_path / "missing.npz")
    mf.save(tmp_path / "run.npz", limit)
    whole = (tmp_path / "run.npz").read_bytes()
    for cut in (0, 10, len(whole) // 2, len(whole) - 1):
        (tmp_path / "cut.npz").write_bytes(whole[:cut])
        with pytest.raises(ValueError, match="no complete results file"):
            mf.load(tmp_path / "cut.npz")
    np.savez(tmp_path / "other.npz", a=np.ones(3))
    with pytest.raises(ValueError, match="no complete results file"):
        mf.load(tmp_path / "other.npz")
