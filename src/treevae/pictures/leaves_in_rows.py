"""A tree on its side: its leaves one below the other, beside each a row with its numbers and its words or images.

Rows have room for text, and many leaves stay legible.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING

import numpy as np

from ..describe.contrasts import Frequency
from ..describe.images import LeafCard
from ..tree import Tree
from .branches import BADGE, Branches, Frame, draw_branches, draw_nodes, node_colours
from .canvas import (
    EDGE,
    INK,
    QUIET,
    REAL_PANEL,
    SMALL,
    STRIPE,
    TEXT,
    blank,
    draw_ground,
    draw_images,
    pale,
    percent,
    write,
    write_list,
    write_within,
)

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

# Lengths in inches.
ROOT, LETTER = 0.45, 0.1  # left of the root, and how much more for each letter of its total
HEADER = 0.5  # above the rows, for the names of the columns
TREE_WIDTH = 7.2  # from the root to the leaves, if the levels are then not too narrow or too wide
LEVEL = (0.75, 1.6)  # narrowest and widest level
SHARE, PURITY = 0.5, 0.55  # columns
CLASS, CLASS_LETTER = (0.9, 2.2), 0.11  # narrowest and widest column, and what a letter takes
WORD, ATTRIBUTE, IMAGE = 0.68, 1.55, 0.5  # for each of them
WORD_ROW, ATTRIBUTE_ROW, IMAGE_GAP = 0.43, 0.56, 0.08  # heights of rows, and how much higher they are than an image


@dataclass(frozen=True)
class RowsPage:
    """Where things are on the paper, in inches from the upper left corner."""

    n_leaves: int
    levels: int
    root: float  # left of the root
    row: float  # height of a leaf's row
    class_width: float | None  # of the column of main classes; None without labels
    content: Mapping[str, float]  # name and width of the columns after the numbers

    @cached_property
    def frame(self) -> Frame:
        """Where the tree lies."""
        level = min(max(TREE_WIDTH / max(self.levels, 1), LEVEL[0]), LEVEL[1])
        badges = self.root + self.levels * level + BADGE / 72 + 0.05
        return Frame(HEADER + self.row / 2, self.row, self.root, level, badges, lying=True)

    @cached_property
    def columns(self) -> dict[str, tuple[float, float]]:
        """The left edge and the width of each column, by its name in the header."""
        classes = {} if self.class_width is None else {"main class": self.class_width, "purity": PURITY}
        widths = {"share": SHARE, **classes, **self.content}
        left, columns = self.frame.badges + BADGE / 72 + 0.05, {}
        for name, width in widths.items():
            columns[name] = left, width
            left += width + EDGE
        return columns

    @property
    def size(self) -> tuple[float, float]:
        """Width and height of the page."""
        left, width = list(self.columns.values())[-1]
        return left + width + EDGE, HEADER + self.n_leaves * self.row + EDGE


@dataclass(frozen=True)
class Leafage:
    """What all lying pictures show: the tree, its samples, and what its nodes hold."""

    tree: Tree
    branches: Branches
    total: str  # at the root
    held: Sequence[tuple[str, float] | None] | None  # main class of each leaf and its share; None without labels
    notes: Mapping[int, Sequence[str]]  # on the branches to inner nodes


def draw_words(leafage: Leafage, words: Sequence[Sequence[str]], n: int) -> Figure:
    """The figure of a tree with up to n words beside each leaf."""
    page = _page(leafage, WORD_ROW, {"words": n * WORD})
    figure, axes = _draw_rows(leafage, page)
    left, width = page.columns["words"]
    for k, row in enumerate(words):
        write_list(axes, left, page.frame.along(k), row, width, "  ", fontsize=TEXT)
    return figure


def draw_attributes(leafage: Leafage, attributes: Sequence[Sequence[Frequency]], n: int) -> Figure:
    """The figure of a tree with up to n attributes beside each leaf, in bold where they are frequent."""
    name = "attributes: share in the cluster (in all)"
    page = _page(leafage, ATTRIBUTE_ROW, {name: n * ATTRIBUTE})
    figure, axes = _draw_rows(leafage, page)
    left, _ = page.columns[name]
    for k, row in enumerate(attributes):
        y = page.frame.along(k)
        for i, attribute in enumerate(row):
            x, more = left + i * ATTRIBUTE, attribute.inside > attribute.overall
            style = {"weight": "bold", "color": INK} if more else {"color": QUIET}
            write_within(axes, x, y - 0.1, attribute.name.replace("_", " "), ATTRIBUTE - 0.1, fontsize=SMALL, **style)
            numbers = f"{percent(attribute.inside)} ({percent(attribute.overall)})"
            write(axes, x, y + 0.1, numbers, fontsize=SMALL, color=style["color"])
    return figure


def draw_cards(leafage: Leafage, cards: Sequence[LeafCard], proportion: float, n_real: int, n_generated: int) -> Figure:
    """The figure of a tree with real and generated images beside each leaf; proportion is height over width."""
    cell = IMAGE, IMAGE * proportion
    content = {"real": n_real * IMAGE, "generated": n_generated * IMAGE}
    page = _page(leafage, cell[1] + IMAGE_GAP, content)
    figure, axes = _draw_rows(leafage, page, stripes=False)
    colours = node_colours(leafage.tree)
    for k, (leaf, card) in enumerate(zip(leafage.tree.leaves, cards, strict=True)):
        top = page.frame.along(k) - cell[1] / 2
        for name, images, tone in (("real", card.real, REAL_PANEL), ("generated", card.generated, pale(colours[leaf]))):
            left, width = page.columns[name]
            draw_ground(axes, left, top, width, cell[1], tone)
            _draw_strip(axes, images, left, top, cell)
    return figure


def _page(leafage: Leafage, row: float, content: Mapping[str, float]) -> RowsPage:
    tree, class_width = leafage.tree, None
    if leafage.held is not None:
        longest = max((len(main[0]) for main in leafage.held if main is not None), default=0)
        class_width = min(max(longest * CLASS_LETTER, CLASS[0]), CLASS[1])
    root = ROOT + LETTER * len(leafage.total)
    return RowsPage(len(tree.leaves), tree.height, root, max(row, 2 * BADGE / 72 + 0.02), class_width, content)


def _draw_rows(leafage: Leafage, page: RowsPage, stripes: bool = True) -> tuple[Figure, Axes]:
    """A figure with the tree, the names of the columns, and the numbers of each leaf."""
    tree, branches, frame = leafage.tree, leafage.branches, page.frame
    figure, axes = blank(page.size)
    colours = node_colours(tree)
    if stripes:
        right = page.size[0] - EDGE / 2
        for k in range(0, page.n_leaves, 2):
            draw_ground(axes, frame.badges, frame.along(k) - page.row / 2, right - frame.badges, page.row, STRIPE)
    draw_branches(axes, frame, tree, branches, colours)
    draw_nodes(axes, frame, tree, branches, colours, leafage.total, leafage.notes)
    quiet = {"color": QUIET, "fontsize": SMALL}
    write(axes, frame.badges, HEADER - 0.16, "cluster", ha="center", **quiet)
    for name, (left, width) in page.columns.items():
        x, align = (left + width, "right") if name in ("share", "purity") else (left, "left")
        write(axes, x, HEADER - 0.16, name, ha=align, **quiet)
    for k, leaf in enumerate(tree.leaves):
        y = frame.along(k)
        write(axes, sum(page.columns["share"]), y, percent(branches.share[leaf]), ha="right")
        if leafage.held is not None and (main := leafage.held[k]) is not None:
            left, width = page.columns["main class"]
            write_within(axes, left, y, main[0], width, weight="bold")
            write(axes, sum(page.columns["purity"]), y, percent(main[1]), ha="right", **quiet)
    return figure, axes


def _draw_strip(axes: Axes, images: np.ndarray, left: float, top: float, cell: tuple[float, float]) -> None:
    draw_images(axes, images, lambda i: (left + i * cell[0], top), cell)
