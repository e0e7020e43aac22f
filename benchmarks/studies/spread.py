"""What lowers the spread over seeds? Candidates and the rules by which one is kept, levels, TensorFlow's ways.

    python -m benchmarks.studies.spread fashion --root DATA [--epochs 38] [--seeds 10] [--only NAME …] [--layers NAME]
    python -m benchmarks.studies.spread fashion --root DATA --epochs 150 --seeds 4 --first-seed 4 --only NAME

Ten seeds side by side for each setting; labels are used for the scores alone. Every setting is a line of the file, and
one that is there already is left out, so that a run that was stopped goes on. Where candidates were compared, the line
also has what every rule says of each, and how much each tells of the classes, in nats: so one run judges all rules.

Leaves chosen by the gain of their split, repairs and candidates judged by samples held out helped nothing and are no
longer in treevae. Their lines are of commit 88480e4, the last that has them, and of earlier ones.
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
from torch import Tensor

from treevae import TreeVAE
from treevae.data import load
from treevae.fitting import Seeds, fit_trees
from treevae.listening import Listener
from treevae.metrics import contingency
from treevae.model.stack import LAYER_DEFAULTS
from treevae.preparing import prepare
from treevae.records import name_of, source, versions
from treevae.scores import mean_terms, scores
from treevae.starting import plan_of
from treevae.training.choosing import Choices
from treevae.training.growing import Splits

from .. import record
from .rules import OURS, RULES, ByRule

ABOUT = ("data", "epochs", "seeds", "first_seed", "framework")
UNWEIGHTED = "paper, subtrees not weighted by reach"  # as in the authors' TensorFlow code
RULE = "candidate_rule"
SETTINGS: dict[str, dict[str, Any]] = {  # changes to the recipe's parameters, and the rule
    "paper": {},
    UNWEIGHTED: {},
    **{f"{n} candidates, {rule}": {"n_init": n, RULE: rule} for n in (4, 16) for rule in RULES},
    f"16 candidates, {OURS}, 7 levels": {"n_init": 16, RULE: OURS, "max_depth": 6},
}


def information(right: Tensor, classes: Tensor) -> list[float]:
    """I(side; class) of each candidate, in nats, from the probability (candidate, sample) of going right."""
    sides = (right > 0.5).double()
    of_class = torch.nn.functional.one_hot(classes).double()
    joint = torch.stack([sides @ of_class, (1 - sides) @ of_class], 1) / len(classes)  # (candidate, side, class)
    entropy = [torch.special.entr(part).flatten(1).sum(1) for part in (joint.sum(2), joint.sum(1), joint)]
    return (entropy[0] + entropy[1] - entropy[2]).tolist()


class Watched(ByRule):
    """A comparison that also notes what candidates tell of the classes."""

    def __init__(self, rule: str, classes: np.ndarray) -> None:
        super().__init__(rule)
        self._classes = torch.from_numpy(classes)

    def more(self, right: Tensor, rows: Tensor) -> dict[str, Any]:
        """What each candidate tells of the classes, in nats."""
        return {"information": information(right.cpu(), self._classes[rows])}


def main() -> None:
    """Fit what is missing; print and write each as it is done."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("data", choices=("digits", "mnist", "fashion"))
    parser.add_argument("--root", type=Path, help="where the data sets lie; by default what $TREEVAE_DATA says")
    parser.add_argument("--epochs", type=int, default=38, help="of a growth stage; 150 is the paper's schedule")
    parser.add_argument("--seeds", type=int, default=10)
    parser.add_argument("--first-seed", type=int, default=0, help="the seeds are those from here on")
    parser.add_argument("--only", nargs="+", choices=list(SETTINGS), metavar="NAME", help="some of the settings")
    parser.add_argument(
        "--layers",
        dest="framework",
        choices=list(LAYER_DEFAULTS),
        default="torch",
        help="whose norms and first weights",
    )
    parser.add_argument("--out", type=Path)
    given = parser.parse_args()
    out = given.out or record.RESULTS / f"spread-{given.data}.jsonl"
    data = load(given.data, given.root)
    assert data.y_train is not None
    assert data.y_test is not None
    done = [json.loads(line) for line in out.read_text().splitlines()] if out.exists() else []
    done = [{"first_seed": 0, **line} for line in done]
    for name in given.only or SETTINGS:
        about = {"setting": name, **{key: vars(given)[key] for key in ABOUT}}
        if any(about.items() <= line.items() for line in done):
            continue
        started = time.perf_counter()
        changes = {key: value for key, value in SETTINGS[name].items() if key != RULE}
        watched = Watched(SETTINGS[name].get(RULE, OURS), data.y_train)
        weigh = torch.zeros_like if name == UNWEIGHTED else None  # log-reach 0: as if every sample surely came there
        shared = {"epochs": given.epochs, "layer_defaults": given.framework}
        parameters = TreeVAE.recipe(given.data, **shared, **changes).get_params(deep=False)
        models = fit_trees(
            prepare("TreeVAE", parameters, data.x_train),
            plan_of(parameters, len(data.x_train)),
            Seeds.of(range(given.first_seed, given.first_seed + given.seeds)),
            listener=Listener(verbose=True),
            start=Splits(Choices(compare=watched, weigh=weigh)),
        )
        seconds = time.perf_counter() - started
        runs = []
        for one in models:
            leaves = one.predict(data.x_test)
            runs.append(
                {
                    "ELBO": mean_terms(one, data.x_test)["ELBO"],
                    "leaves": len(one.tree.leaves),
                    **scores(one.tree, leaves, data.y_test),
                    "tree": json.loads(one.tree.to_json()),
                    "test_leaf_by_class": contingency(leaves, data.y_test, len(one.tree.leaves)).tolist(),
                }
            )
        line = about | {
            "command": f"python -m benchmarks.studies.spread {given.data} --epochs {given.epochs} "
            f"--seeds {given.seeds} --first-seed {given.first_seed} "
            f'--layers {given.framework} --only "{name}"',
            "source": source(),
            "changes": SETTINGS[name],
            "seconds": seconds,
            "device": name_of(models[0].device),
            "versions": versions(),
            "runs": runs,
            "compared": watched.comparisons,
        }
        with out.open("a", encoding="utf-8") as file:  # in one go at the end: other processes may add lines, too
            file.write(json.dumps(line) + "\n")
        summary = {
            score: f"{statistics.mean(values):.1f} ± {statistics.stdev(values):.1f}"
            for score in ("ACC", "NMI", "DP", "ELBO")
            if len(values := [run[score] for run in runs]) > 1
        }
        print(name, f"{seconds:.0f} s", summary, flush=True)


if __name__ == "__main__":
    main()
