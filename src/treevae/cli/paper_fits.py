"""What treevae paper run says: before the first fit, of each that begins or ends, and at the end."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import typer

from ..experiments.folders import RECORDS

if TYPE_CHECKING:
    from ..experiments.cells import Cell, Job
    from ..experiments.running import Coverage, Finished, JobEvent
    from ..experiments.store import Store

FIGURES = ("DP", "LP", "ACC", "NMI")


def announce(now: Coverage, jobs: list[Job], results: Path) -> None:
    """What is there of a table, what is left out, and where the new records go."""
    where = f" Records go into {results / RECORDS}." if jobs else ""
    typer.echo(f"Cells: {now.cells}, there already: {len(now.there)}.{where}")
    anew = {name for job in jobs for name in job.replaces}
    if left := [cell for cell in now.incomplete if cell.name not in anew]:
        typer.echo(f"There without a score of this table, and left so: {len(left)}; --again fits them anew.")


def tell(events: Iterable[JobEvent], jobs: Sequence[Job], begun: Collection[str], word: str) -> Iterator[JobEvent]:
    """The same, with a line for each on the terminal.

    Parameters
    ----------
    begun
        The names of jobs that go on from an earlier run.
    word
        What is done with a job whose turn has come.
    """
    from ..experiments.running import Begun, Busy, Finished

    places = {job.name: k for k, job in enumerate(jobs, start=1)}
    for one in events:
        if isinstance(one, Begun):
            if one.job.name in begun:
                n = len(one.job.replaces)
                also = f" (begun with --again: records that it replaces: {n})" if n else ""
                typer.echo(f"Begun earlier, and goes on from its state: {one.job.name}{also}")
            typer.echo(f"{word} {_about(one.job)} ({places[one.job.name]} of {len(jobs)})")
        elif isinstance(one, Finished):
            _tell_finished(one)
        elif isinstance(one, Busy):
            typer.echo(f"busy: {_about(one.job)}: another process is fitting it")
        else:
            typer.secho(f"failed: {_about(one.job)}: {one.why}", fg="red", err=True)
        yield one


def _tell_finished(one: Finished) -> None:
    """The scores of a cell, and what gave way to its record."""
    scores = {name: value for name, value in one.record.get("scores_percent", {}).items() if name in FIGURES}
    if "elbo" in one.record:
        scores["ELBO"] = one.record["elbo"]["ELBO"]
    figures = [f"{name} {value:.1f}" for name, value in scores.items()]
    asked = one.cell.settings.get("n_leaves")
    if one.leaves is not None and one.leaves != asked:
        figures.append(f"{one.leaves} of {asked} leaves")
    typer.echo(f"done: {one.cell.about}, seed {one.cell.seed}: {', '.join(figures)} ({one.path.name})")
    if one.aside is not None:
        before = "the record before" if one.in_place else "another record was there first, and stays; this one"
        typer.echo(f"  {before} is kept as {one.aside}")


def _about(job: Job) -> str:
    """What a job fits."""
    return f"{job.cells[0].about}, seed{'s' * (len(job.seeds) > 1)} {', '.join(map(str, job.seeds))}"


def tell_interrupted(jobs: list[Job]) -> None:
    """That nothing is lost, but for what keeps no state."""
    from ..experiments.methods import METHODS

    anew = dict.fromkeys(job.method for job in jobs if not METHODS[job.method].keeps_state)
    but = f", but a fit of {' or '.join(anew)} starts anew" if anew else ""
    typer.echo(f"Interrupted. No record is lost: the same command goes on from here{but}.", err=True)


def refuse_failures(events: Sequence[JobEvent], n_jobs: int, results: Path) -> None:
    """End with an error if a fit failed, once all others are done."""
    from ..experiments.running import Failed

    if failed := sum(isinstance(one, Failed) for one in events):
        raise ValueError(
            f"{failed} of {n_jobs} fits failed; the same command tries them again, from the states in "
            f"{results / 'running'} where there are any: to start a failed fit anew, remove its folder there"
        )


def left_to_others(events: Sequence[JobEvent], store: Store) -> int:
    """How many fits other processes work on that have not ended meanwhile."""
    from ..experiments.running import Busy

    return sum(isinstance(one, Busy) and not store.has(one.job) for one in events)


def with_data(cells: list[Cell], root: Path | None) -> list[Cell]:
    """Those cells whose data set is on this machine; of the others a line for each reason."""
    from ..experiments.running import without_data

    missing = without_data((cell.data for cell in cells), root)
    if missing and root is not None and not root.is_dir():
        get = f"treevae data {' '.join(missing)} --root {root} --download"
        raise ValueError(f"there is no folder {root}: name that of the data sets with --root, or fill it with: {get}")
    for why in dict.fromkeys(missing.values()):
        names = ", ".join(name for name, its in missing.items() if its == why)
        typer.secho(f"no data: {names}: {why}", fg="red", err=True)
    return [cell for cell in cells if cell.data not in missing]


def tell_bare(models: Path, cells: list[Cell]) -> None:
    """Of how many TreeVAEs there is a record and no model, as they were fitted without --models."""
    from ..experiments.models import Models

    if bare := Models(models).lacking(cells):
        typer.echo(
            f"TreeVAEs there without a model in {models}, which are not fitted again: {len(bare)}; to fit them, name "
            "new folders with --results and --models."
        )


def tell_models(models: Path, cells: Iterable[Cell]) -> None:
    """How many models there are to draw."""
    from ..experiments.models import Models

    there = len(Models(models).there(cells))
    typer.echo(f"Models of these cells in {models}: {there}." + " Next: treevae paper figure --help" * bool(there))
