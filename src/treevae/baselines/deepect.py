"""DeepECT, the Deep Embedded Cluster Tree, in scikit-learn's words; embedded_tree.py has the method."""

from __future__ import annotations

import warnings
from functools import partial
from typing import Any

import numpy as np
import torch
from sklearn.base import BaseEstimator, ClassNamePrefixFeaturesOutMixin, ClusterMixin, TransformerMixin
from sklearn.exceptions import ConvergenceWarning
from sklearn.utils.validation import check_is_fitted

from ..base import SampleTags
from ..data.arrays import learn
from ..errors import NoTreeError
from ..estimator import TreeVAE
from ..fitting import Fitting, Folder, Seeds
from ..listening import Callback, Listener
from ..parameters import check_save_every, number, whole_number
from ..preparing import prepare
from ..training.adam import give_back
from ..training.plan import Stage
from ..training.samples import LIGHT_CHUNK, Samples, over
from ..training.views import Augment
from ..tree import Tree
from .autoencoder import nearest
from .embedded_tree import EmbeddedGrowth, Schedule

LIKELIHOODS = ("auto", "bernoulli", "gaussian")


class DeepECT(SampleTags, ClassNamePrefixFeaturesOutMixin, TransformerMixin, ClusterMixin, BaseEstimator):
    """Hierarchical clustering of the embedding of an autoencoder, which is trained along with the tree.

    The leaf with the largest sum of squared distances from its centre is split by 2-means, again and again; leaves
    that get no samples any more are pruned. A sample belongs to the leaf with the nearest centre. Numbers called the
    original's are those that public implementations agree on.

    Parameters
    ----------
    n_clusters : int, default=10
        Leaves to grow to. The tree may end with fewer: when epochs are too few, or when leaves die.
    latent_dim : int, default=10
        Size of the embedding; 10 is the original's.
    network : {"auto", "mlp", "deep_mlp", "cnn", "deep_cnn", "resnet"}, default="auto"
        Encoder and decoder, those of :class:`~treevae.TreeVAE`. The original has a larger MLP, 500-500-2000.
    likelihood : {"auto", "bernoulli", "gaussian"}, default="auto"
        How a reconstruction is judged: "bernoulli" for values in [0, 1], "gaussian" by half the squared error, which
        is closest to the original. "auto" takes "bernoulli" for grey images and for vectors in [0, 1].
    augment : str or callable, default=None
        Show every step an augmented version of each sample too, which counts as much and belongs to the leaf of the
        sample itself; the original's extension. As in :class:`~treevae.TreeVAE`.
    pretrain_epochs : int, default=50
        Epochs of the autoencoder alone; 50 is ClustPy's number.
    epochs : int, default=200
        Epochs of clustering. With ``split_every=2`` this is ClustPy's schedule and, on 70,000 samples, the original's
        50,000 steps with a split every 500.
    split_every : float, default=2
        Epochs between splits, below 1 for several before an epoch; a tree of k leaves needs ``split_every * (k - 2)``
        epochs and more to settle.
    prune_below : float, default=0.1
        A leaf whose weight falls below this is dead; from a weight w that takes log2(w / 0.1) steps without a sample.
    batch_size : int, default=256
        Samples in a step, the original's; never more than there are.
    learning_rate : float, default=1e-4
        Of Adam while clustering, the original's.
    pretrain_learning_rate : float, default=1e-3
        Of Adam in pre-training, ClustPy's.
    device : str, default="auto"
        "auto" takes a CUDA GPU if there is one, else the CPU; or any name torch knows.
    random_state : int, RandomState instance or None, default=None
        Seed of everything. The same seed gives, on the same machine's CPU, the same tree and labels to the bit.
    verbose : bool, default=False
        Show a progress bar.

    Attributes
    ----------
    tree_ : Tree
        The grown tree; ``tree_.leaves[k]`` is cluster ``k``.
    labels_ : ndarray of shape (n_samples,)
        The cluster of each training sample.
    centres_ : ndarray of shape (n_leaves, latent_dim)
        Of each cluster, in the space of :meth:`transform`.
    history_ : list of dict
        Ends of epochs with the means of the losses, chosen leaves, leaves that died; the key "event" says which.
    seconds_ : list of float
        When each entry of ``history_`` was made, in seconds of fitting.
    module_ : Autoencoder
        The torch module.
    n_features_in_, feature_names_in_
        As :class:`~treevae.TreeVAE`'s.
    """

    def __init__(
        self,
        n_clusters: int = 10,
        *,
        latent_dim: int = 10,
        network: str = "auto",
        likelihood: str = "auto",
        augment: str | Augment | None = None,
        pretrain_epochs: int = 50,
        epochs: int = 200,
        split_every: float = 2,
        prune_below: float = 0.1,
        batch_size: int = 256,
        learning_rate: float = 1e-4,
        pretrain_learning_rate: float = 1e-3,
        device: str = "auto",
        random_state: Any = None,
        verbose: bool = False,
    ) -> None:
        self.n_clusters = n_clusters
        self.latent_dim = latent_dim
        self.network = network
        self.likelihood = likelihood
        self.augment = augment
        self.pretrain_epochs = pretrain_epochs
        self.epochs = epochs
        self.split_every = split_every
        self.prune_below = prune_below
        self.batch_size = batch_size
        self.learning_rate = learning_rate
        self.pretrain_learning_rate = pretrain_learning_rate
        self.device = device
        self.random_state = random_state
        self.verbose = verbose

    def fit(
        self,
        X: Any,
        y: Any = None,
        *,
        checkpoint: Folder | None = None,
        save_every: float = 30.0,
        callback: Callback | None = None,
    ) -> DeepECT:
        """Train the autoencoder, grow the tree on X and return self; as :meth:`TreeVAE.fit`, ``y`` is ignored."""
        check_save_every(save_every)
        prepared = prepare(type(self).__name__, self._as_for_treevae(), X, learnt_variance=False)
        arch, listener = prepared.arch, Listener(self.verbose, callback)
        samples = Samples(prepared.x, prepared.device, largest=arch.largest_activation)
        make = partial(EmbeddedGrowth, arch, samples, self._schedule(), prepared.augment)
        identity = {} if checkpoint is None else prepared.identity(self.get_params(deep=False))
        fitting = Fitting(make, Seeds.of([self.random_state]), identity, listener)
        fitting.run(checkpoint, save_every)

        growth = fitting.runs
        assert growth is not None
        module, leaves = growth.module, growth.module.leaves
        if not listener.wants_more and len(leaves) == 1 < self.n_clusters:
            raise NoTreeError("callback ended the fit before there was a tree; let it wait for the first LeafChosen")
        give_back(module)
        self._aspect, self.module_ = prepared.decides, module.eval()
        (history,), (self.seconds_,) = listener.histories, listener.seconds
        self.history_ = [event.to_dict() for event in history]
        self.tree_: Tree = leaves.tree
        self.centres_: np.ndarray = leaves.in_order(leaves.centres).cpu().numpy()
        self.labels_: np.ndarray = growth.labels().cpu().numpy()
        learn(self, prepared.decides.n_features, prepared.names)
        if listener.wants_more and len(self.tree_.leaves) < self.n_clusters:
            warnings.warn(
                f"leaves in the tree: {len(self.tree_.leaves)}, fewer than n_clusters={self.n_clusters}: there were "
                "too few epochs to split, or leaves were pruned. More epochs or a smaller split_every can give more",
                ConvergenceWarning,
                stacklevel=2,
            )
        return self

    def predict(self, X: Any) -> np.ndarray:
        """The cluster of each sample: the leaf with the nearest centre, numbered from left to right."""
        z = torch.from_numpy(self.transform(X))
        return nearest(z, torch.from_numpy(self.centres_)).numpy()

    def transform(self, X: Any) -> np.ndarray:
        """The embedding of each sample, (n_samples, latent_dim)."""
        check_is_fitted(self)
        names = getattr(self, "feature_names_in_", ())
        x = self._aspect.to_model(self._aspect.read(X, type(self).__name__, names))
        samples = Samples(x, self.module_.run_of.device)
        return over(self.module_, samples, self.module_.embed, LIGHT_CHUNK).cpu().numpy()

    def _as_for_treevae(self) -> dict[str, Any]:
        """A TreeVAE's parameters, these where they have the same name and meaning, once the others are checked."""
        like = TreeVAE(
            max_depth=1,
            n_leaves=2,
            latent_dim=self.latent_dim,
            network=self.network,
            likelihood=self.likelihood,
            augment=self.augment,
            epochs=self.epochs,
            batch_size=self.batch_size,
            learning_rate=self.learning_rate,
            device=self.device,
        ).get_params(deep=False)
        for name, least in (("n_clusters", 1), ("latent_dim", 1), ("pretrain_epochs", 0)):
            whole_number(name, getattr(self, name), least)
        for name in ("split_every", "prune_below", "pretrain_learning_rate"):
            number(name, getattr(self, name))
        if self.likelihood not in LIKELIHOODS:
            raise ValueError(f"likelihood={self.likelihood!r}; allowed are {', '.join(map(repr, LIKELIHOODS))}")
        return like

    def _schedule(self) -> Schedule:
        def stage(name: str, epochs: int, rate: float) -> Stage:
            drop_after = max(1, int(epochs))  # never
            return Stage(name, int(epochs), 0.0, float(rate), drop_after, weight_decay=0.0)

        return Schedule(
            stage("pre-training", self.pretrain_epochs, self.pretrain_learning_rate),
            stage("clustering", self.epochs, self.learning_rate),
            int(self.n_clusters),
            float(self.split_every),
            float(self.prune_below),
            int(self.batch_size),
        )

    @property
    def _n_features_out(self) -> int:
        return self.module_.arch.latent_dims[0]
