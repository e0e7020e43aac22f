"""Find the groups, and the groups of groups, hidden in your data, with Tree Variational Autoencoders."""

from __future__ import annotations

import os as _os
from typing import TYPE_CHECKING
from typing import Any as _Any

from .tree import Tree

if TYPE_CHECKING:
    from .estimator import TreeVAE, load

__all__ = ["Tree", "TreeVAE", "load"]
__version__ = "0.1.0"

# For how long OpenMP's threads spin where they wait for each other, which torch reads when it is imported. On a machine
# that is busy with other work its own 300,000 keep those from running that are waited for, and a fit can take ten times
# as long; on an idle one fewer cost a few per cent (benchmarks/busy.py). Whoever has set it keeps theirs.
_os.environ.setdefault("GOMP_SPINCOUNT", "3000")


def __getattr__(name: str) -> _Any:
    """TreeVAE and load, once they are asked for: torch and scikit-learn take seconds to import."""
    if name in ("TreeVAE", "load"):
        from . import estimator

        return getattr(estimator, name)
    raise AttributeError(f"module 'treevae' has no attribute {name!r}")


def __dir__() -> list[str]:
    return [*__all__, "__version__"]
