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
import typer.main
from sklearn.utils import get_tags

from treevae import Tree, TreeVAE, baselines
from treevae.cli.app import app
from treevae.cli.demo import DEMO
from treevae.experiments.methods import METHODS
from treevae.experiments.showing import as_latex, as_markdown, lines
from treevae.experiments.store import Store
from treevae.experiments.tables import table_of

ROOT = Path(__file__).parents[1]
README = (ROOT / "README.md").read_text()
BASELINES = (ROOT / "docs" / "baselines.md").read_text()


@pytest.mark.slow
def test_the_readmes_python_runs(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (code,) = re.findall(r"```python\n(.*?)```", README, re.DOTALL)
    assert code.count("n_init=4") == 1
    code = code.replace("n_init=4", "n_init=1")  # sooner done, the same otherwise
    found: dict = {}
    exec(compile(code, "README.md", "exec"), found)
    assert found["pictures"].shape == (16, 8, 8)
    assert set(found["coarse"]) == {0, 1, 2}
    assert (tmp_path / "digits.safetensors").exists()


def test_the_reports_python_runs(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (code,) = re.findall(r"```python\n(.*?)```", (ROOT / "docs" / "report.md").read_text(), re.DOTALL)
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


def test_the_readmes_table_is_the_recorded_run():
    recorded = json.loads((ROOT / "docs" / "runs" / "demo.json").read_text())
    assert {"command", "seconds_fit", "device", "versions", "parameters"} <= set(recorded)
    assert recorded["parameters"].items() >= DEMO.items()
    for method, scores in recorded["scores_percent"].items():
        row = f"| {method} | " + " | ".join(f"{scores[name]:.1f}" for name in ("DP", "LP", "ACC", "NMI")) + " |"
        assert row in README


def recorded(name: str, **settings: int) -> list[dict]:
    return list(Store(ROOT / "results").seeds(METHODS["treevae"].cell(name, settings, 1.0, 0)).values())


def shown(values: list[float], digits: int) -> str:
    mean = f"{statistics.mean(values):.{digits}f}".replace("-", "−")
    return mean if len(values) == 1 else f"{mean} ± {statistics.stdev(values):.{digits}f}"


def of_the_paper(name: str, score: str, method: str = "treevae") -> str:
    table = table_of("generative" if score in ("ELBO", "LL") else "clustering")
    (row,) = [row for row in table.rows if (row.data, row.method) == (name, method) and "leaves" not in row.label]
    figure = row.entries[table.columns.index(score)].paper
    assert figure is not None
    return f"{figure.mean:.1f} ± {figure.sd:.1f}".replace("-", "−")


def test_the_second_table_of_the_readme_has_the_trees_of_the_papers_first():
    found = lines(table_of("clustering"), Store(ROOT / "results"), 1.0)
    for line in (line for line in found if line.title == "TreeVAE"):
        figures = [f"{one.ours} {one.mark}".strip() + f" | {one.paper}" for one in line.figures]
        assert f"| {line.data} | {line.seeds} | {' | '.join(figures)} |\n" in README


@pytest.mark.parametrize("page", sorted((ROOT / "results" / "tables").iterdir()), ids=lambda page: page.name)
def test_the_written_tables_are_what_paper_show_would_write(page):
    table, render = table_of(page.stem), {".md": as_markdown, ".tex": as_latex}[page.suffix]
    assert page.read_text() == render(table, lines(table, Store(ROOT / "results"), 1.0), 1.0)


@pytest.fixture
def spread(monkeypatch):
    monkeypatch.syspath_prepend(ROOT)
    return importlib.import_module("benchmarks.studies.spread_table")


@pytest.mark.parametrize(("name", "label"), [("mnist", "MNIST"), ("fashion", "Fashion-MNIST")])
def test_the_first_table_of_the_readme_has_the_trees_of_the_defaults(spread, name, label):
    runs = spread.by_setting()[name, 150, spread.DEFAULT]["runs"]
    cells = [label, str(len(runs))]
    for score in ("ACC", "NMI", "ELBO"):
        cells += [shown([run[score] for run in runs], 1), of_the_paper(name, score)]
    assert f"| {' | '.join(cells)} |\n" in README


def test_the_readmes_gains_over_one_candidate_are_the_recorded_ones(spread):
    sixteen = spread.by_setting()["fashion", 150, spread.DEFAULT]["runs"]
    one = [run["scores_percent"] for run in recorded("fashion")]
    acc, nmi = (spread.gain([run[score] for run in sixteen], [run[score] for run in one]) for score in ("ACC", "NMI"))
    assert f"its standard error in brackets, is {acc} in ACC and {nmi} in NMI" in " ".join(README.split())


def test_what_the_readme_says_of_a_quarter_of_the_schedule_is_recorded(spread):
    def acc(name: str, setting: str) -> str:
        return shown([run["ACC"] for run in spread.by_setting()[name, 38, setting]["runs"]], 1)

    mnist, fashion = (
        f"{acc(name, spread.DEFAULT)} on {label}, where {plan} gives {acc(name, 'paper')}"
        for name, label, plan in (("mnist", "MNIST", "the paper's plan"), ("fashion", "Fashion-MNIST", "it"))
    )
    assert f"ten seeds have ACC {mnist}, but {fashion};" in " ".join(README.split())


@pytest.mark.parametrize("page", [*sorted(ROOT.glob("docs/*.md")), ROOT / "README.md", ROOT / "benchmarks/RECORDS.md"])
def test_links_lead_somewhere(page):
    for target in re.findall(r"\]\(([^)#]+)\)", page.read_text()):
        assert target.startswith("http") or (page.parent / target).exists(), target


def names_of_the_paper() -> list[tuple[str, str]]:
    rows = re.findall(r"\| `([\w.]+)` \| `([\w/]+\.py)` \|", (ROOT / "docs" / "paper-to-code.md").read_text())
    assert len(rows) > 20
    return rows


@pytest.mark.parametrize(("name", "file"), names_of_the_paper())
def test_every_name_of_the_paper_exists(name, file):
    found = importlib.import_module("treevae." + file.removesuffix(".py").replace("/", "."))
    for part in name.split("."):
        found = getattr(found, part)


def test_every_file_is_in_the_picture_of_the_house():
    picture = (ROOT / "docs" / "design.md").read_text()
    for path in (ROOT / "src" / "treevae").rglob("*.py"):
        if path.name != "__init__.py":
            assert path.name in picture, path


@pytest.mark.parametrize("name", inspect.signature(TreeVAE).parameters)
def test_every_parameter_is_documented(name):
    assert re.search(
        rf"^    {name} : .+\n        \S", (inspect.getdoc(TreeVAE) and TreeVAE.__doc__) or "", re.MULTILINE
    )


def commands() -> dict:
    """All commands by what is typed, those of groups too."""
    found = {}
    for name, command in typer.main.get_command(app).commands.items():
        inner = getattr(command, "commands", None)
        found |= {name: command} if inner is None else {f"{name} {below}": one for below, one in inner.items()}
    return found


@pytest.mark.parametrize("name", commands())
def test_every_command_and_option_is_documented(name):
    page = (ROOT / "docs" / "commands.md").read_text()
    (row,) = [line for line in page.splitlines() if line.startswith(f"| `treevae {name}")]
    command = commands()[name]
    assert "Example:" in command.help
    for option in command.params:
        if option.param_type_name == "option" and option.name != "help":
            assert option.help, option.name
            assert any(f"`{flag}`" in row for flag in option.opts), option.name


def test_the_plan_of_the_readme_is_the_default():
    defaults = {name: about.default for name, about in inspect.signature(TreeVAE).parameters.items()}
    assert (defaults["epochs"], defaults["n_init"], defaults["max_depth"]) == (150, 16, 6)
    assert "**With the defaults**, sixteen candidates for every split and seven levels" in " ".join(README.split())
    assert "150, the default, is the paper's schedule" in README
    assert "of every split sixteen candidates are trained" in " ".join(README.split())


def test_documented_defaults_are_those_of_the_signature():
    documented = re.findall(r"^    (\w+) : .*default=(.+)$", TreeVAE.__doc__ or "", re.MULTILINE)
    defaults = {name: about.default for name, about in inspect.signature(TreeVAE).parameters.items()}
    assert {name: ast.literal_eval(value) for name, value in documented} == defaults
