"""The shape of the tree: what must hold after any sequence of splits and prunes."""

import re
from collections.abc import Callable
from typing import Any, NamedTuple

import networkx
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.cluster.hierarchy import cophenet, dendrogram, is_valid_linkage, to_tree
from scipy.spatial.distance import squareform

from treevae.tree import Tree

no_deadline = settings(deadline=None)  # tests share the machine with other work


class Step(NamedTuple):
    """One change: ``before.split(leaf)`` or ``before.prune(leaf)`` gave ``after``."""

    before: Tree
    verb: str
    leaf: int
    after: Tree


@st.composite
def histories(draw: Any) -> list[Step]:
    """The steps of a random sequence of splits and prunes that begins at a lone root."""
    steps: list[Step] = []
    tree = Tree()
    for wish, where in draw(st.lists(st.tuples(st.sampled_from(["split", "split", "prune"]), st.integers(0, 99)))):
        leaf = tree.leaves[where % len(tree.leaves)]
        verb = wish if len(tree.leaves) > 1 else "split"
        after = tree.split(leaf) if verb == "split" else tree.prune(leaf)
        steps.append(Step(tree, verb, leaf, after))
        tree = after
    return steps


def last(steps: list[Step]) -> Tree:
    return steps[-1].after if steps else Tree()


trees = histories().map(last)


def edges(tree: Tree) -> dict[int, tuple[int, ...]]:
    return {node: tree.children(node) for node in tree.nodes}


# leaves 5, 7 and 2; nodes 1 and 6 have one child each because 3 and 8 were pruned
PRUNED = Tree({0: (1, 2), 1: (4,), 4: (5, 6), 6: (7,)}, n_created=9)


# -- reading ----------------------------------------------------------------------------------------------------


@no_deadline
@given(trees)
def test_parents_children_paths_and_depths_agree(tree: Tree) -> None:
    assert tree.parent(0) is None
    assert tree.path(0) == (0,)
    assert tree.depth(0) == 0
    for node, below in edges(tree).items():
        assert len(below) <= 2
        assert tree.is_leaf(node) == (below == ())
        for child in below:
            assert tree.parent(child) == node
            assert tree.path(child) == (*tree.path(node), child)
            assert tree.depth(child) == tree.depth(node) + 1


@no_deadline
@given(trees)
def test_levels_hold_every_node_once_from_left_to_right(tree: Tree) -> None:
    assert tree.levels[0] == (0,)
    for upper, lower in zip(tree.levels, (*tree.levels[1:], ()), strict=True):
        assert lower == tuple(child for node in upper for child in tree.children(node))
    assert tree.nodes == sum(tree.levels, ())
    assert len(set(tree.nodes)) == len(tree.nodes)
    assert tree.height == max(tree.depth(node) for node in tree.nodes)


@no_deadline
@given(trees)
def test_leaves_read_from_left_to_right(tree: Tree) -> None:
    for node, below in edges(tree).items():
        assert tree.leaves_below(node) == (sum((tree.leaves_below(child) for child in below), ()) or (node,))
    assert tree.leaves == tree.leaves_below(0)
    assert tree.routers == tuple(node for node in tree.nodes if len(tree.children(node)) == 2)
    assert len(tree.leaves) == len(tree.routers) + 1


def test_a_lone_root() -> None:
    tree = Tree()
    assert (tree.nodes, tree.leaves, tree.levels, tree.routers) == ((0,), (0,), ((0,),), ())
    assert (tree.height, tree.n_created) == (0, 1)


def test_a_pruned_tree() -> None:
    assert PRUNED.nodes == (0, 1, 2, 4, 5, 6, 7)
    assert PRUNED.levels == ((0,), (1, 2), (4,), (5, 6), (7,))
    assert PRUNED.leaves == (5, 7, 2)
    assert PRUNED.routers == (0, 4)
    assert PRUNED.path(7) == (0, 1, 4, 6, 7)
    assert PRUNED.leaves_below(1) == (5, 7)
    assert Tree().split(0).split(1).split(4).split(6).prune(3).prune(8) == PRUNED


# -- changing ---------------------------------------------------------------------------------------------------


@no_deadline
@given(histories())
def test_numbers_are_never_reused(steps: list[Step]) -> None:
    seen = {0}
    for step in steps:
        new = set(step.after.nodes) - set(step.before.nodes)
        assert len(new) == (2 if step.verb == "split" else 0)
        assert not new & seen
        seen |= new
        assert step.after.n_created == len(seen)


@no_deadline
@given(histories())
def test_split_gives_the_leaf_two_children_and_changes_nothing_else(steps: list[Step]) -> None:
    for before, _, leaf, after in (step for step in steps if step.verb == "split"):
        left, right = before.n_created, before.n_created + 1
        assert edges(after) == {**edges(before), leaf: (left, right), left: (), right: ()}
        i = before.leaves.index(leaf)
        assert after.leaves == (*before.leaves[:i], left, right, *before.leaves[i + 1 :])


@no_deadline
@given(histories())
def test_prune_removes_exactly_the_nodes_that_led_only_to_the_leaf(steps: list[Step]) -> None:
    for before, _, leaf, after in (step for step in steps if step.verb == "prune"):
        gone = {node for node in before.nodes if before.leaves_below(node) == (leaf,)}
        kept = {node: below for node, below in edges(before).items() if node not in gone}
        assert edges(after) == {node: tuple(c for c in below if c not in gone) for node, below in kept.items()}
        assert after.leaves == tuple(other for other in before.leaves if other != leaf)


@no_deadline
@given(trees, st.data())
def test_pruning_both_halves_of_a_split_is_pruning_the_leaf(tree: Tree, data: st.DataObject) -> None:
    leaf = data.draw(st.sampled_from(tree.leaves))
    split = tree.split(leaf)
    halves = data.draw(st.permutations(split.children(leaf)))
    one_left = split.prune(halves[0])
    assert one_left.children(leaf) == (halves[1],)
    if len(tree.leaves) == 1:
        with pytest.raises(ValueError, match=f"leaf {halves[1]} is the only one left"):
            one_left.prune(halves[1])
    else:
        assert edges(one_left.prune(halves[1])) == edges(tree.prune(leaf))


@no_deadline
@given(trees)
def test_changing_a_tree_leaves_it_as_it_was(tree: Tree) -> None:
    text = tree.to_json()
    for leaf in tree.leaves:
        assert tree.split(leaf) != tree
        if len(tree.leaves) > 1:
            assert tree.prune(leaf) != tree
    assert tree.to_json() == text


# -- cutting ----------------------------------------------------------------------------------------------------


@no_deadline
@given(trees)
def test_cuts_partition_the_leaves_and_are_nested(tree: Tree) -> None:
    for level in range(tree.height + 2):
        groups = tree.cut(level)
        assert sum((tree.leaves_below(node) for node in groups), ()) == tree.leaves
        for node in groups:
            assert tree.depth(node) == level or (tree.is_leaf(node) and tree.depth(node) < level)
        for finer in tree.cut(level + 1):
            assert len(set(tree.path(finer)) & set(groups)) == 1
    assert tree.cut(0) == (0,)
    assert tree.cut(tree.height) == tree.leaves


@no_deadline
@given(histories())
def test_groups_are_those_of_the_growing_tree(steps: list[Step]) -> None:
    """Each earlier tree groups the leaves of today by its own leaves; no two splits make the same number of groups."""
    tree = last(steps)
    past = {}
    for earlier in [Tree(), *(step.after for step in steps)]:
        inside = [(set(tree.path(leaf)) & set(earlier.leaves)).pop() for leaf in tree.leaves]
        partition = tuple(tuple(np.flatnonzero(np.array(inside) == node)) for node in dict.fromkeys(inside))
        past[len(partition)] = partition
    assert sorted(past) == list(range(1, len(tree.leaves) + 1))
    for k, partition in past.items():
        groups = tree.groups(k)
        assert tuple(tuple(tree.leaves.index(leaf) for leaf in tree.leaves_below(node)) for node in groups) == partition
        assert all(len(tree.children(node)) != 1 for node in groups)


@no_deadline
@given(trees)
def test_groups_are_nested(tree: Tree) -> None:
    for k in range(1, len(tree.leaves)):
        coarse, fine = set(tree.groups(k)), set(tree.groups(k + 1))
        assert (len(coarse), len(fine)) == (k, k + 1)
        assert all(len(set(tree.path(node)) & coarse) == 1 for node in fine)
    assert tree.groups(len(tree.leaves)) == tree.leaves


def test_groups_follow_the_order_of_splits_not_of_depth() -> None:
    tree = Tree().split(0).split(2).split(4).split(1)  # leaves 7 8 | 3 5 6
    assert tree.groups(3) == (1, 3, 4)
    assert tree.groups(4) == (1, 3, 5, 6)
    assert tree.cut(2) == (7, 8, 3, 4)
    assert PRUNED.groups(1) == (0,)
    assert PRUNED.groups(2) == (4, 2)  # 1 has one child; 4 is where its leaves part
    assert PRUNED.cut(3) == (5, 6, 2)


# -- other people's formats -------------------------------------------------------------------------------------


@no_deadline
@given(trees)
def test_json_and_repr_round_trip(tree: Tree) -> None:
    for copy in (Tree.from_json(tree.to_json()), eval(repr(tree), {"Tree": Tree})):
        assert copy == tree
        assert hash(copy) == hash(tree)
        assert (edges(copy), copy.n_created) == (edges(tree), tree.n_created)
    assert Tree(edges(tree), tree.n_created + 1) != tree


def parse_newick(text: str) -> tuple[dict[int, tuple[int, ...]], dict[int, str]]:
    """The children and the branch length of every node of a Newick string with integer names."""
    children: dict[int, tuple[int, ...]] = {}
    lengths: dict[int, str] = {}
    tokens = re.findall(r"[(),;]|[^(),;]+", text)

    def subtree() -> int:
        below = []
        if tokens[0] == "(":
            while tokens.pop(0) != ")":  # an opening bracket or a comma, and a subtree after it
                below.append(subtree())
        name, _, length = tokens.pop(0).partition(":")
        children[int(name)], lengths[int(name)] = tuple(below), length
        return int(name)

    assert subtree() == 0
    assert tokens == [";"]
    return children, lengths


@no_deadline
@given(trees)
def test_newick_is_parsed_back(tree: Tree) -> None:
    children, lengths = parse_newick(tree.to_newick())
    assert children == edges(tree)
    assert lengths == {node: "1" if node else "" for node in tree.nodes}


@no_deadline
@given(trees.filter(lambda tree: len(tree.leaves) > 1))
def test_linkage_agrees_with_the_tree(tree: Tree) -> None:
    linkage = tree.to_linkage()
    assert is_valid_linkage(linkage)
    root, clusters = to_tree(linkage, rd=True)
    n = len(tree.leaves)
    assert root.pre_order() == list(range(n))
    assert dendrogram(linkage, no_plot=True)["leaves"] == list(range(n))
    assert sorted(tuple(tree.leaves[i] for i in cluster.pre_order()) for cluster in clusters[n:]) == sorted(
        tree.leaves_below(node) for node in tree.routers
    )
    merged_at = squareform(cophenet(linkage))
    for i, a in enumerate(tree.leaves):
        for j, b in enumerate(tree.leaves[:i]):
            ancestor = max(set(tree.path(a)) & set(tree.path(b)), key=tree.depth)
            assert merged_at[i, j] == tree.height - tree.depth(ancestor)


def test_linkage_of_one_leaf_has_no_rows() -> None:
    assert Tree().to_linkage().shape == (0, 4)
    assert Tree().split(0).prune(1).to_linkage().shape == (0, 4)


def test_linkage_skips_one_child_nodes() -> None:
    np.testing.assert_array_equal(PRUNED.to_linkage(), [[0, 1, 2, 2], [3, 2, 4, 3]])


@no_deadline
@given(trees)
def test_networkx_graph_is_an_arborescence_with_the_same_edges(tree: Tree) -> None:
    graph = tree.to_networkx()
    assert networkx.is_arborescence(graph)
    assert {node: tuple(graph.successors(node)) for node in graph} == edges(tree)


# -- looking ----------------------------------------------------------------------------------------------------


@no_deadline
@given(trees)
def test_draw_has_one_line_a_node_under_its_parent(tree: Tree) -> None:
    lines = tree.draw(lambda node: f"<{node}>").split("\n")
    path: list[int] = []
    drawn = []
    for line in lines:
        margin, node = line[: line.index("<")], int(line[line.index("<") + 1 : -1])
        path[len(margin) // 4 :] = [node]
        assert tuple(path) == tree.path(node)
        if above := path[:-1]:
            assert margin.endswith("└── " if node == tree.children(above[-1])[-1] else "├── ")
        drawn.append(node)
    assert sorted(drawn) == sorted(tree.nodes)
    assert [node for node in drawn if tree.is_leaf(node)] == list(tree.leaves)


def test_draw_by_hand() -> None:
    expected = """\
0
├── 1
│   └── 4
│       ├── 5
│       └── 6
│           └── 7
└── 2"""
    assert PRUNED.draw() == expected


def test_printed_a_tree_says_which_leaf_is_which_cluster() -> None:
    expected = """\
node 0
├── node 1
│   └── node 4
│       ├── cluster 0 (node 5)
│       └── node 6
│           └── cluster 1 (node 7)
└── cluster 2 (node 2)"""
    assert str(PRUNED) == expected


def test_repr_tells_of_pruned_numbers() -> None:
    assert repr(Tree().split(0)) == "Tree({0: (1, 2)})"
    assert repr(Tree().split(0).prune(2)) == "Tree({0: (1,)}, n_created=3)"
    assert Tree().split(0) != "Tree({0: (1, 2)})"


# -- errors -----------------------------------------------------------------------------------------------------

FORK = Tree({0: (1, 2)})


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: Tree({0: (1, 2, 3)}), r"node 0 has 3 children \(1, 2, 3\); a binary tree allows at most 2"),
        (lambda: Tree({0: (1, -2)}), "node 0 has child -2; children are numbered from 1"),
        (lambda: Tree({0: (True, 2)}), "expected a whole number, found True"),
        (lambda: Tree({0: (1, 2), 2: (1, 3)}), "node 1 has two parents, 0 and 2"),
        (lambda: Tree({0: (1, 2), 7: (8, 9), 5: (6,)}), r"nodes \[5, 7\] cannot be reached from the root, node 0"),
        (lambda: Tree({0: (1, 2)}, 2), "n_created=2, but node 2 exists; it must be at least 3"),
        (lambda: FORK.children(9), "there is no node 9; this tree has nodes 0, 1, 2"),
        (lambda: FORK.parent(9), "there is no node 9"),
        (lambda: FORK.path(9), "there is no node 9"),
        (lambda: FORK.leaves_below(9), "there is no node 9"),
        (lambda: FORK.split(9), "there is no node 9"),
        (lambda: FORK.prune(9), "there is no node 9"),
        (lambda: FORK.split(0), r"cannot split node 0: it has children; the leaves are \(1, 2\)"),
        (lambda: FORK.prune(0), r"cannot prune node 0: it has children; the leaves are \(1, 2\)"),
        (lambda: Tree().prune(0), "leaf 0 is the only one left; a tree keeps at least one leaf"),
        (lambda: FORK.cut(-1), "level=-1 must be at least 0, the root; this tree has levels 0 to 1"),
        (lambda: FORK.groups(0), "cannot cut into 0 groups; this tree has 2 leaves"),
        (lambda: FORK.groups(3), "cannot cut into 3 groups; this tree has 2 leaves"),
        (lambda: Tree.from_json("{"), "not a tree in JSON"),
        (lambda: Tree.from_json("3"), "not a tree in JSON"),
        (lambda: Tree.from_json('["children", "n_created"]'), "not a tree in JSON"),
        (lambda: Tree.from_json('{"children": [], "n_created": 1}'), "not a tree in JSON"),
        (lambda: Tree.from_json('{"children": {"0": 1}, "n_created": 3}'), "not a tree in JSON"),
        (lambda: Tree.from_json('{"children": {"a": [1]}, "n_created": 3}'), "'a'"),
        (lambda: Tree.from_json('{"children": {"0": [1.0, 2]}, "n_created": 3}'), "expected a whole number, found 1.0"),
        (
            lambda: Tree.from_json('{"children": {"0": ["1", 2]}, "n_created": 3}'),
            "expected a whole number, found '1'",
        ),
        (lambda: Tree.from_json('{"children": {}}'), r"expected the keys children and n_created, found \['children'\]"),
        (lambda: Tree.from_json('{"children": {}, "n_created": "1"}'), "expected a whole number, found '1'"),
        (lambda: Tree.from_json('{"children": {"0": [1, 2]}, "n_created": 1}'), "n_created=1, but node 2 exists"),
    ],
)
def test_errors_say_what_is_wrong(call: Callable[[], object], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        call()
