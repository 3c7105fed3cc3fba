"""Strong-stability-preserving Runge-Kutta methods for densities.

An SSP step is a convex combination of Euler steps of the same length, so that what one Euler step keeps (masses >= 0 up to a Courant
number) the whole step keeps. It is written here as one sum of rates, state + dt * sum_s b_s k_s, which leaves rounding without a
preferred sign. Source: Shu and Osher, J. Comput. Phys. 77 (1988).
"""

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from meanfield_pde import inputs
from meanfield_pde.sphere import FloatArray
from meanfield_pde.stepping.stepper import LONG_RUN, SMALLEST_STEP
from meanfield_pde.systems.system import Rate, SolveError, System

DEFAULT_COURANT_SHARE = 0.9
"""Courant number over the system's limit, unless the user gives one."""
LONGEST_ANGLE = 0.2
"""No step is longer than this over the model's speed bound: growth out of equilibrium, where nothing moves yet, stays resolved."""
MOST_REJECTIONS = 100


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
        by_outflow = self._courant / self.rate.outflow if self.rate.outflow > 0 else np.inf
        by_speed = self._longest_angle / self.rate.speed if self.rate.speed > 0 else np.inf
        wanted = min(by_outflow, by_speed, self._dt_max)
        dt = remaining if wanted >= remaining else min(wanted, remaining / 2)
        for _ in range(MOST_REJECTIONS):
            if dt < min(self._dt_min, remaining):
                break
            state, courant = self._attempt(dt)
            if state is not None:
                self.t = t_stop if dt == remaining else self.t + dt
                self._system.check(self.t, state)
                self.state, happened = self._system.after_step(self.t, state, self.rate, self.events)
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


def _combined(vector: FloatArray, dt: float, weights: tuple[float, ...], rates: list[FloatArray]) -> FloatArray:
    total = weights[0] * rates[0]
    for weight, rate in zip(weights[1:], rates[1:], strict=True):
        total += weight * rate
    total *= dt
    total += vector
    total.setflags(write=False)  # so that no measure need copy it
    return total
