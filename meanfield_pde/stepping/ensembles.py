"""Many independent runs of few tokens, dx_i/dt = X[mu](x_i), mu = sum_j m_j delta_{x_j} (2312.10794, eq. SA / USA), as one array.

Every run has its own adaptive steps: DOP853 (Hairer, Norsett, Wanner, Solving ODEs I) with the coefficients, error control and interpolant
of scipy's. (32 tokens on S^1, beta = 1 to 9, T = 30, 200 outputs, rtol = 1e-9: 700 velocities a run; RK45 with its interpolant takes 970,
DOP853 with steps cut at the outputs 2 400.) One thread computes a run from beginning to end in a fixed order, so that its result does not
depend, to the last bit, on the other runs, on their order or on the number of threads.

The velocity is summed here anew, as a reference for `attention`. With beta B x = r u and <z, y> = r - r |u - y|^2 / 2, exponents are taken
from distances and shifted by that of the nearest token; what is averaged is y - u. Each token is added to the sums of all others at once
and e^x is a polynomial, so that the innermost loops become vector instructions: for 32 tokens that takes less than half the time of half as
many exponentials from the library, which the symmetry of the weights would allow.

Data in: an `Attention`, starts (R, n, d), times (n_t,). Data out: tokens (R, n_t, n, d). As in `ParticleSystem`, velocities are taken at
projected tokens and outputs are projected.
"""

import math
from dataclasses import dataclass
from typing import NamedTuple, NoReturn

import numpy as np
from numba import njit
from numpy.typing import ArrayLike
from scipy.integrate import DOP853

from meanfield_pde import inputs
from meanfield_pde.measure import Measure
from meanfield_pde.models.attention import LARGEST_LOG, Attention
from meanfield_pde.records import equal
from meanfield_pde.sphere import FloatArray, IntArray, normalise
from meanfield_pde.stepping.stepper import SMALLEST_STEP
from meanfield_pde.systems.particles import MASS_TOLERANCE
from meanfield_pde.systems.system import SolveError
from meanfield_pde.threads import over_rows


class _Tables(NamedTuple):
    """Coefficients of DOP853. stages: the weights of all rates in each stage, the last of which is the new state; between: in the stages
    for the interpolant; errors: in the estimates of order 5 and 3; interpolant: in its terms from the fourth on."""

    stages: FloatArray
    between: FloatArray
    errors: FloatArray
    interpolant: FloatArray


def _tables() -> _Tables:
    stages = np.zeros((STAGES, STAGES + 4))
    stages[:-1, :STAGES], stages[-1, :STAGES] = DOP853.A[1:], DOP853.B
    return _Tables(stages, np.array(DOP853.A_EXTRA), np.stack([DOP853.E5, DOP853.E3]), np.array(DOP853.D))


STAGES = len(DOP853.B)
TABLES = _tables()
EXPONENT = -1 / 8
SAFETY, SHRINK, GROW = 0.9, 0.2, 10.0

LN2_HIGH, LN2_LOW = 6.93147180369123816490e-01, 1.90821492927058770002e-10
"""ln 2 in two parts, the first short enough for exact multiples (fdlibm)."""
PER_LN2 = 1 / math.log(2)
ROUNDER = 1.5 * 2.0**52
"""Added to a number and subtracted again, it leaves the nearest integer."""
SERIES = tuple(1 / math.factorial(k) for k in range(13, -1, -1))
SMALLEST_EXPONENT = -708.0
"""Below it e^x counts as 0."""

LANES = 8
"""Tokens are filled up to a multiple of it by copies of the first, as targets only, so that no loop has a remainder."""

POINTS, DIRECTIONS, OFFSETS, STATE, STAGE, TERMS = range(STAGES + 4, STAGES + 10)
"""Rows of `vectors`, (.., d, n): the rates come first, then these, last the terms of the interpolant. `rows` is the same as (.., d n)."""
RADII, NEAREST, SQUARES, WEIGHTS, TOTALS = range(5)
"""Rows of `numbers`, (5, n)."""

NOT_FINITE, TOO_LARGE, TOO_SHORT = 1, 2, 3
"""How a run can fail."""


@dataclass(frozen=True, eq=False)
class Ensemble:
    """Independent runs at common output times.

    times: (n_t,). tokens: (R, n_t, n, d), unit vectors. masses: (R, n). evaluations: (R,), how many velocities of all its tokens each run
    took. Arrays are read-only.
    """

    times: FloatArray
    tokens: FloatArray
    masses: FloatArray
    evaluations: IntArray

    def measure(self, run: int, k: int) -> Measure:
        """The measure of a run at output k (negative numbers count from the end). Raises ValueError if there is no such run or output."""
        inputs.integer("run", run, low=-len(self.tokens), high=len(self.tokens) - 1)
        inputs.integer("k", k, low=-len(self.times), high=len(self.times) - 1)
        return Measure.trusted(self.tokens[run, k], self.masses[run])

    def __eq__(self, other: object) -> bool:
        return equal(self, other)


def solve_ensemble(
    attention: Attention,
    starts: ArrayLike,
    times: ArrayLike,
    *,
    masses: ArrayLike | None = None,
    rtol: float = 1e-9,
    atol: float = 1e-12,
) -> Ensemble:
    """R runs of n tokens each from t = 0 to the last of the output times.

    starts: (R, n, d), unit vectors. times: (n_t,), increasing and >= 0. masses: (R, n), >= 0, of total 1 in each run; None gives every
    token 1/n. rtol, atol: relative and absolute, of each step and coordinate, as scipy's; outputs within a step come from the interpolant,
    whose own error is of that size (measured: 95 % below it, at most 8 times). Runs are shared among the threads and keep their order.

    Raises ValueError for bad input before any step; OverflowError if an unnormalised velocity exceeds double precision; SolveError if a
    velocity is not finite or a step falls below 1e-14 of the run. Both name the first such run, a token and t.
    """
    if type(attention) is not Attention:
        raise ValueError(f"attention is the velocity model {type(attention).__name__}, wanted Attention: only its velocity is compiled")
    tokens = _starts(starts, attention)
    n_runs, n, d = tokens.shape
    outputs = _times(times)
    shares = _masses(masses, n_runs, n)
    tolerances = inputs.number("rtol", rtol, low=2.3e-14, high=0.1), inputs.number("atol", atol, above=0.0)
    saved, evaluations = np.empty((n_runs, len(outputs), n, d)), np.zeros(n_runs, dtype=np.int64)
    failures = np.zeros((n_runs, len(_Failure._fields)))
    asked = (_field(attention, shares, d), TABLES, tolerances, tokens, shares, outputs)
    over_rows(_runs, n_runs, *asked, saved, evaluations, failures, minimum_rows=1)
    failed = np.flatnonzero(failures[:, 0])
    if len(failed):
        _refuse(int(failed[0]), _Failure(*failures[failed[0]].tolist()), attention, outputs[-1])
    for array in (outputs, saved, shares, evaluations):
        array.setflags(write=False)
    return Ensemble(outputs, saved, shares, evaluations)


class _Field(NamedTuple):
    """An attention as the kernel sees it. matrix: beta B (d, d); none (0, 0) where it is multiple * I. value: V (d, d); none for I."""

    matrix: FloatArray
    multiple: float
    value: FloatArray
    isotropic: bool
    normalised: bool
    log_scale: float
    nearest_is_self: bool


class _Failure(NamedTuple):
    """kind: 0 for none. value: the logarithm of a velocity, or the step."""

    kind: float
    token: float
    t: float
    value: float


def _starts(starts: ArrayLike, attention: Attention) -> FloatArray:
    tokens = inputs.array("starts", starts, ("R", "n", "d"))
    if not tokens.size:
        raise ValueError(f"starts has shape {tokens.shape}, wanted at least one run of one token")
    if attention.dimension not in (None, tokens.shape[2]):
        raise ValueError(f"starts lie in R^{tokens.shape[2]}, wanted R^{attention.dimension} like the attention's matrices")
    inputs.unit_rows("starts", tokens)
    return normalise(tokens)


def _times(times: ArrayLike) -> FloatArray:
    outputs = inputs.array("times", times, ("n_t",))
    if not len(outputs):
        raise ValueError("times is empty, wanted at least one time")
    inputs.non_negative("times", outputs)
    if (np.diff(outputs) <= 0).any():
        (index,) = inputs.first_index(np.diff(outputs) <= 0)
        raise ValueError(f"times[{index + 1}] is {outputs[index + 1]:g} after {outputs[index]:g}, wanted increasing times")
    return outputs


def _masses(masses: ArrayLike | None, n_runs: int, n: int) -> FloatArray:
    if masses is None:
        return np.full((n_runs, n), 1 / n)
    shares = inputs.array("masses", masses, (n_runs, n))
    inputs.non_negative("masses", shares)
    wrong = np.abs(shares.sum(axis=1) - 1) > MASS_TOLERANCE
    if wrong.any():
        (run,) = inputs.first_index(wrong)
        raise ValueError(f"masses[{run}] has total {shares[run].sum():.12g}, wanted 1")
    return shares


def _field(attention: Attention, masses: FloatArray, d: int) -> _Field:
    identity, none = np.eye(d), np.empty((0, 0))
    query, key = (identity if matrix is None else matrix for matrix in (attention.query, attention.key))
    matrix = attention.beta * (key.T @ query)
    multiple = float(matrix[0, 0])
    aligned = np.array_equal(matrix, multiple * identity)
    value = none if attention.value is None else np.array(attention.value)
    return _Field(
        matrix=none if aligned else matrix,
        multiple=multiple,
        value=value,
        isotropic=attention.is_isotropic,
        normalised=attention.normalised,
        log_scale=attention.log_scale,
        nearest_is_self=bool(aligned and multiple >= 0 and masses.all()),
    )


def _refuse(run: int, failure: _Failure, attention: Attention, t_end: float) -> NoReturn:
    where = f"token {failure.token:.0f} of run {run} at t = {failure.t:.9g}"
    if failure.kind == NOT_FINITE:
        raise SolveError(f"the velocity of {where} is not finite, wanted finite numbers")
    if failure.kind == TOO_LARGE:
        raise OverflowError(
            f"the unnormalised field at {where} reaches e^{failure.value:.4g} at beta = {attention.beta:g}, beyond double precision; "
            f"use log_scale={attention.beta:g} (time in units of e^-log_scale) or normalised=True"
        )
    raise SolveError(
        f"the step fell to {failure.value:.3g} for {where}, the fastest one, wanted a step of at least {SMALLEST_STEP * t_end:.3g}"
    )


_compiled = njit(cache=True, nogil=True, error_model="numpy")


@_compiled
def _runs(first, last, field, tables, tolerances, starts, masses, times, tokens, evaluations, failures):
    _, n, d = starts.shape
    width = -(-n // LANES) * LANES
    vectors, numbers = np.empty((TERMS + 3 + len(tables.interpolant), d, width)), np.empty((5, width))
    rows = vectors.reshape(len(vectors), d * width)
    for run in range(first, last):
        for i in range(width):
            for k in range(d):
                vectors[STATE, k, i] = starts[run, i if i < n else 0, k]
        evaluations[run] = _run(field, tables, tolerances, masses[run], times, vectors, rows, numbers, tokens[run], failures[run])


@_compiled
def _run(field, tables, tolerances, masses, times, vectors, rows, numbers, tokens, failure):
    """One run from its state to the last time; how many velocities it took."""
    t, t_end, saved, rejected = 0.0, times[-1], 0, False
    if times[0] == 0.0:
        _save(vectors[STATE], tokens[0])
        saved = 1
    if t_end == 0.0:
        return 0
    evaluations = 2
    step = _first_step(field, tolerances, t_end, masses, vectors, rows, numbers, failure)
    while t < t_end and failure[0] == 0:
        after = min(t + step, t_end)
        step = after - t
        if not (step >= SMALLEST_STEP * t_end or after == t_end):
            _fail(failure, TOO_SHORT, _fastest(vectors[0]), step)
            break
        evaluations += len(tables.stages)
        if not _stages(field, tables.stages, step, masses, vectors, rows, numbers, vectors[1:], failure):
            break
        error = _error(len(masses), tables.errors, tolerances, step, vectors, rows)
        factor = SAFETY * error**EXPONENT
        if not error < 1:
            step *= factor if factor > SHRINK else SHRINK
            rejected = True
            continue
        if times[saved] < after:
            evaluations += len(tables.between)
            if not _stages(field, tables.between, step, masses, vectors, rows, numbers, vectors[STAGES + 1 :], failure):
                break
            saved = _save_between(tables, times, saved, t, after, vectors, rows, numbers, tokens)
        _combine(tables.stages[-1], step, rows)
        _copy(rows[STAGE], rows[STATE])
        _copy(rows[STAGES], rows[0])
        t = after
        step *= min(factor, 1.0 if rejected else GROW)
        rejected = False
        if times[saved] == t:
            _save_projected(vectors[STATE], vectors, numbers, tokens[saved])
            saved += 1
    failure[2] = t
    return evaluations


@_compiled
def _first_step(field, tolerances, t_end, masses, vectors, rows, numbers, failure):
    """Sets the first rate and proposes a step, as scipy does (Hairer, Norsett, Wanner, Solving ODEs I, II.4).

    Where nothing moves yet that is a guess, which must not count as too short.
    """
    rate, bend, n = vectors[0], vectors[1], len(masses)
    if not _rate(field, vectors[STATE], masses, vectors, numbers, rate, failure):
        return 0.0
    size, speed = _norm(n, vectors[STATE], tolerances, vectors), _norm(n, rate, tolerances, vectors)
    trial = min(1e-6 if size < 1e-5 or speed < 1e-5 else 0.01 * size / speed, t_end)
    _move(rows[STATE], trial, rows[0], rows[STAGE])
    if not _rate(field, vectors[STAGE], masses, vectors, numbers, bend, failure):
        return 0.0
    _move(rows[1], -1.0, rows[0], rows[1])
    largest = max(speed, _norm(n, bend, tolerances, vectors) / trial)
    step = min(100 * trial, max(1e-6, trial * 1e-3) if largest <= 1e-15 else (0.01 / largest) ** -EXPONENT, t_end)
    return step if step > SMALLEST_STEP * t_end else SMALLEST_STEP * t_end


@_compiled
def _stages(field, weights, step, masses, vectors, rows, numbers, rates, failure):
    """Rates of some stages; whether all are finite."""
    for s in range(len(weights)):
        _combine(weights[s], step, rows)
        if not _rate(field, vectors[STAGE], masses, vectors, numbers, rates[s], failure):
            return False
    return True


@_compiled
def _error(n, weights, tolerances, step, vectors, rows):
    """Estimated error of a step to the state in STAGE over the tolerances, from estimates of order 5 and 3."""
    rtol, atol = tolerances
    state, after, fifth, third = vectors[STATE], vectors[STAGE], vectors[POINTS], vectors[OFFSETS]
    _add_up(weights[0], rows, rows[POINTS])
    _add_up(weights[1], rows, rows[OFFSETS])
    of_fifth = of_third = 0.0
    for k in range(len(state)):
        for i in range(n):
            scale = atol + rtol * max(abs(state[k, i]), abs(after[k, i]))
            of_fifth += (fifth[k, i] / scale) ** 2
            of_third += (third[k, i] / scale) ** 2
    return 0.0 if of_fifth == 0.0 else step * of_fifth / np.sqrt((of_fifth + 0.01 * of_third) * n * len(state))


@_compiled
def _norm(n, values, tolerances, vectors):
    """Root mean square of the first n tokens over the tolerances; copies that fill the lanes do not count."""
    rtol, atol = tolerances
    state, total = vectors[STATE], 0.0
    for k in range(len(state)):
        for i in range(n):
            total += (values[k, i] / (atol + rtol * abs(state[k, i]))) ** 2
    return np.sqrt(total / (n * len(state)))


@_compiled
def _save_between(tables, times, saved, t, after, vectors, rows, numbers, tokens):
    """Outputs before the end of a step, from the interpolant; how many are saved now."""
    step, terms = after - t, rows[TERMS:]
    _set_terms(tables, step, rows, terms)
    while times[saved] < after:
        _interpolate((times[saved] - t) / step, rows[STATE], terms, rows[STAGE])
        _save_projected(vectors[STAGE], vectors, numbers, tokens[saved])
        saved += 1
    return saved


@_compiled
def _set_terms(tables, step, rates, terms):
    """What the interpolant is made of, from all rates of the step."""
    change, first, last = terms[0], rates[0], rates[STAGES]
    _add_up(tables.stages[-1], rates, change)
    for a in range(len(change)):
        change[a] *= step
        terms[1, a] = step * first[a] - change[a]
        terms[2, a] = 2 * change[a] - step * (first[a] + last[a])
    for p in range(len(tables.interpolant)):
        _add_up(tables.interpolant[p], rates, terms[3 + p])
        for a in range(len(change)):
            terms[3 + p, a] *= step


@_compiled
def _interpolate(place, state, terms, result):
    """The state at a place in [0, 1] of the step."""
    _fill(result, 0.0)
    for p in range(len(terms) - 1, -1, -1):
        factor = place if p % 2 == 0 else 1 - place
        for a in range(len(result)):
            result[a] = (result[a] + terms[p, a]) * factor
    _move(state, 1.0, result, result)


@_compiled
def _combine(weights, step, rows):
    """STAGE = STATE + step * sum_s weight_s rate_s."""
    _add_up(weights, rows, rows[STAGE])
    _move(rows[STATE], step, rows[STAGE], rows[STAGE])


@_compiled
def _add_up(weights, rates, total):
    """sum_s weight_s rate_s."""
    _fill(total, 0.0)
    for s in range(len(weights)):
        if weights[s] != 0.0:
            _move(total, weights[s], rates[s], total)


@_compiled
def _move(values, step, rate, result):
    for a in range(len(values)):
        result[a] = values[a] + step * rate[a]


@_compiled
def _copy(values, result):
    for a in range(len(values)):
        result[a] = values[a]


@_compiled
def _fill(values, value):
    for a in range(len(values)):
        values[a] = value


@_compiled
def _save_projected(values, vectors, numbers, tokens):
    _divide_by_lengths(values, numbers[SQUARES], vectors[POINTS])
    _save(vectors[POINTS], tokens)


@_compiled
def _save(points, tokens):
    n, d = tokens.shape
    for i in range(n):
        for k in range(d):
            tokens[i, k] = points[k, i]


@_compiled
def _fail(failure, kind, token, value):
    failure[0], failure[1], failure[3] = kind, token, value


@_compiled
def _fastest(rate):
    """The token with the largest component of its velocity."""
    d, n = rate.shape
    largest, token = 0.0, 0
    for i in range(n):
        for k in range(d):
            if abs(rate[k, i]) > largest:
                largest, token = abs(rate[k, i]), i
    return token


@_compiled
def _rate(field, values, masses, vectors, numbers, rate, failure):
    """Velocities (d, n) at the values, projected to the sphere; whether they are finite."""
    _divide_by_lengths(values, numbers[SQUARES], vectors[POINTS])
    _set_queries(field, vectors[POINTS], vectors[OFFSETS], vectors[DIRECTIONS], numbers[RADII])
    _set_nearest(field, masses, vectors, numbers)
    _add_sources(masses, vectors, numbers)
    return _set_outputs(field, vectors, numbers, failure) and _project(field, vectors, numbers[SQUARES], rate, failure)


@_compiled
def _divide_by_lengths(values, lengths, units):
    d, n = values.shape
    for i in range(n):
        lengths[i] = 0.0
    for k in range(d):
        for i in range(n):
            lengths[i] += values[k, i] * values[k, i]
    for i in range(n):
        lengths[i] = np.sqrt(lengths[i])
    for k in range(d):
        for i in range(n):
            units[k, i] = values[k, i] / lengths[i]


@_compiled
def _multiply(matrix, vectors, products):
    d, n = vectors.shape
    for k in range(d):
        for i in range(n):
            products[k, i] = 0.0
        for c in range(d):
            for i in range(n):
                products[k, i] += matrix[k, c] * vectors[c, i]


@_compiled
def _set_queries(field, points, products, directions, radii):
    """beta B x = radius * direction."""
    d, n = points.shape
    if len(field.matrix):
        _multiply(field.matrix, points, products)
        _divide_by_lengths(products, radii, directions)
        for i in range(n):
            if radii[i] == 0.0:
                for k in range(d):
                    directions[k, i] = 1.0 if k == 0 else 0.0
        return
    sign = 1.0 if field.multiple >= 0 else -1.0
    for i in range(n):
        radii[i] = sign * field.multiple
    for k in range(d):
        for i in range(n):
            directions[k, i] = sign * points[k, i]


@_compiled
def _set_nearest(field, masses, vectors, numbers):
    """Squared distances (n,) of directions to the nearest token with mass: 0, its own, where B = c I, c >= 0."""
    nearest, squares = numbers[NEAREST], numbers[SQUARES]
    for i in range(len(nearest)):
        nearest[i] = 0.0 if field.nearest_is_self else np.inf
    if field.nearest_is_self:
        return
    for j in range(len(masses)):
        if masses[j] > 0:
            _set_squares(vectors[DIRECTIONS], vectors[POINTS], j, squares)
            for i in range(len(nearest)):
                nearest[i] = min(nearest[i], squares[i])


@njit(inline="always", error_model="numpy")
def _set_squares(directions, points, j, squares):
    """Squared distances (n,) of all directions to point j."""
    d, n = points.shape
    for i in range(n):
        squares[i] = 0.0
    for k in range(d):
        coordinate = points[k, j]
        for i in range(n):
            difference = coordinate - directions[k, i]
            squares[i] += difference * difference


@_compiled
def _add_sources(masses, vectors, numbers):
    """TOTALS = sum_j m_j e^{<z, y_j> - that of the nearest}, OFFSETS = the same sum with y_j - u."""
    points, directions, offsets = vectors[POINTS], vectors[DIRECTIONS], vectors[OFFSETS]
    radii, nearest, squares, weights, totals = numbers[RADII], numbers[NEAREST], numbers[SQUARES], numbers[WEIGHTS], numbers[TOTALS]
    d, n = points.shape
    for i in range(n):
        totals[i] = 0.0
    for k in range(d):
        for i in range(n):
            offsets[k, i] = 0.0
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


@_compiled
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


@_compiled
def _set_outputs(field, vectors, numbers, failure):
    """OFFSETS = the weighted mean of y - u or y, times Z e^-log_scale for USA; whether that is below overflow."""
    directions, offsets, totals, factors = vectors[DIRECTIONS], vectors[OFFSETS], numbers[TOTALS], numbers[WEIGHTS]
    d, n = offsets.shape
    for i in range(n):
        factors[i] = 1.0
        if not field.normalised:
            logarithm = np.log(totals[i]) + numbers[RADII, i] * (1 - numbers[NEAREST, i] / 2) - field.log_scale
            if logarithm > LARGEST_LOG:
                _fail(failure, TOO_LARGE, i, logarithm)
                return False
            factors[i] = np.exp(logarithm)
    radial = 0.0 if field.isotropic else 1.0  # V maps it to a multiple of x if isotropic, whose rounding would hide a small velocity
    for k in range(d):
        for i in range(n):
            offsets[k, i] = factors[i] * (offsets[k, i] / totals[i] + radial * directions[k, i])
    return True


@_compiled
def _project(field, vectors, along, rate, failure):
    """rate = P_x V of the outputs; whether it is finite."""
    points, outputs = vectors[POINTS], vectors[OFFSETS]
    d, n = points.shape
    if len(field.value):
        outputs = vectors[DIRECTIONS]
        _multiply(field.value, vectors[OFFSETS], outputs)
    for i in range(n):
        along[i] = 0.0
    for k in range(d):
        for i in range(n):
            along[i] += outputs[k, i] * points[k, i]
    wrong = 0
    for k in range(d):
        for i in range(n):
            rate[k, i] = outputs[k, i] - along[i] * points[k, i]
            wrong += not abs(rate[k, i]) < np.inf
    if wrong:
        _fail(failure, NOT_FINITE, _first_wrong(rate), 0.0)
    return wrong == 0


@_compiled
def _first_wrong(rate):
    d, n = rate.shape
    for i in range(n):
        for k in range(d):
            if not abs(rate[k, i]) < np.inf:
                return i
    return 0
