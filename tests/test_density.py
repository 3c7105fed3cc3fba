"""The density solver: what it accepts, the form of its velocities, its rate, and any model with a velocity."""

import fields
import numpy as np
import pytest

import meanfield_pde as mf
from meanfield_pde.sphere import dot, normalise, tangent
from meanfield_pde.transport import flux


def random_points(n, d=3, seed=0):
    return normalise(np.random.default_rng(seed).normal(size=(n, d)))


def cap(mesh, kappa=3.0):
    return mf.project(mesh, mf.VonMisesFisher(np.eye(mesh.dimension)[0], kappa))


class Still:
    """The least a model needs: a velocity."""

    def velocity(self, points, measure, t=0.0):
        return np.zeros_like(points)


# --- bad input, before any step (T6) ---


def damaged(mesh, index, value):
    start = np.full(mesh.n_cells, 1 / mesh.areas.sum())
    start[index] = value
    return start


@pytest.mark.parametrize(
    ("start", "message"),
    [
        (lambda m: damaged(m, [3, 5], np.nan), r"start\[3\] is nan, wanted a finite number"),
        (lambda m: damaged(m, [4, 7], np.inf), r"start\[4\] is inf, wanted a finite number"),
        (lambda m: damaged(m, [2, 6], -0.25), r"start\[2\] is -0\.25, wanted a number >= 0"),
        (lambda m: np.zeros(m.n_cells), r"start has mass 0, wanted 1"),
        (lambda m: np.ones(m.n_cells + 1), r"start has shape \(13,\), wanted \(12,\)"),
        (lambda m: np.ones((m.n_cells, 1)), r"start has shape \(12, 1\), wanted \(12,\)"),
        (lambda m: np.ones(m.n_cells), r"start has mass 6\.28318530718, wanted 1"),
        (lambda m: "uniform", r"start is not an array of numbers"),
    ],
)
def test_bad_starts_are_named(start, message):
    mesh = mf.circle(12)
    with pytest.raises(ValueError, match=message):
        mf.solve(mf.MeanFieldPDE(mesh, mf.Attention()), start(mesh), 1.0)


@pytest.mark.parametrize("order", [0, 3, 1.5, "2", None])
def test_other_orders_are_refused(order):
    with pytest.raises(ValueError, match="order is"):
        mf.MeanFieldPDE(mf.circle(8), mf.Attention(), order=order)


def test_matrices_of_another_dimension_are_refused():
    with pytest.raises(ValueError, match="model has 3 x 3 matrices, wanted 2 x 2 like the mesh"):
        mf.MeanFieldPDE(mf.circle(8), mf.Attention(value=np.eye(3)))


# --- velocities ---


def test_the_form_of_face_velocities():
    plain, turned = mf.Attention(beta=2.0), mf.Attention(beta=2.0, value=np.diag([1.0, 2.0, 3.0]))
    for mesh, model, form in (
        (mf.icosahedral(1), plain, "potential"),
        (mf.icosahedral(1), turned, "midpoint"),
        (mf.cubed_sphere(3), plain, "midpoint"),  # centers do not lie across their faces
        (mf.voronoi(random_points(50)), plain, "potential"),
        (mf.icosahedral(1), Still(), "midpoint"),
    ):
        assert fields.form_of(mf.MeanFieldPDE(mesh, model)) == form


def test_both_forms_agree_up_to_the_spacing():
    differences = []
    for level in (2, 3, 4):
        mesh = mf.icosahedral(level)
        system = mf.MeanFieldPDE(mesh, mf.Attention(beta=3.0))
        measure = system.measure(system.begin(cap(mesh)))
        two_point = fields.face_velocities(system, measure.masses)
        midpoint = dot(mf.Attention(beta=3.0).velocity(mesh.face_midpoints, measure), mesh.face_normals)
        potential = mf.Attention(beta=3.0).potential(mesh.centers, measure)
        assert (system.rate(0.0, fields.state_of(system, measure.masses)).cells.flow == potential).all()
        differences.append(np.sqrt(np.mean((two_point - midpoint) ** 2)))
    assert (-np.diff(np.log2(differences)) > 1.8).all()


@pytest.mark.parametrize("normalised", [True, False])
def test_the_uniform_density_does_not_move_on_equal_arcs(normalised):
    mesh = mf.circle(64)
    system = mf.MeanFieldPDE(mesh, mf.Attention(beta=5.0, normalised=normalised))
    rate, moving = (system.rate(0.0, fields.state_of(system, masses)) for masses in (np.full(64, 1 / 64), cap(mesh) * mesh.areas))
    assert np.abs(rate.change).max() < 1e-13
    assert np.abs(moving.change).max() > 1e-3


@pytest.mark.parametrize("order", [1, 2])
@pytest.mark.parametrize("make", [lambda: mf.circle(32), lambda: mf.icosahedral(2), lambda: mf.cubed_sphere(5)])
def test_rates_sum_to_zero_and_say_which_cell_limits_the_step(make, order):
    mesh = make()
    system = mf.MeanFieldPDE(mesh, mf.Attention(beta=4.0), order=order)
    rate = system.rate(0.0, system.begin(cap(mesh)))
    velocities = fields.face_velocities(system, cap(mesh) * mesh.areas)
    left, right = mesh.face_cells.T
    out = np.bincount(left, np.maximum(velocities, 0) * mesh.face_lengths, mesh.n_cells)
    out += np.bincount(right, np.maximum(-velocities, 0) * mesh.face_lengths, mesh.n_cells)
    assert abs(rate.change.sum()) < 1e-15
    assert rate.outflow == pytest.approx((out / mesh.areas).max(), rel=1e-14)
    assert rate.worst == (out / mesh.areas).argmax()
    assert rate.speed == 1.0
    assert system.courant_limit == (1.0 if order == 1 else 0.5)


def test_rate_converges_to_minus_the_divergence():
    """beta = 0 on S^1: v = -r sin(angle), so d rho/dt = r (rho sin)'; in the mean of the cells."""
    errors = []
    for n in (64, 128, 256):
        mesh = mf.circle(n)
        law = mf.VonMisesFisher([1.0, 0.0], 1.5)
        averages = mf.project(mesh, law)
        system = mf.MeanFieldPDE(mesh, mf.Attention(beta=0.0))
        mean = float((averages * mesh.areas) @ mesh.centers[:, 0])
        ends = 2 * np.pi * (np.arange(n + 1) - 0.5) / n
        flux_at_ends = -mean * np.sin(ends) * law(np.stack([np.cos(ends), np.sin(ends)], axis=1))
        errors.append(np.abs(system.rate(0.0, fields.state_of(system, averages * mesh.areas)).change + np.diff(flux_at_ends)).sum())
    assert (-np.diff(np.log2(errors)) > 1.8).all()


# --- any model ---


def test_a_model_needs_only_a_velocity():
    class East:
        def velocity(self, points, measure, t=0.0):
            return np.stack([-points[:, 1], points[:, 0]], axis=1) * np.cos(t)

    mesh = mf.circle(64)
    solution = mf.solve(mf.MeanFieldPDE(mesh, East()), cap(mesh), 1.0)
    mean = solution.measure(-1).mean()
    assert np.arctan2(mean[1], mean[0]) == pytest.approx(np.sin(1.0), abs=1e-3)  # t reaches the model
    assert np.isnan(solution.history.energy).all()
    assert solution.history.mass == pytest.approx(1.0, abs=1e-14)


def test_the_measure_reaches_the_model():
    class TowardsTheMean:
        def velocity(self, points, measure, t=0.0):
            return tangent(points, np.broadcast_to(measure.mean(), points.shape))

    mesh = mf.icosahedral(2)
    mine = mf.solve(mf.MeanFieldPDE(mesh, TowardsTheMean(), order=1), cap(mesh, 1.0), 0.5, stepper=mf.SSP(mf.SSPRK3, dt_max=0.05))
    theirs = mf.solve(
        mf.MeanFieldPDE(mesh, mf.Attention(beta=0.0, value=np.eye(3)), order=1), cap(mesh, 1.0), 0.5, stepper=mf.SSP(mf.SSPRK3, dt_max=0.05)
    )
    assert np.abs(mine.masses[-1] - theirs.masses[-1]).max() < 1e-3
    assert np.abs(mine.masses[-1] - mine.masses[0]).max() > 1e-3


# --- mass (S3) ---


def test_a_loss_of_mass_ends_the_run(monkeypatch):
    mesh, right = mf.circle(32), flux.divergence

    def leaking(mesh, stencil, received, swept, change, outflow):
        right(mesh, stencil, received, swept, change, outflow)
        change[0] -= 1e-6

    system = mf.MeanFieldPDE(mesh, mf.Attention(beta=1.0))
    mf.solve(system, cap(mesh), 0.1)
    monkeypatch.setattr(flux, "divergence", leaking)
    with pytest.raises(mf.SolveError, match=r"the mass is 0\.9999\d* at t = .*, wanted 1"):
        mf.solve(system, cap(mesh), 0.1)


def test_the_state_is_masses_and_averages_are_derived():
    mesh = mf.icosahedral(2)
    solution = mf.solve(mf.MeanFieldPDE(mesh, mf.Attention(beta=2.0)), cap(mesh), 0.5)
    assert np.abs(solution.averages * mesh.areas - solution.masses).max() < 1e-17
    assert (solution.measure(0).points == mesh.centers).all()


def test_systems_are_equal_if_their_parts_are():
    a = mf.MeanFieldPDE(mf.circle(8), mf.Attention(beta=2.0))
    assert a == mf.MeanFieldPDE(mf.circle(8), mf.Attention(beta=2.0))
    assert a != mf.MeanFieldPDE(mf.circle(9), mf.Attention(beta=2.0))
    assert a != mf.MeanFieldPDE(mf.circle(8), mf.Attention(beta=3.0))
    assert a != mf.MeanFieldPDE(mf.circle(8), mf.Attention(beta=2.0), order=1)
    assert a != "a system"
