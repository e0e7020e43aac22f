"""How heavy neighbours and a guide's labels should be: one set in 5, 64 and all 784 of its numbers.

The samples are the study's 10,000 pictures of MNIST, as they are and as their first principal components, which come
from the training samples. The guide is the embedding, the same for all weights of a seed. Labels are looked at for
scores alone.

python -m benchmarks.studies.start_weights (--kept FOLDER | --root DATA) [--seeds 2] [--device auto] [--out FILE]
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from treevae import TreeVAE
from treevae.fitting import Seeds, fit_trees
from treevae.metrics import accuracy, dendrogram_purity, nmi
from treevae.preparing import prepare
from treevae.starting import Beside
from treevae.training.plan import Plan, Stage
from treevae.training.terms import Agreement, Guidance, Term

from .. import record
from .start_data import Folders, StartSet, components, kept, prepared

FEATURES = (5, 64, 784)
AGREEMENTS = (0.0, 3.0, 10.0, 30.0, 100.0)  # weights, in nats for a nat
GUIDANCES = (0.02, 0.2, 1.0)  # for each feature
USUAL = (10.0, 0.2)


def main() -> None:
    """Fit all of them, and write what came out."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--kept", type=Path, help="read the set from here, as start_data --out has written it")
    parser.add_argument("--root", type=Path, help="where the data sets lie; by default what $TREEVAE_DATA says")
    parser.add_argument("--seeds", type=int, default=2)
    parser.add_argument("--device", default="auto")
    parser.add_argument("--out", type=Path)
    given = parser.parse_args()
    data = prepared("mnist-10000", Folders(given.root)) if given.kept is None else kept(given.kept / "mnist-10000.npz")
    rows = []
    for n_features in FEATURES:
        train, test = _in_components(data, n_features)
        for weights in [(a, USUAL[1]) for a in AGREEMENTS] + [(USUAL[0], g) for g in GUIDANCES if g != USUAL[1]]:
            for row in run(train, test, data, weights, given.seeds, given.device):
                rows.append({"features": n_features, **row})
                print(rows[-1], flush=True)
    record.write(given.out, {"rows": rows}, given.device)


def _in_components(data: StartSet, n_features: int) -> tuple[np.ndarray, np.ndarray]:
    train, test = data.flat()
    return (train, test) if n_features == train.shape[1] else components(train, test, n_features)


def run(
    train: np.ndarray, test: np.ndarray, data: StartSet, weights: tuple[float, float], seeds: int, device: str
) -> Iterator[dict[str, Any]]:
    """A row for each seed."""
    model = TreeVAE(data.n_leaves, device=device)
    ready = prepare("TreeVAE", model.get_params(deep=False), train, beside=Beside("embedding"))
    began = time.perf_counter()
    fitted = fit_trees(ready, weighted(ready.plan, *weights, train.shape[1]), Seeds.of(range(seeds)))
    seconds = time.perf_counter() - began
    for seed, one in enumerate(fitted):
        leaf = one.predict(test)
        values = {"DP": dendrogram_purity(one.tree, leaf, data.y_test), "ACC": accuracy(leaf, data.y_test)}
        scores = {name: round(100 * float(value), 2) for name, value in values.items()}
        scores["NMI"] = round(100 * float(nmi(leaf, data.y_test)), 2)
        about = {"agreement": weights[0], "guidance": weights[1], "seed": seed}
        yield {**about, **scores, "ELBO": round(float(one.elbo(test[:2000]).mean()), 3), "seconds": round(seconds, 1)}


def weighted(plan: Plan, agreement: float, guidance: float, n_features: int) -> Plan:
    """The plan with other weights of its terms."""

    def term(one: Term) -> Term | None:
        if isinstance(one, Agreement):
            return replace(one, weight=agreement) if agreement > 0 else None
        return replace(one, weight=guidance * n_features) if isinstance(one, Guidance) else one

    def stage(one: Stage | None) -> Stage | None:
        return one and replace(one, terms=tuple(new for old in one.terms if (new := term(old)) is not None))

    first = stage(plan.first)
    assert first is not None
    return replace(plan, first=first, subtree=stage(plan.subtree), final=stage(plan.final))


if __name__ == "__main__":
    main()
