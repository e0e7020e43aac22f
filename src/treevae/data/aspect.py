"""An aspect of the samples: one of the things that can be seen of them, and what a model must know to see it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch

from .arrays import InputForm, read, stand_in
from .scaling import way_for
from .units import Units


@dataclass(frozen=True, eq=False)
class Aspect:
    """The form in which an aspect was given, the units in which a model sees it, and what explains it there."""

    form: InputForm
    units: Units
    likelihood: str

    @classmethod
    def of(cls, form: InputForm, likelihood: str, matrix: np.ndarray, scale: str = "auto") -> Aspect:
        """The aspect that a matrix of samples, (n, features), shows, scaled in the way that is asked for."""
        way = way_for(scale, form, likelihood, matrix)
        return cls(form, Units.of(form, likelihood, matrix, way), likelihood)

    @property
    def n_features(self) -> int:
        """Numbers in a sample."""
        return self.form.n_features

    def read(self, X: Any, kind: str, names: Sequence[str] = ()) -> np.ndarray:
        """Samples as the user gives them, checked, as a matrix (n, features); errors speak of a ``kind`` of model."""
        # floats sent to a model of uint8 images must be in [0, 1] as well
        any_value = self.likelihood != "bernoulli" and not self.form.from_bytes
        matrix, _ = read(stand_in(kind, self.n_features, names), X, self.form, any_value)
        return matrix

    def to_model(self, matrix: np.ndarray) -> torch.Tensor:
        """A matrix of samples as the model sees them, on the CPU."""
        return self.units.to_model(matrix, self.likelihood)

    def to_user(self, matrix: np.ndarray, lengths: np.ndarray | None = None) -> np.ndarray:
        """What the model says of samples, in the form and units of the user; as long as these are, if of some."""
        return self.form.to_user(self.units.to_user(matrix, lengths))

    def log_density(self, log_p: np.ndarray) -> np.ndarray:
        """Log-densities of samples as the model sees them, in the user's units."""
        return self.units.log_density(log_p, self.n_features)
