"""What a run remembers as it goes: outputs, one line a step, events, the last good state, and how it is made.

Data in: a run under way. Data out: its `Solution` so far, from which a checkpoint is written and a failed run hands back what it reached.
"""

import platform
import warnings
from collections import Counter
from collections.abc import Mapping
from importlib.metadata import version
from typing import Any

import numpy as np

from meanfield_pde.files.checkpoints import StoredCheckpoint
from meanfield_pde.solution import HISTORY_TYPE, Solution, event_type
from meanfield_pde.stepping.stepper import Integration, Stepper
from meanfield_pde.systems.atoms import Event
from meanfield_pde.systems.system import SolveError, System
from meanfield_pde.threads import thread_count

LARGEST_DRIFT = 1e-10
"""Of the total mass, in a run."""
PINNED = "a cluster is narrower than the mesh, which holds it fast; atoms=True lets it move on"


class PinnedWarning(UserWarning):
    """A run without atoms is wrong from here on."""


class Recorder:
    """Collects outputs and steps of one run. state: the last good one. times: of the outputs. steps: rows of the history, one for each
    accepted step. given: what the caller wants kept in the record."""

    def __init__(self, system: System[Any], stepper: Stepper, start: Any, given: Mapping[str, Any]) -> None:
        self.system, self._stepper, self._given = system, stepper, dict(given)
        self.state, self._t, self._mass = start, 0.0, system.measure(start).total
        self.times: list[float] = []
        self.steps: list[tuple[float, ...]] = []
        self._origin: dict[str, Any] = {"threads": thread_count()}
        self._states: list[Any] = []
        self._events: list[Any] = []
        self._work: Counter[str] = Counter()

    @classmethod
    def resumed(cls, earlier: StoredCheckpoint) -> "Recorder":
        """The recorder of a run as its checkpoint left it."""
        solution = earlier.solution
        result = cls(solution.system, earlier.stepper, solution.stored(0), solution.record)
        result.state, result._t = solution.stored(-1), float(solution.times[-1])
        result.times = solution.times[: earlier.outputs].tolist()
        result._states = [solution.stored(k) for k in range(earlier.outputs)]
        result.steps = [tuple(row) for row in solution.history.tolist()]
        result._events = [Event(t, kind, tuple(place), *rest) for t, kind, place, *rest in solution.events.tolist()]
        result._work = Counter(earlier.work)
        where = f"t = {solution.times[-1]:.9g}"
        before, now = solution.record["threads"], thread_count()
        result._origin["threads"] = before if str(before).split()[-1] == str(now) else f"{before}, from {where} on {now}"
        taken_up = [solution.record["resumed"]] if "resumed" in solution.record else []
        result._origin["resumed"] = ", ".join([*taken_up, f"{where} ({earlier.source.name})"])
        return result

    def hand_over(self, run: Integration) -> None:
        """Tells a run that goes on what happened before, and how many points were evaluated."""
        run.work.clear()
        run.work.update(self._work)
        self._work = run.work
        run.events.extend(self._events)

    def save(self, t: float, state: Any) -> None:
        """An output."""
        self.times.append(t)
        self._states.append(self.system.restored(self.system.columns([state]), 0))  # a copy, without what the state has worked out

    def log(self, run: Integration, dt: float) -> None:
        """An accepted step. Raises SolveError if the mass drifts."""
        system, state = self.system, run.state
        mass = system.measure(state).total
        if abs(mass - self._mass) > LARGEST_DRIFT:
            raise SolveError(f"the mass is {mass:.15g} at t = {run.t:.9g}, wanted {self._mass:.15g} within {LARGEST_DRIFT:g}")
        self.state, self._t, self._work = state, run.t, run.work
        new = run.events[len(self._events) :]
        for event in new:
            if event.kind == "pinned":
                warnings.warn(f"pinned from t = {event.t:.6g}: {PINNED}", PinnedWarning, stacklevel=4)
        self._events += new
        energy, seen = system.energy(run.t, state, run.rate), system.statistics(state)
        counts = float(seen.atoms), float(seen.clusters)
        self.steps.append((run.t, dt, mass, energy.value, energy.log, seen.minimum, *counts, seen.cell_mass))

    def solution(self, status: str) -> Solution:
        """The run so far; of one that is not done, the last good state is a further output."""
        times, states = self.times, self._states
        if status != "done" and not (times and times[-1] >= self._t):
            times, states = [*times, self._t], [*states, self.state]
        d = self.system.measure(self.state).dimension
        work = ", ".join(f"{count} by {name}" for name, count in sorted(self._work.items()) if count)
        method = {"stepper": self._stepper.describe()} | self.system.described() | ({"points evaluated": work} if work else {})
        return Solution(
            system=self.system,
            times=np.array(times),
            columns=self.system.columns(states),
            history=np.array(self.steps, dtype=HISTORY_TYPE).view(np.recarray),
            events=np.array(self._events, dtype=event_type(d)).view(np.recarray),
            status=status,
            record=self._given | method | {"versions": versions()} | self._origin,
        )


def versions() -> dict[str, str]:
    """What a result was made with: this package, those that compute, and Python."""
    packages = {name: version(name) for name in ("meanfield-pde", "numpy", "scipy", "numba", "ducc0")}
    return packages | {"python": platform.python_version()}
