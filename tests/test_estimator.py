"""The estimator: what it takes, what it gives, and what a fit leaves behind."""

import json
from contextlib import contextmanager

import numpy as np
import pandas as pd
import pytest
import torch
from kinds import COLOUR, GREY, SMALL, VECTORS
from sklearn.exceptions import NotFittedError

from treevae import TreeVAE, load
from treevae.data.synthetic import hierarchy
from treevae.metrics import accuracy
from treevae.recipes import PAPER
from treevae.training.grove import Grove

# -- what it takes ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("X", "network", "likelihood"),
    [
        (GREY, "cnn", "bernoulli"),
        ((GREY * 255).astype(np.uint8), "cnn", "bernoulli"),
        (torch.from_numpy(GREY), "cnn", "bernoulli"),
        (GREY[:, None], "cnn", "bernoulli"),
        (COLOUR, "cnn", "gaussian"),
        (np.moveaxis(COLOUR, 3, 1), "cnn", "gaussian"),
        (VECTORS, "mlp", "gaussian_learnt"),
        (VECTORS > 0, "mlp", "bernoulli"),
        (pd.DataFrame(VECTORS, columns=list("abcd")), "mlp", "gaussian_learnt"),
        (VECTORS.tolist(), "mlp", "gaussian_learnt"),
    ],
    ids=["grey", "uint8", "tensor", "chw", "hwc", "chw colour", "vectors", "bools", "frame", "lists"],
)
def test_every_kind_of_input(X, network, likelihood):
    model = TreeVAE(**SMALL).fit(X)
    assert (model.module_.arch.network, model.module_.arch.likelihood) == (network, likelihood)
    shape = np.shape(X)
    n_leaves = len(model.tree_.leaves)
    assert model.labels_.shape == (60,)
    np.testing.assert_array_equal(model.predict(X), model.labels_)
    assert model.predict_proba(X).shape == (60, n_leaves)
    assert model.transform(X).shape == (60, 3)
    assert model.score_samples(X).shape == (60,)
    assert model.reconstruct(X).shape == model.reconstruct(X, path="all").shape == shape
    assert model.sample(5).shape == (5, *shape[1:])
    assert model.sample_all_leaves(2).shape == (2, n_leaves, *shape[1:])


def test_the_same_image_in_any_layout_is_the_same_image():
    models = [TreeVAE(**SMALL).fit(X) for X in (COLOUR, np.moveaxis(COLOUR, 3, 1), torch.from_numpy(COLOUR))]
    for model in models[1:]:
        np.testing.assert_array_equal(model.labels_, models[0].labels_)
    last, first = models[0].reconstruct(COLOUR), models[1].reconstruct(np.moveaxis(COLOUR, 3, 1))
    np.testing.assert_array_equal(np.moveaxis(last, 3, 1), first)


def test_odd_arrays_are_copied_not_shared():
    X = np.ascontiguousarray(GREY.reshape(60, -1))
    X.setflags(write=False)
    model = TreeVAE(**SMALL).fit(X)
    np.testing.assert_array_equal(model.predict(X[::-1]), model.predict(X)[::-1])
    half = torch.from_numpy(GREY).bfloat16()
    assert TreeVAE(**SMALL).fit(half).predict(half).shape == (60,)


def test_units_are_found_in_float64():
    far = (VECTORS + 1e6).astype(np.float32)
    model = TreeVAE(**SMALL).fit(far)
    np.testing.assert_allclose(model.reconstruct(far).mean(0), far.mean(0, dtype=np.float64), atol=30)
    assert model.fitted_.decides.units.scale == pytest.approx(VECTORS.std(axis=0).mean(), rel=0.2)


def test_sizes_of_levels_are_parameters():
    model = TreeVAE(
        n_leaves=3,
        max_depth=2,
        latent_dim=[5, 4, 3],
        hidden_dim=(7, 6),
        transformation_layers=2,
        router_layers=3,
        epochs=1,
        **PAPER,
    ).fit(VECTORS)
    arch = model.module_.arch
    assert (arch.latent_dims, arch.hidden_dims, arch.transformation_layers, arch.router_layers) == (
        (5, 4, 3),
        (7, 6),
        2,
        3,
    )
    assert model.transform(VECTORS).shape == (60, 5)


def test_numpy_numbers_as_parameters_can_be_fitted_and_saved(tmp_path):
    parameters = {
        "n_leaves": np.int64(2),
        "max_depth": np.int64(2),
        "latent_dim": np.array([2, 2, 2]),
        "hidden_dim": [np.int64(4), 4],
        "epochs": np.int32(1),
        "batch_size": np.int64(6),
        "learning_rate": np.float32(1e-3),
        "n_init": np.int8(2),
        "device": torch.device("cpu"),
    }
    model = TreeVAE(**parameters).fit(VECTORS)
    model.save(tmp_path / "m")
    np.testing.assert_array_equal(load(tmp_path / "m").predict(VECTORS), model.predict(VECTORS))


@pytest.mark.parametrize("network", ["deep_cnn", "resnet"])
def test_large_networks_can_be_fitted_asked_and_saved(network, tmp_path):
    X = np.random.default_rng(0).random((24, 28, 28) if network == "deep_cnn" else (24, 8, 8, 3)).astype(np.float32)
    model = TreeVAE(**SMALL | {"epochs": 1, "n_leaves": 2}, network=network, batch_size=8).fit(X)
    assert model.module_.arch.network == network
    assert model.reconstruct(X).shape == model.reconstruct(X, path="all").shape == X.shape
    assert model.sample(2).shape == X[:2].shape
    model.save(tmp_path / "model")
    again = load(tmp_path / "model")
    np.testing.assert_array_equal(again.predict_proba(X), model.predict_proba(X))
    np.testing.assert_array_equal(again.reconstruct(X), model.reconstruct(X))


@pytest.mark.parametrize("rule", ["samples", "reconstruction", "elbo"])
def test_leaf_rules_and_candidates(rule):
    model = TreeVAE(**SMALL | {"leaf_rule": rule, "n_init": 3, "epochs": 1}).fit(VECTORS)
    events = [event["event"] for event in model.history_]
    assert events.count("CandidatesCompared") == 1 + events.count("LeafChosen")


def test_of_splits_sixteen_candidates_compete_by_default():
    model = TreeVAE(3, max_depth=2, hidden_dim=8, epochs=1, random_state=0, start="splits").fit(VECTORS)
    compared = [event["losses"] for event in model.history_ if event["event"] == "CandidatesCompared"]
    assert len(compared) >= 2  # the first tree, and a split of it
    assert all(len(losses) == 16 for losses in compared)


# -- what it gives ------------------------------------------------------------------------------------------------


def test_probabilities_and_cuts_are_consistent(grey):
    proba = grey.predict_proba(GREY)
    np.testing.assert_allclose(proba.sum(1), 1, rtol=1e-5)
    np.testing.assert_array_equal(proba.argmax(1), grey.predict(GREY))
    # leaves from left to right: nodes 3, 4 (under 1) and 2
    np.testing.assert_allclose(grey.predict_proba(GREY, level=1)[:, 0], proba[:, :2].sum(1), rtol=1e-5)
    np.testing.assert_array_equal(grey.predict(GREY, level=1), (grey.predict(GREY) == 2).astype(int))
    np.testing.assert_array_equal(grey.predict(GREY, n_groups=2), grey.predict(GREY, level=1))
    np.testing.assert_array_equal(grey.predict(GREY, n_groups=3), grey.predict(GREY))
    assert (grey.predict(GREY, level=0) == 0).all()
    with pytest.raises(ValueError, match="two ways to cut"):
        grey.predict(GREY, level=1, n_groups=2)
    with pytest.raises(ValueError, match="cannot cut into 4 groups"):
        grey.predict(GREY, n_groups=4)


def test_predict_runs_no_decoder_and_no_transformation(grey, monkeypatch):
    def fail(*_):
        raise AssertionError("must not run")

    for family in (grey.module_.nodes.decoder, grey.module_.nodes.transformation, grey.module_.nodes.dense):
        monkeypatch.setattr(family, "forward", fail)
    assert grey.predict(GREY).shape == (60,)


@pytest.mark.parametrize("method", ["predict_proba", "transform", "score_samples"])
def test_answers_do_not_depend_on_the_order(vectors, method):
    answer = getattr(vectors, method)(VECTORS)
    for seed in range(5):
        order = np.random.default_rng(seed).permutation(60)
        np.testing.assert_allclose(getattr(vectors, method)(VECTORS[order]), answer[order], rtol=1e-5, atol=1e-6)


def test_history_is_json_and_tells_the_elbo(grey):
    assert json.loads(json.dumps(grey.history_)) == grey.history_
    epochs = [event for event in grey.history_ if event["event"] == "EpochEnded"]
    assert {"reconstruction", "kl_root", "kl_nodes", "kl_decisions", "kl_weight"} <= set(epochs[0])


@pytest.mark.slow
@pytest.mark.parametrize(  # seeds are the first of those of benchmarks/studies/hierarchy.py, which has all of both
    ("seed", "settings"), [(0, {}), (1, {"max_depth": 5, "n_init": 5})], ids=["defaults", "six levels, five"]
)
def test_a_hierarchy_of_eight_groups_is_recovered(seed, settings):
    X, y = hierarchy(1600, seed=seed)
    how = {"hidden_dim": 32, "batch_size": 64, "epochs": 10, "random_state": seed}
    model = TreeVAE(8, **how, **PAPER | settings).fit(X)
    assert accuracy(model.predict(X), y) >= 0.98
    assert accuracy(model.predict(X, n_groups=2), y // 4) >= 0.98


# -- seeds --------------------------------------------------------------------------------------------------------


def test_same_seed_same_model_to_the_bit():
    first, again = (TreeVAE(**SMALL).fit(VECTORS) for _ in range(2))
    assert first.tree_ == again.tree_
    np.testing.assert_array_equal(first.labels_, again.labels_)
    for name, value in first.module_.state_dict().items():
        assert torch.equal(value, again.module_.state_dict()[name])
    assert not np.array_equal(
        TreeVAE(**SMALL | {"random_state": 1}).fit(VECTORS).transform(VECTORS), first.transform(VECTORS)
    )


def test_fit_seeds_gives_what_each_seed_gives_alone():
    frame = pd.DataFrame(VECTORS, columns=[f"f{i}" for i in range(VECTORS.shape[1])])
    start = TreeVAE(**SMALL)
    models = start.fit_seeds(frame, [3, 4])
    assert not hasattr(start, "module_")
    for seed, model in zip([3, 4], models, strict=True):
        alone = TreeVAE(**SMALL | {"random_state": seed}).fit(frame)
        assert model.get_params() == alone.get_params()
        assert model.tree_ == alone.tree_
        np.testing.assert_allclose(model.predict_proba(frame), alone.predict_proba(frame), atol=1e-3)
        assert list(model.feature_names_in_) == list(frame.columns)
        assert len(model.history_) == len(alone.history_)
    with pytest.raises(ValueError, match="seeds is empty"):
        start.fit_seeds(frame, [])


# -- fits that follow another, fail or are interrupted ------------------------------------------------------------


def test_a_second_fit_forgets_the_first():
    model = TreeVAE(**SMALL).fit(pd.DataFrame(VECTORS, columns=list("abcd")))
    model.fit(GREY)
    assert not hasattr(model, "feature_names_in_")
    assert model.n_features_in_ == 99
    fresh = TreeVAE(**SMALL).fit(GREY)
    np.testing.assert_array_equal(model.predict_proba(GREY), fresh.predict_proba(GREY))


def test_a_failed_refit_leaves_the_earlier_fit_whole():
    model = TreeVAE(**SMALL).fit(VECTORS)
    before = model.predict(VECTORS)
    with pytest.raises(FloatingPointError):
        model.set_params(likelihood="gaussian").fit(VECTORS[:, :3] * 1e25)
    assert model.n_features_in_ == VECTORS.shape[1]
    np.testing.assert_array_equal(model.predict(VECTORS), before)


@pytest.mark.parametrize("bad", [np.ones((60, 4)), GREY * 0 + 0.5])
def test_a_failed_second_fit_leaves_the_first_whole(bad):
    model = TreeVAE(**SMALL).fit(VECTORS)
    before = model.score_samples(VECTORS)
    with pytest.raises(ValueError, match="are equal"):
        model.fit(bad)
    assert model.n_features_in_ == 4
    np.testing.assert_array_equal(model.score_samples(VECTORS), before)
    with pytest.raises(ValueError, match="are equal"):
        (fresh := TreeVAE(**SMALL)).fit(bad)
    with pytest.raises(NotFittedError):
        fresh.predict(bad)


def test_an_interrupt_keeps_the_tree_grown_so_far(monkeypatch):
    def interrupted(grove):
        for happened in events(grove):
            yield happened
            if happened is not None and type(happened[1]).__name__ == "LeafChosen":
                raise KeyboardInterrupt

    events = Grove.events
    monkeypatch.setattr(Grove, "events", interrupted)
    model = TreeVAE(**SMALL)
    with pytest.raises(KeyboardInterrupt):
        model.fit(VECTORS)
    assert len(model.tree_.leaves) == 2
    assert model.predict(VECTORS).shape == (60,)


def test_an_interrupt_after_the_last_pause_is_not_lost(monkeypatch, tmp_path):
    over, events = [], Grove.events

    @contextmanager
    def interrupts():
        yield lambda: bool(over)

    def until_over(grove):
        yield from events(grove)
        over.append(True)

    monkeypatch.setattr("treevae.fitting._interrupts", interrupts)
    monkeypatch.setattr(Grove, "events", until_over)
    model = TreeVAE(**SMALL)
    with pytest.raises(KeyboardInterrupt):
        model.fit(VECTORS, checkpoint=tmp_path)
    monkeypatch.undo()
    again = TreeVAE(**SMALL).fit(VECTORS, checkpoint=tmp_path)  # all was saved
    np.testing.assert_array_equal(model.predict_proba(VECTORS), again.predict_proba(VECTORS))
