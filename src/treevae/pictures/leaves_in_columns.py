"""An upright tree: its leaves side by side, under each a column with its numbers and its images."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from math import ceil
from typing import TYPE_CHECKING, Any

import numpy as np

from ..describe.images import LeafCard
from ..tree import Tree
from .branches import BADGE, Branches, Frame, draw_branches, draw_nodes, node_colours
from .canvas import EDGE, QUIET, REAL_PANEL, SMALL, blank, draw_ground, draw_images, pale, percent, write, write_within

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

ACROSS = 3  # images in a row under a leaf

# Lengths in inches.
PAGE_WIDTH = 14.5  # of ten leaves; 1600 pixels
COLUMN = (0.95, 1.75)  # narrowest and widest column of a leaf
MARGIN = 1.0  # left of the leaves, for the names of the rows
TOP = 0.56  # above the root
LEVEL = 0.72  # from parent to child


@dataclass(frozen=True)
class ColumnsPage:
    """Where things are on the paper, in inches from the upper left corner."""

    n_leaves: int
    levels: int
    proportion: float  # height of an image over its width
    labelled: bool
    n_real: int
    n_generated: int

    @cached_property
    def column(self) -> float:
        """Width of the column of a leaf."""
        return min(max((PAGE_WIDTH - MARGIN - EDGE) / self.n_leaves, COLUMN[0]), COLUMN[1])

    @cached_property
    def frame(self) -> Frame:
        """Where the tree stands."""
        badges = TOP + self.levels * LEVEL + BADGE / 72 + 0.05
        return Frame(MARGIN + self.column / 2, self.column, TOP, LEVEL, badges, lying=False)

    @cached_property
    def panel(self) -> float:
        """Width of a panel of images."""
        return self.column - EDGE

    @cached_property
    def cell(self) -> tuple[float, float]:
        """Width and height of an image with the gap around it."""
        return self.panel / ACROSS, self.panel / ACROSS * self.proportion

    @cached_property
    def rows(self) -> dict[str, float]:
        """The y of each row, by its name in the margin: the middle of a line of text, the top of a panel."""
        rows = {"cluster": self.frame.badges}
        rows["share"] = rows["cluster"] + 0.39
        if self.labelled:
            rows["main class"] = rows["share"] + 0.26
            rows["purity"] = rows["main class"] + 0.23
        rows["real"] = max(rows.values()) + 0.2
        rows["generated"] = rows["real"] + self.panel_height(self.n_real) + 0.12
        return rows

    @property
    def size(self) -> tuple[float, float]:
        """Width and height of the page."""
        width = MARGIN + self.n_leaves * self.column + EDGE
        return width, self.rows["generated"] + self.panel_height(self.n_generated) + EDGE

    def panel_height(self, n: int) -> float:
        """Height of a panel of n images."""
        return ceil(n / ACROSS) * self.cell[1]


def draw_in_columns(tree: Tree, branches: Branches, page: ColumnsPage, cards: Sequence[LeafCard], total: str) -> Figure:
    """The figure of a tree with the cards of its leaves."""
    figure, axes = blank(page.size)
    colours = node_colours(tree)
    draw_branches(axes, page.frame, tree, branches, colours)
    draw_nodes(axes, page.frame, tree, branches, colours, total)
    for name, top in page.rows.items():
        _draw_row_name(axes, page, name, top)
    for k, (leaf, card) in enumerate(zip(tree.leaves, cards, strict=True)):
        _draw_card(axes, page, k, card, colours[leaf])
    return figure


def _draw_row_name(axes: Axes, page: ColumnsPage, name: str, top: float) -> None:
    if name in ("real", "generated"):
        top += page.panel_height(page.n_real if name == "real" else page.n_generated) / 2
    write(axes, MARGIN - 0.05, top, name, color=QUIET, fontsize=SMALL, ha="right")


def _draw_card(axes: Axes, page: ColumnsPage, k: int, card: LeafCard, colour: np.ndarray) -> None:
    """Write the header of leaf k and draw its two panels of images."""
    x, rows = page.frame.along(k), page.rows
    write(axes, x, rows["share"], percent(card.share), ha="center")
    if card.main_class is not None:
        write_within(axes, x, rows["main class"], card.main_class, page.column - 0.12, weight="bold", ha="center")
        write(axes, x, rows["purity"], percent(card.purity), color=QUIET, fontsize=SMALL, ha="center")
    _draw_panel(axes, page, x, rows["real"], card.real, page.n_real, REAL_PANEL)
    _draw_panel(axes, page, x, rows["generated"], card.generated, page.n_generated, pale(colour))


def _draw_panel(axes: Axes, page: ColumnsPage, x: float, top: float, images: np.ndarray, n: int, tone: Any) -> None:
    """Draw the images in rows on a ground that has room for n of them."""
    left, (width, height) = x - page.panel / 2, page.cell
    draw_ground(axes, left, top, page.panel, page.panel_height(n), tone)
    draw_images(axes, images, lambda i: (left + i % ACROSS * width, top + i // ACROSS * height), page.cell)
