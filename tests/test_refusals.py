"""What the estimator refuses and what it warns of, each with its reason."""

import warnings

import numpy as np
import pandas
import pytest
import torch
from kinds import COLOUR, GREY, SMALL, VECTORS, shaken
from sklearn.exceptions import ConvergenceWarning, NotFittedError

import treevae
from treevae import Tree, TreeVAE, load

# -- before a fit -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("parameters", "X", "message"),
    [
        ({"n_leaves": 65}, VECTORS, r"n_leaves=65 does not fit.*max_depth=6 at most 64"),
        ({"n_leaves": 1}, VECTORS, "n_leaves=1 does not fit"),
        ({"n_leaves": 2.5}, VECTORS, r"n_leaves=2.5 must be a whole number of at least 1"),
        ({"epochs": 0}, VECTORS, "epochs=0 must be a whole number"),
        ({"batch_size": 1}, VECTORS, "batch_size=1 must be at least 2"),
        ({"learning_rate": -1}, VECTORS, "learning_rate=-1 must be a positive number"),
        ({"n_leaves": True}, VECTORS, "n_leaves=True must be a whole number of at least 1"),
        ({"contrastive_weight": True}, VECTORS, "contrastive_weight=True must be a number, 0 or more"),
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
        (
            {},
            np.where(GREY > 0.99, np.nan, GREY),
            r"X contains NaN or infinity in 38 of 60 samples, the first of them sample 0",
        ),
        ({"random_state": -1}, VECTORS, "random_state=-1 must be between 0 and 4294967295"),
        ({"random_state": 2**32}, VECTORS, "random_state=4294967296 must be between 0"),
        ({"random_state": "one"}, VECTORS, "random_state='one' must be a whole number, a NumPy RandomState or None"),
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


@pytest.mark.parametrize("wrong", [["torch"], "keras"])
def test_layer_defaults_that_do_not_exist_are_refused(wrong):
    with pytest.raises(ValueError, match=r"layer_defaults=.*allowed are 'torch', 'tensorflow'"):
        TreeVAE(**SMALL, layer_defaults=wrong).fit(VECTORS)


@pytest.mark.parametrize("method", ["predict", "predict_proba", "transform", "score_samples", "score", "reconstruct"])
def test_use_before_fit_is_refused(method):
    with pytest.raises(NotFittedError):
        getattr(TreeVAE(), method)(VECTORS)


def test_sampling_and_saving_before_fit_is_refused(tmp_path):
    for call in (lambda: TreeVAE().sample(), lambda: TreeVAE().save(tmp_path / "m"), lambda: TreeVAE().tree_):
        with pytest.raises(NotFittedError):
            call()


# -- during a fit -------------------------------------------------------------------------------------------------


def test_a_diverging_loss_says_where():
    with pytest.raises(FloatingPointError, match=r"stage 'first tree', epoch 1 of 2: reconstruction"):
        TreeVAE(**SMALL | {"likelihood": "gaussian"}).fit(VECTORS * 1e25)


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
        TreeVAE(batch_size=5, start="splits").fit(VECTORS)
    assert caught.value.__cause__ is error
    with pytest.raises(MemoryError, match=r"of 6 trees .*n_init=3, seeds: 2"):
        TreeVAE(n_init=3, start="splits").fit_seeds(VECTORS, [0, 1])


def test_other_errors_of_torch_are_left_as_they_are(monkeypatch):
    def fail(*_):
        raise RuntimeError("no kernel")

    monkeypatch.setattr("treevae.fitting.Fitting.run", fail)
    with pytest.raises(RuntimeError, match=r"^no kernel$"):
        TreeVAE().fit(VECTORS)


def test_fewer_leaves_than_asked_for_are_announced():
    with pytest.warns(ConvergenceWarning, match=r"fewer than n_leaves=32"):
        TreeVAE(**SMALL | {"n_leaves": 32, "epochs": 1}).fit(VECTORS)


def test_a_feature_that_drowns_all_others_is_announced():
    loud = VECTORS * [1, 1, 500, 1]
    for X, name in ((loud, "feature 2"), (pandas.DataFrame(loud, columns=list("abcd")), "feature 'c'")):
        with pytest.warns(UserWarning, match=rf"{name} has 100\.0% of the variance of X, .* set scale='feature'"):
            TreeVAE(**SMALL | {"epochs": 1}, scale="one").fit(X)
    with warnings.catch_warnings():
        warnings.simplefilter("error", UserWarning)
        warnings.simplefilter("ignore", ConvergenceWarning)
        related = (VECTORS + VECTORS[:, :1]) * [1, 1, 500, 1]  # those of a table are
        TreeVAE(**SMALL | {"epochs": 1}).fit(related)  # "auto" has scaled it
        TreeVAE(**SMALL | {"epochs": 1}, scale="one").fit(VECTORS)
        TreeVAE(**SMALL | {"epochs": 1}).fit(loud[:, 1:3])  # of two features one is easily all
        TreeVAE(**SMALL | {"epochs": 1}).fit(np.pad(loud[:, 1:3], ((0, 0), (0, 2))))  # nor do constant ones count
        TreeVAE(**SMALL | {"epochs": 1}).fit(VECTORS * [1, 1, 4, 1])  # some nine tenths
        TreeVAE(**SMALL | {"epochs": 1}, likelihood="gaussian").fit(loud)  # whose unit the user has chosen


def test_norms_that_lag_behind_are_announced():
    with pytest.warns(ConvergenceWarning, match=r"layer_defaults='tensorflow' keeps 0\.99"):
        TreeVAE(**SMALL | {"epochs": 1}, layer_defaults="tensorflow").fit(VECTORS)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        TreeVAE(**SMALL | {"epochs": 36, "n_leaves": 2}, layer_defaults="tensorflow").fit(VECTORS)


# -- after a fit --------------------------------------------------------------------------------------------------


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


def test_floats_sent_to_a_model_of_bytes_must_be_in_range():
    bytes_ = (COLOUR * 255).astype(np.uint8)
    model = TreeVAE(**SMALL | {"likelihood": "gaussian"}).fit(bytes_)
    np.testing.assert_allclose(model.score_samples(bytes_ / 255), model.score_samples(bytes_), rtol=1e-4)
    with pytest.raises(
        ValueError,
        match=r"X holds pixels from .* pass bytes as uint8, or divide by the largest value that a pixel can have$",
    ):
        model.predict(bytes_.astype(float))
    assert model.sample(3).max() < 10


def test_gaps_are_named_with_what_to_do():
    X = VECTORS.copy()
    X[3, 1] = X[7, 1] = np.nan
    with pytest.raises(ValueError, match=r"NaN in 2 of 60 samples, first in sample 3, in the features 1; fill"):
        TreeVAE(**SMALL).fit(X)


def test_a_folder_is_no_model(tmp_path):
    with pytest.raises(
        FileNotFoundError, match=r"is a folder; give the file of the model that is in it, as .*safetensors"
    ):
        load(tmp_path)


def test_a_pipeline_has_no_report(tmp_path):
    from sklearn.pipeline import make_pipeline
    from sklearn.preprocessing import StandardScaler

    pipe = make_pipeline(StandardScaler(), TreeVAE(**SMALL)).fit(VECTORS)
    with pytest.raises(TypeError, match=r"model is a Pipeline; give its last step, model\[-1\]"):
        treevae.report(pipe, VECTORS, path=tmp_path / "p.html")
