"""Samples as they were read from files, and what must be true of them and of their labels."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from ..errors import DataFileError
from .refusal import check_bomb


@dataclass(frozen=True)
class Table:
    """Samples as they were read."""

    X: np.ndarray  # (n, features), or images as (n, h, w) or (n, h, w, 3)
    feature_names: tuple[str, ...] | None = None  # of csv and parquet
    sample_names: tuple[str, ...] | None = None  # of pictures: their paths below the folder
    labels: np.ndarray | None = None  # (n,) whole numbers or texts, where a label was asked for

    @property
    def frame(self) -> Any:
        """A pandas frame where the features have names, else X: what ``fit`` takes to remember the names."""
        if self.feature_names is None:
            return self.X
        import pandas

        return pandas.DataFrame(self.X, columns=list(self.feature_names))


def checked_samples(X: np.ndarray, path: Path) -> np.ndarray:
    """X, if it is an array of finite numbers with at least one sample."""
    if X.ndim < 2 or X.size == 0:
        raise DataFileError(f"{path} holds an array of shape {X.shape}; needed are (n, features), or images (n, h, w)")
    if X.dtype.kind == "f":
        bad = ~np.isfinite(X).reshape(len(X), -1).all(axis=1)
        if bad.any():
            raise DataFileError(
                f"{path} holds NaN or infinity in {bad.sum()} of {len(X)} samples, first in sample {bad.argmax()}; "
                "remove those samples or fill the gaps"
            )
    return X


def checked_labels(values: np.ndarray, label: str, n: int, path: Path, gaps: bool = False) -> np.ndarray:
    """The classes of n samples, (n,): whole numbers, or texts. Gaps would become a class of their own.

    With ``gaps`` they are a guide's: numbers stay what they are, and None stands where a text is missing.
    """
    if values.shape != (n,):
        raise DataFileError(f"{label!r} in {path} has shape {values.shape}; labels of {n} samples must be ({n},)")
    if values.dtype.kind in ("iubf" if gaps else "iub"):
        return values
    try:
        texts = [None if is_missing(value) else str(value) for value in values.tolist()]
        for text in set(texts):
            (text or "").encode()
    except (ValueError, SystemError) as error:  # numbers that stand for no letter
        raise DataFileError(f"{label!r} in {path} is damaged: {error}; write it again") from error
    if gaps:
        given = zip(values.tolist(), texts, strict=True)
        return np.array([value if isinstance(value, int | float) else text for value, text in given], object)
    if missing := [i for i, text in enumerate(texts) if text is None]:
        raise DataFileError(
            f"{label!r} in {path} is missing for {len(missing)} of {n} samples, first for sample {missing[0]}; fill "
            "the gaps, or remove those samples"
        )
    check_bomb(
        4 * len(texts) * max((len(text) for text in texts if text), default=0), path
    )  # numpy gives every text the longest one's room
    return np.array(texts)


def is_missing(value: Any) -> bool:
    """Whether a label is None, NaN, or what pandas has for them: all that is not surely equal to itself."""
    return value is None or str(value == value) != "True"
