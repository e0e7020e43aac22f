"""log p(x) of single samples from many draws: a bound that is one, and the figure that the paper calls so.

Each draw takes a z at every node, down all paths, and gives a log-weight. Both estimates are the log of the mean weight
over K draws; they differ in what the weight of a draw is.

- **iwae**: sum over leaves of p(x | z_leaf) p(z_path) p(path | z) / q(z_path | x), the leaves summed exactly.
  q(path | x) has no part in it, because no path is drawn. Its mean over draws is p(x), so that the log of a mean of K
  is in expectation a lower bound of log p(x): the importance-weighted bound, which rises to log p(x) with K.
- **paper**: the exponential of the draw's ELBO, its KL terms in closed form and its leaves averaged by their reach. It
  is no bound: its limit is log E exp ELBO(z), which exceeds log p(x) where the posterior is exact.

Both are at least the ELBO in expectation. Noise is looked up by a sample's own content, as in
:mod:`~treevae.model.scoring`.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

import torch
from torch import Tensor

from . import descent
from .descent import Descent
from .module import TreeVAEModule
from .nodes import Levels, Nodes
from .scoring import noise_of, place_in_pool

LEVELS = 255  # above 0, of a byte
GRID_ROUNDING = 2.0**-23  # of k / 255 in float32, also where k was multiplied by 1 / 255
ROWS = 1024  # where x has fewer rows, so many draws go together as fill these; bounds the memory, whatever the draws


def evidence(module: TreeVAEModule, x: Tensor, draws: int, bounds: Sequence[str] = ("iwae",)) -> Tensor:
    """Estimates of log p(x) of x (batch, features) by one tree, from K = ``draws`` draws, in nats: (bound, batch)."""
    d, place, nodes = module.d(x), place_in_pool(x), module.nodes
    at_once = max(1, ROWS // len(x))
    # The sum of weights is kept as exp(peak) * total with the peak its largest term, so that float32 rounds the weights
    # relative to each other, however small they are.
    peak, total = x.new_full((len(bounds), len(x)), -math.inf), x.new_zeros(len(bounds), len(x))
    for first in range(0, draws, at_once):
        some = range(first, min(first + at_once, draws))
        descended = descent.infer(nodes, d, noise_of(nodes, place, some), len(some))
        # all bounds weigh what was decoded once
        log_px = descent.log_likelihood(nodes, descended.z, descended.each(x[None]))
        weights = torch.stack([BOUNDS[bound](nodes, d, descended, log_px) for bound in bounds])
        log_weight = weights.unflatten(1, (len(some), -1))  # (bound, draw, batch)
        higher = torch.maximum(peak, log_weight.amax(1))
        total = total * (peak - higher).exp() + (log_weight - higher[:, None]).exp().sum(1)
        peak = higher
    return peak + (total / draws).log()


def importance_weight(nodes: Nodes, d: Levels, descended: Descent, log_px: Tensor) -> Tensor:
    """log sum_leaf p(x | z_leaf) p(z_path) p(path | z) / q(z_path | x) of every draw: (M * batch,)."""
    layout = nodes.layout
    log_path = descent.log_reach(nodes, descent.prior_logits(nodes, descended.z))[layout.leaf_rows]
    return (log_px + log_path + layout.ancestry(descent.log_ratio(nodes, d, descended))).logsumexp(0)  # over leaves


def elbo_weight(nodes: Nodes, d: Levels, descended: Descent, log_px: Tensor) -> Tensor:
    """The ELBO of every draw by itself, its divergences in closed form: (M * batch,)."""
    return descent.elbo_of_draws(nodes, descended, log_px).elbo[0]


BOUNDS: dict[str, Callable[[Nodes, Levels, Descent, Tensor], Tensor]] = {
    "iwae": importance_weight,
    "paper": elbo_weight,
}


def bits_per_dimension(log_p: float, n_features: int) -> float:
    """Bits for each of the 8-bit values that were divided by 255, given the log-density of all in nats.

    -log p / (D log 2) turns nats of D values in [0, 1] into bits a value; levels are 1/255 apart, so a density of 1
    costs log2 255 bits. It takes the density for constant from level to level. Of values that are no such levels
    (:func:`on_byte_levels`) it says nothing: finer ones would cost more bits, coarser ones fewer.
    """
    return math.log2(LEVELS) - log_p / (n_features * math.log(2))


def on_byte_levels(x: Tensor) -> bool:
    """Whether all values of x (samples, features) are 0, 1/255, ... or 1, up to float32's rounding."""
    return all(_on_byte_levels(part) for part in x.split(ROWS))


def _on_byte_levels(x: Tensor) -> bool:
    nearest = (x * LEVELS).round().clamp(0, LEVELS) / LEVELS
    return bool(((x - nearest).abs() <= GRID_ROUNDING).all())
