"""Further wrong or odd inputs, kind by kind: text files, times, refusals that must show the difference, single precision, options."""

import json

import numpy as np
import pytest

import meanfield_pde as mf
from meanfield_pde.cases.case import make_case, read_case
from meanfield_pde.cli import main
from meanfield_pde.files.tokens import read_tokens

NORTH = [0.0, 0.0, 1.0]
SQUARE = "1,0\n0,1\n-1,0\n0,-1\n"
CASE = 't_end = 0.2\n[mesh]\nkind = "circle"\nn = 8\n[start]\nkind = "von_mises_fisher"\nmean = [1, 0]\nkappa = 1.0\n'


def law():
    return mf.VonMisesFisher((1, 0), 1.0)


def run_of(t_end=0.2, **options):
    return mf.solve(mf.MeanFieldPDE(mf.circle(8), mf.Attention(2.0)), mf.project(mf.circle(8), law()), t_end, **options)


TEXTS = {
    "a letter O in the first row": ("O,1\n0,1\n", r"row 1, column \d holds '"),
    "an empty field in the first row": (",1\n0,1\n", r"row 1, column \d holds '"),
    "thousands set apart": ("1 000,0\n0,1\n", r"row 1, column \d holds '"),
    "a letter in a later row": ("1,0\n0,l\n", r"row 2"),
    "rows of two lengths": ("1,0\n0,1,0\n", r"row 2"),
    "commas for decimals": ("0,6;0,8\n", r"row 1, column \d holds '"),
    "nothing": ("", r"shape \(0, 1\), wanted n >= 1 rows"),
    "a header alone": ("x,y\n", r"shape \(0, 1\), wanted n >= 1 rows"),
    "infinity": ("1,0\ninf,0\n", r"inf"),
    "a token at the origin": ("1,0\n0,0\n", r"0"),
    "no unit vector": ("1,0\n2,0\n", r"length|norm|2"),
    "one column": ("1\n1\n", r"column|R\^1|dimension"),
}


@pytest.mark.parametrize("name", TEXTS)
def test_texts_that_are_no_tokens(name, tmp_path):
    text, sentence = TEXTS[name]
    (tmp_path / "t.csv").write_text(text)
    with pytest.raises(ValueError, match=sentence) as refused:
        read_tokens(tmp_path / "t.csv")
    assert "\n" not in str(refused.value) and "t.csv" in str(refused.value)


@pytest.mark.parametrize(
    "text", ["\ufeff" + SQUARE, "x,y\n" + SQUARE, SQUARE.replace("\n", "\r\n"), SQUARE + "\n\n", SQUARE.rstrip(), SQUARE.replace(",", ", ")]
)
def test_texts_that_are_tokens_all_the_same(text, tmp_path):
    (tmp_path / "t.csv").write_bytes(text.encode())
    assert np.array_equal(read_tokens(tmp_path / "t.csv").points, [[1, 0], [0, 1], [-1, 0], [0, -1]])


TIMES = {
    "after the end": ({"save_at": [0.1, 0.3]}, r"0\.3"),
    "before the start": ({"save_at": [-0.1, 0.2]}, r"-0\.1"),
    "twice the same": ({"save_at": [0.1, 0.1]}, r"save_at"),
    "falling": ({"save_at": [0.2, 0.1]}, r"save_at"),
    "no number": ({"save_at": [0.1, float("nan")]}, r"nan"),
    "a text": ({"save_at": "0.1"}, r"save_at"),
    "both": ({"save_at": [0.1], "save_every": 0.1}, r"save_"),
    "every nothing": ({"save_every": 0.0}, r"save_every is 0"),
    "every no number": ({"save_every": float("nan")}, r"save_every is nan"),
    "every true": ({"save_every": True}, r"save_every is True"),
}


@pytest.mark.parametrize("name", TIMES)
def test_times_that_are_none(name):
    options, sentence = TIMES[name]
    with pytest.raises(ValueError, match=sentence) as refused:
        run_of(**options)
    assert "\n" not in str(refused.value)


def test_an_ulp_beyond_the_end_is_the_end_and_an_outrageous_one_is_not():
    assert run_of(save_at=[0.1, np.nextafter(0.2, 1)]).times[-1] == 0.2
    with pytest.raises(ValueError, match=r"0\.2000001"):
        run_of(save_at=[0.1, 0.2000001])


CASES = {
    "an end that is a text": (CASE.replace("0.2", '"0.2"'), r"t_end is '0\.2'"),
    "an end at the start": (CASE.replace("0.2", "0"), r"t_end is 0"),
    "cells that are not whole": (CASE.replace("n = 8", "n = 8.5"), r"n is 8\.5"),
    "two cells": (CASE.replace("n = 8", "n = 2"), r"n is 2"),
    "a mean of no length": (CASE.replace("[1, 0]", "[0, 0]"), r"mean"),
    "a mean in R^1": (CASE.replace("[1, 0]", "[1]"), r"mean"),
    "a law on another sphere": (CASE.replace("[1, 0]", "[1, 0, 0]"), r"R\^3|S\^2|dimension"),
    "kappa below nothing": (CASE.replace("kappa = 1.0", "kappa = -1.0"), r"kappa is -1"),
    "a key twice": (CASE + "kappa = 2.0\n", r"is not TOML"),
    "a table for a value": ("[t_end]\n" + CASE.split("\n", 1)[1], r"t_end is"),
    "a list of tables": (CASE.replace("[mesh]", "[[mesh]]"), r"mesh is"),
    "no tables of a case": ("", r"t_end is missing"),
}


@pytest.mark.parametrize("name", CASES)
def test_cases_that_are_none(name, tmp_path, capsys):
    text, sentence = CASES[name]
    (tmp_path / "case.toml").write_text(text)
    with pytest.raises(ValueError, match=sentence):
        read_case(tmp_path / "case.toml")
    with pytest.raises(SystemExit) as ended:
        main(["run", str(tmp_path / "case.toml"), "--out", str(tmp_path / "out")])
    assert ended.value.code == 2 and capsys.readouterr().err.count("\n") == 1
    assert [path.name for path in tmp_path.iterdir()] == ["case.toml"]


@pytest.mark.parametrize(
    "text", [CASE.replace("\n", "\r\n"), "\ufeff" + CASE, CASE.replace("kappa = 1.0", "kappa = 1"), "# only said\n\n" + CASE]
)
def test_cases_that_are_the_same(text, tmp_path):
    (tmp_path / "case.toml").write_bytes(text.encode())
    (tmp_path / "plain.toml").write_text(CASE)
    one, other = read_case(tmp_path / "case.toml"), read_case(tmp_path / "plain.toml")
    assert np.array_equal(one.limit.start.averages, other.limit.start.averages) and one.t_end == other.t_end


def test_points_and_masses_in_single_precision():
    points = mf.sample(mf.VonMisesFisher(NORTH, 2.0), 50, seed=2)
    measure = mf.Measure(points.astype(np.float32), np.full(50, np.float32(1 / 50)))
    assert np.abs(np.linalg.norm(measure.points, axis=1) - 1).max() < 1e-15 and abs(measure.total - 1) < 1e-6
    with pytest.raises(ValueError, match="points"):
        mf.Measure(1.001 * points.astype(np.float32), np.full(50, 1 / 50))


def test_a_case_of_json_is_the_case_of_toml(tmp_path):
    (tmp_path / "case.toml").write_text(CASE)
    plain = json.loads(json.dumps(read_case(tmp_path / "case.toml").source))
    assert np.array_equal(make_case(plain).limit.start.averages, read_case(tmp_path / "case.toml").limit.start.averages)
