"""What all estimators of trees of latents share: how they are fitted, what is known of the samples, how they score."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Self

import numpy as np
from sklearn.base import BaseEstimator, ClassNamePrefixFeaturesOutMixin, TransformerMixin, clone
from sklearn.utils.validation import check_is_fitted

from .advice import warn_of
from .data.units import WAYS
from .errors import ModelFileError
from .fitted import Fitted
from .fitting import Folder, Interrupted, Seeds, fit_trees
from .listening import Callback, Listener
from .parameters import check_save_every
from .preparing import Prepared, prepare, warn_of_other_units
from .starting import Beside
from .training.plan import Plan


class SampleTags:
    """What scikit-learn is told of the samples that all models here take, and of what they make of them."""

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()  # type: ignore[misc]
        tags.input_tags.sparse = True
        tags.input_tags.three_d_array = True
        tags.transformer_tags.preserves_dtype = ["float32"]
        tags.non_deterministic = False
        return tags


class TreeEstimator(SampleTags, ClassNamePrefixFeaturesOutMixin, TransformerMixin, BaseEstimator):
    """An estimator in whose ``fitted_`` is the model; a kind of its own says what is fitted, and by which plan."""

    random_state: Any
    verbose: bool
    fitted_: Fitted

    def fit(
        self,
        X: Any,
        y: Any = None,
        *,
        guide: Any = None,
        graph: Any = None,
        checkpoint: Folder | None = None,
        save_every: float = 30.0,
        callback: Callback | None = None,
    ) -> Self:
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
        guide : str, labels, clusterer, linkage matrix or Guide, optional
            The clustering that a tree begins with, instead of our own choice: the name of one ("kmeans", "umap", …), a
            label for each sample (-1: unknown), a clusterer of scikit-learn's, a scipy linkage, or a
            :class:`treevae.guides.Guide`. The model may correct it. Models with a fixed tree have no use for it.
        graph : sparse matrix of shape (n_samples, n_samples), optional
            How near samples are to each other, as scanpy's ``obsp["connectivities"]``: the neighbours are taken from it
            instead of being searched among the rows of X.
        checkpoint : path, optional
            A folder to save the state of training in. If it holds the state of an earlier call with the same parameters
            and the same X, which was killed or interrupted, training goes on from there; on the CPU it ends with the
            same model, to the bit, as if it had never stopped. Changed parameters or data are refused. If it holds a
            finished run, that model is taken up at once, without training.
        save_every : float, default=30.0
            Least seconds between two saves; but writing never takes more than 1 % of the time, the first and the last
            save not counted.
        callback : callable, optional
            Called with each event as it happens (:mod:`treevae.training.events`): ends of epochs with the ELBO's
            terms, chosen leaves, new trees. If it returns False the fit ends, as it stands; with a ``checkpoint`` a
            later call goes on.

        Raises
        ------
        treevae.errors.NoTreeError
            The callback ended the fit before there was a tree.
        treevae.errors.ChangedRunError
            The folder holds a run with other parameters or other data.
        treevae.errors.RunLockedError
            Another process works in the folder.
        treevae.errors.ModelFileError
            The folder holds states, but none that can be read, or one that does not hold together.
        treevae.errors.DivergedError
            The loss is no longer finite. The message says where, and what to look at.
        MemoryError
            The device has not enough of it. The message says what takes less.
        """
        prepared, plan, listener = self._prepared(X, Beside(guide, graph), save_every, callback)
        seeds = Seeds.of([self.random_state])
        try:
            (self.fitted_,) = fit_trees(prepared, plan, seeds, checkpoint, listener, save_every=save_every)
        except Interrupted as interrupt:
            if interrupt.fitted[0] is not None:
                self.fitted_ = interrupt.fitted[0]
            raise KeyboardInterrupt from interrupt
        if listener.wants_more:
            warn_of(self.fitted_, prepared.parameters, stacklevel=2)
        return self

    def fit_seeds(
        self,
        X: Any,
        seeds: Iterable[int],
        *,
        guide: Any = None,
        graph: Any = None,
        checkpoint: Folder | None = None,
        save_every: float = 30.0,
        callback: Callback | None = None,
    ) -> list[Self]:
        """Fit one model for each seed, all side by side, and return them; self stays as it is.

        Each is what ``fit`` would have given with that ``random_state``, up to rounding; but a tree magnifies rounding,
        so that its splits may be others. On a GPU all together take a fraction of the time that they take one after the
        other. The other parameters are those of :meth:`fit`, for all of them together; an event names its ``seed``.
        """
        if not np.iterable(seeds):
            raise ValueError(f"seeds={seeds!r} must be several numbers, as range(5) or [0, 1, 7]")
        seeds = list(seeds)
        if not seeds:
            raise ValueError("seeds is empty; give at least one")
        prepared, plan, listener = self._prepared(X, Beside(guide, graph), save_every, callback)
        models = [clone(self).set_params(random_state=seed) for seed in seeds]
        try:
            fitted = fit_trees(prepared, plan, Seeds.of(seeds), checkpoint, listener, save_every=save_every)
        except Interrupted as interrupt:
            raise KeyboardInterrupt from interrupt
        for model, one in zip(models, fitted, strict=True):
            model.fitted_ = one
            if listener.wants_more:
                warn_of(one, prepared.parameters, stacklevel=2)
        return models

    def _prepared(
        self, X: Any, beside: Beside, save_every: float, callback: Callback | None
    ) -> tuple[Prepared, Plan, Listener]:
        """All that a fit takes, checked."""
        check_save_every(save_every)
        listener = Listener(self.verbose, callback)
        prepared = prepare(type(self).__name__, self._as_for_treevae(), X, beside=beside)
        warn_of_other_units(prepared, stacklevel=3)
        if (way := prepared.decides.units.way) != "none":
            listener.note(f"samples are {WAYS[way]} (scale={way!r})")
        return prepared, self._plan(prepared), listener

    def _as_for_treevae(self) -> dict[str, Any]:
        """The parameters of a TreeVAE, by name, that say what is fitted."""
        raise NotImplementedError

    def _plan(self, prepared: Prepared) -> Plan:
        """The stages of training on these samples."""
        raise NotImplementedError

    # -- what was fitted ----------------------------------------------------------------------------------------

    @property
    def history_(self) -> list[dict[str, Any]]:
        """All that happened in training, in order."""
        return self._model().told

    @property
    def seconds_(self) -> list[float]:
        """When each entry of the history was made."""
        return list(self._model().seconds)

    @property
    def module_(self) -> Any:
        """The torch module."""
        return self._model().module

    @property
    def plan_(self) -> Any:
        """The stages that were trained."""
        return self._model().plan

    @property
    def scale_(self) -> str:
        """How the samples were scaled before the model saw them: what ``scale="auto"`` chose."""
        return self._model().decides.units.way

    @property
    def n_features_in_(self) -> int:
        """Numbers in a sample."""
        return self._model().decides.n_features

    @property
    def feature_names_in_(self) -> np.ndarray:
        """Names of the features, where X was a frame with string column names."""
        names = self._model().names
        if not names:
            raise AttributeError("the samples of the fit had no names of features")
        return np.array(names, dtype=object)

    def _model(self) -> Fitted:
        """What was fitted, or scikit-learn's error."""
        check_is_fitted(self)
        return self.fitted_

    # -- scoring ------------------------------------------------------------------------------------------------

    def score_samples(self, X: Any) -> np.ndarray:
        """The ELBO of each sample in nats, a lower bound of log p(x), from 10 Monte Carlo draws.

        The draws depend on the sample alone, so the score of a sample is the same in any company, up to rounding.
        """
        return self._model().elbo(X)

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
        return self._model().log_likelihoods(X, draws, [bound])[:, 0]

    # -- inside -------------------------------------------------------------------------------------------------

    def _chance(self, random_state: Any) -> Any:
        """Where draws come from: what was asked for, or else the estimator's own random state."""
        return self.random_state if random_state is None else random_state

    def __setstate__(self, state: dict[str, Any]) -> None:
        """From a pickle, if it is of this version: those before ``fitted_`` had other contents."""
        if "module_" in state or "model_" in state:
            raise ModelFileError(
                "this pickle was made by treevae 0.1.0, whose models had other contents; write the model there with "
                "model.save(path), and read it here with treevae.load(path)"
            )
        super().__setstate__(state)

    def __sklearn_is_fitted__(self) -> bool:
        return hasattr(self, "fitted_")
