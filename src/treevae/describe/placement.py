"""Where samples stand in a tree: which node has how many, how sure they are there, which are typical, which waver.

Everything follows from the probabilities q(leaf|x). A sample belongs to its most probable leaf and to all nodes above.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import cached_property
from itertools import chain, zip_longest
from typing import Any

import numpy as np

from ..tree import Tree


class Placement:
    """Where samples stand in a tree; ``reach`` is (sample, leaf), leaves from left to right."""

    def __init__(self, tree: Tree, reach: np.ndarray) -> None:
        self.tree, self.reach = tree, reach
        self._place = {leaf: k for k, leaf in enumerate(tree.leaves)}

    @cached_property
    def labels(self) -> np.ndarray:
        """The leaf of each sample, counted from left to right."""
        return self.reach.argmax(1)

    def rows(self, node: int) -> np.ndarray:
        """The samples of a node."""
        first, last = self._span(node)
        return np.flatnonzero((self.labels >= first) & (self.labels <= last))

    def size(self, node: int) -> int:
        """How many samples a node has."""
        return len(self.rows(node))

    def mass(self, node: int) -> float:
        """The mean probability of reaching a node, over all samples."""
        return float(self._reach_of(node, slice(None)).mean(dtype=np.float64))

    def chosen(self, node: int) -> np.ndarray:
        """For each sample of a node the probability of the branch it takes there; at a leaf, of being there.

        A node with one child decides nothing: the next node that does, or the leaf, speaks for it.
        """
        node, rows = self._fork(node), self.rows(node)
        below = self.tree.children(node)
        if not below:
            return self._reach_of(node, rows)
        left, right = (self._reach_of(child, rows) for child in below)
        return np.where(self.labels[rows] <= self._span(below[0])[1], left, right) / (left + right)

    def confidence(self, node: int) -> float | None:
        """The mean of :meth:`chosen`; None for a node without samples."""
        chosen = self.chosen(node)
        return float(chosen.mean(dtype=np.float64)) if len(chosen) else None

    def ambiguous(self, node: int, n: int) -> list[int]:
        """The n samples of a node that are least sure: nearest to the middle between two children, or of their leaf."""
        fork, rows, chosen = self._fork(node), self.rows(node), self.chosen(node)
        doubt = np.abs(chosen - 0.5) if self.tree.children(fork) else chosen
        return rows[np.argsort(doubt, kind="stable")][:n].tolist()

    def typical(self, node: int, n: int) -> list[int]:
        """The n most typical samples of a node.

        Of a leaf: those it wins with the highest q(leaf|x), equals in the order of the samples. Of a node above: the
        most typical of each leaf below in turn, of the largest leaf first.
        """
        leaves = sorted(self.tree.leaves_below(node), key=lambda leaf: -self.size(leaf))
        return in_turn([self._typical_of_leaf(leaf, n) for leaf in leaves], n)

    def _typical_of_leaf(self, leaf: int, n: int) -> list[int]:
        rows = self.rows(leaf)
        return rows[np.argsort(-self._reach_of(leaf, rows), kind="stable")][:n].tolist()

    def _reach_of(self, node: int, rows: np.ndarray | slice) -> np.ndarray:
        first, last = self._span(node)
        return self.reach[rows, first : last + 1].sum(1)

    def _span(self, node: int) -> tuple[int, int]:
        """The first and the last leaf below a node."""
        below = self.tree.leaves_below(node)
        return self._place[below[0]], self._place[below[-1]]

    def _fork(self, node: int) -> int:
        """The node itself or, below one-child nodes, the next leaf or router."""
        while len(below := self.tree.children(node)) == 1:
            (node,) = below
        return node


def in_turn(lists: Sequence[Sequence[Any]], n: int) -> list[Any]:
    """The first n of: the first of each list, then the second of each, and so on."""
    return [one for one in chain.from_iterable(zip_longest(*lists)) if one is not None][:n]
