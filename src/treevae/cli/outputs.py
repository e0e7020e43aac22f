"""Where commands write: whether they can, and tables into a file or to the terminal."""

from __future__ import annotations

import sys
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any


def make_writable(folder: Path, option: str = "-o") -> None:
    """Make the folder that an option names, and raise if nothing can be written into it."""
    from tempfile import TemporaryFile

    try:
        folder.mkdir(parents=True, exist_ok=True)
        with TemporaryFile(dir=folder):
            pass
    except OSError as error:
        raise ValueError(
            f"cannot write into the folder {folder}: {error.strerror}; name another with {option}"
        ) from error


def check_parent(out: Path | None) -> None:
    """Raise if there is no folder for the file."""
    if out is not None and not out.parent.is_dir():
        raise FileNotFoundError(f"there is no folder {out.parent} to write {out.name} into; make it first")


def write_csv(out: Path | None, header: Sequence[str], columns: Iterable[Iterable[Any]]) -> None:
    """Write columns to a file, or to standard output."""
    from ..storage.writing import as_csv

    text = as_csv(header, columns)
    if out is None:
        sys.stdout.write(text)
    else:
        out.write_text(text, encoding="utf-8", newline="")
