"""Explorers of small models, and how they are asked, for the tests of the server."""

import base64
import io
from functools import cache

import httpx
import numpy as np
import pandas
from fastapi.testclient import TestClient
from PIL import Image

from treevae import Tree, TreeVAE
from treevae.data import load
from treevae.page.snapshot import snapshot
from treevae.serve.answers import Explorer
from treevae.serve.app import create_app
from treevae.serve.guard import Door, Guard
from treevae.serve.site import Ready, Site
from treevae.serve.workers import Workers

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


@cache
def fitted() -> TreeVAE:
    """A model of digits."""
    tree = Tree().split(0).split(1)  # leaves 3, 4 and 2
    return TreeVAE(tree=tree, max_depth=2, epochs=3, network="mlp", hidden_dim=32, random_state=0).fit(X)


@cache
def ready() -> Ready:
    """What a site shows of the model of digits."""
    bundle = snapshot(fitted(), X, DIGITS.y_train[:400], title="digits", map_method="pca").bundle
    return Ready.of(Explorer(fitted(), X, bundle), bundle)


def guarded() -> Guard:
    """A site of the model of digits, for this machine alone."""
    return create_app(Site(ready(), ready().status), Workers(2), Door("127.0.0.1"))


def of_table() -> tuple[TreeVAE, TestClient]:
    """A model of named features, asked through its own explorer."""
    rows = np.random.default_rng(0).normal(5, 2, (120, 4))
    model = TreeVAE(tree=Tree().split(0), max_depth=1, epochs=2, random_state=0).fit(
        pandas.DataFrame(rows, columns=NAMES)
    )
    bundle = snapshot(model, pandas.DataFrame(rows, columns=NAMES), map_method="pca").bundle
    found = Ready.of(Explorer(model, rows, bundle), bundle)
    return model, TestClient(create_app(Site(found, found.status), Workers(1), Door("127.0.0.1")), base_url=HERE)
