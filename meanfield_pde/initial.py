"""Laws on the sphere: probability densities with respect to surface measure that can be evaluated anywhere and sampled exactly.

Data in: parameters. Data out: density (m, d) -> (m,), samples (count, d) from a seed. A law is any object with `dimension`,
`__call__(points)` and `draw(generator, count)`; densities are in 1/area, everything else is dimensionless.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import NamedTuple, Protocol

import ducc0
import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.special import eval_chebyt, eval_gegenbauer, gammaln

from meanfield_pde import inputs
from meanfield_pde.bessel import log_lambda
from meanfield_pde.measure import Measure, as_measure
from meanfield_pde.records import frozen
from meanfield_pde.sphere import FloatArray, normalise, spherical_angles, surface_area

CHUNK_BYTES = 1 << 26
PROBES = 20_000
MOST_TOKENS = 100_000_000
LARGEST_DIMENSION = 100_000
LARGEST_KAPPA = 1e10
"""From here on rounding of kappa itself is seen in the density (1e-6, and growing like kappa)."""
LARGEST_DEGREE = 10_000
LARGEST_AMPLITUDE = 1e6
"""Above anything that leaves a density positive; beyond doubles its sums would overflow."""
SMALL_KAPPA = 1e-8
"""Below it scipy's inversion of the law on S^2 has lost its digits, while no sample can tell the law from the uniform one."""


class Law(Protocol):
    """What projection and sampling ask of a law."""

    @property
    def dimension(self) -> int: ...

    def __call__(self, points: FloatArray) -> FloatArray: ...

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
        return np.full(len(points), 1 / _area(self.d))

    def draw(self, generator: np.random.Generator, count: int) -> FloatArray:
        return normalise(generator.normal(size=(count, self.d)))


@dataclass(frozen=True, eq=False)
class VonMisesFisher:
    """Density e^{kappa <mean, x>} / (|S^{d-1}| Lambda_0(kappa)): a cap of width about kappa^{-1/2}; kappa = 0 is uniform.

    mean: (d,), a direction, normalised here. kappa: concentration, 0 to 1e10. Raises ValueError for the zero vector or another kappa.
    Source: Mardia and Jupp, Directional Statistics, section 9.3.
    """

    mean: FloatArray
    kappa: float

    def __init__(self, mean: ArrayLike, kappa: float) -> None:
        _set(self, mean=_direction("mean", mean), kappa=inputs.number("kappa", kappa, low=0.0, most=LARGEST_KAPPA))

    @property
    def dimension(self) -> int:
        return len(self.mean)

    def __call__(self, points: FloatArray) -> FloatArray:
        return _cap(points, self.mean, self.kappa)

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
        shares = inputs.array("weights", weights, (len(parts),))
        inputs.non_negative("weights", shares)
        if abs(shares.sum() - 1) > 1e-12:
            raise ValueError(f"weights sum to {shares.sum():.15g}, wanted 1")
        dimensions = {law.dimension for law in parts}
        if len(dimensions) > 1:
            raise ValueError(f"laws have dimensions {sorted(dimensions)}, wanted one")
        _set(self, laws=tuple(parts), weights=frozen(shares))

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
            raise ValueError(f"w has {len(point)} coordinates and length {np.sqrt(square):g}, wanted d >= 2 and length < 1")
        _set(self, w=frozen(point))

    @property
    def dimension(self) -> int:
        return len(self.w)

    def __call__(self, points: FloatArray) -> FloatArray:
        ratio = (1 - self.w @ self.w) / np.sum((points - self.w) ** 2, axis=1)
        return ratio ** (self.dimension - 1) / _area(self.dimension)

    def draw(self, generator: np.random.Generator, count: int) -> FloatArray:
        shifted = Uniform(self.dimension).draw(generator, count) + self.w
        return normalise((1 - self.w @ self.w) * shifted / np.sum(shifted**2, axis=1)[:, None] + self.w)


class Mode(NamedTuple):
    """A zonal harmonic: amplitude times the Gegenbauer polynomial of <x, axis> of this degree, 1 at the axis (cos(k angle) on S^1)."""

    degree: int
    amplitude: float
    axis: tuple[float, ...]


@dataclass(frozen=True, eq=False)
class PerturbedUniform:
    """(1 + sum of modes + noise) / |S^{d-1}|: a small departure from the uniform law.

    modes: rows (degree 1 to 10 000, amplitude, axis (d,)). noise: standard deviation of a Gaussian field with equal variance in each of the
    degrees 1 .. max_degree, drawn from `seed` (d = 2 and 3). Raises ValueError if the density could become negative.
    """

    d: int
    modes: tuple[Mode, ...]
    noise: float
    max_degree: int
    seed: int | None
    _coefficients: tuple[FloatArray, ...] = field(repr=False)

    def __init__(
        self,
        d: int,
        modes: Sequence[tuple[int, float, ArrayLike]] = (),
        noise: float = 0.0,
        max_degree: int = 16,
        seed: int | None = None,
    ) -> None:
        dimension = inputs.integer("d", d, low=2, most=LARGEST_DIMENSION)
        size = inputs.number("noise", noise, low=0.0, most=LARGEST_AMPLITUDE)
        if size and dimension > 3:
            raise ValueError(f"noise is {size:g} in dimension {dimension}, wanted 0 (noise is made for d = 2 and 3)")
        if size and seed is None:
            raise ValueError("seed is None, wanted an integer: noise is drawn from it")
        rows = inputs.sequence("modes", modes, "rows (degree, amplitude, axis)")
        _set(
            self,
            d=dimension,
            modes=tuple(_mode(f"modes[{i}]", mode, dimension) for i, mode in enumerate(rows)),
            noise=size,
            max_degree=inputs.integer("max_degree", max_degree, low=1, high=256),
            seed=None if seed is None else inputs.integer("seed", seed, low=0),
        )
        _set(self, _coefficients=self._drawn_coefficients())
        if self._largest_departure() > 1:
            lowest = self._relative(Uniform(dimension).draw(np.random.default_rng(0), PROBES)).min()
            if lowest < 0:
                raise ValueError(f"modes and noise let the density fall to {lowest:.3g} times the uniform one, wanted smaller amplitudes")

    @property
    def dimension(self) -> int:
        return self.d

    def __call__(self, points: FloatArray) -> FloatArray:
        return self._relative(points) / _area(self.d)

    def draw(self, generator: np.random.Generator, count: int) -> FloatArray:
        bound = 1 + self._largest_departure()
        tokens = np.empty((0, self.d))
        while len(tokens) < count:
            trial = Uniform(self.d).draw(generator, max(64, 2 * (count - len(tokens))))
            kept = generator.uniform(size=len(trial)) * bound < self._relative(trial)
            tokens = np.concatenate([tokens, trial[kept]])
        return tokens[:count]

    def _relative(self, points: FloatArray) -> FloatArray:
        result = np.ones(len(points))
        for mode in self.modes:
            result += mode.amplitude * _zonal(self.d, mode.degree, points @ np.asarray(mode.axis))
        if self.noise:
            result += self._noise(points)
        return result

    def _noise(self, points: FloatArray) -> FloatArray:
        waves = np.zeros((self.max_degree + 1, self.max_degree + 1), dtype=np.complex128)
        for degree, row in enumerate(self._coefficients, start=1):
            if self.d == 2:
                waves[degree, degree] = np.sqrt(2) * (row[0] - 1j * row[1])
            else:
                waves[degree, 0] = np.sqrt(4 * np.pi) * row[0]
                waves[degree, 1 : degree + 1] = np.sqrt(8 * np.pi) * (row[1::2] - 1j * row[2::2])
        return _real_waves(self.d, waves, points)

    def _drawn_coefficients(self) -> tuple[FloatArray, ...]:
        """One row per degree; the field's variance is noise^2, equally from each degree."""
        if not self.noise:
            return ()
        generator = np.random.default_rng(self.seed)
        counts = [2 if self.d == 2 else 2 * degree + 1 for degree in range(1, self.max_degree + 1)]
        return tuple(generator.normal(size=count) * self.noise / np.sqrt(self.max_degree * count) for count in counts)

    def _largest_departure(self) -> float:
        """A bound of |density / uniform - 1|; an orthonormal harmonic vector of degree k has length sqrt(count) everywhere."""
        noise = sum(float(np.linalg.norm(row)) * np.sqrt(len(row)) for row in self._coefficients)
        return sum(abs(mode.amplitude) for mode in self.modes) + noise


@dataclass(frozen=True, eq=False)
class Smoothed:
    """Tokens smeared out: a von Mises-Fisher cap of the given bandwidth on every token, kappa = 1 / bandwidth^2.

    tokens: (n, d) or a `Measure` of total mass 1. bandwidth: standard deviation of a cap along each tangent direction, radians, 1e-5 to pi.
    """

    tokens: Measure
    bandwidth: float

    def __init__(self, tokens: ArrayLike | Measure, bandwidth: float) -> None:
        measure = as_measure("tokens", tokens)
        if abs(measure.total - 1) > 1e-12:
            raise ValueError(f"tokens have mass {measure.total:.15g}, wanted 1")
        width = inputs.number("bandwidth", bandwidth, above=0.0, high=np.pi)
        if width**2 * LARGEST_KAPPA < 1:
            raise ValueError(f"bandwidth is {width:g}, wanted at least {LARGEST_KAPPA**-0.5:g}")
        _set(self, tokens=measure, bandwidth=width)

    @property
    def dimension(self) -> int:
        return self.tokens.dimension

    def __call__(self, points: FloatArray) -> FloatArray:
        kappa, result = self.bandwidth**-2, np.empty(len(points))
        rows = max(1, CHUNK_BYTES // (8 * self.dimension * len(self.tokens)))
        for first in range(0, len(points), rows):
            block = points[first : first + rows, None, :]
            result[first : first + rows] = _cap(block, self.tokens.points, kappa) @ self.tokens.masses
        return result

    def draw(self, generator: np.random.Generator, count: int) -> FloatArray:
        chosen = generator.choice(len(self.tokens), size=count, p=self.tokens.masses)
        pole = np.eye(self.dimension)[0]
        caps = VonMisesFisher(pole, self.bandwidth**-2).draw(generator, count)
        return _reflected(caps, pole, self.tokens.points[chosen])


def _cap(points: FloatArray, mean: FloatArray, kappa: float) -> FloatArray:
    """The von Mises-Fisher density; <x, m> - 1 is taken from the chord, which keeps its digits where kappa is large."""
    d = mean.shape[-1]
    chord = np.sum((points - mean) ** 2, axis=-1)
    return np.exp(-kappa * chord / 2 - (float(log_lambda(d, 0, kappa)) - kappa)) / _area(d)


def _area(d: int) -> float:
    """Area of S^{d-1}, by which densities are divided."""
    area = surface_area(d)
    if area < 1 / np.finfo(np.float64).max:
        raise OverflowError(f"the density in dimension {d} is more than a float can hold; tokens can still be drawn")
    return area


def _reflected(points: FloatArray, pole: FloatArray, targets: FloatArray) -> FloatArray:
    """Points (n, d) under the Householder reflections that take the pole to each target; a rotation-invariant cloud follows its target."""
    normal = targets - pole
    square = np.sum(normal**2, axis=1)
    scale = np.divide(2 * np.sum(points * normal, axis=1), square, out=np.zeros_like(square), where=square > 0)
    return normalise(points - scale[:, None] * normal)


def _zonal(d: int, degree: int, cosine: FloatArray) -> FloatArray:
    if d == 2:
        return eval_chebyt(degree, np.clip(cosine, -1, 1))
    order = d / 2 - 1
    at_one = np.exp(gammaln(degree + 2 * order) - gammaln(2 * order) - gammaln(degree + 1))
    return eval_gegenbauer(degree, order, cosine) / at_one


def _real_waves(d: int, waves: NDArray[np.complex128], points: FloatArray) -> FloatArray:
    """Real part of sum_{k, m} waves_km Y_km on S^2 and sum_k waves_kk e^{ik angle} on S^1, (m,)."""
    largest = len(waves) - 1
    if d == 2:
        angle = np.arctan2(points[:, 1], points[:, 0])
        return (np.exp(1j * np.outer(angle, np.arange(largest + 1))) @ np.diag(waves)).real
    halved = np.concatenate([waves[order:, order] / (1 if order == 0 else 2) for order in range(largest + 1)])
    return ducc0.sht.synthesis_general(alm=halved[None], spin=0, lmax=largest, mmax=largest, loc=spherical_angles(points), epsilon=3e-13)[0]


def _mode(name: str, mode: tuple[int, float, ArrayLike], d: int) -> Mode:
    entries = inputs.sequence(name, mode, "(degree, amplitude, axis)")
    if len(entries) != 3:
        raise ValueError(f"{name} has {len(entries)} entries, wanted (degree, amplitude, axis)")
    degree, amplitude, axis = entries
    direction = _direction(f"{name} axis", axis)
    if len(direction) != d:
        raise ValueError(f"{name} axis has {len(direction)} coordinates, wanted {d}")
    return Mode(
        inputs.integer(f"{name} degree", degree, low=1, most=LARGEST_DEGREE),
        inputs.number(f"{name} amplitude", amplitude, low=-LARGEST_AMPLITUDE, high=LARGEST_AMPLITUDE),
        tuple(direction),
    )


def _set(record: object, **values: object) -> None:
    for name, value in values.items():
        object.__setattr__(record, name, value)


def _direction(name: str, vector: ArrayLike) -> FloatArray:
    checked = inputs.array(name, vector, ("d",))
    if len(checked) < 2 or not checked.any():
        length = np.abs(checked).max(initial=0.0)
        raise ValueError(f"{name} has {len(checked)} coordinates and length {length:g}, wanted a direction of d >= 2 coordinates")
    return frozen(normalise(checked / np.abs(checked).max()))
