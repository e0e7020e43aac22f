"""What all tests share."""

import pytest
import torch

torch.set_num_threads(1)  # the tests' tensors are small; two threads would only wait for each other


@pytest.fixture(autouse=True)
def one_thread() -> None:
    """Again before every test: UMAP, once used, leaves torch with as many threads as there are cores."""
    torch.set_num_threads(1)
