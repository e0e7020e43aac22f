"""What stands behind ``import treevae``: these names and no others, asked for without a wait; and every error."""

import ast
import importlib
import inspect
import json
import pkgutil
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from kinds import VECTORS

import treevae
from treevae.page.report import report
from treevae.page.snapshot import snapshot

SOURCE = Path(treevae.__file__).parent
ROOMS = ("baselines", "data", "errors", "guides", "metrics", "plot")
HEAVY = ("torch", "sklearn", "matplotlib", "scipy", "pandas", "umap", "typer", "rich")

# exceptions that no user meets, with what becomes of them
INSIDE = {
    "BusyError": "the answer 503 of the explorer",
    "ClientGoneError": "nobody is there to read an answer",
    "ClosedDoorError": "the answer of the explorer's guard, with a status of its own",
    "Interrupted": "Ctrl-C, which every estimator passes on",
    "JsonError": "whoever reads the text names the file, in an error of another kind",
    "PictureError": "the answer 422 of the explorer",
    "RefusedError": "the answer 422 of the explorer",
}


def run(code: str) -> str:
    """What a fresh Python prints."""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr[-2000:]
    return done.stdout


# -- names --------------------------------------------------------------------------------------------------------


def test_these_names_are_public_and_no_others():
    assert treevae.__all__ == sorted(["Tree", "TreeVAE", "load", "report", *ROOMS])
    assert dir(treevae) == sorted([*treevae.__all__, "__version__"])
    assert treevae.TreeVAE.__name__ == "TreeVAE"
    assert treevae.report is report
    assert all(getattr(treevae, room) is sys.modules[f"treevae.{room}"] for room in ROOMS)
    with pytest.raises(AttributeError, match="module 'treevae' has no attribute 'Forest'"):
        _ = treevae.Forest


@pytest.mark.parametrize("room", ROOMS)
def test_a_module_says_what_of_it_is_public(room):
    module = getattr(treevae, room)
    assert len(set(module.__all__)) == len(module.__all__) > 0
    assert all(inspect.getdoc(getattr(module, name)) for name in module.__all__)


def test_a_user_needs_no_other_import():
    asked = "data.load, treevae.plot.tree, treevae.metrics.nmi, treevae.baselines.Ward, treevae.errors.DivergedError"
    says = run(f"import treevae; print(*(one.__name__ for one in (treevae.{asked}, treevae.report)))")
    assert says.split() == ["load", "tree_picture", "nmi", "Ward", "DivergedError", "report"]


@pytest.mark.parametrize(
    ("asked", "loads"),
    [
        ("dir(treevae), treevae.Tree, treevae.errors.DivergedError, treevae.data.load", set()),
        ("treevae.metrics.nmi", {"scipy"}),
        ("treevae.plot.tree, treevae.TreeVAE, treevae.report", {"torch", "sklearn", "scipy", "rich"}),
    ],
)
def test_nothing_heavy_is_imported_before_it_is_asked_for(asked, loads):
    says = run(f"import json, sys, treevae; {asked}; print(json.dumps([m for m in {HEAVY} if m in sys.modules]))")
    loaded = set(json.loads(says)) - {"pandas"}  # scikit-learn brings it along where it is installed
    assert loaded == loads


def test_type_checkers_see_the_names_that_are_made_on_demand():
    (block,) = [node for node in ast.parse((SOURCE / "__init__.py").read_text()).body if isinstance(node, ast.If)]
    seen = {}
    for node in block.body:
        assert isinstance(node, ast.ImportFrom)
        seen |= {alias.name: f"treevae.{node.module}" if node.module else "treevae" for alias in node.names}
    assert {*seen, "Tree"} == set(treevae.__all__)
    for name, module in seen.items():
        assert getattr(importlib.import_module(module), name) is getattr(treevae, name)
    assert (SOURCE / "py.typed").read_text() == ""


# -- errors -------------------------------------------------------------------------------------------------------


def exceptions() -> dict[str, type[BaseException]]:
    """All exceptions that the package defines, by name."""
    found = {}
    for about in pkgutil.walk_packages(treevae.__path__, "treevae."):
        if about.name != "treevae.__main__":
            for name, value in vars(importlib.import_module(about.name)).items():
                if inspect.isclass(value) and issubclass(value, BaseException) and value.__module__ == about.name:
                    assert name not in found, f"two exceptions are called {name}"
                    found[name] = value
    return found


def test_every_error_that_a_user_can_meet_stands_in_one_place():
    by_name = exceptions()
    assert set(by_name) == {*treevae.errors.__all__, *INSIDE}
    assert all(by_name[name] is getattr(treevae.errors, name) for name in treevae.errors.__all__)
    assert all(
        issubclass(by_name[name], ValueError | OSError | ArithmeticError | RuntimeError)
        for name in treevae.errors.__all__
    )


def test_errors_that_stay_inside_are_caught_inside():
    nodes = [node for path in SOURCE.rglob("*.py") for node in ast.walk(ast.parse(path.read_text()))]
    handlers = [node.type for node in nodes if isinstance(node, ast.ExceptHandler) and node.type]
    caught = {name.id for handler in handlers for name in ast.walk(handler) if isinstance(name, ast.Name)}
    assert set(INSIDE) <= caught


@pytest.mark.parametrize("name", treevae.errors.__all__)
def test_every_public_error_is_raised_somewhere(name):
    texts = [path.read_text() for path in SOURCE.rglob("*.py") if path.name != "errors.py"]
    assert any(f"raise {name}(" in text or f"return {name}(" in text for text in texts)


# -- report -------------------------------------------------------------------------------------------------------


def test_the_report_takes_what_its_snapshot_takes():
    ours, theirs = (dict(inspect.signature(of).parameters) for of in (report, snapshot))
    assert ours.pop("path").default == "report.html"
    assert list(ours) == list(theirs)
    assert [about.default for about in ours.values()] == [about.default for about in theirs.values()]
    assert [about.annotation for about in ours.values()] == [about.annotation for about in theirs.values()]


def test_the_report_hands_on_what_it_is_given(vectors, tmp_path):
    y = np.arange(len(VECTORS)) % 2
    path = treevae.report(vectors, VECTORS, y, tmp_path / "page.htm", names=list("abcd"), class_names=["even", "odd"],
                          attributes=y[:, None] == 1, attribute_names=["striped"], kind="table", title="My samples",
                          map_method="pca", max_bytes=100_000, random_state=1)  # fmt: skip
    assert path == tmp_path / "page.htm"
    bundle = json.loads(path.read_text().split('id="bundle">')[1].split("</script>")[0])
    shown = snapshot(vectors, VECTORS, y, list("abcd"), class_names=["even", "odd"], attributes=y[:, None] == 1,
                     attribute_names=["striped"], kind="table", title="My samples", map_method="pca",
                     max_bytes=100_000, random_state=1).bundle  # fmt: skip
    assert {**bundle, "created": None} == {**json.loads(json.dumps(shown)), "created": None}
    assert (bundle["title"], bundle["classes"]) == ("My samples", ["even", "odd"])


def test_the_report_is_written_where_one_stands(vectors, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert treevae.report(vectors, VECTORS, map_method="pca").read_text().startswith("<!")
    assert [path.name for path in tmp_path.iterdir()] == ["report.html"]


def test_a_path_that_is_no_page_is_refused_before_the_work(tmp_path):
    model = None  # which would not get far
    with pytest.raises(ValueError, match=r"path=.*tree\.pdf: a report is a page for a browser; name a \.html file"):
        treevae.report(model, VECTORS, path=tmp_path / "tree.pdf")
    with pytest.raises(FileNotFoundError, match=r"there is no folder .*pages to write tree\.html into; make it first"):
        treevae.report(model, VECTORS, path=tmp_path / "pages" / "tree.html")
