"""Who listens to a fit: what happened is kept with its time, shown, and told to the caller, who may stop the fit."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from dataclasses import replace
from numbers import Integral
from typing import Any

import numpy as np

from .progress import Progress
from .training import events
from .training.events import Event

Callback = Callable[[Event], Any]  # gets every event as it happens; the fit ends if it returns False


class Listener:
    """Hears what happens in runs that are fitted side by side.

    Parameters
    ----------
    verbose : bool
        Show a progress bar.
    callback : callable, optional
        Told of every event, which names the seed of its run; the fit ends if it returns False.

    Attributes
    ----------
    histories : list of list of Event
        What happened in each run so far.
    seconds : list of list of float
        When it did, in seconds of fitting, earlier parts of an interrupted fit included.
    wants_more : bool
        Whether the callback has not ended the fit.
    failed : bool
        Whether the callback raised an error, which is its own.
    """

    def __init__(self, verbose: bool = False, callback: Callback | None = None) -> None:
        if callback is not None and not callable(callback):
            raise TypeError(f"callback={callback!r} must be a function of an event, or None")
        self._verbose, self._callback, self.wants_more, self.failed = verbose, callback, True, False
        self._seeds: list[Any] = []
        self._notes: list[str] = []
        self.histories: list[list[Event]] = []
        self.seconds: list[list[float]] = []
        self._began = 0.0
        self._progress: Progress | None = None

    def begin(self, random_states: Sequence[Any]) -> None:
        """Listen to as many runs, by what they were seeded with, from now on."""
        self._seeds = [int(state) if isinstance(state, Integral) else None for state in random_states]
        self.histories, self.seconds = [[] for _ in random_states], [[] for _ in random_states]
        self._began, self.wants_more = time.perf_counter(), True

    def note(self, text: str) -> None:
        """Have something said where progress begins to be shown."""
        self._notes.append(text)

    def showing(self) -> AbstractContextManager[Progress]:
        """Inside, progress is shown, if that is wanted."""
        self._progress = Progress(self._verbose, len(self._seeds))
        for note in self._notes:
            self._progress.say(note)
        return self._progress

    def hear(self, run: int, event: Event) -> None:
        """Take in what happened to a run."""
        event = replace(event, seed=self._seeds[run])
        self.histories[run].append(event)
        self.seconds[run].append(round(time.perf_counter() - self._began, 3))
        if self._progress is not None:
            self._progress.show(event, run)
        if self._callback is not None and self.wants_more:
            self.failed = True
            answer = self._callback(event)
            self.failed = False
            self.wants_more = not (isinstance(answer, bool | np.bool_) and not answer)

    def state(self) -> dict[str, Any]:
        """What :meth:`restore` needs, as JSON-able values."""
        return {
            "histories": [[event.to_dict() for event in history] for history in self.histories],
            "seconds": self.seconds,
            "spent": time.perf_counter() - self._began,
        }

    def restore(self, about: dict[str, Any]) -> None:
        """Go on where another listener to the same runs was."""
        told, seconds = about["histories"], about["seconds"]
        for lists in (told, seconds):
            if len(lists) != len(self._seeds) or not all(isinstance(of_run, list) for of_run in lists):
                raise ValueError(f"it does not have a list for each of {len(self._seeds)} runs")
        self.histories = [
            [replace(events.from_dict(one), seed=seed) for one in history]
            for history, seed in zip(told, self._seeds, strict=True)
        ]
        self.seconds = [list(of_run) for of_run in seconds]
        self._began = time.perf_counter() - float(about["spent"])
