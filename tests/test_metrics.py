"""Clustering metrics against brute force, scikit-learn and examples worked by hand."""

import sys
import tracemalloc
import warnings
from collections import Counter
from collections.abc import Callable, Sequence
from functools import partial
from itertools import combinations, permutations
from types import FrameType
from typing import Any

import numpy as np
import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.cluster.hierarchy import ClusterNode, fcluster, linkage, to_tree
from sklearn.metrics import adjusted_rand_score, normalized_mutual_info_score
from test_tree import no_deadline, trees

from treevae.metrics import accuracy, ari, contingency, dendrogram_purity, leaf_purity, nmi
from treevae.tree import Tree

ALL = (leaf_purity, accuracy, nmi, ari)
samples = st.lists(st.tuples(st.integers(0, 4), st.integers(0, 3)), min_size=1, max_size=16)


def labelled(n_leaves: int) -> st.SearchStrategy[list[tuple[int, str]]]:
    """Samples as pairs of leaf and class."""
    return st.lists(st.tuples(st.integers(0, n_leaves - 1), st.sampled_from("abc")), min_size=1, max_size=16)


def purity_over_pairs(paths: list[tuple[int, ...]], leaf_index: Sequence[int], y: Sequence[str]) -> float | None:
    """Dendrogram purity as defined, pair by pair, None without pairs; ``paths[leaf]`` runs from the root."""
    shares = []
    for i, j in combinations(range(len(y)), 2):
        if y[i] == y[j]:
            ancestor = [a for a in paths[leaf_index[i]] if a in paths[leaf_index[j]]][-1]
            below = [label for leaf, label in zip(leaf_index, y, strict=True) if ancestor in paths[leaf]]
            shares.append(below.count(y[i]) / len(below))
    return float(np.mean(shares)) if shares else None


def check_purity(
    tree: Tree | np.ndarray, paths: list[tuple[int, ...]], leaf_index: Sequence[int], y: Sequence[str]
) -> None:
    expected = purity_over_pairs(paths, leaf_index, y)
    if expected is None:
        with pytest.raises(ValueError, match="no class in y has two samples"):
            dendrogram_purity(tree, leaf_index, y)
    else:
        assert dendrogram_purity(tree, leaf_index, y) == pytest.approx(expected, abs=1e-12)
        assert 0 <= dendrogram_purity(tree, leaf_index, y) <= 1


# -- dendrogram purity ------------------------------------------------------------------------------------------


@no_deadline
@given(trees, st.data())
def test_dendrogram_purity_of_a_tree_is_the_mean_over_pairs(tree: Tree, data: st.DataObject) -> None:
    leaf_index, y = zip(*data.draw(labelled(len(tree.leaves))), strict=True)
    check_purity(tree, [tree.path(leaf) for leaf in tree.leaves], leaf_index, y)


def paths_of(linkage_matrix: np.ndarray) -> list[tuple[int, ...]]:
    """The path from the root to each observation, by scipy's own reading of the matrix."""
    paths: dict[int, tuple[int, ...]] = {}

    def descend(cluster: ClusterNode, above: tuple[int, ...]) -> None:
        paths[cluster.id] = (*above, cluster.id)
        if not cluster.is_leaf():
            descend(cluster.left, paths[cluster.id])
            descend(cluster.right, paths[cluster.id])

    descend(to_tree(linkage_matrix), ())
    return [paths[i] for i in range(len(linkage_matrix) + 1)]


@no_deadline
@given(st.integers(2, 16), st.sampled_from(["single", "average", "ward"]), st.integers(0, 2**32 - 1), st.data())
def test_dendrogram_purity_of_a_linkage_is_that_mean_too(n: int, method: str, seed: int, data: st.DataObject) -> None:
    matrix = linkage(np.random.default_rng(seed).normal(size=(n, 2)), method)
    leaf_index, y = zip(*data.draw(labelled(n)), strict=True)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # as many are usually one an observation
        check_purity(matrix, paths_of(matrix), leaf_index, y)
    own = data.draw(st.lists(st.sampled_from("abc"), min_size=n, max_size=n))  # one label an observation
    check_purity(matrix, paths_of(matrix), range(n), own)


def test_dendrogram_purity_by_hand() -> None:
    tree = Tree({0: (1, 2), 1: (3, 4)})  # leaves 3, 4, 2
    leaf_index, y = [0, 0, 1, 2, 2], ["a", "b", "a", "a", "b"]
    # a: leaves 3 and 4 meet at node 1 (2 of 3 are a); 3 and 2, 4 and 2 at the root (3 of 5). b: at the root (2 of 5).
    assert dendrogram_purity(tree, leaf_index, y) == pytest.approx((2 / 3 + 3 / 5 + 3 / 5 + 2 / 5) / 4)
    assert dendrogram_purity(Tree(), [0, 0, 0], ["a", "a", "b"]) == pytest.approx(2 / 3)
    assert dendrogram_purity(tree, [0, 0, 1, 2], ["a", "a", "a", "b"]) == 1.0


def chain_of(n: int) -> tuple[np.ndarray, np.ndarray]:
    """A linkage that adds sample after sample, and a class out of ten for each."""
    rows = np.arange(n - 1)
    chain = np.stack([np.where(rows == 0, 0, n + rows - 1), rows + 1, rows + 1, rows + 2], axis=1).astype(float)
    return chain, np.random.default_rng(0).integers(10, size=n)


def test_dendrogram_purity_of_ten_thousand_samples() -> None:
    """In a chain, sample j meets each earlier one where samples 0 to j come together, so the sum has a short form."""
    n = 10_000
    chain, y = chain_of(n)
    earlier = (np.cumsum(np.eye(10)[y], axis=0) - 1)[np.arange(n), y]  # samples of one's class before oneself
    expected = (earlier * (earlier + 1) / (np.arange(n) + 1)).sum() / earlier.sum()
    assert dendrogram_purity(chain, np.arange(n), y) == pytest.approx(expected)


def work_of(ask: Callable[[], object]) -> tuple[int, int]:
    """Instructions of Python that a call runs, and the most bytes that it holds; neither depends on the machine."""
    n_run, before = 0, sys.gettrace()

    def count(frame: FrameType, event: str, given: object) -> Callable[..., Any]:
        nonlocal n_run
        frame.f_trace_opcodes, frame.f_trace_lines = True, False
        n_run += event == "opcode"
        return count

    tracemalloc.start()
    try:
        sys.settrace(count)
        ask()
        return n_run, tracemalloc.get_traced_memory()[1]
    finally:
        sys.settrace(before)
        tracemalloc.stop()


@pytest.mark.parametrize("n_leaves", [2, None], ids=["two leaves", "a leaf for each sample"])
def test_dendrogram_purity_counts_pairs_and_does_not_visit_them(n_leaves: int | None) -> None:
    """Twice the samples are twice the work; of pairs there are four times as many, to visit or to hold."""

    def work(n: int) -> np.ndarray:
        chain, y = chain_of(n)
        tree, leaf = (chain, np.arange(n)) if n_leaves is None else (Tree().split(0), np.arange(n) % n_leaves)
        return np.array(work_of(lambda: dendrogram_purity(tree, leaf, y)))

    assert (work(2_000) < 2.2 * work(1_000)).all()


# -- flat clusterings -------------------------------------------------------------------------------------------


@no_deadline
@given(samples)
def test_contingency_counts(pairs: list[tuple[int, int]]) -> None:
    leaf_index, y = zip(*pairs, strict=True)
    counts = contingency(leaf_index, y, n_leaves=6)
    classes = sorted(set(y))
    assert counts.shape == (6, len(classes))
    assert counts.dtype.kind == "i"
    assert {(i, c): counts[i, j] for i in range(6) for j, c in enumerate(classes) if counts[i, j]} == Counter(pairs)
    np.testing.assert_array_equal(contingency(leaf_index, y), counts[: max(leaf_index) + 1])


@no_deadline
@given(samples)
def test_leaf_purity_counts_each_leafs_majority(pairs: list[tuple[int, int]]) -> None:
    leaf_index, y = zip(*pairs, strict=True)
    majority = [max(Counter(c for other, c in pairs if other == leaf).values()) for leaf in set(leaf_index)]
    assert leaf_purity(leaf_index, y) == pytest.approx(sum(majority) / len(pairs))


@no_deadline
@given(samples)
def test_accuracy_is_that_of_the_best_permutation(pairs: list[tuple[int, int]]) -> None:
    leaf_index, y = np.array(pairs).T
    best = max(np.mean(np.array(class_of)[leaf_index] == y) for class_of in permutations(range(5)))
    assert accuracy(leaf_index, y) == pytest.approx(best)


@no_deadline
@given(samples)
def test_nmi_is_that_of_scikit_learn(pairs: list[tuple[int, int]]) -> None:
    leaf_index, y = zip(*pairs, strict=True)
    assert nmi(leaf_index, y) == pytest.approx(normalized_mutual_info_score(y, leaf_index), abs=1e-9)
    assert 0 <= nmi(leaf_index, y) <= 1


@pytest.mark.parametrize("n", range(2, 30))
def test_nmi_stays_between_0_and_1_where_rounding_would_leave_them(n: int) -> None:
    y = np.arange(n)
    assert 1 - 1e-12 < nmi(y, y) <= 1  # 12 classes: 1 + 2e-16
    assert 0 <= nmi(np.tile(y, 3), np.repeat(np.arange(3), n)) < 1e-12  # 3 x 3 independent ones: -4e-16


@no_deadline
@given(samples)
def test_ari_is_that_of_all_pairs(pairs: list[tuple[int, int]]) -> None:
    leaf_index, y = zip(*pairs, strict=True)
    together = Counter((a[0] == b[0], a[1] == b[1]) for a, b in combinations(pairs, 2))  # in one leaf?, of one class?
    both, leaf_only, class_only, neither = (
        together[key] for key in ((True, True), (True, False), (False, True), (False, False))
    )
    most = (both + leaf_only) * (leaf_only + neither) + (both + class_only) * (class_only + neither)
    expected = 2 * (both * neither - leaf_only * class_only) / most if most else 1.0
    assert ari(leaf_index, y) == pytest.approx(expected, abs=1e-12)
    assert ari(leaf_index, y) == pytest.approx(adjusted_rand_score(y, leaf_index), abs=1e-9)
    assert -0.5 <= ari(leaf_index, y) <= 1


def test_ari_of_many_samples_does_not_overflow() -> None:
    leaf_index, y = np.random.default_rng(0).integers(3, size=(2, 1_000_000))
    assert abs(ari(leaf_index, y)) < 1e-4
    assert ari(y, y) == 1.0


def test_flat_metrics_by_hand() -> None:
    leaf_index, y = [0, 0, 0, 1, 1, 2], ["a", "a", "b", "b", "b", "b"]
    np.testing.assert_array_equal(contingency(leaf_index, y), [[2, 1], [0, 2], [0, 1]])
    assert leaf_purity(leaf_index, y) == pytest.approx(5 / 6)
    assert accuracy(leaf_index, y) == pytest.approx(4 / 6)  # leaf 2 has no class left
    assert accuracy([0, 0, 0, 0], ["a", "b", "b", "c"]) == pytest.approx(2 / 4)
    assert nmi([0, 0, 1, 1], ["a", "b", "a", "b"]) == pytest.approx(0, abs=1e-12)
    assert nmi([0, 0, 1, 1], ["a", "a", "a", "a"]) == pytest.approx(0, abs=1e-12)
    assert ari([0, 0, 1, 1], ["a", "a", "a", "a"]) == 0.0
    assert ari([0, 0, 1, 1], ["a", "b", "a", "b"]) == pytest.approx(-0.5)


@pytest.mark.parametrize("metric", ALL)
def test_a_perfect_clustering_scores_one_whatever_the_names(metric: Callable[..., float]) -> None:
    y = np.array(["cat", "dog", "dog", "eel", "cat"])
    assert metric([7, 0, 0, 3, 7], y) == pytest.approx(1)
    assert metric(np.zeros(3, dtype=np.uint8), ["cat"] * 3) == 1.0  # both constant
    assert isinstance(metric([0, 1], [0, 1]), float)


# -- errors -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("leaf_index", "y", "message"),
    [
        ([], [], "leaf_index and y are empty; pass at least one sample"),
        ([0, 1], [0, 0, 0], "leaf_index has 2 samples and y has 3; pass one label for each sample"),
        ([0, 1], [[0, 1], [1, 0]], r"leaf_index has shape \(2,\) and y \(2, 2\); pass one leaf and one label a sample"),
    ],
)
def test_samples_that_cannot_be_scored(leaf_index: list[Any], y: list[Any], message: str) -> None:
    for metric in (contingency, *ALL):
        with pytest.raises(ValueError, match=message):
            metric(leaf_index, y)
    with pytest.raises(ValueError, match=message):
        dendrogram_purity(Tree({0: (1, 2)}), leaf_index, y)


def test_the_number_of_leaves_is_whole() -> None:
    for n in (3.5, True, 0, -3):
        with pytest.raises(ValueError, match=rf"n_leaves={n} must be a whole number of at least 1, or left out"):
            contingency([0, 1], [0, 1], n_leaves=n)  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="leaf_index has dtype object; pass integers"):
        dendrogram_purity(linkage([[0.0], [1.0], [3.0]], "ward"), [None, 1, 1], [0, 0, 1])  # type: ignore[list-item]
    assert contingency([0, 1], [0, 1], n_leaves=np.int64(3)).shape == (3, 2)


@pytest.mark.parametrize("leaf_index", [[0.0, 1.0, 1.0], [True, False, False], ["a", "b", "b"]])
def test_clusters_without_a_tree_may_have_any_names(leaf_index: list[Any]) -> None:
    y = ["cat", "eel", "cat"]
    for metric in ALL:
        for names in (leaf_index, np.array(leaf_index, dtype=object)):
            assert metric(names, y) == metric([0, 1, 1], y)
    for refused in (contingency, partial(dendrogram_purity, Tree({0: (1, 2)}))):
        with pytest.raises(ValueError, match=r"leaf_index has dtype (float64|bool|<U1); pass integers, the position"):
            refused(leaf_index, y)


@pytest.mark.parametrize(
    ("leaf_index", "message"),
    [
        ([0.0, float("nan"), 1.0], r"leaf_index\[1\]=nan is no cluster; leave out samples without one"),
        (["a", "b", None], r"leaf_index\[2\]=None is no cluster"),
        (pd.array(["0", "1", pd.NA], dtype="string"), r"leaf_index\[2\]=<NA> is no cluster; leave out samples"),
        (
            [0.0, 0.5, 1.0],
            "leaf_index holds 0.5, which is no name of a cluster; pass whole numbers, strings or booleans",
        ),
        (np.array([0, 0.5, 1], dtype=object), "leaf_index holds 0.5, which is no name of a cluster"),
        (np.array([*np.float32([0, 0.5, 1])], dtype=object), "leaf_index holds 0.5, which is no name of a cluster"),
        (np.array([0, 0.5, 1], dtype=np.longdouble), "leaf_index holds 0.5, which is no name of a cluster"),
        ([0.0, 1.0, float("inf")], "leaf_index holds inf, which is no name of a cluster"),
        (np.array(["a", 1, "b"], dtype=object), "leaf_index holds values that cannot be sorted"),
    ],
)
def test_what_is_no_cluster_is_refused(leaf_index: Any, message: str) -> None:
    for metric in ALL:
        with pytest.raises(ValueError, match=message):
            metric(leaf_index, [0, 1, 1])


def test_noise_is_a_cluster_like_others() -> None:
    labels, y = [-1, 0, 0, 1, -1], [0, 1, 1, 2, 0]
    for metric in ALL:
        assert metric(labels, y) == metric([3, 0, 0, 1, 3], y) == 1.0
    for refused in (contingency, partial(dendrogram_purity, Tree({0: (1, 2)}))):
        with pytest.raises(ValueError, match=r"leaf_index\[0\]=-1 must be (at least 0|0 to 1)"):
            refused(labels, y)


def test_clusters_of_a_linkage_are_not_taken_for_its_observations() -> None:
    X = np.random.default_rng(0).normal(size=(20, 2))
    merges, y = linkage(X, "ward"), np.repeat([0, 1], 10)
    with pytest.warns(UserWarning, match=r"leaf_index names some twice: it takes the observation .* np\.arange\(n\)"):
        dendrogram_purity(merges, fcluster(merges, 4, "maxclust"), y)
    assert dendrogram_purity(merges, np.arange(20)[::-1], y) <= 1  # in any order
    assert dendrogram_purity(merges, [0, 0, 1], [0, 0, 1]) == 1  # several samples an observation


def test_leaves_out_of_range() -> None:
    message = r"leaf_index\[1\]=2 must be 0 to 1, as there are 2 leaves; pass positions .* not node numbers"
    with pytest.raises(ValueError, match=message):
        contingency([0, 2], [0, 0], n_leaves=2)
    with pytest.raises(ValueError, match=message):
        dendrogram_purity(Tree({0: (1, 2)}), [1, 2], [0, 0])
    with pytest.raises(ValueError, match=message):
        dendrogram_purity(np.array([[0.0, 1, 1, 2]]), [1, 2], [0, 0])


@pytest.mark.parametrize(
    ("tree", "message"),
    [
        ("ward", "tree is str; pass a Tree or a scipy linkage matrix"),
        (np.zeros((2, 3)), r"tree is \(2, 3\); pass a Tree or a scipy linkage matrix"),
        (np.array([[0.0, 1, 1, 2], [0, 2, 2, 3]]), "each cluster must be merged once"),
        (np.array([[0.0, 4, 1, 2], [1, 2, 2, 3], [3, 5, 3, 4]]), "in a row after the one it came from"),
        (np.array([[0.0, 0.5, 1, 2]]), "each cluster must be merged once"),
    ],
)
def test_trees_that_cannot_be_scored(tree: Any, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        dendrogram_purity(tree, [0, 1], [0, 0])


def test_dendrogram_purity_without_pairs_is_undefined() -> None:
    with pytest.raises(ValueError, match="no class in y has two samples, so there are no pairs"):
        dendrogram_purity(Tree({0: (1, 2)}), [0, 1], ["a", "b"])


@pytest.mark.parametrize(
    ("y", "message"),
    [
        ([0.0, float("nan"), 1.0], r"y\[1\]=nan is no class; leave out samples without one"),
        (["a", None, "b"], r"y\[1\]=None is no class"),
        (np.array(["a", "b", float("nan")], dtype=object), r"y\[2\]=nan is no class"),
        (np.array(["a", 1, "b"], dtype=object), "y holds values that cannot be sorted"),
    ],
)
def test_what_is_no_class_is_refused(y: Any, message: str) -> None:
    for metric in (contingency, *ALL):
        with pytest.raises(ValueError, match=message):
            metric([0, 1, 1], y)


def test_numbers_of_leaves_cost_nothing() -> None:
    """A row for each number up to the largest would take 16 GB and more."""
    for metric in ALL:
        assert metric([0, 10**12, 0, 7], [0, 1, 0, 1]) == metric([0, 2, 0, 1], [0, 1, 0, 1])
