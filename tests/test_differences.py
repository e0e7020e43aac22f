"""Whether a run is the one that was started."""

import json

import numpy as np
import pytest

from treevae.storage.differences import ChangedRunError, check_same, differences
from treevae.storage.fingerprint import fingerprint

X = np.random.default_rng(0).normal(size=(50, 3, 4)).astype(np.float32)


def test_differences_are_named():
    before = {"n_leaves": 10, "arch": {"dims": (8, 8), "net": {"kind": "cnn"}}, "gone": None, "lr": 1, "same": "x"}
    now = {"n_leaves": 20, "arch": {"dims": [8, 4], "net": {"kind": "mlp"}}, "lr": 1.0, "same": "x", "new": True}
    assert differences(before, now) == [
        "n_leaves: 10 before, now 20",
        "arch.dims: [8, 8] before, now [8, 4]",
        "arch.net.kind: 'cnn' before, now 'mlp'",
        "gone: None before, now absent",
        "new: absent before, now True",
    ]
    assert differences({"a": {"b": 1}}, {"a": 1}) == ["a: {'b': 1} before, now 1"]
    assert differences({"a": 1}, {"a": True}) == ["a: 1 before, now True"]


def test_what_json_changes_is_no_difference():
    now = {"a": (1, (2, 3)), "b": float("nan"), "c": {1: [{"d": (4,)}]}, "e": [float("nan")]}
    assert differences(json.loads(json.dumps(now)), now) == []


def test_long_values_are_cut_in_differences():
    (text,) = differences({"a": "x" * 1000}, {"a": "y" * 1000})
    assert len(text) < 200
    assert differences({"a": "x" * 1000}, {"a": "x" * 999})[0].endswith("before, now another that begins alike")


def test_a_changed_run_is_refused_and_says_all(tmp_path):
    now = {"n_leaves": 10, "data": fingerprint(X)}
    check_same(dict(now), now, tmp_path)
    with pytest.raises(ChangedRunError) as caught:
        check_same({"n_leaves": 20, "data": fingerprint(X[:40])}, now, tmp_path)
    for text in (
        str(tmp_path),
        "n_leaves: 20 before, now 10",
        "data: 'float32 40x3x4 ",
        "another folder",
        "start anew",
    ):
        assert text in str(caught.value)
    assert "\n" not in str(caught.value)
    assert isinstance(caught.value, ValueError)
