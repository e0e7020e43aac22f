"""A fitted model as a record: how it came about, what it is, and how it does on test samples."""

from __future__ import annotations

import json
import platform
from collections.abc import Callable, Mapping
from importlib.metadata import version
from itertools import pairwise
from typing import Any

import numpy as np
import torch
from sklearn.base import BaseEstimator

from .. import __version__
from ..data import DataSet
from ..estimator import SCORE_DRAWS, TreeVAE
from ..metrics import accuracy, ari, contingency, dendrogram_purity, leaf_purity, nmi
from ..model import descent
from ..model.elbo import TERMS
from ..model.evidence import BOUNDS, bits_per_dimension, on_byte_levels
from ..model.scoring import score_terms
from ..storage.states import fingerprint
from ..training.samples import Samples, over
from ..tree import Tree
from .cells import PARAMETERS
from .source import source

CPU = torch.device("cpu")
PARTS = 10  # in which samples are scored, each with a sign of progress
ACTIVE = 0.01  # variance, over samples, of the mean of a latent dimension that is in use
TOLD_ELSEWHERE = ("device", "verbose", "random_state")  # in a record, or of no effect on it


def record(model: TreeVAE, data: DataSet, seed: int, command: str, draws: int = 0) -> dict[str, Any]:
    """All that is worth keeping of a model fitted on a data set's training samples.

    Estimates of log p(x) cost as many passes over the test samples as they take ``draws``; with 0 there are none.
    """
    leaves, nodes = model.predict(data.x_test), node_table(model, data.x_test)
    return {
        **record_of_density(model, parameters_of(model), data, seed, command, draws),
        "train_leaf_sizes": np.bincount(model.labels_, minlength=len(model.tree_.leaves)).tolist(),
        "nodes": nodes,
        **clustering(model.tree_, leaves, data),
    }


def record_of_density(
    model: TreeVAE, parameters: Mapping[str, Any], data: DataSet, seed: int, command: str, draws: int = 0
) -> dict[str, Any]:
    """As :func:`record`, without tree and leaves: how a model came about, and how well it explains the test samples."""
    device = next(model.module_.parameters()).device
    found = {
        **origin(parameters, data, seed, command, model.seconds_[-1], device),
        "stages": stages(model),
        "n_weights": sum(value.numel() for value in model.module_.parameters()),
        "elbo": elbo_terms(model, data.x_test),
    }
    if draws:
        found["likelihood"] = likelihoods(model, data.x_test, draws)
    return found


def origin(
    parameters: Mapping[str, Any],
    data: DataSet,
    seed: int,
    command: str,
    seconds: float,
    device: torch.device = CPU,
) -> dict[str, Any]:
    """How a record came about."""
    return {
        **about_data(data),
        "seed": seed,
        "command": command,
        PARAMETERS: dict(parameters),
        "device": name_of(device),
        "versions": versions(),
        "source": source(),
        "seconds": round(seconds, 3),
    }


def parameters_of(model: BaseEstimator) -> dict[str, Any]:
    """All that an estimator was told and that its record does not tell elsewhere, as JSON has it."""
    told = {name: value for name, value in model.get_params(deep=False).items() if name not in TOLD_ELSEWHERE}
    return {name: json.loads(one.to_json()) if isinstance(one, Tree) else one for name, one in told.items()}


def clustering(tree: Tree | None, leaves: np.ndarray, data: DataSet) -> dict[str, Any]:
    """A tree, where there is one, and how the leaves of test samples agree with what a data set knows about them."""
    return {"tree": None if tree is None else json.loads(tree.to_json())} | compared(tree, leaves, data)


def about_data(data: DataSet) -> dict[str, str]:
    """Which samples a record is of: the name of their set, in what they are not the published ones, fingerprints."""
    prints = {"train_samples": fingerprint(data.x_train), "test_samples": fingerprint(data.x_test)}
    return {"data": data.name, "note": data.note, **prints}


def compared(tree: Tree | None, leaves: np.ndarray, data: DataSet) -> dict[str, Any]:
    """How the leaves of test samples agree with what a data set knows about them: classes, finer ones, attributes."""
    n_leaves = int(leaves.max()) + 1 if tree is None else len(tree.leaves)
    found: dict[str, Any] = {}
    if data.y_test is not None:
        found["scores_percent"] = scores(tree, leaves, data.y_test)
        found["class_names"] = list(data.class_names)
        found["test_leaf_by_class"] = contingency(leaves, data.y_test, n_leaves).tolist()
    if data.fine_test is not None:
        found["fine_scores_percent"] = scores(tree, leaves, data.fine_test)
    if data.attributes_test is not None and data.attribute_names is not None:
        has = with_those_of_the_paper(dict(zip(data.attribute_names, data.attributes_test.T, strict=True)))
        found["leaf_attributes_percent"] = {name: _shares(one, leaves, n_leaves) for name, one in has.items()}
    return found


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


def scores(tree: Tree | None, leaves: np.ndarray, y: np.ndarray) -> dict[str, float]:
    """DP (of a tree), LP, ACC, NMI and ARI, in per cent."""
    purity = {} if tree is None else {"DP": 100 * dendrogram_purity(tree, leaves, y)}
    return purity | {
        "LP": 100 * leaf_purity(leaves, y),
        "ACC": 100 * accuracy(leaves, y),
        "NMI": 100 * nmi(leaves, y),
        "ARI": 100 * ari(leaves, y),
    }


def explained(model: TreeVAE, X: Any, draws: int, at: Callable[[float], None]) -> dict[str, Any]:
    """How well a model explains samples, of which the fingerprint is as the model sees them; and where it was asked.

    ``at`` is told how much is done, from 0 to 1.
    """
    n = X.shape[0]
    terms, estimates = dict[str, float](), []
    bounds = np.linspace(0, n, min(n, PARTS) + 1).round().astype(int)
    for first, last in pairwise(bounds.tolist()):
        part = X[first:last]
        for name, mean in elbo_terms(model, part).items():
            terms[name] = terms.get(name, 0.0) + mean * (last - first) / n
        estimates.append(model._log_likelihoods(part, draws, list(BOUNDS)))
        at(last / n)
    return {
        "samples": fingerprint(model._to_model(X)),
        "device": name_of(next(model.module_.parameters()).device),
        "versions": versions(),
        "source": source(),
        "elbo": terms,
        "likelihood": _likelihoods(model, X, draws, np.concatenate(estimates)),
    }


def elbo_terms(model: TreeVAE, X: Any) -> dict[str, float]:
    """The mean ELBO of samples in nats, and its terms; RL is the negative reconstruction."""
    module = model.module_
    terms = over(module, _samples(model, X), lambda x: score_terms(module, x, SCORE_DRAWS).values.T).mean(0)
    named = dict(zip(TERMS, terms.tolist(), strict=True))
    density = np.array(named["reconstruction"])
    named["reconstruction"] = float(model._units.log_density(density, model._form.n_features))
    kl = sum(value for name, value in named.items() if name != "reconstruction")
    return {"ELBO": named["reconstruction"] - kl, "RL": -named["reconstruction"], **named}


def likelihoods(model: TreeVAE, X: Any, draws: int) -> dict[str, Any]:
    """The mean of both estimates of log p(x) over samples, in nats, and its standard error.

    The error is that of the mean over these samples as an estimate of the mean over all samples of their kind: their
    standard deviation over the root of their number; None of a single one. How far a bound lies below log p(x) is no
    part of it. Images of bytes (uint8, or values that are k/255) under a Gaussian also have the importance-weighted
    bound in bits per dimension.
    """
    return _likelihoods(model, X, draws, model._log_likelihoods(X, draws, list(BOUNDS)))


def _likelihoods(model: TreeVAE, X: Any, draws: int, estimates: np.ndarray) -> dict[str, Any]:
    found: dict[str, Any] = {"draws": draws}
    for bound, values in zip(BOUNDS, estimates.astype(np.float64).T, strict=True):
        error = float(values.std(ddof=1) / np.sqrt(len(values))) if len(values) > 1 else None
        found[f"ll_{bound}"] = {"mean": float(values.mean()), "standard_error": error}
    if model._form.is_image and model.module_.arch.likelihood != "bernoulli" and on_byte_levels(model._to_model(X)):
        found["bits_per_dimension"] = bits_per_dimension(found["ll_iwae"]["mean"], model.n_features_in_)
    return found


def stages(model: TreeVAE) -> list[dict[str, Any]]:
    """The stages of training in order: what, on how many samples, for how long, how it ended."""
    found: list[dict[str, Any]] = []
    began, ended = 0.0, 0.0
    for event, seconds in zip(model.history_, model.seconds_, strict=True):
        if event["event"] == "EpochEnded":
            if event["epoch"] == 1:
                found.append({})
                began = ended
            about = {name: event[name] for name in ("stage", "leaf", "epochs", "kl_weight", *TERMS)}
            about["samples"] = event.get("samples")  # a fit that an earlier version began did not tell
            if event["contrast_routers"] is not None:
                about |= {name: event[name] for name in ("contrast_bottom_up", "contrast_routers")}
            found[-1] = about | {"seconds": round(seconds - began, 3)}
            ended = seconds
    return found


def node_table(model: TreeVAE, X: np.ndarray) -> list[dict[str, Any]]:
    """For each node its share of the samples, how sure its router is, its KL, and how many latents it uses."""
    module, tree = model.module_, model.tree_
    nodes, keys = module.nodes, module.nodes.layout.nodes
    generator = torch.Generator(next(module.parameters()).device).manual_seed(0)

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

    told = over(module, _samples(model, X), ask).double()  # (sample, node, 3 + latent)
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


def name_of(device: torch.device) -> str:
    """What a device is called."""
    return torch.cuda.get_device_name(device) if device.type == "cuda" else platform.machine()


def versions() -> dict[str, str]:
    """The versions that the numbers depend on."""
    libraries = {name: version(name) for name in ("torch", "numpy", "scipy", "scikit-learn")}
    return {"treevae": __version__, "python": platform.python_version(), **libraries}


def _samples(model: TreeVAE, X: Any) -> Samples:
    module = model.module_
    return Samples(model._to_model(X), next(module.parameters()).device, largest=module.arch.largest_activation)
