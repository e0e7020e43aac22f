"""Sources of flat groups: what each recovers, and what it is made of."""

import sys
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from sklearn.datasets import load_digits

from treevae.guides import Guide, embedding, nearest, networks
from treevae.guides.embedding import embedded, fuzzy_graph
from treevae.guides.networks import disagreement
from treevae.guides.sources import SOURCES
from treevae.guides.told import agreement, one_hot
from treevae.metrics import ari, nmi

NEEDS = {"umap": ("umap",), "leiden": ("igraph", "leidenalg")}
SLOW = {"umap": pytest.mark.slow}  # it is compiled first


def blobs(n_groups: int, size: int, features: int = 8) -> tuple[torch.Tensor, np.ndarray]:
    chance = np.random.default_rng(0)
    y = np.repeat(np.arange(n_groups), size)
    x = 12 * chance.normal(size=(n_groups, features))[y] + chance.normal(size=(len(y), features))
    return torch.tensor(x, dtype=torch.float32), y


@pytest.mark.parametrize("name", [pytest.param(name, marks=SLOW.get(name, ())) for name in SOURCES])
def test_groups_far_apart_are_found_and_a_seed_finds_them_again(name, monkeypatch):
    for package in NEEDS.get(name, ()):
        pytest.importorskip(package)
    x, y = blobs(5, 60)
    monkeypatch.setattr(networks, "STEPS", 200)
    neighbours = nearest(x, 10)
    labels = SOURCES[name](x, 5, neighbours, 1)
    assert labels.dtype == np.int64
    assert labels.shape == (300,)
    assert ari(labels, y) > 0.99
    assert np.array_equal(SOURCES[name](x, 5, neighbours, 1), labels)


@pytest.mark.parametrize("name", ["umap", "leiden"])
def test_what_is_not_installed_is_named(name, monkeypatch):
    for package in NEEDS[name]:
        monkeypatch.setitem(sys.modules, package, None)
    x, _ = blobs(2, 10)
    with pytest.raises(ImportError, match=r"pip install 'treevae\["):
        SOURCES[name](x, 2, nearest(x, 3), 0)


def given_communities(monkeypatch, found):
    """Stand-ins for both packages, by which there are so many even communities of 60 samples at a resolution."""
    asked = []

    def find_partition(graph, kind, weights, resolution_parameter, seed):
        asked.append(resolution_parameter)
        return SimpleNamespace(membership=(np.arange(60) % found(resolution_parameter)).tolist())

    monkeypatch.setitem(sys.modules, "igraph", SimpleNamespace(Graph=lambda n, edges: None))
    kinds = SimpleNamespace(find_partition=find_partition, RBConfigurationVertexPartition=None)
    monkeypatch.setitem(sys.modules, "leidenalg", kinds)
    return asked


@pytest.mark.parametrize(
    ("found", "kept"),
    [
        (lambda resolution: 7, 7),  # more at every resolution
        (lambda resolution: 1 if resolution < 1.5 else 9, 9),  # one is no guide
        (lambda resolution: 2 if resolution < 1.5 else 9, 2),
        (lambda resolution: 3 if resolution > 0.1 else 1, 3),
        (lambda resolution: 1 + round(2 * resolution), 4),  # exactly so many, after a search
        (lambda resolution: 8 - round(2 * resolution), 6),  # the fewest of those that are too many
    ],
)
def test_the_communities_nearest_in_number_are_kept(found, kept, monkeypatch):
    asked = given_communities(monkeypatch, found)
    x = torch.randn(60, 3, generator=torch.Generator().manual_seed(0))
    labels = SOURCES["leiden"](x, 4, nearest(x, 5), 0)
    assert len(np.unique(labels)) == kept
    assert len(asked) <= 12
    guide = Guide.of("leiden", x, nearest(x, 5), 4)
    assert len(guide.tree.leaves) == min(kept, 4)


def test_small_communities_are_unknown():
    pytest.importorskip("leidenalg")
    x, y = blobs(4, 60)
    x = torch.cat([x, torch.full((4, 8), 200.0) + torch.arange(4)[:, None]])
    labels = SOURCES["leiden"](x, 4, nearest(x, 3), 0)
    assert labels[240:].tolist() == [-1] * 4
    assert nmi(labels[:240], y) > 0.9


def test_an_embedding_follows_neighbours_where_k_means_cannot():
    x, y = load_digits(return_X_y=True)
    space = torch.tensor(x / 16, dtype=torch.float32)
    neighbours = nearest(space, 10)
    assert nmi(SOURCES["kmeans"](space, 10, neighbours, 0), y) < 0.78
    assert nmi(SOURCES["embedding"](space, 10, neighbours, 0), y) > 0.88


def test_few_samples_and_equal_ones_are_laid_out():
    for x in (torch.randn(3, 5), torch.zeros(12, 2), torch.arange(8.0)[:, None], torch.tensor([[0.0], [1e20]])):
        laid = embedded(x, nearest(x, min(5, len(x) - 1)), 0)
        assert laid.shape == (len(x), min(10, *x.shape))
        assert torch.isfinite(laid).all()


# -- the graph ------------------------------------------------------------------------------------------------------


def test_the_graph_is_umaps():
    umap = pytest.importorskip("umap.umap_")
    x = torch.randn(200, 6, generator=torch.Generator().manual_seed(0), dtype=torch.float64).float()
    neighbours = nearest(x, 14)
    itself = np.concatenate([np.arange(200)[:, None], neighbours.numpy()], 1)
    distances = (x[:, None] - x[itself]).norm(dim=2).numpy()
    expected, _, _ = umap.fuzzy_simplicial_set(x.numpy(), 15, 0, "euclidean", knn_indices=itself, knn_dists=distances)
    # UMAP's bisection ends at a distance of 1e-5, and gives the sample itself no weight
    np.testing.assert_allclose(fuzzy_graph(x, neighbours).toarray(), expected.toarray(), atol=1e-2)


def test_the_graph_is_symmetric_with_weights_up_to_one():
    x, _ = blobs(3, 20)
    neighbours = nearest(x, 6)
    neighbours[:5] = torch.arange(5)[:, None]  # samples that a user's graph gives no neighbour
    neighbours[5:10] = neighbours[5:10, :1]  # and some that it gives one
    graph = fuzzy_graph(x, neighbours).toarray()
    assert np.array_equal(graph, graph.T)
    assert graph.min() == 0
    assert graph.max() <= 1
    assert not graph.diagonal().any()


def test_the_graph_is_the_same_in_blocks(monkeypatch):
    x, _ = blobs(3, 20)
    whole = fuzzy_graph(x, nearest(x, 6)).toarray()
    monkeypatch.setattr(embedding, "BLOCK", 7)
    assert np.array_equal(fuzzy_graph(x, nearest(x, 6)).toarray(), whole)


# -- networks -------------------------------------------------------------------------------------------------------


def test_the_loss_of_networks_by_hand():
    p = torch.tensor([[[0.9, 0.1], [0.2, 0.8]]])
    q = torch.tensor([[[0.6, 0.4], [0.3, 0.7]]])
    mean = torch.tensor([[[0.5, 0.5]]])
    expected = -sum(
        np.log(sum((a * b) ** 0.6 / 0.5 for a, b in zip(one, other, strict=True)))
        for one, other in zip(p[0].tolist(), q[0].tolist(), strict=True)
    )
    assert disagreement(p.log(), q.log(), mean).tolist() == pytest.approx([expected / 2])


def test_networks_answer_the_same_in_blocks(monkeypatch):
    x, _ = blobs(3, 20)
    monkeypatch.setattr(networks, "STEPS", 30)
    whole = SOURCES["networks"](x, 3, nearest(x, 6), 0)
    monkeypatch.setattr(networks, "BLOCK", 7)
    assert np.array_equal(SOURCES["networks"](x, 3, nearest(x, 6), 0), whole)


# -- which is best --------------------------------------------------------------------------------------------------


def test_agreement_of_groups_that_neighbours_share_is_their_entropy():
    y = torch.tensor([0, 0, 1, 1, 2, 2, 2, 2])
    neighbours = torch.tensor([[1], [0], [3], [2], [5], [4], [7], [6]])
    p = one_hot(y, 3)
    entropy = -(0.25 * np.log(0.25) * 2 + 0.5 * np.log(0.5))
    assert agreement(p, neighbours) == pytest.approx(entropy)


def test_agreement_by_hand():
    p = torch.tensor([[1.0, 0.0], [0.5, 0.5], [0.1, 0.9]])
    neighbours = torch.tensor([[1, 2], [0, 2], [1, 0]])
    joint = np.zeros((2, 2))
    for i in range(3):
        for j in neighbours[i]:
            for a in range(2):
                for b in range(2):
                    joint[a, b] += float(p[i, a] * p[j, b]) / 6
    expected = sum(
        joint[a, b] * np.log(joint[a, b] / (joint[a].sum() * joint[:, b].sum())) for a in range(2) for b in range(2)
    )
    assert agreement(p, neighbours) == pytest.approx(expected)


def test_one_leaf_for_all_and_leaves_by_chance_agree_on_nothing():
    chance = torch.Generator().manual_seed(0)
    neighbours = torch.randint(2000, (2000, 10), generator=chance)
    assert agreement(torch.ones(2000, 1), neighbours) == pytest.approx(0, abs=1e-9)
    p = one_hot(torch.randint(4, (2000,), generator=chance), 4)
    assert 0 <= agreement(p, neighbours) < 0.01


def test_unknown_samples_tell_nothing():
    y = torch.tensor([0, 0, 1, 1, -1, -1])
    neighbours = torch.tensor([[1], [0], [3], [2], [5], [0]])
    p = one_hot(y, 2)
    assert agreement(p, neighbours) == pytest.approx(np.log(2))


def test_groups_none_of_whose_neighbours_are_known_agree_on_nothing():
    p = one_hot(torch.tensor([0, 1, -1, -1]), 2)
    assert agreement(p, torch.tensor([[2], [3], [0], [1]])) == 0
