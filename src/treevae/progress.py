"""A progress bar for events: stage, epoch, ELBO terms and time left. Quiet where nobody looks."""

from __future__ import annotations

from types import TracebackType

from rich.console import Console
from rich.progress import BarColumn, TextColumn, TimeElapsedColumn, TimeRemainingColumn
from rich.progress import Progress as Bar

from .training.events import CandidatesCompared, EpochEnded, Event, LeafChosen, LeafPruned, TreeChanged


class Progress:
    """Shows events on the terminal; shows nothing if not wanted or if standard error is not a terminal."""

    def __init__(self, wanted: bool) -> None:
        self._console = Console(stderr=True)
        self._bar = Bar(
            TextColumn("[bold]{task.description}"),
            BarColumn(bar_width=20),
            TextColumn("{task.percentage:3.0f}%"),
            TimeElapsedColumn(),
            TextColumn("left"),
            TimeRemainingColumn(elapsed_when_finished=False),
            TextColumn("{task.fields[terms]}"),
            console=self._console,
            disable=not (wanted and (self._console.is_terminal or self._console.is_jupyter)),
        )
        self._task = self._bar.add_task("starting", total=1.0, terms="")

    def __enter__(self) -> Progress:
        self._bar.start()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, tb: TracebackType | None) -> None:
        self._bar.stop()

    def say(self, text: str) -> None:
        """Print a line that stays, if anything is shown."""
        if not self._bar.disable:
            self._console.print(text, highlight=False)

    def show(self, event: Event) -> None:
        """Show an event."""
        match event:
            case EpochEnded():
                where = event.stage if event.leaf is None else f"{event.stage} of node {event.leaf}"
                kl = event.kl_root + event.kl_nodes + event.kl_decisions
                terms = f"rec {event.reconstruction:.1f}  KL {kl:.1f} × {event.kl_weight:.3f}"
                description = f"{where}, epoch {event.epoch}/{event.epochs}"
                self._bar.update(self._task, completed=event.progress, description=description, terms=terms)
            case LeafChosen():
                self.say(f"  splitting node {event.leaf}, {event.samples} samples")
            case CandidatesCompared():
                self.say(f"  kept candidate {event.chosen + 1} of {len(event.losses)}")
            case LeafPruned():
                self.say(f"  pruned node {event.leaf}, which won {event.share:.1%} of the samples")
            case TreeChanged():
                self.say(f"  {len(event.tree.leaves)} leaves")
