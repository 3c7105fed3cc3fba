"""Stopping a run from outside: signals and a limit of wall time end it after the step under way, so that it can be kept and go on.

Data in: signals, seconds. Data out: a callback for `solve`.
"""

import signal
import time
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType

from meanfield_pde import inputs
from meanfield_pde.measure import Measure

CODES = {getattr(signal, name): code for name, code in (("SIGINT", 130), ("SIGTERM", 143)) if hasattr(signal, name)}
"""Exit codes of a process that a signal stopped, for the signals that the system has."""


class StoppedError(Exception):
    """A run that was stopped and kept. code: the exit code of the process."""

    def __init__(self, message: str, code: int) -> None:
        super().__init__(message)
        self.code = code


class StopRequest:
    """A callback for `solve` that ends the run once a signal or the wall time asked for it.

    wall_time: from now, in seconds or as "10min", None for no limit. code: the exit code of a process that stops so, None as long as
    nobody asked; reason: who asked. Raises ValueError for a bad time.
    """

    def __init__(self, wall_time: float | str | None = None) -> None:
        self.code: int | None = None
        self.reason = ""
        self._deadline = None if wall_time is None else time.monotonic() + inputs.seconds("wall_time", wall_time)

    def __call__(self, t: float, measure: Measure) -> str | None:
        if self.code is None and self._deadline is not None and time.monotonic() >= self._deadline:
            self.code, self.reason = 0, "wall time"
        return None if self.code is None else self.reason

    def ask(self, number: int, frame: FrameType | None) -> None:
        """The handler of the first signal; another one, of either kind, then ends the process at once."""
        for other in CODES:
            signal.signal(other, signal.SIG_DFL)
        self.code, self.reason = CODES[signal.Signals(number)], signal.Signals(number).name


@contextmanager
def stopping(wall_time: float | str | None) -> Iterator[StopRequest]:
    """A `StopRequest` that SIGINT and SIGTERM ask within the block, too. Only the main thread may install handlers of signals: in another
    one this raises ValueError, as for a bad number of seconds."""
    stop = StopRequest(wall_time)
    before = {number: signal.signal(number, stop.ask) for number in CODES}
    try:
        yield stop
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
