"""Growing a tree (section 2.5 of the paper), phase by phase.

    first    train the root with two leaves
    split    choose a leaf and train its two children, all else frozen; they become part of the tree
    whole    after every third split, train the whole tree
             … until there are as many leaves as asked for; then small leaves are pruned, and
    final    the whole tree is trained once more; leaves that win no sample are pruned

Where candidates compete, the first tree and each pair of children are trained several times side by side, and one is
kept (``choosing.py``). The stages themselves, how long and with which weights, are the plan's (``plan.py``).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, ClassVar, Protocol

from ..tree import Tree
from .choosing import Choices, prune, splittable
from .events import Event, LeafChosen, TreeChanged
from .plan import Plan, Stage
from .samples import Samples

if TYPE_CHECKING:
    from .growth import Growth

FIRST, SPLIT, WHOLE, FINAL, DONE = "first", "split", "whole", "final", "done"


class Start(Protocol):
    """How a run comes to its tree: what is trained next, and what follows from it."""

    @property
    def choices(self) -> Choices:
        """What an experiment may have exchanged."""

    @property
    def tree(self) -> Tree | None:
        """The tree, where it is known before."""

    def stages(self, plan: Plan) -> Mapping[str, Stage]:
        """All that it may want to be trained, by name: a state tells the name alone."""

    def choose(self, run: Growth, samples: Samples) -> Iterator[Event]:
        """Say what the run wants to be trained next, or end it."""

    def go_on(self, run: Growth, samples: Samples) -> Iterator[Event]:
        """What follows once the module has what was trained."""


@dataclass(frozen=True)
class Splits:
    """The paper's way: one split after the other."""

    choices: Choices = field(default_factory=Choices)
    tree: None = None

    def stages(self, plan: Plan) -> Mapping[str, Stage]:
        """The plan's."""
        return plan.stages

    def choose(self, run: Growth, samples: Samples) -> Iterator[Event]:
        """Say what the run wants to be trained next, or end it."""
        plan = run.plan
        if run.phase == FIRST:
            if not run.planted:
                run.plant([Tree().split(0)] * plan.n_init)
            run.want(plan.first)
        elif run.phase == SPLIT:
            n_effective, leaves = splittable(run.module, samples, plan)
            seed = run.draw_seed()
            if n_effective >= plan.n_leaves or not leaves or plan.subtree is None:
                yield from prune(run.module, samples, plan.min_leaf)
                run.phase = FINAL
            else:
                leaf = self.choices.leaf(plan)(run.module, samples, leaves, seed)
                yield LeafChosen(leaf, len(leaves[leaf]), len(run.module.tree.leaves) - n_effective)
                run.want(plan.subtree, leaf, leaves[leaf])
        elif run.phase == WHOLE:
            assert plan.whole is not None
            run.want(plan.whole)
        if run.phase == FINAL:
            if plan.final is None:
                yield from self._end(run, samples)
            else:
                run.want(plan.final)

    def go_on(self, run: Growth, samples: Samples) -> Iterator[Event]:
        """The phase that follows; the whole tree's turn comes after every so many splits."""
        if run.phase == FINAL:
            yield from self._end(run, samples)
            return
        before, whole = run.phase, run.plan.whole
        run.phase = WHOLE if before == SPLIT and whole is not None and run.splits % run.plan.whole_every == 0 else SPLIT
        if before != WHOLE:
            yield TreeChanged(run.module.tree)

    def _end(self, run: Growth, samples: Samples) -> Iterator[Event]:
        yield from prune(run.module, samples, 1 / len(samples))  # every leaf of the finished tree wins a sample
        run.end()
        yield TreeChanged(run.module.tree)


@dataclass(frozen=True)
class Given:
    """A tree that is trained as it is: the first and the final stage, no growing, no pruning."""

    tree: Tree
    choices: ClassVar[Choices] = Choices()  # there is nothing to choose

    def stages(self, plan: Plan) -> Mapping[str, Stage]:
        """The plan's."""
        return plan.stages

    def choose(self, run: Growth, samples: Samples) -> Iterator[Event]:
        """Say what the run wants to be trained next, or end it."""
        if not run.planted:
            run.plant([self.tree])
        stage = run.plan.first if run.phase == FIRST else run.plan.final
        if stage is not None:
            run.want(stage)
        else:
            yield from self._end(run)

    def go_on(self, run: Growth, samples: Samples) -> Iterator[Event]:
        """The first stage is followed by the final one."""
        if run.phase == FINAL:
            yield from self._end(run)
            return
        run.phase = FINAL
        yield TreeChanged(run.module.tree)

    def _end(self, run: Growth) -> Iterator[Event]:
        run.end()
        yield TreeChanged(run.module.tree)
