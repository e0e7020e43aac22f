"""The data sets by name: found where they lie, fetched if wanted, read, and counted."""

from __future__ import annotations

import os
import zlib
from dataclasses import dataclass, field, replace
from pathlib import Path

from .celeba import CELEBA
from .cifar import CIFAR10, CIFAR100
from .dataset import DataSet, Size, Source
from .digits import DIGITS
from .download import content_md5, fetch
from .idx import FASHION, MNIST
from .news20 import NEWS20
from .omniglot import OMNIGLOT, OMNIGLOT5
from .refusal import DataFileError

ROOT = "TREEVAE_DATA"  # the environment variable that names the folder of data sets
SOURCES = {
    source.name: source for source in (DIGITS, MNIST, FASHION, NEWS20, OMNIGLOT, OMNIGLOT5, CIFAR10, CIFAR100, CELEBA)
}
SAME, DIFFERS, MISSING = "ok", "differs", "not there"  # a file beside the published one


def load(name: str, root: str | os.PathLike[str] | None = None, download: bool = False) -> DataSet:
    """A data set in the split and with the preprocessing of the paper; docs/data.md says which.

    Parameters
    ----------
    name
        digits, mnist, fashion, news20, omniglot, omniglot5, cifar10, cifar100 or celeba.
    root
        The folder below which the files lie in their usual layout; by default what $TREEVAE_DATA says.
    download
        Fetch what is missing into root first.

    Raises
    ------
    DataFileError
        A file is missing, damaged or cannot be fetched. The message says which, and what to do.
    """
    source = source_of(name)
    if not source.folders:
        return source.read(Path())
    root = data_root(root)
    if download:
        fetch_missing(name, root)
    folder = _folder(source, root)
    if folder is None:
        looked_in = " or ".join(str(root / below) for below in source.folders)
        raise DataFileError(
            f"{name} is not there: {source.parts[0]} was looked for in {looked_in}. {_how_to_get(source)}"
        )
    try:
        found = source.read(folder)
    except (DataFileError, OSError) as error:  # OSError: a folder that cannot be listed, a file that goes meanwhile
        if isinstance(error.__cause__, ImportError):  # the files are not at fault
            raise
        raise DataFileError(f"{error}. {_how_to_get(source)}") from error
    size = Size(len(found.x_train), len(found.x_test), len(found.class_names))
    if size == source.size:
        return found
    other = f"{size.train:,} + {size.test:,} samples, not the paper's {source.size.train:,} + {source.size.test:,}"
    return replace(found, note="; ".join(filter(None, (found.note, other))))


def fetch_missing(name: str, root: str | os.PathLike[str] | None = None) -> None:
    """Download what is missing of a data set; what is there is left as it is."""
    source = source_of(name)
    if not source.folders:
        return
    root = data_root(root)
    folder = _folder(source, root)
    if source.by_hand and folder is None:
        raise DataFileError(f"{name} cannot be downloaded. {source.by_hand}")
    for download in source.downloads:
        fetch(download, folder or root / source.folders[0], root)


@dataclass(frozen=True)
class Survey:
    """What there is of a data set."""

    source: Source
    folder: Path | None = None  # where it lies
    size: Size | None = None  # unless something is missing or damaged
    files: dict[str, str] = field(default_factory=dict)  # with a published checksum: ok, differs or not there
    fault: str = ""  # what is missing or damaged


def survey(name: str, root: str | os.PathLike[str] | None = None) -> Survey:
    """What there is of a data set: counted from headers and lists, its files compared with the published checksums."""
    source = source_of(name)
    if not source.folders:
        return Survey(source, size=source.size)
    folder = _folder(source, data_root(root))
    if folder is None:
        return Survey(source)
    files = {file: _compare(folder / file, md5) for file, md5 in source.md5.items()}
    try:
        return Survey(source, folder, source.count(folder), files)
    except (DataFileError, OSError) as error:
        return Survey(source, folder, None, files, str(error))


def source_of(name: str) -> Source:
    """The card of a data set."""
    if name not in SOURCES:
        raise DataFileError(f"there is no data set {name!r}; there are {', '.join(SOURCES)}")
    return SOURCES[name]


def data_root(root: str | os.PathLike[str] | None = None) -> Path:
    """The folder of data sets: the one given, or what $TREEVAE_DATA says."""
    named = root if root is not None else os.environ.get(ROOT)
    if not named:
        raise DataFileError(f"no folder of data sets is named; pass root (--root on the command line), or set ${ROOT}")
    return Path(named).expanduser()


def _folder(source: Source, root: Path) -> Path | None:
    """The first folder that holds any part of a set."""
    for below in source.folders:
        if any((root / below / form).exists() for part in source.parts for form in (part, f"{part}.gz")):
            return root / below
    return None


def _compare(file: Path, md5: str) -> str:
    """How a file, or its gzipped form, stands to the published one."""
    zipped = file.with_name(f"{file.name}.gz")
    if not file.is_file() and not zipped.is_file():
        return MISSING
    try:
        return SAME if content_md5(file if file.is_file() else zipped) == md5 else DIFFERS
    except (OSError, EOFError, zlib.error):  # a damaged gzip
        return DIFFERS


def _how_to_get(source: Source) -> str:
    if source.by_hand:
        return f"{source.by_hand}, or point root or ${ROOT} at another copy"
    return (
        f"What is missing comes with download=True, or: treevae data {source.name} --download (remove damaged files "
        f"first); or point root (--root) or ${ROOT} at the folder that holds {source.folders[0]}"
    )
