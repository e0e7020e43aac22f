"""The fingerprint of the code behind the figures: what counts, and what does not."""

import ast
from pathlib import Path

import pytest

from treevae.source import CAN_CHANGE_A_FIGURE, PACKAGE, files_of, fingerprint_of

BEGINNINGS = ("experiments/methods.py", "records.py")  # where fits begin, where they are scored
WITHOUT_EFFECT = {
    "advice.py": "warns",
    "errors.py": "names what went wrong",
    "experiments/folders.py": "says where files lie",
    "experiments/models.py": "keeps models",
    "experiments/store.py": "keeps records",
    "listening.py": "keeps what happened, and shows it",
    "progress.py": "shows how far a fit is",
    "source.py": "makes the fingerprint",
}
CODE = '''"""A module."""
import math


def area(r: float, /, *, unit="cm") -> str:
    """The area."""
    if r < 0 or r is None:
        raise ValueError(f"r={r!r} is {'bad'!s:>{10}} {{}}")
    match unit:
        case "cm" | "m":
            return f"{math.pi * r**2:.2f}" f" {unit}²"
    return b"\\xff" and 1e-3 * True
'''


def imported_files(path: Path) -> set[Path]:
    """The files of the package that a file imports from, wherever in the file the import stands."""
    found, package = set(), path.relative_to(PACKAGE).parts[:-1]
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.ImportFrom) and node.level:
            base = PACKAGE.joinpath(*package[: len(package) - node.level + 1], *(node.module or "").split("."))
            of_names = [base / alias.name for alias in node.names]
            found |= {file for one in (base, *of_names) for file in (one.with_suffix(".py"), one / "__init__.py")}
    return {file for file in found if file.is_file() and file != PACKAGE / "__init__.py"}


def test_every_file_that_a_fit_or_its_scores_come_by_counts():
    waiting, reached = [PACKAGE / name for name in BEGINNINGS], set()
    while waiting:
        reached.add(file := waiting.pop())
        waiting += imported_files(file) - reached
    assert len(reached) > 50
    counted = {file for room in CAN_CHANGE_A_FIGURE for file in files_of(PACKAGE / room)}
    without = {PACKAGE / name for name in WITHOUT_EFFECT}
    assert sorted(reached - counted - without) == [], "a line in CAN_CHANGE_A_FIGURE, or a reason in WITHOUT_EFFECT"
    assert without <= reached - counted, "a reason that is no longer needed"


@pytest.mark.parametrize("room", CAN_CHANGE_A_FIGURE)
def test_every_room_that_counts_is_there(room):
    assert all(file.is_file() for file in files_of(PACKAGE / room))
    assert files_of(PACKAGE / room)


def fingerprint(folder: Path, code: str) -> str:
    (folder / "a.py").write_text(code, encoding="utf-8")
    return fingerprint_of(folder, ("a.py",))


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ('"""A module."""', '"""Another word."""'),
        ('    """The area."""\n', ""),
        ("import math\n", "import math  # for pi\n\n"),
        ("r < 0 or r is None", "(r < 0  # so\n        or r is None)"),
    ],
)
def test_words_and_line_breaks_do_not_count(tmp_path, before, after):
    assert before in CODE
    assert fingerprint(tmp_path, CODE.replace(before, after)) == fingerprint(tmp_path, CODE)


@pytest.mark.parametrize(
    ("before", "after"),
    [("r < 0", "r <= 0"), ('unit="cm"', 'unit="m"'), (".2f", ".3f"), ("1e-3", "1e-4"), ("True", "1"), (", /, *,", ",")],
)
def test_code_counts(tmp_path, before, after):
    assert before in CODE
    assert fingerprint(tmp_path, CODE.replace(before, after)) != fingerprint(tmp_path, CODE)


def test_names_of_files_count(tmp_path):
    before = fingerprint(tmp_path, CODE)
    (tmp_path / "a.py").rename(tmp_path / "b.py")
    assert fingerprint_of(tmp_path, ("b.py",)) != before


def test_it_is_the_same_from_every_version_of_python(tmp_path):
    assert fingerprint(tmp_path, CODE) == "29a839d4"  # what 3.11, 3.12 and 3.13 make of it
