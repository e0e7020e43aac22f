"""Which of several guides is best, told without labels."""

from __future__ import annotations

import torch
from torch import Tensor

FROM_NEIGHBOURS = ("embedding", "networks", "umap", "leiden")  # guides that are made of what agreement measures
BIAS = 0.05  # of their agreement, that counts for nothing


def worth(name: str, agreement: float) -> float:
    """What a guide's agreement counts for beside that of others: one made from neighbours must be clearly better."""
    return agreement * (1 - BIAS) if name in FROM_NEIGHBOURS else agreement


def agreement(groups: Tensor, neighbours: Tensor) -> float:
    """The mutual information, in nats, between the group of a sample and the groups of its neighbours.

    It is high where neighbours share a group and where many groups are used evenly. It compares guides, and not weights
    of the term that pulls neighbours together, which trains it. It is 0 where no known sample has a known neighbour.

    Parameters
    ----------
    groups : tensor of shape (n, groups)
        The probabilities of the groups for each sample; a row of zeros where they are unknown.
    neighbours : int tensor of shape (n, k)
        The nearest neighbours of each sample, rows of ``groups``.
    """
    p = groups.cpu().double()  # not every device has such numbers
    joint = p.new_zeros(p.shape[1], p.shape[1])
    for near in neighbours.cpu().T:
        joint += p.T @ p[near]
    if joint.sum() == 0:
        return 0.0
    joint = joint / joint.sum()  # of pairs whose groups are known
    of_one, of_other = joint.sum(1, keepdim=True), joint.sum(0, keepdim=True)
    return float((torch.special.xlogy(joint, joint) - torch.special.xlogy(joint, of_one * of_other)).sum())


def one_hot(labels: Tensor, n_groups: int) -> Tensor:
    """Flat labels as probabilities of the groups; a row of zeros where a label is unknown."""
    return torch.nn.functional.one_hot(labels + 1, n_groups + 1)[:, 1:].float()
