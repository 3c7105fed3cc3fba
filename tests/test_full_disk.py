"""A full disk, or a folder that cannot be written: what was there stays as it was, one sentence, nothing half-written left behind."""

import errno
import os
import re
import shutil
import tempfile
from functools import cache
from pathlib import Path

import numpy as np
import pytest

import meanfield_pde as mf
from meanfield_pde.cli import main
from meanfield_pde.files.tables import write_csv

NOBODY = 65534
RING = mf.circle(12)
LAW = mf.VonMisesFisher((1, 0), 1.0)
WRITERS = {
    "mesh": lambda folder, limit, tokens: mf.write_mesh(folder / "m.vtu", limit.mesh),
    "results": lambda folder, limit, tokens: mf.save(folder / "run.vtkhdf", limit),
    "table": lambda folder, limit, tokens: write_csv(folder / "table.csv", ("n", "mass"), list(enumerate(limit.masses[0].tolist()))),
    "comparison": lambda folder, limit, tokens: mf.compare(limit, tokens).write_csv(folder / "summary.csv"),
    "picture": lambda folder, limit, tokens: mf.overview(folder / "overview.png", limit),
    "film": lambda folder, limit, tokens: mf.film(folder / "film.gif", limit),
    "series": lambda folder, limit, tokens: mf.write_vtk(folder, limit, tokens),
}
"""What writes files into a folder."""


@cache
def runs():
    limit = mf.solve(mf.MeanFieldPDE(RING, mf.Attention(2.0)), mf.project(RING, LAW), 0.2, save_every=0.1)
    return limit, mf.solve(mf.ParticleSystem(mf.Attention(2.0)), mf.sample(LAW, 5, seed=0), 0.2, save_every=0.1)


def checkpointed(path):
    mf.solve(runs()[0].system, mf.project(RING, LAW), 0.2, checkpoint=mf.Checkpoint(path))


CASE = """
t_end = 0.2
save_every = 0.1
[mesh]
kind = "circle"
n = 12
[attention]
beta = 2.0
[start]
kind = "von_mises_fisher"
mean = [1, 0]
kappa = 1.0
[particles]
count = 5
seed = 0
"""


class Full:
    """The n-th file that is moved into place finds the disk full."""

    def __init__(self, patch, number):
        self.left, self._replace = number, os.replace
        patch.setattr(os, "replace", self)

    def __call__(self, *arguments):
        self.left -= 1
        if self.left == 0:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        return self._replace(*arguments)


def contents(folder):
    """By name; the script for ParaView holds the name of its folder, which is left out."""
    found = {str(path.relative_to(folder)): path.read_bytes() for path in sorted(folder.rglob("*")) if path.is_file()}
    return {
        name: content.replace(str(folder).encode(), b"FOLDER") if name.endswith("view.py") else content for name, content in found.items()
    }


@pytest.mark.parametrize("name", WRITERS)
def test_every_writer_leaves_what_was_there(name, tmp_path):
    WRITERS[name](tmp_path, *runs())
    before, number = contents(tmp_path), 0
    while True:
        number += 1
        with pytest.MonkeyPatch.context() as patch:
            disk = Full(patch, number)
            if number == 1:
                with pytest.raises(OSError, match="No space left"):
                    WRITERS[name](tmp_path, *runs())
            else:
                try:
                    WRITERS[name](tmp_path, *runs())
                except OSError as error:
                    assert "No space left" in str(error)
        after = contents(tmp_path)
        assert set(after) == set(before), "nothing new, nothing lost"
        whole = {path: content for path, content in before.items() if not path.endswith(".pvd")}  # a series names the frames so far
        assert all(after[path] == content for path, content in whole.items())
        if disk.left > 0:
            break
    assert number > (10 if name == "series" else 1)


@pytest.mark.slow
def test_a_run_on_a_full_disk_says_so_in_one_line(tmp_path, capsys):
    """Whichever file finds the disk full: exit code 2, one line, and all that was written before is whole."""
    (tmp_path / "case.toml").write_text(CASE)
    number, codes = 0, []
    while not codes or codes[-1]:
        number += 1
        out = tmp_path / f"out{number}"
        capsys.readouterr()
        with pytest.MonkeyPatch.context() as patch:
            Full(patch, number)
            with pytest.raises(SystemExit) as ended:
                main(["run", str(tmp_path / "case.toml"), "--out", str(out)])
        codes.append(ended.value.code)
        said = capsys.readouterr().err
        if codes[-1]:
            assert codes[-1] == 2 and said.count("\n") == 1 and "No space left" in said
        for path in out.rglob("*"):
            assert ".part" not in path.name
            if path.suffix == ".vtkhdf":
                assert np.isfinite(mf.load(path).masses).all()
    assert number > 10


def test_a_folder_that_is_a_file(tmp_path, capsys):
    """No folder can be made there: exit code 2, one line, the file stays."""
    (tmp_path / "case.toml").write_text(CASE)
    (tmp_path / "out").write_text("mine")
    with pytest.raises(SystemExit) as ended:
        main(["run", str(tmp_path / "case.toml"), "--out", str(tmp_path / "out")])
    assert ended.value.code == 2 and capsys.readouterr().err.count("\n") == 1
    assert (tmp_path / "out").read_text() == "mine"


@pytest.fixture(scope="module")
def written(tmp_path_factory):
    """A folder with a file of each kind."""
    folder = tmp_path_factory.mktemp("written")
    (folder / "case.toml").write_text(CASE)
    with pytest.raises(SystemExit, match="0"):
        main(["run", str(folder / "case.toml"), "--out", str(folder / "out")])
    for writer in WRITERS.values():
        writer(folder, *runs())
    checkpointed(folder / "under_way.vtkhdf")
    return folder


@pytest.fixture
def closed(written):
    """Such a folder that nobody may write to, asked by somebody who is not root."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        shutil.copytree(written, folder, dirs_exist_ok=True)
        (folder / "out").chmod(0o555)
        folder.chmod(0o555)
        root = os.geteuid() == 0
        if root:
            os.seteuid(NOBODY)
        try:
            yield folder
        finally:
            if root:
                os.seteuid(0)
            folder.chmod(0o755)
            (folder / "out").chmod(0o755)


@pytest.mark.parametrize("name", WRITERS)
def test_every_writer_in_a_read_only_folder(name, closed):
    before = contents(closed)
    with pytest.raises(OSError, match=f"{re.escape(str(closed))}.* cannot be written: Permission denied$"):
        WRITERS[name](closed, *runs())
    assert contents(closed) == before


def test_a_checkpoint_in_a_read_only_folder(closed):
    before = contents(closed)
    for name in ("under_way.vtkhdf", "new.vtkhdf"):
        with pytest.raises(OSError, match=rf"{name} cannot be written: Permission denied"):
            checkpointed(closed / name)
    assert contents(closed) == before


COMMANDS = {
    "run": ("run", "case.toml", "--out", "new"),
    "run again": ("run", "case.toml", "--out", "out", "--overwrite"),
    "mesh": ("mesh", "circle", "--n", "12", "--output", "ring.vtu"),
    "compare": ("compare", "out"),
    "plot": ("plot", "out"),
    "film": ("film", "out"),
    "export": ("export", "out"),
}


@pytest.mark.parametrize("name", COMMANDS)
def test_a_command_in_a_read_only_folder(name, closed, capsys, monkeypatch):
    before = contents(closed)
    monkeypatch.chdir(closed)
    with pytest.raises(SystemExit) as ended:
        main(list(COMMANDS[name]))
    said = capsys.readouterr()
    assert ended.value.code == 2 and said.err.count("\n") == 1 and "Permission denied" in said.err
    assert ("energy density" in said.out) == (name == "compare"), "a table needs no place on the disk"
    assert contents(closed) == before
