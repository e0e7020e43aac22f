"""Does the early order of candidates tell the late one? What does a race cost, and what does it lose?

    python -m benchmarks.studies.racing order digits [--seeds 5] [--epochs 30]
    python -m benchmarks.studies.racing fits digits [--seeds 5] [--epochs 30] [--only NAME …]

`order` trains sixteen first trees and sixteen subtrees of each seed to the end, compares them on the way, and notes it.
`fits` grows whole trees with one candidate, with sixteen, and with sixteen that race. Labels are used for scores alone.
"""

from __future__ import annotations

import argparse
import statistics
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import torch
from sklearn.datasets import load_digits
from sklearn.model_selection import train_test_split

from treevae import TreeVAE
from treevae.data import fashion_sample
from treevae.fitting import Seeds, fit_trees
from treevae.model.module import TreeVAEModule
from treevae.model.subtree import Subtree
from treevae.preparing import prepare
from treevae.scores import mean_terms, scores
from treevae.starting import plan_of
from treevae.training.choosing import compare, splittable
from treevae.training.loop import Training
from treevae.training.objectives import ElboObjective, SubtreeOnSubset, WholeTree
from treevae.training.plan import Plan, Stage
from treevae.training.samples import Samples
from treevae.tree import Tree

from .. import record
from .spread import information

LOOKS = (
    1 / 16,
    1 / 8,
    3 / 16,
    1 / 4,
    3 / 8,
    1 / 2,
    3 / 4,
    1.0,
)  # shares of a stage after which candidates are compared
CANDIDATES = 16
PLANS: dict[str, Callable[[Plan], Plan]] = {
    "one": partial(replace, n_init=1),
    "sixteen": partial(replace, n_init=CANDIDATES),
    "race, late": partial(replace, n_init=CANDIDATES, race=(1 / 8, 1 / 4, 3 / 8, 1 / 2)),
    "race": partial(replace, n_init=CANDIDATES, race=(1 / 16, 1 / 8, 1 / 4, 1 / 2)),
    "race, early": partial(replace, n_init=CANDIDATES, race=(1 / 16, 1 / 16, 1 / 8, 1 / 4)),
}
Parted = tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]


def samples_of(data: str) -> Parted:
    """Training and test samples, then their classes."""
    if data == "digits":
        X, y = load_digits(return_X_y=True)
        return tuple(train_test_split(X / 16, y, test_size=0.25, random_state=0, stratify=y))
    sample = fashion_sample.load()
    return sample.x_train, sample.x_test, sample.y_train, sample.y_test


def looks(objective: ElboObjective, samples: Samples, stage: Stage, plan: Plan, y: torch.Tensor) -> Iterator[Any]:
    """What is told of each candidate on the way to the end of a stage."""
    ends = {max(1, round(share * stage.epochs)) for share in LOOKS}
    (n,) = objective.n_samples
    for done in Training(objective, samples, stage, plan.samples_per_step, [0]).run():
        if done is not None and done.epoch + 1 in ends:
            here = replace(stage, epochs=done.epoch + 1)
            told = compare(objective, samples, here, None, 0, plan, keep=objective.n_trees).to_dict()
            tells = information(objective.right(), y[objective.rows(torch.arange(n))])
            yield {"epoch": done.epoch + 1, "epochs": stage.epochs, **told, "information": tells}
            objective.hold_all()  # a comparison holds pieces


def order(data: str, epochs: int, seed: int) -> dict[str, Any]:
    """The looks at the first trees, and at the subtrees of the largest leaf of the best of them."""
    X, _, y, _ = samples_of(data)
    given = TreeVAE(10, network="mlp", epochs=epochs, n_init=CANDIDATES, device="cpu").get_params(deep=False)
    prepared, plan, classes = prepare("TreeVAE", given, X), plan_of(given, len(X)), torch.from_numpy(y).long()
    samples, generator = Samples(prepared.x, torch.device("cpu")), torch.Generator().manual_seed(seed)
    module = TreeVAEModule(prepared.arch, [Tree().split(0)] * CANDIDATES, generator, CANDIDATES)
    first = list(looks(WholeTree(module, samples), samples, plan.first, plan, classes))
    best = TreeVAEModule.of([(module, first[-1]["chosen"])]).eval()
    _, leaves = splittable(best, samples, plan)
    leaf, rows = next(iter(leaves.items()))
    subtree = Subtree.new(prepared.arch, best.bottom_up.d_dims, 1, CANDIDATES, generator)
    objective = SubtreeOnSubset([best], [leaf], subtree, samples, [rows])
    assert plan.subtree is not None
    return {"first tree": first, "subtree": list(looks(objective, samples, plan.subtree, plan, classes))}


def fit(data: str, epochs: int, seed: int, name: str) -> dict[str, Any]:
    """Scores and CPU seconds of a whole tree, grown by one of the plans."""
    x_train, x_test, _, y_test = samples_of(data)
    given = TreeVAE(10, network="mlp", epochs=epochs, device="cpu").get_params(deep=False)
    prepared, plan = prepare("TreeVAE", given, x_train), PLANS[name](plan_of(given, len(x_train)))
    began = time.process_time()
    (model,) = fit_trees(prepared, plan, Seeds.of([seed]))
    seconds = time.process_time() - began
    spent = dict.fromkeys(plan.stages, 0)
    for event in model.epochs:
        spent[event.stage] += 1
    figures = scores(model.tree, model.predict(x_test), y_test)
    return {"cpu_seconds": seconds, "epochs": spent, "ELBO": mean_terms(model, x_test)["ELBO"], **figures}


def main() -> None:
    """Measure, print and write."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("what", choices=("order", "fits"))
    parser.add_argument("data", choices=("digits", "fashion-sample"))
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--first-seed", type=int, default=0, help="the seeds are those from here on")
    parser.add_argument("--epochs", type=int, default=30, help="of a growth stage")
    parser.add_argument("--only", nargs="+", choices=list(PLANS), metavar="NAME", help="some of the plans")
    parser.add_argument("--out", type=Path)
    given = parser.parse_args()
    torch.set_num_threads(1)
    seeds = list(range(given.first_seed, given.first_seed + given.seeds))
    told: dict[str, Any] = {"data": given.data, "epochs": given.epochs, "seeds": seeds}
    if given.what == "order":
        told["looks"] = []
        for seed in seeds:
            told["looks"].append(order(given.data, given.epochs, seed))
            print("seed", seed, flush=True)
    else:
        told["fits"] = {name: [] for name in given.only or PLANS}
        for seed in seeds:  # seed by seed, so that a busy machine is as slow for all of them
            for name, runs in told["fits"].items():
                runs.append(fit(given.data, given.epochs, seed, name))
                print(
                    name,
                    seed,
                    {key: value if isinstance(value, dict) else round(value, 1) for key, value in runs[-1].items()},
                    flush=True,
                )
        for name, runs in told["fits"].items():
            print(
                name,
                {
                    key: round(statistics.mean(run[key] for run in runs), 1)
                    for key in ("cpu_seconds", "DP", "ACC", "NMI", "ELBO")
                },
            )
    record.write(given.out or record.RESULTS / f"racing-{given.what}-{given.data}.json", told)


if __name__ == "__main__":
    main()
