"""Reads many pictures of one size into one array."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from math import prod
from os.path import commonpath
from pathlib import Path
from typing import Any

import numpy as np

from .files import INSTALL, DataFileError, check_sum, opened


def read_pictures(files: Sequence[Path], mode: str, side: int, fit: Callable[[Any, Path], Any]) -> np.ndarray:
    """Pixels as uint8, (n, side, side) for mode "L" and (n, side, side, 3) for "RGB".

    ``fit`` brings a Pillow image to that size. One picture is in memory at a time, besides the array.
    """
    try:
        from PIL import Image
    except ImportError as error:
        raise DataFileError(f"{files[0].parent} needs Pillow. {INSTALL}") from error
    shape = (len(files), side, side, *((3,) if mode == "RGB" else ()))
    check_sum(prod(shape), Path(commonpath(files)), files)
    pixels = np.empty(shape, np.uint8)
    for i, file in enumerate(files):
        with opened(Image, file) as image:
            pixels[i] = np.asarray(fit(image.convert(mode), file))
    return pixels
