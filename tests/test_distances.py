"""Distances: Wasserstein (cases D1 to D5 and S7) and maximum mean discrepancy; brute force, invariances, refusals."""

import resource
import subprocess
import sys

import numpy as np
import pytest
from scipy.optimize import linear_sum_assignment, linprog
from scipy.spatial.transform import Rotation
from scipy.special import ive

from meanfield_pde.diagnostics import distances
from meanfield_pde.diagnostics.distances import aggregate, mmd, wasserstein
from meanfield_pde.integrals.harmonics import kernel_band
from meanfield_pde.measure import Measure
from meanfield_pde.sphere import distance, normalise


def circle(angles):
    return np.stack([np.cos(angles), np.sin(angles)], axis=-1)


def turns(values, masses=None):
    return Measure(circle(2 * np.pi * np.asarray(values)), masses)


def cloud(rng, n, d, weighted=True, centre=None, width=1.0):
    shift = np.zeros(d) if centre is None else np.asarray(centre)
    masses = rng.random(n) + 0.01 if weighted else np.ones(n)
    return Measure(normalise(shift + width * rng.normal(size=(n, d))), masses / masses.sum())


def rotated(measure, matrix):
    return Measure(normalise(measure.points @ matrix.T), measure.masses)


def pair_costs(a, b, order):
    return distance(a.points[:, None], b.points[None]) ** order


def by_assignment(a, b, order):
    costs = pair_costs(a, b, order)
    return costs[linear_sum_assignment(costs)].mean() ** (1 / order)


def by_linear_program(a, b, order):
    costs, (n, m) = pair_costs(a, b, order), (len(a), len(b))
    rows, columns = np.kron(np.eye(n), np.ones(m)), np.kron(np.ones(n), np.eye(m))
    scale = costs.max()  # highs has absolute tolerances
    result = linprog(costs.ravel() / scale, A_eq=np.vstack([rows, columns]), b_eq=np.concatenate([a.masses, b.masses]))
    assert result.status == 0
    return (result.fun * scale) ** (1 / order)


@pytest.mark.parametrize("shift", [0, 0.02, 0.37])
def test_d1_common_rotation_of_the_circle(shift):
    a, b = turns(np.array([0.1, 0.11, 0.4, 0.6]) + shift), turns(np.array([0.21, 0.15, 0.7, 0.95]) + shift)
    assert wasserstein(a, b) / (2 * np.pi) == pytest.approx(0.12, rel=1e-13)
    assert (wasserstein(a, b, order=2) / (2 * np.pi)) ** 2 == pytest.approx(0.01755, rel=1e-13)


def test_d1_needs_the_best_cut():
    """Control: cutting the circle at angle 0, as on a line, gives another number."""
    a, b = np.sort([0.1, 0.11, 0.4, 0.6]), np.sort([0.21, 0.15, 0.7, 0.95])
    assert np.abs(a - b).mean() > 0.16


@pytest.mark.parametrize("order", [1, 2])
@pytest.mark.parametrize("d", [2, 3, 4])
def test_equal_weights_against_assignment(d, order):
    rng = np.random.default_rng(d)
    for n in (1, 2, 5, 60):
        a, b = cloud(rng, n, d, weighted=False), cloud(rng, n, d, weighted=False, centre=np.eye(d)[0])
        assert wasserstein(a, b, order) == pytest.approx(by_assignment(a, b, order), rel=1e-12)


@pytest.mark.parametrize("order", [1, 2])
@pytest.mark.parametrize("d", [2, 3])
def test_any_weights_and_sizes_against_linear_program(d, order):
    rng = np.random.default_rng(10 + d)
    for n, m in ((1, 7), (6, 6), (9, 17)):
        a, b = cloud(rng, n, d), cloud(rng, m, d, centre=np.eye(d)[0])
        assert wasserstein(a, b, order) == pytest.approx(by_linear_program(a, b, order), rel=1e-8)


@pytest.mark.parametrize("order", [1, 2])
def test_narrow_clouds_of_unequal_size_on_the_circle(order):
    """Where POT 0.9.7's circle distances are off by a whole turn (13 against 38 equal points, 1e-8 wide)."""
    rng = np.random.default_rng(60)
    for width in (1e-2, 1e-5, 1e-8):
        s, t = width * rng.normal(size=13), width * rng.normal(size=38)
        a, b = Measure(circle(s)), Measure(circle(t))
        s, t = np.repeat(np.sort(s), 38), np.repeat(np.sort(t), 13)
        assert wasserstein(a, b, order) == pytest.approx(np.mean(np.abs(s - t) ** order) ** (1 / order), rel=1e-7)


@pytest.mark.parametrize("order", [1, 2])
def test_the_cut_may_lie_anywhere(order):
    """Clusters on both sides of angle pi, weights over ten decades: rotating both measures changes nothing."""
    rng = np.random.default_rng(3)
    weights = 10.0 ** rng.uniform(-10, 0, 40)
    a, b = rng.normal(0, 0.2, 40), rng.normal(0.1, 0.2, 25)
    values = [
        wasserstein(Measure(circle(a + shift), weights / weights.sum()), Measure(circle(b + shift)), order)
        for shift in (0, 1.234, np.pi, -np.pi / 2, 3.0)
    ]
    assert np.ptp(values) <= 1e-12


def test_large_circles_agree_with_themselves():
    """1e5 points against 1e4 cells: the same measure with each point cut into two halves is the same measure."""
    rng = np.random.default_rng(4)
    tokens = Measure(circle(rng.vonmises(0, 2, 100_000)))
    weights = rng.random(10_000)
    cells = Measure(circle((np.arange(10_000) + 0.5) * 2 * np.pi / 10_000), weights / weights.sum())
    halves = Measure(np.repeat(cells.points, 2, axis=0), np.repeat(cells.masses / 2, 2))
    for order in (1, 2):
        value = wasserstein(tokens, cells, order)
        assert 0.5 < value < np.pi
        assert wasserstein(tokens, halves, order) == pytest.approx(value, rel=1e-10)
        assert wasserstein(cells, tokens, order) == pytest.approx(value, rel=1e-12)


@pytest.mark.parametrize("order", [1, 2])
@pytest.mark.parametrize("d", [2, 3])
def test_d3_identical_antipodal_and_close_points(d, order):
    north, x = np.eye(d)[:1], normalise(np.arange(1.0, d + 1))[None]
    across = np.eye(d)[1:2]
    close = np.cos(1e-9) * north + np.sin(1e-9) * across
    assert wasserstein(Measure(x), Measure(x), order) == 0
    assert wasserstein(Measure(x), Measure(-x), order) == pytest.approx(np.pi, rel=1e-15)
    assert wasserstein(Measure(north), Measure(close), order) == pytest.approx(1e-9, rel=1e-9)
    assert np.arccos((north * close).sum()) == 0  # control: arccos does not see the distance


@pytest.mark.parametrize("order", [1, 2])
@pytest.mark.parametrize("d", [2, 3])
def test_d5_same_measure_and_small_rotation(d, order):
    rng = np.random.default_rng(5)
    mu = cloud(rng, 300, d, centre=3 * np.eye(d)[0], width=0.1)
    assert wasserstein(mu, mu, order) <= 1e-12
    shuffle = rng.permutation(300)
    shuffled, other = Measure(mu.points[shuffle], mu.masses[shuffle]), cloud(rng, 50, d)
    assert wasserstein(mu, shuffled, order) <= 1e-12
    assert wasserstein(mu, other, order) == wasserstein(shuffled, other, order)
    for angle in (1e-3, 1e-6):
        matrix = np.eye(d)
        matrix[:2, :2] = [[np.cos(angle), -np.sin(angle)], [np.sin(angle), np.cos(angle)]]
        assert wasserstein(mu, rotated(mu, matrix), order) == pytest.approx(angle, rel=1e-2)


@pytest.mark.parametrize("order", [1, 2])
@pytest.mark.parametrize("d", [2, 3])
def test_metric(d, order):
    rng = np.random.default_rng(6)
    a, b, c = cloud(rng, 20, d), cloud(rng, 30, d, centre=np.eye(d)[0]), cloud(rng, 25, d, centre=np.eye(d)[1])
    ab, bc, ac = wasserstein(a, b, order), wasserstein(b, c, order), wasserstein(a, c, order)
    assert min(ab, bc, ac) > 0.1
    assert ac <= ab + bc + 1e-12
    assert wasserstein(b, a, order) == pytest.approx(ab, rel=1e-12)
    assert wasserstein(a, b, 1) <= wasserstein(a, b, 2) + 1e-12


def test_rotation_invariance_on_the_sphere():
    rng = np.random.default_rng(7)
    a, b, matrix = cloud(rng, 80, 3), cloud(rng, 120, 3, centre=(1, 0, 0)), Rotation.random(random_state=1).as_matrix()
    for order in (1, 2):
        both = wasserstein(rotated(a, matrix), rotated(b, matrix), order)
        assert both == pytest.approx(wasserstein(a, b, order), rel=1e-12)


def test_mass_scales_and_empty_points_take_no_part():
    rng = np.random.default_rng(8)
    for d in (2, 3):
        a, b = cloud(rng, 10, d), cloud(rng, 12, d)
        extra = Measure(np.vstack([a.points, np.eye(d)]), np.concatenate([a.masses, np.zeros(d)]))
        for order in (1, 2):
            value = wasserstein(a, b, order)
            assert wasserstein(extra, b, order) == value
            heavy = wasserstein(Measure(a.points, 8 * a.masses), Measure(b.points, 8 * b.masses), order)
            assert heavy == pytest.approx(8 ** (1 / order) * value, rel=1e-12)


def test_refused_inputs():
    rng = np.random.default_rng(9)
    a, b = cloud(rng, 5, 3), cloud(rng, 5, 3)
    with pytest.raises(ValueError, match=r"total masses are 1 \(a\) and 1.00001 \(b\)"):
        wasserstein(a, Measure(b.points, b.masses * 1.00001))
    wasserstein(a, Measure(b.points, b.masses * (1 + 1e-10)))
    with pytest.raises(ValueError, match="positive mass"):
        wasserstein(Measure(a.points, np.zeros(5)), Measure(b.points, np.zeros(5)))
    with pytest.raises(ValueError, match=r"R\^3 and b in R\^2"):
        wasserstein(a, cloud(rng, 5, 2))
    for order in (0, 3, 1.5, True, "2"):
        with pytest.raises(ValueError, match="order is"):
            wasserstein(a, b, order)


def test_d2_too_large_a_plan_is_refused_before_any_memory_is_taken():
    rng = np.random.default_rng(10)
    tokens, cells = cloud(rng, 100_000, 3, weighted=False), cloud(rng, 10_242, 3)
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    with pytest.raises(ValueError, match=r"100000 and 10242 points needs about 45.0648 GB, more than max_bytes = 2 GB; .*aggregate"):
        wasserstein(tokens, cells)
    assert (resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before) * 1024 < 1e8


@pytest.mark.slow
def test_d2_the_estimate_of_memory_is_what_a_plan_takes():
    """The growth of the peak between two sizes, run apart from other tests; an estimate above the need would refuse too much."""
    script = (
        "import numpy as np\n"
        "from meanfield_pde.diagnostics.distances import wasserstein\n"
        "from meanfield_pde.measure import Measure\n"
        "from meanfield_pde.sphere import normalise\n"
        "rng = np.random.default_rng(0)\n"
        "for n in (1000, 2000):\n"
        "    wasserstein(*(Measure(normalise(rng.normal(size=(n, 3)))) for _ in range(2)))\n"
        "    print(next(int(line.split()[1]) * 1024 for line in open('/proc/self/status') if line.startswith('VmHWM')))\n"
    )
    result = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    small, large = map(int, result.stdout.split())
    assert 0.8 * distances.BYTES_PER_PAIR < (large - small) / 3e6 < distances.BYTES_PER_PAIR


def test_d2_a_capped_plan_raises(monkeypatch):
    rng = np.random.default_rng(11)
    a, b = cloud(rng, 100, 3), cloud(rng, 120, 3)
    wasserstein(a, b)
    monkeypatch.setattr(distances, "_MAX_PIVOTS", 50)
    with pytest.raises(RuntimeError, match="100 and 120 points is not optimal"):
        wasserstein(a, b)


@pytest.mark.parametrize(
    ("spoil", "message"),
    [
        (lambda a, log: log["G"].__setitem__((0, 0), log["G"][0, 0] + 1e-6), "marginals off by 2e-06"),
        (lambda a, log: log["u"].__iadd__(-1e-6), "duality gap 1e-06"),
        (lambda a, log: log["u"].__iadd__(1e-6 * np.eye(len(a))[0] / a[0] - 1e-6 * np.eye(len(a))[1] / a[1]), "duals by [1-9]"),
    ],
)
def test_d2_a_wrong_plan_raises_even_if_pot_is_content(monkeypatch, spoil, message):
    """The three parts of the certificate, one spoilt at a time."""
    import ot

    solve = ot.emd2

    def spoilt(a, b, cost, **kwargs):
        value, log = solve(a, b, cost, **kwargs)
        spoil(a, log)
        return value, log

    rng = np.random.default_rng(12)
    a, b = cloud(rng, 30, 3), cloud(rng, 40, 3)
    monkeypatch.setattr(ot, "emd2", spoilt)
    with pytest.raises(RuntimeError, match=f"POT says None.*{message}"):
        wasserstein(a, b)


def test_aggregate_bounds_its_error():
    rng = np.random.default_rng(13)
    tokens, other, targets = cloud(rng, 400, 3, centre=(0, 0, 2)), cloud(rng, 100, 3), cloud(rng, 150, 3).points
    coarse, moved = aggregate(tokens, targets)
    assert len(coarse) < 150 and (coarse.masses > 0).all()
    assert coarse.total == pytest.approx(1, rel=1e-14)
    assert wasserstein(tokens, coarse) == pytest.approx(moved, rel=1e-12)  # the nearest target is the best plan to these masses
    assert abs(wasserstein(tokens, other) - wasserstein(coarse, other)) <= moved
    nearest = distance(tokens.points[:, None], targets[None]).argmin(axis=1)
    assert moved == pytest.approx((tokens.masses * distance(tokens.points, targets[nearest])).sum(), rel=1e-12)
    same, nothing = aggregate(tokens, tokens.points)
    assert nothing == 0 and wasserstein(same, tokens) == 0


@pytest.mark.parametrize("masses", [(1, 1e-10), (1e-10, 1)])
def test_s7_small_masses_are_kept(masses):
    targets = np.eye(3)
    coarse, _ = aggregate(Measure(targets[:2], masses), targets)
    assert coarse.masses.tolist() == list(masses)
    together, _ = aggregate(Measure(targets[:2], masses), targets[2:])
    assert together.total == 1 + 1e-10
    assert np.float32(1) + np.float32(1e-10) == 1  # control: what a float32 histogram makes of it


def test_aggregate_refuses_other_targets():
    a = Measure(np.eye(3))
    with pytest.raises(ValueError, match=r"targets has shape \(2, 2\), wanted \(n, 3\)"):
        aggregate(a, np.eye(2))
    with pytest.raises(ValueError, match=r"targets\[1\] has length 2"):
        aggregate(a, np.diag([1.0, 2.0, 1.0]))
    with pytest.raises(ValueError, match="at least one"):
        aggregate(a, np.empty((0, 3)))


def double_sum(a, b, beta):
    """MMD by its definition, in extended precision: the sum over all pairs of the signed measure."""
    points = np.vstack([a.points, b.points]).astype(np.longdouble)
    signed = np.concatenate([a.masses, -b.masses]).astype(np.longdouble)
    if beta == 0:
        return float(np.sqrt(signed @ (points @ points.T) @ signed))
    squares = ((points[:, None] - points) ** 2).sum(axis=2)
    return float(np.sqrt(signed @ np.exp(-np.longdouble(beta) / 2 * squares) @ signed))


@pytest.mark.parametrize("d", [2, 3, 8])
@pytest.mark.parametrize("beta", [0, 1e-3, 0.7, 4.0, 30.0, 500.0, 1e4])
def test_mmd_is_the_double_sum(lopsided, d, beta):
    for n, m, seed in ((1, 1, 0), (1, 30, 1), (40, 40, 2), (60, 25, 3)):
        a, b = lopsided(d, n, seed=seed), lopsided(d, m, seed=seed + 10)
        assert mmd(a, b, beta) == pytest.approx(double_sum(a, b, beta), rel=1e-12)


def test_mmd_in_blocks_is_the_same(lopsided, monkeypatch):
    a, b = lopsided(5, 70), lopsided(5, 41, seed=1)
    whole = mmd(a, b, 3.0)
    monkeypatch.setattr(distances, "BLOCK_PAIRS", 700)
    assert mmd(a, b, 3.0) == pytest.approx(whole, rel=1e-14)


@pytest.mark.parametrize("d", [2, 3, 8])
@pytest.mark.parametrize("beta", [1.0, 4.0, 500.0])
def test_mmd_of_two_diracs(d, beta):
    x, across = normalise(np.arange(1.0, d + 1)), normalise(np.eye(d)[0] * 5 - np.eye(d)[1])
    across = normalise(across - (across @ x) * x)
    for angle in (np.pi, 2.0, 1e-1, 1e-3, 1e-6, 1e-9):
        value = mmd(Measure(x[None]), Measure((np.cos(angle) * x + np.sin(angle) * across)[None]), beta)
        exact = np.sqrt(-2 * np.expm1(-2 * beta * np.sin(angle / 2) ** 2))
        assert value == pytest.approx(exact, rel=1e-13, abs=2e-14 if angle > 1e-8 else 2e-15)
    assert 2 - 2 * np.exp(beta * (np.cos(1e-9) - 1)) == 0  # control: the kernel as written does not see the distance


@pytest.mark.parametrize("d", [2, 3])
@pytest.mark.parametrize("beta", [0.5, 20.0])
def test_mmd_sees_waves_that_the_kernel_smooths_away(d, beta):
    """Two densities that differ by one wave: MMD^2, about 1e-19, is its kernel factor times its square.

    The control is the degree: it lies beyond those that give the kernel itself to 1e-14.
    """
    degree, amplitude = 42 if beta > 1 else 12, 0.5
    if d == 2:
        angles = 2 * np.pi * np.arange(400) / 400
        points, wave, weights = circle(angles), np.cos(degree * angles), np.full(400, 1 / 400)
        exact = amplitude * np.sqrt(ive(degree, beta) / 2)
    else:
        heights, weights = np.polynomial.legendre.leggauss(60)
        longitudes = 2 * np.pi * np.arange(120) / 120
        radius = np.sqrt(1 - heights**2)[:, None]
        points = np.stack([radius * np.cos(longitudes), radius * np.sin(longitudes), heights[:, None] + 0 * longitudes], axis=2)
        wave = np.repeat(np.polynomial.Legendre.basis(degree)(heights), 120)
        points, weights = normalise(points.reshape(-1, 3)), np.repeat(weights / 240, 120)
        exact = amplitude * np.sqrt(np.sqrt(np.pi / (2 * beta)) * ive(degree + 0.5, beta) / (2 * degree + 1))
    flat, wavy = Measure(points, weights), Measure(points, weights * (1 + amplitude * wave))
    assert degree > kernel_band(d, beta, 1e-14)
    assert 1e-11 < exact < 1e-8
    assert mmd(flat, wavy, beta) == pytest.approx(exact, rel=1e-9)


def test_mmd_at_beta_zero_is_the_distance_of_means(lopsided):
    for d in (2, 3, 8):
        a, b = lopsided(d, 30), lopsided(d, 20, seed=1)
        value = mmd(a, b, 0)
        assert value == pytest.approx(np.linalg.norm(a.mean() - b.mean()), rel=1e-14)
        assert mmd(a, b, 1e-26) / 1e-13 == pytest.approx(value, rel=1e-10)  # what the kernel (k - 1)/beta tends to


@pytest.mark.parametrize("beta", [0, 1.0, 9.0, 500.0])
@pytest.mark.parametrize("d", [2, 3, 8])
def test_mmd_is_a_metric(lopsided, d, beta):
    a, b, c = lopsided(d, 30), lopsided(d, 25, seed=1), lopsided(d, 1, seed=2)
    ab, bc, ac = mmd(a, b, beta), mmd(b, c, beta), mmd(a, c, beta)
    assert mmd(a, a, beta) == mmd(c, c, beta) == 0
    assert min(ab, bc, ac) > 0.01
    assert ac <= ab + bc and ab <= ac + bc and bc <= ab + ac
    assert mmd(b, a, beta) == pytest.approx(ab, rel=1e-13)
    assert max(ab, bc, ac) <= (np.sqrt(2) if beta else 2)
    shuffle = np.random.default_rng(3).permutation(30)
    assert mmd(a, Measure(a.points[shuffle], a.masses[shuffle]), beta) <= 1e-14


@pytest.mark.parametrize("d", [2, 3, 8])
def test_mmd_does_not_see_rotations_common_to_both(lopsided, rotation, d):
    a, b, matrix = lopsided(d, 60), lopsided(d, 40, seed=1), rotation(d)
    for beta in (0, 2.0, 80.0):
        assert mmd(rotated(a, matrix), rotated(b, matrix), beta) == pytest.approx(mmd(a, b, beta), rel=1e-12)
        assert mmd(rotated(a, matrix), a, beta) > 1e-2


@pytest.mark.parametrize("d", [2, 3, 5])
def test_mmd_scales_with_the_mass_and_sees_points_of_mass_only(lopsided, d):
    a, b = lopsided(d, 20), lopsided(d, 30, seed=1)
    split = Measure(np.repeat(a.points, 3, axis=0), np.repeat(a.masses / 3, 3))
    padded = Measure(np.vstack([a.points, np.eye(d)]), np.concatenate([a.masses, np.zeros(d)]))
    slightly = Measure(b.points, b.masses * (1 + 1e-10))
    for beta in (0, 5.0):
        value = mmd(a, b, beta)
        assert mmd(lopsided(d, 20, total=7.0), lopsided(d, 30, total=7.0, seed=1), beta) == pytest.approx(7 * value, rel=1e-13)
        for same in (mmd(split, b, beta), mmd(padded, b, beta)):
            assert same == pytest.approx(value, rel=1e-13)
        assert mmd(a, slightly, beta) == pytest.approx(value, rel=1e-9)
        assert mmd(b, slightly, beta) <= 1e-14


def test_mmd_of_many_points(lopsided):
    for d, beta in ((2, 4.0), (3, 4.0), (3, 500.0), (2, 1e5)):
        a, b = lopsided(d, 100_000), lopsided(d, 100_000, seed=1)
        assert 1e-3 < mmd(a, b, beta) < 0.05
        assert mmd(a, a, beta) == 0


def test_mmd_refuses(lopsided):
    a, b = lopsided(3), lopsided(3, seed=1)
    with pytest.raises(ValueError, match=r"total masses are 1 \(a\) and 1.00001 \(b\)"):
        mmd(a, Measure(b.points, b.masses * 1.00001), 1.0)
    with pytest.raises(ValueError, match=r"R\^3 and b in R\^2"):
        mmd(a, lopsided(2), 1.0)
    with pytest.raises(ValueError, match="positive mass"):
        mmd(a, Measure(np.empty((0, 3))), 1.0)
    for beta in (-1, 2e5, np.nan, "1"):
        with pytest.raises(ValueError, match="beta is"):
            mmd(a, b, beta)
