"""TreeVAE: scikit-learn's words around the model. No math here."""

from __future__ import annotations

import os
import warnings
from collections.abc import Callable, Iterable, Sequence
from functools import partial
from numbers import Integral
from typing import Any

import numpy as np
import torch
from sklearn.base import BaseEstimator, ClassNamePrefixFeaturesOutMixin, ClusterMixin, TransformerMixin, clone
from sklearn.exceptions import ConvergenceWarning
from sklearn.utils import check_random_state
from sklearn.utils.validation import check_is_fitted

from .data.arrays import InputForm, read
from .fitting import Fitting
from .model.evidence import BOUNDS, evidence
from .model.module import TreeVAEModule
from .model.scoring import score_terms
from .model.stack import LAYER_DEFAULTS
from .parameters import check_save_every, device_of, number, whole_number
from .preparing import Prepared, augmentation_of, batch_rows, prepare
from .recipes import RECIPES
from .saving import Fitted, restored_fit, restored_parameters, write
from .storage import tensors as files
from .storage.states import StateFolder
from .training.adam import give_back
from .training.events import LeafChosen
from .training.grove import Grove
from .training.loop import out_of_memory
from .training.plan import Plan
from .training.samples import CHUNK, LIGHT_CHUNK, Samples, over
from .training.views import Augment
from .tree import Tree

SCORE_DRAWS = 10  # Monte Carlo draws behind every score
LOUD = 0.95  # of the variance in one of several features that vary: a sign of other units
LEFT_BEHIND = 0.01  # of what norms began with, in their running statistics after a stage


class SampleTags:
    """What scikit-learn is told of the samples that all models here take, and of what they make of them."""

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()  # type: ignore[misc]
        tags.input_tags.sparse = True
        tags.input_tags.three_d_array = True
        tags.transformer_tags.preserves_dtype = ["float32"]
        tags.non_deterministic = False
        return tags


class TreeVAE(SampleTags, ClassNamePrefixFeaturesOutMixin, TransformerMixin, ClusterMixin, BaseEstimator):
    """Hierarchical clustering with a Tree Variational Autoencoder.

    Grows a binary tree of latent variables, one split after the other. Every sample travels from the root to a leaf
    with learnt probabilities; each leaf is a cluster with a decoder of its own, so the model clusters, embeds, scores
    and generates. Labels are never needed.

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
        "gaussian" for colour images and "gaussian_learnt" for all other vectors. Under "gaussian_learnt" vectors are
        centred and divided by one common scale inside; scores, reconstructions and samples are in the units of X.
        Features in different units should be standardised first, as for k-means.
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
    leaf_rule : {"samples", "reconstruction", "elbo"}, default="samples"
        Which leaf to split next: the one with most samples (the paper's choice, for balanced clusters), or the one that
        adds most to the reconstruction loss or to the negative ELBO.
    n_init : int, default=16
        Candidates trained side by side for the first tree and for every split: a wrong split is never repaired, so the
        tree depends less on luck. Of those whose decisions are about as sure as the surest's, the one with the best
        ELBO, its KL weighted as in training, is kept, leaving out those whose smaller child wins less than 5 % of the
        samples. 1 is the paper, and takes about a third of the time; 4 lies between them in both. Memory grows with it
        too. Augmentation and contrastive loss play no part in this choice.
    augment : {"cifar", "celeba", "omniglot"} or callable, default=None
        Train on changed versions of the samples, drawn anew at every step; they are the paper's: crops, flips and
        colours for photographs, a weaker set for faces, small turns and shifts for drawings. Or any function that takes
        and returns a batch: a float tensor (n, c, h, w), or (n, features), on the training device, in the units of the
        model (see ``likelihood``: under "gaussian_learnt" vectors are centred and scaled). It is called once for every
        view of a batch, should change each sample in its own way, and take its random numbers from torch, which is
        seeded at every step.
    contrastive_weight : float, default=0.0
        Weight of a loss that keeps two augmented versions of a sample together (section 2.6 of the paper, which uses
        100 for photographs); needs ``augment``. It makes groups follow what the versions share instead of, say,
        background colours. The tree is then not fine-tuned as a whole, and a step sees half as many samples, twice.
    contrastive_loss : {"both", "routers", "bottom_up", "transposed", "encoder", "jensen_shannon"}, default="both"
        What that loss looks at: the routers' decisions and the projected d of every depth ("both"), one of the two ((A)
        and (B) of the paper's ablation), or its other variants: (C) the routers' loss transposed, (D) the encoder's
        output alone, (E) the Jensen-Shannon divergence of the two views' decisions.
    epochs : int, default=150
        The knob for time against quality: epochs of a growth stage. The other stages' epochs, the step of the
        learning rate and the slope of the KL weight keep the paper's proportions to it. 15 is a quick look; below that
        the KL weight has too few epochs to rise, and samples mean little.
    batch_size : int, default=256
        Samples in a training step; never more than a tenth of the samples, so that small data can be split too. A
        leaf needs one batch of samples to be split.
    learning_rate : float, default=1e-3
        Of Adam, at the start of every stage; it is a tenth after two thirds of ``epochs``. Few epochs or few samples
        can use more.
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
        there are several), chosen leaves, compared candidates, new trees, pruned leaves. The key "event" says which.
    seconds_ : list of float
        When each entry of ``history_`` was made, in seconds of fitting.
    module_ : TreeVAEModule
        The torch module.
    plan_ : Plan
        The stages that were trained.
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
        network: str = "auto",
        layer_defaults: str = "torch",
        tree: Tree | None = None,
        leaf_rule: str = "samples",
        n_init: int = 16,
        augment: str | Augment | None = None,
        contrastive_weight: float = 0.0,
        contrastive_loss: str = "both",
        epochs: int = 150,
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
        self.network = network
        self.layer_defaults = layer_defaults
        self.tree = tree
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
        return cls(**RECIPES[name] | changes)

    # -- fitting ------------------------------------------------------------------------------------------------

    def fit(
        self,
        X: Any,
        y: Any = None,
        *,
        checkpoint: str | os.PathLike[str] | Callable[[], StateFolder] | None = None,
        save_every: float = 30.0,
    ) -> TreeVAE:
        """Grow the tree on X and return self.

        On Linux the process keeps memory that training frees, for speed, from then on. An interrupt (Ctrl-C) is passed
        on, but leaves the estimator fitted with the tree grown so far, if there is one.

        Parameters
        ----------
        X : array-like, torch tensor, pandas frame or scipy sparse matrix of shape (n_samples, n_features); or images
            Images are (n, h, w), (n, c, h, w) or (n, h, w, c), in [0, 1] or uint8, which is read as [0, 1] and comes
            back so from ``reconstruct`` and ``sample``. Sparse matrices are made dense.
        y : ignored
            Present for scikit-learn's sake.
        checkpoint : path, optional
            A folder to save the state of training in. If it holds the state of an earlier call with the same parameters
            and the same X, which was killed or interrupted, training goes on from there; on the CPU it ends with the
            same model, to the bit, as if it had never stopped. Changed parameters or data are refused. If it holds a
            finished run, that model is taken up at once, without training. Or a function that gives such a folder,
            entered; it is called once X has been checked, so that nothing is written before.
        save_every : float, default=30.0
            Least seconds between two saves; but writing never takes more than 1 % of the time, the first and the last
            save not counted.

        Raises
        ------
        treevae.storage.differences.ChangedRunError
            The folder holds a run with other parameters or other data.
        treevae.storage.lock.RunLockedError
            Another process works in the folder.
        treevae.storage.tensors.ModelFileError
            The folder holds states, but none that can be read, or one that does not hold together.
        treevae.training.loop.DivergedError
            The loss is no longer finite. The message says where, and what to look at.
        MemoryError
            The device has not enough of it. The message says what takes less.
        """
        self._fit([self], [self.random_state], X, checkpoint, save_every)
        return self

    def fit_seeds(
        self,
        X: Any,
        seeds: Iterable[int],
        *,
        checkpoint: str | os.PathLike[str] | None = None,
        save_every: float = 30.0,
    ) -> list[TreeVAE]:
        """Fit one model for each seed, all side by side, and return them; self stays as it is.

        Each is what ``fit`` would have given with that ``random_state``, up to rounding; but a tree magnifies rounding,
        so that its splits may be others. On a GPU all together take a fraction of the time that they take one after the
        other. ``checkpoint`` and ``save_every`` are those of :meth:`fit`, for all of them together.
        """
        if not np.iterable(seeds):
            raise ValueError(f"seeds={seeds!r} must be several numbers, as range(5) or [0, 1, 7]")
        seeds = list(seeds)
        if not seeds:
            raise ValueError("seeds is empty; give at least one")
        models = [clone(self).set_params(random_state=seed) for seed in seeds]
        self._fit(models, seeds, X, checkpoint, save_every)
        return models

    @staticmethod
    def _fit(
        models: Sequence[TreeVAE], random_states: Sequence[Any], X: Any, checkpoint: Any, save_every: float
    ) -> None:
        """Fit models with the same parameters but their random state."""
        first = models[0]
        check_save_every(save_every)
        reader, given = clone(first), first.get_params(deep=False)  # an earlier fit stays whole until a new one ends
        ready = prepare(reader, given, X)
        names = getattr(reader, "feature_names_in_", ())
        _warn_of_other_units(ready, names)
        plan = first._plan(len(ready.x))
        seeds = [int(check_random_state(state).randint(2**31 - 1)) for state in random_states]
        identity = {} if checkpoint is None else ready.identity(given)
        samples = Samples(ready.x, device_of(first.device), largest=ready.arch.largest_activation)
        grove = partial(Grove, ready.arch, samples, plan, tree=first.tree, augment=augmentation_of(first.augment))
        fitting = Fitting(grove, seeds, identity, first.verbose)

        def keep() -> None:
            """Store what was fitted, all at once."""
            modules = [None] * len(models) if fitting.growing is None else fitting.growing.modules
            found = zip(models, modules, fitting.histories, fitting.seconds, strict=True)
            for model, module, history, seconds in found:
                if module is not None:
                    give_back(module)
                    labels = over(module, samples, _winners(module)).cpu().numpy()
                    model._keep(Fitted(module.eval(), plan, labels, history, seconds, ready.form, ready.units, names))

        try:
            fitting.run(checkpoint, save_every, all(isinstance(state, Integral) for state in random_states))
        except KeyboardInterrupt:
            if len(models) == 1:  # leaves a whole model behind
                keep()
            raise
        except (RuntimeError, MemoryError) as error:
            if not out_of_memory(error):
                raise
            raise MemoryError(
                f"out of memory: a step has {plan.batch_size} samples (batch_size) in each of "
                f"{len(models) * plan.n_init} trees (n_init={plan.n_init}, seeds: {len(models)}); fewer take less"
            ) from error
        keep()
        for model in models:
            model._warn_of_fewer_leaves()
            model._warn_of_norms_left_behind()

    def _keep(self, found: Fitted) -> None:
        """Become the model that was fitted."""
        self.module_, self.plan_, self.labels_ = found.module, found.plan, found.labels
        self.history_, self.seconds_ = found.history, found.seconds
        self._form, self._units, self.n_features_in_ = found.form, found.units, found.form.n_features
        self.__dict__.pop("feature_names_in_", None)  # of an earlier fit on a frame
        if len(found.feature_names):
            self.feature_names_in_ = np.array(found.feature_names, dtype=object)

    def _plan(self, n_samples: int) -> Plan:
        """The stages of training on so many samples."""
        return Plan.paper(
            int(self.epochs),
            int(self.n_leaves),
            batch_rows(self.get_params(deep=False), n_samples),
            int(self.n_init),
            self.leaf_rule,
            float(self.learning_rate),
            float(self.contrastive_weight),
            self.contrastive_loss,
        )

    def _warn_of_fewer_leaves(self) -> None:
        n_grown = len(self.tree_.leaves)
        if self.tree is None and n_grown < self.n_leaves:
            warnings.warn(
                f"leaves in the tree: {n_grown}, fewer than n_leaves={self.n_leaves}: the others were too small to "
                "split, or were pruned. More epochs, more samples or a smaller batch_size can give more",
                ConvergenceWarning,
                stacklevel=4,
            )

    def _warn_of_norms_left_behind(self) -> None:
        momentum, plan, n = LAYER_DEFAULTS[self.layer_defaults].momentum, self.plan_, len(self.labels_)
        trained = [(plan.first if plan.final is None else plan.final, n)]
        if plan.final is None:  # norms of a subtree see its own samples only
            chosen = (event for event in self.history_ if event["event"] == LeafChosen.__name__)
            trained += [(plan.subtree, event["samples"]) for event in chosen]
        steps = min(stage.epochs * (samples // plan.samples_per_step) for stage, samples in trained)
        if self.layer_defaults != "torch" and momentum**steps > LEFT_BEHIND:
            warnings.warn(
                f"a stage had {steps} steps, and layer_defaults={self.layer_defaults!r} keeps {momentum} of "
                "the norms' running statistics at every step, so that they lag behind. Take more epochs, a smaller "
                "batch_size, or layer_defaults='torch'",
                ConvergenceWarning,
                stacklevel=4,
            )

    # -- asking -------------------------------------------------------------------------------------------------

    @property
    def tree_(self) -> Tree:
        """The grown tree."""
        check_is_fitted(self)
        return self.module_.tree

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
        check_is_fitted(self)
        leaf = self._ask(X, _winners(self.module_))
        return self._groups(level, n_groups)[leaf]

    def predict_proba(self, X: Any, level: int | None = None, n_groups: int | None = None) -> np.ndarray:
        """The probability of each cluster, (n_samples, n_clusters); cut as in :meth:`predict`.

        A group's probability is the sum over its leaves. :meth:`predict` keeps cuts nested by taking the group of the
        most probable leaf, which is now and then not the most probable group.
        """
        reach = self._ask(X, lambda x: self.module_.reach(x))
        groups = self._groups(level, n_groups)
        return reach @ np.eye(groups.max() + 1, dtype=reach.dtype)[groups]

    def transform(self, X: Any) -> np.ndarray:
        """The embedding of each sample, (n_samples, latent_dim): the posterior mean of the root's latent.

        The root alone has seen no split, so that all samples stand in one space.
        """
        return self._ask(X, lambda x: self.module_.embed(x))

    def score_samples(self, X: Any) -> np.ndarray:
        """The ELBO of each sample in nats, a lower bound of log p(x), from 10 Monte Carlo draws.

        The draws depend on the sample alone, so the score of a sample is the same in any company, up to rounding.
        """
        elbo = self._ask(X, lambda x: score_terms(self.module_, x, SCORE_DRAWS).elbo, light=False)
        return self._units.log_density(elbo, self._form.n_features)

    def score(self, X: Any, y: Any = None) -> float:
        """The mean ELBO of the samples in nats; higher is better."""
        return float(self.score_samples(X).mean(dtype=np.float64))

    def log_likelihood(self, X: Any, draws: int = 1000, bound: str = "iwae") -> np.ndarray:
        """An estimate of log p(x) of each sample in nats, from so many Monte Carlo draws.

        Each draw runs every decoder once, so 1,000 draws of many samples want a GPU. As with :meth:`score_samples`, the
        draws depend on the sample alone, and the value of a sample is the same in any company, up to rounding.

        Parameters
        ----------
        X : samples as in :meth:`fit`
        draws : int, default=1000
            The bound rises towards log p(x) as they grow; memory does not.
        bound : {"iwae", "paper"}, default="iwae"
            "iwae" is the importance-weighted bound: in expectation it is at least the ELBO and at most log p(x).
            "paper" is what the paper reports as log-likelihood, the log-mean-exp of ELBOs; it can exceed log p(x), so
            take it for comparison with the paper alone.
        """
        check_is_fitted(self)
        if bound not in BOUNDS:
            raise ValueError(f"bound={bound!r}; allowed are 'iwae' (a lower bound) and 'paper' (to compare with it)")
        return self._log_likelihoods(X, draws, [bound])[:, 0]

    def _log_likelihoods(self, X: Any, draws: int, bounds: Sequence[str]) -> np.ndarray:
        """Several estimates of log p(x) from the same draws: (sample, bound)."""
        n = whole_number("draws", draws)
        estimates = self._ask(X, lambda x: evidence(self.module_, x, n, bounds).T, light=False)
        return self._units.log_density(estimates, self._form.n_features)

    def reconstruct(self, X: Any, path: str = "best") -> np.ndarray:
        """The model's idea of each sample, in the form and units of X.

        Parameters
        ----------
        X : samples as in :meth:`fit`
        path : {"best", "all"}, default="best"
            "best" follows each sample's most probable path and runs one decoder for it; "all" runs every decoder and
            weighs the results by the probabilities of the leaves.
        """
        check_is_fitted(self)
        if path not in ("best", "all"):
            raise ValueError(f"path={path!r}; allowed are 'best' (one decoder a sample) and 'all'")
        ask = self.module_.reconstruct_best if path == "best" else self.module_.reconstruct
        return self._to_user(self._ask(X, ask, light=path == "best"))

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
        check_is_fitted(self)
        if leaf is not None and node is not None:
            raise ValueError(f"leaf={leaf} and node={node} both say where to sample from; give one of them")
        spread = number("temperature", temperature, zero=True)
        if node is not None:
            self.tree_.children(node)  # a number that no node has is refused
        elif leaf is not None:
            node = self._node_of(leaf)
        with torch.no_grad():
            drawn = self.module_.generate(whole_number("n", n), self._generator(random_state), node, spread)
        return self._to_user(drawn.cpu().numpy())

    def sample_all_leaves(self, n: int = 1, random_state: Any = None) -> np.ndarray:
        """New samples, each decoded by every leaf: (n, n_leaves, ...) in the form and units of X.

        A row shows what the leaves make of one draw of the root.
        """
        check_is_fitted(self)
        with torch.no_grad():
            drawn = self.module_.generate_all(whole_number("n", n), self._generator(random_state))
        return self._to_user(drawn.cpu().numpy())

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
        check_is_fitted(self)
        if whole_number("steps", steps) < 2:
            raise ValueError(f"steps={steps} must be at least 2, the two ends")
        x = self._to_model(X).to(self._where())
        if len(x) != 2:
            raise ValueError(f"X has {len(x)} samples; the way leads from one to another, so give 2")
        with torch.no_grad():
            shown, reach = self.module_.interpolate(x, int(steps))
        return self._to_user(shown.cpu().numpy()), reach.cpu().numpy()

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write the fitted model to one safetensors file; :func:`treevae.load` reads it back.

        An ``augment`` of your own cannot be written: the model works as before, but to fit it again set it anew.
        """
        check_is_fitted(self)
        names = getattr(self, "feature_names_in_", ())
        found = Fitted(
            self.module_, self.plan_, self.labels_, self.history_, self.seconds_, self._form, self._units, names
        )
        write(path, self.get_params(deep=False), found)

    # -- inside -------------------------------------------------------------------------------------------------

    def _ask(self, X: Any, question: Callable[[torch.Tensor], torch.Tensor], light: bool = True) -> np.ndarray:
        """The answer of the module, in eval mode, for all samples; light questions run at most one decoder each."""
        check_is_fitted(self)
        samples = Samples(self._to_model(X), self._where(), largest=self.module_.arch.largest_activation)
        return over(self.module_, samples, question, LIGHT_CHUNK if light else CHUNK).cpu().numpy()

    def _to_model(self, X: Any) -> torch.Tensor:
        """Samples as the fitted module sees them, on the CPU."""
        X, _ = self._read(X)
        return self._units.to_model(X, self.module_.arch.likelihood)

    def _where(self) -> torch.device:
        """The device of the fitted module."""
        return next(self.module_.parameters()).device

    def _read(self, X: Any) -> tuple[np.ndarray, InputForm]:
        """X as a checked (n, features) matrix, and its form."""
        # floats sent to a model of uint8 images must be in [0, 1] as well
        any_value = self.module_.arch.likelihood != "bernoulli" and not self._form.from_bytes
        return read(self, X, self._form, any_value)

    def _to_user(self, matrix: np.ndarray) -> np.ndarray:
        return self._form.to_user(self._units.to_user(matrix))

    def _repr_html_inner(self) -> str:
        """What a notebook shows: scikit-learn's diagram and, once fitted, the tree with its training samples."""
        diagram = super()._repr_html_inner()
        if not self.__sklearn_is_fitted__():
            return diagram
        tree = self.tree_
        won = dict(zip(tree.leaves, np.bincount(self.labels_, minlength=len(tree.leaves)).tolist(), strict=True))
        sizes = {node: sum(won[leaf] for leaf in tree.leaves_below(node)) for node in tree.nodes}
        share = {node: size / len(self.labels_) for node, size in sizes.items()}
        return f"<div>{tree.to_svg(share, lambda node: f'{sizes[node]:,} samples')}</div>{diagram}"

    def _repr_mimebundle_(self, **kwargs: Any) -> dict[str, str]:
        shown = super()._repr_mimebundle_(**kwargs)
        return shown | ({"text/html": self._repr_html_inner()} if "text/html" in shown else {})

    def __sklearn_is_fitted__(self) -> bool:
        return hasattr(self, "module_")

    def _groups(self, level: int | None, n_groups: int | None) -> np.ndarray:
        """The group of each leaf, from left to right, after a cut."""
        tree = self.tree_
        if level is not None and n_groups is not None:
            raise ValueError(f"level={level} and n_groups={n_groups} are two ways to cut the tree; give one of them")
        if level is None and n_groups is None:
            return np.arange(len(tree.leaves))
        tops = tree.cut(level) if level is not None else tree.groups(n_groups)  # type: ignore[arg-type]
        group = {leaf: g for g, top in enumerate(tops) for leaf in tree.leaves_below(top)}
        return np.array([group[leaf] for leaf in tree.leaves])

    def _node_of(self, leaf: int) -> int:
        n = len(self.tree_.leaves)
        if not isinstance(leaf, Integral) or not 0 <= leaf < n:
            raise ValueError(f"leaf={leaf!r}; the clusters are numbered 0 to {n - 1}")
        return self.tree_.leaves[int(leaf)]

    def _generator(self, random_state: Any) -> torch.Generator:
        chance = check_random_state(self.random_state if random_state is None else random_state)
        return torch.Generator(self._where()).manual_seed(int(chance.randint(2**31 - 1)))

    @property
    def _n_features_out(self) -> int:
        return self.module_.arch.latent_dims[0]


def load(path: str | os.PathLike[str], device: str = "auto") -> TreeVAE:
    """The fitted model that :meth:`TreeVAE.save` wrote, on a device ("auto": a CUDA GPU if there is one).

    Raises
    ------
    ModelFileError
        The file is foreign, cut short, inconsistent, or was written by a newer treevae. Loading never runs code.
    FileNotFoundError
        There is none.
    """
    about, tensors = files.read(path)
    where = device_of(device)  # an unusable device is not the file's fault
    try:
        model = TreeVAE(**restored_parameters(about) | {"device": device})
        model._keep(restored_fit(about, tensors, where))
        return model
    except (KeyError, TypeError, AttributeError, ValueError, RuntimeError, OverflowError) as error:
        raise files.ModelFileError(f"{path} does not hold together as a treevae model: {error}") from error


def _warn_of_other_units(ready: Prepared, names: Sequence[str]) -> None:
    """Warn where one feature of vectors is all that a tree will see."""
    if ready.form.is_image or ready.arch.likelihood != "gaussian_learnt":
        return
    shares = ready.units.shares(ready.X)
    loud = int(shares.argmax())
    if shares[loud] > LOUD and np.count_nonzero(shares) > 2:
        warnings.warn(
            f"feature {repr(str(names[loud])) if len(names) else loud} has {shares[loud]:.1%} of the variance of X, so "
            "that a tree sees little else; where features have different units, scale them first, as scikit-learn's "
            "StandardScaler does",
            stacklevel=4,
        )


def _winners(module: TreeVAEModule) -> Callable[[torch.Tensor], torch.Tensor]:
    """Asks for the most probable leaf."""
    return lambda x: module.reach(x).argmax(1)
