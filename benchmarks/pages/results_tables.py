"""The tables of the page of results, each from the records of what was run."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from treevae.experiments.chance import Mean, by_chance
from treevae.experiments.methods import METHODS
from treevae.experiments.printed import PaperFigure
from treevae.experiments.showing import as_markdown, chance_of, lines
from treevae.experiments.store import Store
from treevae.experiments.tables import table_of

from ..studies import ranking, spread_table
from ..studies.gains import gain, markdown, mean

ROOT = Path(__file__).parents[2]
STORE = Store(ranking.RESULTS)
ALONE = ROOT / "benchmarks" / "results"  # records of single questions
SCORES = ("DP", "LP", "ACC", "NMI")


def recorded(
    data: str, method: str = "treevae", settings: Mapping[str, int] | None = None
) -> dict[int, dict[str, Any]]:
    """The records of a method's fits of full length, by seed."""
    return STORE.seeds(METHODS[method].cell(data, settings or {}, 1.0, 0))


def alone(name: str) -> Any:
    """The record of a single question; of several lines a list."""
    text = (ALONE / name).read_text(encoding="utf-8")
    return [json.loads(line) for line in text.splitlines()] if name.endswith("l") else json.loads(text)


def of_the_paper(data: str, score: str, method: str = "treevae") -> PaperFigure:
    """The paper's figure of a method on a data set."""
    table = table_of("clustering" if score in SCORES else "generative")
    (row,) = [row for row in table.rows if (row.data, row.method) == (data, method) and "leaves" not in row.label]
    figure = row.entries[table.columns.index(score)].paper
    assert figure is not None
    return figure


def printed(figure: PaperFigure) -> str:
    """A figure of the paper as it prints it, to the digit that our tables have."""
    return f"{figure.mean:.1f} ± {figure.sd:.1f}".replace("-", "−")


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
        runs = list(recorded(mark.data, settings=mark.settings).values())
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
            seed: run["likelihood"]
            for seed, run in recorded(mark.data, settings=mark.settings).items()
            if "likelihood" in run
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
    ("Fashion, four seeds side by side", "fashion", {}, (6, 7, 8, 9), ""),
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
        runs = recorded(data, settings=settings)
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
