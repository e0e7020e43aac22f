"""The study of ways to start keeps training and test samples apart, on made-up stand-ins for its files."""

import csv
import json

import numpy as np
import pytest

from benchmarks.studies.start_cheap import METHODS, CheapInput, Clusters, merge, recorded, run, table, with_tree
from benchmarks.studies.start_cheap import main as run_cheap
from benchmarks.studies.start_data import (
    Folders,
    StartSet,
    components,
    keep,
    kept,
    one_hot,
    prepared,
    standardised,
    whole_groups,
)
from benchmarks.studies.start_hierarchies import HIERARCHIES, LARGEST, SMALLEST, made_by_hand, shares
from treevae.data.dataset import own_split

CHANCE = np.random.default_rng(0)


def cells(n=120):
    y = np.arange(n) % 3
    return (CHANCE.standard_normal((n, 80)) + 3 * y[:, None]).astype(np.float32), y


def proteins(n_mice=24, rows=5):
    mouse = np.repeat(np.arange(n_mice), rows)
    X = CHANCE.standard_normal((len(mouse), 6)).astype(np.float32)
    X[::7, 2] = np.nan
    return {"X": X, "y": mouse % 8, "mouse": mouse}


def write_cells(folder, X, y):
    np.savez(folder / "mouse_bladder.npz", X=X, y=y)


def same_but_for_test_rows(before, after):
    """Whether nothing that training samples tell has changed, though test samples have."""
    return np.array_equal(before.X_train, after.X_train) and np.array_equal(before.y_train, after.y_train)


def test_components_are_learnt_from_training_samples_alone(tmp_path):
    X, y = cells()
    places = Folders(vectors=(tmp_path,))
    write_cells(tmp_path, X, y)
    before = prepared("mouse-bladder", places)
    test = own_split(len(X), y)[1]
    X[test[0]] += 100 * CHANCE.standard_normal(80)  # one test sample far out would turn components that saw it
    write_cells(tmp_path, X, y)
    after = prepared("mouse-bladder", places)
    assert same_but_for_test_rows(before, after)
    assert np.allclose(before.X_test[1:], after.X_test[1:], atol=1e-4)
    assert not np.allclose(before.X_test[0], after.X_test[0], atol=1)


def test_means_scales_and_gaps_are_learnt_from_training_samples_alone(tmp_path):
    arrays = proteins()
    places = Folders(vectors=(tmp_path,))
    np.savez(tmp_path / "mice_protein.npz", **arrays)
    before = prepared("mice", places)
    held = whole_groups(arrays["y"], arrays["mouse"], per_class=2)
    arrays["X"][held] *= 1000
    np.savez(tmp_path / "mice_protein.npz", **arrays)
    after = prepared("mice", places)
    assert same_but_for_test_rows(before, after)
    assert not np.isnan(after.X_train).any()
    assert np.allclose(after.X_train.mean(axis=0), 0, atol=1e-5)
    assert np.abs(after.X_test).max() > 100


def test_a_mouse_is_in_one_part_as_a_whole():
    arrays = proteins()
    held = whole_groups(arrays["y"], arrays["mouse"], per_class=2)
    assert not set(arrays["mouse"][held]) & set(arrays["mouse"][~held])
    assert [len(set(arrays["mouse"][held & (arrays["y"] == one)])) for one in range(8)] == [2] * 8


def test_levels_are_those_of_training_samples(tmp_path):
    train, test = one_hot([["a", "x"], ["b", ""]], [["c", ""], ["a", "y"]])
    assert train.tolist() == [[1, 0, 0, 1], [0, 1, 1, 0]]
    assert test.tolist() == [[0, 0, 1, 0], [1, 0, 0, 0]]  # what no training sample has is no level
    with (tmp_path / "mushroom.csv").open("w", newline="") as file:
        csv.writer(file).writerows([["cap", "class"], *([letter, "ep"[i % 2]] for i, letter in enumerate("ab" * 20))])
    data = prepared("mushroom", Folders(vectors=(tmp_path,)))
    assert (len(data.X_train), len(data.X_test), data.X_train.shape[1]) == (32, 8, 2)


def test_a_missing_file_is_named(tmp_path):
    with pytest.raises(FileNotFoundError, match=r"letter\.npz was looked for in .*; name its folder with --vectors"):
        prepared("letter", Folders(vectors=(tmp_path,)))
    with pytest.raises(ValueError, match="there is no set 'lettre'; there are digits"):
        prepared("lettre", Folders())


def test_functions_do_not_see_the_test_part():
    train, test = CHANCE.standard_normal((50, 9)), CHANCE.standard_normal((20, 9))
    for learn in (lambda a, b: components(a, b, 4), standardised):
        alone, other = learn(train, test)[0], learn(train, test + 50)[0]
        assert np.array_equal(alone, other)


@pytest.mark.parametrize("made", HIERARCHIES, ids=lambda made: made.name)
def test_hierarchies_have_the_sizes_that_are_said(made):
    share = shares(made.n_leaves, made.even)
    assert np.isclose(share.sum(), 1)
    if not made.even:
        assert np.isclose(share[0], SMALLEST)
        assert np.isclose(share[-1], LARGEST)
    X, levels = made_by_hand(made, 6000, 0)
    assert X.shape == (6000, made.n_features)
    assert levels.shape == (6000, len(made.branches))
    assert [len(np.unique(level)) for level in levels.T] == np.cumprod(made.branches).tolist()
    for coarse, fine in zip(levels.T, levels.T[1:], strict=False):  # each group lies in one group of the level above
        assert len(np.unique(np.stack([coarse, fine]), axis=1).T) == len(np.unique(fine))
    again, same = made_by_hand(made, 6000, 0)
    assert np.array_equal(X, again)
    assert np.array_equal(levels, same)


def small():
    X, levels = made_by_hand(HIERARCHIES[0], 300, 0)
    y = levels[:, 1]
    return StartSet(X[:200], y[:200], X[200:], y[200:], 8, coarse_test=levels[200:, :1], name="hand-8-even")


def test_a_set_is_kept_small_and_read_back(tmp_path):
    data = small()
    back = kept(keep(data, tmp_path))
    assert back.X_train.dtype == np.float32
    assert np.allclose(back.X_train, data.X_train, atol=0.01)
    assert np.array_equal(back.y_test, data.y_test)
    assert np.array_equal(back.coarse_test, data.coarse_test)
    assert (back.n_leaves, back.name) == (8, "hand-8-even")
    assert "8 Gaussian groups in 2 levels" in back.about


def test_cheap_methods_are_run_once_and_tabled(tmp_path, capsys):
    out, methods = tmp_path / "cheap.json", [name for name in METHODS if not name.startswith("umap")]
    run(small(), methods, 2, out)
    first = out.read_text()
    run(small(), methods, 2, out)
    assert out.read_text() == first  # nothing twice
    told = table(json.loads(first)["rows"])
    assert [line.split(" | ")[1:3] for line in told[2:]] == [[name, "1" if name == "ward" else "2"] for name in methods]
    assert "'DP of coarser levels'" in capsys.readouterr().out
    other = tmp_path / "other.json"
    merge(other, recorded(out))
    merge(other, recorded(out))
    assert recorded(other) == recorded(out)


def test_noise_joins_the_nearest_mean_in_the_tree():
    train = np.array([[0.0], [0.1], [9.0], [9.1], [20.0]], np.float32)
    found = Clusters(np.array([0, 0, 1, 1, -1]), np.array([-1, 1]))
    tree, leaf = with_tree(found, train, np.array([[0.2], [9.2]], np.float32))
    assert len(tree.leaves) == 2
    assert leaf[0] != leaf[1]
    alone = with_tree(Clusters(np.zeros(5, int), np.zeros(2, int)), train, train[:2])
    assert alone[0].leaves == (0,)


def test_labels_are_not_given_to_methods():
    assert set(CheapInput.__dataclass_fields__) == {"train", "test", "k", "seed", "spaces"}


def test_cheap_says_what_is_not_there(tmp_path, capsys, monkeypatch):
    monkeypatch.setattr("sys.argv", ["start_cheap", "letter", "--methods", "k-means", "--kept", str(tmp_path)])
    run_cheap()
    assert capsys.readouterr().out == f"letter: {tmp_path / 'letter.npz'} is not there\n"
