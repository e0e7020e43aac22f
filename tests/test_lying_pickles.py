"""Pickles that lie: CIFAR's files."""

import pickle
import struct
from pathlib import Path

import numpy as np
import pytest
from fuzz.attacks import encoded_again, images_claimed, many_sides, operations
from lies import refused
from small_sets import make_cifar10, noise

from treevae.data import load, pickles
from treevae.data.pickles import read_pickle
from treevae.data.sets import survey


def doubling(first: bytes, join: bytes, levels: int = 60) -> bytes:
    """A value that holds the one before it twice, level upon level; all of them take a few bytes."""
    return first + b"q\x01" + b"".join(join % (i, i) + b"q%c" % (i + 1) for i in range(1, levels))


@pytest.mark.parametrize(
    "content",
    [
        pytest.param(b"\x8e" + struct.pack("<Q", 2**30) + b".", id="a gigabyte of bytes that are not there"),
        pytest.param(b"}r" + struct.pack("<I", 2**27) + b".", id="a place far away in the memory"),
        pytest.param(b"}" + doubling(b")", b"h%ch%c\x86") + b"K\x01s.", id="a key that takes 2 ** 60 steps to hash"),
        pytest.param(b"cnumpy\ndtype\n" + doubling(b"]", b"](h%ch%ce") + b"\x85R.", id="a type with 2 ** 60 letters"),
        pytest.param(b"c_codecs\nencode\n(X" + struct.pack("<I", 10**6) + b"a" * 10**6 + b"U\x04idnatR.", id="idna"),
        pytest.param(b"cnumpy\ndtype\n}U\x0c__defaults__)sb.", id="a name that is changed"),
        pytest.param(b"(U\x02u1inumpy\ndtype\n.", id="an operation that calls"),
        pytest.param(b"I" + b"9" * 5000 + b"\n.", id="a number of 5,000 digits"),
        pytest.param(b"(" * 10**5 + b".", id="marks alone"),
        pytest.param(b"", id="nothing"),
        pytest.param(encoded_again(10**5, 2000), id="one text, encoded again and again"),
        pytest.param(many_sides(5000, 20_000), id="an array with 5,000 sides of 20,000 bytes"),
        pytest.param(images_claimed(3000, 127), id="images of a number of 7,200 digits"),
        pytest.param(images_claimed(1, 255), id="-1 images"),
    ],
)
def test_wicked_pickles(tmp_path: Path, content: bytes) -> None:
    make_cifar10(tmp_path)
    (tmp_path / "cifar-10-batches-py" / "data_batch_2").write_bytes(content)
    with refused("data_batch_2 (is no CIFAR file, or is cut short or damaged|holds no images)"):
        load("cifar10", tmp_path)
    assert "data_batch_2" in survey("cifar10", tmp_path).fault


def test_cifar_files_of_very_many_operations(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pickles, "MOST_OPERATIONS", 10_000)
    make_cifar10(tmp_path)
    below = tmp_path / "cifar-10-batches-py"
    (below / "data_batch_1").write_bytes(operations(b"N", 10_001))
    with refused("data_batch_1 .* more than 10,000 operations"):
        load("cifar10", tmp_path)
    (below / "batches.meta").write_bytes(operations(b"}", 1 << 20))
    with refused("batches.meta has 1,048,577 bytes, expected at most 1,048,576"):
        load("cifar10", tmp_path)


@pytest.mark.parametrize("protocol", range(5))
def test_pickles_of_every_protocol_are_read(protocol: int) -> None:
    content = {"data": noise(2, 6), b"labels": [1, -2, 2**40], "names": ("a", b"\xff"), "x": [1.5, None, True], "": {}}
    found = read_pickle(pickle.dumps(content, protocol))
    np.testing.assert_array_equal(found.pop("data"), content.pop("data"))
    assert found == content
