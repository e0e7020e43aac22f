"""What a fitted model makes: reconstructions, new samples of any node, and the way from one sample to another."""

import numpy as np
import pytest
import torch
from kinds import GREY, SMALL, VECTORS

from treevae import Tree, TreeVAE
from treevae.model import module as module_room
from treevae.model.networks import CnnDecoder


def test_best_path_runs_one_decoder_a_sample(grey, monkeypatch):
    winners = grey.predict(GREY)
    x = torch.from_numpy(GREY.reshape(60, -1))
    found = module_room.descent.infer(grey.module_.nodes, grey.module_.d(x), noise=None)
    every = module_room.descent.decode(grey.module_.nodes, found.z, grey.module_._expected)[
        grey.module_.nodes.layout.shown_leaves
    ]
    expected = every[winners, torch.arange(60)].detach().numpy().reshape(GREY.shape)
    decoded = []
    plain = CnnDecoder.forward
    monkeypatch.setattr(CnnDecoder, "forward", lambda self, z: decoded.append(z.shape[:2].numel()) or plain(self, z))
    np.testing.assert_allclose(grey.reconstruct(GREY), expected, rtol=1e-4, atol=1e-6)
    assert sum(decoded) == 60  # against 3 * 60 with all paths


def test_samples_follow_their_seed_and_leaf(grey):
    np.testing.assert_array_equal(grey.sample(4, random_state=1), grey.sample(4, random_state=1))
    assert not np.array_equal(grey.sample(4, random_state=1), grey.sample(4, random_state=2))
    by_leaf = [grey.sample(30, leaf=k, random_state=0).mean(0) for k in range(3)]
    everywhere = grey.sample_all_leaves(30, random_state=0).mean(0)
    for k in range(3):  # each leaf has a decoder of its own, and sample(leaf) uses that one
        gaps = [np.abs(by_leaf[k] - everywhere[j]).mean() for j in range(3)]
        assert int(np.argmin(gaps)) == k
    with pytest.raises(ValueError, match="leaf=3; the clusters are numbered 0 to 2"):
        grey.sample(1, leaf=3)
    with pytest.raises(ValueError, match="n=0 must be a whole number"):
        grey.sample(0)


def test_samples_of_a_leaf_follow_the_prior_routers():
    """sample(leaf=k) weighs draws by the probability that the routers send them there."""
    torch.manual_seed(0)
    model = TreeVAE(tree=Tree().split(0), **SMALL | {"latent_dim": 1}).fit(VECTORS)
    module = model.module_
    stack, row = module.nodes.rows()["router_p"][(0, 0)]
    decoder, _ = module.nodes.rows()["decoder"][(0, 1)]
    with torch.no_grad():
        generator = torch.Generator().manual_seed(0)
        noise = module_room.descent.noise_for(module.nodes, 64 * 200, generator)
        z = module_room.descent.generate(module.nodes, noise)
        logits = module_room.descent.prior_logits(module.nodes, z)
        left = module_room.descent.log_reach(module.nodes, logits)[1].exp()
        means = module.arch.likelihood_model.mean(decoder(z[1]))[0]
        expected = (left[:, None] * means).sum(0) / left.sum()
        drawn = module.generate(200, torch.Generator().manual_seed(1), node=1).mean(0)
        spread = means.std(0) / np.sqrt(200)
    assert stack.n == 1
    assert row == 0
    assert ((drawn - expected).abs() < 5 * spread + 1e-4).all()


def test_samples_through_an_inner_node_follow_the_prior_routers():
    """sample(node=i) weighs draws by their probability of passing through i, and sends them on as the routers do."""
    model = TreeVAE(tree=Tree().split(0).split(1), **SMALL | {"latent_dim": 1}).fit(VECTORS)
    module, n = model.module_, 250
    with torch.no_grad():
        noise = module_room.descent.noise_for(module.nodes, 64 * n, torch.Generator().manual_seed(0))
        z = module_room.descent.generate(module.nodes, noise)
        reach = module_room.descent.log_reach(module.nodes, module_room.descent.prior_logits(module.nodes, z)).exp()
        decoded = module_room.descent.decode(module.nodes, z, module._expected)  # leaves 2, 3, 4
        leaves, below = module.nodes.layout.leaves, (3, 4)
        weight = {leaf: reach[module.nodes.layout.nodes.index((0, leaf))][:, None] for leaf in below}
        means = {leaf: decoded[leaves.index((0, leaf))] for leaf in below}
        total = sum(weight[leaf].sum() for leaf in below)
        expected = sum((weight[leaf] * means[leaf]).sum(0) for leaf in below) / total
        square = sum((weight[leaf] * means[leaf] ** 2).sum(0) for leaf in below) / total
        drawn = module.generate(n, torch.Generator().manual_seed(1), node=1)
    spread = (square - expected**2).clamp(min=0).sqrt() / np.sqrt(n)
    assert ((drawn.mean(0) - expected).abs() < 5 * spread + 1e-4).all()


def test_samples_of_a_node_are_those_of_its_leaves(grey):
    (first, _), last = (3, 4), 2
    np.testing.assert_array_equal(
        grey.sample(5, node=first, random_state=3), grey.sample(5, leaf=grey.tree_.leaves.index(first), random_state=3)
    )
    np.testing.assert_array_equal(grey.sample(5, node=0, random_state=3), grey.sample(5, random_state=3))
    means = {leaf: grey.sample(1, node=leaf, temperature=0)[0] for leaf in grey.tree_.leaves}
    cold = grey.sample(40, node=1, temperature=0, random_state=0)  # at temperature 0 a leaf has one sample only
    gaps = np.array([[np.abs(one - means[leaf]).max() for leaf in (3, 4, last)] for one in cold])
    assert (gaps[:, :2].min(1) < 1e-6).all()
    assert (gaps[:, 2] > 1e-6).all()
    for wrong, message in (
        ({"node": 9}, "there is no node 9"),
        ({"node": 1, "leaf": 0}, "give one of them"),
        ({"temperature": -1}, "temperature=-1 must be"),
        ({"temperature": np.inf}, "temperature=inf must be"),
    ):
        with pytest.raises(ValueError, match=message):
            grey.sample(1, **wrong)


def test_temperature_spreads_the_samples(grey):
    spread = [grey.sample(200, leaf=0, temperature=t, random_state=0).std(0).mean() for t in (0, 0.5, 1, 2)]
    assert spread[0] < 1e-6
    assert spread == sorted(spread)
    np.testing.assert_array_equal(
        grey.sample(3, leaf=0, random_state=0), grey.sample(3, leaf=0, temperature=1, random_state=0)
    )


def test_many_samples_come_in_blocks(grey):
    drawn = grey.sample(600, leaf=1, random_state=0)
    assert drawn.shape == (600, 9, 11)
    assert len(np.unique(drawn.reshape(600, -1), axis=0)) > 590
    assert grey.sample_all_leaves(600).shape == (600, 3, 9, 11)


def test_interpolation_ends_at_the_two_samples(grey):
    pair = GREY[[int(np.flatnonzero(grey.labels_ == k)[0]) for k in np.unique(grey.labels_)[[0, -1]]]]
    shown, reach = grey.interpolate(pair, steps=5)
    assert shown.shape == (5, 9, 11)
    np.testing.assert_allclose(shown[[0, -1]], grey.reconstruct(pair), atol=1e-6)
    np.testing.assert_allclose(reach[[0, -1]], grey.predict_proba(pair), atol=1e-6)
    with torch.no_grad():  # half way, by hand
        module = grey.module_
        found = module_room.descent.infer(module.nodes, module.d(grey.fitted_.encode(pair)), noise=None)
        leaf = grey.tree_.leaves[int(reach[2].argmax())]
        decoder = module_room.frozen_row(*module.nodes.rows()["decoder"][(0, leaf)])
        middle = module._z_of(found.z, leaf).mean(1, keepdim=True)
        decoded = module.arch.likelihood_model.mean(decoder(middle))[0, 0]
    np.testing.assert_allclose(shown[2].ravel(), decoded, atol=1e-5)
    still, _ = grey.interpolate(pair[[0, 0]], steps=3)
    np.testing.assert_allclose(still, grey.reconstruct(pair[[0, 0, 0]]), atol=1e-6)
    with pytest.raises(ValueError, match="steps=1 must be at least 2"):
        grey.interpolate(pair, steps=1)
    with pytest.raises(ValueError, match="X has 3 samples"):
        grey.interpolate(GREY[:3])
