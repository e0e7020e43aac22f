"""Means over seeds, and by how much one is above another, as the pages write them."""

from __future__ import annotations

import statistics
from collections.abc import Iterable, Sequence


def mean(values: Sequence[float], digits: int = 1) -> str:
    """A mean with its standard deviation; one value alone has none."""
    text = f"{statistics.mean(values):.{digits}f}"
    return (text if len(values) == 1 else f"{text} ± {statistics.stdev(values):.{digits}f}").replace("-", "−")


def gain(ours: Sequence[float], theirs: Sequence[float]) -> str:
    """The difference of two means, with its standard error in brackets."""
    more = statistics.mean(ours) - statistics.mean(theirs)
    error = sum(statistics.variance(values) / len(values) for values in (ours, theirs)) ** 0.5
    return f"{more:.1f} ({error:.1f})".replace("-", "−")


def markdown(head: str, rows: Iterable[Sequence[str]]) -> list[str]:
    """A table in Markdown, line by line; the names of its columns are parted by bars."""
    columns = [column.strip() for column in head.split("|")]
    return [f"| {' | '.join(cells)} |" for cells in (columns, ["---"] * len(columns), *rows)]
