"""A run as one object: what it remembers is read and checked by every command, and damage is one clear line."""

import json
import re
import shutil
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from typer.testing import CliRunner

from treevae import Tree, TreeVAE
from treevae.cli.app import app
from treevae.recipes import PAPER
from treevae.run import Run, Settings
from treevae.storage.states import StateFolder
from treevae.storage.tensors import ModelFileError

X = np.random.default_rng(0).normal(size=(60, 3)) + np.repeat([[0.0], [6.0]], 30, 0)
WHOLE = {"data": "x.npy", "found_at": "x.npy", "drop": [], "options": {"n_leaves": 2, "epochs": 1, "n_init": 1}}


def changed(**entries: Any) -> bytes:
    """A run.json of the right form but for some entries."""
    return json.dumps(WHOLE | entries).encode()


DAMAGED = {
    "a number": b"5",
    "null": b"null",
    "ten thousand brackets": b"[" * 10_000 + b"]" * 10_000,
    "as many that are not closed": b"[" * 10_000,
    "a text": b'"text"',
    "a list": b"[]",
    "nothing in it": b"{}",
    "no bytes": b"",
    "cut short": changed()[:-9],
    "not UTF-8": changed().replace(b"x.npy", b"\xff\xfe"),
    "a number too long": changed().replace(b'"n_leaves": 2', b'"n_leaves": ' + b"9" * 5000),
    "an entry twice": changed().replace(b'{"data"', b'{"drop": [], "data"'),
    "no options": json.dumps({name: value for name, value in WHOLE.items() if name != "options"}).encode(),
    "data that are no path": changed(data=5),
    "a place that is none": changed(found_at=5),
    "a place that is null": changed(found_at=None),
    "NUL in data": changed(data="x\0.npy"),
    "NUL in a path": changed(found_at="x\0.npy"),
    "half a character in a path": changed(found_at="x\ud800.npy"),
    "columns that are a text": changed(drop="a"),
    "columns that are null": changed(drop=None),
    "columns that are numbers": changed(drop=[1]),
    "options that are a list": changed(options=[]),
    "options that nobody knows": changed(options={"n_leafs": 3}),
    "an option that is too large": changed(options={"n_leaves": 10**30}),
    "an option that is a dict": changed(options={"n_leaves": {"a": 1}}),
    "options that are not for runs": changed(options={"verbose": True}),
    "a set that is a text": changed(set="yes"),
    "a demo that is a number": changed(demo=1),
    "samples that are a number": changed(samples=3),
    "a guide that is a number": changed(guide=3),
}
OLD = Path(__file__).parent / "files_of_0_1" / "run"
COMMANDS = {
    "report": ("report", "run", "--map", "pca"),
    "score": ("score", "run", "--draws", "1"),
    "explore": ("explore", "run", "--port", "0", "--no-open", "--map", "pca"),
    "explore --watch": ("explore", "run", "--watch", "--port", "0", "--no-open", "--map", "pca"),
    "predict": ("predict", "run", "x.npy"),
    "fit --resume": ("fit", "--resume", "run"),
}
NEEDS_NO_SETTINGS = {
    "info": ("info", "run"),
    "sample": ("sample", "run", "-o", "samples.npy"),
    "predict --drop": ("predict", "run", "x.csv", "--drop", "kind"),
    "score --data --drop": ("score", "run", "--draws", "1", "--data", "x.csv", "--drop", "kind"),
}


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The file of a small model."""
    path = tmp_path_factory.mktemp("model") / "model.safetensors"
    TreeVAE(tree=Tree().split(0), max_depth=1, epochs=2, hidden_dim=8, random_state=0).fit(X).save(path)
    return path


@pytest.fixture
def here(model: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A working folder with samples and the folder of a run, whose run.json is still to be written."""
    monkeypatch.chdir(tmp_path)
    np.save("x.npy", X)
    Path("x.csv").write_text("a,b,c,kind\n" + "".join(f"{a},{b},{c},rose\n" for a, b, c in X))
    Path("run").mkdir()
    shutil.copy(model, "run")
    return tmp_path


def said_by(*arguments: str, code: int) -> str:
    """What a command says, with its colours."""
    result = CliRunner().invoke(app, arguments, color=True)
    assert result.exit_code == code, f"{result.output}\n{result.exception!r}"
    assert result.exception is None or isinstance(result.exception, SystemExit)
    return result.output


def error_of(*arguments: str) -> str:
    """The one red line that a command refuses with."""
    said = said_by(*arguments, code=1)
    match = re.fullmatch(r"\x1b\[31mError: (.*)\x1b\[0m\n", said)
    assert match, said
    return match[1]


@pytest.mark.parametrize("content", DAMAGED.values(), ids=DAMAGED)
def test_a_damaged_run_json_is_one_clear_line_of_every_command(
    here: Path, content: bytes, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("treevae.serve.server.serve", lambda *_: pytest.fail("the run was shown"))
    Path("run", "run.json").write_bytes(content)
    for name, arguments in COMMANDS.items():
        if name in ("explore --watch", "fit --resume"):
            Path("run", "state-a.safetensors").write_bytes(b"as of a fit that has not ended")
        line = error_of(*arguments)
        assert "run.json cannot be read: " in line, name
        assert len(line) < 500, name
        Path("run", "state-a.safetensors").unlink(missing_ok=True)
    for arguments in NEEDS_NO_SETTINGS.values():
        said_by(*arguments, code=0)


def test_what_a_run_json_lacks_of_a_later_version_is_not_asked_for(here: Path) -> None:
    Path("run", "run.json").write_bytes(changed())  # neither "samples" nor "set" nor "demo"
    assert "60 samples" in said_by(*COMMANDS["score"], code=0)
    Path("run", "run.json").write_bytes(changed(samples=None, set=False, demo=False, of_a_later_version=1))
    assert "60 samples" in said_by(*COMMANDS["score"], code=0)


def test_settings_come_back_as_they_were_written(tmp_path: Path) -> None:
    written = [
        Settings(
            "x.csv", "/there/x.csv", ("kind",), {"n_leaves": 3, "augment": None, "latent_dim": [2, 3]}, samples="a"
        ),
        Settings("digits", "", (), {}, is_set=True),
        Settings("x.csv", "/there/x.csv", ("kind",), {"start": "guide", "neighbours": 3}, guide="group"),
        Settings.of_demo({"n_init": 1}),
    ]
    for settings in written:
        Run(tmp_path).write_settings(settings)
        as_read = replace(settings, options=PAPER | settings.options)  # earlier versions had no other way
        assert Run(tmp_path).remembered() == Run(tmp_path).to_resume() == as_read


def test_the_run_of_an_earlier_version_is_read_as_it_was_written() -> None:
    told = json.loads((OLD / "run.json").read_text())
    settings, course = Run(OLD).to_resume(), Run(OLD).course()
    assert json.loads(settings.to_json()) == told | {"options": PAPER | told["options"]}
    assert course is not None
    state = StateFolder(OLD).load()
    assert state is not None
    assert course.saves == state.number
    assert [epoch.epoch for epoch in course.epochs] == [*range(1, 61), *range(1, 51)]
    assert len(course.losses) == len(course.epochs)


def test_a_folder_says_what_is_there_and_what_is_missing(here: Path) -> None:
    empty, gone, run = Run("."), Run("gone"), Run("run")
    assert not any((empty.has_begun, empty.has_model, empty.has_settings, empty.is_unfinished, empty.is_finished))
    assert gone.course() is None
    with pytest.raises(FileNotFoundError, match="there is no run gone; treevae fit writes one"):
        gone.model_file()
    with pytest.raises(
        FileNotFoundError, match=r"the folder \. has no model\.safetensors in it; treevae fit writes one"
    ):
        empty.model_file()
    with pytest.raises(ValueError, match=r"run does not remember its samples \(no run\.json\)"):
        run.remembered()
    assert run.left_out() == ()
    assert run.is_finished
    Path("run", "run.json").write_bytes(changed(drop=["kind"]))
    assert run.left_out() == ("kind",)
    Path("run", "run.json").write_bytes(changed(drop=["kind"], guide="group"))
    assert run.left_out() == ("kind", "group")
    Path("run", "run.json").write_bytes(changed(drop=["kind"], guide="kmeans"))
    assert run.left_out() == ("kind",)
    with pytest.raises(ValueError, match="the run in run is finished"):
        run.to_resume()
    Path("run", "state-b.safetensors").touch()
    assert run.is_unfinished
    assert not run.is_finished
    assert run.to_resume().drop == ("kind",)
    Path("run", "model.safetensors").unlink()
    with pytest.raises(FileNotFoundError, match="go on with: treevae fit --resume run"):
        run.model_file()


def test_a_models_file_is_its_run(here: Path) -> None:
    Path("run", "run.json").write_bytes(changed())
    run = Run("run/model.safetensors")
    assert run.remembered() == Run("run").remembered()
    assert run.report_file == Path("run", "report.html")
    with pytest.raises(ValueError, match="it is a file"):
        run.check_free()
    shutil.copy("run/model.safetensors", "alone.safetensors")
    np.testing.assert_array_equal(Run("alone.safetensors").model().labels_, run.model().labels_)


def test_a_new_run_leaves_nothing_of_the_one_before(here: Path) -> None:
    run, states = Run("run"), Run("run").states(30.0)
    Path("run", "notes.txt").touch()  # the user's own
    for name in ("labels.csv", "record.json", "tree.png", "report.html", "state-a.safetensors"):
        Path("run", name).touch()
    with pytest.raises(RuntimeError, match="enter the folder"):
        run.begin(states, Settings("x.npy", "x.npy", (), {}))
    with states:
        run.begin(states, Settings("x.npy", "x.npy", (), {}))
    assert sorted(path.name for path in Path("run").iterdir()) == ["notes.txt", "run.json"]


@pytest.mark.parametrize("change", [{"kl_root": "x"}, {"kl_root": None}, {"more": 1}], ids=str)
def test_a_course_that_does_not_hold_together_is_refused(tmp_path: Path, change: dict[str, Any]) -> None:
    state = StateFolder(OLD).load()
    assert state is not None
    about = json.loads(json.dumps(state.about))
    about["histories"][0][0] |= change
    with StateFolder(tmp_path) as folder:
        folder.save(about, {})
    with pytest.raises(ModelFileError, match="does not hold together"):
        Run(tmp_path).course()
