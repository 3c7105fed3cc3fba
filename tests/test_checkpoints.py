"""Checkpoints: a run goes on bit for bit wherever and however it was stopped; a damaged file is never taken for a whole one."""

import errno
import hashlib
import itertools
import json
import os
import re
import signal
import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import h5py
import numpy as np
import pytest

import meanfield_pde as mf
from meanfield_pde.cli import main
from meanfield_pde.files import checkpoints
from meanfield_pde.files.checkpoints import read_checkpoint
from meanfield_pde.files.results import read_memory
from meanfield_pde.sphere import normalise

HERE = Path(__file__).parent
HUMPS = mf.Mixture([mf.VonMisesFisher((np.cos(a), np.sin(a)), 30.0) for a in (0.0, 1.35, 3.6)], [0.3, 0.3, 0.4])


def forming():
    """Humps on the circle that become atoms, which go on as an ODE: SSPRK3, then DOP853."""
    mesh = mf.circle(32)
    return mf.MeanFieldPDE(mesh, mf.Attention(9.0)), mf.project(mesh, HUMPS), {"t_end": 30.0, "save_every": 0.7}


def spherical(stepper):
    mesh = mf.icosahedral(1)
    start = mf.project(mesh, mf.VonMisesFisher((1, 2, 2), 2.0))
    return mf.MeanFieldPDE(mesh, mf.Attention(3.0)), start, {"t_end": 5.0, "save_every": 0.8, "stepper": stepper}


def tokens():
    return mf.ParticleSystem(mf.Attention(4.0)), mf.sample(mf.VonMisesFisher((0, 0, 1), 1.0), 30, seed=2), {"t_end": 4.0, "save_every": 0.3}


def meeting():
    """Tokens of which some have met, and travel as one, before the end."""
    return (
        mf.ParticleSystem(mf.Attention(4.0)),
        mf.sample(mf.VonMisesFisher((0, 0, 1), 1.0), 12, seed=2),
        {"t_end": 60.0, "save_every": 7.0},
    )


RUNS = {
    "tokens that meet": meeting,
    "atoms": forming,
    "euler": lambda: spherical("euler"),
    "ssprk2": lambda: spherical("ssprk2"),
    "ssprk3": lambda: spherical("ssprk3"),
    "tokens": tokens,
}


class After:
    """Ends a run after so many steps."""

    def __init__(self, steps):
        self.left = steps

    def __call__(self, t, measure):
        self.left -= 1
        return "enough" if self.left < 0 else None


def digest(solution):
    """SHA-256 of all that a run computed."""
    parts = [solution.times, *solution.columns.values(), solution.history, solution.events]
    return hashlib.sha256(b"".join(np.ascontiguousarray(np.asarray(part)).tobytes() for part in parts)).hexdigest()


def stopped(run, path, steps, **rule):
    system, start, options = run
    return mf.solve(system, start, **options, callbacks=[After(steps)], checkpoint=mf.Checkpoint(path, **rule))


@pytest.mark.parametrize("name", [pytest.param(name, marks=pytest.mark.slow if name == "atoms" else ()) for name in RUNS])
def test_a_stopped_run_goes_on_bit_for_bit(name, tmp_path):
    """At steps 0, 1, 7 and the last but one, on steps shortened for an output, with atoms and without."""
    run = RUNS[name]()
    whole = mf.solve(run[0], run[1], **run[2])
    count = len(whole.history)
    shortened = [k for k, t in enumerate(whole.history.t[:-1]) if t in whole.times][:2]
    for steps in (0, 1, 7, *shortened, count - 2):
        part = stopped(run, tmp_path / "run.vtkhdf", steps)
        assert part.status.startswith("stopped") and len(part.history) == steps + 1
        resumed = mf.resume(tmp_path / "run.vtkhdf")
        assert digest(resumed) == digest(whole), steps
        assert all(resumed.record[name] == whole.record[name] for name in ("points evaluated", "threads"))
        assert resumed.status == "done" and f"t = {part.times[-1]:.9g}" in resumed.record["resumed"]
        assert mf.load(tmp_path / "run.vtkhdf") == resumed
        assert os.listdir(tmp_path) == ["run.vtkhdf"]


def test_a_run_begun_anew_from_the_state_differs(tmp_path):
    """The control: without the integrator's memory the steps are others."""
    run = tokens()
    whole = mf.solve(run[0], run[1], **run[2])
    part = stopped(run, tmp_path / "run.vtkhdf", 5)
    left = run[2]["t_end"] - part.times[-1]
    anew = mf.solve(run[0], part.tokens[-1], left)
    assert not np.array_equal(anew.history.dt[:3], whole.history.dt[6:9])


@pytest.mark.slow
def test_stopped_again_and_again(tmp_path):
    run = forming()
    whole = mf.solve(run[0], run[1], **run[2])
    stopped(run, tmp_path / "run.vtkhdf", 10)
    for _ in range(4):
        mf.resume(tmp_path / "run.vtkhdf", callbacks=[After(40)])
    resumed = mf.resume(tmp_path / "run.vtkhdf")
    assert digest(resumed) == digest(whole) and len(resumed.record["resumed"].split("),")) == 5


def test_another_number_of_threads_is_recorded(tmp_path, monkeypatch):
    run = spherical("ssprk3")
    monkeypatch.setenv("OMP_NUM_THREADS", "1")
    whole = mf.solve(run[0], run[1], **run[2])
    stopped(run, tmp_path / "run.vtkhdf", 7)
    monkeypatch.setenv("OMP_NUM_THREADS", "2")
    resumed = mf.resume(tmp_path / "run.vtkhdf")
    assert re.fullmatch(r"1, from t = [\d.]+ on 2", resumed.record["threads"])
    assert np.abs(resumed.masses - whole.masses).max() <= 1e-12


def seen_under_way(path, **rule):
    """The times and numbers of steps of the checkpoints of a run, as they are seen at every step; and the run."""
    seen = {}

    def look(t, measure):
        now = mf.load(path)
        seen[float(now.times[-1])] = len(now.history)
        assert now.status == "running" and now.times[-1] < t

    system, start, options = spherical("ssprk3")
    solution = mf.solve(system, start, **options, callbacks=[look], checkpoint=mf.Checkpoint(path, **rule))
    assert mf.load(path) == solution and not mf.Checkpoint(path).previous.exists()
    return np.array(list(seen)), list(seen.values()), solution


def test_checkpoints_after_so_many_steps(tmp_path):
    steps, solution = seen_under_way(tmp_path / "run.vtkhdf", every_steps=4)[1:]
    assert steps == list(range(0, len(solution.history), 4)) and len(steps) > 4


def test_checkpoints_after_so_much_model_time(tmp_path):
    """Each at the first step after the interval, none sooner."""
    times, _, solution = seen_under_way(tmp_path / "run.vtkhdf", every_time=0.31)
    wanted = [0.0]
    for t in solution.history.t[:-1].tolist():
        if t - wanted[-1] >= 0.31:
            wanted.append(t)
    assert times.tolist() == wanted and 3 < len(times) < len(solution.history) / 2


def test_checkpoints_by_the_clock_take_a_small_share_of_it(tmp_path, monkeypatch):
    """One that took an hour is not followed by another one; the control: without that rule, one at every step."""
    slow = itertools.chain([0.0, 0.0, 3600.0], itertools.repeat(3600.5)).__next__
    monkeypatch.setattr(checkpoints, "time", SimpleNamespace(monotonic=slow))
    assert seen_under_way(tmp_path / "run.vtkhdf", every_seconds=1e-9)[1] == [0]
    monkeypatch.undo()
    monkeypatch.setattr(checkpoints, "LARGEST_SHARE", 0.0)
    steps, solution = seen_under_way(tmp_path / "run.vtkhdf", every_seconds=1e-9)[1:]
    assert steps == list(range(len(solution.history)))


def test_the_one_before_is_taken_if_the_newest_is_damaged(tmp_path):
    path, run = tmp_path / "run.vtkhdf", spherical("ssprk3")
    whole = mf.solve(run[0], run[1], **run[2])
    stopped(run, path, 9, every_steps=3)
    previous = mf.Checkpoint(path).previous
    newest = path.read_bytes()
    assert read_checkpoint(path).solution.times[-1] > read_checkpoint(previous).solution.times[-1]
    path.write_bytes(newest[: len(newest) // 2])
    assert read_checkpoint(path).source == previous
    resumed = mf.resume(path)
    assert digest(resumed) == digest(whole) and previous.name in resumed.record["resumed"]
    for file in (path, previous):
        file.write_bytes(newest[:1000])
    with pytest.raises(ValueError, match="is no complete results file"):
        mf.resume(path)


def test_what_cannot_go_on_is_refused(tmp_path):
    with pytest.raises(FileNotFoundError, match="no checkpoint"):
        mf.resume(tmp_path / "run.vtkhdf")
    with pytest.raises(ValueError, match=r"wanted a name that ends in \.vtkhdf"):
        mf.Checkpoint(tmp_path / "run.npz")
    with pytest.raises(ValueError, match="every_steps is 0"):
        mf.Checkpoint(tmp_path / "run.vtkhdf", every_steps=0)
    system, start, options = spherical("ssprk3")
    mf.solve(system, start, **options, checkpoint=mf.Checkpoint(tmp_path / "run.vtkhdf"))
    with pytest.raises(ValueError, match=r"holds a run that is over \(done\), wanted a checkpoint"):
        mf.resume(tmp_path / "run.vtkhdf")

    class Own:
        def __init__(self, dt):
            pass

        def begin(self, system, state, t, t_end):
            raise AssertionError("not reached")

        def describe(self):
            return "own"

    with pytest.raises(ValueError, match=r"^stepper is a Own without the attribute 'dt', wanted one for each constructor argument"):
        mf.solve(mf.ParticleSystem(mf.Attention(1.0)), np.eye(3), 1.0, stepper=Own(0.1), checkpoint=mf.Checkpoint(tmp_path / "own.vtkhdf"))
    assert os.listdir(tmp_path) == ["run.vtkhdf"]


def with_last_masses_moved(solution):
    masses = np.array(solution.masses)
    masses[-1] = np.roll(masses[-1], 1)
    return replace(solution, columns={**solution.columns, "masses": masses})


def with_areas_changed(solution):
    mesh = replace(solution.mesh, areas=solution.mesh.areas * (1 + 1e-13))
    return replace(solution, system=mf.MeanFieldPDE(mesh, solution.model))


@pytest.mark.parametrize(
    ("name", "tamper"),
    [
        ("state", with_last_masses_moved),
        ("system", with_areas_changed),
        ("record", lambda solution: replace(solution, record=solution.record | {"order": 9})),
    ],
)
def test_a_file_that_was_tampered_with_is_refused(name, tamper, tmp_path, monkeypatch):
    """Written with sums that are not those of what it holds: HDF5 finds nothing wrong with it."""
    path = tmp_path / "run.vtkhdf"
    stopped(spherical("ssprk3"), path, 3)
    solution, memory = mf.load(path), read_memory(path)
    mf.Checkpoint(path).previous.unlink()
    mf.save(path, tamper(solution), memory)
    with pytest.raises(ValueError, match=f"is no whole checkpoint: its {name} differ"):
        read_checkpoint(path)
    with monkeypatch.context() as patch:  # the control
        patch.setattr(checkpoints, "_digests", lambda solution: {})
        assert read_checkpoint(path)


def dies(t, measure):
    raise RuntimeError("killed")


def test_a_run_that_ends_in_its_first_step_goes_on(tmp_path):
    """Under a name that another run has left, of which nothing is taken up; the first checkpoint and what was reached are kept."""
    path, run = tmp_path / "run.vtkhdf", spherical("ssprk3")
    whole = digest(mf.solve(run[0], run[1], **run[2]))
    other = mf.MeanFieldPDE(run[0].mesh, mf.Attention(7.0))
    stopped((other, *run[1:]), path, 9, every_steps=3)
    assert mf.Checkpoint(path).previous.exists()

    with pytest.raises(RuntimeError, match="killed"):
        mf.solve(run[0], run[1], **run[2], callbacks=[dies], checkpoint=mf.Checkpoint(path))
    kept = [mf.load(tmp_path / name) for name in sorted(os.listdir(tmp_path))]
    assert [(len(run.history), run.model.beta) for run in kept] == [(0, 3.0), (1, 3.0)]
    assert digest(mf.resume(path)) == whole


def test_damage_to_an_earlier_output_is_met_before_the_run_goes_on(tmp_path):
    mesh, path = mf.circle(2000), tmp_path / "run.vtkhdf"
    run = mf.MeanFieldPDE(mesh, mf.Attention(3.0)), mf.project(mesh, HUMPS), {"t_end": 0.016, "save_every": 0.001}
    whole = digest(mf.solve(run[0], run[1], **run[2]))
    stopped(run, path, 12, every_steps=4)
    with h5py.File(path) as file:
        chunks = file["VTKHDF/CellData/mass"].id
        assert chunks.get_num_chunks() > 1
        place = chunks.get_chunk_info(0)
    content = bytearray(path.read_bytes())
    content[place.byte_offset + place.size // 2] ^= 4
    path.write_bytes(content)
    assert mf.load(path).status == "running"
    previous = mf.Checkpoint(path).previous
    assert read_checkpoint(path).source == previous
    with pytest.raises(RuntimeError, match="killed"):
        mf.resume(path, callbacks=[dies])
    assert read_checkpoint(path).source == path
    assert digest(mf.resume(path)) == whole


def test_a_run_that_is_over_is_not_taken_up_from_an_older_checkpoint(tmp_path):
    path = tmp_path / "run.vtkhdf"
    mf.save(path, stopped(spherical("ssprk3"), path, 9, every_steps=3))
    assert mf.Checkpoint(path).previous.exists()
    content = path.read_bytes()
    with pytest.raises(ValueError, match=r"holds a run that is over \(stopped"):
        mf.resume(path)
    assert path.read_bytes() == content


@pytest.mark.parametrize("record", [{"a": np.arange(3)}, {1: 2}, {"a": {2, 3}}, "text", [1]])
def test_a_record_that_no_file_can_hold_is_refused_before_the_run(record, tmp_path):
    system, start, options = tokens()
    with pytest.raises(ValueError, match=r"^record is .*, wanted names and plain values$"):
        mf.solve(system, start, **options, record=record, checkpoint=mf.Checkpoint(tmp_path / "run.vtkhdf"))
    assert not list(tmp_path.iterdir())


def test_numpy_scalars_are_numbers(tmp_path):
    rule = mf.Checkpoint(tmp_path / "run.vtkhdf", np.float32(0.5), np.int64(3), np.float64(60))
    assert [type(value) for value in (rule.every_time, rule.every_steps, rule.every_seconds)] == [float, int, float]


class Backwards(mf.Attention):
    """A type of one's own, which must not come back as an Attention."""

    def velocity(self, *arguments, **options):
        return -super().velocity(*arguments, **options)


class OwnTokens(mf.ParticleSystem):
    pass


class OwnStepper(mf.SSP):
    pass


class Shaken(mf.VelocityModel):
    """A model that a file could not give back: of its seed only what it drew is left."""

    def __init__(self, seed):
        self.axis = np.random.default_rng(seed).normal(size=3)

    def velocity(self, points, measure, t=0.0):
        return np.cross(self.axis, points)


class ShakenTokens(mf.ParticleSystem):
    def __init__(self, *arguments):
        super().__init__(*arguments)


class ShakenStepper(mf.SSP):
    def __init__(self, steps):
        super().__init__(mf.EULER, dt_max=1 / steps)


@pytest.mark.parametrize(
    ("own", "system", "stepper"),
    [
        (Backwards, mf.ParticleSystem(Backwards(2.0)), None),
        (OwnTokens, OwnTokens(mf.Attention(2.0)), None),
        (OwnStepper, mf.ParticleSystem(mf.Attention(2.0)), OwnStepper(mf.EULER, dt_max=0.1)),
    ],
)
def test_types_of_ones_own_are_stored_and_must_be_given_to_go_on(own, system, stepper, tmp_path):
    path, run = tmp_path / "run.vtkhdf", (system, normalise(np.eye(3) + 0.3), {"t_end": 1.0, "stepper": stepper})
    whole = mf.solve(run[0], run[1], **run[2])
    stopped(run, path, 2)
    before = {name: (tmp_path / name).read_bytes() for name in os.listdir(tmp_path)}
    for kinds in ((), [After]):
        with pytest.raises(ValueError, match=rf"run\.vtkhdf cannot be read: it holds .* {own.__name__}, .* kinds=\[{own.__name__}\]$"):
            mf.resume(path, kinds=kinds)
    assert {name: (tmp_path / name).read_bytes() for name in os.listdir(tmp_path)} == before
    kept = read_checkpoint(path, [own])
    assert own in map(type, (kept.solution.system, kept.solution.model, kept.stepper))
    resumed = mf.resume(path, kinds=[own])
    assert digest(resumed) == digest(whole) and resumed.system == system
    assert mf.load(path, kinds=[own]) == resumed


def test_a_model_of_ones_own_is_not_the_one_it_comes_from():
    """The control of the test above: taken for an Attention, the run would go elsewhere."""
    start = normalise(np.eye(3) + 0.3)
    own, other = (mf.solve(mf.ParticleSystem(model(2.0)), start, 1.0) for model in (Backwards, mf.Attention))
    assert np.abs(own.tokens[-1] - other.tokens[-1]).max() > 0.1


@pytest.mark.parametrize(
    ("system", "stepper", "told"),
    [
        (mf.ParticleSystem(Shaken(2)), None, "^system.model is a Shaken without the attribute 'seed', wanted one for each"),
        (ShakenTokens(mf.Attention(2.0)), None, "^system is a ShakenTokens, whose constructor takes any arguments, wanted one with named"),
        (
            mf.ParticleSystem(mf.Attention(2.0)),
            ShakenStepper(10),
            "^stepper is a ShakenStepper without the attribute 'steps', wanted one for each",
        ),
    ],
)
def test_types_that_no_file_could_give_back_are_refused_before_the_first_step(system, stepper, told, tmp_path):
    def step(t, measure):
        raise AssertionError("not reached")

    with pytest.raises(ValueError, match=told):
        mf.solve(system, np.eye(3), 1.0, stepper=stepper, callbacks=[step], checkpoint=mf.Checkpoint(tmp_path / "new/own.vtkhdf"))
    assert not list(tmp_path.iterdir())


def test_without_links_the_one_before_is_kept_all_the_same(tmp_path, monkeypatch):
    def none(*_):
        raise PermissionError(errno.EPERM, os.strerror(errno.EPERM))

    monkeypatch.setattr(os, "link", none)
    path = tmp_path / "run.vtkhdf"
    stopped(spherical("ssprk3"), path, 9, every_steps=3)
    assert read_checkpoint(path).solution.times[-1] > read_checkpoint(mf.Checkpoint(path).previous).solution.times[-1]
    assert sorted(os.listdir(tmp_path)) == ["run.previous.vtkhdf", "run.vtkhdf"]


def test_two_checkpoints_are_left_when_the_third_fails(tmp_path, monkeypatch):
    path = tmp_path / "run.vtkhdf"
    stopped(spherical("ssprk3"), path, 4, every_steps=3)
    before = {name: (tmp_path / name).read_bytes() for name in os.listdir(tmp_path)}
    assert len(set(before.values())) == 2

    def full(*_):
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(OSError, match=r"run.vtkhdf cannot be written: No space left on device$"):
        mf.resume(path, callbacks=[After(2)])
    assert {name: (tmp_path / name).read_bytes() for name in os.listdir(tmp_path)} == before


def test_what_killed_writers_left_is_removed(tmp_path):
    done = subprocess.run([sys.executable, "-c", "import os; print(os.getpid())"], capture_output=True, text=True, check=True)
    stale, alive = (tmp_path / f".run.vtkhdf.{process}.part" for process in (int(done.stdout), os.getppid()))
    others = [tmp_path / ".other.vtkhdf.1.part", tmp_path / ".run.vtkhdf.part", tmp_path / ".run.vtkhdf.x.part"]
    for path in (stale, alive, *others):
        path.write_bytes(b"half")
    stopped(spherical("ssprk3"), tmp_path / "run.vtkhdf", 2)
    assert not stale.exists() and all(path.exists() for path in (alive, *others))


def overflowing():
    """Tokens that draw together until e^{beta <x,y>} / n exceeds double precision."""
    angles = np.linspace(0, 1, 24)
    attention = mf.Attention(711.0, value=1e-307 * np.eye(2), normalised=False)
    return mf.ParticleSystem(attention), np.stack([np.cos(angles), np.sin(angles)], axis=1), {"t_end": 50.0}


def test_a_field_that_overflows_ends_the_run_with_what_was_reached(tmp_path):
    system, start, options = overflowing()
    path = tmp_path / "run.vtkhdf"
    with pytest.raises(mf.SolveError, match=r"log_scale.*, in the step from t = ") as failed:
        mf.solve(system, start, **options, checkpoint=mf.Checkpoint(path, every_steps=10))
    assert failed.value.solution.times[-1] > 1 and mf.load(path) == failed.value.solution
    assert mf.load(path).status.startswith("failed: ") and read_checkpoint(mf.Checkpoint(path).previous)
    with pytest.raises(ValueError, match=r"holds a run that is over \(failed: "):
        mf.resume(path)


def test_missing_folders_are_made_before_the_first_step(tmp_path):
    system, start, options = spherical("ssprk3")
    mf.solve(system, start, **options, checkpoint=mf.Checkpoint(tmp_path / "new/folder/run.vtkhdf"))
    assert mf.load(tmp_path / "new/folder/run.vtkhdf").status == "done"
    (tmp_path / "file").write_text("mine")
    with pytest.raises(OSError, match="file"):
        mf.solve(system, start, **options, callbacks=[After(-1)], checkpoint=mf.Checkpoint(tmp_path / "file/run.vtkhdf"))


def test_mass_that_drifts_ends_the_run():
    class Leaking(mf.ParticleSystem):
        lost = 0.0

        def measure(self, state):
            type(self).lost += 1e-11
            tokens = super().measure(state)
            return mf.Measure(tokens.points, tokens.masses * (1 - self.lost))

    system = Leaking(mf.Attention(2.0))
    with pytest.raises(mf.SolveError, match=r"the mass is 0\.99\d* at t = .* wanted .* within 1e-10"):
        mf.solve(system, mf.sample(mf.Uniform(3), 20, seed=0), 50.0)
    assert mf.solve(mf.ParticleSystem(mf.Attention(2.0)), mf.sample(mf.Uniform(3), 20, seed=0), 50.0).status == "done"


# -- the command line

CASE = """
t_end = 12.0
save_every = 0.2
[mesh]
kind = "circle"
n = 256
[attention]
beta = 9.0
[start]
kind = "von_mises_fisher"
mean = [1, 0]
kappa = 1.0
[particles]
count = 40
seed = 1
"""


@pytest.fixture(scope="module")
def uninterrupted(tmp_path_factory):
    folder = tmp_path_factory.mktemp("whole")
    (folder / "case.toml").write_text(CASE)
    with pytest.raises(SystemExit) as ended:
        main(["run", str(folder / "case.toml"), "--out", str(folder / "out")])
    assert ended.value.code == 0
    return folder


def command(*arguments):
    return [sys.executable, "-c", "from meanfield_pde.cli import main; main()", *map(str, arguments)]


def interrupted(case, out, number):
    """A run that got a signal once it had been writing; its exit code and what it said."""
    process = subprocess.Popen(
        command("run", case, "--out", out, "--checkpoint-every", "20steps"), stderr=subprocess.PIPE, stdout=subprocess.DEVNULL, text=True
    )
    while not (out / "limit.vtkhdf").exists() and process.poll() is None:
        time.sleep(0.01)
    process.send_signal(number)
    said = process.communicate(timeout=60)[1]
    return process.returncode, said


def times_in(pvd):
    return [float(t) for t in re.findall(r'timestep="([^"]+)"', pvd.read_text())]


@pytest.mark.slow
@pytest.mark.parametrize(("number", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
def test_signals(number, code, uninterrupted, tmp_path, capsys):
    out = tmp_path / "out"
    returned, said = interrupted(uninterrupted / "case.toml", out, number)
    assert returned == code and said.count("\n") == 1 and "go on with: meanfield-pde resume" in said, said
    assert mf.load(out / "limit.vtkhdf").status == "running" and not (out / "overview.png").exists()
    with pytest.raises(SystemExit) as ended:
        main(["resume", str(out)])
    assert ended.value.code == 0, capsys.readouterr().err
    for name in ("limit", "tokens"):
        assert digest(mf.load(out / f"{name}.vtkhdf")) == digest(mf.load(uninterrupted / f"out/{name}.vtkhdf"))
    assert (out / "summary.csv").read_bytes() == (uninterrupted / "out/summary.csv").read_bytes()
    times = times_in(out / "limit.pvd")
    assert times == times_in(uninterrupted / "out/limit.pvd") and (np.diff(times) > 0).all() and len(times) == 61


ENDLESS = """
import signal, sys, time
from test_checkpoints import spherical
import meanfield_pde as mf
from meanfield_pde.cases.stopping import stopping

def endless(t, measure):
    print("step", flush=True)
    while not stop.code:
        time.sleep(0.01)
    print("asked", flush=True)
    time.sleep(60)

system, start, options = spherical("ssprk3")
with stopping(None) as stop:
    mf.solve(system, start, **options, callbacks=[endless, stop], checkpoint=mf.Checkpoint(sys.argv[1]))
"""


@pytest.mark.parametrize("second", [signal.SIGINT, signal.SIGTERM])
def test_a_second_signal_ends_at_once(second, tmp_path):
    """In a step that would take a minute."""
    program = [sys.executable, "-c", ENDLESS, str(tmp_path / "run.vtkhdf")]
    with subprocess.Popen(program, stdout=subprocess.PIPE, text=True, cwd=HERE) as process:
        assert process.stdout.readline() == "step\n"
        process.send_signal(signal.SIGTERM)
        assert process.stdout.readline() == "asked\n"
        process.send_signal(second)
        assert process.wait(timeout=20) == -second
    assert read_checkpoint(tmp_path / "run.vtkhdf").solution.status == "running"


def test_wall_time_and_other_cases(uninterrupted, tmp_path, capsys):
    out = tmp_path / "out"
    with pytest.raises(SystemExit) as ended:
        main(["run", str(uninterrupted / "case.toml"), "--out", str(out), "--wall-time", "0.2"])
    assert ended.value.code == 0 and "wall time" in capsys.readouterr().err
    (tmp_path / "other.toml").write_text(CASE.replace("beta = 9.0", "beta = 8.0"))
    with pytest.raises(SystemExit) as ended:
        main(["resume", str(out), "--case", str(tmp_path / "other.toml")])
    assert ended.value.code == 2 and "attention: {'beta': 9.0} in the run, {'beta': 8.0} in" in capsys.readouterr().err
    with pytest.raises(SystemExit) as ended:
        main(["resume", str(tmp_path)])
    assert ended.value.code == 2 and "holds no run" in capsys.readouterr().err
    for text in ("often", "0s", "2.5steps", ""):
        with pytest.raises(SystemExit) as ended:
            main(["run", str(tmp_path / "other.toml"), "--out", str(tmp_path / "none"), "--checkpoint-every", text])
        assert ended.value.code == 2 and not (tmp_path / "none").exists()
    assert json.dumps(mf.load(out / "limit.vtkhdf").record["case"])


def ends(code, capsys, *arguments):
    """What a command that ends with this exit code says on stderr."""
    capsys.readouterr()
    with pytest.raises(SystemExit) as ended:
        main([str(argument) for argument in arguments])
    said = capsys.readouterr().err
    assert ended.value.code == code, said
    return said


SMALL = CASE.replace("t_end = 12.0\nsave_every = 0.2", "t_end = 0.2\nsave_every = 0.1").replace("n = 256", "n = 24")
FILES = SMALL.replace('kind = "circle"\nn = 24', 'file = "ring.vtu"').replace(
    'kind = "von_mises_fisher"\nmean = [1, 0]\nkappa = 1.0', 'kind = "tokens"\nfile = "start.csv"'
)
FILES = FILES[: FILES.index("count")]


def written(folder, **cases):
    mf.write_mesh(folder / "ring.vtu", mf.circle(24))
    (folder / "start.csv").write_text("1,0\n0,1\n0.6,0.8\n")
    for name, text in cases.items():
        (folder / f"{name}.toml").write_text(text)
    return folder


def test_an_old_run_goes_only_when_the_new_one_has_begun(tmp_path, capsys, monkeypatch):
    folder, out = written(tmp_path, case=SMALL, large=SMALL.replace("beta = 9.0", "beta = 900\nnormalised = false")), tmp_path / "out"
    ends(0, capsys, "run", folder / "case.toml", "--out", out)
    before = {name: (out / name).read_bytes() for name in ("limit.vtkhdf", "tokens.vtkhdf")}
    assert "use log_scale" in ends(2, capsys, "run", folder / "large.toml", "--out", out, "--overwrite")
    assert {name: (out / name).read_bytes() for name in before} == before
    assert "use log_scale" in ends(2, capsys, "run", folder / "large.toml", "--out", tmp_path / "new")
    assert not (tmp_path / "new").exists(), "bad input makes no folder"
    limit_only = SMALL[: SMALL.index("[particles]")].replace("t_end = 0.2", "t_end = 0.3")
    (folder / "limit.toml").write_text(limit_only)
    ends(0, capsys, "run", folder / "limit.toml", "--out", out, "--overwrite")
    assert mf.load(out / "limit.vtkhdf").times[-1] == 0.3 and not (out / "tokens.vtkhdf").exists()


def test_the_parts_of_a_run_belong_together(tmp_path, capsys):
    folder, out = written(tmp_path, case=SMALL, other=SMALL.replace("9.0", "8.0")), tmp_path / "out"
    for name in ("case", "other"):
        ends(0, capsys, "run", folder / f"{name}.toml", "--out", tmp_path / name)
    out = tmp_path / "case"
    kept = (out / "tokens.vtkhdf").read_bytes()
    (out / "tokens.vtkhdf").write_bytes((tmp_path / "other/tokens.vtkhdf").read_bytes())
    for command in ("compare", "resume", "info", "plot"):
        assert "are runs of different cases, wanted one case" in ends(2, capsys, command, out)
    (out / "tokens.vtkhdf").write_bytes((out / "limit.vtkhdf").read_bytes())
    for command in ("compare", "resume", "info", "plot"):
        assert "tokens.vtkhdf holds a run of kind density, wanted tokens" in ends(2, capsys, command, out)
    (out / "tokens.vtkhdf").write_bytes(kept)
    ends(0, capsys, "compare", out)


def test_files_of_a_case_may_go_but_not_change(tmp_path, capsys):
    """The mesh is in the checkpoint; the tokens' start is read when they begin."""
    folder, out = written(tmp_path, case=FILES), tmp_path / "out"
    ends(0, capsys, "run", folder / "case.toml", "--out", tmp_path / "whole")
    assert "wall time" in ends(0, capsys, "run", folder / "case.toml", "--out", out, "--wall-time", "1e-9")
    assert not (out / "tokens.vtkhdf").exists()
    (out / "limit.vtkhdf").rename(out / "limit.previous.vtkhdf")
    assert "already holds limit.previous.vtkhdf" in ends(2, capsys, "run", folder / "case.toml", "--out", out)
    (folder / "ring.vtu").unlink()
    start = (folder / "start.csv").read_text()
    (folder / "start.csv").write_text(start.replace("1,0", "-1,0"))
    assert "start.csv has SHA-256 " in ends(2, capsys, "resume", out)
    (folder / "start.csv").write_text(start)
    assert "wall time" in ends(0, capsys, "resume", out, "--wall-time", "1e-9")
    ends(0, capsys, "resume", out)
    for name in ("limit", "tokens"):
        assert digest(mf.load(out / f"{name}.vtkhdf")) == digest(mf.load(tmp_path / f"whole/{name}.vtkhdf"))


@pytest.mark.slow
def test_a_run_that_a_speed_ends_leaves_no_checkpoint(tmp_path, capsys):
    case = "stop_speed = 0.1\n" + SMALL.replace("t_end = 0.2", "t_end = 50.0")
    folder, out = written(tmp_path, case=case), tmp_path / "out"
    ends(0, capsys, "run", folder / "case.toml", "--out", out, "--checkpoint-every", "5steps")
    assert not list(out.glob("*previous*")) and "metastable" in mf.load(out / "limit.vtkhdf").status
    before = digest(mf.load(out / "limit.vtkhdf"))
    ends(0, capsys, "resume", out)
    assert digest(mf.load(out / "limit.vtkhdf")) == before
