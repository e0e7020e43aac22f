"""How a tree begins: what ``start``, ``neighbours``, ``n_init`` and ``epochs`` come to for the samples at hand.

Every default that was chosen by a study is here; docs/evidence/start-study.md says how.
"""

from __future__ import annotations

import inspect
import json
import logging
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from math import ceil
from typing import Any

import numpy as np
import torch
from scipy.sparse import csr_array
from torch import Tensor

from .data.arrays import InputForm
from .errors import OneGroupError
from .guides.guide import Guide
from .guides.labels import numbered
from .guides.neighbours import nearest, of_graph
from .guides.told import agreement, one_hot
from .parameters import batch_rows, contrast_of, plain
from .storage.fingerprint import fingerprint
from .training.plan import Plan

log = logging.getLogger("treevae")
AUTO, SPLITS, GUIDE = STARTS = ("auto", "splits", "guide")
GUIDES = ("kmeans", "embedding", "networks")  # in the order in which n_init takes them
CANDIDATES, RACE = 16, (1 / 16, 1 / 8, 1 / 4, 1 / 2)  # for every split, and where in its stage the worse half leaves
SPLIT_EPOCHS = 60
NEAREST = 10  # neighbours that tell which groups are near each other, where none are asked for
LARGEST = 30_000  # images, up to which a guide is better than growing
STEPS, LEAST_EPOCHS = 700, 20  # of a guided tree
GUIDANCE, LEAST_GUIDANCE = 0.2, 20.0  # weight of a guide's labels: for each feature, and more than that of neighbours
AGREEMENT = {SPLITS: 60.0, GUIDE: 10.0}  # weight of neighbours, in nats for a nat


@dataclass(frozen=True, eq=False)
class Beside:
    """What a fit is given beside X, with a row for each sample."""

    guide: Any = None  # in any form that Guide.of takes
    graph: Any = None  # sparse, (n, n)

    def identity(self) -> dict[str, str]:
        """What must not change when a fit goes on."""
        told = {}
        if self.guide is not None:
            told["guide"] = _said(self.guide)
        if self.graph is not None:
            graph = csr_array(self.graph)
            told["graph"] = ", ".join(fingerprint(part) for part in (graph.data, graph.indices, graph.indptr))
        return told


NOTHING = Beside()


def _said(guide: Any) -> str:
    """What tells a guide from others, whatever its form."""
    if isinstance(guide, str) or inspect.isclass(guide):
        return str(guide)
    if hasattr(guide, "fit_predict"):  # its text may hold an address, its own or that of a RandomState
        words = guide.get_params() if hasattr(guide, "get_params") else {}
        told = json.dumps({word: plain(value) for word, value in words.items()}, default=lambda one: type(one).__name__)
        return f"{type(guide).__module__}.{type(guide).__qualname__} {told}"
    if isinstance(guide, Guide):
        return ", ".join(guide.identity().values())
    numbers = np.asarray(guide)
    return fingerprint(numbers if numbers.ndim > 1 else numbered(guide))


def start_of(given: Mapping[str, Any], form: InputForm, n_samples: int, beside: Beside) -> str:
    """The start that is meant: "auto" takes a guide, but splits for many images, and for fewer samples than leaves.

    Where augmented views are compared, distances between samples say what they should not: there it takes splits too.
    """
    if given["tree"] is not None or given["start"] != AUTO:
        return SPLITS if given["tree"] is not None else str(given["start"])
    if beside.guide is not None:
        return GUIDE
    many = form.is_image and n_samples > LARGEST
    return SPLITS if many or n_samples < given["n_leaves"] or given["contrastive_weight"] > 0 else GUIDE


def neighbours_of(given: Mapping[str, Any], x: Tensor, beside: Beside) -> Tensor:
    """The rows of each sample's neighbours, (sample, neighbour)."""
    k = min(int(given["neighbours"]), len(x) - 1)
    return nearest(x, k) if beside.graph is None else of_graph(beside.graph, k)


def guides_of(
    given: Mapping[str, Any], x: Tensor, neighbours: Tensor | None, beside: Beside, seed: int
) -> Iterator[tuple[Guide, float]]:
    """The guides that a tree may begin with, that which the user gives or ours, each with its agreement in nats."""
    near = nearest(x, min(NEAREST, len(x) - 1)) if neighbours is None else neighbours.to(x.device)
    n_leaves, max_depth = int(given["n_leaves"]), int(given["max_depth"])
    n_ours = len(GUIDES) if given["n_init"] == AUTO else int(given["n_init"])
    for i in range(n_ours if beside.guide is None else 1):
        one = GUIDES[i % len(GUIDES)] if beside.guide is None else beside.guide
        try:
            guide = Guide.of(one, x, near, n_leaves, max_depth, seed + i // len(GUIDES))
        except OneGroupError as error:
            if i == 0:  # the user's, or k-means, which makes groups if any can; others may fail
                raise
            log.info("the guide %r is left out: %s", one, error)
            continue
        groups = one_hot(torch.tensor(guide.labels), len(guide.tree.leaves))
        yield guide, agreement(groups, near)


def plan_of(given: Mapping[str, Any], n_samples: int, n_features: int = 1, start: str = SPLITS) -> Plan:
    """The stages of training a tree on so many samples; how many features they have counts for a guide alone."""
    batch_size, epochs, contrast = batch_rows(given, n_samples), given["epochs"], contrast_of(given)
    n_leaves, learning_rate = int(given["n_leaves"]), float(given["learning_rate"])
    agreement = AGREEMENT[start] if given["neighbours"] > 0 else 0.0
    races = given["n_init"] == AUTO
    n_init = CANDIDATES if races else int(given["n_init"])
    if start == SPLITS:
        epochs, rule = SPLIT_EPOCHS if epochs == AUTO else int(epochs), given["leaf_rule"]
        plan = Plan.paper(epochs, n_leaves, batch_size, n_init, rule, learning_rate, contrast, agreement)
    else:
        if epochs == AUTO:
            steps = n_samples // (batch_size if contrast is None else batch_size // contrast.views)
            epochs = max(LEAST_EPOCHS, ceil(STEPS / steps))
        guidance = max(GUIDANCE * n_features, LEAST_GUIDANCE)
        plan = Plan.guided(int(epochs), n_leaves, batch_size, guidance, agreement, learning_rate, contrast=contrast)
        plan = replace(plan, n_init=n_init)  # where the guide has fewer leaves, and splits follow
    return replace(plan, race=RACE) if races else plan


def check_start(given: Mapping[str, Any], n_samples: int, beside: Beside) -> None:
    """Raise unless what is given beside X can be used."""
    tree = given["tree"]
    if beside.guide is not None and tree is not None:
        raise ValueError("guide is given, and the tree of this model is fixed, so that it needs none; leave guide out")
    if beside.graph is not None and tree is not None and len(tree.leaves) < 2:
        raise ValueError("graph tells which samples should share a leaf, and this model has but one; leave graph out")
    if beside.guide is not None and given["start"] == SPLITS:
        raise ValueError("guide is given, and start='splits' grows without one; set start='guide' or 'auto'")
    if beside.guide is not None:
        Guide.check(beside.guide, n_samples, int(given["n_leaves"]), int(given["max_depth"]))
    if beside.graph is not None and np.shape(beside.graph) != (n_samples, n_samples):
        raise ValueError(
            f"graph has shape {np.shape(beside.graph)} and X {n_samples} samples; pass a matrix with one row and one "
            "column for each sample"
        )
    if beside.graph is not None and given["neighbours"] == 0:
        raise ValueError("graph tells the neighbours of each sample, and neighbours=0 asks for none; set it to 10")
