"""Samples and their neighbours: which of them a step compares, and how often leaves are taken."""

from __future__ import annotations

import math
from collections.abc import Sequence

import torch
from torch import Tensor

from ..model.layout import Layout
from .samples import Samples
from .terms import Pass, Term
from .views import Views

KEEP = 0.9  # of the leaves' shares, at every step
OF_PAIRS = 1 << 20  # what a step's seed is mixed with for the neighbours' views


class Neighbourhood:
    """One of the nearest neighbours of each sample of a step, drawn anew at every step.

    Samples are told by their rows in all data, or by their places in subsets where there are some, run after run.

    Parameters
    ----------
    samples : Samples
        With the rows of each one's neighbours.
    layout : Layout
        Of the trees that are trained.
    views : Views, optional
        Of one neighbour each, where samples are augmented.
    subsets : sequence of Tensor, optional
        For each run the rows that it sees; neighbours that are not among them are replaced by the sample itself.
    """

    def __init__(
        self, samples: Samples, layout: Layout, views: Views | None = None, subsets: Sequence[Tensor] | None = None
    ) -> None:
        if samples.neighbours is None:
            raise ValueError("a term compares neighbours, and the samples come without any")
        self._x, self._views = samples.x, views
        self._near = samples.neighbours if subsets is None else _within(samples.neighbours, subsets)
        self._row = None if subsets is None else torch.cat(list(subsets)).to(samples.device)
        self.noise = (list(range(layout.n_runs)), 1)  # of a step, that it needs
        device = samples.device
        self.remembered = {
            "mass": torch.zeros(layout.leaf_table.shape, device=device),
            "seen": torch.zeros((), device=device),
        }

    @classmethod
    def of(
        cls,
        terms: Sequence[Term],
        samples: Samples,
        layout: Layout,
        views: Views | None = None,
        subsets: Sequence[Tensor] | None = None,
    ) -> Neighbourhood | None:
        """What terms need of it; None where none compares neighbours."""
        return cls(samples, layout, views, subsets) if any(term.pairs for term in terms) else None

    def rows(self, rows: Tensor, noise: Tensor) -> Tensor:
        """Neighbours of some samples, (run, batch), drawn by standard normal noise, (run, batch or more, 1)."""
        k = self._near.shape[1]
        share = 0.5 * (1 + torch.erf(noise[:, : rows.shape[1]] / math.sqrt(2)))
        return self._near[rows].gather(2, (share * k).long().clamp(0, k - 1)).squeeze(2)

    def look(self, rows: Tensor, seeds: Sequence[int]) -> None:
        """Draw neighbours of some samples, (run, batch), and a view of each."""
        assert self._views is not None
        mixed = [seed ^ OF_PAIRS for seed in seeds]
        noise = [torch.randn(rows.shape[1], 1, generator=torch.Generator().manual_seed(seed)) for seed in mixed]
        self._views.draw(self._of(self.rows(rows, torch.stack(noise).to(rows.device))), mixed)

    def x(self, rows: Tensor, noise: Tensor) -> Tensor:
        """Neighbours of some samples as a step sees them: (run, batch, features)."""
        return self._of(self.rows(rows, noise)) if self._views is None else self._views.held

    def compared(self, seen: Pass, log_leaves: Tensor) -> Pass:
        """The samples' way beside that of their neighbours, whose leaves these are: (tree, leaf, batch)."""
        return seen._replace(log_leaves_of_pair=log_leaves, log_shares=self._log_shares(seen.log_leaves, log_leaves))

    @torch.no_grad()
    def _log_shares(self, *log_leaves: Tensor) -> Tensor:
        """The share of the samples that each leaf has, (tree, leaf): a running mean, into which these are taken."""
        now = torch.stack([part.exp().mean(2) for part in log_leaves]).mean(0)
        mass, seen = self.remembered["mass"], self.remembered["seen"]
        mass += (1 - KEEP) * (now - mass)
        seen += (1 - KEEP) * (1 - seen)
        return (mass / seen).log().clamp(min=-30)  # of a leaf that is not there, or empty

    def _of(self, rows: Tensor) -> Tensor:
        return self._x[rows if self._row is None else self._row[rows]]


def _within(near: Tensor, subsets: Sequence[Tensor]) -> Tensor:
    """For each sample of the subsets, one after the other, its neighbours there by their places; itself for others."""
    parts, first = [], 0
    for rows in subsets:
        subset = rows.to(near.device)
        itself = torch.arange(len(subset), device=near.device)
        place = torch.full((len(near),), -1, dtype=torch.long, device=near.device)
        place[subset] = itself
        found = place[near[subset]]
        parts.append(torch.where(found < 0, itself[:, None], found) + first)
        first += len(subset)
    return torch.cat(parts)
