"""Energies and order parameters |int x dmu| of runs over time.

Data in: runs. Data out: curves in a panel, one per run.
"""

import numpy as np

from meanfield_pde.diagnostics.measures import order_parameter
from meanfield_pde.models.velocity import energy_of
from meanfield_pde.pictures.canvas import COLOURS, STYLES, Axes
from meanfield_pde.solution import Solution
from meanfield_pde.sphere import FloatArray

LINEAR_ENERGY = 100.0
"""Energies that vary by less than this factor, and stay below its square, have a linear scale."""
SMALLEST_SPAN = 1e-3
"""Energies (relative) and order parameters that vary by less are drawn flat, not magnified to their rounding errors."""
MARKERS = {"density": "o", "tokens": "s"}
"""On curves of three points or fewer, by kind of run."""


def has_energy(run: Solution) -> bool:
    """Whether its steps have energies: a run without steps has none, nor has a model without an energy."""
    return not np.isnan(run.history.energy).all()


def energy_curves(panel: Axes, runs: list[Solution]) -> None:
    """Energies of runs that have some (`has_energy`), or their logarithms where energies are too large or vary too much."""
    values, logs = (np.concatenate([run.history[name] for run in runs]) for name in ("energy", "log_energy"))
    linear = bool(np.isfinite(values).all()) and float(np.abs(values).max()) < LINEAR_ENERGY**2
    if np.isfinite(logs).all() and np.ptp(logs) > np.log(LINEAR_ENERGY):
        linear = False
    for run in runs:
        start = energy_of(run.model, run.measure(0), float(run.times[0]))  # the history begins after the first step
        energies = [[start.value], run.history.energy] if linear else [[start.log], run.history.log_energy]
        _curve(panel, run, np.concatenate([run.times[:1], run.history.t]), np.concatenate(energies))
    low, high = panel.get_ylim()
    missing = SMALLEST_SPAN * (abs(high) if linear else 1.0) - (high - low)
    if missing > 0:
        panel.set_ylim(low - missing / 2, high + missing / 2)
    panel.ticklabel_format(axis="y", useOffset=False)
    panel.set_ylabel("energy $E$" if linear else "log energy, $\\log E$")


def order_curves(panel: Axes, runs: list[Solution], label: str = "order parameter $|\\int x\\,d\\mu|$") -> None:
    top = SMALLEST_SPAN
    for run in runs:
        values = np.array([order_parameter(run.measure(k)) for k in range(len(run.times))])
        _curve(panel, run, run.times, values)
        top = max(top, float(values.max()))
    panel.set_ylim(0, 1.04 if top > 0.5 else 1.08 * top)
    panel.set_ylabel(label)


def _curve(panel: Axes, run: Solution, t: FloatArray, values: FloatArray) -> None:
    label = f"tokens ($n$ = {run.tokens.shape[1]})" if run.kind == "tokens" else f"density ({run.mesh.n_cells} cells)"
    marker = MARKERS[run.kind] if len(t) <= 3 else ""
    panel.plot(t, values, label=label, linestyle=STYLES[run.kind], color=COLOURS[run.kind], marker=marker, markersize=4)
