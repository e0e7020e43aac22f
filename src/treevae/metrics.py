"""How well leaves, and the tree above them, agree with known classes.

Nothing in training sees labels: they serve scores, here, and in ``view`` the names and colours of what is shown. Every
score is a float, higher is better; 1 is perfect and 0 the least, but for :func:`ari`, where 0 is chance. Those that
need no tree take any names for clusters, as for classes: whole numbers, also as floats, strings, booleans; where -1
stands for noise, as in HDBSCAN, noise is one more cluster. ``contingency`` and ``dendrogram_purity`` need the positions
of leaves, which are integers.

Clusters come first, classes second; scikit-learn has them the other way round. DP and LP change with the order.
"""

from __future__ import annotations

import warnings
from contextlib import suppress

import numpy as np
from numpy.typing import ArrayLike
from scipy.optimize import linear_sum_assignment
from scipy.special import entr

from treevae.tree import Tree

NAMES = "whole numbers, strings or booleans"  # of clusters and classes
__all__ = ["accuracy", "ari", "contingency", "dendrogram_purity", "leaf_purity", "nmi"]


def contingency(leaf_index: ArrayLike, y: ArrayLike, n_leaves: int | None = None) -> np.ndarray:
    """The number of samples of each class in each leaf, integers of shape (leaves, classes).

    Parameters
    ----------
    leaf_index : one integer a sample
        The position of the sample's leaf, from 0.
    y : one label a sample
        Integers or strings, none missing; the columns are the classes in sorted order.
    n_leaves : optional
        How many rows to return; by default up to the last leaf that holds a sample.
    """
    leaf, label = np.asarray(leaf_index), np.asarray(y)
    if leaf.ndim != 1 or label.ndim != 1:
        raise ValueError(f"leaf_index has shape {leaf.shape} and y {label.shape}; pass one leaf and one label a sample")
    if len(leaf) != len(label):
        raise ValueError(f"leaf_index has {len(leaf)} samples and y has {len(label)}; pass one label for each sample")
    if not len(leaf):
        raise ValueError("leaf_index and y are empty; pass at least one sample")
    if not np.issubdtype(leaf.dtype, np.integer):
        raise ValueError(f"leaf_index has dtype {leaf.dtype}; pass integers, the position of each sample's leaf")
    whole = isinstance(n_leaves, int | np.integer) and not isinstance(n_leaves, bool)
    if n_leaves is not None and not (whole and n_leaves >= 1):
        raise ValueError(f"n_leaves={n_leaves!r} must be a whole number of at least 1, or left out")
    n_rows = int(leaf.max()) + 1 if n_leaves is None else n_leaves
    outside = np.flatnonzero((leaf < 0) | (leaf >= n_rows))
    if len(outside):
        allowed = "at least 0" if n_leaves is None else f"0 to {n_leaves - 1}, as there are {n_leaves} leaves"
        entry = f"leaf_index[{outside[0]}]={leaf[outside[0]]}"
        raise ValueError(f"{entry} must be {allowed}; pass positions from left to right, not node numbers")
    classes, column = _sorted(label, "y", "class")
    cell = leaf.astype(np.intp) * len(classes) + column
    return np.bincount(cell, minlength=n_rows * len(classes)).reshape(n_rows, len(classes))


def dendrogram_purity(tree: Tree | np.ndarray, leaf_index: ArrayLike, y: ArrayLike) -> float:
    """The mean share of a pair's class under the pair's lowest common ancestor, over all pairs of one class.

    Two samples in one leaf meet at that leaf. Exact, in time proportional to nodes × classes: pairs are counted, not
    visited.

    Parameters
    ----------
    tree
        A :class:`~treevae.tree.Tree`, or a scipy linkage matrix such as Ward's.
    leaf_index : one integer a sample
        The position of the sample's leaf in ``tree.leaves``, or its observation in the linkage matrix: ``np.arange(n)``
        where each sample is an observation.
    y : one label a sample
        Integers or strings.
    """
    left, right = _merges(tree)
    n_leaves = len(left) + 1
    in_leaves = contingency(leaf_index, y, n_leaves)
    if not isinstance(tree, Tree) and 1 < n_leaves == np.size(leaf_index) > len(np.unique(leaf_index)):
        warnings.warn(
            f"tree is a linkage of {n_leaves} observations, as many as there are samples, but leaf_index names some "
            "twice: it takes the observation of each sample, np.arange(n), not its cluster",
            stacklevel=2,
        )
    under = np.concatenate([in_leaves, np.zeros((len(left), in_leaves.shape[1]), dtype=in_leaves.dtype)])
    for node, (a, b) in enumerate(zip(left, right, strict=True), start=n_leaves):
        under[node] = under[a] + under[b]
    # Pairs of one class that meet at a node. At a merge, C(a + b, 2) - C(a, 2) - C(b, 2) = a b.
    pairs = np.concatenate([in_leaves * (in_leaves - 1) // 2, under[left] * under[right]])
    if not pairs.any():
        raise ValueError("no class in y has two samples, so there are no pairs and dendrogram purity is undefined")
    share = under / np.maximum(under.sum(axis=1, keepdims=True), 1)  # an empty node has no pairs
    return float((pairs * share).sum() / pairs.sum())


def leaf_purity(leaf_index: ArrayLike, y: ArrayLike) -> float:
    """The share of samples that belong to the largest class of their leaf.

    Parameters
    ----------
    leaf_index : one label a sample
        The sample's leaf, or its cluster without a tree: whole numbers, strings or booleans, none missing.
    y : one label a sample
        Integers or strings, none missing.
    """
    counts = _counts(leaf_index, y)
    return float(counts.max(axis=1).sum() / counts.sum())


def accuracy(leaf_index: ArrayLike, y: ArrayLike) -> float:
    """The share of samples whose leaf is matched to their class, one leaf to one class, in the best such matching.

    With more leaves than classes, or fewer, those left over match nothing. The parameters are those of
    :func:`leaf_purity`.
    """
    counts = _counts(leaf_index, y)
    return float(counts[linear_sum_assignment(counts, maximize=True)].sum() / counts.sum())


def nmi(leaf_index: ArrayLike, y: ArrayLike) -> float:
    """The mutual information of leaf and class over the mean of their entropies; 1 if both are constant.

    The parameters are those of :func:`leaf_purity`.
    """
    p = _counts(leaf_index, y)
    p = p / p.sum()
    entropies = entr(p.sum(axis=0)).sum() + entr(p.sum(axis=1)).sum()
    if entropies == 0:
        return 1.0
    # I = H(leaf) + H(class) - H(leaf, class); rounding may leave [0, 1]
    return float(np.clip(2 * (1 - entr(p).sum() / entropies), 0, 1))


def ari(leaf_index: ArrayLike, y: ArrayLike) -> float:
    """The adjusted Rand index: how far leaf and class agree on pairs of samples, on a scale of chance 0, perfect 1.

    A clustering worse than chance is below 0, but never below -1/2. The parameters are those of :func:`leaf_purity`.
    """
    counts = _counts(leaf_index, y)
    parts = (counts, counts.sum(axis=1), counts.sum(axis=0), counts.sum())
    # pairs in one leaf and of one class, in one leaf, of one class, and all; Python's integers do not overflow
    both, leaves, classes, every = (int((n * (n - 1) // 2).sum()) for n in parts)
    # (both - expected) / (mean of leaves and classes - expected) with expected = leaves classes / every
    most = (leaves + classes) * every - 2 * leaves * classes
    return 2 * (both * every - leaves * classes) / most if most else 1.0


def _counts(leaf_index: ArrayLike, y: ArrayLike) -> np.ndarray:
    """The number of samples of each class in each leaf that holds one: a score does not ask how leaves are named."""
    leaf = np.asarray(leaf_index)
    if leaf.ndim == 1 and len(leaf):  # contingency says what is wrong with others
        clusters, leaf = _sorted(leaf, "leaf_index", "cluster")
        if broken := [name for name in clusters.tolist() if isinstance(name, float | np.floating) and name % 1]:
            raise ValueError(f"leaf_index holds {broken[0]}, which is no name of a cluster; pass {NAMES}")
    return contingency(leaf, y)


def _sorted(labels: np.ndarray, name: str, what: str) -> tuple[np.ndarray, np.ndarray]:
    """The classes, or clusters, in sorted order, and the place of each sample's among them."""
    values = labels.tolist() if labels.dtype == object else []
    missing = [i for i, value in enumerate(values) if value is None or type(value).__name__ == "NAType"]  # pandas' NA
    with suppress(TypeError):  # of kinds that cannot be NaN
        missing += np.flatnonzero(labels != labels).tolist()
    if missing:
        raise ValueError(f"{name}[{min(missing)}]={labels[min(missing)]} is no {what}; leave out samples without one")
    try:
        return np.unique(labels, return_inverse=True)
    except TypeError as error:
        raise ValueError(f"{name} holds values that cannot be sorted ({error}); pass {NAMES}, none missing") from error


def _merges(tree: Tree | np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """The left and the right cluster of every merge, children before parents, numbered as in a linkage matrix."""
    linkage = tree.to_linkage() if isinstance(tree, Tree) else tree
    if not isinstance(linkage, np.ndarray) or linkage.ndim != 2 or linkage.shape[1] != 4:
        got = getattr(linkage, "shape", type(linkage).__name__)
        raise ValueError(f"tree is {got}; pass a Tree or a scipy linkage matrix, an array of shape (n - 1, 4)")
    merged = linkage[:, :2]
    made = len(linkage) + 1 + np.arange(len(linkage))  # the number of the cluster that each row makes
    once = np.array_equal(np.sort(merged, axis=None), np.arange(2 * len(linkage)))
    if not once or (merged >= made[:, None]).any():
        raise ValueError(
            "tree is no linkage matrix; each cluster must be merged once, in a row after the one it came from"
        )
    return merged[:, 0].astype(np.intp), merged[:, 1].astype(np.intp)
