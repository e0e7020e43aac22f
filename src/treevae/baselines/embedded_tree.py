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
tells deeper groups apart is kept. Public implementations differ in details, and
docs/decisions.md says what was chosen: ClustPy divides as here, but lets L_DC turn the leaves' centres too; another
divides L_NC by the leaves that have samples.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import torch
import torch.nn.functional as F
from sklearn.cluster import KMeans
from threadpoolctl import threadpool_limits
from torch import Tensor, nn

from ..model.networks import Architecture, make_decoder, make_encoder
from ..model.stack import Linear, layers_like
from ..progress import Progress
from ..training.engine import mixed
from ..training.loop import check_finite
from ..training.plan import Stage
from ..training.samples import LIGHT_CHUNK, Samples, over
from ..training.views import AUGMENTATION, Views
from ..tree import Tree

KMEANS_STARTS = 20  # of the 2-means that splits a leaf, ClustPy's number


@dataclass(frozen=True)
class Schedule:
    """What is trained for how long, and the rules of growing."""

    pretraining: Stage  # the autoencoder alone
    clustering: Stage  # with the tree
    n_leaves: int
    split_every: float  # epochs
    prune_below: float
    batch_size: int


class Autoencoder(nn.Module):
    """Encoder, a linear layer to the embedding, decoder."""

    run_of: Tensor

    def __init__(self, arch: Architecture, generator: torch.Generator) -> None:
        super().__init__()
        self.arch = arch
        self.encoder, size = make_encoder(arch, 1, generator)
        with layers_like(arch.layer_defaults):
            self.head = Linear(1, size, arch.latent_dims[0], generator)
        self.decoder = make_decoder(arch, 1, 0, generator)
        self.register_buffer("run_of", torch.zeros(1, dtype=torch.long))  # the one decoder explains the one run

    def embed(self, x: Tensor) -> Tensor:
        """(batch, feature) -> (batch, latent)."""
        return self.head(self.encoder(x[None]))[0]

    def reconstruction_loss(self, x: Tensor, z: Tensor) -> Tensor:
        """L_REC: the mean over samples and features of -log p(x | z)."""
        log_prob = self.arch.likelihood_model.log_prob(x[None], self.decoder(z[None]), self.run_of)
        return -log_prob.mean() / x.shape[1]


class Leaves:
    """A tree, the centres of its leaves and their weights, all in the order of ``tree.leaves``."""

    def __init__(self, centre: Tensor) -> None:
        self.tree = Tree()
        self.parameters = [nn.Parameter(centre)]
        self.weights = centre.new_ones(1)
        self._look()

    def centres(self) -> Tensor:
        """μ, (leaf, latent)."""
        return torch.stack(tuple(self.parameters))

    def split(self, leaf: int, left: Tensor, right: Tensor) -> list[nn.Parameter]:
        """The centres of the two new leaves, once the leaf of that place is split."""
        new = [nn.Parameter(left), nn.Parameter(right)]
        self.tree = self.tree.split(self.tree.leaves[leaf])
        self.parameters[leaf : leaf + 1] = new
        self.weights = torch.cat([self.weights[:leaf], self.weights.new_ones(2), self.weights[leaf + 1 :]])
        self._look()
        return new

    def prune(self, leaf: int) -> None:
        """Remove the leaf of that place; its sibling takes what comes to their parent."""
        self.tree = self.tree.prune(self.tree.leaves[leaf])
        del self.parameters[leaf]
        self.weights = torch.cat([self.weights[:leaf], self.weights[leaf + 1 :]])
        self._look()

    def _look(self) -> None:
        """Find the nodes with a sibling, siblings side by side, and which leaves are below each: (node, leaf)."""
        tree = self.tree
        nodes = [child for node in tree.routers for child in tree.children(node)]
        rows = [[leaf in tree.leaves_below(node) for leaf in tree.leaves] for node in nodes]
        self.below = torch.tensor(rows, dtype=self.weights.dtype, device=self.weights.device)


def centre_loss(z: Tensor, leaf: Tensor, centres: Tensor) -> Tensor:
    """L_NC: the mean distance of the leaves' centres from the mean of their samples; an empty leaf counts as 0."""
    member = F.one_hot(leaf, len(centres)).to(z.dtype)  # (batch, leaf)
    counts = member.sum(0)
    means = member.T @ z.detach() / counts.clamp(min=1)[:, None]
    return (torch.linalg.vector_norm(centres - means, dim=1) * (counts > 0)).sum() / len(centres)


def compression_loss(z: Tensor, leaf: Tensor, centres: Tensor, weights: Tensor, below: Tensor) -> Tensor:
    """L_DC: the mean distance of samples from their nodes' centres, along the lines to the siblings' centres."""
    if not len(below):
        return z.new_zeros(())
    share = below * weights
    m = (share / share.sum(1, keepdim=True)) @ centres.detach()  # (node, latent), siblings side by side
    siblings = m.unflatten(0, (-1, 2)).flip(1).flatten(0, 1)
    p = F.normalize(m - siblings, dim=1)
    along = z @ p.T - (m * p).sum(1)  # (batch, node)
    return (along.abs() * below.T[leaf]).sum() / along.numel()


def squared_sums(z: Tensor, leaf: Tensor, centres: Tensor) -> Tensor:
    """The sum of squared distances of each leaf's samples from its centre, (leaf,)."""
    squares = (z - centres[leaf]).square().sum(1)
    return torch.zeros(len(centres), dtype=z.dtype, device=z.device).index_add_(0, leaf, squares)


def nearest(z: Tensor, centres: Tensor) -> Tensor:
    """The place of the leaf with the nearest centre, (batch,)."""
    return torch.cdist(z.detach(), centres.detach(), compute_mode="donot_use_mm_for_euclid_dist").argmin(1)


class Training:
    """The two stages of one fit.

    Attributes
    ----------
    leaves : Leaves
        The tree and the centres so far.
    history : list of dict
        What has happened so far.
    """

    def __init__(
        self, module: Autoencoder, samples: Samples, views: Views | None, schedule: Schedule, seed: int
    ) -> None:
        self._module, self._samples, self._views, self._schedule, self._seed = module, samples, views, schedule, seed
        self._batch, self._tick = min(schedule.batch_size, len(samples)), 0
        self.history: list[dict[str, Any]] = []
        self.leaves = Leaves(torch.zeros(module.arch.latent_dims[0], device=samples.device))

    def run(self, progress: Progress) -> None:
        """Train to the end."""
        plan, done = self._schedule, 0
        for stage in (plan.pretraining, plan.clustering):
            clustering = stage is plan.clustering
            self._adam = torch.optim.Adam(self._module.parameters(), lr=stage.learning_rate)
            for epoch in range(stage.epochs):
                for _ in range(self._splits_due(epoch) if clustering else 0):
                    self._grow()
                means = self._epoch(clustering)
                check_finite(means, stage, epoch)
                about = {"stage": stage.name, "epoch": epoch + 1, "epochs": stage.epochs}
                self._tell("EpochEnded", **about, leaves=len(self.leaves.weights), **means)
                done += 1
                terms = "  ".join(f"{term} {value:.3f}" for term, value in means.items())
                share = done / (plan.pretraining.epochs + plan.clustering.epochs)
                progress.at(share, f"{stage.name}, epoch {epoch + 1}/{stage.epochs}", terms)

    def _tell(self, event: str, **about: Any) -> None:
        self.history.append({"event": event, **about})

    def _splits_due(self, epoch: int) -> int:
        """How many leaves to split before an epoch, counted from 0; a single one always."""
        n_leaves, every = len(self.leaves.weights), self._schedule.split_every
        due = math.ceil((epoch + 1) / every) - math.ceil(epoch / every)  # multiples of it within the epoch
        return min(max(due, n_leaves == 1), self._schedule.n_leaves - n_leaves)

    def _batches(self) -> Iterator[Tensor]:
        """An epoch's samples, (batch, feature), each batch followed by its augmented version, if there is one."""
        generator = torch.Generator().manual_seed(mixed(self._seed, self._tick))
        order = torch.randperm(len(self._samples), generator=generator)
        for rows in order[: len(order) // self._batch * self._batch].split(self._batch):
            x = self._samples.rows(rows)
            self._tick += 1
            if self._views is not None:
                self._views.draw(x[None], [mixed(self._seed, AUGMENTATION, self._tick)])
                x = torch.cat([x, self._views.held[0]])
            yield x

    def _epoch(self, clustering: bool) -> dict[str, float]:
        """The mean of each loss over an epoch of training."""
        # the norms are fixed once clustering begins, so that a sample has one embedding, in any company
        self._module.train(not clustering)
        totals: dict[str, Tensor] = {}
        for x in self._batches():
            z = self._module.embed(x)
            losses = {"reconstruction": self._module.reconstruction_loss(x, z)}
            if clustering:
                centres = self.leaves.centres()
                leaf = nearest(z[: self._batch], centres).repeat(len(z) // self._batch)
                losses["centre"] = centre_loss(z, leaf, centres)
                losses["compression"] = compression_loss(z, leaf, centres, self.leaves.weights, self.leaves.below)
            self._adam.zero_grad()
            torch.stack(list(losses.values())).sum().backward()
            self._adam.step()
            totals = {name: totals.get(name, 0) + value.detach() for name, value in losses.items()}
            if clustering:
                self._weigh(leaf[: self._batch])
        return {name: float(total) / (len(self._samples) // self._batch) for name, total in totals.items()}

    def _weigh(self, leaf: Tensor) -> None:
        """Let the leaves' weights follow the samples they got, and prune those that are dead."""
        leaves = self.leaves
        leaves.weights = (leaves.weights + leaf.bincount(minlength=len(leaves.weights))) / 2
        for dead in (leaves.weights < self._schedule.prune_below).nonzero().flatten().tolist()[::-1]:
            if len(leaves.weights) > 1:
                self._tell("LeafPruned", leaf=leaves.tree.leaves[dead], weight=float(leaves.weights[dead]))
                leaves.prune(dead)

    @torch.no_grad()
    def _grow(self) -> None:
        """Split the leaf with the largest sum of squared distances whose samples are not all the same."""
        leaves = self.leaves
        z = over(self._module, self._samples, self._module.embed, LIGHT_CHUNK)
        of = nearest(z, leaves.centres())
        sums = squared_sums(z, of, leaves.centres())
        for leaf in sums.argsort(descending=True).tolist():
            inside = z[of == leaf].double()
            if len(inside) > 1 and bool((inside != inside[0]).any()):
                break
        else:
            return
        kmeans = KMeans(2, n_init=KMEANS_STARTS, random_state=mixed(self._seed, self._tick) % 2**31)
        with threadpool_limits(1):  # threads would add up in any order
            kmeans.fit(inside.cpu().numpy())
        left, right = torch.from_numpy(kmeans.cluster_centers_).to(z)
        number = leaves.tree.leaves[leaf]
        self._tell("LeafChosen", leaf=number, samples=len(inside), squared_sum=float(sums[leaf]))
        for centre in leaves.split(leaf, left, right):
            self._adam.add_param_group({"params": [centre]})
