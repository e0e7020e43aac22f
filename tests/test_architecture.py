"""The arrows of docs/work/design.md: who may import whom. A reversed arrow fails here."""

import ast
from collections import Counter
from pathlib import Path

import pytest

SOURCE = Path(__file__).parents[1] / "src" / "treevae"
BENCHMARKS = sorted((Path(__file__).parents[1] / "benchmarks").rglob("*.py"))

GROUND = {"errors"}  # below all rooms, so that any may use it
# room -> the rooms it may use besides
MAY_USE = {
    "errors": set(),
    "storage": set(),
    "tree": set(),
    "metrics": {"tree"},
    "data": set(),
    "model": {"tree"},
    "guides": {"storage", "tree"},
    "training": {"tree", "model", "guides"},
    "progress": {"training"},
    "listening": {"training", "progress"},
    "recipes": set(),
    "parameters": {"tree", "data", "model", "training"},
    "fitted": {"tree", "data", "model", "training", "parameters"},
    "saving": {"storage", "tree", "data", "model", "training", "recipes", "parameters", "fitted"},
    "starting": {"storage", "data", "guides", "training", "parameters"},
    "preparing": {"storage", "tree", "data", "model", "guides", "training", "parameters", "starting"},
    "fitting": {"storage", "training", "recipes", "fitted", "listening", "preparing", "starting"},
    "advice": {"training", "fitted"},
    "base": {"data", "training", "parameters", "fitted", "preparing", "starting", "listening", "fitting", "advice"},
    "estimator": {"tree", "training", "recipes", "preparing", "saving", "base"},
    "baselines": {
        "tree",
        "data",
        "model",
        "training",
        "parameters",
        "preparing",
        "listening",
        "fitting",
        "base",
        "estimator",
    },
    "scores": {"tree", "data", "metrics", "model", "fitted"},
    "source": set(),
    "records": {"storage", "tree", "data", "model", "training", "fitted", "scores", "source"},
    "describe": {"tree", "data", "estimator"},
    "pictures": {"storage", "tree", "data", "describe", "estimator"},
    "page": {"storage", "data", "metrics", "model", "training", "fitted", "estimator", "describe"},
    "plot": {"pictures"},
    "experiments": {
        "storage",
        "tree",
        "data",
        "training",
        "recipes",
        "preparing",
        "estimator",
        "baselines",
        "records",
        "pictures",
    },
    "run": {"storage", "tree", "guides", "training", "recipes", "fitting", "estimator"},
    "subject": {"storage", "data", "recipes", "estimator", "page", "run"},
    "serve": {"tree", "data", "estimator", "describe", "page", "run", "subject"},
    "cli": {
        "storage",
        "data",
        "metrics",
        "progress",
        "recipes",
        "parameters",
        "estimator",
        "baselines",
        "scores",
        "records",
        "pictures",
        "page",
        "experiments",
        "run",
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
    assert imported_rooms(path) <= MAY_USE[room_of(path)] | GROUND


def test_no_arrow_is_allowed_that_nobody_needs():
    used: dict[str, set[str]] = {}
    for path in FILES:
        used.setdefault(room_of(path), set()).update(imported_rooms(path) - GROUND)
    assert used == {room: uses for room, uses in MAY_USE.items() if room in used}


def test_the_allowed_arrows_have_no_cycle():
    done: set[str] = set()
    while ready := {room for room, uses in MAY_USE.items() if room not in done and uses <= done}:
        done |= ready
    assert done == set(MAY_USE)


def test_the_check_sees_imports():
    assert imported_rooms(SOURCE / "estimator.py") - GROUND == MAY_USE["estimator"]
    assert imported_rooms(SOURCE / "model" / "layout.py") == {"tree"}


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
    assert [name for name, n in files.items() if n > 1] == []


def test_tree_knows_nothing_of_torch():
    names = {alias.name.split(".")[0] for node in ast.walk(ast.parse((SOURCE / "tree.py").read_text()))
             if isinstance(node, ast.Import) for alias in node.names}  # fmt: skip
    assert "torch" not in names


# -- files that are read in one sitting ------------------------------------------------------------------------------

MOST_LINES = 400
BY_HAND = {".py", ".js", ".css", ".html", ".md"}  # records and samples are data, and as long as what they tell


def test_no_file_has_more_than_400_lines():
    inside = [path for room in ("src", "benchmarks", "examples", "tests") for path in sorted((ROOT / room).rglob("*"))]
    lines = {relative(path): len(path.read_text().splitlines()) for path in inside if path.suffix in BY_HAND}
    assert {"src/treevae/estimator.py", "src/treevae/page/assets/tree.js", "tests/test_architecture.py"} <= set(lines)
    assert {name: n for name, n in lines.items() if n > MOST_LINES} == {}


# -- no reaching through windows ------------------------------------------------------------------------------------

ROOT = SOURCE.parents[1]
OF_OTHER_LIBRARIES = {  # private names that are their libraries' own, for want of public ones
    *("_parameters", "_buffers", "_modules"),  # torch's modules: rows of stacks are put together without a copy
    "_foreach_copy_",  # torch: one launch for all tensors
    "_replace",  # of a NamedTuple, public but for its name
}


def own_names(tree: ast.Module) -> set[str]:
    """What a file itself defines or stores, on itself or on its objects."""
    names = {node.name for node in ast.walk(tree) if isinstance(node, ast.FunctionDef | ast.ClassDef)}
    names |= {node.id for node in ast.walk(tree) if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store)}
    stored = (node for node in ast.walk(tree) if isinstance(node, ast.Attribute) and isinstance(node.ctx, ast.Store))
    return names | {
        node.attr for node in stored if isinstance(node.value, ast.Name) and node.value.id in ("self", "cls")
    }


def is_private(name: str) -> bool:
    return name.startswith("_") and not name.startswith("__")


def private_reaches(text: str) -> list[str]:
    """Where a file uses a private name that is not its own."""
    tree = ast.parse(text)
    own, told = own_names(tree) | OF_OTHER_LIBRARIES, []
    for node in ast.walk(tree):
        if isinstance(node, ast.ImportFrom):
            told += [f"{node.lineno}: import {one.name}" for one in node.names if is_private(one.name)]
        elif isinstance(node, ast.Attribute) and is_private(node.attr) and node.attr not in own:
            of_itself = isinstance(node.value, ast.Name) and node.value.id in ("self", "cls")  # inherited
            of_parent = isinstance(node.value, ast.Call) and ast.unparse(node.value) == "super()"
            told += [] if of_itself or of_parent else [f"{node.lineno}: {ast.unparse(node)}"]
    return told


def patches(text: str) -> list[str]:
    """Where a file gives an attribute, or an entry, of something that it imports another value."""
    tree = ast.parse(text)
    imported = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.Import | ast.ImportFrom):
            imported |= {(one.asname or one.name).split(".")[0] for one in node.names}
    told = []
    for node in ast.walk(tree):
        targets = (
            node.targets if isinstance(node, ast.Assign) else [node.target] if isinstance(node, ast.AugAssign) else []
        )
        for target in targets:
            base = target
            while isinstance(base, ast.Attribute | ast.Subscript):
                base = base.value
            if base is not target and isinstance(base, ast.Name) and base.id in imported:
                told.append(f"{node.lineno}: {ast.unparse(target)}")
    return told


def relative(path: Path) -> str:
    return str(path.relative_to(ROOT))


OURS = sorted([*SOURCE.rglob("*.py"), *(ROOT / "benchmarks").rglob("*.py"), *(ROOT / "examples").rglob("*.py")])
SETS_SWITCHES = {  # of torch and of the system, and of no module of ours
    "src/treevae/training/engine.py",  # cuDNN's benchmark mode, while a step is captured
    "src/treevae/cli/fit.py",  # how warnings are shown, inside catch_warnings
}


@pytest.mark.parametrize("path", OURS, ids=relative)
def test_nobody_reaches_for_what_is_private_elsewhere(path):
    assert private_reaches(path.read_text()) == []


@pytest.mark.parametrize("path", OURS, ids=relative)
def test_nobody_patches_what_is_imported(path):
    assert relative(path) in SETS_SWITCHES or patches(path.read_text()) == []


def test_the_checks_see_reaches_and_patches():
    assert private_reaches("from a import _b\nx._c\nself._d\nsuper()._e\ny._replace(a=1)") == [
        "1: import _b",
        "2: x._c",
    ]
    assert private_reaches("class A:\n    def _f(self): ...\nA()._f()") == []
    assert patches("import a\nfrom b import C, D\na.x = 1\nC['y'] = 2\nd.z = 3\nD = 4") == ["3: a.x", "4: C['y']"]
