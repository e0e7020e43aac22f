"""A run as the commands see it: the files in its folder, whether its fit has ended, its model; and where to write."""

from __future__ import annotations

import sys
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

if TYPE_CHECKING:
    from ..estimator import TreeVAE

MODEL = "model.safetensors"
SETTINGS = "run.json"
RunPath = Annotated[Path, typer.Argument(metavar="RUN", help="The folder that fit wrote, or its model.safetensors.")]
Drop = Annotated[
    list[str] | None, typer.Option(metavar="COLUMN", help="Leave a column of a table out; may be repeated.")
]
OTHER_HELP = "Other samples than those of RUN: a file, a folder or a data set, as in fit."
OtherData = Annotated[str | None, typer.Option("--data", metavar="DATA", help=OTHER_HELP)]
Root = Annotated[Path | None, typer.Option(metavar="FOLDER", help="Where a data set lies, if not where fit found it.")]


def unfinished(run: Path) -> bool:
    """Whether the folder holds the state of a fit that has not ended."""
    from ..storage.states import STATES

    return any((run / name).exists() for name in STATES)


def model_file(run: Path) -> Path:
    """The model's file, given itself or its folder."""
    if not run.exists():
        raise FileNotFoundError(f"there is no run {run}; treevae fit writes one")
    path = run / MODEL if run.is_dir() else run
    if not path.exists():
        begun = (
            f"its fit has not ended, go on with: treevae fit --resume {run}"
            if unfinished(run)
            else "treevae fit writes one"
        )
        raise FileNotFoundError(f"the folder {run} has no {MODEL} in it; {begun}")
    return path


def load_model(run: Path) -> TreeVAE:
    """The model of a run."""
    path = model_file(run)
    from ..estimator import load

    return load(path)


def make_writable(folder: Path, option: str = "-o") -> None:
    """Make the folder that an option names, and raise if nothing can be written into it."""
    from tempfile import TemporaryFile

    try:
        folder.mkdir(parents=True, exist_ok=True)
        with TemporaryFile(dir=folder):
            pass
    except OSError as error:
        raise ValueError(
            f"cannot write into the folder {folder}: {error.strerror}; name another with {option}"
        ) from error


def check_parent(out: Path | None) -> None:
    """Raise if there is no folder for the file."""
    if out is not None and not out.parent.is_dir():
        raise FileNotFoundError(f"there is no folder {out.parent} to write {out.name} into; make it first")


def write_csv(out: Path | None, header: Sequence[str], columns: Iterable[Iterable[Any]]) -> None:
    """Write columns to a file, or to standard output."""
    import csv
    from contextlib import nullcontext

    with nullcontext(sys.stdout) if out is None else out.open("w", newline="", encoding="utf-8") as file:
        writer = csv.writer(file, lineterminator="\n")
        writer.writerow(header)
        writer.writerows(zip(*columns, strict=True))
