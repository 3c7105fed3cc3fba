"""The loop: rate, step, save, stop - the same for densities and tokens.

Data in: a system, a start, times. Data out: `Solution`. Output times are hit exactly; callbacks see every accepted step and only read.
"""

import platform
import warnings
from collections import Counter
from collections.abc import Callable, Iterable
from importlib.metadata import version
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from meanfield_pde import inputs
from meanfield_pde.measure import Measure
from meanfield_pde.progress import Progress, progress_bar
from meanfield_pde.solution import HISTORY_TYPE, Solution, event_type
from meanfield_pde.sphere import FloatArray
from meanfield_pde.stepping import Integration, Stepper, resolve_stepper
from meanfield_pde.system import SolveError, System
from meanfield_pde.threads import thread_count

Callback = Callable[[float, Measure], object]
MOST_OUTPUTS = 10_000_000
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
) -> Solution:
    """Run a system from t = 0 to t_end > 0.

    start: what the system asks for: cell averages, tokens or a `Measure`. Outputs: 0, save_every, 2 save_every, .., t_end; or exactly
    the increasing times save_at in [0, t_end]; or 0 and t_end. stepper: "euler", "ssprk2", "ssprk3" (default for densities), "dop853"
    (default for tokens) or an object of `stepping`. cfl: outflow Courant number of the SSP methods, default 0.9 of the bound that keeps
    masses >= 0. callbacks: called with (t, measure) after each accepted step; a string they return ends the run and becomes its status.
    progress: True for a bar on a terminal's stderr, or a function of (t, t_end).

    Raises ValueError for bad input before any step, and SolveError (with the `solution` so far) if a rate is not finite, a mass
    becomes negative or a step falls below 1e-14 of the run.
    """
    t_end = inputs.number("t_end", t_end, above=0.0)
    times = output_times(t_end, save_every, save_at)
    method = resolve_stepper(stepper, cfl, system)
    state = system.begin(start)
    watchers = tuple(callbacks)
    recorder = _Recorder(system, method, state)
    with progress_bar(progress, system.kind) as report:
        try:
            run = method.begin(system, state, 0.0, t_end)
            status = _run(system, run, times, t_end, recorder, watchers, report)
        except SolveError as error:
            error.solution = recorder.solution(f"failed: {error}")
            raise
    return recorder.solution(status)


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


def _run(
    system: System[Any],
    run: Integration,
    times: FloatArray,
    t_end: float,
    recorder: "_Recorder",
    watchers: tuple[Callback, ...],
    report: Progress,
) -> str:
    saved, reason = 0, None
    while True:
        while saved < len(times) and times[saved] <= run.t:
            recorder.save(float(times[saved]), run.state_at(float(times[saved])))
            saved += 1
        if reason is not None:
            return reason
        if run.t >= t_end:
            return "done"
        before = run.t
        run.advance(float(times[saved]) if saved < len(times) else t_end)
        recorder.log(run, run.t - before)
        report(run.t, t_end)
        reason = _asked_to_stop(watchers, run.t, system.measure(run.state))


def _asked_to_stop(watchers: tuple[Callback, ...], t: float, measure: Measure) -> str | None:
    reasons = [reason for watcher in watchers if isinstance(reason := watcher(t, measure), str)]
    return f"stopped at t = {t:.9g}: {reasons[0]}" if reasons else None


class _Recorder:
    """Collects outputs and steps; keeps the last good state so that a failed run can hand it back."""

    def __init__(self, system: System[Any], stepper: Stepper, start: Any) -> None:
        self._system, self._stepper = system, stepper
        self._times: list[float] = []
        self._states: list[Any] = []
        self._steps: list[tuple[float, ...]] = []
        self._last = (0.0, start)
        self._work: Counter[str] = Counter()
        self._events: list[Any] = []

    def save(self, t: float, state: Any) -> None:
        if not self._times or t > self._times[-1]:
            self._times.append(t)
            self._states.append(state)

    def log(self, run: Integration, dt: float) -> None:
        self._last, self._work = (run.t, run.state), run.work
        new = run.events[len(self._events) :]
        for event in new:
            if event.kind == "pinned":
                warnings.warn(f"pinned from t = {event.t:.6g}: {PINNED}", PinnedWarning, stacklevel=4)
        self._events += new
        measure = self._system.measure(run.state)
        energy = self._system.energy(run.state, run.rate)
        self._steps.append((run.t, dt, measure.total, energy.value, energy.log, *self._system.tally(run.state)))

    def solution(self, status: str) -> Solution:
        if status != "done":
            self.save(*self._last)
        moving = self._system.kind == "tokens"
        d = self._system.measure(self._last[1]).dimension
        return Solution(
            system=self._system,
            times=np.array(self._times),
            masses=np.array([state.masses if moving else state.cells for state in self._states]),
            positions=np.array([state.points for state in self._states]) if moving else None,
            atom_states=() if moving else tuple(state.atoms for state in self._states),
            history=np.array(self._steps, dtype=HISTORY_TYPE).view(np.recarray),
            events=np.array(self._events, dtype=event_type(d)).view(np.recarray),
            status=status,
            record=_record(self._system, self._stepper, self._work),
        )


def _record(system: System[Any], stepper: Stepper, work: Counter[str]) -> dict[str, Any]:
    described = {"stepper": stepper.describe(), "threads": thread_count(), "method": str(system.method)}  # type: ignore[attr-defined]
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
    packages = {name: version(name) for name in ("meanfield-pde", "numpy", "scipy", "numba", "ducc0")}
    return described | {"versions": packages | {"python": platform.python_version()}}
