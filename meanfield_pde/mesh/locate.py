"""Which cell holds a point: walk from the nearest centroid across the face that the point lies farthest beyond.

Data in: a mesh of convex cells, points (m, d). Data out: cell numbers (m,).
"""

import numpy as np
from scipy.spatial import cKDTree

from meanfield_pde.mesh.record import SphereMesh
from meanfield_pde.sphere import FloatArray, IntArray

MOST_STEPS = 1000
ON_FACE = 1e-14


def cell_of(mesh: SphereMesh, points: FloatArray) -> IntArray:
    """Cell numbers (m,) of points on the sphere; a point on a face belongs to one of its cells.

    Raises RuntimeError if a walk never ends.
    """
    faces, signs, neighbours = _outward_faces(mesh)
    cells = np.array(cKDTree(mesh.centroids).query(points)[1], dtype=np.int64)
    moving = np.arange(len(points))
    for _ in range(MOST_STEPS):
        at = cells[moving]
        normals = mesh.face_normals[faces[at]] * signs[at][..., None]
        beyond = np.einsum("mkd,md->mk", normals, points[moving])
        beyond[signs[at] == 0] = -np.inf
        worst = beyond.argmax(axis=1)
        outside = np.take_along_axis(beyond, worst[:, None], axis=1)[:, 0] > ON_FACE
        moving, worst = moving[outside], worst[outside]
        if not len(moving):
            return cells
        cells[moving] = neighbours[cells[moving], worst]
    raise RuntimeError(f"no cell found for point {points[moving[0]].tolist()}, wanted a mesh of convex cells")


def _outward_faces(mesh: SphereMesh) -> tuple[IntArray, FloatArray, IntArray]:
    """Per cell, padded to the largest number of faces: face numbers, +-1 so that normals point outward (0 = padding), cells across."""
    side = np.concatenate([mesh.face_cells[:, 0], mesh.face_cells[:, 1]])
    across = np.concatenate([mesh.face_cells[:, 1], mesh.face_cells[:, 0]])
    face = np.tile(np.arange(mesh.n_faces), 2)
    sign = np.repeat([1.0, -1.0], mesh.n_faces)
    order = np.argsort(side, kind="stable")
    counts = np.bincount(side, minlength=mesh.n_cells)
    slot = np.arange(len(side)) - np.repeat(np.cumsum(counts) - counts, counts)
    shape = (mesh.n_cells, int(counts.max()))
    faces, signs, neighbours = np.zeros(shape, dtype=np.int64), np.zeros(shape), np.zeros(shape, dtype=np.int64)
    at = (side[order], slot)
    faces[at], signs[at], neighbours[at] = face[order], sign[order], across[order]
    return faces, signs, neighbours
