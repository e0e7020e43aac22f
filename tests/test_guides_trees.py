"""Trees above flat groups: the merges, the height, the order of the leaves."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.cluster.hierarchy import linkage
from scipy.spatial.distance import squareform

from treevae.guides.trees import crossing_tree, crossings, linkage_tree, merges, ward_costs
from treevae.tree import Tree, merged


def groups_of(tree: Tree) -> set[frozenset[int]]:
    """Which leaves, as positions, stand together below a node."""
    place = {leaf: i for i, leaf in enumerate(tree.leaves)}
    return {frozenset(place[leaf] for leaf in tree.leaves_below(node)) for node in tree.nodes}


def groups_of_merges(pairs: np.ndarray) -> set[frozenset[int]]:
    """Which observations stand together below a merge of a linkage matrix."""
    n = len(pairs) + 1
    made = [frozenset([i]) for i in range(n)]
    for a, b in pairs[:, :2].astype(int):
        made.append(made[a] | made[b])
    return set(made)


def table(costs: np.ndarray):
    """Costs of merging that are the mean costs of the pairs of first groups."""

    def means(member: np.ndarray) -> list[np.ndarray]:
        size = member.sum(1)
        return [member @ costs @ member.T / np.outer(size, size)]

    return means


symmetric = st.integers(2, 12).flatmap(
    lambda n: st.integers(0, 10**6).map(lambda seed: squareform(np.random.default_rng(seed).random(n * (n - 1) // 2)))
)


@settings(deadline=None, max_examples=60)
@given(symmetric)
def test_merges_are_scipys_average_linkage(costs):
    expected = linkage(squareform(costs), "average")
    tree, order = merged(merges(len(costs), table(costs)))
    found = {frozenset(order[i] for i in group) for group in groups_of(tree)}
    assert found == groups_of_merges(expected)


@settings(deadline=None, max_examples=60)
@given(symmetric, st.integers(0, 3))
def test_a_tree_stays_within_its_height_however_low(costs, room):
    n = len(costs)
    least = (n - 1).bit_length()
    tree, order = merged(merges(n, table(costs), least + room))
    assert tree.height <= least + room
    assert sorted(order) == list(range(n))


def test_a_height_that_binds_nothing_changes_nothing():
    costs = squareform(np.random.default_rng(0).random(28))
    assert merges(8, table(costs), 7) == merges(8, table(costs))


def test_a_chain_is_folded_where_it_would_be_too_high():
    line = 2.0 ** np.arange(8)
    costs = np.abs(line[:, None] - line)
    chain, _ = merged(merges(8, table(costs)))
    low, order = merged(merges(8, table(costs), 3))
    assert chain.height == 7
    assert low.height == 3
    assert {frozenset(order[i] for i in group) for group in groups_of(low)} >= {frozenset([0, 1]), frozenset([2, 3])}


def test_too_many_groups_for_the_height_are_refused():
    with pytest.raises(ValueError, match="max_depth=2 has at most 4 leaves, and 5 groups are given"):
        merges(5, table(np.ones((5, 5))), 2)


def test_crossings_count_both_ways_and_leave_out_the_unknown():
    labels = np.array([0, 0, 1, 2, -1])
    neighbours = np.array([[1, 2], [0, 4], [3, 0], [2, 1], [0, 1]])
    expected = np.zeros((3, 3))
    for i, row in enumerate(neighbours):
        for j in row:
            if labels[i] >= 0 and labels[j] >= 0:
                expected[labels[i], labels[j]] += 1
                expected[labels[j], labels[i]] += 1
    assert np.array_equal(crossings(labels, neighbours), expected)


def test_groups_whose_neighbours_cross_most_are_merged_first():
    labels = np.array([0] * 4 + [1] * 4 + [2] * 4)
    neighbours = np.arange(12)[:, None].repeat(2, 1)
    neighbours[[0, 1], 1] = [8, 9]  # 0 and 2 cross twice
    neighbours[4, 1] = 0  # 0 and 1 once
    tree, leaves = crossing_tree(labels, neighbours)
    assert groups_of(tree) >= {frozenset({int(leaves[0]), int(leaves[8])})}


def test_crossing_counts_relative_to_the_sizes():
    labels = np.array([0] * 40 + [1] * 40 + [2] * 2)
    neighbours = np.arange(82)[:, None]
    neighbours[:3, 0] = [40, 41, 42]  # 3 of 1600 pairs
    neighbours[80, 0] = 5  # 1 of 80 pairs
    tree, leaves = crossing_tree(labels, neighbours)
    assert groups_of(tree) >= {frozenset({int(leaves[0]), int(leaves[80])})}


def test_where_nothing_crosses_wards_method_decides():
    chance = np.random.default_rng(0)
    centres = np.array([[0.0, 0], [50, 0], [0, 5], [50, 5], [200, 0]])
    labels = np.repeat(np.arange(5), 20)
    x = centres[labels] + 0.1 * chance.normal(size=(100, 2))
    alone = np.arange(100)[:, None]
    tree, leaves = crossing_tree(labels, alone, None, x)
    expected, order = merged(merges(5, ward_costs(labels, x)))
    assert tree == expected
    assert np.array_equal(np.array(order)[leaves], labels)


@settings(deadline=None, max_examples=30)
@given(st.integers(2, 9), st.integers(0, 10**6))
def test_ward_on_centres_is_scipys(n, seed):
    x = np.random.default_rng(seed).normal(size=(n, 3))
    tree, order = merged(merges(n, ward_costs(np.arange(n), x)))
    found = {frozenset(order[i] for i in group) for group in groups_of(tree)}
    assert found == groups_of_merges(linkage(x, "ward"))


@settings(deadline=None, max_examples=30)
@given(st.integers(2, 9), st.integers(0, 10**6))
def test_labels_follow_the_leaves_from_left_to_right(n, seed):
    chance = np.random.default_rng(seed)
    labels = np.concatenate([np.arange(n), chance.integers(-1, n, 20)])
    neighbours = chance.integers(0, len(labels), (len(labels), 3))
    tree, leaves = crossing_tree(labels, neighbours)
    assert len(tree.leaves) == n
    assert np.array_equal(leaves == -1, labels == -1)
    assert len(set(zip(labels.tolist(), leaves.tolist(), strict=True))) == len(set(labels.tolist()))


def test_the_last_merge_is_the_root_and_later_ones_are_split_first():
    tree, order = merged([(2, 3), (0, 1), (4, 5)])
    assert tree == Tree().split(0).split(2).split(1)
    assert order == [2, 3, 0, 1]
    assert merged([]) == (Tree(), [0])


@settings(deadline=None, max_examples=30)
@given(st.integers(3, 20), st.integers(0, 10**6))
def test_a_cut_linkage_keeps_its_own_tree(n, seed):
    chance = np.random.default_rng(seed)
    matrix = linkage(chance.normal(size=(n, 2)), "average")
    n_leaves = int(chance.integers(2, n + 1))
    tree, leaves = linkage_tree(matrix, n_leaves)
    found = {frozenset(np.flatnonzero(np.isin(leaves, list(group))).tolist()) for group in groups_of(tree)}
    assert len(tree.leaves) == n_leaves
    assert found <= groups_of_merges(matrix)
    assert len(found) == 2 * n_leaves - 1


def test_a_linkage_matrix_of_too_few_samples_is_refused():
    with pytest.raises(ValueError, match="n_leaves=5 must be at least 2 and at most 3"):
        linkage_tree(linkage(np.arange(3.0)[:, None]), 5)
