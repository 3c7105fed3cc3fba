"""Velocities of von Mises-Fisher laws and their mixtures at any beta, and the motion of Moebius laws, which stay such at beta = 0."""

import numpy as np
from numpy.typing import ArrayLike
from scipy.integrate import solve_ivp
from scipy.special import hyp2f1, logsumexp

from meanfield_pde import inputs
from meanfield_pde.bessel import bessel_ratio, log_lambda
from meanfield_pde.exact.rates import exponential
from meanfield_pde.sphere import FloatArray, tangent


def von_mises_fisher_velocity(points: ArrayLike, mean: ArrayLike, kappa: float, beta: float, normalised: bool = True) -> FloatArray:
    """`X[mu](x)` of the von Mises-Fisher law `mu ~ e^{kappa <mean,y>}`, at any beta.

        SA: (kappa/R) (I_{d/2}(R)/I_{d/2-1}(R)) P_x mean,  R = |beta x + kappa mean|;    USA: that times Lambda_0(R)/Lambda_0(kappa).

    points: (m, d), unit vectors. mean: (d,), a unit vector. kappa, beta: >= 0; R=0 and large values are safe.
    Returns tangent vectors (m, d). Raises ValueError on bad input, OverflowError if a velocity (USA) is beyond a float.
    Source: Z(beta x) = Lambda_0(R)/Lambda_0(kappa) and A = grad log Z (SA), grad Z (USA) in the notation of arXiv 2312.10794.
    """
    x = inputs.points("points", points, rows="m")
    axis = inputs.unit_vector("mean", mean, x.shape[1])
    concentration, b = inputs.number("kappa", kappa, low=0), inputs.number("beta", beta, low=0)
    return _velocity(x, axis[None], np.array([concentration]), np.ones(1), b, normalised)


def mixture_velocity(
    points: ArrayLike, means: ArrayLike, kappas: ArrayLike, weights: ArrayLike, beta: float, normalised: bool = True
) -> FloatArray:
    """`X[mu](x)` of a mixture of n von Mises-Fisher laws: Z and Z X are sums over the components, taken here as log-sum-exp.

    points: (m, d), unit vectors. means: (n, d), unit vectors. kappas: (n,), >= 0. weights: (n,), >= 0, sum 1. beta: >= 0.
    Returns tangent vectors (m, d). Raises ValueError on bad input, OverflowError if a velocity (USA) is beyond a float.
    Source: linearity of Z and grad Z in mu (arXiv 2312.10794) and `von_mises_fisher_velocity`.
    """
    x = inputs.points("points", points, rows="m")
    axes = inputs.points("means", means, x.shape[1])
    concentrations = inputs.non_negatives("kappas", kappas, (len(axes),))
    shares = inputs.non_negatives("weights", weights, (len(axes),))
    inputs.sum_one("the sum of weights is", float(shares.sum()))
    b = inputs.number("beta", beta, low=0)
    return _velocity(x, axes, concentrations, shares, b, normalised)


def _velocity(x: FloatArray, means: FloatArray, kappas: FloatArray, shares: FloatArray, beta: float, normalised: bool) -> FloatArray:
    """The velocity (m, d) of a mixture of n laws, and of one alone."""
    d, held = x.shape[1], shares > 0
    axis, kappa = means[held][:, None], kappas[held][:, None]
    radius = np.linalg.norm(beta * x + kappa[..., None] * axis, axis=2)
    ratio = 1 / (d + radius * bessel_ratio(d / 2, radius))  # I_{d/2}(R) / (R I_{d/2-1}(R)), also at R = 0
    velocities = (kappa * ratio)[..., None] * tangent(x, np.broadcast_to(axis, (*radius.shape, d)))
    logs = log_lambda(d, 0, radius) - log_lambda(d, 0, kappa) + np.log(shares[held])[:, None]
    log_z = np.asarray(logsumexp(logs, axis=0))
    velocity: FloatArray = np.einsum("nm,nmd->md", np.exp(logs - log_z), velocities)
    return velocity if normalised else exponential("the integral of e^{beta <x,y>}", log_z)[:, None] * velocity


def moebius_mean(d: int, r: ArrayLike) -> FloatArray:
    """M_d(r) = |int x dmu| of the Moebius law with parameter w, |w| = r: density ((1-r^2)/|x-w|^2)^{d-1} against the uniform probability.

        M_d(r) = 2 (d-1)/d r 2F1(1, 1-d/2; 1+d/2; r^2);    M_2 = r,   M_3 = (1+r^2)/(2r) - ((1-r^2)^2/(4r^2)) ln((1+r)/(1-r)).

    d: integer >= 2 (checked to 1024). r: any shape, in [0, 1]; the result has its shape. The series cancels at neither end.
    Raises ValueError if an argument is out of range. Source: arXiv 1907.07150; the mean of (u+a)/(1+a u), a = 2r/(1+r^2), over the
    uniform law of `u = <x,w>/r` is the integral behind the series.
    """
    dimension = inputs.integer("d", d, low=2)
    return _moebius_mean(dimension, inputs.non_negatives("r", r, high=1.0))[()]


def moebius(d: int, r0: float, t: ArrayLike) -> FloatArray:
    """Parameter r(t) of the Moebius law that solves the equation at beta=0 (SA and USA agree there): r' = (1-r^2) M_d(r)/2, r(0) = r0.

    d: integer >= 2. r0: in [0, 1]. t: any shape, >= 0; the result has its shape. The law keeps its axis; its mean length is
    `moebius_mean(d, r)`. Closed form for d=2, else integrated in artanh r to a relative accuracy of about 1e-12.
    Raises ValueError if an argument is out of range.
    Source: arXiv 1907.07150 (any d), arXiv 0806.0004 (d=2, Ott and Antonsen).
    """
    dimension, start = inputs.integer("d", d, low=2), inputs.number("r0", r0, low=0, high=1)
    times = inputs.non_negatives("t", t)
    if start in (0.0, 1.0):
        return np.full(times.shape, start)[()]
    if dimension == 2:
        return (start / np.hypot(start, np.sqrt((1 - start) * (1 + start)) * np.exp(-times / 2)))[()]
    stops, where = np.unique(times, return_inverse=True)
    # the integrator interpolates less accurately than it steps, so it is stopped at every time asked for
    levels, level, now = [], np.arctanh(start), 0.0
    for stop in stops:
        if stop > now:
            level = solve_ivp(
                lambda _, s: _moebius_mean(dimension, np.tanh(s)) / 2, (now, stop), [level], method="DOP853", rtol=1e-13, atol=0.0
            ).y[0, -1]
        levels.append(level)
        now = stop
    return np.tanh(np.array(levels)[where].reshape(times.shape))[()]


def _moebius_mean(d: int, r: FloatArray) -> FloatArray:
    return np.asarray(2 * (d - 1) / d * r * hyp2f1(1, 1 - d / 2, 1 + d / 2, r**2))
