"""VTK files: times (R7), values and types (R8, R9), sizes (R10), what ParaView and pyvista read, what is refused, what a failure leaves."""

import json
import os
import shutil
import subprocess
from dataclasses import replace
from pathlib import Path
from xml.etree import ElementTree

import numpy as np
import pytest
from matplotlib.image import imread

import meanfield_pde as mf
from meanfield_pde.files.series import write_vtk
from meanfield_pde.sphere import dot, normalise

TIMES = (0, 0.1, 0.35)
CELL_ARRAYS = ["cell_area", "density", "mass", "potential", "velocity"]


def runs(mesh, attention, count=60):
    d = mesh.dimension
    law = mf.VonMisesFisher(np.eye(d)[-1], 2.0)
    limit = mf.solve(mf.MeanFieldPDE(mesh, attention), mf.project(mesh, law), t_end=0.35, save_at=TIMES)
    tokens = mf.solve(mf.ParticleSystem(attention), mf.sample(law, count, 0), t_end=0.35, save_at=TIMES)
    return limit, tokens


@pytest.fixture(scope="module")
def sphere_runs():
    return runs(mf.icosahedral(2), mf.Attention(beta=4.0))


@pytest.fixture(scope="module")
def circle_runs():
    return runs(mf.circle(48), mf.Attention(beta=4.0))


@pytest.fixture(scope="module", params=["sphere_runs", "circle_runs"])
def both(request):
    return request.getfixturevalue(request.param)


def with_atoms(mesh):
    """No atom yet, cells and atoms, atoms alone: states put together, since no short run has all three."""
    attention = mf.Attention(beta=9.0)
    d = mesh.dimension
    law = mf.VonMisesFisher(np.eye(d)[-1], 8.0)
    start = mf.project(mesh, law)
    points = normalise(np.eye(d) + 0.3)
    masses = np.arange(1.0, d + 1) / np.arange(1.0, d + 1).sum()
    states = [
        mf.State(start),
        mf.State(start / 2, mf.Measure(points, masses / 2)),
        mf.State(0 * start, mf.Measure(points[1:], masses[1:] / masses[1:].sum())),
    ]
    runs = [mf.solve(mf.MeanFieldPDE(mesh, attention), state, t_end=1e-3, save_at=[0]) for state in states]
    return replace(runs[0], times=np.array(TIMES), columns=runs[0].system.columns([run.stored(0) for run in runs]))


def with_masses(solution, masses):
    return replace(solution, columns={**solution.columns, "masses": masses})


def files(folder):
    return sorted(str(path.relative_to(folder)) for path in Path(folder).rglob("*") if path.is_file())


def collection(path):
    """(time as written, file) of each frame of a .pvd."""
    return [(row.get("timestep"), row.get("file")) for row in ElementTree.parse(path).iter("DataSet")]


def header(path):
    """The XML of a .vtu or .vtp without its appended data."""
    head, tag, _ = Path(path).read_bytes().partition(b"<AppendedData")
    assert tag
    return ElementTree.fromstring(head + b"</VTKFile>")


class Swirl:
    """A velocity that grows with t and has no potential; from t = 0.2 on it fails, if asked to."""

    def __init__(self, fails=False):
        self.fails = fails

    def velocity(self, points, measure, t=0.0):
        if self.fails and t > 0.2:
            raise OverflowError("too large")
        return t * np.cross([0.0, 0.0, 1.0], points)


# -- what is written


def test_names_and_times(tmp_path, both):
    """R7: the .pvd gives physical times, 0, 0.1, 0.35, and relative, zero-padded names; no temporary file stays."""
    import pyvista

    written = write_vtk(tmp_path / "a" / "b", *both)
    assert written == [tmp_path / "a" / "b" / "limit.pvd", tmp_path / "a" / "b" / "tokens.pvd"]
    cells, points = [f"limit/limit_00000{k}.vtu" for k in range(3)], [f"tokens/tokens_00000{k}.vtp" for k in range(3)]
    assert files(tmp_path / "a" / "b") == ["limit.pvd", *cells, "tokens.pvd", *points, "view.py"]
    assert collection(written[0]) == list(zip(["0", "0.1", "0.35"], cells, strict=True))
    assert collection(written[1]) == list(zip(["0", "0.1", "0.35"], points, strict=True))
    reader = pyvista.get_reader(written[0])
    assert reader.time_values == list(TIMES)
    for k, t in enumerate(TIMES):
        reader.set_active_time_point(k)
        (data,) = reader.read()
        assert data.field_data["TimeValue"].tolist() == [t]


def test_several_runs_of_one_kind(tmp_path, sphere_runs):
    limit, tokens = sphere_runs
    written = write_vtk(tmp_path, tokens, limit, tokens, limit, limit)
    assert [path.name for path in written] == ["tokens.pvd", "limit.pvd", "tokens_2.pvd", "limit_2.pvd", "limit_3.pvd"]
    assert collection(tmp_path / "limit_3.pvd")[1] == ("0.1", "limit_3/limit_3_000001.vtu")


def test_cell_arrays(tmp_path, both):
    import pyvista

    limit, _ = both
    write_vtk(tmp_path, limit)
    mesh, d = limit.mesh, limit.mesh.dimension
    for k, t in enumerate(TIMES):
        data = pyvista.read(tmp_path / "limit" / f"limit_00000{k}.vtu")
        assert data.n_cells == mesh.n_cells and data.n_points == len(mesh.vertices)
        assert (data.points[:, :d] == mesh.vertices).all() and (data.points[:, d:] == 0).all()
        assert sorted(data.cell_data.keys()) == CELL_ARRAYS and not data.point_data.keys()
        assert all(data.cell_data[name].dtype == np.float64 for name in CELL_ARRAYS)
        measure = limit.measure(k)
        assert (data["mass"] == limit.masses[k]).all() and (data["cell_area"] == mesh.areas).all()
        assert (data["density"] == limit.averages[k]).all()
        assert abs(data["mass"].sum() - 1) <= 1e-12 and abs(data["density"] @ data["cell_area"] - 1) <= 1e-12
        assert data["velocity"].shape == (mesh.n_cells, 3)
        assert (data["velocity"][:, :d] == limit.model.velocity(mesh.centers, measure, t)).all()
        assert (data["velocity"][:, d:] == 0).all()
        assert np.abs(dot(data["velocity"][:, :d], mesh.centers)).max() <= 1e-14 < np.abs(data["velocity"]).max()
        assert (data["potential"] == limit.model.potential(mesh.centers, measure, t)).all()


def test_point_arrays(tmp_path, both):
    import pyvista

    _, tokens = both
    write_vtk(tmp_path, tokens)
    for k, t in enumerate(TIMES):
        data = pyvista.read(tmp_path / "tokens" / f"tokens_00000{k}.vtp")
        d = tokens.tokens.shape[2]
        assert data.n_points == data.n_verts == 60 and sorted(data.point_data.keys()) == ["mass", "velocity"] and not data.cell_data.keys()
        assert data.points.dtype == np.float64 and (data.points[:, :d] == tokens.tokens[k]).all() and (data.points[:, d:] == 0).all()
        assert (data["mass"] == tokens.masses[k]).all() and abs(data["mass"].sum() - 1) <= 1e-12
        assert data["velocity"].shape == (60, 3) and (data["velocity"][:, d:] == 0).all()
        assert (data["velocity"][:, :d] == tokens.model.velocity(tokens.tokens[k], tokens.measure(k), t)).all()


def test_atoms_are_a_second_series(tmp_path):
    """Cells and atoms hold all mass in every frame: before there is an atom, beside cells, and once there are only atoms."""
    import pyvista

    for mesh, float32 in ((mf.icosahedral(2), False), (mf.circle(48), False), (mf.circle(48), True)):
        limit, d, folder = with_atoms(mesh), mesh.dimension, tmp_path / f"{mesh.name} {float32}"
        counts = [len(limit.atoms(k)) for k in range(3)]
        assert counts[0] == 0 < min(counts[1:]) and limit.masses[1].any() and not limit.masses[2].any()
        written = write_vtk(folder, limit, float32=float32)
        assert written == [folder / "limit.pvd", folder / "limit_atoms.pvd"]
        names = [f"limit_atoms/limit_atoms_00000{k}.vtp" for k in range(3)]
        assert collection(written[1]) == list(zip([t for t, _ in collection(written[0])], names, strict=True))
        assert pyvista.get_reader(written[1]).time_values == limit.times.tolist()
        tolerance, dtype = (1e-6, np.float32) if float32 else (1e-12, np.float64)
        for k, t in enumerate(limit.times.tolist()):
            cells, points = pyvista.read(folder / "limit" / f"limit_00000{k}.vtu"), pyvista.read(folder / names[k])
            assert np.abs(cells["mass"] - limit.masses[k]).max() <= tolerance and cells["mass"].sum() + points[
                "mass"
            ].sum() == pytest.approx(1, abs=tolerance)
            velocity = limit.model.velocity(mesh.centers, limit.measure(k), t)
            assert np.abs(cells["velocity"][:, :d] - velocity).max() <= tolerance < np.abs(velocity).max()
            assert points.n_points == points.n_verts == counts[k] and points.field_data["TimeValue"].tolist() == [t]
            assert points["mass"].shape == (counts[k],) and points["velocity"].shape == (counts[k], 3)
            assert {points.points.dtype, points["mass"].dtype, points["velocity"].dtype} == {np.dtype(dtype)}
            if counts[k]:
                atoms = limit.atoms(k)
                assert np.abs(points.points[:, :d] - atoms.points).max() <= tolerance
                assert np.abs(points["mass"] - atoms.masses).max() <= tolerance
                velocity = limit.model.velocity(atoms.points, limit.measure(k), t)
                assert np.abs(points["velocity"][:, :d] - velocity).max() <= tolerance


def test_names_with_atoms_and_none_without(tmp_path, circle_runs):
    limit, tokens = circle_runs
    clustered = with_atoms(limit.mesh)
    names = ["limit", "limit_2", "limit_2_atoms", "tokens", "limit_3", "limit_3_atoms"]
    assert [path.name for path in write_vtk(tmp_path, limit, clustered, tokens, clustered)] == [f"{name}.pvd" for name in names]
    assert sorted(path.name for path in tmp_path.iterdir()) == sorted([*names, *(f"{name}.pvd" for name in names), "view.py"])
    assert {len(list((tmp_path / name).iterdir())) for name in names} == {3}


def test_velocity_is_that_of_the_frame_and_potential_only_where_there_is_one(tmp_path):
    import pyvista

    limit, tokens = runs(mf.icosahedral(1), Swirl())
    write_vtk(tmp_path, limit, tokens)
    for k, t in enumerate(TIMES):
        data = pyvista.read(tmp_path / "limit" / f"limit_00000{k}.vtu")
        assert sorted(data.cell_data.keys()) == [name for name in CELL_ARRAYS if name != "potential"]
        assert np.abs(data["velocity"] - t * np.cross([0, 0, 1], limit.mesh.centers)).max() <= 1e-15
        data = pyvista.read(tmp_path / "tokens" / f"tokens_00000{k}.vtp")
        assert np.abs(data["velocity"] - t * np.cross([0, 0, 1], tokens.tokens[k])).max() <= 1e-15
    turned = mf.Attention(beta=2.0, value=[[0, -1, 0], [1, 0, 0], [0, 0, 1]])
    write_vtk(tmp_path / "turned", *runs(mf.icosahedral(1), turned))
    assert "potential" not in pyvista.read(tmp_path / "turned" / "limit" / "limit_000000.vtu").cell_data


# -- the format


def test_extreme_values(tmp_path, sphere_runs):
    """R8: 5e-324, 1e-36 and 1e30 come back to the last bit, through vtk and through pyvista."""
    import pyvista
    from vtkmodules.util.numpy_support import vtk_to_numpy
    from vtkmodules.vtkIOXML import vtkXMLPolyDataReader, vtkXMLUnstructuredGridReader

    for solution, frame, reader in (
        (sphere_runs[0], "limit/limit_000000.vtu", vtkXMLUnstructuredGridReader()),
        (sphere_runs[1], "tokens/tokens_000000.vtp", vtkXMLPolyDataReader()),
    ):
        masses = np.array(solution.masses)
        masses[0, :3] = 5e-324, 1e-36, 1e30
        write_vtk(tmp_path, with_masses(solution, masses))
        reader.SetFileName(str(tmp_path / frame))
        reader.Update()
        data = reader.GetOutput()
        arrays = data.GetCellData() if solution.kind == "density" else data.GetPointData()
        assert (vtk_to_numpy(arrays.GetArray("mass")) == masses[0]).all()
        assert (pyvista.read(tmp_path / frame)["mass"] == masses[0]).all()


def test_header_types_and_compression(tmp_path, both):
    """R8, R9: UInt64 headers, Int64 for every index (the cell type is UInt8 by VTK's rule), appended and compressed."""
    write_vtk(tmp_path, *both)
    for frame in ("limit/limit_000002.vtu", "tokens/tokens_000002.vtp"):
        root = header(tmp_path / frame)
        assert root.get("header_type") == "UInt64" and root.get("compressor") == "vtkZLibDataCompressor"
        arrays = list(root.iter("DataArray"))
        assert {array.get("format") for array in arrays} == {"appended"}
        assert {array.get("type") for array in arrays if "Int" in array.get("type") and array.get("Name") != "types"} == {"Int64"}
        assert {array.get("type") for array in arrays if "Float" in array.get("type")} == {"Float64"}
        assert b'<AppendedData encoding="raw">' in (tmp_path / frame).read_bytes()


def test_single_precision(tmp_path):
    """R10: points and arrays in float32 on request, at about half the size; times stay float64."""
    import pyvista

    limit, tokens = runs(mf.icosahedral(3), mf.Attention(beta=4.0), count=1000)
    write_vtk(tmp_path / "double", limit, tokens)
    write_vtk(tmp_path / "single", limit, tokens, float32=True)
    for frame in ("limit/limit_000002.vtu", "tokens/tokens_000002.vtp"):
        data, single = pyvista.read(tmp_path / "double" / frame), pyvista.read(tmp_path / "single" / frame)
        assert single.points.dtype == np.float32
        assert {single[name].dtype for name in data.array_names if name != "TimeValue"} == {np.dtype("f4")}
        assert single.field_data["TimeValue"].tolist() == [0.35]
        for name in data.array_names:
            assert np.abs(single[name] - data[name]).max() <= 1e-7 * np.abs(data[name]).max()
        sizes = [(tmp_path / folder / frame).stat().st_size for folder in ("single", "double")]
        assert 0.4 <= sizes[0] / sizes[1] <= 0.65
        assert sizes[1] < (120 * 642 if frame.startswith("limit") else 60 * 1000)
    large = with_masses(limit, limit.masses * 1e45)
    with pytest.raises(ValueError, match=r"density reaches 3\S*e\+44 in limit/limit_000000.vtu, beyond single precision"):
        write_vtk(tmp_path / "large", large, float32=True)


# -- old files, failures, bad input


def test_old_files_are_replaced(tmp_path, sphere_runs):
    import pyvista

    limit, _ = sphere_runs
    write_vtk(tmp_path, limit)
    shorter = replace(limit, times=limit.times[:2], columns=limit.system.columns([limit.stored(k) for k in (1, 2)]))
    write_vtk(tmp_path, shorter)
    assert [t for t, _ in collection(tmp_path / "limit.pvd")] == ["0", "0.1"]
    assert (pyvista.read(tmp_path / "limit" / "limit_000000.vtu")["mass"] == limit.masses[1]).all()


def test_a_failure_leaves_whole_files(tmp_path):
    """The third frame cannot be made: the .pvd names the two that are there."""
    limit, tokens = runs(mf.icosahedral(1), Swirl())
    for solution, suffix in ((limit, "vtu"), (tokens, "vtp")):
        name = "limit" if solution is limit else "tokens"
        with pytest.raises(OverflowError):
            write_vtk(tmp_path / name, replace(solution, system=replace(solution.system, model=Swirl(fails=True))))
        assert [frame for _, frame in collection(tmp_path / name / f"{name}.pvd")] == [f"{name}/{name}_00000{k}.{suffix}" for k in range(2)]
        assert files(tmp_path / name) == [f"{name}.pvd", *(f"{name}/{name}_00000{k}.{suffix}" for k in range(2))]


def test_a_frame_that_cannot_be_written(tmp_path, sphere_runs):
    """VTK would print and go on; here it is an error, and no temporary file stays."""
    (tmp_path / "limit" / "limit_000001.vtu").mkdir(parents=True)
    with pytest.raises(OSError, match=r"limit_000001\.vtu"):
        write_vtk(tmp_path, sphere_runs[0])
    assert files(tmp_path) == ["limit.pvd", "limit/limit_000000.vtu"]
    assert [t for t, _ in collection(tmp_path / "limit.pvd")] == ["0"]


def test_bad_input_makes_no_file(tmp_path, sphere_runs):
    tokens = mf.solve(mf.ParticleSystem(mf.Attention(1.0)), mf.sample(mf.Uniform(8), 5, 0), t_end=0.1)
    for arguments, options, sentence in (
        ((), {}, "solutions is empty, wanted at least one run to write"),
        ((sphere_runs[0], tokens), {}, r"solutions\[1\] has tokens in dimension 8, wanted 2 or 3"),
        ((sphere_runs[0], 5), {}, r"solutions\[1\] is a int, wanted a Solution"),
        ((sphere_runs[0],), {"float32": "yes"}, "float32 is 'yes', wanted True or False"),
    ):
        with pytest.raises(ValueError, match=sentence) as error:
            write_vtk(tmp_path / "out", *arguments, **options)
        assert "\n" not in str(error.value)
    assert not files(tmp_path) and not list(tmp_path.iterdir())


# -- ParaView


def constants(script):
    """What stands in capitals at the top of the script."""
    found = {}
    exec(script.read_text().split("from paraview import simple")[1].split("\ntry:")[0], found)
    return found


def test_the_script_knows_the_run(tmp_path, circle_runs, sphere_runs):
    """Series that were written, the range of colours over all times, at most four decades, units; nothing is left to fill in."""
    ended = with_atoms(mf.circle(48))
    ended = replace(ended, times=ended.times[2:], columns=ended.system.columns([ended.stored(2)]))
    for name, solutions, series in (
        ("circle", circle_runs, ("limit", "", "tokens")),
        ("tokens", sphere_runs[1:], ("", "", "tokens")),
        ("clustered", (with_atoms(mf.icosahedral(2)),), ("limit", "limit_atoms", "")),
        ("atoms alone", (ended,), ("limit", "limit_atoms", "")),
    ):
        write_vtk(tmp_path / name, *solutions)
        script = tmp_path / name / "view.py"
        assert "@" not in script.read_text() and not [path for path in script.parent.iterdir() if path.name.startswith(".")]
        found = constants(script)
        assert (found["LIMIT"], found["ATOMS"], found["TOKENS"]) == series
        assert found["LENGTH"] == pytest.approx(np.linalg.norm(found["CENTRE"])) and len(found["CENTRE"]) == len(found["TOWARDS"]) == 3
        assert found["UNIT"] == ("1/rad" if solutions[0].measure(0).dimension == 2 else "1/sr")
        assert found["LOW"] > 0 and found["HIGH"] / found["LOW"] <= 1e4 * (1 + 1e-12)
        if name in ("circle", "clustered"):
            averages = solutions[0].averages
            assert found["HIGH"] == averages.max() > averages[0].max() * (name == "circle")
            assert found["LOW"] == averages[averages > averages.max() / 1e4].min()


PARAVIEW = """
import json, sys
from paraview.simple import PVDReader
report = []
for path in sys.argv[1:]:
    reader = PVDReader(FileName=path)
    reader.UpdatePipelineInformation()
    frames = []
    for t in reader.TimestepValues:
        reader.UpdatePipeline(t)
        counts = reader.GetDataInformation()
        found = [*reader.CellData, *reader.PointData]
        arrays = {array.Name: [array.GetNumberOfComponents(), *array.GetRange()] for array in found}
        frames.append({"cells": counts.GetNumberOfCells(), "points": counts.GetNumberOfPoints(), "arrays": arrays})
    report.append({"times": list(reader.TimestepValues), "frames": frames})
print(json.dumps(report))
"""


def paraview(folder, written):
    """What ParaView finds in each .pvd."""
    script = folder / "script.py"
    script.write_text(PARAVIEW)
    environment = {name: value for name, value in os.environ.items() if name not in ("DISPLAY", "PYTHONPATH")}
    command = ["pvpython", "--force-offscreen-rendering", str(script), *map(str, written)]
    run = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=120, check=True)
    assert "error" not in run.stderr.lower(), run.stderr
    return json.loads(run.stdout.strip().splitlines()[-1])


@pytest.mark.skipif(shutil.which("pvpython") is None, reason="ParaView (pvpython) is not installed")
def test_paraview_reads_it(tmp_path, both):
    limit, tokens = both
    cells, points = paraview(tmp_path, write_vtk(tmp_path, limit, tokens))
    assert cells["times"] == points["times"] == list(TIMES)
    for k in range(3):
        frame = cells["frames"][k]
        assert frame["cells"] == limit.mesh.n_cells and frame["points"] == len(limit.mesh.vertices)
        assert sorted(frame["arrays"]) == CELL_ARRAYS
        assert frame["arrays"]["density"] == [1, limit.averages[k].min(), limit.averages[k].max()] and frame["arrays"]["velocity"][0] == 3
        frame = points["frames"][k]
        assert frame["cells"] == frame["points"] == 60 and sorted(frame["arrays"]) == ["mass", "velocity"]
        assert frame["arrays"]["mass"] == [1, tokens.masses[k].min(), tokens.masses[k].max()] and frame["arrays"]["velocity"][0] == 3


@pytest.mark.skipif(shutil.which("pvpython") is None, reason="ParaView (pvpython) is not installed")
def test_paraview_reads_atoms(tmp_path):
    limit = with_atoms(mf.icosahedral(2))
    cells, atoms = paraview(tmp_path, write_vtk(tmp_path, limit))
    assert cells["times"] == atoms["times"] == list(TIMES)
    assert [frame["points"] for frame in atoms["frames"]] == [frame["cells"] for frame in atoms["frames"]] == [0, 3, 2]
    for k in (1, 2):
        arrays, masses = atoms["frames"][k]["arrays"], limit.atoms(k).masses
        assert sorted(arrays) == ["mass", "velocity"] and arrays["velocity"][0] == 3
        assert arrays["mass"] == [1, masses.min(), masses.max()]
    assert cells["frames"][2]["arrays"]["mass"] == [1, 0, 0]


def rendered(script, pictures):
    """Pictures (path -> time) drawn by pvpython, on a screen in memory: Debian's ParaView has no other."""
    environment = {name: value for name, value in os.environ.items() if name not in ("DISPLAY", "PYTHONPATH")} | {"LP_NUM_THREADS": "1"}
    asked = [word for path, t in pictures.items() for word in (str(t), str(path))]
    screen = str(100 + os.getpid() % 1000)  # where to look for a free one: two processes that begin at the same number take the same
    command = ["xvfb-run", "-a", "-n", screen, "pvpython", "--force-offscreen-rendering", str(script), *asked]
    run = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=120, check=True)
    assert "error" not in run.stderr.lower() and "Traceback" not in run.stderr, run.stderr
    return [imread(path)[..., :3] for path in pictures]


def count(pixels, colour):
    """Pixels that have the hue of a colour."""
    bright = pixels.max(axis=2)
    return int(
        (np.abs(pixels / np.maximum(bright, 1e-9)[..., None] - np.array(colour) / max(colour)).max(axis=2) < 0.15)[bright > 0.15].sum()
    )


@pytest.mark.slow
@pytest.mark.skipif(shutil.which("pvpython") is None or shutil.which("xvfb-run") is None, reason="pvpython or xvfb-run is not installed")
@pytest.mark.parametrize("make", [lambda: mf.icosahedral(2), lambda: mf.circle(48)], ids=["S2", "S1"])
def test_paraview_draws_what_the_script_says(tmp_path, make):
    """Tokens are green at all times, atoms blue from when there are some, which is the control; the density is on the scale of colours."""
    mesh = make()
    limit = with_atoms(mesh)
    tokens = mf.solve(mf.ParticleSystem(mf.Attention(9.0)), mf.sample(mf.Uniform(mesh.dimension), 40, 0), t_end=0.35, save_at=TIMES)
    write_vtk(tmp_path, limit, tokens)
    before, after = rendered(tmp_path / "view.py", {tmp_path / "a.png": 0, tmp_path / "b.png": 0.1})
    atoms, dots = (0.12, 0.37, 0.82), (0.0, 0.63, 0.54)
    for pixels in (before, after):
        assert pixels.shape == (900, 1200, 3) and pixels.std() > 0.02 and count(pixels, dots) > 200
    assert count(after, atoms) > 200 > 4 * count(before, atoms)
