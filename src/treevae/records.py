"""A fitted model as a record: how it came about, what it is, and how it does on test samples."""

from __future__ import annotations

import json
import platform
from collections.abc import Callable, Mapping
from importlib.metadata import version
from typing import Any

import numpy as np
import torch
from sklearn.base import BaseEstimator

from . import __version__
from .data.dataset import DataSet
from .fitted import Fitted
from .model.elbo import TERMS
from .scores import compared, explained, likelihoods, mean_terms, node_table
from .source import source
from .storage.fingerprint import fingerprint
from .training.events import EpochEnded
from .tree import Tree

CPU = torch.device("cpu")
TOLD_ELSEWHERE = ("device", "verbose", "random_state")  # in a record, or of no effect on it


def record(
    model: Fitted, parameters: Mapping[str, Any], data: DataSet, seed: int, command: str, draws: int = 0
) -> dict[str, Any]:
    """All that is worth keeping of a model fitted on a data set's training samples.

    Estimates of log p(x) cost as many passes over the test samples as they take ``draws``; with 0 there are none.
    """
    leaves, nodes = model.predict(data.x_test), node_table(model, data.x_test)
    return {
        **record_of_density(model, parameters, data, seed, command, draws),
        "train_leaf_sizes": np.bincount(model.labels, minlength=len(model.tree.leaves)).tolist(),
        "nodes": nodes,
        **clustering(model.tree, leaves, data),
    }


def record_of_density(
    model: Fitted, parameters: Mapping[str, Any], data: DataSet, seed: int, command: str, draws: int = 0
) -> dict[str, Any]:
    """As :func:`record`, without tree and leaves: how a model came about, and how well it explains the test samples."""
    told = {
        **origin(parameters, data, seed, command, model.seconds[-1], model.device),
        "stages": stages(model),
        "n_weights": sum(value.numel() for value in model.module.parameters()),
        "elbo": mean_terms(model, data.x_test),
    }
    return told | ({"likelihood": likelihoods(model, data.x_test, draws)} if draws else {})


def record_of_scoring(model: Fitted, X: Any, draws: int, at: Callable[[float], None]) -> dict[str, Any]:
    """How well a model explains samples, of which the fingerprint is as the model sees them; and where it was asked."""
    return {
        "samples": fingerprint(model.encode(X)),
        "device": name_of(model.device),
        "versions": versions(),
        "source": source(),
        **explained(model, X, draws, at),
    }


def origin(
    parameters: Mapping[str, Any],
    data: DataSet,
    seed: int,
    command: str,
    seconds: float,
    device: torch.device = CPU,
) -> dict[str, Any]:
    """How a record came about."""
    return {
        **about_data(data),
        "seed": seed,
        "command": command,
        "parameters": dict(parameters),
        "device": name_of(device),
        "versions": versions(),
        "source": source(),
        "seconds": round(seconds, 3),
    }


def parameters_of(model: BaseEstimator) -> dict[str, Any]:
    """All that an estimator was told and that its record does not tell elsewhere, as JSON has it."""
    told = {name: value for name, value in model.get_params(deep=False).items() if name not in TOLD_ELSEWHERE}
    return {name: json.loads(one.to_json()) if isinstance(one, Tree) else one for name, one in told.items()}


def clustering(tree: Tree | None, leaves: np.ndarray, data: DataSet) -> dict[str, Any]:
    """A tree, where there is one, and how the leaves of test samples agree with what a data set knows about them."""
    return {"tree": None if tree is None else json.loads(tree.to_json())} | compared(tree, leaves, data)


def about_data(data: DataSet) -> dict[str, str]:
    """Which samples a record is of: the name of their set, in what they are not the published ones, fingerprints."""
    prints = {"train_samples": fingerprint(data.x_train), "test_samples": fingerprint(data.x_test)}
    return {"data": data.name, "note": data.note, **prints}


def stages(model: Fitted) -> list[dict[str, Any]]:
    """The stages of training in order: what, on how many samples, for how long, how it ended."""
    told: list[dict[str, Any]] = []
    began, ended = 0.0, 0.0
    for event, seconds in zip(model.history, model.seconds, strict=True):
        if isinstance(event, EpochEnded):
            if event.epoch == 1:
                told.append({})
                began = ended
            about = {name: getattr(event, name) for name in ("stage", "leaf", "epochs", "kl_weight", *TERMS, "samples")}
            if event.contrast_routers is not None:
                about |= {name: getattr(event, name) for name in ("contrast_bottom_up", "contrast_routers")}
            told[-1] = about | {"seconds": round(seconds - began, 3)}
            ended = seconds
    return told


def name_of(device: torch.device) -> str:
    """What a device is called."""
    return torch.cuda.get_device_name(device) if device.type == "cuda" else platform.machine()


def versions() -> dict[str, str]:
    """The versions that the numbers depend on."""
    libraries = {name: version(name) for name in ("torch", "numpy", "scipy", "scikit-learn")}
    return {"treevae": __version__, "python": platform.python_version(), **libraries}
