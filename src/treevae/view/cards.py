"""Samples that are no pictures, on cards: the words, or the features, that say most about each."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

LONGEST = 40  # letters of a name that are kept


def short(name: Any) -> str:
    """A name on one line, cut where it is very long."""
    text = " ".join(str(name).split())
    return text if len(text) <= LONGEST else text[: LONGEST - 1] + "…"


def word_cards(rows: np.ndarray, names: Sequence[str], frequency: np.ndarray, n: int) -> list[list[dict[str, Any]]]:
    """The n words that say most about each text, by weight · log(1 / f), f being the share of all texts with it.

    Words without weight, and words that all texts have, are left out.
    """
    rare, cards = np.log(1 / frequency.clip(1e-9, 1)), []
    for row in rows:
        order = [i for i in np.argsort(-row * rare, kind="stable")[:n] if rare[i] > 0]
        cards.append([{"name": short(names[i]), "value": _rounded(row[i])} for i in order if row[i] > 0])
    return cards


def feature_cards(
    rows: np.ndarray, names: Sequence[str], mean: np.ndarray, spread: np.ndarray, n: int
) -> list[list[dict[str, Any]]]:
    """The n features of each row that are furthest from the mean, in units of the spread (``z``), in the table's order.

    Few features are all shown, so that cards can be compared line by line.
    """
    cards = []
    for row in rows:
        z = np.divide(row - mean, spread, out=np.zeros_like(spread), where=spread > 0)
        order = range(len(z)) if len(z) <= n else np.sort(np.argsort(-np.abs(z), kind="stable")[:n])
        cards.append([{"name": short(names[i]), "value": _rounded(row[i]), "z": round(float(z[i]), 2)} for i in order])
    return cards


def _rounded(value: Any) -> float:
    """Three significant digits."""
    return float(f"{float(value):.3g}")
