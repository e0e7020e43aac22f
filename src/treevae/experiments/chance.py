"""Whether two means over seeds differ by more than chance explains."""

from __future__ import annotations

import statistics
from collections.abc import Sequence
from typing import NamedTuple

from scipy.stats import ttest_ind_from_stats

CLEAR = 0.05  # less often than this, chance alone parts two means as far


class Mean(NamedTuple):
    """A mean over seeds, and their standard deviation."""

    mean: float
    sd: float | None  # None where nobody knows
    seeds: int

    @classmethod
    def of(cls, values: Sequence[float]) -> Mean:
        """The mean of values; one alone has no standard deviation."""
        return cls(statistics.mean(values), statistics.stdev(values) if len(values) > 1 else None, len(values))


def by_chance(one: Mean, other: Mean) -> float:
    """How often chance alone would part two means as far or farther, by Welch's test.

    1 where the spread of either is not known, as that of a single seed. Without any spread they are the same or not.
    """
    if min(one.seeds, other.seeds) == 1 or one.sd is None or other.sd is None:
        return 1.0
    if one.sd == other.sd == 0:
        return float(one.mean == other.mean)
    test = ttest_ind_from_stats(one.mean, one.sd, one.seeds, other.mean, other.sd, other.seeds, equal_var=False)
    return float(test.pvalue)
