"""Between which figures does a model of 20Newsgroups move?

    python -m benchmarks.studies.news20_bounds --root DATA

The least reconstruction loss that any model can have is the entropy of the TF-IDF values read as Bernoulli
probabilities; a model that knows nothing but how frequent each word is in the training texts has the other one.
"""

from __future__ import annotations

import argparse
from pathlib import Path

import numpy as np

from treevae.data import load

from .. import record


def cross_entropy(x: np.ndarray, p: np.ndarray) -> float:
    """The mean, over texts, of -x log p - (1 - x) log(1 - p), summed over words, in nats."""
    x, p = x.astype(np.float64), np.clip(p.astype(np.float64), 1e-12, 1 - 1e-12)
    return float(-(x * np.log(p) + (1 - x) * np.log1p(-p)).sum(1).mean())


def main() -> None:
    """Compute, print and write."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--root", type=Path, help="where the data sets lie; by default what $TREEVAE_DATA says")
    parser.add_argument("--out", type=Path)
    given = parser.parse_args()
    data = load("news20", given.root)
    frequencies = data.x_train.mean(0, keepdims=True)
    bounds = {
        "entropy_train": cross_entropy(data.x_train, data.x_train),
        "entropy_test": cross_entropy(data.x_test, data.x_test),
        "word_frequencies_train": cross_entropy(data.x_train, frequencies),
        "word_frequencies_test": cross_entropy(data.x_test, frequencies),
    }
    print(bounds)
    record.write(given.out, bounds)


if __name__ == "__main__":
    main()
