"""Running cells on many machines: a cluster that refuses, workers that die."""

import os
import re
import signal
import socket
import sys
import threading
import time
from dataclasses import replace
from types import SimpleNamespace

import pytest
from cells import CPU, cell_of, ended, small, treevae
from clusters import RayAtOnce, is_held

from treevae.experiments import cluster
from treevae.experiments.cells import Job
from treevae.experiments.cluster import run_on_ray
from treevae.experiments.methods import METHODS, Method
from treevae.experiments.running import Begun, Finished, jobs_of
from treevae.experiments.store import Store


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
