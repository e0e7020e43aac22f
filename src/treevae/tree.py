"""The shape of a tree: which nodes there are and who is whose child.

A :class:`Tree` knows nothing of networks or data. It is immutable: :meth:`Tree.split` and :meth:`Tree.prune`
return a new tree. Nodes are numbered once, in the order in which they were created, and are never renumbered, so a
number means the same node from the first split to the saved file.

One rule replaces all flags: a node with two children has a router, a node with none has a decoder, a node with one
(pruning makes these) passes its probability on.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from functools import cached_property
from html import escape
from numbers import Integral
from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    import networkx

LEAF_STEP, LEVEL_STEP = 34, 44  # pixels from leaf to leaf, and from level to level, of the drawing in a notebook


class Tree:
    """A rooted binary tree; ``Tree()`` is a lone root, node 0.

    Parameters
    ----------
    children : mapping from node to its children, left first, optional
        Nodes that do not appear as keys are leaves. ``{0: (1, 2), 1: (3, 4)}`` is a tree with leaves 3, 4 and 2.
    n_created : int, optional
        How many node numbers have been given out, pruned nodes included; the next split takes the numbers from here.
    """

    def __init__(self, children: Mapping[int, Sequence[int]] | None = None, n_created: int | None = None) -> None:
        self._children: dict[int, tuple[int, ...]] = {0: ()}
        self._parent: dict[int, int | None] = {0: None}
        given = {_number(node): tuple(map(_number, below)) for node, below in (children or {}).items()}
        queue = [0]
        while queue:
            node = queue.pop()
            below = given.pop(node, ())
            if len(below) > 2:
                raise ValueError(f"node {node} has {len(below)} children {below}; a binary tree allows at most 2")
            self._children[node] = below
            for child in below:
                if child < 1:
                    raise ValueError(f"node {node} has child {child}; children are numbered from 1, 0 is the root")
                if child in self._parent:
                    raise ValueError(f"node {child} has two parents, {self._parent[child]} and {node}")
                self._parent[child] = node
                queue.append(child)
        if given:
            raise ValueError(f"nodes {sorted(given)} cannot be reached from the root, node 0")
        least = max(self._children) + 1
        if n_created is not None and _number(n_created) < least:
            raise ValueError(f"n_created={n_created}, but node {least - 1} exists; it must be at least {least}")
        self.n_created = least if n_created is None else _number(n_created)

    # -- reading ------------------------------------------------------------------------------------------------

    @cached_property
    def nodes(self) -> tuple[int, ...]:
        """All nodes, parents before children, siblings from left to right."""
        return tuple(node for level in self.levels for node in level)

    @cached_property
    def leaves(self) -> tuple[int, ...]:
        """The leaves from left to right; cluster label ``k`` of an estimator is ``leaves[k]``."""
        return tuple(node for node in self._walk(0) if self.is_leaf(node))

    @cached_property
    def levels(self) -> tuple[tuple[int, ...], ...]:
        """The nodes of each depth, root first, each level from left to right."""
        levels: list[tuple[int, ...]] = [(0,)]
        while below := tuple(child for node in levels[-1] for child in self._children[node]):
            levels.append(below)
        return tuple(levels)

    @cached_property
    def routers(self) -> tuple[int, ...]:
        """The nodes that have a router, i.e. two children, in the order of :attr:`nodes`."""
        return tuple(node for node in self.nodes if len(self._children[node]) == 2)

    @property
    def height(self) -> int:
        """The depth of the deepest node; a lone root has height 0."""
        return len(self.levels) - 1

    def children(self, node: int) -> tuple[int, ...]:
        """The children of a node, left first; empty for a leaf."""
        return self._children[self._known(node)]

    def parent(self, node: int) -> int | None:
        """The parent of a node; None for the root."""
        return self._parent[self._known(node)]

    def is_leaf(self, node: int) -> bool:
        """Whether the node has no children."""
        return not self.children(node)

    def path(self, node: int) -> tuple[int, ...]:
        """The nodes from the root to the node, both included."""
        path = [self._known(node)]
        while (above := self._parent[path[-1]]) is not None:
            path.append(above)
        return tuple(reversed(path))

    def depth(self, node: int) -> int:
        """The number of edges from the root to the node."""
        return len(self.path(node)) - 1

    def leaves_below(self, node: int) -> tuple[int, ...]:
        """The leaves under a node from left to right; a leaf is its own."""
        return tuple(below for below in self._walk(self._known(node)) if self.is_leaf(below))

    # -- changing, i.e. making another tree -----------------------------------------------------------------------

    def split(self, leaf: int) -> Tree:
        """The tree in which the leaf has two new children, numbered ``n_created`` (left) and ``n_created + 1``."""
        self._must_be_leaf(leaf, "split")
        children = {**self._children, leaf: (self.n_created, self.n_created + 1)}
        return Tree(children, self.n_created + 2)

    def prune(self, leaf: int) -> Tree:
        """The tree without the leaf and without the one-child ancestors that led only to it.

        The nearest ancestor that had two children is left with one and passes its probability on.
        """
        self._must_be_leaf(leaf, "prune")
        if len(self.leaves) == 1:
            raise ValueError(f"leaf {leaf} is the only one left; a tree keeps at least one leaf")
        children = dict(self._children)
        gone = leaf
        while True:
            above = self._parent[gone]
            assert above is not None  # another leaf exists, so a fork is met before the root is passed
            del children[gone]
            if len(children[above]) == 2:
                children[above] = tuple(child for child in children[above] if child != gone)
                return Tree(children, self.n_created)
            gone = above

    # -- cutting ------------------------------------------------------------------------------------------------

    def cut(self, level: int) -> tuple[int, ...]:
        """The groups seen at a depth, from left to right: the nodes of that depth and the leaves above it."""
        if _number(level) < 0:
            raise ValueError(f"level={level} must be at least 0, the root; this tree has levels 0 to {self.height}")
        deep = {node for node in self.nodes if self.depth(node) == level}
        return tuple(
            node for node in self._walk(0) if node in deep or (self.is_leaf(node) and self.depth(node) < level)
        )

    def groups(self, k: int) -> tuple[int, ...]:
        """The k groups, from left to right, that the tree had when it had been split k - 1 times."""
        if not 1 <= _number(k) <= len(self.leaves):
            raise ValueError(f"cannot cut into {k} groups; this tree has {len(self.leaves)} leaves, so 1 to that many")
        groups = [self._fork(0)]
        while len(groups) < k:
            oldest = min((node for node in groups if not self.is_leaf(node)), key=self.children)  # numbered by age
            place = groups.index(oldest)
            groups[place : place + 1] = [self._fork(child) for child in self._children[oldest]]
        return tuple(groups)

    # -- other people's formats -------------------------------------------------------------------------------------

    def to_newick(self) -> str:
        """The tree in Newick format, every branch of length 1, every node named by its number."""

        def write(node: int) -> str:
            below = ",".join(f"{write(child)}:1" for child in self._children[node])
            return f"({below}){node}" if below else str(node)

        return write(0) + ";"

    def to_linkage(self) -> np.ndarray:
        """A scipy linkage matrix over the leaves, numbered from left to right; heights count levels from the bottom.

        One-child nodes merge nothing and do not appear. Draw it with :func:`scipy.cluster.hierarchy.dendrogram`.
        """
        cluster = {leaf: (i, 1) for i, leaf in enumerate(self.leaves)}  # node -> (cluster number, leaves in it)
        rows: list[list[float]] = []
        for node in reversed(self.nodes):  # children before parents
            below = self._children[node]
            if len(below) == 1:
                cluster[node] = cluster[below[0]]
            elif below:
                (left, n_left), (right, n_right) = cluster[below[0]], cluster[below[1]]
                cluster[node] = (len(self.leaves) + len(rows), n_left + n_right)
                rows.append([left, right, self.height - self.depth(node), n_left + n_right])
        return np.array(rows, dtype=float).reshape(-1, 4)

    def to_networkx(self) -> networkx.DiGraph:
        """A directed networkx graph with edges from parent to child."""
        import networkx

        graph = networkx.DiGraph()
        graph.add_nodes_from(self.nodes)
        graph.add_edges_from((node, child) for node in self.nodes for child in self._children[node])
        return graph

    def to_json(self) -> str:
        """The tree as a JSON object, read back by :meth:`from_json`."""
        children = {str(node): list(below) for node, below in sorted(self._children.items()) if below}
        return json.dumps({"children": children, "n_created": self.n_created})

    @classmethod
    def from_json(cls, text: str) -> Tree:
        """The tree that :meth:`to_json` wrote."""
        try:
            data = json.loads(text)
            if set(data) != {"children", "n_created"}:
                raise ValueError(f"expected the keys children and n_created, found {sorted(data)}")
            return cls({int(node): below for node, below in data["children"].items()}, data["n_created"])
        except (TypeError, AttributeError, ValueError, RecursionError) as error:
            raise ValueError(f"not a tree in JSON: {error}") from error

    # -- looking ------------------------------------------------------------------------------------------------

    def draw(self, describe: Callable[[int], str] = str) -> str:
        """The tree as text, one line a node; ``describe`` says what stands at a node (default: its number)."""
        lines = [describe(0)]

        def write(node: int, margin: str) -> None:
            below = self._children[node]
            for child in below:
                last = child == below[-1]
                lines.append(margin + ("└── " if last else "├── ") + describe(child))
                write(child, margin + ("    " if last else "│   "))

        write(0, "")
        return "\n".join(lines)

    def to_svg(self, share: Mapping[int, float] | None = None, describe: Callable[[int], str] = str) -> str:
        """A small upright drawing of the tree as SVG; leaves are numbered as clusters.

        Branches are as wide as the ``share`` of the samples that takes them, where it is given; what ``describe`` says
        of a node is shown to whoever points at it.
        """
        x = {leaf: LEAF_STEP * (k + 0.5) for k, leaf in enumerate(self.leaves)}
        for node in reversed(self.nodes):  # children before parents
            if below := self._children[node]:
                x[node] = sum(x[child] for child in below) / len(below)
        y = {node: LEVEL_STEP * (self.depth(node) + 0.5) for node in self.nodes}
        parts = []
        for child in self.nodes[1:]:
            above = self._parent[child]
            assert above is not None  # only the root has none
            middle = (y[above] + y[child]) / 2
            path = f"M{x[above]:.1f},{y[above]:.1f}C{x[above]:.1f},{middle:.1f} {x[child]:.1f},{middle:.1f} "
            width = 1.5 if share is None else max(1.0, LEAF_STEP / 2 * share[child])
            parts.append(f'<path d="{path}{x[child]:.1f},{y[child]:.1f}" stroke-width="{width:.1f}"/>')
        for node in self.nodes:
            at, title = f'cx="{x[node]:.1f}" cy="{y[node]:.1f}"', f"<title>{escape(describe(node))}</title>"
            if not self.is_leaf(node):
                parts.append(f'<circle {at} r="4" fill="#7a828e" stroke="none">{title}</circle>')
                continue
            text = f'<text x="{x[node]:.1f}" y="{y[node] + 4:.1f}" fill="#fff">{self.leaves.index(node)}</text>'
            parts.append(f'<g fill="#2f6fc4" stroke="none"><circle {at} r="10">{title}</circle>{text}</g>')
        width, height = LEAF_STEP * len(self.leaves), LEVEL_STEP * len(self.levels)
        return (
            f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" width="{width}" height="{height}" '
            f'role="img" aria-label="tree with {len(self.leaves)} leaves" style="max-width:100%" fill="none" '
            'stroke="#8fa3bd" font-family="sans-serif" font-size="11" text-anchor="middle">' + "".join(parts) + "</svg>"
        )

    def _repr_html_(self) -> str:
        """What a notebook shows."""
        return self.to_svg()

    def __str__(self) -> str:
        clusters = {leaf: f"cluster {k} (node {leaf})" for k, leaf in enumerate(self.leaves)}
        return self.draw(lambda node: clusters.get(node, f"node {node}"))

    def __repr__(self) -> str:
        children = {node: below for node, below in sorted(self._children.items()) if below}
        gap = "" if self.n_created == max(self._children) + 1 else f", n_created={self.n_created}"
        return f"Tree({children}{gap})"

    def __eq__(self, other: Any) -> bool:
        return isinstance(other, Tree) and (self._children, self.n_created) == (other._children, other.n_created)

    def __hash__(self) -> int:
        return hash((frozenset(self._children.items()), self.n_created))

    # -- inside -------------------------------------------------------------------------------------------------

    def _walk(self, node: int) -> list[int]:
        """The node and all below it, each before its children, left before right."""
        walk, stack = [], [node]
        while stack:
            walk.append(stack.pop())
            stack.extend(reversed(self._children[walk[-1]]))
        return walk

    def _fork(self, node: int) -> int:
        """The node itself or, below one-child nodes, the next leaf or router."""
        while len(self._children[node]) == 1:
            (node,) = self._children[node]
        return node

    def _known(self, node: int) -> int:
        if node not in self._children:
            raise ValueError(f"there is no node {node}; this tree has nodes {', '.join(map(str, self.nodes))}")
        return node

    def _must_be_leaf(self, node: int, verb: str) -> None:
        if not self.is_leaf(node):
            raise ValueError(f"cannot {verb} node {node}: it has children; the leaves are {self.leaves}")


def _number(value: Any) -> int:
    """The value as a Python integer; a float, a string or a bool is refused rather than rounded."""
    if isinstance(value, bool | np.bool_) or not isinstance(value, Integral):
        raise ValueError(f"expected a whole number, found {value!r}")
    return int(value)


def balanced(n_leaves: int) -> Tree:
    """A tree that splits its shallowest leaf until it has so many leaves."""
    tree = Tree()
    while len(tree.leaves) < n_leaves:
        tree = tree.split(min(tree.leaves, key=tree.depth))
    return tree


def merged(pairs: Sequence[tuple[int, int]]) -> tuple[Tree, list[int]]:
    """The tree that merging groups makes, the last merge at its root, and which group each leaf is, left to right.

    Groups are numbered from 0, and pair i makes group n + i, where n is one more than the number of pairs.
    """
    n, tree = len(pairs) + 1, Tree()
    node = {2 * n - 2: 0}  # group -> node
    for i in reversed(range(n - 1)):
        tree = tree.split(above := node[n + i])
        node |= zip(pairs[i], tree.children(above), strict=True)
    group = {leaf: which for which, leaf in node.items()}
    return tree, [group[leaf] for leaf in tree.leaves]
