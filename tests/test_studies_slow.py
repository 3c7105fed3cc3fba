"""Studies at the sizes that people run: rates on S^1 and S^2, stratified tokens, the number of clusters that forms first."""

import re
import tomllib
from pathlib import Path

import numpy as np
import pytest

import meanfield_pde as mf
from meanfield_pde.studies import convergence

pytestmark = pytest.mark.slow
EXAMPLES = Path(__file__).parents[1] / "examples"


def example(name, **changes):
    tables = tomllib.loads((EXAMPLES / f"{name}.toml").read_text())
    for key, value in changes.items():
        tables[key] = tables[key] | value if isinstance(value, dict) else value
    return tables


FULL = [100 * 2**k for k in range(8)]
SIZES = pytest.mark.parametrize(("counts", "runs"), [(FULL[:5], 20), pytest.param(FULL, 40, marks=pytest.mark.nightly)], ids=["few", "all"])


def assert_half(table, quantity, counts):
    """The slope is -.5 within .07, or .12 of few sizes, and the fitted interval holds -.5, at each time."""
    for t in (0, 1, 2):
        row = table.where(quantity=quantity, t=float(t))
        slope, low, high = (row.column(name)[0] for name in ("slope", "slope_low", "slope_high"))
        assert slope == pytest.approx(-0.5, abs=0.07 if counts == FULL else 0.12) and low <= -0.5 <= high, (quantity, t, slope, low, high)
        assert not row.column("mesh_limited").any() and row.column("n").tolist() == counts


@SIZES
def test_tokens_on_the_circle_follow_the_limit(counts, runs, tmp_path):
    tables = example("convergence", quantities=["w1", "mmd", "order"], particles={"counts": counts, "runs": runs})
    table = mf.study(tables, tmp_path).table
    for quantity in ("w1", "mmd", "order"):
        assert_half(table, quantity, counts)


@SIZES
def test_tokens_on_the_sphere_follow_the_limit(counts, runs, tmp_path):
    sphere = {
        "mesh": {"kind": "icosahedral", "level": 5 if counts == FULL else 4},
        "start": {"kind": "von_mises_fisher", "mean": [0, 0, 1], "kappa": 1.0},
        "quantities": ["mmd", "order"],
    }
    tables = example("convergence", particles={"counts": counts, "runs": runs}) | sphere
    del tables["solver"]
    table = mf.study(tables, tmp_path).table
    for quantity in ("mmd", "order"):
        assert_half(table, quantity, counts)


def test_w1_on_the_sphere_says_what_limits_it(tmp_path):
    """Exact where the plan fits, with its error where it does not, flagged where the cells are as large as the distance."""
    sphere = {
        "mesh": {"kind": "icosahedral", "level": 5},
        "start": {"kind": "von_mises_fisher", "mean": [0, 0, 1], "kappa": 1.0},
        "quantities": ["w1"],
        "largest_plan": 1e8,
        "times": [0, 0.1],
        "particles": {"counts": [100, 12800], "runs": 1},
    }
    tables = example("convergence") | sphere
    del tables["solver"]
    result = mf.study(tables, tmp_path)
    few, many = result.table.where(t=0.0, n=100), result.table.where(t=0.0, n=12800)
    assert few.column("approximation_error")[0] == 0 and not few.column("mesh_limited")[0]
    assert many.column("approximation_error")[0] > 0 and many.column("mesh_limited")[0]
    assert "w1 is limited by the mesh" in str(result)
    factor = float(re.search(r"w1 is limited .*, which spacings ([\d.e+]+) times smaller would mend", str(result))[1])
    w1 = result.table.where(quantity="w1", mesh_limited=True)
    needed = (w1.column("limit_error") + w1.column("approximation_error")) / (convergence.MESH_SHARE * w1.column("mean"))
    assert factor == pytest.approx(needed.max(), rel=0.06) and factor > 1


@SIZES
def test_stratified_tokens_are_closer(counts, runs, tmp_path):
    tables = example("convergence", particles={"sampling": "stratified", "counts": counts, "runs": runs // 4}, quantities=["w1"])
    table = mf.study(tables, tmp_path).table
    for t in (0.0, 1.0, 2.0):
        row = table.where(t=t)
        assert row.column("slope")[0] <= -0.9 and not row.column("mesh_limited").any()


@pytest.mark.parametrize(("runs", "cells"), [(8, 128), pytest.param(50, None, marks=pytest.mark.nightly)])
def test_three_clusters_form_first(runs, cells, tmp_path):
    """At beta = 5 the third mode grows fastest (.683 against .514 and .600): 1e-3 of noise becomes three clusters in nine starts of ten."""
    tables = example("first_clusters", particles={"runs": runs}, mesh={} if cells is None else {"n": cells})
    table = mf.study(tables, tmp_path).table
    limit, tokens = (table.where(source=source).column("clusters") for source in ("limit", "tokens"))
    assert len(limit) == len(tokens) == runs
    assert np.mean(limit == 3) >= (0.9 if runs == 50 else 0.7)
    assert (tokens > 0).all() and (tmp_path / "study.png").stat().st_size > 10_000


def test_like_with_like_keeps_tokens_and_density_together(tmp_path):
    """From the uniform law, 500 tokens and the density of the same tokens form the same clusters; a uniform density forms none."""
    start = {"kind": "uniform", "d": 2}
    particles = {"counts": [500], "runs": 2, "sampling": "binned"}
    changes = {"start": start, "particles": particles, "attention": {"beta": 5.0}, "times": [0, 12], "mesh": {"kind": "circle", "n": 512}}
    tables = example("convergence") | changes
    tables["quantities"] = ["mmd", "order"]
    same = mf.study(tables, tmp_path / "same").table.where(t=12.0, quantity="order")
    law = mf.study(tables | {"particles": particles | {"sampling": "independent"}}, tmp_path / "law").table.where(t=12.0, quantity="mmd")
    together = mf.study(tables, tmp_path / "same").table.where(t=12.0, quantity="mmd")
    assert together.column("mean")[0] < 0.2 * law.column("mean")[0]
    assert same.column("mean")[0] < 0.05
