"""Samples that are no pictures, on cards: the words, or the features, that say most about each."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

LONGEST = 40  # letters of a name that are kept


def short(name: Any, longest: int = LONGEST) -> str:
    """A name on one line, cut where it is very long."""
    text = " ".join(str(name).split())
    return text if len(text) <= longest else text[: longest - 1] + "…"


def apart(names: Iterable[Any]) -> list[str]:
    """Short names, no two the same: those that would be are counted."""
    taken: dict[str, None] = {}
    for name in names:
        text, k = short(name), 2
        while text in taken:
            end = f" ({k})"
            text, k = short(name, LONGEST - len(end)) + end, k + 1
        taken[text] = None
    return list(taken)


@dataclass(frozen=True)
class WordCards:
    """Cards of texts: the words that say most, by weight · log(1 / f), f being the share of all texts with the word."""

    names: Sequence[str]
    frequency: np.ndarray

    @classmethod
    def of(cls, matrix: np.ndarray, names: Sequence[str]) -> WordCards:
        """For samples like those in the matrix."""
        return cls(names, (matrix > 0).mean(axis=0))

    def choice(self, row: np.ndarray, n: int) -> list[int]:
        """The n words that say most; words without weight, and words that all texts have, are left out."""
        rare = np.log(1 / self.frequency.clip(1e-9, 1))
        order = np.argsort(-row * rare, kind="stable")[:n].tolist()
        return [i for i in order if rare[i] > 0 and row[i] > 0]

    def card(self, row: np.ndarray, chosen: Sequence[int]) -> list[dict[str, Any]]:
        """The chosen words of a text with their weights."""
        return [{"name": short(self.names[i]), "value": _rounded(row[i])} for i in chosen]


@dataclass(frozen=True)
class FeatureCards:
    """Cards of rows of a table: the features furthest from their means, in units of the spread (``z``)."""

    names: Sequence[str]
    mean: np.ndarray
    spread: np.ndarray

    @classmethod
    def of(cls, matrix: np.ndarray, names: Sequence[str]) -> FeatureCards:
        """For samples like those in the matrix; sums of many float32 would lose most of their digits."""
        return cls(names, matrix.mean(axis=0, dtype=np.float64), matrix.std(axis=0, dtype=np.float64))

    def choice(self, row: np.ndarray, n: int) -> list[int]:
        """The n furthest, in the table's order; few are all shown, so that cards can be compared line by line."""
        if len(row) <= n:
            return list(range(len(row)))
        return sorted(np.argsort(-np.abs(self._z(row)), kind="stable")[:n].tolist())

    def card(self, row: np.ndarray, chosen: Sequence[int]) -> list[dict[str, Any]]:
        """The chosen features of a row with their values."""
        z = self._z(row)
        return [{"name": short(self.names[i]), "value": _rounded(row[i]), "z": round(float(z[i]), 2)} for i in chosen]

    def _z(self, row: np.ndarray) -> np.ndarray:
        return np.divide(row - self.mean, self.spread, out=np.zeros_like(self.spread), where=self.spread > 0)


Cards = WordCards | FeatureCards


def each(cards: Cards, rows: np.ndarray, n: int, like: np.ndarray | None = None) -> list[list[dict[str, Any]]]:
    """A card of each row, with what says most about it, or about the sample ``like``, to be read line by line."""
    return [cards.card(row, cards.choice(row if like is None else like, n)) for row in rows]


def _rounded(value: Any) -> float:
    """Three significant digits."""
    return float(f"{float(value):.3g}")
