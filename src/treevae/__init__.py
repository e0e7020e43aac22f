"""Find the groups, and the groups of groups, hidden in your data, with Tree Variational Autoencoders.

What ``dir(treevae)`` lists is public, and of its modules what stands in their ``__all__``; nothing else is.
"""

from __future__ import annotations

import os as _os
from importlib import import_module as _import_module
from typing import TYPE_CHECKING
from typing import Any as _Any

from .tree import Tree

if TYPE_CHECKING:
    from . import baselines, data, errors, guides, metrics, plot
    from .estimator import TreeVAE, load
    from .page.report import report

__all__ = ["Tree", "TreeVAE", "baselines", "data", "errors", "guides", "load", "metrics", "plot", "report"]
__version__ = "0.2.0"

# For how long OpenMP's threads spin where they wait for each other, which torch reads when it is imported. On a machine
# that is busy with other work its own 300,000 keep those from running that are waited for, and a fit can take ten times
# as long; on an idle one fewer cost a few per cent (benchmarks/speed/busy.py). Whoever has set it keeps theirs.
_os.environ.setdefault("GOMP_SPINCOUNT", "3000")

_HOMES = {"TreeVAE": ".estimator", "load": ".estimator", "report": ".page.report"}  # of names that are no modules


def __getattr__(name: str) -> _Any:
    """A public name, once it is asked for: torch and scikit-learn take seconds to import."""
    if name in _HOMES:
        return getattr(_import_module(_HOMES[name], __name__), name)
    if name in __all__:
        return _import_module(f".{name}", __name__)
    raise AttributeError(f"module 'treevae' has no attribute {name!r}")


def __dir__() -> list[str]:
    return [*__all__, "__version__"]
