"""The explorer's answers, every call against the model's own methods; and its page."""

import warnings

import explorers
import numpy as np
import pytest
from explorers import DIGITS, HERE, NAMES, X, as_bytes, error_of, pixels, png
from fastapi.testclient import TestClient
from scipy.sparse import csr_matrix

from treevae import Tree, TreeVAE
from treevae.page.snapshot import snapshot
from treevae.serve import guard
from treevae.serve.answers import Explorer
from treevae.serve.app import create_app
from treevae.serve.guard import Door
from treevae.serve.messages import Place, Walk
from treevae.serve.site import Ready, Site
from treevae.serve.workers import Workers
from treevae.subject import Subject


@pytest.fixture(scope="module")
def model() -> TreeVAE:
    return explorers.fitted()


@pytest.fixture(scope="module")
def client() -> TestClient:
    return TestClient(explorers.guarded(), base_url=HERE)


@pytest.fixture(scope="module")
def table() -> tuple[TreeVAE, TestClient]:
    return explorers.of_table()


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
