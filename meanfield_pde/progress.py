"""Progress over model time or work: a bar (rich) in a terminal or a notebook; a line a minute where stderr is a file or a pipe."""

import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from types import SimpleNamespace

Progress = Callable[[float, float], object]
SECONDS_A_LINE = 60.0
OF_TIME = "t = {task.completed:.4g} of {task.total:.4g}"


@contextmanager
def progress_bar(wanted: bool | Progress, label: str, text: str = OF_TIME) -> Iterator[Progress]:
    """A function of (t, t_end): the caller's own, one that shows it, or one that does nothing. text: beside the bar, in rich's terms."""
    if callable(wanted):
        yield wanted
    elif not wanted:
        yield lambda t, t_end: None
    else:
        from rich.console import Console
        from rich.progress import BarColumn, TextColumn, TimeRemainingColumn
        from rich.progress import Progress as Bar

        console = Console(stderr=True)
        if not (console.is_terminal or console.is_jupyter):
            yield line_teller(label, SECONDS_A_LINE, text)
            return
        columns = (TextColumn("{task.description}"), BarColumn(), TextColumn(text), TimeRemainingColumn())
        with Bar(*columns, console=console, transient=True) as bar:
            task = bar.add_task(label, total=None, visible=False)  # until the total is known
            yield lambda t, t_end: bar.update(task, completed=t, total=t_end, visible=True)


def line_teller(label: str, seconds: float, text: str = OF_TIME) -> Progress:
    """Tells on stderr, at most once in so many seconds, how far the work is."""
    last = time.monotonic()

    def tell(t: float, t_end: float) -> None:
        nonlocal last
        if time.monotonic() - last >= seconds:
            last = time.monotonic()
            work = SimpleNamespace(completed=t, total=t_end, percentage=100 * t / t_end if t_end else 0.0)
            with suppress(OSError):  # nobody reads it any more: no reason to end a run
                print(f"{label}: {text.format(task=work)}", file=sys.stderr, flush=True)

    return tell
