"""The folder of a run: what is saved is never lost, and what is damaged is never taken for whole."""

import errno
import json
import logging
import os
import random
import select
import signal
import subprocess
import sys
import time

import numpy as np
import pytest
import torch
from safetensors.torch import save_file

from treevae.storage import states as runfolder
from treevae.storage import tensors as checkpoint
from treevae.storage import writing
from treevae.storage.states import (
    STATES,
    ChangedRunError,
    Every,
    RunFolder,
    RunLockedError,
    check_same,
    differences,
    fingerprint,
)
from treevae.storage.tensors import ModelFileError

resource = pytest.importorskip("resource", reason="kills and limits are POSIX's")
NAMES = ["state-a.safetensors", "state-b.safetensors"]


def tensors_of(number, size=300):
    """Tensors that tell which state they belong to."""
    return {
        "weight": torch.full((size, 10), float(number)),
        "half": torch.arange(size, dtype=torch.bfloat16) + number,
        "step": torch.tensor(number),
    }


def save(folder, number, size=300):
    return folder.save({"epoch": number, "history": [number] * 5, "loss": number / 3}, tensors_of(number, size))


def is_whole(state, number, size=300):
    expected = tensors_of(number, size)
    return (
        state.number == number
        and state.about == {"epoch": number, "history": [number] * 5, "loss": number / 3}
        and state.tensors.keys() == expected.keys()
        and all(
            torch.equal(state.tensors[name], expected[name]) and state.tensors[name].dtype == expected[name].dtype
            for name in expected
        )
    )


def files(path):
    return sorted(file.name for file in path.iterdir())


@pytest.fixture
def warned(caplog):
    caplog.set_level(logging.WARNING, "treevae")
    return lambda: [record.getMessage() for record in caplog.records if record.name == "treevae"]


def child(work):
    """Fork; the child does work(write end of a pipe) and ends. Gives its pid and the read end."""
    reading, writing = os.pipe()
    pid = os.fork()
    if pid:
        os.close(writing)
        return pid, reading
    status = 1
    try:
        os.close(reading)
        work(writing)
        status = 0
    except BaseException as error:
        os.write(writing, repr(error).encode())
    finally:
        os._exit(status)


def said_by(work):
    """What a child that ran to its end wrote."""
    pid, reading = child(work)
    with os.fdopen(reading) as file:
        said = file.read()
    _, status = os.waitpid(pid, 0)
    assert status == 0, said
    return said


# -- save and load --------------------------------------------------------------------------------------------------


def test_an_empty_folder_has_no_state(tmp_path):
    assert RunFolder(tmp_path / "a" / "b").load() is None
    assert (tmp_path / "a" / "b").is_dir()


def test_the_last_state_comes_back(tmp_path, warned):
    with RunFolder(tmp_path) as folder:
        for number in range(1, 6):
            assert save(folder, number) == number
            assert is_whole(folder.load(), number)
            assert is_whole(RunFolder(tmp_path).load(), number)  # reading needs no lock
    with RunFolder(tmp_path) as folder:
        assert save(folder, 6) == 6  # goes on counting without being asked to load
    assert is_whole(RunFolder(tmp_path).load(), 6)
    assert files(tmp_path) == NAMES
    assert warned() == []


def test_the_state_before_is_kept(tmp_path):
    with RunFolder(tmp_path) as folder:
        for number in range(1, 5):
            save(folder, number)
            newest = folder.load().path
            if number > 1:
                (before,) = [path for path in tmp_path.glob("state-*") if path != newest]
                assert checkpoint.read(before)[0]["number"] == number - 1


def test_a_state_may_use_any_names_and_tensors_that_share_memory(tmp_path):
    x = torch.arange(6.0)
    tensors = {"a": x, "b": x, "c": x[2:4], "d": x.reshape(2, 3).T, "number": torch.empty(0, 3)}
    with RunFolder(tmp_path) as folder:
        folder.save({"format": "mine", "number": None, "state": [float("inf")]}, tensors)
        state = folder.load()
    assert state.about == {"format": "mine", "number": None, "state": [float("inf")]}
    assert all(torch.equal(state.tensors[name], value) for name, value in tensors.items())


def test_a_loaded_state_does_not_depend_on_its_file(tmp_path):
    with RunFolder(tmp_path) as folder:
        save(folder, 1)
        state = folder.load()
        with open(state.path, "r+b") as file:  # in place, unlike a save
            file.truncate(0)
    assert is_whole(state, 1)


def test_what_is_not_json_is_refused_and_nothing_is_lost(tmp_path):
    with RunFolder(tmp_path) as folder:
        save(folder, 1)
        with pytest.raises(TypeError, match="not JSON serializable"):
            folder.save({"x": object()}, {})
        assert is_whole(folder.load(), 1)
        assert files(tmp_path) == ["lock", NAMES[0]]


def test_clear_leaves_all_but_the_states(tmp_path):
    (tmp_path / "labels.csv").write_text("1")
    with RunFolder(tmp_path) as folder:
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
    folder = RunFolder(tmp_path)
    with pytest.raises(RuntimeError, match="to save, enter the folder"):
        save(folder, 1)
    with pytest.raises(RuntimeError, match="to clear it, enter the folder"):
        folder.clear()


# -- kill -9 --------------------------------------------------------------------------------------------------------


def keep_saving(path, size):
    """Work for a child: save numbered states for ever, reporting each."""

    def work(writing):
        with RunFolder(path) as folder:
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
        state = RunFolder(tmp_path).load()
        assert state.number in (reported[-1], reported[-1] + 1)  # killed between the save and the report
        assert is_whole(state, state.number, size)
        last = state.number
    with RunFolder(tmp_path) as folder:  # and no lock is left behind
        save(folder, last + 1, size)
        save(folder, last + 2, size)
    assert files(tmp_path) == NAMES  # nor a part of a file


def die(*_):
    os.kill(os.getpid(), signal.SIGKILL)
    signal.pause()


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
        with RunFolder(tmp_path) as folder:
            for number in (1, 2, 3):
                save(folder, number)
            setattr(where, name, instead)
            save(folder, 4)

    pid, reading = child(work)
    assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == -signal.SIGKILL, os.read(reading, 1000)
    os.close(reading)
    with RunFolder(tmp_path) as folder:
        assert is_whole(folder.load(), left)
        assert save(folder, left + 1) == left + 1
        assert is_whole(folder.load(), left + 1)
    assert warned() == []


# -- damage ---------------------------------------------------------------------------------------------------------


@pytest.fixture
def two(tmp_path):
    """A folder with states 1 and 2."""
    with RunFolder(tmp_path) as folder:
        save(folder, 1)
        save(folder, 2)
    return RunFolder(tmp_path)


def test_a_state_cut_short_falls_back_to_the_one_before(two, warned):
    newest = two.load().path
    whole = newest.read_bytes()
    lengths = (0, 1, 7, 8, 100, len(whole) // 2, len(whole) - 1)
    for length in lengths:
        newest.write_bytes(whole[:length])
        assert is_whole(two.load(), 1)
    assert len(warned()) == len(lengths)
    assert all(str(newest) in text and "cut short" in text for text in warned())
    assert all("goes on from state 1 in state-a.safetensors" in text for text in warned())


def test_flipped_bits_in_tensors_fall_back_to_the_one_before(two, warned):
    newest = two.load().path
    whole = newest.read_bytes()
    begin, chance = 8 + int.from_bytes(whole[:8], "little"), random.Random(0)
    places = [begin, len(whole) - 1, *(chance.randrange(begin, len(whole)) for _ in range(50))]
    for place in places:
        spoilt = bytearray(whole)
        spoilt[place] ^= 1 << chance.randrange(8)
        newest.write_bytes(spoilt)
        assert is_whole(two.load(), 1)
    assert len(warned()) == len(places)
    assert all(f"{newest} is damaged" in text for text in warned())


def test_flipped_bits_in_the_header_never_give_another_state(two):
    newest = two.load().path
    whole = newest.read_bytes()
    fell_back = 0
    end = 8 + int.from_bytes(whole[:8], "little")
    for place in range(end):
        spoilt = bytearray(whole)
        spoilt[place] ^= 1 << place % 8
        newest.write_bytes(spoilt)
        state = two.load()
        if not is_whole(state, 2):  # the name of the checksum was hit, which leaves a whole state without one
            assert is_whole(state, 1)
            fell_back += 1
    assert fell_back >= end - len("crc32")


def test_a_damaged_state_is_the_next_to_be_replaced(two):
    newest = two.load().path
    newest.write_bytes(b"")
    with RunFolder(two.path) as folder:
        assert save(folder, 2) == 2
        assert is_whole(folder.load(), 2)
        assert checkpoint.read(two.path / NAMES[0])[0]["number"] == 1


def test_if_no_state_can_be_read_it_says_so(two):
    for name, spoil in zip(NAMES, (b"", b"x" * 100), strict=True):
        (two.path / name).write_bytes(spoil)
    with pytest.raises(ModelFileError) as caught:
        two.load()
    for text in (str(two.path), *NAMES, "Bring a whole copy of one back, or remove", "to start anew"):
        assert text in str(caught.value)
    with RunFolder(two.path) as folder:
        folder.clear()
        assert folder.load() is None


def test_a_state_that_the_system_cannot_read_is_passed_over(two, warned, monkeypatch):
    newest, read = two.load().path, checkpoint.read

    def bad_sector(path):
        if path == newest:
            raise OSError(errno.EIO, os.strerror(errno.EIO))
        return read(path)

    monkeypatch.setattr(checkpoint, "read", bad_sector)
    assert is_whole(two.load(), 1)
    assert f"{newest} cannot be read: Input/output error" in warned()[0]


def test_a_model_is_no_state(tmp_path):
    checkpoint.write(tmp_path / NAMES[0], {"tree": 1}, {})
    with pytest.raises(ModelFileError, match="not the state of a run"):
        RunFolder(tmp_path).load()


def test_files_without_a_checksum_are_read(tmp_path):
    save_file({"a": torch.arange(3)}, tmp_path / "old", {"treevae": json.dumps({"format": 1, "x": 2})})
    about, tensors = checkpoint.read(tmp_path / "old")
    assert about == {"x": 2}
    assert tensors["a"].tolist() == [0, 1, 2]


def test_a_damaged_model_is_refused(tmp_path):
    checkpoint.write(tmp_path / "model", {"x": 2}, {"a": torch.zeros(100)})
    whole = (tmp_path / "model").read_bytes()
    (tmp_path / "model").write_bytes(whole[:-1] + b"\1")
    with pytest.raises(ModelFileError, match=r"model is damaged: its checksum is \w{8}, but it was written with \w{8}"):
        checkpoint.read(tmp_path / "model")


# -- full disks and folders that cannot be written ------------------------------------------------------------------


class Full:
    """A file on a disk that is full after the first bytes."""

    def __init__(self, path, mode):
        self.file = open(path, mode)  # noqa: SIM115 - closed by __exit__

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.file.close()

    def write(self, data):
        self.file.write(data[:100])
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))


def test_a_full_disk_keeps_the_last_state(two, monkeypatch):
    with RunFolder(two.path) as folder:
        monkeypatch.setattr(checkpoint, "open", Full, raising=False)
        with pytest.raises(OSError, match="No space left on device") as caught:
            save(folder, 3)
        assert caught.value.errno == errno.ENOSPC
        for text in (str(two.path), "The last good state is kept", "free some space"):
            assert text in str(caught.value)
        assert is_whole(folder.load(), 2)
        assert files(two.path) == ["lock", *NAMES]
        assert checkpoint.read(two.path / NAMES[0])[0]["number"] == 1  # not even the older was touched
        monkeypatch.undo()  # space was made
        assert save(folder, 3) == 3
        assert is_whole(folder.load(), 3)


@pytest.mark.parametrize("step", ["fsync", "replace"])
def test_a_failure_at_the_end_of_a_save_keeps_the_last_state(step, two, monkeypatch):
    def fail(*_):
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    with RunFolder(two.path) as folder:
        monkeypatch.setattr(os, step, fail)
        with pytest.raises(OSError, match="No space left on device"):
            save(folder, 3)
        monkeypatch.undo()
        assert is_whole(folder.load(), 2)
        assert files(two.path) == ["lock", *NAMES]


def test_a_real_limit_on_file_sizes_keeps_the_last_state(two):
    def work(writing):
        with RunFolder(two.path) as folder:
            signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
            resource.setrlimit(resource.RLIMIT_FSIZE, (2000, 2000))
            try:
                save(folder, 3)
            except OSError as error:
                os.write(writing, f"{error.errno} {error}".encode())

    said = said_by(work)
    assert said.startswith(f"{errno.EFBIG} cannot save the training state into {two.path}: File too large. The last")
    assert is_whole(two.load(), 2)
    assert files(two.path) == NAMES


def test_a_failed_first_save_does_not_speak_of_a_last_state(tmp_path, monkeypatch):
    monkeypatch.setattr(checkpoint, "open", Full, raising=False)
    with RunFolder(tmp_path) as folder, pytest.raises(OSError, match="What was in the folder is kept"):
        save(folder, 1)
    assert files(tmp_path) == []


def read_only(*_):
    raise OSError(errno.EROFS, os.strerror(errno.EROFS))


def test_a_read_only_folder_is_named(two, monkeypatch):
    with RunFolder(two.path) as folder:
        monkeypatch.setattr(checkpoint, "open", read_only, raising=False)
        with pytest.raises(OSError, match="Read-only file system") as caught:
            save(folder, 3)
        monkeypatch.undo()
        for text in (str(two.path), "The last good state is kept", "make the folder writable"):
            assert text in str(caught.value)
    monkeypatch.setattr(os, "open", read_only)
    with pytest.raises(OSError, match="cannot lock") as caught:
        RunFolder(two.path).__enter__()
    monkeypatch.undo()
    assert str(two.path) in str(caught.value)
    assert is_whole(two.load(), 2)


@pytest.mark.skipif(os.geteuid() == 0, reason="root may write everywhere")
def test_a_folder_without_permission_is_named(two):
    two.path.chmod(0o555)
    try:
        with pytest.raises(PermissionError, match="make the folder writable"):
            RunFolder(two.path).__enter__()
        assert is_whole(two.load(), 2)
    finally:
        two.path.chmod(0o755)


def test_a_folder_that_cannot_be_made_is_named(tmp_path):
    (tmp_path / "file").write_text("")
    for path in (tmp_path / "file", tmp_path / "file" / "run"):
        with pytest.raises(OSError, match="cannot make the run's folder") as caught:
            RunFolder(path)
        assert str(path) in str(caught.value)


def test_a_folder_that_was_removed_is_named(tmp_path):
    with RunFolder(tmp_path / "run") as folder:
        (tmp_path / "run" / "lock").unlink()
        (tmp_path / "run").rmdir()
        with pytest.raises(FileNotFoundError, match="there is no folder"):
            save(folder, 1)


def test_a_model_that_cannot_be_written_names_its_file(tmp_path, monkeypatch):
    checkpoint.write(tmp_path / "model", {"x": 1}, {})
    monkeypatch.setattr(checkpoint, "open", Full, raising=False)
    with pytest.raises(OSError, match="No space left on device; a file that was there is as it was") as caught:
        checkpoint.write(tmp_path / "model", {"x": 2}, {})
    assert str(tmp_path / "model") in str(caught.value)
    assert files(tmp_path) == ["model"]
    assert checkpoint.read(tmp_path / "model")[0] == {"x": 1}


# -- one at a time --------------------------------------------------------------------------------------------------


def test_a_second_holder_in_the_same_process_is_refused(tmp_path):
    with RunFolder(tmp_path) as folder:
        with pytest.raises(RunLockedError, match=f"in use by process {os.getpid()} on") as caught:
            RunFolder(tmp_path).__enter__()
        assert str(tmp_path) in str(caught.value)
        with pytest.raises(RunLockedError, match=f"in use by this process \\({os.getpid()}\\)"):
            folder.__enter__()
        save(folder, 1)
    with RunFolder(tmp_path) as folder:
        assert is_whole(folder.load(), 1)
    assert files(tmp_path) == [NAMES[0]]


def test_a_second_process_is_refused_until_the_first_is_killed(tmp_path):
    """Two processes that have nothing in common, unlike the forked ones of the other tests."""
    code = (
        "import sys, time\n"
        "from treevae.storage.states import RunFolder\n"
        "with RunFolder(sys.argv[1]):\n"
        "    print('locked', flush=True)\n"
        "    time.sleep(60)\n"
    )
    with subprocess.Popen([sys.executable, "-c", code, str(tmp_path)], stdout=subprocess.PIPE, text=True) as other:
        try:
            assert other.stdout.readline() == "locked\n"
            with pytest.raises(RunLockedError, match=f"in use by process {other.pid} on"):
                RunFolder(tmp_path).__enter__()
        finally:
            other.kill()
    assert files(tmp_path) == ["lock"]
    with RunFolder(tmp_path) as folder:
        save(folder, 1)


def test_the_lock_does_not_live_on_in_forked_children(tmp_path):
    def work(writing):
        with RunFolder(tmp_path) as folder:
            if not os.fork():
                assert folder._lock is None
                os.write(writing, f"{os.getpid()}\n".encode())  # it has closed its copy
                time.sleep(60)
                os._exit(0)
            die()

    pid, reading = child(work)
    os.waitpid(pid, 0)
    grandchild = int(os.read(reading, 100))
    os.close(reading)
    try:
        with RunFolder(tmp_path) as folder:
            save(folder, 1)
    finally:
        os.kill(grandchild, signal.SIGKILL)


def test_a_child_leaves_the_parents_lock_alone(tmp_path):
    with RunFolder(tmp_path) as folder:
        said_by(lambda writing: folder.__exit__(None, None, None))
        with pytest.raises(RunLockedError, match="in use by process"):
            RunFolder(tmp_path).__enter__()


def test_the_lock_of_one_who_came_after_it_was_removed_is_left_alone(tmp_path):
    with RunFolder(tmp_path):
        (tmp_path / "lock").unlink()
        other = RunFolder(tmp_path).__enter__()
    with pytest.raises(RunLockedError, match="in use by process"):
        RunFolder(tmp_path).__enter__()
    other.__exit__(None, None, None)
    assert files(tmp_path) == []


def test_many_processes_that_come_and_go_never_hold_it_together(tmp_path):
    """A lock that is removed by its holder must not be taken by one who opened it before."""

    def work(writing):
        signal.alarm(120)  # the end of one that never gets it
        held, until = 0, time.monotonic() + 1
        while time.monotonic() < until or not held:
            try:
                with RunFolder(tmp_path / "run"):
                    alone = os.open(tmp_path / "alone", os.O_CREAT | os.O_EXCL)  # fails if there is another
                    os.close(alone)
                    (tmp_path / "alone").unlink()
                    held += 1
            except RunLockedError:
                continue
        os.write(writing, str(held).encode())

    running = [child(work) for _ in range(4)]
    for pid, reading in running:
        with os.fdopen(reading) as file:
            said = file.read()
        assert os.waitpid(pid, 0)[1] == 0, said
        assert int(said) > 0


def test_without_locks_it_warns_and_goes_on(tmp_path, warned, monkeypatch):
    def no_locks(*_):
        raise OSError(errno.ENOSYS, os.strerror(errno.ENOSYS))

    monkeypatch.setattr(runfolder.fcntl, "flock", no_locks)
    with RunFolder(tmp_path) as folder:
        save(folder, 1)
    assert "no locks" in warned()[0]


# -- when to save ---------------------------------------------------------------------------------------------------


class Clock:
    now = 100.0

    def __call__(self):
        return self.now


def test_a_save_is_due_after_so_many_seconds():
    clock = Clock()
    every = Every(30, clock=clock)
    assert not every.due()
    clock.now += 29.9
    assert not every.due()
    clock.now += 0.2
    assert every.due()
    with every.measured():
        clock.now += 0.1
    assert not every.due()
    clock.now += 29.9
    assert not every.due()  # counted from the end of the save
    clock.now += 0.2
    assert every.due()


def test_slow_saves_are_rarer():
    clock = Clock()
    every = Every(30, clock=clock)
    saving, began = 0.0, clock.now
    for _ in range(100_000):
        clock.now += 0.5
        if every.due():
            with every.measured():
                clock.now += 7
                saving += 7
    assert 0.019 < saving / (clock.now - began) <= 0.02
    with every.measured():
        clock.now += 0.01
    clock.now += 31
    assert every.due()  # fast again


def test_saves_that_fail_count_too(tmp_path, monkeypatch):
    clock = Clock()
    with RunFolder(tmp_path, Every(10, clock=clock)) as folder:
        clock.now += 11
        assert folder.due()
        monkeypatch.setattr(checkpoint, "open", read_only, raising=False)
        with pytest.raises(OSError, match="Read-only"):
            save(folder, 1)
        assert not folder.due()
        monkeypatch.undo()
        clock.now += 11
        assert folder.due()
        save(folder, 1)
        assert not folder.due()


def test_every_refuses_what_makes_no_sense():
    for seconds in (-1, float("nan")):
        with pytest.raises(ValueError, match="seconds="):
            Every(seconds)
    with pytest.raises(ValueError, match="share="):
        Every(1, 0)


# -- is it the same run? --------------------------------------------------------------------------------------------

X = np.random.default_rng(0).normal(size=(50, 3, 4)).astype(np.float32)


@pytest.mark.parametrize("chunk", [1, 100, 2**24])
def test_arrays_maps_and_tensors_have_the_same_fingerprint(chunk, tmp_path):
    expected = fingerprint(X)
    assert expected.startswith("float32 50x3x4 ")
    np.save(tmp_path / "x.npy", X)
    np.save(tmp_path / "f.npy", np.asfortranarray(X))
    for x in (
        X,
        np.load(tmp_path / "x.npy", mmap_mode="r"),
        np.load(tmp_path / "f.npy", mmap_mode="r"),
        np.repeat(X, 2, 0)[::2],
        torch.from_numpy(X),
        torch.from_numpy(X).permute(2, 1, 0).contiguous().permute(2, 1, 0).requires_grad_(),
    ):
        assert fingerprint(x, chunk) == expected


@pytest.mark.gpu
def test_tensors_on_a_gpu_have_the_same_fingerprint():
    assert fingerprint(torch.from_numpy(X).cuda(), 100) == fingerprint(X)


def test_every_bit_changes_the_fingerprint():
    seen = {fingerprint(X[:4])}
    for place in range(8 * X[:4].nbytes):
        flipped = X[:4].copy()
        flipped.view(np.uint8).reshape(-1)[place // 8] ^= 1 << place % 8
        seen.add(fingerprint(flipped))
    assert len(seen) == 1 + 8 * X[:4].nbytes


def test_order_shape_and_type_change_the_fingerprint():
    zeros = np.zeros((4, 6), np.float32)
    same_bytes = (zeros, zeros.reshape(6, 4), zeros.reshape(24), zeros.reshape(4, 6, 1), zeros.view(np.int32))
    others = (zeros.view(np.float64), zeros[:3], zeros[:0], zeros[0, 0], zeros.astype(">f4"), X, X[::-1], -X)
    assert len({fingerprint(x) for x in same_bytes + others}) == len(same_bytes + others)


@pytest.mark.parametrize("dtype", ["uint8", "bool", "float16", "float64", "int64", "complex64"])
def test_fingerprints_of_other_types(dtype):
    x = (np.arange(30).reshape(10, 3) % 2).astype(dtype)
    assert fingerprint(x) == fingerprint(torch.from_numpy(x))
    assert fingerprint(x).startswith(f"{dtype} 10x3 ")


def test_fingerprints_of_what_numpy_or_torch_have_not():
    assert fingerprint(torch.zeros(3, dtype=torch.bfloat16)).startswith("bfloat16 3 ")
    assert fingerprint(np.array(["2020-01-01"], "datetime64[D]")).startswith("datetime64[D] 1 ")
    with pytest.raises(TypeError, match="holds Python objects"):
        fingerprint(np.array([None]))


def test_differences_are_named():
    before = {"n_leaves": 10, "arch": {"dims": (8, 8), "net": {"kind": "cnn"}}, "gone": None, "lr": 1, "same": "x"}
    now = {"n_leaves": 20, "arch": {"dims": [8, 4], "net": {"kind": "mlp"}}, "lr": 1.0, "same": "x", "new": True}
    assert differences(before, now) == [
        "n_leaves: 10 before, now 20",
        "arch.dims: [8, 8] before, now [8, 4]",
        "arch.net.kind: 'cnn' before, now 'mlp'",
        "gone: None before, now absent",
        "new: absent before, now True",
    ]
    assert differences({"a": {"b": 1}}, {"a": 1}) == ["a: {'b': 1} before, now 1"]
    assert differences({"a": 1}, {"a": True}) == ["a: 1 before, now True"]


def test_what_json_changes_is_no_difference():
    now = {"a": (1, (2, 3)), "b": float("nan"), "c": {1: [{"d": (4,)}]}, "e": [float("nan")]}
    assert differences(json.loads(json.dumps(now)), now) == []


def test_long_values_are_cut_in_differences():
    (text,) = differences({"a": "x" * 1000}, {"a": "y" * 1000})
    assert len(text) < 200
    assert differences({"a": "x" * 1000}, {"a": "x" * 999})[0].endswith("before, now another that begins alike")


def test_a_changed_run_is_refused_and_says_all(tmp_path):
    now = {"n_leaves": 10, "data": fingerprint(X)}
    check_same(dict(now), now, tmp_path)
    with pytest.raises(ChangedRunError) as caught:
        check_same({"n_leaves": 20, "data": fingerprint(X[:40])}, now, tmp_path)
    for text in (
        str(tmp_path),
        "n_leaves: 20 before, now 10",
        "data: 'float32 40x3x4 ",
        "another folder",
        "start anew",
    ):
        assert text in str(caught.value)
    assert "\n" not in str(caught.value)
    assert isinstance(caught.value, ValueError)


def test_names_of_the_files_stay():
    """A run that was begun by one version must be found by the next."""
    assert list(STATES) == NAMES
