"""The picture of a fitted tree: its branches, and under each leaf the images it holds and those it dreams up.

What is drawn (:class:`Layout`, :class:`LeafCard`, :class:`Page`) is computed first, without matplotlib.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from math import ceil
from numbers import Integral
from typing import TYPE_CHECKING, Any

import numpy as np
from sklearn.utils import check_random_state

from ..data.arrays import InputForm, as_array
from ..tree import Tree

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

    from ..estimator import TreeVAE

DPI = 110
ACROSS = 3  # images in a row under a leaf

# Colours told apart by lightness as well as hue. One ramp for each side of the first split, read from left to right.
RAMPS = (("#14245f", "#1c64ad", "#1f8fa6"), ("#7d1035", "#c8480c", "#d68a00"))
INK, QUIET, TRUNK = "#22252a", "#5f656e", "#4a505a"
REAL_PANEL = "#eceef1"

# Lengths in inches, text in points.
PAGE_WIDTH = 14.5  # of ten leaves; 1600 pixels
COLUMN = (0.95, 1.75)  # narrowest and widest column of a leaf
MARGIN = 1.0  # left of the leaves, for the names of the rows
EDGE = 0.15  # free space around the picture, and between the columns
TOP = 0.56  # above the root
LEVEL = 0.72  # from parent to child
BADGE = 15.0  # radius of a leaf's circle, in points
ALL_SAMPLES = 20.0  # width of a branch that all samples take, in points
THINNEST = 1.0  # width of a branch that next to none take, in points
TEXT, SMALL, SMALLEST = 12.0, 10.5, 8.0


@dataclass(frozen=True)
class Layout:
    """Where the nodes of a tree stand, and which share of the samples comes by."""

    x: dict[int, float]  # leaf k stands at k, a parent in the middle of its children
    depth: dict[int, int]
    share: dict[int, float]

    @classmethod
    def of(cls, tree: Tree, labels: np.ndarray) -> Layout:
        """The layout of a tree whose leaves won the samples as ``labels`` says."""
        x = {leaf: float(k) for k, leaf in enumerate(tree.leaves)}
        won = dict(zip(tree.leaves, np.bincount(labels, minlength=len(tree.leaves)).tolist(), strict=True))
        for node in reversed(tree.nodes):  # children before parents
            if below := tree.children(node):
                x[node] = sum(x[child] for child in below) / len(below)
                won[node] = sum(won[child] for child in below)
        return cls(x, {node: tree.depth(node) for node in x}, {node: n / len(labels) for node, n in won.items()})


@dataclass(frozen=True)
class LeafCard:
    """What stands under a leaf; images are (n, h, w, 3 or 4) in [0, 1]."""

    share: float
    main_class: str | None  # None where there are no labels, or no samples
    purity: float  # share of the main class among the leaf's samples
    real: np.ndarray
    generated: np.ndarray


@dataclass(frozen=True)
class Page:
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
        rows = {"cluster": self.y(self.levels) + BADGE / 72 + 0.05}
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

    def x(self, place: float) -> float:
        """The x of a place counted in leaves."""
        return MARGIN + (place + 0.5) * self.column

    def y(self, depth: int) -> float:
        """The y of the nodes of a depth."""
        return TOP + depth * LEVEL


def tree_picture(
    model: TreeVAE,
    X: Any,
    y: Any = None,
    class_names: Sequence[str] | None = None,
    *,
    n_real: int = 15,
    n_generated: int = 9,
    random_state: Any = 0,
) -> Figure:
    """A figure of the tree with real and generated images under each leaf.

    Branches are as wide as the share of the samples that takes them.

    Parameters
    ----------
    model : fitted TreeVAE
    X : images as in ``fit``
        The samples that are sent down the tree.
    y : array-like of shape (n_samples,), optional
        Classes, to name each leaf by its most frequent one.
    class_names : sequence of str, optional
        Name of class ``k`` at ``k``; by default the labels in y name themselves.
    n_real, n_generated : int, default=15, 9
        Images under a leaf. The real ones are drawn from the more probable half of the samples the leaf wins, the
        most probable first.
    random_state : int, RandomState instance or None, default=0
        Where the choice of images and the generated ones come from.
    """
    try:
        from matplotlib.backends.backend_agg import FigureCanvasAgg
        from matplotlib.figure import Figure
    except ImportError as error:
        raise ImportError("tree_picture draws with matplotlib; install it with: pip install 'treevae[view]'") from error

    X = np.asarray(as_array(X))
    form = _image_form(X)
    for name, n in (("n_real", n_real), ("n_generated", n_generated)):
        if not isinstance(n, Integral) or n < 1:
            raise ValueError(f"{name}={n!r} must be a whole number of at least 1")
    reach = model.predict_proba(X)
    classes = None if y is None else _named(y, class_names, len(X))
    cards = leaf_cards(model, X, reach, classes, n_real, n_generated, random_state)

    tree, layout = model.tree_, Layout.of(model.tree_, reach.argmax(1))
    page = Page(
        len(cards), tree.height, form.shape[1] / form.shape[2], classes is not None, int(n_real), int(n_generated)
    )
    figure = Figure(figsize=page.size, dpi=DPI, facecolor="white")
    FigureCanvasAgg(figure)
    axes = figure.add_axes((0, 0, 1, 1))
    axes.set_axis_off()
    colours = node_colours(tree)
    _draw_branches(axes, page, tree, layout, colours)
    _draw_nodes(axes, page, tree, layout, colours, f"{len(X):,} images")
    for name, top in page.rows.items():
        _draw_row_name(axes, page, name, top)
    for k, (leaf, card) in enumerate(zip(tree.leaves, cards, strict=True)):
        _draw_card(axes, page, k, card, colours[leaf])
    axes.set(xlim=(0, page.size[0]), ylim=(page.size[1], 0), aspect="auto")  # inches; drawing images changed them
    return figure


def leaf_cards(
    model: TreeVAE,
    X: np.ndarray,
    reach: np.ndarray,
    classes: np.ndarray | None,
    n_real: int,
    n_generated: int,
    random_state: Any,
) -> list[LeafCard]:
    """The card of each leaf, from left to right; ``reach`` is the (n_samples, n_leaves) probabilities."""
    form, span = InputForm.of(X), _span(X)
    chance = check_random_state(random_state)
    labels = reach.argmax(1)
    cards = []
    for k in range(reach.shape[1]):
        won = np.flatnonzero(labels == k)
        likely = won[np.argsort(-reach[won, k], kind="stable")][: max(n_real, len(won) // 2)]
        chosen = likely[np.sort(chance.permutation(len(likely))[:n_real])]
        main_class, purity = None, 0.0
        if classes is not None and len(won):
            names, counts = np.unique(classes[won], return_counts=True)
            main_class, purity = str(names[counts.argmax()]), counts.max() / len(won)
        real = _pixels(X[chosen], form, span)
        generated = _pixels(model.sample(n_generated, leaf=k, random_state=chance), form, span)
        cards.append(LeafCard(len(won) / len(X), main_class, purity, real, generated))
    return cards


def node_colours(tree: Tree) -> dict[int, np.ndarray]:
    """The RGB colour of each node: leaves by their side of the first split, inner nodes the mean of their leaves.

    The way to the first split is grey.
    """
    sides = tree.children(tree.routers[0]) if tree.routers else (0,)
    colours = {}
    for side, ramp in zip(sides, RAMPS, strict=False):
        stops = np.array([_rgb(colour) for colour in ramp])
        leaves = tree.leaves_below(side)
        place = (np.arange(len(leaves)) + 0.5) / len(leaves) * (len(ramp) - 1)
        for leaf, at in zip(leaves, place, strict=True):
            colours[leaf] = np.array([np.interp(at, range(len(ramp)), stop) for stop in stops.T])
    mean = {node: np.mean([colours[leaf] for leaf in tree.leaves_below(node)], axis=0) for node in tree.nodes}
    return mean | {node: np.array(_rgb(TRUNK)) for router in tree.routers[:1] for node in tree.path(router)}


def branch(start: tuple[float, float], turn: tuple[float, float], end: float) -> np.ndarray:
    """Points (n, 2) of a branch: an upright S from start to turn, then straight down to y = end.

    It begins a hair above start, so that no seam shows between it and the branch it comes from.
    """
    t = np.linspace(0, 1, 80)
    x = start[0] + (turn[0] - start[0]) * (3 * t**2 - 2 * t**3)
    y = start[1] + (turn[1] - start[1]) * (1.8 * t * (1 - t) ** 2 + 1.2 * t**2 * (1 - t) + t**3)
    return np.vstack([[start[0], start[1] - 0.02], np.column_stack([x, y]), [turn[0], end]])


# -- reading ----------------------------------------------------------------------------------------------------


def _image_form(X: np.ndarray) -> InputForm:
    form = InputForm.of(X)
    if not form.is_image:
        raise ValueError(
            f"X has shape {X.shape}, so its samples are vectors; the picture needs images, (n, h, w) or with channels"
        )
    return form


def _named(y: Any, class_names: Sequence[str] | None, n: int) -> np.ndarray:
    """The name of each sample's class, (n,)."""
    y = np.asarray(as_array(y))
    if y.shape != (n,):
        raise ValueError(f"y has shape {y.shape}; with {n} images in X it must be ({n},)")
    if class_names is None:
        return y.astype(str)
    if y.dtype.kind not in "iub" or y.min() < 0 or y.max() >= len(class_names):
        raise ValueError(
            f"y holds {', '.join(map(str, np.unique(y)[:9]))}; the {len(class_names)} class_names are for the whole "
            f"numbers from 0 to {len(class_names) - 1}. Leave class_names out to show the labels themselves"
        )
    return np.array([str(name) for name in class_names])[y.astype(int)]


def _span(X: np.ndarray) -> tuple[float, float]:
    """The values drawn as black and white: 0 and 1, or further apart where X goes beyond them."""
    return (0.0, 1.0) if X.dtype == np.uint8 else (min(0.0, float(X.min())), max(1.0, float(X.max())))


def _pixels(images: np.ndarray, form: InputForm, span: tuple[float, float]) -> np.ndarray:
    """The images as (n, h, w, 3 or 4) in [0, 1]."""
    if not len(images):
        return np.empty((0, *form.shape[1:], 3))
    low, high = span
    values = ((form.to_matrix(images) - low) / (high - low)).clip(0, 1)
    pixels = np.moveaxis(values.reshape(-1, *form.shape), 1, 3)
    return pixels.repeat(3, axis=3) if pixels.shape[3] == 1 else pixels


# -- drawing ----------------------------------------------------------------------------------------------------


def _draw_branches(axes: Axes, page: Page, tree: Tree, layout: Layout, colours: dict[int, np.ndarray]) -> None:
    """Draw a line from every parent to its children; side by side they are as wide as the one that comes in."""
    inch = ALL_SAMPLES / 72
    for node in tree.nodes:
        left = page.x(layout.x[node]) - layout.share[node] * inch / 2
        for child in tree.children(node):
            width = layout.share[child] * inch
            turn = page.x(layout.x[child]), page.y(layout.depth[child])
            end = page.rows["cluster"] if tree.is_leaf(child) else turn[1]
            points = branch((left + width / 2, page.y(layout.depth[node])), turn, end)
            axes.plot(
                *points.T,
                color=colours[child],
                linewidth=max(width * 72, THINNEST),
                solid_capstyle="butt",
                solid_joinstyle="round",
                snap=False,
            )
            left += width


def _draw_nodes(axes: Axes, page: Page, tree: Tree, layout: Layout, colours: dict[int, np.ndarray], total: str) -> None:
    """Draw the root with its total, a dot and a share at every other router, a numbered circle at every leaf."""
    plate = {"boxstyle": "round,pad=0.55,rounding_size=1", "facecolor": TRUNK, "linewidth": 0}
    axes.text(
        page.x(layout.x[0]), TOP - 0.17, total, color="white", fontsize=TEXT, ha="center", va="center", bbox=plate
    )
    for node in tree.routers:
        if node == 0:
            continue
        x, y = page.x(layout.x[node]), page.y(layout.depth[node])
        axes.plot(x, y, "o", markersize=7, markerfacecolor="white", markeredgecolor=colours[node], markeredgewidth=1.8)
        if node != tree.routers[0]:  # which all samples come by
            side = -1 if _is_left(tree, node) else 1  # the branch comes in from the other side
            away = max(layout.share[node] * ALL_SAMPLES / 2, 4) / 72 + 0.05
            axes.text(
                x + side * away,
                y,
                _percent(layout.share[node]),
                color=QUIET,
                fontsize=SMALL,
                ha="right" if side < 0 else "left",
                va="center",
            )
    for k, leaf in enumerate(tree.leaves):
        place = page.x(k), page.rows["cluster"]
        axes.plot(*place, "o", markersize=2 * BADGE, color=colours[leaf], markeredgecolor="white", markeredgewidth=2)
        axes.text(*place, str(k), color="white", fontsize=TEXT + 1, weight="bold", ha="center", va="center_baseline")


def _draw_row_name(axes: Axes, page: Page, name: str, top: float) -> None:
    if name in ("real", "generated"):
        top += page.panel_height(page.n_real if name == "real" else page.n_generated) / 2
    axes.text(MARGIN - 0.05, top, name, color=QUIET, fontsize=SMALL, ha="right", va="center")


def _draw_card(axes: Axes, page: Page, k: int, card: LeafCard, colour: np.ndarray) -> None:
    """Write the header of leaf k and draw its two panels of images."""
    x, rows = page.x(k), page.rows
    axes.text(x, rows["share"], _percent(card.share), color=INK, fontsize=TEXT, ha="center", va="center")
    if card.main_class is not None:
        _write_within(axes, x, rows["main class"], card.main_class, page.column - 0.12)
        axes.text(x, rows["purity"], _percent(card.purity), color=QUIET, fontsize=SMALL, ha="center", va="center")
    _draw_panel(axes, page, x, rows["real"], card.real, page.n_real, REAL_PANEL)
    _draw_panel(axes, page, x, rows["generated"], card.generated, page.n_generated, 0.68 + 0.32 * colour)


def _draw_panel(axes: Axes, page: Page, x: float, top: float, images: np.ndarray, n: int, tone: Any) -> None:
    """Draw the images in rows on a rounded ground that has room for n of them."""
    from matplotlib.patches import FancyBboxPatch

    left, gap = x - page.panel / 2, 0.02
    box = f"round,pad={gap},rounding_size=0.05"
    ground = FancyBboxPatch((left, top), page.panel, page.panel_height(n), boxstyle=box, facecolor=tone, linewidth=0)
    axes.add_patch(ground)
    width, height = page.cell
    for i, image in enumerate(images):
        row, column = divmod(i, ACROSS)
        x0, y0 = left + column * width + gap, top + row * height + gap
        axes.imshow(image, extent=(x0, x0 + width - 2 * gap, y0 + height - 2 * gap, y0), zorder=2)


def _write_within(axes: Axes, x: float, y: float, text: str, width: float) -> None:
    """Write the text in bold, smaller or cut short where it would be wider than ``width``."""
    text = " ".join(text.split())
    written = axes.text(x, y, text, color=INK, fontsize=TEXT, weight="bold", ha="center", va="center", parse_math=False)

    def inches() -> float:
        return written.get_window_extent().width / axes.figure.dpi

    if inches() > width:
        written.set_fontsize(max(TEXT * width / inches(), SMALLEST))
    while inches() > width and len(text) > 1:
        text = text[:-1].rstrip()
        written.set_text(text + "…")


def _is_left(tree: Tree, node: int) -> bool:
    """Whether the branch that leads to the node, one-child nodes passed over, leaves its router to the left."""
    path = tree.path(node)
    above, below = next((a, b) for a, b in zip(path[-2::-1], path[:0:-1], strict=True) if len(tree.children(a)) == 2)
    return below == tree.children(above)[0]


def _rgb(colour: str) -> tuple[float, ...]:
    """Red, green and blue in [0, 1] of "#rrggbb"."""
    return tuple(part / 255 for part in bytes.fromhex(colour[1:]))


def _percent(share: float) -> str:
    return "<1 %" if 0 < share < 0.005 else f"{100 * share:.0f} %"
