"""The paper's tables as data: what is fitted for each figure, where the figure stands in a record, what the paper has.

Figures are copied from the paper as printed, mean±sd of ten seeds; the digits are the paper's.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from ..recipes import RECIPES
from ..tree import Tree

DATA_TITLES = {
    "mnist": "MNIST",
    "fashion": "Fashion",
    "news20": "20Newsgroups",
    "omniglot5": "Omniglot-5",
    "omniglot": "Omniglot",
    "cifar10": "CIFAR-10",
    "cifar100": "CIFAR-100",
    "celeba": "CelebA",
    "digits": "Digits",
}
METHOD_TITLES = {
    "agg": "Ward",
    "vae": "VAE",
    "laddervae": "LadderVAE",
    "laddervae-matched": "LadderVAE + Ward, as many weights",
    "deepect": "DeepECT",
    "treevae": "TreeVAE",
    "bisecting": "Bisecting k-means",
    "hdbscan": "HDBSCAN",
}


@dataclass(frozen=True)
class Figure:
    """A figure of the paper: a mean and its standard deviation, with the digits it is printed with."""

    mean: float
    sd: float | None
    digits: int

    @classmethod
    def of(cls, text: str) -> Figure | None:
        """The figure in a text as 63.7±0.0 or 97.2; None for –."""
        if text == "–":
            return None
        mean, _, sd = text.partition("±")
        return cls(float(mean), float(sd) if sd else None, len(mean.partition(".")[2]))


@dataclass(frozen=True)
class Score:
    """Where a score stands in a record, and which way is better."""

    where: tuple[str | int, ...]
    better: int = 1  # 1: more, -1: less, 0: neither
    others: bool = False  # 100 less what stands there

    def is_in(self, record: Mapping[str, Any]) -> bool:
        """Whether a record has it; the row of all leaves counts for each, as a leaf may be pruned or empty."""
        found: Any = record
        for key in self.where:
            if isinstance(key, int):
                break
            found = found.get(key) if isinstance(found, Mapping) else None
        return found is not None

    def read(self, record: Mapping[str, Any]) -> float | None:
        """The score, or None where the record has none."""
        found: Any = record
        for key in self.where:
            try:
                found = found[key]
            except (KeyError, IndexError, TypeError):
                return None
        if found is None:
            return None
        return 100 - float(found) if self.others else float(found)


@dataclass(frozen=True)
class Entry:
    """One figure of a table."""

    score: Score
    paper: Figure | None
    changes: Mapping[str, Any] = field(default_factory=dict)  # to the recipe


@dataclass(frozen=True)
class Row:
    """A line of a table: what one method, in one variant, reaches on a data set."""

    data: str
    method: str
    entries: tuple[Entry, ...]
    label: str = ""  # what it is called, if not after its method

    @property
    def title(self) -> str:
        """What the line is called."""
        return self.label or METHOD_TITLES.get(self.method, self.method)


@dataclass(frozen=True)
class Table:
    """A table of the paper."""

    name: str
    title: str
    columns: tuple[str, ...]
    rows: tuple[Row, ...]
    note: str = ""  # how to read it, and in what it is not the paper's
    one_seed: bool = False  # its figures are of a single tree
    kind: str = "method"  # what its rows are of

    @property
    def has_paper(self) -> bool:
        """Whether the paper has any of its figures."""
        return any(entry.paper is not None for row in self.rows for entry in row.entries)

    def only(self, data: Sequence[str] | None, methods: Sequence[str] | None) -> Table:
        """The rows of some data sets and methods; None is all. Raises where the table has no such name or row."""
        of_rows = {"data set": [row.data for row in self.rows], "method": [row.method for row in self.rows]}
        for given, (what, there) in zip((data, methods), of_rows.items(), strict=True):
            if unknown := [name for name in given or () if name not in there]:
                names = ", ".join(dict.fromkeys(there))
                raise ValueError(f"there is no {what} {unknown[0]!r} in the table {self.name}; there are {names}")
        rows = tuple(
            row for row in self.rows if row.data in (data or [row.data]) and row.method in (methods or [row.method])
        )
        if not rows:
            of_data = {name: dict.fromkeys(row.method for row in self.rows if row.data == name) for name in data or ()}
            there_are = "; ".join(f"{name}: {', '.join(there)}" for name, there in of_data.items())
            wanted = f"{' or '.join(methods or ())} on {' or '.join(of_data)}"
            raise ValueError(f"there is no row of {wanted} in the table {self.name}; there are {there_are}")
        return replace(self, rows=rows)


SCORES = {
    **{name: Score(("scores_percent", name)) for name in ("DP", "LP", "ACC", "NMI")},
    "LL": Score(("likelihood", "ll_paper", "mean")),  # to compare with Table 2; it is no bound (how-it-works.md)
    "RL": Score(("elbo", "RL"), better=-1),
    "ELBO": Score(("elbo", "ELBO")),
}
FINE_NMI = Score(("fine_scores_percent", "NMI"))

# -- Table 1 ------------------------------------------------------------------------------------------------------

LARGER = {"mnist": 20, "fashion": 20, "news20": 30, "omniglot5": 20, "cifar10": 20, "cifar100": 30}  # leaves for DP, LP
CLUSTERING = """
mnist agg 63.7±0.0 78.6±0.0 69.5±0.0 71.1±0.0
mnist vae 79.9±2.2 90.8±1.4 86.6±4.9 81.6±2.0
mnist laddervae 81.6±3.9 90.9±2.5 80.3±5.6 82.0±2.1
mnist deepect 74.6±5.9 90.7±3.2 74.9±6.2 76.7±4.2
mnist treevae 87.9±4.9 96.0±1.9 90.2±7.5 90.0±4.6
mnist bisecting – – – –
mnist hdbscan – – – –
fashion agg 45.0±0.0 67.6±0.0 51.3±0.0 52.6±0.0
fashion vae 44.3±2.5 65.9±2.3 54.9±4.4 56.1±3.2
fashion laddervae 49.5±2.3 67.6±1.2 55.9±3.0 60.7±1.4
fashion deepect 44.9±3.3 67.8±1.4 51.8±5.7 57.7±3.7
fashion treevae 54.4±2.4 71.4±2.0 63.6±3.3 64.7±1.4
fashion bisecting – – – –
fashion hdbscan – – – –
news20 agg 13.1±0.0 30.8±0.0 26.1±0.0 27.5±0.0
news20 vae 7.1±0.3 18.1±0.5 15.2±0.4 11.6±0.3
news20 laddervae 9.0±0.2 20.0±0.7 17.4±0.9 17.8±0.6
news20 deepect 9.3±1.8 17.2±3.8 15.6±3.0 18.1±4.1
news20 treevae 17.5±1.5 38.4±1.6 32.8±2.3 34.4±1.5
news20 bisecting – – – –
news20 hdbscan – – – –
omniglot5 agg 41.4±0.0 63.7±0.0 53.2±0.0 33.3±0.0
omniglot5 vae 46.3±2.3 68.1±1.6 52.9±4.2 34.4±2.9
omniglot5 laddervae 49.8±3.9 71.3±2.0 59.6±4.9 44.2±4.7
omniglot5 deepect 33.3±2.5 55.1±2.8 41.1±4.2 23.5±4.3
omniglot5 treevae 58.8±4.0 77.7±3.9 63.9±7.0 50.0±5.9
omniglot5 bisecting – – – –
omniglot5 hdbscan – – – –
cifar10 vae 10.54±0.12 16.33±0.15 14.43±0.19 1.86±1.66
cifar10 laddervae 12.81±0.20 25.37±0.62 19.29±0.60 7.41±0.42
cifar10 deepect 10.01±0.02 10.30±0.40 10.31±0.39 0.18±0.10
cifar10 treevae 35.30±1.15 53.85±1.23 52.98±1.34 41.44±1.13
cifar100 vae 5.27±0.02 9.86±0.19 8.82±0.11 2.46±0.10
cifar100 laddervae 6.36±0.07 16.08±0.28 14.01±0.41 8.99±0.41
cifar100 deepect 5.28±0.18 6.97±0.69 6.97±0.69 1.71±0.86
cifar100 treevae 10.44±0.38 24.16±0.65 21.82±0.77 17.80±0.42
"""

# -- Table 2 ------------------------------------------------------------------------------------------------------

GENERATIVE = """
mnist vae -101.9±0.2 87.2±0.3 -104.6±0.3
mnist laddervae -99.9±0.5 87.8±0.7 -103.2±0.7
mnist treevae -92.9±0.2 80.3±0.2 -96.8±0.2
fashion vae -242.2±0.2 231.7±0.5 -245.4±0.5
fashion laddervae -239.4±0.5 231.5±0.6 -243.0±0.6
fashion treevae -234.7±0.1 226.5±0.3 -239.2±0.4
news20 vae -44.26±0.01 45.52±0.03 -44.61±0.01
news20 laddervae -44.30±0.03 43.52±0.03 -44.62±0.02
news20 treevae -51.67±0.59 45.83±0.36 -52.79±0.66
omniglot vae -115.3±0.3 101.6±0.3 -118.2±0.3
omniglot laddervae -113.1±0.5 100.7±0.7 -117.5±0.6
omniglot treevae -110.4±0.5 96.9±0.5 -114.6±0.4
"""

# -- Table 3 ------------------------------------------------------------------------------------------------------

# what the paper calls it, the attribute in a record (whose last two records.py makes of CelebA's), whether its absence
# is meant, and the frequency in each of eight leaves
ATTRIBUTES = (
    ("Female", "Male", True, "97.2 55.0 97.7 86.6 23.1 30.7 46.6 43.7"),
    ("Bangs", "Bangs", False, "1.6 1.2 24.1 61.7 3.4 11.1 9.1 11.4"),
    ("Blonde", "Blond_Hair", False, "1.1 3.7 66.7 2.2 5.8 2.6 26.1 7.1"),
    ("Makeup", "Heavy_Makeup", False, "75.7 43.4 76.6 59.7 15.0 12.4 16.3 12.8"),
    ("Smiling", "Smiling", False, "54.3 66.6 66.4 51.2 54.7 42.4 37.3 22.4"),
    ("Hair Loss", "Hair_Loss", False, "3.6 17.8 3.0 0.2 18.9 6.9 21.2 10.6"),
    ("Beard", "Beard", False, "1.1 20.6 0.4 3.7 39.5 36.5 21.3 21.4"),
)

# -- a first try --------------------------------------------------------------------------------------------------

DIGITS = """
digits treevae – – – –
digits vae – – – –
digits laddervae – – – –
digits deepect – – – –
digits agg – – – –
digits bisecting – – – –
digits hdbscan – – – –
"""

# -- ablations ----------------------------------------------------------------------------------------------------

Z_SMALL, Z_MIDDLE, Z_LARGE = [2, 4, 8, 16, 32, 64], [4, 8, 16, 32, 64, 128], [8, 16, 32, 64, 128, 256]
H_SMALL, H_MIDDLE, H_LARGE = [8, 16, 32, 64, 128], [16, 32, 64, 128, 256], [32, 64, 128, 256, 512]
SIZES: tuple[tuple[str, dict[str, Any], str], ...] = (
    ("base", {}, "63.5±4.1 63.9±2.2 -239.2±0.3"),
    ("(A) z of 2", {"latent_dim": 2}, "49.8±4.0 51.8±2.7 -249.5±0.4"),
    ("(A) z of 4", {"latent_dim": 4}, "60.0±4.7 61.0±3.7 -242.6±0.4"),
    ("(A) z of 16", {"latent_dim": 16}, "61.0±4.5 63.0±2.4 -238.8±0.4"),
    ("(A) z of 32", {"latent_dim": 32}, "62.7±4.4 63.5±2.8 -238.7±0.4"),
    ("(B) MLPs of 16", {"hidden_dim": 16}, "58.3±3.5 60.6±2.1 -241.5±0.3"),
    ("(B) MLPs of 32", {"hidden_dim": 32}, "60.6±3.6 62.7±2.5 -240.4±0.4"),
    ("(B) MLPs of 64", {"hidden_dim": 64}, "62.6±3.8 63.5±1.4 -239.6±0.3"),
    ("(B) MLPs of 256", {"hidden_dim": 256}, "62.3±4.9 63.4±3.9 -239.2±0.4"),
    ("(C) z 2…64, MLPs 8…128", {"latent_dim": Z_SMALL, "hidden_dim": H_SMALL}, "56.7±4.0 59.9±3.1 -239.2±0.4"),
    ("(C) z 2…64, MLPs 16…256", {"latent_dim": Z_SMALL, "hidden_dim": H_MIDDLE}, "60.9±5.3 62.6±2.4 -238.6±0.3"),
    ("(C) z 4…128, MLPs 8…128", {"latent_dim": Z_MIDDLE, "hidden_dim": H_SMALL}, "58.5±4.4 61.3±2.5 -239.1±0.4"),
    ("(C) z 4…128, MLPs 16…256", {"latent_dim": Z_MIDDLE, "hidden_dim": H_MIDDLE}, "62.6±3.4 63.6±1.5 -238.8±0.3"),
    ("(C) z 8…256, MLPs 16…256", {"latent_dim": Z_LARGE, "hidden_dim": H_MIDDLE}, "61.1±3.7 61.7±2.9 -238.9±0.3"),
    ("(C) z 8…256, MLPs 32…512", {"latent_dim": Z_LARGE, "hidden_dim": H_LARGE}, "60.5±4.7 61.1±3.1 -239.1±0.3"),
    ("(D) MLPs of 2 layers", {"transformation_layers": 2}, "60.3±5.3 61.6±3.5 -239.0±0.3"),
    ("(D) MLPs of 3 layers", {"transformation_layers": 3}, "61.4±4.2 62.9±3.2 -239.0±0.3"),
    ("(E) routers of 1 layer", {"router_layers": 1}, "59.6±4.0 62.3±2.0 -239.2±0.4"),
    ("(E) routers of 3 layers", {"router_layers": 3}, "62.1±4.4 63.6±3.1 -239.1±0.4"),
    (
        "(F) 5 levels",
        {"max_depth": 4},
        "64.0±4.6 64.4±2.7 -239.2±0.3",
    ),  # levels are counted with the root, depth is not
    ("(F) 7 levels", {"max_depth": 6}, "61.0±4.9 62.9±2.9 -239.2±0.3"),
    ("(F) 8 levels", {"max_depth": 7}, "62.1±5.2 63.6±2.7 -239.1±0.4"),
)
ON_FASHION = "63.6±3.3 64.7±1.4 -234.7±0.1 226.5±0.3 -239.2±0.4"  # TreeVAE, in two ablations
MATCHED = "56.4±1.9 62.3±2.0 -233.7±0.1 224.8±0.3 -238.9±0.3"
FIXED = "35.1±4.8 54.1±5.8 -237.4±0.4 228.9±0.5 -241.0±0.5"
EVEN_TREE = Tree({0: (1, 2), 1: (3, 4), 2: (5, 6), 3: (7, 8), 4: (9, 10), 5: (11, 12), 6: (13, 14), 7: (15, 16),
                  11: (17, 18)})  # fmt: skip
LOSSES: tuple[tuple[str, dict[str, Any], str], ...] = (
    ("both, (A) + (B)", {}, "44.1±0.7"),
    ("(A) routers", {"contrastive_loss": "routers"}, "21.7±4.0"),
    ("(B) bottom-up", {"contrastive_loss": "bottom_up"}, "6.0±6.0"),
    ("(C) routers, transposed", {"contrastive_loss": "transposed"}, "23.0±1.2"),
    ("(D) encoder only", {"contrastive_loss": "encoder"}, "0.2±0.0"),
    ("(E) Jensen-Shannon of routers", {"contrastive_loss": "jensen_shannon"}, "1.0±1.3"),
)
PREDICTED = ((10, "15.99±0.85"), (20, "17.80±0.42"), (32, "19.33±0.41"))


ON_LATENTS = {name: f"{METHOD_TITLES[name]} + Ward" for name in ("vae", "laddervae")}  # in tables of clusters


def _row(data: str, columns: Sequence[str], figures: str, label: str = "", changes: Mapping[str, Any] | None = None,
         method: str = "treevae") -> Row:  # fmt: skip
    """A row whose figures are all of one fit."""
    pairs = zip(columns, figures.split(), strict=True)
    return Row(data, method, tuple(Entry(SCORES[name], Figure.of(text), changes or {}) for name, text in pairs), label)


def _clustering() -> Iterable[Row]:
    """Dendrogram and leaf purity are of larger trees, accuracy and mutual information of as many leaves as classes."""
    for line in CLUSTERING.strip().splitlines():
        data, method, *figures = line.split()
        entries = [
            Entry(SCORES[name], Figure.of(text), {"n_leaves": LARGER[data]} if name in ("DP", "LP") else {})
            for name, text in zip(("DP", "LP", "ACC", "NMI"), figures, strict=True)
        ]
        yield Row(data, method, tuple(entries), ON_LATENTS.get(method, ""))


def _digits() -> Iterable[Row]:
    for line in DIGITS.strip().splitlines():
        data, method, figures = line.split(maxsplit=2)
        yield _row(data, ("DP", "LP", "ACC", "NMI"), figures, ON_LATENTS.get(method, ""), method=method)


def _generative() -> Iterable[Row]:
    """Trees have ten leaves, also on 20Newsgroups, whose recipe has twenty: those are a row of their own."""
    columns = ("LL", "RL", "ELBO")
    for line in GENERATIVE.strip().splitlines():
        data, method, figures = line.split(maxsplit=2)
        of_ten = method == "treevae" and RECIPES[data]["n_leaves"] != 10
        yield _row(data, columns, figures, changes={"n_leaves": 10} if of_ten else None, method=method)
        if of_ten:
            yield _row(data, columns, "– – –", f"TreeVAE, {RECIPES[data]['n_leaves']} leaves")


def _attributes() -> Iterable[Row]:
    for label, name, absent, figures in ATTRIBUTES:
        entries = [
            Entry(Score(("leaf_attributes_percent", name, leaf), 0, absent), Figure.of(text))
            for leaf, text in enumerate(figures.split())
        ]
        yield Row("celeba", "treevae", tuple(entries), label)


ALL = ("ACC", "NMI", "LL", "RL", "ELBO")
FIXED_TREE = {"tree": json.loads(EVEN_TREE.to_json())}
TABLES = {
    table.name: table
    for table in (
        Table(
            "clustering",
            "Table 1: hierarchical clustering (%)",
            ("DP", "LP", "ACC", "NMI"),
            tuple(_clustering()),
            "DP and LP are of trees of 20 leaves (30 for 20Newsgroups and CIFAR-100), ACC and NMI of as many leaves as "
            "classes. Ward (the paper's Agg), bisecting k-means and HDBSCAN cluster the test samples themselves, VAE + "
            "Ward and LadderVAE + Ward their latents. CIFAR is contrastive.",
        ),
        Table(
            "generative",
            "Table 2: generative performance (nats)",
            ("LL", "RL", "ELBO"),
            tuple(_generative()),
            "Less is better for RL. Trees have ten leaves, unless said. The paper's RL of the VAE on 20Newsgroups "
            "exceeds its -ELBO; one is a misprint.",
        ),
        Table(
            "celeba-attributes",
            "Table 3: frequency (%) of attributes in the leaves of a tree on CelebA",
            tuple(f"leaf {k}" for k in range(1, 9)),
            tuple(_attributes()),
            "One tree, its leaves from left to right; leaf k of ours and leaf k of the paper's are different leaves.",
            one_seed=True,
            kind="attribute",
        ),
        Table(
            "sizes",
            "Ablation: sizes of the networks, on Fashion",
            ("ACC", "NMI", "ELBO"),
            tuple(_row("fashion", ("ACC", "NMI", "ELBO"), text, label, changes) for label, changes, text in SIZES),
            "In (C) sizes grow with depth, root first.",
        ),
        Table(
            "matched-ladder",
            "Ablation: LadderVAE with as many weights as TreeVAE in training, on Fashion",
            ALL,
            (
                _row("fashion", ALL, MATCHED, method="laddervae-matched"),
                _row("fashion", ALL, ON_FASHION),
            ),
        ),
        Table(
            "fixed-tree",
            "Ablation: a fixed tree, on Fashion",
            ALL,
            (
                _row("fashion", ALL, FIXED, "fixed TreeVAE", FIXED_TREE),
                _row("fashion", ALL, ON_FASHION),
            ),
            "The paper does not say which tree was fixed; ours is as even as ten leaves allow.",
        ),
        Table(
            "contrastive-losses",
            "Ablation: contrastive losses, on CIFAR-10",
            ("NMI",),
            tuple(_row("cifar10", ("NMI",), text, label, changes) for label, changes, text in LOSSES),
            'The paper used "a slightly modified version of CIFAR-10" and does not say which; ours is CIFAR-10.',
        ),
        Table(
            "predicted-clusters",
            "Ablation: number of predicted clusters, on CIFAR-100",
            ("NMI",),
            tuple(_row("cifar100", ("NMI",), text, f"{n} leaves", {"n_leaves": n}) for n, text in PREDICTED),
            "Against the 20 superclasses.",
        ),
        Table(
            "true-clusters",
            "Ablation: number of true classes, on CIFAR-100",
            ("NMI",),
            (
                _row("cifar100", ("NMI",), "17.80±0.42", "20 superclasses"),
                Row("cifar100", "treevae", (Entry(FINE_NMI, Figure.of("22.74±0.36")),), "100 classes"),
            ),
            "Trees of 20 leaves.",
        ),
        Table(
            "digits",
            "A first try: hierarchical clustering (%) of scikit-learn's digits, which need no download",
            ("DP", "LP", "ACC", "NMI"),
            tuple(_digits()),
            "No table of the paper. Trees of ten leaves.",
        ),
    )
}


def table_of(name: str) -> Table:
    """A table by name."""
    if name not in TABLES:
        raise ValueError(f"there is no table {name!r}; there are {', '.join(TABLES)}")
    return TABLES[name]
