"""What the parts of a run ask of one another: velocity models, systems, rates, and the error that ends a run.

A velocity model answers a measure with a velocity; a system turns that velocity into the rate of change of its state; a stepper sees
states only as flat vectors. Attention, finite volumes and tokens are one implementation each.
"""

from collections import Counter
from collections.abc import Hashable
from dataclasses import dataclass, field
from typing import Any, Generic, Protocol, TypeVar

import numpy as np
from numpy.typing import ArrayLike

from meanfield_pde import inputs
from meanfield_pde.integrals.scaled import Scaled
from meanfield_pde.measure import Measure
from meanfield_pde.sphere import FloatArray

S = TypeVar("S")


class VelocityModel(Protocol):
    """Anything with a velocity: real numbers (m, d) at points (m, d). Optional: `is_gradient` and `potential(points, measure, t)`, real
    numbers (m,); `speed_bound(measure)` (bounds the step) and `energy(measure, potential=None)` (reported per step). A model with
    `is_isotropic` also takes method=, weights= and work=, as `Attention` does."""

    def velocity(self, points: ArrayLike, measure: Measure, t: float = 0.0) -> FloatArray: ...


@dataclass(frozen=True)
class Rate:
    """Rate of change of a state, with what limits the step.

    change: flat, like the packed state. outflow: largest outflow rate of a cell, 1/time, and worst, that cell. speed: bound of the model's
    speed, 1/time. potential, normals: of a density, the potential at the centers (n_cells,) or the normal velocities of the faces
    (n_faces,), whichever the fluxes were made from. work: how many points were answered by "sums" and "transforms".
    """

    change: FloatArray
    outflow: float = 0.0
    worst: int = 0
    speed: float = 0.0
    potential: FloatArray | None = None
    normals: FloatArray | None = None
    work: Counter[str] = field(default_factory=Counter)


class System(Protocol, Generic[S]):
    """A state that moves in its own velocity field."""

    @property
    def kind(self) -> str:
        """ "density" or "tokens"."""
        ...

    @property
    def courant_limit(self) -> float:
        """Largest Courant number (dt times outflow rate) that keeps the state admissible; inf if there is none."""
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

    def settle(self, t: float, state: S, rate: Rate, events: list[Any]) -> tuple[S, list[Any]]:
        """The state after what happens to it between two steps, and new events; rate: a recent one, events: those so far."""
        ...

    def phase(self, state: S) -> Hashable:
        """What stays the same until something happens to a state without cells: steps end where it changes."""
        ...

    def is_discrete(self, state: S) -> bool:
        """Whether the state is points alone, which have no Courant limit."""
        ...

    def tally(self, state: S) -> tuple[float, int, int, float]:
        """Smallest mass of a cell or token, number of atoms or tokens, of their clusters (0 if not counted), mass on cells."""
        ...

    def measure(self, state: S) -> Measure: ...

    def energy(self, state: S, rate: Rate | None) -> Scaled:
        """The model's energy, nan if it has none."""
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


def computing_options(model: Any, **options: Any) -> dict[str, Any]:
    """The options for a model that takes method=, weights= and work=; none for any other."""
    return options if hasattr(model, "is_isotropic") else {}


def velocity_of(model: Any, points: FloatArray, measure: Measure, t: float, **options: Any) -> FloatArray:
    """The model's velocity (m, d) at points (m, d), finite or not; options: for a model that takes them.

    Raises ValueError unless the model returns real numbers of that shape.
    """
    velocity = model.velocity(points, measure, t, **computing_options(model, **options))
    return inputs.real_array(f"velocity of {type(model).__name__}", velocity, points.shape, like=" like the points")


def potential_of(model: Any, points: FloatArray, measure: Measure, t: float, **options: Any) -> FloatArray:
    """`velocity_of` for the model's potential (m,)."""
    potential = model.potential(points, measure, t, **computing_options(model, **options))
    return inputs.real_array(f"potential of {type(model).__name__}", potential, points.shape[:1], like=" like the points")


def model_energy(model: Any, measure: Measure, potential: FloatArray | None, method: Any) -> Scaled:
    """The model's energy, nan if it defines none."""
    energy = getattr(model, "energy", None)
    if energy is None:
        return Scaled(0.0, float("nan"))
    return energy(measure, potential=potential, **computing_options(model, method=method))
