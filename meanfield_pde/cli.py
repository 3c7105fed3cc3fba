"""The command line: reads a case, builds the objects a script would build, shows progress, writes files.

Exit codes: 0 done, 2 bad input, 3 the solve failed (what was reached is saved), 130 interrupted. Errors are one line on stderr.
"""

import sys
import warnings
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Annotated

from cyclopts import App, CycloptsError, Parameter

from meanfield_pde.case import Case, Run, read_case
from meanfield_pde.comparison import compare as compare_runs
from meanfield_pde.export.pictures import overview, staircase
from meanfield_pde.export.vtk import write_vtk
from meanfield_pde.mesh.circle import circle
from meanfield_pde.mesh.cubed_sphere import cubed_sphere
from meanfield_pde.mesh.files import read_mesh, write_mesh
from meanfield_pde.mesh.icosahedral import icosahedral
from meanfield_pde.mesh.record import SphereMesh
from meanfield_pde.mesh.voronoi import voronoi
from meanfield_pde.results import load, save
from meanfield_pde.solution import Solution
from meanfield_pde.solve import PinnedWarning, solve
from meanfield_pde.stages import stages as find_stages
from meanfield_pde.system import SolveError
from meanfield_pde.token_files import read_tokens

DONE, BAD_INPUT, FAILED, INTERRUPTED = 0, 2, 3, 130
RESULTS = {"density": "limit.npz", "tokens": "tokens.npz"}

Output = Annotated[Path, Parameter(name=["--output", "-o"])]

app = App(name="meanfield-pde", help="The mean-field limit of self-attention: densities and tokens on the sphere.", help_format="markdown")
mesh_app = App(name="mesh", help="Make a mesh and write it as .vtu.")
app.command(mesh_app)


@app.command
def run(case: Path, *, out: Path, overwrite: bool = False) -> None:
    """Run a case: the density, the tokens, or both beside each other.

    Parameters
    ----------
    case: the TOML file.
    out: folder for the results, the table (summary.csv), the picture (overview.png) and the series for ParaView (.pvd).
    overwrite: replace the results of an earlier run in that folder.
    """
    asked = read_case(case)
    earlier = [name for name in RESULTS.values() if (out / name).exists()]
    if earlier and not overwrite:
        raise ValueError(f"{out} already holds {' and '.join(earlier)}; give another --out or --overwrite")
    out.mkdir(parents=True, exist_ok=True)
    solutions = []
    for part in (asked.limit, asked.tokens):
        if part is not None:
            solution = _solved(asked, part, out)
            print(solution.summary(), end="\n\n")
            solutions.append(solution)
    write_vtk(out, *solutions)
    overview(out / "overview.png", *solutions)
    if len(solutions) == 2:
        table = compare_runs(*solutions)
        table.write_csv(out / "summary.csv")
        print(table)


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
    elif path.suffix == ".npz":
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
def plot(folder: Path, /, output: Output | None = None) -> None:
    """Draw overview.png of a finished run again."""
    target = folder / "overview.png" if output is None else output
    overview(target, *_stored(folder))
    print(target)


@mesh_app.command(name="circle")
def mesh_circle(*, n: int, output: Output) -> None:
    """n equal arcs of the circle."""
    _write(output, circle(n))


@mesh_app.command(name="icosahedral")
def mesh_icosahedral(*, level: int, cells: str = "voronoi", output: Output) -> None:
    """Icosahedral Voronoi cells (10 * 4^level + 2) or triangles (20 * 4^level)."""
    _write(output, icosahedral(level, cells))


@mesh_app.command(name="cubed-sphere")
def mesh_cubed_sphere(*, n: int, output: Output) -> None:
    """6 n^2 quadrilaterals of the equiangular cubed sphere."""
    _write(output, cubed_sphere(n))


@mesh_app.command(name="voronoi")
def mesh_voronoi(*, points: Path, lloyd_steps: int = 0, output: Output) -> None:
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


def _solved(case: Case, part: Run, out: Path) -> Solution:
    """The run's solution, saved; a failed one is saved as far as it went."""
    try:
        solution = solve(
            part.system, part.start, case.t_end, save_at=case.times, stepper=part.stepper, callbacks=case.callbacks, progress=True
        )
    except SolveError as error:
        if error.solution is not None and len(error.solution.times):
            save(out / RESULTS[part.system.kind], _with_case(error.solution, case))
        raise
    solution = _with_case(solution, case)
    save(out / RESULTS[part.system.kind], solution)
    return solution


def _with_case(solution: Solution, case: Case) -> Solution:
    return replace(solution, record=solution.record | {"case": case.source})


def _stored(folder: Path) -> list[Solution]:
    if not folder.is_dir():
        raise FileNotFoundError(f"no folder {folder}, wanted the folder of a run")
    solutions = [load(folder / name) for name in RESULTS.values() if (folder / name).exists()]
    if not solutions:
        raise ValueError(f"{folder} holds no run, wanted {' or '.join(RESULTS.values())}")
    return solutions


def _write(output: Path, mesh: SphereMesh) -> None:
    write_mesh(output, mesh)
    print(f"{output}: {mesh.n_cells} cells, {mesh.n_faces} faces")
