"""The command line. Every command says what it did and where it put it; slow imports wait until they are needed."""

from __future__ import annotations

import json
import os
import sys
import time
import warnings
from collections.abc import Iterable, Sequence
from contextlib import suppress
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from typer.core import TyperGroup

from .cli_paper import paper
from .recipes import RECIPES
from .writing import write_whole

if TYPE_CHECKING:
    import numpy as np

    from .data.dataset import DataSet
    from .data.files import Table
    from .data.sets import Survey
    from .estimator import TreeVAE
    from .training.runfolder import RunFolder

MODEL = "model.safetensors"
OUTPUTS = (MODEL, "labels.csv", "tree.txt", "tree.json", "record.json", "tree.png", "report.html")
SETTINGS = "run.json"
INTERRUPTED = 130  # exit code of a command ended by Ctrl-C


class Commands(TyperGroup):
    """The commands; a mistake of the user ends in one red line and exit code 1."""

    def invoke(self, ctx: Any) -> Any:
        """What the command returns."""
        try:
            return super().invoke(ctx)
        except BrokenPipeError:  # whoever read the output has seen enough
            raise
        except (ValueError, OSError, FloatingPointError) as error:
            typer.secho("Error: " + " ".join(str(error).split()), fg="red", err=True)
            raise typer.Exit(1) from error


app = typer.Typer(
    cls=Commands,
    no_args_is_help=True,
    add_completion=False,
    context_settings={"help_option_names": ["-h", "--help"]},
    help="Find the groups, and the groups of groups, hidden in your data. Start with: treevae demo",
)
app.add_typer(paper, name="paper")

DATA_HELP = "Samples: .npy, .npz, .csv or .parquet, or a folder of pictures (png, jpg, bmp)."
FIT_HELP = DATA_HELP + " Or a data set of the paper by name, with its recipe: see treevae data."
REPORT_HELP = "Other samples than those of RUN: a file, a folder or a data set, as in fit."
SETS_HELP = "mnist, fashion, news20, omniglot, omniglot5, cifar10, cifar100, celeba or digits; by default all."
DataPath = Annotated[Path, typer.Argument(metavar="DATA", help=DATA_HELP)]
RunPath = Annotated[Path, typer.Argument(metavar="RUN", help="The folder that fit wrote, or its model.safetensors.")]
Root = Annotated[Path | None, typer.Option(metavar="FOLDER", help="Where a data set lies, if not where fit found it.")]
Label = Annotated[
    str | None, typer.Option(metavar="COLUMN", help="The classes: a column of a table, or an array of a .npz file.")
]
OtherData = Annotated[Path | None, typer.Option("--data", metavar="DATA", help=REPORT_HELP)]
Title = Annotated[str | None, typer.Option(help="What stands above the page.")]
Map = Annotated[str, typer.Option("--map", help="umap, pca, or auto: UMAP where umap-learn is installed.")]
LOOKING = "Looking at the samples …"  # before what may take minutes
Drop = Annotated[
    list[str] | None, typer.Option(metavar="COLUMN", help="Leave a column of a table out; may be repeated.")
]


@app.command()
def demo(
    out: Annotated[Path, typer.Option("--out", "-o", metavar="FOLDER", help="Where to write.")] = Path("demo"),
    seed: Annotated[int | None, typer.Option(help="Another seed than the demo's.")] = None,
    epochs: Annotated[int | None, typer.Option(help="Other epochs of a growth stage than the demo's.")] = None,
    batch_size: Annotated[int | None, typer.Option(help="Another batch size than the demo's.")] = None,
) -> None:
    """Grow a tree on 6,000 pictures of clothes, draw it, and score it beside Ward's method.

    Writes the model, a picture of the tree, all numbers, and report.html, a page to explore the tree in a browser. The
    data come with treevae.

    \b
    Example:
      treevae demo
      treevae demo -o quick --epochs 2
    """
    from .demo import run

    if (out / MODEL).exists() and not (out / "metrics.json").exists():
        raise ValueError(f"{out} holds a model that the demo did not write; name another folder with -o")
    _make_writable(out)
    given = {"random_state": seed, "epochs": epochs, "batch_size": batch_size}
    typer.echo("Growing a tree on 6,000 images of Fashion-MNIST, without their labels.")
    try:
        found = run(out, {name: value for name, value in given.items() if value is not None})
    except KeyboardInterrupt:
        typer.echo("Interrupted: the demo is not finished.", err=True)
        raise typer.Exit(INTERRUPTED) from None
    n_leaves = len(found.model.tree_.leaves)
    typer.echo(f"Grew {_count(n_leaves, 'cluster')} in {found.seconds:.0f} s. Sizes are of the training images,")
    typer.echo("the main class of each cluster and its share are of the test images:\n")
    typer.echo(_drawing(found.model, found.main_class))
    typer.echo(f"\nOn the test images, in per cent, both trees with {n_leaves} leaves:\n\n{found.table}\n")
    typer.echo(found.verdict)
    typer.echo("TreeVAE had never seen the test images; Ward clustered the test images themselves.")
    typer.echo(f"ELBO of the test images: {found.elbo:.1f} nats.\n")
    _say_written(found.written)
    if not any(path.suffix == ".png" for path in found.written):
        typer.echo("For the picture of the tree: pip install 'treevae[view]'")
    typer.echo(f"\nOpen in a browser: {found.written[-1].resolve().as_uri()}")
    typer.echo(f"Next: treevae explore {out} opens it with the model behind it; treevae report {out} writes it anew.")


@app.command()
def fit(
    context: typer.Context,
    data: Annotated[Path | None, typer.Argument(metavar="DATA", help=FIT_HELP)] = None,
    out: Annotated[Path | None, typer.Option("--out", "-o", metavar="RUN", help="The folder to write.")] = None,
    root: Annotated[
        Path | None, typer.Option(metavar="FOLDER", help="Where a data set lies; by default what $TREEVAE_DATA says.")
    ] = None,
    n_leaves: Annotated[int, typer.Option(help="Clusters to grow to; small ones are pruned at the end.")] = 10,
    max_depth: Annotated[int, typer.Option(help="Edges from the root to the deepest leaf allowed.")] = 5,
    latent_dim: Annotated[int, typer.Option(help="Size of the embedding at every node.")] = 8,
    hidden_dim: Annotated[int, typer.Option(help="Width of the hidden layers.")] = 128,
    likelihood: Annotated[str, typer.Option(help="auto, bernoulli, gaussian or gaussian_learnt.")] = "auto",
    network: Annotated[str, typer.Option(help="auto, mlp, deep_mlp, cnn, deep_cnn or resnet.")] = "auto",
    framework: Annotated[
        str, typer.Option(help="Whose norms and first weights the layers have: torch or tensorflow.")
    ] = "torch",
    leaf_rule: Annotated[
        str, typer.Option(help="Which leaf to split next: samples, reconstruction, elbo or gain.")
    ] = "samples",
    n_init: Annotated[int, typer.Option(help="Candidates trained for every split; the best is kept.")] = 1,
    augment: Annotated[
        str | None, typer.Option(help="Train on changed versions of the images: cifar, celeba, omniglot or none.")
    ] = None,
    contrastive_weight: Annotated[
        float, typer.Option(help="Of a loss that keeps such versions together; the paper takes 100 for photographs.")
    ] = 0.0,
    contrastive_loss: Annotated[
        str, typer.Option(help="both, routers, bottom_up, transposed, encoder or jensen_shannon.")
    ] = "both",
    epochs: Annotated[int, typer.Option(help="Time against quality: epochs of a growth stage.")] = 150,
    batch_size: Annotated[int, typer.Option(help="Samples in a training step.")] = 256,
    learning_rate: Annotated[float, typer.Option(help="Of Adam, at the start of every stage.")] = 1e-3,
    device: Annotated[str, typer.Option(help="auto (a CUDA GPU if there is one), cpu, cuda, cuda:1, …")] = "auto",
    seed: Annotated[int, typer.Option(help="The same seed gives the same tree.")] = 0,
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
      treevae fit cifar10 -o runs/cifar10 --root ~/data
      treevae fit --resume photos-tree
    """
    if resume is not None:
        given = _given(context)
        if extra := sorted(given - {"resume", "device", "save_every"}):
            names = ", ".join("DATA" if name == "data" else f"--{name.replace('_', '-')}" for name in extra)
            raise ValueError(f"--resume takes all settings from the run; leave out {names}, or start another with -o")
        settings = _read_settings(resume)
        if "device" in given:
            settings["options"]["device"] = device
        _fit_in(resume, settings, save_every, start=False)
        return
    if data is None or out is None:
        raise ValueError("name the samples and the folder: treevae fit DATA -o RUN, or go on: treevae fit --resume RUN")
    options = {
        "n_leaves": n_leaves,
        "max_depth": max_depth,
        "latent_dim": latent_dim,
        "hidden_dim": hidden_dim,
        "likelihood": likelihood,
        "network": network,
        "framework": framework,
        "leaf_rule": leaf_rule,
        "n_init": n_init,
        "augment": None if augment == "none" else augment,
        "contrastive_weight": contrastive_weight,
        "contrastive_loss": contrastive_loss,
        "epochs": epochs,
        "batch_size": batch_size,
        "learning_rate": learning_rate,
        "device": device,
        "random_state": seed,
    }
    settings = {"data": str(data), "found_at": str(data.resolve()), "drop": drop or [], "options": options}
    if str(data) in RECIPES:  # a folder of that name is ./NAME
        from .data.sets import data_root, source_of

        given = _given(context)
        if drop:
            raise ValueError(f"--drop is for tables of your own; {data} is a data set")
        recipe = {name: value for name, value in RECIPES[str(data)].items() if name not in given}
        found_at = str(data_root(root).resolve()) if source_of(str(data)).folders else ""  # digits need none
        settings |= {"found_at": found_at, "options": options | recipe, "set": True}
    elif root is not None:
        raise ValueError(f"--root is for data sets: {', '.join(RECIPES)}; {data} is none of them")
    _fit_in(out, settings, save_every, start=True, force=force)


def _given(context: typer.Context) -> set[str]:
    """The parameters that stand on the command line."""
    sources = {name: context.get_parameter_source(name) for name in context.params}
    return {name for name, source in sources.items() if source is not None and source.name == "COMMANDLINE"}


def _unfinished(run: Path) -> bool:
    """Whether the folder holds the state of a fit that has not ended."""
    from .training.runfolder import STATES

    return any((run / name).exists() for name in STATES)


def _check_free(out: Path) -> None:
    """Raise if the folder holds something that a new run would replace."""
    if _unfinished(out):
        raise ValueError(
            f"{out} holds an unfinished run; go on with: treevae fit --resume {out}, start anew with --force, or name "
            "another folder with -o"
        )
    if (out / MODEL).exists():
        raise ValueError(f"{out} already holds a model; name another folder with -o, or replace it with --force")


def _read_settings(run: Path) -> dict[str, Any]:
    """How a run was started."""
    from .estimator import TreeVAE
    from .training.checkpoint import parsed

    path = run / SETTINGS
    if not path.is_file():
        raise FileNotFoundError(f"{run} has no {SETTINGS}: treevae fit has not begun a run there")
    try:
        settings = parsed(path.read_text(encoding="utf-8"))
        if not isinstance(settings, dict) or not {"data", "found_at", "drop", "options"} <= set(settings):
            raise ValueError("it lacks an entry")
        drop, options = settings["drop"], settings["options"]
        if not all(isinstance(settings[name], str) and "\0" not in settings[name] for name in ("data", "found_at")):
            raise ValueError("data and found_at must be paths")
        if not isinstance(drop, list) or not all(isinstance(name, str) for name in drop):
            raise ValueError("drop must be a list of columns")
        if not isinstance(options, dict) or options.keys() - set(TreeVAE._get_param_names()):
            raise ValueError(f"options are not those of a fit: {str(options)[:80]}")
    except ValueError as error:
        raise ValueError(f"{path} cannot be read: {error}") from error
    if (run / MODEL).exists() and not _unfinished(run):
        raise ValueError(f"the run in {run} is finished: see it with treevae info {run}")
    return settings


def _fit_in(out: Path, settings: dict[str, Any], save_every: float, start: bool, force: bool = False) -> None:
    """Fit in a folder that no other process may use meanwhile: from the start, or from where it stood."""
    from .estimator import TreeVAE
    from .fitting import run_folder

    if start and not force:
        _check_free(out)
    table, known, where = _read_samples(settings, start)
    model = TreeVAE(**settings["options"], verbose=True)
    model._check(table.frame, save_every)  # before anything is written
    _make_writable(out)
    with run_folder(out, save_every) as folder:
        if start:
            if not force:
                _check_free(out)  # nobody else has begun in the meantime
            folder.clear()
            for name in OUTPUTS:
                (out / name).unlink(missing_ok=True)
            write_whole(out / SETTINGS, json.dumps(settings, indent=2) + "\n")
        typer.echo(f"Read {_count(len(table.X), 'sample')} of shape {_times(table.X.shape[1:])} from {where}.")
        _fit_and_write(model, table, known, out, folder)


def _read_samples(settings: dict[str, Any], start: bool) -> tuple[Table, DataSet | None, str]:
    """The samples to fit, the data set that they are the training part of, if they are, and where they were found."""
    from .data import load
    from .data.files import Table, read

    if settings.get("set"):
        known = load(settings["data"], settings["found_at"] or None)
        if known.note:
            typer.echo(f"Note: {known.note}")
        where = f" in {settings['found_at']}" if settings["found_at"] else ""
        return Table(known.x_train), known, f"the training part of {known.name}{where}"
    path = Path(settings["data"] if start or not os.path.exists(settings["found_at"]) else settings["found_at"])
    return read(path, settings["drop"]), None, str(path)


def _fit_and_write(model: TreeVAE, table: Table, known: DataSet | None, out: Path, folder: RunFolder) -> None:
    """Fit, and write what comes out of it, also when interrupted."""
    from sklearn.exceptions import ConvergenceWarning

    started, whole = time.perf_counter(), True
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", category=ConvergenceWarning)  # of fewer leaves than asked for: said below
            model.fit(table.frame, checkpoint=folder)
    except KeyboardInterrupt:
        whole = False
    seconds, how_to_go_on = time.perf_counter() - started, f"Go on with: treevae fit --resume {out}"
    if not hasattr(model, "module_"):
        typer.echo(f"Interrupted after {seconds:.1f} s, before the first split was trained. {how_to_go_on}", err=True)
        raise typer.Exit(INTERRUPTED)
    n_grown = len(model.tree_.leaves)
    how = "Grew" if whole else "Interrupted; the tree grown so far is kept:"
    typer.echo(f"{how} {_count(n_grown, 'cluster')} in {seconds:.1f} s\n\n{_drawing(model)}\n")
    if whole and n_grown < model.n_leaves:
        typer.echo(f"{model.n_leaves} were asked for; the others were too small to split further, or were pruned.")
    _say_written(_write_run(model, table, known, out))
    if not whole:
        typer.echo(how_to_go_on)
        raise typer.Exit(INTERRUPTED)
    folder.clear()
    typer.echo(f"Next: treevae report {out} writes a page that shows the tree, treevae explore {out} opens it with the")
    typer.echo(f"model behind it; or: treevae info {out}, treevae sample {out} -o samples.npy")


@app.command()
def data(
    names: Annotated[list[str] | None, typer.Argument(metavar="NAME", help=SETS_HELP)] = None,
    root: Annotated[
        Path | None, typer.Option(metavar="FOLDER", help="Where the sets lie; by default what $TREEVAE_DATA says.")
    ] = None,
    download: Annotated[
        bool, typer.Option("--download", help="Fetch what is missing of the named sets first.")
    ] = False,
) -> None:
    """List the data sets of the paper: which are there, how large, and whether they are the published files.

    Python reads them with treevae.data.load(NAME). They are looked for below --root or $TREEVAE_DATA, in the layouts
    in which they are published. Files that differ from the published ones are read all the same.

    \b
    Example:
      treevae data --root ~/data
      treevae data mnist news20 --root ~/data --download
    """
    from .data.sets import ROOT, SOURCES, data_root, fetch_missing, source_of, survey

    chosen = [source_of(name).name for name in names or SOURCES]  # a wrong name is said before anything is fetched
    if download:
        if not names:
            raise ValueError(f"name what to download: treevae data NAME --download; there are {', '.join(SOURCES)}")
        try:
            for name in chosen:
                fetch_missing(name, root)
        except KeyboardInterrupt:
            typer.echo("Interrupted: nothing was kept of the file that was being fetched.", err=True)
            raise typer.Exit(INTERRUPTED) from None
    below = data_root(root)
    found = [survey(name, below) for name in chosen]
    typer.echo(f"Data sets below {below}{f' (${ROOT})' if root is None else ''}\n")
    typer.echo(f"{'name':<10} {'train':>7} {'test':>7} {'classes':>7}  {'folder':<20} files")
    typer.echo("\n".join(_row(one, below) for one in found))
    if any(one.source.folders and one.folder is None for one in found):
        typer.echo("\nTo get one: treevae data NAME --download. For CelebA that says how to get it by hand.")


def _row(found: Survey, root: Path) -> str:
    """A line of the list of data sets."""
    source, size = found.source, found.size
    if size is None:
        what = f"incomplete: {found.fault}" if found.folder else f"not there: {source.about}"
        return f"{source.name:<10} {what}"
    folder = "" if found.folder is None else str(found.folder.relative_to(root))
    files = _file_states(list(found.files.values())) if source.folders else "come with scikit-learn"
    if size != source.size:
        files += f"; the paper has {source.size.train:,} + {source.size.test:,} samples"
    classes = size.classes or "none"
    return f"{source.name:<10} {size.train:>7,} {size.test:>7,} {classes:>7}  {folder:<20} {files}"


def _file_states(states: Sequence[str]) -> str:
    """How the files of a set stand to the published ones."""
    from .data.sets import DIFFERS, MISSING

    if not states:
        return "not checked: only the archive has a published checksum"
    counts = {"differ from the official files": states.count(DIFFERS), "not there": states.count(MISSING)}
    return ", ".join(f"{n} of {len(states)} {what}" for what, n in counts.items() if n) or "ok"


@app.command()
def predict(
    run: RunPath,
    data: DataPath,
    out: Annotated[
        Path | None, typer.Option("--out", "-o", metavar="FILE", help="The csv to write; by default it is printed.")
    ] = None,
    level: Annotated[int | None, typer.Option(help="Cut the tree at this depth; 0 is the root.")] = None,
    groups: Annotated[int | None, typer.Option(help="Cut the tree into this many groups instead.")] = None,
    proba: Annotated[bool, typer.Option("--proba", help="Add the probability of each cluster.")] = False,
    drop: Drop = None,
) -> None:
    """Find the cluster of each sample: a csv with the columns sample and cluster.

    A sample is named by its row, counted from 0, or by the file of its picture.

    \b
    Example:
      treevae predict flowers new.csv -o labels.csv --groups 2
    """
    from .data.files import read

    model, table = _load(run), read(data, drop or ())
    _check_parent(out)
    X = table.frame if hasattr(model, "feature_names_in_") else table.X
    labels = model.predict(X, level=level, n_groups=groups)
    header, columns = ["sample", "cluster"], [_names(table), labels.tolist()]
    if proba:
        chance = model.predict_proba(X, level=level, n_groups=groups)
        header += [f"p{k}" for k in range(chance.shape[1])]
        columns += [[f"{p:.6g}" for p in column] for column in chance.T]
    _write_csv(out, header, columns)
    if out is not None:
        typer.echo(f"Placed {_count(len(labels), 'sample')} in {_count(len(set(labels.tolist())), 'cluster')}.")
        _say_written([out])


@app.command()
def sample(
    run: RunPath,
    out: Annotated[Path, typer.Option("--out", "-o", metavar="FILE", help="samples.npy, or samples.png for images.")],
    n: Annotated[int, typer.Option("-n", help="How many.")] = 16,
    leaf: Annotated[int | None, typer.Option(help="The cluster to sample from; by default the model chooses.")] = None,
    seed: Annotated[int, typer.Option(help="The same seed gives the same samples.")] = 0,
) -> None:
    """Make up new samples: an array of numbers, or a grid of pictures.

    \b
    Example:
      treevae sample demo -n 36 --leaf 2 -o samples.png
    """
    if out.suffix not in (".npy", ".png"):
        raise ValueError(f"{out} has the ending {out.suffix!r}; allowed are .npy and, for images, .png")
    _check_parent(out)
    drawn = _load(run).sample(n, leaf=leaf, random_state=seed)
    if out.suffix == ".npy":
        import numpy as np

        np.save(out, drawn)
    else:
        _write_grid(out, drawn)
    where = "" if leaf is None else f" from cluster {leaf}"
    typer.echo(f"Made {_count(n, 'sample')} of shape {_times(drawn.shape[1:])}{where}.")
    _say_written([out])


@app.command()
def info(run: RunPath) -> None:
    """Show a fitted model: its tree with the sizes of the training samples, its parameters, how training ended.

    \b
    Example:
      treevae info demo
    """
    path, model = _model_file(run), _load(run)
    parameters = {name: value for name, value in model.get_params().items() if name not in ("device", "verbose")}
    typer.echo(f"{path}, {path.stat().st_size / 1e6:.1f} MB\n\n{_drawing(model)}\n")
    typer.echo(f"samples     {len(model.labels_):,} of {_times(model.module_.arch.input_shape)} numbers")
    typer.echo(f"weights     {sum(p.numel() for p in model.module_.parameters()):,} numbers")
    typer.echo(f"ELBO        {_last_elbo(model)}")
    if path.parent == run and _unfinished(run):
        typer.echo(f"unfinished  go on with: treevae fit --resume {run}")
    typer.echo("parameters  " + "\n            ".join(f"{name} = {value}" for name, value in parameters.items()))


@app.command()
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
    path, model = _model_file(run), _load(run)
    out = path.parent / "report.html" if out is None else out
    _check_parent(out)
    from .subject import subject_of
    from .view.report import write_report

    subject = subject_of(model, run, data, root, drop, label)
    typer.echo(LOOKING)
    shown = subject.snapshot(model, **_how(title, map_method))
    write_report(shown, out)
    about = shown.bundle
    typer.echo(
        f"{_count(about['n_samples'], 'sample')} in {_count(len(model.tree_.leaves), 'cluster')}; {about['n_shown']:,} "
        f"of them are shown, on a map by {about['map']['method']}. {out.stat().st_size / 1e6:.1f} MB."
    )
    _say_written([out])
    typer.echo(f"Open in a browser: {out.resolve().as_uri()}")


@app.command()
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
    from .serve.app import create_app
    from .serve.messages import Status
    from .serve.server import address_of, bind, door_of, open_browser, serve
    from .serve.site import Ready, Site, Watch
    from .serve.watching import finished
    from .serve.workers import Workers
    from .subject import subject_of
    from .view.snapshot import map_of

    def prepare() -> Ready:
        model = _load(run)
        return Ready.of_subject(model, subject_of(model, run, data, root, drop, label), **_how(title, map_method))

    if watch and not _begun(run):
        raise FileNotFoundError(f"there is no run in {run} to watch; treevae fit -o {run} begins one")
    if not watch and _unfinished(run) and not (run / MODEL).exists():
        raise FileNotFoundError(f"the fit in {run} has not ended; see it grow with: treevae explore {run} --watch")
    map_of(map_method)  # before the work, as the port
    door, workers = door_of(host, token), Workers()
    with bind(host, port) as bound:  # before the work, so that a port in use is said at once
        grows = watch and run.is_dir() and not finished(run)
        if grows:
            site = Site(None, Status(state="training", title=title or run.resolve().name))
            watcher = Watch(site, run, prepare)
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


def _begun(run: Path) -> bool:
    """Whether a fit has begun in the folder, or has ended there."""
    return _unfinished(run) or any((run / name).exists() for name in (SETTINGS, MODEL)) or run.is_file()


# -- RUN --------------------------------------------------------------------------------------------------------


def _model_file(run: Path) -> Path:
    """The model's file, given itself or its folder."""
    if not run.exists():
        raise FileNotFoundError(f"there is no run {run}; treevae fit writes one")
    path = run / MODEL if run.is_dir() else run
    if not path.exists():
        begun = (
            f"its fit has not ended, go on with: treevae fit --resume {run}"
            if _unfinished(run)
            else "treevae fit writes one"
        )
        raise FileNotFoundError(f"the folder {run} has no {MODEL} in it; {begun}")
    return path


def _load(run: Path) -> TreeVAE:
    """The model of a run."""
    path = _model_file(run)
    from .estimator import load

    return load(path)


def _write_run(model: TreeVAE, table: Table, known: DataSet | None, folder: Path) -> list[Path]:
    """The files written into a run's folder."""
    model.save(folder / MODEL)
    _write_csv(folder / "labels.csv", ["sample", "cluster"], [_names(table), model.labels_.tolist()])
    (folder / "tree.txt").write_text(_drawing(model) + "\n", encoding="utf-8")
    (folder / "tree.json").write_text(model.tree_.to_json() + "\n")
    written = [folder / name for name in OUTPUTS[:4]]
    if known is not None:
        from .experiments.records import record

        found = record(model, known, model.random_state, f"treevae fit {known.name} with the parameters below")
        (folder / "record.json").write_text(json.dumps(found, indent=1) + "\n", encoding="utf-8")
        written.append(folder / "record.json")
        scores = {"ELBO": found["elbo"]["ELBO"], **found.get("scores_percent", {})}
        typer.echo("On the test samples: " + ", ".join(f"{name} {value:.1f}" for name, value in scores.items()) + "\n")
    if find_spec("matplotlib") is not None and (known is not None or table.X.ndim > 2):
        from .view.plots import data_set_picture, tree_picture

        written.append(folder / "tree.png")
        (tree_picture(model, table.X) if known is None else data_set_picture(model, known)).savefig(written[-1])
    return written


def _make_writable(folder: Path) -> None:
    """Make the folder, and raise if nothing can be written into it."""
    from tempfile import TemporaryFile

    try:
        folder.mkdir(parents=True, exist_ok=True)
        with TemporaryFile(dir=folder):
            pass
    except OSError as error:
        raise ValueError(f"cannot write into the folder {folder}: {error.strerror}; name another with -o") from error


def _check_parent(out: Path | None) -> None:
    if out is not None and not out.parent.is_dir():
        raise FileNotFoundError(f"there is no folder {out.parent} to write {out.name} into; make it first")


def _write_csv(out: Path | None, header: Sequence[str], columns: Iterable[Iterable[Any]]) -> None:
    """Write columns to a file, or to standard output."""
    import csv
    from contextlib import nullcontext

    with nullcontext(sys.stdout) if out is None else out.open("w", newline="", encoding="utf-8") as file:
        writer = csv.writer(file, lineterminator="\n")
        writer.writerow(header)
        writer.writerows(zip(*columns, strict=True))


def _write_grid(out: Path, images: np.ndarray) -> None:
    """Write images side by side, row after row, into one picture."""
    import numpy as np

    from .data.arrays import InputForm

    if images.ndim < 3:
        raise ValueError(f"the samples are vectors of {images.shape[1]} numbers, not images; write them to a .npy file")
    try:
        from PIL import Image
    except ImportError as error:
        raise ValueError("writing .png needs Pillow: pip install 'treevae[files]', or write a .npy file") from error
    low, high = float(images.min()), float(images.max())
    if low < -1 or high > 2:  # fitted on another range than [0, 1]
        images = (images - low) / (high - low)
    form = InputForm.of(images)
    n, (c, h, w), gap = len(images), form.shape, 2
    across = int(np.ceil(np.sqrt(n)))
    grid = np.ones((-(-n // across) * (h + gap) + gap, across * (w + gap) + gap, c))  # white
    for i, tile in enumerate(form.to_matrix(images).reshape(n, c, h, w)):
        y, x = gap + i // across * (h + gap), gap + i % across * (w + gap)
        grid[y : y + h, x : x + w] = np.moveaxis(tile, 0, 2)
    pixels = (grid.clip(0, 1) * 255).round().astype(np.uint8)
    Image.fromarray(pixels[:, :, 0] if c == 1 else pixels).save(out)


# -- words ------------------------------------------------------------------------------------------------------


def _drawing(model: TreeVAE, notes: Sequence[str] | None = None) -> str:
    """The tree with the number of training samples at each node, and a note at each leaf where there are any."""
    import numpy as np

    tree = model.tree_
    sizes = dict(zip(tree.leaves, np.bincount(model.labels_, minlength=len(tree.leaves)).tolist(), strict=True))

    def describe(node: int) -> str:
        if not tree.is_leaf(node):
            return _count(sum(sizes[leaf] for leaf in tree.leaves_below(node)), "sample")
        k = tree.leaves.index(node)
        return f"cluster {k}: {_count(sizes[node], 'sample')}" + ("" if notes is None else f", {notes[k]}")

    return tree.draw(describe)


def _names(table: Table) -> Sequence[Any]:
    """What the samples are called: the files of pictures, else numbers."""
    return table.sample_names or range(len(table.X))


def _count(n: int, what: str) -> str:
    return f"{n:,} {what}{'' if n == 1 else 's'}"


def _times(shape: Iterable[int]) -> str:
    return " × ".join(map(str, shape))


def _last_elbo(model: TreeVAE) -> str:
    """The ELBO in the last epoch in which the whole tree was trained."""
    epochs = [event for event in model.history_ if event["event"] == "EpochEnded" and event["leaf"] is None]
    last, arch = epochs[-1], model.module_.arch
    elbo = last["reconstruction"] - last["kl_root"] - last["kl_nodes"] - last["kl_decisions"]
    scaled = len(arch.input_shape) == 1 and arch.likelihood == "gaussian_learnt"
    units = " of scaled features" if scaled else ""
    where = f"epoch {last['epoch']} of {last['epochs']} of the stage {last['stage']!r}"
    return f"{elbo:.1f} nats a sample{units}, in training ({where})"


def _say_written(paths: Sequence[Path]) -> None:
    typer.echo("Wrote " + ", ".join(map(str, paths)))
