"""An uploaded picture as a sample of the model: bounded in bytes and pixels, decoded, cropped, resized."""

from __future__ import annotations

from io import BytesIO
from typing import Any

import numpy as np

from ..data.arrays import InputForm
from ..data.pictures import check_effort

FORMATS = ("PNG", "JPEG", "GIF", "BMP", "WEBP")
MOST_BYTES = 8 << 20
MOST_PIXELS = 16_000_000
MODES = {1: "L", 3: "RGB", 4: "RGBA"}  # by channels


class PictureError(ValueError):
    """The bytes are not a picture that can be placed."""


def read_picture(data: bytes, form: InputForm, span: tuple[float, float], invert: bool = False) -> np.ndarray:
    """The picture in the form and range of the model's samples: (1, ...).

    The middle part that has the proportions of the samples is resized to theirs. Transparent pixels lie on white.

    Parameters
    ----------
    data : bytes
        The file.
    form : InputForm
        Of the samples.
    span : pair of float
        The values of the samples that stand for black and white.
    invert : bool
        Exchange black and white, as for ink on paper and a model of light on dark.
    """
    if not form.is_image:
        raise PictureError(
            f"image: the model was fitted on rows of {form.n_features} numbers, not on pictures; send row to /api/place"
        )
    if not data:
        raise PictureError(f"image: the file is empty; allowed are {', '.join(FORMATS)}")
    channels, height, width = form.shape
    try:
        pixels = _decode(data, (width, height), MODES[channels])
    except PictureError:
        raise
    except Exception as error:  # decoders of broken files raise whatever they stumble over
        raise PictureError(
            f"image: {len(data):,} bytes that are no whole picture; allowed are {', '.join(FORMATS)}"
        ) from error
    if invert:
        pixels = 255 - pixels
    if form.layout == "chw":
        pixels = pixels[None] if pixels.ndim == 2 else np.moveaxis(pixels, 2, 0)
    elif form.layout == "hwc" and pixels.ndim == 2:
        pixels = pixels[..., None]
    low, high = span
    if span == (0.0, 1.0):
        return pixels[None]  # bytes stand for 0 to 1
    return (low + pixels[None].astype(np.float32) / 255 * (high - low)).astype(np.float32)


def _decode(data: bytes, size: tuple[int, int], mode: str) -> np.ndarray:
    from PIL import Image, ImageOps

    with Image.open(BytesIO(data), formats=FORMATS) as image:
        if image.width * image.height > MOST_PIXELS:
            raise PictureError(
                f"image: {image.width} x {image.height} pixels; at most {MOST_PIXELS:,} in all are allowed"
            )
        try:
            check_effort(image, data)
        except ValueError as error:
            raise PictureError(f"image: {error}") from error
        if image.mode.startswith(("I", "F")):
            raise PictureError(f"image: more than 8 bits a pixel (mode {image.mode}); convert it to 8 bits")
        image.draft(mode, (4 * size[0], 4 * size[1]))  # a large JPEG is decoded smaller
        upright: Any = ImageOps.exif_transpose(image)
        if mode != "RGBA" and (upright.mode in ("LA", "PA", "RGBA") or "transparency" in upright.info):
            upright = upright.convert("RGBA")
            paper = Image.new("RGBA", upright.size, "white")
            paper.alpha_composite(upright)
            upright = paper
        return np.array(ImageOps.fit(upright.convert(mode), size, Image.Resampling.LANCZOS))
