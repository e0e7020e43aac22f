"""The evidence lower bound of a tree, term by term (sections 2.3 and 2.4 of the paper).

Inside the formulas the letters are the paper's: q is the posterior, p the prior, mu and sigma^2 mean and variance.
Every divergence is in nats, per sample, never clamped.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor

MIN_VARIANCE = 1e-7  # added to every variance that a network outputs, so that roots and divisions are safe


class Gaussian(NamedTuple):
    """A Gaussian with independent components; both tensors have shape (node, batch, latent)."""

    mean: Tensor
    variance: Tensor

    @classmethod
    def from_head(cls, output: Tensor) -> Gaussian:
        """The Gaussian that a head's output describes: mean first, softplus of the rest is the variance."""
        mean, raw = output.chunk(2, dim=-1)
        return cls(mean, F.softplus(raw) + MIN_VARIANCE)

    @classmethod
    def standard_like(cls, other: Gaussian) -> Gaussian:
        """N(0, I) in the shape of another Gaussian: the prior of the root."""
        return cls(torch.zeros_like(other.mean), torch.ones_like(other.variance))

    def sample(self, noise: Tensor) -> Tensor:
        """mu + sigma * noise, differentiable in mu and sigma."""
        return self.mean + self.variance.sqrt() * noise

    def log_prob(self, z: Tensor) -> Tensor:
        """The log-density of z, summed over the latent components: (node, batch)."""
        squares = (z - self.mean).square() / self.variance
        return -0.5 * (squares + torch.log(2 * math.pi * self.variance)).sum(-1)


def precision_weighted(q_hat: Gaussian, p: Gaussian) -> Gaussian:
    """q(z_i | z_pa(i), x): the normalised product of the sample's own evidence and the prior (eq. 9).

    sigma_q^2 = 1 / (1/sigma_hat^2 + 1/sigma_p^2),  mu_q = sigma_q^2 (mu_hat/sigma_hat^2 + mu_p/sigma_p^2),
    both multiplied through by sigma_hat^2 sigma_p^2 so that no small variance is ever divided by.
    """
    total = q_hat.variance + p.variance
    mean = (q_hat.mean * p.variance + p.mean * q_hat.variance) / total
    return Gaussian(mean, q_hat.variance * p.variance / total)


def kl_gaussian(q: Gaussian, p: Gaussian) -> Tensor:
    """KL(q || p) summed over the latent components: (node, batch)."""
    squares = (q.variance + (q.mean - p.mean).square()) / p.variance
    return 0.5 * (squares - 1 + p.variance.log() - q.variance.log()).sum(-1)


def kl_decision(logit_q: Tensor, logit_p: Tensor) -> Tensor:
    """KL(q(c_i | x) || p(c_i | z_i)) of two Bernoulli decisions given as logits of going right (eq. 20)."""
    right = logit_q.sigmoid() * (F.logsigmoid(logit_q) - F.logsigmoid(logit_p))
    left = (-logit_q).sigmoid() * (F.logsigmoid(-logit_q) - F.logsigmoid(-logit_p))
    return left + right


TERMS = ("reconstruction", "kl_root", "kl_nodes", "kl_decisions")


@dataclass(frozen=True)
class ElboTerms:
    """The four terms of the ELBO, in nats (eqs. 13 to 20): ``values`` has shape (term, tree, batch), as in TERMS."""

    values: Tensor

    @property
    def reconstruction(self) -> Tensor:
        """E log p(x | z_leaf), leaves weighted by their reach."""
        return self.values[0]

    @property
    def kl_root(self) -> Tensor:
        """KL of the root's z."""
        return self.values[1]

    @property
    def kl_nodes(self) -> Tensor:
        """KL of all other nodes' z, weighted by their reach."""
        return self.values[2]

    @property
    def kl_decisions(self) -> Tensor:
        """KL of the routers' decisions, weighted by their reach."""
        return self.values[3]

    @property
    def kl(self) -> Tensor:
        """The divergence of posterior from prior: root, nodes and decisions."""
        return self.values[1:].sum(0)

    @property
    def elbo(self) -> Tensor:
        """The evidence lower bound."""
        return self.reconstruction - self.kl

    def loss(self, kl_weight: Tensor | float = 1.0) -> Tensor:
        """What training minimises, a scalar: mean over the batch, summed over trees (they share no parameters).

        ``kl_weight`` is one number, or one for each tree.
        """
        means = self.values.mean(-1)
        return (kl_weight * means[1:].sum(0) - means[0]).sum()
