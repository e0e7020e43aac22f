"""The arrows of docs/work/design.md: who may import whom. A reversed arrow fails here."""

import ast
from pathlib import Path

import pytest

SOURCE = Path(__file__).parents[1] / "src" / "treevae"

# room -> the rooms it may use
MAY_USE = {
    "storage": set(),
    "tree": set(),
    "metrics": {"tree"},
    "data": set(),
    "model": {"tree"},
    "training": {"storage", "tree", "model"},
    "progress": {"training"},
    "fitting": {"storage", "training", "progress"},
    "recipes": set(),
    "parameters": {"tree", "data", "model", "training"},
    "saving": {"storage", "tree", "data", "model", "training"},
    "preparing": {"storage", "data", "model", "training", "parameters", "saving"},
    "estimator": {
        "storage",
        "tree",
        "model",
        "training",
        "fitting",
        "data",
        "recipes",
        "parameters",
        "saving",
        "preparing",
    },
    "baselines": {"tree", "model", "training", "fitting", "data", "parameters", "preparing", "estimator"},
    "describe": {"tree", "data", "metrics", "model", "estimator"},
    "pictures": {"storage", "tree", "data", "describe", "estimator"},
    "page": {"storage", "tree", "data", "metrics", "model", "estimator", "describe"},
    "plot": {"pictures"},
    "experiments": {
        "storage",
        "tree",
        "data",
        "metrics",
        "model",
        "training",
        "recipes",
        "preparing",
        "estimator",
        "baselines",
        "pictures",
    },
    "subject": {"storage", "data", "training", "recipes", "estimator", "page"},
    "serve": {"storage", "tree", "data", "training", "estimator", "describe", "page", "subject"},
    "cli": {
        "storage",
        "data",
        "metrics",
        "training",
        "progress",
        "fitting",
        "recipes",
        "parameters",
        "preparing",
        "estimator",
        "baselines",
        "describe",
        "pictures",
        "page",
        "experiments",
        "subject",
        "serve",
    },
    "__main__": {"cli"},
}


def room_of(path: Path) -> str:
    return path.relative_to(SOURCE).parts[0].removesuffix(".py")


def imported_rooms(path: Path) -> set[str]:
    """The rooms of the package that a file imports from, wherever in the file the import stands."""
    found = set()
    package = path.relative_to(SOURCE).parts[:-1]
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.ImportFrom) and node.level:
            base = package[: len(package) - node.level + 1]
            parts = (*base, *(node.module or "").split("."))
            names = [parts[0]] if parts[0] else [alias.name for alias in node.names]
            found |= {name for name in names if name in MAY_USE}
        elif isinstance(node, ast.Import | ast.ImportFrom):
            names = [node.module or ""] if isinstance(node, ast.ImportFrom) else [alias.name for alias in node.names]
            found |= {name.split(".")[1] for name in names if name.startswith("treevae.")}
    return found - {room_of(path)}


FILES = sorted(path for path in SOURCE.rglob("*.py") if path != SOURCE / "__init__.py")


@pytest.mark.parametrize("path", FILES, ids=lambda path: str(path.relative_to(SOURCE)))
def test_arrows_point_one_way(path):
    assert room_of(path) in MAY_USE, "a new room needs a line in MAY_USE and in docs/work/design.md"
    assert imported_rooms(path) <= MAY_USE[room_of(path)]


def test_the_allowed_arrows_have_no_cycle():
    done: set[str] = set()
    while ready := {room for room, uses in MAY_USE.items() if room not in done and uses <= done}:
        done |= ready
    assert done == set(MAY_USE)


def test_the_check_sees_imports():
    assert imported_rooms(SOURCE / "estimator.py") == MAY_USE["estimator"]
    assert imported_rooms(SOURCE / "model" / "layout.py") == {"tree"}


def test_tree_knows_nothing_of_torch():
    names = {alias.name.split(".")[0] for node in ast.walk(ast.parse((SOURCE / "tree.py").read_text()))
             if isinstance(node, ast.Import) for alias in node.names}  # fmt: skip
    assert "torch" not in names
