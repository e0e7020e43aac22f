"""treevae fit that was interrupted, is resumed, or begins anew where a run is."""

import json
import os
from pathlib import Path

import numpy as np
import pytest
from cells import treevae
from commands import RUN_FILES, TINY, VECTORS, error_of, interrupt_after, rows_of

from treevae import load
from treevae.storage.states import StateFolder


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
