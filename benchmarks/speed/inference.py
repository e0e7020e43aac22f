"""Does the cost of inference grow with the number of leaves? `predict` and `reconstruct(path="best")`, 10 against 100.

    python -m benchmarks.speed.inference [--out benchmarks/results/inference.json]

Untrained routers send samples everywhere, which is the hard case: every leaf's decoder is needed by some sample. The
time of `path="all"`, which runs every decoder on every sample, stands beside it. Ratios are of one run.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np

from treevae import TreeVAE
from treevae.tree import balanced

from .. import record

N = 10_000
REPEATS = 3


def seconds(call: Callable[[], object]) -> float:
    """The median time of a call."""
    call()
    times = []
    for _ in range(REPEATS):
        start = time.perf_counter()
        call()
        times.append(time.perf_counter() - start)
    return float(np.median(times))


def measure(n_leaves: int, X: np.ndarray) -> dict[str, float]:
    """Seconds for N samples, with a model of this many leaves."""
    tree = balanced(n_leaves)
    model = TreeVAE(tree=tree, max_depth=tree.height, epochs=1, random_state=0).fit(X[:200])
    used = len(np.unique(model.predict(X)))
    return {
        "leaves": n_leaves,
        "leaves_that_win_samples": used,
        "predict": seconds(lambda: model.predict(X)),
        "reconstruct_best": seconds(lambda: model.reconstruct(X)),
        "reconstruct_all": seconds(lambda: model.reconstruct(X, path="all")),
    }


def beyond_routers(measured: dict[str, float]) -> float:
    """Seconds of reconstruction along the best path, less those of `predict`: bottom-up and all routers."""
    return measured["reconstruct_best"] - measured["predict"]


def main() -> None:
    """Measure, print and write."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, default=record.RESULTS / "inference.json")
    out: Path = parser.parse_args().out
    X = np.random.default_rng(0).random((N, 28, 28)).astype(np.float32)
    few, many = measure(10, X), measure(100, X)
    ratio = {name: many[name] / few[name] for name in ("predict", "reconstruct_best", "reconstruct_all")}
    ratio["reconstruct_best_beyond_routers"] = beyond_routers(many) / beyond_routers(few)
    few["reconstruct_best_beyond_routers"], many["reconstruct_best_beyond_routers"] = map(beyond_routers, (few, many))
    for name, value in ratio.items():
        print(f"{name:31} {few[name]:7.2f} s with 10 leaves {many[name]:7.2f} s with 100   x {value:.2f}")
    record.write(out, {"samples": N, "10": few, "100": many, "ratio_100_to_10": ratio})


if __name__ == "__main__":
    main()
