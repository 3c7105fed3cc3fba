"""Which points hang together: connected components of the graph that joins points closer than a chord, without all of its edges.

Data in: distinct points (n, d). Data out: labels (n,).
"""

import math

import numpy as np
from scipy.sparse import coo_array
from scipy.spatial import cKDTree

from meanfield_pde.sphere import FloatArray, IntArray

_NEIGHBOURS = 16
"""Nearest neighbours looked at for all points at once; what they leave open is settled component by component."""


def components(points: FloatArray, chord: float) -> IntArray:
    """Labels of the connected components of the graph that joins distinct points (n, d) closer than the chord.

    The graph may have n^2 edges, so only some are looked at, in three steps that together leave none out that matters:
    points in one cube of diagonal below the chord are joined; each point, and the first of each cube, is joined to its nearest neighbours;
    a point with no far one among them may have more, and each component of such points is compared with the others around it.
    """
    n, d = points.shape
    cubes = np.unique(np.floor(points * (math.sqrt(d) / chord * (1 + 1e-9))), axis=0, return_inverse=True)[1].ravel()
    first = np.unique(cubes, return_index=True)[1]
    rows, columns, full = _near(points, chord)
    ends = [(rows, columns)]
    if len(first) < n:
        few_rows, few_columns, _ = _near(points[first], chord)
        ends += [(np.arange(n), first[cubes]), (first[few_rows], first[few_columns])]
    labels = joined(n, ends)
    open_points = full[np.argsort(labels[full], kind="stable")]
    groups = np.split(open_points, np.flatnonzero(np.diff(labels[open_points])) + 1)
    if len(groups) == 1:
        return labels
    tree = cKDTree(points[open_points])
    waiting = np.ones(n, dtype=bool)
    ends = [(np.arange(n), np.unique(labels, return_index=True)[1][labels])]
    for group in sorted(groups, key=len)[:-1]:
        waiting[group] = False
        middle = points[group].mean(axis=0)
        reach = np.linalg.norm(points[group] - middle, axis=1).max() + chord
        around = open_points[tree.query_ball_point(middle, reach * (1 + 1e-9))]
        around = around[waiting[around]]
        close = np.asarray(cKDTree(points[group]).query(points[around], distance_upper_bound=chord)[1])
        hit = close < len(group)
        ends.append((around[hit], group[close[hit]]))
    return joined(n, ends)


def _near(points: FloatArray, chord: float) -> tuple[IntArray, IntArray, IntArray]:
    """Pairs of each point with its nearest ones closer than the chord, at most _NEIGHBOURS, and the points that may have more."""
    n = len(points)
    count = min(_NEIGHBOURS + 1, n)
    nearest = np.asarray(cKDTree(points).query(points, k=np.arange(1, count + 1), distance_upper_bound=chord)[1])
    rows, places = np.nonzero(nearest < n)
    full = np.flatnonzero(nearest[:, -1] < n) if count < n else np.empty(0, dtype=np.int64)
    return rows, nearest[rows, places], full


def joined(n: int, ends: list[tuple[IntArray, IntArray]]) -> IntArray:
    """Component labels (n,) of the graph with these edges."""
    from scipy.sparse.csgraph import connected_components

    rows, columns = (np.concatenate(side) for side in zip(*ends, strict=True))
    edges = coo_array((np.ones(len(rows), dtype=bool), (rows, columns)), shape=(n, n))
    return np.asarray(connected_components(edges, directed=False)[1], dtype=np.int64)
