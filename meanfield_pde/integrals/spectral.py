"""Attention integrals by transforms, O(n + m + band^3): the kernel is smooth, so that Z is band-limited.

Masses are analysed at their own points, multiplied by one factor per degree and synthesised at the queries z = r u. Degree 0 is exact; the
rest carries an absolute error of about `NOISE` times its largest value on the sphere |z| = r, so that a query's relative error is large
where Z is small. Everything is scaled by e^{-r}, and nothing overflows. Where queries have different radii (general Q and K),
e^{-r} Z(r u) is smooth in r: queries are grouped into panels of radii, synthesised at the panel's Chebyshev nodes and interpolated; the
radial derivative is that of the interpolant. Kernels are sums of e^{-r s}, 0 <= s <= 2, with positive weights, so that interpolation
keeps relative accuracy at every query.

Data in: queries and a measure. Data out: log(Z/M) - shift, offsets, Z and its error. Source: 2312.10794 for Z; expansions: `harmonics`.
"""

from dataclasses import dataclass
from functools import lru_cache

import numpy as np
from numpy.polynomial import chebyshev
from scipy.special import ive

from meanfield_pde.bessel import bessel_ratio, degree_factors, log_lambda
from meanfield_pde.integrals.harmonics import HARMONICS, ComplexArray, Harmonics, kernel_band, kernel_factors
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
"""Largest relative error of Z that is reported. Where noise leaves Z smaller (or negative), it is raised to the value with this error, so
that its logarithm exists; callers see the error and sum such queries directly where it matters."""


@dataclass(frozen=True)
class Synthesis:
    """Z without its degree 0, times e^{-r} / M, at the queries: values (m,); gradients, tangent, over r (m, d) and radial derivatives (m,),
    both None if not asked for; sizes, an estimate of its largest value on the sphere of each query, (m,) or one number."""

    values: FloatArray
    gradients: FloatArray | None
    radials: FloatArray | None
    sizes: FloatArray | float


@dataclass(frozen=True)
class Coefficients:
    """A measure analysed in harmonics up to a band, over its total mass and without degree 0, whose part is known exactly."""

    d: int
    band: int
    values: ComplexArray

    @classmethod
    def of(cls, measure: Measure, largest_radius: float, accuracy: float, band: int | None = None) -> "Coefficients":
        """largest_radius: of the queries to come. accuracy: of the truncation, over the largest Z. band: chosen from these if None.

        The uniform law that cells contain has degree 0 alone; its points would bring the error of a quadrature to the other degrees.
        """
        d = measure.dimension
        harmonics = HARMONICS[d]
        band = kernel_band(d, largest_radius, accuracy / 10) if band is None else band
        first, *others = measure.split.rest
        values = harmonics.analyse(first.points, first.masses, band)
        for part in others:
            values = values + harmonics.analyse(part.points, part.masses, band)
        values /= measure.total
        values[0] = 0.0
        return cls(d, band, values)


def integrals(
    coefficients: Coefficients, queries: Queries, with_offsets: bool, accuracy: float
) -> tuple[FloatArray, FloatArray | None, FloatArray, FloatArray | float]:
    """log(Z/M) - shift (m,), the attention-weighted mean of y - u (m, d) or None, e^{-r} Z/M (m,) and its error, (m,) or one number."""
    d = coefficients.d
    if queries.radius is None:
        rest = _on_panels(coefficients, queries, with_offsets, accuracy)
        r: FloatArray | float = queries.radii
    else:
        rest = _on_one_radius(coefficients, queries.directions, queries.radius, with_offsets)
        r = queries.radius
    mean, ratio = _constant(d, r) if isinstance(r, float) else (np.exp(log_lambda(d, 0, r) - r), bessel_ratio(d / 2 - 1, r))
    noise = NOISE * rest.sizes
    close = None
    if np.min(r, initial=np.inf) < SMALL_RADIUS:
        close = np.log1p(np.where(r < SMALL_RADIUS, _mean_excess(d, r) + rest.values * np.exp(np.minimum(r, SMALL_RADIUS)), 0.0))
    z = rest.values
    z += mean
    if z.min(initial=np.inf) < np.max(noise) / LOST:
        np.maximum(z, noise / LOST, out=z)
    logs = np.log(z)
    logs += r - queries.shift
    if close is not None:
        logs = np.where(r < SMALL_RADIUS, close, logs)
    offsets = None
    if rest.gradients is not None and rest.radials is not None:
        along = mean * ratio + rest.radials
        offsets = ((along - z)[:, None] * queries.directions + rest.gradients) / z[:, None]
    return logs, offsets, z, noise


@lru_cache(16)
def _constant(d: int, radius: float) -> tuple[float, float]:
    """Lambda_0 e^{-r} and Lambda_1 / Lambda_0 at one radius."""
    return float(degree_factors(d, radius, 0)[0]), float(bessel_ratio(d / 2 - 1, radius))


def _mean_excess(d: int, r: FloatArray | float) -> FloatArray:
    """Lambda_0(r) - 1 for small r, with its digits: the series of 0F1(; d/2; r^2/4)."""
    small = np.minimum(r, SMALL_RADIUS) ** 2 / 4
    result = np.zeros_like(small)
    term = np.ones_like(small)
    for n in range(1, 16):
        term = term * small / (n * (d / 2 + n - 1))
        result = result + term
    return result


def _on_one_radius(coefficients: Coefficients, directions: FloatArray, radius: float, with_offsets: bool) -> Synthesis:
    harmonics, band = HARMONICS[coefficients.d], coefficients.band
    degrees = harmonics.degrees(band)
    factors = kernel_factors(coefficients.d, radius, band + 1)
    scaled = coefficients.values * factors[degrees]
    values = harmonics.values(scaled, band, directions, band)
    size = _size(harmonics, scaled, band, band, values)
    if not with_offsets:
        return Synthesis(values, None, None, size)
    gradients = harmonics.gradients(scaled / radius, band, directions, band)
    slopes = factors[degrees + 1] + degrees / radius * factors[degrees]
    return Synthesis(values, gradients, harmonics.values(coefficients.values * slopes, band, directions, band), size)


def _size(harmonics: Harmonics, scaled: ComplexArray, band: int, narrower: int, values: FloatArray) -> float:
    """An estimate of the largest value on the sphere, from the values found and from the mean square, which no choice of queries hides."""
    found = max(float(values.max(initial=0.0)), -float(values.min(initial=0.0)))
    return max(found, harmonics.root_mean_square(scaled, band) * float(np.sqrt(narrower + 1)))


def _on_panels(coefficients: Coefficients, queries: Queries, with_offsets: bool, accuracy: float) -> Synthesis:
    harmonics, band = HARMONICS[coefficients.d], coefficients.band
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
        narrower = min(band, kernel_band(d, middle + half, accuracy / 10))
        directions = frozen(queries.directions[rows])
        nodes, cardinal, slopes = _interpolation((queries.radii[rows] - middle) / half, count)
        for j, node in enumerate(nodes):
            radius = float(middle + half * node)
            factors = kernel_factors(d, radius, band).copy()
            factors[narrower + 1 :] = 0.0
            scaled = coefficients.values * factors[degrees]
            at_node = harmonics.values(scaled, band, directions, narrower)
            values[rows] += cardinal[:, j] * at_node
            radials[rows] += slopes[:, j] / half * at_node
            sizes[rows] = np.maximum(sizes[rows], _size(harmonics, scaled, band, narrower, at_node))
            if gradients is not None:
                gradients[rows] += cardinal[:, j, None] * harmonics.gradients(scaled / radius, band, directions, narrower)
    return Synthesis(values, gradients, radials + values if with_offsets else None, sizes)


def syntheses(queries: Queries, with_offsets: bool, accuracy: float) -> tuple[int, int]:
    """How many syntheses the queries take together, and in how many of them each query takes part."""
    if queries.radius is not None:
        count = 4 if with_offsets else 1
        return count, count
    _, panels, half = _panels(queries)
    count = _node_count(half, accuracy) * (3 if with_offsets else 1)
    return panels * count, count


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
