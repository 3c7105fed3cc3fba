"""Phase diagrams: over inverse temperature and time, the share of pairs that have met and the number of clusters.

    share = P(<x, y> >= cosine), x and y two different tokens of a run, or two independent draws of the limit (2312.10794, section 6)

A row's standard_error is that of the mean over runs; of the limit, the error of taking the share on its mesh (0 on S^1).

Data in: jobs. Data out: one row per beta, time and source ("limit" or n tokens); arrays over (beta, t).
"""

from dataclasses import dataclass
from typing import Any

import numpy as np

from meanfield_pde import inputs
from meanfield_pde.diagnostics.measures import close_pairs, clusters
from meanfield_pde.diagnostics.spread import close_pairs_in_cells
from meanfield_pde.files.tables import Table
from meanfield_pde.measure import Measure
from meanfield_pde.sphere import FloatArray, IntArray
from meanfield_pde.studies.jobs import Arrays, Job, Kind, density, limit_clusters, token_runs
from meanfield_pde.systems.components import joined

AXIS = "attention.beta"
MOST_IN_GRAM = 512
GRAM_ENTRIES = 1 << 22


@dataclass(frozen=True)
class Phase(Kind):
    """cosine: inner product from which two tokens have met, and from which on they belong to one cluster. front: share of pairs whose
    first time is reported and drawn; two clusters have at least .5, three equal ones 1/3."""

    cosine: float = 0.999
    front: float = 0.4

    name = "phase"
    reported = ("front",)

    def __post_init__(self) -> None:
        object.__setattr__(self, "cosine", inputs.number("cosine", self.cosine, low=0.0, high=1 - 1e-12))
        object.__setattr__(self, "front", inputs.number("front", self.front, above=0.0, high=1.0))

    @property
    def angle(self) -> float:
        return float(np.arccos(self.cosine))

    def limit(self, job: Job) -> Arrays:
        """Share of pairs with its error and number of clusters (n_t,) of the limit, 0 while most of the mass is in none."""
        solution = density(job)
        outputs = range(len(job.times))
        shares, errors = np.array([close_pairs_in_cells(solution, k, self.cosine) for k in outputs]).T
        return {"shares": shares, "errors": errors, "clusters": np.array([limit_clusters(solution, k, self.angle) for k in outputs])}

    def tokens(self, job: Job, limit: Arrays | None) -> Arrays:
        """Share of pairs and number of clusters of every run (runs, n_t)."""
        runs = token_runs(job, [job.start(run) for run in job.runs])
        met = _met_by_gram if job.count <= MOST_IN_GRAM else _met_by_search
        found = [met(states, self.cosine) for states in runs]
        return {"shares": np.array([shares for shares, _ in found]), "clusters": np.array([counts for _, counts in found])}

    def summary(self, limit: Arrays | None, tokens: dict[int, Arrays], job: Job) -> list[dict[str, Any]]:
        found = [("tokens", n, arrays["shares"], arrays["clusters"]) for n, arrays in tokens.items()]
        if limit is not None:
            found.append(("limit", 0, limit["shares"][None], limit["clusters"][None]))
        rows = []
        for source, n, shares, counts in found:
            runs, error = len(shares), np.full(len(job.times), np.nan) if source == "tokens" or limit is None else limit["errors"]
            if runs > 1:
                error = shares.std(axis=0, ddof=1) / np.sqrt(runs)
            columns = {"share": shares.mean(axis=0), "standard_error": error, "clusters": counts.mean(axis=0)}
            for k, t in enumerate(job.times):
                rows.append({"t": t, "source": source, "n": n, "runs": runs} | {name: float(column[k]) for name, column in columns.items()})
        return rows

    def arrays(self, table: Table) -> Arrays:
        """beta (n_beta,), t (n_t,); share_limit, clusters_limit and share_n, clusters_n for n tokens, (n_beta, n_t)."""
        beta, t = (np.unique(table.column(name)) for name in (AXIS, "t"))
        found: Arrays = {"beta": beta, "t": t}
        for n in np.unique(table.column("n")):
            part = table.where(n=n)
            order = np.lexsort((part.column("t"), part.column(AXIS)))
            for name in ("share", "clusters"):
                found[f"{name}_{n or 'limit'}"] = part.column(name)[order].reshape(len(beta), len(t))
        return found

    def report(self, table: Table) -> list[str]:
        """When the front passes, for each beta."""
        found = self.arrays(table)
        names = [name for name in found if name.startswith("share_")]
        heads = [name.removeprefix("share_") + ("" if name == "share_limit" else " tokens") for name in names]
        lines = [f"first output at which {self.front:.0%} of the pairs have met"]
        lines.append(f"{'beta':>10}" + "".join(f"{head:>16}" for head in heads))
        for k, beta in enumerate(found["beta"]):
            met = [found[name][k] >= self.front for name in names]
            times = [f"{found['t'][row.argmax()]:16.4g}" if row.any() else f"{'never':>16}" for row in met]
            lines.append(f"{beta:10.4g}" + "".join(times))
        return lines


def _met_by_gram(states: list[Measure], cosine: float) -> tuple[FloatArray, IntArray]:
    """Share of pairs and number of connected components at each time, from the inner products of few tokens, some times at once."""
    masses = states[0].masses
    points = np.stack([state.points for state in states])
    n_t, n, _ = points.shape
    shares, counts = np.empty(n_t), np.empty(n_t, dtype=np.int64)
    for first in range(0, n_t, max(1, GRAM_ENTRIES // n**2)):
        block = points[first : first + max(1, GRAM_ENTRIES // n**2)]
        met = np.einsum("tid,tjd->tij", block, block) >= cosine
        met[:, np.arange(n), np.arange(n)] = False
        rows = slice(first, first + len(block))
        shares[rows] = np.einsum("tij,i,j->t", met, masses, masses) / (masses.sum() ** 2 - masses @ masses)
        t, i, j = np.nonzero(np.triu(met))
        labels = joined(len(block) * n, [(t * n + i, t * n + j)]).reshape(len(block), n)
        counts[rows] = [len(np.unique(row)) for row in labels]
    return shares, counts


def _met_by_search(states: list[Measure], cosine: float) -> tuple[FloatArray, IntArray]:
    """The same for many tokens, one time after the other."""
    shares = np.array([close_pairs(state, cosine, self_pairs=False) for state in states])
    return shares, np.array([len(clusters(state, float(np.arccos(cosine)))) for state in states])
