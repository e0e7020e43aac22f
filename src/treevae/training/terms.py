"""What is added to the ELBO's loss: the contrast of views (section 2.6), neighbours that agree, a guide's labels."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any, ClassVar, NamedTuple, Protocol

import torch
from torch import Tensor

from ..model.contrastive import CONTRASTS, VARIANTS, contrast
from ..model.layout import Layout


class Pass(NamedTuple):
    """What a term sees of a step: the samples' way down the trees."""

    layout: Layout
    logits: Tensor  # of going right: (router, batch)
    log_reach: Tensor  # of the routers: (router, batch)
    projections: Sequence[Tensor] | None  # by depth, (tree, batch, features); None where the bottom-up is not trained
    log_leaves: Tensor  # of each tree's leaves, from left to right: (tree, leaf, batch); -inf where a tree has fewer
    log_leaves_of_pair: Tensor | None = None  # of a neighbour of each sample, where a term compares the two
    log_shares: Tensor | None = None  # of all samples, that the leaves have: (tree, leaf); with neighbours
    labels: Tensor | None = None  # the leaves that a guide names: (tree, batch); -1 where it names none


class Term(Protocol):
    """Something that a stage minimises beside the ELBO. A plain dataclass, so that a plan can be written down."""

    names: ClassVar[tuple[str, ...]]  # of its parts
    views: ClassVar[int]  # of each sample that it needs in a step
    pairs: ClassVar[bool]  # whether it compares samples with their neighbours

    def weight_in(self, epoch: int) -> float:
        """Its weight in an epoch, counted from 0."""

    def loss(self, seen: Pass) -> Tensor:
        """Its parts for each tree, without the weight: (part, tree)."""


@dataclass(frozen=True)
class Contrast:
    """A contrastive loss: two views of a sample should take the same way."""

    variant: str  # one of contrastive.VARIANTS
    weight: float

    names: ClassVar[tuple[str, ...]] = CONTRASTS
    views: ClassVar[int] = 2
    pairs: ClassVar[bool] = False

    def __post_init__(self) -> None:
        if self.variant not in VARIANTS:
            raise ValueError(f"variant {self.variant!r} is none of the contrastive losses; choose one of {VARIANTS}")
        if not (isinstance(self.weight, int | float) and 0 < self.weight < float("inf")):
            raise ValueError(f"weight={self.weight!r} of a contrastive loss must be a positive number")

    def weight_in(self, epoch: int) -> float:
        """The same in all epochs."""
        return self.weight

    def loss(self, seen: Pass) -> Tensor:
        """The part of the bottom-up, then that of the routers; 0 where there is none: (2, tree)."""
        layout = seen.layout
        return contrast(
            self.variant, seen.projections, seen.logits, seen.log_reach, layout.tree_of_routers, len(layout.trees)
        )


@dataclass(frozen=True)
class Agreement:
    """Neighbours should fall into the same leaf: the pointwise mutual information of the two samples' leaves.

    It is log sum over leaves of (p p')^power / share, where p and p' are the two samples' probabilities of a leaf and
    the share is that of all samples. It asks for agreement and for using the leaves; at a power of 1 not for even ones.
    """

    weight: float
    power: float = 1.0

    names: ClassVar[tuple[str, ...]] = ("agreement",)
    views: ClassVar[int] = 1
    pairs: ClassVar[bool] = True

    def __post_init__(self) -> None:
        _check_positive(weight=self.weight, power=self.power)

    def weight_in(self, epoch: int) -> float:
        """The same in all epochs."""
        return self.weight

    def loss(self, seen: Pass) -> Tensor:
        """The negative of it, mean over samples: (1, tree)."""
        assert seen.log_leaves_of_pair is not None
        assert seen.log_shares is not None
        n = seen.log_leaves_of_pair.shape[2]  # of several views the first
        both = self.power * (seen.log_leaves[..., :n] + seen.log_leaves_of_pair)
        return -(both - seen.log_shares[..., None]).logsumexp(1).mean(1)[None]


@dataclass(frozen=True)
class Guidance:
    """The routers learn a guide's labels; the weight falls to 0 in so many epochs."""

    weight: float
    epochs: int

    names: ClassVar[tuple[str, ...]] = ("guidance",)
    views: ClassVar[int] = 1
    pairs: ClassVar[bool] = False

    def __post_init__(self) -> None:
        _check_positive(weight=self.weight, epochs=self.epochs)

    def weight_in(self, epoch: int) -> float:
        """Falls in a straight line."""
        return self.weight * max(0.0, 1 - epoch / self.epochs)

    def loss(self, seen: Pass) -> Tensor:
        """The sum of the cross-entropies on the way to a sample's leaf, mean over samples: (1, tree)."""
        assert seen.labels is not None
        known = seen.labels >= 0
        views = seen.log_leaves.shape[2] // seen.labels.shape[1]
        index, known = (part.repeat(1, views) for part in (seen.labels.clamp(min=0), known))
        of_label = seen.log_leaves.gather(1, index[:, None]).squeeze(1)
        return -torch.where(known, of_label, 0.0).mean(1)[None]


KINDS: dict[str, type[Contrast | Agreement | Guidance]] = {
    kind.__name__: kind for kind in (Contrast, Agreement, Guidance)
}  # that a plan in a file may have


def to_dict(term: Term) -> dict[str, Any]:
    """A term as JSON-able values."""
    return {"term": type(term).__name__, **asdict(term)}  # type: ignore[call-overload]


def from_dict(told: Mapping[str, Any]) -> Term:
    """The term that :func:`to_dict` told of."""
    values = dict(told)
    kind = values.pop("term")
    if kind not in KINDS:
        raise ValueError(f"there is no term {kind!r}; there are {', '.join(KINDS)}")
    return KINDS[kind](**values)


def _check_positive(**values: float) -> None:
    """Raise unless all of them are finite positive numbers."""
    for name, value in values.items():
        if isinstance(value, bool) or not (isinstance(value, int | float) and 0 < value < float("inf")):
            raise ValueError(f"{name}={value!r} must be a positive number")
