"""Omniglot: handwritten characters of 50 alphabets, shrunk to 28 × 28; and Omniglot-5, five of the alphabets.

The background and the evaluation set are one here. A class is an alphabet, a fine class a character. Ink is 0 on 1, as
in the files.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from ..errors import DataFileError
from .dataset import DataSet, Size, Source, own_split, own_split_size
from .download import Download
from .pictures import read_pictures

PARTS = ("images_background", "images_evaluation")
FIVE = ("Bengali", "Braille", "Glagolitic", "Old_Church_Slavonic_(Cyrillic)", "Oriya")  # the paper says Odia
SIDE_IN_FILES, SIDE = 105, 28
CENTRES = (np.arange(SIDE) + 0.5) * SIDE_IN_FILES / SIDE - 0.5  # of new pixels, among the old ones
BETWEEN = np.maximum(0, 1 - np.abs(CENTRES[:, None] - np.arange(SIDE_IN_FILES)))  # (new, old): bilinear weights
N_DRAWINGS = 20  # of each character, by as many people


def bilinear(image: Any, file: Path) -> np.ndarray:
    """The image at 28 × 28, each pixel read between the four nearest to its centre; the others are not seen.

    That is how TensorFlow shrinks unless told otherwise. The paper does not say, but its ELBO is met so, and missed by
    ten nats where a pixel is the mean of all that it covers (docs/evidence/results.md).
    """
    if image.size != (SIDE_IN_FILES, SIDE_IN_FILES):
        raise DataFileError(
            f"{file} has {image.width} × {image.height} pixels, expected {SIDE_IN_FILES} × {SIDE_IN_FILES}"
        )
    return np.rint(BETWEEN @ np.asarray(image) @ BETWEEN.T)


def read(
    folder: Path,
    name: str,
    alphabets: tuple[str, ...] | None,
    shrunk: Callable[[Any, Path], Any] = bilinear,
) -> DataSet:
    """Grey levels in [0, 1], float32; 80 % to train on and 20 % to test on, stratified by character.

    ``shrunk`` gives a Pillow image of a file at 28 × 28.
    """
    characters = _characters(folder, alphabets)
    files = [file for drawings in characters.values() for file in drawings]
    fine = np.repeat(np.arange(len(characters)), N_DRAWINGS)
    class_names = tuple(sorted({alphabet for alphabet, _ in characters}))
    y = np.array([class_names.index(alphabet) for alphabet, _ in characters])[fine]
    x = read_pictures(files, "L", SIDE, shrunk)
    train, test = own_split(len(x), fine)
    return DataSet(
        name,
        x[train] / np.float32(255),
        y[train],
        x[test] / np.float32(255),
        y[test],
        class_names,
        fine_train=fine[train],
        fine_test=fine[test],
        fine_names=tuple("/".join(character) for character in characters),
    )


def _count(folder: Path, alphabets: tuple[str, ...] | None) -> Size:
    characters = _characters(folder, alphabets)
    n_classes = len({alphabet for alphabet, _ in characters})
    return Size(*own_split_size(len(characters) * N_DRAWINGS), n_classes)


def _characters(folder: Path, alphabets: tuple[str, ...] | None) -> dict[tuple[str, str], list[Path]]:
    """The drawings of each (alphabet, character), all in alphabetical order."""
    characters = {}
    for part in PARTS:
        if not (folder / part).is_dir():
            raise DataFileError(f"{folder / part} is not there, expected a folder with one folder for each alphabet")
        for character in (folder / part).glob("*/character*"):
            if alphabets is None or character.parent.name in alphabets:
                drawings = sorted(character.glob("*.png"))
                if len(drawings) != N_DRAWINGS:
                    raise DataFileError(f"{character} holds {len(drawings)} drawings (.png), expected {N_DRAWINGS}")
                characters[character.parent.name, character.name] = drawings
    if missing := set(alphabets or ()) - {alphabet for alphabet, _ in characters}:
        raise DataFileError(
            f"{folder} lacks the alphabet {', '.join(sorted(missing))}, expected below {' or '.join(PARTS)}"
        )
    if not characters:
        raise DataFileError(
            f"{folder} holds no alphabet, expected ALPHABET/characterNN/*.png below {' and '.join(PARTS)}"
        )
    return dict(sorted(characters.items()))


def _source(name: str, about: str, size: Size, alphabets: tuple[str, ...] | None) -> Source:
    site = "https://github.com/brendenlake/omniglot/raw/master/python"
    sums = ("68d2efa1b9178cc56df9314c21c6e718", "6b91aef0f799c5bb55b94e3f2daec811")
    return Source(
        name,
        about,
        size,
        partial(read, name=name, alphabets=alphabets),
        partial(_count, alphabets=alphabets),
        folders=("omniglot-py", "."),
        parts=PARTS,
        downloads=tuple(
            Download(f"{site}/{part}.zip", f"{part}.zip", f"md5:{md5}", gives=(part,))
            for part, md5 in zip(PARTS, sums, strict=True)
        ),
    )


OMNIGLOT = _source("omniglot", "handwritten characters, 28 × 28 grey", Size(25_968, 6_492, 50), None)
OMNIGLOT5 = _source("omniglot5", "handwritten characters of five alphabets, 28 × 28 grey", Size(3_328, 832, 5), FIVE)
