"""One pass down the tree: inference (section 2.3) and generation (section 2.2).

Tensors are (node, batch, feature), nodes in the order of :class:`~treevae.model.layout.Layout`, lists go by level.
Everything that does not depend on a sample of z is computed for all nodes at once; only the transformations must wait
for the level above. With M Monte Carlo samples the batch axis of z holds M copies of the batch, one after the other.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor

from .elbo import ElboTerms, Gaussian, kl_decision, kl_gaussian, precision_weighted
from .nodes import Nodes

Levels = Sequence[Tensor] | Mapping[int, Tensor]  # one tensor a depth, at least for the depths of the forest


@dataclass(frozen=True)
class Routing:
    """Where the posterior routers send each sample; known without any decoder or sample of z."""

    logit_q: Tensor  # (router, batch): log-odds of going right
    log_reach: Tensor  # (node, batch): log P(i; c)


@dataclass(frozen=True)
class Descent:
    """What one pass down the tree found; lists by level."""

    routing: Routing
    z: list[Tensor]  # (node, M * batch, latent)
    q: list[Gaussian]  # posterior of z; the first level is missing where z of the roots was given
    p: list[Gaussian]  # prior of z, likewise
    samples: int  # M


@dataclass(frozen=True)
class Start:
    """Where a subtree's descent starts: a sample of its roots' z, and how probable it was to get there."""

    z: Tensor  # (tree, batch, latent)
    log_reach: Tensor  # (tree, batch)


def route(nodes: Nodes, d: Levels, start: Start | None = None) -> Routing:
    """The probability of reaching every node (eq. 16), from the bottom-up alone."""
    layout = nodes.layout
    logits = nodes.router_q(_evidence(nodes, d, "routers"))
    logit_q = torch.cat(logits).squeeze(-1) if logits else d[layout.top].new_zeros(0, d[layout.top].shape[1])
    log_reach = _log_reach(nodes, logit_q)
    if start is not None:
        log_reach = log_reach + layout.member.T @ start.log_reach
    return Routing(logit_q, log_reach)


def noise_for(nodes: Nodes, rows: int, generator: torch.Generator) -> list[Tensor]:
    """Standard normal noise for one descent of M * batch rows, one tensor a level."""
    layout, dims, like = nodes.layout, nodes.arch.latent_dims, nodes.layout.path
    shapes = [(len(level), rows, dims[layout.top + k]) for k, level in enumerate(layout.levels)]
    return [torch.randn(shape, generator=generator, device=like.device, dtype=like.dtype) for shape in shapes]


def infer(
    nodes: Nodes, d: Levels, noise: Sequence[Tensor] | None, samples: int = 1, start: Start | None = None
) -> Descent:
    """The posterior of every z, and a sample of it (without noise: its mean), from the roots down (eqs. 7 to 9)."""
    routing = route(nodes, d, start)
    heads = [head.repeat(1, samples, 1) for head in nodes.dense(_evidence(nodes, d, "all"))]
    z, posteriors, priors = ([] if start is None else [start.z]), [], []
    for k in range(len(z), len(nodes.layout.levels)):
        q_hat = Gaussian.from_head(heads[k - len(nodes.layout.levels)])
        p = Gaussian.standard_like(q_hat) if k == 0 else _transform(nodes, k, z[k - 1])
        q = precision_weighted(q_hat, p)
        z.append(q.mean if noise is None else q.sample(noise[k]))
        posteriors.append(q)
        priors.append(p)
    return Descent(routing, z, posteriors, priors, samples)


def elbo(nodes: Nodes, descent: Descent, x: Tensor) -> ElboTerms:
    """The terms of the ELBO for x of shape (batch, features), averaged over the M samples (eqs. 13 to 20)."""
    layout, samples = nodes.layout, descent.samples
    reach = descent.routing.log_reach.exp()

    def averaged(values: Tensor) -> Tensor:  # (node, M * batch) -> (node, batch)
        return values.unflatten(1, (samples, -1)).mean(1)

    kl = averaged(torch.cat([kl_gaussian(q, p) for q, p in zip(descent.q, descent.p, strict=True)]))
    n_given = len(layout.nodes) - len(kl)  # roots whose z was given have no KL
    n_roots = len(layout.levels[0]) - n_given
    weighted, member = reach[n_given:] * kl, layout.member[:, n_given:]
    kl_root, kl_nodes = member[:, :n_roots] @ weighted[:n_roots], member[:, n_roots:] @ weighted[n_roots:]

    logit_q = descent.routing.logit_q.repeat(1, samples)
    kl_router = averaged(kl_decision(logit_q, prior_logits(nodes, descent.z)))
    kl_decisions = layout.member[:, layout.router_rows] @ (reach[layout.router_rows] * kl_router)

    log_px = averaged(log_likelihood(nodes, descent.z, x.repeat(samples, 1)))
    reconstruction = layout.member[:, layout.leaf_rows] @ (reach[layout.leaf_rows] * log_px)
    return ElboTerms(reconstruction, kl_root, kl_nodes, kl_decisions)


def leaf_terms(nodes: Nodes, descent: Descent, x: Tensor) -> tuple[Tensor, Tensor]:
    """log p(x | z_leaf), and the KL of all that stands on the leaf's path, of every leaf: two of (leaf, batch).

    Weighted by the reach of the leaves, the first sums to the reconstruction and the second to the whole KL.
    """
    layout = nodes.layout
    kl = torch.cat([kl_gaussian(q, p) for q, p in zip(descent.q, descent.p, strict=True)])
    kl = kl.index_add(0, layout.router_rows, kl_decision(descent.routing.logit_q, prior_logits(nodes, descent.z)))
    return log_likelihood(nodes, descent.z, x), layout.ancestry @ kl


def prior_logits(nodes: Nodes, z: Sequence[Tensor]) -> Tensor:
    """The prior routers' log-odds of going right, given z by level: (router, batch)."""
    logits = nodes.router_p(_chosen(nodes, z, "routers"))
    return torch.cat(logits).squeeze(-1) if logits else z[0].new_zeros(0, z[0].shape[1])


def decode(nodes: Nodes, z: Sequence[Tensor], then: Callable[[Tensor], Tensor]) -> Tensor:
    """``then`` of what every leaf's decoder makes of its z, leaves in the layout's order."""
    return torch.cat(nodes.decoder(_chosen(nodes, z, "leaves"), then))


def log_likelihood(nodes: Nodes, z: Sequence[Tensor], x: Tensor) -> Tensor:
    """log p(x | z_leaf) of every leaf for x of shape (batch, features): (leaf, batch)."""
    log_prob = nodes.arch.likelihood_model.log_prob
    return decode(nodes, z, lambda output: log_prob(x, output))


def generate(nodes: Nodes, noise: Sequence[Tensor]) -> list[Tensor]:
    """A sample of every z from the prior, by level, root first (section 2.2)."""
    z = [noise[0]]
    for k in range(1, len(nodes.layout.levels)):
        z.append(_transform(nodes, k, z[k - 1]).sample(noise[k]))
    return z


def prior_log_reach(nodes: Nodes, z: Sequence[Tensor]) -> Tensor:
    """log of the probability that the prior routers send a draw to each node: (node, batch)."""
    return _log_reach(nodes, prior_logits(nodes, z))


def _log_reach(nodes: Nodes, logits: Tensor) -> Tensor:
    """log P of reaching each node, given every router's log-odds of going right."""
    return nodes.layout.path @ torch.cat([F.logsigmoid(-logits), F.logsigmoid(logits)])


def _transform(nodes: Nodes, level: int, above: Tensor) -> Gaussian:
    """p(z_i | z_pa(i)) of a level's nodes, given the z of the level above."""
    layout = nodes.layout
    parents = above[layout.index("parents", level)]
    return Gaussian.from_head(nodes.transformation.at(layout.top + level, parents))


def _evidence(nodes: Nodes, d: Levels, which: str) -> dict[int, Tensor]:
    """d for each of a level's nodes, or of its routers, by depth; d itself is (tree, batch, hidden)."""
    layout, found = nodes.layout, {}
    for k in range(len(layout.levels)):
        trees = layout.index("tree_of", k) if which == "all" else layout.index("router_trees", k)
        at = d[layout.top + k]
        found[layout.top + k] = at.expand(len(trees), -1, -1) if len(at) == 1 else at[trees]
    return found


def _chosen(nodes: Nodes, z: Sequence[Tensor], which: str) -> dict[int, Tensor]:
    """The z of a level's routers or leaves, by depth."""
    layout = nodes.layout
    return {layout.top + k: at[layout.index(which, k)] for k, at in enumerate(z)}
