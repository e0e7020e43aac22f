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
from dataclasses import asdict, dataclass, replace
from pathlib import Path

import torch
import torch.nn.functional as F
from torch import Tensor

from treevae import TreeVAE
from treevae.data import load
from treevae.data.augment import PhotoAugmentation, PhotoDraw, brighten, grey, turn_hue
from treevae.fitting import Seeds, fit_trees
from treevae.listening import Listener
from treevae.metrics import contingency
from treevae.model.likelihoods import Likelihood, UnitGaussian
from treevae.model.networks import Architecture
from treevae.model.stack import LAYER_DEFAULTS, LayerDefaults
from treevae.preparing import augmentation_of, prepare
from treevae.records import name_of, source, versions
from treevae.scores import mean_terms, scores
from treevae.starting import plan_of
from treevae.training.plan import Stage
from treevae.training.terms import Contrast, Pass

from .. import record
from .plans import with_stages, with_weight_decay


class WholeError(UnitGaussian):
    """Twice the log-density: the squared error without its half, and twice the constant."""

    def log_prob(self, x: Tensor, output: Tensor, run_of: Tensor) -> Tensor:
        """-(x - mu)^2 - log 2 pi, summed over features: (leaf, batch)."""
        return 2 * super().log_prob(x, output, run_of)


@dataclass(frozen=True)
class AskedFor(Architecture):
    """An architecture whose layers have the defaults that are asked for, and whose error may be the whole one."""

    asked_layers: LayerDefaults = LAYER_DEFAULTS["torch"]
    whole_error: bool = False

    @property
    def layers(self) -> LayerDefaults:
        """What its layers are like."""
        return self.asked_layers

    @property
    def likelihood_model(self) -> Likelihood:
        """log p(x | z), or twice that of a Gaussian."""
        return WholeError() if self.whole_error and self.likelihood == "gaussian" else super().likelihood_model


@dataclass(frozen=True)
class MeanContrast(Contrast):
    """A contrastive loss whose two parts are halved; a subtree's has one, which is whole."""

    def loss(self, seen: Pass) -> Tensor:
        """The part of the bottom-up, then that of the routers: (2, tree)."""
        parts = super().loss(seen)
        return parts if seen.projections is None else parts / 2


def with_mean_contrast(stage: Stage) -> Stage:
    """The stage with the mean of a contrast's parts instead of their sum."""
    terms = (MeanContrast(term.variant, term.weight) if isinstance(term, Contrast) else term for term in stage.terms)
    return replace(stage, terms=tuple(terms))


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


def their_views(name: str | None) -> TheirViews | str | None:
    """TensorFlow's way to do what an augmentation of photographs does; any other stays as it is."""
    ours = augmentation_of(name)
    if not isinstance(ours, PhotoAugmentation):
        return name
    return TheirViews(**asdict(ours) | {"tries": 1})  # a crop that does not fit is cut to the picture, not drawn again


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
    data = load(given.data, given.root)
    assert data.y_test is not None
    recipe = TreeVAE.recipe(given.data, layer_defaults="tensorflow")
    recipe.set_params(epochs=max(1, round(recipe.epochs * given.scale)))
    parameters = recipe.get_params(deep=False)
    if given.their_views:
        parameters["augment"] = their_views(parameters["augment"])
    plan = with_weight_decay(plan_of(parameters, len(data.x_train)), given.weight_decay)
    if given.mean_contrast:
        plan = with_stages(plan, with_mean_contrast)
    prepared = prepare("TreeVAE", parameters, data.x_train)
    layers = LayerDefaults(given.epsilon, given.momentum, given.glorot)
    arch = AskedFor(**asdict(prepared.arch), asked_layers=layers, whole_error=given.whole_error)
    seeds = Seeds.of(range(given.seeds))
    models = fit_trees(replace(prepared, arch=arch), plan, seeds, listener=Listener(verbose=True))
    about = {name: value for name, value in vars(given).items() if name not in ("root", "seeds", "out")}
    for seed, model in enumerate(models):
        leaves = model.predict(data.x_test)
        line = about | {
            "seed": seed,
            "leaves": len(model.tree.leaves),
            "elbo": mean_terms(model, data.x_test),  # with the whole error its reconstruction is twice the log-density
            "scores_percent": scores(model.tree, leaves, data.y_test),
            "seconds": model.seconds[-1],
            "test_leaf_by_class": contingency(leaves, data.y_test, len(model.tree.leaves)).tolist(),
            "tree": json.loads(model.tree.to_json()),
            "source": source(),
            "device": name_of(model.device),
            "versions": versions(),
        }
        with given.out.open("a", encoding="utf-8") as file:
            file.write(json.dumps(line) + "\n")
        print(line, flush=True)


if __name__ == "__main__":
    main()
