"""Where every node of a forest stands in the batched tensors.

A forest is several trees run side by side: one for a model, several while candidates compete. Its nodes are ordered by
depth, then by tree, then from left to right, so that a level is a contiguous slice and a parent comes before its
children. What the descent needs to know of the shape is kept here, as index tensors and 0/1 matrices.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import pairwise
from typing import NamedTuple

import torch
from torch import Tensor, nn

from ..tree import Tree


class NodeKey(NamedTuple):
    """A node of a forest."""

    tree: int
    node: int


class Layout(nn.Module):
    """The order of a forest's nodes, and the index tensors of that order.

    ``top`` is the depth of the roots: 0 for whole trees, the depth of the parent for a subtree in training.
    """

    path: Tensor
    ancestry: Tensor
    member: Tensor
    router_rows: Tensor
    leaf_rows: Tensor
    shown_rows: Tensor
    shown_leaves: Tensor

    def __init__(self, trees: Sequence[Tree], top: int = 0) -> None:
        super().__init__()
        self.trees, self.top = tuple(trees), top
        height = max(tree.height for tree in trees)
        self.levels: tuple[tuple[NodeKey, ...], ...] = tuple(
            tuple(NodeKey(r, node) for r, tree in enumerate(trees) if k <= tree.height for node in tree.levels[k])
            for k in range(height + 1)
        )
        self.nodes = tuple(key for level in self.levels for key in level)
        self.routers = self.select(lambda tree, node: len(tree.children(node)) == 2)
        self.leaves = self.select(Tree.is_leaf)
        row = {key: i for i, key in enumerate(self.nodes)}
        column = {key: i for i, key in enumerate(self.routers)}

        path = torch.zeros(len(self.nodes), 2 * len(self.routers))
        for r, node in self.nodes:
            for above, below in pairwise(self.trees[r].path(node)):
                children = self.trees[r].children(above)
                if len(children) == 2:
                    decision = column[NodeKey(r, above)] + len(self.routers) * children.index(below)
                    path[row[NodeKey(r, node)], decision] = 1
        # log reach of every node = path @ log-probabilities of all decisions, left ones first
        self.register_buffer("path", path, persistent=False)
        # sums over the path to each leaf = ancestry @ values of the nodes
        ancestry = torch.zeros(len(self.leaves), len(self.nodes))
        for i, (r, leaf) in enumerate(self.leaves):
            ancestry[i, [row[NodeKey(r, node)] for node in self.trees[r].path(leaf)]] = 1
        self.register_buffer("ancestry", ancestry, persistent=False)
        # sums over the nodes of each tree = member @ values of the nodes
        member = torch.tensor([[float(key.tree == r) for key in self.nodes] for r in range(len(trees))])
        self.register_buffer("member", member, persistent=False)
        self._index("router_rows", [row[key] for key in self.routers])
        self._index("leaf_rows", [row[key] for key in self.leaves])
        # leaves from left to right, tree after tree: the order in which users see them
        shown = [NodeKey(r, leaf) for r, tree in enumerate(trees) for leaf in tree.leaves]
        self._index("shown_rows", [row[key] for key in shown])
        self._index("shown_leaves", [self.leaves.index(key) for key in shown])
        for k, level in enumerate(self.levels):
            self._index(f"tree_of_{k}", [key.tree for key in level])
            if k > 0:
                parents = [NodeKey(r, self._parent(r, node)) for r, node in level]
                self._index(f"parents_{k}", [self.levels[k - 1].index(parent) for parent in parents])
            for name, chosen in (("routers", set(self.routers)), ("leaves", set(self.leaves))):
                self._index(f"{name}_{k}", [i for i, key in enumerate(level) if key in chosen])
            self._index(f"router_trees_{k}", [key.tree for key in level if key in self.routers])

    def select(self, wanted: Callable[[Tree, int], bool]) -> tuple[NodeKey, ...]:
        """The nodes for which ``wanted(tree, node)`` holds, in order."""
        return tuple(key for key in self.nodes if wanted(self.trees[key.tree], key.node))

    def depth(self, key: NodeKey) -> int:
        """The depth of a node in the whole tree."""
        return self.top + self.trees[key.tree].depth(key.node)

    def index(self, name: str, level: int) -> Tensor:
        """An index tensor of a level: ``routers``, ``leaves``, ``parents`` (in the level above), ``tree_of``, …"""
        return self.get_buffer(f"{name}_{level}")

    def _parent(self, r: int, node: int) -> int:
        parent = self.trees[r].parent(node)
        assert parent is not None  # only roots have none, and they are on level 0
        return parent

    def _index(self, name: str, values: list[int]) -> None:
        self.register_buffer(name, torch.tensor(values, dtype=torch.long), persistent=False)
