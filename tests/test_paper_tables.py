"""The paper's tables: the figures they hold, and the fits that they ask for."""

import json
import re
from collections.abc import Iterable

import pytest
from cells import cell_of
from scipy.stats import ttest_ind_from_stats

from treevae import Tree, TreeVAE
from treevae.data.sets import SOURCES
from treevae.experiments import showing, tables
from treevae.experiments.chance import Mean
from treevae.experiments.methods import METHODS
from treevae.experiments.printed import PaperFigure
from treevae.experiments.running import wanted
from treevae.experiments.store import Store
from treevae.experiments.tables import TABLES, PaperEntry
from treevae.parameters import check_parameters
from treevae.recipes import RECIPES


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


def test_the_papers_figures_are_of_ten_seeds():
    ours = Mean.of([62.0, 64.0, 67.5])  # of all that is printed as 60.6±1.0 the nearest mean is 60.65
    tests = (ttest_ind_from_stats(*ours, 60.65, sd, 10, equal_var=False) for sd in (0.95, 1.05))
    expected = max(found.pvalue for found in tests)
    assert showing.chance_of(ours, PaperFigure.of("60.6±1.0")) == pytest.approx(expected)
