"""What tells principal components, and some rows of them, from features in units of their own."""

import numpy as np
import pytest
from sklearn.datasets import load_wine
from sklearn.decomposition import PCA

from treevae.data.scaling import suited


@pytest.mark.parametrize("share", [0.9, 0.5, 0.2])
def test_some_samples_of_principal_components_are_components_too(share):
    X, chance = load_wine().data, np.random.default_rng(0)
    for _ in range(5):
        some = chance.permutation(len(X))[: int(share * len(X))]
        assert suited(PCA(10).fit_transform(X)[some]) == "one"
        assert suited(X[some]) == "feature"
