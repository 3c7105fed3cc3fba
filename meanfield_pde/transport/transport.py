"""Transport of cell masses by a field: reconstruction, upwind fluxes, divergence, in the order in which they are computed.

Face velocities are two-point differences of the potential at the centers where the field is a gradient and the mesh orthogonal - they keep
the energy law of the equation: with first order, Euler, sums and these velocities the convex energy never falls - and otherwise the field
at face midpoints.

Data in: cell masses (n_cells,) and a `Field`. Data out: mass rates (n_cells,), the largest outflow rate, and the flow through the faces.
"""

import threading
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np

from meanfield_pde.mesh.record import SphereMesh
from meanfield_pde.models.velocity import Field
from meanfield_pde.sphere import FloatArray, IntArray, dot
from meanfield_pde.transport import flux, reconstruction
from meanfield_pde.transport.stencil import Stencil, stencil

CONTRACTING = 0.01
"""What flows into a region must exceed what flows out by this part of both: a flow that only passes does not contract."""


@dataclass(frozen=True)
class CellRates:
    """change: dm/dt (n_cells,). outflow: the largest outflow rate of a cell, 1/time; worst: that cell. flow: what the fluxes were made
    from, the potential at the centers (n_cells,) or the normal velocities of the faces (n_faces,), as `of_potential` says."""

    change: FloatArray
    outflow: float
    worst: int
    flow: FloatArray
    of_potential: bool


class Transport:
    """The scheme on one mesh: its stencil, made when it is first needed, and arrays that a rate fills anew, one set for each thread.

    order: 2 (limited linear) or 1 (upwind).
    """

    def __init__(self, mesh: SphereMesh, order: int) -> None:
        self.mesh, self.order = mesh, order
        self._scratch: dict[int, _Scratch] = {}

    @cached_property
    def stencil(self) -> Stencil:
        return stencil(self.mesh)

    @property
    def courant_limit(self) -> float:
        """Largest outflow Courant number that keeps masses >= 0: 1, or 1/2 for order 2, whose face values reach twice the average."""
        return 1.0 if self.order == 1 else 0.5

    def uses_potential(self, is_gradient: bool) -> bool:
        """Whether face velocities are two-point differences of a potential."""
        return is_gradient and self.mesh.is_orthogonal

    def rate(self, cells: FloatArray, field: Field) -> CellRates:
        """What a field does to the masses of the cells."""
        mesh, sides, arrays = self.mesh, self.stencil, self._arrays()
        np.divide(cells, mesh.areas, out=arrays.averages)
        reconstruct = reconstruction.constant if self.order == 1 else reconstruction.limited_linear
        reconstruct(arrays.averages, sides, arrays.side_values)
        by_side = (arrays.side_values, arrays.received, arrays.swept)
        of_potential = self.uses_potential(field.is_gradient)
        if of_potential:
            flow = field.weighing(cells).potential(mesh.centers)
            flux.upwind_of_potential(sides, flow, *by_side)
        else:
            heavier = cells[mesh.face_cells].max(axis=1)
            flow = dot(field.weighing(heavier).velocity(mesh.face_midpoints), mesh.face_normals)
            flux.upwind(mesh, sides, flow, *by_side)
        change = np.empty(mesh.n_cells)
        flux.divergence(mesh, sides, arrays.received, arrays.swept, change, arrays.outflow)
        worst = int(arrays.outflow.argmax())
        return CellRates(change, float(arrays.outflow[worst]), worst, flow, of_potential)

    def contraction(self, rows: IntArray, rates: CellRates) -> float:
        """The rate at which lengths shrink in the union of some cells; 0 if the flow does not contract them."""
        sides = self.stencil
        faces = np.concatenate([sides.side_faces[sides.side_offsets[i] : sides.side_offsets[i + 1]] for i in rows])
        inside = np.isin(sides.face_cells[faces], rows)
        on_rim = inside.sum(axis=1) == 1
        rim, outward = faces[on_rim], np.where(inside[on_rim, 0], 1.0, -1.0)
        if rates.of_potential:
            left, right = sides.face_cells[rim].T
            flows = outward * sides.conductances[rim] * (rates.flow[right] - rates.flow[left])
        else:
            flows = outward * self.mesh.face_lengths[rim] * rates.flow[rim]
        inflow = -float(flows.sum())
        if inflow <= CONTRACTING * float(np.abs(flows).sum()):
            return 0.0
        return inflow / float(self.mesh.areas[rows].sum()) / (self.mesh.dimension - 1)

    def _arrays(self) -> "_Scratch":
        thread = threading.get_ident()
        if thread not in self._scratch:
            self._scratch[thread] = _Scratch(self.mesh)
        return self._scratch[thread]

    def __getstate__(self) -> dict[str, Any]:
        return self.__dict__ | {"_scratch": {}}


class _Scratch:
    """Mesh-sized arrays, made when they are first needed."""

    def __init__(self, mesh: SphereMesh) -> None:
        self.averages, self.outflow = np.empty(mesh.n_cells), np.empty(mesh.n_cells)
        self.side_values, self.received, self.swept = (np.empty(2 * mesh.n_faces) for _ in range(3))
