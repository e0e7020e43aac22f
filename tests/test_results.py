"""The pages of evidence: their tables are the records', and what is said of them in words stands in the tables."""

import importlib
import json
import re
import statistics
from collections import Counter
from pathlib import Path

import pytest
from test_prose import sentences

from treevae.experiments.chance import CLEAR, Mean, by_chance
from treevae.experiments.methods import METHODS
from treevae.experiments.printed import PaperFigure
from treevae.experiments.showing import chance_of
from treevae.experiments.store import Store
from treevae.experiments.tables import table_of

ROOT = Path(__file__).parents[1]
FIGURE = re.compile(r"−?\d\d+\.\d+")  # ten or more, so that differences of figures are none
PAGES = ("results.md", "results-history.md", "spread.md")
WRITTEN = (*PAGES, "start-study.md", "house.md")  # with tables that records make
DEFAULT = "16 candidates, loss_if_sure, 7 levels"


@pytest.fixture(autouse=True)
def _benchmarks(monkeypatch):
    monkeypatch.syspath_prepend(ROOT)


WHERE = {
    "evidence": "pages.write",
    "gains": "studies.gains",
    "ranking": "studies.ranking",
    "spread_table": "studies.spread_table",
}


def script(name: str):
    return importlib.import_module(f"benchmarks.{WHERE[name]}")


def page(name: str) -> str:
    return script("evidence").page(name).read_text(encoding="utf-8")


def said_on(name: str) -> str:
    return " ".join(sentences(page(name)))


def rows(name: str) -> list[str]:
    return [line for line in page(name).splitlines() if line.startswith("| ")]


def recorded(data: str, method: str = "treevae", **settings: int) -> dict[int, dict]:
    return Store(script("ranking").RESULTS).seeds(METHODS[method].cell(data, settings, 1.0, 0))


def alone(name: str) -> dict:
    return json.loads((ROOT / "benchmarks" / "results" / name).read_text())


def shown(values: list[float], digits: int = 1) -> str:
    mean = f"{statistics.mean(values):.{digits}f}".replace("-", "−")
    return mean if len(values) == 1 else f"{mean} ± {statistics.stdev(values):.{digits}f}"


# -- tables ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", WRITTEN)
def test_the_tables_of_a_page_are_what_the_records_say(name):
    evidence, text = script("evidence"), page(name)
    assert evidence.with_tables(text) == text, "python -m benchmarks.pages.write writes them anew"
    assert text.count("<!-- table: ") == text.count("<!-- end -->") == len(evidence.PLACE.findall(text))
    in_places = {row for row in evidence.PLACE.sub("", text).splitlines() if row.startswith("|")}
    assert in_places == set(), "a table that no record makes"


def test_every_table_has_one_place():
    evidence = script("evidence")
    assert sorted(evidence.PAGES) == sorted(WRITTEN)
    assert sorted(name for one in WRITTEN for name in evidence.PLACE.findall(page(one))) == sorted(evidence.TABLES)


def test_a_changed_figure_is_written_anew():
    evidence = script("evidence")
    (place,) = (one[0] for one in evidence.PLACE.finditer(page("results.md")) if one[1] == "times")
    changed = place.replace("| 157 |", "| 1 |")
    assert changed != place
    assert evidence.with_tables(f"Before.\n\n{changed}\n\nAfter.") == f"Before.\n\n{place}\n\nAfter."


@pytest.mark.parametrize("name", ["clustering", "generative", "digits"])
def test_the_page_has_the_written_tables_of_the_paper(name):
    (written,) = (path for path in ROOT.glob(f"results/**/{name}.md"))
    table = [row for row in written.read_text().splitlines() if row.startswith("| ")]
    assert "\n".join(table) in page("results.md")


@pytest.mark.parametrize(
    ("label", "data", "settings"),
    [
        ("MNIST, 10", "mnist", {}),
        ("Fashion, 10", "fashion", {}),
        ("20Newsgroups, 10", "news20", {"n_leaves": 10}),
        ("20Newsgroups, 20", "news20", {}),
        ("Omniglot-5, 5", "omniglot5", {}),
        ("CIFAR-10, 10", "cifar10", {}),
        ("CIFAR-100, 20", "cifar100", {}),
        ("Omniglot, 10", "omniglot", {}),
        ("CelebA, 8 (8,000 pictures)", "celeba", {}),
    ],
)
def test_the_runs_beside_their_marks_are_recorded(label, data, settings):
    runs = list(recorded(data, **settings).values())
    fields = {"command", "device", "versions", "tree"} | ({"parameters", "stages"} if data != "mnist" else set())
    assert all(fields <= set(run) for run in runs)
    (row,) = [row for row in rows("results.md") if row.startswith(f"| {label} | {len(runs)} |")]
    cells = [cell.split(";")[0].split(" (")[0].strip() for cell in row.strip("| ").split(" | ")[2:]]
    digits = 2 if len(runs) > 1 else 1
    expected = [shown([run["elbo"][term] for run in runs], digits) for term in ("ELBO", "RL")]
    if cells[2] != "–":
        expected += [shown([run["scores_percent"][score] for run in runs]) for score in ("ACC", "NMI")]
    assert [cell for cell in cells if cell != "–"] == expected
    assert ("falls short" in row) == (label in ("Fashion, 10", "20Newsgroups, 10", "CIFAR-10, 10"))


@pytest.mark.parametrize(
    ("label", "data", "settings", "seeds"),
    [
        ("MNIST, 10", "mnist", {}, "0"),
        ("Fashion, 10", "fashion", {}, "3 to 9"),
        ("20Newsgroups, 10", "news20", {"n_leaves": 10}, "0 to 2"),
    ],
)
def test_the_likelihoods_are_recorded(label, data, settings, seeds):
    runs = [run["likelihood"] for run in recorded(data, **settings).values() if "likelihood" in run]
    ours, bound = (shown([run[name]["mean"] for run in runs]) for name in ("ll_paper", "ll_iwae"))
    (row,) = [row for row in rows("results.md") if row.startswith(f"| {label} | {seeds} | {ours} |")]
    assert row.endswith(f"| {bound} |")


def test_the_times_are_recorded():
    seconds = {seed: run["seconds"] for seed, run in recorded("fashion").items()}
    first, others = max(seconds[s] for s in (0, 1, 2)), max(seconds[s] for s in (3, 4, 5))
    assert f"| Fashion, three seeds | {first:,.0f} | 1 to 2 hours |" in page("results.md")
    assert f"| Fashion, three others, with their likelihoods | {others:,.0f} |" in page("results.md")
    one, ten = (f"{alone(f'mnist-{name}.json')['seconds']:.0f}" for name in ("1-seed", "10-seeds"))
    assert f"takes {one} seconds on one H200, ten seeds side by side {ten}." in said_on("results.md")


@pytest.mark.parametrize(("data", "label"), [("mnist", "MNIST"), ("fashion", "Fashion-MNIST")])
def test_the_leads_of_the_defaults_are_recorded(data, label):
    runs = script("spread_table").by_setting()[data, 150, DEFAULT]["runs"]
    means = {score: Mean.of([run[score] for run in runs]) for score in ("ACC", "NMI")}
    paper = {"mnist": ("90.2±7.5", "90.0±4.6"), "fashion": ("63.6±3.3", "64.7±1.4")}[data]
    figures = dict(zip(means, map(PaperFigure.of, paper), strict=True))
    p = {score: chance_of(mean, figures[score]) for score, mean in means.items()}
    assert {score: value < CLEAR for score, value in p.items()} == {"ACC": data == "mnist", "NMI": True}
    more = {score: f"{mean.mean - figures[score].mean:.1f}" for score, mean in means.items()}
    row = f"| {label} | the paper's mean | {more['ACC']} | {p['ACC']:.2g} | {more['NMI']} |"
    assert any(one.startswith(row) for one in rows("results.md")), row


# -- words ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", PAGES)
def test_the_figures_that_the_words_name_stand_in_tables(name):
    pages = [script("evidence").page(one).read_text() for one in PAGES]
    pages += [path.read_text() for path in [*ROOT.glob("results/**/tables/*.md"), ROOT / "docs/evidence/records.md"]]
    tables = {figure for text in pages for row in text.splitlines() if row[:1] == "|" for figure in FIGURE.findall(row)}
    named = FIGURE.findall(said_on(name))
    assert len(named) >= 3
    elsewhere = {f"{looks_of_texts('frozen-20-cpu')[-11]['kl_nodes']:.1f}"} if name == "results-history.md" else set()
    assert [figure for figure in named if figure not in tables | elsewhere] == []


def looks_of_texts(name: str) -> list[dict]:
    record = alone(f"news20_stages-{name}.json")
    return [one["test"] for one in [*record["growing"], *record["final"]["paper"]]]


def test_what_is_said_of_texts_grown_without_whole_stages_is_recorded():
    grown, *final = looks_of_texts("frozen-20-cpu")[-11:]
    said = said_on("results-history.md")
    assert f"grown without them has ACC {100 * grown['ACC']:.1f} and NMI {100 * grown['NMI']:.1f}," in said
    assert f"The KL of the nodes falls from {grown['kl_nodes']:.1f} to {final[-1]['kl_nodes']:.1f}." in said
    assert 2 * (grown["ACC"] - final[0]["ACC"]) > grown["ACC"] - final[-1]["ACC"]  # most of it in the first epochs
    ends = [recorded("news20", n_leaves=10)[seed]["elbo"]["ELBO"] for seed in (0, 1, 2)]
    assert f"With ten leaves TreeVAE ends at {shown(ends)}, where" in said
    assert f"without these stages it ends at {shown([looks_of_texts('frozen-cpu')[-1]['ELBO']])}, as good as" in said
    for when, look in (("when grown, 1", grown), ("at the end, 1", final[-1])):
        figures = [look["ELBO"], -look["reconstruction"], sum(look[k] for k in look if k.startswith("kl_"))]
        cells = " | ".join(shown([value]) for value in (*figures, 100 * look["ACC"], 100 * look["NMI"]))
        assert f"| 20 leaves, without | {when} | {cells} |" in page("results-history.md")


def test_what_is_said_of_the_ranking_is_what_is_sure():
    gains = script("ranking").gains()

    def ahead(better: str, other: str, sign: int = 1) -> dict[str, list[str]]:
        """In which scores a method is surely ahead of another, or behind, by data set."""
        found = {}
        for data in ("mnist", "fashion", "news20", "omniglot5"):
            each = zip(("DP", "LP", "ACC", "NMI"), gains[data, better, other], strict=True)
            sure = [score for score, one in each if one.together < CLEAR and one.text.startswith("−") == (sign < 0)]
            found[data] = sure
        return found

    every = ["DP", "LP", "ACC", "NMI"]
    assert ahead("treevae", "laddervae") == {"mnist": [], "fashion": every, "news20": every, "omniglot5": ["NMI"]}
    over_deepect = {"mnist": every, "fashion": ["DP", "LP"], "news20": [], "omniglot5": ["DP", "LP"]}
    assert ahead("treevae", "deepect") == over_deepect
    assert ahead("laddervae", "vae") == {"mnist": ["LP"], "fashion": [], "news20": [], "omniglot5": ["NMI"]}
    assert ahead("laddervae", "vae", -1) == {"mnist": [], "fashion": ["ACC"], "news20": every, "omniglot5": []}
    assert ahead("treevae", "vae")["news20"] == ["LP"]
    assert ahead("treevae", "vae", -1)["news20"] == ["NMI"]
    said = said_on("results.md")
    for words in (
        "TreeVAE is ahead of LadderVAE + Ward in all scores on Fashion and 20Newsgroups. On Omniglot-5 it is in NMI, "
        "on MNIST in none.",
        "It is ahead of DeepECT in all scores on MNIST, in DP and LP on Fashion and Omniglot-5, and in none on "
        "20Newsgroups.",
        "LadderVAE + Ward is ahead of VAE + Ward in NMI on Omniglot-5 and in LP on MNIST. It is behind in ACC on "
        "Fashion, and in all four on 20Newsgroups.",
        "On 20Newsgroups a VAE with Ward's method is ahead of TreeVAE in NMI, and behind in LP.",
    ):
        assert words in said
    stay = [line for line in script("ranking").beside_the_paper() if line.startswith("- ")]
    assert ("of those that stay none is TreeVAE's" in said) == (not any("TreeVAE" in line for line in stay))


def test_what_is_said_of_the_order_of_the_means_is_recorded():
    store, ranking = Store(script("ranking").RESULTS), script("ranking")

    def in_order(data: str) -> list[bool]:
        """Whether each mean falls from TreeVAE over LadderVAE + Ward to VAE + Ward."""
        each = [ranking.read(store, ranking.row_of(data, method)) for method in ("treevae", "laddervae", "vae")]
        means = zip(*([statistics.mean(values) for values in of] for of in each), strict=True)
        return [list(of) == sorted(of, reverse=True) for of in means]

    assert in_order("omniglot5") == [True] * 4
    assert in_order("mnist") == [True, True, False, True]
    said = said_on("results.md")
    assert "on Omniglot-5 all four means are in this order. On MNIST they are but for ACC." in said


def test_what_is_said_of_the_digits_is_recorded():
    def values(method: str, score: str) -> list[float]:
        return [run["scores_percent"][score] for run in recorded("digits", method).values()]

    ladder, tree = (
        {score: values(of, score) for score in ("DP", "LP", "ACC", "NMI")} for of in ("laddervae", "treevae")
    )
    assert all(statistics.mean(ladder[score]) > statistics.mean(tree[score]) for score in tree)
    assert all(by_chance(Mean.of(ladder[score]), Mean.of(tree[score])) > CLEAR for score in tree)
    gains = " | ".join(script("gains").gain(ladder[score], tree[score]) for score in tree)
    assert f"*LadderVAE + Ward over TreeVAE* | 5 | {gains} |" in page("results.md")
    said = "LadderVAE with Ward's method has higher means in all four scores."
    assert said in said_on("results.md")


def test_what_is_said_of_wards_figures_is_recorded():
    def of_ward(data: str) -> tuple[list[str], list[str]]:
        (row,) = [row for row in table_of("clustering").rows if (row.data, row.method) == (data, "agg")]
        runs = [
            Store(script("ranking").RESULTS).read(METHODS["agg"].cell(data, e.changes, 1.0, 0)) for e in row.entries
        ]
        ours = [f"{entry.score.read(run):.1f}" for entry, run in zip(row.entries, runs, strict=True)]
        return ours, [f"{entry.paper.mean:.1f}" for entry in row.entries]

    assert all(ours == papers for ours, papers in map(of_ward, ("mnist", "fashion")))
    assert "it gives all eight of the paper's figures to the digit" in said_on("results.md")
    ties = alone("news20_ties-cpu.json")["ward_percent"]
    choices = {one["choice"].split()[-1]: [f"{one[s]:.1f}" for s in ("DP", "LP", "ACC", "NMI")] for one in ties}
    ours, papers = of_ward("news20")
    assert ours == choices["AVX-512"]
    differ = [abs(float(a) - float(b)) for a, b in zip(choices["either"], papers, strict=True)]
    assert sorted(differ) == pytest.approx([0, 0, 0, 0.1])


@pytest.mark.parametrize(
    ("data", "goal", "least", "widest"),
    [
        ("mnist", "MNIST: ACC at least 95, sd at most 3", 95, 3),
        ("fashion", "Fashion: ACC at least 66", 66, 100),
    ],
)
def test_the_goals_are_judged_by_the_recorded_trees_of_the_defaults(data, goal, least, widest):
    spread = script("spread_table")
    whole, quarter = ([run["ACC"] for run in spread.by_setting()[data, n, DEFAULT]["runs"]] for n in (150, 38))
    met = statistics.mean(whole) >= least and statistics.stdev(whole) <= widest
    measured = f"{shown(whole)} ({len(whole)} seeds) | {shown(quarter)} ({len(quarter)} seeds)"
    assert f"| {goal} | {measured} | {'met' if met else '**missed**'} |" in page("spread.md")
    assert met == (data == "mnist")


def test_what_is_said_of_gains_is_what_stays():
    found = script("spread_table").gains_together()
    tested = [one for one in found if one.p is not None]
    stay = [one for one in tested if one.together < CLEAR]
    ways = Counter((one.about[2].split(",")[0], one.about[0], one.text.startswith("−")) for one in stay)
    assert ways == {
        ("16 candidates", "MNIST", False): 3,
        ("leaf by gain", "MNIST", True): 2,
        ("leaf by gain", "Fashion", True): 1,
    }
    p = {one.about: one.p for one in tested}
    sixteen, four = "16 candidates, loss_if_sure", "4 candidates, loss_if_sure"
    assert p["MNIST", "38", sixteen, "paper", "ACC"] < CLEAR < p["MNIST", "38", four, "paper", "ACC"] < 2 * CLEAR
    assert all(p[data, "38", sixteen, four, "ACC"] > CLEAR for data in ("MNIST", "Fashion"))
    said = said_on("spread.md")
    assert "Sixteen candidates against one are sure on MNIST alone. Four against one are nearly so there." in said
    ahead = {one.about[0]: one.text for one in found if one.about[-1] == "nats"}
    assert f"ahead of loss_if_sure by {ahead['MNIST']} nats. On Fashion it is behind by {ahead['Fashion']}." in said


def test_what_is_said_of_sandals_is_recorded():
    runs = script("spread_table").by_setting()["fashion", 150, DEFAULT]["runs"]
    mostly = [any(row[5] > sum(row) / 2 for row in run["test_leaf_by_class"]) for run in runs]  # 5: sandals
    with_leaf = [run["ACC"] for run, one in zip(runs, mostly, strict=True) if one]
    without = [run["ACC"] for run, one in zip(runs, mostly, strict=True) if not one]
    assert statistics.mean(without) < statistics.mean(with_leaf)
    assert (len(with_leaf), len(without)) == (7, 3)
    said = said_on("spread.md")
    assert "In seven trees a leaf is mostly sandals. In the other three, which have a lower ACC," in said
    dresses = [sorted((row[3] for row in run["test_leaf_by_class"]), reverse=True) for run in runs]
    assert sum(row[1] > 0.3 * sum(row) for row in dresses) == 4


def test_seeds_that_were_added_later_count_once(tmp_path):
    spread = script("spread_table")

    def line(first: int, seeds: int) -> str:
        about = {"setting": "paper", "framework": "torch", "epochs": 38, "first_seed": first, "seeds": seeds}
        return json.dumps(about | {"runs": [{"ACC": 1.0}] * seeds, "compared": []})

    path = tmp_path / "spread-mnist.jsonl"
    path.write_text("\n".join([line(0, 4), line(4, 2)]))
    (together,) = spread.lines(tmp_path)
    assert len(together["runs"]) == 6
    path.write_text("\n".join([line(0, 4), line(3, 2)]))
    with pytest.raises(ValueError, match=r"spread-mnist.jsonl: paper, 38 epochs: the seeds \[3\] stand in two lines"):
        list(spread.lines(tmp_path))


def test_the_ranking_takes_no_mixture(tmp_path):
    ranking, here = script("ranking"), Store(tmp_path)
    vae, tree = (ranking.row_of("fashion", method) for method in ("vae", "treevae"))

    def fabricate(row, seed: int, samples: str) -> None:
        cell = METHODS[row.method].cell(row.data, row.entries[-1].changes, 1.0, seed)
        here.write(cell, {"scores_percent": {"NMI": 60.0 + seed}, "test_samples": samples})

    for row, seed in ((vae, 0), (vae, 1), (tree, 0)):
        fabricate(row, seed, "a")
    ranking.refuse_other_samples(here, [vae, tree])
    assert ranking.read(here, vae)[-1] == [60.0, 61.0]
    fabricate(tree, 1, "b")
    with pytest.raises(ValueError, match="TreeVAE has records of different data"):
        ranking.read(here, tree)
    here.path(METHODS["treevae"].cell("fashion", tree.entries[-1].changes, 1.0, 0)).unlink()
    with pytest.raises(ValueError, match="the records of VAE \\+ Ward and TreeVAE are not of the same samples"):
        ranking.refuse_other_samples(here, [vae, tree])
