"""The results file: one run in one `.vtkhdf`, which ParaView opens as it is, with mesh, attention, history and how it was made.

Data in: a `Solution`. Data out: the file, and from it an equal `Solution`, whose outputs are read when they are asked for. The outputs are
in the group VTKHDF (`vtkhdf`), all else in the group meanfield_pde: arrays bit for bit, the rest as JSON.
"""

import json
import os
from collections.abc import Mapping
from dataclasses import fields
from typing import TYPE_CHECKING, Any

import numpy as np

from meanfield_pde import inputs
from meanfield_pde.files import vtkhdf
from meanfield_pde.files.replacing import durable
from meanfield_pde.integrals.methods import Auto, Direct, Spectral
from meanfield_pde.measure import Measure
from meanfield_pde.mesh.record import SphereMesh
from meanfield_pde.models.attention import Attention
from meanfield_pde.solution import HISTORY_TYPE, Solution, event_type
from meanfield_pde.systems.density import MeanFieldPDE
from meanfield_pde.systems.particles import ParticleSystem

if TYPE_CHECKING:
    import h5py

FORMAT = 3
SUFFIX = ".vtkhdf"
ARCHIVE = b"PK\3\4"
"""How a file of an older format begins."""
GROUP, MEMORY = "meanfield_pde", "memory"
ARRAY = "array"
MATRICES = ("query", "key", "value")
MESH_ARRAYS = tuple(field.name for field in fields(SphereMesh) if field.name not in ("name", "repairs"))
KIND = "S8"
"""How the kind of an event is stored: HDF5 has no type for numpy's "U8"."""
DAMAGED = (AttributeError, LookupError, OSError, OverflowError, RuntimeError, TypeError, ValueError)
"""What h5py and the records raise for a file that is damaged or another one's."""


def save(
    path: str | os.PathLike[str],
    solution: Solution,
    memory: Mapping[str, Any] | None = None,
    previous: str | os.PathLike[str] | None = None,
) -> None:
    """Write a run to `path` (`.vtkhdf`), which is replaced in one move once the new file is whole and on the disk.

    A reader sees the old or the new file, so that a run can be looked at while it is under way; a failure leaves the old one alone.
    memory: of a run under way, nested plain values and arrays, for `read_memory`. previous: a name that the old file keeps.
    Raises ValueError for a name that does not end in .vtkhdf, and for a system or velocity model of a type of one's own, which a file
    could not give back; OSError if the file cannot be written.
    """
    inputs.instance("solution", solution, Solution)
    target, attention = inputs.file_path("path", path, (SUFFIX,)), solution.attention
    kept = None if previous is None else inputs.file_path("previous", previous, (SUFFIX,))
    refuse_foreign(solution)
    with durable(target, kept) as temporary, vtkhdf.create(temporary) as file:
        _write(file, solution, attention)
        if memory is not None:
            _write_memory(file, memory)


def refuse_foreign(solution: Solution) -> None:
    """ValueError if the system or the velocity model is of a type of one's own."""
    known = {"system": (solution.system, (MeanFieldPDE, ParticleSystem)), "velocity model": (solution.attention, (Attention,))}
    for what, (value, kinds) in known.items():
        if type(value) not in kinds:
            wanted = " or ".join(kind.__name__ for kind in kinds)
            raise ValueError(f"solution has the {what} {type(value).__name__}, wanted {wanted} itself: a file can give back no other")


def load(path: str | os.PathLike[str]) -> Solution:
    """The run stored in a results file; its masses and positions are `records.Rows`, read from the file when they are asked for.

    The file stays open for as long as they are in use, and they stay those of this file if a newer one takes its place.
    Raises FileNotFoundError, or ValueError if the file is not a complete results file; masses and positions raise it where they are
    damaged.
    """
    source = inputs.file_path("path", path)
    if not source.is_file():
        raise FileNotFoundError(f"no results file {source}")
    with source.open("rb") as stream:
        is_archive = stream.read(len(ARCHIVE)) == ARCHIVE
    if is_archive:
        raise ValueError(f"{source} is a results file of format 2 or older (.npz), wanted format {FORMAT} ({SUFFIX})")
    try:
        return _solution(vtkhdf.open_file(source))
    except DAMAGED as error:
        raise ValueError(f"{source} is no complete results file: {error}") from None


def read_memory(path: str | os.PathLike[str]) -> dict[str, Any] | None:
    """What `save` was given as memory, None if nothing. Raises ValueError if the file is damaged."""
    source = inputs.file_path("path", path)
    try:
        with vtkhdf.open_file(source) as file:
            group = file[GROUP].get(MEMORY)
            if group is None:
                return None
            arrays = {name: _array(group, name) for name in group if name != "values"}
            return _with_arrays(json.loads(group["values"][:].tobytes()), arrays)
    except DAMAGED as error:
        raise ValueError(f"{source} is no complete results file: {error}") from None


def _write(file: "h5py.File", solution: Solution, attention: Attention) -> None:
    group = file.create_group(GROUP)
    group.attrs["format"] = FORMAT
    described: dict[str, Any] = {
        "kind": solution.kind,
        "beta": attention.beta,
        "normalised": attention.normalised,
        "log_scale": attention.log_scale,
        "method": _described_method(solution.system.method),  # type: ignore[attr-defined]
        "status": solution.status,
        "record": solution.record,
    }
    arrays: dict[str, Any] = {"history": np.asarray(solution.history)}
    arrays |= {name: matrix for name in MATRICES if (matrix := getattr(attention, name)) is not None}
    if solution.kind == "density":
        mesh, atoms = solution.mesh, solution.atom_states
        described |= {"order": solution.system.order, "atoms": solution.system.atoms, "mesh": {"name": mesh.name, "repairs": mesh.repairs}}  # type: ignore[attr-defined]
        arrays |= {f"mesh/{name}": getattr(mesh, name) for name in MESH_ARRAYS} | {
            "events": np.asarray(solution.events).astype(_stored_event_type(mesh.dimension)),
            "atom_counts": np.array([len(state) for state in atoms], dtype=np.int64),
            "atom_points": np.concatenate([state.points for state in atoms]),
            "atom_masses": np.concatenate([state.masses for state in atoms]),
        }
        vtkhdf.write_cells(file, mesh, solution.times, solution.masses)
    else:
        described["dimension"] = solution.tokens.shape[2]
        vtkhdf.write_points(file, solution.times, solution.masses, solution.tokens)
    arrays["description"] = np.frombuffer(json.dumps(described).encode(), dtype=np.uint8)
    for name, values in arrays.items():
        vtkhdf.put(group, name, values)


def _write_memory(file: "h5py.File", memory: Mapping[str, Any]) -> None:
    arrays: dict[str, np.ndarray] = {}

    def plain(value: Any) -> Any:
        if isinstance(value, Mapping):
            return {name: plain(entry) for name, entry in value.items()}
        if isinstance(value, np.ndarray):
            arrays[f"array {len(arrays)}"] = value
            return {ARRAY: f"array {len(arrays) - 1}"}
        return value

    group = file.create_group(f"{GROUP}/{MEMORY}")
    vtkhdf.put(group, "values", np.frombuffer(json.dumps(plain(memory)).encode(), dtype=np.uint8))
    for name, values in arrays.items():
        vtkhdf.put(group, name, values)


def _with_arrays(value: Any, arrays: Mapping[str, np.ndarray]) -> Any:
    """Nested values with their arrays back in place."""
    if not isinstance(value, dict):
        return value
    if set(value) == {ARRAY}:
        return arrays[value[ARRAY]]
    return {name: _with_arrays(entry, arrays) for name, entry in value.items()}


def _solution(file: "h5py.File") -> Solution:
    group = file[GROUP]
    if group.attrs["format"] != FORMAT:
        raise ValueError(f"its format is {group.attrs['format']}, wanted {FORMAT}")
    described = json.loads(group["description"][:].tobytes())
    matrices: dict[str, Any] = {name: _array(group, name) for name in MATRICES if name in group}
    attention = Attention(**matrices, **{name: described[name] for name in ("beta", "normalised", "log_scale")})
    method, is_density = _method(described["method"]), described["kind"] == "density"
    system: MeanFieldPDE | ParticleSystem = ParticleSystem(attention, method)
    if is_density:
        stored = {name: _array(group, f"mesh/{name}") for name in MESH_ARRAYS}
        mesh = SphereMesh(name=described["mesh"]["name"], repairs=tuple(described["mesh"]["repairs"]), **stored)
        system = MeanFieldPDE(mesh, attention, described["order"], method, described["atoms"])
    d = mesh.dimension if is_density else described["dimension"]
    masses: Any = vtkhdf.cell_masses(file) if is_density else vtkhdf.token_masses(file)
    positions: Any = None if is_density else vtkhdf.token_positions(file, d)
    events = group["events"][:] if is_density else np.empty(0)
    return Solution(
        system=system,
        times=vtkhdf.read_times(file),
        masses=masses,
        positions=positions,
        atom_states=_atoms(group) if is_density else (),
        history=group["history"][:].astype(HISTORY_TYPE).view(np.recarray),
        events=events.astype(event_type(d)).view(np.recarray),
        status=described["status"],
        record=described["record"],
    )


def _array(group: "h5py.Group", name: str) -> np.ndarray:
    """An array that a record takes as it is, without a copy."""
    array = group[name][:]
    array.setflags(write=False)
    return array


def _stored_event_type(d: int) -> np.dtype:
    return np.dtype([(name, KIND if name == "kind" else kind) for name, (kind, *_) in (event_type(d).fields or {}).items()])


def _atoms(group: "h5py.Group") -> tuple[Measure, ...]:
    ends = np.cumsum(group["atom_counts"][:])[:-1]
    parts = zip(np.split(group["atom_points"][:], ends), np.split(group["atom_masses"][:], ends), strict=True)
    return tuple(Measure.trusted(points, masses) for points, masses in parts)


def _described_method(method: Any) -> Any:
    return method if isinstance(method, str) else {"type": type(method).__name__, **vars(method)}


def _method(described: Any) -> Any:
    if isinstance(described, str):
        return described
    kinds = {kind.__name__: kind for kind in (Auto, Direct, Spectral)}
    return kinds[described["type"]](**{name: value for name, value in described.items() if name != "type"})
