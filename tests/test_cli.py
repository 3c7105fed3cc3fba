"""The command line, as a user runs it: files, tables, one-line errors, exit codes."""

import os
import re
import subprocess
import sys
from contextlib import contextmanager
from dataclasses import dataclass

import numpy as np
import pytest

import meanfield_pde as mf
from meanfield_pde import inputs, progress
from meanfield_pde.cases.case import read_case
from meanfield_pde.cases.changes import key_values
from meanfield_pde.cli import app, main

CASE = """
t_end = 0.4
save_every = 0.1
[mesh]
kind = "icosahedral"
level = 1
[attention]
beta = 4.0
[start]
kind = "von_mises_fisher"
mean = [0, 0, 1]
kappa = 2.0
[particles]
count = 30
seed = 5
"""


@dataclass
class Result:
    code: int
    out: str
    err: str


@pytest.fixture
def meanfield(capsys, monkeypatch):
    """The command, called in this process in a given folder."""

    def call(*arguments, cwd):
        monkeypatch.chdir(cwd)
        capsys.readouterr()
        with pytest.raises(SystemExit) as end:
            main([str(argument) for argument in arguments])
        return Result(end.value.code, *capsys.readouterr())

    return call


def in_a_process(*arguments, cwd):
    """The command in a process of its own; warnings are errors there too."""
    command = [sys.executable, "-W", "error", "-c", "from meanfield_pde.cli import main; main()", *map(str, arguments)]
    ended = subprocess.run(command, cwd=cwd, capture_output=True, text=True, timeout=120, check=False)
    return Result(ended.returncode, ended.stdout, ended.stderr)


def one_line(result, code, *words):
    assert result.code == code, result.err
    assert result.err.count("\n") == 1 and result.err.startswith("meanfield-pde: ")
    for word in words:
        assert word in result.err


@pytest.fixture(scope="module")
def done(tmp_path_factory):
    folder = tmp_path_factory.mktemp("run")
    (folder / "case.toml").write_text(CASE)
    return folder, in_a_process("run", "case.toml", "--out", "out", cwd=folder)


def test_run_writes_everything(done):
    folder, result = done
    assert result.code == 0, result.err
    assert result.err == ""
    names = {path.name for path in (folder / "out").iterdir()}
    assert {"limit.vtkhdf", "tokens.vtkhdf", "limit.pvd", "tokens.pvd", "summary.csv", "overview.png"} <= names
    assert "energy density" in result.out and "order tokens" in result.out and "W1" in result.out
    assert "mass 1" in result.out


def test_the_results_are_those_of_a_script(done):
    folder, _ = done
    limit, tokens = mf.load(folder / "out/limit.vtkhdf"), mf.load(folder / "out/tokens.vtkhdf")
    law, attention = mf.VonMisesFisher((0, 0, 1), 2.0), mf.Attention(4.0)
    mesh = mf.icosahedral(1)
    scripted = mf.solve(mf.MeanFieldPDE(mesh, attention), mf.project(mesh, law), 0.4, save_every=0.1)
    assert np.array_equal(limit.masses, scripted.masses)
    assert tokens.record["case"]["particles"] == {"count": 30, "seed": 5}
    again = mf.solve(mf.ParticleSystem(attention), mf.sample(law, 30, seed=5), 0.4, save_every=0.1)
    assert np.array_equal(tokens.tokens, again.tokens)


def test_a_second_run_keeps_the_first(done, meanfield):
    folder, _ = done
    before = (folder / "out/limit.vtkhdf").read_bytes()
    one_line(meanfield("run", "case.toml", "--out", "out", cwd=folder), 2, "already holds", "--overwrite")
    assert (folder / "out/limit.vtkhdf").read_bytes() == before
    assert meanfield("run", "case.toml", "--out", "out", "--overwrite", cwd=folder).code == 0


def test_compare_info_export_plot(done, meanfield):
    folder, ran = done
    compared = meanfield("compare", "out", cwd=folder)
    assert compared.code == 0 and compared.out.strip() in ran.out
    assert "tokens: done" in meanfield("info", "out", cwd=folder).out
    assert "density: done" in meanfield("info", "out/limit.vtkhdf", cwd=folder).out
    (folder / "out/limit.pvd").unlink()
    assert meanfield("export", "out", cwd=folder).code == 0
    assert (folder / "out/limit.pvd").exists()
    assert meanfield("plot", "out", "-o", "picture.png", cwd=folder).code == 0
    assert (folder / "picture.png").stat().st_size > 10_000
    assert meanfield("film", "out", "--fps", "5", "--frames", "3", cwd=folder).code == 0
    assert (folder / "out/film.gif").stat().st_size > 10_000


@pytest.mark.parametrize(
    ("arguments", "cells"),
    [
        (("circle", "--n", "12"), 12),
        (("icosahedral", "--level", "1"), 42),
        (("icosahedral", "--level", "1", "--cells", "triangles"), 80),
        (("cubed-sphere", "--n", "3"), 54),
    ],
)
def test_mesh(arguments, cells, tmp_path, meanfield):
    result = meanfield("mesh", *arguments, "-o", "mesh.vtu", cwd=tmp_path)
    assert result.code == 0, result.err
    assert mf.read_mesh(tmp_path / "mesh.vtu").n_cells == cells
    assert f"{cells} cells" in meanfield("info", "mesh.vtu", cwd=tmp_path).out


def test_mesh_of_points(tmp_path, meanfield):
    np.savetxt(tmp_path / "points.csv", mf.sample(mf.Uniform(3), 20, seed=0), delimiter=",")
    assert meanfield("mesh", "voronoi", "--points", "points.csv", "-o", "mesh.vtu", cwd=tmp_path).code == 0
    assert mf.read_mesh(tmp_path / "mesh.vtu").n_cells == 20
    np.savetxt(tmp_path / "points.csv", 2 * mf.sample(mf.Uniform(3), 20, seed=0), delimiter=",")
    one_line(meanfield("mesh", "voronoi", "--points", "points.csv", "-o", "m.vtu", cwd=tmp_path), 2, "or normalise = True")
    assert meanfield("mesh", "voronoi", "--points", "points.csv", "--normalise", "-o", "m.vtu", cwd=tmp_path).code == 0
    assert np.abs(mf.read_mesh(tmp_path / "m.vtu").areas - mf.read_mesh(tmp_path / "mesh.vtu").areas).max() <= 1e-13


@pytest.mark.parametrize(
    ("text", "words"),
    [
        (CASE.replace("beta", "betta"), ("unknown key 'betta'", "did you mean 'beta'")),
        (CASE.replace("level = 1", "level = 1.5"), ("level is 1.5", "integer")),
        (CASE.replace("t_end = 0.4", "t_end = -1"), ("t_end is -1",)),
        ("t_end = ", ("not TOML",)),
    ],
)
def test_bad_cases_make_no_file(text, words, tmp_path, meanfield):
    (tmp_path / "case.toml").write_text(text)
    one_line(meanfield("run", "case.toml", "--out", "out", cwd=tmp_path), 2, *words)
    assert [path.name for path in tmp_path.iterdir()] == ["case.toml"]


@pytest.mark.parametrize(
    "arguments",
    [
        ("run", "missing.toml", "--out", "out"),
        ("run",),
        ("walk",),
        ("compare", "nowhere"),
        ("info", "nowhere.vtu"),
        ("mesh", "circle", "--n", "2", "-o", "m.vtu"),
    ],
)
def test_bad_commands(arguments, tmp_path, meanfield):
    one_line(meanfield(*arguments, cwd=tmp_path), 2)
    assert not list(tmp_path.iterdir())


def test_a_failed_solve_is_saved(tmp_path, meanfield):
    """cfl 1.5 drains cells below zero: exit 3, and what was reached can be loaded."""
    text = CASE.replace("t_end = 0.4", "t_end = 40.0") + '[solver]\norder = 1\nstepper = "euler"\ncfl = 1.5\n'
    (tmp_path / "case.toml").write_text(text.replace("save_every = 0.1", "save_every = 2.0"))
    one_line(meanfield("run", "case.toml", "--out", "out", cwd=tmp_path), 3, "the mass of cell", "wanted >= 0")
    reached = mf.load(tmp_path / "out/limit.vtkhdf")
    assert reached.status.startswith("failed: the mass of cell")
    assert reached.masses.min() >= 0


def test_errors_of_a_process_are_one_line_too(tmp_path):
    one_line(in_a_process("run", "missing.toml", "--out", "out", cwd=tmp_path), 2, "no case file missing.toml")


STAIRS = """
t_end = 40.0
save_every = 2.0
[mesh]
kind = "circle"
n = 64
[attention]
beta = 9.0
[start]
kind = "mixture"
weights = [0.5, 0.5]
laws = [
    {kind = "von_mises_fisher", mean = [1, 0], kappa = 20.0},
    {kind = "von_mises_fisher", mean = [0.36235775447667357, 0.9320390859672263], kappa = 20.0},
]
"""


def test_stages_are_told_and_drawn(tmp_path, meanfield):
    (tmp_path / "case.toml").write_text(STAIRS)
    assert meanfield("run", "case.toml", "--out", "out", cwd=tmp_path).code == 0
    told = meanfield("stages", "out", cwd=tmp_path)
    assert told.code == 0 and [line.split()[2] for line in told.out.splitlines()[2:4]] == ["2", "1"]
    assert (tmp_path / "out/stages.png").stat().st_size > 10_000
    assert (tmp_path / "out/limit_atoms.pvd").exists()


@pytest.mark.slow
def test_a_pinned_run_says_so_in_one_line(tmp_path, meanfield):
    (tmp_path / "case.toml").write_text(STAIRS + "[solver]\natoms = false\n")
    ended = meanfield("run", "case.toml", "--out", "out", cwd=tmp_path)
    assert ended.code == 0 and ended.err.startswith("meanfield-pde: pinned from t = ") and ended.err.count("\n") == 1
    one_line(meanfield("stages", "out", cwd=tmp_path), 2, "atoms=True")


@pytest.mark.slow
def test_a_case_can_stop_when_it_is_metastable(tmp_path, meanfield):
    (tmp_path / "case.toml").write_text(
        "stop_speed = 0.002\n" + STAIRS.replace("t_end = 40.0", "t_end = 1e6").replace("save_every = 2.0", "")
    )
    ended = meanfield("run", "case.toml", "--out", "out", cwd=tmp_path)
    assert ended.code == 0 and "metastable: mean speed" in ended.out


# --- readers that leave, folders that cannot be written ---


@contextmanager
def nobody_reads(monkeypatch, stream, buffering):
    """The stream is a pipe that nobody reads; buffering: 1 meets that at the first line, -1 when all has been printed."""
    reading, writing = os.pipe()
    os.close(reading)
    with os.fdopen(writing, "w", buffering) as pipe, monkeypatch.context() as patch:
        patch.setattr(sys, stream, pipe)
        yield


@pytest.mark.skipif(os.name != "posix", reason="a closed pipe is a thing of Unix")
@pytest.mark.parametrize("buffering", [1, -1])
def test_a_reader_who_leaves_misses_no_file(buffering, done, tmp_path, monkeypatch, capsys):
    """run .. | head -1: quiet, with the exit code of tools that SIGPIPE ends."""
    folder, _ = done
    monkeypatch.setattr("meanfield_pde.cases.runs.overview", lambda path, *solutions: path.write_text("drawn") and path)
    case = CASE.replace("t_end = 0.4", "t_end = 0.1").replace("level = 1", "level = 0").replace("count = 30", "count = 3")
    (tmp_path / "case.toml").write_text(case)
    for arguments in (["run", str(tmp_path / "case.toml"), "--out", str(tmp_path / "out")], ["info", str(folder / "out")]):
        with nobody_reads(monkeypatch, "stdout", buffering), pytest.raises(SystemExit) as ended:
            main(arguments)
        assert ended.value.code == 141 and capsys.readouterr().err == ""
    names = {path.name for path in (tmp_path / "out").iterdir()}
    assert {"limit.vtkhdf", "tokens.vtkhdf", "limit.pvd", "tokens.pvd", "summary.csv", "overview.png"} <= names


@pytest.mark.skipif(not os.path.exists("/dev/full"), reason="/dev/full is a thing of Linux")
def test_a_full_disk_under_what_is_printed_is_one_line(done, monkeypatch, capsys):
    with open("/dev/full", "w") as full, pytest.raises(SystemExit) as ended:
        monkeypatch.setattr(sys, "stdout", full)
        main(["info", str(done[0] / "out")])
    assert (ended.value.code, capsys.readouterr().err) == (2, "meanfield-pde: [Errno 28] No space left on device\n")


@pytest.mark.skipif(os.name != "posix", reason="a closed pipe is a thing of Unix")
def test_an_error_that_nobody_reads_keeps_its_exit_code(tmp_path, monkeypatch):
    for stream in ("stdout", "stderr"):
        with nobody_reads(monkeypatch, stream, 1), pytest.raises(SystemExit) as ended:
            main(["info", str(tmp_path)])
        assert ended.value.code == 2


def test_tables_are_printed_from_a_folder_that_cannot_be_written(done, tmp_path, meanfield):
    """A folder in the place of the file refuses every user, root too."""
    folder, ran = done
    for name in ("limit.vtkhdf", "tokens.vtkhdf"):
        (tmp_path / name).write_bytes((folder / "out" / name).read_bytes())
    for name in ("summary.csv", "stages.png"):
        (tmp_path / name).mkdir()
    compared = meanfield("compare", tmp_path, cwd=tmp_path)
    one_line(compared, 2, "summary.csv cannot be written")
    assert compared.out.strip() in ran.out and "W1" in compared.out
    told = meanfield("stages", tmp_path, cwd=tmp_path)
    one_line(told, 2, "stages.png cannot be written")
    assert "clusters" in told.out and "stages.png" not in told.out


@pytest.mark.parametrize("arguments", [("--checkpoint-every", "-5s"), ("--checkpoint-every", "-5steps"), ("--wall-time", "-5")])
def test_values_below_zero_are_values(arguments, tmp_path, meanfield):
    (tmp_path / "case.toml").write_text(CASE)
    one_line(meanfield("run", "case.toml", "--out", "out", *arguments, cwd=tmp_path), 2, arguments[1], "wanted")


def test_an_interrupt_outside_a_run(tmp_path, monkeypatch, capsys):
    def interrupt(path):
        raise KeyboardInterrupt

    monkeypatch.setattr("meanfield_pde.cli.load", interrupt)
    with pytest.raises(SystemExit) as ended:
        main(["info", str(tmp_path / "run.vtkhdf")])
    assert ended.value.code == 130 and capsys.readouterr().err == "meanfield-pde: interrupted\n"


def commands(program=app, name=()):
    """The words of each command, and its app."""
    for word in program:
        if not word.startswith("-"):
            below = program[word]
            yield from commands(below, (*name, word)) if list(filter(lambda w: not w.startswith("-"), below)) else [((*name, word), below)]


def test_every_option_of_every_command_has_a_sentence():
    """Their names were followed by a colon, and numpydoc took what came after it for a type."""
    seen = dict(commands())
    assert set(seen) >= {("run",), ("resume",), ("film",), ("mesh", "voronoi"), ("study",)}
    for name, program in seen.items():
        for argument in program.assemble_argument_collection(parse_docstring=True):
            assert (argument.parameter.help or "").endswith("."), (name, argument.name)
            assert argument.name != "--out" or {"--out", "-o"} <= set(argument.names), name


@pytest.mark.parametrize(("text", "seconds"), [("90", 90), ("60s", 60), ("1.5min", 90), ("2h", 7200), (5, 5.0)])
def test_times_have_units(text, seconds):
    assert inputs.seconds("wall_time", text) == seconds


@pytest.mark.parametrize("text", ["soon", "0s", "-5s", "10days", "inf", ""])
def test_bad_times_are_refused_in_one_line(text, tmp_path, capsys):
    (tmp_path / "case.toml").write_text(CASE)
    with pytest.raises(SystemExit) as ended:
        main(["run", str(tmp_path / "case.toml"), "--out", str(tmp_path / "out"), "--wall-time", text])
    said = capsys.readouterr().err
    assert ended.value.code == 2 and "wanted seconds > 0, such as '60s', '10min' or '2h'" in said and said.count("\n") == 1


def test_the_package_is_a_command_and_has_a_version(tmp_path):
    ran = subprocess.run([sys.executable, "-m", "meanfield_pde", "--version"], capture_output=True, text=True, check=True)
    assert ran.stdout.strip() == mf.__version__


def test_a_case_with_changes_is_the_case_that_says_so(tmp_path, meanfield):
    changed = CASE.replace("beta = 4.0", "beta = 9").replace("t_end = 0.4", "t_end = 0.2").replace("[0, 0, 1]", "[0, 1, 0]")
    for name, text in (("as_it_is", CASE), ("changed", changed.replace("count = 30", "count = 8"))):
        (tmp_path / f"{name}.toml").write_text(text)
    asked = read_case(tmp_path / "changed.toml")
    for words in (
        "--attention.beta 9 --t-end 0.2 --start.mean [0,1,0] --particles.count 8",
        "--attention.beta=9 --t-end=0.2 --start.mean=[0,1,0] --particles.count=8",
    ):
        case = read_case(tmp_path / "as_it_is.toml", changes=key_values(words.split()))
        assert case.source == asked.source and case.source["attention"]["beta"] == 9
        assert np.array_equal(case.limit.start.averages, asked.limit.start.averages) and len(case.tokens.start) == 8
    assert meanfield("run", "as_it_is.toml", *words.split(), "--out", "out", cwd=tmp_path).code == 0
    limit, tokens = (mf.load(tmp_path / "out" / f"{name}.vtkhdf") for name in ("limit", "tokens"))
    assert limit.record["case"] == tokens.record["case"] == asked.source and limit.times[-1] == 0.2


def test_a_change_may_begin_a_table_and_be_a_text(tmp_path):
    (tmp_path / "case.toml").write_text(CASE)
    changes = [("solver.order", "1"), ("mesh.kind", "cubed_sphere"), ("mesh.n", "4"), ("solver.method", '"direct"')]
    with pytest.raises(ValueError, match=r"mesh: unknown key level|level"):
        read_case(tmp_path / "case.toml", changes=changes)
    case = read_case(tmp_path / "case.toml", changes=[("solver.order", "1"), ("solver.method", "direct")])
    assert case.limit.system.order == 1 and case.source["solver"] == {"order": 1, "method": "direct"}


@pytest.mark.parametrize(
    ("words", "match"),
    [
        (["--attention.beta"], "--attention.beta has no value, wanted --attention.beta VALUE"),
        (["--attention.beta", "--t-end", "3"], "--attention.beta has no value"),
        (["9"], "'9' is no option and no key of the case, wanted --KEY VALUE"),
        (["--t-end.last", "3"], "t_end.last: t_end is 0.4, wanted a table"),
        (["--attention..beta", "3"], "the key 'attention..beta' has an empty part"),
        (["--attention.betta", "3"], "betta"),
        (["--attention.beta", "nine"], "attention: beta is 'nine'"),
        (["--over-write", "yes"], "over_write"),
        (["--t-end", "3\nbeta = 2"], "t_end"),
    ],
)
def test_bad_changes_are_refused_before_anything_is_made(tmp_path, meanfield, words, match):
    (tmp_path / "case.toml").write_text(CASE)
    result = meanfield("run", "case.toml", "--out", "out", *words, cwd=tmp_path)
    assert result.code == 2 and match in result.err and result.err.count("\n") == 1
    assert not (tmp_path / "out").exists()


def test_a_dry_run_tells_sizes_and_pace_and_writes_nothing(tmp_path, meanfield):
    (tmp_path / "case.toml").write_text(CASE)
    told = meanfield("run", "case.toml", "--out", "out", "--dry-run", "--particles.count", "7", cwd=tmp_path)
    assert (told.code, told.err) == (0, "") and [path.name for path in tmp_path.iterdir()] == ["case.toml"]
    for words in (
        "icosahedral(1): 42 cells",
        "7 tokens in R^3",
        "5 outputs to t = 0.4, 1.68 kB",
        "5 outputs to t = 0.4, 840 bytes",
        "came to t = 0.4 in",
    ):
        assert words in told.out
    one_line(meanfield("run", "case.toml", "--out", "out", "--dry-run", "--mesh.level", "-1", cwd=tmp_path), 2, "level")


def test_a_run_tells_what_it_wrote_unless_it_is_quiet(tmp_path, meanfield):
    (tmp_path / "case.toml").write_text(CASE)
    told = meanfield("run", "case.toml", "--out", "out", "--t-end", "0.1", cwd=tmp_path)
    last = told.out.splitlines()[-1]
    named = last.removeprefix("written to out: ").split(";")[0].split(", ")
    assert {*named, "view.py"} == {path.name for path in (tmp_path / "out").iterdir() if path.is_file()}
    telling = meanfield("run", "case.toml", "--out", "out", "--overwrite", "--t-end", "0.1", "-v", cwd=tmp_path)
    assert "density: <SphereMesh icosahedral(1): 42 cells" in telling.err and "tokens: 30 tokens in R^3" in telling.err and told.err == ""
    one_line(meanfield("run", "case.toml", "--out", "no", "-v", "--quiet", cwd=tmp_path), 2, "--quiet and --verbose are both given")
    silent = meanfield("run", "case.toml", "--out", "other", "--t-end", "0.1", "--quiet", cwd=tmp_path)
    assert silent == Result(0, "", "") and (tmp_path / "other" / "overview.png").is_file()


def test_a_line_a_minute_where_stderr_is_no_terminal(monkeypatch, capsys):
    now = iter([0.0, 59.0, 61.0, 61.0, 100.0, 121.0, 121.0])
    monkeypatch.setattr(progress.time, "monotonic", lambda: next(now))
    with progress.progress_bar(True, "density") as report:
        for t in (1.0, 2.0, 3.0, 4.0):
            report(t, 10.0)
    assert capsys.readouterr().err.splitlines() == ["density: t = 2 of 10", "density: t = 4 of 10"]


def test_a_run_without_stages_says_why(tmp_path, meanfield):
    spread = CASE.replace("beta = 4.0", "beta = 1.0").replace("t_end = 0.4", "t_end = 0.1").replace("count = 30", "count = 300")
    (tmp_path / "case.toml").write_text(spread)
    assert meanfield("run", "case.toml", "--out", "out", "--quiet", cwd=tmp_path).code == 0
    told = meanfield("stages", "out", cwd=tmp_path)
    assert told.code == 0 and "t start" not in told.out
    shares = dict(
        re.findall(r"(\w+): no stages: at least ([\d.e-]+) % of the mass is outside clusters at every time, wanted at most 1 %", told.out)
    )
    limit = mf.load(tmp_path / "out" / "limit.vtkhdf")
    assert float(shares["density"]) == pytest.approx(100 * limit.history.cell_mass.min(), rel=1e-2)
    assert 1 < float(shares["tokens"]) <= 100


def test_one_cluster_at_rest_is_a_stage_and_no_reason(tmp_path, meanfield):
    """The control."""
    (tmp_path / "t.csv").write_text("0,0,1\n")
    (tmp_path / "case.toml").write_text('t_end = 0.1\n[start]\nkind = "tokens"\nfile = "t.csv"\n[particles]\n')
    assert meanfield("run", "case.toml", "--out", "out", "--quiet", cwd=tmp_path).code == 0
    told = meanfield("stages", "out", cwd=tmp_path)
    assert "t start" in told.out and "no stages" not in told.out
