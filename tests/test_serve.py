"""The explorer: every call against the model's own methods, its limits, and what it survives."""

import asyncio
import base64
import io
import json
import signal
import socket
import subprocess
import sys
import threading
import time
import warnings
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path

import httpx
import numpy as np
import pytest
import schemathesis
import uvicorn
from fastapi.testclient import TestClient
from hypothesis import HealthCheck, given, settings
from PIL import Image
from schemathesis.specs.openapi.checks import positive_data_acceptance
from scipy.sparse import csr_matrix
from typer.testing import CliRunner

from treevae import Tree, TreeVAE
from treevae.cli.app import app as cli
from treevae.data import load
from treevae.page.snapshot import snapshot
from treevae.run import Run
from treevae.serve import connection, guard
from treevae.serve.answers import Explorer
from treevae.serve.app import create_app
from treevae.serve.guard import Door, Guard
from treevae.serve.messages import Place, Status, Walk
from treevae.serve.server import address_of, bind, door_of
from treevae.serve.site import Ready, Site, Watch
from treevae.serve.uploads import MOST_BYTES, MOST_PIXELS, PictureError, read_picture
from treevae.serve.workers import BusyError, ClientGoneError, Workers
from treevae.subject import Subject

HERE = "http://127.0.0.1:8000"
DIGITS = load("digits")
X = DIGITS.x_train[:400]
NAMES = ["apple", "bread", "cheese", "dates"]
CALLS = [
    ("/api/generate", {"node": 0, "n": 3, "seed": 1, "temperature": 0.5}),
    ("/api/walk", {"seed": 2}),
    ("/api/walk", {"sample": 3}),
    ("/api/place", {"row": X[7].ravel().tolist()}),
    ("/api/interpolate", {"a": 0, "b": 9, "steps": 4}),
]


@pytest.fixture(scope="module")
def model() -> TreeVAE:
    tree = Tree().split(0).split(1)  # leaves 3, 4 and 2
    return TreeVAE(tree=tree, max_depth=2, epochs=3, network="mlp", hidden_dim=32, random_state=0).fit(X)


@pytest.fixture(scope="module")
def ready(model) -> Ready:
    bundle = snapshot(model, X, DIGITS.y_train[:400], title="digits", map_method="pca").bundle
    return Ready.of(Explorer(model, X, bundle), bundle)


@pytest.fixture(scope="module")
def app(ready) -> Guard:
    return create_app(Site(ready, ready.status), Workers(2), Door("127.0.0.1"))


@pytest.fixture(scope="module")
def client(app) -> TestClient:
    return TestClient(app, base_url=HERE)


@pytest.fixture(scope="module")
def table() -> tuple[TreeVAE, TestClient]:
    """A model of named features, asked through its own explorer."""
    rows = np.random.default_rng(0).normal(5, 2, (120, 4))
    import pandas

    model = TreeVAE(tree=Tree().split(0), max_depth=1, epochs=2, random_state=0).fit(
        pandas.DataFrame(rows, columns=NAMES)
    )
    bundle = snapshot(model, pandas.DataFrame(rows, columns=NAMES), map_method="pca").bundle
    found = Ready.of(Explorer(model, rows, bundle), bundle)
    return model, TestClient(create_app(Site(found, found.status), Workers(1), Door("127.0.0.1")), base_url=HERE)


def pixels(picture: dict) -> np.ndarray:
    """A picture of an answer, as bytes."""
    return np.asarray(Image.open(io.BytesIO(base64.b64decode(picture["png"].split(",")[1]))))


def as_bytes(image: np.ndarray) -> np.ndarray:
    return (image.clip(0, 1) * 255).round().astype(np.uint8)


def png(array: np.ndarray, form: str = "PNG") -> bytes:
    file = io.BytesIO()
    Image.fromarray(array).save(file, form)
    return file.getvalue()


def error_of(answer: httpx.Response, status: int) -> str:
    """The message of a refusal, which is all that it says."""
    assert answer.status_code == status, answer.text
    assert answer.headers["content-type"] == "application/json"
    (key, message), *rest = answer.json().items()
    assert (key, rest) == ("error", [])
    assert "Traceback" not in message
    return message


# -- answers are the model's ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("node", [0, 1, 2, 3])
def test_generated_samples_are_the_models(client, model, node):
    ask = {"node": node, "n": 5, "seed": 11, "temperature": 0.7}
    answer = client.post("/api/generate", json=ask).json()
    expected = model.sample(5, node=node, random_state=11, temperature=0.7)
    assert {key: answer[key] for key in ("node", "seed", "temperature")} == {
        key: ask[key] for key in ("node", "seed", "temperature")
    }
    for shown, image in zip(answer["samples"], expected, strict=True):
        np.testing.assert_array_equal(pixels(shown), as_bytes(image))


def test_a_walk_is_the_models(client, model):
    drawn, sent = client.post("/api/walk", json={"seed": 4}).json(), client.post("/api/walk", json={"sample": 5}).json()
    for answer, found in ((drawn, model.fitted_.walk_draws(1, 4)), (sent, model.fitted_.walk_samples(X[5:6]))):
        assert [leaf["leaf"] for leaf in answer["leaves"]] == [3, 4, 2]
        np.testing.assert_allclose([leaf["probability"] for leaf in answer["leaves"]], found.probability[0], rtol=1e-5)
        for leaf, image in zip(answer["leaves"], found.shown[0], strict=True):
            np.testing.assert_array_equal(pixels(leaf["picture"]), as_bytes(image))


def test_placing_a_row_is_prediction(client, model):
    x = DIGITS.x_test[3:4]
    answer = client.post("/api/place", json={"row": x.ravel().tolist()}).json()
    chance = model.predict_proba(x)[0]
    assert answer["cluster"] == model.predict(x)[0]
    assert answer["leaf"] == model.tree_.leaves[answer["cluster"]]
    np.testing.assert_allclose([leaf["probability"] for leaf in answer["leaves"]], chance, rtol=1e-5)
    assert [step["node"] for step in answer["path"]] == list(model.tree_.path(answer["leaf"]))
    for step in answer["path"]:
        below = [model.tree_.leaves.index(leaf) for leaf in model.tree_.leaves_below(step["node"])]
        assert step["probability"] == pytest.approx(chance[below].sum(), rel=1e-5)
    np.testing.assert_array_equal(pixels(answer["sample"]), as_bytes(x[0]))
    np.testing.assert_array_equal(pixels(answer["reconstruction"]), as_bytes(model.reconstruct(x)[0]))


@pytest.mark.parametrize("invert", ["false", "true"])
def test_placing_a_picture_is_prediction(client, model, invert):
    image = (DIGITS.x_test[4] * 255).round().astype(np.uint8)
    sent = 255 - image if invert == "true" else image
    answer = client.post("/api/place/image", files={"image": ("../../a.png", png(sent))}, data={"invert": invert})
    assert answer.status_code == 200, answer.text
    assert answer.json()["cluster"] == model.predict(image[None])[0]
    np.testing.assert_array_equal(pixels(answer.json()["sample"]), image)
    np.testing.assert_array_equal(pixels(answer.json()["reconstruction"]), as_bytes(model.reconstruct(image[None])[0]))


def test_the_way_between_two_samples_ends_at_both(client, model):
    answer = client.post("/api/interpolate", json={"a": 2, "b": 8, "steps": 5}).json()
    assert len(answer["frames"]) == 5
    pair = X[[2, 8]]  # all samples are shown, in their order
    ends = answer["frames"][0], answer["frames"][-1]
    for frame, cluster, image in zip(ends, model.predict(pair), model.reconstruct(pair), strict=True):
        assert frame["cluster"] == cluster
        assert np.abs(pixels(frame["picture"]).astype(int) - as_bytes(image)).max() <= 1  # of 255


def test_tables_are_shown_on_cards(table):
    model, client = table
    answer = client.post("/api/place", json={"row": [1.0, 2.0, 3.0, 4.0]}).json()
    assert [(entry["name"], entry["value"]) for entry in answer["sample"]["card"]] == list(
        zip(NAMES, [1.0, 2.0, 3.0, 4.0], strict=True)
    )
    drawn = client.post("/api/generate", json={"node": 1, "n": 2, "seed": 0}).json()
    expected = model.sample(2, node=1, random_state=0)
    for shown, row in zip(drawn["samples"], expected, strict=True):
        np.testing.assert_allclose([entry["value"] for entry in shown["card"]], row, rtol=5e-3)
    assert "not on pictures" in error_of(
        client.post("/api/place/image", files={"image": png(np.zeros((9, 9), np.uint8))}), 422
    )
    with warnings.catch_warnings():
        warnings.simplefilter("error")  # names of features are known, and not asked for
        assert client.post("/api/walk", json={"sample": 0}).status_code == 200


def test_a_sample_and_its_reconstruction_have_the_same_lines():
    rows = np.random.default_rng(0).normal(5, 2, (60, 30)).astype(np.float32)
    model = TreeVAE(tree=Tree().split(0), max_depth=1, epochs=2, random_state=0).fit(rows)
    explorer = Explorer(model, rows, snapshot(model, rows, map_method="pca").bundle)
    found = explorer.place(Place(row=(rows[0] * np.linspace(1, 3, 30)).tolist()))
    names = [entry.name for entry in found.sample.card]
    assert len(names) == 12
    assert [entry.name for entry in found.reconstruction.card] == names
    again = model.reconstruct(rows[:1] * np.linspace(1, 3, 30))[0]
    expected = [again[int(name.split()[1])] for name in names]
    np.testing.assert_allclose([entry.value for entry in found.reconstruction.card], expected, rtol=5e-3)


def test_nodes_with_one_child_are_passed_over():
    tree = Tree().split(0).split(1).prune(3)  # 0 has the children 1 and 2, 1 has 4 alone
    model = TreeVAE(tree=tree, max_depth=2, epochs=1, network="mlp", hidden_dim=8, random_state=0).fit(X)
    explorer = Explorer(model, X, snapshot(model, X, map_method="pca").bundle)
    ways = {tuple(step.node for step in explorer.place(Place(row=x.ravel().tolist())).path) for x in X[:60]}
    assert ways == {(0, 4), (0, 2)}


def test_sparse_samples_are_asked_about():
    rows = np.random.default_rng(0).random((60, 4)) * (np.random.default_rng(1).random((60, 4)) < 0.4)
    model = TreeVAE(tree=Tree().split(0), max_depth=1, epochs=1, random_state=0).fit(rows)
    ready = Ready.of_subject(model, Subject(csr_matrix(rows), "words", names=NAMES), map_method="pca")
    dense = Explorer(model, rows, snapshot(model, rows, names=NAMES, map_method="pca").bundle, NAMES)
    assert ready.explorer.walk(Walk(sample=3)) == dense.walk(Walk(sample=3))


def test_texts_are_placed_where_their_making_is_known():
    rng = np.random.default_rng(0)
    rows = rng.random((80, 4)) * (rng.random((80, 4)) < 0.4)
    model = TreeVAE(tree=Tree().split(0), max_depth=1, epochs=2, random_state=0).fit(rows)
    bundle = snapshot(model, rows, names=NAMES, kind="words", map_method="pca").bundle

    def vectorize(texts):
        return np.array([[float(name in text) for name in NAMES] for text in texts])

    explorer = Explorer(model, rows, bundle, NAMES, vectorize)
    found = Ready.of(explorer, bundle)
    client = TestClient(create_app(Site(found, found.status), Workers(1), Door("127.0.0.1")), base_url=HERE)
    answer = client.post("/api/place", json={"text": "bread and cheese"}).json()
    assert answer["cluster"] == model.predict([[0.0, 1.0, 1.0, 0.0]])[0]
    assert {entry["name"] for entry in answer["sample"]["card"]} == {"bread", "cheese"}
    assert "none of its words" in error_of(client.post("/api/place", json={"text": "zzz"}), 422)
    assert found.explorer.accepts == ["text", "row"]


# -- the page -----------------------------------------------------------------------------------------------------


def test_the_page_is_alive_and_runs_its_own_scripts_only(client):
    answer = client.get("/")
    assert answer.headers["content-type"] == "text/html; charset=utf-8"
    policy = answer.headers["content-security-policy"]
    assert "'unsafe-inline'" not in policy.split("script-src")[1].split(";")[0]
    assert "frame-ancestors 'none'" in policy
    assert '"live":true' in answer.text


def test_the_bundle_is_the_pages_twin(client):
    bundle = client.get("/api/bundle").json()
    assert bundle["live"] is True
    assert bundle["accepts"] == ["image", "row"]
    assert bundle["n_samples"] == len(bundle["samples"]["row"]) == 400
    plain = client.get("/api/bundle", headers={"accept-encoding": "identity"})
    assert "content-encoding" not in plain.headers
    assert plain.json() == bundle


def test_every_answer_has_safe_headers(client):
    for answer in (
        client.get("/"),
        client.get("/api/status"),
        client.get("/nothing"),
        client.post("/api/walk", json={}),
    ):
        assert guard.HEADERS.keys() <= answer.headers.keys()
        assert "access-control-allow-origin" not in answer.headers


# -- refusals -----------------------------------------------------------------------------------------------------


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


# -- pictures -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("form", ["PNG", "JPEG", "GIF", "BMP", "WEBP"])
@pytest.mark.parametrize("shape", [(8, 8), (30, 50), (50, 30, 3), (20, 20, 4)])
def test_pictures_of_all_kinds_are_read(client, form, shape):
    if form in ("JPEG", "BMP") and shape[-1] == 4:
        pytest.skip("it has no transparency")
    data = png(np.random.default_rng(0).integers(0, 256, shape).astype(np.uint8), form)
    assert client.post("/api/place/image", files={"image": data}).status_code == 200


@pytest.mark.parametrize(
    ("samples", "channels"),
    [
        (np.zeros((2, 6, 9)), 1),
        (np.zeros((2, 6, 9, 3)), 3),
        (np.zeros((2, 3, 6, 9)), 3),
        (np.zeros((2, 1, 6, 9)), 1),
        (np.zeros((2, 6, 9, 4)), 4),
    ],
)
def test_a_picture_takes_the_form_of_the_samples(samples, channels):
    from treevae.data.arrays import InputForm

    form = InputForm.of(samples)
    red = png(np.full((60, 200, 3), (255, 0, 0), np.uint8))
    found = read_picture(red, form, (0.0, 1.0))
    assert found.shape == (1, *samples.shape[1:])
    assert found.dtype == np.uint8
    matrix = form.to_matrix(found).reshape(channels, -1)
    expected = {1: [76 / 255], 3: [1, 0, 0], 4: [1, 0, 0, 1]}[channels]  # grey is the eye's, not the mean
    np.testing.assert_allclose(matrix.mean(1), expected, atol=1e-6)
    wide = read_picture(red, form, (-1.0, 3.0))
    np.testing.assert_allclose(
        form.to_matrix(wide).reshape(channels, -1).mean(1), [4 * v - 1 for v in expected], atol=1e-5
    )


def test_the_middle_of_a_picture_is_taken_and_transparency_is_white():
    from treevae.data.arrays import InputForm

    form = InputForm.of(np.zeros((1, 10, 10)))
    wide = np.zeros((10, 30), np.uint8)
    wide[:, 10:20] = 200
    np.testing.assert_array_equal(read_picture(png(wide), form, (0.0, 1.0))[0], 200)
    assert (read_picture(png(np.zeros((10, 10, 4), np.uint8)), form, (0.0, 1.0)) == 255).all()


def test_pictures_are_bounded_and_never_half_read(client):
    side = int(MOST_PIXELS**0.5) + 1
    bomb = png(np.zeros((side, side), np.uint8))  # a few kB that would be many MB
    assert len(bomb) < 100_000
    assert f"{side} x {side} pixels; at most" in error_of(client.post("/api/place/image", files={"image": bomb}), 422)
    whole = png(np.random.default_rng(0).integers(0, 256, (50, 50, 3)).astype(np.uint8))
    sixteen = png(np.zeros((9, 9), np.uint16))
    for broken in (b"", b"x", whole[: len(whole) // 2], whole[:40], b"GIF89a" + b"\0" * 50, b"%PDF-1.4 " * 20, sixteen):
        assert "image: " in error_of(client.post("/api/place/image", files={"image": broken}), 422)
    rng = np.random.default_rng(1)
    for _ in range(60):  # bytes changed at random: a picture or a refusal, nothing else
        changed = bytearray(whole)
        for at in rng.integers(8, len(whole), 5):
            changed[at] = rng.integers(256)
        assert client.post("/api/place/image", files={"image": bytes(changed)}).status_code in (200, 422)


def test_a_picture_needs_a_model_of_pictures(table):
    model, _ = table
    with pytest.raises(PictureError, match="fitted on rows of 4 numbers"):
        read_picture(b"", model.fitted_.decides.form, (0.0, 1.0))


# -- who may ask --------------------------------------------------------------------------------------------------


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


# -- the description ----------------------------------------------------------------------------------------------


def test_every_call_is_described(client):
    described = client.get("/api/openapi.json").json()
    calls = ("bundle", "status", "generate", "walk", "place", "place/image", "interpolate")
    assert set(described["paths"]) == {f"/api/{call}" for call in calls}
    for path, methods in described["paths"].items():
        for call in methods.values():
            assert call["description"], path
            failures = {code: of for code, of in call["responses"].items() if code != "200"}
            assert {"401", "421"} <= set(failures)
            for failure in failures.values():
                assert failure["content"]["application/json"]["schema"]["$ref"].endswith("/Failure"), path
    for name in ("Generate", "Walk", "Place", "Interpolate"):
        assert described["components"]["schemas"][name]["examples"]
    assert client.get("/docs").status_code == 404  # its scripts would come from the network


CALLED = ("GET /api/bundle", "GET /api/status", "POST /api/generate", "POST /api/walk", "POST /api/place")
CALLED += ("POST /api/place/image", "POST /api/interpolate")


@pytest.fixture(scope="module")
def described(ready) -> dict[str, schemathesis.APIOperation]:
    """The calls as schemathesis reads them from the description."""
    app = create_app(Site(ready, ready.status), Workers(1), Door("127.0.0.1"))

    async def at_home(scope, receive, send):  # schemathesis asks for a host called testserver
        headers = [(name, b"127.0.0.1" if name == b"host" else value) for name, value in scope.get("headers", [])]
        await app(scope | {"headers": headers}, receive, send)

    schema = schemathesis.openapi.from_asgi("/api/openapi.json", at_home)
    return {found.ok().label: found.ok() for found in schema.get_all_operations()}


@pytest.mark.parametrize("mode", list(schemathesis.GenerationMode), ids=lambda mode: mode.value)
@pytest.mark.parametrize("name", CALLED)
def test_calls_keep_to_their_description(described, name, mode):
    """Answers have the documented form and status, and what the description forbids is refused."""
    call = described[name]
    if mode is schemathesis.GenerationMode.NEGATIVE and name.startswith("GET"):
        pytest.skip("there is nothing in it that could be wrong")

    @settings(max_examples=25, deadline=None, database=None, derandomize=True, suppress_health_check=list(HealthCheck))
    @given(case=call.as_strategy(generation_mode=mode))
    def ask(case: schemathesis.Case) -> None:
        # a number of a node or a sample may be in the described range and yet not be in this tree
        case.call_and_validate(excluded_checks=[positive_data_acceptance])

    assert set(described) == set(CALLED)
    ask()


# -- watching a run -----------------------------------------------------------------------------------------------


@pytest.fixture
def training(tmp_path, model) -> tuple:
    """A site that watches a folder in which training is about to begin."""
    site = Site(None, Status(state="training", title="digits"))

    def prepare() -> Ready:
        bundle = snapshot(model, X, title="digits", map_method="pca").bundle
        return Ready.of(Explorer(model, X, bundle), bundle)

    client = TestClient(create_app(site, Workers(1), Door("127.0.0.1")), base_url=HERE)
    return tmp_path, site, Watch(site, Run(tmp_path), prepare), client


def test_a_run_is_watched_while_it_trains(training):
    from treevae import fitting
    from treevae.storage.states import STATES, StateFolder

    folder, _, watch, client = training
    watch.look()
    nothing_yet = {"progress": 0.0, "seconds": 0.0, "saves": 0, "losses": [], "stages": []}
    assert client.get("/api/status").json() == {"state": "training", "title": "digits", "growing": nothing_yet}
    seen = []

    def spy(self, about, tensors):
        number = save(self, about, tensors)
        watch.look()  # while the folder is locked by the one who trains
        seen.append(client.get("/api/status").json())
        return number

    save = StateFolder.save
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(fitting, "SHARE", 1.0)
        patch.setattr(StateFolder, "save", spy)
        grown = TreeVAE(n_leaves=3, max_depth=2, n_init=2, epochs=6, network="mlp", hidden_dim=16, random_state=0).fit(
            X, checkpoint=folder, save_every=0
        )
    assert [one["growing"]["saves"] for one in seen] == list(range(1, len(seen) + 1))
    sizes = [len(one["tree"]["nodes"]) for one in seen]
    assert (sizes[0], max(sizes)) == (3, 5)
    assert sizes[-1] == len(grown.tree_.nodes)
    last = seen[-1]["growing"]
    epochs = [event for event in grown.history_ if event["event"] == "EpochEnded"]
    assert (last["stage"], last["epoch"], last["epochs"]) == (
        epochs[-1]["stage"],
        epochs[-1]["epoch"],
        epochs[-1]["epochs"],
    )
    kl = sum(epochs[-1][f"kl_{part}"] for part in ("root", "nodes", "decisions"))
    assert last["loss"] == pytest.approx(epochs[-1]["kl_weight"] * kl - epochs[-1]["reconstruction"], abs=1e-3)
    assert len(last["losses"]) == len(epochs)
    assert "its first state" in client.get("/").text  # the page of a run in training
    for path, body in CALLS:
        assert "the run is training; see /api/status" in error_of(client.post(path, json=body), 409)
    error_of(client.get("/api/bundle"), 409)

    for name in STATES:
        (folder / name).unlink()
    (folder / "model.safetensors").write_bytes(b"the watcher only asks whether it is there")
    watch.start()
    watch.join(60)
    assert client.get("/api/status").json()["state"] == "ready"
    assert '"live":true' in client.get("/").text
    for path, body in CALLS:
        assert client.post(path, json=body).status_code == 200


def test_what_cannot_be_prepared_is_said(training, monkeypatch):
    folder, site, _, client = training

    def prepare() -> Ready:
        raise ValueError("the data are gone")

    (folder / "model.safetensors").write_bytes(b"")
    watch = Watch(site, Run(folder), prepare)
    watch.start()
    watch.join(20)
    assert client.get("/api/status").json() == {"state": "failed", "title": "digits", "error": "the data are gone"}


def test_damaged_states_are_passed_over(training):
    folder, _, watch, client = training
    (folder / "state-a.safetensors").write_bytes(b"not a state")
    watch.look()
    assert client.get("/api/status").json()["growing"]["saves"] == 0


# -- the command --------------------------------------------------------------------------------------------------


@pytest.fixture
def run(tmp_path, model) -> Path:
    """The folder of a finished run."""
    model.save(tmp_path / "model.safetensors")
    (tmp_path / "run.json").write_text(
        json.dumps({"data": "digits", "found_at": "", "drop": [], "options": {}, "set": True})
    )
    return tmp_path


def test_the_command_serves_until_it_is_interrupted(run):
    command = [
        sys.executable,
        "-c",
        "from treevae.cli.app import app; app()",
        "explore",
        str(run),
        "--port",
        "0",
        "--no-open",
        "--map",
        "pca",
        "--title",
        "My digits",
    ]
    server = subprocess.Popen([*command, "--watch"], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    try:
        assert server.stdout is not None
        line = next(line for line in server.stdout if "http://" in line)
        assert line.startswith(f"Exploring {run} at http://127.0.0.1:")
        assert next(server.stdout).startswith("Every user of this machine can open it")
        address = line.split(" at ")[1].strip()
        status = httpx.get(address + "api/status").json()
        assert (status["state"], status["title"], len(status["tree"]["nodes"])) == ("ready", "My digits", 5)
        bundle = httpx.get(address + "api/bundle").json()
        assert (bundle["n_samples"], bundle["map"]["method"]) == (len(DIGITS.x_test), "PCA")
        assert httpx.post(address + "api/walk", json={"sample": 3}).status_code == 200
    finally:
        server.send_signal(signal.SIGINT)
        rest, wrong = server.communicate(timeout=30)
    assert (server.returncode, wrong) == (0, "")
    assert rest.endswith("Ended.\n")


def test_the_command_says_what_is_missing(run, tmp_path_factory):
    def said(*arguments: str) -> str:
        found = CliRunner().invoke(cli, ["explore", *arguments, "--no-open"])
        assert found.exit_code == 1
        return " ".join(found.output.split())

    empty = tmp_path_factory.mktemp("empty")
    assert "there is no run in" in said(str(empty), "--watch")
    assert "--map tsne" in said(str(run), "--watch", "--map", "tsne")
    assert "has no model.safetensors" in said(str(empty))
    (empty / "state-a.safetensors").write_bytes(b"")
    assert f"see it grow with: treevae explore {empty} --watch" in said(str(empty))
    with bind("127.0.0.1", 0) as bound:
        port = str(bound.getsockname()[1])
        assert f"cannot listen on --host 127.0.0.1 --port {port}" in said(str(run), "--port", port)
    (run / "run.json").unlink()
    assert "name them with --data" in said(str(run), "--port", "0")
