"""A density on S^2 on a latitude-longitude grid, by conservative resampling; and its values at points.

    f_b = 1/area(b) sum_c rho_c area(c ∩ b),   b: a box between two parallels and two meridians, c: a cell

The fans that fill the cells are cut at the midpoints of their edges, where they lie across boxes, until they are small against a box;
each piece brings its exact area to the box of its centroid. Mass is split and never made: sum_b f_b area(b) = sum_c rho_c area(c), and
no box is negative if no cell is.

Data in: a mesh and cell averages (n_cells,), 1/area. Data out: box averages (n_lat, n_lon) or values (m,), 1/area.
"""

import numpy as np
from numpy.typing import ArrayLike, NDArray

from meanfield_pde import inputs
from meanfield_pde.mesh.locate import cell_of
from meanfield_pde.mesh.quadrature import cell_simplices, halved
from meanfield_pde.mesh.record import SphereMesh
from meanfield_pde.sphere import FloatArray, IntArray, dot, spherical_angles, triangle_area

PIECE = 1 / 8
"""Pieces that lie across boxes are cut until they are no longer than this share of the width of a box."""
CHUNK = 1 << 15
"""Pieces cut at once."""


def lat_long(mesh: SphereMesh, averages: ArrayLike, n_lat: int = 90, n_lon: int = 180) -> FloatArray:
    """Averages (n_lat, n_lon) over boxes of equal angles, rows from south to north, columns eastward from longitude 0 (the x axis).

    averages: (n_cells,), 1/area, the density with respect to surface measure. The integral is kept to rounding; values at the middles of
    the boxes (`density_at`) do not keep it.

    Error: mass within 1/8 of a box's width of its edge may be counted in the next box. Of the averages of the uniform density that is
    at most 1 % in the mean and 7 % anywhere (measured, 9 x 18 to 360 x 720 boxes).
    Memory is bounded; time grows like n_lat * n_lon (2 s for 90 x 180).
    Raises ValueError if the mesh is of S^1, a shape does not fit or a number is not finite.
    """
    inputs.instance("mesh", mesh, SphereMesh)
    if mesh.dimension != 3:
        raise ValueError(f"mesh lies in R^{mesh.dimension}, wanted R^3: latitude and longitude are of the sphere")
    density = inputs.array("averages", averages, (mesh.n_cells,))
    n_lat, n_lon = inputs.integer("n_lat", n_lat, low=1), inputs.integer("n_lon", n_lon, low=1)
    masses = _box_masses(mesh, density * mesh.areas, n_lat, n_lon)
    return masses / box_areas(n_lat, n_lon)[:, None]


def density_at(mesh: SphereMesh, averages: ArrayLike, points: ArrayLike) -> FloatArray:
    """Values (m,) at points (m, d): each the average of the cell that holds the point, of one of its cells where it lies on a face.

    This samples and conserves nothing: values on a grid times the areas of its boxes do not sum to the mass; `lat_long` does.
    Raises ValueError if a shape does not fit, a number is not finite or a point is off the sphere.
    """
    inputs.instance("mesh", mesh, SphereMesh)
    density = inputs.array("averages", averages, (mesh.n_cells,))
    return density[cell_of(mesh, inputs.points("points", points, mesh.dimension, "m"))]


def box_areas(n_lat: int, n_lon: int) -> FloatArray:
    """The area of one box in each row (n_lat,), from south to north; all sum to 4 pi."""
    middles = np.pi * ((np.arange(n_lat) + 0.5) / n_lat - 0.5)
    return np.asarray(4 * np.pi / n_lon * np.sin(np.pi / (2 * n_lat)) * np.cos(middles))


def _box_masses(mesh: SphereMesh, masses: FloatArray, n_lat: int, n_lon: int) -> FloatArray:
    corners, owner = cell_simplices(mesh)
    held = np.zeros(n_lat * n_lon)
    pending = [(corners, _split(masses, corners, owner))]
    while pending:
        corners, share = pending.pop()
        if len(corners) > CHUNK:
            pending += [(corners[CHUNK:], share[CHUNK:])]
            corners, share = corners[:CHUNK], share[:CHUNK]
        box, small = _boxes(corners, n_lat, n_lon)
        held += np.bincount(box[small], weights=share[small], minlength=len(held))
        parts = halved(corners[~small])
        if len(parts):
            pending.append((parts, _split(share[~small], parts, np.arange(len(parts)) // 4)))
    return held.reshape(n_lat, n_lon)


def _split(masses: FloatArray, parts: FloatArray, whole: IntArray) -> FloatArray:
    """Masses of the parts: the mass of each whole, split in proportion to the areas of its parts."""
    areas = triangle_area(parts[:, 0], parts[:, 1], parts[:, 2])
    return areas * (masses / np.bincount(whole, weights=areas, minlength=len(masses)))[whole]


def _boxes(corners: FloatArray, n_lat: int, n_lon: int) -> tuple[IntArray, NDArray[np.bool_]]:
    """The box of each triangle's centroid, and whether the triangle is small: within one box, or a `PIECE` of it."""
    a, b, c = corners[:, 0], corners[:, 1], corners[:, 2]
    angles = np.stack([spherical_angles(x) for x in (a, b, c, a + b + c)])
    row = np.minimum(((np.pi - angles[..., 0]) * (n_lat / np.pi)).astype(np.int64), n_lat - 1)
    box = row * n_lon + (angles[..., 1] * (n_lon / (2 * np.pi))).astype(np.int64) % n_lon
    height = np.pi / n_lat
    width = np.minimum(height, 2 * np.pi / n_lon * np.maximum(np.sin(angles[3, :, 0]), np.sin(height / 2)))
    length = np.sqrt(np.maximum(np.maximum(dot(a - b, a - b), dot(b - c, b - c)), dot(c - a, c - a)))
    inside = (box[0] == box[3]) & (box[1] == box[3]) & (box[2] == box[3])
    return box[3], length <= width * np.where(inside, 1.0, PIECE)
