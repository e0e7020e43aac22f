"""What a fitted model looks like."""

from .plots import tree_picture

__all__ = ["tree_picture"]
