"""Growing trees (section 2.5): first tree, choose a leaf, train its subtree, attach, …, prune, fine-tune.

A :class:`Growth` is one run and knows what is to be trained next. A :class:`Grove` lets one or several runs grow,
trains together what can be trained together, and can write down where everything stands at any pause.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from ..model import descent
from ..model.module import TreeVAEModule
from ..model.networks import Architecture
from ..model.subtree import Subtree
from ..tree import Tree
from .events import CandidatesCompared, EpochEnded, Event, LeafChosen, LeafPruned, TreeChanged
from .loop import EpochDone, Training, below, evaluate
from .objectives import Objective, SubtreeOnSubset, WholeTree
from .plan import Plan, Stage, Work
from .samples import Samples, over
from .views import Augment, Views

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
        elif self.phase == "whole":
            assert self.plan.whole is not None
            self.task = Task(self.plan.whole, self._seed())
        elif self.phase == "split":
            choice = choose_leaf(self.module, samples, self.plan, self._seed())
            if choice is None:
                yield from prune(self.module, samples, self.plan.min_leaf)
                self.phase = "final"
            else:
                leaf, rows = choice
                yield LeafChosen(leaf, len(rows))
                self.task = Task(self.plan.subtree, self._seed(), leaf, self.module.tree.depth(leaf), rows)
        if self.phase == "final":
            if self.plan.final is None:
                yield from self._end(samples)
            else:
                self.task = Task(self.plan.final, self._seed())

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
            compared = compare(objective_of([self], [task], network, samples), samples, task, self.plan)
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
        whole_is_due = self.plan.whole is not None and self.splits % self.plan.whole_every == 0
        if self._fixed:
            self.phase = "final"
        else:
            self.phase = "whole" if self.phase == "split" and whole_is_due else "split"

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
        trees = [Tree.from_json(text) for text in about["trees"]]
        device = next(self.module.parameters()).device
        self.module = TreeVAEModule(self.module.arch, trees, torch.Generator(), len(trees)).to(device)
        if weights := below("module.", tensors):
            self.module.load_state_dict(weights)
        self.random.set_state(tensors["random"])


class Grove:
    """Runs that grow side by side, on the same samples and by the same plan, each with a seed of its own.

    Whatever several runs want to be trained at the same time is trained as one forest, where it has the same shape:
    whole trees always, subtrees if their leaves have the same depth.
    """

    def __init__(
        self,
        arch: Architecture,
        samples: Samples,
        plan: Plan,
        seeds: Sequence[int],
        tree: Tree | None = None,
        augment: Augment | None = None,
    ) -> None:
        self._augment = augment
        self.runs = [Growth(arch, plan, seed, samples.device, tree) for seed in seeds]
        self.samples, self.plan = samples, plan
        self._members: list[int] = []  # runs in the present training, and what each of them wanted
        self._tasks: list[Task] = []
        self._training: Training | None = None

    def events(self) -> Iterator[tuple[int, Event] | None]:
        """Grow to the end, and tell what happens to which run; None is a pause, in which :meth:`state` is whole.

        The last TreeChanged of a run holds its finished module.
        """
        while True:
            if self._training is None:
                for r, run in enumerate(self.runs):
                    if run.task is None and run.phase != "done":
                        yield from ((r, event) for event in run.choose(self.samples))
                self._members = self._together()
                if not self._members:
                    return
                self._tasks = [task for r in self._members if (task := self.runs[r].task) is not None]
                self._training = self._begin()
                yield None
            training = self._training
            for done in training.run():
                if done is None:
                    yield None
                    continue
                r = self._members[done.run]
                yield r, self._epoch_ended(self.runs[r], done)
                if done.last:
                    network = self._taken_out(training.objective.network, done.run)
                    yield from ((r, event) for event in self.runs[r].finish(network, self.samples))
            self._training, self._members, self._tasks = None, [], []

    def state(self) -> State:
        """What :meth:`restore` needs, as JSON-able values and tensors; only in a pause."""
        about: dict[str, Any] = {"runs": [], "tasks": [], "members": self._members}
        tensors: dict[str, Tensor] = {}
        in_training = dict(zip(self._members, self._tasks, strict=True))
        for r, run in enumerate(self.runs):
            whole_in_training = r in in_training and run.task is not None and run.task.leaf is None
            about_run, of_run = run.state(with_weights=not whole_in_training)
            about["runs"].append(about_run | {"waiting": run.task is not None})
            task = run.task or in_training.get(r)
            about["tasks"].append(None if task is None else task.about())
            if task is not None and task.rows is not None:
                of_run["rows"] = task.rows
            tensors |= {f"run{r}.{name}": value for name, value in of_run.items()}
        if self._training is not None:
            about["training"], of_training = self._training.state()
            tensors |= {f"training.{name}": value for name, value in of_training.items()}
        return about, tensors

    def restore(self, about: dict[str, Any], tensors: dict[str, Tensor]) -> None:
        """Stand where another grove with the same samples, plan and seeds stood."""
        tasks: list[Task | None] = []
        for r, run in enumerate(self.runs):
            of_run = below(f"run{r}.", tensors)
            run.restore(about["runs"][r], of_run)
            task = about["tasks"][r]
            rows = _checked_rows(of_run["rows"], len(self.samples)) if "rows" in of_run else None
            rows = None if rows is None else rows.to(self.samples.device)
            tasks.append(None if task is None else Task.of(task, self.plan, rows))
            run.task = tasks[r] if about["runs"][r]["waiting"] else None
        self._members, self._training = list(about["members"]), None
        self._tasks = [task for r in self._members if (task := tasks[r]) is not None]
        if "training" in about:
            self._training = self._begin(anew=False)
            self._training.restore(about["training"], below("training.", tensors))

    def _epoch_ended(self, run: Growth, done: EpochDone) -> EpochEnded:
        task = run.task
        assert task is not None
        share = 1.0 if task.rows is None else len(task.rows) / len(self.samples)
        leaves = (
            sum(len(tree.leaves) for tree in run.module.nodes.layout.trees)
            if task.leaf is None
            else 2 * run.plan.n_init
        )
        return EpochEnded(
            stage=task.stage.name,
            leaf=task.leaf,
            epoch=done.epoch + 1,
            epochs=task.stage.epochs,
            kl_weight=task.stage.kl_weight(done.epoch),
            learning_rate=task.stage.rate(done.epoch),
            progress=run.work.add(run.work.epoch(leaves, share)),
            **done.means,
        )

    def _together(self) -> list[int]:
        """The runs to be trained next: subtrees before whole trees, so that these wait for each other."""
        waiting = [r for r, run in enumerate(self.runs) if run.task is not None]
        groups: dict[tuple[bool, str, int], list[int]] = {}
        for r in waiting:
            task = self.runs[r].task
            assert task is not None
            groups.setdefault((task.leaf is None, task.stage.name, task.depth), []).append(r)
        if not groups:
            return []
        best = min(groups, key=lambda group: (group[0], -len(groups[group])))
        arch = self.runs[0].module.arch
        derived = len(groups[best]) * (2 * sum(arch.latent_dims) + 2 * max(self.runs[0].module.bottom_up.d_dims))
        fits = self.samples.window(derived, self.plan.batch_size) is None
        return groups[best] if fits else groups[best][:1]

    def _begin(self, anew: bool = True) -> Training:
        """The members' training; not anew: with networks of any weights, which will be replaced."""
        runs = [self.runs[r] for r in self._members]
        networks = [
            run.network(task, run.random if anew else torch.Generator())
            for run, task in zip(runs, self._tasks, strict=True)
        ]
        network = networks[0] if len(networks) == 1 else _joined(networks).to(self.samples.device)
        plan, views = self.plan, None
        contrast = plan.contrastive_loss if plan.contrastive_weight > 0 else None
        if self._augment is not None:
            views = Views(self._augment, runs[0].module.arch.input_shape, 1 if contrast is None else 2)
        objective = objective_of(runs, self._tasks, network, self.samples, views, contrast)
        seeds = [task.seed for task in self._tasks]
        stage, weight = self._tasks[0].stage, plan.contrastive_weight
        return Training(objective, self.samples, stage, plan.batch_size, seeds, weight)

    def _taken_out(self, network: TreeVAEModule | Subtree, run: int) -> TreeVAEModule | Subtree:
        """What was trained for one of the members."""
        if len(self._members) == 1:
            return network
        if isinstance(network, Subtree):
            return network.run(run).to(self.samples.device)
        candidates = network.nodes.layout.candidates
        return TreeVAEModule.of([(network, run * candidates + c) for c in range(candidates)], candidates)


def _checked_rows(rows: Tensor, n: int) -> Tensor:
    """Numbers of samples, if that is what they are."""
    if rows.dim() != 1 or rows.dtype != torch.long or not len(rows) or rows.min() < 0 or rows.max() >= n:
        raise ValueError(f"rows are not numbers of some of {n} samples")
    return rows


def _joined(networks: Sequence[TreeVAEModule | Subtree]) -> TreeVAEModule | Subtree:
    """The networks of several runs side by side, values copied."""
    modules = [network for network in networks if isinstance(network, TreeVAEModule)]
    if not modules:
        return Subtree.join([network for network in networks if isinstance(network, Subtree)])
    candidates = modules[0].nodes.layout.candidates
    return TreeVAEModule.of([(module, c) for module in modules for c in range(candidates)], candidates)


def objective_of(
    runs: Sequence[Growth],
    tasks: Sequence[Task],
    network: TreeVAEModule | Subtree,
    samples: Samples,
    views: Views | None = None,
    contrast: str | None = None,
) -> Objective:
    """What the runs' tasks minimise with a network that trains them all."""
    if isinstance(network, TreeVAEModule):
        return WholeTree(network, samples, views, contrast)
    return SubtreeOnSubset(
        [run.module for run in runs],
        [task.leaf for task in tasks if task.leaf is not None],
        network,
        samples,
        [task.rows for task in tasks if task.rows is not None],
        views,
        contrast,
    )


def choose_leaf(module: TreeVAEModule, samples: Samples, plan: Plan, seed: int) -> tuple[int, Tensor] | None:
    """The leaf to split next and the samples to train its subtree on; None when the tree is finished.

    A leaf counts if it holds ``plan.min_leaf`` of the soft mass. It can be split if it is not on the last level and
    has a batch of samples with q(leaf | x) >= min(1 / leaves that count, 1/2).
    """
    tree = module.tree
    reach = over(module, samples, module.reach)  # (samples, leaves)
    n_effective = int((reach.mean(0) >= plan.min_leaf).sum())
    if n_effective >= plan.n_leaves:
        return None
    sure = reach >= min(1 / max(n_effective, 1), 0.5)
    n_sure = sure.sum(0)
    score = n_sure if plan.leaf_rule == "samples" else _leaf_losses(module, samples, plan.leaf_rule, seed)
    for i in torch.argsort(score, descending=True, stable=True).tolist():
        leaf = tree.leaves[i]
        if tree.depth(leaf) < module.arch.n_levels - 1 and n_sure[i] >= min(plan.batch_size, len(samples)):
            return leaf, sure[:, i].nonzero().squeeze(1)
    return None


def _leaf_losses(module: TreeVAEModule, samples: Samples, rule: str, seed: int) -> Tensor:
    """What each leaf, from left to right, adds to the loss, by reconstruction alone or by the whole ELBO."""
    nodes, generator = module.nodes, torch.Generator(samples.device).manual_seed(seed)

    def ask(part: Tensor) -> Tensor:
        found = descent.infer(nodes, module.d(part), descent.noise_for(nodes, len(part), generator))
        log_px, kl = descent.leaf_terms(nodes, found, part[None])
        loss = -log_px if rule == "reconstruction" else kl - log_px
        return (loss * descent.log_reach(nodes, found.logit_q)[nodes.layout.leaf_rows].exp()).T

    return over(module, samples, ask).sum(0)[nodes.layout.shown_leaves]


def compare(objective: Objective, samples: Samples, task: Task, plan: Plan) -> CandidatesCompared:
    """The candidate that is best by the plan's rule, among those that did not collapse."""
    last = task.stage.kl_weight(task.stage.epochs - 1)
    losses = evaluate(objective, samples, 1.0 if plan.candidate_rule == "elbo" else last, task.seed)
    right = objective.right()
    smaller = torch.minimum(right.mean(1), 1 - right.mean(1))
    scores = {"confidence": _sureness, "agreement": _agreement}.get(plan.candidate_rule, lambda _: -losses)(right)
    alive = smaller >= plan.min_share
    ranked = torch.where(alive, scores, -torch.inf) if alive.any() else scores
    return CandidatesCompared(
        task.leaf, tuple(losses.tolist()), tuple(smaller.tolist()), tuple(scores.tolist()), int(ranked.argmax())
    )


def _sureness(right: Tensor) -> Tensor:
    """How sure each candidate is of its decisions, on average, from 1/2 to 1."""
    return torch.maximum(right, 1 - right).mean(1)


def _agreement(right: Tensor) -> Tensor:
    """The mean share of the samples that another candidate parts alike, left and right perhaps exchanged."""
    sides = (right > 0.5).to(right.dtype)
    same = sides @ sides.T + (1 - sides) @ (1 - sides).T
    alike = torch.maximum(same, right.shape[1] - same) / right.shape[1]
    return (alike.sum(1) - 1) / max(len(right) - 1, 1)


def prune(module: TreeVAEModule, samples: Samples, least: float) -> Iterator[Event]:
    """Remove the smallest leaf, again and again, while it wins less than the least share of the samples."""
    while len(module.tree.leaves) > 1:
        winners = over(module, samples, lambda part: module.reach(part).argmax(1))
        counts = torch.bincount(winners, minlength=len(module.tree.leaves))
        i = int(counts.argmin())
        if counts[i] >= least * len(samples):
            return
        leaf = module.tree.leaves[i]
        module.prune(leaf)
        yield LeafPruned(leaf, int(counts[i]) / len(samples))
        yield TreeChanged(module, module.tree)
