"""Many independent runs of few tokens with DOP853 (Hairer, Norsett, Wanner, Solving ODEs I), compiled as a whole.

Coefficients, error control and interpolant are those of scipy's, but every run has its own steps. (32 tokens on S^1, beta = 1 to 9, T = 30,
200 outputs, rtol = 1e-9: 700 velocities a run; RK45 with its interpolant takes 970, DOP853 with steps cut at the outputs 2 400.) One thread
computes a run from beginning to end in a fixed order, so that its result does not depend, to the last bit, on the other runs, on their
order or on the number of threads.

Data in: a `Softmax`, starts (R, n, d), masses (R, n), times (n_t,). Data out: tokens (R, n_t, n, d), how many velocities each run took, and
how runs failed.
"""

from typing import NamedTuple

import numpy as np
from scipy.integrate import DOP853

from meanfield_pde.sphere import FloatArray, IntArray
from meanfield_pde.stepping.stepper import SMALLEST_STEP
from meanfield_pde.stepping.summed import SQUARES, Failure, Softmax, compiled, divide_by_lengths, fail, rate_of
from meanfield_pde.threads import over_rows


class _Tables(NamedTuple):
    """Coefficients of DOP853. stages: the weights of all rates in each stage, the last of which is the new state; between: in the stages
    for the interpolant; errors: in the estimates of order 5 and 3; interpolant: in its terms from the fourth on."""

    stages: FloatArray
    between: FloatArray
    errors: FloatArray
    interpolant: FloatArray


STAGES = len(DOP853.B)
TABLES = _Tables(
    stages=np.pad(np.vstack([DOP853.A[1:], DOP853.B]), ((0, 0), (0, 4))),
    between=np.array(DOP853.A_EXTRA),
    errors=np.stack([DOP853.E5, DOP853.E3]),
    interpolant=np.array(DOP853.D),
)
EXPONENT = -1 / 8
SAFETY, SHRINK, GROW = 0.9, 0.2, 10.0
LANES = 8
"""Tokens are padded to a multiple of it with copies of the first, whose mass counts once, so that vector loops have no remainder."""
STATE, STAGE, SUMS = range(STAGES + 4, STAGES + 7)
TERMS = SUMS + 3
"""Rows of `vectors`, (.., d, n): the rates come first, then state and stage, three rows of scratch, and last the terms of the interpolant.
`rows` is the same as (.., d n)."""
TOO_SHORT = 3
"""How a run can fail while its velocities do not."""


def solve_compiled(
    model: Softmax, starts: FloatArray, masses: FloatArray, times: FloatArray, tolerances: tuple[float, float]
) -> tuple[FloatArray, IntArray, FloatArray]:
    """Tokens (R, n_t, n, d), numbers of velocities (R,) and failures (R, 4), rows as `Failure`; tolerances: rtol, atol."""
    n_runs, n, d = starts.shape
    tokens, evaluations = np.empty((n_runs, len(times), n, d)), np.zeros(n_runs, dtype=np.int64)
    failures = np.zeros((n_runs, len(Failure._fields)))
    asked = (model, TABLES, tolerances, starts, masses, times)
    over_rows(_runs, n_runs, *asked, tokens, evaluations, failures, minimum_rows=1)
    return tokens, evaluations, failures


@compiled
def _runs(first, last, model, tables, tolerances, starts, masses, times, tokens, evaluations, failures):
    _, n, d = starts.shape
    width = -(-n // LANES) * LANES
    vectors, numbers = np.empty((TERMS + 3 + len(tables.interpolant), d, width)), np.empty((5, width))
    rows = vectors.reshape(len(vectors), d * width)
    for run in range(first, last):
        for i in range(width):
            for k in range(d):
                vectors[STATE, k, i] = starts[run, i if i < n else 0, k]
        evaluations[run] = _run(model, tables, tolerances, masses[run], times, vectors, rows, numbers, tokens[run], failures[run])


@compiled
def _run(model, tables, tolerances, masses, times, vectors, rows, numbers, tokens, failure):
    """One run from its state to the last time; how many velocities it took."""
    t, t_end, saved, rejected = 0.0, times[-1], 0, False
    if times[0] == 0.0:
        _save(vectors[STATE], tokens[0])
        saved = 1
    if t_end == 0.0:
        return 0
    evaluations = 2
    step = _first_step(model, tolerances, t_end, masses, vectors, rows, numbers, failure)
    while t < t_end and failure[0] == 0:
        after = min(t + step, t_end)
        step = after - t
        if not (step >= SMALLEST_STEP * t_end or after == t_end):
            fail(failure, TOO_SHORT, np.argmax(np.abs(vectors[0].T)) // len(vectors[0]), step)
            break
        evaluations += len(tables.stages)
        if not _stages(model, tables.stages, step, masses, vectors, rows, numbers, vectors[1:], failure):
            break
        error = _error(len(masses), tables.errors, tolerances, step, vectors, rows)
        factor = SAFETY * error**EXPONENT
        if not error < 1:
            step *= factor if factor > SHRINK else SHRINK
            rejected = True
            continue
        if times[saved] < after:
            evaluations += len(tables.between)
            if not _stages(model, tables.between, step, masses, vectors, rows, numbers, vectors[STAGES + 1 :], failure):
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


@compiled
def _first_step(model, tolerances, t_end, masses, vectors, rows, numbers, failure):
    """Sets the first rate and proposes a step, as scipy does (Hairer, Norsett, Wanner, Solving ODEs I, II.4).

    If nothing moves yet, the proposal is a guess; it is never below the smallest step, so that it does not count as a failure.
    """
    rate, bend, n = vectors[0], vectors[1], len(masses)
    if not rate_of(model, vectors[STATE], masses, vectors[SUMS:TERMS], numbers, rate, failure):
        return 0.0
    size, speed = _norm(n, vectors[STATE], tolerances, vectors), _norm(n, rate, tolerances, vectors)
    trial = min(1e-6 if size < 1e-5 or speed < 1e-5 else 0.01 * size / speed, t_end)
    _move(rows[STATE], trial, rows[0], rows[STAGE])
    if not rate_of(model, vectors[STAGE], masses, vectors[SUMS:TERMS], numbers, bend, failure):
        return 0.0
    _move(rows[1], -1.0, rows[0], rows[1])
    largest = max(speed, _norm(n, bend, tolerances, vectors) / trial)
    step = min(100 * trial, max(1e-6, trial * 1e-3) if largest <= 1e-15 else (0.01 / largest) ** -EXPONENT, t_end)
    return step if step > SMALLEST_STEP * t_end else SMALLEST_STEP * t_end


@compiled
def _stages(model, weights, step, masses, vectors, rows, numbers, rates, failure):
    """Rates of some stages; whether all are finite."""
    for s in range(len(weights)):
        _combine(weights[s], step, rows)
        if not rate_of(model, vectors[STAGE], masses, vectors[SUMS:TERMS], numbers, rates[s], failure):
            return False
    return True


@compiled
def _error(n, weights, tolerances, step, vectors, rows):
    """Estimated error of a step to the state in STAGE over the tolerances, from estimates of order 5 and 3."""
    _add_up(weights[0], rows, rows[SUMS])
    _add_up(weights[1], rows, rows[SUMS + 1])
    of_fifth = _sum_of_squares(n, vectors[SUMS], tolerances, vectors[STATE], vectors[STAGE])
    of_third = _sum_of_squares(n, vectors[SUMS + 1], tolerances, vectors[STATE], vectors[STAGE])
    return 0.0 if of_fifth == 0.0 else step * of_fifth / np.sqrt((of_fifth + 0.01 * of_third) * n * len(vectors[STATE]))


@compiled
def _norm(n, values, tolerances, vectors):
    """Root mean square over the tolerances."""
    return np.sqrt(_sum_of_squares(n, values, tolerances, vectors[STATE], vectors[STATE]) / (n * len(values)))


@compiled
def _sum_of_squares(n, values, tolerances, state, after):
    """Of the first n tokens over the tolerances; the copies that fill the lanes do not count."""
    rtol, atol = tolerances
    total = 0.0
    for k in range(len(values)):
        for i in range(n):
            total += (values[k, i] / (atol + rtol * max(abs(state[k, i]), abs(after[k, i])))) ** 2
    return total


@compiled
def _save_between(tables, times, saved, t, after, vectors, rows, numbers, tokens):
    """Outputs before the end of a step, from the interpolant; how many are saved now."""
    step, terms = after - t, rows[TERMS:]
    _set_terms(tables, step, rows, terms)
    while times[saved] < after:
        _interpolate((times[saved] - t) / step, rows[STATE], terms, rows[STAGE])
        _save_projected(vectors[STAGE], vectors, numbers, tokens[saved])
        saved += 1
    return saved


@compiled
def _set_terms(tables, step, rates, terms):
    """What the interpolant is made of, from all rates of the step."""
    _add_up(tables.stages[-1], rates, terms[0])
    for p in range(len(tables.interpolant)):
        _add_up(tables.interpolant[p], rates, terms[3 + p])
    for a in range(terms.shape[1]):
        change, first, last = step * terms[0, a], rates[0, a], rates[STAGES, a]
        terms[0, a] = change
        terms[1, a] = step * first - change
        terms[2, a] = 2 * change - step * (first + last)
        for p in range(3, len(terms)):
            terms[p, a] *= step


@compiled
def _interpolate(place, state, terms, result):
    """The state at a place in [0, 1] of the step."""
    result[:] = 0.0
    for p in range(len(terms) - 1, -1, -1):
        factor = place if p % 2 == 0 else 1 - place
        for a in range(len(result)):
            result[a] = (result[a] + terms[p, a]) * factor
    _move(state, 1.0, result, result)


@compiled
def _combine(weights, step, rows):
    """STAGE = STATE + step * sum_s weight_s rate_s."""
    _add_up(weights, rows, rows[STAGE])
    _move(rows[STATE], step, rows[STAGE], rows[STAGE])


@compiled
def _add_up(weights, rates, total):
    """sum_s weight_s rate_s."""
    total[:] = 0.0
    for s in range(len(weights)):
        if weights[s] != 0.0:
            _move(total, weights[s], rates[s], total)


@compiled
def _move(values, step, rate, result):
    for a in range(len(values)):
        result[a] = values[a] + step * rate[a]


@compiled
def _copy(values, result):
    for a in range(len(values)):
        result[a] = values[a]


@compiled
def _save_projected(values, vectors, numbers, tokens):
    divide_by_lengths(values, numbers[SQUARES], vectors[SUMS])
    _save(vectors[SUMS], tokens)


@compiled
def _save(columns, tokens):
    for i in range(len(tokens)):
        for k in range(len(columns)):
            tokens[i, k] = columns[k, i]
