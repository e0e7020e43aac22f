"""The states of a run: what is damaged is never taken for whole, and a disk that refuses loses none."""

import errno
import json
import os
import random
import signal

import pytest
import torch
from numbered_states import NAMES, files, is_whole, read_only, said_by, save
from safetensors.torch import save_file

from treevae.storage import tensors as checkpoint
from treevae.storage.states import StateFolder
from treevae.storage.tensors import ModelFileError

resource = pytest.importorskip("resource", reason="kills and limits are POSIX's")


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
    with StateFolder(two.path) as folder:
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
    with StateFolder(two.path) as folder:
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
        StateFolder(tmp_path).load()


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
    with StateFolder(two.path) as folder:
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

    with StateFolder(two.path) as folder:
        monkeypatch.setattr(os, step, fail)
        with pytest.raises(OSError, match="No space left on device"):
            save(folder, 3)
        monkeypatch.undo()
        assert is_whole(folder.load(), 2)
        assert files(two.path) == ["lock", *NAMES]


def test_a_real_limit_on_file_sizes_keeps_the_last_state(two):
    def work(writing):
        with StateFolder(two.path) as folder:
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
    with StateFolder(tmp_path) as folder, pytest.raises(OSError, match="What was in the folder is kept"):
        save(folder, 1)
    assert files(tmp_path) == []


def test_a_read_only_folder_is_named(two, monkeypatch):
    with StateFolder(two.path) as folder:
        monkeypatch.setattr(checkpoint, "open", read_only, raising=False)
        with pytest.raises(OSError, match="Read-only file system") as caught:
            save(folder, 3)
        monkeypatch.undo()
        for text in (str(two.path), "The last good state is kept", "make the folder writable"):
            assert text in str(caught.value)
    monkeypatch.setattr(os, "open", read_only)
    with pytest.raises(OSError, match="cannot lock") as caught:
        StateFolder(two.path).__enter__()
    monkeypatch.undo()
    assert str(two.path) in str(caught.value)
    assert is_whole(two.load(), 2)


@pytest.mark.skipif(os.geteuid() == 0, reason="root may write everywhere")
def test_a_folder_without_permission_is_named(two):
    two.path.chmod(0o555)
    try:
        with pytest.raises(PermissionError, match="make the folder writable"):
            StateFolder(two.path).__enter__()
        assert is_whole(two.load(), 2)
    finally:
        two.path.chmod(0o755)


def test_a_folder_that_cannot_be_made_is_named(tmp_path):
    (tmp_path / "file").write_text("")
    for path in (tmp_path / "file", tmp_path / "file" / "run"):
        with pytest.raises(OSError, match="cannot make the run's folder") as caught:
            StateFolder(path).__enter__()
        assert str(path) in str(caught.value)


def test_a_folder_that_was_removed_is_named(tmp_path):
    with StateFolder(tmp_path / "run") as folder:
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
