"""What ``fit`` accepts, and how it becomes one matrix of float32 and back.

The only place where users' arrays turn into the model's. Vectors are (n, features); images are (n, h, w), (n, c, h, w)
or (n, h, w, c) in [0, 1] or uint8, kept inside as (n, c * h * w), and given back in the layout they came in.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from math import prod
from typing import Any

import numpy as np
import scipy.sparse
import torch
from sklearn.base import BaseEstimator
from sklearn.utils.validation import check_array, validate_data

CHANNELS = (1, 3, 4)  # grey, colour, colour with transparency
SMALLEST_SIDE = 3  # of an image that the CNN can read


@dataclass(frozen=True)
class InputForm:
    """The form of the samples seen in ``fit``."""

    layout: str  # "vector", "hw", "chw" or "hwc"
    shape: tuple[int, ...]  # (features,) or (channels, height, width)
    from_bytes: bool = False  # images that came as uint8; others mean the same in [0, 1]

    @property
    def is_image(self) -> bool:
        """Whether the samples are images."""
        return self.layout != "vector"

    @property
    def n_features(self) -> int:
        """Numbers in a sample."""
        return prod(self.shape)

    @property
    def user_shape(self) -> tuple[int, ...]:
        """The shape of one sample as the user gave it."""
        c, *rest = self.shape
        return {"hw": tuple(rest), "hwc": (*rest, c)}.get(self.layout, self.shape)

    @classmethod
    def of(cls, X: np.ndarray) -> InputForm:
        """The form of an array, found from its dimensions."""
        if X.ndim == 2:
            return cls("vector", X.shape[1:])
        from_bytes = X.dtype == np.uint8
        if X.ndim == 3:
            return cls("hw", (1, *X.shape[1:]), from_bytes)
        if X.ndim != 4:
            raise ValueError(
                f"X has {X.ndim} dimensions, shape {X.shape}; expected (n, features), or images as (n, h, w), "
                "(n, c, h, w) or (n, h, w, c)"
            )
        first, last = X.shape[1] in CHANNELS, X.shape[3] in CHANNELS
        if not first and not last:
            raise ValueError(
                f"X has shape {X.shape}, and neither its second nor its last axis has 1, 3 or 4 channels; "
                "for other channel counts pass flattened vectors"
            )
        if first and last and X.shape[1] != X.shape[3]:  # the one that is not usual as a side decides: 3 before 1 and 4
            first = X.shape[1] == 3 or (X.shape[3] != 3 and X.shape[1] < X.shape[3])
        return cls("chw", X.shape[1:], from_bytes) if first else cls("hwc", (X.shape[3], *X.shape[1:3]), from_bytes)

    def to_matrix(self, X: np.ndarray) -> np.ndarray:
        """(n, features) float32, contiguous; uint8 images are divided by 255."""
        check_shape(X.shape, self.user_shape)
        from_bytes = self.is_image and X.dtype == np.uint8
        X = np.moveaxis(X, 3, 1) if self.layout == "hwc" else X
        matrix = np.ascontiguousarray(X.reshape(len(X), -1), dtype=np.float32)  # a view, where that is possible
        if from_bytes:
            matrix /= 255  # the matrix is a copy, as its type is another
        return matrix

    def to_user(self, matrix: np.ndarray) -> np.ndarray:
        """Samples, one a row, in the layout the user gave; any axes before the last are kept."""
        images = matrix.reshape(*matrix.shape[:-1], *self.shape)
        if self.layout == "hwc":
            return np.moveaxis(images, -3, -1)
        return images[..., 0, :, :] if self.layout == "hw" else images

    def check_fits(self, shape: tuple[int, ...]) -> None:
        """Raise unless this is a form of samples that a model for inputs of this shape can have."""
        layouts = ("vector",) if len(self.shape) == 1 else ("hw", "chw", "hwc")
        if self.shape != shape or self.layout not in layouts or (self.layout == "hw" and shape[0] != 1):
            raise ValueError(f"samples of layout {self.layout!r} and shape {self.shape} for a model of inputs {shape}")
        if type(self.from_bytes) is not bool:
            raise ValueError(f"from_bytes={self.from_bytes!r} must be true or false")

    def to_dict(self) -> dict[str, Any]:
        """The fields as JSON-able values."""
        return asdict(self)


def read(estimator: BaseEstimator, X: Any, form: InputForm | None, any_value: bool) -> tuple[np.ndarray, InputForm]:
    """X as a checked (n, features) matrix, and its form; the estimator learns the number and names of features.

    Parameters
    ----------
    estimator : BaseEstimator
        Whose X it is.
    X : samples in any form that ``fit`` accepts
    form : InputForm or None
        That of the samples seen in ``fit``; None in ``fit`` itself.
    any_value : bool
        Whether images may hold numbers outside [0, 1].
    """
    X, least = as_array(X), 2 if form is None else 1
    if (kind := getattr(getattr(X, "dtype", None), "kind", "")) in ("M", "m"):  # numpy would make numbers of them
        raise ValueError(
            f"X has dtype {X.dtype}; {'dates' if kind == 'M' else 'spans of time'} must be made numbers first"
        )
    if n_dimensions(X) > 2:
        X = np.asarray(X)
        if len(X) < least:
            raise ValueError(f"X has n_samples={len(X)}; at least {least} needed")
        form_of_images = form or InputForm.of(X)
        check_images(X, any_value, fitted=form is not None)
        if form is None:
            form = form_of_images
            learn(estimator, form.n_features)
        return form.to_matrix(X), form
    if form is not None and form.is_image:
        check_shape(np.shape(X), form.user_shape)
    dtypes = (np.float64, np.float32)
    try:
        X = validate_data(estimator, X, reset=form is None, dtype=dtypes, ensure_min_samples=least)
    except ValueError as error:
        if "contains NaN" not in str(error):
            raise
        raise ValueError(_missing(X)) from error  # scikit-learn speaks of other methods, which are of no use here
    return X, InputForm.of(X)


def _missing(X: Any) -> str:
    """Where values are missing in X, (n, features), and what to do."""
    missing = np.isnan(np.asarray(X, dtype=np.float64))
    names, samples = list(getattr(X, "columns", range(missing.shape[1]))), np.flatnonzero(missing.any(1))
    where = [repr(names[i]) for i in np.flatnonzero(missing.any(0))]
    columns = ", ".join(where[:5]) + (" …" if len(where) > 5 else "")
    return (
        f"X contains NaN in {len(samples):,} of {len(missing):,} samples, first in sample {samples[0]}, in the "
        f"features {columns}; fill the gaps, as scikit-learn's SimpleImputer does, or leave those samples out"
    )


def read_values(
    estimator: BaseEstimator, X: Any, shape: tuple[int, ...] | None, dtype: Any, least: int = 1
) -> tuple[np.ndarray, tuple[int, ...]]:
    """X as a checked (n, values) matrix of the values as they are, and the shape of a sample.

    For methods without a model of images: samples may have any shape. As in :func:`read` the estimator learns the
    number and names of features.

    Parameters
    ----------
    estimator : BaseEstimator
        Whose X it is.
    X : array-like of shape (n, ...)
    shape : tuple or None
        That of a sample seen in ``fit``; None in ``fit`` itself.
    dtype : dtype or sequence of them
        What X is made, unless it is of one of several.
    least : int
        Samples that there must be.
    """
    rules: dict[str, Any] = {"dtype": dtype, "ensure_min_samples": least}
    if n_dimensions(X) < 3 and (shape is None or len(shape) == 1):
        X = validate_data(estimator, X, reset=shape is None, **rules)
        return X, X.shape[1:]
    if shape is not None:
        check_shape(np.shape(X), shape)
    X = check_array(X, allow_nd=True, estimator=estimator, input_name="X", **rules)
    if shape is None:  # scikit-learn would take the second axis for the features
        learn(estimator, prod(X.shape[1:]))
    return X.reshape(len(X), -1), X.shape[1:]


def stand_in(kind: str, n_features: int | None = None, names: Sequence[str] = ()) -> BaseEstimator:
    """An estimator that scikit-learn's checks of X can ask and name, where there is none; it may have seen features."""
    reader = type(kind, (BaseEstimator,), {})()
    if n_features is not None:
        learn(reader, n_features, names)
    return reader


def hand_over(reader: BaseEstimator, estimator: BaseEstimator) -> None:
    """Let an estimator know of the features what the one knows that read X in its place."""
    learn(estimator, reader.n_features_in_, getattr(reader, "feature_names_in_", ()))


def learn(estimator: BaseEstimator, n_features: int, names: Sequence[str] = ()) -> None:
    """Let an estimator know how many features the samples have that it is fitted on, and what they are called."""
    estimator.n_features_in_ = n_features
    estimator.__dict__.pop("feature_names_in_", None)  # of an earlier fit on a frame
    if len(names):
        estimator.feature_names_in_ = np.array(names, dtype=object)


def check_shape(shape: tuple[int, ...], seen: tuple[int, ...]) -> None:
    """Raise unless an X of this shape holds samples of the shape that was seen in ``fit``."""
    if len(shape) < 3 and len(seen) > 1:
        raise ValueError(
            f"X has shape {tuple(shape)}, but the model was fitted on images of shape {seen}; "
            "give (n, ...) of them, one image as X[None]"
        )
    if shape[1:] != seen:
        raise ValueError(
            f"X has samples of shape {tuple(shape[1:])}, but the model was fitted on samples of shape {seen}"
        )


def as_array(X: Any) -> Any:
    """X as a numpy array where it is a torch tensor, as a dense one where it is sparse, else as it is."""
    if isinstance(X, torch.Tensor):
        X = X.detach().cpu()
        X = (X.float() if X.dtype in (torch.bfloat16, torch.float16) else X).numpy()
    return X.toarray() if scipy.sparse.issparse(X) else X


def n_dimensions(X: Any) -> int:
    """The number of dimensions of an array or of nested lists; 2 for anything else that can become an array."""
    return int(X.ndim) if hasattr(X, "ndim") else np.ndim(X) if isinstance(X, list | tuple) else 2


def check_images(X: np.ndarray, any_value: bool, fitted: bool) -> None:
    """Raise unless X holds images of finite numbers in [0, 1], or uint8."""
    if X.dtype == np.uint8:
        return
    if X.dtype.kind not in "fiub":
        raise ValueError(f"X has dtype {X.dtype}; images must be numbers: floats in [0, 1] or uint8")
    if (bad := ~np.isfinite(X).reshape(len(X), -1).all(1)).any():
        raise ValueError(
            f"X contains NaN or infinity in {bad.sum():,} of {len(X):,} samples, the first of them sample "
            f"{bad.argmax()}; remove or fill such pixels first"
        )
    low, high = X.min(), X.max()
    if not any_value and (low < 0 or high > 1):
        what = (
            "must be uint8 or in [0, 1]: pass bytes as uint8, or divide by the largest value that a pixel can have"
            if fitted
            else "must be uint8 or in [0, 1]. Scale them, or set likelihood='gaussian' to model other ranges"
        )
        raise ValueError(f"X holds pixels from {low:g} to {high:g}; images {what}")


def check_bernoulli(matrix: np.ndarray) -> None:
    """Raise unless all values lie in [0, 1]."""
    low, high = matrix.min(), matrix.max()
    if low < 0 or high > 1:
        raise ValueError(
            f"likelihood='bernoulli' (which 'auto' takes for training data in [0, 1]) needs values in [0, 1], but X "
            f"ranges from {low:g} to {high:g}; scale or clip X, or fit with likelihood='gaussian_learnt'"
        )
