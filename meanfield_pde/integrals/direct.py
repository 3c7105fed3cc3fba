"""Attention integrals by direct summation, O(m n) time and O(m + n) memory.

For queries z = beta B x = r u, (m, d), and a measure (y_j, m_j) of total mass M:

    log (1/M) sum_j m_j e^{<z, y_j>} - shift     and     sum_j m_j e^{<z, y_j>} (y_j - u) / sum_j m_j e^{<z, y_j>} .

On the sphere <z, y> = r - r |u - y|^2 / 2, and a small distance has more digits than an inner product near 1: exponents are taken from
distances and shifted by that of the nearest point, so that no beta overflows and none loses digits. At small r the logarithm is taken
of 1 + mean(e^{<z, y>} - 1), which keeps its digits as beta -> 0. A token that looks at itself sees an offset of exactly 0, so that the
pull of clusters whose weight is 1e-200 is not lost in its rounding. Each query is summed by one thread in the order of the points, in
blocks whose sums are compensated. The uniform law that cells contain is not summed, since its integrals are exact (`Measure.split`): the
uniform density is at rest on every mesh, although the points of its cells are a quadrature with an error.

Data in: queries and a measure. Data out: logarithms (m,) and offsets (m, d).
"""

import numpy as np

from meanfield_pde.bessel import bessel_ratio, log_lambda
from meanfield_pde.integrals.queries import SMALL_RADIUS, Queries
from meanfield_pde.measure import Measure, Split
from meanfield_pde.sphere import FloatArray
from meanfield_pde.threads import compiled, over_rows

BLOCK = 32


def log_partition(queries: Queries, measure: Measure) -> FloatArray:
    """log(Z(z) / M) - shift, (m,)."""
    split = measure.split
    points, masses = _sources(split)
    logs = np.empty(len(queries))
    if len(points):
        directions = np.ascontiguousarray(queries.directions)
        over_rows(_log_partition, len(queries), directions, queries.radii, points, masses, masses.sum(), queries.shift, logs)
    return _with_uniform(queries, logs, None, split.uniform, masses)[0] if split.uniform else logs


def log_partition_and_offset(queries: Queries, measure: Measure) -> tuple[FloatArray, FloatArray]:
    """log(Z(z) / M) - shift, (m,), and the attention-weighted mean of y - u, (m, d)."""
    split = measure.split
    points, masses = _sources(split)
    logs, offsets = np.empty(len(queries)), np.zeros(queries.directions.shape)
    if len(points):
        directions = np.ascontiguousarray(queries.directions)
        asked = (directions, queries.radii, points, masses, masses.sum(), queries.shift)
        over_rows(_log_partition_and_offset, len(queries), *asked, logs, offsets)
    if split.uniform:
        logs, mixed = _with_uniform(queries, logs, offsets, split.uniform, masses)
        return logs, offsets if mixed is None else mixed
    return logs, offsets


def _sources(split: Split) -> tuple[FloatArray, FloatArray]:
    """Points and masses that are summed over: those with mass, since a far mass could underflow beside a nearer point without any."""
    parts = [(part.points, part.masses, part.masses > 0) for part in split.rest]
    if len(parts) == 1 and parts[0][2].all():
        return parts[0][0], parts[0][1]
    points = np.concatenate([points[kept] for points, _, kept in parts])
    return points, np.concatenate([masses[kept] for _, masses, kept in parts])


def _with_uniform(
    queries: Queries, logs: FloatArray, offsets: FloatArray | None, uniform: float, masses: FloatArray
) -> tuple[FloatArray, FloatArray | None]:
    """Logarithms and offsets of the sums over the rest, together with the uniform part, whose integrals are exact:
    Z = u Lambda_0(r), and the weighted mean of y - u is (Lambda_1/Lambda_0 - 1) u."""
    d = queries.directions.shape[1]
    r = queries.radii if queries.radius is None else np.asarray(queries.radius)
    total = uniform + float(masses.sum())
    share = uniform / total
    exact = log_lambda(d, 0, r)
    if not len(masses):
        logs = np.full(len(queries), -np.inf)
    with np.errstate(divide="ignore", over="ignore"):
        of_rest, of_uniform = np.log1p(-share) + logs, np.log(share) + exact - queries.shift
        small = np.log1p((1 - share) * np.expm1(logs) + share * np.expm1(exact))
    joined = np.where(r < SMALL_RADIUS, small, np.logaddexp(of_rest, of_uniform))
    if offsets is None:
        return joined, None
    along = np.exp(of_uniform - joined) * (bessel_ratio(d / 2 - 1, r) - 1)
    return joined, np.exp(of_rest - joined)[:, None] * offsets + along[:, None] * queries.directions


@compiled
def _inner(a, b):
    total = 0.0
    for k in range(len(a)):
        total += a[k] * b[k]
    return total


@compiled
def _squared_distance(a, b):
    total = 0.0
    for k in range(len(a)):
        difference = a[k] - b[k]
        total += difference * difference
    return total


@compiled
def _compensated(total, carry, term):
    """Kahan's sum of one more term."""
    corrected = term - carry
    result = total + corrected
    return result, (result - total) - corrected


@compiled
def _nearest(direction, points):
    """The squared distance to the nearest point."""
    nearest = np.inf
    for j in range(len(points)):
        nearest = min(nearest, _squared_distance(direction, points[j]))
    return nearest


@compiled
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


@compiled
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
