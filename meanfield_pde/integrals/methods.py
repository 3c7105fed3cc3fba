"""How attention's integrals are computed - sums or transforms - and the rule that chooses.

The rule: transforms where there are at least `MANY_PAIRS` pairs of query and source on S^1 or S^2 and their estimated cost is lower, sums
otherwise. A query at which the transforms have lost the digits (Z far below its largest value: queries that look away from the mass,
V or B = -I, far clusters) is summed directly; if that is most of them, all are. Both methods agree to 1e-10 in log Z.

A caller that only needs mass times velocity (a density) gives weights (m,), the mass at each query: then a query is summed only if
weight times error exceeds `accuracy` of the largest weight. Where nothing weighs, Z below twice its noise is replaced by that.

Data in: queries and a measure. Data out: `Integrals`, with the number of queries that were summed.
"""

from dataclasses import dataclass
from typing import Protocol

import numpy as np

from meanfield_pde import inputs
from meanfield_pde.integrals import direct, spectral
from meanfield_pde.integrals.queries import Queries
from meanfield_pde.measure import Measure
from meanfield_pde.sphere import FloatArray

MANY_PAIRS = 10_000_000
POINTWISE = 1e-10
"""Relative error of Z that a query without weight may have."""

PAIR, POINT, DEGREE = 1.0, 40.0, 1.5
"""Relative cost of a pair in a sum, of a point in a transform and of a cubed degree, measured."""


@dataclass(frozen=True)
class Integrals:
    """logs: log(Z/M) - shift of the queries, (m,). offsets: the attention-weighted mean of y minus the direction of
    the query, (m, d), None if not asked for.
    summed: number of queries answered by sums."""

    logs: FloatArray
    offsets: FloatArray | None
    summed: int


class Method(Protocol):
    """A way to compute the integrals."""

    def integrals(self, queries: Queries, measure: Measure, with_offsets: bool, weights: FloatArray | None) -> Integrals: ...


@dataclass(frozen=True)
class Direct:
    """Sums over all sources for every query."""

    def integrals(self, queries: Queries, measure: Measure, with_offsets: bool, weights: FloatArray | None) -> Integrals:
        if with_offsets:
            logs, offsets = direct.log_partition_and_offset(queries, measure)
            return Integrals(logs, offsets, len(queries))
        return Integrals(direct.log_partition(queries, measure), None, len(queries))


@dataclass(frozen=True)
class Spectral:
    """Transforms, and sums at the queries where they have lost the digits.

    accuracy: of the truncation, relative to the largest Z, 1e-15 to 1e-2. band: largest degree, None for the one the accuracy needs.
    """

    accuracy: float = 1e-12
    band: int | None = None

    def __post_init__(self) -> None:
        object.__setattr__(self, "accuracy", inputs.number("accuracy", self.accuracy, low=1e-15, high=1e-2))
        if self.band is not None:
            object.__setattr__(self, "band", inputs.integer("band", self.band, low=1))

    def integrals(self, queries: Queries, measure: Measure, with_offsets: bool, weights: FloatArray | None) -> Integrals:
        if measure.dimension > 3:
            raise ValueError(f"method is 'spectral' in R^{measure.dimension}, wanted R^2 or R^3: there are no transforms beyond")
        if not len(queries):
            return Integrals(np.empty(0), np.empty((0, measure.dimension)) if with_offsets else None, 0)
        if not np.isfinite(queries.directions.sum() + queries.largest_radius):
            row, _ = inputs.first_index(~np.isfinite(queries.vectors))
            raise ValueError(f"beta B x is {queries.vectors[row]} at point {row}, wanted finite numbers: transforms take all at once")
        logs, offsets, errors = spectral.integrals(queries, measure, with_offsets, self.accuracy, self.band)
        if errors.max(initial=0.0) <= POINTWISE:
            return Integrals(logs, offsets, 0)
        allowed: FloatArray | float = POINTWISE
        if weights is not None:
            heaviest = float(weights.max(initial=0.0))
            with np.errstate(over="ignore"):
                share = np.divide(heaviest, weights, out=np.full(len(weights), np.inf), where=weights > 0)
            allowed = np.maximum(POINTWISE, self.accuracy * share)
        lost = np.flatnonzero(errors > allowed)
        if not len(lost):
            return Integrals(logs, offsets, 0)
        if 2 * len(lost) > len(queries):
            return Direct().integrals(queries, measure, with_offsets, None)
        summed = Direct().integrals(queries[lost], measure, with_offsets, None)
        logs[lost] = summed.logs
        if offsets is not None:
            offsets[lost] = summed.offsets
        return Integrals(logs, offsets, len(lost))


@dataclass(frozen=True)
class Auto:
    """The rule stated above."""

    def integrals(self, queries: Queries, measure: Measure, with_offsets: bool, weights: FloatArray | None) -> Integrals:
        method = Spectral() if _transforms_are_cheaper(queries, measure, with_offsets) else Direct()
        return method.integrals(queries, measure, with_offsets, weights)


METHODS: dict[str, Method] = {"auto": Auto(), "direct": Direct(), "spectral": Spectral()}


def resolve_method(method: str | Method) -> Method:
    """The method for a name, or the object given. Raises ValueError for an unknown name or an object without `integrals`."""
    if isinstance(method, str) or not hasattr(method, "integrals"):
        return METHODS[inputs.choice("method", method, METHODS)]
    return method


def _transforms_are_cheaper(queries: Queries, measure: Measure, with_offsets: bool) -> bool:
    d, pairs = measure.dimension, len(queries) * len(measure)
    if d > 3 or pairs < MANY_PAIRS:
        return False
    passes = spectral.synthesis_count(queries, with_offsets, Spectral.accuracy)
    degree = np.sqrt(2 * queries.largest_radius * np.log(1 / Spectral.accuracy)) + 10
    return bool(POINT * (len(measure) + passes * len(queries)) + passes * DEGREE * degree**d < PAIR * pairs)
