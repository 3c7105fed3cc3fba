"""Self-attention as a velocity field: what it is (beta, Q, K, V, normalised or not), whichever way its integrals are computed.

    X[mu](x) = P_x A[mu](x),   Z(z) = int e^{<z, y>} dmu(y),   B = K^T Q,   z = beta B x
    SA:  A = V grad log Z(z)      (softmax self-attention, 2312.10794, eq. SA)
    USA: A = V grad Z(z)          (unnormalised, 2312.10794, eq. USA)

Data in: points (m, d) and a measure. Data out: tangent velocities (m, d); where V = c B^T (or beta = 0) the field is the gradient of
a potential (m,): c log(Z/M)/beta for SA, c (Z - M)/beta for USA, M the total mass, and their limits <x, V int y dmu> at beta = 0.

    E(mu) = 1/(2 beta) iint e^{beta <Qx, Ky>} dmu dmu       (at beta = 0 its finite part <Q m, K m>/2, m = int x dmu)

The uniform law that cells contain (`Measure.split`) is integrated exactly in both integrals, in Z and in E.
"""

import dataclasses
import math
from collections import Counter
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from meanfield_pde import inputs
from meanfield_pde.bessel import log_lambda
from meanfield_pde.integrals.methods import Analysis, Method, resolve_method
from meanfield_pde.integrals.queries import Queries, queries
from meanfield_pde.integrals.scaled import Scaled
from meanfield_pde.measure import Measure
from meanfield_pde.models.velocity import Field, VelocityModel, checked_points
from meanfield_pde.records import Record, frozen
from meanfield_pde.sphere import FloatArray, tangent

LARGEST_LOG = float(np.log(np.finfo(np.float64).max))
NEGLIGIBLE = 1e-30
"""Below this largest entry of beta B, e^{<z, y>} is 1 + <z, y> far beyond double precision."""

PROPORTIONAL = 1e-14
"""V counts as c B^T if they differ by less than this, relative to the size of V."""


@dataclass(frozen=True, eq=False)
class Attention(Record, VelocityModel):
    """Self-attention with inverse temperature beta >= 0 (dimensionless) and matrices (d, d), None for the identity.

    normalised=True is SA, False is USA. log_scale: USA only, its velocity is divided by e^log_scale, that is, time runs in units of
    e^-log_scale; at large beta, where USA exceeds double precision, log_scale = beta makes the kernel at most 1. The attribute bilinear is
    K^T Q, None for the identity.
    Raises ValueError for a negative or non-finite beta, matrices that are not square or not finite, matrices of different sizes, or a
    log_scale for SA.
    """

    beta: float
    query: FloatArray | None
    key: FloatArray | None
    value: FloatArray | None
    normalised: bool
    log_scale: float
    bilinear: FloatArray | None = dataclasses.field(init=False, repr=False)

    def __init__(
        self,
        beta: float = 1.0,
        query: ArrayLike | None = None,
        key: ArrayLike | None = None,
        value: ArrayLike | None = None,
        normalised: bool = True,
        log_scale: float = 0.0,
    ) -> None:
        if not isinstance(normalised, (bool, np.bool_)):
            raise ValueError(f"normalised is {inputs.shown(normalised)}, wanted True (SA) or False (USA)")
        scale = inputs.number("log_scale", log_scale)
        if scale and normalised:
            raise ValueError(f"log_scale is {scale:g} with normalised=True, wanted 0: only USA is scaled")
        matrices = {name: _square(name, matrix) for name, matrix in (("query", query), ("key", key), ("value", value))}
        sizes = {name: len(matrix) for name, matrix in matrices.items() if matrix is not None}
        if len(set(sizes.values())) > 1:
            raise ValueError(f"matrices have different sizes {sizes}, wanted one dimension d")
        q, k = matrices["query"], matrices["key"]
        with np.errstate(over="ignore", invalid="ignore"):
            bilinear = q if k is None else (k.T if q is None else k.T @ q)
        if bilinear is not None and not np.isfinite(bilinear).all():
            raise ValueError("K^T Q has entries beyond double precision, wanted smaller matrices")
        plain = {"beta": inputs.number("beta", beta, low=0.0), "normalised": bool(normalised), "log_scale": scale}
        for name, value_ in (plain | matrices).items():
            object.__setattr__(self, name, value_)
        object.__setattr__(self, "bilinear", None if bilinear is None else frozen(bilinear))

    @property
    def dimension(self) -> int | None:
        """d of the matrices, None if all are the identity (any d)."""
        return next((len(m) for m in (self.query, self.key, self.value) if m is not None), None)

    @property
    def is_gradient(self) -> bool:
        """Whether the velocity is the gradient of the potential."""
        return self.potential_factor is not None

    @property
    def is_isotropic(self) -> bool:
        """Whether the field commutes with rotations, so that the uniform law is at rest."""
        d = self.dimension or 0
        return all(m is None or np.array_equal(m, m[0, 0] * np.eye(d)) for m in (self.bilinear, self.value))

    @property
    def reach(self) -> float:
        """beta times the spectral norm of K^T Q: no query beta K^T Q x is longer."""
        return self.beta * (1.0 if self.bilinear is None else float(np.linalg.norm(self.bilinear, 2)))

    @property
    def is_linear(self) -> bool:
        """Whether Z is constant to rounding, so that attention averages without weights."""
        return self.beta * (1.0 if self.bilinear is None else float(np.abs(self.bilinear).max())) <= NEGLIGIBLE

    @property
    def potential_factor(self) -> float | None:
        """c with V = c B^T, None if there is none."""
        if self.is_linear or (self.value is None and self.bilinear is None):
            return 1.0
        d = self.dimension or 0
        v = np.eye(d) if self.value is None else self.value
        transposed = np.eye(d) if self.bilinear is None else self.bilinear.T
        factor = float(np.sum(v * transposed) / np.sum(transposed**2))
        scale = float(np.abs(v).max())
        return factor if np.abs(v - factor * transposed).max() <= PROPORTIONAL * scale else None

    @property
    def has_energy(self) -> bool:
        """True."""
        return True

    @property
    def kernel_beta(self) -> float:
        """beta."""
        return self.beta

    def self_weight(self, d: int) -> float:
        """e^r / Lambda_0(r), r = `reach` (2312.10794: the limit is valid for n far above it)."""
        return float(np.exp(self.reach - log_lambda(d, 0, self.reach)))

    def field(self, measure: Measure, t: float = 0.0, method: str | Method = "auto") -> "AttentionField":
        """The field of a measure; method: "auto", "direct", "spectral" or an object such as `Spectral(accuracy=...)`.

        Raises ValueError if the dimension is not that of the matrices or the measure has no mass.
        """
        inputs.instance("measure", measure, Measure)
        d = measure.dimension
        if self.dimension not in (None, d):
            raise ValueError(f"points lie in R^{d}, but the attention's matrices are {self.dimension} x {self.dimension}")
        if not measure.total > 0:
            raise ValueError(f"the measure has mass {measure.total:g}, wanted a positive mass")
        return AttentionField(self, measure, resolve_method(method).analysed(measure, self.reach), None, {})

    def velocity(self, points: ArrayLike, measure: Measure, t: float = 0.0, method: str | Method = "auto") -> FloatArray:
        """Tangent velocity X[mu] (m, d) at points (m, d) on the sphere; t is not used by weights that are constant in time.

        Raises ValueError if dimensions differ and OverflowError if an unnormalised field exceeds double precision.
        """
        return self._made_field(measure, t, method).velocity(checked_points(points, measure))

    def potential(self, points: ArrayLike, measure: Measure, t: float = 0.0, method: str | Method = "auto") -> FloatArray:
        """The potential (m,) whose tangent gradient is the velocity. Raises ValueError unless `is_gradient`."""
        return self._made_field(measure, t, method).potential(checked_points(points, measure))

    def energy(self, measure: Measure, t: float = 0.0, method: str | Method = "auto") -> Scaled:
        """E(mu), of any size without overflow; 0 for a measure without mass."""
        inputs.instance("measure", measure, Measure)
        return self._made_field(measure, t, method).energy() if measure.total > 0 else Scaled.of(0.0)

    def speed_bound(self, measure: Measure, t: float = 0.0) -> float:
        """An upper bound of |A[mu]|: the spectral norm of V, times M e^{beta |B| - log_scale} for USA (inf if that overflows)."""
        size = 1.0 if self.value is None else float(np.linalg.norm(self.value, 2))
        if self.normalised:
            return size
        exponent = self.reach - self.log_scale
        return size * measure.total * float(np.exp(exponent)) if exponent < LARGEST_LOG else np.inf

    def queries(self, points: FloatArray, weights: FloatArray | None = None) -> Queries:
        """z = beta B x at points (m, d)."""
        return queries(points, self.beta, self.bilinear, weights)

    def log_uniform(self, points: FloatArray, masses: FloatArray) -> tuple[FloatArray, FloatArray]:
        """`log int e^{beta <Bx, y>} dsigma(x)` at points y with their masses, sigma the uniform probability; one point for all if B = I."""
        d = points.shape[1]
        if self.bilinear is None:
            return np.full(1, log_lambda(d, 0, self.beta)), np.full(1, masses.sum())
        return log_lambda(d, 0, self.beta * np.linalg.norm(points @ self.bilinear, axis=1)), masses


class AttentionField(Field):
    """The field of an `Attention`. analysis: of the measure. weights: (m,), masses at the points that are asked for next, or None.
    known: log(Z/M) and its shift at the points of the measure's parts, by the identity of the array, once they were computed."""

    def __init__(
        self,
        attention: Attention,
        measure: Measure,
        analysis: Analysis,
        weights: FloatArray | None,
        known: dict[int, tuple[FloatArray, float]],
    ) -> None:
        self.attention, self.measure = attention, measure
        self.is_gradient, self.speed_bound = attention.is_gradient, attention.speed_bound(measure)
        self._analysis, self._weights, self._known = analysis, weights, known

    @property
    def work(self) -> Counter[str]:
        return self._analysis.work

    def weighing(self, weights: FloatArray) -> "AttentionField":
        return AttentionField(self.attention, self.measure, self._analysis, weights, self._known)

    def output(self, points: FloatArray) -> FloatArray:
        """A[mu] (m, d), the attention output before its projection to the tangent space."""
        radial, rest = self._average(points)
        return self._valued(radial + rest)

    def velocity(self, points: FloatArray) -> FloatArray:
        if not self.attention.is_isotropic:
            return tangent(points, self.output(points))
        _, rest = self._average(points)  # V maps the other part to a multiple of x, whose rounding would hide a small velocity
        return tangent(points, self._valued(rest))

    def potential(self, points: FloatArray) -> FloatArray:
        model, measure = self.attention, self.measure
        factor = model.potential_factor
        if factor is None:
            raise ValueError("the field of this attention has no potential, wanted V = c K^T Q transposed (or beta = 0)")
        if model.is_linear:
            mean = measure.mean() * (1 / measure.total if model.normalised else np.exp(-model.log_scale))
            return points @ (mean if model.value is None else model.value @ mean)
        logs, shift = self._log_mean(points)
        if model.normalised:
            excess = logs + shift
            excess *= factor / model.beta
            return excess
        unit = np.exp(-model.log_scale)
        large = self._exponential(logs, shift) - measure.total * unit
        small = measure.total * unit * np.expm1(np.minimum(logs + shift, 1.0))
        return factor / model.beta * np.where(logs + shift < 1.0, small, large)

    def log_partition(self, points: FloatArray) -> FloatArray:
        """log Z(beta B x) (m,), for any beta without overflow."""
        if self.attention.is_linear:
            return np.full(len(points), np.log(self.measure.total))
        logs, shift = self._log_mean(points)
        return logs + (shift + np.log(self.measure.total))

    def energy(self) -> Scaled:
        model, measure = self.attention, self.measure
        if model.beta == 0:
            mean = np.array([math.fsum(measure.masses * x) for x in measure.points.T])
            return Scaled.of(float(mean @ (mean if model.bilinear is None else model.bilinear @ mean)) / 2)
        split, terms = measure.split, []
        for part, rest in zip(measure.parts, split.rest, strict=True):
            kept: Any = slice(None) if part.masses.all() else part.masses > 0  # points without mass are not asked for anew
            known = id(part.points) in self._known
            logs = self.log_partition(part.points)[kept] if known else self.log_partition(part.points[kept])
            terms.append((logs, rest.masses[kept]))
            if split.uniform:
                mean_logs, masses = model.log_uniform(part.points[kept], part.masses[kept])
                terms.append((mean_logs, split.uniform * masses))
        return Scaled.weighted_sum(*terms) / (2 * model.beta)

    def _valued(self, average: FloatArray) -> FloatArray:
        return average if self.attention.value is None else average @ self.attention.value.T

    def _average(self, points: FloatArray) -> tuple[FloatArray, FloatArray]:
        """The attention-weighted mean of y (times Z e^-log_scale for USA) as a multiple of B x and the rest, both (m, d)."""
        model, measure = self.attention, self.measure
        if model.is_linear:
            mean = measure.mean() * (1 / measure.total if model.normalised else np.exp(-model.log_scale))
            return np.zeros(points.shape), np.tile(mean, (len(points), 1))
        asked = model.queries(points, self._weights)
        found = self._analysis.integrals(asked, with_offsets=True)
        assert found.offsets is not None, "offsets were asked for"
        if model.normalised:
            return asked.directions, found.offsets
        scale = self._exponential(found.logs, asked.shift)[:, None]
        return scale * asked.directions, scale * found.offsets

    def _log_mean(self, points: FloatArray) -> tuple[FloatArray, float]:
        """log(Z/M) - shift (m,), and the shift. What was computed for the measure's own points is kept: a step asks for it twice."""
        if id(points) in self._known:
            return self._known[id(points)]
        asked = self.attention.queries(points, self._weights)
        found = self._analysis.integrals(asked, with_offsets=False).logs, asked.shift
        if any(points is part.points for part in self.measure.parts):
            self._known[id(points)] = found
        return found

    def _exponential(self, logs: FloatArray, shift: float) -> FloatArray:
        """Z e^-log_scale (m,) from log(Z/M) - shift."""
        model = self.attention
        constant = shift + float(np.log(self.measure.total)) - model.log_scale
        largest = float(logs.max(initial=-np.inf)) + constant
        if largest > LARGEST_LOG:
            raise OverflowError(
                f"the unnormalised field reaches e^{largest:.4g} at beta = {model.beta:g}, beyond double precision; "
                f"use log_scale={model.beta:g} (time in units of e^-log_scale) or normalised=True"
            )
        return np.exp(logs + constant)


def _square(name: str, matrix: ArrayLike | None) -> FloatArray | None:
    if matrix is None:
        return None
    checked = inputs.array(name, matrix, ("d", "d"))
    if checked.shape[0] != checked.shape[1] or not len(checked):
        raise ValueError(f"{name} has shape {checked.shape}, wanted a square matrix (d, d)")
    return frozen(checked)
