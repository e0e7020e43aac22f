"""The command that fits: start a run, go on with one, write what comes out of it."""

from __future__ import annotations

import os
import time
import warnings
from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import replace
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from ..recipes import PAPER, RECIPES
from .options import Drop, number_or_auto
from .outputs import make_writable
from .words import INTERRUPTED, LARGEST_SEED, count, drawing, sample_names, say_written, times

if TYPE_CHECKING:
    from ..data.dataset import DataSet
    from ..data.files import Table
    from ..estimator import TreeVAE
    from ..run import Run, Settings
    from ..storage.states import StateFolder

DATA_HELP = "Samples: .npy, .npz, .csv or .parquet, or a folder of pictures (png, jpg, bmp)."
GUIDES = "embedding, kmeans, networks, leiden or umap"
FIT_HELP = DATA_HELP + " Or a data set of the paper by name, with its recipe: see treevae data."


def fit(
    context: typer.Context,
    data: Annotated[str | None, typer.Argument(metavar="DATA", help=FIT_HELP)] = None,
    out: Annotated[Path | None, typer.Option("--out", "-o", metavar="RUN", help="The folder to write.")] = None,
    root: Annotated[
        Path | None, typer.Option(metavar="FOLDER", help="Where a data set lies; by default what $TREEVAE_DATA says.")
    ] = None,
    n_leaves: Annotated[int, typer.Option(help="Clusters to grow to; small ones are pruned at the end.")] = 10,
    max_depth: Annotated[int, typer.Option(help="Edges from the root to the deepest leaf allowed.")] = 6,
    latent_dim: Annotated[int, typer.Option(help="Size of the embedding at every node.")] = 8,
    hidden_dim: Annotated[int, typer.Option(help="Width of the hidden layers.")] = 128,
    likelihood: Annotated[str, typer.Option(help="auto, bernoulli, gaussian or gaussian_learnt.")] = "auto",
    scale: Annotated[
        str,
        typer.Option(help="How vectors are scaled inside: auto, none, one, feature (each its own) or unit (length)."),
    ] = "auto",
    network: Annotated[str, typer.Option(help="auto, mlp, deep_mlp, cnn, deep_cnn or resnet.")] = "auto",
    layer_defaults: Annotated[
        str,
        typer.Option(
            help="Whose norms and first weights the layers have: torch, or tensorflow as in the recipes of photographs."
        ),
    ] = "torch",
    leaf_rule: Annotated[
        str, typer.Option(help="Which leaf to split next: samples, reconstruction or elbo.")
    ] = "samples",
    start: Annotated[
        str, typer.Option(help="How the tree begins: guide (a cheap clustering), splits (from one cluster), or auto.")
    ] = "auto",
    guide: Annotated[
        str | None,
        typer.Option(
            metavar="NAME",
            help=f"The clustering to begin with: {GUIDES}; or the column of DATA (the array of a .npz) that has yours.",
        ),
    ] = None,
    neighbours: Annotated[
        int, typer.Option(help="Nearest neighbours of each sample that should share its cluster; 0 for none.")
    ] = 10,
    n_init: Annotated[
        str,
        typer.Option(help="Guides compared before a tree is trained, or candidates for a split; auto, or a number."),
    ] = "auto",
    augment: Annotated[
        str | None, typer.Option(help="Train on changed versions of the images: cifar, celeba, omniglot or none.")
    ] = None,
    contrastive_weight: Annotated[
        float, typer.Option(help="Of a loss that keeps such versions together; the paper takes 100 for photographs.")
    ] = 0.0,
    contrastive_loss: Annotated[
        str, typer.Option(help="both, routers, bottom_up, transposed, encoder or jensen_shannon.")
    ] = "both",
    epochs: Annotated[str, typer.Option(help="Time against quality: auto, or a number of epochs.")] = "auto",
    batch_size: Annotated[int, typer.Option(help="Samples in a training step.")] = 256,
    learning_rate: Annotated[float, typer.Option(help="Of Adam, at the start of every stage.")] = 1e-3,
    device: Annotated[str, typer.Option(help="auto (a CUDA GPU if there is one), cpu, cuda, cuda:1, …")] = "auto",
    seed: Annotated[
        int, typer.Option(min=0, max=LARGEST_SEED, help="The same seed and threads give the same tree.")
    ] = 0,
    drop: Drop = None,
    save_every: Annotated[float, typer.Option(help="Least seconds between two saves of the state of training.")] = 30.0,
    resume: Annotated[
        Path | None, typer.Option(metavar="RUN", help="Go on with a run that was interrupted or killed.")
    ] = None,
    force: Annotated[bool, typer.Option("--force", help="Replace the model, or the unfinished run, in RUN.")] = False,
) -> None:
    """Grow a tree on your samples and write model, labels and tree into the folder RUN.

    A data set's name (mnist, fashion, news20, omniglot, omniglot5, cifar10, cifar100, celeba, digits) stands for its
    training samples and for the paper's settings, which any option given here replaces; the tree is then scored on the
    test samples (record.json).

    RUN gets model.safetensors, labels.csv (sample, cluster), tree.txt, tree.json, run.json (how it was made) and, for
    images, tree.png. While it runs, the state of training is saved there too, so that nothing is lost to a crash:
    --resume goes on from it.

    Ctrl-C saves, writes the tree grown so far, and says how to go on.

    \b
    Example:
      treevae fit flowers.csv -o flowers --n-leaves 3 --drop species
      treevae fit photos/ -o photos-tree --n-leaves 20 --epochs 50
      treevae fit cells.csv -o cells --guide leiden_cluster
      treevae fit cifar10 -o runs/cifar10 --root ~/data
      treevae fit --resume photos-tree
    """
    from ..run import Run, Settings

    if resume is not None:
        given = _given(context)
        if extra := sorted(given - {"resume", "device", "save_every"}):
            names = ", ".join("DATA" if name == "data" else f"--{name.replace('_', '-')}" for name in extra)
            raise ValueError(f"--resume takes all settings from the run; leave out {names}, or start another with -o")
        run = Run(resume)
        settings = run.to_resume()
        if "device" in given:
            settings = replace(settings, options={**settings.options, "device": device})
        _fit_in(run, settings, save_every, start=False)
        return
    if data is None or out is None:
        raise ValueError("name the samples and the folder: treevae fit DATA -o RUN, or go on: treevae fit --resume RUN")
    options = {
        "n_leaves": n_leaves,
        "max_depth": max_depth,
        "latent_dim": latent_dim,
        "hidden_dim": hidden_dim,
        "likelihood": likelihood,
        "scale": scale,
        "network": network,
        "layer_defaults": layer_defaults,
        "start": start,
        "neighbours": neighbours,
        "leaf_rule": leaf_rule,
        "n_init": number_or_auto("--n-init", n_init),
        "augment": None if augment == "none" else augment,
        "contrastive_weight": contrastive_weight,
        "contrastive_loss": contrastive_loss,
        "epochs": number_or_auto("--epochs", epochs),
        "batch_size": batch_size,
        "learning_rate": learning_rate,
        "device": device,
        "random_state": seed,
    }
    settings = Settings(data, str(Path(data).resolve()), tuple(drop or ()), options, guide=guide)
    if data in RECIPES:  # a folder of that name is ./NAME
        from ..data.sets import data_root, source_of

        given = _given(context) | ({"start"} if guide is not None else set())  # which goes without splits
        if drop:
            raise ValueError(f"--drop is for tables of your own; {data} is a data set")
        recipe = {name: value for name, value in (PAPER | RECIPES[data]).items() if name not in given}
        found_at = str(data_root(root).resolve()) if source_of(data).folders else ""  # digits need none
        settings = Settings(data, found_at, (), options | recipe, is_set=True, guide=guide)
    elif root is not None:
        raise ValueError(f"--root is for data sets: {', '.join(RECIPES)}; {data} is none of them")
    _fit_in(Run(out), settings, save_every, start=True, force=force)


def _given(context: typer.Context) -> set[str]:
    """The parameters that stand on the command line."""
    sources = {name: context.get_parameter_source(name) for name in context.params}
    return {name for name, source in sources.items() if source is not None and source.name == "COMMANDLINE"}


def _fit_in(run: Run, settings: Settings, save_every: float, start: bool, force: bool = False) -> None:
    """Fit in a folder that no other process may use meanwhile: from the start, or from where it stood."""
    from ..estimator import TreeVAE
    from ..parameters import check_save_every, device_of
    from ..storage.fingerprint import fingerprint

    check_save_every(save_every)
    if start and not force:
        run.check_free()
    table, known, where = _read_samples(settings, start)
    guide = settings.guide if table.labels is None else table.labels
    model, states = TreeVAE(**settings.options, verbose=True), run.states(save_every)
    with ExitStack() as held:

        def begin() -> StateFolder:
            """Take the folder, now that the samples can be fitted: nothing was written before."""
            make_writable(run.path if start else run.folder)
            held.enter_context(states)
            if start:
                if not force:
                    run.check_free()  # nobody else has begun in the meantime
                run.begin(states, replace(settings, samples=fingerprint(table.X)))
            typer.echo(f"Read {count(len(table.X), 'sample')} of shape {times(table.X.shape[1:])} from {where}.")
            if model.network == "resnet" and device_of(model.device).type == "cpu":
                typer.echo("Note: resnet is meant for a GPU; on a CPU it is slow. Try it with a few photographs first.")
            return states

        _fit_and_write(model, table, guide, known, run, states, begin)


def _read_samples(settings: Settings, start: bool) -> tuple[Table, DataSet | None, str]:
    """The samples to fit, the data set that they are the training part of, if they are, and where they were found."""
    from ..data import load
    from ..data.files import Table, names_in, read
    from ..data.sets import check_not_a_set

    if settings.is_set:
        known = load(settings.data, settings.found_at or None)
        if known.note:
            typer.echo(f"Note: {known.note}")
        where = f" in {settings.found_at}" if settings.found_at else ""
        return Table(known.x_train), known, f"the training part of {known.name}{where}"
    path = Path(settings.data if start or not os.path.exists(settings.found_at) else settings.found_at)
    check_not_a_set(path)
    if settings.guide is not None and settings.guide_column is None and settings.guide in names_in(path, settings.drop):
        raise ValueError(
            f"--guide {settings.guide} is the name of a clustering, and of a column of {path}; rename the column"
        )
    return read(path, settings.drop, settings.guide_column, gaps=True), None, str(path)


def _fit_and_write(
    model: TreeVAE,
    table: Table,
    guide: Any,
    known: DataSet | None,
    run: Run,
    states: StateFolder,
    begin: Callable[[], StateFolder],
) -> None:
    """Fit, and write what comes out of it, also when interrupted."""
    from sklearn.exceptions import ConvergenceWarning

    started, whole = time.perf_counter(), True
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("always", ConvergenceWarning)
            warnings.filterwarnings("ignore", "leaves in the tree", ConvergenceWarning)  # fewer leaves: said below
            warnings.showwarning = lambda message, *_, **__: typer.echo(f"Warning: {message}", err=True)
            model.fit(table.frame, guide=guide, checkpoint=begin)
    except KeyboardInterrupt:
        if not states.lock.held:  # nothing has begun that could go on
            raise
        whole = False
    seconds, how_to_go_on = time.perf_counter() - started, f"Go on with: treevae fit --resume {run.path}"
    if not hasattr(model, "module_"):
        typer.echo(f"Interrupted after {seconds:.1f} s, before the first split was trained. {how_to_go_on}", err=True)
        raise typer.Exit(INTERRUPTED)
    n_grown = len(model.tree_.leaves)
    how = "Grew" if whole else "Interrupted; the tree grown so far is kept:"
    typer.echo(f"{how} {count(n_grown, 'cluster')} in {seconds:.1f} s\n\n{drawing(model)}\n")
    if whole and n_grown < model.n_leaves:
        more = "More --epochs, more samples or a smaller --batch-size can give more."
        if model.fitted_.guide is not None:
            more = "Another --guide, --neighbours 0 or --start splits can give more."
        typer.echo(
            f"{model.n_leaves} were asked for; the others were too small to split further, or were pruned. {more}"
        )
    say_written(_write_run(model, table, known, run))
    if not whole:
        typer.echo(how_to_go_on)
        raise typer.Exit(INTERRUPTED)
    states.clear()
    at = run.path
    typer.echo(f"Next: treevae report {at} writes a page that shows the tree, treevae explore {at} opens it with the")
    typer.echo(f"model behind it; or: treevae info {at}, treevae sample {at} -o samples.npy")


def _write_run(model: TreeVAE, table: Table, known: DataSet | None, run: Run) -> list[Path]:
    """The files written into a run's folder."""
    written = [run.write_model(model), *run.write_tree(model, sample_names(table), drawing(model))]
    if known is not None:
        from ..records import parameters_of, record

        command = f"treevae fit {known.name} with the parameters below"
        told = record(model.fitted_, parameters_of(model), known, model.random_state, command)
        written.append(run.write_record(told))
        scores = {"ELBO": told["elbo"]["ELBO"], **told.get("scores_percent", {})}
        typer.echo("On the test samples: " + ", ".join(f"{name} {value:.1f}" for name, value in scores.items()) + "\n")
    if find_spec("matplotlib") is not None and (known is not None or table.X.ndim > 2):
        from ..pictures.plots import data_set_picture, tree_picture

        picture = tree_picture(model, table.X) if known is None else data_set_picture(model, known)
        picture.savefig(run.picture_file)
        written.append(run.picture_file)
    return written
