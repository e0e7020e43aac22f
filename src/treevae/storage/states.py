"""The state of a training run, saved again and again in its folder, so that it can go on after any end.

Two files take turns, and a save replaces the older. So at every moment, kill and power cut included, at least one whole
state is there once one was saved; a new file replaces an old one only when it is on the disk. One process at a time
works in a folder.
"""

from __future__ import annotations

import logging
import os
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Any, Self

import torch

from ..errors import ModelFileError
from . import tensors as checkpoint
from .clock import Every
from .lock import FolderLock
from .writing import reason, refusal, sync_folder

STATES = ("state-a.safetensors", "state-b.safetensors")
GOOD_ONE_KEPT = "The last good state is kept, and the run can go on from it"
log = logging.getLogger("treevae")


@dataclass(frozen=True)
class State:
    """A saved state: its number in the run, from 1 on, what :meth:`StateFolder.save` was given, and its file."""

    number: int
    about: dict[str, Any]
    tensors: dict[str, torch.Tensor]
    path: Path


class StateFolder:
    """The folder of one run's states. Enter it with ``with``, which makes and locks it, to save and to clear.

    Files beside the states and the lock are left alone.

    Parameters
    ----------
    path : path
        The folder.
    every : Every, optional
        When :meth:`due` says that it is time to save; once a minute if not given.
    """

    def __init__(self, path: str | os.PathLike[str], every: Every | None = None) -> None:
        self.path, self.every = Path(path), every or Every()
        self.lock = FolderLock(path)
        self._newest: tuple[int, Path | None] | None = None  # number and file; None until the folder was looked at

    def __enter__(self) -> Self:
        """Make the folder, if it is not there, and lock it.

        Raises
        ------
        RunLockedError
            Another process works in it, or another StateFolder of this process.
        OSError
            It cannot be made, or not be locked.
        """
        self.lock.__enter__()
        self._newest = None  # others may have been here
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Unlock the folder."""
        self.lock.__exit__(kind, error, trace)

    def _must_be_entered(self, what: str) -> None:
        if not self.lock.held:
            raise RuntimeError(f"to {what}, enter the folder {self.path} first: with StateFolder(path) as folder")

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
        if self._newest is None or self._newest[1] is None:
            return refusal(f"cannot {what} {self.path}", error)
        return refusal(f"cannot {what} {self.path}", error, GOOD_ONE_KEPT)


def peek(path: str | os.PathLike[str]) -> tuple[int, dict[str, Any], float] | None:
    """The number of a run's newest state, what was saved of it but for tensors, and when; None if there is none.

    For lookers-on: the folder is neither made nor locked, and files that vanish or cannot be read are passed over.
    """
    states = []
    for name in STATES:
        file = Path(path) / name
        with suppress(OSError, ModelFileError):
            states.append((*_inner(file, checkpoint.peek(file)), file.stat().st_mtime))
    return max(states, key=lambda state: state[0], default=None)


def _read_state(path: Path) -> State:
    about, tensors = checkpoint.read(path)
    return State(*_inner(path, about), tensors, path)


def _inner(path: Path, about: dict[str, Any]) -> tuple[int, dict[str, Any]]:
    number, inner = about.get("number"), about.get("state")
    if type(number) is not int or not isinstance(inner, dict):
        raise ModelFileError(f"{path} is a treevae file, but not the state of a run")
    return number, inner
