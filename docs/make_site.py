"""The site: the pages of docs/ with all that they link to, built by Zensical. A broken link or anchor is an error.

    python docs/make_site.py [FOLDER]        # by default build/site

Pages link to records and pictures anywhere in the repository. A site has one root, so pages and what they link to are
first laid out below one folder (`lay_out`), and every link is turned to where its target lies there.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import typer.main

ROOT = Path(__file__).parents[1]
LINK = re.compile(r"\]\((?!https?:)([^)#\s]+)(#[^)\s]*)?\)")
FENCED = re.compile(r"(^```.*?^```$)", re.MULTILINE | re.DOTALL)
COMMANDS = "<!-- commands -->"  # the line of a page in whose place the reference of the command line is written
# Pages that lie beside docs/, and where the site has them.
BESIDE = {"README.md": "readme.md", "CHANGELOG.md": "work/changelog.md", "CONTRIBUTING.md": "work/contributing.md"}


class BrokenLinkError(Exception):
    """A link that leads nowhere in the repository."""


# -- the command line ---------------------------------------------------------------------------------------------


def commands() -> str:
    """What ``--help`` says of every command of treevae, as Markdown."""
    from treevae.cli.app import app

    treevae = typer.main.get_command(app)
    return "\n".join(described(treevae, treevae.make_context("treevae", [], resilient_parsing=True)))


def described(command: Any, context: Any) -> list[str]:
    """The section of a command, or those of a group's commands."""
    if hasattr(command, "commands"):
        below = command.commands.items()
        return [line for word, one in below for line in described(one, type(context)(one, context, word))]
    about, _, example = command.help.partition("\b\nExample:\n")
    usage = " ".join([context.command_path, *command.collect_usage_pieces(context)])
    options = [one.get_help_record(context) for one in command.params]
    rows = [f"| `{what}` | {plain(said)} |" for what, said in options]
    table = ["| | what it does |", "| --- | --- |", *rows, ""] if rows else []
    lines = [f"    {line.strip()}" for line in example.splitlines()]
    return [f"## {context.command_path}", "", f"    {usage}", "", plain(about).strip(), "", *table, *lines, ""]


def plain(text: str) -> str:
    """Text in which no letter means anything to Markdown."""
    return re.sub(r"([|*_\[])", r"\\\1", text).replace("<", "&lt;")


# -- the pages ----------------------------------------------------------------------------------------------------


def place(target: Path, root: Path) -> Path:
    """Where a file or folder of the repository lies in the site: docs/ is its root, all else below "repository"."""
    path = target.relative_to(root)
    if path.parts[0] == "docs":
        return Path(*path.parts[1:])
    lies = Path(BESIDE.get(str(path), Path("repository") / path))
    return lies / "index.md" if target.is_dir() else lies


def listing(folder: Path) -> str:
    """The page of a folder that some page links to: links to the files in it."""
    names = sorted(path.name for path in folder.iterdir() if path.is_file())
    return "\n".join([f"# {folder.name}", "", *(f"- [{name}]({name})" for name in names), ""])


def lay_out(pages: Path, root: Path = ROOT) -> None:
    """Write all pages, and copy what they link to, into a folder; turn their links."""
    waiting = [*(root / "docs").rglob("*.md"), *(root / name for name in BESIDE if (root / name).exists())]
    done: set[Path] = set()
    while waiting:
        path = waiting.pop()
        if path in done:
            continue
        done.add(path)
        at = pages / place(path, root)
        at.parent.mkdir(parents=True, exist_ok=True)
        if path.is_file() and path.suffix != ".md":
            shutil.copyfile(path, at)
            continue
        folder = path if path.is_dir() else path.parent

        def turned(link: re.Match[str], path: Path = path, folder: Path = folder) -> str:
            target = Path(os.path.normpath(folder / link[1]))
            if not target.exists() or not target.is_relative_to(root):
                raise BrokenLinkError(f"{path.relative_to(root)} links to {link[1]}, which is not in the repository")
            waiting.append(target)
            there = os.path.relpath(place(target, root), place(path, root).parent)
            return f"]({there}{link[2] or ''})"

        text = path.read_text() if path.is_file() else listing(path)
        text = "".join(part if part.startswith("```") else LINK.sub(turned, part) for part in FENCED.split(text))
        at.write_text(text.replace(COMMANDS, commands()) if COMMANDS in text else text)


def build(folder: Path, root: Path = ROOT) -> None:
    """Build the site anew in ``folder/html``.

    The docstrings are those of the treevae that this Python imports.
    """
    for before in ("pages", "html"):
        shutil.rmtree(folder / before, ignore_errors=True)
    lay_out(folder / "pages", root)
    for name in ("zensical.toml", "roles.py"):
        shutil.copyfile(root / "docs" / name, folder / name)
    config = str(folder / "zensical.toml")
    subprocess.run([sys.executable, "-m", "zensical", "build", "--strict", "-f", config], check=True)


if __name__ == "__main__":
    wanted = Path(sys.argv[1]) if len(sys.argv) > 1 else ROOT / "build" / "site"
    try:
        build(wanted)
    except (BrokenLinkError, subprocess.CalledProcessError) as error:
        sys.exit(f"The site was not built: {error}")
    print(f"Wrote {wanted / 'html' / 'index.html'}")
