"""Cheap clusterings that give a tree at once, and the nearest neighbours of samples."""

from .guide import Guide
from .neighbours import nearest, of_graph

__all__ = ["Guide", "nearest", "of_graph"]
