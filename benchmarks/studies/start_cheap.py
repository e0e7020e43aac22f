"""Cheap ways to cluster on the same scaled input as the study's trees: scores of test samples, and seconds.

k-means, bisecting k-means, Gaussian mixtures (of diagonal and of full covariances) and HDBSCAN tell the cluster of a
test sample themselves. Where UMAP is (10 components, 15 neighbours, min_dist 0), test samples go through its
transform. Ward's method and spectral clustering know their training samples alone: a test sample gets the cluster of
most of its 10 nearest training samples. A flat clustering's tree is Ward's method on its clusters' means, in the space
where it was clustered. HDBSCAN finds its own number of clusters, each of at least a tenth of an even share; its noise
is a cluster for ACC, NMI and LP, and joins the nearest mean for DP. Methods without chance are run once.

MNIST and Fashion as a whole, and digits as pictures, which are digits again here, are run when they are named. Every
row is of one set, method and seed, and is written as soon as it is there; what is recorded is not run again. UMAP's
components of a seed serve both methods, and their seconds of a core count in both; seconds by the clock count what was
done, and are longer where other work is done beside. It needs umap-learn and hdbscan.

python -m benchmarks.studies.start_cheap [NAME ...] [--kept FOLDER | --root DATA --vectors DIR ...]
    [--methods METHOD ...] [--seeds 3] [--out benchmarks/results/start_cheap.json] [--merge FILE ...] [--show]
"""

from __future__ import annotations

import argparse
import json
import platform
import sys
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from statistics import mean, stdev
from typing import Any

import numpy as np
import torch
from sklearn.cluster import KMeans, SpectralClustering
from sklearn.metrics import pairwise_distances_argmin
from sklearn.mixture import GaussianMixture
from sklearn.neighbors import KNeighborsClassifier

from treevae.baselines import Bisecting, Ward
from treevae.metrics import accuracy, dendrogram_purity, leaf_purity, nmi
from treevae.records import source, versions
from treevae.tree import Tree

from .. import record
from .start_data import CARDS, Folders, StartSet, add_places, kept, prepared

MOST_WARD, MOST_SPECTRAL = 20_000, 10_000  # samples: what takes their square in memory
MOST_FULL = 128  # features, for full covariances
SCORES = ("DP", "ACC", "NMI", "LP")
KEY = ("data", "method", "seed")  # of a row


@dataclass(frozen=True)
class Space:
    """Both parts in other numbers than the input's, and the seconds of a core that it took."""

    train: np.ndarray
    test: np.ndarray
    seconds: float


@dataclass(frozen=True)
class Clusters:
    """What a method says: the cluster of each sample, and its tree where it makes one."""

    train: np.ndarray
    test: np.ndarray
    tree: Tree | None = None
    space: Space | None = None  # where they were clustered, if not in the input
    lent: float = 0  # seconds of a core, for what was computed for another method before


@dataclass(frozen=True)
class CheapInput:
    """What a method is given; labels are not among it."""

    train: np.ndarray
    test: np.ndarray
    k: int
    seed: int
    spaces: dict[int, Space] = field(default_factory=dict)  # UMAP's, by seed


def main() -> None:
    """Run what is not recorded, write it, print it."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("names", nargs="*", metavar="NAME", help="by default all that are not said to be left out")
    add_places(parser)
    parser.add_argument("--kept", type=Path, help="read the sets from here, as start_data --out has written them")
    parser.add_argument("--methods", nargs="+", choices=METHODS, default=list(METHODS), metavar="METHOD")
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--out", type=Path, default=record.RESULTS / "start_cheap.json")
    parser.add_argument("--merge", type=Path, nargs="+", default=[], help="first take over the rows of other records")
    parser.add_argument("--show", action="store_true", help="only print what is recorded, as a table")
    given = parser.parse_args()
    for other in given.merge:
        merge(given.out, recorded(other))
    if given.show:
        print("\n".join(table(recorded(given.out)["rows"])))
        return
    places = Folders(given.root, tuple(given.vectors))
    if any(method.startswith("umap") for method in given.methods):
        noise = np.random.default_rng(0).standard_normal((200, 8)).astype(np.float32)
        umap_hdbscan(CheapInput(noise, noise[:50], 2, 0))  # it compiles itself, which is no part of the seconds
    for name in given.names or [card.name for card in CARDS.values() if card.name not in LEFT_OUT]:
        path = given.kept / f"{name}.npz" if given.kept else None
        if path and not path.is_file():
            print(f"{name}: {path} is not there", flush=True)
            continue
        run(kept(path) if path else prepared(name, places), given.methods, given.seeds, given.out)


def run(data: StartSet, methods: list[str], seeds: int, out: Path) -> None:
    """Add the rows of one set that are missing, each as soon as it is there."""
    train, test = data.flat()
    spaces: dict[int, Space] = {}
    for method in methods:
        if why := refused(method, train):
            print(f"{data.name}, {method}: {why}", flush=True)
            continue
        for seed in range(1 if method in WITHOUT_CHANCE else seeds):
            key = {"data": data.name, "method": method, "seed": seed}
            if any(key.items() <= row.items() for row in recorded(out)["rows"]):
                continue
            began, of_core = time.perf_counter(), time.process_time()
            found = METHODS[method](CheapInput(train, test, data.n_leaves, seed, spaces))
            tree, leaf = with_tree(found, train, test)
            seconds, of_core = time.perf_counter() - began, time.process_time() - of_core + found.lent
            row = (
                key
                | scores(tree, leaf, found.test, data)
                | {"seconds": round(seconds, 2), "cpu_seconds": round(of_core, 2)}
            )
            add(out, row, data)
            print(row, flush=True)


def refused(method: str, train: np.ndarray) -> str:
    """Why a method is not run on so many samples or features; "" where it is."""
    n, n_features = train.shape
    if (method == "ward" and n > MOST_WARD) or (method == "spectral" and n > MOST_SPECTRAL):
        return f"not run, {n:,} samples need too much memory"
    return f"not run, {n_features} features" if method == "mixture, full" and n_features > MOST_FULL else ""


# -- the methods ------------------------------------------------------------------------------------------------------


def k_means(task: CheapInput) -> Clusters:
    """k-means of ten starts."""
    model = KMeans(task.k, n_init=10, random_state=task.seed).fit(task.train)
    return Clusters(model.labels_, model.predict(task.test))


def ward(task: CheapInput) -> Clusters:
    """Ward's method on all training samples."""
    model = Ward(task.k).fit(task.train)
    return Clusters(model.labels_, by_neighbours(task, model.labels_), model.tree_)


def bisecting(task: CheapInput) -> Clusters:
    """Bisecting k-means, each cut of ten starts."""
    model = Bisecting(task.k, random_state=task.seed).fit(task.train)
    return Clusters(model.labels_, model.predict(task.test), model.tree_)


def mixture(task: CheapInput, covariance: str) -> Clusters:
    """A Gaussian mixture, begun by k-means; variances have at least a thousandth of the mean feature's variance."""
    least = 1e-3 * float(task.train.var(axis=0).mean())
    model = GaussianMixture(task.k, covariance_type=covariance, reg_covar=least, n_init=3, random_state=task.seed)
    model.fit(task.train)
    return Clusters(model.predict(task.train), model.predict(task.test))


def spectral(task: CheapInput) -> Clusters:
    """Spectral clustering of the graph of ten nearest neighbours."""
    model = SpectralClustering(task.k, affinity="nearest_neighbors", n_neighbors=10, random_state=task.seed)
    labels = model.fit_predict(task.train)
    return Clusters(labels, by_neighbours(task, labels))


def umap_k_means(task: CheapInput) -> Clusters:
    """k-means on UMAP's components."""
    space, lent = umap_of(task)
    found = k_means(CheapInput(space.train, space.test, task.k, task.seed))
    return Clusters(found.train, found.test, space=space, lent=lent)


def umap_hdbscan(task: CheapInput) -> Clusters:
    """HDBSCAN on UMAP's components; −1 is noise."""
    import hdbscan

    space, lent = umap_of(task)
    least = max(5, len(task.train) // (10 * task.k))
    model = hdbscan.HDBSCAN(min_cluster_size=least, prediction_data=True).fit(space.train)
    predicted, _ = hdbscan.approximate_predict(model, space.test)
    return Clusters(model.labels_, predicted, space=space, lent=lent)


METHODS: Mapping[str, Callable[[CheapInput], Clusters]] = {
    "k-means": k_means,
    "ward": ward,
    "bisecting": bisecting,
    "mixture, diagonal": lambda task: mixture(task, "diag"),
    "mixture, full": lambda task: mixture(task, "full"),
    "spectral": spectral,
    "umap + k-means": umap_k_means,
    "umap + hdbscan": umap_hdbscan,
}
WITHOUT_CHANCE = ("ward",)
LEFT_OUT = ("digits-pictures", "mnist", "fashion")  # digits again for methods that know no pictures; the largest


def umap_of(task: CheapInput) -> tuple[Space, float]:
    """Ten components of UMAP, learnt from the training samples, and the test samples by its transform.

    Also the seconds it took, where it was there already.
    """
    import umap

    if there := task.spaces.get(task.seed):
        return there, there.seconds
    began = time.process_time()

    n_neighbors = min(15, len(task.train) - 1)
    model = umap.UMAP(n_components=10, n_neighbors=n_neighbors, min_dist=0.0, random_state=task.seed, n_jobs=1)
    train, test = (np.asarray(X, np.float32) for X in (model.fit_transform(task.train), model.transform(task.test)))
    task.spaces[task.seed] = Space(train, test, time.process_time() - began)
    return task.spaces[task.seed], 0.0


def by_neighbours(task: CheapInput, labels: np.ndarray) -> np.ndarray:
    """For each test sample the cluster of most of its ten nearest training samples."""
    votes = KNeighborsClassifier(min(10, len(labels))).fit(task.train, labels)
    return np.asarray(votes.predict(task.test))


# -- their trees, scores and records ----------------------------------------------------------------------------------


def with_tree(found: Clusters, train: np.ndarray, test: np.ndarray) -> tuple[Tree, np.ndarray]:
    """The tree, and each test sample's leaf in it: the method's own tree, or Ward's method on the clusters' means."""
    if found.tree is not None:
        return found.tree, found.test
    of_train, of_test = (found.space.train, found.space.test) if found.space else (train, test)
    sure = found.train >= 0
    if len(names := np.unique(found.train[sure])) < 2:  # all in one cluster
        return Tree(), np.zeros(len(test), dtype=int)
    centres = np.stack([of_train[found.train == one].mean(axis=0) for one in names])
    above = Ward(len(names)).fit(centres)
    clusters = found.test.copy()
    if (noise := clusters < 0).any():
        clusters[noise] = names[pairwise_distances_argmin(of_test[noise], centres)]
    return above.tree_, above.labels_[np.searchsorted(names, clusters)]


def scores(tree: Tree, leaf: np.ndarray, clusters: np.ndarray, data: StartSet) -> dict[str, Any]:
    """Per cent, of the test samples; DP of coarser classes too, where there are any."""
    y = data.y_test
    told: dict[str, Any] = {
        "DP": dendrogram_purity(tree, leaf, y),
        "ACC": accuracy(clusters, y),
        "NMI": nmi(clusters, y),
        "LP": leaf_purity(clusters, y),
    }
    told = {name: round(100 * value, 2) for name, value in told.items()}
    if data.coarse_test is not None:
        told["DP of coarser levels"] = [
            round(100 * dendrogram_purity(tree, leaf, level), 2) for level in data.coarse_test.T
        ]
    return told | {"leaves": len(tree.leaves), "noise": round(100 * float((clusters < 0).mean()), 2)}


def recorded(out: Path) -> dict[str, Any]:
    """What is written so far."""
    if not out.is_file():
        return {"sets": {}, "runs": [], "rows": []}
    told: dict[str, Any] = json.loads(out.read_text(encoding="utf-8"))
    return told


def add(out: Path, row: dict[str, Any], data: StartSet) -> None:
    """Write one more row, and how it came about: the place of its run among ``runs``."""
    run = about()
    shape = f"{len(data.X_train):,} + {len(data.X_test):,} × {' × '.join(map(str, data.X_train.shape[1:]))}"
    said = {"input": data.about, "held_out": data.held_out, "samples": shape, "leaves": data.n_leaves}
    merge(out, {"sets": {data.name: said}, "runs": [run], "rows": [row | {"run": 0}]})


def merge(out: Path, more: Mapping[str, Any]) -> None:
    """Write other rows too, but for those of a set, method and seed that are there."""
    told = recorded(out)
    there = {tuple(row[name] for name in KEY) for row in told["rows"]}
    for row in more["rows"]:
        if tuple(row[name] for name in KEY) in there:
            continue
        run = more["runs"][row["run"]]
        if run not in told["runs"]:
            told["runs"].append(run)
        told["rows"].append(row | {"run": told["runs"].index(run)})
    told["sets"] |= more["sets"]
    out.parent.mkdir(parents=True, exist_ok=True)
    beside = out.with_suffix(".new")
    beside.write_text(json.dumps(told, indent=1) + "\n", encoding="utf-8")
    beside.replace(out)


def about() -> dict[str, Any]:
    """How the rows of this run come about."""
    words = [Path(word).name for word in sys.argv[1:]]
    more = {}
    for name in ("umap-learn", "hdbscan"):
        try:
            more[name] = version(name)
        except PackageNotFoundError:
            more[name] = "not there"
    return {
        "command": " ".join(["python -m benchmarks.studies.start_cheap", *words]),
        "device": platform.processor() or platform.machine(),
        "threads": torch.get_num_threads(),
        "versions": versions() | more,
        "source": source(),
    }


def table(rows: list[dict[str, Any]]) -> list[str]:
    """Means over seeds, with standard deviations where there are several, in Markdown."""
    lines = [
        "| data | method | seeds | DP | ACC | NMI | LP | seconds of a core |",
        "| --- | --- | --- | --- | --- | --- | --- | --- |",
    ]
    keys = dict.fromkeys((row["data"], row["method"]) for row in rows)
    for name, method in sorted(keys, key=lambda key: (list(CARDS).index(key[0]), list(METHODS).index(key[1]))):
        of_key = [row for row in rows if (row["data"], row["method"]) == (name, method)]
        cells = [spread([row[score] for row in of_key]) for score in SCORES]
        of_core = [row["cpu_seconds"] for row in of_key if "cpu_seconds" in row]
        seconds = f"{mean(of_core):.1f}" if of_core else "–"
        lines.append(f"| {' | '.join([name, method, str(len(of_key)), *cells, seconds])} |")
    return lines


def spread(values: list[float]) -> str:
    """A mean and, of several values, their standard deviation."""
    return f"{mean(values):.1f}" + (f" ± {stdev(values):.1f}" if len(values) > 1 else "")


if __name__ == "__main__":
    main()
