"""Small groves that train on augmented samples, with a contrastive loss or without."""

import dataclasses

import torch
from small_groves import ARCH, data
from torch import Tensor

from treevae.training.grove import Grove
from treevae.training.plan import Plan
from treevae.training.terms import Contrast

PROJECTED = dataclasses.replace(ARCH, n_projections=4)
PIECES = 5 * 4 * 64  # bytes of samples that are held at a time


def noisy(x: Tensor) -> Tensor:
    return (x + 0.2 * torch.randn_like(x)).clamp(0, 1)


def identity(x: Tensor) -> Tensor:
    return x


def contrastive(weight: float = 10.0, variant: str = "both", **changes) -> Plan:
    pull = Contrast(variant, weight) if weight > 0 else None
    return dataclasses.replace(Plan.paper(epochs=2, n_leaves=4, batch_size=16, contrast=pull), **changes)


def grove(plan: Plan, seeds: list[int], augment=noisy, budget: int | None = None, n: int = 160) -> Grove:
    arch = PROJECTED if plan.first.terms else ARCH
    return Grove(arch, data(n, budget), plan, seeds, augment=augment)
