"""Where attention is asked for: z = beta B x as directions and radii, since e^{<z, y>} depends on them in different ways.

Data in: points (m, d), beta, B. Data out: `Queries`.
"""

from dataclasses import dataclass

import numpy as np

from meanfield_pde.sphere import FloatArray

SAME_RADIUS = 1e-13

SMALL_RADIUS = 2.0
"""Below this, log(Z/M) is taken of 1 + mean(e^{<z, y>} - 1), which keeps its digits as |z| -> 0; above, of Z e^{-|z|}."""


@dataclass(frozen=True)
class Queries:
    """z = radius * direction. directions: (m, d), unit vectors, where B is c I the very array of points (or its negative).
    radii: (m,). radius: their common value, None if they differ. weights: (m,), the mass at each query, if only mass times velocity needs
    to be accurate; None if every query does."""

    directions: FloatArray
    radii: FloatArray
    radius: float | None
    weights: FloatArray | None = None

    @property
    def vectors(self) -> FloatArray:
        """z, (m, d)."""
        return self.directions * (self.radii[:, None] if self.radius is None else self.radius)

    @property
    def largest_radius(self) -> float:
        """max |z|."""
        return float(self.radii.max(initial=0.0)) if self.radius is None else self.radius

    @property
    def shift(self) -> float:
        """What is left out of log(Z/M): a large radius that all queries share, beside which log(e^{-r} Z/M) would lose digits."""
        return 0.0 if self.radius is None or self.radius < SMALL_RADIUS else self.radius

    def __len__(self) -> int:
        return len(self.directions)

    def __getitem__(self, rows: np.ndarray) -> "Queries":
        return Queries(self.directions[rows], self.radii[rows], self.radius, None if self.weights is None else self.weights[rows])


def queries(points: FloatArray, beta: float, bilinear: FloatArray | None, weights: FloatArray | None = None) -> Queries:
    """Queries at points on the sphere; B = None is the identity."""
    m, d = points.shape
    multiple = 1.0 if bilinear is None else float(bilinear[0, 0])
    if bilinear is None or np.array_equal(bilinear, multiple * np.eye(d)):
        radius = beta * abs(multiple)
        return Queries(points if multiple > 0 else -points, np.broadcast_to(radius, m), radius, weights)
    z = beta * (points @ bilinear.T)
    radii = np.linalg.norm(z, axis=1)
    pole = np.eye(d)[:1]
    directions = np.divide(z, radii[:, None], out=np.repeat(pole, m, axis=0), where=radii[:, None] > 0)
    common = m > 0 and bool(np.ptp(radii) <= SAME_RADIUS * radii.max())
    return Queries(directions, radii, float(radii.max()) if common else None, weights)
