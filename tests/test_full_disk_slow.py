"""A small file system that is full at each of its pages in turn: old files whole, one sentence, and nothing left behind.

A tenth of the instants: `HYPOTHESIS_PROFILE=nightly pytest -m slow tests/test_full_disk_slow.py` tries all of them.
"""

import contextlib
import io
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from test_checkpoints import After, digest, forming
from test_full_disk import CASE, contents
from test_full_disk import WRITERS as WRITE

import meanfield_pde as mf
from meanfield_pde.cli import main

pytestmark = pytest.mark.slow

SHARE = 1 if os.environ.get("HYPOTHESIS_PROFILE") == "nightly" else 10
MEGABYTES = 16
LAW = mf.VonMisesFisher((1, 2, 2), 2.0)
WRITERS = {
    "mesh": (9, 40),
    "results": (30, 40),
    "table": (5, 40),
    "comparison": (1, 2),
    "picture": (4, 6),
    "film": (3, 5),
    "series": (30, 40),
}
"""How often each finds the disk full at least, and at how many of the pages that it needs that is tried by night."""


def larger():
    mesh = mf.icosahedral(3)
    limit = mf.solve(mf.MeanFieldPDE(mesh, mf.Attention(2.0)), mf.project(mesh, LAW), 0.02, save_every=0.01)
    return limit, mf.solve(mf.ParticleSystem(mf.Attention(2.0)), mf.sample(LAW, 3000, seed=0), 0.02, save_every=0.01)


@pytest.fixture
def disk(tmp_path):
    place = tmp_path / "disk"
    place.mkdir()
    mount = ["mount", "-t", "tmpfs", "-o", f"size={MEGABYTES}m", "tmpfs", str(place)]
    if shutil.which("mount") is None or subprocess.run(mount, capture_output=True).returncode:
        pytest.skip("no file system can be mounted here")
    yield place
    subprocess.run(["umount", str(place)], check=True)


def by_pages(disk, instants, prepare, attempt):
    """Prepare the disk, fill it up to none, some, or enough free pages, and attempt() to write; returns how often it could not."""
    ballast, page = disk / "ballast", os.statvfs(disk).f_frsize
    prepare()
    before = os.statvfs(disk).f_bfree
    assert attempt(), "the empty disk is large enough"
    needed = before - os.statvfs(disk).f_bfree
    pages = np.linspace(0, 2 * needed + 1, 2 * -(-instants // SHARE))
    for failed, free in enumerate(np.unique(pages.astype(int)).tolist()):
        prepare()
        with ballast.open("wb") as stream:
            os.posix_fallocate(stream.fileno(), 0, (os.statvfs(disk).f_bfree - free) * page)
        assert os.statvfs(disk).f_bfree == free
        written = attempt()
        ballast.unlink()
        if written:
            return failed
    raise AssertionError(f"not written with {free} free pages, {needed} were enough")


def fill_writer(disk, name):
    folder, fresh, runs = disk / "out", disk.parent / "fresh", larger()
    fresh.mkdir()
    WRITE[name](fresh, *runs)
    new = contents(fresh)
    old = dict.fromkeys(new, b"old")

    def prepare():
        for path, content in old.items():
            (folder / path).parent.mkdir(parents=True, exist_ok=True)
            (folder / path).write_bytes(content)

    def attempt():
        try:
            WRITE[name](folder, *runs)
        except OSError as error:
            assert str(error).endswith(" cannot be written: No space left on device"), error
            found = contents(folder)
            assert set(found) == set(old), "nothing new, nothing lost"
            for path, content in found.items():
                if path.endswith(".pvd") and content != old[path]:
                    assert all(found[frame] == new[frame] for frame in re.findall(r'file="([^"]+)"', content.decode()))
                else:
                    assert content in (old[path], new[path] if name == "series" else old[path]), path
            return False
        assert contents(folder) == new
        return True

    return by_pages(disk, WRITERS[name][1], prepare, attempt)


def fill_checkpoint(disk):
    """A run that meets the full disk at its next checkpoint goes on from the last, and gives what it would have given."""
    (system, start, options), path = forming(), disk / "run.vtkhdf"
    previous = path.with_name("run.previous.vtkhdf")
    whole = digest(mf.solve(system, start, **options))
    mf.solve(system, start, **options, callbacks=[After(9)], checkpoint=mf.Checkpoint(path))
    kept = path.read_bytes()

    def prepare():
        previous.unlink(missing_ok=True)
        path.write_bytes(kept)

    def attempt():
        try:
            mf.resume(path, callbacks=[After(3)])
        except OSError as error:
            assert str(error).endswith("cannot be written: No space left on device"), error
            assert set(os.listdir(disk)) - {"ballast"} <= {path.name, previous.name}
            assert path.read_bytes() == kept
            return False
        return True

    failed = by_pages(disk, 40, prepare, attempt)
    prepare()
    assert digest(mf.resume(path)) == whole
    return failed


def fill_run(disk):
    out, case = disk / "out", disk.parent / "case.toml"
    case.write_text(CASE)

    def prepare():
        shutil.rmtree(out, ignore_errors=True)

    def attempt():
        said = io.StringIO()
        with contextlib.redirect_stdout(io.StringIO()), contextlib.redirect_stderr(said), pytest.raises(SystemExit) as ended:
            main(["run", str(case), "--out", str(out), "--checkpoint-every", "0.05"])
        for path in out.rglob("*"):
            assert ".part" not in path.name and (path.is_dir() or path.stat().st_size)
            if path.suffix == ".vtkhdf":
                assert np.isfinite(mf.load(path).masses).all()
        if ended.value.code:
            assert ended.value.code == 2 and said.getvalue().count("\n") == 1 and "cannot be written" in said.getvalue(), said.getvalue()
        return ended.value.code == 0

    return by_pages(disk, 40, prepare, attempt)


def filled(call):
    """How often the disk was full, from a process of its own: HDF5 ends one that meets a full disk while it closes an array."""
    program = f"from pathlib import Path; import test_full_disk_slow as tests; print(tests.{call})"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, cwd=Path(__file__).parent)
    assert (done.returncode, done.stderr) == (0, ""), done.stderr
    return int(done.stdout)


@pytest.mark.parametrize("name", WRITERS)
def test_every_writer(name, disk):
    assert filled(f"fill_writer(Path({str(disk)!r}), {name!r})") >= max(1, WRITERS[name][0] // SHARE)


def test_a_checkpoint(disk):
    assert filled(f"fill_checkpoint(Path({str(disk)!r}))") > 3 // SHARE


def test_a_run(disk):
    assert filled(f"fill_run(Path({str(disk)!r}))") > 20 // SHARE
