"""Files that a reader made by hand to hurt a loader, each with its measures: small, well formed, and dear to believe.

The fuzz draws them with many measures; tests/test_lying_files.py has those that once took gigabytes or minutes.
"""

import gzip
import io
import struct
import tarfile
from functools import lru_cache

import numpy as np
import pyarrow
from PIL import Image
from pyarrow import parquet


def encoded_again(letters: int, times: int) -> bytes:
    """A pickle that encodes one text again and again."""
    text = b"X" + struct.pack("<I", letters) + b"a" * letters
    return b"c_codecs\nencode\nq\x01" + text + b"U\x06latin1\x86q\x02" + b"h\x01h\x02R" * times + b"."


def many_sides(sides: int, n_bytes: int) -> bytes:
    """A pickle of an array with so many sides, each a number of so many bytes."""
    number = b"\x8b" + struct.pack("<i", n_bytes) + b"\x7f" * n_bytes
    shape = b"(" + number + b"q\x01" + b"h\x01" * (sides - 1) + b"t"
    kind = b"cnumpy\ndtype\nU\x02u1\x85R"
    return b"cnumpy.core.multiarray\n_reconstruct\n)R(K\x01" + shape + kind + b"\x89C\x00tb."


def same_text(letters: int, rows: int) -> bytes:
    """A parquet table with a column c that has one text in all rows, which the file holds once."""
    text = pyarrow.DictionaryArray.from_arrays(np.zeros(rows, np.int32), ["x" * letters])
    out = io.BytesIO()
    parquet.write_table(pyarrow.table({"a": np.arange(rows), "c": text}), out, store_schema=False)
    return out.getvalue()


def short_rows(columns: int, rows: int, end: bytes) -> bytes:
    """A csv table with many columns, whose rows have one field and end with ``end``."""
    return b",".join(b"c%d" % i for i in range(columns)) + b"\n" + (b"1" + end) * rows


def long_label(letters: int, rows: int) -> bytes:
    """A csv table whose column c has one long text and many short ones."""
    return b"a,b,c\n1,2," + b"k" * letters + b"\n" + b"3,4,m\n" * rows


@lru_cache
def _progressive(width: int, height: int, mode: str) -> bytes:
    out = io.BytesIO()
    Image.new(mode, (width, height)).save(out, "JPEG", progressive=True)
    return out.getvalue()


def many_scans(width: int, height: int, mode: str, scans: int) -> bytes:
    """A progressive JPEG whose last scan comes again, so many times."""
    whole = _progressive(width, height, mode)
    last = whole.rindex(b"\xff\xda")
    return whole[:last] + whole[last:-2] * scans + whole[-2:]


@lru_cache
def blank(width: int, height: int, mode: str) -> bytes:
    """A black png: a thousand times smaller than its pixels."""
    out = io.BytesIO()
    Image.new(mode, (width, height)).save(out, "PNG", compress_level=9)
    return out.getvalue()


def noted(members: int, letters: int) -> bytes:
    """A gzipped tar file whose members have a note of so many letters each."""
    out = io.BytesIO()
    with tarfile.open(fileobj=out, mode="w:", format=tarfile.PAX_FORMAT) as archive:
        for i in range(members):
            member = tarfile.TarInfo(f"part/{i}")
            member.pax_headers = {"comment": "c" * letters}
            archive.addfile(member)
    return gzip.compress(out.getvalue(), 1, mtime=0)
