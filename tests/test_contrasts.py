"""What sets parts of a tree apart, against counts made sample by sample."""

from math import log, sqrt
from typing import Any

import numpy as np
import pytest
import scipy.sparse

from treevae import Tree
from treevae.describe.contrasts import (
    Frequency,
    attribute_contrast,
    leaf_attributes,
    leaf_words,
    main_classes,
    split_attributes,
    split_classes,
    split_words,
    word_contrast,
)

TREE = Tree().split(0).split(1).split(3).split(2)  # leaves 5, 6, 4, 7, 8
RNG = np.random.default_rng(0)
LABELS = RNG.integers(5, size=60)
WEIGHTS = RNG.uniform(size=(60, 14)) * (RNG.uniform(size=(60, 14)) < RNG.uniform(0.1, 1, size=14))
WORDS = [f"w{j}" for j in range(14)]
HAS = RNG.uniform(size=(60, 7)) < RNG.uniform(0.05, 0.9, size=7)
NAMES = [f"a{j}" for j in range(7)]


def members(node: int) -> list[int]:
    """The samples of a node."""
    return [i for i, k in enumerate(LABELS) if TREE.leaves[k] in TREE.leaves_below(node)]


def mean(values: np.ndarray, samples: list[int], j: int) -> float:
    return sum(float(values[i, j]) for i in samples) / len(samples)


def words_apart(inside: list[int], outside: list[int], n: int) -> list[str]:
    """The words with the largest contrast, by the formula in the docstring of leaf_words."""
    everything = list(range(60))
    s = sum(mean(WEIGHTS, everything, j) for j in range(14)) / 14
    contrast = {}
    for j, word in enumerate(WORDS):
        a, b = mean(WEIGHTS, inside, j), mean(WEIGHTS, outside, j)
        f = sum(WEIGHTS[i, j] > 0 for i in everything) / 60
        if a > b and f < 1:
            contrast[word] = (a - b) * log((a + s) / (b + s)) * log(1 / f)
    return sorted(contrast, key=contrast.__getitem__, reverse=True)[:n]


def siblings() -> list[tuple[int, int]]:
    pairs = [TREE.children(router) for router in TREE.routers]
    return [pair for a, b in pairs for pair in ((a, b), (b, a))]


def test_words_of_leaves_are_those_of_the_formula() -> None:
    rest = [[i for i in range(60) if LABELS[i] != k] for k in range(5)]
    wanted = [words_apart(members(leaf), rest[k], 4) for k, leaf in enumerate(TREE.leaves)]
    assert leaf_words(TREE, LABELS, WEIGHTS, WORDS, n=4) == wanted
    assert leaf_words(TREE, LABELS, scipy.sparse.csr_matrix(WEIGHTS), WORDS, n=4) == wanted


def test_words_of_splits_are_those_of_the_formula() -> None:
    wanted = {node: words_apart(members(node), members(sibling), 3) for node, sibling in siblings()}
    assert split_words(TREE, LABELS, WEIGHTS, WORDS, n=3) == wanted


def test_stop_words_rare_words_and_signs_do_not_come_before_the_topic() -> None:
    # 20 messages, the first 10 on space: they are longer, so that their stop-words weigh more; one is from Bob
    the = np.r_[np.full(10, 0.5), np.full(10, 0.2)]
    space = np.r_[np.full(10, 0.15), np.zeros(9), 0.02]
    bob = np.r_[0.3, np.zeros(19)]
    line = np.r_[np.full(10, 0.9), np.zeros(10)]
    X = np.column_stack([the, bob, space, line])
    labels = np.repeat([0, 1], 10)
    first, second = leaf_words(Tree().split(0), labels, X, ["the", "bob", "space", "___"])
    assert first == ["space", "bob"]
    assert second == []


def test_the_contrast_of_a_word_is_0_where_it_is_not_heavier_inside() -> None:
    found = word_contrast(np.array([0.2, 0.1, 0.0]), np.array([0.1, 0.2, 0.0]), 0.1, np.array([0.5, 0.5, 0.0]))
    np.testing.assert_allclose(found, [0.1 * log(0.3 / 0.2) * log(2), 0, 0])


def test_attributes_of_leaves_are_those_of_the_formula() -> None:
    found = leaf_attributes(TREE, LABELS, HAS, NAMES, n=4)
    for leaf, row in zip(TREE.leaves, found, strict=True):
        both = {name: (mean(HAS, members(leaf), j), mean(HAS, list(range(60)), j)) for j, name in enumerate(NAMES)}
        size = {name: abs(p - q) / sqrt(q * (1 - q)) for name, (p, q) in both.items()}
        wanted = sorted(size, key=size.__getitem__, reverse=True)[:4]
        assert [one.name for one in row] == wanted
        for one in row:
            assert (one.inside, one.overall) == pytest.approx(both[one.name])


def test_attributes_of_splits_are_those_more_frequent_than_in_the_sibling() -> None:
    found = split_attributes(TREE, LABELS, HAS.astype(int), NAMES, n=2)
    assert found.keys() == {node for node, _ in siblings()}
    for node, sibling in siblings():
        difference = {}
        for j, name in enumerate(NAMES):
            q = mean(HAS, list(range(60)), j)
            difference[name] = (mean(HAS, members(node), j) - mean(HAS, members(sibling), j)) / sqrt(q * (1 - q))
        wanted = sorted(difference, key=difference.__getitem__, reverse=True)[:2]
        assert found[node] == [name for name in wanted if difference[name] > 0]


def test_an_attribute_that_all_or_none_have_is_never_named() -> None:
    has = np.column_stack([np.ones(4), np.zeros(4), [1, 1, 0, 0]])
    first, second = leaf_attributes(Tree().split(0), [0, 0, 1, 1], has, ["all", "none", "some"])
    assert first == [Frequency("some", 1.0, 0.5)]
    assert second == [Frequency("some", 0.0, 0.5)]
    assert (attribute_contrast(np.ones(1), np.zeros(1), np.ones(1)) == 0).all()


def test_main_classes_and_what_sets_splits_apart() -> None:
    classes = np.array(list("aabbbcca"))
    labels = np.array([0, 0, 0, 1, 1, 2, 2, 2])
    tree = Tree().split(0).split(1)  # leaves 3, 4, 2
    assert main_classes(tree, labels, classes) == [("a", 2 / 3), ("b", 1.0), ("c", 2 / 3)]
    assert split_classes(tree, labels, classes) == {1: ["b", "a"], 2: ["c"], 3: ["a"], 4: ["b"]}


def test_a_leaf_without_samples_has_nothing_to_say_and_nor_has_its_sibling() -> None:
    labels = np.where(LABELS == 1, 0, LABELS)  # of leaf 6
    assert leaf_words(TREE, labels, WEIGHTS, WORDS)[1] == []
    assert leaf_attributes(TREE, labels, HAS, NAMES)[1] == []
    assert main_classes(TREE, labels, np.full(60, "a"))[1] is None
    assert not {5, 6} & split_words(TREE, labels, WEIGHTS, WORDS).keys()
    assert not {5, 6} & split_attributes(TREE, labels, HAS, NAMES).keys()


def test_a_node_left_alone_by_pruning_takes_what_the_node_above_it_has() -> None:
    tree = TREE.prune(4)  # node 1 has one child, 3
    labels = np.array([0, 1, 0, 2, 3])[LABELS]
    found = split_words(tree, labels, WEIGHTS, WORDS)
    assert found[3] == found[1]
    assert 0 not in found
    assert split_words(Tree(), np.zeros(60, dtype=int), WEIGHTS, WORDS) == {}


def test_texts_without_words_have_none() -> None:
    assert leaf_words(Tree().split(0), [0, 1], np.zeros((2, 3)), list("abc")) == [[], []]


@pytest.mark.parametrize(
    ("labels", "X", "names", "message"),
    [
        (LABELS[:9], WEIGHTS, WORDS, r"labels has shape \(9,\); with 60 samples it must be \(60,\)"),
        (LABELS + 1, WEIGHTS, WORDS, "labels must be whole numbers from 0 to 4"),
        (LABELS / 2, WEIGHTS, WORDS, "labels must be whole numbers from 0 to 4"),
        (LABELS, WEIGHTS, WORDS[:3], "X has 14 columns, but there are 3 names"),
        (LABELS, WEIGHTS[0], WORDS, r"X has shape \(14,\)"),
        (LABELS, WEIGHTS - 1, WORDS, "X has weights down to -"),
    ],
)
def test_wrong_arguments_are_named(labels: Any, X: Any, names: list[str], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        leaf_words(TREE, labels, X, names)
