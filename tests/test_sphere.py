"""Distances, areas, tangent vectors and geodesics against closed forms."""

import math

import fields
import numpy as np
import pytest

from meanfield_pde.sphere import distance, dot, log_map, normalise, surface_area, tangent, triangle_area

DIMENSIONS = [2, 3, 7]


def pairs(rng, d, n=50):
    return normalise(rng.normal(size=(n, d))), normalise(rng.normal(size=(n, d)))


def at_angle(angle):
    """Two points of S^2 this far apart, in no special position."""
    x = normalise(np.array([0.3, -0.8, 0.5]))
    direction = normalise(tangent(x, np.array([0.2, 0.9, 0.4])))
    return x, math.cos(angle) * x + math.sin(angle) * direction


def test_surface_area():
    known = {2: 2 * np.pi, 3: 4 * np.pi, 4: 2 * np.pi**2, 5: 8 * np.pi**2 / 3}
    for d, area in known.items():
        assert surface_area(d) == pytest.approx(area, rel=1e-15)
    for d in range(2, 100):
        assert surface_area(d + 2) == pytest.approx(2 * np.pi / d * surface_area(d), rel=1e-13)


@pytest.mark.parametrize("d", DIMENSIONS)
def test_tangent_part(rng, d):
    x, y = pairs(rng, d)
    part = tangent(x, y)
    np.testing.assert_allclose(dot(x, part), 0, atol=4e-16)
    np.testing.assert_allclose(part + dot(x, y)[:, None] * x, y, atol=4e-16)
    np.testing.assert_allclose(tangent(x, part), part, atol=4e-16)
    np.testing.assert_allclose(tangent(x, x), 0, atol=4e-16)


def test_d3_distance_keeps_its_digits_at_both_ends():
    x, _ = at_angle(1.0)
    assert distance(x, x) == 0
    assert distance(x, -x) == np.pi
    for angle in (1e-9, 1e-5, 0.3, 1.5, 3.0):
        a, b = at_angle(angle)
        assert distance(a, b) == pytest.approx(angle, abs=2e-16, rel=2e-15)
        assert np.pi - distance(a, -b) == pytest.approx(angle, abs=5e-16, rel=2e-15)
    # control: the arccosine takes points 1e-9 apart for one, or fails
    with np.errstate(invalid="ignore"):
        assert not abs(np.arccos(dot(*at_angle(1e-9))) - 1e-9) < 1e-10


@pytest.mark.parametrize("d", DIMENSIONS)
def test_distance_is_a_metric_that_rotations_keep(rng, rotation, d):
    x, y = pairs(rng, d)
    z = normalise(rng.normal(size=x.shape))
    np.testing.assert_array_equal(distance(x, y), distance(y, x))
    assert (distance(x, z) <= distance(x, y) + distance(y, z) + 1e-15).all()
    matrix = rotation(d)
    np.testing.assert_allclose(distance(x @ matrix.T, y @ matrix.T), distance(x, y), rtol=1e-13)
    np.testing.assert_allclose(distance(x, y), np.arccos(dot(x, y)), rtol=1e-9)


@pytest.mark.parametrize("d", DIMENSIONS)
def test_log_and_exp_are_inverse(rng, d):
    x, y = pairs(rng, d)
    step = log_map(x, y)
    # the direction to a point near the antipode is as sharp as that point
    np.testing.assert_allclose(dot(x, step), 0, atol=5e-14)
    np.testing.assert_allclose(np.linalg.norm(step, axis=1), distance(x, y), rtol=1e-14)
    np.testing.assert_allclose(fields.exp_map(x, step), y, atol=5e-14)
    for size in (1e-12, 1e-3, 2.0):
        v = size * normalise(tangent(x, rng.normal(size=x.shape)))
        np.testing.assert_allclose(np.linalg.norm(fields.exp_map(x, v), axis=1), 1, rtol=4e-16)
        np.testing.assert_allclose(distance(x, fields.exp_map(x, v)), size, rtol=1e-3 if size < 1e-6 else 1e-12)
        # points have digits of 1e-16, so that has their difference
        np.testing.assert_allclose(log_map(x, fields.exp_map(x, v)), v, atol=1e-15, rtol=1e-13)


def test_log_and_exp_where_there_is_no_direction(rng):
    x, _ = pairs(rng, 3)
    np.testing.assert_array_equal(log_map(x, x), np.zeros_like(x))
    np.testing.assert_allclose(fields.exp_map(x, np.zeros_like(x)), x, atol=2e-16)


def test_exp_turns_the_circle():
    angles, turns = np.linspace(0, 6, 7), np.linspace(-3, 3, 7)
    ring = np.stack([np.cos(angles), np.sin(angles)], axis=1)
    along = np.stack([-np.sin(angles), np.cos(angles)], axis=1)
    moved = fields.exp_map(ring, turns[:, None] * along)
    np.testing.assert_allclose(moved, np.stack([np.cos(angles + turns), np.sin(angles + turns)], axis=1), atol=4e-16)


def test_triangle_area_of_octants():
    a, b, c = np.eye(3)
    assert triangle_area(a, b, c) == pytest.approx(np.pi / 2, rel=1e-15)
    assert triangle_area(a, c, b) == pytest.approx(-np.pi / 2, rel=1e-15)
    assert triangle_area(a, b, normalise(a + b)) == pytest.approx(0, abs=1e-16)
    # nearly a hemisphere, where the area passes pi: three triangles about the pole
    ring = [np.array([np.cos(t), np.sin(t), 0.2]) / np.sqrt(1.04) for t in (0, 2 * np.pi / 3, 4 * np.pi / 3)]
    assert triangle_area(*ring) == pytest.approx(3 * triangle_area(c, ring[0], ring[1]), rel=1e-14)
    assert np.pi < triangle_area(*ring) < 2 * np.pi


def angle_at(a, b, c):
    """Interior angle at a between the great circles to b and c."""
    p, q = tangent(a, b), tangent(a, c)
    return np.arctan2(np.linalg.norm(np.cross(p, q), axis=1), dot(p, q))


def test_triangle_area_by_girard(rng):
    a, b = pairs(rng, 3)
    c = normalise(rng.normal(size=a.shape))
    excess = angle_at(a, b, c) + angle_at(b, c, a) + angle_at(c, a, b) - np.pi
    np.testing.assert_allclose(np.abs(triangle_area(a, b, c)), excess, atol=1e-13)
    np.testing.assert_array_equal(np.sign(triangle_area(a, b, c)), np.sign(np.linalg.det(np.stack([a, b, c], axis=1))))
    middle = normalise(a + b + c)
    parts = triangle_area(a, b, middle) + triangle_area(b, c, middle) + triangle_area(c, a, middle)
    np.testing.assert_allclose(parts, triangle_area(a, b, c), atol=1e-13)


def test_small_triangles_keep_their_digits():
    a, b = at_angle(1e-6)
    c = fields.exp_map(a, 1e-6 * np.cross(a, normalise(tangent(a, b))))
    flat = 0.5e-12
    assert triangle_area(a, b, c) == pytest.approx(flat, rel=1e-9)
    # control: Girard's excess of so small a triangle has no digit
    excess = sum(angle_at(*(p[None] for p in corners))[0] for corners in ((a, b, c), (b, c, a), (c, a, b))) - np.pi
    assert abs(excess / flat - 1) > 1e-6
