"""Tokens smeared out into a law.

Data in: tokens and a bandwidth. Data out: density (m, d) -> (m,), samples (count, d).
"""

from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike

from meanfield_pde import inputs
from meanfield_pde.laws.law import LARGEST_KAPPA, VonMisesFisher, cap, set_fields
from meanfield_pde.measure import Measure, as_measure
from meanfield_pde.sphere import FloatArray, normalise

CHUNK_BYTES = 1 << 26


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
            raise ValueError(f"bandwidth is {width:g}, wanted at least {LARGEST_KAPPA**-0.5:g}")
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
        return _reflected(caps, pole, self.tokens.points[chosen])


def _reflected(points: FloatArray, pole: FloatArray, targets: FloatArray) -> FloatArray:
    """Points (n, d) sampled about the pole, moved to their targets by the Householder reflections that take the pole there."""
    normal = targets - pole
    square = np.sum(normal**2, axis=1)
    scale = np.divide(2 * np.sum(points * normal, axis=1), square, out=np.zeros_like(square), where=square > 0)
    return normalise(points - scale[:, None] * normal)
