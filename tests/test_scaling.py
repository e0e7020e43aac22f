"""How vectors are scaled before the model sees them: there and back, densities, what "auto" takes, what is refused."""

import json
from collections import defaultdict
from pathlib import Path

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays
from sklearn.base import clone
from sklearn.datasets import load_breast_cancer, load_digits, load_wine
from sklearn.decomposition import PCA
from typer.testing import CliRunner

from treevae import TreeVAE, load
from treevae.baselines import VAE, DeepECT, LadderVAE
from treevae.cli.app import app
from treevae.data import units
from treevae.data.arrays import InputForm
from treevae.data.aspect import Aspect
from treevae.data.scaling import LOUD, loud_features, suited, variances_of
from treevae.data.units import WAYS, Units, lengths_of
from treevae.errors import ChangedRunError, ModelFileError
from treevae.preparing import prepare
from treevae.storage import tensors as files
from treevae.tree import balanced

ROOT = Path(__file__).parents[1]
SMALL = {
    "tree": balanced(2),
    "max_depth": 1,
    "latent_dim": 2,
    "hidden_dim": 8,
    "epochs": 1,
    "random_state": 0,
    "device": "cpu",
}
CHANCE = np.random.default_rng(0)
SPREADS = np.array([1e-3, 1.0, 50.0, 1e4])
TABLE = (CHANCE.normal(3, 1, (200, 4)) + CHANCE.normal(size=(200, 1))) * SPREADS
WORDS = CHANCE.poisson(CHANCE.uniform(0.01, 0.5, 60) * CHANCE.lognormal(0, 1, (200, 1))).astype(float)
VECTOR = InputForm("vector", (4,))
GAUSSIAN = "gaussian_learnt"
SCALED = [way for way in WAYS if way != "none"]


def fitted(X, **changes):
    return TreeVAE(**SMALL | changes).fit(X)


def seen(X, **changes):
    return prepare("TreeVAE", TreeVAE(**SMALL | changes).get_params(deep=False), X)


# -- there and back -----------------------------------------------------------------------------------------------


@settings(deadline=None, max_examples=60)
@given(
    arrays(np.float32, (7, 4), elements=st.floats(-1e4, 1e4, width=32, allow_subnormal=False)),
    st.sampled_from(list(WAYS)),
    st.integers(-3, 3),
)
def test_samples_come_back_as_they_were(X, way, power):
    X = X * np.float32(10.0**power)
    if np.ptp(X) < 1e-3:
        return
    aspect = Aspect(VECTOR, Units.of(VECTOR, GAUSSIAN, X, way), GAUSSIAN)
    back = aspect.to_user(aspect.to_model(X).numpy(), aspect.units.lengths(X))
    largest = np.abs(X).max() if way != "unit" else lengths_of(X)[:, None]
    assert (np.abs(back - X) <= 1e-5 * largest).all()
    assert back.dtype == np.float32


@pytest.mark.parametrize("way", SCALED)
def test_what_the_model_sees_is_centred_and_of_spread_one(way):
    x = seen(WORDS, scale=way).x.numpy()
    np.testing.assert_allclose(x.mean(0), 0, atol=1e-5)
    assert np.square(x).mean() == pytest.approx(1, rel=1e-4)
    if way == "feature":
        np.testing.assert_allclose(x.std(0), 1, rtol=1e-4)


def test_one_number_is_what_it_was_without_the_parameter():
    """To the bit: the sum over all numbers at once, in double precision."""
    centre = TABLE.mean(axis=0)
    one = float(np.sqrt(np.square(TABLE - centre).sum() / TABLE.size))
    np.testing.assert_array_equal(seen(TABLE, scale="one").x.numpy(), ((TABLE - centre) / one).astype(np.float32))


def test_a_constant_feature_is_centred_and_not_divided():
    X = TABLE.copy()
    X[:, 1] = 7.0
    found = Units.of(VECTOR, GAUSSIAN, X, "feature")
    assert found.scale[1] == 1.0
    x = found.to_model(X, GAUSSIAN)
    assert not x[:, 1].any()
    model = fitted(X, scale="feature")
    assert np.isfinite(model.score_samples(X)).all()
    np.testing.assert_allclose(model.reconstruct(X)[:, 1], 7.0, atol=0.5)


def test_lengths_of_large_and_of_small_numbers():
    X = np.array([[3e-200, 4e-200], [3e200, 4e200], [0, 0], [3, 4]])
    np.testing.assert_allclose(lengths_of(X), [5e-200, 5e200, 0, 5])


@pytest.mark.parametrize("way", SCALED)
def test_units_of_blocks_are_those_of_the_whole(way, monkeypatch):
    form = InputForm.of(WORDS)
    whole = Units.of(form, GAUSSIAN, WORDS, way)
    seen_whole = whole.to_model(WORDS, GAUSSIAN)
    monkeypatch.setattr(units, "BLOCK", 60 * 7)
    parts = Units.of(form, GAUSSIAN, WORDS, way)
    np.testing.assert_allclose(parts.scale, whole.scale, rtol=1e-12)
    np.testing.assert_allclose(parts.shift, whole.shift, rtol=1e-12)
    torch.testing.assert_close(parts.to_model(WORDS, GAUSSIAN), seen_whole)


# -- answers ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("way", ["none", "one", "feature"])
def test_scores_are_densities_in_the_units_of_x(way):
    """A normal distribution of independent features, whose density is known, scored as the model would see it."""
    found = Units.of(VECTOR, GAUSSIAN, TABLE, way)
    x = found.to_model(TABLE, GAUSSIAN).double()
    scale, shift = np.broadcast_to(found.scale, 4), np.broadcast_to(found.shift, 4)
    ours = torch.distributions.Normal(torch.tensor((3 * SPREADS - shift) / scale), torch.tensor(SPREADS / scale))
    theirs = torch.distributions.Normal(torch.tensor(3 * SPREADS), torch.tensor(SPREADS))
    told = found.log_density(ours.log_prob(x).sum(1).numpy(), 4)
    np.testing.assert_allclose(told, theirs.log_prob(torch.tensor(TABLE)).sum(1).numpy(), rtol=1e-4)


def test_scores_of_directions_are_densities_of_their_coordinates():
    found = Units.of(VECTOR, GAUSSIAN, TABLE, "unit")
    assert found.log_density(np.zeros(1), 4)[0] == pytest.approx(-4 * np.log(found.scale))


def test_a_feature_in_other_units_changes_scores_by_the_jacobian_alone():
    model, other = (fitted(X, scale="feature") for X in (TABLE, TABLE * [1, 1, 1, 1024]))
    more = np.log(1024)
    np.testing.assert_allclose(
        model.score_samples(TABLE), other.score_samples(TABLE * [1, 1, 1, 1024]) + more, atol=1e-3
    )
    np.testing.assert_allclose(
        model.reconstruct(TABLE) * [1, 1, 1, 1024], other.reconstruct(TABLE * [1, 1, 1, 1024]), 1e-4
    )


@pytest.mark.parametrize("model", [fitted(WORDS, scale="unit"), VAE(epochs=1, scale="unit", depth=1).fit(WORDS)])
def test_directions_do_not_depend_on_the_length_and_get_it_back(model):
    np.testing.assert_allclose(model.transform(WORDS), model.transform(8 * WORDS), atol=1e-5)
    np.testing.assert_allclose(model.score_samples(WORDS), model.score_samples(8 * WORDS), rtol=1e-4)
    np.testing.assert_allclose(model.reconstruct(8 * WORDS), 8 * model.reconstruct(WORDS), rtol=1e-3, atol=1e-4)
    bound, many = model.score_samples(WORDS), model.log_likelihood(WORDS, draws=50)
    assert many.mean() >= bound.mean() - 1e-3


def test_samples_of_directions_have_the_mean_length():
    model = fitted(WORDS, scale="unit")
    found = model.fitted_.decides.units
    assert found.length == pytest.approx(np.linalg.norm(WORDS, axis=1).mean())
    assert np.linalg.norm(model.sample(50), axis=1).mean() < 2 * found.length
    walks = model.fitted_.walk_samples(WORDS[:5]).shown
    twice = model.fitted_.walk_samples(2 * WORDS[:5]).shown
    assert walks.shape == (5, 2, 60)
    np.testing.assert_allclose(twice, 2 * walks, rtol=1e-3, atol=1e-5)
    assert model.sample_all_leaves(3).shape == (3, 2, 60)


def test_the_way_between_two_lengths_is_straight():
    model = fitted(WORDS, scale="unit")
    ends = np.stack([WORDS[0] + 1, 5 * (WORDS[0] + 1)])
    shown, _ = model.interpolate(ends, 3)
    np.testing.assert_allclose(
        shown / shown[0].sum(), np.array([1, 3, 5])[:, None] * shown[0] / shown[0].sum(), rtol=1e-3
    )


def test_a_sample_of_zeros_stays_one():
    X = WORDS.copy()
    X[3] = 0
    model = fitted(X, scale="unit")
    assert not model.reconstruct(X)[3].any()
    assert np.isfinite(model.score_samples(X)).all()


# -- what "auto" takes --------------------------------------------------------------------------------------------


def directions():
    X = CHANCE.normal(size=(100, 20))
    return X / np.linalg.norm(X, axis=1, keepdims=True)


@pytest.mark.parametrize(
    ("X", "way"),
    [
        (load_wine().data, "feature"),
        (load_breast_cancer().data, "feature"),
        (load_digits().data, "one"),
        (PCA(10).fit_transform(load_wine().data), "one"),  # loud, and as it should be
        (WORDS, "unit"),
        (WORDS + CHANCE.normal(size=WORDS.shape), "one"),
        (directions(), "unit"),
        (directions().astype(np.float16).astype(np.float32), "unit"),
        (CHANCE.normal(size=(100, 20)), "one"),
        (np.outer(CHANCE.normal(size=50), [1e6, 1]), "one"),  # of two features none is a few
        (np.ones((9, 3)), "one"),
    ],
)
def test_auto_takes_what_suits(X, way):
    assert suited(X) == way


def test_auto_sees_one_and_several_loud_features():
    assert list(loud_features(np.array([1.0, 99.0, 1.0, 1.0]))) == [1]
    assert list(loud_features(np.array([1.0, 10.0, 1.0, 1.0]))) == []
    assert list(loud_features(np.array([LOUD, 0.02, 0.03, 0.0]))) == []  # not more than that
    many = np.full(40, 0.1)
    many[[3, 5]] = 300, 200
    assert list(loud_features(many)) == [3, 5]
    assert list(loud_features(np.where(many > 1, 1, many))) == []


def test_variances_are_those_of_the_features():
    np.testing.assert_allclose(variances_of(TABLE), TABLE.var(axis=0))


def test_auto_leaves_all_but_vectors_under_a_learnt_spread():
    assert seen(TABLE).decides.units.way == "feature"
    assert seen(TABLE, likelihood="gaussian").decides.units.way == "none"
    assert seen(CHANCE.random((50, 6))).decides.units.way == "none"  # probabilities
    pictures = CHANCE.random((50, 8, 8))
    for likelihood in ("auto", "gaussian", "gaussian_learnt"):
        assert seen(pictures, likelihood=likelihood, network="mlp").decides.units.way == "none"


def test_what_was_chosen_can_be_seen(tmp_path):
    assert fitted(TABLE).scale_ == "feature"
    assert fitted(TABLE, scale="none").scale_ == "none"
    assert LadderVAE(epochs=1, depth=1).fit(TABLE).scale_ == "feature"
    np.save(tmp_path / "x.npy", TABLE)
    options = ["--n-leaves", "2", "--epochs", "1", "--n-init", "1", "--device", "cpu"]
    told = CliRunner().invoke(app, ["fit", str(tmp_path / "x.npy"), "-o", str(tmp_path / "run"), *options])
    assert told.exit_code == 0, told.output
    assert "each feature centred, and divided by its own spread (scale='feature')" in " ".join(told.output.split())
    assert (
        "scale       feature: each feature centred" in CliRunner().invoke(app, ["info", str(tmp_path / "run")]).output
    )
    other = ["fit", str(tmp_path / "x.npy"), "-o", str(tmp_path / "other"), *options, "--scale", "one"]
    said = " ".join(CliRunner().invoke(app, other).output.split())
    assert "samples are centred, and divided by one number (scale='one')" in said
    assert "set scale='feature'" in said


def test_nobody_is_warned_where_auto_has_done_it(recwarn):
    seen(TABLE)
    model = TreeVAE(**SMALL).fit(TABLE)
    assert model.scale_ == "feature"
    assert not [one for one in recwarn if "of the variance" in str(one.message)]


# -- what is asked for --------------------------------------------------------------------------------------------


def test_a_scale_of_values_in_0_1_asks_for_a_learnt_spread():
    X = CHANCE.random((50, 6))
    assert seen(X, scale="none").arch.likelihood == "bernoulli"
    assert seen(X, scale="feature").arch.likelihood == "gaussian_learnt"
    assert seen(X, scale="unit", likelihood="gaussian").arch.likelihood == "gaussian"


@pytest.mark.parametrize(
    ("X", "changes", "message"),
    [
        (TABLE, {"scale": "two"}, "scale='two'; allowed are 'auto', 'none', 'one', 'feature', 'unit'"),
        (TABLE, {"scale": None}, "scale=None; allowed are"),
        (
            CHANCE.random((50, 6)),
            {"scale": "one", "likelihood": "bernoulli"},
            "leave scale at 'auto', or set likelihood",
        ),
        (CHANCE.random((50, 8, 8)), {"scale": "unit"}, "X holds images, whose pixels keep their range"),
        (TABLE * 1e300, {"scale": "feature"}, "whose squares overflow"),
        (TABLE * 1e-300, {"scale": "feature"}, "less than float32 can tell apart"),
    ],
)
def test_what_cannot_be_is_refused(X, changes, message):
    with pytest.raises(ValueError, match=message):
        seen(X, **changes)


def test_deepect_is_left_as_it_was():
    model = DeepECT(2, pretrain_epochs=1, epochs=1, likelihood="gaussian", random_state=0)
    assert model.fit(TABLE / SPREADS).labels_.shape == (200,)


def test_it_is_a_parameter_like_any_other():
    model = TreeVAE(scale="unit")
    assert clone(model).get_params()["scale"] == "unit"
    assert VAE(scale="feature").get_params()["scale"] == "feature"
    assert TreeVAE().scale == TreeVAE.recipe("mnist").scale == "auto"


# -- the study ----------------------------------------------------------------------------------------------------


def test_what_is_said_of_the_study_stands_in_its_record():
    lines = (ROOT / "benchmarks" / "results" / "scale.jsonl").read_text().splitlines()
    found, trees, chosen = defaultdict(list), defaultdict(list), {}
    for line in map(json.loads, lines):
        chosen[line["data"]] = line["auto"]
        (found if line["method"] == "kmeans" else trees)[line["data"], line["way"]].append(
            line["scores_percent"]["NMI"]
        )
    assert {len(seeds) for seeds in found.values()} == {3}
    nmi = {fit: np.mean(seeds) for fit, seeds in found.items()}
    (said,) = (one for one in (ROOT / "docs" / "evidence" / "records.md").read_text().split("\n") if "13 sets" in one)
    assert len(chosen) == 13
    for data in ("wine", "breast_cancer", "bladder_counts", "news20_counts"):
        assert f"{nmi[data, 'one']:.1f} → {nmi[data, chosen[data]]:.1f}" in said
    gains = {data: nmi[data, "unit"] - nmi[data, "one"] for data, way in chosen.items() if way == "one"}
    for data in ("mice", "bladder"):
        assert f"{gains.pop(data):.1f} more" in said
    assert f"within {max(map(abs, gains.values())):.1f}" in said
    assert f"{np.mean(trees['wine', 'one']):.1f} → {np.mean(trees['wine', 'feature']):.1f}" in said
    own = {data: nmi[data, "feature"] - nmi[data, "one"] for data in chosen}
    assert f"take {-own['cifar10_features']:.1f} from" in said
    assert f"give letters {own['letter']:.1f}" in said


# -- files --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("way", list(WAYS))
def test_a_saved_model_answers_as_before(way, tmp_path):
    model = fitted(WORDS, scale=way, likelihood=GAUSSIAN)
    model.save(tmp_path / "m")
    again = load(tmp_path / "m", device="cpu")
    assert (again.scale, again.scale_) == (way, way)
    for ask in ("score_samples", "reconstruct", "predict"):
        np.testing.assert_array_equal(getattr(model, ask)(WORDS), getattr(again, ask)(WORDS))
    np.testing.assert_array_equal(model.sample(4, random_state=1), again.sample(4, random_state=1))


def test_a_file_that_tells_no_way_has_one_number(tmp_path):
    """As earlier versions wrote them."""
    model = fitted(TABLE, scale="one")
    model.save(tmp_path / "m")
    about, tensors = files.read(tmp_path / "m")
    del about["way"], about["length"], about["parameters"]["scale"]
    files.write(tmp_path / "old", {name: value for name, value in about.items() if name != "format"}, tensors)
    old = load(tmp_path / "old", device="cpu")
    assert (old.scale, old.scale_) == ("auto", "one")
    np.testing.assert_array_equal(old.score_samples(TABLE), model.score_samples(TABLE))


@pytest.mark.parametrize(
    ("told", "scales"),
    [
        ({"way": "two"}, None),
        ({"way": ["one"]}, None),
        ({"way": "feature", "scale": 1.0}, None),
        ({}, torch.ones(3)),
        ({}, torch.tensor([1.0, 0.0, 1.0, 1.0])),
        ({}, torch.tensor([1.0, torch.nan, 1.0, 1.0])),
        ({"way": "one"}, torch.ones(4)),
        ({"length": -1.0}, None),
        ({"length": "long"}, None),
        ({"scale": 2.0}, torch.ones(4)),
    ],
)
def test_units_that_lie_are_refused(told, scales, tmp_path):
    fitted(TABLE, scale="feature").save(tmp_path / "m")
    about, tensors = files.read(tmp_path / "m")
    if scales is not None:
        tensors["scale"] = scales.double()
    files.write(tmp_path / "m", {name: value for name, value in (about | told).items() if name != "format"}, tensors)
    with pytest.raises(ModelFileError, match="does not hold together"):
        load(tmp_path / "m", device="cpu")


def test_a_run_goes_on_with_the_same_scale_only(tmp_path):
    """What was chosen counts, and not whether it was asked for by name."""

    def part(**changes):
        return TreeVAE(**SMALL | changes).fit(TABLE, checkpoint=tmp_path / "run", callback=lambda event: False)

    part()
    part(scale="feature")
    with (
        pytest.raises(ChangedRunError, match="scale: 'feature' before, now absent"),
        pytest.warns(UserWarning, match="of the variance"),
    ):
        part(scale="one")
