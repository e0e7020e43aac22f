"""Files of earlier versions open: models, and a run that was killed (files_of_0_1/README.md)."""

import json
import shutil
from pathlib import Path

import numpy as np
import pytest
from typer.testing import CliRunner

from treevae import TreeVAE, load
from treevae.cli.app import app

OLD = Path(__file__).parent / "files_of_0_1"
EXPECTED = json.loads((OLD / "expected.json").read_text())
X = np.load(OLD / "X.npy")


def test_an_old_model_answers_as_it_did():
    model = load(OLD / "model.safetensors", device="cpu")
    np.testing.assert_array_equal(model.predict(X), EXPECTED["labels"])
    np.testing.assert_allclose(model.score_samples(X), EXPECTED["elbo"], rtol=1e-4)
    assert model.history_[0]["event"] == "EpochEnded"


def test_an_old_contrastive_model_keeps_its_loss():
    model = load(OLD / "contrastive.safetensors", device="cpu")
    np.testing.assert_array_equal(model.predict(X), EXPECTED["contrastive_labels"])
    assert model.contrastive_weight == 5.0


@pytest.mark.parametrize("name", ["model", "contrastive"])
def test_an_old_model_is_written_anew(name, tmp_path):
    load(OLD / f"{name}.safetensors", device="cpu").save(tmp_path / "again.safetensors")
    again = load(tmp_path / "again.safetensors", device="cpu")
    np.testing.assert_array_equal(again.labels_, load(OLD / f"{name}.safetensors", device="cpu").labels_)


def test_an_old_run_goes_on(tmp_path, monkeypatch):
    shutil.copytree(OLD / "run", tmp_path / "run")
    shutil.copy(OLD / "X.npy", tmp_path)
    monkeypatch.chdir(tmp_path)
    told = CliRunner().invoke(app, ["fit", "--resume", "run"])
    assert told.exit_code == 0, told.output
    model = load(tmp_path / "run" / "model.safetensors", device="cpu")
    assert isinstance(model, TreeVAE)
    assert len(model.history_) > json.loads((tmp_path / "run" / "run.json").read_text())["options"]["epochs"]
