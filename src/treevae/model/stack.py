"""The same network at many nodes, run as one batched call.

Every layer here holds its tensors with a leading node axis, and everything that is built from these layers does too.
So a network is written once, as for one node, and a :class:`NodeStack` of n of them is one module: vectors travel as
(node, batch, feature) through batched matrix products, images as (batch, node * channel, height, width) through
grouped convolutions. ``gather`` makes a stack out of rows of other stacks: growing and pruning need nothing else.
"""

from __future__ import annotations

import copy
import math
from collections.abc import Sequence

import torch
import torch.nn.functional as F
from torch import Tensor, nn

LEAKY_SLOPE = 0.3
NORM_EPSILON = 1e-5
NORM_MOMENTUM = 0.1


class NodeStack(nn.Module):
    """A network at ``n`` nodes; all parameters and buffers have the node axis first."""

    def __init__(self, n: int) -> None:
        super().__init__()
        self.n = n


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
    alone._parameters = {k: None if v is None else v[i : i + 1] for k, v in part._parameters.items()}  # type: ignore[misc]
    alone._buffers = {k: None if v is None else v[i : i + 1] for k, v in part._buffers.items()}
    alone._modules = {k: None if v is None else frozen_row(v, i) for k, v in part._modules.items()}
    if isinstance(alone, NodeStack):
        alone.n = 1
    return alone


def uniform(shape: Sequence[int], fan_in: int, generator: torch.Generator) -> nn.Parameter:
    """A parameter drawn as torch's own layers draw theirs: U(-1/sqrt(fan_in), 1/sqrt(fan_in))."""
    bound = 1 / math.sqrt(fan_in)
    return nn.Parameter(torch.empty(*shape).uniform_(-bound, bound, generator=generator))


class Linear(NodeStack):
    """An affine map: (node, batch, n_in) -> (node, batch, n_out)."""

    def __init__(self, n: int, n_in: int, n_out: int, generator: torch.Generator, bias: bool = True) -> None:
        super().__init__(n)
        self.weight = uniform((n, n_in, n_out), n_in, generator)
        self.bias = uniform((n, 1, n_out), n_in, generator) if bias else None

    def forward(self, x: Tensor) -> Tensor:
        return torch.bmm(x, self.weight) if self.bias is None else torch.baddbmm(self.bias, x, self.weight)


class NormLeaky(NodeStack):
    """Batch norm and leaky ReLU on (batch, node * feature) or (batch, node * channel, height, width)."""

    running_mean: Tensor
    running_var: Tensor

    def __init__(self, n: int, features: int) -> None:
        super().__init__(n)
        self.weight = nn.Parameter(torch.ones(n, features))
        self.bias = nn.Parameter(torch.zeros(n, features))
        self.register_buffer("running_mean", torch.zeros(n, features))
        self.register_buffer("running_var", torch.ones(n, features))

    def forward(self, x: Tensor) -> Tensor:
        normed = F.batch_norm(
            x,
            self.running_mean.view(-1),
            self.running_var.view(-1),
            self.weight.view(-1),
            self.bias.view(-1),
            self.training,
            NORM_MOMENTUM,
            NORM_EPSILON,
        )
        return F.leaky_relu(normed, LEAKY_SLOPE)


class Dense(NodeStack):
    """Linear without bias, batch norm, leaky ReLU: (node, batch, n_in) -> (node, batch, n_out)."""

    def __init__(self, n: int, n_in: int, n_out: int, generator: torch.Generator) -> None:
        super().__init__(n)
        self.linear = Linear(n, n_in, n_out, generator, bias=False)
        self.norm = NormLeaky(n, n_out)

    def forward(self, x: Tensor) -> Tensor:
        return apart(self.norm(together(self.linear(x))), self.n)


def together(x: Tensor) -> Tensor:
    """(node, batch, feature) -> (batch, node * feature)."""
    return x.transpose(0, 1).flatten(1)


def apart(x: Tensor, n: int) -> Tensor:
    """(batch, node * feature...) -> (node, batch, feature), whatever the trailing dimensions of x."""
    return x.reshape(len(x), n, -1).transpose(0, 1)


class Conv2d(NodeStack):
    """A 3x3 convolution of stride 2 without padding, then norm and leaky: side -> (side - 3) // 2 + 1."""

    def __init__(self, n: int, n_in: int, n_out: int, generator: torch.Generator) -> None:
        super().__init__(n)
        self.weight = uniform((n, n_out, n_in, 3, 3), n_in * 9, generator)
        self.norm = NormLeaky(n, n_out)

    def forward(self, x: Tensor) -> Tensor:
        return self.norm(F.conv2d(x, self.weight.flatten(0, 1), stride=2, groups=self.n))


class ConvTranspose2d(NodeStack):
    """A 3x3 transposed convolution of stride 2: each side s becomes 2 s + odd, with odd 0 or 1."""

    def __init__(
        self, n: int, n_in: int, n_out: int, odd: tuple[int, int], generator: torch.Generator, head: bool = False
    ) -> None:
        super().__init__(n)
        self.weight = uniform((n, n_in, n_out, 3, 3), n_out * 9, generator)  # torch counts fan_in like this here
        self.bias = uniform((n, n_out), n_out * 9, generator) if head else None  # heads: a bias and no norm
        self.norm = None if head else NormLeaky(n, n_out)
        self.padding = (1 - odd[0], 1 - odd[1])

    def forward(self, x: Tensor) -> Tensor:
        bias = None if self.bias is None else self.bias.flatten()
        y = F.conv_transpose2d(
            x,
            self.weight.flatten(0, 1),
            bias,
            stride=2,
            padding=self.padding,
            output_padding=self.padding,  # padding 0: 2 s + 1; padding 1 and one row more: 2 s
            groups=self.n,
        )
        return y if self.norm is None else self.norm(y)
