"""Reads all pictures below a folder, which must be of one size."""

from __future__ import annotations

from collections.abc import Sequence
from math import prod
from pathlib import Path

import numpy as np

from ..errors import DataFileError
from .pictures import check_sum, opened
from .refusal import INSTALL
from .samples import Table

PICTURES = (".png", ".jpg", ".jpeg", ".bmp")


def read_folder(folder: Path) -> Table:
    """The pictures below a folder: (n, h, w) if all are grey, else (n, h, w, 3), uint8."""
    files = (file.relative_to(folder) for file in folder.rglob("*") if file.is_file())
    below = sorted(
        file.as_posix()
        for file in files
        if file.suffix.lower() in PICTURES and not any(part.startswith(".") for part in file.parts)  # hidden
    )
    if not below:
        raise DataFileError(f"the folder {folder} has no pictures in it; looked for {', '.join(PICTURES)}")
    first = _read_picture(folder / below[0])
    pixels = _room(folder, below, first.shape)
    for i, name in enumerate(below):
        picture = first if i == 0 else _read_picture(folder / name)
        (height, width), (h, w) = first.shape[:2], picture.shape[:2]
        if (height, width) != (h, w):
            raise DataFileError(
                f"the pictures differ in size: {below[0]} has {width} × {height} pixels, {name} has {w} × {h}; bring "
                f"all in {folder} to one size first"
            )
        if picture.ndim == pixels.ndim:  # the first in colour
            grey, pixels = pixels, _room(folder, below, picture.shape)
            pixels[:i] = grey[:i, ..., None]
        pixels[i] = picture if picture.ndim == pixels.ndim - 1 else picture[..., None]
    return Table(pixels, sample_names=tuple(below))


def _room(folder: Path, below: Sequence[str], shape: tuple[int, ...]) -> np.ndarray:
    """An array for all pictures of a folder."""
    check_sum(len(below) * prod(shape), folder, [folder / name for name in below])
    return np.empty((len(below), *shape), np.uint8)


def _read_picture(file: Path) -> np.ndarray:
    """A picture as uint8, (h, w) if it is grey, else (h, w, 3), turned as its camera says."""
    try:
        from PIL import Image, ImageOps
    except ImportError as error:
        raise DataFileError(f"{file} needs Pillow. {INSTALL}") from error
    with opened(Image, file) as image:
        if image.mode.startswith(("I", "F")):
            raise DataFileError(f"{file} has more than 8 bits a pixel (mode {image.mode}); convert it to 8 bits")
        grey = image.mode in ("1", "L", "LA")
        return np.asarray(ImageOps.exif_transpose(image).convert("L" if grey else "RGB"))
