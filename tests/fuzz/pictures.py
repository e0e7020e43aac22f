"""Folders of pictures, CelebA's and Omniglot's, and single ones that are sent to the explorer."""

import struct
import zlib
from functools import partial
from pathlib import Path
from random import Random

from attacks import blank, many_rows, many_scans, runs
from loader import Loader, load_named, one_of, pixels
from mutations import any_bytes
from PIL import Image

from treevae.data.arrays import InputForm
from treevae.data.files import read
from treevae.errors import DataFileError
from treevae.serve.uploads import PictureError, read_picture


def valid_celeba(folder: Path) -> None:
    below = folder / "celeba"
    (below / "img_align_celeba").mkdir(parents=True)
    names = [f"{i:06d}.jpg" for i in range(1, 7)]
    for name in names:
        Image.fromarray(pixels(64, 64, 3)).save(below / "img_align_celeba" / name)
    rows = [f"{name} " + " ".join(["1", "-1"] * 20) for name in names]
    (below / "list_attr_celeba.txt").write_text("\n".join(["6", " ".join(f"A{a}" for a in range(40)), *rows]) + "\n")
    (below / "list_eval_partition.txt").write_text("".join(f"{name} {2 * (i > 3)}\n" for i, name in enumerate(names)))


OMNIGLOT = tuple(f"images_{part}/Letters/character0{i}" for i, part in enumerate(("background", "evaluation")))


def valid_omniglot(folder: Path) -> None:
    for character in OMNIGLOT:
        (folder / character).mkdir(parents=True)
        for i in range(20):
            Image.fromarray(pixels(105, 105) > 255 - 5 * i).save(folder / character / f"{i:02}.png")


def spoil_omniglot(files: dict[str, bytes], chance: Random) -> dict[str, bytes]:
    """A drawing, or the folders: drawings that are missing, too many, or in folders of their own."""
    name = chance.choice(list(files))
    kind = chance.randrange(6)
    if kind == 0:
        return {other: content for other, content in files.items() if other != name}
    if kind == 1:
        below = chance.choice((*OMNIGLOT, "images_background/Other/character01", "images_background", "x"))
        return files | {f"{below}/{chance.choice(('x.png', 'x.png/y.png', 'x', '.png'))}": files[name]}
    return files | {name: any_picture(files[name], chance)}


def valid_pictures(folder: Path) -> None:
    grey, colour = Image.fromarray(pixels(9, 11)), Image.fromarray(pixels(9, 11, 3))
    turned = colour.getexif()
    turned[0x0112] = 1
    grey.save(folder / "a.png")
    colour.save(folder / "b.jpg", exif=turned)
    colour.save(folder / "c.bmp")
    colour.quantize(8).save(folder / "d.png", transparency=0)
    grey.convert("1").save(folder / "e.png")


def png_chunks(content: bytes) -> list[bytearray]:
    found, place = [], 8
    while place + 12 <= len(content):
        (size,) = struct.unpack(">I", content[place : place + 4])
        found.append(bytearray(content[place : place + 12 + size]))
        place += 12 + size
    return found


def any_picture(content: bytes, chance: Random) -> bytes:
    """Bytes changed; of a png also chunks with a right checksum, as a header of a thousand million pixels."""
    if content.startswith(b"\xff\xd8") and chance.random() < 0.05:
        sides = chance.choice(((9, 11), (64, 64), (178, 218), (1000, 1000), (4096, 4096)))
        return many_scans(*sides, chance.choice(("L", "RGB")), chance.choice((1, 50, 85, 200, 3000)))
    if content.startswith(b"BM") and chance.random() < 0.1:
        sides = chance.choice(((9, 11), (1000, 1000), (4096, 4096), (1 << 24, 1), (1, 1 << 24)))
        data = chance.choice((b"\x01\x00", b"\xff\x11", b"\x00\x02\xff\xff", b"\x00\x00"))
        return runs(*sides, chance.choice((4, 8)), data * chance.choice((1, 1000, 500_000)))
    if not content.startswith(b"\x89PNG") or chance.random() < 0.3:
        return any_bytes(content, chance)
    chunks = png_chunks(content)
    chunk = chance.choice((chunks[0], chance.choice(chunks)))
    if chunk[4:8] == b"IHDR" and chance.random() < 0.7:
        sides = [chance.choice((0, 1, 9, 11, 5000, 13_000, 2**16, 2**31 - 1, 2**32 - 1)) for _ in range(2)]
        chunk[8:16] = struct.pack(">II", *sides)
        chunk[16:18] = bytes((chance.choice((1, 8, 16)), chance.choice((0, 2, 3, 4, 6, 7))))
    elif len(chunk) > 12:
        inside = any_bytes(bytes(chunk[8:-4]), chance)
        chunk[:] = struct.pack(">I", len(inside)) + chunk[4:8] + inside + b"1234"
    if chance.random() < 0.2:
        text = (
            b"k\x00\x00" + zlib.compress(bytes(50_000_000), 1)
            if chance.random() < 0.1
            else b"k\x00\x00" + chance.randbytes(9)
        )
        kind = chance.choice((b"zTXt", b"iCCP", b"iTXt", b"eXIf", b"tRNS", b"acTL", b"fcTL", b"fdAT", b"gAMA", b"cHRM"))
        chunks.insert(chance.randrange(1, len(chunks)), bytearray(struct.pack(">I", len(text)) + kind + text + b"1234"))
    for one in chunks:
        one[-4:] = struct.pack(">I", zlib.crc32(bytes(one[4:-4])))
    return content[:8] + b"".join(map(bytes, chunks))


FOREIGN = (  # pictures of kinds that are not read, under an ending that is
    b"%!PS-Adobe-3.0 EPSF-3.0\n%%BoundingBox: 0 0 10 10\n%%EndComments\nshowpage\n%%EOF\n",
    b"GIF89a\x0a\x00\x0a\x00\x80\x00\x00\xff\xff\xff\x00\x00\x00,\x00\x00\x00\x00\x0a\x00\x0a\x00\x00\x02\x00;",
    b"P6\n30000 30000\n255\n",
    b"#define im_width 60000\n#define im_height 60000\nstatic char im_bits[] = {\n0x00",
)


def many_blank(chance: Random) -> dict[str, bytes]:
    """Many small files that unpack to much; of grey ones some may be in colour."""
    side, n = chance.choice((16, 256, 1024, 2048, 4096)), chance.choice((2, 7, 30, 100))
    modes = chance.choices(("L", "RGB"), chance.choice(((1, 0), (0, 1), (9, 1))), k=n)
    return {f"{i:03}.png": blank(side, side, mode) for i, mode in enumerate(modes)}


def spoil_celeba(files: dict[str, bytes], chance: Random) -> dict[str, bytes]:
    """A list or a picture, of which there are more."""
    lists = [name for name in files if name.endswith(".txt")]
    if chance.random() < 0.005:
        names, values = chance.choice(((b" ", b""), (b"A", b" 1"), (b"A " * 10**6, b"")))
        return files | {chance.choice(lists): many_rows(names, values, chance.choice((3, 1000, 100_000, 400_000)))}
    return one_of(any_bytes, *lists)(files, chance) if chance.random() < 0.5 else one_of(any_picture)(files, chance)


def spoil_pictures(files: dict[str, bytes], chance: Random) -> dict[str, bytes]:
    kind = chance.random()
    if kind < 0.01:
        return many_blank(chance)
    if kind < 0.06:
        return files | {chance.choice(list(files)): chance.choice(FOREIGN)}
    return one_of(any_picture)(files, chance)


# -- uploads --------------------------------------------------------------------------------------------------------


def valid_uploads(folder: Path) -> None:
    valid_pictures(folder)
    colour = Image.fromarray(pixels(9, 11, 3))
    colour.save(folder / "f.gif")
    colour.save(folder / "g.webp", lossless=True)


def spoil_upload(files: dict[str, bytes], chance: Random) -> dict[str, bytes]:
    """One picture alone, as it is sent."""
    name = chance.choice(list(files))
    return {name: chance.choice(FOREIGN) if chance.random() < 0.05 else any_picture(files[name], chance)}


def load_uploads(folder: Path) -> None:
    for path in folder.iterdir():
        read_picture(path.read_bytes(), InputForm("hwc", (3, 28, 28), True), (0.0, 1.0))


LOADERS = (
    Loader("upload", 0.02, valid_uploads, spoil_upload, load_uploads, (PictureError,)),
    Loader("celeba", 0.03, valid_celeba, spoil_celeba, partial(load_named, name="celeba"), (DataFileError,)),
    Loader("omniglot", 0.01, valid_omniglot, spoil_omniglot, partial(load_named, name="omniglot"), (DataFileError,)),
    Loader("pictures", 0.05, valid_pictures, spoil_pictures, read, (DataFileError,)),
)
