"""DOP853 for states of points alone, which have no Courant limit: order 8 with error control, through scipy.

Source: Hairer, Norsett, Wanner, Solving ODEs I.
"""

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from scipy.integrate import DOP853

from meanfield_pde import inputs
from meanfield_pde.systems.system import Rate, SolveError, System


@dataclass(frozen=True)
class Adaptive:
    """DOP853: order 8 with error control, for systems without a Courant limit. rtol, atol: per step, relative and absolute.

    What they buy (200 tokens on S^1 and S^2, beta = 9 and 5, t = 10, atol = rtol / 10): paths off by 4e-13 at rtol 1e-13, 8e-11 at 1e-11,
    2e-8 at 1e-9 and 1e-6 at 1e-7, for 1, .66, .41 and .25 times the velocities.
    """

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
    is located in time, to rounding, if it asks for that, and the integrator begins anew there.

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
        self._configuration: Any = None
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
        if self._system.configuration(state) != self._configuration:
            if self._system.locates:
                elapsed = self._first_change(float(self._solver.t_old or 0.0), elapsed)
                t, state = min(self._origin + elapsed, self._t_end), self._between(elapsed)
            state, happened = self._system.after_step(t, state, None, self.events)
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
        self._dense, self._configuration = None, self._system.configuration(state)

    def _between(self, elapsed: float) -> Any:
        """The state within the last step."""
        if self._dense is None:
            self._dense = self._solver.dense_output()
        return self._system.unpack(self._dense(elapsed), self._before)

    def _first_change(self, before: float, after: float) -> float:
        """The first float in the last step at which the configuration differs, by bisection."""
        while before < (middle := before + (after - before) / 2) < after:
            same = self._system.configuration(self._between(middle)) == self._configuration
            before, after = (middle, after) if same else (before, middle)
        return after
