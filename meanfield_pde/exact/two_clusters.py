"""Two clusters, and n equiangular tokens: one flow along an angle."""

from collections.abc import Callable
from typing import TypeAlias

import numpy as np
from numpy.typing import ArrayLike
from scipy.special import expit, log_expit, logit

from meanfield_pde import inputs
from meanfield_pde.exact.rates import exponential
from meanfield_pde.sphere import FloatArray

Slowness: TypeAlias = Callable[[FloatArray], FloatArray]
"""The logarithm of -dt/dz as a function of q = beta (1 - cosine)."""


def two_cluster_rate(beta: float, theta: ArrayLike, masses: ArrayLike = (0.5, 0.5), normalised: bool = True) -> FloatArray:
    """theta' of two clusters of masses a1 + a2 = 1 at an angle theta, in any dimension.

        SA:  -sin theta [a2 E/(a1+a2 E) + a1 E/(a2+a1 E)],  E = e^{-beta (1-cos theta)};       USA: -e^{beta cos theta} sin theta.

    beta: >= 0. theta: any shape, in [0, pi]; the result has its shape. masses: (2,), > 0, sum 1.
    Raises ValueError on bad input, OverflowError if a rate (USA) is beyond a float.
    Source: two tokens in arXiv 2312.10794, sections 2 and 6, with weights.
    """
    b, slowness = _two_cluster_slowness(beta, masses, normalised)
    angle = inputs.non_negatives("theta", theta, high=np.pi)
    speed = exponential("theta'/sin(theta)", -slowness(2 * b * np.sin(angle / 2) ** 2))
    return (-speed * np.sin(angle) / 2)[()]


def two_cluster_time(beta: float, theta0: float, theta1: float, masses: ArrayLike = (0.5, 0.5), normalised: bool = True) -> float:
    """Time in which two clusters close from the angle theta0 to theta1, the integral of dtheta/|theta'|, to about 1e-12.

    beta: >= 0. 0 < theta1 <= theta0 < pi. masses: (2,), > 0, sum 1.
    Raises ValueError on bad input, OverflowError (with the logarithm) if the time is beyond a float.
    Source: `two_cluster_rate`; Gauss-Legendre quadrature on panels graded to the integrand, which may span e^{2 beta}.
    """
    b, slowness = _two_cluster_slowness(beta, masses, normalised)
    start, end = _open_angle("theta0", theta0), inputs.number("theta1", theta1, above=0)
    if end > start:
        raise ValueError(f"theta1 is {inputs.exactly(end)}, wanted an angle in (0, theta0 = {inputs.exactly(start)}]")
    top, bottom = _cluster_level(start), _cluster_level(end)
    if top == bottom:
        return 0.0
    _, scaled, shift = _panels(top, bottom, 2 * b, slowness)
    return float(exponential("the time", np.log(scaled.sum()) + shift))


def two_cluster_angle(beta: float, theta0: float, t: ArrayLike, masses: ArrayLike = (0.5, 0.5), normalised: bool = True) -> FloatArray:
    """Angle theta(t) between two clusters of masses a1 + a2 = 1 that start theta0 apart, in any dimension.

    beta: >= 0. theta0: in (0, pi). t: any shape, >= 0; the result has its shape. masses: (2,), > 0, sum 1.
    Raises ValueError on bad input. Source: `two_cluster_time`, inverted; after the slow phase of length about e^{beta (1-cos theta0)}
    the angle at a given t is as sharp as t in double precision allows.
    """
    b, slowness = _two_cluster_slowness(beta, masses, normalised)
    start, times = _open_angle("theta0", theta0), inputs.non_negatives("t", t)
    level = _level_after(_cluster_level(start), times, 2 * b, slowness)
    return (2 * np.arctan(np.exp(level / 2)))[()]


def equiangular(n: int, beta: float, g0: float, t: ArrayLike) -> FloatArray:
    """Common inner product g(t) of n equal tokens that all start at the inner product g0 to each other (SA), in any dimension.

        g' = 2 e^{beta g} (1-g) ((n-1) g + 1) / (e^beta + (n-1) e^{beta g})

    Random tokens in R^d only tend to such a start as d grows: at beta = 2, n = 32 the law is off their mean inner product by up to .26 at
    d = 8, .058 at d = 32, .011 at d = 128 and .003 at d = 512 (means of 16 runs, t <= 8), about 2 / d.
    n: integer >= 2. beta: >= 0. g0: in (-1/(n-1), 1). t: any shape, >= 0; the result has its shape.
    Raises ValueError on bad input. Source: arXiv 2312.10794, section 6 (the high-dimensional case; orthogonal tokens are g0 = 0).
    """
    count, b = inputs.integer("n", n, low=2), inputs.number("beta", beta, low=0)
    start, times = inputs.number("g0", g0), inputs.non_negatives("t", t)
    if not -1 / (count - 1) < start < 1:
        low = inputs.exactly(-1 / (count - 1))
        raise ValueError(f"g0 is {inputs.exactly(start)}, wanted a number in (-1/(n-1), 1) = ({low}, 1)")
    # with z = log((n-1) (1-g)/(1+(n-1) g)) the equation reads z' = -2n/(e^q + n-1), q = beta (1-g) = (beta n/(n-1)) expit(z)
    height = count / (count - 1)
    first = float(np.log((count - 1) * (1 - start) / (1 + (count - 1) * start)))
    level = _level_after(first, times, b * height, lambda q: np.logaddexp(q, np.log(count - 1)) - np.log(2 * count))
    return (1 - height * expit(level))[()]


# Two clusters and equiangular tokens are one flow: z' = -e^{-slowness(q)} with q = height * expit(z). The time is the integral of
# e^slowness over z. The slowness changes by at most as much as q does, so panels on which q and z change by at most 1 resolve it. Its first
# value is the largest, and is subtracted so that nothing overflows; SPAN below it the integrand vanishes in double precision.

SPAN = 1000
LOWEST_LEVEL = -1500.0
"""Level z below which both an angle 2 arctan(e^{z/2}) and 1 - g underflow to 0."""

_NODES, _WEIGHTS = np.polynomial.legendre.leggauss(12)
NEWTON_STEPS = 8


def _panels(top: float, bottom: float, height: float, slowness: Slowness) -> tuple[FloatArray, FloatArray, float]:
    """Ends of the panels (n + 1,), from top to bottom, their times (n,) divided by e^shift, and that shift."""
    even = np.linspace(top, bottom, int(np.ceil(top - bottom)) + 1)
    highest = height * float(expit(top))
    levels = np.arange(np.ceil(highest - 1), max(0.0, highest - SPAN), -1)
    edges = np.unique(np.concatenate([even, np.clip(logit(levels / height), bottom, top)]))[::-1]
    shift = float(slowness(height * expit(edges[0])))
    return edges, _panel_times(edges[:-1], edges[1:], height, slowness, shift), shift


def _panel_times(upper: FloatArray, lower: FloatArray, height: float, slowness: Slowness, shift: float) -> FloatArray:
    """Times from upper to lower, (n,), (n,) -> (n,), divided by e^shift."""
    half = (upper - lower)[:, None] / 2
    z = lower[:, None] + half * (1 + _NODES)
    times: FloatArray = np.einsum("nq,q,n->n", np.exp(slowness(height * expit(z)) - shift), _WEIGHTS, half[:, 0])
    return times


def _level_after(start: float, times: FloatArray, height: float, slowness: Slowness) -> FloatArray:
    """z at the given times (any shape) from z = start at time 0; -inf once nothing above the smallest float is left."""
    edges, scaled, shift = _panels(start, LOWEST_LEVEL, height, slowness)
    elapsed = np.concatenate([[0.0], np.cumsum(scaled)])
    with np.errstate(divide="ignore", over="ignore"):
        target = np.exp(np.log(times.ravel()) - shift)
    panel = np.searchsorted(elapsed, target, side="right") - 1
    inside = panel < len(edges) - 1
    upper, lower = edges[panel[inside]], edges[panel[inside] + 1]
    remaining = target[inside] - elapsed[panel[inside]]
    z = upper - (upper - lower) * remaining / (elapsed[panel[inside] + 1] - elapsed[panel[inside]])
    for _ in range(NEWTON_STEPS):
        excess = _panel_times(upper, z, height, slowness, shift) - remaining
        z = np.clip(z + excess / np.exp(slowness(height * expit(z)) - shift), lower, upper)
    level = np.full(target.shape, -np.inf)
    level[inside] = z
    return level.reshape(times.shape)


def _open_angle(name: str, value: float) -> float:
    angle = inputs.number(name, value)
    if not 0 < angle < np.pi:
        raise ValueError(f"{name} is {inputs.exactly(angle)}, wanted an angle in (0, pi)")
    return angle


def _cluster_level(theta: float) -> float:
    return float(2 * np.log(np.tan(theta / 2)))


def _two_cluster_slowness(beta: float, masses: ArrayLike, normalised: bool) -> tuple[float, Slowness]:
    """Checked beta, and log(-dt/dz) for z = 2 log tan(theta/2), q = beta (1 - cos theta); dz/dt = 2 theta'/sin(theta)."""
    b = inputs.number("beta", beta, low=0)
    shares = inputs.array("masses", masses, (2,))
    for i, share in enumerate(shares):
        inputs.number(f"masses[{i}]", share, above=0)
    inputs.sum_one("the sum of masses is", float(shares.sum()))
    odds = float(np.log(shares[1]) - np.log(shares[0]))
    if normalised:
        return b, lambda q: -np.logaddexp(log_expit(odds - q), log_expit(-odds - q)) - np.log(2)
    return b, lambda q: q - b - np.log(2)
