"""Where every node of a forest stands in the batched tensors.

A forest is several trees run side by side: one for a model, several while candidates compete or runs with different
seeds are trained together. Its nodes are ordered by depth, then by tree, then from left to right, so that a level is a
contiguous slice and a parent comes before its children. What the descent needs to know of the shape is kept here, as
index tensors and 0/1 matrices.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import pairwise
from typing import NamedTuple

import torch
from torch import Tensor, nn

from ..tree import Tree
from . import kernels


class RowSums(nn.Module):
    """Sums of rows: row i of the result is the sum of the rows ``groups[i]`` of what is given; a 0/1 matrix times it.

    With one row in each group it picks rows: the d, or the parent's z, that a node reads.
    """

    index: Tensor
    matrix: Tensor

    def __init__(self, groups: Sequence[Sequence[int]], n_rows: int) -> None:
        super().__init__()
        flat = [member for group in groups for member in group]
        self.picks = all(len(group) == 1 for group in groups)
        self.keeps_all = self.picks and flat == list(range(n_rows))
        matrix = torch.zeros(len(groups), n_rows)
        for i, group in enumerate(groups):
            matrix[i, list(group)] = 1
        self.register_buffer("matrix", torch.empty(0) if self.picks else matrix, persistent=False)
        self.register_buffer("index", torch.tensor(flat, dtype=torch.long), persistent=False)
        users: list[list[int]] = [[] for _ in range(n_rows)]
        for i, group in enumerate(groups):
            for member in group:
                users[member].append(i)
        for name, lists in (("forward", groups), ("backward", users)):  # compressed rows, for the kernel
            starts = torch.tensor([0, *(len(part) for part in lists)], dtype=torch.int32).cumsum(0, dtype=torch.int32)
            members = torch.tensor([member for part in lists for member in part], dtype=torch.int32)
            self.register_buffer(f"{name}_starts", starts, persistent=False)
            self.register_buffer(f"{name}_members", members, persistent=False)

    def forward(self, x: Tensor) -> Tensor:
        if self.keeps_all:
            return x
        if kernels.fused(x):
            return kernels.row_sums(
                x,
                (self.get_buffer("forward_starts"), self.get_buffer("forward_members")),
                (self.get_buffer("backward_starts"), self.get_buffer("backward_members")),
            )
        return x.index_select(0, self.index) if self.picks else self.matrix @ x


class NodeKey(NamedTuple):
    """A node of a forest."""

    tree: int
    node: int


class Layout(nn.Module):
    """The order of a forest's nodes, and the index tensors of that order.

    Parameters
    ----------
    trees : sequence of Tree
        The trees. They share no parameter.
    candidates : int
        So many trees in a row belong to one run and see the same samples.
    top : int
        The depth of the roots: 0 for whole trees, the depth of the parent for a subtree in training, whose candidates
        then read the d of their run; whole trees have a d of their own.
    """

    leaf_rows: Tensor
    router_rows: Tensor
    shown_rows: Tensor
    shown_leaves: Tensor
    run_of_nodes: Tensor
    run_of_trees: Tensor
    tree_of_routers: Tensor
    leaf_table: Tensor
    table: Tensor

    def __init__(self, trees: Sequence[Tree], candidates: int = 1, top: int = 0) -> None:
        super().__init__()
        self.trees, self.candidates, self.top = tuple(trees), candidates, top
        self.n_runs = len(self.trees) // candidates
        self.n_d = len(self.trees) if top == 0 else self.n_runs  # rows of d at each depth
        height = max(tree.height for tree in trees)
        self.levels: tuple[tuple[NodeKey, ...], ...] = tuple(
            tuple(NodeKey(r, node) for r, tree in enumerate(trees) if k <= tree.height for node in tree.levels[k])
            for k in range(height + 1)
        )
        self.nodes = tuple(key for level in self.levels for key in level)
        self.routers = self.select(lambda tree, node: len(tree.children(node)) == 2)
        self.leaves = self.select(Tree.is_leaf)
        row = {key: i for i, key in enumerate(self.nodes)}
        router = {key: i for i, key in enumerate(self.routers)}

        decisions: list[list[int]] = [[] for _ in self.nodes]
        ancestors: list[list[int]] = [[] for _ in self.leaves]
        for r, node in self.nodes:
            for above, below in pairwise(self.trees[r].path(node)):
                children = self.trees[r].children(above)
                if len(children) == 2:
                    right = len(self.routers) * children.index(below)
                    decisions[row[NodeKey(r, node)]].append(router[NodeKey(r, above)] + right)
        for i, (r, leaf) in enumerate(self.leaves):
            ancestors[i] = [row[NodeKey(r, node)] for node in self.trees[r].path(leaf)]
        # log reach of every node = sum of the log-probabilities of the decisions that lead there, left ones first
        self.path = RowSums(decisions, 2 * len(self.routers))
        # sums over the path to each leaf
        self.ancestry = RowSums(ancestors, len(self.nodes))
        # the parent of each node of a level, in the level above
        self.parents = nn.ModuleList(
            RowSums([[upper.index(NodeKey(r, self._parent(r, node)))] for r, node in lower], len(upper))
            for upper, lower in pairwise(self.levels)
        )
        self._index("leaf_rows", [row[key] for key in self.leaves])
        self._index("router_rows", [row[key] for key in self.routers])
        # leaves from left to right, tree after tree: the order in which users see them
        shown = [NodeKey(r, leaf) for r, tree in enumerate(trees) for leaf in tree.leaves]
        self._index("shown_rows", [row[key] for key in shown])
        self._index("shown_leaves", [self.leaves.index(key) for key in shown])
        # the same with a row for each tree; where it has fewer leaves than another, the number of all leaves
        most = max(len(tree.leaves) for tree in trees)
        place, none = {key: i for i, key in enumerate(self.leaves)}, len(self.leaves)
        rows_of = [[place[NodeKey(r, leaf)] for leaf in tree.leaves] for r, tree in enumerate(trees)]
        self._index("leaf_table", [of_tree + [none] * (most - len(of_tree)) for of_tree in rows_of])
        self._index("run_of_nodes", [self.run_of(key) for key in self.nodes])
        self._index("tree_of_routers", [key.tree for key in self.routers])
        self._index("run_of_trees", [r // candidates for r in range(len(self.trees))])
        self.register_buffer("table", self._table(row, router), persistent=False)

    def select(self, wanted: Callable[[Tree, int], bool]) -> tuple[NodeKey, ...]:
        """The nodes for which ``wanted(tree, node)`` holds, in order."""
        return tuple(key for key in self.nodes if wanted(self.trees[key.tree], key.node))

    def depth(self, key: NodeKey) -> int:
        """The depth of a node in the whole tree."""
        return self.top + self.trees[key.tree].depth(key.node)

    def run_of(self, key: NodeKey) -> int:
        """The run that a node belongs to: which of the samples it sees."""
        return key.tree // self.candidates

    def d_row(self, key: NodeKey) -> int:
        """Where a node's d stands among those of its depth."""
        return key.tree if self.top == 0 else self.run_of(key)

    def _parent(self, r: int, node: int) -> int:
        parent = self.trees[r].parent(node)
        assert parent is not None  # only roots have none, and they are on level 0
        return parent

    def _table(self, row: dict[NodeKey, int], router: dict[NodeKey, int]) -> Tensor:
        """What :func:`kernels.weigh` needs to know of each tree's nodes: (tree, 4, width), -1 where there is none."""
        leaf = {key: i for i, key in enumerate(self.leaves)}
        widest = max(len(tree.nodes) for tree in self.trees)
        table = torch.full((len(self.trees), 4, 1 << (widest - 1).bit_length()), -1, dtype=torch.int32)
        for r, tree in enumerate(self.trees):
            keys = [NodeKey(r, node) for node in tree.nodes]
            columns = [[row[key], router.get(key, -1), leaf.get(key, -1), int(key.node == 0)] for key in keys]
            table[r, :, : len(keys)] = torch.tensor(columns, dtype=torch.int32).T
        return table

    def _index(self, name: str, values: list[int] | list[list[int]]) -> None:
        self.register_buffer(name, torch.tensor(values, dtype=torch.long), persistent=False)
