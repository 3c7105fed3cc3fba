"""Densities on the two sides of every face, from cell averages.

First order: the average itself. Second order: u_i + <g_i, x_f - x_i> with a least-squares slope, limited face by face to

    max(m, 2 u_i - M) <= value <= min(M, 2 u_i - m),        m, M: smallest and largest average among the cell and its neighbours.

The averages of the neighbourhood are bounds, and so are their mirror images in u_i: then a value is at most 2 u_i for densities >= 0,
and outflow Courant numbers up to 1/2 keep them >= 0. On equal arcs this is the monotonised-central limiter of van Leer,
J. Comput. Phys. 23 (1977). Data in: averages (n_cells,). Data out: face values (n_faces, 2), left and right.
"""

from numba import njit

from meanfield_pde.sphere import FloatArray
from meanfield_pde.threads import over_rows
from meanfield_pde.transport.stencil import Stencil

LOOP_ROWS = 8192


def constant(averages: FloatArray, stencil: Stencil, face_values: FloatArray) -> None:
    """First order: writes each cell's average on its side of its faces."""
    n = len(averages)
    over_rows(_constant, n, averages, stencil.face_offsets, stencil.faces, stencil.sides, face_values, minimum_rows=LOOP_ROWS)


def limited_linear(averages: FloatArray, stencil: Stencil, face_values: FloatArray) -> None:
    """Second order: writes each cell's limited linear value on its side of its faces."""
    over_rows(
        _limited_linear,
        len(averages),
        averages,
        stencil.neighbour_offsets,
        stencil.neighbours,
        stencil.slope_weights,
        stencil.face_offsets,
        stencil.faces,
        stencil.sides,
        stencil.face_arms,
        face_values,
        minimum_rows=LOOP_ROWS,
    )


@njit(cache=True, nogil=True)
def _constant(first, last, averages, face_offsets, faces, sides, face_values):
    for i in range(first, last):
        for k in range(face_offsets[i], face_offsets[i + 1]):
            face_values[faces[k], sides[k]] = averages[i]


@njit(cache=True, nogil=True)
def _limited_linear(
    first, last, averages, neighbour_offsets, neighbours, slope_weights, face_offsets, faces, sides, face_arms, face_values
):
    d = slope_weights.shape[1]
    for i in range(first, last):
        own = averages[i]
        lowest = highest = own
        slope0 = slope1 = slope2 = 0.0
        for k in range(neighbour_offsets[i], neighbour_offsets[i + 1]):
            other = averages[neighbours[k]]
            lowest, highest = min(lowest, other), max(highest, other)
            slope0 += slope_weights[k, 0] * (other - own)
            slope1 += slope_weights[k, 1] * (other - own)
            if d == 3:
                slope2 += slope_weights[k, 2] * (other - own)
        low, high = max(lowest, own - (highest - own)), min(highest, own + (own - lowest))
        for k in range(face_offsets[i], face_offsets[i + 1]):
            face, side = faces[k], sides[k]
            value = own + slope0 * face_arms[face, side, 0] + slope1 * face_arms[face, side, 1]
            if d == 3:
                value += slope2 * face_arms[face, side, 2]
            face_values[face, side] = min(max(value, low), high)
