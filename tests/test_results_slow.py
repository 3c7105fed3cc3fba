"""A large results file is inspected in little memory."""

import subprocess
import sys

import numpy as np
import pytest

import meanfield_pde as mf
from meanfield_pde.solution import HISTORY_TYPE, Solution, event_type

pytestmark = pytest.mark.slow

LEVEL, OUTPUTS = 7, 200
MEGABYTES = 500

LOOK = """
import re, sys
import numpy as np
import meanfield_pde as mf
run = mf.load(sys.argv[1])
assert "200 outputs" in run.summary() and len(run.history) == 1000 and run.history.mass.max() == 1
assert abs(run.measure(0).total - 1) < 1e-12 and abs(run.measure(-1).total - 1) < 1e-12
if sys.argv[2] == "all":
    assert np.asarray(run.masses).shape == (200, 163842)
print(int(re.search(r"VmHWM:\\s*(\\d+) kB", open("/proc/self/status").read())[1]) * 1024 / 1e6)
"""


@pytest.fixture(scope="module")
def path(tmp_path_factory):
    mesh, rng = mf.icosahedral(LEVEL), np.random.default_rng(0)
    masses = rng.random((OUTPUTS, mesh.n_cells))
    masses /= masses.sum(axis=1)[:, None]
    history = np.zeros(1000, dtype=HISTORY_TYPE).view(np.recarray)
    history.t, history.mass = np.arange(1, 1001) / 50, 1.0
    solution = Solution(
        system=mf.MeanFieldPDE(mesh, mf.Attention(4.0)),
        times=np.arange(OUTPUTS) / 10,
        columns={
            "masses": masses,
            "atom_offsets": np.zeros(OUTPUTS + 1, dtype=np.int64),
            "atom_points": np.empty((0, 3)),
            "atom_masses": np.empty(0),
        },
        history=history,
        events=np.empty(0, dtype=event_type(3)).view(np.recarray),
        status="done",
        record={},
    )
    file = tmp_path_factory.mktemp("large") / "run.vtkhdf"
    mf.save(file, solution)
    assert mf.load(file) == solution
    return file


def peak(path, what):
    """Megabytes."""
    return float(subprocess.run([sys.executable, "-c", LOOK, str(path), what], capture_output=True, text=True, check=True).stdout)


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="Linux alone tells the peak of a process by itself")
def test_a_large_run_is_inspected_in_little_memory(path):
    assert peak(path, "summary") < MEGABYTES
    assert peak(path, "all") > MEGABYTES
    assert path.stat().st_size < (200 + 16 * OUTPUTS) * 163842
