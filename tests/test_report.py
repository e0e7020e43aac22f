"""The report: one file, nothing from outside, nothing in it that a name could break; the command; notebooks; PDF."""

import base64
import errno
import hashlib
import io
import json
import os
import re
import shutil
import zipfile
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import numpy as np
import pandas
import pytest
from sklearn.datasets import load_digits
from typer.testing import CliRunner

from treevae import Tree, TreeVAE, plot
from treevae.cli.app import app
from treevae.data.files import read
from treevae.describe.cards import short
from treevae.errors import DataFileError
from treevae.page import report
from treevae.page.snapshot import snapshot

X = (load_digits().images[:120] / 16).astype(np.float32)
Y = load_digits().target[:120]
EVIL = "</script><script>alert('x')</script><!--<b>&amp;\u2028"


def fitted(X: Any, tree: Tree | None = None, **how: Any) -> TreeVAE:
    tree = tree or Tree().split(0).split(1)
    return TreeVAE(tree=tree, hidden_dim=8, epochs=1, batch_size=12, random_state=0, device="cpu", **how).fit(X)


@pytest.fixture(scope="module")
def model() -> TreeVAE:
    return fitted(X, network="mlp")


@pytest.fixture(scope="module")
def page(model: TreeVAE) -> str:
    names = [f"digit {k}" for k in range(9)] + [EVIL]
    return report.page(snapshot(model, X, Y, class_names=names, title=EVIL, map_method="pca").bundle)


class Reader(HTMLParser):
    """What a browser would see: elements with attributes, and the text of each script."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.elements: list[tuple[str, dict[str, str | None]]] = []
        self.texts: dict[int, str] = {}
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.elements.append((tag, dict(attrs)))

    def handle_data(self, data: str) -> None:
        self.texts[len(self.elements) - 1] = self.texts.get(len(self.elements) - 1, "") + data

    def script(self, **wanted: str) -> str:
        (found,) = [
            self.texts[i]
            for i, (tag, having) in enumerate(self.elements)
            if tag == "script" and all(having.get(name) == value for name, value in wanted.items())
        ]
        return found


def test_nothing_is_fetched(page: str) -> None:
    for tag, attributes in Reader(page).elements:
        assert tag not in ("link", "iframe", "object", "embed", "base")
        assert not (tag == "script" and "src" in attributes)
        assert not any(value and value.startswith(("http", "//")) for value in attributes.values()), tag
    ours = report.script() + (Path(report.__file__).parent / "assets" / "style.css").read_text()
    assert set(re.findall(r"https?://[\w./-]*", ours)) == {"http://www.w3.org/2000/svg"}  # a namespace, never fetched
    assert "@import" not in ours
    allowed = {"http://www.w3.org", "https://d3js.org"}  # d3's namespaces and the name in its licence
    assert set(re.findall(r"https?://[\w.-]+", page)) <= allowed
    assert "connect-src 'none'" in page


def test_a_page_runs_the_scripts_it_holds_and_no_others(page: str) -> None:
    read = Reader(page)
    (policy,) = [
        having["content"] for tag, having in read.elements
        if tag == "meta" and having.get("http-equiv") == "Content-Security-Policy"
    ]  # fmt: skip
    rules = dict(rule.strip().split(" ", 1) for rule in policy.split(";"))
    inside = [part.split("</script>")[0] for part in re.split(r"<script[^>]*>", page)[1:]]
    codes = [code for code in inside if not code.startswith("{")]  # all but the bundle
    digests = [base64.b64encode(hashlib.sha256(code.encode()).digest()).decode() for code in codes]
    assert rules["script-src"].split() == [f"'sha256-{digest}'" for digest in digests]
    assert len(codes) == 2
    assert {rules[name] for name in ("default-src", "connect-src", "base-uri", "form-action")} == {"'none'"}


def test_a_report_that_cannot_be_written_leaves_nothing(
    model: TreeVAE, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(*_: Any) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(OSError, match=r"cannot write .*report\.html: No space left"):
        report.write_report(snapshot(model, X, map_method="pca"), tmp_path / "report.html")
    assert list(tmp_path.iterdir()) == []


def test_a_live_page_may_call_its_own_server_alone(model: TreeVAE) -> None:
    bundle = snapshot(model, X, map_method="pca").bundle | {"live": True}
    assert "default-src 'none'" in report.page(bundle)
    assert "connect-src 'self'" in report.page(bundle)


def test_names_cannot_break_out_of_the_json(page: str) -> None:
    read = Reader(page)
    bundle = json.loads(read.script(id="bundle"))
    assert bundle["title"] == EVIL
    assert bundle["classes"][9] == short(EVIL)
    assert page.count("alert('x')") == page.count("\\u003cscript\\u003ealert('x')") > 1
    assert "<title>&lt;/script&gt;" in page
    assert sum(tag == "script" for tag, _ in read.elements) == 3
    assert not set("<>&\u2028\u2029") & set(report.embedded(bundle))


def test_the_script_is_all_modules_each_after_those_it_imports() -> None:
    folder = Path(report.__file__).parent / "assets"
    script = report.script()
    order = re.findall(r"^// ([\w-]+\.js)$", script, re.MULTILINE)
    assert sorted(order) == sorted(path.name for path in folder.glob("*.js"))
    for name in order:
        for imported in report.IMPORT.findall((folder / name).read_text()):
            assert order.index(imported) < order.index(name)
    assert not re.search(r"^(import|export)\b", script, re.MULTILINE)


def test_every_imported_name_is_exported_and_no_name_is_defined_twice() -> None:
    folder = Path(report.__file__).parent / "assets"
    top = r"^(?:export )?(?:async )?(?:function|class|const|let) (\w+)"
    defined = [name for path in folder.glob("*.js") for name in re.findall(top, path.read_text(), re.MULTILINE)]
    assert len(defined) == len(set(defined)) > 30
    imported = re.compile(r'^import \{ ([^}]*) \} from "\./([\w-]+\.js)";', re.MULTILINE)
    for path in folder.glob("*.js"):
        for names, source in imported.findall(path.read_text()):
            exported = re.findall(top.replace("(?:export )?", "export "), (folder / source).read_text(), re.MULTILINE)
            assert set(names.split(", ")) <= set(exported), path.name


def test_modules_in_a_circle_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    files = {"main.js": 'import { a } from "./a.js";\n', "a.js": 'import { b } from "./main.js";\n'}
    monkeypatch.setattr(report, "_text", files.__getitem__)
    with pytest.raises(ValueError, match=r"in a circle: main\.js → a\.js → main\.js"):
        report.script.__wrapped__()


def test_d3_is_there_with_its_licence(page: str) -> None:
    assert "Copyright 2010" in page
    assert "Permission to use, copy, modify" in page


# -- the command ------------------------------------------------------------------------------------------------


def treevae(*words: Any, code: int = 0) -> str:
    result = CliRunner().invoke(app, [str(word) for word in words])
    assert result.exit_code == code, result.output
    return " ".join(result.output.split())


def bundle_of(file: Path) -> dict:
    return json.loads(Reader(file.read_text()).script(id="bundle"))


@pytest.fixture(scope="module")
def flowers(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run on a table of two kinds of flowers, which is beside it."""
    folder = tmp_path_factory.mktemp("flowers")
    chance = np.random.default_rng(0)
    frame = pandas.DataFrame(chance.normal(size=(80, 3)) + 4 * (np.arange(80) < 40)[:, None], columns=["a", "b", "c"])
    frame.assign(species=np.where(np.arange(80) < 40, "iris", "rose")).to_csv(folder / "flowers.csv", index=False)
    treevae("fit", folder / "flowers.csv", "-o", folder / "run", "--drop", "species", "--n-leaves", 2, "--epochs", 12,
            "--hidden-dim", 8)  # fmt: skip
    return folder


def test_report_writes_pages_for_browsers_alone(flowers: Path) -> None:
    assert "name a .html file" in treevae("report", flowers / "run", "-o", flowers / "report.pdf", code=1)
    assert not (flowers / "report.pdf").exists()


def test_a_column_that_the_tree_was_grown_with_is_no_label(flowers: Path) -> None:
    said = treevae("report", flowers / "run", "--label", "b", code=1)
    assert "--label b: the tree was grown with this column as a feature" in said
    assert "fit again with --drop b" in said


def test_report_remembers_the_samples_of_the_run(flowers: Path) -> None:
    said = treevae("report", flowers / "run", "--map", "pca")
    file = flowers / "run" / "report.html"
    assert said.startswith("Looking at the samples …")
    assert f"Wrote {file}" in said
    assert file.as_uri() in said
    bundle = bundle_of(file)
    assert (bundle["title"], bundle["kind"], bundle["n_samples"]) == ("flowers", "table", 80)
    assert bundle["features"] == ["a", "b", "c"]
    assert bundle["classes"] is None


def test_report_says_where_there_is_no_tree(flowers: Path, tmp_path: Path) -> None:
    X = pandas.read_csv(flowers / "flowers.csv").drop(columns="species")
    model = TreeVAE(tree=Tree(), latent_dim=2, hidden_dim=8, max_depth=1, epochs=1, random_state=0).fit(X)
    model.save(tmp_path / "model.safetensors")
    said = treevae("report", tmp_path, "--data", flowers / "flowers.csv", "--drop", "species", "--map", "pca")
    assert "There is no tree to look at" in said
    assert "no tree" not in treevae("report", flowers / "run", "--map", "pca")


def test_report_takes_labels_and_other_samples(flowers: Path, tmp_path: Path) -> None:
    pandas.read_csv(flowers / "flowers.csv").head(60).to_csv(tmp_path / "new.csv", index=False)
    treevae("report", flowers / "run", "--data", tmp_path / "new.csv", "--label", "species", "--title", "New ones",
            "--map", "pca", "-o", tmp_path / "new.html")  # fmt: skip
    bundle = bundle_of(tmp_path / "new.html")
    assert (bundle["title"], bundle["n_samples"], bundle["classes"]) == ("New ones", 60, ["iris", "rose"])
    assert sum(map(sum, [one["labels"] for one in bundle["nodes"] if one["leaf"] is not None])) == 60


def test_report_shows_the_test_samples_of_a_data_set(tmp_path: Path) -> None:
    treevae("fit", "digits", "-o", tmp_path / "run", "--epochs", 1, "--n-leaves", 2, "--network", "mlp")
    treevae("report", tmp_path / "run", "--map", "pca")
    bundle = bundle_of(tmp_path / "run" / "report.html")
    assert (bundle["title"], bundle["kind"], bundle["n_samples"]) == ("digits", "images", 360)
    assert bundle["classes"] == [str(k) for k in range(10)]


def test_columns_in_another_order_keep_their_names(flowers: Path, tmp_path: Path) -> None:
    frame = pandas.read_csv(flowers / "flowers.csv")
    frame[frame.columns[::-1]].to_csv(tmp_path / "flowers.csv", index=False)
    pages = []
    for table in (flowers / "flowers.csv", tmp_path / "flowers.csv"):
        options = ("--data", table, "--map", "pca", "-o", tmp_path / "page.html")
        assert ("they are taken by name" in treevae("report", flowers / "run", *options)) == bool(pages)
        pages.append(bundle_of(tmp_path / "page.html") | {"created": None})
    assert pages[0] == pages[1]


def test_samples_that_changed_since_the_fit_are_said(flowers: Path, tmp_path: Path) -> None:
    run, table = tmp_path / "run", tmp_path / "flowers.csv"
    shutil.copytree(flowers / "run", run)
    settings = json.loads((run / "run.json").read_text())
    (run / "run.json").write_text(json.dumps(settings | {"found_at": str(table)}))
    shutil.copy(flowers / "flowers.csv", table)
    said = f"{table} is not what it was when {run} was fitted."
    assert said not in treevae("score", run, "--draws", 1)
    assert said not in treevae("score", run, "--draws", 1, "--data", table)
    frame = pandas.read_csv(table)
    frame.loc[3, "a"] += 1
    frame.to_csv(table, index=False)
    assert said in treevae("score", run, "--draws", 1)
    assert said in treevae("report", run, "--map", "pca", "--label", "species")
    assert said not in treevae("score", run, "--draws", 1, "--drop", "species")  # who names columns knows what is there
    settings["found_at"] = str(table)
    for unknown in ({}, {"samples": None}):  # as of a run that an earlier version fitted
        told = {name: value for name, value in settings.items() if name != "samples"} | unknown
        (run / "run.json").write_text(json.dumps(told))
        assert said not in treevae("score", run, "--draws", 1)


def test_report_says_what_is_missing(flowers: Path, tmp_path: Path) -> None:
    run = tmp_path / "run"
    run.mkdir()
    (run / "model.safetensors").write_bytes((flowers / "run" / "model.safetensors").read_bytes())
    assert "does not remember its samples (no run.json); name them with --data" in treevae("report", run, code=1)
    settings = json.loads((flowers / "run" / "run.json").read_text())
    (run / "run.json").write_text(json.dumps(settings | {"data": "gone.csv", "found_at": "/gone.csv"}))
    assert "are not at /gone.csv any more; name them with --data" in treevae("report", run, code=1)
    (run / "run.json").write_text("{")
    assert "run.json cannot be read" in treevae("report", run, code=1)
    assert "--map tsne" in treevae("report", flowers / "run", "--map", "tsne", code=1)


def test_labels_are_a_column_or_an_array(tmp_path: Path) -> None:
    np.savez(tmp_path / "both.npz", X=np.ones((3, 2)), y=[1, 0, 1], wide=np.ones((3, 2)), text=["b", "a", "b"])
    assert read(tmp_path / "both.npz", label="y").labels.tolist() == [1, 0, 1]
    assert read(tmp_path / "both.npz", label="text").labels.tolist() == ["b", "a", "b"]
    with pytest.raises(DataFileError, match="has no 'z' for labels; it has 'X', 'y', 'wide', 'text'"):
        read(tmp_path / "both.npz", label="z")
    np.savez(tmp_path / "alone.npz", y=[1, 0, 1])
    with pytest.raises(DataFileError, match="holds nothing but the labels 'y'; save the samples in it, too, as X"):
        read(tmp_path / "alone.npz", label="y")
    with pytest.raises(DataFileError, match=r"'wide' in .* has shape \(3, 2\)"):
        read(tmp_path / "both.npz", label="wide")
    np.savez(tmp_path / "named.npz", images=np.zeros((3, 2)), y=[1, 0, 1])
    assert not read(tmp_path / "named.npz", label="y").X.any()  # the one that is left
    np.save(tmp_path / "X.npy", np.ones((3, 2)))
    with pytest.raises(DataFileError, match=r"only tables and \.npz files can have labels"):
        read(tmp_path / "X.npy", label="y")


def test_labels_are_bounded_like_samples(tmp_path: Path) -> None:
    """What a file claims about its labels is compared with what it holds."""
    header = io.BytesIO()
    np.lib.format.write_array_header_1_0(header, {"descr": "<i8", "fortran_order": False, "shape": (1 << 40,)})
    sample = io.BytesIO()
    np.save(sample, np.ones((3, 2)))
    with zipfile.ZipFile(tmp_path / "x.npz", "w") as zipped:
        zipped.writestr("X.npy", sample.getvalue())
        zipped.writestr("y.npy", header.getvalue())
    with pytest.raises(DataFileError, match="cut short or damaged: an array of shape"):
        read(tmp_path / "x.npz", label="y")
    letters = np.array([0x41, 0x110000, 0x42], np.uint32).view("<U1")
    np.savez(tmp_path / "letters.npz", X=np.ones((3, 2)), y=letters)
    with pytest.raises(DataFileError, match=r"'y' in .* is damaged"):
        read(tmp_path / "letters.npz", label="y")


@pytest.mark.parametrize("values", [["a", None, "b"], [1.0, np.nan, 2.0]])
def test_missing_labels_are_no_class(model: TreeVAE, tmp_path: Path, values: list) -> None:
    pandas.DataFrame({"x": [1.0, 2.0, 3.0], "y": values}).to_csv(tmp_path / "gaps.csv", index=False)
    with pytest.raises(DataFileError, match=r"'y' in .* is missing for 1 of 3 samples, first for sample 1; fill"):
        read(tmp_path / "gaps.csv", label="y")
    for y in (values, np.array(values), pandas.Series(values), pandas.Series(values).convert_dtypes()):
        with pytest.raises(ValueError, match="y is missing for 1 of 3 samples, first for sample 1"):
            snapshot(model, X[:3], y, map_method="pca")


def test_classes_that_are_cut_stay_apart(model: TreeVAE) -> None:
    names = ["x" * 60 + str(k) for k in range(10)]
    for given in ({"y": Y, "class_names": names}, {"y": np.array(names)[Y]}):
        bundle = snapshot(model, X, map_method="pca", **given).bundle
        assert len(set(bundle["classes"])) == 10
        assert max(map(len, bundle["classes"])) <= 40
        assert sum(bundle["nodes"][0]["labels"]) == len(X)
        assert all(sum(count > 0 for count in one["labels"]) > 1 for one in bundle["nodes"][:1])


def test_report_refuses_what_does_not_apply(flowers: Path, tmp_path: Path) -> None:
    run = flowers / "run"
    assert "has no 'specie' for labels; it has 'a', 'b', 'c', 'species'" in treevae(
        "report", run, "--label", "specie", code=1
    )
    assert "--root is for data sets" in treevae("report", run, "--root", tmp_path, code=1)
    said = treevae("report", run, "--data", "digits", "--label", "x", "--drop", "y", code=1)
    assert "--drop and --label cannot be given with the data set digits" in said


def test_report_on_other_samples_leaves_out_what_the_run_left_out(flowers: Path, tmp_path: Path) -> None:
    table = pandas.read_csv(flowers / "flowers.csv").head(40)
    table.to_csv(tmp_path / "with.csv", index=False)
    table.drop(columns="species").to_csv(tmp_path / "without.csv", index=False)
    for name in ("with", "without"):
        out = tmp_path / f"{name}.html"
        treevae("report", flowers / "run", "--data", tmp_path / f"{name}.csv", "--map", "pca", "-o", out)
        assert bundle_of(out)["features"] == ["a", "b", "c"]


# -- notebooks and papers ---------------------------------------------------------------------------------------


def test_a_tree_in_a_notebook_is_a_small_drawing() -> None:
    tree = Tree().split(0).split(1)
    drawn = tree._repr_html_()
    assert drawn.startswith("<svg")
    assert "<script" not in drawn
    assert (drawn.count("<path"), drawn.count("<circle"), drawn.count("<text")) == (4, 5, 3)
    named = tree.to_svg(describe=lambda node: "<b>" if node == 2 else "")
    assert "<title>&lt;b&gt;</title>" in named
    widths = tree.to_svg(share={0: 1.0, 1: 0.75, 2: 0.25, 3: 0.5, 4: 0.25})
    assert re.findall(r'stroke-width="([\d.]+)"', widths) == ["12.8", "4.2", "8.5", "4.2"]


def test_a_fitted_model_in_a_notebook_shows_its_tree(model: TreeVAE) -> None:
    for shown in (model._repr_mimebundle_()["text/html"], model._repr_html_()):
        assert "tree with 3 leaves" in shown
        assert f"<title>{len(model.labels_)} samples</title>" in shown
        assert "TreeVAE(" in shown  # scikit-learn's own diagram
    assert "tree with" not in TreeVAE()._repr_mimebundle_()["text/html"]


@pytest.mark.parametrize("name", ["tree", "generations", "all_leaves", "root_map", "history", "average_dendrogram"])
def test_figures_can_be_saved_as_vector_pdf(model: TreeVAE, name: str, tmp_path: Path) -> None:
    given: dict[str, tuple] = {
        "tree": (model, X), "root_map": (model, X), "average_dendrogram": ([model, model], X),
    }  # fmt: skip
    how = {"method": "pca"} if name == "root_map" else {}
    getattr(plot, name)(*given.get(name, (model,)), **how).savefig(tmp_path / "figure.pdf")
    written = (tmp_path / "figure.pdf").read_bytes()
    assert written.startswith(b"%PDF")
    assert b"/Font" in written  # letters stay letters
