"""What comes before and after a step's passes: the noise that it draws, and Adam."""

# mypy: allow-untyped-defs

from __future__ import annotations

import math

import torch
from torch import Tensor

from .launch import BLOCK, cdiv, fused, kernel, tl, triton

ADAM_BETAS = (0.9, 0.999)
ADAM_RATES = tuple(-math.log(beta) for beta in ADAM_BETAS)
ADAM_EPSILON = 1e-8


# ---------------------------------------------------------------------------------------------------------------- noise


@kernel("count")
def _noise(seeds, step, row_tree, row_place, out, count, L: tl.constexpr, SIZE: tl.constexpr):
    """Philox is keyed with the tree's seed; its 128-bit counter is (place in the batch and latent, node, step).

    So no two numbers of a tree come from the same counter, nor two trees' from the same key.
    """
    FOURS: tl.constexpr = (L + 3) // 4  # a counter gives four numbers
    node = tl.program_id(0)
    at = tl.program_id(1) * SIZE + tl.arange(0, SIZE)
    seed = tl.load(seeds + tl.load(row_tree + node))
    now = tl.load(step).to(tl.uint64)
    zero = (at * 0).to(tl.uint32)
    low, high = zero + (now & 0xFFFFFFFF).to(tl.uint32), zero + (now >> 32).to(tl.uint32)
    place = zero + tl.load(row_place + node).to(tl.uint32)
    a, b, c, d = tl.philox(seed, at.to(tl.uint32), place, low, high)
    u0, u1 = tl.pair_uniform_to_normal(tl.uint_to_uniform_float(a), tl.uint_to_uniform_float(b))
    u2, u3 = tl.pair_uniform_to_normal(tl.uint_to_uniform_float(c), tl.uint_to_uniform_float(d))
    latent = at % FOURS * 4
    to = out + node.to(tl.int64) * (count // FOURS) * L + at // FOURS * L + latent
    tl.store(to, u0, mask=at < count)
    tl.store(to + 1, u1, mask=(at < count) & (latent + 1 < L))
    tl.store(to + 2, u2, mask=(at < count) & (latent + 2 < L))
    tl.store(to + 3, u3, mask=(at < count) & (latent + 3 < L))


def noise(seeds: Tensor, step: Tensor, row_tree: Tensor, row_place: Tensor, rows: int, latent: int) -> Tensor:
    """Standard normal numbers (node, rows, latent), kernel only: the CPU draws from a ``torch.Generator``.

    Those of node i depend on ``seeds[row_tree[i]]``, on the step and on ``row_place[i]``, its place in its own tree,
    and not on the other nodes. ``seeds`` (tree,) and ``step`` (1,) are int64, the others int32.
    """
    if triton is None:
        raise RuntimeError("noise is drawn by a Triton kernel: draw from a torch.Generator where there is no Triton")
    out = torch.empty(len(row_tree), rows, latent, device=seeds.device)
    count = rows * cdiv(latent, 4)
    _noise[(len(out), cdiv(count, BLOCK))](seeds, step, row_tree, row_place, out, count, L=latent, SIZE=BLOCK)
    return out


# ----------------------------------------------------------------------------------------------------------------- adam


@kernel()
def _grown(y):
    """1 - exp(-y) for y > 0, to full precision also where y is small."""
    return tl.where(y < 0.1, y * (1 - y / 2 * (1 - y / 3 * (1 - y / 4 * (1 - y / 5)))), 1 - tl.exp(-y))


@kernel("count", "weight_decay")
def _adam(
    parameters, gradients, mean, square, step, learning_rate, tree_of, weight_decay, count, SIZE: tl.constexpr,
    BETA1: tl.constexpr = ADAM_BETAS[0], BETA2: tl.constexpr = ADAM_BETAS[1], EPSILON: tl.constexpr = ADAM_EPSILON,
    RATE1: tl.constexpr = ADAM_RATES[0], RATE2: tl.constexpr = ADAM_RATES[1],
):  # fmt: skip
    at = tl.program_id(0).to(tl.int64) * SIZE + tl.arange(0, SIZE)
    here = at < count
    now = tl.load(step)
    value = tl.load(parameters + at, mask=here, other=0.0)
    g = tl.load(gradients + at, mask=here, other=0.0) + weight_decay * value
    m = BETA1 * tl.load(mean + at, mask=here, other=0.0) + (1 - BETA1) * g
    v = BETA2 * tl.load(square + at, mask=here, other=0.0) + (1 - BETA2) * g * g
    rate = tl.load(learning_rate + tl.load(tree_of + at, mask=here, other=0), mask=here, other=0.0)
    root = tl.sqrt(v) / tl.sqrt(_grown(now * RATE2)) + EPSILON
    tl.store(parameters + at, value - rate / _grown(now * RATE1) * m / root, mask=here)
    tl.store(mean + at, m, mask=here)
    tl.store(square + at, v, mask=here)


@torch.no_grad()
def adam(
    parameters: Tensor, gradients: Tensor, mean: Tensor, square: Tensor,
    step: Tensor, learning_rate: Tensor, tree_of: Tensor, weight_decay: float,
) -> None:  # fmt: skip
    """A step of ``torch.optim.Adam`` in place on flat tensors, with a learning rate for each tree.

    ``step`` (1,) counts from 1 and is float like all others, except ``tree_of``: the tree of each element, integers.
    """
    if fused(parameters):
        tensors, count = (parameters, gradients, mean, square, step, learning_rate, tree_of), parameters.numel()
        _adam[(cdiv(count, BLOCK),)](*tensors, float(weight_decay), count, SIZE=BLOCK)
        return
    g = gradients + weight_decay * parameters
    mean.lerp_(g, 1 - ADAM_BETAS[0])
    square.mul_(ADAM_BETAS[1]).addcmul_(g, g, value=1 - ADAM_BETAS[1])
    correction1, correction2 = (-torch.expm1(-step * rate) for rate in ADAM_RATES)
    root = square.sqrt() / correction2.sqrt() + ADAM_EPSILON
    parameters.sub_(learning_rate[tree_of.int()] / correction1 * mean / root)
