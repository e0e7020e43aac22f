"""Draws of the root, or samples, sent through all leaves: what each leaf makes of them, and how probable it is."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import torch

from ..model import descent

if TYPE_CHECKING:
    from ..estimator import TreeVAE


class Walks(NamedTuple):
    """Leaves go from left to right."""

    shown: np.ndarray  # (n, leaf, ...) in the form and units of X
    probability: np.ndarray  # (n, leaf)


@torch.no_grad()
def walk_draws(model: TreeVAE, n: int, random_state: Any = 0) -> Walks:
    """n draws of the root's z from the prior, each followed into every leaf; the prior routers give probabilities."""
    nodes = model.module_.nodes
    z = descent.generate(nodes, descent.noise_for(nodes, n, model._generator(random_state)))
    return _walks(model, z, descent.prior_logits(nodes, z))


@torch.no_grad()
def walk_samples(model: TreeVAE, X: Any) -> Walks:
    """Every sample as each leaf would reconstruct it, from the posterior means, with its probabilities q(leaf|x)."""
    nodes = model.module_.nodes
    found = descent.infer(nodes, model.module_.d(model._to_model(X).to(model._where())), noise=None)
    return _walks(model, found.z, found.logit_q)


def _walks(model: TreeVAE, z: list[torch.Tensor], logits: torch.Tensor) -> Walks:
    module, layout = model.module_, model.module_.nodes.layout
    means = descent.decode(module.nodes, z, module._expected)[layout.shown_leaves].transpose(0, 1)
    reach = descent.log_reach(module.nodes, logits)[layout.shown_rows].exp().T
    return Walks(model._to_user(means.cpu().numpy()), reach.cpu().numpy())
