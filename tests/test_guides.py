"""Guides: what a user hands in, as labels and a tree."""

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.cluster.hierarchy import fcluster, linkage
from sklearn.cluster import DBSCAN, KMeans

from treevae.guides import Guide, nearest
from treevae.guides.labels import few, numbered
from treevae.metrics import ari
from treevae.tree import Tree, balanced

TREE = Tree().split(0)


@pytest.fixture(scope="module")
def blobs():
    """Six groups of 30 points, far apart, and their neighbours."""
    chance = np.random.default_rng(0)
    centres = np.array([[0, 0], [0, 9], [40, 0], [40, 9], [90, 0], [90, 12]])
    x = np.repeat(centres, 30, 0) + chance.normal(size=(180, 2))
    space = torch.tensor(x, dtype=torch.float32)
    return space, nearest(space, 5), np.repeat(np.arange(6), 30)


# -- the object -----------------------------------------------------------------------------------------------------


def test_labels_are_kept_and_cannot_be_changed():
    guide = Guide(np.array([0, 1, -1], dtype=np.int8), TREE)
    assert guide.labels.tolist() == [0, 1, -1]
    assert guide.labels.dtype == np.int64
    with pytest.raises(ValueError, match="read-only"):
        guide.labels[0] = 1


def test_identity_tells_guides_apart():
    one = Guide(np.array([0, 1]), TREE).identity()
    assert one == Guide(np.array([0, 1]), TREE).identity()
    assert one != Guide(np.array([1, 0]), TREE).identity()
    assert one != Guide(np.array([0, 1]), balanced(3)).identity()
    assert one != Guide(np.array([0, 1]), TREE, "kmeans").identity()


@pytest.mark.parametrize(
    ("labels", "tree", "said"),
    [
        ([[0, 1]], TREE, "one whole number for each sample"),
        ([0.0, 1.0], TREE, "one whole number for each sample"),
        ([0, 2], TREE, r"labels\[1\]=2 must be -1, unknown, or 0 to 1"),
        ([0, -2], TREE, r"labels\[1\]=-2 must be"),
        ([-1, -1], TREE, "unknown for all samples"),
        ([0, 0], Tree(), "two leaves at least"),
        ([0, 1], Tree({0: (1,), 1: (2, 3)}), "two children or none"),
    ],
)
def test_wrong_guides_are_refused(labels, tree, said):
    with pytest.raises(ValueError, match=said):
        Guide(np.array(labels), tree)


def test_a_tree_is_needed():
    with pytest.raises(TypeError, match=r"pass a treevae\.Tree"):
        Guide(np.array([0, 1]), {0: (1, 2)})


# -- labels as users have them --------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("labels", "numbers"),
    [
        ([5, 3, 5, -1], [1, 0, 1, -1]),
        (np.array([2.0, np.nan, 1.0]), [1, -1, 0]),
        (["b", "a", None], [1, 0, -1]),
        (np.array(["b", "a", "b"]), [1, 0, 1]),
        (["b", "a", "-1", "", "-1.0"], [1, 0, -1, -1, -1]),
        (["1", "-1"], [0, -1]),
        ([True, False], [1, 0]),
        (["a", 7, -1.0], [1, 0, -1]),
        (np.array([3, 4], dtype=np.uint8), [0, 1]),
    ],
)
def test_labels_are_numbered_in_sorted_order(labels, numbers):
    assert numbered(labels).tolist() == numbers


def test_labels_of_pandas_are_read():
    pandas = pytest.importorskip("pandas")
    assert numbered(pandas.Series(["b", None, "a"], dtype="category")).tolist() == [1, -1, 0]
    assert numbered(pandas.Series([4, None, 2], dtype="Int64")).tolist() == [1, -1, 0]


@pytest.mark.parametrize(
    ("labels", "said"),
    [
        ([0.5, 1.0], "the label 0.5"),
        ([np.inf, 1.0], "the label inf"),
        ([(1, 2), (3, 4)], "one label for each sample"),
        ([None, -1], "no label that is known"),
        ([1j], "the label 1j"),
    ],
)
def test_wrong_labels_are_refused(labels, said):
    with pytest.raises(ValueError, match=said):
        numbered(labels)


@settings(deadline=None, max_examples=50)
@given(st.lists(st.integers(-1, 6), min_size=1, max_size=30).filter(lambda labels: max(labels) >= 0))
def test_numbering_keeps_who_is_with_whom(labels):
    numbers = numbered(labels)
    assert [n == -1 for n in numbers] == [label == -1 for label in labels]
    assert sorted(set(numbers[numbers >= 0])) == list(range(len(set(labels) - {-1})))
    assert len(set(zip(numbers.tolist(), labels, strict=True))) == len(set(labels))


def test_first_merges_leave_so_many_groups():
    labels = np.array([0, 1, 2, 3, -1])
    pairs = [(1, 3), (0, 4), (2, 5)]
    assert few(labels, pairs, 4).tolist() == [0, 1, 2, 3, -1]
    assert few(labels, pairs, 3).tolist() == [0, 4, 2, 4, -1]
    assert few(labels, pairs, 2).tolist() == [5, 5, 2, 5, -1]


# -- what a user hands in -------------------------------------------------------------------------------------------


def test_every_form_finds_the_groups_and_the_groups_of_groups(blobs):
    x, neighbours, y = blobs
    names = np.array(["ant", "bee", "cat", "dog", "elk", "fox"])
    forms = [
        ("kmeans", "kmeans"),
        (y, "given"),
        (names[y].tolist(), "given"),
        (linkage(x.numpy(), "ward"), "linkage"),
        (KMeans(6, n_init=10), "KMeans"),
        (KMeans, "KMeans"),
        (DBSCAN(eps=3), "DBSCAN"),
    ]
    for form, name in forms:
        guide = Guide.of(form, x, neighbours, 6)
        assert guide.name == name
        assert ari(guide.labels, y) == pytest.approx(1)
        pairs = {frozenset(guide.tree.leaves_below(guide.tree.parent(leaf))) for leaf in guide.tree.leaves}
        leaf = {label: guide.tree.leaves[guide.labels[y == label][0]] for label in range(6)}
        assert {frozenset((leaf[a], leaf[a + 1])) for a in (0, 2, 4)} <= pairs


def test_a_seed_gives_the_same_guide(blobs):
    x, neighbours, _ = blobs
    for form in ("kmeans", KMeans, KMeans(4)):
        one, other = (Guide.of(form, x, neighbours, 4, random_state=3) for _ in range(2))
        assert one.identity() == other.identity()


def test_a_users_clusterer_is_not_changed(blobs):
    x, neighbours, _ = blobs
    clusterer = KMeans(6)
    Guide.of(clusterer, x, neighbours, 6)
    assert not hasattr(clusterer, "labels_")
    assert clusterer.random_state is None


def test_an_object_that_only_clusters_is_enough(blobs):
    x, neighbours, y = blobs

    class Known:
        def fit_predict(self, X):
            assert isinstance(X, np.ndarray)
            return y

    guide = Guide.of(Known(), x, neighbours, 6)
    assert (guide.name, ari(guide.labels, y)) == ("Known", pytest.approx(1))


def test_unknown_stays_unknown(blobs):
    x, neighbours, y = blobs
    some = np.where(np.arange(180) % 3 == 0, -1, y)
    guide = Guide.of(some, x, neighbours, 6)
    assert np.array_equal(guide.labels == -1, some == -1)
    assert ari(guide.labels[some >= 0], y[some >= 0]) == pytest.approx(1)


def test_fewer_groups_give_fewer_leaves(blobs):
    x, neighbours, y = blobs
    assert len(Guide.of(y // 2, x, neighbours, 6).tree.leaves) == 3


def test_a_clusterer_that_finds_more_groups_has_them_merged(blobs):
    x, neighbours, y = blobs
    guide = Guide.of(DBSCAN(eps=3), x, neighbours, 3)
    assert ari(guide.labels, y // 2) == pytest.approx(1)


def test_a_linkage_matrix_is_cut_as_scipy_cuts_it(blobs):
    x, neighbours, _ = blobs
    merges = linkage(x.numpy(), "average")
    for n_leaves in (2, 5, 17, 180):
        guide = Guide.of(merges, x, neighbours, n_leaves)
        assert ari(guide.labels, fcluster(merges, n_leaves, "maxclust")) == pytest.approx(1)


def test_a_guide_passes_as_it_is(blobs):
    x, neighbours, y = blobs
    guide = Guide(y, balanced(6))
    assert Guide.of(guide, x, neighbours, 6) is guide


@pytest.mark.parametrize(
    ("form", "said"),
    [
        ("kmean", "guide='kmean' is not known; pass one of kmeans"),
        (np.arange(180), "guide has 180 groups and n_leaves=6; pass n_leaves=180"),
        (np.zeros(3, dtype=int), "guide has 3 labels and X 180 samples"),
        (np.zeros(180, dtype=int), "has 1 group; a tree needs two"),
        (np.zeros((180, 4)), r"a linkage matrix of shape \(179, 4\)"),
        (np.zeros((179, 4)), "no linkage matrix"),
        (Guide(np.array([0, 1]), TREE), "guide has 2 labels and X 180 samples"),
        (DBSCAN(eps=1e-6), "no label that is known"),
        (DBSCAN(eps=1000), "has 1 group; a tree needs two"),
    ],
)
def test_what_is_no_guide_is_refused(blobs, form, said):
    x, neighbours, _ = blobs
    with pytest.raises(ValueError, match=said):
        Guide.of(form, x, neighbours, 6)


def test_a_tree_that_is_too_high_is_refused(blobs):
    x, neighbours, y = blobs
    chain = Tree({0: (1, 2), 2: (3, 4), 4: (5, 6), 6: (7, 8), 8: (9, 10)})
    with pytest.raises(ValueError, match="height 5 and max_depth=3; pass max_depth=5"):
        Guide.of(Guide(y, chain), x, neighbours, 6, max_depth=3)
    line = torch.tensor([[2.0**i] for i in range(8)])
    with pytest.raises(ValueError, match="pass max_depth=7, or flat labels"):
        Guide.of(linkage(line.numpy(), "single"), line, nearest(line, 2), 8, max_depth=3)
    guide = Guide.of(np.arange(8), line, nearest(line, 2), 8, max_depth=3)
    assert guide.tree.height == 3
