"""What lowers the spread over seeds? Candidates and the rules by which one is kept, the choice of the leaf, repairs.

    python benchmarks/spread.py fashion --root DATA [--epochs 38] [--seeds 10] [--only NAME ...] [--tensorflow]

Ten seeds side by side for each setting; labels are used for the scores alone. Every setting is a line of the file, and
one that is there already is left out, so that a run that was stopped goes on. With --tensorflow the norms and the first
weights are those of the paper's own runs (see tensorflow_settings.py).
"""

from __future__ import annotations

import argparse
import json
import statistics
import time
import warnings
from dataclasses import replace
from pathlib import Path
from typing import Any, ClassVar

from sklearn.exceptions import ConvergenceWarning
from tensorflow_settings import set_glorot, set_norms

from treevae.training.plan import CANDIDATE_RULES, Plan  # imports no kernels, which take the norms in

SETTINGS: dict[str, dict[str, Any]] = {
    "paper": {},
    **{f"{n} candidates, {rule}": {"n_init": n, "candidate_rule": rule} for n in (4, 16) for rule in CANDIDATE_RULES},
    "leaf by gain": {"leaf_rule": "gain"},
    "repairs": {"repairs": 3},
    "leaf by gain, repairs": {"leaf_rule": "gain", "repairs": 3},
    "4 candidates, loss, leaf by gain, repairs": {"n_init": 4, "leaf_rule": "gain", "repairs": 3},
}


def main() -> None:
    """Fit what is missing; print and write each as it is done."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("data", choices=("mnist", "fashion"))
    parser.add_argument("--root", type=Path, help="where the data sets lie; by default what $TREEVAE_DATA says")
    parser.add_argument("--epochs", type=int, default=38, help="of a growth stage; 150 is the paper's schedule")
    parser.add_argument("--seeds", type=int, default=10)
    parser.add_argument("--only", nargs="+", choices=list(SETTINGS), metavar="NAME", help="some of the settings")
    parser.add_argument("--tensorflow", action="store_true")
    parser.add_argument("--out", type=Path)
    given = parser.parse_args()
    if given.tensorflow:
        set_norms(1e-3, 0.99)
        set_glorot()
    from treevae import TreeVAE
    from treevae.data import load
    from treevae.experiments.records import elbo_terms, name_of, scores, versions

    class Planned(TreeVAE):
        """A TreeVAE whose plan has other rules."""

        changes: ClassVar[dict[str, Any]] = {}

        def _plan(self, n_samples: int) -> Plan:
            return replace(super()._plan(n_samples), **self.changes)

    out = given.out or Path(__file__).parent / "results" / f"spread-{given.data}.jsonl"
    data = load(given.data, given.root)
    assert data.y_test is not None
    done = [json.loads(line) for line in out.read_text().splitlines()] if out.exists() else []
    warnings.simplefilter("ignore", category=ConvergenceWarning)  # the leaves are in the record
    for name in given.only or SETTINGS:
        about = {"setting": name, **{key: vars(given)[key] for key in ("data", "epochs", "seeds", "tensorflow")}}
        if any(about.items() <= line.items() for line in done):
            continue
        started = time.perf_counter()
        Planned.changes = SETTINGS[name]
        model = Planned.recipe(given.data, epochs=given.epochs, verbose=True)
        models = model.fit_seeds(data.x_train, range(given.seeds))
        seconds = time.perf_counter() - started
        found = [
            {"ELBO": elbo_terms(one, data.x_test)["ELBO"], "leaves": len(one.tree_.leaves)}
            | scores(one.tree_, one.predict(data.x_test), data.y_test)
            for one in models
        ]
        device = next(models[0].module_.parameters()).device
        line = about | {
            "changes": SETTINGS[name],
            "seconds": seconds,
            "device": name_of(device),
            "versions": versions(),
            "runs": found,
        }
        with out.open("a", encoding="utf-8") as file:
            file.write(json.dumps(line) + "\n")
        summary = {
            score: f"{statistics.mean(values):.1f} ± {statistics.stdev(values):.1f}"
            for score in ("ACC", "NMI", "DP", "ELBO")
            if len(values := [run[score] for run in found]) > 1
        }
        print(name, f"{seconds:.0f} s", summary, flush=True)


if __name__ == "__main__":
    main()
