"""The examples: each runs as a person would run it, on a short schedule, and does what it says."""

import csv
import re
import runpy
import sys
import warnings
from collections.abc import Callable
from contextlib import nullcontext
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
from PIL import Image

import treevae

EXAMPLES = Path(__file__).parents[1] / "examples"
Run = Callable[..., str]


@pytest.fixture
def run(tmp_path, monkeypatch, capsys) -> Run:
    """Runs an example in an empty folder, and gives what it prints."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("treevae.page.snapshot.find_spec", lambda name: None)  # PCA: UMAP takes long to be compiled

    def run(name: str, *options: str) -> str:
        monkeypatch.setattr(sys, "argv", [name, *options])
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # of short schedules: leaves that were pruned
            runpy.run_path(str(EXAMPLES / f"{name}.py"), run_name="__main__")
        return capsys.readouterr().out

    return run


def is_picture(path: Path) -> bool:
    with Image.open(path) as image:
        return min(image.size) > 100 and len(np.unique(np.asarray(image.convert("L")))) > 10


def test_every_example_is_listed_and_run():
    names = {path.stem for path in EXAMPLES.glob("*.py")}
    page = (EXAMPLES / "README.md").read_text()
    assert set(re.findall(r"^\| \[(\w+)\.py\]\(\1\.py\) \| \w", page, re.MULTILINE)) == names
    assert set(re.findall(r'run\("(\w+)"', Path(__file__).read_text())) == names


def test_digits(run):
    said = run("digits", "--groups", "3", "--epochs", "3", "--candidates", "1", "--out", "there/it")
    assert "cluster 1 (node" in said
    assert 0.1 < int(re.search(r"matches theirs: (\d+)%", said)[1]) / 100 < 0.5  # three groups of ten digits
    assert is_picture(Path("there/it/tree.png"))
    assert "Handwritten digits" in Path("there/it/report.html").read_text()


def test_own_csv(run):
    said = run("own_csv", "--groups", "2", "--epochs", "3")
    assert re.search(r"^group 1, \d+ rows: \S+ [\d.e+]+ \(all: [\d.e+]+\), ", said, re.MULTILINE)
    assert "agreement with target (NMI): 0." in said
    with open("csv-tree/groups.csv") as file:
        rows = list(csv.DictReader(file))
    assert len(rows) == 178
    assert {row["group"] for row in rows} == {"0", "1"}
    assert "malic_acid" in Path("csv-tree/report.html").read_text()


def test_own_csv_with_a_table(run):
    lines = [f"{i},{i % 7},{(i % 2) * 9},{'ab'[i % 2]}" for i in range(60)]
    Path("mine.csv").write_text("\n".join(["id,size,weight,kind", *lines]))
    said = run("own_csv", "mine.csv", "--drop", "id", "--label", "kind", "--groups", "2", "--epochs", "3")
    assert "agreement with kind (NMI): " in said
    assert "id " not in said
    assert Path("csv-tree/groups.csv").read_text().startswith("id,size,weight,kind,group\n0,0,0,a,")


def test_pictures_folder(run):
    for i in range(120):  # dark and light ones
        place = Path("mine", "some" if i < 50 else "others", f"{i}.png")
        place.parent.mkdir(parents=True, exist_ok=True)
        grey = np.random.default_rng(i).integers(0, 40, (12, 12)) + 200 * (i % 2)
        Image.fromarray(grey.astype(np.uint8)).save(place)
    said = run("pictures_folder", "mine", "--groups", "2", "--epochs", "5")
    assert "120 pictures are sorted in" in said
    of_group = {int(path.stem): path.parts[2] for path in Path("pictures-tree/sorted").rglob("*.png")}
    assert len(of_group) == 120
    assert is_picture(Path("pictures-tree/tree.png"))


def test_pictures_folder_makes_some(run):
    assert "1,000 pictures are sorted in" in run("pictures_folder", "--groups", "2", "--epochs", "1")
    assert len(list(Path("pictures-tree/pictures").glob("*.png"))) == 1000


def test_texts(run):
    said = run("texts", "--groups", "3", "--epochs", "2", "--words", "300")
    assert re.search(r"^group 0, \d+ texts: (\w+, ){5}\w+$", said, re.MULTILINE)
    assert "agreement with the parts of scipy (NMI): 0." in said
    assert is_picture(Path("texts-tree/words.png"))
    assert Path("texts-tree/report.html").exists()


def test_texts_of_a_file(run):
    Path("mine.txt").write_text("\n".join(f"{'apple pear' if i % 2 else 'bolt nut'} number {i}" for i in range(80)))
    said = run("texts", "mine.txt", "--groups", "2", "--epochs", "2")
    assert "agreement" not in said
    assert re.search(r"^group 0, \d+ texts: .*\b(apple|bolt)\b", said, re.MULTILINE)


def test_resume(run, capsys, monkeypatch):
    monkeypatch.setenv("OMP_NUM_THREADS", "1")  # of the other process; as in this one, see conftest.py
    said = run("resume", "--epochs", "3", "--out", "state")
    assert "a fit begins, and is killed" in said
    assert re.search(r"it went on after [\d.]+ s of [\d.]+ s", said)
    assert "the same labels as without the crash: True" in said
    with pytest.raises(SystemExit):
        run("resume", "--out", "state")
    assert "state is there already; name another folder with --out" in capsys.readouterr().err


def test_compare_seeds(run):
    said = run("compare_seeds", "--groups", "2", "--epochs", "5", "--candidates", "1")
    assert re.search(r"^seed 1: 2 groups, ELBO -\d+\.\d\d, NMI with the digits 0\.\d\d$", said, re.MULTILINE)
    assert re.search(r"^seeds 0 and 1: NMI of their groups [01]\.\d\d$", said, re.MULTILINE)
    assert "average.png is of the 2 trees with 2 groups" in said
    assert all(is_picture(Path("seeds", name)) for name in ("average.png", "seed-0.png", "seed-1.png"))


# -- events -------------------------------------------------------------------------------------------------------


def scalars(folder: Path) -> dict[str, list[float]]:
    """What TensorBoard reads in its files, by name."""
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    log = EventAccumulator(str(folder))
    log.Reload()
    return {name: [one.value for one in log.Scalars(name)] for name in log.Tags()["scalars"]}


def test_tensorboard_log(run):
    """With TensorBoard itself, which reads the log back: five packages of 53 MB are light beside torch."""
    said = run("tensorboard_log", "--groups", "3", "--epochs", "6")
    assert "cluster 1 (node" in said
    told = scalars(Path("tensorboard-log"))
    assert len(told["elbo"]) > 4
    parts = [np.array(told[name]) for name in ("reconstruction", "kl_root", "kl_nodes", "kl_decisions")]
    np.testing.assert_allclose(told["elbo"], parts[0] - sum(parts[1:]), rtol=1e-5)
    assert told["progress"] == sorted(told["progress"])
    assert told["leaves"] == [3, 3]  # as the guide begins, as it ends


def test_tensorboard_log_stops_in_time(run):
    run("tensorboard_log", "--groups", "3", "--epochs", "2", "--minutes", "0")
    assert scalars(Path("tensorboard-log"))["leaves"] == [3]  # the first tree


def test_mlflow_log(run, monkeypatch):
    """With a stand-in for MLflow: the real one, even its skinny kind, brings 19 packages of 88 MB, clouds among them.

    It has the five functions that the example calls, with MLflow's parameters and its rule for names.
    """
    logged: dict[str, list[tuple[int | None, float]]] = {}
    params, texts, files = {}, {}, []

    def log_metric(key: str, value: float, step: int | None = None) -> None:
        assert re.fullmatch(r"[\w .:/-]+", key)  # as MLflow wants it
        logged.setdefault(key, []).append((step, float(value)))

    stand_in = SimpleNamespace(
        start_run=lambda *, run_name: nullcontext(run_name),
        log_params=params.update,
        log_metric=log_metric,
        log_text=lambda text, artifact_file: texts.update({artifact_file: text}),
        log_artifact=lambda local_path, artifact_path: files.append((local_path, artifact_path)),
    )
    monkeypatch.setitem(sys.modules, "mlflow", stand_in)
    run("mlflow_log", "--groups", "2", "--epochs", "2")
    assert params == {"groups": 2, "epochs": 2, "seeds": 2}
    for seed in ("seed 0", "seed 1"):
        steps = [step for step, _ in logged[f"{seed}/elbo"]]
        assert steps == list(range(1, len(steps) + 1))
        model = treevae.load(f"mlflow-models/{seed}.safetensors")
        assert texts[f"{seed}/tree.txt"] == str(model.tree_)
        assert (f"mlflow-models/{seed}.safetensors", seed) in files
        assert [step for step, _ in logged[f"{seed}/score"]] == [None]
    assert logged["seed 0/elbo"] != logged["seed 1/elbo"]
