"""On a GPU: the fused path and the captured path, each against its plain twin."""

import json

import pytest
import torch
from gpu_steps import GPU, SMALL, STAGE, graphed, samples, single_precision, weights
from test_model import ARCHITECTURES, BATCH, LARGE, TREES, noise_by_node, random_module, random_x
from twin import Twin

from treevae.baselines.autoencoder import Autoencoder
from treevae.baselines.embedded_tree import Clustering
from treevae.data.augment import AUGMENTATIONS
from treevae.model import descent, evidence, kernels
from treevae.model.contrastive import VARIANTS, contrast
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
from treevae.tree import Tree

pytestmark = pytest.mark.gpu


@pytest.fixture(autouse=True)
def _single_precision():
    with single_precision():
        yield


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


@pytest.mark.parametrize("name", AUGMENTATIONS)
def test_views_are_those_of_the_cpu_and_are_drawn_anew_by_a_captured_graph(name):
    augmentation, x = AUGMENTATIONS[name], torch.rand(64, 3, 32, 32)
    draw = augmentation.draw(x)
    there = draw.to(GPU) if torch.is_tensor(draw) else type(draw)(*(v if v is None else v.to(GPU) for v in draw))
    torch.testing.assert_close(
        augmentation.apply(x.to(GPU), there).cpu(), augmentation.apply(x, draw), atol=1e-5, rtol=0
    )
    on_gpu = x.to(GPU)
    view, graph = graphed(lambda: augmentation(on_gpu))
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
    found, graph = graphed(lambda: run(*there))
    graph.replay()
    for ours, exact in zip(found, expected, strict=True):
        assert (ours is None) == (exact is None)
        if ours is not None:
            torch.testing.assert_close(ours.cpu().double(), exact, atol=1e-4, rtol=1e-3)
