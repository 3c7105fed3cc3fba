"""What broke in other programs, tried here: each test names the report (list "Met since")."""

import hashlib

import numpy as np
import pytest

import meanfield_pde as mf
from meanfield_pde import inputs


def sha256(path):
    return hashlib.sha256(path.read_bytes()).hexdigest()


# --- another file under the same name: phaseField 145 (a restart accepts another mesh) ---


@pytest.mark.parametrize("kind", ["mesh", "start"])
def test_a_run_does_not_go_on_with_another_file_of_the_same_name(kind, tmp_path):
    """The control: the same case and the same bytes in another folder."""
    tables = 't_end = 20.0\nmesh = {file = "mesh.vtu"}\nstart = {kind = "tokens", file = "start.csv"}\n'
    here, there, same = (tmp_path / name for name in ("here", "there", "same"))
    for folder in (here, there, same):
        mf.write_mesh(folder / "mesh.vtu", mf.circle(13 if kind == "mesh" and folder == there else 12))
        (folder / "start.csv").write_text("0.6,0.8\n" if kind == "start" and folder == there else "1,0\n")
        (folder / "case.toml").write_text(tables)
    mf.run(here / "case.toml", tmp_path / "out", wall_time=1e-9)
    name = {"mesh": "mesh.vtu", "start": "start.csv"}[kind]
    with pytest.raises(ValueError, match=rf"^{name} has SHA-256 {sha256(there / name)}, wanted {sha256(here / name)}: that of the file"):
        mf.resume(tmp_path / "out", case=there / "case.toml")
    before = mf.load(tmp_path / "out/limit.vtkhdf").times[-1]
    (limit,) = mf.resume(tmp_path / "out", case=same / "case.toml", wall_time=1e-9)
    assert limit.times[-1] > before


# --- unit vectors of fewer digits: geomstats 585 (float32 points are told to be off the sphere) ---


def directions(d, kind, n=40):
    """x / |x|, computed in this type."""
    x = np.random.default_rng(d).normal(size=(n, d)).astype(kind)
    return x / np.sqrt((x * x).sum(axis=1, keepdims=True))


@pytest.mark.parametrize("kind", [np.float32, np.float16])
@pytest.mark.parametrize("d", [2, 3, 1024])
def test_unit_vectors_in_float32_are_points_of_the_sphere(d, kind):
    """Controls: the same numbers as float64, and rows that are farther off than rounding takes them."""
    x = directions(d, kind)
    points = mf.Measure(x).points
    assert points.dtype == np.float64 and np.abs(np.linalg.norm(points, axis=1) - 1).max() <= 4e-16
    assert np.abs(points - x).max() <= 4 * np.finfo(kind).eps
    assert np.array_equal(mf.Measure(list(x)).points, points)
    for off in (x.astype(np.float64), x * kind(1 + (d + 8) * np.finfo(kind).eps)):
        with pytest.raises(ValueError, match="wanted a point of the unit sphere"):
            mf.Measure(off)
    exact = directions(d, np.float64)
    assert np.array_equal(mf.Measure(exact).points, exact)


UNIT = {
    "a measure": lambda x: mf.Measure(x).points,
    "tokens": lambda x: mf.ParticleSystem(mf.Attention()).begin(x).points,
    "generators": lambda x: mf.voronoi(x).centers,
    "atoms": lambda x: mf.State(np.ones(8) / 4 / np.pi, mf.Measure(x, np.full(len(x), 0.5 / len(x)))).atoms.points,
    "binned tokens": lambda x: mf.bin_tokens(mf.icosahedral(1), x),
    "smoothed tokens": lambda x: mf.Smoothed(x, 0.1).tokens.points,
    "queries": lambda x: mf.exact.von_mises_fisher_velocity(x, x[0], 1.0, 1.0),
    "places": lambda x: mf.density_at(mf.icosahedral(0), np.arange(12), x),
    "targets": lambda x: mf.aggregate(mf.Measure(x), x)[0].points,
}


@pytest.mark.parametrize("name", UNIT)
def test_unit_vectors_in_float32_are_taken_everywhere(name):
    x = directions(3, np.float32)
    assert np.abs(UNIT[name](x) - UNIT[name](inputs.points("x", x))).max() <= 1e-15


@pytest.mark.parametrize("suffix", [".npy", ".csv"])
def test_files_of_float32(suffix, tmp_path):
    """Text has no type: there the remedy is named."""
    path, x = tmp_path / f"tokens{suffix}", directions(3, np.float32)
    if suffix == ".npy":
        for given in (x, x.astype(">f4"), np.hstack([x, x[:, :1] ** 2])):
            np.save(path, given)
            points = mf.read_tokens(path, weighted=given.shape[1] > 3).points
            assert np.abs(points - x).max() <= 2e-7 and np.abs(np.linalg.norm(points, axis=1) - 1).max() <= 4e-16
    else:
        np.savetxt(path, x, delimiter=",")
        with pytest.raises(
            ValueError, match=r"tokens.csv\[\d+\] has length .*, wanted a point of the unit sphere \(length 1\), or normalise = True$"
        ):
            mf.read_tokens(path)
        assert np.abs(mf.read_tokens(path, normalise=True).points - x).max() <= 2e-7
