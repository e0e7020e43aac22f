"""Runs that grow side by side: what can be trained together is, and any pause can be written down and gone on from."""

from __future__ import annotations

import copy
from collections.abc import Iterator, Sequence
from typing import Any

import torch
from torch import Tensor

from ..model.elbo import TERMS
from ..model.module import TreeVAEModule
from ..model.networks import Architecture
from ..model.stack import Trainable
from ..model.subtree import Subtree
from .events import EpochEnded, Event
from .growing import Splits, Start
from .growth import Growth, Saved, Task, objective_of
from .loop import EpochDone, Training, below
from .plan import CHILDREN, Plan
from .samples import Samples
from .views import Augment, Views


class Grove:
    """Runs that grow side by side, on the same samples and by the same plan, each with a seed of its own.

    Whatever several runs want to be trained at the same time is trained as one forest, where it has the same shape:
    whole trees always, subtrees if their leaves have the same depth.

    Parameters
    ----------
    arch : Architecture
    samples : Samples
    plan : Plan
    seeds : sequence of int
        One for each run.
    start : Start, optional
        How the runs come to their trees; by default they grow by splits.
    augment : callable, optional
        Makes the views that a step sees; also those that the plan's terms need.
    fast : bool
        Whether products on a GPU may be rounded for speed.
    """

    def __init__(
        self,
        arch: Architecture,
        samples: Samples,
        plan: Plan,
        seeds: Sequence[int],
        start: Start | None = None,
        augment: Augment | None = None,
        fast: bool = True,
    ) -> None:
        self._augment, self._fast = augment, fast
        self.runs = [Growth(arch, plan, seed, samples.device, start or Splits()) for seed in seeds]
        self.samples, self.plan = samples, plan
        self._members: list[int] = []  # runs in the present training, and what each of them wanted
        self._tasks: list[Task] = []
        self._training: Training | None = None
        self._ended: dict[int, TreeVAEModule | Subtree] = {}  # what members have that ended before the others

    @property
    def modules(self) -> list[TreeVAEModule | None]:
        """The newest whole module of each run."""
        return [run.module if run.grown else None for run in self.runs]

    def events(self) -> Iterator[tuple[int, Event] | None]:
        """Grow to the end, and tell what happens to which run; None is a pause, in which :meth:`state` is whole."""
        while True:
            if self._training is None:
                for r, run in enumerate(self.runs):
                    if run.task is None and not run.done:
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
                if done.last:  # as it is now: to be carried along changes the statistics of its norms
                    self._ended[r] = self._taken_out(training.objective.network, done.run)
            self._training, self._members, self._tasks = None, [], []
            for r, network in sorted(self._ended.items()):
                yield from ((r, event) for event in self.runs[r].finish(network, self.samples))
            self._ended = {}

    def state(self) -> Saved:
        """What :meth:`restore` needs, as JSON-able values and tensors; only in a pause."""
        about: dict[str, Any] = {"runs": [], "tasks": [], "members": self._members}
        tensors: dict[str, Tensor] = {}
        in_training = dict(zip(self._members, self._tasks, strict=True))
        for r, run in enumerate(self.runs):
            whole_in_training = r in in_training and run.task is not None and run.task.stage.trains != CHILDREN
            about_run, of_run = run.state(with_weights=not whole_in_training)
            about["runs"].append(about_run | {"waiting": run.task is not None})
            task = run.task or in_training.get(r)
            about["tasks"].append(None if task is None else task.about())
            if task is not None and task.rows is not None:
                of_run["rows"] = task.rows
            if r in self._ended:
                of_run |= {f"ended.{name}": value for name, value in self._ended[r].state_dict().items()}
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
            tasks.append(None if task is None else Task.of(task, run.start.stages(self.plan), rows))
            run.task = tasks[r] if about["runs"][r]["waiting"] else None
        self._members, self._training = list(about["members"]), None
        self._tasks = [task for r in self._members if (task := tasks[r]) is not None]
        if "training" in about:
            self._training = self._begin(anew=False)
            self._training.restore(about["training"], below("training.", tensors))
        self._ended = {}
        for r, task in zip(self._members, self._tasks, strict=True):
            if weights := below(f"run{r}.ended.", tensors):
                self._ended[r] = copy.deepcopy(self.runs[r].network(task, torch.Generator()))
                self._ended[r].load_state_dict(weights)

    def _epoch_ended(self, run: Growth, done: EpochDone) -> EpochEnded:
        task = run.task
        assert task is not None
        assert self._training is not None
        samples = self._training.objective.n_samples[done.run]
        candidates = self._training.objective.n_trees // len(self._members)
        whole = task.stage.trains != CHILDREN
        leaves = sum(len(tree.leaves) for tree in run.module.nodes.layout.trees) if whole else 2 * candidates
        return EpochEnded(
            stage=task.stage.name,
            leaf=task.leaf,
            samples=samples,
            epoch=done.epoch + 1,
            epochs=task.stage.epochs,
            kl_weight=task.stage.kl_weight(done.epoch),
            learning_rate=task.stage.rate(done.epoch),
            progress=run.work.add(run.work.epoch(leaves, samples / len(self.samples))),
            **{name: done.means[name] for name in TERMS},
            more={name: value for name, value in done.means.items() if name not in TERMS},
        )

    def _together(self) -> list[int]:
        """The runs to be trained next: subtrees before whole trees, so that these wait for each other."""
        waiting = [r for r, run in enumerate(self.runs) if run.task is not None]
        groups: dict[tuple[bool, str, int, int], list[int]] = {}
        for r in waiting:
            task = self.runs[r].task
            assert task is not None
            group = (task.stage.trains != CHILDREN, task.stage.name, task.depth, task.first)
            groups.setdefault(group, []).append(r)
        if not groups:
            return []
        best = min(groups, key=lambda group: (group[0], -len(groups[group])))
        arch = self.runs[0].arch
        derived = len(groups[best]) * (2 * sum(arch.latent_dims) + 2 * max(self.runs[0].module.bottom_up.d_dims))
        fits = self.samples.window(derived, self.plan.samples_per_step) is None
        return groups[best] if fits else groups[best][:1]

    def _begin(self, anew: bool = True) -> Training:
        """The members' training; not anew: with networks of any weights, which will be replaced."""
        runs = [self.runs[r] for r in self._members]
        networks = [
            run.network(task, run.random if anew else torch.Generator())
            for run, task in zip(runs, self._tasks, strict=True)
        ]
        network = networks[0] if len(networks) == 1 else _joined(networks).to(self.samples.device)
        stage, views = self._tasks[0].stage, None
        if self._augment is not None:
            views = Views(self._augment, runs[0].arch.read.shape, stage.views)
        elif stage.views > 1:
            raise ValueError(f"stage {stage.name!r} needs {stage.views} views of each sample, and nothing makes views")
        objective = objective_of(runs, self._tasks, network, self.samples, views, stage.terms)
        seeds, first = [task.seed_from_here for task in self._tasks], self._tasks[0].first
        last, _ = self.plan.heat(stage, first, objective.n_trees // len(runs))
        batch = self.plan.samples_per_step
        return Training(objective, self.samples, stage, batch, seeds, self._fast, (first, last))

    def _taken_out(self, network: Trainable, run: int) -> TreeVAEModule | Subtree:
        """What was trained for one of the members."""
        assert isinstance(network, TreeVAEModule | Subtree)
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
