"""Numbers at the edge: each is fitted with finite weights, scores and gradients, or refused with a clear error.

Warnings are errors here, but for the one that says that the tree has fewer leaves than asked for.
"""

from itertools import pairwise
from typing import Any

import numpy as np
import pytest
import torch
from sklearn.exceptions import ConvergenceWarning

from treevae import Tree, TreeVAE
from treevae.data import units
from treevae.data.units import Units
from treevae.model import descent
from treevae.model.module import TreeVAEModule
from treevae.model.networks import Architecture
from treevae.preparing import Prepared, prepare
from treevae.training.loop import DivergedError
from treevae.training.samples import Samples, over
from treevae.tree import balanced

pytestmark = [
    pytest.mark.filterwarnings("error"),
    pytest.mark.filterwarnings("default::sklearn.exceptions.ConvergenceWarning"),
]
SMALL = {  # two leaves that are neither grown nor pruned, so that there are a router and two decoders for every edge
    "tree": balanced(2),
    "max_depth": 1,
    "latent_dim": 2,
    "hidden_dim": 8,
    "epochs": 1,
    "random_state": 0,
    "device": "cpu",
}
CHANCE = np.random.default_rng(0)
NORMAL = CHANCE.normal(size=(120, 4))
BITS = CHANCE.integers(0, 2, (120, 4))


def check_fit(X: Any, **others: Any) -> TreeVAE:
    """A model of the tree that was asked for, whose weights, answers and history are all finite."""
    model = TreeVAE(**SMALL | others).fit(X)
    assert model.tree_ == model.tree
    terms = [value for event in model.history_ for value in event.values() if isinstance(value, float)]
    assert terms
    assert np.isfinite(terms).all()
    assert all(bool(value.isfinite().all()) for value in model.module_.state_dict().values())
    for answer in (model.score_samples(X), model.predict_proba(X), model.reconstruct(X), model.sample(3)):
        assert np.isfinite(answer).all()
    return model


def with_column(values: Any) -> np.ndarray:
    X = NORMAL.copy()
    X[:, 0] = values
    return X


# -- samples ------------------------------------------------------------------------------------------------------

BLACK = np.zeros((120, 4, 4), np.uint8)
ONE_WHITE = np.concatenate([BLACK, np.full((1, 4, 4), 255, np.uint8)])
HALF_WHITE = np.where(np.arange(120)[:, None, None] % 2, 255, BLACK).astype(np.uint8)


@pytest.mark.parametrize("X", [BLACK, BLACK + 255, BLACK / 255.0, NORMAL[:1].repeat(50, 0)], ids=str)
def test_samples_that_are_all_alike_are_refused(X):
    with pytest.raises(ValueError, match="samples of X are equal; there are no groups to find"):
        TreeVAE(**SMALL).fit(X)


@pytest.mark.parametrize(
    "X",
    [ONE_WHITE, HALF_WHITE, np.stack([HALF_WHITE] * 3, 3), NORMAL[:2].repeat(60, 0), NORMAL[:7].repeat(20, 0)],
    ids=["one white picture", "black and white", "in colour", "two rows, again and again", "seven rows"],
)
def test_samples_of_few_kinds_are_fitted(X):
    check_fit(X)


@pytest.mark.parametrize("size", [1e-30, 1e30])
def test_tiny_and_huge_features_are_standardised(size):
    ours, plain = check_fit(NORMAL * size), check_fit(NORMAL)
    np.testing.assert_array_equal(ours.labels_, plain.labels_)
    np.testing.assert_allclose(
        ours.score_samples(NORMAL * size), plain.score_samples(NORMAL) - 4 * np.log(size), rtol=1e-3
    )


@pytest.mark.parametrize(
    ("X", "message"),
    [
        (NORMAL * 1e-300, "differs by .*e-300 at most, less than float32 can tell apart; rescale it"),
        (NORMAL * 1e-40, "less than float32 can tell apart"),
        (NORMAL * 1e300, "whose squares overflow; rescale or clip"),
        (with_column(np.nan), "NaN"),
        (with_column(np.inf), "infinity"),
        (np.where(np.arange(4) == 1, np.nan, BLACK[:, 0] / 1.0), "NaN"),
    ],
)
def test_what_float32_cannot_hold_is_refused(X, message):
    with pytest.raises(ValueError, match=message):
        TreeVAE(**SMALL).fit(X)


def test_huge_features_under_a_fixed_spread_are_refused_or_diverge_with_a_word():
    with pytest.raises(DivergedError, match="Check the scale of the data"):
        TreeVAE(**SMALL, likelihood="gaussian").fit(NORMAL * 1e30)
    with pytest.raises(ValueError, match="overflow float32; rescale or clip"):
        TreeVAE(**SMALL, likelihood="gaussian").fit(NORMAL * 1e39)


@pytest.mark.parametrize("value", [7, -1e8, 1e30], ids=str)
def test_a_constant_feature_makes_no_difference(value):
    X, without = with_column(value), with_column(0)
    np.testing.assert_array_equal(check_fit(X).transform(X), TreeVAE(**SMALL).fit(without).transform(without))


@pytest.mark.parametrize("dtype", [np.int8, np.int64, np.uint64, bool, np.float16, np.float32, np.longdouble, object])
def test_numbers_of_any_type_mean_the_same(dtype):
    expected = TreeVAE(**SMALL).fit(BITS.astype(np.float64)).score_samples(BITS.astype(np.float64))
    np.testing.assert_allclose(check_fit(BITS.astype(dtype)).score_samples(BITS.astype(dtype)), expected, rtol=1e-5)


@pytest.mark.parametrize(
    ("X", "message"),
    [
        (BITS.astype(complex), "Complex data not supported"),
        (np.full((50, 3), "a"), "could not convert string to float"),
        (BLACK.astype(object), "images must be numbers"),
        (NORMAL[:1], "minimum of 2"),
        (NORMAL[:0], "0 sample"),
        (BLACK[:1], "at least 2 needed"),
        (NORMAL[:, :0], "0 feature"),
        (NORMAL[0], "Expected 2D array"),
        (np.zeros((9, 2, 2, 2, 2)) - 1, "X has 5 dimensions"),
    ],
)
def test_what_are_no_samples_is_refused(X, message):
    with pytest.raises(ValueError, match=message):
        TreeVAE(**SMALL).fit(X)


@pytest.mark.parametrize("n", [2, 3, 9, 40])
def test_few_samples_are_fitted_in_batches_of_what_there_is(n):
    check_fit(NORMAL[:n], batch_size=256)


def test_batches_of_two():
    check_fit(NORMAL[:40], batch_size=2)


def test_very_wide_rows():
    check_fit(CHANCE.normal(size=(12, 5000)))


# -- trees --------------------------------------------------------------------------------------------------------


def comb(depth: int) -> Tree:
    """A tree whose last leaf is split again and again."""
    tree = Tree()
    for _ in range(depth):
        tree = tree.split(tree.leaves[-1])
    return tree


@pytest.mark.parametrize(("tree", "depth"), [(balanced(100), 7), (comb(12), 12)], ids=["100 leaves", "depth 12"])
def test_large_and_tall_trees(tree, depth):
    model = check_fit(NORMAL[:60], tree=tree, max_depth=depth, batch_size=4)
    np.testing.assert_allclose(model.predict_proba(NORMAL).sum(1), 1, rtol=1e-5)


def saturated(tree: Tree, logit: float) -> TreeVAEModule:
    """A module whose routers send every sample the same way, as surely as one likes."""
    arch = Architecture((4,), "mlp", "bernoulli", (2,) * (tree.height + 1), (8,) * tree.height)
    module = TreeVAEModule(arch, [tree], torch.Generator().manual_seed(0))
    for name, value in module.named_parameters():
        if "router" in name and name.endswith("head.bias"):
            value.data.fill_(logit)
        elif "router" in name and name.endswith("head.weight"):
            value.data.zero_()
    return module


@pytest.mark.parametrize("logit", [-1e4, -100.0, 100.0, 1e4, 1e30])
@pytest.mark.parametrize("tree", [balanced(4), comb(12)], ids=["even", "comb"])
def test_routers_that_saturate_leave_leaves_without_samples_and_gradients_finite(tree, logit):
    module = saturated(tree, logit).train()
    x = torch.from_numpy(BITS[:16]).float()
    noise = descent.noise_for(module.nodes, 16, torch.Generator().manual_seed(1))
    terms = module.elbo(x, noise)
    gradients = torch.autograd.grad(terms.loss(1.0), list(module.parameters()), allow_unused=True)
    assert bool(terms.values.isfinite().all())
    assert all(bool(gradient.isfinite().all()) for gradient in gradients if gradient is not None)
    reach = module.eval().reach(x).detach()
    assert bool(reach.isfinite().all())
    assert int((reach.sum(0) < 1e-20).sum()) == len(tree.leaves) - 1  # all but one leaf get nothing of the batch


def test_routers_may_disagree_as_much_as_floats_allow():
    """One side of the posterior, the other of the prior: the KL is large, not infinite."""
    module = saturated(balanced(4), 1e4)
    for name, value in module.named_parameters():
        if "router_p" in name and name.endswith("head.bias"):
            value.data.fill_(-1e4)
    noise = descent.noise_for(module.nodes, 16, torch.Generator().manual_seed(1))
    terms = module.train().elbo(torch.from_numpy(BITS[:16]).float(), noise)
    gradients = torch.autograd.grad(terms.loss(1.0), list(module.parameters()), allow_unused=True)
    assert bool(terms.values.isfinite().all())
    assert float(terms.kl_decisions.detach().mean()) > 1e4
    assert all(bool(gradient.isfinite().all()) for gradient in gradients if gradient is not None)


def test_fewer_leaves_than_asked_for_are_said():
    with pytest.warns(ConvergenceWarning, match="fewer than n_leaves=4"):
        TreeVAE(**SMALL | {"tree": None, "n_leaves": 4, "max_depth": 2}).fit(NORMAL[:12])


def test_a_tree_grows_on_pictures_of_two_kinds():
    """Splits, subtrees and pruning among samples that are equal. With fewer epochs some seeds end with one leaf."""
    model = TreeVAE(
        **SMALL | {"tree": None, "n_leaves": 3, "max_depth": 2, "n_init": 2, "epochs": 20, "batch_size": 40}
    )
    model.fit(HALF_WHITE)
    assert len(model.tree_.leaves) >= 2
    assert all(bool(value.isfinite().all()) for value in model.module_.state_dict().values())
    assert not set(model.labels_[::2]) & set(model.labels_[1::2])


# -- many rows ----------------------------------------------------------------------------------------------------


def seen(X, **changes) -> Prepared:
    model = TreeVAE(**SMALL, **changes)
    return prepare("TreeVAE", model.get_params(deep=False), X)


@pytest.mark.parametrize("likelihood", ["gaussian", "gaussian_learnt"])
def test_rows_of_a_memory_map_are_looked_at_block_by_block(likelihood, tmp_path, monkeypatch):
    """What is computed on the way to the model is no larger than a block; the model sees the same."""
    np.save(tmp_path / "x.npy", NORMAL.astype(np.float32))
    X = np.load(tmp_path / "x.npy", mmap_mode="r")
    whole = seen(NORMAL.astype(np.float32), likelihood=likelihood).x
    monkeypatch.setattr(units, "BLOCK", 4 * 7)
    sizes = [part.stop - part.start for part in units.blocks(X)]
    assert set(sizes) == {7}
    x = seen(X, likelihood=likelihood).x
    torch.testing.assert_close(x, whole, rtol=1e-6, atol=1e-6)
    if likelihood == "gaussian":
        assert np.shares_memory(x.numpy(), X)  # never copied


def test_answers_for_all_samples_are_put_together_in_place():
    asked = torch.arange(10.0)[:, None]
    samples = Samples(asked, torch.device("cpu"))
    for kind in (lambda x: x.repeat(1, 2), lambda x: x[:, 0], lambda x: (x[:, 0] > 4).long()):
        np.testing.assert_array_equal(over(torch.nn.Identity(), samples, kind, {"cpu": 3}), kind(asked))


def test_units_of_blocks_are_those_of_the_whole(monkeypatch):
    form = seen(NORMAL).decides.form
    scales = []
    for block in (1, 50, 10**9):
        monkeypatch.setattr(units, "BLOCK", block)
        scales.append(Units.of(form, "gaussian_learnt", NORMAL).scale)
    for one, other in pairwise(scales):
        assert one == pytest.approx(other, rel=1e-12)
