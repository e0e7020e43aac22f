"""How the paper's tables are shown with our records."""

import json
import re
from dataclasses import replace

import pytest
from cells import CPU, cell_of, ended, fabricate, records_of, treevae

from treevae import Tree
from treevae.baselines.bisecting import Bisecting
from treevae.data import load
from treevae.experiments import running, showing, tables
from treevae.experiments.cells import Job, other_parameters
from treevae.experiments.running import run
from treevae.experiments.store import Store
from treevae.experiments.tables import SCORES, PaperEntry, PaperRow, PaperTable


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
