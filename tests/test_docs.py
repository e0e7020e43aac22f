"""The documents: their code runs, their names exist, their figures are the recorded ones, nothing is left out."""

import ast
import importlib
import inspect
import json
import re
import statistics
from pathlib import Path

import numpy as np
import pytest
from sklearn.utils import get_tags

from treevae import Tree, TreeVAE, baselines
from treevae.cli.demo import DEMO
from treevae.experiments.showing import as_latex, as_markdown, lines
from treevae.experiments.store import Store
from treevae.experiments.tables import table_of
from treevae.guides.told import BIAS, FROM_NEIGHBOURS
from treevae.starting import (
    AGREEMENT,
    CANDIDATES,
    GUIDANCE,
    GUIDES,
    LARGEST,
    LEAST_EPOCHS,
    LEAST_GUIDANCE,
    SPLIT_EPOCHS,
    STEPS,
)
from treevae.training.plan import PAPER_EPOCHS

ROOT = Path(__file__).parents[1]
USE, UNDERSTAND, EVIDENCE, WORK = (ROOT / "docs" / part for part in ("use", "understand", "evidence", "work"))
README = (ROOT / "README.md").read_text()
RESULTS = (EVIDENCE / "results.md").read_text()
BASELINES = (EVIDENCE / "baselines.md").read_text()


@pytest.mark.slow
def test_the_readmes_python_runs(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (code,) = re.findall(r"```python\n(.*?)```", README, re.DOTALL)
    assert code.count("random_state=0") == 1
    code = code.replace("random_state=0", "random_state=0, n_init=1, epochs=2")  # sooner done, the same otherwise
    found: dict = {}
    exec(compile(code, "README.md", "exec"), found)
    assert found["pictures"].shape == (16, 8, 8)
    assert set(found["coarse"]) == {0, 1, 2}
    assert (tmp_path / "digits.safetensors").exists()


def test_the_python_of_guides_runs():
    page = (USE / "start-from-a-guide.md").read_text()
    begin, compared, with_yours = re.findall(r"```python\n(.*?)```", page, re.DOTALL)
    found: dict = {}
    for code in (begin, compared, with_yours):
        short = code.replace("n_leaves=10, ", "n_leaves=10, epochs=10, ")
        exec(compile(short, "start-from-a-guide.md", "exec"), found)
    assert [guide["name"] for guide in found["guides"]] == list(GUIDES)
    assert 0.5 < found["kept"] <= 1
    made = found["model"].history_[0]
    assert made | {"agreement": 0} == {
        "event": "GuideMade",
        "name": "given",
        "leaves": 10,
        "known": 1.0,
        "agreement": 0,
    }


def test_the_reports_python_runs(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (code,) = re.findall(r"```python\n(.*?)```", (USE / "report.md").read_text(), re.DOTALL)
    monkeypatch.setattr("treevae.page.snapshot.find_spec", lambda name: None)  # PCA: UMAP takes long to be compiled
    X = np.random.default_rng(0).normal(size=(8, 3))
    model = TreeVAE(tree=Tree().split(0), hidden_dim=4, epochs=1, batch_size=8, random_state=0).fit(X)
    exec(compile(code, "report.md", "exec"), {"model": model, "X": X, "y": np.arange(8) % 2})
    assert (tmp_path / "report.html").exists()


def test_the_python_of_the_baselines_runs(capsys):
    (code,) = re.findall(r"```python\n(.*?)```", BASELINES, re.DOTALL)
    exec(compile(code, "baselines.md", "exec"), {})
    said = [line.split()[0] for line in capsys.readouterr().out.splitlines()]
    assert said == ["Ward", "VAE", "VAE", "Bisecting", "DeepECT"]


def test_the_baselines_have_just_the_words_that_the_page_says():
    head, *rows = [line.strip("|").split("|") for line in BASELINES.splitlines() if line.startswith("| ")]
    words = [word.strip(" `") for word in head[1:]]
    page = {name.strip(" `"): [mark.strip() == "✓" for mark in marks] for name, *marks in rows if "`" in name}
    ours = {f"treevae.baselines.{name}" for name in baselines.__all__}
    assert set(page) == ours | {"treevae.TreeVAE", "sklearn.cluster.HDBSCAN"}
    for name, marks in page.items():
        module, _, kind = name.rpartition(".")
        made = getattr(importlib.import_module(module), kind)
        sparse = get_tags(made()).input_tags.sparse  # which scikit-learn's checks hold it to
        assert [sparse if word == "sparse X" else hasattr(made, word) for word in words] == marks, name


def test_the_table_of_the_demo_is_the_recorded_run():
    recorded = json.loads((ROOT / "docs" / "runs" / "demo.json").read_text())
    assert {"command", "seconds_fit", "device", "versions", "parameters"} <= set(recorded)
    assert recorded["parameters"].items() >= DEMO.items()
    for method, scores in recorded["scores_percent"].items():
        row = f"| {method} | " + " | ".join(f"{scores[name]:.1f}" for name in ("DP", "LP", "ACC", "NMI")) + " |"
        assert row in RESULTS


def shown(values: list[float], digits: int) -> str:
    mean = f"{statistics.mean(values):.{digits}f}".replace("-", "−")
    return mean if len(values) == 1 else f"{mean} ± {statistics.stdev(values):.{digits}f}"


@pytest.mark.parametrize("page", sorted((ROOT / "results" / "tables").iterdir()), ids=lambda page: page.name)
def test_the_written_tables_are_what_paper_show_would_write(page):
    table, render = table_of(page.stem), {".md": as_markdown, ".tex": as_latex}[page.suffix]
    assert page.read_text() == render(table, lines(table, Store(ROOT / "results"), 1.0), 1.0)


@pytest.fixture
def spread(monkeypatch):
    monkeypatch.syspath_prepend(ROOT)
    return importlib.import_module("benchmarks.studies.spread_table")


def test_the_readmes_table_is_the_recorded_trees(spread):
    recipes = {
        line.data: line
        for line in lines(table_of("clustering"), Store(ROOT / "results"), 1.0)
        if line.title == "TreeVAE"
    }
    acc = table_of("clustering").columns.index("ACC")
    for name, label in (
        ("mnist", "MNIST"),
        ("fashion", "Fashion-MNIST"),
        ("news20", "20Newsgroups"),
        ("omniglot5", "Omniglot-5"),
    ):
        ours = recipes[label.removesuffix("-MNIST")].figures[acc]
        runs = spread.by_setting().get((name, 150, spread.DEFAULT), {"runs": []})["runs"]
        defaults = shown([run["ACC"] for run in runs], 1) if runs else "not run"
        assert f"| {label} | {defaults} | {ours.ours} | {ours.paper} |\n" in README
        assert ours.mark in {"△", "▽"}  # "none of its differences is more than chance explains"


def names_of_the_paper() -> list[tuple[str, str]]:
    rows = re.findall(r"\| `([\w.]+)` \| `([\w/]+\.py)` \|", (UNDERSTAND / "paper-to-code.md").read_text())
    assert len(rows) > 20
    return rows


@pytest.mark.parametrize(("name", "file"), names_of_the_paper())
def test_every_name_of_the_paper_exists(name, file):
    found = importlib.import_module("treevae." + file.removesuffix(".py").replace("/", "."))
    for part in name.split("."):
        found = getattr(found, part)


def test_every_file_is_in_the_picture_of_the_house():
    picture = (WORK / "design.md").read_text()
    for path in (ROOT / "src" / "treevae").rglob("*.py"):
        if path.name != "__init__.py":
            assert path.name in picture, path


@pytest.mark.parametrize("name", inspect.signature(TreeVAE).parameters)
def test_every_parameter_is_documented(name):
    assert re.search(
        rf"^    {name} : .+\n        \S", (inspect.getdoc(TreeVAE) and TreeVAE.__doc__) or "", re.MULTILINE
    )


def test_the_plan_of_the_pages_is_the_default():
    defaults = {name: about.default for name, about in inspect.signature(TreeVAE).parameters.items()}
    assert (defaults["start"], defaults["epochs"], defaults["n_init"], defaults["max_depth"]) == ("auto",) * 3 + (6,)
    assert (PAPER_EPOCHS, SPLIT_EPOCHS, CANDIDATES, LARGEST) == (150, 60, 16, 30_000)
    assert GUIDES == ("kmeans", "embedding", "networks")
    said = " ".join(inspect.getdoc(TreeVAE).split())
    assert f'"auto" means {LEAST_EPOCHS}, and of small data so many that there are {STEPS} steps' in said
    assert f'"auto" means {SPLIT_EPOCHS}, and {PAPER_EPOCHS} is the paper\'s' in said
    assert f"for more than {LARGEST:,} images" in said
    assert f"or {CANDIDATES} candidates of which the worse half leaves" in said
    readme, results, start = (" ".join(page.split()) for page in (README, RESULTS, (USE / "start.md").read_text()))
    assert "Sixteen candidates for every split and seven levels" in results
    assert "Sixteen candidates for every split make MNIST's trees better" in readme
    assert "60 are the default there, and 150 the paper's schedule" in start
    assert "Three guides are made, unless told otherwise" in start
    assert "By splits sixteen candidates are trained for every split" in start
    guide = " ".join((USE / "start-from-a-guide.md").read_text().split())
    assert "Of vectors, and of up to 30,000 images, a tree begins with three guides" in guide
    assert "Labels count in the first third of the epochs only" in guide
    works = " ".join((UNDERSTAND / "how-it-works.md").read_text().split())
    assert (GUIDANCE, AGREEMENT) == (0.2, {"splits": 60.0, "guide": 10.0})
    assert LEAST_GUIDANCE == 20
    assert "Its weight is 0.2 for each feature, because the ELBO sums over features, and at least 20" in works
    assert BIAS == 0.05
    assert all("counts 5 % less" in page for page in (works, guide, said))
    assert all(f'"{name}"' in said and f"`{name}`" in works for name in FROM_NEIGHBOURS)
    assert "The weight is 10 from a guide and 60 by splits" in works


def test_documented_defaults_are_those_of_the_signature():
    documented = re.findall(r"^    (\w+) : .*default=(.+)$", TreeVAE.__doc__ or "", re.MULTILINE)
    defaults = {name: about.default for name, about in inspect.signature(TreeVAE).parameters.items()}
    assert {name: ast.literal_eval(value) for name, value in documented} == defaults
