"""What lowers the spread over seeds? Candidates for the splits, and the rules by which one is kept.

    python benchmarks/spread.py fashion --root DATA [--epochs 38] [--seeds 10] [--out FILE.jsonl]

Ten seeds side by side for each number of candidates and each rule; labels are used for the scores alone. Every setting
is a line of the file, and one that is there already is left out, so that a run that was stopped goes on.
"""

from __future__ import annotations

import argparse
import json
import statistics
import time
import warnings
from dataclasses import replace
from pathlib import Path
from typing import Any

from sklearn.exceptions import ConvergenceWarning

from treevae import TreeVAE
from treevae.data import load
from treevae.experiments.records import elbo_terms, name_of, scores, versions
from treevae.training.plan import CANDIDATE_RULES, Plan

SETTINGS: list[dict[str, Any]] = [{"n_init": 1, "candidate_rule": "loss"}] + [
    {"n_init": n, "candidate_rule": rule} for n in (4, 16) for rule in CANDIDATE_RULES
]


class Ruled(TreeVAE):
    """A TreeVAE whose plan has another rule for candidates."""

    rule = "loss"

    def _plan(self, n_samples: int) -> Plan:
        return replace(super()._plan(n_samples), candidate_rule=self.rule)


def main() -> None:
    """Fit what is missing; print and write each as it is done."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("data", choices=("mnist", "fashion"))
    parser.add_argument("--root", type=Path, help="where the data sets lie; by default what $TREEVAE_DATA says")
    parser.add_argument("--epochs", type=int, default=38, help="of a growth stage; 150 is the paper's schedule")
    parser.add_argument("--seeds", type=int, default=10)
    parser.add_argument("--out", type=Path)
    given = parser.parse_args()
    out = given.out or Path(__file__).parent / "results" / f"spread-{given.data}.jsonl"
    data = load(given.data, given.root)
    assert data.y_test is not None
    done = [json.loads(line) for line in out.read_text().splitlines()] if out.exists() else []
    warnings.simplefilter("ignore", category=ConvergenceWarning)  # the leaves are in the record
    for setting in SETTINGS:
        about = {"data": given.data, "epochs": given.epochs, "seeds": given.seeds, **setting}
        if any(about.items() <= line.items() for line in done):
            continue
        started = time.perf_counter()
        Ruled.rule = setting["candidate_rule"]
        model = Ruled.recipe(given.data, epochs=given.epochs, n_init=setting["n_init"], verbose=True)
        models = model.fit_seeds(data.x_train, range(given.seeds))
        seconds = time.perf_counter() - started
        found = [
            {"ELBO": elbo_terms(one, data.x_test)["ELBO"], "leaves": len(one.tree_.leaves)}
            | scores(one.tree_, one.predict(data.x_test), data.y_test)
            for one in models
        ]
        device = next(models[0].module_.parameters()).device
        line = about | {"seconds": seconds, "device": name_of(device), "versions": versions(), "runs": found}
        with out.open("a", encoding="utf-8") as file:
            file.write(json.dumps(line) + "\n")
        summary = {
            name: f"{statistics.mean(values):.1f} ± {statistics.stdev(values):.1f}"
            for name in ("ACC", "NMI", "DP", "ELBO")
            if len(values := [run[name] for run in found]) > 1
        }
        print(setting, f"{seconds:.0f} s", summary, flush=True)


if __name__ == "__main__":
    main()
