"""The arrows of docs/design.md: who may import whom. A reversed arrow fails here."""

import ast
from collections import Counter
from pathlib import Path

import pytest

SOURCE = Path(__file__).parents[1] / "src" / "treevae"
BENCHMARKS = sorted((Path(__file__).parents[1] / "benchmarks").rglob("*.py"))

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
    assert room_of(path) in MAY_USE, "a new room needs a line in MAY_USE and in docs/design.md"
    assert imported_rooms(path) <= MAY_USE[room_of(path)]


def test_the_allowed_arrows_have_no_cycle():
    done: set[str] = set()
    while ready := {room for room, uses in MAY_USE.items() if room not in done and uses <= done}:
        done |= ready
    assert done == set(MAY_USE)


def test_the_check_sees_imports():
    assert imported_rooms(SOURCE / "estimator.py") == MAY_USE["estimator"]
    assert imported_rooms(SOURCE / "model" / "layout.py") == {"tree"}


# type names that mean two things still, and where
TO_MEND = {
    "Gaussian": "a posterior in model/elbo.py, a likelihood in model/likelihoods.py",
    "Growing": "a fit in fitting.py, its state as the explorer tells it in serve/messages.py",
    "Linear": "of model/stack.py, and as the CPU computes it in model/cpu.py",
    "LogBernoulli": "one operation, on the CPU in model/cpu.py and on the GPU in model/kernels/",
    "NormLeaky": "a layer in model/stack.py, its operation in model/cpu.py and in model/kernels/",
    "Root": "a latent of baselines/ladder.py, an option of cli/runs.py",
    "RowSums": "an operation of model/kernels/, what it sums in model/layout.py",
    "State": "of a run in training/growing.py, of its files in storage/states.py",
}


def types_of(path: Path) -> set[str]:
    """The classes and the aliases of types at the top of a file, without the underscore of private ones."""
    names = []
    for node in ast.parse(path.read_text()).body:
        if isinstance(node, ast.ClassDef):
            names.append(node.name)
        elif isinstance(node, ast.Assign):
            names += [target.id for target in node.targets if isinstance(target, ast.Name) and not target.id.isupper()]
        elif isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name) and not node.target.id.isupper():
            names.append(node.target.id)
    return {name.lstrip("_") for name in names if name.lstrip("_")[0].isupper()}


def test_a_type_name_has_one_meaning():
    files = Counter(name for path in [*FILES, *BENCHMARKS] for name in types_of(path))
    assert {"Tree", "PaperTable", "JobEvent", "PeakMemory"} <= set(files)
    assert {name for name, n in files.items() if n > 1} == set(TO_MEND), "a name of two types, or one that was mended"


def test_tree_knows_nothing_of_torch():
    names = {alias.name.split(".")[0] for node in ast.walk(ast.parse((SOURCE / "tree.py").read_text()))
             if isinstance(node, ast.Import) for alias in node.names}  # fmt: skip
    assert "torch" not in names
