"""Records are frozen dataclasses of read-only arrays; two are equal if all their fields are, to the last bit.

Arrays that may be too large for memory are `Rows`, which are read when they are asked for.
"""

import os
import threading
from collections import OrderedDict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import fields, is_dataclass
from typing import Any, TypeVar, cast

import numpy as np
from numpy.lib.mixins import NDArrayOperatorsMixin
from numpy.typing import NDArray

T = TypeVar("T")


def frozen(array: NDArray) -> NDArray:
    """A read-only C-contiguous copy of an array that owns its memory; the array itself if it is that already."""
    if is_frozen(array) and array.flags.c_contiguous:
        return array
    result = np.array(array, order="C")
    result.setflags(write=False)
    return result


def is_frozen(array: NDArray) -> bool:
    """Whether an array cannot change: a read-only view does when its owner writes."""
    return not array.flags.writeable and array.base is None


class Rows(NDArrayOperatorsMixin):
    """A read-only float64 array (n, ...), at least two-dimensional, whose rows are read when they are asked for.

    shape: of the array. read: returns rows first to last - 1, at least one, when called with (first, last). An index, a slice or a list of
    indices reads those rows alone; numpy's functions, arithmetic and what else an array can do read all of them. Nothing is kept.
    """

    dtype = np.dtype(np.float64)

    def __init__(self, shape: tuple[int, ...], read: Callable[[int, int], NDArray]) -> None:
        self.shape, self.ndim, self._read = shape, len(shape), read

    def __len__(self) -> int:
        return self.shape[0]

    def __repr__(self) -> str:
        return f"<{type(self).__name__} of shape {self.shape}>"

    def __getitem__(self, index: Any) -> Any:
        first, *rest = index if isinstance(index, tuple) else (index,)
        if isinstance(first, slice):
            result = self._each(range(len(self))[first], tuple(rest))
        elif isinstance(first, (int, np.integer, list, np.ndarray)) and np.ndim(first) < 2 and not isinstance(first, bool):
            chosen = np.arange(len(self))[first]
            result = self._block(chosen.ravel().tolist())[(np.arange(chosen.size).reshape(chosen.shape)[()], *rest)]
        else:
            result = np.asarray(self)[index]
        if isinstance(result, np.ndarray):
            result.setflags(write=False)
        return result

    def _each(self, chosen: range, rest: tuple[Any, ...]) -> NDArray:
        """A part of each of some rows; numpy puts the axes elsewhere if there is a new one among the indices."""
        if not rest or not chosen or any(part is None for part in rest):
            return self._block(chosen)[(slice(None), *rest)]
        return np.stack([self._read(k, k + 1)[0][rest] for k in chosen])

    def _block(self, chosen: Sequence[int]) -> NDArray:
        if isinstance(chosen, range) and chosen and chosen.step == 1:
            return self._read(chosen.start, chosen.stop)
        block = np.empty((len(chosen), *self.shape[1:]))
        for row, k in zip(block, chosen, strict=True):
            row[:] = self._read(k, k + 1)[0]
        return block

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> NDArray:
        if copy is False:
            raise ValueError("copy is False, wanted None or True: rows are read into a new array")
        result = self._block(range(len(self))).astype(dtype or self.dtype, copy=False)
        result.setflags(write=copy is True)
        return result

    def __array_ufunc__(self, ufunc: np.ufunc, method: str, *arguments: Any, **options: Any) -> Any:
        if "out" in options:
            return NotImplemented
        return getattr(ufunc, method)(*(np.asarray(one) if isinstance(one, Rows) else one for one in arguments), **options)

    def __getattr__(self, name: str) -> Any:
        if name.startswith("_"):
            raise AttributeError(f"{type(self).__name__} has no attribute {name}")
        return getattr(np.asarray(self), name)

    def __reduce__(self) -> tuple[Any, ...]:
        return np.array, (np.asarray(self),)


def equal(a: Any, b: Any) -> bool:
    """Whether two records, arrays or plain values have the same type and the same contents, to the last bit.

    NaN equals NaN. `Rows` equal the array that they would be read to. Fields that a record computes from others (init=False) are not
    compared.
    """
    if isinstance(a, Rows) or isinstance(b, Rows):
        return np.shape(a) == np.shape(b) and all(equal(one, other) for one, other in zip(a, b, strict=True))
    if type(a) is not type(b):
        return False
    if isinstance(a, np.ndarray):
        if a.dtype.names and a.dtype == b.dtype:
            return all(equal(np.asarray(a[name]), np.asarray(b[name])) for name in a.dtype.names)
        numeric = a.dtype.kind in "fc"
        return a.dtype == b.dtype and bool(np.array_equal(a, b, equal_nan=numeric))
    if isinstance(a, Mapping):
        return list(a) == list(b) and all(equal(a[name], b[name]) for name in a)
    if isinstance(a, tuple):
        return len(a) == len(b) and all(map(equal, a, b))
    if is_dataclass(a):
        return all(equal(getattr(a, field.name), getattr(b, field.name)) for field in fields(a) if field.init)
    return bool(a == b)


def short(value: Any) -> str:
    """A value as a prompt shows it: type and shape of an array of more than `SHOWN` numbers, the beginning of a long text."""
    if isinstance(value, Rows) or (isinstance(value, np.ndarray) and (value.size > SHOWN or value.dtype.names)):
        kind = "record" if value.dtype.names else str(value.dtype)
        return f"{kind} {value.shape}"
    if isinstance(value, np.ndarray):
        return str(value.tolist())
    text = " ".join(repr(value).split())
    return text if len(text) <= LONGEST else text[: LONGEST - 2] + ".."


class Record:
    """Base of frozen dataclasses with arrays: equal if all their fields are (`equal`); printed in a line (`short`)."""

    def __init_subclass__(cls, **options: Any) -> None:
        super().__init_subclass__(**options)
        if "__repr__" not in cls.__dict__:  # before the decorator, which would write one that prints whole arrays
            cls.__repr__ = cls._in_a_line  # type: ignore[assignment]

    def _in_a_line(self) -> str:
        shown = ", ".join(f"{field.name}={short(getattr(self, field.name))}" for field in fields(cast(Any, self)) if field.repr)
        return f"{type(self).__name__}({shown})"

    def __eq__(self, other: object) -> bool:
        return equal(self, other)

    __hash__ = None  # type: ignore[assignment]


SHOWN, LONGEST = 9, 80
"""Numbers of an array, and characters of another value, that a prompt shows."""
REMEMBERED = 12
_memory: OrderedDict[tuple[str, int], tuple[NDArray, Any]] = OrderedDict()
_lock = threading.Lock()
if hasattr(os, "register_at_fork"):
    os.register_at_fork(before=_lock.acquire, after_in_parent=_lock.release, after_in_child=_lock.release)


def remembered(what: str, array: NDArray, make: Callable[[], T]) -> T:
    """make(), or what it gave for this very array before: work done once on points that do not change, such as those of a mesh, is kept.

    Only frozen arrays count as unchanging; the last few are kept.
    """
    if not is_frozen(array):
        return make()
    key = (what, id(array))
    with _lock:
        found = _memory.get(key)
    if found is None or found[0] is not array:
        found = (array, make())  # several threads may make it; it is the same
    with _lock:
        _memory[key] = found
        _memory.move_to_end(key)
        while len(_memory) > REMEMBERED:
            _memory.popitem(last=False)
    return cast(T, found[1])
