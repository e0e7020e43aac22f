"""Which version of the code made a record: a fingerprint of the rooms that can change a figure, and of no comment."""

from __future__ import annotations

import ast
import zlib
from functools import cache
from pathlib import Path
from typing import Any

PACKAGE = Path(__file__).parent
CAN_CHANGE_A_FIGURE = (
    "base.py",
    "baselines",
    "data",
    "estimator.py",
    "experiments/cells.py",
    "experiments/methods.py",
    "fitted.py",
    "fitting.py",
    "guides",
    "metrics.py",
    "model",
    "parameters.py",
    "preparing.py",
    "recipes.py",
    "records.py",
    "saving.py",
    "scores.py",
    "starting.py",
    "storage",
    "training",
    "tree.py",
)


@cache  # parsing takes most of a second
def source() -> str:
    """A fingerprint of the code behind the figures, which a version does not tell apart between releases."""
    return fingerprint_of(PACKAGE, CAN_CHANGE_A_FIGURE)


def fingerprint_of(package: Path, rooms: tuple[str, ...]) -> str:
    """The CRC-32 of what the files and folders of a package do, whatever their comments, docstrings and line breaks."""
    files = [file for room in rooms for file in files_of(package / room)]
    code = "".join(f"{file.relative_to(package).as_posix()}: {_told(ast.parse(file.read_bytes()))}\n" for file in files)
    return f"{zlib.crc32(code.encode()):08x}"


def files_of(room: Path) -> list[Path]:
    """The Python files of a room, which is a folder or a file."""
    return sorted(room.rglob("*.py")) if room.is_dir() else [room]


def _told(part: Any) -> str:
    """A part of a syntax tree as text, the same from every version of Python; ``ast.dump`` differs between them."""
    if isinstance(part, list):
        return f"[{' '.join(_told(one) for one in part if not _is_docstring(one))}]"
    if isinstance(part, ast.JoinedStr):  # in which 3.12 may have empty texts
        return f"JoinedStr({' '.join(_told(one) for one in part.values if not _is_empty(one))})"
    if isinstance(part, ast.Constant):
        return ascii(part.value)
    if isinstance(part, ast.AST):
        fields = [
            f"{name}={_told(value)}" for name, value in ast.iter_fields(part) if value is not None and value != []
        ]
        return f"{type(part).__name__}({' '.join(fields)})"
    return ascii(part)


def _is_docstring(part: Any) -> bool:
    """Whether a statement is nothing but a text."""
    return isinstance(part, ast.Expr) and isinstance(part.value, ast.Constant) and isinstance(part.value.value, str)


def _is_empty(part: ast.expr) -> bool:
    """Whether an expression is an empty text."""
    return isinstance(part, ast.Constant) and part.value == ""
