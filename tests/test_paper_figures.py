"""The paper's figures as a command: which models are kept, which are drawn, and what is said where there are none."""

import io
import json
import shutil
import threading
import time
from dataclasses import replace
from functools import partial
from itertools import chain, repeat
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
from cells import treevae

from treevae import Tree, TreeVAE, data, listening, plot
from treevae import load as load_model
from treevae.data import load
from treevae.experiments.cells import Cell
from treevae.experiments.drawing import DRAWINGS, cell_of
from treevae.experiments.models import Models
from treevae.progress import Progress
from treevae.recipes import RECIPES

SCALE = 0.01  # one or two epochs of a growth stage
THREE = json.loads(Tree().split(0).split(1).to_json())  # given: so short a fit would not always grow a tree
SMALL = {"network": "mlp", "latent_dim": 2, "hidden_dim": 8, "tree": THREE}
FEW = ("--method", "treevae", "--scale", SCALE, "--device", "cpu")


@pytest.fixture(scope="module", autouse=True)
def small_recipe():
    with pytest.MonkeyPatch.context() as patch:
        patch.setitem(RECIPES, "digits", RECIPES["digits"] | SMALL)
        yield


@pytest.fixture(scope="module")
def run(tmp_path_factory, small_recipe) -> SimpleNamespace:
    """A table of which two TreeVAEs, and what others gave, were kept; all tests draw these."""
    folder = tmp_path_factory.mktemp("run")
    results, models = folder / "results", folder / "models"
    options = (*FEW, "--method", "agg", "--seeds", 2, "--results", results, "--models", models)
    said = treevae("paper", "run", "digits", *options)
    return SimpleNamespace(said=said, results=results, models=Models(models), options=options)


def cell(seed: int = 0) -> Cell:
    return replace(cell_of("digits", None, SCALE), seed=seed)


@pytest.fixture
def no_umap(monkeypatch):
    """UMAP takes long to be compiled."""
    monkeypatch.setattr("treevae.experiments.drawing.find_spec", lambda name: None)


def png_of(figure) -> bytes:
    file = io.BytesIO()
    figure.savefig(file, format="png")
    return file.getvalue()


# -- what is kept -------------------------------------------------------------------------------------------------


def test_the_models_behind_the_records_are_kept_under_their_names(run):
    kept = sorted(path.name for path in run.models.folder.iterdir())
    records = sorted(path.stem for path in (run.results / "records").glob("digits-treevae-*.json"))
    assert kept == [f"{name}.safetensors" for name in records]
    assert len(kept) == 2  # agg has none
    assert f"Models of these cells in {run.models.folder}: 2." in run.said
    x, y = load("digits").x_test, load("digits").y_test
    for seed in (0, 1):
        record = json.loads((run.results / "records" / f"{cell(seed).name}.json").read_text())
        model = run.models.read(cell(seed))
        assert model.random_state == seed
        counts = np.zeros((len(model.tree_.leaves), 10), int)
        np.add.at(counts, (model.predict(x), y), 1)
        assert counts.tolist() == record["test_leaf_by_class"]


def test_what_is_in_the_store_is_not_fitted_again_and_has_no_model(run, tmp_path):
    said = treevae("paper", "run", "digits", *run.options[:-1], tmp_path / "new")
    assert "Cells: 3, there already: 3." in said
    assert f"without a model in {tmp_path / 'new'}, which are not fitted again: 2; to fit them" in said
    assert f"Models of these cells in {tmp_path / 'new'}: 0." in said
    assert "without a model in" not in treevae("paper", "run", "digits", *run.options)


def test_a_model_of_another_store_is_not_lost(tmp_path, monkeypatch):
    models = tmp_path / "models"

    def run(store: str, seconds: float) -> int:
        """Fit the cell for a store of its own, by a clock that leaps once, over these seconds; how many are aside."""
        monkeypatch.setattr(
            listening, "time", SimpleNamespace(perf_counter=partial(next, chain([0.0], repeat(seconds))))
        )
        treevae("paper", "run", "digits", *FEW, "--seeds", 1, "--results", tmp_path / store, "--models", models)
        return len(list(models.glob("aside/*.safetensors")))

    assert [run("one", 1.0), run("other", 2.0), run("third", 3.0)] == [0, 1, 2]
    assert run("same", 3.0) == 2  # byte for byte the one that is there
    files = [*sorted(models.glob("aside/*.safetensors")), Models(models).path(cell())]
    assert [load_model(file).seconds_[-1] for file in files] == [1.0, 2.0, 3.0]
    assert Models(models).seeds(cell()) == [0]


def test_of_models_that_are_kept_at_once_none_is_lost(tmp_path):
    """Two stores with one folder of models: each has locks of its own."""
    models, meet = Models(tmp_path), threading.Barrier(2)

    def fit_of(name: str) -> SimpleNamespace:
        def save(path: Path) -> None:
            time.sleep(0.2)  # for the other one to come
            path.write_text(name)

        return SimpleNamespace(save=save)

    def keep(name: str) -> None:
        meet.wait()
        models.keep(cell(), fit_of(name))

    for names in (("first", "second"), ("third", "fourth")):
        both = [threading.Thread(target=keep, args=[name]) for name in names]
        for one in both:
            one.start()
        for one in both:
            one.join()
    files = [models.path(cell()), *tmp_path.glob("aside/*")]
    assert sorted(file.read_text() for file in files) == ["first", "fourth", "second", "third"]
    assert sorted(path.name for path in tmp_path.iterdir()) == sorted(["aside", files[0].name])  # no lock is left


def test_no_model_is_kept_whose_record_would_be_refused(tmp_path, monkeypatch):
    monkeypatch.setattr("treevae.records.record", lambda *_: {"elbo": {"ELBO": float("nan")}})
    options = (*FEW, "--seeds", 1, "--results", tmp_path / "results", "--models", tmp_path / "models")
    treevae("paper", "run", "digits", *options, code=1)
    assert Models(tmp_path / "models").seeds(cell()) == []


def test_without_its_model_a_record_is_not_written_and_nothing_is_trained_twice(tmp_path, monkeypatch):
    options = (*FEW, "--seeds", 1, "--results", tmp_path / "results", "--models", tmp_path / "models")

    def full(self, path):
        raise OSError("no space left")

    with monkeypatch.context() as patch:
        patch.setattr(TreeVAE, "save", full)
        assert "failed: digits-treevae" in treevae("paper", "run", "digits", *options, code=1)
    assert list((tmp_path / "results" / "records").glob("*.json")) == []
    monkeypatch.setattr(Progress, "show", lambda self, event, run: pytest.fail("trained again"))
    treevae("paper", "run", "digits", *options)
    assert Models(tmp_path / "models").seeds(cell()) == [0]


def test_models_are_not_kept_from_afar_or_where_nothing_can_be_written(tmp_path):
    options = ("--results", tmp_path / "results", "--models", tmp_path / "models")
    (line,) = treevae("paper", "run", "digits", *options, "--ray", "local", code=1).splitlines()
    assert line.startswith("Error: --models cannot be given with --ray")
    (tmp_path / "models").write_text("a file")
    (line,) = treevae("paper", "run", "digits", *options, code=1).splitlines()
    assert line.endswith("name another with --models")
    assert not (tmp_path / "results").exists()


# -- what is drawn ------------------------------------------------------------------------------------------------


def expected(name: str, models: list[TreeVAE]):
    digits = load("digits")
    x, y, names = digits.x_test, digits.y_test, digits.class_names
    return {
        "tree": lambda: plot.tree(models[0], x, y, names),
        "generations": lambda: plot.generations(models[0]),
        "all-leaves": lambda: plot.all_leaves(models[0]),
        "root-map": lambda: plot.root_map(models[0], x, y, names, method="pca"),
        "average-dendrogram": lambda: plot.average_dendrogram(models, x, y, names),
    }[name]()


@pytest.mark.parametrize("name", DRAWINGS)
def test_a_figure_is_of_the_models_asked_for(run, tmp_path, no_umap, name):
    out, average = tmp_path / "figure.png", name == "average-dendrogram"
    seed = () if average else ("--seed", 1)
    said = treevae(
        "paper", "figure", name, "--data", "digits", "--models", run.models.folder, "--scale", SCALE, *seed, "-o", out
    )
    models = [load_model(run.models.path(cell(seed))) for seed in ((0, 1) if average else (1,))]
    assert out.read_bytes() == png_of(expected(name, models))
    assert said.splitlines()[-1] == f"Wrote {out}"
    assert ("umap-learn is not installed" in said) == (name == "root-map")
    if average:
        assert "the average dendrogram of 2 trees with 3 leaves, seeds 0, 1." in said


def test_the_suffix_says_how_it_is_written_and_without_a_name_it_is_beside_the_models(run, tmp_path):
    options = ("--data", "digits", "--models", run.models.folder, "--scale", SCALE)
    for suffix, start in ((".pdf", b"%PDF"), (".svg", b"<?xml"), (".PNG", b"\x89PNG")):
        treevae("paper", "figure", "all-leaves", *options, "-o", tmp_path / f"figure{suffix}")
        assert (tmp_path / f"figure{suffix}").read_bytes().startswith(start)
    said = treevae("paper", "figure", "generations", *options)
    path = run.models.folder / f"digits-treevae-x{SCALE}-seed0-generations.png"
    assert f"Wrote {path}" in said
    path.unlink()


def test_the_map_is_umaps_where_it_is_installed(run, monkeypatch):
    asked = []

    def flat_map(embedding, method, random_state):
        asked.append(method)
        return embedding[:, :2]

    monkeypatch.setattr("treevae.pictures.figures.flat_map", flat_map)
    monkeypatch.setattr("treevae.experiments.drawing.find_spec", lambda name: object() if name == "umap" else None)
    drawn = DRAWINGS["root-map"].draw({0: run.models.read(cell())}, load("digits"))
    assert (asked, drawn.what, drawn.notes) == (["umap"], "UMAP of the root's embedding", ())


def test_trees_with_other_numbers_of_leaves_are_left_out_of_the_average(monkeypatch):
    digits = load("digits")
    two, three = Tree().split(0), Tree().split(0).split(1)
    of = {tree: SimpleNamespace(tree_=tree, predict=lambda X: np.arange(len(X)) % 2) for tree in (two, three)}
    drawn = DRAWINGS["average-dendrogram"].draw({0: of[three], 1: of[two], 4: of[two]}, digits)
    assert drawn.what == "the average dendrogram of 2 trees with 2 leaves, seeds 1, 4"
    assert drawn.notes == ("Left out, as only trees with 2 leaves can be averaged with these: seed 0 (3)",)
    assert drawn.figure.axes[0].get_ylabel().endswith("mean of 2 trees")
    with pytest.raises(ValueError, match=r"no two trees have as many leaves: seed 0 \(2\), seed 1 \(3\).* more seeds"):
        DRAWINGS["average-dendrogram"].draw({0: of[two], 1: of[three]}, digits)


@pytest.mark.parametrize(
    ("about", "what"),
    [
        ({}, "the tree with images"),
        ({"x_test": np.eye(360, 64), "feature_names": tuple(map(str, range(64)))}, "the tree with words"),
        (
            {"attributes_test": np.eye(360, 2, dtype=bool), "attribute_names": ("old", "new")},
            "the tree with attributes",
        ),
    ],
)
def test_the_tree_says_what_it_shows(about, what):
    digits, tree = load("digits"), Tree().split(0)
    model = SimpleNamespace(
        tree_=tree,
        predict=lambda X: np.arange(len(X)) % 2,
        predict_proba=lambda X: np.eye(2)[np.arange(len(X)) % 2],
        sample=lambda n, leaf, random_state: digits.x_test[:n],
    )
    assert DRAWINGS["tree"].draw({0: model}, replace(digits, **about)).what == what


# -- what is refused ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("arguments", "why"),
    [
        (("trees",), "there is no figure 'trees'; there are tree, generations, all-leaves, root-map, average-dendro"),
        (("tree", "--data", "digit"), "there is no data set 'digit'; there are digits, mnist"),
        (("tree", "--out", "tree.jpg"), "--out tree.jpg must end in .png, .pdf, .svg"),
        (("tree", "--out", "no/tree.png"), "there is no folder no to write tree.png into"),
        (("average-dendrogram", "--seed", 0), "--seed 0 cannot be given with average-dendrogram, which is of all"),
        (
            ("tree", "--seed", 7),
            f"there is no model of digits-treevae-x{SCALE} with seed 7, MODELS has those of digits-treevae-x{SCALE} "
            "with seed 0, 1; make it with: treevae paper run digits --data digits --method treevae --seeds 8 --scale "
            f"{SCALE} --models MODELS --results NEW (",
        ),
        (
            ("average-dendrogram", "--scale", 1),
            f"an average is of two models at least, MODELS has none of digits-treevae, but of digits-treevae-x{SCALE} "
            "(see --scale and --n-leaves); make it with: treevae paper run digits --data digits --method treevae "
            "--seeds 2 --models MODELS --results NEW (",
        ),
        (
            ("average-dendrogram", "--data", "celeba"),  # in a table of one tree alone
            f"an average is of two models at least, MODELS has none of celeba-treevae-x{SCALE}; no table of treevae "
            "paper list has such a fit with 2 seeds",
        ),
        (
            ("tree", "--data", "fashion", "--n-leaves", 20),
            f"there is no model of fashion-treevae-n_leaves=20-x{SCALE} with seed 0, MODELS has none of "
            f"fashion-treevae-n_leaves=20-x{SCALE}; make it with: treevae paper run clustering --data fashion",
        ),
    ],
)
def test_what_cannot_be_drawn_is_said_with_what_can_be_done(run, arguments, why):
    folder = str(run.models.folder)
    usual = {"--data": "digits", "--models": folder, "--scale": SCALE}
    options = [part for pair in usual.items() if pair[0] not in arguments for part in pair]
    (line,) = treevae("paper", "figure", *arguments, *options, code=1).splitlines()
    assert line.startswith("Error: " + why.replace("MODELS", folder))


def test_images_are_not_drawn_of_vectors(run, monkeypatch):
    digits = load("digits")
    monkeypatch.setattr(data, "load", lambda name, root: replace(digits, x_test=digits.x_test.reshape(360, -1)))
    for name in ("generations", "all-leaves"):
        options = ("--data", "digits", "--models", run.models.folder, "--scale", SCALE)
        (line,) = treevae("paper", "figure", name, *options, code=1).splitlines()
        assert (
            line == f"Error: {name} is made of images, and the samples of digits are none; tree and root-map show them"
        )


def test_a_model_of_another_fit_is_not_drawn_under_its_name(run, tmp_path):
    here = Models(tmp_path)
    shutil.copy(run.models.path(cell(0)), here.path(cell(0)))
    assert here.read(cell(0)).random_state == 0
    shutil.copy(run.models.path(cell(0)), here.path(cell(1)))
    options = ("--data", "digits", "--models", tmp_path, "--scale", SCALE)
    (line,) = treevae("paper", "figure", "average-dendrogram", *options, code=1).splitlines()
    assert "is not of the fit that it is named after: its random_state differ" in line
    here.path(cell(1)).write_bytes(here.path(cell(0)).read_bytes()[:-100])
    (line,) = treevae("paper", "figure", "tree", "--seed", 1, *options, code=1).splitlines()
    assert Path(here.path(cell(1))).name in line


def test_without_matplotlib_the_command_says_what_to_install(run, monkeypatch):
    monkeypatch.setattr("treevae.cli.figure.find_spec", lambda name: None)
    options = ("--data", "digits", "--models", run.models.folder)
    (line,) = treevae("paper", "figure", "tree", *options, code=1).splitlines()
    assert line == "Error: treevae paper figure needs matplotlib, which is missing: pip install 'treevae[view]'"
