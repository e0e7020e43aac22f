"""DeepECT, the Deep Embedded Cluster Tree: an autoencoder whose embedding is bent to a tree of centres.

After Mautz, Plant and Böhm (2020), doi 10.1007/s41019-020-00134-0. Letters: B the samples of a batch and z_i their
embeddings; L the leaves, with centres μ_l that are learnt; B_n the samples of B whose nearest leaf lies below node n,
or is n; w_l the weight of a leaf, which halves at every step and gains half of |B_l|; N the nodes that have a sibling;
sg(·) what is taken as a constant. A node's centre m_n is the mean of the leaves below it,
Σ_l w_l sg(μ_l) / Σ_l w_l, and its direction is p_n = (m_n − m_sibling) / ‖m_n − m_sibling‖. A step minimises

    L_NC  = 1 / |L|       Σ_{l ∈ L, B_l not empty}  ‖ μ_l − 1 / |B_l| Σ_{i ∈ B_l} sg(z_i) ‖     moves the centres
    L_DC  = 1 / (|N| |B|) Σ_{n ∈ N} Σ_{i ∈ B_n}     | p_n · (z_i − m_n) |                        moves the encoder
    L_REC = 1 / (D |B|)   Σ_{i ∈ B}                 − log p(x_i | z_i)        D features; keeps the embedding honest

with equal weights. L_DC squeezes samples towards their node's centre only along the line to the sibling, so that what
tells deeper groups apart is kept. Public implementations differ in details, and docs/work/decisions.md
says what was chosen: ClustPy divides as here, but lets L_DC turn the leaves' centres too; another divides L_NC by the
leaves that have samples.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import torch
from sklearn.cluster import KMeans
from threadpoolctl import threadpool_limits
from torch import Tensor

from ..model.networks import Architecture
from ..training.engine import mixed
from ..training.events import EmbeddingEpochEnded, Event, LeafChosen, LeafDied
from ..training.growth import Saved
from ..training.loop import EpochDone, Training, below
from ..training.objectives import NoiseRows, OnSamples
from ..training.plan import Stage
from ..training.samples import LIGHT_CHUNK, Samples, over
from ..training.views import Augment, Views
from ..tree import Tree
from .autoencoder import Autoencoder, centre_loss, compression_loss, nearest, squared_sums

KMEANS_STARTS = 20  # of the 2-means that splits a leaf, ClustPy's number
SPLIT = -1  # what the seed is mixed with for it


@dataclass(frozen=True)
class Schedule:
    """What is trained for how long, and the rules of growing."""

    pretraining: Stage  # the autoencoder alone
    clustering: Stage  # with the tree
    n_leaves: int
    split_every: float  # epochs
    prune_below: float
    batch_size: int

    def splits_due(self, epoch: int, n_leaves: int) -> int:
        """How many leaves to split before an epoch, counted from 0; a single one always."""
        due = math.ceil((epoch + 1) / self.split_every) - math.ceil(epoch / self.split_every)  # multiples within it
        return min(max(due, n_leaves == 1), self.n_leaves - n_leaves)


class Losses(NamedTuple):
    """The loss of a step; its terms have equal weights."""

    values: Tensor  # (term, 1)

    def total(self, kl_weight: Tensor, term_weights: Tensor) -> Tensor:
        """Their sum."""
        return self.values.sum()

    def means(self) -> Tensor:
        """The terms."""
        return self.values.detach()


class Pretraining(OnSamples):
    """L_REC alone, of samples and of their augmented versions, if there are any."""

    n_trees = 1
    names: tuple[str, ...] = ("reconstruction",)

    def __init__(self, module: Autoencoder, samples: Samples, views: Views | None) -> None:
        super().__init__(samples, 1, views)
        self.network = module
        self.noise_rows: NoiseRows = []  # nothing is drawn

    def terms(self, index: Tensor, noise: Sequence[Tensor]) -> Losses:
        """Of a batch."""
        x = self._batch(index)
        return Losses(self.network.reconstruction_loss(x, self.network.embed(x)).reshape(1, 1))

    def _batch(self, index: Tensor) -> Tensor:
        """Samples (batch, feature), followed by their augmented versions."""
        (x,) = self._x[index]
        return x if self.views is None else torch.cat([x, self.views.held[0]])


class Clustering(Pretraining):
    """All three losses. A step also moves the centres, weighs the leaves and lets the lightest die."""

    names = ("reconstruction", "centre", "compression")

    def __init__(
        self, module: Autoencoder, samples: Samples, views: Views | None, rate: float, prune_below: float
    ) -> None:
        super().__init__(module, samples, views)  # the rate is of the centres, in all epochs
        self._rate, self._prune_below = rate, prune_below

    def terms(self, index: Tensor, noise: Sequence[Tensor]) -> Losses:
        """Of a batch; an augmented sample belongs to the leaf of the sample itself."""
        x, leaves = self._batch(index), self.network.leaves
        z, n = self.network.embed(x), index.shape[1]
        centres, weights = leaves.centres.clone().requires_grad_(), leaves.weights * leaves.alive
        leaf = nearest(z[:n], centres, leaves.alive).repeat(len(z) // n)
        centre = centre_loss(z, leaf, centres, leaves.alive)
        compression = compression_loss(z, leaf, centres, weights, leaves.below)
        (gradient,) = torch.autograd.grad(centre, [centres])
        leaves.move(gradient, self._rate)
        leaves.weigh(leaf[:n], self._prune_below)
        reconstruction = self.network.reconstruction_loss(x, z)
        return Losses(torch.stack([reconstruction, centre.detach(), compression])[:, None])


class EmbeddedGrowth:
    """One fit: two stages of the loop, splits between epochs of the second, and in the end no leaf without samples."""

    def __init__(
        self,
        arch: Architecture,
        samples: Samples,
        schedule: Schedule,
        augment: Augment | None,
        seeds: Sequence[int],
    ) -> None:
        (self._seed,) = seeds
        random = torch.Generator().manual_seed(self._seed)
        self.module = Autoencoder(arch, schedule.n_leaves, random).to(samples.device)
        self._samples, self._schedule, self._augment = samples, schedule, augment
        self._stages = (schedule.pretraining, schedule.clustering)
        self._at = 0  # the stage
        self._training: Training | None = None

    def events(self) -> Iterator[tuple[int, Event] | None]:
        """Train to the end, and tell what happens; None is a pause, in which :meth:`state` is whole."""
        while self._at < len(self._stages):
            stage = self._stages[self._at]
            if self._training is None:
                self._training = self._begin()
                yield from self._grow(0)
                yield None
            for done in self._training.run():
                if done is None:
                    yield None
                    continue
                for leaf in self.module.leaves.dead():
                    self.module.leaves.prune(leaf)
                    yield 0, LeafDied(leaf)
                yield 0, self._epoch_ended(stage, done)
                if not done.last:
                    yield from self._grow(done.epoch + 1)
            self._training = None
            self._stand_at(self._at + 1)
            if self._at == len(self._stages):
                yield from self._prune_empty()

    def state(self) -> Saved:
        """What :meth:`restore` needs, as JSON-able values and tensors; only in a pause."""
        leaves = self.module.leaves
        about: dict[str, Any] = {
            "stage": self._at,
            "tree": leaves.tree.to_json(),
            "places": list(leaves.places.items()),
        }
        if self._training is None:
            return about, {f"module.{name}": value for name, value in self.module.state_dict().items()}
        about["training"], tensors = self._training.state()
        return about, {f"training.{name}": value for name, value in tensors.items()}

    def restore(self, about: dict[str, Any], tensors: dict[str, Tensor]) -> None:
        """Stand where another fit with the same samples, schedule and seed stood."""
        self._stand_at(int(about["stage"]))
        if "training" in about:
            self._training = self._begin()
            self._training.restore(about["training"], below("training.", tensors))
        else:
            self.module.load_state_dict(below("module.", tensors))
        places = {int(leaf): int(place) for leaf, place in about["places"]}
        self.module.leaves.set_tree(Tree.from_json(about["tree"]), places)

    def _stand_at(self, stage: int) -> None:
        """Go to a stage. From clustering on the norms are fixed: a sample has one embedding, in any company."""
        self._at = stage
        self.module.fixed_norms = self._clustering

    @property
    def _clustering(self) -> bool:
        return self._at > 0

    def _begin(self) -> Training:
        """The training of the present stage."""
        stage, rules = self._stages[self._at], self._schedule
        module, samples, views = self.module, self._samples, None
        if self._augment is not None:
            views = Views(self._augment, module.arch.read.shape, 1)
        objective = Pretraining(module, samples, views)
        if self._clustering:
            objective = Clustering(module, samples, views, stage.learning_rate, rules.prune_below)
        return Training(objective, samples, stage, rules.batch_size, [mixed(self._seed, self._at)])

    def _epoch_ended(self, stage: Stage, done: EpochDone) -> EmbeddingEpochEnded:
        before = sum(earlier.epochs for earlier in self._stages[: self._at])
        return EmbeddingEpochEnded(
            stage=stage.name,
            epoch=done.epoch + 1,
            epochs=stage.epochs,
            leaves=len(self.module.leaves),
            progress=(before + done.epoch + 1) / sum(one.epochs for one in self._stages),
            **done.means,
        )

    @torch.no_grad()
    def _grow(self, epoch: int) -> Iterator[tuple[int, Event]]:
        """Split before an epoch of clustering as many leaves as are due.

        Each is the one with the largest sum of squared distances whose samples are not all the same.
        """
        leaves = self.module.leaves
        due = self._schedule.splits_due(epoch, len(leaves)) if self._clustering else 0
        for _ in range(due):
            z, centres = self._embedding(), leaves.in_order(leaves.centres)
            of = nearest(z, centres)
            for k in squared_sums(z, of, centres).argsort(descending=True).tolist():
                inside = z[of == k].double()
                if len(inside) > 1 and bool((inside != inside[0]).any()):
                    break
            else:
                return
            chance = mixed(self._seed, SPLIT, epoch, len(leaves)) % 2**31
            kmeans = KMeans(2, n_init=KMEANS_STARTS, random_state=chance)
            with threadpool_limits(1):  # threads would add up in any order
                kmeans.fit(inside.cpu().numpy())
            leaf = leaves.tree.leaves[k]
            leaves.split(leaf, *torch.from_numpy(kmeans.cluster_centers_).to(z))
            yield 0, LeafChosen(leaf, len(inside))

    def _prune_empty(self) -> Iterator[tuple[int, Event]]:
        """Remove the leaves that no sample is nearest to."""
        leaves = self.module.leaves
        won = self.labels().bincount(minlength=len(leaves)).tolist()
        for leaf in [leaf for leaf, n in zip(leaves.tree.leaves, won, strict=True) if not n]:
            leaves.prune(leaf)
            yield 0, LeafDied(leaf)

    def labels(self) -> Tensor:
        """The leaf of each sample, numbered from left to right."""
        leaves = self.module.leaves
        return nearest(self._embedding(), leaves.in_order(leaves.centres))

    def _embedding(self) -> Tensor:
        return over(self.module, self._samples, self.module.embed, LIGHT_CHUNK)
