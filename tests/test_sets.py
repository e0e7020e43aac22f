"""The data sets by name: read from small files in the published layouts, fetched from a server here, or refused."""

import errno
import gzip
import hashlib
import io
import math
import os
import pickle
import re
import shutil
import subprocess
import sys
import tarfile
import threading
import zipfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image
from typer.testing import CliRunner

from treevae.cli import app
from treevae.data import DataFileError, DataSet, celeba, download, idx, load, news20, omniglot
from treevae.data.arrays import InputForm
from treevae.data.dataset import Size, own_split
from treevae.data.download import Download
from treevae.data.sets import SOURCES, survey

CHANCE = np.random.default_rng(0)


def noise(*shape: int) -> np.ndarray:
    return CHANCE.integers(256, size=shape, dtype=np.uint8)


# -- small sets in the published layouts ------------------------------------------------------------------------


def write_idx(path: Path, values: np.ndarray) -> None:
    content = bytes((0, 0, 8, values.ndim)) + np.array(values.shape, ">u4").tobytes() + values.tobytes()
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(gzip.compress(content) if path.suffix == ".gz" else content)


def make_idx(root: Path, folder: str, ending: str = "") -> None:
    arrays = noise(7, 28, 28), noise(7) % 10, noise(3, 28, 28), noise(3) % 10
    for file, values in zip(idx.FILES, arrays, strict=True):
        write_idx(root / folder / (file + ending), values)


def make_news20(root: Path) -> None:
    for part, n in (("train", 3), ("test", 2)):
        for group, words in (("sci.space", "orbit moon"), ("rec.autos", "engine wheel caf\xe9")):
            folder = root / "20news-bydate" / f"20news-bydate-{part}" / group
            folder.mkdir(parents=True)
            for i in range(n):
                text = f"From: someone@{group}\n\n> quoted\n{words} number{i}\n"
                (folder / str(100 + i)).write_text(text, encoding="latin-1")


def make_omniglot(root: Path) -> None:
    for part, alphabets in (
        ("images_background", ("Braille", "Latin", "Bengali")),
        ("images_evaluation", omniglot.FIVE[2:]),
    ):
        for alphabet in alphabets:
            for character in ("character01", "character02"):
                folder = root / "omniglot-py" / part / alphabet / character
                folder.mkdir(parents=True)
                for drawer in range(20):
                    Image.fromarray(noise(105, 105) > 99).save(folder / f"0001_{drawer:02d}.png")


def make_cifar10(root: Path) -> None:
    folder = root / "cifar-10-batches-py"
    folder.mkdir(parents=True)
    for name in (*(f"data_batch_{i}" for i in range(1, 6)), "test_batch"):
        write_pickle(folder / name, {b"data": noise(4, 3072), b"labels": [0, 9, 3, 1], b"batch_label": b"one"})
    write_pickle(folder / "batches.meta", {b"label_names": [f"class {i}".encode() for i in range(10)]})


def make_cifar100(root: Path) -> None:
    folder = root / "cifar-100-python"
    folder.mkdir(parents=True)
    for name, n in (("train", 6), ("test", 2)):
        labels = {b"fine_labels": list(range(94, 94 + n)), b"coarse_labels": list(range(n))}
        write_pickle(folder / name, {b"data": noise(n, 3072)} | labels)
    names = {
        b"fine_label_names": [b"f%d" % i for i in range(100)],
        b"coarse_label_names": [b"c%d" % i for i in range(20)],
    }
    write_pickle(folder / "meta", names)


def write_pickle(path: Path, content: Any) -> None:
    path.write_bytes(pickle.dumps(content, protocol=2))  # as Python 2 did


def make_celeba(root: Path, ending: str = "png", size: tuple[int, int] = (64, 64), partition: str = "0" * 10) -> None:
    folder = root / "celeba"
    (folder / "img_align_celeba").mkdir(parents=True)
    names = [f"{i:06d}.jpg" for i in range(1, 11)]
    for name in names:
        picture = Image.fromarray(noise(size[1], size[0], 3))
        picture.save((folder / "img_align_celeba" / name).with_suffix(f".{ending}"))
    rows = [f"{name}  " + "  ".join("1" if (i + a) % 3 else "-1" for a in range(40)) for i, name in enumerate(names)]
    (folder / "list_attr_celeba.txt").write_text("\n".join(["10", " ".join(f"A{a}" for a in range(40)), *rows]) + "\n")
    lines = [f"{name} {part}\n" for name, part in zip(names, partition, strict=True)]
    (folder / "list_eval_partition.txt").write_text("".join(lines))


MAKERS: dict[str, Callable[[Path], None]] = {
    "mnist": lambda root: make_idx(root, "MNIST/raw"),
    "fashion": lambda root: make_idx(root, "FashionMNIST/raw", ".gz"),
    "news20": make_news20,
    "omniglot": make_omniglot,
    "omniglot5": make_omniglot,
    "cifar10": make_cifar10,
    "cifar100": make_cifar100,
    "celeba": make_celeba,
}


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A root with a small set of each kind; not to be changed."""
    root = tmp_path_factory.mktemp("made")
    for name, make in MAKERS.items():
        if name != "omniglot5":
            make(root)
    return root


def cut_short(path: Path) -> None:
    path.write_bytes(path.read_bytes()[: path.stat().st_size // 2])


def refusal(name: str, root: Path, remedy: str = "download=True") -> str:
    """What loading a set is refused with; the message must say how to get it."""
    with pytest.raises(DataFileError) as caught:
        load(name, root)
    message = str(caught.value)
    assert remedy in message
    assert "$TREEVAE_DATA" in message
    return message


# -- what is read -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "train", "test", "dtype", "n_classes"),
    [
        ("mnist", (7, 28, 28), (3, 28, 28), np.uint8, 10),
        ("fashion", (7, 28, 28), (3, 28, 28), np.uint8, 10),
        ("news20", (6, 15), (4, 15), np.float32, 2),
        ("omniglot", (192, 28, 28), (48, 28, 28), np.float32, 6),
        ("omniglot5", (160, 28, 28), (40, 28, 28), np.float32, 5),
        ("cifar10", (20, 32, 32, 3), (4, 32, 32, 3), np.uint8, 10),
        ("cifar100", (6, 32, 32, 3), (2, 32, 32, 3), np.uint8, 20),
        ("celeba", (8, 64, 64, 3), (2, 64, 64, 3), np.uint8, 0),
        ("digits", (1437, 8, 8), (360, 8, 8), np.float32, 10),
    ],
)
def test_every_set(made: Path, name: str, train: tuple, test: tuple, dtype: type, n_classes: int) -> None:
    found = load(name, made)
    assert isinstance(found, DataSet)
    assert found.name == name
    assert (found.x_train.shape, found.x_test.shape) == (train, test)
    assert found.x_train.dtype == found.x_test.dtype == dtype
    assert len(found.class_names) == n_classes
    assert found.x_train.flags.writeable
    assert InputForm.of(found.x_train).is_image == (name != "news20")
    for x, y in ((found.x_train, found.y_train), (found.x_test, found.y_test)):
        if dtype == np.float32:
            assert x.min() >= 0
            assert x.max() <= 1
        if name == "celeba":
            assert y is None
        else:
            assert y is not None
            assert y.dtype == np.int64
            assert len(y) == len(x)
            assert set(y.tolist()) <= set(range(n_classes))
    assert survey(name, made).size == (len(found.x_train), len(found.x_test), n_classes)
    assert ("not the paper's" in found.note) == (name != "digits")
    assert f"{len(found.x_train):,} + {len(found.x_test):,} samples" in repr(found)
    again = load(name, made)
    assert np.array_equal(found.x_train, again.x_train)
    assert np.array_equal(found.x_test, again.x_test)


def test_the_registry_names_every_set() -> None:
    assert set(SOURCES) == {*MAKERS, "digits"}
    for name in ("emnist", ["mnist"], None):
        with pytest.raises(
            DataFileError, match=rf"no data set {re.escape(repr(name))}; there are digits, mnist, .*celeba"
        ):
            load(name)


def test_root_comes_from_the_environment(made: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TREEVAE_DATA", str(made))
    assert len(load("mnist").x_train) == 7
    monkeypatch.delenv("TREEVAE_DATA")
    with pytest.raises(DataFileError, match=r"pass root .* or set \$TREEVAE_DATA"):
        load("mnist")
    assert len(load("digits").x_train) == 1437


def test_idx_keeps_every_pixel(tmp_path: Path) -> None:
    images, labels = noise(5, 28, 28), np.array([0, 9, 5, 1, 2], np.uint8)
    for folder, ending in (("MNIST", ""), ("FashionMNIST/raw", ".gz")):
        for file in idx.FILES:
            write_idx(tmp_path / folder / (file + ending), images if "images" in file else labels)
    for name in ("mnist", "fashion"):
        found = load(name, tmp_path)
        assert np.array_equal(found.x_train, images)
        assert np.array_equal(found.y_test, labels)
    assert load("fashion", tmp_path).class_names[9] == "Ankle boot"


def test_news20_weighs_the_training_words_only(tmp_path: Path) -> None:
    make_news20(tmp_path)
    new = tmp_path / "20news-bydate" / "20news-bydate-test" / "sci.space" / "100"
    new.write_text("unheard orbit")
    new.with_name(".DS_Store").write_text("left by a file browser")
    found = load("news20", tmp_path)
    assert found.class_names == ("rec.autos", "sci.space")
    assert found.y_train.tolist() == [0, 0, 0, 1, 1, 1]
    words = found.feature_names
    assert words is not None
    assert "unheard" not in words
    assert {"café", "quoted", "from"} <= set(words)  # quotes and headers are kept, latin-1 is read
    orbit = found.x_test[2]
    assert orbit[words.index("orbit")] == 1  # the only known word of that message
    assert np.count_nonzero(orbit) == 1
    assert np.allclose(np.linalg.norm(found.x_train, axis=1), 1, atol=1e-6)
    assert found.vectorize is not None
    np.testing.assert_array_equal(found.vectorize(["unheard orbit"]), orbit[None])  # a new text, as it would have been


def test_news20_weights_are_tf_idf(tmp_path: Path) -> None:
    """A word's count times ln((1 + n) / (1 + messages with it)) + 1, over the norm of the message."""
    train = {"rec.autos": ["engine engine engine wheel", "engine road"], "sci.space": ["orbit wheel orbit engine"]}
    for part, groups in (("train", train), ("test", {"rec.autos": ["wheel road road moon"], "sci.space": ["orbit"]})):
        for group, texts in groups.items():
            folder = tmp_path / "20news-bydate" / f"20news-bydate-{part}" / group
            folder.mkdir(parents=True)
            for i, text in enumerate(texts):
                (folder / str(i)).write_text(text)
    found = load("news20", tmp_path)
    assert found.feature_names == ("engine", "orbit", "road", "wheel")
    idf = np.array([math.log(4 / (1 + n)) + 1 for n in (3, 1, 1, 2)])
    counts = np.array([[3, 0, 0, 1], [1, 0, 1, 0], [1, 2, 0, 1], [0, 0, 2, 1], [0, 1, 0, 0]])
    expected = counts * idf / np.linalg.norm(counts * idf, axis=1, keepdims=True)
    np.testing.assert_allclose(found.x_train, expected[:3], rtol=1e-6)
    np.testing.assert_allclose(found.x_test, expected[3:], rtol=1e-6)


def test_news20_has_at_most_2000_words(tmp_path: Path) -> None:
    """Those that occur most; of as many, the first by the alphabet, and on every machine the same."""
    make_news20(tmp_path)
    seldom, often = [f"w{i:04}" for i in range(2500)], ["zenith"] * 2
    (tmp_path / "20news-bydate" / "20news-bydate-train" / "sci.space" / "7").write_text(" ".join(seldom[::-1] + often))
    found = load("news20", tmp_path)
    assert found.x_train.shape == (7, 2000)
    assert found.feature_names is not None
    of_many = [word for word in found.feature_names if word in seldom]
    assert of_many == seldom[: len(of_many)]
    assert len(of_many) > 1900
    assert "zenith" in found.feature_names


def test_news20_goes_without_the_words_that_the_recorded_runs_lack(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(news20, "N_WORDS", 3)
    words = ["admit", "copies", "document", "the", "urbana"]
    assert news20.most_frequent(words, np.array([192, 192, 192, 9000, 192])) == [0, 3, 4]
    assert news20.most_frequent(words, np.array([192, 193, 192, 9000, 192])) == [0, 1, 3]  # it is more frequent here


@pytest.mark.parametrize(("name", "folder"), [("news20", "20news-bydate"), ("omniglot", "omniglot-py")])
def test_folders_may_lie_directly_below_root(made: Path, name: str, folder: str) -> None:
    assert np.array_equal(load(name, made / folder).x_test, load(name, made).x_test)


def test_omniglot_is_split_by_character(made: Path) -> None:
    found = load("omniglot", made)
    assert np.bincount(found.fine_train).tolist() == [16] * 12
    assert np.bincount(found.fine_test).tolist() == [4] * 12
    assert found.class_names == ("Bengali", "Braille", "Glagolitic", "Latin", "Old_Church_Slavonic_(Cyrillic)", "Oriya")
    assert found.fine_names[0] == "Bengali/character01"
    for y, fine in ((found.y_train, found.fine_train), (found.y_test, found.fine_test)):
        assert [found.class_names[i] for i in y] == [found.fine_names[i].split("/")[0] for i in fine]
    assert load("omniglot5", made).class_names == omniglot.FIVE


def test_omniglot_is_read_between_the_four_nearest_pixels(tmp_path: Path) -> None:
    """White is 1. The oracle is torch's interpolation, which widens no filter where it shrinks."""
    make_omniglot(tmp_path)
    drawing = np.ones((105, 105), bool)
    drawing[20:80, 50] = drawing[33, 10:90] = drawing[90:, 90:] = False  # lines one pixel wide, and a corner
    for file in (tmp_path / "omniglot-py").rglob("*.png"):
        Image.fromarray(drawing).save(file)
    x = load("omniglot", tmp_path).x_train
    grey = torch.from_numpy(255.0 * drawing)[None, None]
    expected = torch.nn.functional.interpolate(grey, (28, 28), mode="bilinear").round()[0, 0].numpy() / 255
    assert (expected[:, :12] == 1).all()  # the line at 33 lies between the pixels that are read
    assert 0 < expected[10, 13] < 1
    assert expected[-1, -1] == 0
    assert np.abs(x - expected).max() < 1e-6


def test_cifar_rows_become_images(made: Path) -> None:
    with (made / "cifar-10-batches-py" / "data_batch_2").open("rb") as file:
        row = pickle.load(file)[b"data"][1]
    image = load("cifar10", made).x_train[5]
    assert [image[4, 7, c] for c in range(3)] == [row[c * 1024 + 4 * 32 + 7] for c in range(3)]


def test_cifar100_has_superclasses_and_classes(made: Path) -> None:
    found = load("cifar100", made)
    assert found.y_train.tolist() == [0, 1, 2, 3, 4, 5]
    assert found.fine_train.tolist() == [94, 95, 96, 97, 98, 99]
    assert found.class_names[19] == "c19"
    assert found.fine_names[99] == "f99"


def test_cifar_as_python_2_wrote_it(tmp_path: Path) -> None:
    """The published files have Python 2's strings and numpy's old module names."""
    make_cifar10(tmp_path)
    pixels = noise(2, 3072)
    state = b"(K\x03U\x01|NNNJ\xff\xff\xff\xffJ\xff\xff\xff\xffK\x00tb"
    array = b"cnumpy.core.multiarray\n_reconstruct\ncnumpy\nndarray\nK\x00\x85U\x01b\x87R(K\x01K\x02M\x00\x0c\x86"
    array += b"cnumpy\ndtype\nU\x02u1K\x00K\x01\x87R" + state + b"\x89T" + (6144).to_bytes(4, "little")
    old = b"\x80\x02}(U\x0bbatch_labelU\x03oneU\x06labels](K\x03K\x05eU\x04data" + array + pixels.tobytes() + b"tbu."
    (tmp_path / "cifar-10-batches-py" / "test_batch").write_bytes(old)
    found = load("cifar10", tmp_path)
    assert found.y_test.tolist() == [3, 5]
    assert np.array_equal(found.x_test.transpose(0, 3, 1, 2).reshape(2, 3072), pixels)
    assert survey("cifar10", tmp_path).size == (20, 2, 10)


def test_celeba_holds_out_a_part_where_no_test_part_is(made: Path) -> None:
    found = load("celeba", made)
    assert "a fifth of the training pictures" in found.note
    assert found.attributes_train.shape == (8, 40)
    assert found.attributes_test.dtype == bool
    assert found.attribute_names[39] == "A39"
    with Image.open(made / "celeba" / "img_align_celeba" / "000001.png") as image:
        first = np.asarray(image)
    everything = np.concatenate([found.x_train, found.x_test])
    (where,) = np.flatnonzero((everything == first).all(axis=(1, 2, 3)))
    attributes = np.concatenate([found.attributes_train, found.attributes_test])[where]
    assert attributes.tolist() == [a % 3 != 0 for a in range(40)]


def test_celeba_takes_the_official_parts(tmp_path: Path) -> None:
    make_celeba(tmp_path, ending="jpg", size=(178, 218), partition="0000011222")
    found = load("celeba", tmp_path)
    assert (len(found.x_train), len(found.x_test)) == (5, 3)  # the two of the validation part are not used
    assert "fifth" not in found.note
    with Image.open(tmp_path / "celeba" / "img_align_celeba" / "000008.jpg") as image:
        expected = np.asarray(image.crop((15, 40, 163, 188)).resize((64, 64), Image.Resampling.BILINEAR))
    assert np.array_equal(found.x_test[0], expected)


def test_celeba_trains_on_a_fixed_choice_of_many(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    make_celeba(tmp_path, partition="0000000022")
    everything = load("celeba", tmp_path).x_train
    monkeypatch.setattr(celeba, "N_TRAIN", 4)
    assert np.array_equal(load("celeba", tmp_path).x_train, everything[[2, 3, 4, 6]])


def test_our_own_split_never_changes() -> None:
    """Recorded figures are of these samples."""
    train, test = own_split(100, np.arange(100) % 5)
    assert (train[:5].tolist(), test[:5].tolist()) == ([65, 82, 42, 76, 98], [75, 31, 72, 26, 19])
    assert np.bincount(test % 5).tolist() == [4] * 5
    train, test = own_split(100)
    assert (train[:5].tolist(), test[:5].tolist()) == ([43, 62, 3, 71, 45], [26, 86, 2, 55, 75])
    assert sorted([*train, *test]) == list(range(100))


def test_celeba_without_a_partition(tmp_path: Path) -> None:
    make_celeba(tmp_path)
    (tmp_path / "celeba" / "list_eval_partition.txt").unlink()
    assert len(load("celeba", tmp_path).x_test) == 2


# -- what is refused --------------------------------------------------------------------------------------------


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


# -- what is fetched --------------------------------------------------------------------------------------------


class Server:
    """Answers on this machine: files by path, some of them cut off in the middle."""

    def __init__(self) -> None:
        self.files: dict[str, bytes] = {}
        self.cut: set[str] = set()
        self.asked: list[str] = []
        server = self

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                server.asked.append(self.path)
                content = server.files.get(self.path)
                if content is None:
                    self.send_error(404)
                    return
                self.send_response(200)
                self.send_header("Content-Length", str(len(content)))
                self.end_headers()
                self.wfile.write(content[: len(content) // 2] if self.path in server.cut else content)

            def log_message(self, format: str, *args: Any) -> None:
                pass

        self.http = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.address = f"http://127.0.0.1:{self.http.server_port}"

    def offer(self, file: str, content: bytes, kind: str = "md5", **of_archive: Any) -> Download:
        """A download of that content."""
        self.files[f"/{file}"] = content
        return Download(
            f"{self.address}/{file}", file, f"{kind}:{hashlib.new(kind, content).hexdigest()}", **of_archive
        )


@pytest.fixture
def server() -> Iterator[Server]:
    server = Server()
    thread = threading.Thread(target=server.http.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    yield server
    server.http.shutdown()
    server.http.server_close()
    thread.join()


def packed(folder: Path, names: tuple[str, ...], kind: str) -> bytes:
    """Folders and files as an archive."""
    content = io.BytesIO()
    if kind == "zip":
        with zipfile.ZipFile(content, "w") as archive:
            for file in sorted(path for name in names for path in (folder / name).rglob("*")):
                archive.write(file, file.relative_to(folder))
    else:
        with tarfile.open(fileobj=content, mode="w:gz") as archive:
            for name in names:
                archive.add(folder / name, name)
    return content.getvalue()


def offer(server: Server, name: str, made: Path) -> tuple[Download, ...]:
    """Downloads of a small set, in the form of the published ones."""
    official, offered = SOURCES[name].downloads, []
    for one in official:
        if name in ("mnist", "fashion"):
            file = made / SOURCES[name].folders[0] / one.file
            content = file.read_bytes() if file.exists() else gzip.compress(file.with_suffix("").read_bytes())
        else:
            kind = "zip" if one.file.endswith(".zip") else "tar"
            folder = made if one.inside else made / SOURCES[name].folders[0]
            content = packed(folder, (one.inside,) if one.inside else one.gives, kind)
        kind = one.checksum.split(":")[0]
        offered.append(server.offer(one.file, content, kind, gives=one.gives, inside=one.inside))
    return tuple(offered)


def advertise(monkeypatch: pytest.MonkeyPatch, name: str, *downloads: Download) -> None:
    monkeypatch.setitem(SOURCES, name, replace(SOURCES[name], downloads=downloads))


def left_in(root: Path) -> list[str]:
    return sorted(str(path.relative_to(root)) for path in root.rglob("*"))


@pytest.mark.parametrize("name", [name for name in MAKERS if name != "celeba"])
def test_download_gives_what_the_files_hold(
    server: Server, made: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    advertise(monkeypatch, name, *offer(server, name, made))
    found = load(name, tmp_path / "new" / "root", download=True)
    expected = load(name, made)
    assert np.array_equal(found.x_train, expected.x_train)
    assert np.array_equal(found.y_test, expected.y_test)
    assert not [path for path in left_in(tmp_path) if ".part" in path or path.endswith((".zip", ".tar.gz"))]
    n_asked = len(server.asked)
    load(name, tmp_path / "new" / "root", download=True)
    assert len(server.asked) == n_asked  # all is there


def test_download_fetches_only_what_is_missing(
    server: Server, made: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    advertise(monkeypatch, "mnist", *offer(server, "mnist", made))
    advertise(monkeypatch, "cifar10", *offer(server, "cifar10", made))
    shutil.copytree(made / "MNIST", tmp_path / "MNIST")
    shutil.copytree(made / "cifar-10-batches-py", tmp_path / "cifar-10-batches-py")
    (tmp_path / "MNIST" / "raw" / idx.FILES[1]).unlink()
    (tmp_path / "cifar-10-batches-py" / "test_batch").unlink()
    kept = tmp_path / "cifar-10-batches-py" / "data_batch_1"
    write_pickle(kept, {b"data": noise(1, 3072), b"labels": [7]})
    for name in ("mnist", "cifar10"):
        load(name, tmp_path, download=True)
    assert server.asked == [f"/{idx.FILES[1]}.gz", "/cifar-10-python.tar.gz"]
    assert load("cifar10", tmp_path).y_train[0] == 7  # what was there is left as it was


def test_download_with_a_wrong_checksum(server: Server, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    one = server.offer(f"{idx.FILES[0]}.gz", b"as published")
    advertise(monkeypatch, "mnist", one)
    server.files[f"/{idx.FILES[0]}.gz"] = b"as replaced "
    with pytest.raises(DataFileError, match=f"{one.file} gave a file with md5 .*published one has {one.checksum[4:]}"):
        load("mnist", tmp_path, download=True)
    assert left_in(tmp_path) == []


def test_download_that_breaks_off(server: Server, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    advertise(monkeypatch, "mnist", server.offer("train.gz", bytes(2_000_000)))
    server.cut.add("/train.gz")
    with pytest.raises(DataFileError, match=r"train\.gz broke off after 1,000,000 of 2,000,000 bytes"):
        load("mnist", tmp_path, download=True)
    assert left_in(tmp_path) == []


def test_download_that_is_not_there(server: Server, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    one = server.offer("train.gz", b"")
    advertise(monkeypatch, "mnist", one)
    del server.files["/train.gz"]
    with pytest.raises(DataFileError, match=re.escape(f"{one.url} answers 404")):
        load("mnist", tmp_path, download=True)
    assert left_in(tmp_path) == []


def test_download_from_a_server_that_is_silent_or_away(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    import socket

    monkeypatch.setattr(download, "TIMEOUT", 0.2)
    with socket.create_server(("127.0.0.1", 0)) as silent:
        address = f"http://127.0.0.1:{silent.getsockname()[1]}/train.gz"
        advertise(monkeypatch, "mnist", Download(address, "train.gz", "md5:0"))
        with pytest.raises(DataFileError, match="cannot be fetched: timed out"):
            load("mnist", tmp_path, download=True)
    with pytest.raises(DataFileError, match=f"{address} cannot be fetched: .*refused"):
        load("mnist", tmp_path, download=True)
    assert left_in(tmp_path) == []


def test_ctrl_c_leaves_nothing(server: Server, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    advertise(monkeypatch, "mnist", server.offer("train.gz", bytes(2_000_000)))

    @contextmanager
    def interrupted(name: str, length: int | None) -> Iterator[Callable[[int], None]]:
        def advance(n: int) -> None:
            assert any(path.endswith("train.gz") for path in left_in(tmp_path))
            raise KeyboardInterrupt

        yield advance

    monkeypatch.setattr(download, "_bar", interrupted)
    with pytest.raises(KeyboardInterrupt):
        load("mnist", tmp_path, download=True)
    assert left_in(tmp_path) == []
    result = CliRunner().invoke(app, ["data", "mnist", "--download", "--root", str(tmp_path)])
    assert result.exit_code == 130
    assert "Interrupted" in result.output
    assert left_in(tmp_path) == []


def test_full_disk_leaves_nothing(server: Server, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The disk is full when the file is half written, and, for an archive, when it is half unpacked."""
    resource = pytest.importorskip("resource")
    big = tmp_path / "big"
    big.write_bytes(bytes(5_000_000))
    archive = packed(tmp_path, ("big",), "tar")
    assert len(archive) < 1_000_000
    root = tmp_path / "root"
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    for one in (server.offer("train.gz", bytes(5_000_000)), server.offer("a.tar.gz", archive, gives=("big",))):
        advertise(monkeypatch, "mnist", one)
        resource.setrlimit(resource.RLIMIT_FSIZE, (2_000_000, limits[1]))
        try:
            with pytest.raises(DataFileError, match=f"cannot write {one.file} below {root}") as caught:
                load("mnist", root, download=True)
        finally:
            resource.setrlimit(resource.RLIMIT_FSIZE, limits)
        assert isinstance(caught.value.__cause__, OSError)
        assert caught.value.__cause__.errno == errno.EFBIG
        assert left_in(root) == []


@pytest.mark.parametrize("kind", ["tar", "zip"])
@pytest.mark.parametrize("member", ["../evil", "/tmp/../evil-of-test-sets", "a/../../evil"])
def test_archive_that_reaches_outside(
    server: Server, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kind: str, member: str
) -> None:
    content = io.BytesIO()
    if kind == "tar":
        with tarfile.open(fileobj=content, mode="w:gz") as archive:
            for name in ("20news-bydate-train", member):
                archive.addfile(tarfile.TarInfo(name), io.BytesIO())
    else:
        with zipfile.ZipFile(content, "w") as archive:
            archive.writestr("20news-bydate-train/a", "")
            archive.writestr(member, "")
    file = {"tar": "news.tar.gz", "zip": "news.zip"}[kind]
    advertise(monkeypatch, "news20", server.offer(file, content.getvalue(), gives=("20news-bydate-train",)))
    root = tmp_path / "root"
    with pytest.raises(DataFileError, match=f"{file} has a member '{member}' outside of its folder"):
        load("news20", root, download=True)
    assert left_in(tmp_path) == ["root"]
    assert not Path("/evil-of-test-sets").exists()


def test_archive_with_a_link_that_leads_outside(
    server: Server, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    content = io.BytesIO()
    link = tarfile.TarInfo("20news-bydate-train")
    link.type, link.linkname = tarfile.SYMTYPE, "../../.."
    with tarfile.open(fileobj=content, mode="w:gz") as archive:
        archive.addfile(link)
    advertise(monkeypatch, "news20", server.offer("a.tar.gz", content.getvalue(), gives=("20news-bydate-train",)))
    with pytest.raises(DataFileError, match=r"a\.tar\.gz has a member '20news-bydate-train' (that is a link|outside)"):
        load("news20", tmp_path, download=True)
    assert left_in(tmp_path) == []


def test_archive_that_is_none_or_lacks_something(
    server: Server, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for file in ("a.tar.gz", "a.zip"):
        advertise(monkeypatch, "news20", server.offer(file, b"no archive", gives=("20news-bydate-train",)))
        with pytest.raises(DataFileError, match=f"{file} is no archive"):
            load("news20", tmp_path, download=True)
    whole = gzip.compress(bytes(CHANCE.bytes(100_000)))
    advertise(monkeypatch, "news20", server.offer("a.tar.gz", whole[:50_000], gives=("20news-bydate-train",)))
    with pytest.raises(DataFileError, match=r"a\.tar\.gz is no archive"):
        load("news20", tmp_path, download=True)
    (tmp_path / "else").mkdir()
    other = packed(tmp_path, ("else",), "tar")
    (tmp_path / "else").rmdir()
    advertise(monkeypatch, "news20", server.offer("a.tar.gz", other, gives=("20news-bydate-train",)))
    with pytest.raises(DataFileError, match=r"a\.tar\.gz does not hold 20news-bydate-train"):
        load("news20", tmp_path, download=True)
    assert left_in(tmp_path) == []


def test_celeba_is_fetched_by_hand(tmp_path: Path) -> None:
    with pytest.raises(DataFileError, match=r"celeba cannot be downloaded\. .*Google Drive.*CelebA\.html"):
        load("celeba", tmp_path, download=True)


def test_every_download_has_a_published_checksum() -> None:
    lengths = {"md5": 32, "sha256": 64}
    for source in SOURCES.values():
        for one in source.downloads:
            kind, digest = one.checksum.split(":")
            assert re.fullmatch(f"[0-9a-f]{{{lengths[kind]}}}", digest)
            assert one.url.startswith("http")
        assert source.downloads or source.by_hand or not source.folders
        assert all(re.fullmatch("[0-9a-f]{32}", md5) for md5 in source.md5.values())


# -- the list ---------------------------------------------------------------------------------------------------


def listed(*arguments: Any, code: int = 0) -> str:
    result = CliRunner().invoke(app, ["data", *map(str, arguments)])
    assert result.exit_code == code, result.output
    return result.output


def test_the_list_counts_and_compares(made: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = made / "MNIST" / "raw" / idx.FILES[0]
    known = {idx.FILES[0]: hashlib.md5(file.read_bytes()).hexdigest()}
    monkeypatch.setitem(SOURCES, "mnist", replace(SOURCES["mnist"], md5=known))
    rows = {line.split()[0]: line for line in listed("--root", made).splitlines() if line}
    assert set(SOURCES) < set(rows)
    assert re.search(r"mnist +7 +3 +10  MNIST/raw +ok; the paper has 60,000 \+ 10,000 samples", rows["mnist"])
    assert "4 of 4 differ from the official files" in rows["fashion"]
    assert re.search(r"omniglot5 +160 +40 +5  omniglot-py +not checked", rows["omniglot5"])
    assert re.search(r"celeba +8 +2 +none", rows["celeba"])
    assert re.search(r"digits +1,437 +360 +10 +come with scikit-learn", rows["digits"])


def test_a_zipped_file_is_compared_by_what_is_in_it(made: Path, tmp_path: Path) -> None:
    make_idx(tmp_path, "MNIST/raw", ".gz")
    assert set(survey("mnist", tmp_path).files.values()) == {"differs"}
    content = (made / "MNIST" / "raw" / idx.FILES[0]).read_bytes()
    (tmp_path / "MNIST" / "raw" / f"{idx.FILES[0]}.gz").write_bytes(gzip.compress(content))
    md5 = hashlib.md5(content).hexdigest()
    assert download.content_md5(tmp_path / "MNIST" / "raw" / f"{idx.FILES[0]}.gz") == md5


def test_the_list_says_what_is_missing_or_damaged(tmp_path: Path) -> None:
    make_idx(tmp_path, "MNIST/raw", ".gz")
    make_cifar10(tmp_path)
    cut_short(tmp_path / "MNIST" / "raw" / f"{idx.FILES[3]}.gz")
    (tmp_path / "MNIST" / "raw" / f"{idx.FILES[0]}.gz").unlink()
    (tmp_path / "cifar-10-batches-py" / "data_batch_1").write_text("no pickle")
    text = listed("--root", tmp_path)
    assert re.search(r"mnist +incomplete or damaged: .*train-images-idx3-ubyte is not there", text)
    assert re.search(r"cifar10 +incomplete or damaged: .*data_batch_1 is no CIFAR file", text)
    assert re.search(r"news20 +not there: messages of 20 newsgroups", text)
    assert f"treevae data NAME --root {tmp_path} --download" in text
    assert survey("mnist", tmp_path).files[idx.FILES[0]] == "not there"


def test_a_download_that_cannot_mend_a_set_fails_and_says_what_to_do(tmp_path: Path) -> None:
    make_idx(tmp_path, "MNIST/raw")
    cut_short(tmp_path / "MNIST" / "raw" / idx.FILES[0])
    text = listed("mnist", "--root", tmp_path, "--download", code=1)  # nothing is missing, so nothing is fetched
    assert re.search(r"mnist +incomplete or damaged: .*train-images-idx3-ubyte", text)
    assert re.search(r"mnist cannot be read: .*remove damaged files first", " ".join(text.split()))


@pytest.mark.parametrize(
    ("name", "file", "kept", "why"),
    [
        ("mnist", "MNIST/raw/train-labels-idx1-ubyte", None, "train-labels-idx1-ubyte is not there"),
        ("mnist", "MNIST/raw/t10k-labels-idx1-ubyte", 9, "t10k-labels-idx1-ubyte holds 1 bytes after its header"),
        ("mnist", "MNIST/raw/t10k-images-idx3-ubyte", 100, "t10k-images-idx3-ubyte holds 84 bytes after its header"),
        ("fashion", "FashionMNIST/raw/train-labels-idx1-ubyte.gz", None, "train-labels-idx1-ubyte is not there"),
        ("fashion", "FashionMNIST/raw/train-labels-idx1-ubyte.gz", 20, "train-labels-idx1-ubyte.gz is cut short"),
        ("fashion", "FashionMNIST/raw/train-images-idx3-ubyte.gz", 2000, "train-images-idx3-ubyte.gz is cut short"),
        ("cifar10", "cifar-10-batches-py/data_batch_3", 9000, "data_batch_3 is no CIFAR file, or is cut short"),
        ("cifar10", "cifar-10-batches-py/test_batch", None, "test_batch is not there"),
        ("cifar10", "cifar-10-batches-py/batches.meta", None, "batches.meta is not there"),
        ("cifar100", "cifar-100-python/meta", 40, "meta is no CIFAR file, or is cut short"),
        ("news20", "20news-bydate/20news-bydate-test/sci.space", None, "in only one of .*: sci.space"),
    ],
)
def test_the_list_takes_no_damaged_set_for_a_whole_one(
    made: Path, tmp_path: Path, name: str, file: str, kept: int | None, why: str
) -> None:
    """One file is removed, or cut so that some bytes are kept; all else is as it was."""
    first = Path(file).parts[0]
    shutil.copytree(made / first, tmp_path / first)
    path = tmp_path / file
    if kept is None:
        shutil.rmtree(path) if path.is_dir() else path.unlink()
    else:
        assert kept < path.stat().st_size
        path.write_bytes(path.read_bytes()[:kept])
    assert re.search(rf"{name} +incomplete or damaged: .*{why}", listed(name, "--root", tmp_path))


def test_the_list_counts_pictures_and_messages_without_opening_them(
    made: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    counted = ("omniglot", "omniglot5", "celeba", "news20")
    for name in counted:
        monkeypatch.setitem(SOURCES, name, replace(SOURCES[name], read=None))  # type: ignore[arg-type]
    assert "incomplete" not in listed(*counted, "--root", made)


def test_the_note_says_how_many_files_are_not_the_published_ones(made: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = made / "cifar-10-batches-py"
    md5 = {file: hashlib.md5((folder / file).read_bytes()).hexdigest() for file in SOURCES["cifar10"].md5}
    as_published = replace(SOURCES["cifar10"], md5=md5, size=Size(20, 4, 10))
    monkeypatch.setitem(SOURCES, "cifar10", as_published)
    assert load("cifar10", made).note == ""
    monkeypatch.setitem(
        SOURCES, "cifar10", replace(as_published, md5=md5 | dict.fromkeys(["test_batch", "batches.meta"], "0"))
    )
    assert load("cifar10", made).note == "2 of 7 files with a published checksum differ from it"
    assert "2 of 7 differ from the official files" in listed("cifar10", "--root", made)
    assert load("fashion", made).note == (
        "4 of 4 files with a published checksum differ from it; 7 + 3 samples, not the paper's 60,000 + 10,000"
    )
    assert load("news20", made).note == "6 + 4 samples, not the paper's 11,314 + 7,532"  # no file of it has a checksum


def test_the_list_of_named_sets(server: Server, made: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    advertise(monkeypatch, "mnist", *offer(server, "mnist", made))
    text = listed("mnist", "digits", "--root", tmp_path, "--download")
    assert re.search(r"mnist +7 +3", text)
    assert "fashion" not in text
    assert "no data set 'mnst'" in listed("mnist", "mnst", "--root", tmp_path, code=1)
    assert "name what to download" in listed("--root", tmp_path, "--download", code=1)
    monkeypatch.delenv("TREEVAE_DATA", raising=False)
    monkeypatch.setenv("TREEVAE_DATA", str(tmp_path))
    text = listed()
    assert f"Data sets below {tmp_path} ($TREEVAE_DATA)" in text
    assert "treevae data NAME --download" in text  # the folder is named already


def test_the_list_without_a_root(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("TREEVAE_DATA", raising=False)
    text = listed()
    assert "pass --root FOLDER, or set $TREEVAE_DATA" in text
    assert "treevae data NAME --root FOLDER --download" in text
    for name in MAKERS:
        assert re.search(rf"^{name} +not there: ", text, re.MULTILINE)
    assert re.search(r"digits +1,437 +360 +10 +come with scikit-learn", text)
    assert [line.split()[0] for line in listed("digits").splitlines()] == ["name", "digits"]  # and nothing of folders
    assert "treevae data NAME --root FOLDER" in listed("mnist", "--download", code=1)


# -- the real files, where they are -----------------------------------------------------------------------------


@pytest.mark.slow
@pytest.mark.skipif("TREEVAE_DATA" not in os.environ, reason="needs $TREEVAE_DATA with the real data sets")
@pytest.mark.parametrize("name", [name for name in SOURCES if name not in ("digits", "celeba")])
def test_the_real_set_is_that_of_the_paper(name: str) -> None:
    if survey(name).folder is None:
        pytest.skip(f"{name} is not there")
    found, states = load(name), list(survey(name).files.values())
    if name in ("mnist", "fashion"):
        assert states == ["ok"] * 4
    n_other = states.count("differs")  # CIFAR's pickles, say, may have been written anew
    said = f"{n_other} of {len(states)} files with a published checksum differ from it"
    assert found.note == (said if n_other else "")
    assert found.size == SOURCES[name].size
    assert set(found.y_train.tolist()) == set(found.y_test.tolist()) == set(range(len(found.class_names)))
    total = {"omniglot": 32_460, "omniglot5": 4_160, "news20": 18_846}
    assert len(found.x_train) + len(found.x_test) == total.get(name, len(found.x_train) + 10_000)
    if name == "news20":
        assert len(found.feature_names) == 2000
    if name == "omniglot":
        assert len(found.fine_names) == 1623
    if name == "cifar100":
        assert len(found.fine_names) == 100
