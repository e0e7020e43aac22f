"""CIFAR-10 and CIFAR-100: 32 × 32 photographs, as (n, 32, 32, 3).

The files are pickles; pickles.py reads them without running anything.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

from ..errors import DataFileError
from .dataset import DataSet, Size, Source
from .download import Download
from .pickles import read_pickle

SIDE, CHANNELS = 32, 3
N_BYTES = CHANNELS * SIDE * SIDE  # of an image, stored as (channel, row, column)
LARGEST = 1 << 29  # bytes of a file; the largest published one has 155 million
LARGEST_NAMES = 1 << 20  # bytes of a file with names of classes; the largest published one has 1,500


def _unpickle(path: Path, published: str, largest: int = LARGEST) -> dict[str, Any]:
    """The dict in a file, its keys as strings."""
    if not path.is_file():
        raise DataFileError(f"{path} is not there")
    if (size := path.stat().st_size) > largest:
        raise DataFileError(f"{path} has {size:,} bytes, expected at most {largest:,}")
    try:
        content = read_pickle(path.read_bytes())
        if not isinstance(content, dict):
            raise ValueError("it holds no dict")
        return {key.decode() if isinstance(key, bytes) else key: value for key, value in content.items()}
    except ValueError as error:
        raise DataFileError(
            f"{path} is no CIFAR file, or is cut short or damaged: it has {size:,} bytes, expected {published}; {error}"
        ) from error


def _read_batch(
    path: Path, label_keys: tuple[str, ...], n_classes: tuple[int, ...]
) -> tuple[np.ndarray, list[np.ndarray]]:
    """The rows of bytes in a batch, and its labels under each key."""
    batch = _unpickle(path, "some 3,080 for each image, and 10,000 images or more")
    rows = batch.get("data")
    if not isinstance(rows, np.ndarray) or rows.dtype != np.uint8 or rows.shape[1:] != (N_BYTES,) or not len(rows):
        raise DataFileError(f"{path} holds no images under 'data', expected rows of {N_BYTES:,} bytes")
    labels = []
    for key, n in zip(label_keys, n_classes, strict=True):
        numbers = batch.get(key)
        if (
            not isinstance(numbers, list)
            or len(numbers) != len(rows)
            or not all(type(i) is int and 0 <= i < n for i in numbers)
        ):
            raise DataFileError(f"{path} lacks labels under {key!r}, expected {len(rows):,} numbers from 0 to {n - 1}")
        labels.append(np.array(numbers, dtype=np.int64))
    return rows, labels


def _read_part(
    paths: list[Path], keys: tuple[str, ...], n_classes: tuple[int, ...]
) -> tuple[np.ndarray, list[np.ndarray]]:
    """The images of several batches, (n, 32, 32, 3), and their labels under each key."""
    images, labels = [], []
    for path in paths:
        rows, labels_of_batch = _read_batch(path, keys, n_classes)
        images.append(np.ascontiguousarray(rows.reshape(-1, CHANNELS, SIDE, SIDE).transpose(0, 2, 3, 1)))
        labels.append(labels_of_batch)
    return np.concatenate(images), [np.concatenate(of_key) for of_key in zip(*labels, strict=True)]


def _names(path: Path, key: str) -> tuple[str, ...]:
    names = _unpickle(path, "about a thousand with the names of the classes", LARGEST_NAMES).get(key)
    if not isinstance(names, list) or not names or not all(isinstance(name, bytes | str) for name in names):
        raise DataFileError(f"{path} has no names of classes under {key!r}")
    return tuple(name.decode(errors="replace") if isinstance(name, bytes) else name for name in names)


TRAIN10 = tuple(f"data_batch_{i}" for i in range(1, 6))


def _read10(folder: Path) -> DataSet:
    """Ten classes."""
    names = _names(folder / "batches.meta", "label_names")
    x_train, (y_train,) = _read_part([folder / file for file in TRAIN10], ("labels",), (len(names),))
    x_test, (y_test,) = _read_part([folder / "test_batch"], ("labels",), (len(names),))
    return DataSet("cifar10", x_train, y_train, x_test, y_test, names)


def _read100(folder: Path) -> DataSet:
    """The 20 superclasses that the paper uses; the 100 classes are the fine ones."""
    keys = ("coarse_labels", "fine_labels")
    coarse, fine = (_names(folder / "meta", key) for key in ("coarse_label_names", "fine_label_names"))
    (x_train, train), (x_test, test) = (
        _read_part([folder / file], keys, (len(coarse), len(fine))) for file in ("train", "test")
    )
    (y_train, fine_train), (y_test, fine_test) = train, test
    return DataSet(
        "cifar100",
        x_train,
        y_train,
        x_test,
        y_test,
        coarse,
        fine_train=fine_train,
        fine_test=fine_test,
        fine_names=fine,
    )


SITE = "https://www.cs.toronto.edu/~kriz"
MD5_10 = {
    "data_batch_1": "c99cafc152244af753f735de768cd75f",
    "data_batch_2": "d4bba439e000b95fd0a9bffe97cbabec",
    "data_batch_3": "54ebc095f3ab1f0389bbae665268c751",
    "data_batch_4": "634d18415352ddfa80567beed471001a",
    "data_batch_5": "482c414d41f54cd18b22e5b47cb7c3cb",
    "test_batch": "40351d587109b95175f43aff81a1287e",
    "batches.meta": "5ff9c542aee3614f3951f8cda6e48888",
}
MD5_100 = {
    "train": "16019d7e3df5f24257cddd939b257f8d",
    "test": "f0ef6b0ae62326f3e7ffdfab6717acfc",
    "meta": "7973b15100ade9c7d40fb424638fde48",
}
CIFAR10 = Source(
    "cifar10",
    "photographs, 32 × 32 in colour",
    Size(50_000, 10_000, 10),
    _read10,
    folders=("cifar-10-batches-py",),
    parts=tuple(MD5_10),
    md5=MD5_10,
    downloads=(
        Download(
            f"{SITE}/cifar-10-python.tar.gz",
            "cifar-10-python.tar.gz",
            "md5:c58f30108f718f92721af3b95e74349a",
            gives=tuple(MD5_10),
            inside="cifar-10-batches-py",
        ),
    ),
)
CIFAR100 = Source(
    "cifar100",
    "photographs, 32 × 32 in colour, in 20 superclasses",
    Size(50_000, 10_000, 20),
    _read100,
    folders=("cifar-100-python",),
    parts=tuple(MD5_100),
    md5=MD5_100,
    downloads=(
        Download(
            f"{SITE}/cifar-100-python.tar.gz",
            "cifar-100-python.tar.gz",
            "md5:eb9058c3a382ffc7106e4002c42a8d85",
            gives=tuple(MD5_100),
            inside="cifar-100-python",
        ),
    ),
)
