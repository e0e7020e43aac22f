"""Does TF32 change what training finds? The ELBO of test images with and without it, over several seeds.

    python -m benchmarks.studies.precision DATA.npz [--epochs 15] [--seeds 5] [--out benchmarks/results/precision.json]

Needs a GPU with TF32. DATA.npz as for paper_schedule.py.
"""

from __future__ import annotations

import argparse
import statistics
import time
from pathlib import Path
from typing import Any

import numpy as np

from treevae import TreeVAE
from treevae.fitting import Seeds, fit_trees
from treevae.metrics import accuracy
from treevae.preparing import prepare
from treevae.scores import mean_terms
from treevae.starting import plan_of

from .. import record


def main() -> None:
    """Fit with both, print and write."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("data", type=Path)
    parser.add_argument("--epochs", type=int, default=15)
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--out", type=Path)
    given = parser.parse_args()
    data = np.load(given.data)
    x_train, x_test, y_test = (data[name] for name in ("x_train", "x_test", "y_test"))
    parameters = TreeVAE.recipe("mnist", epochs=given.epochs).get_params(deep=False)
    rows: dict[str, Any] = {}
    for name, fast in (("tf32", True), ("float32", False)):
        start = time.perf_counter()
        prepared, plan = prepare("TreeVAE", parameters, x_train), plan_of(parameters, len(x_train))
        models = fit_trees(prepared, plan, Seeds.of(range(given.seeds)), fast=fast)
        seconds = time.perf_counter() - start
        elbos = [mean_terms(model, x_test)["ELBO"] for model in models]
        accuracies = [100 * accuracy(model.predict(x_test), y_test) for model in models]
        rows[name] = {"seconds": seconds, "elbo": elbos, "acc": accuracies}
        print(f"{name:8} ELBO {statistics.mean(elbos):.2f} ± {statistics.stdev(elbos):.2f}, {seconds:.0f} s", elbos)
    record.write(given.out, rows, "cuda")


if __name__ == "__main__":
    main()
