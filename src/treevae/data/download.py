"""Fetches published files: nothing is kept that is not whole, and nothing leaves the folder it belongs in."""

from __future__ import annotations

import hashlib
import tarfile
import zipfile
import zlib
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory

from .files import DataFileError

TIMEOUT = 30.0  # seconds in which a server must say something
BLOCK = 1 << 18  # bytes


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
    """The md5 of a file, of a gzipped one that of what is in it."""
    import gzip

    with gzip.open(path, "rb") if path.suffix == ".gz" else path.open("rb") as file:
        return hashlib.file_digest(file, lambda: hashlib.md5(usedforsecurity=False)).hexdigest()


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
    """The folder beside an archive that it was unpacked into; an archive that reaches outside of it is refused."""
    folder = file.with_name("unpacked")
    folder.mkdir()
    try:
        if file.suffix == ".zip":
            with zipfile.ZipFile(file) as zipped:
                _check_inside(folder, zipped.namelist(), file)
                zipped.extractall(folder)
        else:
            with tarfile.open(file) as tarred:
                _check_inside(folder, tarred.getnames(), file)
                tarred.extractall(folder, filter="data")  # refuses links that lead outside, too
    except (tarfile.TarError, zipfile.BadZipFile, EOFError, zlib.error) as error:
        raise DataFileError(
            f"{file.name} is no archive that can be unpacked: {error}; nothing was kept of it"
        ) from error
    return folder


def _check_inside(folder: Path, names: Sequence[str], file: Path) -> None:
    for name in names:
        if not (folder / name).resolve().is_relative_to(folder.resolve()):
            raise DataFileError(f"{file.name} has a member {name!r} outside of its folder; nothing was kept of it")
