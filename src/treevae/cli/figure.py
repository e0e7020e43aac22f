"""The command of the paper's figures: treevae paper figure."""

from __future__ import annotations

from importlib.util import find_spec
from pathlib import Path
from typing import Annotated

import typer

from .outputs import check_parent
from .words import say_written

NAME_HELP = "tree, generations, all-leaves, root-map or average-dendrogram."
SUFFIXES = (".png", ".pdf", ".svg")


def figure(
    name: Annotated[str, typer.Argument(metavar="NAME", help=NAME_HELP)],
    data: Annotated[str, typer.Option(metavar="NAME", help="The data set, by its name in treevae data.")],
    models: Annotated[Path, typer.Option(metavar="FOLDER", help="The models that treevae paper run --models kept.")],
    seed: Annotated[int | None, typer.Option(min=0, help="Of the model to draw; by default 0.")] = None,
    n_leaves: Annotated[
        int | None, typer.Option(min=1, help="Leaves that the fit was asked for; by default those of the recipe.")
    ] = None,
    scale: Annotated[float, typer.Option(help="Of the schedule that the models were fitted with.")] = 1.0,
    root: Annotated[
        Path | None, typer.Option(metavar="FOLDER", help="Where the data sets lie; by default what $TREEVAE_DATA says.")
    ] = None,
    out: Annotated[
        Path | None,
        typer.Option("--out", "-o", metavar="FILE", help="A .png, .pdf or .svg; by default a .png beside the models."),
    ] = None,
) -> None:
    """Draw a figure of the paper, of models that treevae paper run --models has kept and of the test samples.

    \b
      tree                the tree with images (news20: words)
      generations         images that each leaf generates, a row a leaf
      all-leaves          draws of the root, each as every leaf shows it
      root-map            UMAP of the root's embedding, coloured by class
      average-dendrogram  what the trees of all seeds have in common

    The first four are of one seed's model. For the average, the leaves of all trees are matched with those of the first
    by the samples they share, the edges between clusters are counted in each tree and averaged, and clusters are joined
    by average linkage; trees with another number of leaves than most are left out, and named. The map is by PCA where
    umap-learn is not installed; celeba's tree has attributes instead of images.

    \b
    Example:
      treevae paper run digits --method treevae --seeds 6 --scale 0.2 --models kept
      treevae paper figure tree --data digits --scale 0.2 --models kept -o tree.pdf
      treevae paper figure average-dendrogram --data digits --scale 0.2 --models kept
      treevae paper figure tree --data fashion --n-leaves 20 --models kept
    """
    if find_spec("matplotlib") is None:
        raise ValueError("treevae paper figure needs matplotlib, which is missing: pip install 'treevae[view]'")
    from ..data import load
    from ..experiments.drawing import cell_of, drawing_of, models_of
    from ..experiments.models import Models
    from ..pictures.canvas import write_figure

    drawing, cell = drawing_of(name), cell_of(data, n_leaves, scale)
    if drawing.of_all_seeds and seed is not None:
        raise ValueError(f"--seed {seed} cannot be given with {name}, which is of all seeds; leave it out")
    of_seed = "" if drawing.of_all_seeds else f"-seed{seed or 0}"
    out = models / f"{cell.about}{of_seed}-{name}.png" if out is None else out
    if out.suffix.lower() not in SUFFIXES:
        raise ValueError(f"--out {out} must end in {', '.join(SUFFIXES)}, which says how the figure is written")
    fitted = models_of(Models(models), cell, None if drawing.of_all_seeds else seed or 0)
    check_parent(out)
    samples = load(data, root)
    if drawing.of_images and samples.x_test.ndim < 3:
        raise ValueError(f"{name} is made of images, and the samples of {data} are none; tree and root-map show them")
    typer.echo(f"Drawing with {len(samples.x_test):,} test samples …")
    drawn = drawing.draw(fitted, samples)
    write_figure(drawn.figure, out)
    typer.echo(f"{data}: {drawn.what}.")
    for note in drawn.notes:
        typer.echo(f"{note}.")
    say_written([out])
