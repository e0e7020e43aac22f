"""What do settings of the paper's own runs change? Epsilon and momentum of norms, Glorot's weights, the whole error.

    python -m benchmarks.studies.tensorflow_settings cifar10 --root DATA --scale 0.5 --epsilon 1e-3 --momentum 0.99 …

One fit by the paper's recipe with these settings instead of torch's (1e-5, 0.9, its own weights), scored on the test
samples. Each is a line of the file of results. TensorFlow's Adam took the authors' "decay" for one of the learning
rate, so their runs had no weight decay: --weight-decay 0. With --whole-error the reconstruction of a Gaussian is the
squared error itself, as in the authors' code, where -log p(x) at sigma = 1 has half of it: every other term weighs half
as much. With --mean-contrast the contrastive loss of the first tree is the mean of its two parts, as in their
TensorFlow code, instead of their sum; a subtree's has one part. With --their-views pictures are changed as TensorFlow
does it: crops are read bilinearly, from corner to corner, and cut to the picture where they do not fit; contrast is
about the mean of each colour; saturation is that of HSV; and only brightness and the end are kept within [0, 1].
"""

from __future__ import annotations

import argparse
import json
import warnings
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any, ClassVar

import torch
import torch.nn.functional as F
from sklearn.exceptions import ConvergenceWarning
from torch import Tensor

from treevae import TreeVAE
from treevae.data import augment, load
from treevae.data.augment import AUGMENTATIONS, PhotoAugmentation, PhotoDraw, brighten, grey, turn_hue
from treevae.metrics import contingency
from treevae.model import contrastive
from treevae.model.contrastive import contrast
from treevae.model.likelihoods import LIKELIHOODS, UnitGaussian
from treevae.model.stack import LAYER_DEFAULTS, LayerDefaults
from treevae.records import name_of, source, versions
from treevae.scores import mean_terms, scores
from treevae.training.plan import Plan, Stage

from .. import record
from .plans import with_weight_decay


class WholeError(UnitGaussian):
    """Twice the log-density: the squared error without its half, and twice the constant."""

    def log_prob(self, x: Tensor, output: Tensor, run_of: Tensor) -> Tensor:
        """-(x - mu)^2 - log 2 pi, summed over features: (leaf, batch)."""
        return 2 * super().log_prob(x, output, run_of)


def mean_contrast(variant: str, projections: Sequence[Tensor] | None, *rest: Any) -> Tensor:
    """Both parts of a contrastive loss, halved where there are two."""
    found = contrast(variant, projections, *rest)
    return found if projections is None else found / 2


class TheirViews(PhotoAugmentation):
    """Views of photographs as the authors' TensorFlow code makes them."""

    def apply(self, x: Tensor, draw: PhotoDraw) -> Tensor:
        """The views that a draw describes."""
        grid = F.affine_grid(draw.theta, list(x.shape), align_corners=True)
        x = brighten(F.grid_sample(x, grid, align_corners=True), draw.brightness)
        x = torch.lerp(x.mean((2, 3), keepdim=True), x, draw.contrast)
        largest, smallest = x.amax(1, keepdim=True), x.amin(1, keepdim=True)
        most = largest / (largest - smallest).clamp(min=1e-6)  # where the saturation is whole
        x = largest - (largest - x) * torch.minimum(draw.saturation, most)
        if draw.hue is not None:
            x = turn_hue(x, draw.hue)
        if draw.grey is not None:
            x = torch.where(draw.grey, grey(x), x)
        return x.clamp_(0.0, 1.0)


class Decayed(TreeVAE):
    """A TreeVAE with another weight decay."""

    weight_decay: ClassVar[float]

    def _plan(self, n_samples: int) -> Plan:
        return with_weight_decay(super()._plan(n_samples), self.weight_decay)


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
    parser.add_argument("--weight-decay", type=float, default=Stage.weight_decay, help="the paper's own runs had none")
    parser.add_argument("--whole-error", action="store_true", help="the authors' scale of the squared error")
    parser.add_argument("--mean-contrast", action="store_true", help="of the first tree's contrastive loss")
    parser.add_argument("--their-views", action="store_true", help="photographs changed as TensorFlow does it")
    parser.add_argument("--out", type=Path, default=record.RESULTS / "tensorflow_settings.jsonl")
    given = parser.parse_args()
    LAYER_DEFAULTS["tensorflow"] = LayerDefaults(given.epsilon, given.momentum, given.glorot)  # in its place
    if given.whole_error:
        LIKELIHOODS["gaussian"] = WholeError()
    if given.mean_contrast:
        contrastive.contrast = mean_contrast  # type: ignore[assignment]
    if given.their_views:
        augment.TRIES = 1  # a crop that does not fit is cut to the picture, not drawn again
        for name, augmentation in AUGMENTATIONS.items():
            if isinstance(augmentation, PhotoAugmentation):
                AUGMENTATIONS[name] = TheirViews(**asdict(augmentation))
    warnings.simplefilter("ignore", category=ConvergenceWarning)  # the leaves are in the record
    data = load(given.data, given.root)
    assert data.y_test is not None
    Decayed.weight_decay = given.weight_decay
    model = Decayed.recipe(given.data, layer_defaults="tensorflow")
    model.set_params(epochs=max(1, round(model.epochs * given.scale)), verbose=True)
    for seed, one in enumerate(model.fit_seeds(data.x_train, range(given.seeds))):
        about = {name: value for name, value in vars(given).items() if name not in ("root", "seeds", "out")}
        device = next(one.module_.parameters()).device
        line = about | {
            "seed": seed,
            "leaves": len(one.tree_.leaves),
            "elbo": mean_terms(
                one.fitted_, data.x_test
            ),  # with the whole error its reconstruction is twice the log-density
            "scores_percent": scores(one.tree_, one.predict(data.x_test), data.y_test),
            "seconds": one.seconds_[-1],
            "test_leaf_by_class": contingency(one.predict(data.x_test), data.y_test, len(one.tree_.leaves)).tolist(),
            "tree": json.loads(one.tree_.to_json()),
            "source": source(),
            "device": name_of(device),
            "versions": versions(),
        }
        with given.out.open("a", encoding="utf-8") as file:
            file.write(json.dumps(line) + "\n")
        print(line, flush=True)


if __name__ == "__main__":
    main()
