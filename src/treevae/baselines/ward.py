"""Ward's method: merge the two clusters whose union adds least to the squared distances from the means."""

from __future__ import annotations

from typing import Any

import numpy as np
from scipy.cluster.hierarchy import linkage
from sklearn.base import BaseEstimator, ClusterMixin, clone

from ..data.arrays import hand_over, read_values
from ..parameters import whole_number
from ..tree import Tree


class Ward(ClusterMixin, BaseEstimator):
    """Agglomerative clustering whose dendrogram ends at the cut, so that it compares with a tree of as many leaves.

    Parameters
    ----------
    n_clusters : int, default=10
        Where to cut: the clusters that were there before the last ``n_clusters - 1`` merges.

    Attributes
    ----------
    tree_ : Tree
        The last merges, the very last at the root; ``tree_.leaves[k]`` is cluster ``k``.
    labels_ : ndarray of shape (n_samples,)
        The cluster of each sample.
    linkage_ : ndarray of shape (n_samples - 1, 4)
        All merges, from single samples on, as scipy writes them; ``dendrogram_purity(linkage_, np.arange(n), y)``
        scores this whole dendrogram, which has as many leaves as samples.
    n_features_in_, feature_names_in_
        As :class:`~treevae.TreeVAE`'s.
    """

    def __init__(self, n_clusters: int = 10) -> None:
        self.n_clusters = n_clusters

    def fit(self, X: Any, y: Any = None) -> Ward:
        """Merge the samples of X, (n, ...), and return self; ``y`` is ignored."""
        reader = clone(self)  # an earlier fit stays whole until this one ends
        X, _ = read_values(reader, X, None, dtype=np.float64, least=2)
        n = len(X)
        k = whole_number("n_clusters", self.n_clusters, most=n, more=", the number of samples")
        merges = linkage(X, "ward")
        merged = merges[:, :2].astype(np.intp)  # row i merges two clusters into number n + i

        node = np.zeros(2 * n - 1, dtype=np.intp)  # the node of the tree that holds a cluster
        tree = Tree()
        for i in reversed(range(n - 1)):
            above = int(node[n + i])
            if i >= n - k:  # one of the last k - 1 merges
                tree = tree.split(above)
                node[merged[i]] = tree.children(above)
            else:
                node[merged[i]] = above
        label = {leaf: place for place, leaf in enumerate(tree.leaves)}
        hand_over(reader, self)
        self.tree_: Tree = tree
        self.linkage_: np.ndarray = merges
        self.labels_: np.ndarray = np.array([label[leaf] for leaf in node[:n].tolist()])
        return self
