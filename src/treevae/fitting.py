"""One fit from start to end: events become a history and a progress bar, and the state is saved while it runs."""

from __future__ import annotations

import logging
import os
import signal
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import asdict
from typing import Any, Generic, Protocol, TypeVar

from torch import Tensor

from .progress import Progress
from .storage.clock import Every
from .storage.differences import ChangedRunError, check_same
from .storage.states import State, StateFolder
from .storage.tensors import ModelFileError
from .training.engine import keep_memory
from .training.events import Event, TreeChanged

log = logging.getLogger("treevae")
SHARE = 0.01  # of the time that writing states may take


def run_folder(path: str | os.PathLike[str], save_every: float) -> StateFolder:
    """A folder for the state of a fit."""
    return StateFolder(path, Every(save_every, SHARE))


class Growing(Protocol):
    """Runs in the making, as a :class:`~treevae.training.grove.Grove`."""

    def events(self) -> Iterator[tuple[int, Event] | None]:
        """Train to the end, and tell what happens to which run; None is a pause, in which the state is whole."""

    def state(self) -> tuple[dict[str, Any], dict[str, Tensor]]:
        """What :meth:`restore` needs, as JSON-able values and tensors."""

    def restore(self, about: dict[str, Any], tensors: dict[str, Tensor]) -> None:
        """Stand where another one of the same kind stood."""


G = TypeVar("G", bound=Growing)


class Fitting(Generic[G]):
    """Runs that are fitted side by side, one for each seed.

    Parameters
    ----------
    make : callable
        Makes the runs of some seeds, which can be trained and whose state can be saved.
    seeds : sequence of int
        One for each run.
    identity : dict
        What must not change when a fit goes on: JSON-able parameters and a fingerprint of the data.
    verbose : bool
        Show a progress bar.

    Attributes
    ----------
    growing : Growing or None
        The runs; None before :meth:`run` has made them.
    histories : list of list of dict
        What happened in each run so far.
    seconds : list of list of float
        When each entry of the histories was made, in seconds of fitting, earlier parts of an interrupted fit included.
    """

    def __init__(
        self,
        make: Callable[[Sequence[int]], G],
        seeds: Sequence[int],
        identity: dict[str, Any],
        verbose: bool,
    ) -> None:
        self._make, self._identity, self._verbose = make, identity, verbose
        self._seeds = list(seeds)
        self.growing: G | None = None
        self.histories: list[list[dict[str, Any]]] = [[] for _ in seeds]
        self.seconds: list[list[float]] = [[] for _ in seeds]
        self._began = time.perf_counter()

    def run(
        self, folder: str | os.PathLike[str] | Callable[[], StateFolder] | None, save_every: float, fixed_seeds: bool
    ) -> None:
        """Fit to the end, from the beginning or from the state that the folder holds; or one that is opened only now.

        Without ``fixed_seeds`` the seeds of a state found there are taken instead of those given. An interrupt
        (Ctrl-C) is passed on; with a folder, once the state is saved there.
        """
        keep_memory()
        if folder is None:
            self.growing = self._make(self._seeds)
            self._grow(self.growing, None, lambda: False)
            return
        with ExitStack() as stack:
            states = folder() if callable(folder) else stack.enter_context(run_folder(folder, save_every))
            interrupted = stack.enter_context(_interrupts())
            found = states.load()
            if found is not None:
                self._check_same(found, fixed_seeds)
            self.growing = growing = self._make(self._seeds)
            if found is not None:
                self._restore(growing, found)
            self._save(growing, states)  # a folder that cannot be written is found out now, not after hours
            self._grow(growing, states, interrupted)
            self._try_to_save(growing, states)
            if interrupted():  # after the last pause: what was fitted is whole, but the caller wants to stop
                raise KeyboardInterrupt

    def _check_same(self, found: State, fixed_seeds: bool) -> None:
        """Raise unless a state is of this run; take its seeds if none were asked for."""
        seeds, identity = found.about.get("seeds"), found.about.get("identity")
        if not isinstance(identity, dict) or not isinstance(seeds, list):
            raise ModelFileError(f"{found.path} does not say which run it is the state of")
        if not fixed_seeds and len(seeds) == len(self._seeds) and all(type(seed) is int for seed in seeds):
            self._seeds = list(seeds)
        now = self._identity | {"seeds (drawn from random_state)": self._seeds}
        kind, ours = identity.get("model"), now.get("model")
        if kind is None:  # earlier versions did not tell
            now.pop("model", None)
        elif kind != ours:  # each has parameters of its own: to list them would help nobody
            raise ChangedRunError(
                f"the run in {found.path.parent} is of another model, {kind}, and this is {ours}: give another folder, "
                "or remove the states in this one to start anew"
            )
        check_same(identity | {"seeds (drawn from random_state)": seeds}, now, found.path.parent)

    def _restore(self, growing: G, found: State) -> None:
        try:
            growing.restore(found.about["grove"], found.tensors)
            self.histories = self._one_for_each(found.about["histories"])
            self.seconds = self._one_for_each(found.about["seconds"])
            self._began = time.perf_counter() - float(found.about["spent"])
        except (KeyError, IndexError, TypeError, ValueError, RuntimeError, AttributeError, OverflowError) as error:
            raise ModelFileError(f"{found.path} does not hold together as a state of this run: {error}") from error
        log.info("going on from %s", found.path)

    def _one_for_each(self, lists: Any) -> list[Any]:
        """A copy of the lists of all runs."""
        if len(lists) != len(self._seeds) or not all(isinstance(of_run, list) for of_run in lists):
            raise ValueError(f"it does not have a list for each of {len(self._seeds)} runs")
        return [list(of_run) for of_run in lists]

    def _grow(self, growing: G, states: StateFolder | None, interrupted: Any) -> None:
        with Progress(self._verbose, len(self._seeds)) as progress:
            for happened in growing.events():
                if happened is not None:
                    run, event = happened
                    progress.show(event, run)
                    self.histories[run].append(_record(event))
                    self.seconds[run].append(round(time.perf_counter() - self._began, 3))
                elif states is not None and (interrupted() or states.due()):
                    self._try_to_save(growing, states)
                    if interrupted():
                        raise KeyboardInterrupt

    def _try_to_save(self, growing: G, states: StateFolder) -> None:
        """Save; where that fails, training is worth more than its state, and goes on."""
        try:
            self._save(growing, states)
        except OSError as error:
            log.warning("the state of training was not saved: %s", error)

    def _save(self, growing: G, states: StateFolder) -> None:
        about, tensors = growing.state()
        whole = {
            "identity": self._identity,
            "seeds": self._seeds,
            "grove": about,
            "histories": self.histories,
            "seconds": self.seconds,
            "spent": time.perf_counter() - self._began,
        }
        states.save(whole, tensors)


@contextmanager
def _interrupts() -> Iterator[Any]:
    """Inside, a first Ctrl-C is only noted, so that a state can be saved; a second one interrupts as ever."""
    noted = threading.Event()
    in_main = threading.current_thread() is threading.main_thread()  # only there may signals be handled
    if not in_main or signal.getsignal(signal.SIGINT) is not signal.default_int_handler:  # or the caller has a way
        yield noted.is_set
        return

    def note(number: int, frame: Any) -> None:
        noted.set()
        log.warning("interrupted: stopping as soon as the state is saved; once more stops at once, without it")
        signal.signal(signal.SIGINT, before)

    with ExitStack() as stack:
        before = signal.signal(signal.SIGINT, note)
        stack.callback(signal.signal, signal.SIGINT, before)
        yield noted.is_set


def _record(event: Event) -> dict[str, Any]:
    """An event as a JSON-able dict."""
    if isinstance(event, TreeChanged):
        return {"event": "TreeChanged", "tree": event.tree.to_json()}
    told = {name: list(value) if isinstance(value, tuple) else value for name, value in asdict(event).items()}
    return {"event": type(event).__name__, **told}
