"""The density solver: d/dt (rho_i area_i) = -sum of upwind fluxes, with velocities that the density itself causes.

Data in: a mesh, a velocity model, cell averages. Data out: mass rates. The state is the masses of the cells (n_cells,), not their
averages: masses change by what crosses faces, so rounding has no preferred sign. Face velocities are two-point differences of the
potential at the centers where the field is a gradient and the mesh orthogonal - they keep the energy law of the equation: with first
order, Euler and these velocities the convex energy never falls - and otherwise the field at face midpoints.
"""

from dataclasses import dataclass, field

import numpy as np
from numpy.typing import ArrayLike

from meanfield_pde import inputs
from meanfield_pde.measure import Measure
from meanfield_pde.mesh.record import SphereMesh
from meanfield_pde.records import equal
from meanfield_pde.scaled import Scaled
from meanfield_pde.sphere import FloatArray, dot
from meanfield_pde.system import Rate, SolveError, VelocityModel, model_energy, refuse_non_finite
from meanfield_pde.transport import flux, reconstruction
from meanfield_pde.transport.stencil import Stencil, stencil

MASS_TOLERANCE = 1e-9


@dataclass(frozen=True, eq=False)
class MeanFieldPDE:
    """The continuity equation d_t mu + div(mu X[mu]) = 0 (2312.10794) on a mesh.

    attention: `Attention` or any velocity model. order: 2 (limited linear) or 1 (upwind). A start is cell averages (n_cells,), >= 0, in
    1/area, of total mass 1. Raises ValueError if order, matrices or a start do not fit.
    """

    mesh: SphereMesh
    attention: VelocityModel
    order: int = 2
    _stencil: Stencil = field(init=False, repr=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "order", inputs.integer("order", self.order, low=1, high=2))
        d = getattr(self.attention, "dimension", None)
        if d not in (None, self.mesh.dimension):
            raise ValueError(f"attention has {d} x {d} matrices, wanted {self.mesh.dimension} x {self.mesh.dimension} like the mesh")
        object.__setattr__(self, "_stencil", stencil(self.mesh))

    kind = "density"
    default_stepper = "ssprk3"

    @property
    def courant_limit(self) -> float:
        """Largest outflow Courant number that keeps masses >= 0: 1, or 1/2 for order 2, whose face values reach twice the average."""
        return 1.0 if self.order == 1 else 0.5

    @property
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
        mesh = self.mesh
        measure = self.measure(state)
        velocities, potential = self.face_velocities(t, measure)
        values, fluxes = np.empty((mesh.n_faces, 2)), np.empty(mesh.n_faces)
        change, outflow = np.empty(mesh.n_cells), np.empty(mesh.n_cells)
        reconstruct = reconstruction.constant if self.order == 1 else reconstruction.limited_linear
        reconstruct(state / mesh.areas, self._stencil, values)
        flux.upwind(velocities, values, mesh.face_lengths, fluxes)
        flux.divergence(mesh, self._stencil, fluxes, change)
        flux.outflow(mesh, self._stencil, velocities, outflow)
        refuse_non_finite(t, "the rate of cell", change)
        worst = int(outflow.argmax())
        bound = getattr(self.attention, "speed_bound", None)
        return Rate(change, float(outflow[worst]), worst, 0.0 if bound is None else bound(measure), potential)

    def face_velocities(self, t: float, measure: Measure) -> tuple[FloatArray, FloatArray | None]:
        """Normal velocities (n_faces,), left to right, and the potential at the centers (n_cells,) where it was used."""
        mesh = self.mesh
        if self.face_velocity_form == "potential":
            potential: FloatArray = self.attention.potential(mesh.centers, measure, t)  # type: ignore[attr-defined]
            left, right = mesh.face_cells.T
            return (potential[right] - potential[left]) / mesh.face_distances, potential
        return dot(self.attention.velocity(mesh.face_midpoints, measure, t), mesh.face_normals), None

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
        return model_energy(self.attention, self.measure(state), None if rate is None else rate.potential)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, MeanFieldPDE) and all(
            equal(getattr(self, name), getattr(other, name)) for name in ("mesh", "attention", "order")
        )
