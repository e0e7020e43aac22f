"""How long does the paper's whole schedule take, and what comes out of it?

    python -m benchmarks.speed.paper_schedule DATA.npz [--seeds 10] [--epochs 150] [--checkpoint FOLDER] [--out FILE]

DATA.npz holds x_train, y_train, x_test, y_test: images as bytes. All seeds are trained side by side; with --checkpoint
a killed run goes on where it was, and the seconds of all its parts are added up. Scores are of the test images.
"""

from __future__ import annotations

import argparse
import json
import statistics
import time
from pathlib import Path
from typing import Any

import numpy as np
import torch

from treevae import TreeVAE
from treevae.scores import mean_terms, scores

from .. import record


def figures(model: TreeVAE, x: np.ndarray, y: np.ndarray) -> dict[str, Any]:
    """What a model makes of test images."""
    terms, percent = mean_terms(model.fitted_, x), scores(model.tree_, model.predict(x), y)
    return {
        "elbo": terms["ELBO"],
        "rl": terms["RL"],
        "kl": {name: terms[f"kl_{name}"] for name in ("root", "nodes", "decisions")},
        **{name.lower(): value for name, value in percent.items()},
        "leaves": len(model.tree_.leaves),
        "tree": json.loads(model.tree_.to_json()),
    }


def epochs_of(model: TreeVAE) -> int:
    """Epochs that were trained."""
    return sum(event["event"] == "EpochEnded" for event in model.history_)


def main() -> None:
    """Fit, score, print and write."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("data", type=Path)
    parser.add_argument("--seeds", type=int, default=1)
    parser.add_argument("--first-seed", type=int, default=0)
    parser.add_argument("--n-leaves", type=int, default=10)
    parser.add_argument("--epochs", type=int, default=150)
    parser.add_argument("--n-init", type=int, default=1)
    parser.add_argument("--checkpoint", type=Path)
    parser.add_argument("--save-every", type=float, default=30)
    parser.add_argument("--out", type=Path, required=True)
    given = parser.parse_args()
    data = np.load(given.data)
    asked = {"n_leaves": given.n_leaves, "epochs": given.epochs, "n_init": given.n_init}
    model = TreeVAE.recipe("mnist", **asked, verbose=True)
    seeds = range(given.first_seed, given.first_seed + given.seeds)
    spent = given.checkpoint / "seconds.json" if given.checkpoint else None
    before = json.loads(spent.read_text()) if spent is not None and spent.exists() else []
    start = time.perf_counter()
    try:
        models = model.fit_seeds(data["x_train"], seeds, checkpoint=given.checkpoint, save_every=given.save_every)
    finally:
        parts = [*before, time.perf_counter() - start]
        if spent is not None:
            spent.write_text(json.dumps(parts))
    runs = [
        {"seed": seed, "epochs": epochs_of(one), **figures(one, data["x_test"], data["y_test"])}
        for seed, one in zip(seeds, models, strict=True)
    ]
    on_gpu = torch.cuda.is_available()
    peak = torch.cuda.max_memory_allocated() / 1e6 if on_gpu else None  # of scoring too
    figures_of_all = {"seconds": sum(parts), "parts": parts, "peak_mb": peak, "runs": runs}
    record.write(given.out, figures_of_all, "cuda" if on_gpu else "cpu")
    print(f"{sum(parts):.1f} s for {given.seeds} seeds")
    for name in ("elbo", "rl", "acc", "nmi", "dp", "lp"):
        values = [run[name] for run in runs]
        print(f"{name:5} {statistics.mean(values):8.2f}  " + " ".join(f"{value:.2f}" for value in values))


if __name__ == "__main__":
    main()
