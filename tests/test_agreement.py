"""Neighbours that agree and labels of a guide: the two terms against plain loops, and what a step compares."""

import math

import pytest
import torch
from small_groves import ARCH, CPU, THREE, data
from torch import Tensor

from treevae.model import descent
from treevae.model.layout import Layout
from treevae.model.module import TreeVAEModule
from treevae.training.engine import Noise
from treevae.training.objectives import WholeTree
from treevae.training.pairs import KEEP, Neighbourhood
from treevae.training.samples import Samples
from treevae.training.terms import Agreement, Guidance, Pass, from_dict, to_dict
from treevae.training.views import Views
from treevae.tree import Tree, balanced

TREES = (THREE, Tree().split(0), balanced(4))  # of 3, 2 and 4 leaves, side by side
N = 7


def module_of(trees=TREES) -> TreeVAEModule:
    """Trees of one run whose posterior routers are given by the log-odds of each test."""
    return TreeVAEModule(ARCH, list(trees), torch.Generator().manual_seed(0), candidates=len(trees)).double()


def log_odds(layout: Layout, seed: int) -> Tensor:
    return torch.randn(len(layout.routers), N, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


def leaf_probabilities(layout: Layout, logits: Tensor) -> list[list[list[float]]]:
    """Of each tree, each leaf from left to right, each sample: products along the path, one after the other."""
    row = {key: i for i, key in enumerate(layout.routers)}
    found = []
    for r, tree in enumerate(layout.trees):
        of_tree = []
        for leaf in tree.leaves:
            of_leaf = []
            for n in range(N):
                chance, node = 1.0, leaf
                while node != 0:
                    above = tree.parent(node)
                    (router,) = (key for key in row if key.tree == r and key.node == above)
                    right = 1 / (1 + math.exp(-float(logits[row[router], n])))
                    chance *= right if tree.children(above)[1] == node else 1 - right
                    node = above
                of_leaf.append(chance)
            of_tree.append(of_leaf)
        found.append(of_tree)
    return found


def seen_of(module: TreeVAEModule, logits: Tensor, of_pair: Tensor, shares: Tensor) -> Pass:
    nodes = module.nodes
    leaves, pair = descent.log_leaves(nodes, logits), descent.log_leaves(nodes, of_pair)
    return Pass(nodes.layout, logits, logits, None, leaves, pair, shares.log())


def shares_of(layout: Layout) -> Tensor:
    """Some share of each leaf; what stands where a tree has fewer leaves must not matter."""
    chance = torch.Generator().manual_seed(5)
    return torch.rand(layout.leaf_table.shape, generator=chance, dtype=torch.float64) + 0.1


# -- agreement ----------------------------------------------------------------------------------------------------


def test_the_leaves_of_trees_side_by_side_are_those_of_each():
    module = module_of()
    layout = module.nodes.layout
    logits = log_odds(layout, 1)
    leaves, expected = descent.log_leaves(module.nodes, logits).exp(), leaf_probabilities(layout, logits)
    assert leaves.shape == (3, 4, N)
    for r, of_tree in enumerate(expected):
        torch.testing.assert_close(leaves[r, : len(of_tree)], torch.tensor(of_tree, dtype=torch.float64))
        assert (leaves[r, len(of_tree) :] == 0).all()


@pytest.mark.parametrize("power", [1.0, 0.6])
def test_agreement_is_the_plain_loop(power):
    module = module_of()
    layout = module.nodes.layout
    one, other, shares = log_odds(layout, 1), log_odds(layout, 2), shares_of(layout)
    told = Agreement(1.0, power).loss(seen_of(module, one, other, shares))
    p, q = leaf_probabilities(layout, one), leaf_probabilities(layout, other)
    expected = [
        -sum(
            math.log(sum((p[r][k][n] * q[r][k][n]) ** power / float(shares[r, k]) for k in range(len(p[r]))))
            for n in range(N)
        )
        / N
        for r in range(len(TREES))
    ]
    torch.testing.assert_close(told, torch.tensor([expected], dtype=torch.float64))


def test_the_gradient_of_agreement_is_that_of_finite_differences():
    module = module_of()
    layout = module.nodes.layout
    shares = shares_of(layout)

    def loss(one: Tensor, other: Tensor) -> Tensor:
        return Agreement(1.0).loss(seen_of(module, one, other, shares)).sum()

    given = [log_odds(layout, seed).requires_grad_() for seed in (1, 2)]
    assert torch.autograd.gradcheck(loss, given)


def test_the_gradient_is_finite_where_decisions_are_sure():
    module = module_of()
    layout = module.nodes.layout
    one, other = (200 * log_odds(layout, seed) for seed in (1, 2))
    one.requires_grad_()
    nodes = module.nodes
    seen = Pass(layout, one, one, None, descent.log_leaves(nodes, one), descent.log_leaves(nodes, other))
    seen = seen._replace(log_shares=torch.full(layout.leaf_table.shape, -30.0, dtype=torch.float64))
    (gradient,) = torch.autograd.grad(Agreement(1.0).loss(seen).sum(), one)
    assert gradient.isfinite().all()


def test_it_is_the_pointwise_mutual_information_of_the_two_leaves():
    """A joint distribution made by hand: half the pairs in leaf 0, a quarter in 1, the others across 1 and 2."""
    pairs = [(0, 0)] * 4 + [(1, 1)] * 2 + [(1, 2), (2, 1)]
    joint = torch.zeros(3, 3, dtype=torch.float64)
    for a, b in pairs:
        joint[a, b] += 1 / len(pairs)
    share = joint.sum(1)
    layout = Layout([THREE])
    hard = torch.eye(3, dtype=torch.float64).clamp(min=1e-9).log()
    one, other = (torch.stack([hard[pair[i]] for pair in pairs], 1)[None] for i in (0, 1))
    nobody = torch.empty(0)
    seen = Pass(layout, nobody, nobody, None, one, other, share.log()[None])
    same = [pair for pair in pairs if pair[0] == pair[1]]
    agreed = [pair[0] == pair[1] for pair in pairs]
    alone = seen._replace(log_leaves=one[..., agreed], log_leaves_of_pair=other[..., agreed])
    # of hard leaves log sum_k p p' / share is log P(a, a) / (P(a) P(a)) with P(a, a) = P(a): pairs that agree
    expected = sum(math.log(1 / float(share[a])) for a, _ in same) / len(same)
    torch.testing.assert_close(-float(Agreement(1.0).loss(alone)), expected, rtol=1e-6, atol=1e-6)
    assert float(Agreement(1.0).loss(seen)) > 1  # pairs that do not agree cost a lot

    def soft(of_leaf: Tensor) -> Tensor:
        """Pairs whose joint distribution is sum_z P(z) p(a|z) p(b|z), as of two views of one thing."""
        return of_leaf.T @ torch.diag(torch.tensor([0.5, 0.5], dtype=torch.float64)) @ of_leaf

    given = torch.tensor([[0.7, 0.2, 0.1], [0.1, 0.3, 0.6]], dtype=torch.float64)  # of two groups, the leaves
    of_two = soft(given)
    marginal = of_two.sum(1)
    # drawn leaves a, b: E_z p(a|z) p(b|z) / (P(a) P(b)) is the ratio whose log is the mutual information
    ratio = of_two / torch.outer(marginal, marginal)
    lone = Layout([Tree().split(0)])
    leaves = given.log()[:, :, None]  # two samples in three leaves: of z = 0 and of z = 1
    told = [
        -float(
            Agreement(1.0).loss(
                Pass(lone, nobody, nobody, None, leaves[z][None], leaves[w][None], marginal.log()[None])
            )
        )
        for z, w in ((0, 0), (0, 1), (1, 1))
    ]
    by_sum = [
        math.log(sum(given[z, a] * given[w, a] / marginal[a] for a in range(3))) for z, w in ((0, 0), (0, 1), (1, 1))
    ]
    assert told == pytest.approx(by_sum)
    assert told[0] > 0 > told[1]  # more often in one leaf than by chance, and less
    assert (ratio.diagonal() > 1).all()


def test_of_several_views_the_first_is_compared():
    module = module_of()
    layout = module.nodes.layout
    one, other, shares = log_odds(layout, 1), log_odds(layout, 2), shares_of(layout)
    seen = seen_of(module, one, other, shares)
    two = torch.cat([seen.log_leaves, descent.log_leaves(module.nodes, log_odds(layout, 3))], 2)
    torch.testing.assert_close(Agreement(1.0).loss(seen._replace(log_leaves=two)), Agreement(1.0).loss(seen))


# -- which samples are compared -----------------------------------------------------------------------------------


def with_neighbours(n: int = 40, k: int = 3, budget: int | None = None) -> Samples:
    x = data(n).x
    return Samples(x, CPU, budget, neighbours=(torch.arange(n)[:, None] + torch.arange(1, k + 1)) % n)


def test_the_running_shares_are_those_of_a_plain_loop():
    layout = Layout([THREE, Tree().split(0)], candidates=2)
    beside = Neighbourhood(with_neighbours(), layout)
    mass, seen = torch.zeros(2, 3), 0.0
    for step in range(5):
        both = [torch.rand(2, 3, N, generator=torch.Generator().manual_seed(2 * step + i)) for i in (0, 1)]
        for part in both:
            part[1, 2] = 0  # the second tree has two leaves
        told = beside.compared(Pass(layout, both[0], both[0], None, both[0].log()), both[1].log())
        mass = KEEP * mass + (1 - KEEP) * torch.stack(both).mean((0, 3))
        seen = KEEP * seen + (1 - KEEP)
        expected = (mass / seen).log().clamp(min=-30)
        torch.testing.assert_close(told.log_shares, expected)
        torch.testing.assert_close(told.log_leaves_of_pair, both[1].log())
    assert float(expected[1, 2]) == -30


def test_every_neighbour_of_a_sample_is_drawn_about_as_often():
    beside = Neighbourhood(with_neighbours(k=4), Layout([THREE]))
    rows = torch.zeros(1, 20_000, dtype=torch.long) + 7
    noise = torch.randn(1, 20_000, 1, generator=torch.Generator().manual_seed(0))
    found, counts = beside.rows(rows, noise).unique(return_counts=True)
    assert found.tolist() == [8, 9, 10, 11]
    assert ((counts - 5000).abs() < 5 * math.sqrt(20_000 * 3 / 16)).all()
    extreme = torch.tensor([[[-9.0], [9.0]]])
    assert beside.rows(rows[:, :2], extreme).tolist() == [[8, 11]]


def test_in_a_subset_neighbours_outside_are_replaced_by_the_sample_itself():
    samples, subsets = with_neighbours(10, 2), [torch.tensor([0, 1, 5]), torch.tensor([4, 5, 6, 9])]
    beside = Neighbourhood(samples, Layout([THREE, THREE]), subsets=subsets)
    rows = torch.arange(7)[None].expand(50, 7)
    drawn = beside.rows(rows.T.reshape(7, 50), torch.randn(7, 50, 1, generator=torch.Generator().manual_seed(0)))
    allowed = {  # neighbours are the next two rows of all data; places run on from one subset to the next
        0: {1, 0},  # row 0: 1 is there, 2 is not
        1: {1},
        2: {2},
        3: {4, 5},  # row 4 of the second subset: 5 and 6
        4: {5, 4},
        5: {5},
        6: {6},  # row 9: 0 and 1 are in the other run's subset
    }
    assert {place: set(of_place.tolist()) for place, of_place in enumerate(drawn)} == allowed
    everyone = torch.cat(subsets)
    torch.testing.assert_close(
        beside.x(rows[:1], torch.zeros(1, 7, 1)), samples.x[everyone[beside.rows(rows[:1], torch.zeros(1, 7, 1))]]
    )


def test_what_neighbours_need_is_said():
    with pytest.raises(ValueError, match="a term compares neighbours, and the samples come without any"):
        Neighbourhood(data(), Layout([THREE]))
    with pytest.raises(MemoryError, match=r"neighbours need all samples in the device's memory; set neighbours=0"):
        with_neighbours(budget=5 * 4 * 16)
    assert Neighbourhood.of([Guidance(1.0, 2)], data(), Layout([THREE])) is None


# -- guidance -----------------------------------------------------------------------------------------------------


def test_guidance_is_the_sum_of_cross_entropies_on_the_way():
    module = module_of()
    layout = module.nodes.layout
    logits = log_odds(layout, 1)
    leaves = descent.log_leaves(module.nodes, logits)
    labels = torch.tensor([[0, 1, 2, -1, 2, 0, -1], [1, 1, 0, 0, -1, -1, -1], [-1, 3, 2, 1, 0, 3, 3]])
    told = Guidance(1.0, 4).loss(Pass(layout, logits, logits, None, leaves, labels=labels))
    row = {(key.tree, key.node): i for i, key in enumerate(layout.routers)}
    expected = []
    for r, tree in enumerate(TREES):
        total = 0.0
        for n, label in enumerate(labels[r].tolist()):
            node = 0 if label < 0 else tree.leaves[label]
            while node != 0:
                above = tree.parent(node)
                right = tree.children(above)[1] == node
                total += math.log1p(math.exp((-1 if right else 1) * float(logits[row[r, above], n])))
                node = above
        expected.append(total / N)
    torch.testing.assert_close(told, torch.tensor([expected], dtype=torch.float64))
    nobody = Guidance(1.0, 4).loss(Pass(layout, logits, logits, None, leaves, labels=torch.full_like(labels, -1)))
    assert (nobody == 0).all()
    twice = Pass(layout, logits, logits, None, leaves.repeat(1, 1, 2), labels=labels)
    torch.testing.assert_close(Guidance(1.0, 4).loss(twice), told)  # every view has its sample's label


def test_unknown_labels_have_no_gradient():
    module = module_of([THREE])
    layout = module.nodes.layout
    logits = log_odds(layout, 1).requires_grad_()
    labels = torch.tensor([[0, -1, 2, -1, 1, -1, 0]])
    seen = Pass(layout, logits, logits, None, descent.log_leaves(module.nodes, logits), labels=labels)
    (gradient,) = torch.autograd.grad(Guidance(1.0, 4).loss(seen).sum(), logits)
    assert (gradient[:, labels[0] < 0] == 0).all()
    assert (gradient[0, labels[0] >= 0] != 0).all()  # of the root


def test_the_weight_of_a_guide_falls_to_nothing():
    term = Guidance(2.0, 4)
    assert [term.weight_in(epoch) for epoch in range(6)] == [2.0, 1.5, 1.0, 0.5, 0.0, 0.0]
    assert {Agreement(3.0).weight_in(epoch) for epoch in range(6)} == {3.0}


def test_labels_reach_the_samples_of_a_step_whatever_their_order():
    """A step on some samples in some order learns the labels of just these."""
    samples, chance = data(40), torch.Generator().manual_seed(3)
    module = TreeVAEModule(ARCH, [THREE, THREE], torch.Generator().manual_seed(0), candidates=2)
    labels = torch.randint(-1, 3, (2, 40), generator=chance)
    whole = WholeTree(module, samples, terms=[Guidance(1.0, 1)], labels=labels)
    noise = [torch.zeros(2, 12, dim) for dim in (3, 3, 3, 3)]
    index = torch.randperm(40, generator=chance)[None, :12]
    whole.hold_all()
    noise = [torch.zeros(len(runs), 12, dim) for runs, dim in whole.noise_rows]
    module.train()
    told = whole.terms(index, noise).more[0]
    held = index[0].sort(descending=True).values
    whole.hold(samples.x[held], held)  # a window of the samples, as where they visit in pieces
    place = torch.tensor([held.tolist().index(i) for i in index[0].tolist()])[None]
    torch.testing.assert_close(whole.terms(place, noise).more[0], told)
    other = WholeTree(module, samples, terms=[Guidance(1.0, 1)], labels=labels.flip(1))
    other.hold_all()
    assert not torch.allclose(other.terms(index, noise).more[0], told)


@pytest.mark.parametrize("term", [Agreement(2.0, 0.6), Guidance(3.0, 5)])
def test_terms_in_a_file_are_the_same_or_refused(term):
    assert from_dict(to_dict(term)) == term
    for weight in (0, -1.0, float("nan"), float("inf"), "x", True):
        with pytest.raises(ValueError, match=r"weight=.* must be a positive number"):
            from_dict(to_dict(term) | {"weight": weight})


@pytest.mark.parametrize("with_views", [False, True])
def test_a_neighbour_moves_no_running_statistics(with_views):
    """A step with neighbours leaves the norms as one without them does: a neighbour is no sample of the step."""
    x, buffers = data(40).x, []
    samples = Samples(x, CPU, neighbours=torch.arange(40).roll(7)[:, None])
    for terms in ((), (Agreement(5.0),)):
        module = TreeVAEModule(ARCH, [THREE], torch.Generator().manual_seed(0)).train()
        views = Views(lambda batch: batch * 0.9, x.shape[1:], 1) if with_views else None
        objective = WholeTree(module, samples, views, terms)
        objective.hold_all()
        index = torch.arange(16)[None]
        objective.look(index, [0])
        objective.terms(index, Noise([0], objective.noise_rows, 16, CPU).draw())
        buffers.append({name: value for name, value in module.named_buffers() if value.is_floating_point()})
    assert any((value != 0).any() for name, value in buffers[0].items() if "running_mean" in name)
    for name, value in buffers[0].items():
        torch.testing.assert_close(buffers[1][name], value, rtol=0, atol=0)
