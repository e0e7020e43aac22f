"""What training tells while it runs. Whoever listens decides what to show, keep or ignore.

An event is made of numbers, texts and trees' shapes, so that it can be kept, written down and sent anywhere.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import MISSING, dataclass, field, fields
from typing import Any

from ..model.contrastive import CONTRASTS
from ..tree import Tree


@dataclass(frozen=True, kw_only=True)
class Event:
    """Something that happened in a run."""

    seed: Any = field(default=None, compare=False)  # the random_state of the run; None where it has none

    def to_dict(self) -> dict[str, Any]:
        """The event as JSON-able values, as ``history_`` has it; the seed is the model's own and left out."""
        told = {one.name: _plain(getattr(self, one.name)) for one in fields(self) if one.name != "seed"}
        return {"event": type(self).__name__, **told}


@dataclass(frozen=True)
class EpochEnded(Event):
    """Means over an epoch; the terms are in nats per sample, as the training saw them (a subtree's are its share)."""

    stage: str
    leaf: int | None  # the leaf whose children are trained, in a subtree stage
    epoch: int  # from 1
    epochs: int
    kl_weight: float
    learning_rate: float
    reconstruction: float
    kl_root: float
    kl_nodes: float
    kl_decisions: float
    progress: float  # share of all expected work that is done, 0 to 1
    samples: int | None = None  # that the stage trains on; earlier versions did not tell
    more: Mapping[str, float] = field(default_factory=dict)  # parts of what is added to the ELBO, without their weights

    @property
    def contrast_bottom_up(self) -> float | None:
        """The part of a contrastive loss that the bottom-up has, where there is one."""
        return self.more.get("contrast_bottom_up")

    @property
    def contrast_routers(self) -> float | None:
        """The part of a contrastive loss that the routers have, where there is one."""
        return self.more.get("contrast_routers")

    def to_dict(self) -> dict[str, Any]:
        """As of all events, with the parts that were added beside the ELBO's terms."""
        told = super().to_dict()
        del told["more"]
        return told | dict.fromkeys(CONTRASTS) | dict(self.more)

    @property
    def kl(self) -> float:
        """The sum of the three divergences."""
        return self.kl_root + self.kl_nodes + self.kl_decisions

    @property
    def elbo(self) -> float:
        """The ELBO at a KL weight of 1, in the model's units."""
        return self.reconstruction - self.kl_root - self.kl_nodes - self.kl_decisions

    @property
    def loss(self) -> float:
        """What the epoch minimised, but for terms beside the ELBO."""
        return self.kl_weight * self.kl - self.reconstruction

    @property
    def summary(self) -> str:
        """What the loss is made of, in short."""
        return f"rec {self.reconstruction:.1f}  KL {self.kl:.1f} × {self.kl_weight:.3f}"


@dataclass(frozen=True)
class EmbeddingEpochEnded(Event):
    """Means over an epoch of an autoencoder whose embedding is clustered; before it is, of the reconstruction alone."""

    stage: str
    epoch: int  # from 1
    epochs: int
    leaves: int
    progress: float  # share of all work that is done, 0 to 1
    reconstruction: float
    centre: float | None = None
    compression: float | None = None

    @property
    def summary(self) -> str:
        """What the loss is made of, in short."""
        terms = {"reconstruction": self.reconstruction, "centre": self.centre, "compression": self.compression}
        return "  ".join(f"{name} {value:.3f}" for name, value in terms.items() if value is not None)


@dataclass(frozen=True)
class LeafChosen(Event):
    """A leaf is about to be split."""

    leaf: int
    samples: int  # that it is split by
    uncounted: int = 0  # leaves of the tree with too few samples to count towards those asked for


@dataclass(frozen=True)
class CandidatesCompared(Event):
    """Several candidates were trained for a split; the best that did not collapse, and is sure enough, is kept.

    In a race it is told at the end of each heat, of the candidates that were left.
    """

    leaf: int | None  # None: the first tree
    losses: tuple[float, ...]  # mean loss at the KL weight the stage ended with; the lowest that may be kept is
    smaller_shares: tuple[float, ...]  # of the samples, that the smaller child wins
    unsure: tuple[float, ...]  # mean probability of the side that a sample does not take, up to 1/2
    chosen: int
    kept: tuple[int, ...] = ()  # in a race those that go on, the best first; none where only the one chosen is kept

    def to_dict(self) -> dict[str, Any]:
        """As of all events; without a race nothing is told of it."""
        told = super().to_dict()
        if not self.kept:
            del told["kept"]
        return told


@dataclass(frozen=True)
class GuideMade(Event):
    """A cheap clustering that the tree may begin with."""

    name: str
    leaves: int
    known: float  # the share of the samples that it has a label for
    agreement: float  # nats that a sample's group tells of its neighbours' groups; the most is taken, but see told.py


@dataclass(frozen=True)
class TreeChanged(Event):
    """The model has another tree."""

    tree: Tree


@dataclass(frozen=True)
class LeafPruned(Event):
    """A leaf that won too few samples was removed."""

    leaf: int
    share: float


@dataclass(frozen=True)
class LeafDied(Event):
    """A leaf that got too few samples, or none at the end, was removed."""

    leaf: int


EVENTS: dict[str, type[Event]] = {
    kind.__name__: kind
    for kind in (
        EpochEnded,
        EmbeddingEpochEnded,
        LeafChosen,
        CandidatesCompared,
        GuideMade,
        TreeChanged,
        LeafPruned,
        LeafDied,
    )
}


def from_dict(told: Mapping[str, Any]) -> Event:
    """The event that :meth:`Event.to_dict` told of."""
    values = dict(told)
    kind = EVENTS.get(values.pop("event"))
    if kind is None:
        raise ValueError(f"the history has an entry that is no event of training: {str(told)[:80]}")
    known = {one.name: one for one in fields(kind) if one.name not in ("seed", "more")}  # of which no file tells
    needed, more = {name for name, one in known.items() if one.default is MISSING}, dict[str, Any]()
    if kind is EpochEnded:  # what is not its own is a part of what was added to the ELBO
        parts = {name: value for name, value in values.items() if name not in known and name != "more"}
        more = {name: value for name, value in parts.items() if _is_number(value)}
        values = {name: value for name, value in values.items() if name not in more | dict.fromkeys(CONTRASTS)}
    if values.keys() - known or needed - values.keys():
        raise ValueError(f"the history has a {kind.__name__} with other entries than it must have: {sorted(values)}")
    if kind is TreeChanged:
        return TreeChanged(Tree.from_json(values["tree"]))
    values = {name: tuple(value) if isinstance(value, list) else value for name, value in values.items()}
    return EpochEnded(**values, more=more) if kind is EpochEnded else kind(**values)


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


def _plain(value: Any) -> Any:
    if isinstance(value, Tree):
        return value.to_json()
    return list(value) if isinstance(value, tuple) else value
