"""What several trees on the same samples have in common: how far apart their clusters are on average.

The leaves of every tree are matched with those of the first by the samples they share; then the edges between any two
clusters are counted in each tree and averaged (the paper's appendix C).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

import numpy as np
from scipy.optimize import linear_sum_assignment

from ..tree import Tree


def average_distances(trees: Sequence[Tree], labels: Sequence[np.ndarray]) -> np.ndarray:
    """The mean number of edges between the clusters of several trees: (cluster, cluster), numbered as in the first.

    Parameters
    ----------
    trees : sequence of Tree
        All with as many leaves.
    labels : sequence of ndarray of shape (n_samples,)
        For each tree the leaf of each sample, from left to right; the same samples for all.
    """
    if len(trees) != len(labels) or not trees:
        raise ValueError(f"got {len(trees)} trees and {len(labels)} labellings; give one of each for every run")
    sizes = Counter(len(tree.leaves) for tree in trees)
    if len(sizes) > 1:
        k, most = sizes.most_common(1)[0]
        others = ", ".join(f"{place} ({len(tree.leaves)})" for place, tree in enumerate(trees) if len(tree.leaves) != k)
        raise ValueError(
            f"the trees have {sorted(sizes)} leaves; only trees with as many can be averaged. To keep the {most} with "
            f"{k} leaves, leave out those at these places, counted from 0: {others}"
        )
    if len({len(of_run) for of_run in labels}) > 1:
        raise ValueError("the labellings are of different numbers of samples; all must be of the same samples")
    (k,) = sizes
    total = np.zeros((k, k))
    for tree, of_run in zip(trees, labels, strict=True):
        shared = np.zeros((k, k), dtype=np.int64)
        np.add.at(shared, (labels[0], of_run), 1)
        _, match = linear_sum_assignment(-shared)  # match[i] of this tree is cluster i of the first
        total += edges_between_leaves(tree)[np.ix_(match, match)]
    return total / len(trees)


def edges_between_leaves(tree: Tree) -> np.ndarray:
    """How many edges lie between any two leaves, from left to right; nodes with one child are no stop on the way."""
    paths = [
        [node for node in tree.path(leaf) if node == leaf or len(tree.children(node)) == 2] for leaf in tree.leaves
    ]

    def edges(one: list[int], other: list[int]) -> int:
        common = sum(a == b for a, b in zip(one, other, strict=False))
        return len(one) + len(other) - 2 * common

    return np.array([[edges(one, other) for other in paths] for one in paths])
