"""Cases run from Python: the files and solutions of the command line, runs that are stopped and go on bit for bit, refusals."""

import copy
import signal
import threading
from dataclasses import replace
from itertools import count
from types import SimpleNamespace

import numpy as np
import pytest

import meanfield_pde as mf
from meanfield_pde.cases import stopping
from meanfield_pde.cases.case import make_case, read_case
from meanfield_pde.cli import main
from meanfield_pde.stepping.phased import Phased, resolve_stepper

TEXT = """
t_end = 2.0
save_every = 0.25
[mesh]
kind = "circle"
n = 32
[attention]
beta = 4.0
[start]
kind = "von_mises_fisher"
mean = [1, 0]
kappa = 1.0
[particles]
count = 20
seed = 5
"""
TABLES = {
    "t_end": 2.0,
    "save_every": 0.25,
    "mesh": {"kind": "circle", "n": 32},
    "attention": {"beta": 4.0},
    "start": {"kind": "von_mises_fisher", "mean": (1, 0), "kappa": 1.0},
    "particles": {"count": 20, "seed": 5},
}
PRODUCTS = {"limit.pvd", "tokens.pvd", "summary.csv", "overview.png"}


@pytest.fixture(scope="module")
def done(tmp_path_factory):
    """The folder of a case, run by the command into its folder out."""
    folder = tmp_path_factory.mktemp("command")
    (folder / "case.toml").write_text(TEXT)
    with pytest.raises(SystemExit) as ended:
        main(["run", str(folder / "case.toml"), "--out", str(folder / "out")])
    assert ended.value.code == 0
    return folder


def names(folder):
    return {str(path.relative_to(folder)) for path in folder.rglob("*")}


def same_arrays(solution, other):
    rows = ["tokens"] if solution.kind == "tokens" else ["masses"]
    return all(np.array_equal(getattr(solution, name), getattr(other, name)) for name in [*rows, "times", "history"])


def same_as_the_command(solutions, out, done):
    """Whether solutions, their files and what is made of them are those of the command."""
    assert [solution.kind for solution in solutions] == ["density", "tokens"]
    for solution, name in zip(solutions, ("limit", "tokens"), strict=True):
        assert solution.status == "done"
        stored, commanded = mf.load(out / f"{name}.vtkhdf"), mf.load(done / f"out/{name}.vtkhdf")
        assert same_arrays(solution, stored) and same_arrays(stored, commanded)
        assert stored.record["case"] == commanded.record["case"] and stored.record["stepper"] == commanded.record["stepper"]
    for name in ("summary.csv", "limit.pvd", "tokens.pvd", "overview.png"):
        assert (out / name).read_bytes() == (done / "out" / name).read_bytes()
    assert names(out) == names(done / "out")
    return True


GIVEN = {
    "path": lambda folder: folder / "case.toml",
    "text": lambda folder: str(folder / "case.toml"),
    "tables": lambda folder: TABLES,
    "case": lambda folder: read_case(folder / "case.toml"),
}


@pytest.mark.parametrize("kind", GIVEN)
def test_a_run_from_python_is_that_of_the_command(kind, done, tmp_path, capsys):
    given = copy.deepcopy(GIVEN[kind](done))
    solutions = mf.run(given, tmp_path / "out")
    assert same_as_the_command(solutions, tmp_path / "out", done)
    assert capsys.readouterr() == ("", "")
    assert kind != "tables" or given == TABLES
    other = mf.run(TABLES | {"attention": {"beta": 4.001}, "t_end": 0.25}, tmp_path / "other")
    assert not np.array_equal(other[0].masses[1], solutions[0].masses[1])  # the control


def test_one_part_alone(tmp_path):
    solutions = mf.run({name: table for name, table in TABLES.items() if name != "mesh"}, tmp_path / "out")
    assert [solution.kind for solution in solutions] == ["tokens"]
    assert {"tokens.vtkhdf", "tokens.pvd", "overview.png"} <= names(tmp_path / "out")
    assert "summary.csv" not in names(tmp_path / "out")


def test_progress_is_told_to_a_function(tmp_path):
    told = []
    mf.run(TABLES, tmp_path / "out", progress=lambda t, t_end: told.append((t, t_end)))
    assert sum(t == 2.0 for t, _ in told) == 2 and {t_end for _, t_end in told} == {2.0}


def test_an_earlier_run_is_replaced_only_if_asked(tmp_path):
    out = tmp_path / "out"
    before = mf.run(TABLES, out)
    with pytest.raises(ValueError, match=r"out already holds limit.vtkhdf and tokens.vtkhdf; give another folder or overwrite=True, or"):
        mf.run(TABLES | {"t_end": 1.0}, out)
    assert same_arrays(mf.load(out / "limit.vtkhdf"), before[0])
    limit_only = {name: table for name, table in TABLES.items() if name != "particles"} | {"t_end": 1.0}
    (limit,) = mf.run(limit_only, out, overwrite=True)
    assert limit.times[-1] == 1.0 and not (out / "tokens.vtkhdf").exists()


# --- runs that are stopped ---


def stopping_after(steps, monkeypatch):
    """Lets the wall time of 1000 s end after so many steps of a run."""
    ticks = count(0, 1000 / (steps - 0.5))
    monkeypatch.setattr(stopping, "time", SimpleNamespace(monotonic=lambda: next(ticks)))


def test_a_run_that_the_wall_time_stops_goes_on(done, tmp_path, monkeypatch):
    out = tmp_path / "out"
    stopping_after(7, monkeypatch)
    (limit,) = mf.run(done / "case.toml", out, wall_time=1000)
    assert limit.status == f"stopped at t = {limit.times[-1]:.9g}: wall time" and 0 < limit.times[-1] < 2 and len(limit.history) == 7
    assert names(out) == {"limit.vtkhdf", "limit.previous.vtkhdf"} and mf.load(out / "limit.vtkhdf").status == "running"
    stopping_after(len(mf.load(done / "out/limit.vtkhdf").history) - 7 + 3, monkeypatch)
    first, second = mf.resume(out, wall_time=1000)
    assert first.status == "done" and second.kind == "tokens" and second.status.endswith("wall time") and len(second.history) == 3
    assert not PRODUCTS & names(out)
    monkeypatch.undo()
    assert same_as_the_command(mf.resume(out), out, done)
    assert "resumed" in mf.load(out / "tokens.vtkhdf").record
    assert same_as_the_command(mf.resume(out, case=done / "case.toml"), out, done), "a run that is over stays as it is"
    (out / "limit.vtkhdf").unlink()
    assert same_as_the_command(mf.resume(out), out, done), "a part that was removed is run again, and is the first"


@pytest.mark.parametrize("kind", ["density", "tokens"])
def test_a_run_that_dies_goes_on(kind, done, tmp_path):
    """Whatever a script does, the checkpoints are there."""
    out, seen = tmp_path / "out", []

    def dying(t, t_end):
        seen.append(t)
        if 1 < t < 2 and seen.count(2.0) == (kind == "tokens"):
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        mf.run(done / "case.toml", out, checkpoint_every="2steps", progress=dying)
    reached = mf.load(out / ("limit.vtkhdf" if kind == "density" else "tokens.vtkhdf"))
    assert reached.status == "running" and 0 < reached.times[-1] <= seen[-1] < 2
    assert same_as_the_command(mf.resume(str(out), case=TABLES), out, done)


def test_a_run_that_its_own_callback_ends_is_over(tmp_path):
    case = make_case(TABLES)
    case = replace(case, callbacks=(lambda t, measure: "enough" if t > 1 else None,))
    solutions = mf.run(case, tmp_path / "out")
    assert all(solution.status.endswith("enough") for solution in solutions)
    assert names(tmp_path / "out") >= PRODUCTS and not [name for name in names(tmp_path / "out") if "previous" in name]
    assert all(same_arrays(*pair) for pair in zip(mf.resume(tmp_path / "out"), solutions, strict=True))


def test_resume_takes_a_file_too(tmp_path, monkeypatch):
    part, path = make_case(TABLES).limit, tmp_path / "run.vtkhdf"
    whole = mf.solve(part.system, part.start, 2.0)
    mf.solve(part.system, part.start, 2.0, callbacks=[lambda t, measure: "enough"], checkpoint=mf.Checkpoint(path))
    seen, told = [], []
    stopping_after(3, monkeypatch)
    callbacks = (watch for watch in [lambda t, measure: seen.append(t)])
    again = mf.resume(path, callbacks=callbacks, progress=lambda t, t_end: told.append(t), wall_time=1000)
    assert again.status.endswith("wall time") and seen == told == whole.history.t[1:4].tolist()
    assert same_arrays(mf.resume(str(path)), whole)


@pytest.mark.slow
def test_signals_are_the_script_s_own(tmp_path):
    """Only the command handles them: a run may be made in any thread, where no handler can be installed, and has a wall time there too."""
    handlers, results, refused = [], [], []

    def look(t, t_end):
        handlers.append((signal.getsignal(signal.SIGINT), signal.getsignal(signal.SIGTERM)))

    def in_a_thread():
        results.extend(mf.run(TABLES, tmp_path / "out", wall_time=1e-9, progress=look))
        results.extend(mf.resume(tmp_path / "out"))
        try:
            with stopping.stopping(None):
                pass
        except ValueError as error:
            refused.append(error)

    before = signal.getsignal(signal.SIGINT), signal.getsignal(signal.SIGTERM)
    thread = threading.Thread(target=in_a_thread)
    thread.start()
    thread.join()
    assert [solution.kind for solution in results] == ["density", "density", "tokens"] and results[0].status.endswith("wall time")
    assert refused  # the control: what the command does is refused in a thread
    mf.run(TABLES, tmp_path / "here", progress=look)
    assert handlers and set(handlers) == {before}


# --- the record ---


def test_the_method_is_recorded_once(done, tmp_path):
    """A resolved stepper was resolved again, and its second half was told twice."""
    part = make_case(TABLES).limit
    scripted = mf.solve(part.system, part.start, 0.25)
    for record in (mf.load(done / "out/limit.vtkhdf").record, mf.run(TABLES, tmp_path / "out")[0].record):
        assert record["stepper"].count("dop853") == 1 and record["stepper"] == scripted.record["stepper"]


def test_resolved_steppers_stay_as_they_are():
    density, tokens = mf.MeanFieldPDE(mf.circle(8), mf.Attention()), mf.ParticleSystem(mf.Attention())
    for system, steppers in ((density, (None, "euler", mf.SSP(mf.EULER))), (tokens, (None, "euler", mf.Adaptive(1e-6, 1e-8)))):
        for stepper in steppers:
            resolved = resolve_stepper(stepper, None, system)
            assert resolve_stepper(resolved, None, system) is resolved
    with pytest.raises(ValueError, match="stepper is 'dop853' for a density"):
        resolve_stepper(Phased(mf.Adaptive()), None, density)


# --- refusals ---

LIMIT = {name: table for name, table in TABLES.items() if name != "particles"}


@pytest.mark.parametrize(
    ("call", "kind", "message"),
    [
        (
            lambda out: mf.run(3, out),
            ValueError,
            r"^case is 3, wanted the path of a TOML file, its tables as nested plain values, or a Case$",
        ),
        (lambda out: mf.run(out / "none.toml", out), FileNotFoundError, r"^no case file .*none.toml$"),
        (lambda out: mf.run({**TABLES, "tend": 1}, out), ValueError, r"^case: unknown key 'tend' \(did you mean 't_end'\?\)"),
        (lambda out: mf.run({**TABLES, 3: 1}, out), ValueError, r"^case: unknown key '3'"),
        (
            lambda out: mf.run({**TABLES, "start": {"kind": "von_mises_fisher", "mean": np.eye(2)[0], "kappa": 1.0}}, out),
            ValueError,
            r"^case: start is \{.*array.*\}, wanted plain values: numbers, texts, lists and tables of them$",
        ),
        (lambda out: mf.run(TABLES, 3), ValueError, r"^out is 3, wanted the name of a file or folder$"),
        (lambda out: mf.run(TABLES, out, overwrite=1), ValueError, r"^overwrite is 1, wanted True or False$"),
        (lambda out: mf.run(TABLES, out, checkpoint_every="often"), ValueError, r"^checkpoint_every is 'often', wanted seconds such as"),
        (lambda out: mf.run(TABLES, out, checkpoint_every=60), ValueError, r"^checkpoint_every is 60, wanted seconds such as"),
        (lambda out: mf.run(TABLES, out, wall_time=0), ValueError, r"^wall_time is 0, wanted a number > 0$"),
        (lambda out: mf.run(TABLES, out, progress="bar"), ValueError, r"^progress is 'bar', wanted True or False$"),
        (
            lambda out: mf.resume(out / "none"),
            ValueError,
            r"^path is '.*none', wanted the folder of a run or a file that ends in \.vtkhdf$",
        ),
        (lambda out: mf.resume(out / "none.vtkhdf"), FileNotFoundError, r"^no checkpoint .*none.vtkhdf$"),
    ],
)
def test_bad_input_makes_no_file(call, kind, message, tmp_path):
    with pytest.raises(kind, match=message):
        call(tmp_path / "out")
    assert not list(tmp_path.iterdir())


def test_what_cannot_go_on_is_refused(tmp_path):
    out, look = tmp_path / "out", [lambda t, measure: None]
    with pytest.raises(ValueError, match=r"holds no run, wanted limit.vtkhdf or tokens.vtkhdf$"):
        mf.resume(tmp_path)
    mf.run(LIMIT, out, wall_time=1e-9)
    for path, options, message in (
        (out, {"callbacks": look}, r"^callbacks is given, but .*out is a folder, which takes no callbacks$"),
        (out / "limit.vtkhdf", {"case": LIMIT}, r"^case is given, but .*limit.vtkhdf is a file, which takes no case$"),
        (
            out / "limit.vtkhdf",
            {"checkpoint_every": "60s"},
            r"^checkpoint_every is given, but .* is a file, which takes no checkpoint_every$",
        ),
        (out / "limit.vtkhdf", {"callbacks": 3}, r"^callbacks is 3, wanted a list of functions of \(t, measure\)$"),
        (
            out,
            {"case": {**LIMIT, "t_end": 3.0}},
            r"^the case given is not the case of .*out: t_end: 2\.0 in the run, 3\.0 in the case given$",
        ),
        (out, {"wall_time": "long"}, r"^wall_time is 'long', wanted seconds > 0"),
    ):
        with pytest.raises(ValueError, match=message):
            mf.resume(path, **options)
    assert mf.load(out / "limit.vtkhdf").status == "running"
    part = make_case(LIMIT).limit
    mf.solve(part.system, part.start, 0.1, checkpoint=mf.Checkpoint(tmp_path / "own/limit.vtkhdf"))
    with pytest.raises(ValueError, match="own holds no run of a case"):
        mf.resume(tmp_path / "own")


def test_a_failed_run_is_saved_and_does_not_go_on(tmp_path):
    """cfl 1.5 drains cells below zero."""
    tables = LIMIT | {"t_end": 40.0, "save_every": 2.0, "solver": {"order": 1, "stepper": "euler", "cfl": 1.5}}
    with pytest.raises(mf.SolveError, match="the mass of cell") as failed:
        mf.run(tables, tmp_path / "out")
    assert mf.load(tmp_path / "out/limit.vtkhdf") == failed.value.solution
    with pytest.raises(ValueError, match=r"limit.vtkhdf holds a run that failed: the mass of cell .*, wanted one that was stopped$"):
        mf.resume(tmp_path / "out")
