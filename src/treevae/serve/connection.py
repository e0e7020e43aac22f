"""uvicorn's HTTP connection, with patience that ends.

uvicorn waits for ever for a request that was begun and for a reader of its answer. Here a connection that has no
request under way, or whose client takes no bytes, is closed after some seconds; and there are only so many.
"""

from __future__ import annotations

import asyncio
from typing import Any

import h11
from uvicorn.protocols.http.h11_impl import H11Protocol

REQUEST_SECONDS = 10.0  # from the opening, or from the last answer, to the end of the next request's headers
STALLED_SECONDS = 20.0  # that a client may take its answer at less than SLOWEST
SLOWEST = 8192  # bytes a second
LOOK_EVERY = 1.0  # seconds
MOST_CONNECTIONS = 512
FULL = b'{"error": "too many connections; try again"}'
FULL_HEAD = (
    b"HTTP/1.1 503 Service Unavailable\r\ncontent-type: application/json\r\nretry-after: 1\r\nconnection: close\r\n"
    b"content-length: %d\r\n\r\n"
) % len(FULL)


class Connection(H11Protocol):
    """One client's connection."""

    _timer: asyncio.TimerHandle | None = None
    _idle = 0.0  # seconds without a request under way
    _stalled = 0.0  # seconds without progress in taking the answer
    _left = 0  # bytes that the client had not taken when last looked at

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """Begin, and begin to watch."""
        super().connection_made(transport)
        if len(self.connections) > MOST_CONNECTIONS:
            transport.write(FULL_HEAD + FULL)
            transport.close()
            return
        self._timer = self.loop.call_later(LOOK_EVERY, self._look)

    def connection_lost(self, exc: Exception | None) -> None:
        """End."""
        if self._timer is not None:
            self._timer.cancel()
        super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        """Take what came; a client that breaks the protocol in the middle of an answer is cut off."""
        try:
            super().data_received(data)
        except h11.LocalProtocolError:
            self.transport.abort()

    def on_response_complete(self) -> None:
        """Await the next request."""
        self._idle = 0.0
        super().on_response_complete()

    def _look(self) -> None:
        """Close what has waited too long."""
        left = self.transport.get_write_buffer_size()
        slow = left > 0 and left > self._left - SLOWEST * LOOK_EVERY
        self._stalled = self._stalled + LOOK_EVERY if slow and self._left else 0.0
        self._left = left
        waits = self.cycle is None or self.cycle.response_complete
        self._idle = self._idle + LOOK_EVERY if waits and not left else 0.0
        if self._stalled >= STALLED_SECONDS or self._idle >= REQUEST_SECONDS:
            self.transport.abort()
        else:
            self._timer = self.loop.call_later(LOOK_EVERY, self._look)


def settings() -> dict[str, Any]:
    """How uvicorn is configured: nothing that is not used, nothing that is told to strangers."""
    return {
        "http": Connection,
        "ws": "none",
        "lifespan": "off",
        "access_log": False,
        "log_level": "error",  # what clients do wrong is told to them
        "server_header": False,
        "proxy_headers": False,
        "timeout_keep_alive": 5,
        "timeout_graceful_shutdown": 3,
    }
