"""What a run remembers as it goes: outputs, one line a step, events, the last good state, and how it is made.

Data in: a run under way. Data out: its `Solution` so far, from which a checkpoint is written and a failed run hands back what it reached.
"""

import platform
import warnings
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field
from importlib.metadata import version
from typing import Any

import numpy as np

from meanfield_pde.files.checkpoints import StoredCheckpoint
from meanfield_pde.solution import HISTORY_TYPE, Solution, event_type
from meanfield_pde.sphere import FloatArray
from meanfield_pde.stepping.stepper import Integration, Stepper
from meanfield_pde.systems.atoms import Event
from meanfield_pde.systems.system import SolveError, System
from meanfield_pde.threads import thread_count

LARGEST_DRIFT = 1e-10
"""Of the total mass, in a run."""
PINNED = "a cluster is narrower than the mesh, which holds it fast; atoms=True lets it move on"


class PinnedWarning(UserWarning):
    """A run without atoms is wrong from here on."""


@dataclass(frozen=True)
class Point:
    """A time and state that a run can go on from: how many outputs, steps and events there were, what its integrator remembers, and how
    many points were evaluated."""

    t: float
    state: Any
    outputs: int = 0
    steps: int = 0
    events: int = 0
    memory: Mapping[str, Any] = field(default_factory=dict)
    work: Counter[str] = field(default_factory=Counter)


class Recorder:
    """Collects outputs and steps of one run. state: the last good one. times: of the outputs. steps: rows of the history, one for each
    accepted step. given: what the caller wants kept in the record."""

    def __init__(self, system: System[Any], stepper: Stepper, start: Any, given: Mapping[str, Any]) -> None:
        self.system, self._stepper, self._given = system, stepper, dict(given)
        self._mass = system.measure(start).total
        self._point = Point(0.0, start)
        self._times: list[float] = []
        self._steps: list[tuple[float, ...]] = []
        self._origin: dict[str, Any] = {"threads": thread_count()}
        self._states: list[Any] = []
        self._events: list[Any] = []

    @classmethod
    def resumed(cls, earlier: StoredCheckpoint) -> "Recorder":
        """The recorder of a run as its checkpoint left it."""
        solution = earlier.solution
        result = cls(solution.system, earlier.stepper, solution.stored(0), solution.record)
        result._times = solution.times[: earlier.outputs].tolist()
        result._states = [solution.stored(k) for k in range(earlier.outputs)]
        result._steps = [tuple(row) for row in solution.history.tolist()]
        result._events = [Event(t, kind, tuple(place), *rest) for t, kind, place, *rest in solution.events.tolist()]
        counts = len(result._times), len(result._steps), len(result._events)
        result._point = Point(float(solution.times[-1]), solution.stored(-1), *counts, earlier.memory, Counter(earlier.work))
        where = f"t = {solution.times[-1]:.9g}"
        before, now = solution.record["threads"], thread_count()
        result._origin["threads"] = before if str(before).split()[-1] == str(now) else f"{before}, from {where} on {now}"
        taken_up = [solution.record["resumed"]] if "resumed" in solution.record else []
        result._origin["resumed"] = ", ".join([*taken_up, f"{where} ({earlier.source.name})"])
        return result

    @property
    def point(self) -> "Point":
        """Where the run can go on from."""
        return self._point

    def hand_over(self, run: Integration) -> None:
        """Tells a run that goes on what happened before, and how many points were evaluated."""
        run.work.clear()
        run.work.update(self._point.work)
        run.events.extend(self._events)

    def keep(self, run: Integration, times: FloatArray) -> None:
        """The outputs that a run has reached, and the point it has: what happens in the next step changes neither."""
        while len(self._times) < len(times) and (t := float(times[len(self._times)])) <= run.t:
            columns = self.system.columns([run.state_at(t)])
            self._states.append(self.system.restored(columns, 0))  # a copy, without what the state has worked out
            self._times.append(t)
        counts = len(self._times), len(self._steps), len(self._events)
        self._point = Point(run.t, run.state, *counts, run.memory(), Counter(run.work))

    def log(self, run: Integration, dt: float) -> None:
        """An accepted step. Raises SolveError if the mass drifts."""
        system, state = self.system, run.state
        mass = system.measure(state).total
        if abs(mass - self._mass) > LARGEST_DRIFT:
            raise SolveError(f"the mass is {mass:.15g} at t = {run.t:.9g}, wanted {self._mass:.15g} within {LARGEST_DRIFT:g}")
        new = run.events[len(self._events) :]
        for event in new:
            if event.kind == "pinned":
                warnings.warn(f"pinned from t = {event.t:.6g}: {PINNED}", PinnedWarning, stacklevel=4)
        self._events += new
        energy, seen = system.energy(run.t, state, run.rate), system.statistics(state)
        counts = float(seen.atoms), float(seen.clusters)
        self._steps.append((run.t, dt, mass, energy.value, energy.log, seen.minimum, *counts, seen.cell_mass))

    def solution(self, status: str) -> Solution:
        """The run so far; of one that is not done, the last good state is a further output."""
        point = self._point
        times, states = self._times[: point.outputs], self._states[: point.outputs]
        if status != "done" and not (times and times[-1] >= point.t):
            times, states = [*times, point.t], [*states, point.state]
        d = self.system.measure(point.state).dimension
        work = ", ".join(f"{count} by {name}" for name, count in sorted(point.work.items()) if count)
        method = {"stepper": self._stepper.describe()} | self.system.described() | ({"points evaluated": work} if work else {})
        return Solution(
            system=self.system,
            times=np.array(times),
            columns=self.system.columns(states),
            history=np.array(self._steps[: point.steps], dtype=HISTORY_TYPE).view(np.recarray),
            events=np.array(self._events[: point.events], dtype=event_type(d)).view(np.recarray),
            status=status,
            record=self._given | method | {"versions": versions()} | self._origin,
        )


def versions() -> dict[str, str]:
    """What a result was made with: this package, those that compute, and Python."""
    packages = {name: version(name) for name in ("meanfield-pde", "numpy", "scipy", "numba", "ducc0")}
    return packages | {"python": platform.python_version()}
