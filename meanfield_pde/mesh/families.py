"""Families of meshes: equal arcs of S^1, the icosahedral meshes and the cubed sphere of S^2.

Icosahedral meshes have edges halved `level` times, as triangles or as their centroidal Voronoi dual (hexagons and 12 pentagons); Lloyd
steps keep the Delaunay triangulation here. The cubed sphere is equiangular, its quadrilaterals are skew near the corners.
Sources: Heikes and Randall, Monthly Weather Review 123 (1995); Ronchi, Iacono, Paolucci, J. Comput. Phys. 124 (1996).
"""

import numpy as np

from meanfield_pde import inputs
from meanfield_pde.mesh.polygons import arc_mesh, polygon_mesh
from meanfield_pde.mesh.record import SphereMesh
from meanfield_pde.mesh.voronoi import circumcenters, dual_mesh, lloyd
from meanfield_pde.sphere import FloatArray, IntArray, normalise

MOST_CELLS = 10_000_000
MOST_TO_A_SIDE = 1000
LLOYD_STEPS = 40


def circle(n: int) -> SphereMesh:
    """Mesh of S^1 with n equal cells, 3 to 10 000 000: the center of cell i is at the angle 2 pi i / n, faces are half-way between."""
    n = inputs.integer("n", n, low=3, most=MOST_CELLS)
    return arc_mesh(f"circle({n})", 2 * np.pi * (np.arange(n) - 0.5) / n)


def icosahedral(level: int, cells: str = "voronoi") -> SphereMesh:
    """Mesh with 10 * 4^level + 2 Voronoi cells, centroidal, or 20 * 4^level triangles (centers: circumcenters). level: 0 to 9."""
    level = inputs.integer("level", level, low=0, high=9)
    cells = inputs.choice("cells", cells, ("voronoi", "triangles"))
    points, triangles = _icosahedron()
    for _ in range(level):
        points, triangles = _halved(points, triangles)
    # renumbered in the order of their first triangle, neighbours are close in memory and loops over cells are faster
    order = np.argsort(np.unique(triangles, return_index=True)[1])
    points, triangles = points[order], np.argsort(order)[triangles]
    if cells == "triangles":
        name, offsets = f"icosahedral({level}, cells='triangles')", np.arange(len(triangles) + 1) * 3
        return polygon_mesh(name, points, offsets, triangles.ravel(), centers=circumcenters(points, triangles))
    return dual_mesh(f"icosahedral({level})", lloyd(points, triangles, LLOYD_STEPS), triangles)


def _icosahedron() -> tuple[FloatArray, IntArray]:
    """Corners with one at the north pole, and 20 triangles counter-clockwise seen from outside."""
    height, radius = 1 / np.sqrt(5), 2 / np.sqrt(5)
    i, j = np.arange(5), np.roll(np.arange(5), -1)
    turn = 2 * np.pi / 5 * i
    upper = np.stack([radius * np.cos(turn), radius * np.sin(turn), np.full(5, height)], axis=1)
    lower = np.stack([radius * np.cos(turn + np.pi / 5), radius * np.sin(turn + np.pi / 5), np.full(5, -height)], axis=1)
    points = normalise(np.concatenate([[[0.0, 0.0, 1.0]], upper, lower, [[0.0, 0.0, -1.0]]]))
    north, south = np.zeros(5, dtype=np.int64), np.full(5, 11)
    triangles = np.array([[north, 1 + i, 1 + j], [1 + i, 6 + i, 1 + j], [1 + j, 6 + i, 6 + j], [south, 6 + j, 6 + i]])
    return points, triangles.transpose(0, 2, 1).reshape(-1, 3)


def _halved(points: FloatArray, triangles: IntArray) -> tuple[FloatArray, IntArray]:
    """Every triangle cut into four at the midpoints of its edges."""
    n = len(points)
    edges = np.stack([triangles, np.roll(triangles, -1, axis=1)], axis=2)
    keys = edges.min(axis=2) * n + edges.max(axis=2)
    unique, inverse = np.unique(keys, return_inverse=True)
    middle = n + inverse.reshape(triangles.shape)
    a, b, c = triangles.T
    ab, bc, ca = middle.T
    children = np.stack([[a, ab, ca], [b, bc, ab], [c, ca, bc], [ab, bc, ca]]).transpose(2, 0, 1).reshape(-1, 3)
    return np.concatenate([points, normalise(points[unique // n] + points[unique % n])]), children


def cubed_sphere(n: int) -> SphereMesh:
    """Mesh of S^2 with 6 n^2 cells, n to a side of the cube, 2 to 1000; centers are the centroids."""
    n = inputs.integer("n", n, low=2, most=MOST_TO_A_SIDE)
    i, j = (index.ravel() for index in np.meshgrid(np.arange(n), np.arange(n), indexing="ij"))
    square = np.stack([np.stack([i + a, j + b], axis=1) for a, b in ((0, 0), (1, 0), (1, 1), (0, 1))], axis=1)
    quads = []
    for axis in range(3):
        for side in (0, n):
            lattice = np.insert(square, 0, side, axis=2)
            outward = lattice if side else lattice[:, ::-1]
            quads.append(np.roll(outward, axis, axis=2))
    corners = np.concatenate(quads)
    unique, cell_vertices = np.unique(corners.reshape(-1, 3), axis=0, return_inverse=True)
    vertices = normalise(np.tan(np.pi / 4 * (2 * unique / n - 1)))
    return polygon_mesh(f"cubed_sphere({n})", vertices, np.arange(6 * n * n + 1) * 4, cell_vertices.ravel().astype(np.int64))
