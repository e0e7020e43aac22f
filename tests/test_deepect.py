"""DeepECT as an estimator: groups that must be recovered, fits that go on, and what is refused."""

import math
import pickle
from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest
import torch
from kinds import nested
from sklearn.base import clone
from sklearn.exceptions import ConvergenceWarning, NotFittedError
from torch import Tensor

from treevae.baselines import embedded_tree
from treevae.baselines.autoencoder import Leaves, squared_sums
from treevae.baselines.deepect import DeepECT
from treevae.errors import NoTreeError
from treevae.metrics import accuracy, dendrogram_purity
from treevae.storage.differences import ChangedRunError
from treevae.training.events import EmbeddingEpochEnded, Event
from treevae.tree import Tree

TINY = {"latent_dim": 4, "network": "mlp", "pretrain_epochs": 10, "epochs": 12, "batch_size": 64, "learning_rate": 1e-3}

SHORT = TINY | {"pretrain_epochs": 1, "epochs": 1}


@pytest.fixture(scope="module", params=[0, 1])
def fitted(request: pytest.FixtureRequest) -> tuple[DeepECT, np.ndarray, np.ndarray]:
    X, y = nested(request.param)
    return DeepECT(4, random_state=request.param, **TINY).fit(X), X, y


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


def test_the_leaf_with_the_largest_sum_is_split(monkeypatch: pytest.MonkeyPatch) -> None:
    X, _ = nested()
    seen: list[tuple[int, int]] = []  # the place with the largest sum, the place that is split
    split = Leaves.split

    def note_sums(z: Tensor, leaf: Tensor, centres: Tensor) -> Tensor:
        found = squared_sums(z, leaf, centres)
        assert len(z) == len(X)
        seen.append((int(found.argmax()), -1))
        return found

    def note_split(self: Leaves, leaf: int, left: Tensor, right: Tensor) -> None:
        seen[-1] = seen[-1][0], self.tree.leaves.index(leaf)
        split(self, leaf, left, right)

    monkeypatch.setattr(embedded_tree, "squared_sums", note_sums)
    monkeypatch.setattr(Leaves, "split", note_split)
    model = DeepECT(4, random_state=1, **TINY).fit(X)
    assert len(seen) == 3
    assert all(largest == chosen for largest, chosen in seen)
    chosen = [event for event in model.history_ if event["event"] == "LeafChosen"]
    assert (chosen[0]["leaf"], chosen[0]["samples"]) == (0, len(X))
    ended = {event["epoch"]: event["leaves"] for event in model.history_ if event.get("stage") == "clustering"}
    assert [ended[epoch] for epoch in range(1, 7)] == [2, 2, 3, 3, 4, 4]  # a split every two epochs


def test_a_leaf_of_equal_samples_is_not_split() -> None:
    X = np.repeat(np.random.default_rng(0).normal(size=(2, 8)), 20, 0)
    with pytest.warns(ConvergenceWarning, match="leaves in the tree: 2"):
        model = DeepECT(4, random_state=0, **TINY).fit(X)
    assert sum(event["event"] == "LeafChosen" for event in model.history_) == 1


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


def test_a_fit_that_was_ended_goes_on_to_the_same_end(
    fitted: tuple[DeepECT, np.ndarray, np.ndarray], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    whole, X, _ = fitted
    for stop in (3, 14, 17):  # ends of epochs: in pre-training, early and late in clustering, of 22
        folder, heard = tmp_path / str(stop), list[Event]()

        def until(event: Event, heard: list[Event] = heard, stop: int = stop) -> bool:
            heard.append(event)
            return sum(isinstance(one, EmbeddingEpochEnded) for one in heard) < stop

        with monkeypatch.context() as patch:
            patch.setattr("treevae.training.loop.PAUSE", 0.0)
            if stop == 3:
                with pytest.raises(NoTreeError):
                    clone(whole).fit(X, checkpoint=folder, callback=until)
            else:
                part = clone(whole).fit(X, checkpoint=folder, callback=until)
                assert len(part.history_) < len(whole.history_)
        again = clone(whole).fit(X, checkpoint=folder)
        assert again.tree_ == whole.tree_
        assert again.history_ == whole.history_
        np.testing.assert_array_equal(again.centres_, whole.centres_)
        assert all(one <= two for one, two in pairwise(again.seconds_))
    with pytest.raises(ChangedRunError, match="n_clusters"):
        clone(whole).set_params(n_clusters=3).fit(X, checkpoint=folder)


def test_a_fitted_model_can_be_pickled(fitted: tuple[DeepECT, np.ndarray, np.ndarray]) -> None:
    model, X, _ = fitted
    written = pickle.dumps(model)
    np.testing.assert_array_equal(pickle.loads(written).predict(X), model.labels_)
    assert len(written) < 2 * sum(parameter.nbytes for parameter in model.module_.parameters())


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


def test_one_cluster_is_a_lone_root(tmp_path: Path) -> None:
    X, _ = nested()
    model = DeepECT(1, random_state=0, **TINY | {"epochs": 50, "learning_rate": 1e-2}).fit(X, checkpoint=tmp_path)
    assert model.tree_ == Tree()
    assert not model.labels_.any()
    np.testing.assert_allclose(model.centres_, model.transform(X).mean(0, keepdims=True), atol=0.1)
    np.testing.assert_array_equal(clone(model).fit(X, checkpoint=tmp_path).centres_, model.centres_)


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
        ("n_clusters", 0, "n_clusters=0 must be a whole number of at least 1"),
        ("n_clusters", 2.0, "n_clusters=2.0 must be"),
        ("latent_dim", (4, 4), "latent_dim"),
        ("pretrain_epochs", -1, "pretrain_epochs=-1 must be"),
        ("epochs", 0, "epochs=0 must be"),
        ("split_every", 0, "split_every=0 must be"),
        ("prune_below", 0, "prune_below=0 must be a positive number"),
        ("prune_below", True, "prune_below=True must be a positive number"),
        ("pretrain_epochs", True, "pretrain_epochs=True must be a whole number of at least 0"),
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
