"""The paper's parameters for each data set, against its tables."""

import inspect

import numpy as np
import pytest

from treevae import TreeVAE
from treevae.data.sets import SOURCES
from treevae.preparing import prepare
from treevae.recipes import RECIPES

# shape of a sample, network, latent dim, hidden, levels, leaves, likelihood, augmentation, contrastive weight
PAPER = {
    "mnist": ((28, 28), "cnn", 8, 128, 6, 10, "bernoulli", None, 0),
    "fashion": ((28, 28), "cnn", 8, 128, 6, 10, "bernoulli", None, 0),
    "omniglot": ((28, 28), "deep_cnn", 8, 128, 6, 10, "bernoulli", "omniglot", 0),
    "omniglot5": ((28, 28), "deep_cnn", 8, 128, 6, 5, "bernoulli", "omniglot", 0),
    "news20": ((2000,), "deep_mlp", 4, 128, 7, 20, "bernoulli", None, 0),
    "cifar10": ((32, 32, 3), "resnet", 64, 512, 6, 10, "gaussian", "cifar", 100),
    "cifar100": ((32, 32, 3), "resnet", 64, 512, 6, 20, "gaussian", "cifar", 100),
    "celeba": ((64, 64, 3), "resnet", 64, 512, 6, 8, "gaussian", "celeba", 100),
}


def test_there_is_a_recipe_for_every_set_of_the_paper():
    assert set(RECIPES) == {*PAPER, "digits"}  # the last is for a first try
    assert set(RECIPES) <= set(SOURCES)  # the names that treevae.data.load knows
    listed = inspect.getdoc(TreeVAE.recipe)
    assert all(f'"{name}"' in listed for name in RECIPES)


@pytest.mark.parametrize("name", PAPER)
def test_the_papers_numbers(name):
    _, network, latent, hidden, levels, leaves, likelihood, augment, weight = PAPER[name]
    model = TreeVAE.recipe(name)
    assert (model.network, model.likelihood) == (network, likelihood)
    assert (model.latent_dim, model.hidden_dim) == (latent, hidden)
    assert (model.max_depth, model.n_leaves) == (levels - 1, leaves)
    assert (model.augment, model.contrastive_weight, model.contrastive_loss) == (augment, weight, "both")
    assert (model.batch_size, model.epochs, model.learning_rate) == (256, 150, 1e-3)
    assert (model.n_init, model.leaf_rule, model.tree) == (1, "samples", None)
    assert (model.transformation_layers, model.router_layers) == (1, 2)
    assert model.layer_defaults == ("tensorflow" if network == "resnet" else "torch")


@pytest.mark.parametrize("name", PAPER)
def test_every_recipe_fits_its_data(name):
    """All checks of fit pass on samples of the set's shape, and the networks have its sizes."""
    shape, network, latent, hidden, levels, _, likelihood, _, weight = PAPER[name]
    X = np.random.default_rng(0).random((4, *shape), dtype=np.float32)
    model = TreeVAE.recipe(name, device="cpu")
    ready = prepare("TreeVAE", model.get_params(deep=False), X)
    form, arch, x = ready.decides.form, ready.arch, ready.x
    assert form.user_shape == shape
    assert (arch.network, arch.likelihood) == (network, likelihood)
    assert (arch.latent_dims, arch.hidden_dims) == ((latent,) * levels, (hidden,) * (levels - 1))
    assert arch.n_projections == (levels if weight else 0)  # projections of every d
    assert x.shape == (4, np.prod(shape))


def test_changes_win_over_the_recipe_and_leave_it_alone():
    model = TreeVAE.recipe("cifar10", n_leaves=20, random_state=3)
    assert (model.n_leaves, model.random_state, model.network) == (20, 3, "resnet")
    assert TreeVAE.recipe("cifar10").n_leaves == 10
    with pytest.raises(TypeError, match="n_leafs"):
        TreeVAE.recipe("mnist", n_leafs=3)


def test_an_unknown_recipe_is_refused_with_those_there_are():
    with pytest.raises(ValueError, match=r"there is no recipe 'svhn'; there are digits, mnist, .*celeba"):
        TreeVAE.recipe("svhn")


def test_subclasses_have_recipes_too():
    class Mine(TreeVAE):
        pass

    assert type(Mine.recipe("mnist")) is Mine
