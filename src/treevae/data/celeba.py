"""CelebA: faces at 64 × 64 in colour with 40 attributes each. There are no classes.

Full-size pictures (178 × 218) lose their margins and are shrunk; pictures of 64 × 64 are taken as they are.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

from ..errors import DataFileError
from .dataset import SEED, DataSet, Size, Source, own_split
from .pictures import read_pictures

PICTURES, ATTRIBUTES, PARTITION = "img_align_celeba", "list_attr_celeba.txt", "list_eval_partition.txt"
FULL_SIZE, CROP, SIDE = (178, 218), (15, 40, 163, 188), 64  # left, top, right, bottom: 148 × 148 pixels
LARGEST_LIST = 1 << 26  # bytes of a list of all pictures
MOST_PICTURES = 1 << 18  # lines in it; 202,599 are published
LONGEST_LINE = 10_000  # letters
N_TRAIN = 100_000  # the paper trains on that many of the training pictures
TRAIN, TEST = "0", "2"  # in the partition; 1 is the validation part, which the paper does not use
OWN_SPLIT = (
    "no official test part is there; a fifth of the training pictures, drawn with a fixed seed, is the test part"
)


def _read(folder: Path) -> DataSet:
    """Faces as uint8, (n, 64, 64, 3), with their attributes."""
    names, attributes = _read_attributes(folder)
    train, test, note = _parts(folder, attributes)
    files = _files(folder)
    x_train, x_test = (read_pictures([files[stem] for stem in part], "RGB", SIDE, _cropped) for part in (train, test))
    a_train, a_test = (np.stack([attributes[stem] for stem in part]) for part in (train, test))
    return DataSet(
        "celeba",
        x_train,
        None,
        x_test,
        None,
        attributes_train=a_train,
        attributes_test=a_test,
        attribute_names=names,
        note=note,
    )


def _count(folder: Path) -> Size:
    train, test, _ = _parts(folder, _read_attributes(folder)[1])
    return Size(len(train), len(test), 0)


def _files(folder: Path) -> dict[str, Path]:
    """The pictures by their names without ending: the lists say .jpg also where the pictures are .png."""
    if not (folder / PICTURES).is_dir():
        raise DataFileError(f"{folder / PICTURES} is not there, expected a folder of pictures 000001.jpg (or .png), …")
    return {file.stem: file for file in (folder / PICTURES).iterdir() if file.suffix.lower() in (".jpg", ".png")}


def _read_attributes(folder: Path) -> tuple[tuple[str, ...], dict[str, np.ndarray]]:
    """The names of the attributes, and which ones each picture has."""
    path = folder / ATTRIBUTES
    count, header, *rows = _lines(path)
    names, attributes_of = tuple(header.split()), {}
    if not names:
        raise DataFileError(f"{path} names no attributes in its second line, expected their names")
    for i, row in enumerate(rows, start=3):
        file, *values = row.split() or [""]
        if len(values) != len(names) or not set(values) <= {"1", "-1"}:
            raise DataFileError(f"{path} has in line {i} not a file and {len(names)} times 1 or -1: {row[:60]!r}")
        attributes_of[_stem(file)] = np.array([value == "1" for value in values])
    if count.strip() != str(len(attributes_of)):
        raise DataFileError(
            f"{path} lists {len(attributes_of):,} pictures, expected the {count.strip()[:20]} of its first line"
        )
    return names, attributes_of


def _parts(folder: Path, attributes: dict[str, np.ndarray]) -> tuple[list[str], list[str], str]:
    """The training and the test pictures, of those listed and there; and what is not as published."""
    stems = sorted(attributes.keys() & _files(folder).keys())
    part = _read_partition(folder / PARTITION) if (folder / PARTITION).exists() else dict.fromkeys(stems, TRAIN)
    if unknown := [stem for stem in stems if stem not in part]:
        raise DataFileError(f"{folder / PARTITION} does not list {unknown[0]}, expected every picture that is there")
    train, test = ([stem for stem in stems if part[stem] == which] for which in (TRAIN, TEST))
    if len(train) < 2:
        raise DataFileError(f"{folder / PICTURES} holds {len(train)} of the training pictures, expected thousands")
    note = ""
    if not test:
        note, everything = OWN_SPLIT, train
        train, test = ([everything[i] for i in sorted(positions)] for positions in own_split(len(everything)))
    if len(train) > N_TRAIN:
        chosen = np.random.default_rng(SEED).choice(len(train), N_TRAIN, replace=False)
        train = [train[i] for i in np.sort(chosen)]
    return train, test, note


def _read_partition(path: Path) -> dict[str, str]:
    """The part each picture belongs to."""
    part = {}
    for i, row in enumerate(_lines(path), start=1):
        if len(fields := row.split()) != 2 or fields[1] not in ("0", "1", "2"):
            raise DataFileError(f"{path} has in line {i} not a file and 0, 1 or 2: {row[:60]!r}")
        part[_stem(fields[0])] = fields[1]
    return part


def _stem(file: str) -> str:
    """The name without its ending; a Path would take most of the time that a list takes."""
    name = file.rpartition("/")[2]
    return name.rpartition(".")[0] or name


def _lines(path: Path) -> list[str]:
    if not path.is_file():
        raise DataFileError(f"{path} is not there")
    if (size := path.stat().st_size) > LARGEST_LIST:
        raise DataFileError(f"{path} has {size:,} bytes, expected at most {LARGEST_LIST:,}")
    text = path.read_text(encoding="latin-1")
    if (n_lines := text.count("\n")) > MOST_PICTURES:
        raise DataFileError(f"{path} has {n_lines:,} lines, expected at most {MOST_PICTURES:,}")
    lines = text.removesuffix("\n").split("\n") if text else []
    if any(len(line) > LONGEST_LINE for line in lines):
        raise DataFileError(f"{path} has a line of more than {LONGEST_LINE:,} letters, expected one for each picture")
    if len(lines) < 3:
        raise DataFileError(f"{path} has {len(lines)} lines, expected one for each picture")
    return lines


def _cropped(image: Any, file: Path) -> Any:
    """The image at 64 × 64."""
    from PIL import Image

    if image.size == FULL_SIZE:
        return image.crop(CROP).resize((SIDE, SIDE), Image.Resampling.BILINEAR)
    if image.size != (SIDE, SIDE):
        raise DataFileError(f"{file} has {image.width} × {image.height} pixels, expected 178 × 218 or {SIDE} × {SIDE}")
    return image


CELEBA = Source(
    "celeba",
    "faces with 40 attributes, 64 × 64 in colour",
    Size(N_TRAIN, 19_962, 0),
    _read,
    _count,
    folders=("celeba",),
    parts=(PICTURES, ATTRIBUTES, PARTITION),
    md5={ATTRIBUTES: "75e246fa4810816ffd6ee81facbd244c", PARTITION: "d32c9cbf5e040fd4025c592c306e6668"},
    by_hand=(
        "CelebA lies on Google Drive, which gives it only to a browser: from "
        "https://mmlab.ie.cuhk.edu.hk/projects/CelebA.html take img_align_celeba.zip (unpack it), list_attr_celeba.txt "
        "and list_eval_partition.txt, and put them into a folder celeba below the root"
    ),
)
