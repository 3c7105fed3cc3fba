"""Runs as VTK files: one .vtu (cells) or .vtp (tokens, atoms) per output, and a .pvd that gives them their physical times.

Data in: solutions. Data out: cell arrays density (1/area), mass (both without the atoms), cell_area, velocity (3 components, at the
centers) and, where the model has one, potential; point arrays mass and velocity of tokens and atoms; field data TimeValue. S^1 lies in
the plane z = 0. Files are appended, zlib-compressed, with UInt64 headers and Int64 indices. pyvista and vtk are imported when called.
Sources: https://docs.vtk.org/en/latest/vtk_file_formats/vtkxml_file_format.html;
https://www.paraview.org/Wiki/ParaView/Data_formats (.pvd).
"""

import json
import os
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from meanfield_pde import inputs
from meanfield_pde.files.replacing import replacing
from meanfield_pde.files.vtk import grid, in_space, write_xml
from meanfield_pde.solution import Solution, quantities
from meanfield_pde.sphere import FloatArray

if TYPE_CHECKING:
    import pyvista

    Data = pyvista.UnstructuredGrid | pyvista.PolyData

NAMES = {"density": "limit", "tokens": "tokens"}
LARGEST_SINGLE = float(np.finfo(np.float32).max)
DIGITS = 6
"""Frame numbers have at least this many digits, so that names sort by time."""
VIEW = Path(__file__).with_name("view.txt")
"""The script for ParaView, with names between @ for what depends on the run."""
LARGEST_RATIO = 1e4
"""Of the densities that its colours tell apart."""
COLLECTION = """<?xml version="1.0" encoding="utf-8"?>
<VTKFile type="Collection" version="1.0" byte_order="LittleEndian" header_type="UInt64">
  <Collection>
{}  </Collection>
</VTKFile>
"""


def write_vtk(folder: str | os.PathLike[str], *solutions: Solution, float32: bool = False) -> list[Path]:
    """Write runs for ParaView; returns the .pvd files, one per solution and one more per density with atoms.

    A density becomes limit.pvd with limit/limit_000000.vtu, .., tokens become tokens.pvd with tokens/tokens_000000.vtp, ..; further
    solutions of the same kind are named limit_2, tokens_2, ... The atoms of a density that has any become limit_atoms.pvd (or
    limit_2_atoms.pvd, ..), with a frame for every output, without points where there is no atom. view.py shows all of it, in ParaView (Run
    Script) and in pvpython. Missing folders are made. Every file replaces an old one of its name in one move, and each .pvd names only
    frames that are whole, so that a run can be looked at while it is written; files of an earlier run that have no successor here (further
    frames, atoms) stay. float32: store points and arrays in
    single precision: values below 1e-45 become 0. A frame repeats the mesh, which VTK's formats cannot share between files: compressed it
    takes about 100 bytes a cell of S^2 (level 5: 1 MB) and 50 a token, half of it with float32. A results file (`save`) stores the mesh
    once, and then 14 bytes a cell and 22 a token for each output.

    Raises ValueError, before any file is made, if there is no solution, one is not a `Solution`, or tokens lie in d > 3; and for values
    beyond single precision with float32. OSError if a file cannot be written.
    """
    target, single = inputs.file_path("folder", folder), inputs.flag("float32", float32)
    written = []
    for name, solution in zip(_names(solutions), solutions, strict=True):
        if solution.system.mesh is None:
            written.append(_write_series(target, name, solution, _points, single))
            continue
        written.append(_write_series(target, name, solution, _cells, single))
        if any(len(solution.atoms(k)) for k in range(len(solution.times))):
            written.append(_write_series(target, f"{name}_atoms", solution, _points, single))
    _write_view(target, solutions, [path.stem for path in written])
    return written


def _write_view(folder: Path, solutions: tuple[Solution, ...], written: list[str]) -> None:
    """A script for ParaView that shows the first density, its atoms and the first tokens."""
    names = ["limit", "limit_atoms", "tokens"]
    density = next((solution for solution in solutions if solution.system.mesh is not None), None)
    low, high = 1.0, 1.0
    if density is not None:
        mesh, outputs = density.mesh, range(len(density.times))
        high = (
            max(float((density.masses[k] / mesh.areas).max()) for k in outputs) or 1.0
        )  # one output at a time: they may not fit into memory
        least = min(_least_shown(density.masses[k] / mesh.areas, high) for k in outputs)
        low = least if least < high * (1 - 1e-6) else high / 2
    last = (density or solutions[0]).measure(-1)
    filled = {
        "NAMES": tuple(name if name in written else "" for name in names),
        "RANGE": (low, high),
        "HIGH": high,
        "UNIT": quantities(last.dimension)["density"][0],
        "CENTRE": in_space(last.mean()[None])[0].tolist(),
        "FOLDER": str(folder.absolute()),
    }
    text = VIEW.read_text(encoding="utf-8")
    for name, value in filled.items():
        text = text.replace(f'"@{name}@"', json.dumps(value)).replace(f"@{name}@", repr(value))
    with replacing(folder / "view.py") as temporary:
        temporary.write_text(text, encoding="utf-8")


def _least_shown(values: FloatArray, high: float) -> float:
    return float(values[values > high / LARGEST_RATIO].min(initial=high))


def _names(solutions: tuple[Solution, ...]) -> list[str]:
    if not solutions:
        raise ValueError("solutions is empty, wanted at least one run to write")
    names: list[str] = []
    for index, solution in enumerate(solutions):
        if not isinstance(solution, Solution):
            raise ValueError(f"solutions[{index}] is a {type(solution).__name__}, wanted a Solution as `solve` returns it")
        d = solution.measure(0).dimension
        if d > 3:
            raise ValueError(f"solutions[{index}] has tokens in dimension {d}, wanted 2 or 3: VTK files hold points of space")
        count = sum(solution.kind == other.kind for other in solutions[: index + 1])
        names.append(NAMES[solution.kind] + (f"_{count}" if count > 1 else ""))
    return names


def _write_series(folder: Path, name: str, solution: Solution, make: "Callable[[Solution, int], Data]", float32: bool) -> Path:
    suffix = ".vtu" if make is _cells else ".vtp"
    (folder / name).mkdir(parents=True, exist_ok=True)
    collection, rows = folder / f"{name}.pvd", []
    digits = max(DIGITS, len(str(len(solution.times) - 1)))
    for k, t in enumerate(solution.times.tolist()):
        frame = f"{name}/{name}_{k:0{digits}}{suffix}"
        data = make(solution, k)
        if float32:
            _to_single(data, frame)
        data.field_data["TimeValue"] = np.array([t])
        write_xml(folder / frame, data)
        time = repr(t).removesuffix(".0")  # the shortest decimal that reads back as the same float (0, 0.1, 0.35)
        rows.append(f'    <DataSet timestep="{time}" part="0" file="{frame}"/>\n')
        with replacing(collection) as temporary:
            temporary.write_text(COLLECTION.format("".join(rows)), encoding="utf-8")
    return collection


def _cells(solution: Solution, k: int) -> "pyvista.UnstructuredGrid":
    mesh, field = solution.mesh, solution.model.field(solution.measure(k), float(solution.times[k]))
    data = grid(mesh)
    data.cell_data["density"] = solution.masses[k] / mesh.areas
    data.cell_data["mass"] = solution.masses[k]
    data.cell_data["cell_area"] = mesh.areas
    data.cell_data["velocity"] = in_space(field.velocity(mesh.centers))
    if field.is_gradient:
        data.cell_data["potential"] = field.potential(mesh.centers)
    data.cell_data.active_scalars_name = "density"
    return data


def _points(solution: Solution, k: int) -> "pyvista.PolyData":
    """Tokens, or the atoms of a density."""
    import pyvista

    points = solution.measure(k) if solution.system.mesh is None else solution.atoms(k)
    velocity = np.empty(points.points.shape)
    if len(points):
        velocity = solution.model.field(solution.measure(k), float(solution.times[k])).velocity(points.points)
    data = pyvista.PolyData(in_space(points.points))
    _put(data.point_data, "mass", points.masses)
    _put(data.point_data, "velocity", in_space(velocity))
    data.point_data.active_scalars_name = "mass"
    return data


def _put(arrays: "pyvista.DataSetAttributes", name: str, values: np.ndarray) -> None:
    """Add an array through VTK, as pyvista refuses arrays without rows."""
    from pyvista import convert_array

    arrays.VTKObject.AddArray(convert_array(np.ascontiguousarray(values), name, deep=True))


def _to_single(data: "pyvista.DataSet", frame: str) -> None:
    def single(name: str, values: FloatArray) -> np.ndarray:
        largest = float(np.abs(values).max(initial=0.0))
        if largest > LARGEST_SINGLE:
            raise ValueError(f"{name} reaches {largest:.3g} in {frame}, beyond single precision, wanted float32=False")
        return values.astype(np.float32)

    for arrays in (data.cell_data, data.point_data):
        for name in arrays.keys():  # noqa: SIM118 - iterating pyvista's arrays while replacing them is not allowed
            _put(arrays, name, single(name, np.asarray(arrays[name])))
    data.points = single("points", np.asarray(data.points))
