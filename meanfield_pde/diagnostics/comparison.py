"""Two runs beside each other: energies, order parameters and distances at the times they share.

Data in: two solutions. Data out: one row per common time, printable and writable as CSV.
"""

from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from meanfield_pde import inputs
from meanfield_pde.diagnostics.distances import BYTES_PER_PAIR, aggregate, wasserstein
from meanfield_pde.diagnostics.measures import order_parameter
from meanfield_pde.files.tables import data_frame, write_csv
from meanfield_pde.measure import Measure
from meanfield_pde.mesh.families import icosahedral
from meanfield_pde.mesh.quadrature import cell_extents
from meanfield_pde.models.velocity import energy_of
from meanfield_pde.records import remembered
from meanfield_pde.solution import Solution
from meanfield_pde.sphere import FloatArray

if TYPE_CHECKING:
    import pandas

NAMES = ("t", "log_energy_a", "log_energy_b", "order_a", "order_b", "w1", "w2", "w_error")
RUN_COLUMNS = {"log_energy": "natural logarithm of the energy", "order": "order parameter, the length of the mean"}
DISTANCES = {
    "w1": "W1, geodesic cost",
    "w2": "W2, geodesic cost",
    "w_error": "bound of the error of the distances: mass at the centres of cells, and aggregation",
}
"""Names in words, for tables."""
SAME_TIME = 1e-9
"""Two outputs are of one time if they are no farther apart than this times the shorter run."""
LARGEST_PLAN = 2e9
"""Bytes that one exact transport plan may take; larger measures are aggregated first, and a note says so."""
AGGREGATION_LEVEL = 4


@dataclass(frozen=True, eq=False)
class Comparison:
    """columns: name -> (n_t,) array: t, log_energy_a, log_energy_b, order_a, order_b, w1, w2 (radians), w_error (bound of the error of w1:
    a density's mass sits at the centres of its cells, and aggregation moves mass; 0 between tokens where no mass is moved). labels: the
    kinds of the two runs. notes: what a reader must know."""

    labels: tuple[str, str]
    columns: dict[str, FloatArray]
    notes: tuple[str, ...]

    def __len__(self) -> int:
        return len(self.columns["t"])

    def __repr__(self) -> str:
        t, distances = self.columns["t"], self.columns["w1"]
        labels, when = " and ".join(self.labels), f"{len(self)} times, t = {t[0]:.6g} to {t[-1]:.6g}"
        return f"<Comparison of {labels} at {when}, W1 {distances[0]:.4g} to {distances[-1]:.4g}; print() shows the table>"

    def to_pandas(self) -> "pandas.DataFrame":
        """One row per time, with units, long names, the kinds of the two runs and the notes as attributes.

        Raises ValueError if pandas is not installed.
        """
        known = {"t": ("1", "time")} | {name: ("rad", long) for name, long in DISTANCES.items()}
        for letter, label in zip("ab", self.labels, strict=True):
            known |= {f"{name}_{letter}": ("1", f"{long}, {label}") for name, long in RUN_COLUMNS.items()}
        return data_frame(self.columns, known, labels=self.labels, notes=self.notes)

    def __str__(self) -> str:
        columns, logs = self.columns, ("log_energy_a", "log_energy_b")
        logarithmic = max(columns[name].max() for name in logs) > 10
        shown = columns if logarithmic else columns | {name: np.exp(columns[name]) for name in logs}
        energy = "log energy" if logarithmic else "energy"
        heads = ["t", *(f"{what} {label}" for what in (energy, "order") for label in self.labels), "W1", "W2", "W error"]
        digits = next((n for n in range(6, 17) if len({f"{t:.{n}g}" for t in columns["t"]}) == len(self)), 17)
        formats = [f"{{:.{digits}g}}", *["{:.6f}"] * 4, *["{:.5f}"] * 3]
        cells = [[head, *map(form.format, shown[name])] for name, head, form in zip(NAMES, heads, formats, strict=True)]
        cells = cells if columns["w_error"].any() else cells[:-1]
        cells = [[text.rjust(max(map(len, column))) for text in column] for column in cells]
        return "\n".join([*map("  ".join, zip(*cells, strict=True)), *(f"note: {note}" for note in self.notes)])

    def write_csv(self, path: str | Path) -> None:
        """All columns with 17 digits, under a temporary name first."""
        write_csv(path, tuple(self.columns), zip(*self.columns.values(), strict=True))


def compare(a: Solution, b: Solution) -> Comparison:
    """Energies, order parameters and Wasserstein distances of two runs at their common times.

    An output is paired with at most one of the other run: the nearest one, within 1e-9 of the length of the shorter run.
    Each run's energy is that of its own model at that time, nan if it has none. On S^2, measures too large for an exact plan are
    aggregated to the cells of icosahedral(4), and the largest error this makes is a column; in higher dimensions such distances are nan,
    with a note. The mass of a cell sits at its centre: that shifts W1 by up to its points' mean distance from there, a quarter of an arc on
    S^1 and .38 spacings on S^2, which is in `w_error`; distances below it tell nothing but the mesh.
    Raises ValueError if the runs share no time or live in different dimensions.
    """
    inputs.instance("a", a, Solution)
    inputs.instance("b", b, Solution)
    pairs = _common_times(a.times, b.times)
    if not pairs:
        raise ValueError("the two runs share no output time, wanted at least one: give both the same save_every")
    first, second = a.measure(0), b.measure(0)
    if first.dimension != second.dimension:
        raise ValueError(f"the runs live in R^{first.dimension} and R^{second.dimension}, wanted one dimension")
    rows, notes = [], dict[str, None]()
    for i, j in pairs:
        mu, nu = a.measure(i), b.measure(j)
        (w1, w2), error, note = distances(mu, nu, LARGEST_PLAN)
        notes |= dict.fromkeys([note] if note else [])
        error += sum(_off_centre(solution, k) for solution, k in ((a, i), (b, j)))
        energies = (energy_of(a.model, mu, float(a.times[i])).log, energy_of(b.model, nu, float(b.times[j])).log)
        rows.append((a.times[i], *energies, order_parameter(mu), order_parameter(nu), w1, w2, error))
    labels = (a.kind, b.kind) if a.kind != b.kind else (f"{a.kind} a", f"{b.kind} b")
    return Comparison(labels, dict(zip(NAMES, np.array(rows).T, strict=True)), tuple(notes))


def _off_centre(solution: Solution, output: int) -> float:
    """W1 between the cells of a density with their mass spread in them and with all of it at their centres, at most."""
    mesh = solution.system.mesh
    if mesh is None:
        return 0.0
    extents = remembered("mean distances within cells", mesh.vertices, partial(cell_extents, mesh))
    return float(solution.masses[output] @ extents)


def _common_times(a: FloatArray, b: FloatArray) -> list[tuple[int, int]]:
    """Numbers of outputs of two runs that are each other's nearest and of one time."""
    there, back = ([int(np.abs(times - t).argmin()) for t in others] for times, others in ((b, a), (a, b)))
    apart = SAME_TIME * min(a[-1], b[-1])
    return [(i, j) for i, j in enumerate(there) if back[j] == i and abs(a[i] - b[j]) <= apart]


def distances(mu: Measure, nu: Measure, largest_plan: float, orders: tuple[int, ...] = (1, 2)) -> tuple[list[float], float, str]:
    """W_p for each of the orders p, the error of aggregation, and a note; largest_plan: bytes that an exact plan may take."""
    d, error, note = mu.dimension, 0.0, ""
    needed = int((mu.masses > 0).sum()) * int((nu.masses > 0).sum()) * BYTES_PER_PAIR
    if d > 2 and needed > largest_plan:
        size = f"{len(mu)} x {len(nu)} points"
        if d > 3:
            return [np.nan] * len(orders), np.nan, f"W1 and W2 are left out: an exact plan of {size} takes {needed / 1e9:.1f} GB"
        centers = icosahedral(AGGREGATION_LEVEL).centers
        (mu, moved), (nu, moved_too) = (aggregate(m, centers) if len(m) > len(centers) else (m, 0.0) for m in (mu, nu))
        error = moved + moved_too
        cells = f"{len(centers)} cells of icosahedral({AGGREGATION_LEVEL})"
        note = f"W1 and W2 of {size} are taken after aggregation to the {cells}, see W error"
    return [wasserstein(mu, nu, order) for order in orders], error, note
