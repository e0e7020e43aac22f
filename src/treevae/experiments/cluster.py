"""Runs jobs on a Ray cluster: each goes to a free worker, and one whose worker dies goes to another."""

from __future__ import annotations

import os
import socket
from collections.abc import Generator, Iterable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import replace
from typing import Any

from ..errors import RunLockedError
from .cells import Cell, Job
from .methods import METHODS, FitPlace, Method
from .running import Begun, Busy, Failed, JobEvent, fit, recorded, why_of
from .store import JOB, Store

LOCAL = "local"
PATIENCE = 5.0  # seconds for a cluster to answer
RETRIES = 5  # of a job whose worker has died
RECORDS = 128 * 2**20  # bytes of Ray's shared memory on this machine; records are small


def run_on_ray(
    jobs: Iterable[Job],
    store: Store,
    place: FitPlace,
    address: str,
    workers: int | None = None,
) -> Generator[JobEvent, None, None]:
    """Fit jobs on a cluster, and say what came of each cell, in the order in which they end.

    Records come back to this process, which alone writes into the store. Workers that see the store's folder keep the
    states of their fits there, so that a job goes on where its worker died; on others it starts anew.

    Parameters
    ----------
    address
        Of the cluster; "local" starts one on this machine, which ends with this call.
    workers
        How many on this machine; by default one for each core.
    """
    ray = _import_ray()
    os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")
    quiet: dict[str, Any] = {"logging_level": "ERROR", "log_to_driver": False}
    _check_somebody_listens(address)
    if address == LOCAL:
        ray.init("local", num_cpus=workers, include_dashboard=False, object_store_memory=RECORDS, **quiet)
    else:
        try:
            ray.init(address=address, **quiet)
        except Exception as error:
            if _of_login(error):
                raise ValueError(
                    f"the Ray cluster at {address} refuses the login: set RAY_AUTH_MODE=token and give its token in "
                    "RAY_AUTH_TOKEN, or as the file ~/.ray/auth_token"
                ) from error
            if isinstance(error, ConnectionError):
                raise _no_cluster(address) from error
            raise
    with ExitStack() as held, ExitStack() as cluster:
        cluster.callback(ray.shutdown)  # before the jobs are let go
        gpus = ray.cluster_resources().get("GPU", 0)
        task = ray.remote(max_retries=RETRIES)(_work)
        waiting = {}
        for job in jobs:
            lock = held.enter_context(ExitStack())
            try:
                folder = lock.enter_context(store.alone(job)).resolve()
                if store.has(job):  # another process was faster
                    store.finish(job)
                    lock.close()
                    continue
                beside = store.of_same_figures(job)
            except RunLockedError:
                yield Busy(job)
                continue
            except Exception as error:  # whatever it is, the other fits may do
                lock.close()
                yield Failed(job, why_of(error))
                continue
            method = METHODS[job.method]
            needs = {"num_gpus": 1} if method.gpu and gpus else {}
            waiting[task.options(**needs).remote(job, method, replace(place, folder=folder), beside)] = job, lock
            yield Begun(job)
        while waiting:
            (done,), _ = ray.wait(list(waiting), num_returns=1)
            job, lock = waiting.pop(done)
            try:
                yield from recorded(store, job, ray.get(done))
                store.finish(job)
            except Exception as error:
                yield Failed(job, why_of(getattr(error, "cause", None) or error))
            lock.close()


def _work(
    job: Job, method: Method, place: FitPlace, beside: Sequence[Mapping[str, Any]]
) -> list[tuple[Cell, dict[str, Any]]]:
    """The records of a job, on a worker."""
    shared = place.folder is not None and (place.folder / JOB).exists()
    return list(fit(job, method, place if shared else replace(place, folder=None), beside))


def _check_somebody_listens(address: str) -> None:
    """Refuse an address, host:port or ray://host:port, at which nobody answers; Ray itself would wait for long."""
    host, _, port = address.removeprefix("ray://").rpartition(":")
    if not host or not port.isdecimal():
        return  # a word that Ray knows, as auto
    try:
        socket.create_connection((host.strip("[]"), int(port)), PATIENCE).close()
    except (OSError, OverflowError) as error:  # the latter of a port above 65535
        raise _no_cluster(address) from error


def _of_login(error: Exception) -> bool:
    """Whether a token is missing or wrong; where a cluster says so, Ray has it in the text of a cause alone."""
    return "AuthenticationError" in f"{type(error).__name__} {error.__cause__}"


def _no_cluster(address: str) -> ValueError:
    return ValueError(f"there is no Ray cluster at {address}; start one with ray start --head, or use --ray local")


def _import_ray() -> Any:
    try:
        import ray
    except ImportError as error:
        raise ValueError("--ray needs Ray: pip install 'treevae[ray]'") from error
    return ray
