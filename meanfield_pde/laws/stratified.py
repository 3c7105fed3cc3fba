"""Tokens spread as evenly as a law allows, for a limit n -> infinity without the noise n^{-1/2} of independent ones.

    S^1: one token in each of n arcs of mass 1/n, uniformly in mass: F(theta_i) = (i + U_i)/n, F the law's cumulative distribution
    S^2: tokens at evenly spread points in a random rotation, each with the law's integral over its Voronoi cell as mass

Data in: a law. Data out: a measure of `count` tokens, mass 1. Sources: Owen, Monte Carlo theory, methods and examples (2013), chapter 8
(stratified sampling); Swinbank and Purser, Q. J. R. Meteorol. Soc. 132 (2006) (Fibonacci points).
"""

from collections.abc import Sequence

import numpy as np
from numpy.polynomial import chebyshev
from scipy.spatial.transform import Rotation

from meanfield_pde import inputs
from meanfield_pde.laws.law import Density
from meanfield_pde.laws.projection import project
from meanfield_pde.measure import Measure
from meanfield_pde.mesh.polygons import on_circle
from meanfield_pde.mesh.voronoi import voronoi
from meanfield_pde.sphere import FloatArray, normalise

NODES = 16
"""Chebyshev nodes on each arc on which the density is a polynomial."""
FIRST_ARCS = 1024
"""Equal arcs looked at first: their nodes see any cap of kappa <= 1e7."""
MOST_ARCS = 1 << 18
ARC_TOLERANCE = 1e-15
"""Largest error of the mass of an arc, estimated by its last coefficients; arcs with a larger one are halved."""
MASS_TOLERANCE = 1e-10
"""How far a law's mass on S^1 may be from 1; it is too small if a narrow peak was missed."""
BISECTIONS = 54
"""Bisections until a position within its arc has all its digits."""


def stratified(law: Density, count: int, seed: int | Sequence[int]) -> Measure:
    """`count` tokens of total mass 1 that represent a law on S^1 or S^2; the same seed gives the same tokens.

    law: anything with `dimension` and law(points) (m, d) -> (m,), a probability density with respect to surface measure.
    seed: an integer or a sequence of integers.

    S^1: equal masses 1/count. Each token is a draw from the law restricted to its arc, so that int f dmu is right on average for any f,
    with an error of order count^{-3/2} for smooth f and a law bounded from below. Positions solve F(theta) = mass to 2e-12 in mass; the
    law may have jumps.
    S^2, count >= 4: masses are the law's integrals over the cells, which are all but equal in area; far from a narrow law they may be 0,
    and a law too narrow to be seen by few cells is refused.
    W1 to the law is of order 1/count (S^1) and count^{-1/2} (S^2, half a cell), smooth integrals on S^2 of order 1/count.

    Raises ValueError if the law lives on another sphere, its mass is not 1 (within 1e-10 on S^1, 1e-6 on S^2; its values are divided by
    it), a value is negative or too rough to integrate, or count or seed is out of range.
    """
    inputs.having("law", law, "a law, with dimension and law(points)", "dimension", "__call__")
    spread = {2: _quantiles, 3: _quadrature}.get(law.dimension)
    if spread is None:
        raise ValueError(f"law lives in R^{law.dimension}, wanted R^2 or R^3: tokens are spread evenly on S^1 and S^2 only")
    count = inputs.integer("count", count, low=1 if law.dimension == 2 else 4)
    try:
        generator = np.random.default_rng(seed if np.ndim(seed) else inputs.integer("seed", seed, low=0))
    except (TypeError, ValueError):
        raise ValueError(f"seed is {inputs.shown(seed)}, wanted an integer >= 0 or a sequence of them") from None
    return spread(law, count, generator)


def _quadrature(law: Density, count: int, generator: np.random.Generator) -> Measure:
    """Fibonacci points lie on a spiral, in zones of equal area, each a golden section of a turn after the one before."""
    i = np.arange(count)
    height, longitude = (2 * i + 1) / count - 1, np.pi * (np.sqrt(5) - 1) * i
    radius = np.sqrt(1 - height**2)
    fibonacci = np.stack([radius * np.cos(longitude), radius * np.sin(longitude), height], axis=1)
    mesh = voronoi(normalise(fibonacci @ Rotation.random(rng=generator).as_matrix().T))
    return Measure(mesh.centers, project(mesh, law) * mesh.areas)


def _quantiles(law: Density, count: int, generator: np.random.Generator) -> Measure:
    starts, widths, values = _arcs(law)
    masses = widths / 2 * (_WEIGHTS @ values)
    ends = np.cumsum(masses)
    if abs(ends[-1] - 1) > MASS_TOLERANCE:
        raise ValueError(f"law has mass {ends[-1]:.12g}, wanted 1 (within {MASS_TOLERANCE:g}); a peak narrower than 1e-4 is not seen")
    wanted = (np.arange(count) + generator.random(count)) / count * ends[-1]
    arc = np.searchsorted(ends[:-1], wanted, side="right")  # no arc without mass
    cumulative = chebyshev.chebint(_TO_COEFFICIENTS @ values[:, arc], lbnd=-1) * (widths[arc] / 2)
    low, high = np.full(count, -1.0), np.ones(count)
    for _ in range(BISECTIONS):
        middle = (low + high) / 2
        below = chebyshev.chebval(middle, cumulative, tensor=False) < wanted - (ends - masses)[arc]
        low, high = np.where(below, middle, low), np.where(below, high, middle)
    return Measure(on_circle(starts[arc] + widths[arc] * (1 + low) / 2))


def _arcs(law: Density) -> tuple[FloatArray, FloatArray, FloatArray]:
    """Arcs on which the density is a polynomial to the tolerance: starts and widths (n,), ordered, and values at their nodes (NODES, n)."""
    starts = np.linspace(-np.pi, np.pi, FIRST_ARCS, endpoint=False)
    width, parts, n = 2 * np.pi / FIRST_ARCS, [], 0
    while len(starts):
        n += len(starts)
        if n > MOST_ARCS:
            raise ValueError(f"law is rough on {MOST_ARCS} arcs still, wanted a density that is smooth but for some jumps")
        angles = starts + width * (1 + _NODES[:, None]) / 2
        values = inputs.non_negatives("law(points)", law(on_circle(angles.ravel())), (angles.size,)).reshape(angles.shape)
        rough = width / 2 * np.abs(_TO_COEFFICIENTS[-2:] @ values).sum(axis=0) > ARC_TOLERANCE
        parts.append((starts[~rough], np.full((~rough).sum(), width), values[:, ~rough]))
        width /= 2
        starts = np.concatenate([starts[rough], starts[rough] + width])
    starts, widths, values = (np.concatenate(part, axis=-1) for part in zip(*parts, strict=True))
    order = np.argsort(starts, kind="stable")
    return starts[order], widths[order], values[:, order]


_NODES = chebyshev.chebpts1(NODES)
_TO_COEFFICIENTS = np.linalg.inv(chebyshev.chebvander(_NODES, NODES - 1))
_WEIGHTS = chebyshev.chebint(_TO_COEFFICIENTS, lbnd=-1).sum(axis=0)
"""Weights of the integral over [-1, 1]. All are positive, so that the mass of an arc is never negative, and 0 only if all values are 0."""
