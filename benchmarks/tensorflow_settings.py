"""What do the settings of the paper's TensorFlow runs change? Epsilon and momentum of norms, Glorot's weights.

    python benchmarks/tensorflow_settings.py cifar10 --root DATA --scale 0.5 --epsilon 1e-3 --momentum 0.99 --glorot

One fit by the paper's recipe with these settings instead of torch's (1e-5, 0.9, its own weights), scored on the test
samples. Each is a line of the file of results.
"""

from __future__ import annotations

import argparse
import json
import warnings
from pathlib import Path

from sklearn.exceptions import ConvergenceWarning

from treevae import TreeVAE
from treevae.data import load
from treevae.experiments.records import elbo_terms, name_of, scores, versions
from treevae.model.stack import LAYER_DEFAULTS, LayerDefaults


def main() -> None:
    """Fit, print and write."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("data")
    parser.add_argument("--root", type=Path, help="where the data sets lie; by default what $TREEVAE_DATA says")
    parser.add_argument("--scale", type=float, default=1.0, help="of the schedule")
    parser.add_argument("--seeds", type=int, default=1)
    parser.add_argument("--epsilon", type=float, default=1e-5)
    parser.add_argument("--momentum", type=float, default=0.9)
    parser.add_argument("--glorot", action="store_true")
    parser.add_argument("--out", type=Path, default=Path(__file__).parent / "results" / "tensorflow_settings.jsonl")
    given = parser.parse_args()
    LAYER_DEFAULTS["tensorflow"] = LayerDefaults(given.epsilon, given.momentum, given.glorot)  # in its place
    warnings.simplefilter("ignore", category=ConvergenceWarning)  # the leaves are in the record
    data = load(given.data, given.root)
    assert data.y_test is not None
    model = TreeVAE.recipe(given.data, layer_defaults="tensorflow")
    model.set_params(epochs=max(1, round(model.epochs * given.scale)), verbose=True)
    for seed, one in enumerate(model.fit_seeds(data.x_train, range(given.seeds))):
        about = {name: vars(given)[name] for name in ("data", "scale", "epsilon", "momentum", "glorot")}
        device = next(one.module_.parameters()).device
        line = about | {
            "seed": seed,
            "leaves": len(one.tree_.leaves),
            "elbo": elbo_terms(one, data.x_test),
            "scores_percent": scores(one.tree_, one.predict(data.x_test), data.y_test),
            "seconds": one.seconds_[-1],
            "device": name_of(device),
            "versions": versions(),
        }
        with given.out.open("a", encoding="utf-8") as file:
            file.write(json.dumps(line) + "\n")
        print(line, flush=True)


if __name__ == "__main__":
    main()
