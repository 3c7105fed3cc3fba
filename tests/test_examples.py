"""Every example runs, one number of each is pinned, and the README shows the same code.

Scripts and cases run as they stand, the longest with `-m slow`; studies run with fewer tokens, runs and values of beta.
"""

import re
import runpy
import tomllib
from pathlib import Path

import numpy as np
import pytest

import meanfield_pde as mf
from meanfield_pde.cases.case import read_case

ROOT = Path(__file__).parents[1]
EXAMPLES = ROOT / "examples"


def run(name, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    scope = runpy.run_path(str(EXAMPLES / f"{name}.py"), run_name="__main__")
    return scope, capsys.readouterr().out


@pytest.mark.slow
def test_one_cluster(tmp_path, monkeypatch, capsys):
    scope, printed = run("one_cluster", tmp_path, monkeypatch, capsys)
    assert mf.order_parameter(scope["limit"].measure(-1)) == pytest.approx(PINNED["one_cluster"], abs=1e-6)
    assert "order density" in printed
    assert (tmp_path / "out/one_cluster/limit.pvd").exists() and (tmp_path / "out/one_cluster/tokens.pvd").exists()


def test_one_cluster_on_a_coarse_mesh(tmp_path, monkeypatch, capsys):
    text = (EXAMPLES / "one_cluster.py").read_text()
    coarse = text.replace("level=4", "level=2").replace("count=1000", "count=100")
    assert text.count("level=4") == text.count("count=1000") == 1
    monkeypatch.chdir(tmp_path)
    exec(compile(coarse, "one_cluster.py", "exec"), scope := {})
    assert mf.order_parameter(scope["limit"].measure(-1)) == pytest.approx(PINNED["one_cluster_coarse"], abs=1e-6)
    assert "order density" in capsys.readouterr().out
    assert (tmp_path / "out/one_cluster/limit.pvd").exists() and (tmp_path / "out/one_cluster/tokens.pvd").exists()


def test_readme_shows_the_example():
    blocks = re.findall(r"```python\n(.*?)```", (ROOT / "README.md").read_text(), flags=re.S)
    example = (EXAMPLES / "one_cluster.py").read_text()
    lines = [line for line in blocks[0].splitlines() if line.strip() and line != "import numpy as np"]
    assert all(line in example for line in lines)


def test_readme_case_is_valid(tmp_path):
    (tmp_path / "case.toml").write_text(re.search(r"```toml\n(.*?)```", (ROOT / "README.md").read_text(), flags=re.S)[1])
    case = read_case(tmp_path / "case.toml")
    assert case.limit.system.mesh.n_cells == 2562 and len(case.tokens.start) == 1000


def test_metastable(tmp_path, monkeypatch, capsys):
    scope, printed = run("metastable", tmp_path, monkeypatch, capsys)
    assert len(scope["clusters"]) == 3
    assert scope["measured"] == pytest.approx(0.6827, rel=2e-3)
    assert "clusters: 3" in printed


@pytest.mark.slow
def test_staircase(tmp_path, monkeypatch, capsys):
    """Times over fourteen decades, at beta = 2000 (the last run) within .3 %: tokens against an integral."""
    scope, printed = run("staircase", tmp_path, monkeypatch, capsys)
    assert scope["met"][2] == pytest.approx(scope["second"], rel=3e-3) and scope["met"][1] == pytest.approx(scope["third"], rel=3e-3)
    assert 3.9e14 < scope["met"][1] < 4.1e14 and printed.count("clusters from") == 2 and len(scope["history"]) < 1000


@pytest.mark.slow
def test_merging(tmp_path, monkeypatch, capsys):
    scope, printed = run("merging", tmp_path, monkeypatch, capsys)
    assert scope["measured"] == pytest.approx(71.67, rel=1e-3) and scope["theory"] == pytest.approx(scope["measured"], rel=2e-3)
    assert "3 clusters of mass 0.400, 0.300, 0.300" in printed and "2 clusters of mass 0.600, 0.400" in printed
    assert (tmp_path / "out/merging.png").stat().st_size > 10_000


def test_usa_against_sa(tmp_path, monkeypatch, capsys):
    scope, _ = run("usa_against_sa", tmp_path, monkeypatch, capsys)
    assert mf.order_parameter(scope["runs"]["USA"].measure(-1)) == pytest.approx(PINNED["usa_against_sa"], abs=1e-6)
    assert mf.order_parameter(scope["runs"]["SA"].measure(-1)) == pytest.approx(0.890485, abs=1e-6)


@pytest.mark.slow
def test_general_value(tmp_path, monkeypatch, capsys):
    scope, _ = run("general_value", tmp_path, monkeypatch, capsys)
    assert scope["moments"][0] == pytest.approx(PINNED["general_value"], abs=1e-6)
    assert scope["moments"][1] == pytest.approx(scope["moments"][0], abs=0.015)
    assert scope["limit"].record["face velocity"] == "midpoint"


def study(name, folder, cells=None, **particles):
    """The study of an example with fewer tokens, runs and cells, or fewer values of beta."""
    tables = tomllib.loads((EXAMPLES / f"{name}.toml").read_text())
    tables["particles"] |= particles
    if cells is not None:
        tables["mesh"]["n"] = cells
    if "sweep" in tables:
        tables["sweep"]["attention.beta"]["count"] = 3
    return mf.study(tables, folder).table


@pytest.mark.slow
def test_convergence(tmp_path):
    table = study("convergence", tmp_path, counts=[100, 400], runs=2)
    assert table.where(quantity="order", t=2.0).column("limit")[0] == pytest.approx(PINNED["convergence"], abs=1e-6)
    assert table.where(quantity="w1").column("mean").max() < 0.5


@pytest.mark.slow
def test_phase(tmp_path):
    table = study("phase", tmp_path, cells=128, runs=2)
    last = table.where(t=30.0, source="limit")
    assert last.column("share") == pytest.approx(PINNED["phase"], abs=1e-6)
    assert last.column("clusters").tolist() == [1, 2, 4]


@pytest.mark.slow
def test_first_clusters(tmp_path):
    table = study("first_clusters", tmp_path, cells=128, counts=[200], runs=1)
    assert table.where(source="limit").column("clusters").tolist() == [3]
    assert table.where(source="limit").column("t")[0] == pytest.approx(PINNED["first_clusters"], abs=1e-6)


@pytest.mark.slow
def test_inner_products(tmp_path):
    table = study("inner_products", tmp_path, runs=2)
    assert np.abs(table.column("mean") - table.column("equiangular")).max() <= 0.02
    assert table.where(t=2.0).column("equiangular")[0] == pytest.approx(PINNED["inner_products"], abs=2e-3)


@pytest.mark.slow
def test_three_clusters():
    case = read_case(EXAMPLES / "three_clusters.toml")
    limit = mf.solve(case.limit.system, case.limit.start, case.t_end, save_at=case.times, stepper=case.limit.stepper)
    clusters = mf.clusters(limit.measure(-1), angle=0.1, floor=1e-3)
    assert len(clusters) == 3
    assert [mass for mass, _ in clusters] == pytest.approx(PINNED["three_clusters"], abs=1e-6)


def test_three_clusters_start_from_four_modes():
    case = read_case(EXAMPLES / "three_clusters.toml")
    centers = case.limit.system.mesh.centers
    angles = np.arctan2(centers[:, 1], centers[:, 0])
    modes = 1 + 0.3 * np.cos(angles - 0.3) + 0.25 * np.cos(2 * angles + 1) + 0.3 * np.cos(3 * angles - 0.7) + 0.1 * np.sin(4 * angles)
    assert np.abs(case.limit.start.averages - modes / (2 * np.pi)).max() <= 1e-4


PINNED = {
    "convergence": 0.765350,
    "phase": [1.0, 0.524595, 0.259557],
    "first_clusters": 16.860535,
    "inner_products": 0.584312,
    "one_cluster": 0.999577,
    "one_cluster_coarse": 0.999662,
    "usa_against_sa": 0.970929,
    "general_value": 0.946260,
    "three_clusters": [0.413412, 0.339057, 0.247310],
}
