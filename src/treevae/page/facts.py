"""What a bundle is made of: everything about a model and its samples, computed once, of which less or more is shown."""

from __future__ import annotations

from datetime import UTC, datetime
from itertools import chain
from math import ceil
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from .. import __version__
from ..describe import naming
from ..describe.cards import each, short
from ..describe.maps import flat_map
from ..describe.placement import Placement, in_turn
from ..describe.splits import difference_image, feature_rows, split_means, word_rows
from ..fitted import Fitted
from ..metrics import accuracy, dendrogram_purity, leaf_purity, nmi
from ..model.elbo import TERMS
from ..training.events import EpochEnded, TreeChanged
from .samples import ShownClasses, ShownSamples
from .sprites import Sprites

if TYPE_CHECKING:
    from ..estimator import TreeVAE

FORMAT = 1
SCORED = 3000  # samples whose ELBO is computed; of each leaf a share, but at least
SCORED_OF_LEAF = 30
DRAWS = 2  # Monte Carlo draws behind an ELBO: a mean over samples gains more from samples than from draws
ROWS_OF_SPLIT = 8  # features of a split; words: of each side
ON_CARD = 8  # words or features of a sample
MOST_NAMES = 2000  # of features
EPOCHS_SHOWN = 400
FEWEST_ON_MAP = 5  # samples, below which there is nothing to map


class Amounts(NamedTuple):
    """How much of everything there is in a bundle."""

    points: int  # samples on the map
    per_node: int  # typical samples of a node, and as many ambiguous ones
    generated: int  # of a leaf
    rows: int  # draws of the root that every leaf shows
    side: int  # longest side of a picture, pixels


# From all that is wanted down to the least. Points of the map go first: 700 show its shape as well.
LADDER = (
    Amounts(2400, 12, 9, 6, 64),
    Amounts(1600, 12, 9, 6, 64),
    Amounts(1000, 12, 9, 6, 64),
    Amounts(700, 12, 9, 6, 48),
    Amounts(500, 9, 6, 5, 48),
    Amounts(350, 6, 4, 4, 32),
    Amounts(200, 4, 3, 3, 32),
    Amounts(120, 3, 2, 2, 24),
    Amounts(60, 2, 1, 1, 16),
)


class Facts:
    """What is computed once, however much of it is then shown."""

    def __init__(
        self, model: TreeVAE, samples: ShownSamples, classes: ShownClasses | None, random_state: Any, method: str
    ) -> None:
        most = LADDER[0]
        self.model, self.samples, self.tree = model.fitted_, samples, model.tree_
        self.placement = Placement(self.tree, self.model.predict_proba(samples.given))
        labels, kind = self.placement.labels, samples.kind
        self.class_names: list[str] | None = None
        self.y: np.ndarray | None = None
        if classes is not None:
            self.class_names, self.y = classes.names, classes.numbers
        mark = {"words": naming.word_marks, "table": naming.feature_marks}.get(kind)
        self.marks = {} if mark is None else mark(self.tree, labels, samples.matrix, samples.names, ON_CARD)
        self.names = self._names(None if classes is None else classes.of_samples)
        self.typical = {node: self.placement.typical(node, most.per_node) for node in self.tree.nodes}
        self.ambiguous = {node: self.placement.ambiguous(node, most.per_node) for node in self.tree.nodes}
        chance = np.random.default_rng(random_state)
        self.order = chance.permutation(samples.n)
        self.elbo = self._elbo(chance)
        leaves = self.tree.leaves
        self.generated = [self.model.sample(most.generated, leaf, random_state) for leaf in leaves]
        self.walks = self.model.walk_draws(most.rows, random_state)
        self.means = split_means(self.tree, labels, samples.matrix) if kind == "images" else {}
        split = {"words": word_rows, "table": feature_rows}.get(kind)
        self.rows = {} if split is None else split(self.tree, labels, samples.matrix, samples.names, ROWS_OF_SPLIT)
        shown = self._shown(most)
        self.map = "UMAP" if method == "umap" else "PCA"
        self.places = dict(zip(shown, self._places(shown, method, random_state), strict=True))

        self.scores, self.history = self._scores(), history_rows(self.model)
        self.parameters = _parameters(model)

    # -- computing --------------------------------------------------------------------------------------------------

    def _names(self, classes: np.ndarray | None) -> dict[int, str]:
        """The best name of each node: its classes, else what sets it apart, else its number."""
        names = naming.numbered(self.tree) | naming.by_marks(self.marks if self.samples.named else {})
        if classes is not None:
            names |= naming.by_class(self.tree, self.placement.labels, classes)
        return names | {0: naming.ROOT}

    def _elbo(self, chance: np.random.Generator) -> dict[int, dict[str, float] | None]:
        """The mean terms of each node's samples: of some from every leaf, each leaf weighted by its size."""
        picked = []
        for leaf in self.tree.leaves:
            rows = self.placement.rows(leaf)
            quota = min(len(rows), max(SCORED_OF_LEAF, ceil(SCORED * len(rows) / self.samples.n)))
            picked.append(chance.choice(rows, quota, replace=False))
        scored = self.model.elbo_terms(self.samples.take(np.concatenate(picked)), DRAWS)
        terms = np.split(scored, np.cumsum([len(rows) for rows in picked])[:-1])
        means = {leaf: of.mean(0) for leaf, of in zip(self.tree.leaves, terms, strict=True) if len(of)}
        elbo_of: dict[int, dict[str, float] | None] = {}
        for node in self.tree.nodes:
            leaves = [leaf for leaf in self.tree.leaves_below(node) if leaf in means]
            if not leaves:
                elbo_of[node] = None
                continue
            mean = np.average(
                [means[leaf] for leaf in leaves], axis=0, weights=[self.placement.size(i) for i in leaves]
            )
            named = {name: compact(value) for name, value in zip(TERMS, mean, strict=True)}
            elbo_of[node] = {"elbo": compact(mean[0] - mean[1:].sum()), **named}
        return elbo_of

    def _places(self, rows: list[int], method: str, random_state: Any) -> np.ndarray:
        """Where samples stand on the map, in the unit square, its proportions kept."""
        embedding = self.model.embed(self.samples.take(rows))
        if embedding.shape[1] == 1 or len(rows) < FEWEST_ON_MAP:
            places = np.hstack([embedding, np.zeros_like(embedding)])[:, :2]
        else:
            places = flat_map(embedding, method, random_state)
        low, high = places.min(0), places.max(0)
        return 0.5 + (places - (low + high) / 2) / max(float((high - low).max()), 1e-9)

    # -- showing ----------------------------------------------------------------------------------------------------

    def _shown(self, amounts: Amounts) -> list[int]:
        """The rows of X that are shown: those at nodes, and others by lot until there are enough points."""
        at_nodes = (of[: amounts.per_node] for lists in (self.typical, self.ambiguous) for of in lists.values())
        shown = dict.fromkeys(chain.from_iterable(at_nodes))
        for row in self.order.tolist():
            if len(shown) >= amounts.points:
                break
            shown[row] = None
        return sorted(shown)

    def bundle(
        self, amounts: Amounts, title: str, attributes: dict[int, list[dict[str, Any]]] | None
    ) -> dict[str, Any]:
        """The bundle with so much in it."""
        samples, shape, shown = self.samples, self.samples.form.shape, self._shown(amounts)
        is_image = samples.kind == "images"
        sprites = Sprites(shape[1], shape[2], amounts.side) if is_image else None
        parts = {  # made in this order: the coloured sprites of splits come last, so that most sheets are grey
            "samples": self._samples(shown, sprites),
            "all_leaves": self._all_leaves(amounts, sprites),
            "nodes": self._nodes(amounts, {row: i for i, row in enumerate(shown)}, attributes, sprites),
        }
        return {
            "format": FORMAT,
            "treevae": __version__,
            "title": title,
            "created": datetime.now(UTC).isoformat(timespec="seconds"),
            "kind": samples.kind,
            "image": {"height": shape[1], "width": shape[2], "channels": shape[0]} if is_image else None,
            "n_samples": samples.n,
            "n_shown": len(shown),
            "n_features": samples.form.n_features,
            "features": [short(name) for name in samples.names[:MOST_NAMES]] if samples.named else None,
            "classes": self.class_names,
            "scores": self.scores,
            "groups": [list(self.tree.groups(k)) for k in range(1, len(self.tree.leaves) + 1)],
            **parts,
            "map": {"method": self.map, "of": "root embedding"},
            "sprites": None if sprites is None else sprites.to_dict(),
            "history": self.history,
            "parameters": self.parameters,
            "live": False,
        }

    def _samples(self, shown: list[int], sprites: Sprites | None) -> dict[str, Any]:
        """What is known of the rows that are shown, column by column."""
        pictures = self._show(self.samples.matrix[shown], sprites)
        places = np.array([self.places[row] for row in shown]).round(4)
        return {
            "sprite": None if sprites is None else pictures,
            "card": pictures if sprites is None else None,
            "leaf": [self.tree.leaves[k] for k in self.placement.labels[shown].tolist()],
            "label": None if self.y is None else self.y[shown].tolist(),
            "row": shown,
            "probability": [compact(p) for p in self.placement.reach[shown].max(1)],
            "x": places[:, 0].tolist(),
            "y": places[:, 1].tolist(),
        }

    def _nodes(
        self,
        amounts: Amounts,
        number: dict[int, int],
        attributes: dict[int, list[dict[str, Any]]] | None,
        sprites: Sprites | None,
    ) -> list[dict[str, Any]]:
        """What is known of each node; ``number`` is that of a row among the samples shown."""
        made = {
            leaf: self._show(self.samples.form.to_matrix(self.generated[k][: amounts.generated]), sprites)
            for k, leaf in enumerate(self.tree.leaves)
        }

        def entry(node: int) -> dict[str, Any]:
            below, most = self.tree.leaves_below(node), amounts.per_node
            return {
                "id": node,
                "parent": self.tree.parent(node),
                "depth": self.tree.depth(node),
                "children": list(self.tree.children(node)),
                "leaf": self.tree.leaves.index(node) if self.tree.is_leaf(node) else None,
                "name": self.names[node],
                "size": self.placement.size(node),
                "mass": compact(self.placement.mass(node)),
                "confidence": compact(self.placement.confidence(node)),
                "elbo": self.elbo[node],
                "typical": [number[row] for row in self.typical[node][:most]],
                "ambiguous": [number[row] for row in self.ambiguous[node][:most]],
                "generated": in_turn([made[leaf] for leaf in below], max(amounts.generated, most)),
                "split": self._split(node, sprites),
                "attributes": None if attributes is None else _plain_rows(attributes.get(node)),
                "marks": None if sprites is not None else _plain_rows(self.marks.get(node, [])),
                "labels": self._label_mix(node),
            }

        return [entry(node) for node in self.tree.nodes]

    def _show(self, matrix: np.ndarray, sprites: Sprites | None) -> list[Any]:
        """Sprite numbers of images, cards of all else."""
        if sprites is not None:
            return sprites.add(self.samples.pixels(matrix))
        return each(self.samples.cards, matrix, ON_CARD)

    def _all_leaves(self, amounts: Amounts, sprites: Sprites | None) -> list[dict[str, Any]]:
        """Draws of the root as every leaf shows them; keys of objects are the leaves' nodes."""
        rows, leaves = [], [str(leaf) for leaf in self.tree.leaves]
        for shown, probability in zip(self.walks.shown[: amounts.rows], self.walks.probability, strict=False):
            pictures = self._show(self.samples.form.to_matrix(shown), sprites)
            probabilities = [compact(p) for p in probability]
            rows.append(
                {
                    "sample": None,
                    "images": dict(zip(leaves, pictures, strict=True)),
                    "probabilities": dict(zip(leaves, probabilities, strict=True)),
                }
            )
        return rows

    def _split(self, node: int, sprites: Sprites | None) -> dict[str, Any] | None:
        """What tells the children apart; None where there are not two that have samples."""
        if sprites is None:
            rows = _plain_rows(self.rows.get(node))
            return None if rows is None else {"kind": "features", "rows": rows}
        if node not in self.means:
            return None
        left, right = (self.samples.pixels(mean[None])[0, ..., :3] for mean in self.means[node])
        numbers = sprites.add(np.stack([left, right, difference_image(left, right)]))
        return {"kind": "images", **dict(zip(("left", "right", "difference"), numbers, strict=True))}

    def _label_mix(self, node: int) -> list[int] | None:
        """How many of the node's samples are of each class."""
        if self.y is None or self.class_names is None:
            return None
        return np.bincount(self.y[self.placement.rows(node)], minlength=len(self.class_names)).tolist()

    def _scores(self) -> dict[str, float] | None:
        """How well the leaves agree with the classes, as shares; DP where some class has two samples."""
        if self.y is None:
            return None
        leaves = self.placement.labels
        pairs = np.bincount(self.y).max() > 1
        scores = {"ACC": accuracy(leaves, self.y), "NMI": nmi(leaves, self.y), "LP": leaf_purity(leaves, self.y)}
        scores |= {"DP": dendrogram_purity(self.tree, leaves, self.y)} if pairs else {}
        return {name: round(value, 4) for name, value in scores.items()}


def history_rows(model: Fitted) -> list[dict[str, Any]]:
    """The epochs of training, thinned evenly but for the ends of stages: stage, leaf, epoch, loss and its parts."""
    trees = (event.tree for event in model.history if isinstance(event, TreeChanged))
    rows, n_leaves = [], len(next(trees, model.tree).leaves)  # the first tree is told of after its epochs
    for event in model.history:
        if isinstance(event, TreeChanged):
            n_leaves = len(event.tree.leaves)
        if isinstance(event, EpochEnded):
            terms = {"loss": event.kl - event.reconstruction, "reconstruction": event.reconstruction, "kl": event.kl}
            where = {name: getattr(event, name) for name in ("stage", "leaf", "epoch", "epochs")}
            rows.append(where | {"n_leaves": n_leaves} | {name: compact(value) for name, value in terms.items()})
    step = max(1, ceil(len(rows) / EPOCHS_SHOWN))
    return [row for i, row in enumerate(rows) if i % step == 0 or row["epoch"] == row["epochs"]]


def _parameters(model: TreeVAE) -> dict[str, str]:
    """The estimator's parameters that are not its defaults, as text."""
    default, left_out = type(model)().get_params(deep=False), ("verbose", "device", "tree")
    given = {name: value for name, value in model.get_params(deep=False).items() if name not in left_out}
    return {name: short(value) for name, value in given.items() if repr(value) != repr(default[name])}


def _plain_rows(rows: list[dict[str, Any]] | None) -> list[dict[str, Any]] | None:
    if rows is None:
        return None
    return [{name: short(v) if isinstance(v, str) else compact(v) for name, v in row.items()} for row in rows]


def compact(value: Any) -> Any:
    """A number with five significant digits, for JSON; None stays None, as does what is not finite."""
    if value is None or not np.isfinite(value):
        return None
    return float(f"{float(value):.5g}")
