"""Training with a contrastive loss beside the ELBO."""

import dataclasses
import json

import pytest
import torch
from contrastive_groves import PIECES, PROJECTED, contrastive, grove, noisy
from small_groves import ARCH, CPU, THREE, assert_same_weights, data, story
from test_contrastive import loop_routers, mean_loss
from test_model import assert_same_networks, in_double, noise_by_node
from torch import Tensor, nn
from twin import Twin, plain

from treevae.model.contrastive import VARIANTS
from treevae.model.module import TreeVAEModule
from treevae.model.subtree import Subtree
from treevae.training import loop
from treevae.training.events import CandidatesCompared, EpochEnded, LeafChosen, TreeChanged
from treevae.training.grove import Grove
from treevae.training.loop import Training
from treevae.training.objectives import SubtreeOnSubset, WholeTree
from treevae.training.plan import Plan, Stage
from treevae.training.samples import Samples
from treevae.training.terms import Contrast
from treevae.training.views import Views
from treevae.tree import Tree

# -- the plan -------------------------------------------------------------------------------------------------------


def test_the_papers_contrastive_stages():
    plan = Plan.paper(contrast=Contrast("routers", 100.0))
    assert (plan.first.epochs, plan.subtree.epochs, plan.whole, plan.final) == (150, 150, None, None)
    assert plan.first.terms == plan.subtree.terms == (Contrast("routers", 100.0),)
    for stage in (plan.first, plan.subtree):
        weights = [stage.kl_weight(epoch - 1) for epoch in (1, 2, 50, 99, 100, 150)]
        assert weights == pytest.approx([0.01, 0.02, 0.5, 0.99, 1, 1])
        assert [stage.rate(e) for e in (0, 99, 100)] == pytest.approx([1e-3, 1e-3, 1e-4])
    assert Plan.paper().first.terms == ()


def test_a_contrastive_run_never_trains_the_whole_tree_again():
    told, _ = story(grove(contrastive(n_leaves=5), [0]))
    epochs = [event for _, event in told if isinstance(event, EpochEnded)]
    assert {event.stage for event in epochs} == {"first tree", "subtree"}
    assert sum(isinstance(event, LeafChosen) for _, event in told) >= 3  # as many as call for one otherwise
    assert epochs[-1].progress <= 1


# -- what a step minimises ------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("weight", "rows", "n_views"), [(10.0, 8, 2), (0.0, 16, 1)], ids=["contrastive", "augmented"])
def test_a_step_sees_batch_size_rows(weight, rows, n_views, monkeypatch):
    seen = set()
    plain_draw = Views.draw

    def draw(self, x, seeds):
        plain_draw(self, x, seeds)
        seen.add((tuple(x.shape), tuple(self.held.shape)))

    monkeypatch.setattr(Views, "draw", draw)
    plan = contrastive(weight, n_leaves=3)
    list(grove(plan, [0]).events())
    assert seen == {((1, rows, 5), (1, n_views * rows, 5))}


class Watched:
    """One step of a training in float64: what it saw, the noise it drew and the gradients it found."""

    def __init__(self, objective: WholeTree | SubtreeOnSubset, samples: Samples) -> None:
        stage = Stage("s", 1, kl_step=0.0, kl_start=0.3, learning_rate=0.0, drop_after=9, weight_decay=0.0)
        training = Training(objective, samples, stage, len(samples), [5])
        stepper = training._stepper
        draw, step = stepper._noise.draw, stepper.adam.step

        def drawn() -> list[Tensor]:
            self.noise = [level.double() for level in draw()]
            return self.noise

        def stepped(gradients: list[Tensor]) -> None:
            for parameter, gradient in zip(stepper.adam.parameters, gradients, strict=True):
                parameter.grad = gradient.clone()
            step(gradients)

        stepper._noise.draw, stepper.adam.step = drawn, stepped
        (done,) = [done for done in training.run() if done is not None]
        self.means, self.x = done.means, objective.views.held[0]


def asked_again(net: nn.Module, x: Tensor) -> Tensor:
    """What a network in training says, without moving its running statistics a second time."""
    for part in net.modules():
        part.momentum = 0.0
    return net(x)


def double_samples(n: int) -> Samples:
    return Samples(data(n).x.double(), CPU)


@pytest.mark.parametrize("variant", ["both", "encoder"])
def test_a_step_minimises_the_elbo_and_the_contrastive_loss(variant):
    """Gradients and reported means against the twin's ELBO and double loops over pairs, in float64."""
    samples, n_projections = double_samples(9), 4 if variant == "both" else 1
    with in_double():
        arch = dataclasses.replace(ARCH, n_projections=n_projections)
        module = TreeVAEModule(arch, [THREE], torch.Generator().manual_seed(0))
        twin = Twin(module.train())
        projections = [plain(part, 0) for part in module.bottom_up.projections]
    step = Watched(WholeTree(module, samples, Views(noisy, (5,), 2), [Contrast(variant, 10.0)]), samples)
    assert step.x.shape == (18, 5)

    kl_root, below = twin.elbo(step.x, noise_by_node(module, step.noise))
    of_bottom_up = [mean_loss(project(d), 0.5) for project, d in zip(projections, twin.d[-n_projections:], strict=True)]
    bottom_up, routers = sum(of_bottom_up) / n_projections, torch.zeros(())
    if variant == "both":
        root, inner = (asked_again(twin.nets["router_q"][node], twin.d[node]).squeeze(1) for node in (0, 1))
        left = 1 - root.sigmoid().detach()
        routers = loop_routers(root, torch.ones_like(left)) + loop_routers(inner, left)
    kl = kl_root + below.kl_nodes + below.kl_decisions
    ((0.3 * kl - below.reconstruction).mean() + 10 * (bottom_up + routers)).backward()

    expected = {
        "reconstruction": below.reconstruction.mean(),
        "kl_root": kl_root.mean(),
        "kl_nodes": below.kl_nodes.mean(),
        "kl_decisions": below.kl_decisions.mean(),
        "contrast_bottom_up": bottom_up,
        "contrast_routers": routers,
    }
    assert step.means == pytest.approx({name: value.item() for name, value in expected.items()}, rel=1e-5)
    assert_same_networks(module.bottom_up.encoder, 0, twin.encoder, "encoder")
    for k, stack in enumerate(module.bottom_up.steps):
        assert_same_networks(stack, 0, twin.steps[k], f"bottom-up step {k}")
    for k, stack in enumerate(module.bottom_up.projections):
        assert_same_networks(stack, 0, projections[k], f"projection {k}")
    for kind, rows in module.nodes.rows().items():
        for key, row in rows.items():
            assert_same_networks(*row, twin.nets[kind][key.node], f"{kind} of node {key.node}")


def test_a_step_of_a_subtree_minimises_its_share_and_the_contrast_of_its_router():
    samples, leaf = double_samples(9), 2
    with in_double():
        module = TreeVAEModule(PROJECTED, [THREE], torch.Generator().manual_seed(0))
        subtree = Subtree.new(PROJECTED, module.bottom_up.d_dims, 1, 2, torch.Generator().manual_seed(1))
        twins = []
        for candidate in (0, 1):
            grown = TreeVAEModule(PROJECTED, [THREE], torch.Generator().manual_seed(0)).eval()
            grown.attach(leaf, subtree, candidate)
            twins.append(Twin(grown))
        views, contrast = Views(noisy, (5,), 2), [Contrast("both", 10.0)]
        objective = SubtreeOnSubset([module], [leaf], subtree, samples, [torch.arange(9)], views, contrast)
    step = Watched(objective, samples)
    path = module.path_to(leaf)
    evidence = path.unpacked(path.packed(module.d(step.x))[None])
    z, reach = path.sample(evidence.heads, step.noise[:2])[0], evidence.log_reach[0].exp()

    found = []
    for candidate, twin in enumerate(twins):
        node_of = dict(zip((0, 1, 2), (leaf, *twin.tree.children(leaf)), strict=True))
        trained = {(kind, node_of[key.node]) for kind, rows in subtree.nodes.rows().items() for key in rows}
        for kind, node in trained:
            twin.nets[kind][node].train()
        twin.d, twin.x, twin.samples = twin.bottom_up(step.x), step.x, 1
        twin.noise = {node_of[side]: step.noise[2][2 * candidate + side - 1] for side in (1, 2)}
        terms = twin.below(leaf, z, reach)
        routers = loop_routers(asked_again(twin.nets["router_q"][leaf], twin.d[1]).squeeze(1), reach)
        loss = 0.3 * (terms.kl_nodes + terms.kl_decisions) - terms.reconstruction
        (loss.mean() + 10 * routers).backward()
        found.append([terms.reconstruction.mean(), terms.kl_nodes.mean(), terms.kl_decisions.mean(), routers])
        for kind, rows in subtree.nodes.rows().items():
            for key, row in rows.items():
                if key.tree == candidate:
                    assert_same_networks(*row, twin.nets[kind][node_of[key.node]], f"{kind} of node {key.node}")
    means = torch.tensor([[value.item() for value in of_candidate] for of_candidate in found]).mean(0).tolist()
    names = ("reconstruction", "kl_nodes", "kl_decisions", "contrast_routers")
    assert step.means == pytest.approx(
        dict(zip(names, means, strict=True)) | {"kl_root": 0, "contrast_bottom_up": 0}, rel=1e-5
    )


def test_training_pulls_views_together():
    samples = data(160)
    module = TreeVAEModule(PROJECTED, [Tree().split(0)], torch.Generator().manual_seed(0))
    objective = WholeTree(module, samples, Views(noisy, (5,), 2), [Contrast("bottom_up", 10.0)])
    stage = Stage("s", 8, kl_step=0.0, learning_rate=3e-3, drop_after=99)
    done = [d.means["contrast_bottom_up"] for d in Training(objective, samples, stage, 32, [0]).run() if d]
    assert done[-1] < done[0] - 0.1


# -- what is trained ------------------------------------------------------------------------------------------------


def test_projections_are_trained_with_the_first_tree_and_frozen_like_all_else_later(monkeypatch):
    monkeypatch.setattr(loop, "PAUSE", 0)
    one = grove(contrastive(), [0])
    (run,) = one.runs
    run.plant([Tree().split(0)])
    first = {name: value.clone() for name, value in run.module.state_dict().items()}
    frozen, after_first, in_subtree = None, None, 0
    for happened in one.events():
        if happened is not None and isinstance(happened[1], TreeChanged):
            frozen = {name: value.clone() for name, value in run.module.state_dict().items()}
            after_first = after_first or frozen
        elif happened is None and frozen is not None and one._training is not None:
            in_subtree += one._training.epoch[0] > 0
            assert_same_weights(run.module.state_dict(), frozen)  # whatever the subtree does
    assert in_subtree > 3
    moved = {name for name, value in after_first.items() if not torch.equal(value, first[name])}
    assert moved == set(first)  # every projection among them
    end = run.module.state_dict()
    below = {name: value for name, value in after_first.items() if name.startswith("bottom_up.")}
    assert any("projections" in name for name in below)
    assert all(torch.equal(end[name], value) for name, value in below.items())


@pytest.mark.parametrize("variant", VARIANTS)
def test_every_variant_trains_and_tells_its_parts(variant):
    n_projections = {"both": 4, "bottom_up": 4, "encoder": 1}.get(variant, 0)
    arch, plan = dataclasses.replace(ARCH, n_projections=n_projections), contrastive(variant=variant)
    told, _ = story(Grove(arch, data(80), plan, [0], augment=noisy))
    epochs = [event for _, event in told if isinstance(event, EpochEnded)]
    assert {event.stage for event in epochs} == {"first tree", "subtree"}
    for event in epochs:
        below = variant in ("both", "bottom_up", "encoder") and event.stage == "first tree"
        assert (event.contrast_bottom_up != 0) == below
        assert (event.contrast_routers != 0) == (variant not in ("bottom_up", "encoder"))


def test_without_a_contrastive_loss_no_parts_are_told():
    told, _ = story(grove(contrastive(0.0, n_leaves=2), [0]))
    event = next(event for _, event in told if isinstance(event, EpochEnded))
    assert (event.contrast_bottom_up, event.contrast_routers) == (None, None)


def test_candidates_compete_by_the_elbo_of_the_samples_themselves():
    told, _ = story(grove(contrastive(n_init=2, n_leaves=3), [0]))
    compared = [event for _, event in told if isinstance(event, CandidatesCompared)]
    assert [event.leaf is None for event in compared] == [True, False]
    for event in compared:
        assert len(set(event.losses)) == 2
        alive = [loss for loss, share in zip(event.losses, event.smaller_shares, strict=True) if share >= 0.05]
        assert event.losses[event.chosen] == min(alive or event.losses)


# -- several runs, windows, going on ----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("seeds", "budget"), [([0], None), ([0, 1], None), ([0], PIECES)], ids=["one run", "two runs", "in pieces"]
)
def test_a_contrastive_grove_goes_on_from_a_pause_to_the_same_end(seeds, budget, monkeypatch):
    monkeypatch.setattr(loop, "PAUSE", 0)
    plan = contrastive(n_leaves=3)
    one, states, told = grove(plan, seeds, budget=budget, n=80), [], []
    for happened in one.events():
        if happened is not None:
            told.append(happened)
        elif one._training is not None and sum(one._training.step) > 0:
            about, tensors = one.state()
            whole = one._tasks[0].leaf is None
            copies = {name: value.clone() for name, value in tensors.items()}
            states.append((whole, len(told), json.dumps(about), copies))
    weights = [run.module.state_dict() for run in one.runs]
    of_first, of_subtrees = ([state for state in states if state[0] == whole] for whole in (True, False))
    for _, so_far, about, tensors in (of_first[1], of_first[-1], of_subtrees[1], of_subtrees[-1]):
        other = grove(plan, seeds, budget=budget, n=80)
        other.restore(json.loads(about), tensors)
        rest, end = story(other)
        assert rest == told[so_far:]
        for ours, theirs in zip(end, weights, strict=True):
            assert_same_weights(ours, theirs)
