"""The bundle: all that a page shows of a fitted model, computed once, as plain JSON of bounded size."""

from __future__ import annotations

import json
import os
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any

from sklearn.pipeline import Pipeline
from sklearn.utils.validation import check_is_fitted

from ..describe.splits import attribute_rows
from ..storage.writing import write_whole
from .facts import LADDER, ROWS_OF_SPLIT, Facts
from .samples import ShownClasses, ShownSamples

if TYPE_CHECKING:
    from ..estimator import TreeVAE

MOST_BYTES = 3_000_000  # of the bundle as JSON
MAPS = ("auto", "umap", "pca")


@dataclass(frozen=True)
class Snapshot:
    """What a page needs to show a fitted model: ``bundle`` holds plain JSON values, described in docs/use/report.md."""

    bundle: dict[str, Any]

    def to_json(self) -> str:
        """The bundle as one line of JSON."""
        return json.dumps(self.bundle, separators=(",", ":"), allow_nan=False, ensure_ascii=False)

    @cached_property
    def n_bytes(self) -> int:
        """The size of the JSON in bytes."""
        return len(self.to_json().encode())

    def write(self, path: str | os.PathLike[str]) -> None:
        """Write the JSON; the file is there whole, or not at all."""
        write_whole(Path(path), self.to_json())


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
    """All that a page needs to show a fitted model; the parameters are those of :func:`treevae.report`."""
    if isinstance(model, Pipeline):
        raise TypeError(
            "model is a Pipeline; give its last step, model[-1], and X as that sees it: model[:-1].transform(X)"
        )
    check_is_fitted(model)
    samples = ShownSamples.of(model.fitted_, X, names, kind)
    classes = None if y is None else ShownClasses.of(y, class_names, samples.n)
    facts = Facts(model, samples, classes, random_state, map_of(map_method))
    about = (
        None
        if attributes is None
        else attribute_rows(facts.tree, facts.placement.labels, attributes, list(attribute_names or ()), ROWS_OF_SPLIT)
    )
    for amounts in LADDER:
        attempt = Snapshot(facts.bundle(amounts, title, about))
        if attempt.n_bytes <= max_bytes:
            return attempt
    raise ValueError(
        f"max_bytes={max_bytes} is too small: with {len(facts.tree.leaves)} leaves the smallest bundle has "
        f"{attempt.n_bytes} bytes"
    )


def map_of(method: str) -> str:
    """How the map is made: UMAP or PCA; raises if ``method`` is none of those that can be asked for."""
    if method not in MAPS:
        raise ValueError(f"map_method={method!r}; allowed are {', '.join(map(repr, MAPS))}")
    if method == "auto":
        return "umap" if find_spec("umap") is not None else "pca"
    return method
