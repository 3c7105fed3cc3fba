"""Upwind fluxes and their divergence.

A face lets area through at the rate flow_f = length_f v_f, from left to right; with velocities that are two-point differences of a
potential, flow_f = (length_f / distance_f) (potential_right - potential_left). Mass follows upwind,
F_f = flow_f^+ u_left + flow_f^- u_right, and dm_i/dt = -sum of outward fluxes: what leaves one cell enters the next, so mass is conserved
to rounding. The outflow rate sum_f flow_f^out / area_i bounds the step: dt * rate <= 1 (first order) or 1/2 (second) keeps masses >= 0.

Data in: a potential (n_cells,) or face velocities (n_faces,), values (2 n_faces,) on the sides of the faces. On the way, on each side:
the mass that its cell receives and the area that is swept out of it, per time. Data out: mass rates and outflow rates (n_cells,).
"""

from meanfield_pde.mesh.record import SphereMesh
from meanfield_pde.sphere import FloatArray
from meanfield_pde.threads import compiled, over_rows
from meanfield_pde.transport.reconstruction import LOOP_ROWS
from meanfield_pde.transport.stencil import Stencil

SMALLEST_FLUX = 1e-290
"""Weaker fluxes are not carried: near the end of the floating-point range their rounding could exceed the mass of a cell."""


def upwind_of_potential(stencil: Stencil, potential: FloatArray, side_values: FloatArray, received: FloatArray, swept: FloatArray) -> None:
    """Writes, on each side (2 n_faces,), what its cell receives and what is swept out of it, for the flows of a potential."""
    arguments = (stencil.conductances, stencil.face_cells, stencil.face_sides, potential, side_values, received, swept)
    over_rows(_upwind_of_potential, len(stencil.conductances), *arguments, minimum_rows=LOOP_ROWS)


def upwind(
    mesh: SphereMesh, stencil: Stencil, velocities: FloatArray, side_values: FloatArray, received: FloatArray, swept: FloatArray
) -> None:
    """The same for given velocities (n_faces,)."""
    arguments = (mesh.face_lengths, stencil.face_sides, velocities, side_values, received, swept)
    over_rows(_upwind, mesh.n_faces, *arguments, minimum_rows=LOOP_ROWS)


def divergence(
    mesh: SphereMesh, stencil: Stencil, received: FloatArray, swept: FloatArray, mass_rates: FloatArray, outflow_rates: FloatArray
) -> None:
    """Writes dm/dt and the outflow rates, 1/time, both (n_cells,), from the sides of each cell."""
    arguments = (stencil.side_offsets, mesh.areas, received, swept, mass_rates, outflow_rates)
    over_rows(_divergence, mesh.n_cells, *arguments, minimum_rows=LOOP_ROWS)


@compiled
def _carry(flow, left, right, side_values, received, swept):
    rightward, leftward = max(flow, 0.0), min(flow, 0.0)
    flux = rightward * side_values[left] + leftward * side_values[right]
    flux = 0.0 if abs(flux) < SMALLEST_FLUX else flux
    received[left], received[right] = -flux, flux
    swept[left], swept[right] = rightward, -leftward


@compiled
def _upwind_of_potential(first, last, conductances, face_cells, face_sides, potential, side_values, received, swept):
    for f in range(first, last):
        flow = conductances[f] * (potential[face_cells[f, 1]] - potential[face_cells[f, 0]])
        _carry(flow, face_sides[f, 0], face_sides[f, 1], side_values, received, swept)


@compiled
def _upwind(first, last, face_lengths, face_sides, velocities, side_values, received, swept):
    for f in range(first, last):
        _carry(face_lengths[f] * velocities[f], face_sides[f, 0], face_sides[f, 1], side_values, received, swept)


@compiled
def _divergence(first, last, side_offsets, areas, received, swept, mass_rates, outflow_rates):
    for i in range(first, last):
        mass_rate = outflow = 0.0
        for k in range(side_offsets[i], side_offsets[i + 1]):
            mass_rate += received[k]
            outflow += swept[k]
        mass_rates[i] = mass_rate
        outflow_rates[i] = outflow / areas[i]
