"""What the explorer refuses: fields, bodies, forms and paths, each with a reason."""

import explorers
import numpy as np
import pytest
from explorers import HERE, error_of, png
from fastapi.testclient import TestClient

from treevae import TreeVAE


@pytest.fixture(scope="module")
def client() -> TestClient:
    return TestClient(explorers.guarded(), base_url=HERE)


@pytest.fixture(scope="module")
def table() -> tuple[TreeVAE, TestClient]:
    return explorers.of_table()


@pytest.mark.parametrize(
    ("path", "body", "says"),
    [
        ("generate", {}, "node: it is missing"),
        ("generate", {"node": 9}, "node: there is no node 9; the tree has nodes 0, 1, 2, 3, 4"),
        ("generate", {"node": -1}, "node: -1 is not allowed"),
        ("generate", {"node": "0"}, "node: '0' is not allowed, it should be a valid integer"),
        ("generate", {"node": True}, "node: True is not allowed"),
        ("generate", {"node": 0, "n": 0}, "n: 0 is not allowed, it should be greater than or equal to 1"),
        ("generate", {"node": 0, "n": 65}, "n: 65 is not allowed, it should be less than or equal to 64"),
        ("generate", {"node": 0, "n": 10**30}, "n: 1"),
        ("generate", {"node": 0, "seed": -1}, "seed: -1 is not allowed"),
        ("generate", {"node": 0, "seed": 2**32}, "seed: 4294967296 is not allowed"),
        ("generate", {"node": 0, "temperature": 2.1}, "temperature: 2.1 is not allowed"),
        ("generate", {"node": 0, "temprature": 1}, "temprature: there is no such field"),
        ("generate", [], "body: [] is not allowed"),
        ("walk", {"sample": 400}, "sample: there is no sample 400; the bundle has samples 0 to 399"),
        ("walk", {"sample": 1.5}, "sample: 1.5 is not allowed"),
        ("place", {}, "should hold a row of numbers or a text, and not both"),
        ("place", {"row": [0.0] * 64, "text": "a"}, "and not both"),
        ("place", {"row": [0.0] * 63}, "row: it has 63 numbers; the model was fitted on 64"),
        ("place", {"row": [2.0] * 64}, "row: X holds pixels from 2 to 2"),
        ("place", {"row": [None] * 64}, "row.0: None is not allowed"),
        ("place", {"row": "abc"}, "row: 'abc' is not allowed"),
        ("place", {"text": "hello"}, "text: the model does not know"),
        ("interpolate", {"a": 0, "b": 400}, "b: there is no sample 400"),
        ("interpolate", {"a": 0, "b": 1, "steps": 17}, "steps: 17 is not allowed"),
        ("interpolate", {"a": 0, "b": 1, "steps": 1}, "steps: 1 is not allowed"),
    ],
)  # fmt: skip
def test_a_refusal_names_the_field_its_value_and_what_is_allowed(client, path, body, says):
    assert says in error_of(client.post(f"/api/{path}", json=body), 422)


@pytest.mark.parametrize(
    "body",
    [
        pytest.param(b"", id="empty"),
        pytest.param(b"{", id="open"),
        pytest.param(b"\xff\xfe", id="no text"),
        pytest.param(b"[" * 100_000, id="deep"),
        pytest.param(b'{"node": NaN}', id="NaN"),
        pytest.param(b'{"node": ' + b"1" * 5000 + b"}", id="long number"),
        pytest.param(b'{"text": "\\ud800"}', id="half character"),
        pytest.param(b"null", id="null"),
    ],
)
@pytest.mark.parametrize("path", ["generate", "place"])
def test_a_broken_body_is_refused(client, path, body):
    answer = client.post(f"/api/{path}", content=body, headers={"content-type": "application/json"})
    assert error_of(answer, answer.status_code)
    assert answer.status_code in (400, 422)


def test_numbers_beyond_the_models_range_are_refused(table):
    _, client = table
    assert "row: " in error_of(client.post("/api/place", json={"row": [1e300] * 4}), 422)


@pytest.mark.parametrize("value", [1e30, -1e30, 1e38, -1e38])
def test_numbers_at_the_end_of_the_models_range_are_refused_or_placed_in_numbers(table, value):
    """Whether float32 overflows on the way depends on the weights; what may not happen is NaN or infinity."""
    _, client = table
    answer = client.post("/api/place", json={"row": [value] * 4})
    if answer.status_code == 200:
        assert "NaN" not in answer.text
        assert "Infinity" not in answer.text
        assert sum(leaf["probability"] for leaf in answer.json()["leaves"]) == pytest.approx(1)
    else:
        assert "row: " in error_of(answer, 422)


def test_other_types_of_body_are_refused(client):
    assert client.post("/api/walk", content=b"{}", headers={"content-type": "text/plain"}).status_code == 422
    assert "multipart/form-data" in error_of(client.post("/api/place/image", content=b"x"), 415)


def test_forms_hold_one_picture(client):
    good = png(np.zeros((8, 8), np.uint8))
    post = client.post
    assert "picture: there is no such field" in error_of(post("/api/place/image", files={"picture": good}), 422)
    assert "image: it is missing" in error_of(post("/api/place/image", files={"image": (None, "text")}), 422)
    odd = post("/api/place/image", files={"image": good}, data={"invert": "maybe"})
    assert "invert: 'maybe' is not allowed" in error_of(odd, 422)
    two = post("/api/place/image", files=[("image", good), ("image", good)])
    assert "Too many files" in error_of(two, 400)
    boundary = {"content-type": "multipart/form-data"}
    assert error_of(post("/api/place/image", content=b"--x\r\n", headers=boundary), 400)


def test_there_are_no_other_paths(client):
    for path in (
        "/api",
        "/api/",
        "/docs",
        "/redoc",
        "/openapi.json",
        "/static/x",
        "/..%2f..%2fetc/passwd",
        "/%00",
    ):
        assert "there is nothing at" in error_of(client.get(path), 404), path
    for method in ("PUT", "DELETE", "PATCH", "TRACE", "OPTIONS"):
        assert client.request(method, "/api/generate").status_code == 405
    assert "POST" in client.get("/api/generate").headers["allow"]
