"""Arguments and options that several commands have."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

RunPath = Annotated[Path, typer.Argument(metavar="RUN", help="The folder that fit wrote, or its model.safetensors.")]
Drop = Annotated[
    list[str] | None, typer.Option(metavar="COLUMN", help="Leave a column of a table out; may be repeated.")
]
OTHER_HELP = "Other samples than those of RUN: a file, a folder or a data set, as in fit."
OtherData = Annotated[str | None, typer.Option("--data", metavar="DATA", help=OTHER_HELP)]
Root = Annotated[Path | None, typer.Option(metavar="FOLDER", help="Where a data set lies, if not where fit found it.")]


def number_or_auto(option: str, text: str) -> int | str:
    """What an option says that is a whole number or "auto"."""
    if text == "auto":
        return text
    try:
        return int(text)
    except ValueError:
        raise ValueError(f"{option} {text} must be a whole number, or auto") from None
