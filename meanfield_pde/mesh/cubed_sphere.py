"""Equiangular cubed sphere (Ronchi, Iacono, Paolucci, J. Comput. Phys. 124, 1996): 6 n^2 quadrilaterals, skew near the corners."""

import numpy as np

from meanfield_pde import inputs
from meanfield_pde.mesh.polygons import polygon_mesh
from meanfield_pde.mesh.record import SphereMesh
from meanfield_pde.sphere import normalise

MOST_TO_A_SIDE = 1000


def cubed_sphere(n: int) -> SphereMesh:
    """Mesh of S^2 with 6 n^2 cells, n to a side of the cube, 2 to 1000; centers are the centroids."""
    n = inputs.integer("n", n, low=2, most=MOST_TO_A_SIDE)
    i, j = (index.ravel() for index in np.meshgrid(np.arange(n), np.arange(n), indexing="ij"))
    square = np.stack([np.stack([i + a, j + b], axis=1) for a, b in ((0, 0), (1, 0), (1, 1), (0, 1))], axis=1)
    quads = []
    for axis in range(3):
        for side in (0, n):
            fixed = np.full(square.shape[:2], side)
            lattice = np.stack([fixed, square[..., 0], square[..., 1]], axis=2)
            outward = lattice if side else lattice[:, ::-1]
            quads.append(np.roll(outward, axis, axis=2))
    corners = np.concatenate(quads)
    unique, cell_vertices = np.unique(corners.reshape(-1, 3), axis=0, return_inverse=True)
    vertices = normalise(np.tan(np.pi / 4 * (2 * unique / n - 1)))
    return polygon_mesh(f"cubed_sphere({n})", vertices, np.arange(6 * n * n + 1) * 4, cell_vertices.ravel().astype(np.int64))
