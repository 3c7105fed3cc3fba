"""The command line: reads a case, builds the objects a script would build, shows progress, writes files.

Exit codes: 0 done (or stopped by --wall-time), 2 bad input, 3 the solve failed (what was reached is saved), 130 interrupted, 143
terminated. Errors are one line on stderr.
"""

import sys
import warnings
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Annotated, Any

from cyclopts import App, CycloptsError, Parameter, Token

from meanfield_pde.cases.case import Case, Run, make_case, read_case
from meanfield_pde.cases.stopping import Stop, StoppedError, stopping
from meanfield_pde.diagnostics.comparison import compare as compare_runs
from meanfield_pde.diagnostics.stages import stages as find_stages
from meanfield_pde.files.checkpoints import RUNNING, Checkpoint, newest
from meanfield_pde.files.meshes import read_mesh, write_mesh
from meanfield_pde.files.results import load, save
from meanfield_pde.files.series import write_vtk
from meanfield_pde.files.tokens import read_tokens
from meanfield_pde.measure import Measure
from meanfield_pde.mesh.circle import circle
from meanfield_pde.mesh.cubed_sphere import cubed_sphere
from meanfield_pde.mesh.icosahedral import icosahedral
from meanfield_pde.mesh.record import SphereMesh
from meanfield_pde.mesh.voronoi import voronoi
from meanfield_pde.pictures.films import film as make_film
from meanfield_pde.pictures.pictures import overview, staircase
from meanfield_pde.recorder import PinnedWarning
from meanfield_pde.solution import Solution
from meanfield_pde.solve import resume as resume_run
from meanfield_pde.solve import solve
from meanfield_pde.studies.study import study as run_study
from meanfield_pde.systems.system import SolveError

DONE, BAD_INPUT, FAILED, INTERRUPTED = 0, 2, 3, 130
RESULTS = {"density": "limit.vtkhdf", "tokens": "tokens.vtkhdf"}


def _whole(kind: type, tokens: Sequence[Token]) -> int:
    """An integer as it was typed: cyclopts itself would cut 12.5 to 12."""
    try:
        return int(tokens[0].value)
    except ValueError:
        raise ValueError(f'unable to convert "{tokens[0].value}" into int') from None


Whole = Annotated[int, Parameter(converter=_whole)]
Output = Annotated[Path, Parameter(name=["--output", "-o"])]

app = App(
    name="meanfield-pde",
    help="The mean-field limit of self-attention: densities and tokens on the sphere.",
    help_format="markdown",
    suppress_keyboard_interrupt=False,
)
mesh_app = App(name="mesh", help="Make a mesh and write it as .vtu.")
app.command(mesh_app)


@app.command
def run(case: Path, *, out: Path, overwrite: bool = False, checkpoint_every: str = "60s", wall_time: float | None = None) -> None:
    """Run a case: the density, the tokens, or both beside each other.

    The results files grow as the run goes, and `resume` takes it up where they end, whatever stopped it.

    Parameters
    ----------
    case: the TOML file.
    out: folder for the results, the table (summary.csv), the picture (overview.png) and the series for ParaView (.pvd).
    overwrite: replace the results of an earlier run in that folder.
    checkpoint_every: how often the results so far are written: seconds ("60s"), steps ("100steps") or model time ("0.5").
    wall_time: seconds after which the run stops, to be resumed later.
    """
    asked = read_case(case)
    rules = {kind: _checkpoint(out / name, checkpoint_every) for kind, name in RESULTS.items()}
    earlier = [path.name for rule in rules.values() for path in (rule.path, rule.previous) if path.exists()]
    if earlier and not overwrite:
        raise ValueError(f"{out} already holds {' and '.join(earlier)}; give another --out or --overwrite, or resume it")
    first, *others = _parts(asked)
    old = [path for kind, rule in rules.items() if kind != first.system.kind for path in (rule.path, rule.previous)]
    with stopping(wall_time) as stop:
        solutions = [_solved(asked, first, rules[first.system.kind], stop, old)]
        solutions += [_solved(asked, part, rules[part.system.kind], stop) for part in others]
    _finish(out, solutions)


@app.command
def resume(folder: Path, /, *, case: Path | None = None, checkpoint_every: str = "60s", wall_time: float | None = None) -> None:
    """Go on with a run that was stopped, from its newest whole checkpoint.

    Parameters
    ----------
    folder: the folder of the run.
    case: refuse to go on if the run was not made from this case.
    checkpoint_every: how often tokens that had not begun yet are written; what has begun keeps its own rule.
    wall_time: seconds after which the run stops again.
    """
    begun, record = _begun(folder, case)
    asked = make_case(record["case"], Path(record["case folder"]), begun)
    changed = [name for name, digest in asked.files.items() if record["files"].get(name) != digest]
    if changed:
        raise ValueError(f"{changed[0]} is not the file that the run in {folder} was begun with: its SHA-256 is another")
    asked = replace(asked, files=record["files"])
    rules = {kind: _checkpoint(folder / name, checkpoint_every) for kind, name in RESULTS.items()}
    with stopping(wall_time) as stop:
        solutions = [_gone_on(rules[kind], begun[kind], asked, stop) for kind in RESULTS if kind in begun]
        solutions += [_solved(asked, part, rules[part.system.kind], stop) for part in _parts(asked)]
    _finish(folder, solutions)


@app.command
def compare(folder: Path, /) -> None:
    """Print the table of a finished run: energies, order parameters and distances of density and tokens."""
    solutions = _stored(folder)
    if len(solutions) < 2:
        raise ValueError(f"{folder} holds one run, wanted {' and '.join(RESULTS.values())}")
    table = compare_runs(*solutions)
    table.write_csv(folder / "summary.csv")
    print(table)


@app.command
def info(path: Path, /) -> None:
    """Say what a mesh file, a results file or the folder of a run holds."""
    if path.is_dir():
        print("\n\n".join(solution.summary() for solution in _stored(path)))
    elif path.suffix == ".vtkhdf":
        print(load(path).summary())
    else:
        mesh = read_mesh(path)
        print(f"{mesh.name}: {mesh.n_cells} cells, {mesh.n_faces} faces on S^{mesh.dimension - 1}")
        print(f"spacing {mesh.spacing:.5g}, area ratio {mesh.area_ratio:.4g}, {'' if mesh.is_orthogonal else 'not '}orthogonal")
        print("\n".join(f"repaired: {repair}" for repair in mesh.repairs), end="\n" if mesh.repairs else "")


@app.command
def export(folder: Path, /, *, float32: bool = False) -> None:
    """Write the .pvd series of a finished run again.

    Parameters
    ----------
    folder: the folder of the run.
    float32: single precision, half the size.
    """
    for path in write_vtk(folder, *_stored(folder), float32=float32):
        print(path)


@app.command
def stages(folder: Path, /) -> None:
    """Print the metastable stages of a finished run and draw them over its energy (stages.png)."""
    solutions = _stored(folder)
    for solution in solutions:
        print(f"{solution.kind}:\n       t start         t end  clusters  energy (log)  masses")
        for stage in find_stages(solution):
            masses = " ".join(f"{mass:.4f}" for mass in stage.masses)
            print(f"{stage.t_start:14.6g}{stage.t_end:14.6g}{stage.clusters:10d}{stage.log_energy:14.6f}  {masses}")
    print(staircase(folder / "stages.png", *solutions))


@app.command
def study(case: Path, /, *, out: Path, workers: Whole | None = None, scheduler: str | None = None) -> None:
    """Run a study of n -> infinity, or what is left of it: study.csv, study.png and the study as it was run, study.json.

    Parameters
    ----------
    case: the TOML file (or the study.json of an earlier study).
    out: folder for the table, the picture and the finished runs, which are never run again.
    workers: processes, by default one for each processor.
    scheduler: address of a Dask scheduler whose workers run it instead.
    """
    print(run_study(case, out, workers=workers, scheduler=scheduler, progress=True))


@app.command
def film(folder: Path, /, output: Output | None = None, *, fps: float = 15, frames: Whole | None = None) -> None:
    """Make a film of a finished run, the tokens over the density.

    Parameters
    ----------
    folder: the folder of the run.
    output: a name that ends in .gif (default film.gif in that folder) or .mp4.
    fps: frames a second.
    frames: how many outputs are shown, by default all.
    """
    print(make_film(folder / "film.gif" if output is None else output, *_stored(folder), fps=fps, frames=frames))


@app.command
def plot(folder: Path, /, output: Output | None = None) -> None:
    """Draw overview.png of a finished run again."""
    target = folder / "overview.png" if output is None else output
    overview(target, *_stored(folder))
    print(target)


@mesh_app.command(name="circle")
def mesh_circle(*, n: Whole, output: Output) -> None:
    """n equal arcs of the circle."""
    _write(output, circle(n))


@mesh_app.command(name="icosahedral")
def mesh_icosahedral(*, level: Whole, cells: str = "voronoi", output: Output) -> None:
    """Icosahedral Voronoi cells (10 * 4^level + 2) or triangles (20 * 4^level)."""
    _write(output, icosahedral(level, cells))


@mesh_app.command(name="cubed-sphere")
def mesh_cubed_sphere(*, n: Whole, output: Output) -> None:
    """6 n^2 quadrilaterals of the equiangular cubed sphere."""
    _write(output, cubed_sphere(n))


@mesh_app.command(name="voronoi")
def mesh_voronoi(*, points: Path, lloyd_steps: Whole = 0, output: Output) -> None:
    """Voronoi cells of the points in a .npy or .csv file."""
    _write(output, voronoi(read_tokens(points).points, lloyd_steps))


def main(arguments: Sequence[str] | None = None) -> None:
    """Entry point of `meanfield-pde`; arguments default to those of the process. Raises SystemExit with the exit code."""
    with warnings.catch_warnings():
        warnings.simplefilter("always", PinnedWarning)
        warnings.showwarning = lambda message, *_: print(f"meanfield-pde: {message}", file=sys.stderr)
        sys.exit(_exit_code(lambda: app(arguments, exit_on_error=False, print_error=False)))


def _exit_code(command: Callable[[], object]) -> int:
    try:
        command()
    except StoppedError as stopped:
        return _complain(stopped, stopped.code)
    except SolveError as error:
        return _complain(error, FAILED)
    except (ValueError, OverflowError, OSError, CycloptsError) as error:
        return _complain(error, BAD_INPUT)
    except KeyboardInterrupt:
        return _complain("interrupted", INTERRUPTED)
    return DONE


def _complain(error: object, code: int) -> int:
    print(f"meanfield-pde: {' '.join(str(error).split())}", file=sys.stderr)
    return code


def _parts(case: Case) -> list[Run]:
    return [part for part in (case.limit, case.tokens) if part is not None]


def _solved(case: Case, part: Run, rule: Checkpoint, stop: Stop, old: Sequence[Path] = ()) -> Solution:
    """The solution of a part. old: files of an earlier run, which go once this one has taken the place of the first of them."""

    def forget(t: float, measure: Measure) -> None:
        while forgotten:
            forgotten.pop().unlink(missing_ok=True)

    forgotten, callbacks = list(old), [forget, *case.callbacks, stop]
    record = {"case": case.source, "case folder": str(case.folder), "files": case.files}
    options: dict[str, Any] = {"save_at": case.times, "stepper": part.stepper, "callbacks": callbacks, "checkpoint": rule, "record": record}
    return _saved(rule, stop, lambda: solve(part.system, part.start, case.t_end, progress=True, **options))


def _gone_on(rule: Checkpoint, begun: Solution, case: Case, stop: Stop) -> Solution:
    """The solution of a part that is over or was stopped."""
    if begun.status == RUNNING:
        return _saved(rule, stop, partial(resume_run, rule.path, callbacks=[*case.callbacks, stop], progress=True))
    if begun.status.startswith("failed"):
        raise ValueError(f"{rule.path} holds a run that {begun.status}, wanted one that was stopped")
    return begun


def _saved(rule: Checkpoint, stop: Stop, run: Callable[[], Solution]) -> Solution:
    """The solution of a run, which its rule has kept; one that ended early by the case's own wish is done."""
    solution = run()
    if stop.code is not None:
        raise StoppedError(
            f"stopped at t = {solution.times[-1]:.6g} ({stop.reason}); go on with: meanfield-pde resume {rule.path.parent}", stop.code
        )
    if solution.status != "done":
        save(rule.path, solution)
        rule.previous.unlink(missing_ok=True)
    print(solution.summary(), end="\n\n")
    return solution


def _finish(out: Path, solutions: list[Solution]) -> None:
    """What is made of the results."""
    write_vtk(out, *solutions)
    overview(out / "overview.png", *solutions)
    if len(solutions) == 2:
        table = compare_runs(*solutions)
        table.write_csv(out / "summary.csv")
        print(table)


def _checkpoint(path: Path, every: str) -> Checkpoint:
    """The rule in words: "60s", "100steps" or "0.5"."""
    for ending, name, read in (("steps", "every_steps", int), ("s", "every_seconds", float), ("", "every_time", float)):
        if every.endswith(ending):
            try:
                return Checkpoint(path, **{name: read(every.removesuffix(ending))})  # type: ignore[arg-type]
            except ValueError:
                break
    raise ValueError(f"checkpoint_every is {every!r}, wanted seconds such as '60s', steps such as '100steps' or model time such as '0.5'")


def _begun(folder: Path, case: Path | None) -> tuple[dict[str, Solution], dict[str, Any]]:
    """The parts of a run that have begun, by kind, and the record of how. Raises ValueError, listing the differences, if the run's case is
    not the one given."""
    stored = {solution.kind: solution for solution in _stored(folder, unfinished=True)}
    record = next(iter(stored.values())).record
    if not {"case", "case folder", "files"} <= set(record):
        raise ValueError(f"{folder} holds no run of a case, wanted one made by meanfield-pde run")
    if case is not None:
        given, made = read_case(case).source, record["case"]
        names = [name for name in sorted({*given, *made}) if given.get(name) != made.get(name)]
        if names:
            differences = "; ".join(f"{name}: {made.get(name)} in the run, {given.get(name)} in {case}" for name in names)
            raise ValueError(f"{case} is not the case of {folder}: {differences}")
    return stored, record


def _stored(folder: Path, unfinished: bool = False) -> list[Solution]:
    """The runs in a folder; unfinished: from the checkpoint before the last, too, if that is all there is."""
    if not folder.is_dir():
        raise FileNotFoundError(f"no folder {folder}, wanted the folder of a run")
    found = {}
    for kind, name in RESULTS.items():
        path = newest(folder / name) if unfinished else folder / name
        if path.exists():
            found[path] = load(path)
            if found[path].kind != kind:
                raise ValueError(f"{path} holds a run of kind {found[path].kind}, wanted {kind}")
    if not found:
        raise ValueError(f"{folder} holds no run, wanted {' or '.join(RESULTS.values())}")
    cases = [(solution.record.get("case"), solution.record.get("files")) for solution in found.values()]
    if cases[0] != cases[-1]:
        raise ValueError(f"{' and '.join(map(str, found))} are runs of different cases, wanted one case")
    return list(found.values())


def _write(output: Path, mesh: SphereMesh) -> None:
    write_mesh(output, mesh)
    print(f"{output}: {mesh.n_cells} cells, {mesh.n_faces} faces")
