"""Moebius laws, which the equation keeps at beta = 0, in any dimension.

Source: each function names its own.
"""

import numpy as np
from numpy.typing import ArrayLike
from scipy.integrate import solve_ivp
from scipy.special import hyp2f1

from meanfield_pde import inputs
from meanfield_pde.exact.checks import array, plain
from meanfield_pde.sphere import FloatArray


def moebius_mean(d: int, r: ArrayLike) -> FloatArray:
    """M_d(r) = |int x dmu| of the Moebius law with parameter w, |w| = r: density ((1-r^2)/|x-w|^2)^{d-1} against the uniform probability.

        M_d(r) = 2 (d-1)/d r 2F1(1, 1-d/2; 1+d/2; r^2);    M_2 = r,   M_3 = (1+r^2)/(2r) - ((1-r^2)^2/(4r^2)) ln((1+r)/(1-r)).

    d: integer >= 2 (checked to 1024). r: any shape, in [0, 1]; the result has its shape. The series cancels at neither end.
    Raises ValueError if an argument is out of range. Source: arXiv 1907.07150; the mean of (u+a)/(1+a u), a = 2r/(1+r^2), over the
    uniform law of u = <x,w>/r is the integral behind the series.
    """
    dimension = inputs.integer("d", d, low=2)
    return plain(_moebius_mean(dimension, array("r", r, high=1.0)))


def moebius(d: int, r0: float, t: ArrayLike) -> FloatArray:
    """Parameter r(t) of the Moebius law that solves the equation at beta=0 (SA and USA agree there): r' = (1-r^2) M_d(r)/2, r(0) = r0.

    d: integer >= 2. r0: in [0, 1]. t: any shape, >= 0; the result has its shape. The law keeps its axis; its mean length is
    `moebius_mean(d, r)`. Closed form for d=2, else integrated in artanh r to a relative accuracy of about 1e-12.
    Raises ValueError if an argument is out of range.
    Source: arXiv 1907.07150 (any d), arXiv 0806.0004 (d=2, Ott and Antonsen).
    """
    dimension, start = inputs.integer("d", d, low=2), inputs.number("r0", r0, low=0, high=1)
    times = array("t", t)
    if start in (0.0, 1.0):
        return plain(np.full(times.shape, start))
    if dimension == 2:
        return plain(start / np.hypot(start, np.sqrt((1 - start) * (1 + start)) * np.exp(-times / 2)))
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
    return plain(np.tanh(np.array(levels)[where].reshape(times.shape)))


def _moebius_mean(d: int, r: FloatArray) -> FloatArray:
    return np.asarray(2 * (d - 1) / d * r * hyp2f1(1, 1 - d / 2, 1 + d / 2, r**2))
