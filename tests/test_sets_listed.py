"""treevae data: the list of data sets, what is there of each, and whether it is whole."""

import gzip
import hashlib
import re
import shutil
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from small_sets import MAKERS, Server, advertise, cut_short, make_cifar10, make_idx, offer
from typer.testing import CliRunner

from treevae.cli.app import app
from treevae.data import download, idx, load
from treevae.data.dataset import Size
from treevae.data.sets import SOURCES, survey


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
