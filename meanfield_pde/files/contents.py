"""What a file of cells holds: points of space, cells of VTK's types, and the arrays a mesh is made of; and two readers of such files.

Data in: the bytes of a .stl (binary or text) or .obj file. Data out: `Contents`, not checked as a mesh, or ValueError with one sentence.
A .stl file is a list of triangles, each with its own corners: equal ones are made one point here. Of a .obj file the points (v), faces (f),
lines (l) and single points (p) are read; texture, normals and groups are not.
Sources: vtkCellType.h (type numbers); M. Burns, Automated Fabrication, section 6.5 (1993); Wavefront, Advanced Visualizer manual, app. B1.
"""

import re
from dataclasses import dataclass
from itertools import accumulate

import numpy as np

from meanfield_pde import inputs
from meanfield_pde.sphere import FloatArray, IntArray

VERTICES, LINE, POLY_LINE, TRIANGLE, STRIP, POLYGON, QUAD = (1, 2), 3, 4, 5, 6, 7, 9
"""VTK's numbers of cell types."""

CELL_ARRAYS = {"center": 3, "cell_area": 1}
"""Cell arrays that a mesh is made of, and their columns."""
STL_HEADER = 84
STL_FACET = np.dtype([("numbers", "<f4", (4, 3)), ("attributes", "<u2")])
"""A triangle: its normal, three corners and two unused bytes."""
STL_VERTEX = re.compile(r"\bvertex\s+(\S+)\s+(\S+)\s+(\S+)")


@dataclass(frozen=True)
class Contents:
    """points: (n_points, 3). types: (n,). offsets: (n + 1,), and cell_vertices: the corners of cell i are
    cell_vertices[offsets[i]:offsets[i + 1]], point numbers as the file gives them. arrays: those of CELL_ARRAYS that the file has,
    (n,) or (n, 3). name: of the mesh, None if the file has none."""

    points: FloatArray
    types: IntArray
    offsets: IntArray
    cell_vertices: IntArray
    arrays: dict[str, FloatArray]
    name: str | None = None


def refuse_strange_corners(contents: Contents, where: str = "") -> None:
    """ValueError naming the first corner of a cell that is no point."""
    corners, n = contents.cell_vertices, len(contents.points)

    def problem(at: int) -> str:
        cell = int(np.searchsorted(contents.offsets, at, side="right")) - 1
        return f"{where}cell {cell} refers to point {corners[at]}, wanted a number in [0, {n - 1}]"

    inputs.refuse((corners < 0) | (corners >= n), problem)


def read_stl(content: bytes) -> Contents:
    """The triangles of a .stl file. Raises ValueError if it is neither a whole binary nor a whole text file."""
    facets = int.from_bytes(content[STL_HEADER - 4 : STL_HEADER], "little")
    size = STL_HEADER + facets * STL_FACET.itemsize
    if len(content) >= size and not content[size:].strip(b"\r\n"):  # some writers end it like a line
        with np.errstate(invalid="ignore"):  # numpy warns of signalling NaNs, which are refused later
            corners = np.frombuffer(content, STL_FACET, facets, STL_HEADER)["numbers"][:, 1:].astype(np.float64).reshape(-1, 3)
    else:
        corners = _text_corners(content)
    points, numbers = np.unique(corners, axis=0, return_inverse=True)
    n = len(corners) // 3
    return Contents(points, np.full(n, TRIANGLE), np.arange(n + 1) * 3, numbers.ravel().astype(np.int64), {})


def _text_corners(content: bytes) -> FloatArray:
    lines = inputs.decoded(content, "replace").lower().strip().splitlines() or [""]
    if not (lines[0].startswith("solid") and lines[-1].strip().startswith("endsolid")):
        raise ValueError("it is truncated or no STL, wanted 84 + 50 n bytes, or text from solid to endsolid")
    body = "\n".join(lines[1:-1])
    facets, vertices = body.split().count("endfacet"), STL_VERTEX.findall(body)
    if len(vertices) != 3 * facets:
        raise ValueError(f"it has {len(vertices)} vertices in {facets} facets, wanted three in each")
    try:
        return np.array([[float(number) for number in vertex] for vertex in vertices], dtype=np.float64).reshape(-1, 3)
    except ValueError as error:
        raise ValueError(f"a vertex is no three numbers ({str(error)[:80]})") from None


def read_obj(content: bytes) -> Contents:
    """The points, faces and lines of a .obj file. Raises ValueError naming the first line that is wrong."""
    points: list[list[float]] = []
    cells: list[list[int]] = []
    types: list[int] = []
    begun = ""
    for number, line in enumerate(inputs.decoded(content, "replace").splitlines(), start=1):
        if line.endswith("\\"):
            begun += line[:-1] + " "
            continue
        key, *words = (begun + line).split("#")[0].split() or [""]
        begun = ""
        if key not in ("v", "f", "l", "p"):
            continue
        try:
            if key == "v":
                points.append([float(word) for word in (*words[:3], *["missing"] * (3 - len(words)))])
            else:
                cells.append([_corner(word, len(points)) for word in words])
                types.append(_type(key, len(words)))
        except ValueError:
            raise ValueError(f"line {number} is {inputs.shown(line)}, wanted three coordinates or the numbers of points") from None
    return Contents(
        points=np.array(points, dtype=np.float64).reshape(-1, 3),
        types=np.array(types, dtype=np.int64),
        offsets=np.array([0, *accumulate(len(cell) for cell in cells)], dtype=np.int64),
        cell_vertices=np.array([corner for cell in cells for corner in cell], dtype=np.int64),
        arrays={},
    )


def _corner(word: str, n_points: int) -> int:
    """Points are counted from 1, or from -1 backwards from the last one so far."""
    number = int(word.split("/")[0])
    if number == 0 or number < -n_points or number > np.iinfo(np.int32).max:
        raise ValueError(word)
    return number - 1 if number > 0 else n_points + number


def _type(key: str, size: int) -> int:
    if key == "l":
        return LINE if size == 2 else POLY_LINE
    return POLYGON if key == "f" else VERTICES[min(size, 2) - 1]
