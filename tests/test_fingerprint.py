"""Whether samples are the same as before."""

import numpy as np
import pytest
import torch

from treevae.storage.fingerprint import fingerprint

X = np.random.default_rng(0).normal(size=(50, 3, 4)).astype(np.float32)


@pytest.mark.parametrize("chunk", [1, 100, 2**24])
def test_arrays_maps_and_tensors_have_the_same_fingerprint(chunk, tmp_path):
    expected = fingerprint(X)
    assert expected.startswith("float32 50x3x4 ")
    np.save(tmp_path / "x.npy", X)
    np.save(tmp_path / "f.npy", np.asfortranarray(X))
    for x in (
        X,
        np.load(tmp_path / "x.npy", mmap_mode="r"),
        np.load(tmp_path / "f.npy", mmap_mode="r"),
        np.repeat(X, 2, 0)[::2],
        torch.from_numpy(X),
        torch.from_numpy(X).permute(2, 1, 0).contiguous().permute(2, 1, 0).requires_grad_(),
    ):
        assert fingerprint(x, chunk) == expected


@pytest.mark.gpu
def test_tensors_on_a_gpu_have_the_same_fingerprint():
    assert fingerprint(torch.from_numpy(X).cuda(), 100) == fingerprint(X)


def test_every_bit_changes_the_fingerprint():
    seen = {fingerprint(X[:4])}
    for place in range(8 * X[:4].nbytes):
        flipped = X[:4].copy()
        flipped.view(np.uint8).reshape(-1)[place // 8] ^= 1 << place % 8
        seen.add(fingerprint(flipped))
    assert len(seen) == 1 + 8 * X[:4].nbytes


def test_order_shape_and_type_change_the_fingerprint():
    zeros = np.zeros((4, 6), np.float32)
    same_bytes = (zeros, zeros.reshape(6, 4), zeros.reshape(24), zeros.reshape(4, 6, 1), zeros.view(np.int32))
    others = (zeros.view(np.float64), zeros[:3], zeros[:0], zeros[0, 0], zeros.astype(">f4"), X, X[::-1], -X)
    assert len({fingerprint(x) for x in same_bytes + others}) == len(same_bytes + others)


@pytest.mark.parametrize("dtype", ["uint8", "bool", "float16", "float64", "int64", "complex64"])
def test_fingerprints_of_other_types(dtype):
    x = (np.arange(30).reshape(10, 3) % 2).astype(dtype)
    assert fingerprint(x) == fingerprint(torch.from_numpy(x))
    assert fingerprint(x).startswith(f"{dtype} 10x3 ")


def test_fingerprints_of_what_numpy_or_torch_have_not():
    assert fingerprint(torch.zeros(3, dtype=torch.bfloat16)).startswith("bfloat16 3 ")
    assert fingerprint(np.array(["2020-01-01"], "datetime64[D]")).startswith("datetime64[D] 1 ")
    with pytest.raises(TypeError, match="holds Python objects"):
        fingerprint(np.array([None]))
