"""Evenly spread tokens: exact cumulative distributions, rates in their number, comparison with independent tokens, refusals."""

from functools import cache

import numpy as np
import pytest
from scipy.special import ive

from meanfield_pde.diagnostics import distances
from meanfield_pde.laws.law import Mixture, Moebius, Uniform, VonMisesFisher, sample
from meanfield_pde.laws.perturbed import PerturbedUniform
from meanfield_pde.laws.projection import project
from meanfield_pde.laws.stratified import stratified
from meanfield_pde.measure import Measure
from meanfield_pde.mesh.families import circle, icosahedral
from meanfield_pde.sphere import distance

TWO_CAPS = Mixture([VonMisesFisher([1, 0.3, 0.2], 3.0), VonMisesFisher([-1, 0.3, 0.8], 40.0)], [0.6, 0.4])
ON_CIRCLE = Mixture([VonMisesFisher([1, 0.3], 3.0), VonMisesFisher([-1, 0.8], 40.0)], [0.6, 0.4])


class Density:
    """A density on S^1, a function of the angle in [-pi, pi]."""

    dimension = 2

    def __init__(self, function):
        self.function = function

    def __call__(self, points):
        return self.function(np.arctan2(points[:, 1], points[:, 0]))


def angles(measure):
    return np.arctan2(measure.points[:, 1], measure.points[:, 0])


def cap_cumulative(angle, mean, kappa):
    """F(angle) - F(-pi) of a von Mises law, by its Fourier series."""
    k = np.arange(1, 80 + int(12 * np.sqrt(kappa)))
    ratios = ive(k, kappa) / ive(0, kappa) / (k * np.pi)
    return (angle + np.pi) / (2 * np.pi) + np.sin(np.outer(angle - mean, k)) @ ratios - np.sin(k * (-np.pi - mean)) @ ratios


def slope(counts, errors):
    return np.polyfit(np.log(counts), np.log(errors), 1)[0]


@cache
def reference(make, size, law):
    mesh = make(size)
    return Measure(mesh.centroids, project(mesh, law) * mesh.areas)


ONE_CAP = [[(1.0, mean, kappa)] for mean, kappa in ((0.0, 0.0), (1.1, 0.7), (-2.9, 30.0), (3.1, 1e3), (0.4, 1e5))]
TWO = [[(0.7, 1.0, 0.5), (0.3, -1.234, 1e4)], [(0.999, 2.0, 2.0), (0.001, 2.5, 1e5)]]


@pytest.mark.parametrize("caps", ONE_CAP + TWO)
@pytest.mark.parametrize("count", [1, 7, 3000])
def test_circle_tokens_lie_at_their_quantiles(caps, count):
    shares = [share for share, _, _ in caps]
    law = Mixture([VonMisesFisher([np.cos(mean), np.sin(mean)], kappa) for _, mean, kappa in caps], shares)
    tokens = stratified(law, count, seed=5)
    assert (tokens.masses == 1 / count).all()
    mass = sum(share * cap_cumulative(angles(tokens), mean, kappa) for share, mean, kappa in caps)
    drawn = np.arange(count) + np.random.default_rng(5).random(count)
    np.testing.assert_allclose(mass, drawn / count, atol=2e-12)


def test_a_fixed_resolution_would_not_do():
    """Control: the same inversion on 4 096 equal steps is off by far more than rounding where a cap is narrow."""
    grid = np.linspace(-np.pi, np.pi, 4097)
    law = VonMisesFisher([1, 0], 1e5)
    steps = law(np.stack([np.cos(grid), np.sin(grid)], axis=1))
    mass = np.concatenate([[0], np.cumsum((steps[1:] + steps[:-1]) / 2 * np.diff(grid))])
    positions = np.interp((np.arange(1000) + 0.5) / 1000, mass, grid)
    assert np.abs(cap_cumulative(positions, 0.0, 1e5) - (np.arange(1000) + 0.5) / 1000).max() > 1e-3


def test_laws_with_jumps_and_without_mass_on_an_arc():
    steps = Density(lambda angle: np.where(np.abs(angle - 0.123) < 0.7, 0.5, 0.0) + np.where(angle < -2, 0.3 / (np.pi - 2), 0.0))
    tokens = stratified(steps, 1000, seed=1)
    where = np.sort(angles(tokens))
    assert ((where < -2) | (np.abs(where - 0.123) < 0.7)).all()
    assert (where < -2).sum() == 300
    mass = np.where(where < -2, (where + np.pi) * 0.3 / (np.pi - 2), 0.3 + (where - 0.123 + 0.7) * 0.5)
    np.testing.assert_allclose(mass, (np.arange(1000) + np.random.default_rng(1).random(1000)) / 1000, atol=1e-12)


@pytest.mark.parametrize(
    ("function", "message"),
    [
        (lambda s: np.full(len(s), 0.16), "law has mass 1.0053"),
        (lambda s: 0.25 / np.pi + 5e7 * np.exp(-np.pi * (1e8 * (s - 1)) ** 2), "law has mass 0.5, wanted 1 .*; a peak narrower"),
        (lambda s: (1 + 2 * np.cos(s)) / (2 * np.pi), r"law\(points\)\[\d+\] is -0.159.*, wanted a number >= 0"),
        (lambda s: (1 + np.sin(1e7 * s)) / (2 * np.pi), "law is rough on 262144 arcs"),
        (lambda s: np.full(len(s), np.nan), r"law\(points\)\[0\] is nan"),
        (lambda s: np.ones(3), r"law\(points\) has shape \(3,\), wanted \(16384,\)"),
    ],
)
def test_laws_refused_on_the_circle(function, message):
    with pytest.raises(ValueError, match=message):
        stratified(Density(function), 10, seed=0)


def test_circle_tokens_are_right_on_average():
    """Four tokens a run, drawn within their arcs: the mean over runs is the law's, while that of tokens at the arcs' medians is not."""
    law, runs = VonMisesFisher([1, 0.5], 2.0), 400
    exact = ive(1, 2.0) / ive(0, 2.0) * law.mean
    means = np.array([stratified(law, 4, seed).mean() for seed in range(runs)])
    noise = means.std(axis=0) / np.sqrt(runs)
    assert (np.abs(means.mean(axis=0) - exact) < 4 * noise).all()
    medians = stratified(law, 4000, 0).points[500::1000].mean(axis=0)
    assert np.linalg.norm(medians - exact) > 8 * np.linalg.norm(noise)


@pytest.mark.slow
def test_rate_on_the_circle():
    fine, counts, seeds = reference(circle, 1 << 17, ON_CIRCLE), (16, 64, 256, 1024), range(4)
    even = [np.mean([distances.wasserstein(stratified(ON_CIRCLE, n, s), fine) for s in seeds]) for n in counts]
    free = [np.mean([distances.wasserstein(Measure(sample(ON_CIRCLE, n, s)), fine) for s in seeds]) for n in counts]
    assert slope(counts, even) < -0.9
    assert -0.65 < slope(counts, free) < -0.35  # control: independent tokens


def test_rate_of_smooth_integrals_on_the_circle():
    law = Moebius([0.3, 0.4])
    fine, counts = reference(circle, 1 << 16, law), (16, 64, 256, 1024)
    smooth = [np.mean([distances.mmd(stratified(law, n, s), fine, 4.0) for s in range(6)]) for n in counts]
    assert slope(counts, smooth) < -1.4


@pytest.mark.slow
def test_rate_on_the_sphere():
    fine, counts = reference(icosahedral, 4, TWO_CAPS), (16, 32, 64, 128)
    far = [np.mean([distances.wasserstein(stratified(TWO_CAPS, n, s), fine) for s in range(3)]) for n in counts]
    assert -0.6 < slope(counts, far) < -0.4
    fine, counts, seeds = reference(icosahedral, 6, TWO_CAPS), (100, 400, 1600), range(3)
    smooth = [np.mean([distances.mmd(stratified(TWO_CAPS, n, s), fine, 4.0) for s in seeds]) for n in counts]
    free = [np.mean([distances.mmd(Measure(sample(TWO_CAPS, n, s)), fine, 4.0) for s in seeds]) for n in counts]
    assert slope(counts, smooth) < -0.9
    assert -0.6 < slope(counts, free) < -0.4  # control: independent tokens


@pytest.mark.slow
@pytest.mark.parametrize("law", [ON_CIRCLE, TWO_CAPS])
def test_the_mean_is_far_closer_than_that_of_independent_tokens(law):
    fine = reference(circle, 1 << 17, law) if law.dimension == 2 else reference(icosahedral, 6, law)
    errors = {
        make: np.mean([np.linalg.norm(make(seed).mean() - fine.mean()) for seed in range(10)])
        for make in (lambda seed: stratified(law, 500, seed), lambda seed: Measure(sample(law, 500, seed)))
    }
    even, free = errors.values()
    assert 0.02 < free < 0.1
    assert even < free / 20


def test_sphere_masses_are_the_law_over_the_nearest_points():
    tokens = stratified(TWO_CAPS, 50, seed=2)
    assert tokens.total == pytest.approx(1, abs=1e-14)
    fine = reference(icosahedral, 6, TWO_CAPS)
    near, _ = distances.aggregate(fine, tokens.points)
    assert len(near) == 50
    np.testing.assert_allclose(near.masses, tokens.masses, rtol=0.02, atol=2e-4)
    assert tokens.masses.max() > 10 * tokens.masses.min()


@pytest.mark.parametrize("count", [4, 5, 6, 7, 12, 40, 500])
def test_sphere_tokens_are_evenly_spread(count):
    tokens = stratified(Uniform(3), count, seed=3)
    assert len(tokens) == count and tokens.total == pytest.approx(1, abs=1e-14)
    near = np.sort(distance(tokens.points[:, None], tokens.points), axis=1)[:, 1]
    assert near.min() > 2.6 / np.sqrt(count)
    free = sample(Uniform(3), count, 3)
    assert np.sort(distance(free[:, None], free), axis=1)[:, 1].min() < 2.0 / np.sqrt(count)  # control
    if count > 6:
        assert tokens.masses.max() < 1.5 * tokens.masses.min()


def test_a_narrow_law_on_few_cells_of_the_sphere():
    for count in (4, 20, 300):
        assert stratified(VonMisesFisher([1, 2, 3], 1e3), count, 0).total == pytest.approx(1, abs=1e-14)


@pytest.mark.parametrize("law", [Moebius([0.3, 0.4]), PerturbedUniform(2, noise=0.05, seed=1), PerturbedUniform(3, [(3, 0.2, (0, 1, 1))])])
def test_same_seed_same_tokens(law):
    for seed in (0, 7, (3, 100, 2), [5]):
        assert stratified(law, 60, seed) == stratified(law, 60, seed)
    assert stratified(law, 60, 5) == stratified(law, 60, np.int64(5))
    different = [stratified(law, 60, seed).points for seed in (0, 1, (0, 1), (1, 2))]
    for i in range(4):
        for j in range(i):
            assert np.abs(different[i] - different[j]).max() > 1e-3


def test_refused_inputs():
    with pytest.raises(ValueError, match=r"law lives in R\^4, wanted R\^2 or R\^3"):
        stratified(Uniform(4), 10, 0)
    for count in (3, 1, 0, 4.5):
        with pytest.raises(ValueError, match=f"count is {count}, wanted an integer at least 4"):
            stratified(Uniform(3), count, 0)
    with pytest.raises(ValueError, match="count is 0, wanted an integer at least 1"):
        stratified(Uniform(2), 0, 0)
    for seed in (-1, 1.5, "a", None, True, [-1], [0.5], (1, "a")):
        with pytest.raises(ValueError, match=r"seed is .*, wanted an integer >= 0 or a sequence of them"):
            stratified(Uniform(2), 10, seed)
    unnormalised = PerturbedUniform(3)
    with pytest.raises(ValueError, match="law has mass 2"):
        stratified(type("Twice", (), {"dimension": 3, "__call__": lambda self, x: 2 * unnormalised(x)})(), 10, 0)
