"""Growth and decay rates: about the uniform law, about a Dirac, of a ring of clusters."""

import numpy as np
from numpy.typing import ArrayLike, NDArray

from meanfield_pde import inputs
from meanfield_pde.bessel import bessel_ratios, log_lambda
from meanfield_pde.sphere import FloatArray

LOG_LARGEST = float(np.log(np.finfo(np.float64).max))


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
    above = bessel_ratios(nu + 1, b, degree)  # Lambda_1/(beta Lambda_0) is 1/(2 nu + 2 + beta above[0]), which needs no division by beta
    rate = strength * degree * (degree + dimension - 2) / (2 * (nu + 1) + b * above[0]) * float(np.prod(above[:-1]))
    if normalised or rate == 0:
        return rate
    log_size = np.log(abs(rate)) + log_lambda(dimension, 0, b)
    return float(np.sign(rate) * exponential("the growth rate", log_size))


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


def dirac_rate(beta: float, normalised: bool = True) -> float:
    """Rate at which the distance of tokens to a cluster that holds all mass decays (V = I): 1 (SA, any beta), e^beta (USA).

    beta: >= 0. Raises ValueError if beta is out of range, OverflowError if e^beta is beyond a float.
    Source: linearisation of `X[delta_c](x) = P_x c` (SA), `e^{beta <x,c>} P_x c` (USA) at x=c; arXiv 2312.10794.
    """
    b = inputs.number("beta", beta, low=0)
    return 1.0 if normalised else float(exponential("the rate", np.asarray(b)))


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
    c = inputs.unit_vector("centre", centre, d)
    eigenvalue = float(c @ matrix @ c / (c @ c))
    off = float(np.linalg.norm(matrix @ c - eigenvalue * c))
    if off > inputs.UNIT_TOLERANCE * np.linalg.norm(matrix):
        raise ValueError(f"centre is not an eigenvector of value: |V c - <c,V c> c| is {off:.3g}, wanted 0")
    complement = np.linalg.qr(c[:, None], mode="complete")[0][:, 1:]
    rates = np.linalg.eigvals(complement.T @ matrix @ complement) - eigenvalue
    return rates[np.lexsort((-rates.imag, -rates.real))], -eigenvalue


def exponential(name: str, logarithm: FloatArray) -> FloatArray:
    """e^logarithm, of any shape. Raises OverflowError if it is beyond a float."""
    largest = float(np.max(logarithm, initial=-np.inf))
    if largest > LOG_LARGEST:
        raise OverflowError(f"{name} is e^{largest:.6g}, more than a float can hold (e^{LOG_LARGEST:.6g})")
    return np.asarray(np.exp(logarithm))
