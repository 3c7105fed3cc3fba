"""What a run asks of a system: a state that moves in the velocity field that it causes itself.

A system takes the field of its state from a velocity model and turns it into the rate of change of the state; a stepper sees states only
as flat vectors. Systems also know how their states are stored: the recorder, the results file, exports and pictures ask them, and do not
know what a state is.
"""

from collections import Counter
from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol, TypeVar

import numpy as np

from meanfield_pde.integrals.methods import Method
from meanfield_pde.integrals.scaled import Scaled
from meanfield_pde.measure import Measure
from meanfield_pde.mesh.record import SphereMesh
from meanfield_pde.models.velocity import Field, VelocityModel
from meanfield_pde.sphere import FloatArray
from meanfield_pde.transport.transport import CellRates

S = TypeVar("S")


@dataclass(frozen=True)
class Rate:
    """Rate of change of a state, with what limits the step.

    change: flat, like the packed state. outflow: largest outflow rate of a cell, 1/time, and worst, that cell. speed: bound of the model's
    speed, 1/time. field: the field of the state; cells: what it does to cells, if there are any.
    """

    change: FloatArray
    outflow: float = 0.0
    worst: int = 0
    speed: float = 0.0
    field: Field | None = None
    cells: CellRates | None = None

    @property
    def work(self) -> Counter[str]:
        """How many points the field was evaluated at so far, by "sums" and by "transforms"."""
        return Counter() if self.field is None else self.field.work


@dataclass(frozen=True)
class Statistics:
    """What the history of a run keeps of a state. minimum: smallest mass of a cell or token. atoms: the number of atoms, or of tokens.
    clusters: of atoms (0 if not counted). cell_mass: mass on cells."""

    minimum: float
    atoms: int
    clusters: int
    cell_mass: float


class Stored(Protocol[S]):
    """How the states of a system are kept in a solution and in files, and what its record says."""

    def columns(self, states: Sequence[S]) -> dict[str, np.ndarray]:
        """States as arrays to store: one row a state, except for arrays of all atoms, one after the other."""
        ...

    def restored(self, columns: Mapping[str, Any], k: int) -> S:
        """State k of stored columns."""
        ...

    def described(self) -> dict[str, Any]:
        """What a reader of the run's record must know, in words and plain values."""
        ...


class System(Stored[S], Protocol[S]):
    """A state that moves in its own velocity field. Its constructor arguments are its settings, under their own names."""

    @property
    def kind(self) -> str:
        """A word for labels and file names: "density" or "tokens"."""
        ...

    @property
    def mesh(self) -> SphereMesh | Any:
        """The mesh whose cells carry mass, None for points alone."""
        ...

    @property
    def model(self) -> VelocityModel: ...

    @property
    def method(self) -> str | Method: ...

    @property
    def courant_limit(self) -> float:
        """Largest Courant number (dt times outflow rate) that keeps the state admissible; inf if there is none."""
        ...

    @property
    def locates(self) -> bool:
        """Whether steps of points alone end where the configuration changes; else what changes is done after the step."""
        ...

    @property
    def default_stepper(self) -> str: ...

    @property
    def rate_accuracy(self) -> float:
        """Relative accuracy of rates: integrators must not ask for more."""
        ...

    def begin(self, start: Any) -> S:
        """The checked initial state."""
        ...

    def rate(self, t: float, state: S) -> Rate: ...

    def pack(self, state: S) -> FloatArray:
        """The state as a flat vector."""
        ...

    def unpack(self, vector: FloatArray, like: S) -> S:
        """A state from a flat vector."""
        ...

    def check(self, t: float, state: S) -> None:
        """SolveError if the state is not admissible."""
        ...

    def after_step(self, t: float, state: S, rate: Rate | None, events: list[Any]) -> tuple[S, list[Any]]:
        """The state after what happens to it between two steps, and new events. rate: a recent one; events: those so far."""
        ...

    def configuration(self, state: S) -> Hashable:
        """Of a state of points alone: what stays the same until two of them meet."""
        ...

    def is_discrete(self, state: S) -> bool:
        """Whether the state is points alone, which have no Courant limit."""
        ...

    def statistics(self, state: S) -> Statistics: ...

    def measure(self, state: S) -> Measure: ...

    def energy(self, t: float, state: S, rate: Rate | None) -> Scaled:
        """The model's energy, nan if it has none. rate: of this state, if it is known."""
        ...


class SolveError(RuntimeError):
    """A run that could not go on. `solution` holds it up to the last good state, once `solve` has raised."""

    solution: Any = None


def refuse_non_finite(t: float, what: str, rows: FloatArray) -> None:
    """SolveError naming time and first bad row of (n,) or (n, d)."""
    if np.isfinite(rows.sum()):
        return
    bad = ~np.isfinite(rows.reshape(len(rows), -1)).all(axis=1)
    if bad.any():
        row = int(np.argmax(bad))
        raise SolveError(f"{what} {row} is {rows[row]} at t = {t:.9g}, wanted a finite number")
