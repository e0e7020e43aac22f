"""The paper's tables: the figures they hold, and how they are shown with our records."""

import json
import re
from collections.abc import Iterable
from dataclasses import replace

import pytest
from cells import CPU, cell_of, ended, fabricate, records_of, treevae
from scipy.stats import ttest_ind, ttest_ind_from_stats

from treevae import Tree, TreeVAE
from treevae.baselines.bisecting import Bisecting
from treevae.data import load
from treevae.data.sets import SOURCES
from treevae.experiments import running, showing, tables
from treevae.experiments.cells import Job, other_parameters
from treevae.experiments.chance import Mean, by_chance
from treevae.experiments.methods import METHODS
from treevae.experiments.printed import PaperFigure
from treevae.experiments.running import run, wanted
from treevae.experiments.store import Store
from treevae.experiments.tables import SCORES, TABLES, PaperEntry, PaperRow, PaperTable, Score
from treevae.parameters import check_parameters
from treevae.recipes import RECIPES

# -- the tables -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("table", TABLES.values(), ids=TABLES)
def test_a_table_holds_together_and_is_rendered(table, tmp_path):
    assert table.name in TABLES
    for row in table.rows:
        assert row.data in RECIPES
        assert row.data in SOURCES
        assert row.method in tables.METHOD_TITLES
        assert len(row.entries) == len(table.columns)
        for entry in row.entries:
            check_parameters(TreeVAE.recipe(row.data, **{**entry.changes, "tree": None}).get_params())
    found = showing.lines(table, Store(tmp_path), 1.0)
    assert {figure.ours for line in found for figure in line.figures} == {"not run"}
    for form in (showing.as_text, showing.as_markdown, showing.as_latex):
        text = form(table, found, 1.0)
        assert all(line.title.split("…")[0] in text for line in found)
    latex = showing.as_latex(table, found, 1.0)
    assert latex.isascii()
    columns = 3 + (1 if table.name == "digits" else 2) * len(table.columns)  # the paper has no digits
    assert all(line.count("&") == columns - 1 for line in latex.splitlines() if line.endswith(r"\\"))


SUMS = {  # over the rows of a table, of the means and of the standard deviations that are printed in the paper
    ("clustering", "DP"): (1007.41, 46.04),
    ("clustering", "LP"): (1410.62, 37.01),
    ("clustering", "ACC"): (1205.43, 72),
    ("clustering", "NMI"): (1069.85, 52),
    ("generative", "LL"): (-1490.03, 3.63),
    ("generative", "RL"): (1379.07, 4.52),
    ("generative", "ELBO"): (-1524.52, 4.69),
    ("celeba-attributes", "leaf 1"): (234.6, 0),
    ("celeba-attributes", "leaf 2"): (208.3, 0),
    ("celeba-attributes", "leaf 3"): (334.9, 0),
    ("celeba-attributes", "leaf 4"): (265.3, 0),
    ("celeba-attributes", "leaf 5"): (160.4, 0),
    ("celeba-attributes", "leaf 6"): (142.6, 0),
    ("celeba-attributes", "leaf 7"): (177.9, 0),
    ("celeba-attributes", "leaf 8"): (129.4, 0),
    ("sizes", "ACC"): (1331.6, 95.6),
    ("sizes", "NMI"): (1364.9, 59.3),
    ("sizes", "ELBO"): (-5277, 7.7),
    ("matched-ladder", "ACC"): (120, 5.2),
    ("matched-ladder", "NMI"): (127, 3.4),
    ("matched-ladder", "LL"): (-468.4, 0.2),
    ("matched-ladder", "RL"): (451.3, 0.6),
    ("matched-ladder", "ELBO"): (-478.1, 0.7),
    ("fixed-tree", "ACC"): (98.7, 8.1),
    ("fixed-tree", "NMI"): (118.8, 7.2),
    ("fixed-tree", "LL"): (-472.1, 0.5),
    ("fixed-tree", "RL"): (455.4, 0.8),
    ("fixed-tree", "ELBO"): (-480.2, 0.9),
    ("contrastive-losses", "NMI"): (96, 13.2),
    ("predicted-clusters", "NMI"): (53.12, 1.68),
    ("true-clusters", "NMI"): (40.54, 0.78),
}
ROW_SUMS = {  # over the columns, of every row that the paper has, likewise
    ("clustering", "mnist"): {
        "Ward": (282.9, 0), "VAE + Ward": (338.9, 10.5), "LadderVAE + Ward": (334.8, 14.1), "DeepECT": (316.9, 19.5),
        "TreeVAE": (364.1, 18.9)
    },
    ("clustering", "fashion"): {
        "Ward": (216.5, 0), "VAE + Ward": (221.2, 12.4), "LadderVAE + Ward": (233.7, 7.9), "DeepECT": (222.2, 14.1),
        "TreeVAE": (254.1, 9.1)
    },
    ("clustering", "news20"): {
        "Ward": (97.5, 0), "VAE + Ward": (52, 1.5), "LadderVAE + Ward": (64.2, 2.4), "DeepECT": (60.2, 12.7),
        "TreeVAE": (123.1, 6.9)
    },
    ("clustering", "omniglot5"): {
        "Ward": (191.6, 0), "VAE + Ward": (201.7, 11), "LadderVAE + Ward": (224.9, 15.5), "DeepECT": (153, 13.8),
        "TreeVAE": (250.4, 20.8)
    },
    ("clustering", "cifar10"): {
        "VAE + Ward": (43.16, 2.12), "LadderVAE + Ward": (64.88, 1.84), "DeepECT": (30.8, 0.91),
        "TreeVAE": (183.57, 4.85)
    },
    ("clustering", "cifar100"): {
        "VAE + Ward": (26.41, 0.42), "LadderVAE + Ward": (45.44, 1.17), "DeepECT": (20.93, 2.42),
        "TreeVAE": (74.22, 2.22)
    },
    ("generative", "mnist"): {"VAE": (-119.3, 0.8), "LadderVAE": (-115.3, 1.9), "TreeVAE": (-109.4, 0.6)},
    ("generative", "fashion"): {"VAE": (-255.9, 1.2), "LadderVAE": (-250.9, 1.7), "TreeVAE": (-247.4, 0.8)},
    ("generative", "news20"): {"VAE": (-43.35, 0.05), "LadderVAE": (-45.4, 0.08), "TreeVAE": (-58.63, 1.61)},
    ("generative", "omniglot"): {"VAE": (-131.9, 0.9), "LadderVAE": (-129.9, 1.8), "TreeVAE": (-128.1, 1.4)},
    ("celeba-attributes", "celeba"): {
        "Female": (480.6, 0), "Bangs": (123.6, 0), "Blonde": (115.3, 0), "Makeup": (311.9, 0),
        "Smiling": (395.3, 0), "Hair Loss": (82.2, 0), "Beard": (144.5, 0)
    },
    ("sizes", "fashion"): {
        "base": (-111.8, 6.6), "(A) z of 2": (-147.9, 7.1), "(A) z of 4": (-121.6, 8.8),
        "(A) z of 16": (-114.8, 7.3), "(A) z of 32": (-112.5, 7.6), "(B) MLPs of 16": (-122.6, 5.9),
        "(B) MLPs of 32": (-117.1, 6.5), "(B) MLPs of 64": (-113.5, 5.5), "(B) MLPs of 256": (-113.5, 9.2),
        "(C) z 2…64, MLPs 8…128": (-122.6, 7.5), "(C) z 2…64, MLPs 16…256": (-115.1, 8),
        "(C) z 4…128, MLPs 8…128": (-119.3, 7.3), "(C) z 4…128, MLPs 16…256": (-112.6, 5.2),
        "(C) z 8…256, MLPs 16…256": (-116.1, 6.9), "(C) z 8…256, MLPs 32…512": (-117.5, 8.1),
        "(D) MLPs of 2 layers": (-117.1, 9.1), "(D) MLPs of 3 layers": (-114.7, 7.7),
        "(E) routers of 1 layer": (-117.3, 6.4), "(E) routers of 3 layers": (-113.4, 7.9),
        "(F) 5 levels": (-110.8, 7.6), "(F) 7 levels": (-115.3, 8.1), "(F) 8 levels": (-113.4, 8.3)
    },
    ("matched-ladder", "fashion"): {"LadderVAE + Ward, as many weights": (-129.1, 4.6), "TreeVAE": (-119.1, 5.5)},
    ("fixed-tree", "fashion"): {"fixed TreeVAE": (-160.3, 12), "TreeVAE": (-119.1, 5.5)},
    ("contrastive-losses", "cifar10"): {
        "both, (A) + (B)": (44.1, 0.7), "(A) routers": (21.7, 4), "(B) bottom-up": (6, 6),
        "(C) routers, transposed": (23, 1.2), "(D) encoder only": (0.2, 0),
        "(E) Jensen-Shannon of routers": (1, 1.3)
    },
    ("predicted-clusters", "cifar100"): {
        "10 leaves": (15.99, 0.85), "20 leaves": (17.8, 0.42), "32 leaves": (19.33, 0.41)
    },
    ("true-clusters", "cifar100"): {"20 superclasses": (17.8, 0.42), "100 classes": (22.74, 0.36)},
}  # fmt: skip


@pytest.mark.parametrize(("name", "column"), SUMS)
def test_no_digit_of_the_papers_figures_has_slipped(name, column):
    place = TABLES[name].columns.index(column)
    assert summed(row.entries[place] for row in TABLES[name].rows) == pytest.approx(SUMS[name, column], abs=1e-6)


@pytest.mark.parametrize(("name", "data"), ROW_SUMS)
def test_no_row_of_the_papers_figures_stands_in_the_place_of_another(name, data):
    rows = {row.title: summed(row.entries) for row in TABLES[name].rows if row.data == data and row.entries[0].paper}
    assert list(rows) == list(ROW_SUMS[name, data])
    for title, found in rows.items():
        assert found == pytest.approx(ROW_SUMS[name, data][title], abs=1e-6), title


def test_all_figures_of_the_paper_are_summed():
    columns = {(name, column) for name, table in TABLES.items() for column in table.columns}
    assert columns - set(SUMS) == {("digits", column) for column in TABLES["digits"].columns}  # no table of the paper
    rows = {(name, row.data) for name, table in TABLES.items() for row in table.rows if row.entries[0].paper}
    assert rows == set(ROW_SUMS)


def summed(entries: Iterable[PaperEntry]) -> tuple[float, float]:
    """The sums of the paper's means and of its standard deviations."""
    figures = [entry.paper for entry in entries if entry.paper is not None]
    return sum(figure.mean for figure in figures), sum(figure.sd or 0 for figure in figures)


def test_purity_is_of_larger_trees_than_accuracy():
    """SPEC 3.2: 20 or 30 leaves against as many as classes."""
    leaves = {
        row.data: [METHODS["treevae"].cell(row.data, e.changes, 1, 0).settings["n_leaves"] for e in row.entries]
        for row in TABLES["clustering"].rows
    }
    twenty, thirty = [20, 20, 10, 10], [30, 30, 20, 20]
    assert leaves == {
        "mnist": twenty, "fashion": twenty, "news20": thirty, "omniglot5": [20, 20, 5, 5], "cifar10": twenty,
        "cifar100": thirty,
    }  # fmt: skip


def test_likelihoods_are_of_trees_with_ten_leaves():
    trees = [row for row in TABLES["generative"].rows if row.method == "treevae"]
    of_paper = [row for row in trees if row.entries[0].paper is not None]
    assert [row.data for row in of_paper] == ["mnist", "fashion", "news20", "omniglot"]
    for row in of_paper:
        assert {
            METHODS["treevae"].cell(row.data, entry.changes, 1.0, 0).settings["n_leaves"] for entry in row.entries
        } == {10}
    ((news, own),) = [(row.data, row.entries[0].changes) for row in trees if row not in of_paper]
    assert (news, own) == ("news20", {})  # the recipe's twenty, as in the table of clusters


def test_one_fit_stands_in_every_table_that_has_it():
    (plain,) = (cell for cell in wanted(TABLES["generative"], 1, 1.0, ["fashion"], ["treevae"]))
    for name in ("clustering", "sizes", "matched-ladder", "fixed-tree"):
        assert plain in wanted(TABLES[name], 1, 1.0)
    assert list(wanted(TABLES["true-clusters"], 3, 1.0)) == [cell_of(seed, data="cifar100") for seed in range(3)]


def test_the_fixed_tree_has_ten_leaves():
    assert len(tables.EVEN_TREE.leaves) == 10
    assert tables.EVEN_TREE.height == 4
    fixed, grown = ({json.dumps(entry.changes) for entry in row.entries} for row in TABLES["fixed-tree"].rows)
    assert [Tree.from_json(json.dumps(json.loads(changes)["tree"])) for changes in fixed] == [tables.EVEN_TREE]
    assert grown == {"{}"}


def changes_of(table: str) -> dict[str, dict]:
    """What each row of an ablation changes, the same for all its figures."""
    rows = TABLES[table].rows
    assert all(entry.changes == row.entries[0].changes for row in rows for entry in row.entries)
    return {row.title: dict(row.entries[0].changes) for row in rows}


def test_a_row_of_the_contrastive_losses_has_the_loss_of_its_letter():
    losses = {
        title: changes.pop("contrastive_loss", None) for title, changes in changes_of("contrastive-losses").items()
    }
    assert losses == {
        "both, (A) + (B)": None,
        "(A) routers": "routers",
        "(B) bottom-up": "bottom_up",
        "(C) routers, transposed": "transposed",
        "(D) encoder only": "encoder",
        "(E) Jensen-Shannon of routers": "jensen_shannon",
    }


def test_a_row_of_the_sizes_changes_what_it_is_called_after():
    one_number = {"(A)": "latent_dim", "(B)": "hidden_dim", "(D)": "transformation_layers", "(E)": "router_layers"}
    for title, changes in changes_of("sizes").items():
        letter, numbers = title.split()[0], [int(number) for number in re.findall(r"\d+", title)]
        if letter == "(C)":  # each twice the one above it; MLPs are between latents
            (z, z_last), (h, h_last) = numbers[:2], numbers[2:]
            sizes = {"latent_dim": [z * 2**k for k in range(6)], "hidden_dim": [h * 2**k for k in range(5)]}
            assert (sizes["latent_dim"][-1], sizes["hidden_dim"][-1]) == (z_last, h_last)
            assert changes == sizes
        elif letter == "(F)":
            assert changes == {"max_depth": numbers[0] - 1}  # levels are counted with the root
        else:
            assert changes == ({} if letter == "base" else {one_number[letter]: numbers[0]})
    assert changes_of("predicted-clusters") == {f"{n} leaves": {"n_leaves": n} for n in (10, 20, 32)}


@pytest.mark.parametrize(
    ("ours", "paper", "better", "mark"),
    [
        ((63.64, 0.1, 3), "63.6±3.3", 1, "="),
        ((63.66, 0.1, 3), "63.6±3.3", 1, "△"),
        ((63.5, 0.1, 3), "63.6±3.3", 1, "▽"),
        ((67.0, 0.1, 3), "63.6±3.3", 1, "▲"),
        ((60.0, 0.1, 3), "63.6±3.3", 1, "▼"),
        ((67.0, None, 1), "63.6±3.3", 1, "△"),  # one seed, of whose spread nobody knows
        ((55.0, None, 1), "63.6±3.3", 1, "▽"),
        ((55.0, None, 1), "63.6", 1, "▽"),
        ((-44.595, 0.01, 3), "-44.62±0.02", 1, "△"),  # the paper's may be -44.615 ± 0.025
        ((-44.58, 0.01, 3), "-44.62±0.02", 1, "▲"),
        ((50.25, 0.1, 3), "50.0±0.1", 1, "△"),  # the paper's may be 50.05 ± 0.05, and three seeds tell little
        ((60.0, 0.1, 3), "63.6", 1, "▽"),  # no spread in the paper
        ((0.35, 0.1, 10), "0.2±0.1", 1, "△"),  # the paper's spread may be 0.15
        ((0.478, 0.1, 3), "0.2±0.0", 1, "△"),  # and here anything up to 0.05, of which none is the least sure
        ((79.5, 0.2, 3), "80.3±0.2", -1, "▲"),
        ((80.8, 0.2, 3), "80.3±0.2", -1, "▼"),
        ((80.4, 0.2, 3), "80.3±0.2", -1, "▽"),
        ((-96.0, 0.2, 3), "-96.8±0.2", 1, "▲"),
        ((2.0, 0.0, 3), "1.0±0.0", 1, "▲"),
        ((1.0, 0.1, 3), "–", 1, ""),
        ((1.0, 0.1, 3), "2.0", 0, ""),
    ],
)
def test_better_worse_perhaps_or_the_same_as_printed(ours, paper, better, mark):
    assert showing.compare(Mean(*ours), PaperFigure.of(paper), better) == mark


def test_a_method_without_luck_is_surely_better_or_worse():
    luckless = Mean(63.8, 0.0, 1)
    for seeded, paper, mark in (
        (False, "63.7±0.0", "▲"),
        (False, "63.9±0.0", "▼"),
        (False, "63.7±0.1", "△"),
        (False, "63.7", "△"),
        (True, "63.7±0.0", "△"),
    ):
        assert showing.compare(luckless, PaperFigure.of(paper), 1, seeded) == mark


def test_welchs_test_knows_how_few_seeds_there_are():
    ours, theirs = [62.0, 64.0, 67.5], [60.0, 61.0, 59.5, 62.5, 58.0]
    expected = ttest_ind(ours, theirs, equal_var=False).pvalue
    assert by_chance(Mean.of(ours), Mean.of(theirs)) == pytest.approx(expected)
    assert by_chance(Mean.of(theirs), Mean.of(ours)) == pytest.approx(expected)
    assert (
        by_chance(Mean(64.0, 2.0, 3), Mean(61.0, 2.0, 10)) > 0.05 > by_chance(Mean(64.0, 2.0, 10), Mean(61.0, 2.0, 10))
    )
    assert by_chance(Mean.of([64.0]), Mean.of([1.0])) == by_chance(Mean.of(ours), Mean(1.0, None, 10)) == 1


def test_without_any_spread_means_are_the_same_or_not():
    same, other = Mean.of([22.1] * 3), Mean.of([22.2] * 3)
    assert (by_chance(same, same), by_chance(same, other)) == (1, 0)
    assert 0 < by_chance(same, Mean.of([22.1, 22.2, 22.4])) < 1


def test_the_papers_figures_are_of_ten_seeds():
    ours = Mean.of([62.0, 64.0, 67.5])  # of all that is printed as 60.6±1.0 the nearest mean is 60.65
    tests = (ttest_ind_from_stats(*ours, 60.65, sd, 10, equal_var=False) for sd in (0.95, 1.05))
    expected = max(found.pvalue for found in tests)
    assert showing.chance_of(ours, PaperFigure.of("60.6±1.0")) == pytest.approx(expected)


def test_one_seed_may_be_anything():
    theirs = Mean.of([60.0, 61.0, 59.5, 62.5, 58.0])
    assert by_chance(Mean.of([90.0]), theirs) == by_chance(theirs, Mean.of([90.0])) == 1


def test_means_over_several_versions_or_devices_are_named(tmp_path):
    here = Store(tmp_path)
    for seed, (source, device) in enumerate([("aa", "cpu"), ("aa", "cpu"), ("ab", "cpu")]):
        here.write(cell_of(seed), {"scores_percent": {"ACC": 60.0 + seed}, "source": source, "device": device})
        here.write(cell_of(seed, latent_dim=2), {"scores_percent": {"ACC": 1.0}, "source": "aa", "device": "cpu"})
    here.write(cell_of(0, latent_dim=4), {"scores_percent": {"ACC": 1.0}, "source": "aa", "device": "cpu"})
    here.write(cell_of(1, latent_dim=4), {"scores_percent": {"ACC": 1.0}, "source": "aa", "device": "a GPU"})
    here.write(cell_of(n_leaves=20), {"scores_percent": {"DP": 1.0, "LP": 1.0}, "source": "ac", "device": "cpu"})
    base, _, four, *_ = (row.title for row in TABLES["sizes"].rows)
    (said,) = [line for line in showing.remarks(TABLES["sizes"], showing.lines(TABLES["sizes"], here, 1.0))
               if "versions" in line]  # fmt: skip
    assert said.endswith(f"(source and device of their records): Fashion: {base}, {four}.")
    for seed in (0, 1):  # figures of two versions, but each of one
        here.write(cell_of(seed, method="deepect"), {"scores_percent": {"ACC": 1.0}, "source": "aa"})
        here.write(cell_of(seed, method="deepect", n_leaves=20), {"scores_percent": {"DP": 1.0}, "source": "ab"})
    named = showing.remarks(TABLES["clustering"], showing.lines(TABLES["clustering"], here, 1.0))
    assert [line.split(": ", 1)[1] for line in named if "versions" in line] == ["Fashion: TreeVAE."]


def test_signs_of_all_marks_are_explained_in_every_form(tmp_path):
    here = Store(tmp_path)
    for seed in range(3):
        fabricate(here, cell_of(seed), ACC=70.0 + seed, NMI=64.0 + seed, ELBO=-245.0 + 0.1 * seed)
    fabricate(here, cell_of(0, latent_dim=2), ACC=49.0, NMI=51.8, ELBO=-250.0)
    found = showing.lines(TABLES["sizes"], here, 1.0)
    assert [one.mark for one in found[0].figures] == ["▲", "△", "▼"]
    assert [one.mark for one in found[1].figures] == ["▽", "=", "▽"]
    said = "by Welch's test over seeds (p < 0.05 however the paper's figures were rounded"
    assert all(said in form(TABLES["sizes"], found, 1.0) for form in (showing.as_text, showing.as_markdown))
    latex = showing.as_latex(TABLES["sizes"], found, 1.0)
    assert latex.isascii()
    (about,) = [line for line in latex.splitlines() if line.startswith(r"\caption")]
    assert r"$\uparrow$ better than the paper, $\downarrow$ worse" in about
    assert r"were rounded; a method without luck as it is); $\nearrow$ $\searrow$ so are the means" in about
    assert r"$71.0 \pm 1.0$ $\uparrow$ & $63.5 \pm 4.1$ & $65.0 \pm 1.0$ $\nearrow$ &" in latex
    assert r"$49.0$ $\searrow$ & $49.8 \pm 4.0$ & $51.8$ $=$ &" in latex


def test_a_score_is_read_from_a_record_or_is_not_there():
    record = {"leaf_attributes_percent": {"Male": [30.0, None]}}
    assert Score(("leaf_attributes_percent", "Male", 0)).read(record) == 30
    assert Score(("leaf_attributes_percent", "Male", 0), others=True).read(record) == 70
    for where in (("leaf_attributes_percent", "Male", 1), ("leaf_attributes_percent", "Male", 7), ("elbo", "RL")):
        assert Score(where).read(record) is None


# -- showing --------------------------------------------------------------------------------------------------------


def test_a_table_with_some_records(tmp_path):
    here = Store(tmp_path)
    for seed, acc in enumerate((62.0, 64.0, 66.0)):
        fabricate(here, cell_of(seed), ACC=acc, NMI=64.7 + 0.01 * (seed - 1), ELBO=-240.0, RL=226.0)
    fabricate(here, cell_of(0, n_leaves=20), DP=50.0, LP=70.0)
    fabricate(here, cell_of(method="agg", n_leaves=10), ACC=51.3, NMI=60.0)
    fabricate(here, cell_of(5, scale=0.1), ACC=1.0)
    text = treevae("paper", "show", "clustering", "--results", tmp_path)
    (row,) = [line for line in text.splitlines() if line.startswith("Fashion") and " TreeVAE " in line]
    cells = ["Fashion TreeVAE 1 or 3", "50.0 ▽ (54.4 ± 2.4)", "70.0 ▽ (71.4 ± 2.0)", "64.0 ± 2.0 △ (63.6 ± 3.3)",
             "64.7 ± 0.0 = (64.7 ± 1.4)"]  # fmt: skip
    assert " ".join(row.split()) == " ".join(cells)
    (row,) = [line for line in text.splitlines() if line.split()[:2] == ["Fashion", "Ward"]]
    cells = ["Fashion Ward 1", "not run (45.0 ± 0.0)", "not run (67.6 ± 0.0)", "51.3 ± 0.0 = (51.3 ± 0.0)",
             "60.0 ± 0.0 ▲ (52.6 ± 0.0)"]  # fmt: skip
    assert " ".join(row.split()) == " ".join(cells)
    markdown = (tmp_path / "tables" / "clustering.md").read_text()
    assert "| Fashion | TreeVAE | 1 or 3 | 50.0 ▽ | 54.4 ± 2.4 |" in markdown
    latex = (tmp_path / "tables" / "clustering.tex").read_text()
    assert r"& TreeVAE & 1 or 3 & $50.0$ $\searrow$ & $54.4 \pm 2.4$ &" in latex
    text = treevae("paper", "show", "generative", "--results", tmp_path)
    assert "not recorded" in text
    assert "226.0 ± 0.0 ▲ (226.5 ± 0.3)" in text
    assert "−240.0 ± 0.0 ▼ (−239.2 ± 0.4)" in text


def test_latex_reads_no_text_as_its_own():
    assert showing._tex(r"a_b {c} ~^ \d 5 %") == (
        r"a\_b \{c\} \textasciitilde{}\textasciicircum{} \textbackslash{}d 5 \%"
    )


def test_a_table_of_another_scale_says_so(tmp_path):
    fabricate(Store(tmp_path), cell_of(scale=0.1), ACC=50.0)
    text = treevae("paper", "show", "sizes", "--scale", 0.1, "--results", tmp_path,
                   "--markdown", tmp_path / "a.md", "--latex", tmp_path / "b.tex")  # fmt: skip
    said = "Every schedule is 0.1 of the paper's length"
    assert "50.0   (63.5 ± 4.1)" in text  # figures that do not compare have no mark
    assert not set("▲▼△▽") & set(text)
    assert all(said in one for one in (text, (tmp_path / "a.md").read_text(), (tmp_path / "b.tex").read_text()))
    assert not (tmp_path / "tables").exists()
    text = treevae("paper", "show", "sizes", "--results", tmp_path)
    assert "50.0" not in text
    assert "no file was written" in text
    assert not (tmp_path / "tables").exists()
    fabricate(Store(tmp_path), cell_of(), ACC=51.0)
    assert said not in treevae("paper", "show", "sizes", "--results", tmp_path)
    assert said not in (tmp_path / "tables" / "sizes.md").read_text()


def test_data_that_are_not_the_published_ones_are_named(tmp_path):
    said = "60 + 10 samples, not the paper's 60,000 + 10,000"
    Store(tmp_path).write(cell_of(), {"scores_percent": {"ACC": 50.0}, "note": said})
    assert f"Fashion: {said}." in treevae("paper", "show", "sizes", "--results", tmp_path)
    assert said in (tmp_path / "tables" / "sizes.md").read_text()


def test_runs_on_different_data_are_not_averaged(tmp_path, monkeypatch):
    digits, here, cells = (
        load("digits"),
        Store(tmp_path),
        [cell_of(seed, 1.0, "digits", "bisecting") for seed in (0, 1)],
    )
    for cell, n in zip(cells, (200, 400), strict=True):
        cut = replace(digits, x_test=digits.x_test[:n], y_test=digits.y_test[:n])
        monkeypatch.setattr(running, "_read", lambda name, root, cut=cut: cut)
        (came,) = ended(run([Job((cell,))], here, CPU))
        if n == 400:  # another test set than that of seed 0
            assert re.search(r"^the data .*360x8x8 .* are not those of .*200x8x8 .* another folder", came.why)
            (record,) = [found for _, found in records_of(Job((cell,)), cut, CPU)]
            here.write(cell, record)  # as an earlier version did
    kept = here.read(cells[0])
    assert kept["test_samples"].split()[1] == "200x8x8"
    assert {"train_samples", "source"} <= set(kept)
    text = showing.as_text(ONE_FIGURE, showing.lines(ONE_FIGURE, here, 1.0), 1.0)
    assert "mixed data\n" in text
    assert re.search(r"not averaged: seed 0: .*200x8x8 \w+; seed 1: .*360x8x8", text)


ONE_FIGURE = PaperTable(
    "one", "A table of one figure", ("ACC",), (PaperRow("digits", "bisecting", (PaperEntry(SCORES["ACC"], None),)),)
)


def test_fits_with_other_parameters_are_refused_before_they_start_and_not_averaged(tmp_path, monkeypatch):
    """A default that no recipe names, and so no cell either, has changed between two runs."""
    here, cells = Store(tmp_path), [cell_of(seed, 1.0, "digits", "bisecting") for seed in range(4)]
    list(run([Job((cell,)) for cell in cells[:2]], here, CPU))
    before = showing.as_text(ONE_FIGURE, showing.lines(ONE_FIGURE, here, 1.0), 1.0)
    assert re.search(r"\d ± \d", before)
    monkeypatch.setattr(Bisecting.__init__, "__defaults__", (10, 3, None))
    with monkeypatch.context() as patch:
        patch.setattr(Bisecting, "fit", lambda *_: pytest.fail("nothing is to be fitted"))
        (failed,) = ended(run([Job((cells[2],))], here, CPU))
    assert failed.why == (
        "the parameters (n_init: 3) are not those of records in the store that these would be averaged with "
        "(n_init: 10); name another folder with --results"
    )
    (record,) = [found for _, found in records_of(Job((cells[2],)), load("digits"), CPU)]
    here.write(cells[2], record)  # as by a process that had begun before
    text = showing.as_text(ONE_FIGURE, showing.lines(ONE_FIGURE, here, 1.0), 1.0)
    assert "mixed parameters\n" in text
    said = "which are not averaged: n_init: 10 (seeds 0, 1), 3 (seed 2); move all but one kind away."
    assert f"Digits: Bisecting k-means has records of different parameters, {said}" in text
    here.path(cells[2]).unlink()
    here.write(cells[2], {name: value for name, value in record.items() if name != "parameters"})
    text = showing.as_text(ONE_FIGURE, showing.lines(ONE_FIGURE, here, 1.0), 1.0)
    assert "mixed" not in text  # one that does not tell its parameters is not known to differ
    (finished,) = ended(run([Job((cells[3],), {cell.name: "0" for cell in cells[:2]})], here, CPU))
    assert isinstance(finished, running.Finished)  # those that it differs from are to be replaced


@pytest.mark.parametrize(
    ("one", "other", "names"),
    [
        (
            {"parameters": {"a": 1, "b": [2], "random_state": 0}},
            {"parameters": {"a": 1, "b": [2], "random_state": 1}},
            [],
        ),
        ({"parameters": {"a": 1, "b": [2]}}, {"parameters": {"b": [3], "a": 2}}, ["a", "b"]),
        ({"parameters": {"a": 1}}, {"parameters": {"b": 3}}, []),
        ({"parameters": {"a": None}}, {"parameters": {"a": 0}}, ["a"]),
        ({"parameters": {"a": 1}}, {}, []),
        ({}, {"parameters": {"a": 1}}, []),
    ],
)
def test_parameters_differ_where_both_records_tell_them(one, other, names):
    assert other_parameters(one, other) == names


def test_trees_with_other_leaves_than_asked_for_are_named(tmp_path):
    tree, scores = Tree(), {"scores_percent": {"ACC": 60.0}}
    for n in range(1, 12):
        if n >= 9:
            Store(tmp_path).write(cell_of(n), scores | {"tree": json.loads(tree.to_json())})
        tree = tree.split(tree.leaves[0])
    text = treevae("paper", "show", "sizes", "--results", tmp_path)
    said = "trees of 10 leaves were asked for, these seeds ended with others: "
    assert f"Fashion: base: {said}9 (9), 11 (11)." in text
    assert text.count(said) == 1


def test_a_record_whose_tree_is_none_still_has_its_figures(tmp_path):
    Store(tmp_path).write(cell_of(), {"scores_percent": {"ACC": 60.0}, "tree": {"children": "none"}})
    text = treevae("paper", "show", "sizes", "--results", tmp_path)
    assert "60.0 ▽ (63.5 ± 4.1)" in text
    assert "leaves were asked for" not in text


def test_records_that_do_not_tell_their_data_still_count(tmp_path):
    for seed, more in enumerate(({}, {"note": ""}, {"note": "", "train_samples": "uint8 60x4 1a2b3c4d"})):
        Store(tmp_path).write(cell_of(seed), {"scores_percent": {"ACC": 60.0 + seed}} | more)
    assert "61.0 ± 1.0" in treevae("paper", "show", "sizes", "--results", tmp_path)


@pytest.mark.parametrize(
    "records",
    [
        [{"test_samples": "a"}, {"test_samples": "a"}, {"test_samples": "b"}],
        [{"note": "half of them"}, {"note": "half of them"}, {"note": ""}],
        [{"note": "half of them"}, {"note": "half of them", "test_samples": "a"}, {}],
    ],
    ids=["fingerprints", "notes", "notes of some"],
)
def test_of_three_seeds_one_of_other_data_keeps_them_from_being_averaged(tmp_path, records):
    for seed, record in enumerate(records):
        Store(tmp_path).write(cell_of(seed), {"scores_percent": {"ACC": 60.0}} | record)
    assert "mixed data" in treevae("paper", "show", "sizes", "--results", tmp_path)


def test_rows_of_different_samples_are_named(tmp_path):
    here = Store(tmp_path)
    for k, (method, prints) in enumerate([("agg", "a"), ("treevae", "b"), ("bisecting", "b")]):
        here.write(cell_of(method=method), {"scores_percent": {"ACC": 1.0 + k}, "train_samples": prints})
    here.write(cell_of(1), {"scores_percent": {"ACC": 5.0}})
    said = treevae("paper", "show", "clustering", "--results", tmp_path)
    assert "Fashion: the rows are not all of the same samples: Ward: a; TreeVAE, Bisecting k-means: b.\n" in said
    assert "Fashion: TreeVAE, seed 1: recorded before records told which samples they are of.\n" in said
    Store(tmp_path).path(cell_of(method="agg")).unlink()
    assert "same samples:" not in treevae("paper", "show", "clustering", "--results", tmp_path)


def test_the_same_samples_from_other_files_are_averaged(tmp_path):
    """A note tells of files that were written anew; what decides is the samples in them."""
    prints = {"train_samples": "uint8 60x4 1a2b3c4d", "test_samples": "uint8 10x4 5e6f7a8b"}
    said = "4 of 4 files with a published checksum differ from it"
    for seed, note in enumerate(("", said)):
        Store(tmp_path).write(cell_of(seed), {"scores_percent": {"ACC": 60.0 + seed}, "note": note} | prints)
    text = treevae("paper", "show", "sizes", "--results", tmp_path)
    assert "60.5 ± 0.7" in text
    assert f"Fashion: {said}." in text


def test_attributes_are_of_one_tree(tmp_path):
    for seed in (0, 1):
        attributes = {name: [10.0 + seed] * 7 for _, name, _, _ in tables.ATTRIBUTES}  # a leaf was pruned
        Store(tmp_path).write(cell_of(seed, data="celeba"), {"leaf_attributes_percent": attributes})
    lines = treevae("paper", "show", "celeba-attributes", "--results", tmp_path).splitlines()
    assert lines[2].split()[:3] == ["data", "attribute", "seeds"]
    (female,) = [line for line in lines if " Female " in line]
    assert female.split()[:5] == ["CelebA", "Female", "1", "90.0", "(97.2)"]
    assert female.endswith("–   (43.7)")
    assert not set("▲▼△▽±") & set("".join(lines))  # nothing to explain
