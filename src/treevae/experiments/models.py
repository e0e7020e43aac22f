"""The models behind records: a folder with one file for each TreeVAE of the tables that was to be kept."""

from __future__ import annotations

import filecmp
import json
import logging
import os
import re
import shutil
import time
from collections.abc import Iterable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from ..errors import ModelFileError, RunLockedError
from .cells import Cell
from .folders import place_aside
from .store import LOCKS, remove_if_empty, take

if TYPE_CHECKING:
    from ..estimator import TreeVAE

METHOD = "treevae"  # of the tables: the one whose fits are kept
SUFFIX = ".safetensors"
WAIT = 0.1  # seconds until a lock is tried again
log = logging.getLogger("treevae")


class Models:
    """Fitted TreeVAEs in a folder, named as their records are. Each is written whole or not at all.

    Parameters
    ----------
    folder : path
        Made when something is written.
    """

    def __init__(self, folder: str | os.PathLike[str]) -> None:
        self.folder = Path(folder)

    def path(self, cell: Cell) -> Path:
        """Where the model of a cell is, or will be."""
        return self.folder / f"{cell.name}{SUFFIX}"

    def keep(self, cell: Cell, model: TreeVAE) -> None:
        """Write the model of a cell; one that is there is of another fit, of another store perhaps: set aside."""
        path = self.path(cell)
        with self._alone(cell):
            if not path.exists():
                model.save(path)
                return
            aside = place_aside(path, self.folder)
            aside.parent.mkdir(exist_ok=True)
            half = self.folder / f"{path.name}.half"  # one name: what a kill leaves is written over
            shutil.copyfile(path, half)
            os.replace(half, aside)
            model.save(path)
            if filecmp.cmp(path, aside, shallow=False):  # of a fit that was killed after it had written this
                aside.unlink()

    @contextmanager
    def _alone(self, cell: Cell) -> Iterator[None]:
        """Inside, no other process writes the model of a cell; stores, each with locks of its own, may share it."""
        locks, waited = self.folder / LOCKS, False
        while True:
            with ExitStack() as held:
                held.callback(remove_if_empty, locks)
                try:
                    take(held, locks / cell.name)
                except RunLockedError as error:  # for as long as it takes to write a file
                    if not waited:
                        log.warning("waiting to write a model: %s", error)
                    waited = True
                else:
                    yield
                    return
            time.sleep(WAIT)

    def seeds(self, cell: Cell) -> list[int]:
        """The seeds, in order, with which the cell has a model here."""
        return cell.seeds_in(self.folder, SUFFIX)

    def kinds(self, data: str) -> list[str]:
        """What the cells of a data set that have models here are called, without their seeds."""
        form = re.compile(rf"({re.escape(data)}-{METHOD}\b.*)-seed\d+-[0-9a-f]+{re.escape(SUFFIX)}")
        names = [path.name for path in self.folder.iterdir()] if self.folder.is_dir() else []
        return sorted({match[1] for match in map(form.fullmatch, names) if match})

    def there(self, cells: Iterable[Cell]) -> list[Cell]:
        """Those cells that have a model here."""
        return [cell for cell in cells if self.path(cell).exists()]

    def lacking(self, cells: Iterable[Cell]) -> list[Cell]:
        """Those cells that are of TreeVAE and have no model here."""
        return [cell for cell in cells if cell.method == METHOD and not self.path(cell).exists()]

    def read(self, cell: Cell) -> TreeVAE:
        """The model of a cell.

        Raises
        ------
        ModelFileError
            The file is damaged, or was fitted with other settings than those of the cell whose name it has.
        """
        from ..estimator import load

        model = load(self.path(cell))
        fitted, wanted = model.get_params(deep=False), {**cell.settings, "random_state": cell.seed}
        if model.tree is not None:
            fitted["tree"] = json.loads(model.tree.to_json())
        if wrong := [name for name, value in wanted.items() if fitted[name] != value]:
            raise ModelFileError(
                f"{self.path(cell)} is not of the fit that it is named after: its {' and '.join(wrong)} differ; "
                "remove it, and fit it anew"
            )
        return model
