"""The images of each leaf: those it holds and those it dreams up."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
from sklearn.utils import check_random_state

from ..data.arrays import InputForm
from .contrasts import main_classes

if TYPE_CHECKING:
    from ..estimator import TreeVAE


@dataclass(frozen=True)
class LeafCard:
    """What stands at a leaf; images are (n, h, w, 3 or 4) in [0, 1]."""

    share: float
    main_class: str | None  # None where there are no labels, or no samples
    purity: float  # share of the main class among the leaf's samples
    real: np.ndarray
    generated: np.ndarray


def leaf_cards(
    model: TreeVAE,
    X: np.ndarray,
    reach: np.ndarray,
    classes: np.ndarray | None,
    n_real: int,
    n_generated: int,
    random_state: Any,
) -> list[LeafCard]:
    """The card of each leaf, from left to right; ``reach`` is the (n_samples, n_leaves) probabilities q(leaf|x).

    The real images are the most typical ones: of those that the leaf wins, those with the highest q(leaf|x), in that
    order; equals stand as in X.
    """
    tree, form, span = model.tree_, InputForm.of(X), span_of(X)
    chance = check_random_state(random_state)
    labels = reach.argmax(1)
    held = [None] * len(tree.leaves) if classes is None else main_classes(tree, labels, classes)
    cards = []
    for k, main in enumerate(held):
        won = np.flatnonzero(labels == k)
        typical = won[np.argsort(-reach[won, k], kind="stable")][:n_real]
        main_class, purity = main or (None, 0.0)
        generated = pixels_of(model.sample(n_generated, leaf=k, random_state=chance), form, span)
        cards.append(LeafCard(len(won) / len(X), main_class, purity, pixels_of(X[typical], form, span), generated))
    return cards


def image_form(X: np.ndarray) -> InputForm:
    """The form of the images in X; vectors are refused."""
    form = InputForm.of(X)
    if not form.is_image:
        raise ValueError(
            f"X has shape {X.shape}, so its samples are vectors; the picture needs images, (n, h, w) or with "
            "channels. For tables and texts there are treevae.plot.words, treevae.plot.attributes and treevae.report"
        )
    return form


def span_of(X: np.ndarray) -> tuple[float, float]:
    """The values drawn as black and white: 0 and 1, or further apart where X goes beyond them."""
    return (0.0, 1.0) if X.dtype == np.uint8 else (min(0.0, float(X.min())), max(1.0, float(X.max())))


def pixels_of(images: np.ndarray, form: InputForm, span: tuple[float, float]) -> np.ndarray:
    """The images as (n, h, w, 3 or 4) in [0, 1]."""
    if not len(images):
        return np.empty((0, *form.shape[1:], 3))
    low, high = span
    values = ((form.to_matrix(images) - low) / (high - low)).clip(0, 1)
    pixels = np.moveaxis(values.reshape(-1, *form.shape), 1, 3)
    return pixels.repeat(3, axis=3) if pixels.shape[3] == 1 else pixels
