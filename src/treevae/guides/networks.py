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
WIDTH = 128  # of both layers
EXPONENT = 0.6  # below 1 it asks for groups of even size
STEPS = 1000
BATCH = 256  # pairs a step
RATE = 3e-3  # of Adam at first; it falls to 0 as a cosine does
MEMORY = 0.9  # of the running mean of the probabilities
HELD_OUT = 0.1  # the share of the samples that tells which network is best


def by_networks(x: Tensor, n_groups: int, neighbours: Tensor, seed: int) -> np.ndarray:
    """The groups of the network that agrees best on the neighbours of samples it was not trained on."""
    x = x - x.mean(0)
    x = x / x.square().mean().sqrt().clamp(min=1e-12)
    chance = torch.Generator().manual_seed(seed)
    order = torch.randperm(len(x), generator=chance).to(x.device)
    n_held = max(1, int(HELD_OUT * len(x)))
    stack = _trained(x, neighbours, order[n_held:], n_groups, chance)
    with torch.no_grad():
        p = torch.cat([_probabilities(stack, part) for part in x.split(4096)], 1)  # (networks, n, groups)
        held, k = order[:n_held], neighbours.shape[1]
        near = neighbours[held].reshape(-1)
        loss = _disagreement(p[:, held.repeat_interleave(k)], p[:, near], p.mean(1, keepdim=True))
    return p[int(loss.argmin())].argmax(1).cpu().numpy().astype(np.int64)


def _trained(x: Tensor, neighbours: Tensor, rows: Tensor, n_groups: int, chance: torch.Generator) -> list[Tensor]:
    """The weights of all networks after training on pairs of the rows and their neighbours."""
    sizes = [x.shape[1], WIDTH, WIDTH, n_groups]
    stack = []
    for n_in, n_out in pairwise(sizes):
        stack.append(torch.randn(NETWORKS, n_in, n_out, generator=chance) * math.sqrt(2 / n_in))
        stack.append(torch.zeros(NETWORKS, 1, n_out))
    stack = [one.to(x.device).requires_grad_() for one in stack]
    adam = torch.optim.Adam(stack, RATE, fused=True)
    pace = torch.optim.lr_scheduler.CosineAnnealingLR(adam, STEPS)
    mean = torch.full((NETWORKS, 1, n_groups), 1 / n_groups, device=x.device)
    for _ in range(STEPS):
        one = rows[torch.randint(len(rows), (NETWORKS, BATCH), generator=chance).to(x.device)]
        which = torch.randint(neighbours.shape[1], (NETWORKS, BATCH), generator=chance).to(x.device)
        other = neighbours[one, which]
        p, q = _probabilities(stack, x[torch.cat([one, other], 1)]).chunk(2, 1)
        now = torch.cat([p, q], 1).mean(1, keepdim=True)
        mean = MEMORY * mean + (1 - MEMORY) * now.detach()
        adam.zero_grad()
        _disagreement(p, q, mean).sum().backward()
        adam.step()
        pace.step()
    return [one.detach() for one in stack]


def _probabilities(stack: list[Tensor], x: Tensor) -> Tensor:
    """The probabilities of the groups: (networks, rows, groups), for rows (rows, f) or of each network its own."""
    x = x.expand(NETWORKS, *x.shape) if x.dim() == 2 else x
    for i in range(0, len(stack), 2):
        x = torch.baddbmm(stack[i + 1], x, stack[i])
        if i + 2 < len(stack):
            x = torch.nn.functional.leaky_relu(x, 0.1)
    return x.softmax(2)


def _disagreement(p: Tensor, q: Tensor, mean: Tensor) -> Tensor:
    """Minus the mean log of sum (p q)^0.6 / mean: of each network its own."""
    tiny = 1e-12
    return -((p * q).clamp(min=tiny) ** EXPONENT / mean.clamp(min=tiny)).sum(2).log().mean(1)
