"""Voronoi meshes: every cell holds the points nearest to its generator, so each face is perpendicular to the line of its two centers.

Data in: generators (n, d). Data out: SphereMesh whose centers are the generators, in the order given. On S^2 the Delaunay triangulation
is the convex hull; the Voronoi polygons are its dual. Lloyd steps move generators to centroids (Du, Faber, Gunzburger, SIAM Rev. 41, 1999).
"""

import numpy as np
from numpy.typing import ArrayLike
from scipy.spatial import ConvexHull, QhullError, cKDTree

from meanfield_pde import inputs
from meanfield_pde.mesh.polygons import arc_mesh, merged, polygon_centroids, polygon_edges, polygon_mesh, without_repeats
from meanfield_pde.mesh.record import SphereMesh
from meanfield_pde.sphere import FloatArray, IntArray, dot, normalise

SAME_POINT = 1e-10
MOST_LLOYD_STEPS = 100_000


def voronoi(points: ArrayLike, lloyd_steps: int = 0) -> SphereMesh:
    """Voronoi mesh of given generators, (n, 2) or (n, 3) unit vectors, after `lloyd_steps` centroidal steps.

    Raises ValueError if points are off the sphere, coincide (ids are named) or all lie in one plane.
    """
    generators = inputs.array("points", points, ("n", "d"))
    d = generators.shape[1]
    if d not in (2, 3):
        raise ValueError(f"points has shape {generators.shape}, wanted (n, 3) or (n, 2)")
    generators = normalise(inputs.unit_rows("points", generators, points))
    lloyd_steps = inputs.integer("lloyd_steps", lloyd_steps, low=0, most=MOST_LLOYD_STEPS)
    pairs = cKDTree(generators).query_pairs(SAME_POINT, output_type="ndarray")
    if len(pairs):
        i, j = sorted(pairs[0])
        raise ValueError(f"points[{i}] and points[{j}] coincide ({len(pairs)} such pairs), wanted distinct generators")
    if d == 2:
        return _voronoi_circle(generators, lloyd_steps)
    for _ in range(lloyd_steps):
        generators = lloyd(generators, delaunay(generators), 1)
    return dual_mesh(f"voronoi({len(generators)} points)", generators, delaunay(generators))


def delaunay(points: FloatArray) -> IntArray:
    """Delaunay triangles (n_triangles, 3) of points on S^2, counter-clockwise seen from outside."""
    if len(points) < 4:
        raise ValueError(f"points has {len(points)} rows, wanted at least 4")
    try:
        hull = ConvexHull(points)
    except QhullError:
        raise ValueError("points lie in one plane, wanted generators all over the sphere") from None
    triangles = hull.simplices.astype(np.int64)
    a, b, c = (points[triangles[:, k]] for k in range(3))
    inward = dot(np.cross(b - a, c - a), hull.equations[:, :3]) < 0
    triangles[inward] = triangles[inward][:, ::-1]
    return triangles


def dual_mesh(name: str, generators: FloatArray, triangles: IntArray) -> SphereMesh:
    """Voronoi mesh whose Delaunay triangulation is known."""
    offsets, corners = _corners(triangles)
    corner_points = circumcenters(generators, triangles)
    kept, renamed = merged(corner_points, SAME_POINT)  # four generators on one circle give two equal circumcenters
    vertices = corner_points[kept]
    offsets, cell_vertices = without_repeats(offsets, renamed[corners])
    used, cell_vertices = np.unique(cell_vertices, return_inverse=True)
    return polygon_mesh(name, vertices[used], offsets, cell_vertices.astype(np.int64), centers=generators)


def lloyd(generators: FloatArray, triangles: IntArray, steps: int) -> FloatArray:
    """Generators after Lloyd steps that keep the Delaunay triangulation, as they do on icosahedral grids."""
    offsets, corners = _corners(triangles)
    start, end = polygon_edges(offsets, corners)
    for _ in range(steps):
        generators = polygon_centroids(circumcenters(generators, triangles), offsets, start, end)
    return generators


def circumcenters(points: FloatArray, triangles: IntArray) -> FloatArray:
    """Unit circumcenters (n_triangles, 3), on the outer side of counter-clockwise triangles."""
    a, b, c = (points[triangles[:, k]] for k in range(3))
    return normalise(np.cross(b - a, c - a))


def _corners(triangles: IntArray) -> tuple[IntArray, IntArray]:
    """Triangles around each vertex, counter-clockwise: offsets (n_points + 1,) and triangle numbers (3 n_triangles,)."""
    n = int(triangles.max()) + 1
    at, to, back = triangles.ravel(), triangles[:, [1, 2, 0]].ravel(), triangles[:, [2, 0, 1]].ravel()
    order = np.argsort(at * n + to)
    following = order[np.searchsorted((at * n + to)[order], at * n + back)]
    counts = np.bincount(at, minlength=n)
    offsets = np.concatenate([[0], np.cumsum(counts)])
    corner = order[offsets[:-1]]
    around = np.empty(len(at), dtype=np.int64)
    for k in range(int(counts.max())):
        alive = counts > k
        around[offsets[:-1][alive] + k] = corner[alive]
        corner = following[corner]
    return offsets, around // 3


def _voronoi_circle(generators: FloatArray, lloyd_steps: int) -> SphereMesh:
    if len(generators) < 2:
        raise ValueError(f"points has {len(generators)} rows, wanted at least 2")
    angles = np.arctan2(generators[:, 1], generators[:, 0])
    order = np.argsort(angles)
    angles = angles[order]
    for _ in range(lloyd_steps):
        middle = _halfway(angles)
        angles = (middle + np.append(middle[1:], middle[0] + 2 * np.pi)) / 2
    return arc_mesh(f"voronoi({len(generators)} points)", _halfway(angles), angles, order)


def _halfway(angles: FloatArray) -> FloatArray:
    return (np.append(angles[-1] - 2 * np.pi, angles[:-1]) + angles) / 2
