"""What a run leaves: states at the output times, one line per accepted step, and how it was made.

Data in: a system and its saved states. Data out: measures at any output, history, a summary in words.
"""

from collections import Counter
from dataclasses import dataclass
from typing import Any

import numpy as np

from meanfield_pde import inputs
from meanfield_pde.measure import Measure
from meanfield_pde.records import equal
from meanfield_pde.sphere import FloatArray
from meanfield_pde.systems.system import System

HISTORY_FIELDS = ("t", "dt", "mass", "energy", "log_energy", "minimum", "atoms", "clusters", "diffuse")
HISTORY_TYPE = np.dtype([(name, np.float64) for name in HISTORY_FIELDS])


def event_type(d: int) -> np.dtype:
    """The type of an event on S^{d-1}: what `atoms.Event` holds."""
    numbers = [(name, np.float64) for name in ("mass", "radius", "total")]
    return np.dtype([("t", np.float64), ("kind", "U8"), ("place", np.float64, (d,)), *numbers])


@dataclass(frozen=True, eq=False)
class Solution:
    """A run at its output times.

    system: the `MeanFieldPDE` or `ParticleSystem`. times: (n_t,). masses: (n_t, n_cells) for a density, (n_t, n) for tokens.
    positions: (n_t, n, d), None for a density, whose masses sit at the mesh's centers. Masses and positions of a loaded run are
    `records.Rows`, arrays whose outputs are read from the file when they are asked for. atom_states: a density's atoms, n_t measures.
    history: record array with one row per accepted step, fields t, dt, mass, energy (inf beyond double precision), log_energy, minimum
    (smallest mass of a cell or token), atoms (their number; of tokens for tokens), clusters (the atoms within .1 radians of one another
    counted once; 0 for tokens) and diffuse (mass on cells), all at the end of the step. events: record array with one row for each time
    that an atom formed, absorbed or merged (or that the plain scheme pinned a cluster), fields t, kind, place (d,), mass, radius and
    total as in `atoms.Event`. status: "done", or why the run stopped early.
    record: how it was made (method, seeds, versions), plain values.
    """

    system: System[Any]
    times: FloatArray
    masses: FloatArray
    positions: FloatArray | None
    atom_states: tuple[Measure, ...]
    history: np.recarray
    events: np.recarray
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
        """Cell averages (n_t, n_cells), 1/area, without the atoms. Raises AttributeError for tokens."""
        return self.masses / self.mesh.areas

    @property
    def tokens(self) -> FloatArray:
        """Token positions (n_t, n, d). Raises AttributeError for a density."""
        if self.positions is None:
            raise AttributeError("a density has no tokens, wanted `averages` or `measure(k)`")
        return self.positions

    def measure(self, k: int) -> Measure:
        """The measure at output k, cells and atoms (negative counts from the end). Raises ValueError if there is no such output."""
        inputs.integer("k", k, low=-len(self.times), high=len(self.times) - 1)
        if self.positions is not None:
            return Measure.trusted(self.positions[k], self.masses[k])
        return Measure.joined(Measure.trusted(self.mesh.centers, self.masses[k]), self.atom_states[k])

    def atoms(self, k: int) -> Measure:
        """The atoms of a density at output k. Raises ValueError if there is no such output, AttributeError for tokens."""
        inputs.integer("k", k, low=-len(self.times), high=len(self.times) - 1)
        if self.positions is not None:
            raise AttributeError("tokens have no atoms, wanted `tokens` or `measure(k)`")
        return self.atom_states[k]

    def summary(self) -> str:
        """Mass, energy, resolution and method in a few lines."""
        lines = [f"{self.kind}: {self.status}, t = {self.times[-1]:.6g}, {len(self.history)} steps, {len(self.times)} outputs"]
        if len(self.history):
            first, last = self.history[0], self.history[-1]
            lines.append(
                f"mass {last.mass:.15g} (largest drift {np.abs(self.history.mass - self.measure(0).total).max():.1e}), "
                f"minimum {self.history.minimum.min():.3g}, log energy {first.log_energy:.6g} -> {last.log_energy:.6g}"
            )
            if self.kind == "density" and len(self.events):
                counts = Counter(self.events.kind.tolist())
                happened = ", ".join(f"{count} {kind}" for kind, count in counts.items())
                lines.append(f"atoms: {last.atoms:.0f} now, mass {last.mass - last.diffuse:.6g}; events: {happened}")
        lines += [f"{key}: {value}" for key, value in self.record.items() if not isinstance(value, dict)]
        return "\n".join(lines)

    def __eq__(self, other: object) -> bool:
        return equal(self, other)
