"""Inputs that broke programs of neighbouring kinds, where no other file tries them as a whole."""

import hashlib
import os
import re
import signal
import subprocess
import sys
import time

import numpy as np
import pytest

import meanfield_pde as mf
from meanfield_pde.cases.case import make_case
from meanfield_pde.cases.stopping import stopping
from meanfield_pde.cli import main
from meanfield_pde.sphere import normalise, tangent
from meanfield_pde.systems import density
from meanfield_pde.systems.atoms import update_atoms


def random_points(n, seed=0):
    return normalise(np.random.default_rng(seed).normal(size=(n, 3)))


def ended(*arguments):
    """The exit code of a command in this process."""
    with pytest.raises(SystemExit) as end:
        main([str(argument) for argument in arguments])
    return end.value.code


FAMILIES = {
    "circle": lambda: mf.circle(64),
    "icosahedral": lambda: mf.icosahedral(2),
    "triangles": lambda: mf.icosahedral(2, cells="triangles"),
    "cubed sphere": lambda: mf.cubed_sphere(6),
    "random voronoi": lambda: mf.voronoi(random_points(150)),
}


def long_run(family):
    mesh = FAMILIES[family]()
    e = np.eye(mesh.dimension)
    law = mf.Mixture([mf.VonMisesFisher(e[0], 20.0), mf.VonMisesFisher(e[1], 10.0)], [0.6, 0.4])
    return mf.solve(mf.MeanFieldPDE(mesh, mf.Attention(beta=9.0)), mf.project(mesh, law), 10.0, save_every=0.5)


def mass_drifts(solution):
    """The largest of the steps, and of the outputs."""
    return np.abs(solution.history.mass - 1).max(), max(abs(solution.measure(k).total - 1) for k in range(21))


@pytest.mark.slow
@pytest.mark.parametrize("family", FAMILIES)
def test_one_run_on_every_mesh(family):
    """Mass was kept on one kind of grid and drifted on another; here in cells and atoms, which form on the way."""
    solution = long_run(family)
    assert max(mass_drifts(solution)) <= 1e-13
    assert len(solution.atoms(-1)) > 0


@pytest.mark.parametrize(("kind", "share"), [("formed", 1e-12), ("absorbed", 1e-14)])
def test_mass_that_atoms_lose_shows_in_the_history(kind, share, monkeypatch):
    """The control of the test above: atoms lose that share when some form, or each time one absorbs."""

    def leaking(*arguments):
        cells, atoms, events = update_atoms(*arguments)
        lost = share if kind in {event.kind for event in events} else 0.0
        return cells, mf.Measure.trusted(atoms.points, atoms.masses * (1 - lost)), events

    monkeypatch.setattr(density, "update_atoms", leaking)
    drifts = mass_drifts(long_run("circle"))
    assert min(drifts) > 1e-12


WHOLE_FIELD = """
import sys, meanfield_pde as mf
mesh = mf.icosahedral(int(sys.argv[1]))
start = mf.project(mesh, mf.VonMisesFisher((1, 2, 2), 3.0))
for method, end in (("spectral", 0.05), ("direct", 1e-6)):
    solution = mf.solve(mf.MeanFieldPDE(mesh, mf.Attention(4.0), method=method), start, end, stepper="euler")
    print(abs(solution.history.mass - 1).max(), len(solution.history))
print(next(int(line.split()[1]) * 1024 for line in open("/proc/self/status") if line.startswith("VmHWM")))
"""


@pytest.mark.slow
@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="peak memory as Linux counts it")
@pytest.mark.parametrize(("level", "most"), [(5, 6e8), pytest.param(6, 1e9, marks=pytest.mark.nightly)])
def test_the_integral_needs_no_matrix_of_pairs_in_memory(level, most):
    """An N x N matrix stood for the integral: 13.4 GB for 40 962 cells, .84 GB for 10 242."""
    ran = subprocess.run([sys.executable, "-c", WHOLE_FIELD, str(level)], capture_output=True, text=True, check=True)
    printed = ran.stdout.split()
    assert max(float(printed[0]), float(printed[2])) <= 1e-13
    assert int(printed[-1]) <= most < 8 * (10 * 4**level + 2) ** 2


@pytest.mark.parametrize("method", ["direct", "spectral"])
@pytest.mark.parametrize("normalised", [True, False])
def test_the_integral_is_that_of_the_matrix(method, normalised):
    """The same integral with the matrix written out, where there is room for it."""
    mesh, beta = mf.icosahedral(3), 4.0
    measure = mf.Measure(mesh.centers, mf.project(mesh, mf.VonMisesFisher((1, 2, 2), 3.0)) * mesh.areas)
    weights = np.exp(beta * (mesh.centers @ mesh.centers.T)) * measure.masses
    field = weights @ mesh.centers / (weights.sum(axis=1, keepdims=True) if normalised else 1)
    velocity = mf.Attention(beta, normalised=normalised).velocity(mesh.centers, measure, method=method)
    expected = tangent(mesh.centers, field)
    assert np.abs(velocity - expected).max() <= 1e-10 * np.abs(expected).max()


@pytest.mark.parametrize("kappa", [0, 1e-9, 800, 1e5])
@pytest.mark.parametrize("make", [lambda: mf.circle(64), lambda: mf.icosahedral(2)])
def test_runs_at_extreme_concentrations(make, kappa):
    """Large concentrations overflowed, in laws and in weights: whole runs at beta = 800 stay finite and keep their mass."""
    mesh = make()
    law = mf.VonMisesFisher(np.eye(mesh.dimension)[0], kappa)
    start = mf.project(mesh, law)
    if kappa == 0:
        np.testing.assert_array_equal(start, mf.project(mesh, mf.Uniform(mesh.dimension)))
    attention = mf.Attention(beta=800.0)
    limit = mf.solve(mf.MeanFieldPDE(mesh, attention), start, 0.5)
    tokens = mf.solve(mf.ParticleSystem(attention), mf.sample(law, 50, seed=0), 0.5)
    for solution in (limit, tokens):
        assert abs(solution.measure(-1).total - 1) <= 1e-13
        assert np.isfinite(solution.history.log_energy).all() and np.isfinite(solution.measure(-1).points).all()


CASE = """
t_end = 0.6
save_every = 0.04
[mesh]
kind = "circle"
n = 24
[attention]
beta = 2.0
value = [[1.0, 0.5], [0.0, 1.0]]
[start]
kind = "von_mises_fisher"
mean = [1, 0]
kappa = 1.0
"""
RIGHT = mf.Attention.field


class Broken(mf.Field):
    """The field of an attention at time t, but for its velocity."""

    def __init__(self, right, t, velocity):
        self.measure, self.speed_bound, self.energy = right.measure, right.speed_bound, right.energy
        self.right, self.t, self.broken = right, t, velocity

    def velocity(self, points):
        return self.broken(self.right, points, self.t)

    def weighing(self, weights):
        return Broken(self.right.weighing(weights), self.t, self.broken)


def turning_nan(right, points, t):
    velocity = right.velocity(points)
    return velocity if t <= 0.1 else np.where(points[:, :1] < -0.9, np.nan, velocity)


def running_away(right, points, t):
    return np.stack([-points[:, 1], points[:, 0]], axis=1) * (1 + points[:, :1]) / max(abs(0.1 - t), 1e-30)


@pytest.mark.parametrize(
    ("velocity", "cfl", "message"),
    [
        (turning_nan, 0.1, r"the rate of cell \d+ is nan at t = 0\.1\d*, wanted"),
        (running_away, 0.45, r"the step at t = 0\.(1|0999)\d* fell to .* and is still too long for cell \d+, wanted"),
    ],
)
@pytest.mark.filterwarnings("ignore::meanfield_pde.PinnedWarning")
def test_a_command_whose_run_cannot_go_on(velocity, cfl, message, tmp_path, capsys, monkeypatch):
    """Numbers that are none were taken for short steps, or run on with for hours; tiny steps hung: exit code 3, and the last good state."""
    (tmp_path / "case.toml").write_text(CASE + f"[solver]\ncfl = {cfl}\n")  # steps that end between outputs
    assert ended("run", tmp_path / "case.toml", "--out", tmp_path / "right") == 0
    capsys.readouterr()

    def field(self, measure, t=0.0, method="auto"):
        return Broken(RIGHT(self, measure, t, method), t, velocity)

    monkeypatch.setattr(mf.Attention, "field", field)
    with np.errstate(invalid="ignore"):
        assert ended("run", tmp_path / "case.toml", "--out", tmp_path / "out") == 3
    said = capsys.readouterr().err
    assert said.count("\n") == 1 and re.search(message, said), said
    reached = mf.load(tmp_path / "out/limit.vtkhdf")
    assert re.search(message, reached.status) and np.isfinite(reached.masses).all()
    assert reached.times[:3].tolist() == [0.0, 0.04, 0.08]
    assert 0.1 - 2 * reached.history.dt.max() < reached.times[-1] <= 0.1 + 1e-9
    case, seen = make_case(reached.record["case"]), {}
    part, look = case.limit, [lambda t, measure: seen.__setitem__(t, measure.masses.copy())]
    with np.errstate(invalid="ignore"), pytest.raises(mf.SolveError, match=message):
        mf.solve(part.system, part.start, case.t_end, save_at=case.times, stepper=part.stepper, callbacks=look)
    last = reached.measure(-1).masses
    assert np.array_equal(last, seen[reached.times[-1]])
    assert not np.array_equal(last, seen[0.08])  # the control: the state of the last output
    if velocity is turning_nan:
        assert (reached.masses[:3] == mf.load(tmp_path / "right/limit.vtkhdf").masses[:3]).all()


REPLAY = """
import hashlib, sys
import meanfield_pde as mf
from meanfield_pde.cases.case import make_case
solution = mf.load(sys.argv[1])
case = make_case(solution.record["case"])
part = case.tokens
again = mf.solve(part.system, part.start, case.t_end, save_at=case.times, stepper=part.stepper)
print((again.tokens == solution.tokens[:]).all(), (again.history == solution.history[:]).all(), again.record["threads"])
"""


@pytest.mark.slow
def test_a_run_is_replayed_from_its_record(tmp_path, capsys):
    """No seed was recorded, and nothing could be repeated: the results file alone gives the tokens again, with 1 and with 2 threads."""
    text = CASE + "[particles]\ncount = 300\nseed = 11\n"
    (tmp_path / "case.toml").write_text(text.replace("seed = 11\n", ""))
    assert ended("run", tmp_path / "case.toml", "--out", tmp_path / "none") == 2
    assert "seed" in capsys.readouterr().err and not (tmp_path / "none").exists()
    (tmp_path / "case.toml").write_text(text)
    assert ended("run", tmp_path / "case.toml", "--out", tmp_path / "out") == 0
    for threads in ("1", "2"):
        environment = os.environ | {"OMP_NUM_THREADS": threads}
        arguments = [sys.executable, "-c", REPLAY, str(tmp_path / "out/tokens.vtkhdf")]
        printed = subprocess.run(arguments, env=environment, capture_output=True, text=True, check=True).stdout
        assert printed.split() == ["True", "True", threads]


@pytest.mark.parametrize(
    ("spoilt", "message"),
    [
        (lambda f: np.where(np.arange(12) >= 3, np.nan, f), r"^start\[3\] is nan, wanted a finite number$"),
        (lambda f: np.where(np.arange(12) == 7, -0.5, f), r"^start\[7\] is -0.5, wanted a number >= 0$"),
        (lambda f: 0 * f, r"^start has mass 0, wanted 1"),
        (lambda f: f[1:], r"^start has shape \(11,\), wanted \(12,\)$"),
    ],
)
def test_a_bad_start_makes_no_file(spoilt, message, tmp_path):
    """Starts that are none failed after hours or never: they are refused before the first checkpoint is made."""
    mesh = mf.circle(12)
    start = mf.project(mesh, mf.VonMisesFisher((1, 0), 1.0))
    system, rule = mf.MeanFieldPDE(mesh, mf.Attention(2.0)), mf.Checkpoint(tmp_path / "run.vtkhdf", every_steps=1)
    with pytest.raises(ValueError, match=message):
        mf.solve(system, spoilt(start), 1.0, checkpoint=rule)
    assert not list(tmp_path.iterdir())
    mf.solve(system, start, 1.0, checkpoint=rule)
    assert rule.path.exists()  # the control


def test_an_interrupt_ends_the_run_within_a_step(tmp_path):
    """Ctrl-C lost the results: the step under way is the last, its state is in the checkpoint, and the run goes on from there."""
    mesh = mf.circle(24)
    system, start = mf.MeanFieldPDE(mesh, mf.Attention(2.0)), mf.project(mesh, mf.VonMisesFisher((1, 0), 1.0))
    seen = []

    def interrupting(t, measure):
        seen.append(t)
        if len(seen) == 4:
            os.kill(os.getpid(), signal.SIGINT)

    path = tmp_path / "run.vtkhdf"
    before = signal.getsignal(signal.SIGINT)
    with stopping(None) as stop:
        solution = mf.solve(system, start, 3.0, callbacks=[interrupting, stop], checkpoint=mf.Checkpoint(path))
    assert stop.code == 130 and len(seen) <= 5 and signal.getsignal(signal.SIGINT) is before
    kept = mf.load(path)
    assert kept.times[-1] == solution.times[-1] == seen[-1] and kept.status == "running"
    resumed, whole = mf.resume(path), mf.solve(system, start, 3.0)
    assert (resumed.masses == whole.masses).all() and (resumed.history == whole.history).all()


def test_a_second_interrupt_ends_the_process(tmp_path):
    """A step of the large mesh takes long: the second Ctrl-C does not wait for it."""
    script = (
        "import os, signal, time\n"
        "from meanfield_pde.cases.stopping import stopping\n"
        "with stopping(None) as stop:\n"
        "    print('ready', flush=True)\n"
        "    while stop.code is None: time.sleep(.01)\n"
        "    print(stop.code, flush=True)\n"
        "    time.sleep(60)\n"
    )
    with subprocess.Popen([sys.executable, "-c", script], stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout.readline() == "ready\n"
        process.send_signal(signal.SIGINT)
        assert process.stdout.readline() == "130\n"
        began = time.monotonic()
        process.send_signal(signal.SIGINT)
        assert process.wait(timeout=50) == -signal.SIGINT  # 130 to a shell
        assert time.monotonic() - began < 5


def test_a_series_of_a_command_has_the_model_s_times(tmp_path):
    """A viewer showed the numbers of the frames: asked for 0, .1, .35, the series of a whole command says so."""
    text = CASE.replace("save_every = 0.04", "save_at = [0, 0.1, 0.35]").replace("t_end = 0.6", "t_end = 0.35")
    (tmp_path / "case.toml").write_text(text)
    assert ended("run", tmp_path / "case.toml", "--out", tmp_path / "out") == 0
    times = re.findall(r'timestep="([^"]+)"', (tmp_path / "out/limit.pvd").read_text())
    assert times == ["0", "0.1", "0.35"]


COMPARING = """
import meanfield_pde as mf
law, attention, mesh = mf.VonMisesFisher((1, 2, 2), 2.0), mf.Attention(2.0), mf.icosahedral(5)
limit = mf.solve(mf.MeanFieldPDE(mesh, attention), mf.project(mesh, law), 1e-3, stepper="euler")
system = mf.ParticleSystem(attention, method="spectral")
tokens = mf.solve(system, mf.sample(law, 100_000, seed=0), 1e-3, save_at=[1e-3], stepper="euler")
print(mf.compare(limit, tokens))
print(next(int(line.split()[1]) * 1024 for line in open("/proc/self/status") if line.startswith("VmHWM")))
"""


@pytest.mark.slow
@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="peak memory as Linux counts it")
def test_many_tokens_are_compared_in_bounded_memory():
    """A dense plan of this size does not fit: a comparison says what it did instead, within 2 GB."""
    printed = subprocess.run([sys.executable, "-c", COMPARING], capture_output=True, text=True, check=True).stdout
    assert "10242 x 100000 points are taken after aggregation" in printed and "W error" in printed
    assert int(printed.split()[-1]) <= 2e9 < 8 * 10_242 * 100_000


def tokens_from(table, tmp_path, d=3):
    rows = mf.sample(mf.VonMisesFisher(np.eye(d)[0], 1.0), 12, seed=3)
    np.savetxt(tmp_path / "mine.csv", rows, delimiter=",", fmt="%.17g")
    start = {"kind": "von_mises_fisher", "mean": [0, 0, 1], "kappa": 2.0}
    mesh = {"kind": "icosahedral", "level": 1}
    return rows, make_case({"t_end": 0.1, "mesh": mesh, "start": start, "particles": table}, tmp_path)


def test_tokens_from_a_file_beside_a_law(tmp_path):
    rows, case = tokens_from({"file": "mine.csv"}, tmp_path)
    assert np.abs(case.tokens.start.points - rows).max() < 1e-15 and np.allclose(case.tokens.start.masses, 1 / 12)
    law = mf.project(case.limit.system.mesh, mf.VonMisesFisher((0, 0, 1), 2.0))
    assert np.array_equal(case.limit.start.averages, law)
    assert case.files == {"mine.csv": hashlib.sha256((tmp_path / "mine.csv").read_bytes()).hexdigest()}
    tokens = mf.run(case, tmp_path / "out")[1]
    assert np.abs(tokens.measure(0).points - rows).max() < 1e-15


@pytest.mark.parametrize(
    ("table", "d", "match"),
    [
        ({"file": "mine.csv", "count": 4}, 3, r"^particles.count is given beside particles.file, wanted one"),
        ({"file": "mine.csv"}, 2, r"^particles.file: points lie in R\^2, the start in R\^3$"),
        ({"count": 4, "seed": 1, "weighted": True}, 3, r"^particles.weighted is given without particles.file"),
        ({"file": "none.csv"}, 3, r"none.csv"),
    ],
)
def test_bad_tokens_beside_a_law(tmp_path, table, d, match):
    with pytest.raises((ValueError, OSError), match=match):
        tokens_from(table, tmp_path, d)
