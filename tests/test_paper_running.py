"""Running cells: once, again after a sudden end, beside others, and on many machines."""

import os
import re
import signal
import socket
import subprocess
import sys
import threading
import time
from contextlib import suppress
from dataclasses import replace
from functools import partial
from pathlib import Path
from types import SimpleNamespace

import pytest
import torch
from cells import CPU, SCALE, SMALL, cell_of, ended, small, treevae

from treevae import TreeVAE
from treevae.data import load
from treevae.experiments import cluster
from treevae.experiments.cells import Job
from treevae.experiments.cluster import run_on_ray
from treevae.experiments.methods import METHODS, Method
from treevae.experiments.running import Begun, Busy, Failed, Finished, jobs_of, run, wanted
from treevae.experiments.store import Store
from treevae.progress import Progress
from treevae.records import parameters_of, record
from treevae.storage.lock import FolderLock, RunLockedError

# -- running --------------------------------------------------------------------------------------------------------


def test_what_is_missing_is_run_once(tmp_path, tiny):
    here = Store(tmp_path)
    told = ended(run(jobs_of(here, wanted(tiny, 2, SCALE)), here, CPU))
    assert all(isinstance(one, Finished) for one in told)
    assert [(one.cell.method, one.cell.seed) for one in told] == [
        ("agg", 0),
        ("agg", 0),
        ("treevae", 0),
        ("treevae", 1),
    ]
    assert [path.name for path in tmp_path.iterdir()] == ["records"]
    assert sorted(here.records.iterdir()) == sorted(one.path for one in told)
    assert jobs_of(here, wanted(tiny, 2, SCALE)) == []
    data = load("digits")
    alone = TreeVAE.recipe("digits", **SMALL, epochs=3, device="cpu").fit_seeds(data.x_train, [0, 1])
    expected = record(alone[1].fitted_, parameters_of(alone[1]), data, 1, "")
    kept = here.read(small(1))
    assert kept["scores_percent"] == expected["scores_percent"]
    assert kept["elbo"] == expected["elbo"]


def test_an_interrupted_fit_goes_on(tmp_path, monkeypatch):
    here, jobs = Store(tmp_path), jobs_of(Store(tmp_path), [small(0), small(1)])
    shown = []

    def show(self, event, run):
        shown.append(event)
        if len(shown) == 5:
            raise KeyboardInterrupt

    monkeypatch.setattr(Progress, "show", show)
    with pytest.raises(KeyboardInterrupt):
        list(run(jobs, here, CPU))
    assert here.started() == jobs
    writes = []

    def killed(cell, record, replaces):
        if writes:
            raise KeyboardInterrupt
        writes.append(cell)
        return Store.write(here, cell, record, replaces)

    with monkeypatch.context() as patch:  # now between two records
        patch.setattr(here, "write", killed)
        with pytest.raises(KeyboardInterrupt):
            list(run(jobs_of(here, [small(0), small(1)]), here, CPU))
    trained = len(shown)
    assert here.read(small(0)) is not None
    assert here.read(small(1)) is None
    list(run(jobs_of(here, [small(0), small(1)]), here, CPU))
    assert len(shown) == trained  # the finished fit was taken up, nothing was trained again
    assert here.read(small(1)) is not None
    assert not (tmp_path / "running").exists()


def test_a_job_that_fails_does_not_stop_the_others(tmp_path, monkeypatch):
    def diverge(model, job, data, place):
        raise FloatingPointError("the loss\nis not finite")

    monkeypatch.setitem(METHODS, "bad", Method("bad", METHODS["agg"].make, diverge))
    here = Store(tmp_path)
    bad = METHODS["bad"].cell("digits", {}, 1, 0)
    failed, finished = ended(run(jobs_of(here, [bad, cell_of(data="digits", method="agg")]), here, CPU))
    assert isinstance(failed, Failed)
    assert failed.why == "the loss is not finite"
    assert isinstance(finished, Finished)
    assert not (tmp_path / "running").exists()


def test_a_record_that_cannot_be_written_fails_its_job_and_leaves_the_state(tmp_path, monkeypatch):
    def not_finite(model, job, data, place):
        (place.folder / "state-a.safetensors").touch()
        yield job.cells[0], {"elbo": {"ELBO": float("nan")}}

    monkeypatch.setitem(METHODS, "bad", Method("bad", METHODS["agg"].make, not_finite))
    here, cell = Store(tmp_path), METHODS["bad"].cell("digits", {}, 1, 0)
    (failed,) = ended(run(jobs_of(here, [cell]), here, CPU))
    assert "is not written: its elbo are not all numbers" in failed.why
    assert here.read(cell) is None
    assert here.started() == [failed.job]


@pytest.mark.parametrize("on_ray", [False, True])
def test_a_record_that_is_refused_keeps_back_none_of_the_others_of_its_job(tmp_path, monkeypatch, on_ray):
    def one_not_finite(model, job, data, place):
        for cell in job.cells:
            yield cell, {"elbo": {"ELBO": -1.0 if cell.seed in (1, 2) else float("nan")}}

    monkeypatch.setattr("treevae.experiments.cluster._import_ray", RayAtOnce)
    bad = Method("bad", METHODS["agg"].make, one_not_finite, together=("seed",))
    monkeypatch.setitem(METHODS, "bad", bad)
    here, cells = Store(tmp_path), [bad.cell("digits", {}, 1, seed) for seed in range(4)]
    jobs = jobs_of(here, cells)
    assert len(jobs) == 1
    *finished, failed = ended(run_on_ray(jobs, here, CPU, "local") if on_ray else run(jobs, here, CPU))
    assert [one.cell.seed for one in finished] == [1, 2]
    why = (rf"the record of digits-bad-seed{k}-\w+ is not written: its elbo are not all numbers" for k in (0, 3))
    assert re.fullmatch("; ".join(why), failed.why)
    assert list(here.seeds(cells[0])) == [1, 2]


@pytest.mark.parametrize(
    ("error", "why"),
    [
        (torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 2 GiB"), r"^out of memory; .*--side-by-side 1"),
        (RuntimeError("DefaultCPUAllocator: can't allocate memory"), r"^out of memory; .*--side-by-side 1"),
        (MemoryError(), r"^out of memory; .*--side-by-side 1 or so \(MemoryError\)$"),
        (KeyError("left"), r"^KeyError: 'left'$"),
    ],
)
def test_no_error_of_one_fit_ends_the_others(tmp_path, monkeypatch, error, why):
    def fail(model, job, data, place):
        raise error

    monkeypatch.setitem(METHODS, "bad", Method("bad", METHODS["agg"].make, fail))
    here = Store(tmp_path)
    jobs = jobs_of(here, [METHODS["bad"].cell("digits", {}, 1, 0), cell_of(data="digits", method="agg")])
    failed, finished = ended(run(jobs, here, CPU))
    assert re.search(why, failed.why)
    assert isinstance(finished, Finished)


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


def test_nothing_is_left_of_a_job_that_was_killed_after_its_last_record(tmp_path):
    here, cell = Store(tmp_path), cell_of(data="digits", method="agg")
    folder = here.begin(Job((cell,)))
    for stale in (folder / "owner" / "lock", folder / "state-a.safetensors"):
        stale.parent.mkdir(exist_ok=True)
        stale.touch()
    here.write(cell, {"from": "the one that was killed"})
    assert jobs_of(here, [cell]) == []
    assert not (tmp_path / "running").exists()


def test_an_end_that_is_cut_short_leaves_no_state_without_its_job(tmp_path, monkeypatch):
    """Else the next fit of the same cells would take it for its own."""
    here, job = Store(tmp_path), Job((cell_of(data="digits", method="agg"),))
    listed, unlink, states = Path.iterdir, Path.unlink, ("state-a.safetensors", "state-b.safetensors")
    monkeypatch.setattr(Path, "iterdir", lambda path: iter(sorted(listed(path))))  # as some file system may list them
    for steps in range(4):
        folder, left = here.begin(job), list(range(steps))
        for name in states:
            (folder / name).touch()

        def killed(path, left=left):
            if not left:
                raise KeyboardInterrupt
            left.pop()
            unlink(path)

        with monkeypatch.context() as patch:
            patch.setattr(Path, "unlink", killed)
            with suppress(KeyboardInterrupt):
                here.finish(job)
        of_job = [(folder / name).exists() for name in states]
        assert (folder / "job.json").exists() == (steps < 3)
        assert sum(of_job) == max(0, 2 - steps)


def test_a_state_that_cannot_be_removed_keeps_its_job(tmp_path, monkeypatch):
    here, job, unlink = Store(tmp_path), Job((cell_of(data="digits", method="agg"),)), Path.unlink
    folder = here.begin(job)
    (folder / "state-a.safetensors").touch()

    def held(path):
        if path.name.startswith("state"):
            raise PermissionError(path)
        unlink(path)

    with monkeypatch.context() as patch:
        patch.setattr(Path, "unlink", held)
        here.finish(job)
    assert here.started() == [job]
    (folder / "job.json").unlink()  # as an earlier version may have left it
    assert [path.name for path in here.begin(job).iterdir()] == ["job.json"]


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


# -- many machines --------------------------------------------------------------------------------------------------


def test_without_ray_the_command_says_what_to_install(tmp_path, tiny, monkeypatch):
    monkeypatch.setitem(sys.modules, "ray", None)
    (line,) = treevae(
        "paper", "run", "tiny", "--method", "agg", "--results", tmp_path, "--ray", "local", code=1
    ).splitlines()[1:]
    assert line == "Error: --ray needs Ray: pip install 'treevae[ray]'"


def test_a_cluster_that_does_not_answer_is_said_at_once(tmp_path, tiny, monkeypatch):
    monkeypatch.setitem(sys.modules, "ray", SimpleNamespace(init=lambda *_, **__: pytest.fail("Ray would wait")))
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
    for address in (f"127.0.0.1:{port}", f"ray://127.0.0.1:{port}", "127.0.0.1:99999"):
        options = ("--method", "agg", "--results", tmp_path, "--ray", address)
        (line,) = treevae("paper", "run", "tiny", *options, code=1).splitlines()[1:]
        assert (
            line == f"Error: there is no Ray cluster at {address}; start one with ray start --head, or use --ray local"
        )


class AuthenticationError(Exception):
    """As Ray's, which is raised where no token is there."""


def refused_by_the_cluster():
    """As Ray raises it after some twenty tries."""
    cause = "Failed to connect to GCS. Last connection error: ray.exceptions.AuthenticationError: InvalidAuthToken"
    try:
        raise RuntimeError(cause)
    except RuntimeError as error:
        raise ConnectionError("Failed to connect to Ray cluster") from error


def without_a_token():
    raise AuthenticationError("Token authentication is enabled but no authentication token was found")


def not_a_cluster():
    raise ConnectionError("Failed to connect to Ray cluster") from RuntimeError("Failed to connect to GCS: timed out")


@pytest.mark.parametrize(
    ("fail", "said"),
    [
        (
            refused_by_the_cluster,
            "the Ray cluster at auto refuses the login: set RAY_AUTH_MODE=token and give its token",
        ),
        (without_a_token, "the Ray cluster at auto refuses the login: set RAY_AUTH_MODE=token and give its token"),
        (not_a_cluster, "there is no Ray cluster at auto; start one with ray start --head, or use --ray local"),
    ],
)
def test_a_cluster_that_refuses_the_login_is_told_from_none(tmp_path, tiny, monkeypatch, fail, said):
    monkeypatch.setitem(sys.modules, "ray", SimpleNamespace(init=lambda **_: fail()))
    options = ("--method", "agg", "--results", tmp_path, "--ray", "auto")
    (line,) = treevae("paper", "run", "tiny", *options, code=1).splitlines()[1:]
    assert line.startswith(f"Error: {said}")


class WorkerCrashedError(Exception):
    """As Ray's."""


class RayAtOnce:
    """Stands in for Ray: whatever is sent is done here, once it is asked for, after some workers have died at it."""

    init = shutdown = staticmethod(lambda *_, **__: None)
    get, wait = staticmethod(lambda done: done()), staticmethod(lambda some, num_returns: (some[:1], some[1:]))

    def __init__(self, deaths=0):
        self._deaths = deaths  # at each job

    def cluster_resources(self):
        return {}

    def remote(self, max_retries):
        def tried(work, *given):
            if self._deaths > max_retries:
                raise WorkerCrashedError("The worker died unexpectedly while executing this task.")
            return work(*given)

        return lambda work: SimpleNamespace(
            options=lambda **_: SimpleNamespace(remote=lambda *given: partial(tried, work, *given))
        )


def test_what_is_sent_to_a_cluster_is_said(tmp_path, tiny, monkeypatch):
    monkeypatch.setattr("treevae.experiments.cluster._import_ray", RayAtOnce)
    said = treevae("paper", "run", "tiny", "--method", "agg", "--results", tmp_path, "--ray", "local")
    assert re.findall(r"^sent digits-agg.*, seed 0 \((\d of \d)\)$", said, re.MULTILINE) == ["1 of 2", "2 of 2"]
    assert said.count("done: digits-agg") == 2


def test_a_damaged_record_fails_its_own_job_alone_on_a_cluster_too(tmp_path, monkeypatch):
    monkeypatch.setattr("treevae.experiments.cluster._import_ray", RayAtOnce)
    here, wanted = Store(tmp_path), [small(0), small(0, n_leaves=3)]
    here.records.mkdir()
    here.path(small(12)).write_text("half of a rec")  # of a seed that nobody asked for, beside those of the first job
    told = ended(run_on_ray(jobs_of(here, wanted), here, CPU, "local"))
    failed, finished = sorted(told, key=lambda one: isinstance(one, Finished))
    assert "is damaged" in failed.why
    assert finished.cell == wanted[1]
    assert not (tmp_path / "running").exists()  # nothing is held any more


def test_what_another_process_has_done_meanwhile_is_not_sent_to_a_cluster(tmp_path, monkeypatch):
    monkeypatch.setattr("treevae.experiments.cluster._import_ray", RayAtOnce)
    here, cell = Store(tmp_path), cell_of(data="digits", method="agg")
    jobs = jobs_of(here, [cell])
    here.write(cell, {"from": "elsewhere"})
    assert list(run_on_ray(jobs, here, CPU, "local")) == []
    assert not (tmp_path / "running").exists()


def test_a_worker_keeps_a_state_where_it_sees_the_store_alone(tmp_path, monkeypatch):
    seen = []

    def fit(model, job, data, place):
        seen.append(place.folder)
        yield job.cells[0], {}

    method = Method("seer", METHODS["agg"].make, fit)
    monkeypatch.setitem(METHODS, "seer", method)
    here, job = Store(tmp_path), Job((method.cell("digits", {}, 1, 0),))
    folder = here.begin(job)
    for there in (folder, tmp_path / "elsewhere", None):
        assert [cell for cell, _ in cluster._work(job, method, replace(CPU, folder=there), [])] == list(job.cells)
    assert seen == [folder, None, None]


def test_a_job_goes_to_other_workers_when_some_die_and_fails_when_all_do(tmp_path, monkeypatch):
    here, cell = Store(tmp_path), cell_of(data="digits", method="agg")
    monkeypatch.setattr("treevae.experiments.cluster._import_ray", lambda: RayAtOnce(deaths=100))
    (failed,) = ended(run_on_ray(jobs_of(here, [cell]), here, CPU, "local"))
    assert "worker died" in failed.why
    monkeypatch.setattr("treevae.experiments.cluster._import_ray", lambda: RayAtOnce(deaths=3))
    begun, finished = run_on_ray(jobs_of(here, [cell]), here, CPU, "local")
    assert isinstance(begun, Begun)
    assert finished.cell == cell


def test_a_job_that_has_ended_is_let_go_while_others_run_on_a_cluster(tmp_path, monkeypatch):
    monkeypatch.setattr("treevae.experiments.cluster._import_ray", RayAtOnce)
    here, cells = Store(tmp_path), [cell_of(data="digits", method="agg", n_leaves=n) for n in (3, 4)]
    jobs = [Job((cell,)) for cell in cells]
    held = []  # of each job, at each end of one
    for one in run_on_ray(jobs, here, CPU, "local"):
        if isinstance(one, Finished):
            held.append([is_held(job, Store(tmp_path)) for job in jobs])
    assert held == [[True, True], [False, True]]  # a job that ends is let go once its end is told


def is_held(job, store):
    """Whether a process works on a job."""
    try:
        with store.alone(job):
            return False
    except RunLockedError:
        return True


@pytest.mark.slow
def test_a_command_that_is_killed_goes_on_to_the_same_record(tmp_path):
    options = ("--method", "treevae", "--seeds", "1", "--scale", str(SCALE), "--device", "cpu", "--results")
    command = [sys.executable, "-m", "treevae", "paper", "run", "digits", *options, tmp_path / "killed"]
    environment = os.environ | {
        "PYTHONPATH": os.pathsep.join(sys.path),
        "OMP_NUM_THREADS": str(torch.get_num_threads()),
    }
    with subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, env=environment) as killed:
        while not list((tmp_path / "killed").glob("running/*/state-?.safetensors")):
            assert killed.poll() is None  # the fit takes seconds once there is a state
            time.sleep(0.01)
        killed.kill()
    cell = cell_of(0, SCALE, "digits")
    assert Store(tmp_path / "killed").read(cell) is None
    said = treevae("paper", "run", "digits", *options, tmp_path / "killed")
    assert "Begun earlier, and goes on from its state" in said
    treevae("paper", "run", "digits", *options, tmp_path / "whole")
    ours, theirs = (Store(tmp_path / name).read(cell) for name in ("killed", "whole"))
    assert ours["elbo"] == theirs["elbo"]
    assert ours["scores_percent"] == theirs["scores_percent"]
    assert not (tmp_path / "killed" / "running").exists()


@pytest.mark.slow
def test_a_worker_that_is_killed_loses_no_cell(tmp_path):
    """Two workers of a cluster on this machine; one is killed while it trains, and its cell goes on elsewhere."""
    pytest.importorskip("ray")
    here = Store(tmp_path)
    wanted = [small(seed) for seed in range(4)]
    killed = []

    def kill_one() -> None:
        while not killed:
            for lock in tmp_path.glob("running/*/lock"):
                pid = lock.read_text().split()[:1]
                if pid and any(lock.parent.glob("state-?.safetensors")):
                    os.kill(int(pid[0]), signal.SIGKILL)
                    killed.append(lock.parent.name)
                    return
            time.sleep(0.01)

    threading.Thread(target=kill_one, daemon=True).start()
    told = ended(run_on_ray(jobs_of(here, wanted, side_by_side=1), here, CPU, "local", workers=2))
    assert killed
    assert all(isinstance(one, Finished) for one in told)
    assert sorted(one.cell.seed for one in told) == [0, 1, 2, 3]
    assert [path.name for path in tmp_path.iterdir()] == ["records"]
    assert sorted(path.stem for path in Store(tmp_path).records.iterdir()) == sorted(cell.name for cell in wanted)
    assert jobs_of(here, wanted) == []
