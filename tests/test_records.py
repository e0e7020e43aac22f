"""Records of fitted models: what they say of log p(x)."""

import json

import numpy as np
import pytest

from treevae import Tree, TreeVAE
from treevae.data import DataSet
from treevae.experiments.records import record

RNG = np.random.default_rng(0)
IMAGES, Y = RNG.random((40, 8, 8, 3)).astype(np.float32), RNG.integers(2, size=40)
SMALL = {"tree": Tree().split(0), "latent_dim": 2, "hidden_dim": 8, "max_depth": 2, "epochs": 1, "random_state": 0}


def recorded(x: np.ndarray, draws: int, **changes: object) -> tuple[TreeVAE, dict]:
    model = TreeVAE(**SMALL | changes).fit(x)
    model.tree = None  # a Tree is no JSON
    return model, json.loads(json.dumps(record(model, DataSet("made up", x, Y, x, Y, ("a", "b")), 0, "command", draws)))


def test_estimates_of_log_p_come_with_their_error():
    model, found = recorded(IMAGES, 6)
    told = found["likelihood"]
    for bound in ("iwae", "paper"):
        values = model.log_likelihood(IMAGES, 6, bound).astype(float)
        assert told[f"ll_{bound}"]["mean"] == pytest.approx(values.mean())
        assert told[f"ll_{bound}"]["standard_error"] == pytest.approx(values.std(ddof=1) / np.sqrt(40))
        assert told[f"ll_{bound}"]["mean"] > found["elbo"]["ELBO"]
    # with sigma = 1 a pixel costs at least log sqrt(2 pi) nats, however well it is met
    least = 8 + np.log2(2 * np.pi) / 2
    assert least < told["bits_per_dimension"] < least + 0.5
    assert told["draws"] == 6
    assert set(found["scores_percent"]) == {"DP", "LP", "ACC", "NMI", "ARI"}


def test_bits_are_told_of_densities_of_pixels_alone():
    assert "bits_per_dimension" not in recorded(IMAGES[..., 0], 2)[1]["likelihood"]  # Bernoulli
    assert "bits_per_dimension" not in recorded(IMAGES.reshape(40, -1), 2, likelihood="gaussian")[1]["likelihood"]
    assert "bits_per_dimension" not in recorded(255 * IMAGES, 2, likelihood="gaussian")[1]["likelihood"]
    assert "likelihood" not in recorded(IMAGES, 0)[1]
