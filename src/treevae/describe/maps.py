"""Where samples stand on a flat map of an embedding."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch

MAPS = ("umap", "pca")
NEIGHBOURS = 15  # of a sample on UMAP's map


def flat_map(embedding: np.ndarray, method: str, random_state: Any) -> np.ndarray:
    """Two numbers for each row of an embedding."""
    if method == "pca":
        from sklearn.decomposition import PCA

        return PCA(2, random_state=random_state).fit_transform(embedding)
    try:
        from umap import UMAP
    except ImportError as error:
        raise ImportError("method='umap' needs umap-learn: pip install 'treevae[maps]'; or take 'pca'") from error
    near = min(NEIGHBOURS, len(embedding) - 1)  # UMAP would do the same, and warn of it
    threads = torch.get_num_threads()
    try:
        return UMAP(n_neighbors=near, n_components=2, random_state=random_state, n_jobs=1).fit_transform(embedding)
    finally:
        torch.set_num_threads(threads)  # UMAP leaves as many as there are cores
