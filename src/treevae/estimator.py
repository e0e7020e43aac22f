"""TreeVAE: scikit-learn's words around the model. No math here."""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import Any

import numpy as np
from sklearn.base import ClusterMixin

from . import saving
from .base import TreeEstimator
from .preparing import Prepared
from .recipes import PAPER, RECIPES
from .training.plan import Plan
from .tree import Tree


class TreeVAE(ClusterMixin, TreeEstimator):
    """Hierarchical clustering with a Tree Variational Autoencoder.

    Learns a binary tree of latent variables. It begins with the tree that a cheap clustering gives at once, a guide,
    and corrects it; or it grows by one split after the other, as in the paper. Every sample travels from the root to a
    leaf with learnt probabilities; each leaf is a cluster with a decoder of its own, so the model clusters, embeds,
    scores and generates. Labels are never needed.

    Parameters
    ----------
    n_leaves : int, default=10
        Clusters to grow to. The tree may end with fewer: when nothing is left to split, or when leaves that win less
        than 1 % of the samples are pruned; or, since only leaves that win more count towards it, with a few more.
    max_depth : int, default=6
        Edges from the root to the deepest leaf allowed, so at most ``2 ** max_depth`` leaves; less than 100. What is
        still mixed in a leaf this deep cannot be split. The paper's "depth 6" counts levels and is ``max_depth=5``.
    latent_dim : int or sequence of int, default=8
        Size of the embedding at every node, or one size for each of the ``max_depth + 1`` levels, root first. The
        paper uses 8 for small grey images, 4 for text, 64 for colour images.
    hidden_dim : int or sequence of int, default=128
        Width of the hidden layers of routers, transformations and the bottom-up, or one for each of the
        ``max_depth`` steps between levels, root first.
    transformation_layers : int, default=1
        Hidden layers of each transformation and each step of the bottom-up.
    router_layers : int, default=2
        Hidden layers of each router.
    likelihood : {"auto", "bernoulli", "gaussian", "gaussian_learnt"}, default="auto"
        How a leaf explains a sample. "bernoulli" is for values in [0, 1], "gaussian" is squared error (sigma = 1),
        "gaussian_learnt" also learns the spread. "auto" takes "bernoulli" for grey images and for vectors in [0, 1],
        "gaussian" for colour images and "gaussian_learnt" for all other vectors, and for those with a ``scale``.
    scale : {"auto", "none", "one", "feature", "unit"}, default="auto"
        How vectors are scaled before the model sees them; answers are in the units of X. "one" centres them and
        divides by one number, "feature" divides each feature by its own spread, for tables of different units. "unit"
        brings each sample to unit length, for texts and embeddings, then does as "one". ``reconstruct`` gives each
        sample its length back, ``sample`` the mean length; scores are densities of the direction x / ||x|| in its
        coordinates, given the length, with the Jacobian of the scaling alone. Samples of zeros stay so. "auto" leaves
        all but "gaussian_learnt" vectors as they are. Of these it takes "unit" for samples of unit length, and for
        sparse counts with a tenth of the variance in the samples' lengths; "feature" where a tenth of the features, or
        one, has 95 % of the variance and they are no principal components; else "one". ``scale_`` says which.
    network : {"auto", "mlp", "deep_mlp", "cnn", "deep_cnn", "resnet"}, default="auto"
        Encoder and decoders. "auto" takes "cnn" for images and "mlp" for vectors. The others are the paper's too:
        "deep_mlp" for bag-of-words vectors, "deep_cnn" for 28 x 28 drawings (Omniglot) and "resnet" for photographs
        (CIFAR, CelebA), which wants a GPU.
    layer_defaults : {"torch", "tensorflow"}, default="torch"
        Whose norms and first weights the layers have: torch's (epsilon 1e-5, momentum 0.9, uniform weights), or those
        of TensorFlow (1e-3, 0.99, Glorot's weights), in which the paper's own runs were made. Nothing is needed from
        TensorFlow. With a momentum of 0.99 the norms' running statistics, which a fitted model uses, follow slowly:
        shorter stages than some 500 steps leave them behind, and ``fit`` warns.
    tree : Tree, default=None
        A fixed tree to train as it is, without growing or pruning; ``n_leaves`` is then ignored.
    start : {"auto", "splits", "guide"}, default="auto"
        How the tree begins. "splits" is the paper's way: one split after the other, each trained on its own. "guide"
        begins with a cheap clustering that gives the whole tree at once; the routers learn its labels beside the ELBO,
        then follow the loss alone. It takes a fraction of the time. "auto" takes a guide, but splits for more than
        30,000 images, with a contrastive loss, and for fewer samples than leaves; one in ``fit`` is always taken.
    neighbours : int, default=10
        How many nearest neighbours of each sample count as near: at every step one of them is drawn, and the two should
        fall into the same leaf. Distances are Euclidean between the samples as the model sees them, or read from
        ``graph`` in ``fit``. 0, the paper's way, leaves it out; a given ``tree`` may have them too.
    leaf_rule : {"samples", "reconstruction", "elbo"}, default="samples"
        Which leaf to split next: the one with most samples (the paper's choice, for balanced clusters), or the one that
        adds most to the reconstruction loss or to the negative ELBO.
    n_init : int or "auto", default="auto"
        How many guides are compared before one tree is trained, or how many candidates are trained side by side for the
        first tree and for every split, of which the best is kept. "auto" means three guides ("kmeans", "embedding",
        "networks"), or 16 candidates of which the worse half leaves again and again. Taken is the guide whose groups
        tell most of the groups of a sample's neighbours; one that is made from neighbours ("embedding", "networks",
        "umap", "leiden") counts 5 % less, because it is made of what is measured. A wrong split is never repaired, so
        with candidates the tree depends less on luck. Of those whose decisions are about as sure as the surest's, the
        one with the best ELBO, its KL weighted as in training, is kept, leaving out those whose smaller child wins less
        than 5 % of the samples. 1 is the paper. Memory grows with the candidates. Augmentation and contrastive loss
        play no part in this choice.
    augment : str or callable, default=None
        Train on changed versions of the samples, drawn anew at every step. "cifar", "celeba" and "omniglot" are the
        paper's: crops, flips and colours for photographs, a weaker set for faces, small turns and shifts for drawings.
        Or any function that takes and returns a batch: a float tensor (n, c, h, w), or (n, features), on the training
        device, in the units of the model (see ``scale``).
        It is called once for every view of a batch, should change each sample in its own way, and take its random
        numbers from torch, which is seeded at every step.
    contrastive_weight : float, default=0.0
        Weight of a loss that keeps two augmented versions of a sample together (section 2.6 of the paper, which uses
        100 for photographs); needs ``augment``. It makes groups follow what the versions share instead of, say,
        background colours. The tree is then not fine-tuned as a whole, and a step sees half as many samples, twice.
    contrastive_loss : {"both", "routers", "bottom_up", "transposed", "encoder", "jensen_shannon"}, default="both"
        What that loss looks at: the routers' decisions and the projected d of every depth ("both"), one of the two ((A)
        and (B) of the paper's ablation), or its other variants: (C) the routers' loss transposed, (D) the encoder's
        output alone, (E) the Jensen-Shannon divergence of the two views' decisions.
    epochs : int or "auto", default="auto"
        The knob for time against quality. From a guide: epochs of the whole fit; "auto" means 20, and of small data so
        many that there are 700 steps. By splits: epochs of a growth stage; "auto" means 60, and 150 is the paper's. The
        other stages' epochs, the step of the learning rate and the slope of the KL weight keep the paper's proportions
        to it. 15 is a quick look; below that the KL weight has too few epochs to rise, and samples mean little.
    batch_size : int, default=256
        Samples in a training step; never more than a tenth of the samples, so that small data can be split too. A
        leaf needs one batch of samples to be split.
    learning_rate : float, default=1e-3
        Of Adam, at the start; it is a tenth after two thirds of a stage's epochs, or after four fifths of all epochs
        from a guide. Few epochs or few samples can use more.
    device : str, default="auto"
        "auto" takes a CUDA GPU if there is one, else the CPU; or any name torch knows.
    random_state : int, RandomState instance or None, default=None
        Seed of everything. The same seed gives, on the same machine's CPU with as many threads, the same tree and
        labels to the bit.
    verbose : bool, default=False
        Show stage, epoch, ELBO terms and time left: a progress bar in a terminal or a notebook, else some lines.

    Attributes
    ----------
    tree_ : Tree
        The grown tree; ``print(model.tree_)`` draws it. Cluster ``k`` is leaf ``tree_.leaves[k]``.
    labels_ : ndarray of shape (n_samples,)
        Cluster of each training sample.
    history_ : list of dict
        All that happened in training, in order: ends of epochs with the ELBO's terms (means over the candidates while
        there are several), guides, chosen leaves, compared candidates, new trees, pruned leaves. The key "event" says
        which.
    seconds_ : list of float
        When each entry of ``history_`` was made, in seconds of fitting.
    module_ : TreeVAEModule
        The torch module.
    plan_ : Plan
        The stages that were trained.
    scale_ : {"none", "one", "feature", "unit"}
        How the samples were scaled: what ``scale="auto"`` chose.
    n_features_in_ : int
        Numbers in a sample.
    feature_names_in_ : ndarray of str
        Names of the features, where X was a frame with string column names.

    Examples
    --------
    >>> from sklearn.datasets import load_digits
    >>> from treevae import TreeVAE
    >>> X = load_digits().images / 16
    >>> model = TreeVAE(n_leaves=4, epochs=2, random_state=0).fit(X)
    >>> model.predict(X).shape
    (1797,)
    """

    def __init__(
        self,
        n_leaves: int = 10,
        *,
        max_depth: int = 6,
        latent_dim: int | Sequence[int] = 8,
        hidden_dim: int | Sequence[int] = 128,
        transformation_layers: int = 1,
        router_layers: int = 2,
        likelihood: str = "auto",
        scale: str = "auto",
        network: str = "auto",
        layer_defaults: str = "torch",
        tree: Tree | None = None,
        start: str = "auto",
        neighbours: int = 10,
        leaf_rule: str = "samples",
        n_init: int | str = "auto",
        augment: Any = None,
        contrastive_weight: float = 0.0,
        contrastive_loss: str = "both",
        epochs: int | str = "auto",
        batch_size: int = 256,
        learning_rate: float = 1e-3,
        device: str = "auto",
        random_state: Any = None,
        verbose: bool = False,
    ) -> None:
        self.n_leaves = n_leaves
        self.max_depth = max_depth
        self.latent_dim = latent_dim
        self.hidden_dim = hidden_dim
        self.transformation_layers = transformation_layers
        self.router_layers = router_layers
        self.likelihood = likelihood
        self.scale = scale
        self.network = network
        self.layer_defaults = layer_defaults
        self.tree = tree
        self.start = start
        self.neighbours = neighbours
        self.leaf_rule = leaf_rule
        self.n_init = n_init
        self.augment = augment
        self.contrastive_weight = contrastive_weight
        self.contrastive_loss = contrastive_loss
        self.epochs = epochs
        self.batch_size = batch_size
        self.learning_rate = learning_rate
        self.device = device
        self.random_state = random_state
        self.verbose = verbose

    @classmethod
    def recipe(cls, name: str, **changes: Any) -> TreeVAE:
        """A model with the paper's parameters for a data set, and any changes to them.

        Parameters
        ----------
        name : {"digits", "mnist", "fashion", "omniglot", "omniglot5", "news20", "cifar10", "cifar100", "celeba"}
            The data set; :func:`treevae.data.load` knows the same names. The paper has no "digits".
        **changes
            Other parameters of :class:`TreeVAE`, as ``random_state=0`` or ``n_leaves=20``.
        """
        if not isinstance(name, str) or name not in RECIPES:
            raise ValueError(f"there is no recipe {name!r}; there are {', '.join(RECIPES)}")
        return cls(**PAPER | RECIPES[name] | changes)

    def _as_for_treevae(self) -> dict[str, Any]:
        return self.get_params(deep=False)

    def _plan(self, prepared: Prepared) -> Plan:
        return prepared.plan

    # -- what was fitted ----------------------------------------------------------------------------------------

    @property
    def tree_(self) -> Tree:
        """The grown tree."""
        return self._model().tree

    @property
    def labels_(self) -> np.ndarray:
        """The cluster of each training sample."""
        return self._model().labels

    # -- asking -------------------------------------------------------------------------------------------------

    def predict(self, X: Any, level: int | None = None, n_groups: int | None = None) -> np.ndarray:
        """The cluster of each sample: its most probable leaf, numbered from left to right.

        Parameters
        ----------
        X : samples as in :meth:`fit`
        level : int, optional
            Cut the tree at this depth: samples whose leaves share an ancestor there are one group.
        n_groups : int, optional
            Cut the tree into this many groups instead, by undoing its last splits.
        """
        return self._model().predict(X, level, n_groups)

    def predict_proba(self, X: Any, level: int | None = None, n_groups: int | None = None) -> np.ndarray:
        """The probability of each cluster, (n_samples, n_clusters); cut as in :meth:`predict`.

        A group's probability is the sum over its leaves. :meth:`predict` keeps cuts nested by taking the group of the
        most probable leaf, which is now and then not the most probable group.
        """
        return self._model().predict_proba(X, level, n_groups)

    def transform(self, X: Any) -> np.ndarray:
        """The embedding of each sample, (n_samples, latent_dim): the posterior mean of the root's latent.

        The root alone has seen no split, so that all samples stand in one space.
        """
        return self._model().embed(X)

    def reconstruct(self, X: Any, path: str = "best") -> np.ndarray:
        """The model's idea of each sample, in the form and units of X.

        Parameters
        ----------
        X : samples as in :meth:`fit`
        path : {"best", "all"}, default="best"
            "best" follows each sample's most probable path and runs one decoder for it; "all" runs every decoder and
            weighs the results by the probabilities of the leaves.
        """
        return self._model().reconstruct(X, path)

    def sample(
        self,
        n: int = 1,
        leaf: int | None = None,
        random_state: Any = None,
        *,
        node: int | None = None,
        temperature: float = 1.0,
    ) -> np.ndarray:
        """New samples from the model, in the form and units of X.

        Each is the expected value at a draw of the latents: pictures come without pixel noise.

        Parameters
        ----------
        n : int, default=1
            How many.
        leaf : int, optional
            The cluster to sample from, as numbered by :meth:`predict`; by default the routers of the generative model
            choose.
        random_state : int, RandomState instance or None
            Where the draws come from; by default the estimator's own ``random_state``.
        node : int, optional
            Instead of ``leaf``: a node of ``tree_``, and all samples pass through it.
        temperature : float, default=1.0
            Scales the spread of the latents: 0 shows means alone, less than 1 the more usual, more than 1 the odd.
        """
        model = self._model()
        if leaf is not None and node is not None:
            raise ValueError(f"leaf={leaf} and node={node} both say where to sample from; give one of them")
        node = node if leaf is None else model.node_of(leaf)
        return model.sample(n, node, self._chance(random_state), temperature)

    def sample_all_leaves(self, n: int = 1, random_state: Any = None) -> np.ndarray:
        """New samples, each decoded by every leaf: (n, n_leaves, ...) in the form and units of X.

        A row shows what the leaves make of one draw of the root.
        """
        return self._model().sample_all_leaves(n, self._chance(random_state))

    def interpolate(self, X: Any, steps: int = 8) -> tuple[np.ndarray, np.ndarray]:
        """The way from one sample to another in so many steps, in the form and units of X, and its leaves.

        The latents of all nodes and the log-odds of all decisions go in straight lines; each step shows what its most
        probable leaf makes of them. The first and the last step are the two samples as :meth:`reconstruct` shows them.

        Parameters
        ----------
        X : two samples as in :meth:`fit`
        steps : int, default=8
            How many, both ends included; at least 2.

        Returns
        -------
        ndarray of shape (steps, ...)
        ndarray of shape (steps, n_leaves)
            The probability of each cluster.
        """
        return self._model().interpolate(X, steps)

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write the fitted model to one safetensors file; :func:`treevae.load` reads it back.

        An ``augment`` of your own cannot be written: the model works as before, but to fit it again set it anew.
        """
        saving.write(path, self.get_params(deep=False), self._model())

    # -- inside -------------------------------------------------------------------------------------------------

    def _repr_html_inner(self) -> str:
        """What a notebook shows: scikit-learn's diagram and, once fitted, the tree with its training samples."""
        diagram = super()._repr_html_inner()
        if not self.__sklearn_is_fitted__():
            return diagram
        sizes = self.fitted_.sizes
        share = {node: size / len(self.labels_) for node, size in sizes.items()}
        return f"<div>{self.tree_.to_svg(share, lambda node: f'{sizes[node]:,} samples')}</div>{diagram}"

    def _repr_mimebundle_(self, **kwargs: Any) -> dict[str, str]:
        shown = super()._repr_mimebundle_(**kwargs)
        return shown | ({"text/html": self._repr_html_inner()} if "text/html" in shown else {})

    @property
    def _n_features_out(self) -> int:
        return self.fitted_.module.arch.latent_dims[0]


def load(path: str | os.PathLike[str], device: str = "auto") -> TreeVAE:
    """The fitted model that :meth:`TreeVAE.save` wrote, on a device ("auto": a CUDA GPU if there is one).

    Raises
    ------
    ModelFileError
        The file is foreign, cut short, inconsistent, or was written by a newer treevae. Loading never runs code.
    FileNotFoundError
        There is none.
    """
    model, fitted = saving.read(path, device, TreeVAE)
    model.fitted_ = fitted
    return model
