"""How much do Omniglot's figures depend on how its drawings are shrunk to 28 pixels, which the paper leaves open?

    python -m benchmarks.studies.omniglot_resampling --root DATA [--epochs 30]

For each filter the least reconstruction loss that any model can have (the entropy of the grey levels), and what a small
VAE reaches, on the test drawings. Without augmentation, so that blurring by it plays no part.
"""

from __future__ import annotations

import argparse
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

from PIL import Image

from treevae.baselines.ladder import VAE
from treevae.data import omniglot
from treevae.data.sets import read_source
from treevae.scores import mean_terms

from .. import record
from .news20_bounds import cross_entropy


def resized(how: Image.Resampling) -> Any:
    """Pillow's filters, which are widened as they shrink, so that all pixels are seen (but for the nearest)."""
    return lambda image, file: image.resize((omniglot.SIDE,) * 2, how)


FILTERS: dict[str, Any] = {
    "bilinear, widened": resized(Image.Resampling.BILINEAR),
    "bicubic, widened": resized(Image.Resampling.BICUBIC),
    "mean of what a pixel covers": resized(Image.Resampling.BOX),
    "bilinear, not widened (ours)": omniglot.bilinear,
    "nearest": resized(Image.Resampling.NEAREST),
}


def main() -> None:
    """Measure, print and write."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--root", type=Path, help="where the data sets lie; by default what $TREEVAE_DATA says")
    parser.add_argument("--epochs", type=int, default=30)
    parser.add_argument("--out", type=Path)
    given = parser.parse_args()
    rows = []
    for name, shrunk in FILTERS.items():
        by_filter = partial(omniglot.read, name="omniglot", alphabets=None, shrunk=shrunk)
        data = read_source(replace(omniglot.OMNIGLOT, read=by_filter), given.root)
        vae = VAE(network="mlp", epochs=given.epochs, random_state=0).fit(data.x_train)
        flat = data.x_test.reshape(len(data.x_test), -1)
        terms = mean_terms(vae.fitted_, data.x_test)
        rows.append({"filter": name, "entropy": cross_entropy(flat, flat), "RL": terms["RL"], "ELBO": terms["ELBO"]})
        print(rows[-1], flush=True)
    record.write(given.out, {"epochs": given.epochs, "filters": rows})


if __name__ == "__main__":
    main()
