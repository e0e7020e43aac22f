"""Fused GPU kernels of the training step, each beside the plain torch code that defines it.

The plain code runs on the CPU, in double precision, wherever Triton is missing and inside ``with plain():``; where its
speed matters, it is in cpu.py. The kernels run on CUDA tensors of single precision, and on the CPU in Triton's
interpreter (``TRITON_INTERPRET=1``).
They may be captured in CUDA graphs, never add with atomics, so that a step repeats bit for bit, and are compiled anew
for new feature or image sizes (constants, in capitals) but not for new numbers of nodes, trees or samples.
"""

# mypy: allow-untyped-defs

from __future__ import annotations

import math
import os
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any, NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor
from torch.autograd import Function

from . import cpu
from .cpu import LEAKY_SLOPE
from .elbo import MIN_VARIANCE, Gaussian, kl_decision, kl_gaussian, precision_weighted

try:
    import triton
    import triton.language as tl
except ImportError:
    triton = None

ADAM_BETAS = (0.9, 0.999)
ADAM_RATES = tuple(-math.log(beta) for beta in ADAM_BETAS)
ADAM_EPSILON = 1e-8

TILE = 4096  # elements of a tile of rows and features in the norm
BLOCK = 1024  # elements of a tile everywhere else
FEW_ROWS = 2048  # up to here a norm is one kernel each way
MERGED = 16  # splits that are merged at a time

_interpreted = os.environ.get("TRITON_INTERPRET") == "1"
_plain: ContextVar[bool] = ContextVar("plain", default=False)
_fast: ContextVar[bool] = ContextVar("fast", default=False)


@contextmanager
def plain() -> Iterator[None]:
    """Inside, the plain torch code runs also where the kernels could."""
    token = _plain.set(True)
    try:
        yield
    finally:
        _plain.reset(token)


def fused(x: Tensor) -> bool:
    """Whether the kernels serve this tensor."""
    reachable = triton is not None and (x.is_cuda or _interpreted)
    return reachable and x.dtype == torch.float32 and not _plain.get()


@contextmanager
def fast_products() -> Iterator[None]:
    """Inside, a GPU may multiply with fewer bits: matrices in TF32 (10 bits of mantissa), large images in bfloat16."""
    before, token = torch.get_float32_matmul_precision(), _fast.set(True)
    torch.set_float32_matmul_precision("high")
    try:
        yield
    finally:
        torch.set_float32_matmul_precision(before)
        _fast.reset(token)


def reduced(x: Tensor) -> bool:
    """Whether large convolutions of x are to be done in bfloat16."""
    return x.is_cuda and x.dtype == torch.float32 and _fast.get() and not _plain.get()


def fused_images(x: Tensor) -> bool:
    """Whether the norm's and the resampling kernel serve this tensor; they take bfloat16 too, and count in float32."""
    return fused(x) or (triton is not None and x.is_cuda and x.dtype == torch.bfloat16 and not _plain.get())


def kernel(*sizes: str) -> Callable[[Callable], Any]:
    """Triton's jit, where there is Triton; no value of the named sizes causes another compilation."""
    return lambda code: code if triton is None else triton.jit(code, do_not_specialize=sizes)


def power(n: int, most: int = BLOCK) -> int:
    """The least power of two that is not less than n, or ``most``."""
    return min(most, 1 << max(n - 1, 0).bit_length())


def cdiv(a: int, b: int) -> int:
    """a / b, rounded up."""
    return -(-a // b)


# ---------------------------------------------------------------------------------------------- functions of one number


@kernel()
def _log1p(e):
    """log(1 + e) for 0 <= e <= 1 to full precision, tiny e too: 2 artanh(e / (2 + e)) as a series."""
    s = e / (2.0 + e)
    t = s * s
    return 2.0 * s * (1.0 + t * (1 / 3 + t * (1 / 5 + t * (1 / 7 + t * (1 / 9 + t * (1 / 11 + t / 13))))))


@kernel()
def _softplus(x):
    return tl.maximum(x, 0.0) + _log1p(tl.exp(-tl.abs(x)))


@kernel()
def _sigmoid(x):
    e = tl.exp(-tl.abs(x))
    return tl.where(x >= 0, 1.0, e) / (1.0 + e)


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


class _NormLeaky(Function):
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
        return _NormLeaky.apply(x.contiguous(), *affine, running_mean, running_var, epsilon, momentum)
    return cpu.norm_leaky(x, weight, bias, running_mean, running_var, epsilon, momentum)


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
    width = max(int(found[-1] - found[0]) + 1 for found in columns)
    starts = torch.tensor([min(int(found[0]), matrix.shape[1] - width) for found in columns])
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


# ------------------------------------------------------------------------------------------------------------ posterior


@kernel()
def _head(head, row, batch, node_stride, batch_stride, column, here, L: tl.constexpr):
    at = head + (row // batch).to(tl.int64) * node_stride + (row % batch).to(tl.int64) * batch_stride + column
    return tl.load(at, mask=here, other=0.0), tl.load(at + L, mask=here, other=0.0)


@kernel("count", "batch", "q_node", "q_batch", "p_node", "p_batch")
def _posterior(
    q, p, noise, z, kl, dz, dkl, dq, dp, count, batch, q_node, q_batch, p_node, p_batch,
    BACKWARD: tl.constexpr, PRIOR: tl.constexpr, L: tl.constexpr, BR: tl.constexpr, BL: tl.constexpr,
    MIN: tl.constexpr = MIN_VARIANCE,
):  # fmt: skip
    """With a and b the variances of hat and prior, t their sum and d the difference of means:

    mu = (m_a b + m_p a) / t,  v = a b / t,  KL = sum(a/t + b d^2/t^2 - 1 + log t - log a) / 2,
    dmu/dm_a = b/t,  dmu/da = -b d/t^2,  dv/da = b^2/t^2,  dKL/dm_a = b d/t^2,  dKL/da = -b^2/(2 a t^2) - b d^2/t^3,
    dmu/dm_p = a/t,  dmu/db = a d/t^2,  dv/db = a^2/t^2,  dKL/dm_p = -b d/t^2,  dKL/db = (b + (a - b) d^2/t) / (2 t^2).
    """
    row = tl.program_id(0) * BR + tl.arange(0, BR)[:, None]
    column = tl.arange(0, BL)[None, :]
    here = (row < count) & (column < L)
    m_a, raw_a = _head(q, row, batch, q_node, q_batch, column, here, L)
    a = _softplus(raw_a) + MIN
    if PRIOR:
        m_p, raw_p = _head(p, row, batch, p_node, p_batch, column, here, L)
        b = _softplus(raw_p) + MIN
    else:
        m_p = tl.zeros((BR, BL), tl.float32)
        b = m_p + 1.0
    over = 1.0 / (a + b)
    of_a, of_b, u = a * over, b * over, (m_a - m_p) * over  # a/t, b/t, d/t
    at = row.to(tl.int64) * L + column
    epsilon = tl.load(noise + at, mask=here, other=0.0)
    sigma = tl.sqrt(a * of_b)
    if BACKWARD:
        g = tl.load(dz + at, mask=here, other=0.0)
        g_kl = tl.load(dkl + row, mask=row < count, other=0.0)
        g_v = g * epsilon / (2.0 * sigma)
        g_u = of_b * u
        g_a = -g * g_u + g_v * of_b * of_b - g_kl * of_b * (0.5 * of_b / a + u * u)
        to = dq + row.to(tl.int64) * (2 * L) + column
        tl.store(to, g * of_b + g_kl * g_u, mask=here)
        tl.store(to + L, g_a * _sigmoid(raw_a), mask=here)
        if PRIOR:
            g_b = g * of_a * u + g_v * of_a * of_a + g_kl * 0.5 * (of_b * over + (of_a - of_b) * u * u)
            to = dp + row.to(tl.int64) * (2 * L) + column
            tl.store(to, g * of_a - g_kl * g_u, mask=here)
            tl.store(to + L, g_b * _sigmoid(raw_p), mask=here)
    else:
        tl.store(z + at, m_a * of_b + m_p * of_a + sigma * epsilon, mask=here)
        each = of_a + b * u * u - 1.0 + tl.log(a + b) - tl.log(a)
        tl.store(kl + row, 0.5 * tl.sum(tl.where(here, each, 0.0), 1)[:, None], mask=row < count)


class _Posterior(Function):
    @staticmethod
    def launch(q, p, noise, *tensors, backward):
        n, b, latent = noise.shape
        wide, strides = power(latent, 1 << 16), (*q.stride()[:2], *(q if p is None else p).stride()[:2])
        rows = max(1, BLOCK // wide)
        _posterior[(cdiv(n * b, rows),)](
            q, q if p is None else p, noise, *tensors, n * b, b, *strides,
            BACKWARD=backward, PRIOR=p is not None, L=latent, BR=rows, BL=wide,
        )  # fmt: skip

    @staticmethod
    def forward(ctx, q, p, noise):
        z, kl = torch.empty_like(noise), noise.new_empty(noise.shape[:2])
        _Posterior.launch(q, p, noise, z, kl, z, kl, z, z, backward=False)
        ctx.save_for_backward(q, p, noise)
        return z, kl

    @staticmethod
    def backward(ctx, dz, dkl):
        q, p, noise = ctx.saved_tensors
        dz, dkl, dq = dz.contiguous(), dkl.contiguous(), q.new_empty(q.shape)
        dp = None if p is None else p.new_empty(p.shape)
        _Posterior.launch(q, p, noise, dz, dkl, dz, dkl, dq, dq if dp is None else dp, backward=True)
        return dq, dp, None


def posterior(head_q: Tensor, head_p: Tensor | None, noise: Tensor | None) -> tuple[Tensor, Tensor]:
    """A sample of the precision-weighted posterior, and its KL from the prior: (node, batch, latent), (node, batch).

    Heads are (node, batch, 2 latent), mean first and then the raw variance; without ``head_p`` the prior is N(0, I),
    without noise the sample is the mean.
    """
    if fused(head_q) and noise is not None:
        heads = (h if h is None or h.stride(-1) == 1 else h.contiguous() for h in (head_q, head_p))
        return _Posterior.apply(*heads, noise.contiguous())
    hat = Gaussian.from_head(head_q)
    prior = Gaussian.standard_like(hat) if head_p is None else Gaussian.from_head(head_p)
    q = precision_weighted(hat, prior)
    return q.mean if noise is None else q.sample(noise), kl_gaussian(q, prior)


# ------------------------------------------------------------------------------------------------------------ decisions


@kernel("count")
def _decisions_forward(logit_q, logit_p, log_p, kl, count, SIZE: tl.constexpr):
    at = tl.program_id(0) * SIZE + tl.arange(0, SIZE)
    here = at < count
    q, p = tl.load(logit_q + at, mask=here, other=0.0), tl.load(logit_p + at, mask=here, other=0.0)
    left, right = -_softplus(q), -_softplus(-q)
    tl.store(log_p + at, left, mask=here)
    tl.store(log_p + count + at, right, mask=here)
    value = _sigmoid(q) * (right + _softplus(-p)) + _sigmoid(-q) * (left + _softplus(p))
    tl.store(kl + at, value, mask=here)


@kernel("count")
def _decisions_backward(logit_q, logit_p, dlog_p, dkl, dq, dp, count, SIZE: tl.constexpr):
    at = tl.program_id(0) * SIZE + tl.arange(0, SIZE)
    here = at < count
    q, p = tl.load(logit_q + at, mask=here, other=0.0), tl.load(logit_p + at, mask=here, other=0.0)
    left, right = tl.load(dlog_p + at, mask=here, other=0.0), tl.load(dlog_p + count + at, mask=here, other=0.0)
    g = tl.load(dkl + at, mask=here, other=0.0)
    s, other = _sigmoid(q), _sigmoid(-q)
    tl.store(dq + at, right * other - left * s + g * s * other * (q - p), mask=here)
    tl.store(dp + at, g * (_sigmoid(p) - s), mask=here)


class _Decisions(Function):
    @staticmethod
    def forward(ctx, q, p):
        log_p, kl, count = q.new_empty(2 * len(q), q.shape[1]), torch.empty_like(q), q.numel()
        _decisions_forward[(cdiv(count, BLOCK),)](q, p, log_p, kl, count, SIZE=BLOCK)
        ctx.save_for_backward(q, p)
        return log_p, kl

    @staticmethod
    def backward(ctx, dlog_p, dkl):
        q, p = ctx.saved_tensors
        dq, dp, count = torch.empty_like(q), torch.empty_like(p), q.numel()
        launch = _decisions_backward[(cdiv(count, BLOCK),)]
        launch(q, p, dlog_p.contiguous(), dkl.contiguous(), dq, dp, count, SIZE=BLOCK)
        return dq, dp


def decisions(logit_q: Tensor, logit_p: Tensor) -> tuple[Tensor, Tensor]:
    """Log-probabilities of going left at all routers, then right: (2 router, batch); and the KL: (router, batch)."""
    if fused(logit_q) and logit_q.numel():
        return _Decisions.apply(logit_q.contiguous(), logit_p.contiguous())
    return torch.cat([F.logsigmoid(-logit_q), F.logsigmoid(logit_q)]), kl_decision(logit_q, logit_p)


# ------------------------------------------------------------------------------------------------ the terms of the ELBO


@kernel("batch")
def _weigh(
    log_reach, kl, kl_router, log_px, table, terms, dterms, dlog_reach, dkl, dkl_router, dlog_px, batch,
    BACKWARD: tl.constexpr, WIDTH: tl.constexpr, BB: tl.constexpr,
):  # fmt: skip
    tree, trees = tl.program_id(0), tl.num_programs(0)
    sample = tl.program_id(1) * BB + tl.arange(0, BB)[None, :]
    entry = table + tree * 4 * WIDTH + tl.arange(0, WIDTH)[:, None]
    node, router, leaf = tl.load(entry), tl.load(entry + WIDTH), tl.load(entry + 2 * WIDTH)
    root = tl.load(entry + 3 * WIDTH) == 1
    present = sample < batch
    at, at_router, at_leaf = node * batch + sample, router * batch + sample, leaf * batch + sample
    is_node, is_router, is_leaf = present & (node >= 0), present & (router >= 0), present & (leaf >= 0)
    reach = tl.where(is_node, tl.exp(tl.load(log_reach + at, mask=is_node, other=0.0)), 0.0)
    k = tl.load(kl + at, mask=is_node, other=0.0)
    k_router = tl.load(kl_router + at_router, mask=is_router, other=0.0)
    px = tl.load(log_px + at_leaf, mask=is_leaf, other=0.0)
    to = tree * batch + sample
    each = trees * batch
    if BACKWARD:
        g_px = tl.load(dterms + to, mask=present, other=0.0)
        g_root = tl.load(dterms + each + to, mask=present, other=0.0)
        g_node = tl.load(dterms + 2 * each + to, mask=present, other=0.0)
        g_router = tl.load(dterms + 3 * each + to, mask=present, other=0.0)
        g_kl = tl.where(root, g_root, g_node)
        tl.store(dlog_reach + at, reach * (g_px * px + g_kl * k + g_router * k_router), mask=is_node)
        tl.store(dkl + at, reach * g_kl, mask=is_node)
        tl.store(dkl_router + at_router, reach * g_router, mask=is_router)
        tl.store(dlog_px + at_leaf, reach * g_px, mask=is_leaf)
    else:
        tl.store(terms + to, tl.sum(reach * px, 0)[None, :], mask=present)
        tl.store(terms + each + to, tl.sum(tl.where(root, reach * k, 0.0), 0)[None, :], mask=present)
        tl.store(terms + 2 * each + to, tl.sum(tl.where(root, 0.0, reach * k), 0)[None, :], mask=present)
        tl.store(terms + 3 * each + to, tl.sum(reach * k_router, 0)[None, :], mask=present)


class _Weigh(Function):
    @staticmethod
    def launch(inputs, table, terms, dterms, gradients, backward):
        (trees, _, width), b = table.shape, terms.shape[2]
        samples = max(16, BLOCK // width)
        sizes = {"WIDTH": width, "BB": samples, "num_warps": power(width * samples // 256, 16)}
        _weigh[(trees, cdiv(b, samples))](*inputs, table, terms, dterms, *gradients, b, BACKWARD=backward, **sizes)

    @staticmethod
    def forward(ctx, table, *inputs):
        terms = inputs[0].new_empty(4, len(table), inputs[0].shape[1])
        _Weigh.launch(inputs, table, terms, terms, inputs, backward=False)
        ctx.save_for_backward(table, *inputs)
        return terms

    @staticmethod
    def backward(ctx, dterms):
        table, *inputs = ctx.saved_tensors
        gradients = [torch.empty_like(t) for t in inputs]
        _Weigh.launch(inputs, table, dterms, dterms.contiguous(), gradients, backward=True)
        return None, *gradients


def weigh(log_reach: Tensor, kl: Tensor, kl_router: Tensor, log_px: Tensor, table: Tensor) -> Tensor:
    """The terms of the ELBO, (4, tree, batch): reconstruction, KL of the root, of the other nodes, of the decisions.

    ``table``, int32 of shape (tree, 4, width), lists the nodes of each tree, padded with -1 to a power of two: the
    node's row in ``log_reach`` and ``kl``; its row in ``kl_router`` or -1; its row in ``log_px`` or -1; 1 if it is
    the root. Every node is in exactly one tree.
    """
    if fused(log_reach):
        return _Weigh.apply(table.contiguous(), *(t.contiguous() for t in (log_reach, kl, kl_router, log_px)))
    tree, place = (table[:, 0] >= 0).nonzero(as_tuple=True)
    node, router, leaf, root = table[tree, :, place].long().T
    reach = log_reach[node].exp()

    def total(chosen: Tensor, value: Tensor) -> Tensor:
        return reach.new_zeros(len(table), reach.shape[1]).index_add(0, tree[chosen], reach[chosen] * value)

    is_leaf, is_root, is_router = leaf >= 0, root == 1, router >= 0
    return torch.stack(
        [
            total(is_leaf, log_px[leaf[is_leaf]]),
            total(is_root, kl[node[is_root]]),
            total(~is_root, kl[node[~is_root]]),
            total(is_router, kl_router[router[is_router]]),
        ]
    )


# --------------------------------------------------------------------------------------------------------- sums of rows


@kernel("width")
def _row_sums(x, starts, members, y, width, SIZE: tl.constexpr):
    group = tl.program_id(0).to(tl.int64)
    at = tl.program_id(1) * SIZE + tl.arange(0, SIZE)
    value = tl.zeros((SIZE,), tl.float32)
    for i in range(tl.load(starts + group), tl.load(starts + group + 1)):
        value += tl.load(x + tl.load(members + i).to(tl.int64) * width + at, mask=at < width, other=0.0)
    tl.store(y + group * width + at, value, mask=at < width)


class _RowSums(Function):
    @staticmethod
    def forward(ctx, x, starts, members, users_starts, users):
        ctx.save_for_backward(users_starts, users)
        return _RowSums.summed(x, starts, members)

    @staticmethod
    def backward(ctx, dy):
        return _RowSums.summed(dy, *ctx.saved_tensors), None, None, None, None

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
    return _RowSums.apply(x, *groups, *users)


# ------------------------------------------------------------------------------------------------------------ bernoulli


@kernel("count", "batch")
def _log_bernoulli(
    x, output, run_of, log_px, g, doutput, count, batch,
    BACKWARD: tl.constexpr, FEATURES: tl.constexpr, BR: tl.constexpr, BF: tl.constexpr,
):  # fmt: skip
    row = tl.program_id(0) * BR + tl.arange(0, BR)[:, None]
    run = tl.load(run_of + row // batch, mask=row < count, other=0).to(tl.int64)
    x += (run * batch + row % batch) * FEATURES
    output += row.to(tl.int64) * FEATURES
    doutput += row.to(tl.int64) * FEATURES
    if BACKWARD:
        gradient = tl.load(g + row, mask=row < count, other=0.0)
    total = tl.zeros((BR, BF), tl.float32)
    for first in range(0, FEATURES, BF):
        column = first + tl.arange(0, BF)[None, :]
        here = (row < count) & (column < FEATURES)
        value = tl.load(x + column, mask=here, other=0.0)
        logit = tl.load(output + column, mask=here, other=0.0)
        if BACKWARD:
            tl.store(doutput + column, gradient * (value - _sigmoid(logit)), mask=here)
        else:
            total += tl.where(here, value * logit - _softplus(logit), 0.0)
    if not BACKWARD:
        tl.store(log_px + row, tl.sum(total, 1)[:, None], mask=row < count)


class _LogBernoulli(Function):
    @staticmethod
    def launch(x, output, run_of, log_px, g, doutput, backward):
        n, b, f = output.shape
        wide = power(f)
        launch = _log_bernoulli[(cdiv(n * b, BLOCK // wide),)]
        sizes = {"FEATURES": f, "BR": BLOCK // wide, "BF": wide}
        launch(x, output, run_of, log_px, g, doutput, n * b, b, BACKWARD=backward, **sizes)

    @staticmethod
    def forward(ctx, x, output, run_of):
        log_px = output.new_empty(output.shape[:2])
        _LogBernoulli.launch(x, output, run_of, log_px, log_px, output, backward=False)
        ctx.save_for_backward(x, output, run_of)
        return log_px

    @staticmethod
    def backward(ctx, g):
        x, output, run_of = ctx.saved_tensors
        doutput = torch.empty_like(output)
        _LogBernoulli.launch(x, output, run_of, g, g.contiguous(), doutput, backward=True)
        return None, doutput, None


def log_bernoulli(x: Tensor, output: Tensor, run_of: Tensor) -> Tensor:
    """Log-likelihood of Bernoulli logits ``output`` (node, batch, feature), without gradient for x: (node, batch).

    x is (run, batch, feature); node i explains the data of run ``run_of[i]``.
    """
    if fused(output):
        return _LogBernoulli.apply(x.contiguous(), output.contiguous(), run_of)
    return cpu.log_bernoulli(x, output, run_of)


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
