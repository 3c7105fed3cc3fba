"""How many clusters form first, seed by seed: the limit from differently perturbed uniform laws, and tokens of the same laws beside it.

Data in: jobs; run r of the limit starts from the law of noise seed (seed, r), run r of n tokens draws from that same law.
Data out: one row per source ("limit" or n tokens) and run: clusters of the first stage (0: none until the end) and when it began.
"""

from collections import Counter
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np

from meanfield_pde import inputs
from meanfield_pde.cases.case import make_law
from meanfield_pde.diagnostics.stages import settled_clusters, stages
from meanfield_pde.files.tables import Table, named
from meanfield_pde.laws.law import Law
from meanfield_pde.laws.projection import project
from meanfield_pde.measure import Measure
from meanfield_pde.solution import Solution
from meanfield_pde.studies.jobs import Arrays, Job, Kind, density, token_solution
from meanfield_pde.systems.atoms import CLUSTER


@dataclass(frozen=True)
class FirstClusters(Kind):
    """angle: of a cluster of tokens, radians (a density's clusters are its atoms)."""

    angle: float = CLUSTER

    name = "clusters"
    first_column = "source"
    samplings = ("independent",)
    limit_per_run = True

    def __post_init__(self) -> None:
        object.__setattr__(self, "angle", inputs.number("angle", self.angle, above=0.0, high=np.pi))

    def limit(self, job: Job) -> Arrays:
        """Clusters and begin of the first stage of the limit of each run, (runs, 2)."""
        solutions = [density(job, partial(project, law=_perturbed(job, run))) for run in job.runs]
        return {"first": np.array([_first(solution, self.angle) for solution in solutions])}

    def tokens(self, job: Job, limit: Arrays | None) -> Arrays:
        draws = (_perturbed(job, run).draw(np.random.default_rng(job.entropy(run)), job.count) for run in job.runs)
        return {"first": np.array([_first(token_solution(job, Measure(points)), self.angle) for points in draws])}

    def summary(self, limit: Arrays | None, tokens: dict[int, Arrays], job: Job) -> list[dict[str, Any]]:
        found = [("limit", 0, limit)] if limit is not None else []
        found += [("tokens", n, arrays) for n, arrays in tokens.items()]
        return [
            {"source": source, "n": n, "run": run, "clusters": int(count), "t": float(t)}
            for source, n, arrays in found
            for run, (count, t) in enumerate(arrays["first"])
        ]

    def report(self, table: Table) -> list[str]:
        """How many runs form how many clusters first."""
        place = table.names.index("source")
        counts: dict[tuple[Any, ...], Counter[int]] = {}
        for row in table.rows:
            counts.setdefault(row[: place + 2], Counter())[row[place + 3]] += 1
        lines = []
        for (*values, source, n), counter in counts.items():
            who = "limit" if source == "limit" else f"{n} tokens"
            where = ", ".join(filter(None, [who, named(table.names[:place], values)]))
            shares = ", ".join(f"{number} clusters in {count}" for number, count in sorted(counter.items()))
            lines.append(f"{where}: of {counter.total()} runs first {shares}")
        return lines


def _perturbed(job: Job, run: int) -> Law:
    """The law of a run: that of the study with noise of its own seed."""
    seed = int(np.random.SeedSequence([job.seed, run]).generate_state(1)[0])
    return make_law("start", dict(job.tables["start"]) | {"seed": seed})


def _first(solution: Solution, angle: float) -> tuple[int, float]:
    """Number of clusters of the first stage and when it begins (tokens: at which output); 0 and the end of the run if there is none."""
    if solution.kind == "density":
        found = stages(solution)
        return (found[0].clusters, found[0].t_start) if found else (0, float(solution.times[-1]))
    for k, t in enumerate(solution.times.tolist()):
        if count := len(settled_clusters(solution.measure(k), angle)):
            return count, t
    return 0, float(solution.times[-1])
