"""What a method in time is to the loop: settings that begin a run, and a run under way.

Data in: a system and its state. Data out: accepted steps, each not beyond the next output time.
"""

from collections import Counter
from collections.abc import Mapping
from typing import Any, Protocol

from meanfield_pde.systems.system import Rate, System

SMALLEST_STEP = 1e-14
"""Shortest step over the length of the run; only a step cut for an output may be shorter."""
LONG_RUN = 1e6
"""The smallest step is taken relative to the length of the run, but to no more than this: a run to t = 1e12 is mostly steps of atoms alone,
and its first steps, while cells have mass, must be as short as those of any other run."""


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
