"""Names for the nodes of a tree, from the best that is known: classes, words, features; else numbers."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from ..tree import Tree
from .cards import short
from .contrasts import Totals, Words, largest, split_classes

ROOT = "All samples"
MOST_CLASSES = 3  # in the name of a leaf


def numbered(tree: Tree) -> dict[int, str]:
    """The names of nodes about which nothing is known: clusters and groups of clusters."""
    place = {leaf: k for k, leaf in enumerate(tree.leaves)}

    def name(node: int) -> str:
        below = [place[leaf] for leaf in tree.leaves_below(node)]
        return f"Cluster {below[0]}" if len(below) == 1 else f"Clusters {below[0]}–{below[-1]}"

    return {node: name(node) for node in tree.nodes} | {0: ROOT}


def by_class(tree: Tree, labels: np.ndarray, classes: np.ndarray) -> dict[int, str]:
    """Leaves are named by their most frequent classes, up to three, that together make up half of their samples.

    A leaf whose classes are too mixed for that has no name here. Nodes above are named by the classes that are more
    frequent there than in their sibling.
    """
    above = split_classes(tree, labels, classes)
    named = {node: ", ".join(map(short, of_node)) for node, of_node in above.items() if not tree.is_leaf(node)}
    for k, leaf in enumerate(tree.leaves):
        names, counts = np.unique(classes[labels == k], return_counts=True)
        order = np.argsort(-counts, kind="stable")[:MOST_CLASSES]
        half = np.flatnonzero(counts[order].cumsum() * 2 >= counts.sum())
        if counts.sum() and len(half):
            named[leaf] = ", ".join(short(names[i]) for i in order[: half[0] + 1])
    return {node: name for node, name in named.items() if name}


def by_marks(marks: dict[int, list[dict[str, Any]]]) -> dict[int, str]:
    """Nodes are named by their first marks: three words, or two features with the direction in which they differ."""

    def name(of_node: list[dict[str, Any]]) -> str:
        if "z" in of_node[0]:
            return ", ".join(f"{one['name']} {'↑' if one['z'] > 0 else '↓'}" for one in of_node[:2])
        return ", ".join(one["name"] for one in of_node[:3])

    return {node: name(of_node) for node, of_node in marks.items() if of_node}


def word_marks(
    tree: Tree, labels: np.ndarray, X: np.ndarray, names: Sequence[str], n: int
) -> dict[int, list[dict[str, Any]]]:
    """The n words that set each node apart from all other texts, with their mean weights in the node.

    They are those of :func:`~treevae.describe.contrasts.leaf_words`, of nodes above too; the root has none.
    """
    words, marks = Words.of(tree, labels, X, names), {}
    for node in tree.nodes[1:]:
        inside = words.totals.mean(node)
        best = largest(words.contrast(inside, words.totals.mean_outside(node)), n)
        marks[node] = [{"name": short(names[i]), "value": float(inside[i])} for i in best]
    return marks


def feature_marks(
    tree: Tree, labels: np.ndarray, X: np.ndarray, names: Sequence[str], n: int
) -> dict[int, list[dict[str, Any]]]:
    """The n features whose means in each node are furthest from those of all samples, in units of their spread (z)."""
    totals, spread, marks = Totals.of(tree, labels, X), X.std(axis=0, dtype=np.float64), {}
    for node in (node for node in tree.nodes[1:] if totals.sizes[node]):
        inside = totals.mean(node)
        z = np.divide(inside - totals.mean(0), spread, out=np.zeros_like(spread), where=spread > 0)
        best = largest(np.abs(z), n)
        marks[node] = [{"name": short(names[i]), "value": float(inside[i]), "z": float(z[i])} for i in best]
    return marks
