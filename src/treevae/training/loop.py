"""The only training loop."""

from __future__ import annotations

import math
from collections.abc import Iterator

import torch

from ..model.elbo import ElboTerms
from .engine import CHUNK, Objective
from .plan import Stage


class DivergedError(FloatingPointError):
    """A term of the loss stopped being finite."""


def train(
    objective: Objective, stage: Stage, batch_size: int, generator: torch.Generator
) -> Iterator[tuple[int, dict[str, float]]]:
    """Train for a stage; after every epoch yield its number, from 0, and the means of the ELBO's terms.

    A last short batch is dropped. Nothing waits for the device inside an epoch.
    """
    network = objective.network.train()
    optimizer = torch.optim.Adam(
        network.parameters(), lr=stage.learning_rate, weight_decay=stage.weight_decay, fused=True
    )
    batch_size = min(batch_size, objective.n_samples)
    steps = objective.n_samples // batch_size
    for epoch in range(stage.epochs):
        network.train()
        for group in optimizer.param_groups:
            group["lr"] = stage.rate(epoch)
        order = torch.randperm(objective.n_samples, generator=generator, device=generator.device)
        total = torch.zeros(len(ElboTerms.names()), device=generator.device)
        for index in order[: steps * batch_size].split(batch_size):
            terms = objective.terms(index, generator)
            optimizer.zero_grad()
            terms.loss(stage.kl_weight(epoch)).backward()
            optimizer.step()
            total += torch.stack([getattr(terms, name).detach().mean() for name in terms.names()])
        means = dict(zip(ElboTerms.names(), (total / steps).tolist(), strict=True))
        check_finite(means, stage, epoch)
        yield epoch, means


def check_finite(means: dict[str, float], stage: Stage, epoch: int) -> None:
    """Raise if a mean is not a finite number."""
    if bad := {name: value for name, value in means.items() if not math.isfinite(value)}:
        found = ", ".join(f"{name} = {value}" for name, value in bad.items())
        raise DivergedError(
            f"training diverged in stage '{stage.name}', epoch {epoch + 1} of {stage.epochs}: {found}. "
            "Check the scale of the data, or lower the learning rate."
        )


@torch.no_grad()
def evaluate(objective: Objective, kl_weight: float, generator: torch.Generator) -> torch.Tensor:
    """The mean loss of each tree or candidate over all samples, in eval mode: (tree,)."""
    objective.network.eval()
    losses = []
    for index in torch.arange(objective.n_samples, device=generator.device).split(CHUNK):
        terms = objective.terms(index, generator)
        losses.append(kl_weight * terms.kl - terms.reconstruction)
    return torch.cat(losses, dim=1).mean(1)
