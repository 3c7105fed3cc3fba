"""The particle reference: n weighted tokens, dx_i/dt = X[mu](x_i), mu = sum_j m_j delta_{x_j} (2312.10794, eq. SA / USA).

Data in: tokens (n, d) in any dimension d >= 2. Data out: their velocities. Tokens are summed over directly, unless transforms are asked
for, and know no mesh and no flux. A packed state is the tokens' ambient coordinates; unpacking projects them to the sphere, and velocities
are always taken at projected tokens, so that integrators see a field which keeps lengths.

Tokens in one cluster approach each other for ever at a rate of order 1, which binds explicit integrators to steps of order 1. Those that
have met travel as one, so that clusters cost no more than what is left of their motion; outputs hold all tokens all the same.
"""

from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import ArrayLike
from scipy.spatial import cKDTree
from scipy.spatial.distance import pdist

from meanfield_pde import inputs
from meanfield_pde.integrals.methods import Method, resolve_method
from meanfield_pde.integrals.scaled import Scaled
from meanfield_pde.measure import Measure, as_measure
from meanfield_pde.models.velocity import VelocityModel, as_model
from meanfield_pde.records import Record
from meanfield_pde.sphere import FloatArray, IntArray, normalise
from meanfield_pde.systems.components import components
from meanfield_pde.systems.system import Rate, Statistics, refuse_non_finite

MASS_TOLERANCE = 1e-9
FEW = 256
"""Up to this many points all distances are cheaper than a tree."""


@dataclass(frozen=True, eq=False)
class Tokens:
    """n tokens, of which those that have met travel as one. points: what travels, with the masses of its tokens. owner: which of the points
    each token is at (n,), in the order of their first tokens. masses: of the tokens (n,)."""

    points: Measure
    owner: IntArray
    masses: FloatArray

    @property
    def measure(self) -> Measure:
        """All tokens."""
        return self.points if len(self.owner) == len(self.points) else Measure.trusted(self.points.points[self.owner], self.masses)

    @classmethod
    def of(cls, tokens: Measure, together: bool) -> "Tokens":
        """together: tokens at the very same place, which stay together for ever, travel as one."""
        alone = cls(tokens, np.arange(len(tokens)), tokens.masses)
        return alone.joined(np.unique(tokens.points, axis=0, return_inverse=True)[1].ravel()) if together else alone

    def joined(self, labels: IntArray) -> "Tokens":
        """Points of one label become one, at their centroid. labels: of the points (n_points,)."""
        found, first, inverse = np.unique(labels, return_index=True, return_inverse=True)
        if len(found) == len(labels):
            return self
        rank = np.empty(len(found), dtype=np.int64)
        rank[np.argsort(first)] = np.arange(len(found))
        to, places = rank[inverse.ravel()], self.points.points[np.sort(first)]
        sums = np.stack([np.bincount(to, weights=self.points.masses * x) for x in self.points.points.T], axis=1)
        apart = np.bincount(to, weights=(self.points.points != places[to]).any(axis=1)) > 0
        places = np.where(apart[:, None], normalise(np.asarray(sums, dtype=np.float64)), places)
        owner = to[self.owner]
        masses = np.asarray(
            np.bincount(owner, weights=self.masses), dtype=np.float64
        )  # in the order of tokens: it gives back a stored state
        return Tokens(Measure.trusted(places, masses), owner, self.masses)


@dataclass(frozen=True, eq=False)
class ParticleSystem(Record):
    """Tokens that follow a velocity model. A start is an array (n, d) of equal tokens or a `Measure` of weighted ones, of total mass 1.

    model: `Attention`, another `VelocityModel` or an object with velocity(points, measure, t). method: "direct" sums, the independent
    reference; "spectral" makes millions of tokens practical on S^1 and S^2; "auto" chooses. merge: angle in radians, 0 to 1e-3, within
    which tokens that approach each other have met and travel as one from then on, at their centroid; at most that far off, and no faster
    than the field parts close points: 0, all alone, where the weights change from attracting to repelling.
    Raises ValueError if tokens are off the sphere, their mass is not 1 or their dimension is not the model's.
    """

    model: VelocityModel | Any
    method: str | Method = "direct"
    merge: float = 1e-12

    def __post_init__(self) -> None:
        object.__setattr__(self, "model", as_model("model", self.model))
        resolve_method(self.method)
        object.__setattr__(self, "merge", inputs.number("merge", self.merge, low=0.0, high=1e-3))

    kind = "tokens"
    mesh = None
    default_stepper = "dop853"
    courant_limit = float("inf")
    locates = False

    @property
    def rate_accuracy(self) -> float:
        """Relative accuracy of velocities: integrators must not ask for more."""
        return 1e-15 if self.method == "direct" else 1e-12

    def begin(self, start: ArrayLike | Measure) -> Tokens:
        measure = as_measure("start", start)
        d = self.model.dimension
        if d not in (None, measure.dimension):
            raise ValueError(f"start lies in R^{measure.dimension}, wanted R^{d} like the model's matrices")
        if abs(measure.total - 1) > MASS_TOLERANCE:
            raise ValueError(f"start has mass {measure.total:.12g}, wanted 1")
        tokens = Tokens.of(Measure.trusted(normalise(measure.points), measure.masses), self.merge > 0)
        return self.after_step(0.0, tokens, None, [])[0]

    def rate(self, t: float, state: Tokens) -> Rate:
        field = self.model.field(state.points, t, self.method)
        velocity = field.velocity(state.points.points)
        refuse_non_finite(t, "the velocity of token", velocity[state.owner])
        return Rate(velocity.ravel(), speed=field.speed_bound, field=field)

    def pack(self, state: Tokens) -> FloatArray:
        return state.points.points.ravel()

    def unpack(self, vector: FloatArray, like: Tokens) -> Tokens:
        places = normalise(vector.reshape(like.points.points.shape))
        return Tokens(Measure.trusted(places, like.points.masses), like.owner, like.masses)

    def check(self, t: float, state: Tokens) -> None:
        refuse_non_finite(t, "token", state.points.points[state.owner])

    def after_step(self, t: float, state: Tokens, rate: Rate | None, events: list[Any]) -> tuple[Tokens, list[Any]]:
        if self._count(state) == len(state.points):
            return state, []
        labels = self._labels(state.points.points)
        change = self.rate(t, state).change.reshape(state.points.points.shape)
        return state.joined(
            np.where(self._approach(state.points, change, labels)[labels], labels, len(labels) + np.arange(len(labels)))
        ), []

    def configuration(self, state: Tokens) -> Hashable:
        return self._count(state)

    def is_discrete(self, state: Tokens) -> bool:
        return True

    def statistics(self, state: Tokens) -> Statistics:
        return Statistics(float(state.masses.min()), len(state.masses), len(state.points), 0.0)

    def measure(self, state: Tokens) -> Measure:
        return state.measure

    def energy(self, t: float, state: Tokens, rate: Rate | None) -> Scaled:
        field = rate.field if rate is not None and rate.field is not None else self.model.field(state.points, t, self.method)
        return field.energy()

    def columns(self, states: Sequence[Tokens]) -> dict[str, np.ndarray]:
        """masses (n_t, n), positions (n_t, n, d)."""
        found = [state.measure for state in states]
        return {"masses": np.array([tokens.masses for tokens in found]), "positions": np.array([tokens.points for tokens in found])}

    def restored(self, columns: Mapping[str, Any], k: int) -> Tokens:
        return Tokens.of(Measure.trusted(np.asarray(columns["positions"][k]), np.asarray(columns["masses"][k])), self.merge > 0)

    def described(self) -> dict[str, Any]:
        return {"method": str(self.method), "merge": self.merge}

    def _count(self, state: Tokens) -> int:
        """How many points there would be if all within `merge` of each other were one."""
        places = state.points.points
        if self.merge == 0 or len(places) < 2 or _closest(places, self.merge) > self.merge:
            return len(places)
        return len(np.unique(self._labels(places)))

    def _labels(self, places: FloatArray) -> IntArray:
        distinct, inverse = np.unique(places, axis=0, return_inverse=True)
        return (components(distinct, self.merge) if len(distinct) > 1 else np.zeros(1, dtype=np.int64))[inverse.ravel()]

    def _approach(self, points: Measure, velocity: FloatArray, labels: IntArray) -> np.ndarray:
        """Whether the points of each label come closer: the rate of change of their moment of inertia about their centroid."""
        masses = np.bincount(labels, weights=points.masses)

        def about(values: FloatArray) -> FloatArray:
            means = np.stack([np.bincount(labels, weights=points.masses * x) / masses for x in values.T], axis=1)
            return np.asarray(values - means[labels])

        return np.bincount(labels, weights=points.masses * (about(points.points) * about(velocity)).sum(axis=1)) <= 0


def _closest(places: FloatArray, reach: float) -> float:
    """The shortest chord between two points, inf if it is far beyond the reach."""
    if len(places) <= FEW:
        return float(pdist(places).min())
    return float(np.min(cKDTree(places).query(places, k=[2], distance_upper_bound=2 * reach)[0]))
