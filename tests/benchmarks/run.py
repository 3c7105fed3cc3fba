"""How fast it is, on this machine: `python tests/benchmarks/run.py [row ...]` measures all rows or the named ones and prints one table.

Both sides of a ratio take turns; every turn gives one ratio, and the median, smallest and largest are printed beside a limit.
"""

import cProfile
import os
import platform
import pstats
import subprocess
import sys
import tempfile
import time
import timeit
from collections.abc import Callable
from dataclasses import dataclass

import ducc0
import numpy as np
from rich.console import Console
from rich.table import Table

import meanfield_pde as mf
from meanfield_pde.integrals.harmonics import EPSILON, kernel_band
from meanfield_pde.integrals.methods import Spectral
from meanfield_pde.sphere import normalise
from meanfield_pde.stepping.ensembles import solve_ensemble
from meanfield_pde.stepping.ssp import SSPIntegration
from meanfield_pde.threads import over_rows, thread_count

SPREAD = mf.VonMisesFisher((1, 2, 2), 3.0)
PARTS = (("field", "attention"), ("transforms", "harmonics"), ("reconstruction", "reconstruction"), ("fluxes", "flux"))
"""Parts of a step and the modules that do them, called from CALLERS."""
CALLERS = ("/density.py", "/transport.py", "/spectral.py")


@dataclass
class Figure:
    """One line: samples (printed: median, smallest, largest), unit, how it came about, and a limit such as '<= 1.6' where there is one."""

    what: str
    samples: np.ndarray
    unit: str = ""
    how: str = ""
    limit: str = ""

    def cells(self) -> tuple[str, ...]:
        median, low, high = (float(f(self.samples)) for f in (np.median, np.min, np.max))
        bound = float(self.limit[3:] or "nan")
        missed = median < bound if self.limit.startswith(">=") else median > bound
        spread = f"{low:.3g} - {high:.3g}" if len(self.samples) > 1 else ""
        return self.what, f"{median:.3g} {self.unit}".strip(), spread, self.how, self.limit + " missed" * missed


def turns(count: int, **sides: Callable[[], object]) -> tuple[np.ndarray, str]:
    """Seconds (count, sides), the sides taking turns after one untimed turn; and their medians as text."""
    taken = np.empty((count + 1, len(sides)))
    for turn in range(count + 1):
        for k, side in enumerate(sides.values()):
            taken[turn, k] = timeit.timeit(side, number=1)
    medians = np.median(taken[1:], axis=0)
    return taken[1:], ", ".join(f"{name} {1e3 * seconds:.3g} ms" for name, seconds in zip(sides, medians, strict=True))


def child(code: str, *arguments: str, **environment: str) -> tuple[list[float], float]:
    """The numbers that a new interpreter prints, and the seconds it takes from start to end."""
    begun = time.perf_counter()
    printed = subprocess.check_output([sys.executable, "-c", code, *arguments], env=os.environ | environment, text=True)
    return [float(word) for word in printed.split()], time.perf_counter() - begun


def stepping(mesh: mf.SphereMesh, beta: float, law: mf.VonMisesFisher = SPREAD) -> SSPIntegration:
    """A run with SSPRK3 far from its end."""
    system = mf.MeanFieldPDE(mesh, mf.Attention(beta))
    return mf.SSP(mf.SSPRK3).begin(system, system.begin(mf.project(mesh, law)), 0.0, 1e3)


def sa() -> list[Figure]:
    """SA with Q = K = V = I, beta = 9, at all cells of level 6."""
    mesh, attention, figures = mf.icosahedral(6), mf.Attention(9.0), []
    measure = mf.Measure(mesh.centers, mf.project(mesh, SPREAD) * mesh.areas)
    for ask in (attention.potential, attention.velocity):
        sides = {way: lambda way=way, ask=ask: ask(measure.points, measure, method=way) for way in ("direct", "spectral")}
        taken, how = turns(2, **sides)
        figures.append(Figure(f"SA {ask.__name__}, level 6: sums / transforms", taken[:, 0] / taken[:, 1], "x", how, ">= 300"))
    return figures


def general() -> list[Figure]:
    """General Q, K, V: B = K^T Q and V have singular values 1, .6, .2; beta = 20."""
    mesh, sizes = mf.icosahedral(6), np.array([1.0, 0.6, 0.2])
    measure = mf.Measure(mesh.centers, mf.project(mesh, SPREAD) * mesh.areas)
    a, b, c, d, e = (np.linalg.qr(np.random.default_rng(seed).normal(size=(3, 3)))[0] for seed in range(5))
    attention = mf.Attention(20.0, a * np.sqrt(sizes) @ b, a * np.sqrt(sizes) @ c, d * sizes @ e)
    sides = {way: lambda way=way: attention.field(measure, method=way).output(measure.points) for way in ("direct", "spectral")}
    taken, how = turns(2, **sides)
    return [Figure("Q, K, V, condition 5, level 6: sums / transforms", taken[:, 0] / taken[:, 1], "x", how, ">= 30")]


def step() -> list[Figure]:
    """One SSPRK3 step at level 7, beta = 9, per stage, against ducc0's two transforms alone, and where its time goes."""
    mesh, beta = mf.icosahedral(7), 9.0
    run, band = stepping(mesh, beta), kernel_band(3, beta, Spectral.accuracy / 10)
    x, y, z = mesh.centers.T
    angles = np.stack([np.arccos(z), np.arctan2(y, x) % (2 * np.pi)], axis=1)
    options = {"spin": 0, "lmax": band, "mmax": band, "loc": angles, "epsilon": EPSILON, "nthreads": thread_count()}
    there, back = ducc0.sht.adjoint_synthesis_general, ducc0.sht.synthesis_general
    sides = {"step": lambda: run.advance(1e3), "pair": lambda: back(alm=there(map=run.state.cells[None], **options), **options)}
    taken, how = turns(25, **sides)
    figures = [Figure("SSPRK3 stage, level 7 / ducc0 pair", taken[:, 0] / taken[:, 1] / 3, "x", f"{how}, band {band}", "<= 1.6")]
    with cProfile.Profile() as profile:
        taken, _ = turns(25, **sides)
    shares = {part: 0.0 for part, _ in PARTS}
    for (path, *_), (*_, callers) in pstats.Stats(profile).stats.items():  # type: ignore[attr-defined]
        for part, module in PARTS:
            if path.endswith(f"/{module}.py"):
                spent = sum(entry[3] for caller, entry in callers.items() if caller[0].endswith(CALLERS))
                shares[part] += spent / (26 * 3 * np.median(taken[:, 1]))
    shares["field"] -= shares["transforms"]
    shares["rest"] = float(np.median(taken[:, 0] / taken[:, 1]) / 3) - sum(shares.values())
    return figures + [Figure(f"  of it {part}", np.array([share]), "x", "by profile") for part, share in shares.items()]


def scaling() -> list[Figure]:
    """Time of one SSPRK3 step from level 5 to 8."""
    runs = {f"level {level}": stepping(mf.icosahedral(level), 9.0) for level in (5, 6, 7, 8)}
    taken, how = turns(9, **{name: lambda run=run: run.advance(1e3) for name, run in runs.items()})
    exponents = np.polyfit(np.log([len(run.state.cells) for run in runs.values()]), np.log(taken).T, 1)[0]
    return [Figure("time per step ~ N^p, levels 5 to 8: p", exponents, "", how, "<= 1.15")]


WHOLE_RUN = """
import tempfile, meanfield_pde as mf
mesh = mf.icosahedral(7)
start = mf.project(mesh, mf.VonMisesFisher((1, 2, 2), 3.0))
solution = mf.solve(mf.MeanFieldPDE(mesh, mf.Attention(9.0)), start, 0.4, save_every=0.02)
with tempfile.TemporaryDirectory() as folder:
    mf.save(folder + "/run.vtkhdf", solution)
    mf.write_vtk(folder, solution)
print(len(solution.history), len(solution.times) - 1, open("/proc/self/status").read().split("VmHWM:")[1].split()[0])
"""


def memory() -> list[Figure]:
    """Peak memory (VmHWM) of a whole process: a run at level 7, its results file and its VTK files."""
    (steps, outputs, peak), seconds = child(WHOLE_RUN)
    how, peaks = f"{steps:.0f} steps, {outputs:.0f} outputs, {seconds:.0f} s", np.array([peak * 1024 / 1e9])
    return [Figure("peak memory, level 7 with results and VTK", peaks, "GB", how, "<= 1.2")]


BARE = "import ducc0, numba, numpy, basix, rich, scipy.integrate, scipy.sparse.csgraph, scipy.spatial, scipy.special"
FIRST_CALL = """
import timeit, meanfield_pde as mf
def run():
    mesh, skew = mf.icosahedral(4), [[0.5, 1, 0], [0, 1, 0], [0, 0, 1]]
    start = mf.project(mesh, mf.VonMisesFisher((1, 2, 2), 3.0))
    for attention in (mf.Attention(4.0), mf.Attention(4.0, value=skew)):
        mf.solve(mf.MeanFieldPDE(mesh, attention), start, 0.05)
    mf.solve(mf.ParticleSystem(mf.Attention(4.0)), mf.sample(mf.Uniform(3), 100, seed=0), 0.1)
run()
print(timeit.timeit(run, number=1))
"""


def first() -> list[Figure]:
    """A first small run (densities with both forms of velocity, tokens) in a new process, beyond bare imports and the run itself."""
    cold, warm = [], []
    for _ in range(2):
        with tempfile.TemporaryDirectory() as folder:
            for excesses in (cold, warm, warm, warm):
                bare = child(BARE)[1]
                (again,), seconds = child(FIRST_CALL, NUMBA_CACHE_DIR=folder)
                excesses.append(seconds - bare - 2 * again)
    how = f"of the process; subtracted: python with ducc0, numba, scipy .. imported ({bare:.2g} s), the run when compiled ({again:.2g} s)"
    limits = (("empty", cold, "<= 10"), ("warm", warm, "<= 0.5"))
    return [Figure(f"first call, {cache} numba cache", np.array(excesses), "s", how, limit) for cache, excesses, limit in limits]


def circle() -> list[Figure]:
    """One SSPRK3 step on 4096 arcs at beta = 100 against one FFT and back."""
    run = stepping(mf.circle(4096), 100.0, mf.VonMisesFisher((1, 0.3), 2.0))
    taken, how = turns(300, step=lambda: run.advance(1e3), pair=lambda: np.fft.irfft(np.fft.rfft(run.state.cells), 4096))
    return [Figure("S^1, 4096 cells: SSPRK3 step / FFT pair", taken[:, 0] / taken[:, 1], "x", f"{how}, {dict(run.work)}", "<= 30")]


def late() -> list[Figure]:
    """A run whose clusters merge, to t = 1e6 against t = 1e2."""
    mesh, centres = mf.circle(256), [(np.cos(angle), np.sin(angle)) for angle in (0.0, 1.35, 3.6)]
    start = mf.project(mesh, mf.Mixture([mf.VonMisesFisher(centre, 30.0) for centre in centres], [0.3, 0.3, 0.4]))
    system = mf.MeanFieldPDE(mesh, mf.Attention(9.0))
    taken, how = turns(3, long=lambda: mf.solve(system, start, 1e6), short=lambda: mf.solve(system, start, 1e2))
    return [Figure("t = 1e6 / t = 1e2, atoms that merge", taken[:, 0] / taken[:, 1], "x", how, "<= 2")]


def ensemble() -> list[Figure]:
    """2 048 runs of 32 tokens on S^1, beta = 4, to T = 30 against as many velocities as bare matrix products and exponentials.

    The bare side takes 64 runs at a time, whose weights stay in the cache, and does a part of the velocities; its time is scaled.
    """
    beta, n_runs, sweeps = 4.0, 2048, 20
    starts, times = normalise(np.random.default_rng(0).normal(size=(n_runs, 32, 2))), np.linspace(0, 30, 200)

    def products(first: int, last: int) -> None:
        for x in np.split(starts[first:last], range(64, last - first, 64)):
            weights = np.exp(beta * (x @ x.swapaxes(1, 2)))
            weights @ x

    def bare() -> None:
        for _ in range(sweeps):
            over_rows(products, n_runs, minimum_rows=64)

    evaluations = solve_ensemble(mf.Attention(beta), starts, times).evaluations.sum()
    part = sweeps * n_runs / evaluations
    taken, how = turns(5, ensemble=lambda: solve_ensemble(mf.Attention(beta), starts, times), bare=bare)
    how += f" for {part:.2g} of {evaluations / n_runs:.0f} velocities a run"
    return [Figure("2 048 runs of 32 tokens / matmul, exp, matmul", part * taken[:, 0] / taken[:, 1], "x", how, "<= 3")]


def peers() -> list[Figure]:
    """Self-attention of equal tokens at the centers of level 5, beta = 9: other programs against ours, by transforms and by sums."""
    points, figures = mf.icosahedral(5).centers, []
    attention, measure = mf.Attention(9.0), mf.Measure(points)

    def in_blocks() -> np.ndarray:
        weights = (np.exp(9.0 * (block @ points.T) - 9.0) for block in np.array_split(points, 20))
        return np.concatenate([weight @ points / weight.sum(axis=1, keepdims=True) for weight in weights])

    others = {"numpy in blocks": in_blocks}
    try:
        import torch

        torch.set_num_threads(thread_count())
        head = torch.tensor(points, dtype=torch.float32)[None, None]
        others["torch sdpa, float32"] = lambda: torch.nn.functional.scaled_dot_product_attention(head, head, head, scale=9.0)[0, 0].numpy()
    except ImportError:
        figures.append(Figure("level 5: torch sdpa, float32", np.array([np.nan]), how="torch is not installed"))
    ours = {way: lambda way=way: attention.field(measure, method=way).output(points) for way in ("spectral", "direct")}
    for name, other in others.items():
        taken, how = turns(5, theirs=other, **ours)
        how += f"; largest difference {np.abs(other() - ours['direct']()).max():.0e}"
        figures += [Figure(f"level 5: {name} / {way}", taken[:, 0] / taken[:, k], "x", how) for k, way in enumerate(ours, 1)]
    return figures


TWENTY_STEPS = """
import sys, numpy as np, meanfield_pde as mf
mesh = mf.icosahedral(6)
for name, value in (("potential", None), ("midpoint", [[0.5, 1, 0], [0, 1, 0.2], [0, 0, 1]])):
    system = mf.MeanFieldPDE(mesh, mf.Attention(9.0, value=value))
    run = mf.SSP(mf.SSPRK3).begin(system, system.begin(mf.project(mesh, mf.VonMisesFisher((1, 2, 2), 3.0))), 0.0, 1e3)
    for _ in range(20):
        run.advance(1e3)
    np.save(sys.argv[1] + name, run.state.cells)
"""


def repeated() -> list[Figure]:
    """Masses after 20 steps at level 6 with 1, 2 and 4 threads, each computed twice."""
    figures, threads = [], "124"
    with tempfile.TemporaryDirectory() as folder:
        for run in (count + turn for turn in "ab" for count in threads):
            child(TWENTY_STEPS, f"{folder}/{run}", OMP_NUM_THREADS=run[0])
        for form in ("potential", "midpoint"):
            first, second = (np.array([np.load(f"{folder}/{count}{turn}{form}.npy") for count in threads]) for turn in "ab")
            unequal, away = np.count_nonzero(first != second, axis=1), np.abs(np.concatenate([first, second]) / first[0] - 1).max(axis=1)
            hows = f"{', '.join(map(str, unequal))} with 1, 2, 4 threads", "largest difference to 1 thread, over each cell's own mass"
            figures.append(Figure(f"20 steps, {form}: cells not bitwise equal again", unequal.max(keepdims=True), "", hows[0], "<= 0"))
            figures.append(Figure(f"20 steps, {form}: 1, 2, 4 threads", away.max(keepdims=True), "", hows[1], "<= 1e-12"))
    return figures


def main() -> None:
    rows = {row.__name__: row for row in (sa, general, step, scaling, memory, first, circle, late, ensemble, peers, repeated)}
    if unknown := set(sys.argv[1:]) - set(rows):
        sys.exit(f"no row {', '.join(unknown)}, wanted some of {', '.join(rows)}")
    machine = f"{platform.machine()}, {os.cpu_count()} processors, {thread_count()} threads; python {platform.python_version()}"
    table = Table("what", "median", "min - max", "how", "limit", title=f"{machine}, numpy {np.__version__}, ducc0 {ducc0.__version__}")
    for name in sys.argv[1:] or rows:
        print(f"{name} ..", file=sys.stderr, flush=True)
        for figure in rows[name]():
            table.add_row(*figure.cells())
    Console(width=200).print(table)


if __name__ == "__main__":
    main()
