"""The schedule as data: what is trained, for how long, with which weight on the KL (the paper's appendix E.1)."""

from __future__ import annotations

from dataclasses import dataclass
from math import ceil
from typing import NamedTuple

from ..tree import Tree

PAPER_EPOCHS = 150  # of a growth stage; every other length below is given for this one
LEAF_RULES = ("samples", "reconstruction", "elbo")


@dataclass(frozen=True)
class Stage:
    """One run of the training loop, with a fresh optimiser."""

    name: str
    epochs: int
    kl_step: float  # added to the KL weight after every epoch
    learning_rate: float
    drop_after: int  # epochs after which the learning rate is a tenth, and a tenth of that after as many again
    kl_start: float = 0.0
    kl_max: float = 1.0
    weight_decay: float = 1e-5  # L2

    def kl_weight(self, epoch: int) -> float:
        """The weight of the KL in an epoch, counted from 0."""
        return min(self.kl_start + self.kl_step * epoch, self.kl_max)

    def rate(self, epoch: int) -> float:
        """The learning rate of an epoch, counted from 0."""
        return self.learning_rate * 0.1 ** (epoch // self.drop_after)


class Contrast(NamedTuple):
    """A contrastive loss beside the ELBO's."""

    variant: str  # one of contrastive.VARIANTS
    weight: float


@dataclass(frozen=True)
class Plan:
    """All stages of growing a tree, and the rules between them."""

    first: Stage  # root and two leaves
    subtree: Stage  # each later split
    whole: Stage | None  # the whole tree, after every ``whole_every``-th split
    final: Stage | None  # the whole tree, at the end
    whole_every: int = 3
    n_leaves: int = 10
    batch_size: int = 256  # rows in a step: samples, or views of them
    n_init: int = 1  # candidates for the first tree and for every split
    leaf_rule: str = "samples"  # which leaf is split: most samples, or most loss
    contrastive_weight: float = 0.0
    contrastive_loss: str = "both"
    min_share: float = 0.05  # of the samples, for the smaller child: a candidate below this has collapsed
    min_leaf: float = 0.01  # of the samples: a leaf below this does not count, and is pruned at the end

    @property
    def samples_per_step(self) -> int:
        """Samples whose views make a batch: a contrastive loss sees each of them twice."""
        return self.batch_size if self.contrast is None else self.batch_size // 2

    @property
    def contrast(self) -> Contrast | None:
        """The contrastive loss, if it counts."""
        return Contrast(self.contrastive_loss, self.contrastive_weight) if self.contrastive_weight > 0 else None

    @classmethod
    def paper(
        cls,
        epochs: int = PAPER_EPOCHS,
        n_leaves: int = 10,
        batch_size: int = 256,
        n_init: int = 1,
        leaf_rule: str = "samples",
        learning_rate: float = 1e-3,
        contrastive_weight: float = 0.0,
        contrastive_loss: str = "both",
    ) -> Plan:
        """The paper's recipe; other numbers of epochs keep its proportions and the KL weights that stages end with.

        With a contrastive loss the KL weight rises tenfold faster, and the whole tree is never trained again: the
        losses of the routers are local, so that a split needs no correction by others.
        """
        scale, contrastive = epochs / PAPER_EPOCHS, contrastive_weight > 0

        def stage(name: str, length: int, kl_step: float) -> Stage:
            epochs_here = max(1, round(length * scale))
            return Stage(
                name,
                epochs_here,
                kl_step=kl_step / scale,
                kl_start=kl_step / scale if contrastive else 0.0,
                learning_rate=learning_rate,
                drop_after=max(round(100 * scale), ceil(epochs_here / 2)),  # once in any stage
            )

        return cls(
            first=stage("first tree", PAPER_EPOCHS, 0.01 if contrastive else 0.001),
            subtree=stage("subtree", PAPER_EPOCHS, 0.01 if contrastive else 0.001),
            whole=None if contrastive else stage("whole tree", 80, 0.001),
            final=None if contrastive else stage("final", 200, 0.01),
            n_leaves=n_leaves,
            batch_size=batch_size,
            n_init=n_init,
            leaf_rule=leaf_rule,
            contrastive_weight=contrastive_weight,
            contrastive_loss=contrastive_loss,
        )


NEARLY = 0.99  # of the work, when all that was expected is done


class Work:
    """How much of a plan is done, in units of one decoder's pass over all samples: the base of "time left"."""

    def __init__(self, plan: Plan, tree: Tree | None) -> None:
        self.done = 0.0
        n_leaves = plan.n_leaves if tree is None else len(tree.leaves)
        first_leaves = 2 * plan.n_init if tree is None else n_leaves
        total = plan.first.epochs * self.epoch(first_leaves)
        for k in range(2, n_leaves if tree is None else 2):  # the split that makes k leaves k + 1
            total += plan.subtree.epochs * self.epoch(2 * plan.n_init, share=min(1.0, 1.5 / k))
            if plan.whole is not None and (k - 1) % plan.whole_every == 0:
                total += plan.whole.epochs * self.epoch(k + 1)
        if plan.final is not None:
            total += plan.final.epochs * self.epoch(n_leaves)
        self._total = total

    @staticmethod
    def epoch(leaves: int, share: float = 1.0) -> float:
        """The work of an epoch with this many decoders on this share of the samples."""
        return (1 + leaves) * share

    def add(self, work: float) -> float:
        """Count work as done; the share of the whole that is done now, which is never all: some trees take more."""
        self.done += work
        return min(self.done / self._total, NEARLY)
