"""The networks of the paper (its appendix E.2), each written as for one node; stack.py runs many at once."""

from __future__ import annotations

import copy
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from itertools import pairwise
from math import prod
from typing import NamedTuple

import torch
from torch import Tensor, nn

from .convolutions import Conv, ConvTransposed, Norm, ResnetBlock, enlarged, from_list, halved, to_list
from .likelihoods import LIKELIHOODS, Likelihood
from .stack import (
    LAYER_DEFAULTS,
    Conv2d,
    ConvTranspose2d,
    Dense,
    LayerDefaults,
    Linear,
    NodeStack,
    from_images,
    gather,
    layers_like,
    to_images,
)

PROJECTION_WIDTHS = (512, 64)  # of the hidden layer of a projection and of its output

MLP_WIDTHS = {
    "mlp": (128, 128),  # vectors of a table or an embedding
    "deep_mlp": (512, 512, 256, 128),  # the paper's 20Newsgroups encoder
}
DEEP_CNN_SIZE = (28, 28)
IMAGE_NETWORKS = ("cnn", "deep_cnn", "resnet")
NETWORKS = (*MLP_WIDTHS, *IMAGE_NETWORKS)
MOST_LAYERS = 100  # of a network, and levels of a tree
LARGEST_SIDE = 4096  # pixels of an image that a convolutional network sees


class End(NamedTuple):
    """One end of a model: the shape of the samples there, and the networks for them."""

    shape: tuple[int, ...]  # (features,) or (channels, height, width)
    network: str  # one of NETWORKS


@dataclass(frozen=True)
class Architecture:
    """All that fixes the shapes of a model's networks, as plain numbers and words."""

    input_shape: tuple[int, ...]  # (features,) or (channels, height, width)
    network: str  # one of NETWORKS
    likelihood: str  # one of LIKELIHOODS
    latent_dims: tuple[int, ...]  # of z at depth 0, 1, …: one for each level
    hidden_dims: tuple[int, ...]  # of d, routers and transformations that start at depth 0, 1, …: one less
    transformation_layers: int = 1  # hidden layers of a transformation and of a step of the bottom-up
    router_layers: int = 2
    n_projections: int = 0  # of d, the deepest first, that a contrastive loss looks at
    layer_defaults: str = "torch"  # whose norms and first weights layers have, one of LAYER_DEFAULTS

    def __post_init__(self) -> None:
        if self.network not in NETWORKS or self.likelihood not in LIKELIHOODS:
            raise ValueError(f"there is no network {self.network!r} or no likelihood {self.likelihood!r}")
        if self.layer_defaults not in tuple(LAYER_DEFAULTS):
            raise ValueError(f"layer_defaults={self.layer_defaults!r} must be one of {', '.join(LAYER_DEFAULTS)}")
        layers = (self.transformation_layers, self.router_layers)
        sizes = (*self.input_shape, *self.latent_dims, *self.hidden_dims, *layers)
        if not all(type(size) is int and size >= 1 for size in sizes):
            raise ValueError(f"sizes of networks must be whole numbers of at least 1, got {sizes[:20]}")
        if max(len(self.latent_dims), *layers) > MOST_LAYERS:
            raise ValueError(f"at most {MOST_LAYERS} levels, and layers of a network, are possible; got more")
        if len(self.input_shape) != (3 if self.network in IMAGE_NETWORKS else len(self.input_shape)):
            raise ValueError(f"network={self.network!r} needs images (channels, height, width), got {self.input_shape}")
        if self.network in IMAGE_NETWORKS and max(self.input_shape) > LARGEST_SIDE:
            raise ValueError(f"images may have {LARGEST_SIDE} pixels a side, got {self.input_shape}; shrink them first")
        if type(self.n_projections) is not int or not 0 <= self.n_projections <= len(self.latent_dims):
            raise ValueError(f"n_projections={self.n_projections!r} must be 0 to {len(self.latent_dims)}")
        if len(self.hidden_dims) != len(self.latent_dims) - 1:
            raise ValueError(
                f"{len(self.latent_dims)} latent_dims need {len(self.latent_dims) - 1} hidden_dims, one for each step "
                f"between levels; got {len(self.hidden_dims)}: {self.hidden_dims}"
            )

    @property
    def read(self) -> End:
        """What the encoder reads."""
        return End(self.input_shape, self.network)

    @property
    def shown(self) -> End:
        """What the decoders show: one and the same as what is read."""
        return self.read

    @property
    def n_levels(self) -> int:
        """How many levels of latents a tree may have."""
        return len(self.latent_dims)

    @property
    def largest_activation(self) -> int:
        """Numbers in the largest activation of an encoder or a decoder for one sample."""
        pixels = prod(self.input_shape[1:])
        widest = {"cnn": 8, "deep_cnn": 32, "resnet": 32}.get(self.network, 0) * pixels
        return max(widest, self.likelihood_model.outputs * prod(self.input_shape), *MLP_WIDTHS.get(self.network, ()))

    @property
    def layers(self) -> LayerDefaults:
        """What its layers are like, by name."""
        return LAYER_DEFAULTS[self.layer_defaults]

    @property
    def likelihood_model(self) -> Likelihood:
        """log p(x | z), by its name."""
        return LIKELIHOODS[self.likelihood]

    def to_dict(self) -> dict[str, object]:
        """The fields as JSON-able values."""
        return asdict(self)


class Mlp(NodeStack):
    """Hidden dense layers, then a linear head if ``n_out`` is given."""

    def __init__(
        self, n: int, n_in: int, widths: Sequence[int], generator: torch.Generator, n_out: int | None = None
    ) -> None:
        super().__init__(n)
        sizes = [n_in, *widths]
        self.hidden = nn.Sequential(*(Dense(n, a, b, generator) for a, b in pairwise(sizes)))
        self.head = None if n_out is None else Linear(n, sizes[-1], n_out, generator)

    def forward(self, x: Tensor) -> Tensor:
        hidden = self.hidden(x)
        return hidden if self.head is None else self.head(hidden)


class CnnEncoder(NodeStack):
    """Convolutions that halve the image until a side is at most 3: 28 -> 13 -> 6 -> 2 for the paper's MNIST."""

    def __init__(self, n: int, input_shape: tuple[int, ...], generator: torch.Generator) -> None:
        super().__init__(n)
        channels, *sides = input_shape
        self.shape = input_shape
        layers = []
        for width in cnn_widths(input_shape):
            layers.append(Conv2d(n, channels, width, generator))
            channels, sides = width, [(side - 3) // 2 + 1 for side in sides]
        self.layers = nn.Sequential(*layers)
        self.n_out = channels * prod(sides)

    def forward(self, x: Tensor) -> Tensor:
        return from_images(self.layers(to_images(x, self.shape)), self.n)


class CnnDecoder(NodeStack):
    """A dense layer and transposed convolutions that double the image up to its side: 3 -> 7 -> 14 -> 28."""

    def __init__(
        self, n: int, latent: int, input_shape: tuple[int, ...], outputs: int, generator: torch.Generator
    ) -> None:
        super().__init__(n)
        channels, height, width = input_shape
        widths = cnn_widths(input_shape)[::-1]
        sizes = [(height >> k, width >> k) for k in range(len(widths), -1, -1)]  # smallest first
        self.first = (widths[0], *sizes[0])
        self.dense = Dense(n, latent, prod(self.first), generator)
        steps = zip(widths, [*widths[1:], outputs * channels], sizes[1:], strict=True)
        self.layers = nn.Sequential(
            *(
                ConvTranspose2d(n, a, b, (size[0] % 2, size[1] % 2), generator, head=k == len(widths) - 1)
                for k, (a, b, size) in enumerate(steps)
            )
        )

    def forward(self, z: Tensor) -> Tensor:
        return from_images(self.layers(to_images(self.dense(z), self.first)), self.n)


def cnn_widths(input_shape: tuple[int, ...]) -> tuple[int, ...]:
    """The channels of each layer of the CNN for images of this shape: 8, 16, 32 for 28x28."""
    side, widths = min(input_shape[1:]), [8]
    while (side := (side - 3) // 2 + 1) > 3:
        widths.append(min(2 * widths[-1], 256))
    return tuple(widths)


class DeepCnnEncoder(NodeStack):
    """The paper's Omniglot encoder: six 4x4 convolutions, 28 -> 27 -> 13 -> 12 -> 6 -> 5 -> 1 pixels a side."""

    def __init__(self, n: int, input_shape: tuple[int, ...], generator: torch.Generator) -> None:
        super().__init__(n)
        self.shape = input_shape
        layers: list[nn.Module] = []
        for n_in, n_out, stride, padding in (
            (input_shape[0], 32, 1, 1),
            (32, 32, 2, 1),
            (32, 64, 1, 1),
            (64, 64, 2, 1),
            (64, 128, 1, 1),
            (128, 128, 2, 0),
        ):
            layers += [Conv(n, n_in, n_out, 4, generator, stride, padding), Norm(n, n_out)]
        self.layers = nn.Sequential(*layers)
        self.n_out = 128

    def forward(self, x: Tensor) -> Tensor:
        return from_list(self.layers(to_list(x, self.shape)), x.dtype)


class DeepCnnDecoder(NodeStack):
    """The paper's Omniglot decoder: 2 -> 7 -> 6 -> 14 -> 13 -> 29 -> 28 pixels a side."""

    first = (128, 2, 2)

    def __init__(
        self, n: int, latent: int, input_shape: tuple[int, ...], outputs: int, generator: torch.Generator
    ) -> None:
        super().__init__(n)
        self.dense = Dense(n, latent, prod(self.first), generator)
        self.layers = nn.Sequential(
            ConvTransposed(n, 128, 128, 5, generator),
            Norm(n, 128),
            Conv(n, 128, 64, 4, generator, padding=1),
            Norm(n, 64),
            ConvTransposed(n, 64, 64, 4, generator),
            Norm(n, 64),
            Conv(n, 64, 32, 4, generator, padding=1),
            Norm(n, 32),
            ConvTransposed(n, 32, 32, 4, generator, extra=1),
            Norm(n, 32),
            Conv(n, 32, outputs * input_shape[0], 4, generator, padding=1, head=True),
        )

    def forward(self, z: Tensor) -> Tensor:
        return from_list(self.layers(to_list(self.dense(z), self.first)), z.dtype)


class ResnetEncoder(NodeStack):
    """Residual blocks, each but the first on half the pixels, until a side has at most 4: 32 -> 16 -> 8 -> 4."""

    def __init__(self, n: int, input_shape: tuple[int, ...], generator: torch.Generator) -> None:
        super().__init__(n)
        self.shape = input_shape
        widths, sizes = resnet_widths(input_shape), resnet_sizes(input_shape)
        layers: list[nn.Module] = [
            Conv(n, input_shape[0], widths[0], 3, generator, padding=1),
            ResnetBlock(n, widths[0], widths[0], generator),
        ]
        for n_in, n_out, size in zip(widths, widths[1:], sizes, strict=False):
            layers += [halved(size), ResnetBlock(n, n_in, n_out, generator)]
        self.layers = nn.Sequential(*layers, Norm(n, widths[-1]))
        self.n_out = widths[-1] * prod(sizes[-1])

    def forward(self, x: Tensor) -> Tensor:
        return from_list(self.layers(to_list(x, self.shape)), x.dtype)


class ResnetDecoder(NodeStack):
    """The encoder's mirror: blocks and bilinear enlargement, 4 -> 8 -> 16 -> 32."""

    def __init__(
        self, n: int, latent: int, input_shape: tuple[int, ...], outputs: int, generator: torch.Generator
    ) -> None:
        super().__init__(n)
        widths, sizes = resnet_widths(input_shape)[::-1], resnet_sizes(input_shape)[::-1]
        self.first = (widths[0], *sizes[0])
        self.linear = Linear(n, latent, prod(self.first), generator)
        layers: list[nn.Module] = []
        for (n_in, n_out), (size, larger) in zip(pairwise(widths), pairwise(sizes), strict=True):
            layers += [ResnetBlock(n, n_in, n_out, generator), enlarged(size, larger)]
        last = widths[-1]
        layers += [ResnetBlock(n, last, last, generator), Norm(n, last)]
        layers.append(Conv(n, last, outputs * input_shape[0], 3, generator, padding=1, head=True))
        self.layers = nn.Sequential(*layers)

    def forward(self, z: Tensor) -> Tensor:
        return from_list(self.layers(to_list(self.linear(z), self.first)), z.dtype)


def resnet_sizes(input_shape: tuple[int, ...]) -> list[tuple[int, int]]:
    """Height and width of what each block reads, largest first: 32, 16, 8, 4 for CIFAR."""
    sizes = [(input_shape[1], input_shape[2])]
    while min(sizes[-1]) > 4:
        sizes.append(((sizes[-1][0] + 1) // 2, (sizes[-1][1] + 1) // 2))
    return sizes


def resnet_widths(input_shape: tuple[int, ...]) -> list[int]:
    """The channels that each block puts out: 32, 64, 128, 256 for CIFAR, and 256 again for CelebA."""
    return [min(32 << k, 256) for k in range(len(resnet_sizes(input_shape)))]


ENCODERS: dict[str, type[CnnEncoder] | type[DeepCnnEncoder] | type[ResnetEncoder]] = {
    "cnn": CnnEncoder,
    "deep_cnn": DeepCnnEncoder,
    "resnet": ResnetEncoder,
}
DECODERS = {"cnn": CnnDecoder, "deep_cnn": DeepCnnDecoder, "resnet": ResnetDecoder}


def make_encoder(arch: Architecture, n: int, generator: torch.Generator) -> tuple[NodeStack, int]:
    """The domain's encoder for n trees, and the size of its output, the deepest d."""
    with layers_like(arch.layers):
        shape, network = arch.read
        if network in ENCODERS:
            encoder = ENCODERS[network](n, shape, generator)
            return encoder, encoder.n_out
        widths = MLP_WIDTHS[network]
        return Mlp(n, prod(shape), widths, generator), widths[-1]


def make_decoder(arch: Architecture, n: int, depth: int, generator: torch.Generator) -> NodeStack:
    """The decoders of n leaves of a depth: (leaf, batch, latent) -> (leaf, batch, outputs * features)."""
    latent, outputs = arch.latent_dims[depth], arch.likelihood_model.outputs
    with layers_like(arch.layers):
        shape, network = arch.shown
        if network in DECODERS:
            return DECODERS[network](n, latent, shape, outputs, generator)
        return Mlp(n, latent, MLP_WIDTHS[network][::-1], generator, outputs * prod(shape))


class BottomUp(nn.Module):
    """x -> d of every depth: the encoder gives the deepest, one MLP a step the others (eq. 6).

    A node of depth k reads the k-th d from the root, however tall the tree is now.
    """

    def __init__(self, arch: Architecture, n_trees: int, generator: torch.Generator) -> None:
        super().__init__()
        self.encoder, size = make_encoder(arch, n_trees, generator)
        self.d_dims = (*arch.hidden_dims, size)
        self.steps, self.projections = nn.ModuleList(), nn.ModuleList()
        with layers_like(arch.layers):
            for hidden in reversed(arch.hidden_dims):
                self.steps.append(Mlp(n_trees, size, [hidden] * arch.transformation_layers, generator))
                size = hidden
            hidden, out = PROJECTION_WIDTHS
            for size in self.d_dims[len(self.d_dims) - arch.n_projections :]:
                self.projections.append(Mlp(n_trees, size, [hidden], generator, out))

    def forward(self, x: Tensor) -> list[Tensor]:
        """(tree, batch, features) -> d by depth, root first, each (tree, batch, hidden)."""
        d = [self.encoder(x)]
        for step in self.steps:
            d.append(step(d[-1]))
        return d[::-1]

    def projected(self, d: Sequence[Tensor]) -> list[Tensor]:
        """The projections of the deepest d, given all by depth: each (tree, batch, 64), root first."""
        seen = d[len(d) - len(self.projections) :]
        return [project(at) for project, at in zip(self.projections, seen, strict=True)]

    def stacks(self) -> list[NodeStack]:
        """The encoder, the steps and the projections; row r of each belongs to tree r."""
        parts = (self.encoder, *self.steps, *self.projections)
        return [part for part in parts if isinstance(part, NodeStack)]

    def like(self, rows: Sequence[tuple[BottomUp, int]]) -> BottomUp:
        """A bottom-up whose i-th tree is tree ``rows[i][1]`` of ``rows[i][0]``, values copied."""
        bottom_up = copy.copy(self)
        encoder, *rest = (gather(parts) for parts in zip(*([(s, r) for s in b.stacks()] for b, r in rows), strict=True))
        steps, projections = rest[: len(self.steps)], rest[len(self.steps) :]
        bottom_up._modules = {
            "encoder": encoder,
            "steps": nn.ModuleList(steps),
            "projections": nn.ModuleList(projections),
        }
        return bottom_up
