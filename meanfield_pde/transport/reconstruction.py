"""Densities on the two sides of every face, from cell averages.

First order: the average itself. Second order: u_i + <g_i, x_f - x_i> with a least-squares slope, limited side by side to

    max(m, 2 u_i - M) <= value <= min(M, 2 u_i - m),        m, M: smallest and largest average among the cell and its neighbours.

The averages of the neighbourhood are bounds, and so are their mirror images in u_i: then a value is at most 2 u_i for densities >= 0,
and outflow Courant numbers up to 1/2 keep them >= 0. On equal arcs this is the monotonised-central limiter of van Leer,
J. Comput. Phys. 23 (1977). Data in: averages (n_cells,). Data out: values (2 n_faces,), side by side as in `Stencil`.
"""

from meanfield_pde.sphere import FloatArray
from meanfield_pde.threads import compiled, over_rows
from meanfield_pde.transport.stencil import Stencil

LOOP_ROWS = 8192


def constant(averages: FloatArray, stencil: Stencil, side_values: FloatArray) -> None:
    """First order: writes each cell's average on its sides."""
    over_rows(_constant, len(averages), averages, stencil.side_offsets, side_values, minimum_rows=LOOP_ROWS)


def limited_linear(averages: FloatArray, stencil: Stencil, side_values: FloatArray) -> None:
    """Second order: writes each cell's limited linear values on its sides."""
    neighbourhood = (stencil.neighbour_offsets, stencil.neighbours, stencil.slope_weights)
    sides = (stencil.side_offsets, stencil.arms)
    over_rows(_limited_linear, len(averages), averages, *neighbourhood, *sides, side_values, minimum_rows=LOOP_ROWS)


@compiled
def _constant(first, last, averages, side_offsets, side_values):
    for i in range(first, last):
        for k in range(side_offsets[i], side_offsets[i + 1]):
            side_values[k] = averages[i]


@compiled
def _limited_linear(first, last, averages, neighbour_offsets, neighbours, slope_weights, side_offsets, arms, side_values):
    for i in range(first, last):
        own = averages[i]
        lowest = highest = own
        slope0 = slope1 = 0.0
        for k in range(neighbour_offsets[i], neighbour_offsets[i + 1]):
            other = averages[neighbours[k]]
            lowest, highest = min(lowest, other), max(highest, other)
            slope0 += slope_weights[k, 0] * (other - own)
            slope1 += slope_weights[k, 1] * (other - own)
        low, high = max(lowest, own - (highest - own)), min(highest, own + (own - lowest))
        for k in range(side_offsets[i], side_offsets[i + 1]):
            value = own + slope0 * arms[k, 0] + slope1 * arms[k, 1]
            side_values[k] = min(max(value, low), high)
