"""Tables: csv and parquet."""

import io
import struct
from functools import lru_cache, partial
from pathlib import Path
from random import Random

import numpy as np
import pandas
import pyarrow
from attacks import WIDE, long_label, lying_rows, same_names, same_text, short_rows, wide_values
from loader import Loader, load_each, normal, one_of
from mutations import EDGES, any_bytes
from pyarrow import parquet

from treevae.errors import DataFileError


def valid_csv(folder: Path) -> None:
    rows = "".join(f"{a:.3f},{b:.3f},{i}\n" for i, (a, b) in enumerate(normal(6, 2)))
    for name in ("x", "labelled"):
        (folder / f"{name}.csv").write_text("a,b,c\n" + rows)


def any_csv(content: bytes, chance: Random) -> bytes:
    kind = chance.random()
    if kind < 0.01:
        sizes = (3, 100, 1000, 10_000, 60_000)
        return short_rows(chance.choice(sizes), chance.choice(sizes), chance.choice((b"\r", b"\n", b"\r\n", b"\n\r")))
    if kind < 0.02:
        return long_label(chance.choice((10, 1000, 100_000, 1_000_000)), chance.choice((1, 100, 1500, 100_000)))
    if kind < 0.025:
        return same_names(chance.choice((b"a", b"", b"1", b"c")), chance.choice((2, 1000, 30_000, 60_000)))
    if kind < 0.03:
        return chance.choice((b"\n", b"\r", b"\r\n", b" \n")) * chance.choice((100, 10**5, 10**7)) + content
    if kind < 0.7:
        return any_bytes(content, chance)
    columns, rows = chance.choice((1, 3, 1000, 30_000)), chance.choice((1, 2, 1000, 30_000))
    pieces = (
        *(b",".join(b"c%d" % i for i in range(columns)) + b"\n" + b"1\n" * rows, b'"' + content),
        *(content.replace(b",", b"\x00"), b"\n" * rows, b"a" * rows + b"\n" + b"1\n" * columns),
        *(content.replace(b"\n", b"\r"), b"\xef\xbb\xbf" + content, content.replace(b"a,", b"a,a,a,")),
        *(b"1" * 4999 + b"\n2\n", b"a\n1e400\n-1e400\n", b"a\n" + b"9" * 30 + b"\n3\n", b"a\nTrue\nFalse\n"),
        *(b"a\n1+2j\n1\n", b"," * columns + b"\n" + b"1\n" * rows, b"a\n0x10\n1_000\n", b"\xff\xfe" + content),
        *(b'a,b\n"' + b"x\n" * rows + b'",1\n', b"a\n2020-01-01\n", b"#\n#\n", b"a,b\n1,2,3\n", b"a;b\n1;2\n"),
        b"nan,inf\nnan,inf\n",
    )
    return chance.choice(pieces)


def valid_parquet(folder: Path) -> None:
    frame = pandas.DataFrame({"a": normal(50), "b": np.arange(50) % 3, "c": np.arange(50) > 20})
    for name, how in (("x", {"compression": "snappy"}), ("labelled", {"compression": "zstd", "use_dictionary": False})):
        frame.to_parquet(folder / f"{name}.parquet", **how)


def any_parquet(content: bytes, chance: Random) -> bytes:
    if chance.random() < 0.6:
        return any_bytes(content, chance)
    (size,) = struct.unpack("<I", content[-8:-4])
    footer = any_bytes(content[-8 - size : -8], chance)
    claimed = chance.choice((len(footer), len(footer), len(footer), size, *EDGES)) % 2**32
    return content[: -8 - size] + footer + struct.pack("<I", claimed) + content[-4:]


@lru_cache
def repeated(rows: int) -> bytes:
    """A parquet table with one value again and again: a few bytes for any number of rows."""
    out = io.BytesIO()
    same = pyarrow.array(np.zeros(1 << 16))
    with parquet.ParquetWriter(out, pyarrow.schema([("a", pyarrow.float64())]), compression="zstd") as writer:
        for _ in range(rows >> 16):
            writer.write_table(pyarrow.table({"a": same}))
    return out.getvalue()


def spoil_parquet(files: dict[str, bytes], chance: Random) -> dict[str, bytes]:
    kind = chance.random()
    if kind < 0.003:
        return {"x.parquet": repeated(1 << 26)}
    if kind < 0.013:
        letters, rows = chance.choice((1, 1000, 100_000, 900_000)), chance.choice((1, 50, 500, 20_000))
        return files | {chance.choice(list(files)): same_text(letters, rows)}
    if kind < 0.023:
        rows, claimed = chance.choice((50, 10**4, 10**6)), chance.choice((0, 1, 10, 10**4, 10**8, 2**62))
        return files | {chance.choice(list(files)): lying_rows(rows, claimed, chance.randrange(4))}
    if kind < 0.033:
        letters, rows = chance.choice((1, 16, 1000, 100_000)), chance.choice((500, 5000, 20_000))
        return files | {chance.choice(list(files)): wide_values(chance.choice(WIDE), letters, rows)}
    return one_of(any_parquet)(files, chance)


LOADERS = (
    Loader("csv", 0.08, valid_csv, one_of(any_csv), partial(load_each, label="c"), (DataFileError,)),
    Loader("parquet", 0.08, valid_parquet, spoil_parquet, partial(load_each, label="c"), (DataFileError,), 4 << 30),
)
