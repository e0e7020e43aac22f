"""Convolutions of stride 2 as products of windows, and images made larger or smaller."""

# mypy: allow-untyped-defs

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor
from torch.autograd import Function

from .launch import BLOCK, cdiv, fused, kernel, power, tl

# ----------------------------------------------------------------------------------------- windows of 3x3 at stride 2


@kernel()
def _im2col(
    image, cols, H: tl.constexpr, W: tl.constexpr, C: tl.constexpr,
    GH: tl.constexpr, GW: tl.constexpr, PH: tl.constexpr, PW: tl.constexpr, SIZE: tl.constexpr,
):  # fmt: skip
    sample = tl.program_id(0).to(tl.int64)
    at = tl.program_id(1) * SIZE + tl.arange(0, SIZE)
    place, column = at // (9 * C), at % (9 * C)
    channel, tap = column // 9, column % 9
    y, x = place // GW * 2 + tap // 3 - PH, place % GW * 2 + tap % 3 - PW
    there = at < GH * GW * 9 * C
    seen = there & (y >= 0) & (y < H) & (x >= 0) & (x < W)
    value = tl.load(image + sample * (H * W * C) + (y * W + x) * C + channel, mask=seen, other=0.0)
    tl.store(cols + sample * (GH * GW * 9 * C) + at, value, mask=there)


@kernel()
def _col2im(
    cols, image, H: tl.constexpr, W: tl.constexpr, C: tl.constexpr,
    GH: tl.constexpr, GW: tl.constexpr, PH: tl.constexpr, PW: tl.constexpr, SIZE: tl.constexpr,
):  # fmt: skip
    """An even coordinate of the padded image is seen by taps 0 and 2, an odd one by tap 1."""
    sample = tl.program_id(0).to(tl.int64)
    at = tl.program_id(1) * SIZE + tl.arange(0, SIZE)
    channel, place = at % C, at // C
    y, x = place // W + PH, place % W + PW
    there = at < H * W * C
    value = tl.zeros((SIZE,), tl.float32)
    for down in tl.static_range(2):
        for right in tl.static_range(2):
            ky, kx = y % 2 + 2 * down, x % 2 + 2 * right
            i, j = y // 2 - down, x // 2 - right
            seen = there & (ky < 3) & (kx < 3) & (i >= 0) & (i < GH) & (j >= 0) & (j < GW)
            column = ((i * GW + j) * C + channel) * 9 + ky * 3 + kx
            value += tl.load(cols + sample * (GH * GW * 9 * C) + column, mask=seen, other=0.0)
    tl.store(image + sample * (H * W * C) + at, value, mask=there)


def _windows(x: Tensor, size: Sequence[int], grid: Sequence[int], padding: Sequence[int], gather: bool) -> Tensor:
    """Launches one of the two; the other is its adjoint."""
    n, b = x.shape[:2]
    c = x.shape[4] if gather else x.shape[4] // 9
    y = x.new_empty(n, b, *grid, c * 9) if gather else x.new_empty(n, b, *size, c)
    each = math.prod(y.shape[2:])
    wide = power(each)
    launch = (_im2col if gather else _col2im)[(n * b, cdiv(each, wide))]
    launch(x.contiguous(), y, *size, c, *grid, *padding, SIZE=wide)
    return y


class _Windows(Function):
    @staticmethod
    def forward(ctx, x, size, grid, padding, gather):
        ctx.how = size, grid, padding, not gather
        return _windows(x, size, grid, padding, gather)

    @staticmethod
    def backward(ctx, dy):
        return _windows(dy, *ctx.how), None, None, None, None


class _PixelProduct(Function):
    @staticmethod
    def forward(ctx, x, weight):
        ctx.save_for_backward(x, weight)
        return torch.bmm(x, weight)

    @staticmethod
    def backward(ctx, dy):
        x, weight = ctx.saved_tensors
        dx = torch.bmm(dy, weight.transpose(1, 2)) if ctx.needs_input_grad[0] else None
        n, rows, _ = x.shape
        splits = 1
        while splits * n < 256 and rows % (2 * splits) == 0 and rows // splits > 512:
            splits *= 2
        x_parts, dy_parts = (t.reshape(n * splits, rows // splits, t.shape[2]) for t in (x, dy))
        parts = torch.bmm(x_parts.transpose(1, 2), dy_parts)
        return dx, parts.unflatten(0, (n, splits)).sum(1)


def pixel_product(x: Tensor, weight: Tensor) -> Tensor:
    """x @ weight, node by node, where x has a row for every pixel of every sample.

    The weights' gradient is a sum over all these rows, which a GPU does in parts; the plain form is torch.bmm.
    """
    return _PixelProduct.apply(x, weight) if fused(x) else torch.bmm(x, weight)


def im2col(image: Tensor, grid: tuple[int, int], padding: tuple[int, int]) -> Tensor:
    """The 3x3 windows at stride 2 of (node, batch, height, width, channel): (node, batch, *grid, channel * 9).

    cols[..., i, j, c * 9 + ky * 3 + kx] = image[..., 2 i + ky - padding[0], 2 j + kx - padding[1], c], 0 outside.
    """
    n, b, h, w, c = image.shape
    if fused(image):
        return _Windows.apply(image, (h, w), grid, padding, True)
    (gh, gw), (ph, pw) = grid, padding
    seen = F.pad(image.flatten(0, 1).permute(0, 3, 1, 2), (pw, 2 * gw + 1 - pw - w, ph, 2 * gh + 1 - ph - h))
    return F.unfold(seen, 3, stride=2).transpose(1, 2).reshape(n, b, gh, gw, c * 9)


def col2im(cols: Tensor, size: tuple[int, int], padding: tuple[int, int]) -> Tensor:
    """The adjoint of :func:`im2col`: every entry of the windows is added to its pixel of an image of this size."""
    n, b, gh, gw, k = cols.shape
    if fused(cols):
        return _Windows.apply(cols, size, (gh, gw), padding, False)
    (h, w), (ph, pw) = size, padding
    image = F.fold(cols.reshape(n * b, gh * gw, k).transpose(1, 2), (2 * gh + 1, 2 * gw + 1), 3, stride=2)
    image = F.pad(image, (-pw, w + pw - 2 * gw - 1, -ph, h + ph - 2 * gh - 1))
    return image.permute(0, 2, 3, 1).reshape(n, b, h, w, k // 9)


# ----------------------------------------------------------------------------------------------------------- resampling


class Bands(NamedTuple):
    """A matrix whose rows have few entries, side by side."""

    starts: Tensor  # (rows,): the column of each row's first entry
    weights: Tensor  # (rows, entries)


def bands(matrix: Tensor) -> Bands:
    """The bands of a matrix."""
    columns = [row.nonzero().squeeze(1) for row in matrix]
    width = max(int(of_row[-1] - of_row[0]) + 1 for of_row in columns)
    starts = torch.tensor([min(int(of_row[0]), matrix.shape[1] - width) for of_row in columns])
    weights = matrix.gather(1, starts[:, None] + torch.arange(width))
    return Bands(starts.int(), weights.contiguous())


@kernel("count")
def _resample(
    x, row_starts, row_weights, column_starts, column_weights, y, count,
    C: tl.constexpr, H: tl.constexpr, W: tl.constexpr, GH: tl.constexpr, GW: tl.constexpr,
    DOWN: tl.constexpr, ACROSS: tl.constexpr, SIZE: tl.constexpr,
):  # fmt: skip
    at = tl.program_id(0) * SIZE + tl.arange(0, SIZE)  # within the image, so that 32 bits are enough
    here = at < count
    channel, pixel = at % C, at // C
    j, i = pixel % GW, pixel // GW
    image = x + tl.program_id(1).to(tl.int64) * (H * W * C) + channel
    first_row = tl.load(row_starts + i, mask=here, other=0)
    first_column = tl.load(column_starts + j, mask=here, other=0)
    value = tl.zeros((SIZE,), tl.float32)
    for down in tl.static_range(DOWN):
        weight = tl.load(row_weights + i * DOWN + down, mask=here, other=0.0)
        for across in tl.static_range(ACROSS):
            share = weight * tl.load(column_weights + j * ACROSS + across, mask=here, other=0.0)
            place = ((first_row + down) * W + first_column + across) * C
            value += share * tl.load(image + place, mask=here, other=0.0).to(tl.float32)
    tl.store(y + tl.program_id(1).to(tl.int64) * count + at, value, mask=here)


def _resampled(x: Tensor, rows: Bands, columns: Bands) -> Tensor:
    b, h, w, c = x.shape
    y = x.new_empty(b, len(rows.starts), len(columns.starts), c)
    sizes = (c, h, w, *y.shape[1:3], rows.weights.shape[1], columns.weights.shape[1])
    each = y[0].numel()
    _resample[(cdiv(each, BLOCK), b)](x, *rows, *columns, y, each, *sizes, SIZE=BLOCK)
    return y


class _Resample(Function):
    @staticmethod
    def forward(ctx, x, *parts):
        ctx.adjoint = parts[4:]
        return _resampled(x, Bands(*parts[:2]), Bands(*parts[2:4]))

    @staticmethod
    def backward(ctx, dy):
        up, back = Bands(*ctx.adjoint[:2]), Bands(*ctx.adjoint[2:])
        return _resampled(dy.contiguous(), up, back), *(None,) * 8


def resample(x: Tensor, down: Bands, across: Bands, up: Bands, back: Bands) -> Tensor:
    """Images (batch, height, width, channel) times one matrix along rows and one along columns.

    ``up`` and ``back`` are the transposed matrices, for the gradient. The plain form is two matrix products.
    """
    return _Resample.apply(x.contiguous(), *down, *across, *up, *back)
