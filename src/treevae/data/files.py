"""Reads what a user points at, a file of numbers or a folder of pictures, into one array. Nothing is unpickled."""

from __future__ import annotations

import os
import warnings
import zlib
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from zipfile import BadZipFile

import numpy as np

ARRAYS = (".npy", ".npz")
TABLES = (".csv", ".parquet")
PICTURES = (".png", ".jpg", ".jpeg", ".bmp")
KEYS = ("X", "x", "x_train")  # of the samples in an npz with several arrays; the first that is there is taken
UNNAMED = "Unnamed: 0"  # what pandas calls a first column without a name: often an index saved along
READS = "Read are .npy, .npz, .csv, .parquet, and folders of " + ", ".join(PICTURES)
INSTALL = "Install what reads it: pip install 'treevae[files]'"


class DataFileError(ValueError):
    """A file or folder does not hold samples that can be read."""


@dataclass(frozen=True)
class Table:
    """Samples as they were read."""

    X: np.ndarray  # (n, features), or images as (n, h, w) or (n, h, w, 3)
    feature_names: tuple[str, ...] | None = None  # of csv and parquet
    sample_names: tuple[str, ...] | None = None  # of pictures: their paths below the folder

    @property
    def frame(self) -> Any:
        """A pandas frame where the features have names, else X: what ``fit`` takes to remember the names."""
        if self.feature_names is None:
            return self.X
        import pandas

        return pandas.DataFrame(self.X, columns=list(self.feature_names))


def read(path: str | os.PathLike[str], drop: Sequence[str] = ()) -> Table:
    """The samples in a file or a folder.

    Parameters
    ----------
    path
        A ``.npy`` file; a ``.npz`` file with one array, or with one called X, x or x_train; a ``.csv`` or ``.parquet``
        table of numbers; or a folder with pictures of one size (png, jpg, jpeg, bmp), read in the order of their
        paths, subfolders included, without transparency.
    drop
        Columns to leave out of a table.

    Raises
    ------
    DataFileError
        There is nothing there, or it cannot be read as samples. The message says what to do.
    """
    path = Path(path)
    kind = path.suffix.lower()
    if not path.exists():
        raise DataFileError(f"there is no file or folder {path}")
    if drop and (path.is_dir() or kind not in TABLES):
        raise DataFileError(f"{path} has no named columns, so {', '.join(drop)} cannot be dropped; only tables have")
    if path.is_dir():
        return _read_folder(path)
    if kind in ARRAYS:
        return Table(_checked(_read_array(path), path))
    if kind in TABLES:
        return _read_table(path, drop)
    raise DataFileError(f"{path} has the ending {kind!r}. {READS}")


def read_labels(path: str | os.PathLike[str], name: str, n: int) -> np.ndarray:
    """The classes of n samples, (n,): the column of a table, or the array of a .npz file, of that name."""
    path = Path(path)
    kind = path.suffix.lower()
    if kind == ".npz":
        with np.load(path, allow_pickle=False) as arrays:
            found = arrays.get(name)
            known = list(arrays)
    elif kind in TABLES:
        import pandas

        frame = pandas.read_parquet(path) if kind == ".parquet" else _read_csv(path)
        known = [str(column) for column in frame.columns]
        found = frame[name].to_numpy() if name in frame.columns else None
    else:
        raise DataFileError(f"{path} has no labels in it; only tables and .npz files can have them")
    if found is None:
        raise DataFileError(f"{path} has no {name!r} for labels; it has {_quoted(known)}")
    if found.shape != (n,):
        raise DataFileError(f"{name!r} in {path} has shape {found.shape}; labels of {n} samples must be ({n},)")
    return found if found.dtype.kind in "iub" else found.astype(str)


def _checked(X: np.ndarray, path: Path) -> np.ndarray:
    """X, if it is an array of finite numbers with at least one sample."""
    if X.dtype.kind not in "fiub":
        raise DataFileError(f"{path} holds an array of dtype {X.dtype}; numbers are needed")
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


def _read_array(path: Path) -> np.ndarray:
    """The array of a .npy file, or the one of a .npz file that holds the samples."""
    try:
        loaded = np.load(path, allow_pickle=False)
        if isinstance(loaded, np.ndarray):
            return loaded
        with loaded:
            return loaded[_key(list(loaded), path)]
    except DataFileError:
        raise
    except (ValueError, EOFError, OSError, BadZipFile, zlib.error) as error:
        if "pickle" in str(error) or "Object arrays" in str(error):
            raise DataFileError(
                f"{path} holds pickled Python objects or is no numpy file; save plain numbers with np.save"
            ) from error
        raise DataFileError(f"{path} is cut short or damaged: {error}; write it again") from error


def _key(keys: list[str], path: Path) -> str:
    """The name of the samples' array."""
    if len(keys) == 1:
        return keys[0]
    for key in KEYS:
        if key in keys:
            return key
    found = ", ".join(keys) or "none"
    raise DataFileError(
        f"{path} holds the arrays {found}; save one alone, or call it {', '.join(KEYS[:-1])} or {KEYS[-1]}"
    )


# -- tables -----------------------------------------------------------------------------------------------------


def _read_table(path: Path, drop: Sequence[str]) -> Table:
    """The numbers and the column names of a csv or parquet file."""
    try:
        import pandas
    except ImportError as error:
        raise DataFileError(f"{path} needs pandas. {INSTALL}") from error
    try:
        frame = pandas.read_parquet(path) if path.suffix.lower() == ".parquet" else _read_csv(path)
    except ImportError as error:
        raise DataFileError(f"{path} needs pyarrow. {INSTALL}") from error
    except DataFileError:
        raise
    except (ValueError, OSError) as error:  # pandas' and pyarrow's own errors are kinds of ValueError
        raise DataFileError(f"{path} cannot be read as a table: {error}") from error

    named = all(isinstance(name, str) for name in frame.columns)
    frame.columns = [str(name) for name in frame.columns]
    if unknown := [name for name in drop if name not in frame.columns]:
        raise DataFileError(f"{path} has no column {_quoted(unknown)} to drop; it has {_quoted(list(frame.columns))}")
    frame = frame.drop(columns=list(drop))
    if UNNAMED in frame.columns and np.array_equal(frame[UNNAMED], np.arange(len(frame))):
        raise DataFileError(
            f"the first column of {path} has no name and only counts the rows; leave it out with --drop {UNNAMED!r}"
        )
    text = [name for name in frame.columns if not _is_number(frame[name].dtype)]
    if text:
        raise DataFileError(
            f"{path} has columns that are not numbers: {_quoted(text)}; encode them as numbers, or leave them out with "
            + " ".join(f"--drop {name!r}" for name in text[:3])
            + (" …" if len(text) > 3 else "")
        )
    if gaps := [name for name in frame.columns if frame[name].isna().any()]:
        raise DataFileError(f"{path} has missing values in {_quoted(gaps)}; fill them, or drop the rows or columns")
    X = _checked(frame.to_numpy(dtype=np.float64), path)
    return Table(X, tuple(frame.columns) if named else None)


def _read_csv(path: Path) -> Any:
    """A pandas frame; a file that starts with numbers has no header, and its columns no names."""
    import pandas

    first = pandas.read_csv(path, header=None, nrows=1, dtype=str, keep_default_na=False).iloc[0]
    if all(map(_reads_as_number, first)):
        counted = list(first) == [str(i) for i in range(len(first))]  # how pandas writes columns without names
        return pandas.read_csv(path, header=None, skiprows=1 if counted else 0)
    with warnings.catch_warnings():
        warnings.simplefilter("error", pandas.errors.ParserWarning)
        try:
            return pandas.read_csv(path, index_col=False)  # else rows too long would lose their first field
        except pandas.errors.ParserWarning as error:
            raise DataFileError(f"{path} has rows with more fields than its first line; name every column") from error


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
    shown = ", ".join(map(repr, names[:most]))
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
    pictures = [_read_picture(folder / name) for name in below]
    first = pictures[0].shape[:2]
    for name, picture in zip(below, pictures, strict=True):
        if picture.shape[:2] != first:
            raise DataFileError(
                f"the pictures differ in size: {below[0]} has {first[1]} × {first[0]} pixels, {name} has "
                f"{picture.shape[1]} × {picture.shape[0]}; bring all in {folder} to one size first"
            )
    if any(picture.ndim == 3 for picture in pictures):
        pictures = [np.stack([p] * 3, axis=2) if p.ndim == 2 else p for p in pictures]
    return Table(np.stack(pictures), sample_names=tuple(below))


def _read_picture(file: Path) -> np.ndarray:
    """A picture as uint8, (h, w) if it is grey, else (h, w, 3), turned as its camera says."""
    try:
        from PIL import Image, ImageOps
    except ImportError as error:
        raise DataFileError(f"{file} needs Pillow. {INSTALL}") from error
    try:
        with Image.open(file) as image:
            if image.mode.startswith(("I", "F")):
                raise DataFileError(f"{file} has more than 8 bits a pixel (mode {image.mode}); convert it to 8 bits")
            grey = image.mode in ("1", "L", "LA")
            return np.asarray(ImageOps.exif_transpose(image).convert("L" if grey else "RGB"))
    except (OSError, SyntaxError, Image.DecompressionBombError) as error:  # Pillow's PNG reader raises SyntaxError
        raise DataFileError(f"{file} is no picture, or is cut short: {error}") from error
