"""The bundle: its numbers against predict, predict_proba and plain numpy; its size."""

import copy
import dataclasses
import json
from typing import Any

import numpy as np
import pytest
import torch
from bundles import TREE, X, Y, fitted, fitted_well, members, node_of, reach_of

from treevae import Tree, TreeVAE
from treevae.describe.placement import Placement, in_turn
from treevae.model.elbo import TERMS
from treevae.model.scoring import score_terms
from treevae.page import facts
from treevae.page.facts import DRAWS, LADDER
from treevae.page.snapshot import Snapshot, snapshot
from treevae.training.events import EpochEnded


@pytest.fixture(scope="module")
def model() -> TreeVAE:
    return fitted_well()


@pytest.fixture(scope="module")
def bundle(model: TreeVAE) -> dict:
    return snapshot(model, X, Y, title="digits", map_method="pca").bundle


# -- numbers at nodes -------------------------------------------------------------------------------------------


def test_the_tree_is_the_models(model: TreeVAE, bundle: dict) -> None:
    assert [one["id"] for one in bundle["nodes"]] == list(model.tree_.nodes)
    for one in bundle["nodes"]:
        node = one["id"]
        assert one["parent"] == model.tree_.parent(node)
        assert one["children"] == list(model.tree_.children(node))
        assert one["depth"] == model.tree_.depth(node)
        assert one["leaf"] == (model.tree_.leaves.index(node) if model.tree_.is_leaf(node) else None)
    assert bundle["groups"] == [list(model.tree_.groups(k)) for k in range(1, 5)]


def test_sizes_and_masses_are_those_of_predict_and_predict_proba(model: TreeVAE, bundle: dict) -> None:
    for one in bundle["nodes"]:
        assert one["size"] == len(members(model, one["id"]))
        assert one["mass"] == pytest.approx(reach_of(model, one["id"]).mean(), rel=1e-4)
        for quantity in ("size", "mass"):
            below = [node_of(bundle, child)[quantity] for child in one["children"]]
            assert not below or sum(below) == pytest.approx(one[quantity], rel=1e-3)
    assert node_of(bundle, 0)["size"] == bundle["n_samples"] == 240


def test_confidence_is_the_mean_probability_of_the_chosen_branch(model: TreeVAE, bundle: dict) -> None:
    for one in bundle["nodes"]:
        node, rows = one["id"], members(model, one["id"])
        if model.tree_.is_leaf(node):
            wanted = reach_of(model, node)[rows].mean()
        else:
            reach = {one: reach_of(model, one) for one in (node, *model.tree_.children(node))}
            of = {i: child for child in model.tree_.children(node) for i in members(model, child)}
            wanted = np.mean([reach[of[i]][i] / reach[node][i] for i in rows])
        assert one["confidence"] == pytest.approx(wanted, rel=1e-4)


def test_elbo_terms_are_the_means_over_the_nodes_samples(model: TreeVAE, bundle: dict) -> None:
    elbo = score_terms(model.module_, torch.from_numpy(X.reshape(len(X), -1)), DRAWS).elbo.detach().numpy()
    assert elbo.mean() == pytest.approx(model.score(X), rel=0.01)  # which has more draws
    for one in bundle["nodes"]:
        terms, rows = one["elbo"], members(model, one["id"])
        assert terms["elbo"] == pytest.approx(elbo[rows].mean(), rel=1e-4)
        assert terms["elbo"] == pytest.approx(terms["reconstruction"] - sum(terms[t] for t in TERMS[1:]), abs=0.01)


def test_typical_and_ambiguous_samples_of_leaves_are_the_surest_and_the_least_sure(
    model: TreeVAE, bundle: dict
) -> None:
    row = bundle["samples"]["row"]
    for k, leaf in enumerate(model.tree_.leaves):
        sure = model.predict_proba(X)[:, k]
        rest = members(model, leaf)
        typical = [row[i] for i in node_of(bundle, leaf)["typical"]]
        ambiguous = [row[i] for i in node_of(bundle, leaf)["ambiguous"]]
        assert len(typical) == len(ambiguous) == min(LADDER[0].per_node, len(rest))
        assert set(typical) | set(ambiguous) <= set(rest)
        assert sorted(sure[rest], reverse=True)[: len(typical)] == pytest.approx(sure[typical])
        assert sorted(sure[rest])[: len(ambiguous)] == pytest.approx(sure[ambiguous])


def test_ambiguous_samples_of_a_fork_are_nearest_to_the_middle(model: TreeVAE, bundle: dict) -> None:
    row = bundle["samples"]["row"]
    for node in model.tree_.routers:
        left, _ = model.tree_.children(node)
        doubt = np.abs(reach_of(model, left) / reach_of(model, node) - 0.5)
        shown = [row[i] for i in node_of(bundle, node)["ambiguous"]]
        assert sorted(doubt[members(model, node)])[: len(shown)] == pytest.approx(doubt[shown], abs=1e-6)


def test_typical_samples_of_a_fork_come_from_its_leaves_in_turn(bundle: dict) -> None:
    leaves = sorted((one for one in bundle["nodes"] if one["leaf"] is not None), key=lambda one: -one["size"])
    first = node_of(bundle, 0)["typical"][: len(leaves)]
    assert first == [leaf["typical"][0] for leaf in leaves]
    assert in_turn([[1, 2, 3], [4], [5, 6]], 5) == [1, 4, 5, 2, 6]


def test_label_mixes_and_scores_are_counted(model: TreeVAE, bundle: dict) -> None:
    for one in bundle["nodes"]:
        assert one["labels"] == np.bincount(Y[members(model, one["id"])], minlength=10).tolist()
    leaves = model.predict(X)
    purity = sum(np.bincount(Y[leaves == k]).max() for k in set(leaves.tolist())) / 240
    assert bundle["scores"]["LP"] == pytest.approx(purity, abs=1e-4)
    assert set(bundle["scores"]) == {"ACC", "NMI", "LP", "DP"}
    assert snapshot(model, X, map_method="pca").bundle["scores"] is None


def test_samples_are_shown_once_with_their_leaf_label_and_place(model: TreeVAE, bundle: dict) -> None:
    samples = bundle["samples"]
    assert samples["row"] == list(range(240))
    assert samples["leaf"] == [model.tree_.leaves[k] for k in model.predict(X)]
    assert samples["label"] == Y.tolist()
    assert samples["probability"] == pytest.approx(model.predict_proba(X).max(1), rel=1e-4)
    places = np.array([samples["x"], samples["y"]])
    assert places.min() >= 0
    assert places.max() <= 1
    flat = model.transform(X) - model.transform(X).mean(0)
    first = flat @ np.linalg.svd(flat, full_matrices=False)[2][0]  # the first principal component
    assert abs(np.corrcoef(places[0], first)[0, 1]) == pytest.approx(1, abs=1e-4)
    assert bundle["map"] == {"method": "PCA", "of": "root embedding"}


# -- names, walks, history, pruned trees ------------------------------------------------------------------------


def test_walks_are_decoded_by_every_leaf(model: TreeVAE, bundle: dict) -> None:
    walks = model.fitted_.walk_draws(5, random_state=3)
    np.testing.assert_allclose(walks.shown, model.sample_all_leaves(5, random_state=3), atol=1e-6)
    np.testing.assert_allclose(walks.probability.sum(1), 1, atol=1e-5)
    through = model.fitted_.walk_samples(X[:9])
    np.testing.assert_allclose(through.probability, model.predict_proba(X[:9]), atol=1e-6)
    mean = np.einsum("nl,nlhw->nhw", through.probability, through.shown)
    np.testing.assert_allclose(mean, model.reconstruct(X[:9], path="all"), atol=1e-5)
    row = bundle["all_leaves"][0]
    assert set(row["images"]) == set(row["probabilities"]) == {str(leaf) for leaf in model.tree_.leaves}


def test_history_has_the_epochs_and_the_ends_of_stages(model: TreeVAE, bundle: dict) -> None:
    epochs = [event for event in model.history_ if event["event"] == "EpochEnded"]
    assert [row["epoch"] for row in bundle["history"]] == [event["epoch"] for event in epochs]
    last, row = epochs[-1], bundle["history"][-1]
    kl = last["kl_root"] + last["kl_nodes"] + last["kl_decisions"]
    assert (row["loss"], row["kl"]) == pytest.approx((kl - last["reconstruction"], kl), rel=1e-4)


def test_a_long_history_is_thinned_but_keeps_the_ends(model: TreeVAE) -> None:
    epochs = [EpochEnded("s", None, i % 1000 + 1, 1000, 1.0, 1e-3, -1.0, 0.0, 0.0, 0.0, 0.5) for i in range(3000)]
    long = copy.copy(model)
    long.fitted_ = dataclasses.replace(model.fitted_, history=tuple(epochs))
    rows = snapshot(long, X, map_method="pca").bundle["history"]
    assert len(rows) < 420
    assert sum(row["epoch"] == 1000 for row in rows) == 3


def test_a_node_that_pruning_left_with_one_child_passes_on() -> None:
    tree = TREE.prune(4)  # node 1 has one child, 3
    model = fitted(X, tree)
    bundle = snapshot(model, X, Y, map_method="pca").bundle
    one, three = node_of(bundle, 1), node_of(bundle, 3)
    assert one["children"] == [3]
    assert one["split"] is None
    for same in ("size", "mass", "confidence", "typical", "ambiguous", "elbo", "labels"):
        assert one[same] == three[same]


def test_a_leaf_without_samples_has_none_of_them() -> None:
    standing = Placement(Tree().split(0), np.array([[0.9, 0.1], [0.8, 0.2]]))
    assert (standing.size(2), standing.typical(2, 3), standing.ambiguous(2, 3), standing.confidence(2)) == (
        0,
        [],
        [],
        None,
    )
    assert standing.mass(2) == pytest.approx(0.15)


# -- size -------------------------------------------------------------------------------------------------------


def test_the_bound_holds_and_less_is_shown(model: TreeVAE) -> None:
    whole = snapshot(model, X, Y, map_method="pca")
    for most in (whole.n_bytes - 1, 30_000):
        found = snapshot(model, X, Y, map_method="pca", max_bytes=most)
        assert len(found.to_json().encode()) == found.n_bytes <= most
        assert node_of(found.bundle, 0)["size"] == 240  # numbers are of all samples
    assert found.bundle["n_shown"] < 240
    with pytest.raises(ValueError, match="max_bytes=100 is too small: with 4 leaves the smallest bundle has"):
        snapshot(model, X, map_method="pca", max_bytes=100)


def test_large_data_are_sampled_down(model: TreeVAE) -> None:
    many = np.concatenate([X] * 25)
    found = snapshot(model, many, map_method="pca")
    assert found.bundle["n_samples"] == 6000
    assert found.bundle["n_shown"] <= LADDER[0].points
    assert found.n_bytes < 3_000_000
    elbo = model.score_samples(X).mean()  # of about half of the samples, leaf by leaf
    assert node_of(found.bundle, 0)["elbo"]["elbo"] == pytest.approx(elbo, rel=0.02)


def test_the_file_is_json_and_whole(model: TreeVAE, tmp_path: Any) -> None:
    found = snapshot(model, X[:50], map_method="pca")
    found.write(tmp_path / "bundle.json")
    assert json.loads((tmp_path / "bundle.json").read_text()) == json.loads(json.dumps(found.bundle))
    assert [path.name for path in tmp_path.iterdir()] == ["bundle.json"]


# -- pictures, and what is refused ------------------------------------------------------------------------------


def test_a_missing_umap_is_made_up_for_by_pca(model: TreeVAE, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("treevae.page.snapshot.find_spec", lambda name: None)
    assert snapshot(model, X[:60]).bundle["map"]["method"] == "PCA"


def test_what_is_refused(model: TreeVAE) -> None:
    for wrong, message in (
        ({"map_method": "tsne"}, "map_method='tsne'; allowed are 'auto', 'umap', 'pca'"),
        ({"kind": "sounds"}, "kind='sounds'; allowed are 'images', 'words', 'table'"),
        ({"kind": "words"}, "kind='words', but the samples have shape"),
    ):
        with pytest.raises(ValueError, match=message):
            snapshot(model, X, **wrong)
    vectors = fitted(X.reshape(240, -1), Tree().split(0))
    with pytest.raises(ValueError, match="X has 64 features, but there are 2 names"):
        snapshot(vectors, X.reshape(240, -1), names=["a", "b"])


def test_the_first_tree_has_its_leaves(bundle: dict) -> None:
    assert (bundle["history"][0]["stage"], bundle["history"][0]["n_leaves"]) == ("first tree", 4)


def test_smaller_bundles_do_not_compute_again(model: TreeVAE, monkeypatch: pytest.MonkeyPatch) -> None:
    asked = []
    monkeypatch.setattr(facts, "history_rows", lambda model: asked.append("history") or [])
    monkeypatch.setattr(facts, "nmi", lambda *given: asked.append("scores") or 0.5)
    found = snapshot(model, X, Y, map_method="pca", max_bytes=30_000)
    assert found.bundle["n_shown"] < 240
    assert sorted(asked) == ["history", "scores"]
    monkeypatch.setattr(Snapshot, "to_json", lambda self: pytest.fail("written again to be measured"))
    assert found.n_bytes <= 30_000
