"""What TreeVAE's parameters may be, and which networks they ask for."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from numbers import Integral, Real
from typing import Any

import numpy as np
import torch
from sklearn.utils import check_random_state

from .data.arrays import SMALLEST_SIDE, InputForm
from .data.augment import AUGMENTATIONS
from .data.units import WAYS
from .model.contrastive import VARIANTS
from .model.likelihoods import LIKELIHOODS
from .model.networks import DEEP_CNN_SIZE, IMAGE_NETWORKS, MOST_LAYERS, NETWORKS, Architecture
from .model.stack import LAYER_DEFAULTS
from .training.choosing import LEAF_RULES
from .training.terms import Contrast
from .tree import Tree

LARGEST_SEED = 2**32 - 1  # that NumPy takes
COUNTS = ("n_leaves", "transformation_layers", "router_layers", "batch_size")
COUNTS_OR_AUTO = ("n_init", "epochs")
UNSCALED = ("auto", "none")  # what scale may be where values have their range
CHOICES = {
    "likelihood": ("auto", *LIKELIHOODS),
    "scale": ("auto", *WAYS),
    "network": ("auto", *NETWORKS),
    "layer_defaults": tuple(LAYER_DEFAULTS),
    "start": ("auto", "splits", "guide"),
    "leaf_rule": tuple(LEAF_RULES),
    "contrastive_loss": VARIANTS,
}


def check_parameters(given: Mapping[str, Any]) -> None:
    """Raise unless the parameters, by name, can be used whatever the samples are."""
    device_of(given["device"])
    tree, max_depth = given["tree"], given["max_depth"]
    if tree is None or max_depth != 0:  # a given tree may be the root alone
        whole_number("max_depth", max_depth)
    if max_depth >= MOST_LAYERS:
        raise ValueError(f"max_depth={max_depth} must be less than {MOST_LAYERS}")
    for name in COUNTS:
        whole_number(name, given[name])
    for name in COUNTS_OR_AUTO:
        if not (isinstance(given[name], str) and given[name] == "auto"):
            whole_number(name, given[name], more=", or 'auto'")
    whole_number("neighbours", given["neighbours"], 0)
    number("learning_rate", given["learning_rate"])
    for name, allowed in CHOICES.items():
        if given[name] not in allowed:
            raise ValueError(f"{name}={given[name]!r}; allowed are {', '.join(map(repr, allowed))}")
    if given["likelihood"] == "bernoulli" and given["scale"] not in UNSCALED:
        raise ValueError(
            f"scale={given['scale']!r} moves values out of [0, 1], where likelihood='bernoulli' needs them; leave "
            "scale at 'auto', or set likelihood='gaussian_learnt'"
        )
    _check_seed(given["random_state"])
    _check_augmentation(given["augment"], given["contrastive_weight"], given["batch_size"])
    _check_tree(tree, max_depth, given["n_leaves"])
    if given["batch_size"] < 2:
        raise ValueError(f"batch_size={given['batch_size']} must be at least 2: batch norm needs two samples")


def _check_seed(random_state: Any) -> None:
    if isinstance(random_state, Integral) and not 0 <= int(random_state) <= LARGEST_SEED:
        raise ValueError(f"random_state={random_state} must be between 0 and {LARGEST_SEED}")
    try:
        check_random_state(random_state)
    except ValueError as error:
        said = repr(random_state)[:80]
        raise ValueError(f"random_state={said} must be a whole number, a NumPy RandomState or None") from error


def _check_augmentation(augment: Any, weight: float, batch_size: int) -> None:
    if not (augment is None or callable(augment) or (isinstance(augment, str) and augment in AUGMENTATIONS)):
        raise ValueError(
            f"augment={augment!r}; allowed are {', '.join(map(repr, AUGMENTATIONS))}, a function of a batch, or None"
        )
    number("contrastive_weight", weight, zero=True)
    if weight > 0 and augment is None:
        raise ValueError(
            f"contrastive_weight={weight} compares augmented versions of each sample, but augment is None; set "
            "augment (anew in a model that was saved, if it was a function of yours), or contrastive_weight=0"
        )
    if weight > 0 and batch_size < 4:
        raise ValueError(f"batch_size={batch_size} must be at least 4 with a contrastive loss: two samples")


def _check_tree(tree: Any, max_depth: int, n_leaves: int) -> None:
    """Raise unless a given tree, or one that grows to so many leaves, fits into the depth."""
    if tree is not None:
        if not isinstance(tree, Tree):
            raise ValueError(f"tree={tree!r} must be a treevae.Tree or None")
        if tree.height > max_depth:
            raise ValueError(
                f"tree has height {tree.height}, but max_depth={max_depth}; raise max_depth to at least the height"
            )
    elif not 2 <= n_leaves <= 2**max_depth:
        raise ValueError(
            f"n_leaves={n_leaves} does not fit: a tree has at least 2 leaves, and with max_depth={max_depth} at most "
            f"{2**max_depth}; raise max_depth for more"
        )


def check_save_every(seconds: Any) -> None:
    """Raise if that is no time between states of a fit."""
    if not (isinstance(seconds, Real) and float(seconds) >= 0):
        raise ValueError(f"save_every={seconds!r} must be a number of seconds, 0 or more")


def device_of(name: Any) -> torch.device:
    """The device of that name; "auto" is a CUDA GPU if there is one. Raises if there is no such device here."""
    device = ("cuda" if torch.cuda.is_available() else "cpu") if name == "auto" else name
    try:
        return torch.empty(0, device=device).device
    except (RuntimeError, AssertionError, TypeError) as error:  # an unknown name; a torch built without it; no name
        reason = str(error).splitlines()[0]
        raise ValueError(f"device={name!r} cannot be used: {reason}. Use 'auto' or 'cpu'") from error


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


def batch_rows(given: Mapping[str, Any], n_samples: int) -> int:
    """Rows in a training step, so few that small data can be split too."""
    least = 2 if given["contrastive_weight"] == 0 else 4  # two samples, in two views each
    return max(least, min(int(given["batch_size"]), n_samples // 10))


def contrast_of(given: Mapping[str, Any]) -> Contrast | None:
    """The contrastive loss that is asked for, if it counts."""
    weight = float(given["contrastive_weight"])
    return Contrast(given["contrastive_loss"], weight) if weight > 0 else None


def architecture(given: Mapping[str, Any], form: InputForm, X: np.ndarray) -> Architecture:
    """The networks' shapes for this data."""
    likelihood, network = given["likelihood"], given["network"]
    scaled = given["scale"] not in UNSCALED
    if form.is_image and scaled:
        raise ValueError(
            f"scale={given['scale']!r} is for vectors, and X holds images, whose pixels keep their range; leave scale "
            "at 'auto', or give the pixels as vectors, (n, features)"
        )
    if likelihood == "auto":
        in_unit = X.min() >= 0 and X.max() <= 1
        if form.is_image:
            likelihood = "bernoulli" if form.shape[0] == 1 else "gaussian"
        else:
            likelihood = "bernoulli" if in_unit and not scaled else "gaussian_learnt"
    if network == "auto":
        network = "cnn" if form.is_image else "mlp"
    if network in IMAGE_NETWORKS:
        _check_images(network, form, X)
    return Architecture(
        form.shape,
        network,
        likelihood,
        *sizes_of_levels(given, "max_depth"),
        int(given["transformation_layers"]),
        int(given["router_layers"]),
        _n_projections(given),
        given["layer_defaults"],
    )


def _check_images(network: str, form: InputForm, X: np.ndarray) -> None:
    """Raise unless the samples are images that this network takes."""
    if not form.is_image:
        raise ValueError(f"network={network!r} needs images, (n, h, w) or with channels; X has shape {X.shape}")
    if min(form.shape[1:]) < SMALLEST_SIDE:
        raise ValueError(
            f"network={network!r} needs images of at least {SMALLEST_SIDE} pixels a side, X has images of "
            f"shape {form.user_shape}; use network='mlp'"
        )
    if network == "deep_cnn" and form.shape[1:] != DEEP_CNN_SIZE:
        raise ValueError(
            f"network='deep_cnn' needs images of 28 x 28 pixels, X has images of shape {form.user_shape}; "
            "resize them, or use network='cnn' or 'resnet'"
        )


def _n_projections(given: Mapping[str, Any]) -> int:
    """How many d, from the deepest on, the contrastive loss looks at."""
    if given["contrastive_weight"] == 0:
        return 0
    all_of_them = given["max_depth"] + 1
    return {"both": all_of_them, "bottom_up": all_of_them, "encoder": 1}.get(given["contrastive_loss"], 0)


def sizes_of_levels(given: Mapping[str, Any], depth: str) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """Sizes of the latents and of the hidden layers, from the root down; ``depth`` names the parameter that has it."""
    steps = given[depth]
    latents = _per_level("latent_dim", given["latent_dim"], steps + 1, f"{depth}={steps}")
    return latents, _per_level("hidden_dim", given["hidden_dim"], steps, f"{depth}={steps}")


def _per_level(name: str, value: int | Sequence[int], n: int, depth: str) -> tuple[int, ...]:
    sizes = (whole_number(name, value),) * n if np.ndim(value) == 0 else tuple(whole_number(name, v) for v in value)  # type: ignore[union-attr]
    if len(sizes) != n:
        raise ValueError(f"{name}={value!r} has {len(sizes)} sizes; give one number, or {n} of them for {depth}")
    return sizes


def whole_number(name: str, value: Any, least: int = 1, most: int | None = None, more: str = "") -> int:
    """The value, if it is a whole number, and no boolean, within these bounds; ``more`` ends the error's sentence."""
    whole = isinstance(value, Integral) and not isinstance(value, bool)
    if not whole or value < least or (most is not None and value > most):
        bounds = f"of at least {least}" if most is None else f"from {least} to {most}"
        raise ValueError(f"{name}={value!r} must be a whole number {bounds}{more}")
    return int(value)


def number(name: str, value: Any, zero: bool = False) -> float:
    """The value, if it is a finite number, and no boolean, above 0, or 0 where that is allowed."""
    real = isinstance(value, Real) and not isinstance(value, bool)
    if not real or not (0 < value < np.inf or (zero and value == 0)):
        raise ValueError(f"{name}={value!r} must be a {'number, 0 or more' if zero else 'positive number'}")
    return float(value)
