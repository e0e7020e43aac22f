"""Running cells beside others: a cell is fitted by one process at a time."""

import os
import subprocess
import sys
from pathlib import Path

import pytest
from cells import CPU, SCALE, cell_of, treevae
from clusters import is_held

from treevae.experiments.cells import Job
from treevae.experiments.running import Begun, Busy, Finished, jobs_of, run, wanted
from treevae.experiments.store import Store
from treevae.storage.lock import FolderLock, RunLockedError


@pytest.mark.parametrize("method", ["agg", "treevae"])
def test_a_job_that_another_process_works_on_is_left_to_it(tmp_path, tiny, method):
    here, options = Store(tmp_path), ("--method", method, "--scale", SCALE, "--seeds", 1, "--results", tmp_path)
    job = jobs_of(here, wanted(tiny, 1, SCALE, None, [method]))[-1]
    with here.alone(job) as folder:
        (folder / "state-a.safetensors").touch()  # as a fit that runs has one
        said = treevae("paper", "run", "tiny", *options, "--device", "cpu", code=1)
        assert f"busy: {job.cells[0].about}, seed 0: another process is fitting it" in said
        assert "Begun earlier" not in said
        assert f"fitting {job.cells[0].about}, " not in said
        n_jobs = 2 if method == "agg" else 1
        assert f"Fits left to other processes: 1 of {n_jobs}, so not all is recorded: cells in {tmp_path}: " in said
        assert f": {n_jobs - 1} of {n_jobs}. Next: wait" in said
        assert here.read(job.cells[0]) is None
        (folder / "state-a.safetensors").unlink()
    said = treevae("paper", "run", "tiny", *options, "--device", "cpu")
    assert "busy" not in said
    assert here.read(job.cells[0]) is not None


def test_a_cell_is_fitted_by_one_process_at_a_time(tmp_path):
    """Though the jobs that it stands in may be others."""
    here, cells = Store(tmp_path), [cell_of(seed, data="digits", method="bisecting") for seed in range(3)]
    job = Job((cells[0], cells[1]))
    with here.alone(job):
        told = list(run([Job((cells[2], cells[1])), Job((cells[1],)), Job((cells[2],))], Store(tmp_path), CPU))
        assert {path.name for path in (tmp_path / "running").iterdir()} == {job.name, "locks"}  # nothing is left behind
        assert {path.name for path in (tmp_path / "running" / "locks").iterdir()} == {cell.name for cell in job.cells}
    assert [type(one) for one in told] == [Busy, Busy, Begun, Finished]
    assert [type(one) for one in run([Job((cells[1],))], here, CPU)] == [Begun, Finished]
    assert not (tmp_path / "running").exists()


CROWD = """
import os, sys, time
from cells import cell_of
from pathlib import Path
from treevae.experiments.cells import Job
from treevae.experiments.store import Store
from treevae.storage.lock import RunLockedError

folder, mine = Path(sys.argv[1]), int(sys.argv[2])
store, shared = Store(folder / "store"), cell_of(9, method="bisecting")
jobs = [Job((shared,)), Job((cell_of(mine, method="bisecting"), shared))]
(folder / f"ready{mine}").touch()
while len(list(folder.glob("ready*"))) < 4:
    time.sleep(0.01)
entered, end = 0, time.monotonic() + 3
while time.monotonic() < end or entered < 6:
    try:
        with store.alone(jobs[entered % 2]) as state:
            os.close(os.open(folder / "inside", os.O_CREAT | os.O_EXCL))  # fails if another one is inside
            (state / "state-a.safetensors").touch()
            os.unlink(folder / "inside")
            store.finish(jobs[entered % 2])
            entered += 1
    except RunLockedError:
        pass
"""


def test_of_a_crowd_of_processes_one_at_a_time_works_on_a_cell(tmp_path):
    command, here = [sys.executable, "-c", CROWD, str(tmp_path)], Path(__file__).parent
    path = os.pathsep.join([str(here), str(here.parent / "src")])
    crowd = [
        subprocess.Popen([*command, str(i)], stderr=subprocess.PIPE, text=True,
                         env=os.environ | {"PYTHONPATH": path})
        for i in range(4)
    ]  # fmt: skip
    try:
        said = [one.communicate(timeout=120) for one in crowd]
    finally:
        for one in crowd:
            one.kill()
    assert [(one.returncode, error) for one, (_, error) in zip(crowd, said, strict=True)] == [(0, "")] * 4
    assert not (tmp_path / "store" / "running").exists()


@pytest.mark.parametrize("error", [FileNotFoundError, FileExistsError])
def test_a_lock_whose_folder_another_process_removes_is_tried_again(tmp_path, monkeypatch, error):
    here, job, thwarted = Store(tmp_path), Job((cell_of(),)), set()

    def run_folder(path):
        if path not in thwarted:  # the first time
            thwarted.add(path)
            raise error(path)
        return FolderLock(path)

    monkeypatch.setattr("treevae.experiments.store.FolderLock", run_folder)
    with here.alone(job):
        assert len(thwarted) == 2  # the job's and the cell's
        assert is_held(job, Store(tmp_path))
    assert not (tmp_path / "running").exists()


def test_a_job_that_another_process_has_ended_meanwhile_is_there(tmp_path, tiny, monkeypatch):
    def elsewhere(store, job):
        for cell in job.cells:
            store.write(cell, {"scores_percent": {"DP": 1.0, "ACC": 2.0}})
        raise RunLockedError(job.name)

    monkeypatch.setattr(Store, "alone", elsewhere)
    said = treevae("paper", "run", "tiny", "--method", "agg", "--scale", SCALE, "--results", tmp_path)
    assert "busy: " in said
    assert "left to other processes" not in said
    assert f"Cells in {tmp_path}: all 2." in said


def test_a_job_that_ends_while_jobs_are_listed_is_left_out(tmp_path, monkeypatch):
    here = Store(tmp_path)
    job = Job((cell_of(),))
    (here.begin(job) / "state-a.safetensors").touch()
    read = Path.read_text
    monkeypatch.setattr(Path, "read_text", lambda path, **options: here.finish(job) or read(path, **options))
    assert here.started() == []


def test_a_job_that_another_process_has_done_meanwhile_is_left_out(tmp_path):
    here, cell = Store(tmp_path), cell_of(data="digits", method="agg")
    jobs = jobs_of(here, [cell])
    here.write(cell, {"from": "elsewhere"})
    assert list(run(jobs, here, CPU)) == []
