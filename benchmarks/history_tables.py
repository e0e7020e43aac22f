"""The tables of the history of the results: what was tried, each from the record of its question."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from itertools import pairwise
from typing import Any

import ranking
from gains import markdown, mean
from results_tables import SCORES, alone, of_the_paper, printed, recorded


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
        return [run["elbo"] | run["scores_percent"] for run in recorded("news20", settings=settings).values()]

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
