"""The paper's tables as commands: their figures, the store of records, what is run and what is shown."""

import errno
import json
import os
import re
import signal
import socket
import sys
import threading
import time
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from typer.testing import CliRunner

from treevae import Tree, TreeVAE, fitting
from treevae.baselines.bisecting import Bisecting
from treevae.baselines.deepect import DeepECT
from treevae.baselines.ladder import VAE, path
from treevae.baselines.ward import Ward
from treevae.cli import app
from treevae.data import DataSet, load
from treevae.data.sets import SOURCES
from treevae.experiments import running, showing, store, tables
from treevae.experiments.cells import Cell, Job
from treevae.experiments.cluster import run_on_ray
from treevae.experiments.methods import METHODS, Method, Place
from treevae.experiments.records import record, record_of_labels
from treevae.experiments.running import Failed, Finished, jobs_of, run, standing, wanted
from treevae.experiments.store import DamagedRecordError, Store
from treevae.experiments.tables import SCORES, TABLES, Entry, Figure, Row, Score, Table
from treevae.model.module import TreeVAEModule
from treevae.parameters import check_parameters
from treevae.recipes import RECIPES
from treevae.tree import balanced

SMALL = {"network": "mlp", "latent_dim": 2, "hidden_dim": 8, "n_leaves": 2}
CPU = Place(device="cpu")
TINY = Table(
    "tiny",
    "A table that takes seconds",
    ("DP", "ACC"),
    (
        Row("digits", "agg", (Entry(SCORES["DP"], Figure.of("50.0±0.0"), {"n_leaves": 4}), Entry(SCORES["ACC"], None))),
        Row("digits", "treevae", tuple(Entry(SCORES[name], Figure.of("0.0±0.0"), SMALL) for name in ("DP", "ACC"))),
        Row("digits", "deepect", tuple(Entry(SCORES[name], Figure.of("9.9±9.9"), SMALL) for name in ("DP", "ACC"))),
    ),
)
SCALE = 0.02  # three epochs of a growth stage


def cell_of(seed: int = 0, scale: float = 1.0, data: str = "fashion", method: str = "treevae", **changes) -> Cell:
    return METHODS[method].cell(data, changes, scale, seed)


def treevae(*arguments, code: int = 0) -> str:
    """All that a command printed; its exit code must be the given one."""
    result = CliRunner().invoke(app, [str(argument) for argument in arguments])
    assert result.exit_code == code, f"{result.output}\n{result.exception!r}"
    return result.output


@pytest.fixture
def tiny(monkeypatch) -> Table:
    monkeypatch.delitem(METHODS, "deepect")  # as if nobody had written it yet
    monkeypatch.setitem(TABLES, "tiny", TINY)
    return TINY


# -- the tables ---------------------------------------------------------------------------------------------------


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
    columns = 3 + 2 * len(table.columns)
    assert all(line.count("&") == columns - 1 for line in latex.splitlines() if line.endswith(r"\\"))


SUMS = {  # over the rows of a table, of the means and of the standard deviations that are printed in the paper
    ("clustering", "DP"): (1007.41, 46.04),
    ("clustering", "LP"): (1410.62, 37.01),
    ("clustering", "ACC"): (1205.43, 72.0),
    ("clustering", "NMI"): (1069.85, 52.0),
    ("generative", "LL"): (-1490.03, 3.63),
    ("generative", "RL"): (1379.07, 4.52),
    ("generative", "ELBO"): (-1524.52, 4.69),
    ("celeba-attributes", "leaf 1"): (234.6, 0),
    ("celeba-attributes", "leaf 8"): (129.4, 0),
    ("sizes", "ACC"): (1331.6, 95.6),
    ("sizes", "NMI"): (1364.9, 59.3),
    ("sizes", "ELBO"): (-5277.0, 7.7),
    ("matched-ladder", "LL"): (-468.4, 0.2),
    ("fixed-tree", "RL"): (455.4, 0.8),
    ("contrastive-losses", "NMI"): (96.0, 13.2),
    ("predicted-clusters", "NMI"): (53.12, 1.68),
    ("true-clusters", "NMI"): (40.54, 0.78),
}


@pytest.mark.parametrize(("name", "column"), SUMS)
def test_no_digit_of_the_papers_figures_has_slipped(name, column):
    place = TABLES[name].columns.index(column)
    figures = [row.entries[place].paper for row in TABLES[name].rows if row.entries[place].paper is not None]
    sums = sum(figure.mean for figure in figures), sum(figure.sd or 0 for figure in figures)
    assert sums == pytest.approx(SUMS[name, column], abs=1e-6)


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
    ("mean", "paper", "better", "mark"),
    [
        (63.64, "63.6±3.3", 1, "="),
        (63.66, "63.6±3.3", 1, "▲"),
        (63.5, "63.6±3.3", 1, "▼"),
        (80.0, "80.3±0.2", -1, "▲"),
        (80.4, "80.3±0.2", -1, "▼"),
        (-96.0, "-96.8±0.2", 1, "▲"),
        (1.0, "–", 1, ""),
        (1.0, "2.0", 0, ""),
    ],
)
def test_better_worse_or_the_same_as_printed(mean, paper, better, mark):
    assert showing.compare(mean, Figure.of(paper), better) == mark


def test_a_score_is_read_from_a_record_or_is_not_there():
    record = {"leaf_attributes_percent": {"Male": [30.0, None]}}
    assert Score(("leaf_attributes_percent", "Male", 0)).read(record) == 30
    assert Score(("leaf_attributes_percent", "Male", 0), others=True).read(record) == 70
    for where in (("leaf_attributes_percent", "Male", 1), ("leaf_attributes_percent", "Male", 7), ("elbo", "RL")):
        assert Score(where).read(record) is None


# -- cells and the store ------------------------------------------------------------------------------------------


def test_a_name_can_be_read_and_differs_where_anything_does():
    assert cell_of(3).name.startswith("fashion-treevae-seed3-")
    assert cell_of(n_leaves=20, scale=0.1).name.startswith("fashion-treevae-n_leaves=20-x0.1-seed0-")
    assert "latent_dim=2.4.8.16.32.64" in cell_of(latent_dim=[2, 4, 8, 16, 32, 64]).name
    assert "tree=given" in cell_of(tree={"children": {"0": [1, 2]}, "n_created": 3}).name
    different = [cell_of(), cell_of(1), cell_of(scale=0.5), cell_of(n_leaves=20), cell_of(data="mnist"),
                 cell_of(method="agg"), cell_of(tree={"children": {}, "n_created": 1}),
                 cell_of(tree={"children": {"0": [1, 2]}, "n_created": 3})]  # fmt: skip
    assert len({cell.name for cell in different}) == len(different)
    assert cell_of().hash == cell_of(7).hash
    assert cell_of(n_leaves=10) == cell_of()  # a change that changes nothing
    one, other = cell_of(router_layers=3, n_init=2), cell_of(n_init=2, router_layers=3)
    assert one.name == other.name


def test_every_table_has_cells_with_names_of_their_own():
    every = {cell for table in TABLES.values() for cell in wanted(table, 2, 1.0)}
    assert len({cell.name for cell in every}) == len(every)
    assert max(len(cell.name) for cell in every) < 150


def test_the_scale_shortens_the_schedule():
    assert cell_of(scale=0.1).settings["epochs"] == 15
    assert cell_of(scale=1e-6).settings["epochs"] == 1
    assert "epochs" not in cell_of(method="agg").settings
    for scale in (0, -1, float("nan"), float("inf")):
        with pytest.raises(ValueError, match=r"scale=.* must be above 0; 1 is the paper's schedule"):
            cell_of(scale=scale)


def test_a_record_comes_back_with_its_identity(tmp_path):
    here = Store(tmp_path / "new")
    assert here.read(cell_of()) is None
    path = here.write(cell_of(), {"note": "x"})
    assert path == tmp_path / "new" / f"{cell_of().name}.json"
    assert here.read(cell_of()) == {"note": "x", "data": "fashion", "method": "treevae", "scale": 1.0, "seed": 0,
                                    "settings": RECIPES["fashion"]}  # fmt: skip
    here.write(cell_of(), {"note": "y"})
    assert here.read(cell_of())["note"] == "x"  # what is there stays
    here.write(cell_of(12), {"note": "z"})
    assert [(seed, record["note"]) for seed, record in here.seeds(cell_of(5)).items()] == [(0, "x"), (12, "z")]


def test_scales_never_share_a_cell(tmp_path):
    here = Store(tmp_path)
    here.write(cell_of(scale=0.1), {})
    assert here.read(cell_of()) is None
    assert here.seeds(cell_of()) == {}
    assert here.seeds(cell_of(scale=0.10001)) == {}
    assert list(here.seeds(cell_of(scale=0.1))) == [0]


@pytest.mark.parametrize("step", ["mkdir", "fsync", "replace"])
def test_a_record_is_written_whole_or_not_at_all(tmp_path, monkeypatch, step):
    here = Store(tmp_path)

    def full(*arguments, **options):
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    with monkeypatch.context() as patch:
        if step == "mkdir":
            patch.setattr(store.Path, "mkdir", full)
        elif step == "fsync":
            patch.setattr(os, "fsync", full)
        else:
            patch.setattr(os, "replace", full)
        with pytest.raises(OSError, match=r"cannot write .*fashion-treevae-seed0.*: No space left"):
            here.write(cell_of(), {"much": list(range(1000))})
    assert list(tmp_path.iterdir()) == []
    assert here.write(cell_of(), {}).exists()


@pytest.mark.parametrize("text", ["", '{"data": "fash', "[1, 2]", "{}", json.dumps({"data": "mnist"}), b"\xff\xfe"])
def test_a_damaged_record_is_refused_and_left_as_it_is(tmp_path, text):
    here, content = Store(tmp_path), text if isinstance(text, bytes) else text.encode()
    path = here.path(cell_of())
    path.write_bytes(content)
    for act in (here.read, here.seeds, lambda cell: here.write(cell, {}), lambda cell: jobs_of(here, [cell])):
        with pytest.raises(DamagedRecordError, match=r"is damaged: .*remove it to run the cell again"):
            act(cell_of())
    for command, code in (("run", 1), ("show", 0)):
        said = treevae("paper", command, "generative", "--results", tmp_path, code=code)
        assert f"{path.name} is damaged" in said
    (row,) = [line for line in said.splitlines() if line.startswith("Fashion") and " TreeVAE " in line]
    assert row.split().count("damaged") == 3
    assert said.count("not run") == 3 * (len(TABLES["generative"].rows) - 1)  # the others are shown
    said = treevae("paper", "list", "--results", tmp_path)
    assert f"{path.name} is damaged" in said
    (row,) = [line for line in said.splitlines() if line.startswith("generative")]
    assert row.endswith("; 1 damaged")
    assert path.read_bytes() == content


def test_the_records_in_the_repository_are_cells_of_the_tables():
    here = Store(Path(__file__).parents[1] / "results")
    files = {path.name for path in here.folder.glob("*.json")}
    known = set()
    for table in TABLES.values():
        for cell in wanted(table, 1, 1.0):
            for seed, found in here.seeds(cell).items():
                assert {"command", "device", "versions"} <= set(found)
                known.add(here.path(replace(cell, seed=seed)).name)
    assert len(known) >= 10
    assert files == known


# -- jobs ---------------------------------------------------------------------------------------------------------


def test_seeds_of_one_fit_are_one_job_and_what_is_there_is_skipped(tmp_path):
    here = Store(tmp_path)
    wanted = [cell_of(seed, n_leaves=n) for n in (10, 20) for seed in range(4)]
    here.write(cell_of(1), {})
    assert [[(c.settings["n_leaves"], c.seed) for c in job.cells] for job in jobs_of(here, wanted)] == [
        [(10, 0), (10, 2), (10, 3)],
        [(20, 0), (20, 1), (20, 2), (20, 3)],
    ]
    assert [job.seeds for job in jobs_of(here, wanted, side_by_side=2)] == [(0, 2), (3,), (0, 1), (2, 3)]
    bisecting = [cell_of(seed, method="bisecting") for seed in range(3)]
    assert [job.seeds for job in jobs_of(here, bisecting)] == [(0,), (1,), (2,)]


def test_one_fit_may_serve_several_settings(tmp_path, monkeypatch):
    cuts = Method("cuts", lambda job, data, place: iter(()), uses=("n_leaves", "latent_dim"),
                  together=("seed", "n_leaves"))  # fmt: skip
    monkeypatch.setitem(METHODS, "cuts", cuts)
    wanted = [cuts.cell("fashion", {"n_leaves": n, "latent_dim": z}, 1, s)
              for z in (4, 8) for n in (10, 20) for s in (0, 1)]  # fmt: skip
    assert [len(job.cells) for job in jobs_of(Store(tmp_path), wanted)] == [4, 4]


def test_a_job_that_was_begun_goes_on_as_it_was(tmp_path):
    here = Store(tmp_path)
    begun = Job(tuple(cell_of(seed) for seed in range(5)))
    folder = here.begin(begun)
    assert here.started() == []  # nothing to go on from yet
    (folder / "state-a.safetensors").touch()
    assert here.started() == [begun]
    here.write(cell_of(0), {})
    assert jobs_of(here, [cell_of(seed) for seed in range(7)]) == [begun, Job((cell_of(5), cell_of(6)))]
    assert jobs_of(here, [cell_of(0, n_leaves=3)]) == [Job((cell_of(0, n_leaves=3),))]
    for seed in range(5):
        here.write(cell_of(seed), {})
    assert jobs_of(here, [cell_of(0)]) == []
    assert not (tmp_path / "running").exists()


def test_a_damaged_job_is_refused(tmp_path):
    here = Store(tmp_path)
    folder = here.begin(Job((cell_of(),)))
    (folder / "state-a.safetensors").touch()
    (folder / "job.json").write_text('[{"data"')
    with pytest.raises(DamagedRecordError, match=r"job\.json cannot be read: .*its fit then starts anew"):
        jobs_of(here, [cell_of()])
    assert (folder / "state-a.safetensors").exists()


def test_an_unknown_name_is_refused_with_those_there_are(monkeypatch):
    monkeypatch.delitem(METHODS, "deepect")  # as if nobody had written it yet
    with pytest.raises(ValueError, match=r"no table 'table1'; there are clustering, generative"):
        tables.table_of("table1")
    with pytest.raises(ValueError, match=r"no data set 'svhn' in the table clustering; there are mnist, fashion, "):
        wanted(TABLES["clustering"], 1, 1.0, ["mnist", "svhn"])
    with pytest.raises(ValueError, match=r"no method 'dbscan' in the table clustering; there are agg, vae, "):
        wanted(TABLES["clustering"], 1, 1.0, None, ["dbscan"])
    with pytest.raises(ValueError, match=r"no method 'deepect' that can be run; there are treevae, "):
        wanted(TABLES["clustering"], 1, 1.0, None, ["deepect"])
    with pytest.raises(ValueError, match=r"seeds=0 must be at least 1"):
        wanted(TABLES["clustering"], 0, 1.0)


# -- methods ------------------------------------------------------------------------------------------------------


def test_deepect_gives_a_record_for_its_cell():
    data = load("digits")
    cell = cell_of(data="digits", method="deepect", scale=0.005, n_leaves=6, network="mlp", batch_size=128)
    ((_, found),) = METHODS["deepect"].fit(Job((cell,)), data, CPU)
    assert len(found["test_leaf_by_class"]) == 6  # in one epoch, where the paper has a split in two
    assert set(found["scores_percent"]) == {"DP", "LP", "ACC", "NMI", "ARI"}
    assert np.sum(found["test_leaf_by_class"]) == len(data.x_test)
    json.dumps(found)


def test_deepect_is_extended_by_augmentation_in_contrastive_experiments_alone(monkeypatch):
    """The paper uses its own kind of contrast "for the contrastive clustering experiments"."""
    made = []

    def made_with(*arguments, **settings):
        made.append(settings["augment"])
        raise ValueError("enough")

    plain = DeepECT()
    monkeypatch.setattr("treevae.baselines.deepect.DeepECT", lambda *a, **s: made_with(*a, **s) if s else plain)
    for data in ("omniglot5", "cifar10", "mnist"):
        with pytest.raises(ValueError, match="enough"):
            list(METHODS["deepect"].fit(Job((cell_of(data=data, method="deepect"),)), load("digits"), CPU))
    assert made == [None, "cifar", None]
    assert RECIPES["omniglot5"]["augment"] == "omniglot"  # which TreeVAE learns from


@pytest.mark.parametrize("name", ["agg", "bisecting", "hdbscan"])
def test_a_method_gives_a_record_for_its_cells(name):
    data = load("digits")
    ((cell, found),) = METHODS[name].fit(Job((cell_of(data="digits", method=name),)), data, Place(command="a command"))
    assert cell.method == name
    assert found["command"] == "a command"
    assert set(found["scores_percent"]) == {"LP", "ACC", "NMI", "ARI"} | ({"DP"} if name != "hdbscan" else set())
    assert 20 < found["scores_percent"]["ACC"] <= 100
    assert np.sum(found["test_leaf_by_class"]) == len(data.x_test)
    json.dumps(found)


@pytest.mark.parametrize("name", ["vae", "laddervae", "laddervae-matched"])
def test_latents_give_a_record_for_their_cells(name):
    data, method = load("digits"), METHODS[name]
    changes = {"max_depth": 2, "network": "mlp", "hidden_dim": 16, "batch_size": 64}
    cells = [method.cell("digits", changes | {"n_leaves": n}, 0.004, seed) for n in (4, 10) for seed in (0, 1)]
    cells = cells if "matched" not in name else cells[:2]
    found = dict(method.fit(Job(tuple(cells)), data, CPU))
    assert set(found) == set(cells)
    for cell, kept in found.items():
        assert kept["elbo"]["ELBO"] < 0
        assert kept["likelihood"]["draws"] == 4
        assert kept["seed"] == cell.seed
        fitted = kept["parameters"] | {"depth": kept["parameters"]["max_depth"]}
        of_the_tree = ("n_leaves",) if name != "laddervae-matched" else ("n_leaves", "max_depth", "hidden_dim")
        said = {setting: value for setting, value in cell.settings.items() if setting not in of_the_tree}
        assert said.items() <= fitted.items()
        assert ("depth" in said) == ("ladder" in name)
        assert len(kept["test_leaf_by_class"]) == cell.settings["n_leaves"]  # Ward's method on the latents
        assert kept["scores_percent"]["ACC"] > 10
        json.dumps(kept)
    if name == "laddervae-matched":
        tree = TreeVAE(**RECIPES["digits"] | changes | {"tree": balanced(4)})
        arch = tree._check(data.x_train, 0)[2]
        in_training = sum(w.numel() for w in TreeVAEModule(arch, [balanced(4)], torch.Generator()).parameters())
        assert in_training <= kept["n_weights"] < 1.03 * in_training


@pytest.mark.parametrize(
    ("name", "data", "expected"),
    [
        ("vae", "fashion", {"epochs": 500, "max_depth": 0, "latent_dim": 8, "network": "cnn", "batch_size": 256}),
        ("vae", "omniglot", {"epochs": 500, "augment": "omniglot", "contrastive_weight": 0.0, "network": "deep_cnn"}),
        ("vae", "cifar10", {"augment": "cifar", "contrastive_weight": 100.0, "contrastive_loss": "bottom_up"}),
        ("laddervae", "news20", {"epochs": 1000, "max_depth": 5, "latent_dim": 4, "hidden_dim": 128}),
        ("laddervae", "mnist", {"epochs": 1000, "max_depth": 5, "likelihood": "bernoulli"}),
        (
            "laddervae",
            "cifar100",
            {"epochs": 1000, "max_depth": 5, "hidden_dim": 512, "augment": "cifar", "contrastive_weight": 100.0,
             "contrastive_loss": "bottom_up", "layer_defaults": "tensorflow", "likelihood": "gaussian"},
        ),
        ("laddervae-matched", "fashion", {"epochs": 1000, "max_depth": 5, "latent_dim": 8}),
    ],
)  # fmt: skip
def test_latents_are_of_the_papers_models(name, data, expected, monkeypatch):
    """A VAE for 500 epochs, a LadderVAE of depth 5 for 1,000, with the contrastive loss on photographs."""
    made, samples = [], load("digits")

    def enough(model, X, seeds, **options):
        made.append(model)
        assert X is samples.x_train
        raise ValueError("enough")

    monkeypatch.setattr(TreeVAE, "fit_seeds", enough)
    for scale in (1.0, 0.1):
        with pytest.raises(ValueError, match="enough"):
            list(METHODS[name].fit(Job((cell_of(data=data, method=name, scale=scale),)), samples, CPU))
    whole, short = (model.get_params() for model in made)
    assert (expected | {"n_init": 1}).items() <= whole.items()  # nothing is split, whatever TreeVAE's default
    assert short["epochs"] == whole["epochs"] / 10
    assert whole["tree"] == path(whole["max_depth"])
    assert made[0]._schedule == whole["epochs"]  # of the plan that a VAE or a LadderVAE has


def test_ward_merges_the_latents_of_the_test_samples(monkeypatch):
    data, cells = load("digits"), [cell_of(seed, data="digits", method="vae", n_leaves=n)
                                   for n in (4, 10) for seed in (0, 1)]  # fmt: skip

    def latents(X, seed):
        return X[:, seed * 4 :].reshape(len(X), -1)

    def fitted(model, X, seeds, **options):
        return [SimpleNamespace(model_=None, transform=lambda X, seed=seed: latents(X, seed)) for seed in seeds]

    monkeypatch.setattr(VAE, "fit_seeds", fitted)
    monkeypatch.setattr("treevae.experiments.records.record", lambda *_: {"test_leaf_by_class": "of one leaf"})
    found = dict(METHODS["vae"].fit(Job(tuple(cells)), data, CPU))
    assert list(found) == sorted(cells, key=lambda cell: cell.seed)
    for cell, kept in found.items():
        ward = Ward(cell.settings["n_leaves"]).fit(latents(data.x_test, cell.seed))
        expected = record_of_labels(ward.tree_, ward.labels_, data, cell.seed, "", 0)
        for part in ("tree", "scores_percent", "test_leaf_by_class"):
            assert kept[part] == expected[part]


@pytest.mark.parametrize("method", ["vae", "laddervae"])
def test_one_fit_serves_both_tables(method):
    clusters, densities = (
        set(wanted(TABLES[name], 2, 1.0, ["mnist"], [method])) for name in ("clustering", "generative")
    )
    assert len(clusters) == 4  # two numbers of leaves, two seeds
    assert densities < clusters
    assert len(jobs_of(Store(Path("nowhere")), sorted(clusters, key=str))) == 1


def test_ladders_are_as_deep_as_the_papers_on_every_data_set():
    assert RECIPES["news20"]["max_depth"] == 6
    settings = cell_of(data="news20", method="laddervae").settings
    assert (settings["depth"], "max_depth" in settings) == (5, False)
    assert not {"max_depth", "hidden_dim", "depth"} & set(cell_of(data="news20", method="vae").settings)


def test_a_fixed_tree_is_trained_and_recorded():
    data = load("digits")
    tree = Tree().split(0).split(1)
    cell = cell_of(data="digits", scale=SCALE, **SMALL, tree=json.loads(tree.to_json()))
    ((_, found),) = METHODS["treevae"].fit(Job((cell,)), data, CPU)
    assert found["tree"] == found["parameters"]["tree"] == json.loads(tree.to_json())
    json.dumps(found)


def test_frequencies_of_attributes_in_each_leaf():
    x = np.zeros((4, 2))
    has = np.array([[1, 0], [1, 1], [0, 1], [0, 1]], dtype=bool)
    data = DataSet("faces", x, None, x, None, attributes_test=has, attribute_names=("Male", "Bangs"))
    found = record_of_labels(Tree().split(0).split(1), np.array([0, 0, 0, 2]), data, 0, "", 1.0)
    assert found["leaf_attributes_percent"] == {
        "Male": [pytest.approx(200 / 3), None, 0], "Bangs": [pytest.approx(200 / 3), None, 100]
    }  # fmt: skip
    assert "scores_percent" not in found


def test_hair_loss_and_beard_are_what_the_paper_says():
    """Its section on CelebA: balding or a receding hairline; a beard or 5 o'clock shadow. Table 3 reads just these."""
    names = ("Bald", "Receding_Hairline", "No_Beard", "5_o_Clock_Shadow")
    has = np.array([[1, 0, 1, 0], [0, 1, 1, 1], [1, 1, 0, 0], [0, 0, 0, 1], [0, 0, 1, 0]], dtype=bool)
    x = np.zeros((5, 2))
    data = DataSet("faces", x, None, x, None, attributes_test=has, attribute_names=names)
    found = record_of_labels(Tree().split(0), np.array([0, 0, 0, 1, 1]), data, 0, "", 1.0)
    hair, beard = (row for row in TABLES["celeba-attributes"].rows if row.title in ("Hair Loss", "Beard"))
    assert [entry.score.read(found) for entry in hair.entries[:2]] == pytest.approx([100, 0])
    assert [entry.score.read(found) for entry in beard.entries[:2]] == pytest.approx([200 / 3, 50])


def test_bisecting_k_means_halves_the_widest_cluster():
    chance = np.random.default_rng(0)
    centres = np.array([[0, 0], [1, 0], [10, 0], [10, 2]])
    X = (centres[:, None] + chance.normal(0, 0.05, (4, 20, 2))).reshape(80, 2)
    found = Bisecting(4, random_state=0).fit(X)
    assert [len(set(found.labels_[20 * k : 20 * k + 20])) for k in range(4)] == [1] * 4
    assert found.tree_.height == 2  # far ones part first
    assert (found.predict(X) == found.labels_).all()
    assert (found.predict(centres[::-1]) == found.labels_[::-20]).all()
    assert (Bisecting(4, random_state=0).fit(X).labels_ == found.labels_).all()
    assert len(Bisecting(5, random_state=0).fit(X[:1].repeat(9, 0)).tree_.leaves) == 1  # nothing differs
    with pytest.raises(ValueError, match=r"n_clusters=0 must be a whole number from 1 to 80"):
        Bisecting(0).fit(X)


# -- running ------------------------------------------------------------------------------------------------------


def small(seed: int, **changes) -> Cell:
    return cell_of(seed, SCALE, "digits", **SMALL | changes)


def test_what_is_missing_is_run_once(tmp_path, tiny):
    here = Store(tmp_path)
    ended = list(run(jobs_of(here, wanted(tiny, 2, SCALE)), here, CPU))
    assert all(isinstance(one, Finished) for one in ended)
    assert [(one.cell.method, one.cell.seed) for one in ended] == [
        ("agg", 0),
        ("agg", 0),
        ("treevae", 0),
        ("treevae", 1),
    ]
    assert sorted(path.name for path in tmp_path.iterdir()) == sorted(one.path.name for one in ended)
    assert jobs_of(here, wanted(tiny, 2, SCALE)) == []
    data = load("digits")
    alone = TreeVAE.recipe("digits", **SMALL, epochs=3, device="cpu").fit_seeds(data.x_train, [0, 1])
    expected = record(alone[1], data, 1, "")
    kept = here.read(small(1))
    assert kept["scores_percent"] == expected["scores_percent"]
    assert kept["elbo"] == expected["elbo"]


def test_an_interrupted_fit_goes_on(tmp_path, monkeypatch):
    here, jobs = Store(tmp_path), jobs_of(Store(tmp_path), [small(0), small(1)])
    shown = []

    def show(self, event, run):
        shown.append(event)
        if len(shown) == 5:
            raise KeyboardInterrupt

    monkeypatch.setattr(fitting.Progress, "show", show)
    with pytest.raises(KeyboardInterrupt):
        list(run(jobs, here, CPU))
    assert here.started() == jobs
    writes = []

    def killed(cell, record):
        if writes:
            raise KeyboardInterrupt
        writes.append(cell)
        return Store.write(here, cell, record)

    with monkeypatch.context() as patch:  # now between two records
        patch.setattr(here, "write", killed)
        with pytest.raises(KeyboardInterrupt):
            list(run(jobs_of(here, [small(0), small(1)]), here, CPU))
    trained = len(shown)
    assert here.read(small(0)) is not None
    assert here.read(small(1)) is None
    list(run(jobs_of(here, [small(0), small(1)]), here, CPU))
    assert len(shown) == trained  # the finished fit was taken up, nothing was trained again
    assert here.read(small(1)) is not None
    assert not (tmp_path / "running").exists()


def test_a_job_that_fails_does_not_stop_the_others(tmp_path, monkeypatch):
    def diverge(job, data, place):
        raise FloatingPointError("the loss\nis not finite")

    monkeypatch.setitem(METHODS, "bad", Method("bad", diverge))
    here = Store(tmp_path)
    bad = METHODS["bad"].cell("digits", {}, 1, 0)
    ended = list(run(jobs_of(here, [bad, cell_of(data="digits", method="agg")]), here, CPU))
    assert isinstance(ended[0], Failed)
    assert ended[0].why == "the loss is not finite"
    assert isinstance(ended[1], Finished)
    assert not (tmp_path / "running").exists()


@pytest.mark.parametrize(
    ("error", "why"),
    [
        (torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 2 GiB"), r"^out of memory; .*--side-by-side 1"),
        (RuntimeError("DefaultCPUAllocator: can't allocate memory"), r"^out of memory; .*--side-by-side 1"),
        (MemoryError(), r"^out of memory; .*--side-by-side 1 or so \(MemoryError\)$"),
        (KeyError("left"), r"^KeyError: 'left'$"),
    ],
)
def test_no_error_of_one_fit_ends_the_others(tmp_path, monkeypatch, error, why):
    def fail(job, data, place):
        raise error

    monkeypatch.setitem(METHODS, "bad", Method("bad", fail))
    here = Store(tmp_path)
    jobs = jobs_of(here, [METHODS["bad"].cell("digits", {}, 1, 0), cell_of(data="digits", method="agg")])
    failed, finished = run(jobs, here, CPU)
    assert re.search(why, failed.why)
    assert isinstance(finished, Finished)


@pytest.mark.parametrize("method", ["agg", "treevae"])
def test_a_job_that_another_process_works_on_is_left_to_it(tmp_path, tiny, method):
    here, options = Store(tmp_path), ("--method", method, "--scale", SCALE, "--seeds", 1, "--results", tmp_path)
    job = jobs_of(here, wanted(tiny, 1, SCALE, None, [method]))[-1]
    with here.alone(job):
        said = treevae("paper", "run", "tiny", *options, "--device", "cpu")
        assert f"busy: {job.cells[0].about}, seed 0: another process is fitting it" in said
        assert "fits are left to other processes" in said
        assert here.read(job.cells[0]) is None
    said = treevae("paper", "run", "tiny", *options, "--device", "cpu")
    assert "busy" not in said
    assert here.read(job.cells[0]) is not None


def test_a_job_that_ends_while_jobs_are_listed_is_left_out(tmp_path, monkeypatch):
    here = Store(tmp_path)
    job = Job((cell_of(),))
    (here.begin(job) / "state-a.safetensors").touch()
    read = Path.read_text
    monkeypatch.setattr(Path, "read_text", lambda path, **options: here.finish(job) or read(path, **options))
    assert here.started() == []


def test_a_job_that_another_process_has_done_meanwhile_is_left_out(tmp_path):
    here, cell = Store(tmp_path), cell_of(data="digits", method="agg")
    jobs = jobs_of(here, [cell])
    here.write(cell, {"from": "elsewhere"})
    assert list(run(jobs, here, CPU)) == []


# -- showing ------------------------------------------------------------------------------------------------------


def fabricate(here: Store, cell: Cell, **scores: float) -> None:
    elbo = {name: scores.pop(name) for name in ("ELBO", "RL") if name in scores}
    here.write(cell, {"scores_percent": scores, "elbo": elbo})


def whole_record() -> dict:
    """With every score of a table but the attributes."""
    scores = dict.fromkeys(("DP", "LP", "ACC", "NMI"), 1.0)
    return {"scores_percent": scores, "elbo": {"ELBO": -2.0, "RL": 1.0}, "likelihood": {"ll_paper": {"mean": -1.5}}}


def test_a_table_with_some_records(tmp_path):
    here = Store(tmp_path)
    for seed, acc in enumerate((62.0, 64.0, 66.0)):
        fabricate(here, cell_of(seed), ACC=acc, NMI=64.7 + 0.01 * (seed - 1), ELBO=-240.0, RL=226.0)
    fabricate(here, cell_of(0, n_leaves=20), DP=50.0, LP=70.0)
    fabricate(here, cell_of(method="agg", n_leaves=10), ACC=51.3, NMI=60.0)
    fabricate(here, cell_of(5, scale=0.1), ACC=1.0)
    text = treevae("paper", "show", "clustering", "--results", tmp_path)
    (row,) = [line for line in text.splitlines() if line.startswith("Fashion") and " TreeVAE " in line]
    cells = ["Fashion TreeVAE 1 or 3", "50.0 ▼ (54.4 ± 2.4)", "70.0 ▼ (71.4 ± 2.0)", "64.0 ± 2.0 ▲ (63.6 ± 3.3)",
             "64.7 ± 0.0 = (64.7 ± 1.4)"]  # fmt: skip
    assert " ".join(row.split()) == " ".join(cells)
    (row,) = [line for line in text.splitlines() if line.split()[:2] == ["Fashion", "Agg"]]
    cells = ["Fashion Agg 1", "not run (45.0 ± 0.0)", "not run (67.6 ± 0.0)", "51.3 ± 0.0 = (51.3 ± 0.0)",
             "60.0 ± 0.0 ▲ (52.6 ± 0.0)"]  # fmt: skip
    assert " ".join(row.split()) == " ".join(cells)
    markdown = (tmp_path / "tables" / "clustering.md").read_text()
    assert "| Fashion | TreeVAE | 1 or 3 | 50.0 ▼ | 54.4 ± 2.4 |" in markdown
    latex = (tmp_path / "tables" / "clustering.tex").read_text()
    assert r"& TreeVAE & 1 or 3 & $50.0$ $\downarrow$ & $54.4 \pm 2.4$ &" in latex
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
    assert "▲" not in text
    assert all(said in one for one in (text, (tmp_path / "a.md").read_text(), (tmp_path / "b.tex").read_text()))
    assert not (tmp_path / "tables").exists()
    assert "50.0" not in treevae("paper", "show", "sizes", "--results", tmp_path)
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
    table = Table(
        "one", "A table of one figure", ("ACC",), (Row("digits", "bisecting", (Entry(SCORES["ACC"], None),)),)
    )
    for cell, n in zip(cells, (200, 400), strict=True):
        cut = replace(digits, x_test=digits.x_test[:n], y_test=digits.y_test[:n])
        monkeypatch.setattr(running, "_read", lambda name, root, cut=cut: cut)
        (ended,) = run([Job((cell,))], here, CPU)
        if n == 400:  # another test set than that of seed 0
            assert re.search(r"^the data .*360x8x8 .* are not those of .*200x8x8 .* another folder", ended.why)
            (record,) = [found for _, found in METHODS["bisecting"].fit(Job((cell,)), cut, CPU)]
            here.write(cell, record)  # as an earlier version did
    kept = here.read(cells[0])
    assert kept["test_samples"].split()[1] == "200x8x8"
    assert {"train_samples", "source"} <= set(kept)
    text = showing.as_text(table, showing.lines(table, here, 1.0), 1.0)
    assert "mixed data   (–)" in text
    assert re.search(r"not averaged: seed 0: .*200x8x8 \w+; seed 1: .*360x8x8", text)


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


def test_records_that_do_not_tell_their_data_still_count(tmp_path):
    for seed, more in enumerate(({}, {"note": ""}, {"note": "", "train_samples": "uint8 60x4 1a2b3c4d"})):
        Store(tmp_path).write(cell_of(seed), {"scores_percent": {"ACC": 60.0 + seed}} | more)
    assert "61.0 ± 1.0" in treevae("paper", "show", "sizes", "--results", tmp_path)


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
    assert not any("▲" in line or "±" in line for line in lines)  # nothing to explain


# -- the commands -------------------------------------------------------------------------------------------------


def test_the_commands_from_list_to_show(tmp_path, tiny):
    options = ("--seeds", 2, "--scale", SCALE, "--results", tmp_path)
    said = treevae("paper", "run", "tiny", "--method", "agg", *options)
    assert "2 cells, 0 of them there already." in said
    assert said.count("done: digits-agg") == 2
    kept = json.loads(next(tmp_path.glob("digits-agg-*.json")).read_text())
    assert kept["command"] == f"treevae paper run tiny --method agg --seeds 2 --scale {SCALE} --root DATA"  # no paths
    said = treevae("paper", "run", "tiny", *options, "--device", "cpu")
    assert "Left out, as there is no such method yet: deepect" in said
    assert "4 cells, 2 of them there already." in said
    assert said.count("done: ") == 2
    assert f"All 4 cells are in {tmp_path}" in said
    said = treevae("paper", "run", "tiny", *options)
    assert "4 cells, 4 of them there already." in said
    assert "done: " not in said
    text = treevae("paper", "show", "tiny", "--scale", SCALE, "--results", tmp_path)
    assert len(re.findall(r"\d   \(0\.0 ± 0\.0\)", text)) == 2
    assert text.count("not run") == 2
    assert "not run" in treevae("paper", "show", "tiny", "--results", tmp_path).split("TreeVAE")[1].splitlines()[0]


def test_list_counts_what_is_in_the_store(tmp_path):
    here = Store(tmp_path)
    here.write(cell_of(), whole_record())
    fabricate(here, cell_of(1), ACC=1.0)  # and nothing else
    rows = {
        line.split()[0]: line for line in treevae("paper", "list", "--results", tmp_path).splitlines() if " of " in line
    }
    assert rows["fixed-tree"].split()[1:4] == ["1", "of", "20"]
    assert rows["fixed-tree"].endswith("; 1 incomplete")
    assert rows["celeba-attributes"].split()[1:4] == ["0", "of", "1"]
    assert "incomplete" not in rows["celeba-attributes"]
    assert "Not there yet" not in treevae("paper", "list", "--results", tmp_path)  # every method is


def test_a_record_without_a_score_of_the_table_is_named_and_fitted_anew_if_asked(tmp_path, tiny):
    here, options = Store(tmp_path), ("--method", "agg", "--scale", SCALE, "--results", tmp_path)
    old = cell_of(data="digits", method="agg", scale=SCALE, n_leaves=4)
    here.write(old, {"scores_percent": {"ACC": 1.0}})
    here.write(replace(old, settings={"n_leaves": 10}), {"scores_percent": {"ACC": 2.0}})
    content = here.path(old).read_bytes()
    said = treevae("paper", "run", "tiny", *options)
    assert "2 cells, 1 of them there already." in said
    assert "1 of them lack a score of this table and are left as they are; --again" in said
    assert "1 of 2 cells are in" in said
    assert "done: " not in said
    shown = treevae("paper", "show", "tiny", *options[2:])
    command = f"treevae paper run tiny --scale {SCALE} --again"  # without a folder: it is written into tables
    assert f"Digits: Agg, seed 0: recorded without a score of this table; to fit anew: {command}." in shown
    assert f"treevae paper run TABLE --scale {SCALE} --results {tmp_path} --again" in treevae(
        "paper", "list", *options[2:]
    )
    said = treevae("paper", "run", "tiny", *options, "--again")
    assert said.count("done: ") == 1
    assert (tmp_path / "aside" / f"{old.name}-1.json").read_bytes() == content
    assert here.read(old)["scores_percent"]["DP"] > 0
    said = treevae("paper", "run", "tiny", *options, "--again")
    assert "2 cells, 2 of them there already." in said
    assert "done: " not in said


def test_what_a_method_never_gives_makes_no_record_incomplete(tmp_path):
    Store(tmp_path).write(cell_of(method="hdbscan"), {"scores_percent": {"LP": 1.0, "ACC": 2.0, "NMI": 3.0}})
    assert len(standing(Store(tmp_path), wanted(TABLES["clustering"], 1, 1.0, ["fashion"], ["hdbscan"])).there) == 1
    text = treevae("paper", "show", "clustering", "--results", tmp_path)
    (row,) = [line for line in text.splitlines() if line.startswith("Fashion") and " HDBSCAN " in line]
    assert row.split()[:5] == ["Fashion", "HDBSCAN", "1", "–", "(–)"]


def test_the_next_command_finds_what_this_one_wrote(tmp_path, tiny, monkeypatch):
    monkeypatch.chdir(tmp_path)
    for options, same in (
        (("--scale", 0.1234567), " --scale 0.1234567"),
        (("--scale", SCALE, "--results", "there"), f" --scale {SCALE} --results there"),
        ((), ""),
    ):
        said = treevae("paper", "run", "tiny", "--method", "agg", *options)
        (hinted,) = re.findall(r"Next: treevae (paper show tiny.*)", said)
        assert hinted == f"paper show tiny{same}"
        (row,) = [line for line in treevae(*hinted.split()).splitlines() if " Agg " in line]
        assert "not run" not in row
        last = treevae("paper", "list", *options).splitlines()[-1]
        assert last == f"Next: treevae paper run TABLE{same}, then: treevae paper show TABLE{same}"


def test_list_says_where_records_may_be_if_there_are_none_here(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    hint = "There is no folder results here: if there are records elsewhere, name theirs with --results."
    assert hint in treevae("paper", "list")
    (tmp_path / "results").mkdir()
    assert "There is no folder" not in treevae("paper", "list")


@pytest.mark.parametrize("command", [("show", "sizes"), ("list",)])
def test_a_folder_that_is_not_there_is_refused_and_not_made(command, tmp_path):
    (line,) = treevae("paper", *command, "--results", tmp_path / "resutls", code=1).splitlines()
    assert re.match(r"Error: there is no folder .*resutls: name that of the records with --results", line)
    assert list(tmp_path.iterdir()) == []


def test_interrupting_the_command_says_how_to_go_on(tmp_path, tiny, monkeypatch):
    def interrupt(*arguments, **options):
        raise KeyboardInterrupt

    monkeypatch.setattr(TreeVAE, "fit_seeds", interrupt)
    said = treevae("paper", "run", "tiny", "--method", "treevae", "--results", tmp_path, code=130)
    assert "No record is lost: the same command goes on from here." in said
    with monkeypatch.context() as patch:
        patch.setattr("treevae.baselines.ward.Ward.fit", interrupt)
        said = treevae("paper", "run", "tiny", "--method", "agg", "--results", tmp_path, code=130)
    assert "goes on from here, but a fit of agg starts anew." in said
    assert list(tmp_path.iterdir()) == []  # no folder of a fit without a state


def test_a_fit_that_fails_is_named_and_the_command_says_so_at_the_end(tmp_path, tiny, monkeypatch):
    with monkeypatch.context() as patch:
        patch.delattr("treevae.baselines.ward.Ward.fit")
        said = treevae("paper", "run", "tiny", "--method", "agg", "--results", tmp_path, code=1)
    assert "failed: digits-agg-n_leaves=4, seed 0: AttributeError: " in said
    assert "Error: 2 of 2 fits failed" in said


def test_data_that_are_not_there_are_said_once(tmp_path, monkeypatch):
    monkeypatch.delenv("TREEVAE_DATA", raising=False)
    said = treevae("paper", "run", "clustering", "--data", "mnist", "--method", "agg", "--results", tmp_path, code=1)
    assert said.count("no folder of data sets is named") == 1  # and not once for each fit
    assert "no data: mnist: " in said
    assert "2 cells were not fitted for want of data." in said
    options = ("--method", "agg", "--results", tmp_path, "--root", tmp_path)
    said = treevae("paper", "run", "clustering", *options, "--data", "fashion", code=1)
    assert "no data: fashion: it is not below the folder of data sets; get it with: treevae data fashion" in said


def test_without_its_data_no_record_is_put_aside(tmp_path):
    path = Store(tmp_path).write(cell_of(), {})
    options = ("--method", "treevae", "--seeds", 1, "--results", tmp_path, "--root", tmp_path, "--again")
    assert "no data: fashion" in treevae("paper", "run", "generative", *options, "--data", "fashion", code=1)
    assert path.exists()


def test_the_first_try_needs_no_download(tmp_path, monkeypatch):
    monkeypatch.delenv("TREEVAE_DATA", raising=False)
    options = ("--seeds", 1, "--scale", 0.01, "--results", tmp_path, "--device", "cpu")
    assert "All 4 cells are in" in treevae("paper", "run", "digits", *options)
    assert "not run" not in treevae("paper", "show", "digits", *options[2:6])


@pytest.mark.parametrize(
    ("arguments", "why"),
    [
        (("show", "table1"), "there is no table 'table1'; there are clustering"),
        (("run", "sizes", "--data", "mnist"), "there is no data set 'mnist' in the table sizes; there are fashion"),
        (("run", "sizes", "--method", "agg"), "there is no method 'agg' in the table sizes; there are treevae"),
        (("run", "sizes", "--scale", 0), "scale=0.0 must be above 0"),
    ],
)
def test_a_wrong_name_is_refused_in_one_line(arguments, why, tmp_path):
    (line,) = treevae("paper", *arguments, "--results", tmp_path, code=1).splitlines()
    assert line.startswith(f"Error: {why}")


# -- many machines ------------------------------------------------------------------------------------------------


def test_without_ray_the_command_says_what_to_install(tmp_path, tiny, monkeypatch):
    monkeypatch.setitem(sys.modules, "ray", None)
    (line,) = treevae(
        "paper", "run", "tiny", "--method", "agg", "--results", tmp_path, "--ray", "local", code=1
    ).splitlines()[1:]
    assert line == "Error: --ray needs Ray: pip install 'treevae[ray]'"


def test_a_cluster_that_does_not_answer_is_said_at_once(tmp_path, tiny, monkeypatch):
    monkeypatch.setitem(sys.modules, "ray", SimpleNamespace(init=lambda *_, **__: pytest.fail("Ray would wait")))
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
    for address in (f"127.0.0.1:{port}", f"ray://127.0.0.1:{port}", "127.0.0.1:99999"):
        options = ("--method", "agg", "--results", tmp_path, "--ray", address)
        (line,) = treevae("paper", "run", "tiny", *options, code=1).splitlines()[1:]
        assert (
            line == f"Error: there is no Ray cluster at {address}; start one with ray start --head, or use --ray local"
        )


@pytest.mark.slow
def test_a_worker_that_is_killed_loses_no_cell(tmp_path):
    """Two workers of a cluster on this machine; one is killed while it trains, and its cell goes on elsewhere."""
    pytest.importorskip("ray")
    here = Store(tmp_path)
    wanted = [small(seed) for seed in range(4)]
    killed = []

    def kill_one() -> None:
        while not killed:
            for lock in tmp_path.glob("running/*/lock"):
                pid = lock.read_text().split()[:1]
                if pid and any(lock.parent.glob("state-?.safetensors")):
                    os.kill(int(pid[0]), signal.SIGKILL)
                    killed.append(lock.parent.name)
                    return
            time.sleep(0.01)

    threading.Thread(target=kill_one, daemon=True).start()
    ended = list(run_on_ray(jobs_of(here, wanted, side_by_side=1), here, CPU, "local", workers=2))
    assert killed
    assert sorted(one.cell.seed for one in ended if isinstance(one, Finished)) == [0, 1, 2, 3]
    assert all(isinstance(one, Finished) for one in ended)
    assert sorted(path.name for path in tmp_path.iterdir()) == sorted(f"{cell.name}.json" for cell in wanted)
    assert jobs_of(here, wanted) == []
