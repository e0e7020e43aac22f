"""What is added to the ELBO's loss: today the contrast of two views (section 2.6)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any, ClassVar, NamedTuple, Protocol

from torch import Tensor

from ..model.contrastive import CONTRASTS, VARIANTS, contrast
from ..model.layout import Layout


class Pass(NamedTuple):
    """What a term sees of a step: the samples' way down the trees."""

    layout: Layout
    logits: Tensor  # of going right: (router, batch)
    log_reach: Tensor  # of the routers: (router, batch)
    projections: Sequence[Tensor] | None  # by depth, (tree, batch, features); None where the bottom-up is not trained


class Term(Protocol):
    """Something that a stage minimises beside the ELBO. A plain dataclass, so that a plan can be written down."""

    names: ClassVar[tuple[str, ...]]  # of its parts
    views: ClassVar[int]  # of each sample that it needs in a step

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


KINDS: dict[str, type[Contrast]] = {kind.__name__: kind for kind in (Contrast,)}  # that a plan in a file may have


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
