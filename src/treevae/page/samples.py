"""The samples of a bundle in the forms in which a model is asked about them and a page shows them; their classes."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np

from ..data.arrays import InputForm, as_array
from ..describe.cards import Cards, FeatureCards, WordCards, apart
from ..describe.contrasts import named_classes
from ..describe.images import pixels_of, span_of

if TYPE_CHECKING:
    from ..fitted import Fitted

KINDS = ("images", "words", "table")


@dataclass(frozen=True)
class ShownSamples:
    """X in the forms in which it is asked about."""

    given: Any  # as the model takes it
    matrix: np.ndarray  # (n, features)
    form: InputForm
    span: tuple[float, float]  # of images: what is black and what is white
    names: list[str]
    named: bool
    kind: str

    @classmethod
    def of(cls, model: Fitted, X: Any, names: Sequence[str] | None, kind: str | None) -> ShownSamples:
        """The samples X of a model; features are called as ``names`` says, or as in ``fit``."""
        if kind is not None and kind not in KINDS:
            raise ValueError(f"kind={kind!r}; allowed are {', '.join(map(repr, KINDS))}")
        matrix, form = model.read(X), model.shown.form
        if (kind == "images") != form.is_image and kind is not None:
            raise ValueError(f"kind={kind!r}, but the samples have shape {form.user_shape}; leave kind out")
        known = names if names is not None else model.names or None
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
        """How many there are."""
        return len(self.matrix)

    @cached_property
    def cards(self) -> Cards:
        """Makes cards of samples that are no pictures."""
        return (WordCards if self.kind == "words" else FeatureCards).of(self.matrix, self.names)

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
class ShownClasses:
    """The class of each sample."""

    names: list[str]  # short, no two the same; in their order, or else in that of the alphabet
    numbers: np.ndarray  # (n,) the position of each sample's

    @classmethod
    def of(cls, y: Any, class_names: Sequence[str] | None, n: int) -> ShownClasses:
        """The classes y of n samples; class k is called ``class_names[k]`` or, without them, as y says."""
        if class_names is not None:
            return cls(apart(class_names), named_classes(y, [str(k) for k in range(len(class_names))], n).astype(int))
        names, numbers = np.unique(named_classes(y, None, n), return_inverse=True)
        return cls(apart(names.tolist()), numbers)

    @property
    def of_samples(self) -> np.ndarray:
        """The name of each sample's class."""
        return np.array(self.names)[self.numbers]
