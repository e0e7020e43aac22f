"""What the explorer answers: a fitted model and the samples of its bundle, asked in words of the page. No HTTP here.

Every answer is a function of the question alone: draws come from a generator made of the question's seed, and nothing
is kept between questions. So many threads may ask at once.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np

from ..data.arrays import as_array
from ..describe.cards import each
from ..describe.images import pixels_of
from ..page.samples import ShownSamples
from ..page.sprites import bytes_of, data_url, on_white, reduced
from .messages import (
    Entry,
    Generate,
    Generated,
    Interpolate,
    Interpolated,
    Picture,
    Place,
    Placed,
    Share,
    Shown,
    Step,
    Walk,
    Walked,
)
from .uploads import read_picture

if TYPE_CHECKING:
    from ..estimator import TreeVAE

LONGEST_SIDE = 128  # of a picture that is sent, pixels
ON_CARD = 12  # words or features that are sent of a sample
Vectorize = Callable[[Sequence[str]], np.ndarray]


class RefusedError(ValueError):
    """The question cannot be answered; the message names the field, its value and what is allowed."""


class Explorer:
    """A fitted model that can be asked.

    Parameters
    ----------
    model : fitted TreeVAE
    X : samples of the bundle, as in ``fit``
    bundle : dict
        What :func:`~treevae.page.snapshot.snapshot` made of them: it says which of them are shown, and how.
    names : sequence of str, optional
        What the features are called.
    vectorize : callable, optional
        Turns texts into rows of X, where X was made from texts.
    """

    def __init__(
        self,
        model: TreeVAE,
        X: Any,
        bundle: dict[str, Any],
        names: Sequence[str] | None = None,
        vectorize: Vectorize | None = None,
    ) -> None:
        known = names if names is not None else model.fitted_.names or None
        self._model = replace(model.fitted_, names=())  # samples come without names here
        seen = ShownSamples.of(self._model, np.asarray(as_array(X)), known, bundle["kind"])
        self.tree, self._form, self._span, self._vectorize = self._model.tree, seen.form, seen.span, vectorize
        self._cards = None if seen.kind == "images" else seen.cards
        self._samples = seen.take(bundle["samples"]["row"])

    @property
    def accepts(self) -> list[str]:
        """What can be placed: an image, a text, a row of numbers."""
        return [*(["image"] if self._form.is_image else []), *(["text"] if self._vectorize else []), "row"]

    # -- asking -------------------------------------------------------------------------------------------------

    def generate(self, ask: Generate) -> Generated:
        """New samples that pass through a node."""
        if ask.node not in self.tree.nodes:
            raise RefusedError(f"node: there is no node {ask.node}; the tree has {_listed(self.tree.nodes)}")
        drawn = self._model.sample(ask.n, ask.node, ask.seed, ask.temperature)
        return Generated(
            node=ask.node, seed=ask.seed, temperature=ask.temperature, samples=self._pictures(drawn, "node")
        )

    def walk(self, ask: Walk) -> Walked:
        """What every leaf makes of a sample or, without one, of a draw of the root."""
        if ask.sample is None:
            walks = self._model.walk_draws(1, ask.seed)
        else:
            walks = self._model.walk_samples(self._sample("sample", ask.sample))
        return Walked(sample=ask.sample, seed=ask.seed, leaves=self._shown(walks.shown[0], walks.probability[0]))

    def place(self, ask: Place) -> Placed:
        """Where a row of numbers or a text belongs."""
        return self._place("text", self._of_text(ask.text)) if ask.text else self._place("row", self._of_row(ask.row))

    def place_image(self, data: bytes, invert: bool) -> Placed:
        """Where an uploaded picture belongs."""
        return self._place("image", read_picture(data, self._form, self._span, invert))

    def interpolate(self, ask: Interpolate) -> Interpolated:
        """The way from one sample of the bundle to another."""
        pair = np.concatenate([self._sample("a", ask.a), self._sample("b", ask.b)])
        shown, reach = self._model.interpolate(pair, ask.steps)
        frames = [
            Shown(leaf=self.tree.leaves[k], cluster=k, probability=float(of[k]), picture=picture)
            for of, k, picture in zip(reach, reach.argmax(1).tolist(), self._pictures(shown, "a"), strict=True)
        ]
        return Interpolated(a=ask.a, b=ask.b, frames=frames)

    # -- inside -------------------------------------------------------------------------------------------------

    def _sample(self, field: str, number: int) -> np.ndarray:
        n = len(self._samples)
        if number >= n:
            raise RefusedError(f"{field}: there is no sample {number}; the bundle has samples 0 to {n - 1}")
        return self._samples[number : number + 1]

    def _of_row(self, row: Sequence[float]) -> np.ndarray:
        if len(row) != self._form.n_features:
            raise RefusedError(
                f"row: it has {len(row)} numbers; the model was fitted on {self._form.n_features}, so give as many"
            )
        return np.asarray(row, dtype=np.float64).reshape(1, *self._form.user_shape)

    def _of_text(self, text: str) -> np.ndarray:
        if self._vectorize is None:
            raise RefusedError(
                "text: the model does not know how its training data were made from texts; send row or an image instead"
            )
        counted = self._vectorize([text])
        if not counted.any():
            raise RefusedError(f"text: none of its words is among the {self._form.n_features} that the model knows")
        return counted

    def _place(self, field: str, x: np.ndarray) -> Placed:
        try:
            chance = self._model.predict_proba(x)[0]
            again = self._model.reconstruct(x)
        except ValueError as error:
            raise RefusedError(f"{field}: {error}") from error
        if not np.isfinite(chance).all():
            raise RefusedError(
                f"{field}: numbers as large as {np.abs(x).max():g} are beyond what the model can take; give them in "
                "the units of the training data"
            )
        k = int(chance.argmax())
        leaf = self.tree.leaves[k]
        forks = [node for node in self.tree.path(leaf) if len(self.tree.children(node)) != 1]  # as the page has them
        below = {node: [self.tree.leaves.index(i) for i in self.tree.leaves_below(node)] for node in forks}
        return Placed(
            leaf=leaf,
            cluster=k,
            path=[Step(node=node, probability=float(chance[leaves].sum())) for node, leaves in below.items()],
            leaves=[
                Share(leaf=leaf, cluster=i, probability=float(chance[i])) for i, leaf in enumerate(self.tree.leaves)
            ],
            sample=self._pictures(x, field)[0],
            reconstruction=self._pictures(again, field, like=x[0])[0],
        )

    def _shown(self, samples: np.ndarray, reach: np.ndarray) -> list[Shown]:
        """A sample for each leaf, from left to right."""
        return [
            Shown(leaf=leaf, cluster=k, probability=float(reach[k]), picture=picture)
            for k, (leaf, picture) in enumerate(zip(self.tree.leaves, self._pictures(samples, "sample"), strict=True))
        ]

    def _pictures(self, samples: np.ndarray, field: str, like: np.ndarray | None = None) -> list[Picture]:
        """Samples in the form of X, to look at; with the lines on their cards that the sample ``like`` has."""
        if not np.isfinite(self._form.to_matrix(samples)).all():
            raise RefusedError(
                f"{field}: the model's answer is beyond the range of its numbers; ask for something milder"
            )
        if self._cards is None:
            pixels = on_white(pixels_of(samples, self._form, self._span))
            block = -(-max(self._form.shape[1:]) // LONGEST_SIDE)
            return [Picture(png=data_url(one)) for one in bytes_of(reduced(pixels, block))]
        cards = each(self._cards, samples, ON_CARD, like)
        return [Picture(card=[Entry(**entry) for entry in card]) for card in cards]


def _listed(nodes: Sequence[int], most: int = 20) -> str:
    """Numbers, the first ones if they are many."""
    shown = ", ".join(map(str, nodes[:most]))
    return f"nodes {shown}" if len(nodes) <= most else f"nodes {shown} and {len(nodes) - most} more"
