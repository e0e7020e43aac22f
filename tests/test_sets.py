"""The data sets by name: what is read from files in the published layouts."""

import math
import os
import pickle
import re
from dataclasses import replace
from functools import partial
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image
from small_sets import MAKERS, make_celeba, make_cifar10, make_news20, make_omniglot, noise, write_idx

from treevae.data import DataSet, celeba, idx, load, news20, omniglot
from treevae.data.arrays import InputForm
from treevae.data.dataset import own_split
from treevae.data.sets import SOURCES, read_source, survey
from treevae.errors import DataFileError


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
    assert news20.most_frequent(words, np.array([192, 192, 192, 9000, 192]), {"the", "admit"}) == [1, 2, 3]


def test_a_set_is_read_by_its_card_in_another_way(made: Path) -> None:
    """As benchmarks/studies/ do."""
    published = load("omniglot5", made)

    def shrunk(image: Image.Image, file: Path) -> Image.Image:
        return image.resize((28, 28))

    read = partial(omniglot.read, name="omniglot5", alphabets=omniglot.FIVE, shrunk=shrunk)
    other = read_source(replace(omniglot.OMNIGLOT5, read=read), made)
    assert other.x_train.shape == published.x_train.shape
    assert other.note == published.note
    assert not np.array_equal(other.x_train, published.x_train)


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
