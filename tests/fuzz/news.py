"""20 Newsgroups: folders of messages."""

from functools import partial
from pathlib import Path
from random import Random

from attacks import many_words
from loader import Loader, load_named, one_of
from mutations import any_bytes

from treevae.data.news20 import PARTS
from treevae.errors import DataFileError

GROUPS = ("alt.one", "rec.two")


def valid_news(folder: Path) -> None:
    for part in PARTS:
        for group in GROUPS:
            (folder / part / group).mkdir(parents=True)
            for i in range(3):
                text = f"From: a@example.org\nSubject: {group}\n\nMessage {i} of some words about {group}.\n"
                (folder / part / group / str(i)).write_text(text)


def spoil_news(files: dict[str, bytes], chance: Random) -> dict[str, bytes]:
    """A message changed, of very many words or without any; or others where none are expected."""
    name, kind = chance.choice(list(files)), chance.random()
    if kind < 0.02:
        return files | {name: many_words(chance.choice((0, 10, 10_000, 100_000, 400_000)))}
    if kind < 0.3:
        group = chance.choice((*GROUPS, "sci.three", ".hidden", "."))
        below = chance.choice(("9", "9/inside", ".hidden", "\udcff", "a b"))
        return files | {f"{chance.choice(PARTS)}/{group}/{below}": chance.choice((b"", b"\x00", b"a", b"word " * 1000))}
    if kind < 0.4:
        gone = chance.choice((name, name.rpartition("/")[0], name.split("/")[0]))
        return {other: content for other, content in files.items() if not other.startswith(gone)}
    if kind < 0.5:
        return files | {other: b"" for other in files if chance.random() < 0.7}
    return one_of(any_bytes)(files, chance)


LOADERS = (Loader("news20", 0.02, valid_news, spoil_news, partial(load_named, name="news20"), (DataFileError,)),)
