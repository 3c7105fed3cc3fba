"""The loop: rate, step, save, stop - the same for densities and tokens.

Data in: a system, a start, times. Data out: `Solution`. Output times are hit exactly; callbacks see every accepted step and only read.
"""

import json
import os
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import closing, contextmanager, nullcontext, suppress
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from meanfield_pde import inputs
from meanfield_pde.files.checkpoints import RUNNING, Checkpoint, CheckpointWriter, read_checkpoint
from meanfield_pde.measure import Measure
from meanfield_pde.progress import Progress, progress_bar
from meanfield_pde.recorder import Recorder
from meanfield_pde.solution import Solution
from meanfield_pde.sphere import FloatArray
from meanfield_pde.stepping.phased import resolve_stepper
from meanfield_pde.stepping.stepper import Integration, Stepper
from meanfield_pde.systems.system import SolveError, System

Callback = Callable[[float, Measure], object]
MOST_OUTPUTS = 10_000_000


def solve(
    system: System[Any],
    start: Any,
    t_end: float,
    *,
    save_every: float | None = None,
    save_at: ArrayLike | None = None,
    stepper: str | Stepper | None = None,
    cfl: float | None = None,
    callbacks: Iterable[Callback] = (),
    progress: bool | Progress = False,
    checkpoint: Checkpoint | None = None,
    record: Mapping[str, Any] | None = None,
) -> Solution:
    """Run a system from t = 0 to t_end > 0.

    start: what the system asks for: cell averages, tokens or a `Measure`. Outputs: 0, save_every, 2 save_every, .., t_end; or exactly
    the increasing times save_at in [0, t_end]; or 0 and t_end. stepper: "euler", "ssprk2", "ssprk3" (default for densities), "dop853"
    (default for tokens) or an object of `stepping`. cfl: outflow Courant number of the SSP methods, default 0.9 of the bound that keeps
    masses >= 0. callbacks: called with (t, measure) after each accepted step; a string they return ends the run and becomes its status.
    progress: True for a bar on a terminal's stderr, or a function of (t, t_end). checkpoint: where the run keeps itself as it goes, so that
    `resume` can take it up; in the end its file holds the results. record: plain values to keep in the solution's record.

    Raises ValueError for bad input and OverflowError for an unnormalised field beyond double precision, both before any step or file, and
    SolveError if a rate is not finite, the field grows beyond double precision, a mass becomes negative, the total mass drifts by more than
    1e-10 or a step falls below 1e-14 of the run (or 1e-8, in longer runs than 1e6). Every exception that ends a run, from a callback, a
    model or the keyboard, carries the `solution` so far, which `checkpoint` then holds: to be resumed, unless it is a SolveError.
    """
    inputs.having("system", system, "a MeanFieldPDE, a ParticleSystem or another system", "begin", "rate", "default_stepper")
    t_end = inputs.number("t_end", t_end, above=0.0)
    times = output_times(t_end, save_every, save_at)
    method = resolve_stepper(stepper, cfl, system)
    state = system.begin(start)
    watchers, report = _observers(callbacks, progress)
    if checkpoint is not None:
        inputs.instance("checkpoint", checkpoint, Checkpoint)
    given = {} if record is None else _checked_record(record)
    writer = None if checkpoint is None else CheckpointWriter(checkpoint, method, times, t_end)
    recorder = Recorder(system, method, state, given)
    return _finished(lambda: method.begin(system, state, 0.0, t_end), times, t_end, recorder, watchers, report, writer)


def resume(
    path: str | os.PathLike[str],
    *,
    callbacks: Iterable[Callback] = (),
    progress: bool | Progress = False,
    kinds: Iterable[type] = (),
) -> Solution:
    """Go on with a run from its newest whole checkpoint (see `solve`), which goes on keeping itself by the same rule.

    The result is that of the uninterrupted run, bit for bit, as long as the number of threads is the same; another number is recorded, as
    is where the run was taken up. Callbacks are not kept. kinds: classes of one's own (models, say) that the run was made with. Raises
    FileNotFoundError if there is no checkpoint, ValueError if none is whole or the run is over, and SolveError as `solve`.
    """
    stored = read_checkpoint(path, kinds)
    system = stored.solution.system
    watchers, report = _observers(callbacks, progress)
    recorder, writer = Recorder.resumed(stored), CheckpointWriter.resumed(stored)

    def begin() -> Integration:
        run = stored.stepper.resume(system, recorder.point.state, stored.memory, stored.t_end)
        recorder.hand_over(run)
        return run

    return _finished(begin, stored.times, stored.t_end, recorder, watchers, report, writer)


def output_times(t_end: float, save_every: float | None, save_at: ArrayLike | None, name: str = "save_at") -> FloatArray:
    """The output times of a run; those later than t_end by rounding alone are t_end. name: what messages call save_at.

    Raises ValueError if both rules are given, or times are not increasing within [0, t_end].
    """
    if save_every is not None and save_at is not None:
        raise ValueError("save_every and save_at are both given, wanted one of them")
    if save_at is not None:
        times = inputs.array(name, save_at, ("n_t",))
        if not len(times):
            raise ValueError(f"{name} is empty, wanted at least one time")
        inputs.increasing(name, times, "times")
        times = np.unique(np.where((times > t_end) & (times <= t_end * (1 + 1e-12)), t_end, times))
        if times[0] < 0 or times[-1] > t_end:
            first, last, end = map(inputs.exactly, (times[0], times[-1], t_end))
            raise ValueError(f"{name} runs from {first} to {last}, wanted times in [0, {end}]")
        return times
    if save_every is None:
        return np.array([0.0, t_end])
    interval = inputs.number("save_every", save_every, above=0.0)
    if t_end / interval > MOST_OUTPUTS:
        raise ValueError(f"save_every is {interval:g}, wanted at most {MOST_OUTPUTS} outputs until t_end = {t_end:g}")
    multiples = np.arange(int(t_end / interval * (1 + 1e-12)) + 1) * interval
    return np.append(multiples[multiples < t_end * (1 - 1e-12)], t_end)


def _observers(callbacks: Iterable[Callback], progress: bool | Progress) -> tuple[list[Callback], bool | Progress]:
    watchers = inputs.sequence("callbacks", callbacks, "a list of functions of (t, measure)")
    for i, watcher in enumerate(watchers):
        inputs.function(f"callbacks[{i}]", watcher, "a function of (t, measure)")
    return watchers, progress if callable(progress) else inputs.flag("progress", progress)


def _checked_record(record: Mapping[str, Any]) -> dict[str, Any]:
    """A copy, as a results file gives it back."""
    try:
        if isinstance(record, Mapping) and all(isinstance(name, str) for name in record):
            return dict(json.loads(json.dumps(dict(record), sort_keys=True)))
    except (TypeError, ValueError, RecursionError):
        pass
    raise ValueError(f"record is {inputs.shown(record)}, wanted names and plain values")


@contextmanager
def _kept(recorder: Recorder, writer: CheckpointWriter | None) -> Iterator[None]:
    """Whatever ends a run carries what was reached. It is kept in the file, too: to be resumed, unless the solver itself failed."""
    try:
        yield
    except BaseException as error:
        failed = isinstance(error, SolveError)
        error.solution = recorder.solution(f"failed: {error}" if failed else f"ended by {type(error).__name__}")  # type: ignore[attr-defined]
        if writer is not None and failed:
            writer.put(error.solution)  # type: ignore[attr-defined]
        elif writer is not None and writer.lags(recorder.point.t):
            with suppress(OSError):  # it may be the disk that ended the run
                _write(recorder, writer)
        raise


def _write(recorder: Recorder, writer: CheckpointWriter) -> None:
    point = recorder.point
    writer.write(recorder.solution(RUNNING), point.outputs, point.memory, point.work)


def _finished(
    begin: Callable[[], Integration],
    times: FloatArray,
    t_end: float,
    recorder: Recorder,
    watchers: list[Callback],
    progress: bool | Progress,
    writer: CheckpointWriter | None,
) -> Solution:
    """The solution of a run from where it begins."""
    system, status = recorder.system, ""
    stops = np.union1d(times, [*system.model.breaks, t_end])
    with closing(writer) if writer is not None else nullcontext():
        with progress_bar(progress, system.kind) as report, _kept(recorder, writer):
            run = begin()
            recorder.keep(run, times)
            while run.t < t_end and not status:
                if writer is not None and writer.due(run.t, recorder.point.steps):
                    _write(recorder, writer)
                before = run.t
                try:
                    run.advance(float(stops[np.searchsorted(stops, before, side="right")]))
                except OverflowError as error:
                    raise SolveError(f"{error}, in the step from t = {before:.9g}") from None
                recorder.log(run, run.t - before)
                recorder.keep(run, times)
                report(run.t, t_end)
                measure = system.measure(run.state)
                reasons = [reason for watcher in watchers if isinstance(reason := watcher(run.t, measure), str)]
                status = f"stopped at t = {run.t:.9g}: {reasons[0]}" if reasons else ""
            if writer is not None and status:
                _write(recorder, writer)
        solution = recorder.solution(status or "done")
        if writer is not None and not status:
            writer.finish(solution)
    return solution
