"""Hierarchies made by hand, for the study of ways to start: Gaussian groups within groups, of even or uneven sizes."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from scipy.optimize import brentq

SMALLEST, LARGEST = 0.005, 0.4  # shares of samples, where sizes are uneven
STEP, GROWTH = 2.0, 1.8  # how far the finest groups lie from their parent's centre, in their noise; and a level higher


@dataclass(frozen=True)
class ByHand:
    """How a hierarchy is made."""

    name: str
    branches: tuple[int, ...]  # children of each group, level by level from the root
    n_features: int
    even: bool = False

    @property
    def n_leaves(self) -> int:
        """How many groups there are on the finest level."""
        return int(np.prod(self.branches))


HIERARCHIES = (
    ByHand("hand-8-even", (2, 4), 10, even=True),
    ByHand("hand-8", (2, 4), 10),
    ByHand("hand-16", (2, 2, 4), 20),
    ByHand("hand-32", (4, 2, 4), 50),
    ByHand("hand-64", (4, 2, 2, 4), 50),
)


def shares(n_groups: int, even: bool = False) -> np.ndarray:
    """The groups' shares of all samples, from the smallest to the largest: 0.5 % to 40 %, or all the same."""
    if even:
        return np.full(n_groups, 1 / n_groups)
    rank = np.linspace(0, 1, n_groups)

    def excess(power: float) -> float:
        return float((SMALLEST + (LARGEST - SMALLEST) * rank**power).sum() - 1)

    power = brentq(excess, 0.1, 1e4)
    return np.asarray(SMALLEST + (LARGEST - SMALLEST) * rank**power)


def made_by_hand(made: ByHand, n: int, seed: int) -> tuple[np.ndarray, np.ndarray]:
    """Samples (n, features) and their groups (n, levels), the coarsest level first.

    The centres lie in random directions from their parents' centres. Each group has noise of its own strength, between
    0.7 and 1.3. Which group has which size is left to chance.
    """
    chance = np.random.default_rng(seed)
    centres = np.zeros((1, made.n_features))
    for level, children in enumerate(made.branches):
        step = STEP * GROWTH ** (len(made.branches) - 1 - level)
        directions = chance.standard_normal((len(centres) * children, made.n_features))
        directions /= np.linalg.norm(directions, axis=1, keepdims=True)
        centres = np.repeat(centres, children, axis=0) + step * directions
    noise = chance.uniform(0.7, 1.3, made.n_leaves)
    sizes = np.maximum(np.floor(chance.permutation(shares(made.n_leaves, made.even)) * n).astype(int), 2)
    sizes[sizes.argmax()] += n - sizes.sum()
    y = chance.permutation(np.repeat(np.arange(made.n_leaves), sizes))
    X = centres[y] + noise[y, None] * chance.standard_normal((n, made.n_features))
    finer = np.cumprod(made.branches[::-1])[::-1]  # leaves below a group of each level's parent
    levels = [y // (width // children) for width, children in zip(finer, made.branches, strict=True)]
    return X.astype(np.float32), np.stack(levels, axis=1)
