"""How many threads the direct sums and fused loops use, and how they share rows.

Kernels release the interpreter lock and each row of the result is computed by one thread in a fixed order, so that results are
bitwise the same for any number of threads.
"""

import os
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from contextvars import ContextVar
from functools import cache
from itertools import pairwise

MINIMUM_ROWS = 64
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
    return int(wanted) if wanted.isdigit() and int(wanted) > 0 else len(os.sched_getaffinity(0))


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
def _pool(workers: int) -> ThreadPoolExecutor:
    return ThreadPoolExecutor(workers, thread_name_prefix="meanfield_pde")
