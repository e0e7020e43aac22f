"""The states of a run: what is saved comes back, at whatever moment the process is killed."""

import os
import random
import select
import signal
import time

import pytest
import torch
from numbered_states import NAMES, child, die, files, is_whole, save

from treevae.storage import tensors as checkpoint
from treevae.storage import writing
from treevae.storage.states import STATES, StateFolder

pytest.importorskip("resource", reason="kills and limits are POSIX's")


# -- save and load --------------------------------------------------------------------------------------------------


def test_an_empty_folder_has_no_state(tmp_path):
    assert StateFolder(tmp_path / "a" / "b").load() is None
    assert files(tmp_path) == []  # looking makes no folder
    with StateFolder(tmp_path / "a" / "b") as folder:
        assert folder.load() is None
    assert (tmp_path / "a" / "b").is_dir()


def test_the_last_state_comes_back(tmp_path, warned):
    with StateFolder(tmp_path) as folder:
        for number in range(1, 6):
            assert save(folder, number) == number
            assert is_whole(folder.load(), number)
            assert is_whole(StateFolder(tmp_path).load(), number)  # reading needs no lock
    with StateFolder(tmp_path) as folder:
        assert save(folder, 6) == 6  # goes on counting without being asked to load
    assert is_whole(StateFolder(tmp_path).load(), 6)
    assert files(tmp_path) == NAMES
    assert warned() == []


def test_the_state_before_is_kept(tmp_path):
    with StateFolder(tmp_path) as folder:
        for number in range(1, 5):
            save(folder, number)
            newest = folder.load().path
            if number > 1:
                (before,) = [path for path in tmp_path.glob("state-*") if path != newest]
                assert checkpoint.read(before)[0]["number"] == number - 1


def test_a_state_may_use_any_names_and_tensors_that_share_memory(tmp_path):
    x = torch.arange(6.0)
    tensors = {"a": x, "b": x, "c": x[2:4], "d": x.reshape(2, 3).T, "number": torch.empty(0, 3)}
    with StateFolder(tmp_path) as folder:
        folder.save({"format": "mine", "number": None, "state": [float("inf")]}, tensors)
        state = folder.load()
    assert state.about == {"format": "mine", "number": None, "state": [float("inf")]}
    assert all(torch.equal(state.tensors[name], value) for name, value in tensors.items())


def test_a_loaded_state_does_not_depend_on_its_file(tmp_path):
    with StateFolder(tmp_path) as folder:
        save(folder, 1)
        state = folder.load()
        with open(state.path, "r+b") as file:  # in place, unlike a save
            file.truncate(0)
    assert is_whole(state, 1)


def test_what_is_not_json_is_refused_and_nothing_is_lost(tmp_path):
    with StateFolder(tmp_path) as folder:
        save(folder, 1)
        with pytest.raises(TypeError, match="not JSON serializable"):
            folder.save({"x": object()}, {})
        assert is_whole(folder.load(), 1)
        assert files(tmp_path) == ["lock", NAMES[0]]


def test_clear_leaves_all_but_the_states(tmp_path):
    (tmp_path / "labels.csv").write_text("1")
    with StateFolder(tmp_path) as folder:
        save(folder, 1)
        save(folder, 2)
        (tmp_path / (NAMES[0] + ".part")).write_text("of a killed save")
        folder.clear()
        assert files(tmp_path) == ["labels.csv", "lock"]
        assert folder.load() is None
        assert save(folder, 1) == 1
        folder.clear()
        folder.clear()
    assert files(tmp_path) == ["labels.csv"]


def test_saving_and_clearing_need_the_lock(tmp_path):
    folder = StateFolder(tmp_path)
    with pytest.raises(RuntimeError, match="to save, enter the folder"):
        save(folder, 1)
    with pytest.raises(RuntimeError, match="to clear it, enter the folder"):
        folder.clear()


def test_names_of_the_files_stay():
    """A run that was begun by one version must be found by the next."""
    assert list(STATES) == NAMES


# -- kill -9 --------------------------------------------------------------------------------------------------------


def keep_saving(path, size):
    """Work for a child: save numbered states for ever, reporting each."""

    def work(writing):
        with StateFolder(path) as folder:
            state = folder.load()
            number = state.number if state else 0
            while True:
                number += 1
                save(folder, number, size)
                os.write(writing, f"{number}\n".encode())

    return work


def test_kill_at_any_moment_loses_no_reported_state(tmp_path):
    chance, size, last = random.Random(0), 20_000, 0  # 0.8 MB a state
    for _ in range(20):
        pid, reading = child(keep_saving(tmp_path, size))
        try:
            assert select.select([reading], [], [], 20)[0], "the child saved nothing"
            time.sleep(chance.uniform(0, 0.1))
        finally:
            os.kill(pid, signal.SIGKILL)
            os.waitpid(pid, 0)
        with os.fdopen(reading) as file:
            reported = [int(line) for line in file.read().split("\n")[:-1]]
        assert reported == list(range(reported[0], reported[-1] + 1))
        assert reported[0] > last
        state = StateFolder(tmp_path).load()
        assert state.number in (reported[-1], reported[-1] + 1)  # killed between the save and the report
        assert is_whole(state, state.number, size)
        last = state.number
    with StateFolder(tmp_path) as folder:  # and no lock is left behind
        save(folder, last + 1, size)
        save(folder, last + 2, size)
    assert files(tmp_path) == NAMES  # nor a part of a file


def half_then_die(tensors, path, metadata):
    path.write_bytes(checkpoint.save(tensors, metadata)[:5000])
    die()


def replace_then_die(*paths, replace=os.replace):
    replace(*paths)
    die()


@pytest.mark.parametrize(
    ("where", "name", "instead", "left"),
    [
        (checkpoint, "save", die, 3),
        (checkpoint, "save_file", half_then_die, 3),
        (os, "fsync", die, 3),
        (os, "replace", die, 3),
        (os, "replace", replace_then_die, 4),
        (writing, "sync_folder", die, 4),
    ],
)
def test_kill_at_each_step_of_a_save(where, name, instead, left, tmp_path, warned):
    def work(writing):
        with StateFolder(tmp_path) as folder:
            for number in (1, 2, 3):
                save(folder, number)
            setattr(where, name, instead)
            save(folder, 4)

    pid, reading = child(work)
    assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == -signal.SIGKILL, os.read(reading, 1000)
    os.close(reading)
    with StateFolder(tmp_path) as folder:
        assert is_whole(folder.load(), left)
        assert save(folder, left + 1) == left + 1
        assert is_whole(folder.load(), left + 1)
    assert warned() == []
