"""A guide: the groups that samples are in already, and the tree above them, from which a model starts."""

from __future__ import annotations

import inspect
from dataclasses import dataclass
from typing import Any

import numpy as np
from sklearn.base import clone
from torch import Tensor

from ..errors import OneGroupError
from ..storage.fingerprint import fingerprint
from ..tree import Tree
from .labels import UNKNOWN, numbered
from .sources import SOURCES
from .trees import crossing_tree, linkage_tree


@dataclass(frozen=True, eq=False)
class Guide:
    """Labels and a tree.

    Parameters
    ----------
    labels : int array of shape (n_samples,)
        The leaf of each sample, numbered from 0 as ``tree.leaves`` are, from left to right; -1 where it is unknown.
    tree : Tree
        The tree; each of its nodes has two children or none.
    name : str, default="given"
        Where it comes from.
    """

    labels: np.ndarray
    tree: Tree
    name: str = "given"

    def __post_init__(self) -> None:
        if not isinstance(self.tree, Tree):
            raise TypeError(f"tree is a {type(self.tree).__name__}; pass a treevae.Tree")
        n_leaves = len(self.tree.leaves)
        if n_leaves < 2 or len(self.tree.routers) != n_leaves - 1 or len(self.tree.nodes) != 2 * n_leaves - 1:
            raise ValueError(f"tree={self.tree!r} must have two leaves at least, and two children or none at each node")
        labels = np.asarray(self.labels)
        if labels.ndim != 1 or not np.issubdtype(labels.dtype, np.integer):
            raise ValueError(
                f"labels have shape {labels.shape} and dtype {labels.dtype}; pass one whole number for each sample, "
                "the position of its leaf from left to right, or -1"
            )
        wrong = np.flatnonzero((labels < UNKNOWN) | (labels >= n_leaves))
        if len(wrong):
            raise ValueError(
                f"labels[{wrong[0]}]={labels[wrong[0]]} must be -1, unknown, or 0 to {n_leaves - 1}, as the tree has "
                f"{n_leaves} leaves"
            )
        if not (labels >= 0).any():
            raise ValueError("labels are unknown for all samples; pass the leaf of some samples at least")
        labels = labels.astype(np.int64)
        labels.flags.writeable = False
        object.__setattr__(self, "labels", labels)

    def identity(self) -> dict[str, str]:
        """What tells this guide from others, as short texts."""
        return {"name": self.name, "tree": self.tree.to_json(), "labels": fingerprint(self.labels)}

    @classmethod
    def of(
        cls,
        given: Any,
        space: Tensor,
        neighbours: Tensor,
        n_leaves: int,
        max_depth: int | None = None,
        random_state: int = 0,
        name: str | None = None,
    ) -> Guide:
        """The guide that a user hands in, in whatever form.

        Parameters
        ----------
        given
            A guide; the name of one: "kmeans", "embedding", "networks", and with extra packages "umap" and "leiden"; a
            label for each sample, whole numbers or strings, where -1, None and NaN are unknown; a scipy linkage matrix,
            which is cut to ``n_leaves`` and keeps its own tree; or a clusterer of scikit-learn's kind, an object or a
            class, which is fitted to ``space``.
        space : tensor of shape (n, features)
            The samples where distances count.
        neighbours : int tensor of shape (n, k)
            Their neighbours, from which the tree above flat groups is made.
        n_leaves : int
            How many leaves the tree has; where labels or clusterers find fewer, that many. What a clusterer finds
            beyond it is merged.
        max_depth : int, optional
            The height that the tree may have.
        random_state : int, default=0
            The seed of what is drawn.
        name : str, optional
            Where the guide comes from; by default it is told from what is given.
        """
        n = len(space)
        cls.check(given, n, n_leaves, max_depth)
        if isinstance(given, Guide):
            return given
        if isinstance(given, str):
            flat = SOURCES[given](space, n_leaves, neighbours, random_state)
            return cls._above(flat, space, neighbours, n_leaves, max_depth, name or given)
        if hasattr(given, "fit_predict"):
            clusterer = _ready(given, n_leaves, random_state)
            flat = clusterer.fit_predict(space.reshape(n, -1).cpu().numpy())
            return cls._above(flat, space, neighbours, n_leaves, max_depth, name or type(clusterer).__name__)
        if _is_linkage(given, n):
            tree, labels = linkage_tree(given, n_leaves, max_depth)
            return cls(labels, tree, name or "linkage")
        return cls._above(numbered(given), space, neighbours, n_leaves, max_depth, name or "given")

    @classmethod
    def check(cls, given: Any, n: int, n_leaves: int, max_depth: int | None = None) -> None:
        """Raise unless :meth:`of` can take this for n samples, as far as is known before anything is clustered."""
        if isinstance(given, Guide):
            given._check_fits(n, n_leaves, max_depth)
        elif isinstance(given, str):
            if given not in SOURCES:
                raise ValueError(f"guide={given!r} is not known; pass one of {', '.join(SOURCES)}, or labels")
            if n_leaves > n:
                raise ValueError(f"guide={given!r} makes n_leaves={n_leaves} groups of {n} samples; lower n_leaves")
        elif not hasattr(given, "fit_predict"):
            if _is_linkage(given, n):
                linkage_tree(given, n_leaves, max_depth)
                return
            labels = numbered(given)
            if len(labels) != n:
                raise ValueError(f"guide has {len(labels)} labels and X {n} samples; pass one label for each sample")
            n_groups = int(labels.max()) + 1
            _check_room(n_groups, n_leaves)
            _check_several(n_groups, "given")

    @classmethod
    def _above(
        cls, flat: np.ndarray, space: Tensor, neighbours: Tensor, n_leaves: int, max_depth: int | None, name: str
    ) -> Guide:
        """The guide of flat groups, and of the tree that is made above them."""
        labels, near = numbered(flat), neighbours.cpu().numpy()
        _check_several(int(labels.max()) + 1, name)
        x = space.reshape(len(space), -1).cpu().numpy()
        tree, labels = crossing_tree(labels, near, max_depth, x, n_leaves)
        return cls(labels, tree, name)

    def _check_fits(self, n: int, n_leaves: int, max_depth: int | None) -> None:
        """Raise unless it is of n samples, small and low enough."""
        if len(self.labels) != n:
            raise ValueError(f"guide has {len(self.labels)} labels and X {n} samples; pass one label for each sample")
        _check_room(len(self.tree.leaves), n_leaves)
        if max_depth is not None and self.tree.height > max_depth:
            raise ValueError(
                f"the guide's tree has height {self.tree.height} and max_depth={max_depth}; "
                f"pass max_depth={self.tree.height}"
            )


def _ready(given: Any, n_leaves: int, seed: int) -> Any:
    """A new clusterer like the given one; a class is told how many groups, and either the seed where it has none."""
    clusterer: Any = given() if inspect.isclass(given) else clone(given) if hasattr(given, "get_params") else given
    if not hasattr(clusterer, "get_params"):
        return clusterer
    open_words = clusterer.get_params(deep=False)
    told: dict[str, int] = {}
    if "random_state" in open_words and open_words["random_state"] is None:
        told["random_state"] = seed
    if inspect.isclass(given):
        told |= {word: n_leaves for word in ("n_clusters", "n_components") if word in open_words}
    return clusterer.set_params(**told)


def _check_room(n_groups: int, n_leaves: int) -> None:
    """Raise unless the model may have a leaf for each group."""
    if n_groups > n_leaves:
        raise ValueError(f"guide has {n_groups} groups and n_leaves={n_leaves}; pass n_leaves={n_groups}")


def _check_several(n_groups: int, name: str) -> None:
    """Raise unless there are groups to tell apart."""
    if n_groups < 2:
        raise OneGroupError(f"the guide {name!r} has {n_groups} group; a tree needs two at least")


def _is_linkage(given: Any, n: int) -> bool:
    """Whether this is a scipy linkage matrix of n samples."""
    if not isinstance(given, np.ndarray) or given.ndim != 2:
        return False
    if given.shape != (n - 1, 4):
        raise ValueError(
            f"guide has shape {given.shape}; pass one label for each of the {n} samples, or a linkage matrix of shape "
            f"({n - 1}, 4)"
        )
    return True
