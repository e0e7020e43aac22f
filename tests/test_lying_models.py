"""Models and states that lie, and parameters that once hung or crashed."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pandas
import pytest
import torch
from lies import TINY, X, refused
from safetensors.torch import save

from treevae import Tree, TreeVAE
from treevae import load as load_model
from treevae.model.module import TreeVAEModule, weight_shapes
from treevae.model.networks import Architecture
from treevae.storage import tensors as checkpoint
from treevae.storage.states import STATES, StateFolder
from treevae.storage.tensors import ModelFileError
from treevae.training import loop
from treevae.training.grove import _checked_rows
from treevae.tree import balanced

# -- models and states ------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def saved(tmp_path_factory: pytest.TempPathFactory) -> tuple[dict, dict]:
    """What a model's file says, and its tensors."""
    path = tmp_path_factory.mktemp("saved") / "model.safetensors"
    TreeVAE(**TINY, tree=balanced(2)).fit(pandas.DataFrame(X, columns=list("abcde"))).save(path)
    return checkpoint.read(path)


def set_in(path: str, value: Any) -> Callable[[dict, dict], None]:
    *above, last = path.split(".")

    def change(about: dict, tensors: dict) -> None:
        inside: Any = about
        for key in above:
            inside = inside[int(key) if key.isdigit() else key]
        inside[last] = value

    return change


def chain(n: int) -> str:
    return Tree({i: (i + 1,) for i in range(n)}).to_json()


def fill_first(about: dict, tensors: dict, value: float, of: str = "") -> None:
    name = next(name for name in tensors if name.startswith("module.") and name.endswith(of))
    tensors[name] = torch.full_like(tensors[name], value)


LIES: dict[str, Callable[[dict, dict], None]] = {
    "a latent of a thousand million": set_in("architecture.latent_dims", [10**9] * 3),
    "a thousand million layers": set_in("architecture.transformation_layers", 10**9),
    "ten thousand levels": lambda about, _: about["architecture"].update(
        latent_dims=[2] * 10**4, hidden_dims=[4] * 9999
    ),
    "a network of that name": set_in("architecture.network", "transformer"),
    "sizes that are no numbers": set_in("architecture.hidden_dims", ["4", "4"]),
    "an image for vectors": set_in("form", {"layout": "hwc", "shape": [5, 1, 1], "from_bytes": False}),
    "more features than weights": set_in("form.shape", [10**9]),
    "a layout of that name": set_in("form.layout", "spiral"),
    "a tree taller than its levels": set_in("tree", chain(5)),
    "a tree of 10,001 levels": set_in("tree", chain(10**4)),
    "a tree nested in lists": set_in("tree", '{"children": ' + "[" * 10**5),
    "a scale of zero": set_in("scale", 0.0),
    "a scale that is no number": set_in("scale", float("nan")),
    "a shift of another length": lambda _, tensors: tensors.update(shift=torch.zeros(3, dtype=torch.float64)),
    "names of other features": set_in("feature_names", ["a", "b"]),
    "names that are numbers": set_in("feature_names", [1, 2, 3, 4, 5]),
    "names in one text": set_in("feature_names", "abcde"),
    "labels of leaves that are not there": lambda _, tensors: tensors.update(labels=tensors["labels"] + 100),
    "labels that are no numbers": lambda _, tensors: tensors.update(labels=tensors["labels"].float()),
    "a history of other things": set_in("history", [{"event": "EpochEnded"}]),
    "a history that is no list": set_in("history", {"event": "EpochEnded"}),
    "an entry of that name": set_in("more", 1),
    "weights that are no numbers": lambda about, tensors: fill_first(about, tensors, float("nan")),
    "variances below zero": lambda about, tensors: fill_first(about, tensors, -1.0, "running_var"),
    "infinite weights": lambda about, tensors: fill_first(about, tensors, float("inf")),
}


@pytest.mark.parametrize("lie", LIES)
def test_models_that_lie(saved: tuple[dict, dict], tmp_path: Path, lie: str) -> None:
    about, tensors = json.loads(json.dumps(saved[0])), dict(saved[1])
    LIES[lie](about, tensors)
    checkpoint.write(tmp_path / "m", about, tensors)
    with refused("does not hold together", kind=ModelFileError):
        load_model(tmp_path / "m", device="cpu")


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ('{"format": 1, "a": ' + "[" * 10**5, "recursion"),
        ('{"format": 1, "a": ' + "9" * 5000 + "}", "digits"),
        ('{"format": 1, "format": 1}', "a name stands twice"),
        ('{"format": true}', "does not say which format"),
    ],
)
def test_json_that_lies(tmp_path: Path, text: str, why: str) -> None:
    tensors = {"a": torch.zeros(1)}
    for name in STATES:
        (tmp_path / name).write_bytes(save(tensors, {"treevae": text, "crc32": checkpoint._checksum(text, tensors)}))
    with refused(why, kind=ModelFileError):
        load_model(tmp_path / STATES[0])
    with refused(why, kind=ModelFileError):
        StateFolder(tmp_path).load()


def test_weights_are_as_large_as_their_shapes_say() -> None:
    """The shapes that a file is compared with are those of the module, for every network."""
    for network, shape in (("mlp", (5,)), ("cnn", (1, 8, 8)), ("deep_cnn", (1, 28, 28)), ("resnet", (3, 8, 8))):
        arch = Architecture(shape, network, "gaussian_learnt", (2,) * 3, (4,) * 2, n_projections=2)
        module = TreeVAEModule(arch, [balanced(3)], torch.Generator())
        assert weight_shapes(arch, balanced(3)) == {name: value.shape for name, value in module.state_dict().items()}


STATE_LIES: dict[str, Callable[[dict, dict], None]] = {
    "no name of its run": lambda about, _: about.pop("identity"),
    "seeds that are none": set_in("seeds", "abc"),
    "an epoch that never ends": set_in("grove.training.epoch", [10**9]),
    "a step beyond the epoch": set_in("grove.training.step", [10**9]),
    "a phase without a task": set_in("grove.tasks", []),
    "histories of other runs": set_in("histories", [[], []]),
    "a tree of many leaves": set_in("grove.runs.0.trees", [chain(50)]),
}


@pytest.mark.parametrize("lie", STATE_LIES)
def test_states_that_lie(tmp_path: Path, lie: str, monkeypatch: pytest.MonkeyPatch) -> None:
    bits = (X > 0).astype(np.float32)
    with monkeypatch.context() as patched:
        patched.setattr(loop, "PAUSE", 0)
        moments = iter((True, True))
        patched.setattr(StateFolder, "due", lambda self: next(moments))  # a sudden end at the third pause
        with pytest.raises(StopIteration):
            TreeVAE(**TINY).fit(bits, checkpoint=tmp_path)
    with StateFolder(tmp_path) as folder:
        found = folder.load()
        about = json.loads(json.dumps(found.about))
        STATE_LIES[lie](about, found.tensors)
        for _ in STATES:
            folder.save(about, found.tensors)
    with refused("does not (hold together|say which run)", kind=ModelFileError):
        TreeVAE(**TINY).fit(bits, checkpoint=tmp_path)


@pytest.mark.parametrize(
    "rows", [torch.empty(0, dtype=torch.long), torch.tensor([-1]), torch.tensor([9]), torch.ones(2)]
)
def test_rows_of_a_state_are_numbers_of_samples(rows: torch.Tensor) -> None:
    with pytest.raises(ValueError, match="rows are not numbers of some of 9 samples"):
        _checked_rows(rows, 9)


# -- records and runs -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("name", "value"), [("max_depth", 10**9), ("device", 1.5), ("device", ["cpu"])])
def test_parameters_that_once_hung_or_crashed(name: str, value: Any) -> None:
    with refused(f"{name}=", kind=ValueError):
        TreeVAE(**TINY | {name: value}).fit(X)
