"""Geometry of the unit sphere S^{d-1} in R^d.

Data in: points (..., d), unit vectors. Data out: distances and areas (dimensionless, radius 1), tangent vectors (..., d).
Distances use the arctangent of chord and sum, which keeps its digits near 0 and pi where arccos loses them.
"""

from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray
from scipy.special import gammaln

FloatArray: TypeAlias = NDArray[np.float64]
IntArray: TypeAlias = NDArray[np.int64]


def surface_area(d: int) -> float:
    """Area of S^{d-1}: 2 pi for d=2, 4 pi for d=3."""
    return float(2 * np.exp(d / 2 * np.log(np.pi) - gammaln(d / 2)))


def dot(x: FloatArray, y: FloatArray) -> FloatArray:
    """Row-wise inner product, (..., d), (..., d) -> (...)."""
    return np.einsum("...i,...i->...", x, y)


def normalise(x: FloatArray) -> FloatArray:
    """Each row divided by its length."""
    return x / np.linalg.norm(x, axis=-1, keepdims=True)


def tangent(x: FloatArray, y: FloatArray) -> FloatArray:
    """P_x y = y - <x, y> x, the tangent part of y at x."""
    return y - dot(x, y)[..., None] * x


def distance(x: FloatArray, y: FloatArray) -> FloatArray:
    """Geodesic distance, in [0, pi]."""
    return 2 * np.arctan2(np.linalg.norm(x - y, axis=-1), np.linalg.norm(x + y, axis=-1))


def log_map(x: FloatArray, y: FloatArray) -> FloatArray:
    """Tangent vector at x that points to y, as long as the geodesic between them; zero where y = x."""
    direction = tangent(x, y - x)
    length = np.linalg.norm(direction, axis=-1)
    scale = np.divide(distance(x, y), length, out=np.zeros_like(length), where=length > 0)
    return direction * scale[..., None]


def spherical_angles(x: FloatArray) -> FloatArray:
    """Colatitude in [0, pi] and longitude in [0, 2 pi] of points (m, 3): (m, 2)."""
    longitude = np.arctan2(x[:, 1], x[:, 0])
    longitude[longitude < 0] += 2 * np.pi
    return np.stack([np.arctan2(np.hypot(x[:, 0], x[:, 1]), x[:, 2]), longitude], axis=1)


def triangle_area(a: FloatArray, b: FloatArray, c: FloatArray) -> FloatArray:
    """Signed area of spherical triangles on S^2, positive if a, b, c turn counter-clockwise seen from outside.

    Source: Van Oosterom and Strackee, IEEE Trans. Biomed. Eng. 30 (1983); the determinant is taken of differences so that
    small triangles keep their relative accuracy.
    """
    determinant = dot(a, np.cross(b - a, c - a))
    return 2 * np.arctan2(determinant, 1 + dot(a, b) + dot(b, c) + dot(c, a))


def tangent_frames(x: FloatArray) -> FloatArray:
    """Two orthonormal tangent vectors at each point (n, d), d = 2 or 3: (2, n, d). On S^1 the second is zero."""
    if x.shape[1] == 2:
        return np.stack([np.stack([-x[:, 1], x[:, 0]], axis=1), np.zeros_like(x)])
    away = np.eye(3)[np.abs(x).argmin(axis=1)]
    first = normalise(tangent(x, away))
    return np.stack([first, np.cross(x, first)])
