"""The same network at many nodes, run as one batched call.

Every layer here holds its tensors with a leading node axis, and everything that is built from these layers does too.
So a network is written once, as for one node, and a :class:`NodeStack` of n of them is one module: vectors travel as
(node, batch, feature) through batched matrix products, images in one of the two forms of :func:`to_images`.
``gather`` makes a stack out of rows of other stacks: growing and pruning need nothing else.
"""

from __future__ import annotations

import copy
import math
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from typing import NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from . import cpu, kernels
from .cpu import LEAKY_SLOPE


class NodeStack(nn.Module):
    """A network at ``n`` nodes; all parameters and buffers have the node axis first."""

    def __init__(self, n: int) -> None:
        super().__init__()
        self.n = n


class Trainable(nn.Module):
    """A module whose parameters are all in stacks."""

    def stacks(self) -> Iterator[tuple[NodeStack, tuple[int, ...]]]:
        """All stacks, each with the tree of every one of its rows."""
        raise NotImplementedError


def gather(rows: Sequence[tuple[NodeStack, int]]) -> NodeStack:
    """A new stack whose i-th node is row ``rows[i][1]`` of stack ``rows[i][0]``, values copied."""
    stack = copy.deepcopy(rows[0][0])
    sources = [dict(source.state_dict()) for source, _ in rows]
    for part in stack.modules():
        if isinstance(part, NodeStack):
            part.n = len(rows)
    for name, _ in list(stack.state_dict().items()):
        values = torch.stack([source[name][row] for source, (_, row) in zip(sources, rows, strict=True)])
        path, _, leaf = name.rpartition(".")
        owner = stack.get_submodule(path)
        setattr(owner, leaf, nn.Parameter(values) if leaf in owner._parameters else values)
    return stack


def frozen_row(part: nn.Module, i: int) -> nn.Module:
    """The i-th network of a stack, alone and in eval mode; its tensors are views, so it costs next to nothing."""
    alone = copy.copy(part)
    alone.training = False
    alone._modules = {k: None if v is None else frozen_row(v, i) for k, v in part._modules.items()}
    if isinstance(alone, NodeStack):
        alone.n = 1
        alone._parameters = {k: None if v is None else v[i : i + 1] for k, v in part._parameters.items()}  # type: ignore[misc]
        alone._buffers = {k: None if v is None else v[i : i + 1] for k, v in part._buffers.items()}
    return alone


class LayerDefaults(NamedTuple):
    """What layers are like where nobody says otherwise; it differs between frameworks, and it matters."""

    epsilon: float  # added to the variance in a norm
    momentum: float  # how much of its running statistics a norm keeps at every step
    glorot: bool  # whether first weights are Glorot's, with biases of 0

    @property
    def norms(self) -> tuple[float, float]:
        """Epsilon and momentum."""
        return self.epsilon, self.momentum


LAYER_DEFAULTS = {"torch": LayerDefaults(1e-5, 0.9, glorot=False), "tensorflow": LayerDefaults(1e-3, 0.99, glorot=True)}
_defaults: ContextVar[LayerDefaults] = ContextVar("whose layers are made", default=LAYER_DEFAULTS["torch"])


@contextmanager
def layers_like(defaults: LayerDefaults) -> Iterator[None]:
    """Inside, new layers have these defaults; outside torch's."""
    token = _defaults.set(defaults)
    try:
        yield
    finally:
        _defaults.reset(token)


_follows: ContextVar[bool] = ContextVar("whether norms follow the batches that they see", default=True)


@contextmanager
def norms_at_rest() -> Iterator[None]:
    """Inside, norms in training keep their running statistics: what they see is no sample of its own."""
    token = _follows.set(False)
    try:
        yield
    finally:
        _follows.reset(token)


def first_weights(shape: Sequence[int], fan_in: int, fan_out: int, generator: torch.Generator) -> nn.Parameter:
    """Weights as such layers draw them: up to 1/sqrt(fan_in), or Glorot's sqrt(6 / (fan_in + fan_out))."""
    return _uniform(shape, math.sqrt(6 / (fan_in + fan_out) if _defaults.get().glorot else 1 / fan_in), generator)


def first_biases(shape: Sequence[int], fan_in: int, generator: torch.Generator) -> nn.Parameter:
    """Biases as such layers draw them."""
    return _uniform(shape, 0.0 if _defaults.get().glorot else 1 / math.sqrt(fan_in), generator)


def _uniform(shape: Sequence[int], bound: float, generator: torch.Generator) -> nn.Parameter:
    made = torch.empty(*shape, device=_device.get())
    return nn.Parameter(made if made.is_meta else made.uniform_(-bound, bound, generator=generator))


def constant(n: int, features: int, value: float) -> Tensor:
    """A matrix of one number, as norms begin with."""
    made = torch.empty(n, features, device=_device.get())
    return made if made.is_meta else made.fill_(value)


_device: ContextVar[str | None] = ContextVar("where weights are made", default=None)


@contextmanager
def shapes_only() -> Iterator[None]:
    """Inside, new networks have weights with shapes but without values, which take no memory."""
    token = _device.set("meta")
    try:
        yield
    finally:
        _device.reset(token)


class Linear(NodeStack):
    """An affine map: (node, batch, n_in) -> (node, batch, n_out)."""

    def __init__(self, n: int, n_in: int, n_out: int, generator: torch.Generator, bias: bool = True) -> None:
        super().__init__(n)
        self.weight = first_weights((n, n_in, n_out), n_in, n_out, generator)
        self.bias = first_biases((n, 1, n_out), n_in, generator) if bias else None

    def forward(self, x: Tensor) -> Tensor:
        return kernels.linear(x, self.weight, self.bias)


class NormLeaky(NodeStack):
    """Batch norm and leaky ReLU."""

    running_mean: Tensor
    running_var: Tensor

    def __init__(self, n: int, features: int) -> None:
        super().__init__(n)
        self.defaults = _defaults.get()
        self.weight = nn.Parameter(constant(n, features, 1))
        self.bias = nn.Parameter(constant(n, features, 0))
        self.register_buffer("running_mean", constant(n, features, 0))
        self.register_buffer("running_var", constant(n, features, 1))

    def forward(self, x: Tensor) -> Tensor:
        """(node, row, feature) -> the same."""
        if self.training:
            running = self.running_mean, self.running_var
            return kernels.norm_leaky(x, self.weight, self.bias, *running, *self.pace)
        scale, shift = self.affine()
        normed = torch.addcmul(shift, x, scale) if kernels.fused(x) else x * scale + shift  # each where it is faster
        return F.leaky_relu(normed, LEAKY_SLOPE)

    @property
    def pace(self) -> tuple[float, float]:
        """Epsilon, and how much of its running statistics it keeps of a step."""
        epsilon, momentum = self.defaults.norms
        return epsilon, momentum if _follows.get() else 1.0

    def affine(self) -> tuple[Tensor, Tensor]:
        """The scale and the shift that the norm is in eval mode, both (node, 1, feature)."""
        scale = self.weight * (self.running_var + self.defaults.epsilon).rsqrt()
        return scale.unsqueeze(1), (self.bias - self.running_mean * scale).unsqueeze(1)

    def images(self, x: Tensor) -> Tensor:
        """The same for images, each channel a feature, in either form of :func:`to_images`."""
        if x.dim() == 5:
            return self(x.flatten(1, 3)).view_as(x)
        series = pixels(x).reshape(self.n, -1, x[:, 0].numel())
        return self(series.mT).mT.reshape(pixels(x).shape).permute(3, 0, 1, 2)


class Dense(NodeStack):
    """Linear without bias, batch norm, leaky ReLU: (node, batch, n_in) -> (node, batch, n_out)."""

    def __init__(self, n: int, n_in: int, n_out: int, generator: torch.Generator) -> None:
        super().__init__(n)
        self.linear = Linear(n, n_in, n_out, generator, bias=False)
        self.norm = NormLeaky(n, n_out)

    def forward(self, x: Tensor) -> Tensor:
        return self.norm(self.linear(x))


class FrozenDense(NodeStack):
    """A dense layer in eval mode, with its norm folded into the weights."""

    def __init__(self, dense: Dense) -> None:
        super().__init__(dense.n)
        scale, shift = dense.norm.affine()
        self.register_buffer("weight", (dense.linear.weight * scale).detach())
        self.register_buffer("bias", shift.detach())

    def forward(self, x: Tensor) -> Tensor:
        return F.leaky_relu(torch.baddbmm(self.get_buffer("bias"), x, self.get_buffer("weight")), LEAKY_SLOPE)


def to_images(x: Tensor, shape: Sequence[int]) -> Tensor:
    """(node, batch, feature) -> images, in the form that runs fastest.

    On a GPU that is (node, batch, height, width, channel), where convolutions are batched matrix products; elsewhere
    (batch, node * channel, height, width) with the batch innermost in memory.
    """
    if kernels.fused(x):
        return x.unflatten(2, shape).permute(0, 1, 3, 4, 2).contiguous()
    return x.mT.reshape(len(x) * shape[0], *shape[1:], x.shape[1]).permute(3, 0, 1, 2)


def from_images(x: Tensor, n: int) -> Tensor:
    """Images of n nodes in either form -> (node, batch, feature)."""
    if x.dim() == 5:
        return x.permute(0, 1, 4, 2, 3).flatten(2)
    return pixels(x).reshape(n, -1, len(x)).mT


def pixels(x: Tensor) -> Tensor:
    """Images in the second form as they lie in memory: (node * channel, height, width, batch)."""
    return x.permute(1, 2, 3, 0)


class Conv2d(NodeStack):
    """A 3x3 convolution of stride 2 without padding, then norm and leaky: side -> (side - 3) // 2 + 1."""

    def __init__(self, n: int, n_in: int, n_out: int, generator: torch.Generator) -> None:
        super().__init__(n)
        self.weight = first_weights((n, n_out, n_in, 3, 3), n_in * 9, n_out * 9, generator)
        self.norm = NormLeaky(n, n_out)

    def forward(self, x: Tensor) -> Tensor:
        if x.dim() == 4:
            y = cpu.downward(pixels(x).unflatten(0, (self.n, -1)), self.weight)
            return self.norm.images(y.flatten(0, 1).permute(3, 0, 1, 2))
        grid = ((x.shape[2] - 3) // 2 + 1, (x.shape[3] - 3) // 2 + 1)
        columns = kernels.im2col(x, grid, (0, 0))
        y = kernels.pixel_product(columns.flatten(1, 3), self.weight.flatten(2).transpose(1, 2))
        return self.norm.images(y.unflatten(1, columns.shape[1:4]))


class ConvTranspose2d(NodeStack):
    """A 3x3 transposed convolution of stride 2: each side s becomes 2 s + odd, with odd 0 or 1."""

    def __init__(
        self, n: int, n_in: int, n_out: int, odd: tuple[int, int], generator: torch.Generator, head: bool = False
    ) -> None:
        super().__init__(n)
        fans = n_out * 9, n_in * 9  # the other way round, as torch counts
        self.weight = first_weights((n, n_in, n_out, 3, 3), *fans, generator)
        self.bias = first_biases((n, n_out), fans[0], generator) if head else None  # heads: a bias and no norm
        self.norm = None if head else NormLeaky(n, n_out)
        self.padding = (1 - odd[0], 1 - odd[1])

    def forward(self, x: Tensor) -> Tensor:
        if x.dim() == 4:
            return self._innermost(x)
        y = self._products(x)
        return y if self.norm is None else self.norm.images(y)

    def _innermost(self, x: Tensor) -> Tensor:
        """All in one step; in eval mode the norm is folded into the weights."""
        image, norm = pixels(x).unflatten(0, (self.n, -1)), self.norm
        if norm is None:
            assert self.bias is not None
            y, _ = cpu.upward(image, self.weight, None, self.bias, self.padding, 0.0)
        elif self.training:
            epsilon, momentum = norm.pace
            y, stats = cpu.upward(image, self.weight, norm.weight, norm.bias, self.padding, epsilon)
            cpu.follow(norm.running_mean, norm.running_var, stats, y[0, 0].numel(), momentum)
        else:
            scale, shift = norm.affine()
            weight = self.weight * scale[..., None, None]
            y = F.leaky_relu(cpu.upward(image, weight, None, shift.squeeze(1), self.padding, 0.0)[0], LEAKY_SLOPE)
        return y.flatten(0, 1).permute(3, 0, 1, 2)

    def _products(self, x: Tensor) -> Tensor:
        """One product makes what each pixel adds to its 3x3 surroundings; col2im adds it all up."""
        columns = kernels.pixel_product(x.flatten(1, 3), self.weight.flatten(2)).unflatten(1, x.shape[1:4])
        size = (2 * x.shape[2] + 1 - self.padding[0], 2 * x.shape[3] + 1 - self.padding[1])
        y = kernels.col2im(columns, size, self.padding)
        return y if self.bias is None else y + self.bias[:, None, None, None, :]
