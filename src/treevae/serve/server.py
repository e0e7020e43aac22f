"""From an application to an address: the socket, the token, the browser, and a quiet end."""

from __future__ import annotations

import logging
import os
import secrets
import socket
import sys
import threading
import webbrowser
from collections.abc import Callable

import uvicorn

from .connection import settings
from .guard import Door, Guard, is_loopback

log = logging.getLogger("treevae")
BACKLOG = 512  # connections that the system may hold before they are taken up


def door_of(host: str, token: bool | None = None) -> Door:
    """Who may come in at an address: from this machine anybody, unless a token is asked for; others with a token."""
    if token is False and not is_loopback(host):
        raise ValueError(f"--no-token cannot be given with --host {host}, which other machines reach; leave it out")
    return Door(host, secrets.token_urlsafe(32) if token or not is_loopback(host) else None)


def bind(host: str, port: int) -> socket.socket:
    """A socket at an address; port 0 is any that is free."""
    try:
        return socket.create_server((host, port), family=_family(host, port), backlog=BACKLOG)
    except (OSError, OverflowError) as error:
        reason = getattr(error, "strerror", None) or error
        raise ValueError(
            f"cannot listen on --host {host} --port {port}: {reason}; name another port, or 0 for any that is free"
        ) from error


def address_of(bound: socket.socket, door: Door) -> str:
    """What to type into a browser."""
    host, port = bound.getsockname()[:2]
    if host in ("0.0.0.0", "::"):  # every address of the machine; its name is one of them
        host = socket.gethostname()
    shown = f"[{host}]" if ":" in host else host
    return f"http://{shown}:{port}/" + ("" if door.token is None else f"?token={door.token}")


def serve(app: Guard, bound: socket.socket, started: Callable[[], None]) -> None:
    """Answer until Ctrl-C; ``started`` is called once the first request can come."""
    server = uvicorn.Server(uvicorn.Config(app, backlog=BACKLOG, **settings()))

    def tell() -> None:
        while not server.started and not server.should_exit:
            threading.Event().wait(0.05)
        if server.started:
            started()

    threading.Thread(target=tell, name="treevae-started", daemon=True).start()
    server.run(sockets=[bound])


def open_browser(address: str) -> bool:
    """Open the address in a browser with windows; False where there is none."""
    if sys.platform not in ("darwin", "win32") and not (os.environ.get("DISPLAY") or os.environ.get("WAYLAND_DISPLAY")):
        return False  # else a browser for terminals would take this one over
    try:
        return webbrowser.open(address)
    except webbrowser.Error:
        return False


def _family(host: str, port: int) -> socket.AddressFamily:
    try:
        return socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0][0]
    except OSError as error:
        raise ValueError(f"--host {host!r} is no address of this machine: {error.strerror}") from error
