"""The loop: output times (T1), failures that keep the last good state (T3), callbacks and progress (T7), history and records (S2, S3)."""

import contextlib
import os
import subprocess
import sys

import numpy as np
import pytest

import meanfield_pde as mf
from meanfield_pde.solve import output_times
from meanfield_pde.sphere import normalise
from meanfield_pde.threads import thread_count


def cap(mesh, kappa=3.0):
    return mf.project(mesh, mf.VonMisesFisher(np.eye(mesh.dimension)[0], kappa))


def density(n=12, **options):
    mesh = mf.circle(n)
    return mf.MeanFieldPDE(mesh, mf.Attention(beta=2.0, **options)), cap(mesh)


def tokens(n=6):
    return mf.ParticleSystem(mf.Attention(beta=2.0)), normalise(np.random.default_rng(0).normal(size=(n, 3)))


class Turning:
    """x' = speed(t) times the unit rotation of the circle; nan where speed is."""

    def __init__(self, speed=lambda t: 1.0):
        self.speed = speed

    def velocity(self, points, measure, t=0.0):
        return self.speed(t) * np.stack([-points[:, 1], points[:, 0]], axis=1)


def at_angles(angles):
    return np.stack([np.cos(angles), np.sin(angles)], axis=-1)


# --- output times (T1) ---


@pytest.mark.slow
def test_thirty_thousand_outputs_hold_the_tokens_of_their_times():
    """Three turns of speed 1 + cos t: a row that lags by .01 would be .02 off."""
    solution = mf.solve(mf.ParticleSystem(Turning(lambda t: 1 + np.cos(t))), np.eye(2), 300.0, save_every=0.01)
    assert solution.times.shape == (30_001,)
    assert np.abs(solution.times - np.arange(30_001) / 100).max() <= 1e-9
    assert (np.diff(solution.times) > 0).all()
    exact = at_angles(solution.times + np.sin(solution.times))
    assert np.abs(solution.tokens[:, 0] - exact).max() < 1e-9
    assert np.abs(solution.tokens[1:, 0] - exact[:-1]).max() > 1e-2  # the control: a lag of one row


@pytest.mark.slow
def test_thirty_thousand_outputs_hold_the_density_of_their_times():
    """Upwind on equal arcs has a closed form: mode 1 of the cells decays by |a| and turns by arg a, a = exp(t (e^{-ih} - 1)/h)."""
    n, speed = 8, 1e-2
    mesh, h = mf.circle(n), 2 * np.pi / 8
    start = cap(mesh, 0.5)
    system = mf.MeanFieldPDE(mesh, Turning(lambda t: speed), order=1)
    seen = {}
    solution = mf.solve(
        system, start, 300.0, save_every=0.01, stepper="ssprk2", callbacks=[lambda t, measure: seen.__setitem__(t, measure.masses)]
    )
    assert solution.times.shape == (30_001,)
    assert np.abs(solution.times - np.arange(30_001) / 100).max() <= 1e-9
    assert all((solution.masses[k] == seen[t]).all() for k, t in enumerate(solution.times[1:].tolist(), start=1))
    mode = np.exp(-1j * h * np.arange(n))
    amplitude = solution.masses @ mode
    exact = amplitude[0] * np.exp(solution.times * speed * (np.exp(-1j * h) - 1) / h)
    assert np.abs(amplitude - exact).max() < 1e-7 * abs(amplitude[0])
    assert np.abs(amplitude[1:] - exact[:-1]).max() > 5e-5 * abs(amplitude[0])  # the control: a lag of one row


@pytest.mark.parametrize("make", [density, tokens])
def test_asked_times_are_stored_exactly(make):
    system, start = make()
    times = [0.1, 1 / 3, 0.35, 0.7000000001, 2.0]
    solution = mf.solve(system, start, 2.5, save_at=times)
    assert (solution.times == times).all()
    assert solution.history.t[-1] == 2.5  # the run goes on to t_end
    assert (mf.solve(system, start, 2.5, save_at=[0.0, 2.5]).times == [0.0, 2.5]).all()
    for t, state in zip(times, solution.masses if system.kind == "density" else solution.tokens, strict=True):
        alone = mf.solve(system, start, t)
        state_alone = alone.masses[-1] if system.kind == "density" else alone.tokens[-1]
        assert np.abs(state - state_alone).max() < (2e-3 if system.kind == "density" else 1e-11)


@pytest.mark.parametrize("make", [density, tokens])
def test_the_first_row_is_the_start(make):
    system, start = make()
    solution = mf.solve(system, start, 1.0, save_every=0.5)
    assert solution.times[0] == 0
    if system.kind == "density":
        assert (solution.masses[0] == start * system.mesh.areas).all()
    else:
        assert np.abs(solution.tokens[0] - start).max() < 1e-15


@pytest.mark.parametrize(
    ("t_end", "every", "expected"),
    [
        (1.0, 0.25, [0, 0.25, 0.5, 0.75, 1]),
        (1.0, 0.4, [0, 0.4, 0.8, 1]),
        (0.3, 0.1, [0, 0.1, 0.2, 0.3]),  # 3 * .1 > .3
        (0.7, 0.1, [0, 0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7]),
        (1.0, 3.0, [0, 1]),
        (1.0, 1.0, [0, 1]),
    ],
)
def test_regular_output_times(t_end, every, expected):
    times = output_times(t_end, every, None)
    assert times == pytest.approx(expected, abs=1e-12)
    assert times[-1] == t_end


@pytest.mark.parametrize("count", [1, 3, 7, 10, 1000])
def test_long_runs_have_as_many_outputs_as_asked(count):
    assert len(output_times(1e9, 1e9 / count, None)) == count + 1


def test_times_beyond_the_end_by_rounding_are_the_end():
    """3 * .1 > .3; the control is farther away than rounding takes it."""
    for times in ([0, 0.1, 3 * 0.1], [0, 0.1, 0.3], [0, 0.1, 0.3, 3 * 0.1]):
        assert output_times(0.3, None, times).tolist() == [0, 0.1, 0.3]
    assert output_times(0.3, None, [0, 0.1, np.nextafter(0.3, 0)])[-1] < 0.3
    with pytest.raises(ValueError, match=r"save_at runs from 0 to 0\.3000000001, wanted times in \[0, 0\.3\]"):
        output_times(0.3, None, [0, 0.3000000001])


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"save_every": 0.1, "save_at": [0.5]}, "save_every and save_at are both given"),
        ({"save_every": 0.0}, "save_every is 0, wanted a number > 0"),
        ({"save_every": -1.0}, "save_every is -1, wanted a number > 0"),
        ({"save_every": float("nan")}, "save_every is nan, wanted a finite number"),
        ({"save_every": 1e-9}, "save_every is 1e-09, wanted at most 10000000 outputs"),
        ({"save_at": []}, "save_at is empty"),
        ({"save_at": [0.1, np.nan]}, r"save_at\[1\] is nan"),
        ({"save_at": [0.1, 1.5]}, r"save_at runs from 0\.1 to 1\.5, wanted times in \[0, 1\]"),
        ({"save_at": [-0.1, 0.5]}, r"save_at runs from -0\.1 to 0\.5"),
        ({"save_at": [0.1, 0.3, 0.3]}, r"save_at\[2\] is 0\.3 after 0\.3, wanted increasing times"),
        ({"stepper": "rk4"}, "stepper is 'rk4'"),
        ({"stepper": "euler", "cfl": -1.0}, "cfl is -1, wanted a number > 0"),
    ],
)
def test_bad_options_are_named(options, message):
    system, start = density()
    with pytest.raises(ValueError, match=message):
        mf.solve(system, start, 1.0, **options)


@pytest.mark.parametrize("t_end", [0.0, -1.0, float("inf"), float("nan"), "long", None])
def test_bad_ends_are_named(t_end):
    system, start = density()
    with pytest.raises(ValueError, match="t_end is"):
        mf.solve(system, start, t_end)


# --- velocities that turn NaN (T3) ---


def broken_after(t_bad, value):
    """The rotation, until one face (or token) in the west gets a velocity that is no number."""

    class Model:
        def velocity(self, points, measure, t=0.0):
            result = np.stack([-points[:, 1], points[:, 0]], axis=1)
            if t > t_bad:
                result[points[:, 0] < -0.9] = value
            return result

    return Model()


@pytest.mark.parametrize("value", [np.nan, np.inf])
@pytest.mark.parametrize("stepper", ["euler", "ssprk2", "ssprk3"])
def test_a_density_whose_velocity_turns_nan_stops_within_a_step(stepper, value):
    mesh = mf.circle(32)
    first_bad = int(mesh.face_cells[mesh.face_midpoints[:, 0] < -0.9].min())
    system = mf.MeanFieldPDE(mesh, broken_after(0.1, value))
    message = rf"the rate of cell {first_bad} is -?(nan|inf) at t = 0\.1"
    seen = {}
    look = [lambda t, measure: seen.__setitem__(t, measure.masses.copy())]
    with np.errstate(invalid="ignore"), pytest.raises(mf.SolveError, match=message) as caught:
        mf.solve(system, cap(mesh), 1.0, save_every=0.035, stepper=stepper, cfl=0.1, callbacks=look)
    solution = caught.value.solution
    assert (solution.masses[-1] == seen[solution.times[-1]]).all()
    assert solution.times[-1] > 2.1 * 0.035 and (solution.masses[-1] != solution.masses[2]).any()  # the control: the last output's state
    longest = solution.history.dt.max()
    assert 0.1 - 2 * longest < solution.times[-1] <= 0.1
    assert solution.history.t[-1] == solution.times[-1]
    assert np.isfinite(solution.masses).all()
    assert np.abs(solution.masses.sum(axis=1) - 1).max() < 1e-14
    assert solution.status.startswith("failed: the rate of cell")
    right = mf.MeanFieldPDE(mesh, broken_after(9.0, value))
    good = mf.solve(right, cap(mesh), 1.0, save_every=0.035, stepper=stepper, cfl=0.1)
    assert (good.masses[: len(solution.times) - 1] == solution.masses[:-1]).all()  # up to there, the same run


@pytest.mark.parametrize("stepper", ["ssprk3", "dop853"])
def test_tokens_whose_velocity_turns_nan_stop_within_a_step(stepper):
    """At t = 2, when the steps of dop853 no longer grow tenfold from one to the next."""
    angles = np.array([0.0, 1.0, 3.0, 3.1])
    system, seen = mf.ParticleSystem(broken_after(2.0, np.nan)), {}
    look = [lambda t, measure: seen.__setitem__(t, measure.points.copy())]
    method = mf.SSP(mf.SSPRK3, dt_max=0.03) if stepper == "ssprk3" else stepper
    with pytest.raises(mf.SolveError, match=r"the velocity of token 1 is \[nan nan\] at t = 2\.0\d*, wanted a finite number") as caught:
        mf.solve(system, at_angles(angles), 5.0, save_every=0.35, stepper=method, callbacks=look)
    solution = caught.value.solution
    assert 2.0 - 2 * solution.history.dt.max() < solution.times[-1] <= 2.0
    assert (solution.tokens[-1] == seen[solution.times[-1]]).all()
    assert solution.times[-1] > 5.1 * 0.35 and (solution.tokens[-1] != solution.tokens[5]).any()  # the control: the last output's state
    assert np.abs(solution.tokens[-1] - at_angles(angles + solution.times[-1])).max() < 1e-7


@pytest.mark.parametrize("make", [lambda: (mf.circle(8), None), lambda: (None, np.eye(2))])
def test_a_run_that_fails_at_once_hands_back_its_start(make):
    mesh, x = make()
    model = Turning(lambda t: np.nan)
    system, start = (mf.ParticleSystem(model), x) if mesh is None else (mf.MeanFieldPDE(mesh, model), cap(mesh))
    with pytest.raises(mf.SolveError, match=r"0 is (nan|\[nan nan\]) at t = 0, wanted a finite number") as caught:
        mf.solve(system, start, 1.0, save_at=[0.5, 1.0])
    solution = caught.value.solution
    assert (solution.times == [0.0]).all()
    assert solution.measure(-1).total == pytest.approx(1.0)
    assert len(solution.history) == 0
    assert "failed" in solution.summary()


# --- callbacks and progress (T7) ---


@pytest.mark.parametrize("make", [density, tokens])
def test_callbacks_see_every_accepted_step_and_can_only_read(make):
    system, start = make()
    seen, refused = [], []

    def look(t, measure):
        seen.append((t, measure.total))
        for array in (measure.points, measure.masses):
            try:
                array[:] = 0
            except ValueError:
                refused.append(t)

    solution = mf.solve(system, start, 1.0, save_every=0.2, callbacks=[look, lambda t, measure: None])
    untouched = mf.solve(system, start, 1.0, save_every=0.2)
    assert [t for t, _ in seen] == solution.history.t.tolist()
    assert len(refused) == 2 * len(seen)
    assert solution == untouched
    assert solution.status == "done"


@pytest.mark.parametrize("make", [density, tokens])
def test_a_callback_ends_the_run_and_says_why(make):
    system, start = make()
    solution = mf.solve(system, start, 5.0, save_every=0.3, callbacks=[lambda t, m: None, lambda t, m: "close enough" if t >= 0.65 else 7])
    assert solution.status == f"stopped at t = {solution.times[-1]:.9g}: close enough"
    assert 0.65 <= solution.times[-1] < 5.0
    assert solution.times[:3] == pytest.approx([0.0, 0.3, 0.6])
    assert (np.diff(solution.times) > 0).all()
    assert solution.history.t[-1] == solution.times[-1]
    assert solution.status in solution.summary()


@pytest.mark.parametrize("make", [density, tokens])
def test_progress_follows_variable_steps_and_early_stops(make):
    system, start = make()
    seen = []
    solution = mf.solve(system, start, 2.0, progress=lambda t, t_end: seen.append((t, t_end)))
    assert [t for t, _ in seen] == solution.history.t.tolist()
    assert (np.diff([0.0] + [t for t, _ in seen]) > 0).all()
    assert {t_end for _, t_end in seen} == {2.0}
    assert seen[-1] == (2.0, 2.0)
    seen.clear()
    stopped = mf.solve(
        system, start, 2.0, progress=lambda t, t_end: seen.append((t, t_end)), callbacks=[lambda t, m: "enough" if t > 0.1 else None]
    )
    assert seen[-1] == (stopped.times[-1], 2.0)
    assert seen[-1][0] < 2.0


def test_progress_prints_nothing_where_there_is_no_terminal(capfd):
    for make in (density, tokens):
        system, start = make()
        assert mf.solve(system, start, 1.0, progress=True).status == "done"
        mf.solve(system, start, 1.0, progress=True, callbacks=[lambda t, m: "enough"])
    assert capfd.readouterr() == ("", "")


@pytest.mark.slow
@pytest.mark.skipif(not hasattr(os, "openpty"), reason="no pseudo-terminals here")
def test_progress_draws_on_a_terminal_and_leaves_standard_output_alone():
    """Control of the test above."""
    script = (
        "import time, meanfield_pde as mf, numpy as np\n"
        "mf.solve(mf.ParticleSystem(mf.Attention()), np.eye(3), 1., progress=True, callbacks=[lambda t, m: time.sleep(.2)])\n"
    )
    master, slave = os.openpty()
    environment = os.environ | {"TERM": "xterm", "COLUMNS": "120"}
    drawn = b""
    with subprocess.Popen([sys.executable, "-c", script], stdout=subprocess.PIPE, stderr=slave, env=environment) as process:
        os.close(slave)
        with contextlib.suppress(OSError):  # the end of a pseudo-terminal
            while part := os.read(master, 4096):
                drawn += part
        assert process.stdout.read() == b""
    os.close(master)
    assert process.returncode == 0, drawn.decode()
    assert b"tokens" in drawn and b"of 1" in drawn


def test_a_failing_callback_is_not_hidden():
    system, start = density()

    def fail(t, measure):
        raise KeyError("mine")

    with pytest.raises(KeyError, match="mine"):
        mf.solve(system, start, 1.0, callbacks=[fail], progress=True)


# --- what is left (S2, S3) ---


@pytest.mark.parametrize("stepper", ["euler", "ssprk2", "ssprk3"])
@pytest.mark.parametrize("order", [1, 2])
@pytest.mark.parametrize("make", [lambda: mf.circle(48), lambda: mf.icosahedral(2)])
def test_every_stepper_keeps_mass_and_sign(make, order, stepper):
    """S2, with mass in every output (S3)."""
    mesh = make()
    start = np.zeros(mesh.n_cells)
    start[[3, 20]] = 0.5 / mesh.areas[[3, 20]]
    repulsion = mf.Attention(beta=4.0, value=-np.eye(mesh.dimension))  # under V = I two full cells stay where they are
    system = mf.MeanFieldPDE(mesh, repulsion, order=order)
    solution = mf.solve(system, start, 5.0, save_every=0.5, stepper=stepper)
    assert np.abs(solution.masses.sum(axis=1) - 1).max() <= 1e-14
    assert np.abs(solution.history.mass - 1).max() <= 1e-14
    assert solution.masses.min() >= 0
    assert solution.history.minimum.min() >= 0
    assert np.abs(solution.masses[-1] - solution.masses[0]).max() > 0.05


@pytest.mark.parametrize("make", [density, tokens])
def test_history_has_a_row_for_each_step(make):
    system, start = make()
    solution = mf.solve(system, start, 2.0, save_every=0.25)
    history = solution.history
    assert history.dtype.names == ("t", "dt", "mass", "energy", "log_energy", "minimum", "atoms", "clusters", "cell_mass")
    assert np.cumsum(history.dt) == pytest.approx(history.t, rel=1e-12)
    assert history.t[-1] == 2.0
    assert history.energy == pytest.approx(np.exp(history.log_energy), rel=1e-13)
    assert history.energy[-1] == pytest.approx(mf.energy(system.model, solution.measure(-1)), rel=1e-13)
    assert history.minimum[-1] == solution.masses[-1].min()
    assert history.mass[-1] == solution.measure(-1).total
    if system.kind == "density":
        assert np.isin(solution.times[1:], history.t).all()
        for k, t in enumerate(solution.times[1:], start=1):
            row = history[history.t == t][0]
            assert row.minimum == solution.masses[k].min()
            assert row.energy == pytest.approx(mf.energy(system.model, solution.measure(k)), rel=1e-13)


def test_history_of_an_energy_beyond_doubles():
    solution = mf.solve(mf.ParticleSystem(mf.Attention(beta=1000.0)), np.eye(3), 0.5)
    assert np.isinf(solution.history.energy).all()
    assert np.isfinite(solution.history.log_energy).all()


def test_the_summary_says_mass_drift_energy_and_method():
    system, start = density()
    solution = mf.solve(system, start, 1.0, stepper="ssprk2", cfl=0.25)
    text = solution.summary()
    drift = np.abs(solution.history.mass - solution.masses[0].sum()).max()
    for part in ("density: done, t = 1", f"mass {solution.history.mass[-1]:.15g} (largest drift {drift:.1e})", "ssprk2, cfl 0.25"):
        assert part in text
    for part in ("minimum", "log energy", "12 cells", "order: 2", "face velocity: potential", f"threads: {thread_count()}"):
        assert part in text


@pytest.mark.parametrize("make", [density, tokens])
def test_the_record_says_how_the_run_was_made(make):
    system, start = make()
    record = mf.solve(system, start, 0.5).record
    assert record["threads"] == thread_count()
    assert record["stepper"] == (
        "ssprk3, cfl default; once all mass is in atoms dop853, rtol 1e-13, atol 1e-14"
        if system.kind == "density"
        else "dop853, rtol 1e-13, atol 1e-14"
    )
    assert {"meanfield-pde", "numpy", "scipy", "numba", "python"} <= set(record["versions"])
    assert record["versions"]["numpy"] == np.__version__


@pytest.mark.parametrize("make", [density, tokens])
def test_measures_by_number(make):
    system, start = make()
    solution = mf.solve(system, start, 1.0, save_every=0.5)
    assert solution.measure(-1) == solution.measure(2)
    assert solution.measure(-3) == solution.measure(0)
    assert solution.measure(0) != solution.measure(1)
    atoms = len(solution.atoms(1)) if solution.kind == "density" else 0
    assert len(solution.measure(1)) == solution.masses.shape[1] + atoms
    for k in (3, -4, 1.5, "last"):
        with pytest.raises(ValueError, match=r"k is .*, wanted an integer in \[-3, 2\]"):
            solution.measure(k)


def test_solutions_are_equal_if_all_they_hold_is():
    system, start = density()
    once = mf.solve(system, start, 1.0, save_every=0.5)
    assert once == mf.solve(system, start, 1.0, save_every=0.5)
    assert once != mf.solve(system, start, 1.0, save_every=0.25)
    assert once != mf.solve(system, start, 1.0, save_every=0.5, stepper="ssprk2")
    assert once != mf.solve(mf.MeanFieldPDE(system.mesh, mf.Attention(beta=2.5)), start, 1.0, save_every=0.5)
    system, start = tokens()
    assert mf.solve(system, start, 1.0) == mf.solve(system, start, 1.0)
    assert mf.solve(system, start, 1.0) != mf.solve(system, start, 1.1)


def test_a_density_has_no_tokens_and_tokens_have_no_mesh():
    fluid, start = density()
    solution = mf.solve(fluid, start, 0.1)
    assert solution.kind == "density" and solution.mesh is fluid.mesh
    with pytest.raises(AttributeError, match="a density has no tokens"):
        _ = solution.tokens
    system, x = tokens()
    solution = mf.solve(system, x, 0.1)
    assert solution.kind == "tokens" and solution.model is system.model
    with pytest.raises(AttributeError):
        _ = solution.averages


def test_the_start_is_not_changed():
    system, start = density()
    kept = start.copy()
    mf.solve(system, start, 1.0)
    assert (start == kept).all()
    system, x = tokens()
    kept = x.copy()
    mf.solve(system, x, 1.0)
    assert (x == kept).all()
