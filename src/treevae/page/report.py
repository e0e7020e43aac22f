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
from collections.abc import Sequence
from functools import cache
from importlib.resources import files
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ..storage.writing import write_whole
from .snapshot import MOST_BYTES, Snapshot, snapshot

if TYPE_CHECKING:
    from ..estimator import TreeVAE

PAGES = (".html", ".htm")  # what the file of a page may end in
ENTRY = "main.js"
INLINE = re.compile(r"<script(?: type=\"module\")?>(.*?)</script>", re.DOTALL)  # not those that hold data
IMPORT = re.compile(r"""^import\s[^;]*?from\s+["']\./([\w-]+\.js)["'];[ \t]*\n""", re.MULTILINE)
EXPORT = re.compile(r"^export\s+(?=(?:async\s+)?(?:function|class|const|let)\b)", re.MULTILINE)


def report(
    model: TreeVAE,
    X: Any,
    y: Any = None,
    path: str | os.PathLike[str] = "report.html",
    *,
    names: Sequence[str] | None = None,
    class_names: Sequence[str] | None = None,
    attributes: Any = None,
    attribute_names: Sequence[str] | None = None,
    kind: str | None = None,
    title: str = "TreeVAE",
    map_method: str = "auto",
    max_bytes: int = MOST_BYTES,
    random_state: Any = 0,
) -> Path:
    """Write one HTML page that shows a fitted model in a browser, without a network; returns its path.

    Numbers at nodes (size, mass, confidence, label mix, what tells children apart) are of all samples in X. The ELBO is
    the mean of up to some 3,000 of them, drawn leaf by leaf. Pictures, cards and points of the map are of fewer where
    they would not fit into ``max_bytes``.

    Parameters
    ----------
    model : fitted TreeVAE
    X : samples as in ``fit``
    y : array-like of shape (n_samples,), optional
        Classes, for label mixes, names of nodes and scores.
    path : path, default="report.html"
        The file, a .html or .htm in a folder that is there. One that is there already is replaced.
    names : sequence of str, optional
        What the features are called: words or columns; by default the names seen in ``fit``.
    class_names : sequence of str, optional
        Name of class ``k`` at ``k``; by default the labels in y name themselves.
    attributes : array-like of shape (n_samples, n_attributes), optional
        Whether a sample has an attribute: bool, or 0 and 1; with ``attribute_names``, one for each column.
    attribute_names : sequence of str, optional
        The attributes' names.
    kind : {"images", "words", "table"}, optional
        How samples are shown. By default vectors are words if they have names, no value is below 0 and most are 0.
    title : str
        What stands above the page.
    map_method : {"auto", "umap", "pca"}, default="auto"
        How the root's embedding becomes two-dimensional; "auto" takes UMAP where umap-learn is installed.
    max_bytes : int, default=3_000_000
        What is shown of the samples and the model takes no more; the page itself comes on top of it.
    random_state : int, default=0
        Of the choice of samples, the generated ones and the map.

    Raises
    ------
    ValueError
        The path is not that of a page; or X, y or another parameter is none that can be shown.
    OSError
        There is no such folder, or the file could not be written. One that was there is as it was.
    """
    path = page_path(path, "path=")  # before the work
    shown = snapshot(
        model,
        X,
        y,
        names,
        class_names=class_names,
        attributes=attributes,
        attribute_names=attribute_names,
        kind=kind,
        title=title,
        map_method=map_method,
        max_bytes=max_bytes,
        random_state=random_state,
    )
    return write_report(shown, path)


def page_path(path: str | os.PathLike[str], given: str) -> Path:
    """Where a page is to be written; raises unless it is a .html file in a folder that is there.

    Parameters
    ----------
    path : path
    given : str
        The words in front of it, as its user would write them.
    """
    path = Path(path)
    if path.suffix not in PAGES:
        raise ValueError(f"{given}{path}: a report is a page for a browser; name a .html file")
    if not path.parent.is_dir():
        raise FileNotFoundError(f"there is no folder {path.parent} to write {path.name} into; make it first")
    return path


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
    text = re.sub(r"\{\{(\w+)\}\}", lambda slot: parts[slot[1]], _text("index.html"))
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
