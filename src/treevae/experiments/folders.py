"""Where records lie: the layout of a store's folder, which folder is written into, and which is read."""

from __future__ import annotations

import re
from pathlib import Path

STORE = Path("paper-results")  # the store that is written into, unless another one is named
ARCHIVE = Path("results")  # in a clone of treevae: the project's own
RECORDS = "records"  # below a store: a file for each cell
WRITTEN_TABLES = "tables"  # below a store: those that were shown, in Markdown and LaTeX
RUNNING = "running"  # below a store: the states of fits
ASIDE = "aside"  # below a store, or a folder of models: what was replaced
OF_A_CELL = re.compile(r".+-seed\d+-[0-9a-f]+\.json")  # the names of records


def store_to_read() -> Path:
    """The store that is read unless one is named: that of the user, if it is there, else a clone's."""
    return ARCHIVE if not STORE.is_dir() and ((ARCHIVE / RECORDS).is_dir() or misplaced(ARCHIVE)) else STORE


def store_to_add_to(store: Path) -> Path:
    """The store that a reader of this one is to run fits into: a clone's own is no place for tries."""
    return STORE if store == ARCHIVE else store


def misplaced(store: Path) -> bool:
    """Whether records lie in a store's folder itself, where earlier versions had them."""
    return store.is_dir() and any(OF_A_CELL.fullmatch(path.name) for path in store.iterdir())


def place_aside(file: Path, folder: Path) -> Path:
    """Where the file of a cell is kept, in a store or a folder of models, beside those that were replaced earlier."""
    number = 1
    while (place := folder / ASIDE / f"{file.stem}-{number}{file.suffix}").exists():
        number += 1
    return place


def options(store: Path, scale: float, unless: Path = STORE) -> str:
    """What leads another command to the same records; ``unless`` is the store that it takes where none is named."""
    said = [f"--scale {scale}"] * (scale != 1) + [f"--results {store}"] * (store != unless)
    return "".join(f" {option}" for option in said)
