"""Where guides come from, by name: flat groups of samples, made in seconds and without labels."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from types import MappingProxyType

import numpy as np
from sklearn.cluster import KMeans
from torch import Tensor

STARTS = 10  # of k-means, the best one is kept

Grouping = Callable[[Tensor, int, Tensor, int], np.ndarray]
"""(samples (n, f), how many groups, their neighbours (n, k), seed) -> the group of each, int64 (n,), -1 is unknown."""


def by_kmeans(x: Tensor, n_groups: int, neighbours: Tensor, seed: int) -> np.ndarray:
    """k-means with a centre for each group."""
    return k_means(x.cpu().numpy(), n_groups, seed)


def by_umap(x: Tensor, n_groups: int, neighbours: Tensor, seed: int) -> np.ndarray:
    """k-means on ten components of UMAP, where ``umap-learn`` is installed."""
    try:
        from umap import UMAP
    except ImportError as error:
        raise ImportError("guide='umap' needs umap-learn: pip install 'treevae[umap]'") from error
    few = min(10, len(x) - 2)
    umap = UMAP(n_components=few, min_dist=0.0, n_neighbors=min(15, len(x) - 1), random_state=seed, n_jobs=1)
    return k_means(umap.fit_transform(x.cpu().numpy()), n_groups, seed)


def k_means(x: np.ndarray, n_groups: int, seed: int) -> np.ndarray:
    """The groups of the best of ten starts."""
    return KMeans(n_groups, n_init=STARTS, random_state=seed).fit_predict(x).astype(np.int64)


SOURCES: Mapping[str, Grouping] = MappingProxyType({"kmeans": by_kmeans, "umap": by_umap})
