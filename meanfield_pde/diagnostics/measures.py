"""What is read off a state: energy, order parameter, clusters, pairs and entropy; pure functions of measures and cell averages.

    E(mu) = 1/(2 beta) iint e^{beta <Qx, Ky>} dmu(x) dmu(y),   |int x dmu|,   components of {d(x, y) < angle},   -int rho log rho,
    law of <x, y> under mu x mu / M^2

Data in: a measure (points (n, d), masses (n,)) or averages (n_cells,). Data out: plain numbers and shares (n_bins,), dimensionless.
Source: Geshkovski, Letrouit, Polyanskiy, Rigollet, arXiv:2312.10794 (energy, inner products of pairs).
"""

import math
from typing import Any

import numpy as np
from numpy.typing import ArrayLike
from scipy.spatial import cKDTree
from scipy.special import entr

from meanfield_pde import inputs
from meanfield_pde.integrals.scaled import Scaled
from meanfield_pde.measure import Measure
from meanfield_pde.mesh.record import SphereMesh
from meanfield_pde.models.velocity import VelocityModel, as_model, energy_of, wrapped
from meanfield_pde.sphere import FloatArray, normalise
from meanfield_pde.systems.components import components

EDGE_TOLERANCE = 1e-12
"""A pair whose inner product is at most this far below an edge lies on it; it exceeds rounding, so that both ways of counting agree."""
TREE_POINTS = 1000
"""Distinct points above which pairs on S^1 and S^2 are counted by a tree (at 5 000 it is 1.3 times faster for 40 bins, 28 for one at 1)."""
BLOCK_PAIRS = 1 << 20
"""Pairs whose inner products are held at a time."""


def energy(model: VelocityModel | Any, measure: Measure, t: float = 0.0) -> float:
    """The model's energy at time t; of attention `E(mu) = 1/(2 beta) iint e^{beta <Qx, Ky>} dmu dmu` (2312.10794), of order mass^2.

    At beta = 0 it is the finite part, the limit of E - mass^2/(2 beta): `<Q m, K m>/2` with m = int x dmu, which is |m|^2/2 for Q = K = I.
    Raises ValueError for a model without an energy, OverflowError where the result exceeds the largest float (beta above about 700): use
    log_energy.
    """
    scaled = _energy(model, measure, t)
    if not math.isfinite(scaled.value):
        raise OverflowError(f"the energy is e^{scaled.log:.6g}, too large for a float; use log_energy")
    return scaled.value


def log_energy(model: VelocityModel, measure: Measure, t: float = 0.0) -> float:
    """The logarithm of the model's energy, for any beta without overflow; -inf for a measure without mass.

    At beta = 0 the logarithm of the finite part that `energy` returns: -inf where int x dmu = 0, nan where `<Q m, K m> < 0`.
    """
    return _energy(model, measure, t).log


def _energy(model: VelocityModel, measure: Measure, t: float) -> Scaled:
    checked = as_model("model", model)
    inputs.instance("measure", measure, Measure)
    found = energy_of(checked, measure, inputs.number("t", t))
    if not checked.has_energy:
        raise ValueError(f"model is a {type(wrapped(checked)).__name__} without an energy, wanted a model that has one")
    return found


def order_parameter(measure: Measure) -> float:
    """|int x dmu|: the mass for a single cluster, 0 for the uniform measure."""
    inputs.instance("measure", measure, Measure)
    return float(np.linalg.norm(measure.mean()))


def clusters(measure: Measure, angle: float, *, floor: float = 0.0) -> list[tuple[float, FloatArray]]:
    """Clusters of the measure, (mass, centre (d,)) each, heaviest first.

    A cluster is a connected component of the graph that joins points with mass closer than `angle` (geodesic, radians, 0 < angle < pi):
    a chain of points, each within `angle` of the next, is one cluster however long it is. The centre is the normalised integral of x over
    the cluster; where that vanishes (a ring, say) it is the heaviest point.

    Every point with mass takes part. For a density, which has mass in every cell, that makes the whole mesh one cluster: `floor`
    (0 <= floor < 1) leaves out points whose mass is at most floor times the largest, so that a cluster is a hill above that level (0.1,
    say) and the masses returned add up to that of the hills. Choose an angle above 1.5 times the distance of cell centres there.

    Exact for any points; memory O(n). Raises ValueError if angle or floor is out of range.
    """
    inputs.instance("measure", measure, Measure)
    angle = inputs.number("angle", angle, above=0)
    if not angle < np.pi:
        raise ValueError(f"angle is {inputs.exactly(angle)}, wanted a number < pi")
    floor = inputs.number("floor", floor, low=0)
    if not floor < 1:
        raise ValueError(f"floor is {inputs.exactly(floor)}, wanted a number < 1")
    kept = measure.masses > floor * measure.masses.max(initial=0.0)
    if not kept.any():
        return []
    points, place = np.unique(measure.points[kept], axis=0, return_inverse=True)
    masses = np.bincount(place.ravel(), weights=measure.masses[kept])
    labels = components(points, 2 * math.sin(angle / 2))
    mass = np.bincount(labels, weights=masses)
    moments = np.stack([np.bincount(labels, weights=masses * x) for x in points.T], axis=1)
    found = []
    for cluster in np.argsort(-mass, kind="stable"):
        length = float(np.linalg.norm(moments[cluster]))
        if length > 1e-12 * mass[cluster]:
            centre = moments[cluster] / length
        else:
            centre = points[np.argmax(np.where(labels == cluster, masses, 0))].copy()
        found.append((float(mass[cluster]), centre))
    return found


def inner_products(measure: Measure, edges: ArrayLike, self_pairs: bool = True) -> FloatArray:
    """The shares (n_bins,) of pairs whose inner product lies in [edges[i], edges[i + 1]); the last bin holds its right edge too.

    edges: (n_bins + 1,), increasing within [-1, 1]. The share of a pair is m_i m_j / M^2, M the total mass, and a point with itself is a
    pair. self_pairs=False leaves those out, and shares are then of the other pairs, m_i m_j / (M^2 - sum_i m_i^2): n tokens drawn from a
    law have that law's shares on average, while the n self pairs add 1/n to the last bin. For the cells of a density keep them.

    A point has the product 1 with itself. An inner product within 1e-12 below an edge counts as on it, so that rounding moves no pair of
    a symmetric set across, and coincident points lie in a last bin that ends at 1. Of more than 1000 points on S^1 and S^2 a tree counts
    the chords, `|x - y|^2 = 2 - 2 <x, y>` (1e5 points on S^2: 1.5 minutes for 40 bins, a second for pairs above 0.999); otherwise
    products are taken in blocks, O(n^2) time and bounded memory. Only positive terms are added: small shares keep their digits.
    Raises ValueError if edges are off, the measure has no mass, or self pairs are left out and there is no other.
    """
    checked = inputs.array("edges", edges, ("n_edges",))
    if len(checked) < 2:
        raise ValueError(f"edges has {len(checked)} entries, wanted at least 2")
    for i, edge in enumerate(checked):
        inputs.number(f"edges[{i}]", edge, low=-1, high=1)
    inputs.increasing("edges", checked, "edges")
    return _pair_shares(measure, checked, inputs.flag("self_pairs", self_pairs))


def close_pairs(measure: Measure, cosine: float, self_pairs: bool = True) -> float:
    """The share of pairs with `<x, y> >= cosine`, in [-1, 1]; pairs, self pairs, accuracy and errors as for `inner_products`.

    0.999 (2.6 degrees) is what 2312.10794 calls the same cluster.
    """
    cosine = inputs.number("cosine", cosine, low=-1, high=1)
    (share,) = _pair_shares(measure, np.array([cosine, 1.0]), inputs.flag("self_pairs", self_pairs))
    return float(share)


def entropy(mesh: SphereMesh, averages: ArrayLike) -> float:
    """-sum_i area_i rho_i log rho_i with 0 log 0 = 0; log(area of the sphere) for the uniform density, its largest value.

    averages: (n_cells,), density with respect to surface measure. Raises ValueError for a wrong shape or a negative average.
    """
    inputs.having("mesh", mesh, "a mesh, whose cells have areas", "areas")
    density = inputs.non_negatives("averages", averages, (len(mesh.areas),))
    return math.fsum(mesh.areas * entr(density))


def _pair_shares(measure: Measure, edges: FloatArray, self_pairs: bool) -> FloatArray:
    inputs.instance("measure", measure, Measure)
    held = measure.masses > 0
    if not held.any():
        raise ValueError("the measure has mass 0, wanted a positive mass: shares are relative to it")
    if not self_pairs and held.sum() == 1:
        raise ValueError("the measure has 1 point of positive mass, wanted at least 2 with self_pairs=False: it has no other pair")
    masses = measure.masses[held] / math.fsum(measure.masses)
    points = normalise(measure.points[held]) + 2 - 2  # rounds to multiples of 2^-52, so that no squared distance underflows
    distinct, place = np.unique(points, axis=0, return_inverse=True)
    groups = np.split(masses[np.argsort(place, kind="stable")], np.cumsum(np.bincount(place))[:-1])
    limits = edges - EDGE_TOLERANCE
    limits[-1] = edges[-1] + EDGE_TOLERANCE
    count = _pairs_by_tree if measure.dimension <= 3 and len(distinct) > TREE_POINTS else _pairs_by_products
    shares = count(distinct, np.array([group.sum() for group in groups]), limits)
    if limits[-1] > 1:
        shares[-1] += math.fsum(_other_pairs(group) for group in groups if len(group) > 1) + self_pairs * math.fsum(masses**2)
    return shares if self_pairs else shares / _other_pairs(masses)


def _other_pairs(masses: FloatArray) -> float:
    """sum_{i != j} m_i m_j, without the cancellation of M^2 - sum_i m_i^2."""
    return 2 * float(masses[1:] @ np.cumsum(masses[:-1]))


def _pairs_by_products(points: FloatArray, masses: FloatArray, limits: FloatArray) -> FloatArray:
    """sum of m_i m_j over the pairs i != j of distinct points with limits[k] <= <x, y> < limits[k + 1], (n_bins,)."""
    rows = max(1, BLOCK_PAIRS // len(points))
    sums = np.zeros(len(limits) + 1)
    for first in range(0, len(points), rows):
        block = slice(first, first + rows)
        products = points[block] @ points[first:].T
        np.fill_diagonal(products, -2.0)  # a point with itself is put below all limits
        weights = 2 * masses[first:]  # each pair from two blocks is met once and counts twice
        weights[:rows] = masses[block]
        bins = np.searchsorted(limits, products.ravel(), side="right")
        sums += np.bincount(bins, weights=np.outer(masses[block], weights).ravel(), minlength=len(sums))
    return sums[1:-1]


def _pairs_by_tree(points: FloatArray, masses: FloatArray, limits: FloatArray) -> FloatArray:
    """The same by counting chords: those of length 0, which are the points themselves, and then those up to the length of each limit."""
    squares = 2 - 2 * limits[::-1]
    radii = np.sqrt(np.where(squares < 4, squares, np.inf)[squares > 0])  # inf, as the tree compares with its boxes, which reach beyond 2
    tree = cKDTree(points)
    sums = tree.count_neighbors(tree, np.concatenate([[0.0], radii]), weights=(masses, masses), cumulative=False)
    return np.asarray(sums)[:0:-1][: len(limits) - 1].copy()
