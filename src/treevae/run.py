"""A run as one object: what is in the folder of a fit, what of it is missing, and what to do about that."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from reprlib import repr as shortened
from typing import Any

from .errors import DataFileError, ModelFileError
from .estimator import TreeVAE, load
from .fitting import run_folder
from .guides.sources import SOURCES
from .recipes import PAPER
from .storage.states import STATES, StateFolder, peek
from .storage.tensors import parsed
from .storage.writing import as_csv, reason, write_whole
from .training import events
from .training.events import EpochEnded
from .tree import Tree

MODEL = "model.safetensors"
SETTINGS = "run.json"
LABELS, DRAWING, TREE, RECORD = "labels.csv", "tree.txt", "tree.json", "record.json"
PICTURE, REPORT, METRICS = "tree.png", "report.html", "metrics.json"
OUTPUTS = (MODEL, LABELS, DRAWING, TREE, RECORD, PICTURE, REPORT, METRICS)
NEEDED = ("data", "found_at", "drop", "options")  # in a run.json; the others were not always told
LARGEST = 2**63  # no whole number in a run.json is as large
OPTIONS = TreeVAE().get_params(deep=False).keys() - {"verbose"}  # which a command sets itself


@dataclass(frozen=True)
class Settings:
    """How a run was started, as its run.json tells."""

    data: str  # a file, a folder or the name of a data set
    found_at: str  # the whole path of that; of a data set the folder of all sets, or "" where it needs none
    drop: tuple[str, ...]  # columns that were left out
    options: Mapping[str, Any]  # parameters of the estimator
    is_set: bool = False  # the training part of a data set
    is_demo: bool = False  # the pictures of the demo
    samples: str | None = None  # their fingerprint; earlier versions did not tell
    guide: str | None = None  # the name of a clustering, or of a column with labels

    @property
    def guide_column(self) -> str | None:
        """The column, or the array of a .npz, whose labels were the guide."""
        return None if self.guide in SOURCES else self.guide

    @property
    def left_out(self) -> tuple[str, ...]:
        """The columns that are no features."""
        return self.drop if self.guide_column is None else (*self.drop, self.guide_column)

    @classmethod
    def of_demo(cls, options: Mapping[str, Any]) -> Settings:
        """Those of the demo."""
        return cls("demo", "", (), options, is_demo=True)

    @classmethod
    def of_json(cls, text: str) -> Settings:
        """What a run.json tells; ValueError says what is wrong with it."""
        told = parsed(text)
        if not isinstance(told, dict):
            raise ValueError(f"it holds {shortened(told)}, and not the settings of a run")
        if missing := [name for name in NEEDED if name not in told]:
            raise ValueError(f"it lacks an entry, {missing[0]}")
        is_set, is_demo, samples = told.get("set", False), told.get("demo", False), told.get("samples")
        for name, value in (("set", is_set), ("demo", is_demo)):
            if not isinstance(value, bool):
                raise ValueError(f"{name} must be true or false, not {shortened(value)}")
        for name in ("data", "found_at"):
            if not _is_path(told[name]) or not (told[name] or is_set or is_demo):
                raise ValueError(f"{name} must be a path, not {shortened(told[name])}")
        drop, options = told["drop"], told["options"]
        if not isinstance(drop, list) or not all(isinstance(name, str) for name in drop):
            raise ValueError(f"drop must be a list of columns, not {shortened(drop)}")
        if not isinstance(options, dict):
            raise ValueError(f"options must be parameters of a fit by name, not {shortened(options)}")
        for name, value in options.items():
            if name not in OPTIONS:
                raise ValueError(f"options has {shortened(name)}, which is no parameter of a fit")
            if not _is_plain(value):
                raise ValueError(f"options has {shortened(value)} for {name}, which no parameter can be")
        if not isinstance(samples, str | None):
            raise ValueError(f"samples must be a fingerprint, not {shortened(samples)}")
        guide = told.get("guide")
        if not isinstance(guide, str | None):
            raise ValueError(f"guide must be the name of a guide or of a column, not {shortened(guide)}")
        return cls(told["data"], told["found_at"], tuple(drop), PAPER | options, is_set, is_demo, samples, guide)

    def to_json(self) -> str:
        """The text of a run.json."""
        told = [("data", self.data), ("found_at", self.found_at), ("drop", self.drop), ("options", self.options)]
        more = [("set", self.is_set or None), ("demo", self.is_demo or None), ("samples", self.samples)]
        more.append(("guide", self.guide))
        return json.dumps(dict(told) | {name: value for name, value in more if value is not None}, indent=2) + "\n"


@dataclass(frozen=True)
class Course:
    """How far a run in training had come when its state was last saved."""

    saves: int
    saved_at: float  # seconds since 1970
    seconds: float  # of fitting
    tree: Tree | None  # None before the first one stands
    epochs: tuple[EpochEnded, ...]
    losses: tuple[float, ...]  # what each epoch minimised, but for a contrastive loss


class Run:
    """The folder of a fit, or the file of a model, which may be alone. Nothing else reads or writes a run's files.

    Parameters
    ----------
    path : path
        The folder, or the model's file, whose folder is then that of the run. It need not be there.
    """

    def __init__(self, path: str | os.PathLike[str]) -> None:
        self.path = Path(path)
        self.folder = self.path.parent if self.path.is_file() else self.path

    # -- what is there ------------------------------------------------------------------------------------------

    @property
    def is_unfinished(self) -> bool:
        """Whether the folder holds the state of a fit that has not ended."""
        return any((self.folder / name).exists() for name in STATES)

    @property
    def is_finished(self) -> bool:
        """Whether a fit has ended here with a model."""
        return self.has_model and not self.is_unfinished

    @property
    def has_model(self) -> bool:
        """Whether there is a model, be it of a fit that has not ended."""
        return self.path.is_file() or (self.folder / MODEL).is_file()

    @property
    def has_settings(self) -> bool:
        """Whether there is a run.json."""
        return (self.folder / SETTINGS).exists()

    @property
    def has_begun(self) -> bool:
        """Whether a fit has begun in the folder, or has ended there."""
        return self.is_unfinished or self.has_settings or self.has_model

    @property
    def picture_file(self) -> Path:
        """Where the picture of the tree is written."""
        return self.folder / PICTURE

    @property
    def report_file(self) -> Path:
        """Where the page is written that shows the model."""
        return self.folder / REPORT

    def model_file(self) -> Path:
        """The model's file.

        Raises
        ------
        FileNotFoundError
            There is none. The message says what to do.
        """
        if not self.path.exists():
            raise FileNotFoundError(f"there is no run {self.path}; treevae fit writes one")
        if not self.has_model:
            begun = "treevae fit writes one"
            if self.is_unfinished:
                begun = f"its fit has not ended, go on with: treevae fit --resume {self.path}"
            raise FileNotFoundError(f"the folder {self.path} has no {MODEL} in it; {begun}")
        return self.path if self.path.is_file() else self.folder / MODEL

    def model(self) -> TreeVAE:
        """The fitted model."""
        return load(self.model_file())

    # -- what it remembers --------------------------------------------------------------------------------------

    def remembered(self) -> Settings:
        """How the run was started, for those who ask for its samples.

        Raises
        ------
        DataFileError
            There is no run.json, or none that can be read.
        """
        settings = self._settings("remove it, and name the samples with --data")
        if settings is None:
            raise DataFileError(f"{self.path} does not remember its samples (no {SETTINGS}); name them with --data")
        return settings

    def left_out(self) -> tuple[str, ...]:
        """The columns that the run was fitted without; none where there is no run.json.

        Raises
        ------
        DataFileError
            There is one that cannot be read.
        """
        settings = self._settings("remove it, and name the columns to leave out with --drop")
        return () if settings is None else settings.left_out

    def to_resume(self) -> Settings:
        """How the run was started, for those who go on with it.

        Raises
        ------
        FileNotFoundError
            No fit has begun here.
        ValueError
            The run.json cannot be read, or the fit has ended.
        """
        settings = self._settings(f"start anew with: treevae fit DATA -o {self.folder} --force")
        if settings is None:
            raise FileNotFoundError(f"{self.path} has no {SETTINGS}: treevae fit has not begun a run there")
        if self.is_finished:
            raise ValueError(f"the run in {self.path} is finished: see it with treevae info {self.path}")
        return settings

    def _settings(self, otherwise: str) -> Settings | None:
        """What the run.json tells; None if there is none. Where it cannot be read, one may do otherwise."""
        path = self.folder / SETTINGS
        try:
            return Settings.of_json(path.read_text(encoding="utf-8"))
        except FileNotFoundError:
            return None
        except (OSError, ValueError) as error:
            why = reason(error) if isinstance(error, OSError) else error
            raise DataFileError(f"{path} cannot be read: {why}. Bring a whole copy back, or {otherwise}") from error

    # -- how far it has come ------------------------------------------------------------------------------------

    def course(self) -> Course | None:
        """How far training had come at the last save, read without lock and weights; None before the first.

        Raises
        ------
        ModelFileError
            The state does not hold together.
        """
        newest = peek(self.folder)
        if newest is None:
            return None
        number, about, saved_at = newest
        try:
            trees = about["grove"]["runs"][0]["trees"]
            tree = Tree.from_json(trees[0]) if trees else None
            history = [events.from_dict(told) for told in about["histories"][0]]
            epochs = tuple(event for event in history if isinstance(event, EpochEnded))
            losses = tuple(round(event.loss, 3) for event in epochs)
            return Course(number, saved_at, float(about["spent"]), tree, epochs, losses)
        except (KeyError, IndexError, TypeError, ValueError, AttributeError) as error:
            raise ModelFileError(f"the state of the run in {self.path} does not hold together: {error!r}") from error

    # -- what is written ----------------------------------------------------------------------------------------

    def check_free(self) -> None:
        """Raise if the folder holds something that a new run would replace, or is none."""
        if self.path.is_file():
            raise ValueError(f"cannot write into the folder {self.path}: it is a file; name another with -o")
        if self.is_unfinished:
            raise ValueError(
                f"{self.path} holds an unfinished run; go on with: treevae fit --resume {self.path}, start anew with "
                "--force, or name another folder with -o"
            )
        if self.has_model:
            raise ValueError(
                f"{self.path} already holds a model; name another folder with -o, or replace it with --force"
            )

    def states(self, save_every: float) -> StateFolder:
        """Where the state of the fit is saved, with so many seconds between two saves; nothing is written yet."""
        return run_folder(self.folder, save_every)

    def begin(self, states: StateFolder, settings: Settings) -> None:
        """Remove what an earlier run has left in the folder, which must be locked, and write how this one is made."""
        states.clear()
        for name in OUTPUTS:
            (self.folder / name).unlink(missing_ok=True)
        self.write_settings(settings)

    def write_settings(self, settings: Settings) -> None:
        """Write how the run was started."""
        write_whole(self.folder / SETTINGS, settings.to_json())

    def write_model(self, model: TreeVAE) -> Path:
        """Write the model; the path says where. A page that shows an earlier one goes."""
        model.save(self.folder / MODEL)
        self.report_file.unlink(missing_ok=True)
        return self.folder / MODEL

    def write_tree(self, model: TreeVAE, sample_names: Sequence[Any], drawing: str) -> list[Path]:
        """Write the cluster of each sample, and the tree as a drawing and as data; the paths say where."""
        labels = as_csv(["sample", "cluster"], [sample_names, model.labels_.tolist()])
        texts = {LABELS: labels, DRAWING: drawing + "\n", TREE: model.tree_.to_json() + "\n"}
        for name, text in texts.items():
            write_whole(self.folder / name, text)
        return [self.folder / name for name in texts]

    def write_record(self, record: Mapping[str, Any]) -> Path:
        """Write the scores of the model and how it came about; the path says where."""
        write_whole(self.folder / RECORD, json.dumps(record, indent=1) + "\n")
        return self.folder / RECORD

    def write_metrics(self, metrics: Mapping[str, Any]) -> Path:
        """Write what the demo has measured; the path says where."""
        write_whole(self.folder / METRICS, json.dumps(metrics, indent=2) + "\n")
        return self.folder / METRICS

    @property
    def is_demo(self) -> bool:
        """Whether the demo has written here."""
        return (self.folder / METRICS).exists()


def _is_path(value: Any) -> bool:
    """Whether a value is a text that can be a path, or is empty."""
    try:
        return isinstance(value, str) and b"\0" not in os.fsencode(value)
    except UnicodeEncodeError:  # half a character
        return False


def _is_plain(value: Any) -> bool:
    """Whether a value is a number, a text, true, false or null, or a list of such."""
    parts = value if isinstance(value, list) else [value]
    return not any(isinstance(one, dict | list) or (type(one) is int and abs(one) >= LARGEST) for one in parts)
