"""Ward's method against scikit-learn's, the contracted tree against its definition; what Bisecting refuses as well."""

from typing import Any

import numpy as np
import pytest
import scipy.sparse
from scipy.cluster.hierarchy import linkage
from sklearn.cluster import AgglomerativeClustering
from sklearn.metrics import adjusted_rand_score

from treevae.baselines.bisecting import Bisecting
from treevae.baselines.ward import Ward
from treevae.metrics import dendrogram_purity
from treevae.tree import Tree

X = np.random.default_rng(0).normal(size=(60, 6))  # no clear groups: every merge is a close call


def same_partition(a: np.ndarray, b: np.ndarray) -> bool:
    return adjusted_rand_score(a, b) == 1.0 and len(np.unique(a)) == len(np.unique(b))


@pytest.mark.parametrize("k", [1, 2, 5, 17, 60])
def test_labels_are_those_of_scikit_learn(k: int) -> None:
    ward = Ward(k).fit(X)
    assert np.array_equal(np.unique(ward.labels_), np.arange(k))
    assert len(ward.tree_.leaves) == k
    assert same_partition(ward.labels_, AgglomerativeClustering(k, linkage="ward").fit_predict(X))


@pytest.mark.parametrize("coarser", [1, 2, 3, 7, 12])
def test_every_coarser_cut_of_the_tree_is_a_cut_of_the_dendrogram(coarser: int) -> None:
    ward = Ward(12).fit(X)
    tree = ward.tree_
    group = {leaf: g for g, top in enumerate(tree.groups(coarser)) for leaf in tree.leaves_below(top)}
    cut = np.array([group[tree.leaves[label]] for label in ward.labels_])
    assert same_partition(cut, AgglomerativeClustering(coarser, linkage="ward").fit_predict(X))


def test_uncontracted_tree_has_the_purity_of_the_linkage_matrix() -> None:
    y = np.random.default_rng(1).integers(3, size=len(X))
    ward = Ward(len(X)).fit(X)
    expected = dendrogram_purity(linkage(X, "ward"), np.arange(len(X)), y)
    assert dendrogram_purity(ward.tree_, ward.labels_, y) == pytest.approx(expected, abs=1e-12)
    np.testing.assert_array_equal(Ward(5).fit(X).linkage_, linkage(X, "ward"))


def test_nested_groups_give_the_tree_one_would_draw() -> None:
    X = np.array([[0.0], [0.1], [1.0], [1.1], [9.0], [9.1]])
    ward = Ward(3).fit(X)
    near, far = ward.tree_.children(0)
    if ward.tree_.is_leaf(near):
        near, far = far, near
    assert ward.tree_.is_leaf(far)
    label = {leaf: k for k, leaf in enumerate(ward.tree_.leaves)}
    assert ward.labels_[4] == ward.labels_[5] == label[far]
    assert {ward.labels_[0], ward.labels_[2]} == {label[leaf] for leaf in ward.tree_.children(near)}
    assert ward.labels_[0] == ward.labels_[1]
    assert ward.labels_[2] == ward.labels_[3]


def test_one_cluster_is_a_lone_root() -> None:
    ward = Ward(1).fit(X)
    assert ward.tree_ == Tree()
    assert not ward.labels_.any()


def test_images_are_taken_as_their_pixels() -> None:
    pixels = (X * 40 + 128).clip(0, 255).astype(np.uint8)
    assert np.array_equal(Ward(4).fit(pixels.reshape(60, 2, 3)).labels_, Ward(4).fit(pixels.astype(float)).labels_)


@pytest.mark.parametrize("make", [Ward, Bisecting])
@pytest.mark.parametrize("k", [0, 61, 2.0, True])
def test_number_of_clusters_must_fit(make: type, k: Any) -> None:
    with pytest.raises(ValueError, match=rf"n_clusters={k} must be a whole number from 1 to 60, the number of samples"):
        make(k).fit(X)


def test_one_sample_is_too_few() -> None:
    with pytest.raises(ValueError, match="minimum of 2 is required"):
        Ward(1).fit(np.zeros((1, 3)))


@pytest.mark.parametrize("make", [Ward, Bisecting])
@pytest.mark.parametrize(
    ("samples", "kind"),
    [
        (scipy.sparse.eye(5).tocsr(), TypeError),
        (np.arange(5.0), ValueError),
        (np.full((5, 2), 1j), ValueError),
        (np.array([[0.0], [np.nan], [1.0]]), ValueError),
        (np.array([[0.0], [np.inf], [1.0]]), ValueError),
    ],
)
def test_samples_that_are_none_are_refused_in_scikit_learns_words(make: type, samples: Any, kind: type) -> None:
    with pytest.raises(kind, match=r"[Ss]parse|2D array|[Cc]omplex|NaN|infinity"):
        make(2).fit(samples)
