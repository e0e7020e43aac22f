"""Reads tables of numbers, .csv and .parquet."""

from __future__ import annotations

import csv
import warnings
from collections import Counter
from collections.abc import Container, Sequence
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np

from ..errors import DataFileError
from .refusal import INSTALL, SMALL, check_bomb, quoted
from .samples import Table, checked_labels, checked_samples

TABLES = (".csv", ".parquet")
UNNAMED = "Unnamed: 0"  # what pandas calls a first column without a name: often an index saved along
MOST_COLUMNS = 1 << 16  # of a csv table: pandas takes 3 s for one line of so many texts
MOST_EMPTY = 1000  # lines at the beginning of a csv table
PIECE = 1 << 16  # rows of a parquet table that are read at a time
NOTES = "its notes for pandas do not hold together"


def read_table(
    path: Path, drop: Sequence[str], label: str | None, drop_if_there: Sequence[str], gaps: bool = False
) -> Table:
    """The numbers, the column names and the labels of a csv or parquet file."""
    try:
        if path.suffix.lower() == ".parquet":
            frame = _read_parquet(path, drop, label, drop_if_there)
        else:
            frame = _read_csv(path)
            _check_named(list(map(str, frame.columns)), drop, label, path)
    except ImportError as error:
        raise DataFileError(f"{path} needs pandas, and for parquet pyarrow. {INSTALL}") from error
    except DataFileError:
        raise
    except (ValueError, OSError, NotImplementedError) as error:  # pandas' and pyarrow's own errors are kinds of these
        is_csv = path.suffix.lower() == ".csv"
        way_out = "; save it as UTF-8" if is_csv and isinstance(error, UnicodeDecodeError) else ""
        raise DataFileError(f"{path} cannot be read as a table: {error}{way_out}") from error

    if not len(frame) and len(frame.columns):
        raise DataFileError(f"{path} has columns, but no rows; a table has a row for each sample")
    named = all(isinstance(name, str) for name in frame.columns)
    frame.columns = [str(name) for name in frame.columns]
    y = None if label is None else checked_labels(_values(frame[label]), label, len(frame), path, gaps)
    left_out = {*drop, *drop_if_there, label} & set(frame.columns)
    frame = frame.drop(columns=list(left_out)) if left_out else frame
    if UNNAMED in frame.columns and np.array_equal(frame[UNNAMED], np.arange(len(frame))):
        raise DataFileError(
            f"the first column of {path} has no name and only counts the rows; leave it out with --drop {UNNAMED!r}"
        )
    numbers = {dtype for dtype in set(frame.dtypes) if _is_number(dtype)}
    _refuse_texts([name for name, dtype in zip(frame.columns, frame.dtypes, strict=True) if dtype not in numbers], path)
    X = frame.to_numpy(dtype=np.float64, na_value=np.nan)
    if with_gaps := list(frame.columns[np.isnan(X).any(axis=0)]):
        first = np.isnan(X).any(axis=1).argmax()
        raise DataFileError(
            f"{path} has missing values in {quoted(with_gaps)}, or lines with too few fields, first in sample {first} "
            "(counted from 0); fill them, or drop the rows or columns"
        )
    return Table(checked_samples(X, path), tuple(frame.columns) if named else None, labels=y)


def table_names(path: Path) -> list[str]:
    """The names of the columns."""
    if path.suffix.lower() == ".csv":
        return _first_row(path)
    from pyarrow.parquet import ParquetFile

    with ParquetFile(path) as file:
        return list(file.schema_arrow.names)


def _check_named(names: Sequence[str], drop: Sequence[str], label: str | None, path: Path) -> None:
    """Raise if the columns that were asked for are not there."""
    if label is not None and label not in names:
        raise DataFileError(f"{path} has no {label!r} for labels; it has {quoted(names)}")
    if unknown := [name for name in drop if name not in names]:
        raise DataFileError(f"{path} has no column {quoted(unknown)} to drop; it has {quoted(names)}")


def _refuse_texts(names: Sequence[str], path: Path) -> None:
    """Raise if there are columns that are no numbers."""
    if names:
        raise DataFileError(
            f"{path} has columns that are not numbers: {quoted(names)}; encode them as numbers, or leave them out "
            "with " + " ".join(f"--drop {name!r}" for name in names[:3]) + (" …" if len(names) > 3 else "")
        )


def _check_distinct(names: Sequence[str], path: Path) -> None:
    """Raise if two columns have one name: pandas renames them, which takes long where they are many."""
    if twice := [name for name, n in Counter(names).items() if n > 1 and name]:
        raise DataFileError(f"{path} has several columns of the name {quoted(twice)}; give each a name of its own")


def _values(column: Any) -> np.ndarray:
    """The values of a pandas column; a text that stands in many rows stays one, unlike with pandas."""
    if column.dtype != "category" or _is_number(column.cat.categories.dtype):
        return column.to_numpy()
    texts = np.array([*column.cat.categories, None], object)  # None, the last, is where the code is -1: missing
    return texts[column.cat.codes.to_numpy()]


def _is_number(dtype: Any) -> bool:
    from pandas.api.types import is_complex_dtype, is_numeric_dtype

    return is_numeric_dtype(dtype) and not is_complex_dtype(dtype)


def _read_parquet(path: Path, drop: Sequence[str], label: str | None, drop_if_there: Sequence[str]) -> Any:
    """A pandas frame without what is to be dropped, if the file's own list of contents is not that of a bomb."""
    from pyarrow.parquet import ParquetFile
    from pyarrow.types import is_nested

    with ParquetFile(path) as file:
        schema = file.schema_arrow
        if nested := [column.name for column in schema if is_nested(column.type)]:
            raise DataFileError(f"{path} has a column {nested[0]!r} of lists or records; give every number a column")
        _check_rows(file.metadata, path)
    index = _index_columns(schema)
    _check_named([name for name in schema.names if name not in index], drop, label, path)
    _check_distinct(schema.names, path)
    wanted = [column for column in schema if column.name not in {*drop, *drop_if_there} - {label}]
    texts = _check_types(wanted, {label, *index}, path)
    try:
        return _frame(path, [column.name for column in wanted], texts)
    except (ImportError, ValueError, OSError, MemoryError):
        raise
    except Exception as error:  # pandas trusts the notes that it left in such files, and stumbles over others
        raise ValueError(f"{NOTES} ({type(error).__name__}: {error})") from error


def _check_rows(about: Any, path: Path) -> None:
    """Raise if a file's list of contents contradicts itself, or is that of a bomb."""
    groups = [about.row_group(i) for i in range(about.num_row_groups)]
    if sum(group.num_rows for group in groups) != about.num_rows:
        raise DataFileError(f"{path} is damaged: its counts of rows do not agree; write it again")
    check_bomb(max(8 * about.num_rows * about.num_columns, sum(group.total_byte_size for group in groups)), path)


def _frame(path: Path, columns: list[str], texts: list[str]) -> Any:
    """The columns as a pandas frame, if they are as long as the file says; a text of many rows is kept once.

    They are read piece by piece, since Arrow believes a count of each column's own, which cannot be asked for: where
    the notes around it are damaged, asking ends the process.
    """
    from pyarrow import Table as ArrowTable
    from pyarrow.parquet import ParquetFile

    pieces = []
    with ParquetFile(path, read_dictionary=texts) as file:
        left = file.metadata.num_rows
        for piece in file.iter_batches(PIECE, columns=columns, use_pandas_metadata=True):
            left -= piece.num_rows
            if left < 0:
                break
            pieces.append(piece)
        if left:
            raise DataFileError(f"{path} is damaged: its counts of rows do not agree; write it again")
        schema = pieces[0].schema if pieces else file.schema_arrow
    return ArrowTable.from_batches(pieces, schema).to_pandas()


def _index_columns(schema: Any) -> set[str]:
    """The columns that pandas noted as names of the rows; they are no features."""
    try:
        return {
            name for name in (schema.pandas_metadata or {"index_columns": ()})["index_columns"] if type(name) is str
        }
    except MemoryError:
        raise
    except Exception as error:
        raise ValueError(f"{NOTES} ({type(error).__name__}: {error})") from error


def _check_types(columns: Sequence[Any], others: Container[str | None], path: Path) -> list[str]:
    """The columns of texts, which only labels and names of rows may be; raise for what would become Python objects."""
    from pyarrow import types

    def is_one(kind: Any, *tests: str) -> bool:
        kind = kind.value_type if types.is_dictionary(kind) else kind
        return any(getattr(types, f"is_{test}")(kind) for test in tests if hasattr(types, f"is_{test}"))

    numbers = "integer", "floating", "boolean"
    letters = "string", "large_string", "string_view", "binary", "large_binary", "binary_view"  # views since pyarrow 16
    no_numbers = [column for column in columns if types.is_dictionary(column.type) or not is_one(column.type, *numbers)]
    _refuse_texts([column.name for column in no_numbers if column.name not in others], path)
    texts = [c.name for c in no_numbers if is_one(c.type, *letters)]
    for column in no_numbers:
        if column.name not in texts and not is_one(column.type, *numbers, "timestamp"):
            raise DataFileError(f"{path} has {column.type} in {column.name!r}; numbers or texts are needed")
    return texts


def _read_csv(path: Path) -> Any:
    """A pandas frame; a file that starts with numbers has no header, and its columns no names."""
    import pandas

    first = _first_row(path)
    _check_short_rows(path, len(first))
    if all(map(_reads_as_number, first)):
        counted = first == [str(i) for i in range(len(first))]  # how pandas writes columns without names
        return pandas.read_csv(path, header=None, skiprows=1 if counted else 0)
    _check_distinct(first, path)
    with warnings.catch_warnings():
        warnings.simplefilter("error", pandas.errors.ParserWarning)
        try:
            return pandas.read_csv(path, index_col=False)  # else rows too long would lose their first field
        except pandas.errors.ParserWarning as error:
            raise DataFileError(f"{path} has rows with more fields than its first line; name every column") from error


def _first_row(path: Path) -> list[str]:
    """The fields of the first line that is not empty."""
    with path.open(encoding="utf-8-sig", newline="") as file:
        try:
            fields = next((row for row in islice(csv.reader(file), MOST_EMPTY) if row), None)
        except csv.Error as error:
            raise DataFileError(f"{path} cannot be read as a table: {error}") from error
    if not fields:
        raise DataFileError(
            f"{path} is empty, or its first {MOST_EMPTY:,} lines are; a table has a line for each sample"
        )
    if len(fields) == 1 and (sign := next((sign for sign in (";", "\t") if sign in fields[0]), None)):
        raise DataFileError(
            f"{path} seems to have {sign!r} between its columns; save it with commas, or rename its one column"
        )
    if len(fields) > MOST_COLUMNS:
        raise DataFileError(
            f"{path} has {len(fields):,} columns, more than {MOST_COLUMNS:,}; save it with np.save instead"
        )
    return fields


def _check_short_rows(path: Path, n_columns: int) -> None:
    """Raise where most rows of a large table are shorter than its first: pandas would fill them up, to any size."""
    size = path.stat().st_size
    if 8 * n_columns * size < SMALL:  # a row has a byte at least, a cell takes 8
        return
    n_rows, after_end = 0, True
    with path.open("rb") as file:
        while (block := np.frombuffer(file.read(1 << 20), np.uint8)).size:
            ends = (block == ord("\n")) | (block == ord("\r"))  # lines end as pandas has it: \n, \r or both
            n_rows += int(np.count_nonzero(~ends & np.r_[after_end, ends[:-1]]))
            after_end = ends[-1]
    if n_rows * (n_columns - 1) > size:  # not even a comma for each
        raise DataFileError(f"{path} has {n_columns:,} columns, but most of its {n_rows:,} lines have fewer fields")


def _reads_as_number(cell: str) -> bool:
    try:
        float(cell)
    except ValueError:
        return False
    return True
