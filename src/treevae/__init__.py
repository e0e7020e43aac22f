"""Find the groups, and the groups of groups, hidden in your data, with Tree Variational Autoencoders."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from .tree import Tree

if TYPE_CHECKING:
    from .estimator import TreeVAE, load

__all__ = ["Tree", "TreeVAE", "load"]
__version__ = "0.1.0"


def __getattr__(name: str) -> Any:
    """TreeVAE and load, once they are asked for: torch and scikit-learn take seconds to import."""
    if name in ("TreeVAE", "load"):
        from . import estimator

        return getattr(estimator, name)
    raise AttributeError(f"module 'treevae' has no attribute {name!r}")
