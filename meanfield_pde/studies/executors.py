"""Who computes the jobs: processes on this machine, or the workers of a Dask scheduler.

Both compute with one thread a job, so that results are the same to the bit.

Data in: a number of processes or an address. Data out: an executor of `concurrent.futures`.
"""

import multiprocessing
import os
import signal
import threading
from collections.abc import Iterator
from concurrent.futures import Executor, ProcessPoolExecutor
from contextlib import contextmanager
from multiprocessing.connection import wait
from multiprocessing.process import parent_process

from meanfield_pde import inputs

ONE_THREAD = dict.fromkeys(("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"), "1")
"""What Dask sets for its workers, too; sums inside linear algebra depend on it."""


@contextmanager
def executor(workers: int | None, scheduler: str | None) -> Iterator[Executor]:
    """workers: processes, default one for each processor this one may use. scheduler: address of a Dask scheduler instead.

    Raises ValueError for a bad number, both, or if Dask is not installed; OSError if no scheduler answers.
    """
    if scheduler is None:
        count = inputs.integer("workers", len(os.sched_getaffinity(0)) if workers is None else workers, low=1)
        with one_thread(), ProcessPoolExecutor(count, multiprocessing.get_context("spawn"), _begin) as pool:
            yield pool
        return
    if workers is not None:
        raise ValueError(f"workers is {workers} beside scheduler {scheduler!r}, wanted one of them: Dask has workers of its own")
    try:
        from distributed import Client
    except ImportError:
        wanted = "wanted pip install 'meanfield-pde[distributed]'"
        raise ValueError(f"scheduler needs the package distributed, which is not installed; {wanted}") from None
    with Client(scheduler, set_as_default=False) as client, client.get_executor(pure=False) as pool:  # type: ignore[no-untyped-call]
        yield pool


@contextmanager
def one_thread() -> Iterator[None]:
    """The environment of processes that are started within."""
    before = {name: os.environ[name] for name in ONE_THREAD if name in os.environ}
    os.environ.update(ONE_THREAD)
    try:
        yield
    finally:
        for name in ONE_THREAD:
            del os.environ[name]
        os.environ.update(before)


def _begin() -> None:
    """In a new process: an interrupt is the parent's to answer, and a process whose parent was killed ends."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    parent = parent_process()
    assert parent is not None, "this runs in a child process"

    def watch() -> None:
        wait([parent.sentinel])
        os._exit(1)

    threading.Thread(target=watch, daemon=True).start()
