"""Cell averages: quadrature, projection, locating points, binning and smoothing, against closed forms and brute force."""

import itertools
import math

import numpy as np
import pytest

from meanfield_pde.laws.law import Mixture, Moebius, Smoothed, Uniform, VonMisesFisher, sample
from meanfield_pde.laws.perturbed import PerturbedUniform
from meanfield_pde.laws.projection import bin_tokens, project
from meanfield_pde.measure import Measure
from meanfield_pde.mesh import quadrature
from meanfield_pde.mesh.families import circle, cubed_sphere, icosahedral
from meanfield_pde.mesh.locate import cell_of
from meanfield_pde.mesh.polygons import polygon_edges
from meanfield_pde.mesh.quadrature import cell_integrals
from meanfield_pde.mesh.voronoi import voronoi
from meanfield_pde.sphere import distance, normalise, surface_area

MAKERS = {
    "circle(3)": lambda: circle(3),
    "circle(50)": lambda: circle(50),
    "icosahedral(0)": lambda: icosahedral(0),
    "icosahedral(2)": lambda: icosahedral(2),
    "icosahedral(3)": lambda: icosahedral(3),
    "triangles(2)": lambda: icosahedral(2, cells="triangles"),
    "cubed_sphere(2)": lambda: cubed_sphere(2),
    "cubed_sphere(6)": lambda: cubed_sphere(6),
    "voronoi(circle)": lambda: voronoi(sample(Uniform(2), 30, seed=1)),
    "voronoi(sphere)": lambda: voronoi(sample(Uniform(3), 200, seed=1)),
}


@pytest.fixture(scope="module", params=MAKERS)
def mesh(request):
    return MAKERS[request.param]()


@pytest.fixture(scope="module")
def fine():
    return icosahedral(3)


def smooth_laws(d):
    a, b = normalise(np.arange(1.0, d + 1)), normalise(np.cos(np.arange(d) + 0.5))
    return [
        VonMisesFisher(a, 2.0),
        VonMisesFisher(a, 20.0),
        Mixture([VonMisesFisher(a, 4.0), VonMisesFisher(-b, 9.0)], [0.4, 0.6]),
        Moebius(0.5 * a),
        PerturbedUniform(d, [(4, 0.3, a), (3, -0.2, b)]),
    ]


# quadrature


def integrals_of_x(mesh):
    """Exact integrals of x over the cells: an arc's from its ends, a polygon's as half the sum of its edges' angles times poles."""
    start, end = (mesh.vertices[side] for side in polygon_edges(mesh.cell_offsets, mesh.cell_vertices))
    if mesh.dimension == 2:
        a, b = mesh.vertices[mesh.cell_vertices[0::2]], mesh.vertices[mesh.cell_vertices[1::2]]
        return np.stack([b[:, 1] - a[:, 1], a[:, 0] - b[:, 0]], axis=1)
    poles = distance(start, end)[:, None] * normalise(np.cross(start, end)) / 2
    return np.add.reduceat(poles, mesh.cell_offsets[:-1], axis=0)


def test_integrals_of_coordinates_are_exact(mesh):
    exact = integrals_of_x(mesh)
    for k in range(mesh.dimension):
        np.testing.assert_allclose(cell_integrals(mesh, lambda x, k=k: x[:, k], 8), exact[:, k], atol=2e-9)
        np.testing.assert_allclose(cell_integrals(mesh, lambda x, k=k: x[:, k], 30), exact[:, k], atol=1e-14)


def test_integrals_converge_with_the_degree(monkeypatch):
    monkeypatch.setattr(quadrature, "DEEPEST_CUT", 0)
    mesh, law = icosahedral(1), VonMisesFisher((1, 2, 3), 5.0)
    best = cell_integrals(mesh, law, 30)
    errors = [np.abs(cell_integrals(mesh, law, degree) / best - 1).max() for degree in (2, 4, 8, 12, 20)]
    assert errors[-1] < 1e-12
    for coarse, fine in itertools.pairwise(errors):
        assert fine < coarse / 30
    x = cell_integrals(mesh, lambda points: points[:, 0], 2)
    assert np.abs(x - integrals_of_x(mesh)[:, 0]).max() > 1e-6  # control: without cutting a low degree is seen to be low


def test_cutting_makes_up_for_a_low_degree(monkeypatch):
    mesh, law = icosahedral(1), VonMisesFisher((1, 2, 3), 50.0)
    best = cell_integrals(mesh, law, 30)
    assert np.abs(cell_integrals(mesh, law, 4) - best).max() < 1e-7
    monkeypatch.setattr(quadrature, "DEEPEST_CUT", 0)
    assert np.abs(cell_integrals(mesh, law, 4) - best).max() > 1e-4


def test_quadrature_in_blocks(monkeypatch):
    mesh, law = icosahedral(2), VonMisesFisher((1, 2, 3), 50.0)
    whole = cell_integrals(mesh, law, 8)
    monkeypatch.setattr(quadrature, "CHUNK", 37)
    np.testing.assert_allclose(cell_integrals(mesh, law, 8), whole, rtol=1e-13)


NOT_NARROW = ("circle(3)", "circle(50)", "icosahedral(0)")
NARROW = {"icosahedral(4)": lambda: icosahedral(4), "circle(16)": lambda: circle(16)}


@pytest.mark.parametrize("maker", [m for name, m in {**MAKERS, **NARROW}.items() if name not in NOT_NARROW])
def test_narrow_caps(maker, monkeypatch):
    """kappa = 1e5 is a cap of width .003, wherever it sits in cells .07 to .8 wide."""
    mesh = maker()
    ends = mesh.vertices[mesh.face_vertices[-1]]
    edge = normalise(0.7 * ends[0] + 0.3 * ends[-1])  # a peak of which the cells on both sides see different tails
    places = [
        mesh.centers[2],
        mesh.vertices[7],
        mesh.face_midpoints[11],
        mesh.centroids[-1],
        edge,
        *sample(Uniform(mesh.dimension), 3, seed=2),
    ]
    for place in places:
        integrals = cell_integrals(mesh, VonMisesFisher(place, 1e5), 8)
        assert integrals.sum() == pytest.approx(1, abs=1e-6)
        # it lies where it should: in the cells of points around the place
        around = sample(VonMisesFisher(place, 1e5), 2000, seed=0)
        assert integrals[np.unique(cell_of(mesh, around))].sum() > 0.99
    monkeypatch.setattr(quadrature, "DEEPEST_CUT", 0)
    assert max(abs(cell_integrals(mesh, VonMisesFisher(place, 1e5), 8).sum() - 1) for place in places) > 1e-2


def test_a_peak_that_no_point_sees_is_refused():
    mesh, law = icosahedral(0), VonMisesFisher((0.3, 0.5, 0.7), 1e8)
    with pytest.raises(ValueError, match="law has mass 0 on this mesh, wanted 1"):
        project(mesh, law, normalise=True)


def test_a_peak_on_a_common_vertex_is_seen_from_all_sides(monkeypatch):
    mesh = voronoi(sample(Uniform(3), 200, seed=1))
    law = VonMisesFisher(mesh.vertices[1], 1e5)
    assert cell_integrals(mesh, law, 8).sum() == pytest.approx(1, abs=1e-6)
    monkeypatch.setattr(quadrature, "_with_neighbours", lambda corners, cut: cut)
    assert cell_integrals(mesh, law, 8).sum() < 0.9  # control: a cell whose points all lie in the far tail is left whole


# projection


@pytest.mark.parametrize("d", [2, 3])
def test_default_degree(d, fine):
    mesh = circle(128) if d == 2 else fine
    for law in smooth_laws(d):
        rough, best = project(mesh, law), project(mesh, law, degree=30)
        np.testing.assert_allclose(rough, best, rtol=1e-8)
        assert (rough > 0).all()
        # a cell average is not the value at the centre
        assert np.abs(law(mesh.centers) / best - 1).max() > 1e-5


def test_m8_uniform_density_on_every_mesh(mesh):
    averages = project(mesh, Uniform(mesh.dimension))
    # the error allowed is a share of the whole mass, so a small cell may have more of its own
    np.testing.assert_allclose(averages, 1 / surface_area(mesh.dimension), rtol=1e-8)
    np.testing.assert_allclose(averages * mesh.areas, mesh.areas / surface_area(mesh.dimension), atol=1e-9)
    assert math.fsum(averages * mesh.areas) == pytest.approx(1, abs=1e-15)
    if mesh.area_ratio > 1.1:  # control: equal masses are not the uniform density
        assert np.ptp(1 / mesh.n_cells / mesh.areas) > 0.05 * averages[0]


def test_mass_is_one(mesh):
    for law in [*smooth_laws(mesh.dimension), VonMisesFisher(mesh.vertices[1], 1e5)]:
        averages = project(mesh, law)
        assert averages.shape == (mesh.n_cells,)
        assert abs(math.fsum(averages * mesh.areas) - 1) <= 1e-15


def test_any_callable_is_projected(fine):
    law = VonMisesFisher((1, 2, 3), 4.0)
    np.testing.assert_array_equal(project(fine, lambda x: law(x)), project(fine, law))


def test_s8_a_wrong_mass_is_refused(fine):
    for factor, mass in ((4 * np.pi, r"12\.566370"), (1 + 1e-5, r"1\.00001"), (0.5, r"0\.5")):
        wrong = lambda x, factor=factor: np.full(len(x), factor / (4 * np.pi))  # noqa: E731
        with pytest.raises(ValueError, match=rf"^law has mass {mass}\d*, wanted 1; pass normalise=True"):
            project(fine, wrong)
        np.testing.assert_allclose(project(fine, wrong, normalise=True), 1 / (4 * np.pi), rtol=1e-9)


@pytest.mark.parametrize(
    ("call", "sentence"),
    [
        (lambda mesh: project(mesh, Uniform(2)), r"^law lives in R\^2, wanted R\^3 like the mesh$"),
        (lambda mesh: project(mesh, lambda x: np.ones((len(x), 1))), r"^law\(points\) has shape \(\d+, 1\), wanted \(\d+,\)$"),
        (lambda mesh: project(mesh, lambda x: 1 / (4 * np.pi)), r"^law\(points\) has shape \(\), wanted"),
        (
            lambda mesh: project(mesh, lambda x: np.where(x[:, 2] > 0.9, np.nan, 1.0)),
            r"^law\(points\)\[\d+\] is nan, wanted a finite number$",
        ),
        (
            lambda mesh: project(mesh, lambda x: (1 - 2 * x[:, 2]) / (4 * np.pi)),
            r"^law's integral over cell\[\d+\] is -0\.\d+, wanted a number >= 0$",
        ),
        (lambda mesh: project(mesh, lambda x: np.zeros(len(x))), r"^law has mass 0 on this mesh, wanted 1$"),
        (lambda mesh: project(mesh, Uniform(3), degree=1), r"^degree is 1, wanted an integer in \[2, 30\]$"),
        (lambda mesh: project(mesh, Uniform(3), degree=31), r"^degree is 31, wanted an integer in \[2, 30\]$"),
        (lambda mesh: project(mesh, Uniform(3), degree=7.5), r"^degree is 7\.5, wanted an integer"),
        (lambda mesh: bin_tokens(mesh, [[0.6, 0.8]]), r"^tokens lie in R\^2, wanted R\^3 like the mesh$"),
        (lambda mesh: bin_tokens(mesh, [[0, 0, 1], [0, 0, 1.1]]), r"^tokens\[1\] has length 1\.1, wanted a point of the unit sphere"),
        (lambda mesh: bin_tokens(mesh, [[0, 0, np.nan]]), r"^tokens\[0, 2\] is nan"),
        (lambda mesh: bin_tokens(mesh, Measure(np.eye(3), [1, 1, 1])), r"^tokens have mass 3, wanted 1$"),
        (lambda mesh: bin_tokens(mesh, np.empty((0, 3))), r"^tokens have mass 0, wanted 1$"),
    ],
)
def test_bad_input_is_answered_in_one_sentence(call, sentence):
    with pytest.raises(ValueError, match=sentence):
        call(icosahedral(1))


@pytest.mark.parametrize("d", [2, 3])
def test_permuted_generators_give_permuted_averages(d, rng):
    points = sample(Uniform(d), 150, seed=3)
    shuffle = rng.permutation(150)
    for law in smooth_laws(d):
        averages = project(voronoi(points), law)
        np.testing.assert_allclose(project(voronoi(points[shuffle]), law), averages[shuffle], rtol=1e-8)
        assert np.abs(averages[shuffle] / averages - 1).max() > 0.1


@pytest.mark.parametrize("d", [2, 3])
def test_rotated_mesh_and_law_give_the_same_averages(d, rotation):
    points, matrix = sample(Uniform(d), 150, seed=3), rotation(d)
    a = normalise(np.arange(1.0, d + 1))
    averages = project(voronoi(points), VonMisesFisher(a, 6.0))
    turned = project(voronoi(points @ matrix.T), VonMisesFisher(matrix @ a, 6.0))
    np.testing.assert_allclose(turned, averages, rtol=1e-12)


# which cell, and binning


def inside(mesh, points):
    """(m, n_cells): how far each point lies inside each cell, the least distance to the planes of its edges (negative: outside)."""
    start, end = (mesh.vertices[side] for side in polygon_edges(mesh.cell_offsets, mesh.cell_vertices))
    return np.minimum.reduceat(points @ normalise(np.cross(start, end)).T, mesh.cell_offsets[:-1], axis=1)


@pytest.mark.parametrize("maker", [lambda: icosahedral(2, cells="triangles"), lambda: cubed_sphere(7), lambda: icosahedral(2)])
def test_cell_of_against_half_spaces(maker):
    mesh, points = maker(), sample(Uniform(3), 3000, seed=5)
    depth = inside(mesh, points)
    np.testing.assert_array_equal(cell_of(mesh, points), depth.argmax(axis=1))
    assert ((depth > 0).sum(axis=1) == 1).all()
    if mesh.name != "icosahedral(2)":  # control: the nearest centroid is another cell for some
        assert ((points @ mesh.centroids.T).argmax(axis=1) != depth.argmax(axis=1)).any()


@pytest.mark.parametrize("d", [2, 3])
def test_cell_of_voronoi_is_the_nearest_centre(d):
    points = sample(Uniform(d), 3000, seed=6)
    crowd = sample(VonMisesFisher(np.eye(d)[0], 30.0), 40, seed=7)
    for mesh in (
        circle(37) if d == 2 else icosahedral(3),
        voronoi(sample(Uniform(d), 40, seed=8)),
        voronoi(np.concatenate([crowd, -np.eye(d)])),
    ):
        np.testing.assert_array_equal(cell_of(mesh, points), (points @ mesh.centers.T).argmax(axis=1))


def test_points_on_vertices_faces_and_centres_are_found(mesh):
    np.testing.assert_array_equal(cell_of(mesh, mesh.centroids), np.arange(mesh.n_cells))
    found = cell_of(mesh, mesh.face_midpoints)
    assert (mesh.face_cells == found[:, None]).any(axis=1).all()
    for vertex, cell in enumerate(cell_of(mesh, mesh.vertices)):
        corners = mesh.cell_vertices[mesh.cell_offsets[cell] : mesh.cell_offsets[cell + 1]]
        assert distance(mesh.vertices[corners], mesh.vertices[vertex]).min() < 1e-12


def test_bin_tokens_counts_by_brute_force(mesh, lopsided):
    tokens = lopsided(mesh.dimension, n=500)
    averages = bin_tokens(mesh, tokens)
    expected = np.zeros(mesh.n_cells)
    for point, mass in zip(tokens.points, tokens.masses, strict=True):
        cell = inside(mesh, point[None])[0].argmax() if mesh.dimension == 3 else (mesh.centers @ point).argmax()
        expected[cell] += mass
    np.testing.assert_allclose(averages * mesh.areas, expected, rtol=1e-13)
    assert math.fsum(averages * mesh.areas) == pytest.approx(1, abs=1e-15)
    equal = bin_tokens(mesh, tokens.points)
    np.testing.assert_allclose(equal * mesh.areas * 500, np.round(equal * mesh.areas * 500), atol=1e-11)
    assert equal.sum() != averages.sum()


def test_s7_small_weights_are_kept_in_both_orders():
    mesh = icosahedral(2)
    points = mesh.centers[[4, 90]]
    for masses in ([1.0, 1e-10], [1e-10, 1.0]):
        binned = bin_tokens(mesh, Measure(points, masses)) * mesh.areas
        np.testing.assert_allclose(binned[[4, 90]], masses, rtol=1e-15)
        together = bin_tokens(mesh, Measure(points[[0, 0]], masses)) * mesh.areas
        assert together[4] - 1 == pytest.approx(1e-10, rel=1e-5)
    # control: single precision loses it
    assert np.float32(1) + np.float32(1e-10) == np.float32(1)


def test_binning_samples_approaches_the_law(fine):
    law = VonMisesFisher((1, 2, 3), 3.0)
    averages = project(fine, law)
    errors = [np.abs(bin_tokens(fine, sample(law, n, seed=1)) - averages) @ fine.areas for n in (2_000, 200_000)]
    assert errors[0] / errors[1] == pytest.approx(10, rel=0.2)


# smoothing


@pytest.mark.parametrize("d", [2, 3])
def test_smoothed_tokens_are_projected(d, lopsided, fine):
    mesh, tokens = (circle(128) if d == 2 else fine), lopsided(d, n=30)
    caps = [VonMisesFisher(y, 1 / 0.3**2) for y in tokens.points]
    averages = project(mesh, Smoothed(tokens, 0.3))
    expected = sum(m * cell_integrals(mesh, cap, 12) for m, cap in zip(tokens.masses, caps, strict=True)) / mesh.areas
    np.testing.assert_allclose(averages, expected, rtol=1e-7, atol=1e-12)


def test_little_smoothing_is_binning():
    mesh = icosahedral(2)
    tokens = Measure(mesh.centers[[3, 50, 100]], [0.5, 0.3, 0.2])
    np.testing.assert_allclose(project(mesh, Smoothed(tokens, 0.01)) * mesh.areas, bin_tokens(mesh, tokens) * mesh.areas, atol=1e-6)
    assert np.abs(project(mesh, Smoothed(tokens, 0.2)) - bin_tokens(mesh, tokens)).max() > 1
