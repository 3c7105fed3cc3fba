"""Laws: densities against closed forms and quadrature of our own, samples against exact moments and against the density."""

import math

import numpy as np
import pytest
from scipy.special import iv, ive

from meanfield_pde import exact
from meanfield_pde.laws.law import Mixture, Moebius, Smoothed, Uniform, VonMisesFisher, sample
from meanfield_pde.laws.perturbed import PerturbedUniform
from meanfield_pde.laws.projection import project
from meanfield_pde.measure import Measure
from meanfield_pde.mesh.families import circle, icosahedral
from meanfield_pde.mesh.locate import cell_of
from meanfield_pde.sphere import normalise, surface_area, tangent

COUNT = 20_000


def axis_of(d):
    """A direction in no special position."""
    return normalise(np.cos(1.3 * np.arange(d) + 0.4))


def other_axis_of(d):
    return normalise(np.sin(2.1 * np.arange(d) + 1.0))


def zonal_integral(function, axis):
    """Integral over S^{d-1} of a function that depends on <x, axis> only: panels of Gauss-Legendre points, graded to both poles."""
    d = len(axis)
    half = np.concatenate([[0], np.geomspace(1e-6, np.pi / 2, 60)])
    edges = np.concatenate([half, np.pi - half[-2::-1]])
    nodes, weights = np.polynomial.legendre.leggauss(20)
    width = np.diff(edges)[:, None] / 2
    theta = (edges[:-1, None] + width * (nodes + 1)).ravel()
    measure = (width * weights).ravel() * np.sin(theta) ** (d - 2) * 2 * np.pi ** ((d - 1) / 2) / math.gamma((d - 1) / 2)
    across = normalise(tangent(axis, other_axis_of(d)))
    return measure @ function(np.cos(theta)[:, None] * axis + np.sin(theta)[:, None] * across)


def surface_rule(d, n):
    """Points and weights on S^1 (trapezoidal rule) or S^2 (times Gauss-Legendre in height)."""
    angles = 2 * np.pi * np.arange(2 * n) / (2 * n)
    ring = np.stack([np.cos(angles), np.sin(angles)], axis=1)
    if d == 2:
        return ring, np.full(2 * n, np.pi / n)
    height, weights = np.polynomial.legendre.leggauss(n)
    radius = np.sqrt(1 - height**2)
    points = np.concatenate([radius[:, None, None] * ring, np.broadcast_to(height[:, None, None], (n, 2 * n, 1))], axis=2)
    return points.reshape(-1, 3), np.repeat(weights, 2 * n) * np.pi / n


def tokens_of(d):
    points = normalise(np.random.default_rng(d).normal(size=(7, d)) + axis_of(d))
    masses = np.arange(1, 8) ** 2
    return Measure(points, masses / masses.sum())


def laws(d):
    a, b = axis_of(d), other_axis_of(d)
    return {
        "uniform": Uniform(d),
        "cap": VonMisesFisher(a, 2.0),
        "narrow cap": VonMisesFisher(5 * a, 40.0),
        "mixture": Mixture([VonMisesFisher(a, 4.0), VonMisesFisher(-b, 15.0), Uniform(d)], [0.5, 0.3, 0.2]),
        "moebius": Moebius(0.6 * a),
        "perturbed": PerturbedUniform(d, [(1, 0.3, a), (2, -0.4, b), (5, 0.2, a)]),
        "smoothed": Smoothed(tokens_of(d), 0.25),
    }


def bessel_fraction(d, kappa):
    return ive(d / 2, kappa) / ive(d / 2 - 1, kappa)


def cap_moments(axis, kappa):
    """E x and E x x^T of a von Mises-Fisher law (Mardia and Jupp, 9.3)."""
    d, mean = len(axis), bessel_fraction(len(axis), kappa)
    return mean * axis, mean / kappa * np.eye(d) + (1 - d * mean / kappa) * np.outer(axis, axis)


def about(axis, square):
    """E x x^T of a law that is symmetric about the axis, with E <x, axis>^2 given."""
    d = len(axis)
    return (1 - square) / (d - 1) * np.eye(d) + (d * square - 1) / (d - 1) * np.outer(axis, axis)


def harmonics(d, k):
    """Dimension of the spherical harmonics of degree k."""
    return math.comb(k + d - 1, d - 1) - (math.comb(k + d - 3, d - 1) if k >= 2 else 0)


def moments(name, d):
    """Exact E x and E x x^T of `laws(d)[name]`."""
    a, b = axis_of(d), other_axis_of(d)
    if name == "cap":
        return cap_moments(a, 2.0)
    if name == "narrow cap":
        return cap_moments(a, 40.0)
    if name == "moebius":
        law = Moebius(0.6 * a)
        square = zonal_integral(lambda x: law(x) * (x @ a) ** 2, a)
        return exact.moebius_mean(d, 0.6) * a, about(a, square)
    if name == "perturbed":
        # <x, a> is the first harmonic and <x, b>^2 = ((d-1) Z_2 + 1)/d; the mean square of Z_k is 1/(number of harmonics)
        return 0.3 * a / d, about(b, 1 / d - 0.4 * (d - 1) / d / harmonics(d, 2))
    parts = {
        "uniform": [(1.0, np.zeros(d), np.eye(d) / d)],
        "mixture": [(0.5, *cap_moments(a, 4.0)), (0.3, *cap_moments(-b, 15.0)), (0.2, np.zeros(d), np.eye(d) / d)],
        "smoothed": [(m, *cap_moments(y, 16.0)) for m, y in zip(tokens_of(d).masses, tokens_of(d).points, strict=True)],
    }[name]
    return sum(w * mean for w, mean, _ in parts), sum(w * square for w, _, square in parts)


# densities


@pytest.mark.parametrize("name", laws(2))
@pytest.mark.parametrize("d", [2, 3])
def test_density_integrates_to_one(d, name):
    points, weights = surface_rule(d, 80)
    values = laws(d)[name](points)
    assert values.shape == (len(points),) and (values > 0).all()
    assert weights @ values == pytest.approx(1, abs=1e-12)


@pytest.mark.parametrize("d", [5, 64])
def test_density_integrates_to_one_in_high_dimension(d):
    a = axis_of(d)
    for law in (
        Uniform(d),
        VonMisesFisher(a, 3.0),
        Moebius(0.6 * a),
        PerturbedUniform(d, [(1, 0.3, a), (3, 0.2, a)]),
        Smoothed(a[None], 0.2),
    ):
        assert law.dimension == d
        assert zonal_integral(law, a) == pytest.approx(1, abs=1e-11)


@pytest.mark.parametrize("kappa", [0, 1e-9, 2, 800, 1e5])
@pytest.mark.parametrize("d", [2, 3, 5, 64])
def test_s5_any_concentration(d, kappa):
    a = axis_of(d)
    law = VonMisesFisher(a, kappa)
    assert zonal_integral(law, a) == pytest.approx(1, abs=1e-10)
    around = sample(Uniform(d), 100, seed=1)
    tokens = sample(law, 100, seed=1)
    for points in (around, tokens, a[None], -a[None]):
        assert np.isfinite(law(points)).all()
    np.testing.assert_allclose(np.linalg.norm(tokens, axis=1), 1, rtol=1e-15)
    if kappa == 0:
        np.testing.assert_array_equal(law(around), Uniform(d)(around))
        np.testing.assert_array_equal(tokens, sample(Uniform(d), 100, seed=1))
    if kappa >= 800:
        with np.errstate(all="ignore"):
            assert not np.isfinite(np.exp(np.float64(kappa)) / iv(d / 2 - 1, kappa))  # control: the formula as written


def test_von_mises_fisher_in_closed_form():
    for kappa in (0.5, 7.0):
        for d, constant in ((2, 2 * np.pi * iv(0, kappa)), (3, 4 * np.pi * np.sinh(kappa) / kappa)):
            points = sample(Uniform(d), 50, seed=0)
            np.testing.assert_allclose(
                VonMisesFisher(axis_of(d), kappa)(points), np.exp(kappa * points @ axis_of(d)) / constant, rtol=1e-13
            )


@pytest.mark.parametrize("d", [2, 3, 8])
def test_modes_are_gegenbauer_polynomials(d):
    """The mean of the k-th zonal harmonic is its amplitude over the number of harmonics, and no other mean changes."""
    a = axis_of(d)
    for k in (1, 2, 3, 6):
        law = PerturbedUniform(d, [(k, 0.25, a)])
        assert law(a[None])[0] * surface_area(d) == pytest.approx(1.25, rel=1e-13)
        for j in (1, 2, 3, 6):
            wave = PerturbedUniform(d, [(j, 1.0, a)])
            mean = zonal_integral(lambda x, law=law, wave=wave: law(x) * (wave(x) * surface_area(d) - 1), a)
            assert mean == pytest.approx(0.25 / harmonics(d, k) if j == k else 0, abs=1e-12)
    angles = np.linspace(0, 6, 9)
    ring = np.stack([np.cos(angles), np.sin(angles)], axis=1)
    np.testing.assert_allclose(
        PerturbedUniform(2, [(3, 0.5, (0, 2))])(ring), (1 + 0.5 * np.cos(3 * (angles - np.pi / 2))) / (2 * np.pi), rtol=1e-14
    )


def test_mixture_is_the_weighted_sum():
    a, b = VonMisesFisher((0, 0, 1), 3.0), Moebius((0.2, 0.1, 0.4))
    points = sample(Uniform(3), 20, seed=0)
    np.testing.assert_allclose(Mixture([a, b], [0.25, 0.75])(points), 0.25 * a(points) + 0.75 * b(points), rtol=1e-15)


# samples


@pytest.mark.parametrize("name", laws(2))
@pytest.mark.parametrize("d", [2, 3, 8])
def test_sample_moments(d, name):
    law = laws(d)[name]
    tokens = sample(law, COUNT, seed=11)
    assert tokens.shape == (COUNT, d)
    np.testing.assert_allclose(np.linalg.norm(tokens, axis=1), 1, rtol=1e-15)
    mean, square = moments(name, d)
    assert largest_deviation(tokens, mean) < 4
    assert largest_deviation(tokens[:, :, None] * tokens[:, None, :], square) < 4
    # control: a mean 0.05 away is told apart
    assert largest_deviation(tokens, mean + 0.05 * other_axis_of(d)) > 4


def largest_deviation(samples, expected):
    """In standard errors."""
    error = samples.std(axis=0) / np.sqrt(len(samples))
    return np.abs((samples.mean(axis=0) - expected) / error).max()


def statistic(law, mesh, tokens):
    """Pearson's chi-square of tokens against the projected law, as a quantile."""
    from scipy.stats import chi2

    expected = len(tokens) * project(mesh, law) * mesh.areas
    seen = np.bincount(cell_of(mesh, tokens), minlength=mesh.n_cells)
    kept = expected > 5
    observed, wanted = np.append(seen[kept], seen[~kept].sum()), np.append(expected[kept], expected[~kept].sum())
    observed, wanted = (observed, wanted) if wanted[-1] > 5 else (observed[:-1], wanted[:-1])
    return chi2.cdf(np.sum((observed - wanted) ** 2 / wanted), len(wanted) - 1)


@pytest.mark.parametrize("name", laws(2))
@pytest.mark.parametrize("d", [2, 3])
def test_samples_fill_cells_like_the_projected_density(d, name):
    mesh = circle(40) if d == 2 else icosahedral(1)
    assert 1e-3 < statistic(laws(d)[name], mesh, sample(laws(d)[name], COUNT, seed=3)) < 1 - 1e-3


def test_chi_square_tells_laws_apart():
    mesh, tokens = icosahedral(1), sample(VonMisesFisher(axis_of(3), 2.0), COUNT, seed=3)
    assert statistic(VonMisesFisher(axis_of(3), 2.2), mesh, tokens) > 1 - 1e-6


def test_noise_is_sampled_like_its_density():
    law = PerturbedUniform(3, noise=0.15, max_degree=3, seed=4)
    tokens = sample(law, COUNT, seed=5)
    assert 1e-3 < statistic(law, icosahedral(1), tokens) < 1 - 1e-3
    assert statistic(Uniform(3), icosahedral(1), tokens) > 1 - 1e-6


@pytest.mark.parametrize("name", laws(2))
def test_a_seed_fixes_the_tokens(name):
    law = laws(3)[name]
    first = sample(law, 50, seed=7)
    np.testing.assert_array_equal(first, sample(law, 50, seed=7))
    assert not (first == sample(law, 50, seed=8)).any()


@pytest.mark.parametrize("d", [2, 3, 5])
def test_sampling_close_to_uniform(d):
    """The inversion that scipy uses on S^2 puts every token at the mean where kappa is below the rounding of 1."""
    for kappa in (1e-300, 1e-17, 1e-12, 1e-9):
        assert np.linalg.norm(sample(VonMisesFisher(axis_of(d), kappa), COUNT, seed=0).mean(axis=0)) < 4 / np.sqrt(COUNT)


def test_sampling_a_narrow_cap():
    for d in (2, 3, 8):
        square = np.sum((sample(VonMisesFisher(axis_of(d), 1e5), COUNT, seed=0) - axis_of(d)) ** 2, axis=1)
        assert largest_deviation(square, 2 * (1 - bessel_fraction(d, 1e5))) < 4


def test_mixture_draws_from_laws_that_get_no_token():
    cap = VonMisesFisher((0, 0, 1), 50.0)
    np.testing.assert_allclose(sample(Mixture([cap, VonMisesFisher((0, 0, -1), 50.0)], [1, 0]), 100, seed=0)[:, 2], 1, atol=0.3)
    every = Mixture(list(laws(3).values()), np.full(7, 1 / 7))
    assert sample(every, 1, seed=0).shape == (1, 3)


# Moebius


@pytest.mark.parametrize("d", [2, 3, 8, 64])
def test_moebius_mean(d):
    a = axis_of(d)
    for r in (0.1, 0.6, 0.9):
        law = Moebius(r * a)
        assert zonal_integral(lambda x, law=law: law(x) * (x @ a), a) == pytest.approx(exact.moebius_mean(d, r), rel=1e-10)
        tokens = sample(law, COUNT, seed=2)
        assert largest_deviation(tokens @ a, exact.moebius_mean(d, r)) < 4
        assert largest_deviation(tokens, exact.moebius_mean(d, r) * a) < 4
    np.testing.assert_allclose(Moebius(np.zeros(d))(np.eye(d)), Uniform(d)(np.eye(d)), rtol=1e-15)


# noise


@pytest.mark.parametrize("d", [2, 3])
def test_noise_has_equal_variance_in_every_degree(d):
    """Powers per degree, averaged over seeds, against noise^2 / max_degree; the addition theorem gives them without any harmonic."""
    degrees, seeds, size = 5, 200, 0.02
    points, weights = surface_rule(d, 12)
    cosine = np.clip(points @ points.T, -1, 1)
    if d == 2:
        kernels = [2 * np.cos(k * np.arccos(cosine)) for k in range(1, degrees + 3)]
    else:
        kernels = [(2 * k + 1) * np.polynomial.Legendre.basis(k)(cosine) for k in range(1, degrees + 3)]
    fields = np.array([PerturbedUniform(d, noise=size, max_degree=degrees, seed=s)(points) for s in range(seeds)]) * surface_area(d) - 1
    weighted = fields * weights / surface_area(d)
    power = np.array([np.einsum("sp,sp->s", weighted @ kernel, weighted) for kernel in kernels])
    for k in range(degrees):
        assert largest_deviation(power[k], size**2 / degrees) < 4
        assert power[k].mean() == pytest.approx(size**2 / degrees, rel=0.35)
    np.testing.assert_allclose(power[degrees:], 0, atol=1e-17)
    assert power.sum(axis=0).mean() == pytest.approx(size**2, rel=0.1)
    np.testing.assert_allclose(fields @ weights, 0, atol=1e-13)


def test_noise_replays_from_its_recorded_seed():
    points = sample(Uniform(3), 30, seed=0)
    law = PerturbedUniform(3, [(2, 0.1, (1, 0, 0))], noise=0.02, max_degree=4, seed=9)
    assert (law.seed, law.noise, law.max_degree) == (9, 0.02, 4)
    again = PerturbedUniform(law.d, law.modes, noise=law.noise, max_degree=law.max_degree, seed=law.seed)
    np.testing.assert_array_equal(law(points), again(points))
    assert (law(points) != PerturbedUniform(3, law.modes, noise=0.02, max_degree=4, seed=10)(points)).all()


def test_a_density_that_touches_zero_is_accepted_and_a_negative_one_refused():
    for modes in ([(1, 1.0, (0, 0, 1))], [(2, 1.9, (0, 0, 1))], [(1, 0.7, (1, 0, 0)), (1, 0.7, (0, 1, 0))]):
        PerturbedUniform(3, modes)
    for modes in ([(1, 1.1, (0, 0, 1))], [(2, 2.2, (0, 0, 1))], [(2, -1.1, (0, 0, 1))], [(1, 0.8, (1, 0, 0)), (1, 0.8, (0, 1, 0))]):
        with pytest.raises(
            ValueError, match=r"modes and noise let the density fall to -0\.\d+ times the uniform one, wanted smaller amplitudes"
        ):
            PerturbedUniform(3, modes)
    with pytest.raises(ValueError, match="let the density fall to"):
        PerturbedUniform(2, noise=0.9, seed=0)


# smoothed tokens


def test_smoothed_is_a_mixture_of_caps():
    points = sample(Uniform(3), 200, seed=0)
    tokens = tokens_of(3)
    caps = Mixture([VonMisesFisher(y, 1 / 0.2**2) for y in tokens.points], tokens.masses)
    np.testing.assert_allclose(Smoothed(tokens, 0.2)(points), caps(points), rtol=1e-12)
    equal = Mixture([VonMisesFisher(y, 1 / 0.2**2) for y in tokens.points], np.full(7, 1 / 7))
    np.testing.assert_allclose(Smoothed(tokens.points, 0.2)(points), equal(points), rtol=1e-12)


def test_smoothed_in_blocks(monkeypatch):
    points = sample(Uniform(3), 200, seed=0)
    whole = Smoothed(tokens_of(3), 0.2)(points)
    monkeypatch.setattr("meanfield_pde.laws.law.CHUNK_BYTES", 8 * 3 * 7 * 30)
    np.testing.assert_array_equal(Smoothed(tokens_of(3), 0.2)(points), whole)


def test_bandwidth_is_the_spread_along_each_direction():
    d, width = 8, 0.05
    tokens = sample(Smoothed(axis_of(d)[None], width), COUNT, seed=0)
    spread = tangent(axis_of(d), tokens)
    assert np.sqrt(np.sum(spread**2, axis=1).mean() / (d - 1)) == pytest.approx(width, rel=0.02)


# bad input


@pytest.mark.parametrize(
    ("call", "sentence"),
    [
        (lambda: Uniform(1), r"^d is 1, wanted an integer at least 2$"),
        (lambda: Uniform(2.5), r"^d is 2\.5, wanted an integer"),
        (lambda: VonMisesFisher((0, 0, 0), 1), r"^mean has 3 coordinates and length 0, wanted a direction"),
        (lambda: VonMisesFisher((1,), 1), r"^mean has 1 coordinates"),
        (lambda: VonMisesFisher((0, np.nan, 1), 1), r"^mean\[1\] is nan, wanted a finite number$"),
        (lambda: VonMisesFisher((0, 0, 1), -1), r"^kappa is -1, wanted a number at least 0$"),
        (lambda: VonMisesFisher((0, 0, 1), np.nan), r"^kappa is nan, wanted a finite number$"),
        (lambda: VonMisesFisher((0, 0, 1), np.inf), r"^kappa is inf, wanted a finite number$"),
        (lambda: VonMisesFisher((0, 0, 1), "wide"), r"^kappa is 'wide', wanted a number$"),
        (lambda: Mixture([], []), r"^laws is empty"),
        (lambda: Mixture([Uniform(3), Uniform(3)], [0.5, 0.4]), r"^weights sum to 0\.9, wanted 1$"),
        (lambda: Mixture([Uniform(3), Uniform(3)], [1.5, -0.5]), r"^weights\[1\] is -0\.5, wanted a number >= 0$"),
        (lambda: Mixture([Uniform(3)], [0.5, 0.5]), r"^weights has shape \(2,\), wanted \(1,\)$"),
        (lambda: Mixture([Uniform(3), Uniform(2)], [0.5, 0.5]), r"^laws have dimensions \[2, 3\], wanted one$"),
        (lambda: Moebius((0.6, 0.8)), r"^w has 2 coordinates and length 1, wanted d >= 2 and length < 1$"),
        (lambda: Moebius((0, 0, 1.5)), r"^w has 3 coordinates and length 1\.5"),
        (lambda: Moebius((0, np.nan)), r"^w\[1\] is nan"),
        (lambda: PerturbedUniform(3, [(0, 0.1, (0, 0, 1))]), r"^modes\[0\] degree is 0, wanted an integer at least 1$"),
        (lambda: PerturbedUniform(3, [(1, 0.1, (0, 1))]), r"^modes\[0\] axis has 2 coordinates, wanted 3$"),
        (lambda: PerturbedUniform(3, [(1, 0.1, (0, 0, 1)), (1, np.inf, (0, 0, 1))]), r"^modes\[1\] amplitude is inf"),
        (lambda: PerturbedUniform(3, [(1, 0.1)]), r"^modes\[0\] has 2 entries, wanted \(degree, amplitude, axis\)$"),
        (lambda: PerturbedUniform(3, noise=0.1), r"^seed is None, wanted an integer"),
        (lambda: PerturbedUniform(3, noise=-0.1, seed=0), r"^noise is -0\.1, wanted a number at least 0$"),
        (lambda: PerturbedUniform(4, noise=0.1, seed=0), r"^noise is 0\.1 in dimension 4"),
        (lambda: PerturbedUniform(3, max_degree=0), r"^max_degree is 0, wanted an integer in \[1, 256\]$"),
        (lambda: Smoothed(np.eye(3), 0), r"^bandwidth is 0, wanted a number in \(0, 3.141592653589793\]$"),
        (lambda: Smoothed(np.eye(3), np.nan), r"^bandwidth is nan"),
        (lambda: Smoothed(2 * np.eye(3), 0.1), r"^tokens\[0\] has length 2, wanted a point of the unit sphere"),
        (lambda: Smoothed(Measure(np.eye(3), [1, 1, 1]), 0.1), r"^tokens have mass 3, wanted 1$"),
        (lambda: sample(Uniform(3), 0, seed=0), r"^count is 0, wanted an integer at least 1$"),
        (lambda: sample(Uniform(3), 10, seed=-1), r"^seed is -1"),
        (lambda: sample(Uniform(3), 10, seed=None), r"^seed is None"),
    ],
)
def test_bad_input_is_answered_in_one_sentence(call, sentence):
    with pytest.raises(ValueError, match=sentence):
        call()
