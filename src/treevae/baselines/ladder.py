"""LadderVAE and VAE: TreeVAE without splits, on the same networks, engine and loop.

A LadderVAE (Sønderby et al., 2016) is a TreeVAE whose tree is one path, a VAE one whose tree is the root alone, with
the whole bottom-up below it. So both are fixed trees with a plan of their own, and nothing else.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import torch
from sklearn.base import BaseEstimator, ClassNamePrefixFeaturesOutMixin, TransformerMixin, clone
from sklearn.utils.validation import check_is_fitted

from ..estimator import SampleTags, TreeVAE
from ..model.module import TreeVAEModule
from ..model.networks import MOST_LAYERS, Architecture
from ..parameters import sizes_of_levels, whole_number
from ..preparing import batch_rows
from ..training.plan import Plan, Stage
from ..tree import Tree

GROWN = 0.7  # of the epochs; the rest fine-tunes at a KL weight of 1, as in the authors' baselines
WARM_UP = 200  # epochs in which the KL weight rises to 1, of the paper's schedule
DROP_EVERY = 100  # epochs of fine-tuning after which the learning rate is a tenth, of the paper's schedule
WITHOUT_SPLITS: dict[str, Any] = {  # not TreeVAE's defaults: these may change, and a fit goes on with the same only
    "contrastive_loss": "bottom_up",
    "n_init": 1,
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


class _Path(TreeVAE):
    """A TreeVAE with a path for a tree, trained as a ladder."""

    _schedule = 1000  # the paper's epochs

    def _plan(self, n_samples: int) -> Plan:
        scale = self.epochs / self._schedule
        grown = max(1, round(GROWN * self.epochs))
        rate = float(self.learning_rate)
        first = Stage("training", grown, 1 / (WARM_UP * scale), rate, drop_after=grown)
        tuned = Stage("final", max(1, self.epochs - grown), 0.0, rate, max(1, round(DROP_EVERY * scale)), kl_start=1.0)
        return Plan(
            first=first,
            subtree=first,  # never: nothing is split
            whole=None,
            final=tuned,
            n_leaves=1,
            batch_size=batch_rows(self.get_params(deep=False), n_samples),
            contrastive_weight=float(self.contrastive_weight),
            contrastive_loss=self.contrastive_loss,
        )


class _Root(_Path):
    """A TreeVAE whose tree is the root alone."""

    _schedule = 500


_Path.__name__, _Root.__name__ = "LadderVAE", "VAE"  # what scikit-learn's messages about samples call them


class LadderVAE(SampleTags, ClassNamePrefixFeaturesOutMixin, TransformerMixin, BaseEstimator):
    """A LadderVAE: latents one above the other, each with a prior given by the one above.

    Parameters
    ----------
    depth : int, default=5
        Steps between the latents, as TreeVAE's ``max_depth``: 5, the paper's, means six latents.
    latent_dim, hidden_dim, likelihood, network, layer_defaults, augment, batch_size, learning_rate, device, \
random_state, verbose
        As :class:`~treevae.TreeVAE`'s.
    contrastive_weight : float, default=0.0
        As :class:`~treevae.TreeVAE`'s; the loss looks at the bottom-up alone, for there are no routers.
    epochs : int, default=1000
        The paper's; other numbers keep its proportions.

    Attributes
    ----------
    model_ : TreeVAE
        The fitted model; its tree has one leaf.
    n_features_in_, feature_names_in_
        As :class:`~treevae.TreeVAE`'s.
    """

    def __init__(
        self,
        depth: int = 5,
        *,
        latent_dim: int | Sequence[int] = 8,
        hidden_dim: int | Sequence[int] = 128,
        likelihood: str = "auto",
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

    def fit(
        self, X: Any, y: Any = None, *, checkpoint: str | os.PathLike[str] | None = None, save_every: float = 30.0
    ) -> LadderVAE:
        """Train on X and return self; as :meth:`TreeVAE.fit`, ``y`` is ignored."""
        self.model_ = self._model().fit(X, checkpoint=checkpoint, save_every=save_every)
        return self

    def fit_seeds(
        self,
        X: Any,
        seeds: Iterable[int],
        *,
        checkpoint: str | os.PathLike[str] | None = None,
        save_every: float = 30.0,
    ) -> list[LadderVAE]:
        """One fitted model for each seed, trained side by side; as :meth:`TreeVAE.fit_seeds`."""
        models = self._model().fit_seeds(X, seeds, checkpoint=checkpoint, save_every=save_every)
        fitted = [clone(self).set_params(random_state=model.random_state) for model in models]
        for one, model in zip(fitted, models, strict=True):
            one.model_ = model
        return fitted

    def transform(self, X: Any) -> np.ndarray:
        """The posterior mean of the last latent, which the decoder reads: (n_samples, latent_dim)."""
        check_is_fitted(self)
        (leaf,) = self.model_.tree_.leaves
        return self.model_._ask(X, lambda x: self.model_.module_.embed(x, leaf))

    def score_samples(self, X: Any) -> np.ndarray:
        """The ELBO of each sample in nats; as :meth:`TreeVAE.score_samples`."""
        check_is_fitted(self)
        return self.model_.score_samples(X)

    def score(self, X: Any, y: Any = None) -> float:
        """The mean ELBO of the samples in nats; higher is better."""
        check_is_fitted(self)
        return self.model_.score(X)

    def log_likelihood(self, X: Any, draws: int = 1000, bound: str = "iwae") -> np.ndarray:
        """An estimate of log p(x) of each sample in nats; as :meth:`TreeVAE.log_likelihood`."""
        check_is_fitted(self)
        return self.model_.log_likelihood(X, draws, bound)

    def reconstruct(self, X: Any) -> np.ndarray:
        """The model's idea of each sample, in the form and units of X."""
        check_is_fitted(self)
        return self.model_.reconstruct(X)

    def sample(self, n: int = 1, random_state: Any = None) -> np.ndarray:
        """New samples, in the form and units of X."""
        check_is_fitted(self)
        return self.model_.sample(n, random_state=random_state)

    @property
    def n_features_in_(self) -> int:
        """Numbers in a sample."""
        return self.model_.n_features_in_

    @property
    def feature_names_in_(self) -> np.ndarray:
        """Names of the features, where X was a frame with string column names."""
        return self.model_.feature_names_in_

    @property
    def _n_features_out(self) -> int:
        (leaf,) = self.model_.tree_.leaves
        return self.model_.module_.arch.latent_dims[self.model_.tree_.depth(leaf)]

    def _model(self) -> _Path:
        """The model to fit."""
        depth = whole_number("depth", self.depth, 1, MOST_LAYERS - 1, "; use VAE for one latent")
        return _Path(tree=path(depth), **self._shared())

    def _shared(self) -> dict[str, Any]:
        """The parameters of the model that do not say which tree it has, once the sizes are checked for this depth."""
        given = self.get_params(deep=False)
        sizes_of_levels(given, "depth")
        return {"max_depth": given.pop("depth"), **WITHOUT_SPLITS, **given}


class VAE(LadderVAE):
    """A VAE: one latent between an encoder and a decoder.

    Parameters
    ----------
    depth : int, default=5
        Steps of the bottom-up between the encoder and the latent, which is where TreeVAE's root and the first latent of
        a LadderVAE so deep stand; 0 for none.
    latent_dim, hidden_dim, likelihood, network, layer_defaults, augment, contrastive_weight, batch_size, \
learning_rate, device, random_state, verbose
        As :class:`LadderVAE`'s.
    epochs : int, default=500
        The paper's; other numbers keep its proportions.

    Attributes
    ----------
    model_ : TreeVAE
        The fitted model; its tree is the root alone.
    n_features_in_, feature_names_in_
        As :class:`~treevae.TreeVAE`'s.
    """

    def __init__(
        self,
        depth: int = 5,
        *,
        latent_dim: int | Sequence[int] = 8,
        hidden_dim: int | Sequence[int] = 128,
        likelihood: str = "auto",
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

    def _model(self) -> _Path:
        """The model to fit."""
        whole_number("depth", self.depth, 0, MOST_LAYERS - 1)
        return _Root(tree=Tree(), **self._shared())
