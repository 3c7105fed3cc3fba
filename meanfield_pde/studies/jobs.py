"""Jobs: the parts of a study that are computed, stored and resumed one by one, what a kind of study makes of them, and what all kinds run.

A job is plain values, so that it can be sent to another process or machine and named by its content. Run r of n tokens draws from
numpy's generator seeded with (seed, n, r): it depends neither on the order of execution, nor on the number of workers, nor on the
parameters, so that parameter sets are compared on the same draws.

Data in: a job. Data out: the density at the job's times, or measures of tokens at them.
"""

import hashlib
import json
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, replace
from importlib.metadata import version
from typing import Any, ClassVar

import numpy as np

from meanfield_pde import inputs
from meanfield_pde.cases.case import make_law, make_model, make_system
from meanfield_pde.diagnostics.stages import SETTLED, settled_clusters
from meanfield_pde.files.tables import Table
from meanfield_pde.laws.law import Law
from meanfield_pde.laws.projection import project
from meanfield_pde.laws.stratified import stratified
from meanfield_pde.measure import Measure
from meanfield_pde.mesh.record import SphereMesh
from meanfield_pde.models.velocity import VelocityModel
from meanfield_pde.solution import Solution
from meanfield_pde.solve import solve
from meanfield_pde.sphere import FloatArray
from meanfield_pde.stepping.adaptive import Adaptive
from meanfield_pde.stepping.ensembles import solve_ensemble
from meanfield_pde.systems.particles import ParticleSystem

Arrays = dict[str, np.ndarray]
ARRAYS = 2
"""Of what a kind of study stores; another number, and results that lack what is read now are computed again."""

SAMPLINGS = ("independent", "stratified", "binned", "smoothed")
METHODS = ("auto", "direct", "spectral")
MOST_SUMMED = 512
"""Up to this many tokens method "auto" sums, run beside run; beyond it transforms are faster, where there are any."""
SPECTRAL_RTOL = 1e-10
"""Smallest relative tolerance of integrators with velocities from transforms."""


@dataclass(frozen=True)
class Particles:
    """The ensembles of a study: `runs` runs of n tokens for each n in `counts`.

    sampling: "independent" tokens of the law; "stratified" ones (`mf.stratified`: quantiles on S^1, a weighted quadrature on S^2);
    or independent ones from which the density is started too, "binned" into its cells or "smoothed" with caps of the `bandwidth` (radians),
    so that like is compared with like. method: "direct" sums, "spectral" transforms, or "auto", sums up to 512 tokens or beyond S^2.
    rtol: relative error of a step. Raises ValueError naming the field.
    """

    counts: tuple[int, ...]
    runs: int
    sampling: str = "independent"
    bandwidth: float | None = None
    method: str = "auto"
    rtol: float = 1e-9

    def __post_init__(self) -> None:
        counts = [self.counts] if isinstance(self.counts, int) else list(self.counts)
        checked = tuple(inputs.integer(f"counts[{i}]", n, low=2) for i, n in enumerate(counts))
        if not checked or len(set(checked)) < len(checked):
            raise ValueError(f"counts is {counts}, wanted different numbers of tokens")
        object.__setattr__(self, "counts", checked)
        object.__setattr__(self, "runs", inputs.integer("runs", self.runs, low=1))
        inputs.choice("sampling", self.sampling, SAMPLINGS)
        if (self.bandwidth is not None) != (self.sampling == "smoothed"):
            raise ValueError(f"bandwidth is {self.bandwidth} with sampling {self.sampling!r}, wanted one with 'smoothed' and only there")
        if self.bandwidth is not None:
            object.__setattr__(self, "bandwidth", inputs.number("bandwidth", self.bandwidth, above=0.0, high=np.pi))
        inputs.choice("method", self.method, METHODS)
        object.__setattr__(self, "rtol", inputs.number("rtol", self.rtol, low=1e-13, high=1e-2))


@dataclass(frozen=True)
class Job:
    """what: "limit" or "tokens". kind: the name of the study's kind. options: of the kind, plain values. tables: mesh, coarse_mesh,
    attention, start and solver, as in a case. times: increasing. Runs first .. last - 1 of `count` tokens; a limit has count 0. kinds:
    classes of one's own that the tables name."""

    what: str
    kind: str
    options: Mapping[str, Any]
    tables: Mapping[str, Any]
    times: tuple[float, ...]
    seed: int
    particles: Particles | None = None
    count: int = 0
    first: int = 0
    last: int = 1
    kinds: tuple[type, ...] = ()

    @property
    def key(self) -> str:
        """A name made from all that the result of a run depends on: not which runs are computed together."""
        described = asdict(replace(self, first=0, last=0, kinds=())) | {"version": version("meanfield-pde"), "arrays": ARRAYS}
        if self.particles is not None:
            described["particles"] = {name: value for name, value in asdict(self.particles).items() if name not in ("counts", "runs")}
        return hashlib.sha256(json.dumps(described, sort_keys=True).encode()).hexdigest()[:32]

    @property
    def described(self) -> str:
        who = f"runs {self.first} to {self.last - 1} of {self.count} tokens" if self.what == "tokens" else "the limit"
        return f"{who} with attention {dict(self.tables.get('attention', {}))}"

    @property
    def cost(self) -> float:
        """Rough work, in token velocities."""
        return (self.last - self.first) * max(self.count, 1000) * len(self.times) ** 0.5

    @property
    def runs(self) -> range:
        return range(self.first, self.last)

    def entropy(self, run: int) -> list[int]:
        """What the random numbers of a run are made from."""
        return [self.seed, self.count, run]

    @property
    def ensembles(self) -> Particles:
        """The particles of a job of tokens, which has some."""
        assert self.particles is not None, "a job of tokens has particles"
        return self.particles

    def model(self) -> VelocityModel:
        return make_model(self.tables.get("attention", {}), self.kinds)

    def law(self) -> Law:
        return make_law("start", self.tables["start"])

    def start(self, run: int) -> Measure:
        """The tokens of a run at t = 0."""
        if self.ensembles.sampling == "stratified":
            return stratified(self.law(), self.count, self.entropy(run))
        return Measure(self.law().draw(np.random.default_rng(self.entropy(run)), self.count))


class Kind:
    """A kind of study: a frozen dataclass whose fields are its options. A class states what differs from the defaults here.

    name: in files. first_column: of the table, after the parameters. samplings: the ways of `Particles` to sample that it knows.
    reported: the options that only the report and the picture depend on. limit_comes_first: jobs of tokens are given the arrays of the
    limit of their parameter set. limit_per_run: the limit has runs too, one for each of the tokens'.
    """

    name: ClassVar[str]
    first_column: ClassVar[str] = "t"
    samplings: ClassVar[tuple[str, ...]] = ("independent", "stratified")
    reported: ClassVar[tuple[str, ...]] = ()
    limit_comes_first: ClassVar[bool] = False
    limit_per_run: ClassVar[bool] = False

    def limit(self, job: Job) -> Arrays:
        """What is stored of the limit."""
        raise NotImplementedError

    def tokens(self, job: Job, limit: Arrays | None) -> Arrays:
        """What is stored of the runs of a job, one run after the other along the first axes."""
        raise NotImplementedError

    def summary(self, limit: Arrays | None, tokens: dict[int, Arrays], job: Job) -> list[dict[str, Any]]:
        """The rows of one parameter set; tokens: the arrays of all runs of each n."""
        raise NotImplementedError

    def arrays(self, table: Table) -> Arrays:
        """The table's content as arrays, where that is its natural form; none otherwise."""
        return {}

    def report(self, table: Table) -> list[str]:
        """What the table says, a line each."""
        raise NotImplementedError


def density(job: Job, start: Callable[[SphereMesh], FloatArray] | None = None, mesh: str = "mesh") -> Solution:
    """The density at a job's times, on the mesh of that table, from the cell averages that `start` gives there, by default the law's."""
    system, stepper = make_system(job.tables[mesh], job.tables.get("solver", {}), job.model())
    averages = project(system.mesh, job.law()) if start is None else start(system.mesh)
    return solve(system, averages, job.times[-1], save_at=job.times, stepper=stepper)


def token_runs(job: Job, starts: list[Measure]) -> list[list[Measure]]:
    """The tokens that start so at the job's times, (runs, n_t) measures; small runs advance beside each other, large ones by transforms."""
    if _method(job, starts[0].dimension) == "direct":
        points, masses = np.stack([start.points for start in starts]), np.stack([start.masses for start in starts])
        rtol = job.ensembles.rtol
        ensemble = solve_ensemble(job.model(), points, job.times, masses=masses, rtol=rtol, atol=rtol / 100)
        return [[ensemble.measure(run, k) for k in range(len(job.times))] for run in range(len(starts))]
    solutions = [token_solution(job, start) for start in starts]
    return [[solution.measure(k) for k in range(len(job.times))] for solution in solutions]


def token_solution(job: Job, start: Measure) -> Solution:
    """One run of tokens at the job's times; transforms where they are faster, unless the method says otherwise."""
    method = _method(job, start.dimension)
    rtol = job.ensembles.rtol if method == "direct" else max(job.ensembles.rtol, SPECTRAL_RTOL)
    system = ParticleSystem(job.model(), method=method)
    return solve(system, start, job.times[-1], save_at=job.times, stepper=Adaptive(rtol, rtol / 100))


def _method(job: Job, d: int) -> str:
    if job.ensembles.method != "auto":
        return job.ensembles.method
    return "direct" if job.count <= MOST_SUMMED or d > 3 else "spectral"


def limit_clusters(solution: Solution, k: int, angle: float) -> int:
    """The number of clusters of a density: of its atoms, 0 while more than `stages.SETTLED` of the mass is on cells."""
    atoms = solution.atoms(k)
    return len(settled_clusters(atoms, angle)) if atoms.total >= 1 - SETTLED else 0
