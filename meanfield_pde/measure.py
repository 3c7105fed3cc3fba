"""A measure on the sphere, mu = sum_i m_i delta_{x_i}: all that attention, diagnostics and distances see of a density or of tokens.

Data in: points (n, d), masses (n,). Data out: the same arrays, checked and read-only.
"""

from dataclasses import dataclass, field

import numpy as np
from numpy.typing import ArrayLike

from meanfield_pde import inputs
from meanfield_pde.records import equal, frozen
from meanfield_pde.sphere import FloatArray


@dataclass(frozen=True, eq=False)
class Measure:
    """Weighted points on S^{d-1}.

    points: (n, d), unit vectors, d >= 2. masses: (n,), >= 0, dimensionless; None gives every point the mass 1/n.
    Raises ValueError if a shape does not fit, an entry is not finite, a mass is negative or a point is off the sphere.
    """

    points: FloatArray
    masses: FloatArray
    _parts: tuple["Measure", ...] = field(init=False, repr=False)

    def __init__(self, points: ArrayLike, masses: ArrayLike | None = None) -> None:
        checked = inputs.array("points", points, ("n", "d"))
        inputs.unit_rows("points", checked)
        n = len(checked)
        weights = np.full(n, 1 / max(n, 1)) if masses is None else inputs.array("masses", masses, (n,))
        inputs.non_negative("masses", weights)
        with np.errstate(over="ignore"):
            if not np.isfinite(weights.sum()):
                raise ValueError(f"masses sum to {weights.sum()}, wanted a finite mass")
        self._set(checked, weights)

    @classmethod
    def trusted(cls, points: FloatArray, masses: FloatArray) -> "Measure":
        """The same record without the checks, for arrays that the package itself keeps valid (one per stage of a step)."""
        measure = cls.__new__(cls)
        measure._set(points, masses)
        return measure

    @classmethod
    def joined(cls, *parts: "Measure") -> "Measure":
        """The sum of some measures on one sphere; those without mass are left out, but for the first if all are.

        It remembers its parts: work that was done on the points of one is not done again.
        """
        parts = tuple(part for part in parts if part.masses.any()) or parts[:1]
        if len(parts) == 1:
            return parts[0]
        joined = cls.trusted(np.concatenate([part.points for part in parts]), np.concatenate([part.masses for part in parts]))
        object.__setattr__(joined, "_parts", parts)
        return joined

    def _set(self, points: FloatArray, masses: FloatArray) -> None:
        object.__setattr__(self, "points", frozen(points))
        object.__setattr__(self, "masses", frozen(masses))
        object.__setattr__(self, "_parts", ())

    @property
    def dimension(self) -> int:
        """d: the points lie on S^{d-1} in R^d."""
        return int(self.points.shape[1])

    @property
    def total(self) -> float:
        """Total mass."""
        return float(self.masses.sum())

    @property
    def parts(self) -> tuple["Measure", ...]:
        """The measures that were joined; itself if none were."""
        return self._parts or (self,)

    def mean(self) -> FloatArray:
        """The integral of x dmu, (d,)."""
        return np.einsum("i,ij->j", self.masses, self.points)

    def __len__(self) -> int:
        return len(self.points)

    def __eq__(self, other: object) -> bool:
        return equal(self, other)


def as_measure(name: str, value: ArrayLike | Measure) -> Measure:
    """A measure as it is, or points (n, d) of equal masses 1/n. ValueError naming the argument if the points are none of a sphere."""
    if isinstance(value, Measure):
        return value
    points = inputs.array(name, value, ("n", "d"))
    inputs.unit_rows(name, points)
    return Measure(points)
