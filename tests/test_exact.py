"""Bessel functions and exact solutions against printed numbers, closed forms, direct quadrature and token equations written here."""

from functools import cache

import numpy as np
import pytest
from scipy.integrate import quad, solve_ivp
from scipy.special import eval_gegenbauer, expi, hyp0f1, ive

from meanfield_pde import exact
from meanfield_pde.bessel import bessel_ratio, log_lambda

CASES = [(2, 5.0), (3, 5.0), (3, 0.3), (5, 2.0)]


def token_velocity(x, masses, beta, normalised=True):
    """P_x A at every token by plain sums, (n, d) -> (n, d)."""
    logits = beta * x @ x.T
    kernel = np.exp(logits - logits.max()) * masses
    kernel = kernel / kernel.sum(axis=1, keepdims=True) if normalised else kernel * np.exp(logits.max())
    pull = kernel @ x
    return pull - (pull * x).sum(axis=1, keepdims=True) * x


def token_flow(x, masses, beta, times, normalised=True):
    """Tokens at the given times, (n_t, n, d)."""
    flow = solve_ivp(
        lambda _, y: token_velocity(y.reshape(x.shape), masses, beta, normalised).ravel(),
        (0, times[-1]),
        x.ravel(),
        method="DOP853",
        t_eval=times,
        rtol=1e-12,
        atol=1e-13,
    )
    return flow.y.T.reshape(len(times), *x.shape)


def circle(angles):
    return np.column_stack([np.cos(angles), np.sin(angles)])


def sphere_rule(n=60):
    """Points and probability weights on S^2, exact to degree 2n-1."""
    z, w = np.polynomial.legendre.leggauss(n)
    phi = 2 * np.pi * np.arange(2 * n) / (2 * n)
    zz, pp = np.meshgrid(z, phi, indexing="ij")
    s = np.sqrt(1 - zz**2)
    return np.stack([s * np.cos(pp), s * np.sin(pp), zz], axis=-1).reshape(-1, 3), np.repeat(w, 2 * n) / (4 * n)


legendre = cache(np.polynomial.legendre.leggauss)


def zonal_mean(d, f):
    """Mean over the uniform law of f(u), u one coordinate on S^{d-1}."""
    nodes, weights = legendre(400)
    angle = np.pi * (1 + nodes) / 2
    weight = weights * np.sin(angle) ** (d - 2)
    return weight @ f(np.cos(angle)) / weight.sum()


def gegenbauer(d, k, u):
    """Zonal harmonic of degree k with value 1 at u=1."""
    return np.cos(k * np.arccos(u)) if d == 2 else eval_gegenbauer(k, d / 2 - 1, u) / eval_gegenbauer(k, d / 2 - 1, 1.0)


# Bessel functions


@pytest.mark.parametrize("nu", [0.0, 0.5, 1.0, 4.5, 39.5, 40.0, 100.0])
def test_ratio_agrees_with_scipy(nu):
    r = np.array([[0.5, 3.0, 20.0], [150.0, 3e3, 1e6]])
    np.testing.assert_allclose(bessel_ratio(nu, r), ive(nu + 1, r) / ive(nu, r), rtol=2e-13)


def test_ratio_limits():
    r = np.array([0.0, 1e-300, 1e-8])
    np.testing.assert_allclose(bessel_ratio(511.0, r), r / 1024, rtol=1e-15)
    r = np.array([0.1, 1.0, 50.0, 1e6])
    np.testing.assert_allclose(bessel_ratio(0.5, r), 1 / np.tanh(r) - 1 / r, rtol=1e-13)
    assert 1 - bessel_ratio(0.0, 1e6) == pytest.approx(5e-7, rel=1e-6)


@pytest.mark.parametrize("d", [2, 3, 8, 128, 1024])
def test_log_lambda_of_degree_zero(d):
    beta = np.array([0.01, 1.0, 10.0, 200.0])
    np.testing.assert_allclose(log_lambda(d, 0, beta), np.log(hyp0f1(d / 2, beta**2 / 4)), rtol=1e-10, atol=1e-14)
    assert log_lambda(d, 0, 0.0) == 0


def test_log_lambda_in_closed_form_and_where_scipy_overflows():
    beta = np.array([1e-3, 0.5, 30.0, 1e3, 1e5])
    expected = beta + np.log(-np.expm1(-2 * beta) / (2 * beta))
    np.testing.assert_allclose(log_lambda(3, 0, beta), expected, rtol=1e-13, atol=1e-16)
    assert log_lambda(2, 3, 1e5) == pytest.approx(np.log(ive(3, 1e5)) + 1e5, rel=1e-15)
    # d=1024: I_511(1e5) by the large-argument expansion held in ive
    assert np.isinf(hyp0f1(512, 1e10 / 4))
    k = np.log(np.arange(1, 512)).sum() - 511 * np.log(1e5 / 2) + np.log(ive(511, 1e5)) + 1e5
    assert log_lambda(1024, 0, 1e5) == pytest.approx(k, rel=1e-13)


@pytest.mark.parametrize(("d", "beta"), CASES)
@pytest.mark.parametrize("k", [1, 2, 5])
def test_log_lambda_is_the_funk_hecke_eigenvalue(d, beta, k):
    expected = zonal_mean(d, lambda u: np.exp(beta * u) * gegenbauer(d, k, u))
    assert np.exp(log_lambda(d, k, beta)) == pytest.approx(expected, rel=1e-10)
    assert log_lambda(d, k, 0.0) == -np.inf


@pytest.mark.parametrize(
    ("call", "words"),
    [
        (lambda: log_lambda(1, 0, 1.0), "d is 1, wanted an integer at least 2"),
        (lambda: log_lambda(2, -1, 1.0), "k is -1"),
        (lambda: log_lambda(2, 0, [1.0, -2.0]), r"beta\[1\] is -2"),
        (lambda: bessel_ratio(-1.0, 1.0), "nu is -1"),
        (lambda: bessel_ratio(0.0, np.nan), "r is nan"),
    ],
)
def test_bessel_refuses(call, words):
    with pytest.raises(ValueError, match=words):
        call()


# Growth about the uniform density


@pytest.mark.parametrize(
    ("d", "beta", "normalised", "rates", "digits"),
    [
        (2, 5, True, [0.178677, 0.514117, 0.682678, 0.600089], 6),
        (2, 5, False, [4.867128, 14.004492, 18.596070, 16.346351], 6),
        (3, 5, True, [0.320036, 0.623935, 0.672349, 0.510968], 6),
        (3, 10, True, [0.18, 0.438, 0.642, 0.711], 3),
    ],
)
def test_growth_rates_as_printed(d, beta, normalised, rates, digits):
    found = [exact.growth_rate(d, beta, k, normalised) for k in (1, 2, 3, 4)]
    np.testing.assert_allclose(found, rates, rtol=0, atol=0.51 * 10.0**-digits)


@pytest.mark.parametrize("normalised", [True, False])
@pytest.mark.parametrize("k", [1, 2, 3])
def test_growth_rate_by_finite_differences_on_the_circle(k, normalised):
    # rho = (1 + e cos kx)/2pi: the continuity equation gives rho' = -(rho v)', whose mode k is growth * e
    beta, n = 3.0, 64
    x = 2 * np.pi * np.arange(n) / n
    kernel = np.exp(beta * np.cos(x[:, None] - x))
    pull = kernel * np.sin(x - x[:, None])

    def mode(e):
        masses = (1 + e * np.cos(k * x)) / n
        v = pull @ masses / (kernel @ masses if normalised else 1.0)
        # the integral of -(rho v)' cos kx is -k times that of rho v sin kx, and that of rho cos kx is e/2
        return -2 * k * (masses * v) @ np.sin(k * x)

    assert exact.growth_rate(2, beta, k, normalised) == pytest.approx((mode(1e-5) - mode(-1e-5)) / 2e-5, rel=1e-8)


@pytest.mark.parametrize("normalised", [True, False])
@pytest.mark.parametrize("k", [1, 2, 3])
def test_growth_rate_by_direct_integrals_on_the_sphere(k, normalised):
    # the field of f = 1 + e P_k(z) at x against -grad P_k: growth = int <v, grad P_k> / (e int P_k^2)
    beta, e = 4.0, 1e-5
    y, w = sphere_rule(24)
    x, wx = sphere_rule(8)
    harmonic = np.polynomial.Legendre.basis(k)
    kernel = np.exp(beta * x @ y.T)

    def mode(size):
        masses = w * (1 + size * harmonic(y[:, 2]))
        a = kernel @ (masses[:, None] * y) / ((kernel @ masses)[:, None] if normalised else 1.0)
        gradient = harmonic.deriv()(x[:, 2])[:, None] * (np.array([0, 0, 1]) - x[:, 2:] * x)
        return (wx * (1 + size * harmonic(x[:, 2])) * (a * gradient).sum(axis=1)).sum() * (2 * k + 1)

    assert exact.growth_rate(3, beta, k, normalised) == pytest.approx((mode(e) - mode(-e)) / (2 * e), rel=1e-7)


def test_growth_rate_limits():
    for d in (2, 3, 7, 1024):
        for normalised in (True, False):
            assert [exact.growth_rate(d, 0, k, normalised) for k in (0, 1, 2, 5)] == pytest.approx([0, (d - 1) / d, 0, 0], abs=1e-15)
        assert exact.growth_rate(d, 1e-9, 1) == pytest.approx((d - 1) / d, rel=1e-8)
    # Lambda_k/Lambda_0 -> 1
    assert exact.growth_rate(3, 1e5, 3) == pytest.approx(12 / 1e5, rel=1e-3)
    assert exact.growth_rate(2, 5, 2, value=-3.0) == pytest.approx(-3 * exact.growth_rate(2, 5, 2))
    assert np.isfinite(exact.growth_rate(3, 700, 2, normalised=False))
    with pytest.raises(OverflowError, match=r"growth rate is e\^"):
        exact.growth_rate(3, 1e4, 1, normalised=False)


# Moebius laws, beta = 0


def test_moebius_as_printed():
    np.testing.assert_allclose(exact.moebius(2, 0.3, [1, 2, 4]), [0.4603034, 0.6497905, 0.9185562], rtol=0, atol=0.51e-7)
    means = exact.moebius_mean(3, exact.moebius(3, 0.3, [1, 2, 3]))
    np.testing.assert_allclose(means, [0.6473419, 0.8683198, 0.9672611], rtol=0, atol=1e-7)


@pytest.mark.parametrize("d", [2, 3, 4, 7, 64])
@pytest.mark.parametrize("r", [0.05, 0.5, 0.9])
def test_moebius_mean_by_quadrature_of_the_density(d, r):
    def density(u):
        return ((1 - r**2) / (1 - 2 * r * u + r**2)) ** (d - 1)

    assert zonal_mean(d, density) == pytest.approx(1, rel=1e-9)
    assert exact.moebius_mean(d, r) == pytest.approx(zonal_mean(d, lambda u: u * density(u)), rel=1e-9)


def test_moebius_mean_at_both_ends():
    r = np.array([0.05, 0.3, 0.8, 0.99])
    closed = (1 + r**2) / (2 * r) - (1 - r**2) ** 2 / (4 * r**2) * np.log((1 + r) / (1 - r))
    np.testing.assert_allclose(exact.moebius_mean(3, r), closed, rtol=1e-12)
    small = np.array([0.0, 1e-300, 1e-9])
    for d in (2, 3, 5, 1024):
        np.testing.assert_allclose(exact.moebius_mean(d, small), 2 * (d - 1) / d * small, rtol=1e-15)
        assert exact.moebius_mean(d, 1.0) == pytest.approx(1, rel=1e-13)
        near = exact.moebius_mean(d, np.linspace(0.99, 1, 50))
        assert (np.diff(near) >= -1e-15).all()


@pytest.mark.parametrize("d", [2, 3, 4, 9])
def test_moebius_solves_its_equation(d):
    t, h = np.array([0.3, 1.0, 2.5]), 1e-4
    r = exact.moebius(d, 0.2, t)
    slope = (exact.moebius(d, 0.2, t + h) - exact.moebius(d, 0.2, t - h)) / (2 * h)
    np.testing.assert_allclose(slope, (1 - r**2) * exact.moebius_mean(d, r) / 2, rtol=1e-7)


def test_moebius_law_is_a_solution_of_the_continuity_equation():
    # d=3: rho' + div(rho P_x M) = 0 with div(rho P_x e) = (1-u^2) rho_u - 2 u rho, at a few u
    r, u, h = 0.4, np.linspace(-0.9, 0.9, 7), 1e-5
    mean = float(exact.moebius_mean(3, r))

    def rho(w, s):
        return ((1 - w**2) / (1 - 2 * w * s + w**2)) ** 2

    rate = (1 - r**2) * mean / 2
    left = rate * (rho(r + h, u) - rho(r - h, u)) / (2 * h)
    right = -mean * ((1 - u**2) * (rho(r, u + h) - rho(r, u - h)) / (2 * h) - 2 * u * rho(r, u))
    np.testing.assert_allclose(left, right, rtol=1e-7, atol=1e-8)


def test_moebius_shapes_order_and_ends():
    t = np.array([[2.0, 0.0], [0.5, 2.0]])
    r = exact.moebius(3, 0.3, t)
    assert r.shape == (2, 2) and r[0, 0] == r[1, 1] and r[0, 1] == pytest.approx(0.3, rel=1e-15)
    assert np.ndim(exact.moebius(3, 0.3, 1.0)) == 0
    for d in (2, 3):
        assert exact.moebius(d, 0.0, 5.0) == 0 and exact.moebius(d, 1.0, 5.0) == 1
        assert exact.moebius(d, 0.3, 1e6) == 1
        # from a tiny start the growth is that of mode 1
        assert exact.moebius(d, 1e-12, 3.0) == pytest.approx(1e-12 * np.exp(3 * exact.growth_rate(d, 0, 1)), rel=1e-11)


@pytest.mark.parametrize("start", [1e-6, 0.3, 0.95])
def test_moebius_time_by_quadrature(start):
    # r^2 = s: M_4 = (3/2) r (1 - r^2/3), so that dt = 2 dr/((1-r^2) M_4) has the primitive log(s/(1-s)^{3/2} * (3-s)^{1/2}) * 2/3
    def time(r):
        s = r**2
        return 2 / 3 * (np.log(s) - 1.5 * np.log1p(-s) + 0.5 * np.log(3 - s))

    t = np.array([0.5, 2.0, 6.0])
    np.testing.assert_allclose(time(exact.moebius(4, start, t)) - time(start), t, rtol=1e-10)


# von Mises-Fisher laws


def separated(d, angle):
    x, m = np.zeros(d), np.zeros(d)
    x[0], m[0], m[1] = 1, np.cos(angle), np.sin(angle)
    return x[None], m


@pytest.mark.parametrize(("d", "speed"), [(2, 0.36273113), (3, 0.31855198)])
def test_von_mises_fisher_as_printed(d, speed):
    x, m = separated(d, 1.1)
    v = exact.von_mises_fisher_velocity(x, m, 2.0, 3.0)
    assert np.linalg.norm(v) == pytest.approx(speed, abs=0.51e-8)
    assert abs((v * x).sum()) < 1e-15 and (v @ m).item() > 0


@pytest.mark.parametrize("normalised", [True, False])
def test_mixture_by_direct_quadrature(normalised):
    y, w = sphere_rule()
    rng = np.random.default_rng(3)
    unit = rng.normal(size=(8, 3))
    unit /= np.linalg.norm(unit, axis=1, keepdims=True)
    x, means = unit[:5], unit[5:]
    kappas, weights, beta = np.array([0.0, 2.0, 7.0]), np.array([0.2, 0.5, 0.3]), 4.0
    law = np.exp(kappas * (y @ means.T))
    masses = w * ((law / (w @ law)) @ weights)
    kernel = np.exp(beta * x @ y.T) * masses
    a = kernel @ y / (kernel.sum(axis=1, keepdims=True) if normalised else 1.0)
    expected = a - (a * x).sum(axis=1, keepdims=True) * x
    found = exact.mixture_velocity(x, means, kappas, weights, beta, normalised)
    np.testing.assert_allclose(found, expected, rtol=0, atol=1e-12 * abs(expected).max())
    one = exact.mixture_velocity(x, means[1:2], kappas[1:2], [1.0], beta, normalised)
    np.testing.assert_array_equal(one, exact.von_mises_fisher_velocity(x, means[1], 2.0, beta, normalised))


def test_von_mises_fisher_limits():
    x, m = separated(3, 1.1)
    tangent = m - (x @ m) * x[0]
    # beta=0: the mean length times P_x m
    np.testing.assert_allclose(exact.von_mises_fisher_velocity(x, m, 2.0, 0.0)[0], (1 / np.tanh(2) - 0.5) * tangent, rtol=1e-14)
    # sharp law: a Dirac at m
    np.testing.assert_allclose(exact.von_mises_fisher_velocity(x, m, 1e5, 3.0)[0], tangent, rtol=1e-4)
    np.testing.assert_allclose(exact.von_mises_fisher_velocity(x, m, 1e5, 3.0, False)[0], np.exp(3 * np.cos(1.1)) * tangent, rtol=1e-3)
    # sharp kernel: beta v is the gradient of log rho
    np.testing.assert_allclose(1e5 * exact.von_mises_fisher_velocity(x, m, 2.0, 1e5)[0], 2 * tangent, rtol=1e-4)
    # R = 0 exactly, and R = 3e-9, where v = (kappa/d) P_x mean
    np.testing.assert_array_equal(exact.von_mises_fisher_velocity([[-1.0, 0, 0]], [1.0, 0, 0], 3.0, 3.0), np.zeros((1, 3)))
    near = exact.von_mises_fisher_velocity([[-1.0, 1e-9, 0]], [1.0, 0, 0], 3.0, 3.0)
    np.testing.assert_allclose(near, [[0, 1e-9, 0]], rtol=1e-12, atol=1e-17)
    # kappa=0 is the uniform law
    assert (exact.von_mises_fisher_velocity(x, m, 0.0, 5.0) == 0).all()


def test_mixture_does_not_overflow():
    x, m = separated(3, 1.1)
    v = exact.mixture_velocity(x, [m, -m], [1e5, 1e5], [0.5, 0.5], 1e4)
    # only the near component is seen
    np.testing.assert_allclose(v, exact.von_mises_fisher_velocity(x, m, 1e5, 1e4), rtol=1e-12)
    alone = exact.mixture_velocity(x, [m, -m], [2.0, 9.0], [1.0, 0.0], 3.0)
    np.testing.assert_array_equal(alone, exact.von_mises_fisher_velocity(x, m, 2.0, 3.0))
    with pytest.raises(OverflowError, match="more than a float can hold"):
        exact.mixture_velocity(x, [m, -m], [1.0, 1.0], [0.5, 0.5], 1e4, normalised=False)


# Two clusters


@pytest.mark.parametrize(("beta", "time"), [(1, 3.464763), (4, 10.021878), (9, 465.8962)])
def test_two_cluster_time_as_printed(beta, time):
    assert exact.two_cluster_time(beta, np.pi / 2, 0.1) == pytest.approx(time, rel=0, abs=0.51e-6 if beta < 9 else 0.51e-4)


@pytest.mark.parametrize("normalised", [True, False])
@pytest.mark.parametrize("masses", [(0.5, 0.5), (0.2, 0.8)])
def test_two_clusters_against_tokens(masses, normalised):
    beta, theta0 = 3.0, 2.0
    x = np.array([[1.0, 0, 0], [np.cos(theta0), 0.6 * np.sin(theta0), 0.8 * np.sin(theta0)]])
    times = np.array([0.0, 0.2, 0.5, 2.0])
    flow = token_flow(x, np.array(masses), beta, times, normalised)
    angles = 2 * np.arctan2(np.linalg.norm(flow[:, 0] - flow[:, 1], axis=1), np.linalg.norm(flow[:, 0] + flow[:, 1], axis=1))
    np.testing.assert_allclose(exact.two_cluster_angle(beta, theta0, times, masses, normalised), angles, rtol=1e-9, atol=1e-11)
    v = token_velocity(x, np.array(masses), beta, normalised)
    cosine_rate = v[0] @ x[1] + v[1] @ x[0]
    assert exact.two_cluster_rate(beta, theta0, masses, normalised) == pytest.approx(-cosine_rate / np.sin(theta0), rel=1e-13)


def unequal(beta, theta, a1, a2):
    e = np.exp(-beta * (1 - np.cos(theta)))
    return -np.sin(theta) * (a2 * e / (a1 + a2 * e) + a1 * e / (a2 + a1 * e))


@pytest.mark.parametrize("beta", [0.0, 1.0, 30.0])
def test_two_cluster_rate_formulas(beta):
    theta = np.linspace(0, np.pi, 9)
    equal = -2 * np.sin(theta) / (1 + np.exp(beta * (1 - np.cos(theta))))
    np.testing.assert_allclose(exact.two_cluster_rate(beta, theta), equal, rtol=1e-12)
    np.testing.assert_allclose(exact.two_cluster_rate(beta, theta, (0.3, 0.7)), unequal(beta, theta, 0.3, 0.7), rtol=1e-12)
    expected = -np.exp(beta * np.cos(theta)) * np.sin(theta)
    np.testing.assert_allclose(exact.two_cluster_rate(beta, theta, (0.3, 0.7), normalised=False), expected, rtol=1e-12)


@pytest.mark.parametrize(
    ("beta", "theta0", "theta1"), [(1.0, 3.1, 0.01), (9.0, 1.2, 1e-6), (60.0, 1.5, 0.3), (300.0, 1.0, 0.99), (300.0, 1.0, 0.2)]
)
def test_two_cluster_time_in_closed_form(beta, theta0, theta1):
    # with c = cos theta, int e^{beta(1-c)}/(1-c^2) dc is a pair of exponential integrals
    def primitive(theta):
        near, far = 2 * np.sin(theta / 2) ** 2, 2 * np.cos(theta / 2) ** 2
        return (np.exp(2 * beta) * expi(-beta * far) - expi(beta * near)) / 2

    free = np.log(np.tan(theta0 / 2) / np.tan(theta1 / 2))
    usa = primitive(theta1) - primitive(theta0)
    assert exact.two_cluster_time(beta, theta0, theta1) == pytest.approx((free + usa) / 2, rel=1e-10)
    assert exact.two_cluster_time(beta, theta0, theta1, normalised=False) == pytest.approx(np.exp(-beta) * usa, rel=1e-10)


def test_two_cluster_time_of_unequal_masses():
    expected = quad(lambda a: -1 / unequal(6.0, a, 0.1, 0.9), 0.2, 1.4, epsabs=0, epsrel=1e-12)[0]
    assert exact.two_cluster_time(6.0, 1.4, 0.2, (0.1, 0.9)) == pytest.approx(expected, rel=1e-11)
    assert exact.two_cluster_time(6.0, 1.4, 0.2, (0.9, 0.1)) == pytest.approx(expected, rel=1e-11)
    assert exact.two_cluster_time(6.0, 1.4, 1.4) == 0


@pytest.mark.parametrize("masses", [(0.5, 0.5), (1e-6, 1 - 1e-6)])
@pytest.mark.parametrize("beta", [0.0, 0.7, 9.0, 25.0])
def test_two_cluster_angle_inverts_the_time(beta, masses):
    theta = np.array([2.4, 1.7, 0.9, 0.1, 1e-5])
    times = np.array([exact.two_cluster_time(beta, 2.5, end, masses) for end in theta])
    found = exact.two_cluster_angle(beta, 2.5, times, masses)
    np.testing.assert_allclose([exact.two_cluster_time(beta, 2.5, end, masses) for end in found], times, rtol=1e-12)
    # after the slow phase a rounding of t moves theta by eps t |theta'|, so that the angle is only fixed while that is small
    fixed = 1e-15 * times * abs(exact.two_cluster_rate(beta, theta, masses)) < 1e-12 * theta
    assert fixed.any()
    np.testing.assert_allclose(found[fixed], theta[fixed], rtol=1e-10)


def test_two_clusters_at_extreme_beta():
    # beta=0 is tan(theta/2) = tan(theta0/2) e^{-t}
    assert exact.two_cluster_angle(0.0, 2.0, 1.5) == pytest.approx(2 * np.arctan(np.tan(1.0) * np.exp(-1.5)), rel=1e-12)
    with pytest.raises(OverflowError, match=r"the time is e\^9990\.\d"):
        exact.two_cluster_time(1e4, np.pi / 2, 0.1)
    # Laplace: T ~ e^q/(2 beta sin^2 theta0) with q = beta (1 - cos theta0)
    time, q = exact.two_cluster_time(1e4, 0.2, 0.1), 2e4 * np.sin(0.1) ** 2
    assert np.log(time) == pytest.approx(q - np.log(2e4 * np.sin(0.2) ** 2), abs=0.02)
    assert exact.two_cluster_angle(1e4, np.pi / 2, 1e300) == pytest.approx(np.pi / 2, rel=1e-15)
    np.testing.assert_allclose(exact.two_cluster_angle(1e4, 0.2, [0.0, 0.5 * time, 2 * time]), [0.2, 0.2, 0.0], rtol=2e-3, atol=1e-12)
    # an early time moves the angle by theta' t
    early = 1e-4 * time
    moved = exact.two_cluster_angle(1e4, 0.2, early) - 0.2
    assert moved == pytest.approx(float(exact.two_cluster_rate(1e4, 0.2)) * early, rel=1e-3)
    with pytest.raises(OverflowError, match="more than a float can hold"):
        exact.two_cluster_rate(1e4, 0.1, normalised=False)
    assert exact.two_cluster_angle(1e4, 1.0, 1.0, normalised=False) == 0


# Rings, Diracs, equiangular tokens


@pytest.mark.parametrize(
    ("k", "beta", "rate", "tolerance"), [(2, 4, 6.7070e-4, 0.51e-8), (3, 5, 7.0440e-3, 0.51e-7), (4, 9, 4.44166e-3, 0.51e-8)]
)
def test_ring_rate_as_printed_and_by_finite_differences(k, beta, rate, tolerance):
    assert exact.ring_rate(k, beta) == pytest.approx(rate, rel=0, abs=tolerance)
    angles, h = 2 * np.pi * np.arange(k) / k, 1e-5

    def angular(a):
        x = circle(a)
        return (token_velocity(x, np.full(k, 1 / k), beta) * np.column_stack([-x[:, 1], x[:, 0]])).sum(axis=1)

    columns = [(angular(angles + h * e) - angular(angles - h * e)) / (2 * h) for e in np.eye(k)]
    eigenvalues = np.linalg.eigvals(np.array(columns).T)
    assert exact.ring_rate(k, beta) == pytest.approx(eigenvalues.real.max(), rel=1e-6)


def test_ring_rate_limits():
    assert exact.ring_rate(2, 0) == pytest.approx(1)
    # two clusters near pi: theta' = -2 sin(theta)/(1+e^{2 beta})
    assert exact.ring_rate(2, 30) == pytest.approx(2 / (1 + np.exp(60)), rel=1e-13)
    assert 0 <= exact.ring_rate(5, 1e4) < 1e-300


@pytest.mark.parametrize("normalised", [True, False])
def test_dirac_rate_by_a_light_token(normalised):
    x = circle(np.array([0.0, 1e-6]))
    v = token_velocity(x, np.array([1.0, 0.0]), 2.5, normalised)
    assert exact.dirac_rate(2.5, normalised) == pytest.approx(np.linalg.norm(v[1]) / 1e-6, rel=1e-9)
    with pytest.raises(OverflowError):
        exact.dirac_rate(1e4, normalised=False)


@pytest.mark.parametrize("d", [2, 3, 4, 6])
def test_mean_gap_rate_on_moebius_laws(d):
    t = np.array([8.0, 9.0])
    gap = 1 - exact.moebius_mean(d, exact.moebius(d, 0.3, t))
    # d=3 carries a factor t
    rate = np.log(gap[0] / gap[1]) + (np.log(t[1] / t[0]) if d == 3 else 0)
    assert rate == pytest.approx(exact.mean_gap_rate(d), abs=0.02)


def test_dirac_spectrum_by_finite_differences():
    rng = np.random.default_rng(5)
    c = np.array([2.0, -1.0, 2.0]) / 3
    p = np.eye(3) - np.outer(c, c)
    # V c = 0.7 c, V neither symmetric nor block diagonal
    v = 0.7 * np.outer(c, c) + np.outer(c, rng.normal(size=3)) @ p + p @ rng.normal(size=(3, 3)) @ p
    rates, spread = exact.dirac_spectrum(v, c)
    assert spread == pytest.approx(-0.7)
    basis = np.linalg.svd(c[None])[2][1:]
    h = 1e-6

    def field(e, moves):
        x = c + h * e
        x = x / np.linalg.norm(x)
        a = v @ (x if moves else c)
        return basis @ (a - (a @ x) * x)

    matrix = np.array([(field(e, True) - field(-e, True)) / (2 * h) for e in basis]).T
    beside = np.array([(field(e, False) - field(-e, False)) / (2 * h) for e in basis]).T
    expected = np.linalg.eigvals(matrix)
    np.testing.assert_allclose(rates, expected[np.lexsort((-expected.imag, -expected.real))], rtol=1e-7)
    np.testing.assert_allclose(beside, spread * np.eye(2), atol=1e-7)
    turning = np.array([[0.0, -2, 0], [2, 0, 0], [0, 0, 1]])
    np.testing.assert_allclose(exact.dirac_spectrum(turning, [0, 0, 1])[0], [-1 + 2j, -1 - 2j], atol=1e-14)
    np.testing.assert_allclose(exact.dirac_spectrum(np.eye(4), [0, 0, 0, 1.0])[0], np.zeros(3), atol=1e-15)


def test_equiangular_as_printed():
    assert exact.equiangular(8, 2, 0, 3) == pytest.approx(0.9316264, abs=0.51e-7)


@pytest.mark.parametrize(("n", "g0", "beta"), [(8, 0.0, 2.0), (4, -0.2, 5.0), (3, 0.6, 0.0)])
def test_equiangular_against_tokens(n, g0, beta):
    x = np.linalg.cholesky((1 - g0) * np.eye(n) + g0)
    times = np.array([0.0, 0.7, 3.0])
    flow = token_flow(x, np.full(n, 1 / n), beta, times)
    np.testing.assert_allclose(exact.equiangular(n, beta, g0, times), (flow[:, 0] * flow[:, -1]).sum(axis=1), rtol=1e-9, atol=1e-11)


def test_equiangular_limits():
    # n=2 is two clusters
    t = np.linspace(0, 30, 7)
    np.testing.assert_allclose(exact.equiangular(2, 4.0, 0.1, t), np.cos(exact.two_cluster_angle(4.0, np.arccos(0.1), t)), atol=1e-12)
    h, g = 1e-4, exact.equiangular(50, 6.0, 0.0, 5.0)
    slope = (exact.equiangular(50, 6.0, 0.0, 5.0 + h) - exact.equiangular(50, 6.0, 0.0, 5.0 - h)) / (2 * h)
    assert slope == pytest.approx(2 * np.exp(6 * g) * (1 - g) * (49 * g + 1) / (np.exp(6) + 49 * np.exp(6 * g)), rel=1e-6)
    np.testing.assert_array_equal(exact.equiangular(8, 1e4, 0.0, [0.0, 1e300]), [0.0, 0.0])
    assert exact.equiangular(8, 2.0, 0.0, 1e9) == 1


@pytest.mark.parametrize(
    ("call", "words"),
    [
        (lambda: exact.growth_rate(1, 1.0, 1), "d is 1"),
        (lambda: exact.growth_rate(2, -1.0, 1), "beta is -1"),
        (lambda: exact.growth_rate(2, 1.0, 1.5), "k is 1.5"),
        (lambda: exact.growth_rate(2, 1.0, 1, value=np.nan), "value is nan"),
        (lambda: exact.moebius(3, 1.2, 1.0), r"r0 is 1.2, wanted a number in \[0, 1\]"),
        (lambda: exact.moebius(3, 0.2, [1.0, -1.0]), r"t\[1\] is -1"),
        (lambda: exact.moebius_mean(3, [0.5, 1.5]), r"r\[1\] is 1.5, wanted a number in \[0, 1\]"),
        (lambda: exact.von_mises_fisher_velocity([[1.0, 0]], [2.0, 0], 1.0, 1.0), r"mean\[0\] has length 2"),
        (lambda: exact.von_mises_fisher_velocity([[1.0, 0]], [1.0, 0, 0], 1.0, 1.0), r"mean has shape \(3,\)"),
        (lambda: exact.von_mises_fisher_velocity([[1.0, 1.0]], [1.0, 0], 1.0, 1.0), r"points\[0\] has length"),
        (lambda: exact.von_mises_fisher_velocity([[1.0]], [1.0], 1.0, 1.0), "d >= 2"),
        (lambda: exact.von_mises_fisher_velocity([[1.0, 0]], [1.0, 0], -1.0, 1.0), "kappa is -1"),
        (lambda: exact.mixture_velocity([[1.0, 0]], [[1.0, 0]], [1.0], [0.9], 1.0), "sum of weights is 0.9, wanted 1"),
        (lambda: exact.mixture_velocity([[1.0, 0]], [[1.0, 0]], [-1.0], [1.0], 1.0), r"kappas\[0\] is -1"),
        (lambda: exact.two_cluster_rate(1.0, 4.0), r"theta is 4, wanted a number in \[0, 3.141592653589793\]"),
        (lambda: exact.two_cluster_rate(1.0, 1.0, (0.5, 0.6)), "sum of masses is 1.1, wanted 1"),
        (lambda: exact.two_cluster_rate(1.0, 1.0, (0.0, 1.0)), r"masses\[0\] is 0"),
        (lambda: exact.two_cluster_time(1.0, 0.5, 0.6), "theta1 is 0.6"),
        (lambda: exact.two_cluster_time(1.0, np.pi, 0.6), "theta0 is 3.141592653589793, wanted an angle"),
        (lambda: exact.two_cluster_angle(1.0, 0.0, 1.0), "theta0 is 0, wanted an angle"),
        (lambda: exact.two_cluster_angle(1.0, 1.0, -1.0), "t is -1"),
        (lambda: exact.ring_rate(1, 1.0), "k is 1"),
        (lambda: exact.dirac_rate(-1.0), "beta is -1"),
        (lambda: exact.mean_gap_rate(1), "d is 1"),
        (lambda: exact.dirac_spectrum(np.eye(3)[:2], [1.0, 0]), r"value has shape \(2, 3\), wanted a square"),
        (lambda: exact.dirac_spectrum([[1.0, 0], [1.0, 2.0]], [1.0, 0]), "centre is not an eigenvector"),
        (lambda: exact.equiangular(8, 2.0, -0.2, 1.0), r"g0 is -0.2, wanted a number in \(-1/\(n-1\), 1\)"),
        (lambda: exact.equiangular(1, 2.0, 0.0, 1.0), "n is 1"),
    ],
)
def test_exact_refuses(call, words):
    with pytest.raises(ValueError, match=words):
        call()
