"""How samples are moved and scaled before the model sees them, and back."""

from __future__ import annotations

import warnings
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import torch

from .arrays import InputForm, check_bernoulli

SMALLEST = float(np.finfo(np.float32).tiny)  # scale of vectors: what the model says is given back as float32
WAYS = {  # of scaling, and what each does to samples
    "none": "left as they are",
    "one": "centred, and divided by one number",
    "feature": "each feature centred, and divided by its own spread",
    "unit": "each sample brought to unit length, then all centred and divided by one number",
}
BLOCK = 1 << 22  # numbers looked at in one go, so that what is computed on the way does not grow with the samples


def blocks(X: np.ndarray) -> Iterator[slice]:
    """All rows of a matrix, some at a time."""
    step = max(1, BLOCK // max(1, X.shape[1]))
    return (slice(start, start + step) for start in range(0, len(X), step))


def centre_of(X: np.ndarray) -> np.ndarray:
    """The mean of each feature; of a constant one its value, as the rounded mean of many 1e30 is off by 1e14."""
    constant = np.logical_and.reduce([(X[rows] == X[0]).all(axis=0) for rows in blocks(X)])
    return np.where(constant, X[0], X.mean(axis=0, dtype=np.float64))


def lengths_of(X: np.ndarray) -> np.ndarray:
    """The length of each sample; divided by its largest number on the way, so that no square is too large or small."""
    lengths = np.empty(len(X))
    for rows in blocks(X):
        largest = np.abs(X[rows]).max(axis=1).astype(np.float64)
        part = X[rows] / np.where(largest > 0, largest, 1.0)[:, None]
        lengths[rows] = largest * np.sqrt(np.square(part).sum(axis=1))
    return lengths


def of_unit_length(X: np.ndarray) -> np.ndarray:
    """Each sample divided by its length; one without any stays at 0."""
    lengths = lengths_of(X)
    return X / np.where(lengths > 0, lengths, 1.0)[:, None]


@dataclass(frozen=True)
class Units:
    """A shift and a scale, and whether samples are brought to unit length before."""

    shift: np.ndarray  # of each feature, or (1,) for all
    scale: float | np.ndarray  # one for all features, or one for each
    way: str = "one"  # of scaling, as WAYS names it
    length: float = 1.0  # of samples that the model makes up: the mean of those given, where the way is "unit"

    @classmethod
    def of(cls, form: InputForm, likelihood: str, X: np.ndarray, way: str | None = None) -> Units:
        """The units of samples that are scaled in a way; without one, vectors under a learnt spread by one number.

        One, because the sizes of features relative to each other may be part of the hierarchy. All else is left as it
        is: images and probabilities have their range, and sigma = 1 means one unit of X.
        """
        way = way or usual_way(form, likelihood)
        if way == "none":
            return cls(np.zeros(1), 1.0, way)
        with np.errstate(over="ignore", invalid="ignore", under="ignore"):
            length = float(lengths_of(X).mean()) if way == "unit" else 1.0
            centre = _centre_of_directions(X) if way == "unit" else centre_of(X)
            moved = (seen_by(way, X[rows]) - centre for rows in blocks(X))
            if way == "feature":
                spread = np.sqrt(sum(np.square(part).sum(axis=0) for part in moved) / len(X))
                scale = float(np.max(spread))
            else:
                scale = float(np.sqrt(sum(np.square(part).sum() for part in moved) / X.size))
            largest = max(float(np.abs(seen_by(way, X[rows]) - centre).max()) for rows in blocks(X))
        if not np.isfinite(scale + length):
            raise ValueError(f"X holds values up to {np.abs(X).max():g}, whose squares overflow; rescale or clip them")
        if largest > 0 and scale < SMALLEST:
            raise ValueError(f"X differs by {largest:g} at most, less than float32 can tell apart; rescale it")
        if way == "feature":
            return cls(centre, np.where(spread < SMALLEST, 1.0, spread), way)
        return cls(centre, scale or 1.0, way, length)

    def check_fits(self, n_features: int) -> None:
        """Raise unless these are units of samples with so many features."""
        one, scale = self.way != "feature", self.scale
        if self.way not in WAYS:
            raise ValueError(f"the samples are scaled in the way {self.way!r}; known are {', '.join(map(repr, WAYS))}")
        if one and not (isinstance(scale, float) and 0 < scale < np.inf):
            raise ValueError(f"scale={scale!r} must be a positive number")
        if not one and not (isinstance(scale, np.ndarray) and scale.shape == (n_features,) and scale.dtype.kind == "f"):
            raise ValueError(f"the scale of each feature is not {n_features} numbers")
        if not (np.isfinite(scale).all() and np.min(scale) > 0):
            raise ValueError("the scale of a feature is not a positive number")
        if not (isinstance(self.length, float) and 0 <= self.length < np.inf):
            raise ValueError(f"length={self.length!r} must be a number, 0 or more")
        if self.shift.shape not in ((1,), (n_features,)) or self.shift.dtype.kind != "f":
            raise ValueError(f"a shift of shape {self.shift.shape} for {n_features} features")
        if not np.isfinite(self.shift).all():
            raise ValueError("the shift holds NaN or infinity")

    def to_model(self, X: np.ndarray, likelihood: str) -> torch.Tensor:
        """Samples as the model sees them, on the CPU; X itself, not a copy, if it is so already."""
        with np.errstate(over="ignore"):
            if self.way == "none":
                x = np.asarray(X, dtype=np.float32, order="C")
            else:
                x = np.empty(X.shape, np.float32)
                for rows in blocks(X):
                    x[rows] = (seen_by(self.way, X[rows]) - self.shift) / self.scale
        if not all(np.isfinite(x[rows]).all() for rows in blocks(x)):
            raise ValueError("X holds values that overflow float32; rescale or clip them")
        if likelihood == "bernoulli":
            check_bernoulli(x)
        with warnings.catch_warnings():
            warnings.filterwarnings("ignore", "The given NumPy array is not writable")  # nothing here writes to it
            return torch.from_numpy(x)

    def to_user(self, matrix: np.ndarray, lengths: np.ndarray | None = None) -> np.ndarray:
        """What the model says, in the units of X; ``lengths`` are those of the samples it speaks of, if of any."""
        x = matrix * self.scale + self.shift
        if self.way == "unit":
            long = np.full(1, self.length) if lengths is None else lengths
            x = x * long.reshape(-1, *[1] * (x.ndim - 1))
        return x.astype(np.float32)

    def lengths(self, X: np.ndarray) -> np.ndarray | None:
        """The lengths of samples, where the model does not see them."""
        return lengths_of(X) if self.way == "unit" else None

    def log_density(self, log_p: np.ndarray, n_features: int) -> np.ndarray:
        """Log-densities of samples as the model sees them, in the units of X; of their directions, if it sees these."""
        if isinstance(self.scale, np.ndarray):
            return log_p - np.float32(np.log(self.scale).sum())
        return log_p - np.float32(n_features * np.log(self.scale))


def usual_way(form: InputForm, likelihood: str) -> str:
    """How samples are scaled whose values nobody looks at."""
    return "none" if form.is_image or likelihood != "gaussian_learnt" else "one"


def seen_by(way: str, X: np.ndarray) -> np.ndarray:
    """Samples before they are centred."""
    return of_unit_length(X) if way == "unit" else X


def _centre_of_directions(X: np.ndarray) -> np.ndarray:
    """The mean of the samples at unit length."""
    return np.asarray(sum(of_unit_length(X[rows]).sum(axis=0) for rows in blocks(X)) / len(X))
