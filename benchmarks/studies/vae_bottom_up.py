"""Does the bottom-up between encoder and root belong to the paper's VAE? It names an encoder and a decoder alone.

    python -m benchmarks.studies.vae_bottom_up mnist --root DATA [--scale 0.04] [--depths 0 5]

A VAE whose latent reads the encoder, and one whose latent stands where TreeVAE's root does, five dense steps above it:
ELBO and Ward's scores on the test samples, of one seed.
"""

from __future__ import annotations

import argparse
import time
from pathlib import Path

from treevae.baselines import VAE, Ward
from treevae.data import load
from treevae.experiments.methods import OF_LATENTS
from treevae.recipes import RECIPES
from treevae.scores import mean_terms, scores

from .. import record


def main() -> None:
    """Fit, print and write."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("data", choices=[name for name in RECIPES if name != "celeba"])  # which has no classes
    parser.add_argument("--root", type=Path, help="where the data sets lie; by default what $TREEVAE_DATA says")
    parser.add_argument("--scale", type=float, default=0.04, help="of the schedule of 500 epochs")
    parser.add_argument("--depths", type=int, nargs="+", default=[0, 5])
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--out", type=Path)
    given = parser.parse_args()
    data, recipe = load(given.data, given.root), RECIPES[given.data]
    assert data.y_test is not None
    settings = {name: recipe[name] for name in OF_LATENTS if name in recipe and name != "n_leaves"}
    runs, device = [], ""
    for depth in given.depths:
        began = time.perf_counter()
        epochs = max(1, round(500 * given.scale))
        vae = VAE(depth, **settings, epochs=epochs, random_state=given.seed, verbose=True).fit(data.x_train)
        ward = Ward(recipe["n_leaves"]).fit(vae.transform(data.x_test))
        device = str(next(vae.fitted_.module.parameters()).device)
        one = {
            "depth": depth,
            "epochs": epochs,
            "seed": given.seed,
            "seconds": time.perf_counter() - began,
            "elbo": mean_terms(vae.fitted_, data.x_test),
            "ward_percent": scores(ward.tree_, ward.labels_, data.y_test),
        }
        print(one, flush=True)
        runs.append(one)
    record.write(given.out, {"data": given.data, "runs": runs}, device)


if __name__ == "__main__":
    main()
