"""Bisecting k-means: halve the cluster with the largest squared distances from its mean, again and again."""

from __future__ import annotations

from numbers import Integral
from typing import Any

import numpy as np
from sklearn.base import BaseEstimator, ClusterMixin
from sklearn.cluster import KMeans
from sklearn.utils import check_random_state
from sklearn.utils.validation import check_is_fitted, validate_data

from ..tree import Tree


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
    """

    def __init__(self, n_clusters: int = 10, n_init: int = 10, random_state: Any = None) -> None:
        self.n_clusters = n_clusters
        self.n_init = n_init
        self.random_state = random_state

    def fit(self, X: Any, y: Any = None) -> Bisecting:
        """Split the samples of X, (n, ...), and return self; ``y`` is ignored."""
        X = validate_data(self, X, dtype=np.float32, allow_nd=True)
        X = X.reshape(len(X), -1)
        n, k, chance = len(X), self.n_clusters, check_random_state(self.random_state)
        if not isinstance(k, Integral) or not 1 <= k <= n:
            raise ValueError(f"n_clusters={k!r} must be a whole number from 1 to {n}, the number of samples")
        tree, members, splits = Tree(), {0: np.arange(n)}, dict[int, KMeans]()
        spread = {0: _spread(X)}
        while len(tree.leaves) < k:
            leaf = max(tree.leaves, key=lambda node: spread[node])
            if spread[leaf] == 0:
                break
            inside = members.pop(leaf)
            splits[leaf] = KMeans(2, n_init=self.n_init, random_state=chance).fit(X[inside])
            side = splits[leaf].labels_
            tree = tree.split(leaf)
            for child, value in zip(tree.children(leaf), (0, 1), strict=True):
                members[child] = inside[side == value]
                spread[child] = _spread(X[members[child]])
        labels = np.empty(n, dtype=np.intp)
        for place, leaf in enumerate(tree.leaves):
            labels[members[leaf]] = place
        self.tree_: Tree = tree
        self.labels_: np.ndarray = labels
        self._splits: dict[int, KMeans] = splits
        return self

    def predict(self, X: Any) -> np.ndarray:
        """The cluster of each sample: at every split, from the root on, the side whose mean is nearer."""
        check_is_fitted(self)
        X = validate_data(self, X, reset=False, dtype=np.float32, allow_nd=True)
        X = X.reshape(len(X), -1)
        node = np.zeros(len(X), dtype=np.intp)
        for split in self.tree_.routers:  # parents come before their children
            if len(inside := np.flatnonzero(node == split)):
                node[inside] = np.array(self.tree_.children(split))[self._splits[split].predict(X[inside])]
        place = {leaf: place for place, leaf in enumerate(self.tree_.leaves)}
        return np.array([place[leaf] for leaf in node.tolist()], dtype=np.intp)


def _spread(X: np.ndarray) -> float:
    """The sum of squared distances from the mean; 0, and not a rounding error, where all samples are equal."""
    return float(((X - X.mean(0)) ** 2).sum(dtype=np.float64)) if (X[:1] != X).any() else 0.0
