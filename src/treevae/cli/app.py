"""The command line. Every command says what it did and where it put it; slow imports wait until they are needed."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from .. import __version__
from .fit import DATA_HELP, fit
from .options import Drop, RunPath
from .outputs import check_parent, make_writable, write_csv
from .pages import explore, report
from .paper import paper
from .score import score
from .words import INTERRUPTED, LARGEST_SEED, Commands, count, drawing, sample_names, say_note, say_written, times

if TYPE_CHECKING:
    import numpy as np

    from ..data.sets import Survey
    from ..estimator import TreeVAE

SETS_HELP = "mnist, fashion, news20, omniglot, omniglot5, cifar10, cifar100, celeba or digits; by default all."
DataPath = Annotated[Path, typer.Argument(metavar="DATA", help=DATA_HELP)]


app = typer.Typer(
    cls=Commands,
    no_args_is_help=True,
    add_completion=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)


def _say_version(wanted: bool) -> None:
    if wanted:
        typer.echo(f"treevae {__version__}")
        raise typer.Exit


@app.callback()
def treevae(
    version: Annotated[
        bool, typer.Option("--version", help="Show the version and exit.", callback=_say_version, is_eager=True)
    ] = False,
) -> None:
    """Find the groups, and the groups of groups, hidden in your data. Start with: treevae demo"""


def demo(
    out: Annotated[Path, typer.Option("--out", "-o", metavar="FOLDER", help="Where to write.")] = Path("demo"),
    seed: Annotated[int | None, typer.Option(min=0, max=LARGEST_SEED, help="Another seed than the demo's.")] = None,
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
    from ..run import Run
    from .demo import run

    if (there := Run(out)).has_model and not there.is_demo:
        raise ValueError(f"{out} holds a model that the demo did not write; name another folder with -o")
    make_writable(out)
    given = {"random_state": seed, "epochs": epochs, "batch_size": batch_size}
    typer.echo("Growing a tree on 6,000 images of Fashion-MNIST, without their labels.")
    try:
        outcome = run(out, {name: value for name, value in given.items() if value is not None})
    except KeyboardInterrupt:
        typer.echo("Interrupted: the demo is not finished.", err=True)
        raise typer.Exit(INTERRUPTED) from None
    n_leaves = len(outcome.model.tree_.leaves)
    typer.echo(f"Grew {count(n_leaves, 'cluster')} in {outcome.seconds:.0f} s. Sizes are of the training images,")
    typer.echo("the main class of each cluster and its share are of the test images:\n")
    typer.echo(drawing(outcome.model, outcome.main_class))
    typer.echo(f"\nOn the test images, in per cent, both trees with {n_leaves} leaves:\n\n{outcome.table}\n")
    typer.echo(outcome.verdict)
    typer.echo("TreeVAE had never seen the test images; Ward clustered the test images themselves.")
    typer.echo(f"ELBO of the test images: {outcome.elbo:.1f} nats.\n")
    say_written(outcome.written)
    if not any(path.suffix == ".png" for path in outcome.written):
        typer.echo("For the picture of the tree: pip install 'treevae[view]'")
    typer.echo(f"\nOpen in a browser: {outcome.written[-1].resolve().as_uri()}")
    typer.echo(f"Next: treevae explore {out} opens it with the model behind it; treevae report {out} writes it anew.")


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
      treevae data
      treevae data --root ~/data
      treevae data mnist news20 --root ~/data --download
    """
    from ..data.sets import SOURCES, data_root, fetch_missing, how_to_get, named_root, source_of, survey

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
    below = named_root(root)
    surveys = [survey(name, below) for name in chosen]
    if any(one.source.folders for one in surveys):
        typer.echo(_where(root, below) + "\n")
    typer.echo(f"{'name':<10} {'train':>7} {'test':>7} {'classes':>7}  {'folder':<20} files")
    typer.echo("\n".join(_row(one, below) for one in surveys))
    if any(one.source.folders and one.folder is None for one in surveys):
        named = "" if below is not None and root is None else f" --root {below or 'FOLDER'}"
        typer.echo(f"\nTo get one: treevae data NAME{named} --download. For CelebA that says how to get it by hand.")
    if download and (wrong := [one.source for one in surveys if one.size is None]):
        for source in wrong:
            typer.secho(f"{source.name} cannot be read: {how_to_get(source, data_root(root))}", fg="red", err=True)
        raise typer.Exit(1)


def _where(root: Path | None, below: Path | None) -> str:
    """Where data sets are looked for, given the folder on the command line and the one that is used."""
    from ..data.sets import ROOT

    if below is None:
        return f"No folder of data sets is named: pass --root FOLDER, or set ${ROOT}."
    return f"Data sets below {below}{f' (${ROOT})' if root is None else ''}"


def _row(survey: Survey, root: Path | None) -> str:
    """A line of the list of data sets."""
    source, size = survey.source, survey.size
    if size is None:
        what = f"incomplete or damaged: {survey.fault}" if survey.folder else f"not there: {source.about}"
        return f"{source.name:<10} {what}"
    folder = "" if survey.folder is None or root is None else str(survey.folder.relative_to(root))
    files = _file_states(list(survey.files.values())) if source.folders else "come with scikit-learn"
    if size != source.size:
        files += f"; the paper has {source.size.train:,} + {source.size.test:,} samples"
    classes = size.classes or "none"
    return f"{source.name:<10} {size.train:>7,} {size.test:>7,} {classes:>7}  {folder:<20} {files}"


def _file_states(states: Sequence[str]) -> str:
    """How the files of a set stand to the published ones."""
    from ..data.sets import DIFFERS, MISSING

    if not states:
        return "not checked: only the archive has a published checksum"
    counts = {"differ from the official files": states.count(DIFFERS), "not there": states.count(MISSING)}
    return ", ".join(f"{n} of {len(states)} {what}" for what, n in counts.items() if n) or "ok"


def predict(
    run: RunPath,
    data: DataPath,
    out: Annotated[
        Path | None, typer.Option("--out", "-o", metavar="FILE", help="The csv to write; by default it is printed.")
    ] = None,
    level: Annotated[int | None, typer.Option(help="Cut the tree at this depth; 0 is the root.")] = None,
    n_groups: Annotated[
        int | None, typer.Option("--groups", help="Cut the tree into this many groups instead.")
    ] = None,
    proba: Annotated[bool, typer.Option("--proba", help="Add the probability of each cluster.")] = False,
    drop: Drop = None,
) -> None:
    """Find the cluster of each sample: a csv with the columns sample and cluster.

    A sample is named by its row, counted from 0, or by the file of its picture. Columns that RUN was fitted without are
    left out, where they are, unless --drop names others.

    \b
    Example:
      treevae predict flowers new.csv -o labels.csv --groups 2
    """
    from ..data.files import read
    from ..data.sets import check_not_a_set
    from ..run import Run
    from ..subject import as_fitted

    fitted = Run(run)
    model = fitted.model()
    check_not_a_set(data, by_name=False)
    table = read(data, drop or (), None, fitted.left_out() if drop is None else ())
    check_parent(out)
    X, note = as_fitted(model, table, data)
    say_note(note)
    labels = model.predict(X, level=level, n_groups=n_groups)
    header, columns = ["sample", "cluster"], [sample_names(table), labels.tolist()]
    if proba:
        chance = model.predict_proba(X, level=level, n_groups=n_groups)
        header += [f"p{k}" for k in range(chance.shape[1])]
        columns += [[f"{p:.6g}" for p in column] for column in chance.T]
    write_csv(out, header, columns)
    if out is not None:
        typer.echo(f"Placed {count(len(labels), 'sample')} in {count(len(set(labels.tolist())), 'cluster')}.")
        say_written([out])


def sample(
    run: RunPath,
    out: Annotated[Path, typer.Option("--out", "-o", metavar="FILE", help="samples.npy, or samples.png for images.")],
    n: Annotated[int, typer.Option("-n", help="How many.")] = 16,
    leaf: Annotated[int | None, typer.Option(help="The cluster to sample from; by default the model chooses.")] = None,
    seed: Annotated[int, typer.Option(min=0, max=LARGEST_SEED, help="The same seed gives the same samples.")] = 0,
) -> None:
    """Make up new samples: an array of numbers, or a grid of pictures.

    \b
    Example:
      treevae sample demo -n 36 --leaf 2 -o samples.png
    """
    if out.suffix not in (".npy", ".png"):
        raise ValueError(f"{out} has the ending {out.suffix!r}; allowed are .npy and, for images, .png")
    check_parent(out)
    from ..run import Run

    drawn = Run(run).model().sample(n, leaf=leaf, random_state=seed)
    if out.suffix == ".npy":
        import numpy as np

        np.save(out, drawn)
    else:
        _write_grid(out, drawn)
    where = "" if leaf is None else f" from cluster {leaf}"
    typer.echo(f"Made {count(n, 'sample')} of shape {times(drawn.shape[1:])}{where}.")
    say_written([out])


def info(run: RunPath) -> None:
    """Show a fitted model: its tree with the sizes of the training samples, its parameters, how training ended.

    \b
    Example:
      treevae info demo
    """
    from ..data.units import WAYS
    from ..run import Run

    shown = Run(run)
    path, model = shown.model_file(), shown.model()
    parameters = {name: value for name, value in model.get_params().items() if name not in ("device", "verbose")}
    typer.echo(f"{path}, {path.stat().st_size / 1e6:.1f} MB\n\n{drawing(model)}\n")
    typer.echo(f"samples     {len(model.labels_):,} of {times(model.module_.arch.input_shape)} numbers")
    typer.echo(f"scale       {model.scale_}: {WAYS[model.scale_]}")
    typer.echo(f"weights     {sum(p.numel() for p in model.module_.parameters()):,} numbers")
    typer.echo(f"ELBO        {_last_elbo(model)}")
    if (guide := model.fitted_.guide) is not None:
        typer.echo(f"guide       {guide.name}: {count(guide.leaves, 'group')}, agreement {guide.agreement:.2f} nats")
    if run.is_dir() and shown.is_unfinished:
        typer.echo(f"unfinished  go on with: treevae fit --resume {run}")
    typer.echo("parameters  " + "\n            ".join(f"{name} = {value}" for name, value in parameters.items()))


def _write_grid(out: Path, images: np.ndarray) -> None:
    """Write images side by side, row after row, into one picture."""
    import numpy as np

    from ..data.arrays import InputForm

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


def _last_elbo(model: TreeVAE) -> str:
    """The ELBO in the last epoch in which a whole tree was trained: with a contrastive loss, the first."""
    fitted = model.fitted_
    last = [event for event in fitted.epochs if event.leaf is None][-1]
    where = f"epoch {last.epoch} of {last.epochs} of the stage {last.stage!r}"
    if last.contrast_routers is not None:
        where += f", {'with two leaves, ' if model.tree is None else ''}on augmented samples"
    return f"{fitted.log_density(last.elbo):.1f} nats a sample, in training ({where})"


COMMANDS: tuple[Callable[..., None], ...] = (demo, fit, data, predict, score, sample, info, report, explore)
for command in COMMANDS:  # in the order of the help
    app.command()(command)
app.add_typer(paper, name="paper")
