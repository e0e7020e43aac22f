"""DeepECT's method: losses and steps against plain loops, leaves that split and die, and states that go on."""

import copy
import json
import math
from types import SimpleNamespace

import pytest
import torch
from kinds import nested
from torch import Tensor

from treevae.baselines import embedded_tree
from treevae.baselines.autoencoder import Autoencoder, Leaves, centre_loss, compression_loss, nearest, squared_sums
from treevae.baselines.deepect import DeepECT
from treevae.baselines.embedded_tree import Clustering, EmbeddedGrowth
from treevae.model.networks import Architecture
from treevae.training.events import EmbeddingEpochEnded, LeafChosen, LeafDied
from treevae.training.loop import Training
from treevae.training.plan import Stage
from treevae.training.samples import Samples
from treevae.training.views import Views
from treevae.tree import Tree


def grown(*splits: int, dtype: torch.dtype = torch.float64, room: int = 5) -> Leaves:
    """Leaves with random centres and weights, made by splitting the leaves of these places in the tree's order."""
    torch.manual_seed(0)
    leaves = Leaves(room, 3).to(dtype)
    for k in splits:
        leaves.split(leaves.tree.leaves[k], torch.randn(3, dtype=dtype), torch.randn(3, dtype=dtype))
    leaves.weights.copy_(torch.rand(room, dtype=dtype) + 0.5)
    return leaves


def loop_centre(z: Tensor, leaf: Tensor, centres: Tensor, leaves: Leaves) -> Tensor:
    total = torch.zeros((), dtype=z.dtype)
    for place in leaves.places.values():
        own = [z[i].detach() for i in range(len(z)) if leaf[i] == place]
        if own:
            total = total + (centres[place] - sum(own) / len(own)).square().sum().sqrt()
    return total / len(leaves.places)


def loop_compression(z: Tensor, leaf: Tensor, centres: Tensor, leaves: Leaves) -> Tensor:
    tree = leaves.tree
    weight, centre = {}, {}  # of all nodes, children before parents
    for node in reversed(tree.nodes):
        if tree.is_leaf(node):
            place = leaves.places[node]
            weight[node], centre[node] = leaves.weights[place], centres[place].detach()
        else:
            below = tree.children(node)
            weight[node] = sum(weight[child] for child in below)
            centre[node] = sum(weight[child] * centre[child] for child in below) / weight[node]
    in_place = {place: node for node, place in leaves.places.items()}
    total, n_nodes = torch.zeros((), dtype=z.dtype), 0
    for parent in tree.routers:
        for node, sibling in (tree.children(parent), tree.children(parent)[::-1]):
            n_nodes += 1
            line = centre[node] - centre[sibling]
            line = line / line.norm()
            for i in range(len(z)):
                if node in tree.path(in_place[int(leaf[i])]):
                    total = total + abs(line @ (z[i] - centre[node]))
    return total / (max(n_nodes, 1) * len(z))


@pytest.mark.parametrize(("pruned", "told"), [(None, True), (3, True), (3, False), (4, True), (4, False)])
def test_losses_and_gradients_are_those_of_plain_loops(pruned: int | None, told: bool) -> None:
    leaves = grown(0, 1, 0)
    known = copy.deepcopy(leaves)  # the tree that the loops go through
    if pruned is not None:
        known.prune(pruned)  # leaves a node with one child
        if told:
            leaves.prune(pruned)
        else:  # as after a step in which it died, before the tree is changed
            leaves.alive[leaves.places[pruned]] = 0
    z = torch.randn(12, 3, dtype=torch.float64, requires_grad=True)
    places = list(known.places.values())[:-1]  # the last leaf stays empty
    leaf = torch.tensor(places)[torch.randint(len(places), (12,))]
    centres = leaves.centres.clone().requires_grad_()
    found = (
        centre_loss(z, leaf, centres, leaves.alive),
        compression_loss(z, leaf, centres, leaves.weights * leaves.alive, leaves.below),
    )
    expected = loop_centre(z, leaf, centres, known), loop_compression(z, leaf, centres, known)
    for ours, loops in zip(found, expected, strict=True):
        assert ours.item() == pytest.approx(loops.item(), rel=1e-12)
        both = (torch.autograd.grad(loss, [z, centres], materialize_grads=True) for loss in (ours, loops))
        for one, other in zip(*both, strict=True):
            torch.testing.assert_close(one, other, rtol=1e-10, atol=1e-14)


def test_each_loss_moves_its_own_part_only() -> None:
    leaves = grown(0, 0)
    z = torch.randn(5, 3, dtype=torch.float64, requires_grad=True)
    leaf, centres = torch.tensor([0, 1, 2, 0, 1]), leaves.centres.clone().requires_grad_()
    (moved,) = torch.autograd.grad(centre_loss(z, leaf, centres, leaves.alive), [z], allow_unused=True)
    assert moved is None
    loss = compression_loss(z, leaf, centres, leaves.weights * leaves.alive, leaves.below)
    (moved,) = torch.autograd.grad(loss, [centres], allow_unused=True)
    assert moved is None


def test_a_lone_leaf_is_not_compressed_and_equal_siblings_pull_nowhere() -> None:
    z, leaf, alone = torch.randn(4, 3), torch.zeros(4, dtype=torch.long), Leaves(2, 3)
    assert compression_loss(z, leaf, alone.centres, alone.weights, alone.below) == 0
    alone.split(0, torch.ones(3), torch.ones(3))
    assert compression_loss(z, leaf, alone.centres, alone.weights, alone.below) == 0


def test_a_leaf_that_is_not_alive_gets_no_sample() -> None:
    z, centres = torch.tensor([[0.0], [3.0]]), torch.tensor([[0.1], [3.1], [2.0]])
    assert nearest(z, centres).tolist() == [0, 1]
    assert nearest(z, centres, torch.tensor([0.0, 0.0, 1.0])).tolist() == [2, 2]


def module_of(n_leaves: int = 4) -> Autoencoder:
    return Autoencoder(Architecture((8,), "mlp", "gaussian", (3,), ()), n_leaves, torch.Generator().manual_seed(0))


def test_steps_are_those_of_torchs_adam_with_centres_that_join_later() -> None:
    x = torch.from_numpy(nested(n=64)[0]).float()
    module, rate = module_of(), 1e-2
    plain = copy.deepcopy(module)
    module.fixed_norms = True
    samples, seen = Samples(x, torch.device("cpu")), []
    objective = Clustering(module, samples, None, rate, prune_below=1e-9)  # nothing dies here
    training = Training(objective, samples, Stage("clustering", 4, 0.0, rate, 4, weight_decay=0.0), 16, [0])
    terms = objective.terms
    objective.terms = lambda index, noise: (seen.append(index[0].clone()), terms(index, noise))[1]  # type: ignore
    first, later = torch.randn(2, 3), torch.randn(2, 3)
    module.leaves.split(0, *first)
    for done in training.run():
        if done is not None and done.epoch == 1:
            module.leaves.split(1, *later)

    plain.eval()
    leaves, centres = plain.leaves, {1: first[0], 2: first[1]}
    centres = {node: torch.nn.Parameter(centre.clone()) for node, centre in centres.items()}
    leaves.split(0, *first)
    networks = [parameter for stack, _ in plain.stacks() for parameter in stack.parameters()]
    adam = torch.optim.Adam([*networks, *centres.values()], lr=rate)
    for step, index in enumerate(seen):
        if step == 8:  # of four an epoch
            leaves.split(1, *later)
            new = dict(zip(leaves.tree.children(1), (torch.nn.Parameter(one.clone()) for one in later), strict=True))
            del centres[1]
            centres |= new
            adam.add_param_group({"params": list(new.values())})
        z, order = plain.embed(x[index]), list(leaves.places)
        now = torch.stack([centres[node] for node in order])
        leaf = torch.tensor([leaves.places[order[k]] for k in torch.cdist(z, now).argmin(1).tolist()])
        whole = torch.zeros(4, 3).index_put((torch.tensor([leaves.places[node] for node in order]),), now)
        losses = plain.reconstruction_loss(x[index], z), loop_centre(z, leaf, whole, leaves)
        adam.zero_grad()
        sum(losses, loop_compression(z, leaf, whole, leaves)).backward()
        adam.step()
        leaves.weights.copy_((leaves.weights + leaf.bincount(minlength=4)) / 2)
    assert module.leaves.tree == leaves.tree
    for node, place in module.leaves.places.items():
        torch.testing.assert_close(module.leaves.centres[place], centres[node].data, rtol=1e-4, atol=1e-5)
    torch.testing.assert_close(module.leaves.weights, leaves.weights)
    for one, other in zip((p for s, _ in module.stacks() for p in s.parameters()), networks, strict=True):
        torch.testing.assert_close(one, other, rtol=1e-3, atol=1e-5)


def test_squared_sums_are_sums_not_means() -> None:
    z = torch.tensor([[1.0, 0.0], [-1.0, 0.0], [0.0, 1.0], [5.0, 1.5]])
    centres = torch.tensor([[0.0, 0.0], [5.0, 0.0]])
    assert squared_sums(z, torch.tensor([0, 0, 0, 1]), centres).tolist() == [3.0, 2.25]  # the mean would take leaf 1


def test_pruning_keeps_centres_weights_and_numbers_together() -> None:
    leaves = grown(0, 1, 1)
    assert leaves.tree == Tree({0: (1, 2), 2: (3, 4), 3: (5, 6)})
    of = dict(zip(leaves.tree.leaves, leaves.in_order(leaves.centres), strict=True))
    leaves.prune(5)
    assert leaves.tree.leaves == (1, 6, 4)
    for node, centre in zip(leaves.tree.leaves, leaves.in_order(leaves.centres), strict=True):
        assert torch.equal(centre, of[node])
    # node 3 has one child now, so that 3 itself, not 6, is the sibling of 4
    rows = leaves.below[:, [leaves.places[leaf] for leaf in (1, 6, 4)]]
    assert rows.tolist() == [[1, 0, 0], [0, 1, 1], [0, 1, 0], [0, 0, 1], *[[0, 0, 0]] * 4]
    leaves.split(6, torch.zeros(3, dtype=torch.float64), torch.ones(3, dtype=torch.float64))
    assert leaves.weights[[leaves.places[7], leaves.places[8]]].tolist() == [1, 1]
    assert leaves.tree.children(6) == (7, 8)  # numbers are never used twice, places are
    assert len({*leaves.places.values()}) == 4 == leaves.alive.sum()


def test_a_leaf_without_samples_dies_by_its_weight() -> None:
    leaves = grown(0, 1, dtype=torch.float32)
    places = leaves.places[1], leaves.places[3], leaves.places[4]
    leaves.weights.fill_(1)
    for step in range(4):  # 1, 1/2, 1/4, 1/8, 1/16 < 0.1
        assert not leaves.dead(), step
        leaves.weigh(torch.tensor([places[0], places[0], places[2], places[2]]), 0.1)
    assert leaves.dead() == [3]
    torch.testing.assert_close(leaves.weights[list(places)], torch.tensor([1.9375, 0.0625, 1.9375]))
    leaves.prune(3)
    assert leaves.tree.leaves == (1, 4)
    for _ in range(9):
        leaves.weigh(torch.tensor([places[0]]), 5.0)  # all are lighter than that: the heaviest stays
    assert leaves.dead() == [4]


def test_a_step_leaves_out_what_has_died_and_takes_the_leaf_of_samples_for_their_views() -> None:
    torch.manual_seed(0)
    module, x = module_of().eval(), torch.randn(8, 8)
    views = Views(lambda batch: -batch, (8,), 1)
    objective = Clustering(module, Samples(x, torch.device("cpu")), views, 1e-3, prune_below=0.1)
    objective.hold_all()
    leaves, index = module.leaves, torch.arange(8)[None]
    z = module.embed(torch.cat([x, -x]))
    leaves.split(0, z[0].detach(), torch.randn(3))
    leaves.split(2, z[1].detach(), z[8].detach())  # the view of the first sample lies at another leaf than itself
    leaves.alive[leaves.places[3]], leaves.weights[leaves.places[3]] = 0, 7.0  # died in an earlier step
    objective.look(index, [0])
    before = copy.deepcopy(leaves)
    found = objective.terms(index, []).means()[:, 0]
    own, of_views = nearest(z, before.centres, before.alive).split(8)
    assert own[0] != of_views[0]
    leaf = own.repeat(2)
    before.prune(3)
    assert found[1] == pytest.approx(float(loop_centre(z, leaf, before.centres, before)), rel=1e-5)
    assert found[2] == pytest.approx(float(loop_compression(z.detach(), leaf, before.centres, before)), rel=1e-5)
    torch.testing.assert_close(leaves.weights, (before.weights + own.bincount(minlength=4)) / 2)  # 8 samples, not 16


def growth_of(
    x: Tensor, seed: int = 5, prune_below: float = 3.0, augment: object = None, budget: int | None = None
) -> EmbeddedGrowth:
    settings = {"batch_size": 16, "split_every": 0.5, "pretrain_epochs": 1, "epochs": 4, "learning_rate": 1e-3}
    schedule = DeepECT(6, prune_below=prune_below, **settings)._schedule()
    samples = Samples(x, torch.device("cpu"), budget)
    return EmbeddedGrowth(Architecture((8,), "mlp", "gaussian", (3,), ()), samples, schedule, augment, [seed])


GROUPS = torch.from_numpy(nested(n=96)[0]).float()
WINDOW = 96 * 8 * 2  # bytes, half of what the samples take


@pytest.mark.parametrize("budget", [None, WINDOW], ids=["all held", "window"])
@pytest.mark.parametrize("augment", [None, lambda x: x + 0.1 * torch.randn_like(x)], ids=["plain", "augmented"])
def test_a_state_of_any_pause_leads_to_the_same_end(
    budget: int | None, augment: object, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("treevae.training.loop.PAUSE", 0.0)
    whole, states, told = growth_of(GROUPS, augment=augment, budget=budget), [], []
    for happened in whole.events():
        if happened is None:
            about, tensors = whole.state()
            states.append((json.dumps(about), {name: value.clone() for name, value in tensors.items()}, len(told)))
        else:
            told.append(happened[1])
    leaves = whole.module.leaves
    died = [event for event in told if isinstance(event, LeafDied)]
    assert died
    assert len(leaves.tree.leaves) == 2 + sum(isinstance(e, LeafChosen) for e in told) - 1 - len(died)
    assert len(leaves) == int(leaves.alive.sum())
    assert set(whole.labels().tolist()) == set(range(len(leaves)))
    for about, tensors, n_told in states:
        again = growth_of(GROUPS, augment=augment, budget=budget)
        again.restore(json.loads(about), tensors)
        assert told[:n_told] + [happened[1] for happened in again.events() if happened is not None] == told
        assert again.module.leaves.tree == leaves.tree
        assert all(map(torch.equal, again.module.state_dict().values(), whole.module.state_dict().values()))
    done = growth_of(GROUPS, augment=augment, budget=budget)
    done.restore(*whole.state())
    assert list(done.events()) == []
    assert done.module.fixed_norms


def test_norms_stay_as_pre_training_left_them() -> None:
    growth = growth_of(GROUPS)

    def now() -> dict[str, Tensor]:
        return {name: value.clone() for name, value in growth.module.state_dict().items()}

    states = {"": now()}  # at the last end of an epoch of each stage
    for happened in growth.events():
        if happened is not None and isinstance(happened[1], EmbeddingEpochEnded):
            states[happened[1].stage] = now()
    first, learnt, end = states.values()
    norms = [name for name in first if "running" in name]
    assert norms
    assert not any(torch.equal(first[name], learnt[name]) for name in norms)
    assert all(torch.equal(learnt[name], end[name]) for name in norms)
    weights = [name for name, _ in growth.module.named_parameters()]
    assert not any(torch.equal(learnt[name], end[name]) for name in weights)  # these are learnt on


def test_nothing_is_split_once_training_is_over() -> None:
    growth = growth_of(GROUPS)
    told = [happened[1] for happened in growth.events() if happened is not None]
    epochs = [place for place, event in enumerate(told) if isinstance(event, EmbeddingEpochEnded)]
    assert growth._schedule.splits_due(4, len(growth.module.leaves)) > 0  # were there another epoch
    assert not any(isinstance(event, LeafChosen) for event in told[epochs[-1] :])


def test_samples_that_do_not_fit_on_the_device_make_no_difference() -> None:
    held, visiting = growth_of(GROUPS), growth_of(GROUPS, budget=WINDOW)
    told = [[happened for happened in growth.events() if happened is not None] for growth in (held, visiting)]
    assert told[0] == told[1]
    assert all(map(torch.equal, held.module.state_dict().values(), visiting.module.state_dict().values()))


def test_another_seed_sees_another_order(monkeypatch: pytest.MonkeyPatch) -> None:
    orders: dict[int, list[list[int]]] = {}
    terms = Clustering.terms
    for seed in (5, 6):
        seen = orders.setdefault(seed, [])

        def noted(self: Clustering, index: Tensor, noise: object, seen: list[list[int]] = seen) -> object:
            seen.append(index[0].tolist())
            return terms(self, index, noise)

        monkeypatch.setattr(Clustering, "terms", noted)
        list(growth_of(GROUPS, seed).events())
    assert orders[5] != orders[6]
    assert sorted(i for batch in orders[5][:6] for i in batch) == list(range(96))


def test_a_split_is_the_best_of_many_starts(monkeypatch: pytest.MonkeyPatch) -> None:
    angles = torch.arange(6) * math.pi / 3
    ring = torch.stack([1.5 * angles.cos(), angles.sin(), torch.zeros(6)], 1)  # a fifth of all starts part it across
    monkeypatch.setattr(EmbeddedGrowth, "_embedding", lambda self: ring)

    def is_best(seed: int) -> bool:
        growth = growth_of(GROUPS, seed)
        growth._at = 1  # clustering
        next(growth._grow(0))
        return bool((growth.module.leaves.in_order(growth.module.leaves.centres)[:, 1].abs() < 1e-6).all())

    assert all(is_best(seed) for seed in range(20))
    monkeypatch.setattr(embedded_tree, "KMEANS_STARTS", 1)
    assert not all(is_best(seed) for seed in range(20))


def test_leaves_without_samples_are_removed_at_the_end() -> None:
    growth = growth_of(GROUPS, prune_below=1e-9)
    list(growth.events())
    leaves = growth.module.leaves
    last, n = leaves.tree.leaves[-1], len(leaves)
    leaves.centres[leaves.places[last]] = 1e6
    assert list(growth._prune_empty()) == [(0, LeafDied(last))]
    assert len(leaves) == n - 1


def test_splits_come_when_they_are_due() -> None:
    schedule = DeepECT(4, split_every=2)._schedule()
    assert [schedule.splits_due(epoch, 2) for epoch in range(5)] == [1, 0, 1, 0, 1]
    assert [schedule.splits_due(1, n) for n in (1, 2, 4)] == [1, 0, 0]  # a tree of one leaf is split at once
    assert DeepECT(9, split_every=0.25)._schedule().splits_due(3, 7) == 2  # of four, those there is room for


def test_losses_are_those_of_clustpy() -> None:
    clustpy = pytest.importorskip("clustpy.deep.deepect")
    leaves = grown(0, dtype=torch.float32, room=2)
    z, leaf = torch.randn(20, 3), torch.randint(2, (20,))
    theirs = clustpy._DeepECT_Module(None, 2, 2, 0.1)
    centres = leaves.centres
    torch.testing.assert_close(
        centre_loss(z, leaf, centres, leaves.alive), theirs._node_center_loss(z, centres, leaf, None)
    )
    left, right = (SimpleNamespace(center=centres[k], torch_labels=torch.tensor([k])) for k in (0, 1))
    node = SimpleNamespace(left_node_=left, right_node_=right)
    torch.testing.assert_close(
        compression_loss(z, leaf, centres, leaves.weights, leaves.below),
        theirs._data_compression_loss(z, [node], leaf, torch.device("cpu"), None),
    )
