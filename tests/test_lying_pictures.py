"""Pictures that lie, and pipes in their place."""

import os
import re
import struct
import tracemalloc
import zlib
from pathlib import Path

import pytest
from fuzz.attacks import blank, many_scans, runs
from lies import MB, refused, resident_below
from PIL import Image, PngImagePlugin
from small_sets import noise

from treevae.data import pictures
from treevae.data.arrays import InputForm
from treevae.data.files import read
from treevae.data.pictures import read_pictures
from treevae.serve.uploads import PictureError, read_picture

# -- idx ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("side", "scans", "most"), [(64, 200, 100), (4096, 60, 32)])
def test_a_picture_of_very_many_scans(tmp_path: Path, side: int, scans: int, most: int) -> None:
    (tmp_path / "x.jpg").write_bytes(many_scans(side, side, "L", scans))
    with refused(f"scans, more than {most}"):
        read(tmp_path)


@pytest.mark.parametrize(("width", "height", "bits"), [(64, 64, 8), (64, 64, 4), (1 << 24, 1, 8)])
def test_a_bmp_of_runs(tmp_path: Path, width: int, height: int, bits: int) -> None:
    """Pillow unpacks them in Python: 16 million pixels of a kilobyte take seconds."""
    content = runs(width, height, bits, b"\x01\x00\x00\x00")
    (tmp_path / "x.bmp").write_bytes(content)
    why = "more than 65,536 on a side" if width > 64 else "run-length encoding; save it without"
    with refused(why):
        read(tmp_path)
    with refused(why if width == 64 else "at most 16,000,000", kind=PictureError):
        read_picture(content, InputForm("hw", (1, 8, 8), True), (0.0, 1.0))


def test_pipes_are_not_waited_for(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "x.npy")
    with refused("is neither a file nor a folder"):
        read(tmp_path / "x.npy")
    os.mkfifo(tmp_path / "x.png")
    with refused(r"x\.png is no file"):
        read_pictures([tmp_path / "x.png"], "L", 8, lambda image, _: image)


# -- pictures -------------------------------------------------------------------------------------------------------


def png(width: int, height: int, *others: tuple[bytes, bytes]) -> bytes:
    def chunk(kind: bytes, inside: bytes) -> bytes:
        return struct.pack(">I", len(inside)) + kind + inside + struct.pack(">I", zlib.crc32(kind + inside))

    parts = [(b"IHDR", struct.pack(">IIBBBBB", width, height, 8, 0, 0, 0, 0)), *others]
    return b"\x89PNG\r\n\x1a\n" + b"".join(chunk(*part) for part in [*parts, (b"IDAT", zlib.compress(bytes(99)))])


@pytest.mark.parametrize(
    ("content", "why"),
    [
        (png(13_000, 13_000), "has 13000 × 13000 pixels, more than 16,777,216; shrink it"),
        (png(2**31 - 1, 2**31 - 1), "is no picture"),
        (png(4, 4, (b"tRNS", b"")), "is no picture"),
        (png(4, 4, (b"IHDR", b"")), "is no picture"),
        (png(4, 4, (b"zTXt", b"k\0\0" + zlib.compress(bytes(2 * PngImagePlugin.MAX_TEXT_CHUNK)))), "is no picture"),
    ],
)
def test_pictures_that_lie(tmp_path: Path, content: bytes, why: str) -> None:
    (tmp_path / "x.png").write_bytes(content)
    with refused(f"{re.escape(str(tmp_path / 'x.png'))} .*({why})"):
        read(tmp_path)


def test_a_png_whose_pixels_claim_gigabytes(tmp_path: Path) -> None:
    content = bytearray(png(4, 4))
    place = content.index(b"IDAT") - 4
    content[place : place + 4] = struct.pack(">I", 2**31 - 1)
    (tmp_path / "x.png").write_bytes(content)
    tracemalloc.start()
    try:
        assert read(tmp_path).X.shape == (1, 4, 4)  # all pixels are there; Pillow would ask for the rest in one go
        assert tracemalloc.get_traced_memory()[1] < 20 * MB
    finally:
        tracemalloc.stop()


def test_a_picture_that_is_too_large_a_file(tmp_path: Path) -> None:
    with (tmp_path / "x.png").open("wb") as file:
        file.truncate(2**28 + 1)  # takes no room on the disk
    with refused("has 268,435,457 bytes, more than a picture"):
        read(tmp_path)


@pytest.mark.parametrize("modes", [["L"] * 70, ["L"] * 29 + ["RGB"]], ids=["grey", "the last in colour"])
def test_many_small_pictures_that_unpack_to_much(tmp_path: Path, modes: list[str]) -> None:
    for i, mode in enumerate(modes):
        (tmp_path / f"{i:02}.png").write_bytes(blank(2048, 1024, mode))
    n_bytes = len(modes) * 2048 * 1024 * (3 if "RGB" in modes else 1)
    with refused(
        rf"the {len(modes)} pictures in {re.escape(str(tmp_path))} would take {n_bytes:,} bytes in memory together, "
        r"more than 200 times the [\d,]+ bytes of their files; if that is meant, shrink them, or write them",
        megabytes=len(modes) * 2 + 20,
    ):
        read(tmp_path)


def test_pictures_that_no_memory_holds_together(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pictures, "LARGEST_FOLDER", 100_000)
    for i in range(10):
        Image.fromarray(noise(100, 101)).save(tmp_path / f"{i}.png")
    with refused(
        "101,000 bytes in memory together, more than 100,000; shrink them or take fewer, or write them to one"
    ):
        read(tmp_path)
    monkeypatch.setattr(pictures, "LARGEST_FOLDER", 101_000)
    assert read(tmp_path).X.shape == (10, 100, 101)
    with refused(f"the 10 pictures in {tmp_path} would take 30,000,000 bytes in memory together"):
        read_pictures(sorted(tmp_path.iterdir()), "RGB", 1000, lambda image, _: image)


def test_a_folder_of_pictures_is_in_memory_once(tmp_path: Path) -> None:
    for i in range(40):
        (tmp_path / f"{i}.png").write_bytes(blank(1024, 1024, "L"))
    with resident_below(55):  # 40 of pixels; a list of them put together would take 80
        assert read(tmp_path).X.shape == (40, 1024, 1024)


@pytest.mark.parametrize("name", ["x.png", "x.jpg"])
def test_no_other_kind_of_picture_is_opened(tmp_path: Path, name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """An EPS file is a program, for which Pillow would start Ghostscript."""
    from PIL import EpsImagePlugin

    monkeypatch.setattr(EpsImagePlugin, "Ghostscript", lambda *_, **__: pytest.fail("must not be started"))
    Image.new("L", (8, 8)).save(tmp_path / "page.eps")
    (tmp_path / "page.eps").rename(tmp_path / name)
    with refused("is no picture"):
        read(tmp_path)
