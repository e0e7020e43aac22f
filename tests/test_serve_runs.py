"""The explorer of a run: watched while it trains, and started by its command."""

import json
import signal
import subprocess
import sys
from pathlib import Path

import explorers
import httpx
import pytest
from explorers import CALLS, DIGITS, HERE, X, error_of
from fastapi.testclient import TestClient
from typer.testing import CliRunner

from treevae import TreeVAE
from treevae.cli.app import app as cli
from treevae.page.snapshot import snapshot
from treevae.recipes import PAPER
from treevae.run import Run
from treevae.serve.answers import Explorer
from treevae.serve.app import create_app
from treevae.serve.guard import Door
from treevae.serve.messages import Status
from treevae.serve.server import bind
from treevae.serve.site import Ready, Site, Watch
from treevae.serve.workers import Workers


@pytest.fixture(scope="module")
def model() -> TreeVAE:
    return explorers.fitted()


# -- watching a run -----------------------------------------------------------------------------------------------


@pytest.fixture
def training(tmp_path, model) -> tuple:
    """A site that watches a folder in which training is about to begin."""
    site = Site(None, Status(state="training", title="digits"))

    def prepare() -> Ready:
        bundle = snapshot(model, X, title="digits", map_method="pca").bundle
        return Ready.of(Explorer(model, X, bundle), bundle)

    client = TestClient(create_app(site, Workers(1), Door("127.0.0.1")), base_url=HERE)
    return tmp_path, site, Watch(site, Run(tmp_path), prepare), client


def test_a_run_is_watched_while_it_trains(training):
    from treevae import fitting
    from treevae.storage.states import STATES, StateFolder

    folder, _, watch, client = training
    watch.look()
    nothing_yet = {"progress": 0.0, "seconds": 0.0, "saves": 0, "losses": [], "stages": []}
    assert client.get("/api/status").json() == {"state": "training", "title": "digits", "growing": nothing_yet}
    seen = []

    def spy(self, about, tensors):
        number = save(self, about, tensors)
        watch.look()  # while the folder is locked by the one who trains
        seen.append(client.get("/api/status").json())
        return number

    save = StateFolder.save
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(fitting, "SHARE", 1.0)
        patch.setattr(StateFolder, "save", spy)
        how = {"max_depth": 2, "n_init": 2, "epochs": 6, "network": "mlp", "hidden_dim": 16, "random_state": 0}
        grown = TreeVAE(3, **how, **PAPER).fit(X, checkpoint=folder, save_every=0)
    assert [one["growing"]["saves"] for one in seen] == list(range(1, len(seen) + 1))
    assert "tree" not in seen[0] or seen[0]["tree"] is None  # saved before anything is trained
    sizes = [len(one["tree"]["nodes"]) for one in seen[1:]]
    assert (sizes[0], max(sizes)) == (3, 5)
    assert sizes[-1] == len(grown.tree_.nodes)
    last = seen[-1]["growing"]
    epochs = [event for event in grown.history_ if event["event"] == "EpochEnded"]
    assert (last["stage"], last["epoch"], last["epochs"]) == (
        epochs[-1]["stage"],
        epochs[-1]["epoch"],
        epochs[-1]["epochs"],
    )
    kl = sum(epochs[-1][f"kl_{part}"] for part in ("root", "nodes", "decisions"))
    assert last["loss"] == pytest.approx(epochs[-1]["kl_weight"] * kl - epochs[-1]["reconstruction"], abs=1e-3)
    assert len(last["losses"]) == len(epochs)
    assert "its first state" in client.get("/").text  # the page of a run in training
    for path, body in CALLS:
        assert "the run is training; see /api/status" in error_of(client.post(path, json=body), 409)
    error_of(client.get("/api/bundle"), 409)

    for name in STATES:
        (folder / name).unlink()
    (folder / "model.safetensors").write_bytes(b"the watcher only asks whether it is there")
    watch.start()
    watch.join(60)
    assert client.get("/api/status").json()["state"] == "ready"
    assert '"live":true' in client.get("/").text
    for path, body in CALLS:
        assert client.post(path, json=body).status_code == 200


def test_what_cannot_be_prepared_is_said(training, monkeypatch):
    folder, site, _, client = training

    def prepare() -> Ready:
        raise ValueError("the data are gone")

    (folder / "model.safetensors").write_bytes(b"")
    watch = Watch(site, Run(folder), prepare)
    watch.start()
    watch.join(20)
    assert client.get("/api/status").json() == {"state": "failed", "title": "digits", "error": "the data are gone"}


def test_damaged_states_are_passed_over(training):
    folder, _, watch, client = training
    (folder / "state-a.safetensors").write_bytes(b"not a state")
    watch.look()
    assert client.get("/api/status").json()["growing"]["saves"] == 0


# -- the command --------------------------------------------------------------------------------------------------


@pytest.fixture
def run(tmp_path, model) -> Path:
    """The folder of a finished run."""
    model.save(tmp_path / "model.safetensors")
    (tmp_path / "run.json").write_text(
        json.dumps({"data": "digits", "found_at": "", "drop": [], "options": {}, "set": True})
    )
    return tmp_path


def test_the_command_serves_until_it_is_interrupted(run):
    command = [
        sys.executable,
        "-c",
        "from treevae.cli.app import app; app()",
        "explore",
        str(run),
        "--port",
        "0",
        "--no-open",
        "--map",
        "pca",
        "--title",
        "My digits",
    ]
    server = subprocess.Popen([*command, "--watch"], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    try:
        assert server.stdout is not None
        line = next(line for line in server.stdout if "http://" in line)
        assert line.startswith(f"Exploring {run} at http://127.0.0.1:")
        assert next(server.stdout).startswith("Every user of this machine can open it")
        address = line.split(" at ")[1].strip()
        status = httpx.get(address + "api/status").json()
        assert (status["state"], status["title"], len(status["tree"]["nodes"])) == ("ready", "My digits", 5)
        bundle = httpx.get(address + "api/bundle").json()
        assert (bundle["n_samples"], bundle["map"]["method"]) == (len(DIGITS.x_test), "PCA")
        assert httpx.post(address + "api/walk", json={"sample": 3}).status_code == 200
    finally:
        server.send_signal(signal.SIGINT)
        rest, wrong = server.communicate(timeout=30)
    assert (server.returncode, wrong) == (0, "")
    assert rest.endswith("Ended.\n")


def test_the_command_says_what_is_missing(run, tmp_path_factory):
    def said(*arguments: str) -> str:
        found = CliRunner().invoke(cli, ["explore", *arguments, "--no-open"])
        assert found.exit_code == 1
        return " ".join(found.output.split())

    empty = tmp_path_factory.mktemp("empty")
    assert "there is no run in" in said(str(empty), "--watch")
    assert "--map tsne" in said(str(run), "--watch", "--map", "tsne")
    assert "has no model.safetensors" in said(str(empty))
    (empty / "state-a.safetensors").write_bytes(b"")
    assert f"see it grow with: treevae explore {empty} --watch" in said(str(empty))
    with bind("127.0.0.1", 0) as bound:
        port = str(bound.getsockname()[1])
        assert f"cannot listen on --host 127.0.0.1 --port {port}" in said(str(run), "--port", port)
    (run / "run.json").unlink()
    assert "name them with --data" in said(str(run), "--port", "0")
