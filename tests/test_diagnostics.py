"""Energy, order parameter, clusters and entropy against closed forms and brute force."""

import math
import tracemalloc
from dataclasses import dataclass

import numpy as np
import pytest
from scipy.spatial.transform import Rotation

from meanfield_pde.attention.model import Attention
from meanfield_pde.diagnostics import clusters, energy, entropy, log_energy, order_parameter
from meanfield_pde.measure import Measure
from meanfield_pde.scaled import Scaled
from meanfield_pde.sphere import FloatArray, distance, normalise, surface_area


@dataclass
class Mesh:
    areas: FloatArray


def cloud(rng, n, d):
    masses = rng.random(n)
    return Measure(normalise(rng.normal(size=(n, d))), masses / masses.sum())


def ring(angles):
    return np.stack([np.cos(angles), np.sin(angles)], axis=-1)


@pytest.mark.parametrize("d", [2, 3, 5])
def test_energy_is_the_double_sum(d):
    rng = np.random.default_rng(d)
    mu, query, key = cloud(rng, 40, d), rng.normal(size=(d, d)), rng.normal(size=(d, d))
    for q, k in ((None, None), (query, None), (None, key), (query, key)):
        for beta in (0.3, 1.0, 5.0):
            left = mu.points if q is None else mu.points @ q.T
            right = mu.points if k is None else mu.points @ k.T
            double = mu.masses @ np.exp(beta * left @ right.T) @ mu.masses / (2 * beta)
            assert energy(Attention(beta, q, k), mu) == pytest.approx(double, rel=1e-13)
            assert log_energy(Attention(beta, q, k), mu) == pytest.approx(math.log(double), rel=1e-12, abs=1e-12)


def test_energy_of_one_point_and_of_two():
    one, two = Measure(np.eye(3)[:1]), Measure([[0, 0, 1], [0, 0, -1]])
    assert energy(Attention(1), one) == pytest.approx(math.e / 2, rel=3e-16)
    assert energy(Attention(1), two) == pytest.approx(math.cosh(1) / 2, rel=3e-16)
    assert energy(Attention(700.0), one) == pytest.approx(math.exp(700) / 1400, rel=1e-15)


def test_energy_scales_with_the_square_of_the_mass_not_with_the_number_of_points():
    rng = np.random.default_rng(1)
    mu = cloud(rng, 30, 3)
    value = energy(Attention(2.0), mu)
    assert energy(Attention(2.0), Measure(mu.points, 3 * mu.masses)) == pytest.approx(9 * value, rel=1e-14)
    split = Measure(np.repeat(mu.points, 4, axis=0), np.repeat(mu.masses / 4, 4))
    assert energy(Attention(2.0), split) == pytest.approx(value, rel=1e-14)
    padded = Measure(np.vstack([mu.points, np.eye(3)]), np.concatenate([mu.masses, np.zeros(3)]))
    assert energy(Attention(2.0), padded) == pytest.approx(value, rel=1e-15)


def test_scaled_sum_is_compensated():
    """1e5 equal weights: the sum to two roundings; a running sum is off by far more."""
    n = 100_000
    weights = np.full(n, 1 / n)
    assert Scaled.weighted_sum(np.ones(n), weights).value == pytest.approx(math.fsum(weights) * math.e, rel=3e-16)
    assert abs(np.cumsum(weights)[-1] - math.fsum(weights)) > 1e-13


def test_scaled_numbers():
    big = Scaled.weighted_sum(np.array([1000.0, 1000.0]), np.array([1.0, 2.0]))
    assert big.value == math.inf and big.log == pytest.approx(1000 + math.log(3), rel=1e-15)
    # e^720 alone overflows, the product does not
    assert Scaled(720.0, 1e-20).value == pytest.approx(math.exp(720 - 20 * math.log(10)), rel=1e-12)
    assert Scaled.weighted_sum(np.empty(0), np.empty(0)).log == -math.inf
    assert math.isnan(Scaled(0.0, -1.0).log)
    assert (Scaled(1.0, 6.0) / 2).value == pytest.approx(3 * math.e, rel=1e-15)


def test_energy_overflow_points_to_the_logarithm():
    mu = Measure(np.eye(3))
    for beta in (800.0, 1e5):
        with pytest.raises(OverflowError, match="use log_energy"):
            energy(Attention(beta), mu)
        assert log_energy(Attention(beta), mu) == pytest.approx(beta - math.log(3 * 2 * beta), rel=1e-14)
    # e^720 overflows, the energy of so light a measure does not
    light = Measure(np.eye(3)[:1], [1e-20])
    assert energy(Attention(720.0), light) == pytest.approx(math.exp(720 - 40 * math.log(10) - math.log(1440)), rel=1e-12)


def test_energy_at_beta_zero_is_the_limit():
    rng = np.random.default_rng(2)
    mu, query, key = cloud(rng, 20, 3), rng.normal(size=(3, 3)), rng.normal(size=(3, 3))
    assert energy(Attention(0), mu) == pytest.approx(order_parameter(mu) ** 2 / 2, rel=1e-14)
    for q, k in ((None, None), (query, key)):
        limit = energy(Attention(1e-6, q, k), mu) - mu.total**2 / 2e-6
        assert energy(Attention(0, q, k), mu) == pytest.approx(limit, abs=1e-5)
    assert log_energy(Attention(0), mu) == pytest.approx(math.log(energy(Attention(0), mu)), rel=1e-15)
    assert log_energy(Attention(0), Measure([[1, 0], [-1, 0]])) == -math.inf
    assert math.isnan(log_energy(Attention(0, query=-np.eye(3)), mu))


@pytest.mark.parametrize("beta", [3, 3.0, np.float64(3), np.float32(3), np.int64(3)])
def test_d4_type_of_beta_does_not_matter(beta):
    mu = cloud(np.random.default_rng(3), 20, 3)
    assert energy(Attention(beta), mu) == energy(Attention(3.0), mu)
    assert log_energy(Attention(beta), mu) == log_energy(Attention(3.0), mu)


def test_energy_without_mass():
    nothing = Measure(np.eye(3), np.zeros(3))
    for beta in (0.0, 1.0):
        assert energy(Attention(beta), nothing) == 0
        assert log_energy(Attention(beta), nothing) == -math.inf


def test_order_parameter():
    assert order_parameter(Measure([[0.6, 0.8]])) == pytest.approx(1, rel=1e-15)
    assert order_parameter(Measure(ring(np.arange(7) * 2 * np.pi / 7))) <= 1e-15
    assert order_parameter(Measure([[0, 0, 1], [0, 0, -1]], [0.75, 0.25])) == 0.5
    mu = cloud(np.random.default_rng(4), 30, 4)
    assert order_parameter(mu) == pytest.approx(np.linalg.norm((mu.masses[:, None] * mu.points).sum(axis=0)), rel=1e-14)


def brute_force(measure, angle):
    """Masses of the components, by flooding the full matrix of distances."""
    points, masses = measure.points[measure.masses > 0], measure.masses[measure.masses > 0]
    near = distance(points[:, None], points[None]) < angle
    left, found = set(range(len(points))), []
    while left:
        front = {left.pop()}
        component = set(front)
        while front:
            front = {int(j) for i in front for j in np.flatnonzero(near[i])} & left
            left -= front
            component |= front
        found.append(masses[list(component)].sum())
    return sorted(found, reverse=True)


@pytest.mark.parametrize("d", [2, 3, 6])
def test_clusters_against_brute_force(d):
    rng = np.random.default_rng(d)
    seen = set()
    for n in (1, 2, 17, 60, 300):
        spread = cloud(rng, n, d)
        centres = normalise(rng.normal(size=(max(n // 20, 1), d)))
        # tight groups of more points than the first search looks at, some of them doubled
        groups = Measure(normalise(centres[rng.integers(len(centres), size=n)] + 0.03 * rng.normal(size=(n, d)).round(2)))
        for mu in (spread, groups):
            for angle in (0.005, 0.02, 0.05, 0.1, 0.3, 0.8, 2.0, 3.1):
                found = clusters(mu, angle)
                seen.add(len(found))
                np.testing.assert_allclose([mass for mass, _ in found], brute_force(mu, angle), rtol=1e-12)
    assert len(seen) > 10


def test_clusters_joined_only_by_points_that_have_nearer_neighbours():
    """Two crowds of 40 whose only link is one pair of their edge points, each with 39 nearer ones of its own."""
    crowd = np.linspace(0, 0.05, 40)
    for gap, count in ((0.0999, 1), (0.1001, 2)):
        angles = np.concatenate([crowd, 0.05 + gap + crowd])
        assert len(clusters(Measure(ring(angles)), 0.1)) == count


def test_two_clusters_at_a_stated_angle():
    mu = Measure(ring([0.0, 0.5]), [0.7, 0.3])
    assert len(clusters(mu, 0.5 + 1e-9)) == 1
    (heavy, centre), (light, other) = clusters(mu, 0.5 - 1e-9)
    assert (heavy, light) == (0.7, 0.3)
    np.testing.assert_allclose(centre, [1, 0], atol=1e-15)
    np.testing.assert_allclose(other, [np.cos(0.5), np.sin(0.5)], atol=1e-15)
    antipodal = Measure([[0, 0, 1], [0, 0, -1]])
    assert len(clusters(antipodal, np.pi - 1e-6)) == 2


def test_a_chain_is_one_cluster():
    angles = np.linspace(0, 1.5, 16)
    (found,) = clusters(Measure(ring(angles)), 0.11)
    assert found[0] == pytest.approx(1, rel=1e-14)
    np.testing.assert_allclose(found[1], [np.cos(0.75), np.sin(0.75)], atol=1e-14)
    # control: the rank of the matrix of pairs counts several
    close = np.abs(angles[:, None] - angles) < 0.11
    assert np.linalg.matrix_rank(close.astype(float)) > 1


def test_centre_of_a_cluster_without_mean_is_its_heaviest_point():
    angles = np.arange(40) * 2 * np.pi / 40
    masses = np.where(np.arange(40) % 20 == 3, 2.0, 1.0)  # two heavy points, antipodal
    ((mass, centre),) = clusters(Measure(ring(angles), masses), 0.2)
    assert mass == 42
    np.testing.assert_allclose(np.abs(centre), np.abs(ring(angles[3])), atol=1e-15)


def test_clusters_do_not_depend_on_order_or_rotation():
    rng = np.random.default_rng(5)
    centres = normalise(rng.normal(size=(4, 3)))
    points = normalise(centres[rng.integers(4, size=200)] + 0.02 * rng.normal(size=(200, 3)))
    masses = rng.random(200)
    found = clusters(Measure(points, masses), 0.1)
    assert len(found) == 4
    shuffle, matrix = rng.permutation(200), Rotation.random(random_state=2).as_matrix()
    again = clusters(Measure(points[shuffle], masses[shuffle]), 0.1)
    turned = clusters(Measure(normalise(points @ matrix.T), masses), 0.1)
    for (mass, centre), (mass_again, centre_again), (mass_turned, centre_turned) in zip(found, again, turned, strict=True):
        assert mass_again == mass and (centre_again == centre).all()
        assert mass_turned == pytest.approx(mass, rel=1e-13)
        np.testing.assert_allclose(centre_turned, matrix @ centre, atol=1e-13)


def test_points_without_mass_do_not_link():
    points, masses = ring([0.0, 0.1, 0.2]), [0.5, 0.0, 0.5]
    assert len(clusters(Measure(points, masses), 0.15)) == 2
    assert len(clusters(Measure(points, [0.5, 1e-300, 0.5]), 0.15)) == 1
    assert clusters(Measure(points, np.zeros(3)), 0.15) == []


def test_floor_separates_the_hills_of_a_density():
    angles = (np.arange(360) + 0.5) * 2 * np.pi / 360
    density = 0.6 * np.exp(40 * (np.cos(angles - 1) - 1)) + 0.4 * np.exp(40 * (np.cos(angles - 3) - 1)) + 1e-3
    mu = Measure(ring(angles), density / density.sum())
    assert len(clusters(mu, 0.05)) == 1  # every cell has mass
    hills = clusters(mu, 0.05, floor=0.1)
    np.testing.assert_allclose([np.arctan2(*centre[::-1]) for _, centre in hills], [1, 3], atol=0.01)
    assert 0.9 < sum(mass for mass, _ in hills) < 1
    assert hills[0][0] / hills[1][0] == pytest.approx(1.5, rel=0.05)


@pytest.mark.parametrize("width", [0.0, 1e-15, 1e-9, 1e-3])
def test_collapsed_tokens_need_little_memory(width):
    """1e5 tokens in 3 clusters: the full graph would have 1.7e9 edges."""
    rng = np.random.default_rng(6)
    points = normalise(np.eye(3)[rng.integers(3, size=100_000)] + width * rng.normal(size=(100_000, 3)))
    mu = Measure(points)
    tracemalloc.start()
    found = clusters(mu, 0.05)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert len(found) == 3 and sum(mass for mass, _ in found) == pytest.approx(1, rel=1e-12)
    assert peak < 3e8


def test_clusters_refuses():
    mu = Measure(np.eye(3))
    for angle in (0, -1, np.pi, np.nan, "wide"):
        with pytest.raises(ValueError, match="angle is"):
            clusters(mu, angle)
    for floor in (-0.1, 1.0):
        with pytest.raises(ValueError, match="floor is"):
            clusters(mu, 0.1, floor=floor)


def test_entropy():
    rng = np.random.default_rng(7)
    areas = rng.random(1000)
    areas *= surface_area(3) / areas.sum()
    mesh = Mesh(areas)
    uniform = np.full(1000, 1 / surface_area(3))
    assert entropy(mesh, uniform) == pytest.approx(math.log(surface_area(3)), rel=1e-14)
    other = uniform * (1 + 0.5 * rng.uniform(-1, 1, 1000))
    assert entropy(mesh, other / (other @ areas)) < math.log(surface_area(3))
    empty = np.zeros(1000)
    empty[3] = 1 / areas[3]
    assert entropy(mesh, empty) == pytest.approx(math.log(areas[3]), rel=1e-14)
    with np.errstate(all="ignore"):
        assert np.isnan(-(areas * empty * np.log(empty)).sum())  # control: the formula as written


def test_entropy_refuses():
    mesh = Mesh(np.ones(3))
    with pytest.raises(ValueError, match=r"averages\[1\] is -1e-20, wanted a number >= 0"):
        entropy(mesh, [1, -1e-20, 1])
    with pytest.raises(ValueError, match=r"averages has shape \(4,\), wanted \(3,\)"):
        entropy(mesh, np.ones(4))
    with pytest.raises(ValueError, match=r"averages\[0\] is nan"):
        entropy(mesh, [np.nan, 1, 1])
