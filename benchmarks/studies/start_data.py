"""The data of the study of ways to start: samples to train on and to test on, apart in everything that is learnt.

Components, means and levels come from training samples alone. What a set's input is, how it is scaled and which
samples are held out is said in its card. Nothing of these data is part of the project: ``--root`` names the folder of
the data sets that treevae reads, ``--vectors`` folders with letter.npz, mouse_bladder.npz, mice_protein.npz,
mushroom.csv, cifar10_features.npz and news20_minilm.npz (python -m benchmarks.studies.start_embeddings).

python -m benchmarks.studies.start_data [NAME ...] [--root DATA] [--vectors DIR ...] [--out FOLDER]
"""

from __future__ import annotations

import argparse
import csv
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from sklearn.decomposition import PCA

from treevae.data import fashion_sample
from treevae.data.dataset import own_split
from treevae.data.sets import load as load_data_set

from .start_hierarchies import HIERARCHIES, ByHand, made_by_hand

SEED = 0  # of splits, components and hierarchies
N_BY_HAND = (4000, 2000)  # training and test samples
OWN_SPLIT = "a fifth of the samples, drawn with seed 0, stratified by class"


@dataclass(frozen=True)
class Folders:
    """Where the data lie."""

    root: Path | None = None  # of treevae's data sets; None is what $TREEVAE_DATA says
    vectors: tuple[Path, ...] = ()  # folders with the other files

    def find(self, name: str) -> Path:
        """A file in the first of the folders that has it."""
        for folder in self.vectors:
            if (folder / name).is_file():
                return folder / name
        looked_in = ", ".join(map(str, self.vectors)) or "no folder"
        raise FileNotFoundError(f"{name} was looked for in {looked_in}; name its folder with --vectors")


@dataclass(frozen=True, eq=False)
class StartSet:
    """Samples of the study, ready for every method: vectors, or pictures of bytes or of levels in [0, 1]."""

    X_train: np.ndarray
    y_train: np.ndarray
    X_test: np.ndarray
    y_test: np.ndarray
    n_leaves: int
    coarse_test: np.ndarray | None = None  # (n, levels) classes of classes, the coarsest first
    name: str = ""
    about: str = ""  # the input, and how it is scaled
    held_out: str = ""  # which samples are the test samples

    def flat(self) -> tuple[np.ndarray, np.ndarray]:
        """Both parts as vectors of float32, for methods that know no pictures; bytes become levels in [0, 1]."""
        return _flat(self.X_train), _flat(self.X_test)


Read = Callable[[Folders], StartSet]


@dataclass(frozen=True)
class Card:
    """What is said of a set, and how it is read."""

    name: str
    about: str
    held_out: str
    read: Read = field(repr=False)
    from_idx: bool = False  # too large to be carried as arrays


def prepared(name: str, places: Folders) -> StartSet:
    """A set of the study by its name."""
    if name not in CARDS:
        raise ValueError(f"there is no set {name!r}; there are {', '.join(CARDS)}")
    card = CARDS[name]
    return replace(card.read(places), name=name, about=card.about, held_out=card.held_out)


def kept(path: Path) -> StartSet:
    """A set as :func:`keep` has written it."""
    with np.load(path, allow_pickle=False) as file:
        return StartSet(
            X_train=_as_read(file["X_train"]),
            y_train=file["y_train"],
            X_test=_as_read(file["X_test"]),
            y_test=file["y_test"],
            n_leaves=int(file["n_leaves"]),
            coarse_test=file.get("coarse_test"),
            name=path.stem,
            about=CARDS[path.stem].about if path.stem in CARDS else "",
            held_out=CARDS[path.stem].held_out if path.stem in CARDS else "",
        )


def keep(data: StartSet, folder: Path) -> Path:
    """Write a set into a small file: levels and components as float16, bytes as they are."""
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / f"{data.name}.npz"
    small = [X if X.dtype == np.uint8 else X.astype(np.float16) for X in (data.X_train, data.X_test)]
    more = {} if data.coarse_test is None else {"coarse_test": data.coarse_test.astype(np.int16)}
    labels = {"y_train": data.y_train.astype(np.int16), "y_test": data.y_test.astype(np.int16)}
    arrays: dict[str, Any] = {"X_train": small[0], "X_test": small[1], **labels, **more, "n_leaves": data.n_leaves}
    np.savez_compressed(path, **arrays)
    return path


# -- what is learnt from training samples -----------------------------------------------------------------------------


def components(train: np.ndarray, test: np.ndarray, n: int) -> tuple[np.ndarray, np.ndarray]:
    """The first principal components of the training samples, and the test samples in them."""
    found = PCA(n, svd_solver="full" if min(train.shape) <= 500 else "randomized", random_state=SEED).fit(train)
    return found.transform(train).astype(np.float32), found.transform(test).astype(np.float32)


def standardised(train: np.ndarray, test: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Each feature less the mean of its training samples, over their standard deviation; gaps become the mean."""
    mean, spread = np.nanmean(train, axis=0), np.nanstd(train, axis=0)
    scaled = [(np.where(np.isnan(X), mean, X) - mean) / np.where(spread > 0, spread, 1) for X in (train, test)]
    return scaled[0].astype(np.float32), scaled[1].astype(np.float32)


def one_hot(train: Sequence[Sequence[str]], test: Sequence[Sequence[str]]) -> tuple[np.ndarray, np.ndarray]:
    """A 0 or 1 for each level of each column that a training sample has; a gap, "", is a level of its own."""
    levels = [sorted(set(column)) for column in zip(*train, strict=True)]

    def encoded(rows: Sequence[Sequence[str]]) -> np.ndarray:
        columns = zip(zip(*rows, strict=True), levels, strict=True)
        return np.concatenate([np.array(column)[:, None] == np.array(of) for column, of in columns], axis=1)

    return encoded(train).astype(np.float32), encoded(test).astype(np.float32)


def whole_groups(y: np.ndarray, groups: np.ndarray, per_class: int) -> np.ndarray:
    """Which samples are test samples, where a group (a mouse) is in one part as a whole: some groups of each class."""
    chance = np.random.default_rng(SEED)
    held = [chance.permutation(np.unique(groups[y == one]))[:per_class] for one in np.unique(y)]
    return np.isin(groups, np.concatenate(held))


# -- the sets ---------------------------------------------------------------------------------------------------------


def _data_set(name: str, n_leaves: int, places: Folders, *, flat: bool = False, first: int | None = None) -> StartSet:
    """A set that treevae reads, its first training samples or all of them."""
    data = load_data_set(name, places.root)
    if data.y_train is None or data.y_test is None:
        raise ValueError(f"{name} has no classes to compare with")
    X_train, X_test = data.x_train[:first], data.x_test
    if flat:
        X_train, X_test = X_train.reshape(len(X_train), -1), X_test.reshape(len(X_test), -1)
    return StartSet(X_train, data.y_train[:first], X_test, data.y_test, n_leaves)


def _letter(places: Folders) -> StartSet:
    with np.load(places.find("letter.npz")) as file:
        X, X_test = standardised(file["X"], file["X_test"])
        return StartSet(X, file["y"], X_test, file["y_test"], 26)


def _mouse_bladder(places: Folders) -> StartSet:
    with np.load(places.find("mouse_bladder.npz")) as file:
        X, y = file["X"], file["y"]
    train, test = own_split(len(X), y)
    X_train, X_test = components(X[train], X[test], 50)
    return StartSet(X_train, y[train], X_test, y[test], 16)


def _mushroom(places: Folders) -> StartSet:
    with places.find("mushroom.csv").open(newline="", encoding="utf-8") as file:
        _, *rows = csv.reader(file)
    y = np.unique([row[-1] for row in rows], return_inverse=True)[1]
    train, test = own_split(len(rows), y)
    X_train, X_test = one_hot([rows[i][:-1] for i in train], [rows[i][:-1] for i in test])
    return StartSet(X_train, y[train], X_test, y[test], 8)


def _mice(places: Folders) -> StartSet:
    with np.load(places.find("mice_protein.npz")) as file:
        X, y, mouse = file["X"], file["y"], file["mouse"]
    held = whole_groups(y, mouse, per_class=2)
    X_train, X_test = standardised(X[~held], X[held])
    return StartSet(X_train, y[~held], X_test, y[held], 8)


def _cifar10_features(places: Folders) -> StartSet:
    with np.load(places.find("cifar10_features.npz")) as file:
        X_train, X_test = (file[key][:, :64].astype(np.float32) for key in ("train", "test"))
        return StartSet(X_train, file["y_train"], X_test, file["y_test"], 10)


def _news20_embeddings(places: Folders) -> StartSet:
    with np.load(places.find("news20_minilm.npz")) as file:
        X_train, X_test = components(file["X_train"].astype(np.float32), file["X_test"].astype(np.float32), 64)
        return StartSet(X_train, file["y_train"], X_test, file["y_test"], 20)


def _demo(places: Folders) -> StartSet:
    sample = fashion_sample.load()
    return StartSet(sample.x_train, sample.y_train, sample.x_test, sample.y_test, 10)


def _by_hand(made: ByHand, places: Folders) -> StartSet:
    n_train, n_test = N_BY_HAND
    X, levels = made_by_hand(made, n_train + n_test, SEED)
    y, (train, test) = levels[:, -1], np.split(np.arange(n_train + n_test), [n_train])
    return StartSet(X[train], y[train], X[test], y[test], made.n_leaves, coarse_test=levels[test, :-1])


def _flat(X: np.ndarray) -> np.ndarray:
    levels = X / np.float32(255) if X.dtype == np.uint8 else X
    return np.ascontiguousarray(levels.reshape(len(X), -1), dtype=np.float32)


def _as_read(X: np.ndarray) -> np.ndarray:
    return X if X.dtype == np.uint8 else X.astype(np.float32)


def _of(name: str, n_leaves: int, *, flat: bool = False, first: int | None = None) -> Read:
    return partial(_data_set, name, n_leaves, flat=flat, first=first)


def _hand_card(made: ByHand) -> Card:
    sizes = "even" if made.even else "0.5 to 40 %"
    about = f"{made.n_leaves} Gaussian groups in {len(made.branches)} levels, {made.n_features} numbers, sizes {sizes}"
    return Card(made.name, f"{about}; as made", "2,000 more of the same groups", partial(_by_hand, made))


BYTES = "pictures of 28 × 28 bytes, as levels in [0, 1]"
THEIR_TEST = "the published 10,000 test pictures"
CARDS = {
    card.name: card
    for card in (
        Card("digits", "64 numbers in [0, 1], one scale for all", OWN_SPLIT, _of("digits", 10, flat=True)),
        Card("digits-pictures", "pictures of 8 × 8 levels in [0, 1]", OWN_SPLIT, _of("digits", 10)),
        Card("mice", "77 proteins, gaps filled by the mean, one scale a feature", "two mice of each class", _mice),
        Card("mouse-bladder", "50 components of 2,000 genes, log-normalised; no scale", OWN_SPLIT, _mouse_bladder),
        Card("mushroom", "22 categories one-hot, a gap is a level of its own; no scale", OWN_SPLIT, _mushroom),
        *map(_hand_card, HIERARCHIES),
        Card(
            "omniglot5", "pictures of 28 × 28 levels in [0, 1]", "a fifth, stratified by character", _of("omniglot5", 5)
        ),
        Card("letter", "16 numbers of a glyph, one scale a feature", "the last 4,000, as published", _letter),
        Card("fashion-demo", BYTES, "the first 2,000 published test pictures", _demo),
        Card("mnist-10000", f"{BYTES}; the first 10,000", THEIR_TEST, _of("mnist", 10, first=10_000)),
        Card("fashion-10000", f"{BYTES}; the first 10,000", THEIR_TEST, _of("fashion", 10, first=10_000)),
        Card(
            "news20-embeddings",
            "64 components of 384, MiniLM's mean token of a message, of unit length before; no scale",
            "the messages after the date of the published split",
            _news20_embeddings,
        ),
        Card(
            "cifar10-features",
            "64 components of features learnt without labels, of unit length before; no scale",
            "the published 10,000 test pictures, not seen by the network",
            _cifar10_features,
        ),
        Card(
            "news20",
            "TF-IDF of 2,000 words, as the recipe has it: rows of unit length",
            "the messages after the date of the published split",
            _of("news20", 20),
        ),
        Card("mnist", BYTES, THEIR_TEST, _of("mnist", 10), from_idx=True),
        Card("fashion", BYTES, THEIR_TEST, _of("fashion", 10), from_idx=True),
    )
}  # the smallest first, about as long as methods take


def add_places(parser: argparse.ArgumentParser) -> None:
    """The options that say where the data lie."""
    parser.add_argument("--root", type=Path, help="where the data sets lie; by default what $TREEVAE_DATA says")
    parser.add_argument("--vectors", type=Path, nargs="+", default=[], help="folders with the other files")


def main() -> None:
    """Prepare sets, say what they are, and write them where they are wanted."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("names", nargs="*", metavar="NAME", help="by default all that can be carried as arrays")
    add_places(parser)
    parser.add_argument("--out", type=Path, help="a folder for NAME.npz; nothing is written without it")
    given = parser.parse_args()
    places = Folders(given.root, tuple(given.vectors))
    for name in given.names or [card.name for card in CARDS.values() if not card.from_idx]:
        data = prepared(name, places)
        shapes = f"{data.X_train.shape} + {data.X_test.shape}, {len(np.unique(data.y_train))} classes"
        print(f"{name}: {shapes}, {data.n_leaves} leaves; {data.about}; held out: {data.held_out}", flush=True)
        if given.out:
            print(f"  wrote {keep(data, given.out)}", flush=True)


if __name__ == "__main__":
    main()
