"""The data sets by name: what is fetched, from a server on this machine, and what a failure leaves."""

import errno
import gzip
import io
import re
import shutil
import tarfile
import zipfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import numpy as np
import pytest
from small_sets import CHANCE, MAKERS, Server, advertise, left_in, noise, offer, packed, write_pickle
from typer.testing import CliRunner

from treevae.cli.app import app
from treevae.data import download, idx, load
from treevae.data.download import Download
from treevae.data.sets import SOURCES
from treevae.errors import DataFileError


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
