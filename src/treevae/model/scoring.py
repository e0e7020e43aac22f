"""The ELBO of single samples, the same for a sample whatever stands beside it.

Monte Carlo noise usually depends on a sample's place in its batch. Here it is looked up by the sample's own content,
so that a score does not change when the data are shuffled, sliced or scored one at a time.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from . import descent
from .elbo import ElboTerms
from .module import TreeVAEModule
from .nodes import Nodes

POOL = 1024  # noise vectors to choose from in each draw


def score_terms(module: TreeVAEModule, x: Tensor, draws: int) -> ElboTerms:
    """The terms of the ELBO of x (batch, features), averaged over draws of the noise, each of shape (batch,)."""
    place = place_in_pool(x)
    total = torch.zeros((), device=x.device, dtype=x.dtype)
    for draw in range(draws):
        total = total + module.elbo(x, noise_of(module.nodes, place, [draw])).values[:, 0]
    return ElboTerms(total / draws)


def noise_of(nodes: Nodes, place: Tensor, draws: Sequence[int]) -> list[Tensor]:
    """The noise of some draws for samples at these places in the pool: by level (node, draw * batch, latent)."""
    generators = [torch.Generator(place.device).manual_seed(draw) for draw in draws]
    picked = [[level[:, place] for level in descent.noise_for(nodes, POOL, generator)] for generator in generators]
    return [torch.cat(of_draws, 1) for of_draws in zip(*picked, strict=True)]


def place_in_pool(x: Tensor) -> Tensor:
    """Which noise vector each row takes in every draw: (batch,)."""
    return fingerprint(x) % POOL


def fingerprint(x: Tensor) -> Tensor:
    """A number for each row that depends on its bits alone; integer arithmetic, so exact: (batch,)."""
    bits = x.float().contiguous().view(torch.int32).to(torch.int64)
    generator = torch.Generator().manual_seed(0)
    weights = torch.randint(-(2**62), 2**62, (x.shape[1],), generator=generator).to(x.device)
    mixed = (bits * (2 * weights + 1)).sum(1)  # wraps around, as intended
    return mixed ^ (mixed >> 29) ^ (mixed >> 47)
