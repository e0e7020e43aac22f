"""Growing a tree (section 2.5): first tree, choose a leaf, train its subtree, attach, …, prune, fine-tune."""

from __future__ import annotations

from collections.abc import Generator, Iterator
from dataclasses import dataclass

import torch
from torch import Tensor

from ..model import descent
from ..model.module import TreeVAEModule
from ..model.networks import Architecture
from ..model.subtree import Subtree
from ..tree import Tree
from .engine import Objective, SubtreeOnSubset, WholeTree, over
from .events import CandidatesCompared, EpochEnded, Event, LeafChosen, LeafPruned, TreeChanged
from .loop import evaluate, train
from .plan import Plan, Stage, Work


@dataclass(frozen=True)
class Random:
    """The two sources of chance: first weights are drawn on the CPU, so that every device starts alike."""

    weights: torch.Generator
    training: torch.Generator  # order of the samples and noise, on the device

    @classmethod
    def from_seed(cls, seed: int, device: torch.device) -> Random:
        """Both sources, from one seed."""
        return cls(torch.Generator().manual_seed(seed), torch.Generator(device).manual_seed(seed))


def grow(arch: Architecture, x: Tensor, plan: Plan, random: Random, tree: Tree | None = None) -> Iterator[Event]:
    """Train a model on x (samples, features) and tell what happens; the last TreeChanged holds the finished module.

    A given ``tree`` is trained as it is: the first and the final stage, no growing, no pruning.
    """
    work = Work(plan, tree)
    if tree is not None:
        module = TreeVAEModule(arch, [tree], random.weights).to(x.device)
        yield from _run(WholeTree(module, x), plan.first, plan, random, work)
    else:
        module = yield from _first_tree(arch, x, plan, random, work)
        yield TreeChanged(module, module.tree)
        splits = 0
        while (choice := choose_leaf(module, x, plan, random)) is not None:
            leaf, rows = choice
            yield LeafChosen(leaf, len(rows))
            yield from _split(module, x, leaf, rows, plan, random, work)
            yield TreeChanged(module, module.tree)
            splits += 1
            if plan.whole is not None and splits % plan.whole_every == 0:
                yield from _run(WholeTree(module, x), plan.whole, plan, random, work)
        yield from _prune(module, x, plan.min_leaf)
    if plan.final is not None:
        yield from _run(WholeTree(module, x), plan.final, plan, random, work)
    if tree is None:
        yield from _prune(module, x, 1 / len(x))  # every leaf of the finished tree wins at least one sample
    module.eval()
    yield TreeChanged(module, module.tree)


def choose_leaf(module: TreeVAEModule, x: Tensor, plan: Plan, random: Random) -> tuple[int, Tensor] | None:
    """The leaf to split next and the samples to train its subtree on; None when the tree is finished.

    A leaf counts if it holds ``plan.min_leaf`` of the soft mass. It can be split if it is not on the last level and
    has a batch of samples with q(leaf | x) >= min(1 / leaves that count, 1/2).
    """
    tree = module.tree
    reach = over(module, x, module.reach)  # (samples, leaves)
    n_effective = int((reach.mean(0) >= plan.min_leaf).sum())
    if n_effective >= plan.n_leaves:
        return None
    sure = reach >= min(1 / max(n_effective, 1), 0.5)
    n_sure = sure.sum(0)
    score = n_sure if plan.leaf_rule == "samples" else _leaf_losses(module, x, plan.leaf_rule, random)
    for i in torch.argsort(score, descending=True, stable=True).tolist():
        leaf = tree.leaves[i]
        if tree.depth(leaf) < module.arch.n_levels - 1 and n_sure[i] >= min(plan.batch_size, len(x)):
            return leaf, sure[:, i].nonzero().squeeze(1)
    return None


def _leaf_losses(module: TreeVAEModule, x: Tensor, rule: str, random: Random) -> Tensor:
    """What each leaf, from left to right, adds to the loss, by reconstruction alone or by the whole ELBO."""
    nodes = module.nodes

    def ask(part: Tensor) -> Tensor:
        found = descent.infer(nodes, module.d(part), descent.noise_for(nodes, len(part), random.training))
        log_px, kl = descent.leaf_terms(nodes, found, part)
        loss = -log_px if rule == "reconstruction" else kl - log_px
        return (loss * found.routing.log_reach[nodes.layout.leaf_rows].exp()).T

    return over(module, x, ask).sum(0)[nodes.layout.shown_leaves]


def _first_tree(
    arch: Architecture, x: Tensor, plan: Plan, random: Random, work: Work
) -> Generator[Event, None, TreeVAEModule]:
    """Train the root and its two leaves, as often as plan.n_init says, and keep the best."""
    module = TreeVAEModule(arch, [Tree().split(0)] * plan.n_init, random.weights).to(x.device)
    objective = WholeTree(module, x)
    yield from _run(objective, plan.first, plan, random, work)
    if plan.n_init == 1:
        return module
    compared = _compare(objective, None, plan.first, plan, random)
    yield compared
    return module.candidate(compared.chosen)


def _split(
    module: TreeVAEModule, x: Tensor, leaf: int, rows: Tensor, plan: Plan, random: Random, work: Work
) -> Iterator[Event]:
    """Train candidates for the leaf's children on the rows that reach it, everything else frozen; attach the best."""
    depth = module.tree.depth(leaf)
    subtree = Subtree(module.arch, module.bottom_up.d_dims, leaf, depth, plan.n_init, random.weights).to(x.device)
    objective = SubtreeOnSubset(module, subtree, x, rows)
    yield from _run(objective, plan.subtree, plan, random, work, leaf, share=len(rows) / len(x))
    chosen = 0
    if plan.n_init > 1:
        compared = _compare(objective, leaf, plan.subtree, plan, random)
        yield compared
        chosen = compared.chosen
    module.attach(subtree, chosen)


def _compare(objective: Objective, leaf: int | None, stage: Stage, plan: Plan, random: Random) -> CandidatesCompared:
    """The candidate with the lowest loss, at the KL weight it was trained with, among those that did not collapse."""
    losses = evaluate(objective, stage.kl_weight(stage.epochs - 1), random.training)
    smaller = objective.shares().amin(1)
    alive = smaller >= plan.min_share
    ranked = torch.where(alive, losses, torch.inf) if alive.any() else losses
    return CandidatesCompared(leaf, tuple(losses.tolist()), tuple(smaller.tolist()), int(ranked.argmin()))


def _prune(module: TreeVAEModule, x: Tensor, least: float) -> Iterator[Event]:
    """Remove the smallest leaf, again and again, while it wins less than the least share of the samples."""
    while len(module.tree.leaves) > 1:
        winners = over(module, x, lambda part: module.reach(part).argmax(1))
        counts = torch.bincount(winners, minlength=len(module.tree.leaves))
        i = int(counts.argmin())
        if counts[i] >= least * len(x):
            return
        leaf = module.tree.leaves[i]
        module.prune(leaf)
        yield LeafPruned(leaf, int(counts[i]) / len(x))
        yield TreeChanged(module, module.tree)


def _run(
    objective: Objective,
    stage: Stage,
    plan: Plan,
    random: Random,
    work: Work,
    leaf: int | None = None,
    share: float = 1.0,
) -> Iterator[EpochEnded]:
    """Train for a stage and tell of every epoch."""
    trees = objective.network.nodes.layout.trees
    cost = work.epoch(sum(len(tree.leaves) for tree in trees), share)
    for epoch, means in train(objective, stage, plan.batch_size, random.training):
        yield EpochEnded(
            stage=stage.name,
            leaf=leaf,
            epoch=epoch + 1,
            epochs=stage.epochs,
            kl_weight=stage.kl_weight(epoch),
            learning_rate=stage.rate(epoch),
            progress=work.add(cost),
            **means,
        )
