"""8,000 small grey pictures of clothes with their classes: the first of Fashion-MNIST's training and test images.

``fashion_sample.npz`` lies beside this file. It was made from the four idx files of
https://github.com/zalandoresearch/fashion-mnist, uncompressed, in the working directory::

    import numpy as np

    def images(name, n):
        return np.fromfile(name, np.uint8)[16:].reshape(-1, 28, 28)[:n]

    def labels(name, n):
        return np.fromfile(name, np.uint8)[8:][:n]

    def pack(x):  # each pixel less the one above it, column after column: 7 % smaller than the pixels
        return np.diff(x.transpose(0, 2, 1), prepend=np.zeros((len(x), 28, 1), np.uint8))

    np.savez_compressed(
        "fashion_sample.npz",
        x_train=pack(images("train-images-idx3-ubyte", 6000)),
        y_train=labels("train-labels-idx1-ubyte", 6000),
        x_test=pack(images("t10k-images-idx3-ubyte", 2000)),
        y_test=labels("t10k-labels-idx1-ubyte", 2000),
    )

Its licence is ``fashion_sample.LICENSE``.
"""

from __future__ import annotations

from dataclasses import dataclass
from importlib.resources import files

import numpy as np

CLASS_NAMES = (
    "T-shirt/top",
    "Trouser",
    "Pullover",
    "Dress",
    "Coat",
    "Sandal",
    "Shirt",
    "Sneaker",
    "Bag",
    "Ankle boot",
)


@dataclass(frozen=True)
class FashionSample:
    """Pictures as uint8 of shape (n, 28, 28), and the position of each one's class in ``class_names``."""

    x_train: np.ndarray  # 6,000
    y_train: np.ndarray
    x_test: np.ndarray  # 2,000
    y_test: np.ndarray
    class_names: tuple[str, ...] = CLASS_NAMES


def load() -> FashionSample:
    """The sample, read from the file that comes with the package."""
    with (files("treevae.data") / "fashion_sample.npz").open("rb") as file, np.load(file, allow_pickle=False) as kept:
        return FashionSample(_unpack(kept["x_train"]), kept["y_train"], _unpack(kept["x_test"]), kept["y_test"])


def _unpack(packed: np.ndarray) -> np.ndarray:
    """The pictures, from each pixel's difference to the one above it, column after column."""
    columns = np.cumsum(packed, axis=2, dtype=np.uint8)  # modulo 256, as the differences are
    return np.ascontiguousarray(columns.transpose(0, 2, 1))
