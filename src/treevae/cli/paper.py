"""The commands of the paper's tables: list them, run what is missing, show them beside the paper's figures."""

from __future__ import annotations

from contextlib import closing
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from ..experiments.cells import SEEDS
from ..experiments.folders import ARCHIVE, RECORDS, STORE, WRITTEN_TABLES, options, store_to_add_to, store_to_read
from .figure import figure
from .outputs import check_parent, make_writable
from .paper_fits import (
    announce,
    left_to_others,
    refuse_failures,
    tell,
    tell_bare,
    tell_interrupted,
    tell_models,
    with_data,
)
from .words import INTERRUPTED, Commands, count, say_written

if TYPE_CHECKING:
    from ..experiments.store import Store
    from ..experiments.tables import PaperTable

paper = typer.Typer(
    cls=Commands,
    no_args_is_help=True,
    help="Run the tables of the paper, show them beside its figures, and draw its pictures. Start with: treevae paper "
    "list",
)

TABLE_HELP = "digits, clustering, generative, celeba-attributes, sizes, matched-ladder, …: see treevae paper list."
TableName = Annotated[str, typer.Argument(metavar="TABLE", help=TABLE_HELP)]
READ = f"{STORE} if it is there, else {ARCHIVE}, which in a clone of treevae has the project's own"
StoreToRead = Annotated[
    Path | None, typer.Option("--results", metavar="FOLDER", help="The store of records.", show_default=READ)
]
StoreToWrite = Annotated[
    Path, typer.Option("--results", metavar="FOLDER", help="The store that records go into; made if it is not there.")
]
SCALE_HELP = "Length of every schedule; 1 is the paper's. Different scales never share a cell."
Scale = Annotated[float, typer.Option(help=SCALE_HELP)]
Data = Annotated[list[str] | None, typer.Option(metavar="NAME", help="Only this data set; may be repeated.")]
Methods = Annotated[
    list[str] | None, typer.Option("--method", metavar="NAME", help="Only this method; may be repeated.")
]


@paper.command("list")
def list_tables(
    results: StoreToRead = None,
    scale: Scale = 1.0,
    seeds: Annotated[int, typer.Option(min=1, help="How many are wanted of each cell.")] = SEEDS,
) -> None:
    """List the tables of the paper, and how many of their cells are in the store.

    A cell is one fit: a data set, a method, its settings and a seed. One that stands in several tables is run once.
    Where its record lacks a score that a table shows, it counts as incomplete there. The store is paper-results if it
    is there, else results, which in a clone of treevae has the project's own records.

    \b
    Example:
      treevae paper list
      treevae paper list --results ~/results --scale 0.1 --seeds 2
    """
    from ..experiments.methods import METHODS
    from ..experiments.running import coverage_of, wanted
    from ..experiments.store import Store
    from ..experiments.tables import TABLES

    if results is not None:
        _check_there(results)
    results = results or store_to_read()
    store, incomplete, damaged = Store(results), 0, dict[str, None]()
    typer.echo(f"Records in {results}, scale {scale:g}, {count(seeds, 'seed')}\n")
    typer.echo(f"{'table':<20} {'cells':>10}  what")
    for name, table in TABLES.items():
        now = coverage_of(store, wanted(table, seeds, scale))
        faults = {"incomplete": now.incomplete, "damaged": now.damaged}
        told = ", ".join(f"{len(cells)} {what}" for what, cells in faults.items() if cells)
        typer.echo(f"{name:<20} {f'{len(now.there)} of {now.cells}':>10}  {table.title}{told and f'; {told}'}")
        damaged |= dict.fromkeys(now.damaged.values())
        incomplete += len(now.incomplete)
    typer.echo(f"\nMethods: {', '.join(METHODS)}.")
    for why in damaged:
        typer.echo(f"{why}.")
    to_run = options(store_to_add_to(results), scale)
    for other in store.scales({row.data for table in TABLES.values() for row in table.rows}):
        if other != scale:
            typer.echo(f"There are records of scale {other:g} too: treevae paper list{_read_options(results, other)}")
    if incomplete:
        again = f"treevae paper run TABLE{to_run} --again"
        typer.echo(f"Incomplete records lack a score of the table: {again} fits them anew.")
    if not results.is_dir():
        typer.echo(f"There is no folder {results} here: if there are records elsewhere, name theirs with --results.")
    _tell_archive("list", results)
    typer.echo("The paper's pictures: treevae paper run TABLE --models FOLDER, then: treevae paper figure --help")
    typer.echo(f"Next: treevae paper run TABLE{to_run}, then: treevae paper show TABLE{to_run}")


@paper.command("run")
def run_table(
    table: TableName,
    data: Data = None,
    method: Methods = None,
    seeds: Annotated[int, typer.Option(help="How many seeds, from 0 on.")] = SEEDS,
    scale: Scale = 1.0,
    results: StoreToWrite = STORE,
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
    Records go into paper-results/records below the current folder, or below another that --results names. A record that
    lacks a score of the table (its cell was run for another one, or by an earlier version) is named and left; with
    --again its cell is fitted anew, and once that is done the record before is kept in the store's folder aside.

    With --models each TreeVAE that is fitted is also kept as a file, named as its record is: treevae paper figure draws
    them, treevae.load reads them. What is in the store already is not fitted again and gets no model.

    With --ray every fit goes to a worker of a cluster, where treevae and the data sets must be too (--root, or
    $TREEVAE_DATA there). A fit whose worker dies is sent to another.

    \b
    Example:
      treevae paper run digits --seeds 2 --scale 0.1
      treevae paper run clustering --data fashion --method agg --root ~/data
      treevae paper run clustering --data fashion --method treevae --seeds 3 --root ~/data --results mine
      treevae paper run digits --method treevae --seeds 3 --scale 0.1 --models models
      treevae paper run digits --seeds 2 --scale 0.1 --ray local
    """
    from ..experiments.cluster import run_on_ray
    from ..experiments.methods import FitPlace
    from ..experiments.running import coverage_of, jobs_of, run, wanted
    from ..experiments.store import Store
    from ..experiments.tables import table_of
    from ..parameters import device_of

    if models is not None and ray is not None:
        raise ValueError("--models cannot be given with --ray, whose workers send back records alone; leave one out")
    _check_no_file(results)
    chosen, store = table_of(table), Store(results)
    cells = wanted(chosen, seeds, scale, data, method)
    now = coverage_of(store, cells)
    if now.damaged:
        raise ValueError(next(iter(now.damaged.values())))
    if models is not None:
        make_writable(models, "--models")  # now, and not after hours of fitting
    anew = now.incomplete if again else []
    left = now.missing + anew
    ready = left if ray is not None else with_data(left, root)  # workers have their own data
    jobs = jobs_of(store, ready, side_by_side or (None if ray is None else 1), anew)
    if jobs:  # what would go wrong with each of them is said once, before the first
        make_writable(results, "--results")
        if ray is None:
            device_of(device)
    announce(now, jobs, results)
    if models is not None:
        tell_bare(models, [cell for cell in cells if cell not in left])
    chosen_rows = [f"--data {name}" for name in data or ()] + [f"--method {name}" for name in method or ()]
    command = " ".join(["treevae paper run", table, *chosen_rows, f"--seeds {seeds} --scale {scale} --root DATA"])
    where = FitPlace(None if root is None else root.resolve(), device, ray is None, command, models=models)
    begun = {job.name for job in store.started()}
    try:
        with closing(run(jobs, store, where) if ray is None else run_on_ray(jobs, store, where, ray)) as events:
            told = list(tell(events, jobs, begun, "fitting" if ray is None else "sent")) if jobs else []
    except KeyboardInterrupt:
        tell_interrupted(jobs)
        raise typer.Exit(INTERRUPTED) from None
    if unfitted := len(left) - len(ready):
        typer.secho(f"Cells not fitted for want of data: {unfitted}.", fg="red", err=True)
    refuse_failures(told, len(jobs), results)
    if unfitted:
        raise typer.Exit(1)
    there = len(coverage_of(store, cells).there)
    whole = f"all {there}" if there == len(cells) else f"{there} of {len(cells)}"
    if busy := left_to_others(told, store):
        typer.secho(
            f"Fits left to other processes: {busy} of {len(jobs)}, so not all is recorded: cells in {results}: "
            f"{whole}. Next: wait for them, or the same again.",
            fg="red",
            err=True,
        )
        raise typer.Exit(1)
    typer.echo(f"Cells in {results}: {whole}. Next: treevae paper show {table}{options(results, scale)}")
    if models is not None:
        tell_models(models, cells)


@paper.command("show")
def show_table(
    table: TableName,
    data: Data = None,
    method: Methods = None,
    scale: Scale = 1.0,
    results: StoreToRead = None,
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
    into the store's folder tables, once there is a figure; of some rows only where --markdown or --latex ask. The store
    is paper-results if it is there, else results, which in a clone of treevae has the project's own records.

    \b
    Example:
      treevae paper show clustering
      treevae paper show clustering --data mnist --data fashion --results results
      treevae paper show sizes --scale 0.1 --markdown sizes.md
    """
    from ..experiments.showing import as_latex, as_markdown, as_text, lines
    from ..experiments.store import Store
    from ..experiments.tables import table_of
    from ..storage.writing import write_whole

    chosen, results = table_of(table).only(data, method), results or store_to_read()
    _check_there(results)
    store = Store(results)
    check_parent(markdown)
    check_parent(latex)
    rows = lines(chosen, store, scale)
    text = as_text(chosen, rows, scale)
    typer.echo(text)
    if (
        "treevae paper run" in text and store_to_add_to(results) != STORE
    ):  # tables name no folder: they are read anywhere
        typer.echo(f"To the commands above add: --results {results}")
    if any(figure.seeds for line in rows for figure in line.figures):
        if not data and not method:
            stem = results / WRITTEN_TABLES / (table if scale == 1 else f"{table}-x{scale:g}")
            markdown, latex = markdown or Path(f"{stem}.md"), latex or Path(f"{stem}.tex")
        for file, render in ((markdown, as_markdown), (latex, as_latex)):
            if file is not None:
                write_whole(file, render(chosen, rows, scale))
        if written := [file for file in (markdown, latex) if file is not None]:
            typer.echo("")
            say_written(written)
        else:
            typer.echo("\nNo file was written, as these are some rows; --markdown FILE or --latex FILE writes them.")
    else:
        others = store.scales({row.data for row in chosen.rows})
        shows = " or ".join(f"treevae paper show {table}{_read_options(results, other)}" for other in others)
        but = f", but at others: {shows}" if others else ""
        typer.echo(f"\nNothing is recorded at scale {scale:g}{but}; no file was written.")
    _tell_begun(chosen, store, scale)
    _tell_archive(f"show {table}", results)


paper.command("figure")(figure)


def _tell_begun(table: PaperTable, store: Store, scale: float) -> None:
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


def _read_options(results: Path, scale: float) -> str:
    """What leads a command that reads to the same records."""
    return options(results, scale, store_to_read())


def _tell_archive(command: str, results: Path) -> None:
    """In a clone, whose user has a store beside the project's, how to see that one."""
    if results == STORE and (ARCHIVE / RECORDS).is_dir():
        typer.echo(f"The project's own records: treevae paper {command} --results {ARCHIVE}")


def _check_there(results: Path) -> None:
    """Nothing is shown of, or written into, a folder whose name may be a slip."""
    _check_no_file(results)
    if not results.is_dir():
        raise ValueError(f"there is no folder {results}: name that of the records with --results, or run a table first")


def _check_no_file(results: Path) -> None:
    there = next(path for path in (results, *results.parents) if path.exists())
    if not there.is_dir():
        raise ValueError(f"{there} is a file, where a folder of records was to be; name another with --results")
