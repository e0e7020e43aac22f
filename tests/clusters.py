"""A stand-in for Ray, and whether a process works on a job, for the tests of running cells."""

from functools import partial
from types import SimpleNamespace

from treevae.storage.lock import RunLockedError


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


def is_held(job, store):
    """Whether a process works on a job."""
    try:
        with store.alone(job):
            return False
    except RunLockedError:
        return True
