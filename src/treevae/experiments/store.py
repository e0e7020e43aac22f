"""The results store: a folder with one JSON record for each cell, and the states of fits that have not ended."""

from __future__ import annotations

import json
import os
import re
from collections.abc import Collection, Iterable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any, NamedTuple

from ..errors import DamagedRecordError
from ..recipes import RECIPES
from ..storage.lock import FolderLock
from ..storage.states import STATES
from ..storage.tensors import parsed
from ..storage.writing import write_new, write_whole
from .cells import MADE_BY, MOST_SCALE, PARAMETERS, SAID, Cell, Job, short_hash
from .folders import RECORDS, RUNNING, misplaced, place_aside

JOB = "job.json"
LOCKS = "locks"  # the folder of the cells that processes work on
REPLACES = "replaces"  # in a record: the hash of the one in whose place it came
OWNER = "owner"  # the folder with the lock of the process whose job it is
LOCK_TRIES = 100  # each of which another process thwarts by removing the folder that it had locked
LARGEST_NUMBER = 1e300  # that a record may have
LONGEST_NAME = 200  # bytes of a cell's; file systems have 255, and names of files end in more
IDENTITY = ("data", "method", "settings", "scale", "seed")


class Written(NamedTuple):
    """What became of a record."""

    path: Path  # of the cell's record
    aside: Path | None = None  # where another one is kept, which had to give way
    in_place: bool = True  # whether it is the cell's record, and not the one that had to give way


class Store:
    """Records of cells in a folder. Each is written whole or not at all, and none is lost when another replaces it.

    Parameters
    ----------
    folder : path
        Made when something is written.

    Raises
    ------
    ValueError
        The folder is laid out as earlier versions did it.
    """

    def __init__(self, folder: str | os.PathLike[str]) -> None:
        self.folder = Path(folder)
        self.records = self.folder / RECORDS
        if misplaced(self.folder):
            raise ValueError(
                f"the records in {self.folder} lie where earlier versions had them: move {self.folder / '*.json'} into "
                f"{self.records}/"
            )

    # -- records ------------------------------------------------------------------------------------------------

    def path(self, cell: Cell) -> Path:
        """Where the record of a cell is, or will be."""
        return self.records / f"{cell.name}.json"

    def read(self, cell: Cell) -> dict[str, Any] | None:
        """The record of a cell, or None if there is none.

        Raises
        ------
        DamagedRecordError
            There is a file, but not a record of this cell. It is left as it is.
        """
        path = self.path(cell)
        try:
            record = parsed(path.read_text(encoding="utf-8"))
        except FileNotFoundError:
            return None
        except ValueError as error:
            raise _damaged(path, str(error)) from error
        if not isinstance(record, dict):
            raise _damaged(path, "it is no JSON object")
        if why := wrong_with(record) or _not_of(cell, record):
            raise _damaged(path, why)
        return record

    def seeds(self, cell: Cell) -> dict[int, dict[str, Any]]:
        """The records of a cell with any seed, by seed in order."""
        seeds = cell.seeds_in(self.records, ".json")
        records = ((seed, self.read(replace(cell, seed=seed))) for seed in seeds)
        return {seed: record for seed, record in records if record is not None}

    def scales(self, data: Collection[str]) -> list[float]:
        """The scales at which there are records of any of these data sets, by the names of the files."""
        form = re.compile(
            rf"(?:{'|'.join(map(re.escape, data))})-.*?(?:-x(\d+(?:\.\d+)?(?:e[+-]\d+)?))?-seed\d+-[0-9a-f]+\.json"
        )
        names = [path.name for path in self.records.iterdir()] if self.records.is_dir() else []
        return sorted({float(match[1] or 1) for match in map(form.fullmatch, names) if match})

    def of_same_figures(self, job: Job) -> list[dict[str, Any]]:
        """What the records that those of a job will be averaged with, of its cells with any seed, say of their fits.

        That is their data and their parameters.
        """
        cells = {cell.hash: cell for cell in job.cells}.values()
        by_cell = {replace(cell, seed=seed): record for cell in cells for seed, record in self.seeds(cell).items()}
        records = [record for cell, record in by_cell.items() if cell.name not in job.replaces]
        return [{name: record[name] for name in (*SAID, PARAMETERS) if record.get(name)} for record in records]

    def write(self, cell: Cell, record: dict[str, Any], replaces: str | None = None) -> Written:
        """Keep the record of a cell, and whatever else is there or comes: nothing is written over.

        Of two that replace a record at once that holds inside :meth:`alone`.

        One that is there stays, and this one is set aside, unless this one is to replace it: then a copy of that one is
        set aside first, so that the cell has a record at any time.

        Parameters
        ----------
        replaces
            The hash of the record that was to be replaced when the fit began. Whatever is there now gives way, unless
            it came in that one's place, too.

        Raises
        ------
        ValueError
            The record could not be read back: it is of another cell, or something in it is no number, or not finite.
        """
        whole = asdict(cell) | record | ({} if replaces is None else {REPLACES: replaces})
        if why := wrong_with(record) or _not_of(cell, whole):
            raise ValueError(f"the record of {cell.name} is not written: {why}")
        try:
            text = json.dumps(whole, indent=1, allow_nan=False) + "\n"
        except ValueError as error:
            raise ValueError(f"the record of {cell.name} is not written: {error}") from error
        path = self.path(cell)
        while (there := self.read(cell)) is None:
            if write_new(path, text):  # else another process was faster
                return Written(path)
        if there == json.loads(text):  # of a fit that was killed after it had written this
            return Written(path)
        if replaces is None or there.get(REPLACES) == replaces:
            return Written(path, self._write_aside(path, text), in_place=False)
        aside = self._write_aside(path, json.dumps(there, indent=1) + "\n")
        write_whole(path, text)
        return Written(path, aside)

    def _write_aside(self, path: Path, text: str) -> Path:
        """Where a text is kept beside what was set aside of a record earlier."""
        while not write_new(aside := place_aside(path, self.folder), text):
            pass  # another process took the name
        return aside

    def replaceable(self, cells: Iterable[Cell]) -> dict[str, str]:
        """The hashes of the records that some cells have, by the cells' names: those that a job is to replace."""
        records = {cell.name: self.read(cell) for cell in cells}
        return {name: short_hash(record) for name, record in records.items() if record is not None}

    def has(self, job: Job) -> bool:
        """Whether all records of a job are there, and those that it replaces are replaced."""
        by_name = {cell.name: self.read(cell) for cell in job.cells}
        return all(
            record is not None and (name not in job.replaces or record.get(REPLACES) == job.replaces[name])
            for name, record in by_name.items()
        )

    # -- what runs ----------------------------------------------------------------------------------------------

    @contextmanager
    def alone(self, job: Job) -> Iterator[Path]:
        """Inside, only this process works on a job's cells, and the job counts as started; gives its state's folder.

        Raises
        ------
        RunLockedError
            Another process works on it, or on one of its cells.
        """
        running = self.folder / RUNNING
        with ExitStack() as held:  # undone from the last to the first
            held.callback(self._sweep, job)
            take(held, running / job.name / OWNER)
            held.callback(self.leave, job)
            for cell in job.cells:
                take(held, running / LOCKS / cell.name)
            yield self.begin(job)

    def begin(self, job: Job) -> Path:
        """The folder for the state of a job's fit. From now on the job counts as started."""
        folder = self.folder / RUNNING / job.name
        if not (folder / JOB).exists() or _is_bare(folder):
            for state in STATES:  # of a job that was being ended
                (folder / state).unlink(missing_ok=True)
            about = {"cells": [asdict(cell) for cell in job.cells], "replaces": dict(job.replaces)}
            write_whole(folder / JOB, json.dumps(about) + "\n")
        return folder

    def started(self) -> list[Job]:
        """The jobs that were begun and not finished, and have a state to go on from."""
        jobs = []
        for path in sorted((self.folder / RUNNING).glob(f"*/{JOB}")):
            try:
                if _is_bare(path.parent):
                    continue
                jobs.append(_job_of(parsed(path.read_text(encoding="utf-8"))))
            except FileNotFoundError:  # finished meanwhile by another process
                continue
            except (ValueError, TypeError) as error:
                raise DamagedRecordError(
                    f"{path} cannot be read: {error}. Bring a whole copy back, or remove the folder {path.parent}: its "
                    "fit then starts anew. Nothing was changed"
                ) from error
        return jobs

    def finish(self, job: Job) -> None:
        """Remove the state of a job whose records are all there."""
        folder = self.folder / RUNNING / job.name
        with suppress(FileNotFoundError):
            for path in folder.iterdir():
                with suppress(OSError):  # the owner's folder stays: its lock goes with the process that has it
                    if path.name != JOB:
                        path.unlink()
            if _is_bare(folder):  # the job goes last: a state without one would be that of the next fit of these cells
                (folder / JOB).unlink()
        self._sweep(job)

    def _sweep(self, job: Job) -> None:
        """Remove the folders of a job and of what runs, where nothing is left in them."""
        running = self.folder / RUNNING
        for folder in (running / job.name / OWNER, running / job.name, running / LOCKS, running):
            remove_if_empty(folder)

    def leave(self, job: Job) -> None:
        """Keep the state of a job that has not ended; without one, nothing is left of it."""
        if _is_bare(self.folder / RUNNING / job.name):
            self.finish(job)


def wrong_with(record: dict[str, Any]) -> str:
    """What in a record is not of its kind, of that which tables are made of; empty if all is well."""
    groups = {name: record.get(name) or {} for name in ("scores_percent", "fine_scores_percent", "elbo", "likelihood")}
    for name, group in groups.items():
        if not isinstance(group, dict):
            return f"its {name} are no JSON object"
        of_means = name == "likelihood"  # whose bounds have a mean and its error
        inner = [one.get("mean") if of_means and isinstance(one, dict) else one for one in group.values()]
        if not all(one is None or _is_number(one) for one in inner):
            return f"its {name} are not all numbers"
    attributes = record.get("leaf_attributes_percent") or {}
    if not isinstance(attributes, dict) or not all(
        isinstance(row, list) and all(one is None or _is_number(one) for one in row) for row in attributes.values()
    ):
        return "its leaf_attributes_percent are not rows of numbers"
    if not isinstance(record.get(PARAMETERS), dict | None):
        return f"its {PARAMETERS} are no JSON object"
    no_text = [name for name in (*SAID, *MADE_BY) if not isinstance(record.get(name), str | None)]
    return f"its {no_text[0]} is no text" if no_text else ""


def _not_of(cell: Cell, record: dict[str, Any]) -> str:
    """In what a record is of another cell than the one that it is named after; empty if it is of this one."""
    wanted = asdict(cell)
    wrong = [name for name in IDENTITY if record.get(name) != wanted[name]]
    return f"its {' and '.join(wrong)} are not those of the cell that it is named after" if wrong else ""


def _is_number(value: Any) -> bool:
    """Whether a value is a finite number that a float can hold."""
    return type(value) in (int, float) and abs(value) < LARGEST_NUMBER


def _job_of(about: Any) -> Job:
    """A job as it came out of a file, if its parts are of their kinds."""
    if not isinstance(about, dict) or about.keys() != {"cells", "replaces"}:
        raise ValueError("it is no job")
    cells, replaces = tuple(_checked_cell(Cell(**cell)) for cell in about["cells"]), about["replaces"]
    if not cells:
        raise ValueError("it names no cell")
    names = {cell.name for cell in cells}
    if not isinstance(replaces, dict) or not all(k in names and isinstance(v, str) for k, v in replaces.items()):
        raise ValueError("what it replaces are no records of its cells")
    return Job(cells, replaces)


def _checked_cell(cell: Cell) -> Cell:
    """A cell as it came out of a file, if its parts are of their kinds."""
    if cell.data not in RECIPES or not isinstance(cell.method, str) or not isinstance(cell.settings, dict):
        raise ValueError("a cell names no data set, no method or no settings")
    scale_is_one = type(cell.scale) in (int, float) and 0 < cell.scale <= MOST_SCALE
    if not scale_is_one or type(cell.seed) is not int or cell.seed < 0:
        raise ValueError("a cell's scale or seed is no number that one can have")
    if len(cell.name.encode()) > LONGEST_NAME:
        raise ValueError("a cell's settings or seed are longer than the name of a file can be")
    return cell


def take(held: ExitStack, folder: Path) -> None:
    """Lock a folder for as long as a stack holds; then it is removed, unless another process has locked it by then."""
    held.callback(remove_if_empty, folder)
    for left in reversed(range(LOCK_TRIES)):
        try:
            held.enter_context(FolderLock(folder))
        except (FileNotFoundError, FileExistsError):  # removed between two steps by the one who had it
            if not left:
                raise
        else:
            return


def remove_if_empty(folder: Path) -> None:
    """Remove a folder that holds nothing: a lock that another process has is never removed with it."""
    with suppress(OSError):
        folder.rmdir()


def _is_bare(folder: Path) -> bool:
    """Whether a job's folder is there and holds neither a state nor the lock of one who works on it."""
    return folder.is_dir() and {path.name for path in folder.iterdir()} <= {JOB, OWNER}


def _damaged(path: Path, why: str) -> DamagedRecordError:
    return DamagedRecordError(
        f"{path} is damaged: {why}. Bring a whole copy back, or remove it to run the cell again. Nothing was changed"
    )
