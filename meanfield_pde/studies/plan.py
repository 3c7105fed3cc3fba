"""A study: one file that says which limits and which ensembles of tokens to run, checked as a whole before anything is.

| table | what |
|---|---|
| kind, seed, times | "convergence", "phase", "clusters" or "inner_products"; one seed for everything; increasing times |
| [attention], [start], [mesh], [solver] | as in a case; without [mesh] there is no limit |
| [coarse_mesh] | convergence: the mesh that tells the limit's own error; by default half as fine as [mesh] |
| [particles] | counts, runs, sampling, bandwidth, method, rtol; without it there are no tokens |
| [sweep] | dotted keys and their values: one parameter set for each combination |

The other keys are the kind's own options. times and the values of a sweep are lists or {low, high, count}, evenly spaced.

Data in: a file or nested plain values. Data out: a `Study`, whose jobs are plain values too.
"""

import copy
import inspect
import json
from collections.abc import Iterable, Iterator, Mapping, MutableMapping
from dataclasses import asdict, dataclass, replace
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np

from meanfield_pde import inputs
from meanfield_pde.cases.case import check_tables, file_digest, folder_of, make_law, make_mesh, make_model, make_system, read_tables
from meanfield_pde.kinds import construct, own_classes
from meanfield_pde.laws.law import Law
from meanfield_pde.solve import output_times
from meanfield_pde.studies.convergence import Convergence
from meanfield_pde.studies.first_clusters import FirstClusters
from meanfield_pde.studies.inner_products import InnerProducts
from meanfield_pde.studies.jobs import Job, Kind, Particles
from meanfield_pde.studies.phase import AXIS, Phase

KINDS: dict[str, type[Kind]] = {kind.name: kind for kind in (Convergence, Phase, FirstClusters, InnerProducts)}
TABLES = ("mesh", "coarse_mesh", "attention", "start", "solver")
FILES = ("mesh.file", "coarse_mesh.file")
VALUES = ("kind", "seed", "times", "made_with")
LARGEST_BLOCK, BLOCK_TOKENS = 64, 16_384
"""Runs of a job: at most so many, and so many tokens together, whatever the number of workers."""


@dataclass(frozen=True)
class Parameters:
    """One parameter set. values: of the sweep's keys. tables: with those values in them."""

    values: Mapping[str, Any]
    tables: Mapping[str, Any]


@dataclass(frozen=True, repr=False)
class Study:
    """What a study file asks for; sets: its parameter sets, at least one."""

    kind: Kind
    seed: int
    times: tuple[float, ...]
    sets: tuple[Parameters, ...]
    particles: Particles | None
    tables: Mapping[str, Any]
    sweep: Mapping[str, tuple[Any, ...]]
    kinds: tuple[type, ...] = ()

    def __repr__(self) -> str:
        when = f"{len(self.times)} times, t = {self.times[0]:g} to {self.times[-1]:g}"
        tokens = f"{self.runs} runs of {', '.join(map(str, self.counts))} tokens" if self.counts else "no tokens"
        swept = "".join(f"; {name}: {len(values)} values" for name, values in self.sweep.items())
        return f"<Study of kind {self.kind.name}: {when}, {'a limit' if self.has_limit else 'no limit'}, {tokens}{swept}>"

    @property
    def has_limit(self) -> bool:
        return "mesh" in self.tables

    @property
    def counts(self) -> tuple[int, ...]:
        return self.particles.counts if self.particles is not None else ()

    @property
    def runs(self) -> int:
        return self.particles.runs if self.particles is not None else 0

    def job(self, parameters: Parameters) -> Job:
        """The limit's job of one set."""
        options = {name: value for name, value in _options(self.kind).items() if name not in self.kind.reported}
        return Job("limit", self.kind.name, options, parameters.tables, self.times, seed=0, kinds=self.kinds)

    def limit_jobs(self, parameters: Parameters) -> list[Job]:
        """The jobs of the limit of one set; none where each run of tokens has its own."""
        if not self.has_limit or (self.particles is not None and self.particles.sampling in ("binned", "smoothed")):
            return []
        job = self.job(parameters)
        if not self.kind.limit_per_run:
            return [job]
        return [replace(job, seed=self.seed, first=run, last=run + 1) for run in range(self.runs)]

    def token_jobs(self, parameters: Parameters) -> list[Job]:
        """The jobs of all runs of all numbers of tokens of one set, in blocks of fixed size."""
        tables = parameters.tables
        if not self.kind.limit_comes_first:
            tables = {name: tables[name] for name in ("attention", "start") if name in tables}
        job = replace(self.job(parameters), what="tokens", tables=tables, seed=self.seed, particles=self.particles)
        return [
            replace(job, count=count, first=first, last=min(first + block, self.runs))
            for count in self.counts
            for block in [max(1, min(LARGEST_BLOCK, BLOCK_TOKENS // count))]
            for first in range(0, self.runs, block)
        ]

    def resolved(self) -> dict[str, Any]:
        """The whole study as plain values, defaults included; `make_study` takes them."""
        plain: dict[str, Any] = {"kind": self.kind.name, "seed": self.seed, "times": list(self.times)} | _options(self.kind)
        plain |= {name: table for name, table in self.tables.items() if name in TABLES}
        if self.particles is not None:
            plain["particles"] = {name: value for name, value in asdict(self.particles).items() if value is not None}
        return plain | ({"sweep": {name: list(values) for name, values in self.sweep.items()}} if self.sweep else {})


def read_study(path: str | Path, kinds: Iterable[type] = ()) -> Study:
    """The study in a .toml or .json file; file names in it are relative to its folder.

    Raises FileNotFoundError, or ValueError naming the key.
    """
    file = inputs.file_path("path", path)
    languages = {".json": (json.loads, "JSON")}
    return make_study(read_tables("study", file, *languages.get(file.suffix, ())), folder_of(file), kinds)


def make_study(tables: Mapping[str, Any], folder: Path = Path(), kinds: Iterable[type] = ()) -> Study:
    """The study in nested plain values. Raises ValueError naming the key; each parameter set is built once to see that it can be."""
    kind_of = KINDS[inputs.choice("kind", tables.get("kind", "convergence"), KINDS)]
    options = inspect.signature(kind_of).parameters
    check_tables("study", tables, (*VALUES, *options), (*TABLES, "particles", "sweep"), needed=("times", "start"))
    kind: Kind = construct("study", kind_of, {key: value for key, value in tables.items() if key in options})
    seed = inputs.integer("seed", tables.get("seed", 0), low=0)
    asked = inputs.array("times", _values("times", tables["times"]), ("n_t",))
    times = tuple(output_times(inputs.number("times[-1]", asked[-1], above=0.0), None, asked, "times").tolist())
    particles = construct("particles", Particles, tables["particles"]) if "particles" in tables else None
    plain = {name: copy.deepcopy(dict(tables[name])) for name in TABLES if name in tables}
    compares = isinstance(kind, Convergence) and "mesh" in plain
    if compares and "coarse_mesh" not in plain:
        plain["coarse_mesh"] = _half_as_fine(plain["mesh"])
    if "coarse_mesh" in plain and not compares:
        raise ValueError("study: coarse_mesh is given, wanted it only with [mesh] in a study of kind 'convergence'")
    _with_files(plain, folder)
    sweep = {name: tuple(_values(f"sweep.{name!r}", values)) for name, values in tables.get("sweep", {}).items()}
    for name in sweep.keys() & FILES:
        sweep[name] = tuple(str((folder / str(file)).resolve()) for file in sweep[name])
    study = Study(kind, seed, times, tuple(_sets(plain, sweep)), particles, plain, sweep, own_classes(kinds))
    _check(study)
    return study


def _options(kind: Kind) -> dict[str, Any]:
    return {name: list(value) if isinstance(value, tuple) else value for name, value in vars(kind).items()}


def _values(name: str, value: Any) -> list[Any]:
    """A list, or count numbers from low to high."""
    if isinstance(value, Mapping):
        inputs.known_keys(name, value, ("low", "high", "count"))
        if len(value) < 3:
            raise ValueError(f"{name} is {dict(value)}, wanted a list or low, high and count")
        low, high = (inputs.number(f"{name} {end}", value[end]) for end in ("low", "high"))
        return np.linspace(low, high, inputs.integer(f"{name} count", value["count"], low=2)).tolist()
    if not isinstance(value, (list, tuple)) or not len(value):
        raise ValueError(f"{name} is {value!r}, wanted a list of at least one value or a table with low, high and count")
    return list(value)


def _with_files(tables: dict[str, Any], folder: Path = Path()) -> None:
    """Makes names of mesh files absolute, and adds the checksums of the files."""
    for name in ("mesh", "coarse_mesh"):
        if "file" in tables.get(name, {}):
            file = (folder / str(tables[name]["file"])).resolve()
            make_mesh({"file": str(file)})
            tables[name]["file"] = str(file)
            tables[f"{name} digest"] = {"sha256": file_digest(file)}


def _half_as_fine(mesh: Mapping[str, Any]) -> dict[str, Any]:
    if "file" in mesh:
        raise ValueError("study: coarse_mesh is missing, wanted a mesh half as fine as the file's: it tells the limit's own error")
    coarse = dict(mesh)
    if "level" in coarse:
        coarse["level"] = inputs.integer("mesh.level", coarse["level"], low=1) - 1
    if "n" in coarse:
        coarse["n"] = inputs.integer("mesh.n", coarse["n"], low=2) // 2
    return coarse


def _sets(tables: Mapping[str, Any], sweep: Mapping[str, tuple[Any, ...]]) -> Iterator[Parameters]:
    """The tables of each combination of values; a mesh that is swept takes a coarse mesh that is half as fine with it."""
    follows = "file" not in tables.get("mesh", {}) and "coarse_mesh" in tables and tables["coarse_mesh"] == _half_as_fine(tables["mesh"])
    for values in product(*sweep.values()):
        changed = copy.deepcopy(dict(tables))
        for name, value in zip(sweep, values, strict=True):
            *path, last = name.split(".")
            if not path or path[0] not in TABLES:
                raise ValueError(f"sweep: unknown key {name!r}; wanted table.key with a table of {', '.join(TABLES)}")
            table = changed
            for depth, part in enumerate(path, 1):
                table = table.setdefault(part, {})
                if not isinstance(table, MutableMapping):
                    where = ".".join(path[:depth])
                    raise ValueError(f"sweep: {name!r} goes through {where}, which is {inputs.shown(table)}, wanted a table")
            table[last] = value
            if path[0] == "mesh" and follows:
                changed["coarse_mesh"] = _half_as_fine(changed["mesh"])
        if sweep.keys() & FILES:
            _with_files(changed)
        yield Parameters(dict(zip(sweep, values, strict=True)), changed)


def _check(study: Study) -> None:
    """Builds what the jobs will build."""
    particles, kind = study.particles, study.kind
    if particles is None and not study.has_limit:
        raise ValueError("study: mesh and particles are both missing, wanted a limit, tokens or both")
    if isinstance(kind, Convergence) and (particles is None or not study.has_limit):
        raise ValueError(f"study: {'mesh' if particles else 'particles'} is missing, wanted both in a study of kind 'convergence'")
    if isinstance(kind, FirstClusters) and particles is None:
        raise ValueError("study: particles is missing, wanted it: it says how many runs there are")
    if isinstance(kind, Phase) and set(study.sweep) != {AXIS}:
        raise ValueError(f"study: a phase diagram sweeps over {sorted(study.sweep)}, wanted {AXIS!r} alone")
    if particles is not None and particles.sampling not in kind.samplings:
        wanted = " or ".join(map(repr, kind.samplings))
        raise ValueError(f"particles.sampling is {particles.sampling!r} in a study of kind {kind.name!r}, wanted {wanted}")
    dimensions: dict[str, int] = {}
    for parameters in study.sets:
        tables = parameters.tables
        model, law = make_model(tables.get("attention", {}), study.kinds), _law(kind, tables["start"])
        if model.dimension not in (None, law.dimension):
            raise ValueError(f"start lives in R^{law.dimension}, wanted R^{model.dimension} like the attention's matrices")
        if particles is not None and particles.sampling == "stratified" and law.dimension > 3:
            raise ValueError(f"particles.sampling is 'stratified' in R^{law.dimension}, wanted R^2 or R^3")
        solver = tables.get("solver", {})
        for name in [name for name in ("mesh", "coarse_mesh") if name in tables]:
            described = json.dumps([tables[name], solver], sort_keys=True)
            if described not in dimensions:
                dimensions[described] = make_system(tables[name], solver, model)[0].mesh.dimension
            if dimensions[described] != law.dimension:
                raise ValueError(f"start lives in R^{law.dimension}, wanted R^{dimensions[described]} like the {name}")


def _law(kind: Kind, start: Mapping[str, Any]) -> Law:
    if not isinstance(kind, FirstClusters):
        return make_law("start", start)
    if start.get("kind") != "perturbed_uniform" or "seed" in start:
        raise ValueError("start is not 'perturbed_uniform' or has a seed, wanted that kind without one: each run has noise of its own seed")
    law = make_law("start", dict(start) | {"seed": 0})
    if not getattr(law, "noise", 0.0):
        raise ValueError("start.noise is 0, wanted a positive number: runs differ by their noise")
    return law
