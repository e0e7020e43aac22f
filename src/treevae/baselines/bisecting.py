"""Bisecting k-means: halve the cluster with the largest squared distances from its mean, again and again."""

from __future__ import annotations

import warnings
from typing import Any

import numpy as np
from sklearn.base import BaseEstimator, ClusterMixin, clone
from sklearn.cluster import KMeans
from sklearn.exceptions import ConvergenceWarning
from sklearn.utils import check_random_state
from sklearn.utils.validation import check_is_fitted
from threadpoolctl import threadpool_limits

from ..data.arrays import hand_over, read_values
from ..data.units import centre_of
from ..parameters import whole_number
from ..tree import Tree

FLOATS = (np.float64, np.float32)  # kept as they are; other numbers become the first
ROOM = 8  # two samples may be twice as far apart as either is from the mean, and k-means adds such squares up


class Bisecting(ClusterMixin, BaseEstimator):
    """Divisive clustering by k-means with two means; scikit-learn's BisectingKMeans does the same but hides its tree.

    Parameters
    ----------
    n_clusters : int, default=10
        How many to end with; fewer where the samples of no cluster differ.
    n_init : int, default=10
        Starts of each split; the best is kept.
    random_state : int, RandomState instance or None, default=None
        Seed of the starts.

    Attributes
    ----------
    tree_ : Tree
        The splits, the first at the root; ``tree_.leaves[k]`` is cluster ``k``.
    labels_ : ndarray of shape (n_samples,)
        The cluster of each sample.
    n_features_in_, feature_names_in_
        As :class:`~treevae.TreeVAE`'s.
    """

    def __init__(self, n_clusters: int = 10, n_init: int = 10, random_state: Any = None) -> None:
        self.n_clusters = n_clusters
        self.n_init = n_init
        self.random_state = random_state

    def fit(self, X: Any, y: Any = None) -> Bisecting:
        """Split the samples of X, (n, ...), and return self; ``y`` is ignored."""
        reader = clone(self)  # an earlier fit stays whole until this one ends
        X, shape = read_values(reader, X, None, dtype=FLOATS)
        n, chance = len(X), check_random_state(self.random_state)
        k = whole_number("n_clusters", self.n_clusters, most=n, more=", the number of samples")
        n_init = whole_number("n_init", self.n_init)
        tree, members, splits = Tree(), {0: np.arange(n)}, dict[int, _Split]()
        spread = {0: _spread(X)}
        if not spread[0] < float(np.finfo(X.dtype).max) / ROOM:
            raise ValueError(
                f"X holds values as large as {np.abs(X).max():.3g}, whose squared distances add up to more than "
                f"{X.dtype} can hold; divide X by its largest value first"
            )
        while len(tree.leaves) < k:
            leaf = max(tree.leaves, key=lambda node: spread[node])
            if spread[leaf] == 0:
                break
            inside = members[leaf]
            split = _Split(X[inside], KMeans(2, n_init=n_init, random_state=chance))
            side = split.kmeans.labels_
            if side.min() == side.max():  # so close that all distances are rounded to 0
                spread[leaf] = 0
                continue
            splits[leaf] = split
            tree = tree.split(leaf)
            for child, value in zip(tree.children(leaf), (0, 1), strict=True):
                members[child] = inside[side == value]
                spread[child] = _spread(X[members[child]])
        labels = np.empty(n, dtype=np.intp)
        for place, leaf in enumerate(tree.leaves):
            labels[members[leaf]] = place
        hand_over(reader, self)
        self.tree_: Tree = tree
        self.labels_: np.ndarray = labels
        self._splits: dict[int, _Split] = splits
        self._shape: tuple[int, ...] = shape  # of a sample
        if len(tree.leaves) < k:
            warnings.warn(
                f"leaves in the tree: {len(tree.leaves)}, fewer than n_clusters={k}: the samples of each are all the "
                "same, or too close to be told apart. Ask for no more clusters than there are different samples",
                ConvergenceWarning,
                stacklevel=2,
            )
        return self

    def predict(self, X: Any) -> np.ndarray:
        """The cluster of each sample: at every split, from the root on, the side whose mean is nearer."""
        check_is_fitted(self)
        X, _ = read_values(self, X, self._shape, dtype=FLOATS)
        node = np.zeros(len(X), dtype=np.intp)
        for split in self.tree_.routers:  # parents come before their children
            if len(inside := np.flatnonzero(node == split)):
                node[inside] = np.array(self.tree_.children(split))[self._splits[split].side(X[inside])]
        place = {leaf: place for place, leaf in enumerate(self.tree_.leaves)}
        return np.array([place[leaf] for leaf in node.tolist()], dtype=np.intp)


class _Split:
    """Two means of samples, counted from the mean of all: far from 0, squared distances would be rounded away."""

    def __init__(self, X: np.ndarray, kmeans: KMeans) -> None:
        self._mean = _mean(X)
        with threadpool_limits(1):  # threads would add up in any order
            self.kmeans = kmeans.fit(X - self._mean)

    def side(self, X: np.ndarray) -> np.ndarray:
        """0 or 1 for each sample: the mean that is nearer."""
        return self.kmeans.predict((X - self._mean).astype(self._mean.dtype, copy=False))


def _mean(X: np.ndarray) -> np.ndarray:
    """The mean of samples; the sum of many float32 would be rounded too often."""
    return centre_of(X).astype(X.dtype)


def _spread(X: np.ndarray) -> float:
    """The sum of squared distances from the mean; 0, and not a rounding error, where all samples are equal."""
    if (X[:1] == X).all():
        return 0.0
    with np.errstate(over="ignore", invalid="ignore"):
        return float(((X - _mean(X)) ** 2).sum(dtype=np.float64))
