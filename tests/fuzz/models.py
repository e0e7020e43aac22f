"""Models and the states of fits: safetensors files with JSON in them."""

import json
import struct
import time
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from random import Random
from typing import Any

import numpy as np
import torch
from loader import Loader, normal, pixels
from mutations import EDGES, WORDS, any_bytes, json_text, places
from safetensors.torch import load as unpacked

from treevae import TreeVAE, load
from treevae.cli.words import drawing
from treevae.storage.differences import ChangedRunError
from treevae.storage.states import STATES, StateFolder
from treevae.storage.tensors import CHECKSUM, KEY, ModelFileError, _checksum, packed
from treevae.training import loop
from treevae.training.grove import Grove
from treevae.training.loop import DivergedError

TINY = {
    "n_leaves": 3,
    "max_depth": 2,
    "latent_dim": 2,
    "hidden_dim": 4,
    "n_init": 2,
    "epochs": 1,
    "batch_size": 32,
    "device": "cpu",
}
BITS = (normal(96, 5) > 0).astype(np.float32)
MODELS = {"vectors": normal(96, 5), "images": pixels(96, 5, 5)}


# -- valid files ----------------------------------------------------------------------------------------------------


def fitted(X: np.ndarray, **others: Any) -> TreeVAE:
    """Fit by a clock that stands still, since files tell how long it took."""
    torch.set_num_threads(1)
    clock, time.perf_counter = time.perf_counter, lambda: 0.0
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            return TreeVAE(**TINY, random_state=0).fit(X, **others)
    finally:
        time.perf_counter = clock


def valid_models(folder: Path) -> None:
    for name, X in MODELS.items():
        fitted(X).save(folder / f"{name}.safetensors")


class _Stopped(BaseException):
    """In the place of a kill."""


@contextmanager
def stopped_after(n_events: int) -> Iterator[None]:
    """Inside, a fit pauses at every step, and ends suddenly after so many events."""
    events, pause = Grove.events, loop.PAUSE

    def few(grove: Grove) -> Any:
        for seen, happened in enumerate(events(grove), start=1):
            yield happened
            if seen == n_events:
                raise _Stopped

    Grove.events, loop.PAUSE = few, 0  # type: ignore[method-assign, assignment]
    try:
        yield
    except _Stopped:
        return
    finally:
        Grove.events, loop.PAUSE = events, pause  # type: ignore[method-assign]


def valid_states(folder: Path) -> None:
    """Two states from the middle of a fit."""
    StateFolder.due = lambda _: True  # type: ignore[method-assign]
    with stopped_after(18):
        fitted(BITS, checkpoint=folder)
    (folder / "lock").unlink(missing_ok=True)


# -- bad ones -------------------------------------------------------------------------------------------------------


def _safetensors_header(content: bytes, chance: Random) -> bytes:
    """The header's JSON changed, or the length that it says it has."""
    (size,) = struct.unpack("<Q", content[:8])
    text = json_text(json.loads(content[8 : 8 + size]), chance).encode("utf-8", "surrogatepass")
    claimed = chance.choice((len(text), len(text), len(text), len(text) + 1, size, *EDGES))
    return struct.pack("<Q", claimed) + text + content[8 + size :]


def _safetensors_inside(content: bytes, chance: Random) -> bytes:
    """A file with a right checksum whose JSON or tensors are changed: what an adversary would write."""
    (size,) = struct.unpack("<Q", content[:8])
    about = json.loads(json.loads(content[8 : 8 + size])["__metadata__"][KEY])
    tensors = unpacked(content)
    text = json.dumps(about)
    if chance.random() < 0.6:
        text = _with_inner_json(about, chance)
    else:
        name = chance.choice(sorted(tensors))
        value = tensors[name]
        action = chance.randrange(9)
        if action == 0:
            del tensors[name]
        elif action == 1:
            tensors[chance.choice((*WORDS, f"{name}.more"))] = value.clone()
        elif action == 2:
            tensors[name] = value.to(chance.choice((torch.float64, torch.int8, torch.bool, torch.bfloat16)))
        elif action == 3:
            tensors[name] = value.reshape(-1)[: chance.randrange(value.numel() + 1)].clone()
        elif action == 4:
            tensors[name] = value[None].clone() if chance.random() < 0.5 else value.reshape(-1).clone()
        elif action == 5:
            tensors[name] = torch.empty(0)
        elif action == 6:
            tensors[name] = torch.zeros(1).expand(chance.choice((10, 100_000))).clone()
        else:
            spoilt = value.clone()
            wrong = (float("nan"), float("inf"), 1e38, -1) if spoilt.is_floating_point() else (-1, 100, 2**31 - 1)
            wrong = (0, 100, 255) if spoilt.dtype == torch.uint8 else wrong
            spoilt.reshape(-1)[: max(1, spoilt.numel() // 3)] = chance.choice(wrong)
            tensors[name] = spoilt
    try:
        return b"".join(packed(tensors, {KEY: text, CHECKSUM: _checksum(text, tensors)}))
    except (UnicodeEncodeError, TypeError):  # lone surrogates cannot be written
        return any_bytes(content, chance)


def _with_inner_json(about: dict[str, Any], chance: Random) -> str:
    """JSON changed, also where JSON stands in a string, as trees do."""
    inner = [(inside, key) for inside, key in places(about, []) if str(inside[key]).startswith('{"children')]
    if inner and chance.random() < 0.3:
        inside, key = chance.choice(inner)
        inside[key] = json_text(json.loads(inside[key]), chance)
        return json.dumps(about)
    return json_text(about, chance)


def any_safetensors(content: bytes, chance: Random) -> bytes:
    kind = chance.random()
    if kind < 0.25:
        return any_bytes(content, chance)
    return _safetensors_header(content, chance) if kind < 0.5 else _safetensors_inside(content, chance)


def spoil_models(files: dict[str, bytes], chance: Random) -> dict[str, bytes]:
    """One model, alone."""
    name = chance.choice(list(files))
    return {name: any_safetensors(files[name], chance)}


def spoil_states(files: dict[str, bytes], chance: Random) -> dict[str, bytes]:
    """One state alone, so that the other cannot stand in for it; now and then both."""
    name = chance.choice([name for name in files if name in STATES])
    bad = any_safetensors(files[name], chance)
    return files | {name: bad} if chance.random() < 0.1 else {name: bad}


# -- reading --------------------------------------------------------------------------------------------------------


def load_models(folder: Path) -> None:
    """A model that is read must also answer."""
    for path in folder.iterdir():
        model, X = load(path, device="cpu"), MODELS[path.stem]
        try:
            assert model.predict(X[:3]).shape == (3,)
        except ValueError as error:  # another scale than that of the samples is no fault of the file's
            if "overflow float32" not in str(error):
                raise RuntimeError("a model that cannot be asked") from error
        assert model.sample(2, random_state=0).shape == (2, *X.shape[1:])
        assert str(model.tree_)
        drawing(model)


def load_states(folder: Path) -> None:
    """A fit that goes on from a state, for a step or two."""
    torch.set_num_threads(1)
    with stopped_after(3):
        TreeVAE(**TINY, random_state=0).fit(BITS, checkpoint=folder, save_every=1000)


LOADERS = (
    Loader("model", 0.05, valid_models, spoil_models, load_models, (ModelFileError,)),
    Loader("state", 0.03, valid_states, spoil_states, load_states, (ModelFileError, ChangedRunError, DivergedError)),
)
