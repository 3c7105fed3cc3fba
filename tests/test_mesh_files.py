"""Mesh files: round trips, what is mended and counted (M2, M4, M5), what is refused (M3, M6, M10), the format (R8, R9), broken files."""

import re
import shlex
import subprocess
import sys
import zlib
from dataclasses import fields
from pathlib import Path

import numpy as np
import pytest

from meanfield_pde.files import vtk_xml
from meanfield_pde.files.meshes import read_mesh, write_mesh
from meanfield_pde.files.vtk import grid
from meanfield_pde.files.vtk import write_xml as write_vtu
from meanfield_pde.mesh import families
from meanfield_pde.mesh.families import circle, cubed_sphere, icosahedral
from meanfield_pde.mesh.voronoi import circumcenters, voronoi
from meanfield_pde.records import equal
from meanfield_pde.sphere import distance, normalise, surface_area

MESHES = Path(__file__).parents[1] / "meshes"
RNG = np.random.default_rng


def random_points(n, d=3, seed=0):
    return normalise(RNG(seed).normal(size=(n, d)))


MAKERS = {
    "circle(3)": lambda: circle(3),
    "circle(512)": lambda: circle(512),
    "voronoi, 2 on S1": lambda: voronoi([[1.0, 0.0], [0.6, 0.8]]),
    "voronoi, 40 on S1": lambda: voronoi(random_points(40, 2)),
    "icosahedral(0)": lambda: icosahedral(0),
    "icosahedral(3)": lambda: icosahedral(3),
    "triangles(3)": lambda: icosahedral(3, cells="triangles"),
    "cubed_sphere(8)": lambda: cubed_sphere(8),
    "voronoi, 300 on S2": lambda: voronoi(random_points(300)),
    "voronoi, 20 in a cap": lambda: voronoi(normalise(0.2 * random_points(20) + [0, 0, 1])),
}


def assert_same(mesh, other, tolerance=1e-15):
    for field in fields(mesh):
        one, two = getattr(mesh, field.name), getattr(other, field.name)
        if isinstance(one, np.ndarray):
            assert one.shape == two.shape and np.abs(one - two).max() <= tolerance * (1 if one.dtype.kind == "f" else 0), field.name
        else:
            assert one == two, field.name


def surface(path, points, cells, **cell_data):
    """A .vtu or surface file of polygons (or lines) given as lists of corners."""
    import pyvista

    kinds = {2: 3, 3: 5, 4: 9}
    types = np.array([kinds.get(len(cell), 7) for cell in cells], dtype=np.uint8)
    flat = np.concatenate([[len(cell), *cell] for cell in cells])
    points = np.asarray(points)
    points = np.pad(points, ((0, 0), (0, 3 - points.shape[1])))
    data = pyvista.UnstructuredGrid(flat, types, points)
    for name, values in cell_data.items():
        data.cell_data[name] = values
    if path.suffix == ".vtu":
        data.save(path)
    else:
        pyvista.PolyData(points, faces=flat).save(path)
    return path


def parts(mesh):
    """Vertices and cells of a mesh, free to change."""
    return np.array(mesh.vertices), [list(cell) for cell in np.split(mesh.cell_vertices, mesh.cell_offsets[1:-1])]


def triangles(level=3):
    return parts(icosahedral(level, cells="triangles"))


def told(mesh, sentence):
    assert len(mesh.repairs) == 1 and re.search(sentence, mesh.repairs[0]), mesh.repairs


def refused(path, sentence):
    with pytest.raises(ValueError, match=sentence) as error:
        read_mesh(path)
    text = str(error.value)
    assert "\n" not in text and text.startswith(str(path))


# -- round trips


@pytest.mark.parametrize("name", MAKERS)
def test_round_trip(tmp_path, name):
    mesh = MAKERS[name]()
    write_mesh(tmp_path / "mesh.vtu", mesh)
    assert_same(mesh, read_mesh(tmp_path / "mesh.vtu"), 0 if mesh.dimension == 3 else 2e-15)
    assert list(tmp_path.iterdir()) == [tmp_path / "mesh.vtu"]


def test_grid_holds_cells_and_points_only():
    for mesh, types in ((icosahedral(1), {7}), (icosahedral(1, cells="triangles"), {5}), (cubed_sphere(2), {9}), (circle(5), {3})):
        data = grid(mesh)
        assert set(data.celltypes.tolist()) == types
        assert data.n_cells == mesh.n_cells and data.n_points == len(mesh.vertices) and not data.array_names
        assert (data.cells == np.insert(mesh.cell_vertices, mesh.cell_offsets[:-1], np.diff(mesh.cell_offsets))).all()
        assert (data.points[:, : mesh.dimension] == mesh.vertices).all() and data.points.dtype == np.float64
    assert (grid(circle(5)).points[:, 2] == 0).all()


@pytest.mark.parametrize("suffix", [".vtp", ".stl", ".obj"])
def test_surface_files(tmp_path, suffix):
    """float32 points are moved back onto the sphere and told; triangles get circumcenters, which stay inside."""
    import pyvista

    mesh = icosahedral(2, cells="triangles")
    data = pyvista.PolyData(mesh.vertices.astype(np.float32), faces=np.insert(mesh.cell_vertices, mesh.cell_offsets[:-1], 3))
    data.save(tmp_path / f"sphere{suffix}")
    other = read_mesh(tmp_path / f"sphere{suffix}")
    told(other, r"moved \d+ points onto the unit sphere, by up to \d")
    assert other.name == f"sphere{suffix}" and other.is_orthogonal
    assert distance(other.centers, mesh.centers).max() <= 1e-5
    assert abs(other.areas.sum() - surface_area(3)) <= 1e-11


def test_mixed_cells_and_default_centers(tmp_path):
    """The cubed sphere with a quarter of its cells cut in two has centroids as centers; random triangles too, as some are obtuse."""
    import pyvista

    points, cells = parts(cubed_sphere(4))
    cut = [part for k, cell in enumerate(cells) for part in ([cell[:3], [cell[0], *cell[2:]]] if k % 4 == 0 else [cell])]
    mesh = read_mesh(surface(tmp_path / "mixed.vtu", points, cut))
    assert mesh.repairs == () and (mesh.centers == mesh.centroids).all() and mesh.n_cells == 96 + 24
    points = voronoi(random_points(60)).centers
    hull = pyvista.PolyData(points).delaunay_3d().extract_surface(algorithm="dataset_surface")
    hull.save(tmp_path / "hull.vtp")
    mesh = read_mesh(tmp_path / "hull.vtp")
    assert (mesh.centers == mesh.centroids).all()
    acute = read_mesh(surface(tmp_path / "acute.vtu", *triangles(2)))
    assert (acute.centers == circumcenters(acute.vertices, acute.cell_vertices.reshape(-1, 3))).all()


# -- mended and counted


def test_flipped_triangles_are_turned(tmp_path):
    """M2."""
    points, cells = triangles()
    flipped = RNG(0).choice(len(cells), len(cells) // 10, replace=False)
    for cell in flipped:
        cells[cell] = cells[cell][::-1]
    mesh = read_mesh(surface(tmp_path / "flipped.vtu", points, cells))
    told(mesh, "turned 128 of 1280 cells to run counter-clockwise")
    assert (mesh.areas > 0).all() and abs(mesh.areas.sum() - 4 * np.pi) <= 1e-11
    assert np.abs(mesh.areas - icosahedral(3, cells="triangles").areas).max() <= 1e-15
    points, cells = parts(icosahedral(2))
    mesh = read_mesh(surface(tmp_path / "inside_out.vtu", points, [cell[::-1] for cell in cells]))
    told(mesh, "turned 162 of 162 cells")


def test_points_without_a_cell_are_dropped(tmp_path):
    """M4: also one at the origin and one that is no number."""
    points, cells = triangles()
    extra = np.array([[0, 0, 0], [np.nan, 0, 0], [0.0, 0.6, 0.8]])
    mesh = read_mesh(surface(tmp_path / "unused.vtu", np.concatenate([extra, points]), [[k + 3 for k in cell] for cell in cells]))
    told(mesh, "dropped 3 points that belong to no cell")
    assert len(mesh.vertices) - mesh.n_faces + mesh.n_cells == 2
    assert_same_geometry(mesh, icosahedral(3, cells="triangles"))


def assert_same_geometry(mesh, other):
    assert mesh.n_faces == other.n_faces
    assert np.abs(mesh.areas - other.areas).max() <= 1e-12 and np.abs(mesh.centroids - other.centroids).max() <= 1e-10


@pytest.mark.parametrize("gap", [0.0, 1e-13])
def test_doubled_nodes_are_merged(tmp_path, gap):
    """M5: the northern cells have points of their own along the seam; unmerged, nothing would cross it."""
    mesh = icosahedral(3, cells="triangles")
    points, cells = parts(mesh)
    north = mesh.centers[:, 2] > 0.1
    shared = np.intersect1d(mesh.cell_vertices.reshape(-1, 3)[north], mesh.cell_vertices.reshape(-1, 3)[~north])
    new = dict(zip(shared.tolist(), range(len(points), len(points) + len(shared)), strict=True))
    cells = [[new.get(int(k), int(k)) for k in cell] if up else cell for cell, up in zip(cells, north, strict=True)]
    doubled = np.concatenate([points, points[shared] + gap * random_points(len(shared))])
    read = read_mesh(surface(tmp_path / "seam.vtu", doubled, cells))
    merged = [line for line in read.repairs if "merged" in line]
    assert len(shared) > 20 and len(merged) == 1 and f"merged {len(shared)} doubled points" in merged[0]
    assert_same_geometry(read, mesh)
    far = np.concatenate([points, normalise(points[shared] + 1e-3 * random_points(len(shared)))])
    refused(surface(tmp_path / "gap.vtu", far, cells), r"not closed, \d+ open edges")  # the control: a real gap


def test_repeated_corners_are_dropped(tmp_path):
    """Latitude-longitude files write the triangles at the poles as quadrilaterals with a doubled corner."""
    turn = np.arange(8) * np.pi / 4
    ring = np.stack([np.cos(turn), np.sin(turn), np.zeros(8)], axis=1)
    poles = np.repeat([[0, 0, 1.0], [0, 0, -1.0]], 8, axis=0)
    k, j = np.arange(8), (np.arange(8) + 1) % 8
    cells = np.concatenate([np.stack([k, j, 8 + j, 8 + k], axis=1), np.stack([j, k, 16 + k, 16 + j], axis=1)])
    mesh = read_mesh(surface(tmp_path / "poles.vtu", np.concatenate([ring, poles]), cells.tolist()))
    assert mesh.repairs[0].startswith("merged 14 doubled points") and mesh.repairs[1:] == ("dropped 16 repeated corners of cells",)
    assert np.allclose(mesh.areas, np.pi / 4, rtol=1e-14)


def test_lines_and_vertices_beside_polygons_are_dropped(tmp_path):
    points, cells = triangles(1)
    mesh = read_mesh(surface(tmp_path / "edges.vtu", points, [[0, 1], [1, 2], *cells]))
    told(mesh, "dropped 2 cells that are points or lines")
    assert mesh.n_cells == 80


def test_reversed_and_shuffled_lines(tmp_path):
    mesh = circle(24)
    points, cells = parts(mesh)
    order = RNG(0).permutation(24)
    cells = [cells[k][::-1] if k % 3 == 0 else cells[k] for k in order]
    read = read_mesh(surface(tmp_path / "lines.vtu", points, cells))
    told(read, "turned 8 of 24 cells to run counter-clockwise")
    assert np.abs(read.centers - mesh.centers[order]).max() <= 1e-15


# -- refused


def test_planar_and_open_surfaces(tmp_path):
    """M3."""
    import pyvista

    flat = pyvista.Plane(i_resolution=4, j_resolution=4).cast_to_unstructured_grid()
    flat.save(tmp_path / "planar.vtu")
    refused(tmp_path / "planar.vtu", r"not on the unit sphere, largest deviation 1 at points\[12\]")
    points, cells = triangles(2)
    upper = [cell for cell in cells if points[cell][:, 2].mean() > 0]
    refused(surface(tmp_path / "half.vtu", points, upper), r"not closed, \d+ open edges")
    keys = {}
    for cell in upper:
        for pair in zip(cell, np.roll(cell, -1), strict=True):
            keys[frozenset(map(int, pair))] = keys.get(frozenset(map(int, pair)), 0) + 1
    refused(tmp_path / "half.vtu", f"not closed, {sum(count == 1 for count in keys.values())} open edges")
    refused(surface(tmp_path / "hole.vtu", points, cells[1:]), "not closed, 3 open edges")
    refused(surface(tmp_path / "earth.vtu", 6371 * points, cells), "largest deviation 6370")
    mesh = read_mesh(surface(tmp_path / "near.vtu", points * (1 + 9e-6), cells))
    told(mesh, "moved 162 points onto the unit sphere, by up to 9e-06")
    refused(surface(tmp_path / "off.vtu", points * (1 + 1.1e-5), cells), "largest deviation 1.1e-05")


def test_a_cell_without_area(tmp_path):
    """M6: on one great circle, a corner twice, and needles between doubled nodes."""
    points, cells = triangles(2)
    a, b = cells[11][:2]
    middle = normalise(points[a] + points[b])
    refused(surface(tmp_path / "flat.vtu", [*points, middle], [*cells[:40], [a, len(points), b], *cells[40:]]), "cell 40 has no area")
    refused(surface(tmp_path / "twice.vtu", points, [*cells[:40], [a, a, b], *cells[40:]]), "cell 40 has no area")
    near = normalise(points[a] + 1e-13)
    refused(surface(tmp_path / "needle.vtu", [*points, near], [*cells[:7], [a, len(points), b], *cells[7:]]), "cell 7 has no area")
    refused(surface(tmp_path / "point.vtu", points, [[a, a, a]]), "all edges have length 0")


def test_wrong_areas(tmp_path):
    """M10."""
    mesh = icosahedral(2)
    points, cells = parts(mesh)
    assert read_mesh(surface(tmp_path / "right.vtu", points, cells, cell_area=mesh.areas)).repairs == ()
    assert read_mesh(surface(tmp_path / "float32.vtu", points, cells, cell_area=mesh.areas.astype(np.float32))).n_cells == 162
    refused(
        surface(tmp_path / "sum.vtu", points, cells, cell_area=mesh.areas * (1 + 1e-3)), "cell_area sums to 12.578937, wanted 12.5663706"
    )
    swapped = np.array(mesh.areas)
    swapped[[3, 90]] += [1e-3, -1e-3]
    refused(surface(tmp_path / "swapped.vtu", points, cells, cell_area=swapped), r"cell_area\[3\] is .*, wanted .*\(2 such cells\)")
    refused(surface(tmp_path / "nan.vtu", points, cells, cell_area=np.full(162, np.nan)), r"cell_area\[0\] is nan")
    refused(
        surface(tmp_path / "shape.vtu", points, cells, cell_area=np.ones((162, 2))), r"'cell_area' has shape \(162, 2\), wanted \(162,\)"
    )
    ring = circle(9)
    refused(surface(tmp_path / "ring.vtu", *parts(ring), cell_area=ring.areas * 1.001), "cell_area sums to 6.28946849, wanted 6.28318531")


def test_wrong_centers(tmp_path):
    mesh = icosahedral(2)
    points, cells = parts(mesh)
    centers = np.array(mesh.centers)
    assert (read_mesh(surface(tmp_path / "right.vtu", points, cells, center=centers)).centers == mesh.centers).all()
    refused(surface(tmp_path / "swapped.vtu", points, cells, center=centers[::-1]), "its center lies outside it")
    refused(
        surface(tmp_path / "inner.vtu", points, cells, center=0.9 * centers), "centers are not on the unit sphere, largest deviation 0.1"
    )
    ring = circle(9)
    turned = np.pad(np.roll(ring.centers, 1, axis=0), ((0, 0), (0, 1)))
    refused(surface(tmp_path / "ring.vtu", *parts(ring), center=turned), r"center\[0\] lies outside its cell \(9 such cells\)")


def test_covers_that_are_no_mesh(tmp_path):
    points, cells = triangles(1)
    n = len(points)
    again = [[k + n for k in cell] for cell in cells]
    refused(surface(tmp_path / "same.vtu", points, [*cells, cells[5]]), r"cells 5 and 80 have the same corners \(1 such cells\)")
    refused(surface(tmp_path / "copy.vtu", [*points, *points], [*cells, *again]), r"cells 0 and 80 have the same corners \(80 such cells\)")
    turn = np.array([[0.6, 0.8, 0], [-0.8, 0.6, 0], [0, 0, 1.0]]) @ np.array([[1.0, 0, 0], [0, 0.6, 0.8], [0, -0.8, 0.6]])
    refused(surface(tmp_path / "double.vtu", [*points, *points @ turn], [*cells, *again]), r"areas sum to 25\.13.*wanted the area 12\.56")
    fin = [*points, normalise(np.array([0.3, 0.4, 0.5]))]
    a, b, c = cells[3]
    refused(surface(tmp_path / "fin.vtu", fin, [*cells, [a, b, n], [b, c, n], [c, a, n]]), "3 edges belong to more than two cells")
    folded = np.array(points)
    folded[20] = -folded[20]
    refused(surface(tmp_path / "folded.vtu", folded, cells), r"wound both ways.*look at cells \d")
    quads, four = parts(cubed_sphere(4))
    crossed = [[c[0], c[2], c[1], c[3]] if k == 30 else c for k, c in enumerate(four)]
    refused(surface(tmp_path / "crossed.vtu", quads, crossed), "not closed, 4 open edges.*look at cells 29, 30, 31")


def test_a_fold_within_the_area_of_the_sphere(tmp_path):
    """One vertex pushed over the opposite edge: the signed areas still sum to 4 pi, so only the signs tell."""
    points, cells = triangles(2)
    ring = next(cell for cell in cells if 100 in cell)
    other = next(k for k in ring if k != 100)
    points[100] = normalise(points[100] + 1.5 * (points[other] - points[100]))
    refused(surface(tmp_path / "fold.vtu", points, cells), r"wound both ways.*look at cells \d")


def test_circles_that_are_no_mesh(tmp_path):
    points, cells = parts(circle(12))
    refused(surface(tmp_path / "open.vtu", points, cells[1:]), "not closed or covered twice, it has 11 lines and 12 points")
    refused(surface(tmp_path / "chord.vtu", points, [[0, 2], *cells[1:]]), "cell 0 joins two points that are not neighbours")
    refused(surface(tmp_path / "twice.vtu", points, [cells[1], *cells[1:]]), "1 gaps, and cells 0 and 1 cover the same arc")
    refused(
        surface(tmp_path / "tilted.vtu", np.pad(points, ((0, 0), (0, 1)), constant_values=0.1), cells), "unit circle in the plane z = 0"
    )
    refused(surface(tmp_path / "flat.vtu", [*points], [[3, 3], *cells]), "cell 0 has no area")


def test_numbers_and_cells_of_the_wrong_kind(tmp_path):
    import pyvista

    points, cells = triangles(1)
    points[7, 1] = np.nan
    refused(surface(tmp_path / "nan.vtu", points, cells), r"points\[7\] is \[.*nan.*\], wanted finite numbers")
    solid = pyvista.PolyData(random_points(30)).delaunay_3d()
    solid.save(tmp_path / "solid.vtu")
    refused(tmp_path / "solid.vtu", "cell 0 has VTK cell type 10, wanted triangles")
    pyvista.UnstructuredGrid().save(tmp_path / "empty.vtu")
    refused(tmp_path / "empty.vtu", "it holds 0 points and no cells")
    pyvista.PolyData(random_points(5)).save(tmp_path / "cloud.vtp")
    refused(tmp_path / "cloud.vtp", "cell 0 has VTK cell type 1")


def test_files_that_are_none(tmp_path):
    with pytest.raises(FileNotFoundError, match=r"no_such\.vtu: there is no such file"):
        read_mesh(tmp_path / "no_such.vtu")
    (tmp_path / "folder.vtu").mkdir()
    refused(tmp_path / "folder.vtu", "it is not a file")
    refused(tmp_path / "mesh.msh", r"the name ends in '.msh', wanted .vtu, .vtp")
    for suffix in (".vtu", ".vtp", ".stl", ".obj"):
        for content in (b"", b"hello\n", bytes(range(256)) * 4):
            (tmp_path / f"bad{suffix}").write_bytes(content)
            refused(tmp_path / f"bad{suffix}", "truncated or no (VTK XML|STL)|holds 0 points and no cells")


def test_a_point_number_out_of_range(tmp_path):
    path = tmp_path / "range.vtu"
    path.write_text(
        '<VTKFile type="UnstructuredGrid" version="1.0"><UnstructuredGrid><Piece NumberOfPoints="3" NumberOfCells="1"><Points>'
        '<DataArray type="Float64" NumberOfComponents="3" format="ascii">1 0 0 0 1 0 0 0 1</DataArray></Points><Cells>'
        '<DataArray type="Int64" Name="connectivity" format="ascii">0 1 3</DataArray><DataArray type="Int64" Name="offsets" '
        'format="ascii">3</DataArray><DataArray type="UInt8" Name="types" format="ascii">5</DataArray></Cells>'
        "</Piece></UnstructuredGrid></VTKFile>"
    )
    refused(path, r"cell 0 refers to point 3, wanted a number in \[0, 2\]")
    path.write_text(path.read_text().replace("0 1 3", "0 1 2"))
    refused(path, "not closed, 3 open edges")  # the control: the file itself is read
    path.write_text(path.read_text().replace("1 0 0 0 1", "1 0 0 0 1e300"))
    refused(path, r"largest deviation inf at points\[1\]")


def test_a_truncated_file_is_refused_wherever_it_was_cut(tmp_path):
    """tests/test_fuzz.py has what else may happen to a file."""
    write_mesh(tmp_path / "whole.vtu", icosahedral(2))
    whole = (tmp_path / "whole.vtu").read_bytes()
    for length in np.linspace(0, len(whole) - 2, 60).astype(int):
        (tmp_path / "cut.vtu").write_bytes(whole[:length])
        refused(tmp_path / "cut.vtu", "truncated or no VTK XML file")


def flipped_bits(path, mesh, count):
    """How many of the files of a mesh with one bit turned in the arrays are refused, and how many give an equal or a different mesh."""
    write_mesh(path, mesh)
    whole, found = path.read_bytes(), dict.fromkeys(("refused", "equal", "different"), 0)
    first, end = whole.index(b"_", whole.index(b"<AppendedData")) + 1, whole.rindex(b"</AppendedData")
    for at in RNG(0).integers(8 * first, 8 * end, count).tolist():
        damaged = bytearray(whole)
        damaged[at // 8] ^= 1 << at % 8
        path.write_bytes(damaged)
        try:
            read = read_mesh(path)
        except ValueError:
            found["refused"] += 1
        else:
            found["equal" if equal(read, mesh) else "different"] += 1
    return found


@pytest.mark.slow
def test_a_flipped_bit_in_the_arrays_is_refused_or_harmless(tmp_path, monkeypatch):
    found = flipped_bits(tmp_path / "mesh.vtu", icosahedral(1), 1500)
    assert found["different"] == 0 and found["refused"] > 1400
    monkeypatch.setitem(vtk_xml.DECOMPRESSORS, "vtkZLibDataCompressor", lambda packed, size: zlib.decompressobj(-15).decompress(packed[2:]))
    assert flipped_bits(tmp_path / "mesh.vtu", icosahedral(1), 1500)["different"] > 200  # the control: the checksum is not looked at


def piece(points, cells, area=""):
    """Text of a piece of polygons, with what else its cells are said to have."""
    numbers = " ".join(f"{number:.17g}" for number in np.ravel(points))
    corners, ends = " ".join(str(k) for cell in cells for k in cell), " ".join(map(str, np.cumsum([len(cell) for cell in cells])))
    return (
        f'<Piece NumberOfPoints="{len(points)}" NumberOfCells="{len(cells)}"><Points><DataArray type="Float64" NumberOfComponents="3">'
        f'{numbers}</DataArray></Points><Cells><DataArray type="Int32" Name="connectivity">{corners}</DataArray><DataArray type="Int32" '
        f'Name="offsets">{ends}</DataArray><DataArray type="UInt8" Name="types">{" ".join(["7"] * len(cells))}</DataArray></Cells>{area}'
        "</Piece>"
    )


def in_pieces(path, *pieces):
    path.write_text(f'<VTKFile type="UnstructuredGrid"><UnstructuredGrid>{"".join(pieces)}</UnstructuredGrid></VTKFile>')
    return path


def test_pieces_are_put_together(tmp_path):
    """Each piece counts its own points, so that those between them are doubled; a piece knows no points of another."""
    points, cells = triangles(1)
    path = in_pieces(tmp_path / "two.vtu", piece(points, cells[:30]), piece(points, cells[30:]))
    assert_same_geometry(read_mesh(path), icosahedral(1, cells="triangles"))
    areas = icosahedral(1, cells="triangles").areas

    def with_areas(rows):
        numbers = " ".join(f"{area:.17g}" for area in areas[rows])
        return piece(points, cells[rows], f'<CellData><DataArray type="Float64" Name="cell_area">{numbers}</DataArray></CellData>')

    first, rest = slice(0, 30), slice(30, None)
    assert read_mesh(in_pieces(path, with_areas(first), with_areas(rest))).n_cells == 80
    refused(in_pieces(path, with_areas(first), piece(points, cells[rest])), "'cell_area' is in 1 of 2 pieces, wanted it in all or none")
    refused(in_pieces(path, piece(points, cells[first]), piece(points[:20], cells[rest])), r"piece 1, cell \d+ refers to point \d+, wanted")


def test_a_file_is_not_believed_before_it_is_read(tmp_path):
    """Counts far beyond the file, entities that stand for many, and elements in elements: refused, at no cost."""
    path = tmp_path / "claims.vtu"
    whole = piece(*triangles(0))
    for old, new, sentence in (
        ('NumberOfPoints="12"', 'NumberOfPoints="999999999999999"', "has 36 values, wanted 2999999999999997"),
        ('NumberOfPoints="12"', f'NumberOfPoints="{"9" * 5000}"', "NumberOfPoints '9999.*9999', wanted a whole number"),
        ('NumberOfCells="20"', 'NumberOfCells="-1"', "NumberOfCells '-1', wanted a whole number"),
        ('NumberOfComponents="3"', 'NumberOfComponents="2"', "its points have 2 coordinates, wanted 3"),
        ('type="Int32"', 'type="Float32"', "DataArray has type 'Float32', wanted Int8 or"),
        ("<Cells>", f"<Cells>{'<a>' * 50_000}{'</a>' * 50_000}", "not closed|no array"),
    ):
        in_pieces(path, whole.replace(old, new, 1))
        if "a>" in new:
            assert read_mesh(path).n_cells == 20
        else:
            refused(path, sentence)
    path.write_text('<!DOCTYPE x [<!ENTITY a "&b;&b;">]>' + path.read_text())
    refused(path, "declares a document type")


def test_obj_as_others_write_it(tmp_path):
    """Comments, texture and normal numbers, a line that goes on, numbers from the end."""
    points, cells = triangles(0)
    lines = [f"v {x:.17g} {y:.17g} {z:.17g} # a corner" for x, y, z in points]
    lines += ["vn 0 0 1", "vt 0 0", "o sphere", "usemtl none", "p 1", "l 1 2"]
    lines += [f"f {a + 1}/1/1 {b + 1}//1 \\\n {c - 12}" for a, b, c in cells]
    path = tmp_path / "sphere.obj"
    path.write_text("\n".join(lines))
    mesh = read_mesh(path)
    told(mesh, "dropped 2 cells that are points or lines")
    assert np.abs(mesh.areas - icosahedral(0, cells="triangles").areas).max() <= 1e-15
    path.write_text("\n".join(lines), encoding="utf-8-sig")
    assert read_mesh(path) == mesh
    path.write_text("\n".join(lines), encoding="utf-16")
    refused(path, "begins with the byte-order mark of UTF-16, wanted text in UTF-8")
    for line, sentence in (
        ("f 1 2 x", "line 59 is 'f 1 2 x', wanted"),
        ("f 0 1 2", "line 59"),
        ("f -13 1 2", "line 59"),
        ("v 1 2", "line 59"),
    ):
        path.write_text("\n".join([*lines, line]))
        refused(path, sentence)
    path.write_text("\n".join([*lines, "f 1 2 13"]))
    refused(path, r"cell 22 refers to point 12, wanted a number in \[0, 11\]")


def test_stl_as_others_write_it(tmp_path):
    """Binary files whose header says solid, text whose name is a word of the format; text cut short."""
    mesh = icosahedral(1, cells="triangles")
    corners = mesh.vertices[mesh.cell_vertices.reshape(-1, 3)]
    facets = np.zeros(80, dtype=np.dtype([("numbers", "<f4", (4, 3)), ("attributes", "<u2")]))
    facets["numbers"][:, 1:] = corners
    path = tmp_path / "sphere.stl"
    binary = b"solid facet vertex".ljust(80) + np.uint32(80).tobytes() + facets.tobytes()
    for end in (b"", b"\n", b"\r\n"):
        path.write_bytes(binary + end)
        assert read_mesh(path).n_cells == 80
    path.write_bytes(binary + b"\nx")
    refused(path, "truncated or no STL")
    text = ["solid my facet vertex"]
    for triangle in corners.tolist():
        text += ["facet normal 0 0 1", "outer loop", *(f"vertex {x!r} {y!r} {z!r}" for x, y, z in triangle), "endloop", "endfacet"]
    whole = "\n".join([*text, "endsolid my facet vertex\n"])
    for written in (whole.encode(), whole.upper().encode(), whole.encode("utf-8-sig")):
        path.write_bytes(written)
        assert_same_geometry(read_mesh(path), mesh)
    path.write_text(whole, encoding="utf-16")
    refused(path, "begins with the byte-order mark of UTF-16, wanted text in UTF-8")
    path.write_text("\n".join(text))
    refused(path, "truncated or no STL")
    path.write_text("\n".join([*text[:-3], *text[-2:], "endsolid"]))
    refused(path, "has 239 vertices in 80 facets, wanted three in each")


# -- the format


def test_header_says_64_bits_and_one_index_type(tmp_path):
    """R8, R9."""
    for mesh in (icosahedral(1), circle(5), icosahedral(1, cells="triangles")):
        write_mesh(tmp_path / "mesh.vtu", mesh)
        head = (tmp_path / "mesh.vtu").read_bytes().partition(b"<AppendedData")[0].decode()
        assert 'header_type="UInt64"' in head and 'compressor="vtkZLibDataCompressor"' in head
        arrays = dict(
            re.findall(r'<DataArray type="(\w+)" Name="(\w+)"', head)[k][::-1] for k in range(len(re.findall("<DataArray", head)))
        )
        assert arrays.pop("types") == "UInt8"
        assert arrays == dict.fromkeys(("Points", "center", "cell_area"), "Float64") | dict.fromkeys(("connectivity", "offsets"), "Int64")
        assert 'format="ascii"' not in head and 'format="binary"' not in head


def test_vtk_and_pyvista_read_the_same_values(tmp_path):
    """R8: also numbers at the ends of the range."""
    import pyvista
    from vtkmodules.vtkIOXML import vtkXMLUnstructuredGridReader

    mesh = icosahedral(1)
    data = grid(mesh)
    values = np.resize([5e-324, 1e-36, 1e30, -1e-300, 0.1, np.pi], mesh.n_cells)
    data.cell_data["density"] = values
    write_vtu(tmp_path / "frame.vtu", data)
    assert (pyvista.read(tmp_path / "frame.vtu").cell_data["density"] == values).all()
    reader = vtkXMLUnstructuredGridReader()
    reader.SetFileName(str(tmp_path / "frame.vtu"))
    reader.Update()
    read = pyvista.wrap(reader.GetOutput())
    assert (read.cell_data["density"] == values).all()
    assert (read.cell_connectivity == mesh.cell_vertices).all() and (read.points == mesh.vertices).all()


def test_names_and_folders(tmp_path):
    """Folders are made, as by other writers; a name in any script comes back."""
    path = tmp_path / "new" / "sphère.vtu"
    points, cells = triangles(0)
    mesh = read_mesh(surface(tmp_path / "café 球.vtu", points, cells))
    assert mesh.name == "café 球.vtu"
    write_mesh(str(path), mesh)
    assert read_mesh(str(path)).name == "café 球.vtu"
    with pytest.raises(ValueError, match=r"path is '.*mesh.stl', wanted a name that ends in .vtu"):
        write_mesh(tmp_path / "mesh.stl", mesh)
    assert not (tmp_path / "mesh.stl").exists()


def test_a_failed_write_leaves_the_old_file(tmp_path):
    limited = (
        "import resource, sys, signal; from meanfield_pde.mesh.families import icosahedral\n"
        "from meanfield_pde.files.meshes import write_mesh\n"
        "signal.signal(signal.SIGXFSZ, signal.SIG_IGN); resource.setrlimit(resource.RLIMIT_FSIZE, (9000, 9000))\n"
        "try: write_mesh(sys.argv[1], icosahedral(4))\n"
        "except OSError as error: print(error)\n"
    )
    write_mesh(tmp_path / "mesh.vtu", icosahedral(1))
    old = (tmp_path / "mesh.vtu").read_bytes()
    run = subprocess.run([sys.executable, "-c", limited, str(tmp_path / "mesh.vtu")], capture_output=True, text=True)
    assert run.returncode == 0 and run.stderr == ""
    assert run.stdout == f"{tmp_path / 'mesh.vtu'} cannot be written: File too large\n"
    assert (tmp_path / "mesh.vtu").read_bytes() == old and list(tmp_path.iterdir()) == [tmp_path / "mesh.vtu"]


def test_importing_is_light():
    program = "import sys, meanfield_pde.files.meshes; print([m for m in sys.modules if m.startswith(('vtk', 'pyvista', 'matplotlib'))])"
    assert subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True).stdout == "[]\n"


# -- meshes/


def made_by(command):
    """The mesh of a command `meanfield-pde mesh KIND --option value -o FILE`, and its file."""
    words = shlex.split(command)
    assert words[:2] == ["meanfield-pde", "mesh"]
    options = dict(zip(words[3::2], words[4::2], strict=True))
    makers = {"circle": circle, "icosahedral": icosahedral, "cubed-sphere": cubed_sphere}
    (size,) = (int(value) for key, value in options.items() if key in ("--level", "--n"))
    return makers[words[2]](size), MESHES.parent / options["-o"]


COMMANDS = re.findall(r"^meanfield-pde mesh .*$", (MESHES / "README.md").read_text(), re.M)


def test_every_ready_mesh_has_its_command():
    assert {made_by(command)[1] for command in COMMANDS} == set(MESHES.glob("*.vtu")) and len(COMMANDS) == 5


def far_from(mesh, other):
    """The largest difference in any field, in units of what a rounding of generators makes of corners, eps / h (of normals, eps / h^2)."""
    corners = np.finfo(float).eps / mesh.spacing
    units = {"face_normals": corners / mesh.spacing}
    names = [field.name for field in fields(mesh) if getattr(mesh, field.name).__class__ is np.ndarray]
    return max(np.abs(getattr(mesh, name) - getattr(other, name)).max() / units.get(name, corners) for name in names)


@pytest.mark.parametrize("command", COMMANDS)
def test_the_command_makes_the_ready_mesh_again(command):
    """Not to the bit: other processors round their products otherwise, and circumcentres divide that by the spacing."""
    mesh, path = made_by(command)
    assert path.stat().st_size < 2e6
    ready = read_mesh(path)
    for name in ("cell_offsets", "cell_vertices", "face_cells", "face_vertices"):
        assert np.array_equal(getattr(mesh, name), getattr(ready, name)), name
    assert far_from(mesh, ready) < 16
    row = next(line for line in (MESHES / "README.md").read_text().splitlines() if line.startswith(f"| `{path.name}`"))
    cells, faces, spacing, ratio = (word.strip() for word in row.split("|")[3:7])
    assert (int(cells), int(faces), spacing, ratio) == (mesh.n_cells, mesh.n_faces, f"{mesh.spacing:.5f}", f"{mesh.area_ratio:.4f}")


def test_the_ready_mesh_has_all_its_lloyd_steps(monkeypatch):
    """The control: one step fewer is far outside what processors make of it."""
    monkeypatch.setattr(families, "LLOYD_STEPS", families.LLOYD_STEPS - 1)
    assert far_from(icosahedral(3), read_mesh(MESHES / "icosahedral_3.vtu")) > 1e6
