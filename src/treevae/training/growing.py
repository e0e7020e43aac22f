"""Growing a tree (section 2.5): first tree, choose a leaf, train its subtree, attach, …, prune, fine-tune.

A :class:`Growth` is one run: it knows what is to be trained next, and takes in what was. ``grove.py`` trains it.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor

from ..model.module import TreeVAEModule
from ..model.networks import Architecture
from ..model.subtree import Subtree
from ..tree import Tree
from .choosing import best_leaf, compare, prune, removal_costs, split_gain, splittable, tree_loss
from .engine import mixed
from .events import Event, LeafChosen, SplitMended, SplitTried, TreeChanged
from .loop import below
from .objectives import ElboObjective, SubtreeOnSubset, WholeTree
from .plan import Contrast, Plan, Stage, Work
from .samples import Samples
from .views import Views

HELD_OUT = -3  # what a task's seed is mixed with to draw the samples held out
SETTLED = 2  # stages of whole trees that a repair takes: without the leaf that is removed, and with the new ones
EVALUATION_SEED = 0  # of losses that are set side by side: the same noise for both
State = tuple[dict[str, Any], dict[str, Tensor]]  # JSON-able values, and tensors


@dataclass(frozen=True)
class Task:
    """What a run wants to be trained next: its whole tree, or candidates for the children of a leaf."""

    stage: Stage
    seed: int
    leaf: int | None = None
    depth: int = 0  # of the leaf
    rows: Tensor | None = None  # the samples to train the children on
    held_out: float = 0.0  # the share of the samples that candidates are compared on, and not trained on

    def parts(self, n: int) -> tuple[Tensor | None, Tensor | None]:
        """Out of n samples those to train on, and those to compare candidates on; None is all of them."""
        if self.held_out == 0:
            return self.rows, self.rows
        rows = torch.arange(n) if self.rows is None else self.rows
        order = torch.randperm(len(rows), generator=torch.Generator().manual_seed(mixed(self.seed, HELD_OUT)))
        n_held = max(1, round(self.held_out * len(rows)))
        held, kept = order[:n_held].sort().values.to(rows.device), order[n_held:].sort().values.to(rows.device)
        return rows[kept], rows[held]

    def about(self) -> dict[str, Any]:
        """All but the rows, as JSON-able values."""
        return {
            "stage": self.stage.name,
            "seed": self.seed,
            "leaf": self.leaf,
            "depth": self.depth,
            "held_out": self.held_out,
        }

    @classmethod
    def of(cls, about: dict[str, Any], plan: Plan, rows: Tensor | None) -> Task:
        """The task that :meth:`about` describes."""
        stages = {
            stage.name: stage
            for stage in (plan.first, plan.subtree, plan.trial, plan.whole, plan.final)
            if stage is not None
        }
        seed, depth, held_out = int(about["seed"]), int(about["depth"]), float(about["held_out"])
        return cls(stages[about["stage"]], seed, about["leaf"], depth, rows, held_out)


@dataclass(frozen=True)
class Mend:
    """A repair that must prove itself. It settles twice, and then the tree as it was does so, for a fair comparison."""

    removed: int
    split: int | None  # None until the tree without the removed leaf has settled
    rival: TreeVAEModule  # the tree as it was; while that is trained, the repaired one
    loss: float  # the rival's
    rounds: int = 0  # for which the tree as it was must still be trained


class Growth:
    """One run: a tree while it grows, between its stages.

    ``phase`` says what comes next: the "first" tree, a "split", the "whole" tree after some splits; then, where there
    are repairs, to "mend": two sibling leaves are merged, and a leaf is split; after each of the two the whole tree
    must "settle"; the "final" stage, or nothing: "done". A given ``tree`` is trained as it is: the first and the final
    stage, no growing, no pruning.
    """

    def __init__(
        self, arch: Architecture, plan: Plan, seed: int, device: torch.device, tree: Tree | None = None
    ) -> None:
        self.plan, self._fixed = plan, tree is not None
        self.random = torch.Generator().manual_seed(seed)  # on the CPU, so that every device starts alike
        self.phase, self.splits, self.repairs, self.task = "first", 0, 0, None
        self.gains: dict[int, float] = {}  # what a split of a leaf would bring, of those tried since all was trained
        self.mend: Mend | None = None
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
            self.task = Task(self.plan.first, self._seed(), held_out=self._held_out)
        elif self.phase == "split":
            yield from self._choose_split(samples)
        elif self.phase == "mend":
            yield from self._choose_mend(samples)
        if self.phase in ("whole", "settle"):
            assert self.plan.whole is not None
            self.task = Task(self.plan.whole, self._seed())
        if self.phase == "final":
            if self.plan.final is None:
                yield from self._end(samples)
            else:
                self.task = Task(self.plan.final, self._seed())

    def _choose_split(self, samples: Samples) -> Iterator[Event]:
        """Choose the leaf to split, or try what a split would gain; or end the growing."""
        n_effective, leaves = splittable(self.module, samples, self.plan)
        seed = self._seed()
        if n_effective >= self.plan.n_leaves or not leaves:
            yield from prune(self.module, samples, self.plan.min_leaf)
            self.phase = "settle" if self.plan.repairs > 0 and self.plan.whole is not None else "final"
        elif self.plan.leaf_rule != "gain":
            yield from self._split(best_leaf(self.module, samples, leaves, self.plan.leaf_rule, seed), leaves)
        elif not self._try_untried(leaves):
            yield from self._split(max(leaves, key=self.gains.__getitem__), leaves)

    def _choose_mend(self, samples: Samples) -> Iterator[Event]:
        """Merge two sibling leaves; once the tree has settled, split a leaf; or end the repairs."""
        if self.mend is not None:
            yield from self._split_again(samples, self.mend)
        elif self.repairs < self.plan.repairs:
            yield from self._merge(samples)
        else:
            self.phase = "final"

    def _merge(self, samples: Samples) -> Iterator[Event]:
        """Open the worst split: remove the leaf that costs least, whose sibling takes its samples."""
        loss = tree_loss(self.module, samples, self._kl_weight, EVALUATION_SEED)
        costs = removal_costs(self.module, samples, loss, self._kl_weight, EVALUATION_SEED)
        if not costs:
            self.phase = "final"
            return
        removed = min(costs, key=costs.__getitem__)
        self.mend = Mend(removed, None, TreeVAEModule.of([(self.module, 0)]), loss)
        self.module.prune(removed)
        self.phase = "settle"
        yield TreeChanged(self.module, self.module.tree)

    def _split_again(self, samples: Samples, mend: Mend) -> Iterator[Event]:
        """Split the leaf that gains most, which may be the one that was merged."""
        _, leaves = splittable(self.module, samples, self.plan)
        if not leaves:
            self.module, self.mend, self.phase = mend.rival, None, "final"
            yield TreeChanged(self.module, self.module.tree)
        elif not self._try_untried(leaves):
            best = max(leaves, key=self.gains.__getitem__)
            self.mend = replace(mend, split=best)
            yield from self._split(best, leaves)

    def _try_untried(self, leaves: Mapping[int, Tensor]) -> bool:
        """Whether a split of a leaf must be tried first; that is then the task."""
        for leaf, rows in leaves.items():
            if leaf not in self.gains:
                depth = self.module.tree.depth(leaf)
                self.task = Task(self.plan.trial, self._seed(), leaf, depth, rows, self._held_out)
                return True
        return False

    def _split(self, leaf: int, leaves: Mapping[int, Tensor]) -> Iterator[Event]:
        rows, depth = leaves[leaf], self.module.tree.depth(leaf)
        yield LeafChosen(leaf, len(rows))
        self.task = Task(self.plan.subtree, self._seed(), leaf, depth, rows, self._held_out)

    @property
    def _held_out(self) -> float:
        several = self.plan.n_init > 1 and not self._fixed
        return self.plan.held_out if several and self.plan.candidate_rule == "held_out" else 0.0

    @property
    def _kl_weight(self) -> float:
        """At which gains, costs and losses are set side by side: that of the last epoch of a whole tree that grows."""
        stage = self.plan.whole or self.plan.trial
        return stage.kl_weight(stage.epochs - 1)

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
        if task.stage.name == "trial":
            yield self._tried(task, network, samples)
            return
        if self.plan.n_init > 1 and len(network.nodes.layout.trees) > 1:
            objective = objective_of([self], [task], network, samples, compare=True)
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
        if task.leaf is None:
            self.gains = {}
        if self.phase == "final":
            yield from self._end(samples)
            return
        if self.phase == "settle":
            yield from self._judge(samples)
        elif self.phase != "whole":
            yield TreeChanged(self.module, self.module.tree)
        self.phase = self._next_phase()

    def _next_phase(self) -> str:
        if self._fixed:
            return "final"
        if self.phase == "split" and self.plan.whole is not None and self.splits % self.plan.whole_every == 0:
            return "whole"
        if self.phase == "mend" or (self.mend is not None and self.mend.rounds > 0):
            return "settle"
        return "mend" if self.phase == "settle" else "split"

    def _tried(self, task: Task, network: TreeVAEModule | Subtree, samples: Samples) -> SplitTried:
        """Keep what a split would gain on all its samples, by the candidate that the plan's rule chooses."""
        assert task.leaf is not None
        chosen = 0
        if self.plan.n_init > 1:
            judge = objective_of([self], [task], network, samples, compare=True)
            chosen = compare(judge, samples, task.stage, task.leaf, task.seed, self.plan).chosen
        objective = objective_of([self], [replace(task, held_out=0.0)], network, samples)
        assert isinstance(objective, SubtreeOnSubset)
        self.gains[task.leaf] = split_gain(objective, samples, self._kl_weight, task.seed, chosen)
        return SplitTried(task.leaf, self.gains[task.leaf])

    def _judge(self, samples: Samples) -> Iterator[Event]:
        """Keep a repair that has settled if its loss is lower than that of the tree as it was, trained for as long.

        Else undo it, and make no more.
        """
        mend = self.mend
        if mend is None or mend.split is None:
            return
        if mend.rounds > 1:
            self.mend = replace(mend, rounds=mend.rounds - 1)
            return
        loss = tree_loss(self.module, samples, self._kl_weight, EVALUATION_SEED)
        rival_is_better = mend.loss <= loss
        repaired_is_rival = mend.rounds == 1
        if not repaired_is_rival and not rival_is_better:  # perhaps by its training alone
            self.module, self.mend = mend.rival, replace(mend, rival=self.module, loss=loss, rounds=SETTLED)
        else:
            kept = repaired_is_rival and rival_is_better
            self.module = mend.rival if rival_is_better else self.module
            self.mend, self.repairs = None, self.repairs + 1 if kept else self.plan.repairs
            before, after = (loss, mend.loss) if repaired_is_rival else (mend.loss, loss)
            yield SplitMended(mend.removed, mend.split, before, after, kept)
        yield TreeChanged(self.module, self.module.tree)

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
            "repairs": self.repairs,
            "gains": [[leaf, gain] for leaf, gain in self.gains.items()],
            "mend": None,
            "work": self.work.done,
            "trees": [tree.to_json() for tree in self.module.nodes.layout.trees],
        }
        tensors = {"random": self.random.get_state()}
        if with_weights:
            tensors |= {f"module.{name}": value for name, value in self.module.state_dict().items()}
        if self.mend is not None:
            mend = self.mend
            about["mend"] = [mend.removed, mend.split, mend.rival.tree.to_json(), mend.loss, mend.rounds]
            tensors |= {f"mend.{name}": value for name, value in mend.rival.state_dict().items()}
        return about, tensors

    def restore(self, about: dict[str, Any], tensors: dict[str, Tensor]) -> None:
        """Stand where another run of the same plan stood."""
        self.phase, self.splits, self.work.done = about["phase"], int(about["splits"]), float(about["work"])
        self.repairs, self.gains = int(about["repairs"]), {int(leaf): float(gain) for leaf, gain in about["gains"]}
        trees = [Tree.from_json(text) for text in about["trees"]]
        self.module = self._planted(trees, below("module.", tensors))
        self.mend = None
        if about["mend"] is not None:
            removed, split, tree, loss, rounds = about["mend"]
            rival = self._planted([Tree.from_json(tree)], below("mend.", tensors)).eval()
            self.mend = Mend(int(removed), None if split is None else int(split), rival, float(loss), int(rounds))
        self.random.set_state(tensors["random"])

    def _planted(self, trees: Sequence[Tree], weights: dict[str, Tensor]) -> TreeVAEModule:
        """A module with these trees; without weights, any."""
        device = next(self.module.parameters()).device
        module = TreeVAEModule(self.module.arch, trees, torch.Generator(), len(trees)).to(device)
        if weights:
            module.load_state_dict(weights)
        return module


def objective_of(
    runs: Sequence[Growth],
    tasks: Sequence[Task],
    network: TreeVAEModule | Subtree,
    samples: Samples,
    views: Views | None = None,
    contrast: Contrast | None = None,
    compare: bool = False,
) -> ElboObjective:
    """What the runs' tasks minimise with a network that trains them all, or ``compare`` its candidates by."""
    parts = [task.parts(len(samples))[compare] for task in tasks]
    rows = [part for part in parts if part is not None]
    if isinstance(network, TreeVAEModule):
        return WholeTree(network, samples, views, contrast, rows or None)
    leaves = [task.leaf for task in tasks if task.leaf is not None]
    return SubtreeOnSubset([run.module for run in runs], leaves, network, samples, rows, views, contrast)
