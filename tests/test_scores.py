"""What a fitted model says of samples: the ELBO and log p(x), in the units of the samples."""

import numpy as np
import pytest
import torch
from kinds import GREY, SMALL, VECTORS

from treevae import Tree, TreeVAE
from treevae.fitted import SCORE_DRAWS


def test_score_is_the_elbo_in_the_units_of_x(vectors):
    """Scaling X scales densities: log p of 10 x is log p of x minus log 10 for each feature."""
    bigger = TreeVAE(tree=Tree().split(0).split(1), **SMALL).fit(VECTORS * 10)
    gap = vectors.score_samples(VECTORS) - bigger.score_samples(VECTORS * 10)
    np.testing.assert_allclose(gap, 4 * np.log(10), rtol=1e-3)
    assert vectors.score(VECTORS) == pytest.approx(vectors.score_samples(VECTORS).mean(), rel=1e-5)


def test_score_samples_averages_the_elbo(grey):
    x = torch.from_numpy(GREY.reshape(60, -1))
    with torch.no_grad():
        from treevae.model.descent import noise_for

        noise = noise_for(grey.module_.nodes, 400 * 60, torch.Generator().manual_seed(0))
        exact = grey.module_.elbo(x, noise, samples=400).elbo[0].numpy()
    spread = np.abs(grey.score_samples(GREY) - exact)
    assert spread.mean() < 8 / np.sqrt(SCORE_DRAWS)
    assert abs((grey.score_samples(GREY) - exact).mean()) < 1.0


@pytest.mark.parametrize("bound", ["iwae", "paper"])
@pytest.mark.parametrize(
    "changes",
    [
        {"network": "cnn", "likelihood": "bernoulli"},
        {"network": "cnn", "likelihood": "gaussian"},
        {"network": "mlp", "likelihood": "gaussian_learnt"},
    ],
    ids=lambda changes: "-".join(changes.values()),
)
def test_log_likelihood_is_above_the_elbo_and_the_same_in_any_company(changes, bound):
    model = TreeVAE(tree=Tree().split(0).split(1), **SMALL | changes).fit(GREY)
    found = model.log_likelihood(GREY, 50, bound)
    assert found.shape == (60,)
    assert found.dtype == np.float32
    assert found.mean() > model.score(GREY)
    np.testing.assert_allclose(model.log_likelihood(GREY[7:9], 50, bound), found[7:9], rtol=1e-5)


def test_log_likelihood_is_in_the_units_of_x(vectors):
    bigger = TreeVAE(tree=Tree().split(0).split(1), **SMALL).fit(VECTORS * 10)
    gap = vectors.log_likelihood(VECTORS, 20) - bigger.log_likelihood(VECTORS * 10, 20)
    np.testing.assert_allclose(gap, 4 * np.log(10), rtol=1e-3)


def test_log_likelihood_refuses_what_it_does_not_know(grey):
    with pytest.raises(ValueError, match="bound='elbo'; allowed are 'iwae'"):
        grey.log_likelihood(GREY, bound="elbo")
    with pytest.raises(ValueError, match="draws=0 must be a whole number of at least 1"):
        grey.log_likelihood(GREY, draws=0)
