"""Small networks, samples and plans, and what happens to them in training."""

import dataclasses

import torch

from treevae.model.module import TreeVAEModule
from treevae.model.networks import Architecture
from treevae.training.choosing import LEAF_RULES, splittable
from treevae.training.events import CandidatesCompared, EpochEnded
from treevae.training.grove import Grove
from treevae.training.growing import Given
from treevae.training.loop import Training
from treevae.training.objectives import SubtreeOnSubset, WholeTree
from treevae.training.plan import Plan, Stage
from treevae.training.samples import Samples
from treevae.tree import Tree

ARCH = Architecture((5,), "mlp", "bernoulli", (3,) * 4, (8,) * 3)
CPU = torch.device("cpu")
THREE = Tree().split(0).split(1)  # leaves 3, 4, 2 from left to right


def data(n: int = 80, budget: int | None = None) -> Samples:
    return Samples(torch.rand(n, 5, generator=torch.Generator().manual_seed(1)).round(), CPU, budget)


def fixed_module(tree: Tree | None = None, arch: Architecture = ARCH) -> TreeVAEModule:
    return TreeVAEModule(arch, [tree or Tree().split(0)], torch.Generator().manual_seed(0))


def grown(samples: Samples, plan: Plan, seed: int = 0, tree: Tree | None = None) -> list:
    """The events of one run."""
    happened = Grove(ARCH, samples, plan, [seed], Given(tree) if tree is not None else None).events()
    return [event for _, event in filter(None, happened)]


def tiny(**changes) -> Plan:
    return dataclasses.replace(Plan.paper(epochs=2, n_leaves=4, batch_size=16), **changes)


class Fixed:
    """A stand-in module whose leaves' probabilities are given."""

    def __init__(self, tree: Tree, reach: torch.Tensor, n_levels: int = 4) -> None:
        self.tree, self.arch = (
            tree,
            dataclasses.replace(ARCH, latent_dims=(3,) * n_levels, hidden_dims=(8,) * (n_levels - 1)),
        )
        self._reach = reach

    def eval(self) -> "Fixed":
        return self

    def reach(self, rows: torch.Tensor) -> torch.Tensor:
        return self._reach[rows.long().squeeze(1)]


def chosen(reach: list[list[float]], tree: Tree, n_levels: int = 4, **plan):
    """The leaf to split next and its samples, when the rows of ``reach`` are the samples; None if growing ends."""
    rows = torch.arange(len(reach), dtype=torch.float32)[:, None]
    module, samples, plan = Fixed(tree, torch.tensor(reach), n_levels), Samples(rows, CPU), tiny(**plan)
    n_effective, leaves = splittable(module, samples, plan)
    if n_effective >= plan.n_leaves or not leaves:
        return None
    leaf = LEAF_RULES["samples"](module, samples, leaves, 0)
    return leaf, leaves[leaf].tolist()


def trained(objective: WholeTree | SubtreeOnSubset, samples: Samples, stage: Stage, seed: int = 0) -> list:
    return [done for done in Training(objective, samples, stage, 16, [seed]).run() if done is not None]


def story(grove: Grove) -> tuple[list, list[dict[str, torch.Tensor]]]:
    """What happens to a grove's runs until the end, and their weights then."""
    told = list(filter(None, grove.events()))
    return told, [run.module.state_dict() for run in grove.runs]


def shape_of(event):
    """An event without the numbers that rounding changes."""
    match event:
        case EpochEnded():
            return event.stage, event.leaf, event.epoch, event.progress
        case CandidatesCompared():
            return event.leaf, event.chosen
    return event


def assert_same_weights(ours: dict[str, torch.Tensor], theirs: dict[str, torch.Tensor]) -> None:
    assert ours.keys() == theirs.keys()
    assert all(torch.equal(ours[name], theirs[name]) for name in ours)
