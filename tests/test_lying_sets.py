"""Published data sets whose files lie: idx files, messages and lists."""

import gzip
import hashlib
import re
import struct
from pathlib import Path

import pytest
from fuzz.attacks import many_rows, many_words
from lies import MB, refused
from small_sets import make_celeba, make_idx, make_news20

from treevae.data import download, idx, load
from treevae.data.sets import survey

# -- idx ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("images", [300_000, 2**32 - 1])
def test_an_idx_header_that_claims_more_than_the_file_has(tmp_path: Path, images: int) -> None:
    make_idx(tmp_path, "MNIST")
    path = tmp_path / "MNIST" / idx.FILES[0]
    path.write_bytes(path.read_bytes()[:4] + struct.pack(">I", images) + path.read_bytes()[8:])
    with refused(rf"{path.name} (holds 5,488|says that)"):
        load("mnist", tmp_path)
    assert path.name in survey("mnist", tmp_path).fault


def test_a_gzipped_idx_that_is_a_bomb(tmp_path: Path) -> None:
    make_idx(tmp_path, "MNIST", ".gz")
    path = tmp_path / "MNIST" / f"{idx.FILES[0]}.gz"
    path.write_bytes(gzip.compress(bytes((0, 0, 8, 3)) + struct.pack(">III", 500_000, 28, 28) + bytes(99 * MB), 1))
    with refused("392,000,000 bytes follow its header, expected at most"):
        load("mnist", tmp_path)


def test_the_list_of_data_sets_does_not_unpack_a_bomb_to_its_end(tmp_path: Path, monkeypatch) -> None:
    monkeypatch.setattr(download, "LARGEST", MB)
    (tmp_path / "x.gz").write_bytes(gzip.compress(bytes(50 * MB), 1))
    assert download.content_md5(tmp_path / "x.gz") == hashlib.md5(bytes(MB)).hexdigest()  # of its beginning


def test_idx_files_of_nothing(tmp_path: Path) -> None:
    make_idx(tmp_path, "MNIST")
    for file, shape in zip(idx.FILES, ((0, 28, 28), (0,)) * 2, strict=True):
        (tmp_path / "MNIST" / file).write_bytes(bytes((0, 0, 8, len(shape))) + struct.pack(f">{len(shape)}I", *shape))
    with refused("says that it holds nothing"):
        load("mnist", tmp_path)
    assert "says that it holds nothing" in survey("mnist", tmp_path).fault


# -- messages and lists ---------------------------------------------------------------------------------------------


def test_folders_and_links_to_nothing_among_messages(tmp_path: Path) -> None:
    make_news20(tmp_path)
    before = repr(load("news20", tmp_path))
    group = tmp_path / "20news-bydate" / "20news-bydate-train" / "sci.space"
    (group / "folder").mkdir()
    (group / "link").symlink_to("nowhere")
    assert repr(load("news20", tmp_path)) == before
    (group / "long").write_bytes(many_words(200_000))
    with refused(r"long has 1,\d+,\d+ bytes, expected at most 1,048,576"):
        load("news20", tmp_path)
    assert "long has" in survey("news20", tmp_path).fault


@pytest.mark.parametrize(
    ("content", "why"),
    [
        (many_rows(b" ", b"", 3), "names no attributes in its second line"),
        (many_rows(b"A", b" 1", 270_000), "has 270,002 lines, expected at most 262,144"),
        (many_rows(b"A " * 10**5, b" 1", 3), "a line of more than 10,000 letters"),
    ],
)
def test_lists_of_faces_that_lie(tmp_path: Path, content: bytes, why: str) -> None:
    make_celeba(tmp_path)
    (tmp_path / "celeba" / "list_attr_celeba.txt").write_bytes(content)
    with refused(why):
        load("celeba", tmp_path)
    assert re.search(why, survey("celeba", tmp_path).fault)
