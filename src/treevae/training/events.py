"""What training tells while it runs. Whoever listens decides what to show, keep or ignore."""

from __future__ import annotations

from dataclasses import dataclass

from ..model.module import TreeVAEModule
from ..tree import Tree


@dataclass(frozen=True)
class EpochEnded:
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
    contrast_bottom_up: float | None = None  # the two parts of a contrastive loss, without their weight
    contrast_routers: float | None = None

    @property
    def summary(self) -> str:
        """What the loss is made of, in short."""
        kl = self.kl_root + self.kl_nodes + self.kl_decisions
        return f"rec {self.reconstruction:.1f}  KL {kl:.1f} × {self.kl_weight:.3f}"


@dataclass(frozen=True)
class EmbeddingEpochEnded:
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
class LeafChosen:
    """A leaf is about to be split."""

    leaf: int
    samples: int  # that it is split by
    uncounted: int = 0  # leaves of the tree with too few samples to count towards those asked for


@dataclass(frozen=True)
class CandidatesCompared:
    """Several candidates were trained for a split; the best that did not collapse, and is sure enough, is kept."""

    leaf: int | None  # None: the first tree
    losses: tuple[float, ...]  # mean loss at the KL weight the stage ended with; the lowest that may be kept is
    smaller_shares: tuple[float, ...]  # of the samples, that the smaller child wins
    unsure: tuple[float, ...]  # mean probability of the side that a sample does not take, up to 1/2
    chosen: int


@dataclass(frozen=True)
class TreeChanged:
    """The model has another tree; the module is whole and usable."""

    module: TreeVAEModule
    tree: Tree


@dataclass(frozen=True)
class LeafPruned:
    """A leaf that won too few samples was removed."""

    leaf: int
    share: float


@dataclass(frozen=True)
class LeafDied:
    """A leaf that got too few samples, or none at the end, was removed."""

    leaf: int


Event = EpochEnded | EmbeddingEpochEnded | LeafChosen | CandidatesCompared | TreeChanged | LeafPruned | LeafDied
