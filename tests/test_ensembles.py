"""Many runs at once against ParticleSystem, closed forms and scipy's steps; what a run must not depend on, to the last bit."""

import numpy as np
import pytest

import meanfield_pde as mf
from meanfield_pde.sphere import distance, normalise
from meanfield_pde.stepping.ensembles import solve_ensemble
from meanfield_pde.stepping.summed import _exponential

TIMES = np.array([0.0, 0.3, 1.0, 2.0])


def uniform(n_runs, n, d, seed=0):
    return normalise(np.random.default_rng(seed).normal(size=(n_runs, n, d)))


def gathered(n_runs, n, d):
    """Tokens within about 0.1 of one another, which feel each other at beta = 800."""
    return normalise(np.eye(d)[0] + 0.07 / np.sqrt(d - 1) * np.random.default_rng(d).normal(size=(n_runs, n, d)))


def shares(n_runs, n, seed=0):
    """Masses of which one is zero."""
    masses = np.random.default_rng(seed).dirichlet(np.ones(n), size=n_runs)
    masses[0, n // 2] = 0
    return masses / masses.sum(axis=1, keepdims=True)


def general(d):
    rng = np.random.default_rng(d)
    return {name: rng.normal(size=(d, d)) / np.sqrt(d) for name in ("query", "key", "value")}


def one_by_one(attention, starts, times, masses=None, **options):
    """The same tokens from ParticleSystem, whose sums, steps and projections are other code."""
    system = mf.ParticleSystem(attention)
    runs = [mf.Measure(start, None if masses is None else masses[r]) for r, start in enumerate(starts)]
    return np.stack([mf.solve(system, run, times[-1], save_at=times, **options).tokens for run in runs])


def angled(*angles):
    """Tokens (1, n, 2) on S^1."""
    return np.stack([np.cos(angles), np.sin(angles)], axis=1)[None]


# --- against other code ---

MODELS = {
    "SA": (uniform, 2.0, lambda d: {"beta": 9.0}),
    "USA": (uniform, 2.0, lambda d: {"beta": 2.0, "normalised": False}),
    "mean": (uniform, 2.0, lambda d: {"beta": 0.0}),
    "repulsion": (uniform, 2.0, lambda d: {"beta": 4.0, "value": -np.eye(d)}),
    "general SA": (uniform, 2.0, lambda d: {"beta": 4.0, **general(d)}),
    "general USA": (uniform, 2.0, lambda d: {"beta": 1.5, "normalised": False, **general(d)}),
    "general mean": (uniform, 2.0, lambda d: {"beta": 0.0, "normalised": False, **general(d)}),
    "large beta": (gathered, 2.0, lambda d: {"beta": 800.0}),
    "large beta, scaled USA": (gathered, 2.0, lambda d: {"beta": 800.0, "normalised": False, "log_scale": 800.0}),
    "large beta, general": (gathered, 0.05, lambda d: {"beta": 800.0, **general(d)}),
    "large beta, looking away": (gathered, 0.05, lambda d: {"beta": 800.0, "key": -np.eye(d)}),
}


@pytest.mark.parametrize("d", [2, 3, 8])
@pytest.mark.parametrize("name", MODELS)
def test_tokens_are_those_of_a_particle_system(name, d):
    place, t_end, make = MODELS[name]
    options, starts, masses, times = make(d), place(2, 9, d), shares(2, 9, d), TIMES * t_end / 2
    reference = one_by_one(mf.Attention(**options), starts, times, masses)
    ensemble = solve_ensemble(mf.Attention(**options), starts, times, masses=masses, rtol=1e-11)
    assert np.abs(ensemble.tokens - reference).max() < 2e-10
    nearly = mf.Attention(**options | {"value": (1 + 1e-5) * options.get("value", np.eye(d))})
    other = solve_ensemble(nearly, starts, times, masses=masses, rtol=1e-11)
    assert np.abs(other.tokens - reference).max() > 2e-9  # the control: a hundred thousandth of the velocity is seen


@pytest.mark.parametrize("d", [2, 3])
def test_steps_and_interpolant_are_those_of_scipy(d):
    """The same tolerances give the same steps, hence the same errors: agreement is far below the tolerance."""
    attention, starts, times = mf.Attention(beta=9.0), uniform(1, 13, d, seed=3), np.linspace(0, 10, 31)
    ensemble = solve_ensemble(attention, starts, times, rtol=1e-6, atol=1e-8)
    solution = mf.solve(mf.ParticleSystem(attention), starts[0], 10.0, save_at=times, stepper=mf.Adaptive(1e-6, 1e-8))
    assert np.abs(ensemble.tokens[0] - solution.tokens).max() < 1e-11
    assert f"{13 * ensemble.evaluations[0]} by sums" in solution.record["points evaluated"]
    exact = one_by_one(attention, starts, times)
    assert np.abs(ensemble.tokens - exact).max() > 1e-7  # the control: beside it, the error is large


def test_the_error_falls_with_the_tolerance():
    attention, starts, times = mf.Attention(beta=4.0), uniform(4, 32, 2, seed=1), np.linspace(0, 12, 41)
    reference = one_by_one(attention, starts, times)
    rtols = 10.0 ** -np.arange(4, 12)
    ensembles = [solve_ensemble(attention, starts, times, rtol=rtol, atol=rtol / 1000) for rtol in rtols]
    errors = np.array([np.abs(ensemble.tokens - reference).max() for ensemble in ensembles])
    assert np.polyfit(np.log(rtols), np.log(errors), 1)[0] > 0.9
    assert (errors < 100 * rtols).all()
    assert errors[0] > 1e-5
    assert (np.diff([ensemble.evaluations.sum() for ensemble in ensembles]) > 0).all()


# --- closed forms ---


@pytest.mark.parametrize("d", [8, 11])
def test_equiangular_tokens(d):
    starts = np.linalg.qr(np.random.default_rng(d).normal(size=(d, d)))[0][None, :8]
    times = np.linspace(0, 3, 7)
    tokens = solve_ensemble(mf.Attention(beta=2.0), starts, times, rtol=1e-11).tokens[0]
    gram = tokens @ tokens.transpose(0, 2, 1)
    assert np.abs(gram[:, 0, 1:] - mf.exact.equiangular(8, 2.0, 0.0, times)[:, None]).max() < 1e-10


@pytest.mark.parametrize("normalised", [True, False])
@pytest.mark.parametrize("masses", [(0.5, 0.5), (0.3, 0.7)])
def test_two_clusters(normalised, masses):
    times = np.linspace(0, 4, 9)
    attention = mf.Attention(beta=2.0, normalised=normalised)
    tokens = solve_ensemble(attention, angled(0.1, 1.7), times, masses=[masses], rtol=1e-11).tokens[0]
    exact = mf.exact.two_cluster_angle(2.0, 1.6, times, masses=masses, normalised=normalised)
    assert np.abs(distance(tokens[:, 0], tokens[:, 1]) - exact).max() < 1e-10


def test_velocities_of_size_e_to_the_minus_hundred_keep_their_digits():
    t_end = mf.exact.two_cluster_time(100.0, 1.6, 1.5)
    tokens = solve_ensemble(mf.Attention(beta=100.0), angled(0.0, 1.6), [t_end], rtol=1e-13, atol=1e-15).tokens[0]
    assert t_end > 1e42
    assert distance(tokens[0, 0], tokens[0, 1]) == pytest.approx(1.5, abs=1e-10)


def test_a_token_without_mass_is_moved_and_moves_nothing():
    starts, attention = uniform(1, 10, 3), mf.Attention(beta=3.0)
    masses = np.append(np.full(9, 1 / 9), 0.0)[None]
    with_it = solve_ensemble(attention, starts, [2.0], masses=masses, rtol=1e-12).tokens[0, 0]
    without = solve_ensemble(attention, starts[:, :9], [2.0], rtol=1e-12).tokens[0, 0]
    assert np.abs(with_it[:9] - without).max() < 1e-11
    assert np.abs(with_it[9] - starts[0, 9]).max() > 0.1


@pytest.mark.parametrize("d", [2, 5])
def test_outputs_lie_on_the_sphere_at_the_times_asked_for(d):
    starts = uniform(3, 7, d)
    ensemble = solve_ensemble(mf.Attention(beta=4.0), starts, [0.0, 1e-3, 1.0, 7.0], rtol=1e-4)
    assert np.abs(np.linalg.norm(ensemble.tokens, axis=-1) - 1).max() <= 4e-16
    assert (ensemble.tokens[:, 0] == normalise(starts)).all()
    resting = solve_ensemble(mf.Attention(beta=4.0), starts, [0.0])
    assert (resting.tokens[:, 0] == normalise(starts)).all() and (resting.evaluations == 0).all()


def test_exponentials_are_right_to_one_unit_in_the_last_place():
    x = -np.concatenate([np.linspace(0, 1, 20001), np.random.default_rng(0).uniform(0, 708, 50000), [0.0, 708.5, 1e5, 1e300]])
    found = np.array([_exponential(value) for value in x])
    kept = x > -708
    assert np.abs(found[kept] / np.exp(x[kept].astype(np.longdouble)) - 1).max() < 2.3e-16
    assert (found[~kept] == 0).all() and (~kept).sum() == 3


# --- what a run does not depend on ---


def bits(ensemble):
    return ensemble.tokens.view(np.int64), ensemble.evaluations


@pytest.mark.parametrize("options", [{"beta": 4.0}, {"beta": 2.0, "normalised": False, **general(3)}], ids=["SA", "general USA"])
def test_a_run_does_not_depend_on_companions_order_threads_or_other_outputs(monkeypatch, options):
    attention, starts, masses, times = mf.Attention(**options), uniform(7, 19, 3), shares(7, 19), np.linspace(0, 3, 11)

    def solved(threads, runs, outputs=slice(None), **tolerances):
        monkeypatch.setenv("OMP_NUM_THREADS", str(threads))
        return bits(solve_ensemble(attention, starts[runs], times[outputs], masses=masses[runs], **tolerances))

    everyone = np.arange(7)
    tokens, evaluations = solved(1, everyone)
    for threads in (1, 2, 4):
        for runs in (everyone, everyone[::-1], np.array([5]), np.array([3, 0, 6, 3])):
            again, counts = solved(threads, runs)
            assert (again == tokens[runs]).all() and (counts == evaluations[runs]).all()
    assert (solved(1, everyone, slice(None, None, 5))[0] == tokens[:, ::5]).all()
    assert (solved(1, everyone, rtol=1.001e-9)[0][:, -1] != tokens[:, -1]).mean() > 0.5  # the control: the last bits tell
    assert len(np.unique(evaluations)) > 3  # and every run has its own steps


# --- models that are not compiled ---


class ByHand:
    """SA with beta = 4 as a user may write it; its velocity is multiplied by 1 + pace * t."""

    def __init__(self, pace=0.0):
        self.pace = pace

    def velocity(self, points, measure, t=0.0):
        weights = np.exp(4.0 * (points @ measure.points.T - 1)) * measure.masses
        mean = weights @ measure.points / weights.sum(axis=1, keepdims=True)
        return (1 + self.pace * t) * (mean - (mean * points).sum(axis=1, keepdims=True) * points)


class Doubled(mf.Attention):
    def velocity(self, *arguments, **options):
        return 2 * super().velocity(*arguments, **options)


@pytest.mark.parametrize("d", [2, 3, 8])
def test_a_model_written_by_hand_gives_the_compiled_tokens(d):
    starts, masses = uniform(3, 9, d), shares(3, 9)
    compiled = solve_ensemble(mf.Attention(beta=4.0), starts, TIMES, masses=masses, rtol=1e-11)
    ensemble = solve_ensemble(ByHand(), starts, TIMES, masses=masses, rtol=1e-11)
    assert np.abs(ensemble.tokens - compiled.tokens).max() < 1e-8
    assert ensemble.evaluations == pytest.approx(compiled.evaluations, rel=0.05) and len(np.unique(ensemble.evaluations)) > 1
    assert (ensemble.tokens[:, 0] == compiled.tokens[:, 0]).all() and (ensemble.masses == masses).all()
    faster = solve_ensemble(ByHand(pace=1e-6), starts, TIMES, masses=masses, rtol=1e-11)
    assert np.abs(faster.tokens - compiled.tokens).max() > 1e-8  # the control: a millionth of the velocity is seen


def test_a_model_that_depends_on_time_gets_the_time_of_the_run():
    """A velocity of (1 + t) X moves tokens to t as X does to t + t^2 / 2."""
    starts = uniform(2, 9, 3)
    ensemble = solve_ensemble(ByHand(pace=1.0), starts, TIMES, rtol=1e-11)
    changed = solve_ensemble(mf.Attention(beta=4.0), starts, TIMES + TIMES**2 / 2, rtol=1e-11)
    assert np.abs(ensemble.tokens - changed.tokens).max() < 1e-8


def test_an_attention_with_another_velocity_is_not_taken_for_the_compiled_one():
    starts = uniform(2, 9, 3)
    ensemble = solve_ensemble(Doubled(beta=4.0), starts, TIMES, rtol=1e-11)
    assert np.abs(ensemble.tokens - solve_ensemble(mf.Attention(beta=4.0), starts, 2 * TIMES, rtol=1e-11).tokens).max() < 1e-8


def test_a_run_that_is_not_compiled_does_not_depend_on_companions_or_other_outputs():
    starts, times = uniform(3, 9, 3), np.linspace(0, 2, 11)
    tokens, evaluations = bits(solve_ensemble(ByHand(), starts, times))
    again, counts = bits(solve_ensemble(ByHand(), starts[[2, 0]], times))
    assert (again == tokens[[2, 0]]).all() and (counts == evaluations[[2, 0]]).all()
    assert (bits(solve_ensemble(ByHand(), starts, times[[0, 5, 10]]))[0] == tokens[:, [0, 5, 10]]).all()
    resting = solve_ensemble(ByHand(), starts, [0.0])
    assert (resting.tokens[:, 0] == normalise(starts)).all() and (resting.evaluations == 0).all()


class FailsWhereTokensAreClose(ByHand):
    """Its velocity is none, or too large for a float, where tokens are within an angle of 1/2 from t = 0.25 on."""

    def __init__(self, error=None):
        super().__init__()
        self.error = error

    def velocity(self, points, measure, t=0.0):
        velocity = super().velocity(points, measure, t)
        if t < 0.25 or (points @ measure.points.T).min() < np.cos(0.5):
            return velocity
        if self.error is not None:
            raise self.error
        return np.full_like(velocity, np.nan)


def test_runs_that_are_not_compiled_and_fail_are_named():
    starts = np.concatenate([angled(0.0, 2.0), angled(0.0, 0.4), angled(0.0, 0.1)])
    with pytest.raises(mf.SolveError, match=r"^run 1: the velocity of token 0 is \[nan nan\] at t = 0\.[23]\d*, wanted a finite number$"):
        solve_ensemble(FailsWhereTokensAreClose(), starts, [0.1, 1.0])
    large = OverflowError("e^900 is beyond double precision")
    with pytest.raises(OverflowError, match=r"^run 1: e\^900 is beyond double precision, in the step from t = 0\.\d+$"):
        solve_ensemble(FailsWhereTokensAreClose(large), starts, [0.1, 1.0])
    assert np.isfinite(solve_ensemble(FailsWhereTokensAreClose(), starts[:1], [0.1, 1.0]).tokens).all()


# --- the record ---


def test_measures_and_equality():
    starts, masses = uniform(2, 5, 3), shares(2, 5)
    ensemble = solve_ensemble(mf.Attention(), starts, [0.5, 1.0], masses=masses)
    assert ensemble.measure(1, -1) == mf.Measure(ensemble.tokens[1, 1], masses[1])
    assert ensemble.measure(-2, 0) != ensemble.measure(-1, 0)
    assert ensemble == solve_ensemble(mf.Attention(), starts, [0.5, 1.0], masses=masses)
    assert ensemble != solve_ensemble(mf.Attention(), starts, [0.5, 1.0])
    equal = solve_ensemble(mf.Attention(), starts, [1.0], masses=np.full((2, 5), 0.2))
    assert equal == solve_ensemble(mf.Attention(), starts, [1.0])
    for array in (ensemble.times, ensemble.tokens, ensemble.masses, ensemble.evaluations):
        assert not array.flags.writeable
    with pytest.raises(ValueError, match=r"run is 2, wanted an integer in \[-2, 1\]"):
        ensemble.measure(2, 0)
    with pytest.raises(ValueError, match=r"k is -3, wanted an integer in \[-2, 1\]"):
        ensemble.measure(0, -3)


# --- refusals ---

THREE = np.eye(3)[None]


@pytest.mark.parametrize(
    ("changed", "message"),
    [
        ({"model": 3}, "model is 3, wanted an Attention, another VelocityModel or an object with velocity"),
        ({"model": ByHand}, "model is .*ByHand.*, wanted an Attention, another VelocityModel or an object with velocity"),
        ({"starts": np.eye(3)}, r"starts has shape \(3, 3\), wanted \(R, n, d\)"),
        ({"starts": np.empty((0, 3, 3))}, r"starts has shape \(0, 3, 3\), wanted at least one run of one token"),
        ({"starts": np.empty((2, 0, 3))}, r"starts has shape \(2, 0, 3\), wanted at least one run of one token"),
        ({"starts": 2 * THREE}, r"starts\[0, 0\] has length 2, wanted a point of the unit sphere"),
        ({"starts": [[[1, 0], [0, np.nan]]]}, r"starts\[0, 1, 1\] is nan, wanted a finite number"),
        ({"starts": np.eye(2)[None]}, r"starts lie in R\^2, wanted R\^3 like the model's matrices"),
        ({"times": []}, "times is empty, wanted at least one time"),
        ({"times": 1.0}, r"times has shape \(\), wanted \(n_t,\)"),
        ({"times": [-1, 1]}, r"times\[0\] is -1, wanted a number >= 0"),
        ({"times": [0, 2, 2]}, r"times\[2\] is 2 after 2, wanted increasing times"),
        ({"times": [0, np.inf]}, r"times\[1\] is inf, wanted a finite number"),
        ({"masses": [1, 0, 0]}, r"masses has shape \(3,\), wanted \(1, 3\)"),
        ({"masses": [[2, -1, 0]]}, r"masses\[0, 1\] is -1, wanted a number >= 0"),
        ({"masses": [[1, 1, 0]]}, r"masses\[0\] has total 2, wanted 1"),
        ({"rtol": 0}, "rtol is 0, wanted a number in"),
        ({"rtol": 1e-15}, "rtol is 1e-15, wanted a number in"),
        ({"atol": 0}, "atol is 0, wanted a number > 0"),
    ],
)
def test_bad_input_is_named(changed, message):
    given = {"model": mf.Attention(value=np.eye(3)), "starts": THREE, "times": [1.0]} | changed
    with pytest.raises(ValueError, match=message):
        solve_ensemble(**given)


def test_runs_that_fail_are_named():
    """The first run rests: its tokens are a pair of antipodes."""
    starts = np.concatenate([angled(0.0, np.pi), angled(0.0, 1e-3), angled(0.0, 0.2)])
    with pytest.raises(OverflowError, match=r"field at token 0 of run 0 at t = 0 reaches e\^799\.3 at beta = 800, .*use log_scale=800"):
        solve_ensemble(mf.Attention(beta=800.0, normalised=False), starts, [1.0])
    with pytest.raises(mf.SolveError, match=r"the step fell to \S+ for token \d of run 1 at t = 0, .* a step of at least 1e-14"):
        solve_ensemble(mf.Attention(beta=600.0, normalised=False), starts, [1.0])
    beyond = mf.Attention(beta=1.0, value=[[1.0, 0.0], [1.7e308, 1.7e308]])
    with pytest.raises(mf.SolveError, match=r"the velocity of token 0 of run 1 at t = 0 is not finite"):
        solve_ensemble(beyond, [[[0, 1], [0, 1]], [[0.6, 0.8], [0, 1]]], [1.0])
    scaled = solve_ensemble(mf.Attention(beta=800.0, normalised=False, log_scale=800.0), starts, [1.0])
    assert np.isfinite(scaled.tokens).all()
