"""Shared by the tests: seeded numbers, data without symmetry, rotations."""

import os

if "PYTEST_XDIST_WORKER" in os.environ:
    # Workers share the processors: each, and what it starts, takes one thread, unless a test asks for more.
    os.environ.setdefault("OMP_NUM_THREADS", "1")

import numpy as np
import pytest

from meanfield_pde.measure import Measure
from meanfield_pde.sphere import normalise


@pytest.fixture
def rng():
    return np.random.default_rng(2024)


@pytest.fixture
def lopsided():
    """Makes measures without symmetry: n points of unequal masses, most of them on one side."""

    def make(d, n=40, total=1.0, seed=0):
        generator = np.random.default_rng(seed)
        points = normalise(generator.normal(size=(n, d)) + np.arange(1, d + 1) / d)
        masses = generator.random(n) ** 2
        return Measure(points, total * masses / masses.sum())

    return make


@pytest.fixture
def rotation():
    """Makes rotation matrices (d, d) that fix no axis."""
    from scipy.stats import special_ortho_group  # imported late: it takes a while, and most tests do without

    return lambda d, seed=0: special_ortho_group.rvs(d, random_state=seed)
