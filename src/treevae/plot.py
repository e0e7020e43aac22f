"""Matplotlib figures of fitted models, by short names: ``treevae.plot.tree(model, X)``; save as PDF for papers."""

from .view.figures import all_leaves, average_dendrogram, generations, history, root_map
from .view.plots import attribute_picture as attributes
from .view.plots import tree_picture as tree
from .view.plots import word_picture as words

__all__ = [
    "all_leaves",
    "attributes",
    "average_dendrogram",
    "generations",
    "history",
    "root_map",
    "tree",
    "words",
]
