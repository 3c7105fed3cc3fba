"""Two methods one after the other: one for cells, and one for the slow motion of points alone."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from meanfield_pde.stepping.adaptive import Adaptive
from meanfield_pde.stepping.stepper import Stepper
from meanfield_pde.systems.system import Rate, System


@dataclass(frozen=True)
class Phased:
    """A method for states with cells, and another once a state is discrete: points alone, whose slow motion takes long steps."""

    first: Stepper
    then: Stepper = field(default_factory=Adaptive)

    def begin(self, system: System[Any], state: Any, t: float, t_end: float) -> "PhasedIntegration":
        return PhasedIntegration(self, system, state, t, t_end)

    def resume(self, system: System[Any], state: Any, memory: Mapping[str, Any], t_end: float) -> "PhasedIntegration":
        return PhasedIntegration(self, system, state, memory["t"], t_end, memory)

    def describe(self) -> str:
        return f"{self.first.describe()}; once all mass is in atoms {self.then.describe()}"


class PhasedIntegration:
    """A run that changes its method once."""

    def __init__(
        self, stepper: Phased, system: System[Any], state: Any, t: float, t_end: float, memory: Mapping[str, Any] | None = None
    ) -> None:
        self._stepper, self._system, self._t_end = stepper, system, t_end
        self._is_discrete = system.is_discrete(state)
        part = stepper.then if self._is_discrete else stepper.first
        self._run = part.begin(system, state, t, t_end) if memory is None else part.resume(system, state, memory, t_end)
        self.work, self.events = self._run.work, self._run.events

    @property
    def t(self) -> float:
        return self._run.t

    @property
    def state(self) -> Any:
        return self._run.state

    @property
    def rate(self) -> Rate | None:
        return None if self._is_discrete else self._run.rate

    def advance(self, t_stop: float) -> None:
        self._run.advance(t_stop)
        if not self._is_discrete and self._system.is_discrete(self.state):
            self._is_discrete = True
            self._run = self._stepper.then.begin(self._system, self.state, self.t, self._t_end)
            self._run.work, self._run.events = self.work, self.events

    def state_at(self, t: float) -> Any:
        return self._run.state_at(t)

    def memory(self) -> dict[str, Any]:
        return self._run.memory()
