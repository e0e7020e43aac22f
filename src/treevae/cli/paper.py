"""The commands of the paper's tables: list them, run what is missing, show them beside the paper's figures."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Sequence
from contextlib import closing
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from ..experiments.cells import SEEDS, STORE, options
from .figure import figure
from .outputs import check_parent, make_writable
from .words import INTERRUPTED, Commands, count, say_written

if TYPE_CHECKING:
    from ..experiments.cells import Cell, Job
    from ..experiments.running import Event, Finished, Standing
    from ..experiments.store import Store
    from ..experiments.tables import Table

FIGURES = ("DP", "LP", "ACC", "NMI")

paper = typer.Typer(
    cls=Commands,
    no_args_is_help=True,
    help="Run the tables of the paper, show them beside its figures, and draw its pictures. Start with: treevae paper "
    "list",
)

TABLE_HELP = "digits, clustering, generative, celeba-attributes, sizes, matched-ladder, …: see treevae paper list."
TableName = Annotated[str, typer.Argument(metavar="TABLE", help=TABLE_HELP)]
Results = Annotated[Path, typer.Option("--results", metavar="FOLDER", help="The store of records.")]
SCALE_HELP = "Length of every schedule; 1 is the paper's. Different scales never share a cell."
Scale = Annotated[float, typer.Option(help=SCALE_HELP)]
Data = Annotated[list[str] | None, typer.Option(metavar="NAME", help="Only this data set; may be repeated.")]
Methods = Annotated[
    list[str] | None, typer.Option("--method", metavar="NAME", help="Only this method; may be repeated.")
]


@paper.command("list")
def list_tables(
    results: Results = STORE,
    scale: Scale = 1.0,
    seeds: Annotated[int, typer.Option(min=1, help="How many are wanted of each cell.")] = SEEDS,
) -> None:
    """List the tables of the paper, and how many of their cells are in the store.

    A cell is one fit: a data set, a method, its settings and a seed. One that stands in several tables is run once.
    Where its record lacks a score that a table shows, it counts as incomplete there.

    \b
    Example:
      treevae paper list
      treevae paper list --results ~/results --scale 0.1 --seeds 2
    """
    from ..experiments.methods import METHODS
    from ..experiments.running import standing, wanted
    from ..experiments.store import Store
    from ..experiments.tables import TABLES

    if results != STORE:
        _check_there(results)
    store, incomplete, damaged = Store(results), 0, dict[str, None]()
    typer.echo(f"Records in {results}, scale {scale:g}, {count(seeds, 'seed')}\n")
    typer.echo(f"{'table':<20} {'cells':>10}  what")
    for name, table in TABLES.items():
        now = standing(store, wanted(table, seeds, scale))
        faults = {"incomplete": now.incomplete, "damaged": now.damaged}
        told = ", ".join(f"{len(cells)} {what}" for what, cells in faults.items() if cells)
        typer.echo(f"{name:<20} {f'{len(now.there)} of {now.cells}':>10}  {table.title}{told and f'; {told}'}")
        damaged |= dict.fromkeys(now.damaged.values())
        incomplete += len(now.incomplete)
    typer.echo(f"\nMethods: {', '.join(METHODS)}.")
    for why in damaged:
        typer.echo(f"{why}.")
    there = options(results, scale)
    for other in store.scales({row.data for table in TABLES.values() for row in table.rows}):
        if other != scale:
            typer.echo(f"There are records of scale {other:g} too: treevae paper list{options(results, other)}")
    if incomplete:
        again = f"treevae paper run TABLE{there} --again"
        typer.echo(f"Incomplete records lack a score of the table: {again} fits them anew.")
    if not results.is_dir():
        typer.echo(f"There is no folder {results} here: if there are records elsewhere, name theirs with --results.")
    typer.echo("The paper's pictures: treevae paper run TABLE --models FOLDER, then: treevae paper figure --help")
    typer.echo(f"Next: treevae paper run TABLE{there}, then: treevae paper show TABLE{there}")


@paper.command("run")
def run_table(
    table: TableName,
    data: Data = None,
    method: Methods = None,
    seeds: Annotated[int, typer.Option(help="How many seeds, from 0 on.")] = SEEDS,
    scale: Scale = 1.0,
    results: Results = STORE,
    root: Annotated[
        Path | None, typer.Option(metavar="FOLDER", help="Where the data sets lie; by default what $TREEVAE_DATA says.")
    ] = None,
    device: Annotated[str, typer.Option(help="auto (a CUDA GPU if there is one), cpu, cuda, cuda:1, …")] = "auto",
    side_by_side: Annotated[
        int | None,
        typer.Option(min=1, help="Most seeds fitted in one go; by default all, and with --ray one."),
    ] = None,
    models: Annotated[
        Path | None, typer.Option(metavar="FOLDER", help="Also keep every fitted TreeVAE there, for paper figure.")
    ] = None,
    again: Annotated[
        bool,
        typer.Option("--again", help="Also fit anew what was recorded without a score of the table; see aside/."),
    ] = False,
    ray: Annotated[
        str | None,
        typer.Option(metavar="ADDRESS", help="Send the fits to this Ray cluster; local starts one on this machine."),
    ] = None,
) -> None:
    """Run the cells of a table that are not in the store yet, and keep a record of each.

    The seeds of a cell are fitted side by side, which on a GPU takes little longer than one (those of deepect and
    bisecting one after the other). Nothing is run twice: what is in the store is skipped, and after a crash, a kill or
    Ctrl-C the same command goes on where it was (fits of agg, bisecting and hdbscan, which keep no state, start anew).
    A short look at everything is --scale 0.1; the whole of a table takes days on a GPU, so name data sets and methods.
    In a clone of treevae the folder results holds the project's own records: name another with --results. A record that
    lacks a score of the table (its cell was run for another one, or by an earlier version) is named and left; with
    --again its cell is fitted anew, and once that is done the record before is kept in the folder aside.

    With --models each TreeVAE that is fitted is also kept as a file, named as its record is: treevae paper figure draws
    them, treevae.load reads them. What is in the store already is not fitted again and gets no model.

    With --ray every fit goes to a worker of a cluster, where treevae and the data sets must be too (--root, or
    $TREEVAE_DATA there). A fit whose worker dies is sent to another.

    \b
    Example:
      treevae paper run digits --seeds 2 --scale 0.1 --results tries
      treevae paper run clustering --data fashion --method agg --root ~/data --results tries
      treevae paper run clustering --data fashion --method treevae --seeds 3 --root ~/data --results mine
      treevae paper run digits --method treevae --seeds 3 --scale 0.1 --results tries --models models
      treevae paper run digits --seeds 2 --scale 0.1 --results tries --ray local
    """
    from ..experiments.cluster import run_on_ray
    from ..experiments.methods import Place
    from ..experiments.running import jobs_of, run, standing, wanted
    from ..experiments.store import Store
    from ..experiments.tables import table_of
    from ..parameters import device_of

    if models is not None and ray is not None:
        raise ValueError("--models cannot be given with --ray, whose workers send back records alone; leave one out")
    _check_no_file(results)
    chosen, store = table_of(table), Store(results)
    cells = wanted(chosen, seeds, scale, data, method)
    now = standing(store, cells)
    if now.damaged:
        raise ValueError(next(iter(now.damaged.values())))
    if models is not None:
        make_writable(models, "--models")  # now, and not after hours of fitting
    anew = now.incomplete if again else []
    left = now.missing + anew
    ready = left if ray is not None else _with_data(left, root)  # workers have their own data
    jobs = jobs_of(store, ready, side_by_side or (None if ray is None else 1), anew)
    if jobs:  # what would go wrong with each of them is said once, before the first
        make_writable(results, "--results")
        if ray is None:
            device_of(device)
    _announce(now, jobs)
    if models is not None:
        _tell_bare(models, [cell for cell in cells if cell not in left])
    chosen_rows = [f"--data {name}" for name in data or ()] + [f"--method {name}" for name in method or ()]
    command = " ".join(["treevae paper run", table, *chosen_rows, f"--seeds {seeds} --scale {scale} --root DATA"])
    where = Place(None if root is None else root.resolve(), device, ray is None, command, models=models)
    begun = {job.name for job in store.started()}
    try:
        with closing(run(jobs, store, where) if ray is None else run_on_ray(jobs, store, where, ray)) as events:
            told = list(_tell(events, jobs, begun, "fitting" if ray is None else "sent")) if jobs else []
    except KeyboardInterrupt:
        _tell_interrupted(jobs)
        raise typer.Exit(INTERRUPTED) from None
    if unfitted := len(left) - len(ready):
        typer.secho(f"Cells not fitted for want of data: {unfitted}.", fg="red", err=True)
    _refuse_failures(told, len(jobs), results)
    if unfitted:
        raise typer.Exit(1)
    there = len(standing(store, cells).there)
    whole = f"all {there}" if there == len(cells) else f"{there} of {len(cells)}"
    if busy := _left_to_others(told, store):
        typer.secho(
            f"Fits left to other processes: {busy} of {len(jobs)}, so not all is recorded: cells in {results}: "
            f"{whole}. Next: wait for them, or the same again.",
            fg="red",
            err=True,
        )
        raise typer.Exit(1)
    typer.echo(f"Cells in {results}: {whole}. Next: treevae paper show {table}{options(results, scale)}")
    if models is not None:
        _tell_models(models, cells)


def _with_data(cells: list[Cell], root: Path | None) -> list[Cell]:
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


def _announce(now: Standing, jobs: list[Job]) -> None:
    """What is there of a table, and what is left out."""
    typer.echo(f"Cells: {now.cells}, there already: {len(now.there)}.")
    anew = {name for job in jobs for name in job.replaces}
    if left := [cell for cell in now.incomplete if cell.name not in anew]:
        typer.echo(f"There without a score of this table, and left so: {len(left)}; --again fits them anew.")


def _about(job: Job) -> str:
    """What a job fits."""
    return f"{job.cells[0].about}, seed{'s' * (len(job.seeds) > 1)} {', '.join(map(str, job.seeds))}"


def _tell_bare(models: Path, cells: list[Cell]) -> None:
    """Of how many TreeVAEs there is a record and no model, as they were fitted without --models."""
    from ..experiments.models import Models

    if bare := Models(models).lacking(cells):
        typer.echo(
            f"TreeVAEs there without a model in {models}, which are not fitted again: {len(bare)}; to fit them, name "
            "new folders with --results and --models."
        )


def _tell_models(models: Path, cells: Iterable[Cell]) -> None:
    """How many models there are to draw."""
    from ..experiments.models import Models

    there = len(Models(models).there(cells))
    typer.echo(f"Models of these cells in {models}: {there}." + " Next: treevae paper figure --help" * bool(there))


def _tell_interrupted(jobs: list[Job]) -> None:
    """That nothing is lost, but for what keeps no state."""
    from ..experiments.methods import METHODS

    anew = dict.fromkeys(job.method for job in jobs if not METHODS[job.method].keeps_state)
    but = f", but a fit of {' or '.join(anew)} starts anew" if anew else ""
    typer.echo(f"Interrupted. No record is lost: the same command goes on from here{but}.", err=True)


def _refuse_failures(events: Sequence[Event], n_jobs: int, results: Path) -> None:
    """End with an error if a fit failed, once all others are done."""
    from ..experiments.running import Failed

    if failed := sum(isinstance(one, Failed) for one in events):
        raise ValueError(
            f"{failed} of {n_jobs} fits failed; the same command tries them again, from the states in "
            f"{results / 'running'} where there are any: to start a failed fit anew, remove its folder there"
        )


def _left_to_others(events: Sequence[Event], store: Store) -> int:
    """How many fits other processes work on that have not ended meanwhile."""
    from ..experiments.running import Busy

    return sum(isinstance(one, Busy) and not store.has(one.job) for one in events)


@paper.command("show")
def show_table(
    table: TableName,
    data: Data = None,
    method: Methods = None,
    scale: Scale = 1.0,
    results: Results = STORE,
    markdown: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Where to write it in Markdown; by default below --results.")
    ] = None,
    latex: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Where to write it in LaTeX; by default below --results.")
    ] = None,
) -> None:
    """Show a table: mean ± sd over the seeds in the store, beside the paper's figures.

    Every figure is marked as better (▲) or worse (▼) than the paper's mean, hollow (△, ▽) where chance may explain it
    (Welch's test over seeds has p of 0.05 or more, or there is one seed), or as the same as printed (=). What has no
    record says "not run", what its record lacks "not recorded". The table is also written in Markdown and in LaTeX,
    into the store's folder tables, once there is a figure; of some rows only where --markdown or --latex ask.

    \b
    Example:
      treevae paper show clustering
      treevae paper show clustering --data mnist --data fashion
      treevae paper show sizes --scale 0.1 --markdown sizes.md
    """
    from ..experiments.showing import as_latex, as_markdown, as_text, lines
    from ..experiments.store import Store
    from ..experiments.tables import table_of
    from ..storage.writing import write_whole

    chosen, store = table_of(table).only(data, method), Store(results)
    _check_there(results)
    check_parent(markdown)
    check_parent(latex)
    found = lines(chosen, store, scale)
    shown = as_text(chosen, found, scale)
    typer.echo(shown)
    if results != STORE and "treevae paper run" in shown:  # tables are read on other machines, and name no folder
        typer.echo(f"To the commands above add: --results {results}")
    if any(figure.seeds for line in found for figure in line.figures):
        if not data and not method:
            stem = results / "tables" / (table if scale == 1 else f"{table}-x{scale:g}")
            markdown, latex = markdown or Path(f"{stem}.md"), latex or Path(f"{stem}.tex")
        for file, render in ((markdown, as_markdown), (latex, as_latex)):
            if file is not None:
                write_whole(file, render(chosen, found, scale))
        if written := [file for file in (markdown, latex) if file is not None]:
            typer.echo("")
            say_written(written)
        else:
            typer.echo("\nNo file was written, as these are some rows; --markdown FILE or --latex FILE writes them.")
    else:
        others = store.scales({row.data for row in chosen.rows})
        shows = " or ".join(f"treevae paper show {table}{options(results, other)}" for other in others)
        but = f", but at others: {shows}" if others else ""
        typer.echo(f"\nNothing is recorded at scale {scale:g}{but}; no file was written.")
    _tell_begun(chosen, store, scale)


paper.command("figure")(figure)


def _tell_begun(table: Table, store: Store, scale: float) -> None:
    """A line for each fit of a table that was begun and is not finished: it runs, or was ended before its time."""
    from ..errors import DamagedRecordError
    from ..experiments.running import wanted

    try:
        jobs = store.started()
    except DamagedRecordError as error:
        typer.secho(str(error), fg="red", err=True)
        return
    if not jobs:
        return
    cells = set(wanted(table, 1 + max(seed for job in jobs for seed in job.seeds), scale))
    for job in jobs:
        if not cells.isdisjoint(job.cells):
            typer.echo(
                f"Begun and not finished: {job.name}. If nothing runs it any more, it goes on (name its --models "
                "folder again, if it had one) with: treevae paper run "
                f"{table.name} --data {job.data} --method {job.method} --seeds {job.seeds[-1] + 1}"
                f"{options(store.folder, scale)}{' --again' if job.replaces else ''}"
            )


def _check_there(results: Path) -> None:
    """Nothing is shown of, or written into, a folder whose name may be a slip."""
    _check_no_file(results)
    if not results.is_dir():
        raise ValueError(f"there is no folder {results}: name that of the records with --results, or run a table first")


def _check_no_file(results: Path) -> None:
    there = next(path for path in (results, *results.parents) if path.exists())
    if not there.is_dir():
        raise ValueError(f"{there} is a file, where a folder of records was to be; name another with --results")


def _tell(events: Iterable[Event], jobs: Sequence[Job], begun: Collection[str], word: str) -> Iterator[Event]:
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
