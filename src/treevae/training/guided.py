"""A tree from a guide: cheap clusterings give trees at once, the model learns them and then goes its own way.

first    every guide's tree is trained at once, side by side: at first by its labels too, then by the loss alone;
         the tree that says most of where a sample's neighbours are is kept
split    only where the guide has fewer leaves than asked for: it is grown further, as in ``growing.py``
final    the tree is trained to the end; leaves that win no sample are pruned
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace

import torch

from ..guides.guide import Guide
from ..guides.told import agreement
from ..model.module import TreeVAEModule
from .choosing import Choices, compare
from .events import CandidatesCompared, Event, GuideMade, TreeChanged
from .growing import FINAL, FIRST, SPLIT, Splits
from .growth import Growth
from .objectives import ElboObjective
from .plan import Plan, Stage
from .samples import Samples, over


def by_agreement(
    objective: ElboObjective, samples: Samples, stage: Stage, leaf: int | None, seed: int, plan: Plan
) -> CandidatesCompared:
    """The tree whose leaves say most of the leaves of a sample's neighbours; without neighbours that of least loss."""
    compared = compare(objective, samples, stage, leaf, seed, plan)
    network = objective.network
    if samples.neighbours is None or not isinstance(network, TreeVAEModule):
        return replace(compared, chosen=min(range(len(compared.losses)), key=compared.losses.__getitem__))
    reach, told = over(network, samples, network.reach), []
    for part in reach.split([len(tree.leaves) for tree in network.nodes.layout.trees], dim=1):
        told.append(agreement(part, part, samples.neighbours))
    return replace(compared, agreement=tuple(told), chosen=max(range(len(told)), key=told.__getitem__))


@dataclass(frozen=True)
class Guided:
    """A tree that begins with what a guide says."""

    guides: Callable[[int], Iterable[Guide]]  # by a seed
    n_guides: int
    choices: Choices = field(default_factory=lambda: Choices(compare=by_agreement))
    tree: None = None

    def stages(self, plan: Plan) -> Mapping[str, Stage]:
        """The plan's."""
        return plan.stages

    def first_leaves(self, plan: Plan) -> int:
        """Those of all guides, if each has as many as asked for."""
        return plan.n_leaves * self.n_guides

    def choose(self, run: Growth, samples: Samples) -> Iterator[Event]:
        """Say what the run wants to be trained next, or end it."""
        if run.phase != FIRST:
            yield from self._splits.choose(run, samples)
            return
        if not run.planted:
            guides = []
            for guide in self.guides(run.draw_seed() % 2**31):
                guides.append(guide)
                yield GuideMade(guide.name, len(guide.tree.leaves), float((guide.labels >= 0).mean()))
            run.plant([guide.tree for guide in guides], torch.stack([torch.tensor(guide.labels) for guide in guides]))
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
        return Splits(Choices(self.choices.best_leaf, weigh=self.choices.weigh))
