"""Upwind fluxes and their divergence.

F_f = length_f (v_f^+ u_left + v_f^- u_right), mass per time from the left to the right cell, and dm_i/dt = -sum of outward fluxes: what
leaves one cell enters the next, so mass is conserved to rounding. The outflow rate sum_f length_f v_f^out / area_i bounds the step:
dt * rate <= 1 (first order) or 1/2 (second) keeps every mass >= 0.

Data in: face velocities (n_faces,), face values (n_faces, 2). Data out: mass rates and outflow rates (n_cells,).
"""

from numba import njit

from meanfield_pde.mesh.record import SphereMesh
from meanfield_pde.sphere import FloatArray
from meanfield_pde.threads import over_rows
from meanfield_pde.transport.reconstruction import LOOP_ROWS
from meanfield_pde.transport.stencil import Stencil

SMALLEST_FLUX = 1e-290
"""Weaker fluxes are not carried: near the end of the floating-point range their rounding could exceed the mass of a cell."""


def upwind(face_velocities: FloatArray, face_values: FloatArray, face_lengths: FloatArray, fluxes: FloatArray) -> None:
    """Writes the mass fluxes (n_faces,)."""
    over_rows(_upwind, len(fluxes), face_velocities, face_values, face_lengths, fluxes, minimum_rows=LOOP_ROWS)


def divergence(mesh: SphereMesh, stencil: Stencil, fluxes: FloatArray, mass_rates: FloatArray) -> None:
    """Writes dm/dt (n_cells,) of mass fluxes (n_faces,)."""
    over_rows(_divergence, mesh.n_cells, stencil.face_offsets, stencil.faces, stencil.sides, fluxes, mass_rates, minimum_rows=LOOP_ROWS)


def outflow(mesh: SphereMesh, stencil: Stencil, face_velocities: FloatArray, rates: FloatArray) -> None:
    """Writes the outflow rate of every cell (n_cells,), 1/time."""
    over_rows(
        _outflow,
        mesh.n_cells,
        stencil.face_offsets,
        stencil.faces,
        stencil.sides,
        face_velocities,
        mesh.face_lengths,
        mesh.areas,
        rates,
        minimum_rows=LOOP_ROWS,
    )


@njit(cache=True, nogil=True)
def _upwind(first, last, face_velocities, face_values, face_lengths, fluxes):
    for f in range(first, last):
        velocity = face_velocities[f]
        flux = face_lengths[f] * velocity * (face_values[f, 0] if velocity > 0 else face_values[f, 1])
        fluxes[f] = 0.0 if abs(flux) < SMALLEST_FLUX else flux


@njit(cache=True, nogil=True)
def _divergence(first, last, face_offsets, faces, sides, fluxes, mass_rates):
    for i in range(first, last):
        total = 0.0
        for k in range(face_offsets[i], face_offsets[i + 1]):
            total += fluxes[faces[k]] if sides[k] == 1 else -fluxes[faces[k]]
        mass_rates[i] = total


@njit(cache=True, nogil=True)
def _outflow(first, last, face_offsets, faces, sides, face_velocities, face_lengths, areas, rates):
    for i in range(first, last):
        total = 0.0
        for k in range(face_offsets[i], face_offsets[i + 1]):
            velocity = face_velocities[faces[k]]
            outward = velocity if sides[k] == 0 else -velocity
            total += max(outward, 0.0) * face_lengths[faces[k]]
        rates[i] = total / areas[i]
