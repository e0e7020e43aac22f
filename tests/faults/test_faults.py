"""A fit that is killed, starved or tampered with ends as if nothing had happened, or says what is wrong."""

import errno
import json
import logging
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import numpy as np
import pytest
import torch

from treevae import TreeVAE, load
from treevae.storage import tensors as checkpoint
from treevae.storage.differences import ChangedRunError
from treevae.storage.lock import RunLockedError
from treevae.storage.states import STATES, StateFolder
from treevae.storage.tensors import ModelFileError
from treevae.training import loop
from treevae.training.engine import Stepper
from treevae.training.grove import Grove

pytestmark = pytest.mark.skipif(sys.platform == "win32", reason="kills and locks are POSIX's")
HERE = Path(__file__).parent
sys.path.insert(0, str(HERE))
from fits import SETTINGS, samples  # noqa: E402

QUICK = SETTINGS | {"epochs": 2, "device": "cpu", "random_state": 0}
ONE_THREAD = os.environ | {"OMP_NUM_THREADS": "1", "PYTHONHASHSEED": "0"}


def weights(model: TreeVAE) -> dict[str, torch.Tensor]:
    return model.module_.state_dict()


def assert_same_model(ours: TreeVAE, theirs: TreeVAE) -> None:
    assert ours.tree_ == theirs.tree_
    assert ours.history_ == theirs.history_
    np.testing.assert_array_equal(ours.labels_, theirs.labels_)
    assert weights(ours).keys() == weights(theirs).keys()
    for name, value in weights(ours).items():
        assert torch.equal(value, weights(theirs)[name]), name


@pytest.fixture(scope="module")
def undisturbed() -> TreeVAE:
    return TreeVAE(**QUICK).fit(samples())


class Killed(BaseException):
    """Stands for a sudden end inside this process: nothing may catch it."""


def stop_after(pauses: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Let training end suddenly after so many pauses, in each of which its state is saved."""
    events = Grove.events

    def cut_short(grove):
        seen = 0
        for happened in events(grove):
            yield happened
            seen += happened is None
            if seen == pauses:
                raise Killed

    monkeypatch.setattr(loop, "PAUSE", 0)
    monkeypatch.setattr(Grove, "events", cut_short)
    monkeypatch.setattr(StateFolder, "due", lambda self: True)


def left_behind(folder: Path, monkeypatch: pytest.MonkeyPatch, pauses: int = 40) -> None:
    """A folder with the state of a fit that ended suddenly."""
    with monkeypatch.context() as patched:
        stop_after(pauses, patched)
        with pytest.raises(Killed):
            TreeVAE(**QUICK).fit(samples(), checkpoint=folder)


# -- killed -------------------------------------------------------------------------------------------------------


@pytest.mark.slow
def test_fifty_kills_lose_nothing(tmp_path):
    """kill -9 at 50 random moments; every fit ends bit for bit as one that was never disturbed."""
    said = subprocess.run(
        [sys.executable, HERE / "fits.py", tmp_path, "50", "0"],
        capture_output=True,
        text=True,
        timeout=400,
        env=ONE_THREAD,
    )
    assert said.returncode == 0, said.stderr
    kills, resumed, fits = (int(word) for word in said.stdout.split() if word.isdigit())
    assert kills >= 50
    assert resumed >= 15  # attempts that began in the middle of a training
    whole = TreeVAE(**SETTINGS, random_state=0, device="cpu").fit(samples())
    for i in range(fits):
        assert_same_model(load(tmp_path / f"fit-{i}" / "model.safetensors", device="cpu"), whole)


@pytest.fixture
def steps(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """The training steps taken, counted."""
    taken, plain = [], Stepper.steps
    monkeypatch.setattr(Stepper, "steps", lambda self, n: taken.append(n) or plain(self, n))
    return taken


@pytest.mark.parametrize("pauses", [1, 17, 95])
def test_a_sudden_end_at_any_pause(pauses, tmp_path, monkeypatch, undisturbed, steps):
    TreeVAE(**QUICK).fit(samples())
    all_of_them = sum(steps)
    steps.clear()
    left_behind(tmp_path, monkeypatch, pauses)
    before = sum(steps)
    steps.clear()
    again = TreeVAE(**QUICK).fit(samples(), checkpoint=tmp_path)
    assert_same_model(again, undisturbed)
    assert all_of_them - before <= sum(steps) <= all_of_them - before + 1  # nothing was trained twice


def test_a_finished_fit_is_taken_up_as_it_is(tmp_path, monkeypatch, undisturbed):
    TreeVAE(**QUICK).fit(samples(), checkpoint=tmp_path)
    monkeypatch.setattr(loop.Training, "run", lambda self: pytest.fail("must not train again"))
    assert_same_model(TreeVAE(**QUICK).fit(samples(), checkpoint=tmp_path), undisturbed)


def test_seeds_side_by_side_go_on_too(tmp_path, monkeypatch):
    whole = TreeVAE(**QUICK).fit_seeds(samples(), [3, 4])
    with monkeypatch.context() as patched:
        stop_after(50, patched)
        with pytest.raises(Killed):
            TreeVAE(**QUICK).fit_seeds(samples(), [3, 4], checkpoint=tmp_path)
    for ours, theirs in zip(TreeVAE(**QUICK).fit_seeds(samples(), [3, 4], checkpoint=tmp_path), whole, strict=True):
        assert_same_model(ours, theirs)


def test_a_fit_without_a_seed_goes_on_with_its_own(tmp_path, monkeypatch):
    settings = QUICK | {"random_state": None}
    with monkeypatch.context() as patched:
        stop_after(40, patched)
        with pytest.raises(Killed):
            TreeVAE(**settings).fit(samples(), checkpoint=tmp_path)
    seed = StateFolder(tmp_path).load().about["seeds"]
    TreeVAE(**settings).fit(samples(), checkpoint=tmp_path)
    assert StateFolder(tmp_path).load().about["seeds"] == seed


def nudged(x: torch.Tensor) -> torch.Tensor:
    return (x + 0.1 * torch.randn_like(x)).clamp(0, 1)


def twisted(x: torch.Tensor) -> torch.Tensor:
    return nudged(x.flip(1))


CONTRASTIVE = QUICK | {"augment": nudged, "contrastive_weight": 5.0}


def test_a_contrastive_fit_goes_on_in_a_subtree(tmp_path, monkeypatch):
    settings = CONTRASTIVE | {"epochs": 1}
    whole = TreeVAE(**settings).fit(samples())
    with monkeypatch.context() as patched:
        stop_after(40, patched)
        with pytest.raises(Killed):
            TreeVAE(**settings).fit(samples(), checkpoint=tmp_path)
    (task,) = StateFolder(tmp_path).load().about["grove"]["tasks"]
    assert task["stage"] == "subtree"
    assert_same_model(TreeVAE(**settings).fit(samples(), checkpoint=tmp_path), whole)


# -- changed ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"n_leaves": 3}, "n_leaves: 4 before, now 3"),
        ({"epochs": 3}, "epochs: 2 before, now 3"),
        ({"learning_rate": 0.01}, "learning_rate: 0.001 before, now 0.01"),
        ({"random_state": 1}, "seeds"),
    ],
)
def test_changed_parameters_are_refused_by_name(change, said, tmp_path, monkeypatch, undisturbed):
    left_behind(tmp_path, monkeypatch)
    before = {path.name: path.read_bytes() for path in tmp_path.iterdir()}
    with pytest.raises(ChangedRunError, match=said):
        TreeVAE(**QUICK | change).fit(samples(), checkpoint=tmp_path)
    assert {path.name: path.read_bytes() for path in tmp_path.iterdir()} == before
    assert_same_model(TreeVAE(**QUICK).fit(samples(), checkpoint=tmp_path), undisturbed)


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"augment": twisted}, "augment: 'float32 .*' before, now 'float32 "),
        ({"augment": None, "contrastive_weight": 0.0}, "augment: 'float32 .*' before, now absent"),
        ({"contrastive_weight": 6.0}, "contrastive_weight: 5.0 before, now 6.0"),
        ({"contrastive_loss": "routers"}, "contrastive_loss: 'both' before, now 'routers'"),
    ],
)
def test_other_views_and_other_contrastive_losses_are_refused(change, said, tmp_path, monkeypatch):
    with monkeypatch.context() as patched:
        stop_after(3, patched)
        with pytest.raises(Killed):
            TreeVAE(**CONTRASTIVE).fit(samples(), checkpoint=tmp_path)
    with pytest.raises(ChangedRunError, match=said):
        TreeVAE(**CONTRASTIVE | change).fit(samples(), checkpoint=tmp_path)


def test_changed_data_are_refused(tmp_path, monkeypatch):
    left_behind(tmp_path, monkeypatch)
    other = samples()
    other[7, 3] = 1 - other[7, 3]
    with pytest.raises(ChangedRunError, match="data"):
        TreeVAE(**QUICK).fit(other, checkpoint=tmp_path)


def test_what_does_not_change_the_model_may_change(tmp_path, monkeypatch, undisturbed):
    left_behind(tmp_path, monkeypatch)
    assert_same_model(TreeVAE(**QUICK | {"verbose": True}).fit(samples(), checkpoint=tmp_path), undisturbed)


# -- disks and files ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("number", [errno.ENOSPC, errno.EROFS], ids=["full disk", "read-only"])
def test_a_save_that_fails_does_not_stop_training(number, tmp_path, monkeypatch, caplog, undisturbed):
    """The first save must work; if a later one fails, that is said, the last good state stays, and training goes on."""
    write, calls = checkpoint.save_file, []

    def failing(*arguments):
        calls.append(arguments)
        if len(calls) > 3:
            raise OSError(number, os.strerror(number))
        return write(*arguments)

    monkeypatch.setattr(checkpoint, "save_file", failing)
    monkeypatch.setattr(loop, "PAUSE", 0)
    monkeypatch.setattr(StateFolder, "due", lambda self: True)
    model = TreeVAE(**QUICK).fit(samples(), checkpoint=tmp_path)
    assert_same_model(model, undisturbed)
    assert len(calls) > 10
    assert "the state of training was not saved" in caplog.text
    assert str(tmp_path) in caplog.text
    monkeypatch.undo()
    assert_same_model(TreeVAE(**QUICK).fit(samples(), checkpoint=tmp_path), undisturbed)  # from the third save


@pytest.mark.parametrize("number", [errno.ENOSPC, errno.EROFS], ids=["full disk", "read-only"])
def test_a_folder_that_cannot_be_written_is_found_out_at_once(number, tmp_path, monkeypatch):
    def failing(*_):
        raise OSError(number, os.strerror(number))

    monkeypatch.setattr(checkpoint, "save_file", failing)
    monkeypatch.setattr(loop.Training, "run", lambda self: pytest.fail("must not train"))
    with pytest.raises(OSError, match=str(tmp_path)):
        TreeVAE(**QUICK).fit(samples(), checkpoint=tmp_path)


@pytest.mark.parametrize("damage", ["truncated", "flipped", "emptied"])
def test_a_damaged_state_is_passed_over_for_the_one_before(damage, tmp_path, monkeypatch, caplog, undisturbed):
    left_behind(tmp_path, monkeypatch)
    newest = StateFolder(tmp_path).load().path
    content = bytearray(newest.read_bytes())
    if damage == "flipped":
        content[len(content) // 2] ^= 1
    newest.write_bytes(content if damage == "flipped" else content[: len(content) // 2 if damage == "truncated" else 0])
    with caplog.at_level(logging.WARNING, "treevae"):
        again = TreeVAE(**QUICK).fit(samples(), checkpoint=tmp_path)
    assert newest.name in caplog.text
    assert_same_model(again, undisturbed)


def test_two_damaged_states_are_an_error_and_stay(tmp_path, monkeypatch):
    left_behind(tmp_path, monkeypatch)
    for name in STATES:
        (tmp_path / name).write_bytes(b"nothing")
    with pytest.raises(ModelFileError, match=STATES[0]):
        TreeVAE(**QUICK).fit(samples(), checkpoint=tmp_path)
    assert (tmp_path / STATES[0]).read_bytes() == b"nothing"


def test_a_state_that_does_not_fit_the_model_is_an_error(tmp_path, monkeypatch):
    left_behind(tmp_path, monkeypatch)
    with StateFolder(tmp_path) as folder:
        found = folder.load()
        for _ in STATES:
            folder.save(found.about, {name: value[:-1] for name, value in found.tensors.items()})
    with pytest.raises(ModelFileError, match="does not hold together"):
        TreeVAE(**QUICK).fit(samples(), checkpoint=tmp_path)


def test_a_second_process_on_the_same_run_is_refused(tmp_path):
    with StateFolder(tmp_path), pytest.raises(RunLockedError, match=str(os.getpid())):
        TreeVAE(**QUICK).fit(samples(), checkpoint=tmp_path)


# -- the command line ---------------------------------------------------------------------------------------------


@contextmanager
def listening_to_interrupts() -> Iterator[None]:
    """Inside, processes begin as a terminal's do: a shell's background jobs, and all they start, ignore Ctrl-C."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)


def command(*arguments: object) -> list[str]:
    return [sys.executable, "-c", "from treevae.cli.app import app; app()", *map(str, arguments)]


@pytest.mark.slow
def test_ctrl_c_saves_says_how_to_go_on_and_resume_ends_the_same(tmp_path):
    np.save(tmp_path / "x.npy", samples())
    options = ["--n-leaves", 4, "--max-depth", 2, "--epochs", 12, "--n-init", 2]
    options += ["--device", "cpu", "--batch-size", 32, "--save-every", 0]
    whole = command("fit", tmp_path / "x.npy", "-o", tmp_path / "whole", *options)
    subprocess.run(whole, check=True, capture_output=True, timeout=300, env=ONE_THREAD)

    run = tmp_path / "run"
    with listening_to_interrupts():
        begun = subprocess.Popen(
            command("fit", tmp_path / "x.npy", "-o", run, *options),
            stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, env=ONE_THREAD,
        )  # fmt: skip
    try:
        deadline = time.monotonic() + 300
        while not all((run / name).exists() for name in STATES):  # the second is written while it trains
            assert begun.poll() is None, begun.stdout.read()
            assert time.monotonic() < deadline
            time.sleep(0.05)
        begun.send_signal(signal.SIGINT)
        said, _ = begun.communicate(timeout=60)
    finally:
        begun.kill()
    assert begun.returncode == 130, said
    assert f"Go on with: treevae fit --resume {run}" in said
    assert "Traceback" not in said

    again = subprocess.run(command("fit", "--resume", run), capture_output=True, text=True, timeout=300, env=ONE_THREAD)
    assert again.returncode == 0, again.stderr
    assert not any((run / name).exists() for name in STATES)
    for name in ("labels.csv", "tree.json"):
        assert (run / name).read_bytes() == (tmp_path / "whole" / name).read_bytes()
    assert_same_model(load(run / "model.safetensors"), load(tmp_path / "whole" / "model.safetensors"))
    assert json.loads((run / "run.json").read_text())["options"]["n_leaves"] == 4
