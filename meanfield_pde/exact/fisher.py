"""Velocities of von Mises-Fisher laws and their mixtures, at any beta.

Source: each function names its own.
"""

import numpy as np
from numpy.typing import ArrayLike
from scipy.special import logsumexp

from meanfield_pde import inputs
from meanfield_pde.bessel import log_lambda
from meanfield_pde.exact.checks import checked_points, exponential, sum_one, unit
from meanfield_pde.exact.rates import ratio_over_argument
from meanfield_pde.sphere import FloatArray, tangent


def von_mises_fisher_velocity(points: ArrayLike, mean: ArrayLike, kappa: float, beta: float, normalised: bool = True) -> FloatArray:
    """X[mu](x) of the von Mises-Fisher law mu ~ e^{kappa <mean,y>}, at any beta.

        SA: (kappa/R) (I_{d/2}(R)/I_{d/2-1}(R)) P_x mean,  R = |beta x + kappa mean|;    USA: that times Lambda_0(R)/Lambda_0(kappa).

    points: (m, d), unit vectors. mean: (d,), a unit vector. kappa, beta: >= 0; R=0 and large values are safe.
    Returns tangent vectors (m, d). Raises ValueError on bad input, OverflowError if a velocity (USA) is beyond a float.
    Source: Z(beta x) = Lambda_0(R)/Lambda_0(kappa) and A = grad log Z (SA), grad Z (USA) in the notation of arXiv 2312.10794.
    """
    x = checked_points(points)
    axis = unit("mean", mean, x.shape[1])
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
    x = checked_points(points)
    axes = inputs.array("means", means, ("n", x.shape[1]))
    inputs.unit_rows("means", axes)
    concentrations = inputs.array("kappas", kappas, (len(axes),))
    inputs.non_negative("kappas", concentrations)
    shares = inputs.array("weights", weights, (len(axes),))
    inputs.non_negative("weights", shares)
    sum_one("weights", shares)
    b = inputs.number("beta", beta, low=0)
    parts = [_von_mises_fisher(x, axis, kappa, b) for axis, kappa, share in zip(axes, concentrations, shares, strict=True) if share > 0]
    velocities = np.stack([velocity for velocity, _ in parts])
    logs = np.stack([log_z for _, log_z in parts]) + np.log(shares[shares > 0])[:, None]
    log_z = np.asarray(logsumexp(logs, axis=0))
    velocity = np.einsum("nm,nmd->md", np.exp(logs - log_z), velocities)
    return velocity if normalised else _unnormalised(velocity, log_z)


def _von_mises_fisher(x: FloatArray, mean: FloatArray, kappa: float, beta: float) -> tuple[FloatArray, FloatArray]:
    """The SA velocity (m, d) and log Z(beta x) (m,)."""
    d = x.shape[1]
    radius = np.linalg.norm(beta * x + kappa * mean, axis=1)
    velocity = (kappa * ratio_over_argument(d / 2 - 1, radius))[:, None] * tangent(x, np.broadcast_to(mean, x.shape))
    return velocity, log_lambda(d, 0, radius) - log_lambda(d, 0, kappa)


def _unnormalised(velocity: FloatArray, log_z: FloatArray) -> FloatArray:
    """The USA velocity (m, d), Z(beta x) times that of SA."""
    z = exponential("the integral of e^{beta <x,y>}", log_z)
    result: FloatArray = z[:, None] * velocity
    return result
