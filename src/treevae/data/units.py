"""How samples are moved and scaled before the model sees them, and back."""

from __future__ import annotations

import warnings
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import torch

from .arrays import InputForm, check_bernoulli

SMALLEST = float(np.finfo(np.float32).tiny)  # scale of vectors: what the model says is given back as float32
BLOCK = 1 << 22  # numbers looked at in one go, so that what is computed on the way does not grow with the samples


def blocks(X: np.ndarray) -> Iterator[slice]:
    """All rows of a matrix, some at a time."""
    step = max(1, BLOCK // max(1, X.shape[1]))
    return (slice(start, start + step) for start in range(0, len(X), step))


def centre_of(X: np.ndarray) -> np.ndarray:
    """The mean of each feature; of a constant one its value, as the rounded mean of many 1e30 is off by 1e14."""
    constant = np.logical_and.reduce([(X[rows] == X[0]).all(axis=0) for rows in blocks(X)])
    return np.where(constant, X[0], X.mean(axis=0, dtype=np.float64))


@dataclass(frozen=True)
class Units:
    """A shift and a scale."""

    shift: np.ndarray  # of each feature, or (1,) for all
    scale: float

    @classmethod
    def of(cls, form: InputForm, likelihood: str, X: np.ndarray) -> Units:
        """Under a learnt spread, vectors lose their mean and are divided by one common scale.

        One scale, because the sizes of features relative to each other are part of the hierarchy. All else is left as
        it is: images and probabilities have their range, and sigma = 1 means one unit of X.
        """
        if form.is_image or likelihood != "gaussian_learnt":
            return cls(np.zeros(1), 1.0)
        with np.errstate(over="ignore", invalid="ignore", under="ignore"):
            centre = centre_of(X)
            scale = float(np.sqrt(sum(np.square(X[rows] - centre).sum() for rows in blocks(X)) / X.size))
            largest = max(float(np.abs(X[rows] - centre).max()) for rows in blocks(X))
        if not np.isfinite(scale):
            raise ValueError(f"X holds values up to {np.abs(X).max():g}, whose squares overflow; rescale or clip them")
        if largest > 0 and scale < SMALLEST:
            raise ValueError(f"X differs by {largest:g} at most, less than float32 can tell apart; rescale it")
        return cls(centre, scale or 1.0)

    def shares(self, X: np.ndarray) -> np.ndarray:
        """The share of each feature in all variance of X, whose units these are."""
        spread = sum(np.square((X[rows] - self.shift) / self.scale).sum(axis=0) for rows in blocks(X))
        return spread / np.sum(spread)

    def check_fits(self, n_features: int) -> None:
        """Raise unless these are units of samples with so many features."""
        if not (isinstance(self.scale, float) and 0 < self.scale < np.inf):
            raise ValueError(f"scale={self.scale!r} must be a positive number")
        if self.shift.shape not in ((1,), (n_features,)) or self.shift.dtype.kind != "f":
            raise ValueError(f"a shift of shape {self.shift.shape} for {n_features} features")
        if not np.isfinite(self.shift).all():
            raise ValueError("the shift holds NaN or infinity")

    def to_model(self, X: np.ndarray, likelihood: str) -> torch.Tensor:
        """Samples as the model sees them, on the CPU; X itself, not a copy, if it is so already."""
        if likelihood == "gaussian_learnt":
            x = np.empty(X.shape, np.float32)
            with np.errstate(over="ignore"):
                for rows in blocks(X):
                    x[rows] = (X[rows] - self.shift) / self.scale
        else:
            with np.errstate(over="ignore"):
                x = np.asarray(X, dtype=np.float32, order="C")
        if not all(np.isfinite(x[rows]).all() for rows in blocks(x)):
            raise ValueError("X holds values that overflow float32; rescale or clip them")
        if likelihood == "bernoulli":
            check_bernoulli(x)
        with warnings.catch_warnings():
            warnings.filterwarnings("ignore", "The given NumPy array is not writable")  # nothing here writes to it
            return torch.from_numpy(x)

    def to_user(self, matrix: np.ndarray) -> np.ndarray:
        """What the model says, in the units of X."""
        return (matrix * self.scale + self.shift).astype(np.float32)

    def log_density(self, log_p: np.ndarray, n_features: int) -> np.ndarray:
        """Log-densities of samples as the model sees them, in the units of X."""
        return log_p - np.float32(n_features * np.log(self.scale))
