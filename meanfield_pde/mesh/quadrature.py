"""Integrals over spherical cells: basix rules on flat simplices, lifted to the sphere.

A cell is a fan of simplices about its centroid: arcs (S^1) or triangles (S^2) with corners a_0, .., a_{d-1}. A point x of the flat
simplex goes to x/|x|, and the surface element is |det(a_0, .., a_{d-1})| / |x|^d times the reference element. Simplices on which the
rule and the rule two degrees lower disagree are cut, and their neighbours with them, so that laws narrower than a cell are integrated too.

Data in: a mesh and a function of points (m, d) -> (m,). Data out: integrals (n_cells,).
"""

from collections.abc import Callable
from functools import cache

import numpy as np
from numpy.typing import NDArray
from scipy.spatial import cKDTree

from meanfield_pde import inputs
from meanfield_pde.mesh.polygons import polygon_edges
from meanfield_pde.mesh.record import SphereMesh
from meanfield_pde.records import frozen
from meanfield_pde.sphere import FloatArray, IntArray, distance, normalise

CHUNK = 1 << 14
CUT_TOLERANCE = 1e-9
"""A simplex is cut when its error estimate exceeds this share of the integral of |f|."""
DEEPEST_CUT = 12
EXTENT_DEGREE = 6


def cell_integrals(mesh: SphereMesh, function: Callable[[FloatArray], FloatArray], degree: int) -> FloatArray:
    """Integrals of `function` over the cells (n_cells,), by rules exact for polynomials of `degree` (2 to 30) on flat simplices.

    Raises ValueError if the degree is out of range or the function returns a wrong shape or a number that is not finite.
    """
    degree = inputs.integer("degree", degree, low=2, high=30)
    corners, owner = cell_simplices(mesh)
    integrals = np.zeros(mesh.n_cells)
    scale = 0.0
    for depth in range(DEEPEST_CUT + 1):
        fine, coarse = (_simplex_integrals(corners, function, rule) for rule in (degree, degree - 2))
        scale = max(scale, float(np.abs(fine).sum()))
        cut = np.abs(fine - coarse) > CUT_TOLERANCE * scale if depth < DEEPEST_CUT else np.zeros(len(fine), dtype=bool)
        cut = _with_neighbours(corners, cut)
        integrals += np.bincount(owner[~cut], weights=fine[~cut], minlength=mesh.n_cells)
        if not cut.any():
            break
        corners, owner = halved(corners[cut]), np.repeat(owner[cut], 2 ** (mesh.dimension - 1))
    return integrals


def cell_extents(mesh: SphereMesh) -> FloatArray:
    """The mean distance of the points of each cell from its centre (n_cells,), radians: what mass that sits there is off in W1."""
    corners, owner = cell_simplices(mesh)
    points, weights = lifted_rule(corners, EXTENT_DEGREE)
    away = np.einsum("nq,nq->n", weights, distance(points, mesh.centers[owner][:, None]))
    return frozen(np.bincount(owner, weights=away, minlength=mesh.n_cells) / mesh.areas)


def cell_simplices(mesh: SphereMesh) -> tuple[FloatArray, IntArray]:
    """Corners (n_simplices, d, d) of the fans that fill the cells, and the cell of each."""
    start, end = polygon_edges(mesh.cell_offsets, mesh.cell_vertices)
    owner = np.repeat(np.arange(mesh.n_cells), np.diff(mesh.cell_offsets))
    apex = mesh.centroids[owner]
    if mesh.dimension == 3:
        return np.stack([apex, mesh.vertices[start], mesh.vertices[end]], axis=1), owner
    first = np.arange(len(owner)) % 2 == 0
    arcs = np.where(first[:, None, None], np.stack([mesh.vertices[start], apex], axis=1), np.stack([apex, mesh.vertices[start]], axis=1))
    return arcs, owner


def lifted_rule(corners: FloatArray, degree: int) -> tuple[FloatArray, FloatArray]:
    """Points (n_simplices, q, d) on the sphere and weights (n_simplices, q) that include the surface element."""
    barycentric, reference = _reference_rule(corners.shape[1] - 1, degree)
    flat = np.einsum("qk,nkd->nqd", barycentric, corners)
    length = np.linalg.norm(flat, axis=2)
    edges = corners[:, 1:] - corners[:, :1]
    volume = np.abs(np.linalg.det(np.concatenate([corners[:, :1], edges], axis=1)))
    return flat / length[..., None], reference * volume[:, None] / length ** corners.shape[2]


@cache
def _reference_rule(dimension: int, degree: int) -> tuple[FloatArray, FloatArray]:
    import basix  # a tenth of the package's own share of its import

    cell = basix.CellType.interval if dimension == 1 else basix.CellType.triangle
    points, weights = (np.asarray(part) for part in basix.make_quadrature(cell, degree))
    return np.concatenate([1 - points.sum(axis=1, keepdims=True), points], axis=1), weights


def _simplex_integrals(corners: FloatArray, function: Callable[[FloatArray], FloatArray], degree: int) -> FloatArray:
    integrals = np.empty(len(corners))
    for first in range(0, len(corners), CHUNK):
        points, weights = lifted_rule(corners[first : first + CHUNK], degree)
        flat = points.reshape(-1, points.shape[2])
        values = inputs.array("law(points)", function(flat), (len(flat),)).reshape(weights.shape)
        integrals[first : first + CHUNK] = np.einsum("nq,nq->n", weights, values)
    return integrals


def _with_neighbours(corners: FloatArray, cut: NDArray[np.bool_]) -> NDArray[np.bool_]:
    """Simplices to cut and their neighbours, in which the rules may have missed a peak that lies on the common edge."""
    if not cut.any() or cut.all():
        return cut
    middles = corners.mean(axis=1)
    radii = np.linalg.norm(corners - middles[:, None], axis=2).max(axis=1)
    distances, nearest = cKDTree(middles[cut]).query(middles)
    return np.asarray(distances <= radii + radii[cut][nearest])


def halved(corners: FloatArray) -> FloatArray:
    """Every simplex cut at the midpoints of its edges: 2 arcs or 4 triangles each, next to one another."""
    d = corners.shape[1]
    if d == 2:
        a, b = corners[:, 0], corners[:, 1]
        middle = normalise(a + b)
        children = [[a, middle], [middle, b]]
    else:
        a, b, c = corners[:, 0], corners[:, 1], corners[:, 2]
        ab, bc, ca = normalise(a + b), normalise(b + c), normalise(c + a)
        children = [[a, ab, ca], [b, bc, ab], [c, ca, bc], [ab, bc, ca]]
    return np.stack([np.stack(child, axis=1) for child in children], axis=1).reshape(-1, d, d)
