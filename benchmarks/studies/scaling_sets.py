"""The sets of samples on which ways to scale are compared: each is in training and test samples, with classes."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

import numpy as np
import pandas as pd
from sklearn.datasets import load_breast_cancer, load_digits, load_files, load_wine
from sklearn.decomposition import PCA, TruncatedSVD
from sklearn.feature_extraction.text import CountVectorizer
from sklearn.impute import SimpleImputer
from sklearn.model_selection import train_test_split

from treevae.data import load

MOST = 2000  # training samples of the larger sets, so that a fit on one thread takes some seconds
COMPONENTS = 50  # of the cells


class Parts(NamedTuple):
    """Samples that a model is fitted on, and others on which it is scored."""

    x_train: np.ndarray
    x_test: np.ndarray
    y_train: np.ndarray
    y_test: np.ndarray


class Places(NamedTuple):
    """Where the files lie."""

    vectors: Path  # letter.npz, mouse_bladder.npz, mice_protein.npz, mushroom.csv
    features: Path  # cifar10_features.npz
    root: Path | None  # of the data sets by name


def parted(X: np.ndarray, y: np.ndarray, seed: int) -> Parts:
    """A fifth of the samples, of every class, is kept for the test; which, the seed says."""
    return Parts(*train_test_split(X, y, test_size=0.2, random_state=seed, stratify=y))


def fewer(parts: Parts, seed: int) -> Parts:
    """The same with no more than so many training samples, drawn by the seed."""
    rows = np.random.default_rng(seed).permutation(len(parts.x_train))[:MOST]
    return Parts(parts.x_train[rows], parts.x_test, parts.y_train[rows], parts.y_test)


def digits(places: Places, seed: int) -> Parts:
    """8 x 8 pictures as 64 numbers from 0 to 16."""
    X, y = load_digits(return_X_y=True)
    return parted(X, y, seed)


def wine(places: Places, seed: int) -> Parts:
    """13 measurements in units of their own."""
    X, y = load_wine(return_X_y=True)
    return parted(X, y, seed)


def breast_cancer(places: Places, seed: int) -> Parts:
    """30 measurements of cells' nuclei: lengths, areas, ratios."""
    X, y = load_breast_cancer(return_X_y=True)
    return parted(X, y, seed)


def letter(places: Places, seed: int) -> Parts:
    """16 numbers from 0 to 15 of a glyph."""
    file = np.load(places.vectors / "letter.npz")
    return fewer(Parts(file["X"].astype(float), file["X_test"].astype(float), file["y"], file["y_test"]), seed)


def bladder(places: Places, seed: int) -> Parts:
    """2,000 genes of single cells, counts made equal in sum, then logarithms."""
    file = np.load(places.vectors / "mouse_bladder.npz", allow_pickle=False)
    return parted(file["X"].astype(np.float32), file["y"], seed)


def bladder_counts(places: Places, seed: int) -> Parts:
    """The raw counts of the same genes."""
    file = np.load(places.vectors / "mouse_bladder.npz", allow_pickle=False)
    return parted(file["counts"].astype(np.float32), file["y"], seed)


def bladder_components(places: Places, seed: int) -> Parts:
    """The first principal components of these, of the training cells."""
    parts = bladder(places, seed)
    pca = PCA(COMPONENTS, random_state=0).fit(parts.x_train)
    return Parts(pca.transform(parts.x_train), pca.transform(parts.x_test), parts.y_train, parts.y_test)


def mushroom(places: Places, seed: int) -> Parts:
    """22 categories, each value a feature of 0 and 1."""
    table = pd.read_csv(places.vectors / "mushroom.csv")
    y = table.pop("class").to_numpy()
    return fewer(parted(pd.get_dummies(table.fillna("missing")).to_numpy(float), y, seed), seed)


def mice(places: Places, seed: int) -> Parts:
    """77 proteins; gaps are filled by the means of the training samples."""
    file = np.load(places.vectors / "mice_protein.npz", allow_pickle=False)
    parts = parted(file["X"].astype(float), file["y"], seed)
    filled = SimpleImputer().fit(parts.x_train)
    return Parts(filled.transform(parts.x_train), filled.transform(parts.x_test), parts.y_train, parts.y_test)


def news20(places: Places, seed: int) -> Parts:
    """TF-IDF of 2,000 words, as the recipe has it: of unit length."""
    data = load("news20", places.root)
    assert data.y_test is not None
    assert data.y_train is not None
    return fewer(Parts(np.asarray(data.x_train), np.asarray(data.x_test), data.y_train, data.y_test), seed)


def news20_components(places: Places, seed: int) -> Parts:
    """100 components of these that were not centred (latent semantic analysis), of the training texts."""
    parts = news20(places, seed)
    svd = TruncatedSVD(100, random_state=0).fit(parts.x_train)
    return Parts(svd.transform(parts.x_train), svd.transform(parts.x_test), parts.y_train, parts.y_test)


def news20_counts(places: Places, seed: int) -> Parts:
    """How often each of 2,000 words stands in a text."""
    assert places.root is not None
    train, test = (
        load_files(places.root / "20news-bydate" / f"20news-bydate-{part}", encoding="latin-1", shuffle=False)
        for part in ("train", "test")
    )
    counter = CountVectorizer(max_features=2000, stop_words="english", dtype=np.float32).fit(train.data)
    x_train, x_test = (counter.transform(part.data).toarray() for part in (train, test))
    return fewer(Parts(x_train, x_test, train.target, test.target), seed)


def cifar10_features(places: Places, seed: int) -> Parts:
    """64 principal components of features that a network learnt without labels: 10,000 of the training pictures."""
    file = np.load(places.features)
    train, test = file["train"][:10000, :64].astype(float), file["test"][:, :64].astype(float)
    return fewer(Parts(train, test, file["y_train"][:10000], file["y_test"]), seed)


SETS: dict[str, Callable[[Places, int], Parts]] = {
    function.__name__: function
    for function in (
        *(wine, digits, letter, bladder, bladder_counts),  # by these the rule's bounds were chosen
        *(breast_cancer, mice, mushroom, bladder_components, cifar10_features),  # and on these they were checked
        *(news20, news20_components, news20_counts),
    )
}
