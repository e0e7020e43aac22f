"""LadderVAE and VAE: TreeVAE without splits, on the same networks, engine and loop.

A LadderVAE (Sønderby et al., 2016) is a TreeVAE whose tree is one path, a VAE one whose tree is the root alone, with
the whole bottom-up below it. So both are fixed trees with a plan of their own, and nothing else.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import torch

from ..base import TreeEstimator
from ..estimator import TreeVAE
from ..model.module import TreeVAEModule
from ..model.networks import MOST_LAYERS, Architecture
from ..parameters import batch_rows, contrast_of, sizes_of_levels, whole_number
from ..preparing import Prepared
from ..training.plan import Plan, Stage
from ..tree import Tree

GROWN = 0.7  # of the epochs; the rest fine-tunes at a KL weight of 1, as in the authors' baselines
WARM_UP = 200  # epochs in which the KL weight rises to 1, of the paper's schedule
DROP_EVERY = 100  # epochs of fine-tuning after which the learning rate is a tenth, of the paper's schedule
WITHOUT_SPLITS: dict[str, Any] = {  # not TreeVAE's defaults: these may change, and a fit goes on with the same only
    "contrastive_loss": "bottom_up",
    "leaf_rule": "samples",
    "n_init": 1,
    "start": "splits",
    "neighbours": 0,
    "n_leaves": 10,
    "router_layers": 2,
    "transformation_layers": 1,
}


def path(depth: int) -> Tree:
    """A tree of one leaf, so many edges below the root."""
    tree, end = Tree(), 0
    for _ in range(depth):
        tree = tree.split(end)
        end, other = tree.children(end)
        tree = tree.prune(other)
    return tree


def matched_hidden_dim(arch: Architecture, tree: Tree, depth: int) -> int:
    """The width of hidden layers at which a LadderVAE so deep has about as many weights as a TreeVAE with this tree."""

    def weights(arch: Architecture, tree: Tree) -> int:
        return sum(value.numel() for value in TreeVAEModule(arch, [tree], torch.Generator()).parameters())

    def ladder(hidden: int) -> int:
        latents = (arch.latent_dims[0],) * (depth + 1)
        return weights(replace(arch, latent_dims=latents, hidden_dims=(hidden,) * depth), path(depth))

    wanted, low, high = weights(arch, tree), 1, 2
    while ladder(high) < wanted:
        high *= 2
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (middle, high) if ladder(middle) < wanted else (low, middle)
    return high


def ladder_plan(parameters: Mapping[str, Any], schedule: int, n_samples: int) -> Plan:
    """The stages of training a path on so many samples; ``schedule`` has the paper's epochs."""
    epochs, rate = parameters["epochs"], float(parameters["learning_rate"])
    scale, grown, contrast = epochs / schedule, max(1, round(GROWN * epochs)), contrast_of(parameters)
    terms = () if contrast is None else (contrast,)
    first = Stage("training", grown, 1 / (WARM_UP * scale), rate, drop_after=grown, terms=terms)
    drop_after = max(1, round(DROP_EVERY * scale))
    final = Stage("final", max(1, epochs - grown), 0.0, rate, drop_after, kl_start=1.0, terms=terms)
    return Plan(first, None, None, final, n_leaves=1, batch_size=batch_rows(parameters, n_samples))


class LadderVAE(TreeEstimator):
    """A LadderVAE: latents one above the other, each with a prior given by the one above.

    Parameters
    ----------
    depth : int, default=5
        Steps between the latents, as TreeVAE's ``max_depth``: 5, the paper's, means six latents.
    latent_dim, hidden_dim, likelihood, scale, network, layer_defaults, augment, batch_size, learning_rate, device, \
random_state, verbose
        As :class:`~treevae.TreeVAE`'s.
    contrastive_weight : float, default=0.0
        As :class:`~treevae.TreeVAE`'s; the loss looks at the bottom-up alone, for there are no routers.
    epochs : int, default=1000
        The paper's; other numbers keep its proportions.

    Attributes
    ----------
    fitted_ : Fitted
        The fitted model; its tree has one leaf.
    scale_, n_features_in_, feature_names_in_
        As :class:`~treevae.TreeVAE`'s.
    """

    _schedule = 1000  # the paper's epochs

    def __init__(
        self,
        depth: int = 5,
        *,
        latent_dim: int | Sequence[int] = 8,
        hidden_dim: int | Sequence[int] = 128,
        likelihood: str = "auto",
        scale: str = "auto",
        network: str = "auto",
        layer_defaults: str = "torch",
        augment: Any = None,
        contrastive_weight: float = 0.0,
        epochs: int = 1000,
        batch_size: int = 256,
        learning_rate: float = 1e-3,
        device: str = "auto",
        random_state: Any = None,
        verbose: bool = False,
    ) -> None:
        self.depth = depth
        self.latent_dim = latent_dim
        self.hidden_dim = hidden_dim
        self.likelihood = likelihood
        self.scale = scale
        self.network = network
        self.layer_defaults = layer_defaults
        self.augment = augment
        self.contrastive_weight = contrastive_weight
        self.epochs = epochs
        self.batch_size = batch_size
        self.learning_rate = learning_rate
        self.device = device
        self.random_state = random_state
        self.verbose = verbose

    def transform(self, X: Any) -> np.ndarray:
        """The posterior mean of the last latent, which the decoder reads: (n_samples, latent_dim)."""
        model = self._model()
        (leaf,) = model.tree.leaves
        return model.embed(X, leaf)

    def reconstruct(self, X: Any) -> np.ndarray:
        """The model's idea of each sample, in the form and units of X."""
        return self._model().reconstruct(X)

    def sample(self, n: int = 1, random_state: Any = None) -> np.ndarray:
        """New samples, in the form and units of X."""
        return self._model().sample(n, random_state=self._chance(random_state))

    @property
    def _n_features_out(self) -> int:
        tree = self.fitted_.tree
        return self.fitted_.module.arch.latent_dims[tree.depth(tree.leaves[0])]

    def _tree(self) -> Tree:
        """The tree to train."""
        return path(whole_number("depth", self.depth, 1, MOST_LAYERS - 1, "; use VAE for one latent"))

    def _as_for_treevae(self) -> dict[str, Any]:
        """A TreeVAE's parameters for this tree, once the sizes are checked for its depth."""
        tree, given = self._tree(), self.get_params(deep=False)
        sizes_of_levels(given, "depth")
        whole_number("epochs", given["epochs"])  # a number here, not "auto"
        given |= {"max_depth": given.pop("depth"), "tree": tree, **WITHOUT_SPLITS}
        return TreeVAE(**given).get_params(deep=False)

    def _plan(self, prepared: Prepared) -> Plan:
        return ladder_plan(prepared.parameters, self._schedule, len(prepared.x))


class VAE(LadderVAE):
    """A VAE: one latent between an encoder and a decoder.

    Parameters
    ----------
    depth : int, default=5
        Steps of the bottom-up between the encoder and the latent, which is where TreeVAE's root and the first latent of
        a LadderVAE so deep stand; 0 for none.
    latent_dim, hidden_dim, likelihood, scale, network, layer_defaults, augment, contrastive_weight, batch_size, \
learning_rate, device, random_state, verbose
        As :class:`LadderVAE`'s.
    epochs : int, default=500
        The paper's; other numbers keep its proportions.

    Attributes
    ----------
    fitted_ : Fitted
        The fitted model; its tree is the root alone.
    scale_, n_features_in_, feature_names_in_
        As :class:`~treevae.TreeVAE`'s.
    """

    _schedule = 500  # the paper's epochs

    def __init__(
        self,
        depth: int = 5,
        *,
        latent_dim: int | Sequence[int] = 8,
        hidden_dim: int | Sequence[int] = 128,
        likelihood: str = "auto",
        scale: str = "auto",
        network: str = "auto",
        layer_defaults: str = "torch",
        augment: Any = None,
        contrastive_weight: float = 0.0,
        epochs: int = 500,
        batch_size: int = 256,
        learning_rate: float = 1e-3,
        device: str = "auto",
        random_state: Any = None,
        verbose: bool = False,
    ) -> None:
        super().__init__(
            depth,
            latent_dim=latent_dim,
            hidden_dim=hidden_dim,
            likelihood=likelihood,
            scale=scale,
            network=network,
            layer_defaults=layer_defaults,
            augment=augment,
            contrastive_weight=contrastive_weight,
            epochs=epochs,
            batch_size=batch_size,
            learning_rate=learning_rate,
            device=device,
            random_state=random_state,
            verbose=verbose,
        )

    def _tree(self) -> Tree:
        """The tree to train."""
        whole_number("depth", self.depth, 0, MOST_LAYERS - 1)
        return Tree()
