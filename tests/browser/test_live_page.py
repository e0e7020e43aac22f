"""The controls of a live page against made-up answers: what is asked, and what is shown of the answer."""

import json
from pathlib import Path
from typing import Any
from urllib.parse import unquote, urlparse

import pytest

from treevae.view.report import page as page_of

pytestmark = pytest.mark.browser

HOST = "http://127.0.0.1:9"  # nobody is there: the tests answer
PNG = (
    "data:image/png;base64,iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAAAAAA6fptVAAAACklEQVR4nGNgAAAAAgABSK+kcQAAAABJRU5ErkJggg=="
)
ANSWERS = {
    "/api/generate": {"node": 4, "seed": 0, "samples": [{"png": PNG}] * 5},
    "/api/walk": {"leaves": [{"leaf": 4, "probability": 0.7, "picture": {"png": PNG}}]},
    "/api/interpolate": {"frames": [{"leaf": 4, "picture": {"png": PNG}}] * 3},
    "/api/place/image": {
        "leaf": 6,
        "path": [{"node": 1, "probability": 0.9}, {"node": 3, "probability": 0.8}, {"node": 6, "probability": 0.7}],
        "leaves": [{"leaf": 6, "probability": 0.5}],
        "reconstruction": {"png": PNG},
    },
}


def embedded(address: str) -> dict:
    text = Path(unquote(urlparse(address).path)).read_text()
    return json.loads(text.split('id="bundle">')[1].split("</script>")[0])


@pytest.fixture
def live(reports: dict[str, str], chromium: Any) -> Any:
    """A live page, and what it has asked."""
    html, asked = page_of(embedded(reports["images"]) | {"live": True}), []
    context = chromium.new_context(viewport={"width": 1280, "height": 900}, reduced_motion="reduce")
    page = context.new_page()

    def answer(route: Any) -> None:
        path = urlparse(route.request.url).path
        if path == "/":
            route.fulfill(body=html, content_type="text/html")
            return
        asked.append((path, route.request.headers, route.request.post_data_buffer))
        found = ANSWERS.get(path)
        route.fulfill(json=found) if found else route.fulfill(status=422, json={"detail": "no such thing"})

    page.route("**/*", answer)
    page.goto(HOST + "/?token=secret")
    page.wait_for_selector("html[data-ready]")
    yield page, asked
    context.close()


def test_generate_asks_for_the_chosen_node(live: Any) -> None:
    page, asked = live
    page.locator('.node[data-node="4"]').click()
    page.locator("#generate input[name=seed]").fill("7")
    page.locator("#generate button").click()
    page.locator("#generate .result img").nth(4).wait_for()
    ((path, headers, body),) = asked
    assert (path, headers["authorization"]) == ("/api/generate", "Bearer secret")
    assert json.loads(body) == {"node": 4, "n": 12, "seed": 7, "temperature": 1}


def test_place_walk_and_interpolate_show_their_answers(live: Any) -> None:
    page, asked = live
    page.locator("#tab-live").click()
    file = {"name": "seven.png", "mimeType": "image/png", "buffer": b"picture"}
    page.locator("#place input[type=file]").set_input_files(file)
    page.locator("#place button").click()
    page.locator("#place .placed").wait_for()
    assert page.locator("#place .way b").all_inner_texts() == ["90 %", "80 %", "70 %"]
    assert page.locator('.node[data-node="6"]').get_attribute("aria-selected") == "true"
    assert b'filename="seven.png"' in asked[0][2]
    page.locator("#walk button").click()
    page.locator("#walk figure").wait_for()
    assert page.locator("#walk figcaption").inner_text() == "2 · 70 %"
    page.locator("#interpolate button").click()
    page.locator("#interpolate figure").nth(2).wait_for()
    assert json.loads(asked[1][2]) == {"sample": None, "seed": 0}
    assert set(json.loads(asked[2][2])) == {"a", "b", "steps"}
    assert page.locator("#place .placed").is_visible()  # earlier answers stay


def test_a_refusal_is_said(live: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    page, _ = live
    monkeypatch.delitem(ANSWERS, "/api/walk")
    page.locator("#tab-live").click()
    page.locator("#walk button").click()
    assert page.locator("#walk .error").inner_text() == "no such thing"
