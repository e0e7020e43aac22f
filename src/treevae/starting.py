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
GUIDES = ("embedding", "kmeans", "networks")  # in the order in which n_init takes them
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
    """The start that is meant: "auto" takes a guide, but splits for many images, and for fewer samples than leaves."""
    if given["tree"] is not None or given["start"] != AUTO:
        return SPLITS if given["tree"] is not None else str(given["start"])
    if beside.guide is not None:
        return GUIDE
    return SPLITS if (form.is_image and n_samples > LARGEST) or n_samples < given["n_leaves"] else GUIDE


def neighbours_of(given: Mapping[str, Any], x: Tensor, beside: Beside) -> Tensor | None:
    """The rows of each sample's neighbours, (sample, neighbour); None where none are asked for."""
    k = min(int(given["neighbours"]), len(x) - 1)
    if k == 0:
        return None
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
            if i == 0:  # k-means and the like always make groups; some of the others may fail
                raise
            log.info("the guide %r is left out: %s", one, error)
            continue
        groups = one_hot(torch.tensor(guide.labels), len(guide.tree.leaves))
        yield guide, agreement(groups, near)


def plan_of(given: Mapping[str, Any], n_samples: int, n_features: int = 1, start: str = SPLITS) -> Plan:
    """The stages of training a tree on so many samples; how many features they have counts for a guide alone."""
    batch_size, epochs = batch_rows(given, n_samples), given["epochs"]
    weight = AGREEMENT[start] if given["neighbours"] > 0 else 0.0
    if start == SPLITS:
        plan = Plan.paper(
            SPLIT_EPOCHS if epochs == AUTO else int(epochs),
            int(given["n_leaves"]),
            batch_size,
            CANDIDATES if given["n_init"] == AUTO else int(given["n_init"]),
            given["leaf_rule"],
            float(given["learning_rate"]),
            contrast_of(given),
            weight,
        )
        return replace(plan, race=RACE) if given["n_init"] == AUTO else plan
    return Plan.guided(
        max(LEAST_EPOCHS, ceil(STEPS / (n_samples // batch_size))) if epochs == AUTO else int(epochs),
        int(given["n_leaves"]),
        batch_size,
        max(GUIDANCE * n_features, LEAST_GUIDANCE),
        weight,
        float(given["learning_rate"]),
        contrast=contrast_of(given),
    )


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
