"""Many independent runs of few tokens, dx_i/dt = X[mu](x_i), mu = sum_j m_j delta_{x_j} (2312.10794, eq. SA / USA), as one array.

Every run has its own adaptive steps of DOP853. Where the velocity is compiled (`stepping.summed`) the runs are too (`stepping.compiled`),
many at a time, and the result of a run does not depend, to the last bit, on the other runs, on their order or on the number of threads.
The runs of any other model go one after the other, each as a `ParticleSystem`.

Data in: a velocity model, starts (R, n, d), times (n_t,). Data out: tokens (R, n_t, n, d). As in `ParticleSystem`, velocities are taken at
projected tokens and outputs are projected.
"""

from collections import Counter
from dataclasses import dataclass, field
from typing import Any, NoReturn

import numpy as np
from numpy.typing import ArrayLike

from meanfield_pde import inputs
from meanfield_pde.measure import Measure
from meanfield_pde.models.attention import Attention
from meanfield_pde.models.velocity import VelocityModel, as_model
from meanfield_pde.records import Record
from meanfield_pde.sphere import FloatArray, IntArray, normalise
from meanfield_pde.stepping.adaptive import Adaptive
from meanfield_pde.stepping.compiled import solve_compiled
from meanfield_pde.stepping.stepper import SMALLEST_STEP
from meanfield_pde.stepping.summed import NOT_FINITE, TOO_LARGE, Failure, Softmax, softmax_of
from meanfield_pde.systems.particles import MASS_TOLERANCE, ParticleSystem, Tokens
from meanfield_pde.systems.system import Rate, SolveError


@dataclass(frozen=True, eq=False)
class Ensemble(Record):
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


def solve_ensemble(
    model: VelocityModel | Any,
    starts: ArrayLike,
    times: ArrayLike,
    *,
    masses: ArrayLike | None = None,
    rtol: float = 1e-9,
    atol: float = 1e-12,
) -> Ensemble:
    """R runs of n tokens each from t = 0 to the last of the output times.

    model: an `Attention`, whose runs are compiled and shared among the threads, or any other velocity model, whose runs go one after the
    other. starts: (R, n, d), unit vectors. times: (n_t,), increasing and >= 0. masses: (R, n), >= 0, of total 1 in each run; None gives
    every token 1/n. rtol, atol: relative and absolute, of each step and coordinate, as scipy's; outputs within a step come from the
    interpolant, whose own error is of that size (measured: 95 % below it, at most 8 times).

    Raises ValueError for bad input before any step; OverflowError if an unnormalised velocity exceeds double precision; SolveError if a
    velocity is not finite or a step becomes too short: below 1e-14 of the run, or for other models than `Attention` below the spacing of
    floats. Both errors name the first such run and t.
    """
    model = as_model("model", model)
    tokens = inputs.array("starts", starts, ("R", "n", "d"))
    if not tokens.size:
        raise ValueError(f"starts has shape {tokens.shape}, wanted at least one run of one token")
    if model.dimension not in (None, tokens.shape[2]):
        raise ValueError(f"starts lie in R^{tokens.shape[2]}, wanted R^{model.dimension} like the model's matrices")
    inputs.unit_rows("starts", tokens, starts)
    tokens = normalise(tokens)
    n_runs, n, d = tokens.shape
    outputs = inputs.non_negatives("times", times, ("n_t",))
    if not len(outputs):
        raise ValueError("times is empty, wanted at least one time")
    inputs.increasing("times", outputs, "times")
    shares = np.full((n_runs, n), 1 / n) if masses is None else inputs.non_negatives("masses", masses, (n_runs, n))
    wrong = np.abs(shares.sum(axis=1) - 1) > MASS_TOLERANCE
    inputs.refuse(wrong, lambda run: f"masses[{run}] has total {shares[run].sum():.12g}, wanted 1")
    tolerances = inputs.number("rtol", rtol, low=2.3e-14, high=0.1), inputs.number("atol", atol, above=0.0)
    if type(model) is Attention:  # a class derived from it may have another velocity
        compiled = softmax_of(model, shares, d)
        saved, evaluations, failures = solve_compiled(compiled, tokens, shares, outputs, tolerances)
        failed = np.flatnonzero(failures[:, 0])
        if len(failed):
            _refuse(int(failed[0]), Failure(*failures[failed[0]].tolist()), compiled, outputs[-1])
    else:
        saved, evaluations = _one_by_one(model, tokens, shares, outputs, Adaptive(*tolerances))
    for array in (outputs, saved, shares, evaluations):
        array.setflags(write=False)
    return Ensemble(outputs, saved, shares, evaluations)


def _one_by_one(
    model: VelocityModel, starts: FloatArray, masses: FloatArray, times: FloatArray, stepper: Adaptive
) -> tuple[FloatArray, IntArray]:
    """Tokens (R, n_t, n, d) and numbers of velocities (R,) of runs that are not compiled."""
    n_runs, n, d = starts.shape
    tokens, evaluations = np.empty((n_runs, len(times), n, d)), np.zeros(n_runs, dtype=np.int64)
    for r in range(n_runs):
        system = _CountedTokens(model)
        run = stepper.begin(system, Tokens.of(Measure.trusted(starts[r], masses[r]), together=True), 0.0, float(times[-1]))
        try:
            for k, t in enumerate(times.tolist()):
                while run.t < t:
                    run.advance(t)
                tokens[r, k] = run.state_at(t).measure.points
        except SolveError as error:
            raise SolveError(f"run {r}: {error}") from error
        except OverflowError as error:
            raise OverflowError(f"run {r}: {error}, in the step from t = {run.t:.9g}") from error
        evaluations[r] = system.counted["velocities"]
    return tokens, evaluations


@dataclass(frozen=True, eq=False)
class _CountedTokens(ParticleSystem):
    """The tokens of one run, which count their velocities."""

    counted: Counter[str] = field(default_factory=Counter)

    def rate(self, t: float, state: Tokens) -> Rate:
        self.counted["velocities"] += 1
        return super().rate(t, state)


def _refuse(run: int, failure: Failure, softmax: Softmax, t_end: float) -> NoReturn:
    """Raises the error of a compiled run that failed."""
    where = f"token {failure.token:.0f} of run {run} at t = {failure.t:.9g}"
    if failure.kind == NOT_FINITE:
        raise SolveError(f"the velocity of {where} is not finite, wanted finite numbers")
    if failure.kind == TOO_LARGE:
        raise OverflowError(
            f"the unnormalised field at {where} reaches e^{failure.value:.4g} at beta = {softmax.beta:g}, beyond double precision; "
            f"use log_scale={softmax.beta:g} (time in units of e^-log_scale) or normalised=True"
        )
    raise SolveError(
        f"the step fell to {failure.value:.3g} for {where}, the fastest one, wanted a step of at least {SMALLEST_STEP * t_end:.3g}"
    )
