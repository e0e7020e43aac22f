"""The fused kernels against their plain twins in double precision, values and gradients.

``TestKernels`` runs on a GPU, and here in Triton's interpreter: a process of its own, because Triton reads
``TRITON_INTERPRET`` when it is imported.
"""

import copy
import os
import subprocess
import sys

import pytest
import torch
from kernel_cases import BFLOAT16_ROUNDING, DEVICE, INTERPRETED, RESAMPLED, TORCHS, agree, draw, forest, run

from treevae.model import kernels
from treevae.model.convolutions import Norm
from treevae.model.cpu import LEAKY_SLOPE
from treevae.model.kernels import (
    adam,
    col2im,
    decisions,
    im2col,
    log_bernoulli,
    noise,
    norm_leaky,
    pixel_product,
    plain,
    posterior,
    weigh,
)
from treevae.model.kernels.layers import _FusedNormLeaky
from treevae.model.layout import RowSums
from treevae.model.stack import LAYER_DEFAULTS


@pytest.mark.skipif(not INTERPRETED and not torch.cuda.is_available(), reason="no GPU")
class TestKernels:
    pytestmark = [] if INTERPRETED else [pytest.mark.gpu]

    @pytest.mark.parametrize(
        ("n", "rows", "f"),
        [(2, 7, 1), (1, 2, 3), (3, 130, 8), (2, 257, 40), (1, 33, 288), (2, 2500, 3), (1, 11000, 17)],
    )
    @pytest.mark.parametrize("norms", [defaults.norms for defaults in LAYER_DEFAULTS.values()])
    def test_norm_leaky(self, n, rows, f, norms):
        x = draw(n, rows, f) * (0.5 + draw(n, 1, f).sigmoid()) + 3 * draw(n, 1, f)
        weight, bias = draw(n, f, seed=1), draw(n, f, seed=2)
        beside = {}

        def norm(x, weight, bias):
            stats = draw(n, f, seed=3).to(x), draw(n, f, seed=4).exp().to(x)
            y = norm_leaky(x, weight, bias, *stats, *norms)
            beside[x.dtype] = y.detach(), *stats
            return y * y.abs()  # no gradient at the kink, where rounding decides on the side

        agree(norm, x, weight, bias, rtol=1e-4, atol=5e-4)  # on numbers of up to 100
        for y, twin in zip(beside[torch.float32], beside[torch.float64], strict=True):
            torch.testing.assert_close(y.double(), twin, rtol=2e-5, atol=2e-5)

    @pytest.mark.parametrize("rows", [300, 5000])
    def test_variance_survives_a_large_mean(self, rows):
        x = (1000 + 0.1 * draw(1, rows, 4)).to(DEVICE)
        stats = torch.zeros(1, 4, device=DEVICE), torch.zeros(1, 4, device=DEVICE)
        y = norm_leaky(x, torch.ones_like(stats[0]), torch.zeros_like(stats[0]), *stats, *TORCHS)
        torch.testing.assert_close(stats[1].double(), 0.1 * x.double().var(1), rtol=1e-3, atol=0)
        centred = torch.where(y > 0, y, y / LEAKY_SLOPE)
        torch.testing.assert_close(centred.var(1, correction=0), torch.ones_like(stats[0]), rtol=2e-3, atol=0)

    def test_norm_leaky_takes_any_layout(self):
        stats = torch.zeros(2, 3, device=DEVICE), torch.ones(2, 3, device=DEVICE)
        agree(
            lambda x, w, b: norm_leaky(x.transpose(0, 1), w, b, *(s.to(x) for s in stats), *TORCHS).sum(1),
            draw(9, 2, 3),
            draw(2, 3),
            draw(2, 3, seed=1),
            atol=1e-4,
        )

    @pytest.mark.parametrize("c", [1, 3, 8])
    @pytest.mark.parametrize(
        ("size", "grid", "padding"),
        [
            ((7, 7), (3, 3), (0, 0)),
            ((8, 6), (4, 3), (1, 1)),
            ((5, 8), (2, 4), (0, 1)),
            ((6, 3), (2, 1), (0, 0)),
            ((1, 4), (2, 3), (1, 0)),
        ],
    )
    def test_windows(self, size, grid, padding, c):
        agree(lambda image: im2col(image, grid, padding), draw(2, 3, *size, c), rtol=0, atol=1e-6)
        agree(lambda cols: col2im(cols, size, padding), draw(2, 3, *grid, 9 * c), rtol=0, atol=1e-6)

    def test_windows_of_many_columns(self):
        agree(lambda image: im2col(image, (3, 2), (1, 0)), draw(1, 2, 6, 5, 64), rtol=0, atol=1e-6)
        agree(lambda cols: col2im(cols, (6, 5), (1, 0)), draw(1, 2, 3, 2, 576), rtol=0, atol=1e-6)

    @pytest.mark.parametrize(("n", "rows", "f"), [(2, 9, 3), (1, 300, 40), (1, 2500, 3)])
    def test_norm_leaky_in_bfloat16_counts_in_float32(self, n, rows, f):
        """Only what is read and written is rounded: y and dx once; statistics and other gradients not at all."""
        x = (draw(n, rows, f) * (0.5 + draw(n, 1, f).sigmoid()) + 3 * draw(n, 1, f)).bfloat16().to(DEVICE)
        weight, bias = draw(n, f, seed=1).to(DEVICE), draw(n, f, seed=2).to(DEVICE)
        dy, found = draw(n, rows, f, seed=5).bfloat16().to(DEVICE), []
        for dtype in (torch.bfloat16, torch.float32):
            inputs = [x.to(dtype).requires_grad_(), weight.clone().requires_grad_(), bias.clone().requires_grad_()]
            stats = draw(n, f, seed=3).to(DEVICE), draw(n, f, seed=4).exp().to(DEVICE)
            y = _FusedNormLeaky.apply(*inputs, *stats, *TORCHS)  # the interpreter has no CUDA tensors to choose by
            assert y.dtype == dtype
            dx, *others = torch.autograd.grad(y, inputs, dy.to(dtype))
            assert dx.dtype == dtype
            found.append(([y, dx], [*others, *stats]))
        (rounded, exact), (expected, exact_too) = found
        for ours, theirs in zip(rounded, expected, strict=True):
            torch.testing.assert_close(ours.float(), theirs, rtol=BFLOAT16_ROUNDING, atol=1e-6)
        for ours, theirs in zip(exact, exact_too, strict=True):
            assert ours.dtype == torch.float32
            torch.testing.assert_close(ours, theirs, rtol=1e-6, atol=1e-6)

    def test_the_norm_of_images_is_the_norm_of_their_pixels(self):
        norm = Norm(2, 3).to(DEVICE)
        with torch.no_grad():
            for i, value in enumerate(norm.state_dict().values()):
                value.copy_(0.5 + draw(2, 3, seed=i).sigmoid())
        twin = copy.deepcopy(norm).double()
        images = draw(2, 4, 3, 5, 6)

        def both(x):
            module = norm if x.dtype == torch.float32 else twin
            y = torch.stack(module(list(x.unbind())))
            return y * y.abs()  # no gradient at the kink, where rounding decides on the side

        found = run(both, [images.to(DEVICE)])
        with plain():
            expected = run(both, [images.double().to(DEVICE)])
        for ours, exact in zip(found, expected, strict=True):
            torch.testing.assert_close(ours.double(), exact, rtol=1e-4, atol=1e-4)
        for name, value in norm.state_dict().items():
            torch.testing.assert_close(value.double(), twin.state_dict()[name], rtol=1e-5, atol=1e-5)

    @pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
    @pytest.mark.parametrize("c", [1, 5])
    @pytest.mark.parametrize("name", RESAMPLED)
    def test_resample(self, name, c, dtype):
        """Values and gradients of torch's own pooling and interpolation, for images of any layout."""
        layer, size, torchs = RESAMPLED[name]
        layer = copy.deepcopy(layer).to(DEVICE)
        x = draw(3, *size, c).to(DEVICE, dtype).requires_grad_()
        exact = x.detach().cpu().double().requires_grad_()

        def ours(x):
            return kernels.resample(x, *(layer._bands(which) for which in ("down", "across", "up", "back")))

        y, expected = ours(x), torchs(exact.permute(0, 3, 1, 2)).permute(0, 2, 3, 1)
        dy = draw(*y.shape, seed=1).to(y)
        (dx,), (exact_dx,) = torch.autograd.grad(y, x, dy), torch.autograd.grad(expected, exact, dy.cpu().double())
        rounding = 1e-5 if dtype == torch.float32 else BFLOAT16_ROUNDING  # of the result; sums are in float32 always
        for mine, theirs in ((y, expected), (dx, exact_dx)):
            assert mine.dtype == dtype
            torch.testing.assert_close(mine.cpu().double(), theirs, rtol=rounding, atol=5e-6)
        turned = x.detach().transpose(1, 2).contiguous().transpose(1, 2)
        assert torch.equal(ours(turned), y)

    @pytest.mark.parametrize("latent", [1, 3, 8, 64])
    @pytest.mark.parametrize("prior", [True, False])
    def test_posterior(self, latent, prior):
        n, b = (3, 7) if latent < 64 else (1, 5)
        q, p, z = draw(n, b, 2 * latent), draw(n, b, 2 * latent, seed=1), draw(n, b, latent, seed=2).to(DEVICE)
        agree(lambda q, p=None: posterior(q, p, z.to(q)), *([2 * q, 2 * p] if prior else [q]), atol=5e-5)

    def test_posterior_of_slices(self):
        z = draw(2, 5, 3).to(DEVICE)

        def both(x):
            return posterior(x[::2, :, 2:8], x[1::2, :, 5:11], z.to(x))

        agree(both, draw(4, 5, 12))
        agree(lambda x: both(x.permute(2, 0, 1)), draw(5, 12, 4))  # the last axis is not contiguous

    def test_posterior_is_finite_far_out(self):
        q = torch.tensor([[[0.0, 5.0, -3.0, 1.0, -50.0, -17.0, 1e4, -1e4]]])
        p = torch.tensor([[[0.1, 5.0, 3.0, -1.0, -50.0, -50.0, -50.0, 1e4]]])
        for heads in ([q, p], [p, q], [q], [p]):
            agree(lambda q, p=None: posterior(q, p, torch.ones(1, 1, 4).to(q)), *heads, rtol=1e-4)

    @pytest.mark.parametrize(("r", "b"), [(1, 1), (3, 7), (5, 300)])
    def test_decisions(self, r, b):
        agree(decisions, draw(r, b, scale=4), draw(r, b, scale=4, seed=1))

    def test_decisions_far_out_and_none(self):
        far = torch.tensor([[1e4, -1e4, 1e4, -1e4, 30.0, -100.0, 0.0]])
        agree(decisions, far, -far / 1e3)
        agree(decisions, far / 1e3, far)
        agree(decisions, far, -far)
        log_p, kl = decisions(*torch.zeros(2, 0, 4, device=DEVICE))
        assert log_p.shape == (0, 4)
        assert kl.shape == (0, 4)

    @pytest.mark.parametrize(
        ("sizes", "width", "b"), [([1], 1, 3), ([2, 3, 1], 8, 1), ([4, 7], 16, 150), ([1, 1], 4, 5)]
    )
    def test_weigh(self, sizes, width, b):
        table, nodes, routers, leaves = forest(sizes, width)
        table = table.to(DEVICE)
        inputs = -draw(nodes, b).abs(), draw(nodes, b, seed=1), draw(routers, b, seed=2), draw(leaves, b, seed=3)
        agree(lambda *inputs: weigh(*inputs, table), *inputs)

    @pytest.mark.parametrize("shape", [(1,), (7, 3), (5, 300)])
    def test_picked_rows(self, shape):
        rows = RowSums([[3], [0], [3], [1], [3], [0]], 4).to(DEVICE)  # row 2 is never taken
        y, dx = agree(rows, draw(4, *shape), atol=1e-6)
        assert y.shape == (6, *shape)
        assert (dx[2] == 0).all()

    @pytest.mark.parametrize("b", [1, 7, 1500])
    def test_sums_of_rows(self, b):
        rows = RowSums([[], [0, 2], [1], [0, 1, 2]], 3).to(DEVICE)
        agree(lambda x: rows.to(x.dtype)(x), draw(3, b), atol=1e-6)
        assert (rows.float()(draw(3, b).to(DEVICE))[0] == 0).all()

    @pytest.mark.parametrize(("n", "rows", "k", "m"), [(1, 4096, 9, 8), (3, 1000, 4, 5), (2, 7, 3, 1)])
    def test_products_of_many_rows(self, n, rows, k, m):
        agree(pixel_product, draw(n, rows, k), draw(n, k, m, seed=1), rtol=1e-4, atol=1e-4 * rows**0.5)

    @pytest.mark.parametrize(("s", "b", "f"), [(1, 4, 3), (2, 7, 1), (3, 5, 288), (1, 2, 1500)])
    def test_log_bernoulli(self, s, b, f):
        x = draw(s, b, f).sigmoid().to(DEVICE)
        run_of = torch.tensor([s - 1, 0, s // 2], dtype=torch.int32, device=DEVICE)
        agree(lambda output: log_bernoulli(x.to(output), output, run_of), draw(3, b, f, scale=3), atol=1e-4)

    def test_log_bernoulli_far_out(self):
        x, run_of = (
            torch.tensor([[[1.0, 0.0, 1.0, 0.0]]], device=DEVICE),
            torch.zeros(1, dtype=torch.long, device=DEVICE),
        )
        far = torch.tensor([[[1e4, 1e4, -1e4, -1e4]]])
        agree(lambda output: log_bernoulli(x.to(output), output, run_of), far)

    def test_log1p_and_softplus_are_exact_in_the_tail(self):
        raw = torch.linspace(-16, 3, 64)[None, :, None]  # the KL sees log of the variance, so its relative error
        head = torch.cat([torch.zeros_like(raw), raw], -1)
        z, kl = posterior(head.to(DEVICE), None, torch.zeros(1, 64, 1, device=DEVICE))
        with plain():
            _, twin = posterior(head.double(), None, torch.zeros(1, 64, 1, dtype=torch.float64))
        torch.testing.assert_close(kl.cpu().double(), twin, rtol=2e-6, atol=1e-6)
        assert (z == 0).all()

    def numbers(self, seeds, step, tree, place, rows, latent):
        def tensor(values, dtype):
            return torch.tensor(values, dtype=dtype, device=DEVICE)

        parts = (seeds, torch.int64), ([step], torch.int64), (tree, torch.int32), (place, torch.int32)
        return noise(*(tensor(*part) for part in parts), rows, latent).cpu()

    def test_noise_is_standard_normal(self):
        z = self.numbers([11, 2**40 + 5], 3, [0, 0, 1, 1], [0, 1, 0, 1], 2048, 8).double()
        flat, count = z.flatten(), z.numel()
        assert abs(flat.mean()) < 4 / count**0.5
        assert abs(flat.var() - 1) < 4 * (2 / count) ** 0.5
        assert abs((flat**4).mean() - 3) < 4 * (96 / count) ** 0.5
        assert flat.unique().numel() > 0.99 * count
        streams = torch.cat([z.flatten(1), self.numbers([11], 4, [0], [0], 2048, 8).double().flatten(1)])
        streams = torch.cat([streams, self.numbers([11], 2**32 + 3, [0], [0], 2048, 8).double().flatten(1)])
        for other in (
            streams,
            z[0].T,
            torch.stack([flat[:-1], flat[1:]]),
        ):  # nodes, steps and seeds; latents; neighbours
            apart = torch.corrcoef(other) - torch.eye(len(other))
            assert apart.abs().max() < 4.5 / other.shape[1] ** 0.5

    @pytest.mark.parametrize(("rows", "latent"), [(1, 1), (5, 3), (600, 8), (3, 6)])
    def test_noise_of_a_node_is_its_own(self, rows, latent):
        z = self.numbers([5, 6], 9, [1, 0, 1], [2, 0, 0], rows, latent)
        alone = self.numbers([6], 9, [0], [2], rows, latent)
        assert torch.equal(z[:1], alone)
        fewer = self.numbers([6], 9, [0], [2], max(1, rows // 2), latent)
        assert torch.equal(alone[:, : fewer.shape[1]], fewer)

    @pytest.mark.parametrize("weight_decay", [0.0, 0.01])
    @pytest.mark.parametrize("dtype", [torch.uint8, torch.int16])
    def test_adam(self, weight_decay, dtype):
        rates, count = [1e-3, 3e-2], 1500
        tree_of = (torch.arange(count) % 2).to(dtype)
        value = draw(count).to(DEVICE)
        twins = [value[tree_of.to(DEVICE) == tree].clone().requires_grad_() for tree in (0, 1)]
        groups = [{"params": [p], "lr": rate} for p, rate in zip(twins, rates, strict=True)]
        optimiser = torch.optim.Adam(groups, weight_decay=weight_decay)
        mean, square, step = torch.zeros_like(value), torch.zeros_like(value), torch.zeros(1, device=DEVICE)
        state = mean, square, step, torch.tensor(rates, device=DEVICE), tree_of.to(DEVICE), weight_decay
        byhand = [t.clone() if isinstance(t, torch.Tensor) else t for t in (value, *state)]
        for i in range(5):
            g = (draw(count, seed=i) * 10.0**-i).to(DEVICE)
            ahead = 80 if i == 2 else 0  # as if so many steps lay between
            step += 1 + ahead
            byhand[3] += 1 + ahead
            adam(value, g, *state)
            with plain():
                adam(byhand[0], g, *byhand[1:])
            for tree, p in enumerate(twins):
                p.grad = g[tree::2].clone()
                if ahead:
                    optimiser.state[p]["step"] += ahead
            optimiser.step()
            for found in (value, byhand[0]):
                for tree, p in enumerate(twins):
                    torch.testing.assert_close(found[tree::2], p.detach(), rtol=2e-6, atol=1e-6)

    @pytest.mark.skipif(INTERPRETED, reason="needs CUDA graphs")
    def test_a_captured_step_sees_new_values(self):
        x, heads = draw(2, 3000, 8).cuda().requires_grad_(), draw(2, 3000, 8).cuda().requires_grad_()
        weight, bias = torch.ones(2, 8, device="cuda"), torch.zeros(2, 8, device="cuda")
        seeds, step = torch.tensor([3], device="cuda"), torch.zeros(1, dtype=torch.int64, device="cuda")
        tree, place = torch.zeros(2, dtype=torch.int32, device="cuda"), torch.arange(2, device="cuda").int()

        def work():
            y = norm_leaky(x, weight, bias, torch.zeros_like(bias), torch.ones_like(bias), *TORCHS)
            z, kl = posterior(heads, y, noise(seeds, step, tree, place, 3000, 4))
            return torch.autograd.grad(z.square().sum() + kl.sum(), (x, heads))

        stream = torch.cuda.Stream()
        stream.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(stream):
            work()
        torch.cuda.current_stream().wait_stream(stream)
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            captured = work()
        for now in (0, 1, 5):
            step.fill_(now)
            graph.replay()
            for y, expected in zip(captured, work(), strict=True):
                assert torch.equal(y, expected)


@pytest.mark.skipif(INTERPRETED, reason="the outer test")
def test_kernels_in_the_interpreter():
    triton, numpy = pytest.importorskip("triton"), pytest.importorskip("numpy")
    versions = [tuple(map(int, part.__version__.split(".")[:2])) for part in (triton, numpy)]
    if versions[0] < (3, 9) and versions[1] >= (2, 4):
        pytest.skip("older interpreters cannot loop with this NumPy")
    command = [sys.executable, "-m", "pytest", "-x", "-p", "no:cacheprovider", f"{__file__}::TestKernels"]
    environment = {**os.environ, "TRITON_INTERPRET": "1", "OMP_NUM_THREADS": "1"}
    inner = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    assert inner.returncode == 0, inner.stdout + inner.stderr
    assert "passed" in inner.stdout
