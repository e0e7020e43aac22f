"""Who may ask the explorer: hosts, pages of other sites, and tokens."""

import socket

import explorers
import pytest
from explorers import HERE, error_of
from fastapi.testclient import TestClient

from treevae.serve.app import create_app
from treevae.serve.server import address_of, bind, door_of
from treevae.serve.site import Ready, Site
from treevae.serve.workers import Workers


@pytest.fixture(scope="module")
def ready() -> Ready:
    return explorers.ready()


@pytest.fixture(scope="module")
def client() -> TestClient:
    return TestClient(explorers.guarded(), base_url=HERE)


@pytest.mark.parametrize("host", ["127.0.0.1:8000", "127.0.0.1", "localhost:8000", "LOCALHOST", "[::1]:8000"])
def test_this_machine_is_known_by_its_own_names(client, host):
    assert client.get("/api/status", headers={"host": host}).status_code == 200


@pytest.mark.parametrize(
    "host",
    [
        *("evil.example", "evil.example:8000", "127.0.0.1.evil.example", "192.168.0.7:8000", "localhost:8000@evil"),
        *("", "127.0.0.1:x", "[::1", "0x7f000001", "localhost."),
    ],
)
def test_other_hosts_are_refused(client, host):
    error_of(client.get("/api/status", headers={"host": host}), 421)


@pytest.mark.parametrize(
    "headers",
    [
        {"origin": "http://evil.example"},
        {"origin": "null"},
        {"origin": "http://127.0.0.1:8001"},
        {"origin": "https://127.0.0.1:8000"},
        {"sec-fetch-site": "cross-site"},
        {"sec-fetch-site": "same-site"},
    ],
)
def test_pages_of_other_sites_may_not_ask(client, headers):
    error_of(client.post("/api/walk", json={}, headers=headers), 403)


def test_the_page_itself_may_ask(client):
    headers = {"origin": HERE, "sec-fetch-site": "same-origin"}
    assert client.post("/api/walk", json={}, headers=headers).status_code == 200


def test_other_machines_need_the_token(ready):
    door = door_of("0.0.0.0")
    assert door_of("127.0.0.1").token is door_of("::1").token is door_of("localhost").token is None
    assert len(door.token) > 40
    assert door.token != door_of("0.0.0.0").token
    app = create_app(Site(ready, ready.status), Workers(1), door)
    client = TestClient(app, base_url="http://192.168.0.7:8000", follow_redirects=False)
    for path in ("/", "/api/status", "/api/openapi.json", "/nothing"):
        assert error_of(client.get(path), 401)
    for wrong in ("", "x", door.token[:-1], door.token + "x", "ü"):
        assert client.get("/api/status", headers={"authorization": f"Bearer {wrong}".encode()}).status_code == 401
        assert client.get("/", params={"token": wrong}).status_code == 401
    assert client.post("/api/walk", json={}, params={"token": door.token}).status_code == 401
    assert client.get("/api/status", headers={"authorization": f"Bearer {door.token}"}).status_code == 200
    led = client.get("/", params={"token": door.token})
    assert (led.status_code, led.headers["location"]) == (303, "/")
    assert {"HttpOnly", "SameSite=Lax"} <= set(led.headers["set-cookie"].split("; "))
    assert client.get("/").status_code == 200  # the cookie is kept
    assert client.post("/api/walk", json={}).status_code == 200
    error_of(client.post("/api/walk", json={}, headers={"origin": "http://evil.example"}), 403)
    error_of(client.get("/", headers={"host": "two words"}), 421)
    bearer = {"authorization": f"Bearer {door.token}"}
    for name in (socket.gethostname(), "gpu7.cluster.example:8000"):  # a machine has many names
        assert client.get("/api/status", headers={"host": name} | bearer).status_code == 200
        assert client.get("/api/status", headers={"host": name, "authorization": "Bearer x"}).status_code == 401


def test_a_token_on_this_machine_is_on_demand(ready):
    assert door_of("127.0.0.1", token=False).token is None
    with pytest.raises(ValueError, match=r"--no-token cannot be given with --host 0\.0\.0\.0"):
        door_of("0.0.0.0", token=False)
    client = TestClient(create_app(Site(ready, ready.status), Workers(1), door_of("::1", token=True)), base_url=HERE)
    assert error_of(client.get("/api/status"), 401)


def test_the_address_is_printed_with_its_token():
    with bind("127.0.0.1", 0) as bound:
        port = bound.getsockname()[1]
        assert address_of(bound, door_of("127.0.0.1")) == f"http://127.0.0.1:{port}/"
        with pytest.raises(ValueError, match=f"--port {port}: .*name another port"):
            bind("127.0.0.1", port)
    with bind("0.0.0.0", 0) as bound:
        assert address_of(bound, door := door_of("0.0.0.0")).endswith(f"/?token={door.token}")
    with pytest.raises(ValueError, match="is no address of this machine"):
        bind("no such host", 0)
