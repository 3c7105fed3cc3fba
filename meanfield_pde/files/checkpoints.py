"""Checkpoints: a run under way in its results file, with what its integrator needs to go on bit for bit.

    PATH                 the newest checkpoint, readable as the results so far; in the end the results
    PATH's .previous     the one before, until the run is done

The first is written before the first step, in place of what an earlier run left under that name. Each replaces the old file in one move
once it is whole and on the disk, so that a run that is killed at any moment, or meets a full disk, leaves at least one whole. The memory
has SHA-256 sums of the state, system and record that it belongs to, compared when it is read.

Data in: a run at a step. Data out: the file, and from it solution, stepper and memory.
"""

import hashlib
import os
import time
from collections.abc import Iterable, Mapping
from contextlib import ExitStack
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from meanfield_pde import inputs
from meanfield_pde.files.replacing import owned, remove_parts
from meanfield_pde.files.results import SUFFIX, flattened, load, read_memory, save
from meanfield_pde.kinds import STORED, UnknownKindError, described, own_classes, restored, with_own
from meanfield_pde.solution import Solution
from meanfield_pde.sphere import FloatArray
from meanfield_pde.stepping.stepper import Stepper

RUNNING = "running"
LARGEST_SHARE = 20.0
"""With `every_seconds`, the time between checkpoints is at least this many times the time that writing the last one took."""


@dataclass(frozen=True)
class Checkpoint:
    """Where a run keeps itself, and how often: every so much model time, so many steps or so many seconds, whichever comes first.

    path: ends in .vtkhdf. Without a rule it is written before the first step, when the run ends early, and at the end. Raises ValueError
    naming the field.
    """

    path: Path
    every_time: float | None = None
    every_steps: int | None = None
    every_seconds: float | None = None

    def __post_init__(self) -> None:
        object.__setattr__(self, "path", inputs.file_path("path", self.path, (SUFFIX,)))
        for name in ("every_time", "every_seconds"):
            if getattr(self, name) is not None:
                object.__setattr__(self, name, inputs.number(name, getattr(self, name), above=0.0))
        if self.every_steps is not None:
            object.__setattr__(self, "every_steps", inputs.integer("every_steps", self.every_steps, low=1))

    @property
    def previous(self) -> Path:
        return self.path.with_name(f"{self.path.stem}.previous{SUFFIX}")


class CheckpointWriter:
    """Writes the checkpoints of one run. stepper, times, t_end: what `resume` must know."""

    def __init__(self, rule: Checkpoint, stepper: Stepper, times: FloatArray, t_end: float) -> None:
        self._rule, self._settings = rule, {"stepper": described(stepper, "stepper"), "t_end": t_end, "times": times}
        self._begun, self._t, self._steps = False, 0.0, 0
        self._clock, self._took = time.monotonic(), 0.0
        self._ownership = ExitStack()

    def close(self) -> None:
        """Lets others write the file."""
        self._ownership.close()

    @classmethod
    def resumed(cls, stored: "StoredCheckpoint") -> "CheckpointWriter":
        """The writer that continues a run. If the newest file was damaged, the one that was read takes its place."""
        writer = cls(stored.rule, stored.stepper, stored.times, stored.t_end)
        writer._ownership.enter_context(owned(stored.rule.path))
        if stored.source != stored.rule.path:
            os.replace(stored.source, stored.rule.path)
        remove_parts(stored.rule.path, stored.rule.previous)
        writer._begun, writer._t, writer._steps = True, float(stored.solution.times[-1]), len(stored.solution.history)
        return writer

    def due(self, t: float, steps: int) -> bool:
        """Whether there is no checkpoint yet, or the rule asks for one at this time and number of steps."""
        rule = self._rule
        return bool(
            not self._begun
            or (rule.every_time is not None and t - self._t >= rule.every_time)
            or (rule.every_steps is not None and steps - self._steps >= rule.every_steps)
            or (rule.every_seconds is not None and time.monotonic() - self._clock >= max(rule.every_seconds, LARGEST_SHARE * self._took))
        )

    def lags(self, t: float) -> bool:
        """Whether there is a checkpoint of this run, and it is older."""
        return self._begun and t > self._t

    def write(self, solution: Solution, outputs: int, memory: Mapping[str, Any], work: Mapping[str, int]) -> None:
        """Keep a run. solution: its outputs, and its state as the last row. outputs: how many of the rows were asked for."""
        begun = time.monotonic()
        rule = {name: value for name, value in asdict(self._rule).items() if name != "path"}
        kept = {"outputs": outputs, "work": dict(work), "memory": dict(memory), "rule": rule, "digests": _digests(solution)}
        self.put(solution, self._settings | kept)
        self._t, self._steps = float(solution.times[-1]), len(solution.history)
        self._clock = time.monotonic()
        self._took = self._clock - begun

    def finish(self, solution: Solution) -> None:
        """Replace the checkpoints by the results."""
        save(self._rule.path, solution)
        self._rule.previous.unlink(missing_ok=True)

    def put(self, solution: Solution, memory: Mapping[str, Any] | None = None) -> None:
        """Replace the newest file, which becomes the previous one if this run wrote it. memory: None for a run that failed."""
        path, previous = self._rule.path, self._rule.previous
        if not self._begun:
            described(solution.system, "system")  # an earlier run's files stay if this one's system cannot be stored
            path.parent.mkdir(parents=True, exist_ok=True)
            self.close()  # if an earlier try failed
            self._ownership.enter_context(owned(path))
            previous.unlink(missing_ok=True)
            remove_parts(path, previous)
        save(path, solution, memory, previous if self._begun else None)
        self._begun = True


@dataclass(frozen=True)
class StoredCheckpoint:
    """What the file `source` holds: the solution, whose last row is the state, the stepper, and the other arguments of the writer."""

    solution: Solution
    stepper: Stepper
    rule: Checkpoint
    times: FloatArray
    t_end: float
    outputs: int
    work: dict[str, int]
    memory: dict[str, Any]
    source: Path


def read_checkpoint(path: str | os.PathLike[str], kinds: Iterable[type] = ()) -> StoredCheckpoint:
    """The newest whole checkpoint of a run: the file itself, or the one before if that is missing or damaged.

    kinds: classes of one's own that the run was made with. Raises FileNotFoundError if there is neither, ValueError if none is whole, the
    run is done, or a class is missing.
    """
    rule, own = Checkpoint(inputs.file_path("path", path)), own_classes(kinds)
    problems = []
    for source in filter(Path.is_file, (rule.path, rule.previous)):
        try:
            return _read(source, rule, own)
        except (_OverError, UnknownKindError):
            raise
        except ValueError as error:
            problems.append(str(error))
    raise ValueError("; ".join(problems)) if problems else FileNotFoundError(f"no checkpoint {rule.path}")


def newest(path: Path, kinds: Iterable[type] = ()) -> Path:
    """The newest whole checkpoint or results file of a run; `path` itself if there is none."""
    rule = Checkpoint(path)
    for source in filter(Path.is_file, (rule.path, rule.previous)):
        try:
            load(source, kinds)
            return source
        except UnknownKindError:
            raise
        except ValueError:
            continue
    return path


class _OverError(ValueError):
    """The newest file is whole, but its run is over: it must not be continued from an older file."""


def _read(source: Path, rule: Checkpoint, kinds: tuple[type, ...]) -> StoredCheckpoint:
    solution, kept = load(source, kinds), read_memory(source)
    if solution.status != RUNNING or kept is None:
        raise _OverError(f"{source} holds a run that is over ({solution.status}), wanted a checkpoint of one under way")
    # all outputs are read here, so that a damaged one is found now and not when the run is over
    solution = replace(solution, columns={name: np.asarray(values) for name, values in solution.columns.items()})
    differing = [name for name, digest in _digests(solution).items() if kept["digests"].get(name) != digest]
    if differing:
        raise ValueError(f"{source} is no whole checkpoint: its {' and '.join(differing)} differ from what was written")
    try:
        stepper = restored(kept["stepper"], with_own(STORED, kinds))
    except UnknownKindError as error:
        raise UnknownKindError(f"{source} cannot be read: {error}") from None
    others = {name: kept[name] for name in ("times", "t_end", "outputs", "work", "memory")}
    return StoredCheckpoint(solution, stepper, replace(rule, **kept["rule"]), source=source, **others)


def _digests(solution: Solution) -> dict[str, str]:
    """SHA-256 of the last state, of the system and of what the run was made from."""
    measure = solution.measure(-1)
    state = [solution.times, np.asarray(solution.masses[-1]), measure.points, measure.masses, np.asarray(solution.history)]
    digests = {}
    for name, part in {"state": state, "system": described(solution.system, "system"), "record": solution.record}.items():
        text, arrays = flattened(part)
        digest = hashlib.sha256(text.encode())
        for values in arrays.values():
            digest.update(f"{values.dtype.str}{values.shape}".encode())
            digest.update(values.tobytes())
        digests[name] = digest.hexdigest()
    return digests
