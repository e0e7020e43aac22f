"""Fits on augmented samples, with and without a contrastive loss: what they tell, keep and refuse."""

import dataclasses
import pickle
import warnings
from functools import partial

import numpy as np
import pytest
import torch
from kinds import COLOUR, GREY, SMALL, VECTORS, shaken
from sklearn.base import clone
from sklearn.exceptions import ConvergenceWarning

from treevae import TreeVAE, load
from treevae.advice import warn_of
from treevae.data.augment import AUGMENTATIONS
from treevae.storage.differences import ChangedRunError
from treevae.training.events import LeafChosen

# -- augmentations ------------------------------------------------------------------------------------------------


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


def test_an_augmentation_is_tried_on_a_batch():
    seen = []

    def augment(x):
        seen.append(x.shape)
        return x

    TreeVAE(**SMALL, augment=augment).fit(np.random.default_rng(0).uniform(size=(40, 8, 8)))
    assert seen[0] == (4, 1, 8, 8)


def test_pixels_of_another_range_are_refused_by_named_augmentations():
    X = 255 * np.random.default_rng(0).uniform(size=(40, 8, 8, 3))
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
        TreeVAE(**SMALL, augment=augment).fit(np.random.default_rng(0).uniform(0.1, 1, size=(40, 8, 8)))


def test_a_checkpoint_knows_an_augmentation_by_what_it_does(tmp_path):
    def brighter(x, by):
        return (x + by).clamp(0, 1)

    X = np.random.default_rng(0).uniform(size=(40, 8, 8))
    TreeVAE(**SMALL, augment=partial(brighter, by=0.1)).fit(X, checkpoint=tmp_path)
    TreeVAE(**SMALL, augment=partial(brighter, by=0.1)).fit(X, checkpoint=tmp_path)
    with pytest.raises(ChangedRunError, match="augment"):
        TreeVAE(**SMALL, augment=partial(brighter, by=0.2)).fit(X, checkpoint=tmp_path)


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


# -- contrastive losses -------------------------------------------------------------------------------------------


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


def test_contrastive_steps_are_counted_by_samples_and_the_shortest_stage_when_norms_are_judged(monkeypatch):
    monkeypatch.setattr("treevae.advice.LEFT_BEHIND", 0.6)  # that is 51 steps
    settings = SMALL | {"batch_size": 4, "layer_defaults": "tensorflow", "contrastive_weight": 1.0}
    with warnings.catch_warnings():  # two of 60 samples in a step: 60 steps, where rows would make it 30
        warnings.simplefilter("error")
        model = TreeVAE(**settings | {"n_leaves": 2, "max_depth": 5}, augment=shaken).fit(VECTORS)
    split = dataclasses.replace(model.fitted_, history=(*model.fitted_.history, LeafChosen(1, 40)))
    with pytest.warns(ConvergenceWarning, match="a stage had 40 steps"):
        warn_of(split, model.get_params(deep=False), stacklevel=1)
