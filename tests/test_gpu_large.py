"""On a GPU: large networks in bfloat16, every node in a lane of its own."""

from contextlib import nullcontext

import pytest
import torch
import torch.nn.functional as F
from gpu_steps import GPU, graphed, single_precision, weights

from treevae import TreeVAE
from treevae.data.augment import AUGMENTATIONS
from treevae.model import convolutions, descent, kernels
from treevae.model.convolutions import Norm, enlarged, halved
from treevae.model.module import TreeVAEModule
from treevae.model.networks import Architecture
from treevae.model.subtree import Subtree
from treevae.training.engine import Stepper
from treevae.training.loop import Training
from treevae.training.objectives import SubtreeOnSubset, WholeTree
from treevae.training.plan import Stage
from treevae.training.samples import Samples
from treevae.training.terms import Contrast
from treevae.training.views import Views
from treevae.tree import Tree, balanced

pytestmark = pytest.mark.gpu


@pytest.fixture(autouse=True)
def _single_precision():
    with single_precision():
        yield


RESNET = Architecture((3, 32, 32), "resnet", "gaussian", (8,) * 4, (32,) * 3, n_projections=4)
DEEP_CNN = Architecture((1, 28, 28), "deep_cnn", "bernoulli", (8,) * 4, (32,) * 3)


def images(arch: Architecture, n: int) -> torch.Tensor:
    """Smooth pictures: pixels beside each other are alike, as in photographs."""
    channels, height, width = arch.input_shape
    coarse = torch.rand(n, channels, 7, 7, generator=torch.Generator().manual_seed(1))
    return F.interpolate(coarse, (height, width), mode="bilinear").flatten(1)


def cosine(ours: list[torch.Tensor], theirs: list[torch.Tensor]) -> float:
    a, b = (torch.cat([tensor.flatten().double().cpu() for tensor in tensors]) for tensors in (ours, theirs))
    return float(a @ b / (a.norm() * b.norm()))


@pytest.mark.parametrize("arch", [RESNET, DEEP_CNN], ids=["resnet", "deep_cnn"])
def test_a_fast_step_of_a_large_network_is_nearly_the_exact_one(arch):
    """Captured, in bfloat16 and lanes, against the plain code in float32."""
    module = TreeVAEModule(arch, [Tree().split(0).split(1)] * 2, torch.Generator().manual_seed(0)).to(GPU)
    start = {name: value.clone() for name, value in module.state_dict().items()}
    x = images(arch, 64).to(GPU)
    noise = descent.noise_for(module.nodes, 64, torch.Generator(GPU).manual_seed(2))
    named = {name: value for name, value in module.named_parameters() if "projections" not in name}

    def step():
        terms = module.elbo(x, noise)
        return terms.values.detach().mean(-1), torch.autograd.grad(terms.loss(0.5), list(named.values()))

    def fast():
        with kernels.fast_products():
            assert kernels.reduced(x)
            return step()

    (values, gradients), graph = graphed(fast)
    module.load_state_dict(start)  # the warm-up has moved running statistics
    graph.replay()
    statistics = {name: value.clone() for name, value in module.state_dict().items() if "running" in name}
    module.load_state_dict(start)
    with kernels.plain():
        exact_values, exact_gradients = step()

    torch.testing.assert_close(values, exact_values, rtol=3e-2, atol=3e-2)
    assert cosine(list(gradients), list(exact_gradients)) > 0.99
    for part, least in (("bottom_up.encoder", 0.95), ("nodes.decoder", 0.99)):
        of_part = [i for i, name in enumerate(named) if name.startswith(part)]
        assert cosine([gradients[i] for i in of_part], [exact_gradients[i] for i in of_part]) > least
    assert not all(torch.equal(value, start[name]) for name, value in statistics.items())
    for name, value in statistics.items():
        torch.testing.assert_close(value, module.state_dict()[name], rtol=3e-2, atol=3e-2, msg=lambda m, n=name: n + m)


def test_layers_of_bfloat16_images_are_those_of_float32():
    """The norm and both resamplings, by their kernels: values, gradients and running statistics."""
    x = torch.randn(2, 4, 32, 8, 8, generator=torch.Generator().manual_seed(0)).bfloat16().to(GPU)
    for layer in (Norm(2, 32), halved((8, 8)), enlarged((8, 8), (15, 16))):
        layer, found = layer.to(GPU).train(), []
        start = {name: value.clone() for name, value in layer.state_dict().items()}
        for dtype in (torch.bfloat16, torch.float32):
            layer.load_state_dict(start)
            given = x.to(dtype).requires_grad_()
            lists = [one.contiguous(memory_format=torch.channels_last) for one in given]
            with kernels.plain() if dtype == torch.float32 else nullcontext():
                y = torch.stack(layer(lists))
            dy = torch.randn(y.shape, generator=torch.Generator().manual_seed(1)).bfloat16().to(y)
            (dx,) = torch.autograd.grad(y, given, dy)
            assert (y.dtype, dx.dtype) == (dtype, dtype)
            found.append((y.float(), dx.float(), *(value.clone() for value in layer.state_dict().values())))
        for ours, exact in zip(*found, strict=True):
            torch.testing.assert_close(ours, exact, rtol=1e-2, atol=1e-2)


@pytest.mark.parametrize("kind", ["whole", "subtree", "stacked"])
def test_a_captured_contrastive_step_is_the_step(kind, monkeypatch):
    data, found = Samples(images(RESNET, 128), GPU), []
    stage = Stage("s", 1, kl_step=0.1, kl_start=0.1, learning_rate=1e-4, drop_after=9)
    for graphs in (True, False):
        trees = [Tree().split(0).split(1)] * (2 if kind == "stacked" else 1)
        module = TreeVAEModule(RESNET, trees, torch.Generator().manual_seed(0)).to(GPU)
        views, pull = Views(AUGMENTATIONS["cifar"], RESNET.input_shape, 2), [Contrast("both", 100.0)]
        if kind == "subtree":
            new = Subtree.new(RESNET, module.bottom_up.d_dims, 1, 2, torch.Generator().manual_seed(1)).to(GPU)
            objective = SubtreeOnSubset([module], [2], new, data, [torch.arange(128, device=GPU)], views, pull)
        else:
            objective = WholeTree(module, data, views, pull)
        before = weights(objective.network)
        training = Training(objective, data, stage, 32, [7, 8] if kind == "stacked" else [7])
        if not graphs:
            monkeypatch.setattr(Stepper, "_capture", lambda self: None)
        means = [done.means for done in training.run() if done is not None]
        assert (training._stepper._graph is not None) == graphs
        found.append((weights(objective.network), means))
    (ours, our_means), (theirs, their_means) = found
    for mine, exact in zip(our_means, their_means, strict=True):
        assert mine == pytest.approx(exact, rel=2e-2, abs=2e-2)
    assert (ours - theirs).norm() < 0.3 * (theirs - before).norm()  # Adam's first steps magnify rounding


def test_a_contrastive_fit_of_two_seeds_side_by_side(caplog):
    X = images(RESNET, 640).unflatten(1, (3, 32, 32)).numpy()
    sizes = {"latent_dim": 8, "hidden_dim": 32, "max_depth": 3, "n_leaves": 3, "epochs": 2, "batch_size": 64}
    model = TreeVAE.recipe("cifar10", **sizes, device="cuda")
    models = model.fit_seeds(X, [0, 1])
    assert "without a CUDA graph" not in caplog.text
    for seed, fitted in enumerate(models):
        epochs = [event for event in fitted.history_ if event["event"] == "EpochEnded"]
        assert {event["stage"] for event in epochs} <= {"first tree", "subtree"}
        assert epochs[1]["contrast_bottom_up"] < epochs[0]["contrast_bottom_up"]
        assert fitted.labels_.shape == (640,)
        assert fitted.reconstruct(X[:8]).shape == X[:8].shape
        alone = TreeVAE.recipe("cifar10", **sizes, device="cuda", random_state=seed).fit(X)
        for name in ("reconstruction", "kl_root", "contrast_bottom_up", "contrast_routers"):
            assert epochs[0][name] == pytest.approx(alone.history_[0][name], rel=5e-2, abs=2e-2)
    assert models[0].history_[0] != models[1].history_[0]


@pytest.mark.parametrize("n_lanes", [5, 3])
def test_lanes_change_nothing(monkeypatch, n_lanes):
    """A captured step of eight decoders in float32, more nodes than lanes: to the bit as in one lane, every time."""
    module = TreeVAEModule(RESNET, [balanced(8)], torch.Generator().manual_seed(0)).to(GPU)
    start = {name: value.clone() for name, value in module.state_dict().items()}
    x = images(RESNET, 32).to(GPU)
    noise = descent.noise_for(module.nodes, 32, torch.Generator(GPU).manual_seed(2))
    named = [value for name, value in module.named_parameters() if "projections" not in name]

    def step():
        terms = module.elbo(x, noise)
        return terms.values.detach(), *torch.autograd.grad(terms.loss(0.5), named)

    def replayed(lanes: int) -> list[list[torch.Tensor]]:
        monkeypatch.setattr(convolutions, "N_LANES", lanes)
        found, graph = graphed(step)
        results = []
        for _ in range(5):
            module.load_state_dict(start)
            graph.replay()
            torch.cuda.synchronize()
            results.append([tensor.clone() for tensor in found])
        return results

    monkeypatch.setattr(torch.backends.cudnn, "deterministic", True)
    (alone, *_) = replayed(1)
    for result in replayed(n_lanes):
        for ours, theirs in zip(result, alone, strict=True):
            torch.testing.assert_close(ours, theirs, rtol=0, atol=0)


@pytest.mark.parametrize("likelihood", ["bernoulli", "gaussian"])
def test_black_and_white_pictures_in_bfloat16(likelihood):
    """Channels without any variance, whose norms divide by next to nothing: weights and answers stay finite."""
    X = torch.zeros(256, 3, 32, 32)
    X[128:] = 1
    model = TreeVAE(2, max_depth=1, network="resnet", likelihood=likelihood, epochs=2, batch_size=8, device="cuda")
    model.set_params(random_state=0).fit(X)
    assert all(bool(value.isfinite().all()) for value in model.module_.state_dict().values())
    for answer in (model.score_samples(X), model.reconstruct(X), model.sample(3)):
        assert torch.from_numpy(answer).isfinite().all()
