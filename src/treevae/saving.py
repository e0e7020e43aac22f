"""Fitted models in files: what is written, and what must be true of what is read."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import MISSING, asdict, dataclass, fields
from typing import Any

import numpy as np
import torch

from .data.arrays import InputForm
from .data.augment import AUGMENTATIONS
from .data.units import Units
from .model.module import TreeVAEModule, weight_shapes
from .model.networks import Architecture
from .storage import tensors as files
from .training.events import EpochEnded
from .training.plan import Plan, Stage
from .tree import Tree

SAVED = {  # entries of a saved model; those of treevae 0.1.0 have no seconds
    *("parameters", "architecture", "tree", "form", "plan", "history", "seconds", "scale", "feature_names"),
}
GONE = {"candidate_rule", "held_out", "repairs"}  # what plans of earlier versions had, and no result depends on now


@dataclass(frozen=True, eq=False)
class Fitted:
    """What a fit found; with the parameters it is all that a file holds."""

    module: TreeVAEModule
    plan: Plan
    labels: np.ndarray
    history: list[dict[str, Any]]
    seconds: list[float]
    form: InputForm
    units: Units
    feature_names: Sequence[str] = ()  # where X was a frame with string column names


def write(path: str | os.PathLike[str], parameters: dict[str, Any], found: Fitted) -> None:
    """Write a model to one safetensors file."""
    about = {
        "parameters": {name: plain(value) for name, value in parameters.items()},
        "architecture": found.module.arch.to_dict(),
        "tree": found.module.tree.to_json(),
        "form": found.form.to_dict(),
        "plan": asdict(found.plan),
        "history": found.history,
        "seconds": found.seconds,
        "scale": found.units.scale,
        "feature_names": [str(name) for name in found.feature_names],
    }
    tensors = {f"module.{name}": value for name, value in found.module.state_dict().items()}
    tensors |= {"labels": torch.from_numpy(found.labels), "shift": torch.from_numpy(found.units.shift)}
    files.write(path, about, tensors)


def plain(value: Any) -> Any:
    """A parameter as a JSON-able value; a RandomState cannot be written and becomes None."""
    if isinstance(value, Tree):
        return value.to_json()
    if isinstance(value, np.random.RandomState):
        return None
    if isinstance(value, np.generic):
        return value.item()
    if isinstance(value, torch.device):
        return str(value)
    if callable(value):  # an augmentation of the user's own cannot be written either; one of ours is its name
        return next((name for name, ours in AUGMENTATIONS.items() if ours is value), None)
    return [plain(part) for part in value] if isinstance(value, list | tuple | np.ndarray) else value


def restored_parameters(about: dict[str, Any]) -> dict[str, Any]:
    """The parameters that a file tells; it may tell nothing that is unknown."""
    if unknown := about.keys() - SAVED:
        raise ValueError(f"unknown entries {sorted(unknown)}")
    parameters = dict(about["parameters"])
    if parameters["tree"] is not None:
        parameters["tree"] = Tree.from_json(parameters["tree"])
    return parameters


def restored_fit(about: dict[str, Any], tensors: dict[str, torch.Tensor], device: torch.device) -> Fitted:
    """What was fitted, from what a file tells; sizes are compared before there is room made for them."""
    arch = files.rebuild(Architecture, about["architecture"])
    form = files.rebuild(InputForm, about["form"])
    told = {name: part for name, part in about["plan"].items() if name not in GONE}
    stages = {name: files.rebuild(Stage, part) for name, part in told.items() if isinstance(part, dict)}
    plan = files.rebuild(Plan, told | stages)
    history, seconds = _checked_history(about["history"], about.get("seconds", []))
    tree = Tree.from_json(about["tree"])
    labels = _checked_labels(tensors.pop("labels").numpy(), len(tree.leaves))
    units = Units(tensors.pop("shift").numpy(), about["scale"])
    form.check_fits(arch.input_shape)
    units.check_fits(form.n_features)
    names = about["feature_names"] or ()
    whole = isinstance(names, list | tuple) and all(isinstance(name, str) for name in names)
    if not whole or len(names) not in (0, form.n_features):
        raise ValueError(f"feature_names are not the names of {form.n_features} features")
    weights = {name.removeprefix("module."): value for name, value in tensors.items()}
    files.check_weights(weights, weight_shapes(arch, tree))
    module = TreeVAEModule(arch, [tree], torch.Generator())
    module.load_state_dict(weights)
    return Fitted(module.to(device).eval(), plan, labels, history, seconds, form, units, names)


def _checked_history(history: Any, seconds: Any) -> tuple[list[dict[str, Any]], list[float]]:
    """What happened in training and when, if it is told as ``TreeVAE.history_`` tells it."""
    epoch = {field.name for field in fields(EpochEnded) if field.default is MISSING}
    for entry in history:
        if not isinstance(entry["event"], str) or (entry["event"] == "EpochEnded" and not epoch <= entry.keys()):
            raise ValueError("the history has an entry that is no event of training")
    if not isinstance(history, list) or not isinstance(seconds, list) or len(seconds) not in (0, len(history)):
        raise ValueError("the history and its seconds are not lists of the same length")
    return history, seconds


def _checked_labels(labels: np.ndarray, n_leaves: int) -> np.ndarray:
    if (
        labels.ndim != 1
        or labels.dtype != np.int64
        or (labels.size and not 0 <= labels.min() <= labels.max() < n_leaves)
    ):
        raise ValueError(f"labels are not numbers of {n_leaves} clusters")
    return labels
