"""What layers do at all nodes at once: products, batch norm with leaky ReLU, and sums of the rows of other nodes."""

# mypy: allow-untyped-defs

from __future__ import annotations

import math
from typing import Any

import torch
from torch import Tensor
from torch.autograd import Function

from .. import cpu
from ..cpu import LEAKY_SLOPE
from .launch import BLOCK, cdiv, fused, fused_images, kernel, power, tl

TILE = 4096  # elements of a tile of rows and features in the norm
FEW_ROWS = 2048  # up to here a norm is one kernel each way
MERGED = 16  # splits that are merged at a time


# --------------------------------------------------------------------------------------------------------------- linear


def linear(x: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
    """x @ weight + bias, node by node: (node, batch, n_in) -> (node, batch, n_out)."""
    if fused(x):
        return torch.bmm(x, weight) if bias is None else torch.baddbmm(bias, x, weight)
    return cpu.linear(x, weight, bias)


# ------------------------------------------------------------------------------------------------ batch norm and leaky


@kernel()
def _moments(x, start, stop, column, inside, FEATURES: tl.constexpr, BR: tl.constexpr, BF: tl.constexpr):
    """Mean and summed squared deviation over rows start to stop: Welford in each of BR lanes, then all lanes merged."""
    mean = tl.zeros((BR, BF), tl.float32)
    square = tl.zeros((BR, BF), tl.float32)
    count = tl.zeros((BR, 1), tl.float32)
    for first in range(start, stop, BR):
        row = first + tl.arange(0, BR)[:, None]
        value = tl.load(x + row * FEATURES + column, mask=(row < stop) & inside, other=0.0).to(tl.float32)
        count += tl.where(row < stop, 1.0, 0.0)
        delta = tl.where(row < stop, value - mean, 0.0)
        mean += delta * (1.0 / tl.maximum(count, 1.0))
        square += delta * (value - mean)
    centre = tl.sum(mean * count, 0)[None, :] / (stop - start)
    return centre, tl.sum(square + count * (mean - centre) * (mean - centre), 0)[None, :]


@kernel()
def _merged(parts, rows, share, splits, column, inside, FEATURES: tl.constexpr, BF: tl.constexpr, AT: tl.constexpr):
    """Mean and summed squared deviation over all splits of a node (Chan's formula)."""
    total = tl.zeros((AT, BF), tl.float32)
    for first in range(0, splits, AT):
        split = first + tl.arange(0, AT)[:, None]
        count = tl.minimum(rows - split * share, share)
        total += count * tl.load(parts + split * 2 * FEATURES + column, mask=(split < splits) & inside, other=0.0)
    centre = tl.sum(total, 0)[None, :] / rows
    total = tl.zeros((AT, BF), tl.float32)
    for first in range(0, splits, AT):
        split = first + tl.arange(0, AT)[:, None]
        there = (split < splits) & inside
        count = tl.minimum(rows - split * share, share)
        away = tl.load(parts + split * 2 * FEATURES + column, mask=there, other=0.0) - centre
        square = tl.load(parts + (split * 2 + 1) * FEATURES + column, mask=there, other=0.0)
        total += tl.where(there, square + count * away * away, 0.0)
    return centre, tl.sum(total, 0)[None, :]


@kernel("rows", "share")
def _norm_parts(x, parts, rows, share, FEATURES: tl.constexpr, BR: tl.constexpr, BF: tl.constexpr):
    node, split = tl.program_id(0).to(tl.int64), tl.program_id(1)
    column = tl.program_id(2) * BF + tl.arange(0, BF)[None, :]
    inside = column < FEATURES
    start, stop = split * share, tl.minimum(split * share + share, rows)
    mean, square = _moments(x + node * rows * FEATURES, start, stop, column, inside, FEATURES, BR, BF)
    parts += (node * tl.num_programs(1) + split) * 2 * FEATURES
    tl.store(parts + column, mean, mask=inside)
    tl.store(parts + FEATURES + column, square, mask=inside)


@kernel("rows", "share")
def _norm_forward(
    x, weight, bias, running_mean, running_var, parts, y, saved, rows, share,
    EPSILON: tl.constexpr, MOMENTUM: tl.constexpr,
    ALONE: tl.constexpr, FEATURES: tl.constexpr, BR: tl.constexpr, BF: tl.constexpr, AT: tl.constexpr,
    SLOPE: tl.constexpr = LEAKY_SLOPE,
):  # fmt: skip
    node, split, splits = tl.program_id(0).to(tl.int64), tl.program_id(1), tl.num_programs(1)
    column = tl.program_id(2) * BF + tl.arange(0, BF)[None, :]
    inside = column < FEATURES
    x += node * rows * FEATURES
    y += node * rows * FEATURES
    if ALONE:
        mean, square = _moments(x, 0, rows, column, inside, FEATURES, BR, BF)
    else:
        parts += node * splits * 2 * FEATURES
        mean, square = _merged(parts, rows, share, splits, column, inside, FEATURES, BF, AT)
    rstd = 1.0 / tl.sqrt(square / rows + EPSILON)
    at = node * FEATURES + column
    if split == 0:
        old_mean, old_var = tl.load(running_mean + at, mask=inside), tl.load(running_var + at, mask=inside)
        tl.store(running_mean + at, MOMENTUM * old_mean + (1.0 - MOMENTUM) * mean, mask=inside)
        tl.store(running_var + at, MOMENTUM * old_var + (1.0 - MOMENTUM) * (square / (rows - 1)), mask=inside)
        tl.store(saved + node * FEATURES + at, mean, mask=inside)
        tl.store(saved + node * FEATURES + FEATURES + at, rstd, mask=inside)
    scale = tl.load(weight + at, mask=inside, other=0.0) * rstd
    shift = tl.load(bias + at, mask=inside, other=0.0)
    stop = tl.minimum(split * share + share, rows)
    for first in range(split * share, stop, BR):
        row = first + tl.arange(0, BR)[:, None]
        here = (row < stop) & inside
        value = (tl.load(x + row * FEATURES + column, mask=here, other=0.0).to(tl.float32) - mean) * scale + shift
        tl.store(y + row * FEATURES + column, tl.where(value > 0, value, SLOPE * value), mask=here)


@kernel()
def _through_leaky(x, dy, at, here, mean, rstd, weight, bias, SLOPE: tl.constexpr):
    """The normalised input, and the gradient at the leaky ReLU's input."""
    normed = (tl.load(x + at, mask=here, other=0.0).to(tl.float32) - mean) * rstd
    g = tl.load(dy + at, mask=here, other=0.0).to(tl.float32)
    return tl.where(here, normed, 0.0), tl.where(normed * weight + bias > 0, g, SLOPE * g)


@kernel("rows", "share")
def _norm_backward(
    x, dy, weight, bias, saved, parts, dx, dweight, dbias, rows, share,
    SUMS: tl.constexpr, ALONE: tl.constexpr,
    FEATURES: tl.constexpr, BR: tl.constexpr, BF: tl.constexpr, AT: tl.constexpr, SLOPE: tl.constexpr = LEAKY_SLOPE,
):  # fmt: skip
    """SUMS: the sums of this split, into ``parts``. Otherwise dx, from these sums or, ALONE, from its own."""
    node, split, splits = tl.program_id(0).to(tl.int64), tl.program_id(1), tl.num_programs(1)
    column = tl.program_id(2) * BF + tl.arange(0, BF)[None, :]
    inside = column < FEATURES
    x += node * rows * FEATURES
    dy += node * rows * FEATURES
    dx += node * rows * FEATURES
    parts += node * splits * 2 * FEATURES
    at = node * FEATURES + column
    mean = tl.load(saved + node * FEATURES + at, mask=inside, other=0.0)
    rstd = tl.load(saved + node * FEATURES + FEATURES + at, mask=inside, other=0.0)
    scale, shift = tl.load(weight + at, mask=inside, other=0.0), tl.load(bias + at, mask=inside, other=0.0)
    start, stop = split * share, tl.minimum(split * share + share, rows)
    if SUMS or ALONE:
        db = tl.zeros((BR, BF), tl.float32)
        dw = tl.zeros((BR, BF), tl.float32)
        for first in range(start, stop, BR):
            row = first + tl.arange(0, BR)[:, None]
            here = (row < stop) & inside
            normed, g = _through_leaky(x, dy, row * FEATURES + column, here, mean, rstd, scale, shift, SLOPE)
            db += g
            dw += g * normed
    else:
        db = tl.zeros((AT, BF), tl.float32)
        dw = tl.zeros((AT, BF), tl.float32)
        for first in range(0, splits, AT):
            part = first + tl.arange(0, AT)[:, None]
            there = (part < splits) & inside
            db += tl.load(parts + part * 2 * FEATURES + column, mask=there, other=0.0)
            dw += tl.load(parts + (part * 2 + 1) * FEATURES + column, mask=there, other=0.0)
    sum_b, sum_w = tl.sum(db, 0)[None, :], tl.sum(dw, 0)[None, :]
    if SUMS:
        tl.store(parts + split * 2 * FEATURES + column, sum_b, mask=inside)
        tl.store(parts + (split * 2 + 1) * FEATURES + column, sum_w, mask=inside)
    else:
        if split == 0:
            tl.store(dbias + at, sum_b, mask=inside)
            tl.store(dweight + at, sum_w, mask=inside)
        for first in range(start, stop, BR):
            row = first + tl.arange(0, BR)[:, None]
            here = (row < stop) & inside
            normed, g = _through_leaky(x, dy, row * FEATURES + column, here, mean, rstd, scale, shift, SLOPE)
            value = scale * rstd * (g - sum_b / rows - normed * (sum_w / rows))
            tl.store(dx + row * FEATURES + column, value, mask=here)


def _norm_plan(n: int, rows: int, f: int) -> tuple[tuple[int, int, int], int, dict[str, Any]]:
    """Grid (node, split, feature block), rows in a split and constants; splits only where rows are many."""
    wide = power(f, 32 if n * f >= 4096 or rows > FEW_ROWS else 8)  # narrow blocks where there are few
    tall, blocks = TILE // wide, cdiv(f, wide)
    splits = 1 if rows <= FEW_ROWS else min(128, cdiv(1024, n * blocks), rows // 512)
    share = rows if splits == 1 else cdiv(cdiv(rows, splits), tall) * tall
    return (n, cdiv(rows, share), blocks), share, {"FEATURES": f, "BR": tall, "BF": wide, "num_warps": 8}


class _FusedNormLeaky(Function):
    @staticmethod
    def forward(ctx, x, weight, bias, running_mean, running_var, epsilon, momentum):
        n, rows, f = x.shape
        grid, share, constants = _norm_plan(n, rows, f)
        y, saved, parts = torch.empty_like(x), weight.new_empty(n, 2, f), weight.new_empty(n, grid[1], 2, f)
        alone = grid[1] == 1
        if not alone:
            _norm_parts[grid](x, parts, rows, share, **constants)
        tensors = (x, weight, bias, running_mean, running_var, parts, y, saved)
        constants |= {"EPSILON": epsilon, "MOMENTUM": momentum, "AT": MERGED}
        _norm_forward[grid](*tensors, rows, share, ALONE=alone, **constants)
        ctx.save_for_backward(x, weight, bias, saved)
        return y

    @staticmethod
    def backward(ctx, dy):
        x, weight, bias, saved = ctx.saved_tensors
        n, rows, f = x.shape
        grid, share, constants = _norm_plan(n, rows, f)
        dx, dw, db, parts = map(torch.empty_like, (x, weight, bias, weight.new_empty(n, grid[1], 2, f)))
        tensors, alone = (x, dy.contiguous(), weight, bias, saved, parts, dx, dw, db), grid[1] == 1
        for sums in [False] if alone else [True, False]:
            _norm_backward[grid](*tensors, rows, share, SUMS=sums, ALONE=alone, AT=MERGED, **constants)
        return dx, dw, db, None, None, None, None


def norm_leaky(
    x: Tensor,
    weight: Tensor,
    bias: Tensor,
    running_mean: Tensor,
    running_var: Tensor,
    epsilon: float,
    momentum: float,
) -> Tensor:
    """Batch norm in training mode, then leaky ReLU: x is (node, row, feature), the others (node, feature).

    Statistics are taken over the rows, at each node and feature; the running ones are updated in place and
    keep ``momentum`` of what they were.
    """
    if fused_images(x) and x.shape[1] > 1:
        affine = weight.contiguous(), bias.contiguous()
        return _FusedNormLeaky.apply(x.contiguous(), *affine, running_mean, running_var, epsilon, momentum)
    return cpu.norm_leaky(x, weight, bias, running_mean, running_var, epsilon, momentum)


# --------------------------------------------------------------------------------------------------------- sums of rows


@kernel("width")
def _row_sums(x, starts, members, y, width, SIZE: tl.constexpr):
    group = tl.program_id(0).to(tl.int64)
    at = tl.program_id(1) * SIZE + tl.arange(0, SIZE)
    value = tl.zeros((SIZE,), tl.float32)
    for i in range(tl.load(starts + group), tl.load(starts + group + 1)):
        value += tl.load(x + tl.load(members + i).to(tl.int64) * width + at, mask=at < width, other=0.0)
    tl.store(y + group * width + at, value, mask=at < width)


class _FusedRowSums(Function):
    @staticmethod
    def forward(ctx, x, starts, members, users_starts, users):
        ctx.save_for_backward(users_starts, users)
        return _FusedRowSums.summed(x, starts, members)

    @staticmethod
    def backward(ctx, dy):
        return _FusedRowSums.summed(dy, *ctx.saved_tensors), None, None, None, None

    @staticmethod
    def summed(x, starts, members):
        x = x.contiguous()
        y = x.new_empty(len(starts) - 1, *x.shape[1:])
        width = math.prod(x.shape[1:])
        _row_sums[(len(y), cdiv(width, BLOCK))](x, starts, members, y, width, SIZE=BLOCK)
        return y


def row_sums(x: Tensor, groups: tuple[Tensor, Tensor], users: tuple[Tensor, Tensor]) -> Tensor:
    """Row i is the sum of the rows of x in group i; ``users`` has for each row of x the groups that it is in.

    Both are compressed rows: (starts, members). The plain form is :class:`~treevae.model.layout.RowSums`.
    """
    return _FusedRowSums.apply(x, *groups, *users)
