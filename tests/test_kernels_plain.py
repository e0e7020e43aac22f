"""The kernels' plain twins: when they are taken, and against torch, brute force and numbers by hand."""

import pytest
import torch
import torch.nn.functional as F
from kernel_cases import INTERPRETED, RESAMPLED, TORCHS, draw, forest, run

from treevae.model import kernels
from treevae.model.cpu import LEAKY_SLOPE
from treevae.model.kernels import (
    bands,
    col2im,
    decisions,
    fused,
    im2col,
    log_bernoulli,
    noise,
    norm_leaky,
    plain,
    posterior,
    weigh,
)
from treevae.model.layout import RowSums
from treevae.model.stack import LAYER_DEFAULTS


@pytest.mark.skipif(INTERPRETED, reason="without the interpreter")
def test_cpu_tensors_take_the_plain_path():
    x = draw(2, 5, 3).requires_grad_()
    assert not fused(x)
    y = norm_leaky(x, torch.ones(2, 3), torch.zeros(2, 3), torch.zeros(2, 3), torch.ones(2, 3), *TORCHS)
    assert "NormLeaky" not in str(y.grad_fn)
    assert posterior(draw(2, 5, 6), None, draw(2, 5, 3))[0].shape == (2, 5, 3)


def test_plain_forces_the_twins_and_ends(monkeypatch):
    monkeypatch.setattr(kernels.launch, "_interpreted", True)
    monkeypatch.setattr(kernels.launch, "triton", object())
    assert fused(torch.zeros(1))
    assert not fused(torch.zeros(1, dtype=torch.float64))
    with plain():
        assert not fused(torch.zeros(1))
    assert fused(torch.zeros(1))


def test_no_noise_without_triton(monkeypatch):
    monkeypatch.setattr(kernels.step, "triton", None)
    one = torch.zeros(1, dtype=torch.int64)
    with pytest.raises(RuntimeError, match="Generator"):
        noise(one, one, one.int(), one.int(), 2, 2)


@pytest.mark.parametrize("padding", [(0, 0), (1, 1), (0, 1)])
def test_windows_make_both_convolutions(padding):
    n, b, c, out, side = 2, 3, 4, 5, (7, 6)
    image, weight = draw(n, b, *side, c), draw(n, out, c, 3, 3, seed=1)
    grid = tuple((s + 2 * p - 3) // 2 + 1 for s, p in zip(side, padding, strict=True))
    down = torch.einsum("nbijk,nok->nboij", im2col(image, grid, padding), weight.flatten(2))
    up_weight = draw(n, c, out, 3, 3, seed=2)
    size = tuple(2 * s + 1 - p for s, p in zip(side, padding, strict=True))
    up = col2im(torch.einsum("nbijc,nck->nbijk", image, up_weight.flatten(2)), size, padding)
    for i in range(n):
        x = image[i].permute(0, 3, 1, 2)
        torch.testing.assert_close(down[i], F.conv2d(x, weight[i], stride=2, padding=padding), rtol=1e-4, atol=1e-4)
        expected = F.conv_transpose2d(x, up_weight[i], stride=2, padding=padding, output_padding=padding)
        torch.testing.assert_close(up[i].permute(0, 3, 1, 2), expected, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("name", RESAMPLED)
def test_resampling_by_two_products_is_torchs(name):
    """The plain path, in the form that images have: one tensor for each node."""
    layer, size, torchs = RESAMPLED[name]
    x = draw(2, 3, 4, *size)

    def ours(x):
        with plain():
            return torch.stack(layer(list(x.unbind())))

    expected = run(lambda x: torchs(x.flatten(0, 1)).unflatten(0, (2, 3)), [x])
    for mine, theirs in zip(run(ours, [x]), expected, strict=True):
        torch.testing.assert_close(mine, theirs)


def test_bands_are_the_entries_of_a_matrix():
    matrix = torch.zeros(4, 6)
    matrix[0, 0], matrix[1, 2:5], matrix[2, 5], matrix[3, 1], matrix[3, 3] = 7, torch.tensor([1.0, 2, 3]), 9, 4, 5
    starts, weights = bands(matrix)
    assert starts.dtype == torch.int32
    assert weights.shape == (4, 3)  # the widest row; all others lie inside the matrix too
    again = torch.zeros(4, 6)
    for i in range(4):
        again[i, starts[i] : starts[i] + 3] = weights[i]
    assert torch.equal(again, matrix)


@pytest.mark.parametrize("name", RESAMPLED)
def test_bands_of_a_resampling_are_narrow_both_ways(name):
    """A kernel reads at most three neighbours along each axis, four on the way back from an enlargement."""
    layer, *_ = RESAMPLED[name]
    for which, matrix in (("down", layer.rows), ("across", layer.columns), ("up", layer.rows.T)):
        starts, weights = layer._bands(which)
        assert weights.shape[1] <= 4
        product = torch.zeros_like(matrix)
        for i, start in enumerate(starts.tolist()):
            product[i, start : start + weights.shape[1]] = weights[i]
        assert torch.equal(product, matrix)


@pytest.mark.parametrize("norms", [defaults.norms for defaults in LAYER_DEFAULTS.values()])
def test_gradients_of_the_twins(norms):
    def double(*shape, seed=0):
        return draw(*shape, seed=seed, dtype=torch.float64).requires_grad_()

    def norm(x, weight, bias):
        return norm_leaky(x, weight, bias, torch.zeros(2, 3).double(), torch.ones(2, 3).double(), *norms)

    table, nodes, routers, leaves = forest([2, 1], 4)
    z, rows = double(2, 3, 2, seed=9).detach(), RowSums([[0, 2], [1], []], 3).double()
    data, run_of = double(2, 2, 3).detach(), torch.tensor([1, 0, 1])
    cases = {
        norm: (double(2, 5, 3), double(2, 3), double(2, 3, seed=1)),
        (lambda image: im2col(image, (2, 3), (1, 0))): (double(1, 2, 4, 6, 2),),
        (lambda cols: col2im(cols, (4, 6), (1, 0))): (double(1, 2, 2, 3, 18),),
        (lambda q, p: posterior(q, p, z)): (double(2, 3, 4), double(2, 3, 4, seed=1)),
        (lambda q: posterior(q, None, z)): (double(2, 3, 4),),
        decisions: (double(2, 3), double(2, 3, seed=1)),
        (lambda *terms: weigh(*terms, table)): tuple(double(k, 2, seed=k) for k in (nodes, nodes, routers, leaves)),
        rows: (double(3, 2),),
        (lambda output: log_bernoulli(data, output, run_of)): (double(3, 2, 3),),
    }
    for f, inputs in cases.items():
        assert torch.autograd.gradcheck(f, inputs)


def test_weigh_of_a_tree_by_hand():
    table = torch.tensor([[[2, 0, 1, -1], [0, -1, -1, -1], [-1, 1, 0, -1], [1, 0, 0, 0]]], dtype=torch.int32)
    reach = torch.tensor([[0.3], [0.7], [1.0]])  # the root is row 2; its left leaf, row 0, has leaf number 1
    kl, kl_router, log_px = torch.tensor([[2.0], [3.0], [5.0]]), torch.tensor([[7.0]]), torch.tensor([[-11.0], [-13.0]])
    terms = weigh(reach.log(), kl, kl_router, log_px, table).flatten()
    torch.testing.assert_close(terms, torch.tensor([0.3 * -13 + 0.7 * -11, 5.0, 0.3 * 2 + 0.7 * 3, 7.0]))


@pytest.mark.parametrize("norms", [defaults.norms for defaults in LAYER_DEFAULTS.values()])
def test_the_plain_norm_is_torchs(norms):
    """Values, gradients and running statistics of F.batch_norm and F.leaky_relu."""
    n, rows, f = 2, 9, 3
    x, weight, bias = (
        draw(*shape, seed=i, dtype=torch.float64) for i, shape in enumerate([(n, rows, f), (n, f), (n, f)])
    )
    statistics = [[torch.zeros(n, f).double(), torch.ones(n, f).double()] for _ in range(2)]

    def torchs(x, weight, bias):
        flat = x.transpose(0, 1).reshape(rows, n * f)
        mean, var = (part.view(-1) for part in statistics[1])
        epsilon, momentum = norms
        normed = F.batch_norm(flat, mean, var, weight.view(-1), bias.view(-1), True, 1 - momentum, epsilon)
        return F.leaky_relu(normed, LEAKY_SLOPE).view(rows, n, f).transpose(0, 1)

    ours = run(lambda *inputs: norm_leaky(*inputs, *statistics[0], *norms), [x, weight, bias])
    for mine, theirs in zip(ours + statistics[0], run(torchs, [x, weight, bias]) + statistics[1], strict=True):
        torch.testing.assert_close(mine, theirs)
