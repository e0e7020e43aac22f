"""treevae fit with a guide: a column of a table, an array, a name; and what else begins a tree."""

import json
from pathlib import Path

import numpy as np
import pandas
import pytest
from cells import treevae
from commands import error_of, interrupt_after, rows_of

from treevae import load
from treevae.cli.fit import GUIDES, _read_samples
from treevae.guides.labels import numbered
from treevae.guides.sources import SOURCES
from treevae.run import Run, Settings
from treevae.training.events import GuideMade

CHANCE = np.random.default_rng(0)
GROUPS = np.repeat([0, 1, 2], 30)
X = CHANCE.normal(0, 1, (90, 6)) + 8 * GROUPS[:, None]
SHORT = ("--n-leaves", "3", "--max-depth", "2", "--epochs", "6", "--learning-rate", "0.01", "--device", "cpu")


@pytest.fixture
def table(tmp_path: Path) -> Path:
    """A folder with a table, one column of which has groups by name and one by number, and the same as arrays."""
    frame = pandas.DataFrame(X, columns=list("abcdef"))
    frame.assign(kind=np.array(["rose", "tulip", "aster"])[GROUPS], part=np.where(GROUPS > 1, -1, GROUPS)).to_csv(
        tmp_path / "x.csv", index=False
    )
    np.savez(tmp_path / "x.npz", samples=X, groups=GROUPS)
    return tmp_path


def made(run: Path) -> list[tuple[str, int, float]]:
    history = load(run / "model.safetensors").fitted_.history
    return [(event.name, event.leaves, event.known) for event in history if isinstance(event, GuideMade)]


def test_a_column_is_the_guide_and_no_feature(table: Path) -> None:
    run = table / "run"
    said = treevae("fit", table / "x.csv", "-o", run, *SHORT, "--drop", "part", "--guide", "kind")
    assert "guide 'given': 3 leaves" in said
    assert "guide       given: 3 groups, agreement 1." in treevae("info", run)
    model = load(run / "model.safetensors")
    assert list(model.feature_names_in_) == list("abcdef")
    assert made(run) == [("given", 3, 1.0)]
    assert json.loads((run / "run.json").read_text())["guide"] == "kind"
    for command in ("report", "score"):  # which read the samples again
        more = ("--map", "pca") if command == "report" else ("--draws", "1")
        assert "not what it was" not in treevae(command, run, *more)
    treevae("predict", run, table / "x.csv", "-o", table / "labels.csv", "--drop", "kind", "--drop", "part")
    treevae("predict", run, table / "x.csv", "-o", table / "again.csv")
    assert rows_of(table / "again.csv") == rows_of(table / "labels.csv")


def test_numbers_below_zero_are_unknown(table: Path) -> None:
    treevae("fit", table / "x.csv", "-o", table / "run", *SHORT, "--drop", "kind", "--guide", "part")
    assert made(table / "run") == [("given", 2, 60 / 90)]


@pytest.mark.parametrize(
    "unknown",
    [
        np.where(GROUPS > 1, np.nan, GROUPS),
        np.where(GROUPS > 1, -1.0, GROUPS),
        np.array(["rose", "tulip", "-1"])[GROUPS],
        np.array(["rose", "tulip", ""])[GROUPS],
        np.array(["rose", "tulip", None], object)[GROUPS],
        np.array([3, "tulip", None], object)[GROUPS],
    ],
    ids=["NaN", "-1.0", "text", "empty", "None", "mixed"],
)
@pytest.mark.parametrize("kind", ["csv", "parquet", "npz"])
def test_groups_that_are_unknown_may_be_said_in_many_ways(table: Path, unknown: np.ndarray, kind: str) -> None:
    file, texts = table / f"y.{kind}", unknown.dtype == object
    frame = pandas.DataFrame(X, columns=list("abcdef")).assign(part=unknown)
    if kind == "csv":
        frame.to_csv(file, index=False)
    elif kind == "parquet":
        frame.assign(part=[None if one is None else str(one) for one in unknown] if texts else unknown).to_parquet(file)
    else:
        np.savez(file, X=X, part=np.where(GROUPS > 1, "", unknown.astype(str)) if texts else unknown)
    settings = Settings(str(file), str(file), (), {}, guide="part")
    read, _, _ = _read_samples(settings, start=True)
    labels = numbered(read.labels)
    assert labels[labels >= 0].tolist() == GROUPS[GROUPS < 2].tolist()
    assert (labels[60:] == -1).all()


@pytest.mark.parametrize("kind", ["csv", "parquet", "npz"])
@pytest.mark.parametrize("values", [GROUPS, np.array(["rose", "tulip", "aster"])[GROUPS]], ids=["numbers", "texts"])
def test_a_column_that_is_called_as_a_clustering_is_refused(table: Path, kind: str, values: np.ndarray) -> None:
    file, frame = table / f"y.{kind}", pandas.DataFrame(X, columns=list("abcdef")).assign(kmeans=values)
    if kind == "npz":
        np.savez(file, X=X, kmeans=values)
    else:
        frame.to_csv(file, index=False) if kind == "csv" else frame.to_parquet(file)
    said = error_of("fit", file, "-o", table / "run", *SHORT, "--guide", "kmeans")
    assert "--guide kmeans is the name of a clustering, and of a column" in said
    assert "rename the column" in said
    assert not (table / "run").exists()


def test_the_help_names_every_clustering() -> None:
    named = GUIDES.replace(" or ", ", ").split(", ")
    assert sorted(named) == sorted(SOURCES)


def test_an_array_beside_the_samples_is_the_guide(table: Path) -> None:
    treevae("fit", table / "x.npz", "-o", table / "run", *SHORT, "--guide", "groups")
    assert made(table / "run") == [("given", 3, 1.0)]
    assert "90 samples" in treevae("score", table / "run", "--draws", "1")


@pytest.mark.parametrize("start", [(), ("--start", "guide"), ("--start", "auto", "--n-init", "auto")])
def test_a_name_is_the_guide(table: Path, start: tuple[str, ...]) -> None:
    run = table / "run"
    treevae("fit", table / "x.csv", "-o", run, *SHORT, *start, "--drop", "kind", "--drop", "part", "--guide", "kmeans")
    assert made(run) == [("kmeans", 3, 1.0)]
    assert Run(run).left_out() == ("kind", "part")


def test_splits_without_neighbours_are_the_papers_way(table: Path) -> None:
    run, way = table / "run", ("--start", "splits", "--neighbours", "0", "--n-init", "2")
    treevae("fit", table / "x.npz", "-o", run, *SHORT, *way, "--guide", "groups", code=1)
    np.save(table / "x.npy", X)
    treevae("fit", table / "x.npy", "-o", run, *SHORT, *way)
    model = load(run / "model.safetensors")
    assert (model.start, model.neighbours, model.n_init) == ("splits", 0, 2)
    assert made(run) == []
    assert "agreement" not in model.history_[0]


def test_a_data_set_takes_a_guide_too(tmp_path: Path) -> None:
    way = ("--n-leaves", "2", "--max-depth", "1", "--epochs", "1", "--network", "mlp", "--hidden-dim", "4")
    treevae("fit", "digits", "-o", tmp_path / "run", *way, "--guide", "kmeans")
    assert made(tmp_path / "run") == [("kmeans", 2, 1.0)]
    treevae("fit", "digits", "-o", tmp_path / "other", *way)
    assert made(tmp_path / "other") == []  # the paper's way


@pytest.mark.parametrize(
    ("wrong", "said"),
    [
        (("--guide", "typo"), "has no 'typo' for labels"),
        (("--guide", "kind", "--start", "splits"), "--start splits grows without one"),
        (("--start", "leaf"), "--start leaf; allowed are 'auto', 'splits', 'guide'"),
        (("--neighbours", "-1"), "--neighbours -1 must be a whole number of at least 0"),
        (("--n-init", "few"), "--n-init few must be a whole number, or auto"),
        (("--epochs", "1.5"), "--epochs 1.5 must be a whole number, or auto"),
        (("--guide", "kind", "--n-leaves", "2"), "guide has 3 groups and --n-leaves 2; pass --n-leaves 3"),
    ],
)
def test_wrong_words_are_refused_and_nothing_is_written(table: Path, wrong: tuple[str, ...], said: str) -> None:
    drop = ("--drop", "part") if "kind" in wrong else ("--drop", "part", "--drop", "kind")
    assert said in error_of("fit", table / "x.csv", "-o", table / "run", *SHORT, *drop, *wrong)
    assert not (table / "run").exists()


@pytest.mark.parametrize("data", ["x.csv", "x.npz"])
def test_a_run_with_a_guide_is_resumed_with_it(table: Path, data: str, monkeypatch: pytest.MonkeyPatch) -> None:
    how = ("--drop", "part", "--guide", "kind") if data == "x.csv" else ("--guide", "groups")
    with monkeypatch.context() as patched:
        interrupt_after(1, patched)
        treevae("fit", table / data, "-o", table / "run", *SHORT, *how, code=130)
    treevae("fit", table / data, "-o", table / "whole", *SHORT, *how)
    assert "Grew" in treevae("fit", "--resume", table / "run")
    ours, theirs = (load(table / name / "model.safetensors") for name in ("run", "whole"))
    assert made(table / "run") == [("given", 3, 1.0)]
    assert ours.history_ == theirs.history_
    np.testing.assert_array_equal(ours.labels_, theirs.labels_)
