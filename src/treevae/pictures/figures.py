"""Figures for papers: what the leaves generate, the map of the root, the course of training, the average dendrogram."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from ..data.arrays import InputForm, as_array
from ..describe.contrasts import main_classes, named_classes
from ..describe.maps import MAPS, flat_map
from .average import average_distances
from .branches import node_colours
from .canvas import DPI, EDGE, SMALL, TEXT, TRUNK, blank, draw_images, need_matplotlib, write, write_within

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

    from ..estimator import TreeVAE

CELL = 0.6  # width of a generated image, in inches
NAME = 1.0  # width of the names beside rows
POINT, LEGEND_POINT = (3, 12), 36  # smallest and largest points of a map, and those of its legend, in square points
LETTER = 0.085  # width of a letter of the legend, in inches
POINTS = 12_000  # what all points of a map cover together, in square points
SHORT = 5  # letters of a name that has room below its leaf


def generations(model: TreeVAE, n: int = 10, random_state: Any = 0) -> Figure:
    """A figure of what each leaf generates: a row of ``n`` images for every leaf."""
    need_matplotlib()
    rows = [model.sample(n, leaf=k, random_state=random_state) for k in range(len(model.tree_.leaves))]
    return _grid(np.stack(rows), [f"cluster {k}" for k in range(len(rows))], [])


def all_leaves(model: TreeVAE, n: int = 8, random_state: Any = 0) -> Figure:
    """A figure of ``n`` draws of the root, each as every leaf would show it: a row a draw, a column a leaf."""
    need_matplotlib()
    drawn = model.sample_all_leaves(n, random_state=random_state)
    return _grid(drawn, [f"draw {i + 1}" for i in range(n)], [str(k) for k in range(drawn.shape[1])])


def _grid(images: np.ndarray, rows: Sequence[str], columns: Sequence[str]) -> Figure:
    """Images (row, column, ...) side by side, with names."""
    flat = images.reshape(-1, *images.shape[2:])
    if flat.ndim < 3:
        raise ValueError(f"the model's samples are vectors of {flat.shape[1]} numbers, not images")
    form = InputForm.of(flat)
    pixels = np.moveaxis(form.to_matrix(flat).reshape(-1, *form.shape), 1, 3).clip(0, 1)
    pixels = pixels.repeat(3, axis=3) if pixels.shape[3] == 1 else pixels
    n_columns, height, top = images.shape[1], CELL * form.shape[1] / form.shape[2], 0.3 if columns else EDGE
    figure, axes = blank((NAME + n_columns * CELL + EDGE, top + len(rows) * height + EDGE))
    for i, name in enumerate(rows):
        write_within(axes, NAME - 0.1, top + (i + 0.5) * height, name, NAME - 0.2, ha="right", fontsize=SMALL)
    if columns:
        write(axes, NAME - 0.1, top / 2, "cluster", ha="right", fontsize=SMALL)
    for j, name in enumerate(columns):
        write(axes, NAME + (j + 0.5) * CELL, top / 2, name, ha="center", fontsize=SMALL)
    draw_images(axes, pixels, lambda i: (NAME + i % n_columns * CELL, top + i // n_columns * height), (CELL, height))
    return figure


def root_map(
    model: TreeVAE,
    X: Any,
    y: Any = None,
    class_names: Sequence[str] | None = None,
    *,
    method: str = "umap",
    random_state: Any = 0,
) -> Figure:
    """A figure of the root's embedding in two dimensions, a point a sample, coloured by leaf.

    Parameters
    ----------
    model : fitted TreeVAE
    X : samples as in ``fit``
    y : array-like of shape (n_samples,), optional
        Classes to colour by instead.
    class_names : sequence of str, optional
        Name of class ``k`` at ``k``; by default the labels in y name themselves.
    method : {"umap", "pca"}, default="umap"
        How to draw many dimensions as two; "umap" needs umap-learn.
    random_state : int, default=0
        Of the map.
    """
    need_matplotlib()
    if method not in MAPS:
        raise ValueError(f"method={method!r}; allowed are {', '.join(map(repr, MAPS))}")
    embedding = model.transform(X)
    groups, of_sample = _leaves_to_colour(model, X) if y is None else _classes_to_colour(y, class_names, len(embedding))
    places = flat_map(embedding, method, random_state)
    figure, axes = _axes((6.4 + LETTER * max(len(name) for name, _ in groups), 6.0))
    least, most = POINT
    size = min(max(POINTS / len(places), least), most)
    for k, (name, colour) in enumerate(groups):
        x, up = places[of_sample == k].T
        axes.scatter(x, up, size, color=colour, label=name, linewidths=0)
    axes.set(xticks=[], yticks=[], title=f"{method.upper()} of the root's embedding")
    axes.spines[:].set_visible(False)  # where a point lies means nothing, how near others are does
    larger = (LEGEND_POINT / size) ** 0.5
    axes.legend(
        title="leaf" if y is None else "class",
        title_fontsize=SMALL,
        markerscale=larger,
        fontsize=SMALL,
        frameon=False,
        loc="center left",
        bbox_to_anchor=(1, 0.5),
    )
    return figure


def _leaves_to_colour(model: TreeVAE, X: Any) -> tuple[list[tuple[str, Any]], np.ndarray]:
    """The name and colour of each leaf, and the place in this list of each sample."""
    colours = node_colours(model.tree_)
    return [(f"cluster {k}", colours[leaf]) for k, leaf in enumerate(model.tree_.leaves)], model.predict(X)


def _classes_to_colour(y: Any, class_names: Sequence[str] | None, n: int) -> tuple[list[tuple[str, Any]], np.ndarray]:
    """The name and colour of each class, in the order of their labels, and the place in this list of each sample."""
    from matplotlib import colormaps

    named = named_classes(y, class_names, n)
    _, first, of_sample = np.unique(np.asarray(as_array(y)), return_index=True, return_inverse=True)
    few = next((few for few in ("tab10", "tab20") if len(first) <= colormaps[few].N), None)
    colours = colormaps[few or "turbo"](np.arange(len(first)) if few else np.linspace(0, 1, len(first)))
    return list(zip(named[first].tolist(), colours, strict=True)), of_sample


def history(model: TreeVAE) -> Figure:
    """A figure of the course of training: reconstruction loss and KL of every epoch, a stripe for every stage."""
    need_matplotlib()
    epochs = model.fitted_.epochs
    figure, loss = _axes((9.0, 4.0))
    kl = loss.twinx()
    at = np.arange(1, len(epochs) + 1)
    loss.plot(at, [-event.reconstruction for event in epochs], color="#1c64ad", linewidth=1)
    kl.plot(at, [event.kl for event in epochs], color="#c8480c", linewidth=1)
    starts = [i for i, event in enumerate(epochs) if event.epoch == 1]
    for stripe, (start, stop) in enumerate(zip(starts, [*starts[1:], len(epochs)], strict=True)):
        if stripe % 2:
            loss.axvspan(start + 0.5, stop + 0.5, color="#f5f6f8", zorder=0)
    loss.set_xlabel("epoch, over all stages")
    loss.set_ylabel("reconstruction loss, nats", color="#1c64ad")
    kl.set_ylabel("KL, nats", color="#c8480c")
    return figure


def average_dendrogram(
    models: Sequence[TreeVAE], X: Any, y: Any = None, class_names: Sequence[str] | None = None
) -> Figure:
    """A figure of the dendrogram that several fitted models agree on, by the mean edges between their clusters.

    Leaves are named by the most frequent class of the first model's and its share, where y is given.
    """
    need_matplotlib()
    from scipy.cluster.hierarchy import dendrogram, linkage
    from scipy.spatial.distance import squareform

    labels = [model.predict(X) for model in models]
    trees = [model.tree_ for model in models]
    distances = average_distances(trees, labels)
    if len(distances) < 2:
        raise ValueError("the trees have one leaf, so there is nothing to join; longer training may grow more")
    merged = linkage(squareform(distances, checks=False), "average")
    names = [f"cluster {k}" for k in range(len(trees[0].leaves))]
    if y is not None:
        held = main_classes(trees[0], labels[0], named_classes(y, class_names, len(labels[0])))
        names = [name if main is None else f"{main[0]} ({main[1]:.0%})" for name, main in zip(names, held, strict=True)]
    figure, axes = _axes((1.6 + 0.7 * len(names), 4.2))
    dendrogram(merged, labels=names, ax=axes, color_threshold=0, above_threshold_color=TRUNK, leaf_font_size=TEXT)
    if max(map(len, names)) > SHORT:
        for label in axes.get_xticklabels():
            label.set(rotation=45, ha="right", rotation_mode="anchor")
    axes.set_ylabel(f"edges between clusters, mean of {len(trees)} trees", fontsize=SMALL)
    what = "clusters" if y is None else "most frequent class of the clusters, and its share,"
    axes.set_xlabel(f"{what} in the first tree", fontsize=SMALL)
    axes.spines["bottom"].set_visible(False)
    axes.tick_params(axis="x", length=0)
    return figure


def _axes(size: tuple[float, float]) -> tuple[Figure, Axes]:
    """A figure with axes of the usual kind."""
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    figure = Figure(figsize=size, dpi=DPI, facecolor="white", layout="constrained")
    FigureCanvasAgg(figure)
    axes = figure.add_subplot()
    axes.spines[["top", "right"]].set_visible(False)
    axes.tick_params(labelsize=SMALL)
    return figure, axes
