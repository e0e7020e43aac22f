"""A leaf with the two children being trained for it, and the frozen path that leads there (section 2.5).

Both hold several runs side by side, each with a model of its own, as long as their leaves have the same depth.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import NamedTuple

import torch
from torch import Tensor, nn

from ..tree import Tree
from . import descent, kernels
from .descent import Descent, DescentStart
from .layout import Layout, NodeKey
from .networks import Architecture, Mlp
from .nodes import Levels, Make, Nodes, copied_networks, new_networks
from .stack import Dense, FrozenDense, NodeStack, Trainable, frozen_row, gather


class Evidence(NamedTuple):
    """What frozen models know of their samples at a node each."""

    heads: tuple[Tensor, ...]  # outputs of the dense heads along the path, root first: (run, batch, 2 * latent)
    log_reach: Tensor  # of the node: (run, batch)
    d: tuple[Tensor, ...]  # d of the node's depth and, unless it is the last, of the next: (run, batch, hidden)


class FrozenPath:
    """What leads from the root to a node, in each of several runs: never trained, out of every optimiser's reach.

    Parameters
    ----------
    ends : sequence of (Nodes, int)
        For each run its networks and the node; all nodes have the same depth.
    """

    def __init__(self, ends: Sequence[tuple[Nodes, int]]) -> None:
        paths = [nodes.layout.trees[0].path(node) for nodes, node in ends]
        rows = [nodes.rows() for nodes, _ in ends]
        self.depth = len(paths[0]) - 1
        self._ends = [(nodes, nodes.layout.nodes.index(NodeKey(0, node))) for nodes, node in ends]
        self._dense = [
            [frozen_row(*of["dense"][NodeKey(0, node)]) for node in path] for of, path in zip(rows, paths, strict=True)
        ]
        self._prior = []
        for k in range(1, self.depth + 1):
            mlp = gather([of["transformation"][NodeKey(0, path[k])] for of, path in zip(rows, paths, strict=True)])
            assert isinstance(mlp, Mlp)
            assert mlp.head is not None
            self._prior.append(
                nn.Sequential(*(FrozenDense(layer) for layer in mlp.hidden if isinstance(layer, Dense)), mlp.head)
            )

    @torch.no_grad()
    def heads(self, d: Sequence[Tensor], run: int = 0) -> tuple[Tensor, ...]:
        """What a run's dense heads along the path say, given d by depth, each (1, batch, hidden)."""
        return tuple(dense(d[k]) for k, dense in enumerate(self._dense[run]))

    @torch.no_grad()
    def packed(self, d: Sequence[Tensor], run: int = 0) -> Tensor:
        """All evidence of a run's samples, side by side in one matrix: it never changes, so it can be kept."""
        nodes, row = self._ends[run]
        log_reach = descent.route(nodes, d)[row]
        below = d[self.depth : self.depth + 2]
        return torch.cat([*(head[0] for head in self.heads(d, run)), log_reach[:, None], *(at[0] for at in below)], 1)

    def unpacked(self, packed: Tensor) -> Evidence:
        """The evidence out of packed rows: (run, batch, all of it)."""
        nodes, _ = self._ends[0]
        dims, n = nodes.arch.latent_dims, self.depth + 1
        widths = [2 * dim for dim in dims[:n]]
        sizes = [*widths, 1, *nodes.arch.hidden_dims[self.depth : n]]  # the deepest d, if it is there, is what is left
        parts = packed.split([*sizes, packed.shape[2] - sum(sizes)], dim=2)
        return Evidence(parts[:n], parts[n].squeeze(2), parts[n + 1 :])

    @torch.no_grad()
    def sample(self, heads: Sequence[Tensor], noise: Sequence[Tensor] | None = None) -> Tensor:
        """A sample of the node's z for each sample of x, (run, batch, latent); without noise: the means all the way."""
        z = torch.empty(0)
        for k, head in enumerate(heads):
            prior = None if k == 0 else self._prior[k - 1](z)
            z, _ = kernels.posterior(head, prior, None if noise is None else noise[k])
        return z


class Subtree(Trainable):
    """Candidates for the children of a leaf, of one or several runs; only their networks are parameters here."""

    def __init__(self, arch: Architecture, d_dims: Sequence[int], depth: int, runs: int, candidates: int, make: Make):
        super().__init__()
        self.d_dims, self.depth = tuple(d_dims), depth
        layout = Layout([Tree().split(0)] * (runs * candidates), candidates, top=depth)
        self.nodes = Nodes(arch, d_dims, layout, make)

    @classmethod
    def new(
        cls, arch: Architecture, d_dims: Sequence[int], depth: int, candidates: int, generator: torch.Generator
    ) -> Subtree:
        """Candidates with random weights, of one run, for a leaf of a depth."""
        return cls(arch, d_dims, depth, 1, candidates, new_networks(arch, d_dims, generator))

    @classmethod
    def join(cls, subtrees: Sequence[Subtree]) -> Subtree:
        """The subtrees of several runs side by side, values copied."""
        first, rows = subtrees[0], [subtree.nodes.rows() for subtree in subtrees]
        candidates = first.nodes.layout.candidates
        moved = {
            kind: {
                NodeKey(r * candidates + key.tree, key.node): row
                for r, of in enumerate(rows)
                for key, row in of[kind].items()
            }
            for kind in rows[0]
        }
        return cls(first.nodes.arch, first.d_dims, first.depth, len(subtrees), candidates, copied_networks(moved))

    def run(self, r: int) -> Subtree:
        """The candidates of one run, values copied."""
        candidates = self.nodes.layout.candidates
        return self.kept(range(r * candidates, (r + 1) * candidates))

    def kept(self, candidates: Sequence[int]) -> Subtree:
        """Some of the candidates of a run, values copied."""
        place = {tree: i for i, tree in enumerate(candidates)}
        rows = {
            kind: {NodeKey(place[key.tree], key.node): row for key, row in of_kind.items() if key.tree in place}
            for kind, of_kind in self.nodes.rows().items()
        }
        return Subtree(self.nodes.arch, self.d_dims, self.depth, 1, len(place), copied_networks(rows))

    def stacks(self) -> Iterator[tuple[NodeStack, tuple[int, ...]]]:
        """All stacks, each with the tree of every one of its rows."""
        return self.nodes.stacks()

    def descend(self, evidence: Evidence, z: Tensor, noise: Sequence[Tensor]) -> Descent:
        """A pass down the subtrees, given what is known of their roots and a sample of the roots' z."""
        start = DescentStart(z.index_select(0, self.nodes.layout.run_of_trees), evidence.log_reach)
        return descent.infer(self.nodes, self._d(evidence), noise, start=start)

    def logits(self, evidence: Evidence) -> Tensor:
        """The posterior routers' log-odds of going right: (tree, batch)."""
        return descent.posterior_logits(self.nodes, self._d(evidence))

    def branches(self, evidence: Evidence) -> Tensor:
        """The probability of going left and right, given that the root was reached: (tree, 2, batch)."""
        layout = self.nodes.layout
        reach = descent.route(self.nodes, self._d(evidence))[layout.shown_rows].exp()
        return reach.unflatten(0, (len(layout.trees), 2))

    def _d(self, evidence: Evidence) -> Levels:
        return {self.depth + k: at for k, at in enumerate(evidence.d)}
