"""What a fitted model looks like."""

from .contrasts import leaf_attributes, leaf_words
from .plots import attribute_picture, tree_picture, word_picture
from .report import write_report
from .snapshot import Snapshot, snapshot

__all__ = [
    "Snapshot",
    "attribute_picture",
    "leaf_attributes",
    "leaf_words",
    "snapshot",
    "tree_picture",
    "word_picture",
    "write_report",
]
