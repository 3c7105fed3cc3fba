"""A small departure from the uniform law: zonal modes and band-limited noise.

Data in: modes, noise, a seed. Data out: density (m, d) -> (m,), samples (count, d).
"""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike
from scipy.special import eval_chebyt, eval_gegenbauer, gammaln

from meanfield_pde import inputs
from meanfield_pde.laws.law import LARGEST_DIMENSION, Uniform, area, direction, set_fields
from meanfield_pde.sphere import FloatArray, spherical_angles

PROBES = 20_000
LARGEST_DEGREE = 10_000
LARGEST_AMPLITUDE = 1e6
"""Far above any amplitude that leaves a density positive, and small enough for sums not to overflow."""


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
        self, d: int, modes: Sequence[tuple[int, float, ArrayLike]] = (), noise: float = 0.0, max_degree: int = 16, seed: int | None = None
    ) -> None:
        dimension = inputs.integer("d", d, low=2, most=LARGEST_DIMENSION)
        size = inputs.number("noise", noise, low=0.0, most=LARGEST_AMPLITUDE)
        if size and dimension > 3:
            raise ValueError(f"noise is {size:g} in dimension {dimension}, wanted 0 (noise is made for d = 2 and 3)")
        if size and seed is None:
            raise ValueError("seed is None, wanted an integer: noise is drawn from it")
        rows = enumerate(inputs.sequence("modes", modes, "rows (degree, amplitude, axis)"))
        set_fields(self, d=dimension, noise=size, modes=tuple(_mode(f"modes[{i}]", mode, dimension) for i, mode in rows))
        set_fields(self, max_degree=inputs.integer("max_degree", max_degree, low=1, high=256))
        set_fields(self, seed=None if seed is None else inputs.integer("seed", seed, low=0))
        set_fields(self, _coefficients=self._drawn_coefficients())
        if self._largest_departure() > 1:
            lowest = self._relative(Uniform(dimension).draw(np.random.default_rng(0), PROBES)).min()
            if lowest < 0:
                raise ValueError(f"modes and noise let the density fall to {lowest:.3g} times the uniform one, wanted smaller amplitudes")

    @property
    def dimension(self) -> int:
        return self.d

    def __call__(self, points: FloatArray) -> FloatArray:
        return self._relative(points) / area(self.d)

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
        """Real part of sum_{k, m} waves_km Y_km on S^2 and sum_k waves_k e^{ik angle} on S^1, (m,)."""
        largest = self.max_degree
        if self.d == 2:
            circular = np.array([0, *(np.sqrt(2) * (row[0] - 1j * row[1]) for row in self._coefficients)])
            angle = np.arctan2(points[:, 1], points[:, 0])
            return (np.exp(1j * np.outer(angle, np.arange(largest + 1))) @ circular).real
        waves = np.zeros((largest + 1, largest + 1), dtype=np.complex128)
        for degree, row in enumerate(self._coefficients, start=1):
            waves[degree, 0] = np.sqrt(4 * np.pi) * row[0]
            waves[degree, 1 : degree + 1] = np.sqrt(8 * np.pi) * (row[1::2] - 1j * row[2::2])
        halved = np.concatenate([waves[order:, order] / (1 if order == 0 else 2) for order in range(largest + 1)])
        places = spherical_angles(points)
        import ducc0

        return ducc0.sht.synthesis_general(alm=halved[None], spin=0, lmax=largest, mmax=largest, loc=places, epsilon=3e-13)[0]

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


def _zonal(d: int, degree: int, cosine: FloatArray) -> FloatArray:
    if d == 2:
        return eval_chebyt(degree, np.clip(cosine, -1, 1))
    order = d / 2 - 1
    at_one = np.exp(gammaln(degree + 2 * order) - gammaln(2 * order) - gammaln(degree + 1))
    return eval_gegenbauer(degree, order, cosine) / at_one


def _mode(name: str, mode: tuple[int, float, ArrayLike], d: int) -> Mode:
    entries = inputs.sequence(name, mode, "(degree, amplitude, axis)")
    if len(entries) != 3:
        raise ValueError(f"{name} has {len(entries)} entries, wanted (degree, amplitude, axis)")
    degree, amplitude, axis = entries
    towards = direction(f"{name} axis", axis)
    if len(towards) != d:
        raise ValueError(f"{name} axis has {len(towards)} coordinates, wanted {d}")
    degree = inputs.integer(f"{name} degree", degree, low=1, most=LARGEST_DEGREE)
    amplitude = inputs.number(f"{name} amplitude", amplitude, low=-LARGEST_AMPLITUDE, high=LARGEST_AMPLITUDE)
    return Mode(degree, amplitude, tuple(towards))
