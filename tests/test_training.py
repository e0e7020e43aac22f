"""The recipe: schedules, which leaf is split, what is frozen, what is pruned, what is told."""

import dataclasses

import pytest
import torch

from treevae.model import descent
from treevae.model.elbo import ElboTerms
from treevae.model.module import TreeVAEModule
from treevae.model.networks import Architecture
from treevae.model.subtree import Subtree
from treevae.training import growing
from treevae.training.engine import SubtreeOnSubset, WholeTree, over
from treevae.training.events import CandidatesCompared, EpochEnded, LeafChosen, LeafPruned, TreeChanged
from treevae.training.growing import Random, choose_leaf, grow
from treevae.training.loop import DivergedError, train
from treevae.training.plan import Plan, Stage
from treevae.tree import Tree

ARCH = Architecture((5,), "mlp", "bernoulli", (3,) * 4, (8,) * 3)
CPU = torch.device("cpu")


def data(n: int = 80) -> torch.Tensor:
    return torch.rand(n, 5, generator=torch.Generator().manual_seed(1)).round()


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
    """What choose_leaf says when the rows of ``reach`` are the samples."""
    rows = torch.arange(len(reach), dtype=torch.float32)[:, None]
    found = choose_leaf(Fixed(tree, torch.tensor(reach), n_levels), rows, tiny(**plan), Random.from_seed(0, CPU))
    return None if found is None else (found[0], found[1].tolist())


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
        assert ours.drop_after == pytest.approx(100 * scale, abs=0.5)
        assert ours.kl_weight(round(theirs.epochs * scale / 2)) == pytest.approx(
            theirs.kl_weight(theirs.epochs // 2), abs=0.01 / scale
        )


def test_steps_of_a_stage_on_the_papers_mnist():
    """SPEC: the whole schedule takes 201,540 steps; first tree, two fine-tunes and the final stage make 119,340."""
    plan, per_epoch = Plan.paper(), 60_000 // 256
    assert per_epoch * (plan.first.epochs + 2 * plan.whole.epochs + plan.final.epochs) == 119_340


# -- the loop -----------------------------------------------------------------------------------------------------


def test_a_short_last_batch_is_dropped_and_rates_are_followed(monkeypatch):
    module = TreeVAEModule(ARCH, [Tree().split(0)], torch.Generator().manual_seed(0))
    objective, sizes, weights = WholeTree(module, data(50)), [], []
    plain = objective.terms
    monkeypatch.setattr(objective, "terms", lambda index, g: sizes.append(len(index)) or plain(index, g))
    original = ElboTerms.loss
    monkeypatch.setattr(ElboTerms, "loss", lambda self, w: weights.append(w) or original(self, w))
    stage = Stage("s", 3, kl_step=0.25, learning_rate=1e-3, drop_after=2)
    epochs = list(train(objective, stage, 16, torch.Generator().manual_seed(0)))
    assert sizes == [16] * 9
    assert weights == [0] * 3 + [0.25] * 3 + [0.5] * 3
    assert [epoch for epoch, _ in epochs] == [0, 1, 2]


def test_training_improves_the_elbo():
    module = TreeVAEModule(ARCH, [Tree().split(0)], torch.Generator().manual_seed(0))
    stage = Stage("s", 30, kl_step=0.0, learning_rate=1e-2, drop_after=100)
    means = [m for _, m in train(WholeTree(module, data()), stage, 16, torch.Generator().manual_seed(0))]
    assert means[-1]["reconstruction"] > means[0]["reconstruction"] + 1


def test_a_loss_that_is_not_finite_names_stage_epoch_and_term():
    arch = dataclasses.replace(ARCH, likelihood="gaussian")
    module = TreeVAEModule(arch, [Tree().split(0)], torch.Generator().manual_seed(0))
    stage = Stage("first tree", 2, kl_step=0.0, learning_rate=1e-3, drop_after=100)
    with pytest.raises(DivergedError, match=r"stage 'first tree', epoch 1 of 2: reconstruction = -?(inf|nan)"):
        list(train(WholeTree(module, data() * 1e30), stage, 16, torch.Generator().manual_seed(0)))


# -- choosing a leaf ----------------------------------------------------------------------------------------------

THREE = Tree().split(0).split(1)  # leaves 3, 4, 2 from left to right


def test_the_leaf_with_most_sure_samples_is_split_on_just_those():
    reach = [[0.9, 0.1, 0.0]] * 20 + [[0.0, 0.7, 0.3]] * 30 + [[0.3, 0.3, 0.4]] * 5
    assert chosen(reach, THREE) == (4, list(range(20, 50)))  # t = 1/3: the last five are sure of leaf 2 alone


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
    x, plan = data(), tiny(leaf_rule=rule, batch_size=1)
    found = choose_leaf(module, x, plan, Random.from_seed(5, CPU))
    assert found is not None

    nodes, generator = module.nodes, Random.from_seed(5, CPU).training
    with torch.no_grad():
        descended = descent.infer(nodes, module.d(x), descent.noise_for(nodes, len(x), generator))
        log_px, kl = descent.leaf_terms(nodes, descended, x)
        terms = descent.elbo(nodes, descended, x)
    reach = descended.routing.log_reach[nodes.layout.leaf_rows].exp()
    torch.testing.assert_close((reach * log_px).sum(0), terms.reconstruction[0])
    torch.testing.assert_close((reach * kl).sum(0), terms.kl[0])
    loss = (reach * ((kl if rule == "elbo" else 0) - log_px)).sum(1)
    sure = over(module, x, module.reach) >= 1 / 3
    eligible = {key.node for key in nodes.layout.leaves if sure[:, THREE.leaves.index(key.node)].any()}
    by_loss = [nodes.layout.leaves[i].node for i in loss.argsort(descending=True).tolist()]
    assert found[0] == next(leaf for leaf in by_loss if leaf in eligible)


# -- growing ------------------------------------------------------------------------------------------------------


def test_everything_outside_the_subtree_is_frozen_to_the_byte():
    module = TreeVAEModule(ARCH, [THREE], torch.Generator().manual_seed(0))
    x, random = data(), Random.from_seed(0, CPU)
    before = {name: value.clone() for name, value in module.state_dict().items()}
    subtree = Subtree(ARCH, module.bottom_up.d_dims, 2, 1, 2, random.weights)
    fresh = {name: value.clone() for name, value in subtree.state_dict().items()}
    list(train(SubtreeOnSubset(module, subtree, x, torch.arange(40)), tiny().subtree, 16, random.training))
    assert all(torch.equal(value, before[name]) for name, value in module.state_dict().items())
    assert not module.training
    moved = {name for name, value in subtree.state_dict().items() if not torch.equal(value, fresh[name])}
    assert moved == set(fresh)  # every weight and running statistic of the subtree was trained

    module.attach(subtree, candidate=1)
    rows = module.nodes.rows()
    for kind, of_kind in subtree.nodes.rows().items():
        for key, (stack, i) in of_kind.items():
            if key.tree == 1:
                node = (2, *module.tree.children(2))[key.node]
                mine, j = rows[kind][(0, node)]
                for name, value in stack.state_dict().items():
                    assert torch.equal(mine.state_dict()[name][j], value[i])


def test_events_tell_the_whole_story():
    plan = tiny()
    events = list(grow(ARCH, data(160), plan, Random.from_seed(0, CPU)))
    epochs = [e for e in events if isinstance(e, EpochEnded)]
    splits = [e for e in events if isinstance(e, LeafChosen)]
    assert [e.epoch for e in epochs if e.stage == "first tree"] == [1, 2]
    assert len([e for e in epochs if e.stage == "subtree"]) == 2 * len(splits)
    assert len([e for e in epochs if e.stage == "whole tree"]) == plan.whole.epochs * (len(splits) // 3)
    assert [e.epoch for e in epochs if e.stage == "final"] == list(range(1, plan.final.epochs + 1))
    progress = [e.progress for e in epochs]
    assert progress == sorted(progress)
    assert 0 < progress[0] <= progress[-1] <= 1
    changes = [e.tree for e in events if isinstance(e, TreeChanged)]
    assert changes[0] == Tree().split(0)
    assert isinstance(events[-1], TreeChanged)
    assert not events[-1].module.training


def test_a_fixed_tree_is_trained_as_it_is():
    events = list(grow(ARCH, data(), tiny(), Random.from_seed(0, CPU), THREE))
    assert {type(e) for e in events} == {EpochEnded, TreeChanged}
    assert {e.stage for e in events if isinstance(e, EpochEnded)} == {"first tree", "final"}
    assert events[-1].tree == THREE


def test_small_leaves_are_pruned_smallest_first(monkeypatch):
    module = TreeVAEModule(ARCH, [THREE], torch.Generator().manual_seed(0))
    share = {3: 0.004, 4: 0.5, 2: 0.496}

    def reach(x: torch.Tensor) -> torch.Tensor:
        """Every leaf wins its share of the samples, in order."""
        left = list(module.tree.leaves)
        bounds = torch.tensor([share[leaf] for leaf in left]).cumsum(0) * 1000
        winner = torch.bucketize(x[:, 0], bounds, right=True).clamp(max=len(left) - 1)
        return torch.nn.functional.one_hot(winner, len(left)).float()

    monkeypatch.setattr(module, "reach", reach)
    x = torch.arange(1000.0)[:, None].expand(-1, 5)
    events = list(growing._prune(module, x, 0.01))
    assert [e for e in events if isinstance(e, LeafPruned)] == [LeafPruned(3, 0.004)]
    assert module.tree == THREE.prune(3)


def test_of_several_candidates_the_best_that_did_not_collapse_is_kept(monkeypatch):
    losses, shares = torch.tensor([5.0, 1.0, 3.0]), torch.tensor([[0.5, 0.5], [0.99, 0.01], [0.3, 0.7]])
    monkeypatch.setattr(growing, "evaluate", lambda *_: losses)
    objective = type("Stub", (), {"shares": lambda self: shares})()
    compared = growing._compare(objective, 7, tiny().subtree, tiny(), Random.from_seed(0, CPU))
    assert compared.chosen == 2  # candidate 1 has the lowest loss but an empty child
    assert compared.leaf == 7
    shares[:] = torch.tensor([1.0, 0.0])
    assert growing._compare(objective, 7, tiny().subtree, tiny(), Random.from_seed(0, CPU)).chosen == 1


def test_candidates_are_compared_by_their_true_loss():
    """The first tree kept is the candidate whose own ELBO, computed alone, is best."""
    events = list(grow(ARCH, data(160), tiny(n_init=3, n_leaves=2), Random.from_seed(0, CPU)))
    compared = next(e for e in events if isinstance(e, CandidatesCompared))
    assert len(set(compared.losses)) == 3
    alive = [loss for loss, share in zip(compared.losses, compared.smaller_shares, strict=True) if share >= 0.05]
    assert compared.losses[compared.chosen] == min(alive or compared.losses)


def test_same_seed_same_weights_to_the_bit():
    def run(seed: int) -> dict[str, torch.Tensor]:
        return list(grow(ARCH, data(160), tiny(), Random.from_seed(seed, CPU)))[-1].module.state_dict()

    first, again, other = run(0), run(0), run(1)
    assert first.keys() == again.keys()
    assert all(torch.equal(first[name], again[name]) for name in first)
    assert first.keys() != other.keys() or any(not torch.equal(first[name], other[name]) for name in first)
