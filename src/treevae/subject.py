"""What a report is about: the samples of a run, found again by what the run remembers, and what is known of them."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from .data import fashion_sample
from .data.files import read
from .data.sets import check_not_a_set, load
from .errors import DataFileError
from .page.snapshot import Snapshot, snapshot
from .recipes import RECIPES
from .run import Run, Settings
from .storage.fingerprint import fingerprint

if TYPE_CHECKING:
    from .data.dataset import DataSet
    from .data.samples import Table
    from .estimator import TreeVAE


@dataclass(frozen=True, eq=False)
class Subject:
    """Samples, and what is known of them; what is not known is None."""

    X: Any
    title: str
    y: np.ndarray | None = None
    class_names: Sequence[str] | None = None
    names: Sequence[str] | None = None  # of features
    attributes: np.ndarray | None = None
    attribute_names: Sequence[str] | None = None
    vectorize: Callable[[Sequence[str]], np.ndarray] | None = None  # turns texts into samples
    note: str = ""  # what is to be said of how they were taken
    origin: str = ""  # the path they were read from, or the name of their set

    @classmethod
    def of_set(cls, data: DataSet) -> Subject:
        """The test samples of a data set."""
        return cls(
            data.x_test,
            data.name,
            data.y_test,
            data.class_names if data.y_test is not None else None,
            data.feature_names,
            data.attributes_test,
            data.attribute_names,
            data.vectorize,
            origin=data.name,
        )

    @classmethod
    def of_demo(cls) -> Subject:
        """The test images of the demo."""
        data = fashion_sample.load()
        return cls(data.x_test, "Fashion-MNIST, a sample", data.y_test, data.class_names, origin="demo")

    @classmethod
    def of_file(
        cls, model: TreeVAE, path: Path, drop: Sequence[str] | None, label: str | None, remembered: Sequence[str]
    ) -> Subject:
        """The samples of a file or folder; ``label`` names the column, or the array of an npz, with the classes.

        Columns that the run remembers to have left out are left out again, where they are, unless ``drop`` says others.
        """
        if label is not None and label in getattr(model, "feature_names_in_", ()):
            raise ValueError(
                f"--label {label}: the tree was grown with this column as a feature; to keep it for its classes, fit "
                f"again with --drop {label}"
            )
        table = read(path, drop or (), label, remembered if drop is None else ())
        X, note = as_fitted(model, table, path)
        names = tuple(X.columns) if hasattr(X, "columns") else None
        return cls(X, path.stem or str(path), table.labels, names=names, note=note, origin=str(path))

    def snapshot(self, model: TreeVAE, **how: Any) -> Snapshot:
        """The bundle of a model with these samples; ``how`` are further arguments of ``snapshot``."""
        given = {
            "class_names": self.class_names,
            "attributes": self.attributes,
            "attribute_names": self.attribute_names,
            "title": self.title,
        }
        return snapshot(model, self.X, self.y, self.names, **given | how)


def subject_of(
    model: TreeVAE,
    run: Run,
    data: str | None = None,
    root: Path | None = None,
    drop: Sequence[str] | None = None,
    label: str | None = None,
) -> Subject:
    """The samples of a run: those it remembers, or others that ``data`` names, a file, a folder or a data set.

    The name of a data set is that; a folder of the same name is ``./NAME``.
    Of a data set, which is found below ``root``, the test samples are taken; they have no columns to drop or to name.
    """
    settings = told(run, data, drop)
    has_no_columns = settings.is_set or settings.is_demo
    if wrong := [name for name, value in (("--drop", drop), ("--label", label)) if has_no_columns and value]:
        raise ValueError(
            f"{' and '.join(wrong)} cannot be given with the data set {settings.data}, which has no columns and "
            "knows its own classes; leave it out"
        )
    if root is not None and not settings.is_set:
        raise ValueError(f"--root is for data sets: {', '.join(RECIPES)}; {settings.data} is none of them")
    if settings.is_demo:
        return Subject.of_demo()
    if settings.is_set:
        return Subject.of_set(load(settings.data, root or settings.found_at or None))
    if data is not None:
        check_not_a_set(Path(data))
        return Subject.of_file(model, Path(data), drop, label, settings.left_out)
    path = next((Path(name) for name in (settings.found_at, settings.data) if os.path.exists(name)), None)
    if path is None:
        raise DataFileError(f"the samples of {run.path} are not at {settings.found_at} any more; name them with --data")
    subject = Subject.of_file(model, path, drop, label, settings.left_out)
    if drop is None and settings.samples not in (None, fingerprint(np.asarray(subject.X))):
        changed = f"{path} is not what it was when {run.path} was fitted."
        return replace(subject, note=" ".join(filter(None, [changed, subject.note])))
    return subject


def told(run: Run, data: str | None, drop: Sequence[str] | None) -> Settings:
    """What the run remembers of its samples; or what is known of others, which may come without columns it left out."""
    if data is None:
        return run.remembered()
    if data in RECIPES:
        return Settings(data, "", (), {}, is_set=True)
    return Settings(data, "", run.left_out() if drop is None else (), {})


def as_fitted(model: TreeVAE, table: Table, path: Path) -> tuple[Any, str]:
    """The samples of a table as a model takes them, and what is to be said of their columns, if anything."""
    names = getattr(model, "feature_names_in_", None)
    if names is None:
        return table.X, ""
    columns = table.feature_names
    if columns is not None and tuple(names) != columns and sorted(names) == sorted(columns):
        note = f"{path} has its columns in another order than the fit: they are taken by name."
        return table.frame[list(names)], note
    if columns is not None or table.X.ndim != 2 or table.X.shape[1] != len(names):
        return table.frame, ""  # the model says what is wrong
    note = f"{path} does not name its columns: they are taken to be those of the fit, in the same order."
    with suppress(ImportError):  # without pandas scikit-learn warns, too
        return replace(table, feature_names=tuple(names)).frame, note
    return table.X, note
