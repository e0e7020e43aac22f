"""Do fits on a GPU come out as they did before a change? Labels, ELBO and seconds of grey and of colour pictures.

    python -m benchmarks.house.same_on_gpu DATA --out FILE
    PYTHONPATH=OTHER_CHECKOUT/src:. python -m benchmarks.house.same_on_gpu DATA --out FILE

DATA is the root of the data sets, with Fashion-MNIST. The first fit, which compiles kernels, is not counted.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import warnings
from pathlib import Path
from typing import Any

import numpy as np

from treevae import TreeVAE
from treevae.data import load


def told(model: TreeVAE, X: np.ndarray) -> dict[str, Any]:
    """What came out of a fit."""
    labels = hashlib.sha256(np.ascontiguousarray(model.labels_).tobytes()).hexdigest()[:16]
    elbo = float(model.score_samples(X[:500]).mean(dtype=np.float64))
    return {"labels": labels, "elbo": elbo, "leaves": len(model.tree_.leaves), "seconds": model.seconds_[-1]}


def main() -> None:
    """Fit, print and write."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("data", type=Path)
    parser.add_argument("--out", type=Path)
    given = parser.parse_args()
    warnings.simplefilter("ignore")
    X = load("fashion", given.data).x_train[:20_000]
    TreeVAE.recipe("fashion", n_leaves=3, epochs=2, random_state=0).fit(X)
    one = TreeVAE.recipe("fashion", n_leaves=6, epochs=12, random_state=1).fit(X)
    eight = TreeVAE.recipe("fashion", n_leaves=5, epochs=8, n_init=8, random_state=1).fit(X)
    seeds = TreeVAE.recipe("fashion", n_leaves=5, epochs=8).fit_seeds(X, [0, 1, 2])
    colour = np.pad(np.repeat(X[:6000, None], 3, 1), ((0, 0), (0, 0), (2, 2), (2, 2)))
    contrastive = [TreeVAE.recipe("cifar10", n_leaves=4, epochs=3, random_state=0).fit(colour) for _ in range(2)]
    fits = {
        "one candidate": [told(one, X)],
        "eight candidates": [told(eight, X)],
        "seeds side by side": [told(model, X) for model in seeds],
        "contrastive, twice": [told(model, colour) for model in contrastive],
    }
    text = json.dumps(fits, indent=1)
    print(text)
    if given.out is not None:
        given.out.write_text(text + "\n")


if __name__ == "__main__":
    main()
