"""The command line: what each command writes, says and refuses."""

import csv
import inspect
import json
import os
import shutil
import subprocess
import sys
from collections import Counter
from collections.abc import Iterable, Iterator
from pathlib import Path
from types import FrameType, SimpleNamespace
from typing import Any, get_type_hints

import numpy as np
import pandas
import pytest
from PIL import Image
from typer.testing import CliRunner

from treevae import Tree, TreeVAE, load
from treevae.baselines.ward import Ward
from treevae.cli import demo as demo_module
from treevae.cli import fit as cli_fit
from treevae.cli.app import app
from treevae.cli.demo import SCORES, Demo
from treevae.cli.words import drawing
from treevae.data import fashion_sample
from treevae.data.fashion_sample import FashionSample
from treevae.data.files import read
from treevae.metrics import accuracy, dendrogram_purity, leaf_purity, nmi
from treevae.model.likelihoods import LIKELIHOODS
from treevae.model.networks import NETWORKS
from treevae.model.stack import LAYER_DEFAULTS
from treevae.preparing import prepare
from treevae.storage.fingerprint import fingerprint
from treevae.storage.states import StateFolder
from treevae.training.choosing import LEAF_RULES
from treevae.training.events import TreeChanged
from treevae.training.grove import Grove
from treevae.training.loop import DivergedError

CHANCE = np.random.default_rng(0)
VECTORS = np.concatenate([CHANCE.normal(0, 1, (30, 6)), CHANCE.normal(6, 1, (30, 6))])
RUN_FILES = ("model.safetensors", "labels.csv", "tree.txt", "tree.json")
TINY = ("--n-leaves", "2", "--n-init", "2", "--epochs", "4", "--learning-rate", "0.01", "--device", "cpu")


def treevae(*arguments: Any, code: int = 0) -> str:
    """All that a command printed; its exit code must be the given one."""
    result = CliRunner().invoke(app, [str(argument) for argument in arguments])
    assert result.exit_code == code, f"{result.output}\n{result.exception!r}"
    return result.output


def error_of(*arguments: Any) -> str:
    """The one line that a command refused with."""
    (line,) = treevae(*arguments, code=1).strip().splitlines()
    assert line.startswith("Error: ")
    return line


def rows_of(path: Path) -> list[list[str]]:
    with path.open(newline="") as file:
        return list(csv.reader(file))


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with the vectors as an array and as a table with a column of text."""
    folder = tmp_path_factory.mktemp("data")
    np.save(folder / "x.npy", VECTORS)
    frame = pandas.DataFrame(VECTORS, columns=list("abcdef"))
    frame.assign(kind="rose").to_csv(folder / "x.csv", index=False)
    return folder


@pytest.fixture(scope="module")
def run(data: Path) -> Path:
    """A run on the table."""
    treevae("fit", data / "x.csv", "--drop", "kind", "-o", data / "run", *TINY)
    return data / "run"


@pytest.fixture(scope="module")
def pictures(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with 40 grey pictures, bright on the left or on the right."""
    folder = tmp_path_factory.mktemp("pictures")
    for i in range(40):
        pixels = CHANCE.integers(40, size=(8, 10), dtype=np.uint8)
        pixels[:, 5 * (i % 2) : 5 * (i % 2) + 5] += 200
        Image.fromarray(pixels).save(folder / f"{i:02}.png")
    return folder


@pytest.fixture(scope="module")
def picture_run(pictures: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("picture_run")
    treevae("fit", pictures, "-o", folder, *TINY)
    return folder


# -- help -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("command", ["demo", "fit", "predict", "score", "sample", "info", "report"])
def test_help_shows_an_example(command: str) -> None:
    assert command in treevae("--help")
    assert f"treevae {command} " in treevae(command, "--help").split("Example:")[1]


def test_fit_offers_the_parameters_of_the_estimator_with_their_defaults() -> None:
    ours = {name: parameter.default for name, parameter in inspect.signature(cli_fit.fit).parameters.items()}
    theirs = {name: parameter.default for name, parameter in inspect.signature(TreeVAE).parameters.items()}
    not_offered = {"tree", "transformation_layers", "router_layers", "verbose", "random_state"}
    assert not not_offered & set(ours)
    for name in set(theirs) - not_offered:
        assert ours[name] == theirs[name], name


@pytest.mark.parametrize(
    ("option", "allowed"),
    [("likelihood", LIKELIHOODS), ("network", NETWORKS), ("layer_defaults", LAYER_DEFAULTS), ("leaf_rule", LEAF_RULES)],
)
def test_help_names_all_that_is_allowed(option: str, allowed: Iterable[str]) -> None:
    text = get_type_hints(cli_fit.fit, include_extras=True)[option].__metadata__[0].help
    assert all(name in text for name in allowed)


# -- fit --------------------------------------------------------------------------------------------------------


def test_fit_writes_model_labels_and_tree(data: Path, tmp_path: Path) -> None:
    said = treevae("fit", data / "x.npy", "-o", tmp_path / "new" / "run", *TINY)
    run = tmp_path / "new" / "run"
    assert all(f"treevae {name} {run} " in said for name in ("report", "explore", "sample"))
    assert {file.name for file in run.iterdir()} == {*RUN_FILES, "run.json"}
    model = load(run / "model.safetensors")
    assert rows_of(run / "labels.csv") == [
        ["sample", "cluster"],
        *([str(i), str(label)] for i, label in enumerate(model.labels_)),
    ]
    assert Tree.from_json((run / "tree.json").read_text()) == model.tree_
    drawing = (run / "tree.txt").read_text(encoding="utf-8")
    sizes = np.bincount(model.labels_)
    assert len(sizes) == len(model.tree_.leaves) > 1
    assert drawing.startswith("60 samples\n")
    assert all(f"cluster {k}: {size} samples" in drawing for k, size in enumerate(sizes))
    assert drawing in said
    assert all(str(run / name) in said for name in ("model.safetensors", "labels.csv", "tree.txt", "tree.json"))


def test_fit_passes_its_options_on(data: Path, tmp_path: Path) -> None:
    options = {
        "n_leaves": 3,
        "max_depth": 2,
        "latent_dim": 4,
        "hidden_dim": 16,
        "likelihood": "gaussian",
        "network": "mlp",
        "leaf_rule": "elbo",
        "n_init": 2,
        "epochs": 1,
        "batch_size": 5,
        "learning_rate": 0.01,
    }
    arguments = [part for name, value in options.items() for part in (f"--{name.replace('_', '-')}", value)]
    treevae("fit", data / "x.npy", "-o", tmp_path, "--seed", 7, *arguments)
    kept = load(tmp_path / "model.safetensors").get_params()
    assert {name: kept[name] for name in options} == options
    assert kept["random_state"] == 7


def test_fit_says_warnings_in_words(data: Path, tmp_path: Path) -> None:
    said = treevae("fit", data / "x.npy", "-o", tmp_path / "run", "--layer-defaults", "tensorflow", *TINY)
    (line,) = [line for line in said.splitlines() if line.startswith("Warning: ")]
    assert "norms' running statistics" in line


def test_fit_on_pictures_names_them_and_draws_the_tree(pictures: Path, picture_run: Path) -> None:
    assert [row[0] for row in rows_of(picture_run / "labels.csv")[1:]] == [f"{i:02}.png" for i in range(40)]
    with Image.open(picture_run / "tree.png") as picture:
        assert min(picture.size) > 100


def test_a_folder_with_the_name_of_a_data_set_is_that_folder(pictures: Path, tmp_path: Path, monkeypatch) -> None:
    shutil.copytree(pictures, tmp_path / "digits")
    monkeypatch.chdir(tmp_path)
    said = treevae("fit", "./digits", "-o", "run", *TINY)
    assert "Read 40 samples" in said
    assert "40 samples" in treevae("report", "run", "--data", "./digits", "--map", "pca")


def test_fit_keeps_a_model_that_is_there_unless_forced(data: Path, tmp_path: Path) -> None:
    treevae("fit", data / "x.npy", "-o", tmp_path, *TINY)
    (tmp_path / "tree.png").touch()  # as if the first run had been on images
    before = (tmp_path / "model.safetensors").read_bytes()
    assert "--force" in error_of("fit", data / "x.npy", "-o", tmp_path, *TINY, "--seed", 1)
    assert (tmp_path / "model.safetensors").read_bytes() == before
    treevae("fit", data / "x.npy", "-o", tmp_path, *TINY, "--seed", 1, "--force")
    assert (tmp_path / "model.safetensors").read_bytes() != before
    assert not (tmp_path / "tree.png").exists()


def test_fit_refuses_before_it_trains(data: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def trained(*_: Any) -> None:
        raise AssertionError("training started")

    monkeypatch.setattr(Grove, "events", trained)
    (tmp_path / "file").touch()
    assert "it is a file" in error_of("fit", data / "x.npy", "-o", tmp_path / "file")
    assert "cannot write" in error_of("fit", data / "x.npy", "-o", tmp_path / "file" / "run")
    assert "--drop 'kind'" in error_of("fit", data / "x.csv", "-o", tmp_path / "run")
    assert "missing.npy" in error_of("fit", data / "missing.npy", "-o", tmp_path / "run")
    assert not (tmp_path / "run").exists()


def test_errors_of_a_fit_name_options_and_not_parameters(tmp_path):
    np.save(tmp_path / "x.npy", np.full((20, 4, 4), 16.0))
    said = error_of("fit", tmp_path / "x.npy", "-o", tmp_path / "run")
    assert said.endswith("or set --likelihood gaussian to model other ranges")
    said = error_of("fit", tmp_path / "x.npy", "-o", tmp_path / "run", "--n-leaves", 70)
    assert said.startswith("Error: --n-leaves 70 does not fit")
    assert said.endswith("with --max-depth 6 at most 64; raise --max-depth for more")
    for name in ("n_leaves=33.npy", "max_depth.csv", "a-n_leaves=3", "max_depth/x.npy"):
        assert error_of("fit", name, "-o", tmp_path / "run") == f"Error: there is no file or folder {name}"


def test_fit_reports_wrong_parameters_and_divergence_in_a_line(
    data: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for option in ("network", "device"):
        said = treevae("fit", data / "x.npy", "-o", tmp_path, f"--{option}", "abacus", code=1)
        assert f"Error: --{option} abacus" in said
        assert "Traceback" not in said

    def diverge(_: Any) -> Iterator[Any]:
        raise DivergedError("training diverged in stage 'first tree'")

    monkeypatch.setattr(Grove, "events", diverge)
    assert "Error: training diverged" in treevae("fit", data / "x.npy", "-o", tmp_path, *TINY, code=1)


def interrupt_after(n_trees: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Let training be interrupted once so many trees have been grown."""
    events = Grove.events

    def interrupted(grove: Grove) -> Iterator[Any]:
        seen = 0
        for happened in events(grove):
            if seen == n_trees:
                raise KeyboardInterrupt
            seen += happened is not None and isinstance(happened[1], TreeChanged)
            yield happened

    monkeypatch.setattr(Grove, "events", interrupted)


def test_interrupted_fit_saves_the_tree_grown_so_far(
    data: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    interrupt_after(1, monkeypatch)
    said = treevae("fit", data / "x.npy", "-o", tmp_path, *TINY, "--n-leaves", "4", code=130)
    assert "the tree grown so far is kept: 2 clusters" in said
    model = load(tmp_path / "model.safetensors")
    assert len(model.tree_.leaves) == 2
    assert len(rows_of(tmp_path / "labels.csv")) == 61
    assert "of the stage 'first tree'" in treevae("info", tmp_path)


def test_fit_interrupted_too_early_says_so(data: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    interrupt_after(0, monkeypatch)
    said = treevae("fit", data / "x.npy", "-o", tmp_path, *TINY, code=130)
    assert f"before the first split was trained. Go on with: treevae fit --resume {tmp_path}" in said
    assert not (tmp_path / "model.safetensors").exists()


def test_resume_goes_on_and_clears_what_is_no_longer_needed(
    data: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with monkeypatch.context() as patched:
        interrupt_after(1, patched)
        treevae("fit", data / "x.csv", "--drop", "kind", "-o", tmp_path, *TINY, code=130)
    assert any(path.name.startswith("state-") for path in tmp_path.iterdir())
    assert "holds an unfinished run; go on with: treevae fit --resume" in error_of(
        "fit", data / "x.npy", "-o", tmp_path
    )
    said = treevae("fit", "--resume", tmp_path)
    assert "Grew 2 clusters" in said
    assert {file.name for file in tmp_path.iterdir()} == {*RUN_FILES, "run.json"}
    assert "is finished" in error_of("fit", "--resume", tmp_path)


def test_fit_reads_and_checks_the_samples_once(data: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    asked = Counter()
    watched = {read.__code__: "read", prepare.__code__: "checked"}

    def count(frame: FrameType, event: str, _: Any) -> None:
        if event == "call" and frame.f_code in watched:
            asked[watched[frame.f_code]] += 1

    monkeypatch.setattr(Grove, "events", lambda _: iter(()))  # nothing is trained
    sys.setprofile(count)
    try:
        CliRunner().invoke(app, ["fit", str(data / "x.npy"), "-o", str(tmp_path / "run"), *TINY])
    finally:
        sys.setprofile(None)
    assert asked == {"read": 1, "checked": 1}
    assert (tmp_path / "run" / "run.json").exists()


def test_a_fit_that_is_stopped_before_its_samples_are_checked_writes_nothing(
    data: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def interrupt(*_: Any, **__: Any) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr("treevae.base.prepare", interrupt)
    said = treevae("fit", data / "x.npy", "-o", tmp_path / "run", *TINY, code=130)
    assert "resume" not in said
    assert not (tmp_path / "run").exists()


def test_a_refused_fit_changes_nothing(data: Path, tmp_path: Path) -> None:
    treevae("fit", data / "x.npy", "-o", tmp_path, *TINY)
    before = {path.name: path.read_bytes() for path in tmp_path.iterdir()}
    for wrong in (("--network", "cnn"), ("--save-every", "-1"), ("--n-leaves", "1")):
        treevae("fit", data / "x.npy", "-o", tmp_path, "--force", *wrong, code=1)
    treevae("fit", data / "x.npy", "-o", tmp_path, "--force", "--seed", "-1", code=2)
    treevae("fit", data / "x.npy", "-o", tmp_path, *TINY, code=1)  # without --force
    with StateFolder(tmp_path):  # as another process would
        assert str(os.getpid()) in treevae("fit", data / "x.npy", "-o", tmp_path, *TINY, "--force", code=1)
    assert {path.name: path.read_bytes() for path in tmp_path.iterdir() if path.name != "lock"} == before


def test_a_new_run_leaves_nothing_of_the_old(data: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    treevae("fit", data / "x.npy", "-o", tmp_path, *TINY)
    interrupt_after(0, monkeypatch)
    treevae("fit", data / "x.npy", "-o", tmp_path, *TINY, "--force", code=130)
    assert "go on with: treevae fit --resume" in error_of("info", tmp_path)


def test_resume_keeps_the_device_of_the_run(data: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with monkeypatch.context() as patched:
        interrupt_after(0, patched)
        treevae("fit", data / "x.npy", "-o", tmp_path, *TINY, code=130)
    settings = json.loads((tmp_path / "run.json").read_text())
    settings["options"]["device"] = "abacus"
    (tmp_path / "run.json").write_text(json.dumps(settings))
    assert "--device abacus" in error_of("fit", "--resume", tmp_path)
    assert "Grew" in treevae("fit", "--resume", tmp_path, "--device", "cpu")


def test_resume_takes_no_other_settings(data: Path, run: Path, tmp_path: Path) -> None:
    assert "leave out DATA, --epochs" in error_of("fit", data / "x.npy", "--resume", run, "--epochs", 3)
    assert "has no run.json" in error_of("fit", "--resume", tmp_path)
    (tmp_path / "run.json").write_text("{}")
    assert "cannot be read: it lacks an entry" in error_of("fit", "--resume", tmp_path)
    assert "name the samples and the folder" in error_of("fit", "--epochs", 3)


def test_resume_refuses_changed_data(data: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    np.save(tmp_path / "x.npy", VECTORS)
    with monkeypatch.context() as patched:
        interrupt_after(0, patched)
        treevae("fit", tmp_path / "x.npy", "-o", tmp_path / "run", *TINY, code=130)
    np.save(tmp_path / "x.npy", VECTORS + 1)
    refused = treevae("fit", "--resume", tmp_path / "run", code=1)
    assert "Error: " in refused
    assert "data: " in refused
    treevae("fit", tmp_path / "x.npy", "-o", tmp_path / "run", *TINY, "--force")  # or starts anew


# -- predict ----------------------------------------------------------------------------------------------------


def test_predict_writes_the_labels_of_the_model(data: Path, run: Path, tmp_path: Path) -> None:
    said = treevae("predict", run, data / "x.csv", "--drop", "kind", "-o", tmp_path / "l.csv")
    expected = load(run / "model.safetensors").labels_
    assert [int(row[1]) for row in rows_of(tmp_path / "l.csv")[1:]] == expected.tolist()
    assert "60 samples in 2 clusters" in said
    assert str(tmp_path / "l.csv") in said


def test_predict_leaves_out_what_the_fit_left_out(data: Path, run: Path) -> None:
    assert treevae("predict", run, data / "x.csv") == treevae("predict", run, data / "x.csv", "--drop", "kind")
    assert "'kind'" in error_of("predict", run, data / "x.csv", "--drop", "a")  # others are named, and this one is not


def test_predict_prints_a_csv_and_takes_the_model_file_itself(data: Path, run: Path, tmp_path: Path) -> None:
    treevae("predict", run, data / "x.csv", "--drop", "kind", "-o", tmp_path / "l.csv")
    printed = treevae("predict", run / "model.safetensors", data / "x.csv", "--drop", "kind")
    assert printed == (tmp_path / "l.csv").read_text()


@pytest.mark.parametrize("cut", [("--groups", "1"), ("--level", "0")])
def test_predict_cuts_the_tree(data: Path, run: Path, cut: tuple[str, str]) -> None:
    rows = list(csv.reader(treevae("predict", run, data / "x.csv", "--drop", "kind", *cut).splitlines()))
    assert {row[1] for row in rows[1:]} == {"0"}


def test_predict_adds_probabilities(data: Path, run: Path) -> None:
    rows = list(csv.reader(treevae("predict", run, data / "x.csv", "--drop", "kind", "--proba").splitlines()))
    assert rows[0] == ["sample", "cluster", "p0", "p1"]
    chance = np.array([row[2:] for row in rows[1:]], dtype=float)
    model = load(run / "model.safetensors")
    expected = model.predict_proba(pandas.DataFrame(VECTORS, columns=list("abcdef")))
    assert np.allclose(chance, expected, rtol=1e-5)
    assert chance.argmax(1).tolist() == [int(row[1]) for row in rows[1:]]


def test_predict_refuses(data: Path, run: Path, picture_run: Path, tmp_path: Path) -> None:
    table = ("predict", run, data / "x.csv", "--drop", "kind")
    assert "--level 1 and --groups 2 are two ways to cut the tree" in error_of(*table, "--groups", 2, "--level", 1)
    assert "cannot cut into 9 groups" in error_of(*table, "--groups", 9)
    assert "no folder" in error_of(*table, "-o", tmp_path / "missing" / "l.csv")
    assert "no run" in error_of("predict", tmp_path / "missing", data / "x.csv")
    assert "no model.safetensors" in error_of("predict", tmp_path, data / "x.csv")
    assert "not a treevae model" in error_of("predict", data / "x.npy", data / "x.npy")
    assert "shape (60, 6)" in error_of("predict", picture_run, data / "x.npy")


def test_predict_takes_columns_in_another_order_by_name(data: Path, run: Path, tmp_path: Path) -> None:
    pandas.DataFrame(VECTORS, columns=list("abcdef"))[list("fbdace")].to_csv(tmp_path / "x.csv", index=False)
    said = treevae("predict", run, tmp_path / "x.csv", "-o", tmp_path / "labels.csv")
    assert f"{tmp_path / 'x.csv'} has its columns in another order than the fit: they are taken by name." in said
    assert [int(row[1]) for row in rows_of(tmp_path / "labels.csv")[1:]] == load(run / RUN_FILES[0]).labels_.tolist()


def test_predict_refuses_other_columns(run: Path, tmp_path: Path) -> None:
    pandas.DataFrame(VECTORS, columns=list("abcdeg")).to_csv(tmp_path / "x.csv", index=False)
    assert "Feature names unseen at fit time: - g" in error_of("predict", run, tmp_path / "x.csv")


# -- score ------------------------------------------------------------------------------------------------------


def test_score_gives_bits_per_dimension_of_gaussian_images(tmp_path: Path) -> None:
    images = (CHANCE.integers(256, size=(37, 8, 8, 3)) / 255).astype(np.float32)  # ten parts that are not alike
    model = TreeVAE(tree=Tree().split(0), latent_dim=2, hidden_dim=8, max_depth=1, epochs=1, random_state=0).fit(images)
    model.save(tmp_path / "model.safetensors")
    np.save(tmp_path / "x.npy", images)
    options = ("--data", tmp_path / "x.npy", "--draws", 4, "-o", tmp_path / "score.json")
    said = treevae("score", tmp_path, *options)
    found = json.loads((tmp_path / "score.json").read_text())
    assert "Scoring 37 of 37 samples: x; 4 draws each" in said
    assert said.count("% done, about ") > 5
    assert found["elbo"]["ELBO"] == pytest.approx(model.score(images), rel=1e-5)
    assert found["likelihood"]["draws"] == 4
    for bound in ("iwae", "paper"):
        values = model.log_likelihood(images, 4, bound)
        assert found["likelihood"][f"ll_{bound}"]["mean"] == pytest.approx(values.mean(), rel=1e-5)
        assert f"ll_{bound} " in said
    bits = np.log2(255) - model.log_likelihood(images, 4).mean() / (8 * 8 * 3 * np.log(2))
    assert found["likelihood"]["bits_per_dimension"] == pytest.approx(bits, rel=1e-5)
    assert f"bits      {bits:.4f} per dimension" in said
    assert "what the paper calls LL, of 4 draws (the paper has 1,000); it is no bound" in said
    assert (found["n_scored"], found["n_samples"]) == (37, 37)
    treevae("score", tmp_path, *options, "--most", 10)  # drawn from all, as files are often sorted
    found = json.loads((tmp_path / "score.json").read_text())
    assert (found["n_scored"], found["n_samples"]) == (10, 37)
    assert (found["model"], found["data"]) == (str(tmp_path / "model.safetensors"), str(tmp_path / "x.npy"))
    assert found["command"] == f"treevae score {tmp_path} --data {tmp_path / 'x.npy'} --draws 4 --most 10"
    assert found["samples"] not in (
        fingerprint(model.fitted_.encode(images[:10])),
        fingerprint(model.fitted_.encode(images[-10:])),
    )
    said = treevae("score", tmp_path, *options[:2], "--most", 1, "--draws", 1000)
    assert "of 1,000 draws (as in the paper)" in said
    assert "Scoring 1 of 37 samples" in said
    assert "±" not in said  # of one sample there is no error


def test_score_finds_the_samples_of_a_run_and_speaks_of_them_in_their_units(data: Path, run: Path) -> None:
    said, model = treevae("score", run), load(run / "model.safetensors")
    frame = pandas.DataFrame(VECTORS, columns=list("abcdef"))
    assert model.fitted_.decides.units.scale != 1
    assert f"ELBO      {model.score(frame):.2f} nats a sample" in said
    assert "Scoring 60 of 60 samples: x; 10 draws each" in said
    assert f"ll_iwae   {model.log_likelihood(frame, 10).mean():.2f} ± " in said
    assert said.splitlines()[-1] == "± is the standard error of the mean over these samples."
    assert "bits" not in said
    treevae("score", run, "-o", data / "s.json")
    assert json.loads((data / "s.json").read_text())["data"] == str((data / "x.csv").resolve())  # as the run remembers
    assert "no folder" in error_of("score", run, "-o", data / "missing" / "s.json")
    treevae("score", run, "--draws", 0, code=2)


@pytest.mark.parametrize("command", ["score", "report", "predict"])
def test_columns_without_names_are_taken_in_their_order_and_that_is_said_once(
    data: Path, run: Path, tmp_path: Path, recwarn: pytest.WarningsRecorder, command: str
) -> None:
    given = (data / "x.npy", "-o", tmp_path / "x.csv") if command == "predict" else ("--data", data / "x.npy")
    more = ("--map", "pca", "-o", tmp_path / "x.html") if command == "report" else ()
    said = treevae(command, run, *given, *more)
    assert said.count("x.npy does not name its columns: they are taken to be those of the fit, in the same order.") == 1
    assert not [one for one in recwarn if "feature names" in str(one.message)]
    named = [data / "x.csv" if one == data / "x.npy" else one for one in given]
    assert "does not name" not in treevae(command, run, *named, *more)


# -- sample -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("leaf", [None, 1])
def test_sample_writes_what_the_model_makes(run: Path, tmp_path: Path, leaf: int | None) -> None:
    options = () if leaf is None else ("--leaf", leaf)
    treevae("sample", run, "-n", 5, "--seed", 3, *options, "-o", tmp_path / "s.npy")
    expected = load(run / "model.safetensors").sample(5, leaf=leaf, random_state=3)
    assert np.array_equal(np.load(tmp_path / "s.npy"), expected)


def test_sample_draws_a_grid_of_pictures(picture_run: Path, tmp_path: Path) -> None:
    treevae("sample", picture_run, "-n", 5, "--seed", 3, "-o", tmp_path / "s.png")
    with Image.open(tmp_path / "s.png") as picture:
        grid = np.asarray(picture)
    assert grid.shape == (2 * (8 + 2) + 2, 3 * (10 + 2) + 2)
    images = load(picture_run / "model.safetensors").sample(5, random_state=3)
    pixels = (images * 255).round().astype(np.uint8)
    assert np.array_equal(grid[2:10, 26:36], pixels[2])  # first row, third column
    assert np.array_equal(grid[12:20, 2:12], pixels[3])  # second row, first column
    assert (grid[12:20, 26:36] == 255).all()  # the sixth place is empty


def test_sample_refuses(run: Path, tmp_path: Path) -> None:
    assert "not images" in error_of("sample", run, "-o", tmp_path / "s.png")
    assert "ending '.gif'" in error_of("sample", run, "-o", tmp_path / "s.gif")
    assert "numbered 0 to 1" in error_of("sample", run, "--leaf", 2, "-o", tmp_path / "s.npy")
    assert "n=0" in error_of("sample", run, "-n", 0, "-o", tmp_path / "s.npy")
    assert not any(tmp_path.iterdir())


# -- info -------------------------------------------------------------------------------------------------------


def test_info_tells_all_about_a_model(run: Path) -> None:
    said = treevae("info", run)
    model = load(run / "model.safetensors")
    assert (run / "tree.txt").read_text(encoding="utf-8") in said
    assert f"{sum(p.numel() for p in model.module_.parameters()):,} numbers" in said
    last = [event for event in model.history_ if event["event"] == "EpochEnded"][-1]
    elbo = last["reconstruction"] - last["kl_root"] - last["kl_nodes"] - last["kl_decisions"]
    assert model.fitted_.decides.units.scale != 1
    in_units = float(model.fitted_.decides.units.log_density(np.array(elbo), 6))
    assert f"{in_units:.1f} nats a sample, in training" in said
    assert f"{(run / 'model.safetensors').stat().st_size / 1e6:.1f} MB" in said
    assert "n_leaves = 2" in said


# -- demo -------------------------------------------------------------------------------------------------------


@pytest.fixture
def small(monkeypatch: pytest.MonkeyPatch) -> FashionSample:
    """The demo's data and tree, cut down."""
    whole = fashion_sample.load()
    part = FashionSample(whole.x_train[:200], whole.y_train[:200], whole.x_test[:100], whole.y_test[:100])
    monkeypatch.setattr(fashion_sample, "load", lambda: part)
    monkeypatch.setitem(demo_module.DEMO, "n_leaves", 3)
    monkeypatch.setattr("treevae.page.snapshot.find_spec", lambda name: None)  # UMAP takes 20 seconds to start
    return part


def test_demo_writes_and_says_what_it_found(small: FashionSample, tmp_path: Path) -> None:
    said = treevae("demo", "-o", tmp_path / "out", "--epochs", 3, "--batch-size", 20, "--seed", 2)
    model = load(tmp_path / "out" / "model.safetensors")
    leaves, n_leaves = model.predict(small.x_test), len(model.tree_.leaves)
    ward = Ward(n_leaves).fit(small.x_test)
    kept = json.loads((tmp_path / "out" / "metrics.json").read_text())
    for method, tree, labels in (("TreeVAE", model.tree_, leaves), ("Ward", ward.tree_, ward.labels_)):
        y = small.y_test
        expected = [dendrogram_purity(tree, labels, y), leaf_purity(labels, y), accuracy(labels, y), nmi(labels, y)]
        assert [kept["scores_percent"][method][score] for score in SCORES] == pytest.approx(
            [100 * value for value in expected]
        )
        assert f"{method:8}" + "".join(f"{100 * value:7.1f}" for value in expected) in said
    assert kept["test_elbo_nats"] == pytest.approx(model.score(small.x_test))
    assert f"ELBO of the test images: {kept['test_elbo_nats']:.1f} nats" in said
    given = {"epochs": 3, "batch_size": 20, "random_state": 2, "n_leaves": 3}
    assert {name: kept["parameters"][name] for name in given} == given
    assert kept["n_leaves"] == n_leaves
    assert kept["device"] in ("cpu", "cuda:0")
    assert kept["versions"]["numpy"] == np.__version__
    assert n_leaves > 1
    for k in set(leaves.tolist()):
        counts = np.bincount(small.y_test[leaves == k])
        note = f"{small.class_names[counts.argmax()]} {counts.max() / counts.sum():.0%}"
        assert f"cluster {k}: {(model.labels_ == k).sum()} samples, {note}" in said
    with Image.open(tmp_path / "out" / "tree.png") as picture:
        assert min(picture.size) > 100
    assert f"Open in a browser: {(tmp_path / 'out' / 'report.html').as_uri()}" in said
    assert f"treevae explore {tmp_path / 'out'} opens it" in said
    report = (tmp_path / "out" / "report.html").read_bytes()
    assert "Wrote" in treevae("report", tmp_path / "out")  # the run remembers what it is about
    assert abs(len((tmp_path / "out" / "report.html").read_bytes()) - len(report)) < 10  # but for the time


def test_demo_spares_a_model_that_it_did_not_write(run: Path) -> None:
    before = (run / "model.safetensors").read_bytes()
    assert "another folder" in error_of("demo", "-o", run)
    assert (run / "model.safetensors").read_bytes() == before


def test_interrupted_demo_ends_with_130(small: FashionSample, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    interrupt_after(0, monkeypatch)
    assert "not finished" in treevae("demo", "-o", tmp_path, "--epochs", 1, code=130)


@pytest.mark.parametrize(
    ("ours", "verdict"),
    [
        ((60, 60, 60, 60), "TreeVAE is better in DP, LP, ACC and NMI."),
        ((40, 40, 40, 40), "Ward is better in DP, LP, ACC and NMI."),
        ((60, 40, 60, 50.04), "TreeVAE is better in DP and ACC; Ward is better in LP; they are equal in NMI."),
    ],
)
def test_verdict_is_the_one_the_table_shows(ours: tuple[float, ...], verdict: str) -> None:
    scores = {"TreeVAE": dict(zip(SCORES, ours, strict=True)), "Ward": dict.fromkeys(SCORES, 50.0)}
    assert Demo(TreeVAE(), (), scores, 0.0, 0.0, ()).verdict == verdict


def test_fit_on_a_data_set_of_the_paper(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "digits").mkdir()  # the name wins over a folder
    said = treevae("fit", "digits", "-o", "run", "--n-leaves", "2", "--epochs", "1", "--device", "cpu")
    assert "the training part of digits" in said
    assert "On the test samples: ELBO" in said
    found = json.loads((tmp_path / "run" / "record.json").read_text())
    assert found["parameters"]["network"] == "cnn"  # the recipe's
    assert found["parameters"]["n_leaves"] == 2  # what was given
    assert {"DP", "LP", "ACC", "NMI", "ARI"} == set(found["scores_percent"])
    assert found["stages"][0]["stage"] == "first tree"
    settings = json.loads((tmp_path / "run" / "run.json").read_text())
    assert settings["set"] is True
    assert (tmp_path / "run" / "tree.png").stat().st_size > 1000


def test_what_a_data_set_refuses(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("TREEVAE_DATA", raising=False)
    said = error_of("fit", "cifar10", "-o", "run")
    assert "set $TREEVAE_DATA" in said
    assert "treevae data NAME --root FOLDER --download" in said
    assert "--drop is for tables" in error_of("fit", "digits", "-o", "run", "--drop", "a")
    assert "--root is for data sets" in error_of("fit", "other.npy", "-o", "run", "--root", ".")
    assert not (tmp_path / "run").exists()


def test_words_that_are_nearly_names_of_data_sets(run, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    for word, meant in (
        ("Fashion", "fashion"),
        ("FASHION", "fashion"),
        ("cifar", "cifar10 or cifar100"),
        ("mnst", "mnist"),
    ):
        said = error_of("fit", word, "-o", "new")
        assert f"there is no file or folder {word}; did you mean the data set {meant}? There are digits, mnist" in said
    assert "did you mean the data set fashion?" in error_of("report", run, "--data", "Fashion")
    for word in ("fashion", "Fashion"):  # predict reads files
        assert "treevae.data.load('fashion').x_test" in error_of("predict", run, word)
    for path in ("photos", "mnist.npy", "below/mnist"):
        assert error_of("fit", path, "-o", "new") == f"Error: there is no file or folder {path}"
    (tmp_path / "Fashion").mkdir()
    assert "did you mean" not in error_of("fit", "Fashion", "-o", "new")  # it is there, and empty
    assert not (tmp_path / "new").exists()


def test_a_recipes_augmentation_can_be_turned_off(tmp_path, monkeypatch):
    asked = {}
    monkeypatch.setattr(cli_fit, "_fit_in", lambda run, settings, *_, **__: asked.update(settings.options))
    treevae("fit", "omniglot", "-o", tmp_path / "run", "--root", tmp_path, "--augment", "none")
    assert asked["augment"] is None
    assert asked["network"] == "deep_cnn"


def test_the_package_is_the_command_too() -> None:
    done = subprocess.run([sys.executable, "-m", "treevae", "--help"], capture_output=True, text=True, check=True)
    assert "Usage: treevae" in done.stdout


def test_a_network_for_gpus_is_said_to_be_one_on_a_cpu(pictures: Path, tmp_path: Path) -> None:
    few = ("--n-leaves", "2", "--n-init", "1", "--epochs", "1", "--max-depth", "1", "--device", "cpu")
    assert "resnet is meant for a GPU" in treevae("fit", pictures, "-o", tmp_path / "a", "--network", "resnet", *few)
    assert "GPU" not in treevae("fit", pictures, "-o", tmp_path / "b", *few)


def test_a_node_with_one_child_says_why() -> None:
    tree = Tree().split(0).split(1).prune(3)
    sizes = {node: (2 if node == 1 else 1) for node in tree.nodes} | {0: 3}
    model = SimpleNamespace(tree_=tree, fitted_=SimpleNamespace(sizes=sizes))
    first, second, *_ = drawing(model).splitlines()
    assert first == "3 samples"
    assert second.endswith("2 samples (its other child was pruned)")
