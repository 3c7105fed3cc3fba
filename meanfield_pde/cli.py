"""The command line: reads a case, builds the objects a script would build, shows progress, writes files.

Files are written first, and what is printed is printed last: a reader who leaves early (`| head -1`) misses no file.

Exit codes: 0 done (or stopped by --wall-time), 2 bad input, 3 the solve failed (what was reached is saved), 130 interrupted, 141 nobody
reads what is printed, 143 terminated. Errors are one line on stderr.
"""

import json
import os
import sys
import warnings
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import Annotated, TextIO

from cyclopts import App, CycloptsError, Parameter

from meanfield_pde.cases.case import read_case
from meanfield_pde.cases.changes import key_values
from meanfield_pde.cases.mesh_commands import Whole, mesh_app
from meanfield_pde.cases.preview import preview, sizes
from meanfield_pde.cases.runs import (
    CHECKPOINT_EVERY,
    RESULTS,
    Plan,
    owning,
    plan_resume,
    plan_run,
    solve_parts,
    stored_runs,
    write_products,
)
from meanfield_pde.cases.schema import case_schema
from meanfield_pde.cases.stopping import StoppedError, stopping
from meanfield_pde.diagnostics.comparison import compare as compare_runs
from meanfield_pde.diagnostics.stages import stages as find_stages
from meanfield_pde.diagnostics.stages import why_no_stages
from meanfield_pde.files.meshes import read_mesh
from meanfield_pde.files.results import load
from meanfield_pde.files.series import write_vtk
from meanfield_pde.pictures.films import film as make_film
from meanfield_pde.pictures.overview import overview
from meanfield_pde.pictures.staircase import staircase
from meanfield_pde.progress import line_teller
from meanfield_pde.recorder import PinnedWarning
from meanfield_pde.studies.study import study as run_study
from meanfield_pde.systems.system import SolveError

DONE, BAD_INPUT, FAILED, INTERRUPTED, CLOSED_PIPE = 0, 2, 3, 130, 141


Often = Annotated[str, Parameter(allow_leading_hyphen=True)]
"""So that "-5s" is told to be no interval, not taken for an option."""
Duration = Often
Flag = Annotated[bool, Parameter(negative="")]
Verbose = Annotated[bool, Parameter(name=["--verbose", "-v"], negative="")]
Change = Annotated[str, Parameter(allow_leading_hyphen=True)]
Folder = Annotated[Path, Parameter(help="the folder of the run.")]
Out = Annotated[Path, Parameter(name=["--out", "-o", "--output"])]
Picture = Annotated[Path, Parameter(name=["--out", "-o", "--output"], help="the picture, by default overview.png in that folder.")]

app = App(
    name="meanfield-pde",
    help="The mean-field limit of self-attention: densities and tokens on the sphere.",
    help_format="markdown",
    suppress_keyboard_interrupt=False,
)
app.command(mesh_app)


@app.command
def run(
    case: Path,
    /,
    *changes: Change,
    out: Out | None = None,
    overwrite: bool = False,
    checkpoint_every: Often = CHECKPOINT_EVERY,
    wall_time: Duration | None = None,
    dry_run: Flag = False,
    quiet: Flag = False,
    verbose: Verbose = False,
) -> None:
    """Run a case: the density, the tokens, or both beside each other.

    The results files grow as the run goes, and `resume` takes it up where they end, whatever stopped it.

    Parameters
    ----------
    case
        the TOML file.
    changes
        keys of the case that take other values, as in "--attention.beta 9 --t-end 3".
    out
        folder for the results, the table (summary.csv), the picture (overview.png) and the series for ParaView (.pvd).
    overwrite
        replace the results of an earlier run in that folder.
    checkpoint_every
        how often the results so far are written: seconds ("60s", also "10min", "2h"), steps ("100steps") or model time ("0.5").
    wall_time
        time after which the run stops, to be resumed later: seconds, or "60s", "10min", "2h".
    dry_run
        say what would be run, its sizes, and how far a second of it comes; no file is written.
    quiet
        no progress and no summary: only errors and warnings are told.
    verbose
        what is run and its sizes first, and a line a second of how far it is.
    """
    asked = read_case(case, changes=key_values(changes))  # first: an option that is mistyped, --out too, is told as an unknown key
    if out is None:
        raise ValueError("--out is missing, wanted a folder for the results")
    plan = plan_run(asked, out, checkpoint_every)
    if plan.earlier and not overwrite:
        names = " and ".join(path.name for path in plan.earlier)
        raise ValueError(f"{out} already holds {names}; give another --out or --overwrite, or resume it")
    if dry_run:
        print(preview(plan))
    else:
        _carry_out(plan, wall_time, quiet, verbose)


@app.command
def resume(
    folder: Folder,
    /,
    *,
    case: Path | None = None,
    checkpoint_every: Often = CHECKPOINT_EVERY,
    wall_time: Duration | None = None,
    quiet: Flag = False,
    verbose: Verbose = False,
) -> None:
    """Go on with a run that was stopped, from its newest whole checkpoint.

    Parameters
    ----------
    case
        refuse to go on if the run was not made from this case.
    checkpoint_every
        how often tokens that had not begun yet are written; what has begun keeps its own rule.
    wall_time
        time after which the run stops again: seconds, or "60s", "10min", "2h".
    quiet
        no progress and no summary: only errors and warnings are told.
    verbose
        what is run and its sizes first, and a line a second of how far it is.
    """
    _carry_out(plan_resume(folder, case, checkpoint_every), wall_time, quiet, verbose)


@app.command
def compare(folder: Folder, /) -> None:
    """Print the table of a finished run: energies, order parameters and distances of density and tokens."""
    solutions = stored_runs(folder)
    if len(solutions) < 2:
        raise ValueError(f"{folder} holds one run, wanted {' and '.join(RESULTS.values())}")
    table = compare_runs(*solutions)
    try:
        table.write_csv(folder / "summary.csv")
    finally:  # the folder may be read-only
        print(table)


@app.command
def info(path: Annotated[Path, Parameter(help="the file or folder.")], /) -> None:
    """Say what a mesh file, a results file or the folder of a run holds."""
    if path.is_dir():
        print("\n\n".join(solution.summary() for solution in stored_runs(path)))
    elif path.suffix == ".vtkhdf":
        print(load(path).summary())
    else:
        mesh = read_mesh(path)
        print(f"{mesh.name}: {mesh.n_cells} cells, {mesh.n_faces} faces on S^{mesh.dimension - 1}")
        print(f"spacing {mesh.spacing:.5g}, area ratio {mesh.area_ratio:.4g}, {'' if mesh.is_orthogonal else 'not '}orthogonal")
        print("\n".join(f"repaired: {repair}" for repair in mesh.repairs), end="\n" if mesh.repairs else "")


@app.command
def export(folder: Folder, /, *, float32: bool = False) -> None:
    """Write the .pvd series of a finished run again.

    Parameters
    ----------
    float32
        single precision, half the size.
    """
    print(*write_vtk(folder, *stored_runs(folder), float32=float32), sep="\n")


@app.command
def stages(folder: Folder, /) -> None:
    """Print the metastable stages of a finished run and draw them over its energy (stages.png)."""
    solutions, lines = stored_runs(folder), list[object]()
    for solution in solutions:
        found = find_stages(solution)
        header = "\n       t start         t end  clusters  energy (log)  masses" if found else f" {why_no_stages(solution)}"
        lines.append(f"{solution.kind}:{header}")
        for stage in found:
            masses = " ".join(f"{mass:.4f}" for mass in stage.masses)
            lines.append(f"{stage.t_start:14.6g}{stage.t_end:14.6g}{stage.clusters:10d}{stage.log_energy:14.6f}  {masses}")
    try:
        lines.append(staircase(folder / "stages.png", *solutions))
    finally:  # the folder may be read-only
        print(*lines, sep="\n")


@app.command
def study(case: Path, /, *, out: Out, workers: Whole | None = None, scheduler: str | None = None) -> None:
    """Run a study of n -> infinity, or what is left of it: study.csv, study.png and the study as it was run, study.json.

    Parameters
    ----------
    case
        the TOML file (or the study.json of an earlier study).
    out
        folder for the table, the picture and the finished runs, which are never run again.
    workers
        processes, by default one for each processor.
    scheduler
        address of a Dask scheduler whose workers run it instead.
    """
    print(run_study(case, out, workers=workers, scheduler=scheduler, progress=True))


@app.command
def film(folder: Folder, /, out: Out | None = None, *, fps: float = 15, frames: Whole | None = None) -> None:
    """Make a film of a finished run, the tokens over the density.

    Parameters
    ----------
    out
        a name that ends in .gif (default film.gif in that folder) or .mp4.
    fps
        frames a second.
    frames
        how many outputs are shown, by default all.
    """
    print(make_film(out or folder / "film.gif", *stored_runs(folder), fps=fps, frames=frames))


@app.command
def schema() -> None:
    """Print the JSON schema of cases, which editors use to complete and check them."""
    print(json.dumps(case_schema(), indent=2))


@app.command
def plot(folder: Folder, /, out: Picture | None = None) -> None:
    """Draw overview.png of a finished run again."""
    print(overview(out or folder / "overview.png", *stored_runs(folder)))


def main(arguments: Sequence[str] | None = None) -> None:
    """Entry point of `meanfield-pde`; arguments default to those of the process. Raises SystemExit with the exit code."""
    with warnings.catch_warnings():
        warnings.simplefilter("always", PinnedWarning)
        warnings.showwarning = lambda message, *_: _tell(message)
        code = _exit_code(arguments)
        try:
            print(end="", flush=True)
        except OSError as error:
            _to_nowhere(sys.stdout)
            code = code or (CLOSED_PIPE if isinstance(error, BrokenPipeError) else _complain(error, BAD_INPUT))
        sys.exit(code)


def _exit_code(arguments: Sequence[str] | None) -> int:
    try:
        app(arguments, exit_on_error=False, print_error=False)
    except SystemExit as ended:  # so cyclopts ends what went well
        return int(ended.code or DONE)
    except BrokenPipeError:
        return CLOSED_PIPE
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
    _tell(error)
    return code


def _tell(what: object) -> None:
    """One line on stderr, where a closed pipe must not end a run."""
    try:
        print(f"meanfield-pde: {' '.join(str(what).split())}", file=sys.stderr)
    except BrokenPipeError:
        _to_nowhere(sys.stderr)


def _to_nowhere(stream: TextIO) -> None:
    """Lets go what a closed pipe did not take, so that Python does not try again as it ends."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), stream.fileno())


def _carry_out(plan: Plan, wall_time: str | None, quiet: bool, verbose: bool) -> None:
    """Solves what the plan has left to do, until a signal or the wall time stops it, writes the rest, and prints what came out."""
    solutions, lines = list(plan.over), list[object]()
    if quiet and verbose:
        raise ValueError("--quiet and --verbose are both given, wanted one")
    if verbose:
        with suppress(BrokenPipeError):
            print(sizes(plan), file=sys.stderr, flush=True)
    try:
        with stopping(wall_time) as stop, owning(plan.folder):
            for solution in solve_parts(plan, stop, progress=line_teller("run", 1.0) if verbose else not quiet):
                if stop.code is not None:
                    how = f"stopped at t = {solution.times[-1]:.6g} ({stop.reason})"
                    raise StoppedError(f"{how}; go on with: meanfield-pde resume {plan.folder}", stop.code)
                solutions.append(solution)
                lines.append(f"{solution.summary()}\n")
            written, table = write_products(plan.folder, solutions)
            lines += [table] if table is not None else []
            names = [RESULTS[solution.kind] for solution in solutions] + [path.name for path in written]
            lines.append(f"written to {plan.folder}: {', '.join(names)}; open the .pvd in ParaView, or run its view.py there")
    finally:
        if not quiet:
            print(*lines, sep="\n", end="\n" if lines else "")
