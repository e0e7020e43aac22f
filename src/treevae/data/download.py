"""Fetches published files: nothing is kept that is not whole, and nothing leaves the folder it belongs in."""

from __future__ import annotations

import gzip
import hashlib
import tarfile
import zipfile
import zlib
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import IO, cast

from ..errors import DataFileError

TIMEOUT = 30.0  # seconds in which a server must say something
BLOCK = 1 << 18  # bytes
LARGEST = 1 << 29  # bytes that any published file or archive may hold once it is unpacked; the largest holds 0.2 GB
MOST_MEMBERS = 100_000  # of an archive; the largest has 20,000
UNREADABLE = (tarfile.TarError, zipfile.BadZipFile, gzip.BadGzipFile, EOFError, zlib.error, NotImplementedError)
ENCRYPTED = 0x1  # among the flags of a zip's member
MOST_NOTES = 1 << 24  # bytes that the notes of all members may take in a tar file
LONGEST_HEADER = 1 << 20  # bytes that a member's name and notes may take in a tar file


@dataclass(frozen=True)
class Download:
    """A file to fetch, and what of it is kept."""

    url: str
    file: str  # its name
    checksum: str  # "md5:…" or "sha256:…", as published
    gives: tuple[str, ...] = ()  # what is kept of an archive; nothing: the file itself
    inside: str = ""  # the folder in the archive where that lies

    def missing(self, folder: Path) -> tuple[str, ...]:
        """What of it is not in a folder; an unzipped file counts as the zipped one."""
        wanted = self.gives or (self.file,)
        return tuple(
            name for name in wanted if not any((folder / n).exists() for n in (name, name.removesuffix(".gz")))
        )


def fetch(download: Download, folder: Path, root: Path) -> None:
    """Put into a folder below the root what is missing there; only what is whole and checked is moved in."""
    missing = download.missing(folder)
    if not missing:
        return
    try:
        root.mkdir(parents=True, exist_ok=True)
        with TemporaryDirectory(
            dir=root, prefix=f"{download.file}-", suffix=".part", ignore_cleanup_errors=True
        ) as part:
            file = Path(part, download.file)
            _save(download, file)
            source = _unpack(file) / download.inside if download.gives else file.parent
            if absent := [name for name in missing if not (source / name).exists()]:
                raise DataFileError(f"{download.url} does not hold {', '.join(absent)}")
            folder.mkdir(parents=True, exist_ok=True)
            for name in download.missing(folder):  # another process may have brought some meanwhile
                (source / name).rename(folder / name)
    except OSError as error:
        raise DataFileError(
            f"cannot write {download.file} below {root}: {error.strerror or error}; nothing was kept of it. Make room "
            "there, or name another folder"
        ) from error


def content_md5(path: Path) -> str:
    """The md5 of a file, of a gzipped one that of what is in it, or of its first half GiB if it is a bomb."""
    digest, left = hashlib.md5(usedforsecurity=False), LARGEST
    with gzip.open(path, "rb") if path.suffix == ".gz" else path.open("rb") as file:
        while left > 0 and (block := file.read(BLOCK)):
            digest.update(block)
            left -= len(block)
    return digest.hexdigest()


def _save(download: Download, path: Path) -> None:
    """Write what the address answers, and raise unless it has the published checksum."""
    kind, expected = download.checksum.split(":")
    digest = hashlib.new(kind, usedforsecurity=False)
    with path.open("wb") as file:
        for block in _blocks(download):
            file.write(block)
            digest.update(block)
    if digest.hexdigest() != expected:
        raise DataFileError(
            f"{download.url} gave a file with {kind} {digest.hexdigest()}, but the published one has {expected}; "
            "nothing was kept of it. Try again later: the file was damaged on its way, or has been replaced"
        )


def _blocks(download: Download) -> Iterator[bytes]:
    """The bytes at an address, in pieces; what goes wrong on the way is said with the address."""
    from http.client import HTTPException
    from urllib.error import HTTPError
    from urllib.request import Request, urlopen

    try:
        request = Request(download.url, headers={"User-Agent": "treevae"})
        with urlopen(request, timeout=TIMEOUT) as answer, _bar(download.file, answer.length) as advance:
            length, got = answer.length, 0  # of the whole file, where the server says it
            while block := answer.read(BLOCK):
                got += len(block)
                advance(len(block))
                yield block
    except HTTPError as error:
        raise DataFileError(f"{download.url} answers {error.code} {error.reason}; {_instead(download)}") from error
    except (OSError, HTTPException) as error:
        reason = getattr(error, "reason", None) or str(error) or type(error).__name__
        raise DataFileError(f"{download.url} cannot be fetched: {reason}; {_instead(download)}") from error
    if length is not None and got != length:
        raise DataFileError(
            f"{download.url} broke off after {got:,} of {length:,} bytes; nothing was kept of it. Try again"
        )


def _instead(download: Download) -> str:
    return f"nothing was kept of it. Try again later, or fetch {download.file} in another way"


@contextmanager
def _bar(name: str, length: int | None) -> Iterator[Callable[[int], None]]:
    """A function that moves a progress bar on by a number of bytes; shown only where somebody looks."""
    from rich.console import Console
    from rich.progress import BarColumn, DownloadColumn, Progress, TextColumn, TimeRemainingColumn

    console = Console(stderr=True)
    columns = (TextColumn("{task.description}"), BarColumn(), DownloadColumn(), TimeRemainingColumn())
    with Progress(*columns, console=console, disable=not (console.is_terminal or console.is_jupyter)) as bar:
        task = bar.add_task(name, total=length)
        yield lambda n: bar.advance(task, n)


def _unpack(file: Path) -> Path:
    """The folder beside an archive that it was unpacked into; an archive that reaches outside of it is refused.

    Only files and folders are unpacked, and only as much as a published archive can hold: what members claim is added
    up before anything is written, and they give no more than they claim.
    """
    folder = file.with_name("unpacked")
    folder.mkdir()
    try:
        if file.suffix == ".zip":
            with zipfile.ZipFile(file) as zipped:
                _check_members(folder, (_zip_member(member) for member in zipped.infolist()), file)
                zipped.extractall(folder)
        else:
            with _opened_tar(file) as tarred:
                _check_members(folder, _tar_members(tarred), file)
            with _opened_tar(file) as tarred:
                tarred.extractall(folder, filter="data")
    except (*UNREADABLE, ValueError) as error:
        if isinstance(error, DataFileError):
            raise
        raise DataFileError(
            f"{file.name} is no archive that can be unpacked: {error}; nothing was kept of it"
        ) from error
    return folder


@contextmanager
def _opened_tar(file: Path) -> Iterator[tarfile.TarFile]:
    """A gzipped tar file; other packings can claim more memory than they have bytes."""
    with gzip.open(file) as unzipped, tarfile.open(fileobj=cast(IO[bytes], _InBlocks(unzipped)), mode="r:") as tarred:
        yield tarred


class _InBlocks:
    """A file that is read in small pieces only: tarfile believes a header about its length, and reads it at once."""

    def __init__(self, file: gzip.GzipFile) -> None:
        self._file, self.seek, self.tell = file, file.seek, file.tell

    def read(self, size: int) -> bytes:
        """Some bytes."""
        if size > LONGEST_HEADER:
            raise tarfile.ReadError(f"a header of {size:,} bytes")
        return self._file.read(size)


Member = tuple[str, int, bool]  # name, bytes, whether it is something else than a file or a folder


def _zip_member(member: zipfile.ZipInfo) -> Member:
    plain = member.compress_type in (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED) and not member.flag_bits & ENCRYPTED
    return member.filename, member.file_size, not plain or not member.filename  # without a name it cannot be written


def _tar_members(tarred: tarfile.TarFile) -> Iterator[Member]:
    """The members, as long as their notes, all of which are kept in memory, are not too many."""
    notes = 0
    for member in tarred:
        notes += sum(len(name) + len(value) for name, value in member.pax_headers.items())
        if notes > MOST_NOTES:
            raise tarfile.ReadError(f"headers of more than {MOST_NOTES:,} bytes")
        yield _tar_member(member)


def _tar_member(member: tarfile.TarInfo) -> Member:
    return member.name, member.size, member.issparse() or not (member.isreg() or member.isdir())


def _check_members(folder: Path, members: Iterable[Member], file: Path) -> None:
    """Raise at the first member that lies outside of the folder, is no plain file, or makes the archive too large."""
    total = 0
    for n, (name, size, odd) in enumerate(members, start=1):
        total += max(size, 0)
        if not (folder / name).resolve().is_relative_to(folder.resolve()):
            raise DataFileError(f"{file.name} has a member {name!r} outside of its folder; nothing was kept of it")
        if odd or size < 0:
            raise DataFileError(
                f"{file.name} has a member {name[:80]!r} that is a link, a device or packed in an odd way, expected "
                "files and folders; nothing was kept of it"
            )
        if total > LARGEST or n > MOST_MEMBERS:
            raise DataFileError(
                f"{file.name} unpacks to more than {LARGEST:,} bytes or {MOST_MEMBERS:,} files, which no published "
                "archive does; nothing was kept of it"
            )
