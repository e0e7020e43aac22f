"""What sets the parts of a tree apart, in numbers: words, attributes and classes of leaves and of the nodes above them.

Everything here follows from a tree, the leaf that each sample belongs to (``labels``, as ``predict`` gives them) and a
table of values with one row a sample. The samples of a node are those of the leaves below it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np

from ..data.arrays import as_array
from ..data.samples import is_missing
from ..tree import Tree


class Frequency(NamedTuple):
    """How often something is found: a share among some samples, and among all."""

    name: str
    inside: float
    overall: float


@dataclass(frozen=True)
class Totals:
    """The sum of the values over the samples of each node, and how many samples these are."""

    tree: Tree
    sums: dict[int, np.ndarray]  # (features,) each
    sizes: dict[int, int]

    @classmethod
    def of(cls, tree: Tree, labels: np.ndarray, values: np.ndarray) -> Totals:
        """The totals of a tree whose leaf k holds the rows of ``values`` that are labelled k."""
        sums = {leaf: values[labels == k].sum(axis=0, dtype=np.float64) for k, leaf in enumerate(tree.leaves)}
        sizes = dict(zip(tree.leaves, np.bincount(labels, minlength=len(tree.leaves)).tolist(), strict=True))
        for node in reversed(tree.nodes):  # children before parents
            if below := tree.children(node):
                sums[node] = np.sum([sums[child] for child in below], axis=0)
                sizes[node] = sum(sizes[child] for child in below)
        return cls(tree, sums, sizes)

    def mean(self, node: int) -> np.ndarray:
        """The mean over the samples of a node; zeros where it has none."""
        return self.sums[node] / max(self.sizes[node], 1)

    def mean_outside(self, node: int) -> np.ndarray:
        """The mean over all other samples; zeros where there are none."""
        return (self.sums[0] - self.sums[node]) / max(self.sizes[0] - self.sizes[node], 1)

    @cached_property
    def rivals(self) -> dict[int, int]:
        """The sibling of each node that has one, if both have samples.

        A node that pruning has left alone takes the sibling of the node above it.
        """
        rivals: dict[int, int] = {}
        for node in self.tree.nodes:  # parents before children
            below = self.tree.children(node)
            if len(below) == 2:
                rivals |= {below[0]: below[1], below[1]: below[0]}
            elif below and node in rivals:
                rivals[below[0]] = rivals[node]
        return {node: rival for node, rival in rivals.items() if self.sizes[node] and self.sizes[rival]}


def leaf_words(tree: Tree, labels: Any, X: Any, names: Sequence[str], n: int = 8) -> list[list[str]]:
    """The words that set each leaf apart from all other samples, leaves from left to right, clearest word first.

    Of the words with a higher mean weight inside the leaf (a) than outside it (b), those with the largest
    (a - b) · log((a + s) / (b + s)) · log(1 / f), where f is the share of all samples that have the word, and s the
    mean weight of all words in all samples. The difference alone would name stop-words, whose weights are large
    everywhere; the ratio alone would name rare words, and s keeps it bounded; f silences words that nearly all samples
    have. Words without a letter or digit are left out.

    Parameters
    ----------
    tree, labels
        The tree, and the position in ``tree.leaves`` of each sample's leaf.
    X : array-like or sparse matrix of shape (n_samples, n_words)
        Weights of the words, as TF-IDF or counts; none below 0.
    names
        The words, one for each column of X.
    n
        How many words at most; a leaf without samples has none.
    """
    words = Words.of(tree, labels, X, names)
    return [words.above(leaf, words.totals.mean_outside(leaf), n) for leaf in tree.leaves]


def split_words(tree: Tree, labels: Any, X: Any, names: Sequence[str], n: int = 3) -> dict[int, list[str]]:
    """The words that set each node apart from its sibling, by the measure of :func:`leaf_words`; the root has none.

    A node that pruning has left alone takes those of the node above it.
    """
    words = Words.of(tree, labels, X, names)
    return {node: words.above(node, words.totals.mean(rival), n) for node, rival in words.totals.rivals.items()}


def word_contrast(inside: np.ndarray, outside: np.ndarray, floor: float, frequency: np.ndarray) -> np.ndarray:
    """The contrast of each word between two mean weights, 0 where it is not heavier inside.

    The formula of :func:`leaf_words`: ``floor`` is its s, ``frequency`` its f.
    """
    there = inside > outside
    a, b, f = inside[there], outside[there], frequency[there]
    contrast = np.zeros_like(inside)
    contrast[there] = (a - b) * np.log((a + floor) / (b + floor)) * np.log(1 / f)
    return contrast


def leaf_attributes(
    tree: Tree, labels: Any, attributes: Any, names: Sequence[str], n: int = 5
) -> list[list[Frequency]]:
    """The attributes whose frequency in each leaf differs most from that in all samples, largest difference first.

    The difference of the frequencies p in the leaf and q in all samples is |p - q| / sqrt(q (1 - q)), in units of the
    attribute's own spread, so that rare attributes count as well as those that half of the samples have. An attribute
    that all samples or none have is left out, as is one as frequent in the leaf as anywhere.

    Parameters
    ----------
    tree, labels
        The tree, and the position in ``tree.leaves`` of each sample's leaf.
    attributes : array-like of shape (n_samples, n_attributes)
        Whether a sample has an attribute: bool, or 0 and 1.
    names
        The attributes' names, one for each column.
    n
        How many at most; a leaf without samples has none.
    """
    totals = attribute_totals(tree, labels, attributes, names)
    overall = totals.mean(0)
    of_leaves = []
    for leaf in tree.leaves:
        inside = totals.mean(leaf)
        difference = np.abs(attribute_contrast(inside, overall, overall)) * (totals.sizes[leaf] > 0)
        of_leaves.append(
            [Frequency(str(names[i]), float(inside[i]), float(overall[i])) for i in largest(difference, n)]
        )
    return of_leaves


def split_attributes(
    tree: Tree, labels: Any, attributes: Any, names: Sequence[str], n: int = 2
) -> dict[int, list[str]]:
    """The attributes that are more frequent in each node than in its sibling; the root has none.

    The difference is measured as in :func:`leaf_attributes`. A node that pruning has left alone takes those of the node
    above it.
    """
    totals = attribute_totals(tree, labels, attributes, names)
    return {
        node: _named(names, attribute_contrast(totals.mean(node), totals.mean(rival), totals.mean(0)), n)
        for node, rival in totals.rivals.items()
    }


def attribute_contrast(one: np.ndarray, other: np.ndarray, overall: np.ndarray) -> np.ndarray:
    """The difference of two frequencies in units of the attribute's spread over all samples; 0 where it has none."""
    spread = np.sqrt(overall * (1 - overall))
    return np.divide(one - other, spread, out=np.zeros_like(spread), where=spread > 0)


def main_classes(tree: Tree, labels: Any, classes: np.ndarray) -> list[tuple[str, float] | None]:
    """The most frequent class of each leaf and its share of the leaf's samples; None for a leaf without samples.

    ``classes`` names the class of each sample; of equally frequent ones the first in the alphabet is taken.
    """
    names, members = _members(classes)
    totals = Totals.of(tree, checked_labels(tree, labels, len(classes)), members)
    shares = [totals.mean(leaf) for leaf in tree.leaves]
    return [(names[share.argmax()], float(share.max())) if share.any() else None for share in shares]


def split_classes(tree: Tree, labels: Any, classes: np.ndarray, n: int = 3) -> dict[int, list[str]]:
    """The classes that are more frequent in each node than in its sibling, as :func:`split_attributes` finds them."""
    names, members = _members(classes)
    return split_attributes(tree, labels, members, names, n)


# -- inside -----------------------------------------------------------------------------------------------------


def _members(classes: np.ndarray) -> tuple[list[str], np.ndarray]:
    """The names of the classes, and which of them each sample belongs to, (n, classes)."""
    names, columns = np.unique(classes, return_inverse=True)
    return names.tolist(), np.arange(len(names)) == columns[:, None]


@dataclass(frozen=True)
class Words:
    """The weights of words in a tree, and what their contrasts are measured by."""

    totals: Totals
    names: Sequence[str]
    floor: float  # mean weight of all words in all samples
    frequency: np.ndarray  # share of the samples that have the word; 1 for signs that are no words, to silence them

    @classmethod
    def of(cls, tree: Tree, labels: Any, X: Any, names: Sequence[str]) -> Words:
        """The words of a tree whose leaf k holds the rows of X that are labelled k."""
        X = checked_table("X", X, names)
        if X.min() < 0:
            raise ValueError(f"X has weights down to {X.min():g}; weights of words, as TF-IDF or counts, are 0 or more")
        is_word = [any(sign.isalnum() for sign in name) for name in names]
        frequency = np.where(is_word, (X > 0).mean(axis=0), 1.0)
        return cls(Totals.of(tree, checked_labels(tree, labels, len(X)), X), names, float(X.mean()), frequency)

    def contrast(self, inside: np.ndarray, outside: np.ndarray) -> np.ndarray:
        """The contrast of each word between two mean weights, 0 where it is not heavier inside."""
        return word_contrast(inside, outside, self.floor, self.frequency)

    def above(self, node: int, outside: np.ndarray, n: int) -> list[str]:
        """The n words that are most above their mean weights outside."""
        return _named(self.names, self.contrast(self.totals.mean(node), outside), n)


def attribute_totals(tree: Tree, labels: Any, attributes: Any, names: Sequence[str]) -> Totals:
    """How many samples of each node have each attribute."""
    attributes = checked_table("attributes", attributes, names)
    if not np.isin(attributes, (0, 1)).all():
        odd = attributes[~np.isin(attributes, (0, 1))][0]
        raise ValueError(f"attributes holds {odd:g}; it must say True or False, or 1 and 0")
    return Totals.of(tree, checked_labels(tree, labels, len(attributes)), attributes)


def checked_table(parameter: str, values: Any, names: Sequence[str]) -> np.ndarray:
    """The values as an array with a row for each sample and a column for each name; else an error."""
    values = np.asarray(as_array(values))
    if values.ndim != 2 or not len(values):
        raise ValueError(f"{parameter} has shape {values.shape}; it must have a row for each sample, (n, {len(names)})")
    if values.shape[1] != len(names):
        raise ValueError(f"{parameter} has {values.shape[1]} columns, but there are {len(names)} names; give one each")
    return values


def checked_labels(tree: Tree, labels: Any, n: int) -> np.ndarray:
    """The labels as n positions in ``tree.leaves``; else an error."""
    labels = np.asarray(labels)
    if labels.shape != (n,):
        raise ValueError(f"labels has shape {labels.shape}; with {n} samples it must be ({n},)")
    if labels.dtype.kind not in "iu" or labels.min() < 0 or labels.max() >= len(tree.leaves):
        raise ValueError(f"labels must be whole numbers from 0 to {len(tree.leaves) - 1}, positions in tree.leaves")
    return labels


def largest(values: np.ndarray, n: int) -> np.ndarray:
    """The positions of the n largest values above 0, largest first."""
    order = np.argsort(-values, kind="stable")[:n]
    return order[values[order] > 0]


def _named(names: Sequence[str], contrast: np.ndarray, n: int) -> list[str]:
    return [str(names[i]) for i in largest(contrast, n)]


def named_classes(y: Any, class_names: Sequence[str] | None, n: int) -> np.ndarray:
    """The name of each sample's class, (n,); samples without one would become a class of their own."""
    given = y if isinstance(y, list | tuple) else None  # numpy would make texts of NaN and None among texts
    y = np.asarray(as_array(y))
    if y.shape != (n,):
        raise ValueError(f"y has shape {y.shape}; with {n} samples in X it must be ({n},)")
    if y.dtype.kind not in "iubU" or given is not None:
        missing = [i for i, value in enumerate(y.tolist() if given is None else given) if is_missing(value)]
        if missing:
            raise ValueError(
                f"y is missing for {len(missing)} of {n} samples, first for sample {missing[0]}; fill the gaps, or "
                "leave those samples out of X and y"
            )
    if class_names is None:
        return y.astype(str)
    if y.dtype.kind not in "iub" or y.min() < 0 or y.max() >= len(class_names):
        raise ValueError(
            f"y holds {', '.join(map(str, np.unique(y)[:9]))}; the {len(class_names)} class_names are for the whole "
            f"numbers from 0 to {len(class_names) - 1}. Leave class_names out to show the labels themselves"
        )
    return np.array([str(name) for name in class_names])[y.astype(int)]
