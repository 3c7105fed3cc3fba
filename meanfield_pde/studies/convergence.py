"""How fast n tokens follow the limit: distances between them over n, at given times.

| quantity | between tokens and limit |
|---|---|
| w1, w2 | Wasserstein distances, geodesic cost (radians); on S^1 to the density spread within its cells |
| mmd | maximum mean discrepancy of the kernel e^{beta (<x, y> - 1)} |
| energy | abs(E_n / E - 1) |
| order | abs(R_n - R), R = abs(int x dmu) |
| clusters | the tokens' number of settled clusters |

Each has a column `limit_error`: the same quantity between the limits on the mesh and on one twice as coarse, an upper estimate of what
the mesh changes. A token's weight on itself is negligible, and the limit valid, only for n >> e^beta / Lambda_0(beta) (`validity` is n
over that bound). Means that the mesh or that bound spoils are flagged and take no part in the fitted rates.

Data in: jobs. Data out: one row per parameter set, n, time and quantity.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np

from meanfield_pde import inputs
from meanfield_pde.cases.case import make_mesh
from meanfield_pde.diagnostics.comparison import distances
from meanfield_pde.diagnostics.distances import mmd
from meanfield_pde.diagnostics.measures import order_parameter
from meanfield_pde.diagnostics.stages import settled_clusters
from meanfield_pde.files.tables import Table, named
from meanfield_pde.laws.law import Smoothed
from meanfield_pde.laws.projection import bin_tokens, project
from meanfield_pde.measure import Measure
from meanfield_pde.mesh.record import SphereMesh
from meanfield_pde.models.velocity import VelocityModel, energy_of
from meanfield_pde.records import frozen, remembered
from meanfield_pde.solution import Solution
from meanfield_pde.sphere import FloatArray
from meanfield_pde.studies.jobs import SAMPLINGS, Arrays, Job, Kind, density, limit_clusters, token_runs
from meanfield_pde.studies.rates import PowerLaw, fit_rate
from meanfield_pde.systems.atoms import CLUSTER

QUANTITIES = ("w1", "w2", "mmd", "energy", "order", "clusters")
SPREAD, LEAST_SPREAD, MOST_SPREAD = 16, 1 << 12, 1 << 17
"""On S^1 arcs become so many points for each token, between the least and the most in all, so that W1 does not depend on the cells."""

MESH_SHARE = 0.25
"""A mean is limited by the mesh where the limit's own error exceeds this part of it."""

VALID = 10.0
"""The limit counts as valid from this many times the bound of n."""


@dataclass(frozen=True)
class Convergence(Kind):
    """quantities: which of w1, w2, mmd, energy, order, clusters. largest_plan: bytes that an exact transport plan may take (S^2); larger
    measures are aggregated first, and the table has the error of that. angle: of a cluster, radians."""

    quantities: tuple[str, ...] = QUANTITIES
    largest_plan: float = 5e8
    angle: float = CLUSTER

    name = "convergence"
    samplings = SAMPLINGS
    limit_comes_first = True

    def __post_init__(self) -> None:
        if isinstance(self.quantities, str) or not len(self.quantities):
            raise ValueError(f"quantities is {self.quantities!r}, wanted a list of some of {', '.join(QUANTITIES)}")
        object.__setattr__(self, "quantities", tuple(inputs.choice("quantities", name, QUANTITIES) for name in self.quantities))
        object.__setattr__(self, "largest_plan", inputs.number("largest_plan", self.largest_plan, above=0.0))
        object.__setattr__(self, "angle", inputs.number("angle", self.angle, above=0.0, high=np.pi))

    def limit(self, job: Job) -> Arrays:
        """The limit at each time, its observables and its own errors."""
        fine, coarse = self._limits(job)
        found = [self._differences(a, b, job.model(), MOST_SPREAD)[0] for a, b in zip(fine, coarse, strict=True)]
        arrays: Arrays = {"errors": np.array(found), "values": np.array([(seen.log_energy, seen.order, seen.clusters) for seen in fine])}
        for k, seen in enumerate(fine):
            arrays |= {f"cells_{k}": seen.cells, f"atoms_{k}": seen.atoms.points, f"masses_{k}": seen.atoms.masses}
        return arrays

    def tokens(self, job: Job, limit: Arrays | None) -> Arrays:
        """Differences (runs, n_t, n_quantities); with densities of their own also the errors of those."""
        model = job.model()
        starts = [job.start(run) for run in job.runs]
        stored = None if limit is None else _stored(limit, make_mesh(job.tables["mesh"]))
        points = min(max(SPREAD * job.count, LEAST_SPREAD), MOST_SPREAD)
        values, errors, approximations = [], [], []
        for start, states in zip(starts, token_runs(job, starts), strict=True):
            fine = stored
            if fine is None:
                fine, coarse = self._limits(job, partial(_averages, tokens=start, job=job))
                errors.append([self._differences(a, b, model, MOST_SPREAD)[0] for a, b in zip(fine, coarse, strict=True)])
            seen = [_of_tokens(model, t, state, self.angle) for t, state in zip(job.times, states, strict=True)]
            found = [self._differences(a, b, model, points) for a, b in zip(fine, seen, strict=True)]
            values.append([numbers for numbers, _ in found])
            approximations.append([error for _, error in found])
        arrays = {"values": np.array(values), "approximations": np.array(approximations)}
        return arrays | ({"errors": np.array(errors)} if errors else {})

    def summary(self, limit: Arrays | None, tokens: dict[int, Arrays], job: Job) -> list[dict[str, Any]]:
        """The rows of one parameter set."""
        weight = job.model().self_weight(job.law().dimension)
        values = np.full((len(job.times), 3), np.nan) if limit is None else limit["values"]
        with np.errstate(over="ignore"):
            energies = np.exp(values[:, 0])  # inf beyond double precision
        rows = []
        for k, t in enumerate(job.times):
            for q, quantity in enumerate(self.quantities):
                errors = None if limit is None else limit["errors"][k, q]
                means = [_mean(n, arrays, errors, k, q, quantity, n / weight if weight else np.inf) for n, arrays in tokens.items()]
                of_limit = {"energy": energies[k], "order": values[k, 1], "clusters": values[k, 2]}.get(quantity, np.nan)
                common = {"limit": float(of_limit)} | _rate(quantity, means)
                rows += [{"t": t, "quantity": quantity} | mean | common for mean in means]
        return rows

    def report(self, table: Table) -> list[str]:
        """The rates, and what a reader must know."""
        lines = [f"{'quantity':>10}{'t':>10}{'slope':>9}   95 % interval   fitted to n"]
        fitted: dict[tuple[Any, ...], list[dict[str, Any]]] = {}
        place = table.names.index("t")
        for cells in table.rows:
            fitted.setdefault(cells[: place + 2], []).append(dict(zip(table.names, cells, strict=True)))
        for (*values, t, quantity), rows in fitted.items():
            if quantity == "clusters":
                continue
            first, used = rows[0], [row["n"] for row in rows if not (row["mesh_limited"] or row["below_validity"])]
            span = f"{min(used)} .. {max(used)}" if used else "none"
            interval = f"{first['slope_low']:6.3f} .. {first['slope_high']:6.3f}"
            where = named(table.names[:place], values)
            lines.append(f"{quantity:>10}{t:10g}{first['slope']:9.3f}   {interval}   {span:<16}{where}".rstrip())
        return lines + list(_notes(table))

    def _limits(self, job: Job, start: Callable[[SphereMesh], FloatArray] | None = None) -> tuple[list["_Seen"], list["_Seen"]]:
        """What is seen of the limit on the mesh and on the coarse one, at each time."""
        solutions = (density(job, start), density(job, start, "coarse_mesh"))
        fine, coarse = ([_of_limit(solution, k, self.angle) for k in range(len(job.times))] for solution in solutions)
        return fine, coarse

    def _differences(self, a: "_Seen", b: "_Seen", model: VelocityModel, points: int) -> tuple[list[float], float]:
        """The quantities between a limit and something else, and what transport adds to w1 by points in place of arcs or aggregation."""
        asked = [name for name in ("w1", "w2") if name in self.quantities]
        plans, error = dict[str, float](), 0.0
        if asked:
            (mu, off), (nu, off_too) = (seen.spread(points) for seen in (a, b))
            lengths, error, _ = distances(mu, nu, self.largest_plan, tuple(int(name[1]) for name in asked))
            plans, error = dict(zip(asked, lengths, strict=True)), error + off + off_too
        found = {
            "w1": lambda: plans["w1"],
            "w2": lambda: plans["w2"],
            "mmd": lambda: mmd(a.measure, b.measure, model.kernel_beta),
            "energy": lambda: _relative(a.log_energy, b.log_energy),
            "order": lambda: abs(b.order - a.order),
            "clusters": lambda: float(b.clusters),
        }
        return [found[name]() for name in self.quantities], error


def _relative(log_a: float, log_b: float) -> float:
    """|b/a - 1| from logarithms, inf beyond double precision."""
    with np.errstate(over="ignore"):
        return abs(float(np.expm1(log_b - log_a)))


@dataclass(frozen=True)
class _Seen:
    """What is compared of a state: masses of the cells of a mesh and atoms, or tokens, which are atoms alone."""

    mesh: SphereMesh | None
    cells: FloatArray
    atoms: Measure
    log_energy: float
    order: float
    clusters: int

    @property
    def measure(self) -> Measure:
        return self.atoms if self.mesh is None else Measure.joined(Measure.trusted(self.mesh.centers, self.cells), self.atoms)

    def spread(self, points: int) -> tuple[Measure, float]:
        """The measure with its arcs as about so many points, and what that changes in W1; on S^2 a cell stays one point."""
        if self.mesh is None or self.mesh.dimension > 2:
            return self.measure, 0.0
        parts = -(-points // self.mesh.n_cells)
        places = remembered(f"{parts} points an arc", self.mesh.vertices, partial(_along_arcs, self.mesh, parts))
        arcs = Measure.trusted(places, np.repeat(self.cells / parts, parts))
        return Measure.joined(arcs, self.atoms), float(self.cells @ self.mesh.areas) / parts / 4


def _along_arcs(mesh: SphereMesh, parts: int) -> FloatArray:
    """The middles of so many equal parts of each arc, (n_cells * parts, 2)."""
    first = mesh.vertices[mesh.cell_vertices[mesh.cell_offsets[:-1]]]
    angles = np.arctan2(first[:, 1], first[:, 0])[:, None] + mesh.areas[:, None] * (np.arange(parts) + 0.5) / parts
    return frozen(np.stack([np.cos(angles), np.sin(angles)], axis=2).reshape(-1, 2))


def _of_tokens(model: VelocityModel, t: float, tokens: Measure, angle: float) -> _Seen:
    return _Seen(None, np.empty(0), tokens, energy_of(model, tokens, t).log, order_parameter(tokens), settled_clusters(tokens, angle))


def _of_limit(solution: Solution, k: int, angle: float) -> _Seen:
    state = solution.measure(k)
    observed = (energy_of(solution.model, state, float(solution.times[k])).log, order_parameter(state), limit_clusters(solution, k, angle))
    return _Seen(solution.mesh, solution.masses[k], solution.atoms(k), *observed)


def _stored(limit: Arrays, mesh: SphereMesh) -> list[_Seen]:
    atoms = [Measure.trusted(limit[f"atoms_{k}"], limit[f"masses_{k}"]) for k in range(len(limit["values"]))]
    return [
        _Seen(mesh, limit[f"cells_{k}"], atoms[k], log, order, int(count)) for k, (log, order, count) in enumerate(limit["values"].tolist())
    ]


def _averages(mesh: SphereMesh, tokens: Measure, job: Job) -> FloatArray:
    """The density that starts from the same tokens."""
    bandwidth = job.ensembles.bandwidth
    return bin_tokens(mesh, tokens) if bandwidth is None else project(mesh, Smoothed(tokens, bandwidth))


def _mean(n: int, arrays: Arrays, limit_error: float | None, k: int, q: int, quantity: str, validity: float) -> dict[str, Any]:
    """Quantity q over the runs of n tokens at time k, as a part of a row; limit_error: None where each run has a density of its own."""
    values = arrays["values"][:, k, q]
    runs, mean = len(values), float(values.mean())
    error = float(arrays["errors"][:, k, q].mean() if limit_error is None else limit_error)
    approximation = float(arrays["approximations"][:, k].mean()) if quantity in ("w1", "w2") else 0.0
    return {
        "n": n,
        "runs": runs,
        "mean": mean,
        "standard_error": float(values.std(ddof=1) / np.sqrt(runs)) if runs > 1 else np.nan,
        "limit_error": error,
        "approximation_error": approximation,
        "mesh_limited": quantity != "clusters" and error + approximation > MESH_SHARE * mean,
        "validity": validity,
        "below_validity": validity < VALID,
    }


def _rate(quantity: str, means: list[dict[str, Any]]) -> dict[str, float]:
    """Fitted to the means that neither the mesh nor the validity of the limit spoils; numbers of clusters have none."""
    used = [mean for mean in means if not (mean["mesh_limited"] or mean["below_validity"])]
    columns = np.array([(mean["n"], mean["mean"], np.nan_to_num(mean["standard_error"])) for mean in used]).reshape(-1, 3)
    rate = PowerLaw() if quantity == "clusters" else fit_rate(*columns.T)
    return {"slope": rate.slope, "slope_low": rate.low, "slope_high": rate.high, "factor": rate.factor}


def _notes(table: Table) -> Iterator[str]:
    """What is flagged, one sentence each."""
    columns = {name: table.column(name) for name in ("quantity", "n", "mesh_limited", "below_validity")}
    for quantity in dict.fromkeys(columns["quantity"]):
        limited = columns["n"][(columns["quantity"] == quantity) & columns["mesh_limited"]]
        if len(limited):
            counts = ", ".join(map(str, np.unique(limited)))
            yield f"note: {quantity} is limited by the mesh at n = {counts}: the limit's own error exceeds {MESH_SHARE:.0%} of the mean"
    few = columns["n"][columns["below_validity"]]
    if len(few):
        counts = ", ".join(map(str, np.unique(few)))
        yield f"note: n = {counts} is below {VALID:g} e^beta/Lambda_0(beta): a token's weight on itself is not negligible there"
