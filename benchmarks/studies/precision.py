"""Does TF32 change what training finds? The ELBO of test images with and without it, over several seeds.

    python -m benchmarks.studies.precision DATA.npz [--epochs 15] [--seeds 5] [--out benchmarks/results/precision.json]

Needs a GPU with TF32. DATA.npz as for paper_schedule.py.
"""

from __future__ import annotations

import argparse
import statistics
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np

from treevae import TreeVAE
from treevae.training import engine

from .. import record
from ..speed.paper_schedule import scores


@contextmanager
def single_precision() -> Iterator[None]:
    """In the place of the engine's switch to TF32: nothing is switched."""
    yield


def main() -> None:
    """Fit with both, print and write."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("data", type=Path)
    parser.add_argument("--epochs", type=int, default=15)
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--out", type=Path)
    given = parser.parse_args()
    data, tf32 = np.load(given.data), engine.fast_products
    rows: dict[str, Any] = {}
    for name, switch in (("tf32", tf32), ("float32", single_precision)):
        engine.fast_products = switch
        start = time.perf_counter()
        models = TreeVAE.recipe("mnist", epochs=given.epochs).fit_seeds(data["x_train"], range(given.seeds))
        seconds = time.perf_counter() - start
        found = [scores(model, data["x_test"], data["y_test"]) for model in models]
        values = [one["elbo"] for one in found]
        rows[name] = {"seconds": seconds, "elbo": values, "acc": [one["acc"] for one in found]}
        print(f"{name:8} ELBO {statistics.mean(values):.2f} ± {statistics.stdev(values):.2f}, {seconds:.0f} s", values)
    record.write(given.out, rows, "cuda")


if __name__ == "__main__":
    main()
