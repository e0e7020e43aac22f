"""The report: one HTML file that shows a bundle, needs no network, and can be sent to anybody.

The page is written in plain ES modules (``page/*.js``). In the file they stand one after the other in one script, each
after those it imports, without their import and export words; so all names that modules define must differ.
"""

from __future__ import annotations

import base64
import hashlib
import html
import json
import os
import re
from functools import cache
from importlib.resources import files
from pathlib import Path
from typing import Any

from ..storage.writing import write_whole
from .snapshot import Snapshot

ENTRY = "main.js"
INLINE = re.compile(r"<script(?: type=\"module\")?>(.*?)</script>", re.DOTALL)  # not those that hold data
IMPORT = re.compile(r"""^import\s[^;]*?from\s+["']\./([\w-]+\.js)["'];[ \t]*\n""", re.MULTILINE)
EXPORT = re.compile(r"^export\s+(?=(?:async\s+)?(?:function|class|const|let)\b)", re.MULTILINE)


def write_report(snapshot: Snapshot, path: str | os.PathLike[str]) -> Path:
    """Write the page that shows a snapshot; the file is there whole, or not at all. Returns its path."""
    path = Path(path)
    write_whole(path, page(snapshot.bundle))
    return path


def page(bundle: dict[str, Any]) -> str:
    """The HTML of a page that shows a bundle; one that is ``live`` may call the server it came from, nobody else."""
    parts = {
        "title": html.escape(bundle["title"]),
        "policy": "{{policy}}",  # comes last, since it names the scripts
        "style": _text("style.css"),
        "d3": f"/*\n{_text('vendor/d3.LICENSE')}*/\n{_text('vendor/d3.min.js')}",
        "script": script(),
        "bundle": embedded(bundle),
    }
    text = re.sub(r"\{\{(\w+)\}\}", lambda found: parts[found[1]], _text("index.html"))
    return text.replace("{{policy}}", policy(text, "'self'" if bundle["live"] else "'none'"), 1)


def policy(text: str, connect: str) -> str:
    """The Content-Security-Policy of a page: it runs its own scripts and no others, and asks nobody but ``connect``."""
    digests = (hashlib.sha256(script.encode()).digest() for script in INLINE.findall(text))
    scripts = " ".join(f"'sha256-{base64.b64encode(digest).decode()}'" for digest in digests)
    return (
        f"default-src 'none'; script-src {scripts}; style-src 'unsafe-inline'; img-src data: blob:; "
        f"connect-src {connect}; base-uri 'none'; form-action 'none'"
    )


def embedded(bundle: dict[str, Any]) -> str:
    """The bundle as JSON that can stand in a script element: nothing in it can end the element or begin a comment."""
    text = json.dumps(bundle, separators=(",", ":"), allow_nan=False, ensure_ascii=False)
    for sign in "<>&\u2028\u2029":
        text = text.replace(sign, f"\\u{ord(sign):04x}")
    return text


@cache
def script() -> str:
    """All modules of the page as one script."""
    order: list[str] = []

    def visit(name: str, above: tuple[str, ...]) -> None:
        if name in above:
            raise ValueError(f"the page's modules import each other in a circle: {' → '.join([*above, name])}")
        if name not in order:
            for below in IMPORT.findall(_text(name)):
                visit(below, (*above, name))
            order.append(name)

    visit(ENTRY, ())
    return "\n".join(f"// {name}\n" + EXPORT.sub("", IMPORT.sub("", _text(name))) for name in order)


@cache
def _text(name: str) -> str:
    return (files("treevae.page") / "assets" / name).read_text(encoding="utf-8")
