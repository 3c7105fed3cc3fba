"""Metastable stages: while the number of clusters stays, they hardly move, and the energy is a stair.

Data in: a run. Data out: one `Stage` after the other. Source: 2312.10794 and 2410.06833 (dynamic metastability).
"""

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from itertools import pairwise
from typing import Any

import numpy as np

from meanfield_pde import inputs
from meanfield_pde.diagnostics.measures import clusters
from meanfield_pde.measure import Measure
from meanfield_pde.models.velocity import VelocityModel, as_model, energy_of
from meanfield_pde.solution import Solution
from meanfield_pde.sphere import FloatArray, IntArray, distance
from meanfield_pde.systems.atoms import CLUSTER

SETTLED = 0.01
"""Stages begin once at most this share of the mass is outside the clusters."""


@dataclass(frozen=True)
class Stage:
    """t_start, t_end: of the interval, within the run. clusters: their number. masses: theirs, heaviest first, at the end. energy,
    log_energy: the median over the interval, which a merger at its end does not move (energy is inf beyond double precision)."""

    t_start: float
    t_end: float
    clusters: int
    masses: tuple[float, ...]
    energy: float
    log_energy: float


def stages(solution: Solution, angle: float = CLUSTER) -> list[Stage]:
    """The maximal intervals in which the number of clusters is constant.

    A density is read step by step: its clusters are its atoms, those within `atoms.CLUSTER` of one another counted once, from when
    `SETTLED` or less is left on the cells; between atoms alone the times are located within steps. With another angle (radians) it is read
    at the outputs, and atoms within that angle are counted once. Tokens are read at the outputs: their clusters are those of
    `clusters(measure, angle)` with more than `SETTLED` of the mass, from when no more than that is farther than the angle from all their
    centres.
    Raises ValueError for a bad angle, or a density with atoms=False, whose clusters do not move.
    """
    inputs.instance("solution", solution, Solution)
    angle = inputs.number("angle", angle, above=0.0)
    if solution.system.mesh is not None and not solution.system.atoms:  # type: ignore[attr-defined]
        raise ValueError("solution is a density with atoms=False, wanted atoms=True: pinned clusters have no stages of their own")
    if solution.system.mesh is None or angle != CLUSTER:
        outputs = range(len(solution.times))
        held = [_clusters_at(solution, k, angle) for k in outputs]
        logs = np.array([energy_of(solution.model, solution.measure(k), float(solution.times[k])).log for k in outputs])
        return _found(float(solution.times[0]), solution.times, np.array([len(masses) for masses in held]), logs, held.__getitem__)
    history = solution.history
    counts = np.where(history.cell_mass <= SETTLED, history.clusters, 0).astype(np.int64)
    return _found(0.0, history.t, counts, history.log_energy, partial(_masses_of_atoms, solution, counts))


def metastable(model: VelocityModel | Any, speed: float) -> "Metastable":
    """A callback for `solve` that ends a run once the mass-weighted mean of |X[mu]| is below `speed` (1/time).

    The run's status then says "metastable": clusters that hardly move may still merge after times like e^{c beta}, and a start that is
    almost uniform hardly moves either. Raises ValueError unless speed > 0.
    """
    return Metastable(as_model("model", model), inputs.number("speed", speed, above=0.0))


@dataclass(frozen=True)
class Metastable:
    """What `metastable` returns."""

    model: VelocityModel
    speed: float

    def __call__(self, t: float, measure: Measure) -> str | None:
        heavy = measure.masses > 0
        velocity = self.model.field(measure, t).weighing(measure.masses[heavy]).velocity(measure.points[heavy])
        speeds = np.linalg.norm(velocity, axis=1)
        mean = float(measure.masses[heavy] @ speeds) / measure.total
        return f"metastable: mean speed {mean:.3g} is below {self.speed:g}" if mean < self.speed else None


def _found(t: float, times: FloatArray, counts: IntArray, logs: FloatArray, masses: Callable[[int], list[float]]) -> list[Stage]:
    """Stages of a series that begins at t: intervals of one count other than 0. masses: gives those of the clusters at a row."""
    found = []
    for first, after in pairwise([0, *(np.flatnonzero(np.diff(counts)) + 1).tolist(), len(counts)]):
        if after > first and counts[first]:
            begin, end = float(times[first]) if first else t, float(times[min(after, len(times) - 1)])
            found.append(_stage(begin, end, masses(after - 1), times[first:after], logs[first:after]))
    return found


def _stage(t_start: float, t_end: float, masses: list[float], times: FloatArray, logs: FloatArray) -> Stage:
    lasted = np.diff(times, prepend=t_start)
    order = np.argsort(logs, kind="stable")
    half = int(np.searchsorted(np.cumsum(lasted[order]), lasted.sum() / 2))
    level = float(logs[order[min(half, len(order) - 1)]])
    with np.errstate(over="ignore"):
        return Stage(t_start, t_end, len(masses), tuple(sorted(masses, reverse=True)), float(np.exp(level)), level)


def _masses_of_atoms(solution: Solution, counts: IntArray, step: int) -> list[float]:
    """Masses of the clusters after a step: those of the atoms, and where atoms of one cluster had yet to merge, the masses after that."""
    masses, t, count = solution.atoms(0).masses.tolist(), solution.history.t[step], counts[step]
    for event in solution.events:
        if event.t > t and (len(masses) == count or event.kind != "merged"):
            continue
        before = event.total - event.mass
        for mass in {"formed": [], "merged": [before, event.mass]}.get(event.kind, [before]):
            masses.pop(int(np.argmin(np.abs(np.array(masses) - mass))))  # the nearest: equality is spoilt by rounding
        masses.append(float(event.total))
    return masses if len(masses) == count else [mass for mass, _ in clusters(solution.atoms(-1), CLUSTER)]


def _clusters_at(solution: Solution, output: int, angle: float) -> list[float]:
    """The masses of clusters at an output: tokens' own, or those of a density's atoms."""
    measure = solution.measure(output)
    if solution.system.mesh is None:
        return settled_clusters(measure, angle)
    atoms = solution.atoms(output)
    settled = len(atoms) > 0 and measure.total - atoms.total <= SETTLED
    return [mass for mass, _ in clusters(atoms, angle)] if settled else []


def settled_clusters(measure: Measure, angle: float) -> list[float]:
    """The masses of clusters with over `SETTLED` of the mass; none while more than that is farther than the angle from all centres."""
    masses, outside = _settling(measure, angle)
    return masses if outside <= SETTLED else []


def _settling(measure: Measure, angle: float) -> tuple[list[float], float]:
    """The masses of clusters with over `SETTLED` of the mass, and the share of it that is farther than the angle from all their centres."""
    heavy = [(mass, centre) for mass, centre in clusters(measure, angle) if mass > SETTLED * measure.total]
    if not heavy:
        return [], 1.0
    nearest = np.min([distance(measure.points, centre) for _, centre in heavy], axis=0)
    return [mass for mass, _ in heavy], float(measure.masses[nearest > angle].sum()) / measure.total


def why_no_stages(solution: Solution, angle: float = CLUSTER) -> str:
    """A sentence for a run without stages: how much of its mass is outside clusters where that is least."""
    if solution.system.mesh is None:
        outside = [_settling(solution.measure(k), angle)[1] for k in range(len(solution.times))]
    else:
        outside = solution.history.cell_mass.tolist()
    least = f"at least {100 * min(outside):.3g} % of the mass is outside clusters at every time" if outside else "it made no step"
    return f"no stages: {least}, wanted at most {100 * SETTLED:g} % at some time"
