"""Tensors and JSON in one safetensors file. Nothing is pickled, so that reading a file never runs code."""

from __future__ import annotations

import json
import os
import zlib
from collections.abc import Mapping, Sequence
from dataclasses import fields
from pathlib import Path
from typing import Any, TypeVar

import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import save

from ..errors import ModelFileError
from .writing import replacing

FORMAT = 2  # raised when a file could no longer be read by older versions
KEY = "treevae"  # of the JSON in the file's metadata
CHECKSUM = "crc32"  # of the JSON and the tensors, in the metadata too; files of treevae 0.1.0 have none
T = TypeVar("T")


class JsonError(ValueError):
    """A text is not JSON that can be read."""


def write(path: str | os.PathLike[str], about: dict[str, Any], tensors: dict[str, torch.Tensor]) -> None:
    """Write a file and wait until it is on the disk; one that is already there is replaced once the new one is whole.

    Raises
    ------
    OSError
        The file could not be written (full disk, read-only folder). The one that was there is as it was.
    """
    path = Path(path)
    if not path.parent.is_dir():
        raise FileNotFoundError(f"there is no folder {path.parent} to write {path.name} into; make it first")
    text = json.dumps({"format": FORMAT} | about)
    copies = {name: value.detach().to("cpu", copy=True).contiguous() for name, value in tensors.items()}
    part = path.with_name(path.name + ".part")
    with replacing(path, part):
        save_file(copies, part, {KEY: text, CHECKSUM: _checksum(text, copies)})


def save_file(tensors: dict[str, torch.Tensor], path: Path, metadata: dict[str, str]) -> None:
    """A safetensors file that is on the disk, not only in the system's memory, when this returns.

    The library's own save_file neither waits for the disk nor says as an OSError what went wrong, and its files are
    private. Going by way of bytes costs one more copy of the tensors in memory.
    """
    with open(path, "wb") as file:
        for part in packed(tensors, metadata):
            file.write(part)
        file.flush()
        os.fsync(file.fileno())


def packed(tensors: dict[str, torch.Tensor], metadata: dict[str, str]) -> tuple[bytes, memoryview]:
    """The header and the tensors of a safetensors file: the same bytes for the same content.

    The library writes metadata in an order that changes from call to call; here it is the order that was given.
    """
    content = memoryview(save(tensors, metadata))
    begin = 8 + int.from_bytes(content[:8], "little")  # of the tensors, behind the length of the header and the header
    header = json.loads(bytes(content[8:begin])) | {"__metadata__": metadata}
    text = json.dumps(header, separators=(",", ":")).encode()
    text += b" " * (-len(text) % 8)  # the tensors begin at a multiple of eight bytes
    return len(text).to_bytes(8, "little") + text, content[begin:]


def read(path: str | os.PathLike[str]) -> tuple[dict[str, Any], dict[str, torch.Tensor]]:
    """The JSON and the tensors of a file that :func:`write` wrote, on the CPU."""
    path = Path(path)
    if not path.is_file():
        raise FileNotFoundError(f"there is no file {path}")
    try:
        with safe_open(path, framework="pt") as file:
            metadata = file.metadata() or {}
            about = _about(path, metadata)
            names = file.keys()
            tensors = {name: file.get_tensor(name).clone() for name in names}  # copies, as it maps the file's memory
    except SafetensorError as error:
        raise ModelFileError(f"{path} is not a treevae model, or was cut short: {error}") from error
    written, checksum = metadata.get(CHECKSUM), _checksum(metadata[KEY], tensors)
    if written is not None and written != checksum:
        raise ModelFileError(
            f"{path} is damaged: its checksum is {checksum}, but it was written with {written}; use another copy of it"
        )
    return about, tensors


def peek(path: str | os.PathLike[str]) -> dict[str, Any]:
    """The JSON of a file alone, fast and without its tensors, hence without their checksum."""
    try:
        with safe_open(path, framework="pt") as file:
            return _about(Path(path), file.metadata() or {})
    except SafetensorError as error:
        raise ModelFileError(f"{path} is not a treevae model, or was cut short: {error}") from error


def _about(path: Path, metadata: dict[str, str]) -> dict[str, Any]:
    """The JSON in a file's metadata, without its format."""
    if KEY not in metadata:
        raise ModelFileError(f"{path} is a safetensors file, but not one that treevae wrote")
    try:
        about = parsed(metadata[KEY])
    except JsonError as error:
        raise ModelFileError(f"{path} has unreadable metadata: {error}") from error
    version = about.pop("format", None) if isinstance(about, dict) else None
    if type(version) is not int:
        raise ModelFileError(f"{path} does not say which format it has; it was not written by treevae")
    if version > FORMAT:
        raise ModelFileError(f"{path} has format {version}; this treevae reads up to {FORMAT}, update it")
    return about


def parsed(text: str) -> Any:
    """What a JSON text says.

    Raises
    ------
    JsonError
        It is damaged, nested too deeply, has a number too long to read, or says two things under one name.
    """
    try:
        return json.loads(text, object_pairs_hook=_without_doubles)
    except (ValueError, RecursionError) as error:
        raise JsonError(str(error)) from error


def _without_doubles(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    members = dict(pairs)
    if len(members) < len(pairs):
        raise ValueError("a name stands twice in one object")
    return members


def _checksum(text: str, tensors: dict[str, torch.Tensor]) -> str:
    """CRC-32 of the JSON and of the tensors' names, types, shapes and bytes, by name."""
    value = zlib.crc32(text.encode())
    for name, tensor in sorted(tensors.items()):
        value = zlib.crc32(f"{name} {tensor.dtype} {tuple(tensor.shape)}".encode(), value)
        value = zlib.crc32(tensor.reshape(-1).view(torch.uint8).numpy().data, value)
    return f"{value:08x}"


def rebuild(kind: type[T], values: dict[str, Any]) -> T:
    """A dataclass from its JSON form: lists become tuples, unknown keys are refused."""
    known = {field.name for field in fields(kind)}  # type: ignore[arg-type]
    if unknown := set(values) - known:
        raise ValueError(f"unknown keys {sorted(unknown)} for {kind.__name__}")
    return kind(**{name: tuple(value) if isinstance(value, list) else value for name, value in values.items()})


def check_weights(weights: dict[str, torch.Tensor], shapes: Mapping[str, Sequence[int]]) -> None:
    """Raise unless these are all the weights of a network, of the right shapes, finite, and variances not negative."""
    if wrong := sorted(weights.keys() ^ shapes.keys()):
        raise ValueError(f"weights are missing, or belong to no network: {', '.join(wrong[:5])}")
    for name, value in weights.items():
        if value.shape != shapes[name] or value.dtype != torch.float32:
            raise ValueError(
                f"{name} has shape {tuple(value.shape)} and type {value.dtype}, expected {tuple(shapes[name])} float32"
            )
        if not value.isfinite().all():
            raise ValueError(f"{name} holds NaN or infinity")
        if name.endswith("running_var") and (value < 0).any():
            raise ValueError(f"{name} holds a negative variance")
