"""Events as they happen: a bar with stage, epoch, ELBO terms and time left; lines where there is no terminal."""

from __future__ import annotations

import time
from datetime import timedelta
from types import TracebackType

from rich.console import Console
from rich.progress import BarColumn, TextColumn, TimeElapsedColumn, TimeRemainingColumn
from rich.progress import Progress as Bar

from .training.events import (
    CandidatesCompared,
    EmbeddingEpochEnded,
    EpochEnded,
    Event,
    GuideMade,
    LeafChosen,
    LeafDied,
    LeafPruned,
    TreeChanged,
)

LINES = 20  # in a log, over the whole of the work


class Progress:
    """Shows events on standard error, if wanted: by a bar in a terminal or a notebook, by lines in a log."""

    def __init__(self, wanted: bool, n_runs: int = 1) -> None:
        self._wanted, self._several = wanted, n_runs > 1
        self._done: dict[int, float] = {}  # by run; one that has not told yet is as far as the others
        self._console = Console(stderr=True)
        self._live = self._console.is_terminal or self._console.is_jupyter
        self._bar = Bar(
            TextColumn("[bold]{task.description}"),
            BarColumn(bar_width=20),
            TextColumn("{task.percentage:3.0f}%"),
            TimeElapsedColumn(),
            TextColumn("left"),
            TimeRemainingColumn(elapsed_when_finished=False),
            TextColumn("{task.fields[terms]}"),
            console=self._console,
            disable=not (wanted and self._live),
        )
        self._task = self._bar.add_task("starting", total=1.0, terms="")
        self._first: tuple[float, float] | None = None  # when something was done first, and how much
        self._lines = 0  # of the log, as many as the share that is done asks for

    def __enter__(self) -> Progress:
        self._bar.start()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, tb: TracebackType | None) -> None:
        if kind is None and self._bar.tasks[self._task].completed:  # all is done when the work ends, not before
            self.at(1.0, "done", "")
        self._bar.stop()

    def say(self, text: str) -> None:
        """Print a line that stays, if anything is shown."""
        if self._wanted:
            self._console.print(text, highlight=False, soft_wrap=not self._live)

    def at(self, done: float, what: str, terms: str) -> None:
        """Show which share of the work is done, what is being done and what the loss is made of."""
        self._bar.update(self._task, completed=done, description=what, terms=terms)
        if self._wanted and not self._live:
            self._log(done, what, terms)

    def _log(self, done: float, what: str, terms: str) -> None:
        """The same as a line, whenever another part of the work is done."""
        now = time.monotonic()
        if self._first is None:  # a sign of life; a resumed fit has done some before
            self._first, self._lines = (now, done), int(done * LINES)
            self.say(f"{done:4.0%} done so far: {what}, {terms}")
        elif int(done * LINES) > self._lines:
            self._lines = int(done * LINES)
            seconds, share = now - self._first[0], done - self._first[1]
            left = timedelta(seconds=round(seconds * (1 - done) / share))
            self.say(f"{done:4.0%} done, about {left} left: {what}, {terms}" if done < 1 else "100% done")

    def show(self, event: Event, run: int = 0) -> None:
        """Show an event of a run."""
        who = f"run {run}: " if self._several else "  "
        match event:
            case EpochEnded() | EmbeddingEpochEnded():
                self._done[run] = event.progress
                leaf = event.leaf if isinstance(event, EpochEnded) else None
                where = event.stage if leaf is None or self._several else f"{event.stage} of node {leaf}"
                description = f"{where}, epoch {event.epoch}/{event.epochs}"
                self.at(sum(self._done.values()) / len(self._done), description, event.summary)
            case GuideMade():
                known = f" for {event.known:.0%} of the samples" if event.known < 1 else ""
                self.say(f"{who}guide {event.name!r}: {event.leaves} leaves{known}, {event.agreement:.2f} nats")
            case LeafChosen():
                small = f"; leaves with too few samples to count: {event.uncounted}"
                why = small if event.uncounted else ""  # more leaves than asked for would puzzle without
                self.say(f"{who}splitting node {event.leaf}, {event.samples} samples{why}")
            case CandidatesCompared(kept=()):
                self.say(f"{who}kept candidate {event.chosen + 1} of {len(event.losses)}")
            case CandidatesCompared():
                self.say(f"{who}kept {len(event.kept)} of {len(event.losses)} candidates")
            case LeafPruned():
                self.say(f"{who}pruned node {event.leaf}, which won {event.share:.1%} of the samples")
            case LeafDied():
                self.say(f"{who}pruned node {event.leaf}, which got too few samples")
            case TreeChanged() if len(event.tree.leaves) > 1:
                self.say(f"{who}leaves: {len(event.tree.leaves)}")
