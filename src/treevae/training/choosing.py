"""The decisions between the stages of growing: which leaf to split, which candidate to keep, what to prune."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Protocol

import torch
from torch import Tensor

from ..model import descent
from ..model.module import TreeVAEModule
from .events import CandidatesCompared, Event, LeafPruned, TreeChanged
from .loop import evaluate
from .objectives import ElboObjective, Weigh
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


BestLeaf = Callable[[TreeVAEModule, Samples, Mapping[int, Tensor], int], int]


def with_most_samples(module: TreeVAEModule, samples: Samples, leaves: Mapping[int, Tensor], seed: int) -> int:
    """The leaf with most samples, out of those that can be split; the paper's choice."""
    return next(iter(leaves))


def with_most_reconstruction(module: TreeVAEModule, samples: Samples, leaves: Mapping[int, Tensor], seed: int) -> int:
    """The leaf that adds most to the reconstruction loss."""
    return _largest(leaves, module, _leaf_losses(module, samples, False, seed))


def with_most_loss(module: TreeVAEModule, samples: Samples, leaves: Mapping[int, Tensor], seed: int) -> int:
    """The leaf that adds most to the negative ELBO."""
    return _largest(leaves, module, _leaf_losses(module, samples, True, seed))


LEAF_RULES: dict[str, BestLeaf] = {
    "samples": with_most_samples,
    "reconstruction": with_most_reconstruction,
    "elbo": with_most_loss,
}


def _largest(leaves: Mapping[int, Tensor], module: TreeVAEModule, losses: Tensor) -> int:
    by_leaf = dict(zip(module.tree.leaves, losses.tolist(), strict=True))
    return max(leaves, key=by_leaf.__getitem__)


def _leaf_losses(module: TreeVAEModule, samples: Samples, with_kl: bool, seed: int) -> Tensor:
    """What each leaf, from left to right, adds to the loss, by reconstruction alone or by the whole ELBO."""
    nodes, generator = module.nodes, torch.Generator(samples.device).manual_seed(seed)

    def ask(part: Tensor) -> Tensor:
        descended = descent.infer(nodes, module.d(part), descent.noise_for(nodes, len(part), generator))
        log_px, kl = descent.leaf_terms(nodes, descended, part[None])
        loss = kl - log_px if with_kl else -log_px
        return (loss * descent.log_reach(nodes, descended.logit_q)[nodes.layout.leaf_rows].exp()).T

    return over(module, samples, ask).sum(0)[nodes.layout.shown_leaves]


# -- candidates -------------------------------------------------------------------------------------------------------


def compare(
    objective: ElboObjective, samples: Samples, stage: Stage, leaf: int | None, seed: int, plan: Plan, keep: int = 1
) -> CandidatesCompared:
    """The candidate with the lowest loss among the surest of those that did not collapse.

    The router's sureness tells most of whether a split follows the classes; where all are sure, the loss tells which of
    several sharp splits comes first in the hierarchy (docs/evidence/spread.md).
    """
    losses = evaluate(objective, samples, stage.kl_weight(stage.epochs - 1), seed)
    right = objective.right()
    goes, unsure = (right > 0.5).to(right.dtype).mean(1), torch.minimum(right, 1 - right).mean(1)
    smaller = torch.minimum(goes, 1 - goes)  # not the mean of right: one that is equally unsure of all parts nothing
    left, order = torch.ones_like(smaller, dtype=torch.bool), list[int]()
    while len(order) < keep:  # the best; then the best of the others
        among = left & (smaller >= plan.min_share)
        if among.any():
            among &= unsure <= sure_enough(float(unsure[among].min()))
        order.append(int(torch.where(among if among.any() else left, losses, torch.inf).argmin()))
        left[order[-1]] = False
    return CandidatesCompared(
        leaf=leaf,
        losses=tuple(losses.tolist()),
        smaller_shares=tuple(smaller.tolist()),
        unsure=tuple(unsure.tolist()),
        chosen=order[0],
        kept=tuple(order) if keep > 1 else (),
    )


def sure_enough(least: float) -> float:
    """How unsure a candidate may be to be kept by its loss, where the surest is unsure to this degree."""
    return max(1.2 * least, 1e-4)


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
        yield TreeChanged(module.tree)


# -- what an experiment may exchange ---------------------------------------------------------------------------------


class Compare(Protocol):
    """Judges the candidates of a stage, or of a heat, and keeps the best."""

    def __call__(
        self,
        objective: ElboObjective,
        samples: Samples,
        stage: Stage,
        leaf: int | None,
        seed: int,
        plan: Plan,
        keep: int = 1,
    ) -> CandidatesCompared:
        """What was told of each candidate, and which is kept: of a heat's, whose stage ends with it, so many."""


@dataclass(frozen=True)
class Choices:
    """What an experiment may exchange for something of its own; the defaults are treevae's."""

    best_leaf: BestLeaf | None = None  # by default the plan's rule
    compare: Compare = compare
    weigh: Weigh | None = None  # what samples of a subtree count for; by default the probability that they come there

    def leaf(self, plan: Plan) -> BestLeaf:
        """How the leaf to split is chosen."""
        return self.best_leaf or LEAF_RULES[plan.leaf_rule]
