"""Which method runs a system: the one for a name; and two methods one after the other, for cells and for points alone."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from meanfield_pde import inputs
from meanfield_pde.stepping.adaptive import Adaptive
from meanfield_pde.stepping.ssp import SSP, TABLEAUS
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


def resolve_stepper(stepper: "str | Stepper | None", cfl: float | None, system: System[Any]) -> Stepper:
    """The stepper object for a name ("euler", "ssprk2", "ssprk3", "dop853"), an object, or None for the system's default.

    A stepper that was resolved before comes back as it is. Raises ValueError for an unknown name, a cfl that the method has no use for, or
    a method that cannot keep the system's masses >= 0.
    """
    method = _resolved(system.default_stepper if stepper is None else stepper, cfl, system.rate_accuracy)
    if cfl is not None and system.courant_limit == np.inf:
        raise ValueError(f"cfl is {inputs.shown(cfl)} for {system.kind}, wanted None: they have no cells; give SSP(tableau, dt_max=...)")
    if system.courant_limit == np.inf:
        return method
    phased = method if isinstance(method, Phased) else Phased(method)
    if isinstance(phased.first, Adaptive):
        raise ValueError(f"stepper is 'dop853' for a {system.kind}, wanted one of {', '.join(TABLEAUS)}: it keeps no mass positive")
    return phased


def _resolved(name: "str | Stepper", cfl: float | None, rate_accuracy: float) -> Stepper:
    if not isinstance(name, str):
        inputs.having("stepper", name, f"{', '.join(TABLEAUS)}, dop853, or an object such as SSP(SSPRK3)", "begin", "describe")
        if cfl is not None:
            raise ValueError(f"cfl is {inputs.shown(cfl)} beside a stepper object, wanted it in the object: SSP(tableau, cfl=...)")
        return name
    inputs.choice("stepper", name, [*TABLEAUS, "dop853"])
    if name in TABLEAUS:
        return SSP(TABLEAUS[name], cfl=cfl)
    if cfl is not None:
        raise ValueError(f"cfl is {inputs.shown(cfl)}, wanted None with stepper 'dop853', which controls its error instead")
    return Adaptive(rtol=max(Adaptive.rtol, 100 * rate_accuracy), atol=max(Adaptive.atol, 9 * rate_accuracy))
