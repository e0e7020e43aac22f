"""Running cells: once, and again after an error or a sudden end."""

import os
import re
import subprocess
import sys
import time
from contextlib import suppress
from pathlib import Path

import pytest
import torch
from cells import CPU, SCALE, SMALL, cell_of, ended, small, treevae
from clusters import RayAtOnce

from treevae import TreeVAE
from treevae.data import load
from treevae.experiments.cells import Job
from treevae.experiments.cluster import run_on_ray
from treevae.experiments.methods import METHODS, Method
from treevae.experiments.running import Failed, Finished, jobs_of, run, wanted
from treevae.experiments.store import Store
from treevae.progress import Progress
from treevae.records import parameters_of, record

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


# -- many machines --------------------------------------------------------------------------------------------------


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
