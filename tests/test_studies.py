"""Studies: the same table whoever computes it and however often it was killed, honest intervals, phase diagrams, histograms."""

import copy
import itertools
import json
import os
import re
import signal
import subprocess
import sys
import time
from collections import Counter
from concurrent.futures import Future
from contextlib import nullcontext
from dataclasses import replace

import h5py
import numpy as np
import pytest
from matplotlib.patches import StepPatch
from matplotlib.ticker import LogFormatterSciNotation, LogLocator
from test_pictures import overlapping, texts

import meanfield_pde as mf
from meanfield_pde.cli import main
from meanfield_pde.files.tables import Table
from meanfield_pde.integrals.methods import Spectral
from meanfield_pde.studies.convergence import Convergence, fit_rate
from meanfield_pde.studies.first_clusters import FirstClusters
from meanfield_pde.studies.inner_products import InnerProducts, _mean_product
from meanfield_pde.studies.jobs import Particles
from meanfield_pde.studies.phase import Phase
from meanfield_pde.studies.pictures import study_figure
from meanfield_pde.studies.plan import make_study
from meanfield_pde.studies.study import _Store, executor, perform

SMALL = {
    "kind": "convergence",
    "seed": 3,
    "times": [0, 0.5],
    "mesh": {"kind": "circle", "n": 64},
    "attention": {"beta": 2.0},
    "start": {"kind": "von_mises_fisher", "mean": [1, 0], "kappa": 1.0},
    "particles": {"counts": [40, 80, 600], "runs": 6},
}
PHASE = {
    "kind": "phase",
    "seed": 1,
    "times": {"low": 0, "high": 8, "count": 17},
    "mesh": {"kind": "circle", "n": 64},
    "start": {"kind": "perturbed_uniform", "d": 2, "noise": 0.1, "max_degree": 4, "seed": 1},
    "particles": {"counts": [12], "runs": 10},
    "sweep": {"attention.beta": [0.5, 4.0]},
}
CLUSTERS = {
    "kind": "clusters",
    "times": {"low": 0, "high": 25, "count": 51},
    "mesh": {"kind": "circle", "n": 64},
    "attention": {"beta": 2.0},
    "start": {"kind": "perturbed_uniform", "d": 2, "noise": 0.01, "max_degree": 4},
    "particles": {"counts": [60], "runs": 2},
}
PRODUCTS = {
    "kind": "inner_products",
    "times": {"low": 0, "high": 8, "count": 17},
    "attention": {"beta": 1.0},
    "start": {"kind": "uniform", "d": 1024},
    "particles": {"counts": [32], "runs": 4},
}


def changed(tables, **entries):
    """A copy with dotted entries replaced: mesh__n=8."""
    result = copy.deepcopy(tables)
    for name, value in entries.items():
        *path, last = name.split("__")
        table = result
        for part in path:
            table = table[part]
        table[last] = value
    return result


@pytest.fixture
def in_process(monkeypatch):
    """Jobs run here, one after the other, as they are submitted; the list of them."""
    submitted = []

    class Here:
        def submit(self, function, job, limit):
            submitted.append(job)
            future = Future()
            future.set_result(function(job, limit))
            return future

    monkeypatch.setattr(sys.modules["meanfield_pde.studies.study"], "executor", lambda workers, scheduler: nullcontext(Here()))
    return submitted


@pytest.fixture
def undrawn(monkeypatch):
    """Studies without their picture, which takes longer than these small ones; other tests look at it."""
    monkeypatch.setattr(sys.modules["meanfield_pde.studies.study"], "draw", lambda path, kind, table: path)


# -- rates


def test_an_exact_power_has_its_slope_and_no_width():
    counts = np.array([10.0, 100.0, 1000.0, 10000.0])
    rate = fit_rate(counts, 3 * counts**-0.7, np.zeros(4))
    assert rate.slope == pytest.approx(-0.7, abs=1e-13) and rate.factor == pytest.approx(3, rel=1e-12)
    assert rate.high - rate.low < 1e-6


def test_intervals_hold_the_truth_as_often_as_they_say(rng):
    """A thousand studies of a known rate: the interval holds it in 95 % or a little more (it is widened for unexpected scatter)."""
    counts, held = 100.0 * 2.0 ** np.arange(8), 0
    for _ in range(1000):
        values = counts**-0.5 * np.abs(1 + 0.5 * rng.normal(size=(40, 8)))
        rate = fit_rate(counts, values.mean(axis=0), values.std(axis=0, ddof=1) / np.sqrt(40))
        held += rate.low <= -0.5 <= rate.high
    assert 940 <= held <= 995


def test_a_bent_curve_widens_the_interval():
    counts = 100.0 * 2.0 ** np.arange(8)
    straight, bent = counts**-0.5, counts**-0.5 + 0.05
    widths = [rate.high - rate.low for rate in (fit_rate(counts, mean, 0.01 * mean) for mean in (straight, bent))]
    assert widths[1] > 4 * widths[0]


def test_too_few_sizes_have_no_interval():
    assert np.isnan(fit_rate(np.array([10.0]), np.array([1.0]), np.array([0.1])).slope)
    two = fit_rate(np.array([10.0, 1000.0]), np.array([1.0, 0.1]), np.array([0.1, 0.1]))
    assert two.slope == pytest.approx(-0.5) and np.isnan(two.low)


# -- plans


@pytest.mark.parametrize(
    ("tables", "words"),
    [
        (changed(SMALL, kind="speed"), "kind is 'speed', wanted 'convergence' or"),
        (changed(SMALL, particels={}), "unknown key 'particels' .did you mean 'particles'"),
        (changed(SMALL, bins=3), "unknown key 'bins'"),
        ({k: v for k, v in SMALL.items() if k != "times"}, "times is missing"),
        ({k: v for k, v in SMALL.items() if k != "particles"}, "particles is missing, wanted both"),
        ({k: v for k, v in SMALL.items() if k != "mesh"}, "mesh is missing, wanted both"),
        (changed(SMALL, times=[0, 2, 1]), r"^times\[2\] is 1 after 2, wanted increasing times$"),
        (changed(SMALL, times=[-1, 2]), r"^times runs from -1 to 2, wanted times in \[0, 2\]$"),
        (changed(SMALL, times=[0]), r"times\[-1\] is 0, wanted a number > 0"),
        (changed(SMALL, times={"low": 0, "high": 1}), "times is .* wanted a list or low, high and count"),
        (changed(SMALL, particles__counts=[]), "counts is"),
        (changed(SMALL, particles__counts=[1]), r"counts\[0\] is 1, wanted an integer at least 2"),
        (changed(SMALL, particles__counts=[40, 40]), "wanted different numbers"),
        (changed(SMALL, particles__runs=0), "runs is 0"),
        (changed(SMALL, particles__sampling="smoothed"), "bandwidth is None with sampling 'smoothed'"),
        (changed(SMALL, particles__sampling="sorted"), "sampling is 'sorted'"),
        (changed(SMALL, attention__beta=-1), "attention: beta is -1"),
        (changed(SMALL, mesh={"kind": "icosahedral", "level": 1}), r"start lives in R\^2, wanted R\^3 like the mesh"),
        (changed(SMALL, seed=-1), "seed is -1"),
        (changed(SMALL, quantities=["w3"]), "quantities is 'w3'"),
        (changed(SMALL, sweep={"beta": [1]}), "sweep: unknown key 'beta'; wanted table.key"),
        (
            changed(SMALL, sweep={"attention.beta.x": [1, 2]}),
            "sweep: 'attention.beta.x' goes through attention.beta, which is 2.0, wanted a",
        ),
        (changed(CLUSTERS, sweep={"start.modes.0.amplitude": [1]}, start__modes=[[2, 0.1, [1, 0]]]), "through start.modes, which is"),
        (changed(SMALL, sweep={"attention.beta": []}), "wanted a list of at least one value"),
        (changed(SMALL, start={"kind": "tokens", "file": "x"}), "start.kind is 'tokens'"),
        (changed(PHASE, sweep={"mesh.n": [8]}), "a phase diagram sweeps over"),
        (changed(PHASE, particles__sampling="binned"), "sampling is 'binned' in a study of kind 'phase'"),
        (changed(CLUSTERS, start__seed=1), "has a seed"),
        (changed(CLUSTERS, start__noise=0.0), "noise is 0"),
        (changed(PRODUCTS, particles__sampling="stratified"), r"'stratified' in R\^1024"),
    ],
)
def test_bad_studies_are_refused_before_anything_runs(tables, words, tmp_path):
    with pytest.raises(ValueError, match=words):
        mf.study(tables, tmp_path / "out")
    assert not (tmp_path / "out").exists()


def test_a_study_is_read_again_as_it_was_resolved():
    study = make_study(changed(SMALL, sweep={"attention.beta": [1, 2], "mesh.n": [32, 64]}))
    assert make_study(json.loads(json.dumps(study.resolved()))) == study
    assert [parameters.values for parameters in study.sets][:2] == [
        {"attention.beta": 1, "mesh.n": 32},
        {"attention.beta": 1, "mesh.n": 64},
    ]
    assert [parameters.tables["coarse_mesh"]["n"] for parameters in study.sets] == [16, 32, 16, 32]


def test_keys_name_what_a_result_depends_on():
    def keys(tables):
        study = make_study(tables)
        return [job.key for job in (*study.limit_jobs(study.sets[0]), *study.token_jobs(study.sets[0]))]

    first = keys(SMALL)
    assert len(set(first)) == len(first)
    assert keys(changed(SMALL, particles__counts=[40, 80, 600, 700]))[:4] == first[:4], "a larger study keeps what was run"
    for entries in ({"seed": 4}, {"times": [0, 0.6]}, {"attention__beta": 2.5}, {"particles__rtol": 1e-8}, {"largest_plan": 1e8}):
        assert not set(keys(changed(SMALL, **entries))[1:]) & set(first), entries


def test_the_coarse_mesh_of_a_sweep(tmp_path):
    """It is half as fine as each mesh, or the one that was asked for; and the same when the study is read from what it wrote."""
    mf.write_mesh(tmp_path / "ring.vtu", mf.circle(48))
    swept = changed(SMALL, sweep={"mesh.n": [32, 64]})
    files = changed(SMALL, mesh={"file": "ring.vtu"}, coarse_mesh={"kind": "circle", "n": 24}, sweep={"mesh.file": ["ring.vtu"]})
    for tables, coarse in ((swept, [16, 32]), (changed(swept, coarse_mesh={"kind": "circle", "n": 24}), [24, 24]), (files, [24])):
        plan = make_study(tables, tmp_path)
        assert [parameters.tables["coarse_mesh"]["n"] for parameters in plan.sets] == coarse
        assert make_study(plan.resolved()).sets == plan.sets
    assert plan.sets[0].tables["mesh"] == {"file": str(tmp_path / "ring.vtu")} and "sha256" in plan.sets[0].tables["mesh digest"]


@pytest.mark.slow
@pytest.mark.parametrize(
    ("tables", "name"),
    [
        (changed(SMALL, particles__counts=[40], particles__runs=2, quantities=["w1"]), "coarse_mesh"),
        (changed(SMALL, particles__counts=[40], particles__runs=2, quantities=["w1"], coarse_mesh={"kind": "circle", "n": 24}), "mesh"),
        (changed(PHASE, particles__runs=2, times=[0, 1]), "mesh"),
    ],
)
@pytest.mark.usefixtures("undrawn")
def test_another_mesh_under_the_same_name_runs_again(tables, name, tmp_path, in_process):
    """What is in a mesh file is part of the keys of its jobs. The control is the same mesh, written again."""
    file, out = tmp_path / "circle.vtu", tmp_path / "out"
    tables = changed(tables, **{name: {"file": str(file)}})

    def limits():
        plan = make_study(tables)
        return {job.key for parameters in plan.sets for job in plan.limit_jobs(parameters)}

    mf.write_mesh(file, mf.circle(48))
    mf.study(tables, out)
    before = limits()
    assert before and before <= {job.key for job in in_process}
    del in_process[:]
    mf.write_mesh(file, mf.circle(48))
    mf.study(tables, out)
    assert limits() == before and in_process == []
    angles = 2 * np.pi * (np.arange(48) + 0.3 * np.sin(np.arange(48))) / 48
    mf.write_mesh(file, mf.voronoi(np.stack([np.cos(angles), np.sin(angles)], axis=1)))
    mf.study(tables, out)
    assert not limits() & before and limits() <= {job.key for job in in_process}


def test_what_is_only_drawn_runs_nothing_again():
    studies = [make_study(tables) for tables in (PHASE, changed(PHASE, front=0.2), changed(PHASE, cosine=0.99))]
    keys = [{job.key for job in study.token_jobs(study.sets[0])} for study in studies]
    assert keys[0] == keys[1] and not keys[0] & keys[2]


def test_runs_draw_from_their_own_numbers():
    """The tokens of a run depend on seed, n and run alone: neither on the block nor on other runs."""
    study = make_study(SMALL)
    job = study.token_jobs(study.sets[0])[0]
    alone, together = replace(job, first=2, last=3), replace(job, first=0, last=4)
    assert np.array_equal(alone.start(2).points, together.start(2).points)
    assert not np.array_equal(alone.start(2).points, alone.start(1).points)
    limit = perform(study.limit_jobs(study.sets[0])[0])
    assert np.array_equal(perform(alone, limit)["values"][0], perform(together, limit)["values"][2])


# -- one table, whoever computes it


@pytest.fixture(scope="module")
def done(tmp_path_factory):
    folder = tmp_path_factory.mktemp("done")
    return mf.study(SMALL, folder, workers=2)


def table_bytes(folder):
    return (folder / "study.csv").read_bytes()


def test_convergence_table(done):
    table = done.table
    assert len(table) == 2 * 6 * 3 and set(table.column("quantity")) == {"w1", "w2", "mmd", "energy", "order", "clusters"}
    start = table.where(t=0.0, quantity="w1")
    runs = [mf.Measure(mf.VonMisesFisher((1, 0), 1.0).draw(np.random.default_rng([3, 40, run]), 40)) for run in range(6)]
    fine = mf.circle(4096)
    law = mf.Measure(fine.centers, mf.project(fine, mf.VonMisesFisher((1, 0), 1.0)) * fine.areas)
    independent = np.mean([mf.wasserstein(law, tokens) for tokens in runs])
    allowed = start.column("approximation_error")[0] + start.column("limit_error")[0]
    assert start.column("mean")[0] == pytest.approx(independent, abs=allowed) and allowed < 2e-3
    limit_error = table.where(quantity="w1").column("limit_error")
    assert (limit_error > 0).all() and (limit_error < (2 * np.pi / 64) ** 2 / 4).all(), "of second order in the spacing"
    assert (done.folder / "study.png").stat().st_size > 20_000
    assert "slope" in str(done)


def test_frame_of_a_study(done):
    frame = done.to_pandas()
    assert list(frame) == list(done.table.names) and len(frame) == len(done.table)
    assert (frame["mean"] == done.table.column("mean")).all() and frame.attrs["units"]["mean"].startswith("rad for w1")
    assert set(frame.attrs["long_name"]) == set(frame), "every column of this kind has a name in words"
    assert frame.attrs["study"] == json.dumps(done.study.resolved())
    assert len(repr(done).splitlines()) == 2 and "6 runs of 40, 80, 600 tokens" in repr(done) and len(repr(done)) < 300
    assert len(repr(done.table)) > 3000, "the control: what would be printed otherwise"


@pytest.mark.parametrize("tables", [PHASE, CLUSTERS, PRODUCTS])
def test_every_column_of_a_study_is_named(in_process, tables, tmp_path, undrawn):
    frame = mf.study(changed(tables, particles__runs=1, times=[0, 1]), tmp_path).to_pandas()
    assert set(frame) == set(frame.attrs["units"])


@pytest.mark.slow
def test_energies_beyond_floats(in_process, tmp_path):
    """At beta = 800 energies are about e^800: differences are relative, the limit's own is inf, and nothing else fails."""
    tables = changed(SMALL, attention__beta=800.0, particles__counts=[40], particles__runs=2, times=[0, 0.01])
    table = mf.study(tables, tmp_path).table.where(quantity="energy")
    assert np.isinf(table.column("limit")).all() and np.isfinite(table.column("mean")).all()
    assert (tmp_path / "runs" / "notes.h5").write_bytes(b"mine") == 4
    assert mf.study(tables, tmp_path).table.where(quantity="energy").rows == table.rows


def test_few_tokens_and_coarse_meshes_are_flagged(in_process, tmp_path):
    """n = 8 is below ten times e^beta / Lambda_0 = 3.2 at beta = 2; eight arcs cannot hold what 600 tokens show."""
    tables = changed(SMALL, mesh__n=8, particles__counts=[8, 600], particles__runs=2, quantities=["mmd", "order"])
    result = mf.study(tables, tmp_path)
    few, many = (result.table.where(n=n) for n in (8, 600))
    assert few.column("below_validity").all() and not many.column("below_validity").any()
    bound = np.exp(2) / 2.2795853
    assert many.column("validity") == pytest.approx(600 / bound, rel=1e-6)
    assert many.where(t=0.5).column("mesh_limited").any() and np.isnan(result.table.column("slope")).all()
    assert "limited by the mesh" in str(result) and "n = 8 is below" in str(result)


@pytest.mark.usefixtures("undrawn")
def test_workers_do_not_change_a_bit(done, tmp_path):
    mf.study(SMALL, tmp_path / "one", workers=1)
    assert table_bytes(tmp_path / "one") == table_bytes(done.folder)


@pytest.mark.slow
@pytest.mark.usefixtures("undrawn")
def test_dask_workers_do_not_change_a_bit(done, tmp_path):
    distributed = pytest.importorskip("distributed")
    script = tmp_path / "cluster.py"
    script.write_text(
        "from distributed import LocalCluster\nimport sys\n"
        "if __name__ == '__main__':\n"
        "    with LocalCluster(n_workers=2, threads_per_worker=1, dashboard_address=None) as cluster:\n"
        "        print(cluster.scheduler_address, flush=True)\n        sys.stdin.read()\n"
    )
    assert distributed.__version__
    cluster = subprocess.Popen([sys.executable, str(script)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, cwd=tmp_path)
    try:
        address = cluster.stdout.readline().strip()
        mf.study(SMALL, tmp_path / "dask", scheduler=address)
    finally:
        cluster.stdin.close()
        cluster.wait(30)
        cluster.stdout.close()
    assert table_bytes(tmp_path / "dask") == table_bytes(done.folder)


def test_without_dask_the_extra_is_named(monkeypatch):
    monkeypatch.setitem(sys.modules, "distributed", None)
    with pytest.raises(ValueError, match=r"pip install 'meanfield-pde\[distributed\]'"), executor(None, "tcp://127.0.0.1:1"):
        pass


@pytest.mark.slow
@pytest.mark.usefixtures("undrawn")
def test_finished_runs_are_not_run_again(done, tmp_path, in_process):
    """A second call submits nothing, an enlarged study only what is new; the control is a result that was removed."""
    submitted = in_process
    folder = tmp_path / "again"
    subprocess.run(["cp", "-r", str(done.folder), str(folder)], check=True)
    before = table_bytes(folder)
    mf.study(SMALL, folder)
    assert submitted == [] and table_bytes(folder) == before
    sorted((folder / "runs").iterdir())[0].unlink()
    mf.study(SMALL, folder)
    assert len(submitted) == 1
    mf.study(changed(SMALL, particles__counts=[40, 80, 600, 50]), folder)
    assert [job.count for job in submitted[1:]] == [50]
    del submitted[:]
    more = mf.study(changed(SMALL, particles__runs=9), folder).table
    assert {(job.count, job.first, job.last) for job in submitted} == {(600, 6, 9), (80, 6, 9), (40, 6, 9)}
    fresh = mf.study(changed(SMALL, particles__runs=9), tmp_path / "fresh").table
    assert repr(more) == repr(fresh), "the same table however the runs were blocked"
    damaged = sorted((folder / "runs").iterdir())[0]
    damaged.write_bytes(damaged.read_bytes()[:-30])
    with pytest.raises(ValueError, match="is no complete result of a job"):
        mf.study(SMALL, folder)


def stored_run(folder, **arrays):
    """A store, a job with a finished run in it, and the file of that."""
    plan = make_study(SMALL)
    job = plan.limit_jobs(plan.sets[0])[0]
    store = _Store(folder)
    store.save(job, arrays)
    (file,) = folder.iterdir()
    return store, job, file


def without_checksums(file, arrays):
    """The same arrays as HDF5 has them by default, in which much damage goes unseen."""
    with h5py.File(file, "w") as plain:
        for name, values in arrays.items():
            plain[name] = values


def flipped(whole, count):
    """The file with one bit turned, so many times."""
    for at in np.random.default_rng(0).choice(8 * len(whole), count, replace=False).tolist():
        damaged = bytearray(whole)
        damaged[at // 8] ^= 1 << at % 8
        yield bytes(damaged)


@pytest.mark.slow
def test_a_cut_or_flipped_file_of_a_stored_run_is_told(tmp_path):
    """It is refused in one sentence, or it holds the same; all that is cut is refused."""
    arrays = {"values": np.arange(12.0).reshape(2, 6), "errors": np.ones(3), "masses_0": np.empty((0, 3)), "counts": np.arange(3)}
    store, job, file = stored_run(tmp_path, **arrays)
    whole = file.read_bytes()

    def read(content):
        file.unlink()  # a new file: some file systems wait for the disk when an old one is emptied
        file.write_bytes(content)
        try:
            held = store.load([job])
        except ValueError as error:
            assert re.fullmatch(r".*\.h5 is no complete result of a job \(.*\); wanted it removed, so that the job runs again", str(error))
            return "refused"
        same = held.keys() == arrays.keys() and all(np.array_equal(held[name], arrays[name]) for name in arrays)
        return "equal" if same and all(held[name].dtype == arrays[name].dtype for name in arrays) else "different"

    assert read(whole) == "equal"
    assert {read(whole[:length]) for length in range(len(whole))} == {"refused"}
    found = Counter(map(read, flipped(whole, 1000)))
    assert found["different"] == 0 and found["refused"] > 500
    without_checksums(file, arrays)
    assert Counter(map(read, flipped(file.read_bytes(), 500)))["different"] > 5, "the control"


def test_a_shorter_shape_in_a_stored_run_is_told(tmp_path):
    """The control: without checksums HDF5 gives as many rows as the damaged shape asks for."""
    store, job, file = stored_run(tmp_path, values=np.ones((7000, 3)))
    rows, fewer = (7000).to_bytes(8, "little"), (3000).to_bytes(8, "little")
    assert rows in file.read_bytes()
    file.write_bytes(file.read_bytes().replace(rows, fewer))
    with pytest.raises(ValueError, match=r"is no complete result of a job \(.*incorrect metadata checksum"):
        store.load([job])
    without_checksums(file, {"values": np.ones((7000, 3))})
    file.write_bytes(file.read_bytes().replace(rows, fewer))
    assert store.load([job])["values"].shape == (3000, 3)


def test_a_stored_run_that_the_system_cannot_read_is_not_called_damaged(tmp_path):
    store, job, file = stored_run(tmp_path, values=np.ones(3))
    file.unlink()
    with pytest.raises(FileNotFoundError, match=re.escape(f"No such file or directory: '{file}'")):
        store.load([job])
    file.mkdir()
    with pytest.raises(IsADirectoryError, match=re.escape(f"'{file}'")):
        store.load([job])


def test_a_finished_run_is_on_the_disk_before_it_has_its_name(tmp_path, monkeypatch):
    calls, sync, move = [], os.fsync, os.replace
    monkeypatch.setattr(os, "fsync", lambda fd: (calls.append(f"sync {os.path.basename(os.readlink(f'/proc/self/fd/{fd}'))}"), sync(fd)))
    monkeypatch.setattr(os, "replace", lambda old, new: (calls.append("move"), move(old, new)))
    file = stored_run(tmp_path / "runs", values=np.ones(3))[2]
    assert [call.split(".")[0 if call == "move" else -1] for call in calls] == ["part", "move", "sync runs"]
    assert file.name in calls[0]


def test_numbers_of_numpy_are_stored_as_plain_ones():
    third = np.float32(0.3)
    records = (
        Particles([np.int64(40)], np.int64(6), "smoothed", third, rtol=np.float32(1e-6)),
        Convergence(largest_plan=np.int64(10**6), angle=third),
        FirstClusters(third),
        InnerProducts(np.int64(8)),
        Phase(third, third),
        Spectral(np.float32(1e-6), np.int64(40)),
    )
    for record in records:
        assert type(record)(**json.loads(json.dumps(vars(record)))) == record


@pytest.mark.usefixtures("undrawn")
def test_fewer_runs_are_a_part_of_what_is_stored(done, tmp_path, in_process):
    folder = tmp_path / "fewer"
    subprocess.run(["cp", "-r", str(done.folder), str(folder)], check=True)
    fewer = mf.study(changed(SMALL, particles__runs=4), folder).table
    assert in_process == []
    assert repr(fewer) == repr(mf.study(changed(SMALL, particles__runs=4), tmp_path / "fresh").table)


@pytest.mark.slow
@pytest.mark.usefixtures("undrawn")
@pytest.mark.parametrize("finished", [0, 1, 3])
def test_a_killed_study_goes_on(done, tmp_path, finished):
    (tmp_path / "study.json").write_text(json.dumps(SMALL))
    command = [
        sys.executable,
        "-c",
        "from meanfield_pde.cli import main; main()",
        "study",
        str(tmp_path / "study.json"),
        "--out",
        str(tmp_path / "out"),
        "--workers",
        "1",
    ]
    running = subprocess.Popen(command, stdout=subprocess.DEVNULL)
    runs = tmp_path / "out" / "runs"
    while running.poll() is None and (len(list(runs.glob("[!.]*.h5"))) if runs.exists() else 0) < finished:
        time.sleep(0.005)
    if finished == 0:
        time.sleep(1.0)
    running.send_signal(signal.SIGKILL)
    running.wait()
    assert not (tmp_path / "out" / "study.csv").exists(), "killed before its end"
    mf.study(SMALL, tmp_path / "out", workers=1)
    assert table_bytes(tmp_path / "out") == table_bytes(done.folder)


# -- sampling


@pytest.mark.usefixtures("undrawn")
@pytest.mark.parametrize("sampling", ["stratified", *(pytest.param(name, marks=pytest.mark.slow) for name in ("binned", "smoothed"))])
def test_like_is_compared_with_like(in_process, sampling, tmp_path):
    """At t = 0 the density of the same tokens differs from them by the mesh or the bandwidth, not by n^{-1/2}."""
    extra = {"particles__bandwidth": 0.05} if sampling == "smoothed" else {}
    tables = changed(SMALL, mesh__n=128, particles__sampling=sampling, particles__counts=[60], particles__runs=3, **extra)
    result = mf.study(tables, tmp_path)
    independent = mf.sample(mf.VonMisesFisher((1, 0), 1.0), 60, seed=0)
    fine = mf.circle(2048)
    law = mf.Measure(fine.centers, mf.project(fine, mf.VonMisesFisher((1, 0), 1.0)) * fine.areas)
    w1 = result.table.where(t=0.0, quantity="w1").column("mean")[0]
    assert w1 < 0.3 * mf.wasserstein(law, mf.Measure(independent))
    assert np.isfinite(result.table.column("limit_error")).all()


# -- phase diagrams


def test_phase_diagram(in_process, tmp_path):
    result = mf.study(PHASE, tmp_path)
    arrays = dict(np.load(tmp_path / "study.npz"))
    assert arrays["share_12"].shape == arrays["share_limit"].shape == (2, 17)
    assert np.array_equal(arrays["beta"], [0.5, 4.0]) and arrays["t"][-1] == 8
    run = mf.solve_ensemble(
        mf.Attention(4.0), [make_study(PHASE).token_jobs(make_study(PHASE).sets[1])[0].start(k).points for k in range(10)], arrays["t"]
    )
    gram = np.einsum("rtid,rtjd->rtij", run.tokens, run.tokens) >= 0.999
    share = (gram.sum(axis=(2, 3)) - 12) / (12 * 11)
    assert arrays["share_12"][1] == pytest.approx(share.mean(axis=0), abs=1e-12)
    counts = [[len(mf.clusters(mf.Measure(x), float(np.arccos(0.999)))) for x in tokens] for tokens in run.tokens]
    assert arrays["clusters_12"][1] == pytest.approx(np.mean(counts, axis=0), abs=1e-12)
    assert arrays["share_limit"][0, 0] == pytest.approx(np.arccos(0.999) / np.pi, rel=0.02), "an almost uniform law"
    assert (tmp_path / "study.png").stat().st_size > 20_000 and "40% of the pairs" in str(result)


# -- inner products


def test_equiangular_law_in_a_high_dimension(in_process, tmp_path):
    result = mf.study(PRODUCTS, tmp_path)
    table = result.table
    assert np.abs(table.column("mean") - table.column("equiangular")).max() <= 0.02
    assert np.abs(table.column("mean") - mf.exact.equiangular(32, 2.0, 0.0, table.column("t"))).max() > 0.02, "another beta is another law"
    assert table.where(t=8.0).column("share").sum() == pytest.approx(1, abs=1e-12)
    assert "random ones in R^d are up to about 2 / d off it" in str(result)


@pytest.mark.parametrize("d", [8, pytest.param(64, marks=pytest.mark.slow)])
def test_how_far_the_equiangular_law_holds(d):
    """About 2 / d from the mean inner product of random tokens, as is said where the law is printed: no less than half of it, either."""
    times, means = np.arange(9) / 2, []
    for seed in range(8):
        start = mf.sample(mf.Uniform(d), 32, seed=seed)
        run = mf.solve(mf.ParticleSystem(mf.Attention(2.0)), start, 4.0, save_at=times)
        means.append([_mean_product(run.measure(k)) for k in range(len(run.times))])
    mean = np.mean(means, axis=0)
    error = np.abs(mean - mf.exact.equiangular(32, 2.0, float(mean[0]), run.times)).max()
    assert 1 < error * d < 3


@pytest.mark.parametrize("d", [8, 128])
def test_histograms_in_any_dimension(in_process, d, tmp_path):
    table = mf.study(changed(PRODUCTS, start__d=d, times=[0, 1], particles__counts=[20]), tmp_path).table
    start = table.where(t=0.0)
    middle = (start.column("low") + start.column("high")) / 2
    spread = np.sqrt(start.column("share") @ middle**2)
    assert spread == pytest.approx(d**-0.5, rel=0.1), "inner products of uniform points have variance 1/d"
    assert table.where(t=1.0).column("share").sum() == pytest.approx(1, abs=1e-12)


@pytest.mark.slow
def test_histograms_of_the_limit_and_of_tokens(in_process, tmp_path):
    tables = {
        "kind": "inner_products",
        "times": [0, 1],
        "bins": 20,
        "mesh": {"kind": "icosahedral", "level": 3},
        "start": {"kind": "von_mises_fisher", "mean": [0, 0, 1], "kappa": 2.0},
        "particles": {"counts": [600], "runs": 1, "sampling": "stratified"},
    }
    table = mf.study(tables, tmp_path).table
    limit, tokens = (table.where(source=source) for source in ("limit", "tokens"))
    assert limit.column("share") == pytest.approx(tokens.column("share"), abs=0.01)
    assert limit.where(t=0.0).column("mean")[0] == pytest.approx((1 / np.tanh(2) - 1 / 2) ** 2, abs=2e-3)


# -- first clusters


@pytest.mark.slow
def test_first_clusters(in_process, tmp_path):
    result = mf.study(CLUSTERS, tmp_path)
    assert sorted(zip(result.table.column("source"), result.table.column("run"), strict=True)) == [
        ("limit", 0), ("limit", 1), ("tokens", 0), ("tokens", 1),
    ]  # fmt: skip
    noise = [int(np.random.SeedSequence([0, run]).generate_state(1)[0]) for run in range(2)]
    laws = [mf.PerturbedUniform(2, noise=0.01, max_degree=4, seed=seed) for seed in noise]
    mesh = mf.circle(64)
    runs = [mf.solve(mf.MeanFieldPDE(mesh, mf.Attention(2.0)), mf.project(mesh, law), 25.0, save_every=0.5) for law in laws]
    first = [mf.stages(run)[0] for run in runs]
    assert result.table.where(source="limit").column("clusters").tolist() == [stage.clusters for stage in first]
    assert result.table.where(source="limit").column("t") == pytest.approx([stage.t_start for stage in first], abs=1e-9)
    assert (result.table.where(source="tokens").column("clusters") > 0).all()
    assert "of 2 runs first" in str(result)


# -- pictures


def small_table(columns, **of):
    """Rows of all combinations, with further columns that are functions of them."""
    rows = [dict(zip(columns, values, strict=True)) for values in itertools.product(*columns.values())]
    return Table.of([row | {name: make(**row) for name, make in of.items()} for row in rows])


def convergence_rows(counts, quantities=("w1", "order"), error=1e-3, flagged=False):
    constant = {"runs": 4, "approximation_error": 0.0, "mesh_limited": flagged, "validity": 99.0, "below_validity": False, "limit": 1.0}
    constant |= {"slope": -0.0 if flagged else -0.5, "slope_low": -0.6, "slope_high": -0.4, "factor": 1.0, "limit_error": error}
    of = {name: lambda value=value, **_: value for name, value in constant.items()}
    of |= {"mean": lambda n, t, **_: (1 + t) * n**-0.5, "standard_error": lambda n, **_: 0.1 * n**-0.5}
    return small_table({"t": [0.0, 1.0], "quantity": list(quantities), "n": list(counts)}, **of)


@pytest.mark.parametrize("counts", [(100, 1000, 10_000), (100, 200, 400), (40, 80)])
def test_convergence_picture(counts):
    """Means fill the panel, with a guide of slope -1/2 below them; ticks do not overprint; the legend has what is drawn."""
    study = make_study(changed(SMALL, particles__counts=list(counts), quantities=["w1", "order"]))
    figure = mf.study_figure(study, convergence_rows(counts))
    assert not overlapping(figure)
    shown = texts(figure)
    assert {"slope \N{MINUS SIGN}1/2", "$t$ = 0", "$t$ = 1", "(a)", "(b)", "\N{MINUS SIGN}0.50 $\\pm$ 0.10"} <= shown
    assert not {"flagged, not fitted", "the limit's own error"} & shown, "neither is drawn"
    assert any("circle, n = 64" in text and "6 runs" in text for text in shown)
    for panel in figure.axes:
        labels = [tick.label1.get_text() for tick in panel.xaxis.get_major_ticks()]
        assert labels == [str(n) for n in counts] or max(counts) == 100 * min(counts)
        low, high = np.log(panel.get_ylim())
        guide = next(line for line in panel.lines if line.get_linestyle() == "-.")
        n, values = guide.get_data()
        assert np.diff(np.log(values)) / np.diff(np.log(n)) == pytest.approx(-0.5) and (values < n**-0.5).all()
        lowest, highest = np.log(values.min()), np.log(2 * min(counts) ** -0.5)
        assert lowest - low < 0.3 and highest - lowest > 0.5 * (high - low), "means and guide fill more than half of it"
    near = texts(mf.study_figure(study, convergence_rows(counts, error=0.5 * max(counts) ** -0.5, flagged=True)))
    assert {"flagged, not fitted", "the limit's own error"} <= near


def test_ticks_of_matplotlib_would_overprint():
    """The control."""
    figure = mf.study_figure(make_study(changed(SMALL, quantities=["w1", "order"])), convergence_rows((40, 80)))
    for panel in figure.axes:
        panel.xaxis.set_major_locator(LogLocator())
        panel.xaxis.set_minor_formatter(LogFormatterSciNotation(labelOnlyBase=False))
    assert overlapping(figure)


def test_phase_picture():
    """A front is in the legend where there is one, and white areas are explained where there are some."""
    study = make_study(PHASE)
    columns = {"attention.beta": [0.5, 4.0], "t": [0.0, 4.0, 8.0], "n": [12, 0]}
    tables = {"source": lambda n, **_: "tokens" if n else "limit", "runs": lambda **_: 3, "standard_error": lambda **_: 0.1}
    for last, held, there in ((0.8, 0, True), (0.3, 1, False)):
        of = tables | {"share": lambda t, last=last, **_: last * t / 8, "clusters": lambda t, n, held=held, **_: 3.0 if t or n else held}
        table = small_table(columns, **of)
        figure = mf.study_figure(study, table)
        shown = texts(figure)
        assert ("40% of the pairs have met: limit" in shown) == ("most of the mass is in no cluster yet" in shown) == there
        assert {"pairs that met (%)", "number of clusters\n(8: or more)", "limit", "tokens, $n$ = 12", "(d)"} <= shown
        assert not overlapping(figure)
        assert any(text.startswith("softmax; mesh circle") for text in shown), "the swept beta is on an axis"


def test_picture_of_inner_products():
    """Each time has its own panel, in which the limit is a line over the tokens' area, and both can be seen."""
    study = make_study(changed(PRODUCTS, mesh={"kind": "circle", "n": 8}, start={"kind": "uniform", "d": 2}))
    columns = {"t": [0.0, 1.0], "n": [32, 0], "low": [-1.0, -0.5, 0.0, 0.5]}
    of = {"source": lambda n, **_: "tokens" if n else "limit", "high": lambda low, **_: low + 0.5, "share": lambda **_: 0.25}
    table = small_table(columns, **of, mean=lambda t, **_: t / 2, equiangular=lambda n, t, **_: t / 2 if n else np.nan)
    figure = mf.study_figure(study, table)
    *panels, means = figure.axes
    for panel in panels:
        area, line = [patch for patch in panel.patches if isinstance(patch, StepPatch)]
        assert area.get_fill() and not line.get_fill() and len(panel.lines) == 1
    assert [line.get_label() for line in means.lines] == ["32 tokens", "equiangular law", "limit"]
    assert "inner product $\\langle x, y\\rangle$ (bins 0.5)" in texts(figure) and not overlapping(figure)


def test_a_convergence_panel_of_ones_own(tmp_path):
    from matplotlib.figure import Figure

    axes = Figure().subplots()
    assert mf.convergence_panel(axes, convergence_rows((100, 400)), "w1") is axes
    assert {"$t$ = 0", "slope \N{MINUS SIGN}1/2"} <= set(axes.get_legend_handles_labels()[1]) and axes.get_ylabel() == "$W_1$ (rad)"
    with pytest.raises(ValueError, match="quantity is 'mass', wanted 'w1' or 'order'"):
        mf.convergence_panel(axes, convergence_rows((100, 400)), "mass")


# -- the command line


SWEPT = {
    "vectors": ("start.mean", [[1, 0], [0, 1]], {"kind": "von_mises_fisher", "kappa": 1.0}),
    "matrices": ("attention.value", [[[1, 0], [0, 1]], [[0, 1], [-1, 0]]], {"kind": "uniform", "d": 2}),
    "tables": ("start.laws", [[{"kind": "uniform", "d": 2}], [{"kind": "moebius", "w": [0.5, 0]}]], {"kind": "mixture", "weights": [1.0]}),
    "modes": ("start.modes", [[[2, 0.1, [1, 0]]], []], {"kind": "perturbed_uniform", "d": 2, "noise": 0.01}),
}
"""Values of a sweep that are lists or tables, and the start beside them."""


@pytest.mark.parametrize("name", SWEPT)
def test_sweeps_through_lists_are_told_and_drawn(name, in_process, undrawn, tmp_path):
    key, values, start = SWEPT[name]
    kind = "clusters" if name == "modes" else "inner_products"
    tables = {"kind": kind, "times": [0, 0.1], "start": start, "particles": {"counts": [8], "runs": 2}, "sweep": {key: values}}
    result = mf.study(tables, tmp_path / "out")
    told = [json.dumps(value) for value in values]
    assert list(dict.fromkeys(result.table.column(key))) == told
    assert all(f"{key} = {value}" in str(result) for value in told)
    assert [part.get_suptitle() for part in study_figure(result.study, result.table).subfigs] == [f"{key} = {value}" for value in told]
    assert make_study(json.loads((tmp_path / "out/study.json").read_text())).sweep == {key: tuple(values)}


def test_command_line(tmp_path, capsys):
    (tmp_path / "study.json").write_text(json.dumps(PRODUCTS))
    with pytest.raises(SystemExit) as ended:
        main(["study", str(tmp_path / "study.json"), "--out", str(tmp_path / "out"), "--workers", "1"])
    assert ended.value.code == 0 and "equiangular" in capsys.readouterr().out
    assert sorted(os.listdir(tmp_path / "out")) == ["runs", "study.csv", "study.json", "study.png"]
    (tmp_path / "bad.json").write_text(json.dumps(changed(PRODUCTS, bins=0)))
    with pytest.raises(SystemExit) as ended:
        main(["study", str(tmp_path / "bad.json"), "--out", str(tmp_path / "bad")])
    assert ended.value.code == 2 and "bins is 0" in capsys.readouterr().err and not (tmp_path / "bad").exists()
