"""A measure on the sphere, mu = sum_i m_i delta_{x_i}: all that attention, diagnostics and distances see of a density or of tokens.

Points may stand for cells that cover the sphere (`Measure.on_cells`). Then the measure contains a multiple of the uniform law, whose
integrals are known exactly: `Measure.split` takes it out, and only the rest is summed over points (`Split`).

Data in: points (n, d), masses (n,). Data out: the same arrays, checked and read-only.
"""

from dataclasses import dataclass, field
from functools import cached_property

import numpy as np
from numpy.typing import ArrayLike

from meanfield_pde import inputs
from meanfield_pde.records import Record, frozen
from meanfield_pde.sphere import FloatArray

LESS = 1 - 4 * float(np.finfo(np.float64).eps)
"""The uniform part is taken this little smaller than it is, so that rounding leaves no negative mass in the rest."""


@dataclass(frozen=True, eq=False)
class Measure(Record):
    """Weighted points on S^{d-1}.

    points: (n, d), unit vectors, d >= 2; float32 is normalised. masses: (n,), >= 0, dimensionless; None gives every point the mass 1/n.
    Raises ValueError if a shape does not fit, an entry is not finite, a mass is negative or a point is off the sphere.
    """

    points: FloatArray
    masses: FloatArray
    _areas: FloatArray | None = field(init=False, repr=False)
    _parts: tuple["Measure", ...] = field(init=False, repr=False)

    def __init__(self, points: ArrayLike, masses: ArrayLike | None = None) -> None:
        checked = inputs.points("points", points)
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
    def on_cells(cls, centers: FloatArray, masses: FloatArray, areas: FloatArray) -> "Measure":
        """`trusted` for points that stand for cells of these areas (n,), which cover the sphere once."""
        measure = cls.trusted(centers, masses)
        object.__setattr__(measure, "_areas", areas)
        return measure

    @classmethod
    def joined(cls, *parts: "Measure") -> "Measure":
        """The sum of measures on one sphere. Parts without mass are left out; if all are, the first stays.

        The sum keeps its parts, so that what was computed for the points of a part (their angles, say) can be used again.
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
        object.__setattr__(self, "_areas", None)
        object.__setattr__(self, "_parts", ())

    @property
    def dimension(self) -> int:
        """d: the points lie on S^{d-1} in R^d."""
        return int(self.points.shape[1])

    @cached_property
    def total(self) -> float:
        """Total mass."""
        return float(self.masses.sum())

    @property
    def parts(self) -> tuple["Measure", ...]:
        """The measures that were joined; itself if none were."""
        return self._parts or (self,)

    @cached_property
    def split(self) -> "Split":
        """The largest multiple of the uniform law that the cells contain, and the rest."""
        if self._parts:
            splits = [part.split for part in self._parts]
            return Split(sum(each.uniform for each in splits), tuple(rest for each in splits for rest in each.rest))
        if self._areas is None:
            return Split(0.0, (self,))
        share = float(np.min(self.masses / self._areas)) * LESS
        if not share > 0:
            return Split(0.0, (self,))
        masses = self.masses - share * self._areas
        masses.setflags(write=False)  # so that it need not be copied
        return Split(share * float(self._areas.sum()), (Measure.trusted(self.points, masses),))

    def mean(self) -> FloatArray:
        """The integral of x dmu, (d,)."""
        return np.einsum("i,ij->j", self.masses, self.points)

    def __len__(self) -> int:
        return len(self.points)

    def __repr__(self) -> str:
        of = " of mesh cells" if self._areas is not None else ""
        return f"<Measure: {len(self)} points{of} on S^{self.dimension - 1}, total mass {self.total:.6g}>"


@dataclass(frozen=True)
class Split:
    """A measure as a sum. uniform: mass of the part that is the uniform law. rest: measures whose points carry the remaining mass >= 0."""

    uniform: float
    rest: tuple[Measure, ...]

    @property
    def masses(self) -> FloatArray:
        """The masses of the rest, in the order of the measure's points, (n,)."""
        return np.concatenate([part.masses for part in self.rest]) if len(self.rest) > 1 else self.rest[0].masses


def as_measure(name: str, value: ArrayLike | Measure) -> Measure:
    """A measure as it is, or points (n, d) of equal masses 1/n. ValueError naming the argument if the points are none of a sphere."""
    if isinstance(value, Measure):
        return value
    return Measure(inputs.points(name, value))
