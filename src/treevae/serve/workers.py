"""A few threads that ask the model, and a waiting line of bounded length in front of them."""

from __future__ import annotations

import asyncio
import os
import threading
from collections.abc import Callable, Coroutine
from concurrent.futures import ThreadPoolExecutor
from typing import Any, TypeVar

import torch

MOST_THREADS = 4
WAITING = 256  # requests that may wait for a thread
SECONDS = 60.0  # that a request may wait and run
T = TypeVar("T")


class BusyError(Exception):
    """There is no room in the waiting line, or the wait was too long."""


class ClientGoneError(Exception):
    """Whoever asked no longer listens."""


class Workers:
    """Runs jobs in threads, so that a slow one never stops the server from answering others.

    Every thread computes alone (torch uses one thread in it), so that answers do not depend on how many run at once.

    Parameters
    ----------
    threads : int, optional
        By default as many as there are processors, at most 4.
    waiting : int
        Jobs that may wait for a thread; more are refused at once.
    seconds : float
        After so long a job is given up: taken out of the line or, once it runs, left to end unheard.
    """

    def __init__(self, threads: int | None = None, waiting: int = WAITING, seconds: float = SECONDS) -> None:
        threads = threads or min(MOST_THREADS, os.cpu_count() or 1)
        self._seconds = seconds
        self._room = threading.Semaphore(threads + waiting)
        self._pool = ThreadPoolExecutor(threads, "treevae-explore", initializer=torch.set_num_threads, initargs=(1,))

    async def run(self, job: Callable[[], T], gone: Callable[[], Coroutine[Any, Any, None]]) -> T:
        """What the job returns.

        What ``gone`` returns ends when nobody waits for the answer any more; the job is then taken out of the line.

        Raises
        ------
        BusyError
            The line is full, or the job took too long.
        ClientGoneError
            ``gone`` ended first.
        """
        if not self._room.acquire(blocking=False):
            raise BusyError
        future = self._pool.submit(job)
        future.add_done_callback(lambda _: self._room.release())
        left = asyncio.ensure_future(gone())
        answer = asyncio.wrap_future(future)
        both: set[asyncio.Future[Any]] = {answer, left}
        try:
            done, _ = await asyncio.wait(both, timeout=self._seconds, return_when=asyncio.FIRST_COMPLETED)
            if answer in done:
                return answer.result()
            raise ClientGoneError if left in done else BusyError
        finally:
            left.cancel()
            answer.cancel()  # also takes the job out of the line, if it still stands there

    def close(self) -> None:
        """Let running jobs end, and take no more."""
        self._pool.shutdown(wait=False, cancel_futures=True)
