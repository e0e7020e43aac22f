"""DeepECT's model: an autoencoder with a tree of centres in its embedding, and its losses."""

from __future__ import annotations

import math
from collections.abc import Iterator

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from ..model.kernels import ADAM_BETAS, ADAM_EPSILON
from ..model.networks import Architecture, make_decoder, make_encoder
from ..model.stack import Linear, NodeStack, Trainable, layers_like
from ..tree import Tree

TINY = 1e-30  # keeps nodes without a living leaf from dividing by 0


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
        with layers_like(arch.layers):
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


# -- the losses, as embedded_tree.py has them -------------------------------------------------------------------------


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
