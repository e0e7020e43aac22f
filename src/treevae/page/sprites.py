"""Many small pictures as a few large ones, for a page: tiles side by side on sheets, each sheet a PNG as text."""

from __future__ import annotations

import base64
import struct
import zlib
from typing import Any

import numpy as np

COLUMNS = 32  # tiles in a row of a sheet, and rows on it


class Sprites:
    """Pictures of one size, numbered as they are added.

    Parameters
    ----------
    height, width : int
        Pixels of the pictures that will be added.
    side : int
        Longest side of a tile; larger pictures are reduced by a whole number, as the mean of square blocks.
    """

    def __init__(self, height: int, width: int, side: int) -> None:
        self._block = -(-max(height, width) // side)
        self.tile = (-(-height // self._block), -(-width // self._block))
        self._tiles: list[np.ndarray] = []

    def __len__(self) -> int:
        return len(self._tiles)

    def add(self, images: np.ndarray) -> list[int]:
        """The numbers of new tiles; images are (n, height, width, 3 or 4) in [0, 1], transparent ones lie on white."""
        first = len(self._tiles)
        self._tiles.extend(bytes_of(reduced(on_white(images), self._block)))
        return list(range(first, len(self._tiles)))

    def to_dict(self) -> dict[str, Any]:
        """The sheets and how tiles are found on them: tile i is on sheet i // per_sheet, row by row."""
        per_sheet = COLUMNS * COLUMNS
        sheets = [self._sheet(self._tiles[i : i + per_sheet]) for i in range(0, len(self._tiles), per_sheet)]
        return {
            "columns": COLUMNS,
            "per_sheet": per_sheet,
            "count": len(self._tiles),
            "tile": list(self.tile),
            "sheets": sheets,
        }

    def _sheet(self, tiles: list[np.ndarray]) -> str:
        height, width = self.tile
        rows = -(-len(tiles) // COLUMNS)
        sheet = np.zeros((rows * height, COLUMNS * width, 3), dtype=np.uint8)
        for i, tile in enumerate(tiles):
            y, x = i // COLUMNS * height, i % COLUMNS * width
            sheet[y : y + height, x : x + width] = tile
        return data_url(sheet)


def on_white(images: np.ndarray) -> np.ndarray:
    """Pictures (n, h, w, 3 or 4) without transparency."""
    return images if images.shape[3] == 3 else images[..., :3] * images[..., 3:] + 1 - images[..., 3:]


def reduced(images: np.ndarray, block: int) -> np.ndarray:
    """The images (n, h, w, c) with each side a whole number of times shorter; edges are carried on where needed."""
    if block == 1:
        return images
    _, height, width, _ = images.shape
    pad = [(0, 0), (0, -height % block), (0, -width % block), (0, 0)]
    whole = np.pad(images, pad, mode="edge")
    n, height, width, channels = whole.shape
    return whole.reshape(n, height // block, block, width // block, block, channels).mean(axis=(2, 4))


def bytes_of(images: np.ndarray) -> np.ndarray:
    """Values in [0, 1] as bytes."""
    return (images.clip(0, 1) * 255).round().astype(np.uint8)


def data_url(pixels: np.ndarray) -> str:
    """A picture (h, w, 3) of bytes as a PNG in a data URL; grey where all three channels are the same."""
    if (pixels[..., :1] == pixels).all():
        pixels = pixels[..., :1]
    return "data:image/png;base64," + base64.b64encode(png(pixels)).decode()


def png(pixels: np.ndarray) -> bytes:
    """The PNG file of a picture (h, w, 1 or 3) of bytes. Pillow is an extra, and this is all that is needed of it."""
    height, width, channels = pixels.shape
    rows = pixels.reshape(height, width * channels)
    filtered = rows if channels == 1 else np.diff(rows, axis=0, prepend=np.zeros_like(rows[:1]))  # photographs: up
    kind = np.full((height, 1), 0 if channels == 1 else 2, dtype=np.uint8)
    header = struct.pack(">IIBBBBB", width, height, 8, 0 if channels == 1 else 2, 0, 0, 0)
    packed = zlib.compress(np.hstack([kind, filtered]).tobytes(), 9)
    parts = ((b"IHDR", header), (b"IDAT", packed), (b"IEND", b""))
    return b"\x89PNG\r\n\x1a\n" + b"".join(
        struct.pack(">I", len(data)) + name + data + struct.pack(">I", zlib.crc32(name + data)) for name, data in parts
    )
