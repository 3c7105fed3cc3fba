"""The comparison table: each column against its own definition, aggregation said aloud, CSV with all digits."""

import csv
import sys

import numpy as np
import pytest

import meanfield_pde as mf
from meanfield_pde.diagnostics import comparison

LAW = mf.VonMisesFisher((1.0, 2.0, 2.0), 3.0)
ATTENTION = mf.Attention(2.0)


@pytest.fixture(scope="module")
def runs():
    mesh = mf.icosahedral(2)
    limit = mf.solve(mf.MeanFieldPDE(mesh, ATTENTION), mf.project(mesh, LAW), 0.4, save_every=0.1)
    tokens = mf.solve(mf.ParticleSystem(ATTENTION), mf.sample(LAW, 60, seed=1), 0.4, save_at=[0.0, 0.15, 0.2, 0.4])
    return limit, tokens


def test_rows_are_the_common_times(runs):
    limit, tokens = runs
    table = mf.compare(limit, tokens)
    assert table.columns["t"].tolist() == pytest.approx([0.0, 0.2, 0.4], abs=1e-12)
    k = 2
    mu, nu = limit.measure(4), tokens.measure(3)
    assert table.columns["log_energy_a"][k] == mf.log_energy(ATTENTION, mu)
    assert table.columns["log_energy_b"][k] == mf.log_energy(ATTENTION, nu)
    assert table.columns["order_a"][k] == mf.order_parameter(mu)
    assert table.columns["order_b"][k] == mf.order_parameter(nu)
    assert table.columns["w1"][k] == mf.wasserstein(mu, nu)
    assert table.columns["w2"][k] == mf.wasserstein(mu, nu, order=2)
    assert (table.columns["w_error"] < 0.4 * limit.mesh.spacing).all() and not table.notes


@pytest.mark.parametrize("t_end", [1e-11, 1.0, 1e9])
def test_an_output_has_at_most_one_partner(t_end):
    """Five times closer together than 1e-9 would give 25 rows; nearly equal ones go with the nearest."""
    times = np.array([0, 0.3, 0.3 + 1e-11, 0.6, 1]) * t_end
    rounded = np.array([0, 0.3 + 4e-12, 0.3 + 1.4e-11, 0.6 + 1e-10, 0.7, 1]) * t_end
    attention = mf.Attention(1.0, value=np.zeros((2, 2)))
    a, b = (mf.solve(mf.ParticleSystem(attention), np.eye(2), t_end, save_at=given) for given in (times, rounded))
    table = mf.compare(a, b)
    assert table.columns["t"].tolist() == times.tolist()
    assert len({line.split()[0] for line in str(table).splitlines()[1:]}) == 5
    assert mf.compare(a, a).columns["t"].tolist() == times.tolist()


def test_common_times_are_relative_to_the_run():
    """The control: the same gap is rounding in a long run and none in a short one."""
    attention = mf.Attention(1.0, value=np.zeros((2, 2)))
    for t_end, rows in ((1.0, 3), (1e-3, 2)):
        a, b = (mf.solve(mf.ParticleSystem(attention), np.eye(2), t_end, save_at=[0, t_end / 2 + gap, t_end]) for gap in (0, 1e-11))
        assert len(mf.compare(a, b)) == rows


def test_a_run_against_itself_is_zero(runs):
    table = mf.compare(runs[0], runs[0])
    assert np.abs(table.columns["w1"]).max() <= 1e-12
    assert (table.columns["order_a"] == table.columns["order_b"]).all()
    assert "density a" in str(table) and "density b" in str(table)


def test_printed_table(runs):
    lines = str(mf.compare(*runs)).splitlines()
    assert lines[0].split() == [
        "t",
        "energy",
        "density",
        "energy",
        "tokens",
        "order",
        "density",
        "order",
        "tokens",
        "W1",
        "W2",
        "W",
        "error",
    ]
    assert len(lines) == 4 and len({len(line) for line in lines}) == 1


def test_large_beta_is_printed_as_a_logarithm():
    attention = mf.Attention(800.0)
    start = mf.sample(LAW, 5, seed=0)
    runs = [mf.solve(mf.ParticleSystem(attention), start, 0.1) for _ in range(2)]
    assert "log energy" in str(mf.compare(*runs))


def test_csv_holds_every_digit(runs, tmp_path):
    table = mf.compare(*runs)
    table.write_csv(tmp_path / "summary.csv")
    with (tmp_path / "summary.csv").open() as stream:
        rows = list(csv.DictReader(stream))
    assert [float(row["w1"]) for row in rows] == table.columns["w1"].tolist()
    assert [path.name for path in tmp_path.iterdir()] == ["summary.csv"]


def test_frame_of_a_comparison(runs, monkeypatch):
    table = mf.compare(*runs)
    frame = table.to_pandas()
    assert list(frame) == list(table.columns) and all((frame[name] == values).all() for name, values in table.columns.items())
    assert frame.attrs["units"] | {"t": "1", "w1": "rad", "w2": "rad", "w_error": "rad"} == frame.attrs["units"]
    assert set(frame.attrs["units"]) == set(frame.attrs["long_name"]) == set(table.columns)
    assert frame.attrs["long_name"]["order_b"].endswith("tokens") and frame.attrs["labels"] == ("density", "tokens")
    assert repr(table).startswith("<Comparison of density and tokens at 3 times") and "\n" not in repr(table)
    monkeypatch.setitem(sys.modules, "pandas", None)
    with pytest.raises(ValueError, match=r"to_pandas needs pandas, .* wanted pip install 'meanfield-pde\[tables\]'"):
        table.to_pandas()


def test_large_plans_are_aggregated_and_say_so(monkeypatch):
    mesh = mf.icosahedral(3)
    attention = mf.Attention(0.0)
    limit = mf.solve(mf.MeanFieldPDE(mesh, attention), mf.project(mesh, LAW), 0.05)
    tokens = mf.solve(mf.ParticleSystem(attention), mf.sample(LAW, 400, seed=1), 0.05, stepper=mf.Adaptive(1e-6, 1e-8))
    exact = mf.compare(limit, tokens)
    monkeypatch.setattr(comparison, "LARGEST_PLAN", 1e6)
    monkeypatch.setattr(comparison, "AGGREGATION_LEVEL", 2)
    rough = mf.compare(limit, tokens)
    assert "aggregation to the 162 cells" in str(rough) and "W error" in str(rough)
    difference = np.abs(rough.columns["w1"] - exact.columns["w1"])
    assert (difference <= rough.columns["w_error"]).all() and difference.max() > 0


def test_high_dimension_leaves_large_plans_out(monkeypatch):
    monkeypatch.setattr(comparison, "LARGEST_PLAN", 1e3)
    start = mf.sample(mf.Uniform(5), 10, seed=0)
    run = mf.solve(mf.ParticleSystem(ATTENTION), start, 0.1)
    table = mf.compare(run, run)
    assert np.isnan(table.columns["w1"]).all()
    assert any("left out" in note for note in table.notes)


def test_refusals(runs):
    limit, _ = runs
    odd = mf.solve(mf.ParticleSystem(ATTENTION), mf.sample(LAW, 5, seed=1), 0.4, save_at=[0.33])
    with pytest.raises(ValueError, match="share no output time"):
        mf.compare(limit, odd)
    plane = mf.solve(mf.ParticleSystem(ATTENTION), mf.sample(mf.Uniform(2), 5, seed=1), 0.4)
    with pytest.raises(ValueError, match=r"R\^3 and R\^2"):
        mf.compare(limit, plane)


def uniform_run(mesh):
    return mf.solve(mf.MeanFieldPDE(mesh, mf.Attention(1.0)), np.full(mesh.n_cells, 1 / mesh.areas.sum()), 0.1, save_every=0.1)


@pytest.mark.parametrize("meshes", [(mf.circle, 30, 50), (mf.icosahedral, 1, 2), (mf.cubed_sphere, 4, 7)])
def test_the_error_of_distances_holds_that_mass_sits_at_centres(meshes):
    """The same law on two meshes: all that is between the runs is the places of their mass, and tokens have no such error."""
    make, *sizes = meshes
    coarse, fine = map(make, sizes)
    columns = mf.compare(uniform_run(coarse), uniform_run(fine)).columns
    assert (columns["w1"] <= columns["w_error"]).all() and (columns["w1"] > 0.2 * columns["w_error"]).all()
    quarter = (coarse.spacing + fine.spacing) / 4
    assert columns["w_error"] == pytest.approx(quarter * (1 if coarse.dimension == 2 else 1.5), rel=1e-9 if coarse.dimension == 2 else 0.12)
    tokens = mf.solve(mf.ParticleSystem(mf.Attention(1.0)), mf.sample(mf.Uniform(coarse.dimension), 9, seed=1), 0.1, save_every=0.1)
    assert (mf.compare(tokens, tokens).columns["w_error"] == 0).all() and "W error" not in str(mf.compare(tokens, tokens))
    assert "W error" in str(mf.compare(uniform_run(coarse), tokens))
