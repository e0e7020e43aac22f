"""What a training step computes, and on which samples: the objectives that the loop minimises.

Each trains one or several runs side by side; a run has samples of its own and an order in which it sees them.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple, Protocol

import torch
from torch import Tensor

from ..model import descent
from ..model.elbo import TERMS, ElboTerms
from ..model.layout import Layout
from ..model.module import TreeVAEModule
from ..model.stack import Trainable, norms_at_rest
from ..model.subtree import Evidence, FrozenPath, Subtree
from .pairs import Neighbourhood
from .samples import Samples, over
from .terms import Pass, Term
from .views import Views

Weigh = Callable[[Tensor], Tensor]
NoiseRows = list[tuple[list[int], int]]  # for each tensor of noise: the run of each of its rows, and the latent size


class Loss(Protocol):
    """What a step says of its samples."""

    def total(self, kl_weight: Tensor, term_weights: Tensor) -> Tensor:
        """What is minimised, of all trees together; weights, of the stage, are (tree,) and (term, tree)."""

    def means(self) -> Tensor:
        """The mean of each term over the batch, (term, tree), as ``Objective.names`` has them."""


class Terms(NamedTuple):
    """The loss of a TreeVAE: the ELBO's, and what its stage adds."""

    elbo: ElboTerms
    more: tuple[Tensor, ...] = ()  # of each of the stage's terms its parts: (part, tree)

    def total(self, kl_weight: Tensor, term_weights: Tensor) -> Tensor:
        """Their weighted sum."""
        loss = self.elbo.loss(kl_weight)
        for weight, parts in zip(term_weights, self.more, strict=True):
            loss = loss + (weight * parts).sum()
        return loss

    def means(self) -> Tensor:
        """The terms of the ELBO, and the parts of what is added."""
        return torch.cat([self.elbo.values.detach().mean(-1), *(parts.detach() for parts in self.more)])


class Objective(Protocol):
    """Something with parameters and a loss."""

    n_samples: list[int]  # of each run
    n_trees: int  # of all runs, each of which has as many: candidates
    n_derived: int  # numbers that are kept for each sample beside itself
    noise_rows: NoiseRows
    views: Views | None  # where a step sees augmented samples
    names: tuple[str, ...]  # of the terms of the loss, and of the parts of what is added
    terms_beside: tuple[Term, ...]  # what is added to the loss
    remembered: dict[str, Tensor]  # what a step leaves for the next one, beside parameters

    @property
    def network(self) -> Trainable:
        """What is trained."""

    def rows(self, index: Tensor) -> Tensor:
        """The numbers, among all samples, of the samples ``index`` of the one run."""

    def hold(self, x: Tensor, index: Tensor) -> None:
        """Work on these samples ``index`` of the one run from now on: ``terms`` counts them from 0."""

    def hold_all(self) -> None:
        """Work on all samples of all runs."""

    def look(self, index: Tensor, seeds: Sequence[int]) -> None:
        """Draw the views of the samples ``index`` that the next ``terms`` will see; one seed for each run."""

    def terms(self, index: Tensor, noise: Sequence[Tensor]) -> Loss:
        """The loss on the samples ``index`` (run, batch) of those held.

        Asked once a step. What a step changes besides the parameters, as norms do their statistics, it may change here:
        floating buffers of the network, in place.
        """


class ElboObjective(Objective, Protocol):
    """Trees with an ELBO, of which candidates can be compared."""

    @property
    def network(self) -> TreeVAEModule | Subtree:
        """What is trained."""

    def terms(self, index: Tensor, noise: Sequence[Tensor]) -> Terms:
        """The terms of the loss on the samples ``index`` (run, batch) of those held."""

    def right(self) -> Tensor:
        """The probability that each candidate of the one run sends a sample to its right child: (tree, sample)."""


class OnSamples:
    """The part of an objective that sees all samples as they are."""

    n_derived = 0
    terms_beside: tuple[Term, ...] = ()

    def __init__(self, samples: Samples, n_runs: int, views: Views | None = None) -> None:
        self._samples, self.views = samples, views
        self.n_samples = [len(samples)] * n_runs
        self._x, self._index = samples.x[:0], torch.empty(0, dtype=torch.long)
        self.remembered: dict[str, Tensor] = {}

    def rows(self, index: Tensor) -> Tensor:
        """The same numbers."""
        return index

    def hold(self, x: Tensor, index: Tensor) -> None:
        """Work on these samples."""
        if self._x.shape == x.shape and self._x is not self._samples.x:
            self._x.copy_(x)  # where a captured step expects them
            self._index.copy_(index)
        else:
            self._x, self._index = x.clone(), index.to(x.device, copy=True)

    def hold_all(self) -> None:
        """Work on all samples, where they are."""
        self._x, self._index = self._samples.x, torch.arange(len(self._samples), device=self._samples.device)

    def look(self, index: Tensor, seeds: Sequence[int]) -> None:
        """Draw the views of some samples."""
        if self.views is not None:
            self.views.draw(self._x[index], seeds)


class WholeTree(OnSamples):
    """All networks of a module."""

    def __init__(
        self,
        module: TreeVAEModule,
        samples: Samples,
        views: Views | None = None,
        terms: Sequence[Term] = (),
        labels: Tensor | None = None,
    ) -> None:
        layout = module.nodes.layout
        super().__init__(samples, layout.n_runs, views)
        self.network, self.n_trees, self._labels = module, len(layout.trees), labels
        self.terms_beside, self.names = tuple(terms), names_of(terms)
        self.noise_rows = _noise_rows(layout, module.arch.latent_dims)
        self._beside = Neighbourhood.of(terms, samples, layout, None if views is None else views.alone())
        if self._beside is not None:
            self.noise_rows, self.remembered = [*self.noise_rows, self._beside.noise], self._beside.remembered

    def look(self, index: Tensor, seeds: Sequence[int]) -> None:
        """Draw the views of some samples, and of the neighbours that they are compared with."""
        super().look(index, seeds)
        if self._beside is not None and self.views is not None:
            self._beside.look(self._index[index], seeds)

    def terms(self, index: Tensor, noise: Sequence[Tensor]) -> Terms:
        """The whole ELBO."""
        x, nodes = self._x[index] if self.views is None else self.views.held, self.network.nodes
        d = self.network.d(x)
        descended = descent.infer(nodes, d, noise)
        elbo = descent.elbo(nodes, descended, x)
        if not self.terms_beside:
            return Terms(elbo)
        log_reach = descent.log_reach(nodes, descended.logit_q)[nodes.layout.router_rows]
        log_leaves = descent.log_leaves(nodes, descended.logit_q)
        seen = Pass(nodes.layout, descended.logit_q, log_reach, self.network.bottom_up.projected(d), log_leaves)
        if self._labels is not None:
            runs = nodes.layout.run_of_trees
            seen = seen._replace(labels=self._labels.gather(1, self._index[index].index_select(0, runs)))
        if self._beside is not None:
            with torch.no_grad(), norms_at_rest():
                of_pair = self.network.d(self._beside.x(self._index[index], noise[-1]))
                logits = descent.posterior_logits(nodes, dict(enumerate(of_pair)))
                seen = self._beside.compared(seen, descent.log_leaves(nodes, logits))
        return Terms(elbo, tuple(term.loss(seen) for term in self.terms_beside))

    def right(self) -> Tensor:
        """Of first trees, at their roots: (tree, sample)."""
        reach, right, first = over(self.network, self._samples, self.network.reach), [], 0
        for tree in self.network.nodes.layout.trees:  # their leaves follow each other, from left to right
            below = tree.leaves_below(tree.children(0)[1])
            right.append(reach[:, first + len(tree.leaves) - len(below) : first + len(tree.leaves)].sum(1))
            first += len(tree.leaves)
        return torch.stack(right, 1).T


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
    views : Views, optional
        With these every step sees other samples, so that nothing can be computed ahead.
    terms : sequence of Term
        What is added to the ELBO's loss; the bottom-up, which is frozen, has no part in it.
    weigh : callable, optional
        What samples count for, given the log of the probability that they reach the parent; by default that itself.
    """

    def __init__(
        self,
        modules: Sequence[TreeVAEModule],
        leaves: Sequence[int],
        subtree: Subtree,
        samples: Samples,
        rows: Sequence[Tensor],
        views: Views | None = None,
        terms: Sequence[Term] = (),
        weigh: Weigh | None = None,
    ) -> None:
        self.network, self._samples, self._modules = subtree, samples, [module.eval() for module in modules]
        self.views, self._weigh = views, weigh
        layout = subtree.nodes.layout
        self.n_trees = len(layout.trees)
        self.terms_beside, self.names = tuple(terms), names_of(terms)
        self._all_rows = list(rows)
        self.n_samples = [len(part) for part in rows]
        self._path = FrozenPath([(module.nodes, leaf) for module, leaf in zip(modules, leaves, strict=True)])
        arch = modules[0].arch
        path_dims = arch.latent_dims[: self._path.depth + 1]
        known = 2 * sum(path_dims) + 1 + sum(subtree.d_dims[self._path.depth : self._path.depth + 2])
        self.n_derived = known if views is None else 0
        runs = list(range(len(modules)))
        below = _noise_rows(layout, arch.latent_dims[self._path.depth :])[1:]  # the roots' z is given
        self.noise_rows = [(runs, dim) for dim in path_dims] + below
        self._first = torch.tensor([0, *self.n_samples[:-1]], device=samples.device).cumsum(0)[:, None]
        self._x = samples.x[:0]
        self._packed = self._x
        self._place = torch.empty(0, dtype=torch.long)  # of each sample held, in _x
        self._index = self._place  # of each sample held, in the subset
        self._beside = Neighbourhood.of(terms, samples, layout, None if views is None else views.alone(), rows)
        self.remembered: dict[str, Tensor] = {} if self._beside is None else self._beside.remembered
        if self._beside is not None:
            self.noise_rows = [*self.noise_rows, self._beside.noise]

    def rows(self, index: Tensor) -> Tensor:
        """The subset's samples ``index``."""
        return self._all_rows[0].to(index.device)[index]

    @torch.no_grad()
    def hold(self, x: Tensor, index: Tensor) -> None:
        """Work on these samples, and compute what the frozen model knows of them."""
        packed = self._pack(x, 0) if self.views is None else x[:0]
        if self._x.shape == x.shape and self._x is not self._samples.x:
            self._x.copy_(x)  # where a captured step expects them
            self._packed.copy_(packed)
            self._index.copy_(index)
        else:
            self._x, self._packed, self._index = x.clone(), packed, index.to(x.device, copy=True)
            self._place = torch.arange(len(x), device=x.device)

    @torch.no_grad()
    def hold_all(self) -> None:
        """Work on all samples, where they are."""
        self._x, self._place = self._samples.x, torch.cat(self._all_rows).to(self._samples.device)
        self._index = torch.arange(len(self._place), device=self._samples.device)
        if self.views is None:
            self._packed = torch.cat([self._pack(self._x, r, rows) for r, rows in enumerate(self._all_rows)])

    def look(self, index: Tensor, seeds: Sequence[int]) -> None:
        """Draw the views of some samples."""
        if self.views is not None:
            self.views.draw(self._x[self._place[index + self._first]], seeds)
            if self._beside is not None:
                self._beside.look(self._index[index + self._first], seeds)

    def terms(self, index: Tensor, noise: Sequence[Tensor]) -> Terms:
        """The subtrees' share of the ELBO; the parents' z is drawn anew at every step."""
        if self.views is None:
            place = index if len(self._first) == 1 else index + self._first
            x, packed = self._x[self._place[place]], self._packed[place]
        else:
            x = self.views.held
            packed = torch.stack([self._pack(of_run, r) for r, of_run in enumerate(x)])
        evidence = self._path.unpacked(packed)
        if self._weigh is not None:
            evidence = evidence._replace(log_reach=self._weigh(evidence.log_reach))
        n_path = len(evidence.heads)
        z = self._path.sample(evidence.heads, noise[:n_path])
        descended = self.network.descend(evidence, z, noise[n_path:])
        nodes = self.network.nodes
        elbo = descent.elbo(nodes, descended, x)
        if not self.terms_beside:
            return Terms(elbo)
        log_reach = evidence.log_reach.index_select(0, nodes.layout.run_of_trees)  # the roots are the only routers
        log_leaves = descent.log_leaves(nodes, descended.logit_q)
        seen = Pass(nodes.layout, descended.logit_q, log_reach, None, log_leaves)
        if self._beside is not None:
            with torch.no_grad(), norms_at_rest():
                of_pair = self._evidence_of_pairs(self._index[index + self._first], noise[-1])
                seen = self._beside.compared(seen, descent.log_leaves(nodes, self.network.logits(of_pair)))
        return Terms(elbo, tuple(term.loss(seen) for term in self.terms_beside))

    def _evidence_of_pairs(self, index: Tensor, noise: Tensor) -> Evidence:
        """What is known of a neighbour of each of some samples, by their places in the subset."""
        assert self._beside is not None
        if self.views is None and len(self._packed) == sum(self.n_samples):
            return self._path.unpacked(self._packed[self._beside.rows(index, noise)])
        pairs = self._beside.x(index, noise)
        return self._path.unpacked(torch.stack([self._pack(of_run, r) for r, of_run in enumerate(pairs)]))

    @torch.no_grad()
    def right(self) -> Tensor:
        """Given that the parent was reached: (tree, sample), of the samples trained on."""
        self.network.eval()
        (rows,) = self._all_rows
        parts = (self._pack(self._samples.rows(part), 0) for part in rows.split(self._samples.chunk()))
        return torch.cat([self.network.branches(self._path.unpacked(part[None]))[:, 1] for part in parts], 1)

    @torch.no_grad()
    def _pack(self, x: Tensor, run: int, rows: Tensor | None = None) -> Tensor:
        """The evidence of a run's samples, or of those of its rows: (sample, all of it)."""
        rows = torch.arange(len(x), device=x.device) if rows is None else rows.to(x.device)
        parts = rows.split(self._samples.chunk())
        return torch.cat([self._path.packed(self._modules[run].d(x[part]), run) for part in parts])


def names_of(terms: Sequence[Term]) -> tuple[str, ...]:
    """What a loss with these terms beside the ELBO's is made of; each part has a name of its own."""
    names = (*TERMS, *(name for term in terms for name in term.names))
    if len(set(names)) < len(names):
        raise ValueError(f"parts of a loss have the same name: {', '.join(names)}")
    return names


def _noise_rows(layout: Layout, dims: Sequence[int]) -> NoiseRows:
    """The run of each node of each level, with the level's latent size."""
    return [([layout.run_of(key) for key in level], dims[k]) for k, level in enumerate(layout.levels)]
