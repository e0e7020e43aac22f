"""One pass down the tree: inference (section 2.3) and generation (section 2.2).

Tensors are (node, batch, feature), nodes in the order of :class:`~treevae.model.layout.Layout`, lists go by level.
Everything that does not depend on a sample of z is computed for all nodes at once; only the transformations must wait
for the level above. With M Monte Carlo samples the batch axis of z holds M copies of the batch, one after the other.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor

from . import kernels
from .elbo import ElboTerms, Gaussian, precision_weighted
from .nodes import Levels, Nodes


@dataclass(frozen=True)
class Descent:
    """What one pass down the tree found."""

    logit_q: Tensor  # (router, batch): the posterior routers' log-odds of going right
    z: list[Tensor]  # by level: (node, M * batch, latent)
    kl: Tensor  # (node, M * batch): KL of z's posterior from its prior; 0 where z was given
    samples: int  # M
    start: DescentStart | None

    def each(self, x: Tensor) -> Tensor:
        """Samples of shape (run, batch, features), once for every one of the M: (run, M * batch, features)."""
        return x if self.samples == 1 else x.repeat(1, self.samples, 1)


@dataclass(frozen=True)
class DescentStart:
    """Where a subtree's descent starts: a sample of its roots' z, and how probable it was to get there."""

    z: Tensor  # (tree, batch, latent)
    log_reach: Tensor  # (run, batch)


def route(nodes: Nodes, d: Levels) -> Tensor:
    """log P(i; c), the probability of reaching every node from its root (eq. 16), from the bottom-up alone."""
    return log_reach(nodes, posterior_logits(nodes, d))


def noise_for(nodes: Nodes, rows: int, generator: torch.Generator) -> list[Tensor]:
    """Standard normal noise for one descent of M * batch rows, one tensor a level."""
    layout, like = nodes.layout, next(nodes.parameters())
    shapes = [(len(level), rows, nodes.arch.latent_dims[layout.top + k]) for k, level in enumerate(layout.levels)]
    return [torch.randn(shape, generator=generator, device=like.device, dtype=like.dtype) for shape in shapes]


def infer(
    nodes: Nodes, d: Levels, noise: Sequence[Tensor] | None, samples: int = 1, start: DescentStart | None = None
) -> Descent:
    """A sample of every z from its posterior (without noise: its mean), from the roots down (eqs. 7 to 9).

    ``noise`` holds one tensor for each level whose z is not given.
    """
    layout = nodes.layout
    heads = nodes.dense.by_depth(d)
    z, kl = ([], []) if start is None else ([start.z], [torch.zeros_like(start.z[..., 0])])
    for k in range(given := len(z), len(layout.levels)):
        head_q = heads[layout.top + k]
        head_q = head_q if samples == 1 else head_q.repeat(1, samples, 1)
        head_p = None if k == 0 else _prior(nodes, k, z[k - 1])
        z_k, kl_k = kernels.posterior(head_q, head_p, None if noise is None else noise[k - given])
        z.append(z_k)
        kl.append(kl_k)
    return Descent(posterior_logits(nodes, d), z, torch.cat(kl), samples, start)


def elbo(nodes: Nodes, descended: Descent, x: Tensor) -> ElboTerms:
    """The terms of the ELBO for x of shape (run, batch, features), averaged over the M samples (eqs. 13 to 20)."""
    terms = elbo_of_draws(nodes, descended, log_likelihood(nodes, descended.z, descended.each(x)))
    return terms if descended.samples == 1 else ElboTerms(terms.values.unflatten(2, (descended.samples, -1)).mean(2))


def elbo_of_draws(nodes: Nodes, descended: Descent, log_px: Tensor) -> ElboTerms:
    """The terms of the ELBO of every one of the M samples by itself: values of shape (term, tree, M * batch).

    ``log_px`` is log p(x | z_leaf) of every one: (leaf, M * batch).
    """
    logit_q = descended.logit_q if descended.samples == 1 else descended.logit_q.repeat(1, descended.samples)
    log_p, kl_router = kernels.decisions(logit_q, prior_logits(nodes, descended.z))
    reach = nodes.layout.path(log_p)
    if descended.start is not None:
        reach = reach + descended.start.log_reach.index_select(0, nodes.layout.run_of_nodes)
    return ElboTerms(kernels.weigh(reach, descended.kl, kl_router, log_px, nodes.layout.table))


def log_ratio(nodes: Nodes, d: Levels, descended: Descent) -> Tensor:
    """log p(z_i | z_pa(i)) - log q(z_i | z_pa(i), x) at the z that were drawn in whole trees: (node, M * batch).

    Its expectation is the negative KL; importance weights need its value.
    """
    heads, ratios = nodes.dense.by_depth(d), []
    for k, z in enumerate(descended.z):
        q_hat = Gaussian.from_head(heads[k].repeat(1, descended.samples, 1))
        p = Gaussian.standard_like(q_hat) if k == 0 else Gaussian.from_head(_prior(nodes, k, descended.z[k - 1]))
        ratios.append(p.log_prob(z) - precision_weighted(q_hat, p).log_prob(z))
    return torch.cat(ratios)


def leaf_terms(nodes: Nodes, descended: Descent, x: Tensor) -> tuple[Tensor, Tensor]:
    """log p(x | z_leaf), and the KL of all that stands on the leaf's path, of every leaf: two of (leaf, batch).

    Weighted by the reach of the leaves, the first sums to the reconstruction and the second to the whole KL.
    """
    layout = nodes.layout
    _, kl_router = kernels.decisions(descended.logit_q, prior_logits(nodes, descended.z))
    kl = descended.kl.index_add(0, layout.router_rows, kl_router)
    return log_likelihood(nodes, descended.z, x), layout.ancestry(kl)


def posterior_logits(nodes: Nodes, d: Levels) -> Tensor:
    """The posterior routers' log-odds of going right, given d by depth: (router, batch)."""
    if not nodes.layout.routers:
        return d[nodes.layout.top].new_zeros(0, d[nodes.layout.top].shape[1])
    return nodes.router_q(d).squeeze(-1)


def prior_logits(nodes: Nodes, z: Sequence[Tensor]) -> Tensor:
    """The prior routers' log-odds of going right, given z by level: (router, batch)."""
    if not nodes.layout.routers:
        return z[0].new_zeros(0, z[0].shape[1])
    return nodes.router_p(_by_depth(nodes, z)).squeeze(-1)


def log_reach(nodes: Nodes, logits: Tensor) -> Tensor:
    """log P of reaching each node from its root, given every router's log-odds of going right: (node, batch)."""
    return nodes.layout.path(torch.cat([F.logsigmoid(-logits), F.logsigmoid(logits)]))


def log_leaves(nodes: Nodes, logits: Tensor) -> Tensor:
    """log P of each tree's leaves from left to right, given log-odds: (tree, leaf, batch); -inf where it has fewer."""
    layout = nodes.layout
    leaves = log_reach(nodes, logits)[layout.leaf_rows]
    n_trees, most = layout.leaf_table.shape
    if n_trees * most > len(leaves):
        leaves = torch.cat([leaves, torch.full_like(leaves[:1], -torch.inf)])
    return leaves.index_select(0, layout.leaf_table.flatten()).unflatten(0, (n_trees, most))


def decode(nodes: Nodes, z: Sequence[Tensor], then: Callable[[Tensor, Tensor], Tensor]) -> Tensor:
    """``then`` of what every leaf's decoder makes of its z, and of the leaf's run; in the layout's order."""
    return nodes.decoder(_by_depth(nodes, z), then)


def log_likelihood(nodes: Nodes, z: Sequence[Tensor], x: Tensor) -> Tensor:
    """log p(x | z_leaf) of every leaf for x of shape (run, batch, features): (leaf, batch)."""
    log_prob = nodes.arch.likelihood_model.log_prob
    return decode(nodes, z, lambda output, run_of: log_prob(x, output, run_of))


def generate(nodes: Nodes, noise: Sequence[Tensor]) -> list[Tensor]:
    """A sample of every z from the prior, by level, root first (section 2.2)."""
    z = [noise[0]]
    for k in range(1, len(nodes.layout.levels)):
        z.append(Gaussian.from_head(_prior(nodes, k, z[k - 1])).sample(noise[k]))
    return z


def _prior(nodes: Nodes, level: int, above: Tensor) -> Tensor:
    """The heads of p(z_i | z_pa(i)) of a level's nodes, given the z of the level above."""
    layout = nodes.layout
    return nodes.transformation.at(layout.top + level, layout.parents[level - 1](above))


def _by_depth(nodes: Nodes, z: Sequence[Tensor]) -> Levels:
    return {nodes.layout.top + k: at for k, at in enumerate(z)}
