"""Checkpoints: a run goes on bit for bit wherever and however it was stopped; a damaged file is never taken for a whole one."""

import hashlib
import json
import os
import re
import signal
import subprocess
import sys
import time

import numpy as np
import pytest

import meanfield_pde as mf
from meanfield_pde.checkpoints import read_checkpoint
from meanfield_pde.cli import main

HUMPS = mf.Mixture([mf.VonMisesFisher((np.cos(a), np.sin(a)), 30.0) for a in (0.0, 1.35, 3.6)], [0.3, 0.3, 0.4])


def forming():
    """Humps on the circle that become atoms, which go on as an ODE: SSPRK3, then DOP853."""
    mesh = mf.circle(64)
    return mf.MeanFieldPDE(mesh, mf.Attention(9.0)), mf.project(mesh, HUMPS), {"t_end": 30.0, "save_every": 0.7}


def spherical(stepper):
    mesh = mf.icosahedral(1)
    start = mf.project(mesh, mf.VonMisesFisher((1, 2, 2), 2.0))
    return mf.MeanFieldPDE(mesh, mf.Attention(3.0)), start, {"t_end": 5.0, "save_every": 0.8, "stepper": stepper}


def tokens():
    return mf.ParticleSystem(mf.Attention(4.0)), mf.sample(mf.VonMisesFisher((0, 0, 1), 1.0), 30, seed=2), {"t_end": 4.0, "save_every": 0.3}


RUNS = {
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
    parts = [solution.times, np.asarray(solution.masses), np.asarray(solution.history), np.asarray(solution.events)]
    if solution.positions is not None:
        parts.append(np.asarray(solution.positions))
    parts += [array for atoms in solution.atom_states for array in (atoms.points, atoms.masses)]
    return hashlib.sha256(b"".join(np.ascontiguousarray(part).tobytes() for part in parts)).hexdigest()


def stopped(run, path, steps, **rule):
    system, start, options = run
    return mf.solve(system, start, **options, callbacks=[After(steps)], checkpoint=mf.Checkpoint(path, **rule))


@pytest.mark.parametrize("name", RUNS)
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
        assert resumed.record["points evaluated"] == whole.record["points evaluated"]
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


def test_stopped_again_and_again(tmp_path):
    run = forming()
    whole = mf.solve(run[0], run[1], **run[2])
    stopped(run, tmp_path / "run.vtkhdf", 10)
    for _ in range(4):
        mf.resume(tmp_path / "run.vtkhdf", callbacks=[After(60)])
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


@pytest.mark.parametrize(("rule", "least"), [({"every_steps": 4}, 4), ({"every_time": 0.31}, 3), ({"every_seconds": 1e-9}, 2)])
def test_rules(rule, least, tmp_path, monkeypatch):
    """Checkpoints come as often as asked for; the file is readable at every step, and the one before is kept."""
    import meanfield_pde.checkpoints as module

    monkeypatch.setattr(module, "LARGEST_SHARE", 0.0)
    seen, path = [], tmp_path / "run.vtkhdf"

    def look(t, measure):
        if path.exists():
            now = mf.load(path)
            if not seen or now.times[-1] > seen[-1]:
                seen.append(float(now.times[-1]))
            assert now.status == "running" and now.times[-1] < t

    system, start, options = spherical("ssprk3")
    solution = mf.solve(system, start, **options, callbacks=[look], checkpoint=mf.Checkpoint(path, **rule))
    assert len(seen) >= least and mf.load(path) == solution
    assert not mf.Checkpoint(path).previous.exists()


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
        def begin(self, system, state, t, t_end):
            raise AssertionError("not reached")

        def describe(self):
            return "own"

    with pytest.raises(ValueError, match="stepper is a Own, wanted one of this package"):
        mf.solve(mf.ParticleSystem(mf.Attention(1.0)), np.eye(3), 1.0, stepper=Own(), checkpoint=mf.Checkpoint(tmp_path / "own.vtkhdf"))


def test_a_file_that_was_tampered_with_is_refused(tmp_path):
    """Written with sums that are not those of its state: HDF5 finds nothing wrong with it."""
    from meanfield_pde.results import read_memory, save

    path = tmp_path / "run.vtkhdf"
    stopped(spherical("ssprk3"), path, 3)
    solution, memory = mf.load(path), read_memory(path)
    for name in ("state", "mesh", "record"):
        save(path, solution, memory | {"digests": memory["digests"] | {name: "0" * 64}})
        with pytest.raises(ValueError, match=f"is no whole checkpoint: its {name} differ"):
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
            return mf.Measure(state.points, state.masses * (1 - self.lost))

    system = Leaking(mf.Attention(2.0))
    with pytest.raises(mf.SolveError, match=r"the mass is 0\.99\d* at t = .* wanted .* within 1e-10"):
        mf.solve(system, mf.sample(mf.Uniform(3), 20, seed=0), 50.0)
    assert mf.solve(mf.ParticleSystem(mf.Attention(2.0)), mf.sample(mf.Uniform(3), 20, seed=0), 50.0).status == "done"


# -- the command line

CASE = """
t_end = 12.0
save_every = 0.05
[mesh]
kind = "circle"
n = 512
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


def interrupted(case, out, number, again=False):
    """A run that got a signal once it had been writing; its exit code and what it said."""
    process = subprocess.Popen(
        command("run", case, "--out", out, "--checkpoint-every", "20steps"), stderr=subprocess.PIPE, stdout=subprocess.DEVNULL, text=True
    )
    while not (out / "limit.vtkhdf").exists() and process.poll() is None:
        time.sleep(0.01)
    process.send_signal(number)
    if again:
        process.send_signal(number)
    said = process.communicate(timeout=60)[1]
    return process.returncode, said


def times_in(pvd):
    return [float(t) for t in re.findall(r'timestep="([^"]+)"', pvd.read_text())]


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
    assert times == times_in(uninterrupted / "out/limit.pvd") and (np.diff(times) > 0).all() and len(times) == 241


def test_a_second_signal_ends_at_once(uninterrupted, tmp_path):
    returned, said = interrupted(uninterrupted / "case.toml", tmp_path / "out", signal.SIGTERM, again=True)
    assert returned in (-signal.SIGTERM, 143), said
    assert read_checkpoint(tmp_path / "out/limit.vtkhdf").solution.status == "running"


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
