r"""Modified Bessel functions of the first kind as attention needs them: their ratios and their logarithms, for any argument.

    I_{nu+1}(r) / I_nu(r)        and        Lambda_k(beta) = Gamma(d/2) (2/beta)^{d/2-1} I_{k+d/2-1}(beta) .

Lambda_k is the eigenvalue of e^{beta <x,y>} on spherical harmonics of degree k with respect to the uniform probability on S^{d-1}
(Funk-Hecke; I_k for d=2, the modified spherical Bessel function i_k for d=3), and Lambda_0 is the mean of e^{beta <x,y>}.

Data in: orders, arguments r >= 0 (dimensionless, any shape). Data out: arrays of that shape, a number for a number.
Source: Debye's expansions for large order with their polynomials u_k, v_k (DLMF 10.41.3, 10.41.5, 10.41.9), then the recurrence
I_{nu-1} = (2 nu/r) I_nu + I_{nu+1} (DLMF 10.29.1) downwards to the order wanted. All its terms are positive, so that nothing cancels,
and neither I_nu itself nor e^r is ever formed, so that nothing overflows, nor underflows near r=0.
"""

from functools import cache

import numpy as np
from numpy.polynomial import Polynomial
from numpy.typing import ArrayLike
from scipy.special import gammaln, ive, xlogy

from meanfield_pde import inputs
from meanfield_pde.sphere import FloatArray

DEBYE_ORDER = 40.0
"""Lowest order at which the expansions are used: twelve terms of them are exact to rounding there for every r."""
DEBYE_TERMS = 12


def log_lambda(d: int, k: int, beta: ArrayLike) -> FloatArray:
    """Logarithm of Lambda_k(beta) on S^{d-1}; Lambda_0(0) = 1 and, for k > 0, Lambda_k(0) = 0 (the logarithm is -inf).

    d: integer >= 2. k: integer >= 0. beta: any shape, >= 0, dimensionless; the result has its shape.
    Raises ValueError if an argument is out of range. Source: Funk-Hecke; DLMF 10.25.2, 10.41.
    """
    dimension, degree = inputs.integer("d", d, low=2), inputs.integer("k", k, low=0)
    r = inputs.non_negatives("beta", beta)
    leading = xlogy(degree, r) - np.log(dimension + 2.0 * np.arange(degree)).sum()
    return np.asarray(leading + _log_0f1(degree + dimension / 2 - 1, r))[()]


def bessel_ratio(nu: float, r: ArrayLike) -> FloatArray:
    """I_{nu+1}(r) / I_nu(r), in [0, 1): r/(2 nu+2) for small r, 1 - (nu+1/2)/r for large r.

    nu: order >= 0. r: any shape, >= 0, dimensionless; the result has its shape.
    Raises ValueError if an argument is out of range. Source: DLMF 10.29.1, 10.41.
    """
    order = inputs.number("nu", nu, low=0)
    argument = inputs.non_negatives("r", r)
    steps = _steps(order)
    ratio = _debye_ratio(order + steps, argument)
    for j in reversed(range(steps)):
        ratio = argument / (2 * (order + j + 1) + argument * ratio)
    return ratio[()]


def bessel_ratios(nu: float, r: float, count: int) -> FloatArray:
    """I_{nu+j+1}(r) / I_{nu+j}(r) for j = 0 .. count - 1, by the recurrence downwards from the highest order."""
    ratios = np.empty(count)
    ratio = float(bessel_ratio(nu + count, r))
    for j in range(count - 1, -1, -1):
        ratio = r / (2 * (nu + j + 1) + r * ratio)
        ratios[j] = ratio
    return ratios


def degree_factors(d: int, r: float, band: int) -> FloatArray:
    """What e^{<z, y>}, |z| = r, multiplies harmonics of degree k = 0 .. band by, scaled by e^{-r}: Lambda_k(r) e^{-r}, (band + 1,).

    The one place of these factors for any dimension d >= 2: transforms, distances and growth rates take them from here.
    """
    nu = d / 2 - 1
    mean = float(np.exp(log_lambda(d, 0, r) - r))
    if r > 1 and (scaled := float(ive(nu, r))) > 0:  # at large r the difference above has lost digits
        mean = float(np.exp(gammaln(nu + 1) + nu * np.log(2 / r))) * scaled
    return mean * np.concatenate([[1.0], np.cumprod(bessel_ratios(nu, r, band))])


def _log_0f1(nu: float, r: FloatArray) -> FloatArray:
    """log of 0F1(; nu+1; r^2/4) = Gamma(nu+1) (2/r)^nu I_nu(r), which is 1 at r=0."""
    steps = _steps(nu)
    ratio = _debye_ratio(nu + steps, r)
    result = _debye_log_0f1(nu + steps, r)
    for j in reversed(range(steps)):
        above = r * ratio / (2 * (nu + j + 1))
        result = result + np.log1p(above)
        ratio = r / (2 * (nu + j + 1)) / (1 + above)
    return result


def _debye_log_0f1(nu: float, r: FloatArray) -> FloatArray:
    # Debye's form of I_nu(r) over its own limit at r=0, so that Gamma(nu+1) drops out and the logarithm is exactly 0 there.
    p, half = _debye_variables(nu, r)
    u, _ = _debye_polynomials(DEBYE_TERMS)
    correction = np.log(_series(u, nu, p) / _series(u, nu, np.ones(())))
    return nu * (2 * half - np.log1p(half)) - np.log1p(2 * half) / 2 + correction


def _debye_ratio(nu: float, r: FloatArray) -> FloatArray:
    # I_{nu+1}/I_nu = I_nu'/I_nu - nu/r with v_k - u_k = (p^3 - p) w_k inserted, which removes the cancellation at small r.
    p, _ = _debye_variables(nu, r)
    u, w = _debye_polynomials(DEBYE_TERMS)
    return r / nu * (p / (1 + p) - p**2 * _series(w, nu, p) / _series(u, nu, p))


def _debye_variables(nu: float, r: FloatArray) -> tuple[FloatArray, FloatArray]:
    """p = 1/s and (s - 1)/2, s = sqrt(1 + (r/nu)^2)."""
    z = r / nu
    s = np.hypot(1.0, z)
    return 1 / s, z * (z / (1 + s)) / 2


def _series(polynomials: list[Polynomial], nu: float, p: FloatArray) -> FloatArray:
    return np.asarray(sum(polynomial(p) / nu**k for k, polynomial in enumerate(polynomials)))


@cache
def _debye_polynomials(terms: int) -> tuple[list[Polynomial], list[Polynomial]]:
    """u_k by DLMF 10.41.9 and w_k = u_{k-1}/2 + p u_{k-1}' (w_0 = 0), of which v_k = u_k + (p^3 - p) w_k is made (10.41.11)."""
    p = Polynomial([0.0, 1.0])
    u, w = [Polynomial([1.0])], [Polynomial([0.0])]
    for _ in range(terms - 1):
        last = u[-1]
        u.append(0.5 * p**2 * (1 - p**2) * last.deriv() + 0.125 * ((1 - 5 * p**2) * last).integ())
        w.append(0.5 * last + p * last.deriv())
    return u, w


def _steps(nu: float) -> int:
    """How many orders above nu the recurrence starts."""
    return max(0, int(np.ceil(DEBYE_ORDER - nu)))
