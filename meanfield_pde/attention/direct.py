"""Attention integrals by direct summation, O(m n) time and O(m + n) memory.

For queries z = beta B x, (m, d), and a measure (y_j, m_j) of total mass M:

    log (1/M) sum_j m_j e^{<z, y_j>}          and          sum_j m_j e^{<z, y_j>} y_j / sum_j m_j e^{<z, y_j>} .

Exponents are shifted by their largest value, so that no beta overflows; at small |z| the logarithm is taken of 1 + mean(e^s - 1),
which keeps its digits as beta -> 0. Each query is summed by one thread in the order of the points, in blocks whose sums are compensated.
"""

import numpy as np
from numba import njit

from meanfield_pde.measure import Measure
from meanfield_pde.sphere import FloatArray
from meanfield_pde.threads import over_rows

SMALL_QUERY = 0.5
BLOCK = 32


def log_partition(queries: FloatArray, measure: Measure) -> FloatArray:
    """log(Z(z) / M), (m,)."""
    points, masses = _sources(measure)
    logs = np.empty(len(queries))
    over_rows(_log_partition, len(queries), np.ascontiguousarray(queries), points, masses, masses.sum(), logs)
    return logs


def log_partition_and_mean(queries: FloatArray, measure: Measure) -> tuple[FloatArray, FloatArray]:
    """log(Z(z) / M), (m,), and the attention-weighted mean of y, (m, d)."""
    points, masses = _sources(measure)
    logs, means = np.empty(len(queries)), np.empty(queries.shape)
    over_rows(_log_partition_and_mean, len(queries), np.ascontiguousarray(queries), points, masses, masses.sum(), logs, means)
    return logs, means


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
def _compensated(total, carry, term):
    """Kahan's sum of one more term."""
    corrected = term - carry
    result = total + corrected
    return result, (result - total) - corrected


@njit(cache=True, nogil=True)
def _largest_exponent(query, points):
    largest = -np.inf
    for j in range(len(points)):
        largest = max(largest, _inner(query, points[j]))
    return largest


@njit(cache=True, nogil=True)
def _log_partition(first, last, queries, points, masses, total_mass, logs):
    n = len(points)
    for i in range(first, last):
        query = queries[i]
        small = _inner(query, query) < SMALL_QUERY * SMALL_QUERY
        shift = 0.0 if small else _largest_exponent(query, points)
        total = carry = 0.0
        for start in range(0, n, BLOCK):
            block = 0.0
            for j in range(start, min(start + BLOCK, n)):
                exponent = _inner(query, points[j]) - shift
                block += masses[j] * (np.expm1(exponent) if small else np.exp(exponent))
            total, carry = _compensated(total, carry, block)
        logs[i] = np.log1p(total / total_mass) if small else shift + np.log(total / total_mass)


@njit(cache=True, nogil=True)
def _log_partition_and_mean(first, last, queries, points, masses, total_mass, logs, means):
    n, d = points.shape
    block, total, carry = np.empty(d + 1), np.empty(d + 1), np.empty(d + 1)
    for i in range(first, last):
        query = queries[i]
        shift = _largest_exponent(query, points)
        total[:] = 0.0
        carry[:] = 0.0
        for start in range(0, n, BLOCK):
            block[:] = 0.0
            for j in range(start, min(start + BLOCK, n)):
                weight = masses[j] * np.exp(_inner(query, points[j]) - shift)
                block[d] += weight
                for k in range(d):
                    block[k] += weight * points[j, k]
            for k in range(d + 1):
                total[k], carry[k] = _compensated(total[k], carry[k], block[k])
        for k in range(d):
            means[i, k] = total[k] / total[d]
        logs[i] = shift + np.log(total[d] / total_mass)
