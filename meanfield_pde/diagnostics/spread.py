"""Shares of close pairs of a density whose mass is spread evenly in each cell: between centres, cells wider than the angle hold none.

On S^1 the share is exact, from two antiderivatives of the density. On S^2 points stand for a cell, finer than the angle, and how many of
two cells' points are close is summed once for a mesh; the error is how far half as many to a side are off (nan where only centres stand for
so many cells).

Data in: an output of a density's run. Data out: the share and its error.
"""

from dataclasses import dataclass
from functools import partial

import numpy as np
from scipy.sparse import csr_array
from scipy.spatial import cKDTree

from meanfield_pde import inputs
from meanfield_pde.diagnostics.measures import close_pairs
from meanfield_pde.measure import Measure
from meanfield_pde.mesh.quadrature import cell_simplices, halved, lifted_rule
from meanfield_pde.mesh.record import SphereMesh
from meanfield_pde.records import remembered
from meanfield_pde.solution import Solution
from meanfield_pde.sphere import FloatArray, IntArray, surface_area

RULE_DEGREE, RULE_POINTS = 2, 3
"""Of the rule on a triangle, and how many points it has."""
POINTS_AN_ANGLE = 3
MOST_POINTS, MOST_PAIRS = 300_000, 1e8
ROWS = 4096


def close_pairs_in_cells(solution: Solution, output: int, cosine: float) -> tuple[float, float]:
    """P(<x, y> >= cosine) for two independent draws of a density at an output, atoms among its mass, and an estimate of its error.

    cosine: in [-1, 1), dimensionless. Raises ValueError for a bad cosine, or tokens, which have no cells.
    """
    inputs.instance("solution", solution, Solution)
    cosine = inputs.number("cosine", cosine, low=-1, high=1)
    if solution.system.mesh is None:
        raise ValueError("solution is a run of tokens, wanted a density: only cells have mass to spread")
    mesh, cells, atoms, angle = solution.mesh, solution.masses[output], solution.atoms(output), float(np.arccos(cosine))
    share = _share_on_circle if mesh.dimension == 2 else _share_on_sphere
    met, error = share(mesh, cells, atoms, angle)
    if len(atoms):
        met += close_pairs(atoms, cosine) * atoms.total**2
    total = solution.measure(output).total
    return met / total**2, error / total**2


def _share_on_circle(mesh: SphereMesh, cells: FloatArray, atoms: Measure, angle: float) -> tuple[float, float]:
    """The sum of m_i m_j over pairs with an arc among them."""
    first = mesh.vertices[mesh.cell_vertices[mesh.cell_offsets[:-1]]]
    left = np.arctan2(first[:, 1], first[:, 0])
    order = np.argsort(left)
    left, lengths, masses = left[order], mesh.areas[order], cells[order]
    density = masses / lengths
    turns = 2 * np.pi * np.array([-1, 0, 1])[:, None]
    edges, heights = (left + turns).ravel(), np.tile(density, 3)
    below = np.concatenate([[0.0], np.cumsum(np.tile(masses, 3))[:-1]])
    areas = np.tile(lengths * masses / 2, 3) + below * np.tile(lengths, 3)
    sums = np.concatenate([[0.0], np.cumsum(areas)[:-1]])

    def mass(at: FloatArray) -> FloatArray:
        k = np.searchsorted(edges, at, side="right") - 1
        return np.asarray(below[k] + heights[k] * (at - edges[k]))

    def integral(at: FloatArray) -> FloatArray:
        k = np.searchsorted(edges, at, side="right") - 1
        return np.asarray(sums[k] + (at - edges[k]) * (below[k] + heights[k] / 2 * (at - edges[k])))

    right = left + lengths
    near = integral(right + angle) - integral(left + angle) - integral(right - angle) + integral(left - angle)
    places = np.arctan2(atoms.points[:, 1], atoms.points[:, 0])
    return float(density @ near + 2 * atoms.masses @ (mass(places + angle) - mass(places - angle))), 0.0


@dataclass(frozen=True)
class _Points:
    """Points for the cells: tree of them, the cell of each (n_points,), its share of that cell's mass (n_points,), and near (n_cells,
    n_cells): P(x and y are close), x drawn in one cell and y in another."""

    tree: cKDTree
    owner: IntArray
    weights: FloatArray
    near: csr_array


def _share_on_sphere(mesh: SphereMesh, cells: FloatArray, atoms: Measure, angle: float) -> tuple[float, float]:
    points = remembered(f"points within {angle!r}", mesh.vertices, partial(_fine_and_coarse, mesh, angle))
    fine, *coarser = (_sum_over_pairs(one, cells, atoms, angle) for one in points)
    return fine, abs(fine - coarser[0]) if coarser else np.nan


def _sum_over_pairs(points: _Points, cells: FloatArray, atoms: Measure, angle: float) -> float:
    total = float(cells @ (points.near @ cells))
    for place, mass in zip(atoms.points, atoms.masses, strict=True):
        close = points.tree.query_ball_point(place, _chord(angle))
        total += 2 * float(mass) * float(points.weights[close] @ cells[points.owner[close]])
    return total


def _fine_and_coarse(mesh: SphereMesh, angle: float) -> list[_Points]:
    """The points that are fine enough, or as many as `MOST_PAIRS` allows, and the ones before them, if there are any."""
    most = np.sqrt(MOST_PAIRS / (1 - np.cos(angle)) * 2) if angle else np.inf
    wanted = min(most, surface_area(3) * (POINTS_AN_ANGLE / angle) ** 2) if angle else 0.0
    corners, owner = cell_simplices(mesh)
    steps = [(mesh.centers, np.arange(mesh.n_cells), np.ones(mesh.n_cells))]
    while (len(steps) == 1 or len(steps[-1][1]) < wanted) and (following := RULE_POINTS * len(owner)) <= most and following <= MOST_POINTS:
        points, weights = lifted_rule(corners, RULE_DEGREE)
        steps.append((points.reshape(-1, 3), np.repeat(owner, RULE_POINTS), weights.ravel()))
        corners, owner = halved(corners), np.repeat(owner, 4)
    return [_points(mesh, *step, angle) for step in steps[:-3:-1]]


def _points(mesh: SphereMesh, points: FloatArray, owner: IntArray, weights: FloatArray, angle: float) -> _Points:
    shares = weights / np.bincount(owner, weights=weights, minlength=mesh.n_cells)[owner]
    tree, near = cKDTree(points), csr_array((mesh.n_cells, mesh.n_cells))
    for first in range(0, len(points), ROWS):
        pairs = cKDTree(points[first : first + ROWS]).sparse_distance_matrix(tree, _chord(angle), output_type="ndarray")
        i, j = pairs["i"] + first, pairs["j"]
        near = near + csr_array((shares[i] * shares[j], (owner[i], owner[j])), shape=near.shape)
    return _Points(tree, owner, shares, near)


def _chord(angle: float) -> float:
    return 2 * float(np.sin(angle / 2))
