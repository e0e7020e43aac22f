"""Files that are there whole or not at all, whatever happens while they are written."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path


def write_whole(path: Path, text: str) -> None:
    """Write a text file and wait until it is on the disk; its folder is made if it is not there.

    Raises
    ------
    OSError
        The file could not be written (full disk, read-only folder). The one that was there is as it was.
    """
    part = path.with_name(f".{path.name}.{os.getpid()}.part")  # several processes may write the same file
    with replacing(path, part):
        path.parent.mkdir(parents=True, exist_ok=True)
        with part.open("w", encoding="utf-8") as file:
            file.write(text)
            file.flush()
            os.fsync(file.fileno())


@contextmanager
def replacing(path: Path, part: Path) -> Iterator[None]:
    """Inside, ``part`` is written; then it takes the place of ``path``. Where that fails nothing is left of it."""
    try:
        yield
        os.replace(part, path)
    except OSError as error:
        raise restated(error, f"cannot write {path}: {reason(error)}; a file that was there is as it was") from error
    finally:
        with suppress(OSError):
            part.unlink(missing_ok=True)
    sync_folder(path.parent)


def sync_folder(path: Path) -> None:
    """Wait until the names of a folder's files are on the disk, where the system can."""
    with suppress(OSError):
        folder = os.open(path, os.O_RDONLY)
        try:
            os.fsync(folder)
        finally:
            os.close(folder)


def reason(error: OSError) -> str:
    """What went wrong, without number and path."""
    return error.strerror or (os.strerror(error.errno) if error.errno else str(error))


def restated(error: OSError, message: str) -> OSError:
    """An error of the same kind and number, with another message."""
    again = type(error)(message)
    again.errno = error.errno
    return again
