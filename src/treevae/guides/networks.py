"""Small networks that agree on neighbours: the groups in which a sample and its neighbours fall alike.

The loss is TEMI's (Adaloglou et al. 2023, Exploring the Limits of Deep Image Clustering using Pretrained Models): with
the probabilities p and p' that a network gives two neighbours, and its mean probabilities, minus
log sum over groups of (p p')^0.6 / mean. Several networks, each with its own loss, are trained as one stack.
"""

from __future__ import annotations

import math
from itertools import pairwise

import numpy as np
import torch
from torch import Tensor

NETWORKS = 8  # trained side by side, the best one is kept
WIDTH = 256  # of the one hidden layer
EXPONENT = 0.6  # below 1 it asks for groups of even size
STEPS = 1000
PAIRS = 128  # a step, or
PAIRS_PER_GROUP = 8  # where there are many groups, whose shares are told from the step's pairs
BLOCK = 4096  # samples that are asked at once
RATE = 3e-3  # of Adam at its highest; it rises over a tenth of the steps, then falls to 0


def by_networks(x: Tensor, n_groups: int, neighbours: Tensor, seed: int) -> np.ndarray:
    """The groups of the network that agrees best on the neighbours of all samples."""
    x = x - x.mean(0)
    x = x / x.square().mean().sqrt().clamp(min=1e-12)
    chance = torch.Generator().manual_seed(seed)
    stack = _trained(x, neighbours, n_groups, chance)
    best, least = x.new_zeros(len(x), dtype=torch.int64), math.inf
    for i in range(NETWORKS):  # one after the other and in blocks, so that one network's answers are held at once
        one = [weights[i : i + 1] for weights in stack]
        log_p = torch.cat([_log_probabilities(one, part) for part in x.split(BLOCK)], 1)  # (1, n, groups)
        mean = torch.stack([part.exp().sum(1) for part in log_p.split(BLOCK, 1)]).sum(0)[:, None] / len(x)
        loss = 0.0
        for part, near in zip(log_p.split(BLOCK, 1), neighbours.split(BLOCK), strict=True):
            loss += sum(float(disagreement(part, log_p[:, other], mean)) for other in near.T) * len(near)
        if loss < least:
            best, least = log_p[0].argmax(1), loss
    return best.cpu().numpy().astype(np.int64)


def _trained(x: Tensor, neighbours: Tensor, n_groups: int, chance: torch.Generator) -> list[Tensor]:
    """The weights of all networks after training on pairs of samples and their neighbours."""
    stack = []
    for n_in, n_out in pairwise([x.shape[1], WIDTH, n_groups]):
        stack.append(torch.randn(NETWORKS, n_in, n_out, generator=chance) * math.sqrt(2 / n_in))
        stack.append(torch.zeros(NETWORKS, 1, n_out))
    stack = [one.to(x.device).requires_grad_() for one in stack]
    adam = torch.optim.Adam(stack, RATE, fused=True)
    pace = torch.optim.lr_scheduler.OneCycleLR(adam, RATE, total_steps=STEPS, pct_start=0.1)
    size = NETWORKS, max(PAIRS, PAIRS_PER_GROUP * n_groups)
    for _ in range(STEPS):
        one = torch.randint(len(x), size, generator=chance).to(x.device)
        other = neighbours[one, torch.randint(neighbours.shape[1], size, generator=chance).to(x.device)]
        log_p, log_q = _log_probabilities(stack, x[torch.cat([one, other], 1)]).chunk(2, 1)
        mean = torch.cat([log_p, log_q], 1).exp().mean(1, keepdim=True)  # with its gradient, or groups stay unused
        adam.zero_grad()
        disagreement(log_p, log_q, mean).sum().backward()
        adam.step()
        pace.step()
    return [one.detach() for one in stack]


def _log_probabilities(stack: list[Tensor], x: Tensor) -> Tensor:
    """The log-probabilities of the groups: (networks, rows, groups), for rows that all share or of each its own."""
    first, bias, second, last = stack
    x = x.expand(len(first), *x.shape) if x.dim() == 2 else x
    hidden = torch.nn.functional.leaky_relu(torch.baddbmm(bias, x, first), 0.1)
    return torch.baddbmm(last, hidden, second).log_softmax(2)


def disagreement(log_p: Tensor, log_q: Tensor, mean: Tensor) -> Tensor:
    """Minus the mean log of sum (p q)^0.6 / mean over pairs: of each network its own."""
    tiny = torch.finfo(mean.dtype).tiny
    return -(EXPONENT * (log_p + log_q) - mean.clamp(min=tiny).log()).logsumexp(2).mean(1)
