"""Clusters below the mesh: when atoms form, absorb and merge, that they move as clusters do, and that nothing resolved becomes one."""

import warnings
from functools import cache
from itertools import pairwise

import fields
import numpy as np
import pytest
from scipy.integrate import quad

import meanfield_pde as mf
from meanfield_pde import exact
from meanfield_pde.sphere import distance, normalise
from meanfield_pde.systems import atoms, density
from meanfield_pde.systems.atoms import FORM, MERGE, REACH, Neighbourhoods, update_atoms
from meanfield_pde.transport.stencil import stencil

CONTRACTING, EXPANDING = (atoms.Flow(lambda rows, rate=rate: rate, np.zeros_like) for rate in (1.0, 0.0))
CIRCLE = mf.circle(128)


@cache
def sphere(level=3):
    return mf.icosahedral(level)


def at(*angles):
    """Points of the circle, (n, 2)."""
    return np.stack([np.cos(angles), np.sin(angles)], axis=1)


def only_atoms(mesh, points, masses=None):
    return mf.State(np.zeros(mesh.n_cells), mf.Measure(points, masses))


def pair(d, angle):
    """Two points of S^{d-1} so far apart, nowhere special."""
    turn = np.linalg.qr(np.random.default_rng(5).normal(size=(d, d)))[0]
    return np.stack([np.eye(d)[0], np.cos(angle) * np.eye(d)[0] + np.sin(angle) * np.eye(d)[1]]) @ turn


def gap(measure):
    """Distance of the two halves of a measure on the circle that is symmetric about the direction of its mean."""
    axis = normalise(measure.mean())
    side = measure.points @ np.array([-axis[1], axis[0]]) > 0
    halves = [measure.masses[half] @ measure.points[half] for half in (side, ~side)]
    return float(distance(normalise(halves[0]), normalise(halves[1])))


def formed(solution):
    return solution.events[solution.events.kind == "formed"]


# --- atoms as starts ---


@pytest.mark.parametrize("d", [2, 3])
@pytest.mark.parametrize(("beta", "time"), [(1.0, 3.464763), (4.0, 10.021878), (9.0, 465.8962)])
def test_two_atoms_take_the_exact_time(d, beta, time):
    """From pi/2 to .1; measured: relative 5e-11, the times are known to seven digits."""
    mesh = CIRCLE if d == 2 else sphere()
    run = mf.solve(mf.MeanFieldPDE(mesh, mf.Attention(beta)), only_atoms(mesh, pair(d, np.pi / 2)), 1.1 * time, save_at=[time])
    assert run.atoms(0).masses.tolist() == [0.5, 0.5]
    angle = float(distance(*run.atoms(0).points))
    assert time + exact.two_cluster_time(beta, angle, 0.1) == pytest.approx(time, rel=1e-6) or angle < 0.1
    assert angle == pytest.approx(float(exact.two_cluster_angle(beta, np.pi / 2, time)), rel=1e-6)
    assert exact.two_cluster_time(beta, np.pi / 2, angle) == pytest.approx(time, rel=1e-6)


@pytest.mark.parametrize("masses", [(0.5, 0.5), (0.8, 0.2)])
@pytest.mark.parametrize("normalised", [True, False])
@pytest.mark.parametrize(("beta", "start"), [(4.0, 1.2), (500.0, 0.3), (500.0, 0.4), (1e4, 0.06)])
def test_merges_are_located_in_time(beta, start, normalised, masses):
    """Relative 1e-8, also where velocities begin at e^-40 and a merger of a time of 1 follows 1e17 of rest.

    Times of USA run in units of e^-beta.
    """
    if not normalised and masses != (0.5, 0.5):
        pytest.skip("the closed form of USA is for equal masses")
    attention = mf.Attention(beta, normalised=normalised, log_scale=0.0 if normalised else beta)
    end = MERGE * CIRCLE.spacing
    time = exact.two_cluster_time(beta, start, end, masses) if normalised else usa_time(beta, start, end)
    system = mf.MeanFieldPDE(CIRCLE, attention)
    run = mf.solve(system, only_atoms(CIRCLE, at(0.3, 0.3 + start), masses), 1.5 * time)
    (event,) = run.events
    assert event.kind == "merged" and event.t == pytest.approx(time, rel=1e-8)
    assert event.mass == pytest.approx(min(masses)) and event.total == pytest.approx(1.0)
    assert len(run.atoms(-1)) == 1 and run.history.atoms[-1] == 1 and run.history.atoms[0] == 2


def usa_time(beta, start, end):
    """From theta' = -e^{beta (cos theta - 1)} sin theta, time in units of e^-beta, by quadrature."""
    edges = np.geomspace(end, start, 40)
    return sum(quad(lambda s: np.exp(beta * (1 - np.cos(s))) / np.sin(s), a, b, epsrel=1e-12)[0] for a, b in pairwise(edges))


@pytest.mark.parametrize(("k", "beta"), [(2, 4.0), (3, 5.0), (4, 9.0)])
def test_a_ring_is_unstable_at_the_exact_rate(k, beta):
    """Equal atoms, the second moved by 1e-6; measured: 0.02 %."""
    rate = float(exact.ring_rate(k, beta))
    angles = 2 * np.pi * np.arange(k) / k
    mode = np.cos(np.pi * np.arange(k)) if k != 3 else np.cos(angles)
    times = np.array([4.0, 7.0]) / rate
    run = mf.solve(mf.MeanFieldPDE(CIRCLE, mf.Attention(beta)), only_atoms(CIRCLE, at(*(angles + 1e-6 * mode))), times[-1], save_at=times)
    sizes = []
    for n in range(2):
        turned = np.angle(np.exp(-1j * angles) * (run.atoms(n).points @ [1, 1j]))
        sizes.append(np.linalg.norm(turned - turned.mean()))
    assert np.log(sizes[1] / sizes[0]) / (times[1] - times[0]) == pytest.approx(rate, rel=0.01)


def test_heavy_tokens_in_a_uniform_continuum_stay_where_symmetry_keeps_them():
    """One atom of mass .2, which attracts the rest: by symmetry it does not move, but for the cells that it takes up on one side first."""
    place = at(0.1)
    start = mf.State(np.full(128, 0.8 / (2 * np.pi)), mf.Measure(place, [0.2]))
    run = mf.solve(mf.MeanFieldPDE(CIRCLE, mf.Attention(2.0)), start, 3.0, save_every=1.0)
    assert np.abs(run.measure(0).total - 1) < 1e-14 and len(run.atoms(0)) == 1
    assert distance(run.atoms(-1).points[0], place[0]) < 0.2 * CIRCLE.spacing
    masses = [run.atoms(k).masses[0] for k in range(4)]
    assert (np.diff(masses) > 0).all() and len(formed(run)) == 0
    assert np.abs(run.history.mass - 1).max() < 1e-14
    tokens = mf.Measure(np.concatenate([at(*(2 * np.pi * (np.arange(4000) + 0.5) / 4000)), place]), np.r_[np.full(4000, 0.8 / 4000), 0.2])
    reference = mf.solve(mf.ParticleSystem(mf.Attention(2.0), "spectral"), tokens, 3.0, stepper=mf.Adaptive(1e-8, 1e-9))
    assert mf.wasserstein(run.measure(-1), reference.measure(-1)) < 0.6 * CIRCLE.spacing


# --- from densities to atoms ---


@pytest.mark.slow
@pytest.mark.parametrize("n", [128, 256])
def test_two_bumps_merge_when_two_clusters_do(n):
    """beta = 9, 1.2 apart, width .1: the exact time from the gap at t = 10 is 15; the plain scheme never merges them."""
    mesh = mf.circle(n)
    law = mf.Mixture([mf.VonMisesFisher(x, 100.0) for x in at(-0.3, 0.9)], [0.5, 0.5])
    start = mf.project(mesh, law, normalise=True)
    run = mf.solve(mf.MeanFieldPDE(mesh, mf.Attention(9.0)), start, 40.0, save_every=0.05)
    gaps = np.array([gap(run.measure(k)) for k in range(600)])
    first = int(np.argmax(gaps < 0.1))
    expected = float(exact.two_cluster_time(9.0, gaps[200], 0.1))
    assert run.times[first] - 10.0 == pytest.approx(expected, rel=0.02)
    assert len(formed(run)) == 2 and formed(run).mass.min() > 0.3
    merged = run.events[run.events.kind == "merged"]
    assert len(merged) == 1 and run.atoms(-1).masses.tolist() == pytest.approx([1.0], abs=1e-14)
    with pytest.warns(mf.PinnedWarning, match=r"^pinned from t = \d"):
        plain = mf.solve(mf.MeanFieldPDE(mesh, mf.Attention(9.0), atoms=False), start, 30.0)
    assert gap(plain.measure(-1)) > 1.0  # the control


@pytest.mark.slow
def test_the_eigenvector_of_the_value_matrix_repels_the_centre():
    """V = diag(1, 1.5), a bump .05 from e_1: tan(angle) grows like e^{t/2} (numerics of a Dirac), also below the mesh."""
    model = mf.Attention(4.0, value=np.diag([1.0, 1.5]))
    start = mf.project(CIRCLE, mf.VonMisesFisher(at(0.05)[0], 400.0), normalise=True)
    run = mf.solve(mf.MeanFieldPDE(CIRCLE, model), start, 6.0, save_at=[2.0, 6.0])
    tangents = [np.divide(*normalise(run.measure(k).mean())[::-1]) for k in range(2)]
    assert 2 * np.log(tangents[1] / tangents[0]) == pytest.approx(4.0, rel=0.02)
    with pytest.warns(mf.PinnedWarning):
        plain = mf.solve(mf.MeanFieldPDE(CIRCLE, model, atoms=False), start, 6.0, save_at=[2.0, 6.0])
    tangents = [np.divide(*normalise(plain.measure(k).mean())[::-1]) for k in range(2)]
    assert 2 * np.log(tangents[1] / tangents[0]) < 3.5  # the control: held back by the mesh


def test_mass_is_exact_and_the_centroid_moves_by_h_squared(monkeypatch):
    changes = []
    for n in (64, 128, 256):
        mesh = mf.circle(n)
        near = Neighbourhoods(mesh, stencil(mesh))
        angles = np.arctan2(mesh.centers[:, 1], mesh.centers[:, 0])
        cells = np.exp(-0.5 * ((angles - 0.3) / (0.8 * mesh.spacing)) ** 2)
        cells /= cells.sum()
        left, found, events = update_atoms(near, 0.0, cells, mf.Measure.trusted(np.empty((0, 2)), np.empty(0)), CONTRACTING)
        assert [event.kind for event in events] == ["formed"] or [event.kind for event in events] == ["formed", "absorbed"]
        assert left.sum() + found.total == pytest.approx(1.0, abs=1e-15)
        assert left[near.within(found.points[0], REACH)].sum() == 0
        changes.append(np.linalg.norm(left @ mesh.centers + found.mean() - cells @ mesh.centers))
        assert events[0].radius < FORM * mesh.spacing
    orders = -np.diff(np.log2(changes))
    assert (orders > 1.8).all() and changes[0] < mf.circle(64).spacing ** 2
    taken = atoms._taken

    def leaking(*given):
        place, mass, radius = taken(*given)
        return place, mass * (1 - 1e-14), radius

    monkeypatch.setattr(atoms, "_taken", leaking)
    left, found, _ = update_atoms(near, 0.0, cells, mf.Measure.trusted(np.empty((0, 2)), np.empty(0)), CONTRACTING)
    assert left.sum() + found.total != pytest.approx(1.0, abs=1e-15)  # the control: 1e-14 of what an atom takes is lost


def two_bumps():
    return mf.project(CIRCLE, mf.Mixture([mf.VonMisesFisher(x, 100.0) for x in at(-0.3, 0.9)], [0.5, 0.5]), normalise=True)


def two_atoms():
    return only_atoms(CIRCLE, at(0.3, 0.8))


@pytest.mark.parametrize(("kind", "start", "beta"), [("formed", two_bumps, 9.0), ("absorbed", two_bumps, 9.0), ("merged", two_atoms, 4.0)])
def test_mass_that_atoms_lose_ends_the_run(kind, start, beta, monkeypatch):
    """The control of what is said here about mass: with each event of a kind, atoms lose 1e-9 of theirs."""

    def leaking(*given):
        cells, found, events = update_atoms(*given)
        lost = 1e-9 if kind in {event.kind for event in events} else 0.0
        return cells, mf.Measure.trusted(found.points, found.masses * (1 - lost)), events

    monkeypatch.setattr(density, "update_atoms", leaking)
    with pytest.raises(mf.SolveError, match=r"^the mass is 0\.99999999\d* at t = .*, wanted 1 within 1e-10$") as caught:
        mf.solve(mf.MeanFieldPDE(CIRCLE, mf.Attention(beta)), start(), 40.0)
    assert kind not in caught.value.solution.events.kind  # the step with the first of them is not taken


class NanAtAtoms:
    """The rotation; after t = .1 no number at the second atom: two points are asked for at once where the atoms are, and nowhere else."""

    calls = 0

    def velocity(self, points, measure, t=0.0):
        self.calls += 1
        assert self.calls < 1000, "the run goes on"
        result = np.stack([-points[:, 1], points[:, 0]], axis=1)
        if t > 0.1 and len(points) == 2:
            result[1] = np.nan
        return result


@pytest.mark.parametrize("cells", [0.6, 0.0])
def test_an_atom_whose_velocity_turns_nan_ends_the_run(cells):
    """With mass in cells, which never see it, and with none."""
    start = mf.State(np.full(128, cells / (2 * np.pi)), mf.Measure(at(0.0, 2.0), [(1 - cells) / 2] * 2))
    seen = {}
    look = [lambda t, measure: seen.__setitem__(t, measure.points.copy())]
    with pytest.raises(mf.SolveError, match=r"^the velocity of atom 1 is \[nan nan\] at t = 0\.1\d*, wanted a finite number$") as caught:
        mf.solve(mf.MeanFieldPDE(CIRCLE, NanAtAtoms()), start, 1.0, callbacks=look)
    solution = caught.value.solution
    assert (solution.measure(-1).points == seen[solution.times[-1]]).all()
    assert solution.status.startswith("failed: the velocity of atom 1")


def test_what_is_left_at_the_end_joins_the_nearest_atom():
    near = Neighbourhoods(CIRCLE, stencil(CIRCLE))
    cells = np.zeros(128)
    cells[[40, 90]] = 3e-13
    places = mf.Measure(CIRCLE.centers[[20, 100]], [0.5, 0.5])
    left, found, events = update_atoms(near, 1.0, cells, places, EXPANDING)
    assert not left.any() and [event.kind for event in events] == ["absorbed", "absorbed"]
    assert found.masses == pytest.approx([0.5 + 3e-13, 0.5 + 3e-13], abs=1e-16)
    cells[40] = 1e-11
    assert update_atoms(near, 1.0, cells, places, EXPANDING)[2] == []  # the control: this is not little


# --- nothing resolved becomes an atom ---


class Given:
    """A given velocity field, whatever the measure."""

    def __init__(self, velocity):
        self._velocity = velocity

    def velocity(self, points, measure, t=0.0):
        return self._velocity(np.asarray(points))


def turning(x):
    return np.cross([0.0, 0.0, 1.0], x)


def towards_the_equator(x):
    """Contracts everything to a circle, along which nothing moves."""
    v = np.zeros_like(x)
    v[:, 2] = -x[:, 2]
    return v - (v * x).sum(axis=1, keepdims=True) * x


NARROW = mf.VonMisesFisher((1, 0, 0), 40.0)
"""As narrow as an atom may be on the mesh of level 3."""


@pytest.mark.parametrize(
    ("model", "law", "level", "t_end"),
    [
        (Given(turning), mf.VonMisesFisher((1, 0, 0), 20.0), 4, 3.0),
        (Given(towards_the_equator), mf.Uniform(3), 4, 5.0),
        (mf.Attention(4.0, value=-np.eye(3)), NARROW, 3, 2.0),
        (mf.Attention(0.0), mf.Moebius((0.0, 0.0, 0.3)), 4, 1.5),
        (mf.Attention(4.0), mf.PerturbedUniform(3, noise=0.05, max_degree=6, seed=1), 4, 3.0),
    ],
    ids=["passing", "ridge", "expanding", "moebius", "noise"],
)
def test_no_false_atom(model, law, level, t_end):
    mesh = sphere(level)
    run = mf.solve(mf.MeanFieldPDE(mesh, model), mf.project(mesh, law, normalise=True), t_end)
    assert len(run.events) == 0 and len(run.atoms(-1)) == 0 and run.history.cell_mass[-1] == pytest.approx(1.0, abs=1e-13)


def test_a_cluster_in_the_same_flow_becomes_one():
    """The control of the expanding case: V = I."""
    run = mf.solve(mf.MeanFieldPDE(sphere(), mf.Attention(4.0)), mf.project(sphere(), NARROW, normalise=True), 2.0)
    assert len(formed(run)) == 1 and formed(run).mass[0] > 0.5


def test_atoms_do_not_swallow_what_flees_them():
    start = mf.State(np.full(128, 0.5 / (2 * np.pi)), mf.Measure(at(1.0), [0.5]))
    run = mf.solve(mf.MeanFieldPDE(CIRCLE, mf.Attention(4.0, value=-np.eye(2))), start, 2.0)
    assert len(run.events) == 0 and run.atoms(-1).masses.tolist() == [0.5]


# --- everything downstream ---


FOUR_HUMPS = mf.Mixture([mf.VonMisesFisher(x, 8.0) for x in at(-2.0, -0.6, 0.6, 2.2)], [0.3, 0.25, 0.25, 0.2])


@pytest.fixture(scope="module")
def limit():
    return mf.solve(mf.MeanFieldPDE(CIRCLE, mf.Attention(9.0)), mf.project(CIRCLE, FOUR_HUMPS), 60.0, save_every=1.0)


def test_a_run_tells_its_atoms(limit):
    assert limit.averages.shape == (61, 128) and limit.averages[-1].max() == 0
    counts = [len(limit.atoms(k)) for k in range(61)]
    assert counts[0] == 0 and counts[-1] == limit.history.atoms[-1] > 0
    assert max(abs(limit.measure(k).total - 1) for k in range(61)) < 1e-14
    assert limit.history.cell_mass[0] == pytest.approx(1, abs=1e-13) and limit.history.cell_mass[-1] == 0
    assert set(limit.events.kind) == {"formed", "absorbed", "merged"} and (np.diff(limit.events.t) >= 0).all()
    assert np.abs(np.linalg.norm(limit.events.place, axis=1) - 1).max() < 1e-14
    assert "atoms: " in limit.summary() and "formed" in limit.summary()
    assert limit.record["atoms"] is True and "dop853" in limit.record["stepper"]
    assert (np.diff(limit.history.energy) > 0).all()  # measured: the smallest rise is 1e-9 of 170
    with pytest.raises(ValueError, match=r"k is 61, wanted an integer in \[-61, 60\]"):
        limit.atoms(61)
    tokens = mf.solve(mf.ParticleSystem(mf.Attention(9.0)), at(0.0, 1.0), 1.0)
    with pytest.raises(AttributeError, match="tokens have no atoms"):
        tokens.atoms(0)


def test_a_run_with_atoms_survives_its_file(limit, tmp_path):
    mf.save(tmp_path / "run.vtkhdf", limit)
    loaded = mf.load(tmp_path / "run.vtkhdf")
    assert loaded == limit and loaded.atoms(-1) == limit.atoms(-1) and loaded.system.atoms is True
    assert loaded.events.kind.tolist() == limit.events.kind.tolist()


def test_comparison_and_energy_see_atoms(limit):
    tokens = mf.solve(mf.ParticleSystem(limit.model), limit.atoms(-1), 60.0, save_every=20.0)
    table = mf.compare(limit, tokens)
    assert table.columns["w1"][-1] < 0.01 and table.columns["w1"][0] > 0.1
    assert mf.energy(limit.model, limit.measure(-1)) == pytest.approx(limit.history.energy[-1], rel=1e-13)
    assert len(mf.clusters(limit.measure(-1), 0.01)) == len(limit.atoms(-1))


@pytest.mark.parametrize("d", [2, 3])
@pytest.mark.parametrize("beta", [4.0, 30.0])
def test_sums_and_transforms_agree_where_there_are_atoms(d, beta):
    mesh = CIRCLE if d == 2 else sphere()
    state = mf.State(0.6 * mf.project(mesh, mf.VonMisesFisher(np.eye(d)[0], 3.0)), mf.Measure(pair(d, 0.7), [0.3, 0.1]))
    rates = []
    for method in ("direct", "spectral"):
        system = mf.MeanFieldPDE(mesh, mf.Attention(beta), order=1, method=method)
        rates.append(system.rate(0.0, system.begin(state)))
    sums, transforms = rates
    assert sums.change.shape == (mesh.n_cells + 2 * d,) and transforms.work == {"transforms": mesh.n_cells + 2}
    assert np.abs(sums.cells.flow - transforms.cells.flow).max() <= 1e-10 * np.abs(sums.cells.flow).max()
    assert np.abs(sums.change - transforms.change)[mesh.n_cells :].max() <= 1e-12
    without = mf.MeanFieldPDE(mesh, mf.Attention(beta), order=1, method="spectral")
    alone = without.rate(0.0, fields.state_of(without, mf.project(mesh, mf.VonMisesFisher(np.eye(d)[0], 3.0)) * mesh.areas))
    assert np.abs(alone.cells.flow - sums.cells.flow).max() > 0.01 * np.abs(sums.cells.flow).max()  # the control: atoms count


def test_the_energy_of_cells_and_atoms_from_their_potentials():
    state = mf.State(0.6 * mf.project(sphere(), mf.VonMisesFisher((1, 0, 0), 3.0)), mf.Measure(pair(3, 0.7), [0.3, 0.1]))
    system = mf.MeanFieldPDE(sphere(), mf.Attention(4.0), method="direct")
    begun = system.begin(state)
    by_potential = system.energy(0.0, begun, system.rate(0.0, begun))
    assert by_potential.log == pytest.approx(mf.log_energy(system.model, system.measure(begun)), rel=1e-12)


def test_atoms_alone_are_summed_whatever_the_method():
    """At beta = 1e5 transforms would need thousands of degrees; three atoms need none."""
    system = mf.MeanFieldPDE(CIRCLE, mf.Attention(1e5), method="spectral")
    run = mf.solve(system, only_atoms(CIRCLE, at(0.0, 0.01, 2.0)), 50.0)
    assert run.record["points evaluated"].endswith("by sums") and run.history.atoms[-1] == 2
    assert run.history.log_energy[-1] == pytest.approx(mf.log_energy(system.model, run.measure(-1)), rel=1e-13)


# --- stages ---


def test_stages_are_the_stairs_of_the_energy(limit):
    found = mf.stages(limit)
    assert [stage.clusters for stage in found] == sorted((stage.clusters for stage in found), reverse=True)
    assert found[-1].t_end == 60.0 and all(a.t_end <= b.t_start for a, b in pairwise(found))
    assert found[-1].masses == pytest.approx(sorted(limit.atoms(-1).masses, reverse=True), abs=1e-14)
    for stage in found:
        assert len(stage.masses) == stage.clusters and sum(stage.masses) == pytest.approx(1.0, abs=0.011)
    energies = [stage.energy for stage in found]
    assert (np.diff(energies) > 0).all() and energies[-1] == pytest.approx(limit.history.energy[-1], rel=1e-3)


def test_stages_of_tokens_and_of_atoms_are_the_same():
    points = at(0.0, 0.9, 2.2, 3.9, 4.6)
    atoms = mf.solve(mf.MeanFieldPDE(CIRCLE, mf.Attention(4.0)), only_atoms(CIRCLE, points), 100.0)
    tokens = mf.solve(mf.ParticleSystem(mf.Attention(4.0)), points, 100.0, save_every=0.05)
    ours, theirs = mf.stages(atoms), mf.stages(tokens)
    assert [stage.clusters for stage in ours] == [stage.clusters for stage in theirs] == [5, 4, 3, 2, 1][: len(ours)]
    assert len(ours) > 2
    for a, b in zip(ours, theirs, strict=True):
        assert a.t_start == pytest.approx(b.t_start, abs=0.06) and a.masses == pytest.approx(b.masses)


def test_the_summary_tells_how_far_the_energy_jumps(limit):
    """From the step before to the one in which an atom formed; a run of atoms alone forms none (the control)."""
    steps = [int(np.flatnonzero(limit.history.t == event.t)[0]) for event in limit.events if event.kind == "formed"]
    jumps = [limit.history.energy[k] / limit.history.energy[k - 1] - 1 for k in steps]
    assert limit.energy_jump() == pytest.approx(max(map(abs, jumps)), rel=1e-9) and 0 < limit.energy_jump() < 0.05
    assert f"the energy jumps by up to {limit.energy_jump():.2%} where atoms form" in limit.summary()
    still = mf.solve(mf.MeanFieldPDE(CIRCLE, mf.Attention(4.0)), only_atoms(CIRCLE, at(0.0, 0.9)), 0.1)
    assert still.energy_jump() == 0 and "jumps" not in still.summary()


def test_stages_obey_their_angle():
    """Two clusters .08 apart at beta = 5000 hardly move: one cluster within .1 (the control), two within .05, and tokens say the same."""
    points = at(0.0, 0.08, 2.0)
    atoms = mf.solve(mf.MeanFieldPDE(CIRCLE, mf.Attention(5000.0)), only_atoms(CIRCLE, points), 100.0, save_every=10.0)
    tokens = mf.solve(mf.ParticleSystem(mf.Attention(5000.0)), points, 100.0, save_every=10.0)
    for run in (atoms, tokens):
        assert [(stage.t_start, stage.t_end, stage.clusters) for stage in mf.stages(run)] == [(0.0, 100.0, 2)]
        (stage,) = mf.stages(run, angle=0.05)
        assert (stage.t_start, stage.t_end, stage.clusters) == (0.0, 100.0, 3) and stage.masses == pytest.approx([1 / 3] * 3)
    assert mf.stages(atoms, angle=0.05)[0].log_energy == pytest.approx(mf.stages(tokens, angle=0.05)[0].log_energy, rel=1e-9)


def test_a_run_stops_when_it_is_metastable(limit):
    mesh = mf.circle(64)
    system = mf.MeanFieldPDE(mesh, limit.model)
    run = mf.solve(system, mf.project(mesh, FOUR_HUMPS), 1e6, callbacks=[mf.metastable(system.model, 1e-4)])
    assert "metastable: mean speed" in run.status and "converged" not in run.status
    assert 5 < run.times[-1] < 1e6 and len(run.atoms(-1)) > 1
    with pytest.raises(ValueError, match="speed is 0, wanted a number > 0"):
        mf.metastable(system.model, 0.0)


def test_the_slow_phase_costs_no_more_steps(limit):
    """2410.06833's long times: t = 1e6 against t = 1e2."""
    history = mf.solve(limit.system, limit.averages[0], 1e6).history
    assert history.t[-1] == 1e6 and len(history) < 1.5 * (history.t <= 1e2).sum()


# --- input ---


def test_a_pinned_cluster_is_told_once():
    start = mf.project(CIRCLE, mf.VonMisesFisher((1, 0), 50.0), normalise=True)
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        run = mf.solve(mf.MeanFieldPDE(CIRCLE, mf.Attention(4.0), atoms=False), start, 6.0)
    assert len(caught) == 1 and caught[0].category is mf.PinnedWarning
    assert str(caught[0].message).startswith(f"pinned from t = {run.events.t[0]:.6g}") and run.events.kind.tolist() == ["pinned"]
    assert __file__ == caught[0].filename
    with pytest.raises(ValueError, match="wanted atoms=True"):
        mf.stages(run)


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: mf.MeanFieldPDE(CIRCLE, mf.Attention(), atoms=1), "atoms is 1, wanted True or False"),
        (lambda: mf.State([-1.0, 2.0]), r"averages\[0\] is -1, wanted a number >= 0"),
        (lambda: mf.State([1.0, np.nan]), r"averages\[1\] is nan, wanted a finite number"),
        (lambda: mf.State(np.ones(128), at(0.0)), "atoms is a ndarray, wanted a Measure"),
        (lambda: solve_from(only_atoms(CIRCLE, at(0.0), [0.5])), "start has mass 0.5, wanted 1"),
        (lambda: solve_from(mf.State(np.zeros(128), mf.Measure(np.eye(3)))), r"the start's atoms lie in R\^3, wanted R\^2"),
        (lambda: solve_from(only_atoms(CIRCLE, at(0.0)), atoms=False), "the start has 1 atoms with atoms=False, wanted none"),
        (lambda: solve_from(mf.State(np.zeros(5), mf.Measure(at(0.0)))), r"start has shape \(5,\), wanted \(128,\)"),
    ],
)
def test_bad_input_is_refused(make, message):
    with pytest.raises(ValueError, match=message):
        make()


def solve_from(start, **options):
    return mf.solve(mf.MeanFieldPDE(CIRCLE, mf.Attention(), **options), start, 1.0)


@pytest.mark.slow
def test_spikes_become_atoms_however_near_they_are(monkeypatch):
    """162 cells at beta = 30, whose kernel is narrower than a cell: clusters three cells apart, one window for all."""
    mesh = mf.icosahedral(2)
    law = mf.Mixture([mf.VonMisesFisher(x, 12.0) for x in normalise(np.random.default_rng(1).normal(size=(5, 3)))], [0.2] * 5)
    system, start = mf.MeanFieldPDE(mesh, mf.Attention(30.0)), mf.project(mesh, law, normalise=True)
    run = mf.solve(system, start, 20.0)
    assert run.history.cell_mass[-1] < 1e-3 and len(run.atoms(-1)) >= 2
    assert np.abs(run.history.mass - 1).max() < 1e-14
    monkeypatch.setattr(atoms, "SPIKE", np.inf)  # the control: the rest stays pinned
    assert mf.solve(system, start, 20.0).history.cell_mass[-1] > 0.1


def test_tokens_on_their_way_are_no_stage(limit):
    """A thousand tokens around the circle are one chain, and neither a cluster nor, later, are a few stragglers."""
    tokens = mf.ParticleSystem(mf.Attention(9.0), "spectral")
    run = mf.solve(tokens, mf.sample(FOUR_HUMPS, 1000, seed=2), 12.0, save_every=0.5, stepper=mf.Adaptive(1e-8, 1e-9))
    assert mf.clusters(run.measure(0), 0.1)[0][0] > 0.99  # the control: a chain
    found = mf.stages(run)
    assert [stage.clusters for stage in found] == [stage.clusters for stage in mf.stages(limit)][: len(found)]
    assert found[0].t_start > 2.0
