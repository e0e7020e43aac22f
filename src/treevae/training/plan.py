"""The schedule as data: what is trained, for how long, with which weight on the KL (the paper's appendix E.1)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, fields, replace
from math import ceil
from typing import Any

from ..tree import Tree
from . import terms
from .terms import Agreement, Contrast, Guidance, Term

PAPER_EPOCHS = 150  # of a growth stage; every other length below is given for this one
TREE, CHILDREN = "tree", "children"
FIRST_TREE = "first tree"  # the stage of a tree that grows
PARTS = (TREE, CHILDREN)  # what a stage trains: all networks of a tree, or those of the new children of a leaf
GONE = {"candidate_rule", "held_out", "repairs"}  # what plans of earlier versions had, and no result depends on now


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
    trains: str = TREE  # one of PARTS
    terms: tuple[Term, ...] = ()  # minimised beside the ELBO

    def __post_init__(self) -> None:
        if self.trains not in PARTS:
            raise ValueError(f"trains={self.trains!r}; allowed are {', '.join(map(repr, PARTS))}")
        if self.drop_after < 1:
            raise ValueError(f"drop_after={self.drop_after} of stage {self.name!r} must be at least 1")

    def kl_weight(self, epoch: int) -> float:
        """The weight of the KL in an epoch, counted from 0."""
        return min(self.kl_start + self.kl_step * epoch, self.kl_max)

    def rate(self, epoch: int) -> float:
        """The learning rate of an epoch, counted from 0."""
        return self.learning_rate * 0.1 ** (epoch // self.drop_after)

    @property
    def pairs(self) -> bool:
        """Whether a step compares samples with their neighbours."""
        return any(term.pairs for term in self.terms)

    @property
    def views(self) -> int:
        """Of each sample that a step needs."""
        return max((term.views for term in self.terms), default=1)


@dataclass(frozen=True)
class Plan:
    """All stages of growing a tree, and the rules between them."""

    first: Stage  # root and two leaves
    subtree: Stage | None  # each later split; None where nothing is split
    whole: Stage | None  # the whole tree, after every ``whole_every``-th split
    final: Stage | None  # the whole tree, at the end
    whole_every: int = 3
    n_leaves: int = 10
    batch_size: int = 256  # rows in a step: samples, or views of them
    n_init: int = 1  # candidates for the first tree and for every split
    leaf_rule: str = "samples"  # which leaf is split: most samples, or most loss
    min_share: float = 0.05  # of the samples, for the smaller child: a candidate below this has collapsed
    min_leaf: float = 0.01  # of the samples: a leaf below this does not count, and is pruned at the end
    race: tuple[float, ...] = ()  # shares of a stage after which the worse half of its candidates leaves

    def __post_init__(self) -> None:
        stages = [stage for stage in (self.first, self.subtree, self.whole, self.final) if stage is not None]
        if len({stage.name for stage in stages}) < len(stages):
            raise ValueError(f"stages have the same name: {', '.join(stage.name for stage in stages)}")
        if wrong := [stage.name for stage in stages if (stage.trains == CHILDREN) != (stage is self.subtree)]:
            raise ValueError(f"stage {wrong[0]!r} trains the wrong part; {CHILDREN!r} are those of a subtree")
        if self.samples_per_step < 1:
            raise ValueError(f"batch_size={self.batch_size} is less than the views of one sample")
        if not all(0 < share < 1 for share in self.race) or list(self.race) != sorted(self.race):
            raise ValueError(f"race={self.race!r} must be shares of a stage, between 0 and 1, the smallest first")

    @property
    def stages(self) -> dict[str, Stage]:
        """The stages that there are, by their names."""
        stages = (self.first, self.subtree, self.whole, self.final)
        return {stage.name: stage for stage in stages if stage is not None}

    @property
    def samples_per_step(self) -> int:
        """Samples whose views make a batch."""
        return self.batch_size // max(stage.views for stage in self.stages.values())

    def heat(self, stage: Stage, first: int, candidates: int) -> tuple[int, int]:
        """Until which epoch so many candidates are trained from an epoch of a stage on, and how many then go on."""
        ends = [max(1, round(share * stage.epochs)) for share in self.race] if candidates > 1 else []
        last = min((end for end in ends if end > first), default=stage.epochs)
        return (stage.epochs, 1) if last >= stage.epochs else (last, ceil(candidates / 2 ** ends.count(last)))

    @classmethod
    def paper(
        cls,
        epochs: int = PAPER_EPOCHS,
        n_leaves: int = 10,
        batch_size: int = 256,
        n_init: int = 1,
        leaf_rule: str = "samples",
        learning_rate: float = 1e-3,
        contrast: Contrast | None = None,
        agreement: float = 0.0,
    ) -> Plan:
        """The paper's recipe; other numbers of epochs keep its proportions and the KL weights that stages end with.

        With a contrastive loss the KL weight rises tenfold faster, and the whole tree is never trained again: the
        losses of the routers are local, so that a split needs no correction by others. ``agreement`` is the weight of
        that of neighbours, which the paper does not have.
        """
        scale = epochs / PAPER_EPOCHS
        beside = _beside(contrast, agreement)

        def stage(name: str, length: int, kl_step: float, trains: str = TREE) -> Stage:
            epochs_here = max(1, round(length * scale))
            return Stage(
                name,
                epochs_here,
                kl_step=kl_step / scale,
                kl_start=0.0 if contrast is None else kl_step / scale,
                learning_rate=learning_rate,
                drop_after=max(round(100 * scale), ceil(epochs_here / 2)),  # once in any stage
                trains=trains,
                terms=beside,
            )

        return cls(
            first=stage(FIRST_TREE, PAPER_EPOCHS, 0.001 if contrast is None else 0.01),
            subtree=stage("subtree", PAPER_EPOCHS, 0.001 if contrast is None else 0.01, CHILDREN),
            whole=stage("whole tree", 80, 0.001) if contrast is None else None,
            final=stage("final", 200, 0.01) if contrast is None else None,
            n_leaves=n_leaves,
            batch_size=batch_size,
            n_init=n_init,
            leaf_rule=leaf_rule,
        )

    @classmethod
    def guided(
        cls,
        epochs: int,
        n_leaves: int,
        batch_size: int,
        guidance: float,
        agreement: float,
        learning_rate: float = 1e-3,
        first: float = 0.3,
        contrast: Contrast | None = None,
    ) -> Plan:
        """A tree that a guide gives: in the first part of the epochs the routers also learn its labels.

        The KL weight reaches 1 after two thirds, the learning rate is a tenth in the last fifth.

        Parameters
        ----------
        guidance : float
            Weight of the labels, at first.
        agreement : float
            Weight of the agreement of neighbours, to the end; 0 for none.
        first : float
            The first part's share of the epochs.
        """
        kl_step, n_first = 1.5 / epochs, max(1, round(first * epochs))
        beside = _beside(contrast, agreement)

        def stage(name: str, begin: int, end: int, *terms: Term) -> Stage:
            n = max(1, end - begin)
            drop = max(1, round(0.8 * epochs) - begin)
            return Stage(name, n, kl_step, learning_rate, drop, kl_start=kl_step * begin, terms=(*terms, *beside))

        return cls(
            first=stage("guided", 0, n_first, Guidance(guidance, n_first)),
            subtree=replace(stage("subtree", 0, epochs), trains=CHILDREN),
            whole=None,
            final=stage("final", n_first, epochs) if epochs > n_first else None,
            n_leaves=n_leaves,
            batch_size=batch_size,
            min_leaf=0.0,
        )

    def to_dict(self) -> dict[str, Any]:
        """The plan as JSON-able values."""
        told = {field.name: getattr(self, field.name) for field in fields(self)}
        told["race"] = list(self.race)
        if not self.race:  # as earlier versions told of a plan, so that one goes on with their runs
            del told["race"]
        return {name: _stage_to_dict(value) if isinstance(value, Stage) else value for name, value in told.items()}

    @classmethod
    def from_dict(cls, told: Mapping[str, Any]) -> Plan:
        """The plan that :meth:`to_dict`, or an earlier version, told of."""
        values = {name: value for name, value in told.items() if name not in GONE}
        weight, variant = values.pop("contrastive_weight", 0.0), values.pop("contrastive_loss", "both")
        if unknown := values.keys() - {field.name for field in fields(cls)}:
            raise ValueError(f"unknown keys {sorted(unknown)} for {cls.__name__}")
        of_all = {"terms": [terms.to_dict(Contrast(variant, weight))] if weight > 0 else []}
        parts = {name: {"trains": CHILDREN if name == "subtree" else TREE} for name in values}
        stages = {
            name: _stage_from_dict(of_all | parts[name] | part)
            for name, part in values.items()
            if isinstance(part, dict)
        }
        return cls(**values | stages | {"race": tuple(values.get("race", ()))})


def _beside(contrast: Contrast | None, agreement: float) -> tuple[Term, ...]:
    """What all stages of a plan minimise beside the ELBO."""
    terms: list[Term] = [] if contrast is None else [contrast]
    return (*terms, *([Agreement(agreement)] if agreement > 0 else []))


def _stage_to_dict(stage: Stage) -> dict[str, Any]:
    told = {field.name: getattr(stage, field.name) for field in fields(stage)}
    return told | {"terms": [terms.to_dict(term) for term in stage.terms]}


def _stage_from_dict(told: Mapping[str, Any]) -> Stage:
    if unknown := told.keys() - {field.name for field in fields(Stage)}:
        raise ValueError(f"unknown keys {sorted(unknown)} for a stage")
    return Stage(**dict(told) | {"terms": tuple(terms.from_dict(term) for term in told["terms"])})


NEARLY = 0.99  # of the work, when all that was expected is done


class Work:
    """How much of a plan is done, in units of one decoder's pass over all samples: the base of "time left"."""

    def __init__(self, plan: Plan, tree: Tree | None) -> None:
        self.done = 0.0
        n_leaves = plan.n_leaves if tree is None else len(tree.leaves)
        grows = tree is None and plan.first.name == FIRST_TREE
        total = self._race(plan, plan.first) if grows else plan.first.epochs * self.epoch(n_leaves)
        for k in range(2, n_leaves if grows else 2):  # the split that makes k leaves k + 1
            if plan.subtree is not None:
                total += self._race(plan, plan.subtree, share=min(1.0, 1.5 / k))
            if plan.whole is not None and (k - 1) % plan.whole_every == 0:
                total += plan.whole.epochs * self.epoch(k + 1)
        if plan.final is not None:
            total += plan.final.epochs * self.epoch(n_leaves)
        self._total = total

    def _race(self, plan: Plan, stage: Stage, share: float = 1.0) -> float:
        """The work of a stage with candidates, of two leaves each."""
        total, first, candidates = 0.0, 0, plan.n_init
        while first < stage.epochs:
            last, keep = plan.heat(stage, first, candidates)
            total += (last - first) * self.epoch(2 * candidates, share)
            first, candidates = last, keep
        return total

    @staticmethod
    def epoch(leaves: int, share: float = 1.0) -> float:
        """The work of an epoch with this many decoders on this share of the samples."""
        return (1 + leaves) * share

    def add(self, work: float) -> float:
        """Count work as done; the share of the whole that is done now, which is never all: some trees take more."""
        self.done += work
        return min(self.done / self._total, NEARLY)
