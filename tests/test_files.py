"""What users point at: every kind that is read, and every way in which it can be wrong."""

import hashlib
import re
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pandas
import pytest
from PIL import Image

from treevae.data import fashion_sample
from treevae.data.files import read
from treevae.errors import DataFileError

X = np.random.default_rng(0).normal(size=(5, 3))
FRAME = pandas.DataFrame(X, columns=["a", "b", "c"])


def grey(seed: int, height: int = 4, width: int = 6) -> np.ndarray:
    return np.random.default_rng(seed).integers(256, size=(height, width), dtype=np.uint8)


def save_picture(path: Path, pixels: np.ndarray, mode: str | None = None) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    image = Image.fromarray(pixels)
    (image if mode is None else image.convert(mode)).save(path)


def cut_short(path: Path) -> None:
    path.write_bytes(path.read_bytes()[: path.stat().st_size // 2])


# -- arrays -----------------------------------------------------------------------------------------------------


def test_npy_keeps_values_and_type(tmp_path: Path) -> None:
    np.save(tmp_path / "x.npy", X.astype(np.float32))
    table = read(tmp_path / "x.npy")
    assert table.X.dtype == np.float32
    assert np.array_equal(table.X, X.astype(np.float32))
    assert table.feature_names is table.sample_names is None
    assert table.frame is table.X


@pytest.mark.parametrize("keys", [("anything",), ("y", "X"), ("y", "x"), ("x_test", "y_train", "x_train")])
def test_npz_finds_the_samples(tmp_path: Path, keys: tuple[str, ...]) -> None:
    arrays: dict[str, Any] = {key: np.zeros((2, 2)) for key in keys[:-1]} | {keys[-1]: X}
    np.savez_compressed(tmp_path / "x.npz", **arrays)
    assert np.array_equal(read(tmp_path / "x.npz").X, X)


@pytest.mark.parametrize("name", ["x.csv", "x.parquet"])
def test_a_table_without_rows_is_said_to_be_one(tmp_path: Path, name: str) -> None:
    write = {"x.csv": pandas.DataFrame.to_csv, "x.parquet": pandas.DataFrame.to_parquet}[name]
    write(pandas.DataFrame({"a": np.zeros(0), "b": np.zeros(0)}), tmp_path / name, index=False)
    with pytest.raises(DataFileError, match="has columns, but no rows; a table has a row for each sample"):
        read(tmp_path / name)


def test_npz_without_a_known_name_lists_what_is_there(tmp_path: Path) -> None:
    np.savez(tmp_path / "x.npz", images=X, labels=X)
    with pytest.raises(DataFileError, match=r"'images', 'labels'.*call it X, x or x_train"):
        read(tmp_path / "x.npz")


class Trap:
    """Makes a file when it is unpickled."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def __reduce__(self) -> Any:
        return Path.touch, (self.path,)


@pytest.mark.parametrize("name", ["x.npy", "x.npz"])
def test_nothing_is_unpickled(tmp_path: Path, name: str) -> None:
    trap = np.array([Trap(tmp_path / "sprung")], dtype=object)
    np.save(tmp_path / name, trap) if name == "x.npy" else np.savez(tmp_path / name, X=trap)
    with pytest.raises(DataFileError, match="holds pickled Python objects"):
        read(tmp_path / name)
    assert not (tmp_path / "sprung").exists()


@pytest.mark.parametrize("name", ["x.npy", "x.npz", "x.parquet"])
def test_file_cut_short(tmp_path: Path, name: str) -> None:
    path = tmp_path / name
    if name == "x.parquet":
        FRAME.to_parquet(path)
    else:
        np.save(path, X) if name == "x.npy" else np.savez(path, X)
    cut_short(path)
    with pytest.raises(DataFileError, match=re.escape(str(path))):
        read(path)


@pytest.mark.parametrize("name", ["x.npy", "x.npz", "x.csv", "x.parquet"])
def test_empty_file(tmp_path: Path, name: str) -> None:
    (tmp_path / name).touch()
    with pytest.raises(DataFileError, match=name):
        read(tmp_path / name)


@pytest.mark.parametrize(
    ("array", "why"),
    [
        (np.zeros(3), r"shape \(3,\)"),
        (np.zeros((0, 3)), r"shape \(0, 3\)"),
        (np.full((2, 2), "a"), "dtype"),
        (np.zeros((2, 2), dtype=complex), "dtype complex"),
        (np.array([[0.0, 1.0], [np.nan, 1.0], [np.inf, 2.0]]), r"in 2 of 3 samples, first in sample 1"),
    ],
)
def test_arrays_that_are_no_samples(tmp_path: Path, array: np.ndarray, why: str) -> None:
    np.save(tmp_path / "x.npy", array)
    with pytest.raises(DataFileError, match=why):
        read(tmp_path / "x.npy")


# -- tables -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["x.csv", "x.CSV", "x.parquet"])
def test_tables_keep_values_and_names(tmp_path: Path, name: str) -> None:
    path = tmp_path / name
    FRAME.to_parquet(path) if path.suffix == ".parquet" else FRAME.to_csv(path, index=False)
    table = read(path)
    assert np.allclose(table.X, X, rtol=1e-15)
    assert table.feature_names == ("a", "b", "c")
    assert list(table.frame.columns) == ["a", "b", "c"]


def test_whole_numbers_and_truth_values_are_numbers(tmp_path: Path) -> None:
    pandas.DataFrame({"n": [1, 2], "yes": [True, False]}).to_csv(tmp_path / "x.csv", index=False)
    assert read(tmp_path / "x.csv").X.tolist() == [[1.0, 1.0], [2.0, 0.0]]


def test_csv_without_header_loses_no_sample(tmp_path: Path) -> None:
    FRAME.to_csv(tmp_path / "x.csv", index=False, header=False)
    table = read(tmp_path / "x.csv")
    assert np.allclose(table.X, X, rtol=1e-15)
    assert table.feature_names is None


def test_csv_header_that_counts_columns_is_no_sample(tmp_path: Path) -> None:
    pandas.DataFrame(X).to_csv(tmp_path / "x.csv", index=False)
    table = read(tmp_path / "x.csv")
    assert np.allclose(table.X, X, rtol=1e-15)
    assert table.feature_names is None


def test_text_columns_are_named_and_can_be_dropped(tmp_path: Path) -> None:
    FRAME.assign(kind="rose", day="today").to_csv(tmp_path / "x.csv", index=False)
    with pytest.raises(DataFileError, match=r"not numbers: 'kind', 'day'.*--drop 'kind' --drop 'day'"):
        read(tmp_path / "x.csv")
    assert read(tmp_path / "x.csv", drop=["kind", "day", "b"]).feature_names == ("a", "c")


def test_index_that_was_saved_along_is_no_feature(tmp_path: Path) -> None:
    FRAME.to_csv(tmp_path / "x.csv")
    with pytest.raises(DataFileError, match=r"counts the rows.*--drop 'Unnamed: 0'"):
        read(tmp_path / "x.csv")
    assert read(tmp_path / "x.csv", drop=["Unnamed: 0"]).feature_names == ("a", "b", "c")


def test_missing_values_name_their_columns(tmp_path: Path) -> None:
    FRAME.assign(b=[1, None, 2, None, 3]).to_parquet(tmp_path / "x.parquet")
    with pytest.raises(DataFileError, match=r"missing values in 'b', .*, first in sample 1 "):
        read(tmp_path / "x.parquet")


def test_rows_longer_than_the_header(tmp_path: Path) -> None:
    (tmp_path / "x.csv").write_text("a,b\n1,2,3\n4,5,6\n")
    with pytest.raises(DataFileError, match="more fields"):
        read(tmp_path / "x.csv")
    (tmp_path / "x.csv").write_text("a,b\n1,2\n4,5,6\n")
    with pytest.raises(DataFileError, match="cannot be read as a table"):
        read(tmp_path / "x.csv")


def test_header_without_rows(tmp_path: Path) -> None:
    (tmp_path / "x.csv").write_text("a,b\n")
    with pytest.raises(DataFileError, match=re.escape("x.csv")):
        read(tmp_path / "x.csv")


def test_drop_needs_columns_that_exist(tmp_path: Path) -> None:
    FRAME.to_csv(tmp_path / "x.csv", index=False)
    with pytest.raises(DataFileError, match="no column 'z' to drop; it has 'a', 'b', 'c'"):
        read(tmp_path / "x.csv", drop=["a", "z"])
    np.save(tmp_path / "x.npy", X)
    with pytest.raises(DataFileError, match="no named columns"):
        read(tmp_path / "x.npy", drop=["a"])


# -- pictures ---------------------------------------------------------------------------------------------------


def test_grey_pictures_in_the_order_of_their_paths(tmp_path: Path) -> None:
    for name, seed in [("b.png", 2), ("a/z.bmp", 1), ("a/b/c.png", 0)]:
        save_picture(tmp_path / name, grey(seed))
    (tmp_path / "notes.txt").write_text("not a picture")
    save_picture(tmp_path / ".thumbs" / "a.png", grey(9, 2, 2))
    table = read(tmp_path)
    assert table.sample_names == ("a/b/c.png", "a/z.bmp", "b.png")
    assert table.X.dtype == np.uint8
    assert np.array_equal(table.X, np.stack([grey(0), grey(1), grey(2)]))


def test_one_coloured_picture_makes_all_coloured(tmp_path: Path) -> None:
    colour = np.stack([grey(1), grey(2), grey(3)], axis=2)
    save_picture(tmp_path / "a.png", grey(0))
    save_picture(tmp_path / "b.png", colour)
    save_picture(tmp_path / "c.JPG", colour)
    X = read(tmp_path).X
    assert X.shape == (3, 4, 6, 3)
    assert all(np.array_equal(X[0, :, :, c], grey(0)) for c in range(3))
    assert np.array_equal(X[1], colour)


def test_transparency_is_dropped(tmp_path: Path) -> None:
    save_picture(tmp_path / "a.png", grey(0), "LA")
    assert np.array_equal(read(tmp_path).X, grey(0)[None])
    save_picture(tmp_path / "b.png", grey(0), "RGBA")
    assert read(tmp_path).X.shape == (2, 4, 6, 3)


def test_different_sizes_name_two_files(tmp_path: Path) -> None:
    save_picture(tmp_path / "a.png", grey(0))
    save_picture(tmp_path / "b.png", grey(0, 5, 7))
    with pytest.raises(DataFileError, match=r"a\.png has 6 × 4 pixels, b\.png has 7 × 5"):
        read(tmp_path)


def test_sixteen_bits_are_refused(tmp_path: Path) -> None:
    save_picture(tmp_path / "a.png", grey(0).astype(np.uint16) * 200)
    with pytest.raises(DataFileError, match="more than 8 bits"):
        read(tmp_path)


@pytest.mark.parametrize("name", ["a.png", "a.jpg", "a.bmp"])
def test_broken_picture(tmp_path: Path, name: str) -> None:
    save_picture(tmp_path / name, grey(0, 64, 64))
    cut_short(tmp_path / name)
    with pytest.raises(DataFileError, match=re.escape(name)):
        read(tmp_path)
    (tmp_path / name).write_text("not a picture")
    with pytest.raises(DataFileError, match=re.escape(name)):
        read(tmp_path)


# -- nothing there, or nothing to read it with ------------------------------------------------------------------


def test_nothing_there(tmp_path: Path) -> None:
    with pytest.raises(DataFileError, match="no file or folder"):
        read(tmp_path / "missing.csv")
    with pytest.raises(DataFileError, match="no pictures"):
        read(tmp_path)
    (tmp_path / "x.xlsx").touch()
    with pytest.raises(DataFileError, match=r"ending '\.xlsx'.*\.npy"):
        read(tmp_path / "x.xlsx")


@pytest.mark.parametrize(
    ("library", "name"), [("pandas", "x.csv"), ("pandas", "x.parquet"), ("pyarrow", "x.parquet"), ("PIL", "")]
)
def test_missing_library_says_what_to_install(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, library: str, name: str
) -> None:
    FRAME.to_csv(tmp_path / "x.csv")
    FRAME.to_parquet(tmp_path / "x.parquet")
    save_picture(tmp_path / "a.png", grey(0))
    monkeypatch.setitem(sys.modules, library, None)  # makes `import library` raise ImportError
    with pytest.raises(DataFileError, match=re.escape("pip install 'treevae[files]'")):
        read(tmp_path / name)


# -- the sample that comes along --------------------------------------------------------------------------------


def test_fashion_sample_is_the_original() -> None:
    """Digests of the same images and labels read straight from the idx files of Fashion-MNIST."""
    sample = fashion_sample.load()
    assert sample.x_train.shape == (6000, 28, 28)
    assert sample.x_test.shape == (2000, 28, 28)
    digests = {
        name: hashlib.sha256(getattr(sample, name).tobytes()).hexdigest()[:16]
        for name in ("x_train", "y_train", "x_test", "y_test")
    }
    assert digests == {
        "x_train": "c407c19496b306f5",
        "y_train": "630a374d65ffe2f3",
        "x_test": "09bbac78738f0229",
        "y_test": "a86243d2b2400909",
    }
    assert len(sample.class_names) == sample.y_train.max() + 1 == 10
