"""Files that are there whole or not at all, whatever happens while they are written; and tables as text."""

from __future__ import annotations

import csv
import errno
import io
import os
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

FULL = (errno.ENOSPC, errno.EFBIG, getattr(errno, "EDQUOT", errno.ENOSPC))
CLOSED = (errno.EROFS, errno.EACCES, errno.EPERM)
NO_LINKS = (errno.EPERM, errno.ENOSYS, errno.EOPNOTSUPP, errno.ENOTSUP, errno.EINVAL)  # of file systems without
Put = Callable[[Path, Path], None]


def write_whole(path: Path, text: str, put: Put | None = None) -> None:
    """Write a text file and wait until it is on the disk; its folder is made if it is not there.

    Raises
    ------
    OSError
        The file could not be written (full disk, read-only folder). The one that was there is as it was.
    """
    part = path.with_name(f".{path.name}.{os.getpid()}.part")  # several processes may write the same file
    with replacing(path, part, put):
        path.parent.mkdir(parents=True, exist_ok=True)
        part.unlink(missing_ok=True)  # of a process of this number that was killed; it may be one file with path
        with part.open("x", encoding="utf-8") as file:
            file.write(text)
            file.flush()
            os.fsync(file.fileno())


def write_new(path: Path, text: str) -> bool:
    """Whether a text file was written, as :func:`write_whole` does it; not if there is one, which stays as it is.

    Of several processes that write the same file one succeeds, where the file system has links.
    """
    try:
        write_whole(path, text, put=_put_new)
    except FileExistsError:
        if path.exists():
            return False
        raise  # what is in the way is no file of that name
    return True


def _put_new(part: Path, path: Path) -> None:
    """Give a file another name, unless one has that name already."""
    try:
        os.link(part, path)
    except OSError as error:
        if error.errno not in NO_LINKS:
            raise
        if path.exists():
            raise FileExistsError(errno.EEXIST, os.strerror(errno.EEXIST)) from error
        os.replace(part, path)


@contextmanager
def replacing(path: Path, part: Path, put: Put | None = None) -> Iterator[None]:
    """Inside, ``part`` is written; then it takes the place of ``path``. Where that fails nothing is left of it."""
    try:
        yield
        (put or os.replace)(part, path)
    except OSError as error:
        raise restated(error, f"cannot write {path}: {reason(error)}; a file that was there is as it was") from error
    finally:
        with suppress(OSError):
            part.unlink(missing_ok=True)
    sync_folder(path.parent)


def as_csv(header: Sequence[str], columns: Iterable[Iterable[Any]]) -> str:
    """The text of a csv with these columns, which are equally long."""
    text = io.StringIO(newline="")
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(header)
    writer.writerows(zip(*columns, strict=True))
    return text.getvalue()


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


def refusal(what: str, error: OSError, kept: str = "What was in the folder is kept") -> OSError:
    """An error that says what the system refused to do in a folder, what became of the files, and what to do."""
    advice = "try again, or use another folder"
    if error.errno in FULL:
        advice = "free some space (or raise the quota or the limit on file sizes), then start it again"
    elif error.errno in CLOSED:
        advice = "make the folder writable, or use another"
    return restated(error, f"{what}: {reason(error)}. {kept}; {advice}")
