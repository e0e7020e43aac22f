"""How files are refused: what the messages say, and the bound that a packed file must keep."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from ..errors import DataFileError

SMALL, MOST_TIMES = 1 << 27, 200  # bytes in memory, and times the file's own, that a packed file may become
LONGEST_NAME = 100  # letters of a column's or an array's name that a message shows
INSTALL = "Install what reads it: pip install 'treevae[files]'"


def check_bomb(n_bytes: int, path: Path) -> None:
    """Raise if a file would become many times larger in memory, as only made-up files do."""
    size = path.stat().st_size
    if n_bytes > SMALL and n_bytes > MOST_TIMES * size:
        raise DataFileError(
            f"{path} has {size:,} bytes, but would take {n_bytes:,} in memory, more than {MOST_TIMES} times as much; "
            "if that is meant, write it unpacked, as np.save does"
        )


def quoted(names: Sequence[str], most: int = 10) -> str:
    """The names, the first few if they are many."""
    shown = ", ".join(repr(name if len(name) < LONGEST_NAME else f"{name[:LONGEST_NAME]}…") for name in names[:most])
    return shown if len(names) <= most else f"{shown} and {len(names) - most} more"
