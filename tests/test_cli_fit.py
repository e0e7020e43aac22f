"""treevae fit: what it writes, says and refuses."""

import json
import shutil
import sys
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from types import FrameType
from typing import Any

import numpy as np
import pytest
from cells import treevae
from commands import RUN_FILES, TINY, error_of, rows_of
from PIL import Image
from typer.testing import CliRunner

from treevae import Tree, load
from treevae.cli import fit as cli_fit
from treevae.cli.app import app
from treevae.data.files import read
from treevae.preparing import prepare
from treevae.training.grove import Grove
from treevae.training.loop import DivergedError

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


# -- demo -------------------------------------------------------------------------------------------------------


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


def test_a_network_for_gpus_is_said_to_be_one_on_a_cpu(pictures: Path, tmp_path: Path) -> None:
    few = ("--n-leaves", "2", "--n-init", "1", "--epochs", "1", "--max-depth", "1", "--device", "cpu")
    assert "resnet is meant for a GPU" in treevae("fit", pictures, "-o", tmp_path / "a", "--network", "resnet", *few)
    assert "GPU" not in treevae("fit", pictures, "-o", tmp_path / "b", *few)
