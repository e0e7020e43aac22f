"""Saved models: the same answers after loading, and files that are cut short, foreign or spoilt."""

import dataclasses
import json
import os
import pickle

import numpy as np
import pandas as pd
import pytest
import torch
from kinds import COLOUR, GREY, SMALL, VECTORS
from safetensors.torch import save_file

from treevae import TreeVAE, load
from treevae.storage.tensors import ModelFileError
from treevae.training.events import EpochEnded


@pytest.fixture(scope="module")
def saved(vectors, tmp_path_factory):
    path = tmp_path_factory.mktemp("saved") / "model.safetensors"
    vectors.save(path)
    return path


@pytest.mark.parametrize("X", [GREY, COLOUR, VECTORS, pd.DataFrame(VECTORS, columns=list("abcd"))])
def test_save_and_load_give_the_same_answers(X, tmp_path):
    model = TreeVAE(**SMALL | {"n_init": 2}).fit(X)
    model.save(tmp_path / "model.safetensors")
    again = load(tmp_path / "model.safetensors")
    assert again.get_params() == model.get_params()
    assert (again.tree_, again.history_, again.plan_) == (model.tree_, model.history_, model.plan_)
    for method in ("predict", "predict_proba", "transform", "score_samples", "reconstruct"):
        np.testing.assert_array_equal(getattr(again, method)(X), getattr(model, method)(X))
    np.testing.assert_array_equal(again.sample(3), model.sample(3))
    np.testing.assert_array_equal(again.labels_, model.labels_)
    assert [path.name for path in tmp_path.iterdir()] == ["model.safetensors"]
    assert (tmp_path / "model.safetensors").stat().st_mode & 0o444 == 0o444 & ~_umask()


def test_the_same_model_gives_the_same_bytes(vectors, tmp_path):
    for k in range(8):
        vectors.save(tmp_path / f"{k}")
    assert len({path.read_bytes() for path in tmp_path.iterdir()}) == 1


def test_a_model_whose_history_lacks_what_later_versions_tell_is_read(vectors, saved, tmp_path):
    from treevae.storage import tensors as checkpoint

    about, tensors = checkpoint.read(saved)
    later = {field.name for field in dataclasses.fields(EpochEnded) if field.default is not dataclasses.MISSING}
    assert "samples" in later
    about["history"] = [{name: entry[name] for name in entry if name not in later} for entry in about["history"]]
    checkpoint.write(tmp_path / "model.safetensors", about, tensors)
    again = load(tmp_path / "model.safetensors")
    np.testing.assert_array_equal(again.predict(VECTORS), vectors.predict(VECTORS))


def _umask() -> int:
    mask = os.umask(0)
    os.umask(mask)
    return mask


def test_a_pickle_is_not_much_larger_than_the_weights(vectors):
    size = sum(parameter.numel() * 4 for parameter in vectors.module_.parameters())
    assert len(pickle.dumps(vectors.module_)) < 2 * size + 100_000


def test_the_device_of_a_fitted_model_is_where_its_module_is(vectors, saved):
    model = load(saved)
    model.set_params(device="meta")
    np.testing.assert_array_equal(model.predict(VECTORS), vectors.predict(VECTORS))
    with pytest.raises(ValueError, match="device='abacus' cannot be used"):
        load(saved, device="abacus")


def test_saving_into_no_folder_says_so(vectors, tmp_path):
    with pytest.raises(FileNotFoundError, match="there is no folder"):
        vectors.save(tmp_path / "none" / "m")


def test_a_failed_save_leaves_the_old_file(vectors, saved, tmp_path, monkeypatch):
    from treevae.storage import tensors as checkpoint

    path = tmp_path / "model.safetensors"
    path.write_bytes(saved.read_bytes())

    def full_disk(tensors, part, metadata):
        part.write_bytes(b"half")
        raise OSError("No space left on device")

    monkeypatch.setattr(checkpoint, "save_file", full_disk)
    with pytest.raises(OSError, match="No space"):
        vectors.save(path)
    assert path.read_bytes() == saved.read_bytes()
    assert list(tmp_path.iterdir()) == [path]


def test_truncated_files_are_refused(saved, tmp_path):
    whole, cut = saved.read_bytes(), tmp_path / "cut.safetensors"
    for size in (0, 4, 100, len(whole) // 2, len(whole) - 1):
        cut.write_bytes(whole[:size])
        with pytest.raises(ModelFileError, match="not a treevae model, or was cut short"):
            load(cut)


def test_foreign_and_newer_files_are_refused(saved, tmp_path):
    with pytest.raises(FileNotFoundError, match="there is no file"):
        load(tmp_path / "none")
    (tmp_path / "text").write_text("hello " * 100)
    with pytest.raises(ModelFileError, match="not a treevae model"):
        load(tmp_path / "text")
    save_file({"a": torch.zeros(1)}, tmp_path / "foreign")
    with pytest.raises(ModelFileError, match="not one that treevae wrote"):
        load(tmp_path / "foreign")
    save_file({"a": torch.zeros(1)}, tmp_path / "newer", {"treevae": json.dumps({"format": 999})})
    with pytest.raises(ModelFileError, match="has format 999; this treevae reads up to 2, update it"):
        load(tmp_path / "newer")
    save_file({"a": torch.zeros(1)}, tmp_path / "broken", {"treevae": "{"})
    with pytest.raises(ModelFileError, match="unreadable metadata"):
        load(tmp_path / "broken")


def test_plans_of_earlier_versions_are_read(vectors, saved, tmp_path):
    from treevae.storage import tensors as checkpoint

    about, tensors = checkpoint.read(saved)
    about["plan"] |= {"candidate_rule": "loss_if_sure", "held_out": 0.1, "repairs": 0}
    checkpoint.write(tmp_path / "earlier", about, tensors)
    assert load(tmp_path / "earlier").plan_ == vectors.plan_


@pytest.mark.parametrize(
    "spoil",
    [
        lambda about, tensors: about.pop("tree"),
        lambda about, tensors: about.update(tree='{"children": {"0": [1]}, "n_created": 3}'),
        lambda about, tensors: about["architecture"].update(unknown=1),
        lambda about, tensors: about["parameters"].update(unknown=1),
        lambda about, tensors: tensors.pop("labels"),
        lambda about, tensors: tensors.update(extra=torch.zeros(1)),
        lambda about, tensors: tensors.update({k: v[..., :1] for k, v in tensors.items() if k.startswith("module.")}),
    ],
)
def test_files_that_do_not_hold_together_are_refused(spoil, saved, tmp_path):
    from treevae.storage import tensors as checkpoint

    about, tensors = checkpoint.read(saved)
    spoil(about, tensors)
    checkpoint.write(tmp_path / "spoilt", about, tensors)
    with pytest.raises(ModelFileError, match="does not hold together"):
        load(tmp_path / "spoilt")
