"""The tree above flat groups: merge the two nearest again and again, and stay within a height.

Trees that can still be joined into one of height D are told by Kraft's inequality: the sum of 2^height must not be
above 2^D. A merge that would break it is left out; two of the lowest trees can always be merged.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np
from numpy.typing import ArrayLike
from scipy.cluster.hierarchy import is_valid_linkage
from scipy.spatial.distance import cdist

from ..tree import Tree, merged
from .labels import few, numbered

Costs = Callable[[np.ndarray], Sequence[np.ndarray]]  # (groups now, groups at first) 0/1 -> costs of each pair


def crossing_tree(
    labels: np.ndarray,
    neighbours: np.ndarray,
    max_depth: int | None = None,
    x: np.ndarray | None = None,
    n_leaves: int | None = None,
) -> tuple[Tree, np.ndarray]:
    """The tree by average linkage of how often neighbours cross, and the labels numbered by its leaves.

    Parameters
    ----------
    labels : int array of shape (n,)
        The group of each sample, from 0; -1 is unknown.
    neighbours : int array of shape (n, k)
        The neighbours of each sample.
    max_depth : int, optional
        The height that the tree may have.
    x : array of shape (n, features), optional
        The samples: groups that no neighbours join are merged by Ward's method.
    n_leaves : int, optional
        The most leaves; more groups are merged into that many first.
    """
    costs = crossing_costs(labels, neighbours, x)
    if n_leaves is not None and labels.max() >= n_leaves:
        labels = numbered(few(labels, merges(int(labels.max()) + 1, costs), n_leaves))
        costs = crossing_costs(labels, neighbours, x)
    return _tree(labels, merges(int(labels.max()) + 1, costs, max_depth))


def linkage_tree(linkage: ArrayLike, n_leaves: int, max_depth: int | None = None) -> tuple[Tree, np.ndarray]:
    """The last merges of a scipy linkage matrix as a tree of so many leaves, and the leaf of each sample."""
    given = np.asarray(linkage, dtype=float)
    if not is_valid_linkage(given):
        raise ValueError("guide has four columns but is no linkage matrix; pass what scipy's linkage(X) returns")
    n = len(given) + 1
    if not 2 <= n_leaves <= n:
        raise ValueError(f"n_leaves={n_leaves} must be at least 2 and at most {n}, the samples of the linkage matrix")
    group = np.arange(2 * n - 1)  # the top group that a cluster is part of
    pairs = given[:, :2].astype(int)
    for i in reversed(range(n - n_leaves)):  # merges below the cut, from above
        group[pairs[i]] = group[n + i]
    tops, labels = np.unique(group[:n], return_inverse=True)
    number = {int(top): k for k, top in enumerate(tops)}
    number |= {n + n - n_leaves + i: n_leaves + i for i in range(n_leaves - 1)}
    tree, labels = _tree(labels, [(number[int(a)], number[int(b)]) for a, b in pairs[n - n_leaves :]])
    if max_depth is not None and tree.height > max_depth:
        raise ValueError(
            f"the linkage matrix has {tree.height} levels below its root when cut to {n_leaves} leaves, and "
            f"max_depth={max_depth}; pass max_depth={tree.height}, or flat labels, from which a lower tree is made"
        )
    return tree, labels


def merges(n: int, costs: Costs, max_depth: int | None = None) -> list[tuple[int, int]]:
    """Which two of n groups are merged, one pair after the other; pair i makes group n + i, as in scipy.

    ``costs`` gives the costs of all pairs of groups; the pair with the least first cost is merged, the second decides
    among equals.
    """
    if max_depth is not None and n > 2**max_depth:
        raise ValueError(f"a tree of max_depth={max_depth} has at most {2**max_depth} leaves, and {n} groups are given")
    name, height, member = list(range(n)), [0] * n, np.eye(n)
    pairs = []
    while len(name) > 1:
        a, b = np.triu_indices(len(name), 1)
        if max_depth is not None:
            room = 2**max_depth - sum(2**h for h in height)
            fits = np.array([_growth(height[i], height[j]) <= room for i, j in zip(a, b, strict=True)])
            a, b = a[fits], b[fits]
        keys = [_rounded(cost[a, b]) for cost in costs(member)]
        best = np.lexsort(keys[::-1])[0]
        i, j = int(a[best]), int(b[best])
        pairs.append((name[i], name[j]))
        name[i], height[i] = n + len(pairs) - 1, max(height[i], height[j]) + 1
        member[i] += member[j]
        del name[j], height[j]
        member = np.delete(member, j, 0)
    return pairs


def crossing_costs(labels: np.ndarray, neighbours: np.ndarray, x: np.ndarray | None = None) -> Costs:
    """How seldom two groups are neighbours, of all pairs of their samples; among equals, what Ward's method says."""
    counts = crossings(labels, neighbours)
    sizes = np.bincount(labels[labels >= 0]).astype(float)
    ward = ward_costs(labels, x) if x is not None else None

    def costs(member: np.ndarray) -> list[np.ndarray]:
        size = member @ sizes
        near = (member @ counts @ member.T) / np.outer(size, size)
        return [-near, *(ward(member) if ward is not None else ())]

    return costs


def crossings(labels: np.ndarray, neighbours: np.ndarray) -> np.ndarray:
    """How many samples of one group have a neighbour in another, both ways: (groups, groups), symmetric."""
    n_groups, k = int(labels.max()) + 1, neighbours.shape[1]
    one, other = np.repeat(labels, k), labels[neighbours.reshape(-1)]
    known = (one >= 0) & (other >= 0)
    counts = np.bincount(one[known] * n_groups + other[known], minlength=n_groups**2).reshape(n_groups, n_groups)
    return (counts + counts.T).astype(float)


def ward_costs(labels: np.ndarray, x: np.ndarray) -> Costs:
    """How much a merge adds to the squared distances from the means of the groups."""
    known = labels >= 0
    sizes = np.bincount(labels[known]).astype(float)
    sums = np.zeros((len(sizes), x.shape[1]))
    np.add.at(sums, labels[known], x[known])

    def costs(member: np.ndarray) -> list[np.ndarray]:
        size = member @ sizes
        mean = (member @ sums) / size[:, None]
        apart = cdist(mean, mean, "sqeuclidean")
        return [apart / (1 / size[:, None] + 1 / size)]

    return costs


def _growth(one: int, other: int) -> int:
    """By how much a merge of trees of two heights changes the sum of 2^height."""
    return int(2 ** (max(one, other) + 1) - 2**one - 2**other)


def _rounded(cost: np.ndarray) -> np.ndarray:
    """Costs to nine digits, so that equal ones stay equal however they were summed."""
    scale = np.abs(cost).max(initial=0)
    return np.round(cost / scale, 9) if scale > 0 else cost


def _tree(labels: np.ndarray, pairs: list[tuple[int, int]]) -> tuple[Tree, np.ndarray]:
    """The tree of merges, and the labels numbered by its leaves."""
    tree, order = merged(pairs)
    place = np.empty(len(order) + 1, dtype=np.int64)
    place[order] = np.arange(len(order))
    place[-1] = -1  # where -1, unknown, points
    return tree, place[labels]
