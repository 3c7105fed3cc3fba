"""Who is next to whom: neighbourhoods of cells, faces of cells, and the weights of least-squares slopes.

Data in: a mesh. Data out: `Stencil`, arrays in compressed rows, computed once per mesh. The slope of cell i is
g_i = sum_j w_ij (u_j - u_i) over the cells j that share a vertex with it; w solves the least-squares problem
min sum_j |x_j - x_i|^-2 (u_j - u_i - <g, log_{x_i} x_j>)^2 in the tangent plane of the centroid x_i.
"""

from dataclasses import dataclass

import numpy as np
from scipy.sparse import csr_array

from meanfield_pde.mesh.record import SphereMesh
from meanfield_pde.sphere import FloatArray, IntArray, dot, log_map


@dataclass(frozen=True, eq=False)
class Stencil:
    """neighbour_offsets (n_cells + 1,), neighbours (nnz,), slope_weights (nnz, d); face_offsets (n_cells + 1,), faces (nnz_f,) and
    sides (nnz_f,): 0 where the cell is left of the face, 1 where it is right; face_arms (n_faces, 2, d): from the centroids of the left
    and the right cell to the midpoint of the face."""

    neighbour_offsets: IntArray
    neighbours: IntArray
    slope_weights: FloatArray
    face_offsets: IntArray
    faces: IntArray
    sides: IntArray
    face_arms: FloatArray


def stencil(mesh: SphereMesh) -> Stencil:
    """The stencil of a mesh."""
    offsets, neighbours = _vertex_neighbours(mesh)
    cell = np.repeat(np.arange(mesh.n_cells), np.diff(offsets))
    face_offsets, faces, sides = faces_of_cells(mesh)
    arms = np.stack([log_map(mesh.centroids[mesh.face_cells[:, side]], mesh.face_midpoints) for side in (0, 1)], axis=1)
    return Stencil(offsets, neighbours, _slope_weights(mesh, cell, neighbours), face_offsets, faces, sides, arms)


def faces_of_cells(mesh: SphereMesh) -> tuple[IntArray, IntArray, IntArray]:
    """Offsets (n_cells + 1,), face numbers and sides (2 n_faces,) of the faces of every cell."""
    order = np.argsort(mesh.face_cells.T.ravel(), kind="stable")
    counts = np.bincount(mesh.face_cells.ravel(), minlength=mesh.n_cells)
    return np.concatenate([[0], np.cumsum(counts)]), order % mesh.n_faces, order // mesh.n_faces


def _vertex_neighbours(mesh: SphereMesh) -> tuple[IntArray, IntArray]:
    at = csr_array((np.ones(len(mesh.cell_vertices)), mesh.cell_vertices, mesh.cell_offsets), shape=(mesh.n_cells, len(mesh.vertices)))
    shared = (at @ at.T).tocsr()
    shared.setdiag(0)
    shared.eliminate_zeros()
    shared.sort_indices()
    return shared.indptr.astype(np.int64), shared.indices.astype(np.int64)


def _slope_weights(mesh: SphereMesh, cell: IntArray, neighbours: IntArray) -> FloatArray:
    arms = log_map(mesh.centroids[cell], mesh.centroids[neighbours])
    weight = 1 / dot(arms, arms)
    matrices = np.zeros((mesh.n_cells, mesh.dimension, mesh.dimension))
    np.add.at(matrices, cell, weight[:, None, None] * arms[:, :, None] * arms[:, None, :])
    return weight[:, None] * np.einsum("nij,nj->ni", np.linalg.pinv(matrices, rcond=1e-10, hermitian=True)[cell], arms)
