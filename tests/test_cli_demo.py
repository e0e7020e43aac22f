"""treevae demo: what it writes, says and spares."""

import json
from pathlib import Path

import numpy as np
import pytest
from cells import treevae
from commands import error_of, interrupt_after
from PIL import Image

from treevae import TreeVAE, load
from treevae.baselines.ward import Ward
from treevae.cli import demo as demo_module
from treevae.cli.demo import SCORES, Demo
from treevae.data import fashion_sample
from treevae.data.fashion_sample import FashionSample
from treevae.metrics import accuracy, dendrogram_purity, leaf_purity, nmi


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
