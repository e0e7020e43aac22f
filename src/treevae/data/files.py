"""Reads what a user points at, a file of numbers or a folder of pictures, into one array. Nothing is unpickled."""

from __future__ import annotations

import ast
import csv
import os
import warnings
import zlib
from collections import Counter
from collections.abc import Container, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from io import BytesIO
from itertools import islice
from math import prod
from pathlib import Path
from typing import IO, Any
from zipfile import ZIP_DEFLATED, ZIP_STORED, BadZipFile, ZipFile

import numpy as np

ARRAYS = (".npy", ".npz")
TABLES = (".csv", ".parquet")
PICTURES = (".png", ".jpg", ".jpeg", ".bmp")
KEYS = ("X", "x", "x_train")  # of the samples in an npz with several arrays; the first that is there is taken
UNNAMED = "Unnamed: 0"  # what pandas calls a first column without a name: often an index saved along
NUMBERS, TEXTS = "fiub", "U"  # numpy's kinds of types: floats, integers, truth values; letters
LONGEST_HEADER = 1000  # characters; numpy writes 118 before an array of numbers
SMALL, MOST_TIMES = 1 << 27, 200  # bytes in memory, and times the file's own, that a packed file may become
MOST_COLUMNS = 1 << 16  # of a csv table: pandas takes 3 s for one line of so many texts
LONGEST_NAME = 100  # letters of a column's or an array's name that a message shows
PIECE = 1 << 16  # rows of a parquet table that are read at a time
MOST_EMPTY = 1000  # lines at the beginning of a csv table
LARGEST_PICTURE, LONGEST_SIDE = 1 << 24, 1 << 16  # pixels
LARGEST_FILE = 1 << 28  # bytes of a picture's file
LARGEST_FOLDER = (
    1 << 35
)  # bytes in memory that the pictures of a folder may take; all of CelebA in full size takes 24e9
FORMATS = ("PNG", "JPEG", "BMP")  # of Pillow, which would also start other programs for some of its others
MOST_SCANS = 100  # of a JPEG; a progressive one has about ten
MOST_SCANNED = 1 << 29  # pixels of all scans: 32 scans of the largest picture
READS = "Read are .npy, .npz, .csv, .parquet, and folders of " + ", ".join(PICTURES)
NOTES = "its notes for pandas do not hold together"
INSTALL = "Install what reads it: pip install 'treevae[files]'"


class DataFileError(ValueError):
    """A file or folder does not hold samples that can be read."""


@dataclass(frozen=True)
class Table:
    """Samples as they were read."""

    X: np.ndarray  # (n, features), or images as (n, h, w) or (n, h, w, 3)
    feature_names: tuple[str, ...] | None = None  # of csv and parquet
    sample_names: tuple[str, ...] | None = None  # of pictures: their paths below the folder
    labels: np.ndarray | None = None  # (n,) whole numbers or texts, where a label was asked for

    @property
    def frame(self) -> Any:
        """A pandas frame where the features have names, else X: what ``fit`` takes to remember the names."""
        if self.feature_names is None:
            return self.X
        import pandas

        return pandas.DataFrame(self.X, columns=list(self.feature_names))


def read(
    path: str | os.PathLike[str],
    drop: Sequence[str] = (),
    label: str | None = None,
    drop_if_there: Sequence[str] = (),
) -> Table:
    """The samples in a file or a folder.

    Parameters
    ----------
    path
        A ``.npy`` file; a ``.npz`` file with one array, or with one called X, x or x_train; a ``.csv`` or ``.parquet``
        table of numbers; or a folder with pictures of one size (png, jpg, jpeg, bmp), read in the order of their
        paths, subfolders included, without transparency.
    drop
        Columns to leave out of a table.
    label
        What holds the samples' classes: a column of a table, which is left out of X, or an array of a .npz file.
    drop_if_there
        Columns to leave out of a table that has them.

    Raises
    ------
    DataFileError
        There is nothing there, or it cannot be read as samples. The message says what to do.
    """
    path = Path(path)
    kind = path.suffix.lower()
    if not os.path.exists(path):  # unlike Path.exists, it also says so of names that are too long to be any
        raise DataFileError(f"there is no file or folder {path}")
    if not path.is_file() and not path.is_dir():  # a pipe would be waited for without end
        raise DataFileError(f"{path} is neither a file nor a folder, but a pipe or a device; write it to a file first")
    if drop and (path.is_dir() or kind not in TABLES):
        raise DataFileError(f"{path} has no named columns, so {', '.join(drop)} cannot be dropped; only tables have")
    if label is not None and (path.is_dir() or kind not in (*TABLES, ".npz")):
        raise DataFileError(f"{path} has no {label!r} for labels; only tables and .npz files can have labels in them")
    if path.is_dir():
        return _read_folder(path)
    if kind in ARRAYS:
        y = None if label is None else _read_array(path, label)
        X = _checked(_read_array(path), path)
        return Table(X, labels=None if y is None else _labels(y, str(label), len(X), path))
    if kind in TABLES:
        return _read_table(path, drop, label, drop_if_there)
    raise DataFileError(f"{path} has the ending {kind!r}. {READS}")


def _labels(values: np.ndarray, label: str, n: int, path: Path) -> np.ndarray:
    """The classes of n samples, (n,): whole numbers, or texts. Gaps would become a class of their own."""
    if values.shape != (n,):
        raise DataFileError(f"{label!r} in {path} has shape {values.shape}; labels of {n} samples must be ({n},)")
    if values.dtype.kind in "iub":
        return values
    try:
        texts = [None if is_missing(value) else str(value) for value in values.tolist()]
        for text in set(texts):
            (text or "").encode()
    except (ValueError, SystemError) as error:  # numbers that stand for no letter
        raise DataFileError(f"{label!r} in {path} is damaged: {error}; write it again") from error
    if gaps := [i for i, text in enumerate(texts) if text is None]:
        raise DataFileError(
            f"{label!r} in {path} is missing for {len(gaps)} of {n} samples, first for sample {gaps[0]}; fill the "
            "gaps, or remove those samples"
        )
    check_bomb(
        4 * len(texts) * max((len(text) for text in texts if text), default=0), path
    )  # numpy gives every text the longest one's room
    return np.array(texts)


def is_missing(value: Any) -> bool:
    """Whether a label is None, NaN, or what pandas has for them: all that is not surely equal to itself."""
    return value is None or str(value == value) != "True"


def _checked(X: np.ndarray, path: Path) -> np.ndarray:
    """X, if it is an array of finite numbers with at least one sample."""
    if X.ndim < 2 or X.size == 0:
        raise DataFileError(f"{path} holds an array of shape {X.shape}; needed are (n, features), or images (n, h, w)")
    if X.dtype.kind == "f":
        bad = ~np.isfinite(X).reshape(len(X), -1).all(axis=1)
        if bad.any():
            raise DataFileError(
                f"{path} holds NaN or infinity in {bad.sum()} of {len(X)} samples, first in sample {bad.argmax()}; "
                "remove those samples or fill the gaps"
            )
    return X


# -- arrays -----------------------------------------------------------------------------------------------------


def _read_array(path: Path, label: str | None = None) -> np.ndarray:
    """The array of a .npy file, or the one of a .npz file that holds the samples or, if it is named, the labels."""
    try:
        if path.suffix.lower() == ".npy":
            with path.open("rb") as file:
                return _array(file, path.stat().st_size, path)
        with ZipFile(path) as zipped:
            key = _key([name.removesuffix(".npy") for name in zipped.namelist()], path, label)
            member = zipped.getinfo(key if key in zipped.namelist() else f"{key}.npy")
            if member.compress_type not in (ZIP_STORED, ZIP_DEFLATED) or member.flag_bits & 0x1:  # encrypted
                raise DataFileError(f"{path} is packed in a way that numpy does not write; write it with np.savez")
            with zipped.open(member) as file:
                return _array(file, member.file_size, path, NUMBERS if label is None else NUMBERS + TEXTS)
    except DataFileError:
        raise
    except (ValueError, EOFError, OSError, BadZipFile, NotImplementedError, zlib.error) as error:
        raise DataFileError(f"{path} is cut short or damaged: {error}; write it again") from error


def _array(file: IO[bytes], size: int, path: Path, kinds: str = NUMBERS) -> np.ndarray:
    """An array in numpy's format out of so many bytes; what they cannot hold is refused before there is room for it."""
    shape, dtype, columns_first = _header(file, path)
    if dtype.hasobject:
        raise DataFileError(f"{path} holds pickled Python objects; save plain numbers with np.save")
    if dtype.kind not in kinds or not dtype.itemsize:
        wanted = "numbers" if kinds == NUMBERS else "numbers or texts"
        raise DataFileError(f"{path} holds an array of dtype {dtype}; {wanted} are needed")
    n_bytes = prod(shape) * dtype.itemsize
    if n_bytes > size:
        raise DataFileError(
            f"{path} is cut short or damaged: an array of shape {shape} takes {n_bytes:,} bytes; write it again"
        )
    check_bomb(n_bytes, path)
    content = np.empty(n_bytes, np.uint8)
    if (found := fill(content, file)) < n_bytes:
        raise DataFileError(f"{path} is cut short: it holds {found:,} of {n_bytes:,} bytes; write it again")
    return content.view(dtype).reshape(shape, order="F" if columns_first else "C")


def _header(file: IO[bytes], path: Path) -> tuple[tuple[int, ...], np.dtype, bool]:
    """Shape, type and order of an array in numpy's format.

    numpy's own reader gives the header to Python's parser, whatever it holds; here it must be short and flat first.
    """
    start = file.read(8)
    if start[:6] != b"\x93NUMPY":
        raise DataFileError(f"{path} is no numpy file; save plain numbers with np.save")
    length = int.from_bytes(file.read(2 if start[6:7] == b"\x01" else 4), "little")
    text = file.read(min(length, LONGEST_HEADER)).decode("latin-1")
    if length > LONGEST_HEADER or sum(map(text.count, "([{")) > 9 or "-" in text:
        raise DataFileError(f"{path} holds no plain array of numbers, or is damaged; save one with np.save")
    try:
        found = ast.literal_eval(text.strip())
        shape, descr, columns_first = found["shape"], found["descr"], found["fortran_order"]
        if not (isinstance(descr, str) and type(columns_first) is bool and all(type(side) is int for side in shape)):
            raise ValueError("a header that describes no array of numbers")
        return tuple(shape), np.dtype(descr), columns_first
    except (ValueError, TypeError, KeyError, SyntaxError) as error:
        raise DataFileError(f"{path} is cut short or damaged: {error}; write it again") from error


def fill(values: np.ndarray, file: IO[bytes]) -> int:
    """Read bytes into an array until it is full or the file ends; how many they were."""
    done, room = 0, values.data
    while done < len(values) and (got := file.readinto(room[done:])):  # type: ignore[attr-defined]
        done += got
    return done


def check_bomb(n_bytes: int, path: Path) -> None:
    """Raise if a file would become many times larger in memory, as only made-up files do."""
    size = path.stat().st_size
    if n_bytes > SMALL and n_bytes > MOST_TIMES * size:
        raise DataFileError(
            f"{path} has {size:,} bytes, but would take {n_bytes:,} in memory, more than {MOST_TIMES} times as much; "
            "if that is meant, write it unpacked, as np.save does"
        )


def _key(keys: list[str], path: Path, label: str | None) -> str:
    """The name of the samples' array, or that of the labels'."""
    if label is not None:
        if label not in keys:
            raise DataFileError(f"{path} has no {label!r} for labels; it has {_quoted(keys)}")
        return label
    if len(keys) == 1:
        return keys[0]
    for key in KEYS:
        if key in keys:
            return key
    raise DataFileError(
        f"{path} holds the arrays {_quoted(keys) or 'none'}; save one alone, or call it {', '.join(KEYS[:-1])} or "
        f"{KEYS[-1]}"
    )


# -- tables -----------------------------------------------------------------------------------------------------


def _read_table(path: Path, drop: Sequence[str], label: str | None, drop_if_there: Sequence[str]) -> Table:
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

    named = all(isinstance(name, str) for name in frame.columns)
    frame.columns = [str(name) for name in frame.columns]
    y = None if label is None else _labels(_values(frame[label]), label, len(frame), path)
    left_out = {*drop, *drop_if_there, label} & set(frame.columns)
    frame = frame.drop(columns=list(left_out)) if left_out else frame
    if UNNAMED in frame.columns and np.array_equal(frame[UNNAMED], np.arange(len(frame))):
        raise DataFileError(
            f"the first column of {path} has no name and only counts the rows; leave it out with --drop {UNNAMED!r}"
        )
    numbers = {dtype for dtype in set(frame.dtypes) if _is_number(dtype)}
    _refuse_texts([name for name, dtype in zip(frame.columns, frame.dtypes, strict=True) if dtype not in numbers], path)
    X = frame.to_numpy(dtype=np.float64, na_value=np.nan)
    if gaps := list(frame.columns[np.isnan(X).any(axis=0)]):
        first = np.isnan(X).any(axis=1).argmax()
        raise DataFileError(
            f"{path} has missing values in {_quoted(gaps)}, or lines with too few fields, first in sample {first} "
            "(counted from 0); fill them, or drop the rows or columns"
        )
    return Table(_checked(X, path), tuple(frame.columns) if named else None, labels=y)


def _check_named(names: Sequence[str], drop: Sequence[str], label: str | None, path: Path) -> None:
    """Raise if the columns that were asked for are not there."""
    if label is not None and label not in names:
        raise DataFileError(f"{path} has no {label!r} for labels; it has {_quoted(names)}")
    if unknown := [name for name in drop if name not in names]:
        raise DataFileError(f"{path} has no column {_quoted(unknown)} to drop; it has {_quoted(names)}")


def _refuse_texts(names: Sequence[str], path: Path) -> None:
    """Raise if there are columns that are no numbers."""
    if names:
        raise DataFileError(
            f"{path} has columns that are not numbers: {_quoted(names)}; encode them as numbers, or leave them out "
            "with " + " ".join(f"--drop {name!r}" for name in names[:3]) + (" …" if len(names) > 3 else "")
        )


def _check_distinct(names: Sequence[str], path: Path) -> None:
    """Raise if two columns have one name: pandas renames them, which takes long where they are many."""
    if twice := [name for name, n in Counter(names).items() if n > 1 and name]:
        raise DataFileError(f"{path} has several columns of the name {_quoted(twice)}; give each a name of its own")


def _values(column: Any) -> np.ndarray:
    """The values of a pandas column; a text that stands in many rows stays one, unlike with pandas."""
    if column.dtype != "category" or _is_number(column.cat.categories.dtype):
        return column.to_numpy()
    texts = np.array([*column.cat.categories, None], object)  # None, the last, is where the code is -1: missing
    return texts[column.cat.codes.to_numpy()]


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
            found = next((row for row in islice(csv.reader(file), MOST_EMPTY) if row), None)
        except csv.Error as error:
            raise DataFileError(f"{path} cannot be read as a table: {error}") from error
    if not found:
        raise DataFileError(
            f"{path} is empty, or its first {MOST_EMPTY:,} lines are; a table has a line for each sample"
        )
    if len(found) == 1 and (sign := next((sign for sign in (";", "\t") if sign in found[0]), None)):
        raise DataFileError(
            f"{path} seems to have {sign!r} between its columns; save it with commas, or rename its one column"
        )
    if len(found) > MOST_COLUMNS:
        raise DataFileError(
            f"{path} has {len(found):,} columns, more than {MOST_COLUMNS:,}; save it with np.save instead"
        )
    return found


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


def _is_number(dtype: Any) -> bool:
    from pandas.api.types import is_complex_dtype, is_numeric_dtype

    return is_numeric_dtype(dtype) and not is_complex_dtype(dtype)


def _quoted(names: Sequence[str], most: int = 10) -> str:
    """The names, the first few if they are many."""
    shown = ", ".join(repr(name if len(name) < LONGEST_NAME else f"{name[:LONGEST_NAME]}…") for name in names[:most])
    return shown if len(names) <= most else f"{shown} and {len(names) - most} more"


# -- pictures ---------------------------------------------------------------------------------------------------


def _read_folder(folder: Path) -> Table:
    """The pictures below a folder: (n, h, w) if all are grey, else (n, h, w, 3), uint8."""
    files = (file.relative_to(folder) for file in folder.rglob("*") if file.is_file())
    below = sorted(
        file.as_posix()
        for file in files
        if file.suffix.lower() in PICTURES and not any(part.startswith(".") for part in file.parts)  # hidden
    )
    if not below:
        raise DataFileError(f"the folder {folder} has no pictures in it; looked for {', '.join(PICTURES)}")
    first = _read_picture(folder / below[0])
    pixels = _room(folder, below, first.shape)
    for i, name in enumerate(below):
        picture = first if i == 0 else _read_picture(folder / name)
        (height, width), (h, w) = first.shape[:2], picture.shape[:2]
        if (height, width) != (h, w):
            raise DataFileError(
                f"the pictures differ in size: {below[0]} has {width} × {height} pixels, {name} has {w} × {h}; bring "
                f"all in {folder} to one size first"
            )
        if picture.ndim == pixels.ndim:  # the first in colour
            grey, pixels = pixels, _room(folder, below, picture.shape)
            pixels[:i] = grey[:i, ..., None]
        pixels[i] = picture if picture.ndim == pixels.ndim - 1 else picture[..., None]
    return Table(pixels, sample_names=tuple(below))


def _room(folder: Path, below: Sequence[str], shape: tuple[int, ...]) -> np.ndarray:
    """An array for all pictures of a folder."""
    check_sum(len(below) * prod(shape), folder, [folder / name for name in below])
    return np.empty((len(below), *shape), np.uint8)


def check_sum(n_bytes: int, folder: Path, files: Sequence[Path]) -> None:
    """Raise if pictures would take more memory together than machines have, or many times more than their files."""
    together = f"the {len(files):,} pictures in {folder} would take {n_bytes:,} bytes in memory together"
    if n_bytes > LARGEST_FOLDER:
        raise DataFileError(
            f"{together}, more than {LARGEST_FOLDER:,}; shrink them or take fewer, or write them to one .npy file and "
            'give fit a memory map of it: np.load(FILE, mmap_mode="r")'
        )
    if n_bytes > SMALL and n_bytes > MOST_TIMES * (size := sum(file.stat().st_size for file in files)):
        raise DataFileError(
            f"{together}, more than {MOST_TIMES} times the {size:,} bytes of their files; if that is meant, shrink "
            "them, or write them to one file with np.save"
        )


def _read_picture(file: Path) -> np.ndarray:
    """A picture as uint8, (h, w) if it is grey, else (h, w, 3), turned as its camera says."""
    try:
        from PIL import Image, ImageOps
    except ImportError as error:
        raise DataFileError(f"{file} needs Pillow. {INSTALL}") from error
    with opened(Image, file) as image:
        if image.mode.startswith(("I", "F")):
            raise DataFileError(f"{file} has more than 8 bits a pixel (mode {image.mode}); convert it to 8 bits")
        grey = image.mode in ("1", "L", "LA")
        return np.asarray(ImageOps.exif_transpose(image).convert("L" if grey else "RGB"))


def check_effort(image: Any, data: bytes) -> None:
    """Raise ValueError for pictures of few bytes that take long to decode.

    Each scan of a JPEG goes over the whole picture, and Pillow unpacks the runs of a bmp in Python.
    """
    if max(image.size) > LONGEST_SIDE:
        raise ValueError(f"it has {image.width} × {image.height} pixels, more than {LONGEST_SIDE:,} on a side")
    if any(tile[0] == "bmp_rle" for tile in image.tile):
        raise ValueError("it is a bmp with run-length encoding; save it without, or as png")
    most = min(MOST_SCANS, MOST_SCANNED // max(image.width * image.height, 1))
    if data.startswith(b"\xff\xd8") and (scans := data.count(b"\xff\xda")) > most:
        raise ValueError(f"it has {scans} scans, more than {most}")


@contextmanager
def opened(reader: Any, file: Path) -> Iterator[Any]:
    """A Pillow image, not decoded yet; what is wrong with it, then or while it is decoded, is raised as DataFileError.

    ``reader`` is PIL.Image, which is not there in every installation.
    """
    try:
        if not file.is_file():
            raise DataFileError(f"{file} is no file")
        if (size := file.stat().st_size) > LARGEST_FILE:
            raise DataFileError(f"{file} has {size:,} bytes, more than a picture of {LARGEST_PICTURE:,} pixels needs")
        data = file.read_bytes()  # Pillow asks a file for as much as it claims, and memory for as much
        content = BytesIO(data)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", reader.DecompressionBombWarning)  # refused below, long before it is one
            image = reader.open(content, formats=FORMATS)
        with image:
            if image.width * image.height > LARGEST_PICTURE:
                raise DataFileError(
                    f"{file} has {image.width} × {image.height} pixels, more than {LARGEST_PICTURE:,}; shrink it first"
                )
            check_effort(image, data)
            yield image
    except DataFileError:
        raise
    except (OSError, SyntaxError, ValueError, reader.DecompressionBombError) as error:  # SyntaxError: Pillow's for png
        raise DataFileError(f"{file} is no picture, or is cut short: {error}") from error
