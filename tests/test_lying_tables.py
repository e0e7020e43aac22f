"""Tables that lie: csv and parquet files."""

import base64
import json
from decimal import Decimal
from pathlib import Path
from typing import Any

import numpy as np
import pandas
import pytest
from fuzz.attacks import WIDE, long_label, lying_rows, same_names, same_text, short_rows, wide_values
from lies import TINY, refused

from treevae import TreeVAE
from treevae.data import tables
from treevae.data.files import read

# -- idx ----------------------------------------------------------------------------------------------------------


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
