"""The particle reference: n weighted tokens, dx_i/dt = X[mu](x_i), mu = sum_j m_j delta_{x_j} (2312.10794, eq. SA / USA).

Data in: tokens (n, d) in any dimension d >= 2. Data out: their velocities. Tokens are summed over directly, unless transforms are asked
for, and know no mesh and no flux. A packed state is the tokens' ambient coordinates; unpacking projects them to the sphere, and velocities
are always taken at projected tokens, so that integrators see a field which keeps lengths.
"""

from collections import Counter
from collections.abc import Hashable
from dataclasses import dataclass
from typing import Any

from numpy.typing import ArrayLike

from meanfield_pde import inputs
from meanfield_pde.integrals.methods import Method, resolve_method
from meanfield_pde.integrals.scaled import Scaled
from meanfield_pde.measure import Measure, as_measure
from meanfield_pde.records import equal
from meanfield_pde.sphere import FloatArray, normalise
from meanfield_pde.systems.system import Rate, VelocityModel, model_energy, refuse_non_finite, velocity_of

MASS_TOLERANCE = 1e-9


@dataclass(frozen=True, eq=False)
class ParticleSystem:
    """Tokens that follow a velocity model. A start is an array (n, d) of equal tokens or a `Measure` of weighted ones, of total mass 1.

    method: "direct" sums, the independent reference; "spectral" makes millions of tokens practical on S^1 and S^2; "auto" chooses.
    Raises ValueError if tokens are off the sphere, their mass is not 1 or their dimension is not the attention's.
    """

    attention: VelocityModel
    method: str | Method = "direct"

    def __post_init__(self) -> None:
        inputs.velocity_model("attention", self.attention)
        resolve_method(self.method)

    kind = "tokens"
    default_stepper = "dop853"
    courant_limit = float("inf")

    @property
    def rate_accuracy(self) -> float:
        """Relative accuracy of velocities: integrators must not ask for more."""
        return 1e-15 if self.method == "direct" else 1e-12

    def begin(self, start: ArrayLike | Measure) -> Measure:
        measure = as_measure("start", start)
        d = getattr(self.attention, "dimension", None)
        if d not in (None, measure.dimension):
            raise ValueError(f"start lies in R^{measure.dimension}, wanted R^{d} like the attention's matrices")
        if abs(measure.total - 1) > MASS_TOLERANCE:
            raise ValueError(f"start has mass {measure.total:.12g}, wanted 1")
        return Measure.trusted(normalise(measure.points), measure.masses)

    def rate(self, t: float, state: Measure) -> Rate:
        work: Counter[str] = Counter()
        velocity = velocity_of(self.attention, state.points, state, t, method=self.method, work=work)
        refuse_non_finite(t, "the velocity of token", velocity)
        bound = getattr(self.attention, "speed_bound", None)
        return Rate(velocity.ravel(), speed=0.0 if bound is None else bound(state), work=work)

    def pack(self, state: Measure) -> FloatArray:
        return state.points.ravel()

    def unpack(self, vector: FloatArray, like: Measure) -> Measure:
        return Measure.trusted(normalise(vector.reshape(like.points.shape)), like.masses)

    def check(self, t: float, state: Measure) -> None:
        refuse_non_finite(t, "token", state.points)

    def settle(self, t: float, state: Measure, rate: Rate, events: list[Any]) -> tuple[Measure, list[Any]]:
        return state, []

    def phase(self, state: Measure) -> Hashable:
        return None

    def is_discrete(self, state: Measure) -> bool:
        return True

    def tally(self, state: Measure) -> tuple[float, int, int, float]:
        return float(state.masses.min()), len(state), 0, 0.0

    def measure(self, state: Measure) -> Measure:
        return state

    def energy(self, state: Measure, rate: Rate | None) -> Scaled:
        return model_energy(self.attention, state, None, self.method)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, ParticleSystem) and equal((self.attention, self.method), (other.attention, other.method))
