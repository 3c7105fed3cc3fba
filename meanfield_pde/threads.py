"""How loops are compiled, how many threads they use, and how these share rows.

Kernels release the interpreter lock and each row of the result is computed by one thread in a fixed order, so that results are
bitwise the same for any number of threads.
"""

import math
import os
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from functools import cache
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING, Any

from numba import njit

if TYPE_CHECKING:
    from concurrent.futures import ThreadPoolExecutor

MINIMUM_ROWS = 64
CPU_QUOTA = Path("/sys/fs/cgroup/cpu.max")
"""Microseconds of processors' time in each period, and the period, of the control group of this process."""
_single: ContextVar[bool] = ContextVar("single", default=False)


@contextmanager
def single_threaded() -> Iterator[None]:
    """One thread inside the block, whatever the machine has: results that must not depend on who computed them, many at a time."""
    token = _single.set(True)
    try:
        yield
    finally:
        _single.reset(token)


def thread_count() -> int:
    """1 within `single_threaded`, OMP_NUM_THREADS if it is a positive integer, otherwise the processors this process may use."""
    if _single.get():
        return 1
    wanted = os.environ.get("OMP_NUM_THREADS", "")
    return int(wanted) if wanted.isdigit() and int(wanted) > 0 else processors()


def processors() -> int:
    """The processors that this process may use: those it is bound to, where the system can bind it, within the quota of its container."""
    try:
        bound = len(os.sched_getaffinity(0))
    except AttributeError:  # macOS, Windows
        bound = os.cpu_count() or 1
    return max(1, min(bound, math.ceil(_quota(CPU_QUOTA))))


@cache
def _quota(path: Path) -> float:
    """Processors' time over time that a control group is given; every loop asks, and the file is read once."""
    try:
        quota, period = (int(word) for word in path.read_text(encoding="ascii").split())
    except (OSError, ValueError):  # no control group, or "max"
        return sys.maxsize
    return quota / period


def compiled(function: Callable[..., Any], **options: Any) -> Any:
    """numba's `njit` of a function, without the interpreter's lock, and kept on the disk: beside the package, in the user's cache or in
    NUMBA_CACHE_DIR. Where none of them can be written to, it is compiled anew in each process."""
    try:
        return njit(cache=True, nogil=True, **options)(function)
    except RuntimeError:
        return njit(nogil=True, **options)(function)


def over_rows(kernel: Callable[..., None], n_rows: int, *arguments: object, minimum_rows: int = MINIMUM_ROWS) -> None:
    """Call kernel(first, last, *arguments) on contiguous blocks of rows, in parallel where there are enough of them."""
    workers = min(thread_count(), n_rows // minimum_rows)
    if workers < 2:
        kernel(0, n_rows, *arguments)
        return
    edges = [n_rows * k // workers for k in range(workers + 1)]
    blocks = list(pairwise(edges))
    futures = [_pool(workers - 1).submit(kernel, first, last, *arguments) for first, last in blocks[1:]]
    kernel(*blocks[0], *arguments)
    for future in futures:
        future.result()


@cache
def _pool(workers: int) -> "ThreadPoolExecutor":
    from concurrent.futures import ThreadPoolExecutor

    return ThreadPoolExecutor(workers, thread_name_prefix="meanfield_pde")


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_pool.cache_clear)  # threads do not survive a fork, and who waits for them waits for ever
