"""Files that lie: every way in which one was once seen to crash a loader, hang it or fill the memory (tests/fuzz)."""

import base64
import ctypes
import gzip
import hashlib
import io
import json
import os
import pickle
import re
import struct
import sys
import tarfile
import time
import tracemalloc
import zipfile
import zlib
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import asdict
from decimal import Decimal
from pathlib import Path
from typing import Any

import numpy as np
import pandas
import pytest
import torch
from fuzz.attacks import (
    WIDE,
    blank,
    encoded_again,
    images_claimed,
    long_label,
    lying_rows,
    many_rows,
    many_scans,
    many_sides,
    many_words,
    noted,
    operations,
    runs,
    same_names,
    same_text,
    short_rows,
    wide_values,
)
from PIL import Image, PngImagePlugin
from safetensors.torch import save
from small_sets import make_celeba, make_cifar10, make_idx, make_news20, noise

from treevae import Tree, TreeVAE
from treevae import load as load_model
from treevae.cli import fit as cli_fit
from treevae.data import download, idx, load, pickles, pictures, tables
from treevae.data.arrays import InputForm
from treevae.data.files import read
from treevae.data.pickles import read_pickle
from treevae.data.pictures import read_pictures
from treevae.data.sets import survey
from treevae.errors import DataFileError
from treevae.experiments import showing
from treevae.experiments.methods import METHODS
from treevae.experiments.store import DamagedRecordError, Store
from treevae.experiments.tables import TABLES
from treevae.model.module import TreeVAEModule, weight_shapes
from treevae.model.networks import Architecture
from treevae.run import Run, Settings
from treevae.serve.uploads import PictureError, read_picture
from treevae.storage import tensors as checkpoint
from treevae.storage.states import STATES, StateFolder
from treevae.storage.tensors import ModelFileError
from treevae.training import loop
from treevae.training.grove import _checked_rows
from treevae.tree import balanced

ROOT = Path(__file__).parents[1]
MB = 1 << 20


@contextmanager
def refused(message: str, megabytes: int = 20, seconds: float = 5, kind: type = DataFileError) -> Iterator[Any]:
    """Inside, the message comes soon, and little memory is asked for: of Python, and of the system."""
    tracemalloc.start()
    began = time.monotonic()
    try:
        with resident_below(megabytes + 80), pytest.raises(kind, match=message) as said:  # what is imported counts
            yield said
        assert tracemalloc.get_traced_memory()[1] < megabytes * MB
        assert time.monotonic() - began < seconds
    finally:
        tracemalloc.stop()


@contextmanager
def resident_below(megabytes: int) -> Iterator[None]:
    """Inside, the process's memory rises by no more, also that which Python does not trace, as torch's and Arrow's."""
    if not sys.platform.startswith("linux"):
        yield
        return
    if hasattr(libc := ctypes.CDLL(None), "malloc_trim"):
        libc.malloc_trim(0)  # what earlier tests freed would be taken again, and no rise be seen
    Path("/proc/self/clear_refs").write_text("5")  # the most so far is forgotten
    before = resident("VmRSS")
    yield
    assert resident("VmHWM") - before < megabytes * MB, "resident memory"


def resident(name: str) -> int:
    return int(re.search(rf"{name}:\s+(\d+) kB", Path("/proc/self/status").read_text())[1]) * 1024


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="resident memory is measured there")
def test_a_flood_of_memory_is_seen() -> None:
    with pytest.raises(AssertionError, match="resident"), resident_below(100):
        torch.ones(200 * MB, dtype=torch.uint8)


# -- idx ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("images", [300_000, 2**32 - 1])
def test_an_idx_header_that_claims_more_than_the_file_has(tmp_path: Path, images: int) -> None:
    make_idx(tmp_path, "MNIST")
    path = tmp_path / "MNIST" / idx.FILES[0]
    path.write_bytes(path.read_bytes()[:4] + struct.pack(">I", images) + path.read_bytes()[8:])
    with refused(rf"{path.name} (holds 5,488|says that)"):
        load("mnist", tmp_path)
    assert path.name in survey("mnist", tmp_path).fault


def test_a_gzipped_idx_that_is_a_bomb(tmp_path: Path) -> None:
    make_idx(tmp_path, "MNIST", ".gz")
    path = tmp_path / "MNIST" / f"{idx.FILES[0]}.gz"
    path.write_bytes(gzip.compress(bytes((0, 0, 8, 3)) + struct.pack(">III", 500_000, 28, 28) + bytes(99 * MB), 1))
    with refused("392,000,000 bytes follow its header, expected at most"):
        load("mnist", tmp_path)


def test_the_list_of_data_sets_does_not_unpack_a_bomb_to_its_end(tmp_path: Path, monkeypatch) -> None:
    monkeypatch.setattr(download, "LARGEST", MB)
    (tmp_path / "x.gz").write_bytes(gzip.compress(bytes(50 * MB), 1))
    assert download.content_md5(tmp_path / "x.gz") == hashlib.md5(bytes(MB)).hexdigest()  # of its beginning


def test_one_long_label_does_not_make_room_for_all(tmp_path: Path) -> None:
    (tmp_path / "x.csv").write_bytes(long_label(10**6, 1500))
    with refused("more than 200 times as much"):
        read(tmp_path / "x.csv", label="c")


def test_short_rows_that_end_in_carriage_returns(tmp_path: Path) -> None:
    (tmp_path / "x.csv").write_bytes(short_rows(10_000, 20_000, b"\r"))
    with refused("have fewer fields"):
        read(tmp_path / "x.csv")


def test_a_text_that_stands_in_many_rows_of_a_parquet_file_is_kept_once(tmp_path: Path) -> None:
    (tmp_path / "x.parquet").write_bytes(same_text(900_000, 500))  # 450 MB unless shared
    with refused("columns that are not numbers: 'c'"):
        read(tmp_path / "x.parquet")
    with refused("would take 1,800,000,000 in memory"):
        read(tmp_path / "x.parquet", label="c")


def test_texts_that_stand_in_many_rows_are_labels(tmp_path: Path) -> None:
    kinds = pandas.Categorical(["long" * 9, "b", None, "b"])
    pandas.DataFrame({"a": range(4), "c": kinds}).to_parquet(tmp_path / "x.parquet")
    with refused("is missing for 1 of 4 samples, first for sample 2"):
        read(tmp_path / "x.parquet", label="c")
    pandas.DataFrame({"a": range(4), "c": kinds.fillna("b")}).to_parquet(tmp_path / "x.parquet")
    assert read(tmp_path / "x.parquet", label="c").labels.tolist() == ["long" * 9, "b", "b", "b"]


def test_columns_of_lists(tmp_path: Path) -> None:
    pandas.DataFrame({"a": [[1, 2], [3]]}).to_parquet(tmp_path / "x.parquet")
    with refused("lists or records"):
        read(tmp_path / "x.parquet")


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


def test_idx_files_of_nothing(tmp_path: Path) -> None:
    make_idx(tmp_path, "MNIST")
    for file, shape in zip(idx.FILES, ((0, 28, 28), (0,)) * 2, strict=True):
        (tmp_path / "MNIST" / file).write_bytes(bytes((0, 0, 8, len(shape))) + struct.pack(f">{len(shape)}I", *shape))
    with refused("says that it holds nothing"):
        load("mnist", tmp_path)
    assert "says that it holds nothing" in survey("mnist", tmp_path).fault


# -- messages and lists ---------------------------------------------------------------------------------------------


def test_folders_and_links_to_nothing_among_messages(tmp_path: Path) -> None:
    make_news20(tmp_path)
    before = repr(load("news20", tmp_path))
    group = tmp_path / "20news-bydate" / "20news-bydate-train" / "sci.space"
    (group / "folder").mkdir()
    (group / "link").symlink_to("nowhere")
    assert repr(load("news20", tmp_path)) == before
    (group / "long").write_bytes(many_words(200_000))
    with refused(r"long has 1,\d+,\d+ bytes, expected at most 1,048,576"):
        load("news20", tmp_path)
    assert "long has" in survey("news20", tmp_path).fault


@pytest.mark.parametrize(
    ("content", "why"),
    [
        (many_rows(b" ", b"", 3), "names no attributes in its second line"),
        (many_rows(b"A", b" 1", 270_000), "has 270,002 lines, expected at most 262,144"),
        (many_rows(b"A " * 10**5, b" 1", 3), "a line of more than 10,000 letters"),
    ],
)
def test_lists_of_faces_that_lie(tmp_path: Path, content: bytes, why: str) -> None:
    make_celeba(tmp_path)
    (tmp_path / "celeba" / "list_attr_celeba.txt").write_bytes(content)
    with refused(why):
        load("celeba", tmp_path)
    assert re.search(why, survey("celeba", tmp_path).fault)


# -- CIFAR's pickles ------------------------------------------------------------------------------------------------


def doubling(first: bytes, join: bytes, levels: int = 60) -> bytes:
    """A value that holds the one before it twice, level upon level; all of them take a few bytes."""
    return first + b"q\x01" + b"".join(join % (i, i) + b"q%c" % (i + 1) for i in range(1, levels))


@pytest.mark.parametrize(
    "content",
    [
        pytest.param(b"\x8e" + struct.pack("<Q", 2**30) + b".", id="a gigabyte of bytes that are not there"),
        pytest.param(b"}r" + struct.pack("<I", 2**27) + b".", id="a place far away in the memory"),
        pytest.param(b"}" + doubling(b")", b"h%ch%c\x86") + b"K\x01s.", id="a key that takes 2 ** 60 steps to hash"),
        pytest.param(b"cnumpy\ndtype\n" + doubling(b"]", b"](h%ch%ce") + b"\x85R.", id="a type with 2 ** 60 letters"),
        pytest.param(b"c_codecs\nencode\n(X" + struct.pack("<I", 10**6) + b"a" * 10**6 + b"U\x04idnatR.", id="idna"),
        pytest.param(b"cnumpy\ndtype\n}U\x0c__defaults__)sb.", id="a name that is changed"),
        pytest.param(b"(U\x02u1inumpy\ndtype\n.", id="an operation that calls"),
        pytest.param(b"I" + b"9" * 5000 + b"\n.", id="a number of 5,000 digits"),
        pytest.param(b"(" * 10**5 + b".", id="marks alone"),
        pytest.param(b"", id="nothing"),
        pytest.param(encoded_again(10**5, 2000), id="one text, encoded again and again"),
        pytest.param(many_sides(5000, 20_000), id="an array with 5,000 sides of 20,000 bytes"),
        pytest.param(images_claimed(3000, 127), id="images of a number of 7,200 digits"),
        pytest.param(images_claimed(1, 255), id="-1 images"),
    ],
)
def test_wicked_pickles(tmp_path: Path, content: bytes) -> None:
    make_cifar10(tmp_path)
    (tmp_path / "cifar-10-batches-py" / "data_batch_2").write_bytes(content)
    with refused("data_batch_2 (is no CIFAR file, or is cut short or damaged|holds no images)"):
        load("cifar10", tmp_path)
    assert "data_batch_2" in survey("cifar10", tmp_path).fault


def test_cifar_files_of_very_many_operations(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pickles, "MOST_OPERATIONS", 10_000)
    make_cifar10(tmp_path)
    below = tmp_path / "cifar-10-batches-py"
    (below / "data_batch_1").write_bytes(operations(b"N", 10_001))
    with refused("data_batch_1 .* more than 10,000 operations"):
        load("cifar10", tmp_path)
    (below / "batches.meta").write_bytes(operations(b"}", 1 << 20))
    with refused("batches.meta has 1,048,577 bytes, expected at most 1,048,576"):
        load("cifar10", tmp_path)


@pytest.mark.parametrize("protocol", range(5))
def test_pickles_of_every_protocol_are_read(protocol: int) -> None:
    content = {"data": noise(2, 6), b"labels": [1, -2, 2**40], "names": ("a", b"\xff"), "x": [1.5, None, True], "": {}}
    found = read_pickle(pickle.dumps(content, protocol))
    np.testing.assert_array_equal(found.pop("data"), content.pop("data"))
    assert found == content


# -- arrays ---------------------------------------------------------------------------------------------------------


def npy(header: str, content: bytes = b"", version: int = 1) -> bytes:
    length = struct.pack("<H" if version == 1 else "<I", len(header))
    return b"\x93NUMPY" + bytes((version, 0)) + length + header.encode() + content


def about(shape: str, kind: str = "<f8") -> str:
    return f"{{'descr': '{kind}', 'fortran_order': False, 'shape': {shape}, }}\n"


@pytest.mark.parametrize(
    ("content", "why"),
    [
        (npy(about("(1000000000000, 10)"), bytes(80)), "takes 80,000,000,000,000 bytes"),
        (npy(about("(100000000, 2)"), bytes(80)), "takes 1,600,000,000 bytes"),
        (npy(about("(5, -3)"), bytes(120)), "no plain array"),
        (npy(about("(2, 2", "<f8"), bytes(32)), "damaged"),
        (npy(about("(" * 400), bytes(32)), "no plain array"),
        (npy(about("(2, 2)", "|V1000000000"), bytes(32)), "dtype"),
        (npy(about("('a', 2)"), bytes(32)), "damaged"),
        (npy(about("(2, 2)"), bytes(31)), "cut short: it holds 31 of 32 bytes"),
        (npy(" " * 60_000), "no plain array"),
        (npy("9" * 900), "damaged"),
    ],
)
@pytest.mark.parametrize("ending", ["npy", "npz"])
def test_array_headers_that_lie(tmp_path: Path, ending: str, content: bytes, why: str) -> None:
    path = tmp_path / f"x.{ending}"
    if ending == "npy":
        path.write_bytes(content)
    else:
        with zipfile.ZipFile(path, "w") as zipped:
            zipped.writestr("x.npy", content)
    with refused(f"{path}.*({why})"):
        read(path)


def test_arrays_of_other_writers_are_read(tmp_path: Path) -> None:
    values = np.arange(6.0).reshape(2, 3)
    (tmp_path / "a.npy").write_bytes(npy('{"shape":(2,3),"fortran_order":False,"descr":"<f8"}', values.tobytes(), 2))
    np.save(tmp_path / "b.npy", np.asfortranarray(values.astype(">f4")))
    np.savez_compressed(tmp_path / "c.npz", values)
    for name in ("a.npy", "b.npy", "c.npz"):
        np.testing.assert_array_equal(read(tmp_path / name).X, values)


@pytest.mark.parametrize("method", [zipfile.ZIP_LZMA, zipfile.ZIP_BZIP2])
def test_npz_packed_as_numpy_does_not(tmp_path: Path, method: int) -> None:
    with zipfile.ZipFile(tmp_path / "x.npz", "w", method) as zipped:
        zipped.writestr("x.npy", npy(about("(2, 2)"), bytes(32)))
    with refused("a way that numpy does not write"):
        read(tmp_path / "x.npz")


def test_npz_with_a_member_that_is_no_array(tmp_path: Path) -> None:
    with zipfile.ZipFile(tmp_path / "x.npz", "w") as zipped:
        zipped.writestr("x", "hello")
    with refused("is no numpy file"):
        read(tmp_path / "x.npz")


def test_zips_of_a_version_yet_to_come(tmp_path: Path) -> None:
    np.savez(tmp_path / "x.npz", X=np.zeros((2, 2)))
    content = bytearray((tmp_path / "x.npz").read_bytes())
    content[content.index(b"PK\x01\x02") + 6] = 109  # the version that is needed to unpack it
    (tmp_path / "x.npz").write_bytes(content)
    (tmp_path / "x.zip").write_bytes(content)
    with refused("zip file version 10.9"):
        read(tmp_path / "x.npz")
    with refused("zip file version 10.9"):
        download._unpack(tmp_path / "x.zip")


def test_npz_of_many_arrays(tmp_path: Path) -> None:
    with zipfile.ZipFile(tmp_path / "x.npz", "w") as zipped:
        for i in range(500):
            zipped.writestr(f"{'m' * 5000}{i}.npy", b"")
    with refused("and 490 more; save one alone") as said:
        read(tmp_path / "x.npz")
    assert len(str(said.value)) < 2000


def test_npz_that_is_a_bomb(tmp_path: Path) -> None:
    with zipfile.ZipFile(tmp_path / "x.npz", "w", zipfile.ZIP_DEFLATED, compresslevel=1) as zipped:
        zipped.writestr("x.npy", npy(about("(18000, 1000)"), bytes(144_000_000)))
    with refused("would take 144,000,000 in memory, more than 200 times as much"):
        read(tmp_path / "x.npz")


# -- tables ---------------------------------------------------------------------------------------------------------


def test_csv_whose_short_rows_would_be_filled_up(tmp_path: Path) -> None:
    header = ",".join(f"c{i}" for i in range(20_000))
    (tmp_path / "x.csv").write_text(header + "\n" + "1\n" * 20_000)
    with refused("20,000 columns, but most of its 20,001 lines have fewer fields"):
        read(tmp_path / "x.csv")


@pytest.mark.parametrize(
    ("content", "why"),
    [
        ("x" * 200_000 + "\n1\n", "field larger than field limit"),
        ("a," * 65_536 + "a\n", "65,537 columns, more than 65,536"),
        ("\n\n", "is empty"),
        ("\n" * 10**7 + "a\n1\n", "its first 1,000 lines are"),
        ("a;b\n1;2\n", "seems to have ';' between its columns; save it with commas"),
        ("a\tb\n1\t2\n", r"seems to have '\\t' between"),
        ("a,a\n1,2\n", "several columns of the name 'a'"),
        (same_names(b"a", 60_000).decode(), "several columns of the name 'a'"),
    ],
)
def test_csv_whose_first_line_is_odd(tmp_path: Path, content: str, why: str) -> None:
    (tmp_path / "x.csv").write_text(content)
    with refused(why):
        read(tmp_path / "x.csv")


def test_parquet_that_is_a_bomb(tmp_path: Path) -> None:
    import pyarrow
    from pyarrow import parquet

    same = pyarrow.table({"a": np.zeros(1 << 20)})
    with parquet.ParquetWriter(tmp_path / "x.parquet", same.schema) as writer:
        for _ in range(32):
            writer.write_table(same)
    with refused("would take 268,435,456 in memory"):
        read(tmp_path / "x.parquet")


@pytest.mark.parametrize("which", [0, 1, 3])
def test_parquet_whose_counts_of_rows_differ(tmp_path: Path, which: int) -> None:
    """Of the table, of a column in a stretch of rows, which is the one that Arrow believes, and of the stretch."""
    (tmp_path / "x.parquet").write_bytes(lying_rows(10**6, 10, which))
    with refused("its counts of rows do not agree"):
        read(tmp_path / "x.parquet")


@pytest.mark.parametrize("kind", WIDE)
@pytest.mark.parametrize("label", [None, "a"])
def test_parquet_of_types_that_take_much_room(tmp_path: Path, kind: str, label: str | None) -> None:
    (tmp_path / "x.parquet").write_bytes(wide_values(kind, 100_000, 2000))
    with refused("columns that are not numbers: 'a'" if label is None else "in 'a'; numbers or texts are needed"):
        read(tmp_path / "x.parquet", label=label)


def test_parquet_whose_odd_columns_are_dropped_or_name_the_rows(tmp_path: Path) -> None:
    frame = pandas.DataFrame({"a": [1.0, 2.0], "b": [Decimal(1), Decimal(2)]}, index=["x", "y"])
    frame.to_parquet(tmp_path / "x.parquet")
    assert read(tmp_path / "x.parquet", drop=["b"]).X.tolist() == [[1.0], [2.0]]
    frame.set_index("b").to_parquet(tmp_path / "y.parquet")
    with refused("in 'b'; numbers or texts are needed"):
        read(tmp_path / "y.parquet")


def test_parquet_with_two_columns_of_one_name(tmp_path: Path) -> None:
    import pyarrow
    from pyarrow import parquet

    parquet.write_table(pyarrow.table([[1.0], [2.0]], ["a", "a"]), tmp_path / "x.parquet")
    with refused("several columns of the name 'a'"):
        read(tmp_path / "x.parquet")


def test_parquet_whose_statistics_are_of_another_schema(tmp_path: Path) -> None:
    """Where pyarrow is asked for the list of a column's contents, the process ends."""
    path = tmp_path / "x.parquet"
    pandas.DataFrame({"a": [1.0, 2.0], "c": [1.0, 2.0]}).to_parquet(path)
    optional, required = b"\x25\x02\x18\x01c", b"\x25\x00\x18\x01c"
    assert path.read_bytes().count(optional) == 1
    path.write_bytes(path.read_bytes().replace(optional, required))
    with refused("histogram size mismatch"):
        read(path)


def test_lack_of_memory_is_not_blamed_on_the_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*_: Any, **__: Any) -> None:
        raise MemoryError("no room")

    pandas.DataFrame({"a": [1.0, 2.0]}).to_parquet(tmp_path / "x.parquet")
    monkeypatch.setattr(tables, "_frame", fail)
    with pytest.raises(MemoryError, match="no room"):
        read(tmp_path / "x.parquet")


def test_a_table_in_another_encoding(tmp_path: Path) -> None:
    (tmp_path / "x.csv").write_bytes("größe,b\n1,2\n".encode("latin-1"))
    with refused("save it as UTF-8"):
        read(tmp_path / "x.csv")


def test_a_short_row_is_named(tmp_path: Path) -> None:
    (tmp_path / "x.csv").write_text("a,b\n1,2\n3\n5,6\n")
    with refused(r"missing values in 'b', or lines with too few fields, first in sample 1 \(counted from 0\)"):
        read(tmp_path / "x.csv")


def test_dates_are_no_numbers() -> None:
    dates = np.datetime64("2020-01-01") + np.arange(60).reshape(30, 2)
    for X, why in ((dates, "dates"), (dates - dates[0], "spans of time")):
        with refused(f"X has dtype .*; {why} must be made numbers first", kind=ValueError):
            TreeVAE(**TINY).fit(X)


def test_parquet_of_integers_of_80_bits(tmp_path: Path) -> None:
    import pyarrow
    from pyarrow import parquet

    path = tmp_path / "x.parquet"
    narrow, wide = (bytes(pyarrow.schema([("a", kind)]).serialize()) for kind in (pyarrow.int32(), pyarrow.int64()))
    place = next(i for i, (one, other) in enumerate(zip(narrow, wide, strict=True)) if (one, other) == (32, 64))
    lie = narrow[:place] + b"\x50" + narrow[place + 1 :]
    parquet.write_table(pyarrow.table({"a": pyarrow.array([1, 2], pyarrow.int32())}), path)
    content = path.read_bytes()
    assert content.count(base64.b64encode(narrow)) == 1  # Arrow's own note of the types
    path.write_bytes(content.replace(base64.b64encode(narrow), base64.b64encode(lie)))
    with refused("cannot be read as a table: Integers with more than 64 bits"):
        read(path)


def test_parquet_whose_notes_for_pandas_are_damaged(tmp_path: Path) -> None:
    import pyarrow
    from pyarrow import parquet

    path = tmp_path / "x.parquet"
    notes = {"index_columns": [{"kind": "range"}], "columns": [], "column_indexes": []}
    table = pyarrow.table({"a": [1.0, 2.0]}).replace_schema_metadata({"pandas": json.dumps(notes)})
    parquet.write_table(table, path)
    with refused("notes for pandas do not hold together"):
        read(path)


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


# -- archives -------------------------------------------------------------------------------------------------------


def tar_of(*members: tarfile.TarInfo) -> bytes:
    out = io.BytesIO()
    with tarfile.open(fileobj=out, mode="w:gz", format=tarfile.PAX_FORMAT) as archive:
        for member in members:
            archive.addfile(member, io.BytesIO(bytes(member.size)))
    return out.getvalue()


def member(name: str, **others: Any) -> tarfile.TarInfo:
    found = tarfile.TarInfo(name)
    for key, value in others.items():
        setattr(found, key, value)
    return found


def header_of(kind: bytes, megabytes: int) -> bytes:
    """A header that says how much follows, and 30 MB, packed to 30 kB."""
    return gzip.compress(member("a", type=kind, size=megabytes * MB).tobuf(tarfile.GNU_FORMAT) + bytes(30 * MB), 1)


ARCHIVES = {
    "link inside": (tar_of(member("a", type=tarfile.SYMTYPE, linkname="b")), "is a link"),
    "hard link to nothing": (tar_of(member("a", type=tarfile.LNKTYPE, linkname="b")), "is a link"),
    "device": (tar_of(member("a", type=tarfile.CHRTYPE)), "is a link, a device"),
    "large": (header_of(tarfile.REGTYPE, 600), "more than 536,870,912 bytes"),
    "sparse map of nonsense": (tar_of(member("a", pax_headers={"GNU.sparse.map": "0,x"})), "is no archive"),
    "notes without end": (noted(40, 10**6), "is no archive"),
    "size of nonsense": (tar_of(member("a", size=9, pax_headers={"GNU.sparse.size": "x"})), "is no archive|a link"),
    "long name": (header_of(tarfile.GNUTYPE_LONGNAME, 30), "a header of"),
    "long notes": (header_of(tarfile.XHDTYPE, 30), "a header of"),
    "no gzip": (b"a tar file it is not", "is no archive"),
}


@pytest.mark.parametrize("name", ARCHIVES)
def test_tar_files_that_lie(tmp_path: Path, name: str) -> None:
    content, why = ARCHIVES[name]
    (tmp_path / "a.tar.gz").write_bytes(content)
    with refused(rf"a\.tar\.gz .*({why})"):
        download._unpack(tmp_path / "a.tar.gz")
    assert not list((tmp_path / "unpacked").iterdir())


@pytest.mark.parametrize("lie", ["lzma", "encrypted", "nameless", "large", "many"])
def test_zip_files_that_lie(tmp_path: Path, lie: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(download, "MOST_MEMBERS", 5)
    monkeypatch.setattr(download, "LARGEST", MB)
    path = tmp_path / "a.zip"
    with zipfile.ZipFile(path, "w", zipfile.ZIP_LZMA if lie == "lzma" else zipfile.ZIP_DEFLATED) as zipped:
        for i in range(6 if lie == "many" else 2):
            zipped.writestr(f"part/{i}", bytes(MB if lie == "large" else 10))
    if lie == "encrypted":
        content = path.read_bytes()
        place = content.index(b"PK\x01\x02") + 8
        path.write_bytes(content[:place] + b"\x01\x00" + content[place + 2 :])
    if lie == "nameless":
        path.write_bytes(path.read_bytes().replace(b"part/0", b"\0art/0"))
    with refused("packed in an odd way" if lie in ("lzma", "encrypted", "nameless") else "no published archive does"):
        download._unpack(path)
    assert not list((tmp_path / "unpacked").iterdir())


# -- models and states ------------------------------------------------------------------------------------------------

CHANCE = np.random.default_rng(0)
TINY = {
    "n_leaves": 2,
    "n_init": 2,
    "max_depth": 2,
    "latent_dim": 2,
    "hidden_dim": 4,
    "epochs": 1,
    "device": "cpu",
    "random_state": 0,
}
X = CHANCE.normal(size=(60, 5))


@pytest.fixture(scope="module")
def saved(tmp_path_factory: pytest.TempPathFactory) -> tuple[dict, dict]:
    """What a model's file says, and its tensors."""
    path = tmp_path_factory.mktemp("saved") / "model.safetensors"
    TreeVAE(**TINY, tree=balanced(2)).fit(pandas.DataFrame(X, columns=list("abcde"))).save(path)
    return checkpoint.read(path)


def set_in(path: str, value: Any) -> Callable[[dict, dict], None]:
    *above, last = path.split(".")

    def change(about: dict, tensors: dict) -> None:
        inside: Any = about
        for key in above:
            inside = inside[int(key) if key.isdigit() else key]
        inside[last] = value

    return change


def chain(n: int) -> str:
    return Tree({i: (i + 1,) for i in range(n)}).to_json()


def fill_first(about: dict, tensors: dict, value: float, of: str = "") -> None:
    name = next(name for name in tensors if name.startswith("module.") and name.endswith(of))
    tensors[name] = torch.full_like(tensors[name], value)


LIES: dict[str, Callable[[dict, dict], None]] = {
    "a latent of a thousand million": set_in("architecture.latent_dims", [10**9] * 3),
    "a thousand million layers": set_in("architecture.transformation_layers", 10**9),
    "ten thousand levels": lambda about, _: about["architecture"].update(
        latent_dims=[2] * 10**4, hidden_dims=[4] * 9999
    ),
    "a network of that name": set_in("architecture.network", "transformer"),
    "sizes that are no numbers": set_in("architecture.hidden_dims", ["4", "4"]),
    "an image for vectors": set_in("form", {"layout": "hwc", "shape": [5, 1, 1], "from_bytes": False}),
    "more features than weights": set_in("form.shape", [10**9]),
    "a layout of that name": set_in("form.layout", "spiral"),
    "a tree taller than its levels": set_in("tree", chain(5)),
    "a tree of 10,001 levels": set_in("tree", chain(10**4)),
    "a tree nested in lists": set_in("tree", '{"children": ' + "[" * 10**5),
    "a scale of zero": set_in("scale", 0.0),
    "a scale that is no number": set_in("scale", float("nan")),
    "a shift of another length": lambda _, tensors: tensors.update(shift=torch.zeros(3, dtype=torch.float64)),
    "names of other features": set_in("feature_names", ["a", "b"]),
    "names that are numbers": set_in("feature_names", [1, 2, 3, 4, 5]),
    "names in one text": set_in("feature_names", "abcde"),
    "labels of leaves that are not there": lambda _, tensors: tensors.update(labels=tensors["labels"] + 100),
    "labels that are no numbers": lambda _, tensors: tensors.update(labels=tensors["labels"].float()),
    "a history of other things": set_in("history", [{"event": "EpochEnded"}]),
    "a history that is no list": set_in("history", {"event": "EpochEnded"}),
    "an entry of that name": set_in("more", 1),
    "weights that are no numbers": lambda about, tensors: fill_first(about, tensors, float("nan")),
    "variances below zero": lambda about, tensors: fill_first(about, tensors, -1.0, "running_var"),
    "infinite weights": lambda about, tensors: fill_first(about, tensors, float("inf")),
}


@pytest.mark.parametrize("lie", LIES)
def test_models_that_lie(saved: tuple[dict, dict], tmp_path: Path, lie: str) -> None:
    about, tensors = json.loads(json.dumps(saved[0])), dict(saved[1])
    LIES[lie](about, tensors)
    checkpoint.write(tmp_path / "m", about, tensors)
    with refused("does not hold together", kind=ModelFileError):
        load_model(tmp_path / "m", device="cpu")


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ('{"format": 1, "a": ' + "[" * 10**5, "recursion"),
        ('{"format": 1, "a": ' + "9" * 5000 + "}", "digits"),
        ('{"format": 1, "format": 1}', "a name stands twice"),
        ('{"format": true}', "does not say which format"),
    ],
)
def test_json_that_lies(tmp_path: Path, text: str, why: str) -> None:
    tensors = {"a": torch.zeros(1)}
    for name in STATES:
        (tmp_path / name).write_bytes(save(tensors, {"treevae": text, "crc32": checkpoint._checksum(text, tensors)}))
    with refused(why, kind=ModelFileError):
        load_model(tmp_path / STATES[0])
    with refused(why, kind=ModelFileError):
        StateFolder(tmp_path).load()


def test_weights_are_as_large_as_their_shapes_say() -> None:
    """The shapes that a file is compared with are those of the module, for every network."""
    for network, shape in (("mlp", (5,)), ("cnn", (1, 8, 8)), ("deep_cnn", (1, 28, 28)), ("resnet", (3, 8, 8))):
        arch = Architecture(shape, network, "gaussian_learnt", (2,) * 3, (4,) * 2, n_projections=2)
        module = TreeVAEModule(arch, [balanced(3)], torch.Generator())
        assert weight_shapes(arch, balanced(3)) == {name: value.shape for name, value in module.state_dict().items()}


STATE_LIES: dict[str, Callable[[dict, dict], None]] = {
    "no name of its run": lambda about, _: about.pop("identity"),
    "seeds that are none": set_in("seeds", "abc"),
    "an epoch that never ends": set_in("grove.training.epoch", [10**9]),
    "a step beyond the epoch": set_in("grove.training.step", [10**9]),
    "a phase without a task": set_in("grove.tasks", []),
    "histories of other runs": set_in("histories", [[], []]),
    "a tree of many leaves": set_in("grove.runs.0.trees", [chain(50)]),
}


@pytest.mark.parametrize("lie", STATE_LIES)
def test_states_that_lie(tmp_path: Path, lie: str, monkeypatch: pytest.MonkeyPatch) -> None:
    bits = (X > 0).astype(np.float32)
    with monkeypatch.context() as patched:
        patched.setattr(loop, "PAUSE", 0)
        moments = iter((True, True))
        patched.setattr(StateFolder, "due", lambda self: next(moments))  # a sudden end at the third pause
        with pytest.raises(StopIteration):
            TreeVAE(**TINY).fit(bits, checkpoint=tmp_path)
    with StateFolder(tmp_path) as folder:
        found = folder.load()
        about = json.loads(json.dumps(found.about))
        STATE_LIES[lie](about, found.tensors)
        for _ in STATES:
            folder.save(about, found.tensors)
    with refused("does not (hold together|say which run)", kind=ModelFileError):
        TreeVAE(**TINY).fit(bits, checkpoint=tmp_path)


@pytest.mark.parametrize(
    "rows", [torch.empty(0, dtype=torch.long), torch.tensor([-1]), torch.tensor([9]), torch.ones(2)]
)
def test_rows_of_a_state_are_numbers_of_samples(rows: torch.Tensor) -> None:
    with pytest.raises(ValueError, match="rows are not numbers of some of 9 samples"):
        _checked_rows(rows, 9)


# -- records and runs -----------------------------------------------------------------------------------------------

CELL = METHODS["treevae"].cell("mnist", {}, 1.0, 0)


@pytest.mark.parametrize(
    "change",
    [
        {"scores_percent": {"ACC": "high"}},
        {"scores_percent": {"ACC": {"mean": 1}}},
        {"scores_percent": [1, 2]},
        {"scores_percent": {"ACC": 10**400}},
        {"elbo": {"ELBO": -(10**301)}},
        {"elbo": {"ELBO": float("nan")}},
        {"elbo": {"ELBO": [1]}},
        {"likelihood": {"ll_paper": {"mean": "x"}}},
        {"leaf_attributes_percent": {"a": "bc"}},
        {"note": {"a": 1}},
        {"source": ["a"]},
        {"device": {}},
    ],
)
def test_records_that_lie(tmp_path: Path, change: dict[str, Any]) -> None:
    record = json.loads((ROOT / "results" / "records" / f"{CELL.name}.json").read_text()) | change
    (tmp_path / "records").mkdir()
    (tmp_path / "records" / f"{CELL.name}.json").write_text(json.dumps(record))
    with refused("is damaged: its", kind=DamagedRecordError):
        Store(tmp_path).read(CELL)
    shown = [one for line in showing.lines(TABLES["clustering"], Store(tmp_path), 1.0) for one in line.figures]
    assert any(one.ours == showing.DAMAGED and "is damaged: its" in one.notes[0] for one in shown)


@pytest.mark.parametrize(
    "change",
    [
        *(
            {"cells": [asdict(CELL) | lie]}
            for lie in (
                {"data": -1},
                {"data": "moon"},
                {"settings": [1]},
                {"scale": -1},
                {"scale": "1"},
                {"seed": [1]},
                {"seed": 10**250},
                {"settings": {"n_init": 10**250}},
                {"method": None},
                {"more": 1},
            )
        ),
        {"cells": 3},
        {"cells": ["fashion"]},
        {"replaces": ["a"]},
        {"replaces": {CELL.name: 1}},
        {"replaces": {"another": "0123abcd"}},
        {"more": 1},
    ],
    ids=str,
)
def test_jobs_that_lie(tmp_path: Path, change: dict[str, Any]) -> None:
    (tmp_path / "running" / "job").mkdir(parents=True)
    (tmp_path / "running" / "job" / "state").touch()
    (tmp_path / "running" / "job" / "job.json").write_text(
        json.dumps({"cells": [asdict(CELL)], "replaces": {}} | change)
    )
    with refused("job.json cannot be read", kind=DamagedRecordError):
        Store(tmp_path).started()


def test_a_job_without_cells(tmp_path: Path) -> None:
    (tmp_path / "running" / "job").mkdir(parents=True)
    (tmp_path / "running" / "job" / "state").touch()
    (tmp_path / "running" / "job" / "job.json").write_text('{"cells": [], "replaces": {}}')
    with refused("it names no cell", kind=DamagedRecordError):
        Store(tmp_path).started()


@pytest.mark.parametrize("text", ["[" * 10**5, "9" * 5000, '{"data": "\\ud800"', "[]"])
def test_json_that_is_none(tmp_path: Path, text: str) -> None:
    (tmp_path / "records").mkdir()
    (tmp_path / "records" / f"{CELL.name}.json").write_text(text)
    with refused("is damaged", kind=DamagedRecordError):
        Store(tmp_path).read(CELL)
    (tmp_path / "run.json").write_text(text)
    with refused(r"run\.json cannot be read", kind=ValueError):
        Run(tmp_path).to_resume()


@pytest.mark.parametrize(
    "change",
    [{"data": 1}, {"found_at": ["a"]}, {"drop": 3}, {"drop": [1]}, {"options": "x"}, {"options": {"n_leafs": 3}}],
)
def test_settings_of_a_run_that_lie(tmp_path: Path, change: dict[str, Any]) -> None:
    settings = {"data": "x.npy", "found_at": "x.npy", "drop": [], "options": {}} | change
    (tmp_path / "run.json").write_text(json.dumps(settings))
    with refused(r"run\.json cannot be read", kind=ValueError):
        Run(tmp_path).to_resume()


def test_samples_under_a_name_that_no_file_can_have(tmp_path: Path) -> None:
    with refused("there is no file or folder yyy"):
        read("y" * 5000)
    settings = Settings("nowhere.npy", "y" * 5000, (), {})
    with refused("there is no file or folder nowhere.npy"):
        cli_fit._fit_in(Run(tmp_path), settings, 30.0, start=False)


@pytest.mark.parametrize(("name", "value"), [("max_depth", 10**9), ("device", 1.5), ("device", ["cpu"])])
def test_parameters_that_once_hung_or_crashed(name: str, value: Any) -> None:
    with refused(f"{name}=", kind=ValueError):
        TreeVAE(**TINY | {name: value}).fit(X)
