"""Do small fits on the CPU come out as they did before a change, to the bit? Trees, labels, ELBO and history of each.

    python -m benchmarks.house.same_bits --out benchmarks/results/same_bits-after.json
    PYTHONPATH=OTHER_CHECKOUT/src:. python -m benchmarks.house.same_bits --out benchmarks/results/same_bits-before.json

Bits are those of one machine, one thread and one version of torch: compare runs that share them.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import platform
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import torch
from sklearn.datasets import load_digits, load_wine

from treevae import TreeVAE, recipes
from treevae.baselines import VAE, DeepECT, LadderVAE

DIGITS = load_digits().images / 16
PAPER: dict[str, Any] = getattr(recipes, "PAPER", {})  # which earlier versions need not be told


def digest(values: bytes) -> str:
    """A short text that changes with any bit."""
    return hashlib.sha256(values).hexdigest()[:16]


def told(model: Any, X: np.ndarray) -> dict[str, str]:
    """What came out of a fit."""
    came = {"history": digest(json.dumps(getattr(model, "model_", model).history_).encode())}  # model_: before Fitted
    if hasattr(model, "tree_"):
        came |= {"tree": model.tree_.to_json(), "labels": digest(np.ascontiguousarray(model.labels_).tobytes())}
    if hasattr(model, "score_samples"):
        came["elbo"] = model.score_samples(X).mean(dtype=np.float64).hex()
    return came | {"embedding": digest(model.transform(X).tobytes())}


def candidates() -> list[dict[str, str]]:
    """Three candidates for every split, Bernoulli."""
    return [told(TreeVAE(6, epochs=5, n_init=3, random_state=0, **PAPER).fit(DIGITS), DIGITS)]


def contrastive() -> list[dict[str, str]]:
    """Augmented views and a contrastive loss."""
    X = np.kron(DIGITS[:600].astype(np.float32), np.ones((2, 2), np.float32))
    how: dict[str, Any] = {"augment": "omniglot", "contrastive_weight": 10.0, "batch_size": 64, "n_init": 2, **PAPER}
    return [told(TreeVAE(4, epochs=4, random_state=1, **how).fit(X), X)]


def side_by_side() -> list[dict[str, str]]:
    """Three seeds as one forest, a learnt Gaussian, leaves chosen by the ELBO."""
    X = load_wine().data
    X = (X - X.mean(0)) / X.std(0)
    model = TreeVAE(4, epochs=10, n_init=2, leaf_rule="elbo", random_state=0, **PAPER)
    return [told(one, X) for one in model.fit_seeds(X, [0, 1, 2])]


def baselines() -> list[dict[str, str]]:
    """A ladder, a VAE and DeepECT."""
    models = (
        LadderVAE(2, epochs=10, random_state=0),
        VAE(epochs=10, random_state=0),
        DeepECT(5, pretrain_epochs=2, epochs=10, random_state=0),
    )
    return [told(model.fit(DIGITS), DIGITS) for model in models]


FITS: tuple[Callable[[], list[dict[str, str]]], ...] = (candidates, contrastive, side_by_side, baselines)


def main() -> None:
    """Fit, print and write."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path)
    given = parser.parse_args()
    torch.set_num_threads(1)
    warnings.simplefilter("ignore")
    about = {"machine": platform.machine(), "threads": 1, "torch": torch.__version__, "numpy": np.__version__}
    text = json.dumps(about | {"fits": {fit.__name__: fit() for fit in FITS}}, indent=1)
    print(text)
    if given.out is not None:
        given.out.write_text(text + "\n")


if __name__ == "__main__":
    main()
