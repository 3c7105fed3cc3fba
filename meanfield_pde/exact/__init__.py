r"""Exact solutions and growth rates of d/dt mu + div(mu X[mu]) = 0 on S^{d-1}, `X[mu](x) = P_x A[mu](x)`, to check a model with.

    SA:  A[mu](x) = V int e^{beta <x,y>} y dmu(y) / int e^{beta <x,y>} dmu(y)          (`normalised=True`, Q = K = I, V = I unless said)
    USA: A[mu](x) = V int e^{beta <x,y>} y dmu(y)                                      (`normalised=False`)

Data in: numbers, arrays of times, points (m, d). Data out: numbers for numbers, arrays for arrays; everything is dimensionless.
Every function answers bad input with ValueError; a value beyond the range of a float raises OverflowError, none returns inf.
Source: the models are those of arXiv 2312.10794; each function names its own source.
"""

from meanfield_pde.exact.laws import mixture_velocity, moebius, moebius_mean, von_mises_fisher_velocity
from meanfield_pde.exact.rates import dirac_rate, dirac_spectrum, growth_rate, mean_gap_rate, ring_rate
from meanfield_pde.exact.two_clusters import equiangular, two_cluster_angle, two_cluster_rate, two_cluster_time

__all__ = ["mixture_velocity", "moebius", "moebius_mean", "von_mises_fisher_velocity"]
__all__ += ["dirac_rate", "dirac_spectrum", "growth_rate", "mean_gap_rate", "ring_rate"]
__all__ += ["equiangular", "two_cluster_angle", "two_cluster_rate", "two_cluster_time"]
