"""Plans of training with something changed that TreeVAE has no parameter for."""

from __future__ import annotations

from dataclasses import replace

from treevae.training.plan import Plan


def with_weight_decay(plan: Plan, decay: float) -> Plan:
    """The plan with this L2 weight decay in all of its stages."""
    stages = {name: getattr(plan, name) for name in ("first", "subtree", "whole", "final")}
    return replace(plan, **{name: stage and replace(stage, weight_decay=decay) for name, stage in stages.items()})
