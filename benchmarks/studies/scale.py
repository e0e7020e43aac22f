"""How should vectors be scaled? k-means and short fits of a TreeVAE on samples scaled in each way, and what auto takes.

    python -m benchmarks.studies.scale --vectors DATA/vectors --features DATA/cifar10_features.npz --root DATA

Every line of the file of results is one set, way, method and seed: the scores on test samples of k-means or of a
TreeVAE with a learnt spread, with as many groups as there are classes. The seed is that of the method, and of what is
drawn from the set: the split where it has none of its own, and the training samples of the larger ones. The bounds of
the rule behind scale="auto" were chosen on the first five sets of ``scaling_sets.SETS``, and checked on the others. Set
OMP_NUM_THREADS=1 for the figures of the archive.
"""

from __future__ import annotations

import argparse
import json
import time
import warnings
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
import torch
from sklearn.cluster import KMeans

from treevae import TreeVAE
from treevae.data.arrays import InputForm
from treevae.data.scaling import suited
from treevae.data.units import Units
from treevae.records import name_of, source, versions
from treevae.scores import scores

from .. import record
from .scaling_sets import SETS, Parts, Places

WAYS = ("one", "feature", "unit")
LIKELIHOOD = "gaussian_learnt"  # also of samples in [0, 1], which "auto" would take for probabilities


def kmeans(parts: Parts, way: str, n_groups: int, seed: int) -> dict[str, Any]:
    """The scores of k-means with ten starts on samples as a model would see them."""
    units = Units.of(InputForm.of(parts.x_train), LIKELIHOOD, parts.x_train, way)
    x_train, x_test = (units.to_model(X, LIKELIHOOD).numpy() for X in (parts.x_train, parts.x_test))
    model = KMeans(n_groups, n_init=10, random_state=seed).fit(x_train)
    return {"scores_percent": scores(None, model.predict(x_test), parts.y_test)}


def treevae(parts: Parts, way: str, n_groups: int, seed: int, epochs: int, n_init: int) -> dict[str, Any]:
    """The scores of a TreeVAE, and the seconds of its fit."""
    model = TreeVAE(
        n_groups, likelihood=LIKELIHOOD, scale=way, epochs=epochs, n_init=n_init, random_state=seed, device="cpu"
    )
    began = time.perf_counter()
    model.fit(parts.x_train)
    seconds = round(time.perf_counter() - began, 1)
    of_test = scores(model.tree_, model.predict(parts.x_test), parts.y_test)
    how = {"epochs": epochs, "n_init": n_init, "leaves": len(model.tree_.leaves), "seconds": seconds}
    return {"scores_percent": of_test} | how


def main() -> None:
    """Fit, print and write."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--vectors", type=Path, required=True, help="the folder with letter.npz and others")
    parser.add_argument("--features", type=Path, required=True, help="the file cifar10_features.npz")
    parser.add_argument("--root", type=Path, help="where the data sets lie")
    parser.add_argument("--sets", nargs="+", choices=tuple(SETS), default=tuple(SETS))
    parser.add_argument("--methods", nargs="+", choices=("kmeans", "treevae"), default=("kmeans", "treevae"))
    parser.add_argument("--ways", nargs="+", choices=WAYS, default=WAYS)
    parser.add_argument("--seeds", type=int, nargs="+", default=[0, 1, 2])
    parser.add_argument("--epochs", type=int, default=15)
    parser.add_argument("--n-init", type=int, default=4)
    parser.add_argument("--out", type=Path, default=record.RESULTS / "scale.jsonl")
    given = parser.parse_args()
    warnings.filterwarnings("ignore", "leaves in the tree")  # fewer than asked for: the record tells how many
    warnings.filterwarnings("ignore", "feature .* of the variance")  # as intended, where the way is "one"
    places = Places(given.vectors, given.features, given.root)
    for seed in given.seeds:
        for name in given.sets:
            parts = SETS[name](places, seed)
            n_groups, auto = len(np.unique(parts.y_train)), suited(parts.x_train)
            about = {"data": name, "shape": list(parts.x_train.shape), "test_samples": len(parts.x_test), "seed": seed}
            for method, way in product(given.methods, given.ways):
                if method == "kmeans":
                    came = kmeans(parts, way, n_groups, seed)
                else:
                    came = treevae(parts, way, n_groups, seed, given.epochs, given.n_init)
                line = about | {"groups": n_groups, "method": method, "way": way, "auto": auto} | came
                line |= {"threads": torch.get_num_threads(), "source": source()}
                line |= {"device": name_of(torch.device("cpu")), "versions": versions()}
                with given.out.open("a", encoding="utf-8") as file:
                    file.write(json.dumps(line) + "\n")
                print(json.dumps(line), flush=True)


if __name__ == "__main__":
    main()
