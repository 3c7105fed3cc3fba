"""Arguments of exact solutions: checked numbers and points, in the shape they came in.

Source: each function names its own.
"""

import numpy as np
from numpy.typing import ArrayLike

from meanfield_pde import inputs
from meanfield_pde.sphere import FloatArray

LOG_LARGEST = float(np.log(np.finfo(np.float64).max))

MASS_TOLERANCE = 1e-12
"""How far from 1 a sum of masses or weights may be."""


def exponential(name: str, logarithm: FloatArray) -> FloatArray:
    largest = float(np.max(logarithm, initial=-np.inf))
    if largest > LOG_LARGEST:
        raise OverflowError(f"{name} is e^{largest:.6g}, more than a float can hold (e^{LOG_LARGEST:.6g})")
    return np.asarray(np.exp(logarithm))


def plain(result: FloatArray) -> FloatArray:
    """A number (numpy's, as its functions return it) in place of an array of shape ()."""
    plain: FloatArray = np.asarray(result)[()]
    return plain


def array(name: str, value: ArrayLike, high: float = np.inf) -> FloatArray:
    """Checked numbers in [0, high], in the shape they came in."""
    if np.ndim(value) == 0:
        return np.asarray(inputs.number(name, value, low=0, high=high))
    result = inputs.array(name, value, ("n",) * np.ndim(value))
    inputs.non_negative(name, result)
    if (result > high).any():
        index = inputs.first_index(result > high)
        raise ValueError(f"{name}[{', '.join(map(str, index))}] is {result[index]:g}, wanted a number in [0, {high:g}]")
    return result


def open_angle(name: str, value: float) -> float:
    angle = inputs.number(name, value)
    if not 0 < angle < np.pi:
        raise ValueError(f"{name} is {angle:g}, wanted an angle in (0, pi)")
    return angle


def checked_points(points: ArrayLike) -> FloatArray:
    x = inputs.array("points", points, ("m", "d"))
    if x.shape[1] < 2:
        raise ValueError(f"points has shape {x.shape}, wanted (m, d) with d >= 2")
    inputs.unit_rows("points", x)
    return x


def unit(name: str, value: ArrayLike, d: int) -> FloatArray:
    vector = inputs.array(name, value, (d,))
    inputs.unit_rows(name, vector[None])
    return vector


def sum_one(name: str, values: FloatArray) -> None:
    total = float(values.sum())
    if abs(total - 1) > MASS_TOLERANCE:
        raise ValueError(f"the sum of {name} is {total:.15g}, wanted 1")
