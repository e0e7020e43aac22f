"""log p(x | z_leaf) from what a decoder puts out.

A likelihood says how many numbers a decoder owes for one feature (``outputs``), what they mean, and what the
decoder's best guess of x is. Samples x are (run, batch, feature), outputs (leaf, batch, outputs * feature), and
``run_of`` says which of the runs' samples each leaf explains.
"""

from __future__ import annotations

import math

import torch
import torch.nn.functional as F
from torch import Tensor

from . import kernels

LEARNT_VARIANCE_FLOOR = 1e-3  # a constant feature would otherwise have an unbounded density


def laid_out(x: Tensor, output: Tensor, run_of: Tensor) -> tuple[Tensor, Tensor, int]:
    """The samples that each leaf explains and its outputs, both as the outputs lie in memory; the axis of features."""
    x = x if len(x) == 1 else x[run_of]
    return (x, output, 2) if output.stride(2) == 1 else (x.mT.contiguous(), output.mT, 1)


class Bernoulli:
    """Independent Bernoulli features given as logits; grey levels in [0, 1] are allowed, as in the paper."""

    outputs = 1

    def log_prob(self, x: Tensor, output: Tensor, run_of: Tensor) -> Tensor:
        """x log p + (1 - x) log(1 - p), summed over features: (leaf, batch)."""
        return kernels.log_bernoulli(x, output, run_of)

    def mean(self, output: Tensor) -> Tensor:
        """The expected x."""
        return output.sigmoid()


class UnitGaussian:
    """Independent Gaussian features with sigma = 1: squared error, as in the paper's colour images."""

    outputs = 1

    def log_prob(self, x: Tensor, output: Tensor, run_of: Tensor) -> Tensor:
        """-1/2 (x - mu)^2 - 1/2 log 2 pi, summed over features: (leaf, batch)."""
        x, output, features = laid_out(x, output, run_of)
        return -0.5 * ((x - output).square() + math.log(2 * math.pi)).sum(features)

    def mean(self, output: Tensor) -> Tensor:
        """The expected x."""
        return output


class GaussianLearnt:
    """Independent Gaussian features whose mean and variance are both put out by the decoder (section 2.2)."""

    outputs = 2

    def log_prob(self, x: Tensor, output: Tensor, run_of: Tensor) -> Tensor:
        """log N(x; mu, sigma^2), summed over features: (leaf, batch)."""
        x, output, features = laid_out(x, output, run_of)
        mean, raw = output.chunk(2, dim=features)
        variance = F.softplus(raw) + LEARNT_VARIANCE_FLOOR
        return -0.5 * ((x - mean).square() / variance + torch.log(2 * math.pi * variance)).sum(features)

    def mean(self, output: Tensor) -> Tensor:
        """The expected x."""
        return output.chunk(2, dim=-1)[0]


Likelihood = Bernoulli | UnitGaussian | GaussianLearnt

LIKELIHOODS: dict[str, Likelihood] = {
    "bernoulli": Bernoulli(),
    "gaussian": UnitGaussian(),
    "gaussian_learnt": GaussianLearnt(),
}
