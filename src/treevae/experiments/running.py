"""Runs the cells of a table that are not in the store yet: what is missing, in which jobs, one after the other."""

from __future__ import annotations

import gc
from collections.abc import Collection, Generator, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass, field, replace
from functools import lru_cache
from pathlib import Path
from typing import Any

from ..data.dataset import DataSet
from ..errors import DamagedRecordError, DataFileError, RunLockedError
from .cells import PARAMETERS, SAID, Cell, Job, leaves_of, of_other_data, other_parameters, short_hash
from .methods import METHODS, FitPlace, Method
from .store import Store
from .tables import PaperTable, Score


@dataclass(frozen=True)
class Begun:
    """A job whose fit begins now, after it is sure that no other process has it; or that is sent to a cluster."""

    job: Job


@dataclass(frozen=True)
class Finished:
    """A cell whose record is in the store now."""

    cell: Cell
    record: Mapping[str, Any]
    path: Path
    aside: Path | None = None  # where another record is kept, which had to give way
    in_place: bool = True  # else the cell had a record already, and this one is set aside

    @property
    def leaves(self) -> int | None:
        """How many leaves its tree has; None without one."""
        return leaves_of(self.record, self.cell.settings)


@dataclass(frozen=True)
class Failed:
    """A job that ended with an error; what it had trained is kept."""

    job: Job
    why: str


@dataclass(frozen=True)
class Busy:
    """A job that another process works on."""

    job: Job


JobEvent = Begun | Finished | Failed | Busy  # what is told of jobs while they run


@dataclass
class Coverage:
    """The cells of a table by what the store has of each."""

    there: list[Cell] = field(default_factory=list)
    incomplete: list[Cell] = field(default_factory=list)  # recorded without a score: for another table, or long ago
    damaged: dict[Cell, str] = field(default_factory=dict)  # and what is wrong
    missing: list[Cell] = field(default_factory=list)

    @property
    def cells(self) -> int:
        """How many there are in all."""
        return len(self.there) + len(self.incomplete) + len(self.damaged) + len(self.missing)


def wanted(
    table: PaperTable,
    seeds: int,
    scale: float,
    data: Sequence[str] | None = None,
    methods: Sequence[str] | None = None,
) -> dict[Cell, tuple[Score, ...]]:
    """The cells behind a table's figures, each with the scores that the table reads from its record.

    Parameters
    ----------
    seeds
        How many, from 0 on; a method without chance, and a table of one tree, take one.
    data, methods
        Names of the rows to take; by default all.
    """
    chosen = table.only(data, methods)
    if seeds < 1:
        raise ValueError(f"seeds={seeds} must be at least 1")
    scores_of: dict[Cell, tuple[Score, ...]] = {}
    for row in chosen.rows:
        method = METHODS[row.method]
        for entry in row.entries:
            for seed in range(seeds if method.seeded and not table.one_seed else 1):
                cell = method.cell(row.data, entry.changes, scale, seed)
                scores_of[cell] = scores_of.get(cell, ()) + (
                    (entry.score,) if method.gives(entry.score.where[-1]) else ()
                )
    return scores_of


def coverage_of(store: Store, cells: Mapping[Cell, Sequence[Score]]) -> Coverage:
    """Which cells are in the store, which without a score that is read from them, and which cannot be read."""
    coverage = Coverage()
    for cell, scores in cells.items():
        try:
            record = store.read(cell)
        except DamagedRecordError as error:
            coverage.damaged[cell] = str(error)
            continue
        whole = record is not None and all(score.is_in(record) for score in scores)
        (coverage.there if whole else coverage.missing if record is None else coverage.incomplete).append(cell)
    return coverage


def jobs_of(
    store: Store, cells: Iterable[Cell], side_by_side: int | None = None, again: Collection[Cell] = ()
) -> list[Job]:
    """The jobs that give the cells that the store does not have. Those begun earlier come first, as they were.

    Parameters
    ----------
    side_by_side
        Most seeds in one job; by default all. A job begun earlier keeps its seeds, because its state holds them all.
    again
        Cells to be fitted although the store has them; their records are replaced when the new ones are there.
    """
    anew = set(again)
    missing = dict.fromkeys(cell for cell in cells if cell in anew or store.read(cell) is None)
    jobs = []
    for job in store.started():
        if store.has(job):
            with suppress(RunLockedError), store.alone(job):  # killed between its last record and its end
                store.finish(job)
        elif not missing.keys().isdisjoint(job.cells):
            jobs.append(job)
            for cell in job.cells:
                missing.pop(cell, None)
    groups: dict[str, list[Cell]] = {}
    for cell in missing:
        groups.setdefault(_fit_of(cell, METHODS[cell.method]), []).append(cell)
    for group in groups.values():
        seeds = sorted({cell.seed for cell in group})
        most = side_by_side or len(seeds)
        for first in range(0, len(seeds), most):
            chosen = [cell for cell in group if cell.seed in seeds[first : first + most]]
            jobs.append(Job(tuple(chosen), store.replaceable(chosen)))
    return jobs


def run(jobs: Iterable[Job], store: Store, place: FitPlace) -> Generator[JobEvent, None, None]:
    """Fit jobs one after the other on this machine, and say what came of each cell.

    A job that fails does not keep the others from running. An interrupt is passed on; the next run goes on from there.
    """
    for job in jobs:
        try:
            with store.alone(job) as folder:
                if not store.has(job):  # else another process was faster
                    yield Begun(job)
                    here, beside = replace(place, folder=folder.resolve()), store.of_same_figures(job)
                    yield from recorded(store, job, fit(job, METHODS[job.method], here, beside))
                store.finish(job)
            continue
        except RunLockedError:
            yield Busy(job)
            continue
        except Exception as error:  # whatever it is, the other fits may do
            why = why_of(error)
        _free_memory()  # here, where the error no longer holds what was in use
        yield Failed(job, why)


def recorded(store: Store, job: Job, records: Iterable[tuple[Cell, dict[str, Any]]]) -> Iterator[Finished]:
    """The cells of a job, each once its record is in the store.

    Raises
    ------
    ValueError
        The store refuses some of the records. The others are in it by then.
    """
    refused = []
    for cell, record in records:
        try:
            written = store.write(cell, record, job.replaces.get(cell.name))
        except ValueError as error:
            refused.append(str(error))
            continue
        yield Finished(cell, record, *written)
    if refused:
        raise ValueError("; ".join(refused))


def why_of(error: BaseException) -> str:
    """What went wrong, in one line; of errors that are not ours with their kind, and how to take less memory."""
    from ..training.loop import out_of_memory

    said = " ".join(str(error).split())
    if out_of_memory(error):
        return f"out of memory; fit fewer seeds in one go, with --side-by-side 1 or so ({said or type(error).__name__})"
    ours = isinstance(error, ValueError | OSError | FloatingPointError)
    return said if ours else f"{type(error).__name__}: {said}"


def _free_memory() -> None:
    """Give back what torch keeps of a GPU for later, so that the next fit, or another process, has it."""
    import torch

    gc.collect()
    torch.cuda.empty_cache()


def without_data(names: Iterable[str], root: Path | None) -> dict[str, str]:
    """Those of some data sets that are not on this machine, each with what can be done."""
    from ..data.sets import is_there

    missing = {}
    for name in dict.fromkeys(names):
        try:
            there = is_there(name, root)
        except DataFileError as error:
            missing[name] = str(error)
        else:
            if not there:
                where = "" if root is None else f" --root {root}"
                get_it = f"treevae data {name}{where} --download"
                missing[name] = f"it is not below the folder of data sets; get it with: {get_it}"
    return missing


def fit(
    job: Job, method: Method, place: FitPlace, beside: Sequence[Mapping[str, Any]] = ()
) -> Iterator[tuple[Cell, dict[str, Any]]]:
    """The records of a job, of the same data and parameters as those that they will be averaged with."""
    from ..records import about_data, parameters_of

    data = _read(job.data, place.root)
    model = method.make(job.cells[0], data, place)
    ours: dict[str, Any] = {**about_data(data), PARAMETERS: parameters_of(model)}
    for record in beside:
        if of_other_data(record, ours):
            was, now = (", ".join(one[name] for name in SAID if one.get(name)) for one in (record, ours))
            raise ValueError(
                f"the data ({now}) are not those of records in the store that these would be averaged with "
                f"({was or 'the published ones'}); name another folder with --results"
            )
        if names := other_parameters(ours, record):
            now, was = (", ".join(f"{name}: {one[PARAMETERS][name]}" for name in names) for one in (ours, record))
            raise ValueError(
                f"the parameters ({now}) are not those of records in the store that these would be averaged with "
                f"({was}); name another folder with --results"
            )
    for cell, record in method.fit(model, job, data, place):
        yield cell, record | {"fitted_with_seeds": list(job.seeds)}


@lru_cache(maxsize=1)  # the jobs of a table come data set by data set
def _read(name: str, root: Path | None) -> DataSet:
    from ..data import load

    return load(name, root)


def _fit_of(cell: Cell, method: Method) -> str:
    """The same text for cells that one fit serves."""
    whole = asdict(cell)
    settings = {name: value for name, value in whole.pop("settings").items() if name not in method.together}
    apart = {name: value for name, value in whole.items() if name not in method.together}
    return short_hash(apart | {"settings": settings})
