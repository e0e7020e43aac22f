"""When to save: so often that little is lost, so seldom that it costs little."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager


class Every:
    """When to save: so many seconds after the last save ended, and so that saving takes at most a share of the time.

    Parameters
    ----------
    seconds : float
        Least time between the end of a save and the next.
    share : float
        Most of the time that saves may take: the next save waits until the last is no more than that.
    clock : callable
        Gives seconds that never run back.
    """

    def __init__(self, seconds: float = 60.0, share: float = 0.02, clock: Callable[[], float] = time.monotonic) -> None:
        if not seconds >= 0:
            raise ValueError(f"seconds={seconds!r} must be 0 or more")
        if not 0 < share <= 1:
            raise ValueError(f"share={share!r} must be above 0 and at most 1")
        self.seconds, self.share = seconds, share
        self._clock, self._ended, self._took = clock, clock(), 0.0

    def due(self) -> bool:
        """Whether it is time to save."""
        return self._clock() - self._ended >= max(self.seconds, self._took / self.share)

    @contextmanager
    def measured(self) -> Iterator[None]:
        """Around a save, to see how long it takes; one that fails counts too."""
        began = self._clock()
        try:
            yield
        finally:
            self._ended = self._clock()
            self._took = self._ended - began
