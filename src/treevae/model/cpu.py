"""The forms of a step's operations that run fastest on the CPU.

The batch is innermost in memory, so that a pixel, or a feature, is a contiguous run of numbers: windows of images are
cheap to make and to add up, and norms reduce contiguous memory. What is too large for the cache goes node by node.
"""

# mypy: allow-untyped-defs

from __future__ import annotations

from collections.abc import Sequence
from itertools import product

import torch
import torch.nn.functional as F
from torch import Tensor
from torch.autograd import Function

LEAKY_SLOPE = 0.3


class _LinearOnCpu(Function):
    """Puts out the batch innermost; the weights' gradient lies as they do."""

    @staticmethod
    def forward(ctx, x, weight, bias):
        ctx.save_for_backward(x, weight)
        ctx.biased = bias is not None
        y = torch.bmm(weight.mT, x.mT)
        return (y if bias is None else y.add_(bias.mT)).mT

    @staticmethod
    def backward(ctx, dy):
        x, weight = ctx.saved_tensors
        dx = torch.bmm(weight, dy.mT).mT if ctx.needs_input_grad[0] else None
        return dx, torch.bmm(x.mT, dy), dy.sum(1, keepdim=True) if ctx.biased else None


def _norm(x: Tensor, weight: Tensor, bias: Tensor, y: Tensor, epsilon: float) -> Tensor:
    """Norm and leaky of x (series, row), written into y: mean and variance of each series, (2, series)."""
    mean = x.mean(1, keepdim=True)
    torch.sub(x, mean, out=y)
    var = torch.linalg.vector_norm(y, dim=1, keepdim=True).square_().div_(x.shape[1])
    y.mul_(weight[:, None] * (var + epsilon).rsqrt_()).add_(bias[:, None])
    F.leaky_relu_(y, LEAKY_SLOPE)
    return torch.cat([mean, var], 1).T


def _norm_gradients(
    dy: Tensor, x: Tensor, y: Tensor, weight: Tensor, stats: Tensor, epsilon: float
) -> tuple[Tensor, Tensor, Tensor]:
    """The gradients of x, weight and bias in :func:`_norm`."""
    g = torch.ops.aten.leaky_relu_backward(dy, y, LEAKY_SLOPE, True)
    given = g[None], x[None], weight, None, None, stats[0], (stats[1] + epsilon).rsqrt_()
    dx, dweight, dbias = torch.ops.aten.native_batch_norm_backward(*given, True, epsilon, (True, True, True))
    return dx[0], dweight, dbias


class _NormLeakyOnCpu(Function):
    @staticmethod
    def forward(ctx, x, weight, bias, epsilon):
        y, ctx.epsilon = torch.empty_like(x), epsilon
        stats = _norm(x, weight, bias, y, epsilon)
        ctx.save_for_backward(x, y, weight, stats)
        ctx.mark_non_differentiable(stats)
        return y, stats

    @staticmethod
    def backward(ctx, dy, _):
        return *_norm_gradients(dy, *ctx.saved_tensors, ctx.epsilon), None


@torch.no_grad()
def follow(running_mean: Tensor, running_var: Tensor, stats: Tensor, rows: int, momentum: float) -> None:
    """Move running statistics towards the mean and variance (2, …) of a batch of so many rows, keeping a part."""
    if rows < 2:
        raise ValueError("batch norm needs more than one row in training")
    mean, var = stats.view(2, *running_mean.shape)
    running_mean.lerp_(mean, 1 - momentum)
    running_var.lerp_(var * (rows / (rows - 1)), 1 - momentum)


def _overlaps(images: Tensor, cols: Tensor, padding: Sequence[int]) -> list[tuple[Tensor, Tensor]]:
    """Views that hold the same pixels: of images (node, channel, height, width, batch) and of one's windows.

    The windows are (channel, 3, 3, *grid, batch). Along an axis two of the three taps see each pixel once, as pairs,
    and the third sees every other pixel again. So four pairs of views cover all windows, and the first of them the
    image, but for the last row where its side is odd.
    """
    axes = []
    for n, p in zip(cols.shape[3:5], padding, strict=True):
        third = (slice(0, 1), slice(1, n), slice(1, 2 * n - 2, 2)) if p else (slice(2, 3), slice(n), slice(2, None, 2))
        axes.append([(slice(p, p + 2), slice(n), slice(2 * n)), third])
    overlaps = []
    for (ky, i, y), (kx, j, x) in product(*axes):
        windows = cols[:, ky, kx, i, j].permute(0, 3, 1, 4, 2, 5)
        pixels = images[:, :, y, x].unflatten(3, windows.shape[3:5]).unflatten(2, windows.shape[1:3])
        overlaps.append((pixels, windows))
    return overlaps


def _to_windows(overlaps: list[tuple[Tensor, Tensor]], i: int) -> None:
    """Write the windows of image i; what they see outside the image is left as it is."""
    for pixels, windows in overlaps:
        windows.copy_(pixels[i])


def _from_windows(overlaps: list[tuple[Tensor, Tensor]], i: int) -> None:
    """The adjoint: write the sums of the windows into image i; a last odd row or column must be 0 before."""
    (pixels, windows), *others = overlaps
    pixels[i].copy_(windows)
    for pixels, windows in others:
        pixels[i].add_(windows)


class _Upward(Function):
    """A transposed convolution, then norm and leaky if there is a scale; node by node, so as to stay in the cache."""

    @staticmethod
    def forward(ctx, x, weight, scale, shift, padding, epsilon):
        (n, _, h, w, b), c = x.shape, weight.shape[2]
        image = x.new_empty(n, c, 2 * h + 1 - padding[0], 2 * w + 1 - padding[1], b)
        image[:, :, 2 * h :] = 0
        image[:, :, :, 2 * w :] = 0
        y = image if scale is None else torch.empty_like(image)
        stats = x.new_empty(2, n, c)
        cols = x.new_empty(c, 3, 3, h, w, b)
        overlaps = _overlaps(image, cols, padding)
        for i in range(n):
            torch.mm(weight[i].flatten(1).T, x[i].flatten(1), out=cols.view(c * 9, -1))
            _from_windows(overlaps, i)
            if scale is None:
                y[i].flatten(1).add_(shift[i, :, None])
            else:
                stats[:, i] = _norm(image[i].flatten(1), scale[i], shift[i], y[i].flatten(1), epsilon)
        ctx.save_for_backward(x, weight, *((None, None, None, stats) if scale is None else (scale, image, y, stats)))
        ctx.padding, ctx.epsilon = padding, epsilon
        ctx.mark_non_differentiable(stats)
        return y, stats

    @staticmethod
    def backward(ctx, dy, _):
        x, weight, scale, image, y, stats = ctx.saved_tensors
        dx, dweight, dy = torch.empty_like(x), torch.empty_like(weight), dy.contiguous()
        dscale, dshift = torch.empty_like(stats)
        cols = x.new_zeros(weight.shape[2], 3, 3, *x.shape[2:])  # 0 outside the image
        flat = cols.view(weight.shape[2] * 9, -1)
        dimage = dy if scale is None else torch.empty_like(dy[:1])
        overlaps = _overlaps(dimage, cols, ctx.padding)
        for i in range(len(x)):
            if scale is None:
                torch.sum(dy[i].flatten(1), 1, out=dshift[i])
            else:
                given = dy[i].flatten(1), image[i].flatten(1), y[i].flatten(1), scale[i], stats[:, i]
                d, dscale[i], dshift[i] = _norm_gradients(*given, ctx.epsilon)
                dimage.view_as(d).copy_(d)
            _to_windows(overlaps, i if scale is None else 0)
            torch.mm(weight[i].flatten(1), flat, out=dx[i].flatten(1))
            torch.mm(x[i].flatten(1), flat.T, out=dweight[i].flatten(1))
        return dx, dweight, None if scale is None else dscale, dshift, None, None


class _Downward(Function):
    """A convolution, node by node."""

    @staticmethod
    def forward(ctx, x, weight):
        ctx.save_for_backward(x, weight)
        n, c, h, w, b = x.shape
        y = x.new_empty(n, weight.shape[1], (h - 3) // 2 + 1, (w - 3) // 2 + 1, b)
        cols = x.new_empty(c, 3, 3, *y.shape[2:])
        overlaps = _overlaps(_seen(x, y), cols, (0, 0))
        for i, (weight_i, y_i) in enumerate(zip(weight.flatten(2), y.flatten(2), strict=True)):
            _to_windows(overlaps, i)
            torch.mm(weight_i, cols.view(c * 9, -1), out=y_i)
        return y

    @staticmethod
    def backward(ctx, dy):
        x, weight = ctx.saved_tensors
        dx = torch.zeros_like(x) if ctx.needs_input_grad[0] else None
        dweight, dy = torch.empty_like(weight), dy.contiguous()
        cols = x.new_empty(x.shape[1], 3, 3, *dy.shape[2:])
        flat = cols.view(x.shape[1] * 9, -1)
        overlaps = [None if t is None else _overlaps(_seen(t, dy), cols, (0, 0)) for t in (x, dx)]
        for i, (weight_i, dy_i) in enumerate(zip(weight.flatten(2), dy.flatten(2), strict=True)):
            _to_windows(overlaps[0], i)
            torch.mm(dy_i, flat.T, out=dweight[i].flatten(1))
            if dx is not None:
                torch.mm(weight_i.T, dy_i, out=flat)
                _from_windows(overlaps[1], i)
        return dx, dweight


def _seen(image: Tensor, grid: Tensor) -> Tensor:
    """The part of an image that some window sees."""
    return image[:, :, : 2 * grid.shape[2] + 1, : 2 * grid.shape[3] + 1]


def downward(x: Tensor, weight: Tensor) -> Tensor:
    """A 3x3 convolution of stride 2, without padding, of (node, channel, height, width, batch).

    With the batch innermost in memory every pixel is a contiguous run, so that windows are cheap to make and to add,
    and the rest is one matrix product a node. ``weight`` is (node, to, from, 3, 3).
    """
    return _Downward.apply(x.contiguous(), weight.contiguous())


def upward(
    x: Tensor,
    weight: Tensor,
    scale: Tensor | None,
    shift: Tensor,
    padding: tuple[int, int],
    epsilon: float,
) -> tuple[Tensor, Tensor]:
    """A 3x3 transposed convolution of stride 2, each side s becoming 2 s + 1 - padding.

    Then comes batch norm with this scale, shift and epsilon and leaky ReLU, or without a scale the shift alone.
    Beside the images it gives the norm's means and variances, (2, node, channel). ``weight`` is (node, from, to, 3, 3).
    """
    return _Upward.apply(x.contiguous(), weight.contiguous(), scale, shift, padding, epsilon)


class _LogBernoulliOnCpu(Function):
    @staticmethod
    def forward(ctx, x, output, run_of):
        p = torch.empty_like(output)
        log_px = output.new_empty(len(output), output.shape[2])
        for i in range(len(output)):
            torch.sigmoid(output[i], out=p[i])
            most = (p[i] - 0.5).abs_().add_(0.5)
            # softplus(l) = max(l, 0) - log max(p, 1 - p), and a sum of logarithms is the logarithm of a product
            logs = torch.stack([part.prod(0) for part in most.split(64)]).log_()
            torch.mul(x[run_of[i]], output[i], out=most).sub_(output[i].clamp_min(0))
            torch.add(most.sum(0), logs.sum(0), out=log_px[i])
        ctx.save_for_backward(x, p)
        ctx.run_of = run_of
        return log_px

    @staticmethod
    def backward(ctx, g):
        x, p = ctx.saved_tensors
        doutput = torch.empty_like(p)
        for i in range(len(p)):
            torch.sub(x[ctx.run_of[i]], p[i], out=doutput[i]).mul_(g[i])
        return None, doutput, None


def linear(x: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
    """x @ weight + bias, node by node: (node, batch, n_in) -> (node, batch, n_out)."""
    return _LinearOnCpu.apply(x, weight, bias)


def norm_leaky(
    x: Tensor,
    weight: Tensor,
    bias: Tensor,
    running_mean: Tensor,
    running_var: Tensor,
    epsilon: float,
    momentum: float,
) -> Tensor:
    """Batch norm in training mode, then leaky ReLU; as :func:`kernels.norm_leaky`."""
    n, rows, f = x.shape
    series = x.mT.reshape(n * f, rows)  # no copy where the rows stand side by side
    y, stats = _NormLeakyOnCpu.apply(series, weight.reshape(-1), bias.reshape(-1), epsilon)
    follow(running_mean, running_var, stats, rows, momentum)
    return y.view(n, f, rows).mT


def log_bernoulli(x: Tensor, output: Tensor, run_of: Tensor) -> Tensor:
    """Log-likelihood of Bernoulli logits; as :func:`kernels.log_bernoulli`."""
    return _LogBernoulliOnCpu.apply(x.mT.contiguous(), output.mT.contiguous(), run_of.tolist())
