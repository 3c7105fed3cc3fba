"""The compiled velocity of softmax attention in a few tokens, dx_i/dt = X[mu](x_i), mu = sum_j m_j delta_{x_j} (2312.10794, SA / USA).

The velocity is summed here anew, as a reference for `models.attention`. With beta B x = r u and <z, y> = r - r |u - y|^2 / 2, exponents are
taken from distances and shifted by that of the nearest token; what is averaged is y - u. Each token is added to the sums of all others at
once and e^x is a polynomial, so that the innermost loops become vector instructions: for 32 tokens that takes less than half the time of
half as many exponentials from the library, which the symmetry of the weights would allow.

Data in: an `Attention` as a `Softmax`, and tokens as columns (d, n). Data out: their velocities (d, n), or why there are none.
"""

import math
from functools import partial
from typing import NamedTuple

import numpy as np
from numba import njit

from meanfield_pde import threads
from meanfield_pde.models.attention import LARGEST_LOG, Attention
from meanfield_pde.sphere import FloatArray

LN2_HIGH, LN2_LOW = 6.93147180369123816490e-01, 1.90821492927058770002e-10
"""ln 2 in two parts, the first short enough for exact multiples (fdlibm)."""
PER_LN2 = 1 / math.log(2)
ROUNDER = 1.5 * 2.0**52
"""Added to a number and subtracted again, it leaves the nearest integer."""
SERIES = tuple(1 / math.factorial(k) for k in range(13, -1, -1))
SMALLEST_EXPONENT = -708.0
"""Below it e^x counts as 0."""
POINTS, DIRECTIONS, OFFSETS = range(3)
"""Rows of `sums`, (3, d, n), the scratch of a velocity: tokens on the sphere, directions u, weighted means."""
RADII, NEAREST, SQUARES, WEIGHTS, TOTALS = range(5)
"""Rows of `numbers`, (5, n)."""
NOT_FINITE, TOO_LARGE = 1, 2
"""How a velocity can fail."""

compiled = partial(threads.compiled, error_model="numpy")


class Softmax(NamedTuple):
    """An attention as the kernel sees it. matrix: beta B (d, d); none (0, 0) where it is multiple * I. value: V (d, d); none for I."""

    beta: float
    matrix: FloatArray
    multiple: float
    value: FloatArray
    isotropic: bool
    normalised: bool
    log_scale: float
    nearest_is_self: bool


class Failure(NamedTuple):
    """kind: 0 for none. value: the logarithm of a velocity, or the step."""

    kind: float
    token: float
    t: float
    value: float


def softmax_of(attention: Attention, masses: FloatArray, d: int) -> Softmax:
    """The attention in R^d for runs of tokens with these masses (R, n)."""
    identity, none = np.eye(d), np.empty((0, 0))
    query, key = (identity if matrix is None else matrix for matrix in (attention.query, attention.key))
    matrix = attention.beta * (key.T @ query)
    multiple = float(matrix[0, 0])
    aligned = np.array_equal(matrix, multiple * identity)
    value = none if attention.value is None else np.array(attention.value)
    return Softmax(
        beta=attention.beta,
        matrix=none if aligned else matrix,
        multiple=multiple,
        value=value,
        isotropic=attention.is_isotropic,
        normalised=attention.normalised,
        log_scale=attention.log_scale,
        nearest_is_self=bool(aligned and multiple >= 0 and masses.all()),
    )


@compiled
def fail(failure, kind, token, value):
    failure[0], failure[1], failure[3] = kind, token, value


@compiled
def rate_of(softmax, values, masses, sums, numbers, rate, failure):
    """Velocities (d, n) at the values, projected to the sphere; whether they are finite."""
    divide_by_lengths(values, numbers[SQUARES], sums[POINTS])
    _set_queries(softmax, sums[POINTS], sums[OFFSETS], sums[DIRECTIONS], numbers[RADII])
    _set_nearest(softmax, masses, sums, numbers)
    _add_sources(masses, sums, numbers)
    return _set_outputs(softmax, sums, numbers, failure) and _project(softmax, sums, numbers[SQUARES], rate, failure)


@compiled
def divide_by_lengths(values, lengths, units):
    d, n = values.shape
    lengths[:] = 0.0
    for k in range(d):
        for i in range(n):
            lengths[i] += values[k, i] * values[k, i]
    np.sqrt(lengths, lengths)
    for k in range(d):
        for i in range(n):
            units[k, i] = values[k, i] / lengths[i]


@compiled
def _multiply(matrix, vectors, products):
    d, n = vectors.shape
    products[:] = 0.0
    for k in range(d):
        for c in range(d):
            for i in range(n):
                products[k, i] += matrix[k, c] * vectors[c, i]


@compiled
def _set_queries(softmax, points, products, directions, radii):
    """beta B x = radius * direction."""
    d, n = points.shape
    if len(softmax.matrix):
        _multiply(softmax.matrix, points, products)
        divide_by_lengths(products, radii, directions)
        for i in range(n):
            if radii[i] == 0.0:
                directions[:, i] = 0.0
                directions[0, i] = 1.0
        return
    sign = 1.0 if softmax.multiple >= 0 else -1.0
    radii[:] = sign * softmax.multiple
    for k in range(d):
        for i in range(n):
            directions[k, i] = sign * points[k, i]


@compiled
def _set_nearest(softmax, masses, sums, numbers):
    """Squared distances (n,) of directions to the nearest token with mass: 0, its own, where B = c I, c >= 0."""
    nearest, squares = numbers[NEAREST], numbers[SQUARES]
    nearest[:] = 0.0 if softmax.nearest_is_self else np.inf
    if softmax.nearest_is_self:
        return
    for j in range(len(masses)):
        if masses[j] > 0:
            _set_squares(sums[DIRECTIONS], sums[POINTS], j, squares)
            for i in range(len(nearest)):
                nearest[i] = min(nearest[i], squares[i])


@njit(inline="always", error_model="numpy")
def _set_squares(directions, points, j, squares):
    """Squared distances (n,) of all directions to point j."""
    d, n = points.shape
    squares[:] = 0.0
    for k in range(d):
        coordinate = points[k, j]
        for i in range(n):
            difference = coordinate - directions[k, i]
            squares[i] += difference * difference


@compiled
def _add_sources(masses, sums, numbers):
    """TOTALS = sum_j m_j e^{<z, y_j> - that of the nearest}, OFFSETS = the same sum with y_j - u."""
    points, directions, offsets = sums[POINTS], sums[DIRECTIONS], sums[OFFSETS]
    radii, nearest, squares, weights, totals = numbers[RADII], numbers[NEAREST], numbers[SQUARES], numbers[WEIGHTS], numbers[TOTALS]
    d, n = points.shape
    totals[:] = 0.0
    offsets[:] = 0.0
    for j in range(len(masses)):
        if masses[j] == 0:
            continue
        _set_squares(directions, points, j, squares)
        for i in range(n):
            weights[i] = masses[j] * _exponential(radii[i] / 2 * (nearest[i] - squares[i]))
            totals[i] += weights[i]
        for k in range(d):
            coordinate = points[k, j]
            for i in range(n):
                offsets[k, i] += weights[i] * (coordinate - directions[k, i])


@compiled
def _exponential(x):
    """e^x for x <= 0, to one unit in the last place: 2^k times a Taylor polynomial on |x - k ln 2| <= (ln 2)/2, without branches."""
    shifted = x * PER_LN2 + ROUNDER
    k = shifted - ROUNDER
    rest = (x - k * LN2_HIGH) - k * LN2_LOW
    series = 0.0
    for term in SERIES:
        series = series * rest + term
    scaled = np.float64(series).view(np.int64) + (np.float64(shifted).view(np.int64) << 52)
    return np.int64(scaled).view(np.float64) if x > SMALLEST_EXPONENT else 0.0


@compiled
def _set_outputs(softmax, sums, numbers, failure):
    """OFFSETS = the weighted mean of y - u or y, times Z e^-log_scale for USA; whether that is below overflow."""
    directions, offsets, totals, factors = sums[DIRECTIONS], sums[OFFSETS], numbers[TOTALS], numbers[WEIGHTS]
    d, n = offsets.shape
    for i in range(n):
        factors[i] = 1.0
        if not softmax.normalised:
            logarithm = np.log(totals[i]) + numbers[RADII, i] * (1 - numbers[NEAREST, i] / 2) - softmax.log_scale
            if logarithm > LARGEST_LOG:
                fail(failure, TOO_LARGE, i, logarithm)
                return False
            factors[i] = np.exp(logarithm)
    radial = 0.0 if softmax.isotropic else 1.0  # V maps it to a multiple of x if isotropic, whose rounding would hide a small velocity
    for k in range(d):
        for i in range(n):
            offsets[k, i] = factors[i] * (offsets[k, i] / totals[i] + radial * directions[k, i])
    return True


@compiled
def _project(softmax, sums, along, rate, failure):
    """rate = P_x V of the outputs; whether it is finite."""
    points, outputs = sums[POINTS], sums[OFFSETS]
    d, n = points.shape
    if len(softmax.value):
        outputs = sums[DIRECTIONS]
        _multiply(softmax.value, sums[OFFSETS], outputs)
    along[:] = 0.0
    for k in range(d):
        for i in range(n):
            along[i] += outputs[k, i] * points[k, i]
    wrong = 0
    for k in range(d):
        for i in range(n):
            rate[k, i] = outputs[k, i] - along[i] * points[k, i]
            wrong += not abs(rate[k, i]) < np.inf
    if wrong:
        fail(failure, NOT_FINITE, np.nonzero(~np.isfinite(rate.T))[0][0], 0.0)
    return wrong == 0
