"""Other systems: what macOS, Windows, containers and read-only machines lack; forks, threads, and every way out of a run."""

import os
import platform
import signal
import subprocess
import sys
import threading
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest

import meanfield_pde as mf
from meanfield_pde import records, threads
from meanfield_pde.cli import main
from meanfield_pde.files.replacing import owned

CASE = {
    "t_end": 0.2,
    "mesh": {"kind": "circle", "n": 32},
    "attention": {"beta": 2.0},
    "start": {"kind": "von_mises_fisher", "mean": [1, 0], "kappa": 2.0},
    "particles": {"count": 20, "seed": 0},
}


@pytest.fixture
def system():
    mesh = mf.circle(32)
    return mf.MeanFieldPDE(mesh, mf.Attention(2.0)), mf.project(mesh, mf.VonMisesFisher((1, 0), 2.0))


# -- what is missing elsewhere


def test_processors_are_counted_where_a_process_is_bound_to_none(monkeypatch):
    monkeypatch.delenv("OMP_NUM_THREADS", raising=False)
    monkeypatch.delattr(os, "sched_getaffinity", raising=False)
    monkeypatch.setattr(os, "cpu_count", lambda: 3)
    monkeypatch.setattr(threads, "CPU_QUOTA", threads.Path("/nonexistent"))
    assert threads.thread_count() == 3


@pytest.mark.parametrize(("quota", "count"), [("max 100000", 6), ("150000 100000", 2), ("20000 100000", 1), ("900000 100000", 6), ("", 6)])
def test_the_quota_of_a_container_counts(quota, count, monkeypatch, tmp_path):
    (tmp_path / "cpu.max").write_text(quota + "\n")
    monkeypatch.setattr(threads, "CPU_QUOTA", tmp_path / "cpu.max")
    monkeypatch.delattr(os, "sched_getaffinity", raising=False)
    monkeypatch.setattr(os, "cpu_count", lambda: 6)
    assert threads.processors() == count


@pytest.mark.parametrize("missing", ["links", "affinity", "fork"])
def test_a_case_runs_without(missing, monkeypatch, tmp_path):
    if missing == "links":
        monkeypatch.delattr(os, "link")
    elif missing == "fork":
        monkeypatch.delattr(os, "fork")
    else:
        monkeypatch.delenv("OMP_NUM_THREADS", raising=False)
        monkeypatch.delattr(os, "sched_getaffinity")
    limit, tokens = mf.run(CASE, tmp_path / "out", checkpoint_every="2steps")
    assert limit.status == tokens.status == "done" and (tmp_path / "out/overview.png").exists()


SCRIPT = """
import os, signal, sys
{taken}
import meanfield_pde as mf
mesh = mf.circle(16)
run = mf.solve(mf.MeanFieldPDE(mesh, mf.Attention(2.0)), mf.project(mesh, mf.Uniform(2)), .01)
from meanfield_pde.cases.stopping import CODES
print(run.status, *CODES.values())
"""


def test_a_system_without_termination_signals_or_fork_handlers():
    taken = "del signal.SIGTERM, os.register_at_fork, os.sched_getaffinity, os.link, os.fork"
    ran = subprocess.run([sys.executable, "-c", SCRIPT.format(taken=taken)], capture_output=True, text=True, check=True)
    assert ran.stdout == "done 130\n"


@pytest.mark.parametrize("writable", [True, False])
def test_compiled_code_needs_no_place_on_the_disk(writable, tmp_path, monkeypatch):
    """numba refuses to cache where no folder can be written to; root can write anywhere, so that its locators are taken away instead."""
    from numba.core import caching

    if not writable:
        monkeypatch.setattr(caching.CacheImpl, "_locator_classes", [])
        with pytest.raises(RuntimeError, match="no locator"):
            threads.njit(cache=True)(len_of)
    assert threads.compiled(len_of)(np.arange(3.0)) == 3


def len_of(x):
    return len(x)


# -- forks and threads


def speeds():
    measure = mf.Measure(mf.sample(mf.VonMisesFisher((1, 2, 2), 2.0), 200, seed=0))
    return mf.Attention(3.0).velocity(measure.points, measure, method="direct")


@pytest.mark.skipif(not hasattr(os, "fork"), reason="no fork here")
@pytest.mark.filterwarnings("ignore:.*fork:DeprecationWarning")
def test_a_fork_goes_on_computing(monkeypatch):
    """U2: the parent's threads are not in the child, which waited for them for ever."""
    monkeypatch.setenv("OMP_NUM_THREADS", "2")
    before = speeds()
    assert threads._pool.cache_info().currsize, "the parent has a pool"
    reading, writing = os.pipe()
    child = os.fork()
    if not child:
        signal.alarm(20)
        os.write(writing, speeds().tobytes())
        os._exit(0)
    os.close(writing)
    with os.fdopen(reading, "rb") as stream:
        after = stream.read()
    assert os.waitpid(child, 0)[1] == 0
    assert after == before.tobytes()


def test_points_are_remembered_by_many_threads_at_once():
    arrays = [records.frozen(np.full(3, float(k))) for k in range(3 * records.REMEMBERED)]
    start = threading.Barrier(8)

    def ask(seed):
        start.wait()
        for k in np.random.default_rng(seed).integers(len(arrays), size=3000).tolist():
            assert records.remembered("sum", arrays[k], lambda k=k: 3.0 * k) == 3.0 * k

    interval = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    try:
        with ThreadPoolExecutor(8) as pool:
            list(pool.map(ask, range(8)))
    finally:
        sys.setswitchinterval(interval)
    assert len(records._memory) <= records.REMEMBERED


# -- every way out keeps what was reached


class EnoughError(Exception):
    """Of a caller."""


def third(error):
    """A callback that raises in the third step."""
    seen = []

    def watch(t, measure):
        seen.append(t)
        if len(seen) == 3:
            raise error

    return watch


@pytest.mark.parametrize("error", [KeyboardInterrupt(), EnoughError("of this"), OSError("disk"), MemoryError(), SystemExit(1)], ids=repr)
def test_an_exception_in_a_callback_carries_the_run(error, system, tmp_path):
    whole = mf.solve(*system, 1.0, save_every=0.01)
    rule = mf.Checkpoint(tmp_path / "run.vtkhdf")
    with pytest.raises(type(error)) as caught:
        mf.solve(*system, 1.0, save_every=0.01, callbacks=[third(error)], checkpoint=rule)
    reached = caught.value.solution
    assert len(reached.history) == 3 and reached.times[-1] == whole.history.t[2]
    assert reached.status == f"ended by {type(error).__name__}"
    assert (reached.history == whole.history[:3]).all()
    assert len(mf.load(rule.path).history) == 3
    assert mf.resume(rule.path).columns["masses"].tobytes() == whole.columns["masses"].tobytes()


class Failing:
    """A model of one's own that breaks down."""

    def __init__(self, calls=20):
        self.calls, self.left = calls, calls

    def velocity(self, points, measure, t=0.0):
        self.left -= 1
        if not self.left:
            raise ZeroDivisionError("velocity of mine")
        return np.stack([-points[:, 1], points[:, 0]], axis=1)


@pytest.mark.parametrize("make", [lambda mesh, model: mf.MeanFieldPDE(mesh, model), lambda mesh, model: mf.ParticleSystem(model)])
def test_an_exception_in_a_model_carries_the_run(make, tmp_path):
    mesh = mf.circle(16)
    system = make(mesh, Failing(200))
    start = mf.sample(mf.Uniform(2), 10, 0) if system.mesh is None else mf.project(mesh, mf.Uniform(2))
    rule, stepper = mf.Checkpoint(tmp_path / "run.vtkhdf"), None if system.mesh is None else mf.SSP(mf.SSPRK3, dt_max=1e-3)
    with pytest.raises(ZeroDivisionError, match="velocity of mine") as caught:
        mf.solve(system, start, 1e6, checkpoint=rule, stepper=stepper, save_at=np.linspace(0, 1e6, 5001))
    assert caught.value.solution.times[-1] > 0
    assert mf.load(rule.path, kinds=[Failing]).times[-1] == caught.value.solution.times[-1]


# -- one owner at a time


@pytest.fixture(params=["folder", "file"])
def place(request, tmp_path):
    return tmp_path if request.param == "folder" else tmp_path / "run.vtkhdf"


def lock_of(place):
    return place / ".owner" if place.is_dir() else place.with_name(".run.vtkhdf.owner")


def test_a_second_owner_is_refused_and_the_first_leaves_nothing(place):
    with owned(place):
        with pytest.raises(ValueError, match=rf"is being written by process {os.getpid()} on .*, wanted it to end"), owned(place):
            pass
        assert lock_of(place).exists(), "the second takes nothing away"
    assert not lock_of(place).exists()
    with owned(place):
        pass


def test_an_owner_that_was_killed_is_followed_and_one_of_another_machine_is_not(place):
    ended = subprocess.Popen([sys.executable, "-c", ""])
    ended.wait()
    lock_of(place).write_text(f"process {ended.pid} on {platform.node()}")
    with owned(place):
        pass
    for text in (f"process {ended.pid} on elsewhere", f"process {os.getpid()} on {platform.node()}", "", "someone"):
        lock_of(place).write_text(text)
        with pytest.raises(ValueError, match=r"is being written by .*removed, if it has ended"), owned(place):
            pass
        lock_of(place).unlink()


def test_a_file_has_one_run_at_a_time(system, tmp_path):
    rule = mf.Checkpoint(tmp_path / "run.vtkhdf", every_steps=2)

    def again(t, measure):
        with pytest.raises(ValueError, match="is being written by"):
            mf.solve(*system, 1.0, checkpoint=rule)
        with pytest.raises(ValueError, match="is being written by"):
            mf.resume(rule.path)
        return "enough"

    first = mf.solve(*system, 1.0, checkpoint=rule, callbacks=[again])
    assert len(mf.load(rule.path).history) == len(first.history) == 1
    assert not lock_of(rule.path).exists()
    assert mf.resume(rule.path).status == "done"


def test_a_folder_has_one_run_at_a_time(tmp_path, capsys):
    """U5: two commands wrote into one folder and both ended well."""
    out, case = tmp_path / "out", tmp_path / "case.toml"
    case.write_text("t_end = 0.2\n[mesh]\nkind = 'circle'\nn = 16\n[start]\nkind = 'von_mises_fisher'\nmean = [1, 0]\nkappa = 1.0\n")
    refused = []

    def again(t, t_end):
        if not refused:
            for command in (["run", str(case), "--out", str(out), "--overwrite"], ["resume", str(out)]):
                with pytest.raises(SystemExit) as ended:
                    main(command)
                refused.append((ended.value.code, capsys.readouterr().err))

    mf.run(case, out, progress=again)
    assert [code for code, _ in refused] == [2, 2]
    assert all(f"{out} is being written by process {os.getpid()} on" in said and said.count("\n") == 1 for _, said in refused)
    assert not [name for name in os.listdir(out) if "owner" in name] and mf.load(out / "limit.vtkhdf").status == "done"


def test_a_case_that_cannot_begin_leaves_no_folder(tmp_path):
    """USA at a beta beyond double precision is refused when its first field is made."""
    case = CASE | {"attention": {"beta": 800.0, "normalised": False}}
    with pytest.raises(OverflowError):
        mf.run(case, tmp_path / "out")
    assert not (tmp_path / "out").exists()
