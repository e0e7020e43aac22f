"""Reads arrays in numpy's format, .npy and .npz. Nothing is unpickled."""

from __future__ import annotations

import ast
import zlib
from collections.abc import Sequence
from math import prod
from pathlib import Path
from typing import IO
from zipfile import ZIP_DEFLATED, ZIP_STORED, BadZipFile, ZipFile

import numpy as np

from ..errors import DataFileError
from .refusal import check_bomb, quoted

ARRAYS = (".npy", ".npz")
KEYS = ("X", "x", "x_train")  # of the samples in an npz with several arrays; the first that is there is taken
NUMBERS, TEXTS = "fiub", "U"  # numpy's kinds of types: floats, integers, truth values; letters
LONGEST_HEADER = 1000  # characters; numpy writes 118 before an array of numbers


def read_array(path: Path, label: str | None = None, besides: Sequence[str] = ()) -> np.ndarray:
    """The array of a .npy file, or the one of a .npz file that holds the samples or, if it is named, the labels.

    The samples are not in the arrays that ``besides`` names, which hold labels.
    """
    try:
        if path.suffix.lower() == ".npy":
            with path.open("rb") as file:
                return _array(file, path.stat().st_size, path)
        with ZipFile(path) as zipped:
            key = _key([name.removesuffix(".npy") for name in zipped.namelist()], path, label, besides)
            member = zipped.getinfo(key if key in zipped.namelist() else f"{key}.npy")
            if member.compress_type not in (ZIP_STORED, ZIP_DEFLATED) or member.flag_bits & 0x1:  # encrypted
                raise DataFileError(f"{path} is packed in a way that numpy does not write; write it with np.savez")
            with zipped.open(member) as file:
                return _array(file, member.file_size, path, NUMBERS if label is None else NUMBERS + TEXTS)
    except DataFileError:
        raise
    except (ValueError, EOFError, OSError, BadZipFile, NotImplementedError, zlib.error) as error:
        raise DataFileError(f"{path} is cut short or damaged: {error}; write it again") from error


def array_names(path: Path) -> list[str]:
    """The names of the arrays of a .npz file; none of any other."""
    if path.suffix.lower() != ".npz":
        return []
    try:
        with ZipFile(path) as zipped:
            return [name.removesuffix(".npy") for name in zipped.namelist()]
    except (EOFError, BadZipFile, NotImplementedError, zlib.error) as error:
        raise ValueError(f"{path} is cut short or damaged: {error}") from error


def _key(keys: list[str], path: Path, label: str | None, besides: Sequence[str]) -> str:
    """The name of the samples' array, or that of the labels'."""
    if label is not None:
        if label not in keys:
            raise DataFileError(f"{path} has no {label!r} for labels; it has {quoted(keys)}")
        return label
    keys = [key for key in keys if key not in besides]
    if len(keys) == 1:
        return keys[0]
    for key in KEYS:
        if key in keys:
            return key
    if besides and not keys:
        raise DataFileError(f"{path} holds nothing but the labels {quoted(besides)}; save the samples in it, too, as X")
    raise DataFileError(
        f"{path} holds the arrays {quoted(keys) or 'none'}; save one alone, or call it {', '.join(KEYS[:-1])} or "
        f"{KEYS[-1]}"
    )


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
    if (n_read := fill(content, file)) < n_bytes:
        raise DataFileError(f"{path} is cut short: it holds {n_read:,} of {n_bytes:,} bytes; write it again")
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
        header = ast.literal_eval(text.strip())
        shape, descr, columns_first = header["shape"], header["descr"], header["fortran_order"]
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
