"""One run: its module while it grows, what it wants to be trained next, and its state. ``grove.py`` trains it."""

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
from .engine import mixed
from .events import CandidatesCompared, Event
from .growing import DONE, FIRST, Start
from .loop import below
from .objectives import ElboObjective, SubtreeOnSubset, WholeTree
from .plan import CHILDREN, Plan, Stage, Work
from .samples import Samples
from .terms import Term
from .views import Views

HEAT = -4  # what a seed is mixed with for the heats of a race
Saved = tuple[dict[str, Any], dict[str, Tensor]]  # JSON-able values, and tensors


@dataclass(frozen=True)
class Task:
    """What a run wants to be trained next: its whole tree, or candidates for the children of a leaf."""

    stage: Stage
    seed: int
    leaf: int | None = None
    depth: int = 0  # of the leaf
    rows: Tensor | None = None  # the samples to train the children on
    first: int = 0  # epoch of the stage; later in a race, when some candidates have left

    @property
    def seed_from_here(self) -> int:
        """The seed of the training: each heat has random numbers of its own."""
        return self.seed if self.first == 0 else mixed(self.seed, HEAT, self.first)

    def about(self) -> dict[str, Any]:
        """All but the rows, as JSON-able values."""
        told = {"stage": self.stage.name, "seed": self.seed, "leaf": self.leaf, "depth": self.depth}
        return told | {"first": self.first}

    @classmethod
    def of(cls, about: dict[str, Any], stages: Mapping[str, Stage], rows: Tensor | None) -> Task:
        """The task that :meth:`about` describes; its stage is one of these."""
        stage = stages[about["stage"]]
        first = int(about.get("first", 0))  # earlier versions had no races
        return cls(stage, int(about["seed"]), about["leaf"], int(about["depth"]), rows, first)


class Growth:
    """One run: a tree while it grows, between its stages.

    ``phase`` says what comes next, in the words of ``growing.py``; ``start`` knows what follows what.
    """

    module: TreeVAEModule  # once :meth:`plant` was called
    labels: Tensor | None  # of a guide for each candidate, while it is learnt: (candidate, sample)
    task: Task | None

    def __init__(self, arch: Architecture, plan: Plan, seed: int, device: torch.device, start: Start) -> None:
        self.arch, self.plan, self.start, self._device = arch, plan, start, device
        self.random = torch.Generator().manual_seed(seed)  # on the CPU, so that every device starts alike
        self.phase, self.splits, self.task, self.labels = FIRST, 0, None, None
        self._left: Subtree | None = None  # the candidates for the children of a leaf that a race has left
        self.work = Work(plan, start.tree)

    def plant(self, trees: Sequence[Tree], labels: Tensor | None = None) -> None:
        """Begin with these trees, candidates for one, each with a guide's labels where there are some."""
        self.module = TreeVAEModule(self.arch, trees, self.random, len(trees)).to(self._device)
        self.labels = None if labels is None else labels.to(self._device)

    @property
    def planted(self) -> bool:
        """Whether there is a module, trained or not."""
        return hasattr(self, "module")

    @property
    def grown(self) -> bool:
        """Whether the module is a whole model: one tree, trained at least once."""
        return self.phase != FIRST

    @property
    def done(self) -> bool:
        """Whether nothing is left to train."""
        return self.phase == DONE

    def want(self, stage: Stage, leaf: int | None = None, rows: Tensor | None = None) -> None:
        """Have a stage trained next; with a leaf, that of its children on these samples."""
        self.task = Task(stage, self.draw_seed(), leaf, 0 if leaf is None else self.module.tree.depth(leaf), rows)

    def end(self) -> None:
        """Want nothing any more."""
        self.phase = DONE
        self.module.eval()

    def draw_seed(self) -> int:
        """The next seed of the run's own generator."""
        return int(torch.randint(2**62, (1,), generator=self.random))

    def choose(self, samples: Samples) -> Iterator[Event]:
        """Decide what is to be trained next; nothing if the run is done."""
        return self.start.choose(self, samples)

    def network(self, task: Task, generator: torch.Generator) -> TreeVAEModule | Subtree:
        """What a task trains: the run's module itself, or a new subtree."""
        if task.stage.trains != CHILDREN:
            return self.module
        return self._left or self._children(task.depth, self.plan.n_init, generator)

    def _children(self, depth: int, candidates: int, generator: torch.Generator) -> Subtree:
        """New candidates for the children of a leaf of a depth."""
        return Subtree.new(self.arch, self.module.bottom_up.d_dims, depth, candidates, generator).to(self._device)

    def finish(self, network: TreeVAEModule | Subtree, samples: Samples) -> Iterator[Event]:
        """Take in what was trained: the best of the candidates, where there are several; in a race the better half."""
        task, self.task, self._left, chosen = self.task, None, None, 0
        assert task is not None
        candidates = len(network.nodes.layout.trees)
        if candidates > 1:
            last, keep = self.plan.heat(task.stage, task.first, candidates)
            objective = objective_of([self], [task], network, samples)
            compared = self._compared(objective, samples, replace(task, stage=replace(task.stage, epochs=last)), keep)
            yield compared
            chosen = compared.chosen
            if last < task.stage.epochs:
                kept = compared.kept or (chosen,)
                if isinstance(network, Subtree):
                    self._left = network.kept(kept).to(samples.device)
                else:
                    self.module = TreeVAEModule.of([(network, one) for one in kept], len(kept))
                self.task = replace(task, first=last)
                return
        if isinstance(network, Subtree):
            assert task.leaf is not None
            self.module.attach(task.leaf, network, chosen)
            self.splits += 1
        else:
            self.module = TreeVAEModule.of([(network, chosen)]) if candidates > 1 else network
            self.labels = None
        yield from self.start.go_on(self, samples)

    def _compared(self, objective: ElboObjective, samples: Samples, task: Task, keep: int) -> CandidatesCompared:
        """What the rule says of candidates, of which so many are to be kept."""
        compare, about = self.start.choices.compare, (objective, samples, task.stage, task.leaf, task.seed, self.plan)
        if keep == 1:
            return compare(*about)
        compared = compare(*about, keep=keep)
        if len(set(compared.kept)) != keep:
            raise ValueError(f"the rule that compares candidates kept {compared.kept}; in a race it must keep {keep}")
        return compared

    # -- saving -------------------------------------------------------------------------------------------------

    def state(self, with_weights: bool) -> Saved:
        """What :meth:`restore` needs; the weights may be known from elsewhere."""
        about = {
            "phase": self.phase,
            "splits": self.splits,
            "work": self.work.done,
            "trees": [tree.to_json() for tree in self.module.nodes.layout.trees] if self.planted else [],
        }
        tensors = {"random": self.random.get_state()}
        if self.labels is not None:
            tensors["labels"] = self.labels
        if with_weights and self.planted:
            tensors |= {f"module.{name}": value for name, value in self.module.state_dict().items()}
        if self._left is not None:
            about["left"] = {"depth": self._left.depth, "candidates": len(self._left.nodes.layout.trees)}
            tensors |= {f"left.{name}": value for name, value in self._left.state_dict().items()}
        return about, tensors

    def restore(self, about: dict[str, Any], tensors: dict[str, Tensor]) -> None:
        """Stand where another run of the same plan stood."""
        self.phase, self.splits, self.work.done = about["phase"], int(about["splits"]), float(about["work"])
        trees, weights = [Tree.from_json(text) for text in about["trees"]], below("module.", tensors)
        if trees:
            module = TreeVAEModule(self.arch, trees, torch.Generator(), len(trees))
            if weights:  # else they are known from elsewhere
                module.load_state_dict(weights)
            self.module = module.to(self._device)
        self.labels = tensors["labels"].to(self._device) if "labels" in tensors else None
        self._left = None
        if "left" in about:
            depth, candidates = int(about["left"]["depth"]), int(about["left"]["candidates"])
            self._left = self._children(depth, candidates, torch.Generator())
            self._left.load_state_dict(below("left.", tensors))
        self.random.set_state(tensors["random"])


def objective_of(
    runs: Sequence[Growth],
    tasks: Sequence[Task],
    network: TreeVAEModule | Subtree,
    samples: Samples,
    views: Views | None = None,
    terms: Sequence[Term] = (),
) -> ElboObjective:
    """What the runs' tasks minimise with a network that trains them all."""
    if isinstance(network, TreeVAEModule):
        labels = [run.labels for run in runs if run.labels is not None]
        return WholeTree(network, samples, views, terms, torch.cat(labels) if labels else None)
    leaves = [task.leaf for task in tasks if task.leaf is not None]
    rows = [task.rows for task in tasks if task.rows is not None]
    weigh = runs[0].start.choices.weigh
    return SubtreeOnSubset([run.module for run in runs], leaves, network, samples, rows, views, terms, weigh)
