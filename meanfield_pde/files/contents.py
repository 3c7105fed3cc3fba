"""What a file of cells holds, before anything is judged: points of space, cells of VTK's types, and the arrays a mesh is made of.

Data in: arrays of one of the readers. Data out: the same. Source of the type numbers: vtkCellType.h.
"""

from dataclasses import dataclass

import numpy as np

from meanfield_pde import inputs
from meanfield_pde.sphere import FloatArray, IntArray

VERTICES, LINE, POLY_LINE, TRIANGLE, STRIP, POLYGON, QUAD = (1, 2), 3, 4, 5, 6, 7, 9
"""VTK's numbers of cell types."""

CELL_ARRAYS = {"center": 3, "cell_area": 1}
"""Cell arrays that a mesh is made of, and their columns."""


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
