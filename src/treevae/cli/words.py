"""What the commands say: counts, shapes, the tree, names of samples, what was written, what was wrong."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import typer
from typer.core import TyperGroup

if TYPE_CHECKING:
    from ..data.files import Table
    from ..estimator import TreeVAE

INTERRUPTED = 130  # exit code of a command ended by Ctrl-C
LARGEST_SEED = 2**32 - 1  # that NumPy takes


def drawing(model: TreeVAE, notes: Sequence[str] | None = None) -> str:
    """The tree with the number of training samples at each node, and a note at each leaf where there are any."""
    tree, sizes = model.tree_, model.fitted_.sizes

    def describe(node: int) -> str:
        if not tree.is_leaf(node):
            pruned = " (its other child was pruned)" if len(tree.children(node)) == 1 else ""
            return count(sizes[node], "sample") + pruned
        k = tree.leaves.index(node)
        return f"cluster {k}: {count(sizes[node], 'sample')}" + ("" if notes is None else f", {notes[k]}")

    return tree.draw(describe)


def sample_names(table: Table) -> Sequence[Any]:
    """What the samples are called: the files of pictures, else numbers."""
    return table.sample_names or range(len(table.X))


def count(n: int, what: str) -> str:
    """So many of something."""
    return f"{n:,} {what}{'' if n == 1 else 's'}"


def times(shape: Iterable[int]) -> str:
    """A shape as one reads it: 28 × 28."""
    return " × ".join(map(str, shape))


def say_written(paths: Sequence[Path]) -> None:
    """Say which files were written."""
    typer.echo("Wrote " + ", ".join(map(str, paths)))


def say_note(note: str) -> None:
    """Say what is to be known of the samples, if anything; what is printed for a file or a pipe stays without it."""
    if note:
        typer.echo(note, err=True)


def as_options(text: str, command: Any) -> str:
    """A message with parameters as Python has them, n_leaves=3, as the options of a command: --n-leaves 3.

    Names of files and records, which may have such words in them, stay as they are.
    """
    for option in command.params:
        if (flag := option.opts[0]).startswith("--"):
            name = rf"(?<![\w/.-]){option.name}"
            text = re.sub(rf"{name}=(?:'([^']*)'|([\w+-]+(?:\.\d+)?))(?!\w|[/.-]\w)", rf"{flag} \1\2", text)
            if "_" in option.name:  # no word of the language
                text = re.sub(rf"{name}(?![\w=-]|[/.]\w)", flag, text)
    return text


def flowing(text: str) -> str:
    """A help text whose paragraphs are one line each, to be wrapped where it is shown; those behind \\b stay."""
    paragraphs = text.split("\n\n")
    return "\n\n".join(one if one.lstrip().startswith("\b") else " ".join(one.split()) for one in paragraphs)


class Commands(TyperGroup):
    """A group of commands, in which a mistake of the user ends in one red line and exit code 1."""

    def __init__(self, *arguments: Any, **options: Any) -> None:
        super().__init__(*arguments, **options)
        for command in self.commands.values():
            command.help = flowing(command.help or "")

    def invoke(self, ctx: Any) -> Any:
        """What the command returns."""
        try:
            return super().invoke(ctx)
        except BrokenPipeError:  # whoever read the output has seen enough
            raise
        except (ValueError, OSError, FloatingPointError, MemoryError) as error:
            said = " ".join(str(error).split())
            command = self.commands.get(ctx.invoked_subcommand or "")
            typer.secho(f"Error: {said if command is None else as_options(said, command)}", fg="red", err=True)
            raise typer.Exit(1) from error
