r"""Exact solutions and growth rates of d/dt mu + div(mu X[mu]) = 0 on S^{d-1}, X[mu](x) = P_x A[mu](x), to check a model with.

    SA:  A[mu](x) = V int e^{beta <x,y>} y dmu(y) / int e^{beta <x,y>} dmu(y)          (`normalised=True`, Q = K = I, V = I unless said)
    USA: A[mu](x) = V int e^{beta <x,y>} y dmu(y)                                      (`normalised=False`)

Data in: numbers, arrays of times, points (m, d). Data out: numbers for numbers, arrays for arrays; everything is dimensionless.
Every function answers bad input with ValueError; a value beyond the range of a float raises OverflowError, none returns inf.
Source: the models are those of arXiv 2312.10794; each function names its own source.
"""

from collections.abc import Callable
from typing import TypeAlias

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.integrate import solve_ivp
from scipy.special import expit, hyp2f1, log_expit, logit, logsumexp

from meanfield_pde import inputs
from meanfield_pde.bessel import bessel_ratio, log_lambda
from meanfield_pde.sphere import FloatArray, tangent

LOG_LARGEST = float(np.log(np.finfo(np.float64).max))

MASS_TOLERANCE = 1e-12
"""How far from 1 a sum of masses or weights may be."""

Slowness: TypeAlias = Callable[[FloatArray], FloatArray]
"""The logarithm of -dt/dz as a function of q = beta (1 - cosine)."""


def growth_rate(d: int, beta: float, k: int, normalised: bool = True, value: float = 1.0) -> float:
    """Rate at which a small perturbation of the uniform density by a harmonic of degree k grows.

        SA: value m_k Lambda_k / (beta Lambda_0),    USA: value m_k Lambda_k / beta,    m_k = k (k+d-2),  V = value I.

    d: integer >= 2, the sphere is S^{d-1}. beta: >= 0; at beta=0 both are value (d-1)/d for k=1 and 0 for other k. k: integer >= 0.
    Returns a rate, dimensionless; noise kappa Laplace(mu) subtracts kappa m_k from it.
    Raises ValueError if an argument is out of range, OverflowError if the rate (USA, large beta) is beyond a float.
    Source: linearisation of the continuity equation about the uniform law; arXiv 2410.23228 selects clusters by these modes.
    """
    dimension, degree = inputs.integer("d", d, low=2), inputs.integer("k", k, low=0)
    b, strength = inputs.number("beta", beta, low=0), inputs.number("value", value)
    if degree == 0:
        return 0.0
    nu = dimension / 2 - 1
    rate = strength * degree * (degree + dimension - 2) * float(_ratio_over_argument(nu, np.asarray(b)))
    for j in range(1, degree):
        rate *= float(bessel_ratio(nu + j, b))
    if normalised or rate == 0:
        return rate
    log_size = np.log(abs(rate)) + log_lambda(dimension, 0, b)
    return float(np.sign(rate) * _exponential("the growth rate", log_size))


def moebius_mean(d: int, r: ArrayLike) -> FloatArray:
    """M_d(r) = |int x dmu| of the Moebius law with parameter w, |w| = r: density ((1-r^2)/|x-w|^2)^{d-1} against the uniform probability.

        M_d(r) = 2 (d-1)/d r 2F1(1, 1-d/2; 1+d/2; r^2);    M_2 = r,   M_3 = (1+r^2)/(2r) - ((1-r^2)^2/(4r^2)) ln((1+r)/(1-r)).

    d: integer >= 2 (checked to 1024). r: any shape, in [0, 1]; the result has its shape. The series cancels at neither end.
    Raises ValueError if an argument is out of range. Source: arXiv 1907.07150; the mean of (u+a)/(1+a u), a = 2r/(1+r^2), over the
    uniform law of u = <x,w>/r is the integral behind the series.
    """
    dimension = inputs.integer("d", d, low=2)
    return _plain(_moebius_mean(dimension, _array("r", r, high=1.0)))


def moebius(d: int, r0: float, t: ArrayLike) -> FloatArray:
    """Parameter r(t) of the Moebius law that solves the equation at beta=0 (SA and USA agree there): r' = (1-r^2) M_d(r)/2, r(0) = r0.

    d: integer >= 2. r0: in [0, 1]. t: any shape, >= 0; the result has its shape. The law keeps its axis; its mean length is
    `moebius_mean(d, r)`. Closed form for d=2, else integrated in artanh r to a relative accuracy of about 1e-12.
    Raises ValueError if an argument is out of range.
    Source: arXiv 1907.07150 (any d), arXiv 0806.0004 (d=2, Ott and Antonsen).
    """
    dimension, start = inputs.integer("d", d, low=2), inputs.number("r0", r0, low=0, high=1)
    times = _array("t", t)
    if start in (0.0, 1.0):
        return _plain(np.full(times.shape, start))
    if dimension == 2:
        return _plain(start / np.hypot(start, np.sqrt((1 - start) * (1 + start)) * np.exp(-times / 2)))
    stops, where = np.unique(times, return_inverse=True)
    # dense output of the integrator is of lower order than its steps, so every time asked for ends a step
    levels, level, now = [], np.arctanh(start), 0.0
    for stop in stops:
        if stop > now:
            level = solve_ivp(
                lambda _, s: _moebius_mean(dimension, np.tanh(s)) / 2, (now, stop), [level], method="DOP853", rtol=1e-13, atol=0.0
            ).y[0, -1]
        levels.append(level)
        now = stop
    return _plain(np.tanh(np.array(levels)[where].reshape(times.shape)))


def von_mises_fisher_velocity(points: ArrayLike, mean: ArrayLike, kappa: float, beta: float, normalised: bool = True) -> FloatArray:
    """X[mu](x) of the von Mises-Fisher law mu ~ e^{kappa <mean,y>}, at any beta.

        SA: (kappa/R) (I_{d/2}(R)/I_{d/2-1}(R)) P_x mean,  R = |beta x + kappa mean|;    USA: that times Lambda_0(R)/Lambda_0(kappa).

    points: (m, d), unit vectors. mean: (d,), a unit vector. kappa, beta: >= 0; R=0 and large values are safe.
    Returns tangent vectors (m, d). Raises ValueError on bad input, OverflowError if a velocity (USA) is beyond a float.
    Source: Z(beta x) = Lambda_0(R)/Lambda_0(kappa) and A = grad log Z (SA), grad Z (USA) in the notation of arXiv 2312.10794.
    """
    x = _points(points)
    axis = _unit("mean", mean, x.shape[1])
    concentration, b = inputs.number("kappa", kappa, low=0), inputs.number("beta", beta, low=0)
    velocity, log_z = _von_mises_fisher(x, axis, concentration, b)
    return velocity if normalised else _unnormalised(velocity, log_z)


def mixture_velocity(
    points: ArrayLike, means: ArrayLike, kappas: ArrayLike, weights: ArrayLike, beta: float, normalised: bool = True
) -> FloatArray:
    """X[mu](x) of a mixture of n von Mises-Fisher laws: Z and Z X are sums over the components, taken here as log-sum-exp.

    points: (m, d), unit vectors. means: (n, d), unit vectors. kappas: (n,), >= 0. weights: (n,), >= 0, sum 1. beta: >= 0.
    Returns tangent vectors (m, d). Raises ValueError on bad input, OverflowError if a velocity (USA) is beyond a float.
    Source: linearity of Z and grad Z in mu (arXiv 2312.10794) and `von_mises_fisher_velocity`.
    """
    x = _points(points)
    axes = inputs.array("means", means, ("n", x.shape[1]))
    inputs.unit_rows("means", axes)
    concentrations = inputs.array("kappas", kappas, (len(axes),))
    inputs.non_negative("kappas", concentrations)
    shares = inputs.array("weights", weights, (len(axes),))
    inputs.non_negative("weights", shares)
    _sum_one("weights", shares)
    b = inputs.number("beta", beta, low=0)
    parts = [_von_mises_fisher(x, axis, kappa, b) for axis, kappa, share in zip(axes, concentrations, shares, strict=True) if share > 0]
    velocities = np.stack([velocity for velocity, _ in parts])
    logs = np.stack([log_z for _, log_z in parts]) + np.log(shares[shares > 0])[:, None]
    log_z = np.asarray(logsumexp(logs, axis=0))
    velocity = np.einsum("nm,nmd->md", np.exp(logs - log_z), velocities)
    return velocity if normalised else _unnormalised(velocity, log_z)


def two_cluster_rate(beta: float, theta: ArrayLike, masses: ArrayLike = (0.5, 0.5), normalised: bool = True) -> FloatArray:
    """theta' of two clusters of masses a1 + a2 = 1 at an angle theta, in any dimension.

        SA:  -sin theta [a2 E/(a1+a2 E) + a1 E/(a2+a1 E)],  E = e^{-beta (1-cos theta)};       USA: -e^{beta cos theta} sin theta.

    beta: >= 0. theta: any shape, in [0, pi]; the result has its shape. masses: (2,), > 0, sum 1.
    Raises ValueError on bad input, OverflowError if a rate (USA) is beyond a float.
    Source: two tokens in arXiv 2312.10794, sections 2 and 6, with weights.
    """
    b, slowness = _two_cluster_slowness(beta, masses, normalised)
    angle = _array("theta", theta, high=np.pi)
    speed = _exponential("theta'/sin(theta)", -slowness(2 * b * np.sin(angle / 2) ** 2))
    return _plain(-speed * np.sin(angle) / 2)


def two_cluster_time(beta: float, theta0: float, theta1: float, masses: ArrayLike = (0.5, 0.5), normalised: bool = True) -> float:
    """Time in which two clusters close from the angle theta0 to theta1, the integral of dtheta/|theta'|, to about 1e-12.

    beta: >= 0. 0 < theta1 <= theta0 < pi. masses: (2,), > 0, sum 1.
    Raises ValueError on bad input, OverflowError (with the logarithm) if the time is beyond a float.
    Source: `two_cluster_rate`; Gauss-Legendre quadrature on panels graded to the integrand, which may span e^{2 beta}.
    """
    b, slowness = _two_cluster_slowness(beta, masses, normalised)
    start, end = _open_angle("theta0", theta0), inputs.number("theta1", theta1, above=0)
    if end > start:
        raise ValueError(f"theta1 is {end:g}, wanted an angle in (0, theta0 = {start:g}]")
    top, bottom = _cluster_level(start), _cluster_level(end)
    if top == bottom:
        return 0.0
    edges = _edges(top, bottom, 2 * b)
    shift = float(slowness(2 * b * expit(edges[0])))
    scaled = _panel_times(edges[:-1], edges[1:], 2 * b, slowness, shift).sum()
    return float(_exponential("the time", np.log(scaled) + shift))


def two_cluster_angle(beta: float, theta0: float, t: ArrayLike, masses: ArrayLike = (0.5, 0.5), normalised: bool = True) -> FloatArray:
    """Angle theta(t) between two clusters of masses a1 + a2 = 1 that start theta0 apart, in any dimension.

    beta: >= 0. theta0: in (0, pi). t: any shape, >= 0; the result has its shape. masses: (2,), > 0, sum 1.
    Raises ValueError on bad input. Source: `two_cluster_time`, inverted; after the slow phase of length about e^{beta (1-cos theta0)}
    the angle at a given t is as sharp as t in double precision allows.
    """
    b, slowness = _two_cluster_slowness(beta, masses, normalised)
    start, times = _open_angle("theta0", theta0), _array("t", t)
    level = _level_after(_cluster_level(start), times, 2 * b, slowness)
    return _plain(2 * np.arctan(np.exp(level / 2)))


def ring_rate(k: int, beta: float) -> float:
    """Largest growth rate of k equal clusters evenly spaced on S^1 (SA), perturbed along the circle.

    The linearisation is circulant. With h(a) = e^{beta cos a} sin a, Z = sum_j e^{beta cos a_j}, a_j = 2 pi j/k, mode m grows at

        sum_j h'(a_j) (cos(m a_j) - 1) / Z,        h'(a) = e^{beta cos a} (cos a - beta sin^2 a) .

    k: integer >= 2. beta: >= 0. Raises ValueError if an argument is out of range.
    Source: linearisation of the tokens' equation of arXiv 2312.10794 (section 7, angles on the circle) at the regular k-gon.
    """
    count, b = inputs.integer("k", k, low=2), inputs.number("beta", beta, low=0)
    index = np.arange(count)
    angles = 2 * np.pi * index / count
    weights = np.exp(-2 * b * np.sin(angles / 2) ** 2)
    slopes = weights * (np.cos(angles) - b * np.sin(angles) ** 2)
    # cos(m a_j) - 1 with m j reduced modulo k, so that large products keep their digits
    halves = np.pi * (np.outer(index[1:], index) % count) / count
    return float((-2 * np.sin(halves) ** 2 @ slopes).max() / weights.sum())


def equiangular(n: int, beta: float, g0: float, t: ArrayLike) -> FloatArray:
    """Common inner product g(t) of n equal tokens that all start at the inner product g0 to each other (SA), in any dimension.

        g' = 2 e^{beta g} (1-g) ((n-1) g + 1) / (e^beta + (n-1) e^{beta g})

    n: integer >= 2. beta: >= 0. g0: in (-1/(n-1), 1). t: any shape, >= 0; the result has its shape.
    Raises ValueError on bad input. Source: arXiv 2312.10794, section 6 (the high-dimensional case; orthogonal tokens are g0 = 0).
    """
    count, b = inputs.integer("n", n, low=2), inputs.number("beta", beta, low=0)
    start, times = inputs.number("g0", g0), _array("t", t)
    if not -1 / (count - 1) < start < 1:
        raise ValueError(f"g0 is {start:g}, wanted a number in (-1/(n-1), 1) = ({-1 / (count - 1):g}, 1)")
    # with z = log((n-1) (1-g)/(1+(n-1) g)) the equation reads z' = -2n/(e^q + n-1), q = beta (1-g) = (beta n/(n-1)) expit(z)
    height = count / (count - 1)
    level = _level_after(
        float(np.log((count - 1) * (1 - start) / (1 + (count - 1) * start))),
        times,
        b * height,
        lambda q: np.logaddexp(q, np.log(count - 1)) - np.log(2 * count),
    )
    return _plain(1 - height * expit(level))


def dirac_rate(beta: float, normalised: bool = True) -> float:
    """Rate at which the distance of tokens to a cluster that holds all mass decays (V = I): 1 (SA, any beta), e^beta (USA).

    beta: >= 0. Raises ValueError if beta is out of range, OverflowError if e^beta is beyond a float.
    Source: linearisation of X[delta_c](x) = P_x c (SA), e^{beta <x,c>} P_x c (USA) at x=c; arXiv 2312.10794.
    """
    b = inputs.number("beta", beta, low=0)
    return 1.0 if normalised else float(_exponential("the rate", np.asarray(b)))


def mean_gap_rate(d: int) -> float:
    """Rate min(2, d-1) at which 1 - |int x dmu| decays from a smooth density (SA, V = I).

    The bulk contracts like e^{-t}, which gives 2; the mass still near the antipode of the cluster, a cap of radius e^{-t}, gives d-1.
    Where the two agree (d=3) the gap is t e^{-2t}.
    d: integer >= 2. Raises ValueError if d is out of range.
    Source: linearisation of the continuity equation about a Dirac and about its antipode; `moebius` shows it at beta=0.
    """
    return float(min(2, inputs.integer("d", d, low=2) - 1))


def dirac_spectrum(value: ArrayLike, centre: ArrayLike) -> tuple[NDArray[np.inexact], float]:
    """Growth rates about a Dirac at an eigenvector c of V, V c = lambda c (SA, any beta, Q, K).

    value: V, (d, d). centre: c, (d,), a unit vector.
    Returns (centre rates (d-1,), spread rate): the eigenvalues of V - lambda on the complement of c, largest real part first (complex
    where V turns the centre), at which the cluster as a whole leaves c, and -lambda, at which its tokens leave each other.
    Raises ValueError if a shape does not fit, c is not a unit vector or not an eigenvector of V.
    Source: linearisation of x' = P_x V x (the centre) and x' = P_x V c (a token beside it), arXiv 2312.10794 with general V (section 9).
    """
    matrix = inputs.array("value", value, ("d", "d"))
    d = len(matrix)
    if d < 2 or matrix.shape != (d, d):
        raise ValueError(f"value has shape {matrix.shape}, wanted a square matrix (d, d) with d >= 2")
    c = _unit("centre", centre, d)
    eigenvalue = float(c @ matrix @ c / (c @ c))
    off = float(np.linalg.norm(matrix @ c - eigenvalue * c))
    if off > inputs.UNIT_TOLERANCE * np.linalg.norm(matrix):
        raise ValueError(f"centre is not an eigenvector of value: |V c - <c,V c> c| is {off:.3g}, wanted 0")
    complement = np.linalg.qr(c[:, None], mode="complete")[0][:, 1:]
    rates = np.linalg.eigvals(complement.T @ matrix @ complement) - eigenvalue
    return rates[np.lexsort((-rates.imag, -rates.real))], -eigenvalue


def _moebius_mean(d: int, r: FloatArray) -> FloatArray:
    return np.asarray(2 * (d - 1) / d * r * hyp2f1(1, 1 - d / 2, 1 + d / 2, r**2))


def _ratio_over_argument(nu: float, r: FloatArray) -> FloatArray:
    """I_{nu+1}(r)/(r I_nu(r)), which is 1/(2 nu+2) at r=0."""
    return 1 / (2 * (nu + 1) + r * bessel_ratio(nu + 1, r))


def _von_mises_fisher(x: FloatArray, mean: FloatArray, kappa: float, beta: float) -> tuple[FloatArray, FloatArray]:
    """The SA velocity (m, d) and log Z(beta x) (m,)."""
    d = x.shape[1]
    radius = np.linalg.norm(beta * x + kappa * mean, axis=1)
    velocity = (kappa * _ratio_over_argument(d / 2 - 1, radius))[:, None] * tangent(x, np.broadcast_to(mean, x.shape))
    return velocity, log_lambda(d, 0, radius) - log_lambda(d, 0, kappa)


def _unnormalised(velocity: FloatArray, log_z: FloatArray) -> FloatArray:
    """The USA velocity (m, d), Z(beta x) times that of SA."""
    z = _exponential("the integral of e^{beta <x,y>}", log_z)
    result: FloatArray = z[:, None] * velocity
    return result


# Two clusters and equiangular tokens are one flow: z' = -e^{-slowness(q)} with q = height * expit(z). The slowness grows with q by at most
# as much as q does, so the time runs over e^q: it is integrated on panels on which q and z change by at most 1 and shifted by its first,
# largest logarithm. Below SPAN of it nothing is seen in double precision, and q need not be resolved.

SPAN = 1000
LOWEST_LEVEL = -1500.0
"""Level z below which both an angle 2 arctan(e^{z/2}) and 1 - g underflow to 0."""

_NODES, _WEIGHTS = np.polynomial.legendre.leggauss(12)
NEWTON_STEPS = 8


def _edges(top: float, bottom: float, height: float) -> FloatArray:
    """Ends of the panels, from top to bottom."""
    even = np.linspace(top, bottom, int(np.ceil(top - bottom)) + 1)
    highest = height * float(expit(top))
    levels = np.arange(np.ceil(highest - 1), max(0.0, highest - SPAN), -1)
    return np.unique(np.concatenate([even, np.clip(logit(levels / height), bottom, top)]))[::-1]


def _panel_times(upper: FloatArray, lower: FloatArray, height: float, slowness: Slowness, shift: float) -> FloatArray:
    """Times from upper to lower, (n,), (n,) -> (n,), divided by e^shift."""
    half = (upper - lower)[:, None] / 2
    z = lower[:, None] + half * (1 + _NODES)
    times: FloatArray = np.einsum("nq,q,n->n", np.exp(slowness(height * expit(z)) - shift), _WEIGHTS, half[:, 0])
    return times


def _level_after(start: float, times: FloatArray, height: float, slowness: Slowness) -> FloatArray:
    """z at the given times (any shape) from z = start at time 0; -inf once nothing above the smallest float is left."""
    edges = _edges(start, LOWEST_LEVEL, height)
    shift = float(slowness(height * expit(edges[0])))
    elapsed = np.concatenate([[0.0], np.cumsum(_panel_times(edges[:-1], edges[1:], height, slowness, shift))])
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


def _cluster_level(theta: float) -> float:
    return float(2 * np.log(np.tan(theta / 2)))


def _two_cluster_slowness(beta: float, masses: ArrayLike, normalised: bool) -> tuple[float, Slowness]:
    """Checked beta, and log(-dt/dz) for z = 2 log tan(theta/2), q = beta (1 - cos theta); dz/dt = 2 theta'/sin(theta)."""
    b = inputs.number("beta", beta, low=0)
    shares = inputs.array("masses", masses, (2,))
    for i, share in enumerate(shares):
        inputs.number(f"masses[{i}]", share, above=0)
    _sum_one("masses", shares)
    odds = float(np.log(shares[1]) - np.log(shares[0]))
    if normalised:
        return b, lambda q: -np.logaddexp(log_expit(odds - q), log_expit(-odds - q)) - np.log(2)
    return b, lambda q: q - b - np.log(2)


def _exponential(name: str, logarithm: FloatArray) -> FloatArray:
    largest = float(np.max(logarithm, initial=-np.inf))
    if largest > LOG_LARGEST:
        raise OverflowError(f"{name} is e^{largest:.6g}, more than a float can hold (e^{LOG_LARGEST:.6g})")
    return np.asarray(np.exp(logarithm))


def _plain(result: FloatArray) -> FloatArray:
    """A number (numpy's, as its functions return it) in place of an array of shape ()."""
    plain: FloatArray = np.asarray(result)[()]
    return plain


def _array(name: str, value: ArrayLike, high: float = np.inf) -> FloatArray:
    """Checked numbers in [0, high], in the shape they came in."""
    if np.ndim(value) == 0:
        return np.asarray(inputs.number(name, value, low=0, high=high))
    result = inputs.array(name, value, ("n",) * np.ndim(value))
    inputs.non_negative(name, result)
    if (result > high).any():
        index = inputs.first_index(result > high)
        raise ValueError(f"{name}[{', '.join(map(str, index))}] is {result[index]:g}, wanted a number in [0, {high:g}]")
    return result


def _open_angle(name: str, value: float) -> float:
    angle = inputs.number(name, value)
    if not 0 < angle < np.pi:
        raise ValueError(f"{name} is {angle:g}, wanted an angle in (0, pi)")
    return angle


def _points(points: ArrayLike) -> FloatArray:
    x = inputs.array("points", points, ("m", "d"))
    if x.shape[1] < 2:
        raise ValueError(f"points has shape {x.shape}, wanted (m, d) with d >= 2")
    inputs.unit_rows("points", x)
    return x


def _unit(name: str, value: ArrayLike, d: int) -> FloatArray:
    vector = inputs.array(name, value, (d,))
    inputs.unit_rows(name, vector[None])
    return vector


def _sum_one(name: str, values: FloatArray) -> None:
    total = float(values.sum())
    if abs(total - 1) > MASS_TOLERANCE:
        raise ValueError(f"the sum of {name} is {total:.15g}, wanted 1")
