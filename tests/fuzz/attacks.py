"""Files that a reader made by hand to hurt a loader, each with its measures: small, well formed, and dear to believe.

The fuzz draws them with many measures; tests/test_lying_*.py have those that once took gigabytes or minutes.
"""

import gzip
import io
import struct
import tarfile
from datetime import date
from datetime import time as clock
from decimal import Decimal
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


def images_claimed(n_bytes: int, last: int) -> bytes:
    """A pickle that says its array holds so many images: a number of so many bytes, the last of them given."""
    return b"\x8b" + struct.pack("<i", n_bytes) + b"\x7f" * (n_bytes - 1) + bytes((last,)) + b"M\x00\x0c\x86."


def operations(one: bytes, times: int) -> bytes:
    """A pickle of one operation again and again."""
    return one * times + b"."


@lru_cache
def lying_rows(rows: int, claimed: int, which: int) -> bytes:
    """A parquet table of one number in all rows; one of the counts in its footer is changed."""
    out = io.BytesIO()
    parquet.write_table(pyarrow.table({"a": np.ones(rows, np.float32)}), out, compression="zstd", store_schema=False)
    content = out.getvalue()
    (size,) = struct.unpack("<I", content[-8:-4])
    footer, said = content[-8 - size : -8], _varint(rows)
    places = [i for i in range(size) if footer.startswith(said, i)]
    place = places[which % len(places)]
    footer = footer[:place] + _varint(claimed) + footer[place + len(said) :]
    return content[: -8 - size] + footer + struct.pack("<I", len(footer)) + content[-4:]


def _varint(number: int) -> bytes:
    """A count as Thrift writes it: doubled, seven bits a byte, the lowest first."""
    rest, found = number << 1, b""
    while rest > 127:
        found, rest = found + bytes((rest & 127 | 128,)), rest >> 7
    return found + bytes((rest,))


WIDE = ("fixed", "decimal", "date", "time")


@lru_cache
def wide_values(kind: str, letters: int, rows: int) -> bytes:
    """A parquet table of one value in all rows, of a type that takes much room, or a Python object, for each."""
    one = {
        "fixed": pyarrow.scalar(b"x" * letters, pyarrow.binary(letters)),
        "decimal": pyarrow.scalar(Decimal("1.5"), pyarrow.decimal128(38, 2)),
        "date": pyarrow.scalar(date(2020, 1, 1)),
        "time": pyarrow.scalar(clock(3)),
    }[kind]
    some = pyarrow.repeat(one, 500)
    out = io.BytesIO()
    table = pyarrow.table({"a": pyarrow.chunked_array([some] * (rows // 500))})
    parquet.write_table(table, out, compression="zstd", store_schema=False)
    return out.getvalue()


def same_names(name: bytes, columns: int) -> bytes:
    """A csv table whose columns have one name."""
    return b",".join([name] * columns) + b"\n" + b",".join([b"1"] * columns) + b"\n"


def runs(width: int, height: int, bits: int, data: bytes) -> bytes:
    """A bmp of runs."""
    colours, start = 1 << bits, 54 + 4 * (1 << bits)
    about = struct.pack("<IiiHHIIiiII", 40, width, height, 1, bits, 1 if bits == 8 else 2, len(data), 0, 0, colours, 0)
    return b"BM" + struct.pack("<IHHI", start + len(data), 0, 0, start) + about + bytes(4 * colours) + data


def many_words(words: int) -> bytes:
    """A message of words of which none comes twice."""
    return b" ".join(b"%xz" % i for i in range(words))


def many_rows(names: bytes, values: bytes, rows: int) -> bytes:
    """A list of CelebA's with many rows."""
    return b"%d\n%s\n" % (rows, names) + b"".join(b"%x%s\n" % (i, values) for i in range(rows))


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
