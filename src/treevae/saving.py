"""Fitted models in files: what is written, and what must be true of what is read."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

import numpy as np
import torch

from .data.arrays import InputForm
from .data.aspect import Aspect
from .data.units import Units, usual_way
from .fitted import Fitted
from .model.module import TreeVAEModule, weight_shapes
from .model.networks import Architecture
from .parameters import device_of, plain
from .recipes import PAPER
from .storage import tensors as files
from .training import events
from .training.events import Event
from .training.plan import Plan
from .tree import Tree

M = TypeVar("M")
SAVED = {  # entries of a saved model; those of treevae 0.1.0 have no seconds, and not the last two
    *("parameters", "architecture", "tree", "form", "plan", "history", "seconds", "scale", "feature_names"),
    *("way", "length"),
}


def write(path: str | os.PathLike[str], parameters: dict[str, Any], model: Fitted) -> None:
    """Write a model, and the parameters it was fitted with, to one safetensors file."""
    aspect, units = model.decides, model.decides.units
    about = {
        "parameters": {name: plain(value) for name, value in parameters.items()},
        "architecture": model.module.arch.to_dict(),
        "tree": model.tree.to_json(),
        "form": aspect.form.to_dict(),
        "plan": model.plan.to_dict(),
        "history": [event.to_dict() for event in model.history],
        "seconds": list(model.seconds),
        "scale": units.scale if isinstance(units.scale, float) else None,  # None: the tensor "scale"
        "way": units.way,
        "length": units.length,
        "feature_names": list(model.names),
    }
    tensors = {f"module.{name}": value for name, value in model.module.state_dict().items()}
    tensors |= {"labels": torch.from_numpy(model.labels), "shift": torch.from_numpy(units.shift)}
    if isinstance(units.scale, np.ndarray):
        tensors["scale"] = torch.from_numpy(units.scale)
    files.write(path, about, tensors)


def read(path: str | os.PathLike[str], device: str, make: Callable[..., M]) -> tuple[M, Fitted]:
    """What is made of the parameters in a file, and the model there, on a device.

    Raises
    ------
    ModelFileError
        The file is foreign, cut short, inconsistent, or was written by a newer treevae. Reading never runs code.
    FileNotFoundError
        There is none.
    """
    if Path(path).is_dir():
        inside = Path(path) / "model.safetensors"
        raise FileNotFoundError(f"{path} is a folder; give the file of the model that is in it, as {inside}")
    about, tensors = files.read(path)
    where = device_of(device)  # an unusable device is not the file's fault
    try:
        return make(**PAPER | _restored_parameters(about) | {"device": device}), _restored(about, tensors, where)
    except (KeyError, TypeError, AttributeError, ValueError, RuntimeError, OverflowError) as error:
        raise files.ModelFileError(f"{path} does not hold together as a treevae model: {error}") from error


def _restored_parameters(about: dict[str, Any]) -> dict[str, Any]:
    """The parameters that a file tells; it may tell nothing that is unknown."""
    if unknown := about.keys() - SAVED:
        raise ValueError(f"unknown entries {sorted(unknown)}")
    parameters = dict(about["parameters"])
    if parameters["tree"] is not None:
        parameters["tree"] = Tree.from_json(parameters["tree"])
    return parameters


def _restored(about: dict[str, Any], tensors: dict[str, torch.Tensor], device: torch.device) -> Fitted:
    """What was fitted, from what a file tells; sizes are compared before there is room made for them."""
    arch = files.rebuild(Architecture, about["architecture"])
    form = files.rebuild(InputForm, about["form"])
    plan = Plan.from_dict(about["plan"])
    history, seconds = _checked_history(about["history"], about.get("seconds", []))
    tree = Tree.from_json(about["tree"])
    labels = _checked_labels(tensors.pop("labels").numpy(), len(tree.leaves))
    scale = about["scale"] if about["scale"] is not None else tensors.pop("scale").numpy()
    way = about.get("way", usual_way(form, arch.likelihood))
    units = Units(tensors.pop("shift").numpy(), scale, way, about.get("length", 1.0))
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
    aspect = Aspect(form, units, arch.likelihood)
    return Fitted(module.to(device).eval(), plan, aspect, labels, history, seconds, tuple(names))


def _checked_history(history: Any, seconds: Any) -> tuple[tuple[Event, ...], tuple[float, ...]]:
    """What happened in training and when, if it is told as ``TreeVAE.history_`` tells it."""
    if not isinstance(history, list) or not isinstance(seconds, list) or len(seconds) not in (0, len(history)):
        raise ValueError("the history and its seconds are not lists of the same length")
    return tuple(events.from_dict(entry) for entry in history), tuple(seconds)


def _checked_labels(labels: np.ndarray, n_leaves: int) -> np.ndarray:
    if (
        labels.ndim != 1
        or labels.dtype != np.int64
        or (labels.size and not 0 <= labels.min() <= labels.max() < n_leaves)
    ):
        raise ValueError(f"labels are not numbers of {n_leaves} clusters")
    return labels
