"""Files that are replaced in one move: a reader sees the old file or the whole new one, and a failure leaves the old one alone."""

import glob
import os
import platform
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path


@contextmanager
def replacing(path: Path) -> Iterator[Path]:
    """A temporary name beside `path` that replaces it at the end, so that readers see the old file or the whole new one.

    Raises OSError that names the file, not the temporary one.
    """
    temporary = path.with_name(f".{path.name}.{os.getpid()}.part")
    try:
        yield temporary
        os.replace(temporary, path)
    except OSError as error:
        raise unwritable(path, error) from None
    finally:
        temporary.unlink(missing_ok=True)


def remove_parts(*paths: Path) -> None:
    """Remove the temporary files of processes that were killed while they wrote one of these paths."""
    for path in paths:
        for part in path.parent.glob(f".{glob.escape(path.name)}.*.part"):
            if not _is_running(part.name.split(".")[-2]):
                part.unlink(missing_ok=True)


def _is_running(process: str) -> bool:
    if os.name != "posix" or not process.isdecimal():
        return True
    try:
        os.kill(int(process), 0)
    except (ProcessLookupError, OverflowError):
        return False
    except PermissionError:
        pass
    return True


@contextmanager
def owned(place: Path) -> Iterator[None]:
    """Makes this process the one that writes a folder, or a file, within the block: another one is refused, on whatever machine it runs.

    The name of the owner is in a file `.owner` of the folder, or `.NAME.owner` beside the file; that of a process of this machine that has
    ended does not count. Raises ValueError that says who the owner is, OSError if nothing can be written there.
    """
    lock = place / ".owner" if place.is_dir() else place.with_name(f".{place.name}.owner")
    own = f"process {os.getpid()} on {platform.node()}"
    made = False
    for _ in range(2):
        try:
            with lock.open("x", encoding="utf-8") as stream:
                made = True
                stream.write(own)
            break
        except FileExistsError:
            owner = _read_owner(lock)
            process, machine = owner.removeprefix("process ").split(" on ", 1) if " on " in owner else ("", "")
            if machine != platform.node() or _is_running(process):
                raise ValueError(f"{place} is being written by {owner}, wanted it to end (or {lock} removed, if it has ended)") from None
            lock.unlink(missing_ok=True)
        except OSError as error:
            if made:  # the disk is full
                lock.unlink(missing_ok=True)
            raise unwritable(place, error) from None
    else:
        raise ValueError(f"{place} is being written by {_read_owner(lock)}, wanted it to end")
    try:
        yield
    finally:
        lock.unlink(missing_ok=True)


def _read_owner(lock: Path) -> str:
    try:
        return lock.read_text(encoding="utf-8")
    except OSError:
        return "another process"


def unwritable(path: Path, error: OSError) -> OSError:
    """The same error in one sentence, with the name that was asked for."""
    found = type(error)(f"{path} cannot be written: {os.strerror(error.errno) if error.errno else error}")
    found.errno = error.errno
    return found


@contextmanager
def durable(path: Path, previous: Path | None = None) -> Iterator[Path]:
    """`replacing` that waits for the disk: a power cut at any moment leaves the old file or the whole new one.

    previous: a name that the old file keeps, from the moment that the new one is whole.
    """
    with replacing(path) as temporary:
        yield temporary
        _sync(temporary, os.O_RDWR)
        if previous is not None and path.exists():
            _keep(path, previous)
    if os.name == "posix":
        try:
            _sync(path.parent, os.O_RDONLY)
        except OSError as error:
            raise unwritable(path, error) from None


def _keep(path: Path, previous: Path) -> None:
    try:
        with replacing(previous) as link:
            os.link(path, link)
    except (AttributeError, OSError):  # there are no links here: until the new file is in place, there is none of the first name
        os.replace(path, previous)


def _sync(path: Path, mode: int) -> None:
    descriptor = os.open(path, mode)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
