"""Samples of every kind, the parameters of a small fit and an augmentation, for the tests of estimators."""

import numpy as np
import torch

from treevae.recipes import PAPER

SMALL = {"latent_dim": 3, "hidden_dim": 16, "epochs": 2, "n_leaves": 3, "n_init": 1, "random_state": 0, **PAPER}
GUIDED = SMALL | {"start": "guide", "neighbours": 4, "n_init": 2}
_RNG = np.random.default_rng(0)
GREY = _RNG.random((60, 9, 11)).astype(np.float32)
COLOUR = _RNG.random((60, 8, 10, 3))
VECTORS = _RNG.normal(5, 30, (60, 4))


def shaken(x: torch.Tensor) -> torch.Tensor:
    """A little of each sample's mirror image, so that no value leaves its range."""
    return torch.lerp(x, x.flip(-1), 0.1 * torch.rand(len(x), *[1] * (x.dim() - 1)))


def nested(seed: int = 0, n: int = 320) -> tuple[np.ndarray, np.ndarray]:
    """Samples of four groups, of which 0 and 1, and 2 and 3, lie close; and their groups."""
    rng = np.random.default_rng(seed)
    far, near = np.linalg.qr(rng.standard_normal((8, 8)))[0][:2]
    centres = np.stack([a * 4 * far + b * near for a in (-1, 1) for b in (-1, 1)])
    y = rng.permutation(np.arange(n) % 4)
    return centres[y] + 0.15 * rng.standard_normal((n, 8)), y
