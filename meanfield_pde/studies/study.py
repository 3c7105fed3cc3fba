"""The verb: run what a study still lacks, put the table together, write it down.

    OUT/runs/<key>.*.h5  finished runs, named by all that their results depend on: they are never run again
    OUT/study.csv        the table (tidy), OUT/study.png its picture, OUT/study.npz its arrays where it has some
    OUT/study.json       the study as it was run, defaults included

Data in: a study and a folder. Data out: those files and a `StudyResult`.
"""

import json
import re
from collections.abc import Iterable, Mapping
from concurrent.futures import Executor, as_completed
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from meanfield_pde import inputs
from meanfield_pde.files.replacing import replacing
from meanfield_pde.files.tables import Table, write_csv
from meanfield_pde.files.vtkhdf import read_arrays, write_arrays
from meanfield_pde.kinds import own_classes
from meanfield_pde.progress import Progress, progress_bar
from meanfield_pde.recorder import versions
from meanfield_pde.studies.executors import executor
from meanfield_pde.studies.jobs import Arrays, Job
from meanfield_pde.studies.pictures import draw
from meanfield_pde.studies.plan import KINDS, Parameters, Study, make_study, read_study
from meanfield_pde.systems.system import SolveError
from meanfield_pde.threads import single_threaded

RUNS_FILE = re.compile(r"([0-9a-f]{32})\.(\d+)-(\d+)\.h5")


@dataclass(frozen=True)
class StudyResult:
    """study: what was run. table: the rows of study.csv. arrays: of study.npz. folder: where the files are."""

    study: Study
    table: Table
    arrays: Arrays
    folder: Path

    def __str__(self) -> str:
        return "\n".join(self.study.kind.report(self.table))


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
    plan = _planned(asked, own_classes(kinds))
    store = _Store(Path(out) / "runs")
    limits = [job for parameters in plan.sets for job in plan.limit_jobs(parameters)]
    tokens = [job for parameters in plan.sets for job in plan.token_jobs(parameters)]
    with executor(workers, scheduler) as pool, progress_bar(progress, plan.kind.name, "{task.percentage:.0f} %") as report:
        meter = _Meter([*limits, *tokens], store, report)
        _run(pool, limits, store, meter, {})
        _run(pool, tokens, store, meter, _limits_of_jobs(plan, store))
    table = Table.of(row for parameters in plan.sets for row in _rows(plan, parameters, store))
    result = StudyResult(plan, table, plan.kind.arrays(table), Path(out))
    _write(result)
    return result


def _planned(asked: Mapping[str, Any] | str | Path | Study, kinds: tuple[type, ...]) -> Study:
    if isinstance(asked, Study):
        return asked
    if isinstance(asked, Mapping):
        return make_study(asked, kinds=kinds)
    if not isinstance(asked, str | Path):
        raise ValueError(f"asked is {inputs.shown(asked)}, wanted a study file, its content or a Study")
    return read_study(asked, kinds)


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
                stored = self._read(self._path(key, first, last))
                parts.append(stored if len(rows) == last - first else {name: array[rows] for name, array in stored.items()})
        return parts[0] if len(parts) == 1 else {name: np.concatenate([part[name] for part in parts]) for name in parts[0]}

    def _path(self, key: str, first: int, last: int) -> Path:
        return self._folder / f"{key}.{first}-{last}.h5"

    def _read(self, path: Path) -> Arrays:
        try:
            return read_arrays(path)
        except ValueError as error:
            raise ValueError(f"{path} is no complete result of a job ({error}); wanted it removed, so that the job runs again") from None


class _Meter:
    """Work done, in units of `Job.cost`."""

    def __init__(self, jobs: list[Job], store: _Store, report: Progress) -> None:
        self._total = sum(job.cost for job in jobs)
        self._done = self._total - sum(part.cost for job in jobs for part in store.missing(job))
        self._report = report
        report(self._done, self._total)

    def count(self, job: Job) -> None:
        self._done += job.cost
        self._report(self._done, self._total)


def _run(pool: Executor, jobs: list[Job], store: _Store, meter: _Meter, limits: Mapping[str, Arrays]) -> None:
    """Computes what is not stored yet, the longest first; stores each job as it ends. limits: by the key of the job that is given one."""
    missing = sorted((part for job in jobs for part in store.missing(job)), key=lambda job: -job.cost)
    running = {pool.submit(perform, job, limits.get(job.key)): job for job in missing}
    try:
        for future in as_completed(running):
            store.save(running[future], future.result())
            meter.count(running[future])
    finally:
        for future in running:
            future.cancel()


def _limits_of_jobs(plan: Study, store: _Store) -> dict[str, Arrays]:
    """The limit that each job of tokens is given."""
    if not plan.kind.limit_comes_first:
        return {}
    limits = ((parameters, store.load(plan.limit_jobs(parameters))) for parameters in plan.sets)
    return {job.key: limit for parameters, limit in limits if limit is not None for job in plan.token_jobs(parameters)}


def _rows(plan: Study, parameters: Parameters, store: _Store) -> list[dict[str, Any]]:
    jobs = plan.token_jobs(parameters)
    tokens = {n: arrays for n in plan.counts if (arrays := store.load([job for job in jobs if job.count == n])) is not None}
    rows = plan.kind.summary(store.load(plan.limit_jobs(parameters)), tokens, plan.job(parameters))
    return [{**parameters.values, **row} for row in rows]


def _write(result: StudyResult) -> None:
    folder, table = result.folder, result.table
    write_csv(folder / "study.csv", table.names, table.rows)
    if result.arrays:
        with replacing(folder / "study.npz") as temporary, temporary.open("wb") as stream:
            np.savez_compressed(stream, **result.arrays)  # type: ignore[arg-type]
    with replacing(folder / "study.json") as temporary:
        described = result.study.resolved() | {"made_with": versions()}
        temporary.write_text(json.dumps(described, indent=2) + "\n", encoding="utf-8")
    draw(folder / "study.png", result.study.kind, table)
