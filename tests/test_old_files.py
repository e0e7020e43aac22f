"""Files of earlier versions open: models, and a run that was killed (files_of_0_1/README.md)."""

import json
import shutil
from pathlib import Path

import numpy as np
import pytest
from typer.testing import CliRunner

from treevae import TreeVAE, load
from treevae.cli.app import app
from treevae.recipes import PAPER
from treevae.training.events import EpochEnded

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


def test_an_old_run_goes_on(tmp_path):
    shutil.copytree(OLD / "run", tmp_path / "run")
    options = json.loads((tmp_path / "run" / "run.json").read_text())["options"]
    heard = []

    def some_more(event):
        heard.append(event)
        return len(heard) < 5

    model = TreeVAE(**options, **PAPER).fit(X, checkpoint=tmp_path / "run", callback=some_more)
    told = [(event.stage, event.epoch) for event in model.fitted_.epochs]
    assert next(event.epoch for event in heard if isinstance(event, EpochEnded)) > 1  # it did not begin anew
    assert len(told) > len(heard) + options["epochs"]
    assert told[: options["epochs"]] == [("first tree", epoch + 1) for epoch in range(options["epochs"])]


def test_an_old_runs_settings_are_read(tmp_path):
    shutil.copytree(OLD / "run", tmp_path / "run")
    told = CliRunner().invoke(app, ["report", str(tmp_path / "run")])
    assert told.exit_code == 1
    assert "its fit has not ended, go on with: treevae fit --resume" in " ".join(told.output.split())
