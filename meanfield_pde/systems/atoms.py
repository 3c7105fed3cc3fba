"""Clusters below the mesh: when the mass of some cells becomes an atom, when an atom takes up more, when two atoms are one.

A cluster that has shrunk into a cell is pinned to the mesh; as an atom, a point of the sphere with a mass, it moves on. After each step

    form    around a cell of largest density among its neighbours, if the flow contracts and the mass within `WINDOW` spacings has a
            root-mean-square width below `FORM` spacings in every direction: what lies within `REACH` becomes an atom at its centroid,
            unless another atom is within the window, or it is about to arrive at one (`ARRIVING`), as the tail of a cluster is;
    absorb  what lies within `REACH` spacings of an atom joins it, if the flow contracts there; the last `LEFTOVER` joins the nearest;
    merge   atoms closer than `MERGE` spacings join.

Centroids are kept, so mass is exact and int x dmu changes by the mass that moves times O(h^2); W1 changes by at most that mass times the
distance it moves, `REACH` spacings. A spacing is the local one, area^{1/(d-1)} of the cell. A ridge, a density that varies over several
cells and anything in a flow that expands stay on the mesh.

Data in: cell masses (n_cells,), atoms, what the flow does. Data out: new masses and atoms, and `Event`s.
"""

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import NamedTuple

import numpy as np
from scipy.spatial import cKDTree

from meanfield_pde.measure import Measure
from meanfield_pde.mesh.record import SphereMesh
from meanfield_pde.sphere import FloatArray, IntArray, distance, log_map, normalise
from meanfield_pde.systems.components import components
from meanfield_pde.threads import compiled, over_rows
from meanfield_pde.transport.reconstruction import LOOP_ROWS
from meanfield_pde.transport.stencil import Stencil

WINDOW, REACH, FORM, MERGE = 4.0, 2.0, 1.4, 1e-3
"""In spacings; see above. A ridge across the window has a width of 2.3, a uniform density of 2.3 (S^1) or 2.0 (S^2)."""

TIES = 1e-9
"""Cells beyond a radius by no more than that, relatively, count as within: on equal arcs, rounding must not choose."""

GATHERED = 0.5
"""Mass around a peak whose |int x dmu| / mass is smaller lies all around the sphere (on meshes of a few cells) and has no centroid."""

ARRIVING = 0.3
"""A peak that approaches an atom at this share of the local contraction rate, or faster, is the tail of that atom's cluster: it will be
absorbed, and no atom of its own forms."""

DENSE = 1e-3
"""Other candidates must have at least this multiple of the uniform density: fainter heaps are remains of clusters that were absorbed."""

PEAK, SPIKE = 1.2, 10.0
"""A cell is a candidate if its density is at least `PEAK` times the mean density of its neighbours. At `SPIKE` times or more, the peak is
narrower than half a spacing, whatever lies around it: then only what lies within `REACH` counts, atoms may be as near as that, and the
cell may be as faint as it likes."""

CLUSTER = 0.1
"""Atoms nearer than this, in radians, are counted as one cluster: they are about to merge."""

LEFTOVER = 1e-12
"""Cells that together hold less join the nearest atoms, so that the slow phase is one of atoms alone."""


@dataclass(frozen=True)
class Flow:
    """What the flow does. contraction: the rate at which lengths shrink in the union of some cells, 0 if it does not contract them.
    velocity: of points (m, d)."""

    contraction: Callable[[IntArray], float]
    velocity: Callable[[FloatArray], FloatArray]


class Event(NamedTuple):
    """kind: "formed", "absorbed", "merged" or "pinned". place: (d,), of the atom afterwards. mass: what formed, was absorbed or pinned, or
    the lighter of two that merged. radius: root-mean-square distance of that mass from the place, radians. total: the atom's mass
    afterwards."""

    t: float
    kind: str
    place: tuple[float, ...]
    mass: float
    radius: float
    total: float


@dataclass(frozen=True, eq=False)
class Neighbourhoods:
    """Which cells are near a point of a mesh."""

    mesh: SphereMesh
    stencil: Stencil
    spacings: FloatArray = field(init=False)
    tree: cKDTree = field(init=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "spacings", self.mesh.areas ** (1 / (self.mesh.dimension - 1)))
        object.__setattr__(self, "tree", cKDTree(self.mesh.centers))

    def within(self, point: FloatArray, radius: float) -> IntArray:
        """Cells whose centers lie within `radius` of their own spacings of a point, in increasing order."""
        chord = 2 * np.sin(min(radius * float(self.spacings.max()), np.pi) / 2)
        cells = np.array(sorted(self.tree.query_ball_point(point, chord * (1 + 1e-9))), dtype=np.int64)
        return cells[distance(self.mesh.centers[cells], point) <= radius * self.spacings[cells] * (1 + TIES)]

    def sharpness(self, cells: FloatArray) -> FloatArray:
        """The density of each cell over the mean of those that share a vertex with it, (n_cells,), 0 unless it is larger than them all;
        of equal ones the first counts."""
        found = np.empty(len(cells))
        arrays = (self.stencil.neighbour_offsets, self.stencil.neighbours, self.mesh.areas, cells, found)
        over_rows(_sharpness, len(cells), *arrays, minimum_rows=LOOP_ROWS)
        return found


def update_atoms(near: Neighbourhoods, t: float, cells: FloatArray, atoms: Measure, flow: Flow) -> tuple[FloatArray, Measure, list[Event]]:
    """Cell masses and atoms after forming, absorbing and merging, and what happened."""
    places, masses, events = list(atoms.points), atoms.masses.tolist(), list[Event]()
    peaks = _narrow_peaks(near, cells, places, flow)
    if not peaks and not places:
        return cells, atoms, []
    kept = cells.copy()
    for peak in peaks:
        place, mass, radius = _taken(near, kept, near.within(near.mesh.centers[peak], REACH))
        places.append(place)
        masses.append(mass)
        events.append(_event(t, "formed", place, mass, radius, mass))
    for k, rows in _captured(near, kept, places, flow):
        place, mass, radius = _taken(near, kept, rows)
        places[k] = normalise(masses[k] * places[k] + mass * place)
        masses[k] += mass
        events.append(_event(t, "absorbed", places[k], mass, radius, masses[k]))
    events += _merge(t, places, masses, MERGE * near.mesh.spacing)
    if not events:
        return cells, atoms, []
    return kept, Measure.trusted(np.array(places), np.array(masses)), events


def pinned_clusters(near: Neighbourhoods, t: float, cells: FloatArray, flow: Flow) -> list[Event]:
    """Where atoms would form: the clusters that a plain scheme holds fast."""
    events = []
    for peak in _narrow_peaks(near, cells, [], flow):
        rows = near.within(near.mesh.centers[peak], REACH)
        place, mass, radius = _centroid(near.mesh.centers[rows], cells[rows])
        events.append(_event(t, "pinned", place, mass, radius, mass))
    return events


def closest(atoms: Measure) -> float:
    """Smallest distance of two atoms, radians; inf if there are fewer."""
    return _closest_pair(atoms.points)[0] if len(atoms) > 1 else np.inf


def cluster_count(atoms: Measure) -> int:
    """Number of connected components of the graph that joins atoms nearer than `CLUSTER`."""
    if len(atoms) < 2:
        return len(atoms)
    return len(np.unique(components(np.unique(atoms.points, axis=0), 2 * np.sin(CLUSTER / 2))))


def _narrow_peaks(near: Neighbourhoods, cells: FloatArray, places: list[FloatArray], flow: Flow) -> list[int]:
    """Peaks around which an atom forms, heaviest first."""
    centers, taken, found = near.mesh.centers, list(places), list[int]()
    sharpness = near.sharpness(cells)
    peaks = np.flatnonzero(sharpness > PEAK)
    dense = cells[peaks] * near.mesh.areas.sum() >= DENSE * near.mesh.areas[peaks]
    peaks = peaks[dense | (sharpness[peaks] > SPIKE)]
    for peak in peaks[np.argsort(-cells[peaks], kind="stable")].tolist():
        spacing, window = near.spacings[peak], REACH if sharpness[peak] > SPIKE else WINDOW
        if taken and distance(np.array(taken), centers[peak]).min() < window * spacing:
            continue
        rows = near.within(centers[peak], window)
        mass = float(cells[rows].sum())
        if mass <= LEFTOVER or np.linalg.norm(cells[rows] @ centers[rows]) < GATHERED * mass:
            continue
        place, _, _ = _centroid(centers[rows], cells[rows])
        if _width(centers[rows], cells[rows], place) > FORM * spacing:
            continue
        rate = flow.contraction(rows)
        if rate > 0 and not _on_its_way(place, taken, rate, flow):
            taken.append(place)
            found.append(peak)
    return found


def _on_its_way(place: FloatArray, atoms: list[FloatArray], rate: float, flow: Flow) -> bool:
    """Whether a place closes in on the nearest atom so fast that it is there in a few of the times in which lengths shrink."""
    if not atoms:
        return False
    nearest = min(atoms, key=lambda atom: float(distance(place, atom)))
    here, there = flow.velocity(np.stack([place, nearest]))
    towards = log_map(place, nearest)
    gap = float(np.linalg.norm(towards))
    closing = float(here @ towards + there @ log_map(nearest, place)) / gap
    return closing > ARRIVING * rate * gap


def _captured(near: Neighbourhoods, cells: FloatArray, places: list[FloatArray], flow: Flow) -> list[tuple[int, IntArray]]:
    """For each atom that takes up mass now, its number and the cells."""
    if not places:
        return []
    tree, centers = cKDTree(np.array(places)), near.mesh.centers
    if 0 < cells.sum() <= LEFTOVER:
        rows = np.flatnonzero(cells)
        owner = tree.query(centers[rows])[1]
        return [(k, rows[owner == k]) for k in range(len(places)) if (owner == k).any()]
    captured = []
    for k, place in enumerate(places):
        rows = near.within(place, REACH)
        heavy = rows[cells[rows] > 0]
        heavy = heavy[tree.query(centers[heavy])[1] == k] if len(heavy) else heavy
        if len(heavy) and flow.contraction(rows) > 0:
            captured.append((k, heavy))
    return captured


def _taken(near: Neighbourhoods, cells: FloatArray, rows: IntArray) -> tuple[FloatArray, float, float]:
    """Centroid, mass and radius of what some cells held; they are emptied."""
    result = _centroid(near.mesh.centers[rows], cells[rows])
    cells[rows] = 0.0
    return result


def _centroid(points: FloatArray, masses: FloatArray) -> tuple[FloatArray, float, float]:
    """The normalised integral of x, the mass, and the root-mean-square distance from there."""
    mass = float(masses.sum())
    shares = masses / mass
    place = normalise(shares @ points)
    return place, mass, float(np.sqrt(shares @ distance(points, place) ** 2))


def _width(points: FloatArray, masses: FloatArray, place: FloatArray) -> float:
    """The largest root-mean-square distance from a place in one direction."""
    offsets = (points - place) * np.sqrt(masses / masses.sum())[:, None]
    return float(np.linalg.norm(offsets, 2))


def _merge(t: float, places: list[FloatArray], masses: list[float], tolerance: float) -> list[Event]:
    """Joins the closest two atoms until all are apart."""
    events = []
    while len(places) > 1:
        apart, a, b = _closest_pair(np.array(places))
        if apart > tolerance:
            break
        a, b = (a, b) if masses[a] >= masses[b] else (b, a)
        place = normalise(masses[a] * places[a] + masses[b] * places[b])
        events.append(_event(t, "merged", place, masses[b], float(distance(places[b], place)), masses[a] + masses[b]))
        places[a], masses[a] = place, masses[a] + masses[b]
        del places[b], masses[b]
    return events


def _closest_pair(points: FloatArray) -> tuple[float, int, int]:
    """Distance and numbers of the two points that are closest, of at least two."""
    chords, nearest = (np.asarray(found) for found in cKDTree(points).query(points, k=[1, 2]))
    a = int(chords[:, 1].argmin())
    b = int(nearest[a, 0]) if nearest[a, 0] != a else int(nearest[a, 1])
    return float(2 * np.arcsin(min(1.0, chords[a, 1] / 2))), a, b


def _event(t: float, kind: str, place: FloatArray, mass: float, radius: float, total: float) -> Event:
    return Event(t, kind, tuple(place.tolist()), mass, radius, total)


@compiled
def _sharpness(first, last, neighbour_offsets, neighbours, areas, cells, found):
    for i in range(first, last):
        own, total, found[i] = cells[i] / areas[i], 0.0, 0.0
        start, stop = neighbour_offsets[i], neighbour_offsets[i + 1]
        is_peak = own > 0.0
        for k in range(start, stop):
            j = neighbours[k]
            other = cells[j] / areas[j]
            total += other
            if other > own or (other == own and j < i):
                is_peak = False
                break
        if is_peak:
            found[i] = own * (stop - start) / total if total > 0.0 else np.inf
