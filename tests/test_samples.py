"""Which samples the device holds, and those that visit it in pieces."""

import numpy as np
import pytest
import torch

from treevae.training.samples import Ahead, Samples, over

CPU = torch.device("cpu")


def test_small_data_are_held_as_they_are():
    x = torch.rand(50, 4)
    samples = Samples(x, CPU)
    assert samples.resident
    assert samples.x.data_ptr() == x.data_ptr()  # no copy
    assert samples.window(derived=100, batch_size=8) is None


def test_windows_are_whole_batches_within_the_budget():
    samples = Samples(torch.rand(1000, 4), CPU, budget=6400)
    assert not samples.resident
    assert samples.window(0, batch_size=10) == 200  # 16 bytes a sample, in half of the budget
    assert samples.window(12, batch_size=10) == 50
    assert samples.window(0, batch_size=300) == 300  # one batch at least


def test_what_is_derived_counts_too():
    samples = Samples(torch.rand(1000, 4), CPU, budget=20_000)
    assert samples.resident
    assert samples.window(0, 10) is None
    assert samples.window(4, 10) is not None


def test_a_memory_map_is_read_where_it_lies(tmp_path):
    x = np.random.default_rng(0).random((64, 4), dtype=np.float32)
    x.tofile(tmp_path / "x")
    mapped = torch.from_numpy(np.memmap(tmp_path / "x", np.float32, "r+", shape=x.shape))
    samples = Samples(mapped, CPU, budget=512)
    np.testing.assert_array_equal(samples.rows(torch.tensor([63, 0, 7])), x[[63, 0, 7]])
    doubled = over(torch.nn.Identity(), samples, lambda part: 2 * part, {"cpu": 10})
    np.testing.assert_array_equal(doubled, 2 * x)


@pytest.mark.parametrize("prepared", [True, False])
def test_pieces_come_whether_or_not_they_were_prepared(prepared):
    x = torch.arange(40.0).reshape(20, 2)
    ahead = Ahead(Samples(x, CPU, budget=16))
    rows = torch.tensor([5, 3])
    if prepared:
        ahead.prepare((0, 1), rows)
    else:
        ahead.prepare((0, 2), torch.tensor([9]))  # another piece than the one asked for
    torch.testing.assert_close(ahead.get((0, 1), rows), x[rows])
