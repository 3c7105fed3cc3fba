"""One record for meshes of S^1 and S^2: rows are vertices, cells and faces; points are unit vectors (n, d).

Data in: arrays made by the makers of this folder or read from a file. Data out: the same arrays, checked once and read-only.
Geometry that finite volumes rely on (closed surface, areas that sum to the sphere's, normals from left to right) is an
error here, before any step is taken.
"""

from dataclasses import dataclass, fields
from functools import cached_property

import numpy as np

from meanfield_pde import inputs
from meanfield_pde.records import Record, frozen
from meanfield_pde.sphere import FloatArray, IntArray, dot, surface_area

AREA_TOLERANCE = 1e-11
ORTHOGONAL_TOLERANCE = 1e-6


@dataclass(frozen=True, eq=False)
class SphereMesh(Record):
    """Cells and faces on S^{d-1}, d = 2 (arcs and their ends) or 3 (polygons and great-circle edges). All lengths are on the unit sphere.

    name: how the mesh was made. vertices: (n_vertices, d). cell_offsets: (n_cells + 1,) and cell_vertices: the vertices of cell i are
    cell_vertices[cell_offsets[i]:cell_offsets[i + 1]], counter-clockwise seen from outside. centers: (n_cells, d), where potentials
    are evaluated. centroids: (n_cells, d), the point that a cell average stands for. areas: (n_cells,).
    face_cells: (n_faces, 2), left and right. face_vertices: (n_faces, d - 1). face_lengths: (n_faces,), 1 on S^1.
    face_distances: (n_faces,), geodesic distance of the two centers. face_midpoints, face_normals: (n_faces, d), the unit tangent
    normal points from left to right. repairs: what a reader mended, one sentence each.

    Raises ValueError naming the first bad row if an array is misshapen, an area is not positive, the areas do not sum to the
    sphere's (relative 1e-11), a normal points the wrong way or the Euler characteristic is wrong.
    """

    name: str
    vertices: FloatArray
    cell_offsets: IntArray
    cell_vertices: IntArray
    centers: FloatArray
    centroids: FloatArray
    areas: FloatArray
    face_cells: IntArray
    face_vertices: IntArray
    face_lengths: FloatArray
    face_distances: FloatArray
    face_midpoints: FloatArray
    face_normals: FloatArray
    repairs: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        for field in fields(self):
            if field.name not in ("name", "repairs"):
                inputs.instance(field.name, getattr(self, field.name), np.ndarray)
                object.__setattr__(self, field.name, frozen(getattr(self, field.name)))
        self._check_cells()
        self._check_numbers()
        self._check_faces()

    def __repr__(self) -> str:
        return f"<SphereMesh {self.name}: {self.n_cells} cells, {self.n_faces} faces on S^{self.dimension - 1}, spacing {self.spacing:.4g}>"

    def _check_cells(self) -> None:
        if self.vertices.ndim != 2 or self.dimension not in (2, 3):
            raise ValueError(f"vertices has shape {self.vertices.shape}, wanted (n_vertices, 2) (circle) or (n_vertices, 3) (sphere)")
        if self.areas.ndim != 1 or self.face_cells.ndim != 2:
            shapes = f"{self.areas.shape} and {self.face_cells.shape}"
            raise ValueError(f"areas and face_cells have shapes {shapes}, wanted (n_cells,) and (n_faces, 2)")
        d, n = self.dimension, len(self.areas)
        for name, rows in (("vertices", "n_vertices"), ("centers", n), ("centroids", n)):
            inputs.unit_rows(name, inputs.array(name, getattr(self, name), (rows, d)))
        areas = inputs.array("areas", self.areas, (n,))
        _refuse_not_positive("areas", areas, "area")
        total, sphere = areas.sum(), surface_area(d)
        if abs(total - sphere) > AREA_TOLERANCE * sphere:
            raise ValueError(f"areas sum to {total:.15g}, wanted the area {sphere:.15g} of the sphere: a closed mesh covers it once")

    def _check_numbers(self) -> None:
        corners, offsets = self.cell_vertices.size, self.cell_offsets
        inputs.indices("cell_offsets", offsets, (self.n_cells + 1,), corners + 1)
        if offsets[0] != 0 or offsets[-1] != corners or (np.diff(offsets) < 2).any():
            raise ValueError(f"cell_offsets run from {offsets[0]} to {offsets[-1]}, wanted 0 to {corners} in steps of at least 2")
        inputs.indices("cell_vertices", self.cell_vertices, (corners,), len(self.vertices))
        inputs.indices("face_cells", self.face_cells, (self.n_faces, 2), self.n_cells)
        inputs.indices("face_vertices", self.face_vertices, (self.n_faces, self.dimension - 1), len(self.vertices))

    def _check_faces(self) -> None:
        d, faces = self.dimension, len(self.face_cells)
        inputs.array("face_midpoints", self.face_midpoints, (faces, d))
        inputs.array("face_normals", self.face_normals, (faces, d))
        for name, lengths in (("face_lengths", self.face_lengths), ("face_distances", self.face_distances)):
            _refuse_not_positive(name, inputs.array(name, lengths, (faces,)), "length")
        euler = len(self.vertices) - faces + self.n_cells
        if euler != (2 if d == 3 else self.n_cells):
            raise ValueError(f"vertices - faces + cells is {euler}, wanted 2: the mesh is not a sphere")
        left, right = self.face_cells.T
        backward = dot(self.face_normals, self.centroids[right] - self.centroids[left]) <= 0

        def problem(face: int) -> str:
            wanted = "two different cells" if left[face] == right[face] else "a normal from left to right"
            return f"face {face} between cells {left[face]} and {right[face]}: wanted {wanted}"

        inputs.refuse(left == right, problem)
        inputs.refuse(backward, problem)

    @property
    def dimension(self) -> int:
        """d: the mesh covers S^{d-1} in R^d."""
        return int(self.vertices.shape[1])

    @property
    def n_cells(self) -> int:
        """Number of cells."""
        return len(self.areas)

    @property
    def n_faces(self) -> int:
        """Number of faces: edges on S^2, points on S^1."""
        return len(self.face_cells)

    @property
    def spacing(self) -> float:
        """h: (area of the sphere / number of cells)^{1/(d-1)}."""
        return float((surface_area(self.dimension) / self.n_cells) ** (1 / (self.dimension - 1)))

    @property
    def area_ratio(self) -> float:
        """Largest over smallest cell area."""
        return float(self.areas.max() / self.areas.min())

    @cached_property
    def is_orthogonal(self) -> bool:
        """Whether every face is perpendicular to the line of its two centers, so that a two-point difference is a normal derivative."""
        if self.dimension == 2:
            return True
        left, right = (self.centers[cells] for cells in self.face_cells.T)
        pole = np.cross(left, right - left)
        skew = np.abs(dot(pole, self.face_normals)) / np.linalg.norm(pole, axis=1)
        return bool((skew * self.face_lengths <= ORTHOGONAL_TOLERANCE * self.face_distances).all())


def _refuse_not_positive(name: str, values: FloatArray, what: str) -> None:
    inputs.refuse(values <= 0, lambda row: f"{name}[{row}] is {values[row]:g}, wanted a positive {what}")
