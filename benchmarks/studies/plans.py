"""Plans of training with something changed that TreeVAE has no parameter for."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from treevae.training.plan import Plan, Stage


def with_stages(plan: Plan, changed: Callable[[Stage], Stage]) -> Plan:
    """The plan with each of its stages changed."""
    return replace(
        plan,
        first=changed(plan.first),
        subtree=plan.subtree and changed(plan.subtree),
        whole=plan.whole and changed(plan.whole),
        final=plan.final and changed(plan.final),
    )


def with_weight_decay(plan: Plan, decay: float) -> Plan:
    """The plan with this L2 weight decay in all of its stages."""
    return with_stages(plan, lambda stage: replace(stage, weight_decay=decay))
