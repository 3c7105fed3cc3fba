"""The particle reference: n weighted tokens, dx_i/dt = X[mu](x_i), mu = sum_j m_j delta_{x_j} (2312.10794, eq. SA / USA).

Data in: tokens (n, d) in any dimension d >= 2. Data out: their velocities. Tokens are summed over directly, unless transforms are asked
for, and know no mesh and no flux. A packed state is the tokens' ambient coordinates; unpacking projects them to the sphere, and velocities
are always taken at projected tokens, so that integrators see a field which keeps lengths.
"""

from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from meanfield_pde.integrals.methods import Method, resolve_method
from meanfield_pde.integrals.scaled import Scaled
from meanfield_pde.measure import Measure, as_measure
from meanfield_pde.models.velocity import VelocityModel, as_model
from meanfield_pde.records import Record
from meanfield_pde.sphere import FloatArray, normalise
from meanfield_pde.systems.system import Rate, Statistics, refuse_non_finite

MASS_TOLERANCE = 1e-9


@dataclass(frozen=True, eq=False)
class ParticleSystem(Record):
    """Tokens that follow a velocity model. A start is an array (n, d) of equal tokens or a `Measure` of weighted ones, of total mass 1.

    model: `Attention`, another `VelocityModel` or an object with velocity(points, measure, t). method: "direct" sums, the independent
    reference; "spectral" makes millions of tokens practical on S^1 and S^2; "auto" chooses.
    Raises ValueError if tokens are off the sphere, their mass is not 1 or their dimension is not the model's.
    """

    model: VelocityModel | Any
    method: str | Method = "direct"

    def __post_init__(self) -> None:
        object.__setattr__(self, "model", as_model("model", self.model))
        resolve_method(self.method)

    kind = "tokens"
    mesh = None
    default_stepper = "dop853"
    courant_limit = float("inf")

    @property
    def rate_accuracy(self) -> float:
        """Relative accuracy of velocities: integrators must not ask for more."""
        return 1e-15 if self.method == "direct" else 1e-12

    def begin(self, start: ArrayLike | Measure) -> Measure:
        measure = as_measure("start", start)
        d = self.model.dimension
        if d not in (None, measure.dimension):
            raise ValueError(f"start lies in R^{measure.dimension}, wanted R^{d} like the model's matrices")
        if abs(measure.total - 1) > MASS_TOLERANCE:
            raise ValueError(f"start has mass {measure.total:.12g}, wanted 1")
        return Measure.trusted(normalise(measure.points), measure.masses)

    def rate(self, t: float, state: Measure) -> Rate:
        field = self.model.field(state, t, self.method)
        velocity = field.velocity(state.points)
        refuse_non_finite(t, "the velocity of token", velocity)
        return Rate(velocity.ravel(), speed=field.speed_bound, field=field)

    def pack(self, state: Measure) -> FloatArray:
        return state.points.ravel()

    def unpack(self, vector: FloatArray, like: Measure) -> Measure:
        return Measure.trusted(normalise(vector.reshape(like.points.shape)), like.masses)

    def check(self, t: float, state: Measure) -> None:
        refuse_non_finite(t, "token", state.points)

    def after_step(self, t: float, state: Measure, rate: Rate | None, events: list[Any]) -> tuple[Measure, list[Any]]:
        return state, []

    def configuration(self, state: Measure) -> Hashable:
        return None

    def is_discrete(self, state: Measure) -> bool:
        return True

    def statistics(self, state: Measure) -> Statistics:
        return Statistics(float(state.masses.min()), len(state), 0, 0.0)

    def measure(self, state: Measure) -> Measure:
        return state

    def energy(self, t: float, state: Measure, rate: Rate | None) -> Scaled:
        field = rate.field if rate is not None and rate.field is not None else self.model.field(state, t, self.method)
        return field.energy()

    def columns(self, states: Sequence[Measure]) -> dict[str, np.ndarray]:
        """masses (n_t, n), positions (n_t, n, d)."""
        return {"masses": np.array([state.masses for state in states]), "positions": np.array([state.points for state in states])}

    def restored(self, columns: Mapping[str, Any], k: int) -> Measure:
        return Measure.trusted(np.asarray(columns["positions"][k]), np.asarray(columns["masses"][k]))

    def described(self) -> dict[str, Any]:
        return {"method": str(self.method)}
