"""The contract of a velocity model: fields that analyse once, time as an argument, models of one's own, the uniform law at rest."""

import json
import os
import signal
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

import fields
import numpy as np
import pytest

import meanfield_pde as mf
from meanfield_pde.integrals import harmonics
from meanfield_pde.sphere import tangent

# --- a model from outside the package: one class, with a name in files ---


@dataclass(frozen=True)
class Turning(mf.VelocityModel):
    """A constant rotation of the circle beside the pull of the mean: what a user writes."""

    speed: float = 1.0
    pull: float = 0.5

    def velocity(self, points, measure, t=0.0):
        turned = points @ np.array([[0.0, self.speed], [-self.speed, 0.0]])
        return turned + self.pull * tangent(points, np.broadcast_to(measure.mean(), points.shape))


class Plain:
    """The least a model needs."""

    def __init__(self, speed=1.0):
        self.speed = speed

    def velocity(self, points, measure, t=0.0):
        return self.speed * (1 + t) * tangent(points, np.broadcast_to(measure.mean(), points.shape))

    def __eq__(self, other):
        return isinstance(other, Plain) and self.speed == other.speed

    __hash__ = None


CASE = {
    "t_end": 1.0,
    "save_every": 0.5,
    "mesh": {"kind": "circle", "n": 64},
    "attention": {"kind": "Turning", "speed": 2.0},
    "start": {"kind": "von_mises_fisher", "mean": [0.6, 0.8], "kappa": 2.0},
    "particles": {"count": 40, "seed": 1},
}


def test_a_model_from_outside_is_one_class(tmp_path):
    """TOML kind, results, compare, pictures, series for ParaView, resume: all by its name, the package untouched."""
    limit, tokens = mf.run(CASE, tmp_path / "run", kinds=[Turning])
    assert limit.model == tokens.model == Turning(speed=2.0)
    turned = np.angle(complex(*limit.measure(-1).mean())) - np.angle(0.6 + 0.8j)
    assert (turned + np.pi) % (2 * np.pi) - np.pi == pytest.approx(2.0, abs=5e-3)
    assert {"limit.vtkhdf", "tokens.vtkhdf", "summary.csv", "overview.png", "limit.pvd"} <= set(os.listdir(tmp_path / "run"))
    assert mf.load(tmp_path / "run" / "limit.vtkhdf", kinds=[Turning]) == limit
    with pytest.raises(ValueError, match=r"limit.vtkhdf cannot be read: .* class Turning, which is not of this package, wanted .* kinds="):
        mf.load(tmp_path / "run" / "limit.vtkhdf")
    with pytest.raises(ValueError, match=r"attention\.kind is 'Turning', wanted 'softmax'"):
        mf.run(CASE, tmp_path / "other")
    table = mf.compare(limit, tokens)
    assert np.isnan(table.columns["log_energy_a"]).all() and np.isfinite(table.columns["w1"]).all()
    assert mf.film(tmp_path / "run.gif", limit, tokens, frames=2).is_file()
    with pytest.raises(ValueError, match="model is a Turning without an energy"):
        mf.energy(Turning(), limit.measure(0))


def test_a_study_of_a_model_from_outside(tmp_path):
    study = {
        "kind": "convergence",
        "times": [0.5],
        "mesh": {"kind": "circle", "n": 64},
        "attention": {"kind": "Turning", "speed": 0.5},
        "start": CASE["start"],
        "particles": {"counts": [20, 40], "runs": 3},
        "quantities": ["w1", "order"],
    }
    found = mf.study(study, tmp_path, workers=1, kinds=[Turning])
    means = found.table.where(quantity="w1").column("mean")
    assert 0.02 < means[1] < means[0] < 0.5
    assert (tmp_path / "study.png").is_file()


@pytest.mark.parametrize("model", [Turning(speed=0.5), pytest.param(Plain(), marks=pytest.mark.slow)], ids=["Turning", "Plain"])
def test_resumed_by_name_is_uninterrupted(model, tmp_path):
    mesh, law = mf.circle(64), mf.VonMisesFisher((0.6, 0.8), 2.0)
    for system, start in ((mf.MeanFieldPDE(mesh, model), mf.project(mesh, law)), (mf.ParticleSystem(model), mf.sample(law, 30, seed=0))):
        whole = mf.solve(system, start, 2.0, save_every=0.5)
        path = tmp_path / f"{system.kind}.vtkhdf"
        stop = [lambda t, measure: "enough" if t > 0.7 else None]
        mf.solve(system, start, 2.0, save_every=0.5, checkpoint=mf.Checkpoint(path, every_steps=1), callbacks=stop)
        with pytest.raises(ValueError, match=f"class {type(model).__name__}"):
            mf.resume(path)
        resumed = mf.resume(path, kinds=[type(model)])
        assert resumed.system == whole.system and resumed.times.tolist() == whole.times.tolist()
        assert all(np.array_equal(resumed.columns[name], whole.columns[name]) for name in whole.columns)


SCRIPT = """
import sys
import meanfield_pde as mf
from test_models import Turning
mesh = mf.circle(512)
start = mf.project(mesh, mf.VonMisesFisher((0.6, 0.8), 2.0))
checkpoint = mf.Checkpoint(sys.argv[1], every_steps=1)
slow = [lambda t, measure: print(t, flush=True)]
mf.solve(mf.MeanFieldPDE(mesh, Turning(speed=0.5)), start, 3.0, checkpoint=checkpoint, callbacks=slow)
"""


@pytest.mark.slow
def test_a_killed_run_of_a_model_from_outside_goes_on(tmp_path):
    path = tmp_path / "run.vtkhdf"
    run = subprocess.Popen([sys.executable, "-c", SCRIPT, str(path)], stdout=subprocess.PIPE, cwd=Path(__file__).parent, text=True)
    for _ in range(20):
        run.stdout.readline()
    run.send_signal(signal.SIGKILL)
    run.wait()
    run.stdout.close()
    resumed = mf.resume(path, kinds=[Turning])
    mesh = mf.circle(512)
    whole = mf.solve(mf.MeanFieldPDE(mesh, Turning(speed=0.5)), mf.project(mesh, mf.VonMisesFisher((0.6, 0.8), 2.0)), 3.0)
    assert np.array_equal(resumed.masses, whole.masses) and len(resumed.history) == len(whole.history)


class NotStorable(mf.VelocityModel):
    def __init__(self, strength):
        self.size = strength

    def velocity(self, points, measure, t=0.0):
        return 0 * points


class Function(mf.VelocityModel):
    def __init__(self, profile):
        self.profile = profile

    def velocity(self, points, measure, t=0.0):
        return 0 * points


@pytest.mark.parametrize(
    ("model", "sentence"),
    [
        (NotStorable(1.0), "system.model is a NotStorable without the attribute 'strength', wanted one for each constructor argument"),
        (Function(np.sin), "system.model.profile is of the type ufunc, wanted plain values, arrays or objects"),
    ],
)
def test_what_a_file_cannot_give_back_is_refused_before_the_file(model, sentence, tmp_path):
    mesh = mf.circle(16)
    start = np.full(16, 1 / (2 * np.pi))
    mf.solve(mf.MeanFieldPDE(mesh, model), start, 0.1)
    with pytest.raises(ValueError, match=sentence):
        mf.solve(mf.MeanFieldPDE(mesh, model), start, 0.1, checkpoint=mf.Checkpoint(tmp_path / "deep" / "run.vtkhdf"))
    assert os.listdir(tmp_path) == []


def test_a_velocity_must_be_tangent():
    """v + 2 x moved tokens wrongly, without a word; rounding of a large vector that is projected is no fault."""

    class Outward:
        def velocity(self, points, measure, t=0.0):
            return tangent(points, np.broadcast_to(measure.mean(), points.shape)) + 2 * points

    class Rounded:
        def velocity(self, points, measure, t=0.0):
            return tangent(points, np.broadcast_to(measure.mean(), points.shape)) + 1e-12 * points

    tokens = mf.sample(mf.Uniform(3), 20, seed=0)
    with pytest.raises(
        ValueError, match=r"velocity of Outward has a radial part of 2 at point 0, wanted a tangent vector: subtract <v, x> x"
    ):
        mf.solve(mf.ParticleSystem(Outward()), tokens, 1.0)
    with pytest.raises(ValueError, match="velocity of Outward has a radial part"):
        mf.solve(mf.MeanFieldPDE(mf.icosahedral(2), Outward()), mf.project(mf.icosahedral(2), mf.VonMisesFisher((0, 0, 1), 1.0)), 0.1)
    assert mf.solve(mf.ParticleSystem(Rounded()), tokens, 0.1).status == "done"


# --- time ---


class Growing(mf.Attention):
    """Who overrides the velocity of attention owns no potential of it."""

    def velocity(self, points, measure, t=0.0):
        return (1 + t) * mf.Attention(self.beta).velocity(points, measure)


def test_density_and_tokens_obey_the_same_velocity():
    """d/dt = (1 + t) X is a change of time to t + t^2/2; today's potential would give .60119 in place of .68453."""
    mesh, law = mf.circle(256), mf.VonMisesFisher((1.0, 0.0), 0.8)
    growing = Growing(beta=2.0)
    assert not growing.is_gradient and not growing.is_isotropic and not growing.has_energy
    tokens = mf.stratified(law, 4000, seed=0)
    order = [
        mf.order_parameter(mf.solve(system, start, t_end).measure(-1))
        for system, start, t_end in (
            (mf.MeanFieldPDE(mesh, growing), mf.project(mesh, law), 1.0),
            (mf.ParticleSystem(growing, method="spectral"), tokens, 1.0),
            (mf.MeanFieldPDE(mesh, mf.Attention(beta=2.0)), mf.project(mesh, law), 1.5),
            (mf.MeanFieldPDE(mesh, mf.Attention(beta=2.0)), mf.project(mesh, law), 1.0),
        )
    ]
    assert order[0] == pytest.approx(order[1], abs=1e-3) and order[0] == pytest.approx(order[2], abs=1e-3)
    assert order[0] - order[3] > 0.05, "the control: without the factor"


@dataclass(frozen=True)
class Heating(mf.VelocityModel):
    """Softmax attention whose beta grows: beta + rate t."""

    beta: float = 1.0
    rate: float = 8.0

    is_isotropic = True
    is_gradient = True
    has_energy = True

    def field(self, measure, t=0.0, method="auto"):
        return mf.Attention(self.beta + self.rate * t).field(measure, t, method)


@pytest.mark.parametrize("level", [3, pytest.param(5, marks=pytest.mark.slow)])
def test_the_uniform_law_rests_while_beta_grows(level):
    mesh = mf.icosahedral(level)
    system = mf.MeanFieldPDE(mesh, Heating(), method="spectral")
    uniform = mesh.areas / mesh.areas.sum()
    for t in (0.0, 0.4, 1.0):
        assert np.abs(fields.face_velocities(system, uniform, t)).max() <= 1e-13
    assert np.abs(fields.face_velocities(system, uniform, 1.0, on_cells=False)).max() > 1e-13, "the control: centers as mere points"
    run = mf.solve(system, 1 / mesh.areas.sum() * np.ones(mesh.n_cells), 1.0)
    assert np.abs(run.averages[-1] * mesh.areas.sum() - 1).max() <= 1e-12 and not len(run.atoms(-1))


def test_energies_take_the_time_of_the_run():
    """Of a model whose beta grows with time: history, compare and mf.energy agree, and differ from those at t = 0."""
    mesh, law, model = mf.circle(128), mf.VonMisesFisher((1.0, 0.0), 0.5), Heating(1.0, 2.0)
    limit = mf.solve(mf.MeanFieldPDE(mesh, model), mf.project(mesh, law), 1.0, save_every=0.5)
    tokens = mf.solve(mf.ParticleSystem(model), mf.sample(law, 100, seed=0), 1.0, save_every=0.5)
    last = limit.measure(-1)
    assert limit.history.energy[-1] == pytest.approx(mf.energy(mf.Attention(3.0), last), rel=1e-12)
    assert mf.energy(model, last, 1.0) == pytest.approx(limit.history.energy[-1], rel=1e-12)
    assert abs(mf.energy(model, last) - limit.history.energy[-1]) > 0.1 * limit.history.energy[-1]
    table = mf.compare(limit, tokens)
    assert table.columns["log_energy_a"][-1] == pytest.approx(limit.history.log_energy[-1], abs=1e-12)
    assert table.columns["log_energy_b"][-1] == pytest.approx(tokens.history.log_energy[-1], abs=1e-12)


# --- one analysis ---


def test_a_stage_analyses_its_measure_once(monkeypatch):
    """Cells, atoms and the energy ask one field: two analyses of points, cells and atoms, in each stage of a step."""
    calls = []
    analyse = harmonics.SphereHarmonics.analyse
    monkeypatch.setattr(
        harmonics.SphereHarmonics, "analyse", lambda self, points, *rest: (calls.append(len(points)), analyse(self, points, *rest))[1]
    )
    mesh = mf.icosahedral(3)
    atoms = mf.Measure(mf.sample(mf.Uniform(3), 4, seed=0), np.full(4, 0.1))
    start = mf.State(0.6 * mf.project(mesh, mf.VonMisesFisher((0, 0, 1), 2.0)), atoms)
    run = mf.solve(mf.MeanFieldPDE(mesh, mf.Attention(4.0), method="spectral"), start, 0.2)
    stages = 3 * len(run.history) + 1
    assert calls.count(mesh.n_cells) == stages
    assert len(calls) == 2 * stages, "the atoms beside them, and nothing else"


# --- the uniform law ---

MESHES = {
    "circle": lambda: mf.circle(128),
    "voronoi": lambda: mf.icosahedral(3),
    "triangles": lambda: mf.icosahedral(2, cells="triangles"),
    "cubed": lambda: mf.cubed_sphere(8),
    "random": lambda: mf.voronoi(mf.sample(mf.Uniform(3), 200, seed=1)),
    "random circle": lambda: mf.voronoi(mf.sample(mf.Uniform(2), 60, seed=1)),
}


@pytest.mark.parametrize("value", [1.0, -1.0])
@pytest.mark.parametrize("normalised", [True, False])
@pytest.mark.parametrize("method", ["direct", "spectral"])
@pytest.mark.parametrize("family", MESHES)
def test_the_uniform_law_is_at_rest_everywhere(family, method, normalised, value):
    mesh = MESHES[family]()
    model = mf.Attention(4.0, value=value * np.eye(mesh.dimension), normalised=normalised)
    system = mf.MeanFieldPDE(mesh, model, method=method)
    uniform = mesh.areas / mesh.areas.sum()
    bound = model.speed_bound(fields.on_cells(mesh, uniform))
    assert np.abs(fields.face_velocities(system, uniform)).max() <= 1e-13 * bound


@pytest.mark.slow
def test_a_uniform_start_stays_uniform_on_the_cubed_sphere():
    """By sums it drifted into six atoms at t = 40, and said "done"."""
    mesh = mf.cubed_sphere(8)
    run = mf.solve(mf.MeanFieldPDE(mesh, mf.Attention(4.0), method="direct"), np.full(mesh.n_cells, 1 / mesh.areas.sum()), 40.0)
    assert not len(run.events) and np.abs(run.averages[-1] * mesh.areas.sum() - 1).max() < 1e-3


# --- the table of kinds ---


def test_objects_come_back_from_their_descriptions():
    from meanfield_pde.kinds import described, restored

    mesh = mf.circle(16)
    for value in (
        mf.MeanFieldPDE(mesh, mf.Attention(3.0, value=-np.eye(2)), order=1, method=mf.Spectral(accuracy=1e-9), atoms=False),
        mf.ParticleSystem(mf.Attention(2.0, normalised=False, log_scale=1.0), method="auto"),
        mf.SSP(mf.SSPRK2, cfl=0.3, dt_max=0.1),
        mf.Adaptive(rtol=1e-9),
        mf.Measure(np.eye(3), [0.2, 0.3, 0.5]),
    ):
        assert restored(described(value)) == value
    plain = described(mf.SSP(mf.SSPRK2))
    assert json.loads(json.dumps(plain)) == plain and plain["kind"] == "ssp"


def test_a_class_that_gives_no_velocity_is_refused():
    with pytest.raises(TypeError, match="Empty defines neither field nor velocity"):

        class Empty(mf.VelocityModel):
            pass


@dataclass(frozen=True)
class Switching(mf.VelocityModel):
    """Attracts until t = 0.3, repels afterwards."""

    known: bool = True

    @property
    def breaks(self):
        return (0.3,) if self.known else ()

    def velocity(self, points, measure, t=0.0):
        return (1.0 if t < 0.3 else -1.0) * tangent(points, np.broadcast_to(measure.mean(), points.shape))


def test_steps_end_where_a_model_jumps():
    """With Euler steps the run is that of two models, one after the other; the control does not know where the jump is."""
    mesh, law = mf.circle(64), mf.VonMisesFisher((1.0, 0.0), 1.0)
    start, stepper = mf.project(mesh, law), mf.SSP(mf.EULER, dt_max=0.07)
    whole, unaware = (mf.solve(mf.MeanFieldPDE(mesh, Switching(known)), start, 0.5, stepper=stepper) for known in (True, False))
    linear = [mf.MeanFieldPDE(mesh, mf.Attention(0.0, value=sign * np.eye(2))) for sign in (1, -1)]
    first = mf.solve(linear[0], start, 0.3, stepper=stepper)
    second = mf.solve(linear[1], first.averages[-1], 0.2, stepper=stepper)
    assert 0.3 in whole.history.t and 0.3 not in unaware.history.t
    assert np.abs(whole.masses[-1] - second.masses[-1]).max() < 2e-5 < np.abs(unaware.masses[-1] - second.masses[-1]).max()


def test_who_defines_an_energy_has_one():
    class Springs(mf.VelocityModel):
        def velocity(self, points, measure, t=0.0):
            return tangent(points, np.broadcast_to(measure.mean(), points.shape))

        def energy(self, measure, t=0.0):
            return 0.5 * float(measure.mean() @ measure.mean())

    start = mf.sample(mf.VonMisesFisher((0, 0, 1), 1.0), 20, seed=0)
    run = mf.solve(mf.ParticleSystem(Springs()), start, 1.0)
    assert run.history.energy[-1] == pytest.approx(mf.energy(Springs(), run.measure(-1)), rel=1e-14)
    assert run.history.energy[-1] == pytest.approx(mf.energy(mf.Attention(0.0), run.measure(-1)), rel=1e-12)
    assert not Growing(2.0).has_energy, "the control: an energy that is inherited is that of another velocity"
