"""What a training step computes, and on which samples: the objectives that the loop minimises.

Each trains one or several runs side by side; a run has samples of its own and an order in which it sees them.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

import torch
from torch import Tensor

from ..model.elbo import ElboTerms
from ..model.layout import Layout
from ..model.module import TreeVAEModule
from ..model.subtree import FrozenPath, Subtree
from .samples import Samples, over

NoiseRows = list[tuple[list[int], int]]  # for each tensor of noise: the run of each of its rows, and the latent size


class Objective(Protocol):
    """Something with parameters and an ELBO."""

    n_samples: list[int]  # of each run
    n_derived: int  # numbers that are kept for each sample beside itself
    noise_rows: NoiseRows

    @property
    def network(self) -> TreeVAEModule | Subtree:
        """What is trained."""

    def rows(self, index: Tensor) -> Tensor:
        """The numbers, among all samples, of the samples ``index`` of the one run."""

    def hold(self, x: Tensor) -> None:
        """Work on these samples of the one run from now on: ``terms`` counts them from 0."""

    def hold_all(self) -> None:
        """Work on all samples of all runs."""

    def terms(self, index: Tensor, noise: Sequence[Tensor]) -> ElboTerms:
        """The terms of the ELBO on the samples ``index`` (run, batch) of those held."""

    def shares(self) -> Tensor:
        """The mean probability of every leaf, in eval mode, over all samples: (tree, leaf)."""


class WholeTree:
    """All networks of a module, on all samples."""

    n_derived = 0

    def __init__(self, module: TreeVAEModule, samples: Samples) -> None:
        self.network, self._samples = module, samples
        self.n_samples = [len(samples)] * module.nodes.layout.n_runs
        self.noise_rows = _noise_rows(module.nodes.layout, module.arch.latent_dims)
        self._x = samples.x[:0]

    def rows(self, index: Tensor) -> Tensor:
        """All samples are seen, so these are the same numbers."""
        return index

    def hold(self, x: Tensor) -> None:
        """Work on these samples."""
        if self._x.shape == x.shape and self._x is not self._samples.x:
            self._x.copy_(x)  # where a captured step expects them
        else:
            self._x = x.clone()

    def hold_all(self) -> None:
        """Work on all samples, where they are."""
        self._x = self._samples.x

    def terms(self, index: Tensor, noise: Sequence[Tensor]) -> ElboTerms:
        """The whole ELBO."""
        return self.network.elbo(self._x[index], noise)

    def shares(self) -> Tensor:
        """The mean probability of every leaf, for trees with equally many: (tree, leaf)."""
        reach = over(self.network, self._samples, self.network.reach)
        return reach.mean(0).unflatten(0, (len(self.network.nodes.layout.trees), -1))


class SubtreeOnSubset:
    """Subtrees' networks on the samples that reach them; all that is frozen is computed once for each sample held.

    Parameters
    ----------
    modules, leaves : sequences
        For each run the model, and the leaf whose children are trained.
    subtree : Subtree
        The candidates of all runs.
    samples : Samples
    rows : sequence of Tensor
        For each run the samples to train on.
    """

    def __init__(
        self,
        modules: Sequence[TreeVAEModule],
        leaves: Sequence[int],
        subtree: Subtree,
        samples: Samples,
        rows: Sequence[Tensor],
    ) -> None:
        self.network, self._samples, self._modules = subtree, samples, [module.eval() for module in modules]
        self._all_rows = list(rows)
        self.n_samples = [len(part) for part in rows]
        self._path = FrozenPath([(module.nodes, leaf) for module, leaf in zip(modules, leaves, strict=True)])
        arch = modules[0].arch
        path_dims = arch.latent_dims[: self._path.depth + 1]
        self.n_derived = 2 * sum(path_dims) + 1 + sum(subtree.d_dims[self._path.depth : self._path.depth + 2])
        runs = list(range(len(modules)))
        below = _noise_rows(subtree.nodes.layout, arch.latent_dims[self._path.depth :])[1:]  # the roots' z is given
        self.noise_rows = [(runs, dim) for dim in path_dims] + below
        self._first = torch.tensor([0, *self.n_samples[:-1]], device=samples.device).cumsum(0)[:, None]
        self._x = samples.x[:0]
        self._packed = self._x
        self._place = torch.empty(0, dtype=torch.long)  # of each sample held, in _x

    def rows(self, index: Tensor) -> Tensor:
        """The subset's samples ``index``."""
        return self._all_rows[0].to(index.device)[index]

    @torch.no_grad()
    def hold(self, x: Tensor) -> None:
        """Work on these samples, and compute what the frozen model knows of them."""
        packed = self._pack(x, 0)
        if self._packed.shape == packed.shape and self._x is not self._samples.x:
            self._x.copy_(x)  # where a captured step expects them
            self._packed.copy_(packed)
        else:
            self._x, self._packed = x.clone(), packed
            self._place = torch.arange(len(x), device=x.device)

    @torch.no_grad()
    def hold_all(self) -> None:
        """Work on all samples, where they are."""
        self._x, self._place = self._samples.x, torch.cat(self._all_rows).to(self._samples.device)
        self._packed = torch.cat([self._pack(self._x, r, rows) for r, rows in enumerate(self._all_rows)])

    def terms(self, index: Tensor, noise: Sequence[Tensor]) -> ElboTerms:
        """The subtrees' share of the ELBO; the parents' z is drawn anew at every step."""
        place = index if len(self._first) == 1 else index + self._first
        evidence = self._path.unpacked(self._packed[place])
        n_path = len(evidence.heads)
        z = self._path.sample(evidence.heads, noise[:n_path])
        return self.network.elbo(self._x[self._place[place]], evidence, z, noise[n_path:])

    @torch.no_grad()
    def shares(self) -> Tensor:
        """The mean probability of either child, given that the parent was reached: (tree, 2), of one run."""
        self.network.eval()
        (rows,) = self._all_rows
        parts = (self._pack(self._samples.rows(part), 0) for part in rows.split(self._samples.chunk()))
        sums = [self.network.branches(self._path.unpacked(part[None])).sum(-1) for part in parts]
        return torch.stack(sums).sum(0) / len(rows)

    def _pack(self, x: Tensor, run: int, rows: Tensor | None = None) -> Tensor:
        """The evidence of a run's samples, or of those of its rows: (sample, all of it)."""
        rows = torch.arange(len(x), device=x.device) if rows is None else rows.to(x.device)
        parts = rows.split(self._samples.chunk())
        return torch.cat([self._path.packed(self._modules[run].d(x[part]), run) for part in parts])


def _noise_rows(layout: Layout, dims: Sequence[int]) -> NoiseRows:
    """The run of each node of each level, with the level's latent size."""
    return [([layout.run_of(key) for key in level], dims[k]) for k, level in enumerate(layout.levels)]
