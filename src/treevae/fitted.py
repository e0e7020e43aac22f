"""The fitted model: everything that was learnt, and every question in the user's form and units."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property
from numbers import Integral
from typing import Any, NamedTuple

import numpy as np
import torch
from sklearn.utils import check_random_state

from .data.aspect import Aspect
from .model.elbo import ElboTerms
from .model.evidence import BOUNDS, evidence
from .model.module import TreeVAEModule
from .model.scoring import score_terms
from .parameters import number, whole_number
from .training.events import EpochEnded, Event, GuideMade
from .training.guided import taken
from .training.plan import Plan
from .training.samples import CHUNK, LIGHT_CHUNK, Samples, over
from .tree import Tree

SCORE_DRAWS = 10  # Monte Carlo draws behind every score
AskModule = Callable[[torch.Tensor], torch.Tensor]


class Walks(NamedTuple):
    """What all leaves make of something; leaves go from left to right."""

    shown: np.ndarray  # (n, leaf, ...) in the form and units of X
    probability: np.ndarray  # (n, leaf)


@dataclass(frozen=True, eq=False)
class Fitted:
    """A module that was trained, what it was trained on and how, and what became of it."""

    module: TreeVAEModule
    plan: Plan
    decides: Aspect  # what the bottom-up reads
    labels: np.ndarray  # of the training samples
    history: tuple[Event, ...]
    seconds: tuple[float, ...]  # when each event was, in seconds of fitting
    names: tuple[str, ...] = ()  # of the features, where X was a frame with string column names
    kind: str = "TreeVAE"  # what messages call it

    @property
    def shown(self) -> Aspect:
        """What samples are shown as: what the decoders speak of."""
        return self.decides

    @property
    def tree(self) -> Tree:
        """The tree."""
        return self.module.tree

    @property
    def device(self) -> torch.device:
        """Where the module is."""
        return next(self.module.parameters()).device

    @property
    def sizes(self) -> dict[int, int]:
        """How many training samples each node has."""
        leaves = self.tree.leaves
        won = dict(zip(leaves, np.bincount(self.labels, minlength=len(leaves)).tolist(), strict=True))
        return {node: sum(won[leaf] for leaf in self.tree.leaves_below(node)) for node in self.tree.nodes}

    @cached_property
    def told(self) -> list[dict[str, Any]]:
        """The history as JSON-able values."""
        return [event.to_dict() for event in self.history]

    @property
    def guide(self) -> GuideMade | None:
        """The guide that the tree began with, if it began with one."""
        return taken(self.history)

    @property
    def epochs(self) -> list[EpochEnded]:
        """The ends of epochs in its history."""
        return [event for event in self.history if isinstance(event, EpochEnded)]

    # -- samples as the model sees them ---------------------------------------------------------------------------

    def read(self, X: Any) -> np.ndarray:
        """X as a checked (n, features) matrix."""
        return self.decides.read(X, self.kind, self.names)

    def encode(self, X: Any) -> torch.Tensor:
        """X as the module sees it, on the CPU."""
        return self.decides.to_model(self.read(X))

    def ask(self, X: Any, question: AskModule, light: bool = True) -> np.ndarray:
        """The module's answer, in eval mode, for all samples; light questions run at most one decoder each."""
        samples = Samples(self.encode(X), self.device, largest=self.module.arch.largest_activation)
        return over(self.module, samples, question, LIGHT_CHUNK if light else CHUNK).cpu().numpy()

    def generator(self, random_state: Any) -> torch.Generator:
        """Where draws come from."""
        chance = check_random_state(random_state)
        return torch.Generator(self.device).manual_seed(int(chance.randint(2**31 - 1)))

    # -- where samples belong -------------------------------------------------------------------------------------

    def predict(self, X: Any, level: int | None = None, n_groups: int | None = None) -> np.ndarray:
        """The group of each sample's most probable leaf, numbered from left to right."""
        leaf = self.ask(X, winners(self.module))
        return self.groups(level, n_groups)[leaf]

    def predict_proba(self, X: Any, level: int | None = None, n_groups: int | None = None) -> np.ndarray:
        """The probability of each group, the sum over its leaves: (n_samples, n_groups)."""
        reach = self.ask(X, lambda x: self.module.reach(x))
        groups = self.groups(level, n_groups)
        return reach @ np.eye(groups.max() + 1, dtype=reach.dtype)[groups]

    def embed(self, X: Any, node: int = 0) -> np.ndarray:
        """The posterior mean of a node's latent: (n_samples, latent_dim)."""
        return self.ask(X, lambda x: self.module.embed(x, node))

    def groups(self, level: int | None = None, n_groups: int | None = None) -> np.ndarray:
        """The group of each leaf, from left to right, after a cut; without one each leaf is its own."""
        tree = self.tree
        if level is not None and n_groups is not None:
            raise ValueError(f"level={level} and n_groups={n_groups} are two ways to cut the tree; give one of them")
        if level is None and n_groups is None:
            return np.arange(len(tree.leaves))
        tops = tree.cut(level) if level is not None else tree.groups(n_groups)  # type: ignore[arg-type]
        group = {leaf: g for g, top in enumerate(tops) for leaf in tree.leaves_below(top)}
        return np.array([group[leaf] for leaf in tree.leaves])

    def node_of(self, leaf: int) -> int:
        """The node of a cluster, as :meth:`predict` numbers it."""
        n = len(self.tree.leaves)
        if not isinstance(leaf, Integral) or not 0 <= leaf < n:
            raise ValueError(f"leaf={leaf!r}; the clusters are numbered 0 to {n - 1}")
        return self.tree.leaves[int(leaf)]

    # -- how well they are explained ------------------------------------------------------------------------------

    def elbo(self, X: Any) -> np.ndarray:
        """The ELBO of each sample in nats, in the user's units."""
        return self.shown.log_density(self._scored(X, SCORE_DRAWS).elbo.numpy())

    def elbo_terms(self, X: Any, draws: int = SCORE_DRAWS) -> np.ndarray:
        """The ELBO's terms of each sample, as ``elbo.TERMS`` names them, in the user's units: (n_samples, 4)."""
        terms = self._scored(X, draws).values.numpy().T.astype(np.float64)
        terms[:, 0] = self.shown.log_density(terms[:, 0])
        return terms

    def _scored(self, X: Any, draws: int) -> ElboTerms:
        """The terms of each sample in the module's units; the draws depend on the sample alone."""
        return ElboTerms(torch.from_numpy(self.ask(X, lambda x: score_terms(self.module, x, draws).values.T, False)).T)

    def log_likelihoods(self, X: Any, draws: int, bounds: Sequence[str] = tuple(BOUNDS)) -> np.ndarray:
        """Several estimates of log p(x) from the same draws: (n_samples, bound)."""
        if wrong := [bound for bound in bounds if bound not in BOUNDS]:
            raise ValueError(f"bound={wrong[0]!r}; allowed are 'iwae' (a lower bound) and 'paper' (to compare with it)")
        n = whole_number("draws", draws)
        return self.shown.log_density(self.ask(X, lambda x: evidence(self.module, x, n, bounds).T, light=False))

    def log_density(self, log_p: float) -> float:
        """A log-density in the module's units, as training tells it, in the user's."""
        return float(self.shown.log_density(np.array(log_p)))

    # -- what they look like --------------------------------------------------------------------------------------

    def reconstruct(self, X: Any, path: str = "best") -> np.ndarray:
        """The model's idea of each sample, by its most probable path or by all."""
        if path not in ("best", "all"):
            raise ValueError(f"path={path!r}; allowed are 'best' (one decoder a sample) and 'all'")
        best = path == "best"
        question = self.module.reconstruct_best if best else self.module.reconstruct
        return self.shown.to_user(self.ask(X, question, light=best), self._lengths(X))

    @torch.no_grad()
    def sample(self, n: int, node: int | None = None, random_state: Any = None, temperature: float = 1.0) -> np.ndarray:
        """New samples, of all that pass through a node where one is given."""
        spread = number("temperature", temperature, zero=True)
        if node is not None:
            self.tree.children(node)  # a number that no node has is refused
        return self._user(self.module.generate(whole_number("n", n), self.generator(random_state), node, spread))

    @torch.no_grad()
    def sample_all_leaves(self, n: int, random_state: Any = None) -> np.ndarray:
        """Draws of the root, each decoded by every leaf: (n, n_leaves, ...)."""
        return self._user(self.module.generate_all(whole_number("n", n), self.generator(random_state)))

    @torch.no_grad()
    def interpolate(self, X: Any, steps: int) -> tuple[np.ndarray, np.ndarray]:
        """The way from one of two samples to the other, (steps, ...), and its leaves, (steps, n_leaves)."""
        if whole_number("steps", steps) < 2:
            raise ValueError(f"steps={steps} must be at least 2, the two ends")
        x = self.encode(X).to(self.device)
        if len(x) != 2:
            raise ValueError(f"X has {len(x)} samples; the way leads from one to another, so give 2")
        shown, reach = self.module.interpolate(x, int(steps))
        ends = self._lengths(X)
        lengths = None if ends is None else np.linspace(ends[0], ends[1], int(steps))
        return self._user(shown, lengths), reach.cpu().numpy()

    @torch.no_grad()
    def walk_draws(self, n: int, random_state: Any = 0) -> Walks:
        """n draws of the root followed into every leaf; the prior routers give probabilities."""
        shown, reach = self.module.walk_draws(n, self.generator(random_state))
        return Walks(self._user(shown), reach.cpu().numpy())

    @torch.no_grad()
    def walk_samples(self, X: Any) -> Walks:
        """Every sample as each leaf would reconstruct it, from posterior means, with its probabilities q(leaf|x)."""
        shown, reach = self.module.walk(self.encode(X).to(self.device))
        return Walks(self._user(shown, self._lengths(X)), reach.cpu().numpy())

    def _user(self, values: torch.Tensor, lengths: np.ndarray | None = None) -> np.ndarray:
        return self.shown.to_user(values.cpu().numpy(), lengths)

    def _lengths(self, X: Any) -> np.ndarray | None:
        """The lengths of samples, where the module does not see them."""
        return self.shown.units.lengths(self.read(X)) if self.shown.units.way == "unit" else None


def winners(module: TreeVAEModule) -> AskModule:
    """Asks for the most probable leaf."""
    return lambda x: module.reach(x).argmax(1)
