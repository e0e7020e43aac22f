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
import torch.nn.functional as F
from sklearn.cluster import KMeans
from threadpoolctl import threadpool_limits
from torch import Tensor, nn

from ..model.kernels import ADAM_BETAS, ADAM_EPSILON
from ..model.networks import Architecture, make_decoder, make_encoder
from ..model.stack import Linear, NodeStack, Trainable, layers_like
from ..training.engine import mixed
from ..training.events import EmbeddingEpochEnded, Event, LeafChosen, LeafDied
from ..training.growing import State
from ..training.loop import EpochDone, Training, below
from ..training.objectives import NoiseRows, OnSamples
from ..training.plan import Stage
from ..training.samples import LIGHT_CHUNK, Samples, over
from ..training.views import Augment, Views
from ..tree import Tree

KMEANS_STARTS = 20  # of the 2-means that splits a leaf, ClustPy's number
SPLIT = -1  # what the seed is mixed with for it
TINY = 1e-30  # keeps nodes without a living leaf from dividing by 0


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


# -- the model --------------------------------------------------------------------------------------------------------


class Leaves(nn.Module):
    """A tree with its leaves' centres and weights, and the state of the centres' Adam.

    There is room for all leaves that there may be, and each stands in a place of its own. So a tree that grows, or
    whose leaves die, is another content of the same tensors, and a captured step goes on.
    """

    centres: Tensor  # μ, (place, latent)
    weights: Tensor  # w, (place,)
    alive: Tensor  # 1 where a place holds a leaf that is not dead, else 0
    below: Tensor  # (node, place): 1 where the leaf lies below; siblings side by side, then rows of zeros
    mean: Tensor
    square: Tensor
    steps: Tensor  # of each centre: it joins when its leaf is made

    def __init__(self, room: int, latent: int) -> None:
        super().__init__()
        for name in ("centres", "mean", "square"):
            self.register_buffer(name, torch.zeros(room, latent))
        for name in ("weights", "alive", "steps"):
            self.register_buffer(name, torch.zeros(room))
        self.register_buffer("below", torch.zeros(2 * (room - 1), room))
        self.tree, self.places = Tree(), {0: 0}  # the place of each leaf
        self.weights[0] = self.alive[0] = 1

    def __len__(self) -> int:
        return len(self.places)

    def in_order(self, values: Tensor) -> Tensor:
        """Values of places as those of the tree's leaves, from left to right."""
        return values[[self.places[leaf] for leaf in self.tree.leaves]]

    def split(self, leaf: int, left: Tensor, right: Tensor) -> None:
        """Put two new leaves, with these centres, in the place of one."""
        self.tree = self.tree.split(leaf)
        first = self.places.pop(leaf)
        free = next(place for place in range(len(self.weights)) if place not in (first, *self.places.values()))
        for child, place, centre in zip(self.tree.children(leaf), (first, free), (left, right), strict=True):
            self.places[child] = place
            self.centres[place], self.weights[place], self.alive[place] = centre, 1, 1
            self.mean[place], self.square[place], self.steps[place] = 0, 0, 0
        self._find_below()

    def prune(self, leaf: int) -> None:
        """Remove a leaf; its sibling takes what comes to their parent."""
        self.tree = self.tree.prune(leaf)
        self.alive[self.places.pop(leaf)] = 0
        self._find_below()

    def dead(self) -> list[int]:
        """The leaves of the tree that have died since."""
        return [
            leaf for leaf, lives in zip(self.tree.leaves, self.in_order(self.alive).tolist(), strict=True) if not lives
        ]

    @torch.no_grad()
    def move(self, gradient: Tensor, rate: float) -> None:
        """A step of Adam for the centres."""
        self.steps += 1
        self.mean.lerp_(gradient, 1 - ADAM_BETAS[0])
        self.square.lerp_(gradient.square(), 1 - ADAM_BETAS[1])
        mean, square = (
            value / -torch.expm1(self.steps * math.log(beta))[:, None]  # 1 - beta ** steps
            for value, beta in zip((self.mean, self.square), ADAM_BETAS, strict=True)
        )
        self.centres -= rate * mean / (square.sqrt() + ADAM_EPSILON)

    @torch.no_grad()
    def weigh(self, leaf: Tensor, prune_below: float) -> None:
        """Let the weights follow the samples that each place got; leaves that are too light die, never the heaviest."""
        self.weights.copy_((self.weights + _members(leaf, self.weights).sum(0)) / 2)
        heaviest = (self.weights * self.alive).max()
        self.alive.mul_(self.weights >= heaviest.clamp(max=prune_below))

    def _find_below(self) -> None:
        """Find which leaves are below each node that has a sibling."""
        nodes = [child for node in self.tree.routers for child in self.tree.children(node)]
        self.below.zero_()
        for row, node in enumerate(nodes):
            self.below[row, [self.places[leaf] for leaf in self.tree.leaves_below(node)]] = 1

    def set_tree(self, tree: Tree, places: dict[int, int]) -> None:
        """Say which tree the values are of, that were loaded."""
        if set(places) != set(tree.leaves) or len({*places.values()} & {*range(len(self.weights))}) != len(places):
            raise ValueError(f"places={places} are not those of the leaves {tree.leaves}")
        self.tree, self.places = tree, places


class Autoencoder(Trainable):
    """Encoder, a linear layer to the embedding, decoder; and the leaves in the embedding."""

    run_of: Tensor

    def __init__(self, arch: Architecture, n_leaves: int, generator: torch.Generator) -> None:
        super().__init__()
        self.arch, self.fixed_norms = arch, False
        self.encoder, size = make_encoder(arch, 1, generator)
        with layers_like(arch.layer_defaults):
            self.head = Linear(1, size, arch.latent_dims[0], generator)
        self.decoder = make_decoder(arch, 1, 0, generator)
        self.leaves = Leaves(n_leaves, arch.latent_dims[0])
        self.register_buffer("run_of", torch.zeros(1, dtype=torch.long))  # the one decoder explains the one run

    def stacks(self) -> Iterator[tuple[NodeStack, tuple[int, ...]]]:
        """All networks."""
        for stack in (self.encoder, self.head, self.decoder):
            yield stack, (0,)

    def train(self, mode: bool = True) -> Autoencoder:
        """As torch's, but for norms that are fixed."""
        return super().train(mode and not self.fixed_norms)

    def embed(self, x: Tensor) -> Tensor:
        """(batch, feature) -> (batch, latent)."""
        return self.head(self.encoder(x[None]))[0]

    def reconstruction_loss(self, x: Tensor, z: Tensor) -> Tensor:
        """L_REC: the mean over samples and features of -log p(x | z)."""
        log_prob = self.arch.likelihood_model.log_prob(x[None], self.decoder(z[None]), self.run_of)
        return -log_prob.mean() / x.shape[1]


# -- the losses -------------------------------------------------------------------------------------------------------


def _members(leaf: Tensor, like: Tensor) -> Tensor:
    """1 where a sample belongs to a place, else 0: (batch, place)."""
    return (leaf[:, None] == torch.arange(len(like), device=like.device)).to(like.dtype)


def centre_loss(z: Tensor, leaf: Tensor, centres: Tensor, alive: Tensor) -> Tensor:
    """L_NC: the mean distance of the leaves' centres from the mean of their samples; an empty leaf counts as 0."""
    member = _members(leaf, alive)
    counts = member.sum(0)
    means = member.T @ z.detach() / counts.clamp(min=1)[:, None]
    return (torch.linalg.vector_norm(centres - means, dim=1) * (counts > 0)).sum() / alive.sum()


def compression_loss(z: Tensor, leaf: Tensor, centres: Tensor, weights: Tensor, below: Tensor) -> Tensor:
    """L_DC: the mean distance of samples from their nodes' centres, along the lines to the siblings' centres.

    The weights of places without a living leaf are 0; a node without one, and its sibling, do not count.
    """
    share = below * weights
    total = share.sum(1, keepdim=True)
    m = (share / total.clamp(min=TINY)) @ centres.detach()  # (node, latent), siblings side by side
    counts = (total > 0).unflatten(0, (-1, 2)).all(1).repeat_interleave(2, 0).squeeze(1)
    siblings = m.unflatten(0, (-1, 2)).flip(1).flatten(0, 1)
    p = F.normalize(m - siblings, dim=1)
    along = z @ p.T - (m * p).sum(1)  # (batch, node)
    return (along.abs() * below.T[leaf] * counts).sum() / (counts.sum().clamp(min=1) * len(z))


def squared_sums(z: Tensor, leaf: Tensor, centres: Tensor) -> Tensor:
    """The sum of squared distances of each leaf's samples from its centre, (leaf,)."""
    squares = (z - centres[leaf]).square().sum(1)
    return torch.zeros(len(centres), dtype=z.dtype, device=z.device).index_add_(0, leaf, squares)


def nearest(z: Tensor, centres: Tensor, alive: Tensor | None = None) -> Tensor:
    """The place of the leaf with the nearest centre, of those alive, (batch,)."""
    far = torch.cdist(z.detach(), centres.detach(), compute_mode="donot_use_mm_for_euclid_dist")
    return (far if alive is None else far.masked_fill(alive == 0, torch.inf)).argmin(1)


# -- training ---------------------------------------------------------------------------------------------------------


class Losses(NamedTuple):
    """The loss of a step; its terms have equal weights."""

    values: Tensor  # (term, 1)

    def total(self, kl_weight: Tensor) -> Tensor:
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

    def state(self) -> State:
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
            views = Views(self._augment, module.arch.input_shape, 1)
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
