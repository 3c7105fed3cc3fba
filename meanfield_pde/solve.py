"""The loop: rate, step, save, stop - the same for densities and tokens.

Data in: a system, a start, times. Data out: `Solution`. Output times are hit exactly; callbacks see every accepted step and only read.
"""

import json
import os
import platform
import warnings
from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from importlib.metadata import version
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from meanfield_pde import inputs
from meanfield_pde.files.checkpoints import RUNNING, Checkpoint, Keeper, Kept, read_checkpoint
from meanfield_pde.measure import Measure
from meanfield_pde.progress import Progress, progress_bar
from meanfield_pde.solution import HISTORY_TYPE, Solution, event_type
from meanfield_pde.sphere import FloatArray
from meanfield_pde.stepping.choice import resolve_stepper
from meanfield_pde.stepping.stepper import Integration, Stepper
from meanfield_pde.systems.atoms import Event
from meanfield_pde.systems.density import Masses
from meanfield_pde.systems.system import SolveError, System
from meanfield_pde.threads import thread_count

Callback = Callable[[float, Measure], object]
MOST_OUTPUTS = 10_000_000
LARGEST_DRIFT = 1e-10
"""Of the total mass, in a run."""
PINNED = "a cluster is narrower than the mesh, which holds it fast; atoms=True lets it move on"


class PinnedWarning(UserWarning):
    """A run without atoms is wrong from here on."""


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
    SolveError (with the `solution` so far, which `checkpoint` then holds) if a rate is not finite, the field grows beyond double precision,
    a mass becomes negative, the total mass drifts by more than 1e-10 or a step falls below 1e-14 of the run (or 1e-8, in longer runs than
    1e6).
    """
    inputs.having("system", system, "a MeanFieldPDE, a ParticleSystem or another system", "begin", "rate", "default_stepper")
    t_end = inputs.number("t_end", t_end, above=0.0)
    times = output_times(t_end, save_every, save_at)
    method = resolve_stepper(stepper, cfl, system)
    state = system.begin(start)
    watchers, report = _watchers(callbacks), _checked_progress(progress)
    if checkpoint is not None:
        inputs.instance("checkpoint", checkpoint, Checkpoint)
    given = _checked_record(record)
    keeper = None if checkpoint is None else Keeper(checkpoint, method, times, t_end)
    recorder = _Recorder(system, method, state, given)
    return _finished(lambda: method.begin(system, state, 0.0, t_end), times, t_end, recorder, watchers, report, keeper)


def resume(path: str | os.PathLike[str], *, callbacks: Iterable[Callback] = (), progress: bool | Progress = False) -> Solution:
    """Go on with a run from its newest whole checkpoint (see `solve`), which goes on keeping itself by the same rule.

    The result is that of the uninterrupted run, bit for bit, as long as the number of threads is the same; another number is recorded, as
    is where the run was taken up. Callbacks are not kept. Raises FileNotFoundError if there is no checkpoint, ValueError if none is whole
    or the run is over, and SolveError as `solve`.
    """
    kept = read_checkpoint(path)
    system = kept.solution.system
    watchers, report = _watchers(callbacks), _checked_progress(progress)
    recorder = _Recorder.resumed(kept)
    keeper = Keeper.resumed(kept)

    def begin() -> Integration:
        run = kept.stepper.resume(system, recorder.state, kept.memory, kept.t_end)
        recorder.take_up(run, kept.work)
        return run

    return _finished(begin, kept.times, kept.t_end, recorder, watchers, report, keeper)


def output_times(t_end: float, save_every: float | None, save_at: ArrayLike | None) -> FloatArray:
    """The output times of a run. Raises ValueError if both rules are given, or times are not increasing within [0, t_end]."""
    if save_every is not None and save_at is not None:
        raise ValueError("save_every and save_at are both given, wanted one of them")
    if save_at is not None:
        times = inputs.array("save_at", save_at, ("n_t",))
        if not len(times):
            raise ValueError("save_at is empty, wanted at least one time")
        if times[0] < 0 or times[-1] > t_end:
            raise ValueError(f"save_at runs from {times[0]:g} to {times[-1]:g}, wanted times in [0, {t_end:g}]")
        if (np.diff(times) <= 0).any():
            (index,) = inputs.first_index(np.diff(times) <= 0)
            raise ValueError(f"save_at[{index + 1}] is {times[index + 1]:g} after {times[index]:g}, wanted increasing times")
        return times
    if save_every is None:
        return np.array([0.0, t_end])
    interval = inputs.number("save_every", save_every, above=0.0)
    if t_end / interval > MOST_OUTPUTS:
        raise ValueError(f"save_every is {interval:g}, wanted at most {MOST_OUTPUTS} outputs until t_end = {t_end:g}")
    multiples = np.arange(int(t_end / interval * (1 + 1e-12)) + 1) * interval
    return np.append(multiples[multiples < t_end * (1 - 1e-12)], t_end)


def _watchers(callbacks: Iterable[Callback]) -> tuple[Callback, ...]:
    watchers = tuple(inputs.sequence("callbacks", callbacks, "a list of functions of (t, measure)"))
    for i, watcher in enumerate(watchers):
        inputs.function(f"callbacks[{i}]", watcher, "a function of (t, measure)")
    return watchers


def _checked_record(record: Mapping[str, Any] | None) -> dict[str, Any]:
    """A copy, as a results file gives it back."""
    if record is None:
        return {}
    try:
        if isinstance(record, Mapping) and all(isinstance(name, str) for name in record):
            given = json.loads(json.dumps(dict(record), sort_keys=True))
            return dict(given)
    except (TypeError, ValueError, RecursionError):
        pass
    raise ValueError(f"record is {inputs.shown(record)}, wanted names and plain values")


def _checked_progress(progress: bool | Progress) -> bool | Progress:
    return progress if callable(progress) else inputs.flag("progress", progress)


def _finished(
    begin: Callable[[], Integration],
    times: FloatArray,
    t_end: float,
    recorder: "_Recorder",
    watchers: tuple[Callback, ...],
    progress: bool | Progress,
    keeper: Keeper | None,
) -> Solution:
    """The solution of a run from where it begins; a failed one is handed over as far as it went."""
    with progress_bar(progress, recorder.system.kind) as report:
        try:
            status = _run(begin(), times, t_end, recorder, watchers, report, keeper)
        except SolveError as error:
            error.solution = recorder.solution(f"failed: {error}")
            if keeper is not None:
                keeper.fail(error.solution)
            raise
    solution = recorder.solution(status)
    if keeper is not None and status == "done":
        keeper.finish(solution)
    return solution


def _run(
    run: Integration,
    times: FloatArray,
    t_end: float,
    recorder: "_Recorder",
    watchers: tuple[Callback, ...],
    report: Progress,
    keeper: Keeper | None,
) -> str:
    system, saved, reason = recorder.system, recorder.outputs, None
    while True:
        while saved < len(times) and times[saved] <= run.t:
            recorder.save(float(times[saved]), run.state_at(float(times[saved])))
            saved += 1
        if run.t >= t_end and reason is None:
            return "done"
        if keeper is not None and (reason is not None or keeper.due(run.t, recorder.steps)):
            keeper.write(recorder.solution(RUNNING), recorder.outputs, run.memory(), run.work)
        if reason is not None:
            return reason
        before = run.t
        try:
            run.advance(float(times[saved]) if saved < len(times) else t_end)
        except OverflowError as error:
            raise SolveError(f"{error}, in the step from t = {before:.9g}") from None
        recorder.log(run, run.t - before)
        report(run.t, t_end)
        reason = _asked_to_stop(watchers, run.t, system.measure(run.state))


def _asked_to_stop(watchers: tuple[Callback, ...], t: float, measure: Measure) -> str | None:
    reasons = [reason for watcher in watchers if isinstance(reason := watcher(t, measure), str)]
    return f"stopped at t = {t:.9g}: {reasons[0]}" if reasons else None


class _Recorder:
    """Collects outputs and steps; keeps the last good state so that a failed run can hand it back."""

    def __init__(self, system: System[Any], stepper: Stepper, start: Any, given: Mapping[str, Any]) -> None:
        self.system, self._stepper, self._given = system, stepper, dict(given)
        self._origin: dict[str, Any] = {"threads": thread_count()}
        self._times: list[float] = []
        self._states: list[Any] = []
        self._steps: list[tuple[float, ...]] = []
        self._last = (0.0, start)
        self._work: Counter[str] = Counter()
        self._events: list[Any] = []
        self._mass = system.measure(start).total

    @classmethod
    def resumed(cls, kept: Kept) -> "_Recorder":
        """The recorder of a run as its checkpoint left it."""
        solution, system = kept.solution, kept.solution.system
        recorder = cls(system, kept.stepper, _state(solution, -1), solution.record)
        recorder._mass = solution.measure(0).total
        recorder._last = (float(solution.times[-1]), recorder.state)
        recorder._times = solution.times[: kept.outputs].tolist()
        recorder._states = [_state(solution, k) for k in range(kept.outputs)]
        recorder._steps = [tuple(row) for row in solution.history.tolist()]
        recorder._events = [Event(t, kind, tuple(place), *rest) for t, kind, place, *rest in solution.events.tolist()]
        where = f"t = {solution.times[-1]:.9g}"
        before, now = solution.record["threads"], thread_count()
        recorder._origin["threads"] = before if str(before).split()[-1] == str(now) else f"{before}, from {where} on {now}"
        earlier = [solution.record["resumed"]] if "resumed" in solution.record else []
        recorder._origin["resumed"] = ", ".join([*earlier, f"{where} ({kept.source.name})"])
        return recorder

    @property
    def outputs(self) -> int:
        return len(self._times)

    @property
    def steps(self) -> int:
        return len(self._steps)

    @property
    def state(self) -> Any:
        """The last good one."""
        return self._last[1]

    def take_up(self, run: Integration, work: Mapping[str, int]) -> None:
        """Gives a run that goes on what it had counted and met before."""
        run.work.clear()
        run.work.update(work)
        self._work = run.work
        run.events.extend(self._events)

    def save(self, t: float, state: Any) -> None:
        if not self._times or t > self._times[-1]:
            self._times.append(t)
            self._states.append(state)

    def log(self, run: Integration, dt: float) -> None:
        measure = self.system.measure(run.state)
        if abs(measure.total - self._mass) > LARGEST_DRIFT:
            raise SolveError(f"the mass is {measure.total:.15g} at t = {run.t:.9g}, wanted {self._mass:.15g} within {LARGEST_DRIFT:g}")
        self._last, self._work = (run.t, run.state), run.work
        new = run.events[len(self._events) :]
        for event in new:
            if event.kind == "pinned":
                warnings.warn(f"pinned from t = {event.t:.6g}: {PINNED}", PinnedWarning, stacklevel=5)
        self._events += new
        energy = self.system.energy(run.state, run.rate)
        self._steps.append((run.t, dt, measure.total, energy.value, energy.log, *self.system.tally(run.state)))

    def solution(self, status: str) -> Solution:
        times, states = self._times, self._states
        if status != "done" and not (times and times[-1] >= self._last[0]):
            times, states = [*times, self._last[0]], [*states, self._last[1]]
        moving = self.system.kind == "tokens"
        d = self.system.measure(self._last[1]).dimension
        return Solution(
            system=self.system,
            times=np.array(times),
            masses=np.array([state.masses if moving else state.cells for state in states]),
            positions=np.array([state.points for state in states]) if moving else None,
            atom_states=() if moving else tuple(state.atoms for state in states),
            history=np.array(self._steps, dtype=HISTORY_TYPE).view(np.recarray),
            events=np.array(self._events, dtype=event_type(d)).view(np.recarray),
            status=status,
            record=self._given | _record(self.system, self._stepper, self._work) | self._origin,
        )


def _state(solution: Solution, k: int) -> Any:
    """The system's state at an output."""
    if solution.kind == "tokens":
        return solution.measure(k)
    return Masses(np.asarray(solution.masses[k]), solution.atom_states[k])


def _record(system: System[Any], stepper: Stepper, work: Counter[str]) -> dict[str, Any]:
    described = {"stepper": stepper.describe(), "method": str(system.method)}  # type: ignore[attr-defined]
    if work:
        described["points evaluated"] = ", ".join(f"{count} by {name}" for name, count in sorted(work.items()) if count)
    if system.kind == "density":
        mesh = system.mesh  # type: ignore[attr-defined]
        described |= {
            "mesh": f"{mesh.name}, {mesh.n_cells} cells, spacing {mesh.spacing:.4g}",
            "order": system.order,  # type: ignore[attr-defined]
            "atoms": system.atoms,  # type: ignore[attr-defined]
            "face velocity": system.face_velocity_form,  # type: ignore[attr-defined]
        }
    return described | {"versions": versions()}


def versions() -> dict[str, str]:
    """What a result was made with: this package, those that compute, and Python."""
    packages = {name: version(name) for name in ("meanfield-pde", "numpy", "scipy", "numba", "ducc0")}
    return packages | {"python": platform.python_version()}
