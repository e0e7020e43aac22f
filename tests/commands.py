"""The commands as a shell gives them, small data and short fits, for the tests of the command line."""

import csv
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pandas
import pytest
from cells import treevae
from PIL import Image

from treevae.training.events import TreeChanged
from treevae.training.grove import Grove

CHANCE = np.random.default_rng(0)
VECTORS = np.concatenate([CHANCE.normal(0, 1, (30, 6)), CHANCE.normal(6, 1, (30, 6))])
RUN_FILES = ("model.safetensors", "labels.csv", "tree.txt", "tree.json")
SPLITS = ("--start", "splits", "--neighbours", "0")  # the paper's way
TINY = (*("--n-leaves", "2", "--n-init", "2", "--epochs", "4", "--learning-rate", "0.01", "--device", "cpu"), *SPLITS)


def error_of(*arguments: Any) -> str:
    """The one line that a command refused with."""
    (line,) = treevae(*arguments, code=1).strip().splitlines()
    assert line.startswith("Error: ")
    return line


def rows_of(path: Path) -> list[list[str]]:
    with path.open(newline="") as file:
        return list(csv.reader(file))


def interrupt_after(n_trees: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Let training be interrupted once so many trees have been grown."""
    events = Grove.events

    def interrupted(grove: Grove) -> Iterator[Any]:
        seen = 0
        for happened in events(grove):
            if seen == n_trees:
                raise KeyboardInterrupt
            seen += happened is not None and isinstance(happened[1], TreeChanged)
            yield happened

    monkeypatch.setattr(Grove, "events", interrupted)


def write_vectors(folder: Path) -> Path:
    """A folder with the vectors as an array and as a table with a column of text."""
    np.save(folder / "x.npy", VECTORS)
    frame = pandas.DataFrame(VECTORS, columns=list("abcdef"))
    frame.assign(kind="rose").to_csv(folder / "x.csv", index=False)
    return folder


def fit_table(data: Path) -> Path:
    """A run on the table."""
    treevae("fit", data / "x.csv", "--drop", "kind", "-o", data / "run", *TINY)
    return data / "run"


def draw_pictures(folder: Path) -> Path:
    """A folder with 40 grey pictures, bright on the left or on the right."""
    for i in range(40):
        pixels = CHANCE.integers(40, size=(8, 10), dtype=np.uint8)
        pixels[:, 5 * (i % 2) : 5 * (i % 2) + 5] += 200
        Image.fromarray(pixels).save(folder / f"{i:02}.png")
    return folder


def fit_pictures(pictures: Path, folder: Path) -> Path:
    """A run on the pictures."""
    treevae("fit", pictures, "-o", folder, *TINY)
    return folder
