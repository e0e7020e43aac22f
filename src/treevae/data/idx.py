"""MNIST and Fashion-MNIST: 28 × 28 grey images in idx files, plain or gzipped."""

from __future__ import annotations

import gzip
import zlib
from functools import partial
from math import prod
from pathlib import Path
from typing import IO

import numpy as np

from ..errors import DataFileError
from .dataset import DataSet, Size, Source
from .download import Download
from .fashion_sample import CLASS_NAMES
from .npy import fill
from .refusal import check_bomb

SIDE = 28
FILES = ("train-images-idx3-ubyte", "train-labels-idx1-ubyte", "t10k-images-idx3-ubyte", "t10k-labels-idx1-ubyte")
UNSIGNED_BYTES = 0x08  # the third byte of an idx file says the type of its numbers, the fourth the number of axes
LARGEST = 1 << 28  # bytes of numbers in a file, five times MNIST's: a file that claims more is damaged, or a bomb
DIGITS = tuple("0123456789")


def _read(folder: Path, name: str, class_names: tuple[str, ...]) -> DataSet:
    """The four arrays of a folder."""
    x_train, y_train, x_test, y_test = (_read_file(folder, file) for file in FILES)
    for x, y, file in ((x_train, y_train, FILES[1]), (x_test, y_test, FILES[3])):
        if len(x) != len(y):
            raise DataFileError(
                f"{_path(folder, file)} holds {len(y):,} labels, expected one for each of {len(x):,} images"
            )
        if y.max() >= len(class_names):
            raise DataFileError(f"{_path(folder, file)} holds a label {y.max()}, expected 0 to {len(class_names) - 1}")
    return DataSet(name, x_train, y_train.astype(np.int64), x_test, y_test.astype(np.int64), class_names)


def _path(folder: Path, file: str) -> Path:
    """The file, or its gzipped form where only that is there."""
    plain, zipped = folder / file, folder / f"{file}.gz"
    if plain.is_file() or zipped.is_file():
        return plain if plain.is_file() else zipped
    raise DataFileError(f"{plain} is not there, and neither is {zipped.name}")


def _open(path: Path) -> IO[bytes]:
    return gzip.open(path, "rb") if path.suffix == ".gz" else path.open("rb")  # type: ignore[return-value]


def _shape_of(path: Path) -> tuple[int, ...]:
    """The shape that the header says; a plain file must be as long as that, a gzipped one is not unpacked to see."""
    try:
        with _open(path) as file:
            shape = _read_header(file, path)
    except (EOFError, gzip.BadGzipFile, zlib.error) as error:
        raise DataFileError(f"{path} is cut short or damaged: {error}") from error
    if path.suffix != ".gz" and (n_bytes := path.stat().st_size - 4 * (1 + len(shape))) != prod(shape):
        raise DataFileError(f"{path} holds {n_bytes:,} bytes after its header, expected {prod(shape):,}")
    check_bomb(prod(shape), path)
    return shape


def _read_header(file: IO[bytes], path: Path) -> tuple[int, ...]:
    """The shape that an idx file says it has."""
    n_axes = 3 if "idx3" in path.name else 1
    header = file.read(4 * (1 + n_axes))
    if header[:4] != bytes((0, 0, UNSIGNED_BYTES, n_axes)):
        raise DataFileError(
            f"{path} begins with {header[:4].hex(' ')!r}, expected an idx file of bytes with {n_axes} axes"
        )
    if len(header) < 4 * (1 + n_axes):
        raise DataFileError(f"{path} is cut short: it ends within its header, after {len(header)} bytes")
    shape = tuple(np.frombuffer(header, ">u4", offset=4).tolist())
    if shape[1:] != (SIDE, SIDE)[: n_axes - 1]:
        raise DataFileError(f"{path} holds images of {shape[1]} × {shape[2]}, expected {SIDE} × {SIDE}")
    if not shape[0]:
        raise DataFileError(f"{path} says that it holds nothing, expected images and labels")
    if prod(shape) > LARGEST:
        raise DataFileError(f"{path} says that {prod(shape):,} bytes follow its header, expected at most {LARGEST:,}")
    return shape


def _read_file(folder: Path, name: str) -> np.ndarray:
    """The numbers of an idx file, uint8."""
    path = _path(folder, name)
    shape = _shape_of(path)  # what a plain file cannot hold is refused before there is room for it
    values = np.empty(prod(shape), np.uint8)
    try:
        with _open(path) as file:
            _read_header(file, path)
            n_read, left = fill(values, file), file.read(1)
    except (EOFError, gzip.BadGzipFile, zlib.error) as error:
        raise DataFileError(f"{path} is cut short or damaged: {error}") from error
    if n_read < len(values) or left:
        how_many = "more" if left else f"only {n_read:,}"
        raise DataFileError(f"{path} holds {how_many} bytes after its header, expected {len(values):,}")
    return values.reshape(shape)


def _source(
    name: str, about: str, folder: str, site: str, class_names: tuple[str, ...], sums: dict[str, str]
) -> Source:
    """The card of a set in four idx files, given the md5 of each plain file and of each gzipped one."""
    return Source(
        name,
        about,
        Size(60_000, 10_000, 10),
        read=partial(_read, name=name, class_names=class_names),
        folders=(f"{folder}/raw", folder),
        parts=FILES,
        md5={file: sums[file] for file in FILES},
        downloads=tuple(Download(f"{site}/{file}.gz", f"{file}.gz", f"md5:{sums[f'{file}.gz']}") for file in FILES),
    )


MNIST = _source(
    "mnist",
    "handwritten digits, 28 × 28 grey",
    "MNIST",
    "https://ossci-datasets.s3.amazonaws.com/mnist",
    DIGITS,
    {
        "train-images-idx3-ubyte": "6bbc9ace898e44ae57da46a324031adb",
        "train-labels-idx1-ubyte": "a25bea736e30d166cdddb491f175f624",
        "t10k-images-idx3-ubyte": "2646ac647ad5339dbf082846283269ea",
        "t10k-labels-idx1-ubyte": "27ae3e4e09519cfbb04c329615203637",
        "train-images-idx3-ubyte.gz": "f68b3c2dcbeaaa9fbdd348bbdeb94873",
        "train-labels-idx1-ubyte.gz": "d53e105ee54ea40749a09fcbcd1e9432",
        "t10k-images-idx3-ubyte.gz": "9fb629c4189551a2d022fa330f9573f3",
        "t10k-labels-idx1-ubyte.gz": "ec29112dd5afa0611ce80d1b7f02629c",
    },
)
FASHION = _source(
    "fashion",
    "clothes of Fashion-MNIST, 28 × 28 grey",
    "FashionMNIST",
    "http://fashion-mnist.s3-website.eu-central-1.amazonaws.com",
    CLASS_NAMES,
    {
        "train-images-idx3-ubyte": "f4a8712d7a061bf5bd6d2ca38dc4d50a",
        "train-labels-idx1-ubyte": "9018921c3c673c538a1fc5bad174d6f9",
        "t10k-images-idx3-ubyte": "8181f5470baa50b63fa0f6fddb340f0a",
        "t10k-labels-idx1-ubyte": "15d484375f8d13e6eb1aabb0c3f46965",
        "train-images-idx3-ubyte.gz": "8d4fb7e6c68d591d4c3dfef9ec88bf0d",
        "train-labels-idx1-ubyte.gz": "25c81989df183df01b3e8a0aad5dffbe",
        "t10k-images-idx3-ubyte.gz": "bef4ecab320f06d8554ea6380940ec79",
        "t10k-labels-idx1-ubyte.gz": "bb300cfdad3c16e7a12a480ee83cd310",
    },
)
