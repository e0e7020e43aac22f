"""What a report is about: the samples of a run, found again by what the run remembers, and what is known of them."""

from __future__ import annotations

import json
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
from .storage.states import fingerprint

if TYPE_CHECKING:
    from .data.dataset import DataSet
    from .data.samples import Table
    from .estimator import TreeVAE

SETTINGS = "run.json"  # what a run remembers
DEMO = "demo"  # the data of a run that the demo wrote
SAMPLES = "samples"  # in what a run remembers: their fingerprint; earlier versions did not tell


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
        return cls(data.x_test, "Fashion-MNIST, a sample", data.y_test, data.class_names, origin=DEMO)

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
    run: Path,
    data: str | None = None,
    root: Path | None = None,
    drop: Sequence[str] | None = None,
    label: str | None = None,
) -> Subject:
    """The samples of a run: those it remembers, or others that ``data`` names, a file, a folder or a data set.

    The name of a data set is that; a folder of the same name is ``./NAME``.
    Of a data set, which is found below ``root``, the test samples are taken; they have no columns to drop or to name.
    """
    settings = _settings(run, data)
    is_set = bool(settings.get("set") or settings.get(DEMO))
    if wrong := [name for name, value in (("--drop", drop), ("--label", label)) if is_set and value]:
        raise ValueError(
            f"{' and '.join(wrong)} cannot be given with the data set {settings['data']}, which has no columns and "
            "knows its own classes; leave it out"
        )
    if root is not None and not settings.get("set"):
        raise ValueError(f"--root is for data sets: {', '.join(RECIPES)}; {settings['data']} is none of them")
    if settings.get(DEMO):
        return Subject.of_demo()
    if settings.get("set"):
        return Subject.of_set(load(settings["data"], root or settings["found_at"] or None))
    if data is not None:
        check_not_a_set(Path(data))
        return Subject.of_file(model, Path(data), drop, label, settings["drop"])
    path = next((path for name in ("found_at", "data") if (path := Path(settings[name])).exists()), None)
    if path is None:
        raise DataFileError(f"the samples of {run} are not at {settings['found_at']} any more; name them with --data")
    subject = Subject.of_file(model, path, drop, label, settings["drop"])
    was = settings.get(SAMPLES)
    if drop is None and isinstance(was, str) and was != fingerprint(np.asarray(subject.X)):
        changed = f"{path} is not what it was when {run} was fitted."
        return replace(subject, note=" ".join(filter(None, [changed, subject.note])))
    return subject


def as_fitted(model: TreeVAE, table: Table, path: Path) -> tuple[Any, str]:
    """The samples of a table as a model takes them, and what is to be said of their columns, if anything."""
    names = getattr(model, "feature_names_in_", None)
    if names is None:
        return table.X, ""
    found = table.feature_names
    if found is not None and tuple(names) != found and sorted(names) == sorted(found):
        note = f"{path} has its columns in another order than the fit: they are taken by name."
        return table.frame[list(names)], note
    if found is not None or table.X.ndim != 2 or table.X.shape[1] != len(names):
        return table.frame, ""  # the model says what is wrong
    note = f"{path} does not name its columns: they are taken to be those of the fit, in the same order."
    with suppress(ImportError):  # without pandas scikit-learn warns, too
        return replace(table, feature_names=tuple(names)).frame, note
    return table.X, note


def _settings(run: Path, data: str | None) -> dict[str, Any]:
    """What the run remembers of its samples; or what is known of others, which may come without columns it left out."""
    if data is None:
        return _remembered(run)
    if data in RECIPES:
        return {"data": data, "found_at": "", "drop": [], "set": True}
    return {"data": data, "found_at": "", "drop": left_out(run)}


def left_out(run: Path) -> list[str]:
    """The columns that a run was fitted without; none where it remembers nothing."""
    try:
        return _remembered(run)["drop"]
    except DataFileError:
        return []


def _remembered(run: Path) -> dict[str, Any]:
    path = (run if run.is_dir() else run.parent) / SETTINGS
    try:
        settings = json.loads(path.read_text(encoding="utf-8"))
        if not {"data", "found_at", "drop"} <= set(settings):
            raise ValueError("it lacks an entry")
    except FileNotFoundError as error:
        raise DataFileError(f"{run} does not remember its samples (no {SETTINGS}); name them with --data") from error
    except ValueError as error:
        raise DataFileError(f"{path} cannot be read: {error}; name the samples with --data") from error
    return settings
