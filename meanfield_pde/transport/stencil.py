"""Who is next to whom: neighbourhoods of cells, sides of faces, and the weights of least-squares slopes.

Data in: a mesh. Data out: `Stencil`, arrays in compressed rows, computed once per mesh. A face has two sides, one in each of its cells;
sides are numbered cell by cell, so that loops over cells run through memory. The slope of cell i is g_i = sum_j w_ij (u_j - u_i) over the
cells j that share a vertex with it; w solves the least-squares problem min sum_j |a_ij|^-2 (u_j - u_i - <g, a_ij>)^2, a_ij = log_{x_i} x_j,
in the tangent plane of the centroid x_i, with components in `tangent_frames`.
"""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import csr_array

from meanfield_pde.mesh.record import SphereMesh
from meanfield_pde.sphere import FloatArray, IntArray, dot, log_map, tangent_frames

Numbers = NDArray[np.uint32]
"""Unsigned: compiled loops then need not look out for negative indices, and are a quarter faster."""


@dataclass(frozen=True, eq=False)
class Stencil:
    """Neighbours of cell i: neighbours[neighbour_offsets[i]:neighbour_offsets[i + 1]], with slope_weights (nnz, 2) in the frame of i.

    Sides of cell i: side_offsets[i] to side_offsets[i + 1], with side_faces (2 n_faces,) and arms (2 n_faces, 2), from the centroid to the
    midpoint of the face in the frame of the cell. face_sides, face_cells: (n_faces, 2), the left and the right side and cell of each
    face. conductances: (n_faces,), length over distance: what a potential difference is multiplied by to give the flow of area through
    the face.
    """

    neighbour_offsets: Numbers
    neighbours: Numbers
    slope_weights: FloatArray
    side_offsets: Numbers
    side_faces: Numbers
    arms: FloatArray
    face_sides: Numbers
    face_cells: Numbers
    conductances: FloatArray


def stencil(mesh: SphereMesh) -> Stencil:
    """The stencil of a mesh."""
    frames = tangent_frames(mesh.centroids)
    offsets, neighbours = _vertex_neighbours(mesh)
    weights = _slope_weights(mesh, frames, np.repeat(np.arange(mesh.n_cells), np.diff(offsets)), neighbours)
    order = np.argsort(mesh.face_cells.T.ravel(), kind="stable")
    faces, side = order % mesh.n_faces, order // mesh.n_faces
    cells = mesh.face_cells[faces, side]
    face_sides = np.empty((mesh.n_faces, 2), dtype=np.uint32)
    face_sides[faces, side] = np.arange(len(faces))
    side_offsets = np.concatenate([[0], np.cumsum(np.bincount(cells, minlength=mesh.n_cells))])
    return Stencil(
        neighbour_offsets=offsets.astype(np.uint32),
        neighbours=neighbours.astype(np.uint32),
        slope_weights=weights,
        side_offsets=side_offsets.astype(np.uint32),
        side_faces=faces.astype(np.uint32),
        arms=_in_frames(frames, cells, log_map(mesh.centroids[cells], mesh.face_midpoints[faces])),
        face_sides=face_sides,
        face_cells=mesh.face_cells.astype(np.uint32),
        conductances=mesh.face_lengths / mesh.face_distances,
    )


def _vertex_neighbours(mesh: SphereMesh) -> tuple[IntArray, IntArray]:
    at = csr_array((np.ones(len(mesh.cell_vertices)), mesh.cell_vertices, mesh.cell_offsets), shape=(mesh.n_cells, len(mesh.vertices)))
    shared = (at @ at.T).tocsr()
    shared.setdiag(0)
    shared.eliminate_zeros()
    shared.sort_indices()
    return shared.indptr.astype(np.int64), shared.indices.astype(np.int64)


def _slope_weights(mesh: SphereMesh, frames: FloatArray, cell: IntArray, neighbours: IntArray) -> FloatArray:
    arms = _in_frames(frames, cell, log_map(mesh.centroids[cell], mesh.centroids[neighbours]))
    weight = 1 / dot(arms, arms)
    starts = np.flatnonzero(np.diff(cell, prepend=-1))
    matrices = np.add.reduceat(weight[:, None, None] * arms[:, :, None] * arms[:, None, :], starts, axis=0)
    inverses = np.linalg.pinv(matrices, rcond=1e-10, hermitian=True)
    return weight[:, None] * np.einsum("nij,nj->ni", inverses[cell], arms)


def _in_frames(frames: FloatArray, cell: IntArray, vectors: FloatArray) -> FloatArray:
    return np.stack([dot(frames[k][cell], vectors) for k in (0, 1)], axis=1)
