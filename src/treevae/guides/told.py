"""Which of several trees is best, told without labels."""

from __future__ import annotations

import torch
from torch import Tensor

FROM_NEIGHBOURS = ("embedding", "networks", "umap", "leiden")  # guides that are made of what agreement measures
BIAS = 0.05  # of their agreement, that counts for nothing


def worth(name: str, agreement: float) -> float:
    """What a guide's agreement counts for beside that of others: one made from neighbours must be clearly better."""
    return agreement * (1 - BIAS) if name in FROM_NEIGHBOURS else agreement


def agreement(held_out: Tensor, trained: Tensor, neighbours: Tensor) -> float:
    """The mutual information, in nats, between the leaf of a held-out sample and the leaves of its neighbours.

    It is high where neighbours share a leaf and where many leaves are used evenly. It compares guides, and not weights
    of the term that pulls neighbours together, which trains it.

    Parameters
    ----------
    held_out : tensor of shape (m, leaves)
        The probabilities of the leaves for samples that were not trained on.
    trained : tensor of shape (n, leaves)
        The same for the samples that were.
    neighbours : int tensor of shape (m, k)
        The nearest training samples of each held-out sample, rows of ``trained``.
    """
    if held_out.shape[1] != trained.shape[1]:
        raise ValueError(f"one tree has {held_out.shape[1]} leaves and the other {trained.shape[1]}; compare one tree")
    near = trained.double()[neighbours].mean(1)
    joint = held_out.double().T @ near
    joint = joint / joint.sum()  # of pairs whose leaves are known, where flat labels are asked
    of_one, of_other = joint.sum(1, keepdim=True), joint.sum(0, keepdim=True)
    return float((torch.special.xlogy(joint, joint) - torch.special.xlogy(joint, of_one * of_other)).sum())


def one_hot(labels: Tensor, n_leaves: int) -> Tensor:
    """Flat labels as probabilities of the leaves; a row of zeros where a label is unknown."""
    return torch.nn.functional.one_hot(labels + 1, n_leaves + 1)[:, 1:].float()
