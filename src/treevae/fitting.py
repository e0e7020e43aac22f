"""One fit from start to end: runs trained side by side, listened to, saved while they run; then they are models."""

from __future__ import annotations

import logging
import os
import signal
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, replace
from functools import partial
from numbers import Integral
from typing import Any, Generic, Protocol, TypeVar

from sklearn.utils import check_random_state
from torch import Tensor

from .errors import ChangedRunError, ModelFileError, NoTreeError
from .fitted import Fitted, winners
from .listening import Listener
from .preparing import Prepared
from .recipes import PAPER
from .starting import GUIDE
from .storage.clock import Every
from .storage.differences import check_same
from .storage.states import State, StateFolder
from .training.adam import give_back
from .training.engine import keep_memory
from .training.events import Event
from .training.grove import Grove
from .training.growing import Given, Splits, Start
from .training.guided import Guided
from .training.loop import out_of_memory
from .training.plan import Plan
from .training.samples import Samples, over

log = logging.getLogger("treevae")
SHARE = 0.01  # of the time that writing states may take
Folder = str | os.PathLike[str] | Callable[[], StateFolder]


class Interrupted(KeyboardInterrupt):
    """Ctrl-C in a fit; ``fitted`` has the model of each run so far, None where there is none yet."""

    def __init__(self, fitted: Sequence[Fitted | None] = ()) -> None:
        super().__init__()
        self.fitted = fitted


@dataclass(frozen=True)
class Seeds:
    """Where the randomness of each run comes from."""

    random_states: tuple[Any, ...]  # as the user gave them
    numbers: tuple[int, ...]

    @classmethod
    def of(cls, random_states: Sequence[Any]) -> Seeds:
        """Of runs with these random states."""
        drawn = (int(check_random_state(state).randint(2**31 - 1)) for state in random_states)
        return cls(tuple(random_states), tuple(drawn))

    @property
    def fixed(self) -> bool:
        """Whether the same would be drawn again."""
        return all(isinstance(state, Integral) for state in self.random_states)


def fit_trees(
    prepared: Prepared,
    plan: Plan,
    seeds: Seeds,
    run: Folder | None = None,
    listener: Listener | None = None,
    *,
    save_every: float = 30.0,
    start: Start | None = None,
    fast: bool = True,
) -> list[Fitted]:
    """A fitted model for each seed, all trained side by side.

    Parameters
    ----------
    prepared : Prepared
        The samples, and what is fitted to them.
    plan : Plan
        The stages.
    seeds : Seeds
        One for each model.
    run : path, or a function that gives an entered StateFolder, optional
        The folder for the state of training; a state that is there is gone on from.
    listener : Listener, optional
        Hears what happens, and may end the fit.
    save_every : float
        Least seconds between two states.
    start : Start, optional
        How the models come to their trees, where an experiment has a way, or choices, of its own; by default they grow
        by splits, or have the tree that is given. A state does not tell it, so it goes without a folder.
    fast : bool
        Whether products on a GPU may be rounded for speed.

    Raises
    ------
    NoTreeError
        The listener ended the fit before there was a tree.
    Interrupted
        Ctrl-C, with the models so far.
    """
    if start is not None and run is not None:
        raise ValueError("a start of one's own goes without a folder: a state would not tell which start it is of")
    samples = Samples(prepared.x, prepared.device, largest=prepared.arch.largest_activation)
    if any(stage.pairs for stage in plan.stages.values()):
        samples.pair(prepared.neighbours)
    listener = listener or Listener()
    start = start or _start_of(prepared, samples)
    make = partial(Grove, prepared.arch, samples, plan, start=start, augment=prepared.augment, fast=fast)
    identity = {} if run is None else prepared.identity() | {"plan": plan.to_dict()}
    fitting = Fitting(make, seeds, identity, listener)

    def kept() -> list[Fitted | None]:
        """The models so far."""
        modules = [None] * len(seeds.numbers) if fitting.runs is None else fitting.runs.modules
        told = zip(modules, listener.histories, listener.seconds, strict=True)
        models: list[Fitted | None] = []
        for module, history, seconds in told:
            if module is None:
                models.append(None)
                continue
            give_back(module)
            labels = over(module, samples, winners(module)).cpu().numpy()
            about = (prepared.decides, labels, tuple(history), tuple(seconds), prepared.names, prepared.kind)
            models.append(Fitted(module.eval(), plan, *about))
        return models

    try:
        fitting.run(run, save_every)
    except KeyboardInterrupt as error:
        raise Interrupted(kept()) from error
    except (RuntimeError, MemoryError) as error:
        if listener.failed or not out_of_memory(error):
            raise
        raise MemoryError(
            f"out of memory: a step has {plan.batch_size} samples (batch_size) in each of "
            f"{len(seeds.numbers) * plan.n_init} trees (n_init={plan.n_init}, seeds: {len(seeds.numbers)}); fewer take "
            "less"
        ) from error
    so_far = kept()
    if None in so_far:
        raise NoTreeError(
            f"callback ended the fit before there was a tree, in {so_far.count(None)} of {len(so_far)} models; let it "
            "wait for the first TreeChanged event (of each seed) before it returns False"
        )
    return [model for model in so_far if model is not None]


def _start_of(prepared: Prepared, samples: Samples) -> Start:
    """How models come to their trees."""
    if prepared.tree is not None:
        return Given(prepared.tree)
    if prepared.start == GUIDE:
        return Guided(lambda seed: prepared.guides(samples.x, samples.neighbours, seed))
    return Splits()


class Runs(Protocol):
    """Runs in the making, as a :class:`~treevae.training.grove.Grove`."""

    def events(self) -> Iterator[tuple[int, Event] | None]:
        """Train to the end, and tell what happens to which run; None is a pause, in which the state is whole."""

    def state(self) -> tuple[dict[str, Any], dict[str, Tensor]]:
        """What :meth:`restore` needs, as JSON-able values and tensors."""

    def restore(self, about: dict[str, Any], tensors: dict[str, Tensor]) -> None:
        """Stand where another one of the same kind stood."""


R = TypeVar("R", bound=Runs)


class Fitting(Generic[R]):
    """Trains runs side by side, one for each seed, and saves their state.

    Parameters
    ----------
    make : callable
        Makes the runs of some seeds, which can be trained and whose state can be saved.
    seeds : Seeds
        One for each run.
    identity : dict
        What must not change when a fit goes on: JSON-able parameters and a fingerprint of the data.
    listener : Listener
        Hears what happens.

    Attributes
    ----------
    runs : Runs or None
        None before :meth:`run` has made them.
    """

    def __init__(
        self, make: Callable[[Sequence[int]], R], seeds: Seeds, identity: dict[str, Any], listener: Listener
    ) -> None:
        self._make, self._identity, self._seeds, self._listener = make, identity, seeds, listener
        self.runs: R | None = None
        listener.begin(seeds.random_states)

    def run(self, folder: Folder | None, save_every: float) -> None:
        """Fit to the end, from the beginning or from the state that the folder holds; or one that is opened only now.

        Where seeds are not fixed, those of a state found there are taken instead. An interrupt (Ctrl-C) is passed on,
        and the listener may end the fit; with a folder, once the state is saved there.
        """
        keep_memory()
        with ExitStack() as stack:
            states = None
            if folder is not None:
                states = folder() if callable(folder) else stack.enter_context(run_folder(folder, save_every))
            interrupted = never if states is None else stack.enter_context(_interrupts())
            self.runs = runs = self._begin(states)
            with self._listener.showing():
                for told in runs.events():
                    if told is not None:
                        self._listener.hear(*told)
                    enough = not self._listener.wants_more and (states is None or told is None)  # saved in a pause
                    if states is not None and told is None and (interrupted() or enough or states.due()):
                        self._try_to_save(runs, states)
                        if interrupted():
                            raise KeyboardInterrupt
                    if enough:
                        return
            if states is not None:
                self._try_to_save(runs, states)
            if interrupted():  # after the last pause: what was fitted is whole, but the caller wants to stop
                raise KeyboardInterrupt

    def _begin(self, states: StateFolder | None) -> R:
        """The runs, where they were when their state was saved."""
        if states is None:
            return self._make(self._seeds.numbers)
        saved = states.load()
        if saved is not None:
            self._check_same(saved)
        runs = self._make(self._seeds.numbers)
        if saved is not None:
            self._restore(runs, saved)
        self._save(runs, states)  # a folder that cannot be written is found out now, not after hours
        return runs

    def _check_same(self, saved: State) -> None:
        """Raise unless a state is of this run; take its seeds if none were asked for."""
        seeds, identity = saved.about.get("seeds"), saved.about.get("identity")
        if not isinstance(identity, dict) or not isinstance(seeds, list):
            raise ModelFileError(f"{saved.path} does not say which run it is the state of")
        n = len(self._seeds.numbers)
        if not self._seeds.fixed and len(seeds) == n and all(type(seed) is int for seed in seeds):
            self._seeds = replace(self._seeds, numbers=tuple(seeds))
        if isinstance(identity.get("parameters"), dict) and "n_leaves" in identity["parameters"]:
            identity["parameters"] = PAPER | identity["parameters"]  # earlier versions had no other way
        now = self._identity | {"seeds (drawn from random_state)": list(self._seeds.numbers)}
        plans = identity.pop("plan", None), now.pop("plan", None)
        kind, ours = identity.get("model"), now.get("model")
        if kind is None:  # earlier versions did not tell
            now.pop("model", None)
        elif kind != ours:  # each has parameters of its own: to list them would help nobody
            raise ChangedRunError(
                f"the run in {saved.path.parent} is of another model, {kind}, and this is {ours}: give another folder, "
                "or remove the states in this one to start anew"
            )
        check_same(identity | {"seeds (drawn from random_state)": seeds}, now, saved.path.parent)
        if plans[0] is not None:  # earlier versions did not tell; parameters make plans, so these are compared first
            check_same({"plan": plans[0]}, {"plan": plans[1]}, saved.path.parent)

    def _restore(self, runs: R, saved: State) -> None:
        try:
            runs.restore(saved.about["grove"], saved.tensors)
            self._listener.restore(saved.about)
        except (KeyError, IndexError, TypeError, ValueError, RuntimeError, AttributeError, OverflowError) as error:
            raise ModelFileError(f"{saved.path} does not hold together as a state of this run: {error}") from error
        log.info("going on from %s", saved.path)

    def _try_to_save(self, runs: R, states: StateFolder) -> None:
        """Save; where that fails, training is worth more than its state, and goes on."""
        try:
            self._save(runs, states)
        except OSError as error:
            log.warning("the state of training was not saved: %s", error)

    def _save(self, runs: R, states: StateFolder) -> None:
        about, tensors = runs.state()
        whole = {"identity": self._identity, "seeds": list(self._seeds.numbers), "grove": about}
        states.save(whole | self._listener.state(), tensors)


def run_folder(path: str | os.PathLike[str], save_every: float) -> StateFolder:
    """A folder for the state of a fit."""
    return StateFolder(path, Every(save_every, SHARE))


def never() -> bool:
    """Nobody has pressed Ctrl-C."""
    return False


@contextmanager
def _interrupts() -> Iterator[Callable[[], bool]]:
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
