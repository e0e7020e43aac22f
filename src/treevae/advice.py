"""What is said of a fit that ended as it may disappoint."""

from __future__ import annotations

import warnings
from collections.abc import Mapping
from typing import Any

from sklearn.exceptions import ConvergenceWarning

from .fitted import Fitted
from .training.events import LeafChosen

OTHER_GUIDE = "Another guide, neighbours=0 or start='splits' can give more"
LEFT_BEHIND = 0.01  # of what norms began with, in their running statistics after a stage


def warn_of(model: Fitted, parameters: Mapping[str, Any], stacklevel: int) -> None:
    """Warn where a model has fewer leaves than asked for, or norms that lag behind."""
    for message in (_fewer_leaves(model, parameters), _norms_left_behind(model)):
        if message is not None:
            warnings.warn(message, ConvergenceWarning, stacklevel=stacklevel + 1)


def _fewer_leaves(model: Fitted, parameters: Mapping[str, Any]) -> str | None:
    n_grown, wanted = len(model.tree.leaves), parameters["n_leaves"]
    if parameters["tree"] is not None or n_grown >= wanted:
        return None
    told = f"leaves in the tree: {n_grown}, fewer than n_leaves={wanted}"
    if model.guide is not None:
        return f"{told}: the others won no sample and were pruned, or were too small to split. {OTHER_GUIDE}"
    return (
        f"{told}: the others were too small to split, or were pruned. More epochs, more samples or a smaller "
        "batch_size can give more"
    )


def _norms_left_behind(model: Fitted) -> str | None:
    arch, plan, n = model.module.arch, model.plan, len(model.labels)
    name, momentum = arch.layer_defaults, arch.layers.momentum
    trained = [(plan.first if plan.final is None else plan.final, n)]
    if plan.final is None and plan.subtree is not None:  # norms of a subtree see its own samples only
        trained += [(plan.subtree, event.samples) for event in model.history if isinstance(event, LeafChosen)]
    steps = min(stage.epochs * (samples // plan.samples_per_step) for stage, samples in trained)
    if name == "torch" or momentum**steps <= LEFT_BEHIND:
        return None
    return (
        f"a stage had {steps} steps, and layer_defaults={name!r} keeps {momentum} of the norms' running statistics at "
        "every step, so that they lag behind. Take more epochs, a smaller batch_size, or layer_defaults='torch'"
    )
