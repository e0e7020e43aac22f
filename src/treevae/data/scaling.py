"""Which way of scaling suits vectors: a rule that looks at the samples alone, never at labels."""

from __future__ import annotations

import numpy as np

from .arrays import InputForm
from .units import SMALLEST, blocks, centre_of, lengths_of, usual_way

LOUD = 0.95  # of the variance, in few of the features: distances between samples see little else
FEW = 10  # one feature, or every tenth
LENGTHS = 0.1  # of the variance, in the samples' lengths: more than one direction between groups has in sparse vectors
SAME = 1e-3  # of unit length: so far off may be embeddings that were rounded, as to float16
CHANCE = 3.0  # times what unrelated features are correlated by chance: less have components, and some rows of theirs
MOST = 32  # loud features whose correlations are looked at


def way_for(asked: str, form: InputForm, likelihood: str, X: np.ndarray) -> str:
    """The way of scaling that is asked for; for "auto", what suits the samples, as :func:`suited` tells of vectors."""
    if asked != "auto":
        return asked
    usual = usual_way(form, likelihood)
    return usual if usual == "none" else suited(X)


def suited(X: np.ndarray) -> str:
    """The way of scaling for vectors under a learnt spread.

    "unit" where direction says what a sample is: embeddings of unit length; counts, as of words in texts, with much of
    the variance in the samples' lengths. "feature" where few of the features hold nearly all variance, as those with
    the smallest units do in a table; but not for principal components, whose sizes are what they say. Else "one".
    """
    with np.errstate(over="ignore", invalid="ignore", under="ignore"):
        variances = variances_of(X)
        whole = float(np.sum(variances))
        if not SMALLEST**2 < whole < np.inf:
            return "one"  # where it is said what is wrong
        if _is_of_directions(X, whole):
            return "unit"
        loud = loud_features(variances)[:MOST]
        return "feature" if len(loud) and not _are_components(X, variances, loud) else "one"


def variances_of(X: np.ndarray) -> np.ndarray:
    """The variance of each feature."""
    centre = centre_of(X)
    return np.asarray(sum(np.square(X[rows] - centre).sum(axis=0) for rows in blocks(X)) / len(X))


def loud_features(variances: np.ndarray) -> np.ndarray:
    """The features, the loudest first, that hold nearly all variance between them, if these are few; else none."""
    order, varying = np.argsort(-variances, kind="stable"), int(np.count_nonzero(variances))
    if varying <= 2:
        return order[:0]
    n = int(np.searchsorted(np.cumsum(variances[order]), LOUD * variances.sum(), side="right")) + 1
    return order[:n] if n <= max(1, varying // FEW) else order[:0]


def _is_of_directions(X: np.ndarray, whole: float) -> bool:
    """Whether samples have unit length, or are counts whose lengths hold much of the whole variance."""
    lengths = lengths_of(X)
    if (np.abs(lengths - 1) < SAME).all():
        return True
    if lengths.var() < LENGTHS * whole or X.min() < 0:
        return False
    return 2 * sum(int(np.count_nonzero(X[rows])) for rows in blocks(X)) < X.size


def _are_components(X: np.ndarray, variances: np.ndarray, loud: np.ndarray) -> bool:
    """Whether loud features are hardly more correlated with all others than unrelated ones would be by chance."""
    others, centre = np.setdiff1d(np.flatnonzero(variances), loud), centre_of(X)
    products = np.zeros((len(loud), len(others)))
    for rows in blocks(X):
        apart = np.asarray(X[rows] - centre, dtype=np.float64)
        products += apart[:, loud].T @ apart[:, others]
    correlations = products / len(X) / np.sqrt(np.outer(variances[loud], variances[others]))
    return bool(np.square(correlations).mean() < CHANCE / len(X))
