"""Records of fitted models: what they say of log p(x), of nodes and of stages."""

import json
from functools import partial
from types import SimpleNamespace

import numpy as np
import pytest
import torch

from treevae import Tree, TreeVAE
from treevae.data import DataSet
from treevae.model import descent
from treevae.records import parameters_of, record, stages
from treevae.scores import mean_terms, node_table
from treevae.training.events import EpochEnded, LeafChosen

RNG = np.random.default_rng(0)
IMAGES, Y = (RNG.integers(256, size=(40, 8, 8, 3)) / 255).astype(np.float32), RNG.integers(2, size=40)
SMALL = {"tree": Tree().split(0), "latent_dim": 2, "hidden_dim": 8, "max_depth": 2, "epochs": 1, "random_state": 0}


def recorded(x: np.ndarray, draws: int, **changes: object) -> tuple[TreeVAE, dict]:
    model = TreeVAE(**SMALL | changes).fit(x)
    data = DataSet("made up", x, Y, x, Y, ("a", "b"))
    return model, json.loads(json.dumps(record(model.fitted_, parameters_of(model), data, 0, "command", draws)))


def test_estimates_of_log_p_come_with_their_error():
    model, found = recorded(IMAGES, 6)
    told = found["likelihood"]
    for bound in ("iwae", "paper"):
        values = model.log_likelihood(IMAGES, 6, bound).astype(float)
        assert told[f"ll_{bound}"]["mean"] == pytest.approx(values.mean())
        assert told[f"ll_{bound}"]["standard_error"] == pytest.approx(values.std(ddof=1) / np.sqrt(40))
        assert told[f"ll_{bound}"]["mean"] > found["elbo"]["ELBO"]
    # with sigma = 1 a pixel costs at least log sqrt(2 pi) nats, however well it is met
    least = np.log2(255) + np.log2(2 * np.pi) / 2
    assert least < told["bits_per_dimension"] < least + 0.5
    assert told["draws"] == 6
    assert set(found["scores_percent"]) == {"DP", "LP", "ACC", "NMI", "ARI"}


def test_bits_are_told_of_densities_of_pixels_alone():
    assert "bits_per_dimension" not in recorded(IMAGES[..., 0], 2)[1]["likelihood"]  # Bernoulli
    assert "bits_per_dimension" not in recorded(IMAGES.reshape(40, -1), 2, likelihood="gaussian")[1]["likelihood"]
    assert "bits_per_dimension" not in recorded(255 * IMAGES, 2, likelihood="gaussian")[1]["likelihood"]
    assert "bits_per_dimension" in recorded(np.uint8(255 * IMAGES + 0.5), 2)[1]["likelihood"]
    between = IMAGES * np.float32(0.999)  # in [0, 1], but no bytes
    assert "bits_per_dimension" not in recorded(between, 2)[1]["likelihood"]
    assert "likelihood" not in recorded(IMAGES, 0)[1]


def test_nodes_are_told_by_the_samples_that_reach_them():
    three = Tree().split(0).split(1)  # leaves 3, 4 and 2
    model = TreeVAE(**SMALL | {"tree": three, "epochs": 3}).fit(IMAGES)
    told = {row["node"]: row for row in node_table(model.fitted_, IMAGES)}
    proba = dict(zip(three.leaves, model.predict_proba(IMAGES).T, strict=True))
    reach = proba | {1: proba[3] + proba[4], 0: np.ones(len(IMAGES))}
    assert reach[1].std() > 0.01  # samples differ, so that it matters how they are weighted
    for node, row in told.items():
        assert row["share"] == pytest.approx(reach[node].mean(), abs=1e-5)
        assert (row["depth"], row["children"]) == (three.depth(node), list(three.children(node)))
    surer = {0: np.maximum(reach[1], reach[2]), 1: np.maximum(reach[3], reach[4])}
    for node, larger in surer.items():
        assert told[node]["confidence"] == pytest.approx(larger.sum() / reach[node].sum(), abs=1e-5)
    assert [told[leaf]["confidence"] for leaf in three.leaves] == [None] * 3
    assert told[0]["active_latents"] == (model.transform(IMAGES).var(0) > 0.01).sum()
    terms = mean_terms(model.fitted_, IMAGES)  # of ten draws, where nodes are of one
    assert sum(row["share"] * row["kl"] for row in told.values()) == pytest.approx(
        terms["kl_root"] + terms["kl_nodes"], rel=0.05
    )


def test_a_node_that_nothing_reaches_has_no_figures(monkeypatch):
    three = Tree().split(0).split(1)
    model = TreeVAE(**SMALL | {"tree": three, "epochs": 3}).fit(IMAGES)
    nothing_left = lambda nodes, logit: descent.log_reach(nodes, torch.full_like(logit, 1e4))  # noqa: E731
    monkeypatch.setattr("treevae.scores.descent", SimpleNamespace(**vars(descent) | {"log_reach": nothing_left}))
    told = {row["node"]: row for row in node_table(model.fitted_, IMAGES)}
    assert told[1]["share"] == 0
    assert (told[1]["confidence"], told[1]["kl"]) == (None, None)
    assert json.dumps(list(told.values()), allow_nan=False)


def test_latents_are_in_use_where_they_differ_between_the_samples_that_come(monkeypatch):
    """Of one sample alone nothing differs, however much the others would."""
    three = Tree().split(0).split(1)
    model = TreeVAE(**SMALL | {"tree": three, "epochs": 3}).fit(IMAGES)

    def first_left(nodes: object, logit: torch.Tensor) -> torch.Tensor:
        sure = torch.full_like(logit, 1e4)
        sure[:, 0] = -1e4  # of the first sample, at every router
        return descent.log_reach(nodes, sure)

    monkeypatch.setattr("treevae.scores.descent", SimpleNamespace(**vars(descent) | {"log_reach": first_left}))
    told = {row["node"]: row for row in node_table(model.fitted_, IMAGES)}
    means = {node: model.fitted_.ask(IMAGES, partial(model.module_.embed, node=node)) for node in three.nodes}
    assert all((z.var(0) > 0.01).all() for z in means.values())
    assert [told[node]["share"] for node in (1, 2, 3, 4)] == pytest.approx([1 / 40, 39 / 40, 1 / 40, 0])
    for node, inside in {0: slice(None), 1: slice(1), 2: slice(1, None), 3: slice(1)}.items():
        assert told[node]["active_latents"] == (means[node][inside].var(0) > 0.01).sum()
    assert [told[node]["active_latents"] for node in (1, 3)] == [0, 0]


def test_a_stage_has_its_own_seconds_and_samples():
    terms = {"kl_weight": 0.5, "reconstruction": -3.0, "kl_root": 1.0, "kl_nodes": 2.0, "kl_decisions": 0.1}

    def epoch(k: int, stage: str, samples: int = 10, leaf: int | None = None) -> EpochEnded:
        rest = {"epoch": k, "epochs": 2, "learning_rate": 1e-3, "progress": 0.5, "samples": samples}
        return EpochEnded(stage=stage, leaf=leaf, **terms, **rest)

    history = [
        *(epoch(k, "first tree") for k in (1, 2)),
        LeafChosen(1, 7),
        *(epoch(k, "subtree", 7, 1) for k in (1, 2)),
        *(epoch(k, "final") for k in (1, 2)),
    ]
    found = stages(SimpleNamespace(history=history, seconds=[1.0, 3.0, 3.5, 4.0, 5.5, 7.0, 11.0]))
    assert [(one["stage"], one["samples"], one["seconds"]) for one in found] == [
        ("first tree", 10, 3.0),
        ("subtree", 7, 2.5),
        ("final", 10, 5.5),
    ]
    assert found[1]["leaf"] == 1
    assert terms.items() <= found[0].items()
