"""What a fit is given, made ready for it: samples as a model sees them, their form, networks and units; or an error."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import torch

from .data.arrays import InputForm, read
from .data.augment import AUGMENTATIONS
from .data.units import Units
from .model.networks import Architecture
from .parameters import architecture, check_parameters, device_of
from .saving import plain
from .storage.fingerprint import fingerprint
from .training.views import Augment, Views, check_that_views_differ

SAMPLES_AT_ONCE = 1 << 16  # that are compared with the first
MAY_CHANGE = ("device", "verbose", "random_state")  # when a fit goes on


@dataclass(frozen=True)
class Prepared:
    """All that a fit needs to know of its samples."""

    X: np.ndarray  # as a matrix, (samples, features), in the user's units
    form: InputForm
    arch: Architecture
    units: Units
    x: torch.Tensor  # as the model sees them
    views: torch.Tensor | None  # of the first samples, where they are augmented
    kind: str  # of the model that is fitted

    def identity(self, parameters: Mapping[str, Any]) -> dict[str, Any]:
        """What must not change when a fit goes on: model and parameters, the data, and what is done to them."""
        kept = {name: plain(value) for name, value in parameters.items() if name not in MAY_CHANGE}
        data = {"data": fingerprint(self.X), "form": self.form.to_dict()}
        identity = {"model": self.kind, "parameters": kept, **data}
        if callable(parameters["augment"]):  # it has no name that says what it does; what it does is
            assert self.views is not None
            identity["augment"] = fingerprint(self.views.cpu().numpy())
        return identity


def prepare(reader: Any, parameters: Mapping[str, Any], X: Any, learnt_variance: bool = True) -> Prepared:
    """X made ready for a fit with a TreeVAE's parameters, by name; raises what would go wrong hours later.

    Parameters
    ----------
    reader : estimator
        Of the kind that is fitted; learns the number and the names of the features.
    learnt_variance
        Whether a Gaussian that is chosen for the data may have one; else sigma is 1.
    """
    check_parameters(parameters)
    X, form = read(reader, X, None, parameters["likelihood"].startswith("gaussian"))
    arch = architecture(parameters, form, X)
    if arch.likelihood == "gaussian_learnt" and not learnt_variance:
        arch = replace(arch, likelihood="gaussian")
    units = Units.of(form, arch.likelihood, X)
    x = units.to_model(X, arch.likelihood)
    if all(bool((part == x[0]).all()) for part in x.split(SAMPLES_AT_ONCE)):
        raise ValueError(f"all {len(x)} samples of X are equal; there are no groups to find")
    views = None if parameters["augment"] is None else _tried_views(parameters, x, form, arch.likelihood)
    return Prepared(X, form, arch, units, x, views, type(reader).__name__)


def augmentation_of(augment: str | Augment | None) -> Augment | None:
    """The function that makes views, given itself or its name; None where there is none."""
    return AUGMENTATIONS[augment] if isinstance(augment, str) else augment


def batch_rows(parameters: Mapping[str, Any], n_samples: int) -> int:
    """Rows in a training step, so few that small data can be split too."""
    least = 2 if parameters["contrastive_weight"] == 0 else 4  # two samples, in two views each
    return max(least, min(int(parameters["batch_size"]), n_samples // 10))


def _tried_views(parameters: Mapping[str, Any], x: torch.Tensor, form: InputForm, likelihood: str) -> torch.Tensor:
    """Views of the first samples, on the training device, if training can use them."""
    given = parameters["augment"]
    augment = augmentation_of(given)
    assert augment is not None
    if isinstance(given, str):
        if not form.is_image:
            raise ValueError(f"augment={given!r} needs images; X has {form.n_features} features")
        if x.min() < 0 or x.max() > 1:
            raise ValueError(
                f"augment={given!r} needs pixels in [0, 1] or uint8; X ranges from {float(x.min()):g} to "
                f"{float(x.max()):g}"
            )
    first = x[None, : batch_rows(parameters, len(x))].to(device_of(parameters["device"]))
    views = Views(augment, form.shape, 1)
    views.draw(first, [0])
    low, high = float(views.held.min()), float(views.held.max())
    if not np.isfinite(low + high):
        raise ValueError("augment returned NaN or infinity for the first samples of X")
    if likelihood == "bernoulli" and (low < 0 or high > 1):
        raise ValueError(
            f"augment returned values from {low:g} to {high:g}, but likelihood='bernoulli' needs them in [0, 1]; "
            "clamp them, or fit with another likelihood"
        )
    if parameters["contrastive_weight"] > 0:
        check_that_views_differ(augment, form.shape, first)
    return views.held
