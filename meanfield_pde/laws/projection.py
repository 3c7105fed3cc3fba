"""From a law or from tokens to cell averages.

Data in: a mesh and a density (m, d) -> (m,), or tokens. Data out: cell averages (n_cells,), 1/area, with sum(averages * areas) = 1.
"""

from collections.abc import Callable

import numpy as np
from numpy.typing import ArrayLike

from meanfield_pde import inputs
from meanfield_pde.measure import Measure, as_measure
from meanfield_pde.mesh.locate import cell_of
from meanfield_pde.mesh.quadrature import cell_integrals
from meanfield_pde.mesh.record import SphereMesh
from meanfield_pde.sphere import FloatArray

MASS_TOLERANCE = 1e-6


def project(mesh: SphereMesh, law: Callable[[FloatArray], FloatArray], degree: int = 8, normalise: bool = False) -> FloatArray:
    """Cell averages (n_cells,) of a law or of any density (m, d) -> (m,) with respect to surface measure, of total mass 1.

    degree: of the quadrature rule on the parts of a cell, 2 to 30. Raises ValueError if the dimension does not fit, a cell's integral is
    negative, or the mass differs from 1 by more than 1e-6 and `normalise` is not set.
    """
    inputs.instance("mesh", mesh, SphereMesh)
    inputs.function("law", law, "a law or a function of points (m, d)")
    normalise = inputs.flag("normalise", normalise)
    d = getattr(law, "dimension", mesh.dimension)
    if d != mesh.dimension:
        raise ValueError(f"law lives in R^{d}, wanted R^{mesh.dimension} like the mesh")
    integrals = cell_integrals(mesh, law, degree)
    inputs.non_negative("law's integral over cell", integrals)
    mass = float(integrals.sum())
    if not mass > 0:
        raise ValueError("law has mass 0 on this mesh, wanted 1")
    if abs(mass - 1) > MASS_TOLERANCE and not normalise:
        raise ValueError(f"law has mass {mass:.9g}, wanted 1; pass normalise=True to divide by it")
    return integrals / mass / mesh.areas


def bin_tokens(mesh: SphereMesh, tokens: ArrayLike | Measure) -> FloatArray:
    """Cell averages (n_cells,) of tokens counted where they lie: (n, d), equal masses 1/n, or a `Measure` of mass 1.

    Raises ValueError if a token is off the sphere, the dimension does not fit or the mass is not 1.
    """
    inputs.instance("mesh", mesh, SphereMesh)
    measure = as_measure("tokens", tokens)
    if measure.dimension != mesh.dimension:
        raise ValueError(f"tokens lie in R^{measure.dimension}, wanted R^{mesh.dimension} like the mesh")
    if abs(measure.total - 1) > MASS_TOLERANCE:
        raise ValueError(f"tokens have mass {measure.total:.9g}, wanted 1")
    masses = np.bincount(cell_of(mesh, measure.points), weights=measure.masses, minlength=mesh.n_cells)
    return masses / mesh.areas
