"""What the bundle shows of the samples: pictures, words and names, and what tells children apart."""

import io
from collections.abc import Callable

import numpy as np
import pandas
import pytest
from bundles import X, Y, fitted, fitted_well, members, node_of, tile
from PIL import Image

from treevae import Tree, TreeVAE
from treevae.describe.cards import FeatureCards
from treevae.describe.naming import by_class, by_marks, feature_marks, numbered, word_marks
from treevae.describe.splits import difference_image, word_rows
from treevae.page.facts import LADDER
from treevae.page.snapshot import snapshot
from treevae.page.sprites import Sprites, png, reduced


@pytest.fixture(scope="module")
def model() -> TreeVAE:
    return fitted_well()


@pytest.fixture(scope="module")
def bundle(model: TreeVAE) -> dict:
    return snapshot(model, X, Y, title="digits", map_method="pca").bundle


# -- what tells children apart ----------------------------------------------------------------------------------


def test_pictures_are_the_samples(model: TreeVAE, bundle: dict) -> None:
    for i in (0, 7, 239):
        np.testing.assert_allclose(tile(bundle, bundle["samples"]["sprite"][i])[..., 0], X[i], atol=0.003)
    leaf = node_of(bundle, 4)
    dreamt = model.sample(LADDER[0].generated, leaf=leaf["leaf"], random_state=0)
    for number, image in zip(leaf["generated"], dreamt, strict=True):
        np.testing.assert_allclose(tile(bundle, number)[..., 0], image.clip(0, 1), atol=0.003)


def test_splits_of_images_are_mean_images_and_their_difference(model: TreeVAE, bundle: dict) -> None:
    for node in model.tree_.routers:
        left, right = (X[members(model, child)].mean(0) for child in model.tree_.children(node))
        split = node_of(bundle, node)["split"]
        np.testing.assert_allclose(tile(bundle, split["left"])[..., 0], left, atol=0.003)
        np.testing.assert_allclose(tile(bundle, split["right"])[..., 0], right, atol=0.003)
        gap, shown = left - right, tile(bundle, split["difference"])
        assert (shown[gap > 0.02][:, 2] >= shown[gap > 0.02][:, 0]).all()  # blue where the left is brighter
        assert (shown[gap < -0.02][:, 0] >= shown[gap < -0.02][:, 2]).all()  # orange where the right is
    assert all(one["split"] is None for one in bundle["nodes"] if not one["children"])


def test_a_difference_of_nothing_is_white() -> None:
    same = np.full((2, 2, 1), 0.5)
    np.testing.assert_array_equal(difference_image(same, same), np.ones((2, 2, 3)))


def test_splits_of_tables_are_ranked_by_standardised_difference() -> None:
    table = (
        np.random.default_rng(0).normal(size=(300, 5)) * [1, 10, 1, 1, 0]
        + np.eye(5)[0] * 4 * (np.arange(300) < 150)[:, None]
    )
    frame = pandas.DataFrame(table, columns=["size", "weight", "age", "height", "constant"])
    model = fitted(frame, Tree().split(0), epochs=3, network="auto", learning_rate=0.02)
    bundle = snapshot(model, frame, map_method="pca").bundle
    labels = model.predict(frame)
    (left, right), spread = (table[labels == 0].mean(0), table[labels == 1].mean(0)), table.std(0)
    wanted = {name: (left[i] - right[i]) / spread[i] for i, name in enumerate(frame.columns) if spread[i]}
    rows = node_of(bundle, 0)["split"]["rows"]
    assert bundle["kind"] == "table"
    assert bundle["features"] == list(frame.columns)
    assert [row["name"] for row in rows] == sorted(wanted, key=lambda name: -abs(wanted[name]))
    for row in rows:
        i = frame.columns.get_loc(row["name"])
        assert (row["left"], row["right"], row["difference"]) == pytest.approx(
            (left[i], right[i], wanted[row["name"]]), rel=1e-3
        )
    card = bundle["samples"]["card"][3]
    assert [one["name"] for one in card] == list(frame.columns)
    assert [one["value"] for one in card] == pytest.approx(table[bundle["samples"]["row"][3]], rel=0.01, abs=1e-6)


@pytest.fixture(scope="module")
def texts() -> tuple[np.ndarray, list[str]]:
    chance = np.random.default_rng(1)
    weights = chance.uniform(0.2, 1, size=(240, 12)) * (chance.uniform(size=(240, 12)) < 0.25)
    weights[:120, :3] += 0.5
    return weights.clip(0, 1), [f"word{i}" for i in range(11)] + ["<script>alert(1)</script>"]


def test_texts_have_words(texts: tuple[np.ndarray, list[str]]) -> None:
    weights, words = texts
    model = fitted(weights, Tree().split(0), epochs=2, network="auto", learning_rate=0.01)
    bundle = snapshot(model, weights, names=words, map_method="pca").bundle
    assert bundle["kind"] == "words"
    labels = model.predict(weights)
    (found,) = word_rows(model.tree_, labels, weights, words, 8).values()
    assert [row["name"] for row in node_of(bundle, 0)["split"]["rows"]] == [row["name"] for row in found]
    for row in found:
        i = words.index(row["name"])
        left, right = weights[labels == 0, i].mean(), weights[labels == 1, i].mean()
        assert (row["left"], row["right"]) == pytest.approx((left, right))
        assert np.sign(row["difference"]) == np.sign(left - right)
    frequency = (weights > 0).mean(0)
    for row, card in zip(bundle["samples"]["row"], bundle["samples"]["card"], strict=True):
        says = weights[row] * np.log(1 / frequency)
        wanted = [words[i] for i in np.argsort(-says, kind="stable")[:8] if says[i] > 0]
        assert [one["name"] for one in card] == wanted


def test_attributes_of_splits_are_frequencies(model: TreeVAE) -> None:
    has = np.column_stack([Y % 2 == 0, Y < 5, np.ones(240)])
    names = ["even", "small", "all"]
    bundle = snapshot(model, X, attributes=has, attribute_names=names, map_method="pca").bundle
    for node in model.tree_.routers:
        rows = {row["name"]: row for row in node_of(bundle, node)["attributes"]}
        assert "all" not in rows
        left, right = (has[members(model, child)].mean(0) for child in model.tree_.children(node))
        for name, row in rows.items():
            i = names.index(name)
            assert (row["left"], row["right"]) == pytest.approx((left[i], right[i]), rel=1e-3)


# -- names, walks, history, pruned trees ------------------------------------------------------------------------


def test_names_tell_what_is_known() -> None:
    tree, labels = Tree().split(0).split(1), np.array([0] * 4 + [1] * 4 + [2] * 4)
    assert numbered(tree) == {0: "All samples", 1: "Clusters 0–1", 2: "Cluster 2", 3: "Cluster 0", 4: "Cluster 1"}
    classes = np.array(list("aaab") + list("abcc") + list("wxyz"))
    assert by_class(tree, labels, classes) == {1: "a, b, c", 3: "a", 4: "c", 2: "w, x"}
    mixed = np.array(list("abcdefgh"))
    assert by_class(Tree(), np.zeros(8, dtype=int), mixed) == {}  # no three of them make up half
    values = np.array([[0.0, 5], [0, 5], [9, 5], [9, 6]])
    marks = feature_marks(Tree().split(0), np.array([0, 0, 1, 1]), values, ["a", "b"], 2)
    assert by_marks(marks) == {1: "a ↓, b ↓", 2: "a ↑, b ↑"}
    assert by_marks(word_marks(Tree().split(0), np.array([0, 0, 1, 1]), values, ["a", "b"], 2)) == {2: "a"}


# -- pictures, and what is refused ------------------------------------------------------------------------------


def test_png_is_what_pillow_reads() -> None:
    chance = np.random.default_rng(0)
    for channels in (1, 3):
        pixels = chance.integers(256, size=(9, 7, channels), dtype=np.uint8)
        np.testing.assert_array_equal(np.asarray(Image.open(io.BytesIO(png(pixels)))).reshape(pixels.shape), pixels)


def test_large_pictures_become_small_tiles() -> None:
    image = np.arange(36, dtype=float).reshape(1, 6, 6, 1)
    np.testing.assert_array_equal(reduced(image, 2)[0, 0, :, 0], [3.5, 5.5, 7.5])
    sprites = Sprites(100, 150, 64)
    assert sprites.tile == (34, 50)
    assert sprites.add(np.ones((2, 100, 150, 4))) == [0, 1]
    assert len(sprites) == 2


@pytest.mark.parametrize("turn", [lambda x: x, lambda x: np.moveaxis(x, 3, 1), lambda x: (x * 255).astype(np.uint8)])
def test_colour_images_in_any_layout(turn: Callable[[np.ndarray], np.ndarray]) -> None:
    colour = np.random.default_rng(0).uniform(size=(60, 8, 8, 3)).astype(np.float32)
    model = fitted(turn(colour), Tree().split(0), batch_size=6)
    bundle = snapshot(model, turn(colour), map_method="pca").bundle
    assert bundle["image"] == {"height": 8, "width": 8, "channels": 3}
    np.testing.assert_allclose(tile(bundle, bundle["samples"]["sprite"][5]), colour[5], atol=0.006)


def test_cards_of_float32_keep_their_digits() -> None:
    rows = (1000 + np.random.default_rng(0).normal(0, 0.05, (40_000, 2))).astype(np.float32)
    cards, exact = FeatureCards.of(rows, ["a", "b"]), rows.astype(np.float64)
    z = (exact[0] - exact.mean(0)) / exact.std(0)
    assert [entry["z"] for entry in cards.card(rows[0], [0, 1])] == pytest.approx(z, abs=0.006)
