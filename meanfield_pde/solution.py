"""What a run leaves: states at the output times, one line per accepted step, and how it was made.

Data in: a system and its saved states. Data out: measures at any output, history, a summary in words.
"""

from dataclasses import dataclass
from typing import Any

import numpy as np

from meanfield_pde import inputs
from meanfield_pde.measure import Measure
from meanfield_pde.records import equal
from meanfield_pde.sphere import FloatArray
from meanfield_pde.system import System

HISTORY_TYPE = np.dtype([(name, np.float64) for name in ("t", "dt", "mass", "minimum", "energy", "log_energy")])


@dataclass(frozen=True, eq=False)
class Solution:
    """A run at its output times.

    system: the `MeanFieldPDE` or `ParticleSystem`. times: (n_t,). masses: (n_t, n_cells) for a density, (n_t, n) for tokens.
    positions: (n_t, n, d), None for a density, whose masses sit at the mesh's centers. history: record array with one row per accepted
    step, fields t, dt, mass, minimum (smallest mass of a cell or token), energy (inf beyond double precision) and log_energy, all at the
    end of the step. status: "done", or why the run stopped early. record: how it was made (method, seeds, versions), plain values.
    """

    system: System[Any]
    times: FloatArray
    masses: FloatArray
    positions: FloatArray | None
    history: np.recarray
    status: str
    record: dict[str, Any]

    @property
    def kind(self) -> str:
        """ "density" or "tokens"."""
        return self.system.kind

    @property
    def mesh(self) -> Any:
        """The mesh of a density. Raises AttributeError for tokens, which have none."""
        return self.system.mesh  # type: ignore[attr-defined]

    @property
    def attention(self) -> Any:
        """The velocity model."""
        return self.system.attention  # type: ignore[attr-defined]

    @property
    def averages(self) -> FloatArray:
        """Cell averages (n_t, n_cells), 1/area. Raises AttributeError for tokens."""
        return self.masses / self.mesh.areas

    @property
    def tokens(self) -> FloatArray:
        """Token positions (n_t, n, d). Raises AttributeError for a density."""
        if self.positions is None:
            raise AttributeError("a density has no tokens, wanted `averages` or `measure(k)`")
        return self.positions

    def measure(self, k: int) -> Measure:
        """The measure at output k (negative counts from the end). Raises ValueError if there is no such output."""
        inputs.integer("k", k, low=-len(self.times), high=len(self.times) - 1)
        points = self.mesh.centers if self.positions is None else self.positions[k]
        return Measure.trusted(points, self.masses[k])

    def summary(self) -> str:
        """Mass, energy, resolution and method in a few lines."""
        lines = [f"{self.kind}: {self.status}, t = {self.times[-1]:.6g}, {len(self.history)} steps, {len(self.times)} outputs"]
        if len(self.history):
            first, last = self.history[0], self.history[-1]
            lines.append(
                f"mass {last.mass:.15g} (largest drift {np.abs(self.history.mass - self.masses[0].sum()).max():.1e}), "
                f"minimum {self.history.minimum.min():.3g}, log energy {first.log_energy:.6g} -> {last.log_energy:.6g}"
            )
        lines += [f"{key}: {value}" for key, value in self.record.items() if not isinstance(value, dict)]
        return "\n".join(lines)

    def __eq__(self, other: object) -> bool:
        return equal(self, other)
