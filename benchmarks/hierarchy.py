"""Is a known hierarchy recovered, and do candidates (`n_init`) help? Eight groups in three levels, five seeds.

Candidates are kept as `n_init` keeps them, and by the sureness of their routers alone.

python benchmarks/hierarchy.py [--out benchmarks/results/hierarchy.json]
"""

from __future__ import annotations

import argparse
import time
from dataclasses import replace
from pathlib import Path
from typing import Any, ClassVar

import record

from treevae import TreeVAE
from treevae.data.synthetic import hierarchy
from treevae.metrics import accuracy
from treevae.training.plan import Plan

SETTINGS: dict[str, Any] = {"n_leaves": 8, "max_depth": 6, "hidden_dim": 32, "batch_size": 64, "epochs": 10}


class ByRule(TreeVAE):
    """A TreeVAE whose candidates are kept by another rule."""

    rule: ClassVar[str] = Plan.candidate_rule

    def _plan(self, n_samples: int) -> Plan:
        return replace(super()._plan(n_samples), candidate_rule=self.rule)


def main() -> None:
    """Measure, print and write."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, default=Path(__file__).parent / "results" / "hierarchy.json")
    out: Path = parser.parse_args().out
    rows = []
    default = Plan.candidate_rule
    for n_init, ByRule.rule in ((1, default), (5, default), (16, default), (5, "confidence"), (16, "confidence")):
        for seed in range(5):
            X, y = hierarchy(1600, seed=seed)
            start = time.perf_counter()
            model = ByRule(**SETTINGS, n_init=n_init, random_state=seed).fit(X)
            row: dict[str, Any] = {
                "n_init": n_init,
                "rule": ByRule.rule,
                "seed": seed,
                "seconds": time.perf_counter() - start,
                "leaves": len(model.tree_.leaves),
                "acc_leaves": accuracy(model.predict(X), y),
                "acc_4_groups": accuracy(model.predict(X, n_groups=4), y // 2),
                "acc_root_split": accuracy(model.predict(X, n_groups=2), y // 4),
            }
            rows.append(row)
            print(row, flush=True)
    record.write(out, {"settings": SETTINGS, "rows": rows})


if __name__ == "__main__":
    main()
