"""The results file: one run in one `.vtkhdf`, which ParaView opens as it is, with system, history and how it was made.

Data in: a `Solution`. Data out: the file, and from it an equal `Solution`, whose outputs are read when they are asked for. What is shown
is in the group VTKHDF (`vtkhdf`): masses of cells, or tokens. All else is in the group meanfield_pde: a description of the run in plain
values (`kinds`), as JSON, in which arrays stand under their names, and these arrays bit for bit. Its attributes say in texts what the run
is: kind, status, model, case (the tables of the case file, as JSON), record and history_units (JSON).
"""

import json
import os
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np

from meanfield_pde import inputs
from meanfield_pde.files import vtkhdf
from meanfield_pde.files.replacing import durable
from meanfield_pde.kinds import STORED, Kinds, UnknownKindError, described, in_words, restored, with_own
from meanfield_pde.solution import HISTORY_FIELDS, HISTORY_TYPE, Solution, event_type, quantities

if TYPE_CHECKING:
    import h5py

FORMAT = 4
SUFFIX = ".vtkhdf"
ARCHIVE = b"PK\3\4"
"""The first bytes of a file of format 2 or older."""
GROUP, RUN, MEMORY = "meanfield_pde", "run", "memory"
VALUES, ARRAY = "values", "array"
FileName: TypeAlias = str | os.PathLike[str]
SHOWN = ("masses", "positions")
"""Columns that are stored in the group VTKHDF."""
WORD = "S8"
"""How the kind of an event is stored: HDF5 has no type for numpy's "U8"."""
DAMAGED = (AttributeError, LookupError, OSError, OverflowError, RuntimeError, TypeError, ValueError)
"""What h5py and the records raise for a file that is damaged or not a results file."""


def save(path: FileName, solution: Solution, memory: Mapping[str, Any] | None = None, previous: FileName | None = None) -> None:
    """Write a run to `path` (`.vtkhdf`), which is replaced in one move once the new file is whole and on the disk.

    A reader sees the old or the new file, so that a run can be looked at while it is under way; a failure leaves the old one alone.
    memory: of a run under way, nested plain values and arrays, for `read_memory`. previous: a name that the old file keeps.
    Raises ValueError for a name that does not end in .vtkhdf, and for a system or model that a file could not give back (`kinds`: its
    constructor arguments must be plain values, arrays or such objects, kept as attributes); OSError if the file cannot be written.
    """
    inputs.instance("solution", solution, Solution)
    target = inputs.file_path("path", path, (SUFFIX,))
    kept = None if previous is None else inputs.file_path("previous", previous, (SUFFIX,))
    run = _described(solution)
    with durable(target, kept) as temporary, vtkhdf.create(temporary) as file:
        columns, mesh = solution.columns, solution.system.mesh
        if mesh is None:
            vtkhdf.write_points(file, solution.times, columns["masses"], columns["positions"])
        else:
            vtkhdf.write_cells(file, mesh, solution.times, columns["masses"])
        group = file.create_group(GROUP)
        group.attrs["format"] = FORMAT
        for name, text in _about(solution).items():
            group.attrs[name] = np.bytes_(text.encode())
        _put(group.create_group(RUN), run)
        if memory is not None:
            _put(group.create_group(MEMORY), memory)


def load(path: str | os.PathLike[str], kinds: Iterable[type] = ()) -> Solution:
    """The run stored in a results file; masses and positions are `records.Rows`, read from the file when they are asked for.

    kinds: classes of one's own (models, say) that the run was made with. The file stays open for as long as its rows are in use, and they
    stay those of this file if a newer one takes its place.
    Raises FileNotFoundError, or ValueError if the file is not a complete results file or holds a class that is not among `kinds`; masses
    and positions raise it where they are damaged.
    """
    known = with_own(STORED, kinds)
    source = inputs.file_path("path", path)
    if not source.is_file():
        raise FileNotFoundError(f"no results file {source}")
    with source.open("rb") as stream:
        if stream.read(len(ARCHIVE)) == ARCHIVE:
            raise ValueError(f"{source} is a results file of format 2 or older (.npz), wanted format {FORMAT} ({SUFFIX})")
    try:
        return _solution(vtkhdf.open_file(source), known)
    except UnknownKindError as error:
        raise UnknownKindError(f"{source} cannot be read: {error}") from None
    except DAMAGED as error:
        raise ValueError(f"{source} is no complete results file: {error}") from None


def read_memory(path: str | os.PathLike[str]) -> dict[str, Any] | None:
    """What `save` was given as memory, None if nothing. Raises ValueError if the file is damaged."""
    source = inputs.file_path("path", path)
    try:
        with vtkhdf.open_file(source) as file:
            return _get(file[GROUP][MEMORY]) if MEMORY in file[GROUP] else None
    except DAMAGED as error:
        raise ValueError(f"{source} is no complete results file: {error}") from None


def _about(solution: Solution) -> dict[str, str]:
    """What a reader with nothing but HDF5 wants to know, as texts in UTF-8: attributes of the group, which `load` does not read."""
    known = quantities(solution.measure(0).dimension)
    fields = {name: known["time" if name == "t" else name] for name in HISTORY_FIELDS}
    case = {"case": json.dumps(solution.record["case"])} if "case" in solution.record else {}
    about = {"kind": solution.kind, "status": solution.status, "model": in_words(solution.model)}
    return (
        about
        | case
        | {
            "record": json.dumps({name: value for name, value in solution.record.items() if name != "case"}),
            "history_units": json.dumps(fields),
        }
    )


def _described(solution: Solution) -> dict[str, Any]:
    """All of a run except the columns in SHOWN."""
    kinds = [(name, WORD if name == "kind" else solution.events.dtype[name]) for name in solution.events.dtype.names or ()]
    return {
        "system": described(solution.system, "system"),
        "status": solution.status,
        "record": solution.record,
        "history": np.asarray(solution.history),
        "events": np.asarray(solution.events).astype(kinds),
        "columns": {name: values for name, values in solution.columns.items() if name not in SHOWN},
    }


def _solution(file: "h5py.File", known: Kinds) -> Solution:
    group = file[GROUP]
    if group.attrs["format"] != FORMAT:
        raise ValueError(f"its format is {group.attrs['format']}, wanted {FORMAT}")
    run = _get(group[RUN])
    system = restored(run["system"], known)
    d = run["events"].dtype["place"].shape[0]
    return Solution(
        system=system,
        times=vtkhdf.read_times(file),
        columns={**vtkhdf.read_columns(file, d, on_cells=system.mesh is not None), **run["columns"]},
        history=run["history"].astype(HISTORY_TYPE).view(np.recarray),
        events=run["events"].astype(event_type(d)).view(np.recarray),
        status=run["status"],
        record=run["record"],
    )


def _put(group: "h5py.Group", nested: Any) -> None:
    """Store nested plain values and arrays."""
    text, arrays = flattened(nested)
    vtkhdf.put(group, VALUES, np.frombuffer(text.encode(), dtype=np.uint8))
    for name, values in arrays.items():
        vtkhdf.put(group, name, values)


def flattened(nested: Any) -> tuple[str, dict[str, np.ndarray]]:
    """Nested plain values as JSON, in which a name stands for each array, and the arrays by these names."""
    arrays: dict[str, np.ndarray] = {}

    def plain(value: Any) -> Any:
        if isinstance(value, Mapping):
            return {name: plain(entry) for name, entry in value.items()}
        if isinstance(value, (list, tuple)):
            return [plain(entry) for entry in value]
        if isinstance(value, np.ndarray):
            arrays[f"array {len(arrays)}"] = value
            return {ARRAY: f"array {len(arrays) - 1}"}
        return value

    return json.dumps(plain(nested)), arrays


def _get(group: "h5py.Group") -> Any:
    """What `_put` stored; arrays are read-only, so that records need not copy them."""
    return _with_arrays(json.loads(group[VALUES][:].tobytes()), group)


def _with_arrays(value: Any, group: "h5py.Group") -> Any:
    """Nested values with their arrays back in place. No closure, whose cycle would keep the file open."""
    if isinstance(value, list):
        return [_with_arrays(entry, group) for entry in value]
    if not isinstance(value, dict):
        return value
    if set(value) == {ARRAY}:
        array = group[value[ARRAY]][:]
        array.setflags(write=False)
        return array
    return {name: _with_arrays(entry, group) for name, entry in value.items()}
