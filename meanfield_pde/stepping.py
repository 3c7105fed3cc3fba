"""Time stepping: strong-stability-preserving Runge-Kutta tableaus for densities, an adaptive high-order method for tokens.

An SSP step is a convex combination of Euler steps of the same length, so that what one Euler step keeps (masses >= 0 up to a Courant
number) the whole step keeps. It is written here as one sum of rates, state + dt * sum_s b_s k_s, which leaves rounding without a
preferred sign. Source: Shu and Osher, J. Comput. Phys. 77 (1988); Hairer, Norsett, Wanner, Solving ODEs I (DOP853, through scipy).

Data in: a system and its state. Data out: accepted steps, each not beyond the next output time.
"""

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
from scipy.integrate import DOP853

from meanfield_pde import inputs
from meanfield_pde.sphere import FloatArray
from meanfield_pde.system import Rate, SolveError, System

DEFAULT_COURANT_SHARE = 0.9
"""Courant number over the system's limit, unless the user gives one."""

LONGEST_ANGLE = 0.2
"""No step is longer than this over the model's speed bound: growth out of equilibrium, where nothing moves yet, stays resolved."""

MOST_REJECTIONS = 100
SMALLEST_STEP = 1e-14
"""Shortest step over the length of the run; only a step cut for an output may be shorter."""
LONG_RUN = 1e6
"""Longer runs, most of which are steps of atoms alone, count as this long: their first steps are as short as ever."""


class Integration(Protocol):
    """A run under way."""

    work: Counter[str]
    """How many points all rates so far were evaluated at, by "sums" and by "transforms"."""
    events: list[Any]
    """What happened between steps so far."""

    @property
    def t(self) -> float: ...

    @property
    def state(self) -> Any: ...

    @property
    def rate(self) -> Rate | None:
        """The rate at `state`, where the method has it anyway."""
        ...

    def advance(self, t_stop: float) -> None:
        """One accepted step; fixed-step methods do not pass t_stop."""
        ...

    def state_at(self, t: float) -> Any:
        """The state at a time within the last step."""
        ...

    def memory(self) -> dict[str, Any]:
        """What a run that goes on from here needs beside the state: numbers and arrays."""
        ...


class Stepper(Protocol):
    """A method in time: settings, and how to begin a run with them."""

    def begin(self, system: System[Any], state: Any, t: float, t_end: float) -> Integration: ...

    def resume(self, system: System[Any], state: Any, memory: Mapping[str, Any], t_end: float) -> Integration:
        """The run that left this memory, as if it had never stopped."""
        ...

    def describe(self) -> str: ...


@dataclass(frozen=True)
class Tableau:
    """Butcher coefficients of an explicit method: stages c, rows of a below the diagonal, weights b."""

    name: str
    a: tuple[tuple[float, ...], ...]
    b: tuple[float, ...]
    c: tuple[float, ...]


EULER = Tableau("euler", ((),), (1.0,), (0.0,))
SSPRK2 = Tableau("ssprk2", ((), (1.0,)), (1 / 2, 1 / 2), (0.0, 1.0))
SSPRK3 = Tableau("ssprk3", ((), (1.0,), (1 / 4, 1 / 4)), (1 / 6, 1 / 6, 2 / 3), (0.0, 1.0, 1 / 2))
TABLEAUS = {tableau.name: tableau for tableau in (EULER, SSPRK2, SSPRK3)}


@dataclass(frozen=True)
class SSP:
    """Explicit SSP Runge-Kutta with steps from the outflow of the cells.

    cfl: Courant number, default 0.9 of the system's limit. Beyond the limit nothing but cfl and dt_max bounds the step, positivity is not
    guaranteed, and its loss ends the run. dt_max: longest step.
    """

    tableau: Tableau
    cfl: float | None = None
    dt_max: float = np.inf

    def __post_init__(self) -> None:
        inputs.instance("tableau", self.tableau, Tableau)
        if self.cfl is not None:
            object.__setattr__(self, "cfl", inputs.number("cfl", self.cfl, above=0.0))
        if not (isinstance(self.dt_max, float) and self.dt_max == np.inf):
            object.__setattr__(self, "dt_max", inputs.number("dt_max", self.dt_max, above=0.0))

    def begin(self, system: System[Any], state: Any, t: float, t_end: float) -> "SSPIntegration":
        return SSPIntegration(self, system, state, t, t_end)

    def resume(self, system: System[Any], state: Any, memory: Mapping[str, Any], t_end: float) -> "SSPIntegration":
        return SSPIntegration(self, system, state, memory["t"], t_end, memory["dt_min"])

    def describe(self) -> str:
        cfl = "default" if self.cfl is None else f"{self.cfl:g}"
        return f"{self.tableau.name}, cfl {cfl}" + (f", dt_max {self.dt_max:g}" if self.dt_max < np.inf else "")


class SSPIntegration:
    """A run with an SSP method. A step is redone, shorter, when a stage's Courant number exceeds the bound."""

    def __init__(self, stepper: SSP, system: System[Any], state: Any, t: float, t_end: float, dt_min: float | None = None) -> None:
        self._tableau, self._system = stepper.tableau, system
        limit = system.courant_limit
        self._courant = DEFAULT_COURANT_SHARE * limit if stepper.cfl is None else stepper.cfl
        self._bound = max(limit, self._courant)
        self._longest_angle = LONGEST_ANGLE if self._courant <= limit else np.inf
        self._dt_max, self._dt_min = stepper.dt_max, SMALLEST_STEP * min(t_end - t, LONG_RUN) if dt_min is None else dt_min
        self.t, self.state = t, state
        self.work: Counter[str] = Counter()
        self.events: list[Any] = []
        self.rate = self._rate(t, state)

    def advance(self, t_stop: float) -> None:
        remaining = t_stop - self.t
        wanted = self._longest_step()
        dt = remaining if wanted >= remaining else min(wanted, remaining / 2)
        for _ in range(MOST_REJECTIONS):
            if dt < min(self._dt_min, remaining):
                break
            state, courant = self._attempt(dt)
            if state is not None:
                self.t = t_stop if dt == remaining else self.t + dt
                self._system.check(self.t, state)
                self.state, happened = self._system.settle(self.t, state, self.rate, self.events)
                self.events += happened
                self.rate = self._rate(self.t, self.state)
                return
            dt *= DEFAULT_COURANT_SHARE * self._bound / courant
        raise SolveError(
            f"the step at t = {self.t:.9g} fell to {dt:.3g} and is still too long for cell {self.rate.worst}, "
            f"wanted an accepted step of at least {self._dt_min:.3g} within {MOST_REJECTIONS} tries"
        )

    def state_at(self, t: float) -> Any:
        return self.state

    def memory(self) -> dict[str, Any]:
        return {"t": self.t, "dt_min": self._dt_min}

    def _rate(self, t: float, state: Any) -> Rate:
        rate = self._system.rate(t, state)
        self.work += rate.work
        if not (np.isfinite(rate.outflow) and np.isfinite(rate.speed)):
            where = f" out of cell {rate.worst}" if self._system.courant_limit < np.inf else ""
            raise SolveError(
                f"the velocity{where} is not bounded in double precision at t = {t:.9g} (outflow rate {rate.outflow:.3g}, speed bound "
                f"{rate.speed:.3g}); use log_scale (time in units of e^-log_scale) or normalised=True for an unnormalised attention"
            )
        return rate

    def _longest_step(self) -> float:
        by_outflow = self._courant / self.rate.outflow if self.rate.outflow > 0 else np.inf
        by_speed = self._longest_angle / self.rate.speed if self.rate.speed > 0 else np.inf
        return min(by_outflow, by_speed, self._dt_max)

    def _attempt(self, dt: float) -> tuple[Any, float]:
        """The state after one step, or None and the Courant number that was too large."""
        system, tableau = self._system, self._tableau
        vector = system.pack(self.state)
        rates = [self.rate.change]
        courant = dt * self.rate.outflow
        for row, shift in zip(tableau.a[1:], tableau.c[1:], strict=True):
            t = self.t + shift * dt
            stage = system.unpack(_combined(vector, dt, row, rates), self.state)
            system.check(t, stage)
            rate = self._rate(t, stage)
            courant = max(courant, dt * rate.outflow)
            if courant > self._bound:
                return None, courant
            rates.append(rate.change)
        return system.unpack(_combined(vector, dt, tableau.b, rates), self.state), courant


@dataclass(frozen=True)
class Adaptive:
    """DOP853: order 8 with error control, for systems without a Courant limit. rtol, atol: per step, relative and absolute."""

    rtol: float = 1e-13
    atol: float = 1e-14

    def __post_init__(self) -> None:
        object.__setattr__(self, "rtol", inputs.number("rtol", self.rtol, low=2.3e-14, high=0.1))
        object.__setattr__(self, "atol", inputs.number("atol", self.atol, low=0.0))

    def begin(self, system: System[Any], state: Any, t: float, t_end: float) -> "AdaptiveIntegration":
        return AdaptiveIntegration(self, system, state, t, t_end)

    def resume(self, system: System[Any], state: Any, memory: Mapping[str, Any], t_end: float) -> "AdaptiveIntegration":
        run = AdaptiveIntegration(self, system, state, memory["t"], t_end)
        if "origin" in memory:
            run.remember(memory)
        return run

    def describe(self) -> str:
        return f"dop853, rtol {self.rtol:g}, atol {self.atol:g}"


class AdaptiveIntegration:
    """A run with DOP853; states between steps come from its dense output of order 7. What the system does to its state between steps
    is located in time, to rounding, and the integrator begins anew there.

    Its clock runs from where it began, and begins anew where steps fall below the spacing of floats: after t = 1e15 of rest clusters
    still merge within a time of 1.
    """

    rate: Rate | None = None

    def __init__(self, stepper: Adaptive, system: System[Any], state: Any, t: float, t_end: float) -> None:
        self._system, self._stepper, self._t_end = system, stepper, t_end
        self.work: Counter[str] = Counter()
        self.events: list[Any] = []
        self.t, self.state = t, state
        self._solver: Any = None
        self._dense: Any = None
        self._phase: Any = None
        self._interrupted = True

    def advance(self, t_stop: float) -> None:
        if self._interrupted:
            self._begin()
        message = self._solver.step()
        if self._solver.status == "failed" and self._solver.t > 0:
            self._begin()
            message = self._solver.step()
        if self._solver.status == "failed":
            raise SolveError(f"dop853 failed at t = {self.t:.9g}: {message}")
        self._before, self._dense = self.state, None
        elapsed, state = float(self._solver.t), self._system.unpack(self._solver.y, self.state)
        t = self._t_end if self._solver.status == "finished" else self._origin + elapsed
        self._system.check(t, state)
        if self._system.phase(state) != self._phase:
            elapsed = self._first_change(float(self._solver.t_old or 0.0), elapsed)
            t = min(self._origin + elapsed, self._t_end)
            state, happened = self._system.settle(t, self._between(elapsed), Rate(np.empty(0)), self.events)
            self.events += happened
            self._interrupted = True
        self.t, self.state = t, state

    def state_at(self, t: float) -> Any:
        return self.state if t == self.t else self._between(t - self._origin)

    def memory(self) -> dict[str, Any]:
        if self._interrupted:
            return {"t": self.t}
        solver = self._solver
        numbers = {"t": self.t, "origin": self._origin, "elapsed": float(solver.t), "step": float(solver.h_abs)}
        return numbers | {"vector": solver.y, "slope": solver.f}

    def remember(self, memory: Mapping[str, Any]) -> None:
        """Takes up scipy's integrator where the memory left it; the rates that beginning it took do not count."""
        t, self.t = self.t, memory["origin"]
        self._begin()
        self.t, solver = t, self._solver
        solver.t, solver.h_abs, solver.y, solver.f = memory["elapsed"], memory["step"], memory["vector"], memory["slope"]
        self.work.clear()

    def _begin(self) -> None:
        state, origin = self.state, self.t

        def velocity(elapsed: float, vector: Any) -> Any:
            rate = self._system.rate(origin + elapsed, self._system.unpack(vector, state))
            self.work += rate.work
            return rate.change

        tolerances = {"rtol": self._stepper.rtol, "atol": self._stepper.atol}
        self._solver = DOP853(velocity, 0.0, self._system.pack(state), self._t_end - origin, **tolerances)  # type: ignore[arg-type]
        self._origin, self._before, self._interrupted = origin, state, False
        self._dense, self._phase = None, self._system.phase(state)

    def _between(self, elapsed: float) -> Any:
        """The state within the last step."""
        if self._dense is None:
            self._dense = self._solver.dense_output()
        return self._system.unpack(self._dense(elapsed), self._before)

    def _first_change(self, before: float, after: float) -> float:
        """The first float in the last step at which the phase differs, by bisection."""
        while before < (middle := before + (after - before) / 2) < after:
            same = self._system.phase(self._between(middle)) == self._phase
            before, after = (middle, after) if same else (before, middle)
        return after


@dataclass(frozen=True)
class Phased:
    """A method for states with cells, and another once a state is discrete: points alone, whose slow motion takes long steps."""

    first: Stepper
    then: Stepper = Adaptive()

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

    Raises ValueError for an unknown name, a cfl that the method has no use for, or a method that cannot keep the system's masses >= 0.
    """
    method = _resolved(system.default_stepper if stepper is None else stepper, cfl, system.rate_accuracy)
    if cfl is not None and system.courant_limit == np.inf:
        raise ValueError(f"cfl is {inputs.shown(cfl)} for {system.kind}, wanted None: they have no cells; give SSP(tableau, dt_max=...)")
    if isinstance(method, Adaptive) and system.courant_limit < np.inf:
        raise ValueError(f"stepper is 'dop853' for a {system.kind}, wanted one of {', '.join(TABLEAUS)}: it keeps no mass positive")
    return method if system.courant_limit == np.inf else Phased(method)


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


def _combined(vector: FloatArray, dt: float, weights: tuple[float, ...], rates: list[FloatArray]) -> FloatArray:
    total = weights[0] * rates[0]
    for weight, rate in zip(weights[1:], rates[1:], strict=True):
        total += weight * rate
    total *= dt
    total += vector
    return total
