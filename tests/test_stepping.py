"""Time stepping: temporal orders, the Courant bound, steps that are redone, runs that cannot go on (T2, T4), names of steppers."""

from dataclasses import replace

import fields
import numpy as np
import pytest
from scipy.integrate import solve_ivp

import meanfield_pde as mf
from meanfield_pde.sphere import distance
from meanfield_pde.stepping import ssp
from meanfield_pde.stepping.phased import Phased, resolve_stepper
from meanfield_pde.stepping.ssp import TABLEAUS
from meanfield_pde.stepping.stepper import SMALLEST_STEP

ORDERS = {"euler": 1, "ssprk2": 2, "ssprk3": 3}


def cap(mesh, kappa=3.0):
    return mf.project(mesh, mf.VonMisesFisher(np.eye(mesh.dimension)[0], kappa))


class Turning:
    """x' = speed(t) times the unit rotation of the circle."""

    def __init__(self, speed):
        self.speed, self.calls = speed, 0

    def velocity(self, points, measure, t=0.0):
        self.calls += 1
        return self.speed(t) * np.stack([-points[:, 1], points[:, 0]], axis=1)


# --- tableaus ---


@pytest.mark.parametrize("name", ORDERS)
def test_tableaus_satisfy_their_order_conditions(name):
    tableau, stages = TABLEAUS[name], len(TABLEAUS[name].b)
    a = np.zeros((stages, stages))
    for i, row in enumerate(tableau.a):
        a[i, : len(row)] = row
    b, c = np.array(tableau.b), np.array(tableau.c)
    assert a.sum(axis=1) == pytest.approx(c, abs=1e-16)
    assert b.sum() == pytest.approx(1.0, abs=1e-15)
    residuals = [abs(b @ c - 1 / 2), max(abs(b @ c**2 - 1 / 3), abs(b @ a @ c - 1 / 6))]
    satisfied = 1 + int(residuals[0] < 1e-15) + int(residuals[0] < 1e-15 and residuals[1] < 1e-15)
    assert satisfied == ORDERS[name]


@pytest.mark.parametrize("name", ORDERS)
def test_tableaus_are_convex_combinations_of_euler_steps(name):
    """SSP coefficient 1 (Shu, Osher): K (I + K)^{-1} >= 0 and its row sums <= 1, K = [[A, 0], [b, 0]]."""
    tableau, stages = TABLEAUS[name], len(TABLEAUS[name].b)
    k = np.zeros((stages + 1, stages + 1))
    for i, row in enumerate((*tableau.a, tableau.b)):
        k[i, : len(row)] = row

    def holds(radius):
        combined = radius * k @ np.linalg.inv(np.eye(stages + 1) + radius * k)
        return combined.min() >= -1e-14 and combined.sum(axis=1).max() <= 1 + 1e-14

    assert holds(1.0)
    assert not holds(1.01)


# --- temporal order ---


@pytest.mark.filterwarnings("ignore::meanfield_pde.PinnedWarning")
@pytest.mark.parametrize("d", [2, 3])
@pytest.mark.parametrize("name", ORDERS)
def test_temporal_order_of_a_density(name, d):
    """Against scipy's DOP853 on the same semi-discrete equation."""
    mesh = mf.circle(16) if d == 2 else mf.icosahedral(1)
    system = mf.MeanFieldPDE(mesh, mf.Attention(beta=2.0), order=1, atoms=False)
    start = cap(mesh, 1.0)
    exact = solve_ivp(
        lambda t, m: system.rate(t, fields.state_of(system, m)).change, (0, 1), start * mesh.areas, method="DOP853", rtol=1e-13, atol=1e-15
    ).y[:, -1]
    errors = []
    for steps in (10, 20, 40):
        solution = mf.solve(system, start, 1.0, stepper=mf.SSP(TABLEAUS[name], dt_max=1 / steps * (1 + 1e-12)))
        assert len(solution.history) == steps
        errors.append(np.abs(solution.masses[-1] - exact).max())
    orders = -np.diff(np.log2(errors))
    assert orders == pytest.approx(ORDERS[name], abs=0.2)


@pytest.mark.parametrize("name", ORDERS)
def test_temporal_order_where_the_velocity_depends_on_time(name):
    """Stages see their own times, c: token angles are the integral of the speed."""
    errors = []
    for steps in (10, 20, 40):
        solution = mf.solve(mf.ParticleSystem(Turning(np.cos)), np.eye(2), 1.0, stepper=mf.SSP(TABLEAUS[name], dt_max=1.0001 / steps))
        exact = np.array([np.cos(np.sin(1.0)), np.sin(np.sin(1.0))])
        errors.append(distance(solution.tokens[-1, 0], exact))
    assert -np.polyfit(range(3), np.log2(errors), 1)[0] == pytest.approx(ORDERS[name], abs=0.35)


def test_dop853_error_follows_its_tolerance():
    errors = []
    for rtol in (1e-5, 1e-7, 1e-9, 1e-11, 1e-13):
        solution = mf.solve(mf.ParticleSystem(mf.Attention(beta=4.0)), np.eye(2), 9.0, stepper=mf.Adaptive(rtol, rtol / 10))
        angle = distance(solution.tokens[-1, 0], solution.tokens[-1, 1])
        errors.append(abs(angle - float(mf.exact.two_cluster_angle(4.0, np.pi / 2, 9.0))))
    assert (np.array(errors) < 100 * np.array([1e-5, 1e-7, 1e-9, 1e-11, 1e-13])).all()
    assert errors[0] > 1e-8  # the control: a loose tolerance is seen


def test_dense_output_is_as_good_as_the_steps():
    times = np.linspace(0, 9, 91)
    solution = mf.solve(mf.ParticleSystem(mf.Attention(beta=4.0)), np.eye(2), 9.0, save_at=times)
    assert len(solution.history) < 60  # outputs do not shorten steps
    angle = distance(solution.tokens[:, 0], solution.tokens[:, 1])
    assert np.abs(angle - mf.exact.two_cluster_angle(4.0, np.pi / 2, times)).max() < 1e-11


# --- the Courant bound ---


@pytest.mark.parametrize("order", [1, 2])
@pytest.mark.parametrize("name", ORDERS)
def test_steps_stay_below_the_bound(name, order):
    mesh = mf.circle(32)
    system = mf.MeanFieldPDE(mesh, mf.Attention(beta=4.0), order=order)
    run = mf.SSP(TABLEAUS[name]).begin(system, system.begin(cap(mesh)), 0.0, 5.0)
    largest = 0.0
    while run.t < 5.0:
        before, outflow = run.t, run.rate.outflow
        run.advance(5.0)
        largest = max(largest, (run.t - before) * outflow)
    assert 0.8 * system.courant_limit < largest <= 0.9 * system.courant_limit * (1 + 1e-12)


def test_cfl_sets_the_courant_number():
    mesh = mf.circle(32)
    system = mf.MeanFieldPDE(mesh, Turning(lambda t: 1.0), order=1)  # every cell drains at 32/2 pi
    for cfl, expected in ((None, 0.9), (0.5, 0.5), (0.25, 0.25)):
        solution = mf.solve(system, cap(mesh), 5.0, stepper="ssprk2", cfl=cfl)
        assert solution.history.dt.max() == pytest.approx(expected * 2 * np.pi / 32, rel=1e-2)
    solution = mf.solve(system, cap(mesh), 5.0, stepper=mf.SSP(mf.SSPRK2, dt_max=0.01))
    assert solution.history.dt.max() == pytest.approx(0.01, rel=1e-9)


def test_no_step_outruns_the_speed_bound():
    """Out of equilibrium nothing flows yet: the speed bound, 1 for SA, keeps steps at .2."""
    mesh = mf.circle(32)
    solution = mf.solve(mf.MeanFieldPDE(mesh, mf.Attention(beta=4.0)), np.full(32, 1 / (2 * np.pi)), 5.0)
    assert solution.history.dt.max() <= 0.2 * (1 + 1e-12)
    still = mf.solve(mf.MeanFieldPDE(mesh, Turning(lambda t: 0.0)), np.full(32, 1 / (2 * np.pi)), 5.0)
    assert len(still.history) == 1  # without one, a single step


@pytest.mark.parametrize("order", [1, 2])
@pytest.mark.parametrize("name", ["ssprk2", "ssprk3"])
def test_a_step_whose_later_stage_exceeds_the_bound_is_redone(name, order):
    mesh = mf.circle(32)

    def run():
        model = Turning(lambda t: 1.0 if t < 0.3 else 20.0)
        system = mf.MeanFieldPDE(mesh, model, order=order, atoms=False)
        start = np.zeros(32)
        start[3] = 1 / mesh.areas[3]
        return model, system, mf.SSP(TABLEAUS[name]).begin(system, system.begin(start), 0.0, 1.0)

    model, _, integration = run()
    accepted = 0
    while integration.t < 1.0:
        integration.advance(1.0)
        accepted += 1
        assert integration.state.cells.min() >= 0
        assert integration.state.cells.sum() == pytest.approx(1.0, abs=1e-14)
    stages = len(TABLEAUS[name].b)
    assert model.calls > 1 + stages * accepted  # some were tried in vain

    _, _, integration = run()
    integration._bound = np.inf  # the control: accepted whatever the stages say
    with pytest.raises(mf.SolveError, match="wanted >= 0"):
        while integration.t < 1.0:
            integration.advance(1.0)


# --- runs that cannot go on (T4) ---


class Runaway:
    """A speed that grows without bound as t -> .5, fastest at the angle 0 to the right of cell 0."""

    def velocity(self, points, measure, t=0.0):
        speed = (1 + points[:, :1]) / np.abs(0.5 - t) if t != 0.5 else np.full((len(points), 1), 1e30)
        return speed * np.stack([-points[:, 1], points[:, 0]], axis=1)


@pytest.mark.filterwarnings("ignore::meanfield_pde.PinnedWarning")
def test_outflow_that_blows_up_ends_the_run_with_the_cell_named():
    mesh = mf.circle(16)
    system = mf.MeanFieldPDE(mesh, Runaway(), order=1, atoms=False)
    message = r"the step at t = 0\.5\d* fell to .*e-15 and is still too long for cell (0|15), wanted an accepted step of at least 1e-14"
    with pytest.raises(mf.SolveError, match=message) as caught:
        mf.solve(system, cap(mesh), 1.0, save_every=0.1)
    solution = caught.value.solution
    assert solution.times[:5] == pytest.approx([0.0, 0.1, 0.2, 0.3, 0.4])
    assert solution.times[-1] == solution.history.t[-1] == pytest.approx(0.5, abs=1e-9)
    assert solution.masses.min() >= 0
    assert solution.masses[-1].sum() == pytest.approx(1.0, abs=1e-13)
    assert solution.status.startswith("failed: the step at t = 0.5")


def rejected_for_ever(factor):
    """A run whose later stages exceed the bound `factor` times, however short the step: the calls of its model, and how far it went."""
    mesh = mf.circle(16)
    width = mesh.areas[0]
    last = [0.0]

    def speed(t):
        if t <= 0.3:
            last[0] = t
            return 1.0
        return factor * width / max(t - last[0], 1e-300)

    model = Turning(speed)
    system = mf.MeanFieldPDE(mesh, model, order=1)
    with pytest.raises(mf.SolveError, match=r"the step at t = 0\.\d+ fell to .* and is still too long for cell \d+") as caught:
        mf.solve(system, cap(mesh), 1.0, stepper=mf.SSP(mf.SSPRK2, dt_max=0.1), save_at=[0.1, 0.3, 1.0])
    return model.calls, caught.value.solution


@pytest.mark.parametrize("factor", [1.01, 1.5, 1e6])
def test_a_step_that_is_rejected_for_ever_ends_the_run_within_100_tries(factor, monkeypatch):
    """At 1.01 the tries end it, before the shortest step does."""
    calls, solution = rejected_for_ever(factor)
    assert calls <= 102 + 2 * len(solution.history)
    assert solution.times[-1] <= 0.3
    assert solution.masses[-1].sum() == pytest.approx(1.0, abs=1e-14)
    monkeypatch.setattr(ssp, "MOST_REJECTIONS", 10**6)
    unlimited, _ = rejected_for_ever(factor)
    assert (unlimited > 102 + 2 * len(solution.history)) == (factor == 1.01)  # the control: down to the shortest step it takes 260


@pytest.mark.parametrize("make", [lambda: mf.circle(12), lambda: mf.icosahedral(1)], ids=["circle", "icosahedral"])
def test_a_speed_without_a_bound_is_told_with_the_cell_and_what_helps(make):
    """e^711 is no float, although V makes the velocity itself a small one; log_scale keeps both."""
    mesh = make()
    value = np.eye(mesh.dimension)
    system = mf.MeanFieldPDE(mesh, mf.Attention(711.0, value=1e-307 * value, normalised=False))
    message = r"^the velocity out of cell \d+ is not bounded in double precision at t = 0 .*, speed bound inf\); use log_scale .*"
    with pytest.raises(mf.SolveError, match=message) as caught:
        mf.solve(system, cap(mesh, 2.0), 0.1)
    assert np.array_equal(caught.value.solution.masses[0], caught.value.solution.masses[-1])
    scaled = mf.MeanFieldPDE(mesh, mf.Attention(711.0, normalised=False, log_scale=711.0))
    assert mf.solve(scaled, cap(mesh), 0.1).status == "done"


@pytest.mark.parametrize("bad", [np.inf, np.nan])
@pytest.mark.parametrize("what", ["outflow", "speed"])
def test_a_rate_without_a_bound_is_told_at_its_time(what, bad, monkeypatch):
    """Later than at the start, and with steps that the speed does not bound."""
    mesh = mf.circle(12)
    system = mf.MeanFieldPDE(mesh, Turning(lambda t: 1.0))
    rate = mf.MeanFieldPDE.rate

    def spoiled(self, t, state):
        return replace(rate(self, t, state), **({what: bad, "worst": 4} if t > 0.3 else {}))

    monkeypatch.setattr(mf.MeanFieldPDE, "rate", spoiled)
    with pytest.raises(mf.SolveError, match=rf"^the velocity out of cell 4 is not bounded .* at t = 0\.3\d* .*{what} \w+ {bad}") as caught:
        mf.solve(system, cap(mesh), 1.0, save_every=0.1, stepper=mf.SSP(mf.EULER, cfl=1.5, dt_max=0.05))
    assert caught.value.solution.times[-1] == pytest.approx(0.3, abs=0.051)


def test_tokens_without_a_bound_have_no_cell():
    class Unbounded(mf.VelocityModel):
        def velocity(self, points, measure, t=0.0):
            return np.stack([-points[:, 1], points[:, 0]], axis=1)

        def speed_bound(self, measure, t=0.0):
            return np.inf

    model = Unbounded()
    with pytest.raises(mf.SolveError, match=r"^the velocity is not bounded in double precision at t = 0 "):
        mf.solve(mf.ParticleSystem(model), np.eye(2), 1.0, stepper="euler")
    assert mf.solve(mf.ParticleSystem(model), np.eye(2), 1.0).status == "done", "DOP853 asks for no bound"


# --- the last step (T2) ---


@pytest.mark.parametrize("gap", [1e-16, 1e-15, 1e-12])
@pytest.mark.parametrize("tokens", [True, False])
def test_outputs_a_rounding_apart_are_both_reached(gap, tokens):
    model = Turning(lambda t: 1.0)
    times = [0.5, max(0.5 + gap, np.nextafter(0.5, 1)), np.nextafter(1.0, 0), 1.0]
    mesh = mf.circle(8)
    system, start = (mf.ParticleSystem(model), np.eye(2)) if tokens else (mf.MeanFieldPDE(mesh, model), cap(mesh))
    solution = mf.solve(system, start, 1.0, save_at=times)
    assert solution.status == "done"
    assert (solution.times == times).all()
    assert solution.history.t[-1] == 1.0


def test_a_step_as_short_as_the_shortest_is_no_failure():
    mesh = mf.circle(8)
    system = mf.MeanFieldPDE(mesh, Turning(lambda t: 1.0))
    solution = mf.solve(
        system, cap(mesh), 1.0, stepper=mf.SSP(mf.SSPRK3, dt_max=SMALLEST_STEP), callbacks=[lambda t, m: "enough" if t > 5e-14 else None]
    )
    assert solution.history.dt == pytest.approx(SMALLEST_STEP)
    with pytest.raises(mf.SolveError, match=r"fell to 9e-15 .* cell .* at least 1e-14"):
        mf.solve(system, cap(mesh), 1.0, stepper=mf.SSP(mf.SSPRK3, dt_max=0.9 * SMALLEST_STEP))


@pytest.mark.parametrize("t_end", [1e-12, 0.3, 1 / 3, 7.7, 1e4])
def test_t_end_is_hit_exactly(t_end):
    mesh = mf.circle(8)
    tokens = mf.solve(mf.ParticleSystem(mf.Attention()), np.eye(2), t_end)
    assert tokens.times[-1] == tokens.history.t[-1] == t_end
    assert tokens.history.dt.sum() == pytest.approx(t_end, rel=1e-12)
    if t_end <= 1e3:
        solution = mf.solve(mf.MeanFieldPDE(mesh, mf.Attention()), cap(mesh), t_end)
        assert solution.times[-1] == solution.history.t[-1] == t_end
        assert solution.history.dt.sum() == pytest.approx(t_end, rel=1e-12)
        assert solution.history.dt.min() > 1e-3 * solution.history.dt.max() or len(solution.history) < 3


# --- names ---

TOKENS = mf.ParticleSystem(mf.Attention())


def test_steppers_by_name_object_and_default():
    density = mf.MeanFieldPDE(mf.circle(8), mf.Attention())
    assert resolve_stepper("euler", None, density) == Phased(mf.SSP(mf.EULER))
    assert resolve_stepper("ssprk2", 0.3, density) == Phased(mf.SSP(mf.SSPRK2, cfl=0.3))
    assert resolve_stepper(None, 0.4, density) == Phased(mf.SSP(mf.SSPRK3, cfl=0.4))
    assert resolve_stepper(None, None, TOKENS) == mf.Adaptive()
    mine = mf.SSP(mf.EULER, dt_max=0.1)
    assert resolve_stepper(mine, None, density).first is mine
    assert mine.describe() == "euler, cfl default, dt_max 0.1"
    assert mf.SSP(mf.EULER, cfl=0.5).describe() == "euler, cfl 0.5"
    assert mf.Adaptive(1e-6, 1e-8).describe() == "dop853, rtol 1e-06, atol 1e-08"


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: resolve_stepper("rk4", None, TOKENS), "stepper is 'rk4', wanted 'euler' or 'ssprk2' or 'ssprk3' or 'dop853'"),
        (lambda: resolve_stepper(mf.SSP(mf.EULER), 0.5, TOKENS), r"cfl is 0\.5 beside a stepper object"),
        (lambda: resolve_stepper("dop853", 0.5, TOKENS), r"cfl is 0\.5, wanted None with stepper 'dop853'"),
        (lambda: mf.SSP(mf.EULER, cfl=0.0), "cfl is 0, wanted a number > 0"),
        (lambda: mf.SSP(mf.EULER, cfl=float("nan")), "cfl is nan, wanted a finite number"),
        (lambda: mf.SSP(mf.EULER, dt_max=-1.0), "dt_max is -1, wanted a number > 0"),
        (lambda: mf.Adaptive(rtol=0.0), "rtol is 0, wanted a number in"),
        (lambda: mf.Adaptive(atol=-1.0), "atol is -1, wanted a number at least 0"),
        (
            lambda: mf.solve(mf.MeanFieldPDE(mf.circle(8), mf.Attention()), cap(mf.circle(8)), 1.0, stepper="dop853"),
            "stepper is 'dop853' for a density, wanted one of euler, ssprk2, ssprk3",
        ),
    ],
)
def test_bad_steppers_are_named(call, message):
    with pytest.raises(ValueError, match=message):
        call()
