"""Losses that pull two views of a sample together (section 2.6 of the paper), over all trees of a forest at once.

Rows come in pairs: of 2N, row i < N is the first view of a sample and row i + N the second. Letters (A) to (E) are
those of the paper's ablation. All is in nats. The reach of a node only weighs rows, no gradient flows into it; weights
are the softmax of log-reach, which is reach divided by its sum however small all of it is.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import torch
import torch.nn.functional as F
from torch import Tensor

BOTTOM_UP_TEMPERATURE = 0.5
ROUTER_TEMPERATURE = 1.0
CONTRASTS = ("contrast_bottom_up", "contrast_routers")  # what the two parts of a loss are called
VARIANTS = ("both", "routers", "bottom_up", "transposed", "encoder", "jensen_shannon")


def contrast(
    variant: str,
    projections: Sequence[Tensor] | None,
    logits: Tensor,
    log_reach: Tensor,
    tree_of_router: Tensor,
    n_trees: int,
) -> Tensor:
    """The loss of each tree, (2, tree): the part of the bottom-up, then that of the routers; 0 where there is none.

    ``projections`` are by depth, root first, each (tree, 2N, features); None where the bottom-up is not trained.
    ``logits`` of going right and ``log_reach`` are (router, 2N), ``tree_of_router`` is (router,). "both" is (A) + (B).
    """
    if variant not in VARIANTS:
        raise ValueError(f"variant {variant!r} is none of the contrastive losses; choose one of {VARIANTS}")
    below = routers = logits.new_zeros(n_trees)
    if projections is not None and variant in ("both", "bottom_up"):
        below = bottom_up_loss(projections)
    if projections is not None and variant == "encoder":
        below = bottom_up_loss(projections[-1:])
    if variant in ROUTER_LOSSES:
        routers = sum_by_tree(ROUTER_LOSSES[variant](logits, log_reach.detach()), tree_of_router, n_trees)
    return torch.stack((below, routers))


def nt_xent(z: Tensor, temperature: float) -> Tensor:
    """The NT-Xent of every row with its pair: (…, 2N, features) -> (…, 2N).

    l_ij = -log exp(s_ij / t) / sum over k other than i of exp(s_ik / t), where s is the cosine and j the pair of i.
    """
    z = F.normalize(z, dim=-1)
    n = z.shape[-2]
    pairs = z.roll(n // 2, -2)  # the pair of row i stands in row i, so it is found on the diagonal
    itself = torch.eye(n, dtype=torch.bool, device=z.device).roll(n // 2, -1)
    similarity = (z @ pairs.mT / temperature).masked_fill(itself, -math.inf)
    return -similarity.log_softmax(-1).diagonal(dim1=-2, dim2=-1)


def bottom_up_loss(projections: Sequence[Tensor]) -> Tensor:
    """(B): NT-Xent of the projections, mean over rows and depths: depths of (tree, 2N, features) -> (tree,).

    With the deepest alone this is (D), of the encoder's output.
    """
    return nt_xent(torch.stack(tuple(projections)), BOTTOM_UP_TEMPERATURE).mean((0, 2))


def router_loss(logits: Tensor, log_reach: Tensor) -> Tensor:
    """(A): NT-Xent of the decisions [r, 1 - r], rows weighted by reach: (router, 2N) -> (router,)."""
    decisions = torch.stack((logits, -logits), -1).sigmoid()
    return (nt_xent(decisions, ROUTER_TEMPERATURE) * log_reach.softmax(-1)).sum(-1)


def transposed_loss(logits: Tensor, log_reach: Tensor) -> Tensor:
    """(C): NT-Xent between the two sides of a router as seen in the two views: (router, 2N) -> (router,).

    The four vectors of a router are the probabilities of going right and left over the N samples of either view, times
    reach; the same side in both views is a pair. As in Contrastive Clustering (Li et al., 2021) the entropies of the
    sides' shares in both views are subtracted, so that a router does not send nearly all samples the same way.
    """
    logits, log_reach = (rows.unflatten(-1, (2, -1)) for rows in (logits, log_reach))
    sides = F.logsigmoid(torch.stack((logits, -logits), -2))  # (router, view, side, N)
    log_mass = sides + log_reach.log_softmax(-1).unsqueeze(-2)  # sums to 1 over sides and samples
    log_share = log_mass.logsumexp(-1)
    entropy = -(log_share.exp() * log_share).sum((-2, -1))
    columns = (log_mass - log_mass.detach().amax(-1, keepdim=True)).exp()  # a cosine ignores the length of a column
    return nt_xent(columns.flatten(1, 2), ROUTER_TEMPERATURE).mean(-1) - entropy


def jensen_shannon_loss(logits: Tensor, log_reach: Tensor) -> Tensor:
    """(E): divergence of the two views' decisions, weighted by their mean reach: (router, 2N) -> (router,)."""
    first_reach, second_reach = log_reach.chunk(2, -1)
    log_p = F.logsigmoid(torch.stack((logits, -logits)))  # (side, router, 2N)
    first, second = log_p.chunk(2, -1)
    log_mean = torch.logaddexp(first, second) - math.log(2)
    divergence = (first.exp() * (first - log_mean) + second.exp() * (second - log_mean)).sum(0) / 2
    return (divergence * torch.logaddexp(first_reach, second_reach).softmax(-1)).sum(-1)


ROUTER_LOSSES = {
    "both": router_loss,
    "routers": router_loss,
    "transposed": transposed_loss,
    "jensen_shannon": jensen_shannon_loss,
}


def sum_by_tree(values: Tensor, tree_of_router: Tensor, n_trees: int) -> Tensor:
    """The sum over each tree's routers: (router,) -> (tree,); what is not finite stays in its own tree."""
    elsewhere = tree_of_router != torch.arange(n_trees, device=values.device).unsqueeze(1)
    return values.expand(n_trees, -1).masked_fill(elsewhere, 0.0).sum(1)
