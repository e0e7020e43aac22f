"""Who listens to a fit hears every event as it happens, and may end it."""

import dataclasses
import re
import warnings
from pathlib import Path
from types import NoneType

import numpy as np
import pytest
from kinds import SMALL, VECTORS

from treevae import Tree, TreeVAE
from treevae.baselines import VAE, DeepECT
from treevae.errors import NoTreeError
from treevae.training.events import EVENTS, EpochEnded, Event, TreeChanged


def until_a_tree(event: Event) -> bool:
    return not isinstance(event, TreeChanged)


def test_a_callback_hears_what_the_history_tells():
    heard: list[Event] = []
    model = TreeVAE(**SMALL).fit(VECTORS, callback=heard.append)
    assert [event.to_dict() for event in heard] == model.history_
    assert {event.seed for event in heard} == {SMALL["random_state"]}
    epoch = next(event for event in heard if isinstance(event, EpochEnded))
    assert epoch.elbo == pytest.approx(epoch.reconstruction - epoch.kl)
    assert epoch.kl == epoch.kl_root + epoch.kl_nodes + epoch.kl_decisions


def test_an_event_holds_no_module():
    model = TreeVAE(**SMALL).fit(VECTORS)
    changed = [event for event in model.fitted_.history if isinstance(event, TreeChanged)]
    assert changed[-1].tree == model.tree_
    plain = (int, float, str, Tree, dict, NoneType)
    for event in model.fitted_.history:
        values = [getattr(event, field.name) for field in dataclasses.fields(event)]
        assert all(
            isinstance(one, plain) for value in values for one in (value if isinstance(value, tuple) else [value])
        )


def test_events_of_seeds_name_their_seed():
    heard: list[Event] = []
    models = TreeVAE(**SMALL).fit_seeds(VECTORS, [3, 5], callback=heard.append)
    for model in models:
        assert [event.to_dict() for event in heard if event.seed == model.random_state] == model.history_


def test_a_callback_that_returns_false_ends_the_fit_with_the_model_so_far():
    model = TreeVAE(**SMALL | {"n_leaves": 4}).fit(VECTORS, callback=until_a_tree)
    assert len(model.tree_.leaves) == 2
    assert model.predict(VECTORS).shape == (60,)
    assert isinstance(model.fitted_.history[-1], TreeChanged)


@pytest.mark.parametrize("answer", [None, 0, "", np.float32(0)])
def test_what_else_a_callback_returns_ends_nothing(answer):
    model = TreeVAE(**SMALL).fit(VECTORS, callback=lambda event: answer)
    assert model.history_ == TreeVAE(**SMALL).fit(VECTORS).history_


def test_numpys_false_is_false_too():
    with pytest.raises(NoTreeError):
        TreeVAE(**SMALL).fit(VECTORS, callback=lambda event: np.bool_(False))


def test_a_callbacks_error_is_its_own():
    def fail(event: Event) -> None:
        raise RuntimeError("the tracking server is out of memory")

    with pytest.raises(RuntimeError, match="tracking server"):
        TreeVAE(**SMALL).fit(VECTORS, callback=fail)


def test_nobody_is_warned_of_what_was_ended_on_purpose():
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        TreeVAE(**SMALL | {"n_leaves": 4}).fit(VECTORS, callback=until_a_tree)


def test_a_fit_that_is_ended_before_there_is_a_tree_says_so():
    model = TreeVAE(**SMALL)
    with pytest.raises(NoTreeError, match="callback ended the fit before there was a tree, in 1 of 1 models"):
        model.fit(VECTORS, callback=lambda event: False)
    assert not hasattr(model, "fitted_")
    with pytest.raises(NoTreeError, match=r"in \d of 2 models"):
        model.fit_seeds(VECTORS, [0, 1], callback=until_a_tree)


def test_a_fit_that_was_ended_goes_on_from_its_folder(tmp_path, monkeypatch):
    monkeypatch.setattr("treevae.training.loop.PAUSE", 0.0)
    whole = TreeVAE(**SMALL).fit(VECTORS)
    part = TreeVAE(**SMALL).fit(VECTORS, checkpoint=tmp_path, callback=until_a_tree)
    assert len(part.history_) < len(whole.history_)
    again = TreeVAE(**SMALL).fit(VECTORS, checkpoint=tmp_path)
    assert again.history_ == whole.history_
    np.testing.assert_array_equal(again.predict_proba(VECTORS), whole.predict_proba(VECTORS))


@pytest.mark.parametrize(
    "make", [lambda: VAE(1, epochs=2, hidden_dim=8), lambda: DeepECT(2, pretrain_epochs=1, epochs=1)]
)
def test_baselines_tell_too(make):
    heard: list[Event] = []
    model = make().set_params(random_state=0).fit(VECTORS, callback=heard.append)
    assert [event.to_dict() for event in heard] == model.history_
    assert {event.seed for event in heard} == {0}


def test_a_callback_must_be_a_function():
    with pytest.raises(TypeError, match="callback='print' must be a function of an event, or None"):
        TreeVAE(**SMALL).fit(VECTORS, callback="print")


@pytest.mark.parametrize("kind", EVENTS.values(), ids=list(EVENTS))
def test_the_reference_names_every_event_and_its_fields(kind):
    page = (Path(__file__).parents[1] / "docs" / "use" / "api" / "treevae.md").read_text()
    (row,) = (row for row in page.splitlines() if row.startswith(f"| `{kind.__name__}` |"))
    told = re.findall(r"`(\w+)`", row.split(" | ")[2].split(";")[0])
    assert told == [one.name for one in dataclasses.fields(kind) if one.name != "seed"]
