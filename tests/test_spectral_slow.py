"""The spectral method on fine meshes, against sums in extended precision, and across threads: minutes.

Fluxes divide potential differences by the spacing, so that errors grow as meshes get finer: storing log Z / beta in double precision
costs up to 9e-13 of the largest flux at level 5 and beta = 300.
"""

import os
import subprocess
import sys
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from itertools import product

import fields
import numpy as np
import pytest

import meanfield_pde as mf
from meanfield_pde.integrals.methods import Spectral

pytestmark = pytest.mark.slow

BETAS = (0.5, 4.0, 9.0, 30.0, 100.0, 300.0)
LAWS = {
    "cap": mf.VonMisesFisher((1, 2, 3), 10.0),
    "two caps": mf.Mixture([mf.VonMisesFisher((1, 0, 0), 20.0), mf.VonMisesFisher((-0.4, 1, 0), 30.0)], [0.4, 0.6]),
    "random": None,
}


def masses_of(mesh, law):
    if LAWS[law] is None:
        return np.random.default_rng(0).dirichlet(np.ones(mesh.n_cells))
    return mf.project(mesh, LAWS[law]) * mesh.areas


def fluxes(mesh, potential, masses):
    left, right = mesh.face_cells.T
    velocities = (potential[right] - potential[left]) / mesh.face_distances
    density = masses / mesh.areas
    return mesh.face_lengths * velocities * np.where(velocities > 0, density[left], density[right])


def flux_error(mesh, potential, reference, masses):
    exact = fluxes(mesh, reference, masses)
    return float(np.abs(fluxes(mesh, potential, masses) - exact).max() / np.abs(exact).max())


def used(mesh, model, method, masses):
    """The potential from which a density makes its fluxes, its centers taken as mere points: no part is integrated exactly."""
    system = mf.MeanFieldPDE(mesh, model, order=1, method=method)
    field = system.model.field(mf.Measure(mesh.centers, masses), 0.0, system.method)
    found = system.transport.rate(masses, field)
    assert found.of_potential and field.work.total() == mesh.n_cells
    assert field.work[{"spectral": "sums", "direct": "transforms"}.get(method, "none")] == 0
    return found.flow


@pytest.mark.parametrize(
    ("level", "law", "normalised"),
    [
        *(case for case in product([4], LAWS, [True, False])),
        (5, "random", True),
        *(pytest.param(5, *case, marks=pytest.mark.nightly) for case in product(LAWS, [True, False]) if case != ("random", True)),
    ],
)
def test_potentials_and_fluxes_are_those_of_sums(level, law, normalised):
    """Fluxes by transforms alone. Measured: fluxes 9.3e-13 (beta = 300, rounding of log Z / beta), else 6.3e-13; potential 3e-13."""
    mesh = mf.icosahedral(level)
    masses = masses_of(mesh, law)
    measure, heavy = mf.Measure(mesh.centers, masses), masses >= 1e-10 * masses.max()
    for beta in BETAS:
        model = mf.Attention(beta, normalised=normalised, log_scale=0.0 if normalised or beta < 300 else beta)
        spectral, direct = (model.potential(mesh.centers, measure, method=method) for method in ("spectral", "direct"))
        assert np.abs(spectral - direct)[heavy].max() <= 1e-10 * np.abs(direct).max()
        if normalised:
            logs = [fields.log_partition(model, mesh.centers, measure, method) for method in ("spectral", "direct")]
            assert np.abs(logs[0] - logs[1])[heavy].max() <= 1e-10
        found = used(mesh, model, "spectral", masses)
        assert flux_error(mesh, found, direct, masses) <= 1e-12
    coarse = used(mesh, mf.Attention(9.0), Spectral(band=12), masses)
    reference = mf.Attention(9.0).potential(mesh.centers, measure, method="direct")
    assert flux_error(mesh, coarse, reference, masses) > 1e-10  # the control: too few degrees


@pytest.mark.skipif(np.finfo(np.longdouble).eps > 1e-18, reason="no extended precision here")
@pytest.mark.parametrize("law", LAWS)
def test_fluxes_against_extended_precision(law):
    """Level 4. Measured: transforms and direct sums within 5e-13."""
    mesh, wide = mf.icosahedral(4), np.longdouble
    masses = masses_of(mesh, law)
    points, shares = mesh.centers.astype(wide), masses.astype(wide) / masses.astype(wide).sum()

    def log_partition(rows, beta):
        exponents = wide(beta) * (points[rows] @ points.T)
        shift = exponents.max(axis=1)
        return shift + np.log(np.exp(exponents - shift[:, None]) @ shares)

    for beta in BETAS:
        with ThreadPoolExecutor(2) as pool:
            parts = pool.map(lambda rows, b=beta: log_partition(rows, b), np.array_split(np.arange(mesh.n_cells), 40))
            reference = np.concatenate(list(parts)) / wide(beta)
        model = mf.Attention(beta)
        assert flux_error(mesh, used(mesh, model, "direct", masses), reference, masses) <= 1e-12
        assert flux_error(mesh, used(mesh, model, "spectral", masses), reference, masses) <= 1e-12


def with_singular_values(sigmas, seed):
    u, _, v = np.linalg.svd(np.random.default_rng(seed).normal(size=(len(sigmas), len(sigmas))))
    return u @ np.diag(sigmas) @ v


@pytest.mark.parametrize("normalised", [True, False])
@pytest.mark.parametrize("make", [lambda: mf.icosahedral(4), lambda: mf.circle(1000)], ids=["sphere", "circle"])
def test_general_matrices(make, normalised):
    """beta sigma_max up to 40, condition up to 100. Measured: 2e-10."""
    mesh = make()
    d, transforms = mesh.dimension, Counter()
    laws = [masses_of(mesh, "random")]
    x, y = np.eye(d)[:2]
    for law in (mf.VonMisesFisher(x + y, 10.0), mf.Mixture([mf.VonMisesFisher(x, 20.0), mf.VonMisesFisher(y - 0.4 * x, 30.0)], [0.4, 0.6])):
        laws.append(mf.project(mesh, law) * mesh.areas)
    points = mesh.face_midpoints[:: max(1, mesh.n_faces // 1000)]
    for seed, (sigma, condition) in enumerate([(0.4, 2), (2.0, 100), (9.0, 3), (20.0, 30), (40.0, 5), (40.0, 100)]):
        rng = np.random.default_rng(seed)
        key, value = rng.normal(size=(d, d)), rng.normal(size=(d, d))
        bilinear = with_singular_values(sigma * np.geomspace(1, 1 / condition, d), seed)
        model = mf.Attention(1.0, np.linalg.solve(key.T, bilinear), key, value, normalised=normalised)
        for masses in laws:
            measure = mf.Measure(mesh.centers, masses)
            spectral = fields.output(model, points, measure, method="spectral", work=transforms)
            direct = fields.output(model, points, measure, method="direct")
            assert np.abs(spectral - direct).max() <= 1e-9 * np.abs(direct).max()
    assert transforms["transforms"] > transforms["sums"]


@pytest.mark.parametrize("normalised", [True, False])
def test_growth_converges_at_second_order(normalised):
    """About the uniform density, beta = 5, modes 1 to 4. Measured: order 1.99, errors 8e-4 (256 cells) and 1.8e-3 (level 5)."""
    for meshes in ([mf.circle(n) for n in (64, 128, 256)], [mf.icosahedral(level) for level in (3, 4, 5)]):
        d = meshes[0].dimension
        errors = []
        for mesh in meshes:
            system, uniform = mf.MeanFieldPDE(mesh, mf.Attention(5.0, normalised=normalised), method="spectral"), 1 / mesh.areas.sum()
            worst = 0.0
            for k in (1, 2, 3, 4):
                start = mf.project(mesh, mf.PerturbedUniform(d, [(k, 1e-4, [0.36, 0.48, 0.8][:d])]))
                change, mode = system.rate(0.0, fields.state_of(system, start * mesh.areas)).change, start - uniform
                rate = (change @ mode) / (mode**2 @ mesh.areas)
                worst = max(worst, abs(rate / mf.exact.growth_rate(d, 5.0, k, normalised=normalised) - 1))
            errors.append(worst)
        assert -np.polyfit(range(3), np.log2(errors), 1)[0] > 1.8


SCRIPT = """
import sys
import numpy as np, meanfield_pde as mf

def write(array):
    sys.stdout.buffer.write(np.ascontiguousarray(array).tobytes())

tokens = mf.Measure(mf.sample(mf.VonMisesFisher((1, 2, 3), 2.0), 20_000, seed=0), np.random.default_rng(0).dirichlet(np.ones(20_000)))
ring = mf.Measure(mf.sample(mf.VonMisesFisher((1, 2), 2.0), 20_000, seed=0), tokens.masses)
for measure in (tokens, ring):
    d = measure.dimension
    for attention in (mf.Attention(9.0), mf.Attention(4.0, query=np.diag(np.arange(1, d + 1) / d), normalised=False)):
        write(attention.velocity(measure.points, measure, method="spectral"))
mesh = mf.icosahedral(5)
start = mf.project(mesh, mf.VonMisesFisher((1, 2, 2), 3.0))
for attention in (mf.Attention(4.0), mf.Attention(4.0, normalised=False)):
    write(mf.solve(mf.MeanFieldPDE(mesh, attention, method="spectral"), start, 1.0 if attention.normalised else 0.05).masses[-1])
"""


def results_with(threads):
    environment = os.environ | {"OMP_NUM_THREADS": str(threads)}
    output = subprocess.run([sys.executable, "-c", SCRIPT], env=environment, capture_output=True, check=True, timeout=100).stdout
    numbers = np.frombuffer(output)
    edges = np.cumsum([60_000, 60_000, 40_000, 40_000, 10_242])
    assert len(numbers) == edges[-1] + 10_242
    return np.split(numbers, edges)


def test_repeatable_with_each_number_of_threads():
    """Bitwise for one number, 1e-12 of the largest value across; measured: 3e-14."""
    runs = {threads: [results_with(threads) for _ in range(2)] for threads in (1, 2, 4)}
    for first, second in runs.values():
        for a, b in zip(first, second, strict=True):
            np.testing.assert_array_equal(a, b)
    for threads in (2, 4):
        for a, b in zip(runs[threads][0], runs[1][0], strict=True):
            assert np.abs(a - b).max() <= 1e-12 * np.abs(b).max()
