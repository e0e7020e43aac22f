"""Better, worse or the same as printed: the marks of figures, and what luck could do."""

import pytest
from cells import cell_of, fabricate
from scipy.stats import ttest_ind

from treevae.experiments import showing
from treevae.experiments.chance import Mean, by_chance
from treevae.experiments.printed import PaperFigure
from treevae.experiments.store import Store
from treevae.experiments.tables import TABLES, Score


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
