"""Harmonic analysis at arbitrary points of S^1 and S^2: what the two spheres do differently in the spectral method.

    e^{<z, y>} = sum_k I_k(|z|) e^{i k (arg z - arg y)}   (S^1),     e^{<z, y>} = sum_l 4 pi i_l(|z|) sum_m Y_lm(z/|z|) Y_lm(y)   (S^2)

Data in: points (n, d), masses (n,) or coefficients. Data out: coefficients (one per harmonic of order >= 0), values (m,), gradients (m, d).
Sources: Jacobi-Anger and Funk-Hecke expansions, DLMF 10.35.2 and 10.60.7; transforms from ducc0, arXiv:2304.10431.
"""

from collections.abc import Callable
from functools import cache, lru_cache
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from meanfield_pde.bessel import degree_factors
from meanfield_pde.records import frozen, remembered
from meanfield_pde.sphere import FloatArray, IntArray, spherical_angles
from meanfield_pde.threads import over_rows, thread_count

ComplexArray = NDArray[np.complex128]

EPSILON = 1e-14
"""Tolerance asked of the transforms; the errors measured are about half of it, relative to the largest value."""

MOST_DEGREES = 1 << 14
RADII_KEPT = 1024
ANALYSIS_ROWS = 4096


class CircleHarmonics:
    """e^{ik theta}, k >= 0; points at equal angles, one after the other, are transformed by plain FFTs.

    Coefficients are stored for one band (largest degree) and may be used up to a narrower one. constant: what the kernel 1 multiplies the
    harmonic of degree 0 by. degrees: the degree of every coefficient.
    """

    constant = 1.0

    def degrees(self, band: int) -> IntArray:
        return np.arange(band + 1)

    def analyse(self, points: FloatArray, masses: FloatArray, band: int) -> ComplexArray:
        angles = _circle_angles(points)
        if angles.equal and band <= len(points) // 2:
            return np.fft.rfft(masses)[: band + 1] * np.exp(-1j * np.arange(band + 1) * angles.first)
        import ducc0

        complex_masses = masses.astype(np.complex128)

        def block(first: int, last: int) -> ComplexArray:
            out = np.empty(2 * band + 1, dtype=np.complex128)
            part = complex_masses[first:last]
            ducc0.nufft.nu2u(points=part, coord=angles.coordinates[first:last], forward=True, epsilon=EPSILON, nthreads=1, out=out)
            return out[band:]

        return _summed_in_order(block, len(points))

    def values(self, coefficients: ComplexArray, band: int, points: FloatArray, narrower: int) -> FloatArray:
        angles = _circle_angles(points)
        kept = coefficients[: narrower + 1]
        if angles.equal and narrower <= len(points) // 2 - 1:
            shifted = kept * np.exp(1j * np.arange(narrower + 1) * angles.first)
            return np.fft.irfft(shifted, len(points)) * len(points)
        import ducc0

        both = np.concatenate([np.conj(kept[:0:-1]), kept])
        return ducc0.nufft.u2nu(grid=both, coord=angles.coordinates, forward=False, epsilon=EPSILON, nthreads=thread_count()).real

    def gradients(self, coefficients: ComplexArray, band: int, points: FloatArray, narrower: int) -> FloatArray:
        slopes = self.values(1j * self.degrees(band) * coefficients, band, points, narrower)
        return slopes[:, None] * np.stack([-points[:, 1], points[:, 0]], axis=1)

    def root_mean_square(self, coefficients: ComplexArray, band: int) -> float:
        return float(np.sqrt(np.abs(coefficients[0]) ** 2 + 2 * np.sum(np.abs(coefficients[1:]) ** 2)))


class SphereHarmonics:
    """Y_lm, m >= 0, stored order by order (m = 0 with all l, m = 1 with l >= 1, ...)."""

    constant = 4 * np.pi

    def degrees(self, band: int) -> IntArray:
        return _sphere_degrees(band)

    def analyse(self, points: FloatArray, masses: FloatArray, band: int) -> ComplexArray:
        import ducc0

        location = _sphere_angles(points)

        def block(first: int, last: int) -> ComplexArray:
            rows = slice(first, last)
            return ducc0.sht.adjoint_synthesis_general(
                map=masses[None, rows], spin=0, lmax=band, mmax=band, loc=location[rows], epsilon=EPSILON, nthreads=1
            )[0]

        return _summed_in_order(block, len(points))

    def values(self, coefficients: ComplexArray, band: int, points: FloatArray, narrower: int) -> FloatArray:
        return self._synthesis(coefficients, band, points, narrower, spin=0)[0]

    def gradients(self, coefficients: ComplexArray, band: int, points: FloatArray, narrower: int) -> FloatArray:
        south, east = self._synthesis(coefficients, band, points, narrower, spin=1, mode="DERIV1")
        frame = _sphere_frame(points)
        return south[:, None] * frame[0] + east[:, None] * frame[1]

    def root_mean_square(self, coefficients: ComplexArray, band: int) -> float:
        square = np.abs(coefficients) ** 2
        return float(np.sqrt((square[: band + 1].sum() + 2 * square[band + 1 :].sum()) / (4 * np.pi)))

    def _synthesis(self, coefficients: ComplexArray, band: int, points: FloatArray, narrower: int, **mode: Any) -> FloatArray:
        import ducc0

        return ducc0.sht.synthesis_general(
            alm=coefficients[None],
            lmax=narrower,
            mmax=narrower,
            mstart=_sphere_starts(band)[: narrower + 1],
            loc=_sphere_angles(points),
            epsilon=EPSILON,
            nthreads=thread_count(),
            **mode,
        )


Harmonics = CircleHarmonics | SphereHarmonics
HARMONICS: dict[int, Harmonics] = {2: CircleHarmonics(), 3: SphereHarmonics()}


@lru_cache(RADII_KEPT)
def kernel_factors(d: int, radius: float, band: int) -> FloatArray:
    """What e^{<z, y>}, |z| = radius, multiplies the harmonics of each degree by, scaled by e^{-radius}, (band + 1,)."""
    return frozen(HARMONICS[d].constant * degree_factors(d, radius, band))


@lru_cache(RADII_KEPT)
def kernel_band(d: int, radius: float, tolerance: float) -> int:
    """Smallest degree whose later terms of e^{<z, y>}, |z| = radius, sum to less than the tolerance, relative to the mean and to the
    first term that varies."""
    count = 64
    while count <= MOST_DEGREES:
        harmonics_of_degree = np.full(count, 2.0) if d == 2 else 2 * np.arange(count) + 1.0
        sizes = harmonics_of_degree * degree_factors(d, radius, count - 1)
        sizes /= sizes[0] / (1 if d == 3 else 2)
        tail, bound = np.cumsum(sizes[::-1])[::-1], tolerance * min(1.0, sizes[1])
        if tail[-1] <= bound * 1e-3:
            return max(1, int(np.argmax(tail <= bound)) - 1)
        count *= 2
    raise ValueError(f"the kernel needs more than {MOST_DEGREES} degrees, wanted a smaller beta or method='direct'")


def _summed_in_order(block: Callable[[int, int], ComplexArray], n_points: int) -> ComplexArray:
    """Sum of an analysis over blocks of points, one a thread: a transform that spreads with several threads adds in an order of its own."""
    parts: dict[int, ComplexArray] = {}

    def analyse(first: int, last: int) -> None:
        parts[first] = block(first, last)

    over_rows(analyse, n_points, minimum_rows=ANALYSIS_ROWS)
    total, *others = (parts[first] for first in sorted(parts))
    for other in others:
        total = total + other
    return total


class _CircleAngles(NamedTuple):
    coordinates: FloatArray
    first: float
    equal: bool


def _circle_angles(points: FloatArray) -> _CircleAngles:
    def angles() -> _CircleAngles:
        theta = np.arctan2(points[:, 1], points[:, 0])
        turn = 2 * np.pi / len(theta) * np.arange(len(theta))
        off = np.abs(np.exp(1j * (theta - theta[0] - turn)) - 1).max() if len(theta) else 1.0
        return _CircleAngles(theta[:, None], float(theta[0]), bool(off < 1e-14))

    return remembered("circle angles", points, angles)


def _sphere_angles(points: FloatArray) -> FloatArray:
    return remembered("sphere angles", points, lambda: spherical_angles(points))


def _sphere_frame(points: FloatArray) -> FloatArray:
    """Unit vectors to the south and to the east, (2, m, 3)."""

    def frame() -> FloatArray:
        polar, longitude = _sphere_angles(points).T
        south = np.stack([np.cos(polar) * np.cos(longitude), np.cos(polar) * np.sin(longitude), -np.sin(polar)], axis=1)
        east = np.stack([-np.sin(longitude), np.cos(longitude), np.zeros(len(points))], axis=1)
        return np.stack([south, east])

    return remembered("sphere frame", points, frame)


@cache
def _sphere_starts(band: int) -> NDArray[np.uintp]:
    orders = np.arange(band + 1)
    return (orders * (2 * band + 1 - orders) // 2).astype(np.uintp)


@cache
def _sphere_degrees(band: int) -> IntArray:
    return np.concatenate([np.arange(order, band + 1) for order in range(band + 1)])
