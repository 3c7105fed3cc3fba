"""From polygons (S^2) or arcs (S^1) to a mesh record: edges are paired, areas and centroids are exact.

Data in: vertices (n_vertices, d), cells as rows of vertex numbers (offsets and flat list), optionally centers.
Data out: SphereMesh. The centroid of a spherical polygon is the direction of int x = 1/2 sum_edges angle * normal (Stokes).
"""

import numpy as np
from scipy.sparse import coo_array
from scipy.spatial import cKDTree

from meanfield_pde import inputs
from meanfield_pde.mesh.record import SphereMesh
from meanfield_pde.sphere import FloatArray, IntArray, distance, normalise, triangle_area


def polygon_mesh(
    name: str,
    vertices: FloatArray,
    cell_offsets: IntArray,
    cell_vertices: IntArray,
    centers: FloatArray | None = None,
    repairs: tuple[str, ...] = (),
) -> SphereMesh:
    """Mesh of S^2 from closed, consistently wound polygons; centers default to the centroids.

    Raises ValueError with ids if an edge does not belong to exactly two cells, wound oppositely, or a cell has no area.
    """
    start, end = polygon_edges(cell_offsets, cell_vertices)
    owner = np.repeat(np.arange(len(cell_offsets) - 1), np.diff(cell_offsets))
    centroids = polygon_centroids(vertices, cell_offsets, start, end)
    areas = polygon_areas(vertices, centroids, cell_offsets, start, end)
    centers = centroids if centers is None else centers
    first, second = paired_edges(start, end, owner)
    a, b = vertices[start[first]], vertices[end[first]]
    left, right = owner[first], owner[second]
    return SphereMesh(
        name=name,
        vertices=vertices,
        cell_offsets=cell_offsets,
        cell_vertices=cell_vertices,
        centers=centers,
        centroids=centroids,
        areas=areas,
        face_cells=np.stack([left, right], axis=1),
        face_vertices=np.stack([start[first], end[first]], axis=1),
        face_lengths=distance(a, b),
        face_distances=distance(centers[left], centers[right]),
        face_midpoints=normalise(a + b),
        face_normals=normalise(np.cross(b - a, a)),
        repairs=repairs,
    )


def arc_mesh(name: str, boundaries: FloatArray, centers: FloatArray | None = None, cell_ids: IntArray | None = None) -> SphereMesh:
    """Mesh of S^1 from increasing boundary angles (n,) within one turn: arc i runs from boundary i to i + 1.

    centers: angles (n,), default the middles. cell_ids: (n,), the number that arc i gets as a cell, default i.
    """
    n = len(boundaries)
    ends = np.append(boundaries[1:], boundaries[0] + 2 * np.pi)
    middles = (boundaries + ends) / 2
    vertices, right = np.arange(n), np.arange(n) if cell_ids is None else cell_ids
    left, at = np.roll(right, 1), np.argsort(right)
    points = on_circle(middles if centers is None else centers)[at]
    return SphereMesh(
        name=name,
        vertices=on_circle(boundaries),
        cell_offsets=np.arange(n + 1) * 2,
        cell_vertices=np.stack([vertices, np.roll(vertices, -1)], axis=1)[at].ravel(),
        centers=points,
        centroids=on_circle(middles)[at],
        areas=(ends - boundaries)[at],
        face_cells=np.stack([left, right], axis=1),
        face_vertices=vertices[:, None],
        face_lengths=np.ones(n),
        face_distances=distance(points[left], points[right]),
        face_midpoints=on_circle(boundaries),
        face_normals=np.stack([-np.sin(boundaries), np.cos(boundaries)], axis=1),
    )


def polygon_edges(offsets: IntArray, cell_vertices: IntArray) -> tuple[IntArray, IntArray]:
    """Start and end vertex of every directed edge, in the order of cell_vertices."""
    following = np.arange(1, len(cell_vertices) + 1)
    following[offsets[1:] - 1] = offsets[:-1]
    return cell_vertices, cell_vertices[following]


def merged(points: FloatArray, tolerance: float) -> tuple[IntArray, IntArray]:
    """Points closer than `tolerance` become one: rows to keep (the first of each group, in order) and each point's row among them."""
    _, first, same = np.unique(points, axis=0, return_index=True, return_inverse=True)
    pairs = cKDTree(points[first]).query_pairs(tolerance, output_type="ndarray")
    links = coo_array((np.ones(len(pairs)), (pairs[:, 0], pairs[:, 1])), shape=(len(first), len(first)))
    from scipy.sparse.csgraph import connected_components

    _, groups = connected_components(links, directed=False)
    _, kept, labels = np.unique(groups[same.ravel()], return_index=True, return_inverse=True)
    order = np.argsort(kept)
    return kept[order], np.argsort(order)[labels]


def without_repeats(offsets: IntArray, cell_vertices: IntArray) -> tuple[IntArray, IntArray]:
    """Cells without corners that repeat the next corner."""
    start, end = polygon_edges(offsets, cell_vertices)
    kept = start != end
    counts = np.add.reduceat(kept.astype(np.int64), offsets[:-1])
    return np.concatenate([[0], np.cumsum(counts)]), cell_vertices[kept]


def polygon_centroids(vertices: FloatArray, offsets: IntArray, start: IntArray, end: IntArray) -> FloatArray:
    """Unit centroids (n_cells, 3) of spherical polygons."""
    a, b = vertices[start], vertices[end]
    normal = np.cross(a, b - a)
    length = np.linalg.norm(normal, axis=1)
    angle = distance(a, b)
    scale = np.divide(angle, length, out=np.ones_like(length), where=length > 0)
    total = np.add.reduceat(normal * scale[:, None], offsets[:-1], axis=0)
    size = np.linalg.norm(total, axis=1)
    inputs.refuse(~(size > 0), lambda cell: f"cell {cell} has no area, wanted a polygon with at least three different vertices")
    return np.asarray(total / size[:, None])


def polygon_areas(vertices: FloatArray, inner: FloatArray, offsets: IntArray, start: IntArray, end: IntArray) -> FloatArray:
    """Signed areas (n_cells,): fans of triangles about one inner point (n_cells, 3) a cell."""
    apex = np.repeat(inner, np.diff(offsets), axis=0)
    return np.add.reduceat(triangle_area(apex, vertices[start], vertices[end]), offsets[:-1])


def paired_edges(start: IntArray, end: IntArray, owner: IntArray) -> tuple[IntArray, IntArray]:
    """Directed edges (a -> b) and their partners (b -> a), one pair per face, in the order of (a, b) with a < b."""
    n = int(max(start.max(), end.max())) + 1
    forward = np.flatnonzero(start < end)
    backward = np.flatnonzero(start > end)
    forward = forward[np.argsort(start[forward] * n + end[forward], kind="stable")]
    backward = backward[np.argsort(end[backward] * n + start[backward], kind="stable")]
    keys, partners = start[forward] * n + end[forward], end[backward] * n + start[backward]
    if len(keys) != len(partners) or (keys != partners).any() or (np.diff(keys) == 0).any():
        raise ValueError(_broken_edges(start, end, owner, n))
    return forward, backward


def _broken_edges(start: IntArray, end: IntArray, owner: IntArray, n: int) -> str:
    keys = np.minimum(start, end) * n + np.maximum(start, end)
    _, inverse, counts = np.unique(keys, return_inverse=True, return_counts=True)
    cells_at = counts[inverse]
    if n_open := int((counts == 1).sum()):
        return f"the surface is not closed, {n_open} open edges, wanted two cells at every edge: {_look_at(owner[cells_at == 1])}"
    if (counts > 2).any():
        return f"{(counts > 2).sum()} edges belong to more than two cells, wanted two: {_look_at(owner[cells_at > 2])}"
    balance = np.bincount(inverse, weights=np.where(start < end, 1.0, -1.0))
    wrong = owner[balance[inverse] != 0]
    return f"neighbouring cells are wound both ways, wanted counter-clockwise seen from outside and no fold: {_look_at(wrong)}"


def _look_at(cells: IntArray) -> str:
    ids = np.unique(cells)
    return f"look at cells {', '.join(map(str, ids[:8]))}{', …' if len(ids) > 8 else ''}"


def on_circle(angles: FloatArray) -> FloatArray:
    """Points (n, 2) at angles (n,)."""
    return np.stack([np.cos(angles), np.sin(angles)], axis=1)
