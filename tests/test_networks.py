"""Every data set's encoder and decoder, layer by layer, against the specification's table."""

from dataclasses import replace
from math import prod

import pytest
import torch
from torch import Tensor, nn

from treevae.model.convolutions import Conv, ConvTransposed, Resampled
from treevae.model.module import TreeVAEModule
from treevae.model.networks import Architecture, BottomUp, make_decoder, make_encoder
from treevae.model.stack import LAYER_DEFAULTS, Conv2d, ConvTranspose2d, LayerDefaults, Linear, NodeStack, NormLeaky
from treevae.tree import Tree

N, BATCH = 2, 3
Size = int | tuple[int, int]  # the width of a vector, or (channels, side) of an image
NORM = "norm and leaky"
Run = list[Size | str]  # what every layer puts out, in the order in which they run; an average pool is a layer too


def normed(*sizes: Size) -> Run:
    """Layers with a non-linearity: a batch norm and a leaky ReLU after each."""
    return [one for size in sizes for one in (size, NORM)]


def residual(n_in: int, n_out: int, side: int) -> Run:
    """A ResnetBlock: a shortcut where widths differ, then conv(leaky(bn(conv(leaky(bn(x)))))), hidden min(in, out)."""
    shortcut: Run = [] if n_in == n_out else [(n_out, side)]
    return [*shortcut, NORM, (min(n_in, n_out), side), NORM, (n_out, side)]


def smaller(n_in: int, n_out: int, side: int) -> Run:
    """[avgpool 3x3 s2 p1, block], down to this side."""
    return [(n_in, side), *residual(n_in, n_out, side)]


def larger(n_in: int, n_out: int, side: int) -> Run:
    """[block, bilinear x2], up from this side."""
    return [*residual(n_in, n_out, side), (n_out, 2 * side)]


# the specification's section 2: the shape of the input, the network, the encoder, the size of its output, the decoder.
# Heads have no norm. Blocks have theirs before their convolutions, so that what leaves the last block has one to come.
TABLE: dict[str, tuple[tuple[int, ...], str, Run, int, Run]] = {
    "mnist, fashion": (
        (1, 28, 28),
        "cnn",
        normed((8, 13), (16, 6), (32, 2)),
        128,
        [*normed(288, (16, 7), (8, 14)), (1, 28)],
    ),
    "omniglot": (
        (1, 28, 28),
        "deep_cnn",
        normed((32, 27), (32, 13), (64, 12), (64, 6), (128, 5), (128, 1)),
        128,
        [*normed(512, (128, 7), (64, 6), (64, 14), (32, 13), (32, 29)), (1, 28)],
    ),
    "news20": ((2000,), "deep_mlp", normed(512, 512, 256, 128), 128, [*normed(128, 256, 512, 512), 2000]),
    "cifar": (
        (3, 32, 32),
        "resnet",
        [(32, 32), *residual(32, 32, 32), *smaller(32, 64, 16), *smaller(64, 128, 8), *smaller(128, 256, 4), NORM],
        4096,
        [4096, *larger(256, 128, 4), *larger(128, 64, 8), *larger(64, 32, 16), *residual(32, 32, 32), NORM, (3, 32)],
    ),
    "celeba": (
        (3, 64, 64),
        "resnet",
        [(32, 64), *residual(32, 32, 64), *smaller(32, 64, 32), *smaller(64, 128, 16), *smaller(128, 256, 8),
         *smaller(256, 256, 4), NORM],
        4096,
        [4096, *larger(256, 256, 4), *larger(256, 128, 8), *larger(128, 64, 16), *larger(64, 32, 32),
         *residual(32, 32, 64), NORM, (3, 64)],
    ),
}  # fmt: skip
EACH = pytest.mark.parametrize("name", TABLE)


def generator() -> torch.Generator:
    return torch.Generator().manual_seed(0)


def architecture(name: str) -> Architecture:
    shape, network, *_ = TABLE[name]
    return Architecture(shape, network, "bernoulli", (8,) * 3, (16,) * 2)


def layers_run(network: NodeStack, x: Tensor) -> Run:
    """What every layer of a network puts out, and where the norms are, in the order in which they run."""
    found: Run = []

    def note(layer: nn.Module, given: object, out: Tensor | list[Tensor]) -> None:
        image = out[0] if isinstance(out, list) else out
        if isinstance(layer, NormLeaky):
            found.append(NORM)
        elif image.dim() == 3:
            found.append(image.shape[2])
        else:
            assert image.shape[2] == image.shape[3]
            nodes = 1 if isinstance(out, list) else network.n  # the small CNN has all nodes' channels in one tensor
            found.append((image.shape[1] // nodes, image.shape[2]))
        if isinstance(layer, Conv2d | ConvTranspose2d) and layer.norm is not None:
            found.append(NORM)  # a part of the layer, which may run it in one step with its product

    def listen(part: nn.Module) -> None:
        for child in part.children():
            if isinstance(child, Linear | Conv | ConvTransposed | Conv2d | ConvTranspose2d | Resampled | NormLeaky):
                child.register_forward_hook(note)
            else:
                listen(child)

    listen(network)
    with torch.no_grad():
        out = network.eval()(x)
    assert out.shape[:2] == x.shape[:2]
    return found


@EACH
def test_layers_and_norms_are_those_of_the_table(name):
    shape, _, encoder_layers, n_out, decoder_layers = TABLE[name]
    encoder, size = make_encoder(architecture(name), N, generator())
    decoder = make_decoder(architecture(name), N, 1, generator())
    assert size == n_out
    assert layers_run(encoder, torch.rand(N, BATCH, prod(shape))) == encoder_layers
    assert layers_run(decoder, torch.rand(N, BATCH, 8)) == decoder_layers
    with torch.no_grad():
        assert encoder(torch.rand(N, BATCH, prod(shape))).shape == (N, BATCH, n_out)
        assert decoder(torch.rand(N, BATCH, 8)).shape == (N, BATCH, prod(shape))


def shapes(network: NodeStack) -> list[tuple[int, ...]]:
    """Kernels as (in, out, side), matrices as (in, out), in the order of the network; and biases as (out,)."""
    found: list[tuple[int, ...]] = []
    for part in network.modules():
        match part:
            case Conv():
                n, n_out, side, other, n_in = part.weight.shape
                found.append((n_in, n_out, side))
            case ConvTransposed():
                n, n_in, side, other, n_out = part.weight.shape
                found.append((n_in, n_out, side))
            case Conv2d():
                n, n_out, n_in, side, other = part.weight.shape
                found.append((n_in, n_out, side))
            case ConvTranspose2d():
                n, n_in, n_out, side, other = part.weight.shape
                found.append((n_in, n_out, side))
            case Linear():
                n, *matrix = part.weight.shape
                side = other = 0
                found.append(tuple(matrix))
            case _:
                continue
        assert (n, side) == (network.n, other)
        if getattr(part, "bias", None) is not None:
            found.append((part.bias.shape[-1],))
    return found


def block(n_in: int, n_out: int) -> list[tuple[int, ...]]:
    """The kernels of a ResnetBlock: hidden width min(in, out), and a 1x1 shortcut where widths differ."""
    hidden = min(n_in, n_out)
    return [(n_in, hidden, 3), (hidden, n_out, 3)] + ([] if n_in == n_out else [(n_in, n_out, 1)])


PARAMETERS = {
    "mnist, fashion": (
        [(1, 8, 3), (8, 16, 3), (16, 32, 3)],
        [(8, 288), (32, 16, 3), (16, 8, 3), (8, 1, 3), (1,)],
    ),
    "omniglot": (
        [(1, 32, 4), (32, 32, 4), (32, 64, 4), (64, 64, 4), (64, 128, 4), (128, 128, 4)],
        [(8, 512), (128, 128, 5), (128, 64, 4), (64, 64, 4), (64, 32, 4), (32, 32, 4), (32, 1, 4), (1,)],
    ),
    "news20": (
        [(2000, 512), (512, 512), (512, 256), (256, 128)],
        [(8, 128), (128, 256), (256, 512), (512, 512), (512, 2000), (2000,)],
    ),
    "cifar": (
        [(3, 32, 3), *block(32, 32), *block(32, 64), *block(64, 128), *block(128, 256)],
        [(8, 4096), (4096,), *block(256, 128), *block(128, 64), *block(64, 32), *block(32, 32), (32, 3, 3), (3,)],
    ),
    "celeba": (
        [(3, 32, 3), *block(32, 32), *block(32, 64), *block(64, 128), *block(128, 256), *block(256, 256)],
        [(8, 4096), (4096,), *block(256, 256), *block(256, 128), *block(128, 64), *block(64, 32), *block(32, 32),
         (32, 3, 3), (3,)],
    ),
}  # fmt: skip


@EACH
def test_only_heads_have_a_bias_and_all_weights_the_shapes_of_the_table(name):
    """Layers with a norm carry no bias. In residual blocks the norm that takes it away comes later."""
    encoder, _ = make_encoder(architecture(name), N, generator())
    decoder = make_decoder(architecture(name), N, 1, generator())
    assert (shapes(encoder), shapes(decoder)) == PARAMETERS[name]


@EACH
@pytest.mark.parametrize("defaults", LAYER_DEFAULTS)
def test_first_weights_are_drawn_as_layers_of_both_frameworks_draw_theirs(name, defaults):
    """U(-b, b): torch has b = 1 / sqrt(fan in), where a transposed convolution counts its outputs; Glorot both fans."""
    arch = replace(architecture(name), layer_defaults=defaults)
    networks = make_encoder(arch, N, generator())[0], make_decoder(arch, N, 1, generator())
    for network in networks:
        for part in network.modules():
            match part:
                case Conv() | ConvTransposed():
                    weight = part.weight.permute(0, 1, 4, 2, 3)
                case Conv2d() | ConvTranspose2d():
                    weight = part.weight
                case Linear():
                    weight = part.weight.mT
                case _:
                    continue
            fan_in, fan_out = nn.init._calculate_fan_in_and_fan_out(weight[0])
            bound = fan_in**-0.5 if defaults == "torch" else (6 / (fan_in + fan_out)) ** 0.5
            largest = part.weight.abs().max().item()
            if defaults == "tensorflow" and getattr(part, "bias", None) is not None:
                assert not part.bias.any()
            assert largest <= bound
            assert largest > 0.9 * bound
            assert abs(part.weight.mean()) < 4 * bound / (3 * part.weight.numel()) ** 0.5


def test_an_architecture_may_have_layers_of_its_own():
    """Networks ask the architecture itself what they are like, not a table by its name for them."""

    class WithItsOwn(Architecture):
        @property
        def layers(self) -> LayerDefaults:
            return LayerDefaults(0.5, 0.25, glorot=True)

    module = TreeVAEModule(WithItsOwn((6,), "mlp", "bernoulli", (4, 4), (8,)), [Tree().split(0)], generator())
    norms = {part.defaults for part in module.modules() if isinstance(part, NormLeaky)}
    biases = [part.bias for part in module.modules() if isinstance(part, Linear) and part.bias is not None]
    assert norms == {module.arch.layers}
    assert biases
    assert not any(bias.any() for bias in biases)


@pytest.mark.parametrize("side", [5, 6, 7, 12, 13, 33])
def test_residual_networks_come_back_to_any_size(side):
    arch = Architecture((3, side, side + 1), "resnet", "gaussian_learnt", (4,) * 2, (8,))
    encoder, size = make_encoder(arch, 1, generator())
    decoder = make_decoder(arch, 1, 0, generator())
    with torch.no_grad():
        assert encoder(torch.rand(1, BATCH, prod(arch.input_shape))).shape == (1, BATCH, size)
        assert decoder(torch.rand(1, BATCH, 4)).shape == (1, BATCH, 2 * prod(arch.input_shape))


def test_projections_look_at_the_deepest_d_alone_or_at_all():
    for n_projections, widths in ((0, []), (1, [128]), (3, [16, 16, 128])):
        arch = Architecture((1, 28, 28), "cnn", "bernoulli", (8,) * 3, (16,) * 2, n_projections=n_projections)
        bottom_up = BottomUp(arch, N, generator())
        assert [part.hidden[0].linear.weight.shape[1] for part in bottom_up.projections] == widths
        for part in bottom_up.projections:
            assert shapes(part)[1:] == [(512, 64), (64,)]  # one hidden layer of 512, then 64
        d = bottom_up(torch.rand(N, BATCH, 784))
        seen = bottom_up.projected(d)
        assert [p.shape for p in seen] == [(N, BATCH, 64)] * n_projections
        for part, of_depth, found in zip(bottom_up.projections, d[3 - n_projections :], seen, strict=True):
            torch.testing.assert_close(part(of_depth), found)
