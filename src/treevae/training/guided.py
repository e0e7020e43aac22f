"""A tree from a guide: a cheap clustering gives the tree at once, the model learns it and then goes its own way.

Before training the guides are compared: that whose groups tell most of the groups of a sample's neighbours is chosen.

first    its tree, as a whole, is trained by its labels too
split    only where the guide has fewer leaves than asked for: it is grown further, as in ``growing.py``
final    the tree is trained to the end, by the loss alone; leaves that win no sample are pruned
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

import torch

from ..guides.guide import Guide
from ..guides.told import worth
from .choosing import Choices
from .events import Event, GuideMade, TreeChanged
from .growing import FINAL, FIRST, SPLIT, Splits
from .growth import Growth
from .plan import Plan, Stage
from .samples import Samples


@dataclass(frozen=True)
class Guided:
    """A tree that begins with what a guide says."""

    guides: Callable[[int], Iterable[tuple[Guide, float]]]  # by a seed, each with what it says of neighbours, in nats
    choices: Choices = field(default_factory=Choices)
    tree: None = None

    def stages(self, plan: Plan) -> Mapping[str, Stage]:
        """The plan's."""
        return plan.stages

    def choose(self, run: Growth, samples: Samples) -> Iterator[Event]:
        """Say what the run wants to be trained next, or end it."""
        if run.phase != FIRST:
            yield from self._splits.choose(run, samples)
            return
        if not run.planted:
            best, most = None, -math.inf
            for guide, said in self.guides(run.draw_seed() % 2**31):
                yield GuideMade(guide.name, len(guide.tree.leaves), float((guide.labels >= 0).mean()), said)
                if worth(guide.name, said) > most:
                    best, most = guide, worth(guide.name, said)
            assert best is not None
            run.plant([best.tree], torch.tensor(best.labels)[None])
        run.want(run.plan.first)

    def go_on(self, run: Growth, samples: Samples) -> Iterator[Event]:
        """The tree is trained to the end, or first grown further."""
        if run.phase != FIRST:
            yield from self._splits.go_on(run, samples)
            return
        grows = run.plan.subtree is not None and len(run.module.tree.leaves) < run.plan.n_leaves
        run.phase = SPLIT if grows else FINAL
        yield TreeChanged(run.module.tree)

    @property
    def _splits(self) -> Splits:
        return Splits(self.choices)


def taken(history: Sequence[Event]) -> GuideMade | None:
    """The guide that a tree began with, if it began with one."""
    made = [event for event in history if isinstance(event, GuideMade)]
    return max(made, key=lambda event: worth(event.name, event.agreement), default=None)
