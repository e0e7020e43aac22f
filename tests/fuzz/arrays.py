"""numpy's files, alone and zipped."""

import io
import struct
import zipfile
from functools import lru_cache, partial
from pathlib import Path
from random import Random

import numpy as np
from archives import lying_zip, zipped
from loader import Loader, load_each, normal, one_of, pixels
from mutations import any_bytes

from treevae.errors import DataFileError

NPY_TYPES = (
    *("<f8", ">f4", "|u1", "<i8", "|b1", "<c16", "|O", "|S4", "<U5", "|V100000000", "<f2", "<M8[ns]", "[('a', '<f8')]"),
)


def any_npy(content: bytes, chance: Random) -> bytes:
    """An array file whose header claims another shape or type, or is none."""
    if chance.random() < 0.4:
        return any_bytes(content, chance)
    start = 10 + struct.unpack("<H", content[8:10])[0]
    sides = [chance.choice((0, 1, 2, 3, 5, 2**20, 2**31, 2**40, 2**62, -1)) for _ in range(chance.randrange(5))]
    shape = chance.choice((f"({', '.join(map(str, sides))},)", "()", "(3)", "'abc'", "(5, 3)", "(" * 300, "9" * 5000))
    kind = chance.choice(NPY_TYPES)
    kind = kind if kind.startswith("[") else repr(kind)
    header = (
        f"{{'descr': {kind}, 'fortran_order': {chance.choice(('False', 'True', '1', 'None'))}, 'shape': {shape}, }}"
    )
    header += chance.choice(("", "", "\n", " " * 70_000, "\x00"))
    size = chance.choice((len(header), len(header), len(header), 0, 2**16 - 1)) % 2**16
    version = chance.choice((1, 1, 1, 2, 3, 9))
    length = struct.pack("<H", size) if version == 1 else struct.pack("<I", size)
    return b"\x93NUMPY" + bytes((version, 0)) + length + header.encode("latin-1") + content[start:]


def npy(values: np.ndarray) -> bytes:
    out = io.BytesIO()
    np.save(out, values)
    return out.getvalue()


def valid_npy(folder: Path) -> None:
    (folder / "x.npy").write_bytes(npy(normal(5, 3)))
    (folder / "y.npy").write_bytes(npy(pixels(4, 6, 6)))


def valid_npz(folder: Path) -> None:
    """Numbers with numbers for labels, and pictures with texts."""
    for name, X, y, method in (
        ("x", normal(5, 3), np.arange(5), zipfile.ZIP_STORED),
        ("labelled", pixels(4, 6, 6), np.array(list("abca")), zipfile.ZIP_DEFLATED),
    ):
        (folder / f"{name}.npz").write_bytes(zipped(("X.npy", npy(X), method), ("y.npy", npy(y), method)))


@lru_cache
def npz_bomb() -> bytes:
    """An array of 320 MB of zeros, packed to 320 kB."""
    header = "{'descr': '<f8', 'fortran_order': False, 'shape': (1000, 40000)}".ljust(117) + "\n"
    content = b"\x93NUMPY\x01\x00" + struct.pack("<H", 118) + header.encode() + bytes(320_000_000)
    return zipped(("X.npy", content, zipfile.ZIP_DEFLATED))


def any_npz(content: bytes, chance: Random) -> bytes:
    kind = chance.random()
    if kind < 0.4:
        return any_bytes(content, chance)
    if kind < 0.41:
        names = (f"{'m' * chance.choice((1, 60_000))}{i}.npy" for i in range(chance.choice((2, 30, 300))))
        return zipped(*((name, b"", zipfile.ZIP_STORED) for name in names))
    if kind > 0.98:
        return chance.choice((any_bytes, lying_zip, lambda bomb, _: bomb))(npz_bomb(), chance)
    methods, members = (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED, zipfile.ZIP_LZMA, zipfile.ZIP_BZIP2), []
    with zipfile.ZipFile(io.BytesIO(content)) as before:
        for name in before.namelist():
            method, array = chance.choice(methods), any_npy(before.read(name), chance)
            members.append((chance.choice((name, name, "X", "../x.npy")), array, method))
    bad = zipped(*members)
    return lying_zip(bad, chance) if kind > 0.8 else bad


LOADERS = (
    Loader("npy", 0.10, valid_npy, one_of(any_npy), load_each, (DataFileError,)),
    Loader("npz", 0.07, valid_npz, one_of(any_npz), partial(load_each, label="y"), (DataFileError,)),
)
