"""The picture of a tree that was grown on a data set of the paper."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ..data import DataSet
from ..estimator import TreeVAE

if TYPE_CHECKING:
    from matplotlib.figure import Figure


def picture(model: TreeVAE, data: DataSet) -> Figure:
    """The tree with what the data set has to show at its leaves: attributes, words or images of the test samples."""
    from ..view import attribute_picture, tree_picture, word_picture

    x, y, names = data.x_test, data.y_test, data.class_names
    if data.attributes_test is not None and data.attribute_names is not None:
        return attribute_picture(model, x, data.attributes_test, data.attribute_names)
    if data.feature_names is not None:
        return word_picture(model, x, data.feature_names, y, names)
    return tree_picture(model, x, y, names)
