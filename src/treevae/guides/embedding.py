"""Samples laid out in few dimensions, so that neighbours stay together and all others drift apart: UMAP's way.

McInnes, Healy, Melville (2018), UMAP: Uniform Manifold Approximation and Projection. The weights and the forces are the
same; all samples are moved at once instead of one after the other, and they start at their principal components.
"""

from __future__ import annotations

import math

import numpy as np
import torch
from scipy import sparse
from torch import Tensor

COMPONENTS = 10
EPOCHS = 200
PUSHES = 10  # samples drawn to push a sample away, for each pull of a neighbour
A, B = 1.5769434603113077, 0.8950608779109733  # UMAP's curve 1 / (1 + a d^2b) for min_dist = 0 and spread = 1
WIDTH = 10.0  # how far from 0 the largest coordinate is at first
FARTHEST = 4.0  # the most that one force moves a coordinate
SPARE, TURNS = 10, 8  # how many more directions than are kept, and how often they are turned towards the samples
BLOCK = 4096  # samples whose neighbours are gathered at once
ROUNDS = 64  # of halving, to the scale of a sample's distances


def embedded(x: Tensor, neighbours: Tensor, seed: int) -> Tensor:
    """The samples (n, f) in ten dimensions or, where they have fewer features, in as many: float32 (n, components)."""
    chance = torch.Generator(x.device).manual_seed(seed)
    y = _principal(x, min(COMPONENTS, *x.shape), chance)
    row, column, weight, lengths = _edges(x, neighbours)
    degree = torch.segment_reduce(weight, "sum", lengths=lengths)[:, None]
    for epoch in range(EPOCHS):
        apart = y[row] - y[column]
        square = apart.square().sum(1, keepdim=True).clamp(min=1e-12)
        pull = -4 * A * B * square ** (B - 1) / (1 + A * square**B)  # twice: UMAP visits an edge from both ends
        pull = (pull * apart).clamp(-2 * FARTHEST, 2 * FARTHEST) * weight[:, None]
        move = torch.segment_reduce(pull, "sum", lengths=lengths)
        for _ in range(PUSHES):
            apart = y - y[torch.randint(len(y), (len(y),), generator=chance, device=y.device)]
            square = apart.square().sum(1, keepdim=True)
            push = 2 * B / ((0.001 + square) * (1 + A * square**B))
            move += (push * apart).clamp(-FARTHEST, FARTHEST) * degree
        y = y + (1 - epoch / EPOCHS) * move
    return y


def _edges(x: Tensor, neighbours: Tensor) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """The edges of the fuzzy graph, both ways, sorted by row: rows, columns, weights, and how many each row has."""
    graph = fuzzy_graph(x, neighbours)
    row = np.repeat(np.arange(len(x)), np.diff(graph.indptr))
    parts = row, graph.indices.astype(np.int64), graph.data.astype(np.float32), np.diff(graph.indptr).astype(np.int64)
    one, other, weight, lengths = (torch.from_numpy(part).to(x.device) for part in parts)
    return one, other, weight, lengths


def fuzzy_graph(x: Tensor, neighbours: Tensor) -> sparse.csr_array:
    """How sure it is that two samples are neighbours, 0 to 1, symmetric: (n, n)."""
    n, k = neighbours.shape
    parts = zip(x.split(BLOCK), neighbours.split(BLOCK), strict=True)
    blocks = [torch.stack([(rows - x[other]).norm(dim=1) for other in near.T], 1) for rows, near in parts]
    distance = torch.cat(blocks).cpu().double()  # not every device has such numbers
    beyond = distance - distance.min(1, keepdim=True).values
    low, high = torch.zeros_like(beyond[:, :1]), torch.full_like(beyond[:, :1], torch.inf)
    scale = torch.ones_like(low)
    for _ in range(ROUNDS):  # to the scale at which the weights of a sample's edges sum to log2(k + 1)
        more = torch.exp(-beyond / scale).sum(1, keepdim=True) < math.log2(k + 1)
        low, high = torch.where(more, scale, low), torch.where(more, high, scale)
        scale = torch.where(high.isinf(), scale * 2, (low + high) / 2)
    least = 1e-3 * distance.mean(1, keepdim=True)  # where many neighbours are equally near
    weight = torch.exp(-beyond / scale.maximum(least).clamp(min=1e-12)).cpu().numpy()
    row, column = np.repeat(np.arange(n), k), neighbours.cpu().numpy().reshape(-1)
    weight = weight.reshape(-1) * (row != column)
    one_way = sparse.coo_array((weight, (row, column)), (n, n)).tocsr()
    one_way.data = np.minimum(one_way.data, 1)  # a neighbour that stands twice in a row counts once
    both = one_way + one_way.T - one_way * one_way.T
    both.eliminate_zeros()
    return both.tocsr()


def _principal(x: Tensor, n_components: int, chance: torch.Generator) -> Tensor:
    """About the principal components with the largest variance, the largest coordinate at ``WIDTH``.

    A random subspace is turned towards them, which takes no square matrix of the features.
    """
    x = x - x.mean(0)
    few = min(n_components + SPARE, *x.shape)
    axes = torch.randn(x.shape[1], few, generator=chance, device=x.device)
    for _ in range(TURNS):
        axes, _ = torch.linalg.qr(x.T @ (x @ axes))
    turn, _, _ = torch.linalg.svd(axes.T @ (x.T @ (x @ axes)))
    y = x @ (axes @ turn[:, :n_components])
    return y * (WIDTH / y.abs().max().clamp(min=1e-12))
