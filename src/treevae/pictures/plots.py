"""The pictures of a fitted tree, one function each: with images, with words, with attributes at its leaves.

What is drawn is computed first, without matplotlib: images in ``images.py``, words and attributes in ``contrasts.py``.
"""

from __future__ import annotations

from collections.abc import Sequence
from numbers import Integral
from typing import TYPE_CHECKING, Any

import numpy as np

from ..data.arrays import as_array
from ..describe.contrasts import (
    leaf_attributes,
    leaf_words,
    main_classes,
    named_classes,
    split_attributes,
    split_classes,
    split_words,
)
from ..describe.images import image_form, leaf_cards
from .branches import Branches
from .canvas import need_matplotlib
from .leaves_in_columns import ColumnsPage, draw_in_columns
from .leaves_in_rows import Leafage, draw_attributes, draw_cards, draw_words

if TYPE_CHECKING:
    from matplotlib.figure import Figure

    from ..data.dataset import DataSet
    from ..estimator import TreeVAE

MOST_UPRIGHT = 10  # leaves; side by side the images of more would be smaller than 32 pixels
IMAGES_UPRIGHT, IMAGES_LYING = (15, 9), (10, 5)  # real and generated ones of a leaf


def tree_picture(
    model: TreeVAE,
    X: Any,
    y: Any = None,
    class_names: Sequence[str] | None = None,
    *,
    n_real: int | None = None,
    n_generated: int | None = None,
    random_state: Any = 0,
    upright: bool | None = None,
) -> Figure:
    """A figure of the tree with real and generated images at each leaf.

    Branches are as wide as the share of the samples that takes them. The real images are the most typical ones: of the
    samples that the leaf wins, those with the highest q(leaf|x), the highest first.

    Parameters
    ----------
    model : fitted TreeVAE
    X : images as in ``fit``
        The samples that are sent down the tree.
    y : array-like of shape (n_samples,), optional
        Classes, to name each leaf by its most frequent one. In a lying tree also the branches to inner nodes are named,
        by the classes that are more frequent there than in the node's sibling.
    class_names : sequence of str, optional
        Name of class ``k`` at ``k``; by default the labels in y name themselves.
    n_real, n_generated : int, optional
        Images at a leaf; by default 15 and 9 under the leaves of an upright tree, 10 and 5 beside those of a lying one.
    random_state : int, RandomState instance or None, default=0
        Where the generated images come from.
    upright : bool, optional
        Whether the leaves stand side by side (True) or one below the other (False), which leaves more room for the
        images of many leaves. By default up to 10 stand side by side.
    """
    need_matplotlib()
    X = np.asarray(as_array(X))
    _, height, width = image_form(X).shape
    tree = model.tree_
    if upright is None:
        upright = len(tree.leaves) <= MOST_UPRIGHT
    usual = IMAGES_UPRIGHT if upright else IMAGES_LYING
    n_real = _at_least_1("n_real", usual[0] if n_real is None else n_real)
    n_generated = _at_least_1("n_generated", usual[1] if n_generated is None else n_generated)
    classes = None if y is None else named_classes(y, class_names, len(X))
    reach = model.predict_proba(X)
    labels = reach.argmax(1)
    cards = leaf_cards(model, X, reach, classes, n_real, n_generated, random_state)
    branches, total = Branches.of(tree, labels), f"{len(X):,} images"
    if upright:
        page = ColumnsPage(len(cards), tree.height, height / width, classes is not None, n_real, n_generated)
        return draw_in_columns(tree, branches, page, cards, total)
    held = None if classes is None else main_classes(tree, labels, classes)
    notes = {} if classes is None else split_classes(tree, labels, classes)
    return draw_cards(Leafage(tree, branches, total, held, notes), cards, height / width, n_real, n_generated)


def word_picture(
    model: TreeVAE,
    X: Any,
    names: Sequence[str],
    y: Any = None,
    class_names: Sequence[str] | None = None,
    *,
    n_words: int = 8,
) -> Figure:
    """A figure of the tree with the words that set each leaf apart from all other texts.

    On the branch to an inner node stand the words that set it apart from its sibling. Both are chosen as
    :func:`~treevae.describe.contrasts.leaf_words` says. Words that do not fit into their line are left out.

    Parameters
    ----------
    model : fitted TreeVAE
    X : array-like or sparse matrix of shape (n_samples, n_words)
        The texts that are sent down the tree: weights of words as in ``fit``, as TF-IDF or counts.
    names : sequence of str
        The words, one for each column of X.
    y : array-like of shape (n_samples,), optional
        Classes, to name each leaf by its most frequent one.
    class_names : sequence of str, optional
        Name of class ``k`` at ``k``; by default the labels in y name themselves.
    n_words : int, default=8
        Words at a leaf.
    """
    need_matplotlib()
    n_words = _at_least_1("n_words", n_words)
    tree, labels = model.tree_, model.predict(X)
    words = leaf_words(tree, labels, X, names, n_words)
    notes = split_words(tree, labels, X, names)
    held = None if y is None else main_classes(tree, labels, named_classes(y, class_names, len(labels)))
    return draw_words(Leafage(tree, Branches.of(tree, labels), f"{len(labels):,} texts", held, notes), words, n_words)


def attribute_picture(
    model: TreeVAE, X: Any, attributes: Any, names: Sequence[str], *, n_attributes: int = 5
) -> Figure:
    """A figure of the tree with the attributes whose frequency in each leaf differs most from that in all samples.

    The samples themselves are not shown. Attributes that are more frequent in the leaf are bold, those that are less
    frequent grey; on the branch to an inner node stand those that are more frequent there than in its sibling. All are
    chosen as :func:`~treevae.describe.contrasts.leaf_attributes` says.

    Parameters
    ----------
    model : fitted TreeVAE
    X : samples as in ``fit``
        The samples that are sent down the tree.
    attributes : array-like of shape (n_samples, n_attributes)
        Whether a sample has an attribute: bool, or 0 and 1.
    names : sequence of str
        The attributes' names, one for each column; underscores are shown as spaces.
    n_attributes : int, default=5
        Attributes at a leaf.
    """
    need_matplotlib()
    n_attributes = _at_least_1("n_attributes", n_attributes)
    tree, labels = model.tree_, model.predict(X)
    frequencies = leaf_attributes(tree, labels, attributes, names, n_attributes)
    notes = split_attributes(tree, labels, attributes, [name.replace("_", " ") for name in names])
    leafage = Leafage(tree, Branches.of(tree, labels), f"{len(labels):,} samples", None, notes)
    return draw_attributes(leafage, frequencies, n_attributes)


def data_set_picture(model: TreeVAE, data: DataSet) -> Figure:
    """A figure of the tree with what a data set has to show of its test samples: attributes, words or images."""
    x, y, names = data.x_test, data.y_test, data.class_names
    if data.attributes_test is not None and data.attribute_names is not None:
        return attribute_picture(model, x, data.attributes_test, data.attribute_names)
    if data.feature_names is not None:
        return word_picture(model, x, data.feature_names, y, names)
    return tree_picture(model, x, y, names)


def _at_least_1(name: str, n: Any) -> int:
    if not isinstance(n, Integral) or n < 1:
        raise ValueError(f"{name}={n!r} must be a whole number of at least 1")
    return int(n)
