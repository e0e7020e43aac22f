"""Chromium for the tests of the pages, and the reports they look at."""

import json
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from sklearn.datasets import load_digits

from treevae import Tree, TreeVAE
from treevae.page.report import write_report
from treevae.page.snapshot import Snapshot, snapshot
from treevae.tree import balanced

CHROMIUM = os.environ.get("CHROMIUM", "/usr/bin/chromium")
QUIETLY = (
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
)
EVIL = "<img src=x onerror=alert(1)>"


@pytest.fixture(scope="session")
def chromium() -> Iterator[Any]:
    """The browser."""
    from playwright.sync_api import sync_playwright

    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=CHROMIUM, headless=True, args=list(QUIETLY))
        yield browser
        browser.close()


@pytest.fixture
def opened(chromium: Any) -> Iterator[Any]:
    """Opens an address in a window of a size; afterwards nothing must have been said on the console or fetched."""
    contexts, said, fetched = [], [], []

    def show(
        address: str,
        width: int = 1280,
        height: int = 800,
        theme: str = "light",
        touch: bool = False,
        served: dict[str, str] | None = None,
    ) -> Any:
        size = {"width": width, "height": height}
        context = chromium.new_context(viewport=size, color_scheme=theme, reduced_motion="reduce", has_touch=touch)
        contexts.append(context)
        page = context.new_page()

        def answer(route: Any) -> None:
            body = (served or {})[route.request.url]
            route.fulfill(body=body, content_type="text/html" if body.startswith("<") else "application/json")

        page.on("console", lambda message: said.append(f"{message.type}: {message.text}"))
        page.on("pageerror", lambda error: said.append(str(error)))
        page.on("request", lambda request: fetched.append(request.url))
        for url in served or {}:
            page.route(url, answer)
        page.goto(address)
        page.wait_for_selector("html[data-ready]")
        return page

    yield show
    for context in contexts:
        context.close()
    assert said == []
    assert [url for url in fetched if not url.startswith(("file:", "data:", "blob:", "http://127.0.0.1"))] == []


def _report(folder: Path, name: str, model: TreeVAE, X: np.ndarray, y: Any = None, **how: Any) -> str:
    found = snapshot(model, X, y, title=f"{name} & <b>more</b>", map_method="pca", **how)
    return write_report(found, folder / f"{name}.html").as_uri()


def _fitted(X: np.ndarray, tree: Tree, **how: Any) -> TreeVAE:
    given = {"hidden_dim": 16, "epochs": 3, "learning_rate": 5e-3, "random_state": 0, "device": "cpu"}
    return TreeVAE(tree=tree, **given | how).fit(X)


def _in_units(entry: dict[str, Any]) -> dict[str, Any]:
    """Features a and c as if they were measured in other units."""
    unit = {"a": 1e-6, "c": 1e9}.get(entry.get("name", ""), 1)
    if unit == 1:
        return entry
    return {key: unit * value if key in ("value", "left", "right") else value for key, value in entry.items()}


@pytest.fixture(scope="session")
def reports(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    """Addresses of reports on images, with a node that pruning has left with one child, on texts and on a table."""
    folder, chance = tmp_path_factory.mktemp("reports"), np.random.default_rng(0)
    digits = load_digits()
    X, y = (digits.images[:300] / 16).astype(np.float32), digits.target[:300]
    tree = Tree().split(0).split(1).split(3).split(2).prune(8)  # leaves 5, 6, 4, 7; node 2 has one child
    names = [f"digit {k}" for k in range(9)] + [EVIL]
    many = _fitted(X, balanced(30), network="mlp", epochs=1)
    found = {"many": _report(folder, "many", many, X)}
    found["images"] = _report(folder, "images", _fitted(X, tree, network="mlp"), X, y, class_names=names)
    weights = chance.uniform(0.2, 1, size=(200, 12)) * (chance.uniform(size=(200, 12)) < 0.3)
    words = [f"word{i}" for i in range(11)] + [EVIL]
    found["texts"] = _report(folder, "texts", _fitted(weights, Tree().split(0)), weights, names=words)
    table = chance.normal(size=(200, 5)) + 3 * (np.arange(200) < 90)[:, None]
    found["single"] = _report(folder, "single", _fitted(table, Tree()), table)
    model = _fitted(table, Tree().split(0).split(2))
    found["table"] = _report(folder, "table", model, table, names=[*"abcd", EVIL])
    shown = snapshot(model, table, names=[*"abcd", EVIL], map_method="pca")
    units = Snapshot(json.loads(shown.to_json(), object_hook=_in_units))
    found["units"] = write_report(units, folder / "units.html").as_uri()
    return found
