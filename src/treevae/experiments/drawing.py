"""The paper's figures by name: of which models each is, and how it is drawn with a data set's test samples."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from importlib.util import find_spec
from typing import TYPE_CHECKING

from ..data.dataset import DataSet
from ..pictures import figures, plots
from ..recipes import RECIPES
from .cells import Cell
from .methods import METHODS
from .models import METHOD, Models
from .running import wanted
from .tables import TABLES

if TYPE_CHECKING:
    from matplotlib.figure import Figure

    from ..estimator import TreeVAE


@dataclass(frozen=True)
class Drawn:
    """A figure, what it shows, and what else is worth saying about it."""

    figure: Figure
    what: str
    notes: tuple[str, ...] = ()


@dataclass(frozen=True)
class Drawing:
    """How a figure of the paper is drawn of models, which come by their seeds."""

    draw: Callable[[Mapping[int, TreeVAE], DataSet], Drawn]
    of_all_seeds: bool = False  # else of one
    of_images: bool = False  # else of samples of any kind


def _tree(models: Mapping[int, TreeVAE], data: DataSet) -> Drawn:
    (model,) = models.values()
    shown = "images" if data.feature_names is None else "words"
    shown = shown if data.attributes_test is None else "attributes"
    return Drawn(plots.data_set_picture(model, data), f"the tree with {shown}")


def _generations(models: Mapping[int, TreeVAE], data: DataSet) -> Drawn:
    (model,) = models.values()
    return Drawn(figures.generations(model), "images that each leaf generates")


def _all_leaves(models: Mapping[int, TreeVAE], data: DataSet) -> Drawn:
    (model,) = models.values()
    return Drawn(figures.all_leaves(model), "draws of the root, each as every leaf shows it")


def _root_map(models: Mapping[int, TreeVAE], data: DataSet) -> Drawn:
    (model,) = models.values()
    method = "umap" if find_spec("umap") is not None else "pca"
    note = "umap-learn is not installed, so this is PCA; for UMAP: pip install 'treevae[maps]'"
    figure = figures.root_map(model, data.x_test, data.y_test, data.class_names, method=method)
    return Drawn(figure, f"{method.upper()} of the root's embedding", (note,) if method == "pca" else ())


def _average_dendrogram(models: Mapping[int, TreeVAE], data: DataSet) -> Drawn:
    """Trees are averaged that have as many leaves: as many as most have, and of equally frequent numbers the most."""
    leaves = {seed: len(model.tree_.leaves) for seed, model in models.items()}
    counts = Counter(leaves.values())
    k = max(counts, key=lambda n: (counts[n], n))
    taken = [seed for seed in models if leaves[seed] == k]
    left_out = [f"seed {seed} ({leaves[seed]})" for seed in models if leaves[seed] != k]
    if len(taken) < 2:
        raise ValueError(
            f"no two trees have as many leaves: {', '.join(left_out)}, seed {taken[0]} ({k}); only those can be "
            "averaged. Fit more seeds, or with a larger --scale: short fits lose leaves"
        )
    figure = figures.average_dendrogram([models[seed] for seed in taken], data.x_test, data.y_test, data.class_names)
    note = f"Left out, as only trees with {k} leaves can be averaged with these: {', '.join(left_out)}"
    what = f"the average dendrogram of {len(taken)} trees with {k} leaves, seeds {', '.join(map(str, taken))}"
    return Drawn(figure, what, (note,) if left_out else ())


DRAWINGS = {
    "tree": Drawing(_tree),
    "generations": Drawing(_generations, of_images=True),
    "all-leaves": Drawing(_all_leaves, of_images=True),
    "root-map": Drawing(_root_map),
    "average-dendrogram": Drawing(_average_dendrogram, of_all_seeds=True),
}


def drawing_of(name: str) -> Drawing:
    """A figure by name."""
    if name not in DRAWINGS:
        raise ValueError(f"there is no figure {name!r}; there are {', '.join(DRAWINGS)}")
    return DRAWINGS[name]


def cell_of(data: str, n_leaves: int | None, scale: float) -> Cell:
    """The cell of TreeVAE on a data set with its recipe, but for the leaves, and with any seed."""
    if data not in RECIPES:
        raise ValueError(f"there is no data set {data!r}; there are {', '.join(RECIPES)}")
    return METHODS[METHOD].cell(data, {} if n_leaves is None else {"n_leaves": n_leaves}, scale, 0)


def models_of(models: Models, cell: Cell, seed: int | None) -> dict[int, TreeVAE]:
    """The kept models of a cell by their seeds: the one with a seed, or all, which must be two at least."""
    there = models.seeds(cell)
    if seed is None and len(there) < 2:
        raise ValueError(f"an average is of two models at least, {_kept(models, cell)}; {_command(models, cell, 2)}")
    if seed is not None and seed not in there:
        raise ValueError(
            f"there is no model of {cell.about} with seed {seed}, {_kept(models, cell)}; "
            f"{_command(models, cell, seed + 1)}"
        )
    return {one: models.read(replace(cell, seed=one)) for one in (there if seed is None else [seed])}


def _kept(models: Models, cell: Cell) -> str:
    """What a folder has instead: other seeds, or other fits of the data set."""
    if seeds := models.seeds(cell):
        return f"{models.folder} has those of {cell.about} with seed {', '.join(map(str, seeds))}"
    kinds = f", but of {', '.join(kinds)} (see --scale and --n-leaves)" if (kinds := models.kinds(cell.data)) else ""
    return f"{models.folder} has none of {cell.about}{kinds}"


def _command(models: Models, cell: Cell, seeds: int) -> str:
    """The command that fits and keeps a cell's models with so many seeds."""
    known = (table for table in TABLES.values() if cell in wanted(table, 1, cell.scale))
    table = next((table for table in known if seeds == 1 or not table.one_seed), None)
    if table is None:
        return f"no table of treevae paper list has such a fit{'' if seeds == 1 else f' with {seeds} seeds'}"
    scale = "" if cell.scale == 1 else f" --scale {cell.scale}"
    rows = f"{table.name} --data {cell.data} --method {METHOD} --seeds {seeds}"
    return (
        f"make it with: treevae paper run {rows}{scale} --models {models.folder} --results NEW (a store that does not "
        "have its record yet)"
    )
