"""Checks at the public edge: each bad value is answered with one sentence that names the field, the index, the value and what is wanted.

Data in: whatever a caller passed. Data out: float64 arrays and plain numbers that the rest of the package need not look at again.
"""

from collections.abc import Iterable, Mapping
from difflib import get_close_matches
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from meanfield_pde.sphere import FloatArray

UNIT_TOLERANCE = 1e-8
"""How far from 1 the length of a point on the sphere may be."""


def number(
    name: str,
    value: Any,
    *,
    low: float = -np.inf,
    high: float = np.inf,
    above: float | None = None,
) -> float:
    """Return `value` as a finite float in [low, high] (and > above); ValueError otherwise."""
    try:
        result = float(value)
    except (TypeError, ValueError):
        raise ValueError(f"{name} is {value!r}, wanted a number") from None
    if isinstance(value, bool) or not np.isfinite(result):
        raise ValueError(f"{name} is {value!r}, wanted a finite number")
    if above is not None and not result > above:
        raise ValueError(f"{name} is {result:g}, wanted a number > {above:g}")
    if not low <= result <= high:
        wanted = f"at least {low:g}" if high == np.inf else f"in [{low:g}, {high:g}]"
        raise ValueError(f"{name} is {result:g}, wanted a number {wanted}")
    return result


def integer(name: str, value: Any, *, low: int, high: int | None = None) -> int:
    """Return `value` as an int in [low, high]; ValueError otherwise."""
    wanted = f"an integer at least {low}" if high is None else f"an integer in [{low}, {high}]"
    try:
        exact = not isinstance(value, bool) and int(value) == value
    except (TypeError, ValueError, OverflowError):
        exact = False
    if not exact or value < low or (high is not None and value > high):
        raise ValueError(f"{name} is {value!r}, wanted {wanted}")
    return int(value)


def array(name: str, value: ArrayLike, shape: tuple[int | str, ...]) -> FloatArray:
    """Return a finite float64 array of the given shape; a string stands for any length and names it in the message.

    Raises ValueError with the first offending index and value.
    """
    try:
        result = np.array(value, dtype=np.float64, order="C")
    except (TypeError, ValueError):
        raise ValueError(f"{name} is not an array of numbers, wanted shape {_shape(shape)}") from None
    fits = result.ndim == len(shape) and all(isinstance(n, str) or n == m for n, m in zip(shape, result.shape, strict=True))
    if not fits:
        raise ValueError(f"{name} has shape {result.shape}, wanted {_shape(shape)}")
    bad = ~np.isfinite(result)
    if bad.any():
        index = first_index(bad)
        raise ValueError(f"{name}[{_index(index)}] is {result[index]}, wanted a finite number")
    return result


def non_negative(name: str, values: FloatArray) -> None:
    """ValueError naming the first negative entry."""
    bad = values < 0
    if bad.any():
        index = first_index(bad)
        raise ValueError(f"{name}[{_index(index)}] is {values[index]:g}, wanted a number >= 0")


def unit_rows(name: str, points: FloatArray) -> None:
    """ValueError naming the first row that is farther than UNIT_TOLERANCE from the unit sphere."""
    lengths = np.linalg.norm(points, axis=-1)
    bad = np.abs(lengths - 1) > UNIT_TOLERANCE
    if bad.any():
        index = first_index(bad)
        raise ValueError(f"{name}[{_index(index)}] has length {lengths[index]:.9g}, wanted a point of the unit sphere (length 1)")


def choice(name: str, value: Any, known: Iterable[str]) -> str:
    """Return `value` if it is one of the known words; ValueError listing them otherwise."""
    names = list(known)
    if value not in names:
        raise ValueError(f"{name} is {value!r}, wanted {' or '.join(map(repr, names))}")
    return str(value)


def known_keys(where: str, given: Mapping[str, Any], known: Iterable[str]) -> None:
    """ValueError for the first key that is not known, naming the nearest known one and all of them."""
    names = sorted(known)
    for key in given:
        if key not in names:
            near = get_close_matches(key, names, 1)
            hint = f" (did you mean {near[0]!r}?)" if near else ""
            raise ValueError(f"{where}: unknown key {key!r}{hint}; known: {', '.join(names)}")


def first_index(bad: np.ndarray) -> tuple[int, ...]:
    """Index of the first True entry."""
    return tuple(int(i) for i in np.unravel_index(int(np.argmax(bad)), bad.shape))


def _index(index: tuple[int, ...]) -> str:
    return ", ".join(map(str, index))


def _shape(shape: tuple[int | str, ...]) -> str:
    inner = ", ".join(map(str, shape))
    return f"({inner},)" if len(shape) == 1 else f"({inner})"
