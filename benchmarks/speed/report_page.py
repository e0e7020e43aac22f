"""How long does a report take to show itself?

    python -m benchmarks.speed.report_page [--leaves 20 100] [--repeat 5] [--out FILE]

Balanced trees with 20 and 100 leaves, fitted for one epoch on digits of 28x28 pixels made from scikit-learn's of 8x8:
the page does not care how good a model is. Reports are opened in Chromium from their file: time to first paint, to a
page whose views are all drawn and that is free to answer, and from a move of the slider (to two groups, to all leaves)
to the frame that shows it. Every page is opened anew; the median is kept with all values beside it. Also: seconds to
make the bundle, and its size.
"""

from __future__ import annotations

import argparse
import os
import statistics
import tempfile
import time
import warnings
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from sklearn.datasets import load_digits

from treevae import TreeVAE
from treevae.page.report import write_report
from treevae.page.snapshot import snapshot
from treevae.tree import balanced

from .. import record

if TYPE_CHECKING:
    from playwright.sync_api import Browser

CHROMIUM = os.environ.get("CHROMIUM", "/usr/bin/chromium")
QUIETLY = ["--no-sandbox", "--disable-gpu", "--no-first-run", "--disable-background-networking", "--disable-sync"]
WHEN = """([type, name]) => new Promise((done) => new PerformanceObserver((list) => {
    for (const entry of list.getEntriesByName(name)) done(entry.startTime);
}).observe({ type, buffered: true }))"""
AFTER_CUT = """(k) => new Promise((done) => {
    const slider = document.getElementById("cut"), start = performance.now();
    slider.value = k;
    slider.dispatchEvent(new Event("input"));
    requestAnimationFrame(() => setTimeout(() => done(performance.now() - start)));
})"""


def images(n: int) -> tuple[np.ndarray, np.ndarray]:
    """Digits of 28x28 pixels in [0, 1], and their classes."""
    digits = load_digits()
    larger = np.kron(digits.images[:n] / 16, np.ones((1, 3, 3)))
    return np.pad(larger, ((0, 0), (2, 2), (2, 2))).astype(np.float32), digits.target[:n]


def report(n_leaves: int, folder: Path) -> tuple[Path, dict[str, Any]]:
    """The page of a tree with so many leaves, and what it took to make."""
    X, y = images(1797)
    model = TreeVAE(tree=balanced(n_leaves), max_depth=7, network="mlp", epochs=1, random_state=0, device="cpu").fit(X)
    start = time.perf_counter()
    page = snapshot(model, X, y, map_method="pca")
    seconds = time.perf_counter() - start
    path = write_report(page, folder / f"{n_leaves}.html")
    sizes = {"samples": page.bundle["n_shown"], "bundle_bytes": page.n_bytes, "file_bytes": path.stat().st_size}
    return path, {"leaves": n_leaves, "seconds_snapshot": round(seconds, 2), **sizes}


def times(browser: Browser, path: Path) -> dict[str, float]:
    """Milliseconds of one visit."""
    page = browser.new_page(viewport={"width": 1280, "height": 800})
    page.goto(path.as_uri())
    page.wait_for_selector("html[data-ready]")
    waits = {
        "first_paint": page.evaluate(WHEN, ["paint", "first-contentful-paint"]),
        "ready": page.evaluate(WHEN, ["mark", "ready"]),
        "cut_to_two": page.evaluate(AFTER_CUT, 2),
        "cut_to_all": page.evaluate(AFTER_CUT, int(path.stem)),
    }
    page.close()
    return waits


def main() -> None:
    """Measure, print and write."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--leaves", type=int, nargs="+", default=[20, 100])
    parser.add_argument("--repeat", type=int, default=5)
    parser.add_argument("--out", type=Path)
    given = parser.parse_args()
    from playwright.sync_api import sync_playwright  # --help needs no browser

    warnings.simplefilter("ignore")
    rows = []
    with tempfile.TemporaryDirectory() as folder, sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=CHROMIUM, headless=True, args=QUIETLY)
        for n_leaves in given.leaves:
            path, about = report(n_leaves, Path(folder))
            visits = [times(browser, path) for _ in range(given.repeat)]
            medians = {f"{name}_ms": round(statistics.median(v[name] for v in visits), 1) for name in visits[0]}
            rows.append(about | medians | {"visits_ms": [{k: round(v, 1) for k, v in one.items()} for one in visits]})
            print(rows[-1], flush=True)
        rows.append({"chromium": browser.version})
        browser.close()
    record.write(given.out, {"rows": rows})


if __name__ == "__main__":
    main()
