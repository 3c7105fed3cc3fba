"""Distances of measures on the sphere: Wasserstein's, d the geodesic distance, p = 1 or 2, and the maximum mean discrepancy.

    W_p(a, b)^p = min over plans pi from a to b of the integral of d(x, y)^p dpi(x, y)
    MMD(a, b)^2 = iint k(x, y) d(a - b)(x) d(a - b)(y),   k(x, y) = e^{beta (<x, y> - 1)}

Data in: two measures of equal mass on S^{d-1}. Data out: W_p in radians (times mass^{1/p}), MMD dimensionless (times mass).
A plan on S^1 is a cut of the circle, found exactly for any sizes and weights (POT 0.9.7's circle distances, tried first, are off by a
whole turn for some clouds much narrower than the circle). On S^2 and beyond it is POT's network simplex on the matrix of all distances,
refused where that does not fit into memory; `aggregate` makes a measure smaller, at a cost that it states. MMD is a weighted norm of the
difference of the harmonic coefficients on S^1 and S^2, cheap for any number of points, and a direct sum beyond.

Sources: Delon, Salomon, Sobolevski, SIAM J. Appl. Math. 70 (2010) (circle); Bonneel et al., ACM Trans. Graph. 30 (2011), Flamary et al.,
J. Mach. Learn. Res. 22 (2021) (network simplex, POT); Gretton et al., J. Mach. Learn. Res. 13 (2012) (MMD); 2312.10794 (its kernel).
"""

import math
import warnings

import numpy as np
from numpy.typing import ArrayLike
from scipy.spatial import cKDTree
from scipy.spatial.distance import cdist

from meanfield_pde import inputs
from meanfield_pde.integrals.harmonics import HARMONICS, kernel_band, kernel_factors
from meanfield_pde.measure import Measure
from meanfield_pde.sphere import FloatArray, IntArray, distance

MASS_TOLERANCE = 1e-9
"""Largest relative difference of two total masses that count as equal."""
BYTES_PER_PAIR = 44
"""Peak memory of `ot.emd2` per pair of points, cost matrix included (measured with POT 0.9.7: 41.2 to 41.9 bytes)."""
PLAN_TOLERANCE = 1e-9
"""Largest defect of a plan that is taken as optimal: of its marginals relative to the mass, of its duals relative to the largest cost."""
LARGEST_BETA = 1e5
"""Largest beta of `mmd`: 3 900 degrees, on S^2 0.1 GB of coefficients for each measure and some 10 seconds."""
BAND_TOLERANCE = 1e-28
"""Share of the kernel left out by `mmd` on S^1 and S^2: it is the square of the error."""
BLOCK_PAIRS = 1 << 21
"""Pairs of points held at a time by the direct sums of `mmd`."""
_MAX_PIVOTS = 10**9
"""Pivots after which the network simplex gives up: more than any problem that fits into memory needs."""
_TURN = 2**60
"""The whole mass on the circle as an integer. With masses in this unit a cut is an exact integer, and bisection ends at the best one."""


def wasserstein(a: Measure, b: Measure, order: int = 1, *, max_bytes: float = 2e9) -> float:
    """W_order(a, b) for the geodesic cost, order 1 or 2, in radians.

    The masses are divided by their totals for the plan only: the result is (total mass * mean of d^order)^{1/order}, for mass 1
    the usual distance. Points of no mass take no part; the order of the points does not matter, bit for bit. d(a, a) = 0.
    Error: rounding (about 1e-15 radians) for order 1; an imbalance of masses by rounding, m, is seen by order 2 as sqrt(m).

    S^1: O((n_a + n_b) log(n_a + n_b)), no limit on sizes. Otherwise the sizes are limited by `max_bytes`, the memory that the plan
    may take (bytes, BYTES_PER_PAIR for each pair of points). Raises ValueError if the dimensions or total masses differ (relative 1e-9),
    a measure has no mass, the order is not 1 or 2, or the plan needs more than max_bytes; RuntimeError if the plan found is not optimal.
    """
    order = inputs.integer("order", order, low=1, high=2)
    max_bytes = inputs.number("max_bytes", max_bytes, above=0)
    mass_a, mass_b = _equal_masses(a, b)
    points_a, weights_a = _canonical(a, mass_a)
    points_b, weights_b = _canonical(b, mass_b)
    if a.dimension == 2:
        cost = _circle_cost(points_a, weights_a, points_b, weights_b, order)
    else:
        needed = len(points_a) * len(points_b) * BYTES_PER_PAIR
        if needed > max_bytes:
            gigabytes, most = inputs.exactly(needed / 1e9), inputs.exactly(max_bytes / 1e9)
            raise ValueError(
                f"a plan between {len(points_a)} and {len(points_b)} points needs about {gigabytes} GB, more than max_bytes = "
                f"{most} GB; use fewer points, for example aggregate(measure, centers of a coarser mesh), or raise max_bytes"
            )
        cost = _plan_cost(points_a, weights_a, points_b, weights_b, order)
    return float(((mass_a + mass_b) / 2 * cost) ** (1 / order))


def mmd(a: Measure, b: Measure, beta: float) -> float:
    """Maximum mean discrepancy for the kernel of the attention energy scaled to k(x, x) = 1: the norm of a - b in its Hilbert space.

    beta: 0 to 1e5, dimensionless; points are told apart from about beta^{-1/2} radians on. For beta = 0, where that kernel sees the mass
    only, the kernel is `<x, y>`, the limit of (k - 1)/beta: the result is |int x d(a - b)|. The masses are divided by their totals and the
    result multiplied by the mean total; it is at most sqrt(2) times that. It is 0 for a = b, and only then if beta > 0.

    S^1, S^2: O(n_a + n_b + band^3), band about sqrt(129 beta) degrees at large beta; error about 1e-14 times the mass, for two measures
    however close. Otherwise, beta > 0: direct sums over all pairs in bounded memory. There the square has an error of about 1e-16, so that
    MMD below 1e-8 is lost (where rounding makes the square negative, 0 is returned), unless both measures lie in one small place:
    squares are summed of k - 1, which is small there. Raises ValueError as `wasserstein` does, or if beta is out of range.
    """
    beta = inputs.number("beta", beta, low=0, high=LARGEST_BETA)
    mass_a, mass_b = _equal_masses(a, b)
    if beta == 0:
        value = float(np.linalg.norm(a.mean() / mass_a - b.mean() / mass_b))
    elif a.dimension in HARMONICS:
        value = _harmonic_norm(a, mass_a, b, mass_b, beta)
    else:
        value = math.sqrt(max(0.0, _direct_square(a, mass_a, b, mass_b, beta)))
    return (mass_a + mass_b) / 2 * value


def aggregate(measure: Measure, targets: ArrayLike) -> tuple[Measure, float]:
    """The masses moved to the nearest of the target points, and what that move costs.

    targets: (n, d), unit vectors (the centres of a mesh, say). Returns the new measure on those targets that received mass and
    `moved` = integral of the distance moved (radians times mass), an upper bound of W1 between the two measures: a W1 distance
    computed with the new measure is wrong by at most `moved`. Raises ValueError if the targets are not points of the same sphere.
    """
    inputs.instance("measure", measure, Measure)
    checked = inputs.points("targets", targets, measure.dimension)
    if len(checked) == 0:
        raise ValueError("targets has no points, wanted at least one")
    held = measure.masses > 0
    points, masses = measure.points[held], measure.masses[held]
    nearest = cKDTree(checked).query(points)[1]
    received = np.asarray(np.bincount(nearest, weights=masses, minlength=len(checked)), dtype=np.float64)
    filled = received > 0
    moved = math.fsum(masses * distance(points, checked[nearest]))
    return Measure.trusted(checked[filled], received[filled]), moved


def _equal_masses(a: Measure, b: Measure) -> tuple[float, float]:
    """The total masses of two measures on one sphere, refused if they differ."""
    inputs.instance("a", a, Measure)
    inputs.instance("b", b, Measure)
    if a.dimension != b.dimension:
        raise ValueError(f"a lies in R^{a.dimension} and b in R^{b.dimension}, wanted two measures on one sphere")
    mass_a, mass_b = math.fsum(a.masses), math.fsum(b.masses)
    given = f"the total masses are {mass_a:.12g} (a) and {mass_b:.12g} (b)"
    if not (mass_a > 0 and mass_b > 0):
        raise ValueError(f"{given}, wanted two measures of positive mass")
    if abs(mass_a - mass_b) > MASS_TOLERANCE * max(mass_a, mass_b):
        raise ValueError(f"{given}, wanted equal masses (relative {MASS_TOLERANCE:g})")
    return mass_a, mass_b


def _harmonic_norm(a: Measure, mass_a: float, b: Measure, mass_b: float, beta: float) -> float:
    """sqrt(sum of factor_l |c_lm|^2), c the coefficients of a - b: by Parseval the norm of the function with sqrt(factor_l) c_lm."""
    harmonics = HARMONICS[a.dimension]
    band = kernel_band(a.dimension, beta, BAND_TOLERANCE)
    difference = harmonics.analyse(a.points, a.masses / mass_a, band) - harmonics.analyse(b.points, b.masses / mass_b, band)
    difference[0] = 0.0  # both have mass 1; the rounding error that is left of it would be seen at small beta
    roots = np.sqrt(kernel_factors(a.dimension, beta, band))[harmonics.degrees(band)]
    return math.sqrt(harmonics.constant) * harmonics.root_mean_square(roots * difference, band)


def _direct_square(a: Measure, mass_a: float, b: Measure, mass_b: float, beta: float) -> float:
    """iint (k - 1) d(a - b) d(a - b), where the 1 integrates to 0; masses at points that a and b share are subtracted first."""
    together = np.concatenate([a.points, b.points])
    points, place = np.unique(together, axis=0, return_inverse=True)
    signed = np.bincount(place.ravel(), weights=np.concatenate([a.masses / mass_a, -b.masses / mass_b]))
    points, signed = points[signed != 0], signed[signed != 0]
    rows = max(1, BLOCK_PAIRS // max(1, len(points)))
    parts = []
    for first in range(0, len(points), rows):
        block = slice(first, first + rows)
        kernel = np.expm1(-beta / 2 * cdist(points[block], points[first:], "sqeuclidean"))
        weights = 2 * signed[first:]  # each pair from two blocks is met once and counts twice
        weights[:rows] = signed[block]
        parts.append(signed[block] * (kernel @ weights))
    return math.fsum(np.concatenate(parts)) if parts else 0.0


def _canonical(measure: Measure, mass: float) -> tuple[FloatArray, FloatArray]:
    """Points of positive mass and their parts of the mass, in an order that depends on the measure only."""
    held = measure.masses > 0
    points, weights = measure.points[held], measure.masses[held] / mass
    order = np.lexsort((weights, *points.T))
    return points[order], weights[order]


def _circle_cost(points_a: FloatArray, weights_a: FloatArray, points_b: FloatArray, weights_b: FloatArray, order: int) -> float:
    """min over cuts c of the integral over a turn of |A(s) - B(s + c)|^order ds; A, B the angles as functions of mass, extended by turns.

    The integral is convex in c and linear between the values where a step of A meets one of B, so with masses held as integers
    the smallest integer cut with a rising integral is a minimiser.
    """
    if len(points_b) > len(points_a):
        points_a, weights_a, points_b, weights_b = points_b, weights_b, points_a, weights_a
    angles_a, levels_a = _quantiles(points_a, weights_a)
    angles_b, levels_b = _quantiles(points_b, weights_b)
    below, above = angles_b, np.append(angles_b[1:], angles_b[0] + 2 * np.pi)

    def rises(cut: int) -> bool:
        """Whether the integral rises just above the cut: there, at each step of B, mass passes from the angle below to the one above."""
        facing = _at(angles_a, levels_a, levels_b - cut)
        if order == 2:
            return float(np.sum((above - below) * (above + below - 2 * facing))) >= 0
        return float(np.sum(np.abs(above - facing) - np.abs(below - facing))) >= 0

    low, high = -_TURN, _TURN
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (low, middle) if rises(middle) else (middle, high)
    ends = np.sort(np.concatenate([levels_a, (levels_b - high - 1) % _TURN + 1]))
    lengths = np.diff(ends, prepend=0) / _TURN
    gaps = np.abs(_at(angles_a, levels_a, ends) - _at(angles_b, levels_b, ends + high))
    return float(np.sum(lengths * gaps**order))


def _quantiles(points: FloatArray, weights: FloatArray) -> tuple[FloatArray, IntArray]:
    """Sorted angles and the mass up to and with each of them, as integers that end at _TURN."""
    angles = np.arctan2(points[:, 1], points[:, 0])
    order = np.lexsort((weights, angles))
    levels = np.cumsum(weights[order], dtype=np.longdouble)
    return angles[order], np.rint(levels / levels[-1] * _TURN).astype(np.int64)


def _at(angles: FloatArray, levels: IntArray, mass: IntArray) -> FloatArray:
    """The angle up to which the given mass lies; mass may be any integer, and _TURN more of it is an angle of 2 pi more."""
    turns = (mass - 1) // _TURN
    return angles[np.searchsorted(levels, mass - turns * _TURN)] + 2 * np.pi * turns


def _plan_cost(points_a: FloatArray, weights_a: FloatArray, points_b: FloatArray, weights_b: FloatArray, order: int) -> float:
    """Cost of the best plan, from POT, after its marginals and its optimality have been checked."""
    import ot  # takes a second

    cost = np.empty((len(points_a), len(points_b)))
    blocks = [slice(start, start + 256) for start in range(0, len(cost), 256)]
    for rows in blocks:
        chord, total = cdist(points_a[rows], points_b), cdist(points_a[rows], -points_b)
        cost[rows] = (2 * np.arctan2(chord, total)) ** order
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)  # POT's warning is in the log, and raised below
        value, log = ot.emd2(weights_a, weights_b, cost, numItermax=_MAX_PIVOTS, log=True, return_matrix=True)
    plan, u, v = log["G"], log["u"], log["v"]
    marginals = np.abs(plan.sum(axis=1) - weights_a).sum() + np.abs(plan.sum(axis=0) - weights_b).sum()
    excess = max(float(np.max(u[rows, None] + v - cost[rows])) for rows in blocks)
    gap = abs(float(value) - float(u @ weights_a + v @ weights_b))
    if log["warning"] is not None or marginals > PLAN_TOLERANCE or max(excess, gap) > PLAN_TOLERANCE * np.pi**order:
        raise RuntimeError(
            f"the transport plan between {len(points_a)} and {len(points_b)} points is not optimal: POT says {log['warning']!r}, "
            f"marginals off by {marginals:.3g}, duals by {excess:.3g}, duality gap {gap:.3g}; aggregate the measures to fewer points"
        )
    return float(value)
