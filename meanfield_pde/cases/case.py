"""A case: one TOML file that says what to run. A key is a constructor argument, an unknown key is an error that names the known ones.

Data in: a TOML file. Data out: `Case`, whose parts are the same objects a script would build; nothing is run and no file is made here.
"""

import hashlib
from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from meanfield_pde import inputs
from meanfield_pde.cases.changes import change, toml
from meanfield_pde.diagnostics.stages import Metastable, metastable
from meanfield_pde.files.meshes import read_mesh
from meanfield_pde.files.tokens import read_tokens
from meanfield_pde.kinds import LAWS, MESHES, MODELS, chosen, construct, with_own
from meanfield_pde.laws.law import Law, Smoothed, sample
from meanfield_pde.laws.projection import bin_tokens, project
from meanfield_pde.measure import Measure
from meanfield_pde.mesh.record import SphereMesh
from meanfield_pde.models.velocity import VelocityModel, as_model
from meanfield_pde.solve import output_times
from meanfield_pde.sphere import FloatArray
from meanfield_pde.stepping.adaptive import Adaptive
from meanfield_pde.stepping.phased import resolve_stepper
from meanfield_pde.stepping.stepper import Stepper
from meanfield_pde.systems.density import MeanFieldPDE, State
from meanfield_pde.systems.particles import ParticleSystem

VALUES = ("t_end", "save_every", "save_at", "stop_speed")
TABLES = ("mesh", "attention", "start", "atoms", "particles", "solver")
NEEDED = ("t_end", "start")
SOLVER = ("order", "method", "atoms", "stepper", "cfl")
PARTICLES = ("count", "seed", "file", "weighted", "normalise", "method", "merge", "rtol", "atol")
OWN_TOKENS = ("kind", "file", "weighted", "normalise", "bandwidth")
"""Keys of the tables [solver] and [particles], and of a [start] of the kind "tokens"; those of the others are arguments of constructors."""


@dataclass(frozen=True)
class Run:
    """One system with its start and its method: arguments of `solve`."""

    system: MeanFieldPDE | ParticleSystem
    start: State | Measure
    stepper: Stepper


@dataclass(frozen=True)
class Case:
    """What a case file asks for. source: the file's tables as plain values. folder: what its file names are relative to. files: those that
    were read, with their SHA-256. times: output times (n_t,), the last one is the end of the run. callbacks: what ends a run early. limit,
    tokens: the density run and the particle run, None if not asked for."""

    source: dict[str, Any]
    folder: Path
    files: dict[str, str]
    t_end: float
    times: FloatArray
    callbacks: tuple[Metastable, ...]
    limit: Run | None
    tokens: Run | None


def read_case(path: str | Path, kinds: Iterable[type] = (), changes: Iterable[tuple[str, str]] = ()) -> Case:
    """The case in a TOML file; file names in it are relative to its folder, those in a pipe or /dev/stdin to the working directory.

    changes: keys and values that take the place of the file's, as in ("attention.beta", "9"); a value that is no TOML is a text.
    Raises FileNotFoundError, or ValueError naming the key.
    """
    file = inputs.file_path("case", path)
    tables = read_tables("case", file)
    for key, text in changes:
        change(tables, key, text)
    return make_case(tables, folder_of(file), kinds=kinds)


def folder_of(file: Path) -> Path:
    """What names in a case or study file are relative to: no file lies beside what comes through a pipe or from a device."""
    return file.parent if file.is_file() and file.parts[:2] != ("/", "dev") else Path()


def read_tables(what: str, file: Path, reads: Callable[[str], Any] = toml, language: str = "TOML") -> dict[str, Any]:
    """The tables of a case or study file. Raises FileNotFoundError, or ValueError if it is not of that language or holds no tables."""
    if not (file.is_file() or file.is_fifo()):
        raise FileNotFoundError(f"no {what} file {file}")
    try:
        tables = reads(inputs.decoded(file.read_bytes()))
    except (ValueError, RecursionError) as error:  # bad TOML or text, numbers too long, lists too deep
        raise ValueError(f"{file} is not {language}: {error}") from None
    if not isinstance(tables, dict):
        raise ValueError(f"{file} holds {inputs.shown(tables)}, wanted the tables of a {what}")
    return tables


def check_tables(what: str, given: Mapping[str, Any], values: Iterable[str], tables: Iterable[str], needed: Iterable[str]) -> None:
    """ValueError unless all keys are names of plain values or of tables, the tables are tables, and the needed keys are there."""
    inputs.known_keys(what, given, (*values, *tables))
    inputs.needed_keys(what, given, needed)
    for name in tables:
        if not isinstance(given.get(name, {}), Mapping):
            raise ValueError(f"{what}: {name} is {given[name]!r}, wanted a table [{name}]")


def make_case(tables: Mapping[str, Any], folder: Path = Path(), begun: Collection[str] = (), kinds: Iterable[type] = ()) -> Case:
    """The case in nested plain values, as `tomllib` gives them. begun: kinds of runs that go on from a file, which are not made here."""
    check_tables("case", tables, VALUES, TABLES, NEEDED)
    if "mesh" not in tables and "particles" not in tables:
        raise ValueError("case: mesh and particles are both missing, wanted a density, tokens or both")
    if "solver" in tables and "mesh" not in tables:
        raise ValueError("case: solver is given without mesh, wanted [solver] for a density; tokens have method, rtol, atol in [particles]")
    t_end = inputs.number("t_end", tables["t_end"], above=0.0)
    times = output_times(t_end, tables.get("save_every"), tables.get("save_at"))
    attention = make_model(tables.get("attention", {}), kinds)
    callbacks = (metastable(attention, tables["stop_speed"]),) if "stop_speed" in tables else ()
    parts = {kind: tables[name] for kind, name in (("density", "mesh"), ("tokens", "particles")) if name in tables and kind not in begun}
    case = Case(dict(tables), folder.resolve(), {}, t_end, times, callbacks, limit=None, tokens=None)
    if not parts:
        return case
    start = _start(tables["start"], folder)
    atoms = _atoms(tables["atoms"]) if "atoms" in tables else None
    limit = _limit(tables, attention, start, atoms, folder) if "density" in parts else None
    tokens = _tokens(parts["tokens"], attention, start, atoms, folder) if "tokens" in parts else None
    named = [table["file"] for table in (tables["start"], *parts.values()) if "file" in table]
    files = {str(name): file_digest(folder / str(name)) for name in named}
    return replace(case, files=files, limit=limit, tokens=tokens)


def file_digest(path: Path) -> str:
    """SHA-256 of a file's bytes."""
    return hashlib.sha256(path.read_bytes()).hexdigest()


def _atoms(table: Mapping[str, Any]) -> Measure:
    """Heavy tokens that start beside the law, which then has the rest of the mass."""
    inputs.needed_keys("atoms", table, ("points", "masses"))
    atoms: Measure = construct("atoms", Measure, table)
    if atoms.total > 1:
        raise ValueError(f"atoms: masses sum to {inputs.exactly(atoms.total)}, wanted at most 1: the law has the rest")
    return atoms


def _limit(tables: Mapping[str, Any], attention: VelocityModel, start: Law | Measure, atoms: Measure | None, folder: Path) -> Run:
    system, stepper = make_system(tables["mesh"], tables.get("solver", {}), attention, folder)
    averages = bin_tokens(system.mesh, start) if isinstance(start, Measure) else project(system.mesh, start)
    begin = State((1.0 if atoms is None else 1.0 - atoms.total) * averages, atoms)
    system.begin(begin)  # bad input is refused here, before any file is made
    return Run(system, begin, stepper)


def make_system(
    mesh: Mapping[str, Any], solver: Mapping[str, Any], attention: VelocityModel, folder: Path = Path()
) -> tuple[MeanFieldPDE, Stepper]:
    """The density's system and its method, from the tables [mesh] and [solver]."""
    inputs.known_keys("solver", solver, SOLVER)
    system = MeanFieldPDE(make_mesh(mesh, folder), attention, **{key: solver[key] for key in ("order", "method", "atoms") if key in solver})
    return system, resolve_stepper(solver.get("stepper"), solver.get("cfl"), system)


def _tokens(table: Mapping[str, Any], attention: VelocityModel, start: Law | Measure, atoms: Measure | None, folder: Path) -> Run:
    inputs.known_keys("particles", table, PARTICLES)
    system = ParticleSystem(attention, **{key: table[key] for key in ("method", "merge") if key in table})
    tolerances = {key: inputs.number(f"particles.{key}", table[key]) for key in ("rtol", "atol") if key in table}
    stepper = Adaptive(**tolerances) if tolerances else resolve_stepper(None, None, system)
    draw = {key: table[key] for key in ("count", "seed") if key in table}
    options = {key: table[key] for key in ("weighted", "normalise") if key in table}
    if isinstance(start, (Measure, Smoothed)):
        if given := [*draw, *options, *({"file"} & table.keys())]:
            raise ValueError(f"particles.{given[0]} is given beside start.kind = 'tokens', wanted none: those tokens are run")
        begun = system.begin(start.tokens if isinstance(start, Smoothed) else start).measure
    elif "file" in table:
        if draw:
            raise ValueError(f"particles.{next(iter(draw))} is given beside particles.file, wanted one: the tokens are drawn or read")
        begun = system.begin(read_tokens(folder / str(table["file"]), **options)).measure
        if begun.dimension != start.dimension:
            raise ValueError(f"particles.file: points lie in R^{begun.dimension}, the start in R^{start.dimension}")
    elif options:
        raise ValueError(f"particles.{next(iter(options))} is given without particles.file, wanted none: tokens are drawn")
    else:
        inputs.needed_keys("particles", draw, ("count", "seed"))
        begun = system.begin(sample(start, **draw)).measure
    if atoms is not None:
        if atoms.dimension != begun.dimension:
            raise ValueError(f"atoms: points lie in R^{atoms.dimension}, the start in R^{begun.dimension}")
        begun = system.begin(Measure.joined(Measure(begun.points, (1 - atoms.total) * begun.masses), atoms)).measure
    return Run(system, begun, stepper)


def _start(table: Mapping[str, Any], folder: Path) -> Law | Measure:
    """A law; or tokens of one's own, which are smoothed onto the mesh (`Smoothed`) or binned."""
    if table.get("kind") != "tokens":
        return make_law("start", table, others=("tokens",))
    inputs.known_keys("start", table, OWN_TOKENS)
    inputs.needed_keys("start", table, ("file",))
    options = {key: table[key] for key in ("weighted", "normalise") if key in table}
    measure = read_tokens(folder / str(table["file"]), **options)
    return Smoothed(measure, inputs.number("start.bandwidth", table["bandwidth"], above=0.0)) if "bandwidth" in table else measure


def make_model(table: Mapping[str, Any], kinds: Iterable[type] = ()) -> VelocityModel:
    """The velocity model of a table [attention]: softmax attention, or the kind it names. kinds: classes of one's own."""
    return as_model("attention", chosen("attention", table, with_own(MODELS, kinds), default="softmax"))


def make_law(where: str, table: Mapping[str, Any], others: tuple[str, ...] = ()) -> Law:
    """The law of a table [start] (or of a part of a mixture); others: kinds that the caller knows beside laws."""
    if isinstance(table, Mapping) and table.get("kind") == "mixture":
        parts = inputs.sequence(f"{where}.laws", table.get("laws", ()), "a list of laws")
        table = {**table, "laws": [make_law(f"{where}.laws[{i}]", part) for i, part in enumerate(parts)]}
    return chosen(where, table, {**LAWS, **dict.fromkeys(others, Law)})


def make_mesh(table: Mapping[str, Any], folder: Path = Path()) -> SphereMesh:
    """The mesh of a table [mesh]: a kind with its arguments, or a file."""
    if "file" in table:
        inputs.known_keys("mesh", table, ("file",))
        return read_mesh(folder / str(table["file"]))
    return chosen("mesh", table, MESHES)
