"""treevae predict: labels of samples, and which it refuses."""

import csv
from pathlib import Path

import numpy as np
import pandas
import pytest
from cells import treevae
from commands import RUN_FILES, VECTORS, error_of, rows_of

from treevae import load


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
