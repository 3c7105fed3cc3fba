"""The particle reference against closed forms in several dimensions."""

import numpy as np
import pytest
from scipy.integrate import solve_ivp

import meanfield_pde as mf
from meanfield_pde.sphere import distance, normalise


def random_tokens(n, d, seed=0):
    return normalise(np.random.default_rng(seed).normal(size=(n, d)))


def near(centre, size, n, seed=0):
    return normalise(centre + size * np.random.default_rng(seed).normal(size=(n, len(centre))))


def plain_velocity(x, masses, beta, query, key, value, normalised):
    """The formula, word for word."""
    weights = np.exp(beta * (x @ query.T) @ (x @ key.T).T) * masses
    output = weights @ (x @ value.T)
    if normalised:
        output /= weights.sum(axis=1, keepdims=True)
    return output - (output * x).sum(axis=1, keepdims=True) * x


# --- against the formula, any dimension ---


@pytest.mark.parametrize("normalised", [True, False])
@pytest.mark.parametrize("d", [2, 3, 8, 128])
def test_tokens_follow_the_formula_in_any_dimension(d, normalised):
    rng = np.random.default_rng(d)
    query, key, value = (rng.normal(size=(d, d)) / np.sqrt(d) for _ in range(3))
    x, masses, t_end = random_tokens(12, d), rng.dirichlet(np.ones(12)), 0.2 if d == 128 else 1.0
    attention = mf.Attention(beta=1.5, query=query, key=key, value=value, normalised=normalised)
    solution = mf.solve(mf.ParticleSystem(attention), mf.Measure(x, masses), t_end)

    def independent(t, flat):
        return plain_velocity(flat.reshape(12, d), masses, 1.5, query, key, value, normalised).ravel()

    exact = solve_ivp(independent, (0, t_end), x.ravel(), method="DOP853", rtol=1e-12, atol=1e-13).y[:, -1].reshape(12, d)
    assert np.abs(solution.tokens[-1] - exact).max() < 1e-9
    assert np.abs(solution.tokens[-1] - x).max() > 0.01


@pytest.mark.parametrize("stepper", ["dop853", "ssprk3", "euler"])
@pytest.mark.parametrize("d", [2, 3, 8, 128])
def test_tokens_stay_on_the_sphere_to_the_last_bit(d, stepper):
    solution = mf.solve(mf.ParticleSystem(mf.Attention(beta=3.0)), random_tokens(20, d), 5.0, save_every=0.5, stepper=stepper)
    assert np.abs(np.linalg.norm(solution.tokens, axis=2) - 1).max() <= 1e-15
    assert np.abs(solution.history.mass - 1).max() <= 1e-15
    assert (solution.masses == 1 / 20).all()


def test_without_projection_lengths_would_drift():
    """Control of the test above: plain Euler steps in the ambient space."""
    x, attention = random_tokens(20, 3), mf.Attention(beta=3.0)
    for _ in range(25):
        x = x + 0.2 * attention.velocity(x, mf.Measure.trusted(x, np.full(20, 1 / 20)))
    assert np.abs(np.linalg.norm(x, axis=1) - 1).max() > 1e-3


@pytest.mark.parametrize("normalised", [True, False])
def test_a_token_of_double_mass_is_two_tokens(normalised):
    x, system = random_tokens(6, 3), mf.ParticleSystem(mf.Attention(beta=2.0, normalised=normalised))
    masses = np.array([2, 1, 3, 1, 1, 2]) / 10
    weighted = mf.solve(system, mf.Measure(x, masses), 1.0).tokens[-1]
    repeats = [2, 1, 3, 1, 1, 2]
    copies = mf.solve(system, np.repeat(x, repeats, axis=0), 1.0).tokens[-1]
    assert np.abs(np.repeat(weighted, repeats, axis=0) - copies).max() < 1e-12
    equal = mf.solve(system, x, 1.0).tokens[-1]
    assert np.abs(equal - weighted).max() > 1e-2  # the control: masses matter


@pytest.mark.parametrize("d", [2, 3, 8])
def test_rotated_tokens_move_along(d):
    turn = np.linalg.qr(np.random.default_rng(1).normal(size=(d, d)))[0]
    x, value = random_tokens(15, d), np.random.default_rng(2).normal(size=(d, d))
    original = mf.solve(mf.ParticleSystem(mf.Attention(beta=2.0, value=value)), x, 1.0).tokens[-1]
    turned = mf.solve(mf.ParticleSystem(mf.Attention(beta=2.0, value=turn @ value @ turn.T)), x @ turn.T, 1.0).tokens[-1]
    assert np.abs(original @ turn.T - turned).max() <= 1e-12
    wrong = mf.solve(mf.ParticleSystem(mf.Attention(beta=2.0, value=value)), x @ turn.T, 1.0).tokens[-1]
    assert np.abs(original @ turn.T - wrong).max() > 1e-3


# --- closed forms ---


@pytest.mark.parametrize("d", [8, 128])
def test_equiangular_tokens(d):
    x = np.linalg.qr(np.random.default_rng(3).normal(size=(d, d)))[0][:8]
    solution = mf.solve(mf.ParticleSystem(mf.Attention(beta=2.0)), x, 3.0, save_every=0.5)
    gram = solution.tokens @ solution.tokens.transpose(0, 2, 1)
    off = gram[:, ~np.eye(8, dtype=bool)]
    assert np.abs(off - off[:, :1]).max() < 1e-10
    assert np.abs(off[:, 0] - mf.exact.equiangular(8, 2.0, 0.0, solution.times)).max() < 1e-10
    assert off[-1, 0] == pytest.approx(0.9316264, abs=5e-8)


@pytest.mark.parametrize(("k", "beta", "printed"), [(2, 4.0, 6.7070e-4), (3, 5.0, 7.0440e-3), (4, 9.0, 4.44166e-3)])
def test_a_ring_of_clusters_is_unstable_at_the_printed_rate(k, beta, printed):
    assert mf.exact.ring_rate(k, beta) == pytest.approx(printed, rel=1e-4)
    t_end = 2 / printed
    angles = 2 * np.pi * np.arange(k) / k
    angles += 1e-5 * (-1.0) ** np.arange(k) if k % 2 == 0 else 1e-5 * np.cos(angles)  # the fastest mode
    start = np.stack([np.cos(angles), np.sin(angles)], axis=1)
    solution = mf.solve(mf.ParticleSystem(mf.Attention(beta=beta)), start, t_end, save_every=t_end / 10)
    gaps = distance(solution.tokens, np.roll(solution.tokens, -1, axis=1))
    departure = np.abs(gaps - 2 * np.pi / k).max(axis=1)
    rate, _ = np.polyfit(solution.times, np.log(departure), 1)
    assert rate == pytest.approx(mf.exact.ring_rate(k, beta), rel=1e-3)


@pytest.mark.parametrize("normalised", [True, False])
@pytest.mark.parametrize(("d", "beta"), [(2, 4.0), (3, 1.0), (8, 4.0)])
def test_distances_near_a_dirac_decay_at_its_rate(d, beta, normalised):
    rate = mf.exact.dirac_rate(beta, normalised=normalised)
    assert rate == pytest.approx(1.0 if normalised else np.exp(beta))
    start = near(np.eye(d)[0], 1e-4, 10)
    solution = mf.solve(mf.ParticleSystem(mf.Attention(beta=beta, normalised=normalised)), start, 2 / rate, save_every=0.2 / rate)
    centre = normalise(solution.tokens.mean(axis=1))
    spread = distance(solution.tokens, centre[:, None]).max(axis=1)
    measured, _ = np.polyfit(solution.times, np.log(spread), 1)
    assert measured == pytest.approx(-rate, rel=1e-5)


def test_a_general_value_matrix_moves_a_cluster_by_its_spectrum():
    """V c = lambda c: the centre leaves at the rates of V - lambda, tokens approach each other at lambda."""
    turn = np.linalg.qr(np.random.default_rng(4).normal(size=(3, 3)))[0]
    value = turn @ np.array([[0.8, 0.3, -0.2], [0.0, 1.1, 0.4], [0.0, 0.0, 0.5]]) @ turn.T
    centre = turn[:, 0]
    rates, spread = mf.exact.dirac_spectrum(value, centre)
    assert spread == pytest.approx(-0.8)
    assert rates.real == pytest.approx([0.3, -0.3])
    tokens = near(centre, 1e-5, 12)
    solution = mf.solve(mf.ParticleSystem(mf.Attention(beta=2.0, value=value)), tokens, 3.0, save_every=0.25)
    middle = solution.tokens.mean(axis=1)
    width = np.abs(solution.tokens - middle[:, None]).max(axis=(1, 2))
    assert np.polyfit(solution.times, np.log(width), 1)[0] == pytest.approx(spread, rel=1e-3)
    # left eigenvectors of P V P - lambda single out one rate each
    complement = np.linalg.qr(centre[:, None], mode="complete")[0][:, 1:]
    found, left = np.linalg.eig((complement.T @ value @ complement).T)
    for rate, vector in zip(found - 0.8, left.T, strict=True):
        amplitude = np.abs(middle @ complement @ vector)
        assert np.polyfit(solution.times, np.log(amplitude), 1)[0] == pytest.approx(rate, rel=1e-3)


@pytest.mark.parametrize("normalised", [True, False])
@pytest.mark.parametrize("d", [2, 3, 8])
def test_an_antipodal_pair_stays(d, normalised):
    x = random_tokens(1, d)[0]
    system = mf.ParticleSystem(mf.Attention(beta=1.0, normalised=normalised))
    solution = mf.solve(system, np.stack([x, -x]), 5.0)
    assert np.abs(solution.tokens[-1] - [x, -x]).max() < 1e-12
    nudged = mf.solve(system, normalise(np.stack([x, -x + 0.1 * random_tokens(1, d, 5)[0]])), 5.0)
    assert distance(nudged.tokens[-1, 0], nudged.tokens[-1, 1]) < 3.0  # the control: beside it, they meet


def test_energy_of_tokens_rises_and_is_the_one_of_diagnostics():
    attention = mf.Attention(beta=4.0)

    def run(model):
        solution = mf.solve(mf.ParticleSystem(model), random_tokens(30, 3), 5.0)
        return solution, np.concatenate([[mf.energy(attention, solution.measure(0))], solution.history.energy])

    solution, energy = run(attention)
    assert (np.diff(energy) > 0).all()
    assert energy[-1] == pytest.approx(mf.energy(attention, solution.measure(-1)), rel=1e-14)
    assert energy[-1] > 2 * energy[0]
    _, downhill = run(mf.Attention(beta=4.0, value=-np.eye(3)))  # the control: against the gradient it falls
    assert (np.diff(downhill) < 0).all() and np.diff(downhill).min() < -0.03


# --- bad input (T6) ---


@pytest.mark.parametrize(
    ("start", "message"),
    [
        ([[1, 0, 0], [np.nan, 0, 1]], r"start\[1, 0\] is nan, wanted a finite number"),
        ([[1, 0, 0], [0, 2, 0]], r"start\[1\] has length 2, wanted a point of the unit sphere"),
        ([1, 0, 0], r"start has shape \(3,\), wanted \(n, d\)"),
        ([[1, 0], [0, 1]], r"start lies in R\^2, wanted R\^3"),
        (mf.Measure([[1, 0, 0], [0, 1, 0]], [0, 0]), r"start has mass 0, wanted 1"),
        (mf.Measure([[1, 0, 0], [0, 1, 0]], [1, 1]), r"start has mass 2, wanted 1"),
    ],
)
def test_bad_tokens_are_named(start, message):
    with pytest.raises(ValueError, match=message):
        mf.solve(mf.ParticleSystem(mf.Attention(value=np.eye(3))), start, 1.0)


def test_negative_masses_and_wrong_lengths_are_named():
    with pytest.raises(ValueError, match=r"masses\[1\] is -1, wanted a number >= 0"):
        mf.Measure(np.eye(3), [1, -1, 1])
    with pytest.raises(ValueError, match=r"masses has shape \(2,\), wanted \(3,\)"):
        mf.Measure(np.eye(3), [0.5, 0.5])


# --- tokens that have met travel as one ---


def met(run):
    """How many points the tokens of a run travel as at its end."""
    return int(run.history.clusters[-1])


@pytest.mark.parametrize(("n", "d", "beta"), [(5, 2, 4.0), (40, 3, 9.0), (32, 8, 2.0)])
def test_long_times_cost_no_more_than_short_ones(n, d, beta):
    """2410.06833's long times. The control: alone, tokens of one cluster hold steps to a length of order 1 for ever."""
    start, system = random_tokens(n, d), mf.ParticleSystem(mf.Attention(beta))
    short, long = (mf.solve(system, start, t_end) for t_end in (1e3, 1e6))
    assert len(long.history) < 3 * len(short.history) and points_evaluated(long) < 1.5 * points_evaluated(short) and met(long) < n
    alone, longer = (mf.solve(mf.ParticleSystem(mf.Attention(beta), merge=0.0), start, t_end) for t_end in (1e3, 4e3))
    assert met(alone) == n and points_evaluated(longer) > 1.5 * points_evaluated(alone)
    assert np.abs(alone.tokens[-1] - short.tokens[-1]).max() < 1e-12


def points_evaluated(run):
    return int(run.record["points evaluated"].split()[0])


def test_tokens_at_one_place_stay_there_and_outputs_hold_all():
    start = np.array([[1.0, 0.0], [0.6, 0.8], [1.0, 0.0], [0.0, 1.0]])
    masses = np.array([0.1, 0.2, 0.3, 0.4])
    one, other = (mf.solve(mf.ParticleSystem(mf.Attention(2.0), merge=merge), mf.Measure(start, masses), 3.0) for merge in (1e-12, 0.0))
    assert (met(one), met(other)) == (3, 4) and one.tokens.shape == (2, 4, 2) and np.array_equal(one.masses[-1], masses)
    assert np.array_equal(one.tokens[-1][0], one.tokens[-1][2]) and np.abs(one.tokens[-1] - other.tokens[-1]).max() < 1e-13
    assert one.history.log_energy[-1] == pytest.approx(other.history.log_energy[-1], rel=1e-13)


def test_tokens_that_part_never_travel_as_one():
    """V = -I: what is 1e-13 apart parts like e^t. The control: with V = I the same two are one after a step."""
    angle = 1e-13
    start = np.array([[1.0, 0.0], [np.cos(angle), np.sin(angle)], [0.0, 1.0]])
    parting = mf.solve(mf.ParticleSystem(mf.Attention(1.0, value=-np.eye(2))), start, 40.0)
    assert met(parting) == 3 and distance(*parting.tokens[-1][:2]) > 0.1
    assert met(mf.solve(mf.ParticleSystem(mf.Attention(1.0)), start, 1.0)) == 2


def test_what_has_met_moves_as_one_cluster():
    """Three tokens here, two there: masses add, and from then on the two follow the equation of two clusters."""
    start = np.concatenate([near(np.array([1.0, 0.0]), 1e-4, 3), near(np.array([np.cos(1.5), np.sin(1.5)]), 1e-4, 2)])
    run = mf.solve(mf.ParticleSystem(mf.Attention(9.0)), start, 120.0, save_at=[60.0, 120.0])
    gaps = [float(distance(tokens[0], tokens[3])) for tokens in run.tokens[-2:]]
    assert met(run) == 2 and gaps[0] - gaps[1] > 1e-4
    assert gaps[1] == pytest.approx(float(mf.exact.two_cluster_angle(9.0, gaps[0], 60.0, (0.6, 0.4))), abs=1e-11)


@pytest.mark.parametrize("merge", [-1.0, np.nan, 0.1, "near"])
def test_a_bad_distance_of_meeting_is_refused(merge):
    with pytest.raises(ValueError, match=r"^merge is"):
        mf.ParticleSystem(mf.Attention(1.0), merge=merge)
