"""Densities on latitude-longitude grids: what resampling conserves, its error, and that sampling conserves nothing."""

import importlib

import numpy as np
import pytest

import meanfield_pde as mf
from meanfield_pde.diagnostics.lat_long import box_areas, density_at, lat_long
from meanfield_pde.sphere import normalise

module = importlib.import_module("meanfield_pde.diagnostics.lat_long")  # the package has a function of that name

AXIS = np.array([0.36, 0.48, 0.8])


def random_points(n, seed=0):
    return normalise(np.random.default_rng(seed).normal(size=(n, 3)))


MESHES = {
    "icosahedral": lambda: mf.icosahedral(3),
    "cubed sphere": lambda: mf.cubed_sphere(8),
    "random voronoi": lambda: mf.voronoi(random_points(200)),
}


def middles(n_lat, n_lon):
    """The middles of the boxes (n_lat, n_lon, 3)."""
    latitude = np.pi * ((np.arange(n_lat)[:, None] + 0.5) / n_lat - 0.5)
    longitude = 2 * np.pi * (np.arange(n_lon) + 0.5) / n_lon
    flat = np.cos(latitude)
    return np.stack([flat * np.cos(longitude), flat * np.sin(longitude), np.sin(latitude) + 0 * longitude], axis=2)


def integral(values):
    return float((values * box_areas(*values.shape)[:, None]).sum())


def mean_error(values, expected):
    return integral(np.abs(values - expected))


@pytest.fixture
def coarse_pieces(monkeypatch):
    """Pieces as long as a box is wide: what is conserved does not depend on their size."""
    monkeypatch.setattr(module, "PIECE", 1.0)


@pytest.mark.usefixtures("coarse_pieces")
@pytest.mark.parametrize("size", [(90, 180), pytest.param((360, 720), marks=pytest.mark.slow), (7, 3), (1, 1)])
def test_the_integral_is_kept_and_that_of_samples_is_not(size):
    """Maps resampled by interpolation summed to something else."""
    mesh = mf.icosahedral(3)
    averages = mf.project(mesh, mf.VonMisesFisher(AXIS, 30.0))
    resampled = lat_long(mesh, averages, *size)
    assert resampled.shape == size and resampled.min() >= 0
    assert abs(integral(resampled) - averages @ mesh.areas) <= 1e-13
    sampled = density_at(mesh, averages, middles(*size).reshape(-1, 3)).reshape(size)
    assert abs(integral(sampled) - 1) > 1e-7  # the control: sampling is another thing


@pytest.mark.slow
@pytest.mark.parametrize("rows", [90, pytest.param(360, marks=pytest.mark.nightly)])
def test_the_integral_is_kept_by_pieces_of_full_fineness(rows):
    mesh = mf.icosahedral(4)
    uniform = lat_long(mesh, np.full(mesh.n_cells, 1 / (4 * np.pi)), rows, 2 * rows)
    assert abs(integral(uniform) - 1) <= 1e-13
    assert mean_error(uniform, 1 / (4 * np.pi)) <= 0.011
    assert np.abs(4 * np.pi * uniform - 1).max() <= 0.07


@pytest.mark.usefixtures("coarse_pieces")
@pytest.mark.parametrize("family", MESHES)
def test_any_averages_on_any_mesh(family):
    """Of one full cell, all mass is in boxes that it touches; of random ones, boxes are never negative."""
    mesh, rng = MESHES[family](), np.random.default_rng(1)
    averages = rng.random(mesh.n_cells) ** 8 * 10.0 ** rng.uniform(-200, 0, mesh.n_cells)
    values = lat_long(mesh, averages, 30, 60)
    assert values.min() >= 0
    assert integral(values) == pytest.approx(averages @ mesh.areas, rel=1e-13)
    for cell in (0, mesh.n_cells // 2, mesh.n_cells - 1):
        alone = np.zeros(mesh.n_cells)
        alone[cell] = 1 / mesh.areas[cell]
        values = lat_long(mesh, alone, 30, 60)
        held = middles(30, 60)[values > 0]
        corners = mesh.vertices[mesh.cell_vertices[mesh.cell_offsets[cell] : mesh.cell_offsets[cell + 1]]]
        radius = np.linalg.norm(corners - mesh.centroids[cell], axis=1).max()
        assert np.linalg.norm(held - mesh.centroids[cell], axis=1).max() <= radius + np.pi / 30
        assert integral(values) == pytest.approx(1, abs=1e-13)


@pytest.mark.parametrize("family", MESHES)
def test_the_uniform_density_is_the_constant_within_the_stated_error(family, monkeypatch):
    mesh = MESHES[family]()
    averages = np.full(mesh.n_cells, 1 / (4 * np.pi))
    errors = {}
    for piece in (1.0, module.PIECE):
        monkeypatch.setattr(module, "PIECE", piece)
        values = lat_long(mesh, averages, 30, 60)
        errors[piece] = mean_error(values, averages[0])
        assert integral(values) == pytest.approx(1, abs=1e-13)
    assert errors[1 / 8] <= 0.011
    assert np.abs(4 * np.pi * values - 1).max() <= 0.07
    assert errors[1.0] > 5 * errors[1 / 8]  # the control: coarse pieces are seen


def box_averages_of_height(n_lat):
    """Of x -> z over the boxes of each row: half the sum of its bounds' heights."""
    bounds = np.sin(np.pi * (np.arange(n_lat + 1) / n_lat - 0.5))
    return (bounds[1:] + bounds[:-1]) / 2


def test_a_linear_density():
    """1 + z on the north-south axis: rows are known exactly, and east is told from west by 1 + y."""
    mesh = mf.icosahedral(4)
    law = lambda x: (1 + x[:, 2]) / (4 * np.pi)  # noqa: E731
    rows = lat_long(mesh, mf.project(mesh, law), 20, 40)
    assert np.abs(rows.mean(axis=1) * 4 * np.pi - 1 - box_averages_of_height(20)).max() < 0.01
    east = lat_long(mesh, mf.project(mesh, lambda x: (1 + x[:, 1]) / (4 * np.pi)), 20, 40)
    expected = (1 + middles(20, 40)[..., 1]) / (4 * np.pi)
    assert mean_error(east, expected) < 0.01
    for other in (east[:, ::-1], np.roll(east, 20, axis=1)):  # the control: columns run eastward from the x axis
        assert mean_error(other, expected) > 0.5


def law_over_boxes(law, n_lat, n_lon, parts=12):
    """Averages of a law by the middles of 144 parts of each box."""
    fine = law(middles(n_lat * parts, n_lon * parts).reshape(-1, 3)).reshape(n_lat * parts, n_lon * parts)
    masses = (fine * box_areas(*fine.shape)[:, None]).reshape(n_lat, parts, n_lon, parts).sum(axis=(1, 3))
    return masses / box_areas(n_lat, n_lon)[:, None]


@pytest.mark.parametrize("mean", [(0.36, 0.48, 0.8), (0, 0, 1), (0, 0, -1), (1, 0, 0), (-0.8, 0.6, 0.0)])
def test_box_averages_approach_those_of_the_law(mean):
    """Wherever its peak lies: in general position, at a pole, on the seam of longitude 0."""
    law = mf.VonMisesFisher(mean, 6.0)
    expected = law_over_boxes(law, 18, 36)
    assert integral(expected) == pytest.approx(1, abs=1e-4)
    errors = [mean_error(lat_long(mesh, mf.project(mesh, law), 18, 36), expected) for mesh in map(mf.icosahedral, (1, 2, 3, 4))]
    assert errors[1] < errors[0] / 1.7 and errors[2] < errors[1] / 1.7 and errors[3] < 0.015


def test_a_law_turned_about_the_axis_by_ten_boxes_turns_the_grid():
    """Mesh and law turned together by a whole number of boxes: the same numbers, ten columns further."""
    start = mf.voronoi(random_points(150, seed=3))
    angle = 2 * np.pi * 10 / 36
    turn = np.array([[np.cos(angle), -np.sin(angle), 0], [np.sin(angle), np.cos(angle), 0], [0, 0, 1]])
    turned = mf.voronoi(normalise(start.centers @ turn.T))
    mean = normalise(np.array([0.5, -0.3, 0.4]))
    values, other = (lat_long(m, mf.project(m, mf.VonMisesFisher(a, 5.0)), 18, 36) for m, a in ((start, mean), (turned, turn @ mean)))
    assert np.abs(np.roll(values, 10, axis=1) - other).max() < 1e-2 * values.max()
    assert mean_error(values, other) > 0.5  # the control


def test_pieces_are_cut_in_parts(monkeypatch):
    mesh = mf.icosahedral(2)
    averages = mf.project(mesh, mf.VonMisesFisher(AXIS, 3.0))
    whole = lat_long(mesh, averages, 9, 18)
    monkeypatch.setattr(module, "CHUNK", 100)
    np.testing.assert_allclose(lat_long(mesh, averages, 9, 18), whole, rtol=1e-12)


@pytest.mark.parametrize("d", [2, 3])
def test_density_at_is_the_average_of_the_cell_that_holds_the_point(d):
    mesh = mf.circle(30) if d == 2 else mf.icosahedral(2)
    averages = np.random.default_rng(0).random(mesh.n_cells)
    np.testing.assert_array_equal(density_at(mesh, averages, mesh.centroids), averages)
    points = normalise(np.random.default_rng(1).normal(size=(500, d)))
    nearest = np.linalg.norm(points[:, None] - mesh.centers, axis=2).argmin(axis=1)
    np.testing.assert_array_equal(density_at(mesh, averages, points), averages[nearest])  # a Voronoi mesh
    assert density_at(mesh, averages, np.empty((0, d))).shape == (0,)


@pytest.mark.parametrize(
    ("call", "sentence"),
    [
        (lambda m, f: lat_long(mf.circle(9), np.ones(9)), r"^mesh lies in R\^2, wanted R\^3: latitude and longitude are of the sphere$"),
        (lambda m, f: lat_long("mesh", f), r"^mesh is a str, wanted a SphereMesh$"),
        (lambda m, f: lat_long(m, f[1:]), r"^averages has shape \(41,\), wanted \(42,\)$"),
        (lambda m, f: lat_long(m, np.where(np.arange(42) == 3, np.nan, f)), r"^averages\[3\] is nan, wanted a finite number$"),
        (lambda m, f: lat_long(m, f, 0), "^n_lat is 0, wanted an integer at least 1$"),
        (lambda m, f: lat_long(m, f, 3, 2.5), "^n_lon is 2.5, wanted an integer at least 1$"),
        (lambda m, f: density_at(m, f, np.eye(2)), r"^points has shape \(2, 2\), wanted \(m, 3\)$"),
        (lambda m, f: density_at(m, f, 2 * np.eye(3)), r"^points\[0\] has length 2, wanted a point of the unit sphere \(length 1\)$"),
        (lambda m, f: density_at(m, f[1:], np.eye(3)), r"^averages has shape \(41,\), wanted \(42,\)$"),
    ],
)
def test_bad_input_is_answered_in_one_sentence(call, sentence):
    mesh = mf.icosahedral(1)
    with pytest.raises(ValueError, match=sentence):
        call(mesh, np.full(mesh.n_cells, 1 / (4 * np.pi)))
