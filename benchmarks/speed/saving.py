"""What does saving the state of training cost?

    python -m benchmarks.speed.saving [--device cpu] [--epochs 6] [--out benchmarks/results/saving-cpu.json]

The share of a fit's time that goes into gathering and writing its state: saved as often as is allowed, and with the
default of 30 seconds. 20,000 random images of 28x28 on a GPU, 2,000 on the CPU, four leaves.
"""

from __future__ import annotations

import argparse
import tempfile
import time
import warnings
from pathlib import Path
from typing import Any

import numpy as np
import torch

from treevae import TreeVAE
from treevae.fitting import Fitting

from .. import record


def main() -> None:
    """Measure, print and write."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu")
    parser.add_argument("--epochs", type=int, default=6)
    parser.add_argument("--out", type=Path)
    given = parser.parse_args()
    on_gpu = given.device.startswith("cuda")
    images = np.random.default_rng(0).integers(256, size=(20_000 if on_gpu else 2_000, 28, 28), dtype=np.uint8)
    spent: list[float] = []
    save = Fitting._save

    def timed(*arguments: Any) -> None:
        start = time.perf_counter()
        save(*arguments)
        spent.append(time.perf_counter() - start)

    Fitting._save = timed  # type: ignore[method-assign, assignment]
    warnings.simplefilter("ignore")
    rows = []
    for save_every in (0.0, 30.0):
        spent.clear()
        with tempfile.TemporaryDirectory() as folder:
            start = time.perf_counter()
            settings = {"max_depth": 5, "n_init": 1, "epochs": given.epochs, "device": given.device}
            model = TreeVAE(4, **settings, random_state=0)
            model.fit(images, checkpoint=folder, save_every=save_every)
            seconds = time.perf_counter() - start
        row = {"save_every": save_every, "seconds": seconds, "saves": len(spent), "saving": sum(spent)}
        rows.append(row | {"share": sum(spent) / seconds})
        print(rows[-1], flush=True)
    record.write(given.out, {"rows": rows}, given.device)


if __name__ == "__main__":
    main()
