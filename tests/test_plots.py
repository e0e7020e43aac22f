"""The picture of a tree: its data without matplotlib, and that nothing in it collides."""

import sys
from itertools import combinations
from typing import Any, cast

import numpy as np
import pytest
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure

from treevae import Tree, TreeVAE
from treevae.describe.contrasts import leaf_attributes, leaf_words, split_attributes, split_classes, split_words
from treevae.describe.images import leaf_cards
from treevae.pictures.branches import Branches, branch, node_colours
from treevae.pictures.canvas import percent
from treevae.pictures.plots import attribute_picture, tree_picture, word_picture


def chain(n_leaves: int, right: bool) -> Tree:
    """A tree that splits its outermost leaf again and again."""
    tree = Tree()
    while len(tree.leaves) < n_leaves:
        tree = tree.split(tree.leaves[-1 if right else 0])
    return tree


def balanced(n_leaves: int) -> Tree:
    tree = Tree()
    while len(tree.leaves) < n_leaves:
        tree = tree.split(min(tree.leaves))
    return tree


UNEVEN = Tree().split(0).split(1).split(3).split(2)
TREES = {
    "lone root": Tree(),
    "two leaves": Tree().split(0),
    "uneven": UNEVEN,
    "one-child nodes": UNEVEN.prune(8).prune(5),
    "one-child root": Tree().split(0).prune(1).split(2),
    "ten": balanced(10),
    "twenty": balanced(20),
    "to the left": chain(20, right=False),
    "to the right": chain(20, right=True),
}
Grey = tuple[TreeVAE, np.ndarray]


class Fake:
    """As much of a fitted TreeVAE as a picture asks for; its leaves win about equally many samples."""

    def __init__(self, tree: Tree, X: np.ndarray) -> None:
        self.tree_ = tree
        self.shape = X.shape[1:]
        self.reach = np.random.default_rng(0).dirichlet(np.ones(len(tree.leaves)), len(X))

    def predict_proba(self, X: np.ndarray) -> np.ndarray:
        return self.reach

    def predict(self, X: np.ndarray) -> np.ndarray:
        return self.reach.argmax(1)

    def sample(self, n: int, leaf: int, random_state: np.random.RandomState) -> np.ndarray:
        return random_state.uniform(size=(n, *self.shape)).astype(np.float32)


def fake(tree: Tree, X: np.ndarray) -> TreeVAE:
    return cast(TreeVAE, Fake(tree, X))


def images(*shape: int, n: int = 40) -> np.ndarray:
    return np.random.default_rng(1).uniform(size=(n, *shape)).astype(np.float32)


def bags(n_words: int, n: int) -> np.ndarray:
    """Weights of words; a text has about a third of them."""
    weights = images(n_words, n=n)
    return np.where(weights < 1 / 3, weights, 0)


def fitted(X: np.ndarray, tree: Tree) -> TreeVAE:
    return TreeVAE(tree=tree, epochs=1, latent_dim=2, hidden_dim=4, network="mlp", random_state=0).fit(X)


def drawn(figure: Figure) -> np.ndarray:
    assert isinstance(figure.canvas, FigureCanvasAgg)  # and no window of pyplot's
    figure.canvas.draw()
    return np.asarray(figure.canvas.buffer_rgba())


def texts(figure: Figure) -> list[str]:
    """The texts in the figure."""
    return [text.get_text() for text in figure.axes[0].texts]


def assert_legible(figure: Figure) -> None:
    """No text overlaps another, leaves the page or is smaller than 8 points."""
    boxes = {text: text.get_window_extent() for text in figure.axes[0].texts}
    for (one, box), (other, its_box) in combinations(boxes.items(), 2):
        assert not box.overlaps(its_box), (one, other)
    for text, box in boxes.items():
        assert text.get_fontsize() >= 8
        assert figure.bbox.x0 <= box.x0 <= box.x1 <= figure.bbox.x1, text
        assert figure.bbox.y0 <= box.y0 <= box.y1 <= figure.bbox.y1, text


def shown(figure: Figure) -> list[np.ndarray]:
    """The images in the figure."""
    return [np.asarray(image.get_array()) for image in figure.axes[0].images]


@pytest.fixture(scope="module")
def grey() -> Grey:
    X = images(12, 12)
    return fitted(X, UNEVEN.prune(8)), X


# -- what is drawn ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("tree", TREES.values(), ids=TREES)
def test_parents_stand_above_the_middle_of_their_children_and_leaves_in_equal_steps(tree: Tree) -> None:
    branches = Branches.of(tree, np.zeros(1, dtype=int))
    assert [branches.x[leaf] for leaf in tree.leaves] == list(range(len(tree.leaves)))
    for node in tree.nodes:
        for child in tree.children(node):
            assert branches.depth[child] == branches.depth[node] + 1
        if tree.children(node):
            assert branches.x[node] == np.mean([branches.x[child] for child in tree.children(node)])
    for level in tree.levels:
        assert list(np.diff([branches.x[node] for node in level]) >= 1) == [True] * (len(level) - 1)


def test_shares_are_those_of_predict(grey: Grey) -> None:
    model, X = grey
    branches = Branches.of(model.tree_, model.predict(X))
    for level in range(model.tree_.height + 1):
        groups = model.predict(X, level=level)
        for group, node in enumerate(model.tree_.cut(level)):
            assert branches.share[node] == np.mean(groups == group)


def test_a_card_shows_the_most_typical_samples_that_its_leaf_wins_and_names_their_main_class() -> None:
    X = np.linspace(0, 1, 8, dtype=np.float32)[:, None, None] * np.ones((8, 3, 3), dtype=np.float32)
    model = fake(Tree().split(0), X)
    left = np.array([0.9, 0.1, 0.8, 0.7, 0.6, 0.2, 0.95, 0.55])
    reach = np.column_stack([left, 1 - left])
    classes = np.array(["a", "b", "a", "a", "c", "b", "c", "c"])
    first, second = leaf_cards(model, X, reach, classes, n_real=3, n_generated=2, random_state=0)
    assert (first.share, second.share) == (0.75, 0.25)
    assert (first.main_class, first.purity) == ("a", 0.5)
    assert (second.main_class, second.purity) == ("b", 1.0)
    np.testing.assert_allclose(first.real[:, 0, 0, 0], X[[6, 0, 2], 0, 0])  # highest q(leaf|x) first
    np.testing.assert_allclose(second.real[:, 0, 0, 0], X[[1, 5], 0, 0])  # all it has
    assert first.generated.shape == (2, 3, 3, 3)


def test_a_leaf_without_samples_has_an_empty_card() -> None:
    X = images(3, 3, n=4)
    reach = np.tile([1.0, 0.0], (4, 1))
    card = leaf_cards(fake(Tree().split(0), X), X, reach, np.full(4, "a"), 3, 2, 0)[1]
    assert (card.share, card.main_class, len(card.real), len(card.generated)) == (0, None, 0, 2)


def test_the_two_sides_of_the_first_split_have_their_own_hue_and_every_leaf_its_own_shade() -> None:
    tree = TREES["one-child root"].split(3).split(4)
    colours = node_colours(tree)
    sides = [[colours[leaf] for leaf in tree.leaves_below(node)] for node in tree.children(2)]
    assert all(blue > red for red, _, blue in sides[0])
    assert all(red > blue for red, _, blue in sides[1])
    assert len({tuple(colours[leaf]) for leaf in tree.leaves}) == len(tree.leaves)
    assert np.ptp(colours[0]) < 0.1  # the way to the first split is grey


def test_a_branch_leaves_and_arrives_upright() -> None:
    points = branch((1.0, 0.0), (3.0, 1.0), 2.5)
    np.testing.assert_allclose(points[[1, -2, -1]], np.array([[1, 0], [3, 1], [3, 2.5]]))
    assert (np.diff(points[:, 1]) > 0).all()
    slopes = np.abs(np.diff(points[:, 0]) / np.diff(points[:, 1]))
    assert max(slopes[0], slopes[1], slopes[-2], slopes[-1]) < 0.1


# -- the drawing ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("upright", [True, False], ids=["upright", "lying"])
@pytest.mark.parametrize("names", [None, ["cat", "a dog of a long name, and that of its owner"]], ids=["bare", "named"])
@pytest.mark.parametrize("tree", TREES.values(), ids=TREES)
def test_pictures_of_images_are_legible(tree: Tree, names: list[str] | None, upright: bool) -> None:
    X = images(4, 4, n=400)
    y = None if names is None else np.arange(400) % 2
    assert_legible(tree_picture(fake(tree, X), X, y, names, n_real=3, n_generated=3, upright=upright))


@pytest.mark.parametrize("tree", TREES.values(), ids=TREES)
def test_pictures_of_words_are_legible(tree: Tree) -> None:
    X = bags(30, n=400)
    names = [f"{'antidisestablishmentarianism'[: 3 + k]}{k}" for k in range(30)]
    classes = ["comp.graphics", "talk.politics.in.a.land.far.away"]
    assert_legible(word_picture(fake(tree, X), X, names, np.arange(400) % 2, classes))


@pytest.mark.parametrize("tree", TREES.values(), ids=TREES)
def test_pictures_of_attributes_are_legible(tree: Tree) -> None:
    X = images(4, 4, n=400)
    has = np.random.default_rng(2).uniform(size=(400, 9)) < 0.3
    names = ["Male", "5_o_Clock_Shadow", "Wearing_Something_That_Has_No_Name", *"abcdef"]
    assert_legible(attribute_picture(fake(tree, X), X, has, names))


def test_many_leaves_lie_so_that_their_images_keep_their_size() -> None:
    X = images(32, 32, 3, n=400)
    for tree, usual in ((balanced(10), (15, 9)), (balanced(11), (10, 5)), (balanced(30), (10, 5))):
        (axes,) = tree_picture(fake(tree, X), X).axes
        sizes = np.bincount(fake(tree, X).predict(X))
        assert len(axes.images) == np.minimum(sizes, usual[0]).sum() + usual[1] * len(sizes)
        assert min(image.get_window_extent().width for image in axes.images) > 32  # pixels of the picture


def test_a_lying_picture_names_the_classes_of_leaves_and_of_inner_nodes() -> None:
    X, y = images(4, 4, n=400), np.random.default_rng(3).integers(3, size=400)
    model, names = fake(TREES["twenty"], X), ["cat", "dog", "owl"]
    found = texts(tree_picture(model, X, y, names))
    labels = model.predict(X)
    for k in range(20):
        counts = np.bincount(y[labels == k], minlength=3)
        assert names[counts.argmax()] in found
        assert percent(counts.max() / counts.sum()) in found
    notes = split_classes(model.tree_, labels, np.array(names)[y])
    assert {", ".join(notes[node]) for node in model.tree_.routers[1:]} <= set(found)


def test_a_picture_of_words_holds_the_words_of_leaves_and_of_inner_nodes() -> None:
    X = bags(12, n=100)
    model, names = fake(UNEVEN, X), [f"w{k}" for k in range(12)]
    figure = word_picture(model, X, names, np.arange(100) % 2, ["left", "right"], n_words=4)
    found, labels = texts(figure), model.predict(X)
    assert {"100 texts", "cluster", "share", "main class", "purity", "words"} <= set(found)
    assert {"  ".join(words) for words in leaf_words(UNEVEN, labels, X, names, 4)} <= set(found)
    notes = split_words(UNEVEN, labels, X, names)
    assert {", ".join(notes[node]) for node in UNEVEN.routers[1:]} <= set(found)
    assert not figure.axes[0].images
    drawn(figure)


def test_words_that_do_not_fit_are_left_out_from_the_last() -> None:
    X = bags(6, n=100)
    names = [k * 18 for k in "abcdef"]
    found = texts(word_picture(fake(UNEVEN, X), X, names, n_words=4))
    words = leaf_words(UNEVEN, fake(UNEVEN, X).predict(X), X, names, 4)
    assert {row[0] for row in words} <= set(found)
    assert not {"  ".join(row) for row in words if len(row) > 1} & set(found)


def test_a_picture_of_attributes_tells_both_shares_and_shows_no_sample() -> None:
    X = images(4, 4, n=100)
    has = np.random.default_rng(2).uniform(size=(100, 5)) < 0.3
    model, names = fake(UNEVEN, X), ["Wavy_Hair", "Hat", "Male", "Young", "Bald"]
    figure = attribute_picture(model, X, has, names, n_attributes=3)
    found, labels = texts(figure), model.predict(X)
    assert "100 samples" in found
    for row in leaf_attributes(UNEVEN, labels, has, names, 3):
        for name, inside, overall in row:
            assert name.replace("_", " ") in found
            assert f"{percent(inside)} ({percent(overall)})" in found
    notes = split_attributes(UNEVEN, labels, has, [name.replace("_", " ") for name in names])
    assert {", ".join(notes[node]) for node in UNEVEN.routers[1:]} <= set(found)
    assert not figure.axes[0].images
    drawn(figure)


@pytest.mark.parametrize(
    ("share", "text"), [(0, "0 %"), (0.001, "<1 %"), (0.005, "<1 %"), (0.006, "1 %"), (1, "100 %")]
)
def test_shares_in_per_cent(share: float, text: str) -> None:
    assert percent(share) == text


def test_ten_leaves_are_1600_pixels_wide() -> None:
    X = images(4, 4)
    figure = tree_picture(fake(TREES["ten"], X), X, n_real=3, n_generated=3)
    assert figure.bbox.width == pytest.approx(1600, abs=10)


def test_the_picture_of_grey_images_tells_number_share_class_and_holds_all_images(grey: Grey) -> None:
    model, X = grey
    y = np.arange(len(X)) % 2
    figure = tree_picture(model, X, y, ["cat", "dog"], n_real=4, n_generated=5)
    (axes,) = figure.axes
    labels = model.predict(X)
    sizes = np.bincount(labels, minlength=len(model.tree_.leaves))
    found = set(texts(figure))
    assert {"40 images", "cluster", "share", "main class", "purity", "real", "generated"} <= found
    assert {str(k) for k in range(len(sizes))} <= found
    assert {f"{100 * size / 40:.0f} %" for size in sizes} <= found
    assert {"cat", "dog"} & found
    assert len(axes.images) == np.minimum(sizes, 4).sum() + 5 * len(sizes)


@pytest.mark.parametrize("upright", [True, False], ids=["upright", "lying"])
def test_branches_are_as_wide_as_their_share(upright: bool) -> None:
    X = images(4, 4, n=100)
    model = fake(UNEVEN, X)
    (axes,) = tree_picture(model, X, n_real=3, n_generated=3, upright=upright).axes
    branches = Branches.of(UNEVEN, model.predict_proba(X).argmax(1))
    widths = sorted(line.get_linewidth() for line in axes.lines if line.get_marker() == "None")
    shares = sorted(branches.share[node] for node in UNEVEN.nodes[1:])
    np.testing.assert_allclose(np.array(widths) / widths[-1], np.array(shares) / shares[-1])


def test_the_same_seed_draws_the_same_picture(grey: Grey) -> None:
    model, X = grey
    one, same, other = (drawn(tree_picture(model, X, n_real=3, n_generated=3, random_state=seed)) for seed in (0, 0, 1))
    assert (one == same).all()
    assert (one != other).any()


@pytest.mark.parametrize("shape", [(3, 6, 8), (6, 8, 3), (6, 8, 4), (6, 8, 1)], ids=str)
def test_colour_images_in_any_layout(shape: tuple[int, ...]) -> None:
    X = images(*shape)
    X = (X * 255).astype(np.uint8) if shape[0] == 3 else X
    figure = tree_picture(fitted(X, Tree().split(0)), X, n_real=3, n_generated=3)
    drawn(figure)
    assert {image.shape for image in shown(figure)} == {(6, 8, 4 if shape[2] == 4 else 3)}


def test_pixels_outside_0_to_1_are_brought_there() -> None:
    X = images(4, 4) * 6 - 3
    values = np.array(shown(tree_picture(fake(Tree().split(0), X), X, n_real=30, n_generated=3)))
    assert 0 <= values.min() < 0.1
    assert 0.9 < values.max() <= 1


# -- refusals ---------------------------------------------------------------------------------------------------


def test_vectors_are_refused() -> None:
    X = images(6)
    with pytest.raises(ValueError, match="the picture needs images"):
        tree_picture(fitted(X, Tree().split(0)), X)


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        ({"n_real": 0}, "n_real=0 must be"),
        ({"n_generated": 1.5}, "n_generated=1.5 must be"),
        ({"y": [0, 1]}, r"y has shape \(2,\)"),
        (
            {"y": np.full(40, 2), "class_names": ["cat", "dog"]},
            "y holds 2; the 2 class_names are for the whole numbers from 0 to 1",
        ),
        ({"y": np.full(40, "cat"), "class_names": ["cat", "dog"]}, "y holds cat; the 2 class_names"),
    ],
)
def test_wrong_arguments_are_named(grey: Grey, wrong: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        tree_picture(*grey, **wrong)


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        ({"n_words": 0}, "n_words=0 must be"),
        ({"names": ["a"]}, "X has 6 columns, but there are 1 names"),
        ({"y": [0, 1]}, r"y has shape \(2,\)"),
    ],
)
def test_wrong_arguments_of_a_picture_of_words_are_named(wrong: dict[str, Any], message: str) -> None:
    X = images(6)
    with pytest.raises(ValueError, match=message):
        word_picture(fake(UNEVEN, X), X, **{"names": list("abcdef")} | wrong)


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        ({"n_attributes": 2.0}, "n_attributes=2.0 must be"),
        ({"names": list("abc")}, "attributes has 2 columns, but there are 3 names"),
        ({"attributes": np.ones((3, 2))}, r"labels has shape \(40,\); with 3 samples"),
        ({"attributes": np.full((40, 2), 0.5)}, "attributes holds 0.5"),
    ],
)
def test_wrong_arguments_of_a_picture_of_attributes_are_named(wrong: dict[str, Any], message: str) -> None:
    X = images(4, 4)
    with pytest.raises(ValueError, match=message):
        attribute_picture(fake(UNEVEN, X), X, **{"attributes": np.ones((40, 2)), "names": ["a", "b"]} | wrong)


def test_without_matplotlib_the_remedy_is_named(grey: Grey, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "matplotlib.backends.backend_agg", None)
    with pytest.raises(ImportError, match=r"pip install 'treevae\[view\]'"):
        tree_picture(*grey)
