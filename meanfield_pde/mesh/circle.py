"""Equal arcs on S^1: center of cell i at the angle 2 pi i / n, faces half-way between."""

import numpy as np

from meanfield_pde import inputs
from meanfield_pde.mesh.polygons import arc_mesh
from meanfield_pde.mesh.record import SphereMesh


def circle(n: int) -> SphereMesh:
    """Mesh of S^1 with n >= 3 equal cells."""
    n = inputs.integer("n", n, low=3)
    return arc_mesh(f"circle({n})", 2 * np.pi * (np.arange(n) - 0.5) / n)
