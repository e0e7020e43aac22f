"""One process at a time in a folder: a lock of the system's, which ends with the process, however it ends."""

from __future__ import annotations

import errno
import logging
import os
import socket
import sys
import weakref
from contextlib import suppress
from pathlib import Path
from types import TracebackType

from ..errors import RunLockedError
from .writing import reason, refusal, restated, sync_folder

LOCK = "lock"
LOCK_TRIES = 100
NO_LOCKS = (errno.ENOSYS, errno.ENOLCK, errno.EOPNOTSUPP)
log = logging.getLogger("treevae")


class FolderLock:
    """A folder in which one works alone while this is entered with ``with``; entering makes it if needed.

    Where the file system has no locks, this is logged as a warning, and one works without.
    """

    def __init__(self, path: str | os.PathLike[str]) -> None:
        self.path = Path(path)
        self._file: int | None = None  # descriptor

    @property
    def held(self) -> bool:
        """Whether the folder is locked by this."""
        return self._file is not None

    def __enter__(self) -> FolderLock:
        """Make the folder, if it is not there, and lock it.

        Raises
        ------
        RunLockedError
            Another process works in it, or another holder in this process.
        OSError
            It cannot be made, or not be locked.
        """
        if self._file is not None:
            raise self._locked_by(f"this process ({os.getpid()})")
        self._make()
        for _ in range(LOCK_TRIES):
            if (file := self._try()) is not None:
                break
        else:
            raise self._locked_by("processes that come and go")
        self._file = file
        _entered.add(self)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Unlock the folder."""
        if self._file is None:  # a child process of the one that holds it
            return
        path = self.path / LOCK
        with suppress(OSError):  # not all systems remove open files
            if os.path.samestat(os.fstat(self._file), path.stat()):  # else whoever removed ours, another has one there
                path.unlink()
        self.let_go()

    def let_go(self) -> None:
        """Close the file, as a forked child does with what it has of its parent's lock."""
        if self._file is not None:
            os.close(self._file)
            self._file = None

    def _make(self) -> None:
        try:
            if not self.path.is_dir():
                self.path.mkdir(parents=True, exist_ok=True)
                sync_folder(self.path.parent)
        except OSError as error:
            why = reason(error)
            message = f"cannot make the run's folder {self.path}: {why}; give a path where a folder can be made"
            raise restated(error, message) from error

    def _try(self) -> int | None:
        """The locked file, or None if it was removed meanwhile by the one who had it."""
        path = self.path / LOCK
        try:
            file = os.open(path, os.O_RDWR | os.O_CREAT, 0o666)
        except OSError as error:
            raise refusal(f"cannot lock {self.path}", error) from error
        try:
            if not _lock(file):
                pid, _, host = os.read(file, 300).decode(errors="replace").partition(" ")
                raise self._locked_by(f"process {pid} on {host}" if host else "another process")
            try:
                same = os.path.samestat(os.fstat(file), os.stat(path))
            except FileNotFoundError:
                same = False
            if not same:
                os.close(file)
                return None
            os.ftruncate(file, 0)
            os.write(file, f"{os.getpid()} {socket.gethostname()}".encode())
        except BaseException as error:
            os.close(file)
            if isinstance(error, OSError) and not isinstance(error, RunLockedError):
                raise refusal(f"cannot lock {self.path}", error) from error
            raise
        return file

    def _locked_by(self, whom: str) -> RunLockedError:
        return RunLockedError(
            f"the folder {self.path} is in use by {whom}; wait until it ends or stop it, or give another folder"
        )


if sys.platform == "win32":
    import msvcrt

    def _lock(file: int) -> bool:
        """Lock an open file; False if another has it."""
        os.lseek(file, 2**30, os.SEEK_SET)  # beyond the text, which others must be able to read
        try:
            msvcrt.locking(file, msvcrt.LK_NBLCK, 1)
        except OSError:
            return False
        finally:
            os.lseek(file, 0, os.SEEK_SET)
        return True

else:
    import fcntl

    def _lock(file: int) -> bool:
        """Lock an open file; False if another has it."""
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            return False
        except OSError as error:
            if error.errno not in NO_LOCKS:
                raise
            log.warning("this file system has no locks; make sure that no other process works in the same folder")
        return True


_entered: weakref.WeakSet[FolderLock] = weakref.WeakSet()


def _forget_locks() -> None:
    """In a forked child: let go of the parent's locks, so that they end with the parent."""
    for lock in list(_entered):
        lock.let_go()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_forget_locks)
