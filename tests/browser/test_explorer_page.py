"""The explorer in a browser: generate, place, walk, interpolate, and a run that grows until it can be asked."""

import json
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.parse import urlparse
from urllib.request import url2pathname

import numpy as np
import pytest
import uvicorn
from PIL import Image

from treevae import Tree, TreeVAE
from treevae.data import load
from treevae.page.report import page as page_of
from treevae.serve.app import create_app
from treevae.serve.connection import settings
from treevae.serve.guard import Door, Guard
from treevae.serve.messages import Growing, Status
from treevae.serve.server import address_of, bind
from treevae.serve.site import Ready, Site
from treevae.serve.watching import shape_of
from treevae.serve.workers import Workers
from treevae.subject import Subject

pytestmark = pytest.mark.browser
DIGITS = load("digits")
NAMES = ["apple", "bread", "cheese", "dates"]


def _serving(app: Guard, door: Door) -> Iterator[str]:
    """The address of a server in a thread."""
    bound = bind("127.0.0.1", 0)
    server = uvicorn.Server(uvicorn.Config(app, **settings()))
    thread = threading.Thread(target=server.run, kwargs={"sockets": [bound]}, daemon=True)
    thread.start()
    while not server.started:
        time.sleep(0.01)
    yield address_of(bound, door)
    server.should_exit = True
    thread.join(10)


@pytest.fixture(scope="module", autouse=True)
def _maps_by_pca() -> Iterator[None]:
    """As where umap-learn is not installed: its maps take long."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("treevae.page.snapshot.find_spec", lambda name: None)
        yield


@pytest.fixture(scope="module")
def model() -> TreeVAE:
    tree = Tree().split(0).split(1).split(2)  # leaves 3, 4, 5, 6
    given = {"max_depth": 2, "epochs": 12, "network": "mlp", "hidden_dim": 32, "learning_rate": 5e-3}
    return TreeVAE(tree=tree, random_state=0, device="cpu", **given).fit(DIGITS.x_train)


@pytest.fixture(scope="module")
def ready(model: TreeVAE) -> Ready:
    return Ready.of_subject(model, Subject.of_set(DIGITS))


@pytest.fixture(scope="module")
def explorer(ready: Ready) -> Iterator[str]:
    door = Door("127.0.0.1")
    yield from _serving(create_app(Site(ready, ready.status), Workers(2), door), door)


@pytest.fixture(scope="module")
def table() -> Iterator[str]:
    rows = np.random.default_rng(0).normal(5, 2, (2500, 4))  # more than the page can show
    tree = Tree().split(0).split(1).split(2).prune(3).prune(5)  # leaves 4 and 6; nodes 1 and 2 have one child each
    model = TreeVAE(tree=tree, epochs=3, random_state=0, device="cpu").fit(rows)
    found, door = Ready.of_subject(model, Subject(rows, "table", names=NAMES)), Door("127.0.0.1")
    yield from _serving(create_app(Site(found, found.status), Workers(1), door), door)


def tiles(page: Any, form: str) -> Any:
    """The pictures that a form shows, once they are there."""
    found = page.locator(f"#{form} .result img.tile")
    found.first.wait_for()
    return found


def test_a_node_generates(explorer: str, opened: Any) -> None:
    page = opened(explorer)
    page.locator('.node[data-node="1"] .caption').click()
    page.locator('#generate input[name="n"]').fill("5")
    page.locator("#generate button").click()
    first = [one.get_attribute("src") for one in tiles(page, "generate").all()]
    assert len(first) == 5
    page.locator("#tab-leaves").click()
    page.locator("#tab-node").click()
    assert [one.get_attribute("src") for one in tiles(page, "generate").all()] == first  # it is still there
    page.locator('#generate input[name="seed"]').fill("1")
    with page.expect_response("**/api/generate"):
        page.locator("#generate button").click()
    page.wait_for_function("src => document.querySelector('#generate .result img').src !== src", arg=first[0])


def test_a_picture_is_placed_and_its_leaf_is_chosen(explorer: str, model: TreeVAE, opened: Any, tmp_path: Path) -> None:
    page = opened(explorer)
    image = (DIGITS.x_test[7] * 255).round().astype(np.uint8)
    Image.fromarray(image).save(tmp_path / "digit.png")
    page.locator("#tab-live").click()
    page.locator('#place input[type="file"]').set_input_files(tmp_path / "digit.png")
    page.locator("#place button").click()
    assert tiles(page, "place").count() == 2
    with page.expect_request("**/api/place/image"):
        page.locator('#place input[name="invert"]').check()  # asks again
    with page.expect_request("**/api/place/image"):
        page.locator('#place input[name="invert"]').uncheck()
    page.locator("#place:not(.busy)").wait_for()
    leaf = model.tree_.leaves[int(model.predict(image[None])[0])]
    assert page.locator(".placed").get_attribute("data-leaf") == str(leaf)
    assert page.locator("#tabpanel").get_attribute("data-node") == str(leaf)
    assert page.locator(".way li").count() == len(model.tree_.path(leaf))


def test_what_is_wrong_is_said(explorer: str, chromium: Any, tmp_path: Path) -> None:
    page = chromium.new_page()  # its console will speak of the refusal
    page.goto(explorer)
    page.locator("#tab-live").click()
    (tmp_path / "none.png").write_bytes(b"no picture")
    page.locator('#place input[type="file"]').set_input_files(tmp_path / "none.png")
    page.locator("#place button").click()
    error = page.locator("#place .error")
    error.wait_for()
    assert "no whole picture; allowed are PNG" in error.inner_text()
    page.close()


@pytest.mark.parametrize(("row", "word"), [("1 2 abc 4", "abc"), ("1,5 2,3", "1,5"), ("1;2;NaN;4", "NaN")])
def test_a_row_is_read_as_meant_or_not_at_all(row: str, word: str, table: str, opened: Any) -> None:
    page = opened(table)
    page.locator("#tab-live").click()
    page.locator('#place textarea[name="row"]').fill(row)
    page.locator("#place button").click()
    said = page.locator("#place .error").inner_text()
    assert f"“{word}” is not one number; give 4 numbers" in said
    assert "Decimals take a point" in said


def test_walks_and_ways_between_samples(explorer: str, opened: Any) -> None:
    page = opened(explorer)
    page.locator("#tab-live").click()
    page.locator("#walk button").click()
    assert tiles(page, "walk").count() == 4
    page.locator('#walk input[name="sample"]').fill("3")
    assert page.locator("#walk .seen .tile").count() == 1
    page.locator('#interpolate input[name="steps"]').fill("6")
    page.locator("#interpolate button").click()
    assert tiles(page, "interpolate").count() == 6
    before = page.locator('#interpolate input[name="a"]').input_value()
    box = page.locator("#map canvas").bounding_box()
    for dx in range(10, int(box["width"]) - 10, 12):  # somewhere on the map there is a point
        page.mouse.move(box["x"] + dx, box["y"] + box["height"] / 2)
        if page.locator("#tip").is_visible():
            page.mouse.down()
            page.mouse.up()
            break
    assert page.locator('#interpolate input[name="a"]').input_value() != before
    assert page.locator("#tab-live").get_attribute("aria-selected") == "true"


def test_a_sample_has_one_number(table: str, opened: Any) -> None:
    page = opened(table)
    shown = page.evaluate("JSON.parse(document.getElementById('bundle').textContent).samples.row")
    i = next(i for i, row in enumerate(shown) if row != i)  # some rows are left out
    page.locator("#tab-live").click()
    page.locator('#walk input[name="sample"]').fill(str(shown[i]))
    assert page.locator("#walk .seen .card").get_attribute("title") == f"sample {shown[i]}"
    with page.expect_request("**/api/walk") as asked:
        page.locator("#walk button").click()
    assert asked.value.post_data_json["sample"] == i  # the server counts what is shown
    missing = next(row for row in range(2500) if row not in set(shown))
    page.locator('#walk input[name="sample"]').fill(str(missing))
    said = page.locator('#walk input[name="sample"]').evaluate("it => it.validationMessage")
    assert f"holds 2400 of 2500 samples, not {missing}" in said


CELLS = "all => all.map(row => [...row.cells].map(cell => cell.innerText))"


def test_a_row_is_compared_with_its_reconstruction(table: str, opened: Any) -> None:
    page = opened(table)
    page.locator("#tab-live").click()
    page.locator('#place textarea[name="row"]').fill("1, 2, 3\n4")
    page.locator("#place button").click()
    page.locator(".placed").wait_for()
    head, *rows = page.locator(".compared tr").evaluate_all(CELLS)
    assert head == ["", "sample", "reconstruction"]
    assert [row[:2] for row in rows] == [[name, str(i)] for i, name in enumerate(NAMES, 1)]
    assert all(float(row[2]) for row in rows)
    names = page.locator(".compared tbody th").evaluate_all("all => all.map(it => it.scrollWidth - it.clientWidth)")
    assert names == [0] * 4  # nothing is cut
    assert page.locator(".placed").get_attribute("data-leaf") in ("4", "6")
    assert page.locator(".way li").count() == 2  # the node between has one child and is passed over
    page.locator("#walk button").click()
    page.locator("#walk .result .card").first.wait_for()
    assert page.locator("#walk .result .card.features").count() == 2


def test_a_text_is_compared_word_by_word(reports: dict[str, str], opened: Any) -> None:
    html = Path(url2pathname(urlparse(reports["texts"]).path)).read_text()
    bundle = json.loads(html.split('id="bundle">')[1].split("</script>")[0])
    cards = [[{"name": name, "value": v + i} for i, name in enumerate(["bread", "<b>"])] for v in (0.0, 0.5)]
    leaf = bundle["nodes"][1]["id"]
    answer = {"leaf": leaf, "cluster": 0, "path": [], "leaves": [], "sample": {"card": cards[0]}}
    answer["reconstruction"] = {"card": cards[1]}
    address = "http://127.0.0.1:9/"
    served = {address: page_of(bundle | {"live": True, "accepts": ["text"]}), f"{address}api/place": json.dumps(answer)}
    page = opened(address, served=served)
    page.locator("#tab-live").click()
    page.locator('#place textarea[name="text"]').fill("bread")
    page.locator("#place button").click()
    page.locator(".compared").wait_for()
    rows = page.locator(".compared tbody tr").evaluate_all(CELLS)
    assert rows == [["bread", "0", "0.5"], ["<b>", "1", "1.5"]]


def test_a_tree_grows_until_it_can_be_asked(ready: Ready, opened: Any) -> None:
    small, door = Tree().split(0), Door("127.0.0.1")
    so_far = {"losses": [30.0, 21.5], "stages": [0], "saves": 1, "saved_at": "2026-01-01T00:00:00+00:00"}
    growing = Growing(stage="first tree", epoch=2, epochs=15, loss=21.5, progress=0.1, **so_far)
    site = Site(None, Status(state="training", title="digits", tree=shape_of(small), growing=growing))
    serving = _serving(create_app(site, Workers(1), door), door)
    page = opened(next(serving))
    assert page.locator("#tree circle").count() == 3
    assert "first tree, epoch 2 of 15, loss 21.5" in page.locator("#line").inner_text()
    later = growing.model_copy(update={"stage": "subtree", "leaf": 1, "saves": 2, "losses": [30.0, 21.5, 20.0]})
    site.status = Status(state="training", title="digits", tree=shape_of(small.split(1)), growing=later)
    page.locator("#tree circle").nth(4).wait_for()
    assert page.locator("#tree .busy").count() == 1
    assert "subtree of node 1" in page.locator("#line").inner_text()
    site.ready = ready
    site.status = ready.status
    page.locator("#generate button").click()  # it waits until the page has become the explorer
    assert tiles(page, "generate").count() == 12
    serving.close()
