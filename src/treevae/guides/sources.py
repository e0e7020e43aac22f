"""Where guides come from, by name: flat groups of samples, made in seconds and without labels."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from types import MappingProxyType

import numpy as np
from scipy import sparse
from sklearn.cluster import KMeans
from torch import Tensor

from .embedding import embedded, fuzzy_graph
from .networks import by_networks

KMEANS_STARTS = 10  # the best one is kept
RESOLUTIONS = 12  # that are tried at most
LEAST_SHARE = 0.1  # of an even share: what a community holds at least

Grouping = Callable[[Tensor, int, Tensor, int], np.ndarray]
"""(samples (n, f), how many groups, their neighbours (n, k), seed) -> the group of each, int64 (n,), -1 is unknown."""


def by_kmeans(x: Tensor, n_groups: int, neighbours: Tensor, seed: int) -> np.ndarray:
    """k-means with a centre for each group."""
    return k_means(x.cpu().numpy(), n_groups, seed)


def by_embedding(x: Tensor, n_groups: int, neighbours: Tensor, seed: int) -> np.ndarray:
    """k-means where neighbours have been drawn together and all others pushed apart, as UMAP does."""
    return k_means(embedded(x, neighbours, seed).cpu().numpy(), n_groups, seed)


def by_umap(x: Tensor, n_groups: int, neighbours: Tensor, seed: int) -> np.ndarray:
    """k-means on ten components of UMAP, where ``umap-learn`` is installed."""
    try:
        from umap import UMAP
    except ImportError as error:
        raise ImportError("guide='umap' needs umap-learn: pip install 'treevae[umap]'") from error
    few = min(10, len(x) - 2)
    umap = UMAP(n_components=few, min_dist=0.0, n_neighbors=min(15, len(x) - 1), random_state=seed, n_jobs=1)
    return k_means(umap.fit_transform(x.cpu().numpy()), n_groups, seed)


def by_leiden(x: Tensor, n_groups: int, neighbours: Tensor, seed: int) -> np.ndarray:
    """Communities of the graph of neighbours, where ``igraph`` and ``leidenalg`` are installed.

    The resolution is searched at which there are so many; else the most below that, or
    else a few more. Communities that have less than a tenth of an
    even share are not counted, and their samples stay unknown, -1.
    """
    try:
        import igraph
        import leidenalg
    except ImportError as error:
        raise ImportError("guide='leiden' needs igraph and leidenalg: pip install 'treevae[graph]'") from error
    edges = sparse.triu(fuzzy_graph(x, neighbours)).tocoo()
    graph = igraph.Graph(len(x), np.stack(edges.coords, 1).tolist())
    low, high, resolution = 0.0, 0.0, 1.0
    best = np.full(len(x), -1)
    for _ in range(RESOLUTIONS):
        partition = leidenalg.find_partition(
            graph,
            leidenalg.RBConfigurationVertexPartition,
            weights=edges.data.tolist(),
            resolution_parameter=resolution,
            seed=seed,
        )
        found = np.array(partition.membership)
        found[np.bincount(found)[found] < LEAST_SHARE * len(x) / n_groups] = -1
        n_found, n_best = len(np.unique(found[found >= 0])), len(np.unique(best[best >= 0]))
        more = n_best < n_found and (n_found <= n_groups or n_best < 2)  # too many are merged later, one is no guide
        if more or n_groups <= n_found < n_best:
            best = found
        if n_found == n_groups:
            break
        low, high = (resolution, high) if n_found < n_groups else (low, resolution)
        resolution = (low + high) / 2 if high else 2 * low
    return best.astype(np.int64)


def k_means(x: np.ndarray, n_groups: int, seed: int) -> np.ndarray:
    """The groups of the best of ten starts."""
    return KMeans(n_groups, n_init=KMEANS_STARTS, random_state=seed).fit_predict(x).astype(np.int64)


SOURCES: Mapping[str, Grouping] = MappingProxyType(
    {
        "kmeans": by_kmeans,
        "embedding": by_embedding,
        "networks": by_networks,
        "umap": by_umap,
        "leiden": by_leiden,
    }
)
