"""The estimator: what it takes, what it gives, what it refuses, and what it leaves behind."""

import json
import os
import pickle
import warnings
from functools import partial

import numpy as np
import pandas as pd
import pytest
import torch
from safetensors.torch import save_file
from sklearn.base import clone
from sklearn.exceptions import ConvergenceWarning

import treevae
from treevae import Tree, TreeVAE, load
from treevae.data.augment import AUGMENTATIONS
from treevae.data.synthetic import hierarchy
from treevae.estimator import SCORE_DRAWS
from treevae.metrics import accuracy
from treevae.model import module as module_room
from treevae.model.networks import CnnDecoder
from treevae.training.checkpoint import ModelFileError
from treevae.training.growing import Grove
from treevae.training.runfolder import ChangedRunError

SMALL = {"latent_dim": 3, "hidden_dim": 16, "epochs": 2, "n_leaves": 3, "n_init": 1, "random_state": 0}
RNG = np.random.default_rng(0)
GREY = RNG.random((60, 9, 11)).astype(np.float32)
COLOUR = RNG.random((60, 8, 10, 3))
VECTORS = RNG.normal(5, 30, (60, 4))


def shaken(x: torch.Tensor) -> torch.Tensor:
    """A little of each sample's mirror image, so that no value leaves its range."""
    return torch.lerp(x, x.flip(-1), 0.1 * torch.rand(len(x), *[1] * (x.dim() - 1)))


@pytest.fixture(scope="module")
def grey() -> TreeVAE:
    return TreeVAE(tree=Tree().split(0).split(1), **SMALL).fit(GREY)


@pytest.fixture(scope="module")
def vectors() -> TreeVAE:
    return TreeVAE(tree=Tree().split(0).split(1), **SMALL).fit(VECTORS)


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


def test_sizes_of_levels_are_parameters():
    model = TreeVAE(
        n_leaves=3,
        max_depth=2,
        latent_dim=[5, 4, 3],
        hidden_dim=(7, 6),
        transformation_layers=2,
        router_layers=3,
        epochs=1,
    ).fit(VECTORS)
    arch = model.module_.arch
    assert (arch.latent_dims, arch.hidden_dims, arch.transformation_layers, arch.router_layers) == (
        (5, 4, 3),
        (7, 6),
        2,
        3,
    )
    assert model.transform(VECTORS).shape == (60, 5)


@pytest.mark.parametrize("rule", ["samples", "reconstruction", "elbo"])
def test_leaf_rules_and_candidates(rule):
    model = TreeVAE(**SMALL | {"leaf_rule": rule, "n_init": 3, "epochs": 1}).fit(VECTORS)
    events = [event["event"] for event in model.history_]
    assert events.count("CandidatesCompared") == 1 + events.count("LeafChosen")


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


def test_score_is_the_elbo_in_the_units_of_x(vectors):
    """Scaling X scales densities: log p of 10 x is log p of x minus log 10 for each feature."""
    bigger = TreeVAE(tree=Tree().split(0).split(1), **SMALL).fit(VECTORS * 10)
    gap = vectors.score_samples(VECTORS) - bigger.score_samples(VECTORS * 10)
    np.testing.assert_allclose(gap, 4 * np.log(10), rtol=1e-3)
    assert vectors.score(VECTORS) == pytest.approx(vectors.score_samples(VECTORS).mean(), rel=1e-5)


def test_score_samples_averages_the_elbo(grey):
    x = torch.from_numpy(GREY.reshape(60, -1))
    with torch.no_grad():
        from treevae.model.descent import noise_for

        noise = noise_for(grey.module_.nodes, 400 * 60, torch.Generator().manual_seed(0))
        exact = grey.module_.elbo(x, noise, samples=400).elbo[0].numpy()
    spread = np.abs(grey.score_samples(GREY) - exact)
    assert spread.mean() < 8 / np.sqrt(SCORE_DRAWS)
    assert abs((grey.score_samples(GREY) - exact).mean()) < 1.0


@pytest.mark.parametrize("bound", ["iwae", "paper"])
@pytest.mark.parametrize(
    "changes",
    [
        {"network": "cnn", "likelihood": "bernoulli"},
        {"network": "cnn", "likelihood": "gaussian"},
        {"network": "mlp", "likelihood": "gaussian_learnt"},
    ],
    ids=lambda changes: "-".join(changes.values()),
)
def test_log_likelihood_is_above_the_elbo_and_the_same_in_any_company(changes, bound):
    model = TreeVAE(tree=Tree().split(0).split(1), **SMALL | changes).fit(GREY)
    found = model.log_likelihood(GREY, 50, bound)
    assert found.shape == (60,)
    assert found.dtype == np.float32
    assert found.mean() > model.score(GREY)
    np.testing.assert_allclose(model.log_likelihood(GREY[7:9], 50, bound), found[7:9], rtol=1e-5)


def test_log_likelihood_is_in_the_units_of_x(vectors):
    bigger = TreeVAE(tree=Tree().split(0).split(1), **SMALL).fit(VECTORS * 10)
    gap = vectors.log_likelihood(VECTORS, 20) - bigger.log_likelihood(VECTORS * 10, 20)
    np.testing.assert_allclose(gap, 4 * np.log(10), rtol=1e-3)


def test_log_likelihood_refuses_what_it_does_not_know(grey):
    with pytest.raises(ValueError, match="bound='elbo'; allowed are 'iwae'"):
        grey.log_likelihood(GREY, bound="elbo")
    with pytest.raises(ValueError, match="draws=0 must be a whole number of at least 1"):
        grey.log_likelihood(GREY, draws=0)


def test_best_path_runs_one_decoder_a_sample(grey, monkeypatch):
    winners = grey.predict(GREY)
    x = torch.from_numpy(GREY.reshape(60, -1))
    found = module_room.descent.infer(grey.module_.nodes, grey.module_.d(x), noise=None)
    every = module_room.descent.decode(grey.module_.nodes, found.z, grey.module_._expected)[
        grey.module_.nodes.layout.shown_leaves
    ]
    expected = every[winners, torch.arange(60)].detach().numpy().reshape(GREY.shape)
    decoded = []
    plain = CnnDecoder.forward
    monkeypatch.setattr(CnnDecoder, "forward", lambda self, z: decoded.append(z.shape[:2].numel()) or plain(self, z))
    np.testing.assert_allclose(grey.reconstruct(GREY), expected, rtol=1e-4, atol=1e-6)
    assert sum(decoded) == 60  # against 3 * 60 with all paths


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


def test_samples_follow_their_seed_and_leaf(grey):
    np.testing.assert_array_equal(grey.sample(4, random_state=1), grey.sample(4, random_state=1))
    assert not np.array_equal(grey.sample(4, random_state=1), grey.sample(4, random_state=2))
    by_leaf = [grey.sample(30, leaf=k, random_state=0).mean(0) for k in range(3)]
    everywhere = grey.sample_all_leaves(30, random_state=0).mean(0)
    for k in range(3):  # each leaf has a decoder of its own, and sample(leaf) uses that one
        gaps = [np.abs(by_leaf[k] - everywhere[j]).mean() for j in range(3)]
        assert int(np.argmin(gaps)) == k
    with pytest.raises(ValueError, match="leaf=3; the clusters are numbered 0 to 2"):
        grey.sample(1, leaf=3)
    with pytest.raises(ValueError, match="n=0 must be a whole number"):
        grey.sample(0)


def test_samples_of_a_leaf_follow_the_prior_routers():
    """sample(leaf=k) weighs draws by the probability that the routers send them there."""
    torch.manual_seed(0)
    model = TreeVAE(tree=Tree().split(0), **SMALL | {"latent_dim": 1}).fit(VECTORS)
    module = model.module_
    stack, row = module.nodes.rows()["router_p"][(0, 0)]
    decoder, _ = module.nodes.rows()["decoder"][(0, 1)]
    with torch.no_grad():
        generator = torch.Generator().manual_seed(0)
        noise = module_room.descent.noise_for(module.nodes, 64 * 200, generator)
        z = module_room.descent.generate(module.nodes, noise)
        logits = module_room.descent.prior_logits(module.nodes, z)
        left = module_room.descent.log_reach(module.nodes, logits)[1].exp()
        means = module.arch.likelihood_model.mean(decoder(z[1]))[0]
        expected = (left[:, None] * means).sum(0) / left.sum()
        drawn = module.generate(200, torch.Generator().manual_seed(1), node=1).mean(0)
        spread = means.std(0) / np.sqrt(200)
    assert stack.n == 1
    assert row == 0
    assert ((drawn - expected).abs() < 5 * spread + 1e-4).all()


def test_samples_through_an_inner_node_follow_the_prior_routers():
    """sample(node=i) weighs draws by their probability of passing through i, and sends them on as the routers do."""
    model = TreeVAE(tree=Tree().split(0).split(1), **SMALL | {"latent_dim": 1}).fit(VECTORS)
    module, n = model.module_, 250
    with torch.no_grad():
        noise = module_room.descent.noise_for(module.nodes, 64 * n, torch.Generator().manual_seed(0))
        z = module_room.descent.generate(module.nodes, noise)
        reach = module_room.descent.log_reach(module.nodes, module_room.descent.prior_logits(module.nodes, z)).exp()
        decoded = module_room.descent.decode(module.nodes, z, module._expected)  # leaves 2, 3, 4
        leaves, below = module.nodes.layout.leaves, (3, 4)
        weight = {leaf: reach[module.nodes.layout.nodes.index((0, leaf))][:, None] for leaf in below}
        means = {leaf: decoded[leaves.index((0, leaf))] for leaf in below}
        total = sum(weight[leaf].sum() for leaf in below)
        expected = sum((weight[leaf] * means[leaf]).sum(0) for leaf in below) / total
        square = sum((weight[leaf] * means[leaf] ** 2).sum(0) for leaf in below) / total
        drawn = module.generate(n, torch.Generator().manual_seed(1), node=1)
    spread = (square - expected**2).clamp(min=0).sqrt() / np.sqrt(n)
    assert ((drawn.mean(0) - expected).abs() < 5 * spread + 1e-4).all()


def test_samples_of_a_node_are_those_of_its_leaves(grey):
    (first, _), last = (3, 4), 2
    np.testing.assert_array_equal(
        grey.sample(5, node=first, random_state=3), grey.sample(5, leaf=grey.tree_.leaves.index(first), random_state=3)
    )
    np.testing.assert_array_equal(grey.sample(5, node=0, random_state=3), grey.sample(5, random_state=3))
    means = {leaf: grey.sample(1, node=leaf, temperature=0)[0] for leaf in grey.tree_.leaves}
    cold = grey.sample(40, node=1, temperature=0, random_state=0)  # at temperature 0 a leaf has one sample only
    gaps = np.array([[np.abs(one - means[leaf]).max() for leaf in (3, 4, last)] for one in cold])
    assert (gaps[:, :2].min(1) < 1e-6).all()
    assert (gaps[:, 2] > 1e-6).all()
    for wrong, message in (
        ({"node": 9}, "there is no node 9"),
        ({"node": 1, "leaf": 0}, "give one of them"),
        ({"temperature": -1}, "temperature=-1 must be"),
        ({"temperature": np.inf}, "temperature=inf must be"),
    ):
        with pytest.raises(ValueError, match=message):
            grey.sample(1, **wrong)


def test_temperature_spreads_the_samples(grey):
    spread = [grey.sample(200, leaf=0, temperature=t, random_state=0).std(0).mean() for t in (0, 0.5, 1, 2)]
    assert spread[0] < 1e-6
    assert spread == sorted(spread)
    np.testing.assert_array_equal(
        grey.sample(3, leaf=0, random_state=0), grey.sample(3, leaf=0, temperature=1, random_state=0)
    )


def test_interpolation_ends_at_the_two_samples(grey):
    pair = GREY[[int(np.flatnonzero(grey.labels_ == k)[0]) for k in np.unique(grey.labels_)[[0, -1]]]]
    shown, reach = grey.interpolate(pair, steps=5)
    assert shown.shape == (5, 9, 11)
    np.testing.assert_allclose(shown[[0, -1]], grey.reconstruct(pair), atol=1e-6)
    np.testing.assert_allclose(reach[[0, -1]], grey.predict_proba(pair), atol=1e-6)
    with torch.no_grad():  # half way, by hand
        module = grey.module_
        found = module_room.descent.infer(module.nodes, module.d(grey._to_model(pair)), noise=None)
        leaf = grey.tree_.leaves[int(reach[2].argmax())]
        decoder = module_room.frozen_row(*module.nodes.rows()["decoder"][(0, leaf)])
        middle = module._z_of(found.z, leaf).mean(1, keepdim=True)
        decoded = module.arch.likelihood_model.mean(decoder(middle))[0, 0]
    np.testing.assert_allclose(shown[2].ravel(), decoded, atol=1e-5)
    still, _ = grey.interpolate(pair[[0, 0]], steps=3)
    np.testing.assert_allclose(still, grey.reconstruct(pair[[0, 0, 0]]), atol=1e-6)
    with pytest.raises(ValueError, match="steps=1 must be at least 2"):
        grey.interpolate(pair, steps=1)
    with pytest.raises(ValueError, match="X has 3 samples"):
        grey.interpolate(GREY[:3])


def test_history_is_json_and_tells_the_elbo(grey):
    assert json.loads(json.dumps(grey.history_)) == grey.history_
    epochs = [event for event in grey.history_ if event["event"] == "EpochEnded"]
    assert {"reconstruction", "kl_root", "kl_nodes", "kl_decisions", "kl_weight"} <= set(epochs[0])


def test_same_seed_same_model_to_the_bit():
    first, again = (TreeVAE(**SMALL).fit(VECTORS) for _ in range(2))
    assert first.tree_ == again.tree_
    np.testing.assert_array_equal(first.labels_, again.labels_)
    for name, value in first.module_.state_dict().items():
        assert torch.equal(value, again.module_.state_dict()[name])
    assert not np.array_equal(
        TreeVAE(**SMALL | {"random_state": 1}).fit(VECTORS).transform(VECTORS), first.transform(VECTORS)
    )


def test_by_default_sixteen_candidates_compete_for_every_split():
    model = TreeVAE(3, max_depth=2, hidden_dim=8, epochs=1, random_state=0).fit(VECTORS)
    compared = [event["losses"] for event in model.history_ if event["event"] == "CandidatesCompared"]
    assert len(compared) >= 2  # the first tree, and a split of it
    assert all(len(losses) == 16 for losses in compared)


@pytest.mark.slow
@pytest.mark.parametrize("settings", [{}, {"max_depth": 5, "n_init": 5}], ids=["defaults", "six levels, five"])
@pytest.mark.parametrize("seed", range(2))  # the first of those of benchmarks/hierarchy.py
def test_a_hierarchy_of_eight_groups_is_recovered(seed, settings):
    X, y = hierarchy(1600, seed=seed)
    model = TreeVAE(n_leaves=8, hidden_dim=32, batch_size=64, epochs=10, random_state=seed, **settings).fit(X)
    assert accuracy(model.predict(X), y) >= 0.98
    assert accuracy(model.predict(X, n_groups=2), y // 4) >= 0.98


# -- what it refuses ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("parameters", "X", "message"),
    [
        ({"n_leaves": 65}, VECTORS, r"n_leaves=65 does not fit.*max_depth=6 at most 64"),
        ({"n_leaves": 1}, VECTORS, "n_leaves=1 does not fit"),
        ({"n_leaves": 2.5}, VECTORS, r"n_leaves=2.5 must be a whole number of at least 1"),
        ({"epochs": 0}, VECTORS, "epochs=0 must be a whole number"),
        ({"batch_size": 1}, VECTORS, "batch_size=1 must be at least 2"),
        ({"learning_rate": -1}, VECTORS, "learning_rate=-1 must be a positive number"),
        ({"likelihood": "poisson"}, VECTORS, "likelihood='poisson'; allowed are 'auto', 'bernoulli'"),
        ({"network": "vgg"}, VECTORS, "network='vgg'; allowed are"),
        ({"network": "resnet"}, VECTORS, "network='resnet' needs images"),
        ({"leaf_rule": "size"}, VECTORS, "leaf_rule='size'; allowed are"),
        ({"device": "abacus"}, VECTORS, "device='abacus' cannot be used"),
        ({"latent_dim": (3, 3)}, VECTORS, r"latent_dim=\(3, 3\) has 2 sizes; give one number, or 7"),
        ({"tree": "((1,2),3)"}, VECTORS, r"must be a treevae.Tree"),
        ({"tree": Tree().split(0).split(1), "max_depth": 1}, VECTORS, "tree has height 2, but max_depth=1"),
        ({"likelihood": "bernoulli"}, VECTORS, r"needs values in \[0, 1\], but X ranges from"),
        ({"network": "cnn"}, VECTORS, r"network='cnn' needs images.*X has shape \(60, 4\)"),
        ({}, np.zeros((60, 2, 9)), "at least 3 pixels a side"),
        ({}, GREY * 300, r"X holds pixels from .* to 29.*; images must be uint8 or in \[0, 1\]"),
        ({}, np.where(GREY > 0.99, np.nan, GREY), "X contains NaN or infinity"),
        ({}, np.where(VECTORS > 60, np.inf, VECTORS), "contains infinity"),
        ({}, np.zeros((60, 5, 9, 9)), "neither its second nor its last axis has 1, 3 or 4 channels"),
        ({}, np.zeros((2, 2, 2, 2, 2)), r"X has 5 dimensions"),
        ({}, np.full((60, 9, 9), "a"), "X has dtype <U1; images must be numbers"),
        ({}, VECTORS[:1], r"n_samples=1|1 sample"),
        ({}, GREY[:1], "X has n_samples=1; at least 2 needed"),
        ({}, GREY[:0], "X has n_samples=0"),
        ({}, np.ones((60, 4)), "all 60 samples of X are equal; there are no groups to find"),
        ({}, np.full((60, 9, 9), 0.5), "all 60 samples of X are equal"),
        ({"likelihood": "gaussian"}, VECTORS * 1e300, "overflow float32"),
        ({"network": "deep_cnn"}, GREY, r"needs images of 28 x 28 pixels, X has images of shape \(9, 11\)"),
        (
            {"network": "deep_cnn"},
            np.zeros((60, 32, 32)),
            r"needs images of 28 x 28 .* resize them, or use network='cnn'",
        ),
        ({"network": "deep_cnn"}, VECTORS, "network='deep_cnn' needs images"),
        (
            {"augment": "mnist"},
            GREY,
            "augment='mnist'; allowed are 'cifar', 'celeba', 'omniglot', a function of",
        ),
        ({"augment": 3}, GREY, "augment=3; allowed are 'cifar'"),
        ({"augment": "cifar"}, GREY, "augmentation 'cifar' changes colours and needs images of 3 channels, got 1"),
        ({"augment": "celeba"}, COLOUR[..., :1], "augmentation 'celeba' changes colours"),
        ({"augment": "cifar"}, VECTORS, r"augment='cifar' needs images; X has 4 features"),
        ({"augment": "omniglot"}, VECTORS, "augment='omniglot' needs images"),
        ({"augment": lambda x: x[..., :-1]}, GREY, r"the shape it was given, \(6, 1, 9, 11\); .* \(6, 1, 9, 10\)"),
        ({"augment": lambda x: x.flatten(1)}, GREY, r"it returned \(6, 99\)"),
        ({"augment": lambda x: x.numpy()}, VECTORS, r"the shape it was given, \(6, 4\); it returned ndarray"),
        ({"contrastive_weight": 1.0}, GREY, "contrastive_weight=1.0 compares .* but augment is None; set augment"),
        ({"contrastive_weight": -1, "augment": shaken}, GREY, "contrastive_weight=-1 must be a number, 0 or more"),
        ({"contrastive_weight": np.nan, "augment": shaken}, GREY, "contrastive_weight=nan must be a number"),
        ({"contrastive_weight": "much", "augment": shaken}, GREY, "contrastive_weight='much' must be a number"),
        ({"contrastive_loss": "A"}, GREY, "contrastive_loss='A'; allowed are 'both', 'routers'"),
        ({"contrastive_weight": 1, "augment": shaken, "batch_size": 3}, GREY, "batch_size=3 must be at least 4 with a"),
        ({"contrastive_weight": 1, "augment": lambda x: 1 - x}, GREY, "augment gave two equal views of the first"),
        ({"augment": ["cifar"]}, COLOUR, r"augment=\['cifar'\]; allowed are"),
    ],
)
def test_bad_input_is_refused_with_its_reason(parameters, X, message):
    with pytest.raises(ValueError, match=message):
        TreeVAE(**{"epochs": 1} | parameters).fit(X)


def test_unlike_samples_are_refused(grey, vectors):
    with pytest.raises(
        ValueError, match=r"samples of shape \(9, 9\), but the model was fitted on samples of shape \(9, 11\)"
    ):
        grey.predict(GREY[:, :, :9])
    with pytest.raises(ValueError, match=r"X has shape \(60, 4\), but the model was fitted on images"):
        grey.predict(VECTORS)
    with pytest.raises(ValueError, match="3 features, but TreeVAE is expecting 4"):
        vectors.predict(VECTORS[:, :3])
    with pytest.raises(ValueError, match="path='longest'; allowed are"):
        grey.reconstruct(GREY, path="longest")


@pytest.mark.parametrize("method", ["predict", "predict_proba", "transform", "score_samples", "score", "reconstruct"])
def test_use_before_fit_is_refused(method):
    with pytest.raises(Exception, match="not fitted yet"):
        getattr(TreeVAE(), method)(VECTORS)


def test_sampling_and_saving_before_fit_is_refused(tmp_path):
    for call in (lambda: TreeVAE().sample(), lambda: TreeVAE().save(tmp_path / "m"), lambda: TreeVAE().tree_):
        with pytest.raises(Exception, match="not fitted yet"):
            call()


def test_a_diverging_loss_says_where():
    with pytest.raises(FloatingPointError, match=r"stage 'first tree', epoch 1 of 2: reconstruction"):
        TreeVAE(**SMALL | {"likelihood": "gaussian"}).fit(VECTORS * 1e25)


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


@pytest.mark.parametrize(
    "error",
    [
        torch.OutOfMemoryError("CUDA out of memory"),
        RuntimeError("DefaultCPUAllocator: can't allocate memory"),
        MemoryError(),
    ],
    ids=["gpu", "cpu", "python"],
)
def test_without_enough_memory_one_is_told_what_takes_less(monkeypatch, error):
    def fail(*_):
        raise error

    monkeypatch.setattr("treevae.fitting.Fitting.run", fail)
    with pytest.raises(MemoryError, match=r"has 5 samples .* of 16 trees .*n_init=16, seeds: 1.*take less") as caught:
        TreeVAE(batch_size=5).fit(VECTORS)
    assert caught.value.__cause__ is error
    with pytest.raises(MemoryError, match=r"of 6 trees .*n_init=3, seeds: 2"):
        TreeVAE(n_init=3).fit_seeds(VECTORS, [0, 1])


def test_other_errors_of_torch_are_left_as_they_are(monkeypatch):
    def fail(*_):
        raise RuntimeError("no kernel")

    monkeypatch.setattr("treevae.fitting.Fitting.run", fail)
    with pytest.raises(RuntimeError, match=r"^no kernel$"):
        TreeVAE().fit(VECTORS)


# -- augmented and contrastive --------------------------------------------------------------------------------------


@pytest.mark.parametrize("weight", [0.0, 5.0], ids=["augmented", "contrastive"])
@pytest.mark.parametrize(
    ("X", "shape"), [(GREY, (1, 9, 11)), (COLOUR, (3, 8, 10)), (VECTORS, (4,))], ids=["grey", "colour", "vectors"]
)
def test_a_users_own_augmentation(X, shape, weight):
    seen = set()

    def augment(x):
        seen.add((x.shape[1:], x.dtype, x.device.type))
        return shaken(x)

    model = TreeVAE(**SMALL, augment=augment, contrastive_weight=weight, device="cpu").fit(X)
    assert seen == {(shape, torch.float32, "cpu")}
    assert model.predict(X).shape == (60,)
    assert model.reconstruct(X).shape == X.shape
    epochs = [event for event in model.history_ if event["event"] == "EpochEnded"]
    assert all((event["contrast_routers"] is not None) == (weight > 0) for event in epochs)
    assert (model.plan_.final is None) == (weight > 0)
    assert len(model.module_.bottom_up.projections) == (7 if weight else 0)


@pytest.mark.parametrize("name", ["cifar", "celeba", "omniglot"])
def test_named_augmentations_of_colour_images(name):
    model = TreeVAE(**SMALL | {"epochs": 1}, augment=name, contrastive_weight=1.0).fit(COLOUR)
    assert model.labels_.shape == (60,)


def test_grey_drawings_may_be_moved():
    assert TreeVAE(**SMALL | {"epochs": 1}, augment="omniglot").fit(GREY).labels_.shape == (60,)


@pytest.mark.parametrize(
    ("loss", "n_projections"),
    [("both", 7), ("bottom_up", 7), ("encoder", 1), ("routers", 0), ("transposed", 0), ("jensen_shannon", 0)],
)
def test_every_contrastive_loss_tells_its_parts_in_the_history(loss, n_projections):
    model = TreeVAE(**SMALL | {"epochs": 1}, augment=shaken, contrastive_weight=2.0, contrastive_loss=loss).fit(VECTORS)
    assert len(model.module_.bottom_up.projections) == n_projections
    first = next(event for event in model.history_ if event["event"] == "EpochEnded")
    assert (first["contrast_bottom_up"] != 0) == (n_projections > 0)
    assert (first["contrast_routers"] != 0) == (loss not in ("bottom_up", "encoder"))


def test_few_samples_leave_two_for_a_contrastive_step():
    """A tenth of 20 samples is a batch of 2 rows: two views of one sample, with no other to be told from."""
    model = TreeVAE(**SMALL | {"epochs": 1}, augment=shaken, contrastive_weight=1.0).fit(VECTORS[:20])
    assert model.plan_.batch_size == 4
    assert model.history_[0]["contrast_bottom_up"] > 0
    assert TreeVAE(**SMALL | {"epochs": 1}, augment=shaken).fit(VECTORS[:20]).plan_.batch_size == 2


@pytest.mark.parametrize("augment", ["omniglot", shaken, lambda x: shaken(1 - x)], ids=["name", "function", "lambda"])
def test_files_know_named_augmentations_and_pickles_and_clones_all(augment, tmp_path):
    model = TreeVAE(**SMALL | {"epochs": 1}, augment=augment, contrastive_weight=1.0)
    assert clone(model).augment == augment
    model.fit(GREY)
    model.save(tmp_path / "model")
    again = load(tmp_path / "model")
    assert again.augment == ("omniglot" if augment == "omniglot" else None)
    model.set_params(augment=AUGMENTATIONS["celeba"]).save(tmp_path / "model")
    assert load(tmp_path / "model").augment == "celeba"
    model.set_params(augment=augment)
    assert again.get_params() == model.get_params() | {"augment": again.augment}
    assert again.plan_ == model.plan_
    for method in ("predict_proba", "score_samples", "reconstruct"):
        np.testing.assert_array_equal(getattr(again, method)(GREY), getattr(model, method)(GREY))
    if getattr(augment, "__name__", "") != "<lambda>":  # which Python cannot pickle
        copied = pickle.loads(pickle.dumps(model))
        assert copied.augment == augment
        np.testing.assert_array_equal(copied.predict_proba(GREY), model.predict_proba(GREY))


def test_contrastive_seeds_side_by_side_begin_as_each_alone():
    """Later the two drift apart: a contrastive loss magnifies rounding."""
    start, terms = TreeVAE(**SMALL | {"n_leaves": 2}, augment=shaken, contrastive_weight=5.0), {}
    for model in start.fit_seeds(VECTORS, [3, 4]):
        alone = clone(model).fit(VECTORS)
        ours, theirs = (
            {name: value for name, value in fitted.history_[0].items() if isinstance(value, float)}
            for fitted in (model, alone)
        )
        assert {"reconstruction", "contrast_bottom_up", "contrast_routers"} <= ours.keys()
        assert ours == pytest.approx(theirs, rel=1e-2, abs=1e-2)
        terms[model.random_state] = ours
    assert terms[3] != terms[4]


@pytest.mark.parametrize("network", ["deep_cnn", "resnet"])
def test_large_networks_can_be_fitted_asked_and_saved(network, tmp_path):
    X = RNG.random((24, 28, 28) if network == "deep_cnn" else (24, 8, 8, 3)).astype(np.float32)
    model = TreeVAE(**SMALL | {"epochs": 1, "n_leaves": 2}, network=network, batch_size=8).fit(X)
    assert model.module_.arch.network == network
    assert model.reconstruct(X).shape == model.reconstruct(X, path="all").shape == X.shape
    assert model.sample(2).shape == X[:2].shape
    model.save(tmp_path / "model")
    again = load(tmp_path / "model")
    np.testing.assert_array_equal(again.predict_proba(X), model.predict_proba(X))
    np.testing.assert_array_equal(again.reconstruct(X), model.reconstruct(X))


# -- several seeds ------------------------------------------------------------------------------------------------


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


def test_a_pickle_is_not_much_larger_than_the_weights(vectors):
    size = sum(parameter.numel() * 4 for parameter in vectors.module_.parameters())
    assert len(pickle.dumps(vectors.module_)) < 2 * size + 100_000


def test_a_failed_refit_leaves_the_earlier_fit_whole(vectors):
    model = TreeVAE(**SMALL).fit(VECTORS)
    before = model.predict(VECTORS)
    with pytest.raises(FloatingPointError):
        model.set_params(likelihood="gaussian").fit(VECTORS[:, :3] * 1e25)
    assert model.n_features_in_ == VECTORS.shape[1]
    np.testing.assert_array_equal(model.predict(VECTORS), before)


# -- what it leaves behind ----------------------------------------------------------------------------------------


@pytest.mark.parametrize("X", [GREY, COLOUR, VECTORS, pd.DataFrame(VECTORS, columns=list("abcd"))])
def test_save_and_load_give_the_same_answers(X, tmp_path):
    model = TreeVAE(**SMALL | {"n_init": 2}).fit(X)
    model.save(tmp_path / "model.safetensors")
    again = load(tmp_path / "model.safetensors")
    assert again.get_params() == model.get_params()
    assert (again.tree_, again.history_, again.plan_) == (model.tree_, model.history_, model.plan_)
    for method in ("predict", "predict_proba", "transform", "score_samples", "reconstruct"):
        np.testing.assert_array_equal(getattr(again, method)(X), getattr(model, method)(X))
    np.testing.assert_array_equal(again.sample(3), model.sample(3))
    np.testing.assert_array_equal(again.labels_, model.labels_)
    assert [path.name for path in tmp_path.iterdir()] == ["model.safetensors"]
    assert (tmp_path / "model.safetensors").stat().st_mode & 0o444 == 0o444 & ~_umask()


def _umask() -> int:
    mask = os.umask(0)
    os.umask(mask)
    return mask


def test_a_second_fit_forgets_the_first(tmp_path):
    model = TreeVAE(**SMALL).fit(pd.DataFrame(VECTORS, columns=list("abcd")))
    model.fit(GREY)
    assert not hasattr(model, "feature_names_in_")
    assert model.n_features_in_ == 99
    fresh = TreeVAE(**SMALL).fit(GREY)
    np.testing.assert_array_equal(model.predict_proba(GREY), fresh.predict_proba(GREY))


@pytest.mark.parametrize("bad", [np.ones((60, 4)), GREY * 0 + 0.5])
def test_a_failed_second_fit_leaves_the_first_whole(bad):
    model = TreeVAE(**SMALL).fit(VECTORS)
    before = model.score_samples(VECTORS)
    with pytest.raises(ValueError, match="are equal"):
        model.fit(bad)
    model.n_features_in_ = 4  # scikit-learn's bookkeeping follows the last X, as in its own estimators
    np.testing.assert_array_equal(model.score_samples(VECTORS), before)
    with pytest.raises(ValueError, match="are equal"):
        (fresh := TreeVAE(**SMALL)).fit(bad)
    with pytest.raises(Exception, match="not fitted yet"):
        fresh.predict(bad)


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
    assert model._units.scale == pytest.approx(VECTORS.std(axis=0).mean(), rel=0.2)


def test_floats_sent_to_a_model_of_bytes_must_be_in_range():
    bytes_ = (COLOUR * 255).astype(np.uint8)
    model = TreeVAE(**SMALL | {"likelihood": "gaussian"}).fit(bytes_)
    np.testing.assert_allclose(model.score_samples(bytes_ / 255), model.score_samples(bytes_), rtol=1e-4)
    with pytest.raises(ValueError, match="X holds pixels from"):
        model.predict(bytes_.astype(float))
    assert model.sample(3).max() < 10


def test_fewer_leaves_than_asked_for_are_announced():
    with pytest.warns(ConvergenceWarning, match=r"fewer than n_leaves=32"):
        TreeVAE(**SMALL | {"n_leaves": 32, "epochs": 1}).fit(VECTORS)


def test_norms_that_lag_behind_are_announced():
    with pytest.warns(ConvergenceWarning, match=r"layer_defaults='tensorflow' keeps 0\.99"):
        TreeVAE(**SMALL | {"epochs": 1}, layer_defaults="tensorflow").fit(VECTORS)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        TreeVAE(**SMALL | {"epochs": 36, "n_leaves": 2}, layer_defaults="tensorflow").fit(VECTORS)


def test_contrastive_steps_are_counted_by_samples_and_the_shortest_stage_when_norms_are_judged(monkeypatch):
    monkeypatch.setattr("treevae.estimator.LEFT_BEHIND", 0.6)  # that is 51 steps
    settings = SMALL | {"batch_size": 4, "layer_defaults": "tensorflow", "contrastive_weight": 1.0}
    with warnings.catch_warnings():  # two of 60 samples in a step: 60 steps, where rows would make it 30
        warnings.simplefilter("error")
        model = TreeVAE(**settings | {"n_leaves": 2, "max_depth": 5}, augment=shaken).fit(VECTORS)
    model.history_.append({"event": "LeafChosen", "leaf": 1, "samples": 40})
    with pytest.warns(ConvergenceWarning, match="a stage had 40 steps"):
        model._warn_of_norms_left_behind()


@pytest.mark.parametrize("wrong", [["torch"], "keras"])
def test_layer_defaults_that_do_not_exist_are_refused(wrong):
    with pytest.raises(ValueError, match=r"layer_defaults=.*allowed are 'torch', 'tensorflow'"):
        TreeVAE(**SMALL, layer_defaults=wrong).fit(VECTORS)


def test_many_samples_come_in_blocks(grey):
    drawn = grey.sample(600, leaf=1, random_state=0)
    assert drawn.shape == (600, 9, 11)
    assert len(np.unique(drawn.reshape(600, -1), axis=0)) > 590
    assert grey.sample_all_leaves(600).shape == (600, 3, 9, 11)


def test_the_device_of_a_fitted_model_is_where_its_module_is(vectors, saved):
    model = load(saved)
    model.set_params(device="meta")
    np.testing.assert_array_equal(model.predict(VECTORS), vectors.predict(VECTORS))
    with pytest.raises(ValueError, match="device='abacus' cannot be used"):
        load(saved, device="abacus")


def test_saving_into_no_folder_says_so(vectors, tmp_path):
    with pytest.raises(FileNotFoundError, match="there is no folder"):
        vectors.save(tmp_path / "none" / "m")


@pytest.fixture(scope="module")
def saved(vectors, tmp_path_factory):
    path = tmp_path_factory.mktemp("saved") / "model.safetensors"
    vectors.save(path)
    return path


def test_truncated_files_are_refused(saved, tmp_path):
    whole, cut = saved.read_bytes(), tmp_path / "cut.safetensors"
    for size in (0, 4, 100, len(whole) // 2, len(whole) - 1):
        cut.write_bytes(whole[:size])
        with pytest.raises(ModelFileError, match="not a treevae model, or was cut short"):
            load(cut)


def test_foreign_and_newer_files_are_refused(saved, tmp_path):
    with pytest.raises(FileNotFoundError, match="there is no file"):
        load(tmp_path / "none")
    (tmp_path / "text").write_text("hello " * 100)
    with pytest.raises(ModelFileError, match="not a treevae model"):
        load(tmp_path / "text")
    save_file({"a": torch.zeros(1)}, tmp_path / "foreign")
    with pytest.raises(ModelFileError, match="not one that treevae wrote"):
        load(tmp_path / "foreign")
    save_file({"a": torch.zeros(1)}, tmp_path / "newer", {"treevae": json.dumps({"format": 999})})
    with pytest.raises(ModelFileError, match="has format 999; this treevae reads up to 1, update it"):
        load(tmp_path / "newer")
    save_file({"a": torch.zeros(1)}, tmp_path / "broken", {"treevae": "{"})
    with pytest.raises(ModelFileError, match="unreadable metadata"):
        load(tmp_path / "broken")


@pytest.mark.parametrize(
    "spoil",
    [
        lambda about, tensors: about.pop("tree"),
        lambda about, tensors: about.update(tree='{"children": {"0": [1]}, "n_created": 3}'),
        lambda about, tensors: about["architecture"].update(unknown=1),
        lambda about, tensors: about["parameters"].update(unknown=1),
        lambda about, tensors: tensors.pop("labels"),
        lambda about, tensors: tensors.update(extra=torch.zeros(1)),
        lambda about, tensors: tensors.update({k: v[..., :1] for k, v in tensors.items() if k.startswith("module.")}),
    ],
)
def test_files_that_do_not_hold_together_are_refused(spoil, saved, tmp_path):
    from treevae.training import checkpoint

    about, tensors = checkpoint.read(saved)
    spoil(about, tensors)
    checkpoint.write(tmp_path / "spoilt", about, tensors)
    with pytest.raises(ModelFileError, match="does not hold together"):
        load(tmp_path / "spoilt")


def test_a_failed_save_leaves_the_old_file(vectors, saved, tmp_path, monkeypatch):
    from treevae.training import checkpoint

    path = tmp_path / "model.safetensors"
    path.write_bytes(saved.read_bytes())

    def full_disk(tensors, part, metadata):
        part.write_bytes(b"half")
        raise OSError("No space left on device")

    monkeypatch.setattr(checkpoint, "save_file", full_disk)
    with pytest.raises(OSError, match="No space"):
        vectors.save(path)
    assert path.read_bytes() == saved.read_bytes()
    assert list(tmp_path.iterdir()) == [path]


def test_public_names():
    assert treevae.__all__ == ["Tree", "TreeVAE", "load"]
    assert all(getattr(treevae, name) for name in treevae.__all__)
    with pytest.raises(AttributeError, match="no attribute 'Forest'"):
        _ = treevae.Forest


def test_pixels_of_another_range_are_refused_by_named_augmentations():
    X = 255 * RNG.uniform(size=(40, 8, 8, 3))
    with pytest.raises(ValueError, match=r"augment='cifar' needs pixels in \[0, 1\] or uint8; X ranges from .* to 25"):
        TreeVAE(**SMALL, likelihood="gaussian", augment="cifar").fit(X)


@pytest.mark.parametrize(
    ("augment", "said"),
    [
        (lambda x: x + 5, r"augment returned values from 5.* needs them in \[0, 1\]"),
        (lambda x: x / 0, "augment returned NaN or infinity"),
    ],
)
def test_an_augmentation_that_leaves_the_range_is_refused(augment, said):
    with pytest.raises(ValueError, match=said):
        TreeVAE(**SMALL, augment=augment).fit(RNG.uniform(0.1, 1, size=(40, 8, 8)))


def test_an_augmentation_is_tried_on_a_batch():
    seen = []

    def augment(x):
        seen.append(x.shape)
        return x

    TreeVAE(**SMALL, augment=augment).fit(RNG.uniform(size=(40, 8, 8)))
    assert seen[0] == (4, 1, 8, 8)


def test_a_checkpoint_knows_an_augmentation_by_what_it_does(tmp_path):
    def brighter(x, by):
        return (x + by).clamp(0, 1)

    X = RNG.uniform(size=(40, 8, 8))
    TreeVAE(**SMALL, augment=partial(brighter, by=0.1)).fit(X, checkpoint=tmp_path)
    TreeVAE(**SMALL, augment=partial(brighter, by=0.1)).fit(X, checkpoint=tmp_path)
    with pytest.raises(ChangedRunError, match="augment"):
        TreeVAE(**SMALL, augment=partial(brighter, by=0.2)).fit(X, checkpoint=tmp_path)
