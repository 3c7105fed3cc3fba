"""The results file: one run in one `.npz`, with mesh, attention, history and how it was made.

Data in: a `Solution`. Data out: the file, and from it an equal `Solution`. Arrays are stored bit for bit, the rest as JSON.
"""

import json
import zipfile
from dataclasses import fields
from pathlib import Path
from typing import Any

import numpy as np

from meanfield_pde.attention.integrals import Auto, Direct, Spectral
from meanfield_pde.attention.model import Attention
from meanfield_pde.density import MeanFieldPDE
from meanfield_pde.measure import Measure
from meanfield_pde.mesh.files import replacing
from meanfield_pde.mesh.record import SphereMesh
from meanfield_pde.particles import ParticleSystem
from meanfield_pde.solution import HISTORY_TYPE, Solution, event_type

FORMAT = 2
MATRICES = ("query", "key", "value")


def save(path: str | Path, solution: Solution) -> None:
    """Write a run to `path` (`.npz`), under a temporary name first. Raises ValueError if its velocity model is not an `Attention`."""
    attention = solution.attention
    if not isinstance(attention, Attention):
        raise ValueError(f"solution has the velocity model {type(attention).__name__}, wanted Attention: only that can be stored")
    file = Path(path)
    arrays: dict[str, Any] = {"times": solution.times, "masses": solution.masses, "history": np.asarray(solution.history)}
    if solution.positions is not None:
        arrays["positions"] = solution.positions
    arrays |= {name: matrix for name in MATRICES if (matrix := getattr(attention, name)) is not None}
    described: dict[str, Any] = {
        "format": FORMAT,
        "kind": solution.kind,
        "beta": attention.beta,
        "normalised": attention.normalised,
        "log_scale": attention.log_scale,
        "method": _described_method(solution.system.method),  # type: ignore[attr-defined]
        "status": solution.status,
        "record": solution.record,
    }
    if solution.kind == "density":
        mesh = solution.mesh
        arrays |= {
            "events": np.asarray(solution.events),
            "atom_counts": np.array([len(atoms) for atoms in solution.atom_states], dtype=np.int64),
            "atom_points": np.concatenate([atoms.points for atoms in solution.atom_states]),
            "atom_masses": np.concatenate([atoms.masses for atoms in solution.atom_states]),
        }
        arrays |= {f"mesh.{field.name}": getattr(mesh, field.name) for field in fields(mesh) if field.name not in ("name", "repairs")}
        described |= {"order": solution.system.order, "atoms": solution.system.atoms, "mesh": {"name": mesh.name, "repairs": mesh.repairs}}  # type: ignore[attr-defined]
    with replacing(file) as temporary, temporary.open("wb") as stream:
        np.savez_compressed(stream, description=np.array(json.dumps(described)), **arrays)


def load(path: str | Path) -> Solution:
    """The run stored in a results file. Raises FileNotFoundError, or ValueError if the file is not a complete results file."""
    file = Path(path)
    if not file.is_file():
        raise FileNotFoundError(f"no results file {file}")
    try:
        with file.open("rb") as stream, np.load(stream, allow_pickle=False) as stored:
            arrays = {name: stored[name] for name in stored.files}
        described = json.loads(str(arrays["description"]))
        if described["format"] != FORMAT:
            raise ValueError(f"its format is {described['format']}, wanted {FORMAT}")
        return _solution(arrays, described)
    except (ValueError, KeyError, EOFError, OSError, zipfile.BadZipFile) as error:
        raise ValueError(f"{file} is no complete results file: {error}") from None


def _solution(arrays: dict[str, Any], described: dict[str, Any]) -> Solution:
    matrices: dict[str, Any] = {name: arrays.get(name) for name in MATRICES}
    attention = Attention(**matrices, **{name: described[name] for name in ("beta", "normalised", "log_scale")})
    method = _method(described["method"])
    system: MeanFieldPDE | ParticleSystem = ParticleSystem(attention, method)
    if described["kind"] == "density":
        stored = {name.removeprefix("mesh."): array for name, array in arrays.items() if name.startswith("mesh.")}
        mesh = SphereMesh(name=described["mesh"]["name"], repairs=tuple(described["mesh"]["repairs"]), **stored)
        system = MeanFieldPDE(mesh, attention, described["order"], method, described["atoms"])
    d = system.mesh.dimension if isinstance(system, MeanFieldPDE) else arrays["positions"].shape[2]
    return Solution(
        system=system,
        times=arrays["times"],
        masses=arrays["masses"],
        positions=arrays.get("positions"),
        atom_states=_atoms(arrays) if described["kind"] == "density" else (),
        history=arrays["history"].astype(HISTORY_TYPE).view(np.recarray),
        events=arrays.get("events", np.empty(0, dtype=event_type(d))).view(np.recarray),
        status=described["status"],
        record=described["record"],
    )


def _atoms(arrays: dict[str, Any]) -> tuple[Measure, ...]:
    ends = np.cumsum(arrays["atom_counts"])[:-1]
    parts = zip(np.split(arrays["atom_points"], ends), np.split(arrays["atom_masses"], ends), strict=True)
    return tuple(Measure.trusted(points, masses) for points, masses in parts)


def _described_method(method: Any) -> Any:
    return method if isinstance(method, str) else {"type": type(method).__name__, **vars(method)}


def _method(described: Any) -> Any:
    if isinstance(described, str):
        return described
    kinds = {kind.__name__: kind for kind in (Auto, Direct, Spectral)}
    return kinds[described["type"]](**{name: value for name, value in described.items() if name != "type"})
