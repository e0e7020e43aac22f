"""What goes together with a guide and with neighbours, and what is refused before anything is written."""

import numpy as np
import pytest
from kinds import GREY, GUIDED, SMALL, VECTORS, nested, shaken
from scipy import sparse
from scipy.cluster.hierarchy import linkage

from treevae import Tree, TreeVAE
from treevae.baselines import VAE, DeepECT, LadderVAE
from treevae.errors import OneGroupError
from treevae.guides import Guide
from treevae.tree import balanced

X, Y = nested()
SHORT = GUIDED | {"n_leaves": 4, "max_depth": 3, "epochs": 30, "batch_size": 32, "learning_rate": 0.01}


@pytest.mark.parametrize("start", ["guide", "splits"])
@pytest.mark.parametrize("weight", [0.0, 2.0], ids=["augmented", "contrastive"])
def test_neighbours_stand_beside_augmented_views(start, weight):
    how = SMALL | {"start": start, "neighbours": 3, "augment": shaken, "contrastive_weight": weight, "epochs": 2}
    model = TreeVAE(**how).fit(GREY)
    parts = {"contrast_bottom_up", "contrast_routers"} if weight else set()
    assert parts | {"agreement"} <= set(model.fitted_.epochs[0].more)
    assert all(np.isfinite(list(event.more.values())).all() for event in model.fitted_.epochs)
    again = TreeVAE(**how).fit(GREY)
    assert again.history_ == model.history_


def test_a_fixed_tree_may_have_neighbours():
    graph = sparse.csr_array(np.eye(len(X), k=1))
    model = TreeVAE(**SMALL | {"tree": Tree().split(0), "neighbours": 3}).fit(X, graph=graph)
    assert "agreement" in model.history_[0]
    assert TreeVAE(**SMALL | {"tree": Tree(), "neighbours": 3}).fit(X).tree_ == Tree()


@pytest.mark.parametrize(
    ("how", "beside", "said"),
    [
        ({}, {"guide": Y[:-1]}, "guide has 319 labels and X 320 samples; pass one label for each sample"),
        ({}, {"guide": "typo"}, "guide='typo' is not known; pass one of kmeans, embedding, networks"),
        ({"start": "splits"}, {"guide": Y}, "guide is given, and start='splits' grows without one"),
        ({"tree": Tree().split(0)}, {"guide": Y}, "guide is given, and the tree of this model is fixed"),
        ({"n_leaves": 3}, {"guide": Y}, "guide has 4 groups and n_leaves=3; pass n_leaves=4"),
        ({"neighbours": 0}, {"graph": sparse.eye_array(320)}, "graph .* neighbours=0 asks for none; set it to 10"),
        ({}, {"graph": sparse.eye_array(319)}, r"graph has shape \(319, 319\) and X 320 samples"),
        ({}, {"guide": linkage(X[1:], "ward")}, "pass one label for each of the 320 samples, or a linkage matrix"),
        ({"max_depth": 2}, {"guide": Guide(Y, Tree().split(0).split(1).split(3))}, "pass max_depth=3"),
        ({"n_leaves": 3}, {"guide": Guide(Y, balanced(4))}, "guide has 4 groups and n_leaves=3; pass n_leaves=4"),
        ({"n_leaves": 8, "max_depth": 3, "start": "guide"}, {"guide": "kmeans"}, None),
        ({"start": "cut"}, {}, "start='cut'; allowed are 'auto', 'splits', 'guide'"),
        ({"neighbours": -1}, {}, "neighbours=-1 must be a whole number of at least 0"),
        ({"neighbours": 2.5}, {}, "neighbours=2.5 must be a whole number"),
        ({"n_init": "many"}, {}, "n_init='many' must be a whole number of at least 1, or 'auto'"),
        ({"epochs": "short"}, {}, "epochs='short' must be a whole number of at least 1, or 'auto'"),
    ],
)
def test_what_cannot_be_is_refused_before_anything_is_written(how, beside, said, tmp_path):
    model = TreeVAE(**SHORT | {"epochs": 1} | how)
    if said is None:
        assert len(model.fit(X, **beside).tree_.leaves) <= 8
        return
    with pytest.raises(ValueError, match=said):
        model.fit(X, checkpoint=tmp_path / "state", **beside)
    assert not (tmp_path / "state").exists()


def test_a_guide_of_one_group_is_no_guide():
    with pytest.raises(OneGroupError, match="the guide 'given' has 1 group; a tree needs two at least"):
        TreeVAE(**SHORT).fit(X, guide=np.zeros(len(X), dtype=int))


@pytest.mark.parametrize("model", [VAE(1, hidden_dim=4, epochs=1), LadderVAE(1, hidden_dim=4, epochs=1)])
def test_models_without_a_choice_of_trees_refuse_guides(model):
    with pytest.raises(ValueError, match="guide is given, and the tree of this model is fixed"):
        model.fit(X, guide=Y)
    with pytest.raises(ValueError, match="graph tells which samples should share a leaf, and this model has but one"):
        model.fit(X, graph=sparse.eye_array(len(X)))


def test_few_samples_are_grown_by_splits():
    model = TreeVAE(10, epochs=1, hidden_dim=4, n_init=1).fit(X[:8])
    assert model.history_[0].get("stage") == "first tree"
    with pytest.raises(ValueError, match="n_leaves=10 groups of 8 samples; lower n_leaves"):
        TreeVAE(10, epochs=1, start="guide").fit(X[:8])


def test_neighbours_need_all_samples_in_memory(monkeypatch):
    given = TreeVAE(**SMALL | {"neighbours": 3, "start": "splits"})
    monkeypatch.setattr("treevae.training.samples.CPU_BUDGET", -4 * X.size)
    with pytest.raises(MemoryError, match=r"neighbours need all samples in the device's memory; set neighbours=0"):
        given.fit(X)


def test_deepect_takes_no_guide():
    with pytest.raises(TypeError):
        DeepECT(2).fit(VECTORS, guide="kmeans")
