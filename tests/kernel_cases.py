"""Inputs of kernels, and how one is compared with its plain twin."""

import os
from functools import partial

import torch
import torch.nn.functional as F

from treevae.model.convolutions import enlarged, halved
from treevae.model.kernels import fused, plain
from treevae.model.stack import LAYER_DEFAULTS

INTERPRETED = os.environ.get("TRITON_INTERPRET") == "1"
DEVICE = "cpu" if INTERPRETED else "cuda"
TORCHS = LAYER_DEFAULTS["torch"].norms
BFLOAT16_ROUNDING = 2**-7 if INTERPRETED else 2**-8  # the interpreter cuts bits off instead of rounding them

RESAMPLED = {  # a layer, the size it reads, and what torch has for it
    "halved": (halved((8, 6)), (8, 6), partial(F.avg_pool2d, kernel_size=3, stride=2, padding=1)),
    "halved, odd": (halved((5, 9)), (5, 9), partial(F.avg_pool2d, kernel_size=3, stride=2, padding=1)),
    "doubled": (enlarged((4, 3), (8, 6)), (4, 3), partial(F.interpolate, size=(8, 6), mode="bilinear")),
    "nearly doubled": (enlarged((4, 5), (7, 9)), (4, 5), partial(F.interpolate, size=(7, 9), mode="bilinear")),
}


def draw(*shape, seed=0, scale=1.0, dtype=torch.float32):
    generator = torch.Generator().manual_seed(seed + sum(shape))
    return scale * torch.randn(*shape, generator=generator, dtype=dtype)


def run(f, inputs):
    """The outputs of f, and the gradients of a random weighting of them (the same one for the same shapes)."""
    inputs = [None if x is None else x.clone().requires_grad_() for x in inputs]
    outputs = f(*inputs)
    outputs = [outputs] if isinstance(outputs, torch.Tensor) else list(outputs)
    weights = [draw(*y.shape, seed=7 + i).to(y) for i, y in enumerate(outputs)]
    wanted = [x for x in inputs if x is not None]
    return [y.detach() for y in outputs] + list(torch.autograd.grad(outputs, wanted, weights))


def agree(f, *inputs, rtol=2e-5, atol=2e-5):
    """The kernels in single precision agree with the twin in double, and the second run with the first bit for bit."""
    there = [None if x is None else x.to(DEVICE) for x in inputs]
    assert all(fused(x) for x in there if x is not None)
    found, again = run(f, there), run(f, there)
    with plain():
        expected = run(f, [None if x is None else x.double() for x in there])
    for y, y_again, twin in zip(found, again, expected, strict=True):
        assert y.dtype == torch.float32
        assert torch.isfinite(y).all()
        assert torch.equal(y, y_again)
        torch.testing.assert_close(y.double(), twin, rtol=rtol, atol=atol)
    return found


def forest(sizes, width, seed=0):
    """Binary trees with so many leaves each, rows of nodes, routers and leaves shuffled: the table, and the counts."""
    nodes, routers, leaves = sum(2 * k - 1 for k in sizes), sum(k - 1 for k in sizes), sum(sizes)
    generator = torch.Generator().manual_seed(seed)
    rows, gates, ends = (iter(torch.randperm(k, generator=generator).tolist()) for k in (nodes, routers, leaves))
    table = torch.full((len(sizes), 4, width), -1, dtype=torch.int32)
    table[:, 3] = 0
    for tree, k in enumerate(sizes):
        for place in range(2 * k - 1):
            inner = place < k - 1
            entry = (next(rows), next(gates) if inner else -1, -1 if inner else next(ends), int(place == 0))
            table[tree, :, place] = torch.tensor(entry, dtype=torch.int32)
    return table, nodes, routers, leaves
