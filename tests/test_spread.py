"""Close pairs of a density spread in its cells: exact laws, atoms, tokens drawn in the cells; centres alone as the control."""

import numpy as np
import pytest

import meanfield_pde as mf
from meanfield_pde.diagnostics.spread import close_pairs_in_cells
from meanfield_pde.systems.density import State


def begun(mesh, averages, atoms=None):
    return mf.solve(mf.MeanFieldPDE(mesh, mf.Attention(1.0)), State(averages, atoms), 1e-3)


def uniform(mesh, mass=1.0):
    return np.full(mesh.n_cells, mass / mesh.areas.sum())


@pytest.mark.parametrize("cosine", [0.999, 0.5, -0.9, 0.999999])
@pytest.mark.parametrize("mesh", ["seven", "many", "unequal"])
def test_the_uniform_law_on_the_circle_is_exact(mesh, cosine):
    mesh = {"seven": mf.circle(7), "many": mf.circle(256), "unequal": mf.voronoi([[1.0, 0.0], [0.6, 0.8], [-1.0, 0.0], [0.0, -1.0]])}[mesh]
    exact = np.arccos(cosine) / np.pi
    share, error = close_pairs_in_cells(begun(mesh, uniform(mesh)), 0, cosine)
    assert share == pytest.approx(exact, abs=2e-13) and error == 0


@pytest.mark.parametrize(
    ("make", "size"), [(mf.cubed_sphere, 9), *(pytest.param(mf.icosahedral, k, marks=pytest.mark.slow) for k in (1, 3))]
)
def test_the_uniform_law_on_the_sphere(make, size):
    mesh, exact = make(size), 0.0005
    run = begun(mesh, uniform(mesh))
    share, error = close_pairs_in_cells(run, 0, 0.999)
    assert share == pytest.approx(exact, rel=0.02) and abs(share - exact) < 2 * error < 0.1 * exact
    assert mf.close_pairs(run.measure(0), 0.999) != pytest.approx(exact, rel=0.5), "the control: between centres"


def test_a_density_that_is_no_constant_on_the_circle():
    """Against pairs of many points in each arc."""
    mesh, angle = mf.circle(40), np.arccos(0.99)
    averages = mf.project(mesh, mf.VonMisesFisher((0.6, 0.8), 3.0))
    share, _ = close_pairs_in_cells(begun(mesh, averages), 0, 0.99)
    parts = 500
    masses = np.repeat(averages * mesh.areas / parts, parts)
    twice = np.concatenate([masses, masses, masses])
    below = np.concatenate([[0.0], np.cumsum(twice)])
    middle = len(masses) + np.arange(len(masses)) + 0.5
    reach = angle / (2 * np.pi) * len(masses)
    near = np.interp(middle + reach, np.arange(len(below)), below) - np.interp(middle - reach, np.arange(len(below)), below)
    assert share == pytest.approx(masses @ near, rel=1e-5)


@pytest.mark.parametrize(("make", "size"), [(mf.circle, 64), (mf.icosahedral, 2)])
def test_atoms_meet_cells_and_one_another(make, size):
    mesh = make(size)
    d = mesh.dimension
    points = np.eye(d)[:2]
    near = np.array([[np.cos(0.01), np.sin(0.01), *[0.0] * (d - 2)]])
    atoms = mf.Measure(np.concatenate([points, near]), [0.2, 0.1, 0.3])
    share, error = close_pairs_in_cells(begun(mesh, uniform(mesh, 0.4), atoms), 0, 0.999)
    cap = np.arccos(0.999) / np.pi if d == 2 else 0.0005
    exact = 0.4**2 * cap + 2 * 0.4 * 0.6 * cap + 0.2**2 + 0.1**2 + 0.3**2 + 2 * 0.2 * 0.3
    assert abs(share - exact) < (1e-12 if d == 2 else 1e-4) and error < 1e-4


def test_tokens_have_no_cells():
    tokens = mf.solve(mf.ParticleSystem(mf.Attention(1.0)), np.eye(3), 0.1)
    with pytest.raises(ValueError, match="solution is a run of tokens, wanted a density"):
        close_pairs_in_cells(tokens, 0, 0.999)
    with pytest.raises(ValueError, match="cosine is 2"):
        close_pairs_in_cells(begun(mf.circle(8), uniform(mf.circle(8))), 0, 2.0)
