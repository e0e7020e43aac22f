"""One process at a time in a folder."""

import errno
import os
import signal
import subprocess
import sys
import time

import pytest
from numbered_states import NAMES, child, die, files, is_whole, said_by, save

from treevae.storage import lock as locks
from treevae.storage.lock import RunLockedError
from treevae.storage.states import StateFolder

pytest.importorskip("resource", reason="kills and limits are POSIX's")


def test_a_second_holder_in_the_same_process_is_refused(tmp_path):
    with StateFolder(tmp_path) as folder:
        with pytest.raises(RunLockedError, match=f"in use by process {os.getpid()} on") as caught:
            StateFolder(tmp_path).__enter__()
        assert str(tmp_path) in str(caught.value)
        with pytest.raises(RunLockedError, match=f"in use by this process \\({os.getpid()}\\)"):
            folder.__enter__()
        save(folder, 1)
    with StateFolder(tmp_path) as folder:
        assert is_whole(folder.load(), 1)
    assert files(tmp_path) == [NAMES[0]]


def test_a_second_process_is_refused_until_the_first_is_killed(tmp_path):
    """Two processes that have nothing in common, unlike the forked ones of the other tests."""
    code = (
        "import sys, time\n"
        "from treevae.storage.states import StateFolder\n"
        "with StateFolder(sys.argv[1]):\n"
        "    print('locked', flush=True)\n"
        "    time.sleep(60)\n"
    )
    with subprocess.Popen([sys.executable, "-c", code, str(tmp_path)], stdout=subprocess.PIPE, text=True) as other:
        try:
            assert other.stdout.readline() == "locked\n"
            with pytest.raises(RunLockedError, match=f"in use by process {other.pid} on"):
                StateFolder(tmp_path).__enter__()
        finally:
            other.kill()
    assert files(tmp_path) == ["lock"]
    with StateFolder(tmp_path) as folder:
        save(folder, 1)


def test_the_lock_does_not_live_on_in_forked_children(tmp_path):
    def work(writing):
        with StateFolder(tmp_path) as folder:
            if not os.fork():
                assert not folder.lock.held
                os.write(writing, f"{os.getpid()}\n".encode())  # it has closed its copy
                time.sleep(60)
                os._exit(0)
            die()

    pid, reading = child(work)
    os.waitpid(pid, 0)
    grandchild = int(os.read(reading, 100))
    os.close(reading)
    try:
        with StateFolder(tmp_path) as folder:
            save(folder, 1)
    finally:
        os.kill(grandchild, signal.SIGKILL)


def test_a_child_leaves_the_parents_lock_alone(tmp_path):
    with StateFolder(tmp_path) as folder:
        said_by(lambda writing: folder.__exit__(None, None, None))
        with pytest.raises(RunLockedError, match="in use by process"):
            StateFolder(tmp_path).__enter__()


def test_the_lock_of_one_who_came_after_it_was_removed_is_left_alone(tmp_path):
    with StateFolder(tmp_path):
        (tmp_path / "lock").unlink()
        other = StateFolder(tmp_path).__enter__()
    with pytest.raises(RunLockedError, match="in use by process"):
        StateFolder(tmp_path).__enter__()
    other.__exit__(None, None, None)
    assert files(tmp_path) == []


def test_many_processes_that_come_and_go_never_hold_it_together(tmp_path):
    """A lock that is removed by its holder must not be taken by one who opened it before."""

    def work(writing):
        signal.alarm(120)  # the end of one that never gets it
        held, until = 0, time.monotonic() + 1
        while time.monotonic() < until or not held:
            try:
                with StateFolder(tmp_path / "run"):
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

    monkeypatch.setattr(locks.fcntl, "flock", no_locks)
    with StateFolder(tmp_path) as folder:
        save(folder, 1)
    assert "no locks" in warned()[0]
