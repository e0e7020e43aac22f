"""The recipe: schedules, which leaf is split, what is frozen, what is pruned, what is told."""

import dataclasses
import json

import pytest
import torch

from treevae.model import descent
from treevae.model.module import TreeVAEModule
from treevae.model.networks import Architecture
from treevae.model.subtree import Subtree
from treevae.training import choosing, loop
from treevae.training.choosing import LEAF_RULES, Choices, compare, prune, splittable
from treevae.training.events import (
    CandidatesCompared,
    EpochEnded,
    LeafChosen,
    LeafPruned,
    TreeChanged,
)
from treevae.training.grove import Grove
from treevae.training.growing import Given, Splits
from treevae.training.growth import Task
from treevae.training.loop import DivergedError, Training
from treevae.training.objectives import SubtreeOnSubset, WholeTree
from treevae.training.plan import Plan, Stage
from treevae.training.samples import Samples, over
from treevae.training.terms import Contrast
from treevae.tree import Tree

ARCH = Architecture((5,), "mlp", "bernoulli", (3,) * 4, (8,) * 3)
CPU = torch.device("cpu")


def data(n: int = 80, budget: int | None = None) -> Samples:
    return Samples(torch.rand(n, 5, generator=torch.Generator().manual_seed(1)).round(), CPU, budget)


def fixed_module(tree: Tree | None = None, arch: Architecture = ARCH) -> TreeVAEModule:
    return TreeVAEModule(arch, [tree or Tree().split(0)], torch.Generator().manual_seed(0))


def grown(samples: Samples, plan: Plan, seed: int = 0, tree: Tree | None = None) -> list:
    """The events of one run."""
    happened = Grove(ARCH, samples, plan, [seed], Given(tree) if tree is not None else None).events()
    return [event for _, event in filter(None, happened)]


def tiny(**changes) -> Plan:
    return dataclasses.replace(Plan.paper(epochs=2, n_leaves=4, batch_size=16), **changes)


class Fixed:
    """A stand-in module whose leaves' probabilities are given."""

    def __init__(self, tree: Tree, reach: torch.Tensor, n_levels: int = 4) -> None:
        self.tree, self.arch = (
            tree,
            dataclasses.replace(ARCH, latent_dims=(3,) * n_levels, hidden_dims=(8,) * (n_levels - 1)),
        )
        self._reach = reach

    def eval(self) -> "Fixed":
        return self

    def reach(self, rows: torch.Tensor) -> torch.Tensor:
        return self._reach[rows.long().squeeze(1)]


def chosen(reach: list[list[float]], tree: Tree, n_levels: int = 4, **plan):
    """The leaf to split next and its samples, when the rows of ``reach`` are the samples; None if growing ends."""
    rows = torch.arange(len(reach), dtype=torch.float32)[:, None]
    module, samples, plan = Fixed(tree, torch.tensor(reach), n_levels), Samples(rows, CPU), tiny(**plan)
    n_effective, leaves = splittable(module, samples, plan)
    if n_effective >= plan.n_leaves or not leaves:
        return None
    leaf = LEAF_RULES["samples"](module, samples, leaves, 0)
    return leaf, leaves[leaf].tolist()


# -- schedules ----------------------------------------------------------------------------------------------------


def test_the_papers_stages():
    plan = Plan.paper()
    assert (plan.first.epochs, plan.subtree.epochs, plan.whole.epochs, plan.final.epochs) == (150, 150, 80, 200)
    assert plan.whole_every == 3
    assert [plan.first.kl_weight(e) for e in (0, 1, 149)] == pytest.approx([0, 0.001, 0.149])
    assert [plan.final.kl_weight(e) for e in (0, 50, 100, 199)] == pytest.approx([0, 0.5, 1, 1])
    assert [plan.first.rate(e) for e in (0, 99, 100, 149)] == pytest.approx([1e-3, 1e-3, 1e-4, 1e-4])
    assert plan.first.weight_decay == 1e-5


@pytest.mark.parametrize("epochs", [15, 30, 300])
def test_other_lengths_keep_the_proportions(epochs):
    short, paper = Plan.paper(epochs), Plan.paper()
    scale = epochs / 150
    for name in ("first", "subtree", "whole", "final"):
        ours, theirs = getattr(short, name), getattr(paper, name)
        assert ours.epochs == pytest.approx(theirs.epochs * scale, abs=0.5)
        assert ours.drop_after == pytest.approx(100 * scale, abs=1)
        assert ours.kl_weight(round(theirs.epochs * scale / 2)) == pytest.approx(
            theirs.kl_weight(theirs.epochs // 2), abs=0.01 / scale
        )


@pytest.mark.parametrize("epochs", [1, 2, 5, 8, 20, 38, 50, 150, 200])
def test_the_rate_drops_once_in_the_final_stage(epochs):
    final = Plan.paper(epochs).final
    rates = [final.rate(epoch) for epoch in range(final.epochs)]
    assert min(rates) == pytest.approx(1e-4 if final.epochs > 1 else 1e-3)


def test_contrastive_stages_start_with_some_kl_and_never_train_the_whole_tree():
    plan = Plan.paper(contrast=Contrast("both", 100.0))
    for stage in (plan.first, plan.subtree):
        assert [stage.kl_weight(e) for e in (0, 1, 98, 99, 149)] == pytest.approx([0.01, 0.02, 0.99, 1, 1])
    assert (plan.whole, plan.final) == (None, None)


def test_steps_of_a_stage_on_the_papers_mnist():
    """The whole schedule takes 201,540 steps; first tree, two fine-tunes and the final stage make 119,340."""
    plan, per_epoch = Plan.paper(), 60_000 // 256
    assert per_epoch * (plan.first.epochs + 2 * plan.whole.epochs + plan.final.epochs) == 119_340


# -- the loop -----------------------------------------------------------------------------------------------------


def trained(objective: WholeTree | SubtreeOnSubset, samples: Samples, stage: Stage, seed: int = 0) -> list:
    return [done for done in Training(objective, samples, stage, 16, [seed]).run() if done is not None]


def test_a_short_last_batch_is_dropped_and_rates_are_followed(monkeypatch):
    samples = data(50)
    objective, seen = WholeTree(fixed_module(), samples), []
    stage = Stage("s", 3, kl_step=0.25, learning_rate=1e-3, drop_after=2)
    training = Training(objective, samples, stage, 16, [0])
    stepper, plain = training._stepper, objective.terms

    def terms(index, noise):
        seen.append((index, stepper.kl_weight.item(), stepper.adam.learning_rate.item()))
        return plain(index, noise)

    monkeypatch.setattr(objective, "terms", terms)
    epochs = [done for done in training.run() if done is not None]
    assert [tuple(index.shape) for index, _, _ in seen] == [(1, 16)] * 9
    assert [weight for _, weight, _ in seen] == [0] * 3 + [0.25] * 3 + [0.5] * 3
    assert [rate for _, _, rate in seen] == pytest.approx([1e-3] * 6 + [1e-4] * 3)
    for epoch in range(3):
        rows = torch.cat([index.flatten() for index, _, _ in seen[3 * epoch : 3 * epoch + 3]])
        assert len(set(rows.tolist())) == 48  # no sample twice in an epoch
    assert [(done.epoch, done.last) for done in epochs] == [(0, False), (1, False), (2, True)]


def test_training_improves_the_elbo():
    samples = data()
    stage = Stage("s", 30, kl_step=0.0, learning_rate=1e-2, drop_after=100)
    means = [done.means for done in trained(WholeTree(fixed_module(), samples), samples, stage)]
    assert means[-1]["reconstruction"] > means[0]["reconstruction"] + 1


def test_a_loss_that_is_not_finite_names_stage_epoch_and_term():
    module = fixed_module(arch=dataclasses.replace(ARCH, likelihood="gaussian"))
    samples = Samples(data().x * 1e30, CPU)
    stage = Stage("first tree", 2, kl_step=0.0, learning_rate=1e-3, drop_after=100)
    with pytest.raises(DivergedError, match=r"stage 'first tree', epoch 1 of 2: reconstruction = -?(inf|nan)"):
        trained(WholeTree(module, samples), samples, stage)


# -- choosing a leaf ----------------------------------------------------------------------------------------------

THREE = Tree().split(0).split(1)  # leaves 3, 4, 2 from left to right


def test_the_leaf_with_most_sure_samples_is_split_on_just_those():
    reach = [[0.9, 0.1, 0.0]] * 20 + [[0.0, 0.7, 0.3]] * 30 + [[0.2, 0.4, 0.4]] * 5 + [[0.4, 0.3, 0.3]] * 5
    assert chosen(reach, THREE) == (4, list(range(20, 55)))  # t = 1/3: the last five are sure of leaf 3 alone


def test_the_threshold_is_at_most_one_half():
    reach = [[0.6, 0.4]] * 40 + [[0.45, 0.55]] * 20
    assert chosen(reach, Tree().split(0)) == (1, list(range(40)))


def test_when_the_best_leaf_is_on_the_last_level_the_next_is_taken():
    reach = [[0.9, 0.1, 0.0]] * 40 + [[0.0, 0.0, 1.0]] * 20
    assert chosen(reach, THREE, n_levels=3)[0] == 2


def test_a_leaf_needs_a_batch_of_samples():
    reach = [[0.9, 0.1, 0.0]] * 12 + [[0.0, 0.9, 0.1]] * 12 + [[0.0, 0.0, 1.0]] * 14
    assert chosen(reach, THREE, batch_size=14) == (2, list(range(24, 38)))
    assert chosen(reach, THREE, batch_size=15) is None


def test_growing_stops_when_enough_leaves_count():
    two_empty = [[0.5, 0.5, 0.0, 0.0]] * 40
    four = Tree().split(0).split(1).split(2)
    assert chosen(two_empty, four, n_leaves=2) is None
    assert chosen(two_empty, four, n_leaves=3) is not None  # empty leaves do not count


@pytest.mark.parametrize("rule", ["reconstruction", "elbo"])
def test_other_rules_take_the_leaf_with_most_loss(rule):
    module = TreeVAEModule(ARCH, [THREE], torch.Generator().manual_seed(3)).eval()
    samples = data()
    _, leaves = splittable(module, samples, tiny(batch_size=1))
    found = LEAF_RULES[rule](module, samples, leaves, 5)

    nodes, generator, x = module.nodes, torch.Generator().manual_seed(5), samples.x[None]
    with torch.no_grad():
        descended = descent.infer(nodes, module.d(x), descent.noise_for(nodes, len(samples), generator))
        log_px, kl = descent.leaf_terms(nodes, descended, x)
        terms = descent.elbo(nodes, descended, x)
        reach = descent.log_reach(nodes, descended.logit_q)[nodes.layout.leaf_rows].exp()
    torch.testing.assert_close((reach * log_px).sum(0), terms.reconstruction[0])
    torch.testing.assert_close((reach * kl).sum(0), terms.kl[0])
    loss = (reach * ((kl if rule == "elbo" else 0) - log_px)).sum(1)
    sure = over(module, samples, module.reach) >= 1 / 3
    eligible = {key.node for key in nodes.layout.leaves if sure[:, THREE.leaves.index(key.node)].any()}
    by_loss = [nodes.layout.leaves[i].node for i in loss.argsort(descending=True).tolist()]
    assert found == next(leaf for leaf in by_loss if leaf in eligible)


# -- growing ------------------------------------------------------------------------------------------------------


def test_everything_outside_the_subtree_is_frozen_to_the_byte():
    module = TreeVAEModule(ARCH, [THREE], torch.Generator().manual_seed(0))
    samples = data()
    before = {name: value.clone() for name, value in module.state_dict().items()}
    subtree = Subtree.new(ARCH, module.bottom_up.d_dims, 1, 2, torch.Generator().manual_seed(0))
    fresh = {name: value.clone() for name, value in subtree.state_dict().items()}
    trained(SubtreeOnSubset([module], [2], subtree, samples, [torch.arange(40)]), samples, tiny().subtree)
    assert all(torch.equal(value, before[name]) for name, value in module.state_dict().items())
    assert not module.training
    moved = {name for name, value in subtree.state_dict().items() if not torch.equal(value, fresh[name])}
    assert moved == set(fresh)  # every weight and running statistic of the subtree was trained

    module.attach(2, subtree, candidate=1)
    rows = module.nodes.rows()
    for kind, of_kind in subtree.nodes.rows().items():
        for key, (stack, i) in of_kind.items():
            if key.tree == 1:
                node = (2, *module.tree.children(2))[key.node]
                mine, j = rows[kind][(0, node)]
                for name, value in stack.state_dict().items():
                    assert torch.equal(mine.state_dict()[name][j], value[i])


@pytest.mark.parametrize("n_init", [1, 4])
def test_events_tell_the_whole_story(n_init):
    plan = tiny(n_init=n_init, whole_every=2)
    grove = Grove(ARCH, data(160), plan, [0])
    events = [event for _, event in filter(None, grove.events())]
    epochs = [e for e in events if isinstance(e, EpochEnded)]
    splits = [e for e in events if isinstance(e, LeafChosen)]
    assert [e.epoch for e in epochs if e.stage == "first tree"] == [1, 2]
    assert len([e for e in epochs if e.stage == "subtree"]) == 2 * len(splits)
    assert len([e for e in epochs if e.stage == "whole tree"]) == plan.whole.epochs * (len(splits) // 2) > 0
    assert [e.epoch for e in epochs if e.stage == "final"] == list(range(1, plan.final.epochs + 1))
    progress = [e.progress for e in epochs]
    assert progress == sorted(progress)
    assert 0 < progress[0] <= progress[-1] <= 1
    assert max(e.progress for e in epochs if e.stage != "final") < 0.9  # the last stage is not begun at "all is done"
    changes = [e.tree for e in events if isinstance(e, TreeChanged)]
    assert changes[0] == Tree().split(0)
    pruned = [e for e in events if isinstance(e, LeafPruned)]
    assert len(changes) == 1 + len(splits) + len(pruned) + 1  # the first tree, what changes it, and the finished one
    assert isinstance(events[-1], TreeChanged)
    (module,) = grove.modules
    assert events[-1].tree == module.tree
    assert not module.training


def test_a_fixed_tree_is_trained_as_it_is():
    events = grown(data(), tiny(), tree=THREE)
    assert {type(e) for e in events} == {EpochEnded, TreeChanged}
    assert {e.stage for e in events if isinstance(e, EpochEnded)} == {"first tree", "final"}
    assert events[-1].tree == THREE


def test_small_leaves_are_pruned_smallest_first(monkeypatch):
    four = Tree().split(0).split(1).split(2)
    module = TreeVAEModule(ARCH, [four], torch.Generator().manual_seed(0))
    share = {3: 0.006, 4: 0.5, 5: 0.004, 6: 0.49}

    def reach(x: torch.Tensor) -> torch.Tensor:
        """Every leaf wins its share of the samples, in order."""
        left = list(module.tree.leaves)
        bounds = torch.tensor([share[leaf] for leaf in left]).cumsum(0) * 1000
        winner = torch.bucketize(x[:, 0], bounds, right=True).clamp(max=len(left) - 1)
        return torch.nn.functional.one_hot(winner, len(left)).float()

    monkeypatch.setattr(module, "reach", reach)
    samples = Samples(torch.arange(1000.0)[:, None].expand(-1, 5), CPU)
    events = list(prune(module, samples, 0.01))
    assert [e for e in events if isinstance(e, LeafPruned)] == [LeafPruned(5, 0.004), LeafPruned(3, 0.006)]
    assert module.tree == four.prune(5).prune(3)


def test_what_has_grown_is_pruned_before_the_final_stage():
    plan = tiny(min_leaf=0.3)
    events = grown(data(160), plan)
    last_split = max(i for i, e in enumerate(events) if isinstance(e, LeafChosen))
    final = next(i for i, e in enumerate(events) if isinstance(e, EpochEnded) and e.stage == "final")
    pruned = [e for e in events[last_split:final] if isinstance(e, LeafPruned)]
    assert pruned
    assert events[last_split].uncounted > 0  # it was split past n_leaves for those that did not count
    assert all(e.share < plan.min_leaf for e in pruned)


def test_of_several_candidates_the_best_that_did_not_collapse_is_kept(monkeypatch):
    losses = torch.tensor([5.0, 1.0, 3.0, 2.0])
    right = torch.tensor([[0.4, 0.6], [0.2, 0.2], [0.8, 0.3], [0.9, 0.9]])
    monkeypatch.setattr(choosing, "evaluate", lambda *_: losses)
    objective = type("Stub", (), {"right": lambda self: right})()
    compared = compare(objective, data(), tiny().subtree, 7, 0, tiny())
    assert compared.chosen == 2  # 1 and 3 have lower losses, and look sure because all samples go one way
    assert compared.leaf == 7
    right[:] = 0.0
    assert compare(objective, data(), tiny().subtree, 7, 0, tiny()).chosen == 1


def test_by_default_the_best_of_the_surest_candidates_is_kept(monkeypatch):
    monkeypatch.setattr(choosing, "evaluate", lambda *_: torch.tensor([1.0, 2.0, 3.0, 0.0]))
    unsure = torch.tensor([0.4, 0.11, 0.1, 0.01])
    two_sided = torch.tensor([1.0, 1.0, 1.0, 0.0])
    objective = type("Stub", (), {"right": lambda self: torch.stack([unsure, (two_sided - unsure).abs()], 1)})()

    def chosen():
        return compare(objective, data(), tiny().subtree, 7, 0, tiny()).chosen

    assert chosen() == 1  # 0 is unsure, 3 has an empty child; 1 is nearly as sure as 2 and better
    unsure[1] = 0.13
    assert chosen() == 2
    unsure[:] = torch.tensor([9e-5, 9e-6, 1e-6, 1e-7])
    assert chosen() == 0  # all are sure


def test_while_trees_grow_the_candidate_kept_is_the_best_of_the_surest():
    events = grown(data(160), tiny(n_init=3, n_leaves=3))
    compared = [event for event in events if isinstance(event, CandidatesCompared)]
    assert [event.leaf is None for event in compared] == [True, False]
    for event in compared:
        each = list(zip(event.losses, event.unsure, event.smaller_shares, strict=True))
        least = min((unsure for _, unsure, share in each if share >= 0.05), default=0.5)
        alive = [loss for loss, unsure, share in each if share >= 0.05 and unsure <= choosing.sure_enough(least)]
        assert event.losses[event.chosen] == min(alive or event.losses)


def loss_of(module: TreeVAEModule, samples: Samples, kl_weight: float, seed: int) -> float:
    noise = descent.noise_for(module.nodes, len(samples), torch.Generator().manual_seed(seed))
    terms = module.eval().elbo(samples.x, noise)
    return float((kl_weight * terms.kl - terms.reconstruction).mean())


def test_candidates_are_compared_by_their_true_loss():
    """That of each is the loss of a model of its own, at the KL weight that the stage ends with."""
    plan, samples = tiny(n_init=3), data(160)
    module = TreeVAEModule(ARCH, [Tree().split(0)] * 3, torch.Generator().manual_seed(0), candidates=3)
    compared = [compare(WholeTree(module, samples), samples, plan.first, None, seed, plan) for seed in range(100)]
    alone = [TreeVAEModule.of([(module, candidate)]) for candidate in range(3)]
    weight = plan.first.kl_weight(plan.first.epochs - 1)
    losses = [sum(loss_of(one, samples, weight, seed) for seed in range(100)) / 100 for one in alone]
    means = [sum(losses) / 100 for losses in zip(*(one.losses for one in compared), strict=True)]
    assert means == pytest.approx(losses, abs=3e-3)
    assert max(losses) - min(losses) > 0.02


def test_same_seed_same_weights_to_the_bit():
    def run(seed: int) -> dict[str, torch.Tensor]:
        _, (weights,) = story(Grove(ARCH, data(160), tiny(), [seed]))
        return weights

    first, again, other = run(0), run(0), run(1)
    assert first.keys() == again.keys()
    assert all(torch.equal(first[name], again[name]) for name in first)
    assert first.keys() != other.keys() or any(not torch.equal(first[name], other[name]) for name in first)


# -- several runs, windows, going on ------------------------------------------------------------------------------


def story(grove: Grove) -> tuple[list, list[dict[str, torch.Tensor]]]:
    """What happens to a grove's runs until the end, and their weights then."""
    told = list(filter(None, grove.events()))
    return told, [run.module.state_dict() for run in grove.runs]


def shape_of(event):
    """An event without the numbers that rounding changes."""
    match event:
        case EpochEnded():
            return event.stage, event.leaf, event.epoch, event.progress
        case CandidatesCompared():
            return event.leaf, event.chosen
    return event


def assert_same_weights(ours: dict[str, torch.Tensor], theirs: dict[str, torch.Tensor]) -> None:
    assert ours.keys() == theirs.keys()
    assert all(torch.equal(ours[name], theirs[name]) for name in ours)


@pytest.mark.parametrize("n_init", [1, 2])
def test_runs_side_by_side_equal_each_alone(n_init):
    """The same samples, noise and trees, whoever stands beside; the weights up to rounding."""
    plan = tiny(n_init=n_init, n_leaves=5)
    told, weights = story(Grove(ARCH, data(160), plan, [0, 1, 2]))
    for r in range(3):
        alone, (own,) = story(Grove(ARCH, data(160), plan, [r]))
        assert [shape_of(event) for run, event in told if run == r] == [shape_of(event) for _, event in alone]
        for name, value in own.items():
            torch.testing.assert_close(weights[r][name], value, rtol=1e-3, atol=2e-4)  # a step moves by 1e-3


def test_runs_of_different_length_are_trained_together():
    """Subtrees on different numbers of samples: at least once several runs share a training."""
    grove, shared = Grove(ARCH, data(160), tiny(n_leaves=5), [0, 1, 2]), []
    for happened in grove.events():
        if happened is None and grove._training is not None and len(grove._members) > 1:
            shared.append((grove._tasks[0].leaf is None, tuple(grove._training.objective.n_samples)))
    assert any(whole for whole, _ in shared)
    assert any(len(set(sizes)) > 1 for whole, sizes in shared if not whole)


def test_subtrees_of_different_depth_are_not_trained_together():
    grove = Grove(ARCH, data(160), tiny(), [0, 1, 2])
    depths = dict.fromkeys(range(3), 1)
    for depths[2] in (1, 2):
        for run, depth in zip(grove.runs, depths.values(), strict=True):
            run.task = Task(tiny().subtree, 0, 1, depth, torch.arange(40))
        assert grove._together() == [r for r, depth in depths.items() if depth == 1]


@pytest.mark.parametrize("n_init", [1, 2])
def test_samples_that_visit_in_pieces_train_the_same_model(n_init):
    plan = tiny(n_init=n_init)
    told, (weights,) = story(Grove(ARCH, data(160), plan, [0]))
    pieces = data(160, budget=5 * 4 * 64)
    assert pieces.window(0, 16) == 32  # a whole tree's; less where a subtree's evidence is kept as well
    again, (in_pieces,) = story(Grove(ARCH, pieces, plan, [0]))
    assert [shape_of(event) for _, event in told] == [shape_of(event) for _, event in again]
    for name, value in weights.items():
        torch.testing.assert_close(in_pieces[name], value, rtol=1e-3, atol=2e-4)  # a step moves by 1e-3


@pytest.mark.parametrize(
    ("seeds", "budget", "n_init"), [([0], None, 1), ([0], 5 * 4 * 64, 1), ([0, 1, 2], None, 1), ([0, 1], 5 * 4 * 64, 2)]
)
def test_a_grove_goes_on_from_any_pause_to_the_same_end(seeds, budget, n_init, monkeypatch):
    monkeypatch.setattr(loop, "PAUSE", 0)
    plan = tiny(n_init=n_init)
    grove, states, told = Grove(ARCH, data(160, budget), plan, seeds), [], []
    for happened in grove.events():
        if happened is not None:
            told.append(happened)
        else:
            about, tensors = grove.state()
            states.append((len(told), json.dumps(about), {name: value.clone() for name, value in tensors.items()}))
    weights = [run.module.state_dict() for run in grove.runs]
    assert len(states) > 50
    for i in range(0, len(states), len(states) // 4):
        so_far, about, tensors = states[i]
        other = Grove(ARCH, data(160, budget), plan, seeds)
        other.restore(json.loads(about), tensors)
        rest, end = story(other)
        assert rest == told[so_far:]
        for ours, theirs in zip(end, weights, strict=True):
            assert_same_weights(ours, theirs)


# -- what an experiment exchanges ---------------------------------------------------------------------------------


def test_a_leaf_is_chosen_and_candidates_are_compared_as_an_experiment_says():
    judged = []

    def smallest(module, samples, leaves, seed):
        return list(leaves)[-1]

    def last(objective, samples, stage, leaf, seed, plan):
        judged.append(leaf)
        return dataclasses.replace(compare(objective, samples, stage, leaf, seed, plan), chosen=1)

    choices = Choices(best_leaf=smallest, compare=last)
    told, _ = story(Grove(ARCH, data(160), tiny(n_init=2, n_leaves=5), [0], Splits(choices)))
    compared = [event for _, event in told if isinstance(event, CandidatesCompared)]
    assert judged == [event.leaf for event in compared]
    assert all(event.chosen == 1 for event in compared)
    usual, _ = story(Grove(ARCH, data(160), tiny(n_init=2, n_leaves=5), [0]))
    assert [event for _, event in usual if isinstance(event, LeafChosen)] != [
        event for _, event in told if isinstance(event, LeafChosen)
    ]


def test_samples_of_a_subtree_weigh_what_an_experiment_says():
    samples, module = data(), fixed_module()
    subtree = Subtree.new(ARCH, module.bottom_up.d_dims, 1, 1, torch.Generator().manual_seed(1))
    noise, index = None, torch.arange(40)[None]
    told = {}
    for name, weigh in (("reach", None), ("one", torch.zeros_like)):
        objective = SubtreeOnSubset([module], [2], subtree.eval(), samples, [torch.arange(40)], weigh=weigh)
        objective.hold_all()
        noise = [torch.zeros(len(runs), 40, dim) for runs, dim in objective.noise_rows]
        with torch.no_grad():
            told[name] = objective.terms(index, noise).elbo.reconstruction
    reach = module.reach(samples.x[:40])[:, 1]
    torch.testing.assert_close(told["reach"][0], told["one"][0] * reach, rtol=1e-4, atol=1e-4)
