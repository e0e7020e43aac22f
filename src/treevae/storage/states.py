"""The folder of a training run: its state, saved again and again, so that it can go on after any end.

Two files take turns, and a save replaces the older. So at every moment, kill and power cut included, at least one whole
state is there once one was saved; a new file replaces an old one only when it is on the disk. One process at a time
works in a folder.
"""

from __future__ import annotations

import errno
import json
import logging
import os
import socket
import sys
import time
import weakref
import zlib
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Any

import numpy as np
import torch

from ..errors import ChangedRunError, ModelFileError, RunLockedError
from . import tensors as checkpoint
from .writing import reason, restated, sync_folder

STATES = ("state-a.safetensors", "state-b.safetensors")
LOCK = "lock"
LOCK_TRIES = 100
CHUNK = 2**24  # bytes read at once for a fingerprint
SHOWN = 60  # characters of a value in a message
FULL = (errno.ENOSPC, errno.EFBIG, getattr(errno, "EDQUOT", errno.ENOSPC))
CLOSED = (errno.EROFS, errno.EACCES, errno.EPERM)
NO_LOCKS = (errno.ENOSYS, errno.ENOLCK, errno.EOPNOTSUPP)
log = logging.getLogger("treevae")


@dataclass(frozen=True)
class State:
    """A saved state: its number in the run, from 1 on, what :meth:`RunFolder.save` was given, and its file."""

    number: int
    about: dict[str, Any]
    tensors: dict[str, torch.Tensor]
    path: Path


class Every:
    """When to save: so many seconds after the last save ended, and so that saving takes at most a share of the time.

    Parameters
    ----------
    seconds : float
        Least time between the end of a save and the next.
    share : float
        Most of the time that saves may take: the next save waits until the last is no more than that.
    clock : callable
        Gives seconds that never run back.
    """

    def __init__(self, seconds: float = 60.0, share: float = 0.02, clock: Callable[[], float] = time.monotonic) -> None:
        if not seconds >= 0:
            raise ValueError(f"seconds={seconds!r} must be 0 or more")
        if not 0 < share <= 1:
            raise ValueError(f"share={share!r} must be above 0 and at most 1")
        self.seconds, self.share = seconds, share
        self._clock, self._ended, self._took = clock, clock(), 0.0

    def due(self) -> bool:
        """Whether it is time to save."""
        return self._clock() - self._ended >= max(self.seconds, self._took / self.share)

    @contextmanager
    def measured(self) -> Iterator[None]:
        """Around a save, to see how long it takes; one that fails counts too."""
        began = self._clock()
        try:
            yield
        finally:
            self._ended = self._clock()
            self._took = self._ended - began


class RunFolder:
    """The folder of one run, made if needed. Enter it with ``with``, which locks it, to save and to clear.

    Files beside the states and the lock are left alone. The lock is the system's and ends with the process, however it
    ends. Where the file system has no locks, this is logged as a warning and the run goes on without.

    Parameters
    ----------
    path : path
        The folder.
    every : Every, optional
        When :meth:`due` says that it is time to save; once a minute if not given.

    Raises
    ------
    OSError
        The folder cannot be made.
    """

    def __init__(self, path: str | os.PathLike[str], every: Every | None = None) -> None:
        self.path, self.every = Path(path), every or Every()
        self._lock: int | None = None  # file descriptor
        self._newest: tuple[int, Path | None] | None = None  # number and file; None until the folder was looked at
        try:
            if not self.path.is_dir():
                self.path.mkdir(parents=True, exist_ok=True)
                sync_folder(self.path.parent)
        except OSError as error:
            why = reason(error)
            message = f"cannot make the run's folder {self.path}: {why}; give a path where a folder can be made"
            raise restated(error, message) from error

    # -- one at a time ------------------------------------------------------------------------------------------

    def __enter__(self) -> RunFolder:
        """Lock the folder.

        Raises
        ------
        RunLockedError
            Another process works in it, or another RunFolder of this process.
        """
        if self._lock is not None:
            raise self._locked_by(f"this process ({os.getpid()})")
        for _ in range(LOCK_TRIES):
            if (file := self._try_lock()) is not None:
                break
        else:
            raise self._locked_by("processes that come and go")
        self._lock = file
        _entered.add(self)
        self._newest = None  # others may have been here
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Unlock the folder."""
        if self._lock is None:  # a child process of the one that holds it
            return
        path = self.path / LOCK
        with suppress(OSError):  # not all systems remove open files
            if os.path.samestat(os.fstat(self._lock), path.stat()):  # else whoever removed ours, another has one there
                path.unlink()
        os.close(self._lock)
        self._lock = None

    def _try_lock(self) -> int | None:
        """The locked file, or None if it was removed meanwhile by the one who had it."""
        path = self.path / LOCK
        try:
            file = os.open(path, os.O_RDWR | os.O_CREAT, 0o666)
        except OSError as error:
            raise self._refused("lock", error) from error
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
                raise self._refused("lock", error) from error
            raise
        return file

    def _locked_by(self, whom: str) -> RunLockedError:
        return RunLockedError(
            f"the folder {self.path} is in use by {whom}; wait until it ends or stop it, or give another folder"
        )

    def _must_be_entered(self, what: str) -> None:
        if self._lock is None:
            raise RuntimeError(f"to {what}, enter the folder {self.path} first: with RunFolder(path) as folder")

    # -- the state ----------------------------------------------------------------------------------------------

    def due(self) -> bool:
        """Whether it is time to save."""
        return self.every.due()

    def save(self, about: dict[str, Any], tensors: dict[str, torch.Tensor]) -> int:
        """Write a state, keep the one before, and return the new one's number. It is on the disk when this returns.

        Parameters
        ----------
        about : dict
            All that can be JSON; keys are strings.
        tensors : dict
            Tensors by name, on any device.

        Raises
        ------
        OSError
            The state could not be written (full disk, read-only folder); the last one is kept, and saving can be
            tried again.
        """
        self._must_be_entered("save")
        with self.every.measured():
            if self._newest is None:
                self._look()
            assert self._newest is not None
            number, newest = self._newest
            target = next(path for path in self._paths() if path != newest)
            try:
                checkpoint.write(target, {"number": number + 1, "state": about}, tensors)
            except OSError as error:
                raise self._refused("save the training state into", error) from error
            self._newest = number + 1, target
            return number + 1

    def load(self) -> State | None:
        """The newest whole state, or None if there is none. A damaged one is logged as a warning and passed over.

        Raises
        ------
        ModelFileError
            There are states, but none can be read.
        """
        states, broken = self._look()
        if not states:
            if broken:
                raise ModelFileError(
                    f"no state of the run in {self.path} can be read: {'; '.join(broken.values())}. Bring a whole copy "
                    f"of one back, or remove {' and '.join(path.name for path in broken)} to start anew"
                )
            return None
        for why in broken.values():
            log.warning("%s. The run goes on from state %d in %s", why, states[0].number, states[0].path.name)
        return states[0]

    def clear(self) -> None:
        """Remove the states, as of a run that has finished; all else in the folder stays."""
        self._must_be_entered("clear it")
        newest = self._newest[1] if self._newest else None
        for path in sorted(self._paths(), key=lambda path: path == newest):  # killed between, the newest is left
            try:
                path.with_name(path.name + ".part").unlink(missing_ok=True)  # of a killed save
                path.unlink(missing_ok=True)
            except OSError as error:
                raise self._refused("remove the states in", error) from error
        sync_folder(self.path)
        self._newest = None

    def _paths(self) -> list[Path]:
        return [self.path / name for name in STATES]

    def _look(self) -> tuple[list[State], dict[Path, str]]:
        """The states that can be read, newest first, and why the others cannot."""
        states, broken = [], {}
        for path in self._paths():
            try:
                states.append(_read_state(path))
            except FileNotFoundError:
                continue
            except ModelFileError as error:
                broken[path] = str(error)
            except OSError as error:
                broken[path] = f"{path} cannot be read: {reason(error)}"
        states.sort(key=lambda state: -state.number)
        self._newest = (states[0].number, states[0].path) if states else (0, None)
        return states, broken

    def _refused(self, what: str, error: OSError) -> OSError:
        """What the system refused to do, and what to do about it."""
        kept = "The last good state is kept, and the run can go on from it"
        if self._newest is None or self._newest[1] is None:
            kept = "What was in the folder is kept"
        advice = "try again, or use another folder"
        if error.errno in FULL:
            advice = "free some space (or raise the quota or the limit on file sizes), then start it again"
        elif error.errno in CLOSED:
            advice = "make the folder writable, or use another"
        return restated(error, f"cannot {what} {self.path}: {reason(error)}. {kept}; {advice}")


def peek(path: str | os.PathLike[str]) -> tuple[int, dict[str, Any], float] | None:
    """The number of a run's newest state, what was saved of it but for tensors, and when; None if there is none.

    For lookers-on: the folder is neither made nor locked, and files that vanish or cannot be read are passed over.
    """
    found = []
    for name in STATES:
        file = Path(path) / name
        with suppress(OSError, ModelFileError):
            found.append((*_inner(file, checkpoint.peek(file)), file.stat().st_mtime))
    return max(found, key=lambda state: state[0], default=None)


def _read_state(path: Path) -> State:
    about, tensors = checkpoint.read(path)
    return State(*_inner(path, about), tensors, path)


def _inner(path: Path, about: dict[str, Any]) -> tuple[int, dict[str, Any]]:
    number, inner = about.get("number"), about.get("state")
    if type(number) is not int or not isinstance(inner, dict):
        raise ModelFileError(f"{path} is a treevae file, but not the state of a run")
    return number, inner


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


_entered: weakref.WeakSet[RunFolder] = weakref.WeakSet()


def _forget_locks() -> None:
    """In a forked child: let go of the parent's locks, so that they end with the parent."""
    for folder in list(_entered):
        if folder._lock is not None:
            os.close(folder._lock)
            folder._lock = None


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_forget_locks)


# -- is it the same run? --------------------------------------------------------------------------------------------


def fingerprint(x: torch.Tensor | np.ndarray, chunk: int = CHUNK) -> str:
    """Type, shape and CRC-32 of all bytes, such as "float32 60x4 1a2b3c4d", to see whether data have changed.

    An array, a memory map and a tensor of the same values, on any device, have the same. About ``chunk`` bytes are
    copied at once, at least one row, and none where they can be read in place. CRC-32 finds every change of up to 32
    bits in a row and misses one in four thousand million others; it is no protection against forgery.
    """
    if isinstance(x, torch.Tensor):
        name, size = str(x.dtype).removeprefix("torch."), x.element_size()
        x = x.detach()
    else:
        x = np.asanyarray(x)
        if x.dtype.hasobject:
            raise TypeError(f"an array of dtype {x.dtype} holds Python objects, which have no fixed bytes")
        name, size = x.dtype.name if x.dtype.isnative else x.dtype.str, x.dtype.itemsize
    shape = tuple(x.shape)
    rows: Any = x if shape else x.reshape(1)
    step = max(1, chunk // max(1, size * int(np.prod(shape[1:]))))
    value = 0
    for start in range(0, len(rows), step):
        value = zlib.crc32(_bytes(rows[start : start + step]), value)
    return f"{name} {'x'.join(map(str, shape)) or 'scalar'} {value:08x}"


def _bytes(part: torch.Tensor | np.ndarray) -> memoryview:
    if isinstance(part, torch.Tensor):
        return part.cpu().contiguous().reshape(-1).view(torch.uint8).numpy().data
    return np.ascontiguousarray(part).reshape(-1).view(np.uint8).data


def differences(before: dict[str, Any], now: dict[str, Any]) -> list[str]:
    """What changed between two JSON-able dicts, such as "n_leaves: 10 before, now 20"; inner names are dotted.

    Both are compared as JSON gives them back, so a tuple is the same as a list.
    """
    return list(_differences(json.loads(json.dumps(before)), json.loads(json.dumps(now)), ""))


def check_same(before: dict[str, Any], now: dict[str, Any], folder: str | os.PathLike[str]) -> None:
    """Refuse to go on with a run whose parameters or data have changed.

    Raises
    ------
    ChangedRunError
        Names every difference.
    """
    if changed := differences(before, now):
        raise ChangedRunError(
            f"the run in {os.fspath(folder)} was started with other parameters or data: {'; '.join(changed)}. To go "
            "on, give the same as before; or give another folder, or remove the states in this one to start anew"
        )


_ABSENT = object()


def _differences(before: Any, now: Any, name: str) -> Iterator[str]:
    if isinstance(before, dict) and isinstance(now, dict):
        for key in before | now:
            inner = f"{name}.{key}" if name else key
            yield from _differences(before.get(key, _ABSENT), now.get(key, _ABSENT), inner)
    elif not _same(before, now):
        old, new = _shown(before), _shown(now)
        yield (
            f"{name}: {old} before, now {new}" if old != new else f"{name}: {old} before, now another that begins alike"
        )


def _same(before: Any, now: Any) -> bool:
    """Equal; NaN equals NaN, and truth values are no numbers."""
    if isinstance(before, list) and isinstance(now, list):
        return len(before) == len(now) and all(map(_same, before, now))
    if isinstance(before, dict) and isinstance(now, dict):
        return before.keys() == now.keys() and all(_same(before[key], now[key]) for key in before)
    if isinstance(before, bool) != isinstance(now, bool):
        return False
    return before == now or (before != before and now != now)


def _shown(value: Any) -> str:
    text = "absent" if value is _ABSENT else repr(value)
    return text if len(text) <= SHOWN else f"{text[: SHOWN - 1]}…"
