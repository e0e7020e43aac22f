"""The decisions between the stages of growing: which leaf to split, which candidate to keep, what to prune or mend."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

import torch
from torch import Tensor

from ..model import descent
from ..model.module import TreeVAEModule
from .events import CandidatesCompared, Event, LeafPruned, TreeChanged
from .loop import evaluate, mean_over
from .objectives import ElboObjective, SubtreeOnSubset, WholeTree
from .plan import Plan, Stage
from .samples import Samples, over


def splittable(module: TreeVAEModule, samples: Samples, plan: Plan) -> tuple[int, dict[int, Tensor]]:
    """How many leaves count, and those that can be split, each with the samples to train its subtree on, largest first.

    A leaf counts if it holds ``plan.min_leaf`` of the soft mass. It can be split if it is not on the last level and
    has a batch of samples with q(leaf | x) >= min(1 / leaves that count, 1/2).
    """
    tree = module.tree
    reach = over(module, samples, module.reach)  # (samples, leaves)
    n_effective = int((reach.mean(0) >= plan.min_leaf).sum())
    sure = reach >= min(1 / max(n_effective, 1), 0.5)
    n_sure, least = sure.sum(0), min(plan.samples_per_step, len(samples))
    by_size = torch.argsort(n_sure, descending=True, stable=True).tolist()
    return n_effective, {
        tree.leaves[i]: sure[:, i].nonzero().squeeze(1)
        for i in by_size
        if tree.depth(tree.leaves[i]) < module.arch.n_levels - 1 and n_sure[i] >= least
    }


def best_leaf(module: TreeVAEModule, samples: Samples, leaves: Mapping[int, Tensor], rule: str, seed: int) -> int:
    """The leaf to split next, out of those that can be split, by any rule that needs no trial."""
    if rule == "samples":
        return next(iter(leaves))
    losses = dict(zip(module.tree.leaves, _leaf_losses(module, samples, rule, seed).tolist(), strict=True))
    return max(leaves, key=losses.__getitem__)


def _leaf_losses(module: TreeVAEModule, samples: Samples, rule: str, seed: int) -> Tensor:
    """What each leaf, from left to right, adds to the loss, by reconstruction alone or by the whole ELBO."""
    nodes, generator = module.nodes, torch.Generator(samples.device).manual_seed(seed)

    def ask(part: Tensor) -> Tensor:
        found = descent.infer(nodes, module.d(part), descent.noise_for(nodes, len(part), generator))
        log_px, kl = descent.leaf_terms(nodes, found, part[None])
        loss = -log_px if rule == "reconstruction" else kl - log_px
        return (loss * descent.log_reach(nodes, found.logit_q)[nodes.layout.leaf_rows].exp()).T

    return over(module, samples, ask).sum(0)[nodes.layout.shown_leaves]


# -- candidates -------------------------------------------------------------------------------------------------------


def compare(
    objective: ElboObjective, samples: Samples, stage: Stage, leaf: int | None, seed: int, plan: Plan
) -> CandidatesCompared:
    """The candidate that is best by the plan's rule on the objective's samples, among those that did not collapse.

    The router's sureness tells most of whether a split follows the classes; where all are sure, the loss tells which of
    several sharp splits comes first in the hierarchy (docs/spread.md).
    """
    weight = 1.0 if plan.candidate_rule in ("elbo", "held_out") else stage.kl_weight(stage.epochs - 1)
    losses = evaluate(objective, samples, weight, seed)
    right = objective.right()
    goes, unsure = (right > 0.5).to(right.dtype).mean(1), torch.minimum(right, 1 - right).mean(1)
    smaller = torch.minimum(goes, 1 - goes)  # not the mean of right: one that is equally unsure of all parts nothing
    scores = {"confidence": 1 - unsure, "agreement": _agreement(right)}.get(plan.candidate_rule, -losses)
    alive = smaller >= plan.min_share
    if plan.candidate_rule == "loss_if_sure" and alive.any():
        alive &= unsure <= sure_enough(float(unsure[alive].min()))
    ranked = torch.where(alive, scores, -torch.inf) if alive.any() else scores
    return CandidatesCompared(
        leaf=leaf,
        losses=tuple(losses.tolist()),
        smaller_shares=tuple(smaller.tolist()),
        unsure=tuple(unsure.tolist()),
        scores=tuple(scores.tolist()),
        chosen=int(ranked.argmax()),
    )


def sure_enough(least: float) -> float:
    """How unsure a candidate may be to be kept by its loss, where the surest is unsure to this degree."""
    return max(1.2 * least, 1e-4)


def _agreement(right: Tensor) -> Tensor:
    """The mean share of the samples that another candidate parts alike, left and right perhaps exchanged."""
    sides = (right > 0.5).to(right.dtype)
    same = sides @ sides.T + (1 - sides) @ (1 - sides).T
    alike = torch.maximum(same, right.shape[1] - same) / right.shape[1]
    return (alike.sum(1) - 1) / max(len(right) - 1, 1)


# -- gains and costs, in nats per training sample ---------------------------------------------------------------------


def split_gain(objective: SubtreeOnSubset, samples: Samples, kl_weight: float, seed: int, candidate: int) -> float:
    """How much the loss of all samples falls when a leaf is replaced by one of its trained subtrees."""
    after = evaluate(objective, samples, kl_weight, seed)[candidate]
    before = mean_over(objective, samples, seed, objective.unsplit)[0]
    return float(before - after) * objective.n_samples[0] / len(samples)


def tree_loss(module: TreeVAEModule, samples: Samples, kl_weight: float, seed: int) -> float:
    """The mean loss of a whole tree."""
    return float(evaluate(WholeTree(module, samples), samples, kl_weight, seed)[0])


def removal_costs(
    module: TreeVAEModule, samples: Samples, loss: float, kl_weight: float, seed: int
) -> dict[int, float]:
    """For each leaf whose sibling is a leaf: how much the loss rises when the sibling takes its samples, untrained."""
    tree, costs = module.tree, {}
    for parent in (node for level in tree.levels for node in level):
        children = tree.children(parent)
        if len(children) == 2 and all(tree.is_leaf(child) for child in children):
            for leaf in children:
                without = TreeVAEModule.of([(module, 0)])
                without.prune(leaf)
                costs[leaf] = tree_loss(without, samples, kl_weight, seed) - loss
    return costs


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
