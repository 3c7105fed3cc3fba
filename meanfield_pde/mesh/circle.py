"""Equal arcs on S^1: center of cell i at the angle 2 pi i / n, faces half-way between."""

import numpy as np

from meanfield_pde import inputs
from meanfield_pde.mesh.polygons import arc_mesh
from meanfield_pde.mesh.record import SphereMesh

MOST_CELLS = 10_000_000


def circle(n: int) -> SphereMesh:
    """Mesh of S^1 with n equal cells, 3 to 10 000 000."""
    n = inputs.integer("n", n, low=3, most=MOST_CELLS)
    return arc_mesh(f"circle({n})", 2 * np.pi * (np.arange(n) - 0.5) / n)
