"""Opens pictures whose size and effort are bounded, and reads many of them into one array."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from io import BytesIO
from math import prod
from os.path import commonpath
from pathlib import Path
from typing import Any

import numpy as np

from ..errors import DataFileError
from .refusal import INSTALL, MOST_TIMES, SMALL

LARGEST_PICTURE, LONGEST_SIDE = 1 << 24, 1 << 16  # pixels
LARGEST_FILE = 1 << 28  # bytes of a picture's file
LARGEST_FOLDER = 1 << 35  # bytes in memory of all pictures of a folder; CelebA in full size takes 24e9
FORMATS = ("PNG", "JPEG", "BMP")  # of Pillow, which would also start other programs for some of its others
MOST_SCANS = 100  # of a JPEG; a progressive one has about ten
MOST_SCANNED = 1 << 29  # pixels of all scans: 32 scans of the largest picture


def read_pictures(files: Sequence[Path], mode: str, side: int, fit: Callable[[Any, Path], Any]) -> np.ndarray:
    """Pixels as uint8, (n, side, side) for mode "L" and (n, side, side, 3) for "RGB".

    ``fit`` brings a Pillow image to that size, as an image or an array. One picture is in memory at a time, besides all
    pixels.
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


def check_sum(n_bytes: int, folder: Path, files: Sequence[Path]) -> None:
    """Raise if pictures would take more memory together than machines have, or many times more than their files."""
    together = f"the {len(files):,} pictures in {folder} would take {n_bytes:,} bytes in memory together"
    if n_bytes > LARGEST_FOLDER:
        raise DataFileError(
            f"{together}, more than {LARGEST_FOLDER:,}; shrink them or take fewer, or write them to one .npy file and "
            'give fit a memory map of it: np.load(FILE, mmap_mode="r")'
        )
    if n_bytes > SMALL and n_bytes > MOST_TIMES * (size := sum(file.stat().st_size for file in files)):
        raise DataFileError(
            f"{together}, more than {MOST_TIMES} times the {size:,} bytes of their files; if that is meant, shrink "
            "them, or write them to one file with np.save"
        )


@contextmanager
def opened(reader: Any, file: Path) -> Iterator[Any]:
    """A Pillow image, not decoded yet; what is wrong with it, then or while it is decoded, is raised as DataFileError.

    ``reader`` is PIL.Image, which is not there in every installation.
    """
    try:
        if not file.is_file():
            raise DataFileError(f"{file} is no file")
        if (size := file.stat().st_size) > LARGEST_FILE:
            raise DataFileError(f"{file} has {size:,} bytes, more than a picture of {LARGEST_PICTURE:,} pixels needs")
        data = file.read_bytes()  # Pillow asks a file for as much as it claims, and memory for as much
        content = BytesIO(data)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", reader.DecompressionBombWarning)  # refused below, long before it is one
            image = reader.open(content, formats=FORMATS)
        with image:
            if image.width * image.height > LARGEST_PICTURE:
                raise DataFileError(
                    f"{file} has {image.width} × {image.height} pixels, more than {LARGEST_PICTURE:,}; shrink it first"
                )
            check_effort(image, data)
            yield image
    except DataFileError:
        raise
    except (OSError, SyntaxError, ValueError, reader.DecompressionBombError) as error:  # SyntaxError: Pillow's for png
        raise DataFileError(f"{file} is no picture, or is cut short: {error}") from error


def check_effort(image: Any, data: bytes) -> None:
    """Raise ValueError for pictures of few bytes that take long to decode.

    Each scan of a JPEG goes over the whole picture, and Pillow unpacks the runs of a bmp in Python.
    """
    if max(image.size) > LONGEST_SIDE:
        raise ValueError(f"it has {image.width} × {image.height} pixels, more than {LONGEST_SIDE:,} on a side")
    if any(tile[0] == "bmp_rle" for tile in image.tile):
        raise ValueError("it is a bmp with run-length encoding; save it without, or as png")
    most = min(MOST_SCANS, MOST_SCANNED // max(image.width * image.height, 1))
    if data.startswith(b"\xff\xd8") and (scans := data.count(b"\xff\xda")) > most:
        raise ValueError(f"it has {scans} scans, more than {most}")
