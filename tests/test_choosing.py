"""Which leaf is split next, and which candidate is kept."""

import dataclasses

import pytest
import torch
from small_groves import ARCH, THREE, chosen, data, grown, story, tiny

from treevae.model import descent
from treevae.model.module import TreeVAEModule
from treevae.training import choosing
from treevae.training.choosing import LEAF_RULES, Choices, compare, splittable
from treevae.training.events import CandidatesCompared, LeafChosen
from treevae.training.grove import Grove
from treevae.training.growing import Splits
from treevae.training.objectives import WholeTree
from treevae.training.samples import Samples, over
from treevae.tree import Tree

# -- choosing a leaf ----------------------------------------------------------------------------------------------


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
