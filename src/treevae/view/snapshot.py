"""The bundle: all that a page shows of a fitted model, computed once, as plain JSON of bounded size."""

from __future__ import annotations

import json
import os
from collections.abc import Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from importlib.util import find_spec
from math import ceil
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from .. import __version__
from ..data.arrays import InputForm, as_array
from ..metrics import accuracy, dendrogram_purity, leaf_purity, nmi
from ..model.elbo import TERMS
from ..model.scoring import score_terms
from . import naming
from .cards import feature_cards, short, word_cards
from .contrasts import Totals
from .figures import flat_map
from .images import pixels_of, span_of
from .plots import named_classes
from .splits import attribute_rows, difference_image, feature_rows, split_means, word_rows
from .sprites import Sprites
from .standing import Standing, in_turn
from .walks import Walks, walk_draws

if TYPE_CHECKING:
    from ..estimator import TreeVAE
    from ..tree import Tree

FORMAT = 1
MOST_BYTES = 3_000_000  # of the bundle as JSON
KINDS = ("images", "words", "table")
MAPS = ("auto", "umap", "pca")
SCORED = 3000  # samples whose ELBO is computed; of each leaf a share, but at least
SCORED_OF_LEAF = 30
DRAWS = 10  # Monte Carlo draws behind an ELBO
ROWS_OF_SPLIT = 8  # features of a split; words: of each side
ON_CARD = 8  # words or features of a sample
EPOCHS_SHOWN = 400


@dataclass(frozen=True)
class Amounts:
    """How much of everything there is in a bundle; what does not fit is made less, all in the same proportion."""

    points: int = 2400  # samples on the map
    per_node: int = 12  # typical samples of a node, and as many ambiguous ones
    generated: int = 9  # of a leaf
    rows: int = 6  # draws of the root that every leaf shows
    side: int = 64  # longest side of a picture, pixels

    def less(self) -> Amounts:
        """The next smaller amounts; the same where nothing can be taken away."""
        least = {"points": 100, "per_node": 2, "generated": 1, "rows": 1, "side": 16}
        return replace(self, **{name: max(n, int(getattr(self, name) * 0.8)) for name, n in least.items()})


@dataclass(frozen=True)
class Snapshot:
    """What a page needs to show a fitted model: ``bundle`` holds plain JSON values, described in docs/report.md."""

    bundle: dict[str, Any]

    def to_json(self) -> str:
        """The bundle as one line of JSON."""
        return json.dumps(self.bundle, separators=(",", ":"), allow_nan=False, ensure_ascii=False)

    @property
    def n_bytes(self) -> int:
        """The size of the JSON in bytes."""
        return len(self.to_json().encode())

    def write(self, path: str | os.PathLike[str]) -> None:
        """Write the JSON; the file is there whole, or not at all."""
        write_whole(Path(path), self.to_json())


def write_whole(path: Path, text: str) -> None:
    """Write a text file that is never seen half written."""
    part = path.with_name(path.name + ".part")
    part.write_text(text, encoding="utf-8")
    part.replace(path)


def snapshot(
    model: TreeVAE,
    X: Any,
    y: Any = None,
    names: Sequence[str] | None = None,
    *,
    class_names: Sequence[str] | None = None,
    attributes: Any = None,
    attribute_names: Sequence[str] | None = None,
    kind: str | None = None,
    title: str = "TreeVAE",
    map_method: str = "auto",
    max_bytes: int = MOST_BYTES,
    random_state: Any = 0,
) -> Snapshot:
    """All that a page needs to show a fitted model.

    Numbers at nodes (size, mass, confidence, label mix, what tells children apart) are of all samples in X. The ELBO is
    the mean of up to some 3,000 of them, drawn leaf by leaf. Pictures, cards and points of the map are of fewer where
    they would not fit into ``max_bytes``.

    Parameters
    ----------
    model : fitted TreeVAE
    X : samples as in ``fit``
    y : array-like of shape (n_samples,), optional
        Classes, for label mixes, names of nodes and scores.
    names : sequence of str, optional
        What the features are called: words or columns; by default the names seen in ``fit``.
    class_names : sequence of str, optional
        Name of class ``k`` at ``k``; by default the labels in y name themselves.
    attributes : array-like of shape (n_samples, n_attributes), optional
        Whether a sample has an attribute: bool, or 0 and 1; with ``attribute_names``, one for each column.
    kind : {"images", "words", "table"}, optional
        How samples are shown. By default vectors are words if they have names, no value is below 0 and most are 0.
    title : str
        What stands above the page.
    map_method : {"auto", "umap", "pca"}, default="auto"
        How the root's embedding becomes two-dimensional; "auto" takes UMAP where umap-learn is installed.
    max_bytes : int, default=3_000_000
        The bundle is not larger.
    random_state : int, default=0
        Of the choice of samples, the generated ones and the map.
    """
    samples = _Samples.of(model, X, names, kind)
    classes = None if y is None else _Classes(named_classes(y, class_names, samples.n), class_names)
    facts = _Facts(model, samples, classes, random_state, _map_method(map_method))
    about = (
        None
        if attributes is None
        else attribute_rows(facts.tree, facts.standing.labels, attributes, list(attribute_names or ()), ROWS_OF_SPLIT)
    )
    amounts = Amounts()
    while True:
        found = Snapshot(facts.bundle(amounts, title, about))
        if found.n_bytes <= max_bytes:
            return found
        if amounts.less() == amounts:
            raise ValueError(
                f"max_bytes={max_bytes} is too small: with {len(facts.tree.leaves)} leaves the smallest bundle has "
                f"{found.n_bytes} bytes"
            )
        amounts = amounts.less()


def _map_method(method: str) -> str:
    if method not in MAPS:
        raise ValueError(f"map_method={method!r}; allowed are {', '.join(map(repr, MAPS))}")
    if method == "auto":
        return "umap" if find_spec("umap") is not None else "pca"
    return method


@dataclass(frozen=True)
class _Samples:
    """X in the forms in which it is asked about."""

    given: Any  # as the model takes it
    matrix: np.ndarray  # (n, features)
    form: InputForm
    span: tuple[float, float]  # of images: what is black and what is white
    names: list[str]
    named: bool
    kind: str

    @classmethod
    def of(cls, model: TreeVAE, X: Any, names: Sequence[str] | None, kind: str | None) -> _Samples:
        if kind is not None and kind not in KINDS:
            raise ValueError(f"kind={kind!r}; allowed are {', '.join(map(repr, KINDS))}")
        matrix, form = model._read(X, reset=False)
        if (kind == "images") != form.is_image and kind is not None:
            raise ValueError(f"kind={kind!r}, but the samples have shape {form.user_shape}; leave kind out")
        known = names if names is not None else getattr(model, "feature_names_in_", None)
        if known is not None and len(known) != form.n_features and not form.is_image:
            raise ValueError(f"X has {form.n_features} features, but there are {len(known)} names; give one each")
        if kind is None:
            sparse = known is not None and matrix.min() >= 0 and (matrix == 0).mean() > 0.5
            kind = "images" if form.is_image else "words" if sparse else "table"
        named = known is not None and not form.is_image
        called = [str(name) for name in known] if named else [f"feature {i}" for i in range(form.n_features)]  # type: ignore[union-attr]
        span = span_of(np.asarray(as_array(X))) if form.is_image else (0.0, 1.0)
        return cls(X, matrix, form, span, called, named, kind)

    @property
    def n(self) -> int:
        return len(self.matrix)

    def take(self, rows: Sequence[int] | np.ndarray) -> Any:
        """Some samples as the model takes them."""
        rows = np.asarray(rows, dtype=np.intp)
        if hasattr(self.given, "iloc"):
            return self.given.iloc[rows]
        return as_array(self.given)[rows] if hasattr(self.given, "shape") else np.asarray(self.given)[rows]

    def pixels(self, matrix: np.ndarray) -> np.ndarray:
        """Rows of the matrix as images (n, h, w, 3 or 4) in [0, 1]."""
        return pixels_of(self.form.to_user(matrix.astype(np.float32)), self.form, self.span)


@dataclass(frozen=True)
class _Classes:
    """The class of each sample, by name."""

    of_samples: np.ndarray
    names: Sequence[str] | None  # in their order, where it is known

    def numbered(self) -> tuple[list[str], np.ndarray]:
        """The names, in their order or else in that of the alphabet, and the position of each sample's."""
        found, at = np.unique(self.of_samples, return_inverse=True)
        if self.names is None:
            return found.tolist(), at
        order = [str(name) for name in self.names]
        return order, np.array([order.index(name) for name in found.tolist()])[at]


class _Facts:
    """What is computed once, however much of it is then shown."""

    def __init__(
        self, model: TreeVAE, samples: _Samples, classes: _Classes | None, random_state: Any, method: str
    ) -> None:
        most = Amounts()
        self.model, self.samples, self.tree = model, samples, model.tree_
        self.standing = Standing(self.tree, model.predict_proba(samples.given))
        labels, kind = self.standing.labels, samples.kind
        self.class_names, self.y = (None, None) if classes is None else classes.numbered()
        mark = {"words": naming.word_marks, "table": naming.feature_marks}.get(kind)
        self.marks = {} if mark is None else mark(self.tree, labels, samples.matrix, samples.names, ON_CARD)
        self.names = self._names(None if classes is None else classes.of_samples)
        self.typical = {node: self.standing.typical(node, most.per_node) for node in self.tree.nodes}
        self.ambiguous = {node: self.standing.ambiguous(node, most.per_node) for node in self.tree.nodes}
        chance = np.random.default_rng(random_state)
        self.order = chance.permutation(samples.n)
        self.elbo = self._elbo(chance)
        leaves = range(len(self.tree.leaves))
        self.generated = [model.sample(most.generated, leaf=k, random_state=random_state) for k in leaves]
        self.walks: Walks = walk_draws(model, most.rows, random_state)
        self.means = split_means(self.tree, labels, samples.matrix) if kind == "images" else {}
        split = {"words": word_rows, "table": feature_rows}.get(kind)
        self.rows = {} if split is None else split(self.tree, labels, samples.matrix, samples.names, ROWS_OF_SPLIT)
        shown = self._shown(most)
        self.map = "UMAP" if method == "umap" else "PCA"
        self.places = dict(zip(shown, self._places(shown, method, random_state), strict=True))
        self.mean, self.spread = samples.matrix.mean(0), samples.matrix.std(0)

    # -- computing --------------------------------------------------------------------------------------------------

    def _names(self, classes: np.ndarray | None) -> dict[int, str]:
        if classes is not None:
            return naming.by_class(self.tree, self.standing.labels, classes)
        return naming.by_marks(self.tree, self.marks if self.samples.named else {})

    def _elbo(self, chance: np.random.Generator) -> dict[int, dict[str, float] | None]:
        """The mean terms of each node's samples: of some from every leaf, each leaf weighted by its size."""
        model, standing = self.model, self.standing
        picked = []
        for leaf in self.tree.leaves:
            rows = standing.rows(leaf)
            quota = min(len(rows), max(SCORED_OF_LEAF, ceil(SCORED * len(rows) / self.samples.n)))
            picked.append(np.sort(chance.choice(rows, quota, replace=False)))
        rows = np.concatenate(picked)
        terms = model._ask(
            self.samples.take(rows), lambda x: score_terms(model.module_, x, DRAWS).values.T, light=False
        ).astype(np.float64)
        terms[:, 0] = model._units.log_density(terms[:, 0], model._form.n_features)
        weight = np.concatenate([np.full(len(of), standing.size(leaf) / max(len(of), 1))
                                 for leaf, of in zip(self.tree.leaves, picked, strict=True)])  # fmt: skip
        found: dict[int, dict[str, float] | None] = {}
        for node in self.tree.nodes:
            inside = np.isin(rows, standing.rows(node))
            if not inside.any():
                found[node] = None
                continue
            mean = np.average(terms[inside], axis=0, weights=weight[inside])
            named = {name: _short(value) for name, value in zip(TERMS, mean, strict=True)}
            found[node] = {"elbo": _short(mean[0] - mean[1:].sum()), **named}
        return found

    def _places(self, rows: list[int], method: str, random_state: Any) -> np.ndarray:
        """Where samples stand on the map, in the unit square, its proportions kept."""
        embedding = self.model.transform(self.samples.take(rows))
        if embedding.shape[1] == 1 or len(rows) < 5:
            embedding = np.hstack([embedding, np.zeros((len(rows), 2))])
            places = embedding[:, :2]
        else:
            places = flat_map(embedding, method, random_state)
        low, high = places.min(0), places.max(0)
        return 0.5 + (places - (low + high) / 2) / max(float((high - low).max()), 1e-9)

    # -- showing ----------------------------------------------------------------------------------------------------

    def _shown(self, amounts: Amounts) -> list[int]:
        """The rows of X that are shown: those at nodes, and others by lot until there are enough points."""
        at_nodes = [row for lists in (self.typical, self.ambiguous) for of in lists.values() for row in of[: amounts.per_node]]  # fmt: skip
        shown = dict.fromkeys(at_nodes)
        for row in self.order.tolist():
            if len(shown) >= amounts.points:
                break
            shown[row] = None
        return sorted(shown)

    def bundle(
        self, amounts: Amounts, title: str, attributes: dict[int, list[dict[str, Any]]] | None
    ) -> dict[str, Any]:
        """The bundle with so much in it."""
        samples, form = self.samples, self.samples.form
        shown = self._shown(amounts)
        number = {row: i for i, row in enumerate(shown)}
        is_image = samples.kind == "images"
        sprites = Sprites(*form.shape[1:], amounts.side) if is_image else None
        at = [self.tree.leaves[k] for k in self.standing.labels[shown].tolist()]
        places = np.array([self.places[row] for row in shown])
        pictures = self._show(samples.matrix[shown], sprites)
        generated = {leaf: self._show(form.to_matrix(self.generated[k][: amounts.generated]), sprites)
                     for k, leaf in enumerate(self.tree.leaves)}  # fmt: skip
        all_leaves = self._all_leaves(amounts, sprites)
        splits = {node: self._split(node, sprites) for node in self.tree.routers}
        nodes = []
        for node in self.tree.nodes:
            below = self.tree.leaves_below(node)
            nodes.append({
                "id": node,
                "parent": self.tree.parent(node),
                "depth": self.tree.depth(node),
                "children": list(self.tree.children(node)),
                "leaf": self.tree.leaves.index(node) if self.tree.is_leaf(node) else None,
                "name": self.names[node],
                "size": self.standing.size(node),
                "mass": _short(self.standing.mass(node)),
                "confidence": _short(self.standing.confidence(node)),
                "elbo": self.elbo[node],
                "typical": [number[row] for row in self.typical[node][: amounts.per_node]],
                "ambiguous": [number[row] for row in self.ambiguous[node][: amounts.per_node]],
                "generated": in_turn([generated[leaf] for leaf in below], max(amounts.generated, amounts.per_node)),
                "split": splits.get(node),
                "attributes": None if attributes is None else _plain_rows(attributes.get(node)),
                "marks": None if samples.kind == "images" else _plain_rows(self.marks.get(node, [])),
                "labels": self._label_mix(node),
            })  # fmt: skip
        return {
            "format": FORMAT,
            "treevae": __version__,
            "title": title,
            "created": datetime.now(UTC).isoformat(timespec="seconds"),
            "kind": samples.kind,
            "image": {"height": form.shape[1], "width": form.shape[2], "channels": form.shape[0]} if is_image else None,
            "n_samples": samples.n,
            "n_shown": len(shown),
            "features": [short(name) for name in samples.names[:2000]] if samples.named else None,
            "n_features": form.n_features,
            "classes": None if self.class_names is None else [short(name) for name in self.class_names],
            "scores": self._scores(),
            "groups": [list(self.tree.groups(k)) for k in range(1, len(self.tree.leaves) + 1)],
            "nodes": nodes,
            "samples": {
                "sprite": pictures if is_image else None,
                "card": None if is_image else pictures,
                "leaf": at,
                "label": None if self.y is None else self.y[shown].tolist(),
                "row": shown,
                "probability": [_short(p) for p in self.standing.reach[shown].max(1)],
                "x": [round(float(x), 4) for x in places[:, 0]],
                "y": [round(float(y), 4) for y in places[:, 1]],
            },
            "map": {"method": self.map, "of": "root embedding"},
            "all_leaves": all_leaves,
            "sprites": None if sprites is None else sprites.to_dict(),
            "history": history_rows(self.model),
            "parameters": _parameters(self.model),
            "live": False,
        }

    def _show(self, matrix: np.ndarray, sprites: Sprites | None) -> list[Any]:
        """Sprite numbers of images, cards of all else."""
        if sprites is not None:
            return sprites.add(self.samples.pixels(matrix))
        if self.samples.kind == "words":
            return word_cards(matrix, self.samples.names, ON_CARD)
        return feature_cards(matrix, self.samples.names, self.mean, self.spread, ON_CARD)

    def _all_leaves(self, amounts: Amounts, sprites: Sprites | None) -> list[dict[str, Any]]:
        rows = []
        for shown, probability in zip(self.walks.shown[: amounts.rows], self.walks.probability, strict=False):
            pictures = self._show(self.samples.form.to_matrix(shown), sprites)
            rows.append({
                "sample": None,
                "images": dict(zip(map(str, self.tree.leaves), pictures, strict=True)),
                "probabilities": {str(leaf): _short(p) for leaf, p in zip(self.tree.leaves, probability, strict=True)},
            })  # fmt: skip
        return rows

    def _split(self, node: int, sprites: Sprites | None) -> dict[str, Any] | None:
        """What tells the children apart; None where one of them has no samples."""
        if sprites is None:
            rows = _plain_rows(self.rows.get(node))
            return None if rows is None else {"kind": "features", "rows": rows}
        if node not in self.means:
            return None
        left, right = (self.samples.pixels(mean[None])[0] for mean in self.means[node])
        numbers = sprites.add(
            np.stack([left[..., :3], right[..., :3], difference_image(left[..., :3], right[..., :3])])
        )
        return {"kind": "images", **dict(zip(("left", "right", "difference"), numbers, strict=True))}

    def _label_mix(self, node: int) -> list[int] | None:
        """How many of the node's samples are of each class."""
        if self.y is None or self.class_names is None:
            return None
        return np.bincount(self.y[self.standing.rows(node)], minlength=len(self.class_names)).tolist()

    def _scores(self) -> dict[str, float] | None:
        """How well the leaves agree with the classes, as shares; DP where some class has two samples."""
        if self.y is None:
            return None
        leaves = self.standing.labels
        pairs = np.bincount(self.y).max() > 1
        found = {"ACC": accuracy(leaves, self.y), "NMI": nmi(leaves, self.y), "LP": leaf_purity(leaves, self.y)}
        found |= {"DP": dendrogram_purity(self.tree, leaves, self.y)} if pairs else {}
        return {name: round(value, 4) for name, value in found.items()}


def history_rows(model: TreeVAE) -> list[dict[str, Any]]:
    """The epochs of training, thinned evenly but for the ends of stages: stage, leaf, epoch, loss and its parts."""
    rows, n_leaves = [], 1
    for event in model.history_:
        if event["event"] == "TreeChanged":
            n_leaves = len(json.loads(event["tree"])["children"]) + 1
        if event["event"] != "EpochEnded":
            continue
        kl = event["kl_root"] + event["kl_nodes"] + event["kl_decisions"]
        rows.append({
            "stage": event["stage"], "leaf": event["leaf"], "epoch": event["epoch"], "epochs": event["epochs"],
            "n_leaves": n_leaves, "loss": _short(kl - event["reconstruction"]),
            "reconstruction": _short(event["reconstruction"]), "kl": _short(kl),
        })  # fmt: skip
    step = max(1, ceil(len(rows) / EPOCHS_SHOWN))
    return [row for i, row in enumerate(rows) if i % step == 0 or row["epoch"] == row["epochs"]]


def _parameters(model: TreeVAE) -> dict[str, str]:
    """The estimator's parameters that are not its defaults, as text."""
    default = type(model)().get_params(deep=False)
    given = model.get_params(deep=False)
    return {name: short(value) for name, value in given.items()
            if name not in ("verbose", "device", "tree") and repr(value) != repr(default[name])}  # fmt: skip


def _plain_rows(rows: list[dict[str, Any]] | None) -> list[dict[str, Any]] | None:
    if rows is None:
        return None
    return [{name: short(v) if isinstance(v, str) else _short(v) for name, v in row.items()} for row in rows]


def _short(value: Any) -> Any:
    """A number with five significant digits, for JSON; None stays None, as does what is not finite."""
    if value is None or not np.isfinite(value):
        return None
    return float(f"{float(value):.5g}")
