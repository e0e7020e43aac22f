"""A run as one object: what it remembers is read and checked by every command, and damage is one clear line."""

import json
import re
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from typer.testing import CliRunner

from treevae import Tree, TreeVAE
from treevae.cli.app import app

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
    "options that are not for runs": changed(options={"verbose": True}),
    "a set that is a text": changed(set="yes"),
    "a demo that is a number": changed(demo=1),
    "samples that are a number": changed(samples=3),
}
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
