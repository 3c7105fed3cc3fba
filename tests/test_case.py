"""Case files: keys are constructor arguments, everything else is refused with one sentence before anything runs."""

import copy
import json
import os

import numpy as np
import pytest

import meanfield_pde as mf
from meanfield_pde.cases.case import make_case, read_case
from meanfield_pde.studies.plan import read_study

GOOD = {
    "t_end": 1.0,
    "save_every": 0.25,
    "mesh": {"kind": "icosahedral", "level": 1},
    "attention": {"beta": 4.0},
    "start": {"kind": "von_mises_fisher", "mean": [0, 0, 1], "kappa": 2.0},
    "particles": {"count": 10, "seed": 3},
}


def changed(**tables):
    case = copy.deepcopy(GOOD)
    for name, table in tables.items():
        case[name] = case[name] | table if isinstance(table, dict) and name in case else table
    return case


def test_a_case_builds_what_a_script_builds():
    case = make_case(GOOD)
    law = mf.VonMisesFisher((0, 0, 1), 2.0)
    mesh = mf.icosahedral(1)
    assert case.times.tolist() == [0, 0.25, 0.5, 0.75, 1.0]
    assert case.limit.system == mf.MeanFieldPDE(mesh, mf.Attention(4.0))
    assert np.array_equal(case.limit.start.averages, mf.project(mesh, law))
    assert np.array_equal(case.tokens.start.points, mf.sample(law, 10, seed=3)) or np.allclose(
        case.tokens.start.points, mf.sample(law, 10, seed=3), rtol=1e-15
    )


def test_every_start_kind(tmp_path):
    parts = [{"kind": "uniform", "d": 3}, {"kind": "moebius", "w": [0.1, 0.2, 0.3]}]
    starts = [
        *parts,
        {"kind": "mixture", "laws": parts, "weights": [0.25, 0.75]},
        {"kind": "perturbed_uniform", "d": 3, "modes": [[2, 0.1, [0, 0, 1]]], "noise": 0.01, "seed": 4},
    ]
    for start in starts:
        case = make_case({**GOOD, "start": start})
        assert (case.limit.start.averages * case.limit.system.mesh.areas).sum() == pytest.approx(1, abs=1e-14)
        assert len(case.tokens.start) == 10


def test_tokens_of_ones_own_start_both_runs(tmp_path):
    points = mf.sample(mf.Uniform(3), 7, seed=0)
    np.save(tmp_path / "mine.npy", points)
    start = {"kind": "tokens", "file": "mine.npy"}
    case = make_case({**GOOD, "start": start, "particles": {}}, tmp_path)
    assert np.array_equal(case.limit.start.averages, mf.bin_tokens(mf.icosahedral(1), points))
    assert np.allclose(case.tokens.start.points, points, rtol=1e-15)
    smooth = make_case({**GOOD, "start": start | {"bandwidth": 0.4}, "particles": {}}, tmp_path)
    assert np.array_equal(smooth.limit.start.averages, mf.project(mf.icosahedral(1), mf.Smoothed(points, 0.4)))
    with pytest.raises(ValueError, match=r"particles.count is given beside start.kind = 'tokens'"):
        make_case({**GOOD, "start": start}, tmp_path)


def test_a_mesh_file_is_relative_to_the_case(tmp_path):
    mf.write_mesh(tmp_path / "mine.vtu", mf.cubed_sphere(3))
    case = make_case({**GOOD, "mesh": {"file": "mine.vtu"}}, tmp_path)
    assert case.limit.system.mesh.n_cells == 54


def test_either_run_alone():
    assert make_case({key: GOOD[key] for key in GOOD if key != "particles"}).tokens is None
    assert make_case({key: GOOD[key] for key in GOOD if key != "mesh"}).limit is None


@pytest.mark.parametrize(
    ("case", "message"),
    [
        (changed(tend=1.0), "case: unknown key 'tend' .did you mean 't_end'..; known: atoms, attention, mesh"),
        (changed(attention={"betta": 1.0}), "attention: unknown key 'betta' .did you mean 'beta'..; known: beta, key, log_scale"),
        (changed(mesh={"kind": "torus"}), "mesh.kind is 'torus', wanted 'circle' or"),
        (changed(mesh={"level": -1}), "mesh: level is -1"),
        (changed(mesh={"levels": 1}), "mesh: unknown key 'levels'"),
        (changed(mesh=3), "case: mesh is 3, wanted a table"),
        (changed(start={"kind": "gauss"}), "start.kind is 'gauss'"),
        (changed(start={"kappa": -1.0}), "start: kappa is -1"),
        (changed(start={"kappa": "big"}), "start: kappa is 'big', wanted a number"),
        (changed(start={"mean": [0, 0]}), "start: mean has 2 coordinates and length 0"),
        (changed(start={"mean": [0, 1]}), r"law lives in R\^2, wanted R\^3"),
        (changed(attention={"beta": -1}), "attention: beta is -1"),
        (changed(attention={"value": [[1, 0], [0, 1]]}), "wanted 3 x 3 like the mesh"),
        (changed(t_end=0), "t_end is 0, wanted a number > 0"),
        (changed(save_at=[0.5]), "save_every and save_at are both given"),
        (changed(particles={"count": 0}), "count is 0, wanted an integer at least 1"),
        (changed(particles={"number": 10}), "particles: unknown key 'number'"),
        (changed(solver={"order": 3}), "order is 3"),
        (changed(solver={"stepper": "rk4"}), "stepper is 'rk4'"),
        (changed(solver={"stepper": "dop853"}), "keeps no mass positive"),
        (changed(solver={"speed": 1}), "solver: unknown key 'speed'"),
        ({key: GOOD[key] for key in GOOD if key != "mesh"} | {"solver": {"order": 1}}, "case: solver is given without mesh"),
        (
            {key: GOOD[key] for key in GOOD if key != "mesh"} | {"atoms": {"points": [[1, 0]], "masses": [0.1]}},
            r"atoms: points lie in R\^2, the start in R\^3",
        ),
        ({key: GOOD[key] for key in GOOD if key != "start"}, "case: start is missing"),
        ({key: GOOD[key] for key in GOOD if key != "t_end"}, "case: t_end is missing"),
        ({key: GOOD[key] for key in GOOD if key not in ("mesh", "particles")}, "mesh and particles are both missing"),
        (changed(particles={"count": 5, "seed": -1}), "seed is -1"),
        ({**GOOD, "particles": {"count": 5}}, "particles: seed is missing"),
        ({**GOOD, "mesh": {"kind": "icosahedral"}}, "mesh: level is missing"),
    ],
)
def test_bad_cases(case, message):
    with pytest.raises(ValueError, match=message):
        make_case(case)


def test_bad_files(tmp_path):
    with pytest.raises(FileNotFoundError, match="no case file"):
        read_case(tmp_path / "missing.toml")
    (tmp_path / "case.toml").write_text("t_end = ")
    with pytest.raises(ValueError, match="is not TOML"):
        read_case(tmp_path / "case.toml")


LIMIT = 't_end = 1.0\nmesh = {file = "mine.vtu"}\nstart = {kind = "uniform", d = 3}\n'


@pytest.mark.parametrize("read", [read_case, read_study])
def test_a_byte_order_mark_is_no_part_of_a_case(read, tmp_path):
    text = LIMIT.replace("t_end = 1.0", "t_end = 1.0" if read is read_case else "kind = 'inner_products'\ntimes = [1.0]")
    mf.write_mesh(tmp_path / "mine.vtu", mf.icosahedral(0))
    for encoding in ("utf-8", "utf-8-sig"):
        (tmp_path / "case.toml").write_text(text, encoding=encoding)
        assert max(read(tmp_path / "case.toml").times) == 1.0
    (tmp_path / "case.toml").write_text(text, encoding="utf-16")
    with pytest.raises(ValueError, match=r"case.toml is not TOML: it begins with the byte-order mark of UTF-16, wanted text in UTF-8"):
        read(tmp_path / "case.toml")


def test_a_study_in_json_may_begin_with_a_byte_order_mark(tmp_path):
    tables = {"kind": "inner_products", "times": [1.0], "start": {"kind": "uniform", "d": 2}, "mesh": {"kind": "circle", "n": 8}}
    (tmp_path / "study.json").write_text(json.dumps(tables), encoding="utf-8-sig")
    assert read_study(tmp_path / "study.json").times == (1.0,)


@pytest.mark.skipif(os.name != "posix", reason="/dev/fd is a thing of Unix")
def test_a_case_may_come_through_a_pipe(tmp_path, monkeypatch):
    """`run <(make_case)` and `make_case | run /dev/stdin`: names in it are relative to the working directory, and it is read once."""
    mf.write_mesh(tmp_path / "mine.vtu", mf.cubed_sphere(3))
    monkeypatch.chdir(tmp_path)
    reading, writing = os.pipe()
    os.write(writing, LIMIT.encode())
    os.close(writing)
    case = read_case(f"/dev/fd/{reading}")
    os.close(reading)
    assert case.limit.system.mesh.n_cells == 54 and case.folder == tmp_path.resolve()
    (tmp_path / "case.toml").write_text(LIMIT)
    with (tmp_path / "case.toml").open() as stream:
        assert read_case(f"/dev/fd/{stream.fileno()}").source == case.source
    for path in (tmp_path, "/dev/null"):
        with pytest.raises(FileNotFoundError, match="no case file"):
            read_case(path)


def test_heavy_tokens_start_beside_the_law():
    case = make_case(changed(atoms={"points": [[1, 0, 0], [0, 1, 0]], "masses": [0.1, 0.2]}, stop_speed=1e-3))
    assert case.limit.start.atoms.masses.tolist() == [0.1, 0.2]
    assert (case.limit.start.averages * case.limit.system.mesh.areas).sum() == pytest.approx(0.7, abs=1e-14)
    assert case.tokens.start.total == pytest.approx(1.0, abs=1e-14) and case.tokens.start.masses[-2:].tolist() == [0.1, 0.2]
    assert case.callbacks[0].speed == 1e-3
    assert make_case(changed(solver={"atoms": False})).limit.system.atoms is False


@pytest.mark.parametrize(
    ("tables", "message"),
    [
        ({"atoms": {"points": [[1, 0, 0]]}}, "atoms: masses is missing"),
        ({"atoms": {"points": [[2, 0, 0]], "masses": [0.1]}}, r"atoms: points\[0\] has length 2"),
        ({"atoms": {"points": [[1, 0, 0]], "masses": [1.5]}}, "atoms: masses sum to 1.5, wanted at most 1"),
        ({"atoms": {"points": [[1, 0]], "masses": [0.1]}}, r"the start's atoms lie in R\^2, wanted R\^3"),
        ({"atoms": {"points": [[1, 0, 0]], "masses": [0.1]}, "solver": {"atoms": False}}, "the start has 1 atoms with atoms=False"),
        ({"stop_speed": -1}, "speed is -1, wanted a number > 0"),
        ({"solver": {"atoms": "yes"}}, "atoms is 'yes', wanted True or False"),
    ],
)
def test_bad_atoms(tables, message):
    with pytest.raises(ValueError, match=message):
        make_case(changed(**tables))
