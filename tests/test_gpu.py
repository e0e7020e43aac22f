"""On a GPU: the fused path, the captured path, the cached path and the stacked path, each against its plain twin."""

import json
from contextlib import nullcontext

import pytest
import torch
import torch.nn.functional as F
from test_model import ARCHITECTURES, BATCH, LARGE, TREES, noise_by_node, random_module, random_x
from twin import Twin

from treevae import TreeVAE
from treevae.baselines.autoencoder import Autoencoder
from treevae.baselines.embedded_tree import Clustering
from treevae.data.augment import AUGMENTATIONS
from treevae.model import convolutions, descent, evidence, kernels
from treevae.model.contrastive import VARIANTS, contrast
from treevae.model.convolutions import Norm, enlarged, halved
from treevae.model.elbo import TERMS
from treevae.model.module import TreeVAEModule
from treevae.model.networks import Architecture
from treevae.model.subtree import Subtree
from treevae.training import loop
from treevae.training.engine import Stepper
from treevae.training.grove import Grove
from treevae.training.loop import Training
from treevae.training.objectives import SubtreeOnSubset, WholeTree
from treevae.training.plan import Plan, Stage
from treevae.training.samples import Samples
from treevae.training.terms import Contrast
from treevae.training.views import Views
from treevae.tree import Tree, balanced

pytestmark = pytest.mark.gpu
GPU = torch.device("cuda")
SMALL = Architecture((1, 28, 28), "cnn", "bernoulli", (4,) * 4, (32,) * 3)
STAGE = Stage("s", 2, kl_step=0.1, learning_rate=1e-3, drop_after=1)


@pytest.fixture(autouse=True)
def _single_precision():
    before = torch.backends.cudnn.allow_tf32
    torch.backends.cudnn.allow_tf32 = False
    yield
    torch.backends.cudnn.allow_tf32 = before


@pytest.mark.parametrize("training", [True, False], ids=["train", "eval"])
@pytest.mark.parametrize("arch", ARCHITECTURES.values(), ids=ARCHITECTURES.keys())
@pytest.mark.parametrize("tree", TREES.values(), ids=TREES.keys())
def test_fused_elbo_and_gradients_equal_the_recursive_twin(tree, arch, training):
    assert_fused_is_the_twin(tree, arch, training, 2e-3)


@pytest.mark.parametrize("training", [True, False], ids=["train", "eval"])
@pytest.mark.parametrize("arch", LARGE.values(), ids=LARGE.keys())
def test_large_networks_in_full_precision_equal_the_recursive_twin(arch, training):
    assert_fused_is_the_twin(TREES["one-child nodes"], arch, training, 5e-3)


@pytest.mark.parametrize("arch", ARCHITECTURES.values(), ids=ARCHITECTURES.keys())
@pytest.mark.parametrize("tree", TREES.values(), ids=TREES.keys())
def test_importance_weights_equal_the_recursive_twin(tree, arch):
    module, x = random_module(arch, [tree], False), random_x(arch)
    noise = descent.noise_for(module.nodes, BATCH, torch.Generator().manual_seed(4))
    expected = Twin(module).log_weight(x, noise_by_node(module, noise))
    fused, x = module.float().to(GPU), x.float().to(GPU)
    d = fused.d(x)
    found = descent.infer(fused.nodes, d, [level.float().to(GPU) for level in noise])
    weight = evidence.importance_weight(fused.nodes, d, found, descent.log_likelihood(fused.nodes, found.z, x[None]))
    torch.testing.assert_close(weight.cpu().double(), expected, rtol=2e-4, atol=2e-4)
    with kernels.plain(), torch.no_grad():
        plain = evidence.evidence(fused, x, 7, list(evidence.BOUNDS))
    with torch.no_grad():
        torch.testing.assert_close(evidence.evidence(fused, x, 7, list(evidence.BOUNDS)), plain, rtol=2e-4, atol=2e-4)


def assert_fused_is_the_twin(tree: Tree, arch: Architecture, training: bool, tolerance: float) -> None:
    """Float32 on the GPU against float64 on the CPU; the tolerance is that of a gradient's direction and length."""
    module, x = random_module(arch, [tree], training), random_x(arch)
    twin = Twin(module)
    noise = descent.noise_for(module.nodes, BATCH, torch.Generator().manual_seed(4))
    fused = random_module(arch, [tree], training).float().to(GPU)
    assert kernels.fused(next(fused.parameters()))
    terms = fused.elbo(x.float().to(GPU), [level.float().to(GPU) for level in noise])
    kl_root, below = twin.elbo(x, noise_by_node(module, noise))
    expected = {"kl_root": kl_root} | {name: getattr(below, name) for name in TERMS if name != "kl_root"}
    for name in TERMS:
        torch.testing.assert_close(getattr(terms, name)[0].cpu().double(), expected[name], rtol=2e-4, atol=2e-4)
    ours = torch.autograd.grad(terms.loss(0.7), list(fused.parameters()))
    plain = module.elbo(x, noise)
    theirs = torch.autograd.grad(plain.loss(0.7), list(module.parameters()))
    for mine, exact in zip(ours, theirs, strict=True):
        assert (mine.cpu().double() - exact).norm() <= tolerance * exact.norm() + 1e-5


def samples(n: int = 640, budget: int | None = None) -> Samples:
    x = torch.rand(n, 784, generator=torch.Generator().manual_seed(1))
    return Samples(x, GPU, budget)


def weights(network: torch.nn.Module) -> torch.Tensor:
    return torch.cat([value.flatten().double().cpu() for value in network.state_dict().values()])


@pytest.mark.parametrize("kind", ["whole", "subtree", "stacked"])
def test_a_captured_step_is_the_step(kind, monkeypatch):
    """Replays of the graph move the weights as the same steps taken one by one do."""
    data, found = samples(), []
    for captured in (True, False):
        tree = Tree().split(0).split(1)
        module = TreeVAEModule(SMALL, [tree] * (3 if kind == "stacked" else 1), torch.Generator().manual_seed(0)).to(
            GPU
        )
        if kind == "subtree":
            new = Subtree.new(SMALL, module.bottom_up.d_dims, 1, 2, torch.Generator().manual_seed(1)).to(GPU)
            objective = SubtreeOnSubset([module], [2], new, data, [torch.arange(512, device=GPU)])
        else:
            objective = WholeTree(module, data)
        training = Training(objective, data, STAGE, 64, [7, 8, 9] if kind == "stacked" else [7])
        if not captured:
            monkeypatch.setattr(Stepper, "_capture", lambda self: None)
        means = [done.means for done in training.run() if done is not None]
        assert (training._stepper._graph is not None) == captured
        found.append((weights(objective.network), means))
    torch.testing.assert_close(found[0][0], found[1][0], rtol=1e-4, atol=1e-5)
    for mine, theirs in zip(found[0][1], found[1][1], strict=True):
        assert mine == pytest.approx(theirs, rel=1e-4)


def test_a_captured_step_of_deepect_goes_on_when_leaves_are_split_and_die(monkeypatch):
    data, found = samples(), []
    stage = Stage("clustering", 6, 0.0, learning_rate=1e-3, drop_after=6, weight_decay=0.0)
    for captured in (True, False):
        module = Autoencoder(SMALL, 4, torch.Generator().manual_seed(0)).to(GPU)
        module.fixed_norms = True
        objective = Clustering(module, data, None, 1e-3, prune_below=0.1)
        training = Training(objective, data, stage, 64, [7])
        if not captured:
            monkeypatch.setattr(Stepper, "_capture", lambda self: None)
        centre = module.embed(data.x).mean(0).detach()
        module.leaves.split(0, centre - 0.01, centre + 0.01)
        trees = []
        for done in training.run():
            if done is not None:
                for leaf in module.leaves.dead():
                    module.leaves.prune(leaf)
                if done.epoch in (1, 3):  # by a leaf that wins samples, and by one too far away to win any
                    last = module.leaves.tree.leaves[-1]
                    module.leaves.split(last, centre + 0.02, centre + (0.03 if done.epoch == 1 else 1e3))
                trees.append(module.leaves.tree)
        assert (training._stepper._graph is not None) == captured
        assert len(trees[3].leaves) > len(trees[4].leaves)
        found.append((weights(module), trees))
    assert found[0][1] == found[1][1]
    torch.testing.assert_close(found[0][0], found[1][0], rtol=1e-3, atol=1e-4)


def test_where_capture_is_impossible_training_goes_on_with_one_line(monkeypatch, caplog):
    plain = Stepper._step

    def waits_for_the_device(self):
        plain(self)
        self.totals.sum().item()

    monkeypatch.setattr(Stepper, "_step", waits_for_the_device)
    data = samples(256)
    module = TreeVAEModule(SMALL, [Tree().split(0)], torch.Generator().manual_seed(0)).to(GPU)
    before = weights(module)
    done = [d for d in Training(WholeTree(module, data), data, STAGE, 64, [7]).run() if d is not None]
    assert [d.epoch for d in done] == [0, 1]
    assert not torch.equal(before, weights(module))
    assert [record.levelname for record in caplog.records] == ["WARNING"]
    assert "without a CUDA graph" in caplog.text


def test_runs_side_by_side_start_as_each_alone():
    """The same weights, order and noise: after an epoch the weights have moved alike, up to TF32."""
    data, tree = samples(), Tree().split(0)
    alone = [TreeVAEModule(SMALL, [tree], torch.Generator().manual_seed(r)).to(GPU) for r in range(3)]
    together = TreeVAEModule.of([(module, 0) for module in alone])
    stage = Stage("s", 1, kl_step=0.1, learning_rate=1e-4, drop_after=1)
    list(Training(WholeTree(together, data), data, stage, 64, [5, 6, 7]).run())
    for r, module in enumerate(alone):
        start = weights(module)
        list(Training(WholeTree(module, data), data, stage, 64, [5 + r]).run())
        beside = weights(TreeVAEModule.of([(together, r)]))
        assert (beside - weights(module)).norm() < 0.1 * (weights(module) - start).norm()


def test_data_larger_than_the_device_may_hold_train_the_same_model():
    """Up to the order of the samples, which is drawn where it is used: on the GPU, or on the host."""
    plan, found = Plan.paper(2, 3, 64), []
    for budget in (None, 200 * 784 * 4):
        data = samples(budget=budget)
        assert data.resident == (budget is None)
        grove = Grove(SMALL, data, plan, [0])
        told = [event for _, event in filter(None, grove.events())]
        found.append([(event.stage, event.epoch, event.reconstruction) for event in told if hasattr(event, "stage")])
    for (stage, epoch, mine), (stage2, epoch2, theirs) in zip(*found, strict=True):
        assert (stage, epoch) == (stage2, epoch2)
        assert mine == pytest.approx(theirs, rel=0.05)


def test_a_run_goes_on_from_a_saved_state(monkeypatch):
    monkeypatch.setattr(loop, "PAUSE", 0)
    plan, data = Plan.paper(2, 3, 64), samples()
    grove, states, told = Grove(SMALL, data, plan, [0, 1]), [], []
    for happened in grove.events():
        if happened is None:
            about, tensors = grove.state()
            states.append((len(told), json.dumps(about), {name: value.clone() for name, value in tensors.items()}))
        else:
            told.append(happened)
    for so_far, about, tensors in states[:: max(1, len(states) // 4)]:
        other = Grove(SMALL, data, plan, [0, 1])
        other.restore(json.loads(about), tensors)
        rest = list(filter(None, other.events()))
        assert [(r, type(event)) for r, event in rest] == [(r, type(event)) for r, event in told[so_far:]]
        for (_, mine), (_, theirs) in zip(rest, told[so_far:], strict=True):
            if hasattr(mine, "reconstruction"):
                assert mine.reconstruction == pytest.approx(theirs.reconstruction, rel=2e-3)


def test_training_leaves_the_precision_of_products_alone():
    before = torch.get_float32_matmul_precision()
    data = samples(128)
    module = TreeVAEModule(SMALL, [Tree().split(0)], torch.Generator().manual_seed(0)).to(GPU)
    list(Training(WholeTree(module, data), data, STAGE, 64, [7]).run())
    assert torch.get_float32_matmul_precision() == before


@pytest.fixture
def _no_waiting():
    """Whatever makes the host wait for the device raises."""
    torch.cuda.set_sync_debug_mode("error")
    yield
    torch.cuda.set_sync_debug_mode("default")


def captured(run):
    """The outputs of a call that a graph was captured of, filled anew by every replay, and the graph."""
    side = torch.cuda.Stream()
    side.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(side):
        run()
    torch.cuda.current_stream().wait_stream(side)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        outputs = run()
    return outputs, graph


@pytest.mark.parametrize("name", AUGMENTATIONS)
def test_views_are_those_of_the_cpu_and_are_drawn_anew_by_a_captured_graph(name):
    augmentation, x = AUGMENTATIONS[name], torch.rand(64, 3, 32, 32)
    draw = augmentation.draw(x)
    there = draw.to(GPU) if torch.is_tensor(draw) else type(draw)(*(v if v is None else v.to(GPU) for v in draw))
    torch.testing.assert_close(
        augmentation.apply(x.to(GPU), there).cpu(), augmentation.apply(x, draw), atol=1e-5, rtol=0
    )
    on_gpu = x.to(GPU)
    view, graph = captured(lambda: augmentation(on_gpu))
    graph.replay()
    first = view.clone()
    graph.replay()
    assert (first - view).flatten(1).abs().amax(1).min() > 0
    assert view.min() >= 0
    assert view.max() <= 1


@pytest.mark.usefixtures("_no_waiting")
@pytest.mark.parametrize("name", AUGMENTATIONS)
def test_views_are_made_without_waiting(name):
    AUGMENTATIONS[name](torch.rand(64, 3, 32, 32, device=GPU))


@pytest.mark.parametrize("variant", VARIANTS)
def test_contrast_and_its_gradients_in_a_captured_graph_are_those_of_the_cpu(variant):
    generator = torch.Generator().manual_seed(0)
    given = [torch.randn(*shape, generator=generator) for shape in [(3, 64, 16)] * 2 + [(5, 64)]]
    log_reach, tree_of_router = -torch.rand(5, 64, generator=generator), torch.tensor([0, 2, 1, 0, 0])

    def run(tensors, reach, trees):
        parts = contrast(variant, tensors[:2], tensors[2], reach, trees, 3)
        return parts, *torch.autograd.grad(parts.sum(), tensors, allow_unused=True)

    def placed(device, dtype):
        tensors = [g.to(device, dtype).requires_grad_() for g in given]
        return tensors, log_reach.to(device, dtype), tree_of_router.to(device)

    expected, there = run(*placed("cpu", torch.float64)), placed(GPU, torch.float32)
    found, graph = captured(lambda: run(*there))
    graph.replay()
    for ours, exact in zip(found, expected, strict=True):
        assert (ours is None) == (exact is None)
        if ours is not None:
            torch.testing.assert_close(ours.cpu().double(), exact, atol=1e-4, rtol=1e-3)


# -- large networks in bfloat16, every node in a lane of its own ------------------------------------------------------

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

    (values, gradients), graph = captured(fast)
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
        found, graph = captured(step)
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
