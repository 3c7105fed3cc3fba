"""Rates: how a mean over runs falls with the number of tokens, mean = C n^slope, with the interval that the scatter allows.

The straight line through (log n, log mean) is weighted by the standard errors. Its interval is Student's, with two degrees of freedom
less than there are sizes, from the larger of the expected and the observed scatter, so that neither few runs nor a bent curve look sure.

Data in: sizes (k,), means (k,), standard errors (k,). Data out: slope, its 95 % interval, the factor.
Source: Bevington and Robinson, Data Reduction and Error Analysis, chapter 6.
"""

from dataclasses import dataclass

import numpy as np
from scipy.special import stdtrit

from meanfield_pde.sphere import FloatArray

CONFIDENCE = 0.95


@dataclass(frozen=True)
class PowerLaw:
    """slope with its interval [low, high] and factor C; nan where there are too few sizes (three for an interval, two for a slope)."""

    slope: float = np.nan
    low: float = np.nan
    high: float = np.nan
    factor: float = np.nan


def fit_rate(counts: FloatArray, means: FloatArray, errors: FloatArray) -> PowerLaw:
    """The line through the positive means; without standard errors (one run, or none that scatter) all sizes weigh the same."""
    used = means > 0
    x, y = np.log(counts[used]), np.log(means[used])
    if len(x) < 2:
        return PowerLaw()
    spread = errors[used] / means[used]
    known = bool((spread > 0).all())
    weights = spread**-2 if known else np.ones(len(x))
    centre = np.average(x, weights=weights)
    inertia = float(weights @ (x - centre) ** 2)
    slope = float(weights @ ((x - centre) * y)) / inertia
    level = float(np.average(y, weights=weights)) - slope * centre
    if len(x) < 3:
        return PowerLaw(slope, factor=float(np.exp(level)))
    scatter = float(weights @ (y - level - slope * x) ** 2) / (len(x) - 2)
    half = float(stdtrit(len(x) - 2, (1 + CONFIDENCE) / 2) * np.sqrt((max(scatter, 1.0) if known else scatter) / inertia))
    return PowerLaw(slope, slope - half, slope + half, float(np.exp(level)))
