"""Mesh files: cells and points in, a checked SphereMesh out, and back.

Data in: a file of triangles, quadrilaterals or polygons on S^2, or of lines on S^1 (plane z = 0), in any format of READERS.
Data out: SphereMesh; `.vtu` files (appended, zlib, UInt64 headers, Int64 cells) with the cell arrays "center" and "cell_area" and the
field array "name". What is safe to mend is mended and told in `SphereMesh.repairs`; the rest is refused with ids, which count the
polygons (or the lines) of the file from 0. Files are read without VTK, which ends the process on some broken ones; pyvista and vtk are
imported when a file is written.
Source of the format: https://docs.vtk.org/en/latest/vtk_file_formats/index.html.
"""

import os
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np

from meanfield_pde import inputs
from meanfield_pde.files import contents
from meanfield_pde.files.contents import LINE, POLY_LINE, POLYGON, QUAD, TRIANGLE, VERTICES, Contents
from meanfield_pde.files.vtk import grid, in_space, write_xml
from meanfield_pde.files.vtk_xml import read_vtk_xml
from meanfield_pde.mesh.polygons import arc_mesh, merged, polygon_areas, polygon_centroids, polygon_edges, polygon_mesh, without_repeats
from meanfield_pde.mesh.record import SphereMesh
from meanfield_pde.mesh.voronoi import circumcenters
from meanfield_pde.sphere import FloatArray, IntArray, normalise, triangle_area

READERS = {".vtu": read_vtk_xml, ".vtp": read_vtk_xml, ".stl": contents.read_stl, ".obj": contents.read_obj}
SURFACE = (TRIANGLE, POLYGON, QUAD)
PROJECTED = 1e-5
"""Points no farther than this from the unit sphere (float32 files are 1e-7 off) are moved onto it; others are refused."""
ROUNDING = 1e-13
"""Points no farther than this from the unit sphere are on it."""
SAME_POINT = 1e-11
"""Points no farther apart than this, or than SAME_POINT_RELATIVE times the shortest edge, are merged."""
SAME_POINT_RELATIVE = 1e-4
NO_AREA = 1e-12
"""A cell has no area if that is below this times its squared perimeter, where rounding of its corners exceeds it."""
STORED_AREA = 1e-6
"""Relative error accepted in the array "cell_area" of a file, which may be float32 and older than the last change of the points."""


def read_mesh(path: str | os.PathLike[str]) -> SphereMesh:
    """Mesh of S^2 from a file of polygons, or of S^1 from lines in the plane z = 0 (.vtu, .vtp, .stl, .obj); unit radius.

    Mended and counted in `repairs`: vertex and line cells beside polygons, points without a cell and doubled points, repeated corners,
    points at most 1e-5 off the sphere, cells wound clockwise. Centers come from the cell array "center"; without it they are
    circumcenters where all cells are triangles that contain theirs, otherwise centroids.
    Raises FileNotFoundError, or ValueError with one sentence that names the file and what is wrong: unreadable or volume cells,
    points off the sphere, a surface that is open, folded or covers the sphere twice, cells without area, given twice or not
    star-shaped, a center outside its cell, an array "cell_area" that is not the cells' area.
    """
    path = inputs.file_path("path", path)
    try:
        file = _cells(path)
        return _circle(path.name, file) if file.types[0] == LINE else _sphere(path.name, file)
    except ValueError as error:
        raise ValueError(f"{path}: {error}") from None


def write_mesh(path: str | os.PathLike[str], mesh: SphereMesh) -> None:
    """Write a mesh as .vtu, with what `read_mesh` needs to restore it; missing folders are made, an old file stays whole until the end.

    Raises ValueError unless the name ends in .vtu; OSError if the file cannot be written.
    """
    from vtkmodules.vtkCommonCore import vtkStringArray

    inputs.instance("mesh", mesh, SphereMesh)
    path = inputs.file_path("path", path, (".vtu",))
    data = grid(mesh)
    data.cell_data["center"] = in_space(mesh.centers)
    data.cell_data["cell_area"] = mesh.areas
    name = vtkStringArray()
    name.SetName("name")
    name.InsertNextValue(mesh.name)
    data.GetFieldData().AddArray(name)
    path.parent.mkdir(parents=True, exist_ok=True)
    write_xml(path, data)


@dataclass(frozen=True)
class _Cells(Contents):
    """Cells of one kind. point_ids: numbers of the points in the file. repairs: what was mended or dropped so far."""

    point_ids: IntArray = field(kw_only=True)
    repairs: tuple[str, ...] = ()

    def mended(self, *told: tuple[int, str], **values: Any) -> "_Cells":
        """The cells with new values of some fields. told: counts and sentences; those with a count other than 0 are added to `repairs`."""
        return replace(self, **values, repairs=(*self.repairs, *(sentence for count, sentence in told if count)))


def _cells(path: Path) -> _Cells:
    """The polygons of a file, or its lines if it has no polygons, with their points and arrays."""
    file = _contents(path)
    if not len(file.types):
        raise ValueError(f"it holds {len(file.points)} points and no cells, wanted polygons or lines")
    contents.refuse_strange_corners(file)
    wanted = SURFACE if np.isin(file.types, SURFACE).any() else (LINE,)
    kept = np.isin(file.types, wanted)
    lower = np.isin(file.types, VERTICES if LINE in wanted else (*VERTICES, LINE, POLY_LINE))
    strange = ~(kept | lower)
    bad = strange if strange.any() or kept.any() else ~kept
    types = "triangles (5), polygons (7) and quadrilaterals (9), or lines (3)"
    inputs.refuse(bad, lambda cell: f"cell {cell} has VTK cell type {file.types[cell]}, wanted {types}")
    sizes = np.diff(file.offsets)
    corners, sizes = file.cell_vertices[np.repeat(kept, sizes)], sizes[kept]
    least = 2 if LINE in wanted else 3
    inputs.refuse(sizes < least, lambda cell: f"cell {cell} has {sizes[cell]} corners, wanted at least {least}")
    arrays = {name: inputs.array(name, values[kept], ("n_cells", *values.shape[1:])) for name, values in file.arrays.items()}
    offsets = np.concatenate([[0], np.cumsum(sizes)])
    used, corners = np.unique(corners, return_inverse=True)
    cells = _Cells(file.points[used], file.types[kept], offsets, corners.ravel(), arrays, file.name, point_ids=used)
    dropped, unused = int((~kept).sum()), len(file.points) - len(used)
    told = (dropped, f"dropped {dropped} cells that are points or lines"), (unused, f"dropped {unused} points that belong to no cell")
    return _without_doubled_points(_on_the_sphere(cells.mended(*told)))


def _contents(path: Path) -> Contents:
    """What a reader finds in a file."""
    if path.suffix.lower() not in READERS:
        raise ValueError(f"the name ends in {path.suffix!r}, wanted {', '.join(READERS)} (pyvista.read and save convert others)")
    if not path.is_file():
        if path.exists():
            raise ValueError("it is not a file, wanted a mesh file")
        raise FileNotFoundError(f"{path}: there is no such file, wanted a mesh file")
    return READERS[path.suffix.lower()](path.read_bytes())


def _on_the_sphere(file: _Cells) -> _Cells:
    """Points, and centers where the file has them, with d columns and unit length."""
    d = 2 if file.types[0] == LINE else 3
    points, told = _projected("points", file.points, d, file.point_ids)
    file = file.mended(told, points=points)
    if "center" not in file.arrays:
        return file
    centers, told = _projected("centers", file.arrays["center"], d, np.arange(len(file.types)))
    return file.mended(told, arrays=file.arrays | {"center": centers})


def _projected(name: str, points: FloatArray, d: int, ids: IntArray) -> tuple[FloatArray, tuple[int, str]]:
    broken = np.any(~np.isfinite(points), axis=1)
    inputs.refuse(broken, lambda index: f"{name}[{ids[index]}] is {points[index].tolist()}, wanted finite numbers")
    where = "unit sphere" if d == 3 else "unit circle in the plane z = 0"
    with np.errstate(over="ignore"):
        deviation = np.abs(np.linalg.norm(points[:, :d], axis=1) - 1)
    if d == 2:
        deviation = np.maximum(deviation, np.abs(points[:, 2]))
    worst = int(np.argmax(deviation))
    if deviation[worst] > PROJECTED:
        raise ValueError(f"{name} are not on the {where}, largest deviation {deviation[worst]:.6g} at {name}[{ids[worst]}], wanted 0")
    moved = deviation > ROUNDING
    points = points[:, :d].copy()
    points[moved] = normalise(points[moved])
    return points, (int(moved.sum()), f"moved {moved.sum()} {name} onto the {where}, by up to {deviation[worst]:.2g}")


def _without_doubled_points(file: _Cells) -> _Cells:
    start, end = polygon_edges(file.offsets, file.cell_vertices)
    edges = np.linalg.norm(file.points[end] - file.points[start], axis=1)
    if not (edges > SAME_POINT).any():
        raise ValueError("all edges have length 0, wanted cells with different corners")
    tolerance = max(SAME_POINT, SAME_POINT_RELATIVE * float(edges[edges > SAME_POINT].min()))
    kept, renamed = merged(file.points, tolerance)
    offsets, cell_vertices = without_repeats(file.offsets, renamed[file.cell_vertices])
    least = 2 if file.types[0] == LINE else 3
    flat = np.diff(offsets) < least
    inputs.refuse(flat, lambda cell: f"cell {cell} has no area, it has fewer than {least} different corners ({flat.sum()} such cells)")
    doubled, repeated = len(file.points) - len(kept), len(file.cell_vertices) - len(cell_vertices)
    told = (doubled, f"merged {doubled} doubled points, at most {tolerance:.2g} apart")
    told_too = (repeated, f"dropped {repeated} repeated corners of cells")
    points, point_ids = file.points[kept], file.point_ids[kept]
    return file.mended(told, told_too, points=points, point_ids=point_ids, offsets=offsets, cell_vertices=cell_vertices)


def _sphere(file_name: str, file: _Cells) -> SphereMesh:
    _refuse_same_cells(file.offsets, file.cell_vertices)
    cell_vertices, turned = _counter_clockwise(file.points, file.offsets, file.cell_vertices)
    file = file.mended((turned, f"turned {turned} of {len(file.types)} cells to run counter-clockwise seen from outside"))
    start, end = polygon_edges(file.offsets, cell_vertices)
    centroids = polygon_centroids(file.points, file.offsets, start, end)
    centers = file.arrays.get("center", centroids)
    if "center" not in file.arrays and (np.diff(file.offsets) == 3).all():
        candidates = circumcenters(file.points, cell_vertices.reshape(-1, 3))
        centers = candidates if (_least_fan(candidates, file, start, end) > 0).all() else centroids
    mesh = polygon_mesh(file.name or file_name, file.points, file.offsets, cell_vertices, centers=centers, repairs=file.repairs)
    for name, inner in (("centroid", centroids), ("center", centers)):
        folded = _least_fan(inner, file, start, end) <= 0
        wrong = f"its {name} lies outside it ({folded.sum()} such cells), wanted cells star-shaped about it"
        inputs.refuse(folded, lambda cell, wrong=wrong: f"cell {cell} is folded or {wrong}")
    _refuse_other_areas(file, mesh.areas)
    return mesh


def _refuse_same_cells(offsets: IntArray, cell_vertices: IntArray) -> None:
    sizes = np.diff(offsets)
    for size in np.unique(sizes):
        cells = np.flatnonzero(sizes == size)
        corners = np.sort(cell_vertices[offsets[cells][:, None] + np.arange(size)], axis=1)
        _, first, inverse = np.unique(corners, axis=0, return_index=True, return_inverse=True)
        again = np.flatnonzero(first[inverse.ravel()] != np.arange(len(cells)))
        if len(again):
            one, other = cells[first[inverse.ravel()[again[0]]]], cells[again[0]]
            raise ValueError(f"cells {one} and {other} have the same corners ({len(again)} such cells), wanted every cell once")


def _counter_clockwise(points: FloatArray, offsets: IntArray, cell_vertices: IntArray) -> tuple[IntArray, int]:
    """Corners of every cell counter-clockwise seen from outside, and how many cells were turned; ValueError for a cell without area."""
    sizes = np.diff(offsets)
    start, end = polygon_edges(offsets, cell_vertices)
    middle = np.add.reduceat(points[start], offsets[:-1], axis=0)
    length = np.linalg.norm(middle, axis=1)
    wide = length < NO_AREA
    inputs.refuse(wide, lambda cell: f"cell {cell} spans half the sphere, so that its inside is not known, wanted smaller cells")
    areas = polygon_areas(points, middle / length[:, None], offsets, start, end)
    perimeter = np.add.reduceat(np.linalg.norm(points[end] - points[start], axis=1), offsets[:-1])
    flat = np.abs(areas) <= NO_AREA * perimeter**2
    inputs.refuse(flat, lambda cell: f"cell {cell} has no area, its corners lie on one great circle ({flat.sum()} such cells)")
    at = np.arange(len(cell_vertices))
    mirrored = np.repeat(offsets[:-1] + offsets[1:] - 1, sizes) - at
    return cell_vertices[np.where(np.repeat(areas < 0, sizes), mirrored, at)], int((areas < 0).sum())


def _least_fan(inner: FloatArray, file: _Cells, start: IntArray, end: IntArray) -> FloatArray:
    """Least signed area (n_cells,) of the triangles between one inner point (n_cells, 3) and the edges: positive if it sees all of them."""
    apex = np.repeat(inner, np.diff(file.offsets), axis=0)
    return np.minimum.reduceat(triangle_area(apex, file.points[start], file.points[end]), file.offsets[:-1])


def _circle(file_name: str, file: _Cells) -> SphereMesh:
    """Lines as arcs: each gap between neighbouring points on the circle must have exactly one line."""
    n, n_lines = len(file.points), len(file.types)
    if n_lines != n:
        raise ValueError(f"the circle is not closed or covered twice, it has {n_lines} lines and {n} points, wanted as many of each")
    angles = np.arctan2(file.points[:, 1], file.points[:, 0])
    angles = np.where(angles < angles[0], angles + 2 * np.pi, angles)
    order = np.argsort(angles)
    rank = np.argsort(order)
    first, second = rank[file.cell_vertices.reshape(-1, 2)].T
    forward, backward = (first + 1) % n == second, (second + 1) % n == first
    apart, wanted = ~(forward | backward), "lines from each point to the next"
    inputs.refuse(apart, lambda cell: f"cell {cell} joins two points that are not neighbours on the circle, wanted {wanted}")
    arc = np.where(forward, first, second)
    counts = np.bincount(arc, minlength=n)
    if (counts != 1).any():
        cells = np.flatnonzero(counts[arc] > 1)
        raise ValueError(f"the circle is not closed, {(counts == 0).sum()} gaps, and cells {cells[0]} and {cells[1]} cover the same arc")
    boundaries, cell_ids = angles[order], np.argsort(arc)
    ends = np.append(boundaries[1:], boundaries[0] + 2 * np.pi)
    centers = None
    if "center" in file.arrays:
        x, y = file.arrays["center"].T
        inside = (np.arctan2(y, x)[cell_ids] - boundaries) % (2 * np.pi)
        bad = (inside <= 0) | (inside >= ends - boundaries)
        if bad.any():
            raise ValueError(f"center[{cell_ids[bad].min()}] lies outside its cell ({bad.sum()} such cells), wanted it inside")
        centers = boundaries + inside
    turned = int((~forward).sum())
    file = file.mended((turned, f"turned {turned} of {n} cells to run counter-clockwise"))
    mesh = replace(arc_mesh(file.name or file_name, boundaries, centers, cell_ids), repairs=file.repairs)
    _refuse_other_areas(file, mesh.areas)
    return mesh


def _refuse_other_areas(file: _Cells, areas: FloatArray) -> None:
    stored = file.arrays.get("cell_area", areas)
    total, sphere = stored.sum(), areas.sum()
    if abs(total - sphere) > STORED_AREA * sphere:
        raise ValueError(f"cell_area sums to {total:.9g}, wanted {sphere:.9g}, the area of the sphere")
    bad = np.abs(stored - areas) > STORED_AREA * areas.max()
    wanted = f"the area of the cell ({bad.sum()} such cells)"
    inputs.refuse(bad, lambda at: f"cell_area[{at}] is {stored[at]:.9g}, wanted {areas[at]:.9g}, {wanted}")
