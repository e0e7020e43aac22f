"""By how much one mean over seeds is above another, as the pages write it."""

from __future__ import annotations

import statistics
from collections.abc import Sequence


def gain(ours: Sequence[float], theirs: Sequence[float]) -> str:
    """The difference of two means, with its standard error in brackets."""
    more = statistics.mean(ours) - statistics.mean(theirs)
    error = sum(statistics.variance(values) / len(values) for values in (ours, theirs)) ** 0.5
    return f"{more:.1f} ({error:.1f})".replace("-", "−")
