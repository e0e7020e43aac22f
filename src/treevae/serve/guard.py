"""What stands before every call: who may ask, from where, how much, and how slowly.

A body is read here, whole, before anything else happens: one that is too long, comes too slowly or never ends costs
neither a thread nor more memory than the bounds below. The rest of the server sees complete requests only.
"""

from __future__ import annotations

import asyncio
import hmac
import ipaddress
import json
import re
from collections.abc import Awaitable, Callable, MutableMapping
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import parse_qs

from starlette.datastructures import Headers, MutableHeaders

from .uploads import MOST_BYTES

Message = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[Message]]
Send = Callable[[Message], Awaitable[None]]
App = Callable[[Message, Receive, Send], Awaitable[None]]

HEADER_BYTES = 1 << 15
JSON_BYTES = 1 << 20  # of a body, but for uploads
UPLOADS = "/api/place/image"
BODY_SECONDS = 20.0  # that a body may take to arrive
HELD_BYTES = 128 << 20  # of all bodies that are arriving or waiting
DISCARDED = 64 << 20  # bytes read beyond the limit, so that a client that is still sending can read the answer
SAFE_METHODS = ("GET", "HEAD", "OPTIONS")
HOST = re.compile(r"(\[(?P<v6>[0-9a-f:.]+)\]|(?P<name>[^\s:\[\]@/]+))(:[0-9]{1,5})?")
LOCAL_NAMES = ("localhost", "localhost.localdomain")
HEADERS = {
    "x-content-type-options": "nosniff",
    "x-frame-options": "DENY",
    "referrer-policy": "no-referrer",
    "cross-origin-opener-policy": "same-origin",
    "cross-origin-resource-policy": "same-origin",
    "cache-control": "no-store",
    "content-security-policy": "default-src 'none'; frame-ancestors 'none'; base-uri 'none'; form-action 'none'",
}


class ClosedDoorError(Exception):
    """A request is not let in."""

    def __init__(self, status: int, why: str, headers: dict[str, str] | None = None) -> None:
        super().__init__(why)
        self.status, self.why, self.headers = status, why, headers or {}


@dataclass
class Door:
    """Who is let in.

    Parameters
    ----------
    host : str
        The address that the server listens on.
    token : str or None
        What a client must know; None where this machine alone can ask, and every user of it may.
    """

    host: str
    token: str | None = None
    body_seconds: float = BODY_SECONDS
    held: int = field(default=0, init=False)  # bytes of all bodies that are arriving or being answered

    def allows(self, host: str) -> bool:
        """Whether a Host header may name this server.

        A page of another site can point a name of its own at this address (DNS rebinding), and its requests then carry
        that name, but neither one of this machine alone nor a token. So where a token is needed any name will do: the
        machine may have many.
        """
        parts = HOST.fullmatch(host.lower())
        return parts is not None and (self.token is not None or is_loopback(parts["v6"] or parts["name"]))

    def check(self, scope: Message, headers: Headers, cookie: str) -> None:
        """Raise unless the request may come in."""
        if sum(len(name) + len(value) for name, value in headers.raw) > HEADER_BYTES:
            raise ClosedDoorError(431, f"the headers have more than {HEADER_BYTES:,} bytes", {"connection": "close"})
        host = headers.get("host", "")
        if not self.allows(host):
            raise ClosedDoorError(421, f"Host: {host[:100]!r} is not this server; open the address that it printed")
        if self.token is not None and not self._knows_token(headers, cookie):
            raise ClosedDoorError(
                401,
                "a token is needed: open the address with ?token=… that the server printed, or send it as "
                "Authorization: Bearer …",
                {"www-authenticate": "Bearer"},
            )
        origin, site = headers.get("origin"), headers.get("sec-fetch-site", "none")
        if scope["method"] not in SAFE_METHODS and (
            (origin is not None and origin != f"{scope['scheme']}://{host}") or site not in ("same-origin", "none")
        ):
            raise ClosedDoorError(
                403, f"Origin: {str(origin)[:100]!r} is another site; only this server's own page may ask"
            )

    def accepts(self, token: str) -> bool:
        """Whether this is the token; the time taken does not tell how much of it is right."""
        return self.token is not None and hmac.compare_digest(token.encode(), self.token.encode())

    def _knows_token(self, headers: Headers, cookie: str) -> bool:
        given = headers.get("authorization", "")
        if given.lower().startswith("bearer "):
            return self.accepts(given[len("bearer ") :].strip())
        jar = (part.strip().partition("=") for part in headers.get("cookie", "").split(";"))
        return any(self.accepts(value) for name, _, value in jar if name == cookie)


def is_loopback(host: str) -> bool:
    """Whether an address to listen on can be reached from this machine alone."""
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host.lower() in LOCAL_NAMES


class Guard:
    """Lets requests through a :class:`Door`, with whole bodies, and answers with safe headers."""

    def __init__(self, app: App, door: Door) -> None:
        self._app, self._door = app, door

    async def __call__(self, scope: Message, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        headers, door = Headers(scope=scope), self._door
        safely, body = _with_headers(send), Body(door)
        try:
            token = _token_in_address(scope)
            if token is not None and door.token is not None and door.allows(headers.get("host", "")):
                await _answer_token(safely, door, token, _cookie_name(scope))
                return
            door.check(scope, headers, _cookie_name(scope))
            await self._read(body, scope, headers, receive)
            await self._app(scope, _replay(body.join(), receive), safely)
        except ClosedDoorError as closed:
            await _answer(safely, closed.status, closed.why, closed.headers)
        finally:
            body.drop()

    async def _read(self, body: Body, scope: Message, headers: Headers, receive: Receive) -> None:
        """Read the whole body; raises when it is too long, too slow or one too many."""
        most = MOST_BYTES + 4096 if scope["path"] == UPLOADS else JSON_BYTES  # a little for the form around a file
        said = headers.get("content-length", "0")
        length = int(said) if said.isdigit() and len(said) < 16 else 0
        close = {"connection": "close"}
        too_long = ClosedDoorError(413, f"body: more than {most:,} bytes are not allowed here", close)
        if length > most and "expect" in headers:  # it waits for leave to send
            raise too_long
        try:
            async with asyncio.timeout(self._door.body_seconds):
                more, size = True, 0
                while more:
                    message = await receive()
                    if message["type"] == "http.disconnect":
                        raise ClosedDoorError(400, "the client left before its body was complete", close)
                    part, more = message.get("body", b""), message.get("more_body", False)
                    size += len(part)
                    if size <= most:
                        body.add(part)
                    else:
                        body.drop()
                        if size > most + DISCARDED:
                            break
        except TimeoutError:
            why = f"body: it did not arrive in {self._door.body_seconds:g} seconds"
            raise ClosedDoorError(408, why, close) from None
        if size > most:
            raise too_long


class Body:
    """A body while it arrives and is answered; counted among all that the door holds."""

    def __init__(self, door: Door) -> None:
        self._door, self._parts, self._size = door, list[bytes](), 0

    def add(self, part: bytes) -> None:
        """Take a part in, if there is room."""
        if self._door.held + len(part) > HELD_BYTES:
            raise ClosedDoorError(
                503, "too many bodies at once; try again", {"retry-after": "1", "connection": "close"}
            )
        self._parts.append(part)
        self._size += len(part)
        self._door.held += len(part)

    def join(self) -> bytes:
        """All of it."""
        return b"".join(self._parts)

    def drop(self) -> None:
        """Let go of it."""
        self._door.held -= self._size
        self._parts, self._size = [], 0


def _replay(body: bytes, receive: Receive) -> Receive:
    """Gives the body once, and from then on what the server has to say: that the client is gone."""
    left = [body]

    async def again() -> Message:
        return {"type": "http.request", "body": left.pop(), "more_body": False} if left else await receive()

    return again


def _with_headers(send: Send) -> Send:
    """Adds the headers that every answer has, unless it has its own."""

    async def safely(message: Message) -> None:
        if message["type"] == "http.response.start":
            headers = MutableHeaders(raw=message.setdefault("headers", []))
            for name, value in HEADERS.items():
                headers.setdefault(name, value)
        await send(message)

    return safely


def _token_in_address(scope: Message) -> str | None:
    """The token of the address that the server printed, if this is that address."""
    if scope["path"] != "/" or scope["method"] != "GET" or b"token=" not in scope["query_string"]:
        return None
    try:
        tokens = parse_qs(scope["query_string"].decode("latin-1"), max_num_fields=10).get("token")
    except ValueError:  # more fields than the address that the server printed has
        return None
    return tokens[0] if tokens else None


def _cookie_name(scope: Message) -> str:
    """Cookies know no ports, so the name does: several explorers may run on one machine."""
    return f"treevae-{(scope.get('server') or ('', 0))[1]}"


async def _answer_token(send: Send, door: Door, token: str, cookie: str) -> None:
    """Put a right token into a cookie and lead on to an address without it, which can be shown and shared."""
    if not door.accepts(token):
        await _answer(send, 401, "token: it is not the one that the server printed", {"www-authenticate": "Bearer"})
        return
    leave = {"location": "/", "set-cookie": f"{cookie}={token}; Path=/; HttpOnly; SameSite=Lax"}
    await _answer(send, 303, "", leave)


async def _answer(send: Send, status: int, why: str, headers: dict[str, str]) -> None:
    body = json.dumps({"error": why}).encode() if why else b""
    every = {"content-type": "application/json", "content-length": str(len(body)), **headers}
    raw = [(name.encode(), value.encode("latin-1", "replace")) for name, value in every.items()]
    await send({"type": "http.response.start", "status": status, "headers": raw})
    await send({"type": "http.response.body", "body": body})
