"""Many who ask the explorer at once, and bodies and connections that are long, slow or broken."""

import asyncio
import json
import socket
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager

import explorers
import httpx
import numpy as np
import pytest
import uvicorn
from explorers import CALLS, HERE, error_of
from fastapi.testclient import TestClient

from treevae.serve import connection, guard
from treevae.serve.answers import Explorer
from treevae.serve.app import create_app
from treevae.serve.guard import Door, Guard
from treevae.serve.server import bind
from treevae.serve.site import Ready, Site
from treevae.serve.uploads import MOST_BYTES
from treevae.serve.workers import BusyError, ClientGoneError, Workers


@pytest.fixture(scope="module")
def ready() -> Ready:
    return explorers.ready()


@pytest.fixture(scope="module")
def app() -> Guard:
    return explorers.guarded()


@pytest.fixture(scope="module")
def client() -> TestClient:
    return TestClient(explorers.guarded(), base_url=HERE)


# -- many at once -------------------------------------------------------------------------------------------------


def test_answers_do_not_depend_on_who_else_asks(client):
    alone = [client.post(path, json=body).content for path, body in CALLS]
    order = np.random.default_rng(0).integers(len(CALLS), size=60)
    with ThreadPoolExecutor(8) as pool:
        answers = list(pool.map(lambda i: client.post(CALLS[i][0], json=CALLS[i][1]).content, order))
    assert all(answer == alone[i] for i, answer in zip(order, answers, strict=True))


def test_a_full_line_is_told_so(ready):
    held, workers = threading.Event(), Workers(1, waiting=1)
    client = TestClient(create_app(Site(ready, ready.status), workers, Door("127.0.0.1")), base_url=HERE)
    for _ in range(2):  # one runs, one waits
        workers._room.acquire()
        workers._pool.submit(held.wait)
    try:
        answer = client.post("/api/walk", json={})
        assert "too many questions" in error_of(answer, 503)
        assert answer.headers["retry-after"] == "1"
        assert client.get("/api/status").status_code == 200  # what needs no model is answered
    finally:
        held.set()


async def _never() -> None:
    await asyncio.Event().wait()


async def _at_once() -> None:
    return None


def test_jobs_are_given_up_when_they_wait_too_long_or_for_nobody():
    workers, held = Workers(1, waiting=1, seconds=0.1), threading.Event()
    blocker = workers._pool.submit(held.wait)
    ran = []
    with pytest.raises(BusyError):
        asyncio.run(workers.run(lambda: ran.append("late"), _never))
    with pytest.raises(ClientGoneError):
        asyncio.run(workers.run(lambda: ran.append("gone"), _at_once))
    held.set()
    blocker.result(5)
    assert asyncio.run(workers.run(lambda: "answer", _never)) == "answer"  # and the line has room again
    assert asyncio.run(workers.run(lambda: "again", _never)) == "again"
    assert ran == []
    with pytest.raises(ZeroDivisionError):
        asyncio.run(workers.run(lambda: 1 / 0, _never))


def test_a_fault_inside_is_told_without_its_traceback(ready, monkeypatch):
    monkeypatch.setattr(Explorer, "walk", lambda self, ask: 1 / 0)
    app = create_app(Site(ready, ready.status), Workers(1), Door("127.0.0.1"))
    answer = TestClient(app, base_url=HERE, raise_server_exceptions=False).post("/api/walk", json={})
    assert "something went wrong in the server" in error_of(answer, 500)
    assert "division" not in answer.text


# -- bodies and connections ---------------------------------------------------------------------------------------


def test_long_bodies_are_refused(client):
    too_long = b" " * (guard.JSON_BYTES + 1)
    kind = {"content-type": "application/json"}
    assert "more than 1,048,576 bytes" in error_of(client.post("/api/walk", content=too_long, headers=kind), 413)
    pieces = (b" " * 65536 for _ in range(20))  # without a length
    assert error_of(client.post("/api/walk", content=pieces, headers=kind), 413)
    assert error_of(client.post("/api/place/image", files={"image": b"x" * (MOST_BYTES + 5000)}), 413)
    long_but_fine = client.post("/api/walk", content=b"{" + b" " * (guard.JSON_BYTES - 2) + b"}", headers=kind)
    assert long_but_fine.status_code == 200


@contextmanager
def running(app: Guard) -> Iterator[tuple[tuple[str, int], uvicorn.Server]]:
    """A real server on a free port, in a thread."""
    bound = bind("127.0.0.1", 0)
    server = uvicorn.Server(uvicorn.Config(app, **connection.settings()))
    thread = threading.Thread(target=server.run, kwargs={"sockets": [bound]}, daemon=True)
    thread.start()
    wait_until(lambda: server.started)
    try:
        yield bound.getsockname()[:2], server
    finally:
        server.should_exit = True
        thread.join(10)
        assert not thread.is_alive()


def wait_until(true: Callable[[], bool], seconds: float = 30.0) -> None:
    """Look again and again; a machine that is busy takes long."""
    deadline = time.monotonic() + seconds
    while not true():
        assert time.monotonic() < deadline
        time.sleep(0.01)


def exchange(address: tuple[str, int], *parts: bytes, pause: float = 0.0) -> bytes:
    """What comes back for bytes sent part after part, until the server closes."""
    with socket.create_connection(address, timeout=30) as client:
        for part in parts:
            client.sendall(part)
            time.sleep(pause)
        received = b""
        try:
            while piece := client.recv(65536):
                received += piece
        except ConnectionError:
            pass
        return received


HEAD = b"POST /api/walk HTTP/1.1\r\nhost: 127.0.0.1\r\ncontent-type: application/json\r\nconnection: close\r\n"


def test_broken_and_slow_clients_end_and_hinder_nobody(ready, monkeypatch):
    monkeypatch.setattr(connection, "REQUEST_SECONDS", 3.0)
    monkeypatch.setattr(connection, "STALLED_SECONDS", 1.0)
    monkeypatch.setattr(connection, "LOOK_EVERY", 0.2)
    door = Door("127.0.0.1", body_seconds=3.0)
    workers = Workers(1)
    with running(create_app(Site(ready, ready.status), workers, door)) as (address, server):
        url = f"http://{address[0]}:{address[1]}"
        silent = [socket.create_connection(address) for _ in range(20)]  # say nothing
        for client in silent[:10]:
            client.sendall(b"POST /api/walk HTTP/1.1\r\nhost: 127.0.0.1\r\nx-")  # or never end their headers
        unread = []
        for _ in range(5):  # ask for much and read nothing
            client = socket.create_connection(address)
            client.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
            client.sendall(b"GET / HTTP/1.1\r\nhost: 127.0.0.1\r\n\r\n" * 30)
            unread.append(client)
        slow = exchange(address, HEAD + b"content-length: 100\r\n\r\n", b"{")
        assert slow.startswith(b"HTTP/1.1 408")
        assert b"did not arrive in 3 seconds" in slow
        assert exchange(address, HEAD + b"content-length: 2\r\n\r\n{}").startswith(b"HTTP/1.1 200")
        for wrong in (
            b"\x00\x01\x02\r\n\r\n",
            b"GET / HTTP/9.9\r\n\r\n",
            b"GET / HTTP/1.1\r\n\r\n",
            b"GET / HTTP/1.1\r\nhost: 127.0.0.1\r\nhost: evil\r\n\r\n",
            b"GET / HTTP/1.1\r\nhost: 127.0.0.1\r\nconnection: close\r\nx: " + b"y" * 70_000 + b"\r\n\r\n",
            b"GET http://evil.example/ HTTP/1.1\r\nhost: evil.example\r\nconnection: close\r\n\r\n",
            b"GET /../../etc/passwd HTTP/1.1\r\nhost: 127.0.0.1\r\nconnection: close\r\n\r\n",
            b"GET //etc/passwd HTTP/1.1\r\nhost: 127.0.0.1\r\nconnection: close\r\n\r\n",
            HEAD + b"content-length: 2\r\ncontent-length: 3\r\n\r\n{}",
            HEAD + b"content-length: -1\r\n\r\n{}",
            HEAD + b"transfer-encoding: chunked\r\n\r\nzz\r\n{}\r\n",
        ):
            answer = exchange(address, wrong)
            refused = not answer or answer.split(b" ")[1].startswith(b"4")
            assert refused, (wrong[:60], answer[:60])
        with socket.create_connection(address) as client:  # one that leaves in the middle
            client.sendall(HEAD + b"content-length: 100\r\n\r\n{")
        assert httpx.post(f"{url}/api/walk", json={}).status_code == 200
        for client in silent:
            client.settimeout(30)
            assert not client.recv(100)  # closed
            client.close()
        wait_until(lambda: not server.server_state.connections)  # those who read nothing were left, too
        for client in unread:
            client.close()
        assert door.held == 0


def test_there_are_only_so_many_connections(ready, monkeypatch):
    monkeypatch.setattr(connection, "MOST_CONNECTIONS", 3)
    with running(create_app(Site(ready, ready.status), Workers(1), Door("127.0.0.1"))) as (address, server):
        held = [socket.create_connection(address) for _ in range(3)]
        wait_until(lambda: len(server.server_state.connections) == 3)
        full = exchange(address)
        assert full.startswith(b"HTTP/1.1 503")
        assert json.loads(full.split(b"\r\n\r\n")[1])["error"].startswith("too many connections")
        held.pop().close()
        wait_until(lambda: len(server.server_state.connections) == 2)
        assert exchange(address, HEAD + b"content-length: 2\r\n\r\n{}").startswith(b"HTTP/1.1 200")
        for client in held:
            client.close()


def test_bodies_are_bounded_all_together(client, monkeypatch):
    monkeypatch.setattr(guard, "HELD_BYTES", 1000)
    answer = client.post("/api/walk", content=b" " * 2000, headers={"content-type": "application/json"})
    assert "too many bodies at once" in error_of(answer, 503)


def test_two_servers_do_not_hinder_each_other_and_end_quietly(app, capfd):
    with running(app) as (address, _), ThreadPoolExecutor(4) as pool:
        url = f"http://{address[0]}:{address[1]}/api/walk"
        assert {one.status_code for one in pool.map(lambda i: httpx.post(url, json={"seed": i}), range(8))} == {200}
    assert "Traceback" not in capfd.readouterr().err
