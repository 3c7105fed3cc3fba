"""Attention integrals by direct summation, O(m n) time and O(m + n) memory.

For queries z = beta B x = r u, (m, d), and a measure (y_j, m_j) of total mass M:

    log (1/M) sum_j m_j e^{<z, y_j>} - shift     and     sum_j m_j e^{<z, y_j>} (y_j - u) / sum_j m_j e^{<z, y_j>} .

On the sphere <z, y> = r - r |u - y|^2 / 2, and a small distance has more digits than an inner product near 1: exponents are taken from
distances and shifted by that of the nearest point, so that no beta overflows and none loses digits. At small r the logarithm is taken
of 1 + mean(e^{<z, y>} - 1), which keeps its digits as beta -> 0. A token that looks at itself sees an offset of exactly 0, so that the
pull of clusters whose weight is 1e-200 is not lost in its rounding. Each query is summed by one thread in the order of the points, in
blocks whose sums are compensated.

Data in: queries and a measure. Data out: logarithms (m,) and offsets (m, d).
"""

import numpy as np
from numba import njit

from meanfield_pde.integrals.queries import SMALL_RADIUS, Queries
from meanfield_pde.measure import Measure
from meanfield_pde.sphere import FloatArray
from meanfield_pde.threads import over_rows

BLOCK = 32


def log_partition(queries: Queries, measure: Measure) -> FloatArray:
    """log(Z(z) / M) - shift, (m,)."""
    points, masses = _sources(measure)
    logs = np.empty(len(queries))
    directions = np.ascontiguousarray(queries.directions)
    over_rows(_log_partition, len(queries), directions, queries.radii, points, masses, masses.sum(), queries.shift, logs)
    return logs


def log_partition_and_offset(queries: Queries, measure: Measure) -> tuple[FloatArray, FloatArray]:
    """log(Z(z) / M) - shift, (m,), and the attention-weighted mean of y - u, (m, d)."""
    points, masses = _sources(measure)
    logs, offsets = np.empty(len(queries)), np.empty(queries.directions.shape)
    directions = np.ascontiguousarray(queries.directions)
    over_rows(
        _log_partition_and_offset, len(queries), directions, queries.radii, points, masses, masses.sum(), queries.shift, logs, offsets
    )
    return logs, offsets


def _sources(measure: Measure) -> tuple[FloatArray, FloatArray]:
    """Points without mass would spoil the shift: a far mass could underflow beside an empty point."""
    kept = measure.masses > 0
    if kept.all():
        return measure.points, measure.masses
    return np.ascontiguousarray(measure.points[kept]), measure.masses[kept]


@njit(cache=True, nogil=True)
def _inner(a, b):
    total = 0.0
    for k in range(len(a)):
        total += a[k] * b[k]
    return total


@njit(cache=True, nogil=True)
def _squared_distance(a, b):
    total = 0.0
    for k in range(len(a)):
        difference = a[k] - b[k]
        total += difference * difference
    return total


@njit(cache=True, nogil=True)
def _compensated(total, carry, term):
    """Kahan's sum of one more term."""
    corrected = term - carry
    result = total + corrected
    return result, (result - total) - corrected


@njit(cache=True, nogil=True)
def _nearest(direction, points):
    """The squared distance to the nearest point."""
    nearest = np.inf
    for j in range(len(points)):
        nearest = min(nearest, _squared_distance(direction, points[j]))
    return nearest


@njit(cache=True, nogil=True)
def _log_partition(first, last, directions, radii, points, masses, total_mass, shift, logs):
    n = len(points)
    for i in range(first, last):
        direction, radius = directions[i], radii[i]
        small = radius < SMALL_RADIUS
        nearest = 0.0 if small else _nearest(direction, points)
        total = carry = 0.0
        for start in range(0, n, BLOCK):
            block = 0.0
            for j in range(start, min(start + BLOCK, n)):
                if small:
                    block += masses[j] * np.expm1(radius * _inner(direction, points[j]))
                else:
                    block += masses[j] * np.exp(radius / 2 * (nearest - _squared_distance(direction, points[j])))
            total, carry = _compensated(total, carry, block)
        logs[i] = np.log1p(total / total_mass) if small else np.log(total / total_mass) + (radius - shift - radius * nearest / 2)


@njit(cache=True, nogil=True)
def _log_partition_and_offset(first, last, directions, radii, points, masses, total_mass, shift, logs, offsets):
    n, d = points.shape
    block, total, carry = np.empty(d + 1), np.empty(d + 1), np.empty(d + 1)
    for i in range(first, last):
        direction, radius = directions[i], radii[i]
        nearest = _nearest(direction, points)
        total[:] = 0.0
        carry[:] = 0.0
        for start in range(0, n, BLOCK):
            block[:] = 0.0
            for j in range(start, min(start + BLOCK, n)):
                weight = masses[j] * np.exp(radius / 2 * (nearest - _squared_distance(direction, points[j])))
                block[d] += weight
                for k in range(d):
                    block[k] += weight * (points[j, k] - direction[k])
            for k in range(d + 1):
                total[k], carry[k] = _compensated(total[k], carry[k], block[k])
        for k in range(d):
            offsets[i, k] = total[k] / total[d]
        logs[i] = np.log(total[d] / total_mass) + (radius - shift - radius * nearest / 2)
