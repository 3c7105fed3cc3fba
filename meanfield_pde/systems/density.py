"""The density solver: d/dt (rho_i area_i) = -sum of upwind fluxes, with velocities that the density itself causes.

Data in: a mesh, a velocity model, cell averages, atoms. Data out: mass rates, velocities of atoms. The state is the masses of the cells
(n_cells,), not their averages - masses change by what crosses faces, so rounding has no preferred sign - and atoms, which move like
tokens; `atoms` says when mass becomes one. Face velocities are two-point differences of the potential at the centers where the field is a
gradient and the mesh orthogonal - they keep the energy law of the equation: with first order, Euler, sums and these velocities the convex
energy never falls - and otherwise the field at face midpoints.
"""

import threading
from collections import Counter
from collections.abc import Hashable
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from meanfield_pde import inputs
from meanfield_pde.integrals.methods import Method, resolve_method
from meanfield_pde.integrals.scaled import Scaled
from meanfield_pde.measure import Measure
from meanfield_pde.mesh.record import SphereMesh
from meanfield_pde.records import equal, frozen
from meanfield_pde.sphere import FloatArray, IntArray, dot, normalise
from meanfield_pde.systems.atoms import CONTRACTING, MERGE, Event, Flow, Neighbourhoods, closest, cluster_count, pinned, settle
from meanfield_pde.systems.system import Rate, SolveError, VelocityModel, model_energy, potential_of, refuse_non_finite, velocity_of
from meanfield_pde.transport import flux, reconstruction
from meanfield_pde.transport.stencil import Stencil, stencil

MASS_TOLERANCE = 1e-9


@dataclass(frozen=True, eq=False)
class State:
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

    def __eq__(self, other: object) -> bool:
        return equal(self, other)


@dataclass(frozen=True, eq=False)
class Masses:
    """The state of a run: the masses of the cells (n_cells,), and atoms."""

    cells: FloatArray
    atoms: Measure

    @cached_property
    def is_discrete(self) -> bool:
        """Whether no cell has mass."""
        return not self.cells.any()


@dataclass(frozen=True, eq=False)
class MeanFieldPDE:
    """The continuity equation d_t mu + div(mu X[mu]) = 0 (2312.10794) on a mesh.

    attention: `Attention` or any velocity model. order: 2 (limited linear) or 1 (upwind). method: how the attention's integrals are
    computed: "auto", "direct", "spectral" or an object of `attention.integrals`. atoms: whether clusters below the mesh become atoms
    (`atoms` has the rules); False is the plain scheme, which pins them. A start is cell averages (n_cells,), >= 0, in 1/area, or a
    `State`, of total mass 1. Raises ValueError if an argument or a start does not fit.
    """

    mesh: SphereMesh
    attention: VelocityModel
    order: int = 2
    method: str | Method = "auto"
    atoms: bool = True
    _kept: dict[Any, Any] = field(init=False, repr=False, default_factory=dict)

    def __post_init__(self) -> None:
        inputs.instance("mesh", self.mesh, SphereMesh)
        inputs.velocity_model("attention", self.attention)
        object.__setattr__(self, "order", inputs.integer("order", self.order, low=1, high=2))
        if not isinstance(self.atoms, bool):
            raise ValueError(
                f"atoms is {inputs.shown(self.atoms)}, wanted True or False; starting atoms belong into State(averages, atoms)"
            )
        resolve_method(self.method)
        d = getattr(self.attention, "dimension", None)
        if d not in (None, self.mesh.dimension):
            raise ValueError(f"attention has {d} x {d} matrices, wanted {self.mesh.dimension} x {self.mesh.dimension} like the mesh")

    kind = "density"
    default_stepper = "ssprk3"
    rate_accuracy = 1e-12

    @property
    def courant_limit(self) -> float:
        """Largest outflow Courant number that keeps masses >= 0: 1, or 1/2 for order 2, whose face values reach twice the average."""
        return 1.0 if self.order == 1 else 0.5

    @cached_property
    def _stencil(self) -> Stencil:
        """Made when a run begins: a run that is only looked at needs none."""
        return stencil(self.mesh)

    @cached_property
    def face_velocity_form(self) -> str:
        """ "potential" (two-point difference) or "midpoint" (field at face midpoints)."""
        gradient = getattr(self.attention, "is_gradient", False) and self.mesh.is_orthogonal
        return "potential" if gradient else "midpoint"

    def begin(self, start: ArrayLike | State) -> Masses:
        averages, atoms = (start.averages, start.atoms) if isinstance(start, State) else (start, None)
        averages = inputs.array("start", averages, (self.mesh.n_cells,))
        inputs.non_negative("start", averages)
        if atoms is not None and atoms.dimension != self.mesh.dimension:
            raise ValueError(f"the start's atoms lie in R^{atoms.dimension}, wanted R^{self.mesh.dimension} like the mesh")
        if atoms is not None and len(atoms) and not self.atoms:
            raise ValueError(f"the start has {len(atoms)} atoms with atoms=False, wanted none: the plain scheme does not move them")
        state = self.state(averages * self.mesh.areas, atoms)
        mass = self.measure(state).total
        if abs(mass - 1) > MASS_TOLERANCE:
            raise ValueError(f"start has mass {mass:.12g}, wanted 1 (sum of averages times areas, and atoms)")
        return state

    def state(self, masses: FloatArray, atoms: Measure | None = None) -> Masses:
        """The state with these masses of cells, unchecked, and atoms, those without mass left out."""
        if atoms is None:
            return Masses(masses, Measure.trusted(np.empty((0, self.mesh.dimension)), np.empty(0)))
        heavy = atoms.masses > 0
        return Masses(masses, Measure.trusted(normalise(atoms.points[heavy]), atoms.masses[heavy]))

    def rate(self, t: float, state: Masses) -> Rate:
        mesh, sides, scratch = self.mesh, self._stencil, self._scratch()
        measure = self.measure(state)
        bound = getattr(self.attention, "speed_bound", None)
        speed = 0.0 if bound is None else bound(measure)
        work: Counter[str] = Counter()
        if state.is_discrete:
            return Rate(self._velocities(t, state.atoms.points, measure, work).ravel(), speed=speed, work=work)
        plain, balanced = self._fields(t, state, measure, work)
        reconstruct = reconstruction.constant if self.order == 1 else reconstruction.limited_linear
        np.divide(state.cells, mesh.areas, out=scratch.averages)
        reconstruct(scratch.averages, sides, scratch.side_values)
        by_side = (scratch.side_values, scratch.received, scratch.swept)
        two_point = self.face_velocity_form == "potential"
        if two_point:
            flux.upwind_of_potential(sides, balanced, *by_side)
        else:
            flux.upwind(mesh, sides, balanced, *by_side)
        change = np.empty(mesh.n_cells + state.atoms.points.size)
        flux.divergence(mesh, sides, scratch.received, scratch.swept, change[: mesh.n_cells], scratch.outflow)
        refuse_non_finite(t, "the rate of cell", change[: mesh.n_cells])
        if len(state.atoms):
            change[mesh.n_cells :] = self._velocities(t, state.atoms.points, measure, work).ravel()
        worst = int(scratch.outflow.argmax())
        fields = {"potential" if two_point else "normals": plain}
        return Rate(change, float(scratch.outflow[worst]), worst, speed, work=work, **fields)

    def face_velocities(self, t: float, measure: Measure) -> FloatArray:
        """Normal velocities (n_faces,), left to right, that a measure on the mesh causes."""
        balanced = self._fields(t, self.state(measure.masses), measure, Counter())[1]
        return flux.two_point_gradient(self.mesh, balanced) if self.face_velocity_form == "potential" else balanced

    def pack(self, state: Masses) -> FloatArray:
        if state.is_discrete:
            return state.atoms.points.ravel()
        return np.concatenate([state.cells, state.atoms.points.ravel()]) if len(state.atoms) else state.cells

    def unpack(self, vector: FloatArray, like: Masses) -> Masses:
        n = 0 if like.is_discrete else self.mesh.n_cells
        cells = like.cells if like.is_discrete else vector[:n]
        if not len(like.atoms):
            return Masses(cells, like.atoms)
        return Masses(cells, Measure.trusted(normalise(vector[n:].reshape(like.atoms.points.shape)), like.atoms.masses))

    def check(self, t: float, state: Masses) -> None:
        refuse_non_finite(t, "the mass of cell", state.cells)
        refuse_non_finite(t, "atom", state.atoms.points)
        lowest = int(state.cells.argmin())
        if state.cells[lowest] < 0:
            raise SolveError(f"the mass of cell {lowest} is {state.cells[lowest]:.3g} at t = {t:.9g}, wanted >= 0: the step was too long")
        mass = float(state.cells.sum()) + state.atoms.total
        if abs(mass - 1) > 2 * MASS_TOLERANCE:  # a start may use up one
            raise SolveError(f"the mass is {mass:.12g} at t = {t:.9g}, wanted 1: what leaves one cell did not enter the next")

    def settle(self, t: float, state: Masses, rate: Rate, events: list[Event]) -> tuple[Masses, list[Event]]:
        """Forms, absorbs and merges atoms; the plain scheme only says where it would have."""
        flow = Flow(lambda rows: self._contraction(rows, rate), lambda points: self._velocities(t, points, self.measure(state), Counter()))
        if not self.atoms:
            return state, [] if events else pinned(self._neighbourhoods, t, state.cells, flow)[:1]
        cells, atoms, happened = settle(self._neighbourhoods, t, state.cells, state.atoms, flow)
        return (Masses(cells, atoms) if happened else state), happened

    def phase(self, state: Masses) -> Hashable:
        return closest(state.atoms) <= MERGE * self.mesh.spacing, cluster_count(state.atoms)

    def is_discrete(self, state: Masses) -> bool:
        return state.is_discrete

    def tally(self, state: Masses) -> tuple[float, int, int, float]:
        return float(state.cells.min()), len(state.atoms), cluster_count(state.atoms), float(state.cells.sum())

    def measure(self, state: Masses) -> Measure:
        """The masses at the centers of their cells, and the atoms; these alone if no cell has mass."""
        return Measure.joined(Measure.trusted(self.mesh.centers, state.cells), state.atoms)

    def energy(self, state: Masses, rate: Rate | None) -> Scaled:
        measure, potential = self.measure(state), None if rate is None else rate.potential
        if potential is not None and len(state.atoms):
            at_atoms = potential_of(self.attention, state.atoms.points, measure, 0.0, method=self._method_of_atoms)
            potential = np.concatenate([potential, at_atoms])
        return model_energy(self.attention, measure, potential, self._method_of_atoms if state.is_discrete else self.method)

    @property
    def _method_of_atoms(self) -> str | Method:
        """Atoms are few and their velocities may be exponentially small: sums, unless there are many."""
        return "direct" if self.method == "direct" else "auto"

    @cached_property
    def _neighbourhoods(self) -> Neighbourhoods:
        return Neighbourhoods(self.mesh, self._stencil)

    def _velocities(self, t: float, points: FloatArray, measure: Measure, work: Counter[str]) -> FloatArray:
        """Velocities of atoms (n, d)."""
        velocities = velocity_of(self.attention, points, measure, t, method=self._method_of_atoms, work=work)
        refuse_non_finite(t, "the velocity of atom", velocities)
        return velocities

    def _contraction(self, rows: IntArray, rate: Rate) -> float:
        """The rate at which lengths shrink in the union of some cells, with the flow of a rate; 0 if they do not."""
        sides = self._stencil
        faces = np.concatenate([sides.side_faces[sides.side_offsets[i] : sides.side_offsets[i + 1]] for i in rows])
        inside = np.isin(sides.face_cells[faces], rows)
        on_rim = inside.sum(axis=1) == 1
        rim, outward = faces[on_rim], np.where(inside[on_rim, 0], 1.0, -1.0)
        if rate.potential is not None:
            left, right = sides.face_cells[rim].T
            flows = outward * sides.conductances[rim] * (rate.potential[right] - rate.potential[left])
        elif rate.normals is not None:
            flows = outward * self.mesh.face_lengths[rim] * rate.normals[rim]
        else:
            return 0.0
        inflow = -float(flows.sum())
        if inflow <= CONTRACTING * float(np.abs(flows).sum()):
            return 0.0
        return inflow / float(self.mesh.areas[rows].sum()) / (self.mesh.dimension - 1)

    def _fields(self, t: float, state: Masses, measure: Measure, work: Counter[str]) -> tuple[FloatArray, FloatArray]:
        """The field as computed and as used: the potential at the centers (n_cells,), or the normal velocity at face midpoints (n_faces,).

        Transforms see the mesh only through its points, and their quadrature error would move even the uniform density. Where they
        answered for a model that is at rest there, the share of the uniform density in this one (its minimum over its mean) times that
        spurious field is subtracted.
        """
        plain = self._field(t, state, measure, work)
        share = self._uniform_share(state.cells, measure, work)
        if not share > 0:
            return plain, plain
        balanced = np.multiply(self._spurious_field(t), -share, out=self._scratch().field)
        balanced += plain
        return plain, balanced

    def _field(self, t: float, state: Masses, measure: Measure, work: Counter[str]) -> FloatArray:
        mesh, model = self.mesh, self.attention
        two_point = self.face_velocity_form == "potential"
        weights = state.cells if two_point else state.cells[mesh.face_cells].max(axis=1)
        options = {"method": self.method, "work": work, "weights": weights}
        if two_point:
            return potential_of(model, mesh.centers, measure, t, **options)
        return dot(velocity_of(model, mesh.face_midpoints, measure, t, **options), mesh.face_normals)

    def _uniform_share(self, cells: FloatArray, measure: Measure, work: Counter[str]) -> float:
        if not work["transforms"] or not getattr(self.attention, "is_isotropic", False):
            return 0.0
        averages = np.divide(cells, self.mesh.areas, out=self._scratch().averages)
        return float(averages.min()) * float(self.mesh.areas.sum()) / measure.total

    def _spurious_field(self, t: float) -> FloatArray:
        if "spurious" not in self._kept:
            uniform = self.state(self.mesh.areas / self.mesh.areas.sum())
            self._kept["spurious"] = self._field(t, uniform, self.measure(uniform), Counter())
        return self._kept["spurious"]

    def _scratch(self) -> "_Scratch":
        """Work arrays, one set for each thread that uses this system."""
        thread = threading.get_ident()
        if thread not in self._kept:
            self._kept[thread] = _Scratch(self.mesh, self.face_velocity_form)
        return self._kept[thread]

    def __getstate__(self) -> dict[str, Any]:
        return self.__dict__ | {"_kept": {}}

    def __eq__(self, other: object) -> bool:
        return isinstance(other, MeanFieldPDE) and all(
            equal(getattr(self, name), getattr(other, name)) for name in ("mesh", "attention", "order", "method", "atoms")
        )


class _Scratch:
    """Mesh-sized arrays that a rate fills anew."""

    def __init__(self, mesh: SphereMesh, form: str) -> None:
        self.averages, self.outflow = np.empty(mesh.n_cells), np.empty(mesh.n_cells)
        self.field = np.empty(mesh.n_cells if form == "potential" else mesh.n_faces)
        self.side_values, self.received, self.swept = (np.empty(2 * mesh.n_faces) for _ in range(3))
