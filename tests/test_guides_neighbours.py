"""Neighbours against comparing all pairs, and what graphs of users become."""

import sys
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import sparse
from scipy.spatial.distance import cdist

from treevae.guides import nearest, neighbours, of_graph


def sorted_distances(one: np.ndarray, other: np.ndarray, found: torch.Tensor) -> np.ndarray:
    return np.take_along_axis(cdist(one, other), found.numpy(), 1)


@settings(deadline=None, max_examples=30)
@given(st.integers(3, 40), st.integers(1, 5), st.integers(0, 10**6), st.sampled_from([0.0, 1000.0]))
def test_neighbours_are_the_nearest_of_all_pairs(n, features, seed, offset):
    x = np.random.default_rng(seed).normal(size=(n, features))
    k = min(5, n - 1)
    found = nearest(torch.tensor(x + offset), k)
    everyone = cdist(x, x)
    np.fill_diagonal(everyone, np.inf)
    assert found.dtype == torch.int64
    assert not (found == torch.arange(n)[:, None]).any()
    assert all(len(set(row)) == k for row in found.tolist())
    np.testing.assert_allclose(sorted_distances(x, x, found), np.sort(everyone, 1)[:, :k], rtol=1e-3, atol=2e-3)


def test_blocks_change_nothing(monkeypatch):
    x = torch.randn(100, 4, generator=torch.Generator().manual_seed(0))
    whole = nearest(x, 7)
    monkeypatch.setattr(neighbours, "BLOCK", 700)
    assert torch.equal(nearest(x, 7), whole)


def test_equal_samples_are_neighbours_but_none_is_its_own():
    x = torch.zeros(6, 3)
    x[4:] = 1
    found = nearest(x, 3)
    assert not (found == torch.arange(6)[:, None]).any()
    assert (found[:4] < 4).all()
    assert found[4, 0] == 5
    assert found[5, 0] == 4


def test_samples_of_any_form_are_rows():
    x = torch.randn(20, 2, 3, generator=torch.Generator().manual_seed(0))
    assert torch.equal(nearest(x, 3), nearest(x.reshape(20, 6), 3))


@pytest.mark.parametrize("k", [0, 5])
def test_as_many_neighbours_as_there_are_others(k):
    with pytest.raises(ValueError, match=f"neighbours={k} must be at least 1 and less than the number of samples, 5"):
        nearest(torch.zeros(5, 2), k)


def test_samples_without_a_distance_are_refused():
    x = torch.zeros(5, 2)
    x[3, 1] = torch.nan
    with pytest.raises(ValueError, match="NaN or infinite"):
        nearest(x, 2)


class Told:
    """In pynndescent's words: what it found, the sample itself in front, or pushed out by equal ones."""

    def __init__(self, x: np.ndarray, n_neighbors: int, random_state: int) -> None:
        assert (x.shape, n_neighbors, random_state) == ((4, 1), 3, 0)
        self.neighbor_graph = np.array([[0, 1, 2], [1, 0, 2], [0, 1, 3], [3, 2, 1]]), None


def test_what_pynndescent_finds_is_without_the_sample_itself(monkeypatch):
    monkeypatch.setattr(neighbours, "EXACT_UP_TO", 3)
    monkeypatch.setitem(sys.modules, "pynndescent", SimpleNamespace(NNDescent=Told))
    assert nearest(torch.zeros(4, 1), 2).tolist() == [[1, 2], [0, 2], [0, 1], [2, 1]]


def test_many_samples_are_compared_where_pynndescent_is_not_installed(monkeypatch, caplog):
    monkeypatch.setitem(sys.modules, "pynndescent", None)
    x = torch.randn(30, 2, generator=torch.Generator().manual_seed(0))
    exact = nearest(x, 4)
    monkeypatch.setattr(neighbours, "EXACT_UP_TO", 3)
    with caplog.at_level("INFO", "treevae"):
        assert torch.equal(nearest(x, 4), exact)
    assert "pip install 'treevae[neighbours]'" in caplog.text


@pytest.mark.slow  # it is compiled first
def test_many_samples_are_searched_by_pynndescent(monkeypatch):
    pytest.importorskip("pynndescent")
    chance = torch.Generator().manual_seed(0)
    x = torch.cat([torch.randn(300, 3, generator=chance), torch.zeros(40, 3)])
    exact = nearest(x, 5)
    monkeypatch.setattr(neighbours, "EXACT_UP_TO", 100)
    found = nearest(x, 5)
    assert found.shape == exact.shape
    assert not (found == torch.arange(340)[:, None]).any()
    same = [len(set(a) & set(b)) for a, b in zip(found[:300].tolist(), exact[:300].tolist(), strict=True)]
    assert sum(same) > 0.9 * 1500


# -- graphs ---------------------------------------------------------------------------------------------------------


def heaviest(graph: np.ndarray, k: int) -> list[list[int]]:
    """The same by hand, one row after the other."""
    rows = []
    for i, weights in enumerate(graph):
        order = [j for j in sorted(range(len(weights)), key=lambda j: -weights[j]) if weights[j] > 0 and j != i] or [i]
        order = order[:k]
        rows.append([order[j % len(order)] for j in range(k)])
    return rows


@settings(deadline=None, max_examples=60)
@given(st.integers(1, 12), st.integers(1, 6), st.integers(0, 10**6), st.floats(0, 1))
def test_a_graphs_neighbours_are_its_heaviest(n, k, seed, filled):
    chance = np.random.default_rng(seed)
    graph = chance.integers(1, 4, (n, n)) * (chance.random((n, n)) < filled)
    for form in (graph, sparse.csr_matrix(graph), sparse.csc_array(graph), sparse.coo_array(graph.astype(bool) * 1.0)):
        dense = form if isinstance(form, np.ndarray) else form.toarray()
        assert of_graph(form, k).tolist() == heaviest(dense, k)


def test_what_is_named_twice_in_a_graph_is_added():
    graph = sparse.coo_array(([1.0, 1.0, 1.5], ([0, 0, 0], [1, 1, 2])), (3, 3))
    assert of_graph(graph, 2).tolist() == [[1, 2], [1, 1], [2, 2]]
    assert graph.nnz == 3  # the user's own stays as it was


@pytest.mark.parametrize(
    ("graph", "said"),
    [
        (np.zeros((3, 4)), r"graph has shape \(3, 4\)"),
        (np.zeros(3), r"graph has shape \(3,\)"),
        (sparse.csr_array([[0, np.nan], [1, 0]]), "NaN or infinite"),
        (sparse.csr_array([[0, -2.0], [1, 0]]), "graph has the weight -2"),
    ],
)
def test_what_is_no_graph_is_refused(graph, said):
    with pytest.raises(ValueError, match=said):
        of_graph(graph, 2)
