"""What is read off a state: energy, order parameter, clusters and entropy; pure functions of measures and cell averages.

    E(mu) = 1/(2 beta) iint e^{beta <Qx, Ky>} dmu(x) dmu(y),   |int x dmu|,   components of {d(x, y) < angle},   -int rho log rho

Data in: a measure (points (n, d), masses (n,)) or averages (n_cells,). Data out: plain numbers, dimensionless.
Source: Geshkovski, Letrouit, Polyanskiy, Rigollet, arXiv:2312.10794 (energy).
"""

import math
from typing import Protocol

import numpy as np
from numpy.typing import ArrayLike
from scipy.special import entr

from meanfield_pde import inputs
from meanfield_pde.components import components
from meanfield_pde.measure import Measure
from meanfield_pde.scaled import Scaled
from meanfield_pde.sphere import FloatArray


class Interaction(Protocol):
    """What the energy needs of a velocity model."""

    def energy(self, measure: Measure) -> Scaled: ...


class Cells(Protocol):
    """What the entropy needs of a mesh: the areas of its cells, (n_cells,)."""

    @property
    def areas(self) -> FloatArray: ...


def energy(attention: Interaction, measure: Measure) -> float:
    """E(mu) = 1/(2 beta) iint e^{beta <Qx, Ky>} dmu dmu (2312.10794), scaling with the square of the mass.

    At beta = 0 it is the finite part, the limit of E - mass^2/(2 beta): <Q m, K m>/2 with m = int x dmu, which is |m|^2/2 for Q = K = I.
    Sums are compensated. Raises OverflowError where the result exceeds the largest float (beta above about 700): use log_energy.
    """
    scaled = attention.energy(measure)
    if not math.isfinite(scaled.value):
        raise OverflowError(f"the energy is e^{scaled.log:.6g}, too large for a float; use log_energy")
    return scaled.value


def log_energy(attention: Interaction, measure: Measure) -> float:
    """log E(mu), for any beta without overflow; -inf for a measure without mass.

    At beta = 0 the logarithm of the finite part that `energy` returns: -inf where int x dmu = 0, nan where <Q m, K m> < 0.
    """
    return attention.energy(measure).log


def order_parameter(measure: Measure) -> float:
    """|int x dmu|: the mass for a single cluster, 0 for the uniform measure."""
    return float(np.linalg.norm(measure.mean()))


def clusters(measure: Measure, angle: float, *, floor: float = 0.0) -> list[tuple[float, FloatArray]]:
    """Clusters of the measure, (mass, centre (d,)) each, heaviest first.

    A cluster is a connected component of the graph that joins points with mass closer than `angle` (geodesic, radians, 0 < angle < pi):
    a chain of points, each within `angle` of the next, is one cluster however long it is. The centre is the normalised integral of x over
    the cluster; where that vanishes (a ring, say) it is the heaviest point.

    Every point with mass takes part. For a density, which has mass in every cell, that makes the whole mesh one cluster: `floor`
    (0 <= floor < 1) leaves out points whose mass is at most floor times the largest, so that a cluster is a hill above that level (0.1,
    say) and the masses returned add up to that of the hills. Choose an angle above 1.5 times the distance of cell centres there.

    Exact for any points; memory O(n). Raises ValueError if angle or floor is out of range.
    """
    angle = inputs.number("angle", angle, above=0)
    if not angle < np.pi:
        raise ValueError(f"angle is {angle:g}, wanted a number < pi")
    floor = inputs.number("floor", floor, low=0)
    if not floor < 1:
        raise ValueError(f"floor is {floor:g}, wanted a number < 1")
    kept = measure.masses > floor * measure.masses.max(initial=0.0)
    if not kept.any():
        return []
    points, place = np.unique(measure.points[kept], axis=0, return_inverse=True)
    masses = np.bincount(place.ravel(), weights=measure.masses[kept])
    labels = components(points, 2 * math.sin(angle / 2))
    mass = np.bincount(labels, weights=masses)
    moments = np.stack([np.bincount(labels, weights=masses * x) for x in points.T], axis=1)
    found = []
    for cluster in np.argsort(-mass, kind="stable"):
        length = float(np.linalg.norm(moments[cluster]))
        if length > 1e-12 * mass[cluster]:
            centre = moments[cluster] / length
        else:
            centre = points[np.argmax(np.where(labels == cluster, masses, 0))].copy()
        found.append((float(mass[cluster]), centre))
    return found


def entropy(mesh: Cells, averages: ArrayLike) -> float:
    """-sum_i area_i rho_i log rho_i with 0 log 0 = 0; log(area of the sphere) for the uniform density, its largest value.

    averages: (n_cells,), density with respect to surface measure. Raises ValueError for a wrong shape or a negative average.
    """
    density = inputs.array("averages", averages, (len(mesh.areas),))
    inputs.non_negative("averages", density)
    return math.fsum(mesh.areas * entr(density))
