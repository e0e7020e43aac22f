"""A leaf with the two children being trained for it, and the frozen path that leads there (section 2.5)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import torch
from torch import Tensor, nn

from ..tree import Tree
from . import descent
from .descent import Start
from .elbo import ElboTerms, Gaussian, precision_weighted
from .layout import Layout, NodeKey
from .networks import Architecture
from .nodes import Nodes, new_networks
from .stack import frozen_row


class Evidence(NamedTuple):
    """What a frozen model knows of each sample at a node; first axis: sample. It never changes, so it is kept."""

    heads: tuple[Tensor, ...]  # outputs of the dense heads along the path, root first: (sample, 2 * latent)
    log_reach: Tensor  # of the node: (sample,)
    d: tuple[Tensor, ...]  # d of the node's depth and, unless it is the last, of the next: (sample, hidden)

    def at(self, index: Tensor) -> Evidence:
        """The evidence of some of the samples."""
        heads, d = (tuple(part[index] for part in parts) for parts in (self.heads, self.d))
        return Evidence(heads, self.log_reach[index], d)

    @classmethod
    def cat(cls, parts: Sequence[Evidence]) -> Evidence:
        """The evidence of the samples of all parts."""
        heads = tuple(torch.cat(column) for column in zip(*(part.heads for part in parts), strict=True))
        d = tuple(torch.cat(column) for column in zip(*(part.d for part in parts), strict=True))
        return cls(heads, torch.cat([part.log_reach for part in parts]), d)


class FrozenPath:
    """The dense heads and transformations from the root to a node, in eval mode, out of every optimiser's reach."""

    def __init__(self, nodes: Nodes, node: int) -> None:
        rows, keys = nodes.rows(), [NodeKey(0, n) for n in nodes.layout.trees[0].path(node)]
        self._nodes, self._row, self.depth = nodes, nodes.layout.nodes.index(keys[-1]), len(keys) - 1
        self._dense = [frozen_row(*rows["dense"][key]) for key in keys]
        self._transformation = [frozen_row(*rows["transformation"][key]) for key in keys[1:]]

    @torch.no_grad()
    def heads(self, d: Sequence[Tensor]) -> tuple[Tensor, ...]:
        """What the dense heads along the path say of the samples that this d belongs to: (batch, 2 * latent) each."""
        return tuple(dense(d[k])[0] for k, dense in enumerate(self._dense))

    @torch.no_grad()
    def evidence(self, d: Sequence[Tensor]) -> Evidence:
        """All that a subtree at the node needs to know of these samples."""
        log_reach = descent.route(self._nodes, d).log_reach[self._row]
        return Evidence(self.heads(d), log_reach, tuple(at[0] for at in d[self.depth : self.depth + 2]))

    @torch.no_grad()
    def sample(self, heads: Sequence[Tensor], noise: Sequence[Tensor] | None = None) -> Tensor:
        """A sample of the node's z for each sample of x, (1, batch, latent); without noise: the means all the way."""
        z = torch.empty(0)
        for k, head in enumerate(heads):
            q_hat = Gaussian.from_head(head.unsqueeze(0))
            p = Gaussian.standard_like(q_hat) if k == 0 else Gaussian.from_head(self._transformation[k - 1](z))
            q = precision_weighted(q_hat, p)
            z = q.mean if noise is None else q.sample(noise[k])
        return z

    def noise(self, batch: int, generator: torch.Generator) -> list[Tensor]:
        """Standard normal noise for one sample of the path."""
        like, dims = self._nodes.layout.path, self._nodes.arch.latent_dims[: self.depth + 1]
        return [torch.randn(1, batch, dim, generator=generator, device=like.device, dtype=like.dtype) for dim in dims]


class Subtree(nn.Module):
    """Candidates for the children of a leaf, side by side; only their networks are parameters here."""

    def __init__(
        self,
        arch: Architecture,
        d_dims: Sequence[int],
        leaf: int,
        depth: int,
        candidates: int,
        generator: torch.Generator,
    ) -> None:
        super().__init__()
        self.leaf, self.depth = leaf, depth
        layout = Layout([Tree().split(0)] * candidates, top=depth)
        self.nodes = Nodes(arch, d_dims, layout, new_networks(arch, d_dims, generator))

    def elbo(self, x: Tensor, evidence: Evidence, z: Tensor, noise: Sequence[Tensor]) -> ElboTerms:
        """The subtree's share of the ELBO, weighted by the reach of its root: (candidate, batch)."""
        n = len(self.nodes.layout.trees)
        start = Start(z.expand(n, -1, -1), evidence.log_reach.expand(n, -1))
        return descent.elbo(self.nodes, descent.infer(self.nodes, self._d(evidence), noise, start=start), x)

    def branches(self, evidence: Evidence) -> Tensor:
        """The probability of going left and right, given that the root was reached: (candidate, 2, batch)."""
        layout = self.nodes.layout
        reach = descent.route(self.nodes, self._d(evidence)).log_reach[layout.shown_rows].exp()
        return reach.unflatten(0, (len(layout.trees), 2))

    def _d(self, evidence: Evidence) -> dict[int, Tensor]:
        return {self.depth + k: at.unsqueeze(0) for k, at in enumerate(evidence.d)}
