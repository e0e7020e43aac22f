"""Cheap clusterings that give a tree at once, and the nearest neighbours of samples."""

from .guide import Guide
from .labels import numbered
from .neighbours import nearest, nearest_among, of_graph
from .sources import SOURCES
from .told import agreement, one_hot
from .trees import crossing_tree, linkage_tree, ward_tree

__all__ = [
    "SOURCES",
    "Guide",
    "agreement",
    "crossing_tree",
    "linkage_tree",
    "nearest",
    "nearest_among",
    "numbered",
    "of_graph",
    "one_hot",
    "ward_tree",
]
