"""Find the groups, and the groups of groups, hidden in your data, with Tree Variational Autoencoders."""

from .estimator import TreeVAE, load
from .tree import Tree

__all__ = ["Tree", "TreeVAE", "load"]
__version__ = "0.1.0"
