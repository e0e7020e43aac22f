"""Is a known hierarchy recovered, and do candidates (`n_init`) help? Eight groups in three levels, five seeds.

Candidates are kept as `n_init` keeps them, and by the sureness of their routers alone.

python -m benchmarks.studies.hierarchy [--out benchmarks/results/hierarchy.json]
"""

from __future__ import annotations

import argparse
import time
from pathlib import Path
from typing import Any

from treevae import TreeVAE
from treevae.data.synthetic import hierarchy
from treevae.fitting import Seeds, fit_trees
from treevae.metrics import accuracy
from treevae.preparing import prepare
from treevae.starting import plan_of
from treevae.training.choosing import Choices
from treevae.training.growing import Splits

from .. import record
from .rules import OURS, ByRule

SETTINGS: dict[str, Any] = {"n_leaves": 8, "max_depth": 6, "hidden_dim": 32, "batch_size": 64, "epochs": 10}


def main() -> None:
    """Measure, print and write."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, default=record.RESULTS / "hierarchy.json")
    out: Path = parser.parse_args().out
    rows = []
    for n_init, rule in ((1, OURS), (5, OURS), (16, OURS), (5, "confidence"), (16, "confidence")):
        choices, given = Choices(compare=ByRule(rule)), TreeVAE(**SETTINGS, n_init=n_init).get_params(deep=False)
        for seed in range(5):
            X, y = hierarchy(1600, seed=seed)
            start = time.perf_counter()
            prepared, plan = prepare("TreeVAE", given, X), plan_of(given, len(X))
            (model,) = fit_trees(prepared, plan, Seeds.of([seed]), start=Splits(choices))
            row: dict[str, Any] = {
                "n_init": n_init,
                "rule": rule,
                "seed": seed,
                "seconds": time.perf_counter() - start,
                "leaves": len(model.tree.leaves),
                "acc_leaves": accuracy(model.predict(X), y),
                "acc_4_groups": accuracy(model.predict(X, n_groups=4), y // 2),
                "acc_root_split": accuracy(model.predict(X, n_groups=2), y // 4),
            }
            rows.append(row)
            print(row, flush=True)
    record.write(out, {"settings": SETTINGS, "rows": rows})


if __name__ == "__main__":
    main()
