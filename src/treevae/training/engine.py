"""What a training step computes, and on which data: the objectives that the loop minimises.

The data lie on the device from the start; a step is told which rows of it to use.
"""

from __future__ import annotations

import ctypes
import sys
from collections.abc import Callable
from typing import Protocol

import torch
from torch import Tensor, nn

from ..model import descent
from ..model.elbo import ElboTerms
from ..model.module import TreeVAEModule
from ..model.subtree import Evidence, Subtree

CHUNK = 1024  # samples in a batch of evaluation; bounds the memory that a pass over all data takes
LIGHT_CHUNK = 4096  # the same for what runs at most one decoder a sample


class Objective(Protocol):
    """Something with parameters and an ELBO on a known number of samples."""

    n_samples: int

    @property
    def network(self) -> TreeVAEModule | Subtree:
        """What is trained."""

    def terms(self, index: Tensor, generator: torch.Generator) -> ElboTerms:
        """The terms of the ELBO on the rows ``index`` of the data, with fresh noise."""

    def shares(self) -> Tensor:
        """The mean probability of every leaf, in eval mode: (tree, leaf)."""


class WholeTree:
    """All networks of a module, on all data."""

    def __init__(self, module: TreeVAEModule, x: Tensor) -> None:
        self.network, self._x, self.n_samples = module, x, len(x)

    def terms(self, index: Tensor, generator: torch.Generator) -> ElboTerms:
        """The whole ELBO: (tree, batch)."""
        noise = descent.noise_for(self.network.nodes, len(index), generator)
        return self.network.elbo(self._x[index], noise)

    def shares(self) -> Tensor:
        """The mean probability of every leaf, for trees with equally many: (tree, leaf)."""
        reach = over(self.network, self._x, self.network.reach)
        return reach.mean(0).unflatten(0, (len(self.network.nodes.layout.trees), -1))


class SubtreeOnSubset:
    """A subtree's networks on the samples that reach it; all that is frozen is computed once, here."""

    def __init__(self, module: TreeVAEModule, subtree: Subtree, x: Tensor, rows: Tensor) -> None:
        self.network, self._x, self.n_samples = subtree, x[rows], len(rows)
        self._path = module.path_to(subtree.leaf)
        module.eval()
        with torch.no_grad():
            self._evidence = Evidence.cat([self._path.evidence(module.d(part)) for part in self._x.split(CHUNK)])

    def terms(self, index: Tensor, generator: torch.Generator) -> ElboTerms:
        """The subtree's share of the ELBO: (candidate, batch); the parent's z is drawn anew at every step."""
        evidence = self._evidence.at(index)
        z = self._path.sample(evidence.heads, self._path.noise(len(index), generator))
        noise = descent.noise_for(self.network.nodes, len(index), generator)
        return self.network.elbo(self._x[index], evidence, z, noise)

    @torch.no_grad()
    def shares(self) -> Tensor:
        """The mean probability of either child, given that the parent was reached: (candidate, 2)."""
        return self.network.eval().branches(self._evidence).mean(-1)


@torch.no_grad()
def over(module: nn.Module, x: Tensor, ask: Callable[[Tensor], Tensor], chunk: int = CHUNK) -> Tensor:
    """``ask`` of all data, piece by piece, with the module in eval mode; pieces are joined along their first axis."""
    module.eval()
    return torch.cat([ask(part) for part in x.split(chunk)])


def keep_memory() -> None:
    """Tell glibc to keep freed memory for the next step instead of giving it back to the system.

    A step's tensors are large enough that malloc would map and unmap each one, and faulting the pages in anew takes a
    good part of a step (benchmarks/cpu_step.py). Does nothing on other systems.
    """
    if not sys.platform.startswith("linux"):
        return
    libc = ctypes.CDLL(None)
    if hasattr(libc, "mallopt"):
        trim_threshold, mmap_threshold = -1, -3  # names of glibc's <malloc.h>
        libc.mallopt(mmap_threshold, 1 << 30)
        libc.mallopt(trim_threshold, (1 << 31) - 1)
