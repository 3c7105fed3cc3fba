"""Transport: slopes, limiter, fluxes, their divergence (M1, M9), and the end of the floating-point range."""

import numpy as np
import pytest
from scipy.spatial.transform import Rotation

import meanfield_pde as mf
from meanfield_pde.sphere import dot, log_map, normalise, tangent, tangent_frames
from meanfield_pde.transport import flux, reconstruction
from meanfield_pde.transport.stencil import stencil


def random_points(n, d=3, seed=0):
    return normalise(np.random.default_rng(seed).normal(size=(n, d)))


MESHES = {
    "circle": lambda: mf.circle(64),
    "voronoi on S1": lambda: mf.voronoi(random_points(40, 2)),
    "icosahedral": lambda: mf.icosahedral(3),
    "triangles": lambda: mf.icosahedral(2, cells="triangles"),
    "cubed sphere": lambda: mf.cubed_sphere(10),
    "random voronoi": lambda: mf.voronoi(random_points(600)),
}


@pytest.fixture(scope="module", params=MESHES)
def mesh(request):
    return MESHES[request.param]()


class RigidRotation:
    """Any object with `velocity` is a model: here x' = w x x, which ignores the measure."""

    def __init__(self, rate):
        self.rate = np.asarray(rate, dtype=float)

    def velocity(self, points, measure, t=0.0):
        if points.shape[1] == 2:
            return self.rate * np.stack([-points[:, 1], points[:, 0]], axis=1)
        return np.cross(self.rate, points)


class Pull:
    """x' = c P_x e_1: every cell drains towards e_1, the cell opposite it first of all."""

    def __init__(self, speed):
        self.speed = speed

    def velocity(self, points, measure, t=0.0):
        return self.speed * tangent(points, np.broadcast_to(np.eye(points.shape[1])[0], points.shape))


def face_values(mesh, averages, order=2):
    """(n_faces, 2), left and right."""
    s, values = stencil(mesh), np.full(2 * mesh.n_faces, np.nan)
    (reconstruction.constant if order == 1 else reconstruction.limited_linear)(averages, s, values)
    return values[s.face_sides]


def face_arms(mesh):
    """(n_faces, 2, d), from the centroids of the left and the right cell to the midpoint of the face."""
    s = stencil(mesh)
    frames = tangent_frames(mesh.centroids)
    components = s.arms[s.face_sides]
    return sum(components[..., k, None] * frames[k][mesh.face_cells] for k in (0, 1))


def slopes(mesh, averages):
    """Least-squares slopes (n_cells, d) from the stencil's weights."""
    s = stencil(mesh)
    cell = np.repeat(np.arange(mesh.n_cells), np.diff(s.neighbour_offsets))
    components = np.zeros((mesh.n_cells, 2))
    np.add.at(components, cell, s.slope_weights * (averages[s.neighbours] - averages[cell])[:, None])
    frames = tangent_frames(mesh.centroids)
    return sum(components[:, k, None] * frames[k] for k in (0, 1))


# --- slopes ---


@pytest.mark.parametrize("make", [lambda: mf.circle(40), lambda: mf.voronoi(random_points(40, 2))])
def test_slopes_on_the_circle_are_exact_for_linear_functions_of_the_angle(make):
    mesh = make()
    angle = np.arctan2(mesh.centroids[:, 1], mesh.centroids[:, 0])
    found = slopes(mesh, 2.0 + 0.7 * angle)
    expected = 0.7 * np.stack([-mesh.centroids[:, 1], mesh.centroids[:, 0]], axis=1)
    inner = np.abs(angle) < np.pi - 2.5 * mesh.areas.max()  # away from the jump of the angle
    assert inner.sum() > 20
    assert np.abs(found - expected)[inner].max() < 1e-12


def test_slopes_on_the_sphere_make_face_values_of_second_order():
    """At cells that are not symmetric a slope is wrong by O(h) only, in the largest norm; half a cell further that is O(h^2)."""
    axis = np.array([0.36, 0.48, 0.8])
    slope_errors, value_errors, flat_errors = [], [], []
    for level in (2, 3, 4):
        mesh = mf.icosahedral(level)
        averages = mesh.centroids @ axis
        found = slopes(mesh, averages)
        slope_errors.append(np.linalg.norm(found - tangent(mesh.centroids, np.tile(axis, (mesh.n_cells, 1))), axis=1) @ mesh.areas)
        own, arms = averages[mesh.face_cells], face_arms(mesh)
        at_face = (mesh.face_midpoints @ axis)[:, None]
        value_errors.append(np.abs(own + np.einsum("fsd,fsd->fs", found[mesh.face_cells], arms) - at_face).max())
        flat_errors.append(np.abs(own - at_face).max())
    assert (-np.diff(np.log2(slope_errors)) > 1.4).all()
    assert (-np.diff(np.log2(value_errors)) > 1.9).all()
    assert (-np.diff(np.log2(flat_errors)) < 1.1).all()  # the control: without slopes, first order


def test_slopes_are_tangent_and_vanish_for_constants(mesh):
    values = np.random.default_rng(1).random(mesh.n_cells)
    assert np.abs(dot(slopes(mesh, values), mesh.centroids)).max() < 1e-11 / mesh.areas.min()
    assert not slopes(mesh, np.full(mesh.n_cells, 0.1)).any()


def test_neighbours_share_a_vertex_and_faces_know_their_cells(mesh):
    s = stencil(mesh)
    corners = [set(mesh.cell_vertices[a:b]) for a, b in zip(mesh.cell_offsets[:-1], mesh.cell_offsets[1:], strict=True)]
    for i in range(0, mesh.n_cells, 7):
        expected = {j for j in range(mesh.n_cells) if j != i and corners[i] & corners[j]}
        assert set(s.neighbours[s.neighbour_offsets[i] : s.neighbour_offsets[i + 1]]) == expected
    cell = np.repeat(np.arange(mesh.n_cells), np.diff(s.side_offsets))
    assert (cell[s.face_sides] == mesh.face_cells).all()
    assert sorted(s.face_sides.ravel()) == list(range(2 * mesh.n_faces))


# --- limiter ---


def unlimited(mesh, averages):
    """Face values (n_faces, 2) of the same slopes without limiter."""
    return averages[mesh.face_cells] + np.einsum("fsd,fsd->fs", slopes(mesh, averages)[mesh.face_cells], face_arms(mesh))


def without_mirror_images(mesh, averages):
    """Face values (n_faces, 2) limited to the averages around and to twice the own only."""
    lowest, highest = (bound[mesh.face_cells] for bound in neighbourhood(mesh, averages))
    return np.clip(unlimited(mesh, averages), lowest, np.minimum(highest, 2 * averages[mesh.face_cells]))


def neighbourhood(mesh, averages):
    s = stencil(mesh)
    lowest, highest = averages.copy(), averages.copy()
    cell = np.repeat(np.arange(mesh.n_cells), np.diff(s.neighbour_offsets))
    np.minimum.at(lowest, cell, averages[s.neighbours])
    np.maximum.at(highest, cell, averages[s.neighbours])
    return lowest, highest


def test_face_values_stay_within_the_averages_around_and_their_mirror_images(mesh):
    """So they are at most twice the own, where averages are not negative."""
    for seed in range(5):
        averages = np.random.default_rng(seed).random(mesh.n_cells) ** 4
        values = face_values(mesh, averages)
        lowest, highest = (bound[mesh.face_cells] for bound in neighbourhood(mesh, averages))
        own = averages[mesh.face_cells]
        assert (values >= lowest).all()
        assert (values <= highest).all()
        assert (values <= 2 * own).all()
        assert (values >= 2 * own - highest - 1e-15).all()
        assert (values <= 2 * own - lowest + 1e-15).all()
        assert (values != own).any()
        # the controls: the same slopes without limiter leave these bounds, and without the mirror images leave those
        free = unlimited(mesh, averages)
        assert (free < 0).any() and (free > 2 * own).any()
        half = without_mirror_images(mesh, averages)
        assert (half > 2 * own - lowest + 1e-3).any() and (half < 2 * own - highest - 1e-3).any()


def test_a_step_carried_round_makes_no_new_extremum(monkeypatch):
    """Measured: none to the bit. The controls: 19 % below the lowest value and 6 % above the highest without limiter; 11 % and 4 %
    without the mirror images.
    """
    mesh = mf.circle(64)
    start = np.where(np.arange(64) < 20, 3.0, 1.0)
    start /= start @ mesh.areas

    def beyond():
        averages = mf.solve(mf.MeanFieldPDE(mesh, RigidRotation(1.0), order=2), start, 3.0, save_every=0.25).averages
        return 1 - averages.min() / start.min(), averages.max() / start.max() - 1

    assert max(beyond()) <= 1e-12
    for values, lower, upper in ((unlimited, 0.18, 0.06), (without_mirror_images, 0.11, 0.035)):

        def reconstruct(averages, s, side_values, values=values):
            side_values[s.face_sides] = values(mesh, averages)

        monkeypatch.setattr(reconstruction, "limited_linear", reconstruct)
        below, above = beyond()
        assert below > lower and above > upper


def test_limiter_acts_nowhere_on_smooth_monotone_data():
    mesh = mf.circle(64)
    averages = 1 + 0.3 * np.sin(2 * np.pi * np.arange(64) / 64)
    values = face_values(mesh, averages)
    own, free = averages[mesh.face_cells], unlimited(mesh, averages)
    extremum = np.isin(mesh.face_cells, [16, 48])
    assert np.abs(values - free)[~extremum].max() < 1e-14
    assert (values[extremum] == own[extremum]).all()


def test_equal_averages_are_reproduced_to_the_bit(mesh):
    for value in (0.1, 1 / 3, 1 / (4 * np.pi)):
        averages = np.full(mesh.n_cells, value)
        assert (face_values(mesh, averages) == value).all()
        assert (face_values(mesh, averages, order=1) == value).all()


def test_first_order_values_are_the_averages(mesh):
    averages = np.random.default_rng(3).random(mesh.n_cells)
    assert (face_values(mesh, averages, order=1) == averages[mesh.face_cells]).all()


# --- fluxes and divergence ---


def test_upwind_takes_the_value_the_velocity_comes_from(mesh):
    rng = np.random.default_rng(4)
    velocities, values = rng.normal(size=mesh.n_faces), rng.random((mesh.n_faces, 2))
    s = stencil(mesh)
    side_values, received, swept = (np.empty(2 * mesh.n_faces) for _ in range(3))
    side_values[s.face_sides] = values
    flux.upwind(mesh, s, velocities, side_values, received, swept)
    fluxes = received[s.face_sides[:, 1]]
    assert (received[s.face_sides[:, 0]] == -fluxes).all()
    upstream = np.where(velocities > 0, values[:, 0], values[:, 1])
    assert np.allclose(fluxes, mesh.face_lengths * velocities * upstream, rtol=1e-15, atol=0)


def test_divergence_of_random_fluxes_sums_to_zero(mesh):
    """M9."""
    fluxes = np.random.default_rng(5).normal(size=mesh.n_faces)
    change = np.full(mesh.n_cells, np.nan)
    s, received = stencil(mesh), np.empty(2 * mesh.n_faces)
    received[s.face_sides] = np.stack([-fluxes, fluxes], axis=1)
    flux.divergence(mesh, s, received, received, change, np.empty(mesh.n_cells))
    expected = np.zeros(mesh.n_cells)
    np.subtract.at(expected, mesh.face_cells[:, 0], fluxes)
    np.add.at(expected, mesh.face_cells[:, 1], fluxes)
    assert np.abs(change - expected).max() < 1e-14
    assert abs(change.sum()) < 1e-13
    # the control: where both sides receive it, the sum does not vanish
    received[s.face_sides] = np.stack([fluxes, fluxes], axis=1)
    flux.divergence(mesh, s, received, received, change, np.empty(mesh.n_cells))
    assert abs(change.sum()) > 5


def test_outflow_counts_what_leaves(mesh):
    velocities = np.random.default_rng(6).normal(size=mesh.n_faces)
    rates = np.empty(mesh.n_cells)
    s = stencil(mesh)
    ones, received, swept = np.ones(2 * mesh.n_faces), np.empty(2 * mesh.n_faces), np.empty(2 * mesh.n_faces)
    flux.upwind(mesh, s, velocities, ones, received, swept)
    flux.divergence(mesh, s, received, swept, np.empty(mesh.n_cells), rates)
    expected = np.zeros(mesh.n_cells)
    np.add.at(expected, mesh.face_cells[:, 0], np.maximum(velocities, 0) * mesh.face_lengths)
    np.add.at(expected, mesh.face_cells[:, 1], np.maximum(-velocities, 0) * mesh.face_lengths)
    assert np.allclose(rates, expected / mesh.areas, rtol=1e-14)


@pytest.mark.parametrize("order", [1, 2])
def test_one_euler_step_at_the_bound_keeps_random_masses_positive_and_a_longer_one_does_not(mesh, order):
    s = stencil(mesh)
    limit = 1.0 if order == 1 else 0.5
    lowest = {}
    for courant in (limit, 3 * limit):
        lowest[courant] = np.inf
        for seed in range(20):
            rng = np.random.default_rng(seed)
            averages, velocities = rng.random(mesh.n_cells) ** 8, rng.normal(size=mesh.n_faces)
            change, rates = np.empty(mesh.n_cells), np.empty(mesh.n_cells)
            side_values, received, swept = (np.empty(2 * mesh.n_faces) for _ in range(3))
            (reconstruction.constant if order == 1 else reconstruction.limited_linear)(averages, s, side_values)
            flux.upwind(mesh, s, velocities, side_values, received, swept)
            flux.divergence(mesh, s, received, swept, change, rates)
            lowest[courant] = min(lowest[courant], (averages * mesh.areas + courant / rates.max() * change).min())
    assert lowest[limit] >= -1e-17
    assert lowest[3 * limit] < -1e-6


# --- rigid rotation of a cap on every mesh family (M1) ---

COARSE_AND_FINE = {
    "circle": (lambda: mf.circle(64), lambda: mf.circle(128)),
    "icosahedral": (lambda: mf.icosahedral(3), lambda: mf.icosahedral(4)),
    "triangles": (lambda: mf.icosahedral(2, cells="triangles"), lambda: mf.icosahedral(3, cells="triangles")),
    "cubed sphere": (lambda: mf.cubed_sphere(10), lambda: mf.cubed_sphere(20)),
    "centroidal voronoi": (lambda: mf.voronoi(random_points(600), 20), lambda: mf.voronoi(random_points(2400), 20)),
    "random voronoi": (lambda: mf.voronoi(random_points(600)), lambda: mf.voronoi(random_points(2400))),
}


def rotation_run(mesh, order):
    d, angle = mesh.dimension, np.pi / 2
    axis = np.array([0.36, 0.48, 0.8])
    mean = np.array([0.8, 0.6, 0.0])[:d]
    matrix = np.array([[0.0, -1.0], [1.0, 0.0]]) if d == 2 else Rotation.from_rotvec(angle * axis).as_matrix()
    model = RigidRotation(1.0 if d == 2 else axis)
    solution = mf.solve(mf.MeanFieldPDE(mesh, model, order=order), mf.project(mesh, mf.VonMisesFisher(mean, 8.0)), angle)
    exact = mf.project(mesh, mf.VonMisesFisher(matrix @ mean, 8.0))
    return solution, float(np.abs(solution.averages[-1] - exact) @ mesh.areas)


@pytest.mark.parametrize("family", COARSE_AND_FINE)
def test_rigid_rotation_of_a_cap_keeps_mass_and_converges_at_second_order(family):
    errors = {}
    for size, make in zip(("coarse", "fine"), COARSE_AND_FINE[family], strict=True):
        for order in (1, 2):
            solution, errors[size, order] = rotation_run(make(), order)
            assert np.abs(solution.history.mass - 1).max() <= 1e-13
            assert solution.history.minimum.min() >= 0
            assert np.isnan(solution.history.energy).all()  # this model has none
    assert np.log2(errors["coarse", 2] / errors["fine", 2]) > 1.7
    assert errors["fine", 2] < 0.04
    assert errors["fine", 2] < errors["fine", 1] / 5  # the control: upwind, of first order, is far off


# --- the end of the floating-point range ---


@pytest.mark.parametrize("stepper", ["euler", pytest.param("ssprk2", marks=pytest.mark.slow), "ssprk3"])
@pytest.mark.parametrize("order", [1, 2])
def test_a_cell_that_drains_for_ever_stays_non_negative(order, stepper):
    mesh = mf.circle(4)
    solution = mf.solve(mf.MeanFieldPDE(mesh, Pull(2.12), order=order), np.full(4, 1 / (2 * np.pi)), 1000.0, stepper=stepper)
    assert solution.history.minimum.min() >= 0
    assert solution.history.minimum[-1] < 1e-280
    assert np.abs(solution.history.mass - 1).max() <= 1e-14


def denormal_run(stepper):
    """The cell opposite the pull starts a few units above the smallest float."""
    mesh = mf.circle(4)
    lowest = 0.0
    for units in (10, 30, 70, 120, 250):
        start = np.zeros(4)
        start[0], start[2] = 1 / mesh.areas[0], units * 5e-324
        lowest = min(lowest, mf.solve(mf.MeanFieldPDE(mesh, Pull(5.0), order=1), start, 3.0, stepper=stepper).history.minimum.min())
    return lowest


@pytest.mark.parametrize("stepper", ["euler", "ssprk3"])
def test_weakest_fluxes_are_dropped_so_that_denormal_masses_do_not_turn_negative(stepper, monkeypatch):
    assert denormal_run(stepper) == 0
    for name in ("_carry", "_upwind"):  # compiled code has the constant built in
        monkeypatch.setattr(flux, name, getattr(flux, name).py_func)
    assert denormal_run(stepper) == 0
    monkeypatch.setattr(flux, "SMALLEST_FLUX", 0.0)
    with pytest.raises(mf.SolveError, match=r"mass of cell 2 is -4\.94e-324"):
        denormal_run(stepper)


def test_face_arms_point_from_centroids_to_the_face(mesh):
    arms = face_arms(mesh)
    for side in (0, 1):
        at = mesh.centroids[mesh.face_cells[:, side]]
        assert np.abs(arms[:, side] - log_map(at, mesh.face_midpoints)).max() < 1e-14
        sign = 1 if side == 0 else -1
        assert (sign * dot(arms[:, side], mesh.face_normals) > 0).all()
