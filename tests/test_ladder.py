"""The VAE and the LadderVAE: paths instead of trees, with the paper's schedule."""

import dataclasses
import re
from functools import partial

import numpy as np
import pytest
import torch
from sklearn.base import clone
from sklearn.datasets import load_digits
from sklearn.pipeline import make_pipeline

from treevae.baselines.ladder import VAE, LadderVAE, ladder_plan, matched_hidden_dim, path
from treevae.baselines.ward import Ward
from treevae.model.layout import NodeKey
from treevae.model.module import TreeVAEModule
from treevae.model.networks import Architecture
from treevae.model.stack import frozen_row
from treevae.storage import tensors as checkpoint
from treevae.storage.differences import ChangedRunError
from treevae.tree import balanced

X = (load_digits().images[:400] / 16).astype(np.float32)
QUICK = {"network": "mlp", "batch_size": 40, "device": "cpu"}


@pytest.fixture(scope="module")
def ladder() -> LadderVAE:
    return LadderVAE(3, latent_dim=4, hidden_dim=16, epochs=6, random_state=0, **QUICK).fit(X)


def test_a_path_has_one_leaf():
    tree = path(3)
    assert len(tree.leaves) == 1
    assert tree.depth(tree.leaves[0]) == tree.height == 3
    assert path(0).leaves == (0,)


@pytest.mark.parametrize(("model", "grown", "tuned"), [(VAE(), 350, 150), (LadderVAE(), 700, 300)])
def test_the_papers_schedule(model, grown, tuned):
    plan = ladder_plan(model._as_for_treevae(), model._schedule, 60000)
    assert (plan.first.epochs, plan.final.epochs, plan.whole, plan.batch_size) == (grown, tuned, None, 256)
    assert [plan.first.kl_weight(epoch) for epoch in (0, 100, 200, grown - 1)] == pytest.approx([0, 0.5, 1, 1])
    assert plan.first.rate(grown - 1) == 1e-3
    assert plan.final.kl_weight(0) == 1
    assert [plan.final.rate(epoch) for epoch in (0, 99, 100)] == pytest.approx([1e-3, 1e-3, 1e-4])
    if tuned > 200:
        assert plan.final.rate(250) == pytest.approx(1e-5)


def test_a_shorter_schedule_keeps_the_proportions():
    model = LadderVAE(epochs=100)
    plan = ladder_plan(model._as_for_treevae(), model._schedule, 60000)
    assert (plan.first.epochs, plan.final.epochs, plan.final.drop_after) == (70, 30, 10)
    assert plan.first.kl_weight(20) == pytest.approx(1)


def test_the_ladder_has_as_many_latents_as_its_depth_and_no_router(ladder):
    module = ladder.fitted_.module
    assert module.arch.latent_dims == (4,) * 4
    assert not module.nodes.layout.routers
    assert ladder.transform(X).shape == (400, 4)
    assert (ladder.fitted_.predict(X) == 0).all()


def test_the_embedding_is_the_last_latents_mean(ladder):
    module, x = ladder.fitted_.module, torch.from_numpy(X.reshape(400, -1))
    with torch.no_grad():
        z = torch.empty(0)
        d, rows = module.d(x), module.nodes.rows()
        for key in module.nodes.layout.nodes:  # from the root down
            mean_q, raw_q = frozen_row(*rows["dense"][key])(d[module.tree.depth(key.node)]).chunk(2, -1)
            var_q = torch.nn.functional.softplus(raw_q) + 1e-7
            mean_p, var_p = torch.zeros_like(mean_q), torch.ones_like(var_q)
            if key.node != 0:
                mean_p, raw_p = frozen_row(*rows["transformation"][key])(z).chunk(2, -1)
                var_p = torch.nn.functional.softplus(raw_p) + 1e-7
            z = (mean_q / var_q + mean_p / var_p) / (1 / var_q + 1 / var_p)
    np.testing.assert_allclose(ladder.transform(X), z[0].numpy(), atol=1e-4)


def test_the_vaes_elbo_is_the_textbooks():
    """Given its posterior, which is the encoder's evidence times the prior."""
    vae = VAE(2, latent_dim=3, hidden_dim=16, epochs=4, random_state=0, **QUICK).fit(X)
    module, x = vae.fitted_.module, torch.from_numpy(X.reshape(400, -1))
    assert module.bottom_up.d_dims == (16, 16, 128)  # the encoder's output is the last
    assert module.nodes.layout.nodes == (NodeKey(0, 0),)
    torch.manual_seed(0)
    (head, decoder) = (module.nodes.rows()[kind].popitem()[1][0] for kind in ("dense", "decoder"))
    with torch.no_grad():
        d = module.bottom_up.encoder(x[None])
        for step in module.bottom_up.steps:
            d = step(d)
        mean, raw = head(d).chunk(2, -1)
        variance = torch.nn.functional.softplus(raw) + 1e-7  # of the evidence, which is weighed against the prior
        q = torch.distributions.Normal(mean / (1 + variance), (variance / (1 + variance)).sqrt())
        kl = torch.distributions.kl_divergence(q, torch.distributions.Normal(0.0, 1.0)).sum(-1)[0]
        draws = [
            torch.distributions.Bernoulli(logits=decoder(q.sample()), validate_args=False).log_prob(x).sum(-1)[0]
            for _ in range(100)
        ]
    assert vae.score(X) == pytest.approx(float((torch.stack(draws).mean(0) - kl).mean()), abs=0.05)


def test_training_helps_and_seeds_side_by_side_are_those_alone():
    short, long = (VAE(epochs=epochs, random_state=0, **QUICK).fit(X).score(X) for epochs in (2, 30))
    assert long > short + 1
    alone = VAE(epochs=2, random_state=1, **QUICK).fit(X)
    _, beside = VAE(epochs=2, **QUICK).fit_seeds(X, [0, 1])
    assert beside.random_state == 1
    np.testing.assert_allclose(beside.transform(X), alone.transform(X), atol=1e-3)


@pytest.mark.parametrize(("make", "levels"), [(partial(VAE, 0), 1), (partial(VAE, 2), 3), (partial(LadderVAE, 2), 3)])
def test_a_contrastive_one_looks_at_the_bottom_up_alone(make, levels):
    model = make(
        hidden_dim=16, epochs=2, augment=lambda x: x * torch.rand(len(x), 1, 1, 1), contrastive_weight=1.0, **QUICK
    )
    fitted = model.fit(X).fitted_
    epochs = fitted.epochs
    assert len(epochs) == 2
    assert all(event.contrast_routers == 0 and event.contrast_bottom_up > 0 for event in epochs)
    x = torch.from_numpy(X[:10].reshape(10, -1))
    assert len(fitted.module.bottom_up.projected(fitted.module.d(x))) == levels  # of every d, not of the last alone


def test_ward_on_the_latents_is_a_pipeline(ladder):
    both = make_pipeline(clone(ladder), Ward(5)).fit(X)
    np.testing.assert_array_equal(both[-1].labels_, Ward(5).fit_predict(ladder.transform(X)))
    assert both[:-1].get_feature_names_out().tolist() == [f"laddervae{k}" for k in range(4)]


def test_the_names_of_latents_are_of_the_last():
    sizes = {"latent_dim": [3, 4, 5], "hidden_dim": 16, "epochs": 1, "random_state": 0, **QUICK}
    for model, n in ((VAE(2, **sizes), 3), (LadderVAE(2, **sizes), 5)):
        latents = model.set_output(transform="pandas").fit(X).transform(X)
        assert latents.shape == (400, n)
        assert list(latents.columns) == list(model.get_feature_names_out())


def test_words_of_scikit_learn(ladder):
    again = clone(ladder)
    assert again.get_params() == ladder.get_params()
    assert not hasattr(again, "fitted_")
    assert ladder.sample(2, random_state=0).shape == (2, 8, 8)
    assert ladder.reconstruct(X[:3]).shape == (3, 8, 8)
    assert ladder.score_samples(X[:3]).shape == (3,)
    for bound in ("iwae", "paper"):
        found = ladder.log_likelihood(X[:3], 2, bound)
        np.testing.assert_array_equal(found, ladder.fitted_.log_likelihoods(X[:3], 2, [bound])[:, 0])


@pytest.mark.parametrize(
    ("model", "message"),
    [
        (LadderVAE(0), "depth=0 must be a whole number from 1 to 99; use VAE for one latent"),
        (LadderVAE(200), "depth=200 must be a whole number from 1 to 99; use VAE for one latent"),
        (LadderVAE(True), "depth=True must be a whole number from 1 to 99; use VAE for one latent"),
        (VAE(-1), "depth=-1 must be a whole number from 0 to 99"),
        (VAE(True), "depth=True must be a whole number from 0 to 99"),
        (VAE(100), "depth=100 must be a whole number from 0 to 99"),
        (
            LadderVAE(5, latent_dim=[8] * 3),
            "latent_dim=[8, 8, 8] has 3 sizes; give one number, or 6 of them for depth=5",
        ),
        (VAE(2, latent_dim=[3, 4]), "latent_dim=[3, 4] has 2 sizes; give one number, or 3 of them for depth=2"),
        (VAE(2, hidden_dim=[3]), "hidden_dim=[3] has 1 sizes; give one number, or 2 of them for depth=2"),
        (LadderVAE(2, hidden_dim=True), "hidden_dim=True must be a whole number of at least 1"),
        (VAE(epochs=0), "epochs=0 must be a whole number of at least 1"),
        (LadderVAE(epochs="auto"), "epochs='auto' must be a whole number of at least 1"),
        (VAE(learning_rate=True), "learning_rate=True must be a positive number"),
    ],
)
def test_parameters_are_refused_by_the_names_they_have_here(model, message):
    with pytest.raises(ValueError, match=f"^{re.escape(message)}$"):
        model.fit(X)


def test_samples_are_refused_in_the_models_name():
    with pytest.raises(ValueError, match=r"X has 5 features, but VAE is expecting 6 features"):
        VAE(epochs=1, hidden_dim=4, batch_size=8).fit(np.zeros((8, 6)) + np.arange(8)[:, None]).transform(
            np.zeros((8, 5))
        )


@pytest.mark.parametrize("levels", [5, 6, 8])
def test_a_ladder_can_be_as_large_as_a_tree_of_other_depth(levels):
    arch = Architecture((1, 28, 28), "cnn", "bernoulli", (8,) * levels, (128,) * (levels - 1))
    hidden = matched_hidden_dim(arch, balanced(10), 5)
    ladder = dataclasses.replace(arch, latent_dims=(8,) * 6, hidden_dims=(hidden,) * 5)
    sizes = [
        sum(value.numel() for value in TreeVAEModule(sized, [tree], torch.Generator()).parameters())
        for sized, tree in ((arch, balanced(10)), (ladder, path(5)))
    ]
    assert sizes[0] <= sizes[1] < 1.02 * sizes[0]


def test_a_folder_of_another_model_is_refused_by_the_models_name(tmp_path):
    few = {"depth": 2, "latent_dim": 2, "hidden_dim": 8, "epochs": 1, "random_state": 0, **QUICK}
    VAE(**few).fit(X, checkpoint=tmp_path)
    with pytest.raises(ChangedRunError, match=r"is of another model, VAE, and this is LadderVAE: give another folder"):
        LadderVAE(**few).fit(X, checkpoint=tmp_path)


def test_a_state_that_does_not_tell_its_model_is_taken_up(tmp_path):
    """Those of earlier versions do not."""
    few = {"depth": 2, "latent_dim": 2, "hidden_dim": 8, "epochs": 1, "random_state": 0, **QUICK}
    fitted = VAE(**few).fit(X, checkpoint=tmp_path)
    for file in tmp_path.glob("*.safetensors"):
        about, tensors = checkpoint.read(file)
        assert about["state"]["identity"].pop("model") == "VAE"
        checkpoint.write(file, about, tensors)
    again = VAE(**few).fit(X, checkpoint=tmp_path)
    np.testing.assert_array_equal(again.transform(X), fitted.transform(X))
    assert len(again.fitted_.history) == len(fitted.fitted_.history)
