"""The density solver: d/dt (rho_i area_i) = -sum of upwind fluxes, with velocities that the density itself causes.

Data in: a mesh, a velocity model, cell averages. Data out: mass rates. The state is the masses of the cells (n_cells,), not their
averages: masses change by what crosses faces, so rounding has no preferred sign. Face velocities are two-point differences of the
potential at the centers where the field is a gradient and the mesh orthogonal - they keep the energy law of the equation: with first
order, Euler, sums and these velocities the convex energy never falls - and otherwise the field at face midpoints.
"""

import threading
from collections import Counter
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from meanfield_pde import inputs
from meanfield_pde.attention.integrals import Method, resolve_method
from meanfield_pde.measure import Measure
from meanfield_pde.mesh.record import SphereMesh
from meanfield_pde.records import equal
from meanfield_pde.scaled import Scaled
from meanfield_pde.sphere import FloatArray, dot
from meanfield_pde.system import Rate, SolveError, VelocityModel, computing_options, model_energy, refuse_non_finite
from meanfield_pde.transport import flux, reconstruction
from meanfield_pde.transport.stencil import Stencil, stencil

MASS_TOLERANCE = 1e-9


@dataclass(frozen=True, eq=False)
class MeanFieldPDE:
    """The continuity equation d_t mu + div(mu X[mu]) = 0 (2312.10794) on a mesh.

    attention: `Attention` or any velocity model. order: 2 (limited linear) or 1 (upwind). method: how the attention's integrals are
    computed: "auto", "direct", "spectral" or an object of `attention.integrals`. A start is cell averages (n_cells,), >= 0, in 1/area, of
    total mass 1. Raises ValueError if an argument or a start does not fit.
    """

    mesh: SphereMesh
    attention: VelocityModel
    order: int = 2
    method: str | Method = "auto"
    _stencil: Stencil = field(init=False, repr=False)
    _kept: dict[Any, Any] = field(init=False, repr=False, default_factory=dict)

    def __post_init__(self) -> None:
        object.__setattr__(self, "order", inputs.integer("order", self.order, low=1, high=2))
        resolve_method(self.method)
        d = getattr(self.attention, "dimension", None)
        if d not in (None, self.mesh.dimension):
            raise ValueError(f"attention has {d} x {d} matrices, wanted {self.mesh.dimension} x {self.mesh.dimension} like the mesh")
        object.__setattr__(self, "_stencil", stencil(self.mesh))

    kind = "density"
    default_stepper = "ssprk3"
    rate_accuracy = 1e-12

    @property
    def courant_limit(self) -> float:
        """Largest outflow Courant number that keeps masses >= 0: 1, or 1/2 for order 2, whose face values reach twice the average."""
        return 1.0 if self.order == 1 else 0.5

    @cached_property
    def face_velocity_form(self) -> str:
        """ "potential" (two-point difference) or "midpoint" (field at face midpoints)."""
        gradient = getattr(self.attention, "is_gradient", False) and self.mesh.is_orthogonal
        return "potential" if gradient else "midpoint"

    def begin(self, start: ArrayLike) -> FloatArray:
        averages = inputs.array("start", start, (self.mesh.n_cells,))
        inputs.non_negative("start", averages)
        masses = averages * self.mesh.areas
        if abs(masses.sum() - 1) > MASS_TOLERANCE:
            raise ValueError(f"start has mass {masses.sum():.12g}, wanted 1 (sum of averages times areas)")
        return masses

    def rate(self, t: float, state: FloatArray) -> Rate:
        mesh, sides, scratch = self.mesh, self._stencil, self._scratch()
        measure = self.measure(state)
        work: Counter[str] = Counter()
        plain, balanced = self._fields(t, measure, work)
        reconstruct = reconstruction.constant if self.order == 1 else reconstruction.limited_linear
        np.divide(state, mesh.areas, out=scratch.averages)
        reconstruct(scratch.averages, sides, scratch.side_values)
        by_side = (scratch.side_values, scratch.received, scratch.swept)
        if self.face_velocity_form == "potential":
            flux.upwind_of_potential(sides, balanced, *by_side)
        else:
            flux.upwind(mesh, sides, balanced, *by_side)
        change = np.empty(mesh.n_cells)
        flux.divergence(mesh, sides, scratch.received, scratch.swept, change, scratch.outflow)
        refuse_non_finite(t, "the rate of cell", change)
        worst = int(scratch.outflow.argmax())
        bound = getattr(self.attention, "speed_bound", None)
        speed = 0.0 if bound is None else bound(measure)
        potential = plain if self.face_velocity_form == "potential" else None
        return Rate(change, float(scratch.outflow[worst]), worst, speed, potential, work)

    def face_velocities(self, t: float, measure: Measure) -> FloatArray:
        """Normal velocities (n_faces,), left to right, that a measure on the mesh causes."""
        balanced = self._fields(t, measure, Counter())[1]
        return flux.two_point_gradient(self.mesh, balanced) if self.face_velocity_form == "potential" else balanced

    def pack(self, state: FloatArray) -> FloatArray:
        return state

    def unpack(self, vector: FloatArray, like: FloatArray) -> FloatArray:
        return vector

    def check(self, t: float, state: FloatArray) -> None:
        refuse_non_finite(t, "the mass of cell", state)
        lowest = int(state.argmin())
        if state[lowest] < 0:
            raise SolveError(f"the mass of cell {lowest} is {state[lowest]:.3g} at t = {t:.9g}, wanted >= 0: the step was too long")
        mass = float(state.sum())
        if abs(mass - 1) > 2 * MASS_TOLERANCE:  # a start may use up one
            raise SolveError(f"the mass is {mass:.12g} at t = {t:.9g}, wanted 1: what leaves one cell did not enter the next")

    def measure(self, state: FloatArray) -> Measure:
        """The masses at the centers of their cells."""
        return Measure.trusted(self.mesh.centers, state)

    def energy(self, state: FloatArray, rate: Rate | None) -> Scaled:
        return model_energy(self.attention, self.measure(state), None if rate is None else rate.potential, self.method)

    def _fields(self, t: float, measure: Measure, work: Counter[str]) -> tuple[FloatArray, FloatArray]:
        """The field as computed and as used: the potential at the centers (n_cells,), or the normal velocity at face midpoints (n_faces,).

        Transforms see the mesh only through its points, and their quadrature error would move even the uniform density. Where they
        answered for a model that is at rest there, the share of the uniform density in this one (its minimum over its mean) times that
        spurious field is subtracted.
        """
        plain = self._field(t, measure, work)
        share = self._uniform_share(measure, work)
        if not share > 0:
            return plain, plain
        balanced = np.multiply(self._spurious_field(t), -share, out=self._scratch().field)
        balanced += plain
        return plain, balanced

    def _field(self, t: float, measure: Measure, work: Counter[str]) -> FloatArray:
        mesh, model = self.mesh, self.attention
        two_point = self.face_velocity_form == "potential"
        weights = measure.masses if two_point else measure.masses[mesh.face_cells].max(axis=1)
        options = computing_options(model, method=self.method, work=work, weights=weights)
        if two_point:
            return model.potential(mesh.centers, measure, t, **options)  # type: ignore[attr-defined]
        return dot(model.velocity(mesh.face_midpoints, measure, t, **options), mesh.face_normals)

    def _uniform_share(self, measure: Measure, work: Counter[str]) -> float:
        if not work["transforms"] or not getattr(self.attention, "is_isotropic", False):
            return 0.0
        averages = np.divide(measure.masses, self.mesh.areas, out=self._scratch().averages)
        return float(averages.min()) * float(self.mesh.areas.sum()) / measure.total

    def _spurious_field(self, t: float) -> FloatArray:
        if "spurious" not in self._kept:
            uniform = Measure.trusted(self.mesh.centers, self.mesh.areas / self.mesh.areas.sum())
            self._kept["spurious"] = self._field(t, uniform, Counter())
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
            equal(getattr(self, name), getattr(other, name)) for name in ("mesh", "attention", "order", "method")
        )


class _Scratch:
    """Mesh-sized arrays that a rate fills anew."""

    def __init__(self, mesh: SphereMesh, form: str) -> None:
        self.averages, self.outflow = np.empty(mesh.n_cells), np.empty(mesh.n_cells)
        self.field = np.empty(mesh.n_cells if form == "potential" else mesh.n_faces)
        self.side_values, self.received, self.swept = (np.empty(2 * mesh.n_faces) for _ in range(3))
