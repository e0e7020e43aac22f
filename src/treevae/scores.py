"""How well a fitted model does on samples: its groups against classes, and how it explains them."""

from __future__ import annotations

from collections.abc import Callable
from itertools import pairwise
from typing import Any

import numpy as np
import torch

from .data.dataset import DataSet
from .fitted import Fitted
from .metrics import accuracy, ari, contingency, dendrogram_purity, leaf_purity, nmi
from .model import descent
from .model.elbo import TERMS
from .model.evidence import BOUNDS, bits_per_dimension, on_byte_levels
from .tree import Tree

PARTS = 10  # in which samples are scored, each with a sign of progress
ACTIVE = 0.01  # variance, over samples, of the mean of a latent dimension that is in use


# -- groups -----------------------------------------------------------------------------------------------------------


def scores(tree: Tree | None, leaves: np.ndarray, y: np.ndarray) -> dict[str, float]:
    """DP (of a tree), LP, ACC, NMI and ARI, in per cent."""
    purity = {} if tree is None else {"DP": 100 * dendrogram_purity(tree, leaves, y)}
    return purity | {
        "LP": 100 * leaf_purity(leaves, y),
        "ACC": 100 * accuracy(leaves, y),
        "NMI": 100 * nmi(leaves, y),
        "ARI": 100 * ari(leaves, y),
    }


def compared(tree: Tree | None, leaves: np.ndarray, data: DataSet) -> dict[str, Any]:
    """How the leaves of test samples agree with what a data set knows about them: classes, finer ones, attributes."""
    n_leaves = int(leaves.max()) + 1 if tree is None else len(tree.leaves)
    comparison: dict[str, Any] = {}
    if data.y_test is not None:
        comparison["scores_percent"] = scores(tree, leaves, data.y_test)
        comparison["class_names"] = list(data.class_names)
        comparison["test_leaf_by_class"] = contingency(leaves, data.y_test, n_leaves).tolist()
    if data.fine_test is not None:
        comparison["fine_scores_percent"] = scores(tree, leaves, data.fine_test)
    if data.attributes_test is not None and data.attribute_names is not None:
        has = with_those_of_the_paper(dict(zip(data.attribute_names, data.attributes_test.T, strict=True)))
        comparison["leaf_attributes_percent"] = {name: _shares(one, leaves, n_leaves) for name, one in has.items()}
    return comparison


def with_those_of_the_paper(has: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
    """Attributes with the two that the paper makes of CelebA's, where those are there; of each whether a sample has it.

    Samples must be asked one by one: how many have one or the other does not follow from how many have each.
    """
    made = {}
    if {"Bald", "Receding_Hairline"} <= set(has):
        made["Hair_Loss"] = has["Bald"] | has["Receding_Hairline"]
    if {"No_Beard", "5_o_Clock_Shadow"} <= set(has):
        made["Beard"] = ~has["No_Beard"] | has["5_o_Clock_Shadow"]
    return has | made


def _shares(has: np.ndarray, leaves: np.ndarray, n_leaves: int) -> list[float | None]:
    """Of each leaf how many per cent of its samples have an attribute; None of a leaf without samples."""
    sizes, having = (np.bincount(some, minlength=n_leaves).tolist() for some in (leaves, leaves[has]))
    return [100 * some / size if size else None for some, size in zip(having, sizes, strict=True)]


# -- density ----------------------------------------------------------------------------------------------------------


def mean_terms(model: Fitted, X: Any) -> dict[str, float]:
    """The mean ELBO of samples in nats, and its terms; RL is the negative reconstruction."""
    named = dict(zip(TERMS, model.elbo_terms(X).mean(0).tolist(), strict=True))
    kl = sum(value for name, value in named.items() if name != "reconstruction")
    return {"ELBO": named["reconstruction"] - kl, "RL": -named["reconstruction"], **named}


def explained(model: Fitted, X: Any, draws: int, at: Callable[[float], None]) -> dict[str, Any]:
    """How well a model explains samples: the ELBO's terms, and estimates of log p(x).

    ``at`` is told how much is done, from 0 to 1.
    """
    n = X.shape[0]
    terms, estimates = dict[str, float](), []
    bounds = np.linspace(0, n, min(n, PARTS) + 1).round().astype(int)
    for first, last in pairwise(bounds.tolist()):
        part = X[first:last]
        for name, mean in mean_terms(model, part).items():
            terms[name] = terms.get(name, 0.0) + mean * (last - first) / n
        estimates.append(model.log_likelihoods(part, draws))
        at(last / n)
    return {"elbo": terms, "likelihood": _likelihoods(model, X, draws, np.concatenate(estimates))}


def likelihoods(model: Fitted, X: Any, draws: int) -> dict[str, Any]:
    """The mean of both estimates of log p(x) over samples, in nats, and its standard error.

    The error is that of the mean over these samples as an estimate of the mean over all samples of their kind: their
    standard deviation over the root of their number; None of a single one. How far a bound lies below log p(x) is no
    part of it. Images of bytes (uint8, or values that are k/255) under a Gaussian also have the importance-weighted
    bound in bits per dimension.
    """
    return _likelihoods(model, X, draws, model.log_likelihoods(X, draws))


def _likelihoods(model: Fitted, X: Any, draws: int, estimates: np.ndarray) -> dict[str, Any]:
    figures: dict[str, Any] = {"draws": draws}
    for bound, values in zip(BOUNDS, estimates.astype(np.float64).T, strict=True):
        error = float(values.std(ddof=1) / np.sqrt(len(values))) if len(values) > 1 else None
        figures[f"ll_{bound}"] = {"mean": float(values.mean()), "standard_error": error}
    shown = model.shown
    if shown.form.is_image and shown.likelihood != "bernoulli" and on_byte_levels(model.encode(X)):
        figures["bits_per_dimension"] = bits_per_dimension(figures["ll_iwae"]["mean"], shown.n_features)
    return figures


def node_table(model: Fitted, X: np.ndarray) -> list[dict[str, Any]]:
    """For each node its share of the samples, how sure its router is, its KL, and how many latents it uses."""
    module, tree = model.module, model.tree
    nodes, keys = module.nodes, module.nodes.layout.nodes
    generator = torch.Generator(model.device).manual_seed(0)

    def ask(x: torch.Tensor) -> torch.Tensor:
        """Per sample and node: reach, KL, the router's larger probability, and the mean of z, filled up with zeros."""
        d = module.d(x)
        drawn = descent.infer(nodes, d, descent.noise_for(nodes, len(x), generator))
        means = [level.transpose(0, 1) for level in descent.infer(nodes, d, None).z]  # by level: (batch, node, latent)
        widest = max(level.shape[2] for level in means)
        z = torch.cat([torch.nn.functional.pad(level, (0, widest - level.shape[2])) for level in means], 1)
        sure = torch.full_like(drawn.kl, torch.nan)
        sure[nodes.layout.router_rows] = drawn.logit_q.abs().sigmoid()
        reach = descent.log_reach(nodes, drawn.logit_q).exp()
        return torch.cat([torch.stack([reach.T, drawn.kl.T, sure.T], 2), z], 2)

    told = torch.from_numpy(model.ask(X, ask, light=False)).double()  # (sample, node, 3 + latent)
    reach, kl, sure, z = told[..., 0], told[..., 1], told[..., 2], told[..., 3:]
    weight, reached = reach / reach.sum(0), (reach.sum(0) > 0).tolist()
    routers = {node for node in tree.nodes if len(tree.children(node)) == 2}
    mean = (weight[..., None] * z).sum(0)
    variance = (weight[..., None] * (z - mean) ** 2).sum(0)
    return [
        {
            "node": key.node,
            "depth": tree.depth(key.node),
            "children": list(tree.children(key.node)),
            "share": float(reach[:, i].mean()),
            "confidence": float((weight[:, i] * sure[:, i]).sum()) if reached[i] and key.node in routers else None,
            "kl": float((weight[:, i] * kl[:, i]).sum()) if reached[i] else None,
            "active_latents": int((variance[i] > ACTIVE).sum()),
        }
        for i, key in enumerate(keys)
    ]
