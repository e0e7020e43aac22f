"""What a data set is once it is read, and the card on which it says where it lies, how it is read and fetched."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import NamedTuple

import numpy as np

from .download import Download

SEED = 0  # of every split that is ours and not the publishers'
TEST_SHARE = 0.2  # of every such split, as the paper takes it for Omniglot


class Size(NamedTuple):
    """Numbers of samples and classes."""

    train: int
    test: int
    classes: int


@dataclass(frozen=True, eq=False, repr=False)
class DataSet:
    """Samples in two parts with their classes; what a set does not have is None."""

    name: str
    x_train: np.ndarray  # vectors (n, features), images (n, h, w) or (n, h, w, 3): uint8, or float32 in [0, 1]
    y_train: np.ndarray | None  # positions in class_names
    x_test: np.ndarray
    y_test: np.ndarray | None
    class_names: tuple[str, ...] = ()
    feature_names: tuple[str, ...] | None = None  # of vectors
    fine_train: np.ndarray | None = None  # positions in fine_names: classes within the classes
    fine_test: np.ndarray | None = None
    fine_names: tuple[str, ...] | None = None
    attributes_train: np.ndarray | None = None  # (n, attributes) bool
    attributes_test: np.ndarray | None = None
    attribute_names: tuple[str, ...] | None = None
    note: str = ""  # in what it is known not to be the published set
    vectorize: Callable[[Sequence[str]], np.ndarray] | None = None  # turns texts into samples, where these were texts

    @property
    def size(self) -> Size:
        """How many samples and classes it has."""
        return Size(len(self.x_train), len(self.x_test), len(self.class_names))

    def __repr__(self) -> str:
        shape = " × ".join(map(str, self.x_train.shape[1:]))
        size = f"{len(self.x_train):,} + {len(self.x_test):,} samples of {shape}, {len(self.class_names)} classes"
        return f"DataSet({self.name}: {size}{self.note and '; ' + self.note})"


@dataclass(frozen=True)
class Source:
    """Where a data set lies, how it is read, and where it can be fetched."""

    name: str
    about: str
    size: Size  # as the paper used it
    read: Callable[[Path], DataSet]  # from its folder
    count: Callable[[Path], Size] | None = None  # in its folder, where reading all the samples would take long
    folders: tuple[str, ...] = ()  # below the root, where it may lie; a download goes into the first
    parts: tuple[str, ...] = ()  # what lies in its folder; a file may also be gzipped
    md5: Mapping[str, str] = field(default_factory=dict)  # of files in its folder, as published, unzipped
    downloads: tuple[Download, ...] = ()
    by_hand: str = ""  # how to get it where it cannot be downloaded


def own_split(n: int, strata: np.ndarray | None = None) -> tuple[np.ndarray, np.ndarray]:
    """The positions of the training and of the test samples, both in mixed order, always the same."""
    from sklearn.model_selection import train_test_split

    train, test = train_test_split(np.arange(n), test_size=TEST_SHARE, random_state=SEED, stratify=strata)
    return train, test


def own_split_size(n: int) -> tuple[int, int]:
    """How many samples ``own_split`` puts into each part."""
    test = int(np.ceil(TEST_SHARE * n))
    return n - test, test
