"""Growing a tree (section 2.5): first tree, choose a leaf, train its subtree, attach, …, prune, fine-tune.

A :class:`Growth` is one run: it knows what is to be trained next, and takes in what was. ``grove.py`` trains it.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from ..model.module import TreeVAEModule
from ..model.networks import Architecture
from ..model.subtree import Subtree
from ..tree import Tree
from .choosing import best_leaf, compare, prune, splittable
from .events import Event, LeafChosen, TreeChanged
from .loop import below
from .objectives import ElboObjective, SubtreeOnSubset, WholeTree
from .plan import Contrast, Plan, Stage, Work
from .samples import Samples
from .views import Views

State = tuple[dict[str, Any], dict[str, Tensor]]  # JSON-able values, and tensors


@dataclass(frozen=True)
class Task:
    """What a run wants to be trained next: its whole tree, or candidates for the children of a leaf."""

    stage: Stage
    seed: int
    leaf: int | None = None
    depth: int = 0  # of the leaf
    rows: Tensor | None = None  # the samples to train the children on

    def about(self) -> dict[str, Any]:
        """All but the rows, as JSON-able values."""
        return {"stage": self.stage.name, "seed": self.seed, "leaf": self.leaf, "depth": self.depth}

    @classmethod
    def of(cls, about: dict[str, Any], plan: Plan, rows: Tensor | None) -> Task:
        """The task that :meth:`about` describes."""
        stages = {
            stage.name: stage for stage in (plan.first, plan.subtree, plan.whole, plan.final) if stage is not None
        }
        return cls(stages[about["stage"]], int(about["seed"]), about["leaf"], int(about["depth"]), rows)


class Growth:
    """One run: a tree while it grows, between its stages.

    ``phase`` says what comes next: the "first" tree, a "split", the "whole" tree after some splits, the "final" stage,
    or nothing: "done". A given ``tree`` is trained as it is: the first and the final stage, no growing, no pruning.
    """

    def __init__(
        self, arch: Architecture, plan: Plan, seed: int, device: torch.device, tree: Tree | None = None
    ) -> None:
        self.plan, self._fixed = plan, tree is not None
        self.random = torch.Generator().manual_seed(seed)  # on the CPU, so that every device starts alike
        self.phase, self.splits, self.task = "first", 0, None
        self.work = Work(plan, tree)
        candidates = 1 if self._fixed else plan.n_init
        trees = [tree if tree is not None else Tree().split(0)] * candidates
        self.module = TreeVAEModule(arch, trees, self.random, candidates).to(device)

    task: Task | None

    @property
    def grown(self) -> bool:
        """Whether the module is a whole model: one tree, trained at least once."""
        return self.phase != "first"

    def choose(self, samples: Samples) -> Iterator[Event]:
        """Decide what is to be trained next; nothing if the run is done."""
        if self.phase == "first":
            self.task = Task(self.plan.first, self._seed())
        elif self.phase == "split":
            yield from self._choose_split(samples)
        elif self.phase == "whole":
            assert self.plan.whole is not None
            self.task = Task(self.plan.whole, self._seed())
        if self.phase == "final":
            if self.plan.final is None:
                yield from self._end(samples)
            else:
                self.task = Task(self.plan.final, self._seed())

    def _choose_split(self, samples: Samples) -> Iterator[Event]:
        """Choose the leaf to split, or end the growing."""
        n_effective, leaves = splittable(self.module, samples, self.plan)
        seed = self._seed()
        if n_effective >= self.plan.n_leaves or not leaves:
            yield from prune(self.module, samples, self.plan.min_leaf)
            self.phase = "final"
            return
        leaf = best_leaf(self.module, samples, leaves, self.plan.leaf_rule, seed)
        yield LeafChosen(leaf, len(leaves[leaf]), len(self.module.tree.leaves) - n_effective)
        self.task = Task(self.plan.subtree, self._seed(), leaf, self.module.tree.depth(leaf), leaves[leaf])

    def network(self, task: Task, generator: torch.Generator) -> TreeVAEModule | Subtree:
        """What a task trains: the run's module itself, or a new subtree."""
        if task.leaf is None:
            return self.module
        device, d_dims = next(self.module.parameters()).device, self.module.bottom_up.d_dims
        return Subtree.new(self.module.arch, d_dims, task.depth, self.plan.n_init, generator).to(device)

    def finish(self, network: TreeVAEModule | Subtree, samples: Samples) -> Iterator[Event]:
        """Take in what was trained."""
        task, self.task, chosen = self.task, None, 0
        assert task is not None
        if self.plan.n_init > 1 and len(network.nodes.layout.trees) > 1:
            objective = objective_of([self], [task], network, samples)
            compared = compare(objective, samples, task.stage, task.leaf, task.seed, self.plan)
            yield compared
            chosen = compared.chosen
        if isinstance(network, Subtree):
            assert task.leaf is not None
            self.module.attach(task.leaf, network, chosen)
            self.splits += 1
        elif len(network.nodes.layout.trees) > 1:
            self.module = TreeVAEModule.of([(network, chosen)])
        else:
            self.module = network
        if self.phase == "final":
            yield from self._end(samples)
            return
        if self.phase != "whole":
            yield TreeChanged(self.module, self.module.tree)
        self.phase = self._next_phase()

    def _next_phase(self) -> str:
        if self._fixed:
            return "final"
        if self.phase == "split" and self.plan.whole is not None and self.splits % self.plan.whole_every == 0:
            return "whole"
        return "split"

    def _end(self, samples: Samples) -> Iterator[Event]:
        if not self._fixed:
            yield from prune(self.module, samples, 1 / len(samples))  # every leaf of the finished tree wins a sample
        self.phase = "done"
        self.module.eval()
        yield TreeChanged(self.module, self.module.tree)

    def _seed(self) -> int:
        return int(torch.randint(2**62, (1,), generator=self.random))

    # -- saving -------------------------------------------------------------------------------------------------

    def state(self, with_weights: bool) -> State:
        """What :meth:`restore` needs; the weights may be known from elsewhere."""
        about = {
            "phase": self.phase,
            "splits": self.splits,
            "work": self.work.done,
            "trees": [tree.to_json() for tree in self.module.nodes.layout.trees],
        }
        tensors = {"random": self.random.get_state()}
        if with_weights:
            tensors |= {f"module.{name}": value for name, value in self.module.state_dict().items()}
        return about, tensors

    def restore(self, about: dict[str, Any], tensors: dict[str, Tensor]) -> None:
        """Stand where another run of the same plan stood."""
        self.phase, self.splits, self.work.done = about["phase"], int(about["splits"]), float(about["work"])
        trees, weights = [Tree.from_json(text) for text in about["trees"]], below("module.", tensors)
        device = next(self.module.parameters()).device
        self.module = TreeVAEModule(self.module.arch, trees, torch.Generator(), len(trees)).to(device)
        if weights:  # else they are known from elsewhere
            self.module.load_state_dict(weights)
        self.random.set_state(tensors["random"])


def objective_of(
    runs: Sequence[Growth],
    tasks: Sequence[Task],
    network: TreeVAEModule | Subtree,
    samples: Samples,
    views: Views | None = None,
    contrast: Contrast | None = None,
) -> ElboObjective:
    """What the runs' tasks minimise with a network that trains them all."""
    if isinstance(network, TreeVAEModule):
        return WholeTree(network, samples, views, contrast)
    leaves = [task.leaf for task in tasks if task.leaf is not None]
    rows = [task.rows for task in tasks if task.rows is not None]
    return SubtreeOnSubset([run.module for run in runs], leaves, network, samples, rows, views, contrast)
