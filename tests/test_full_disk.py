"""A full disk, or a folder that cannot be written: what was there stays as it was, one sentence, nothing half-written left behind."""

import errno
import os

import numpy as np
import pytest

import meanfield_pde as mf
from meanfield_pde.cli import main
from meanfield_pde.tables import write_csv

RING = mf.circle(12)
LAW = mf.VonMisesFisher((1, 0), 1.0)
LIMIT = mf.solve(mf.MeanFieldPDE(RING, mf.Attention(2.0)), mf.project(RING, LAW), 0.2, save_every=0.1)
TOKENS = mf.solve(mf.ParticleSystem(mf.Attention(2.0)), mf.sample(LAW, 5, seed=0), 0.2, save_every=0.1)

WRITERS = {
    "mesh": lambda folder: mf.write_mesh(folder / "m.vtu", RING),
    "results": lambda folder: mf.save(folder / "run.vtkhdf", LIMIT),
    "table": lambda folder: write_csv(folder / "table.csv", ("a", "b"), [(1, 2.0)]),
    "comparison": lambda folder: mf.compare(LIMIT, TOKENS).write_csv(folder / "summary.csv"),
    "picture": lambda folder: mf.overview(folder / "overview.png", LIMIT),
    "film": lambda folder: mf.film(folder / "film.gif", LIMIT),
    "series": lambda folder: mf.write_vtk(folder, LIMIT, TOKENS),
}
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
    return {str(path.relative_to(folder)): path.read_bytes() for path in sorted(folder.rglob("*")) if path.is_file()}


@pytest.mark.parametrize("name", WRITERS)
def test_every_writer_leaves_what_was_there(name, tmp_path):
    WRITERS[name](tmp_path)
    before, number = contents(tmp_path), 0
    while True:
        number += 1
        with pytest.MonkeyPatch.context() as patch:
            disk = Full(patch, number)
            if number == 1:
                with pytest.raises(OSError, match="No space left"):
                    WRITERS[name](tmp_path)
            else:
                try:
                    WRITERS[name](tmp_path)
                except OSError as error:
                    assert "No space left" in str(error)
        after = contents(tmp_path)
        assert set(after) == set(before), "nothing new, nothing lost"
        assert all(len(after[path]) > 0 for path in after)
        if disk.left > 0:
            break
    assert number >= 2


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


@pytest.mark.skipif(os.geteuid() == 0, reason="root writes everywhere")
def test_a_read_only_folder(tmp_path, capsys):
    (tmp_path / "case.toml").write_text(CASE)
    (tmp_path / "closed").mkdir(mode=0o555)
    with pytest.raises(SystemExit) as ended:
        main(["run", str(tmp_path / "case.toml"), "--out", str(tmp_path / "closed/out")])
    assert ended.value.code == 2 and capsys.readouterr().err.count("\n") == 1
