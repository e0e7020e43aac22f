"""The ELBO of single samples, the same for a sample whatever stands beside it.

Monte Carlo noise usually depends on a sample's place in its batch. Here it is looked up by the sample's own content,
so that a score does not change when the data are shuffled, sliced or scored one at a time.
"""

from __future__ import annotations

import torch
from torch import Tensor

from . import descent
from .elbo import ElboTerms
from .module import TreeVAEModule

POOL = 1024  # noise vectors to choose from in each draw


def score_terms(module: TreeVAEModule, x: Tensor, draws: int) -> ElboTerms:
    """The terms of the ELBO of x (batch, features), averaged over draws of the noise, each of shape (batch,)."""
    place = fingerprint(x) % POOL
    total = torch.zeros((), device=x.device, dtype=x.dtype)
    for draw in range(draws):
        generator = torch.Generator(x.device).manual_seed(draw)
        noise = [level[:, place] for level in descent.noise_for(module.nodes, POOL, generator)]
        total = total + module.elbo(x, noise).values[:, 0]
    return ElboTerms(total / draws)


def fingerprint(x: Tensor) -> Tensor:
    """A number for each row that depends on its bits alone; integer arithmetic, so exact: (batch,)."""
    bits = x.float().contiguous().view(torch.int32).to(torch.int64)
    generator = torch.Generator().manual_seed(0)
    weights = torch.randint(-(2**62), 2**62, (x.shape[1],), generator=generator).to(x.device)
    mixed = (bits * (2 * weights + 1)).sum(1)  # wraps around, as intended
    return mixed ^ (mixed >> 29) ^ (mixed >> 47)
