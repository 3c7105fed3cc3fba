"""The results file gives back an equal run, ParaView's reader opens it, and damage of any kind is refused in one sentence."""

import errno
import json
import os
import pickle
import subprocess
import sys
from dataclasses import replace
from types import SimpleNamespace

import h5py
import numpy as np
import pytest

import meanfield_pde as mf
from meanfield_pde.files import results, vtkhdf
from meanfield_pde.kinds import in_words
from meanfield_pde.models.velocity import as_model
from meanfield_pde.records import Rows, equal

LAW = mf.VonMisesFisher((1.0, 2.0, 2.0), 3.0)


def density(mesh, law=LAW, **options):
    attention = mf.Attention(2.0, query=np.diag([1.0, 2.0, 0.5]), value=np.diag([1.0, -0.5, 0.1]))
    return mf.solve(mf.MeanFieldPDE(mesh, attention, order=1, **options), mf.project(mesh, law), 0.3, save_every=0.1, stepper="ssprk2")


def particles(d, n=20):
    rng = np.random.default_rng(0)
    points = rng.normal(size=(n, d)) + 1
    start = mf.Measure(points / np.linalg.norm(points, axis=1)[:, None], rng.dirichlet(np.ones(n)))
    return mf.solve(mf.ParticleSystem(mf.Attention(2.0, normalised=False)), start, 0.3, save_at=[0.0, 0.05, 0.3])


@pytest.fixture(scope="module")
def runs():
    mesh = mf.circle(64)
    clusters = mf.MeanFieldPDE(mesh, mf.Attention(9.0), method=mf.Spectral(1e-11))
    return {
        "sphere": density(replace(mf.icosahedral(2), repairs=("turned 3 cells round ↻",))),
        "small": density(mf.icosahedral(1), mf.VonMisesFisher((1.0, 2.0, 2.0), 0.5), atoms=False),
        "circle": mf.solve(clusters, mf.project(mesh, mf.VonMisesFisher((1.0, 0.5), 2.0)), 12.0, save_every=1.0),
        "tokens": particles(3),
        "tokens on S^1": particles(2),
        "tokens on S^4": particles(5),
    }


def with_columns(solution, **columns):
    return replace(solution, columns={**solution.columns, **columns})


NAMES = ("sphere", "small", "circle", "tokens", "tokens on S^1", "tokens on S^4")


@pytest.fixture
def stored(runs, tmp_path):
    """Saves a run and loads it."""

    def make(name):
        mf.save(tmp_path / "run.vtkhdf", runs[name])
        return mf.load(tmp_path / "run.vtkhdf")

    return make


@pytest.mark.parametrize("name", NAMES)
def test_a_loaded_run_is_equal(name, runs, stored, tmp_path):
    solution, loaded = runs[name], stored(name)
    assert loaded == solution and solution == loaded and loaded == stored(name)
    assert loaded.record["versions"] == solution.record["versions"]
    assert loaded.summary() == solution.summary()
    assert os.listdir(tmp_path) == ["run.vtkhdf"]
    mf.save(tmp_path / "again.vtkhdf", loaded)
    assert (tmp_path / "again.vtkhdf").read_bytes() == (tmp_path / "run.vtkhdf").read_bytes()
    assert pickle.loads(pickle.dumps(loaded)) == solution


def test_the_runs_hold_what_is_stored(runs):
    """The control of the test above: atoms, their events, more outputs than one block, a run without either."""
    circle = runs["circle"]
    assert {"formed", "absorbed"} <= set(circle.events.kind) and len(circle.atoms(-1)) and not len(circle.atoms(0))
    assert circle.masses.nbytes < vtkhdf.BLOCK < 2000 * runs["tokens"].masses[0].nbytes
    assert not len(runs["tokens"].events) and not len(runs["small"].atoms(-1))


def test_what_a_prompt_shows_is_short(runs):
    """A few lines each, whatever their size; the fields of a record that shows itself field by field are all there."""
    state = mf.State(runs["small"].averages[0], runs["circle"].atoms(-1))
    ensemble = mf.solve_ensemble(mf.Attention(1.0), [mf.sample(mf.Uniform(3), 4, seed) for seed in range(5)], [0, 1.0])
    shown = [*runs.values(), runs["sphere"].mesh, runs["sphere"].measure(0), state, ensemble, runs["circle"].system]
    for value in shown:
        assert len(repr(value).splitlines()) <= 4 and len(repr(value)) < 400 and type(value).__name__ in repr(value)
    assert "density, done" in repr(runs["circle"]) and "softmax, beta = 9; 64 cells of circle(64)" in repr(runs["circle"])
    assert "tokens, done" in repr(runs["tokens"]) and "softmax, beta = 2, normalised = False; 20 tokens" in repr(runs["tokens"])
    assert "query (3, 3), value (3, 3)" in repr(runs["small"]), "what is not as by default is told"
    assert repr(ensemble).startswith("Ensemble(times=[0.0, 1.0], tokens=float64 (5, 2, 4, 3), masses=float64 (5, 4), evaluations=[")
    assert len(str(runs["circle"].columns)) > 400, "the control: what would be printed otherwise"


def test_any_model_is_told_in_words():
    class Slotted:
        __slots__ = ("speed",)

        def velocity(self, points, measure, t=0.0):
            return 0 * points

    named = SimpleNamespace(velocity=Slotted().velocity, beta=2.0)
    words = [in_words(as_model("model", model)) for model in (Slotted(), named, Wind(np.eye(3)[0]), mf.Attention(0.5, normalised=False))]
    assert words == ["Slotted", "SimpleNamespace", "Wind, axis (3,)", "softmax, beta = 0.5, normalised = False"]
    assert in_words(mf.Attention(0.5, value=np.eye(2)), without=["beta"]) == "softmax, value (2, 2)"


def test_labelled_arrays(runs, monkeypatch):
    """Values, units and names of the quantities of a run; atoms are padded; without xarray the extra is named."""
    circle, tokens = runs["circle"], runs["tokens on S^4"]
    data = circle.to_xarray()
    assert data.sizes == {
        "time": 13,
        "cell": 64,
        "axis": 2,
        "step": len(circle.history),
        "atom": max(len(circle.atoms(k)) for k in range(13)),
    }
    assert (data["density"].values == circle.averages).all() and data["density"].attrs["units"] == "1/rad"
    assert runs["small"].to_xarray()["density"].attrs["units"] == "1/sr" and "atom_mass" not in runs["small"].to_xarray()
    total = data["mass"].sum("cell") + data["atom_mass"].sum("atom")
    assert np.abs(total.values - 1).max() <= 1e-12 and np.abs(data["mass"].sum("cell").values - 1).max() > 0.5, "atoms hold the rest"
    assert (data["step_energy"].values == circle.history.energy).all() and data["time"].attrs == {"units": "1", "long_name": "time"}
    assert data.attrs["model"] == "softmax, beta = 9" and json.loads(data.attrs["record"])["atoms"] is True
    assert (tokens.to_xarray()["position"].values == tokens.tokens).all() and tokens.to_xarray()["position"].dims == (
        "time",
        "token",
        "axis",
    )
    assert all({"units", "long_name"} <= set(data[name].attrs) for name in data.variables)
    monkeypatch.setitem(sys.modules, "xarray", None)
    with pytest.raises(ValueError, match=r"to_xarray needs xarray, .* wanted pip install 'meanfield-pde\[tables\]'"):
        circle.to_xarray()


def test_many_outputs_lie_in_blocks_and_a_large_one_in_its_own(runs, tmp_path, monkeypatch):
    for size, blocks in ((1, 13), (3 * 64 * 8, 5), (1 << 16, 1)):
        monkeypatch.setattr(vtkhdf, "BLOCK", size)
        mf.save(tmp_path / "run.vtkhdf", runs["circle"])
        with h5py.File(tmp_path / "run.vtkhdf") as file:
            assert file["VTKHDF/CellData/mass"].id.get_num_chunks() == blocks
        assert mf.load(tmp_path / "run.vtkhdf") == runs["circle"]


def test_equality_sees_a_single_bit(runs, stored):
    loaded = stored("sphere")
    masses = loaded.masses.copy()
    assert with_columns(loaded, masses=masses) == runs["sphere"]
    masses[1, 7] = np.nextafter(masses[1, 7], 1.0)
    assert with_columns(loaded, masses=masses) != runs["sphere"]
    assert with_columns(loaded, masses=masses) != loaded
    assert with_columns(loaded, positions=loaded.masses) != loaded


def test_a_loaded_run_is_a_full_solution(runs, stored):
    limit, loaded = runs["sphere"], stored("sphere")
    assert isinstance(loaded.masses, Rows)
    assert mf.energy(loaded.model, loaded.measure(-1)) == mf.energy(limit.model, limit.measure(-1))
    assert np.array_equal(loaded.averages, limit.averages)
    again = mf.solve(loaded.system, loaded.averages[0] * (loaded.masses[0].sum() / 1.0), 0.3, save_every=0.1, stepper="ssprk2")
    assert np.abs(again.masses - loaded.masses).max() <= 1e-15
    with pytest.raises(AttributeError, match="a density has no tokens"):
        loaded.tokens  # noqa: B018
    with pytest.raises(ValueError, match=r"k is 4, wanted an integer in \[-4, 3\]"):
        loaded.measure(4)


def test_all_that_takes_a_solution_takes_a_loaded_one(runs, tmp_path):
    for name, solution in runs.items():
        mf.save(tmp_path / f"{name}.vtkhdf", solution)
    loaded = {name: mf.load(tmp_path / f"{name}.vtkhdf") for name in runs}

    def written(folder, runs):
        mf.overview(folder / "circle.png", runs["circle"], runs["tokens on S^1"])
        mf.write_vtk(folder, runs["sphere"], runs["tokens"])
        script = (folder / "view.py").read_text()
        (folder / "view.py").write_text(script.replace(str(folder), "its folder"))
        return {str(path.relative_to(folder)): path.read_bytes() for path in folder.rglob("*") if path.is_file()}

    files = written(tmp_path / "solved", runs)
    assert len(files) == 11 and files == written(tmp_path / "loaded", loaded)
    assert mf.stages(loaded["circle"]) == mf.stages(runs["circle"]) != []
    assert mf.stages(loaded["tokens"]) == mf.stages(runs["tokens"])
    one, other = (mf.compare(which["circle"], which["tokens on S^1"]).columns for which in (loaded, runs))
    assert all(np.array_equal(one[name], other[name]) for name in one)


# -- rows


ARRAYS = {d: np.random.default_rng(d).random((7, 5, d) if d else (7, 5)) for d in (0, 3)}
ROWS = [0, -1, np.int64(3), np.array(2), slice(None), slice(1, 5, 2), slice(5, 1, -1), slice(3, 3), [0, 2, 2], [], np.array([1, -1])]
ROWS += [np.arange(7) % 2 == 0, [True] * 3 + [False] * 4, True, None, ..., ARRAYS[0] > 0.5]
PARTS = [(), (3,), (slice(1, 3),), ([1, 2],), (None,), (..., 0), (None, [1, 2]), (np.arange(5) > 2,)]


@pytest.mark.parametrize("d", ARRAYS)
def test_rows_are_an_array(d):
    array = ARRAYS[d]
    rows = Rows(array.shape, lambda first, last: array[first:last].copy())
    indices = [(row, *part) for row in ROWS[:-5] for part in PARTS] + ROWS
    if d:
        indices += [
            (row, *part) for row in ROWS[:8] for part in ((slice(None), 0), ([1, 2], 0), ([1, 2], slice(None)), ([1, 2], None, [0, 1]))
        ]
    for index in indices:
        try:
            expected = array[index]
        except IndexError:
            with pytest.raises(IndexError):
                rows[index]
            continue
        assert type(rows[index]) is type(expected) and np.array_equal(rows[index], expected), index
    for what in (np.asarray, abs, np.sum, lambda x: 2 - x / 3, lambda x: array - x, lambda x: x.sum(axis=0), lambda x: x.T, np.add.reduce):
        assert np.array_equal(what(rows), what(array))
    assert (rows.shape, rows.ndim, rows.dtype, len(rows), repr(rows)) == (
        array.shape,
        array.ndim,
        array.dtype,
        7,
        f"<Rows of shape {array.shape}>",
    )
    assert equal(rows, array) and equal(array, rows) and not equal(rows, array + 1) and not equal(rows, array[:6]) and not equal(None, rows)


def test_rows_are_read_when_asked_for():
    read = []
    rows = Rows((9, 4), lambda first, last: read.append((first, last)) or np.zeros((last - first, 4)))
    _ = rows.shape, rows.ndim, rows.dtype, len(rows), repr(rows)
    assert read == []
    _ = rows[-1], rows[2:5], rows[[7, 0]], rows[1:3, 0], rows[3:3]
    assert read == [(8, 9), (2, 5), (7, 8), (0, 1), (1, 2), (2, 3)]


def test_rows_do_not_change():
    rows = Rows((2, 3), lambda first, last: np.zeros((last - first, 3)))
    for changed in (rows[0], rows[:], rows[[1]], rows[:, 0], np.asarray(rows)):
        with pytest.raises(ValueError, match="read-only"):
            changed[:] = 1
    with pytest.raises(ValueError, match="read-only"):
        rows.fill(1)
    with pytest.raises(TypeError):
        rows[0] = 1
    with pytest.raises(TypeError):
        rows += 1
    with pytest.raises(ValueError, match="copy is False, wanted None or True"):
        np.array(rows, copy=False)
    assert np.array(rows).flags.writeable


# -- ParaView


@pytest.mark.parametrize("name", NAMES)
def test_paraview_reads_times_and_arrays_bit_for_bit(name, runs, stored, tmp_path):
    from vtkmodules.util.numpy_support import vtk_to_numpy
    from vtkmodules.vtkCommonExecutionModel import vtkStreamingDemandDrivenPipeline
    from vtkmodules.vtkIOHDF import vtkHDFReader

    solution, _ = runs[name], stored(name)
    reader = vtkHDFReader()
    reader.SetFileName(str(tmp_path / "run.vtkhdf"))
    reader.UpdateInformation()
    information, key = reader.GetOutputInformation(0), vtkStreamingDemandDrivenPipeline.TIME_STEPS()
    assert [information.Get(key, k) for k in range(information.Length(key))] == solution.times.tolist()
    for k, t in enumerate(solution.times):
        reader.UpdateTimeStep(t)
        data = reader.GetOutputDataObject(0)
        fields = data.GetCellData() if solution.kind == "density" else data.GetPointData()
        arrays = {fields.GetArrayName(i): vtk_to_numpy(fields.GetArray(i)) for i in range(fields.GetNumberOfArrays())}
        points = vtk_to_numpy(data.GetPoints().GetData())
        assert np.array_equal(arrays.pop("mass"), solution.masses[k])
        if solution.kind == "density":
            cells, mesh = data.GetCells(), solution.mesh
            assert fields.GetScalars().GetName() == "density" and np.array_equal(arrays.pop("density"), solution.averages[k])
            assert np.array_equal(vtk_to_numpy(cells.GetConnectivityArray()), mesh.cell_vertices)
            assert np.array_equal(vtk_to_numpy(cells.GetOffsetsArray()), mesh.cell_offsets)
            assert {data.GetCellType(i) for i in range(mesh.n_cells)} == {7 if mesh.dimension == 3 else 3}
            expected = mesh.vertices
        else:
            assert data.GetNumberOfVerts() == data.GetNumberOfCells() == 20 and fields.GetScalars().GetName() == "mass"
            expected = solution.tokens[k]
            if expected.shape[1] > 3:
                assert np.array_equal(arrays.pop("position"), expected)
        assert np.array_equal(points[:, : expected.shape[1]], expected[:, :3]) and not points[:, expected.shape[1] :].any()
        assert not arrays


def test_the_mesh_is_stored_once_and_all_has_checksums(runs, stored, tmp_path):
    stored("circle")
    with h5py.File(tmp_path / "run.vtkhdf") as file:
        root, steps = file["VTKHDF"], file["VTKHDF/Steps"]
        assert tuple(root.attrs["Version"]) == (2, 0) and root.attrs["Type"] == b"UnstructuredGrid"
        assert root["Points"].shape == (64, 3) and root["Connectivity"].shape == (128,) and steps.attrs["NSteps"] == 13
        assert not any(steps[name][:].any() for name in ("PartOffsets", "PointOffsets", "CellOffsets", "ConnectivityIdOffsets"))
        assert steps["CellOffsets"].shape == (13, 1) and steps["NumberOfParts"][:].tolist() == [1] * 13
        assert steps["CellDataOffsets/mass"][:].tolist() == [64 * k for k in range(13)]
        file.visititems(
            lambda _, item: None if isinstance(item, h5py.Group) or not item.size or item.fletcher32 else pytest.fail(item.name)
        )
        assert file.id.get_create_plist().get_version()[0] == 3  # a superblock with a checksum, which HDF5 1.10 reads


def test_units_and_case_are_readable_without_this_package(runs, tmp_path):
    """With h5py alone: units and names of datasets, the case, model and record as texts; `load` reads none of it."""
    case = {"t_end": 12.0, "attention": {"beta": 9.0}, "start": {"kind": "\u21bb"}, "table": list(range(20_000))}
    solution = replace(runs["circle"], record=runs["circle"].record | {"case": case})
    mf.save(tmp_path / "run.vtkhdf", solution)
    with h5py.File(tmp_path / "run.vtkhdf") as file:
        about = {name: value.decode() for name, value in file["meanfield_pde"].attrs.items() if name != "format"}
        units = {
            name: file[f"VTKHDF/{name}"].attrs["units"].decode() for name in ("CellData/density", "CellData/mass", "Steps/Values", "Points")
        }
        assert file["VTKHDF/CellData/density"].attrs["long_name"] == b"density on the cells, without the atoms"
    assert json.loads(about["case"]) == case and len(about["case"]) > 1 << 16, "longer than a header of HDF5 may be"
    assert (about["kind"], about["model"], about["status"]) == ("density", "softmax, beta = 9", "done")
    assert json.loads(about["record"])["atoms"] is True and json.loads(about["history_units"])["energy"][0] == "1"
    assert units == {"CellData/density": "1/rad", "CellData/mass": "1", "Steps/Values": "1", "Points": "1"}
    with h5py.File(tmp_path / "run.vtkhdf", "r+") as file:
        file["meanfield_pde"].attrs["model"] = np.bytes_(b"another")
    assert mf.load(tmp_path / "run.vtkhdf") == solution
    mf.save(tmp_path / "tokens.vtkhdf", runs["tokens on S^4"])
    with h5py.File(tmp_path / "tokens.vtkhdf") as file:
        assert file["VTKHDF/PointData/position"].attrs["long_name"] == b"position on the unit sphere"
        assert "case" not in file["meanfield_pde"].attrs, "the control: a run that no case asked for"


# -- what is refused


class Wind:
    """A velocity model of one's own: a plain object that keeps its arguments."""

    def __init__(self, axis, gusts=()):
        self.axis, self.gusts = axis, gusts

    def velocity(self, points, measure, t=0.0):
        return np.cross(self.axis, points)

    def __eq__(self, other):
        return isinstance(other, Wind) and np.array_equal(self.axis, other.axis) and list(self.gusts) == list(other.gusts)


class Forgetful(Wind):
    def __init__(self, speed):
        super().__init__(np.array([0.0, 0.0, speed]))


class Careless(Wind):
    def __init__(self, *axis):
        super().__init__(np.array(axis))


def blown(runs, wind):
    mesh = runs["small"].mesh
    return mf.solve(mf.MeanFieldPDE(mesh, wind), mf.project(mesh, LAW), 0.1)


def test_a_model_of_ones_own_is_stored_by_its_arguments(runs, tmp_path):
    path, solution = tmp_path / "wind.vtkhdf", blown(runs, Wind(np.array([0.1, 0.2, 0.3]), gusts=(1, 2.5)))
    mf.save(path, solution)
    message = r"wind.vtkhdf cannot be read: it holds an object of the class Wind, .* wanted that class: kinds=\[Wind\]$"
    for kinds in ((), [Forgetful]):
        with pytest.raises(ValueError, match=message):
            mf.load(path, kinds=kinds)
    loaded = mf.load(path, kinds=[Wind])
    assert loaded == solution and type(loaded.model.own) is Wind
    assert loaded != blown(runs, Wind(np.array([0.1, 0.2, 0.4]), gusts=(1, 2.5)))


def test_unstorable(runs, tmp_path):
    for wind, message in (
        (Forgetful(0.1), r"^system.model is a Forgetful without the attribute 'speed', wanted one for each constructor argument"),
        (Careless(0.1, 0.2, 0.3), r"^system.model is a Careless, whose constructor takes any arguments, wanted one with named arguments"),
        (Wind(np.eye(3)[2], gusts=[np.sin]), r"^system.model.gusts\[0\] is of the type ufunc, wanted plain values, arrays or objects"),
    ):
        solution = blown(runs, wind)
        with pytest.raises(ValueError, match=message):
            mf.save(tmp_path / "wind.vtkhdf", solution)
    for name in ("run.npz", "run", "run.vtkhdf.gz", "run.VTKHDF"):
        with pytest.raises(ValueError, match=rf"path is '.*{name}', wanted a name that ends in .vtkhdf"):
            mf.save(tmp_path / name, runs["small"])
    assert not list(tmp_path.iterdir())


def test_unreadable(runs, tmp_path):
    with pytest.raises(FileNotFoundError, match=r"no results file .*missing.vtkhdf"):
        mf.load(tmp_path / "missing.vtkhdf")
    with pytest.raises(FileNotFoundError, match="no results file"):
        mf.load(tmp_path)
    path = tmp_path / "run.vtkhdf"
    np.savez(tmp_path / "run.npz", description=np.array(json.dumps({"format": 2})))
    (tmp_path / "run.npz").rename(path)
    with pytest.raises(ValueError, match=r"run.vtkhdf is a results file of format 2 or older \(.npz\), wanted format 4 \(.vtkhdf\)$"):
        mf.load(path)
    path.write_text("t,energy\n0,1\n")
    with pytest.raises(ValueError, match="no complete results file"):
        mf.load(path)
    with h5py.File(path, "w") as file:
        file.create_group("VTKHDF")
    with pytest.raises(ValueError, match=r"no complete results file: .*meanfield_pde"):
        mf.load(path)
    mf.save(path, runs["small"])
    with h5py.File(path, "a") as file:
        file["meanfield_pde"].attrs["format"] = 3
    with pytest.raises(ValueError, match="no complete results file: its format is 3, wanted 4"):
        mf.load(path)
    mf.save(path, runs["small"])
    with h5py.File(path, "a") as file:
        mass = file["VTKHDF/CellData/mass"][:-42]
        del file["VTKHDF/CellData/mass"]
        file["VTKHDF/CellData/mass"] = mass
    with pytest.raises(ValueError, match="mass has 126 rows of float64, wanted 4 times 42 of float64"):
        mf.load(path)


def outcome(path, solution):
    """ "equal", "different", or "refused" with one sentence."""
    try:
        return "equal" if mf.load(path) == solution else "different"
    except ValueError as error:
        assert str(error).startswith(str(path)) and "\n" not in str(error)
        return "refused"


@pytest.mark.parametrize("name", ["small", pytest.param("tokens", marks=pytest.mark.slow)])
def test_truncated_files_are_refused(name, runs, tmp_path):
    """At each of the first 64 KiB offsets, and just before the end."""
    path = tmp_path / "run.vtkhdf"
    mf.save(path, runs[name])
    whole = path.read_bytes()
    for end in sorted({*range(min(len(whole), 1 << 16)), *range(len(whole) - 20, len(whole))}, reverse=True):
        os.truncate(path, end)
        assert outcome(path, runs[name]) == "refused", end
    path.write_bytes(whole + bytes(100))
    assert outcome(path, runs[name]) == "equal"


def damaged(whole, seed, kind):
    """A file with one bit turned, or with a sector of nothing."""
    rng, changed = np.random.default_rng(seed), np.frombuffer(whole, dtype=np.uint8).copy()
    at = int(rng.integers(len(whole)))
    if kind == "bit":
        changed[at] ^= np.uint8(1 << rng.integers(8))
    else:
        changed[at - at % 512 : at - at % 512 + 512] = 0
    return changed.tobytes()


def outcomes(path, solution, kind, count):
    mf.save(path, solution)
    whole, found = path.read_bytes(), dict.fromkeys(("equal", "different", "refused"), 0)
    for seed in range(count):
        path.write_bytes(damaged(whole, seed, kind))
        found[outcome(path, solution)] += 1
    return found


@pytest.mark.parametrize(("kind", "count"), [("bit", 1000), ("sector", 60)])
def test_damage_is_refused_or_harmless(kind, count, runs, tmp_path):
    found = outcomes(tmp_path / "run.vtkhdf", runs["small"], kind, count)
    assert found["different"] == 0 and found["refused"] > count / 4


@pytest.mark.parametrize(("kind", "count", "least"), [("bit", 150, 20), ("sector", 60, 5)])
def test_without_checksums_damage_is_taken_for_a_result(kind, count, least, runs, tmp_path, monkeypatch):
    """The control, on the same run."""
    monkeypatch.setattr(vtkhdf, "_options", lambda chunks: {})
    assert outcomes(tmp_path / "run.vtkhdf", runs["small"], kind, count)["different"] > least


def test_damaged_outputs_are_refused_when_they_are_read(runs, tmp_path, monkeypatch):
    path = tmp_path / "run.vtkhdf"
    monkeypatch.setattr(vtkhdf, "BLOCK", 1)
    mf.save(path, runs["small"])
    with h5py.File(path) as file:
        place = file["VTKHDF/CellData/mass"].id.get_chunk_info(2)
    whole = bytearray(path.read_bytes())
    whole[place.byte_offset + place.size // 2] ^= 4
    path.write_bytes(whole)
    loaded = mf.load(path)
    assert loaded.summary() == runs["small"].summary() and loaded.measure(1) == runs["small"].measure(1)
    with pytest.raises(ValueError, match=r"run.vtkhdf is damaged, outputs 2 to 2 of VTKHDF/CellData/mass cannot be read: "):
        loaded.measure(2)


# -- writing


def test_a_failure_leaves_the_old_file_and_nothing_else(runs, tmp_path, monkeypatch):
    path = tmp_path / "run.vtkhdf"
    mf.save(path, runs["small"])

    def fail(*_):
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    for module, name in ((os, "fsync"), (vtkhdf, "_write_data"), (os, "replace")):
        with monkeypatch.context() as broken, pytest.raises(OSError, match=r"^\S*run.vtkhdf cannot be written: No space left on device$"):
            broken.setattr(module, name, fail)
            mf.save(path, runs["tokens"])
        assert os.listdir(tmp_path) == ["run.vtkhdf"] and mf.load(path) == runs["small"]
    with pytest.raises(OSError, match=r"run.vtkhdf cannot be written: No such file or directory"):
        mf.save(tmp_path / "nowhere" / "run.vtkhdf", runs["small"])


@pytest.mark.skipif(not hasattr(os, "geteuid") or os.geteuid() == 0, reason="root may write anywhere")
def test_a_read_only_folder(runs, tmp_path):
    tmp_path.chmod(0o555)
    try:
        with pytest.raises(OSError, match=r"run.vtkhdf cannot be written: Permission denied"):
            mf.save(tmp_path / "run.vtkhdf", runs["small"])
    finally:
        tmp_path.chmod(0o755)
    assert not list(tmp_path.iterdir())


FULL = """
import os, resource, signal, sys
import meanfield_pde as mf
path = sys.argv[1]
solution = mf.load(path)
size, files = os.path.getsize(path), os.listdir(os.path.dirname(path))
signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
for limit in range(0, size, 499):
    resource.setrlimit(resource.RLIMIT_FSIZE, (limit, resource.RLIM_INFINITY))
    try:
        mf.save(path, solution)
        print("saved with", limit)
    except OSError as error:
        assert str(error).lower() == f"{path} cannot be written: file too large".lower(), error
    assert os.listdir(os.path.dirname(path)) == files
resource.setrlimit(resource.RLIMIT_FSIZE, (resource.RLIM_INFINITY, resource.RLIM_INFINITY))
mf.save(path, solution)
assert mf.load(path) == solution
"""


@pytest.mark.slow
@pytest.mark.skipif(sys.platform == "win32", reason="limits of a process are POSIX")
def test_a_disk_that_is_full_at_any_moment(runs, tmp_path):
    """In a process of its own, which HDF5 would end if it met a full disk while it closes an array."""
    mf.save(tmp_path / "run.vtkhdf", runs["small"])
    done = subprocess.run([sys.executable, "-c", FULL, str(tmp_path / "run.vtkhdf")], capture_output=True, text=True)
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="Linux alone names the files of a process")
def test_the_new_file_is_on_the_disk_before_it_takes_the_name(tmp_path, monkeypatch):
    calls, sync, move = [], os.fsync, os.replace
    monkeypatch.setattr(os, "fsync", lambda fd: (calls.append(os.path.basename(os.readlink(f"/proc/self/fd/{fd}"))), sync(fd)))
    monkeypatch.setattr(os, "replace", lambda a, b: (calls.append("replace"), move(a, b)))
    with results.durable(tmp_path / "state.npy") as temporary:
        temporary.write_bytes(b"state")
    assert calls == [temporary.name, "replace", tmp_path.name]
    assert (tmp_path / "state.npy").read_bytes() == b"state" and os.listdir(tmp_path) == ["state.npy"]


# -- a run under way


def first(solution, count, status="running"):
    columns = solution.system.columns([solution.stored(k) for k in range(count)])
    return replace(solution, times=solution.times[:count], columns=columns, status=status)


READER = """
import sys
import meanfield_pde as mf
count, status = 0, "running"
while status == "running":
    run = mf.load(sys.argv[1])
    assert count <= len(run.times) == len(run.masses) == len(run.columns["atom_offsets"]) - 1
    assert all(abs(run.measure(k).total - 1) < 1e-12 for k in range(len(run.times)))
    if len(run.times) > count:
        print(len(run.times), flush=True)
    count, status = len(run.times), run.status
"""


@pytest.mark.slow
def test_a_run_under_way_is_read_whole(runs, tmp_path):
    path, circle = tmp_path / "run.vtkhdf", runs["circle"]
    mf.save(path, first(circle, 1))
    with subprocess.Popen([sys.executable, "-c", READER, str(path)], stdout=subprocess.PIPE, text=True) as reader:
        assert reader.stdout.readline() == "1\n"
        for count in range(2, 14):
            for _ in range(6):
                mf.save(path, first(circle, count))
            assert reader.stdout.readline() == f"{count}\n"
        mf.save(path, first(circle, 13, "done"))
    assert reader.returncode == 0


@pytest.mark.skipif(os.name != "posix", reason="an open file cannot be replaced")
def test_a_loaded_run_stays_what_it_was_when_a_newer_one_takes_its_place(runs, tmp_path):
    path = tmp_path / "run.vtkhdf"
    mf.save(path, first(runs["circle"], 3))
    loaded = mf.load(path)
    mf.save(path, runs["sphere"])
    assert loaded == first(runs["circle"], 3) and mf.load(path) == runs["sphere"]
    path.unlink()
    assert loaded == first(runs["circle"], 3)
    mf.save(path, loaded)
    assert mf.load(path) == loaded


def test_a_history_with_nan_is_equal_to_itself(tmp_path):
    """At beta = 0 an energy below 0 has no logarithm; NaN in a column equals NaN."""
    attention = mf.Attention(0.0, query=-np.eye(3))
    solution = mf.solve(mf.ParticleSystem(attention), mf.sample(LAW, 5, seed=1), 0.1)
    assert np.isnan(solution.history.log_energy).any()
    mf.save(tmp_path / "run.vtkhdf", solution)
    assert mf.load(tmp_path / "run.vtkhdf") == solution
