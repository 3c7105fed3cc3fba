"""How fast n tokens follow the limit: distances between them over n, at given times, and rates: their means fall like C n^slope.

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

The straight line through (log n, log mean) is weighted by the standard errors. Its interval is Student's, with two degrees of freedom
less than there are sizes, from the larger of the expected and the observed scatter, so that neither few runs nor a bent curve look sure.

Data in: jobs. Data out: one row per parameter set, n, time and quantity.
Source: Bevington and Robinson, Data Reduction and Error Analysis, chapter 6 (rates).
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
from scipy.special import stdtrit

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
from meanfield_pde.systems.atoms import CLUSTER

QUANTITIES = ("w1", "w2", "mmd", "energy", "order", "clusters")
SPREAD, LEAST_SPREAD, MOST_SPREAD = 16, 1 << 12, 1 << 17
"""On S^1 arcs become so many points for each token, between the least and the most in all, so that W1 does not depend on the cells."""
MESH_SHARE = 0.25
"""A mean is limited by the mesh where the limit's own error exceeds this part of it."""
VALID = 10.0
"""The limit counts as valid from this many times the bound of n."""
CONFIDENCE = 0.95
"""Of the intervals of rates."""


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
        fine, errors = self._limits(job)
        arrays: Arrays = {"errors": np.array(errors), "values": np.array([(seen.log_energy, seen.order, seen.clusters) for seen in fine])}
        for k, seen in enumerate(fine):
            arrays |= {f"cells_{k}": seen.cells, f"atoms_{k}": seen.atoms.points, f"masses_{k}": seen.atoms.masses}
        return arrays

    def tokens(self, job: Job, limit: Arrays | None) -> Arrays:
        """Differences (runs, n_t, n_quantities); with densities of their own also the errors of those."""
        model, bandwidth = job.model(), job.ensembles.bandwidth
        starts = [job.start(run) for run in job.runs]
        stored = None if limit is None else _stored(limit, make_mesh(job.tables["mesh"]))
        points = min(max(SPREAD * job.count, LEAST_SPREAD), MOST_SPREAD)
        values, errors, approximations = [], [], []
        for start, states in zip(starts, token_runs(job, starts), strict=True):
            fine = stored
            if fine is None:
                own_start = partial(bin_tokens, tokens=start) if bandwidth is None else partial(project, law=Smoothed(start, bandwidth))
                fine, own_errors = self._limits(job, own_start)
                errors.append(own_errors)
            seen = [_of_tokens(model, t, state, self.angle) for t, state in zip(job.times, states, strict=True)]
            found = [self._differences(a, b, model, points) for a, b in zip(fine, seen, strict=True)]
            values.append([numbers for numbers, _ in found])
            approximations.append([error for _, error in found])
        arrays = {"values": np.array(values), "approximations": np.array(approximations)}
        return arrays | ({"errors": np.array(errors)} if errors else {})

    def summary(self, limit: Arrays | None, tokens: dict[int, Arrays], job: Job) -> list[dict[str, Any]]:
        weight = job.model().self_weight(job.law().dimension)
        values = np.full((len(job.times), 3), np.nan) if limit is None else limit["values"]
        with np.errstate(over="ignore"):
            energies = np.exp(values[:, 0])  # inf beyond double precision
        rows = []
        for k, t in enumerate(job.times):
            for q, quantity in enumerate(self.quantities):
                error = None if limit is None else limit["errors"][k, q]
                means = [_mean(n, arrays, error, k, q, quantity, n / weight if weight else np.inf) for n, arrays in tokens.items()]
                of_limit = {"energy": energies[k], "order": values[k, 1], "clusters": values[k, 2]}.get(quantity, np.nan)
                common = {"limit": float(of_limit)} | _rate(quantity, means)
                rows += [{"t": t, "quantity": quantity} | mean | common for mean in means]
        return rows

    def report(self, table: Table) -> list[str]:
        """The rates, and what a reader must know."""
        lines = [f"{'quantity':>10}{'t':>10}{'slope':>9}   95 % interval   fitted to n"]
        place = table.names.index("t")
        for *values, t, quantity in dict.fromkeys(row[: place + 2] for row in table.rows):
            if quantity == "clusters":
                continue
            rows = table.where(**dict(zip(table.names, (*values, t, quantity), strict=False)))
            slope, low, high = (rows.column(name)[0] for name in ("slope", "slope_low", "slope_high"))
            used = rows.where(mesh_limited=False, below_validity=False).column("n")
            span = f"{min(used)} .. {max(used)}" if len(used) else "none"
            rate = f"{slope:9.3f}   {low:6.3f} .. {high:6.3f}"
            lines.append(f"{quantity:>10}{t:10g}{rate}   {span:<16}{named(table.names[:place], values)}".rstrip())
        return lines + list(_notes(table))

    def _limits(self, job: Job, start: Callable[[SphereMesh], FloatArray] | None = None) -> tuple[list["_Seen"], list[list[float]]]:
        """What is seen of the limit on the mesh at each time, and how it differs from that on the coarse mesh."""
        solutions = (density(job, start), density(job, start, "coarse_mesh"))
        fine, coarse = ([_of_limit(solution, k, self.angle) for k in range(len(job.times))] for solution in solutions)
        return fine, [self._differences(a, b, job.model(), MOST_SPREAD)[0] for a, b in zip(fine, coarse, strict=True)]

    def _differences(self, a: "_Seen", b: "_Seen", model: VelocityModel, points: int) -> tuple[list[float], float]:
        """The quantities between a limit and something else, and what transport adds to w1 by points in place of arcs or aggregation."""
        with np.errstate(over="ignore"):  # inf beyond double precision
            energy = abs(float(np.expm1(b.log_energy - a.log_energy)))
        found, error = {"energy": energy, "order": abs(b.order - a.order), "clusters": float(b.clusters)}, 0.0
        if "mmd" in self.quantities:
            found["mmd"] = mmd(a.measure, b.measure, model.kernel_beta)
        if asked := [name for name in ("w1", "w2") if name in self.quantities]:
            (mu, off), (nu, off_too) = (seen.spread(points) for seen in (a, b))
            lengths, error, _ = distances(mu, nu, self.largest_plan, tuple(int(name[1]) for name in asked))
            found |= dict(zip(asked, lengths, strict=True))
            error = error + off + off_too
        return [found[name] for name in self.quantities], error


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
    clusters = len(settled_clusters(tokens, angle))
    return _Seen(None, np.empty(0), tokens, energy_of(model, tokens, t).log, order_parameter(tokens), clusters)


def _of_limit(solution: Solution, k: int, angle: float) -> _Seen:
    state, cells, atoms = solution.measure(k), solution.masses[k], solution.atoms(k)
    log_energy = energy_of(solution.model, state, float(solution.times[k])).log
    return _Seen(solution.mesh, cells, atoms, log_energy, order_parameter(state), limit_clusters(solution, k, angle))


def _stored(limit: Arrays, mesh: SphereMesh) -> list[_Seen]:
    return [
        _Seen(mesh, limit[f"cells_{k}"], Measure.trusted(limit[f"atoms_{k}"], limit[f"masses_{k}"]), log, order, int(clusters))
        for k, (log, order, clusters) in enumerate(limit["values"].tolist())
    ]


def _mean(n: int, arrays: Arrays, limit_error: float | None, k: int, q: int, quantity: str, validity: float) -> dict[str, Any]:
    """Quantity q over the runs of n tokens at time k, as a part of a row; limit_error: None where each run has a density of its own."""
    values = arrays["values"][:, k, q]
    runs, mean = len(values), float(values.mean())
    error = float(arrays["errors"][:, k, q].mean() if limit_error is None else limit_error)
    approximation = float(arrays["approximations"][:, k].mean()) if quantity in ("w1", "w2") else 0.0
    found = {"n": n, "runs": runs, "mean": mean, "standard_error": float(values.std(ddof=1) / np.sqrt(runs)) if runs > 1 else np.nan}
    limited = quantity != "clusters" and error + approximation > MESH_SHARE * mean
    found |= {"limit_error": error, "approximation_error": approximation, "mesh_limited": limited}
    return found | {"validity": validity, "below_validity": validity < VALID}


def _rate(quantity: str, means: list[dict[str, Any]]) -> dict[str, float]:
    """Fitted to the means that neither the mesh nor the validity of the limit spoils; numbers of clusters have none."""
    used = [mean for mean in means if not (mean["mesh_limited"] or mean["below_validity"])]
    columns = np.array([(mean["n"], mean["mean"], np.nan_to_num(mean["standard_error"])) for mean in used]).reshape(-1, 3)
    rate = PowerLaw() if quantity == "clusters" else fit_rate(*columns.T)
    return {"slope": rate.slope, "slope_low": rate.low, "slope_high": rate.high, "factor": rate.factor}


def _notes(table: Table) -> Iterator[str]:
    """What is flagged, one sentence each."""

    def sizes(**flags: Any) -> str:
        return ", ".join(map(str, np.unique(table.where(**flags).column("n"))))

    for quantity in dict.fromkeys(table.column("quantity")):
        if limited := sizes(quantity=quantity, mesh_limited=True):
            cause = (
                f"the limit's own error exceeds {MESH_SHARE:.0%} of the mean{_remedy(table.where(quantity=quantity, mesh_limited=True))}"
            )
            yield f"note: {quantity} is limited by the mesh at n = {limited}: {cause}"
    if few := sizes(below_validity=True):
        yield f"note: n = {few} is below {VALID:g} e^beta/Lambda_0(beta): a token's weight on itself is not negligible there"


def _remedy(limited: Table) -> str:
    """What would be needed of the mesh, for distances, whose errors fall with the spacing."""
    error = limited.column("limit_error") + limited.column("approximation_error")
    with np.errstate(divide="ignore"):
        factor = float((error / (MESH_SHARE * limited.column("mean"))).max())
    if limited.column("quantity")[0] not in ("w1", "w2") or not np.isfinite(factor):
        return ""
    return f", which spacings {factor:.2g} times smaller would mend (on S^2 with a largest_plan for as many cells)"


@dataclass(frozen=True)
class PowerLaw:
    """slope with its interval [low, high] and factor C; nan where there are too few sizes (three for an interval, two for a slope)."""

    slope: float = np.nan
    low: float = np.nan
    high: float = np.nan
    factor: float = np.nan


def fit_rate(counts: FloatArray, means: FloatArray, errors: FloatArray) -> PowerLaw:
    """The line through the positive means; without standard errors (one run, or none that scatter) all sizes weigh the same."""
    used = means > 0
    x, y = np.log(counts[used]), np.log(means[used])
    if len(x) < 2:
        return PowerLaw()
    spread = errors[used] / means[used]
    known = bool((spread > 0).all())
    weights = spread**-2 if known else np.ones(len(x))
    centre = np.average(x, weights=weights)
    inertia = float(weights @ (x - centre) ** 2)
    slope = float(weights @ ((x - centre) * y)) / inertia
    level = float(np.average(y, weights=weights)) - slope * centre
    if len(x) < 3:
        return PowerLaw(slope, factor=float(np.exp(level)))
    scatter = float(weights @ (y - level - slope * x) ** 2) / (len(x) - 2)
    half = float(stdtrit(len(x) - 2, (1 + CONFIDENCE) / 2) * np.sqrt((max(scatter, 1.0) if known else scatter) / inertia))
    return PowerLaw(slope, slope - half, slope + half, float(np.exp(level)))
