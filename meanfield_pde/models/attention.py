"""Self-attention as a velocity field: what it is (beta, Q, K, V, normalised or not), whichever way its integrals are computed.

    X[mu](x) = P_x A[mu](x),   Z(z) = int e^{<z, y>} dmu(y),   B = K^T Q,   z = beta B x
    SA:  A = V grad log Z(z)      (softmax self-attention, 2312.10794, eq. SA)
    USA: A = V grad Z(z)          (unnormalised, 2312.10794, eq. USA)

Data in: points (m, d) and a measure. Data out: tangent velocities (m, d); where V = c B^T (or beta = 0) the field is the gradient of
a potential (m,): c log(Z/M)/beta for SA, c (Z - M)/beta for USA, M the total mass, and their limits <x, V int y dmu> at beta = 0.
"""

import math
from collections import Counter
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import ArrayLike

from meanfield_pde import inputs
from meanfield_pde.integrals.methods import Integrals, Method, resolve_method
from meanfield_pde.integrals.queries import Queries, queries
from meanfield_pde.integrals.scaled import Scaled
from meanfield_pde.measure import Measure
from meanfield_pde.records import equal, frozen
from meanfield_pde.sphere import FloatArray, tangent

LARGEST_LOG = float(np.log(np.finfo(np.float64).max))
NEGLIGIBLE = 1e-30
"""Below this largest entry of beta B, e^{<z, y>} is 1 + <z, y> far beyond double precision."""

PROPORTIONAL = 1e-14
"""V counts as c B^T if they differ by less than this, relative to the size of V."""


@dataclass(frozen=True, eq=False)
class Attention:
    """Self-attention with inverse temperature beta >= 0 (dimensionless) and matrices (d, d), None for the identity.

    normalised=True is SA, False is USA. log_scale: USA only, its velocity is divided by e^log_scale, that is, time runs in units of
    e^-log_scale; at large beta, where USA exceeds double precision, log_scale = beta makes the kernel at most 1.
    Raises ValueError for a negative or non-finite beta, matrices that are not square or not finite, matrices of different sizes, or a
    log_scale for SA.

    Methods take method= "auto", "direct", "spectral" or an object of `attention.integrals`; weights= (m,), the mass at each point, if only
    mass times velocity needs to be accurate; and work=, a counter that is told how many points were answered by "sums" and "transforms".
    """

    beta: float
    query: FloatArray | None
    key: FloatArray | None
    value: FloatArray | None
    normalised: bool
    log_scale: float
    _bilinear: FloatArray | None = field(repr=False)

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
        object.__setattr__(self, "_bilinear", None if bilinear is None else frozen(bilinear))

    @property
    def dimension(self) -> int | None:
        """d of the matrices, None if all are the identity (any d)."""
        return next((len(m) for m in (self.query, self.key, self.value) if m is not None), None)

    @property
    def is_gradient(self) -> bool:
        """Whether the velocity is the gradient of `potential`."""
        return self._potential_factor() is not None

    @property
    def bilinear_norm(self) -> float:
        """The spectral norm of K^T Q: queries beta K^T Q x are at most beta times as long."""
        return 1.0 if self._bilinear is None else float(np.linalg.norm(self._bilinear, 2))

    @property
    def is_isotropic(self) -> bool:
        """Whether the field commutes with rotations, so that the uniform law is at rest."""
        d = self.dimension or 0
        return all(m is None or np.array_equal(m, m[0, 0] * np.eye(d)) for m in (self._bilinear, self.value))

    def velocity(
        self,
        points: ArrayLike,
        measure: Measure,
        t: float = 0.0,
        method: str | Method = "auto",
        weights: FloatArray | None = None,
        work: Counter[str] | None = None,
    ) -> FloatArray:
        """Tangent velocity X[mu] (m, d) at points (m, d) on the sphere; t is not used by weights that are constant in time.

        Raises ValueError if dimensions differ and OverflowError if an unnormalised field exceeds double precision.
        """
        x = self._checked(points, measure)
        radial, rest = self._average(x, measure, method, weights, work)
        if not self.is_isotropic:  # otherwise V maps the radial part to a multiple of x, whose rounding would hide a small velocity
            rest = rest + radial
        return tangent(x, rest if self.value is None else rest @ self.value.T)

    def field(
        self,
        points: ArrayLike,
        measure: Measure,
        t: float = 0.0,
        method: str | Method = "auto",
        weights: FloatArray | None = None,
        work: Counter[str] | None = None,
    ) -> FloatArray:
        """A[mu] (m, d), the attention output before its projection to the tangent space."""
        radial, rest = self._average(self._checked(points, measure), measure, method, weights, work)
        return radial + rest if self.value is None else (radial + rest) @ self.value.T

    def potential(
        self,
        points: ArrayLike,
        measure: Measure,
        t: float = 0.0,
        method: str | Method = "auto",
        weights: FloatArray | None = None,
        work: Counter[str] | None = None,
    ) -> FloatArray:
        """The potential (m,) whose tangent gradient is the velocity. Raises ValueError unless `is_gradient`."""
        factor = self._potential_factor()
        if factor is None:
            raise ValueError("the field of this attention has no potential, wanted V = c K^T Q transposed (or beta = 0)")
        x = self._checked(points, measure)
        if self._is_linear:
            mean = measure.mean() * (1 / measure.total if self.normalised else np.exp(-self.log_scale))
            return x @ (mean if self.value is None else self.value @ mean)
        asked = queries(x, self.beta, self._bilinear)
        logs, shift = self._integrals(asked, measure, False, method, weights, work).logs, asked.shift
        if self.normalised:
            logs += shift
            logs *= factor / self.beta
            return logs
        unit = np.exp(-self.log_scale)
        large = self._exponential(logs, shift, measure) - measure.total * unit
        small = measure.total * unit * np.expm1(np.minimum(logs + shift, 1.0))
        return factor / self.beta * np.where(logs + shift < 1.0, small, large)

    def log_partition(self, points: ArrayLike, measure: Measure, method: str | Method = "auto") -> FloatArray:
        """log Z(beta B x) (m,), for any beta without overflow."""
        x = self._checked(points, measure)
        if self._is_linear:
            return np.full(len(x), np.log(measure.total))
        asked = queries(x, self.beta, self._bilinear)
        return self._integrals(asked, measure, False, method, None, None).logs + (asked.shift + np.log(measure.total))

    def energy(self, measure: Measure, potential: FloatArray | None = None, method: str | Method = "auto") -> Scaled:
        """E = (1/2 beta) iint e^{beta <Qx, Ky>} dmu dmu (2312.10794); at beta = 0 its finite part <Q m, K m>/2, m = int x dmu.

        potential: (n,), its values at the measure's own points, if they are known already.
        """
        if self.beta == 0:
            mean = np.array([math.fsum(measure.masses * x) for x in measure.points.T])
            return Scaled(0.0, float(mean @ (mean if self._bilinear is None else self._bilinear @ mean)) / 2)
        kept = measure.masses > 0
        if not kept.any():
            return Scaled(0.0, 0.0)
        logs = None if potential is None else self._log_partition_from(potential[kept], measure.total)
        if logs is None:
            logs = self.log_partition(measure.points if kept.all() else measure.points[kept], measure, method)
        return Scaled.weighted_sum(logs, measure.masses[kept]) / (2 * self.beta)

    def speed_bound(self, measure: Measure) -> float:
        """An upper bound of |A[mu]|: the spectral norm of V, times M e^{beta |B| - log_scale} for USA (inf if that overflows)."""
        size = 1.0 if self.value is None else float(np.linalg.norm(self.value, 2))
        if self.normalised:
            return size
        exponent = self.beta * self.bilinear_norm - self.log_scale
        return size * measure.total * float(np.exp(exponent)) if exponent < LARGEST_LOG else np.inf

    def __eq__(self, other: object) -> bool:
        return equal(self, other)

    @property
    def _is_linear(self) -> bool:
        """Whether Z is constant to rounding, so that attention averages without weights."""
        return self.beta * (1.0 if self._bilinear is None else float(np.abs(self._bilinear).max())) <= NEGLIGIBLE

    def _potential_factor(self) -> float | None:
        """c with V = c B^T, None if there is none."""
        if self._is_linear:
            return 1.0
        if self.value is None and self._bilinear is None:
            return 1.0
        d = self.dimension or 0
        v = np.eye(d) if self.value is None else self.value
        transposed = np.eye(d) if self._bilinear is None else self._bilinear.T
        factor = float(np.sum(v * transposed) / np.sum(transposed**2))
        scale = float(np.abs(v).max())
        return factor if np.abs(v - factor * transposed).max() <= PROPORTIONAL * scale else None

    def _log_partition_from(self, potential: FloatArray, total: float) -> FloatArray | None:
        """log Z (n,) from the potential, which has one constant removed; None where the potential does not tell it."""
        factor = self._potential_factor()
        if not factor or self._is_linear:
            return None
        excess = potential * (self.beta / factor)
        if self.normalised:
            return np.log(total) + excess
        excess, unit = excess / total, np.exp(-self.log_scale)
        if excess.min() <= -unit / 2:  # Z - M has no digits of a Z far below M
            return None
        return np.log(total) + (np.log1p(excess) if unit == 1 else self.log_scale + np.log(excess + unit))

    def _average(
        self, points: FloatArray, measure: Measure, method: str | Method, weights: FloatArray | None, work: Counter[str] | None
    ) -> tuple[FloatArray, FloatArray]:
        """The attention-weighted mean of y (times Z e^-log_scale for USA) as a multiple of B x and the rest, both (m, d)."""
        if self._is_linear:
            mean = measure.mean() * (1 / measure.total if self.normalised else np.exp(-self.log_scale))
            return np.zeros(points.shape), np.tile(mean, (len(points), 1))
        asked = queries(points, self.beta, self._bilinear)
        found = self._integrals(asked, measure, True, method, weights, work)
        assert found.offsets is not None, "offsets were asked for"
        if self.normalised:
            return asked.directions, found.offsets
        scale = self._exponential(found.logs, asked.shift, measure)[:, None]
        return scale * asked.directions, scale * found.offsets

    def _integrals(
        self,
        asked: Queries,
        measure: Measure,
        with_offsets: bool,
        method: str | Method,
        weights: FloatArray | None,
        work: Counter[str] | None,
    ) -> Integrals:
        found = resolve_method(method).integrals(asked, measure, with_offsets, weights)
        if work is not None:
            work["sums"] += found.summed
            work["transforms"] += len(asked) - found.summed
        return found

    def _exponential(self, logs: FloatArray, shift: float, measure: Measure) -> FloatArray:
        """Z e^-log_scale (m,) from log(Z/M) - shift."""
        constant = shift + float(np.log(measure.total)) - self.log_scale
        largest = float(logs.max(initial=-np.inf)) + constant
        if largest > LARGEST_LOG:
            raise OverflowError(
                f"the unnormalised field reaches e^{largest:.4g} at beta = {self.beta:g}, beyond double precision; "
                f"use log_scale={self.beta:g} (time in units of e^-log_scale) or normalised=True"
            )
        return np.exp(logs + constant)

    def _checked(self, points: ArrayLike, measure: Measure) -> FloatArray:
        inputs.instance("measure", measure, Measure)
        d = measure.dimension
        x = inputs.real_array("points", points, ("m", d), like=" like the measure's points")
        if self.dimension not in (None, d):
            raise ValueError(f"points lie in R^{d}, but the attention's matrices are {self.dimension} x {self.dimension}")
        if not measure.total > 0:
            raise ValueError(f"the measure has mass {measure.total:g}, wanted a positive mass")
        return x


def _square(name: str, matrix: ArrayLike | None) -> FloatArray | None:
    if matrix is None:
        return None
    checked = inputs.array(name, matrix, ("d", "d"))
    if checked.shape[0] != checked.shape[1] or not len(checked):
        raise ValueError(f"{name} has shape {checked.shape}, wanted a square matrix (d, d)")
    return frozen(checked)
