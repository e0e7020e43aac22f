"""Does it matter whether Ward's method merges the means of the latents, or draws of them? The paper does not say which.

    python -m benchmarks.studies.ward_of_draws news20 --root DATA [--method vae] [--scale 1.0] [--draws 5]

One VAE or LadderVAE, and Ward's scores on its test samples' latents: on the means of their posteriors, which our tables
have, and on draws from the posteriors, which is what the model in the authors' TensorFlow code gives out.
"""

from __future__ import annotations

import argparse
import time
from pathlib import Path

import numpy as np
import torch

from treevae.baselines import VAE, LadderVAE, Ward
from treevae.data import load
from treevae.experiments.methods import OF_LATENTS
from treevae.recipes import RECIPES
from treevae.scores import mean_terms, scores

from .. import record


def drawn(model: LadderVAE, X: np.ndarray, seed: int) -> np.ndarray:
    """A draw of the last latent of each sample, given draws of those above it: (sample, latent)."""
    generator = torch.Generator().manual_seed(seed)
    module = model.fitted_.module
    path = module.path_to(model.fitted_.tree.leaves[0])

    def draw(x: torch.Tensor) -> torch.Tensor:
        heads = path.heads(module.d(x))
        noise = [torch.randn(*head.shape[:-1], head.shape[-1] // 2, generator=generator).to(x) for head in heads]
        return path.sample(heads, noise)[0]

    return model.fitted_.ask(X, draw)


def main() -> None:
    """Fit, print and write."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("data", choices=[name for name in RECIPES if name != "celeba"])  # which has no classes
    parser.add_argument("--root", type=Path, help="where the data sets lie; by default what $TREEVAE_DATA says")
    parser.add_argument("--method", choices=["vae", "laddervae"], default="vae")
    parser.add_argument("--scale", type=float, default=1.0, help="of the schedule")
    parser.add_argument("--draws", type=int, default=5)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--out", type=Path)
    given = parser.parse_args()
    data, recipe = load(given.data, given.root), RECIPES[given.data]
    y = data.y_test
    assert y is not None
    settings = {name: recipe[name] for name in OF_LATENTS if name in recipe and name != "n_leaves"}
    make = VAE if given.method == "vae" else LadderVAE
    epochs = max(1, round(make().epochs * given.scale))
    began = time.perf_counter()
    model = make(**settings, epochs=epochs, random_state=given.seed, verbose=True).fit(data.x_train)

    def ward(latents: np.ndarray) -> dict[str, float]:
        merged = Ward(recipe["n_leaves"]).fit(latents)
        return scores(merged.tree_, merged.labels_, y)

    figures = {
        "data": given.data,
        "method": given.method,
        "epochs": epochs,
        "seed": given.seed,
        "seconds": time.perf_counter() - began,
        "elbo": mean_terms(model.fitted_, data.x_test),
        "ward_of_means_percent": ward(model.transform(data.x_test)),
        "ward_of_draws_percent": [ward(drawn(model, data.x_test, draw)) for draw in range(given.draws)],
    }
    print(figures, flush=True)
    default = record.RESULTS / f"ward_of_draws-{given.data}-{given.method}-cpu.json"
    device = str(model.fitted_.device)
    record.write(given.out or (default if device == "cpu" else None), figures, device)


if __name__ == "__main__":
    main()
