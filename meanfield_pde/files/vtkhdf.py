"""Runs in the VTKHDF layout: HDF5 that ParaView (5.12 or later) opens as cells or points with their times; and plain arrays by name.

Data in: times (n_t,), masses of cells (n_t, n_cells) and their mesh, or masses (n_t, n) and positions (n_t, n, d) of tokens. Data out: the
group VTKHDF of a file, and from it the same arrays bit for bit, as `Rows` that are read when asked for. Cells are polygons of S^2 or
lines of S^1 (plane z = 0), stored once for all outputs, with the cell arrays density (1/area) and mass; tokens are vertices with the
point array mass; in d > 3 they are shown by their first three coordinates, and the point array position has all. Outputs lie one after
the other in the first axis of an array, as Steps says.

Datasets of the layout have the attributes units ("1": dimensionless) and long_name. All are shuffled, compressed and end, block by block,
with a checksum, and so do the metadata of this generation of HDF5, which is the
oldest that has them; newer ones are not read by every ParaView. h5py is imported when called.
Source: https://docs.vtk.org/en/latest/vtk_file_formats/vtkhdf_file_format/vtkhdf_specifications.html (version 2.0 of the layout).
"""

import os
import re
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from meanfield_pde.files.contents import LINE, POLYGON
from meanfield_pde.files.replacing import durable
from meanfield_pde.files.vtk import in_space
from meanfield_pde.mesh.record import SphereMesh
from meanfield_pde.records import Rows
from meanfield_pde.solution import quantities
from meanfield_pde.sphere import FloatArray

if TYPE_CHECKING:
    import h5py

ROOT = "VTKHDF"
LAYOUT = (2, 0)
GENERATION = ("v110", "v110")
"""Versions of HDF5 that the file's structures belong to, the oldest and the newest."""
LEVEL = 1
"""Level of compression; at levels 4 and 9 files are 0.5 % smaller."""
BLOCK = 1 << 16
"""Outputs are compressed together up to this many bytes; a larger output is compressed alone."""
CELL_KINDS = ("Vertices", "Lines", "Polygons", "Strips")

Values = Callable[[FloatArray], FloatArray]
"""Turns some outputs (m, n, ...) into the values that are stored."""


@contextmanager
def create(path: Path) -> Iterator["h5py.File"]:
    """A new file with checksums of its structures. Raises OSError with the system's message, found by its number in HDF5's long text.

    The cache of blocks is switched off (rdcc_nbytes): HDF5 would write it on closing a dataset, and ends the process if the disk is full.
    """
    import h5py

    try:
        with h5py.File(path, "w", libver=GENERATION, rdcc_nbytes=0, locking=False) as file:
            yield file
    except (OSError, RuntimeError) as error:
        said = re.search(r"errno = (\d+)", str(error))
        number = int(said[1]) if said else getattr(error, "errno", None)
        raise (OSError(number, os.strerror(number)) if number else OSError(str(error))) from None


def open_file(path: Path) -> "h5py.File":
    """A file to read from; another process may replace it meanwhile. Raises OSError if it is not whole."""
    import h5py

    return h5py.File(path, "r", locking=False)


def put(group: "h5py.Group", name: str, values: NDArray) -> None:
    """Store an array with checksums, which HDF5 has none of for an empty one."""
    group.create_dataset(name, data=values, **(_options(values.shape) if values.size else {}))


def write_arrays(path: Path, arrays: Mapping[str, np.ndarray]) -> None:
    """Replace a file by arrays, each of at least one axis, in one move. Raises OSError if it cannot be written."""
    with durable(path) as temporary, create(temporary) as file:
        for name, values in arrays.items():
            put(file, name, values)


def read_arrays(path: Path) -> dict[str, np.ndarray]:
    """The arrays of such a file, bit for bit. Raises OSError if it cannot be read, ValueError that says in a sentence how it is damaged."""
    try:
        with open_file(path) as file:
            return {name: file[name][:] for name in file}
    except (KeyError, OSError, RuntimeError, TypeError, ValueError) as error:
        if isinstance(error, OSError) and error.errno:
            raise OSError(error.errno, os.strerror(error.errno), str(path)) from None
        raise ValueError(str(error)) from None


def write_cells(file: "h5py.File", mesh: SphereMesh, times: FloatArray, masses: FloatArray) -> None:
    """The group VTKHDF of a density: mesh, times, and the cell arrays density and mass."""
    root = _root(file, "UnstructuredGrid")
    put(root, "NumberOfPoints", np.array([len(mesh.vertices)]))
    put(root, "NumberOfCells", np.array([mesh.n_cells]))
    put(root, "NumberOfConnectivityIds", np.array([len(mesh.cell_vertices)]))
    put(root, "Points", in_space(mesh.vertices))
    put(root, "Connectivity", mesh.cell_vertices)
    put(root, "Offsets", mesh.cell_offsets)
    put(root, "Types", np.full(mesh.n_cells, POLYGON if mesh.dimension == 3 else LINE, dtype=np.uint8))
    _write_steps(root, times, topologies=1, points=0)
    _write_data(root, "Cell", {"density": (masses, lambda block: block / mesh.areas), "mass": (masses, np.asarray)})
    _label(root, mesh.dimension, {"CellData/density": "density", "CellData/mass": "mass"})


def write_points(file: "h5py.File", times: FloatArray, masses: FloatArray, positions: FloatArray) -> None:
    """The group VTKHDF of tokens: times, points, and the point array mass; in d > 3 also position."""
    root = _root(file, "PolyData")
    n, d = positions.shape[1:]
    put(root, "NumberOfPoints", np.array([n]))
    for kind in CELL_KINDS:
        count = n if kind == "Vertices" else 0
        cells = root.create_group(kind)
        put(cells, "NumberOfCells", np.array([count]))
        put(cells, "NumberOfConnectivityIds", np.array([count]))
        put(cells, "Offsets", np.arange(count + 1))
        put(cells, "Connectivity", np.arange(count))
    _write_steps(root, times, topologies=len(CELL_KINDS), points=n)
    _write_outputs(root, "Points", positions, lambda block: np.pad(block[..., :3], ((0, 0), (0, 0), (0, max(0, 3 - d)))))
    _write_data(root, "Point", {"mass": (masses, np.asarray)} | ({"position": (positions, np.asarray)} if d > 3 else {}))
    _label(root, d, {"PointData/mass": "mass"} | ({"PointData/position": "position"} if d > 3 else {}))


def read_times(file: "h5py.File") -> FloatArray:
    """(n_t,)."""
    return file[f"{ROOT}/Steps/Values"][:]


def read_columns(file: "h5py.File", d: int, on_cells: bool) -> dict[str, Rows]:
    """Masses (n_t, n_cells) of cells; or masses (n_t, n) and positions (n_t, n, d) of tokens."""
    if on_cells:
        return {"masses": _outputs(file, f"{ROOT}/CellData/mass", int(file[f"{ROOT}/NumberOfCells"][0]))}
    n = int(file[f"{ROOT}/NumberOfPoints"][0])
    positions = f"{ROOT}/PointData/position" if d > 3 else f"{ROOT}/Points"
    return {"masses": _outputs(file, f"{ROOT}/PointData/mass", n), "positions": _outputs(file, positions, n, d)}


def _root(file: "h5py.File", kind: str) -> "h5py.Group":
    root = file.create_group(ROOT)
    root.attrs["Version"] = LAYOUT
    root.attrs["Type"] = np.bytes_(kind)
    return root


def _write_steps(root: "h5py.Group", times: FloatArray, topologies: int, points: int) -> None:
    """Times, and where the data of each output begin. points: how many each output has of its own; the cells are shared by all outputs."""
    n_t = len(times)
    steps = root.create_group("Steps")
    steps.attrs["NSteps"] = n_t
    put(steps, "Values", times)
    put(steps, "PartOffsets", np.zeros(n_t, dtype=np.int64))
    put(steps, "NumberOfParts", np.ones(n_t, dtype=np.int64))
    put(steps, "PointOffsets", np.arange(n_t) * points)
    for name in ("CellOffsets", "ConnectivityIdOffsets"):
        put(steps, name, np.zeros((n_t, topologies), dtype=np.int64))


def _write_data(root: "h5py.Group", kind: str, arrays: Mapping[str, tuple[FloatArray, Values]]) -> None:
    """Arrays of cells or points, the first of which is shown, and where their outputs begin."""
    data, offsets = root.create_group(f"{kind}Data"), root.create_group(f"Steps/{kind}DataOffsets")
    for name, (rows, values) in arrays.items():
        _write_outputs(data, name, rows, values)
        put(offsets, name, np.arange(len(rows)) * rows.shape[1])
    data[next(iter(arrays))].attrs["Attribute"] = np.bytes_("Scalars")


def _label(root: "h5py.Group", d: int, names: Mapping[str, str]) -> None:
    """Units and names in words of datasets, for readers who have nothing but HDF5. names: of the quantity that each holds."""
    for name, quantity in {"Points": "position", "Steps/Values": "time", **names}.items():
        for attribute, text in zip(("units", "long_name"), quantities(d)[quantity], strict=True):
            root[name].attrs[attribute] = np.bytes_(text)


def _options(chunks: tuple[int, ...]) -> dict[str, Any]:
    return {"chunks": chunks, "compression": "gzip", "compression_opts": LEVEL, "shuffle": True, "fletcher32": True}


def _write_outputs(group: "h5py.Group", name: str, rows: FloatArray, values: Values) -> None:
    """Outputs (n_t, n, ...) one after the other, (n_t n, ...), some at a time: they may be more than fits into memory."""
    n_t, n = rows.shape[:2]
    columns = values(rows[:1]).shape[2:]
    together = min(n_t, max(1, BLOCK // (8 * n * int(np.prod(columns)))))
    dataset = group.create_dataset(name, (n_t * n, *columns), np.float64, **_options((together * n, *columns)))
    for first in range(0, n_t, together):
        block = values(rows[first : first + together])
        dataset[first * n : (first + len(block)) * n] = block.reshape(-1, *columns)


def _outputs(file: "h5py.File", name: str, n: int, *columns: int) -> Rows:
    dataset, n_t = file[name], len(file[f"{ROOT}/Steps/Values"])
    if len(dataset) != n_t * n or dataset.dtype != np.float64:
        raise ValueError(f"{name} has {len(dataset)} rows of {dataset.dtype}, wanted {n_t} times {n} of float64")
    part = tuple(slice(count) for count in columns)

    def read(first: int, last: int) -> FloatArray:
        try:
            return dataset[(slice(first * n, last * n), *part)].reshape(last - first, n, *columns)
        except (OSError, RuntimeError) as error:
            where = f"outputs {first} to {last - 1} of {name}"
            raise ValueError(f"{dataset.file.filename} is damaged, {where} cannot be read: {error}") from None

    return Rows((n_t, n, *columns), read)
