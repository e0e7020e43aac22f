"""Digits: 1,797 handwritten digits of 8 × 8 that come with scikit-learn. Not in the paper; for quick trials."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from .dataset import DataSet, Size, Source, own_split

NAMES = tuple("0123456789")
SIZE = Size(1437, 360, 10)


def _read(folder: Path) -> DataSet:
    """The digits, 80 % to train on and 20 % to test on, stratified by class; no folder is needed."""
    from sklearn.datasets import load_digits

    bunch = load_digits()
    x, y = (bunch.images / 16).astype(np.float32), bunch.target.astype(np.int64)
    train, test = own_split(len(x), y)
    return DataSet("digits", x[train], y[train], x[test], y[test], NAMES)


DIGITS = Source("digits", "handwritten digits, 8 × 8, from scikit-learn", SIZE, _read)
