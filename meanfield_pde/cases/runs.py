"""Runs of cases: each part of a case is solved in a folder, the density first, from its start or from where it was stopped.

    limit.vtkhdf, tokens.vtkhdf                        results of the density and of the tokens, which grow as the run goes
    limit.pvd, tokens.pvd, overview.png, summary.csv   series for ParaView, picture and table, written once all parts are over

Data in: a case and a folder. Data out: the solutions and these files. Nothing is printed here and no signal is handled, so that a case can
be run in any thread.
"""

import json
import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from meanfield_pde import inputs
from meanfield_pde.cases.case import Case, Run, make_case, read_case
from meanfield_pde.cases.stopping import StopRequest
from meanfield_pde.diagnostics.comparison import Comparison, compare
from meanfield_pde.files.checkpoints import RUNNING, Checkpoint, newest
from meanfield_pde.files.replacing import owned
from meanfield_pde.files.results import SUFFIX, load, save
from meanfield_pde.files.series import write_vtk
from meanfield_pde.kinds import own_classes
from meanfield_pde.measure import Measure
from meanfield_pde.pictures.overview import overview
from meanfield_pde.progress import Progress
from meanfield_pde.solution import Solution
from meanfield_pde.solve import Callback, solve
from meanfield_pde.solve import resume as resume_file

RESULTS = {"density": "limit.vtkhdf", "tokens": "tokens.vtkhdf"}
"""The results file of each kind of part, in the order in which they are run."""
CHECKPOINT_EVERY = "60s"

CaseLike = str | os.PathLike[str] | Mapping[str, Any] | Case


def run(
    case: CaseLike,
    out: str | os.PathLike[str],
    *,
    overwrite: bool = False,
    checkpoint_every: str = CHECKPOINT_EVERY,
    wall_time: float | str | None = None,
    progress: bool | Progress = False,
    kinds: Iterable[type] = (),
) -> list[Solution]:
    """Run a case: the density, the tokens, or both beside each other; returns their solutions, the density first.

    case: the path of a TOML file, the same tables as nested plain values (file names in them are relative to the working directory), or a
    `Case`. out: the folder for results, series for ParaView, picture and table; it is made if it is missing. overwrite: replace the results
    of an earlier run there. checkpoint_every: how often the results so far are written: seconds ("60s"; also "10min", "2h"), steps
    ("100steps") or model time ("0.5"). wall_time: after which the run stops, seconds or such a text. progress: True for a bar on a
    terminal's stderr, or a function of (t, t_end). kinds: classes of one's own (models, say) that the case names.

    A run that the wall time stopped returns the parts that have begun, the last of them with a status that says so; `resume(out)` goes on
    with it, and then writes series, picture and table. The same holds after an interrupt or a crash, from the newest checkpoint.

    Raises ValueError for a bad case or option, or if the folder holds results and overwrite is False, before any file is made;
    FileNotFoundError for a missing case file; OSError if a file cannot be written; OverflowError and SolveError as `solve`.
    """
    replacing = inputs.flag("overwrite", overwrite)
    plan = plan_run(case, inputs.file_path("out", out), checkpoint_every, kinds)
    if plan.earlier and not replacing:
        names = " and ".join(path.name for path in plan.earlier)
        raise ValueError(f"{plan.folder} already holds {names}; give another folder or overwrite=True, or resume it")
    return _carried_out(plan, wall_time, progress)


def resume(
    path: str | os.PathLike[str],
    *,
    callbacks: Iterable[Callback] = (),
    case: CaseLike | None = None,
    checkpoint_every: str | None = None,
    wall_time: float | str | None = None,
    progress: bool | Progress = False,
    kinds: Iterable[type] = (),
) -> Solution | list[Solution]:
    """Go on with a run that was stopped, from its newest whole checkpoint: that of a case in a folder, or one in a .vtkhdf file.

    path: a folder made by `run` or by the command line; the result is then what `run` returns. Or the file of a `Checkpoint`; the result is
    then the solution, as from `solve`. wall_time: after which the run stops again. progress, kinds: as in `run`.
    Only for a file: callbacks, as in `solve`; they are not kept from before. Only for a folder: case, which must be the one that the run
    was made from, and checkpoint_every, for parts that have not begun (default "60s"); a part that has begun keeps its own rule.

    The results are those of the uninterrupted run, bit for bit, as long as the number of threads is the same; another number is recorded,
    as is where the run was taken up. Raises FileNotFoundError if there is no such run, ValueError for an option of the other kind, if no
    checkpoint is whole, the run failed, or its case or a file that it names has changed; SolveError as `solve`.
    """
    place = inputs.file_path("path", path)
    if place.is_dir():
        _refuse_given(place, "a folder", callbacks=callbacks or None)
        plan = plan_resume(place, case, CHECKPOINT_EVERY if checkpoint_every is None else checkpoint_every, kinds)
        return _carried_out(plan, wall_time, progress)
    if place.suffix != SUFFIX:
        raise ValueError(f"path is {str(place)!r}, wanted the folder of a run or a file that ends in {SUFFIX}")
    _refuse_given(place, "a file", case=case, checkpoint_every=checkpoint_every)
    watchers = inputs.sequence("callbacks", callbacks, "a list of functions of (t, measure)")
    return resume_file(place, callbacks=[*watchers, StopRequest(wall_time)], progress=progress, kinds=kinds)


@dataclass(frozen=True)
class Plan:
    """What is to be done in a folder. case: without the parts that have begun. rules: where and how often each kind of part is written.
    over: parts that ended before. under_way: kinds that go on from their checkpoint. earlier: result files of an earlier run, which the new
    one is to replace. kinds: classes of one's own that the case names."""

    case: Case
    folder: Path
    rules: dict[str, Checkpoint]
    over: tuple[Solution, ...] = ()
    under_way: tuple[str, ...] = ()
    earlier: tuple[Path, ...] = ()
    kinds: tuple[type, ...] = ()


def plan_run(case: CaseLike, folder: Path, every: str, kinds: Iterable[type] = ()) -> Plan:
    """A case from its start. Raises ValueError or FileNotFoundError for a bad case or rule; no file is made."""
    own, folder = own_classes(kinds), inputs.file_path("out", folder)
    asked = _case(case, own)
    rules = _rules(folder, every)
    earlier = tuple(path for rule in rules.values() for path in (rule.path, rule.previous) if path.exists())
    return Plan(asked, folder, rules, earlier=earlier, kinds=own)


def plan_resume(folder: Path, case: CaseLike | None, every: str, kinds: Iterable[type] = ()) -> Plan:
    """What is left of the run in a folder. case: the one it must have been made from, if given. Raises ValueError as `resume`."""
    own = own_classes(kinds)
    begun = {solution.kind: solution for solution in stored_runs(folder, unfinished=True, kinds=own)}
    record = next(iter(begun.values())).record
    if not {"case", "case folder", "files"} <= set(record):
        raise ValueError(f"{folder} holds no run of a case, wanted one made by meanfield-pde run")
    if case is not None:
        _refuse_other_case(folder, record, case, own)
    asked = make_case(record["case"], Path(record["case folder"]), begun, own)
    _refuse_other_files(folder, record["files"], asked.files)
    rules = _rules(folder, every)
    for kind, solution in begun.items():
        if solution.status.startswith("failed"):
            raise ValueError(f"{rules[kind].path} holds a run that {solution.status}, wanted one that was stopped")
    under_way = tuple(kind for kind, solution in begun.items() if solution.status == RUNNING)
    over = tuple(solution for kind, solution in begun.items() if kind not in under_way)
    return Plan(replace(asked, files=record["files"]), folder, rules, over, under_way, kinds=own)


def solve_parts(plan: Plan, stop: StopRequest, progress: bool | Progress) -> Iterator[Solution]:
    """Solves what the plan has left to do and yields the solution of each part as it ends; one that was stopped is the last."""
    parts, outdated = {"density": plan.case.limit, "tokens": plan.case.tokens}, plan.earlier
    for kind, rule in plan.rules.items():
        if kind in plan.under_way:
            solution = resume_file(rule.path, callbacks=[*plan.case.callbacks, stop], progress=progress, kinds=plan.kinds)
        elif (part := parts[kind]) is not None:
            solution = _solved(plan.case, part, rule, stop, progress, outdated)
            outdated = ()
        else:
            continue
        was_stopped = stop.code is not None
        if not was_stopped and solution.status != "done":  # the case's own callback ended it: no checkpoint is needed any more
            save(rule.path, solution)
            rule.previous.unlink(missing_ok=True)
        yield solution
        if was_stopped:
            return


def write_products(folder: Path, solutions: Sequence[Solution]) -> tuple[list[Path], Comparison | None]:
    """Writes series, picture and table of finished parts; returns their paths and the table, None if there is one part only."""
    written = [*write_vtk(folder, *solutions), overview(folder / "overview.png", *solutions)]
    if len(solutions) < 2:
        return written, None
    table = compare(*solutions)
    table.write_csv(folder / "summary.csv")
    return [*written, folder / "summary.csv"], table


def stored_runs(folder: Path, unfinished: bool = False, kinds: Iterable[type] = ()) -> list[Solution]:
    """The runs in a folder, the density first; unfinished: from the checkpoint before the last, too, if that is all there is.

    Raises FileNotFoundError if there is no folder, ValueError if it holds no runs or those of different cases.
    """
    if not folder.is_dir():
        raise FileNotFoundError(f"no folder {folder}, wanted the folder of a run")
    found = {}
    for kind, name in RESULTS.items():
        path = newest(folder / name, kinds) if unfinished else folder / name
        if path.exists():
            found[path] = load(path, kinds)
            if found[path].kind != kind:
                raise ValueError(f"{path} holds a run of kind {found[path].kind}, wanted {kind}")
    if not found:
        raise ValueError(f"{folder} holds no run, wanted {' or '.join(RESULTS.values())}")
    cases = [(solution.record.get("case"), solution.record.get("files")) for solution in found.values()]
    if cases[0] != cases[-1]:
        raise ValueError(f"{' and '.join(map(str, found))} are runs of different cases, wanted one case")
    return list(found.values())


def _carried_out(plan: Plan, wall_time: float | str | None, progress: bool | Progress) -> list[Solution]:
    """The solutions of all parts, the density first; the other files are written unless the wall time stopped one."""
    stop = StopRequest(wall_time)
    with owning(plan.folder):
        solutions = sorted([*plan.over, *solve_parts(plan, stop, progress)], key=lambda solution: list(RESULTS).index(solution.kind))
        if stop.code is None:
            write_products(plan.folder, solutions)
    return solutions


@contextmanager
def owning(folder: Path) -> Iterator[None]:
    """Makes a folder, if it is missing, and this process the only one that runs a case in it. Raises as `owned` does."""
    is_new = not folder.exists()
    folder.mkdir(parents=True, exist_ok=True)
    try:
        with owned(folder):
            yield
    finally:
        if is_new and not any(folder.iterdir()):
            folder.rmdir()


def _solved(case: Case, part: Run, rule: Checkpoint, stop: StopRequest, progress: bool | Progress, outdated: Sequence[Path]) -> Solution:
    """The solution of a part from its start. outdated: files of an earlier run, removed once this one has taken the place of its own."""

    def remove_outdated(t: float, measure: Measure) -> None:
        while others:
            others.pop().unlink(missing_ok=True)

    others = [path for path in outdated if path not in (rule.path, rule.previous)]
    return solve(
        part.system,
        part.start,
        case.t_end,
        save_at=case.times,
        stepper=part.stepper,
        callbacks=[remove_outdated, *case.callbacks, stop],
        progress=progress,
        checkpoint=rule,
        record={"case": case.source, "case folder": str(case.folder), "files": case.files},
    )


def _case(case: CaseLike, kinds: tuple[type, ...]) -> Case:
    if isinstance(case, Case):
        return case
    if isinstance(case, Mapping):
        return make_case({str(name): _plain(f"case: {name}", value) for name, value in case.items()}, kinds=kinds)
    if not isinstance(case, (str, os.PathLike)):
        raise ValueError(f"case is {inputs.shown(case)}, wanted the path of a TOML file, its tables as nested plain values, or a Case")
    return read_case(inputs.file_path("case", case), kinds)


def _plain(where: str, value: Any) -> Any:
    """A copy as results files give it back: a tuple becomes a list."""
    try:
        return json.loads(json.dumps(value))
    except (TypeError, ValueError, RecursionError):
        raise ValueError(f"{where} is {inputs.shown(value)}, wanted plain values: numbers, texts, lists and tables of them") from None


def _refuse_other_case(folder: Path, record: Mapping[str, Any], case: CaseLike, kinds: tuple[type, ...]) -> None:
    """ValueError with the differences if a run was made from another case than the one given, or from other files of the same names."""
    asked, label = _case(case, kinds), str(case) if isinstance(case, (str, os.PathLike)) else "the case given"
    given, made = asked.source, record["case"]
    names = [name for name in sorted({*given, *made}) if given.get(name) != made.get(name)]
    if names:
        differences = "; ".join(f"{name}: {made.get(name)} in the run, {given.get(name)} in {label}" for name in names)
        raise ValueError(f"{label} is not the case of {folder}: {differences}")
    _refuse_other_files(folder, record["files"], asked.files)


def _refuse_other_files(folder: Path, begun: Mapping[str, str], found: Mapping[str, str]) -> None:
    """ValueError if a file that a case names is another one than the run was begun with. begun, found: SHA-256 by name."""
    for name, digest in found.items():
        if begun.get(name) != digest:
            raise ValueError(
                f"{name} has SHA-256 {digest}, wanted {begun.get(name)}: that of the file with which the run in {folder} began"
            )


def _refuse_given(path: Path, what: str, **options: Any) -> None:
    for name, value in options.items():
        if value is not None:
            raise ValueError(f"{name} is given, but {path} is {what}, which takes no {name}")


def _rules(folder: Path, every: str) -> dict[str, Checkpoint]:
    """The rule of each kind of part; every: "60s", "100steps" or "0.5"."""
    if isinstance(every, str):
        with suppress(ValueError):
            if every.endswith("steps"):
                rule: dict[str, Any] = {"every_steps": int(every.removesuffix("steps"))}
            elif every.endswith(tuple(inputs.SECONDS)):
                rule = {"every_seconds": inputs.seconds("checkpoint_every", every)}
            else:
                rule = {"every_time": float(every)}
            return {kind: Checkpoint(folder / result, **rule) for kind, result in RESULTS.items()}
    raise ValueError(f"checkpoint_every is {every!r}, wanted seconds such as '60s', steps such as '100steps' or model time such as '0.5'")
