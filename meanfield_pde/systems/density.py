"""The density solver: field, transport of cell masses, and what lies below the mesh.

    d/dt (rho_i area_i) = -sum of upwind fluxes,     d/dt x_k = X[mu](x_k),     mu = cells + sum_k m_k delta_{x_k}

Data in: a mesh, a velocity model, cell averages, atoms. Data out: mass rates, velocities of atoms. The state is the masses of the cells
(n_cells,), not their averages - masses change by what crosses faces, so rounding has no preferred sign - and atoms, which move like
tokens; `atoms` says when mass becomes one. One field serves a rate: cells, atoms and the energy ask the same one.
"""

from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from meanfield_pde import inputs
from meanfield_pde.integrals.methods import Method, resolve_method
from meanfield_pde.integrals.scaled import Scaled
from meanfield_pde.measure import Measure
from meanfield_pde.mesh.record import SphereMesh
from meanfield_pde.models.velocity import Field, VelocityModel, as_model
from meanfield_pde.records import Record, frozen
from meanfield_pde.sphere import FloatArray, normalise
from meanfield_pde.systems.atoms import MERGE, Event, Flow, Neighbourhoods, closest, cluster_count, pinned_clusters, update_atoms
from meanfield_pde.systems.system import Rate, SolveError, Statistics, refuse_non_finite
from meanfield_pde.transport.transport import Transport

MASS_TOLERANCE = 1e-9


@dataclass(frozen=True, eq=False)
class State(Record):
    """A start that is partly on cells, partly in atoms. averages: (n_cells,), >= 0, in 1/area. atoms: a `Measure`; None for none.

    Raises ValueError if averages are not finite or negative.
    """

    averages: FloatArray
    atoms: Measure | None

    def __init__(self, averages: ArrayLike, atoms: Measure | None = None) -> None:
        checked = inputs.array("averages", averages, ("n_cells",))
        inputs.non_negative("averages", checked)
        if atoms is not None:
            inputs.instance("atoms", atoms, Measure)
        object.__setattr__(self, "averages", frozen(checked))
        object.__setattr__(self, "atoms", atoms)


@dataclass(frozen=True, eq=False)
class DensityState:
    """The state of a run: the masses of the cells (n_cells,), and atoms."""

    mesh: SphereMesh
    cells: FloatArray
    atoms: Measure

    @classmethod
    def of(cls, mesh: SphereMesh, cells: FloatArray, atoms: Measure | None = None) -> "DensityState":
        """The state with these masses, unchecked; atoms without mass are left out."""
        if atoms is None:
            return cls(mesh, cells, Measure.trusted(np.empty((0, mesh.dimension)), np.empty(0)))
        heavy = atoms.masses > 0
        return cls(mesh, cells, Measure.trusted(normalise(atoms.points[heavy]), atoms.masses[heavy]))

    @cached_property
    def is_discrete(self) -> bool:
        """Whether no cell has mass."""
        return not self.cells.any()

    @cached_property
    def measure(self) -> Measure:
        """The masses at the centers of their cells, and the atoms; these alone if no cell has mass."""
        return Measure.joined(Measure.on_cells(self.mesh.centers, self.cells, self.mesh.areas), self.atoms)


@dataclass(frozen=True, eq=False)
class MeanFieldPDE(Record):
    """The continuity equation d_t mu + div(mu X[mu]) = 0 (2312.10794) on a mesh.

    model: `Attention`, another `VelocityModel` or an object with velocity(points, measure, t). order: 2 (limited linear) or 1 (upwind).
    method: how the integrals are computed: "auto", "direct", "spectral" or an object such as `Spectral(accuracy=...)`. atoms: whether
    clusters below the mesh become atoms (`systems/atoms.py` has the rules); False is the plain scheme, which pins them. A start is cell
    averages (n_cells,), >= 0, in 1/area, or a `State`, of total mass 1. Raises ValueError if an argument or a start does not fit.
    """

    mesh: SphereMesh
    model: VelocityModel | Any
    order: int = 2
    method: str | Method = "auto"
    atoms: bool = True

    def __post_init__(self) -> None:
        inputs.instance("mesh", self.mesh, SphereMesh)
        object.__setattr__(self, "model", as_model("model", self.model))
        object.__setattr__(self, "order", inputs.integer("order", self.order, low=1, high=2))
        if not isinstance(self.atoms, bool):
            raise ValueError(
                f"atoms is {inputs.shown(self.atoms)}, wanted True or False; starting atoms belong into State(averages, atoms)"
            )
        resolve_method(self.method)
        d = self.model.dimension
        if d not in (None, self.mesh.dimension):
            raise ValueError(f"model has {d} x {d} matrices, wanted {self.mesh.dimension} x {self.mesh.dimension} like the mesh")

    kind = "density"
    default_stepper = "ssprk3"
    locates = True
    rate_accuracy = 1e-12

    @property
    def courant_limit(self) -> float:
        """Largest outflow Courant number that keeps masses >= 0."""
        return self.transport.courant_limit

    @cached_property
    def transport(self) -> Transport:
        """Made when a run begins: a run that is only looked at needs none."""
        return Transport(self.mesh, self.order)

    def begin(self, start: ArrayLike | State) -> DensityState:
        averages, atoms = (start.averages, start.atoms) if isinstance(start, State) else (start, None)
        averages = inputs.array("start", averages, (self.mesh.n_cells,))
        inputs.non_negative("start", averages)
        if atoms is not None and atoms.dimension != self.mesh.dimension:
            raise ValueError(f"the start's atoms lie in R^{atoms.dimension}, wanted R^{self.mesh.dimension} like the mesh")
        if atoms is not None and len(atoms) and not self.atoms:
            raise ValueError(f"the start has {len(atoms)} atoms with atoms=False, wanted none: the plain scheme does not move them")
        state = DensityState.of(self.mesh, averages * self.mesh.areas, atoms)
        if abs(state.measure.total - 1) > MASS_TOLERANCE:
            raise ValueError(f"start has mass {state.measure.total:.12g}, wanted 1 (sum of averages times areas, and atoms)")
        return state

    def rate(self, t: float, state: DensityState) -> Rate:
        field = self._field(t, state)
        cells = None if state.is_discrete else self.transport.rate(state.cells, field)
        if cells is not None:
            refuse_non_finite(t, "the rate of cell", cells.change)
        velocities = np.empty((0, self.mesh.dimension))
        if len(state.atoms):
            velocities = field.velocity(state.atoms.points)
            refuse_non_finite(t, "the velocity of atom", velocities)
        if cells is None:
            return Rate(velocities.ravel(), speed=field.speed_bound, field=field)
        change = np.concatenate([cells.change, velocities.ravel()]) if len(velocities) else cells.change
        return Rate(change, cells.outflow, cells.worst, field.speed_bound, field, cells)

    def pack(self, state: DensityState) -> FloatArray:
        if state.is_discrete:
            return state.atoms.points.ravel()
        return np.concatenate([state.cells, state.atoms.points.ravel()]) if len(state.atoms) else state.cells

    def unpack(self, vector: FloatArray, like: DensityState) -> DensityState:
        n = 0 if like.is_discrete else self.mesh.n_cells
        cells = like.cells if like.is_discrete else vector[:n]
        if not len(like.atoms):
            return DensityState(self.mesh, cells, like.atoms)
        points = normalise(vector[n:].reshape(like.atoms.points.shape))
        return DensityState(self.mesh, cells, Measure.trusted(points, like.atoms.masses))

    def check(self, t: float, state: DensityState) -> None:
        mass = float(state.cells.sum()) + state.atoms.total
        if not np.isfinite(mass):
            refuse_non_finite(t, "the mass of cell", state.cells)
        refuse_non_finite(t, "atom", state.atoms.points)
        lowest = int(state.cells.argmin())
        if state.cells[lowest] < 0:
            raise SolveError(f"the mass of cell {lowest} is {state.cells[lowest]:.3g} at t = {t:.9g}, wanted >= 0: the step was too long")
        if abs(mass - 1) > 2 * MASS_TOLERANCE:  # a start may use up one
            raise SolveError(f"the mass is {mass:.12g} at t = {t:.9g}, wanted 1: what leaves one cell did not enter the next")

    def after_step(self, t: float, state: DensityState, rate: Rate | None, events: list[Event]) -> tuple[DensityState, list[Event]]:
        """Atoms form, absorb and merge; the plain scheme only says where they would form."""
        cells = None if rate is None else rate.cells
        flow = Flow(
            lambda rows: 0.0 if cells is None else self.transport.contraction(rows, cells),
            lambda points: self._field(t, state, few_points=True).velocity(points),
        )
        if not self.atoms:
            return state, [] if events else pinned_clusters(self._neighbourhoods, t, state.cells, flow)[:1]
        masses, atoms, happened = update_atoms(self._neighbourhoods, t, state.cells, state.atoms, flow)
        return (DensityState(self.mesh, masses, atoms) if happened else state), happened

    def configuration(self, state: DensityState) -> Hashable:
        return closest(state.atoms) <= MERGE * self.mesh.spacing, cluster_count(state.atoms)

    def is_discrete(self, state: DensityState) -> bool:
        return state.is_discrete

    def statistics(self, state: DensityState) -> Statistics:
        return Statistics(float(state.cells.min()), len(state.atoms), cluster_count(state.atoms), float(state.cells.sum()))

    def measure(self, state: DensityState) -> Measure:
        return state.measure

    def energy(self, t: float, state: DensityState, rate: Rate | None) -> Scaled:
        return (self._field(t, state) if rate is None or rate.field is None else rate.field).energy()

    def columns(self, states: Sequence[DensityState]) -> dict[str, np.ndarray]:
        """masses (n_t, n_cells); atom_points (n, d) and atom_masses (n,) of all outputs, those of output k from atom_offsets[k] on."""
        d = self.mesh.dimension
        return {
            "masses": np.array([state.cells for state in states]),
            "atom_offsets": np.cumsum([0, *(len(state.atoms) for state in states)]),
            "atom_points": np.concatenate([np.empty((0, d)), *(state.atoms.points for state in states)]),
            "atom_masses": np.concatenate([np.empty(0), *(state.atoms.masses for state in states)]),
        }

    def restored(self, columns: Mapping[str, Any], k: int) -> DensityState:
        first, last = columns["atom_offsets"][k : k + 2]
        atoms = Measure.trusted(columns["atom_points"][first:last], columns["atom_masses"][first:last])
        return DensityState(self.mesh, np.asarray(columns["masses"][k]), atoms)

    def described(self) -> dict[str, Any]:
        two_point = self.transport.uses_potential(self.model.is_gradient)
        return {
            "method": str(self.method),
            "mesh": f"{self.mesh.name}, {self.mesh.n_cells} cells, spacing {self.mesh.spacing:.4g}",
            "order": self.order,
            "atoms": self.atoms,
            "face velocity": "potential" if two_point else "midpoint",
        }

    def _field(self, t: float, state: DensityState, few_points: bool = False) -> Field:
        """few_points: it will be asked for few points, or is caused by few: atoms, whose velocities may be exponentially small. Sums, then,
        unless there are many."""
        few_points = few_points or state.is_discrete
        return self.model.field(state.measure, t, "auto" if few_points and self.method != "direct" else self.method)

    @cached_property
    def _neighbourhoods(self) -> Neighbourhoods:
        return Neighbourhoods(self.mesh, self.transport.stencil)
