"""A progress bar over model time or work: rich, on stderr, and silent where that is no terminal."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager

Progress = Callable[[float, float], object]


@contextmanager
def progress_bar(wanted: bool | Progress, label: str, text: str = "t = {task.completed:.4g} of {task.total:.4g}") -> Iterator[Progress]:
    """A function of (t, t_end): the caller's own, one that draws a bar, or one that does nothing. text: beside the bar, in rich's terms."""
    if callable(wanted):
        yield wanted
    elif not wanted:
        yield lambda t, t_end: None
    else:
        from rich.console import Console
        from rich.progress import BarColumn, TextColumn, TimeRemainingColumn
        from rich.progress import Progress as Bar

        console = Console(stderr=True)
        columns = (TextColumn("{task.description}"), BarColumn(), TextColumn(text), TimeRemainingColumn())
        with Bar(*columns, console=console, disable=not console.is_terminal, transient=True) as bar:
            task = bar.add_task(label, total=None, visible=False)  # until the total is known
            yield lambda t, t_end: bar.update(task, completed=t, total=t_end, visible=True)
