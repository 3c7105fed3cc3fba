"""Attention against plain sums, closed forms, its own potential and energy, and the ways in which others' broke."""

import math
import tracemalloc
from functools import partial

import fields
import numpy as np
import pytest

from meanfield_pde import exact, threads
from meanfield_pde.laws.law import Uniform, VonMisesFisher, sample
from meanfield_pde.laws.projection import project
from meanfield_pde.measure import Measure
from meanfield_pde.mesh.families import circle, icosahedral
from meanfield_pde.models.attention import Attention
from meanfield_pde.sphere import dot, normalise, tangent

KINDS = [True, False]


def queries(d, n=25, seed=4):
    return sample(Uniform(d), n, seed)


def plain(x, measure, beta, query=None, key=None, value=None, normalised=True):
    """Velocity and Z as the formulas are written, token by token."""
    d = measure.dimension
    q, k, v = (np.eye(d) if matrix is None else matrix for matrix in (query, key, value))
    velocities, partitions = [], []
    for point in x:
        weights = [m * math.exp(beta * (q @ point) @ (k @ y)) for m, y in zip(measure.masses, measure.points, strict=True)]
        z = math.fsum(weights)
        field = v @ sum(w * y for w, y in zip(weights, measure.points, strict=True))
        velocities.append(tangent(point, field / z if normalised else field))
        partitions.append(z)
    return np.array(velocities), np.array(partitions)


# direct sums


@pytest.mark.parametrize("normalised", KINDS)
@pytest.mark.parametrize("d", [2, 3, 5])
def test_velocity_and_partition_are_the_plain_sums(d, normalised, rng, lopsided):
    measure, x = lopsided(d, total=1.7), queries(d)
    matrices = [rng.normal(size=(d, d)) for _ in range(3)]
    for names in ((), ("query",), ("key",), ("value",), ("query", "key"), ("query", "key", "value")):
        given = {name: matrices[["query", "key", "value"].index(name)] for name in names}
        for beta in (0.0, 0.2, 2.0):
            attention = Attention(beta, normalised=normalised, **given)
            velocity, partition = plain(x, measure, beta, normalised=normalised, **given)
            scale = np.abs(velocity).max()
            np.testing.assert_allclose(attention.velocity(x, measure), velocity, rtol=1e-12, atol=1e-14 * scale)
            np.testing.assert_allclose(
                dot(x, attention.velocity(x, measure)), 0, atol=1e-15 * (1 + np.abs(fields.output(attention, x, measure)).max())
            )
            np.testing.assert_allclose(fields.log_partition(attention, x, measure), np.log(partition), rtol=1e-13, atol=1e-14)
            if {"query", "key"} <= set(given):  # controls: exchanged and transposed matrices are told apart
                for wrong in ({"query": matrices[1], "key": matrices[0]}, {"query": matrices[0].T, "key": matrices[1]}):
                    if beta:
                        assert (
                            np.abs(plain(x, measure, beta, normalised=normalised, **{**given, **wrong})[0] - velocity).max() > 1e-3 * scale
                        )


def test_velocity_has_the_rows_of_the_points(lopsided):
    measure, x = lopsided(3), queries(3, 300)
    attention = Attention(4.0)
    whole = attention.velocity(x, measure)
    assert whole.shape == (300, 3)
    np.testing.assert_array_equal(np.concatenate([attention.velocity(x[i : i + 1], measure) for i in range(300)]), whole)
    np.testing.assert_array_equal(attention.velocity(x[::-1], measure), whole[::-1])
    np.testing.assert_array_equal(attention.velocity(x, measure, t=3.0, method="direct"), whole)
    assert attention.velocity(np.empty((0, 3)), measure).shape == (0, 3)


# von Mises-Fisher laws


@pytest.mark.parametrize(("d", "speed"), [(2, 0.36273113), (3, 0.31855198)])
def test_von_mises_fisher_velocity_converges_at_order_2(d, speed):
    kappa, beta, axis = 2.0, 3.0, np.eye(d)[-1]
    across = np.eye(d)[0]
    x = np.concatenate([[np.cos(1.1) * axis + np.sin(1.1) * across], queries(d, 40)])
    expected = exact.von_mises_fisher_velocity(x, axis, kappa, beta)
    assert np.linalg.norm(expected[0]) == pytest.approx(speed, abs=1e-8)
    meshes = [circle(n) for n in (128, 256, 512)] if d == 2 else [icosahedral(level) for level in (2, 3, 4)]
    for normalised in KINDS:
        expected = exact.von_mises_fisher_velocity(x, axis, kappa, beta, normalised=normalised)
        errors = []
        for mesh in meshes:
            measure = Measure(mesh.centroids, project(mesh, VonMisesFisher(axis, kappa)) * mesh.areas)
            found = Attention(beta, normalised=normalised).velocity(x, measure)
            errors.append(np.linalg.norm(found - expected, axis=1).max() / np.linalg.norm(expected, axis=1).max())
        assert errors[-1] <= 2e-3
        assert np.log2(errors[0] / errors[1]) > 1.9 and np.log2(errors[1] / errors[2]) > 1.9


# small beta


@pytest.mark.parametrize("normalised", KINDS)
def test_beta_zero_is_the_kuramoto_field(normalised, lopsided, rng):
    x, value = queries(3), rng.normal(size=(3, 3))
    measure = lopsided(3, total=1.7)
    mean = sum(m * y for m, y in zip(measure.masses, measure.points, strict=True)) / (1.7 if normalised else 1)
    for v, matrix in ((None, np.eye(3)), (value, value)):
        for attention in (
            Attention(0, value=v, normalised=normalised),
            Attention(2, query=np.zeros((3, 3)), value=v, normalised=normalised),
        ):
            np.testing.assert_allclose(attention.velocity(x, measure), tangent(x, matrix @ mean), atol=1e-14)
            assert attention.is_gradient
            np.testing.assert_allclose(attention.potential(x, measure), x @ matrix @ mean, atol=1e-14)
    np.testing.assert_allclose(fields.log_partition(Attention(0), x, measure), math.log(1.7), rtol=1e-15)


@pytest.mark.parametrize("normalised", KINDS)
def test_tiny_beta_keeps_its_digits(normalised, lopsided):
    measure, x, beta = lopsided(3), queries(3), 1e-9
    attention, limit = Attention(beta, normalised=normalised), Attention(0, normalised=normalised)
    np.testing.assert_allclose(attention.velocity(x, measure), limit.velocity(x, measure), atol=2e-9)
    np.testing.assert_allclose(attention.potential(x, measure), limit.potential(x, measure), atol=2e-9)
    z = np.exp(beta * x @ measure.points.T) @ measure.masses
    naive = (np.log(z) if normalised else z - 1) / beta
    assert np.abs(naive - limit.potential(x, measure)).max() > 1e-8  # control: the formula as written


def test_potential_is_smooth_where_the_summation_changes(lopsided):
    """Below |beta B x| = 1/2 the logarithm is taken of 1 + a small sum."""
    measure, x = lopsided(3), queries(3)
    below, above = (Attention(b).potential(x, measure) * b for b in (0.5 - 1e-9, 0.5 + 1e-9))
    np.testing.assert_allclose(above - below, 2e-9 * dot(x, fields.output(Attention(0.5), x, measure)), atol=1e-15)


# large beta


@pytest.mark.parametrize("beta", [800, 1e5])
def test_large_beta_is_finite(beta, lopsided, rng):
    measure, x = lopsided(3), queries(3, 200)
    for attention in (Attention(beta), Attention(beta, *(rng.normal(size=(3, 3)) for _ in range(3)))):
        assert np.isfinite(attention.velocity(x, measure)).all()
        assert np.isfinite(fields.log_partition(attention, x, measure)).all()
    # far from ties only the nearest token counts
    cosines = np.sort(x @ measure.points.T, axis=1)
    clear = beta * (cosines[:, -1] - cosines[:, -2]) > 50
    assert clear.sum() > 20
    nearest = (x @ measure.points.T).argmax(axis=1)
    winner = measure.points[nearest]
    np.testing.assert_allclose(Attention(beta).velocity(x, measure)[clear], tangent(x, winner)[clear], atol=1e-14)
    expected = cosines[:, -1] + np.log(measure.masses[nearest]) / beta
    np.testing.assert_allclose(Attention(beta).potential(x, measure)[clear], expected[clear], rtol=1e-14)
    with np.errstate(all="ignore"):  # control: the softmax as written
        weights = np.exp(beta * x @ measure.points.T) * measure.masses
        assert np.isnan(weights @ measure.points / weights.sum(axis=1)[:, None]).any()


def test_empty_points_do_not_hide_far_mass():
    near, far = normalise(np.array([[1, 0.01, 0]])), np.array([[-1.0, 0, 0]])
    x, measure = np.array([[0.6, 0.8, 0]]), Measure(np.concatenate([near, far]), [0, 1])
    attention = Attention(1e5)
    np.testing.assert_allclose(attention.velocity(x, measure), tangent(x, far), atol=1e-15)
    assert fields.log_partition(attention, x, measure)[0] == pytest.approx(-0.6e5, rel=1e-15)
    assert attention.potential(x, measure)[0] == pytest.approx(-0.6, rel=1e-15)
    exponents = 1e5 * x @ measure.points.T
    assert (np.exp(exponents - exponents.max()) @ measure.masses == 0).all()  # control: a shift by the empty point


def test_zero_masses_change_nothing(lopsided):
    measure, x = lopsided(3), queries(3)
    padded = Measure(np.concatenate([x[:5], measure.points, x[5:9]]), np.concatenate([np.zeros(5), measure.masses, np.zeros(4)]))
    for normalised in KINDS:
        attention = Attention(3.0, normalised=normalised)
        np.testing.assert_allclose(attention.velocity(x, padded), attention.velocity(x, measure), atol=3e-15)
        np.testing.assert_allclose(attention.potential(x, padded), attention.potential(x, measure), rtol=1e-14, atol=1e-15)
        assert attention.energy(padded).log == pytest.approx(attention.energy(measure).log, rel=1e-14)


def test_unnormalised_overflow_is_an_error(lopsided):
    measure = lopsided(3)
    attention = Attention(800, normalised=False)
    for call in (attention.velocity, attention.potential, partial(fields.output, attention)):
        with pytest.raises(
            OverflowError, match=r"the unnormalised field reaches e\^7\d\d\.?\d* at beta = 800.*use log_scale=800 .*or normalised=True"
        ):
            call(measure.points, measure)
    assert np.isfinite(fields.log_partition(attention, measure.points, measure)).all()
    assert np.isfinite(attention.energy(measure).log)


def test_a_light_measure_does_not_overflow():
    """e^720 is beyond a float, 1e-20 times it is not."""
    x = np.array([[0.6, 0.8, 0], [1.0, 0, 0]])
    measure, attention = Measure([[1, 0, 0]], [1e-20]), Attention(720, normalised=False)
    size = np.exp(720 * np.array([0.6, 1.0]) - 20 * np.log(10))
    np.testing.assert_allclose(
        fields.output(attention, x, measure) / size[:, None], np.tile(measure.points, (2, 1)), rtol=1e-12, atol=1e-15
    )
    np.testing.assert_allclose(attention.potential(x, measure), size / 720, rtol=1e-12)


# potential


def directional(function, x, direction, h=1e-3):
    """Fourth order derivative along the geodesics from x."""
    f = [function(fields.exp_map(x, s * h * direction)) for s in (-2, -1, 1, 2)]
    return (f[0] - 8 * f[1] + 8 * f[2] - f[3]) / (12 * h)


@pytest.mark.parametrize("normalised", KINDS)
@pytest.mark.parametrize("d", [2, 3, 5])
def test_velocity_is_the_gradient_of_the_potential(d, normalised, rng, lopsided):
    measure, x = lopsided(d, total=1.7), queries(d)
    q, k = rng.normal(size=(d, d)), rng.normal(size=(d, d))
    symmetric = q + q.T
    cases = [{}, {"value": 3 * np.eye(d)}, {"value": -0.5 * np.eye(d)}, {"value": np.zeros((d, d))}]
    cases += [{"query": q, "key": k, "value": 2 * q.T @ k}, {"query": q, "value": -q.T}, {"key": k, "value": k}]
    cases += [{"query": symmetric, "value": -symmetric}]
    for beta in (0.1, 1.5):
        for matrices in cases:
            attention = Attention(beta, normalised=normalised, **matrices)
            assert attention.is_gradient
            velocity = attention.velocity(x, measure)
            direction = normalise(tangent(x, rng.normal(size=x.shape)))
            slope = directional(lambda y, a=attention: a.potential(y, measure), x, direction)
            scale = np.abs(fields.output(attention, x, measure)).max() + 1e-300
            np.testing.assert_allclose(slope, dot(velocity, direction), atol=1e-8 * scale)


def test_fields_without_a_potential(rng, lopsided):
    q, k, v = (rng.normal(size=(3, 3)) for _ in range(3))
    measure, x = lopsided(3), queries(3)
    for matrices in (
        {"value": v},
        {"query": q},
        {"query": q, "key": k},
        {"query": q, "key": k, "value": k.T @ q},
        {"query": q, "value": q},
    ):
        attention = Attention(1.0, **matrices)
        assert not attention.is_gradient
        with pytest.raises(ValueError, match=r"^the field of this attention has no potential, wanted V = c K\^T Q transposed"):
            attention.potential(x, measure)
        # it has none indeed: the line integral around a circle of latitude is not zero
        angles = 2 * np.pi * np.arange(64) / 64
        loops = []
        for turn in (np.eye(3), np.eye(3)[[1, 2, 0]], np.eye(3)[[2, 0, 1]]):
            loop = np.stack([0.8 * np.cos(angles), 0.8 * np.sin(angles), np.full(64, 0.6)], axis=1) @ turn
            along = np.stack([-np.sin(angles), np.cos(angles), np.zeros(64)], axis=1) @ turn
            loops.append(dot(attention.velocity(loop, measure), along).mean())
        assert np.abs(loops).max() > 1e-2
    for attention in (Attention(1.0, value=np.eye(3) * (1 + 1e-16)), Attention(1.0, q, k, 0.7 * (k.T @ q).T), Attention(0, value=v)):
        assert attention.is_gradient


# energy


@pytest.mark.parametrize("normalised", KINDS)
@pytest.mark.parametrize("d", [2, 3, 5])
def test_energy_grows_as_it_should(d, normalised, lopsided):
    """dE/dt = int |v|^2 dmu (USA), int (G*mu) |v|^2 dmu (SA), by moving the tokens along their velocities."""
    tokens = lopsided(d)
    for beta in (0.5, 3.0):
        attention = Attention(beta, normalised=normalised)
        velocity = attention.velocity(tokens.points, tokens)

        def energy(points, attention=attention):
            return attention.energy(Measure(points, tokens.masses)).value

        square = np.sum(velocity**2, axis=1)
        weights = np.exp(fields.log_partition(attention, tokens.points, tokens)) if normalised else 1.0
        rate = directional(lambda p, e=energy: np.array(e(p)), tokens.points, velocity, h=1e-3)
        assert rate == pytest.approx(tokens.masses @ (weights * square), rel=1e-7)
        if normalised:  # control: without the weight it is another number
            assert abs(rate / (tokens.masses @ square) - 1) > 1e-2


def test_energy_grows_at_beta_zero(lopsided):
    tokens, attention = lopsided(3), Attention(0)
    velocity = attention.velocity(tokens.points, tokens)
    rate = directional(lambda p: np.array(attention.energy(Measure(p, tokens.masses)).value), tokens.points, velocity)
    assert rate == pytest.approx(tokens.masses @ np.sum(velocity**2, axis=1), rel=1e-9)
    assert attention.energy(tokens).value == pytest.approx(np.sum((tokens.masses @ tokens.points) ** 2) / 2, rel=1e-14)


@pytest.mark.parametrize("normalised", KINDS)
def test_energy_from_a_known_potential(normalised, rng, lopsided):
    tokens = lopsided(3, total=1.7)
    q, k = rng.normal(size=(3, 3)), rng.normal(size=(3, 3))
    cases = [{}, {"value": -2 * np.eye(3)}, {"query": q, "key": k, "value": q.T @ k}, {"query": np.zeros((3, 3)), "value": q}]
    cases += [{"value": np.zeros((3, 3))}, {"query": -np.eye(3), "value": -np.eye(3)}]  # potentials that do not tell Z
    for beta in (1e-9, 1.0, 50.0):
        for matrices in cases:
            attention = Attention(beta, normalised=normalised, **matrices)
            measure = tokens if beta < 2 else Measure(tokens.points[:1])
            field = attention.field(measure, 0.0, "direct")
            field.potential(measure.points)
            assert field.energy() == attention.field(measure, 0.0, "direct").energy()


def test_log_energy_at_large_beta():
    for points, masses in ((np.eye(3)[:1], [1.0]), (np.eye(3), [0.5, 0.3, 0.2])):
        energy = Attention(1e5).energy(Measure(points, masses))
        assert energy.log == pytest.approx(1e5 + math.log(np.square(masses).sum()) - math.log(2e5), rel=1e-14)
        assert energy.value == math.inf


# symmetries


@pytest.mark.parametrize("normalised", KINDS)
@pytest.mark.parametrize("d", [2, 3, 5])
def test_rotation_equivariance(d, normalised, rng, rotation, lopsided):
    measure, x, turn = lopsided(d), queries(d), rotation(d)
    turned = Measure(normalise(measure.points @ turn.T), measure.masses)
    q, k, v = (rng.normal(size=(d, d)) for _ in range(3))
    for matrices in ((None, None, None), (q, k, v)):
        there = [None if m is None else turn @ m @ turn.T for m in matrices]
        velocity = Attention(2.0, *matrices, normalised=normalised).velocity(x, measure)
        found = Attention(2.0, *there, normalised=normalised).velocity(x @ turn.T, turned)
        np.testing.assert_allclose(found, velocity @ turn.T, atol=1e-13 * np.abs(velocity).max(), rtol=1e-13)
        if matrices[0] is not None:  # control: matrices that stay behind
            assert np.abs(Attention(2.0, *matrices, normalised=normalised).velocity(x @ turn.T, turned) - velocity @ turn.T).max() > 1e-2


@pytest.mark.parametrize("normalised", KINDS)
def test_order_of_the_sources_does_not_matter(normalised, rng, lopsided):
    measure, x = lopsided(3, n=500), queries(3)
    shuffle = rng.permutation(500)
    shuffled = Measure(measure.points[shuffle], measure.masses[shuffle])
    for beta in (0.0, 0.3, 9.0, 300.0):
        attention = Attention(beta, normalised=normalised)
        velocity = attention.velocity(x, measure)
        np.testing.assert_allclose(attention.velocity(x, shuffled), velocity, rtol=1e-13, atol=1e-13 * np.abs(velocity).max())


def test_mass_scales_usa_and_leaves_sa(lopsided):
    light, x = lopsided(3), queries(3)
    heavy = Measure(light.points, 7 * light.masses)
    for beta in (0.0, 0.2, 2.0):
        sa, usa = Attention(beta), Attention(beta, normalised=False)
        np.testing.assert_allclose(sa.velocity(x, heavy), sa.velocity(x, light), rtol=1e-13, atol=1e-15)
        np.testing.assert_allclose(sa.potential(x, heavy), sa.potential(x, light), rtol=1e-13, atol=1e-15)
        np.testing.assert_allclose(usa.velocity(x, heavy), 7 * usa.velocity(x, light), rtol=1e-13, atol=1e-14)
        np.testing.assert_allclose(usa.potential(x, heavy), 7 * usa.potential(x, light), rtol=1e-13, atol=1e-14)
        np.testing.assert_allclose(fields.log_partition(sa, x, heavy), fields.log_partition(sa, x, light) + math.log(7), rtol=1e-13)


@pytest.mark.parametrize("beta", [5.0, np.float64(5), np.float32(5), np.int64(5), np.array(5)])
def test_d4_type_of_beta_does_not_matter(beta, lopsided):
    measure, x = lopsided(3), queries(3)
    a, b = Attention(5), Attention(beta)
    assert a == b and type(b.beta) is float
    np.testing.assert_array_equal(a.velocity(x, measure), b.velocity(x, measure))
    np.testing.assert_array_equal(a.potential(x, measure), b.potential(x, measure))
    assert a.energy(measure) == b.energy(measure)
    assert a != Attention(5.000001)


# speed bound


@pytest.mark.parametrize("normalised", KINDS)
@pytest.mark.parametrize("d", [2, 3, 5])
def test_speed_bound_is_a_bound(d, normalised, rng):
    closest = 0.0
    for trial in range(40):
        q, k, v = (rng.normal(size=(d, d)) for _ in range(3))
        attention = Attention(rng.uniform(0, 3), *((q, k, v) if trial % 2 else (None, None, None)), normalised=normalised)
        n = int(rng.integers(1, 6))
        measure = Measure(normalise(rng.normal(size=(n, d))), rng.random(n) + 1e-3)
        x = np.concatenate([queries(d, 200, seed=trial), measure.points])
        speed = np.linalg.norm(fields.output(attention, x, measure), axis=1).max()
        bound = attention.speed_bound(measure)
        assert speed <= bound * (1 + 1e-14)
        closest = max(closest, speed / bound)
    assert closest > 0.9  # it is not a loose one


def test_speed_bound_of_a_dirac():
    dirac = Measure([[0, 0, 1]], [2.0])
    assert Attention(3.0).speed_bound(dirac) == 1
    assert Attention(3.0, normalised=False).speed_bound(dirac) == pytest.approx(2 * math.exp(3), rel=1e-15)
    assert np.linalg.norm(fields.output(Attention(3.0, normalised=False), [[0, 0, 1]], dirac)) == pytest.approx(2 * math.exp(3), rel=1e-14)
    assert Attention(1e5, value=3 * np.eye(3)).speed_bound(dirac) == pytest.approx(3, rel=1e-15)
    assert Attention(1e5, normalised=False).speed_bound(dirac) == math.inf


# memory and threads


def test_memory_does_not_grow_with_sources_times_queries():
    measure = Measure(sample(Uniform(3), 40_962, seed=0))
    x, attention = queries(3, 64), Attention(4.0)
    attention.velocity(x[:1], measure), attention.potential(x[:1], measure)  # compiled outside
    tracemalloc.start()
    attention.velocity(x, measure)
    attention.potential(x, measure)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.reset_peak()
    np.exp(4.0 * x @ measure.points.T)
    full = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 1e7 < full  # control: the matrix of pairs of so few queries is larger already


def sums(change):
    """The bytes of all that direct sums answer, beta changed."""
    x, y = sample(Uniform(3), 1001, seed=1), sample(VonMisesFisher((1, 2, 3), 2.0), 777, seed=2)
    mu, found = Measure(y, np.random.default_rng(0).dirichlet(np.ones(777))), b""
    for beta in (0.0, 0.3, 9.0):
        for normalised in (True, False):
            field = Attention(beta + change, normalised=normalised).field(mu, method="direct")
            found += b"".join(array.tobytes() for array in (field.velocity(x), field.potential(x), field.log_partition(x)))
    return found


def test_results_do_not_depend_on_the_number_of_threads(monkeypatch):
    """Direct sums; the control is another beta, by 1e-12."""
    answers = []
    for count in (1, 2, 4):
        monkeypatch.setenv("OMP_NUM_THREADS", str(count))
        threads._pool.cache_clear()
        answers.append(sums(0.0))
        assert (threads._pool.cache_info().currsize == 0) == (count == 1)
    assert answers[0] == answers[1] == answers[2] != sums(1e-12)


# bad input


MEASURE = Measure(np.eye(3))


@pytest.mark.parametrize(
    ("call", "sentence"),
    [
        (lambda: Attention(-1), r"^beta is -1, wanted a number at least 0$"),
        (lambda: Attention(np.nan), r"^beta is nan, wanted a finite number$"),
        (lambda: Attention(np.inf), r"^beta is inf, wanted a finite number$"),
        (lambda: Attention("hot"), r"^beta is 'hot', wanted a number$"),
        (lambda: Attention(1, query=np.eye(3)[:2]), r"^query has shape \(2, 3\), wanted a square matrix \(d, d\)$"),
        (lambda: Attention(1, key=np.ones(3)), r"^key has shape \(3,\), wanted \(d, d\)$"),
        (lambda: Attention(1, value=np.diag([1, np.nan])), r"^value\[1, 1\] is nan, wanted a finite number$"),
        (lambda: Attention(1, query=np.eye(3), value=np.eye(2)), r"^matrices have different sizes \{'query': 3, 'value': 2\}"),
        (lambda: Attention(1, normalised="yes"), r"^normalised is 'yes', wanted True \(SA\) or False \(USA\)$"),
        (lambda: Attention(1).velocity([[1, 0]], MEASURE), r"^points has shape \(1, 2\), wanted \(m, 3\) like the measure's points$"),
        (lambda: Attention(1).velocity([1, 0, 0], MEASURE), r"^points has shape \(3,\), wanted \(m, 3\)"),
        (
            lambda: Attention(1, value=np.eye(2)).velocity(np.eye(3), MEASURE),
            r"^points lie in R\^3, but the attention's matrices are 2 x 2$",
        ),
        (lambda: Attention(1).velocity(np.eye(3), Measure(np.eye(3), np.zeros(3))), r"^the measure has mass 0, wanted a positive mass$"),
        (lambda: Attention(1).velocity(np.eye(3), MEASURE, method="fast"), r"^method is 'fast', wanted 'auto' or 'direct' or 'spectral'"),
        (lambda: Attention(1).potential(np.eye(3), MEASURE, method="fast"), r"^method is 'fast', wanted 'auto' or 'direct' or 'spectral'"),
        (lambda: Attention(1, log_scale=1.0), r"^log_scale is 1 with normalised=True, wanted 0"),
    ],
)
def test_bad_input_is_answered_in_one_sentence(call, sentence):
    with pytest.raises(ValueError, match=sentence):
        call()


def test_matrices_are_kept_and_cannot_be_changed():
    matrix = np.diag([1.0, 2.0, 3.0])
    attention = Attention(1.0, query=matrix)
    matrix[0, 0] = 99
    assert attention.query[0, 0] == 1 and attention.key is None and attention.dimension == 3
    assert Attention().dimension is None and Attention().normalised is True
    with pytest.raises(ValueError, match="read-only"):
        attention.query[0, 0] = 5
    with pytest.raises(AttributeError):
        attention.beta = 2.0


def test_a_bad_point_spoils_its_own_row_only(lopsided):
    """A velocity that turns NaN must stay visible (T3)."""
    x = queries(3, 5)
    x[2] = np.nan
    velocity = Attention(3.0).velocity(x, lopsided(3))
    np.testing.assert_array_equal(np.isnan(velocity).all(axis=1), [False, False, True, False, False])
    assert np.isfinite(velocity[[0, 1, 3, 4]]).all()


@pytest.mark.parametrize("d", [2, 3, 5])
@pytest.mark.parametrize("beta", [9.0, 100.0, 600.0])
def test_the_pull_of_far_clusters_keeps_its_digits(d, beta):
    """Two clusters a radian apart: e^{-beta (1 - cos 1)} is 1e-120 at beta = 600, the rounding of unit vectors 1e-16."""
    x = np.zeros((2, d))
    x[0, 0], x[1, :2] = 1.0, (np.cos(1.0), np.sin(1.0))
    weight = np.exp(-beta * (1 - np.cos(1.0)))
    velocity = Attention(beta).velocity(x, Measure(x))
    assert np.linalg.norm(velocity[0]) == pytest.approx(weight * np.sin(1.0) / (1 + weight), rel=1e-14 * beta)
    np.testing.assert_allclose(velocity[0, :2] / np.linalg.norm(velocity[0]), [0.0, 1.0], atol=1e-12)
