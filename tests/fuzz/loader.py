"""What the fuzz must know about a loader; and what several of them share."""

from collections.abc import Callable
from contextlib import redirect_stdout
from dataclasses import dataclass
from io import StringIO
from pathlib import Path
from random import Random
from typing import Any

import numpy as np
from mutations import Mutation
from typer.main import get_command

from treevae.cli.app import app
from treevae.data import load
from treevae.data.files import read

COMMAND = get_command(app)
Spoil = Callable[[dict[str, bytes], Random], dict[str, bytes]]


@dataclass(frozen=True)
class Loader:
    """A way in which files come into the program."""

    name: str
    share: float  # of all inputs
    valid: Callable[[Path], None]  # writes valid files into a folder, always the same
    spoil: Spoil  # changes some of them
    load: Callable[[Path], Any]  # reads the folder
    refuses: tuple[type[BaseException], ...]  # with just these errors, which its documentation names
    address_space: int = 1 << 30  # bytes above what a valid file takes; resident memory has the same limit everywhere


def one_of(mutation: Mutation, *names: str) -> Spoil:
    """Change one of the named files, by default of all."""

    def spoil(files: dict[str, bytes], chance: Random) -> dict[str, bytes]:
        name = chance.choice([name for name in files if not names or name in names])
        return files | {name: mutation(files[name], chance)}

    return spoil


def load_named(folder: Path, name: str) -> None:
    """A data set; ``treevae data``, which lists it, must never fail."""
    with redirect_stdout(StringIO()):
        COMMAND.main(["data", name, "--root", str(folder)], standalone_mode=False)
    load(name, folder)


def load_each(folder: Path, label: str | None = None) -> None:
    """Every file of a folder by itself, one called "labelled" with its labels."""
    for path in sorted(folder.iterdir()):
        read(path, label=label if path.stem == "labelled" else None)


def pixels(*shape: int) -> np.ndarray:
    """Noise, always the same for a shape."""
    return np.random.default_rng(shape).integers(256, size=shape, dtype=np.uint8)


def normal(*shape: int) -> np.ndarray:
    """Numbers, always the same for a shape."""
    return np.random.default_rng(shape).normal(size=shape)
