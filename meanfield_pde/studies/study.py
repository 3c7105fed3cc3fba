"""The verb: run what a study still lacks, put the table together, write it down.

Processes of this machine, or the workers of a Dask scheduler, compute each job with one thread, so that results are the same to the bit.

    OUT/runs/<key>.*.h5  finished runs, named by all that their results depend on: they are never run again
    OUT/study.csv        the table (tidy), OUT/study.png its picture, OUT/study.npz its arrays where it has some
    OUT/study.json       the study as it was run, defaults included

Data in: a study and a folder. Data out: those files and a `StudyResult`.
"""

import json
import multiprocessing
import os
import re
import signal
import threading
from collections.abc import Callable, Iterable, Iterator, Mapping
from concurrent.futures import Executor, ProcessPoolExecutor, as_completed
from contextlib import contextmanager
from dataclasses import dataclass, replace
from multiprocessing.connection import wait
from multiprocessing.process import parent_process
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from meanfield_pde import inputs
from meanfield_pde.files.replacing import replacing
from meanfield_pde.files.tables import Table, data_frame, write_csv
from meanfield_pde.files.vtkhdf import read_arrays, write_arrays
from meanfield_pde.kinds import own_classes
from meanfield_pde.pictures.canvas import as_html
from meanfield_pde.progress import Progress, progress_bar
from meanfield_pde.recorder import versions
from meanfield_pde.studies.jobs import Arrays, Job
from meanfield_pde.studies.pictures import draw, study_figure
from meanfield_pde.studies.plan import KINDS, Parameters, Study, make_study, read_study
from meanfield_pde.systems.system import SolveError
from meanfield_pde.threads import processors, single_threaded

if TYPE_CHECKING:
    import pandas

RUNS_FILE = re.compile(r"([0-9a-f]{32})\.(\d+)-(\d+)\.h5")
ONE_THREAD = dict.fromkeys(("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"), "1")
"""What Dask sets for its workers, too; sums inside linear algebra depend on it."""


COLUMNS = {
    "t": ("1", "time"),
    "quantity": ("", "what is compared with the limit"),
    "source": ("", "limit or tokens"),
    "n": ("1", "number of tokens, 0 for the limit"),
    "runs": ("1", "number of runs"),
    "run": ("1", "number of the run"),
    "mean": ("rad for w1 and w2, else 1", "mean over the runs; of inner products, over their pairs"),
    "standard_error": ("that of the mean", "standard error of the mean"),
    "limit_error": ("that of the mean", "the limit's own error"),
    "approximation_error": ("rad", "what aggregation adds to w1"),
    "mesh_limited": ("", "whether the mesh is too coarse for the mean to count"),
    "validity": ("1", "n over e^beta / Lambda_0(beta), below which a token counts too much for itself"),
    "below_validity": ("", "whether n is too small for the mean to count"),
    "limit": ("1", "the limit's own energy, order parameter or number of clusters"),
    "slope": ("1", "fitted power of n"),
    "slope_low": ("1", "lower end of the slope's 95 % interval"),
    "slope_high": ("1", "upper end of the slope's 95 % interval"),
    "factor": ("that of the mean", "factor of the fitted power"),
    "share": ("1", "share of pairs"),
    "clusters": ("1", "number of clusters"),
    "low": ("1", "lower edge of the bin of inner products"),
    "high": ("1", "upper edge of the bin of inner products"),
    "equiangular": ("1", "inner product by the equiangular law"),
    "attention.beta": ("1", "inverse temperature"),
}
"""Unit ("1": dimensionless, "": no number) and name in words of the columns of all kinds of studies."""


@dataclass(frozen=True, repr=False)
class StudyResult:
    """study: what was run. table: the rows of study.csv. arrays: of study.npz. folder: where the files are."""

    study: Study
    table: Table
    arrays: Arrays
    folder: Path

    def __str__(self) -> str:
        return "\n".join(self.study.kind.report(self.table))

    def __repr__(self) -> str:
        return f"<StudyResult: {len(self.table)} rows in {self.folder}; print() shows the report\n  {self.study}>"

    def _repr_html_(self) -> str:
        """The picture, for notebooks."""
        return as_html(lambda: study_figure(self.study, self.table), repr(self))

    def to_pandas(self) -> "pandas.DataFrame":
        """The rows of study.csv, with units and long names as attributes. Raises ValueError if pandas is not installed."""
        names = self.table.names
        return data_frame({name: self.table.column(name) for name in names}, COLUMNS, study=json.dumps(self.study.resolved()))


def study(
    asked: Mapping[str, Any] | str | Path | Study,
    out: str | Path,
    *,
    workers: int | None = None,
    scheduler: str | None = None,
    progress: bool | Progress = False,
    kinds: Iterable[type] = (),
) -> StudyResult:
    """Run a study, or what is left of it, and write its table and picture to the folder `out`.

    asked: a file (.toml, .json), its content as nested mappings, or a `Study`. workers: processes, default one a processor. scheduler: the
    address of a Dask scheduler whose workers have this package, instead. progress: True for a bar on a terminal's stderr, or a function of
    (done, total), in units of work. kinds: classes of one's own (importable models) that the tables name. Finished jobs are kept in
    out/runs and found again: a study that was killed goes on, and one that was enlarged runs what is new. The result depends on the study
    alone: not on the number of workers, nor on the order of execution.

    Processes are started anew (spawn): a script calls this under `if __name__ == "__main__":`. Raises ValueError for bad input before any
    run, SolveError if a run could not go on (all that finished is kept).
    """
    own = own_classes(kinds)
    if isinstance(asked, Mapping):
        plan = make_study(asked, kinds=own)
    elif isinstance(asked, Study):
        plan = asked
    elif isinstance(asked, str | Path):
        plan = read_study(asked, own)
    else:
        raise ValueError(f"asked is {inputs.shown(asked)}, wanted a study file, its content or a Study")
    folder = inputs.file_path("out", out)
    store = _Store(folder / "runs")
    limits = [job for parameters in plan.sets for job in plan.limit_jobs(parameters)]
    tokens = [job for parameters in plan.sets for job in plan.token_jobs(parameters)]
    total = sum(job.cost for job in limits + tokens)
    done = total - sum(part.cost for job in limits + tokens for part in store.missing(job))

    def count(job: Job) -> None:
        nonlocal done
        done += job.cost
        report(done, total)

    with executor(workers, scheduler) as pool, progress_bar(progress, plan.kind.name, "{task.percentage:.0f} %") as report:
        report(done, total)
        _run(pool, limits, store, count, {})
        _run(pool, tokens, store, count, _limits_of_jobs(plan, store))
    table = Table.of(row for parameters in plan.sets for row in _rows(plan, parameters, store))
    result = StudyResult(plan, table, plan.kind.arrays(table), folder)
    _write(result)
    return result


def perform(job: Job, limit: Arrays | None = None) -> Arrays:
    """What a job computes, with one thread."""
    kind = KINDS[job.kind](**job.options)
    try:
        with single_threaded():
            return kind.limit(job) if job.what == "limit" else kind.tokens(job, limit)
    except SolveError as error:
        raise SolveError(f"{job.described}: {error}") from None


class _Store:
    """Finished runs, in one file for each job that computed some: <key>.<first>-<last>.h5."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._found: dict[str, list[tuple[int, int]]] = {}
        for path in folder.glob("*.h5"):
            if name := RUNS_FILE.fullmatch(path.name):
                self._found.setdefault(name[1], []).append((int(name[2]), int(name[3])))

    def missing(self, job: Job) -> list[Job]:
        """What of a job is not stored: jobs of neighbouring runs."""
        done = {run for first, last in self._found.get(job.key, []) for run in range(first, last)}
        runs = [run for run in job.runs if run not in done]
        starts = [run for run in runs if run - 1 not in runs]
        ends = [run + 1 for run in runs if run + 1 not in runs]
        return [replace(job, first=first, last=last) for first, last in zip(starts, ends, strict=True)]

    def save(self, job: Job, arrays: Arrays) -> None:
        self._folder.mkdir(parents=True, exist_ok=True)
        write_arrays(self._path(job.key, job.first, job.last), arrays)
        self._found.setdefault(job.key, []).append((job.first, job.last))

    def load(self, jobs: list[Job]) -> Arrays | None:
        """The arrays of jobs that differ in their runs alone, one run after the other along their first axis; None for no job."""
        if not jobs:
            return None
        key, runs, parts = jobs[0].key, {run for job in jobs for run in job.runs}, []
        for first, last in sorted(self._found[key]):
            rows = [run - first for run in range(first, last) if run in runs]
            if rows:
                path = self._path(key, first, last)
                try:
                    stored = read_arrays(path)
                except ValueError as error:
                    wanted = "wanted it removed, so that the job runs again"
                    raise ValueError(f"{path} is no complete result of a job ({error}); {wanted}") from None
                parts.append(stored if len(rows) == last - first else {name: array[rows] for name, array in stored.items()})
        return parts[0] if len(parts) == 1 else {name: np.concatenate([part[name] for part in parts]) for name in parts[0]}

    def _path(self, key: str, first: int, last: int) -> Path:
        return self._folder / f"{key}.{first}-{last}.h5"


def _run(pool: Executor, jobs: list[Job], store: _Store, count: Callable[[Job], None], limits: Mapping[str, Arrays]) -> None:
    """Computes what is not stored yet, the longest first; stores each job as it ends. limits: by the key of the job that is given one."""
    missing = sorted((part for job in jobs for part in store.missing(job)), key=lambda job: -job.cost)
    running = {pool.submit(perform, job, limits.get(job.key)): job for job in missing}
    try:
        for future in as_completed(running):
            store.save(running[future], future.result())
            count(running[future])
    finally:
        for future in running:
            future.cancel()


def _limits_of_jobs(plan: Study, store: _Store) -> dict[str, Arrays]:
    """The limit that each job of tokens is given."""
    sets = plan.sets if plan.kind.limit_comes_first else ()
    limits = ((parameters, store.load(plan.limit_jobs(parameters))) for parameters in sets)
    return {job.key: limit for parameters, limit in limits if limit is not None for job in plan.token_jobs(parameters)}


def _rows(plan: Study, parameters: Parameters, store: _Store) -> list[dict[str, Any]]:
    jobs = plan.token_jobs(parameters)
    tokens = {n: arrays for n in plan.counts if (arrays := store.load([job for job in jobs if job.count == n])) is not None}
    rows = plan.kind.summary(store.load(plan.limit_jobs(parameters)), tokens, plan.job(parameters))
    values = {name: json.dumps(value) if isinstance(value, (list, dict)) else value for name, value in parameters.values.items()}
    return [{**values, **row} for row in rows]


def _write(result: StudyResult) -> None:
    folder, table = result.folder, result.table
    write_csv(folder / "study.csv", table.names, table.rows)
    if result.arrays:
        with replacing(folder / "study.npz") as temporary, temporary.open("wb") as stream:
            np.savez_compressed(stream, **result.arrays)  # type: ignore[arg-type]
    with replacing(folder / "study.json") as temporary:
        described = result.study.resolved() | {"made_with": versions()}
        temporary.write_text(json.dumps(described, indent=2) + "\n", encoding="utf-8")
    draw(folder / "study.png", result.study, table)


@contextmanager
def executor(workers: int | None, scheduler: str | None) -> Iterator[Executor]:
    """workers: processes, default one for each processor this one may use. scheduler: address of a Dask scheduler instead.

    Raises ValueError for a bad number, both, or if Dask is not installed; OSError if no scheduler answers.
    """
    if scheduler is None:
        count = inputs.integer("workers", processors() if workers is None else workers, low=1)
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
