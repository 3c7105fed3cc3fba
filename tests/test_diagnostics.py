"""Energy, order parameter, clusters, pairs and entropy against closed forms and brute force."""

import math
import tracemalloc
from dataclasses import dataclass

import numpy as np
import pytest
from scipy.spatial.transform import Rotation

from meanfield_pde.diagnostics import measures as diagnostics
from meanfield_pde.diagnostics.measures import close_pairs, clusters, energy, entropy, inner_products, log_energy, order_parameter
from meanfield_pde.integrals.scaled import Scaled
from meanfield_pde.laws.law import Uniform, sample
from meanfield_pde.measure import Measure
from meanfield_pde.mesh.families import icosahedral
from meanfield_pde.models.attention import Attention
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
    assert Scaled.weighted_sum((np.ones(n), weights)).value == pytest.approx(math.fsum(weights) * math.e, rel=3e-16)
    assert abs(np.cumsum(weights)[-1] - math.fsum(weights)) > 1e-13


def test_scaled_numbers():
    big = Scaled.weighted_sum((np.array([1000.0]), np.array([1.0])), (np.array([1000.0]), np.array([2.0])))
    assert big.value == math.inf and big.log == pytest.approx(1000 + math.log(3), rel=1e-15)
    # e^720 alone overflows, the product does not
    assert Scaled(720.0, 1e-20).value == pytest.approx(math.exp(720 - 20 * math.log(10)), rel=1e-12)
    assert Scaled.weighted_sum((np.empty(0), np.empty(0))).log == -math.inf
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


@pytest.mark.slow
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


@pytest.fixture(params=["products", "tree"])
def way(request, monkeypatch):
    """Both ways to count pairs on S^1 and S^2."""
    monkeypatch.setattr(diagnostics, "TREE_POINTS", 0 if request.param == "tree" else 10**9)
    return request.param


def shares_by_hand(measure, edges, self_pairs):
    """Shares by a loop over pairs, edges told from products by 1e-12."""
    total = 0.0
    shares = [0.0] * (len(edges) - 1)
    for i, (x, mass) in enumerate(zip(measure.points, measure.masses, strict=True)):
        for j, (y, other) in enumerate(zip(measure.points, measure.masses, strict=True)):
            if i == j and not self_pairs:
                continue
            total += mass * other
            product = 1.0 if i == j else math.fsum(x * y)
            for k in range(len(edges) - 1):
                below = product <= edges[k + 1] + 1e-12 if k == len(edges) - 2 else product < edges[k + 1] - 1e-12
                if product >= edges[k] - 1e-12 and below:
                    shares[k] += mass * other
    return np.array(shares) / total


@pytest.mark.parametrize("self_pairs", [True, False])
@pytest.mark.parametrize("d", [2, 3, 8])
def test_inner_products_against_a_loop(lopsided, way, d, self_pairs):
    for edges in ([-1, -0.5, 0.1, 0.9, 0.999, 1], [-0.3, 0.2, 0.7], [0.9, 1.0], [-1, 0.4]):
        for n in (2, 3, 60):
            mu = lopsided(d, n, total=3.0, seed=n)
            found = inner_products(mu, edges, self_pairs)
            np.testing.assert_allclose(found, shares_by_hand(mu, edges, self_pairs), rtol=1e-12, atol=1e-300)
            whole = inner_products(mu, np.linspace(-1, 1, 8), self_pairs)
            assert whole.sum() == pytest.approx(1, rel=1e-13)
            assert close_pairs(mu, edges[0], self_pairs) == pytest.approx(inner_products(mu, [edges[0], 1.0], self_pairs)[0], rel=1e-14)


@pytest.mark.parametrize("d", [2, 3])
def test_both_ways_agree(monkeypatch, d):
    """Above and below the number of points at which the way changes, with groups of coincident points and masses over ten decades."""
    rng = np.random.default_rng(d)
    points = normalise(rng.normal(size=(1500, d)))
    points[1000:1200] = points[:200]
    mu = Measure(points, 10.0 ** rng.uniform(-10, 0, 1500))
    for edges in (np.linspace(-1, 1, 33), [-0.2, 0.5, 0.99, 0.999]):
        for self_pairs in (True, False):
            by_tree = inner_products(mu, edges, self_pairs)
            with monkeypatch.context() as context:
                context.setattr(diagnostics, "TREE_POINTS", 10**9)
                np.testing.assert_allclose(by_tree, inner_products(mu, edges, self_pairs), rtol=1e-11)
                context.setattr(diagnostics, "BLOCK_PAIRS", 10_000)
                np.testing.assert_allclose(by_tree, inner_products(mu, edges, self_pairs), rtol=1e-11)


def test_uniform_law_on_the_sphere_has_uniform_inner_products(way):
    """The cells of a mesh form a lattice, whose pairs in a bin scatter about its width, less and less on finer meshes."""
    edges, errors = np.linspace(-1, 1, 9), []
    for level in (2, 3, 4):
        mesh = icosahedral(level)
        mu = Measure(mesh.centroids, mesh.areas / mesh.areas.sum())
        errors.append(np.abs(inner_products(mu, edges) * 8 - 1).max())
        assert close_pairs(mu, 0.5) == pytest.approx(0.25, rel=errors[-1])
    assert errors[-1] < 0.01 < errors[0] / 10


def test_uniform_law_on_the_circle_has_arcsine_inner_products(way):
    n = 1000
    mu = Measure(ring(2 * np.pi * (np.arange(n) + 0.3) / n))
    edges = np.linspace(-1, 1, 21)
    found = inner_products(mu, edges)
    # two arcs of a lattice of n points hold what their lengths say, within one point each
    np.testing.assert_allclose(found, -np.diff(np.arccos(edges)) / np.pi, atol=2 / n)
    assert np.abs(found - np.diff(edges) / 2).max() > 0.05  # control: not the law on S^2


def test_pairs_on_an_edge_go_to_the_bin_above_it(way):
    """n points of equal distance, edges at all their inner products: every bin holds a whole number of pairs, known beforehand."""
    for n in (5, 12, 40, 101):
        mu = Measure(ring(2 * np.pi * np.arange(n) / n + 0.1234))
        edges = np.cos(2 * np.pi * np.arange(n // 2, -1, -1) / n)
        expected = np.full(n // 2, 2.0)
        expected[0] = 1.0 if n % 2 == 0 else 2.0  # antipodes are one pair in each direction
        expected[-1] += 1.0  # a point with itself lies on the last edge
        np.testing.assert_allclose(inner_products(mu, edges) * n, expected, rtol=1e-13)
        inner = inner_products(mu, edges[:-1]) * n  # the last bin holds the pairs on its right edge too
        np.testing.assert_allclose(inner, [*expected[:-2], expected[-2] + 2.0], rtol=1e-13)
        rounded = mu.points @ mu.points.T
        if n == 101:  # control: without the tolerance they scatter
            assert np.abs(np.histogram(rounded, edges)[0] / n - expected).max() > 0.2


def test_identical_and_antipodal_points(way):
    north = np.array([[0.36, 0.48, 0.8]])
    both = Measure(np.repeat(north, 2, axis=0) * [[1], [-1]], [0.75, 0.25])
    np.testing.assert_allclose(inner_products(both, [-1, -0.5, 0.5, 1]), [0.375, 0, 0.625], rtol=1e-15)
    np.testing.assert_allclose(inner_products(both, [-1, -0.5, 0.5, 1], self_pairs=False), [1, 0, 0], rtol=1e-15)
    assert close_pairs(both, -1, self_pairs=False) == 1 and close_pairs(both, 1, self_pairs=False) == 0
    same = Measure(np.repeat(normalise(north + 1e-3), 5, axis=0), [0.1, 0.2, 0.3, 0.0, 0.4])
    for cosine in (-1, 0, 0.999, 1):
        assert close_pairs(same, cosine) == pytest.approx(1, rel=1e-15)
        assert close_pairs(same, cosine, self_pairs=False) == pytest.approx(1, rel=1e-15)
    assert inner_products(same, [-1, 0, 0.9999]).tolist() == [0, 0]
    tilted = Measure([[1, 0, 0], [1, 0, 1e-200], [1 - 1e-9, 0, 0]])  # closer than any float tells; a length of 1 within the tolerance
    assert close_pairs(tilted, 1, self_pairs=False) == pytest.approx(1, rel=1e-15)
    for angle, share in ((1e-12, 1.0), (1e-6, 1.0), (2e-6, 0.5)):
        assert close_pairs(Measure(ring([0, angle])), 1) == pytest.approx(share, rel=1e-15)


def test_small_masses_keep_their_digits(way):
    angles, masses = [0.0, 0.01, 2.0], [1e-10, 3e-10, 1.0]
    mu = Measure(ring(angles), masses)
    others = 2 * (4e-10 + 3e-20)
    assert close_pairs(mu, 0.999, self_pairs=False) == pytest.approx(6e-20 / others, rel=1e-13)
    assert inner_products(mu, [np.cos(0.011), np.cos(0.009)])[0] == pytest.approx(6e-20 / (1 + 4e-10) ** 2, rel=1e-13)
    heavy = Measure(np.eye(3)[[0, 0, 1]], [1.0, 1e-10, 1e-12])
    assert close_pairs(heavy, 0.5, self_pairs=False) == pytest.approx(1e-10 / (1e-10 + 1e-12 + 1e-22), rel=1e-13)


def test_self_pairs_bias_tokens_by_one_over_n():
    n, runs, cosine = 50, 200, 0.6
    tokens = [Measure(sample(Uniform(3), n, seed)) for seed in range(runs)]
    law = (1 - cosine) / 2
    apart = np.array([close_pairs(mu, cosine, self_pairs=False) for mu in tokens])
    noise = apart.std() / np.sqrt(runs)
    assert abs(apart.mean() - law) < 4 * noise
    with_self = np.mean([close_pairs(mu, cosine) for mu in tokens])
    assert with_self - law == pytest.approx((1 - law) / n, abs=4 * noise) and with_self - law > 8 * noise


def test_shares_do_not_depend_on_mass_order_or_rotation(lopsided, rotation, way):
    edges = np.linspace(-1, 1, 12)
    for d in (2, 3, 6):
        mu, shuffle, matrix = lopsided(d, 80), np.random.default_rng(1).permutation(80), rotation(d)
        shares = inner_products(mu, edges)
        others = (
            Measure(mu.points, 1e6 * mu.masses),
            Measure(mu.points[shuffle], mu.masses[shuffle]),
            Measure(normalise(mu.points @ matrix.T), mu.masses),
            Measure(np.vstack([mu.points, np.eye(d)]), np.concatenate([mu.masses, np.zeros(d)])),
            Measure(np.repeat(mu.points, 2, axis=0), np.repeat(mu.masses / 2, 2)),
        )
        for other in others:
            np.testing.assert_allclose(inner_products(other, edges), shares, rtol=1e-11, atol=1e-300)


@pytest.mark.slow
def test_many_tokens_need_little_memory():
    mu = Measure(sample(Uniform(3), 50_000, 0))
    collapsed = Measure(np.eye(8)[np.arange(50_000) % 4])
    tracemalloc.start()
    share = close_pairs(mu, 0.999, self_pairs=False)
    shares = inner_products(collapsed, [-1, 0, 0.5, 1], self_pairs=False)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert share == pytest.approx(0.0005, rel=0.02)
    np.testing.assert_allclose(shares, [0, 0.75 * 50_000 / 49_999, (0.25 * 50_000 - 1) / 49_999], rtol=1e-12)
    assert peak < 1e8


def test_pair_shares_refuse():
    mu = Measure(np.eye(3))
    with pytest.raises(ValueError, match=r"edges\[2\] is 0.5 after 0.5, wanted increasing edges"):
        inner_products(mu, [0, 0.5, 0.5])
    with pytest.raises(ValueError, match=r"edges\[0\] is -1.1, wanted a number in \[-1, 1\]"):
        inner_products(mu, [-1.1, 0.5])
    with pytest.raises(ValueError, match="edges has 1 entries, wanted at least 2"):
        inner_products(mu, [0.5])
    with pytest.raises(ValueError, match=r"cosine is 1\.5"):
        close_pairs(mu, 1.5)
    with pytest.raises(ValueError, match="self_pairs is 'no', wanted True or False"):
        close_pairs(mu, 0.5, "no")
    with pytest.raises(ValueError, match="mass 0, wanted a positive mass"):
        close_pairs(Measure(np.eye(3), np.zeros(3)), 0.5)
    for one in (Measure(np.eye(3)[:1]), Measure(np.eye(3), [0, 2, 0])):
        assert close_pairs(one, 0.5) == 1
        with pytest.raises(ValueError, match="1 point of positive mass, wanted at least 2 with self_pairs=False"):
            close_pairs(one, 0.5, self_pairs=False)
