"""The data sets by name: found where they lie, fetched if wanted, read, and counted."""

from __future__ import annotations

import os
import zlib
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from difflib import get_close_matches
from pathlib import Path

from ..errors import DataFileError
from .celeba import CELEBA
from .cifar import CIFAR10, CIFAR100
from .dataset import DataSet, Size, Source
from .digits import DIGITS
from .download import content_md5, fetch
from .idx import FASHION, MNIST
from .news20 import NEWS20
from .omniglot import OMNIGLOT, OMNIGLOT5

ROOT = "TREEVAE_DATA"  # the environment variable that names the folder of data sets
SOURCES = {
    source.name: source for source in (DIGITS, MNIST, FASHION, NEWS20, OMNIGLOT, OMNIGLOT5, CIFAR10, CIFAR100, CELEBA)
}
SAME, DIFFERS, MISSING = "ok", "differs", "not there"  # a file beside the published one


def load(name: str, root: str | os.PathLike[str] | None = None, download: bool = False) -> DataSet:
    """A data set in the split and with the preprocessing of the paper; docs/use/data.md says which.

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
    if download:
        fetch_missing(name, root)
    return read_source(source, root)


def read_source(source: Source, root: str | os.PathLike[str] | None = None) -> DataSet:
    """As :func:`load`, by the card of a set, which may read it in another way."""
    if not source.folders:
        return source.read(Path())
    root = data_root(root)
    folder = _folder(source, root)
    if folder is None:
        looked_in = " or ".join(str(root / below) for below in source.folders)
        raise DataFileError(
            f"{source.name} is not there: {source.parts[0]} was looked for in {looked_in}. {how_to_get(source, root)}"
        )
    try:
        data = source.read(folder)
    except (DataFileError, OSError) as error:  # OSError: a folder that cannot be listed, a file that goes meanwhile
        if isinstance(error.__cause__, ImportError):  # the files are not at fault
            raise
        raise DataFileError(f"{error}. {how_to_get(source, root)}") from error
    return replace(data, note="; ".join(filter(None, (data.note, *_differences(data.size, folder, source)))))


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
    size: Size | None = None  # unless something was found missing or damaged
    files: dict[str, str] = field(default_factory=dict)  # with a published checksum: ok, differs or not there
    fault: str = ""  # what is missing or damaged


def survey(name: str, root: str | os.PathLike[str] | None = None) -> Survey:
    """What there is of a data set, its files compared with the published checksums.

    A set is counted by reading it, as ``load`` does; of Omniglot, CelebA and the newsgroups only the pictures and the
    messages are counted, which are not opened. Where no root is named nothing is there.
    """
    source = source_of(name)
    if not source.folders:
        return Survey(source, size=source.size)
    named = named_root(root)
    folder = None if named is None else _folder(source, named)
    if folder is None:
        return Survey(source)
    files = _compared(source, folder)
    try:
        size = source.read(folder).size if source.count is None else source.count(folder)
        return Survey(source, folder, size, files)
    except (DataFileError, OSError) as error:
        return Survey(source, folder, None, files, str(error))


def source_of(name: str) -> Source:
    """The card of a data set."""
    if not isinstance(name, str) or name not in SOURCES:
        raise DataFileError(f"there is no data set {name!r}; there are {', '.join(SOURCES)}")
    return SOURCES[name]


def check_not_a_set(path: Path, by_name: bool = True) -> None:
    """Raise if a path leads nowhere and is nearly a data set's name, or is one where none can be given ``by_name``."""
    word = str(path)
    close = get_close_matches(word.lower(), SOURCES) if word == path.stem else []  # not an ending, not a folder's part
    if not close or os.path.exists(path):
        return
    if by_name:
        meant = f"did you mean the data set {' or '.join(close)}? There are {', '.join(SOURCES)}"
    else:
        meant = (
            f"data sets cannot be named here. In Python: model.predict(treevae.data.load({close[0]!r}).x_test); the "
            "clusters of the samples that a tree was grown on are in RUN/labels.csv"
        )
    raise DataFileError(f"there is no file or folder {path}; {meant}")


def is_there(name: str, root: str | os.PathLike[str] | None = None) -> bool:
    """Whether there is any part of a data set; one that comes with a library always is."""
    source = source_of(name)
    return not source.folders or _folder(source, data_root(root)) is not None


def data_root(root: str | os.PathLike[str] | None = None) -> Path:
    """The folder of data sets: the one given, or what $TREEVAE_DATA says."""
    named = named_root(root)
    if named is None:
        raise DataFileError(
            f"no folder of data sets is named; pass root (--root on the command line), or set ${ROOT}. To download a "
            "data set into one: treevae data NAME --root FOLDER --download"
        )
    return named


def named_root(root: str | os.PathLike[str] | None = None) -> Path | None:
    """The same, or None where neither names one."""
    named = root if root is not None else os.environ.get(ROOT)
    return Path(named).expanduser() if named else None


def _folder(source: Source, root: Path) -> Path | None:
    """The first folder that holds any part of a set."""
    for below in source.folders:
        if any((root / below / form).exists() for part in source.parts for form in (part, f"{part}.gz")):
            return root / below
    return None


def _differences(size: Size, folder: Path, source: Source) -> Iterator[str]:
    """In what a set that was found in a folder is not the published one, by its files and by its samples."""
    states = list(_compared(source, folder).values())
    if n := states.count(DIFFERS):
        yield f"{n} of {len(states)} files with a published checksum differ from it"
    if size != source.size:
        yield f"{size.train:,} + {size.test:,} samples, not the paper's {source.size.train:,} + {source.size.test:,}"


def _compared(source: Source, folder: Path) -> dict[str, str]:
    """How the files that have a published checksum stand to it."""
    return {file: _compare(folder / file, md5) for file, md5 in source.md5.items()}


def _compare(file: Path, md5: str) -> str:
    """How a file, or its gzipped form, stands to the published one."""
    zipped = file.with_name(f"{file.name}.gz")
    if not file.is_file() and not zipped.is_file():
        return MISSING
    try:
        return SAME if content_md5(file if file.is_file() else zipped) == md5 else DIFFERS
    except (OSError, EOFError, zlib.error):  # a damaged gzip
        return DIFFERS


def how_to_get(source: Source, root: Path) -> str:
    """What to do about a data set of which something is missing or damaged."""
    if source.by_hand:
        return f"{source.by_hand}, or point root or ${ROOT} at another copy"
    return (
        f"What is missing comes with download=True, or: treevae data {source.name} --root {root} --download (remove "
        f"damaged files first); or point root (--root) or ${ROOT} at the folder that holds {source.folders[0]}"
    )
