"""DeepECT: its losses against plain loops, its tree against the rules, and groups that must be recovered."""

import math
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from sklearn.base import clone
from sklearn.exceptions import ConvergenceWarning, NotFittedError
from torch import Tensor

from treevae.baselines import embedded_tree
from treevae.baselines.deepect import DeepECT
from treevae.baselines.embedded_tree import (
    Autoencoder,
    Leaves,
    Training,
    centre_loss,
    compression_loss,
    squared_sums,
)
from treevae.metrics import accuracy, dendrogram_purity
from treevae.model.networks import Architecture
from treevae.training.samples import Samples
from treevae.tree import Tree

TINY = {"latent_dim": 4, "network": "mlp", "pretrain_epochs": 10, "epochs": 12, "batch_size": 64, "learning_rate": 1e-3}

SHORT = TINY | {"pretrain_epochs": 1, "epochs": 1}


def nested(seed: int = 0, n: int = 320) -> tuple[np.ndarray, np.ndarray]:
    """Samples of four groups, of which 0 and 1, and 2 and 3, lie close; and their groups."""
    rng = np.random.default_rng(seed)
    far, near = np.linalg.qr(rng.standard_normal((8, 8)))[0][:2]
    centres = np.stack([a * 4 * far + b * near for a in (-1, 1) for b in (-1, 1)])
    y = rng.permutation(np.arange(n) % 4)
    return centres[y] + 0.15 * rng.standard_normal((n, 8)), y


@pytest.fixture(scope="module", params=[0, 1])
def fitted(request: pytest.FixtureRequest) -> tuple[DeepECT, np.ndarray, np.ndarray]:
    X, y = nested(request.param)
    return DeepECT(4, random_state=request.param, **TINY).fit(X), X, y


def grown(*splits: int, dtype: torch.dtype = torch.float64) -> Leaves:
    """Leaves with random centres and weights, made by splitting the leaves of these places."""
    torch.manual_seed(0)
    leaves = Leaves(torch.randn(3, dtype=dtype))
    for place in splits:
        leaves.split(place, torch.randn(3, dtype=dtype), torch.randn(3, dtype=dtype))
    leaves.weights = torch.rand(len(leaves.weights), dtype=dtype) + 0.5
    return leaves


def loop_centre(z: Tensor, leaf: Tensor, leaves: Leaves) -> Tensor:
    total = torch.zeros((), dtype=z.dtype)
    for k, centre in enumerate(leaves.parameters):
        own = [z[i].detach() for i in range(len(z)) if leaf[i] == k]
        if own:
            total = total + (centre - sum(own) / len(own)).square().sum().sqrt()
    return total / len(leaves.parameters)


def loop_compression(z: Tensor, leaf: Tensor, leaves: Leaves) -> Tensor:
    tree = leaves.tree
    weight, centre = {}, {}  # of all nodes, children before parents
    for node in reversed(tree.nodes):
        if tree.is_leaf(node):
            place = tree.leaves.index(node)
            weight[node], centre[node] = leaves.weights[place], leaves.parameters[place].detach()
        else:
            below = tree.children(node)
            weight[node] = sum(weight[child] for child in below)
            centre[node] = sum(weight[child] * centre[child] for child in below) / weight[node]
    total, n_nodes = torch.zeros((), dtype=z.dtype), 0
    for parent in tree.routers:
        for node, sibling in (tree.children(parent), tree.children(parent)[::-1]):
            n_nodes += 1
            line = centre[node] - centre[sibling]
            line = line / line.norm()
            for i in range(len(z)):
                if node in tree.path(tree.leaves[leaf[i]]):
                    total = total + abs(line @ (z[i] - centre[node]))
    return total / (n_nodes * len(z))


@pytest.mark.parametrize("pruned", [None, 1])
def test_losses_and_gradients_are_those_of_plain_loops(pruned: int | None) -> None:
    leaves = grown(0, 1, 0)
    if pruned is not None:
        leaves.prune(pruned)  # leaves a node with one child
    z = torch.randn(12, 3, dtype=torch.float64, requires_grad=True)
    leaf = torch.randint(len(leaves.weights) - 1, (12,))  # the last leaf stays empty
    found = (
        centre_loss(z, leaf, leaves.centres()),
        compression_loss(z, leaf, leaves.centres(), leaves.weights, leaves.below),
    )
    expected = loop_centre(z, leaf, leaves), loop_compression(z, leaf, leaves)
    moved = [z, *leaves.parameters]
    for ours, loops in zip(found, expected, strict=True):
        assert ours.item() == pytest.approx(loops.item(), rel=1e-12)
        pair = (torch.autograd.grad(loss, moved, allow_unused=True, materialize_grads=True) for loss in (ours, loops))
        for one, other in zip(*pair, strict=True):
            torch.testing.assert_close(one, other, rtol=1e-10, atol=1e-14)


def test_each_loss_moves_its_own_part_only() -> None:
    leaves = grown(0, 0)
    z = torch.randn(5, 3, dtype=torch.float64, requires_grad=True)
    leaf = torch.tensor([0, 1, 2, 0, 1])
    (moved,) = torch.autograd.grad(centre_loss(z, leaf, leaves.centres()).requires_grad_(), [z], allow_unused=True)
    assert moved is None
    loss = compression_loss(z, leaf, leaves.centres(), leaves.weights, leaves.below)
    assert all(g is None for g in torch.autograd.grad(loss, leaves.parameters, allow_unused=True))


def test_a_lone_leaf_is_not_compressed_and_equal_siblings_pull_nowhere() -> None:
    z, leaf = torch.randn(4, 3), torch.zeros(4, dtype=torch.long)
    alone = Leaves(torch.zeros(3))
    assert compression_loss(z, leaf, alone.centres(), alone.weights, alone.below) == 0
    alone.split(0, torch.ones(3), torch.ones(3))
    assert compression_loss(z, leaf, alone.centres(), alone.weights, alone.below) == 0


def test_reconstruction_is_the_mean_over_samples_and_features() -> None:
    X = np.random.default_rng(0).uniform(size=(40, 6))
    for likelihood in ("bernoulli", "gaussian"):
        model = DeepECT(2, likelihood=likelihood, random_state=0, **SHORT).fit(X)
        x = torch.from_numpy(X).float()
        with torch.no_grad():
            z = model.module_.embed(x)
            out = model.module_.decoder(z[None])[0]
            found = model.module_.reconstruction_loss(x, z)
        if likelihood == "bernoulli":
            expected = torch.nn.functional.binary_cross_entropy_with_logits(out, x)
        else:
            expected = 0.5 * torch.nn.functional.mse_loss(out, x) + 0.5 * math.log(2 * math.pi)
        torch.testing.assert_close(found, expected, rtol=1e-5, atol=1e-6)


def test_squared_sums_are_sums_not_means() -> None:
    z = torch.tensor([[1.0, 0.0], [-1.0, 0.0], [0.0, 1.0], [5.0, 1.5]])
    centres = torch.tensor([[0.0, 0.0], [5.0, 0.0]])
    assert squared_sums(z, torch.tensor([0, 0, 0, 1]), centres).tolist() == [3.0, 2.25]  # the mean would take leaf 1


def test_the_leaf_with_the_largest_sum_is_split(monkeypatch: pytest.MonkeyPatch) -> None:
    X, _ = nested()
    seen: list[tuple[int, int]] = []  # the place with the largest sum, the place that is split
    split = Leaves.split

    def note_sums(z: Tensor, leaf: Tensor, centres: Tensor) -> Tensor:
        found = squared_sums(z, leaf, centres)
        assert len(z) == len(X)
        seen.append((int(found.argmax()), -1))
        return found

    def note_split(self: Leaves, leaf: int, left: Tensor, right: Tensor) -> list[torch.nn.Parameter]:
        seen[-1] = seen[-1][0], leaf
        return split(self, leaf, left, right)

    monkeypatch.setattr(embedded_tree, "squared_sums", note_sums)
    monkeypatch.setattr(Leaves, "split", note_split)
    model = DeepECT(4, random_state=1, **TINY).fit(X)
    assert len(seen) == 3
    assert all(largest == chosen for largest, chosen in seen)
    chosen = [event for event in model.history_ if event["event"] == "LeafChosen"]
    assert (chosen[0]["leaf"], chosen[0]["samples"]) == (0, len(X))
    ended = {event["epoch"]: event["leaves"] for event in model.history_ if event.get("stage") == "clustering"}
    assert [ended[epoch] for epoch in range(1, 7)] == [2, 2, 3, 3, 4, 4]  # a split every two epochs


def test_pruning_keeps_centres_weights_and_numbers_together() -> None:
    leaves = grown(0, 1, 1)
    assert leaves.tree == Tree({0: (1, 2), 2: (3, 4), 3: (5, 6)})
    kept = dict(zip(leaves.tree.leaves, zip(leaves.parameters, leaves.weights, strict=True), strict=True))
    leaves.prune(leaves.tree.leaves.index(5))
    assert leaves.tree.leaves == (1, 6, 4)
    for node, centre, weight in zip(leaves.tree.leaves, leaves.parameters, leaves.weights, strict=True):
        assert centre is kept[node][0]
        assert weight == kept[node][1]
    # node 3 has one child now, so that 3 itself, not 6, is the sibling of 4
    assert leaves.below.tolist() == [[1, 0, 0], [0, 1, 1], [0, 1, 0], [0, 0, 1]]
    assert {int(n) for n in leaves.tree.split(6).children(6)} == {7, 8}  # numbers are never used twice


def test_a_leaf_without_samples_dies_by_its_weight() -> None:
    module = Autoencoder(Architecture((8,), "mlp", "gaussian", (3,), ()), torch.Generator().manual_seed(0))
    training = Training(module, Samples(torch.zeros(8, 8), torch.device("cpu")), None, DeepECT(4)._schedule(), 0)
    training.leaves = grown(0, 1, dtype=torch.float32)
    training.leaves.weights = torch.ones(3)
    for step in range(4):  # 1, 1/2, 1/4, 1/8, 1/16 < 0.1
        assert len(training.leaves.weights) == 3, step
        training._weigh(torch.tensor([0, 0, 2, 2]))
    assert training.leaves.tree.leaves == (1, 4)
    torch.testing.assert_close(training.leaves.weights, torch.tensor([1.9375, 1.9375]))
    (event,) = training.history
    assert (event["event"], event["leaf"], event["weight"]) == ("LeafPruned", 3, 0.0625)
    for _ in range(9):  # the last leaf is never pruned, and a tree of one leaf is split at once
        training._weigh(torch.tensor([0]))
    assert training.leaves.tree.leaves == (1,)
    assert training._splits_due(1) == 1


def test_nested_groups_are_recovered(fitted: tuple[DeepECT, np.ndarray, np.ndarray]) -> None:
    model, _, y = fitted
    assert accuracy(model.labels_, y) >= 0.95
    assert dendrogram_purity(model.tree_, model.labels_, y) >= 0.95
    left = [model.tree_.leaves.index(leaf) for leaf in model.tree_.leaves_below(model.tree_.groups(2)[0])]
    assert accuracy(np.isin(model.labels_, left).astype(int), y // 2) >= 0.95


def test_the_same_seed_repeats_and_another_does_not(fitted: tuple[DeepECT, np.ndarray, np.ndarray]) -> None:
    first, X, _ = fitted
    again, other = clone(first).fit(X), clone(first).set_params(random_state=7, **SHORT, n_clusters=2).fit(X)
    assert first.tree_ == again.tree_
    assert first.history_ == again.history_
    assert first.history_[0]["reconstruction"] != other.history_[0]["reconstruction"]
    np.testing.assert_array_equal(first.transform(X), again.transform(X))
    np.testing.assert_array_equal(first.centres_, again.centres_)


def test_predict_takes_the_nearest_leaf(fitted: tuple[DeepECT, np.ndarray, np.ndarray]) -> None:
    model, X, _ = fitted
    new = X[::3] + 0.05
    z = model.transform(new)
    assert z.shape == (len(new), 4)
    distances = np.square(z[:, None] - model.centres_[None]).sum(2)
    np.testing.assert_array_equal(model.predict(new), distances.argmin(1))
    np.testing.assert_array_equal(model.predict(X), model.labels_)
    np.testing.assert_array_equal(np.unique(model.labels_), np.arange(len(model.tree_.leaves)))
    assert model.get_feature_names_out().tolist() == [f"deepect{i}" for i in range(4)]


def test_augmented_samples_follow_their_originals() -> None:
    X, y = nested()
    shown: list[int] = []

    def shift(x: Tensor) -> Tensor:
        shown.append(len(x))
        return x + 0.05 * torch.randn_like(x)

    model = DeepECT(4, random_state=0, augment=shift, **TINY).fit(X)
    assert set(shown[1:]) == {64}  # once the augmentation has been tried, batches
    assert accuracy(model.labels_, y) >= 0.95


def test_a_view_that_is_the_sample_itself_changes_nothing() -> None:
    X, _ = nested()
    only = SHORT | {"pretrain_epochs": 0, "epochs": 3}  # the norms' n - 1 tells a batch from the same batch twice
    plain, doubled = (DeepECT(2, random_state=0, augment=a, **only).fit(X) for a in (None, lambda x: x))
    assert [event["event"] for event in plain.history_] == [event["event"] for event in doubled.history_]
    for one, two in zip(plain.history_, doubled.history_, strict=True):
        for name in ("reconstruction", "centre", "compression"):
            assert one.get(name, 0) == pytest.approx(two.get(name, 0), rel=1e-3)
    np.testing.assert_array_equal(plain.labels_, doubled.labels_)


def test_images_keep_their_form() -> None:
    X = (np.random.default_rng(0).uniform(size=(40, 8, 8)) * 255).astype(np.uint8)
    model = DeepECT(2, random_state=0, **SHORT | {"network": "cnn"}).fit(X)
    np.testing.assert_array_equal(model.predict(X / 255), model.labels_)
    with pytest.raises(ValueError, match="fitted on images"):
        model.predict(np.zeros((2, 64)))


def test_too_few_epochs_are_told() -> None:
    X, _ = nested()
    with pytest.warns(ConvergenceWarning, match="leaves in the tree: 2, fewer than n_clusters=4"):
        DeepECT(4, random_state=0, **SHORT).fit(X)


def test_parameters_are_scikit_learns() -> None:
    model = DeepECT(3, **TINY)
    assert clone(model).get_params() == model.get_params()
    assert model.set_params(n_clusters=5).n_clusters == 5
    with pytest.raises(NotFittedError):
        model.predict(nested()[0])


@pytest.mark.parametrize(
    ("name", "value", "message"),
    [
        ("n_clusters", 1, "n_clusters=1 must be a whole number of at least 2"),
        ("n_clusters", 2.0, "n_clusters=2.0 must be"),
        ("latent_dim", (4, 4), "latent_dim"),
        ("pretrain_epochs", -1, "pretrain_epochs=-1 must be"),
        ("epochs", 0, "epochs=0 must be"),
        ("split_every", 0, "split_every=0 must be"),
        ("prune_below", 0, "prune_below=0 must be a positive number"),
        ("learning_rate", "fast", "learning_rate='fast' must be"),
        ("pretrain_learning_rate", np.inf, "pretrain_learning_rate=inf must be"),
        ("network", "transformer", "network='transformer'; allowed are"),
        ("likelihood", "gaussian_learnt", "allowed are 'auto', 'bernoulli', 'gaussian'"),
        ("augment", "omniglot", "needs images"),
        ("batch_size", 1, "batch_size=1"),
        ("device", "abacus", "device='abacus' cannot be used"),
    ],
)
def test_wrong_parameters_are_named(name: str, value: object, message: str) -> None:
    X, _ = nested()
    with pytest.raises(ValueError, match=message):
        DeepECT(**{"n_clusters": 4, **TINY, name: value}).fit(X)


@pytest.mark.parametrize(
    ("X", "message"),
    [
        (np.zeros((10, 3)), "equal"),
        (np.full((10, 3), np.nan), "NaN"),
        (np.zeros((1, 3)), "minimum of 2"),
        (np.zeros((4, 2, 2, 2, 2)), "5 dimensions"),
    ],
)
def test_wrong_data_are_named(X: np.ndarray, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        DeepECT(2, **TINY).fit(X)


def test_a_failed_refit_leaves_the_earlier_fit_whole() -> None:
    X, _ = nested()
    model = DeepECT(2, random_state=0, **SHORT).fit(X)
    with pytest.raises(ValueError, match="equal"):
        model.fit(np.zeros((10, 3)))
    np.testing.assert_array_equal(model.predict(X), model.labels_)


@pytest.mark.parametrize(("network", "shape"), [("resnet", (3, 8, 8)), ("deep_cnn", (28, 28)), ("deep_mlp", (6,))])
@pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")  # two steps are too few for two leaves
def test_every_network_can_be_used(network: str, shape: tuple[int, ...]) -> None:
    X = np.random.default_rng(0).uniform(size=(12, *shape))
    model = DeepECT(2, random_state=0, **SHORT | {"network": network, "batch_size": 6}).fit(X)
    assert model.transform(X).shape == (12, 4)


def test_losses_are_those_of_clustpy() -> None:
    clustpy = pytest.importorskip("clustpy.deep.deepect")
    leaves = grown(0, dtype=torch.float32)
    z, leaf = torch.randn(20, 3), torch.randint(2, (20,))
    theirs = clustpy._DeepECT_Module(None, 2, 2, 0.1)
    centres = leaves.centres().detach()
    torch.testing.assert_close(centre_loss(z, leaf, centres), theirs._node_center_loss(z, centres, leaf, None))
    left, right = (SimpleNamespace(center=centres[k], torch_labels=torch.tensor([k])) for k in (0, 1))
    node = SimpleNamespace(left_node_=left, right_node_=right)
    torch.testing.assert_close(
        compression_loss(z, leaf, centres, leaves.weights, leaves.below),
        theirs._data_compression_loss(z, [node], leaf, torch.device("cpu"), None),
    )
