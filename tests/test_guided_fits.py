"""Fits that begin with a guide, and fits with neighbours: what they learn, beside whom, and what they refuse."""

import dataclasses
import json

import numpy as np
import pytest
import torch
from kinds import GUIDED, SMALL, nested
from scipy import sparse
from scipy.cluster.hierarchy import linkage
from sklearn.base import BaseEstimator, clone
from sklearn.cluster import KMeans
from sklearn.exceptions import ConvergenceWarning
from small_groves import ARCH, CPU, THREE, assert_same_weights, data, shape_of, story

from treevae import Tree, TreeVAE, load
from treevae.errors import ChangedRunError
from treevae.guides import Guide, nearest
from treevae.metrics import accuracy
from treevae.model.subtree import Subtree
from treevae.preparing import prepare
from treevae.starting import Beside
from treevae.training import loop
from treevae.training.events import EpochEnded, GuideMade, TreeChanged
from treevae.training.grove import Grove
from treevae.training.guided import Guided
from treevae.training.objectives import SubtreeOnSubset, WholeTree
from treevae.training.plan import Plan
from treevae.training.samples import Samples
from treevae.training.terms import Agreement

X, Y = nested()


class BisectingOf(BaseEstimator):
    """A clusterer that has another as a parameter."""

    def __init__(self, inner):
        self.inner = inner

    def fit_predict(self, X):
        return self.inner.fit_predict(X)


SHORT = GUIDED | {"n_leaves": 4, "max_depth": 3, "epochs": 30, "batch_size": 32, "learning_rate": 0.01}


# -- what is learnt -----------------------------------------------------------------------------------------------


def test_by_default_a_tree_of_vectors_begins_with_a_guide():
    model = TreeVAE(4, max_depth=2, hidden_dim=8, epochs=2, random_state=0).fit(X)
    made = [event for event in model.fitted_.history if isinstance(event, GuideMade)]
    assert [event.name for event in made] == ["kmeans", "embedding", "networks"]
    assert [type(event).__name__ for event in model.fitted_.history[:3]] == ["GuideMade"] * 3
    assert {event.stage for event in model.fitted_.epochs} == {"guided", "final"}
    assert {"agreement", "guidance"} == set(model.fitted_.epochs[0].more)
    assert {"agreement"} == set(model.fitted_.epochs[-1].more)


def test_groups_are_found_and_the_tree_is_the_guides():
    model = TreeVAE(**SHORT).fit(X)
    assert accuracy(model.predict(X), Y) == 1
    assert accuracy(model.predict(X, n_groups=2), Y // 2) == 1


def test_the_labels_of_a_guide_are_learnt():
    """Labels that nobody would find: the sign of a feature in which there are no groups."""
    given = (X[:, 0] > np.median(X[:, 0])).astype(int)
    how = SHORT | {"n_leaves": 2, "neighbours": 0, "epochs": 100}
    first = TreeVAE(**how).fit(X, guide=given, callback=lambda event: not isinstance(event, TreeChanged))
    assert {event.stage for event in first.fitted_.epochs} == {"guided"}
    assert (first.labels_ == given).mean() > 0.8
    unguided = TreeVAE(**how).fit(X, guide="kmeans")
    assert accuracy(unguided.labels_, given) < 0.7


def test_the_leaves_stand_in_the_order_of_the_guides_tree():
    tree = Tree().split(0).split(1)
    labels = np.array([0, 1, 2, 2])[Y]
    model = TreeVAE(**SHORT | {"n_leaves": 3, "neighbours": 0}).fit(X, guide=Guide(labels, tree))
    assert model.tree_ == tree
    assert (model.labels_ == labels).mean() > 0.95


def test_samples_without_a_label_follow_the_model():
    labels = np.where(np.arange(len(X)) < 60, Y, -1)
    model = TreeVAE(**SHORT).fit(X, guide=labels)
    assert model.fitted_.history[0].known == 60 / len(X)
    assert accuracy(model.labels_, Y) > 0.95


def test_a_guide_of_fewer_leaves_is_grown_further():
    model = TreeVAE(**SHORT).fit(X, guide=Y // 2)
    first, *_ = [event for event in model.fitted_.history if isinstance(event, TreeChanged)]
    assert len(first.tree.leaves) == 2
    assert len(model.tree_.leaves) > 2
    stages = [event.stage for event in model.fitted_.epochs]
    assert list(dict.fromkeys(stages)) == ["guided", "subtree", "final"]
    assert accuracy(model.predict(X, n_groups=2), Y // 2) == 1


@pytest.mark.parametrize(
    ("guide", "name"),
    [
        ("kmeans", "kmeans"),
        (Y, "given"),
        (torch.tensor(Y), "given"),
        (["abcd"[y] for y in Y], "given"),
        (KMeans(4, n_init=2, random_state=0), "KMeans"),
        (KMeans, "KMeans"),
        (linkage(X, "ward"), "linkage"),
        (Guide(np.array([0, 1, 2, 3])[Y], Tree().split(0).split(1).split(2), "mine"), "mine"),
    ],
    ids=["name", "labels", "tensor", "texts", "clusterer", "class", "linkage", "guide"],
)
def test_a_guide_may_have_any_form(guide, name):
    model = TreeVAE(**SHORT | {"epochs": 2}).fit(X, guide=guide)
    (made,) = (event for event in model.fitted_.history if isinstance(event, GuideMade))
    assert (made.name, made.leaves, made.known) == (name, 4, 1.0)
    assert made.agreement > 1


def test_one_known_sample_of_each_group_is_a_guide():
    labels = np.full(len(X), -1)
    labels[np.unique(Y, return_index=True)[1]] = np.arange(4)
    with pytest.warns(ConvergenceWarning, match="Another guide, neighbours=0 or start='splits' can give more"):
        model = TreeVAE(**SHORT | {"epochs": 2}).fit(X, guide=labels)
    (made,) = (event for event in model.fitted_.history if isinstance(event, GuideMade))
    assert (made.leaves, made.known, made.agreement) == (4, 4 / len(X), 0)
    assert model.fitted_.guide == made


def test_what_is_said_of_a_clusterer_is_no_address():
    one, same, other = (KMeans(n, random_state=np.random.RandomState(0)) for n in (4, 4, 5))
    assert Beside(guide=one).identity() == Beside(guide=same).identity()
    assert Beside(guide=one).identity() != Beside(guide=other).identity()
    nested_one, nested_same = (BisectingOf(KMeans(4, random_state=np.random.default_rng(0))) for _ in range(2))
    assert Beside(guide=nested_one).identity() == Beside(guide=nested_same).identity()


def test_the_guide_that_tells_most_of_neighbours_is_taken():
    model = TreeVAE(**SHORT | {"epochs": 2, "n_init": 3}).fit(X)
    made = [event for event in model.fitted_.history if isinstance(event, GuideMade)]
    near = nearest(model.fitted_.encode(X), 4)
    (first, *_) = (event for event in model.fitted_.history if isinstance(event, TreeChanged))
    best = max(made, key=lambda event: event.agreement)
    assert len(first.tree.leaves) == best.leaves
    assert near.shape == (len(X), 4)
    good, bad = (
        Guide(Y, Tree().split(0).split(1).split(2)),
        Guide(np.arange(len(X)) % 4, Tree().split(0).split(1).split(2)),
    )
    for order in ((good, 1.0), (bad, 0.5)), ((bad, 0.5), (good, 1.0)):
        grove = Grove(ARCH, data(len(X)), Plan.guided(4, 4, 16, 1.0, 0.0), [0], Guided(lambda _, told=order: told))
        told = iter(filter(None, grove.events()))
        assert [next(told)[1].agreement for _ in order] == [said for _, said in order]
        next(told)
        np.testing.assert_array_equal(grove.runs[0].labels[0].numpy(), Y)


@pytest.mark.parametrize(("said", "taken"), [(1.04, False), (1.06, True)])
def test_a_guide_made_from_neighbours_must_be_clearly_better(said, taken):
    tree = Tree().split(0).split(1).split(2)
    plain, near = Guide(Y, tree, "kmeans"), Guide(np.arange(len(X)) % 4, tree, "embedding")
    for told in ((plain, 1.0), (near, said)), ((near, said), (plain, 1.0)):
        start = Guided(lambda _, told=told: told)
        grove = Grove(ARCH, data(len(X)), Plan.guided(4, 4, 16, 1.0, 0.0), [0], start)
        happened = grove.events()
        while not grove.runs[0].planted:
            next(happened)
        np.testing.assert_array_equal(grove.runs[0].labels[0].numpy(), (near if taken else plain).labels)


def test_a_graph_takes_the_place_of_the_search():
    """A graph that joins samples across the groups: what is nearest in X is not asked."""
    n = len(X)
    graph = sparse.csr_array((np.ones(n), (np.arange(n), (np.arange(n) + 1) % n)), (n, n))
    given = TreeVAE(**GUIDED).get_params()
    prepared = prepare("TreeVAE", given, X, beside=Beside(graph=graph))
    of_graph = {frozenset(row) for row in prepared.neighbours(prepared.x).tolist()}
    assert of_graph == {frozenset([(i + 1) % n]) for i in range(n)}
    alone = prepare("TreeVAE", given, X)
    assert alone.neighbours(alone.x).shape == (n, 4)
    ours, theirs = (TreeVAE(**SHORT | {"epochs": 2}).fit(X, guide=Y, **how) for how in ({"graph": graph}, {}))
    assert ours.fitted_.epochs[-1].more["agreement"] != theirs.fitted_.epochs[-1].more["agreement"]
    by_splits = TreeVAE(**SMALL | {"neighbours": 3}).fit(X, graph=graph)
    assert "agreement" in by_splits.history_[0]


def test_neighbours_pull_samples_into_the_same_leaf():
    """By splits: of pairs made by chance, those that are neighbours agree more than others do."""
    n, chance = 200, np.random.default_rng(0)
    noise = chance.normal(size=(n, 6))
    partner = chance.permutation(n).reshape(-1, 2)
    other = np.empty(n, dtype=int)
    other[partner[:, 0]], other[partner[:, 1]] = partner[:, 1], partner[:, 0]
    graph = sparse.csr_array((np.ones(n), (np.arange(n), other)), (n, n))
    how = {"n_leaves": 2, "max_depth": 1, "epochs": 60, "learning_rate": 0.01, "batch_size": 50, "start": "splits"}
    alike = []
    for k in (0, 1):
        model = TreeVAE(**SMALL | how | {"neighbours": k}).fit(noise, **({"graph": graph} if k else {}))
        p = model.predict_proba(noise)
        alike.append((p * p[other]).sum(1).mean() - (p.mean(0) ** 2).sum())
    assert alike[1] > alike[0] + 0.05


# -- beside others, in pieces, and gone on with -------------------------------------------------------------------


def with_neighbours(n: int = 160, budget: int | None = None) -> Samples:
    x = data(n).x
    return Samples(x, CPU, budget, neighbours=nearest(x, 3))


def guide_of(n: int, tree: Tree, seed: int = 0) -> Guide:
    labels = np.random.default_rng(seed).integers(-1, len(tree.leaves), n)
    return Guide(labels, tree)


def guided(n: int = 160, **changes) -> tuple[Plan, Guided]:
    """A plan and a start whose guide, and its leaves, differ from seed to seed; so it is grown further by some runs."""
    shapes = (THREE, Tree().split(0), THREE.split(2))
    plan = dataclasses.replace(Plan.guided(6, 4, 16, 1.0, 2.0), **changes)
    return plan, Guided(lambda seed: [(guide_of(n, shapes[seed % 3], seed), 1.0)])


def paired(**changes) -> tuple[Plan, None]:
    plan = Plan.paper(epochs=2, n_leaves=4, batch_size=16, agreement=2.0)
    return dataclasses.replace(plan, whole_every=1, **changes), None


KINDS = {"guided": guided, "splits": paired, "candidates": lambda: paired(n_init=3)}


@pytest.mark.parametrize("kind", KINDS)
def test_runs_side_by_side_equal_each_alone(kind):
    plan, start = KINDS[kind]()
    told, weights = story(Grove(ARCH, with_neighbours(), plan, [0, 1, 2], start))
    for r in range(3):
        alone, (own,) = story(Grove(ARCH, with_neighbours(), plan, [r], start))
        assert [shape_of(event) for run, event in told if run == r] == [shape_of(event) for _, event in alone]
        for name, value in own.items():
            torch.testing.assert_close(weights[r][name], value, rtol=1e-3, atol=2e-4)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("seeds", [[0], [0, 1, 2]], ids=["one", "three"])
def test_a_grove_goes_on_from_any_pause_to_the_same_end(kind, seeds, monkeypatch):
    monkeypatch.setattr(loop, "PAUSE", 0)
    plan, start = KINDS[kind]()
    grove, states, told = Grove(ARCH, with_neighbours(), plan, seeds, start), [], []
    for happened in grove.events():
        if happened is not None:
            told.append(happened)
            continue
        about, tensors = grove.state()
        stages = {task["stage"] for task in about["tasks"]}
        states.append((len(told), stages, json.dumps(about), {name: value.clone() for name, value in tensors.items()}))
    weights = [run.module.state_dict() for run in grove.runs]
    met = {stage for _, stages, _, _ in states for stage in stages}
    assert met == set(plan.stages) if kind != "guided" or len(seeds) > 1 else met >= {"guided", "final"}
    picked = {stage: [state for state in states if stage in state[1]] for stage in met}
    for of_stage in picked.values():
        for i in (0, len(of_stage) // 2, -1):
            so_far, _, about, tensors = of_stage[i]
            other = Grove(ARCH, with_neighbours(), plan, seeds, start)
            other.restore(json.loads(about), tensors)
            rest, end = story(other)
            assert rest == told[so_far:]
            for ours, theirs in zip(end, weights, strict=True):
                assert_same_weights(ours, theirs)


def test_a_subtree_whose_evidence_visits_in_pieces_is_the_same():
    """The samples fit, what is derived of them does not: neighbours are then encoded anew."""
    plan, _ = paired()
    told, (weights,) = story(Grove(ARCH, with_neighbours(), plan, [0]))
    budget = 5 * 4 * 160 + 8
    assert with_neighbours(budget=budget).window(40, 16) is not None
    again, (in_pieces,) = story(Grove(ARCH, with_neighbours(budget=budget), plan, [0]))
    assert [shape_of(event) for _, event in told] == [shape_of(event) for _, event in again]
    for name, value in weights.items():
        torch.testing.assert_close(in_pieces[name], value, rtol=1e-3, atol=2e-4)


def test_seeds_side_by_side_are_those_of_single_fits():
    how = SHORT | {"epochs": 6}
    both = TreeVAE(**how).fit_seeds(X, [3, 5], guide="kmeans")
    for seed, model in zip((3, 5), both, strict=True):
        alone = TreeVAE(**how | {"random_state": seed}).fit(X, guide="kmeans")
        assert model.tree_ == alone.tree_
        assert (model.labels_ == alone.labels_).mean() > 0.95
        np.testing.assert_allclose(model.score(X), alone.score(X), rtol=0.05)
        assert [event["event"] for event in model.history_] == [event["event"] for event in alone.history_]


def test_a_fit_is_killed_and_goes_on_to_the_bit(tmp_path, monkeypatch):
    """With everything beside X; killed in both of its stages."""
    graph = sparse.csr_array(np.eye(len(X), k=1) + np.eye(len(X), k=-1))
    how = {"guide": np.where(np.arange(len(X)) % 3, Y, -1), "graph": graph}
    monkeypatch.setattr(loop, "PAUSE", 0)
    whole = TreeVAE(**SHORT | {"epochs": 6}).fit(X, **how)
    for stage in ("guided", "final"):
        heard = []

        def until(event, stage=stage, heard=heard):
            heard.append(event)
            return not (isinstance(event, EpochEnded) and event.stage == stage)

        folder = tmp_path / stage
        if stage == "final":
            TreeVAE(**SHORT | {"epochs": 6}).fit(X, checkpoint=folder, callback=until, save_every=0, **how)
        else:
            with pytest.raises(RuntimeError):  # no tree yet
                TreeVAE(**SHORT | {"epochs": 6}).fit(X, checkpoint=folder, callback=until, save_every=0, **how)
        again = TreeVAE(**SHORT | {"epochs": 6}).fit(X, checkpoint=folder, **how)
        assert again.history_ == whole.history_
        assert_same_weights(again.module_.state_dict(), whole.module_.state_dict())
        np.testing.assert_array_equal(again.labels_, whole.labels_)


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"guide": Y[::-1].copy()}, "guide"),
        ({"guide": "kmeans"}, "guide"),
        ({"guide": None}, "guide"),
        ({"graph": None}, "graph"),
    ],
)
def test_what_is_given_beside_the_samples_must_not_change(change, said, tmp_path):
    graph = sparse.csr_array(np.eye(len(X), k=1))
    how = SHORT | {"epochs": 2}
    TreeVAE(**how).fit(X, guide=Y, graph=graph, checkpoint=tmp_path)
    with pytest.raises(ChangedRunError, match=said):
        TreeVAE(**how).fit(X, **{"guide": Y, "graph": graph} | change, checkpoint=tmp_path)
    TreeVAE(**how).fit(X, guide=list(Y), graph=graph.tocoo(), checkpoint=tmp_path)  # the same in other words


def test_a_guided_model_is_saved_cloned_and_read(tmp_path):
    model = TreeVAE(**SHORT | {"epochs": 2, "n_init": "auto"}).fit(X)
    model.save(tmp_path / "model")
    again = load(tmp_path / "model")
    assert again.get_params() == model.get_params() | {"device": again.device}
    assert again.plan_ == model.plan_
    assert again.history_ == model.history_
    np.testing.assert_array_equal(again.predict_proba(X), model.predict_proba(X))
    assert clone(again).get_params() == again.get_params()


def test_objectives_hold_the_samples_that_they_are_given():
    """A window whose samples come in any order: neighbours are those of the samples, not of their places."""
    samples = with_neighbours(40)
    module = TreeVAE(**SMALL | {"tree": Tree().split(0), "likelihood": "bernoulli"}).fit(samples.x.numpy()).module_
    for objective in (
        WholeTree(module.eval(), samples, terms=[Agreement(1.0)]),
        SubtreeOnSubset([module], [1], subtree_of(module), samples, [torch.arange(40)], terms=[Agreement(1.0)]),
    ):
        objective.network.eval()
        index = torch.tensor([[7, 3, 21, 30]])
        noise = [torch.full((len(runs), 4, dim), 0.3) for runs, dim in objective.noise_rows]
        objective.hold_all()
        told = objective.terms(index, noise).more[0]
        for value in objective.remembered.values():
            value.zero_()
        held = torch.tensor([30, 21, 7, 9, 3])
        objective.hold(samples.x[held], held)
        place = torch.tensor([[2, 4, 1, 0]])
        torch.testing.assert_close(objective.terms(place, noise).more[0], told)


def subtree_of(module):
    return Subtree.new(module.arch, module.bottom_up.d_dims, 1, 1, torch.Generator().manual_seed(0))
