"""Kills, full disks, truncations and bit flips: the newest whole checkpoint always loads, and nothing damaged passes for whole.

40 kills, the first of 200: `HYPOTHESIS_PROFILE=nightly pytest -m slow tests/test_checkpoints_slow.py` makes all of them.
"""

import errno
import functools
import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from test_checkpoints import digest, spherical, stopped

import meanfield_pde as mf
from meanfield_pde.files.checkpoints import read_checkpoint

pytestmark = pytest.mark.slow

KILLS = 200 if os.environ.get("HYPOTHESIS_PROFILE") == "nightly" else 40
KILLING = """
import os, random, signal, sys, time
from pathlib import Path
import meanfield_pde as mf
from meanfield_pde.files.checkpoints import read_checkpoint
from test_checkpoints import RUNS, digest

folder, rounds = Path(sys.argv[1]), int(sys.argv[2])
generator, bad = random.Random(0), []
names = ("atoms", "ssprk3", "tokens")
wholes = {name: mf.solve(RUNS[name]()[0], RUNS[name]()[1], **RUNS[name]()[2]) for name in names}
for number in range(rounds):
    name = "atoms" if number % 10 == 0 else names[1 + number % 2]
    path = folder / f"{number}.vtkhdf"
    reader, writer = os.pipe()
    child = os.fork()
    if child == 0:
        os.close(reader)
        system, start, options = RUNS[name]()
        count = [0]

        def tell(t, measure):
            count[0] += 1
            os.write(writer, f"{count[0]}\\n".encode())

        mf.solve(system, start, **options, callbacks=[tell], checkpoint=mf.Checkpoint(path, every_steps=3))
        os._exit(0)
    os.close(writer)
    first = os.read(reader, 2)
    time.sleep(generator.random() * {"atoms": 0.5, "ssprk3": 0.15, "tokens": 0.2}[name])
    os.kill(child, signal.SIGKILL)
    os.waitpid(child, 0)
    steps = (first + os.read(reader, 1 << 20)).split()
    os.close(reader)
    done = int(steps[-1])
    solution = mf.load(path)
    if solution.status == "done":
        continue
    kept = read_checkpoint(path)
    if len(kept.solution.history) < done - 3:
        bad.append((number, "lost", len(kept.solution.history), done))
    if digest(mf.resume(path)) != digest(wholes[name]):
        bad.append((number, "differs"))
    left = [entry for entry in os.listdir(folder) if entry.lstrip(".").startswith(f"{number}.") and entry != path.name]
    if left:
        bad.append((number, left))
print(bad)
"""


def test_a_run_killed_at_random_instants_goes_on(tmp_path):
    """The newest checkpoint loads, loses at most one interval, and the run ends bit for bit."""
    environment = os.environ | {"OMP_NUM_THREADS": "1"}
    here = Path(__file__).parent
    command = [sys.executable, "-c", KILLING, str(tmp_path), str(KILLS)]
    printed = subprocess.run(command, cwd=here, env=environment, capture_output=True, text=True, check=True).stdout
    assert printed.strip() == "[]"


class Full:
    """The n-th of these calls finds the disk full."""

    NAMES = ("open", "fsync", "link", "replace")

    def __init__(self, monkeypatch, number):
        self.left = number
        for name in self.NAMES:
            monkeypatch.setattr(os, name, functools.partial(self.call, getattr(os, name)))

    def call(self, function, *arguments, **options):
        self.left -= 1
        if self.left == 0:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        return function(*arguments, **options)


def test_a_full_disk_at_every_call_leaves_the_last_checkpoint(tmp_path):
    """ENOSPC from the n-th call that touches the disk, for each n until a write passes: old files whole, one error, nothing left behind."""
    path = tmp_path / "run.vtkhdf"
    stopped(spherical("ssprk3"), path, 5, every_steps=2)
    before = {name: (tmp_path / name).read_bytes() for name in os.listdir(tmp_path)}
    for number in range(1, 40):
        with pytest.MonkeyPatch.context() as patch:
            disk = Full(patch, number)
            try:
                mf.resume(path, callbacks=[lambda t, measure: "enough"])
            except OSError as error:
                assert "No space left" in str(error)
        assert read_checkpoint(path).solution.status == "running"
        assert sorted(os.listdir(tmp_path)) == sorted(before), number
        if disk.left > 0:
            break
        for name, content in before.items():
            (tmp_path / name).write_bytes(content)
    assert number > 4 and disk.left > 0, "some calls failed before the write passed"


def test_truncated_and_flipped_checkpoints_are_refused(tmp_path):
    """Each truncation within 64 KiB, and 1 000 flipped bits: refused, or the same run to the bit."""
    path = tmp_path / "run.vtkhdf"
    system = mf.ParticleSystem(mf.Attention(4.0))
    start, options = mf.sample(mf.VonMisesFisher((0, 0, 1), 1.0), 8, seed=2), {"t_end": 1.0, "save_every": 0.5}
    stopped((system, start, options), path, 3)
    whole, content = digest(mf.resume(path)), None
    stopped((system, start, options), path, 3)
    content = path.read_bytes()
    refused = 0
    copy = tmp_path / "copy.vtkhdf"
    for size in range(min(len(content), 1 << 16)):
        copy.write_bytes(content[:size])
        with pytest.raises(ValueError, match=r"copy\.vtkhdf is no"):
            read_checkpoint(copy)
    generator = np.random.default_rng(0)
    for bit in generator.choice(8 * len(content), 1000, replace=False):
        flipped = bytearray(content)
        flipped[bit // 8] ^= 1 << (bit % 8)
        copy.write_bytes(bytes(flipped))
        try:
            read_checkpoint(copy)
        except ValueError:
            refused += 1
            continue
        assert digest(mf.resume(copy)) == whole, bit
    assert refused > 300
