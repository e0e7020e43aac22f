"""Reads what a user points at, a file of numbers or a folder of pictures, into one array. Nothing is unpickled."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path

from ..errors import DataFileError
from .folder import PICTURES, read_folder
from .npy import ARRAYS, array_names, read_array
from .samples import Table, checked_labels, checked_samples
from .tables import TABLES, read_table, table_names

READS = "Read are .npy, .npz, .csv, .parquet, and folders of " + ", ".join(PICTURES)


def read(
    path: str | os.PathLike[str],
    drop: str | Sequence[str] = (),
    label: str | None = None,
    drop_if_there: Sequence[str] = (),
    gaps: bool = False,
) -> Table:
    """The samples in a file or a folder.

    Parameters
    ----------
    path
        A ``.npy`` file; a ``.npz`` file with one array, or with one called X, x or x_train; a ``.csv`` or ``.parquet``
        table of numbers; or a folder with pictures of one size (png, jpg, jpeg, bmp), read in the order of their
        paths, subfolders included, without transparency.
    drop
        Columns to leave out of a table, or one by its name.
    label
        What holds the samples' classes: a column of a table, which is left out of X, or an array of a .npz file.
    drop_if_there
        Columns to leave out of a table that has them, or arrays of a .npz file that are not the samples.
    gaps
        Whether labels may be missing, and stay what they are: those of a guide.

    Raises
    ------
    DataFileError
        There is nothing there, or it cannot be read as samples. The message says what to do.
    """
    drop = [drop] if isinstance(drop, str) else drop
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
        return read_folder(path)
    if kind in ARRAYS:
        y = None if label is None else read_array(path, label)
        labels = drop_if_there if label is None else (label, *drop_if_there)
        X = checked_samples(read_array(path, besides=labels), path)
        return Table(X, labels=None if y is None else checked_labels(y, str(label), len(X), path, gaps))
    if kind in TABLES:
        return read_table(path, drop, label, drop_if_there, gaps)
    raise DataFileError(f"{path} has the ending {kind!r}. {READS}")


def names_in(path: Path, drop: Sequence[str]) -> list[str]:
    """The names of a table's columns that are not dropped, or of a .npz file's arrays; none where it cannot be read."""
    try:
        names = table_names(path) if path.suffix.lower() in TABLES else array_names(path)
    except (DataFileError, ImportError, OSError, ValueError):  # said when the samples are read
        return []
    return [name for name in names if name not in drop]
