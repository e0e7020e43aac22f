"""The figures for papers: what is on them, and the average of several trees against counting by hand."""

import sys
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from sklearn.datasets import load_digits
from sklearn.decomposition import PCA

from treevae import Tree, TreeVAE, plot
from treevae.pictures.average import average_distances, edges_between_leaves
from treevae.pictures.figures import flat_map

X = (load_digits().images[:300] / 16).astype(np.float32)
Y = load_digits().target[:300]


@pytest.fixture(scope="module")
def models() -> list[TreeVAE]:
    tree = Tree().split(0).split(1)
    return TreeVAE(tree=tree, network="mlp", hidden_dim=16, epochs=1, batch_size=60, device="cpu").fit_seeds(X, [0, 1])


def test_edges_between_leaves_by_hand():
    tree = Tree().split(0).split(2)  # leaves 1, 3, 4
    assert edges_between_leaves(tree).tolist() == [[0, 3, 3], [3, 0, 2], [3, 2, 0]]
    chain = Tree().split(0).split(1).prune(3)  # 0 -> (1 -> 4), 2: the node with one child is no stop
    assert edges_between_leaves(chain).tolist() == [[0, 2], [2, 0]]


def test_the_average_matches_the_leaves_by_their_samples():
    left, right = Tree().split(0).split(1), Tree().split(0).split(2)
    labels = np.array([0, 0, 1, 1, 2, 2])  # (0, 1), 2 in the first tree
    turned = np.array([1, 1, 2, 2, 0, 0])  # the same groups, as 0, (1, 2) in the second
    np.testing.assert_array_equal(average_distances([left, right], [labels, turned]), edges_between_leaves(left))
    other = np.array([0, 0, 1, 1, 2, 2])  # 0, (1, 2): another hierarchy of the same groups
    expected = (edges_between_leaves(left) + edges_between_leaves(right)) / 2
    np.testing.assert_array_equal(average_distances([left, right], [labels, other]), expected)


def test_what_cannot_be_averaged_is_refused():
    two, three = Tree().split(0), Tree().split(0).split(1)
    with pytest.raises(ValueError, match=r"the trees have \[2, 3\] leaves"):
        average_distances([two, three], [np.zeros(4, int)] * 2)
    with pytest.raises(ValueError, match=r"To keep the 2 with 2 leaves, leave out .*, counted from 0: 1 \(3\)$"):
        average_distances([two, three, two], [np.zeros(4, int)] * 3)
    with pytest.raises(ValueError, match="1 trees and 2 labellings"):
        average_distances([two], [np.zeros(4, int)] * 2)
    with pytest.raises(ValueError, match="different numbers of samples"):
        average_distances([two, two], [np.zeros(4, int), np.zeros(5, int)])


def test_generations_has_a_row_for_every_leaf(models):
    figure = plot.generations(models[0], n=4)
    (axes,) = figure.axes
    assert len(axes.images) == 3 * 4
    assert [text.get_text() for text in axes.texts] == ["cluster 0", "cluster 1", "cluster 2"]
    shown = np.asarray(axes.images[5].get_array())[..., 0]  # the second image of the second leaf
    np.testing.assert_allclose(shown, models[0].sample(4, leaf=1, random_state=0)[1].clip(0, 1), atol=1e-6)


def test_all_leaves_has_a_column_for_every_leaf(models):
    figure = plot.all_leaves(models[0], n=5)
    (axes,) = figure.axes
    assert len(axes.images) == 5 * 3
    drawn = models[0].sample_all_leaves(5, random_state=0)
    np.testing.assert_allclose(np.asarray(axes.images[7].get_array())[..., 0], drawn[2, 1].clip(0, 1), atol=1e-6)


def test_the_map_is_of_the_roots_embedding_and_shows_every_sample_once(models):
    places = PCA(2, random_state=0).fit_transform(models[0].transform(X))
    (axes,) = plot.root_map(models[0], X, method="pca").axes
    for k, cloud in enumerate(axes.collections):
        np.testing.assert_allclose(cloud.get_offsets(), places[models[0].predict(X) == k], rtol=1e-5, atol=1e-5)
    assert sum(len(cloud.get_offsets()) for cloud in axes.collections) == 300
    by_class = plot.root_map(models[0], X, Y, method="pca").axes[0]
    assert [text.get_text() for text in by_class.get_legend().get_texts()] == [str(k) for k in range(10)]
    for k, cloud in enumerate(by_class.collections):
        np.testing.assert_allclose(cloud.get_offsets(), places[k == Y], rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("n", [10, 20, 100])
def test_the_classes_of_a_map_keep_their_order_their_names_and_colours_of_their_own(models, n):
    names = [f"class {n - k}" for k in range(n)]  # in the alphabet they would stand otherwise
    (axes,) = plot.root_map(models[0], X, np.arange(300) % n, names, method="pca").axes
    assert [text.get_text() for text in axes.get_legend().get_texts()] == names
    assert len({tuple(cloud.get_facecolor()[0]) for cloud in axes.collections}) == n
    with pytest.raises(ValueError, match=r"y has shape \(299,\)"):
        plot.root_map(models[0], X, np.zeros(299, int), method="pca")


def test_umap_is_asked_for_two_dimensions_and_missed_politely(monkeypatch):
    asked, threads = {}, torch.get_num_threads()

    class Umap:
        def __init__(self, **how):
            asked.update(how)

        def fit_transform(self, x):
            torch.set_num_threads(threads + 1)  # as the real one does, by numba
            return x[:, :2]

    monkeypatch.setitem(sys.modules, "umap", SimpleNamespace(UMAP=Umap))
    assert flat_map(np.ones((5, 8)), "umap", 3).shape == (5, 2)
    assert asked == {"n_neighbors": 4, "n_components": 2, "random_state": 3, "n_jobs": 1}
    assert torch.get_num_threads() == threads
    monkeypatch.setitem(sys.modules, "umap", None)
    with pytest.raises(ImportError, match=r"pip install 'treevae\[maps\]'"):
        flat_map(np.ones((5, 8)), "umap", 3)


def test_history_has_a_point_for_every_epoch(models):
    loss, kl = plot.history(models[0]).axes
    epochs = [event for event in models[0].history_ if event["event"] == "EpochEnded"]
    np.testing.assert_allclose(loss.lines[0].get_ydata(), [-event["reconstruction"] for event in epochs])
    assert len(kl.lines[0].get_ydata()) == len(epochs)


def test_the_average_dendrogram_names_its_leaves(models):
    (axes,) = plot.average_dendrogram(models, X, Y, [f"digit {k}" for k in range(10)]).axes
    names = [label.get_text() for label in axes.get_xticklabels()]
    assert len(names) == 3
    assert all(name.startswith(("digit", "cluster")) for name in names)


def test_clusters_are_joined_at_the_mean_of_all_their_distances():
    """Two trees part a and b last, one b and c: between a, b, c lie 7/3 (ab), 8/3 (bc) and 3 (ac) edges on average."""
    left, right = Tree().split(0).split(1), Tree().split(0).split(2)
    runs = [SimpleNamespace(tree_=tree, predict=lambda X: np.arange(3)) for tree in (left, left, right)]
    (axes,) = plot.average_dendrogram(runs, np.zeros((3, 1)), ["a", "b", "c"]).axes
    (lines,) = axes.collections
    heights = sorted(max(y for _, y in line) for line in lines.get_segments())
    np.testing.assert_allclose(heights, [7 / 3, (8 / 3 + 3) / 2])  # single linkage has 8/3, complete 3
    assert "".join(label.get_text()[0] for label in axes.get_xticklabels()) in ("abc", "cab")
    assert {label.get_text()[1:] for label in axes.get_xticklabels()} == {" (100%)"}
    assert axes.get_ylabel() == "edges between clusters, mean of 3 trees"


def test_what_is_refused(models):
    with pytest.raises(ValueError, match="the trees have one leaf, so there is nothing to join"):
        plot.average_dendrogram([SimpleNamespace(tree_=Tree(), predict=lambda X: np.zeros(3, int))] * 2, X[:3])
    with pytest.raises(ValueError, match=r"method='tsne'; allowed are 'umap', 'pca'"):
        plot.root_map(models[0], X, method="tsne")
    vectors = TreeVAE(tree=Tree().split(0), epochs=1, hidden_dim=8, device="cpu").fit(X.reshape(300, -1))
    with pytest.raises(ValueError, match="vectors of 64 numbers, not images"):
        plot.generations(vectors)
