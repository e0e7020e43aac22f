"""The demo: a tree of clothes, scored beside Ward's method on test images. No labels are used but for the scores.

TreeVAE places test images that it has never seen; Ward, which cannot place new samples, clusters the test images
themselves. Both trees have equally many leaves.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Mapping
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np

from ..baselines.ward import Ward
from ..data import fashion_sample
from ..estimator import TreeVAE
from ..metrics import contingency
from ..page.report import write_report
from ..records import versions
from ..run import Run, Settings
from ..scores import scores
from ..subject import Subject

DEMO: dict[str, Any] = {
    "n_leaves": 10,
    "random_state": 0,
    "network": "mlp",  # the rest are the estimator's defaults
}
SCORES = ("DP", "LP", "ACC", "NMI")


@dataclass(frozen=True)
class Demo:
    """What the demo found."""

    model: TreeVAE
    main_class: tuple[str, ...]  # of each leaf, from left to right: its class and share on the test images
    scores: dict[str, dict[str, float]]  # method -> score -> per cent
    elbo: float  # mean over the test images, nats
    seconds: float  # of fitting
    written: tuple[Path, ...]

    @property
    def table(self) -> str:
        """The scores of both methods side by side."""
        lines = [" " * 8 + "".join(f"{score:>7}" for score in SCORES)]
        lines += [
            f"{method:8}" + "".join(f"{of[score]:7.1f}" for score in SCORES) for method, of in self.scores.items()
        ]
        return "\n".join(lines)

    @property
    def verdict(self) -> str:
        """Which method is better by which score, to the decimal shown in the table."""
        ours, theirs = self.scores["TreeVAE"], self.scores["Ward"]
        gap = {score: round(ours[score], 1) - round(theirs[score], 1) for score in SCORES}
        better = [score for score in SCORES if gap[score] > 0]
        worse = [score for score in SCORES if gap[score] < 0]
        equal = [score for score in SCORES if gap[score] == 0]
        parts = [f"TreeVAE is better in {_listed(better)}"] if better else []
        parts += [f"Ward is better in {_listed(worse)}"] if worse else []
        parts += [f"they are equal in {_listed(equal)}"] if equal else []
        return "; ".join(parts) + "."


def run(folder: Path, changes: Mapping[str, Any]) -> Demo:
    """What the demo finds; model, picture, numbers and report are written into the folder, which must exist.

    ``changes`` are parameters of the estimator that replace those in ``DEMO``.
    """
    data = fashion_sample.load()
    started = time.perf_counter()
    model = TreeVAE(**DEMO | dict(changes), verbose=True).fit(data.x_train)
    seconds = time.perf_counter() - started

    leaves = model.predict(data.x_test)
    ward = Ward(len(model.tree_.leaves)).fit(data.x_test)
    by_method = {
        "TreeVAE": scores(model.tree_, leaves, data.y_test),
        "Ward": scores(ward.tree_, ward.labels_, data.y_test),
    }
    elbo = model.score(data.x_test)

    place = Run(folder)
    written = [place.write_model(model)]
    if find_spec("matplotlib") is not None:
        from ..pictures.plots import tree_picture

        tree_picture(model, data.x_test, data.y_test, data.class_names).savefig(place.picture_file)
        written.append(place.picture_file)
    about = {
        "command": " ".join(["treevae", *sys.argv[1:]]),
        "scores_percent": by_method,
        "test_elbo_nats": elbo,
        "n_leaves": len(model.tree_.leaves),
        "n_train": len(data.x_train),
        "n_test": len(data.x_test),
        "seconds_fit": seconds,
        "parameters": model.get_params(),
        "device": str(next(model.module_.parameters()).device),
        "versions": versions(),
    }
    written.append(place.write_metrics(about))
    place.write_settings(Settings.of_demo(DEMO | dict(changes)))
    written.append(write_report(Subject.of_demo().snapshot(model), place.report_file))
    main_class = _main_class(leaves, data.y_test, len(model.tree_.leaves), data.class_names)
    return Demo(model, main_class, by_method, elbo, seconds, tuple(written))


def _main_class(leaves: np.ndarray, y: np.ndarray, n_leaves: int, class_names: tuple[str, ...]) -> tuple[str, ...]:
    """The most frequent class of each leaf with its share; a leaf that no sample reached says so."""
    classes = np.unique(y)
    return tuple(
        f"{class_names[classes[row.argmax()]]} {row.max() / row.sum():.0%}" if row.any() else "no test image"
        for row in contingency(leaves, y, n_leaves)
    )


def _listed(names: list[str]) -> str:
    return names[0] if len(names) == 1 else f"{', '.join(names[:-1])} and {names[-1]}"
