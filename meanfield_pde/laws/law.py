"""Laws on the sphere: probability densities with respect to surface measure that can be evaluated anywhere and sampled exactly.

Data in: parameters or tokens. Data out: density (m, d) -> (m,), samples (count, d) from a seed. A law is any object with `dimension`,
`__call__(points)` and `draw(generator, count)`; densities are in 1/area, everything else is dimensionless.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

import numpy as np
from numpy.typing import ArrayLike

from meanfield_pde import inputs
from meanfield_pde.bessel import log_lambda
from meanfield_pde.measure import Measure, as_measure
from meanfield_pde.records import frozen
from meanfield_pde.sphere import FloatArray, normalise, surface_area

CHUNK_BYTES = 1 << 26
MOST_TOKENS = 100_000_000
LARGEST_DIMENSION = 100_000
LARGEST_KAPPA = 1e10
"""At this kappa, its own rounding changes the density by 1e-6 (relative), and by more above."""
SMALL_KAPPA = 1e-8
"""Below this kappa the law is sampled as the uniform one: samples cannot tell them apart, and scipy's method for S^2 loses its digits."""


class Density(Protocol):
    """What projection and spreading ask of a law."""

    @property
    def dimension(self) -> int: ...

    def __call__(self, points: FloatArray) -> FloatArray: ...


class Law(Density, Protocol):
    """What sampling asks of a law."""

    def draw(self, generator: np.random.Generator, count: int) -> FloatArray: ...


def sample(law: Law, count: int, seed: int) -> FloatArray:
    """`count` independent tokens (count, d) from a law; the same seed gives the same tokens. Raises ValueError for a bad count or seed."""
    inputs.having("law", law, "a law, which can draw tokens", "draw")
    count = inputs.integer("count", count, low=1, most=MOST_TOKENS)
    seed = inputs.integer("seed", seed, low=0)
    return law.draw(np.random.default_rng(seed), count)


@dataclass(frozen=True, eq=False)
class Uniform:
    """The uniform law on S^{d-1}, d >= 2."""

    d: int

    def __post_init__(self) -> None:
        object.__setattr__(self, "d", inputs.integer("d", self.d, low=2, most=LARGEST_DIMENSION))

    @property
    def dimension(self) -> int:
        return self.d

    def __call__(self, points: FloatArray) -> FloatArray:
        return np.full(len(points), 1 / area(self.d))

    def draw(self, generator: np.random.Generator, count: int) -> FloatArray:
        return normalise(generator.normal(size=(count, self.d)))


@dataclass(frozen=True, eq=False)
class VonMisesFisher:
    """Density `e^{kappa <mean, x>} / (|S^{d-1}| Lambda_0(kappa))`: a cap of width about kappa^{-1/2}; kappa = 0 is uniform.

    mean: (d,), a direction, normalised here. kappa: concentration, 0 to 1e10. Raises ValueError for the zero vector or another kappa.
    Source: Mardia and Jupp, Directional Statistics, section 9.3.
    """

    mean: FloatArray
    kappa: float

    def __init__(self, mean: ArrayLike, kappa: float) -> None:
        set_fields(self, mean=direction("mean", mean), kappa=inputs.number("kappa", kappa, low=0.0, most=LARGEST_KAPPA))

    @property
    def dimension(self) -> int:
        return len(self.mean)

    def __call__(self, points: FloatArray) -> FloatArray:
        return cap(points, self.mean, self.kappa)

    def draw(self, generator: np.random.Generator, count: int) -> FloatArray:
        if self.kappa < SMALL_KAPPA:
            return Uniform(self.dimension).draw(generator, count)
        from scipy.stats import vonmises_fisher  # takes 0.2 s to load, as long as the rest of the package

        law = vonmises_fisher(self.mean, self.kappa)  # type: ignore[arg-type]  # the stubs ask for an integer kappa
        return normalise(law.rvs(count, random_state=generator).reshape(count, self.dimension))


@dataclass(frozen=True, eq=False)
class Mixture:
    """sum_i weights_i laws_i. weights: >= 0, sum 1 (within 1e-12). Raises ValueError if dimensions differ or weights are off."""

    laws: tuple[Law, ...]
    weights: FloatArray

    def __init__(self, laws: Sequence[Law], weights: ArrayLike) -> None:
        parts = inputs.sequence("laws", laws, "a list of laws")
        if not parts:
            raise ValueError("laws is empty, wanted at least one law")
        for i, law in enumerate(parts):
            inputs.having(f"laws[{i}]", law, "a law", "dimension", "__call__", "draw")
        shares = inputs.non_negatives("weights", weights, (len(parts),))
        inputs.sum_one("weights sum to", float(shares.sum()))
        dimensions = {law.dimension for law in parts}
        if len(dimensions) > 1:
            raise ValueError(f"laws have dimensions {sorted(dimensions)}, wanted one")
        set_fields(self, laws=tuple(parts), weights=frozen(shares))

    @property
    def dimension(self) -> int:
        return self.laws[0].dimension

    def __call__(self, points: FloatArray) -> FloatArray:
        return np.sum([weight * law(points) for weight, law in zip(self.weights, self.laws, strict=True)], axis=0)

    def draw(self, generator: np.random.Generator, count: int) -> FloatArray:
        chosen = generator.choice(len(self.laws), size=count, p=self.weights)
        tokens = np.empty((count, self.dimension))
        for i, law in enumerate(self.laws):
            members = chosen == i
            tokens[members] = law.draw(generator, int(members.sum()))
        return tokens


@dataclass(frozen=True, eq=False)
class Moebius:
    """The image of the uniform law under a Moebius map of the ball: f = ((1-|w|^2)/|x-w|^2)^{d-1} / |S^{d-1}|, |w| < 1.

    At beta = 0 the attention flow keeps this family (`exact.moebius`). w: (d,). Raises ValueError if |w| >= 1.
    Source: Lipton, Mirollo, Strogatz, Chaos 31, 093113 (2021), section II; d = 2 is the Ott-Antonsen ansatz.
    """

    w: FloatArray

    def __init__(self, w: ArrayLike) -> None:
        point = inputs.array("w", w, ("d",))
        with np.errstate(over="ignore"):
            square = float(point @ point)
        if len(point) < 2 or not square < 1:
            length = inputs.exactly(np.sqrt(square))
            raise ValueError(f"w has {len(point)} coordinates and length {length}, wanted d >= 2 and length < 1")
        set_fields(self, w=frozen(point))

    @property
    def dimension(self) -> int:
        return len(self.w)

    def __call__(self, points: FloatArray) -> FloatArray:
        ratio = (1 - self.w @ self.w) / np.sum((points - self.w) ** 2, axis=1)
        return ratio ** (self.dimension - 1) / area(self.dimension)

    def draw(self, generator: np.random.Generator, count: int) -> FloatArray:
        shifted = Uniform(self.dimension).draw(generator, count) + self.w
        return normalise((1 - self.w @ self.w) * shifted / np.sum(shifted**2, axis=1)[:, None] + self.w)


@dataclass(frozen=True, eq=False)
class Smoothed:
    """Tokens smeared out: a von Mises-Fisher cap of the given bandwidth on every token, kappa = 1 / bandwidth^2.

    tokens: (n, d) or a `Measure` of total mass 1. bandwidth: standard deviation of a cap along each tangent direction, radians, 1e-5 to pi.
    """

    tokens: Measure
    bandwidth: float

    def __init__(self, tokens: ArrayLike | Measure, bandwidth: float) -> None:
        measure = as_measure("tokens", tokens)
        inputs.sum_one("tokens have mass", measure.total)
        width = inputs.number("bandwidth", bandwidth, above=0.0, high=np.pi)
        if width**2 * LARGEST_KAPPA < 1:
            raise ValueError(f"bandwidth is {inputs.exactly(width)}, wanted at least {LARGEST_KAPPA**-0.5:g}")
        set_fields(self, tokens=measure, bandwidth=width)

    @property
    def dimension(self) -> int:
        return self.tokens.dimension

    def __call__(self, points: FloatArray) -> FloatArray:
        kappa, result = self.bandwidth**-2, np.empty(len(points))
        rows = max(1, CHUNK_BYTES // (8 * self.dimension * len(self.tokens)))
        for first in range(0, len(points), rows):
            block = points[first : first + rows, None, :]
            result[first : first + rows] = cap(block, self.tokens.points, kappa) @ self.tokens.masses
        return result

    def draw(self, generator: np.random.Generator, count: int) -> FloatArray:
        chosen = generator.choice(len(self.tokens), size=count, p=self.tokens.masses)
        pole = np.eye(self.dimension)[0]
        caps = VonMisesFisher(pole, self.bandwidth**-2).draw(generator, count)
        normal = self.tokens.points[chosen] - pole  # of the Householder reflections that take the pole to the tokens
        square = np.sum(normal**2, axis=1)
        scale = np.divide(2 * np.sum(caps * normal, axis=1), square, out=np.zeros_like(square), where=square > 0)
        return normalise(caps - scale[:, None] * normal)


def cap(points: FloatArray, mean: FloatArray, kappa: float) -> FloatArray:
    """The von Mises-Fisher density; <x, m> - 1 is taken from the chord, which keeps its digits where kappa is large."""
    d = mean.shape[-1]
    chord = np.sum((points - mean) ** 2, axis=-1)
    return np.exp(-kappa * chord / 2 - (float(log_lambda(d, 0, kappa)) - kappa)) / area(d)


def area(d: int) -> float:
    """Area of S^{d-1}, by which densities are divided."""
    result = surface_area(d)
    if result < 1 / np.finfo(np.float64).max:
        raise OverflowError(f"the density in dimension {d} is more than a float can hold; tokens can still be drawn")
    return result


def set_fields(record: object, **values: object) -> None:
    for name, value in values.items():
        object.__setattr__(record, name, value)


def direction(name: str, vector: ArrayLike) -> FloatArray:
    checked = inputs.array(name, vector, ("d",))
    if len(checked) < 2 or not checked.any():
        length = np.abs(checked).max(initial=0.0)
        raise ValueError(f"{name} has {len(checked)} coordinates and length {length:g}, wanted a direction of d >= 2 coordinates")
    return frozen(normalise(checked / np.abs(checked).max()))
