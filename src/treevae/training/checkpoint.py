"""Tensors and JSON in one safetensors file. Nothing is pickled, so that reading a file never runs code."""

from __future__ import annotations

import json
import os
from dataclasses import fields
from pathlib import Path
from typing import Any, TypeVar

import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import save_file

FORMAT = 1  # raised when a file could no longer be read by older versions
KEY = "treevae"  # of the JSON in the file's metadata
T = TypeVar("T")


class ModelFileError(ValueError):
    """A file is not a model that this version can read."""


def write(path: str | os.PathLike[str], about: dict[str, Any], tensors: dict[str, torch.Tensor]) -> None:
    """Write a file; one that is already there is replaced only once the new one is whole."""
    path = Path(path)
    if not path.parent.is_dir():
        raise FileNotFoundError(f"there is no folder {path.parent} to write {path.name} into; make it first")
    part = path.with_name(path.name + ".part")
    try:
        save_file(
            {name: value.detach().cpu().contiguous() for name, value in tensors.items()},
            part,
            {KEY: json.dumps({"format": FORMAT} | about)},
        )
        part.chmod(0o666 & ~_umask())  # safetensors makes files that only their owner can read
        part.replace(path)
    finally:
        part.unlink(missing_ok=True)


def _umask() -> int:
    """The process's umask; it can only be read by setting it."""
    mask = os.umask(0o022)
    os.umask(mask)
    return mask


def read(path: str | os.PathLike[str]) -> tuple[dict[str, Any], dict[str, torch.Tensor]]:
    """The JSON and the tensors of a file that :func:`write` wrote."""
    path = Path(path)
    if not path.is_file():
        raise FileNotFoundError(f"there is no file {path}")
    try:
        with safe_open(path, framework="pt") as file:
            metadata = file.metadata() or {}
            if KEY not in metadata:
                raise ModelFileError(f"{path} is a safetensors file, but not one that treevae wrote")
            about = json.loads(metadata[KEY])
            version = about.pop("format", None) if isinstance(about, dict) else None
            if not isinstance(version, int):
                raise ModelFileError(f"{path} does not say which format it has; it was not written by treevae")
            if version > FORMAT:
                raise ModelFileError(f"{path} has format {version}; this treevae reads up to {FORMAT}, update it")
            return about, {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118 - not a dict
    except SafetensorError as error:
        raise ModelFileError(f"{path} is not a treevae model, or was cut short: {error}") from error
    except json.JSONDecodeError as error:
        raise ModelFileError(f"{path} has unreadable metadata: {error}") from error


def rebuild(kind: type[T], values: dict[str, Any]) -> T:
    """A dataclass from its JSON form: lists become tuples, unknown keys are refused."""
    known = {field.name for field in fields(kind)}  # type: ignore[arg-type]
    if unknown := set(values) - known:
        raise ValueError(f"unknown keys {sorted(unknown)} for {kind.__name__}")
    return kind(**{name: tuple(value) if isinstance(value, list) else value for name, value in values.items()})
