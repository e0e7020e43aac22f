"""A cell: one fit of one method on one data set with one seed, named by what its method takes from the recipe.

The defaults of its estimator, which no recipe names, and the samples are not in the name: the record tells them, as
``parameters`` and by fingerprints. Records of one cell may so differ in them, and are then kept from being averaged by
:func:`other_parameters` and :func:`of_other_data`.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from ..recipes import RECIPES
from ..tree import Tree

FINGERPRINTS = ("train_samples", "test_samples")  # in a record
SAID = ("note", *FINGERPRINTS)  # of its data
MADE_BY = ("source", "device")  # in a record: the version of the code, and where it ran
PARAMETERS = "parameters"  # in a record: all that its estimator was told
MOST_SCALE = 100  # of a schedule
HASH = 8  # hexadecimal digits in a file's name
SEEDS = 10  # behind a figure of the paper


@dataclass(frozen=True)
class Cell:
    """What is fitted. Cells of different scales, settings or seeds are different, whatever table they stand in."""

    data: str
    method: str
    settings: Mapping[str, Any]  # JSON-able: what the method uses of the recipe, with changes and scale applied
    scale: float  # of every schedule; 1 is the paper's
    seed: int

    def __hash__(self) -> int:
        return hash(self.name)

    @property
    def changes(self) -> dict[str, Any]:
        """The settings that are not the recipe's."""
        recipe = scaled(self.data, {}, self.scale)
        return {name: value for name, value in self.settings.items() if name not in recipe or recipe[name] != value}

    @property
    def about(self) -> str:
        """The cell without its seed, in a form that can be read and stand in a file's name."""
        words = [f"{name}={_short(value)}" for name, value in sorted(self.changes.items())]
        return "-".join([self.data, self.method, *words, *([] if self.scale == 1 else [f"x{self.scale:g}"])])

    @property
    def name(self) -> str:
        """The name of its record: readable, and with a hash of all settings, so that no two cells share one."""
        return f"{self.about}-seed{self.seed}-{self.hash}"

    @property
    def hash(self) -> str:
        """A few digits that stand for everything but the seed."""
        return short_hash({name: value for name, value in asdict(self).items() if name != "seed"})

    def seeds_in(self, folder: Path, suffix: str) -> list[int]:
        """The seeds, in order, with which a folder has a file that is named after this cell."""
        form = re.compile(re.escape(self.about) + r"-seed(\d+)-" + self.hash + re.escape(suffix))
        names = [path.name for path in folder.iterdir()] if folder.is_dir() else []
        return sorted(int(match[1]) for match in map(form.fullmatch, names) if match)


@dataclass(frozen=True)
class Job:
    """Cells of one method and data set that are fitted in one go."""

    cells: tuple[Cell, ...]
    replaces: Mapping[str, str] = field(default_factory=dict)  # by names of cells, hashes of records to be replaced

    @property
    def data(self) -> str:
        """The data set of all cells."""
        return self.cells[0].data

    @property
    def method(self) -> str:
        """The method of all cells."""
        return self.cells[0].method

    @property
    def seeds(self) -> tuple[int, ...]:
        """The seeds of the cells."""
        return tuple(sorted({cell.seed for cell in self.cells}))

    @property
    def name(self) -> str:
        """The name of the folder for the state of its fit."""
        seeds = f"{self.seeds[0]}" if len(self.seeds) == 1 else f"{self.seeds[0]}..{self.seeds[-1]}"
        return f"{self.cells[0].about}-seed{seeds}-{short_hash(sorted(cell.name for cell in self.cells))}"


def leaves_of(record: Mapping[str, Any], settings: Mapping[str, Any]) -> int | None:
    """How many leaves the tree of a record has, where a number of them was asked for."""
    if not isinstance(record.get("tree"), dict) or "n_leaves" not in settings:
        return None
    try:
        return len(Tree.from_json(json.dumps(record["tree"])).leaves)
    except ValueError:  # its figures can be read without it, too
        return None


def of_other_data(one: Mapping[str, Any], other: Mapping[str, Any]) -> bool:
    """Whether two records of a data set are of different samples, by their fingerprints; by their notes without any.

    A record that does not say what its samples were is not known to differ.
    """
    known = [name for name in FINGERPRINTS if one.get(name) and other.get(name)]
    return any((one.get(name) or "") != (other.get(name) or "") for name in known or ["note"])


def other_parameters(one: Mapping[str, Any], other: Mapping[str, Any]) -> list[str]:
    """The parameters, without the seed, that two records of a cell both tell and in which they differ.

    A record that does not tell a parameter is not known to differ. Earlier versions told the seed here, too.
    """
    ours, theirs = one.get(PARAMETERS) or {}, other.get(PARAMETERS) or {}
    return [name for name in ours if name != "random_state" and name in theirs and ours[name] != theirs[name]]


def scaled(data: str, changes: Mapping[str, Any], scale: float) -> dict[str, Any]:
    """The recipe of a data set as JSON has it, with changes, and with every schedule shortened."""
    if not 0 < scale <= MOST_SCALE:
        raise ValueError(
            f"scale={scale!r} must be above 0 and at most {MOST_SCALE}; 1 is the paper's schedule, 0.1 a tenth of it"
        )
    settings = RECIPES[data] | dict(changes)
    settings["epochs"] = max(1, round(settings["epochs"] * scale))  # all stages keep their proportions to it
    return json.loads(json.dumps(settings))


def short_hash(value: Any) -> str:
    """A few digits that stand for a JSON-able value."""
    return hashlib.sha256(json.dumps(value, sort_keys=True).encode()).hexdigest()[:HASH]


def _short(value: Any) -> str:
    if isinstance(value, Mapping):
        return "given"  # a tree; the hash says which
    return ".".join(map(str, value)) if isinstance(value, list) else str(value)
