"""Convolutions so large that one network fills a good part of a GPU: node by node, as torch's own layers run fastest.

Images are lists here, one tensor (batch, channel, height, width) for each node, with the channels innermost in memory
and in bfloat16 where ``kernels.reduced`` says so. Weights stay in single precision and have the node axis first, like
everything in stack.py. While a step is captured in a graph every node has a stream of its own, a *lane*, from
:func:`to_list` to :func:`from_list`, so that what is too small to fill the GPU runs side by side.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from contextlib import AbstractContextManager, nullcontext
from functools import lru_cache

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from . import kernels
from .cpu import LEAKY_SLOPE
from .stack import NodeStack, NormLeaky, first_biases, first_weights

Images = list[Tensor]
N_LANES = 8


def to_list(x: Tensor, shape: Sequence[int]) -> Images:
    """(node, batch, feature) -> images."""
    dtype = torch.bfloat16 if kernels.reduced(x) else x.dtype
    if _in_lanes(len(x)):
        for stream in _lanes(N_LANES)[: len(x)]:
            stream.wait_stream(torch.cuda.current_stream())
            x.record_stream(stream)
    return _each(lambda one: one.unflatten(1, shape).to(dtype, memory_format=torch.channels_last), x.unbind())


def from_list(images: Images, dtype: torch.dtype) -> Tensor:
    """Images -> (node, batch, feature), in a precision."""
    rows = _each(lambda image: image.flatten(1).to(dtype), images)
    # the rows' memory goes back to the lanes, which wait for this stream before they are used again: in to_list, or for
    # a gradient that comes from here
    if _in_lanes(len(images)):
        for stream in _lanes(N_LANES)[: len(images)]:
            torch.cuda.current_stream().wait_stream(stream)
    return torch.stack(rows)


def _each(ask: Callable[..., Tensor], *parts: Iterable[Tensor | None]) -> Images:
    """``ask`` of what belongs to each node, in the node's lane."""
    rows = list(zip(*parts, strict=True))
    answers = []
    for i, row in enumerate(rows):
        with _lane(i, len(rows)):
            answers.append(ask(*row))
    return answers


def _in_lanes(n: int) -> bool:
    return n > 1 and torch.cuda.is_available() and torch.cuda.is_current_stream_capturing()


def _lane(i: int, n: int) -> AbstractContextManager[object]:
    return torch.cuda.stream(_lanes(N_LANES)[i % N_LANES]) if _in_lanes(n) else nullcontext()


def _lanes(n: int) -> list[torch.cuda.Stream]:
    """The lanes of the present device; always the same, because cuBLAS keeps memory for every stream it has seen."""
    return _streams(torch.cuda.current_device(), n)


@lru_cache
def _streams(device: int, n: int) -> list[torch.cuda.Stream]:
    return [torch.cuda.Stream(device) for _ in range(n)]


class Conv(NodeStack):
    """A convolution, without bias unless it is a head, times a constant."""

    def __init__(
        self,
        n: int,
        n_in: int,
        n_out: int,
        side: int,
        generator: torch.Generator,
        stride: int = 1,
        padding: int = 0,
        scale: float = 1.0,
        head: bool = False,
    ) -> None:
        super().__init__(n)
        fans = n_in * side**2, n_out * side**2
        shape = n, n_out, side, side, n_in  # innermost as a convolution reads it
        self.weight = first_weights(shape, *fans, generator)
        self.bias = first_biases((n, n_out), fans[0], generator) if head else None
        self.stride, self.padding, self.scale = stride, padding, scale

    def forward(self, images: Images) -> Images:
        def one(x: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
            weight = (weight if self.scale == 1 else self.scale * weight).to(x.dtype).permute(0, 3, 1, 2)
            return F.conv2d(x, weight, None if bias is None else bias.to(x.dtype), self.stride, self.padding)

        biases = [None] * self.n if self.bias is None else self.bias.unbind()
        return _each(one, images, self.weight.unbind(), biases)


class ConvTransposed(NodeStack):
    """A transposed convolution of stride 2 without padding or bias: side s -> 2 (s - 1) + kernel + extra."""

    def __init__(self, n: int, n_in: int, n_out: int, side: int, generator: torch.Generator, extra: int = 0) -> None:
        super().__init__(n)
        fans = n_out * side**2, n_in * side**2  # the other way round, as torch counts
        self.weight = first_weights((n, n_in, side, side, n_out), *fans, generator)
        self.extra = extra

    def forward(self, images: Images) -> Images:
        def one(x: Tensor, weight: Tensor) -> Tensor:
            weight = weight.to(x.dtype).permute(0, 3, 1, 2)
            return F.conv_transpose2d(x, weight, stride=2, output_padding=self.extra)

        return _each(one, images, self.weight.unbind())


class Norm(NormLeaky):
    """Batch norm and leaky ReLU of images, each channel a feature."""

    def forward(self, images: Images) -> Images:  # type: ignore[override]
        running = self.running_mean.unbind(), self.running_var.unbind()
        return _each(self._one, images, self.weight.unbind(), self.bias.unbind(), *running)

    def _one(self, x: Tensor, weight: Tensor, bias: Tensor, mean: Tensor, var: Tensor) -> Tensor:
        if self.training and kernels.fused_images(x):
            rows = x.permute(0, 2, 3, 1)
            own = weight[None], bias[None], mean[None], var[None], *self.pace
            y = kernels.norm_leaky(rows.reshape(1, -1, x.shape[1]), *own)
            return y.view(rows.shape).permute(0, 3, 1, 2)
        epsilon, momentum = self.pace
        y = F.batch_norm(x, mean, var, weight, bias, self.training, 1 - momentum, epsilon)  # torch counts what is new
        return F.leaky_relu(y, LEAKY_SLOPE)


class Resampled(nn.Module):
    """Images of another size, made by one matrix along the rows and one along the columns, each (new size, size)."""

    rows: Tensor
    columns: Tensor

    def __init__(self, rows: Tensor, columns: Tensor) -> None:
        super().__init__()
        self.register_buffer("rows", rows, persistent=False)
        self.register_buffer("columns", columns, persistent=False)
        for name, matrix in (("down", rows), ("across", columns), ("up", rows.T), ("back", columns.T)):
            starts, weights = kernels.bands(matrix)
            self.register_buffer(f"{name}_starts", starts, persistent=False)
            self.register_buffer(f"{name}_weights", weights, persistent=False)

    def forward(self, images: Images) -> Images:
        return _each(lambda x: self._one(x.permute(0, 2, 3, 1)).permute(0, 3, 1, 2), images)

    def _one(self, x: Tensor) -> Tensor:
        """(batch, height, width, channel) -> the same of the new size."""
        if kernels.fused_images(x):
            return kernels.resample(x, *map(self._bands, ("down", "across", "up", "back")))
        b, _, w, c = x.shape
        tall = torch.matmul(self.rows, x.reshape(b, -1, w * c))  # (batch, new height, width * channel)
        wide = torch.matmul(self.columns, tall.view(-1, w, c))  # (batch * new height, new width, channel)
        return wide.view(b, len(self.rows), len(self.columns), c)

    def _bands(self, name: str) -> kernels.Bands:
        return kernels.Bands(self.get_buffer(f"{name}_starts"), self.get_buffer(f"{name}_weights"))


def halved(size: tuple[int, int]) -> Resampled:
    """The mean of 3x3 pixels at every second one, the outside counted as 0: side s -> ceil(s / 2)."""
    rows, columns = (F.avg_pool1d(torch.eye(side), 3, 2, 1).T.contiguous() for side in size)
    return Resampled(rows, columns)


def enlarged(size: tuple[int, int], larger: tuple[int, int]) -> Resampled:
    """Bilinear interpolation."""
    rows, columns = (
        F.interpolate(torch.eye(side)[None], new, mode="linear")[0].T.contiguous()
        for side, new in zip(size, larger, strict=True)
    )
    return Resampled(rows, columns)


class ResnetBlock(NodeStack):
    """x -> shortcut(x) + 0.1 conv(leaky(bn(conv(leaky(bn(x)))))), 3x3; the shortcut is 1x1 where widths differ.

    No convolution has a bias: a batch norm takes it away again, here or after the last block.
    """

    def __init__(self, n: int, n_in: int, n_out: int, generator: torch.Generator) -> None:
        super().__init__(n)
        hidden = min(n_in, n_out)
        self.residual = nn.Sequential(
            Norm(n, n_in),
            Conv(n, n_in, hidden, 3, generator, padding=1),
            Norm(n, hidden),
            Conv(n, hidden, n_out, 3, generator, padding=1, scale=0.1),
        )
        self.shortcut = None if n_in == n_out else Conv(n, n_in, n_out, 1, generator)

    def forward(self, images: Images) -> Images:
        straight = images if self.shortcut is None else self.shortcut(images)
        return _each(torch.add, straight, self.residual(images))
