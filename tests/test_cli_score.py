"""treevae score, sample and info: what a run knows and makes."""

import json
from pathlib import Path

import numpy as np
import pandas
import pytest
from cells import treevae
from commands import CHANCE, VECTORS, error_of
from PIL import Image

from treevae import Tree, TreeVAE, load
from treevae.storage.fingerprint import fingerprint

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
