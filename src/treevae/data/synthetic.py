"""Made-up data with a known hierarchy."""

from __future__ import annotations

import numpy as np


def hierarchy(n: int, *, n_features: int = 10, noise: float = 0.3, seed: int = 0) -> tuple[np.ndarray, np.ndarray]:
    """Samples (n, features) of eight equal groups in three levels, and their groups 0 to 7.

    The first split moves groups 0-3 and 4-7 apart by 4 to either side, the second splits pairs by 2, the third single
    groups by 1, in seven orthogonal directions; so ``y // 4`` and ``y // 2`` are the coarser groupings.
    """
    rng = np.random.default_rng(seed)
    directions = iter(np.linalg.qr(rng.standard_normal((n_features, n_features)))[0])
    centres = np.zeros((8, n_features))
    for level, step in enumerate((4.0, 2.0, 1.0)):
        for group in np.split(np.arange(8), 2**level):
            left, right = np.split(group, 2)
            offset = step * next(directions)
            centres[left] -= offset
            centres[right] += offset
    y = rng.permutation(np.arange(n) % 8)
    return centres[y] + noise * rng.standard_normal((n, n_features)), y
