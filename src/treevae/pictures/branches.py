"""The tree on the paper: where its nodes stand, their colours, and the branches as wide as what goes through them.

A tree stands upright, its leaves side by side, or lies on its side, its leaves one below the other. Both are one
drawing with the axes exchanged: ``along`` runs from leaf to leaf, ``across`` from the root to the leaves.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from ..tree import Tree
from .canvas import QUIET, SMALL, TEXT, TRUNK, percent, write, write_list

if TYPE_CHECKING:
    from matplotlib.axes import Axes

# Colours told apart by lightness as well as hue. One ramp for each side of the first split, read from left to right.
RAMPS = (("#14245f", "#1c64ad", "#1f8fa6"), ("#7d1035", "#c8480c", "#d68a00"))

# Lengths in inches but where points are said.
BADGE = 15.0  # radius of a leaf's circle, in points
ALL_SAMPLES = 20.0  # width of a branch that all samples take, in points
THINNEST = 1.0  # width of a branch that next to none take, in points
BEND = 0.55  # of a level, where a lying branch has turned: words stand on the rest of it


@dataclass(frozen=True)
class Branches:
    """Where the nodes of a tree stand, and which share of the samples comes by."""

    x: dict[int, float]  # leaf k stands at k, a parent in the middle of its children
    depth: dict[int, int]
    share: dict[int, float]

    @classmethod
    def of(cls, tree: Tree, labels: np.ndarray) -> Branches:
        """The branches of a tree whose leaves won the samples as ``labels`` says."""
        x = {leaf: float(k) for k, leaf in enumerate(tree.leaves)}
        won = dict(zip(tree.leaves, np.bincount(labels, minlength=len(tree.leaves)).tolist(), strict=True))
        for node in reversed(tree.nodes):  # children before parents
            if below := tree.children(node):
                x[node] = sum(x[child] for child in below) / len(below)
                won[node] = sum(won[child] for child in below)
        return cls(x, {node: tree.depth(node) for node in x}, {node: n / len(labels) for node, n in won.items()})


@dataclass(frozen=True)
class Frame:
    """Where a tree stands on the paper, in inches."""

    first: float  # the first leaf, along
    step: float  # from leaf to leaf, along
    root: float  # across
    level: float  # from parent to child, across
    badges: float  # the leaves' circles, across
    lying: bool

    def along(self, place: float) -> float:
        """The inches along of a place counted in leaves."""
        return self.first + place * self.step

    def across(self, depth: float) -> float:
        """The inches across of a depth."""
        return self.root + depth * self.level

    def points(self, along_across: np.ndarray) -> np.ndarray:
        """The x and y, (..., 2), of places given along and across."""
        return along_across[..., ::-1] if self.lying else along_across


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
    """Points (n, 2), along and across, of a branch: an S from start to turn, then straight on to across = end.

    It begins a hair before start, so that no seam shows between it and the branch it comes from.
    """
    t = np.linspace(0, 1, 80)
    along = start[0] + (turn[0] - start[0]) * (3 * t**2 - 2 * t**3)
    across = start[1] + (turn[1] - start[1]) * (1.8 * t * (1 - t) ** 2 + 1.2 * t**2 * (1 - t) + t**3)
    return np.vstack([[start[0], start[1] - 0.02], np.column_stack([along, across]), [turn[0], end]])


def draw_branches(axes: Axes, frame: Frame, tree: Tree, branches: Branches, colours: dict[int, np.ndarray]) -> None:
    """Draw a line from every parent to its children; side by side they are as wide as the one that comes in."""
    inch = ALL_SAMPLES / 72
    bend = frame.level * (BEND if frame.lying else 1)
    for node in tree.nodes:
        edge = frame.along(branches.x[node]) - branches.share[node] * inch / 2
        start = frame.across(branches.depth[node])
        for child in tree.children(node):
            width = branches.share[child] * inch
            end = frame.badges if tree.is_leaf(child) else start + frame.level
            points = branch((edge + width / 2, start), (frame.along(branches.x[child]), start + bend), end)
            axes.plot(
                *frame.points(points).T,
                color=colours[child],
                linewidth=max(width * 72, THINNEST),
                solid_capstyle="butt",
                solid_joinstyle="round",
                snap=False,
            )
            edge += width


def draw_nodes(
    axes: Axes,
    frame: Frame,
    tree: Tree,
    branches: Branches,
    colours: dict[int, np.ndarray],
    total: str,
    notes: Mapping[int, Sequence[str]] | None = None,
) -> None:
    """Draw the root with its total, a dot and a share at every other router, a numbered circle at every leaf.

    ``notes`` are words for the branches that lead to routers of a lying tree.
    """
    plate = {"boxstyle": "round,pad=0.55,rounding_size=1", "facecolor": TRUNK, "linewidth": 0}
    before, align = (0.1, "right") if frame.lying else (0.17, "center")
    x, y = frame.points(np.array([frame.along(branches.x[0]), frame.root - before]))
    write(axes, x, y, total, color="white", ha=align, bbox=plate)
    for node in tree.routers:
        if node == 0:
            continue
        x, y = frame.points(np.array([frame.along(branches.x[node]), frame.across(branches.depth[node])]))
        axes.plot(x, y, "o", markersize=7, markerfacecolor="white", markeredgecolor=colours[node], markeredgewidth=1.8)
        if node == tree.routers[0]:  # which all samples come by
            continue
        side = -1 if _is_first(tree, node) else 1  # the branch comes in from the other side
        away = max(branches.share[node] * ALL_SAMPLES / 2, 4) / 72 + 0.05
        share, style = percent(branches.share[node]), {"color": QUIET, "fontsize": SMALL}
        if not frame.lying:
            write(axes, x + side * away, y, share, ha="right" if side < 0 else "left", **style)
            continue
        words = (notes or {}).get(node, ())
        line = away + SMALL / 144
        write(axes, x, y + (-side if words else side) * line, share, ha="right", **style)
        if words:
            note = {"color": colours[node] * 0.85, "fontsize": SMALL, "ha": "right"}
            write_list(axes, x, y + side * line, words, frame.level - 0.08, ", ", **note)
    for k, leaf in enumerate(tree.leaves):
        x, y = frame.points(np.array([frame.along(k), frame.badges]))
        axes.plot(x, y, "o", markersize=2 * BADGE, color=colours[leaf], markeredgecolor="white", markeredgewidth=2)
        write(axes, x, y, str(k), color="white", fontsize=TEXT + 1, weight="bold", ha="center", va="center_baseline")


def _is_first(tree: Tree, node: int) -> bool:
    """Whether the branch that leads to the node, one-child nodes passed over, is the first that leaves its router."""
    path = tree.path(node)
    above, below = next((a, b) for a, b in zip(path[-2::-1], path[:0:-1], strict=True) if len(tree.children(a)) == 2)
    return below == tree.children(above)[0]


def _rgb(colour: str) -> tuple[float, ...]:
    """Red, green and blue in [0, 1] of "#rrggbb"."""
    return tuple(part / 255 for part in bytes.fromhex(colour[1:]))
