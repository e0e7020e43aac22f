"""Rules by which one of several candidates may be kept, judged by what a comparison tells of each of them.

treevae's own is loss_if_sure: the lowest loss among the surest. The others are for the comparison in
docs/evidence/spread.md.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor

from treevae.training import choosing
from treevae.training.events import CandidatesCompared
from treevae.training.loop import evaluate
from treevae.training.objectives import ElboObjective
from treevae.training.plan import Plan, Stage
from treevae.training.samples import Samples

OURS = "loss_if_sure"
SIGNS = {"loss": -1, "elbo": -1, "confidence": 1, "agreement": 1}  # losses are better when they are low
RULES = (*SIGNS, OURS)


def alive(told: Mapping[str, Any]) -> list[int]:
    """The candidates that did not collapse; all of them if all did."""
    shares = told["smaller"]
    return [i for i, share in enumerate(shares) if share >= Plan.min_share] or list(range(len(shares)))


def kept(rule: str, told: Mapping[str, Any]) -> int:
    """The candidate that a rule keeps."""
    among, by = alive(told), rule
    if rule == OURS:
        by, unsure = "loss", [1 - sure for sure in told["confidence"]]
        if told["smaller"][among[0]] >= Plan.min_share:
            bound = choosing.sure_enough(min(unsure[i] for i in among))
            among = [i for i in among if unsure[i] <= bound]
    return max(among, key=lambda i: SIGNS[by] * told[by][i])


def agreement(right: Tensor) -> Tensor:
    """The mean share of the samples that another candidate parts alike, left and right perhaps exchanged."""
    sides = (right > 0.5).to(right.dtype)
    same = sides @ sides.T + (1 - sides) @ (1 - sides).T
    alike = torch.maximum(same, right.shape[1] - same) / right.shape[1]
    return (alike.sum(1) - 1) / max(len(right) - 1, 1)


class ByRule:
    """Stands in for treevae's comparison of candidates: notes what every rule goes by, and keeps the one of a rule."""

    def __init__(self, rule: str = OURS) -> None:
        self.rule, self.comparisons = rule, list[dict[str, Any]]()

    def __call__(
        self,
        objective: ElboObjective,
        samples: Samples,
        stage: Stage,
        leaf: int | None,
        seed: int,
        plan: Plan,
        keep: int = 1,
    ) -> CandidatesCompared:
        if keep > 1:
            raise ValueError("these rules know no races: they say which candidate is the best, and no more")
        compared = choosing.compare(objective, samples, stage, leaf, seed, plan)
        right = objective.right()
        told = {
            "leaf": leaf,
            "samples": right.shape[1],
            "smaller": compared.smaller_shares,
            "loss": compared.losses,
            "elbo": evaluate(objective, samples, 1.0, seed).tolist(),
            "confidence": [1 - unsure for unsure in compared.unsure],
            "agreement": agreement(right).tolist(),
        }
        self.comparisons.append(told | self.more(right, objective.rows(torch.arange(right.shape[1]))))
        return compared if self.rule == OURS else replace(compared, chosen=kept(self.rule, told))

    def more(self, right: Tensor, rows: Tensor) -> dict[str, Any]:
        """What else is to be noted, given the probabilities (candidate, sample) of going right."""
        return {}
