"""Sums of exponentials that need not fit a float: kept as e^shift times a number of moderate size."""

import math
from dataclasses import dataclass

import numpy as np

from meanfield_pde.sphere import FloatArray


@dataclass(frozen=True)
class Scaled:
    """The number e^shift * factor."""

    shift: float
    factor: float

    @classmethod
    def weighted_sum(cls, *parts: tuple[FloatArray, FloatArray]) -> "Scaled":
        """sum_i w_i e^{l_i} over parts with logarithms l, weights w > 0; in extended precision: its relative error is that of the terms."""
        shift = max((float(logs.max(initial=-np.inf)) for logs, _ in parts), default=-np.inf)
        if shift == -np.inf:
            return cls(0.0, 0.0)
        sums = [np.sum(weights * np.exp(logs - shift), dtype=np.longdouble) for logs, weights in parts]
        return cls(shift, float(sum(sums, np.longdouble(0))))

    @classmethod
    def of(cls, value: float) -> "Scaled":
        """A number that fits a float."""
        return cls(0.0, float(value))

    @classmethod
    def missing(cls) -> "Scaled":
        """nan: what has no value."""
        return cls(0.0, math.nan)

    def __truediv__(self, divisor: float) -> "Scaled":
        return Scaled(self.shift, self.factor / divisor)

    @property
    def value(self) -> float:
        """As a float; inf beyond double precision. Two factors, so that an intermediate overflow does not hide a finite result."""
        with np.errstate(over="ignore"):
            half = float(np.exp(self.shift / 2))
            return half * self.factor * half

    @property
    def log(self) -> float:
        """Its logarithm: -inf for zero, nan for a negative number."""
        if self.factor > 0:
            return self.shift + math.log(self.factor)
        return -math.inf if self.factor == 0 else math.nan
