"""What a run leaves: states at the output times, one line per accepted step, and how it was made.

Data in: a system and its saved states, as the columns that the system stores them in. Data out: measures at any output, history, a summary
in words.
"""

import json
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from html import escape
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np

from meanfield_pde import inputs
from meanfield_pde.kinds import in_words
from meanfield_pde.measure import Measure
from meanfield_pde.mesh.record import SphereMesh
from meanfield_pde.models.velocity import VelocityModel
from meanfield_pde.records import Record
from meanfield_pde.sphere import FloatArray
from meanfield_pde.systems.system import System

if TYPE_CHECKING:
    import xarray

HISTORY_FIELDS = ("t", "dt", "mass", "energy", "log_energy", "minimum", "atoms", "clusters", "cell_mass")
HISTORY_TYPE = np.dtype([(name, np.float64) for name in HISTORY_FIELDS])


def event_type(d: int) -> np.dtype:
    """The type of an event on S^{d-1}: what `systems.atoms.Event` holds."""
    numbers = [(name, np.float64) for name in ("mass", "radius", "total")]
    return np.dtype([("t", np.float64), ("kind", "U8"), ("place", np.float64, (d,)), *numbers])


def quantities(d: int) -> dict[str, tuple[str, str]]:
    """Unit and name in words of each quantity of a run on S^{d-1}, for labels and attributes; "1" is dimensionless.

    Lengths are in radii of the sphere and times in those of the model, which has no units either.
    """
    area = {2: "rad", 3: "sr"}.get(d, f"area of S^{d - 1}")
    return {
        "time": ("1", "time"),
        "density": (f"1/{area}", "density on the cells, without the atoms"),
        "mass": ("1", "mass"),
        "position": ("1", "position on the unit sphere"),
        "area": (area, "area of the cell"),
        "energy": ("1", "energy (inf beyond double precision)"),
        "log_energy": ("1", "natural logarithm of the energy"),
        "dt": ("1", "length of the step"),
        "minimum": ("1", "smallest mass of a cell or token"),
        "atoms": ("1", "number of atoms, or of tokens"),
        "clusters": ("1", "number of clusters of atoms, of points that tokens travel as"),
        "cell_mass": ("1", "mass on the cells"),
    }


@dataclass(frozen=True, eq=False)
class Solution(Record):
    """A run at its output times.

    system: the `MeanFieldPDE`, `ParticleSystem` or another system. times: (n_t,). columns: its states as the system stores them, arrays
    with one row an output (`System.columns`); in a loaded run those of cells and tokens are `records.Rows`, whose outputs are read from
    the file when they are asked for. history: record array with one row per accepted step, fields t, dt, mass, energy (inf beyond double
    precision, nan if the model has none), log_energy, minimum (smallest mass of a cell or token), atoms (their number; of tokens for
    tokens), clusters (atoms within .1 radians of one another counted once; of tokens: how many points they travel as) and cell_mass (mass
    on cells), all at the end of the step. events: record array with one row for each time that an atom formed, absorbed or merged (or that
    the plain scheme pinned a cluster), fields t, kind, place (d,), mass, radius and total as in `systems.atoms.Event`. status:
    "done", or why the run stopped early. record: how it was made (method, seeds, versions), plain values.
    """

    system: System[Any]
    times: FloatArray
    columns: Mapping[str, Any]
    history: np.recarray
    events: np.recarray
    status: str
    record: dict[str, Any]

    picture: ClassVar[Callable[["Solution"], str] | None] = None
    """What shows a run as HTML: the package sets it to that of `pictures.overview`."""

    def __repr__(self) -> str:
        size = f"{self.mesh.n_cells} cells of {self.mesh.name}" if self.system.mesh is not None else f"{self.masses.shape[1]} tokens"
        when = f"t = {self.times[0]:.6g} to {self.times[-1]:.6g}, {len(self.times)} outputs, {len(self.history)} steps"
        energies = f", log energy {self.history.log_energy[-1]:.6g} at the end" if len(self.history) else ""
        return f"<Solution: {self.kind}, {self.status}\n  {in_words(self.model)}; {size}\n  {when}{energies}>"

    def _repr_html_(self) -> str:
        """The overview, for notebooks; the text where a run cannot be drawn."""
        return self.picture() if self.picture is not None else f"<pre>{escape(repr(self))}</pre>"

    def to_xarray(self) -> "xarray.Dataset":
        """The run as labelled arrays, with units and long names as attributes (`quantities`).

        Dimensions: time; cell, or token; axis (of R^d); step (of the history); atom, for a density that has some: their places and masses,
        nan where an output has fewer. Raises ValueError if xarray is not installed.
        """
        try:
            import xarray
        except ImportError:
            raise ValueError("to_xarray needs xarray, which is not installed; wanted pip install 'meanfield-pde[tables]'") from None
        known = quantities(self.measure(0).dimension)
        found: dict[str, Any] = {f"step_{name}": (("step",), self.history[name], name) for name in HISTORY_FIELDS[1:]}
        if self.system.mesh is None:
            found |= {"mass": (("time", "token"), self.masses, "mass"), "position": (("time", "token", "axis"), self.tokens, "position")}
        else:
            cells = {"density": (self.averages, "density"), "mass": (self.masses, "mass")}
            found |= {name: (("time", "cell"), values, known_as) for name, (values, known_as) in cells.items()}
            found |= {"area": (("cell",), self.mesh.areas, "area"), "center": (("cell", "axis"), self.mesh.centers, "position")}
            atoms = [self.atoms(k) for k in range(len(self.times))]
            if most := max(map(len, atoms)):
                masses = [np.pad(each.masses, (0, most - len(each)), constant_values=np.nan) for each in atoms]
                places = [np.pad(each.points, ((0, most - len(each)), (0, 0)), constant_values=np.nan) for each in atoms]
                found["atom_mass"] = ("time", "atom"), np.array(masses), "mass"
                found["atom_position"] = ("time", "atom", "axis"), np.array(places), "position"
        coordinates = {"time": (("time",), self.times, "time"), "step_time": (("step",), self.history.t, "time")}

        def labelled(variables: Mapping[str, Any]) -> dict[str, Any]:
            names = ("units", "long_name")
            described = {name: dict(zip(names, known[known_as], strict=True)) for name, (_, _, known_as) in variables.items()}
            return {name: (dims, np.asarray(values), described[name]) for name, (dims, values, _) in variables.items()}

        about = {"kind": self.kind, "status": self.status, "model": in_words(self.model), "record": json.dumps(self.record, default=str)}
        return xarray.Dataset(labelled(found), labelled(coordinates), about)

    @property
    def kind(self) -> str:
        """ "density" or "tokens"."""
        return self.system.kind

    @property
    def mesh(self) -> SphereMesh:
        """The mesh of a density. Raises AttributeError for tokens, which have none."""
        if self.system.mesh is None:
            raise AttributeError(f"{self.kind} have no mesh, wanted a density")
        return self.system.mesh

    @property
    def model(self) -> VelocityModel:
        """The velocity model."""
        return self.system.model

    @property
    def masses(self) -> FloatArray:
        """Masses of the cells (n_t, n_cells), without the atoms, or of the tokens (n_t, n)."""
        return self.columns["masses"]

    @property
    def averages(self) -> FloatArray:
        """Cell averages (n_t, n_cells), 1/area, without the atoms. Raises AttributeError for tokens."""
        return self.masses / self.mesh.areas

    @property
    def tokens(self) -> FloatArray:
        """Token positions (n_t, n, d). Raises AttributeError for a density."""
        if "positions" not in self.columns:
            raise AttributeError(f"a {self.kind} has no tokens, wanted `averages` or `measure(k)`")
        return self.columns["positions"]

    def stored(self, k: int) -> Any:
        """The state at output k as the system keeps it (negative counts from the end). Raises ValueError if there is no such output."""
        return self.system.restored(self.columns, inputs.integer("k", k, low=-len(self.times), high=len(self.times) - 1) % len(self.times))

    def measure(self, k: int) -> Measure:
        """The measure at output k, cells and atoms, or tokens (negative counts from the end). ValueError if there is no such output."""
        return self.system.measure(self.stored(k))

    def atoms(self, k: int) -> Measure:
        """The atoms of a density at output k. Raises ValueError if there is no such output, AttributeError for tokens."""
        state = self.stored(k)
        if self.system.mesh is None:
            raise AttributeError(f"{self.kind} have no atoms, wanted `tokens` or `measure(k)`")
        return state.atoms

    def energy_jump(self) -> float:
        """The largest relative change of the energy in a step in which an atom forms, which gathers mass at once; 0 if none does, nan
        without an energy."""
        formed = self.events.t[self.events.kind == "formed"]
        changes = np.diff(self.history.log_energy, prepend=self.history.log_energy[:1])
        steps = np.searchsorted(self.history.t, formed)
        return float(np.abs(np.expm1(changes[steps[steps < len(changes)]])).max(initial=0.0))

    def summary(self) -> str:
        """Mass, energy, resolution and method in a few lines."""
        lines = [f"{self.kind}: {self.status}, t = {self.times[-1]:.6g}, {len(self.history)} steps, {len(self.times)} outputs"]
        if len(self.history):
            first, last = self.history[0], self.history[-1]
            drift = np.abs(self.history.mass - self.measure(0).total).max()
            energies = f"log energy {first.log_energy:.6g} -> {last.log_energy:.6g}"
            lines.append(f"mass {last.mass:.15g} (largest drift {drift:.1e}), minimum {self.history.minimum.min():.3g}, {energies}")
            if len(self.events):
                counts = Counter(self.events.kind.tolist())
                happened = ", ".join(f"{count} {kind}" for kind, count in counts.items())
                jump = f"; the energy jumps by up to {self.energy_jump():.2%} where atoms form" if self.energy_jump() > 0 else ""
                lines.append(f"atoms: {last.atoms:.0f} now, mass {last.mass - last.cell_mass:.6g}; events: {happened}{jump}")
        lines += [f"{key}: {value}" for key, value in self.record.items() if not isinstance(value, dict)]
        return "\n".join(lines)
