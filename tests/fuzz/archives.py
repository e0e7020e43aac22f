"""Archives that are downloaded: tar and zip."""

import gzip
import io
import shutil
import struct
import tarfile
import warnings
import zipfile
from functools import partial
from pathlib import Path
from random import Random

from attacks import noted
from loader import Loader, pixels
from mutations import EDGES, any_bytes, inside_gzip, zeros

from treevae.data import download
from treevae.errors import DataFileError

NAMES = (
    *("part/a", "part", "../evil", "/evil", "part/../../evil", "a" * 300, "part/b/c", "\\evil", "C:\\evil", ".", ""),
    *("part//a", "é"),
)
KINDS = (tarfile.REGTYPE, tarfile.DIRTYPE, tarfile.SYMTYPE, tarfile.LNKTYPE, tarfile.CHRTYPE, tarfile.FIFOTYPE)


def make_tar(chance: Random, members: int) -> bytes:
    """An archive of odd members."""
    out = io.BytesIO()
    form = chance.choice((tarfile.GNU_FORMAT, tarfile.PAX_FORMAT, tarfile.USTAR_FORMAT))
    with tarfile.open(fileobj=out, mode="w:", format=form, errors="surrogateescape") as archive:
        for _ in range(members):
            member = tarfile.TarInfo(chance.choice(NAMES))
            member.type, member.linkname = chance.choice(KINDS), chance.choice(NAMES)
            member.mode, member.mtime = chance.choice((0o644, 0o000, 0o4777)), chance.choice((0, 2**31, -1, 1.5))
            member.size = 5 if member.type == tarfile.REGTYPE else 0
            if form == tarfile.PAX_FORMAT and chance.random() < 0.5:
                member.pax_headers = {
                    chance.choice(
                        ("size", "path", "GNU.sparse.map", "GNU.sparse.realsize", "hdrcharset")
                    ): chance.choice(("1", "9" * 20, "x", "0,1", "../../evil", "-1"))
                }
            try:
                archive.addfile(member, io.BytesIO(b"hello"))
            except (ValueError, UnicodeError):
                continue
    return out.getvalue()


def tar_header(name: bytes, size: int, kind: bytes) -> bytes:
    """A header alone, with a right checksum and any size."""
    block = bytearray(512)
    block[: len(name)] = name
    block[100:108], block[124:136], block[136:148] = b"0000644\0", b"%011o\0" % (size % 8**11), b"00000000000\0"
    block[156:157], block[257:265] = kind, b"ustar  \0"
    block[148:156] = b" " * 8
    block[148:156] = b"%06o\0 " % sum(block)
    return bytes(block)


def spoil_tar(files: dict[str, bytes], chance: Random) -> dict[str, bytes]:
    (name,) = files
    kind = chance.random()
    if kind < 0.35:
        bad = inside_gzip(files[name], chance)
    elif kind < 0.36:
        bad = noted(chance.choice((1, 5, 20, 60)), chance.choice((100, 100_000, 500_000, 1_000_000)))
    elif kind < 0.95:
        bad = gzip.compress(make_tar(chance, chance.randrange(1, 5)), 1, mtime=0)
    else:  # bombs: a large member, a large header of a header, a claim of 8 GB
        first = tar_header(
            b"part/a", chance.choice((300 << 20, 8**11 - 512)), chance.choice((b"0", b"x", b"g", b"L", b"K", b"S"))
        )
        bad = zeros(first, chance.choice((0, 10, 300)))
    return {name: bad}


def make_zip(chance: Random) -> bytes:
    """An archive of odd members."""
    members = []
    for _ in range(chance.randrange(1, 5)):
        member = zipfile.ZipInfo(chance.choice([name for name in NAMES if name]))
        member.external_attr = chance.choice((0o644, 0o120777, 0o060644, 0o4777)) << 16
        method = chance.choice((zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED, zipfile.ZIP_BZIP2, zipfile.ZIP_LZMA))
        content = bytes(200 << 20) if chance.random() < 0.001 else b"../../evil"
        members.append((member, content, zipfile.ZIP_DEFLATED if len(content) > 99 else method))
    return zipped(*members)


def zipped(*members: tuple[zipfile.ZipInfo | str, bytes, int]) -> bytes:
    """A zip of members, each with its content and the way it is packed; all are of 1980."""
    out = io.BytesIO()
    with warnings.catch_warnings(), zipfile.ZipFile(out, "w", compresslevel=1) as archive:
        warnings.simplefilter("ignore")  # of names that come twice
        for member, content, method in members:
            info = zipfile.ZipInfo(member) if isinstance(member, str) else member
            archive.writestr(info, content, method)
    return out.getvalue()


def spoil_zip(files: dict[str, bytes], chance: Random) -> dict[str, bytes]:
    (name,) = files
    kind = chance.random()
    bad = (
        any_bytes(files[name], chance)
        if kind < 0.3
        else make_zip(chance)
        if kind < 0.6
        else lying_zip(make_zip(chance), chance)
    )
    return {name: bad}


def valid_archive(folder: Path, name: str) -> None:
    content = pixels(3000).tobytes()
    if name.endswith(".zip"):
        members = ("part/a", content), ("part/b", b"text" * 100)
        (folder / name).write_bytes(zipped(*((*member, zipfile.ZIP_DEFLATED) for member in members)))
        return
    out = io.BytesIO()
    with tarfile.open(fileobj=out, mode="w:") as archive:
        member = tarfile.TarInfo("part/a")
        member.size = len(content)
        archive.addfile(member, io.BytesIO(content))
    (folder / name).write_bytes(gzip.compress(out.getvalue(), mtime=0))


def fetch(folder: Path) -> None:
    """Unpack an archive as if it had just come; nothing may lie elsewhere then, and no link anywhere."""
    (file,) = folder.iterdir()
    unpack, save = download._unpack, download._save

    def watched(archive: Path) -> Path:
        try:
            return unpack(archive)
        finally:
            check_places(folder, archive)

    download._unpack, download._save = watched, lambda _, path: shutil.copy(file, path)  # type: ignore[assignment]
    try:
        wanted = download.Download("https://example.org", file.name, "", gives=("part",))
        download.fetch(wanted, folder / "root" / "set", folder / "root")
    finally:
        download._unpack, download._save = unpack, save


def check_places(folder: Path, archive: Path) -> None:
    """Raise if something was unpacked to another place than beside its archive."""
    inside = list(archive.with_name("unpacked").rglob("*"))
    links = [path for path in inside if path.is_symlink()]
    size = sum(path.stat().st_size for path in inside if path.is_file())
    expected = {folder, folder / archive.name, folder / "root", archive.parent, archive, archive.with_name("unpacked")}
    around = {path for path in folder.parent.rglob("*") if not path.name.startswith("said-")}
    strange = around - expected - set(inside)
    if strange or links or size > 1 << 30:
        raise SystemError(f"unpacked outside: {strange}, links: {links}, bytes: {size}")


def lying_zip(content: bytes, chance: Random) -> bytes:
    """A zip whose headers claim other sizes, methods or flags."""
    spots = [i for sign in (b"PK\x01\x02", b"PK\x03\x04") for i in find_all(content, sign)]
    spot = chance.choice(spots or [0])
    shift = 0 if content[spot : spot + 4] == b"PK\x03\x04" else 2
    field, width = chance.choice(((6, 2), (8, 2), (14, 4), (18, 4), (22, 4), (26, 2), (28, 2)))
    value = struct.pack("<Q", chance.choice((1, 9, 12, 14, *EDGES)))[:width]
    place = spot + field + shift
    return content[:place] + value + content[place + width :]


def find_all(content: bytes, sign: bytes) -> list[int]:
    found, place = [], content.find(sign)
    while place >= 0:
        found.append(place)
        place = content.find(sign, place + 1)
    return found


LOADERS = (
    Loader("tar", 0.03, partial(valid_archive, name="a.tar.gz"), spoil_tar, fetch, (DataFileError,)),
    Loader("zip", 0.02, partial(valid_archive, name="a.zip"), spoil_zip, fetch, (DataFileError,)),
)
