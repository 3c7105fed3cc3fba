"""Histograms of the inner products of two tokens, or of two draws of the limit, at chosen times; d may be large for tokens.

Independent tokens in a high dimension are almost orthogonal and stay almost equiangular: their common inner product follows

    g' = 2 e^{beta g} (1 - g) ((n-1) g + 1) / (e^beta + (n-1) e^{beta g})          (2312.10794, section 6; `mf.exact.equiangular`)

Data in: jobs. Data out: one row per time, source and bin.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import numpy as np

from meanfield_pde import exact, inputs
from meanfield_pde.diagnostics.measures import inner_products
from meanfield_pde.files.tables import Table, named
from meanfield_pde.measure import Measure
from meanfield_pde.mesh.quadrature import cell_simplices, lifted_rule
from meanfield_pde.models.attention import Attention
from meanfield_pde.records import frozen
from meanfield_pde.solution import Solution
from meanfield_pde.sphere import FloatArray
from meanfield_pde.studies.jobs import Arrays, Job, Kind, density, token_runs

SPREAD_DEGREE, MOST_SPREAD = 2, 20_000
"""Of the rule whose points stand for a cell, and how many points there may be; finer meshes have their centres alone."""

EQUIANGULAR_REACH = (
    "equiangular: the law of tokens at equal angles; random ones in R^d are up to about 2 / d off it (.26 at d = 8, beta = 2)"
)


@dataclass(frozen=True)
class InnerProducts(Kind):
    """bins: of equal width in [-1, 1]."""

    bins: int = 80

    name = "inner_products"

    def __post_init__(self) -> None:
        object.__setattr__(self, "bins", inputs.integer("bins", self.bins, low=1))

    @property
    def edges(self) -> FloatArray:
        return np.linspace(-1, 1, self.bins + 1)

    def limit(self, job: Job) -> Arrays:
        """Shares (n_t, bins) and means (n_t,) of the inner products of two draws."""
        solution = density(job)
        shares = [inner_products(measure, self.edges) for measure in _spread(solution)]
        means = [solution.measure(k).mean() for k in range(len(job.times))]
        return {"shares": np.array(shares), "means": np.array([mean @ mean for mean in means])}

    def tokens(self, job: Job, limit: Arrays | None) -> Arrays:
        """The same of two different tokens of every run, (runs, n_t, bins) and (runs, n_t)."""
        runs = token_runs(job, [job.start(run) for run in job.runs])
        shares = [[inner_products(state, self.edges, self_pairs=False) for state in states] for states in runs]
        return {"shares": np.array(shares), "means": np.array([[_mean_product(state) for state in states] for states in runs])}

    def summary(self, limit: Arrays | None, tokens: dict[int, Arrays], job: Job) -> list[dict[str, Any]]:
        found = [("tokens", n, arrays["shares"], arrays["means"]) for n, arrays in tokens.items()]
        if limit is not None:
            found.append(("limit", 0, limit["shares"][None], limit["means"][None]))
        edges, rows = self.edges.tolist(), []
        for source, n, shares, means in found:
            share, mean = shares.mean(axis=0), means.mean(axis=0)
            law = _equiangular(job, n, mean[0]) if source == "tokens" else np.full(len(job.times), np.nan)
            for k, t in enumerate(job.times):
                common = {"mean": float(mean[k]), "equiangular": float(law[k])}
                for (low, high), part in zip(pairwise(edges), share[k].tolist(), strict=True):
                    rows.append({"t": t, "source": source, "n": n, "runs": len(shares), "low": low, "high": high, "share": part} | common)
        return rows

    def report(self, table: Table) -> list[str]:
        """The mean inner product over time, and the equiangular law where it applies."""
        place = table.names.index("t")
        lines = [f"{'t':>10}{'tokens':>10}{'mean':>12}{'equiangular':>14}"]
        for (*values, t, _, n), (mean, law) in {row[: place + 3]: row[-2:] for row in table.rows}.items():
            lines.append(f"{t:10.4g}{n or 'limit':>10}{mean:12.5f}{law:14.5f}  {named(table.names[:place], values)}".rstrip())
        if np.isfinite(table.column("equiangular")).any():
            lines.append(EQUIANGULAR_REACH)
        return lines


def _spread(solution: Solution) -> Iterator[Measure]:
    """The measures with some points in each cell, so that the histograms do not show the lattice of the centres."""
    mesh, outputs = solution.mesh, range(len(solution.times))
    corners, owner = cell_simplices(mesh)
    points, weights = lifted_rule(corners, SPREAD_DEGREE)
    if weights.size > MOST_SPREAD:
        yield from map(solution.measure, outputs)
        return
    places = frozen(points.reshape(-1, mesh.dimension))
    for k in outputs:
        shares = weights * (solution.masses[k] / mesh.areas)[owner][:, None]
        yield Measure.joined(Measure.trusted(places, shares.ravel()), solution.atoms(k))


def _mean_product(state: Measure) -> float:
    """The mean of <x, y> over pairs of different tokens."""
    mean, own = state.mean(), state.masses @ state.masses
    return float((mean @ mean - own) / (state.total**2 - own))


def _equiangular(job: Job, n: int, start: float) -> FloatArray:
    """The equiangular law from the mean inner product at the first time; nan where it does not apply (Q, K, V, USA; S^1 and S^2)."""
    model, times = job.model(), np.array(job.times)
    if model != Attention(model.kernel_beta) or job.law().dimension <= 3:
        return np.full(len(times), np.nan)
    return np.asarray(exact.equiangular(n, model.kernel_beta, float(start), times - times[0]))
