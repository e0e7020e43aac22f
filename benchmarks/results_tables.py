"""The tables of the page of results and of its history, each from the records of what was run."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import pairwise
from pathlib import Path
from typing import Any, NamedTuple

import ranking
import spread_table
from gains import gain, markdown, mean

from treevae.experiments.chance import Mean, by_chance
from treevae.experiments.methods import METHODS
from treevae.experiments.showing import as_markdown, chance_of, lines
from treevae.experiments.store import Store
from treevae.experiments.tables import Figure, table_of

ROOT = Path(__file__).parents[1]
STORE = Store(ranking.RESULTS)
ALONE = ROOT / "benchmarks" / "results"  # records of single questions
SCORES = ("DP", "LP", "ACC", "NMI")


def recorded(data: str, method: str = "treevae", **settings: Any) -> dict[int, dict[str, Any]]:
    """The records of a method's fits of full length, by seed."""
    return STORE.seeds(METHODS[method].cell(data, settings, 1.0, 0))


def alone(name: str) -> Any:
    """The record of a single question; of several lines a list."""
    text = (ALONE / name).read_text(encoding="utf-8")
    return [json.loads(line) for line in text.splitlines()] if name.endswith("l") else json.loads(text)


def of_the_paper(data: str, score: str, method: str = "treevae") -> Figure:
    """The paper's figure of a method on a data set."""
    table = table_of("clustering" if score in SCORES else "generative")
    (row,) = [row for row in table.rows if (row.data, row.method) == (data, method) and "leaves" not in row.label]
    figure = row.entries[table.columns.index(score)].paper
    assert figure is not None
    return figure


def printed(figure: Figure) -> str:
    """A figure of the paper as it prints it, to the digit that our tables have."""
    return f"{figure.mean:.1f} ± {figure.sd:.1f}".replace("-", "−")


# -- the page of results ------------------------------------------------------------------------------------------


def defaults() -> list[str]:
    """What the defaults give, beside the paper."""
    rows = []
    for data, label in (("mnist", "MNIST"), ("fashion", "Fashion-MNIST")):
        runs = spread_table.by_setting()[data, 150, spread_table.DEFAULT]["runs"]
        cells = (
            cell
            for score in ("ACC", "NMI", "ELBO")
            for cell in (mean([run[score] for run in runs]), printed(of_the_paper(data, score)))
        )
        rows.append([label, str(len(runs)), *cells])
    return markdown("data | seeds | ACC | paper | NMI | paper | ELBO | paper", rows)


def leads() -> list[str]:
    """By how much the defaults are ahead of the paper's figures, and of its plan as we run it."""
    rows = []
    for data, label in (("mnist", "MNIST"), ("fashion", "Fashion-MNIST")):
        runs = spread_table.by_setting()[data, 150, spread_table.DEFAULT]["runs"]
        plan = [run["scores_percent"] for run in recorded(data).values()]
        paper, ours = list[str](), list[str]()
        for score in ("ACC", "NMI"):
            values, one, figure = [run[score] for run in runs], [run[score] for run in plan], of_the_paper(data, score)
            more = f"{Mean.of(values).mean - figure.mean:.1f}"
            paper += [more, spread_table.written_p(chance_of(Mean.of(values), figure))]
            ours += [gain(values, one), spread_table.written_p(by_chance(Mean.of(values), Mean.of(one)))]
        rows += [[label, "the paper's mean", *paper], [label, f"one candidate, {len(plan)} seeds", *ours]]
    return markdown("data | over | ACC | p | NMI | p", rows)


def recipes() -> list[str]:
    """The trees of the paper's first table, by its recipes."""
    trees = (line for line in lines(table_of("clustering"), STORE, 1.0) if line.title == "TreeVAE")
    rows = (
        [
            line.data,
            line.seeds,
            *(cell for one in line.figures for cell in (f"{one.ours} {one.mark}".strip(), one.paper)),
        ]
        for line in trees
    )
    return markdown("data | seeds | DP | paper | LP | paper | ACC | paper | NMI | paper", rows)


class Mark(NamedTuple):
    """What a correct implementation should reach on a data set, as was set before the runs."""

    label: str
    data: str
    settings: Mapping[str, int] = {}
    elbo: tuple[float, float] | None = None  # with its tolerance
    rl: tuple[float, float] | None = None
    acc: int | None = None  # the paper's mean less about one standard deviation
    nmi: int | None = None
    classes: bool = True  # whether leaves are to be the classes


MARKS = (
    Mark("MNIST, 10", "mnist", {}, (-96.8, 0.5), (80.3, 0.5), 83, 85),
    Mark("Fashion, 10", "fashion", {}, (-239.2, 0.7), (226.5, 0.7), 60, 63),
    Mark("20Newsgroups, 10", "news20", {"n_leaves": 10}, (-52.8, 0.0), classes=False),
    Mark("20Newsgroups, 20", "news20", acc=30, nmi=33),
    Mark("Omniglot-5, 5", "omniglot5", acc=57, nmi=44),
    Mark("CIFAR-10, 10", "cifar10", acc=51, nmi=40),
    Mark("CIFAR-100, 20", "cifar100", acc=21, nmi=17),
    Mark("Omniglot, 10", "omniglot", {}, (-114.6, 1.0), (96.9, 1.0), classes=False),
    Mark("CelebA, 8 (8,000 pictures)", "celeba", classes=False),
)


def marks() -> list[str]:
    """The recipes' runs beside the marks."""

    def nats(values: Sequence[float], mark: tuple[float, float] | None, better: int) -> str:
        text = mean(values, 2 if len(values) > 1 else 1)
        if mark is None:
            return text
        goal, tolerance = mark
        said = f"{goal:.1f}" + (f" ± {tolerance:.1f}" if tolerance else "")
        short = better * (sum(values) / len(values) - goal) < -tolerance
        return f"{text} ({said})".replace("-", "−") + "; **falls short**" * short

    def score(values: Sequence[float], mark: int | None) -> str:
        return f"{mean(values)} ({mark})" + "; **falls short**" * (sum(values) / len(values) < (mark or 0))

    rows = []
    for mark in MARKS:
        runs = list(recorded(mark.data, **mark.settings).values())
        cells = [nats([run["elbo"]["ELBO"] for run in runs], mark.elbo, 1)]
        cells.append(nats([run["elbo"]["RL"] for run in runs], mark.rl, -1))
        for name, goal in (("ACC", mark.acc), ("NMI", mark.nmi)):
            cells.append(score([run["scores_percent"][name] for run in runs], goal) if mark.classes else "–")
        rows.append([mark.label, str(len(runs)), *cells])
    return markdown("data, leaves | seeds | ELBO (mark) | RL (mark) | ACC (mark) | NMI (mark)", rows)


def likelihoods() -> list[str]:
    """Where a run has them: the paper's formula for log p(x), and the true bound."""
    rows = []
    for mark in MARKS[:3]:
        runs = {
            seed: run["likelihood"] for seed, run in recorded(mark.data, **mark.settings).items() if "likelihood" in run
        }
        ours, bound = (mean([run[name]["mean"] for run in runs.values()]) for name in ("ll_paper", "ll_iwae"))
        seeds = f"{min(runs)} to {max(runs)}" if len(runs) > 1 else str(*runs)
        rows.append([mark.label, seeds, ours, printed(of_the_paper(mark.data, "LL")), bound])
    return markdown("data, leaves | seeds | LL, the paper's formula | paper | true bound", rows)


TIMES: tuple[tuple[str, str, dict[str, int], tuple[int, ...], str], ...] = (  # with what the authors report of a run
    ("MNIST, seed 0 again, with its likelihood", "mnist", {}, (0,), ""),
    ("MNIST, 20 leaves, three seeds", "mnist", {"n_leaves": 20}, (0, 1, 2), ""),
    ("Fashion, three seeds", "fashion", {}, (0, 1, 2), "1 to 2 hours"),
    ("Fashion, three others, with their likelihoods", "fashion", {}, (3, 4, 5), ""),
    ("Fashion, 20 leaves, three seeds", "fashion", {"n_leaves": 20}, (0, 1, 2), ""),
    ("20Newsgroups, three seeds", "news20", {}, (0, 1, 2), "30 minutes"),
    ("20Newsgroups, 10 leaves, three seeds, with their likelihoods", "news20", {"n_leaves": 10}, (0, 1, 2), ""),
    ("Omniglot-5, three seeds", "omniglot5", {}, (0, 1, 2), "30 minutes"),
    ("Omniglot, one seed", "omniglot", {}, (0,), "1 to 2 hours"),
    ("CIFAR-10, one seed", "cifar10", {}, (0,), "5 hours"),
    ("CIFAR-100, one seed", "cifar100", {}, (0,), "9 hours"),
    ("CelebA, one seed, a twelfth of the paper's pictures", "celeba", {}, (0,), "8 hours (RTX 3090)"),
)


def times() -> list[str]:
    """Seconds of the recipes' runs; those of seeds side by side are of the one that took longest."""
    rows = [
        [label, f"{alone(name)['seconds']:,.0f}", authors]
        for label, name, authors in (
            ("MNIST, one seed", "mnist-1-seed.json", "1 to 2 hours"),
            ("MNIST, ten seeds side by side", "mnist-10-seeds.json", ""),
        )
    ]
    for label, data, settings, seeds, authors in TIMES:
        runs = recorded(data, **settings)
        rows.append([label, f"{max(runs[seed]['seconds'] for seed in seeds):,.0f}", authors])
    return markdown("run | seconds | authors, one run on an RTX 3080", rows)


def demo() -> list[str]:
    """The demo's scores."""
    scores = json.loads((ROOT / "docs" / "runs" / "demo.json").read_text(encoding="utf-8"))["scores_percent"]
    rows = ([method, *(f"{of[name]:.1f}" for name in SCORES)] for method, of in scores.items())
    return markdown("method | DP | LP | ACC | NMI", rows)


def written(name: str) -> list[str]:
    """A table of the paper, as `treevae paper show` writes it, without its title and remarks."""
    table = table_of(name)
    return [line for line in as_markdown(table, lines(table, STORE, 1.0), 1.0).splitlines() if line.startswith("| ")]


def between_methods() -> list[str]:
    """The gains of the methods over each other, and how many are more than chance explains."""
    return [*ranking.rows(), "", ranking.multiplicity(), "", *ranking.beside_the_paper()]


def digits() -> list[str]:
    """The digits, with the gain of LadderVAE over TreeVAE below them."""
    both = (
        [run["scores_percent"] for run in recorded("digits", method).values()] for method in ("laddervae", "treevae")
    )
    ladders, trees = both
    gains = (gain([one[score] for one in ladders], [one[score] for one in trees]) for score in SCORES)
    return [*written("digits"), f"| Digits | *LadderVAE + Ward over TreeVAE* | {len(trees)} | {' | '.join(gains)} |"]


# -- its history --------------------------------------------------------------------------------------------------


def ward_on_texts() -> list[str]:
    """Ward's figures on 20Newsgroups by which of equally frequent words are kept."""
    rows = [
        [one["choice"], *(f"{one[score]:.1f}" for score in SCORES)]
        for one in alone("news20_ties-cpu.json")["ward_percent"]
    ]
    paper = ["the paper's", *(f"{of_the_paper('news20', score, 'agg').mean:.1f}" for score in SCORES)]
    return markdown("the words that are kept | DP | LP | ACC | NMI", [*rows, paper])


def _look(name: str, when: str, looks: Iterable[Mapping[str, Any]]) -> list[str]:
    """A row of the ELBO, its terms and the clusters, where they were recorded."""
    of = list(looks)

    def cell(values: Iterable[float | None], digits: int = 1) -> str:
        there = [value for value in values if value is not None]
        return mean(there, digits) if there else "–"

    kl = [one["kl_root"] + one["kl_nodes"] + one["kl_decisions"] for one in of]
    scores = (cell([one.get(score) for one in of]) for score in ("ACC", "NMI"))
    return [
        name,
        when,
        cell([one["ELBO"] for one in of]),
        cell([-one["reconstruction"] for one in of]),
        cell(kl),
        *scores,
    ]


def _grown(name: str) -> list[dict[str, Any]]:
    """What a record of stages tells of test texts, at every look while a tree of its leaves was grown and after."""
    record = alone(f"news20_stages-{name}.json")
    looks = [*record["growing"], *record["final"]["paper"]]
    percent = ({k: 100 * v for k, v in one["test"].items() if k in SCORES} for one in looks)
    return [{**one, **one["test"], **of} for one, of in zip(looks, percent, strict=True)]


def texts() -> list[str]:
    """The ELBO of 20Newsgroups with the stages that train the whole tree while it grows, and without them."""

    def recipe(**settings: int) -> list[dict[str, Any]]:
        return [run["elbo"] | run["scores_percent"] for run in recorded("news20", **settings).values()]

    def ends(name: str, tree: str) -> Iterator[list[str]]:
        looks = _grown(name)
        grown = [one for one in looks if one["stage"] != "final"][-1]
        yield _look(tree, "when grown, 1", [grown])
        finals = [one for one in looks if one["stage"] == "final"]
        if len(finals) > 1:
            yield _look(tree, f"after {finals[0]['epoch']} epochs of the final stage, 1", finals[:1])
        yield _look(tree, "at the end, 1", finals[-1:])

    ten = [one for one in _grown("cuda") if one["leaves"] == 10][-1]
    rows = [
        _look("10 leaves, recipe", "when grown, on the way to 20, 1", [ten]),
        _look("10 leaves, recipe", "at the end, 3", recipe(n_leaves=10)),
        *ends("frozen-cpu", "10 leaves, without"),
        *ends("frozen-short-cpu", "10 leaves, without, a tenth of the schedule"),
        _look("20 leaves, recipe", "at the end, 3", recipe()),
        *ends("frozen-20-cpu", "20 leaves, without"),
    ]
    return markdown("tree | when, seeds | ELBO | RL | KL | ACC | NMI", rows)


def texts_growing() -> list[str]:
    """What each stage that trains the whole tree costs while a tree of texts grows."""
    rows = []
    for before, one in pairwise(_grown("cuda")):
        if one["stage"] == "whole tree":
            figures = (before["ELBO"], one["ELBO"], before["ELBO"] - one["ELBO"])
            rows.append([str(one["leaves"]), *(mean([figure]) for figure in figures)])
    return markdown("leaves | ELBO before | ELBO after | nats lost", rows)


def texts_ends() -> list[str]:
    """The final stages that were tried from the same grown tree of texts."""
    rows = []
    for name, looks in alone("news20_stages-cuda.json")["final"].items():
        elbos = {one["epoch"]: one["test"]["ELBO"] for one in looks}
        best = max(elbos, key=lambda epoch: elbos[epoch])
        rows.append([name, mean([elbos[best]]), str(best), mean([elbos[max(elbos)]])])
    return markdown("final stage | best ELBO | after epochs | ELBO at the end", rows)


def texts_bounds() -> list[str]:
    """Between which figures of log p(x) a model of texts moves."""
    found = alone("news20_bounds-cpu.json")
    rows = (
        [label, *(f"−{found[f'{name}_{part}']:.1f}" for part in ("train", "test"))]
        for label, name in (("at best, the values' entropy", "entropy"), ("word frequencies alone", "word_frequencies"))
    )
    return markdown("reconstruction | training texts | test texts", rows)


def tensorflow() -> list[str]:
    """What was tried with TensorFlow's norms, first weights and scale of the error; the recorded runs beside them."""
    rows = []
    for one in alone("tensorflow_settings.jsonl"):
        ways = [f"epsilon {one['epsilon']:g}, momentum {one['momentum']:g}"]
        ways += ["Glorot"] * one["glorot"] + ["the whole squared error"] * one.get("whole_error", False)
        rows.append(_tried(one["data"], one["scale"], ", ".join(ways), one))
    rows.append(_tried("cifar10", 1.0, "torch's, an earlier full run", alone("cifar10-torch.json")))
    rows.append(_tried("cifar10", 1.0, "TensorFlow's, the recipe's run", recorded("cifar10")[0]))
    return markdown("data | schedule | layers and error | ELBO | ACC | NMI", rows)


def _tried(data: str, scale: float, ways: str, record: Mapping[str, Any]) -> list[str]:
    """A row of one seed."""
    figures = (record["elbo"]["ELBO"], *(record["scores_percent"][score] for score in ("ACC", "NMI")))
    label = {"cifar10": "CIFAR-10", "news20": "20Newsgroups"}[data]
    length = {1.0: "whole", 0.5: "half"}[scale]
    return [label, length, ways, *(mean([figure]) for figure in figures)]


def omniglot() -> list[str]:
    """What the filter that shrinks Omniglot's drawings does to the likelihood."""
    widened = alone("omniglot-widened.jsonl")
    runs = [
        ("Omniglot, TreeVAE", "averages all pixels", [one for one in widened if one["data"] == "omniglot"]),
        ("Omniglot, TreeVAE", "the four nearest (ours)", list(recorded("omniglot").values())),
        ("Omniglot-5, TreeVAE", "averages all pixels", [one for one in widened if one["data"] == "omniglot5"]),
        ("Omniglot-5, TreeVAE", "the four nearest (ours)", list(recorded("omniglot5").values())),
    ]
    rows = [
        [label, filtered, *(mean([one["elbo"][name] for one in of]) for name in ("ELBO", "RL"))]
        + [mean([one["scores_percent"][name] for one in of]) if "5" in label else "–" for name in ("ACC", "NMI")]
        for label, filtered, of in runs
    ]
    for one in alone("omniglot_resampling-cpu.json")["filters"]:
        figures = (mean([one[name]]) for name in ("ELBO", "RL"))
        rows.append(["Omniglot, a small VAE", one["filter"], *figures, "–", "–"])
    return markdown("data, model | filter | ELBO | RL | ACC | NMI", rows)


def bottom_up() -> list[str]:
    """A VAE with TreeVAE's bottom-up and without, on MNIST."""
    rows = [
        ["the encoder alone" if one["depth"] == 0 else "with the bottom-up", str(one["epochs"]), "1"]
        + [mean([figure]) for figure in (one["elbo"]["ELBO"], *(one["ward_percent"][s] for s in ("ACC", "NMI")))]
        for one in alone("vae_bottom_up-mnist-cpu.json")["runs"]
    ]
    old = [one for one in alone("vae_encoder_alone.jsonl") if one["data"] == "mnist"]
    for label, runs in (("the encoder alone", old), ("with the bottom-up", list(recorded("mnist", "vae").values()))):
        figures = [mean([one["elbo"]["ELBO"] for one in runs])]
        figures += [mean([one["scores_percent"][score] for one in runs]) for score in ("ACC", "NMI")]
        rows.append([label, str(runs[0]["parameters"]["epochs"]), str(len(runs)), *figures])
    paper = [printed(of_the_paper("mnist", score, "vae")) for score in ("ELBO", "ACC", "NMI")]
    return markdown(
        "VAE on MNIST | epochs | seeds | ELBO | Ward's ACC | Ward's NMI", [*rows, ["the paper's", "–", "10", *paper]]
    )


def draws() -> list[str]:
    """Ward's method on the means of the latents, and on draws of them."""
    names = (
        "news20-vae",
        "news20-laddervae",
        "fashion-vae",
        "fashion-vae-500-epochs",
        "mnist-vae",
        "mnist-vae-100-epochs",
    )
    rows = []
    for one in (alone(f"ward_of_draws-{name}-cpu.json") for name in (*names, "mnist-vae-500-epochs")):
        means, drawn = one["ward_of_means_percent"], one["ward_of_draws_percent"]
        model = f"{ranking.DATA_TITLES[one['data']]}, {'VAE' if one['method'] == 'vae' else 'LadderVAE'}"
        cells = [(f"{means[s]:.1f}", mean([each[s] for each in drawn])) for s in ("NMI", "ACC")]
        rows.append([model, str(one["epochs"]), *(cell for pair in cells for cell in pair)])
    return markdown("model | epochs | NMI of means | of draws | ACC of means | of draws", rows)


def hdbscan() -> list[str]:
    """How much HDBSCAN takes for noise."""
    rows = []
    for data in (*ranking.DATA, "digits"):
        record = recorded(data, "hdbscan")[0]
        sizes = [sum(row) for row in record["test_leaf_by_class"]]
        samples, noise = sum(sizes), record["noise_samples"]
        clusters = len(sizes) - (noise > 0)  # noise is one more
        rows.append([ranking.DATA_TITLES[data], str(clusters), f"{100 * noise / samples:.1f}"])
    return markdown("data | clusters | noise (%)", rows)
