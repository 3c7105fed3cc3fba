"""Checks at the public edge: each bad value is answered with one sentence that names the field, the index, the value and what is wanted.

Data in: whatever a caller passed. Data out: float64 arrays and plain numbers that the rest of the package need not look at again.
"""

import codecs
import os
from collections.abc import Callable, Iterable, Mapping
from difflib import get_close_matches
from pathlib import Path
from reprlib import Repr
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from meanfield_pde.sphere import FloatArray, normalise

UNIT_TOLERANCE = 1e-8
"""How far from 1 the length of a point on the sphere may be."""
SUM_TOLERANCE = 1e-12
"""How far from 1 a sum of masses or weights may be."""
NUMERIC = "iuf"
"""Kinds of numpy types that count as numbers (signed and unsigned integers, floats)."""
MOST_AXES = 64
"""Numpy arrays have at most this many axes, so lists that are nested deeper need not be searched."""

SECONDS = {"min": 60.0, "h": 3600.0, "s": 1.0}
"""In each unit of time that a text may have."""

_short = Repr()
_short.maxstring = _short.maxother = _short.maxlong = 60
"""Most characters of a bad value that a message quotes."""


def number(name: str, value: Any, *, low: float = -np.inf, high: float = np.inf, above: float = -np.inf, most: float = np.inf) -> float:
    """Return `value` as a finite float in [low, high] (and > above); ValueError otherwise.

    most: a practical upper limit (of memory, say). Other than `high`, it is mentioned only in the message to a value that exceeds it.
    """
    try:
        result = float(value) if _is_numeric(value) else None
    except (TypeError, ValueError, OverflowError):
        result = None
    if result is None:
        raise ValueError(f"{name} is {shown(value)}, wanted a number")
    if not np.isfinite(result):
        raise ValueError(f"{name} is {shown(value)}, wanted a finite number")
    if not (result > above and low <= result <= high):
        raise ValueError(f"{name} is {exactly(result)}, wanted a number {_interval(low, high, above)}")
    if result > most:
        raise ValueError(f"{name} is {exactly(result)}, wanted at most {exactly(most)}")
    return result


def integer(name: str, value: Any, *, low: int, high: int | None = None, most: int | None = None) -> int:
    """Return `value` as an int in [low, high]; ValueError otherwise. most: as for `number`."""
    wanted = f"an integer at least {low}" if high is None else f"an integer in [{low}, {high}]"
    try:
        result = int(value) if _is_numeric(value) and int(value) == value else None
    except (TypeError, ValueError, OverflowError):
        result = None
    if result is None or result < low or (high is not None and result > high):
        raise ValueError(f"{name} is {shown(value)}, wanted {wanted}")
    if most is not None and result > most:
        raise ValueError(f"{name} is {shown(value)}, wanted at most {most}")
    return result


def seconds(name: str, value: Any) -> float:
    """A time > 0: a number of seconds, or a text such as "60s", "10min" or "2h"; ValueError otherwise."""
    if not isinstance(value, str):
        return number(name, value, above=0.0)
    unit = next((unit for unit in SECONDS if value.endswith(unit)), "")
    try:
        return number(name, float(value.removesuffix(unit)) * SECONDS.get(unit, 1.0), above=0.0)
    except ValueError:
        raise ValueError(f"{name} is {shown(value)}, wanted seconds > 0, such as '60s', '10min' or '2h'") from None


def array(name: str, value: ArrayLike, shape: tuple[int | str, ...]) -> FloatArray:
    """Return a finite float64 array of the given shape, a copy; a string stands for any length and names it in the message.

    Raises ValueError with the first offending index and value.
    """
    result = np.array(real_array(name, value, shape), order="C")
    refuse(~np.isfinite(result), lambda *at: f"{name}[{_index(at)}] is {result[at]}, wanted a finite number")
    return result


def points(name: str, value: ArrayLike, d: int | str = "d", rows: int | str = "n") -> FloatArray:
    """`array` (n, d) of unit vectors, d >= 2; ValueError naming the first that is not. rows: what a message calls n."""
    return unit_rows(name, array(name, value, (rows, d)), value)


def unit_vector(name: str, value: ArrayLike, d: int) -> FloatArray:
    """`array` (d,) of length 1."""
    return unit_rows(name, array(name, value, (d,))[None], value)[0]


def non_negatives(name: str, value: ArrayLike, shape: tuple[int | str, ...] | None = None, high: float = np.inf) -> FloatArray:
    """`array` of numbers in [0, high]. shape: None takes any, the one () of a number included."""
    if shape is None and np.ndim(value) == 0:
        return np.asarray(number(name, value, low=0, high=high))
    result = array(name, value, ("n",) * np.ndim(value) if shape is None else shape)
    non_negative(name, result)
    refuse(result > high, lambda *at: f"{name}[{_index(at)}] is {exactly(result[at])}, wanted a number in [0, {exactly(high)}]")
    return result


def real_array(name: str, value: ArrayLike, shape: tuple[int | str, ...], like: str = "") -> FloatArray:
    """`array` without the copy and for numbers that need not be finite. like: where the shape comes from, added to the message."""
    masked = _masked_index(value)
    if masked:
        raise ValueError(f"{name}[{_index(masked)}] is masked, wanted a number")
    try:
        given = np.asarray(value) if masked is None else None
        numeric = given is not None and (given.dtype.kind in NUMERIC or (given.dtype == object and all(map(_is_numeric, given.flat))))
        result = np.asarray(given, dtype=np.float64) if numeric else None
    except (TypeError, ValueError, OverflowError):
        result = None
    if result is None:
        raise ValueError(f"{name} is not an array of numbers but {shown(value)}, wanted shape {_shape(shape)}{like}")
    if result.ndim != len(shape) or any(n != m for n, m in zip(shape, result.shape, strict=True) if not isinstance(n, str)):
        raise ValueError(f"{name} has shape {result.shape}, wanted {_shape(shape)}{like}")
    return result


def flag(name: str, value: Any) -> bool:
    """Return `value` if it is True or False; ValueError otherwise."""
    if not isinstance(value, (bool, np.bool_)):
        raise ValueError(f"{name} is {shown(value)}, wanted True or False")
    return bool(value)


def instance(name: str, value: Any, kind: type) -> None:
    """ValueError unless `value` is an object of a class."""
    if not isinstance(value, kind):
        raise ValueError(f"{name} is a {type(value).__name__}, wanted a {kind.__name__}")


def having(name: str, value: Any, wanted: str, *attributes: str) -> None:
    """ValueError unless `value` is an object, not a class, with these attributes; `wanted` says in the message what such an object is."""
    if isinstance(value, type) or not all(hasattr(value, attribute) for attribute in attributes):
        raise ValueError(f"{name} is {shown(value)}, wanted {wanted}")


def function(name: str, value: Any, wanted: str) -> None:
    """ValueError unless `value` can be called and is not a class; `wanted` says in the message what it is called with."""
    if isinstance(value, type) or not callable(value):
        raise ValueError(f"{name} is {shown(value)}, wanted {wanted}")


def sequence(name: str, value: Any, wanted: str) -> list[Any]:
    """The entries of an iterable that is no string; ValueError otherwise."""
    if isinstance(value, (str, bytes, Mapping)) or not isinstance(value, Iterable) or getattr(value, "ndim", 1) != 1:
        raise ValueError(f"{name} is {shown(value)}, wanted {wanted}")
    return list(value)


def file_path(name: str, value: Any, suffixes: tuple[str, ...] = ()) -> Path:
    """Return `value` as a path; ValueError unless it is a possible file name and ends in one of the suffixes, if any are given.

    Names are UTF-8, because they become parts of files: a results file keeps the folder of its case, a mesh the name of its file.
    """
    try:
        text = os.fspath(value)
        text.encode()
    except (AttributeError, TypeError):
        text = None
    except UnicodeEncodeError:
        raise ValueError(f"{name} is {shown(text)}, wanted the name of a file or folder in UTF-8") from None
    if not isinstance(text, str) or not text or "\0" in text:
        raise ValueError(f"{name} is {shown(value)}, wanted the name of a file or folder")
    path = Path(text)
    if suffixes and path.suffix not in suffixes:
        raise ValueError(f"{name} is {str(path)!r}, wanted a name that ends in {' or '.join(suffixes)}")
    return path


def decoded(content: bytes, errors: str = "strict") -> str:
    """The text of a file in UTF-8, without the byte-order mark that it may begin with; ValueError for other bytes, which names UTF-16.

    errors: as for `bytes.decode`.
    """
    if content.startswith((codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)):
        raise ValueError("it begins with the byte-order mark of UTF-16, wanted text in UTF-8")
    return content.decode("utf-8-sig", errors)


def indices(name: str, values: np.ndarray, shape: tuple[int, ...], count: int) -> None:
    """ValueError unless an array of integers has this shape and every entry is in [0, count), naming the first that is not."""
    if values.dtype.kind not in "iu" or values.shape != shape:
        raise ValueError(f"{name} has shape {values.shape} and type {values.dtype}, wanted {_shape(shape)} integers")
    bad = (values < 0) | (values >= count)
    refuse(bad, lambda *at: f"{name}[{_index(at)}] is {values[at]}, wanted a number in [0, {count - 1}]")


def non_negative(name: str, values: FloatArray) -> None:
    """ValueError naming the first negative entry."""
    refuse(values < 0, lambda *at: f"{name}[{_index(at)}] is {values[at]:g}, wanted a number >= 0")


def increasing(name: str, values: FloatArray, kind: str) -> None:
    """ValueError unless every number is larger than the one before. kind: what the numbers are, for the message."""

    def problem(i: int) -> str:
        before, after = map(exactly, values[i : i + 2].tolist())
        return f"{name}[{i + 1}] is {after} after {before}, wanted increasing {kind}"

    refuse(np.diff(values) <= 0, problem)


def sum_one(words: str, total: float) -> None:
    """ValueError unless a sum of masses or weights is 1, to rounding. words: what the message says before the sum."""
    if abs(total - 1) > SUM_TOLERANCE:
        raise ValueError(f"{words} {total:.15g}, wanted 1")


def unit_rows(name: str, points: FloatArray, given: ArrayLike = 1.0) -> FloatArray:
    """Rows (..., d) of length 1 within UNIT_TOLERANCE; ValueError naming the first that is not, or if rows lie in R^1.

    given: what the rows were made from. In a type of fewer digits than float64, twice the rounding of x / |x| in that type is accepted
    (float32 on S^2: 4e-7), and the rows are divided by their lengths.
    """
    d, kind = points.shape[-1], np.asarray(given).dtype
    if d < 2:
        raise ValueError(f"{name} has shape {points.shape}, wanted d >= 2 coordinates in a row")
    is_short = kind.kind == "f" and kind.itemsize < points.itemsize
    tolerance = (d + 4) / 2 * np.finfo(kind).eps if is_short else UNIT_TOLERANCE
    with np.errstate(over="ignore"):
        lengths = np.linalg.norm(points, axis=-1)
    off = np.abs(lengths - 1) > tolerance
    refuse(off, lambda *at: f"{name}[{_index(at)}] has length {lengths[at]:.9g}, wanted a point of the unit sphere (length 1)")
    return normalise(points) if is_short else points


def choice(name: str, value: Any, known: Iterable[str]) -> str:
    """Return `value` if it is one of the known words; ValueError listing them otherwise."""
    names = list(known)
    if not isinstance(value, str) or value not in names:
        raise ValueError(f"{name} is {shown(value)}, wanted {' or '.join(map(repr, names))}")
    return value


def known_keys(where: str, given: Mapping[str, Any], known: Iterable[str]) -> None:
    """ValueError for the first key that is not known, naming the nearest known one and all of them."""
    names = sorted(known)
    for key in given:
        if key not in names:
            near = get_close_matches(key, names, 1)
            hint = f" (did you mean {near[0]!r}?)" if near else ""
            raise ValueError(f"{where}: unknown key {shown(key)}{hint}; known: {', '.join(names)}")


def needed_keys(where: str, given: Mapping[str, Any], needed: Iterable[str]) -> None:
    """ValueError for the first of the needed keys that is missing."""
    for name in needed:
        if name not in given:
            raise ValueError(f"{where}: {name} is missing")


def shown(value: Any) -> str:
    """A value as messages quote it: on one line, shortened if it is long."""
    try:
        return " ".join(_short.repr(value).split())
    except Exception:  # the repr of an unknown object may raise anything
        return f"of type {type(value).__name__}"


def exactly(value: float) -> str:
    """A number as messages compare it with another: in few digits, or in as many as tell it from every other one."""
    short = f"{value:g}"
    return short if float(short) == value else repr(float(value))


def refuse(bad: np.ndarray, problem: Callable[..., str]) -> None:
    """ValueError if an entry of `bad` is True; its message is problem(*index) of the first such entry."""
    if bad.any():
        raise ValueError(problem(*first_index(bad)))


def first_index(bad: np.ndarray) -> tuple[int, ...]:
    """Index of the first True entry."""
    return tuple(int(i) for i in np.unravel_index(int(np.argmax(bad)), bad.shape))


def _interval(low: float, high: float, above: float) -> str:
    """The numbers > above in [low, high] in words; one of low and above is minus infinity."""
    if high == np.inf:
        return f"> {exactly(above)}" if above > low else f"at least {exactly(low)}"
    if max(low, above) == -np.inf:
        return f"at most {exactly(high)}"
    return f"in ({exactly(above)}, {exactly(high)}]" if above > low else f"in [{exactly(low)}, {exactly(high)}]"


def _index(index: tuple[int, ...]) -> str:
    return ", ".join(map(str, index))


def _shape(shape: tuple[int | str, ...]) -> str:
    inner = ", ".join(map(str, shape))
    return f"({inner},)" if len(shape) == 1 else f"({inner})"


def _is_numeric(value: Any) -> bool:
    """Whether a scalar is taken as a number. Strings, booleans and arrays are not, though float() converts some of them."""
    if isinstance(value, (str, bool)) or getattr(value, "ndim", False) or not hasattr(value, "__float__"):
        return False
    return _masked_index(value) is None and getattr(getattr(value, "dtype", None), "kind", "f") in NUMERIC


def _masked_index(value: Any, depth: int = MOST_AXES) -> tuple[int, ...] | None:
    """Index of the first masked entry of an array or of nested lists, which numpy would unmask; None if none is masked."""
    if isinstance(value, np.ma.MaskedArray):
        mask = np.ma.getmaskarray(value)
        return first_index(mask) if mask.dtype == bool and mask.any() else None
    if depth and isinstance(value, (list, tuple)):
        for i, entry in enumerate(value):
            inner = _masked_index(entry, depth - 1)
            if inner is not None:
                return (i, *inner)
    return None
