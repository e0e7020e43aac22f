"""What a fitted model looks like."""

from .contrasts import leaf_attributes, leaf_words
from .plots import attribute_picture, tree_picture, word_picture

__all__ = ["attribute_picture", "leaf_attributes", "leaf_words", "tree_picture", "word_picture"]
