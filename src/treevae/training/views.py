"""What a step sees of its samples when they are augmented: other versions of them at every step."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import torch
from torch import Tensor

Augment = Callable[[Tensor], Tensor]  # (n, *shape of a sample) -> the same, each sample changed in its own way
AUGMENTATION = -3  # what a run's seed is mixed with
TRIALS = 4  # of an augmentation, before its views are called equal


class Views:
    """Draws augmented views outside the captured step and leaves them where it expects them.

    An augmentation is any code that takes its random numbers from torch; it is seeded for every run and step, so that
    a run sees the same views whoever is trained beside it, and again after a restart.

    Parameters
    ----------
    augment : callable
        Takes and returns a batch of samples; called once for each view, so that one which draws once for a whole
        batch also makes views that differ.
    shape : tuple of int
        Of a sample as ``augment`` wants it.
    n : int
        Views of each sample in a step; they follow each other, all first ones before all second ones.
    """

    def __init__(self, augment: Augment, shape: Sequence[int], n: int) -> None:
        self._augment, self._shape, self.n = augment, tuple(shape), n
        self.held = torch.empty(0)  # (run, view * sample, feature)

    def alone(self) -> Views:
        """Views by the same augmentation, one of each sample."""
        return Views(self._augment, self._shape, 1)

    @torch.no_grad()
    def draw(self, x: Tensor, seeds: Sequence[int]) -> None:
        """Hold views of x, (run, sample, feature), drawn with a seed for each run."""
        runs, batch, features = x.shape
        if self.held.shape != (runs, self.n * batch, features):
            self.held = x.new_empty(runs, self.n * batch, features)
        with torch.random.fork_rng([x.device] if x.is_cuda else []):  # the user's generators stay as they are
            for run, seed in enumerate(seeds):
                torch.default_generator.manual_seed(seed)
                if x.is_cuda:
                    torch.cuda.manual_seed(seed)
                for view in self.held[run].split(batch):
                    view.copy_(self._checked(x[run].clone().unflatten(1, self._shape)).flatten(1))

    def _checked(self, samples: Tensor) -> Tensor:
        seen = self._augment(samples)
        if not isinstance(seen, Tensor) or seen.shape != samples.shape:
            got = tuple(seen.shape) if isinstance(seen, Tensor) else type(seen).__name__
            raise ValueError(
                f"augment must return a batch of the shape it was given, {tuple(samples.shape)}; it returned {got}"
            )
        return seen


def check_that_views_differ(augment: Augment, shape: Sequence[int], x: Tensor) -> None:
    """Raise if an augmentation makes two views of samples, (1, sample, feature), that are always equal."""
    views = Views(augment, shape, 2)
    for trial in range(TRIALS):
        views.draw(x, [trial])
        one, other = views.held[0].chunk(2)
        if not torch.equal(one, other):
            return
    raise ValueError(
        f"augment gave two equal views of the first samples {TRIALS} times, and the contrastive loss compares views "
        "that differ; let it draw something from torch at every call, or set contrastive_weight=0"
    )
