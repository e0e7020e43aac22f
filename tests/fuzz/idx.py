"""MNIST's idx files, plain and gzipped."""

import gzip
from functools import partial
from pathlib import Path
from random import Random

import numpy as np
from loader import Loader, load_named, one_of, pixels
from mutations import any_bytes, inside_gzip, zeros

from treevae.data.idx import FILES
from treevae.errors import DataFileError


def valid_idx(folder: Path, ending: str = "") -> None:
    arrays = pixels(3, 28, 28), pixels(3) % 10, pixels(2, 28, 28), pixels(2) % 10
    (folder / "MNIST/raw").mkdir(parents=True)
    for file, values in zip(FILES, arrays, strict=True):
        content = bytes((0, 0, 8, values.ndim)) + np.array(values.shape, ">u4").tobytes() + values.tobytes()
        path = folder / "MNIST/raw" / (file + ending)
        path.write_bytes(gzip.compress(content, mtime=0) if ending else content)


def spoil_gzipped_idx(files: dict[str, bytes], chance: Random) -> dict[str, bytes]:
    if chance.random() < 0.97:
        return one_of(inside_gzip)(files, chance)
    blocks = chance.choice((1, 30, 300))
    name = chance.choice(list(files))
    n_axes = 3 if "idx3" in name else 1
    sides = [chance.choice(((blocks << 20) // 784, 2**32 - 1)), 28, 28][:n_axes]
    return files | {name: zeros(bytes((0, 0, 8, n_axes)) + np.array(sides, ">u4").tobytes(), blocks)}


load_mnist = partial(load_named, name="mnist")
LOADERS = (
    Loader("idx", 0.10, valid_idx, one_of(any_bytes), load_mnist, (DataFileError,)),
    Loader("idx.gz", 0.07, partial(valid_idx, ending=".gz"), spoil_gzipped_idx, load_mnist, (DataFileError,)),
)
