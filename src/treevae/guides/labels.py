"""Labels as users have them, numbered from 0; -1 is unknown."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

UNKNOWN = -1
UNKNOWN_TEXTS = ("", "-1", "-1.0")  # as tables and arrays of texts have it


def numbered(labels: Any) -> np.ndarray:
    """The number of each label among the sorted ones, int64 (n,); -1 where it is -1, None, NaN or "".

    Labels are whole numbers, also as floats, or strings.
    """
    given = np.asarray(labels, dtype=object)
    if given.ndim != 1:
        raise ValueError(f"guide has shape {given.shape}; pass one label for each sample")
    values = [_plain(label) for label in given.tolist()]
    known = sorted({value for value in values if value is not None}, key=lambda value: (isinstance(value, str), value))
    if not known:
        raise ValueError("guide has no label that is known; pass the group of some samples at least")
    number: dict[int | str | None, int] = {value: k for k, value in enumerate(known)}
    number[None] = UNKNOWN
    return np.array([number[value] for value in values], dtype=np.int64)


def _plain(label: Any) -> int | str | None:
    """A label as a whole number or a string, None where it is unknown."""
    if label is None or isinstance(label, str):
        return None if label in UNKNOWN_TEXTS else label
    if isinstance(label, np.generic):
        label = label.item()
    if type(label).__name__ in ("NAType", "NaTType") or label != label:  # pandas' missing values, and NaN
        return None
    if not isinstance(label, int | float) or label % 1 != 0:  # also of infinity
        raise ValueError(f"guide has the label {label!r}; pass whole numbers or strings, and -1 where it is unknown")
    return None if label == UNKNOWN else int(label)


def few(labels: np.ndarray, pairs: Sequence[tuple[int, int]], n_groups: int) -> np.ndarray:
    """The labels after the first merges, as many as leave ``n_groups`` groups; pair i makes group n + i."""
    n = len(pairs) + 1
    made = list(range(n))  # the group that each group at first is part of
    for i in range(n - n_groups):
        made = [n + i if group in pairs[i] else group for group in made]
    return np.where(labels >= 0, np.array(made)[labels], UNKNOWN)
