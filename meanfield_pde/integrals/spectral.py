"""Attention integrals by transforms, O(n + m + band^3): the kernel is smooth, so that Z is band-limited.

Masses are analysed at their own points, multiplied by one factor per degree and synthesised at the queries z = r u. Degree 0 is exact; the
rest carries an absolute error of about `NOISE` times its largest value on the sphere |z| = r, so that a query's relative error is large
where Z is small. Everything is scaled by e^{-r}, and nothing overflows. Where queries have different radii (general Q and K),
e^{-r} Z(r u) is smooth in r: queries are grouped into panels of radii, synthesised at the panel's Chebyshev nodes and interpolated; the
radial derivative is that of the interpolant. Kernels are sums of e^{-r s}, 0 <= s <= 2, with positive weights, so that interpolation
keeps relative accuracy at every query.

Data in: queries and a measure. Data out: log(Z/M) - shift, offsets and relative errors. Source: 2312.10794 for Z; expansions: `harmonics`.
"""

from dataclasses import dataclass
from functools import lru_cache

import numpy as np
from numpy.polynomial import chebyshev
from scipy.special import ive

from meanfield_pde.bessel import bessel_ratio, log_lambda
from meanfield_pde.integrals.harmonics import HARMONICS, ComplexArray, Harmonics
from meanfield_pde.integrals.queries import SMALL_RADIUS, Queries
from meanfield_pde.measure import Measure
from meanfield_pde.records import frozen
from meanfield_pde.sphere import FloatArray

PANEL_WIDTH = 2.0
NARROWEST_HALF = 0.5
FEWEST_NODES = 10
"""However few give the values: the radial derivative is taken from them too."""

NOISE = 5e-14
"""Absolute error of the transforms over the largest value at that radius: an upper bound of what tests measure."""

LOST = 0.5
"""Where the relative error would exceed this, Z is replaced by the value at which it does not: a logarithm needs a positive number."""


@dataclass(frozen=True)
class Synthesis:
    """Z without its degree 0, times e^{-r} / M, at the queries: values (m,); gradients, tangent, over r (m, d) and radial derivatives (m,),
    both None if not asked for; sizes, an estimate of its largest value on the sphere of each query, (m,) or one number."""

    values: FloatArray
    gradients: FloatArray | None
    radials: FloatArray | None
    sizes: FloatArray | float


def integrals(
    queries: Queries, measure: Measure, with_offsets: bool, accuracy: float, band: int | None = None
) -> tuple[FloatArray, FloatArray | None, FloatArray]:
    """log(Z/M) - shift (m,), the attention-weighted mean of y - u (m, d) or None, and the relative error of Z (m,).

    accuracy: of the truncation, over the largest Z. band: largest degree, chosen from the accuracy if None.
    """
    harmonics, d = HARMONICS[measure.dimension], measure.dimension
    band = harmonics.band(queries.largest_radius, accuracy / 10) if band is None else band
    coefficients = harmonics.analyse(measure.parts[0].points, measure.parts[0].masses, band)
    for part in measure.parts[1:]:
        coefficients = coefficients + harmonics.analyse(part.points, part.masses, band)
    coefficients /= measure.total
    coefficients[0] = 0.0
    if queries.radius is None:
        rest = _on_panels(harmonics, coefficients, band, queries, with_offsets, accuracy)
        r: FloatArray | float = queries.radii
    else:
        rest = _on_one_radius(harmonics, coefficients, band, queries.directions, queries.radius, with_offsets)
        r = queries.radius
    log_mean, ratio = _constant(d, r) if isinstance(r, float) else (log_lambda(d, 0, r), bessel_ratio(d / 2 - 1, r))
    mean = np.exp(log_mean - r)
    noise = NOISE * rest.sizes
    close = None
    if np.min(r, initial=np.inf) < SMALL_RADIUS:
        close = np.log1p(np.where(r < SMALL_RADIUS, _mean_excess(d, r) + rest.values * np.exp(np.minimum(r, SMALL_RADIUS)), 0.0))
    z = rest.values
    z += mean
    np.maximum(z, noise / LOST, out=z)
    logs = np.log(z)
    logs += r - queries.shift
    if close is not None:
        logs = np.where(r < SMALL_RADIUS, close, logs)
    offsets = None
    if rest.gradients is not None and rest.radials is not None:
        along = mean * ratio + rest.radials
        offsets = ((along - z)[:, None] * queries.directions + rest.gradients) / z[:, None]
    return logs, offsets, np.divide(noise, z, out=z)


@lru_cache(16)
def _constant(d: int, radius: float) -> tuple[float, float]:
    """log Lambda_0 and Lambda_1 / Lambda_0 at one radius."""
    return float(log_lambda(d, 0, radius)), float(bessel_ratio(d / 2 - 1, radius))


def _mean_excess(d: int, r: FloatArray | float) -> FloatArray:
    """Lambda_0(r) - 1 for small r, with its digits: the series of 0F1(; d/2; r^2/4)."""
    small = np.minimum(r, SMALL_RADIUS) ** 2 / 4
    result = np.zeros_like(small)
    term = np.ones_like(small)
    for n in range(1, 16):
        term = term * small / (n * (d / 2 + n - 1))
        result = result + term
    return result


def _on_one_radius(
    harmonics: Harmonics, coefficients: ComplexArray, band: int, directions: FloatArray, radius: float, with_offsets: bool
) -> Synthesis:
    degrees = harmonics.degrees(band)
    factors = harmonics.factors(radius, band + 1)
    scaled = coefficients * factors[degrees]
    values = harmonics.values(scaled, band, directions, band)
    size = _size(harmonics, scaled, band, band, values)
    if not with_offsets:
        return Synthesis(values, None, None, size)
    gradients = harmonics.gradients(scaled / radius, band, directions, band)
    radials = harmonics.values(coefficients * (factors[degrees + 1] + degrees / radius * factors[degrees]), band, directions, band)
    return Synthesis(values, gradients, radials, size)


def _size(harmonics: Harmonics, scaled: ComplexArray, band: int, narrower: int, values: FloatArray) -> float:
    """An estimate of the largest value on the sphere, from the values found and from the mean square, which no choice of queries hides."""
    found = max(float(values.max(initial=0.0)), -float(values.min(initial=0.0)))
    return max(found, harmonics.root_mean_square(scaled, band) * float(np.sqrt(narrower + 1)))


def _on_panels(
    harmonics: Harmonics, coefficients: ComplexArray, band: int, queries: Queries, with_offsets: bool, accuracy: float
) -> Synthesis:
    m, d = queries.directions.shape
    values, radials, sizes = np.zeros(m), np.zeros(m), np.zeros(m)
    gradients = np.zeros((m, d)) if with_offsets else None
    degrees = harmonics.degrees(band)
    lowest, panels, half = _panels(queries)
    count = _node_count(half, accuracy)
    panel = np.minimum(((queries.radii - lowest) / (2 * half)).astype(np.int64), panels - 1)
    for k in range(panels):
        rows = np.flatnonzero(panel == k)
        if not len(rows):
            continue
        middle = lowest + (2 * k + 1) * half
        narrower = min(band, harmonics.band(middle + half, accuracy / 10))
        directions = frozen(queries.directions[rows])
        nodes, cardinal, slopes = _interpolation((queries.radii[rows] - middle) / half, count)
        for j, node in enumerate(nodes):
            radius = middle + half * node
            factors = harmonics.factors(radius, band).copy()
            factors[narrower + 1 :] = 0.0
            scaled = coefficients * factors[degrees]
            at_node = harmonics.values(scaled, band, directions, narrower)
            values[rows] += cardinal[:, j] * at_node
            radials[rows] += slopes[:, j] / half * at_node
            sizes[rows] = np.maximum(sizes[rows], _size(harmonics, scaled, band, narrower, at_node))
            if gradients is not None:
                gradients[rows] += cardinal[:, j, None] * harmonics.gradients(scaled / radius, band, directions, narrower)
    return Synthesis(values, gradients, radials + values if with_offsets else None, sizes)


def synthesis_count(queries: Queries, with_offsets: bool, accuracy: float) -> int:
    """How many syntheses a query takes part in."""
    if queries.radius is not None:
        return 4 if with_offsets else 1
    return _node_count(_panels(queries)[2], accuracy) * (3 if with_offsets else 1)


def _panels(queries: Queries) -> tuple[float, int, float]:
    """Lowest radius, number of panels and half their width."""
    lowest, highest = float(queries.radii.min()), queries.largest_radius
    count = max(1, int(np.ceil((highest - lowest) / PANEL_WIDTH)))
    half, middle = (highest - lowest) / count / 2, (highest + lowest) / 2
    if count == 1:  # a derivative over a narrow panel would magnify the noise of the transforms
        half = max(half, min(NARROWEST_HALF, middle / 2))
        lowest = middle - half
    return lowest, count, half


def _node_count(half: float, accuracy: float) -> int:
    """Chebyshev nodes that interpolate e^{-r s}, s <= 2, on a panel to a tenth of the accuracy, relative to its smallest value there."""
    counts = np.arange(1, 64)
    defects = 2 * ive(counts, 2 * half) * np.exp(4 * half)
    return max(FEWEST_NODES, int(counts[np.argmax(defects <= accuracy / 10)]))


def _interpolation(x: FloatArray, count: int) -> tuple[FloatArray, FloatArray, FloatArray]:
    """Chebyshev nodes (count,) in [-1, 1], and at x (m,) the cardinal functions and their derivatives (m, count)."""
    nodes = np.cos((np.arange(count) + 0.5) * np.pi / count)
    weights = chebyshev.chebvander(nodes, count - 1).T * (2 / count)
    weights[0] /= 2
    derived = np.stack([chebyshev.chebval(x, chebyshev.chebder(np.eye(count)[j])) for j in range(count)], axis=1)
    return nodes, chebyshev.chebvander(x, count - 1) @ weights, derived @ weights
