"""What a fit is given, made ready for it, or an error. The only place that knows in what types users give samples."""

from __future__ import annotations

import warnings
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import torch

from .data.arrays import InputForm, read, stand_in
from .data.aspect import Aspect
from .data.augment import AUGMENTATIONS
from .data.scaling import LOUD, variances_of
from .guides.guide import Guide
from .model.networks import Architecture
from .parameters import architecture, batch_rows, check_parameters, device_of, plain
from .starting import NOTHING, Beside, check_start, guides_of, neighbours_of, plan_of, start_of
from .storage.fingerprint import fingerprint
from .training.plan import Plan
from .training.views import Augment, Views, check_that_views_differ
from .tree import Tree

SAMPLES_AT_ONCE = 1 << 16  # that are compared with the first
MAY_CHANGE = ("device", "verbose", "random_state")  # when a fit goes on


@dataclass(frozen=True, eq=False)
class Prepared:
    """All that a fit needs to know of its samples and of what it is told about them."""

    kind: str  # of the model that is fitted
    parameters: Mapping[str, Any]  # a TreeVAE's, by name
    X: np.ndarray  # as a matrix, (samples, features), in the user's units
    names: tuple[str, ...]  # of the features, where X was a frame with string column names
    decides: Aspect  # what the bottom-up reads, and the tree is grown by
    arch: Architecture
    x: torch.Tensor  # as the model sees them
    tried: torch.Tensor | None  # views of the first samples, where they are augmented
    beside: Beside  # what was given beside X
    start: str  # how the tree begins

    @property
    def device(self) -> torch.device:
        """Where it is fitted."""
        return device_of(self.parameters["device"])

    @property
    def tree(self) -> Tree | None:
        """The tree that is trained as it is, if one is given."""
        return self.parameters["tree"]

    @property
    def augment(self) -> Augment | None:
        """What makes the views that a step sees."""
        return augmentation_of(self.parameters["augment"])

    @property
    def plan(self) -> Plan:
        """The stages of a tree that begins so."""
        n_samples, n_features = self.x.shape
        return plan_of(self.parameters, n_samples, n_features, self.start)

    def neighbours(self, x: torch.Tensor) -> torch.Tensor:
        """The rows of each sample's neighbours, searched where x is."""
        return neighbours_of(self.parameters, x, self.beside)

    def guides(self, x: torch.Tensor, neighbours: torch.Tensor | None, seed: int) -> Iterator[tuple[Guide, float]]:
        """The guides that a tree may begin with, each with what its groups say of those of neighbours, in nats."""
        return guides_of(self.parameters, x, neighbours, self.beside, seed)

    def identity(self, parameters: Mapping[str, Any] | None = None) -> dict[str, Any]:
        """What must not change when a fit goes on: model and parameters, the data, and what is done to them.

        The parameters are those of the model that is fitted, where it has others than a TreeVAE.
        """
        given = self.parameters if parameters is None else parameters
        kept = {name: plain(value) for name, value in given.items() if name not in (*MAY_CHANGE, "scale")}
        if self.decides.units.way not in ("none", "one"):  # the ways that there were before there was a choice
            kept["scale"] = self.decides.units.way
        data = {"data": fingerprint(self.X), "form": self.decides.form.to_dict()}
        identity = {"model": self.kind, "parameters": kept, **data, **self.beside.identity()}
        if callable(self.parameters["augment"]):  # it has no name that says what it does; what it does is
            assert self.tried is not None
            identity["augment"] = fingerprint(self.tried.cpu().numpy())
        return identity


def prepare(
    kind: str, parameters: Mapping[str, Any], X: Any, learnt_variance: bool = True, beside: Beside = NOTHING
) -> Prepared:
    """X made ready for a fit with a TreeVAE's parameters, by name; raises what would go wrong hours later.

    Parameters
    ----------
    kind : str
        What is fitted, as messages call it.
    learnt_variance
        Whether a Gaussian that is chosen for the data may have one; else sigma is 1.
    beside : Beside
        What comes beside X.
    """
    check_parameters(parameters)
    reader = stand_in(kind)
    matrix, form = read(reader, X, None, parameters["likelihood"].startswith("gaussian"))
    check_start(parameters, len(matrix), beside)
    arch = architecture(parameters, form, matrix)
    if arch.likelihood == "gaussian_learnt" and not learnt_variance:
        arch = replace(arch, likelihood="gaussian")
    decides = Aspect.of(form, arch.likelihood, matrix, parameters["scale"])
    x = decides.to_model(matrix)
    if all(bool((part == x[0]).all()) for part in x.split(SAMPLES_AT_ONCE)):
        raise ValueError(f"all {len(x)} samples of X are equal; there are no groups to find")
    tried = None if parameters["augment"] is None else _tried_views(parameters, x, form, arch.likelihood)
    names = tuple(getattr(reader, "feature_names_in_", ()))
    start = start_of(parameters, form, len(x), beside)
    return Prepared(kind, dict(parameters), matrix, names, decides, arch, x, tried, beside, start)


def augmentation_of(augment: str | Augment | None) -> Augment | None:
    """The function that makes views, given itself or its name; None where there is none."""
    return AUGMENTATIONS[augment] if isinstance(augment, str) else augment


def warn_of_other_units(prepared: Prepared, stacklevel: int) -> None:
    """Warn where one feature of vectors is all that a tree will see."""
    if prepared.decides.form.is_image or prepared.arch.likelihood != "gaussian_learnt":
        return
    if prepared.decides.units.way in ("feature", "unit"):
        return
    variances = variances_of(prepared.X)
    shares = variances / variances.sum()
    loud = int(shares.argmax())
    if shares[loud] > LOUD and np.count_nonzero(shares) > 2:
        name = repr(prepared.names[loud]) if prepared.names else loud
        warnings.warn(
            f"feature {name} has {shares[loud]:.1%} of the variance of X, so that a tree sees little else; where "
            "features have different units, set scale='feature', which divides each by its own spread; one that only "
            "numbers the samples is to be left out",
            stacklevel=stacklevel + 1,
        )


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
