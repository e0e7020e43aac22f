"""What do candidates for every split (`n_init`) cost? Fits with one, four and sixteen, in turn, on one device.

    python -m benchmarks.speed.candidates [--device cpu] [--epochs 4] [--rounds 3] [--out FILE]

The demo's 6,000 pictures and its network, ten leaves. The ratios are of medians; where splits fail and are tried again,
times say little, so the leaves are recorded too.
"""

from __future__ import annotations

import argparse
import statistics
import time
import warnings
from pathlib import Path

import torch
from sklearn.exceptions import ConvergenceWarning

from treevae import TreeVAE
from treevae.data import fashion_sample

from .. import record

COUNTS = (1, 4, 16)


def main() -> None:
    """Measure, print and write."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu")
    parser.add_argument("--epochs", type=int, default=4)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--out", type=Path)
    given = parser.parse_args()
    warnings.simplefilter("ignore", category=ConvergenceWarning)  # the leaves are in the record
    X = fashion_sample.load().x_train
    seconds: dict[int, list[float]] = {n_init: [] for n_init in COUNTS}
    leaves: dict[int, list[int]] = {n_init: [] for n_init in COUNTS}
    for seed in range(given.rounds):
        for n_init in COUNTS:
            settings = {"max_depth": 5, "network": "mlp", "epochs": given.epochs, "device": given.device}
            started = time.perf_counter()
            model = TreeVAE(10, n_init=n_init, random_state=seed, **settings).fit(X)
            seconds[n_init].append(time.perf_counter() - started)
            leaves[n_init].append(len(model.tree_.leaves))
            print(n_init, seconds[n_init][-1], flush=True)
    one = statistics.median(seconds[1])
    ratios = {n_init: statistics.median(seconds[n_init]) / one for n_init in COUNTS}
    figures = {"epochs": given.epochs, "seconds": seconds, "leaves": leaves, "times_one": ratios}
    record.write(given.out, figures, given.device)


if __name__ == "__main__":
    main()
