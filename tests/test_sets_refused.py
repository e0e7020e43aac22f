"""The data sets by name: what is refused, and what the refusal says."""

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image
from small_sets import (
    MAKERS,
    cut_short,
    make_celeba,
    make_cifar10,
    make_cifar100,
    make_idx,
    make_news20,
    make_omniglot,
    noise,
    refusal,
    write_idx,
    write_pickle,
)

from treevae.data import celeba, idx, load, omniglot
from treevae.data.sets import SOURCES, survey
from treevae.errors import DataFileError


@pytest.mark.parametrize("name", MAKERS)
def test_set_that_is_not_there(tmp_path: Path, name: str) -> None:
    message = refusal(name, tmp_path, remedy=SOURCES[name].folders[0])
    assert f"{name} is not there" in message
    assert str(tmp_path / SOURCES[name].folders[0]) in message
    assert ("treevae data" in message) == (name != "celeba")


@pytest.mark.parametrize(
    ("name", "part"), [(name, part) for name in MAKERS for part in SOURCES[name].parts if part != celeba.PARTITION]
)
def test_part_that_is_missing(tmp_path: Path, name: str, part: str) -> None:
    MAKERS[name](tmp_path)
    found = survey(name, tmp_path).folder
    assert found is not None
    path = next(path for path in (found / part, found / f"{part}.gz") if path.exists())
    shutil.rmtree(path) if path.is_dir() else path.unlink()
    message = refusal(name, tmp_path, remedy="folder")
    assert part in message
    assert "is not there" in message


@pytest.mark.parametrize("ending", ["", ".gz"])
@pytest.mark.parametrize("file", idx.FILES)
def test_idx_cut_short(tmp_path: Path, file: str, ending: str) -> None:
    make_idx(tmp_path, "MNIST/raw", ending)
    cut_short(tmp_path / "MNIST" / "raw" / (file + ending))
    assert file in refusal("mnist", tmp_path)


@pytest.mark.parametrize(
    ("file", "values", "why"),
    [
        (0, noise(7, 27, 28), "27 × 28, expected 28 × 28"),
        (0, noise(7), r"expected an idx file of bytes with 3 axes"),
        (1, noise(6) % 10, "6 labels, expected one for each of 7 images"),
        (3, np.array([0, 10, 3], np.uint8), "a label 10, expected 0 to 9"),
    ],
)
def test_idx_that_is_something_else(tmp_path: Path, file: int, values: np.ndarray, why: str) -> None:
    make_idx(tmp_path, "MNIST/raw")
    write_idx(tmp_path / "MNIST" / "raw" / idx.FILES[file], values)
    assert re.search(why, refusal("mnist", tmp_path))


def test_idx_with_more_than_its_header_says(tmp_path: Path) -> None:
    make_idx(tmp_path, "MNIST/raw")
    with (tmp_path / "MNIST" / "raw" / idx.FILES[0]).open("ab") as file:
        file.write(b"more")
    assert "holds 5,492 bytes after its header, expected 5,488" in refusal("mnist", tmp_path)


def test_news20_with_an_empty_or_a_one_sided_group(tmp_path: Path) -> None:
    make_news20(tmp_path)
    test = tmp_path / "20news-bydate" / "20news-bydate-test"
    (test / "misc.new").mkdir()
    assert "misc.new has no messages" in refusal("news20", tmp_path)
    (test / "misc.new" / "1").write_text("hello")
    assert "only one of 20news-bydate-train and 20news-bydate-test: misc.new" in refusal("news20", tmp_path)


def test_news20_without_words(tmp_path: Path) -> None:
    make_news20(tmp_path)
    for file in (tmp_path / "20news-bydate" / "20news-bydate-train").rglob("1*"):
        file.write_text("")
    assert "no words" in refusal("news20", tmp_path)


def test_omniglot_that_is_not_whole(tmp_path: Path) -> None:
    make_omniglot(tmp_path)
    folder = tmp_path / "omniglot-py" / "images_background"
    (folder / "Braille" / "character02" / "0001_07.png").unlink()
    assert "character02 holds 19 drawings (.png), expected 20" in refusal("omniglot", tmp_path)
    shutil.rmtree(folder / "Braille")
    assert "lacks the alphabet Braille" in refusal("omniglot5", tmp_path)
    assert load("omniglot", tmp_path).note
    for part in omniglot.PARTS:
        shutil.rmtree(tmp_path / "omniglot-py" / part)
        (tmp_path / "omniglot-py" / part).mkdir()
    assert "holds no alphabet" in refusal("omniglot", tmp_path)


@pytest.mark.parametrize(
    ("name", "file", "size"),
    [("omniglot", "omniglot-py/images_evaluation/Oriya/character01/0001_03.png", (28, 28)),
     ("celeba", "celeba/img_align_celeba/000003.png", (218, 178))],
)  # fmt: skip
def test_pictures_of_another_size_and_broken_ones(tmp_path: Path, name: str, file: str, size: tuple[int, int]) -> None:
    MAKERS[name](tmp_path)
    cut_short(tmp_path / file)
    assert file in refusal(name, tmp_path, remedy="root")
    Image.fromarray(noise(size[1], size[0])).save(tmp_path / file)
    message = refusal(name, tmp_path, remedy="root")
    assert f"{size[0]} × {size[1]} pixels, expected" in message
    assert file in message


@pytest.mark.parametrize("name", ["omniglot", "celeba"])
def test_without_pillow_the_message_says_what_to_install(
    made: Path, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "PIL", None)  # makes `import PIL` raise ImportError
    with pytest.raises(DataFileError, match=re.escape("pip install 'treevae[files]'")) as caught:
        load(name, made)
    assert "download" not in str(caught.value)  # the files are not at fault


class Trap:
    """Runs a function when it is unpickled."""

    def __init__(self, function: Any, *arguments: Any) -> None:
        self.call = function, arguments

    def __reduce__(self) -> Any:
        return self.call


def test_cifar_files_run_nothing(tmp_path: Path) -> None:
    make_cifar10(tmp_path)
    batch = tmp_path / "cifar-10-batches-py" / "data_batch_3"
    sprung = tmp_path / "sprung"
    for trap in (Trap(os.mkdir, str(sprung)), Trap(eval, f"open({str(sprung)!r}, 'w')"), Trap(np.fromfile, str(batch))):
        write_pickle(batch, {b"data": trap, b"labels": []})
        message = refusal("cifar10", tmp_path)
        assert str(batch) in message
        assert "which is not allowed" in message
    assert not sprung.exists()


@pytest.mark.parametrize(
    "trap",
    [
        Trap(np.ndarray, (1,), np.dtype("O"), b"AAAAAAAA"),  # memory read as a pointer
        Trap(np.ndarray, (10**9,), np.dtype("u1")),  # memory that was never written
        np.array([object()]),
        np.zeros(3),
    ],
)
def test_cifar_files_build_no_other_arrays(tmp_path: Path, trap: Any) -> None:
    make_cifar10(tmp_path)
    write_pickle(tmp_path / "cifar-10-batches-py" / "batches.meta", {b"label_names": trap})
    found = subprocess.run(
        [sys.executable, "-c", "import sys, treevae.data as d; d.load('cifar10', sys.argv[1])", str(tmp_path)],
        capture_output=True,
        text=True,
        timeout=120,
    )
    assert found.returncode == 1  # an error, no crash
    assert "DataFileError" in found.stderr


@pytest.mark.parametrize(
    ("content", "why"),
    [
        (
            {b"data": noise(4, 3072), b"labels": [0, 1, 2]},
            "lacks labels under 'labels', expected 4 numbers from 0 to 9",
        ),
        ({b"data": noise(2, 3072), b"labels": [0, 10]}, "numbers from 0 to 9"),
        ({b"data": noise(2, 3072), b"labels": ["a", "b"]}, "numbers from 0 to 9"),
        ({b"data": noise(2, 100), b"labels": [0, 1]}, "expected rows of 3,072 bytes"),
        ({b"labels": [0, 1]}, "holds no images under 'data'"),
        ([1, 2], "is no CIFAR file"),
    ],
)
def test_cifar_batch_that_is_something_else(tmp_path: Path, content: Any, why: str) -> None:
    make_cifar10(tmp_path)
    write_pickle(tmp_path / "cifar-10-batches-py" / "data_batch_5", content)
    message = refusal("cifar10", tmp_path)
    assert why in message
    assert "data_batch_5" in message


@pytest.mark.parametrize("file", ["data_batch_1", "batches.meta"])
def test_cifar_cut_short(tmp_path: Path, file: str) -> None:
    make_cifar10(tmp_path)
    cut_short(tmp_path / "cifar-10-batches-py" / file)
    assert re.search(f"{file} is no CIFAR file, or is cut short", refusal("cifar10", tmp_path))


def test_cifar_without_names(tmp_path: Path) -> None:
    make_cifar100(tmp_path)
    write_pickle(tmp_path / "cifar-100-python" / "meta", {b"coarse_label_names": []})
    assert "meta has no names of classes under 'coarse_label_names'" in refusal("cifar100", tmp_path)


@pytest.mark.parametrize(
    ("file", "change", "why"),
    [
        ("list_attr_celeba.txt", ("000004.jpg  -1", "000004.jpg  2"), "has in line 6 not a file and 40 times 1 or -1"),
        ("list_attr_celeba.txt", ("000001.jpg", "\n000001.jpg"), "has in line 3 not a file"),
        ("list_eval_partition.txt", (" 0", " 1"), "holds 0 of the training pictures"),
        ("list_attr_celeba.txt", ("10\n", "202599\n"), "lists 10 pictures, expected the 202599 of its first line"),
        ("list_eval_partition.txt", ("000004.jpg 0", "000004.jpg 7"), "has in line 4 not a file and 0, 1 or 2"),
        ("list_eval_partition.txt", ("000004.jpg 0\n", ""), "does not list 000004"),
        ("list_eval_partition.txt", (" 0", " 2"), "holds 0 of the training pictures"),
    ],
)
def test_celeba_lists_that_are_damaged(tmp_path: Path, file: str, change: tuple[str, str], why: str) -> None:
    make_celeba(tmp_path)
    path = tmp_path / "celeba" / file
    assert change[0] in path.read_text()
    path.write_text(path.read_text().replace(*change))
    message = refusal("celeba", tmp_path, remedy="mmlab.ie.cuhk.edu.hk")
    assert why in message
    assert file in message or "img_align_celeba" in message


def test_celeba_list_that_is_empty_and_folder_without_pictures(tmp_path: Path) -> None:
    make_celeba(tmp_path)
    for file in (tmp_path / "celeba" / "img_align_celeba").iterdir():
        file.unlink()
    assert "holds 0 of the training pictures" in refusal("celeba", tmp_path, remedy="mmlab")
    (tmp_path / "celeba" / "list_attr_celeba.txt").write_text("")
    assert "list_attr_celeba.txt has 0 lines" in refusal("celeba", tmp_path, remedy="mmlab")
