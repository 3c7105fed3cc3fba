"""Records are frozen dataclasses of read-only arrays; two are equal if all their fields are, to the last bit."""

from collections import OrderedDict
from collections.abc import Callable
from dataclasses import fields, is_dataclass
from typing import Any, TypeVar, cast

import numpy as np
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


def equal(a: Any, b: Any) -> bool:
    """Whether two records, arrays or plain values have the same type and the same contents; NaN equals NaN.

    Fields that a record computes for itself (init=False) do not count.
    """
    if type(a) is not type(b):
        return False
    if isinstance(a, np.ndarray):
        numeric = a.dtype.kind in "fc"
        return a.dtype == b.dtype and bool(np.array_equal(a, b, equal_nan=numeric))
    if is_dataclass(a):
        return all(equal(getattr(a, field.name), getattr(b, field.name)) for field in fields(a) if field.init)
    return bool(a == b)


REMEMBERED = 12
_memory: OrderedDict[tuple[str, int], tuple[NDArray, Any]] = OrderedDict()


def remembered(what: str, array: NDArray, make: Callable[[], T]) -> T:
    """make(), or what it gave for this very array before: work done once on points that do not change, such as those of a mesh, is kept.

    Only frozen arrays count as unchanging; the last few are kept.
    """
    if not is_frozen(array):
        return make()
    key = (what, id(array))
    if key not in _memory or _memory[key][0] is not array:
        _memory[key] = (array, make())
        while len(_memory) > REMEMBERED:
            _memory.popitem(last=False)
    _memory.move_to_end(key)
    return cast(T, _memory[key][1])
