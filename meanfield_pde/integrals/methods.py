"""How attention's integrals are computed - sums or transforms - and the rule that chooses.

A method analyses a measure once; the analysis then answers any number of queries and counts them. The rule: transforms on S^1 and S^2
where their estimated cost is lower, sums otherwise. A query at which the transforms have lost the digits (Z far below its largest value:
queries that look away from the mass, V or B = -I, far clusters) is summed directly; if that is most of them, all are. Both methods agree
to 1e-10 in log Z.

A caller that only needs mass times velocity (a density) gives the queries weights (m,), the mass at each: then a query is summed only if
weight times error exceeds `accuracy` of the largest weight. Where nothing weighs, Z below twice its noise is replaced by that.

Data in: a measure, then queries. Data out: `Integrals`, and in `Analysis.work` how many queries were answered by sums and by transforms.
"""

from abc import ABC, abstractmethod
from collections import Counter
from dataclasses import dataclass
from functools import cached_property
from typing import Protocol

import numpy as np

from meanfield_pde import inputs
from meanfield_pde.integrals import direct, spectral
from meanfield_pde.integrals.queries import Queries
from meanfield_pde.measure import Measure
from meanfield_pde.records import remembered
from meanfield_pde.sphere import FloatArray

POINTWISE = 1e-10
"""Relative error of Z that a query without weight may have."""

PAIR, OFFSETS = 0.02, 1.4
"""Cost of a pair of query and source in a sum, and how much more it is with offsets. Costs are microseconds of one processor at hand; only
their ratios matter. They do not depend on the number of threads, so that results do not either."""

CALL, PANEL_CALL = {2: 60.0, 3: 150.0}, {2: 250.0, 3: 700.0}
"""Cost of one transform of no points, by dimension: at one radius, and at a node of a panel of radii."""

POINT, DEGREE = {2: 0.05, 3: 0.15}, 0.002
"""Cost of a point in a transform, by dimension, and of its largest degree to the power of the dimension."""


@dataclass(frozen=True)
class Integrals:
    """logs: log(Z/M) - shift of the queries, (m,). offsets: the attention-weighted mean of y minus the direction of the query, (m, d),
    None if not asked for."""

    logs: FloatArray
    offsets: FloatArray | None


class Analysis(ABC):
    """A measure, analysed once, that answers queries. work: how many points were answered by "sums" and by "transforms" so far."""

    def __init__(self, measure: Measure, work: Counter[str] | None = None) -> None:
        self.measure = measure
        self.work: Counter[str] = Counter() if work is None else work

    @abstractmethod
    def integrals(self, queries: Queries, with_offsets: bool) -> Integrals: ...


class Method(Protocol):
    """A way to compute the integrals. reach: the largest radius of the queries to come."""

    def analysed(self, measure: Measure, reach: float) -> Analysis: ...


@dataclass(frozen=True)
class Direct:
    """Sums over all sources for every query."""

    def analysed(self, measure: Measure, reach: float) -> Analysis:
        return _Sums(measure)


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

    def analysed(self, measure: Measure, reach: float) -> Analysis:
        if measure.dimension > 3:
            raise ValueError(f"method is 'spectral' in R^{measure.dimension}, wanted R^2 or R^3: there are no transforms beyond")
        return _Transforms(measure, reach, self)


@dataclass(frozen=True)
class Auto:
    """The rule stated above."""

    def analysed(self, measure: Measure, reach: float) -> Analysis:
        return _Cheaper(measure, reach) if measure.dimension <= 3 else _Sums(measure)


METHODS: dict[str, Method] = {"auto": Auto(), "direct": Direct(), "spectral": Spectral()}


def resolve_method(method: str | Method) -> Method:
    """The method for a name, or the object given. Raises ValueError for an unknown name or an object without `analysed`."""
    if isinstance(method, (str, type)) or not hasattr(method, "analysed"):
        return METHODS[inputs.choice("method", method, METHODS)]
    return method


class _Sums(Analysis):
    def integrals(self, queries: Queries, with_offsets: bool) -> Integrals:
        self.work["sums"] += len(queries)
        if with_offsets:
            return Integrals(*direct.log_partition_and_offset(queries, self.measure))
        return Integrals(direct.log_partition(queries, self.measure), None)


class _Transforms(Analysis):
    def __init__(self, measure: Measure, reach: float, method: Spectral, work: Counter[str] | None = None) -> None:
        super().__init__(measure, work)
        self._reach, self._method, self._sums = reach, method, _Sums(measure, self.work)

    @property
    def is_analysed(self) -> bool:
        """Whether the coefficients are known already."""
        return "_coefficients" in self.__dict__

    @cached_property
    def _coefficients(self) -> spectral.Coefficients:
        return spectral.Coefficients.of(self.measure, self._reach, self._method.accuracy, self._method.band)

    def integrals(self, queries: Queries, with_offsets: bool) -> Integrals:
        if not len(queries):
            return Integrals(np.empty(0), np.empty((0, self.measure.dimension)) if with_offsets else None)
        if not (
            np.isfinite(queries.largest_radius)
            and remembered("finite", queries.directions, lambda: bool(np.isfinite(queries.directions.sum())))
        ):
            row, _ = inputs.first_index(~np.isfinite(queries.vectors))
            raise ValueError(f"beta B x is {queries.vectors[row]} at point {row}, wanted finite numbers: transforms take all at once")
        logs, offsets, z, noise = spectral.integrals(self._coefficients, queries, with_offsets, self._method.accuracy)
        lost = self._lost(queries, z, noise)
        if 2 * len(lost) > len(queries):
            return self._sums.integrals(queries, with_offsets)
        self.work["transforms"] += len(queries) - len(lost)
        if len(lost):
            summed = self._sums.integrals(queries[lost], with_offsets)
            logs[lost] = summed.logs
            if offsets is not None:
                offsets[lost] = summed.offsets
        return Integrals(logs, offsets)

    def _lost(self, queries: Queries, z: FloatArray, noise: FloatArray | float) -> np.ndarray:
        """The queries at which too few digits are left of z."""
        if np.max(noise) <= POINTWISE * z.min():
            return np.empty(0, dtype=np.int64)
        errors = noise / z
        allowed: FloatArray | float = POINTWISE
        if queries.weights is not None:
            weights = queries.weights
            heaviest = float(weights.max(initial=0.0))
            with np.errstate(over="ignore"):
                share = np.divide(heaviest, weights, out=np.full(len(weights), np.inf), where=weights > 0)
            allowed = np.maximum(POINTWISE, self._method.accuracy * share)
        return np.flatnonzero(errors > allowed)


class _Cheaper(Analysis):
    def __init__(self, measure: Measure, reach: float) -> None:
        super().__init__(measure)
        self._sums, self._transforms = _Sums(measure, self.work), _Transforms(measure, reach, Spectral(), self.work)

    def integrals(self, queries: Queries, with_offsets: bool) -> Integrals:
        chosen = self._transforms if self._transforms_are_cheaper(queries, with_offsets) else self._sums
        return chosen.integrals(queries, with_offsets)

    def _transforms_are_cheaper(self, queries: Queries, with_offsets: bool) -> bool:
        """By the costs above; the analysis costs nothing more once it was made."""
        d, n, m = self.measure.dimension, len(self.measure), len(queries)
        sums = PAIR * m * n * (OFFSETS if with_offsets else 1.0)
        if sums < CALL[d]:
            return False
        calls, passes = spectral.syntheses(queries, with_offsets, Spectral.accuracy)
        of_degrees = DEGREE * float(np.sqrt(2 * queries.largest_radius * np.log(1 / Spectral.accuracy)) + 10) ** d
        one_call = CALL[d] if queries.radius is not None else PANEL_CALL[d]
        analysis = 0.0 if self._transforms.is_analysed else CALL[d] + POINT[d] * n + of_degrees
        return bool(analysis + calls * (one_call + of_degrees) + passes * POINT[d] * m < sums)
