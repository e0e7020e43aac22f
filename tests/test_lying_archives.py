"""Archives that lie: tar and zip files that were downloaded."""

import gzip
import io
import tarfile
import zipfile
from pathlib import Path
from typing import Any

import pytest
from fuzz.attacks import noted
from lies import MB, refused

from treevae.data import download


def tar_of(*members: tarfile.TarInfo) -> bytes:
    out = io.BytesIO()
    with tarfile.open(fileobj=out, mode="w:gz", format=tarfile.PAX_FORMAT) as archive:
        for member in members:
            archive.addfile(member, io.BytesIO(bytes(member.size)))
    return out.getvalue()


def member(name: str, **others: Any) -> tarfile.TarInfo:
    found = tarfile.TarInfo(name)
    for key, value in others.items():
        setattr(found, key, value)
    return found


def header_of(kind: bytes, megabytes: int) -> bytes:
    """A header that says how much follows, and 30 MB, packed to 30 kB."""
    return gzip.compress(member("a", type=kind, size=megabytes * MB).tobuf(tarfile.GNU_FORMAT) + bytes(30 * MB), 1)


ARCHIVES = {
    "link inside": (tar_of(member("a", type=tarfile.SYMTYPE, linkname="b")), "is a link"),
    "hard link to nothing": (tar_of(member("a", type=tarfile.LNKTYPE, linkname="b")), "is a link"),
    "device": (tar_of(member("a", type=tarfile.CHRTYPE)), "is a link, a device"),
    "large": (header_of(tarfile.REGTYPE, 600), "more than 536,870,912 bytes"),
    "sparse map of nonsense": (tar_of(member("a", pax_headers={"GNU.sparse.map": "0,x"})), "is no archive"),
    "notes without end": (noted(40, 10**6), "is no archive"),
    "size of nonsense": (tar_of(member("a", size=9, pax_headers={"GNU.sparse.size": "x"})), "is no archive|a link"),
    "long name": (header_of(tarfile.GNUTYPE_LONGNAME, 30), "a header of"),
    "long notes": (header_of(tarfile.XHDTYPE, 30), "a header of"),
    "no gzip": (b"a tar file it is not", "is no archive"),
}


@pytest.mark.parametrize("name", ARCHIVES)
def test_tar_files_that_lie(tmp_path: Path, name: str) -> None:
    content, why = ARCHIVES[name]
    (tmp_path / "a.tar.gz").write_bytes(content)
    with refused(rf"a\.tar\.gz .*({why})"):
        download._unpack(tmp_path / "a.tar.gz")
    assert not list((tmp_path / "unpacked").iterdir())


@pytest.mark.parametrize("lie", ["lzma", "encrypted", "nameless", "large", "many"])
def test_zip_files_that_lie(tmp_path: Path, lie: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(download, "MOST_MEMBERS", 5)
    monkeypatch.setattr(download, "LARGEST", MB)
    path = tmp_path / "a.zip"
    with zipfile.ZipFile(path, "w", zipfile.ZIP_LZMA if lie == "lzma" else zipfile.ZIP_DEFLATED) as zipped:
        for i in range(6 if lie == "many" else 2):
            zipped.writestr(f"part/{i}", bytes(MB if lie == "large" else 10))
    if lie == "encrypted":
        content = path.read_bytes()
        place = content.index(b"PK\x01\x02") + 8
        path.write_bytes(content[:place] + b"\x01\x00" + content[place + 2 :])
    if lie == "nameless":
        path.write_bytes(path.read_bytes().replace(b"part/0", b"\0art/0"))
    with refused("packed in an odd way" if lie in ("lzma", "encrypted", "nameless") else "no published archive does"):
        download._unpack(path)
    assert not list((tmp_path / "unpacked").iterdir())
