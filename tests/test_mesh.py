"""Geometry of the built-in meshes: M1's closed surface, M7 to M10, the Voronoi property, and bad input."""

import itertools
import subprocess
import sys
from dataclasses import fields, replace

import numpy as np
import pytest
from scipy.spatial import cKDTree

from meanfield_pde.mesh.families import circle, cubed_sphere, icosahedral
from meanfield_pde.mesh.polygons import polygon_edges
from meanfield_pde.mesh.record import SphereMesh
from meanfield_pde.mesh.voronoi import voronoi
from meanfield_pde.sphere import distance, dot, normalise, surface_area, triangle_area


def random_points(n, d=3, seed=0):
    return normalise(np.random.default_rng(seed).normal(size=(n, d)))


def random_rotation(seed=0):
    q, r = np.linalg.qr(np.random.default_rng(seed).normal(size=(3, 3)))
    q *= np.sign(np.diag(r))
    return q * np.sign(np.linalg.det(q))


CUBE = normalise(np.array(list(itertools.product((-1.0, 1.0), repeat=3))))
OCTAHEDRON = np.concatenate([np.eye(3), -np.eye(3)])
CUBOCTAHEDRON = normalise(
    np.unique([p for a, b in itertools.product((-1.0, 1.0), repeat=2) for p in ((a, b, 0), (a, 0, b), (0, a, b))], axis=0)
)
RING = np.stack([np.cos(np.arange(12) * np.pi / 6), np.sin(np.arange(12) * np.pi / 6), np.zeros(12)], axis=1)
PRISM = normalise(np.concatenate([RING + np.array([0, 0, z]) for z in (-0.7, 0.7)]))

MAKERS = {
    "circle(3)": lambda: circle(3),
    "circle(512)": lambda: circle(512),
    "voronoi, 40 on S1": lambda: voronoi(random_points(40, 2)),
    **{f"icosahedral({n})": lambda n=n: icosahedral(n) for n in range(5)},
    **{f"triangles({n})": lambda n=n: icosahedral(n, cells="triangles") for n in range(5)},
    **{f"cubed_sphere({n})": lambda n=n: cubed_sphere(n) for n in (2, 3, 8, 17)},
    "voronoi, 300 on S2": lambda: voronoi(random_points(300)),
    "voronoi, 300 on S2, Lloyd": lambda: voronoi(random_points(300), lloyd_steps=20),
    "voronoi, 6 in a cap": lambda: voronoi(normalise(0.2 * random_points(6, seed=3) + [0, 0, 1])),
    "voronoi, cube": lambda: voronoi(CUBE),
    "voronoi, octahedron": lambda: voronoi(OCTAHEDRON),
    "voronoi, cuboctahedron": lambda: voronoi(CUBOCTAHEDRON),
    "voronoi, prism": lambda: voronoi(PRISM),
    "voronoi, cubed sphere": lambda: voronoi(cubed_sphere(6).vertices),
}
SKEW = [name for name in MAKERS if name.startswith("cubed_sphere")]


@pytest.fixture(scope="module", params=MAKERS)
def mesh(request):
    return MAKERS[request.param]()


def corners(mesh, cell):
    return mesh.cell_vertices[mesh.cell_offsets[cell] : mesh.cell_offsets[cell + 1]]


def changed(mesh, **rows):
    """The mesh made again with one row of an array changed."""
    new = {}
    for name, (row, value) in rows.items():
        new[name] = np.array(getattr(mesh, name))
        new[name][row] = value
    return replace(mesh, **new)


# -- every mesh


def test_areas_cover_the_sphere_once(mesh):
    assert abs(mesh.areas.sum() - surface_area(mesh.dimension)) <= 1e-11
    assert (mesh.areas > 0).all()
    if mesh.dimension == 3:  # an independent sum: interior angles minus those of the flat polygon (Girard)
        for cell in range(0, mesh.n_cells, max(1, mesh.n_cells // 50)):
            p = mesh.vertices[corners(mesh, cell)]
            out, back = np.roll(p, -1, axis=0), np.roll(p, 1, axis=0)
            one, other = np.cross(p, out), np.cross(p, back)
            angles = np.arctan2(np.linalg.norm(np.cross(one, other), axis=1), dot(one, other))
            assert abs(angles.sum() - (len(p) - 2) * np.pi - mesh.areas[cell]) <= 1e-12


def test_faces_join_two_cells(mesh):
    sizes = np.diff(mesh.cell_offsets)
    assert (np.bincount(mesh.face_cells.ravel(), minlength=mesh.n_cells) == sizes).all()
    if mesh.dimension == 3:
        assert len(mesh.vertices) - mesh.n_faces + mesh.n_cells == 2
        left, right = mesh.face_cells.T
        for face in range(0, mesh.n_faces, max(1, mesh.n_faces // 40)):
            ends = mesh.face_vertices[face]
            assert np.isin(ends, corners(mesh, left[face])).all() and np.isin(ends, corners(mesh, right[face])).all()


def test_normals_are_tangent_and_point_from_left_to_right(mesh):
    left, right = mesh.face_cells.T
    assert np.abs(np.linalg.norm(mesh.face_normals, axis=1) - 1).max() <= 1e-14
    assert np.abs(dot(mesh.face_normals, mesh.face_midpoints)).max() <= 1e-14
    assert (dot(mesh.face_normals, mesh.centroids[right] - mesh.centroids[left]) > 0).all()
    ends = mesh.vertices[mesh.face_vertices]
    if mesh.dimension == 3:
        assert np.abs(np.einsum("fei,fi->fe", ends, mesh.face_normals)).max() <= 1e-10  # edges may be short: rounding over length
        assert np.abs(distance(ends[:, 0], ends[:, 1]) - mesh.face_lengths).max() <= 1e-15
        assert np.abs(distance(mesh.face_midpoints, ends[:, 0]) - mesh.face_lengths / 2).max() <= 1e-14
    else:
        assert (mesh.face_lengths == 1).all()
        assert np.abs(mesh.face_midpoints - ends[:, 0]).max() == 0
    assert np.abs(distance(mesh.centers[left], mesh.centers[right]) - mesh.face_distances).max() <= 1e-15


def out_of_cells(mesh, face_cells):
    """Sum of length times outward normal over the faces of each cell: the part along minus the centroid (n_cells,), the rest."""
    net, through = np.zeros((mesh.n_cells, mesh.dimension)), mesh.face_lengths[:, None] * mesh.face_normals
    np.add.at(net, face_cells[:, 0], through)
    np.subtract.at(net, face_cells[:, 1], through)
    along = -dot(net, mesh.centroids)
    return along, np.abs(net + along[:, None] * mesh.centroids)


def test_faces_close_every_cell(mesh):
    """M9: a face leads out of its left cell into its right one, and constant fields leave each cell as Gauss says.

    The normals of a cell add up to -(d - 1) int x, a vector along its centroid, shorter than (d - 1) area by how much the cell is bent.
    """
    left, right = mesh.face_cells.T
    along, rest = out_of_cells(mesh, mesh.face_cells)
    flat = (mesh.dimension - 1) * mesh.areas
    assert rest.max() <= 2e-15
    assert (along < flat).all() and (along > 0.7 * flat).all()
    turned, moved = mesh.face_cells.copy(), mesh.face_cells.copy()
    turned[0], moved[0, 1] = turned[0, ::-1], (moved[0, 1] + 1) % mesh.n_cells
    for wrong in (turned, moved):  # the controls: one face turned round, one given to another cell
        assert out_of_cells(mesh, wrong)[1].max() > 0.6 * mesh.face_lengths[0]
    if mesh.dimension == 2:
        assert np.abs(along - 2 * np.sin(mesh.areas / 2)).max() <= 1e-15
        assert (np.bincount(left, minlength=mesh.n_cells) == np.bincount(right, minlength=mesh.n_cells)).all()
    if mesh.dimension == 3:  # rotation about z: the exact flux through an edge is the difference of z at its ends, and div = 0
        ends = mesh.vertices[mesh.face_vertices]
        stream = ends[:, 1, 2] - ends[:, 0, 2]
        net = np.bincount(left, stream, mesh.n_cells) - np.bincount(right, stream, mesh.n_cells)
        assert np.abs(net).max() <= 1e-14
        spin = np.cross([0.0, 0.0, 1.0], mesh.face_midpoints)
        sine = np.sin(mesh.face_lengths / 2) * 2  # the mean of the field over an arc is its midpoint's value times sin(l/2) / (l/2)
        assert np.abs(np.abs(dot(spin, mesh.face_normals) * sine) - np.abs(stream)).max() <= 1e-13


def test_cells_turn_counter_clockwise_about_their_centers(mesh):
    if mesh.dimension == 2:
        a, b = mesh.vertices[mesh.cell_vertices.reshape(-1, 2)].transpose(1, 0, 2)
        assert (a[:, 0] * mesh.centers[:, 1] > a[:, 1] * mesh.centers[:, 0]).all()
        assert (mesh.centers[:, 0] * b[:, 1] > mesh.centers[:, 1] * b[:, 0]).all()
        return
    start, end = polygon_edges(mesh.cell_offsets, mesh.cell_vertices)
    for inner in (mesh.centers, mesh.centroids):
        apex = np.repeat(inner, np.diff(mesh.cell_offsets), axis=0)
        assert (triangle_area(apex, mesh.vertices[start], mesh.vertices[end]) > 0).all()


def test_arrays_are_read_only(mesh):
    for field in fields(mesh):
        value = getattr(mesh, field.name)
        if isinstance(value, np.ndarray):
            with pytest.raises(ValueError, match="read-only"):
                value[0] = value[0]


@pytest.mark.parametrize("name", MAKERS)
def test_orthogonal(name):
    assert MAKERS[name]().is_orthogonal == (name not in SKEW or name == "cubed_sphere(2)")  # the cube cut in 8 by its symmetry planes


@pytest.mark.parametrize("level", range(5))
def test_counts(level):
    assert icosahedral(level).n_cells == 10 * 4**level + 2
    assert icosahedral(level, cells="triangles").n_cells == 20 * 4**level
    sizes = np.bincount(np.diff(icosahedral(level).cell_offsets))
    assert sizes[5] == 12 and sizes.sum() - sizes[5] == (sizes[6] if level else 0)


def test_counts_of_the_others():
    assert (cubed_sphere(7).n_cells, circle(7).n_cells, voronoi(CUBE).n_cells) == (294, 7, 8)
    assert (np.diff(voronoi(CUBE).cell_offsets) == 3).all(), "four cocircular generators meet in one vertex"
    assert voronoi(CUBE).n_faces == 12
    assert np.allclose(circle(8).areas, np.pi / 4, rtol=1e-14)


# -- the record refuses


@pytest.mark.parametrize("made", [lambda: icosahedral(2), lambda: circle(30), lambda: cubed_sphere(4)])
def test_the_record_refuses_wrong_geometry(made):
    mesh = made()
    sphere = surface_area(mesh.dimension)
    replace(mesh)  # the control: unchanged arrays pass
    replace(mesh, areas=mesh.areas * (1 + 1e-13))
    with pytest.raises(ValueError, match=f"areas sum to {str(sphere * 1.001)[:10]}.*wanted the area {str(sphere)[:10]}"):
        replace(mesh, areas=mesh.areas * (1 + 1e-3))
    with pytest.raises(ValueError, match=r"areas\[7\] is 0, wanted a positive area"):
        changed(mesh, areas=(7, 0.0))
    with pytest.raises(ValueError, match=r"face 5 between cells .* wanted a normal from left to right"):
        changed(mesh, face_normals=(5, -mesh.face_normals[5]))
    with pytest.raises(ValueError, match=r"centers\[3, 0\] is nan"):
        changed(mesh, centers=(3, np.nan))
    with pytest.raises(ValueError, match=r"centers\[3\] has length 1.1"):
        changed(mesh, centers=(3, 1.1 * mesh.centers[3]))
    with pytest.raises(ValueError, match=r"face_distances\[2\] is 0"):
        changed(mesh, face_distances=(2, 0.0))
    with pytest.raises(ValueError, match="wanted two different cells"):
        changed(mesh, face_cells=(4, mesh.face_cells[4, 0]))


# -- M7, M8 and symmetry


def test_pole_inside_a_cell_on_an_edge_on_a_vertex():
    """M7: the same generators turned so that the pole is a center, an edge's middle and a vertex give the same areas."""
    points = voronoi(random_points(120, seed=5), lloyd_steps=10).centers
    start = voronoi(points)
    for pole in (start.centers[17], start.face_midpoints[40], start.vertices[60]):
        axis = normalise(np.cross(pole, [0.3, 0.2, 0.1]))
        turn = np.stack([axis, np.cross(pole, axis), pole])
        for sign in (1.0, -1.0):
            turned = voronoi(normalise(points @ turn.T * [1, sign, sign]))
            nearest = np.concatenate([turned.centers, turned.face_midpoints, turned.vertices])
            assert np.abs(nearest - [0, 0, sign]).sum(axis=1).min() <= 1e-12, "the pole is where it was meant to be"
            assert np.abs(turned.areas - start.areas).max() <= 1e-13


def test_rotated_generators_give_the_rotated_mesh():
    points, turn = random_points(200, seed=2), random_rotation(4)
    start, turned = voronoi(points), voronoi(points @ turn.T)
    assert np.abs(turned.centroids - start.centroids @ turn.T).max() <= 1e-12
    assert np.abs(turned.areas - start.areas).max() <= 1e-12
    gap, partner = cKDTree(turned.vertices).query(start.vertices @ turn.T)
    assert gap.max() <= 1e-12 * 1e3, "circumcenters of needle triangles lose digits"
    assert len(set(partner)) == len(partner)
    gap, partner = cKDTree(turned.face_midpoints).query(start.face_midpoints @ turn.T)
    assert gap.max() <= 1e-9 and np.abs(turned.face_distances[partner] - start.face_distances).max() <= 1e-12


@pytest.mark.parametrize("d", [2, 3])
def test_permuted_generators_give_permuted_cells(d):
    points = random_points(80, d, seed=6)
    order = np.random.default_rng(7).permutation(80)
    start, other = voronoi(points), voronoi(points[order])
    for name in ("centers", "centroids", "areas"):
        assert np.abs(getattr(other, name) - getattr(start, name)[order]).max() <= 1e-12
    pairs = {tuple(sorted(pair)) for pair in start.face_cells.tolist()}
    assert pairs == {tuple(sorted(order[pair].tolist())) for pair in other.face_cells}


def test_area_ratio():
    """M8: icosahedral cells are not equal in area; a uniform density has mass 1 all the same."""
    mesh = icosahedral(5, cells="triangles")
    assert abs(mesh.area_ratio - 1.300) < 5e-4
    assert abs((mesh.areas / surface_area(3)).sum() - 1) <= 1e-13
    assert circle(100).area_ratio <= 1 + 1e-13


@pytest.mark.parametrize("level", range(6))
def test_icosahedral_voronoi_is_centroidal(level):
    mesh = icosahedral(level)
    assert distance(mesh.centers, mesh.centroids).max() <= 4e-3 * mesh.spacing


def test_triangles_are_not_centroidal():
    mesh = icosahedral(4, cells="triangles")
    assert distance(mesh.centers, mesh.centroids).max() > 4e-3 * mesh.spacing


@pytest.mark.parametrize("made", [lambda: icosahedral(3), lambda: voronoi(random_points(150)), lambda: voronoi(PRISM)])
def test_the_cell_of_the_nearest_center_holds_a_point(made):
    mesh, points = made(), random_points(2000, seed=9)
    nearest = cKDTree(mesh.centers).query(points)[1]
    start, end = polygon_edges(mesh.cell_offsets, mesh.cell_vertices)
    poles = np.cross(mesh.vertices[start], mesh.vertices[end])
    for point, cell in zip(points, nearest, strict=True):
        sides = poles[mesh.cell_offsets[cell] : mesh.cell_offsets[cell + 1]] @ point
        assert sides.min() > -1e-12
        other = (cell + 1) % mesh.n_cells
        assert (poles[mesh.cell_offsets[other] : mesh.cell_offsets[other + 1]] @ point).min() < 1e-12


def test_the_nearest_center_on_the_circle():
    mesh, angles = voronoi(random_points(30, 2)), np.random.default_rng(0).uniform(0, 2 * np.pi, 2000)
    nearest = cKDTree(mesh.centers).query(np.stack([np.cos(angles), np.sin(angles)], axis=1))[1]
    first = mesh.vertices[mesh.cell_vertices[::2]][nearest]
    assert ((angles - np.arctan2(first[:, 1], first[:, 0])) % (2 * np.pi) <= mesh.areas[nearest] + 1e-12).all()


# -- bad input


@pytest.mark.parametrize(
    ("call", "sentence"),
    [
        (lambda: icosahedral(-1), r"level is -1, wanted an integer in \[0, 9\]"),
        (lambda: icosahedral(2.5), "level is 2.5, wanted an integer"),
        (lambda: icosahedral("4"), "level is '4', wanted an integer"),
        (lambda: icosahedral(True), "level is True, wanted an integer"),
        (lambda: icosahedral(40), "level is 40, wanted an integer"),
        (lambda: icosahedral(2, cells="hex"), "cells is 'hex', wanted 'voronoi' or 'triangles'"),
        (lambda: circle(2), "n is 2, wanted an integer at least 3"),
        (lambda: circle(float("nan")), "n is nan, wanted an integer"),
        (lambda: cubed_sphere(1), "n is 1, wanted an integer at least 2"),
        (lambda: voronoi(np.concatenate([CUBE, CUBE[2:3]])), r"points\[2\] and points\[8\] coincide \(1 such pairs\)"),
        (lambda: voronoi(RING), "points lie in one plane, wanted generators all over the sphere"),
        (lambda: voronoi(CUBE[:3]), "points has 3 rows, wanted at least 4"),
        (lambda: voronoi(2 * CUBE), r"points\[0\] has length 2, wanted a point of the unit sphere"),
        (lambda: voronoi(np.where(np.arange(8)[:, None] == 5, np.nan, CUBE)), r"points\[5, 0\] is nan, wanted a finite number"),
        (lambda: voronoi(np.zeros((4, 5))), r"points has shape \(4, 5\), wanted \(n, 3\)"),
        (lambda: voronoi([]), r"points has shape \(0,\), wanted \(n, d\)"),
        (lambda: voronoi("cube"), "points is not an array of numbers"),
        (lambda: voronoi(CUBE, lloyd_steps=-1), "lloyd_steps is -1, wanted an integer at least 0"),
        (lambda: voronoi(np.zeros((0, 2))), "points has 0 rows"),
        (lambda: voronoi(np.array([[1.0, 0.0]])), "points has 1 rows"),
    ],
)
def test_bad_input_is_answered_in_one_sentence(call, sentence):
    with pytest.raises(ValueError, match=sentence) as error:
        call()
    assert "\n" not in str(error.value)


def test_numpy_integers_count():
    assert icosahedral(np.int64(1)).n_cells == icosahedral(1.0).n_cells == 42


@pytest.mark.slow
def test_level_7_fits_in_memory():
    """Peak resident memory of a process that makes 163 842 cells, in KiB as Linux counts it."""
    program = (
        "from meanfield_pde.mesh.families import icosahedral; "
        "print(icosahedral(7).n_cells, next(line.split()[1] for line in open('/proc/self/status') if line.startswith('VmHWM')))"
    )
    cells, peak = map(int, subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True).stdout.split())
    assert cells == 163_842
    assert peak <= 1024**2


def test_meshes_are_told_apart_by_name():
    assert isinstance(circle(5), SphereMesh)
    assert (circle(5).name, icosahedral(1).name, cubed_sphere(2).name) == ("circle(5)", "icosahedral(1)", "cubed_sphere(2)")
