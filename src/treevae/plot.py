"""Matplotlib figures of fitted models, by short names: ``treevae.plot.tree(model, X)``; save as PDF for papers."""

from .pictures.figures import all_leaves, average_dendrogram, generations, history, root_map
from .pictures.plots import attribute_picture as attributes
from .pictures.plots import tree_picture as tree
from .pictures.plots import word_picture as words

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
