"""What tells the two children of every split apart: mean images, words, standardised features, attributes."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np

from ..tree import Tree
from .contrasts import Totals, Words, attribute_contrast, attribute_totals, checked_table, largest

LEFT, RIGHT = (0.13, 0.37, 0.66), (0.85, 0.37, 0.01)  # blue and orange: told apart by all eyes


def split_means(tree: Tree, labels: np.ndarray, images: np.ndarray) -> dict[int, tuple[np.ndarray, np.ndarray]]:
    """The mean image of each side of every split; ``images`` are (n, features)."""
    totals = Totals.of(tree, labels, images)
    return {node: (totals.mean(left), totals.mean(right)) for node, left, right in _splits(totals)}


def difference_image(left: np.ndarray, right: np.ndarray) -> np.ndarray:
    """The difference of two images (h, w, c) in colour (h, w, 3): blue where left is brighter, orange where right is.

    Where both are the same it is white; the largest difference has the full colour.
    """
    gap = (left - right).mean(axis=2, keepdims=True)
    strength = np.abs(gap) / max(float(np.abs(gap).max()), 1e-9)
    return 1 - strength * (1 - np.where(gap > 0, LEFT, RIGHT))


def word_rows(tree: Tree, labels: np.ndarray, X: Any, names: Sequence[str], n: int) -> dict[int, list[dict[str, Any]]]:
    """The n words of each side of every split with the highest contrast to the other side, those of the left first.

    The contrast is that of :func:`~treevae.describe.contrasts.leaf_words`, negative for words of the right side.
    """
    words, rows = Words.of(tree, labels, X, names), {}
    for node, left, right in _splits(words.totals):
        a, b = words.totals.mean(left), words.totals.mean(right)
        heavier, lighter = words.contrast(a, b), words.contrast(b, a)
        best = [*largest(heavier, n), *largest(lighter, n)]
        rows[node] = _rows(names, best, a, b, heavier - lighter)
    return rows


def feature_rows(
    tree: Tree, labels: np.ndarray, X: Any, names: Sequence[str], n: int
) -> dict[int, list[dict[str, Any]]]:
    """The n features with the largest standardised difference between the sides of every split.

    The difference of the means, left less right, is in units of the feature's standard deviation over all samples.
    """
    X, rows = checked_table("X", X, names), {}
    totals, spread = Totals.of(tree, labels, X), X.std(axis=0, dtype=np.float64)
    for node, left, right in _splits(totals):
        a, b = totals.mean(left), totals.mean(right)
        difference = np.divide(a - b, spread, out=np.zeros_like(spread), where=spread > 0)
        rows[node] = _rows(names, largest(np.abs(difference), n), a, b, difference)
    return rows


def attribute_rows(
    tree: Tree, labels: np.ndarray, attributes: Any, names: Sequence[str], n: int
) -> dict[int, list[dict[str, Any]]]:
    """The n attributes whose frequencies differ most between the sides of every split, in units of their spread."""
    totals, rows = attribute_totals(tree, labels, attributes, names), {}
    for node, left, right in _splits(totals):
        a, b = totals.mean(left), totals.mean(right)
        difference = attribute_contrast(a, b, totals.mean(0))
        rows[node] = _rows(names, largest(np.abs(difference), n), a, b, difference)
    return rows


def _rows(
    names: Sequence[str], chosen: Sequence[int] | np.ndarray, a: np.ndarray, b: np.ndarray, difference: np.ndarray
) -> list[dict[str, Any]]:
    return [
        {"name": str(names[i]), "left": float(a[i]), "right": float(b[i]), "difference": float(difference[i])}
        for i in chosen
    ]


def _splits(totals: Totals) -> Iterator[tuple[int, int, int]]:
    """Every node with two children that have samples, and the children."""
    for node in totals.tree.routers:
        left, right = totals.tree.children(node)
        if totals.sizes[left] and totals.sizes[right]:
            yield node, left, right
