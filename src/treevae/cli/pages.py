"""The commands that show a model in a browser: report writes a page, explore serves it with the model behind it."""

from __future__ import annotations

from contextlib import suppress
from importlib.util import find_spec
from pathlib import Path
from typing import Annotated, Any

import typer

from .options import Drop, OtherData, Root, RunPath
from .words import count, say_note, say_written

Label = Annotated[
    str | None, typer.Option(metavar="COLUMN", help="The classes: a column of a table, or an array of a .npz file.")
]
Title = Annotated[str | None, typer.Option(help="What stands above the page.")]
Map = Annotated[str, typer.Option("--map", help="umap, pca, or auto: UMAP where umap-learn is installed.")]
LOOKING = "Looking at the samples …"  # before what may take minutes


def report(
    run: RunPath,
    out: Annotated[
        Path | None, typer.Option("--out", "-o", metavar="FILE", help="The page; by default report.html in RUN.")
    ] = None,
    data: OtherData = None,
    root: Root = None,
    drop: Drop = None,
    label: Label = None,
    title: Title = None,
    map_method: Map = "auto",
) -> None:
    """Write one page, report.html, that shows a fitted model in a browser, without a network: to look at, to send.

    The tree with its images, words or features, what tells its branches apart, a map of the samples. They are those
    that RUN was fitted on, where they still lie; of a data set the test samples, with their classes.

    \b
    Example:
      treevae report demo
      treevae report flowers --label species -o flowers.html
      treevae report runs/mnist --data mnist --root ~/data
    """
    from ..page.report import page_path, write_report
    from ..run import Run
    from ..subject import subject_of

    fitted = Run(run)
    model = fitted.model()
    out = page_path(fitted.report_file if out is None else out, "--out ")
    subject = subject_of(model, fitted, data, root, drop, label)
    say_note(subject.note)
    typer.echo(LOOKING)
    shown = subject.snapshot(model, **_how(title, map_method))
    write_report(shown, out)
    about = shown.bundle
    typer.echo(
        f"{count(about['n_samples'], 'sample')} in {count(len(model.tree_.leaves), 'cluster')}; {about['n_shown']:,} "
        f"of them are shown, on a map by {about['map']['method']}. {out.stat().st_size / 1e6:.1f} MB."
    )
    if len(model.tree_.leaves) == 1:
        typer.echo("There is no tree to look at: all splits were pruned. A fit with more --epochs may keep some.")
    say_written([out])
    typer.echo(f"Open in a browser: {out.resolve().as_uri()}")


def explore(
    run: RunPath,
    data: OtherData = None,
    root: Root = None,
    drop: Drop = None,
    label: Label = None,
    title: Title = None,
    map_method: Map = "auto",
    host: Annotated[
        str, typer.Option(help="The address to listen on; other machines can only reach another, and need a token.")
    ] = "127.0.0.1",
    port: Annotated[int, typer.Option(min=0, max=65535, help="The port to listen on; 0 is any that is free.")] = 8000,
    token: Annotated[
        bool | None,
        typer.Option("--token/--no-token", help="Ask for a token, as always where other machines can connect."),
    ] = None,
    watch: Annotated[
        bool, typer.Option("--watch", help="Show a run that is still training while its tree grows.")
    ] = False,
    browser: Annotated[bool, typer.Option("--open/--no-open", help="Open it in a browser, where there is one.")] = True,
) -> None:
    """Explore a fitted model in a browser: the page of treevae report, and a model behind it that can be asked.

    Generate samples from any node, place a sample of your own in the tree, walk a draw of the root through all leaves,
    go from one sample to another. The same calls answer in JSON; /api/openapi.json describes them.

    Only this machine can reach it, but every user of it, unless --token is given: the address that is printed then
    holds a token. With another --host it always does. Ctrl-C ends it.

    \b
    Example:
      treevae explore demo
      treevae explore photos-tree --watch --port 0 --no-open
    """
    for needed in ("fastapi", "uvicorn", "PIL", "multipart"):
        if find_spec(needed) is None:
            raise ValueError(f"treevae explore needs {needed}, which is missing: pip install 'treevae[serve]'")
    from ..page.snapshot import map_of
    from ..run import Run
    from ..serve.app import create_app
    from ..serve.messages import Status
    from ..serve.server import address_of, bind, door_of, open_browser, serve
    from ..serve.site import Ready, Site, Watch
    from ..serve.workers import Workers
    from ..subject import subject_of, told

    watched = Run(run)

    def prepare() -> Ready:
        model = watched.model()
        subject = subject_of(model, watched, data, root, drop, label)
        say_note(subject.note)
        return Ready.of_subject(model, subject, **_how(title, map_method))

    if watch and not watched.has_begun:
        raise FileNotFoundError(f"there is no run in {run} to watch; treevae fit -o {run} begins one")
    if not watch and watched.is_unfinished and not watched.has_model:
        raise FileNotFoundError(f"the fit in {run} has not ended; see it grow with: treevae explore {run} --watch")
    if watched.has_settings:
        told(watched, data, drop)  # one that cannot be read is said at once, as a port in use
    map_of(map_method)  # before the work, as the port
    door, workers = door_of(host, token), Workers()
    with bind(host, port) as bound:  # before the work, so that a port in use is said at once
        grows = watch and run.is_dir() and not watched.is_finished
        if grows:
            site = Site(None, Status(state="training", title=title or run.resolve().name))
            watcher = Watch(site, watched, prepare)
            watcher.look()
            watcher.start()
        else:
            typer.echo(LOOKING)
            ready = prepare()
            site = Site(ready, ready.status)
        address = address_of(bound, door)

        def say() -> None:
            typer.echo(f"{'Watching' if grows else 'Exploring'} {run} at {address}")
            if door.token is None:
                typer.echo("Every user of this machine can open it; with --token only those who know the address.")
            typer.echo("Ctrl-C ends it.")
            if browser:
                open_browser(address)

        with suppress(KeyboardInterrupt):
            serve(create_app(site, workers, door), bound, say)
        workers.close()
        typer.echo("Ended.")


def _how(title: str | None, map_method: str) -> dict[str, Any]:
    """What report and explore say about the page; without a title it has that of the samples."""
    return {"map_method": map_method} | ({} if title is None else {"title": title})
