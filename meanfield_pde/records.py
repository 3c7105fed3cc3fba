"""Records are frozen dataclasses of read-only arrays; two are equal if all their fields are, to the last bit."""

from dataclasses import fields, is_dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray


def frozen(array: NDArray) -> NDArray:
    """A read-only C-contiguous view (or copy) of an array."""
    result = np.ascontiguousarray(array).view()
    result.setflags(write=False)
    return result


def equal(a: Any, b: Any) -> bool:
    """Whether two records, arrays or plain values have the same type and the same contents; NaN equals NaN."""
    if type(a) is not type(b):
        return False
    if isinstance(a, np.ndarray):
        numeric = a.dtype.kind in "fc"
        return a.dtype == b.dtype and bool(np.array_equal(a, b, equal_nan=numeric))
    if is_dataclass(a):
        return all(equal(getattr(a, field.name), getattr(b, field.name)) for field in fields(a))
    return bool(a == b)
